/* run_hosts_test.c - hosts are read as mpirun's -H and hostfiles have them, and get their ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
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
#include "cli/text_file.h"
#include "tests/support/sync.h"

static struct run_hosts hosts;
static struct fbr_error err;

static int parse(const char *text)
{
    run_hosts_fini(&hosts);
    err = (struct fbr_error){0, ""};
    return run_hosts_parse(&hosts, "file", text, strlen(text), &err);
}

static int list(const char *text)
{
    run_hosts_fini(&hosts);
    err = (struct fbr_error){0, ""};
    return run_hosts_list(&hosts, text, &err);
}

/* "a=2 b=1", or the error. */
static const char *fit(struct run_hosts_wish wish)
{
    static char text[512];
    int size = run_hosts_fit(&hosts, &wish, &err), all = 0, n = 0;

    if (size < 0)
        return err.text;
    text[0] = '\0';
    for (size_t i = 0; i < hosts.n; i++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s=%d", i ? " " : "", hosts.names[i],
                      hosts.ranks[i]);
        all += hosts.ranks[i];
        assert_true(hosts.ranks[i] > 0);
        assert_string_equal(hosts.names[i], hosts.at[i].name);
    }
    assert_int_equal(all, size);
    return text;
}

#define FIT(...) fit((struct run_hosts_wish){__VA_ARGS__})

static int end(void **state)
{
    run_hosts_fini(&hosts);
    return 0;
}

static void lists_are_read(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"a", "a=1"},
        {"a,b", "a=1 b=1"},
        {"a:2,b", "a=2 b=1"},
        {"a,a,b", "a=2 b=1"},
        {"a:2,b,A:3", "a=5 b=1"},
        {"a, b ,,c", "a=1 b=1 c=1"},
        {"[2001:db8::1]:4,2001:db8::2,[::1]", "2001:db8::1=4 2001:db8::2=1 ::1=1"},
        {"user@h-1.x_y.org:2,10.0.0.1", "user@h-1.x_y.org=2 10.0.0.1=1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(list(cases[i].text), 0);
        assert_string_equal(FIT(0), cases[i].said);
    }
}

static void hostfiles_are_read(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"a slots=2\nb slots=1", "a=2 b=1"},
        {"# ours\n\n  a slots=2 # fast\r\n\tb slots=1\r\n#c\n", "a=2 b=1"},
        {"a:4\nb:2\n", "a=4 b=2"},
        {"a slots = 3 max_slots=4\nb max-slots=2\n", "a=3 b=2"},
        {"a\nb\na\na\n", "a=3 b=1"}, /* as $PBS_NODEFILE has them */
        {"a slots=2\nb\na slots=1\n", "a=3 b=1"},
        {"a cpus=2\nb COUNT=3", "a=2 b=3"},
        {"[2001:db8::1]:2 # six\n2001:db8::2 slots=3", "2001:db8::1=2 2001:db8::2=3"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].text), 0);
        assert_string_equal(FIT(0), cases[i].said);
    }
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *said;
    } lists[] = {
        {"", "has no host"},
        {",,", "has no host"},
        {"-oProxyCommand=x", "\"-oProxyCommand=x\" is not a host: use NAME, NAME:RANKS"},
        {"a,-b:2", "\"-b:2\" is not a host"},
        {"a:0", "with 1 rank or more"},
        {"a:x", "\"a:x\" is not a host"},
        {"a:-1", "\"a:-1\" is not a host"},
        {"a:1234567", "is not a host"},
        {"a:", "is not a host"},
        {"+n0", "is not a host"},
        {"a;b", "is not a host"},
        {"a`b", "is not a host"},
        {"{host}", "is not a host"},
        {"[::1", "is not a host"},
        {"[::1]x", "is not a host"},
        {"[]", "is not a host"},
        {"./hosts", "--hostfile FILE"},
        {"n[1-3]", "instead of n[1-3], use n1,n2,n3"},
    };
    static const struct {
        const char *text, *said;
    } files[] = {
        {"", "file: the file has no host"},
        {"# nothing\n\n", "file: the file has no host"},
        {"a\nb c\n", "file:2: \"c\" is not known after a host; use slots=N"},
        {"a\n\nb slots=0\n", "file:3: slots=0: a number from 1 to"},
        {"a slots=", "file:1: slots=: a number"},
        {"a slots", "file:1: slots=: a number"},
        {"a slots=2x", "file:1: slots=2x: a number"},
        {"a slots=-2", "a number"},
        {"a slots=99999999999999999999999", "a number"},
        {"a slots=1000000", "a number"},
        {"a slots=4 max_slots=2", "file:1: max_slots=2 is less than slots=4"},
        {"a:0", "file:1: \"a:0\" is not a host"},
        {"a slots=1\n-b slots=1", "file:2: \"-b\" is not a host"},
        {"a,b", "file:1: \"a,b\" is not a host"},
        {"a user=b", "\"user\" is not known"},
    };

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_int_equal(list(lists[i].text), -22);
        if (!strstr(err.text, lists[i].said))
            fail_msg("%s: %s", lists[i].text, err.text);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (parse(files[i].text) != -22 || !strstr(err.text, files[i].said))
            fail_msg("%s: %s", files[i].text, err.text);
    }
    assert_int_equal(run_hosts_parse(&hosts, "file", "a\0b", 3, &err), -22);
    assert_non_null(strstr(err.text, "file:1: the line is not text"));
}

