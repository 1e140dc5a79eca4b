/* result_test.c - what becomes of tasks: callbacks, cancelling, time limits, retries after deaths,
 * a pool that closes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <semaphore.h>

#include "tests/pool/tasks.h"

/* ---- Callbacks ---- */

struct seen {
    struct fiber_pool *pool;
    struct fiber_result *_Atomic r;
    _Atomic uint32_t calls, running, depth;
    _Atomic uint32_t times[1000];
    uint32_t errors, wrong;
    size_t last_done, total;
};

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;
    char text[32];

    s->wrong += atomic_fetch_add(&s->running, 1) != 0; /* one at a time */
    s->wrong += index >= 1000;
    if (index < 1000)
        atomic_fetch_add(&s->times[index], 1);
    snprintf(text, sizeof(text), "%zu is odd", index);
    if (code == 0)
        s->wrong += len != 8 || number(data, len) != (int64_t)(index * index) || index % 2;
    else
        s->wrong += code != -EDOM || len != strlen(text) || memcmp(data, text, len) != 0;
    s->errors += code != 0;
    atomic_fetch_sub(&s->running, 1);
    add(&s->calls);
}

static void on_progress(void *user, size_t done, size_t total)
{
    struct seen *s = user;

    s->wrong += done < s->last_done || done > total;
    s->last_done = done;
    s->total = total;
}

static void check_seen(struct seen *s, uint32_t n)
{
    assert_int_equal(atomic_load(&s->calls), n);
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->errors, n / 2);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(atomic_load(&s->times[i]), 1);
    assert_int_equal(s->last_done, n);
    assert_int_equal(s->total, n);
}

/* All callbacks of a map have returned when a wait for it has. */
static void test_callbacks_see_each_result_once_before_the_map_is_done(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_bytes bytes[1000];
    int64_t in[1000], out[1000];
    struct fiber_result *r;

    for (int i = 0; i < 1000; i++) {
        in[i] = i;
        bytes[i] = (struct fiber_bytes){&in[i], sizeof(in[i])};
    }
    o.on_done = on_done;
    o.on_progress = on_progress;
    for (int round = 0; round < 10; round++) {
        struct seen *s = calloc(1, sizeof(*s));

        o.user = s;
        assert_int_equal(fiber_pool_map(pool, refuse_odd, in, 8, out, 8, 1000, &o), -EDOM);
        check_seen(s, 1000);
        memset(s, 0, sizeof(*s));
        assert_ok(fiber_pool_map_async(pool, refuse_odd, bytes, 1000, &o, &r));
        assert_ok(fiber_result_wait(r, WAIT_MS));
        check_seen(s, 1000);
        fiber_result_close(r);
        free(s);
    }
    fiber_pool_close(pool);
}

/* Submits the next one, cancels and closes: a chain of 100. */
static void chain(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *old = s->r;
    struct fiber_result *next = NULL;
    int64_t n = number(data, len) + 1;

    s->wrong += code != 0 || index != 0;
    if (atomic_load(&s->depth) == 100) {
        add(&s->calls);
        return;
    }
    atomic_fetch_add(&s->depth, 1);
    o.on_done = chain;
    o.user = s;
    s->wrong += fiber_pool_apply_async(s->pool, echo, &n, sizeof(n), &o, &next) != 0;
    s->r = next;
    fiber_result_cancel(old);
    fiber_result_close(old);
}

static void test_a_callback_may_submit_cancel_and_close(void **state)
{
    struct seen s = {.pool = open_pool(2)};
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};

    o.on_done = chain;
    o.user = &s;
    s.r = apply_later(s.pool, wait_at_gate, 1, &o); /* its callback must find s.r set */
    open_gate();
    assert_int_equal(wait_for(&s.calls, 1), 0);
    fiber_pool_close(s.pool);
    fiber_result_close(s.r);
    assert_int_equal(s.wrong, 0);
}

/* Results come after the callback, so each call that would wait for them says so. */
static void wait_for_others(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;
    struct fiber_bytes out;
    struct fiber_done done;

    s->wrong += fiber_result_wait(s->r, -1) != -EDEADLK;
    s->wrong += fiber_result_wait(s->r, 0) != -ETIMEDOUT;
    s->wrong += fiber_result_wait_task(s->r, 0, 60000) != -EDEADLK;
    s->wrong += fiber_pool_apply(s->pool, wait_at_gate, NULL, 0, &out) != -EDEADLK;
    s->wrong += strcmp(fiber_last_error(), "a callback cannot wait for what comes after it") != 0;
    s->wrong += fiber_pool_drain(s->pool, -1) != -EDEADLK;
    s->wrong += fiber_pool_wait_workers(s->pool, 3, -1) != -EDEADLK;
    s->wrong += fiber_pool_take(s->pool, &done, 1, -1) != -EDEADLK;
    add(&s->calls);
}

