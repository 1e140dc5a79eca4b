/* queue_test.c - fiber_queue across processes: messages, order, bounds, timeouts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "queue_util.h"
#include "tests/support/sanitized.h"

/* ---- Messages ---- */

/* Gets until the queue is shut, or so many, and reports everything in its order as one message. */
static int take_up_to(uint64_t most, const struct order *o)
{
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t *all = malloc(sizeof(*all) * (o->count + 1)), n = 0;
    int rc;

    CHECK(all);
    while (n < most) {
        uint64_t m = get_number(q, o->timeout_ms, &rc);

        if (rc == -EPIPE)
            break;
        if (rc == -ETIMEDOUT)
            continue;
        CHECK(rc == 0 && n < o->count);
        all[n++] = m;
    }
    CHECK(fiber_queue_put(report, all, n * sizeof(*all), -1) == 0);
    fiber_queue_close(q);
    fiber_queue_close(report);
    free(all);
    return 0;
}

/* Until the queue is shut. */
static int consume(const void *arg, size_t len)
{
    return take_up_to(UINT64_MAX, arg);
}

#define OWNERS 5000

/* However slow the owner is, there is as much for it. */
static int leave_some(const void *arg, size_t len)
{
    const struct order *o = arg;

    return take_up_to(o->count - OWNERS, o);
}

/* Every producer's messages in `seen` (by producer and number) exactly once; in order for each
 * consumer if `fifo`. */
static void check_report(struct fiber_queue *report, uint8_t *seen, uint64_t producers,
                         uint64_t count, bool fifo)
{
    int64_t *last = calloc(producers, sizeof(*last));
    struct fiber_bytes b;

    assert_non_null(last);
    memset(last, 0xff, producers * sizeof(*last));
    must(fiber_queue_get(report, &b, LONG_MS));
    for (size_t i = 0; i < b.len / 8; i++) {
        uint64_t m, id, n;

        memcpy(&m, (char *)b.data + 8 * i, 8);
        id = m >> 32;
        n = m & UINT32_MAX;
        assert_true(id < producers && n < count);
        assert_int_equal(seen[id * count + n], 0);
        seen[id * count + n] = 1;
        if (fifo)
            assert_true(last[id] < (int64_t)n);
        last[id] = (int64_t)n;
    }
    fiber_bytes_free(&b);
    free(last);
}

static void run_history(uint64_t producers, uint64_t count, int consumers, int timeout_ms,
                        size_t bound)
{
    struct fiber_queue *q = plain_queue(bound), *report = plain_queue(0);
    struct fiber_process *p[8], *c[8];
    uint8_t *seen = calloc(producers, count);
    struct order o = order_for(q, report);

    assert_non_null(seen);
    o.count = producers * count;
    o.timeout_ms = timeout_ms;
    for (int i = 0; i < consumers; i++)
        c[i] = start(consume, &o, sizeof(o));
    o.count = count;
    for (o.id = 0; o.id < producers; o.id++)
        p[o.id] = start(produce, &o, sizeof(o));
    for (uint64_t i = 0; i < producers; i++)
        join(p[i]);
    must(fiber_queue_shut(q));
    for (int i = 0; i < consumers; i++)
        check_report(report, seen, producers, count, timeout_ms < 0);
    for (int i = 0; i < consumers; i++)
        join(c[i]);
    for (uint64_t i = 0; i < producers * count; i++)
        assert_int_equal(seen[i], 1);
    fiber_queue_close(q);
    fiber_queue_close(report);
    free(seen);
}

static void test_everything_arrives_once_and_in_each_senders_order(void **state)
{
    run_history(3, 12000 / SLOWNESS, 3, -1, 0);
}

static void test_one_consumer_gets_everything_in_order(void **state)
{
    run_history(2, 20000 / SLOWNESS, 1, -1, 0);
}

static void test_gets_that_give_up_lose_nothing(void **state)
{
    run_history(2, 5000 / SLOWNESS, 3, 0, 0);
    run_history(2, 5000 / SLOWNESS, 2, 1, 0);
}

static void test_bounded_queues_lose_nothing(void **state)
{
    run_history(3, 1000 / SLOWNESS, 2, -1, 4);
}

