/* stream_test.c - streams: tasks that are put one after another, results that are taken as they
 * come; kills, resizes, cancels and ends under way.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>

#include "tests/pool/tasks.h"

static struct fiber_stream *open_stream(struct fiber_pool *pool, fiber_task_fn fn, void *user)
{
    struct fiber_stream *s = NULL;

    assert_ok(fiber_stream_open(&s, pool, fn, NULL, user));
    return s;
}

static uint64_t put(struct fiber_stream *s, int64_t n)
{
    const struct fiber_bytes in = {&n, sizeof(n)};
    uint64_t index = UINT64_MAX;

    assert_ok(fiber_stream_put(s, &in, 1, &index));
    return index;
}

/* Waits for one result. */
static struct fiber_done take(struct fiber_pool *pool)
{
    struct fiber_done d = {0};
    int n = fiber_pool_take(pool, &d, 1, WAIT_MS);

    if (n != 1)
        fail_msg("fiber_pool_take: %d (%s)", n, fiber_last_error());
    return d;
}

/* Takes the squares of 0 to n - 1, in any order, each once. */
static void take_squares(struct fiber_pool *pool, uint64_t n)
{
    bool *seen = calloc(n, sizeof(*seen));
    struct fiber_done done[64];

    for (uint64_t i = 0; i < n;) {
        int got = fiber_pool_take(pool, done, 64, WAIT_MS);

        assert_in_range(got, 1, 64);
        for (int k = 0; k < got; k++, i++) {
            int64_t square_of = (int64_t)done[k].index;

            if (done[k].code)
                fail_msg("task %lld: %d %s", (long long)square_of, done[k].code,
                         (char *)done[k].bytes.data);
            assert_true(done[k].index < n && !seen[done[k].index]);
            seen[done[k].index] = true;
            assert_int_equal(number(done[k].bytes.data, done[k].bytes.len), square_of * square_of);
            fiber_bytes_free(&done[k].bytes);
        }
    }
    assert_int_equal(fiber_pool_take(pool, done, 64, 0), -ETIMEDOUT);
    free(seen);
}

static void test_results_say_whose_they_are(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int a, b;
    struct fiber_stream *squares = open_stream(pool, square, &a),
                        *even = open_stream(pool, refuse_odd, &b);
    struct fiber_done d;

    for (int i = 0; i < 10; i++) {
        assert_int_equal(put(squares, i), i);
        assert_int_equal(put(even, i), i);
    }
    for (int i = 0; i < 20; i++) {
        d = take(pool);
        assert_true(d.user == &a || d.user == &b);
        if (d.user == &b && d.index % 2) {
            assert_int_equal(d.code, -EDOM);
            assert_contains((char *)d.bytes.data, "is odd");
        } else {
            assert_int_equal(d.code, 0);
            assert_int_equal(number(d.bytes.data, d.bytes.len), d.index * d.index);
        }
        fiber_bytes_free(&d.bytes);
    }
    assert_int_equal(stats_of(pool).failed, 5);
    assert_ok(fiber_pool_drain(pool, 0));
    fiber_stream_close(squares);
    fiber_stream_close(even);
    fiber_pool_close(pool);
}

static void *put_all(void *arg)
{
    struct fiber_stream *s = arg;

    for (int i = 0; i < (SANITIZED ? 10000 : 100000); i++)
        put(s, i);
    return NULL;
}

