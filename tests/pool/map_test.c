/* map_test.c - maps and applies of a pool: what goes in comes out, in order, of any size; errors;
 * callbacks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "tests/pool/tasks.h"
#include "tests/support/sanitized.h"

#define MIB (1024 * 1024)

static void map_squares(struct fiber_pool *pool, size_t n, const struct fiber_map_options *opts)
{
    int64_t *in = calloc(n, sizeof(*in)), *out = calloc(n, sizeof(*out));

    for (size_t i = 0; i < n; i++)
        in[i] = (int64_t)i;
    assert_ok(fiber_pool_map(pool, square, in, sizeof(*in), out, sizeof(*out), n, opts));
    for (size_t i = 0; i < n; i++)
        if (out[i] != (int64_t)(i * i))
            fail_msg("result %zu is %lld", i, (long long)out[i]);
    free(in);
    free(out);
}

static void test_a_map_returns_results_in_order(void **state)
{
    struct fiber_pool *pool = open_pool(3);

    map_squares(pool, 20000, NULL);
    map_squares(pool, 1, NULL);
    map_squares(pool, 7, NULL);
    fiber_pool_close(pool);
}

static void test_a_map_of_nothing_is_done_at_once(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_result *r;

    assert_ok(fiber_pool_map(pool, square, NULL, 8, NULL, 8, 0, NULL));
    assert_ok(fiber_pool_map_async(pool, echo, NULL, 0, NULL, &r));
    assert_ok(fiber_result_wait(r, 0));
    assert_int_equal(fiber_result_count(r), 0);
    assert_int_equal(fiber_result_error(r, NULL), 0);
    fiber_result_close(r);
    assert_ok(fiber_pool_drain(pool, 0));
    fiber_pool_close(pool);
}

static void test_inputs_and_results_may_be_empty(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_bytes in[100] = {{NULL, 0}};
    struct fiber_result *r;
    const void *data;
    size_t len = 1;

    assert_ok(fiber_pool_map(pool, echo, NULL, 0, NULL, 0, 100, NULL));
    assert_ok(fiber_pool_map_async(pool, echo, in, 100, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 100; i++) {
        assert_ok(fiber_result_get(r, i, &data, &len));
        assert_int_equal(len, 0);
    }
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static void test_results_have_any_length(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    struct fiber_bytes in[3000];
    char *text = malloc(3000);
    struct fiber_result *r;

    for (size_t i = 0; i < 3000; i++) {
        text[i] = (char)('a' + i % 26);
        in[i] = (struct fiber_bytes){text, i};
    }
    assert_ok(fiber_pool_map_async(pool, echo, in, 3000, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 3000; i++) {
        const void *data;
        size_t len;

        assert_ok(fiber_result_get(r, i, &data, &len));
        assert_int_equal(len, i);
        assert_memory_equal(data, text, len);
    }
    fiber_result_close(r);
    free(text);
    fiber_pool_close(pool);
}

static uint8_t *pattern(size_t len, unsigned seed)
{
    uint8_t *p = malloc(len);
    uint32_t x = seed * 2654435761u + 1;

    for (size_t i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)(x >> 24);
    }
    return p;
}

static void test_a_mebibyte_in_and_out(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    struct fiber_bytes in[40];
    struct fiber_result *r;

    for (unsigned i = 0; i < 40; i++)
        in[i] = (struct fiber_bytes){pattern(MIB + i, i), MIB + i};
    assert_ok(fiber_pool_map_async(pool, echo, in, 40, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (unsigned i = 0; i < 40; i++) {
        const void *data;
        size_t len;

        assert_ok(fiber_result_get(r, i, &data, &len));
        assert_int_equal(len, in[i].len);
        assert_int_equal(memcmp(data, in[i].data, len), 0);
        free(in[i].data);
    }
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* Inputs around the sizes at which their way changes: copied, sent from where they lie, in
 * pieces. */
static void test_inputs_around_each_limit(void **state)
{
    static const size_t limits[] = {8, 4096, 16384, 65536, 262144, MIB, 4 * MIB};
    struct fiber_pool *pool = open_pool(2);

    for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
        struct fiber_bytes in[17];
        struct fiber_result *r;

        for (size_t i = 0; i < 17; i++) {
            size_t len = limits[k] - 8 + i;

            in[i] = (struct fiber_bytes){pattern(len, (unsigned)i), len};
        }
        assert_ok(fiber_pool_map_async(pool, echo, in, 17, NULL, &r));
        assert_ok(fiber_result_wait(r, WAIT_MS));
        for (size_t i = 0; i < 17; i++) {
            const void *data;
            size_t len;

            assert_ok(fiber_result_get(r, i, &data, &len));
            assert_int_equal(len, in[i].len);
            assert_int_equal(memcmp(data, in[i].data, len), 0);
            free(in[i].data);
        }
        fiber_result_close(r);
    }
    fiber_pool_close(pool);
}

