/* cpu_alloc_test.c - local jobs that ask for processors get some for themselves, and leave them to others when they
 * end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/local/cpu_alloc.h"
#include "runtime/pin/pin.h"
#include "tests/support/children.h"

#define MANY 64

static cpu_set_t all;

/* Binding needs hwloc, which the build may not have. */
static bool can_bind(void)
{
    struct fbr_error err;

    if (fbr_pin_load(&err))
        return true;
    print_message("skipped: %s\n", err.text);
    return false;
}

static struct fiber_process *begin_bound(struct gate *gate, double cpus)
{
    return begin(child_notify_wait, gate->path, strlen(gate->path) + 1,
                 OPTIONS(.job = {.cpus = cpus}));
}

/* What the kernel says of the child that has just told its pid. */
static cpu_set_t mask_of(struct gate *gate)
{
    cpu_set_t set;
    pid_t pid;

    assert_int_equal(gate_wait(gate, &pid, sizeof(pid)), 0);
    assert_int_equal(sched_getaffinity(pid, sizeof(set), &set), 0);
    return set;
}

static void end(struct fiber_process *p)
{
    fiber_process_kill(p);
    assert_int_equal(finish(p), -SIGKILL);
}

static bool overlap(const cpu_set_t *a, const cpu_set_t *b)
{
    cpu_set_t both;

    CPU_AND(&both, a, b);
    return CPU_COUNT(&both) > 0;
}

static void test_jobs_that_ask_for_processors_have_them_alone(void **state)
{
    struct fiber_process *p[MANY];
    cpu_set_t mask[MANY];
    struct gate gate;
    int n = 0, bound = 0;

    if (!can_bind())
        skip();
    gate_open(&gate);
    /* Until one finds all taken, and goes as it likes. */
    while (n < MANY && bound == n) {
        p[n] = begin_bound(&gate, 1);
        mask[n] = mask_of(&gate);
        if (CPU_EQUAL(&mask[n], &all))
            break;
        for (int i = 0; i < n; i++)
            assert_false(overlap(&mask[i], &mask[n]));
        bound = ++n;
    }
    if (CPU_COUNT(&all) > 1)
        assert_true(bound > 1);
    if (n < MANY && bound == n)
        end(p[n]);
    /* The place of one that has ended is the next one's. */
    if (n > 0) {
        end(p[0]);
        p[0] = begin_bound(&gate, 1);
        mask[1] = mask_of(&gate);
        assert_true(CPU_EQUAL(&mask[0], &mask[1]) || CPU_COUNT(&all) == 1);
    }
    for (int i = 0; i < n; i++)
        end(p[i]);
    gate_close(&gate);
}

static void test_who_asks_for_none_or_less_than_one_is_not_bound(void **state)
{
    struct fiber_process *p[2];
    struct gate gate;

    gate_open(&gate);
    for (int i = 0; i < 2; i++) {
        cpu_set_t mask;

        p[i] = begin_bound(&gate, i * 0.5);
        mask = mask_of(&gate);
        assert_true(CPU_EQUAL(&mask, &all));
    }
    for (int i = 0; i < 2; i++)
        end(p[i]);
    gate_close(&gate);
}

static void test_more_gpus_than_there_are_is_an_error_that_says_so(void **state)
{
    struct fiber_process *p;
    int code = 0;

    if (!can_bind())
        skip();
    p = begin(child_return, &code, sizeof(code), OPTIONS(.job = {.gpus = 1000}));
    assert_int_equal(ended(p), 125);
    assert_true(has(fiber_process_report(p), "asks for 1000 GPUs", "this machine has", NULL));
    fiber_process_close(p);
}

/* On a machine with 4 GPUs, one of them at the processor that a job without GPUs has. */
static void test_gpus_are_had_where_no_processors_are_left(void **state)
{
    struct fbr_cpu_allocs *all_places = NULL;
    struct fbr_cpu_alloc *place[6] = {NULL};
    struct fbr_error err = {0, ""};
    uint64_t gpus = 0;
    char xml[1024];
    int unbound = 0;

    if (!can_bind())
        skip();
    snprintf(xml, sizeof(xml), "%s/tests/data/topologies/nvidia-2x2x8-4gpu.xml",
             getenv("TEST_SOURCE_DIR"));
    setenv("HWLOC_XMLFILE", xml, 1); /* for hwloc, this machine */
    assert_int_equal(fbr_cpu_allocs_open(&all_places, &err), 0);
    unsetenv("HWLOC_XMLFILE");
    assert_int_equal(fbr_cpu_allocs_take(all_places, 1, 0, &place[0], &err), 0);
    for (int i = 1; i <= 4; i++) {
        assert_int_equal(fbr_cpu_allocs_take(all_places, 0, 1, &place[i], &err), 0);
        assert_int_equal(place[i]->gpus & gpus, 0);
        gpus |= place[i]->gpus;
        assert_non_null(place[i]->env[0]);
        unbound += place[i]->cpus_len == 0;
    }
    assert_int_equal(gpus, 15);
    assert_int_equal(unbound, 1);
    assert_int_equal(fbr_cpu_allocs_take(all_places, 0, 1, &place[5], &err), -EBUSY);
    fbr_cpu_allocs_leave(all_places, place[4]);
    assert_int_equal(fbr_cpu_allocs_take(all_places, 0, 1, &place[4], &err), 0);
    fbr_cpu_allocs_leave(all_places, place[4]);
    /* wider than the machine */
    assert_int_equal(fbr_cpu_allocs_take(all_places, 1000, 1, &place[4], &err), 0);
    assert_int_equal(place[4]->cpus_len, 0);
    for (int i = 0; i <= 4; i++)
        fbr_cpu_allocs_leave(all_places, place[i]);
    fbr_cpu_allocs_close(all_places);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_that_ask_for_processors_have_them_alone),
        cmocka_unit_test(test_who_asks_for_none_or_less_than_one_is_not_bound),
        cmocka_unit_test(test_more_gpus_than_there_are_is_an_error_that_says_so),
        cmocka_unit_test(test_gpus_are_had_where_no_processors_are_left),
    };

    init_fiber(&argc, &argv);
    sched_getaffinity(0, sizeof(all), &all);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
