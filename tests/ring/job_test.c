/* job_test.c - the description of a job on the wire, and what is refused.
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

#include <cmocka.h>

#include "ring/job_codec.h"

static char *argv_a[] = {(char *)"./train", (char *)"--lr", (char *)"0.1", NULL};
static char *argv_b[] = {(char *)"./other", NULL};
static char *env_a[] = {(char *)"A=1", NULL};
static char *none[] = {NULL};

static void put(struct fbr_buf *b)
{
    static const uint32_t first[] = {0, 3, 5}, agents[] = {1, 4};
    static const char *const hosts[] = {"n1", "n0"};
    uint32_t restarts[] = {0, 0, 1, 0, 3}, machines[] = {0, 1};
    struct fbr_app programs[] = {{0, argv_a, env_a, (char *)"/tmp"}, {4, argv_b, none, (char *)""}};
    struct fbr_ring_job j = {.machines = machines,
                             .programs = programs,
                             .nprograms = 2,
                             .has_stdin = true,
                             .pty = true,
                             .reader = 4,
                             .rows = 50,
                             .columns = 132,
                             .term = "xterm",
                             .last_failure = "rank 1 exited",
                             .restarts = restarts};

    j.info = (struct fbr_bridge_job){.id = 7,
                                     .run = "a-run",
                                     .nspace = "fiber-x",
                                     .size = 5,
                                     .nodes = 2,
                                     .first = first,
                                     .hosts = hosts,
                                     .agents = agents,
                                     .epoch = 2,
                                     .spawned = true,
                                     .parent = 3,
                                     .parent_rank = 1,
                                     .master_host = "n1"};
    j.work = (uint8_t *)(uintptr_t) "work";
    j.work_len = 4;
    fbr_buf_init(b);
    fbr_ring_job_put(&j, b);
    assert_false(b->failed);
}

static void test_there_and_back(void **state)
{
    struct fbr_ring_job j;
    struct fbr_cur c;
    struct fbr_buf b;

    put(&b);
    c = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_ring_job_get(&j, &c), 0);
    assert_int_equal(fbr_cur_left(&c), 0);
    assert_int_equal(j.info.id, 7);
    assert_string_equal(j.info.run, "a-run");
    assert_string_equal(j.info.nspace, "fiber-x");
    assert_string_equal(j.info.hosts[1], "n0");
    assert_int_equal(j.info.first[1], 3);
    assert_int_equal(j.info.node, -1);
    assert_true(j.info.spawned && j.has_stdin && j.pty && j.reader == 4);
    assert_true(j.rows == 50 && j.columns == 132);
    assert_string_equal(j.term, "xterm");
    assert_string_equal(j.last_failure, "rank 1 exited");
    assert_string_equal(fbr_ring_job_program(&j, 3)->argv[2], "0.1");
    assert_string_equal(fbr_ring_job_program(&j, 3)->env[0], "A=1");
    assert_string_equal(fbr_ring_job_program(&j, 4)->argv[0], "./other");
    assert_memory_equal(j.work, "work", 4);
    assert_int_equal(fbr_ring_job_restarts(&j, 0), 0);
    assert_int_equal(fbr_ring_job_restarts(&j, 2), 1);
    assert_int_equal(fbr_ring_job_restarted(&j, 4), 0);
    assert_int_equal(fbr_ring_job_restarts(&j, 4), 4);
    fbr_ring_job_fini(&j);
    fbr_buf_fini(&b);
}

static void test_every_cut_is_refused(void **state)
{
    struct fbr_ring_job j;
    struct fbr_buf b;

    put(&b);
    for (size_t n = 0; n < b.len; n++) {
        struct fbr_cur c = fbr_cur(b.data, n);

        assert_int_equal(fbr_ring_job_get(&j, &c), -EBADMSG);
        assert_null(j.programs);
    }
    fbr_buf_fini(&b);
}

static void test_ranks_and_agents_that_are_not_in_order_are_refused(void **state)
{
    const size_t nodes = 4 + (4 + 5) + (4 + 7) + 4 + 4;      /* id, run, nspace, size, nodes */
    const size_t places[] = {nodes + 4, nodes + 12 + 4 + 2}; /* first[1], agents[0] */
    struct fbr_ring_job j;
    struct fbr_cur c;
    struct fbr_buf b;

    for (size_t i = 0; i < 2; i++) {
        put(&b);
        fbr_set_u32(&b, places[i], 9);
        c = fbr_cur(b.data, b.len);
        assert_int_equal(fbr_ring_job_get(&j, &c), -EBADMSG);
        fbr_buf_fini(&b);
    }
}

/* What is put ends with: u32 2, u32 2, u32 1, u32 4, u32 3. */
static void test_restarts_of_ranks_that_are_not_there_are_refused(void **state)
{
    static const struct {
        size_t back; /* from the end */
        uint32_t value;
    } wrong[] = {{20, 3}, {20, 6}, {16, 4}, {12, 0}, {8, 2}, {8, 5}, {4, 0}};
    struct fbr_ring_job j;
    struct fbr_cur c;
    struct fbr_buf b;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        put(&b);
        fbr_set_u32(&b, b.len - wrong[i].back, wrong[i].value);
        c = fbr_cur(b.data, b.len);
        assert_int_equal(fbr_ring_job_get(&j, &c), -EBADMSG);
        assert_null(j.restarts);
        fbr_buf_fini(&b);
    }
}

static void test_nodes_of_one_machine_share_its_processors(void **state)
{
    static const uint32_t first[] = {0, 3, 5, 9, 10};
    static uint32_t machines[] = {0, 1, 0, 1};
    const struct fbr_ring_job j = {.info = {.nodes = 4, .first = first, .size = 10},
                                   .machines = machines};
    uint32_t before;

    assert_int_equal(fbr_ring_job_sharing(&j, 0, &before), 7);
    assert_int_equal(before, 0);
    assert_int_equal(fbr_ring_job_sharing(&j, 2, &before), 7);
    assert_int_equal(before, 3);
    assert_int_equal(fbr_ring_job_sharing(&j, 3, &before), 3);
    assert_int_equal(before, 2);
    assert_int_equal(fbr_ring_job_sharing(&j, -1, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_ranks_and_agents_that_are_not_in_order_are_refused),
        cmocka_unit_test(test_restarts_of_ranks_that_are_not_there_are_refused),
        cmocka_unit_test(test_nodes_of_one_machine_share_its_processors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
