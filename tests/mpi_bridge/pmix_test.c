/* pmix_test.c - the PMIx bridge serves real programs: Open MPI's, and some that speak PMIx
 * themselves.
 *
 * They run on one agent, and on two with a launcher between them (tests/support/mini_ring.h). The
 * programs (ranks_mpi.c, ranks_pmix.c) are compiled here, by the compilers that a user of MPI has.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/program/module.h"
#include "tests/support/mini_ring.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

static char temp[64], mpi_program[96], pmix_program[96];

/* Runs the role to its end: nobody may fail. */
static char *run_role(const char *program, uint32_t agents, uint32_t size, const char *role)
{
    struct mini_ring l;
    char *text;

    mini_open(&l, agents);
    mini_start(&l, program, size, role);
    mini_serve(&l);
    text = mini_close(&l);
    for (uint32_t i = 0; i < l.njobs; i++) {
        if (l.jobs[i].first_code)
            print_error("%s", text);
        assert_int_equal(l.jobs[i].first_code, 0);
        assert_int_equal(l.jobs[i].met, l.jobs[i].size);
        assert_int_equal(strncmp(l.how, "PMIx ", 5), 0);
        assert_in_range(l.how[5], '0', '9');
        assert_int_equal(l.jobs[i].left, l.jobs[i].size);
    }
    return text;
}

static void run_hello(uint32_t agents, uint32_t size)
{
    char *text = run_role(mpi_program, agents, size, "hello");

    if (mini_count(text, "sum is right") != (int)size)
        print_error("%s", text);
    assert_int_equal(mini_count(text, "sum is right"), size);
    free(text);
}

static void test_ranks_of_one_agent_are_one_world(void **state)
{
    run_hello(1, 4);
}

static void test_ranks_of_two_agents_are_one_world(void **state)
{
    run_hello(2, 4);
}

static void names_work(uint32_t agents)
{
    char *text = run_role(mpi_program, agents, 2, "names");

    if (!strstr(text, "lookup found it") || mini_count(text, ": 2 are connected") != 4)
        print_error("%s", text);
    assert_non_null(strstr(text, "lookup found it"));
    assert_non_null(strstr(text, "lookup of nobody failed"));
    assert_int_equal(mini_count(text, ": 2 are connected"), 4);
    assert_non_null(strstr(text, "lookup after the end failed"));
    free(text);
}

static void test_names_are_found_and_ports_are_used_again(void **state)
{
    names_work(1);
}

static void test_names_are_found_across_agents(void **state)
{
    names_work(2);
}

static void spawn_works(uint32_t agents)
{
    char *text = run_role(mpi_program, agents, 2, "spawn");

    if (mini_count(text, ": together 4") != 4)
        print_error("%s", text);
    assert_int_equal(mini_count(text, ": together 4"), 4);
    free(text);
}

static void test_a_spawned_world_merges_with_its_parents(void **state)
{
    spawn_works(1);
}

static void test_a_spawned_world_merges_across_agents(void **state)
{
    spawn_works(2);
}

static void test_an_abort_says_who_and_why(void **state)
{
    struct mini_ring l;

    mini_open(&l, 2);
    mini_start(&l, mpi_program, 3, "abort");
    mini_serve(&l);
    free(mini_close(&l));
    assert_int_equal(l.aborted, 7);
    assert_int_equal(l.jobs[0].codes[0], -SIGKILL);
}

/* Plays it with one agent and with two; each word is to be there so often. */
static void check_role(const char *role, uint32_t size, const char *const *words, const int *times)
{
    for (uint32_t agents = 1; agents <= 2; agents++) {
        char *text = run_role(pmix_program, agents, size, role);

        for (int i = 0; words[i]; i++) {
            if (mini_count(text, words[i]) != times[i])
                print_error("%u agents, \"%s\" is not there %d times in:\n%s", agents, words[i],
                            times[i], text);
            assert_int_equal(mini_count(text, words[i]), times[i]);
        }
        free(text);
    }
}

#define CHECK_ROLE(role, size, words, ...) \
    check_role(role, size, (const char *const[]){words, NULL}, (const int[]){__VA_ARGS__})
#define WORDS(...) __VA_ARGS__

static void test_many_fences_keep_apart(void **state)
{
    CHECK_ROLE("fences", 4, WORDS(": 50 fences are right"), 4);
}

static void test_callers_that_say_nothing_hold_nobody_up(void **state)
{
    CHECK_ROLE("crowd", 2, WORDS(": 50 fences are right"), 2);
}

static void test_data_is_fetched_without_a_fence(void **state)
{
    CHECK_ROLE("modex", 4, WORDS(": 4 numbers are right"), 4);
}

static void test_a_published_value_comes_back(void **state)
{
    CHECK_ROLE("keys", 2,
               WORDS("look for nothing: not found", "publish: good", "publish again: there already",
                     "look: good of 42 from 1"),
               1, 1, 1, 2);
}

static void test_an_event_reaches_all_of_the_job(void **state)
{
    CHECK_ROLE("notify", 4, WORDS(": news of rank 0"), 3);
}

static void test_a_query_is_answered_or_refused(void **state)
{
    CHECK_ROLE("query", 2, WORDS("query: good", "query of what is not known: not supported"), 2, 2);
}