static void ranks_fill_slots(void **state)
{
    parse("a slots=2\nb slots=3\nc slots=1\n");
    assert_string_equal(FIT(.size = 4), "a=2 b=2");
    parse("a slots=2\nb slots=3\nc slots=1\n");
    assert_string_equal(FIT(.size = 3, .nodes = 2), "a=2 b=1");
    parse("a slots=2\nb slots=3\nc slots=1\n");
    assert_string_equal(FIT(.per_node = 2), "a=2 b=2 c=2");
    parse("a slots=2\nb slots=3\nc slots=1\n");
    assert_non_null(strstr(FIT(.size = 7), "7 ranks are more than the 6 slots of 3 hosts"));
    assert_non_null(strstr(err.text, "slots=3"));
    list("a:2,b");
    assert_non_null(strstr(FIT(.size = 7), "such as -H a:4"));
    list("a");
    assert_non_null(strstr(FIT(.size = 7), "the 1 slot of 1 host:"));
    list("a,b");
    assert_non_null(strstr(FIT(.size = 7, .per_node = 3), "do not fit on 2 hosts with 3 each"));
    list("a:999999,b:999999");
    assert_non_null(strstr(FIT(0), "more than 1048576 ranks"));
}

static void more_than_the_slots_are_spread(void **state)
{
    list("a,b:3");
    assert_string_equal(FIT(.size = 9, .oversubscribe = true), "a=4 b=5");
    parse("a slots=4 max_slots=4\nb max_slots=4\nc slots=4\n"); /* of Open MPI's manual */
    assert_string_equal(FIT(.size = 14, .oversubscribe = true), "a=4 b=4 c=6");
    parse("a slots=1 max_slots=2\nb slots=1 max_slots=9\nc\n");
    assert_string_equal(FIT(.size = 10, .oversubscribe = true), "a=2 b=4 c=4");
    parse("a slots=1 max_slots=2\nb slots=1 max_slots=3\n");
    assert_string_equal(FIT(.size = 5, .oversubscribe = true), "a=2 b=3");
    parse("a slots=1 max_slots=2\nb slots=1 max_slots=3\n");
    assert_non_null(strstr(FIT(.size = 6, .oversubscribe = true), "more than the max_slots of "
                                                                  "all"));
    list("a,b");
    assert_string_equal(FIT(.size = 1 << 20, .oversubscribe = true), "a=524288 b=524288");
}

static void a_file_without_slots_is_spread_over(void **state)
{
    parse("a\nb\nc\n");
    assert_string_equal(FIT(0), "a=1 b=1 c=1");
    parse("a\nb\nc\n");
    assert_string_equal(FIT(.size = 8), "a=3 b=3 c=2");
    parse("a\nb\nc\n");
    assert_string_equal(FIT(.size = 2), "a=1 b=1");
    parse("a\nb slots=1\n"); /* one says something */
    assert_non_null(strstr(FIT(.size = 8), "the 2 slots"));
}