static void test_a_callback_may_not_wait(void **state)
{
    struct seen s = {.pool = open_pool(2)};
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *first;

    o.on_done = wait_for_others;
    o.user = &s;
    s.r = apply_later(s.pool, wait_at_gate, 1, NULL);
    first = apply_later(s.pool, square, 1, &o);
    assert_ok(fiber_result_wait(first, -1));
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.wrong, 0);
    open_gate();
    assert_ok(fiber_result_wait(s.r, -1));
    fiber_result_close(first);
    fiber_result_close(s.r);
    fiber_pool_close(s.pool);
}

/* On the thread that receives results, and on the one that sees workers die. */
static void close_pool(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;

    fiber_pool_close(s->pool);
    add(&s->calls);
}

static void test_a_callback_may_close_the_pool(void **state)
{
    static const fiber_task_fn tasks[] = {square, kill_worker};
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};

    for (size_t i = 0; i < 2; i++) {
        struct seen s = {.pool = open_pool(2)};
        struct fiber_result *r;

        o.retries = FIBER_RETRIES_NONE;
        o.on_done = close_pool;
        o.user = &s;
        r = apply_later(s.pool, tasks[i], 1, &o);
        assert_ok(fiber_result_wait(r, 60000));
        assert_int_equal(s.calls, 1);
        fiber_result_close(r);
        assert_comes(children_active(NULL) == children_before);
    }
}

static void count_cancelled(void *user, size_t index, int code, const void *data, size_t len)
{
    struct seen *s = user;

    s->wrong +=
        code != -ECANCELED || len != strlen("cancelled") || memcmp(data, "cancelled", len) != 0;
    s->wrong += index >= 1000;
    if (index < 1000)
        s->times[index]++;
    add(&s->calls);
}

