/* pmi2_test.c - the bridge of PMI, and real clients of PMI-2: programs with Slurm's libpmi2.
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

#include "tests/mpi_bridge/pmi_program_util.h"

static int compile(void **state)
{
    return compile_program("/usr/bin/gcc", "pmi2_rank", "-lpmi2", "/usr/include/slurm/pmi2.h");
}

static void need_client(void)
{
    need_program("libpmi2-0-dev");
}

/* Everything, over these agents; `first` are the first ranks of each. */
static void run_all(const uint32_t *per_agent, const char *first, const char *says, bool port)
{
    struct bridge_host *h = host_open(HOST_AGENTS);
    char variable[64];
    char *env[] = {variable, port ? "FIBER_PMI=port" : NULL, NULL};
    const struct fbr_bridge_job *job;
    uint32_t id;

    need_client();
    snprintf(variable, sizeof(variable), "FIRST_OF_NODE=%s", first);
    id = start_program(h, per_agent, "all", env);
    job = host_job_of(h, 0, id);
    host_wait(h, id);
    for (uint32_t i = 0; i < job->size; i++) {
        struct host_rank r = host_rank(h, id, i);
        char expected[128];

        snprintf(expected, sizeof(expected), "%srank %u of %u\n", i ? "" : says, i, job->size);
        assert_string_equal(host_output(h, id, i), expected);
        assert_int_equal(r.code, 0);
        assert_int_equal(r.met, 1);
        assert_int_equal(r.left, 1);
        assert_string_equal(r.how, "PMI 2.0");
    }
    host_close(h);
}

static void test_one_rank(void **state)
{
    run_all((uint32_t[HOST_AGENTS]){1}, "0", "(vector,(0,1,1)) complete\n", false);
}

static void test_four_ranks_of_one_node(void **state)
{
    run_all((uint32_t[HOST_AGENTS]){4}, "0", "(vector,(0,1,4)) complete\n", false);
}

static void test_nodes_of_different_sizes(void **state)
{
    run_all((uint32_t[HOST_AGENTS]){1, 0, 3}, "01", "(vector,(0,1,1),(1,1,3)) hierarchical\n",
            false);
}

static void test_over_a_port(void **state)
{
    run_all((uint32_t[HOST_AGENTS]){2, 2}, "02", "(vector,(0,2,2)) hierarchical\n", true);
}

static void test_an_abort_reaches_the_host(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;

    need_client();
    id = start_program(h, (uint32_t[HOST_AGENTS]){3}, "abort", NULL);
    assert_int_not_equal(host_wait(h, id), 0);
    assert_int_equal(host_rank(h, id, 1).aborted, 1);
    assert_int_equal(host_rank(h, id, 1).abort_code, 1);
    assert_string_equal(host_rank(h, id, 1).abort_text, "it; is over");
    assert_int_equal(host_rank(h, id, 0).left, 0);
    host_close(h);
}

static void test_one_that_ends_alone_has_left(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;

    need_client();
    id = start_program(h, (uint32_t[HOST_AGENTS]){2}, "alone", NULL);
    assert_int_equal(host_wait(h, id), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(host_rank(h, id, i).left, 1);
        assert_int_equal(host_rank(h, id, i).aborted, 0);
    }
    host_close(h);
}

static void test_spawned_programs_know_their_job_and_what_was_left_for_them(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;

    need_client();
    id = start_program(h, (uint32_t[HOST_AGENTS]){2}, "spawn", NULL);
    assert_int_equal(host_wait(h, id), 0);
    assert_string_equal(host_output(h, id, 0), "spawned\n");
    assert_string_equal(host_output(h, id, 1), "");
    assert_int_equal(host_jobs(h), 2);
    assert_int_equal(host_wait(h, 1), 0);
    assert_string_equal(host_output(h, 1, 0), "child 0 of 3 [a b;c] [left; behind]\n");
    assert_string_equal(host_output(h, 1, 1), "child 1 of 3 [a b;c] [left; behind]\n");
    assert_string_equal(host_output(h, 1, 2), "other 2 of 3 [] [left; behind]\n");
    host_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_four_ranks_of_one_node),
        cmocka_unit_test(test_nodes_of_different_sizes),
        cmocka_unit_test(test_over_a_port),
        cmocka_unit_test(test_an_abort_reaches_the_host),
        cmocka_unit_test(test_one_that_ends_alone_has_left),
        cmocka_unit_test(test_spawned_programs_know_their_job_and_what_was_left_for_them),
    };

    return cmocka_run_group_tests(tests, compile, forget_program);
}
