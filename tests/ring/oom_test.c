/* oom_test.c - memory that is short while a ring is started: it starts, or fails with -ENOMEM, and
 * the next one runs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fiber.h"
#include "tests/support/children.h"
#include "tests/support/refuse.h"

#define CODE 7
#define AGENT_ENV "REFUSE_IN_AGENT"
#define AGENT_MOST 160 /* the join, the start, a job and its rank */
#define ENDS_MS 30000

static atomic_bool no_thread; /* as at the limit of processes of a user (ulimit -u) */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *p)
{
    return atomic_load(&no_thread) ? EAGAIN : __real_pthread_create(thread, a, fn, p);
}

static int end_with(int rank, int size, const void *arg, size_t len)
{
    return rank == 0 && size == 1 && len == sizeof(int) ? *(const int *)arg : 99;
}

static void test_a_ring_is_started(void **state)
{
    const char *const env[] = {"A=1", "B=2", NULL};
    struct fiber_ring_options o = {
        .size = sizeof(o), .job.env = env, .flags = FIBER_RING_OVERSUBSCRIBE | FIBER_RING_QUIET};
    const int code = CODE;
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_ring *ring = NULL;
        int rc, ended = -1;

        begin_refusing(k);
        rc = fiber_ring_start(&ring, 1, end_with, &code, sizeof(code), &o);
        more = end_refusing(k, rc);
        assert_true((rc == 0) == (ring != NULL));
        if (rc == 0) {
            assert_int_equal(fiber_ring_wait(ring, TEST_LONG_MS), 0);
            assert_int_equal(fiber_ring_exitcode(ring, &ended), 0);
            if (ended != CODE)
                fail_msg("with request %u refused: %d: %s", k, ended, fiber_ring_report(ring));
            fiber_ring_close(ring);
        }
    }
}

/* A ring that is closed at once, while it starts. */
static void test_a_ring_is_closed(void **state)
{
    struct fiber_ring_options o = {.size = sizeof(o),
                                   .flags = FIBER_RING_OVERSUBSCRIBE | FIBER_RING_QUIET};
    const int code = CODE;
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_ring *ring;

        assert_int_equal(fiber_ring_start(&ring, 1, end_with, &code, sizeof(code), &o), 0);
        begin_refusing(k);
        fiber_ring_close(ring);
        more = end_refusing(k, 0);
    }
}

/* Waits for its end, whatever it is. Answers its code. */
static int end_of(struct fiber_ring *ring, unsigned k)
{
    int code = -1;

    if (fiber_ring_wait(ring, ENDS_MS) < 0)
        fail_msg("with request %u refused the ring does not end", k);
    assert_int_equal(fiber_ring_exitcode(ring, &code), 0);
    if (code != 0 && code != CODE)
        assert_true(fiber_ring_report(ring)[0] != '\0');
    assert_null(strstr(fiber_ring_report(ring), "signal 11"));
    fiber_ring_close(ring);
    return code;
}

/* The k-th request of the launcher's other threads is refused, from the start to the end. */
static void refuse_in_launcher(fiber_rank_fn fn, const struct fiber_ring_options *o)
{
    const int code = CODE;
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_ring *ring = NULL;
        int rc;

        begin_refusing_others(k);
        rc = fiber_ring_start(&ring, 1, fn, &code, sizeof(code), o);
        assert_true((rc == 0) == (ring != NULL));
        if (rc == 0)
            end_of(ring, k);
        more = end_refusing_others(k);
    }
}

static void test_a_launcher_is_short_of_memory(void **state)
{
    const char *const command[] = {"cat", NULL};
    struct fiber_ring_options o = {.size = sizeof(o),
                                   .flags = FIBER_RING_OVERSUBSCRIBE | FIBER_RING_QUIET};

    refuse_in_launcher(end_with, &o);
    o.job.command = command;
    o.flags |= FIBER_RING_STDIN;
    refuse_in_launcher(NULL, &o);
}

/* The same in the agent, which is this program, too. */
static void test_an_agent_is_short_of_memory(void **state)
{
    struct fiber_ring_options o = {.size = sizeof(o),
                                   .flags = FIBER_RING_OVERSUBSCRIBE | FIBER_RING_QUIET};
    const int code = CODE;
    char number[16];

    for (unsigned k = 1; k < AGENT_MOST; k++) {
        struct fiber_ring *ring = NULL;

        snprintf(number, sizeof(number), "%u", k);
        setenv(AGENT_ENV, number, 1);
        assert_int_equal(fiber_ring_start(&ring, 1, end_with, &code, sizeof(code), &o), 0);
        unsetenv(AGENT_ENV);
        end_of(ring, k);
    }
}

/* Comes first: the thread that writes the output of rings starts with the first ring. */
static void test_a_ring_gets_no_thread_for_its_output(void **state)
{
    const char *const command[] = {"true", NULL};
    struct fiber_ring_options o = {.size = sizeof(o), .job.command = command};
    struct fiber_queue *q;
    struct fiber_ring *ring;
    int ended = -1;

    atomic_store(&no_thread, true);
    assert_int_equal(fiber_queue_open(&q, 0), -EAGAIN);
    assert_non_null(strstr(fiber_last_error(), "ulimit -u"));
    atomic_store(&no_thread, false);
    assert_int_equal(fiber_queue_open(&q, 0), 0); /* starts the event loop */
    fiber_queue_close(q);
    atomic_store(&no_thread, true);
    assert_int_equal(fiber_ring_start(&ring, 1, NULL, NULL, 0, &o), 0);
    assert_int_equal(fiber_ring_wait(ring, TEST_LONG_MS), 0);
    atomic_store(&no_thread, false);
    assert_int_equal(fiber_ring_exitcode(ring, &ended), 0);
    assert_int_equal(ended, 125);
    assert_non_null(strstr(fiber_ring_report(ring), "output of jobs"));
    fiber_ring_close(ring);
}

/* A rank that reads standard input gets its end, if nothing can read it here. */
static void test_a_ring_gets_no_thread_for_its_input(void **state)
{
    const char *const command[] = {"cat", NULL};
    struct fiber_ring_options o = {
        .size = sizeof(o), .job.command = command, .flags = FIBER_RING_STDIN};
    struct fiber_ring *ring;

    atomic_store(&no_thread, true);
    assert_int_equal(fiber_ring_start(&ring, 1, NULL, NULL, 0, &o), 0);
    assert_int_equal(end_of(ring, 0), 0);
    atomic_store(&no_thread, false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_gets_no_thread_for_its_output),
        cmocka_unit_test(test_a_ring_is_started),
        cmocka_unit_test(test_a_ring_is_closed),
        cmocka_unit_test(test_a_ring_gets_no_thread_for_its_input),
        cmocka_unit_test(test_a_launcher_is_short_of_memory),
        cmocka_unit_test(test_an_agent_is_short_of_memory),
    };
    const char *number = getenv("FIBER_RANK") ? NULL : getenv(AGENT_ENV);

    if (number)
        begin_refusing_others((unsigned)atoi(number));
    init_fiber(&argc, &argv);
    return cmocka_run_group_tests_name("rings short of memory", tests, NULL, NULL);
}