static void test_cancelled_tasks_call_back_too(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_bytes in[100] = {{NULL, 0}};
    struct seen s = {0};
    struct fiber_result *r;

    o.on_done = count_cancelled;
    o.user = &s;
    assert_ok(fiber_pool_map_async(pool, until_cancelled, in, 100, &o, &r));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    fiber_result_close(r);
    assert_int_equal(s.calls, 100);
    assert_int_equal(s.wrong, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(s.times[i], 1);
    fiber_pool_close(pool);
}

/* ---- Cancelling ---- */

static void test_a_cancelled_map_stops_its_running_tasks(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_bytes in[100] = {{NULL, 0}};
    struct fiber_result *r;
    int64_t n = 3;

    assert_ok(fiber_pool_map_async(pool, until_cancelled, in, 100, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    assert_ok(fiber_result_cancel(r));
    assert_ok(fiber_result_wait(r, 0));
    assert_int_equal(fiber_result_done(r), 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(error_of(r, i, "cancelled"), -ECANCELED);
    assert_int_equal(wait_for(&board->steps, 2), 0); /* both saw it */
    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(atomic_load(&board->arrived), 2);
    assert_int_equal(stats_of(pool).deaths, 0);
    assert_ok(fiber_result_cancel(r));
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static sem_t interrupted;

static void interrupt(void *user)
{
    sem_post(user);
}

/* Waits for its interruption alone. Input: whether it ends then. */
static int until_interrupted(const void *in, size_t len, struct fiber_reply *reply)
{
    bool ends = number(in, len) != 0;

    sem_init(&interrupted, 0, 0);
    if (fiber_task_on_cancel(interrupt, &interrupted) < 0)
        return fiber_reply_fail(reply, -EIO, "nobody can interrupt");
    add(&board->arrived);
    do {
        while (sem_wait(&interrupted) < 0)
            continue;
        add(&board->steps);
    } while (!ends);
    return fiber_task_on_cancel(NULL, NULL);
}

static void cancel_interruptible(struct fiber_pool *pool, int64_t ends)
{
    struct fiber_result *r;

    assert_ok(fiber_pool_apply_async(pool, until_interrupted, &ends, sizeof(ends), NULL, &r));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_ok(fiber_result_cancel(r));
    assert_int_equal(wait_for(&board->steps, 1), 0);
    fiber_result_close(r);
}

static void test_a_cancelled_task_is_interrupted(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    int64_t n = 3;

    cancel_interruptible(pool, true);
    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

static void test_an_interrupted_task_that_runs_on_ends_its_worker(void **state)
{
    struct fiber_pool *pool;
    int64_t n = 3;

    assert_ok(fiber_config_set("grace", "2s")); /* in which the worker has to interrupt the task */
    pool = open_pool(1);
    cancel_interruptible(pool, false);
    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(stats_of(pool).deaths, 1);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("grace", "5s"));
}

static void test_a_waiting_and_a_running_task_can_be_cancelled(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_bytes in[3] = {{NULL, 0}};
    struct fiber_result *running, *waiting;
    int64_t n = 5, numbers[3] = {7, 8, 9}, out[3];

    assert_ok(fiber_pool_map_async(pool, until_cancelled, in, 1, NULL, &running));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_ok(fiber_pool_map_array(pool, count_run, numbers, 8, out, 8, 3, NULL, &waiting));
    assert_ok(fiber_result_cancel_task(waiting, 1));
    assert_int_equal(fiber_result_cancel_task(waiting, 1), -EALREADY);
    assert_int_equal(fiber_result_cancel_task(waiting, 3), -ENOENT);
    assert_int_equal(error_of(waiting, 1, "cancelled"), -ECANCELED);
    assert_int_equal(fiber_result_wait(waiting, 0), -ETIMEDOUT);
    assert_ok(fiber_result_cancel_task(running, 0));
    assert_int_equal(error_of(running, 0, "cancelled"), -ECANCELED);
    assert_ok(fiber_result_wait(running, 0));
    assert_ok(fiber_result_wait(waiting, WAIT_MS));
    assert_int_equal(atomic_load(&board->steps), 1);
    assert_int_equal(out[0], 49);
    assert_int_equal(out[2], 81);
    assert_int_equal(atomic_load(&board->runs[8]), 0);
    assert_int_equal(fiber_result_error(waiting, NULL), -ECANCELED);
    assert_int_equal(fiber_result_cancel_task(waiting, 0), -EALREADY);
    fiber_result_close(running);
    fiber_result_close(waiting);
    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    fiber_pool_close(pool);
}

/* Of a batch that a worker holds: the second is cancelled while the first runs. */
static void test_a_task_behind_the_running_one_can_be_cancelled(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[4] = {0, 1, 2, 3}, out[4] = {-1, -1, -1, -1};
    struct fiber_result *r;

    o.chunk = 2; /* half of what waits goes to one worker */
    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 4, &o, &r));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_ok(fiber_result_cancel_task(r, 1));
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 1, "cancelled"), -ECANCELED);
    assert_int_equal(out[1], -1);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[2], 4);
    assert_int_equal(out[3], 9);
    assert_in_range(atomic_load(&board->arrived), 3,
                    4); /* it may have begun before the worker was told */
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static _Thread_local int unlocks; /* this thread is put off after so many */

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    int rc = __real_pthread_mutex_unlock(m);

    if (unlocks && --unlocks == 0)
        for (int i = 0; i < 100 && !atomic_load(&board->runs[1]); i++)
            nap_us(5000);
    return rc;
}

/* The thread that calls it leaves two locks, and is put off then. */
static void interrupt_late(void *user)
{
    unlocks = 2;
    sem_post(user);
}

static int wait_or_count(const void *in, size_t len, struct fiber_reply *reply)
{
    if (number(in, len) > 0)
        return count_run(in, len, reply);
    sem_init(&interrupted, 0, 0);
    if (fiber_task_on_cancel(interrupt_late, &interrupted) < 0)
        return fiber_reply_fail(reply, -EIO, "nobody can interrupt");
    add(&board->arrived);
    while (sem_wait(&interrupted) < 0)
        continue;
    return 0;
}

