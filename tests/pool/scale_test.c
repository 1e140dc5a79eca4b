/* scale_test.c - 256 and 1,024 workers on one machine: they start, all of them work at once, they
 * close.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

static int64_t *make_numbers(size_t n)
{
    int64_t *in = calloc(n, sizeof(*in));

    for (size_t i = 0; i < n; i++)
        in[i] = (int64_t)i;
    return in;
}

static void run_workers(int n)
{
    size_t tasks = 20 * (size_t)n;
    int64_t *in = make_numbers(tasks), *out = calloc(tasks, sizeof(*out));
    double began = now_s(), started, mapped, closed;
    struct fiber_pool *pool = open_pool(n);

    meet(pool, n);
    started = now_s() - began;
    began = now_s();
    assert_ok(fiber_pool_map(pool, nap_1ms, in, 8, out, 8, tasks, NULL));
    mapped = now_s() - began;
    for (size_t i = 0; i < tasks; i++)
        assert_int_equal(out[i], i * i);
    assert_int_equal(fiber_pool_worker_stats(pool, NULL, 0), n);
    assert_int_equal(stats_of(pool).deaths, 0);
    began = now_s();
    fiber_pool_close(pool);
    closed = now_s() - began;
    printf("%d workers: all at work after %.2f s, %zu tasks of 1 ms in %.2f s, closed in %.2f s\n",
           n, started, tasks, mapped, closed);
    free(in);
    free(out);
}

static void test_256_workers(void **state)
{
    run_workers(256);
}

static void test_1024_workers(void **state)
{
    run_workers(SANITIZED ? 300 : 1024);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {pool_test(test_256_workers), pool_test(test_1024_workers)};

    setenv("FIBER_LOG_LEVEL", "info", 0); /* should one die: why */
    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "many workers");
}
