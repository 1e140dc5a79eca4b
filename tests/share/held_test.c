/* held_test.c - what other processes make a process keep stays within hold_max.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "channel_util.h"

#include "runtime/proc/context.h"

#define BOUND "8Mi"
#define BLOCK (64u << 10)
#define MANY 1000 /* blocks: 62 MiB */

static uint8_t block[BLOCK];

/* Puts until it is refused; answers how many were taken for put, or more than MANY. */
static int put_without_end(const void *arg, size_t len)
{
    struct fiber_queue *q = connect_queue(arg);
    int rc = 0;

    for (int i = 0; rc == 0 && i < MANY; i++)
        rc = fiber_queue_put(q, block, sizeof(block), LONG_MS);
    if (rc == 0)
        rc = fiber_queue_flush(q, LONG_MS);
    CHECK(rc == -ENOBUFS);
    CHECK(strstr(fiber_last_error(), "hold_max"));
    return 0;
}

static int put_one(const void *arg, size_t len)
{
    struct fiber_queue *q = connect_queue(arg);

    CHECK(fiber_queue_put(q, block, sizeof(block), LONG_MS) == 0);
    CHECK(fiber_queue_flush(q, LONG_MS) == 0);
    return 0;
}

static void test_a_queue_that_nobody_reads_is_bounded(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *other;
    struct fiber_address b;
    struct fiber_bytes m;
    size_t n;

    join(start(put_without_end, &a, sizeof(a)));
    assert_int_equal(fiber_queue_size(q, &n), 0);
    assert_in_range(n, 100, 128);
    assert_in_range(fbr_rt()->held.bytes, 100 * BLOCK, 8 << 20);
    other = open_queue(0, &b); /* one bound for all of them */
    join(start(put_without_end, &b, sizeof(b)));
    fiber_queue_close(other);
    while (fiber_queue_get(q, &m, 0) == 0)
        fiber_bytes_free(&m);
    assert_int_equal(fbr_rt()->held.bytes, 0);
    join(start(put_one, &a, sizeof(a)));
    fiber_queue_close(q);
    assert_int_equal(fbr_rt()->held.bytes, 0);
}

/* The same, and once more when the queue is empty again, by the same handle. */
static int put_again(const void *arg, size_t len)
{
    const struct fiber_address *a = arg;
    struct fiber_queue *q = connect_queue(&a[0]), *report = connect_queue(&a[1]),
                       *go = connect_queue(&a[2]);
    int rc;

    CHECK(put_without_end(&a[0], sizeof(a[0])) == 0);
    while (fiber_queue_flush(q, LONG_MS) == -ENOBUFS)
        ; /* others of them were refused, too, and each may be reported */
    CHECK(put_number(report, 1) == 0 && get_number(go, LONG_MS, &rc) == 1);
    CHECK(fiber_queue_put(q, block, sizeof(block), LONG_MS) == 0);
    CHECK(fiber_queue_flush(q, LONG_MS) == 0);
    return 0;
}

static void test_who_was_refused_may_put_again(void **state)
{
    struct fiber_address a[3];
    struct fiber_queue *q = open_queue(0, &a[0]), *report = open_queue(0, &a[1]),
                       *go = open_queue(0, &a[2]);
    struct fiber_process *p = start(put_again, a, sizeof(a));
    struct fiber_bytes m;

    expect_number(report, 1);
    while (fiber_queue_get(q, &m, 0) == 0)
        fiber_bytes_free(&m);
    must(put_number(go, 1));
    join(p);
    must(fiber_queue_get(q, &m, 0));
    assert_int_equal(m.len, BLOCK);
    fiber_bytes_free(&m);
    fiber_queue_close(q);
    fiber_queue_close(report);
    fiber_queue_close(go);
}

static int send_without_end(const void *arg, size_t len)
{
    struct fiber_pipe *end;
    int rc = 0;

    CHECK(fiber_pipe_connect(&end, arg) == 0);
    for (int i = 0; rc == 0 && i < MANY; i++)
        rc = fiber_pipe_send(end, block, sizeof(block), LONG_MS);
    CHECK(rc == -ENOBUFS && strstr(fiber_last_error(), "hold_max"));
    fiber_pipe_close(end);
    return 0;
}

static void test_a_pipe_that_nobody_reads_is_bounded(void **state)
{
    struct fiber_pipe *ends[2];
    struct fiber_address a;

    must(fiber_pipe_open(ends, 0));
    must(fiber_pipe_address(ends[1], &a));
    fiber_pipe_close(ends[1]);
    join(start(send_without_end, &a, sizeof(a)));
    assert_in_range(fbr_rt()->held.bytes, 100 * BLOCK, 8 << 20);
    fiber_pipe_close(ends[0]);
}

static void test_a_store_is_bounded(void **state)
{
    struct fiber_store *s;
    char name[16];
    int rc = 0, n = 0;

    must(fiber_store_start(&s, NULL));
    for (; rc == 0 && n < MANY; n++) {
        snprintf(name, sizeof(name), "k%d", n);
        rc = fiber_store_set(s, name, block, sizeof(block));
    }
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(fiber_last_error(), "hold_max"));
    assert_in_range(n, 100, 130);
    must(fiber_store_delete(s, "k0"));
    must(fiber_store_set(s, "k0", block, sizeof(block)));
    fiber_store_close(s);
}

/* A result of a task comes in parts, which are kept until it is whole. */
static int long_result(const void *in, size_t len, struct fiber_reply *reply)
{
    size_t n;

    memcpy(&n, in, sizeof(n));
    return fiber_reply_alloc(reply, n) ? 0 : -ENOMEM;
}

static void test_a_result_above_the_bound_is_an_error_that_says_so(void **state)
{
    struct fiber_pool_options options = {.size = sizeof(options), .min = 1, .max = 1};
    struct fiber_pool *pool;
    struct fiber_bytes b;
    size_t n = 32 << 20;

    must(fiber_pool_open(&pool, &options));
    assert_true(fiber_pool_apply(pool, long_result, &n, sizeof(n), &b) < 0);
    fprintf(stderr, "%s\n", fiber_last_error());
    assert_non_null(strstr(fiber_last_error(), "hold_max"));
    n = 4 << 20;
    must(fiber_pool_apply(pool, long_result, &n, sizeof(n), &b));
    assert_int_equal(b.len, n);
    fiber_bytes_free(&b);
    fiber_pool_close(pool);
    assert_int_equal(fbr_rt()->held.bytes, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_queue_that_nobody_reads_is_bounded),
        cmocka_unit_test(test_who_was_refused_may_put_again),
        cmocka_unit_test(test_a_pipe_that_nobody_reads_is_bounded),
        cmocka_unit_test(test_a_store_is_bounded),
        cmocka_unit_test(test_a_result_above_the_bound_is_an_error_that_says_so),
    };

    setenv("FIBER_HOLD_MAX", BOUND, 1);
    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