static void test_the_owner_consumes_beside_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    uint8_t *seen = calloc(2, 20000);
    struct fiber_process *c, *p[2];
    uint64_t mine = 0;
    int rc;

    assert_non_null(seen);
    o.count = 40000;
    o.timeout_ms = -1;
    c = start(leave_some, &o, sizeof(o));
    o.count = 20000;
    for (o.id = 0; o.id < 2; o.id++)
        p[o.id] = start(produce, &o, sizeof(o));
    while (mine < OWNERS) {
        uint64_t m = get_number(q, LONG_MS, &rc);

        assert_int_equal(rc, 0);
        assert_int_equal(seen[(m >> 32) * 20000 + (m & UINT32_MAX)]++, 0);
        mine++;
    }
    join(p[0]);
    join(p[1]);
    must(fiber_queue_shut(q));
    check_report(report, seen, 2, 20000, true);
    join(c);
    for (uint64_t i = 0; i < 40000; i++)
        assert_int_equal(seen[i], 1);
    fiber_queue_close(q);
    fiber_queue_close(report);
    free(seen);
}

static int put_sizes(const void *arg, size_t len)
{
    static const size_t sizes[] = {
        0, 1, 7, 8, 9, 65535, 65536, 65537, 262144, 262145, 1 << 20, 0, SOME_OF(100 << 20), 3};
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    char *data = malloc(100 << 20);

    CHECK(data);
    for (size_t i = 0; i < 100 << 20; i++)
        data[i] = (char)(i * 7 + i / 4096);
    for (size_t i = 0; i < COUNT(sizes); i++)
        CHECK(fiber_queue_put(q, data, sizes[i], LONG_MS) == 0);
    free(data);
    CHECK(fiber_queue_flush(q, LONG_MS) == 0);
    fiber_queue_close(q);
    return 0;
}

static int pass_on(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);

    for (uint64_t i = 0; i < o->count; i++) {
        struct fiber_bytes b;

        CHECK(fiber_queue_get(q, &b, LONG_MS) == 0);
        CHECK(fiber_queue_put(report, b.data, b.len, LONG_MS) == 0);
        fiber_bytes_free(&b);
    }
    fiber_queue_close(q);
    fiber_queue_close(report);
    return 0;
}

static void test_messages_of_all_sizes_go_both_ways(void **state)
{
    static const size_t sizes[] = {
        0, 1, 7, 8, 9, 65535, 65536, 65537, 262144, 262145, 1 << 20, 0, SOME_OF(100 << 20), 3};
    struct fiber_queue *q = plain_queue(0), *back = plain_queue(0);
    struct order o = order_for(q, back);
    struct fiber_process *p, *e;

    o.count = COUNT(sizes);
    p = start(put_sizes, &o, sizeof(o));
    e = start(pass_on, &o, sizeof(o));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct fiber_bytes b;

        must(fiber_queue_get(back, &b, LONG_MS));
        assert_int_equal(b.len, sizes[i]);
        for (size_t k = 0; k < b.len; k += k < 65536 ? 1 : 4099)
            if (((char *)b.data)[k] != (char)(k * 7 + k / 4096))
                fail_msg("message %zu differs at %zu", i, k);
        fiber_bytes_free(&b);
    }
    join(p);
    join(e);
    fiber_queue_close(q);
    fiber_queue_close(back);
}

static void test_a_message_above_max_message_is_refused_and_the_rest_goes_on(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    char *big = (char *)(uintptr_t)8; /* it is refused before it is looked at */

    assert_int_equal(fiber_queue_put(q, big, (size_t)5 << 30, 0), -EMSGSIZE);
    assert_non_null(strstr(fiber_last_error(), "max_message"));
    must(put_number(q, 1));
    expect_number(q, 1);
    fiber_queue_close(q);
}

/* ---- Times ---- */

static int check_times(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *full = connect_queue(&o->queue), *empty = connect_queue(&o->report);
    struct fiber_bytes b;
    uint64_t t;

    CHECK(fiber_queue_get(empty, &b, 0) == -ETIMEDOUT);
    t = now_ms();
    CHECK(fiber_queue_get(empty, &b, 100) == -ETIMEDOUT);
    CHECK(now_ms() - t >= 99);
    CHECK(fiber_queue_put(full, "x", 1, 0) == -ETIMEDOUT);
    t = now_ms();
    CHECK(fiber_queue_put(full, "x", 1, 100) == -ETIMEDOUT);
    CHECK(now_ms() - t >= 99);
    CHECK(put_number(empty, 5) == 0);
    CHECK(fiber_queue_flush(empty, LONG_MS) == 0);
    CHECK(fiber_queue_get(empty, &b, 0) == 0 &&
          b.len == 8); /* what is there is found without waiting */
    fiber_bytes_free(&b);
    return 0;
}