static int fill(const void *in, size_t len, struct fiber_reply *reply)
{
    size_t n = (size_t)number(in, len);
    uint8_t *at = fiber_reply_alloc(reply, n);

    if (!at)
        return -ENOMEM;
    memset(at, 0x5a, n);
    at[n - 1] = 1;
    return 0;
}

static void test_a_result_of_more_than_64_mebibytes(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    int64_t n = 65 * MIB + 13;
    struct fiber_bytes out;
    const uint8_t *bytes;

    assert_ok(fiber_pool_apply(pool, fill, &n, sizeof(n), &out));
    assert_int_equal(out.len, n);
    bytes = out.data;
    assert_int_equal(bytes[0], 0x5a);
    assert_int_equal(bytes[n / 2], 0x5a);
    assert_int_equal(bytes[n - 1], 1);
    fiber_bytes_free(&out);
    fiber_pool_close(pool);
}

static void test_an_input_of_more_than_64_mebibytes(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    size_t len = 65 * MIB + 13;
    uint8_t *in = pattern(len, 7);
    struct fiber_bytes out;

    assert_ok(fiber_pool_apply(pool, echo, in, len, &out));
    assert_int_equal(out.len, len);
    assert_int_equal(memcmp(out.data, in, len), 0);
    fiber_bytes_free(&out);
    free(in);
    fiber_pool_close(pool);
}

/* ---- Errors ---- */