static void test_100000_puts(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_stream *s = open_stream(pool, square, NULL);
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, put_all, s), 0);
    take_squares(pool, SANITIZED ? 10000 : 100000);
    pthread_join(thread, NULL);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static void test_put_does_not_wait_and_many_are_one_call(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s = open_stream(pool, wait_at_gate, NULL);
    int64_t in[1000];
    struct fiber_bytes bytes[1000];
    uint64_t first;

    for (int i = 0; i < 1000; i++) {
        in[i] = i;
        bytes[i] = (struct fiber_bytes){&in[i], sizeof(in[i])};
    }
    assert_ok(fiber_stream_put(s, bytes, 400, &first));
    assert_int_equal(first, 0);
    assert_ok(fiber_stream_put(s, bytes + 400, 600, &first));
    assert_int_equal(first, 400);
    assert_ok(fiber_stream_put(s, NULL, 0, &first));
    assert_int_equal(first, 1000);
    memset(in, 0x77, sizeof(in)); /* they were copied */
    assert_int_equal(fiber_pool_take(pool, &(struct fiber_done){0}, 1, 0), -ETIMEDOUT);
    open_gate();
    take_squares(pool, 1000);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static void test_a_task_is_cancelled(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s = open_stream(pool, wait_at_gate, NULL);
    struct fiber_done d;

    for (int i = 0; i < 6; i++)
        put(s, i);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_ok(fiber_stream_cancel(s, 5));
    d = take(pool);
    assert_int_equal(d.index, 5);
    assert_int_equal(d.code, -ECANCELED);
    fiber_bytes_free(&d.bytes);
    assert_int_equal(fiber_stream_cancel(s, 5), -EALREADY);
    assert_int_equal(fiber_stream_cancel(s, 6), -ENOENT);
    open_gate();
    take_squares(pool, 5);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static void test_a_close_drops_what_is_done_and_cancels_the_rest(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_stream *gone = open_stream(pool, square, NULL),
                        *runs = open_stream(pool, until_cancelled, NULL), *stays;

    for (int i = 0; i < 100; i++)
        put(gone, i);
    assert_ok(fiber_pool_drain(pool, WAIT_MS)); /* all are done, none is taken */
    for (int i = 0; i < 100; i++)
        put(runs, i);
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    stays = open_stream(pool, square, NULL);
    for (int i = 0; i < 50; i++)
        put(stays, i);
    fiber_stream_close(gone);
    fiber_stream_close(runs);
    assert_int_equal(wait_for(&board->steps, 2), 0); /* those that ran were told */
    take_squares(pool, 50);
    fiber_stream_close(stays);
    fiber_stream_close(NULL);
    fiber_pool_close(pool);
}

static void kill_one(struct fiber_pool *pool)
{
    struct fiber_worker_stats w[8];
    int n = fiber_pool_worker_stats(pool, w, 8);

    for (int i = 0; i < n; i++)
        if (w[i].state == 2 && fiber_pool_worker_kill(pool, w[i].name) == 0)
            return;
}

/* Puts tasks of a millisecond while workers are killed and the pool changes its size. */
static void *disturb(void *arg)
{
    struct fiber_pool *pool = arg;

    for (int i = 0; i < 10; i++) {
        uint32_t seen = atomic_load(&board->arrived);

        if (wait_for(&board->arrived, seen + 50) < 0)
            return NULL;
        kill_one(pool);
        assert_ok(fiber_pool_resize(pool, 1 + i % 4));
    }
    add(&board->gate);
    return NULL;
}

static int arrive_and_square(const void *in, size_t len, struct fiber_reply *reply)
{
    add(&board->arrived);
    return nap_1ms(in, len, reply);
}

static void test_each_result_comes_once_while_workers_are_killed_and_resized(void **state)
{
    struct fiber_map_options opts = {.size = sizeof(opts), .retries = FIBER_RETRIES_UNLIMITED};
    struct fiber_pool *pool = open_pool(3);
    struct fiber_stream *s;
    pthread_t thread;
    uint64_t n = 0, taken = 0, failed = 0;
    bool *seen = calloc(1000000, 1);

    assert_ok(fiber_stream_open(&s, pool, arrive_and_square, &opts, NULL));
    assert_int_equal(pthread_create(&thread, NULL, disturb, pool), 0);
    while (!atomic_load(&board->gate) || taken < n) {
        struct fiber_done d;

        while (!atomic_load(&board->gate) && n < taken + 200)
            assert_int_equal(put(s, (int64_t)n), n), n++;
        d = take(pool);
        assert_true(d.index < n && !seen[d.index]);
        seen[d.index] = true;
        taken++;
        failed += d.code != 0;
        if (d.code && !is_blamed(d.code, d.bytes.data, d.bytes.len))
            fail_msg("task %llu: %d", (unsigned long long)d.index, d.code);
        if (d.code == 0)
            assert_int_equal(number(d.bytes.data, d.bytes.len), d.index * d.index);
        fiber_bytes_free(&d.bytes);
    }
    pthread_join(thread, NULL);
    assert_int_equal(fiber_pool_take(pool, &(struct fiber_done){0}, 1, 0), -ETIMEDOUT);
    assert_true(failed * 100 <= taken);
    assert_true(stats_of(pool).deaths > 0);
    free(seen);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static void test_a_task_that_kills_its_workers_is_blamed(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_stream *s = open_stream(pool, kill_worker, NULL);
    struct fiber_done d;

    put(s, 7);
    d = take(pool);
    assert_true(is_blamed(d.code, d.bytes.data, d.bytes.len));
    assert_int_equal(atomic_load(&board->runs[7]), 3);
    fiber_bytes_free(&d.bytes);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static int fail_with_bytes(const void *in, size_t len, struct fiber_reply *reply)
{
    (void)fiber_reply_write(reply, "dropped", 7);
    return fiber_reply_fail_bytes(reply, number(in, len) ? -EDOM : 33, "a\0b", 3);
}

static void test_an_error_of_bytes_arrives_whole(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s = open_stream(pool, fail_with_bytes, NULL);
    int64_t in[2] = {0, 1}, out[2];
    struct fiber_result *r;
    const void *data;
    size_t len;

    for (int i = 0; i < 2; i++) {
        struct fiber_done d;

        put(s, i);
        d = take(pool);
        assert_int_equal(d.code, i ? -EDOM : -EIO);
        assert_int_equal(d.bytes.len, 3);
        assert_memory_equal(d.bytes.data, "a\0b", 3);
        fiber_bytes_free(&d.bytes);
    }
    assert_ok(fiber_pool_map_array(pool, fail_with_bytes, in, 8, out, 8, 2, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(fiber_result_get(r, 1, &data, &len), -EDOM);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "a\0b", 3);
    fiber_result_close(r);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void test_the_descriptor_is_readable_while_there_are_results(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s = open_stream(pool, wait_at_gate, NULL);
    int fd = fiber_pool_take_fd(pool);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_true(fd >= 0);
    put(s, 0);
    put(s, 1);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_false(is_readable(fd));
    open_gate();
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    assert_ok(fiber_pool_drain(pool, WAIT_MS));
    fiber_bytes_free(&(struct fiber_bytes){take(pool).bytes.data, 0});
    assert_true(is_readable(fd));
    fiber_bytes_free(&(struct fiber_bytes){take(pool).bytes.data, 0});
    assert_false(is_readable(fd));
    put(s, 2);
    assert_ok(fiber_pool_drain(pool, WAIT_MS));
    assert_true(is_readable(fd));
    fiber_stream_close(s); /* which frees the result */
    assert_false(is_readable(fd));
    fiber_pool_close(pool);
}

struct taker {
    struct fiber_pool *pool;
    int last, cancelled;
};

static void *take_until_the_end(void *arg)
{
    struct taker *t = arg;
    struct fiber_done d;

    while ((t->last = fiber_pool_take(t->pool, &d, 1, -1)) == 1) {
        t->cancelled += d.code == -ECANCELED;
        fiber_bytes_free(&d.bytes);
    }
    return NULL;
}

static void test_the_end_of_the_pool_wakes_takers(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s = open_stream(pool, until_cancelled, NULL);
    struct taker a = {.pool = pool}, b = {.pool = pool};
    const struct fiber_bytes in = {NULL, 0};
    pthread_t threads[2];

    for (int i = 0; i < 20; i++)
        put(s, i);
    assert_int_equal(pthread_create(&threads[0], NULL, take_until_the_end, &a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, take_until_the_end, &b), 0);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    fiber_pool_close(pool);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(a.last, -ESHUTDOWN);
    assert_int_equal(b.last, -ESHUTDOWN);
    assert_int_equal(a.cancelled + b.cancelled, 20);
    assert_int_equal(fiber_stream_put(s, &in, 1, NULL), -ESHUTDOWN);
    fiber_stream_close(s);
}

static int refuse(const void *arg, size_t len)
{
    return -EPERM;
}

static void test_a_pool_that_cannot_start_fails_the_stream(void **state)
{
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){
        .min = 2, .max = 2, .init = refuse, .init_arg = "x", .init_len = 1});
    struct fiber_stream *s = open_stream(pool, square, NULL);
    const struct fiber_bytes in = {NULL, 0};
    struct fiber_done d;

    put(s, 1);
    d = take(pool);
    assert_int_equal(d.code, -ECHILD);
    assert_contains((char *)d.bytes.data, "could not be started");
    fiber_bytes_free(&d.bytes);
    assert_int_equal(fiber_pool_wait_workers(pool, 1, WAIT_MS), -ECHILD);
    assert_contains(fiber_last_error(), "could not be started");
    assert_int_equal(fiber_stream_put(s, &in, 1, NULL), -ECHILD);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

static void test_waiting_for_workers(void **state)
{
    struct fiber_pool *pool = open_pool(3);

    assert_ok(fiber_pool_wait_workers(pool, 3, WAIT_MS));
    assert_int_equal(atomic_load(&board->inits), 3);
    assert_int_equal(fiber_pool_wait_workers(pool, 4, 0), -ETIMEDOUT);
    assert_ok(fiber_pool_resize(pool, 4));
    assert_ok(fiber_pool_wait_workers(pool, 4, WAIT_MS));
    fiber_pool_close(pool);
}

static void test_wrong_calls(void **state)
{
    struct fiber_map_options opts = {.size = sizeof(opts),
                                     .on_progress = (fiber_progress_fn)(uintptr_t)1};
    struct fiber_pool *pool = open_pool(1);
    struct fiber_stream *s;
    const struct fiber_bytes in = {NULL, 8};

    assert_int_equal(fiber_stream_open(&s, NULL, square, NULL, NULL), -EINVAL);
    assert_int_equal(fiber_stream_open(&s, pool, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(fiber_stream_open(&s, pool, square, &opts, NULL), -EINVAL);
    s = open_stream(pool, square, NULL);
    assert_int_equal(fiber_stream_put(s, &in, 1, NULL), -EINVAL);
    assert_int_equal(fiber_pool_take(pool, NULL, 1, 0), -EINVAL);
    fiber_stream_close(s);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_results_say_whose_they_are),
        pool_test(test_100000_puts),
        pool_test(test_put_does_not_wait_and_many_are_one_call),
        pool_test(test_a_task_is_cancelled),
        pool_test(test_a_close_drops_what_is_done_and_cancels_the_rest),
        pool_test(test_each_result_comes_once_while_workers_are_killed_and_resized),
        pool_test(test_a_task_that_kills_its_workers_is_blamed),
        pool_test(test_an_error_of_bytes_arrives_whole),
        pool_test(test_the_descriptor_is_readable_while_there_are_results),
        pool_test(test_the_end_of_the_pool_wakes_takers),
        pool_test(test_a_pool_that_cannot_start_fails_the_stream),
        pool_test(test_waiting_for_workers),
        pool_test(test_wrong_calls),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "stream");
}
