/* idle_test.c - a pool that had nothing to do for a while works as before: no timer has ended it.
 *
 * Over TCP that is 70 s, because nanomsg has timers of a minute. A unix socket has only our own
 * heartbeats.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

static void map_squares(struct fiber_pool *pool)
{
    int64_t in[5000], out[5000];

    for (int i = 0; i < 5000; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 5000, NULL));
    for (int i = 0; i < 5000; i++)
        assert_int_equal(out[i], i * i);
}

static void test_idle_between_maps(void **state)
{
    const char *transport = getenv("FIBER_TRANSPORT");
    bool tcp = transport && strcmp(transport, "tcp") == 0;
    int64_t before[3] = {0}, n;
    struct fiber_worker_stats w[4];
    struct fiber_pool *pool;

    if (!tcp)
        assert_ok(fiber_config_set("heartbeat", "1s"));
    pool = open_pool(3);
    meet(pool, 3);
    map_squares(pool);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 4), 3);
    for (int i = 0; i < 3; i++)
        before[i] = w[i].pid;
    nap_us((tcp ? 70 : 4) * 1000000);
    map_squares(pool);
    meet(pool, 3);
    n = fiber_pool_worker_stats(pool, w, 4);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w[i].pid, before[i]);
        assert_true(w[i].rtt > 0); /* heartbeats went on */
    }
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {pool_test(test_idle_between_maps)};

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "idle");
}
