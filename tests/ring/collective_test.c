/* collective_test.c - barrier, broadcast and allreduce of ranks that run a function, and their failures.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
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

#include "ring/collective.h"
#include "share/rpc.h"
#include "tests/support/children.h"
#include "tests/support/run.h"

/* In a rank: says what was wrong, and ends it. */
#define CHECK(what)                                                                \
    do {                                                                           \
        if (!(what)) {                                                             \
            fprintf(stderr, "%s:%d: %s: not so (%s)\n", __func__, __LINE__, #what, \
                    fiber_last_error());                                           \
            return 99;                                                             \
        }                                                                          \
    } while (0)

static struct fiber_ring_options options(enum fiber_ring_policy policy)
{
    return (struct fiber_ring_options){.size = sizeof(struct fiber_ring_options),
                                       .on_failure = policy,
                                       .grace_ms = 20000,
                                       .flags = FIBER_RING_QUIET | FIBER_RING_OVERSUBSCRIBE};
}

static void run_ok(int size, fiber_rank_fn fn, const struct fiber_ring_options *o)
{
    struct fiber_ring *ring;
    int code = -1;

    assert_int_equal(fiber_ring_start(&ring, size, fn, NULL, 0, o), 0);
    assert_int_equal(fiber_ring_wait(ring, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(ring, &code), 0);
    if (code)
        fail_msg("%d: %s", code, fiber_ring_report(ring));
    fiber_ring_close(ring);
}

static int64_t sum_below(int n)
{
    return (int64_t)n * (n - 1) / 2;
}

static int use_all(int rank, int size, const void *arg, size_t len)
{
    double d[3] = {rank * 0.1, -rank, 1};
    char text[64] = "nothing", said[64];
    int64_t n[2];

    for (int i = 0; i < 20; i++) {
        n[0] = rank + i;
        n[1] = 1;
        CHECK(fiber_ring_barrier(-1) == 0);
        CHECK(fiber_ring_allreduce(n, 2, FIBER_RING_INT64, FIBER_RING_SUM, -1) == 0);
        CHECK(n[0] == sum_below(size) + (int64_t)size * i && n[1] == size);
        snprintf(text, sizeof(text), "round %d of %d", i, rank);
        CHECK(fiber_ring_broadcast(text, sizeof(text), i % size, TEST_LONG_MS) == 0);
        snprintf(said, sizeof(said), "round %d of %d", i, i % size);
        CHECK(strcmp(text, said) == 0);
    }
    n[0] = n[1] = rank;
    CHECK(fiber_ring_allreduce(n, 1, FIBER_RING_INT64, FIBER_RING_MIN, -1) == 0 && n[0] == 0);
    CHECK(fiber_ring_allreduce(n + 1, 1, FIBER_RING_INT64, FIBER_RING_MAX, -1) == 0);
    CHECK(n[1] == size - 1);
    CHECK(fiber_ring_allreduce(d, 3, FIBER_RING_DOUBLE, FIBER_RING_MAX, -1) == 0);
    CHECK(d[0] == (size - 1) * 0.1 && d[1] == 0 && d[2] == 1);
    CHECK(fiber_ring_allreduce(NULL, 0, FIBER_RING_DOUBLE, FIBER_RING_SUM, -1) == 0);
    CHECK(fiber_ring_broadcast(NULL, 0, 0, -1) == 0);
    CHECK(fiber_ring_broadcast(text, 1, size, -1) == -EINVAL);
    CHECK(fiber_ring_allreduce(d, 1, (enum fiber_ring_type)3, FIBER_RING_SUM, -1) == -EINVAL);
    return 0;
}

static void test_four_ranks_agree(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(4, use_all, &o);
    run_ok(1, use_all, &o);
    o.per_node = 2; /* two agents */
    run_ok(4, use_all, &o);
}

#define MANY (1 << 17)

static int reduce_a_mebibyte(int rank, int size, const void *arg, size_t len)
{
    double *d = malloc(MANY * sizeof(*d)), expected = 0;
    int wrong = 0;

    for (int r = 0; r < size; r++)
        expected += 1.0 / (r + 3); /* in the order of the ranks, to the last bit */
    for (size_t i = 0; d && i < MANY; i++)
        d[i] = 1.0 / (rank + 3);
    CHECK(d && fiber_ring_allreduce(d, MANY, FIBER_RING_DOUBLE, FIBER_RING_SUM, -1) == 0);
    for (size_t i = 0; i < MANY; i++)
        wrong += d[i] != expected;
    free(d);
    CHECK(!wrong);
    return 0;
}

static void test_sixteen_ranks_and_a_mebibyte(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(16, reduce_a_mebibyte, &o);
}

/* ---- Failures ---- */

static int one_dies(int rank, int size, const void *arg, size_t len)
{
    int rc;

    CHECK(fiber_ring_barrier(-1) == 0);
    if (rank == 1)
        raise(SIGKILL);
    rc = fiber_ring_barrier(-1);
    CHECK(rc == -ECONNABORTED && strstr(fiber_last_error(), "rank 1 has ended"));
    rc = fiber_ring_barrier(-1);
    CHECK(rc == -ECONNABORTED && strstr(fiber_last_error(), "rank 1 has ended"));
    return 0;
}

static void test_a_death_is_told_to_all_that_wait(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_SHRINK);

    run_ok(4, one_dies, &o);
}