static void test_a_user_error_is_a_result_with_its_text(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int64_t in[100], out[100];
    struct fiber_result *r;
    size_t first = 99;

    for (int i = 0; i < 100; i++) {
        in[i] = i;
        out[i] = -1;
    }
    assert_int_equal(fiber_pool_map(pool, refuse_odd, in, 8, out, 8, 100, NULL), -EDOM);
    assert_string_equal(fiber_last_error(), "1 is odd");
    for (int i = 0; i < 100; i++)
        assert_int_equal(out[i], i % 2 ? -1 : i * i);
    assert_ok(fiber_pool_map_array(pool, refuse_odd, in, 8, out, 8, 100, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(fiber_result_error(r, &first), -EDOM);
    assert_int_equal(first, 1);
    for (size_t i = 0; i < 100; i++) {
        char text[32];

        snprintf(text, sizeof(text), "%zu is odd", i);
        if (i % 2)
            assert_int_equal(error_of(r, i, text), -EDOM);
        else
            assert_int_equal(number_of(r, i), i * i);
    }
    fiber_result_close(r);
    assert_int_equal(stats_of(pool).deaths, 0);
    assert_int_equal(stats_of(pool).failed, 100);
    fiber_pool_close(pool);
}

enum { ALL_ODD = SOME_OF(300000) };

/* Looking for each of them among all would take minutes. */
static void test_the_errors_of_a_large_map_are_read_at_once(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int64_t *in = malloc(ALL_ODD * sizeof(*in)), *out = calloc(ALL_ODD, sizeof(*out));
    struct fiber_result *r;

    assert_true(in && out);
    for (int i = 0; i < ALL_ODD; i++)
        in[i] = 2 * i + 1;
    assert_ok(fiber_pool_map_array(pool, refuse_odd, in, 8, out, 8, ALL_ODD, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < ALL_ODD; i++) {
        char text[32];

        snprintf(text, sizeof(text), "%zu is odd", 2 * i + 1);
        assert_int_equal(error_of(r, i, text), -EDOM);
    }
    fiber_result_close(r);
    fiber_pool_close(pool);
    free(in);
    free(out);
}

static int return_7(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len) < 0 ? -1 : 7;
}

static void test_a_bare_code_gets_a_text(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_bytes out = {NULL, 1};

    assert_int_equal(fiber_pool_apply(pool, return_7, "x", 1, &out), -EIO);
    assert_contains(fiber_last_error(), "7");
    assert_null(out.data);
    fiber_pool_close(pool);
}

static void test_a_result_of_the_wrong_size_is_that_tasks_error(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    int64_t in[3] = {1, 2, 3};
    int32_t out[3];

    assert_int_equal(fiber_pool_map(pool, square, in, 8, out, 4, 3, NULL), -EMSGSIZE);
    assert_contains(fiber_last_error(), "8 bytes, but an item of the array has 4");
    fiber_pool_close(pool);
}

static void test_wrong_arguments_are_refused(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options short_size = {.size = sizeof(struct fiber_map_options)},
                             below = {.size = sizeof(struct fiber_map_options)};
    struct fiber_bytes none = {NULL, 4};
    struct fiber_result *r = NULL;
    int64_t in = 1, out;

    short_size.size = 4;
    below.retries = -3;
    assert_int_equal(fiber_pool_map(pool, NULL, &in, 8, &out, 8, 1, NULL), -EINVAL);
    assert_int_equal(fiber_pool_map(pool, square, NULL, 8, &out, 8, 1, NULL), -EINVAL);
    assert_int_equal(fiber_pool_map(pool, square, &in, 8, &out, 8, 1, &short_size), -EINVAL);
    assert_int_equal(fiber_pool_map(pool, square, &in, 8, &out, 8, 1, &below), -EINVAL);
    below.retries = 0;
    below.timeout_ms = -1;
    assert_int_equal(fiber_pool_map(pool, square, &in, 8, &out, 8, 1, &below), -EINVAL);
    assert_int_equal(fiber_pool_map_async(pool, echo, &none, 1, NULL, &r), -EINVAL);
    assert_int_equal(fiber_pool_apply_async(pool, echo, NULL, 1, NULL, &r), -EINVAL);
    assert_null(r);
    fiber_pool_close(pool);
}

/* ---- apply ---- */

static void test_apply_returns_one_result(void **state)
{
    struct fiber_pool *pool = open_pool(2);

    for (int64_t i = 0; i < 300; i++) {
        struct fiber_bytes out;

        assert_ok(fiber_pool_apply(pool, square, &i, sizeof(i), &out));
        assert_int_equal(number(out.data, out.len), i * i);
        fiber_bytes_free(&out);
    }
    assert_ok(fiber_pool_apply(pool, echo, "unread", 6, NULL));
    fiber_pool_close(pool);
}

static void test_apply_async_copies_its_input(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_result *r[50];
    int64_t n;

    for (n = 0; n < 50; n++)
        assert_ok(fiber_pool_apply_async(pool, square, &n, sizeof(n), NULL, &r[n]));
    n = -1;
    for (int i = 0; i < 50; i++) {
        assert_ok(fiber_result_wait(r[i], WAIT_MS));
        assert_int_equal(number_of(r[i], 0), i * i);
        fiber_result_close(r[i]);
    }
    fiber_pool_close(pool);
}

/* ---- Options ---- */

static void test_a_chunk_hint_makes_large_first_messages(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[1000] = {0}, out[1000];
    struct fiber_pool_stats s;
    struct fiber_result *r;
    uint32_t arrived;
    uint64_t before;

    meet(pool, 2);
    o.chunk = 100;
    arrived = atomic_load(&board->arrived);
    before = stats_of(pool).messages;
    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 1000, &o, &r));
    assert_int_equal(wait_for(&board->arrived, arrived + 2), 0);
    s = stats_of(pool);
    assert_true(s.messages >=
                before + 2); /* a worker has another one ahead when its tasks seem short */
    assert_int_equal(s.running, 100 * (s.messages - before));
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    fiber_result_close(r);
    o.chunk = SIZE_MAX;
    map_squares(pool, 1000, &o);
    fiber_pool_close(pool);
}

static void test_higher_priorities_go_first(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *gate, *r[30];

    gate = apply_later(pool, wait_at_gate, 0, NULL);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    for (int i = 0; i < 30; i++) {
        o.priority = i % 3 - 1;
        r[i] = apply_later(pool, log_step, i, &o);
    }
    open_gate();
    assert_ok(fiber_pool_drain(pool, WAIT_MS));
    for (uint32_t at = 0; at < 30; at++) {
        uint32_t task =
            (at % 10) * 3 + (2 - at / 10); /* 2, 5, 8 ... then 1, 4, 7 ... then 0, 3, 6 ... */

        assert_int_equal(atomic_load(&board->step[at]), task);
    }
    for (int i = 0; i < 30; i++)
        fiber_result_close(r[i]);
    fiber_result_close(gate);
    fiber_pool_close(pool);
}

