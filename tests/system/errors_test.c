/* errors_test.c - a call that fails returns less than 0, and fiber_last_error() is about that call.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/children.h"

#define MARK "no_such_key_is_the_mark"

/* Makes an error of another call the last one. */
static void mark(void)
{
    assert_int_equal(fiber_config_set(MARK, ""), -EINVAL);
    assert_non_null(strstr(fiber_last_error(), MARK));
}

static void check(int64_t rc, int64_t code, const char *text, const char *call)
{
    if (rc == code && fiber_last_error()[0] && !strstr(fiber_last_error(), MARK) &&
        strstr(fiber_last_error(), text))
        return;
    fail_msg("%s: %lld, not %lld: \"%s\" (should say \"%s\")", call, (long long)rc, (long long)code,
             fiber_last_error(), text);
}

/* The call fails with this code, and its own sentence has this text. */
#define FAILS(call, code, text)         \
    do {                                \
        mark();                         \
        check(call, code, text, #call); \
    } while (0)

/* ---- Codes of the program's functions ---- */

static int return_5(const void *in, size_t len, struct fiber_reply *reply)
{
    return 5;
}

static int fail_with_5(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_fail(reply, 5, "the row is bad");
}

static int fail_and_return_0(const void *in, size_t len, struct fiber_reply *reply)
{
    fail_with_5(in, len, reply);
    return 0;
}

static int keep_code(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_fail(reply, -EDOM, "out of range");
}

static void note_code(void *user, size_t index, int code, const void *data, size_t len)
{
    *(int *)user = code;
}

static int one_input(void *user, struct fiber_bytes *in)
{
    int *left = user;

    *in = (struct fiber_bytes){(void *)"x", 1};
    return (*left)-- > 0;
}

static void check_imap(struct fiber_pool *pool)
{
    struct fiber_bytes out;
    struct fiber_imap *it;
    int left = 1;

    assert_int_equal(fiber_pool_imap(pool, return_5, one_input, &left, 0, 0, NULL, &it), 0);
    FAILS(fiber_imap_next(it, NULL, &out, -1), -EIO, "the function returned 5");
    fiber_imap_close(it);
}

static void test_a_positive_code_of_a_task_is_eio_everywhere(void **state)
{
    struct fiber_pool_options po = {.size = sizeof(po), .min = 1, .max = 1};
    int told = 0;
    struct fiber_map_options mo = {.size = sizeof(mo), .on_done = note_code, .user = &told};
    struct fiber_pool *pool;
    struct fiber_result *r;
    int in[2] = {1, 2}, out[2] = {0, 0};
    const void *data;
    size_t len, index;

    assert_int_equal(fiber_pool_open(&pool, &po), 0);
    FAILS(fiber_pool_map(pool, return_5, in, 4, out, 4, 2, NULL), -EIO, "the function returned 5");
    FAILS(fiber_pool_apply(pool, return_5, in, 4, NULL), -EIO, "the function returned 5");
    FAILS(fiber_pool_apply(pool, fail_with_5, in, 4, NULL), -EIO, "the row is bad (code 5)");
    FAILS(fiber_pool_apply(pool, fail_and_return_0, in, 4, NULL), -EIO, "the row is bad (code 5)");
    FAILS(fiber_pool_apply(pool, keep_code, in, 4, NULL), -EDOM, "out of range");
    assert_int_equal(fiber_pool_apply_async(pool, fail_with_5, in, 4, &mo, &r), 0);
    assert_int_equal(fiber_result_wait(r, -1), 0);
    FAILS(fiber_result_get(r, 0, &data, &len), -EIO, "the row is bad (code 5)");
    assert_memory_equal(data, "the row is bad (code 5)", len);
    FAILS(fiber_result_error(r, &index), -EIO, "task 0 failed");
    fiber_result_close(r);
    assert_int_equal(told, -EIO);
    check_imap(pool);
    fiber_pool_close(pool);
}

static int method(void *state, const char *name, const void *in, size_t len,
                  struct fiber_reply *reply)
{
    if (strcmp(name, "fail") == 0)
        return fiber_reply_fail(reply, 7, "no such row");
    return strcmp(name, "hang") == 0 ? child_wait(NULL, 0) : 7;
}

static void test_a_positive_code_of_a_method_is_eio_everywhere(void **state)
{
    const struct fiber_class cls = {.size = sizeof(cls), .call = method};
    struct fiber_manager *m;
    struct fiber_future *f;

    assert_int_equal(fiber_manager_start(&m, &cls, NULL, 0, NULL), 0);
    FAILS(fiber_manager_call(m, "x", NULL, 0, NULL, -1), -EIO, "the function returned 7");
    FAILS(fiber_manager_call(m, "fail", NULL, 0, NULL, -1), -EIO, "no such row (code 7)");
    assert_int_equal(fiber_manager_call_async(m, "fail", NULL, 0, &f), 0);
    FAILS(fiber_future_get(f, NULL, -1), -EIO, "no such row (code 7)");
    fiber_future_close(f);
    fiber_manager_close(m);
}

static int build_7(void *data, size_t len, void *user)
{
    return 7;
}

static void test_a_positive_code_of_a_builder_is_eio(void **state)
{
    struct fiber_shared *s;

    FAILS(fiber_shared_open(&s, "seven", 8, build_7, NULL), -EIO, "its builder returned 7");
}

/* ---- The last error is that of the last call ---- */

static void test_queues_and_pipes(void **state)
{
    struct fiber_pipe *ends[2], *oneway[2];
    struct fiber_address none = {{0}};
    struct fiber_manager *m;
    struct fiber_queue *q, *other;
    struct fiber_pipe *end;
    struct fiber_store *s;
    struct fiber_bytes b;

    assert_int_equal(fiber_queue_open(&q, 1), 0);
    FAILS(fiber_queue_get(q, &b, 0), -ETIMEDOUT, "queue: get: empty");
    FAILS(fiber_queue_get(q, &b, 20), -ETIMEDOUT, "queue: get: empty for 20 ms");
    FAILS(fiber_queue_put(q, NULL, 1, 0), -EINVAL, "queue");
    assert_int_equal(fiber_queue_put(q, "x", 1, 0), 0);
    FAILS(fiber_queue_put(q, "x", 1, 20), -ETIMEDOUT, "queue: put: full for 20 ms");
    FAILS(fiber_queue_connect(&other, &none), -EINVAL, "not an address");
    FAILS(fiber_pipe_connect(&end, &none), -EINVAL, "not an address");
    FAILS(fiber_manager_connect(&m, &none), -EINVAL, "not an address");
    FAILS(fiber_store_connect(&s, &none), -EINVAL, "not an address");
    assert_int_equal(fiber_queue_shut(q), 0);
    FAILS(fiber_queue_put(q, "x", 1, 0), -EPIPE, "shut");
    fiber_queue_close(q);
    FAILS(fiber_pipe_open(ends, 99), -EINVAL, "flags");
    assert_int_equal(fiber_pipe_open(ends, 0), 0);
    assert_int_equal(fiber_pipe_open(oneway, FIBER_PIPE_ONEWAY), 0);
    FAILS(fiber_pipe_recv(ends[0], &b, 10), -ETIMEDOUT, "within 10 ms");
    FAILS(fiber_pipe_send(oneway[0], "x", 1, 0), -EBADF, "only receives");
    FAILS(fiber_pipe_recv(oneway[1], &b, 0), -EBADF, "only sends");
    FAILS(fiber_pipe_poll(oneway[1], 0), -EBADF, "only sends");
    FAILS(fiber_pipe_send(ends[0], NULL, 1, 0), -EINVAL, "length");
    fiber_pipe_close(ends[1]);
    FAILS(fiber_pipe_recv(ends[0], &b, 0), -EPIPE, "gone");
    FAILS(fiber_pipe_send(ends[0], "x", 1, 0), -EPIPE, "gone");
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(oneway[0]);
    fiber_pipe_close(oneway[1]);
}

/* Holds the lock "L" until it is killed. */
static int hold_lock(const void *arg, size_t len)
{
    struct fiber_store *s;
    int rc;

    if (fiber_store_connect(&s, arg) < 0 || fiber_store_lock(s, "L", -1) < 0)
        return 1;
    rc = fiber_store_set(s, "held", "1", 1);
    return rc < 0 ? 2 : child_wait(NULL, 0);
}

static void test_stores(void **state)
{
    struct fiber_process_options po = {.size = sizeof(po), .job.name = "holder"};
    struct fiber_address address;
    struct fiber_process *p;
    struct fiber_store *s;
    struct fiber_bytes b;
    size_t n;
    int64_t v;

    FAILS(fiber_store_start(NULL, NULL), -EINVAL, "handle");
    assert_int_equal(fiber_store_start(&s, NULL), 0);
    assert_int_equal(fiber_store_address(s, &address), 0);
    assert_int_equal(fiber_process_start(&p, hold_lock, &address, sizeof(address), &po), 0);
    assert_int_equal(fiber_store_get(s, "held", &b, -1), 0);
    fiber_bytes_free(&b);
    FAILS(fiber_store_lock(s, "L", 20), -ETIMEDOUT, "lock 'L' is held by holder (pid ");
    FAILS(fiber_store_lock(s, "L", 0), -ETIMEDOUT, "lock 'L' is held by holder (pid ");
    FAILS(fiber_store_unlock(s, "L"), -EPERM, "unlock 'L'");
    assert_int_equal(fiber_process_kill(p), 0);
    FAILS(fiber_store_lock(s, "L", -1), -EOWNERDEAD, "died");
    fiber_process_close(p);
    FAILS(fiber_store_set(s, NULL, "", 0), -EINVAL, "name");
    FAILS(fiber_store_set(s, "k", NULL, 1), -EINVAL, "set");
    FAILS(fiber_store_get(s, "k", &b, 0), -ENOENT, "get 'k'");
    FAILS(fiber_store_get(s, "k", NULL, 0), -EINVAL, "get");
    FAILS(fiber_store_swap(s, "k", "a", 1, "b", 1, NULL), -ESTALE, "swap 'k'");
    FAILS(fiber_store_delete(s, "k"), -ENOENT, "delete 'k'");
    FAILS(fiber_store_keys(s, NULL, NULL), -EINVAL, "keys");
    assert_int_equal(fiber_store_add(s, "c", INT64_MAX, &v), 0);
    FAILS(fiber_store_add(s, "c", 1, &v), -ERANGE, "add 'c'");
    FAILS(fiber_store_push(s, "l", NULL, 1), -EINVAL, "push");
    FAILS(fiber_store_pop(s, "l", &b, 10), -ETIMEDOUT, "pop 'l'");
    FAILS(fiber_store_at(s, "l", 3, &b), -ENOENT, "at 'l'");
    FAILS(fiber_store_length(s, "l", NULL), -EINVAL, "length");
    FAILS(fiber_store_length(s, NULL, &n), -EINVAL, "name");
    FAILS(fiber_store_acquire(s, "s", 0, 0), -EINVAL, "acquire 's'");
    FAILS(fiber_store_release(s, "s"), -EPERM, "release 's'");
    FAILS(fiber_store_event_wait(s, "e", 0), -ETIMEDOUT, "event 'e'");
    FAILS(fiber_store_event_set(s, NULL), -EINVAL, "name");
    FAILS(fiber_store_event_clear(s, NULL), -EINVAL, "name");
    FAILS(fiber_store_barrier(s, "b", 0, NULL, 0), -EINVAL, "barrier 'b'");
    FAILS(fiber_store_barrier(s, "b", 2, NULL, 10), -ETIMEDOUT, "barrier 'b'");
    fiber_store_close(s);
}

static void test_managers(void **state)
{
    const struct fiber_class bad = {.size = 3, .call = method},
                             cls = {.size = sizeof(cls), .call = method};
    struct fiber_manager *m;
    struct fiber_future *f;

    FAILS(fiber_manager_start(&m, &bad, NULL, 0, NULL), -EINVAL, "class");
    assert_int_equal(fiber_manager_start(&m, &cls, NULL, 0, NULL), 0);
    FAILS(fiber_manager_call(m, NULL, NULL, 0, NULL, -1), -EINVAL, "method");
    FAILS(fiber_manager_call(m, "hang", NULL, 0, NULL, 20), -ETIMEDOUT, "hang");
    FAILS(fiber_manager_call_async(m, NULL, NULL, 0, &f), -EINVAL, "method");
    FAILS(fiber_manager_call_async(m, "x", NULL, 0, NULL), -EINVAL, "future");
    assert_int_equal(fiber_manager_call_async(m, "x", NULL, 0, &f), 0);
    FAILS(fiber_future_wait(f, 0), -ETIMEDOUT, "no answer");
    FAILS(fiber_future_get(f, NULL, 0), -ETIMEDOUT, "no answer");
    fiber_future_close(f);
    fiber_manager_close(m);
}

static int sleep_for_ever(const void *in, size_t len, struct fiber_reply *reply)
{
    return child_wait(NULL, 0);
}

static void test_pools(void **state)
{
    struct fiber_pool_options po = {.size = sizeof(po), .min = 1, .max = 1}, bad = {.size = 1};
    struct fiber_pool_stats stats = {.size = 1};
    struct fiber_pool *pool;
    struct fiber_result *r;
    struct fiber_imap *it;
    const void *data;
    size_t len;
    int in[2] = {1, 2};

    FAILS(fiber_pool_open(&pool, &bad), -EINVAL, "size");
    assert_int_equal(fiber_pool_open(&pool, &po), 0);
    FAILS(fiber_pool_resize(pool, 0), -EINVAL, "workers");
    FAILS(fiber_pool_autoscale(pool, 3, 2), -EINVAL, "workers");
    FAILS(fiber_pool_stats(pool, &stats), -EINVAL, "size");
    FAILS(fiber_pool_worker_kill(pool, "nobody"), -ESRCH, "nobody");
    FAILS(fiber_pool_map_array(pool, return_5, in, 4, NULL, 4, 2, NULL, &r), -EINVAL, "arrays");
    FAILS(fiber_pool_imap(pool, return_5, NULL, NULL, 0, 0, NULL, &it), -EINVAL, "source");
    FAILS(fiber_serve(NULL), -EINVAL, "function");
    FAILS(fiber_serve(return_5), -ENODATA, "fiber_serve");
    FAILS(fiber_process_work(&data, &len), -ENODATA, "fiber_process_work");
    assert_int_equal(fiber_pool_apply_async(pool, sleep_for_ever, in, 4, NULL, &r), 0);
    FAILS(fiber_pool_drain(pool, 10), -ETIMEDOUT, "after 10 ms");
    FAILS(fiber_result_wait(r, 10), -ETIMEDOUT, "0 of 1 task done");
    FAILS(fiber_result_wait_task(r, 0, 10), -ETIMEDOUT, "task 0");
    FAILS(fiber_result_wait_task(r, 9, 10), -ENOENT, "task 9");
    FAILS(fiber_result_get(r, 0, &data, &len), -EAGAIN, "task 0 is not done");
    FAILS(fiber_result_get(r, 7, &data, &len), -ENOENT, "no task 7");
    FAILS(fiber_result_cancel_task(r, 7), -ENOENT, "no task 7");
    assert_int_equal(fiber_result_cancel(r), 0);
    FAILS(fiber_result_get(r, 0, &data, &len), -ECANCELED, "cancelled");
    FAILS(fiber_result_cancel_task(r, 0), -EALREADY, "task 0");
    FAILS(fiber_result_error(r, NULL), -ECANCELED, "task 0");
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static int wait_to_be_killed(const void *arg, size_t len)
{
    return child_wait(arg, len);
}

static int rank_waits(int rank, int size, const void *arg, size_t len)
{
    return child_wait(arg, len);
}

static void test_processes_and_rings(void **state)
{
    struct fiber_ring_options ro = {.size = sizeof(ro), .grace_ms = 100, .flags = FIBER_RING_QUIET};
    struct fiber_process *p;
    struct fiber_ring *ring;
    int code;

    FAILS(fiber_config_set(NULL, ""), -EINVAL, "key");
    FAILS(fiber_process_start(&p, NULL, NULL, 0, NULL), -EINVAL, "function");
    FAILS(fiber_process_start_work(&p, NULL, 1, NULL), -EINVAL, "");
    assert_int_equal(fiber_process_start(&p, wait_to_be_killed, NULL, 0, NULL), 0);
    FAILS(fiber_process_exitcode(p, &code), -EAGAIN, "no exit code");
    FAILS(fiber_process_join(p, 10), -ETIMEDOUT, "after 10 ms");
    assert_int_equal(fiber_process_kill(p), 0);
    assert_int_equal(fiber_process_join(p, -1), 0);
    fiber_process_close(p);
    FAILS(fiber_ring_start(&ring, 0, rank_waits, NULL, 0, NULL), -EINVAL, "");
    FAILS(fiber_ring_run(1, NULL, NULL, 0, NULL), -EINVAL, "");
    assert_int_equal(fiber_ring_start(&ring, 1, rank_waits, NULL, 0, &ro), 0);
    FAILS(fiber_ring_exitcode(ring, &code), -EAGAIN, "no exit code");
    FAILS(fiber_ring_wait(ring, 10), -ETIMEDOUT, "after 10 ms");
    FAILS(fiber_ring_signal(ring, 1000), -EINVAL, "signal");
    FAILS(fiber_ring_signal_rank(ring, 9, SIGTERM), -ESRCH, "rank 9");
    FAILS(fiber_ring_signal_rank(ring, -1, SIGTERM), -ESRCH, "rank -1");
    fiber_ring_close(ring);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_positive_code_of_a_task_is_eio_everywhere),
        cmocka_unit_test(test_a_positive_code_of_a_method_is_eio_everywhere),
        cmocka_unit_test(test_a_positive_code_of_a_builder_is_eio),
        cmocka_unit_test(test_queues_and_pipes),
        cmocka_unit_test(test_stores),
        cmocka_unit_test(test_managers),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_processes_and_rings),
    };

    if (fiber_init(&argc, &argv) < 0 || fiber_config_set("grace", "100ms") < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