static void test_the_log_is_printed(void **state)
{
    CHECK_ROLE("print", 2, WORDS("log: good", "] said through the log"), 2, 2);
}

static void test_a_group_has_one_number(void **state)
{
    char *text;
    bool other;

    text = run_role(pmix_program, 1, 2, "group");
    other = strstr(text, "MPI sessions need the same PMIx") !=
            NULL; /* of TEST_RANKS_PMIX: that is said, then */
    free(text);
    if (!other)
        CHECK_ROLE("group", 2, WORDS(": group good, context 65536", ": no group good"), 2, 2);
}

static void lose_one(uint32_t agents)
{
    struct mini_ring l;
    char *text;

    mini_open(&l, agents);
    l.shrink = true;
    mini_start(&l, pmix_program, 4, "lose");
    mini_serve(&l);
    text = mini_close(&l);
    if (mini_count(text, ": death of rank 3") != 3)
        print_error("%s", text);
    assert_null(strstr(text, "PMIX ERROR"));
    assert_int_equal(l.jobs[0].first_code, -SIGKILL);
    assert_int_equal(mini_count(text, ": death of rank 3"), 3);
    assert_int_equal(l.jobs[0].left, 3);
    free(text);
}

static void test_survivors_hear_of_a_dead_rank(void **state)
{
    lose_one(1);
    lose_one(2);
}

static void test_a_job_can_ask_for_its_end(void **state)
{
    struct mini_ring l;

    mini_open(&l, 2);
    mini_start(&l, pmix_program, 2, "end_all");
    mini_serve(&l);
    free(mini_close(&l));
    assert_int_equal(l.aborted, 1);
    assert_non_null(strstr(l.abort_text, "PMIx_Job_control"));
}

static void test_an_agent_closes_while_ranks_wait(void **state)
{
    struct mini_ring l;

    mini_open(&l, 2);
    mini_start(&l, pmix_program, 4, "stuck");
    mini_serve_until(&l, 4);
    free(mini_close(&l)); /* the agents end well, and kill what they have */
}

/* ---- The programs ---- */

static bool shell(const char *command, bool notify)
{
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    struct ran r = run_program(argv, NULL, NULL);
    bool good = r.code == 0;

    if (!good && notify)
        print_error("%s\n%s", command, r.err);
    ran_free(&r);
    return good;
}

static int set_up(void **state)
{
    const char *root = getenv("TEST_SOURCE_DIR");
    char command[1024];

    temp_dir_make(temp);
    root = root ? root : ".";
    snprintf(mpi_program, sizeof(mpi_program), "%s/mpi", temp);
    snprintf(pmix_program, sizeof(pmix_program), "%s/pmix", temp);
    if (getenv("TEST_RANKS_MPI") && getenv("TEST_RANKS_PMIX")) { /* of another MPI, in a chroot */
        snprintf(mpi_program, sizeof(mpi_program), "%s", getenv("TEST_RANKS_MPI"));
        snprintf(pmix_program, sizeof(pmix_program), "%s", getenv("TEST_RANKS_PMIX"));
        return 0;
    }
    snprintf(command, sizeof(command), "mpicc.openmpi -o %s '%s/tests/mpi_bridge/ranks_mpi.c'",
             mpi_program, root);
    if (!shell(command, true))
        return -1;
    snprintf(
        command, sizeof(command),
        "cc -o %s '%s/tests/mpi_bridge/ranks_pmix.c' $(pkg-config --cflags --libs pmix) -lpthread",
        pmix_program, root);
    return shell(command, true) ? 0 : -1;
}

static int tear_down(void **state)
{
    temp_dir_remove(temp);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_of_one_agent_are_one_world),
        cmocka_unit_test(test_ranks_of_two_agents_are_one_world),
        cmocka_unit_test(test_names_are_found_and_ports_are_used_again),
        cmocka_unit_test(test_names_are_found_across_agents),
        cmocka_unit_test(test_a_spawned_world_merges_with_its_parents),
        cmocka_unit_test(test_a_spawned_world_merges_across_agents),
        cmocka_unit_test(test_an_abort_says_who_and_why),
        cmocka_unit_test(test_many_fences_keep_apart),
        cmocka_unit_test(test_callers_that_say_nothing_hold_nobody_up),
        cmocka_unit_test(test_data_is_fetched_without_a_fence),
        cmocka_unit_test(test_a_published_value_comes_back),
        cmocka_unit_test(test_an_event_reaches_all_of_the_job),
        cmocka_unit_test(test_a_query_is_answered_or_refused),
        cmocka_unit_test(test_the_log_is_printed),
        cmocka_unit_test(test_a_group_has_one_number),
        cmocka_unit_test(test_survivors_hear_of_a_dead_rank),
        cmocka_unit_test(test_a_job_can_ask_for_its_end),
        cmocka_unit_test(test_an_agent_closes_while_ranks_wait),
    };
    struct fbr_error err = {0};

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return mini_agent_main(argv, "pmix");
#ifdef __SANITIZE_THREAD__
    printf("skipped: ThreadSanitizer cannot see the locks of libpmix and libevent\n");
    return 77;
#endif
    if (!shell("command -v mpicc.openmpi && pkg-config --exists pmix", false) ||
        !fbr_module("pmix", &err)) {
        printf("skipped: needs Open MPI's mpicc, libpmix-dev and the module: %s\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