/* The first task of a batch ends while the worker is told that nothing of the batch is wanted. */
static void test_no_task_of_a_cancelled_batch_begins_once_the_worker_knows(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[4] = {0, 1, 2, 3}, out[4], n = 3;
    struct fiber_result *r;

    o.chunk = 2;
    assert_ok(fiber_pool_map_array(pool, wait_or_count, in, 8, out, 8, 4, &o, &r));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    fiber_result_close(r);
    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(atomic_load(&board->runs[1]), 0);
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

static void test_closing_a_result_cancels_it(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int64_t *in = calloc(1000, sizeof(*in)), *out = calloc(1000, sizeof(*out));
    struct fiber_result *r;

    for (int round = 0; round < 50; round++) {
        assert_ok(fiber_pool_map_array(pool, square, in, 8, out, 8, 1000, NULL, &r));
        fiber_result_close(r);
    }
    assert_ok(fiber_pool_map_array(pool, square, in, 8, out, 8, 1000, NULL, &r));
    fiber_result_close(r);
    free(in);
    free(out); /* nothing is written into it any more */
    assert_ok(fiber_pool_drain(pool, WAIT_MS));
    fiber_pool_close(pool);
}

/* ---- Time limits ---- */

#define TASK_MS 2000 /* a busy machine may hold up a task that does nothing */

static int hang_odd(const void *in, size_t len, struct fiber_reply *reply)
{
    if (number(in, len) % 2)
        wait_for(&board->gate, 1); /* which nobody opens */
    return square(in, len, reply);
}

static void test_a_task_over_its_time_fails_and_the_rest_goes_on(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[20], out[20];
    struct fiber_result *r;
    double before;

    meet(pool, 2);
    for (int i = 0; i < 20; i++)
        in[i] = i < 16 ? 2 * i : 2 * i + 1; /* the last four hang */
    o.timeout_ms = TASK_MS;
    before = now_s();
    assert_ok(fiber_pool_map_array(pool, hang_odd, in, 8, out, 8, 20, &o, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_true(now_s() - before >= 2 * TASK_MS / 1e3); /* two after another */
    for (size_t i = 0; i < 20; i++) {
        if (i < 16)
            assert_int_equal(number_of(r, i), 4 * i * i);
        else
            assert_int_equal(error_of(r, i, "ran longer than 2000 ms"), -ETIMEDOUT);
    }
    fiber_result_close(r);
    assert_int_equal(stats_of(pool).deaths, 0); /* nobody's fault */
    meet(pool, 2);
    fiber_pool_close(pool);
}

static int nap_10ms(const void *in, size_t len, struct fiber_reply *reply)
{
    nap_us(10000);
    return square(in, len, reply);
}

static void test_a_time_limit_runs_from_the_tasks_start(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    int64_t in[250], out[250];

    meet(pool, 1);
    for (int i = 0; i < 250; i++)
        in[i] = i;
    o.timeout_ms = TASK_MS;
    assert_ok(
        fiber_pool_map(pool, nap_10ms, in, 8, out, 8, 250, &o)); /* more than the limit in sum */
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 250, &o));
    fiber_pool_close(pool);
}

#define MAP_MS 500

static void note_code(void *user, size_t index, int code, const void *data, size_t len)
{
    ((int *)user)[index] = code;
}

static void test_a_map_over_its_time_is_cancelled(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int codes[20] = {0};
    struct fiber_map_options o = {
        .size = sizeof(o), .map_timeout_ms = MAP_MS, .on_done = note_code, .user = codes};
    int64_t in[20], out[20];
    struct fiber_result *r;

    meet(pool, 2);
    for (int i = 0; i < 20; i++)
        in[i] = i < 16 ? 2 * i : 2 * i + 1; /* the last four hang */
    assert_int_equal(fiber_pool_map(pool, hang_odd, in, 8, out, 8, 20, &o), -ETIMEDOUT);
    assert_contains(fiber_last_error(),
                    "of 20 tasks done when the map's timeout of 500 ms expired");
    for (int i = 0; i < 20; i++)
        assert_true(codes[i] == -ETIMEDOUT || (i < 16 && codes[i] == 0));
    open_gate(); /* the workers go on */
    o.on_done = NULL;
    o.map_timeout_ms = WAIT_MS;
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 20, &o));
    assert_ok(fiber_pool_map_array(pool, square, in, 8, out, 8, 0, &o, &r));
    assert_ok(fiber_result_error(r, NULL));
    fiber_result_close(r);
    o.map_timeout_ms = -1;
    assert_int_equal(fiber_pool_map(pool, square, in, 8, out, 8, 20, &o), -EINVAL);
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