static int one_returns(int rank, int size, const void *arg, size_t len)
{
    if (rank == 2)
        return 0;
    CHECK(fiber_ring_barrier(-1) == -ECONNABORTED);
    CHECK(strstr(fiber_last_error(), "rank 2 has ended"));
    return 0;
}

static void test_who_returns_early_is_missed(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(3, one_returns, &o);
}

static int one_dies_at_first(int rank, int size, const void *arg, size_t len)
{
    int64_t n = 1;

    CHECK(fiber_ring_barrier(-1) == 0);
    if (rank == 1 && strcmp(getenv("FIBER_EPOCH"), "0") == 0)
        raise(SIGKILL);
    CHECK(fiber_ring_allreduce(&n, 1, FIBER_RING_INT64, FIBER_RING_SUM, -1) == 0 && n == size);
    return 0;
}

static void test_a_restart_begins_anew(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_RESTART);

    o.grace_ms = 100;
    run_ok(3, one_dies_at_first, &o);
}

/* Rank `rank` brings `n` to a sum. */
static struct fiber_future *bring(struct fbr_rpc *rpc, uint32_t epoch, uint32_t rank, int64_t n)
{
    const struct fbr_collective_ask ask = {.op = FBR_COLLECTIVE_ALLREDUCE,
                                           .rank = rank,
                                           .epoch = epoch,
                                           .type = FIBER_RING_INT64,
                                           .how = FIBER_RING_SUM,
                                           .len = sizeof(n)};
    struct fiber_future *f;
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_collective_put(&b, &ask);
    fbr_put(&b, &n, sizeof(n));
    assert_int_equal(fbr_rpc_call(rpc, &(struct iovec){b.data, b.len}, 1, UINT64_MAX, &f), 0);
    fbr_buf_fini(&b);
    return f;
}

static void expect_sum(struct fiber_future *f, int64_t sum)
{
    struct fiber_bytes out;

    assert_int_equal(fiber_future_get(f, &out, TEST_LONG_MS), 0);
    assert_int_equal(out.len, sizeof(sum));
    assert_memory_equal(out.data, &sum, sizeof(sum));
    fiber_bytes_free(&out);
    fiber_future_close(f);
}

static void expect_stale(struct fiber_future *f)
{
    assert_int_equal(fiber_future_get(f, NULL, TEST_LONG_MS), -ESTALE);
    assert_true(has(fiber_last_error(), "the ring has started again", NULL));
    fiber_future_close(f);
}

/* A rank of an old epoch may live on where no kill reaches it. Nothing of it gets into the sums of the new one. */
static void test_messages_of_an_old_epoch_are_refused(void **state)
{
    struct fiber_address address;
    struct fiber_future *first, *old;
    struct fbr_collective *group;
    struct fbr_address at;
    struct fbr_rpc *rpc;

    assert_int_equal(fbr_collective_open(&group, 2, &address), 0);
    assert_int_equal(fbr_address_get(&at, &address, FBR_KIND_RING), 0);
    assert_int_equal(fbr_rpc_open(&rpc, &at), 0);
    old = bring(rpc, 0, 0, 1000);
    fbr_collective_ended(group, 0, 1);
    assert_int_equal(fiber_future_get(old, NULL, TEST_LONG_MS), -ECONNABORTED);
    fiber_future_close(old);
    first = bring(rpc, 1, 0, 1);
    expect_stale(bring(rpc, 0, 1, 2000));
    expect_stale(bring(rpc, 0, 0, 4000));
    fbr_collective_ended(group, 0, 0); /* the news of its death changes nothing either */
    expect_sum(bring(rpc, 1, 1, 2), 3);
    expect_sum(first, 3);
    expect_stale(bring(rpc, 0, 0, 1000));
    fbr_rpc_close(rpc);
    fbr_collective_close(group);
}

