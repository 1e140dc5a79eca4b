/* orphans_test.c - jobs of dead runs are told from those of others, and how they are removed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/orphans.h"
#include "runtime/base/master_id.h"

static struct orphans l;
static char ours[FBR_MASTER_ID_MAX], dead[FBR_MASTER_ID_MAX];

static int set_up(void **state)
{
    memset(&l, 0, sizeof(l));
    fbr_master_id_self(ours);
    memcpy(dead, ours, sizeof(dead));
    strcpy(strrchr(dead, '.'), ".1");
    return 0;
}

static int tear_down(void **state)
{
    orphans_free(&l);
    return 0;
}

static void add(const char *backend, const char *run, const char *id, const char *master)
{
    l.backend = backend;
    orphans_add(
        &l, &(struct fbr_orphan){.run = run, .id = id, .name = "job", .master = master, .runs = 1});
    assert_false(l.failed);
}

static enum orphan_verdict verdict_of(const char *id)
{
    for (size_t i = 0; i < l.count; i++)
        if (!strcmp(l.jobs[i].id, id))
            return l.jobs[i].verdict;
    fail_msg("no job %s", id);
    return ORPHAN_UNKNOWN;
}

static void only_the_job_of_a_dead_master_is_dead(void **state)
{
    add("docker", "r1", "a", ours);
    add("docker", "r2", "b", dead);
    add("docker", "r3", "c", "elsewhere:1:1234567812345678.1");
    add("docker", "r4", "d", "");
    orphans_judge(&l);
    assert_int_equal(verdict_of("a"), ORPHAN_LIVES);
    assert_int_equal(verdict_of("b"), ORPHAN_DEAD);
    assert_int_equal(verdict_of("c"), ORPHAN_UNKNOWN);
    assert_int_equal(verdict_of("d"), ORPHAN_UNKNOWN);
}

/* On an engine that several people use, anybody may label a pod or a container as one of ours. */
static void no_text_of_an_engine_reaches_the_terminal_as_it_is(void **state)
{
    l.backend = "kubernetes";
    orphans_add(&l, &(struct fbr_orphan){.run = "r\033[2J",
                                         .id = "a",
                                         .name = "job\a",
                                         .master = "there\nall is well",
                                         .fiber = "/bin/fiber\r"});
    assert_false(l.failed);
    assert_string_equal(l.jobs[0].run, "r?[2J");
    assert_string_equal(l.jobs[0].name, "job?");
    assert_string_equal(l.jobs[0].master, "there?all is well");
    assert_string_equal(l.jobs[0].fiber, "/bin/fiber?");
}

static void one_that_lives_speaks_for_its_run_but_not_for_the_dead(void **state)
{
    add("docker", "r2", "other", "elsewhere:1:1234567812345678.1");
    add("docker", "r1", "a", "elsewhere:1:1234567812345678.1");
    add("docker", "r1", "b", dead);
    add("docker", "r1", "c", ours);
    orphans_judge(&l);
    assert_int_equal(verdict_of("a"), ORPHAN_LIVES);
    assert_int_equal(verdict_of("b"), ORPHAN_DEAD);
    assert_int_equal(verdict_of("other"), ORPHAN_UNKNOWN);
    assert_int_equal(orphans_same_run(&l, 0), 3);
    assert_int_equal(orphans_same_run(&l, 3), 1);
    assert_string_equal(l.jobs[0].id, "c"); /* its master is the one to be told */
}

static void the_command_that_removes_a_job_is_its_engines(void **state)
{
    static const char *const commands[] = {"docker rm -f 0123456789ab",
                                           "kubectl delete pod/fiber-1-2",
                                           "kubectl delete secret/fiber-1", "scancel 17_3"};
    struct fbr_config *config;
    char text[200];

    add("docker", "r", "0123456789abcdef", "h:5:x.y");
    add("kubernetes", "r", "fiber-1-2", "");
    add("kubernetes", "r", "secret/fiber-1", "");
    add("slurm", "r", "17_3", "");
    assert_int_equal(fbr_config_load(&config, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        orphan_command(&l.jobs[i], config, text, sizeof(text));
        assert_string_equal(text, commands[i]);
    }
    assert_int_equal(fbr_config_set(config, "kubernetes_context", "prod", "a test", NULL), 0);
    assert_int_equal(fbr_config_set(config, "kubernetes_namespace", "team", "a test", NULL), 0);
    orphan_command(&l.jobs[1], config, text, sizeof(text));
    assert_string_equal(text, "kubectl delete --context prod -n team pod/fiber-1-2");
    fbr_config_free(config);
}

static void a_master_is_shown_by_host_and_number(void **state)
{
    char text[40];

    add("docker", "r", "1", "h:5:x.y");
    add("docker", "r", "2", "");
    add("docker", "r", "3", "a-name-that-is-much-longer-than-a-line-has-room-for");
    orphan_master(&l.jobs[0], text);
    assert_string_equal(text, "h:5");
    assert_int_equal(orphan_pid(&l.jobs[0]), 5);
    orphan_master(&l.jobs[1], text);
    assert_string_equal(text, "");
    assert_int_equal(orphan_pid(&l.jobs[1]), 0);
    orphan_master(&l.jobs[2], text);
    assert_int_equal(strlen(text), 39);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_the_job_of_a_dead_master_is_dead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_text_of_an_engine_reaches_the_terminal_as_it_is, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_lives_speaks_for_its_run_but_not_for_the_dead,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_command_that_removes_a_job_is_its_engines, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_master_is_shown_by_host_and_number, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
