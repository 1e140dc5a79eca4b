/* oom_test.c - memory that is short in the middle of a call: it succeeds, or fails with -ENOMEM,
 * and the pool lives on.
 *
 * The linker replaces malloc and its like in this program and in libfiber (-Wl,--wrap); each call
 * is made again and again, and the k-th request for memory of the calling thread is refused, for k
 * = 1, 2, ... until the call gets by without that request.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/context.h"
#include "tests/pool/tasks.h"
#include "tests/support/refuse.h"

/* Runs `call`, an expression of a return code, with request k refused; goes on until there is no
 * request k. */
#define each_refusal(k, call, ...)                                              \
    do {                                                                        \
        for (unsigned k = 1;; k++) {                                            \
            int got_;                                                           \
            begin_refusing(k);                                                  \
            got_ = (call);                                                      \
            refuse_at = 0;                                                      \
            if (got_ < 0 && got_ != -ENOMEM)                                    \
                fail_msg("%s with request %u refused: %d (%s)", #call, k, got_, \
                         fiber_last_error());                                   \
            if (got_ < 0)                                                       \
                assert_true(fiber_last_error()[0] != '\0');                     \
            else {                                                              \
                __VA_ARGS__;                                                    \
            }                                                                   \
            if (asked < k) {                                                    \
                assert_true(got_ >= 0);                                         \
                break;                                                          \
            }                                                                   \
        }                                                                       \
    } while (0)

static void check_works(struct fiber_pool *pool)
{
    int64_t in[200], out[200];

    for (int i = 0; i < 200; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 200, NULL));
    for (int i = 0; i < 200; i++)
        assert_int_equal(out[i], i * i);
}

static void test_opening(void **state)
{
    struct fiber_pool *pool = NULL;
    const char *const env[] = {"A=1", "B=2", NULL};
    struct fiber_pool_options o = {.size = sizeof(o),
                                   .min = 1,
                                   .max = 1,
                                   .init = board_init,
                                   .init_arg = board_path,
                                   .init_len = strlen(board_path) + 1,
                                   .job = {.env = env}};

    each_refusal(k, fiber_pool_open(&pool, &o), {
        check_works(pool);
        fiber_pool_close(pool);
    });
}

/* A worker that could not be started is started a little later, though nobody asks for anything. */
static void test_opening_of_idle_pools(void **state)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 1, .max = 1};
    struct fiber_pool *pool = NULL;

    each_refusal(k, fiber_pool_open(&pool, &o), {
        assert_ok(fiber_pool_wait_workers(pool, 1, WAIT_MS));
        fiber_pool_close(pool);
    });
}

static void test_maps(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int64_t in[20] = {3}, out[20];
    struct fiber_bytes bytes[20];
    struct fiber_result *r;

    meet(pool, 2);
    for (int i = 0; i < 20; i++)
        bytes[i] = (struct fiber_bytes){&in[i], 8};
    each_refusal(k, fiber_pool_map(pool, square, in, 8, out, 8, 20, NULL),
                 assert_int_equal(out[0], 9));
    each_refusal(k, fiber_pool_map_array(pool, square, in, 8, out, 8, 20, NULL, &r), {
        assert_ok(fiber_result_wait(r, WAIT_MS));
        assert_int_equal(fiber_result_error(r, NULL), 0);
        fiber_result_close(r);
    });
    each_refusal(k, fiber_pool_map_async(pool, square, bytes, 20, NULL, &r), {
        assert_ok(fiber_result_wait(r, WAIT_MS));
        assert_int_equal(fiber_result_error(r, NULL), 0);
        fiber_result_close(r);
    });
    check_works(pool);
    fiber_pool_close(pool);
}