/* ---- A rank that lives on in a restart ---- */

struct way {
    char stopped[96], again[96], go_old[96], verdict[96], go_new[96];
};

/* Its agent is given up, and no kill reaches the two. */
static int outlive(const struct way *w)
{
    pid_t pids[2] = {getppid(), getpid()};
    int64_t n = 1000;
    int rc;

    CHECK(fiber_ring_barrier(-1) == 0);
    kill(pids[0], SIGSTOP);
    CHECK(gate_notify(w->stopped, pids, sizeof(pids)) == 0 && gate_listen(w->go_old) == 0);
    rc = fiber_ring_allreduce(&n, 1, FIBER_RING_INT64, FIBER_RING_SUM, -1);
    CHECK(gate_notify(w->verdict, &rc, sizeof(rc)) == 0);
    return child_wait(NULL, 0);
}

static int one_lives_on(int rank, int size, const void *arg, size_t len)
{
    const struct way *w = arg;
    int64_t n = 1;

    CHECK(len == sizeof(*w));
    if (strcmp(getenv("FIBER_EPOCH"), "0") == 0) {
        if (rank == 1)
            return outlive(w);
        CHECK(fiber_ring_barrier(-1) == 0);
        return child_wait(NULL, 0);
    }
    CHECK(fiber_ring_barrier(-1) == 0);
    CHECK(gate_notify(w->again, "x", 1) == 0 && gate_listen(w->go_new) == 0);
    CHECK(fiber_ring_allreduce(&n, 1, FIBER_RING_INT64, FIBER_RING_SUM, -1) == 0 && n == size);
    return 0;
}

static int play_launcher(void)
{
    struct fiber_ring_options o = options(FIBER_RING_RESTART);
    struct gate stopped, again, go_old, verdict, go_new;
    struct gate *gates[] = {&stopped, &again, &go_old, &verdict, &go_new};
    struct fiber_ring *ring;
    int fds[2], code = -1;
    struct way w;
    pid_t pids[2];
    char both[2];

    for (int i = 0; i < 5; i++) {
        gate_open(gates[i]);
        snprintf((char *)&w + i * sizeof(w.stopped), sizeof(w.stopped), "%s", gates[i]->path);
    }
    o.per_node = 1;
    o.nodes = 2;
    o.grace_ms = 100;
    CHECK(fiber_ring_start(&ring, 2, one_lives_on, &w, sizeof(w), &o) == 0);
    CHECK(gate_wait(&stopped, pids, sizeof(pids)) == 0);
    for (int i = 0; i < 2; i++)
        fds[i] = pid_open(pids[i]);
    CHECK(gate_wait(&again, both, sizeof(both)) == 0); /* all ranks of the new epoch */
    CHECK(fds[0] >= 0 && fds[1] >= 0 && kill(pids[1], 0) == 0);
    CHECK(write(go_old.fd, "x", 1) == 1 && gate_wait(&verdict, &code, sizeof(code)) == 0);
    CHECK(code == -ESTALE);
    kill(pids[0], SIGCONT); /* it finds that it was given up */
    CHECK(pids_gone(fds, 2, TEST_LONG_MS) == 0);
    CHECK(write(go_new.fd, "xx", 2) == 2 && fiber_ring_wait(ring, TEST_LONG_MS) == 0);
    CHECK(fiber_ring_exitcode(ring, &code) == 0 && code == 0);
    fiber_ring_close(ring);
    for (int i = 0; i < 5; i++)
        gate_close(gates[i]);
    return 0;
}

static void test_a_rank_that_lives_on_is_refused(void **state)
{
    const char *const env[] = {"FIBER_HEARTBEAT=1s", "FIBER_BACKEND=mock",
                               "FIBER_MOCK=agent-2:unreachable", NULL};
    struct ran r = run_self("launcher", NULL, env);

    if (r.code)
        fail_msg("%d: %s", r.code, r.err);
    ran_free(&r);
}

