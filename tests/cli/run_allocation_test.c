/* run_allocation_test.c - what the managers say of an allocation's hosts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_hosts.h"
#include "cli/run_options.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* "h1=2 h2=1", or the sentence. */
static const char *hosts_in(enum run_manager kind, const char *text)
{
    static char said[1200];
    struct fbr_error err = {0, ""};
    struct run_hosts h = {0};
    size_t n = 0;
    int rc = run_allocation_parse(&h, kind, "it", text, strlen(text), &err);

    said[0] = '\0';
    for (size_t i = 0; rc == 0 && i < h.n; i++)
        n += (size_t)snprintf(said + n, sizeof(said) - n, "%s%s=%lld", i ? " " : "", h.at[i].name,
                              (long long)(h.at[i].slots + h.at[i].bare));
    if (rc < 0)
        snprintf(said, sizeof(said), "%s", err.text);
    run_hosts_fini(&h);
    return said;
}

static void each_manager_has_a_form_of_its_own(void **state)
{
    static const struct {
        enum run_manager kind;
        const char *text, *want;
    } cases[] = {
        {RUN_PBS, "h1\nh1\nh2\n", "h1=2 h2=1"},
        {RUN_PBS, "h1.site\nh2.site\n", "h1.site=1 h2.site=1"},
        {RUN_LSF, "h1 4 h2 2", "h1=4 h2=2"},
        {RUN_LSF, "  h1  4 ", "h1=4"},
        {RUN_LSF_FILE, "h1\nh2\nh2\n", "h1=1 h2=2"},
        {RUN_SGE, "h1 4 all.q@h1 UNDEFINED\nh2 2 all.q@h2 <NULL>\n", "h1=4 h2=2"},
        {RUN_SGE, "h1 4 a.q@h1 0,0\nh1 1 b.q@h1 UNDEFINED", "h1=5"},
        {RUN_FLUX, "2 9 f[1-2]\n0 0 \n", "f1=5 f2=4"},
        {RUN_FLUX, "1 4 f1\n2 4 f[2,7]\n", "f1=4 f2=2 f7=2"},
    };

    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(hosts_in(cases[i].kind, cases[i].text), cases[i].want);
}

static void what_is_not_understood_is_told_with_its_place(void **state)
{
    static const struct {
        enum run_manager kind;
        const char *text, *want;
    } cases[] = {
        {RUN_PBS, "", "it: the file has no host"},
        {RUN_PBS, "h1\n-x\n", "it:2: \"-x\" is not a host"},
        {RUN_LSF, "h1 4 h2", "it:1: \"h2\" is not a host with 1 to"},
        {RUN_LSF, "h1 four", "it:1: \"h1\" is not a host with"},
        {RUN_LSF, "-oProxyCommand=x 4", "it:1: \"-oProxyCommand=x\" is not a host"},
        {RUN_SGE, "h1 4 q r\nh2 0 q r\n", "it:2: \"h2\" is not a host with"},
        {RUN_SGE, "\n\n", "has no host"},
        {RUN_SGE, "h1 99999999999999999999 q r\n", "is not a host with"},
        {RUN_FLUX, "3 9 f[1-2]\n", "it:1: the line is not NODES CORES HOSTLIST"},
        {RUN_FLUX, "2 1 f[1-2]\n", "it:1: the line is not NODES"},
        {RUN_FLUX, "1 1 $(x)\n", "is not a host with"},
        {RUN_FLUX, "0 0\n", "has no host"},
    };

    for (size_t i = 0; i < COUNT(cases); i++)
        if (!strstr(hosts_in(cases[i].kind, cases[i].text), cases[i].want))
            fail_msg("%s: %s", cases[i].text, hosts_in(cases[i].kind, cases[i].text));
}

/* ---- What becomes of it ---- */

static struct cli_args args;
static struct run_options spec;
static struct fbr_error err;

/* "command 3: h1=2 h2=1; note", or the sentence. */
static const char *run(const char *line)
{
    static char said[1200], text[128];
    char *argv[16], *save = NULL;
    int argc = 0, rc;
    size_t n;

    snprintf(text, sizeof(text), "%s", line);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    err = (struct fbr_error){0, ""};
    assert_int_equal(cli_parse(cli_command_find("run"), argc, argv, &args, &err), 0);
    rc = run_options_make(&spec, &args, &err);
    if (rc < 0) {
        cli_args_fini(&args);
        return err.text;
    }
    n = (size_t)snprintf(said, sizeof(said), "%s %d:", spec.ring.backend ? spec.ring.backend : "-",
                         spec.size);
    for (size_t i = 0; i < spec.hosts.n; i++)
        n += (size_t)snprintf(said + n, sizeof(said) - n, " %s=%d", spec.hosts.at[i].name,
                              spec.ring.slots[i]);
    if (spec.room.note[0])
        snprintf(said + n, sizeof(said) - n, "; %s", spec.room.note);
    run_options_fini(&spec);
    cli_args_fini(&args);
    return said;
}

static void a_run_in_an_allocation_has_its_hosts_and_ranks(void **state)
{
    assert_string_equal(run("p"), "- 1:");
    setenv("LSB_MCPU_HOSTS", "h1 2 h2 2 h3 2", 1);
    assert_string_equal(run("p"), "command 6: h1=2 h2=2 h3=2");
    assert_string_equal(run("-n 3 p"), "command 3: h1=2 h2=1; 1 of 3 nodes of the allocation is "
                                       "not used: h3");
    assert_string_equal(run("-n 12 p"), "command 12: h1=4 h2=4 h3=4");
    assert_string_equal(run("-N 1 p"), "command 3: h1=1 h2=1 h3=1");
    assert_string_equal(run("--nodes 2 -n 2 p"), "command 2: h1=1 h2=1");
    assert_string_equal(run("--nodes 4 p"), "--nodes 4: the allocation has 3 nodes");
    assert_string_equal(run("-H x:2 p"), "command 2: x=2"); /* who says it wins */
    assert_string_equal(run("-b local p"), "- 1:");
    assert_string_equal(run("-b docker -n 2 p"), "- 2:");
    setenv("LSB_MCPU_HOSTS", "localhost 4", 1);
    assert_string_equal(run("p"), "local 4:");
    assert_string_equal(run("-n 2 p"), "local 2:");
    assert_string_equal(run("-n 6 p"), "local 6:");
    setenv("FIBER_RANK", "0", 1); /* a rank of ours starts its own */
    assert_string_equal(run("p"), "- 1:");
    unsetenv("FIBER_RANK");
    unsetenv("LSB_MCPU_HOSTS");
    setenv("PBS_NODEFILE", "/nowhere/nodes", 1);
    assert_non_null(strstr(run("p"), "PBS_NODEFILE (use -H HOST, or unset PBS_NODEFILE"));
    assert_non_null(strstr(run("p"), "/nowhere/nodes"));
    unsetenv("PBS_NODEFILE");
}

int main(void)
{
    static const char *const names[] = {"PBS_NODEFILE", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE",
                                        "PE_HOSTFILE",  "FLUX_URI",       "FIBER_RANK"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_manager_has_a_form_of_its_own),
        cmocka_unit_test(what_is_not_understood_is_told_with_its_place),
        cmocka_unit_test(a_run_in_an_allocation_has_its_hosts_and_ranks),
    };

    for (size_t i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
