/* options_test.c - what may be said of a ring: programs with ranks of their own, nodes with slots of their own; and
 * what may not.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ring/plan.h"
#include "ring/ring.h"
#include "tests/support/children.h"

#define RING(...) \
    (&(struct fiber_ring_options){.size = sizeof(struct fiber_ring_options), __VA_ARGS__})
#define SH(script)                    \
    (const char *const[])             \
    {                                 \
        "/bin/sh", "-c", script, NULL \
    }

static int do_nothing(int rank, int size, const void *arg, size_t len)
{
    return 0;
}

/* Each rank looks whether it is what it should be. Rank 2 fails in the first epoch. */
static void test_several_programs_have_ranks_of_their_own(void **state)
{
    const struct fiber_ring_program programs[] = {
        {1, SH("[ $FIBER_RANK.$FIBER_SIZE.$OWN = 0.3.all ] || exit 9"), NULL, NULL},
        {2,
         SH("[ $FIBER_SIZE.$OWN.$PWD = 3.mine./ ] || exit 9; [ $FIBER_RANK.$FIBER_EPOCH != 2.0 ]"),
         (const char *const[]){"OWN=mine", NULL}, "/"},
    };
    struct fiber_ring_options *o =
        RING(.programs = programs, .nprograms = 2, .flags = FIBER_RING_OVERSUBSCRIBE,
             .job.env = (const char *const[]){"OWN=all", NULL});
    struct fiber_ring *r;
    int code;

    assert_int_equal(fiber_ring_start(&r, 3, NULL, NULL, 0, o), 0);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 1);
    assert_non_null(strstr(fiber_ring_report(r), "rank 2 (/bin/sh, pid "));
    fiber_ring_close(r);
    o->on_failure = FIBER_RING_RESTART;
    o->per_node = 2;
    assert_int_equal(fiber_ring_run(3, NULL, NULL, 0, o), 0);
}

static void test_slots_say_how_many_ranks_a_node_has(void **state)
{
    const int slots[] = {1, 3, 2, 4};
    struct fbr_plan p = {0};
    struct fbr_error err = {0, ""};
    struct fiber_ring *r;

    assert_int_equal(fbr_ring_plan(&p, 5, RING(.nodes = 4, .slots = slots), &err), 0);
    assert_int_equal(p.nodes, 3); /* no rank is left for the fourth */
    assert_int_equal(p.first[1], 1);
    assert_int_equal(p.first[2], 4);
    assert_int_equal(p.first[3], 5);
    fbr_plan_fini(&p);
    assert_int_equal(fbr_ring_plan(&p, 11, RING(.nodes = 4, .slots = slots), &err), -EINVAL);
    assert_int_equal(fbr_ring_plan(&p, 2, RING(.slots = slots), &err), -EINVAL);
    assert_int_equal(fbr_ring_plan(&p, 2, RING(.nodes = 2, .per_node = 1, .slots = slots), &err),
                     -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0,
                                      RING(.nodes = 2, .slots = (const int[]){1, 0})),
                     -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "node 1 has 0 slots"));
    assert_int_equal(
        fiber_ring_run(5, NULL, NULL, 0,
                       RING(.job.command = SH("[ $FIBER_NODE:$FIBER_LOCAL_SIZE = $(echo 0:1 1:3 "
                                              "1:3 1:3 2:1 | cut -d' ' -f$((FIBER_RANK + 1))) ]"),
                            .nodes = 4, .slots = slots, .flags = FIBER_RING_OVERSUBSCRIBE)),
        0);
}

static void test_wrong_options_say_what_is_wrong(void **state)
{
    struct fiber_ring_program program = {.count = 2, .command = SH("true")};
    struct fiber_ring *r;

    assert_int_equal(fiber_ring_start(&r, 0, do_nothing, NULL, 0, NULL), -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "1 to 1048576 ranks"));
    assert_int_equal(fiber_ring_start(&r, 2, NULL, NULL, 0, NULL), -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.bind_to = "nose")),
                     -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "nose"));
    assert_non_null(strstr(fiber_last_error(), "core"));
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.nodes = 3)), -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.grace_ms = -1)), -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.flags = 128)), -EINVAL);
    assert_int_equal(
        fiber_ring_start(&r, 3, NULL, NULL, 0, RING(.programs = &program, .nprograms = 1)),
        -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "add up to 2 ranks"));
    assert_int_equal(
        fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.programs = &program, .nprograms = 1)),
        -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, NULL, NULL, 0,
                                      RING(.programs = &program, .nprograms = 1,
                                           .job.command = program.command)),
                     -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, NULL, NULL, 0, RING(.nprograms = 1)), -EINVAL);
    assert_int_equal(
        fiber_ring_start(&r, 2, do_nothing, NULL, 0, &(struct fiber_ring_options){.size = 1}),
        -EINVAL);
    assert_int_equal(fiber_ring_start(&r, 2, do_nothing, NULL, 0, RING(.backend = "nowhere")),
                     -ENOENT);
    assert_non_null(strstr(fiber_last_error(), "there is no backend 'nowhere'"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_programs_have_ranks_of_their_own),
        cmocka_unit_test(test_slots_say_how_many_ranks_a_node_has),
        cmocka_unit_test(test_wrong_options_say_what_is_wrong),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