static void test_applies(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_bytes out = {NULL, 0};
    static char large[300000];
    int64_t n = 5;
    struct fiber_result *r;

    meet(pool, 2);
    each_refusal(k, fiber_pool_apply(pool, square, &n, 8, &out), {
        assert_int_equal(number(out.data, out.len), 25);
        fiber_bytes_free(&out);
    });
    each_refusal(k, fiber_pool_apply_async(pool, square, &n, 8, NULL, &r), {
        assert_ok(fiber_result_wait(r, WAIT_MS));
        assert_int_equal(number_of(r, 0), 25);
        fiber_result_close(r);
    });
    /* Memory may be short in the middle of a long message; then another worker gets the task. */
    each_refusal(k, fiber_pool_apply(pool, echo, large, sizeof(large), &out), {
        assert_int_equal(out.len, sizeof(large));
        fiber_bytes_free(&out);
    });
    each_refusal(k, fiber_pool_apply(pool, refuse_odd, &n, 8, &out) == -EDOM ? 0 : -ENOMEM,
                 assert_null(out.data));
    check_works(pool);
    fiber_pool_close(pool);
}

#define COMMON 100000
#define TASKS 2000

static int check_common(const void *in, size_t len, struct fiber_reply *reply)
{
    size_t n;
    const char *data = fiber_task_common(&n, NULL);
    bool right = n == COMMON && data[0] == (char)number(in, len) && data[n - 1] == data[0];

    add(&board->steps);
    return right ? fiber_reply_write(reply, in, len) : -EBADMSG;
}

static int map_with_common(struct fiber_pool *pool, char byte)
{
    static char common[COMMON];
    static int64_t in[TASKS], out[TASKS];
    const struct fiber_map_options o = {
        .size = sizeof(o), .common = common, .common_len = sizeof(common)};

    memset(common, byte, sizeof(common));
    for (int i = 0; i < TASKS; i++)
        in[i] = byte;
    return fiber_pool_map(pool, check_common, in, 8, out, 8, TASKS, &o);
}

/* Memory may be short when the host of the workers is sent the input; then it is sent again. */
static void test_common_inputs_of_workers_that_share_a_host(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 3, .max = 3, .workers_per_job = 3});

    meet(pool, 3);
    each_refusal(k, map_with_common(pool, (char)k), meet(pool, 3));
    check_works(pool);
    fiber_pool_close(pool);
}

static void replace_worker(struct fiber_pool *pool)
{
    struct fiber_worker_stats w;

    assert_int_equal(fiber_pool_worker_stats(pool, &w, 1), 1);
    kill((pid_t)w.pid, SIGKILL);
    meet(pool, 1);
}

/* On the loop thread, which kills workers: leaves them time for a task. A worker with a broken link
 * runs none. */
static void wait_for_step(void *arg)
{
    double until = now_s() + 0.3;

    while (atomic_load(&board->steps) < (uint32_t)(uintptr_t)arg && now_s() < until)
        nap_us(200);
}

static int map_before_kills(struct fiber_pool *pool)
{
    unsigned refuse_later = refuse_at;
    uintptr_t step = atomic_load(&board->steps) + 1;
    int rc;

    refuse_at = 0;
    assert_ok(fbr_loop_post(fbr_rt()->loop, wait_for_step, (void *)step));
    refuse_at = refuse_later;
    rc = map_with_common(pool, 'a');
    add(&board->steps);
    return rc;
}

/* The pool knows how long the tasks take, so a worker gets two batches at once: the second one,
 * too, when it is about to be killed because it could not get the first one. */
static void test_common_inputs_of_new_workers(void **state)
{
    struct fiber_pool *pool = open_pool(1);

    assert_ok(map_with_common(pool, 'a'));
    replace_worker(pool);
    each_refusal(k, map_before_kills(pool), replace_worker(pool));
    check_works(pool);
    fiber_pool_close(pool);
}

static int three_inputs(void *user, struct fiber_bytes *in)
{
    int64_t *left = user;

    *in = (struct fiber_bytes){left, sizeof(*left)};
    return *left > 0 ? (*left)--, 1 : 0;
}

/* An error of the source's copy ends the iteration, after what came before it. */
static int iterate(struct fiber_pool *pool)
{
    struct fiber_bytes out;
    struct fiber_imap *it;
    int64_t left = 3;
    int rc = fiber_pool_imap(pool, square, three_inputs, &left, 2, 0, NULL, &it), n = 0;

    if (rc < 0)
        return rc;
    while ((rc = fiber_imap_next(it, NULL, &out, WAIT_MS)) == 1) {
        fiber_bytes_free(&out);
        n++;
    }
    fiber_imap_close(it);
    return rc ? rc : n == 3 ? 0 : -EBADMSG;
}

