/* straggler_test.c - one long task, one slow worker or one frozen worker never holds back the rest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

static int nap_or_wait(const void *in, size_t len, struct fiber_reply *reply)
{
    if (number(in, len) == 0)
        return wait_at_gate(in, len, reply);
    nap_us(1000);
    return count_run(in, len, reply);
}

/* It is the first of those that one worker each gets. */
static void test_a_long_task_holds_back_nobody(void **state)
{
    struct fiber_pool *pool = open_pool(4);
    int64_t in[60], out[60];
    struct fiber_result *r;

    for (int i = 0; i < 60; i++)
        in[i] = i;
    meet(pool, 4);
    assert_ok(fiber_pool_map_array(pool, nap_or_wait, in, 8, out, 8, 60, NULL, &r));
    for (size_t i = 1; i < 60; i++)
        assert_ok(fiber_result_wait_task(r, i, WAIT_MS));
    assert_int_equal(fiber_result_done(r), 59);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 1; i < 60; i++)
        assert_int_equal(atomic_load(&board->runs[i]), 1);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* It stands in the middle of a large batch: what is behind it goes elsewhere, what was done before
 * it is told. */
static void test_a_long_task_in_a_batch_holds_back_nobody(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[400], out[400];
    struct fiber_result *r;

    for (int i = 0; i < 400; i++)
        in[i] = i == 50 ? 0 : 1000 + i;
    o.chunk = 100;
    meet(pool, 2);
    assert_ok(fiber_pool_map_array(pool, nap_or_wait, in, 8, out, 8, 400, &o, &r));
    for (size_t i = 0; i < 400; i++)
        if (i != 50)
            assert_ok(fiber_result_wait_task(r, i, WAIT_MS));
    assert_int_equal(fiber_result_done(r), 399);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 400; i++)
        if (i != 50)
            assert_int_equal(atomic_load(&board->runs[1000 + i]), 1);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static bool slow;

/* The first worker is slow. */
static int slow_init(const void *arg, size_t len)
{
    int rc = board_map(arg);

    slow = rc == 0 && atomic_fetch_add(&board->inits, 1) == 0;
    return rc;
}

static int slow_or_not(const void *in, size_t len, struct fiber_reply *reply)
{
    nap_us(slow ? 100000 : 1000);
    if (slow)
        add(&board->steps);
    return square(in, len, reply);
}

static void test_a_worker_100_times_slower_gets_less(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 4,
                                                   .max = 4,
                                                   .init = slow_init,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    int64_t in[1500], out[1500];
    double began;

    for (int i = 0; i < 1500; i++)
        in[i] = i;
    meet(pool, 4);
    began = now_s();
    assert_ok(fiber_pool_map(pool, slow_or_not, in, 8, out, 8, 1500, NULL));
    printf("1500 x 1 ms on 4 workers, one of them slow: %.3f s (498 ms would be perfect), %u by "
           "the slow one\n",
           now_s() - began, atomic_load(&board->steps));
    for (int i = 0; i < 1500; i++)
        assert_int_equal(out[i], i * i);
    assert_true(atomic_load(&board->steps) < 300); /* 5 would be perfect, 375 its equal share */
    fiber_pool_close(pool);
}

/* It is not noticed, and all is done but the little that it holds. When it is killed, that is done
 * too. */
static void test_a_frozen_worker_holds_back_only_what_it_runs(void **state)
{
    struct fiber_worker_stats w[4];
    int64_t in[2000], out[2000];
    struct fiber_pool *pool;
    struct fiber_result *r;

    assert_ok(fiber_config_set("heartbeat", "1h"));
    pool = open_pool(4);
    for (int i = 0; i < 2000; i++)
        in[i] = i;
    meet(pool, 4);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 4), 4);
    assert_ok(fiber_pool_map_array(pool, nap_1ms, in, 8, out, 8, 2000, NULL, &r));
    assert_ok(fiber_result_wait_task(r, 200, WAIT_MS));
    assert_int_equal(kill((pid_t)w[2].pid, SIGSTOP), 0);
    assert_comes(fiber_result_done(r) >= 1990);
    assert_int_equal(stats_of(pool).deaths, 0);
    assert_int_equal(kill((pid_t)w[2].pid, SIGKILL), 0);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (int i = 0; i < 2000; i++)
        assert_int_equal(out[i], i * i);
    assert_comes(stats_of(pool).deaths == 1);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_a_long_task_holds_back_nobody),
        pool_test(test_a_long_task_in_a_batch_holds_back_nobody),
        pool_test(test_a_worker_100_times_slower_gets_less),
        pool_test(test_a_frozen_worker_holds_back_only_what_it_runs),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "stragglers");
}