static void test_one_task_can_be_waited_for(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_result *gate = apply_later(pool, wait_at_gate, 3, NULL), *r;
    struct fiber_bytes in[2] = {{"a", 1}, {"b", 1}};

    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_ok(fiber_pool_map_async(pool, echo, in, 2, NULL, &r));
    assert_ok(fiber_result_wait_task(r, 1, WAIT_MS));
    assert_int_equal(fiber_result_wait_task(r, 2, 0), -ENOENT);
    assert_int_equal(fiber_result_wait_task(gate, 0, 10), -ETIMEDOUT);
    assert_int_equal(fiber_result_wait(gate, 0), -ETIMEDOUT);
    open_gate();
    assert_ok(fiber_result_wait_task(gate, 0, WAIT_MS));
    assert_int_equal(number_of(gate, 0), 9);
    fiber_result_close(gate);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* ---- Many ---- */

#define QUEUED 20000

static void test_20000_queued_maps(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_result **r = calloc(QUEUED, sizeof(struct fiber_result *)), *gate[2];
    int64_t *in = calloc(2 * QUEUED, sizeof(*in)), *out = calloc(2 * QUEUED, sizeof(*out));

    for (int i = 0; i < 2; i++)
        gate[i] = apply_later(pool, wait_at_gate, i, NULL);
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    for (size_t i = 0; i < QUEUED; i++) {
        in[2 * i] = (int64_t)i;
        in[2 * i + 1] = -(int64_t)i;
        assert_ok(
            fiber_pool_map_array(pool, square, in + 2 * i, 8, out + 2 * i, 8, 2, NULL, &r[i]));
    }
    assert_int_equal(stats_of(pool).waiting, 2 * QUEUED);
    open_gate();
    for (size_t i = 0; i < QUEUED; i++) {
        assert_ok(fiber_result_wait(r[i], WAIT_MS));
        assert_int_equal(out[2 * i], i * i);
        assert_int_equal(out[2 * i + 1], i * i);
        fiber_result_close(r[i]);
    }
    for (int i = 0; i < 2; i++)
        fiber_result_close(gate[i]);
    free(r);
    free(in);
    free(out);
    fiber_pool_close(pool);
}

struct thread_work {
    pthread_t thread;
    struct fiber_pool *pool;
    int64_t id;
    int wrong;
};

static void *use_pool(void *arg)
{
    struct thread_work *t = arg;

    for (int64_t round = 0; round < 60; round++) {
        int64_t in[50], out[50], x = t->id * 1000 + round;
        struct fiber_bytes one;

        for (int i = 0; i < 50; i++)
            in[i] = x + i;
        t->wrong += fiber_pool_map(t->pool, square, in, 8, out, 8, 50, NULL) != 0;
        for (int i = 0; i < 50; i++)
            t->wrong += out[i] != in[i] * in[i];
        t->wrong += fiber_pool_apply(t->pool, refuse_odd, &x, 8, &one) != (x % 2 ? -EDOM : 0);
        if (x % 2 == 0)
            t->wrong += number(one.data, one.len) != x * x;
        else
            t->wrong += !strstr(fiber_last_error(), "is odd"); /* of this thread */
        fiber_bytes_free(&one);
    }
    return NULL;
}

static void test_eight_threads_share_a_pool(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    struct thread_work work[8];

    for (int i = 0; i < 8; i++) {
        work[i] = (struct thread_work){.pool = pool, .id = i};
        assert_int_equal(pthread_create(&work[i].thread, NULL, use_pool, &work[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(work[i].thread, NULL);
        assert_int_equal(work[i].wrong, 0);
    }
    assert_int_equal(stats_of(pool).done, 8 * 60 * 51);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_a_map_returns_results_in_order),
        pool_test(test_a_map_of_nothing_is_done_at_once),
        pool_test(test_inputs_and_results_may_be_empty),
        pool_test(test_results_have_any_length),
        pool_test(test_a_mebibyte_in_and_out),
        pool_test(test_inputs_around_each_limit),
        pool_test(test_a_result_of_more_than_64_mebibytes),
        pool_test(test_an_input_of_more_than_64_mebibytes),
        pool_test(test_a_user_error_is_a_result_with_its_text),
        pool_test(test_the_errors_of_a_large_map_are_read_at_once),
        pool_test(test_a_bare_code_gets_a_text),
        pool_test(test_a_result_of_the_wrong_size_is_that_tasks_error),
        pool_test(test_wrong_arguments_are_refused),
        pool_test(test_apply_returns_one_result),
        pool_test(test_apply_async_copies_its_input),
        pool_test(test_a_chunk_hint_makes_large_first_messages),
        pool_test(test_higher_priorities_go_first),
        pool_test(test_one_task_can_be_waited_for),
        pool_test(test_20000_queued_maps),
        pool_test(test_eight_threads_share_a_pool),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "maps");
}
