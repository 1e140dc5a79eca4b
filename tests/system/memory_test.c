/* memory_test.c - the memory of a master stays bounded while much more than that passes through it: a queue whose
 * consumer is slow, a map whose tasks all fail, a map over a lazy source.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/sanitized.h"

/* ---- What we use ---- */

/* The most that was resident since reset_peak(). */
static long peak_kib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;

    while (f && fgets(line, sizeof(line), f))
        sscanf(line, "VmHWM: %ld", &kib);
    if (f)
        fclose(f);
    assert_true(kib > 0);
    return kib;
}

static long reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");

    if (f) {
        fputs("5", f);
        fclose(f);
    }
    return peak_kib();
}

static void expect_growth_below(long limit_kib, long before)
{
    long grown = peak_kib() - before;

    printf("           %ld KiB more at the peak\n", grown);
    assert_true(SANITIZED || grown < limit_kib);
}

/* ---- Queues ---- */

#define MESSAGE (64 * 1024)
#define MESSAGES (SANITIZED ? 200 : 4000) /* 250 MiB */
#define WAITING 16                        /* of them in the queue */

struct order {
    struct fiber_address queue;
    char gate[96];
};

static int put_many(const void *arg, size_t len)
{
    static uint8_t bytes[MESSAGE];
    const struct order *o = arg;
    struct fiber_queue *q;
    int i = 0, rc;

    if (len != sizeof(*o) || fiber_queue_connect(&q, &o->queue) < 0)
        return 1;
    while (i < MESSAGES && (rc = fiber_queue_put(q, bytes, sizeof(bytes), 0)) == 0)
        i++;
    if (i == MESSAGES || rc != -ETIMEDOUT || gate_notify(o->gate, "f", 1) < 0)
        return 2; /* it was to be full */
    for (; i < MESSAGES; i++)
        if (fiber_queue_put(q, bytes, sizeof(bytes), -1) < 0)
            return 3;
    fiber_queue_close(q);
    return 0;
}

static int take_many(struct fiber_queue *q)
{
    for (int i = 0; i < MESSAGES; i++) {
        struct fiber_bytes b;

        if (fiber_queue_get(q, &b, TEST_LONG_MS) < 0 || b.len != MESSAGE)
            return 1;
        fiber_bytes_free(&b);
    }
    return 0;
}

static int take_there(const void *address, size_t len)
{
    struct fiber_queue *q;
    int rc;

    if (len != sizeof(struct fiber_address) || fiber_queue_connect(&q, address) < 0)
        return 2;
    rc = take_many(q);
    fiber_queue_close(q);
    return rc;
}

/* The consumer does not begin before the queue is full, so that it is behind all the time. */
static void expect_a_bounded_queue(int consumer_is_elsewhere)
{
    struct fiber_process *putter, *taker;
    struct fiber_queue *q;
    struct gate full;
    struct order o;
    long before;
    char byte;

    gate_open(&full);
    assert_int_equal(fiber_queue_open(&q, WAITING), 0);
    assert_int_equal(fiber_queue_address(q, &o.queue), 0);
    snprintf(o.gate, sizeof(o.gate), "%s", full.path);
    before = reset_peak();
    putter = begin(put_many, &o, sizeof(o), NULL);
    assert_int_equal(gate_wait(&full, &byte, 1), 0);
    if (consumer_is_elsewhere) {
        taker = begin(take_there, &o.queue, sizeof(o.queue), NULL);
        assert_int_equal(finish(taker), 0);
    } else {
        assert_int_equal(take_many(q), 0);
    }
    assert_int_equal(finish(putter), 0);
    expect_growth_below(24 * 1024, before);
    fiber_queue_close(q);
    gate_close(&full);
}

static void test_a_queue_whose_consumer_is_slow(void **state)
{
    expect_a_bounded_queue(0);
}

static void test_a_queue_whose_consumer_is_slow_and_elsewhere(void **state)
{
    expect_a_bounded_queue(1);
}

/* ---- Pools ---- */

static struct fiber_pool *open_pool(void)
{
    const struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    struct fiber_pool *pool;

    assert_int_equal(fiber_pool_open(&pool, &o), 0);
    return pool;
}

static int fail_task(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = 0;

    memcpy(&n, in, len < sizeof(n) ? len : sizeof(n));
    return fiber_reply_fail(reply, -EDOM, "task %lld cannot be done, and says so at some length",
                            (long long)n);
}

#define ERRORS (SANITIZED ? 10000 : 100000)

/* Each text is kept until the result is closed: a task may cost 200 bytes, 64 of which are text. */
static void test_a_map_with_an_error_in_each_task(void **state)
{
    struct fiber_pool *pool = open_pool();
    int64_t *in = calloc(ERRORS, sizeof(*in)), *out = calloc(ERRORS, sizeof(*out));
    struct fiber_result *r;
    long before;
    const void *text;
    size_t len;

    assert_true(in && out);
    for (int i = 0; i < ERRORS; i++)
        in[i] = i;
    before = reset_peak();
    assert_int_equal(
        fiber_pool_map_array(pool, fail_task, in, sizeof(*in), out, sizeof(*out), ERRORS, NULL, &r),
        0);
    assert_int_equal(fiber_result_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_result_get(r, ERRORS - 1, &text, &len), -EDOM);
    assert_true(has(fiber_last_error(), "cannot be done", NULL));
    expect_growth_below(ERRORS / 1024 * 200 + 16 * 1024, before);
    fiber_result_close(r);
    fiber_pool_close(pool);
    free(in);
    free(out);
}

#define INPUTS (SANITIZED ? 20000 : 1000000)

static int next_input(void *user, struct fiber_bytes *in)
{
    int64_t *n = user; /* the input, and how many there were */

    n[0] = n[1]++;
    *in = (struct fiber_bytes){n, sizeof(*n)};
    return n[0] < INPUTS;
}

static int echo(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len);
}

static void test_a_lazy_map_over_a_million_inputs(void **state)
{
    struct fiber_pool *pool = open_pool();
    struct fiber_bytes out;
    struct fiber_imap *it;
    int64_t n[2] = {0, 0};
    long before = reset_peak(), seen = 0;

    assert_int_equal(fiber_pool_imap(pool, echo, next_input, n, 1000, 0, NULL, &it), 0);
    for (; fiber_imap_next(it, NULL, &out, TEST_LONG_MS) == 1; seen++)
        fiber_bytes_free(&out);
    assert_int_equal(seen, INPUTS);
    expect_growth_below(16 * 1024, before);
    fiber_imap_close(it);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_queue_whose_consumer_is_slow),
        cmocka_unit_test(test_a_queue_whose_consumer_is_slow_and_elsewhere),
        cmocka_unit_test(test_a_map_with_an_error_in_each_task),
        cmocka_unit_test(test_a_lazy_map_over_a_million_inputs),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