static void test_timeouts_of_get_and_put(void **state)
{
    struct fiber_queue *full = plain_queue(1), *empty = plain_queue(0);
    struct order o = order_for(full, empty);
    struct fiber_bytes b;
    uint64_t t = now_ms();

    assert_int_equal(fiber_queue_get(empty, &b, 0), -ETIMEDOUT);
    assert_int_equal(fiber_queue_get(empty, &b, 100), -ETIMEDOUT);
    assert_true(now_ms() - t >= 99);
    must(put_number(full, 1));
    assert_int_equal(fiber_queue_put(full, "x", 1, 0), -ETIMEDOUT);
    t = now_ms();
    assert_int_equal(fiber_queue_put(full, "x", 1, 100), -ETIMEDOUT);
    assert_true(now_ms() - t >= 99);
    join(start(check_times, &o, sizeof(o)));
    expect_number(full, 1);
    assert_int_equal(fiber_queue_get(full, &b, 0),
                     -ETIMEDOUT); /* nothing of what was refused came in */
    fiber_queue_close(full);
    fiber_queue_close(empty);
}

/* Puts with short timeouts; what was accepted is reported. */
static int put_hastily(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t random = o->seed, n = 0, *accepted = malloc(sizeof(*accepted) * o->count);

    CHECK(accepted);
    for (uint64_t i = 0; i < o->count; i++) {
        uint64_t m = o->id << 32 | i;
        int rc = fiber_queue_put(q, &m, sizeof(m), (int)(next_random(&random) % 3));

        CHECK(rc == 0 || rc == -ETIMEDOUT);
        if (rc == 0)
            accepted[n++] = m;
    }
    CHECK(fiber_queue_put(report, accepted, n * sizeof(*accepted), -1) == 0);
    fiber_queue_close(report);
    free(accepted);
    return 0;
}

static void test_a_put_with_a_timeout_is_accepted_or_withdrawn(void **state)
{
    struct fiber_queue *q = plain_queue(3), *accepted = plain_queue(0), *got = plain_queue(0);
    struct order o = order_for(q, accepted);
    struct fiber_process *p[3], *c;
    uint8_t seen[3][1000] = {{0}};
    struct fiber_bytes b;
    uint64_t puts = 0;

    o.count = 1000;
    for (o.id = 0; o.id < 3; o.id++) {
        o.seed = 0x9e3779b97f4a7c15u + o.id;
        p[o.id] = start(put_hastily, &o, sizeof(o));
    }
    o = order_for(q, got);
    o.count = 3000;
    o.timeout_ms = 1;
    c = start(consume, &o, sizeof(o));
    for (int i = 0; i < 3; i++) {
        must(fiber_queue_get(accepted, &b, LONG_MS));
        for (size_t k = 0; k < b.len / 8; k++, puts++) {
            uint64_t m;

            memcpy(&m, (char *)b.data + 8 * k, 8);
            seen[m >> 32][m & UINT32_MAX] = 1;
        }
        fiber_bytes_free(&b);
        join(p[i]);
    }
    must(fiber_queue_shut(q));
    must(fiber_queue_get(got, &b, LONG_MS));
    assert_int_equal(b.len / 8, puts);
    for (size_t k = 0; k < b.len / 8; k++) {
        uint64_t m;

        memcpy(&m, (char *)b.data + 8 * k, 8);
        assert_int_equal(seen[m >> 32][m & UINT32_MAX], 1); /* accepted, and only once */
        seen[m >> 32][m & UINT32_MAX] = 2;
    }
    fiber_bytes_free(&b);
    join(c);
    fiber_queue_close(q);
    fiber_queue_close(accepted);
    fiber_queue_close(got);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_arrives_once_and_in_each_senders_order),
        cmocka_unit_test(test_one_consumer_gets_everything_in_order),
        cmocka_unit_test(test_gets_that_give_up_lose_nothing),
        cmocka_unit_test(test_bounded_queues_lose_nothing),
        cmocka_unit_test(test_the_owner_consumes_beside_others),
        cmocka_unit_test(test_messages_of_all_sizes_go_both_ways),
        cmocka_unit_test(test_a_message_above_max_message_is_refused_and_the_rest_goes_on),
        cmocka_unit_test(test_timeouts_of_get_and_put),
        cmocka_unit_test(test_a_put_with_a_timeout_is_accepted_or_withdrawn),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