static void test_streams(void **state)
{
    struct fiber_pool *pool = open_pool(2);

    meet(pool, 2);
    each_refusal(k, iterate(pool), );
    check_works(pool);
    fiber_pool_close(pool);
}

/* Waits until the gate has come to its own number, unless it is cancelled before. */
static int wait_for_turn(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    add(&board->arrived);
    return wait_for(&board->gate, (uint32_t)n);
}

/* Cancelling has to reach the worker: what cannot be told is dropped when it comes. */
static int cancel_one(struct fiber_pool *pool, unsigned k)
{
    uint32_t turn = atomic_load(&board->gate) + 1, arrived = atomic_load(&board->arrived);
    int64_t n[3] = {turn, turn, turn};
    struct fiber_bytes in[3] = {{n, 8}, {n + 1, 8}, {n + 2, 8}};
    struct fiber_result *r;
    unsigned refuse_later = refuse_at;
    int rc;

    refuse_at = 0;
    assert_ok(fiber_pool_map_async(pool, wait_for_turn, in, 3, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, arrived + 1), 0);
    refuse_at = refuse_later;
    rc = k % 2 ? fiber_result_cancel_task(r, 0) : fiber_result_cancel(r);
    refuse_later = refuse_at;
    refuse_at = 0;
    add(&board->gate);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    fiber_result_close(r);
    refuse_at = refuse_later;
    return rc;
}

static void test_cancelling(void **state)
{
    struct fiber_pool *pool = open_pool(1);

    each_refusal(k, cancel_one(pool, 1), );
    each_refusal(k, cancel_one(pool, 2), );
    check_works(pool);
    fiber_pool_close(pool);
}

static void test_resizing(void **state)
{
    struct fiber_pool *pool = open_pool(1);

    for (int round = 0; round < 3; round++) {
        each_refusal(k, fiber_pool_resize(pool, 3), meet(pool, 1));
        each_refusal(k, fiber_pool_resize(pool, 1), check_works(pool));
        each_refusal(k, fiber_pool_autoscale(pool, 1, 3), check_works(pool));
    }
    each_refusal(k, fiber_pool_drain(pool, WAIT_MS), );
    fiber_pool_close(pool);
}

static int close_pool(struct fiber_pool *pool)
{
    fiber_pool_close(pool);
    return 0;
}

static void test_closing(void **state)
{
    struct fiber_pool *pool = NULL;

    /* The pool that each round closes is opened by the round before. */
    pool = open_pool(2);
    meet(pool, 2);
    each_refusal(k, close_pool(pool), {
        refuse_at = 0;
        assert_int_equal(children_active(NULL), children_before);
        pool = open_pool(2);
        meet(pool, 2);
    });
    fiber_pool_close(pool);
}

static int exit_with_3(const void *arg, size_t len)
{
    return 3;
}

static void test_processes(void **state)
{
    struct fiber_process *p;
    int code = 0;

    each_refusal(k, fiber_process_start(&p, exit_with_3, "arg", 4, NULL), {
        assert_ok(fiber_process_join(p, WAIT_MS));
        assert_ok(fiber_process_exitcode(p, &code));
        assert_int_equal(code, 3);
        fiber_process_close(p);
    });
    each_refusal(k, fiber_config_set("heartbeat", "5s"), );
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_opening),
        pool_test(test_opening_of_idle_pools),
        pool_test(test_maps),
        pool_test(test_applies),
        pool_test(test_streams),
        pool_test(test_cancelling),
        pool_test(test_resizing),
        pool_test(test_closing),
        pool_test(test_processes),
        pool_test(test_common_inputs_of_workers_that_share_a_host),
        pool_test(test_common_inputs_of_new_workers),
    };

    assert_ok(fiber_init(&argc, &argv));
    assert_ok(fiber_config_set("grace", "300ms"));
    return run_pool_tests(tests, "short of memory");
}