/* Nothing runs yet that could look at a clock. */
static void test_the_time_of_a_map_runs_while_no_worker_does(void **state)
{
    const char *const late[] = {"sh", "-c", "sleep 1000", NULL};
    struct fiber_pool_options po = {.size = sizeof(po), .min = 1, .max = 1, .job.command = late};
    struct fiber_map_options o = {.size = sizeof(o), .map_timeout_ms = MAP_MS};
    struct fiber_result *r;
    struct fiber_pool *pool;
    int64_t in = 3;

    assert_ok(fiber_pool_open(&pool, &po));
    assert_ok(fiber_pool_apply_async(pool, square, &in, 8, &o, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 0, "0 of 1 task done"), -ETIMEDOUT);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* ---- Deaths ---- */

static void test_without_retries_a_task_is_lost_with_its_worker(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *r;

    o.retries = FIBER_RETRIES_NONE;
    r = apply_later(pool, kill_worker, 5, &o);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 0, "signal 9"), -EOWNERDEAD);
    assert_int_equal(atomic_load(&board->runs[5]), 1);
    fiber_result_close(r);
    assert_int_equal(stats_of(pool).deaths, 1);
    meet(pool, 2);
    assert_int_equal(stats_of(pool).restarts, 1);
    fiber_pool_close(pool);
}

static void test_one_retry_is_one_more_run(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_result *r;

    o.retries = 1;
    r = apply_later(pool, kill_worker, 6, &o);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 0, "lost"), -EOWNERDEAD);
    assert_int_equal(atomic_load(&board->runs[6]), 2);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* It dies at its first two runs. */
static int die_twice(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    if (atomic_fetch_add(&board->runs[n], 1) < 2)
        raise(SANITIZED ? SIGILL : SIGSEGV); /* sanitizers take long to report the other */
    return square(in, len, reply);
}

static void test_a_task_that_recovers_is_delivered(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_result *r = apply_later(pool, die_twice, 9, NULL);

    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 81);
    assert_int_equal(atomic_load(&board->runs[9]), 3);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static int kill_13(const void *in, size_t len, struct fiber_reply *reply)
{
    return number(in, len) == 13 ? kill_worker(in, len, reply) : square(in, len, reply);
}

/* Also without a limit of retries: a task that saw three deaths is not tried again. */
static void check_blamed(struct fiber_pool *pool, int retries)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    uint64_t before = stats_of(pool).deaths;
    int64_t in[1000], out[1000];
    struct fiber_result *r;
    const void *text;
    size_t len;

    for (int i = 0; i < 1000; i++)
        in[i] = i;
    o.retries = retries;
    o.chunk = 50;
    atomic_store(&board->runs[13], 0);
    assert_ok(fiber_pool_map_array(pool, kill_13, in, 8, out, 8, 1000, &o, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < 1000; i++)
        if (i != 13)
            assert_int_equal(number_of(r, i), i * i);
    assert_int_equal(fiber_result_get(r, 13, &text, &len), -EOWNERDEAD);
    assert_contains(text, "3 workers died");
    assert_int_equal(count_in(text, "was killed by signal 9"), 3);
    /* Results of the batch before that died on their way take the blame once. */
    assert_true(atomic_load(&board->runs[13]) >= 3);
    assert_int_equal(stats_of(pool).deaths - before, atomic_load(&board->runs[13]));
    fiber_result_close(r);
}

static void test_a_killer_is_blamed_with_three_reports_and_nobody_else(void **state)
{
    struct fiber_pool *pool = open_pool(3);

    check_blamed(pool, FIBER_RETRIES_DEFAULT);
    check_blamed(pool, FIBER_RETRIES_UNLIMITED);
    check_blamed(pool, 10);
    meet(pool, 3);
    fiber_pool_close(pool);
}

static int exit_0(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    if (n == 13 && atomic_fetch_add(&board->runs[n], 1) == 0)
        exit(0);
    return square(in, len, reply);
}

static void test_a_worker_that_exits_0_in_a_task_is_a_death(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int64_t in[100], out[100];

    for (int i = 0; i < 100; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, exit_0, in, 8, out, 8, 100, NULL));
    for (int i = 0; i < 100; i++)
        assert_int_equal(out[i], i * i);
    assert_int_equal(atomic_load(&board->runs[13]), 2);
    assert_int_equal(stats_of(pool).deaths, 1);
    fiber_pool_close(pool);
}

static void *exit_in_thread(void *arg)
{
    exit(0);
}

/* Counts its run; 13 ends its worker at its first one, 29 does so from another thread. */
static int count_or_exit(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);
    pthread_t thread;

    if (atomic_fetch_add(&board->runs[n], 1) == 0) {
        if (n == 13)
            exit(0);
        if (n == 29 && pthread_create(&thread, NULL, exit_in_thread, NULL) == 0)
            for (;;)
                pause();
    }
    return square(in, len, reply);
}

