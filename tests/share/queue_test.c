/* queue_test.c - fiber_queue across processes: order, bounds, timeouts, ends, deaths.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "channel_util.h"

/* What a child is told. */
struct order {
    struct fiber_address queue, report;
    uint64_t id, count, seed;
    int timeout_ms;
};

static struct order order_for(struct fiber_queue *queue, struct fiber_queue *report)
{
    struct order o;

    memset(&o, 0, sizeof(o));
    if (queue)
        must(fiber_queue_address(queue, &o.queue));
    if (report)
        must(fiber_queue_address(report, &o.report));
    return o;
}

static struct fiber_queue *plain_queue(size_t bound)
{
    struct fiber_queue *q;

    must(fiber_queue_open(&q, bound));
    return q;
}

/* ---- Messages ---- */

/* Puts id << 32 | 0, 1, 2, ... */
static int produce(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);

    (void)len;
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(put_number(q, o->id << 32 | i) == 0);
    return 0; /* without flush or close: it arrives all the same */
}

/* Gets until the queue is shut, and reports everything in its order as one message. */
static int consume(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t *all = malloc(sizeof(*all) * (o->count + 1)), n = 0;
    int rc;

    (void)len;
    CHECK(all);
    for (;;) {
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

/* Every producer's messages in `seen` (by producer and number) exactly once; in order for each consumer if `fifo`. */
static void check_report(struct fiber_queue *report, uint8_t *seen, uint64_t producers, uint64_t count, bool fifo)
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

static void run_history(uint64_t producers, uint64_t count, int consumers, int timeout_ms, size_t bound)
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
    (void)state;
    run_history(3, 12000 / SLOWNESS, 3, -1, 0);
}

static void test_one_consumer_gets_everything_in_order(void **state)
{
    (void)state;
    run_history(2, 20000 / SLOWNESS, 1, -1, 0);
}

static void test_gets_that_give_up_lose_nothing(void **state)
{
    (void)state;
    run_history(2, 5000 / SLOWNESS, 3, 0, 0);
    run_history(2, 5000 / SLOWNESS, 2, 1, 0);
}

static void test_bounded_queues_lose_nothing(void **state)
{
    (void)state;
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

    (void)state;
    assert_non_null(seen);
    o.count = 40000;
    o.timeout_ms = -1;
    c = start(consume, &o, sizeof(o));
    o.count = 20000;
    for (o.id = 0; o.id < 2; o.id++)
        p[o.id] = start(produce, &o, sizeof(o));
    while (mine < 5000) {
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
    static const size_t sizes[] = {0,     1,      7,      8,       9, 65535,     65536,
                                   65537, 262144, 262145, 1 << 20, 0, 100 << 20, 3};
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    char *data = malloc(100 << 20);

    (void)len;
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

    (void)len;
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
    static const size_t sizes[] = {0,     1,      7,      8,       9, 65535,     65536,
                                   65537, 262144, 262145, 1 << 20, 0, 100 << 20, 3};
    struct fiber_queue *q = plain_queue(0), *back = plain_queue(0);
    struct order o = order_for(q, back);
    struct fiber_process *p, *e;

    (void)state;
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

    (void)state;
    assert_int_equal(fiber_queue_put(q, big, (size_t)5 << 30, 0), -EMSGSIZE);
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

    (void)len;
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
    CHECK(fiber_queue_get(empty, &b, 0) == 0 && b.len == 8); /* what is there is found without waiting */
    fiber_bytes_free(&b);
    return 0;
}

static void test_timeouts_of_get_and_put(void **state)
{
    struct fiber_queue *full = plain_queue(1), *empty = plain_queue(0);
    struct order o = order_for(full, empty);
    struct fiber_bytes b;
    uint64_t t = now_ms();

    (void)state;
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
    assert_int_equal(fiber_queue_get(full, &b, 0), -ETIMEDOUT); /* nothing of what was refused came in */
    fiber_queue_close(full);
    fiber_queue_close(empty);
}

/* Puts with short timeouts; what was accepted is reported. */
static int put_hastily(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t random = o->seed, n = 0, *accepted = malloc(sizeof(*accepted) * o->count);

    (void)len;
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

    (void)state;
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

/* ---- Size, shut, close ---- */

static int look_at_size(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    size_t n;

    (void)len;
    CHECK(fiber_queue_size(q, &n) == 0 && n == 3);
    CHECK(put_number(q, 3) == 0);
    CHECK(fiber_queue_size(q, &n) == 0 && n == 4);
    CHECK(fiber_queue_shut(q) == 0);
    CHECK(put_number(q, 4) == -EPIPE);
    for (uint64_t i = 0; i < 4; i++) {
        int rc;

        CHECK(get_number(q, LONG_MS, &rc) == i);
    }
    CHECK(put_number(q, 5) == -EPIPE);
    return 0;
}

static void test_size_and_shut_from_another_process(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    struct fiber_bytes b;
    size_t n;

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        must(put_number(q, i));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 3);
    join(start(look_at_size, &o, sizeof(o)));
    assert_int_equal(fiber_queue_get(q, &b, LONG_MS), -EPIPE); /* shut and drained */
    assert_int_equal(put_number(q, 6), -EPIPE);
    fiber_queue_close(q);
}

static int drain(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t n = 0;
    int rc;

    (void)len;
    CHECK(put_number(report, 0) == 0); /* here */
    while (get_number(q, LONG_MS, &rc) != UINT64_MAX)
        n++;
    CHECK(rc == -EPIPE);
    CHECK(put_number(report, n) == 0);
    return 0;
}

static void test_shut_ends_the_gets_of_all_once_it_is_drained(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[3];
    uint64_t sum = 0;
    int rc;

    (void)state;
    for (int i = 0; i < 3; i++)
        c[i] = start(drain, &o, sizeof(o));
    for (int i = 0; i < 3; i++)
        expect_number(report, 0);
    for (uint64_t i = 0; i < 100; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (int i = 0; i < 3; i++)
        sum += get_number(report, LONG_MS, &rc);
    assert_int_equal(sum, 100);
    for (int i = 0; i < 3; i++)
        join(c[i]);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_close_of_the_owner_ends_the_gets_of_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c = start(drain, &o, sizeof(o));

    (void)state;
    expect_number(report, 0);
    fiber_queue_close(q);
    expect_number(report, 0);
    join(c);
    fiber_queue_close(report);
}

static int put_and_return(const void *arg, size_t len)
{
    const struct order *o = arg;

    (void)len;
    CHECK(put_number(connect_queue(&o->queue), o->id) == 0);
    return 0;
}

static int put_and_exit(const void *arg, size_t len)
{
    const struct order *o = arg;

    (void)len;
    CHECK(put_number(connect_queue(&o->queue), o->id) == 0);
    exit(0);
}

static void test_what_was_put_just_before_the_end_arrives(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    uint64_t sum = 0;
    int rc;

    (void)state;
    for (o.id = 1; o.id <= 16; o.id++)
        join(start(o.id % 2 ? put_and_return : put_and_exit, &o, sizeof(o)));
    for (int i = 0; i < 16; i++)
        sum += get_number(q, 0, &rc);
    assert_int_equal(sum, 136);
    fiber_queue_close(q);
}

/* Gets `count` messages and returns without a word. */
static int get_and_return(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    int rc;

    (void)len;
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(get_number(q, LONG_MS, &rc) == o->id + i);
    return 0;
}

static void test_what_was_got_just_before_the_end_does_not_come_back(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);

    (void)state;
    for (uint64_t i = 0; i < 2000; i++)
        must(put_number(q, i));
    o.count = 300;
    for (o.id = 0; o.id < 1800; o.id += o.count)
        join(start(get_and_return, &o, sizeof(o)));
    for (uint64_t i = 1800; i < 2000; i++)
        expect_number(q, i);
    fiber_queue_close(q);
}

/* ---- Deaths ---- */

/* Owns three queues, tells their addresses, and waits for its end. */
static int own(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *full, *empty;
    struct fiber_address a[3];
    struct fiber_bytes b;

    (void)len;
    full = open_queue(1, &a[0]);
    empty = open_queue(0, &a[1]);
    open_queue(0, &a[2]);
    CHECK(put_number(full, 1) == 0);
    CHECK(fiber_queue_put(report, a, sizeof(a), -1) == 0);
    CHECK(fiber_queue_flush(report, -1) == 0);
    if (o->count) { /* ends by itself when it is told to */
        struct fiber_queue *stop;
        struct fiber_address s;

        stop = open_queue(0, &s);
        CHECK(fiber_queue_put(report, &s, sizeof(s), -1) == 0);
        CHECK(fiber_queue_get(stop, &b, LONG_MS) == 0);
        return 0;
    }
    fiber_queue_get(empty, &b, -1);
    return 1;
}

struct places {
    struct fiber_address queue[3], report;
};

static int block_in_get(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *empty = connect_queue(&a->queue[1]), *report = connect_queue(&a->report);
    struct fiber_bytes b;

    (void)len;
    CHECK(put_number(report, 1) == 0);
    CHECK(fiber_queue_get(empty, &b, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_get(empty, &b, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_put(empty, "x", 1, LONG_MS) == -EPIPE);
    return 0;
}

static int block_in_put(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *full = connect_queue(&a->queue[0]), *report = connect_queue(&a->report);

    (void)len;
    CHECK(put_number(report, 1) == 0);
    CHECK(fiber_queue_put(full, "x", 1, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_put(full, "x", 1, LONG_MS) == -EPIPE);
    fiber_queue_close(full);
    return 0;
}

/* Writes as fast as it can, so that it is met in the middle of sending. */
static int flood(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *q = connect_queue(&a->queue[2]), *report = connect_queue(&a->report);
    char *data = calloc(1, 1 << 20);
    int rc;

    (void)len;
    CHECK(data && put_number(report, 1) == 0);
    while ((rc = fiber_queue_put(q, data, 1 << 20, LONG_MS)) == 0)
        continue;
    CHECK(rc == -EPIPE);
    free(data);
    return 0;
}

static void run_death_of_owner(uint64_t by_itself)
{
    struct fiber_queue *report = plain_queue(0), *stop = NULL;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner, *c[3];
    struct places a;
    struct fiber_bytes b;

    o.count = by_itself;
    owner = start(own, &o, sizeof(o));
    must(fiber_queue_get(report, &b, LONG_MS));
    memcpy(a.queue, b.data, sizeof(a.queue));
    fiber_bytes_free(&b);
    a.report = o.report;
    if (by_itself) {
        must(fiber_queue_get(report, &b, LONG_MS));
        must(fiber_queue_connect(&stop, b.data));
        fiber_bytes_free(&b);
    }
    c[0] = start(block_in_get, &a, sizeof(a));
    c[1] = start(block_in_put, &a, sizeof(a));
    c[2] = start(flood, &a, sizeof(a));
    for (int i = 0; i < 3; i++)
        expect_number(report, 1);
    if (by_itself) {
        must(put_number(stop, 1));
        join(owner);
    } else {
        kill_and_join(owner);
    }
    for (int i = 0; i < 3; i++)
        join(c[i]);
    fiber_queue_close(stop);
    fiber_queue_close(report);
}

static void test_killed_owner_ends_gets_and_puts_of_others(void **state)
{
    (void)state;
    run_death_of_owner(0);
}

static void test_owner_that_returns_ends_gets_and_puts_of_others(void **state)
{
    (void)state;
    run_death_of_owner(1);
}

/* Gets some, has the owner know, and holds on to what came ahead. */
static int take_some(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report), *never;
    struct fiber_bytes b;
    size_t n;
    int rc;

    (void)len;
    CHECK(fiber_queue_open(&never, 0) == 0);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(get_number(q, LONG_MS, &rc) == o->id + i);
    CHECK(fiber_queue_size(q, &n) == 0); /* the answer comes after what we say has been read */
    CHECK(put_number(report, o->count) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}

static void test_messages_that_a_killed_receiver_had_not_taken_go_to_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);

    (void)state;
    for (uint64_t i = 0; i < 3000; i++)
        must(put_number(q, i));
    o.count = 500;
    for (o.id = 0; o.id < 1500; o.id += o.count) {
        struct fiber_process *c = start(take_some, &o, sizeof(o));

        expect_number(report, o.count);
        kill_and_join(c);
    }
    for (uint64_t i = 1500; i < 3000; i++)
        expect_number(q, i);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_a_frozen_receiver_does_not_hold_up_the_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *frozen;
    uint8_t seen[8000] = {0};
    uint64_t m, n = 0;
    int rc;

    (void)state;
    for (uint64_t i = 0; i < COUNT(seen); i++)
        must(put_number(q, i));
    o.count = 500;
    frozen = start(take_some, &o, sizeof(o)); /* has some of the next ones with it */
    expect_number(report, o.count);
    assert_int_equal(kill((pid_t)fiber_process_pid(frozen), SIGSTOP), 0);
    for (; n < 100; n++) {
        m = get_number(q, 10000, &rc);
        assert_int_equal(rc, 0);
        seen[m]++;
    }
    kill_and_join(frozen);
    must(fiber_queue_shut(q));
    for (; (m = get_number(q, LONG_MS, &rc)) != UINT64_MAX; n++)
        seen[m]++;
    assert_int_equal(rc, -EPIPE);
    assert_int_equal(n, COUNT(seen) - o.count);
    for (size_t i = 0; i < COUNT(seen); i++)
        assert_int_equal(seen[i], i >= o.count);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* Reports each message once it has it, and sees to it that the report arrives. */
static int report_each(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    int rc;

    (void)len;
    for (;;) {
        uint64_t m = get_number(q, LONG_MS, &rc);

        if (rc == -EPIPE)
            return 0;
        CHECK(rc == 0 && put_number(report, m) == 0 && fiber_queue_flush(report, -1) == 0);
    }
}

/* A message can be lost only with a receiver that had it in its hands, and come twice only if such a one could not say
 * any more that it had taken it. */
static void test_kills_of_receivers_cost_at_most_what_they_had_in_their_hands(void **state)
{
    enum { messages = 3000 / SLOWNESS, receivers = 3, kills = 12 / SLOWNESS };
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[receivers];
    uint8_t seen[messages] = {0};
    uint64_t random = 20240607, next = 100;
    int lost = 0, twice = 0, killed = 0, rc;

    (void)state;
    for (uint64_t i = 0; i < messages; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (int i = 0; i < receivers; i++)
        c[i] = start(report_each, &o, sizeof(o));
    for (uint64_t n = 0; n < messages - 2 * kills; n++) {
        uint64_t m = get_number(report, LONG_MS, &rc);

        assert_true(rc == 0 && m < messages);
        seen[m]++;
        if (n >= next && killed < kills) {
            struct fiber_process **victim = &c[next_random(&random) % receivers];

            next += 50 + next_random(&random) % 200;
            killed++;
            kill_and_join(*victim);
            *victim = start(report_each, &o, sizeof(o));
        }
    }
    assert_int_equal(killed, kills);
    for (int i = 0; i < receivers; i++)
        join(c[i]);
    for (uint64_t m; (m = get_number(report, 0, &rc)) != UINT64_MAX;)
        seen[m]++;
    for (int i = 0; i < messages; i++) {
        lost += seen[i] == 0;
        twice += seen[i] > 1;
    }
    assert_true(lost <= kills);
    assert_true(twice <= kills);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_the_put_of_a_killed_sender_is_whole_or_nothing(void **state)
{
    struct fiber_queue *q = plain_queue(2);
    struct order o = order_for(q, NULL);
    size_t n;
    int rc;

    (void)state;
    o.count = 1000;
    for (o.id = 0; o.id < 4; o.id++) {
        struct fiber_process *p = start(produce, &o, sizeof(o));

        for (uint64_t i = 0; i < 50; i++)
            expect_number(q, o.id << 32 | i);
        kill_and_join(p);
        for (uint64_t i = 50; get_number(q, 50, &rc) != UINT64_MAX; i++)
            assert_true(i < 60);
    }
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 0);
    fiber_queue_close(q);
}

/* ---- Many ---- */

#define MANY 1000

static int use_many(const void *arg, size_t len)
{
    const struct fiber_address *a = arg;
    struct fiber_queue *q[MANY];

    CHECK(len == sizeof(*a) * MANY);
    for (uint64_t i = 0; i < MANY; i++)
        q[i] = connect_queue(&a[i]);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(put_number(q[i], i) == 0);
    for (uint64_t i = 0; i < MANY; i++) {
        int rc;

        CHECK(get_number(q[i], LONG_MS, &rc) % MANY == i);
    }
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(put_number(q[i], MANY + i) == 0);
    for (uint64_t i = 0; i < MANY; i += 2)
        fiber_queue_close(q[i]); /* and the others by the end of the process */
    return 0;
}

static void test_a_thousand_queues(void **state)
{
    struct fiber_address *a = calloc(MANY, sizeof(*a));
    struct fiber_process *p[2];
    struct fiber_queue *q[MANY];
    int fds = count_fds();

    (void)state;
    assert_non_null(a);
    for (int i = 0; i < MANY; i++)
        q[i] = open_queue(0, &a[i]);
    for (int i = 0; i < 2; i++)
        p[i] = start(use_many, a, sizeof(*a) * MANY);
    for (int i = 0; i < 2; i++)
        join(p[i]);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t sum = 0;
        int rc;

        for (int k = 0; k < 2; k++)
            sum += get_number(q[i], LONG_MS, &rc);
        assert_int_equal(sum, 2 * (MANY + i));
        assert_int_equal(get_number(q[i], 0, &rc), UINT64_MAX);
        fiber_queue_close(q[i]);
    }
    assert_true(count_fds() < fds + 32); /* they share what they need */
    free(a);
}

/* ---- Addresses on their way ---- */

static int answer_grandparent(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);

    (void)len;
    CHECK(put_number(q, o->id) == 0);
    return 0;
}

static int have_children(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    struct fiber_process *p[3];
    struct fiber_queue *q = connect_queue(&o.queue);
    int code;

    (void)len;
    for (int i = 0; i < 3; i++) {
        o.id = 10 + (uint64_t)i;
        CHECK(fiber_process_start(&p[i], answer_grandparent, &o, sizeof(o), NULL) == 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK(fiber_process_join(p[i], LONG_MS) == 0 && fiber_process_exitcode(p[i], &code) == 0 && code == 0);
    CHECK(put_number(q, 1) == 0);
    return 0;
}

static void test_grandchildren_use_an_address(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    struct fiber_process *p = start(have_children, &o, sizeof(o));
    uint64_t sum = 0;
    int rc;

    (void)state;
    for (int i = 0; i < 4; i++)
        sum += get_number(q, LONG_MS, &rc);
    assert_int_equal(sum, 34);
    join(p);
    fiber_queue_close(q);
}

/* Gets a place from a queue, and puts its number there. */
static int follow(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *there;
    struct fiber_bytes b;

    (void)len;
    CHECK(fiber_queue_get(q, &b, LONG_MS) == 0 && b.len == sizeof(struct fiber_address));
    there = connect_queue(b.data);
    fiber_bytes_free(&b);
    CHECK(put_number(there, o->id) == 0);
    fiber_queue_close(there);
    fiber_queue_close(q);
    return 0;
}

static void test_an_address_travels_in_a_message(void **state)
{
    struct fiber_queue *q = plain_queue(0), *there;
    struct order o = order_for(q, NULL);
    struct fiber_process *p;
    struct fiber_address a;

    (void)state;
    o.id = 77;
    p = start(follow, &o, sizeof(o));
    there = open_queue(0, &a);
    must(fiber_queue_put(q, &a, sizeof(a), -1));
    expect_number(there, 77);
    join(p);
    fiber_queue_close(q);
    fiber_queue_close(there);
}

static int own_handles(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q[3];
    int rc;

    (void)len;
    for (int i = 0; i < 3; i++)
        q[i] = connect_queue(&o->queue);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(put_number(q[i], i) == 0);
    CHECK(fiber_queue_flush(q[0], LONG_MS) == 0);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(get_number(q[2 - i], LONG_MS, &rc) == i); /* all of them are one consumer */
    fiber_queue_close(q[1]);
    CHECK(put_number(q[0], 9) == 0 && get_number(q[2], LONG_MS, &rc) == 9);
    fiber_queue_close(q[0]);
    fiber_queue_close(q[2]);
    q[0] = connect_queue(&o->queue); /* and once more from the beginning */
    CHECK(put_number(q[0], 10) == 0 && get_number(q[0], LONG_MS, &rc) == 10);
    fiber_queue_close(q[0]);
    return 0;
}

static void test_several_handles_in_one_process(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);

    (void)state;
    join(start(own_handles, &o, sizeof(o)));
    own_handles(&o, sizeof(o));
    fiber_queue_close(q);
}

static void test_a_second_handle_of_the_owner_outlives_the_first(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *second;
    struct fiber_bytes b;
    size_t n;

    (void)state;
    must(fiber_queue_connect(&second, &a));
    must(put_number(second, 4));
    expect_number(q, 4);
    fiber_queue_close(q);
    assert_int_equal(fiber_queue_put(second, "x", 1, 0), -EPIPE);
    assert_int_equal(fiber_queue_get(second, &b, LONG_MS), -EPIPE);
    must(fiber_queue_shut(second));
    must(fiber_queue_size(second, &n));
    fiber_queue_close(second);
    fiber_queue_close(NULL);
}

/* ---- Threads ---- */

struct thread_work {
    struct fiber_queue *q;
    uint64_t id, count, sum;
};

static void *put_in_thread(void *arg)
{
    struct thread_work *w = arg;

    for (uint64_t i = 0; i < w->count; i++)
        CHECK(put_number(w->q, w->id << 32 | i) == 0);
    return NULL;
}

static void *get_in_thread(void *arg)
{
    struct thread_work *w = arg;
    int rc;

    for (uint64_t i = 0; i < w->count; i++)
        w->sum += get_number(w->q, LONG_MS, &rc) & UINT32_MAX;
    return NULL;
}

/* Four threads put and four get, all by one handle. */
static int use_threads(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    struct thread_work w[8];
    pthread_t t[8];
    uint64_t sum = 0;

    (void)len;
    for (int i = 0; i < 8; i++) {
        w[i] = (struct thread_work){q, (uint64_t)i, o->count, 0};
        CHECK(pthread_create(&t[i], NULL, i % 2 ? get_in_thread : put_in_thread, &w[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        sum += w[i].sum;
    }
    CHECK(sum == 4 * (o->count * (o->count - 1) / 2));
    fiber_queue_close(q);
    return 0;
}

static void run_threads(size_t bound, uint64_t count)
{
    struct fiber_queue *q = plain_queue(bound);
    struct order o = order_for(q, NULL);
    size_t n;

    o.count = count;
    join(start(use_threads, &o, sizeof(o)));
    use_threads(&o, sizeof(o));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 0);
    fiber_queue_close(q);
}

static void test_eight_threads_on_one_handle(void **state)
{
    (void)state;
    run_threads(0, 2000 / SLOWNESS);
}

static void test_eight_threads_on_one_handle_of_a_bounded_queue(void **state)
{
    (void)state;
    run_threads(2, 250 / SLOWNESS);
}

/* Opens and closes handles on one queue while another thread does the same. */
static void *come_and_go(void *arg)
{
    const struct order *o = arg;

    for (int i = 0; i < 100; i++) {
        struct fiber_queue *q = connect_queue(&o->queue);
        int rc;

        CHECK(put_number(q, 1) == 0);
        if (i % 3 == 0)
            CHECK(get_number(q, LONG_MS, &rc) == 1);
        fiber_queue_close(q);
    }
    return NULL;
}

static int come_and_go_twice(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    pthread_t t[2];

    (void)len;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, come_and_go, &o) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return 0;
}

static void test_handles_come_and_go_in_two_threads(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    size_t n;

    (void)state;
    join(start(come_and_go_twice, &o, sizeof(o)));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 200 - 2 * 34);
    fiber_queue_close(q);
}

static void test_a_forked_child_is_told(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        struct fiber_queue *other;
        struct fiber_bytes b;
        bool good = fiber_queue_put(q, "x", 1, 0) == -EPERM && fiber_queue_get(q, &b, -1) == -EPERM &&
                    fiber_queue_open(&other, 0) == -EPERM;

        fiber_queue_close(q);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fiber_queue_close(q);
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
        cmocka_unit_test(test_size_and_shut_from_another_process),
        cmocka_unit_test(test_shut_ends_the_gets_of_all_once_it_is_drained),
        cmocka_unit_test(test_close_of_the_owner_ends_the_gets_of_others),
        cmocka_unit_test(test_what_was_put_just_before_the_end_arrives),
        cmocka_unit_test(test_what_was_got_just_before_the_end_does_not_come_back),
        cmocka_unit_test(test_killed_owner_ends_gets_and_puts_of_others),
        cmocka_unit_test(test_owner_that_returns_ends_gets_and_puts_of_others),
        cmocka_unit_test(test_messages_that_a_killed_receiver_had_not_taken_go_to_others),
        cmocka_unit_test(test_a_frozen_receiver_does_not_hold_up_the_others),
        cmocka_unit_test(test_kills_of_receivers_cost_at_most_what_they_had_in_their_hands),
        cmocka_unit_test(test_the_put_of_a_killed_sender_is_whole_or_nothing),
        cmocka_unit_test(test_a_thousand_queues),
        cmocka_unit_test(test_grandchildren_use_an_address),
        cmocka_unit_test(test_an_address_travels_in_a_message),
        cmocka_unit_test(test_several_handles_in_one_process),
        cmocka_unit_test(test_a_second_handle_of_the_owner_outlives_the_first),
        cmocka_unit_test(test_eight_threads_on_one_handle),
        cmocka_unit_test(test_eight_threads_on_one_handle_of_a_bounded_queue),
        cmocka_unit_test(test_handles_come_and_go_in_two_threads),
        cmocka_unit_test(test_a_forked_child_is_told),
    };

    if (fiber_init(&argc, &argv) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
