/* plan_test.c - which ranks run on which node, up to 65,536 of them.
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

#include "mpi_bridge/bridge.h"
#include "ring/plan.h"

static void check_whole(const struct fbr_plan *p)
{
    assert_int_equal(p->first[0], 0);
    assert_int_equal(p->first[p->nodes], p->size);
    for (uint32_t k = 0; k < p->nodes; k++)
        assert_true(p->first[k] <= p->first[k + 1]);
}

static void test_one_node_has_all(void **state)
{
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 7, 0, 0, NULL), 0);
    assert_int_equal(p.nodes, 1);
    check_whole(&p);
    fbr_plan_fini(&p);
}

static void test_ranks_per_node_make_nodes(void **state)
{
    const uint32_t expected[] = {0, 4, 8, 10};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 10, 4, 0, NULL), 0);
    assert_int_equal(p.nodes, 3);
    assert_memory_equal(p.first, expected, sizeof(expected));
    fbr_plan_fini(&p);
}

static void test_an_even_split(void **state)
{
    const uint32_t expected[] = {0, 4, 7, 10};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 10, 0, 3, NULL), 0);
    assert_memory_equal(p.first, expected, sizeof(expected));
    fbr_plan_fini(&p);
}

static void test_every_node_that_was_asked_for_has_a_rank(void **state)
{
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 10, 4, 4, NULL), 0);
    assert_int_equal(p.nodes, 4);
    for (uint32_t k = 0; k < 4; k++)
        assert_true(p.first[k] < p.first[k + 1] && p.first[k + 1] - p.first[k] <= 4);
    check_whole(&p);
    fbr_plan_fini(&p);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 10, 2, 4, &err), -EINVAL);
    assert_non_null(strstr(err.text, "ask for 5 nodes"));
    assert_int_equal(fbr_plan_make(&p, 2, 0, 3, &err), -EINVAL);
    assert_int_equal(fbr_plan_make(&p, 0, 0, 0, &err), -EINVAL);
    assert_null(p.first);
}

static void test_nodes_are_filled_by_their_slots(void **state)
{
    const uint32_t slots[] = {4, 2, 8}, expected[] = {0, 4, 6, 9}, crowded[] = {0, 8, 12, 28};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_fill(&p, 9, slots, 3, NULL), 0);
    assert_memory_equal(p.first, expected, sizeof(expected));
    fbr_plan_fini(&p);
    assert_int_equal(fbr_plan_fill(&p, 28, slots, 3, NULL),
                     0); /* twice as many as there are processors */
    assert_memory_equal(p.first, crowded, sizeof(crowded));
    fbr_plan_fini(&p);
}

static void test_no_slots_are_an_error(void **state)
{
    const uint32_t slots[] = {0, 0};
    struct fbr_error err = {0, ""};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_fill(&p, 1, slots, 2, &err), -EINVAL);
    assert_int_equal(fbr_plan_fill(&p, 1, slots, 0, &err), -EINVAL);
}

static void test_65536_ranks_on_1024_nodes(void **state)
{
    struct fbr_bridge_job job = {.size = 65536, .nodes = 1024};
    struct fbr_plan p = {0};

    assert_int_equal(fbr_plan_make(&p, 65536, 64, 1024, NULL), 0);
    check_whole(&p);
    job.first = p.first;
    for (uint32_t r = 0; r < 65536; r++)
        assert_int_equal(fbr_bridge_node_of(&job, r), r / 64);
    fbr_plan_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node_has_all),
        cmocka_unit_test(test_ranks_per_node_make_nodes),
        cmocka_unit_test(test_an_even_split),
        cmocka_unit_test(test_every_node_that_was_asked_for_has_a_rank),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_nodes_are_filled_by_their_slots),
        cmocka_unit_test(test_no_slots_are_an_error),
        cmocka_unit_test(test_65536_ranks_on_1024_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