static void check_exits(int workers_per_job)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 1, .max = 1, .workers_per_job = workers_per_job});
    int64_t in[32], out[32];
    struct fiber_result *r;

    o.chunk = 16;
    for (int i = 0; i < 32; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, count_or_exit, in, 8, out, 8, 32, &o));
    for (int i = 0; i < 32; i++) {
        assert_int_equal(out[i], i * i);
        assert_int_equal(atomic_load(&board->runs[i]), i == 13 || i == 29 ? 2 : 1);
    }
    assert_int_equal(stats_of(pool).deaths, 2);
    o.retries = FIBER_RETRIES_NONE; /* and it has the code that it said */
    atomic_store(&board->runs[13], 0);
    r = apply_later(pool, count_or_exit, 13, &o);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(error_of(r, 0, "exited with code 0"), -EOWNERDEAD);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static void test_what_was_done_before_a_worker_exits_is_not_done_again(void **state)
{
    check_exits(1);
    for (int i = 0; i < 32; i++)
        atomic_store(&board->runs[i], 0);
    check_exits(2); /* by way of the job's first process */
}

/* ---- A pool that closes ---- */

static void test_closing_a_pool_cancels_its_work(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_bytes in[100] = {{NULL, 0}};
    int64_t n = 4;
    struct fiber_result *done, *running, *late;

    assert_ok(fiber_pool_apply_async(pool, square, &n, 8, NULL, &done));
    assert_ok(fiber_result_wait(done, WAIT_MS));
    assert_ok(fiber_pool_map_async(pool, wait_at_gate, in, 100, NULL, &running));
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    fiber_pool_close(pool); /* does not wait for them: nobody opens the gate */
    assert_ok(fiber_result_wait(running, 0));
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(error_of(running, i, "closed"), -ECANCELED);
    assert_int_equal(number_of(done, 0), 16);
    late = done;
    assert_int_equal(children_active(NULL), children_before);
    fiber_result_close(running);
    fiber_result_close(late);
}

struct waiter {
    pthread_t thread;
    struct fiber_result *r;
    int rc, code;
};

static void *wait_in_thread(void *arg)
{
    struct waiter *w = arg;

    w->rc = fiber_result_wait(w->r, -1);
    w->code = fiber_result_error(w->r, NULL);
    return NULL;
}

static void test_closing_a_pool_wakes_those_who_wait(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct waiter w = {.r = apply_later(pool, wait_at_gate, 1, NULL)};

    assert_int_equal(wait_for(&board->arrived, 1), 0);
    pthread_create(&w.thread, NULL, wait_in_thread, &w);
    fiber_pool_close(pool);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.rc, 0);
    assert_int_equal(w.code, -ECANCELED);
    fiber_result_close(w.r);
}

static void test_a_pool_closes_before_its_workers_have_started(void **state)
{
    for (int i = 0; i < 10; i++)
        fiber_pool_close(open_pool(1 + i % 4));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_callbacks_see_each_result_once_before_the_map_is_done),
        pool_test(test_a_callback_may_submit_cancel_and_close),
        pool_test(test_a_callback_may_not_wait),
        pool_test(test_a_callback_may_close_the_pool),
        pool_test(test_cancelled_tasks_call_back_too),
        pool_test(test_a_cancelled_map_stops_its_running_tasks),
        pool_test(test_a_cancelled_task_is_interrupted),
        pool_test(test_an_interrupted_task_that_runs_on_ends_its_worker),
        pool_test(test_a_waiting_and_a_running_task_can_be_cancelled),
        pool_test(test_a_task_behind_the_running_one_can_be_cancelled),
        pool_test(test_no_task_of_a_cancelled_batch_begins_once_the_worker_knows),
        pool_test(test_closing_a_result_cancels_it),
        pool_test(test_a_task_over_its_time_fails_and_the_rest_goes_on),
        pool_test(test_a_time_limit_runs_from_the_tasks_start),
        pool_test(test_a_map_over_its_time_is_cancelled),
        pool_test(test_the_time_of_a_map_runs_while_no_worker_does),
        pool_test(test_without_retries_a_task_is_lost_with_its_worker),
        pool_test(test_one_retry_is_one_more_run),
        pool_test(test_a_task_that_recovers_is_delivered),
        pool_test(test_a_killer_is_blamed_with_three_reports_and_nobody_else),
        pool_test(test_a_worker_that_exits_0_in_a_task_is_a_death),
        pool_test(test_what_was_done_before_a_worker_exits_is_not_done_again),
        pool_test(test_closing_a_pool_cancels_its_work),
        pool_test(test_closing_a_pool_wakes_those_who_wait),
        pool_test(test_a_pool_closes_before_its_workers_have_started),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "results");
}
