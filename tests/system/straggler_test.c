/* straggler_test.c - one long task, one slow worker or one frozen worker never holds back the rest.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

struct seen {
    /* how many came; which was the last; how many had come when task 0 came */
    uint32_t n, last, at_first;
};

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;

    (void)code;
    (void)data;
    (void)len;
    if (index == 0)
        s->at_first = s->n;
    s->last = (uint32_t)index;
    s->n++;
}

static int nap_as_told(const void *in, size_t len, struct fiber_reply *reply)
{
    nap_us(number(in, len) * 1000);
    return square(in, len, reply);
}

/* 2 s, and 59 x 50 ms for the other three workers: the long one is the last to end. */
static void test_a_long_task_holds_back_nobody(void **state)
{
    struct fiber_pool *pool = open_pool(4);
    struct fiber_map_options o = FIBER_MAP_OPTIONS_INIT;
    struct seen s = {0};
    int64_t in[60], out[60];
    double began;

    (void)state;
    for (int i = 0; i < 60; i++)
        in[i] = i ? 50 : 2000;
    o.on_done = on_done;
    o.user = &s;
    meet(pool, 4);
    began = now_s();
    assert_ok(fiber_pool_map(pool, nap_as_told, in, 8, out, 8, 60, &o));
    printf("2 s and 59 x 50 ms took %.3f s\n", now_s() - began);
    assert_true(now_s() - began < 3);
    assert_int_equal(s.n, 60);
    assert_int_equal(s.last, 0);
    fiber_pool_close(pool);
}

static int nap_or_wait(const void *in, size_t len, struct fiber_reply *reply)
{
    return number(in, len) == 0 ? wait_at_gate(in, len, reply) : count_run(in, len, reply);
}

/* It stands in the middle of a large batch: what is behind it goes elsewhere, what was done before
 * it is told. */
static void test_a_long_task_in_a_batch_holds_back_nobody(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_map_options o = FIBER_MAP_OPTIONS_INIT;
    int64_t in[400], out[400];
    struct fiber_result *r;

    (void)state;
    for (int i = 0; i < 400; i++)
        in[i] = i == 50 ? 0 : 1000 + i;
    o.chunk = 100;
    meet(pool, 2);
    assert_ok(fiber_pool_map_array(pool, nap_or_wait, in, 8, out, 8, 400, &o, &r));
    for (size_t i = 0; i < 400; i++)
        if (i != 50)
            assert_ok(fiber_result_wait_task(r, i, 30000));
    assert_int_equal(fiber_result_done(r), 399);
    open_gate();
    assert_ok(fiber_result_wait(r, 60000));
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

    (void)len;
    slow = rc == 0 && atomic_fetch_add(&board->inits, 1) == 0;
    return rc;
}

static int slow_or_not(const void *in, size_t len, struct fiber_reply *reply)
{
    nap_us(slow ? 10000 : 1000);
    if (slow)
        add(&board->steps);
    return square(in, len, reply);
}

static void test_a_worker_ten_times_slower_gets_less(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 4,
                                                   .max = 4,
                                                   .init = slow_init,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    int64_t in[3000], out[3000];
    double began;

    (void)state;
    for (int i = 0; i < 3000; i++)
        in[i] = i;
    meet(pool, 4);
    began = now_s();
    assert_ok(fiber_pool_map(pool, slow_or_not, in, 8, out, 8, 3000, NULL));
    printf("3000 x 1 ms on 4 workers, one of them slow: %.3f s (968 ms would be perfect), %u by "
           "the slow one\n",
           now_s() - began, atomic_load(&board->steps));
    for (int i = 0; i < 3000; i++)
        assert_int_equal(out[i], i * i);
    assert_true(atomic_load(&board->steps) < 300); /* 97 would be perfect, 750 its equal share */
    fiber_pool_close(pool);
}

/* With a heartbeat of 1 s a frozen worker is noticed after 3 s. Until then all is done but the
 * little that it holds. */
static void test_a_frozen_worker_holds_back_only_what_it_runs(void **state)
{
    struct fiber_pool *pool = open_pool(4);
    struct fiber_worker_stats w[4];
    int64_t in[2000], out[2000];
    struct fiber_result *r;
    double began, most;
    size_t done;

    (void)state;
    for (int i = 0; i < 2000; i++)
        in[i] = i;
    meet(pool, 4);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 4), 4);
    assert_ok(fiber_pool_map_array(pool, nap_1ms, in, 8, out, 8, 2000, NULL, &r));
    assert_ok(fiber_result_wait_task(r, 200, 30000));
    began = now_s();
    assert_int_equal(kill((pid_t)w[2].pid, SIGSTOP), 0);
    assert_int_equal(fiber_result_wait(r, 2000), -ETIMEDOUT);
    done = fiber_result_done(r);
    assert_ok(fiber_result_wait(r, 30000));
    most = SANITIZED ? 20 : 3 + 5;
    printf("%zu of 2000 were done before the frozen one was noticed, all after %.1f s\n", done,
           now_s() - began);
    assert_true(done >= (SANITIZED ? 1000 : 1990));
    assert_true(now_s() - began < most);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(out[i], i * i);
    assert_int_equal(stats_of(pool).deaths, 1);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_a_long_task_holds_back_nobody),
        pool_test(test_a_long_task_in_a_batch_holds_back_nobody),
        pool_test(test_a_worker_ten_times_slower_gets_less),
        pool_test(test_a_frozen_worker_holds_back_only_what_it_runs),
    };

    assert_ok(fiber_init(&argc, &argv));
    assert_ok(fiber_config_set("heartbeat", "1s"));
    return run_pool_tests(tests, "stragglers");
}