/* Rank 0 does not come; the others find that one of them gave up. */
static int one_gives_up(int rank, int size, const void *arg, size_t len)
{
    int rc;

    if (rank == 0) {
        rc = fiber_ring_broadcast(&rank, 0, 0, TEST_LONG_MS); /* when the others have failed */
        CHECK(rc == -ECONNABORTED || rc == -EINVAL);
        return 0;
    }
    rc = fiber_ring_barrier(rank == 1 ? 50 : -1);
    CHECK(rc < 0);
    CHECK(rank != 1 || rc == -ETIMEDOUT || rc == -EINVAL || rc == -ECONNABORTED);
    CHECK(fiber_ring_barrier(-1) < 0);
    return 0;
}

static void test_who_gives_up_breaks_it_for_all(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(3, one_gives_up, &o);
}

/* Whichever rank has it. */
static int meet_nan(int rank, int size, const void *arg, size_t len)
{
    for (int i = 0; i < size; i++) {
        double least = rank == i ? NAN : rank, most = least;

        CHECK(fiber_ring_allreduce(&least, 1, FIBER_RING_DOUBLE, FIBER_RING_MIN, -1) == 0);
        CHECK(fiber_ring_allreduce(&most, 1, FIBER_RING_DOUBLE, FIBER_RING_MAX, -1) == 0);
        CHECK(isnan(least) && isnan(most));
    }
    return 0;
}

static void test_nan_is_not_lost(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(3, meet_nan, &o);
}

static int disagree_on_root(int rank, int size, const void *arg, size_t len)
{
    char text[4] = "abc";

    CHECK(fiber_ring_broadcast(text, 4, -1, -1) == -EINVAL);
    CHECK(strstr(fiber_last_error(), "no rank -1"));
    CHECK(fiber_ring_broadcast(text, 4, rank, -1) == -EINVAL);
    CHECK(strstr(fiber_last_error(), "4 bytes from rank 0"));
    CHECK(strstr(fiber_last_error(), "4 bytes from rank 1"));
    return 0;
}

static int disagree_on_result(int rank, int size, const void *arg, size_t len)
{
    double x = 1;

    CHECK(fiber_ring_allreduce(&x, 1, FIBER_RING_DOUBLE, rank ? FIBER_RING_MIN : FIBER_RING_MAX,
                               -1) == -EINVAL);
    CHECK(strstr(fiber_last_error(), "a minimum of 1 double"));
    CHECK(strstr(fiber_last_error(), "a maximum of 1 double"));
    return 0;
}

static int disagree(int rank, int size, const void *arg, size_t len)
{
    int64_t n[2] = {1, 2};

    CHECK(fiber_ring_allreduce(n, rank == 0 ? 1 : 2, FIBER_RING_INT64, FIBER_RING_SUM, -1) ==
          -EINVAL);
    CHECK(strstr(fiber_last_error(), "do not agree"));
    CHECK(n[0] == 1 && n[1] == 2);
    return 0;
}

static void test_ranks_that_do_not_agree_are_told(void **state)
{
    struct fiber_ring_options o = options(FIBER_RING_ABORT);

    run_ok(2, disagree, &o);
    run_ok(2, disagree_on_root, &o);
    run_ok(2, disagree_on_result, &o);
}

static void test_who_is_no_rank_is_told(void **state)
{
    int64_t n = 1;

    assert_int_equal(fiber_ring_barrier(0), -EPERM);
    assert_non_null(strstr(fiber_last_error(), "not a rank"));
    assert_int_equal(fiber_ring_allreduce(&n, 1, FIBER_RING_INT64, FIBER_RING_SUM, 0), -EPERM);
    assert_int_equal(fiber_ring_broadcast(&n, 8, 0, 0), -EPERM);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_four_ranks_agree),
        cmocka_unit_test(test_sixteen_ranks_and_a_mebibyte),
        cmocka_unit_test(test_a_death_is_told_to_all_that_wait),
        cmocka_unit_test(test_who_returns_early_is_missed),
        cmocka_unit_test(test_a_restart_begins_anew),
        cmocka_unit_test(test_messages_of_an_old_epoch_are_refused),
        cmocka_unit_test(test_a_rank_that_lives_on_is_refused),
        cmocka_unit_test(test_who_gives_up_breaks_it_for_all),
        cmocka_unit_test(test_nan_is_not_lost),
        cmocka_unit_test(test_ranks_that_do_not_agree_are_told),
        cmocka_unit_test(test_who_is_no_rank_is_told),
    };

    init_fiber(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "launcher") == 0)
        return play_launcher();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
