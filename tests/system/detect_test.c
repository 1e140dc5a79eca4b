/* detect_test.c - how soon a parent learns that a child has ended: 0.2 s on the same host, 1 s over TCP, and 2 s when
 * the backend alone tells of it, because the child's connection is still open. When a rank of a ring is killed, all
 * others have ended after 0.15 s, or, in a ring that goes on without it, know of it after 0.1 s.
 *
 * Each figure is the best of some tries: it is about the product, not about what else the machine does. The first good
 * try is the last one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/sanitized.h"

#define TRIES 20
#define LOCAL_S 0.2
#define REMOTE_S 1.0
#define GONE_S 2.0
#define RING_S 0.15
#define SHRUNK_S 0.1
#define RANKS 4

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int notify_and_exit(const void *gate, size_t len)
{
    pid_t me = getpid();

    if (gate_notify(gate, &me, sizeof(me)) < 0)
        return 1;
    _exit(3);
}

/* Its own child has the connection open as well, and leaves the session, so that nobody kills the two together. */
static int fork_and_notify(const void *gate, size_t len)
{
    pid_t heir = fork();

    if (heir == 0) {
        setsid();
        heir = getpid();
        gate_notify(gate, &heir, sizeof(heir));
    }
    return child_wait(NULL, 0);
}

/* Seconds from its end to the moment when we know. What it tells is a pid. */
static double time_one(fiber_process_fn fn, int code, struct gate *told, pid_t *pid)
{
    struct fiber_process *p = begin_str(fn, told->path);
    double start;

    assert_int_equal(gate_wait(told, pid, sizeof(*pid)), 0);
    start = now();
    if (code == -SIGKILL)
        kill((pid_t)fiber_process_pid(p), SIGKILL);
    assert_int_equal(finish(p), code);
    return now() - start;
}

static void expect_soon(const char *what, fiber_process_fn fn, int code, double limit)
{
    double best = -1;
    struct gate told;

    gate_open(&told);
    for (int i = 0; i < TRIES && (best < 0 || best > limit); i++) {
        pid_t pid = 0;
        double took = time_one(fn, code, &told, &pid);

        if (fn == fork_and_notify)
            kill(pid, SIGKILL);
        best = best < 0 || took < best ? took : best;
    }
    printf("           %s: known after %.3f s\n", what, best);
    assert_true(SANITIZED || best <= limit);
    gate_close(&told);
}

static double promised(void)
{
    const char *transport = getenv("FIBER_TRANSPORT");

    return transport && strcmp(transport, "tcp") == 0 ? REMOTE_S : LOCAL_S;
}

static void test_a_child_that_is_killed(void **state)
{
    expect_soon("killed", child_notify_wait, -SIGKILL, promised());
}

static void test_a_child_that_exits(void **state)
{
    expect_soon("exited", notify_and_exit, 3, promised());
}

static void test_a_child_whose_connection_stays_open(void **state)
{
    expect_soon("killed, with its connection open", fork_and_notify, -SIGKILL, GONE_S);
}

static int rank(int rank, int size, const void *gate, size_t len)
{
    return child_notify_wait(gate, len);
}

/* Tells its pid, and once more when it has heard that a rank has died. */
static int rank_that_goes_on(int rank, int size, const void *gate, size_t len)
{
    pid_t me = getpid();
    int rc;

    if (gate_notify(gate, &me, sizeof(me)) < 0)
        return 1;
    do /* the rank that is killed may come as far as this, too */
        rc = fiber_ring_barrier(-1);
    while (rc == 0);
    if (rc == -ECONNABORTED)
        return gate_notify(gate, &me, sizeof(me)) < 0;
    fprintf(stderr, "the barrier of rank %d returned %d: %s\n", rank, rc, fiber_last_error());
    return 1;
}

/* Seconds from the death of one rank to the end of all and of the ring; with SHRINK until the others know of it. */
static double time_ring(struct gate *told, enum fiber_ring_policy policy)
{
    const struct fiber_ring_options o = {.size = sizeof(o),
                                         .on_failure = policy,
                                         .flags = FIBER_RING_QUIET | FIBER_RING_OVERSUBSCRIBE};
    fiber_rank_fn fn = policy == FIBER_RING_SHRINK ? rank_that_goes_on : rank;
    struct fiber_ring *ring;
    pid_t pids[RANKS];
    int fds[RANKS], code;
    double start, took = 0;

    assert_int_equal(fiber_ring_start(&ring, RANKS, fn, told->path, strlen(told->path) + 1, &o), 0);
    assert_int_equal(gate_wait(told, pids, sizeof(pids)), 0);
    for (int i = 0; i < RANKS; i++)
        fds[i] = pid_open(pids[i]);
    start = now();
    kill(pids[0], SIGKILL);
    if (policy == FIBER_RING_SHRINK) {
        assert_int_equal(gate_wait(told, pids, (RANKS - 1) * sizeof(pids[0])), 0);
        took = now() - start;
    }
    assert_int_equal(pids_gone(fds, RANKS, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_wait(ring, TEST_LONG_MS), 0);
    if (policy != FIBER_RING_SHRINK)
        took = now() - start;
    assert_int_equal(fiber_ring_exitcode(ring, &code), 0);
    assert_int_equal(code, policy == FIBER_RING_SHRINK ? 0 : 128 + SIGKILL);
    fiber_ring_close(ring);
    return took;
}

static void expect_ring_soon(const char *what, enum fiber_ring_policy policy, double limit)
{
    double best = -1;
    struct gate told;

    gate_open(&told);
    for (int i = 0; i < TRIES && (best < 0 || best > limit); i++) {
        double took = time_ring(&told, policy);

        best = best < 0 || took < best ? took : best;
    }
    printf("           a rank killed: %s after %.3f s\n", what, best);
    assert_true(SANITIZED || best <= limit);
    gate_close(&told);
}

static void test_a_rank_that_is_killed(void **state)
{
    expect_ring_soon("all have ended", FIBER_RING_ABORT, RING_S);
}

static void test_a_rank_that_the_others_go_on_without(void **state)
{
    expect_ring_soon("the others know", FIBER_RING_SHRINK, SHRUNK_S);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_that_is_killed),
        cmocka_unit_test(test_a_child_that_exits),
        cmocka_unit_test(test_a_child_whose_connection_stays_open),
        cmocka_unit_test(test_a_rank_that_is_killed),
        cmocka_unit_test(test_a_rank_that_the_others_go_on_without),
    };

    setenv("FIBER_HEARTBEAT", "1h", 1); /* what is known, is known because an end was seen */
    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