static void even_ranks_stay_within_the_slots(void **state)
{
    static const struct {
        struct run_hosts_wish wish;
        const char *spread;
    } cases[] = {
        {{.size = 2}, "a=1 b=1"},
        {{.size = 6}, "a=2 b=2 c=2"},
        {{.size = 9}, "a=4 b=2 c=3"},
        {{.size = 14}, "a=4 b=2 c=8"},
        {{0}, "a=4 b=2 c=8"},
        {{.size = 15}, "15 ranks are more than the 14 slots"},
        {{.size = 17, .oversubscribe = true}, "a=5 b=3 c=9"},
        {{.size = 4, .per_node = 2}, "a=2 b=1 c=1"},
        {{.size = 4, .nodes = 2}, "a=2 b=2"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct run_hosts_wish wish = cases[i].wish;

        wish.even = true;
        list("a:4,b:2,c:8");
        if (!strstr(fit(wish), cases[i].spread))
            fail_msg("case %zu: %s", i, fit(wish));
    }
}

static void a_list_chooses_of_a_file(void **state)
{
    struct run_hosts only = {0};

    parse("a slots=2\nb slots=3\nc slots=1\n");
    assert_int_equal(run_hosts_list(&only, "c:4,b", &err), 0);
    assert_int_equal(run_hosts_choose(&hosts, &only, &err), 0);
    assert_string_equal(FIT(0), "b=3 c=4");
    assert_int_equal(run_hosts_choose(&hosts, &only, &err), 0);
    assert_int_equal(run_hosts_list(&only, "d", &err), 0);
    assert_int_equal(run_hosts_choose(&hosts, &only, &err), -22);
    assert_non_null(strstr(err.text, "d is not in the hostfile"));
    run_hosts_fini(&only);
    parse("a slots=2 max_slots=4\nb\n");
    only = (struct run_hosts){0};
    assert_int_equal(run_hosts_list(&only, "b,a:8", &err), 0);
    assert_int_equal(run_hosts_choose(&hosts, &only, &err), -22);
    assert_non_null(strstr(err.text, "-H a:8 is more than its max_slots=4"));
    run_hosts_fini(&only);
}

static void a_host_on_two_lines_has_the_sum_of_both(void **state)
{
    parse("a slots=2 max_slots=8\na slots=4\nb\n");
    assert_string_equal(FIT(.size = 18, .oversubscribe = true), "a=8 b=10");
    assert_int_equal(parse("a slots=2 max_slots=4\na slots=4\nb\n"), -22);
    assert_string_equal(err.text, "file:2: max_slots=4 is less than slots=6");
}

static void the_setting_is_what_the_backend_reads(void **state)
{
    char *text;

    list("a:2,[::1]:2,b@c,[1:2]");
    text = run_hosts_setting(&hosts);
    assert_string_equal(text, "a [::1] b@c [1:2]");
    free(text);
}

static void this_host_is_known(void **state)
{
    char name[256] = "", text[300];

    gethostname(name, sizeof(name) - 1);
    snprintf(text, sizeof(text), "localhost:3,127.0.0.1,127.1.2.3,::1,%s", name);
    assert_int_equal(list(text), 0);
    assert_true(run_hosts_here(&hosts));
    assert_int_equal(run_hosts_slots(&hosts), 7);
    list("localhost,192.0.2.1");
    assert_false(run_hosts_here(&hosts));
    list("localhost.example.org");
    assert_false(run_hosts_here(&hosts));
    list("me@localhost"); /* somebody else, perhaps */
    assert_false(run_hosts_here(&hosts));
}

static void files_have_an_end(void **state)
{
    char dir[256], path[300];
    FILE *f;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/hosts", dir);
    assert_int_equal(run_hosts_read(&hosts, path, &err), -2);
    assert_non_null(strstr(err.text, path));
    f = fopen(path, "w");
    for (int i = 0; i < 10000; i++)
        fprintf(f, "h%d\n", i);
    fclose(f);
    run_hosts_fini(&hosts);
    assert_int_equal(run_hosts_read(&hosts, path, &err), -22);
    assert_non_null(strstr(err.text, "hosts:8193: more than 8192 hosts"));
    f = fopen(path, "w");
    for (unsigned i = 0; i <= TEXT_FILE_MAX / 8; i++)
        fputs("#234567\n", f);
    fclose(f);
    assert_int_equal(run_hosts_read(&hosts, path, &err), -27);
    assert_int_equal(run_hosts_read(&hosts, dir, &err), -21);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(hostfiles_are_read),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(ranks_fill_slots),
        cmocka_unit_test(more_than_the_slots_are_spread),
        cmocka_unit_test(a_file_without_slots_is_spread_over),
        cmocka_unit_test(even_ranks_stay_within_the_slots),
        cmocka_unit_test(a_list_chooses_of_a_file),
        cmocka_unit_test(a_host_on_two_lines_has_the_sum_of_both),
        cmocka_unit_test(the_setting_is_what_the_backend_reads),
        cmocka_unit_test(this_host_is_known),
        cmocka_unit_test(files_have_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, end);
}
