/* orphan_run_test.c - which jobs are of a run that only an engine knows.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/orphans.h"
#include "runtime/base/master_id.h"

static struct orphans l;
static char dead[FBR_MASTER_ID_MAX];

static int set_up(void **state)
{
    memset(&l, 0, sizeof(l));
    fbr_master_id_self(dead);
    strcpy(strrchr(dead, '.'), ".1");
    return 0;
}

static int tear_down(void **state)
{
    orphans_free(&l);
    return 0;
}

static void add(const char *run, const char *id, const char *name, const char *master)
{
    l.backend = "docker";
    orphans_add(
        &l, &(struct fbr_orphan){.run = run, .id = id, .name = name, .master = master, .runs = 1});
    assert_false(l.failed);
}

static void only_what_can_be_an_id_is_looked_for(void **state)
{
    assert_true(orphan_run_is_id("3f"));
    assert_true(orphan_run_is_id("0123456789abcdef0123456789abcdef"));
    assert_false(orphan_run_is_id(""));
    assert_false(orphan_run_is_id("3"));
    assert_false(orphan_run_is_id("train"));
    assert_false(orphan_run_is_id("3F"));
    assert_false(orphan_run_is_id("0123456789abcdef0123456789abcdef0"));
}

static void a_run_is_chosen_by_the_beginning_of_its_id(void **state)
{
    const struct orphan *first = NULL;
    struct fbr_error err = {0, ""};

    add("aa11", "1", "worker-1", dead);
    add("aa22", "2", "worker-1", dead);
    add("aa11", "3", "worker-2", dead);
    orphans_judge(&l);
    assert_int_equal(orphan_run_choose(&l, "aa1", NULL, &first, &err), 2);
    assert_string_equal(first->run, "aa11");
    assert_int_equal(orphan_run_choose(&l, "ab", NULL, &first, &err), 0);
    assert_int_equal(orphan_run_choose(&l, "aa", NULL, &first, &err), -EEXIST);
    assert_non_null(strstr(err.text, "aa11 and aa22"));
}

static void a_lost_run_has_the_jobs_of_its_dead_master(void **state)
{
    const struct orphan *first = NULL;
    struct run_client lost = {.state = CLIENT_LOST, .about = {.pid = getpid()}};

    strcpy(lost.about.backend, "docker");
    add("aa11", "1", "worker-1", "elsewhere:1:1234567812345678.1");
    add("aa22", "2", "worker-1", dead);
    orphans_judge(&l);
    assert_int_equal(orphan_run_choose(&l, NULL, &lost, &first, NULL), 1);
    assert_string_equal(first->run, "aa22");
    lost.about.pid++;
    assert_int_equal(orphan_run_choose(&l, NULL, &lost, &first, NULL), 0);
    lost.about.pid--;
    strcpy(lost.about.backend, "slurm");
    assert_int_equal(orphan_run_choose(&l, NULL, &lost, &first, NULL), 0);
}

static void a_job_is_named_or_the_names_are_told(void **state)
{
    struct orphan_run e = {.uid = "aa11", .count = 1};
    struct fbr_error err = {0, ""};

    add("aa11", "1", "worker-1", dead);
    add("aa11", "2", "worker-2", dead);
    add("aa11", "secret/3", "", dead); /* what owns pods, and is not a job */
    orphans_judge(&l);
    e.at[0].jobs = l.jobs;
    e.at[0].count = l.count;
    assert_int_equal(orphan_run_wanted(&e, NULL, &err), 2);
    assert_int_equal(orphan_run_wanted(&e, "worker-2", &err), 1);
    assert_int_equal(orphan_run_wanted(&e, "1", &err), 1);
    assert_int_equal(orphan_run_wanted(&e, "worker-3", &err), -ENOENT);
    assert_non_null(strstr(err.text, "has no job worker-3; it has worker-1, worker-2"));
}

/* What is said of `run`, whose jobs are those of the list from the first of that run on. */
static const char *elsewhere(const char *run)
{
    static struct fbr_error err;
    struct engine_jobs at = {.all = l};
    struct fbr_config *config;

    assert_int_equal(fbr_config_load(&config, NULL), 0);
    at.backend.config = config;
    err = (struct fbr_error){0, ""};
    for (size_t i = 0; i < l.count && !at.jobs; i++)
        if (!strcmp(l.jobs[i].run, run)) {
            at.jobs = &l.jobs[i];
            at.count = orphans_same_run(&l, i);
        }
    assert_true(orphan_run_elsewhere(&at, "top", &err) < 0);
    assert_int_not_equal(err.code, 0);
    fbr_config_free(config);
    return err.text;
}

static void the_master_of_another_host_is_asked_there(void **state)
{
    static const char pod[] = "kubectl exec fiber-aaaaaaaa-master-0-x7kqp -- /";

    add("bbbb", "fiber-bbbb-agent-1", "agent-1", "fiber-aaaaaaaa-master-0-:7:0123456789abcdef.1");
    add("aaaa", "fiber-aaaaaaaa-master-0-x7kqp", "master", "here:8:0123456789abcdef.1");
    add("aaaa", "job/fiber-aaaaaaaa-master-0", "", "here:8:0123456789abcdef.1");
    add("cccc", "fiber-cccc-agent-1", "agent-1", "there:9:0123456789abcdef.1");
    add("dddd", "fiber-dddd-agent-1", "agent-1", dead);
    for (size_t i = 0; i < l.count; i++)
        l.jobs[i].backend = "kubernetes";
    orphans_judge(&l);
    assert_non_null(strstr(elsewhere("aaaa"), pod));
    assert_non_null(strstr(elsewhere("bbbb"), pod));
    assert_non_null(strstr(elsewhere("bbbb"), " top"));
    assert_non_null(strstr(elsewhere("cccc"), "not on this host (there:9): use `fiber ps`"));
    assert_non_null(strstr(elsewhere("dddd"), "the master is gone; use `fiber gc`"));
    for (size_t i = 0; i < l.count; i++) /* where masters are in no pods */
        l.jobs[i].backend = "docker";
    assert_non_null(strstr(elsewhere("bbbb"), "not on this host"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_can_be_an_id_is_looked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_is_chosen_by_the_beginning_of_its_id, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_lost_run_has_the_jobs_of_its_dead_master, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_job_is_named_or_the_names_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_master_of_another_host_is_asked_there, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
