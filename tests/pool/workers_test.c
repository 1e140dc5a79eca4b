/* workers_test.c - the workers of a pool: how they start, how many there are, what replaces them,
 * their figures.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/stat.h>

#include "tests/pool/tasks.h"

/* ---- Initializers ---- */

static void test_the_initializer_runs_once_in_each_worker(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    int64_t in[500] = {0}, out[500];

    meet(pool, 3);
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 500, NULL));
    assert_int_equal(atomic_load(&board->inits), 3);
    fiber_pool_close(pool);
}

static int refuse(const void *arg, size_t len)
{
    fprintf(stderr, "the data set is missing\n");
    return len == 1 && *(const char *)arg == 'x' ? 42 : 1;
}

static void test_a_failing_initializer_breaks_the_pool_and_says_why(void **state)
{
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){
        .min = 2, .max = 2, .init = refuse, .init_arg = "x", .init_len = 1});
    struct fiber_result *before = apply_later(pool, square, 1, NULL);
    int64_t n = 1;

    assert_ok(fiber_result_wait(before, WAIT_MS));
    assert_int_equal(error_of(before, 0, "initializer returned 42"), -ECHILD);
    assert_int_equal(error_of(before, 0, "the data set is missing"), -ECHILD);
    fiber_result_close(before);
    assert_int_equal(fiber_pool_apply(pool, square, &n, 8, NULL), -ECHILD);
    assert_contains(fiber_last_error(), "initializer returned 42");
    fiber_pool_close(pool);
}

static int fail_twice(const void *arg, size_t len)
{
    int rc = board_init(arg, len);

    return rc < 0 || atomic_load(&board->inits) > 2 ? rc : 1;
}

static void test_a_worker_that_does_not_start_is_tried_again(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 1,
                                                   .max = 1,
                                                   .init = fail_twice,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    int64_t n = 1;

    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(atomic_load(&board->inits), 3);
    fiber_pool_close(pool);
}

enum { CROWD = 40, FAIL = 30 };

/* The first ones fail, the others wait until these have been seen to fail. */
static int fail_many(const void *arg, size_t len)
{
    int rc = board_map(arg);
    uint32_t n;

    if (rc < 0)
        return rc;
    n = atomic_fetch_add(&board->inits, 1);
    if (n < FAIL) {
        atomic_store(&board->step[n], (uint32_t)getpid());
        add(&board->steps);
        return 1;
    }
    return wait_for(&board->gate, 1);
}

static bool gone(uint32_t pid)
{
    return pid > 1 && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

static void test_a_large_pool_waits_for_all_that_are_on_their_way(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = CROWD,
                                                   .max = CROWD,
                                                   .init = fail_many,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    struct fiber_result *r = apply_later(pool, square, 7, NULL);

    assert_int_equal(wait_for(&board->steps, FAIL), 0);
    for (int i = 0; i < FAIL; i++)
        assert_comes(gone(atomic_load(&board->step[i])));
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 49);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

/* ---- Replacement ---- */

static void test_workers_are_replaced_after_their_share_of_tasks(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 2, .max = 2, .tasks_per_child = 7});
    int64_t in[70] = {0}, pids[70];

    assert_ok(fiber_pool_map(pool, notify_pid, in, 8, pids, 8, 70, NULL));
    for (int i = 0; i < 70; i++) {
        int tasks = 0;

        for (int k = 0; k < 70; k++)
            tasks += pids[k] == pids[i];
        assert_true(tasks <= 7);
    }
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

static int notify_setting(const void *in, size_t len, struct fiber_reply *reply)
{
    const char *value = getenv("TEST_SETTING");

    return value ? fiber_reply_write(reply, value, 2) : -ENOENT;
}

/* Who replaces others is started by a thread of ours, and the program changes its environment when it likes. */
static void test_workers_have_the_environment_that_was_there_when_the_pool_was_opened(void **state)
{
    struct fiber_pool *pools[2];

    setenv("TEST_SETTING", "1", 1);
    for (int i = 0; i < 2; i++)
        pools[i] = open_pool_with((struct fiber_pool_options){
            .min = 1, .max = 1, .tasks_per_child = 1, .workers_per_job = 1 + i});
    for (int i = 0; i < 20; i++) {
        struct fiber_bytes value;
        char name[32];

        snprintf(name, sizeof(name), "TEST_OTHER_%d", i);
        setenv(name, "more", 1);
        setenv("TEST_SETTING", "2", 1);
        assert_ok(fiber_pool_apply(pools[i % 2], notify_setting, NULL, 0, &value));
        assert_string_equal(value.data, "1");
        fiber_bytes_free(&value);
    }
    for (int i = 0; i < 2; i++)
        fiber_pool_close(pools[i]);
}

/* Not by its silence: its end is seen. */
static void test_a_killed_worker_is_replaced_and_its_task_runs_again(void **state)
{
    struct fiber_worker_stats w[2];
    struct fiber_pool *pool;
    struct fiber_result *r;
    int64_t pids[2];

    assert_ok(fiber_config_set("heartbeat", "1h"));
    pool = open_pool(2);
    meet(pool, 2);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 2), 2);
    for (int i = 0; i < 2; i++)
        pids[i] = w[i].pid;
    r = apply_later(pool, wait_at_gate, 7, NULL);
    assert_int_equal(wait_for(&board->arrived, 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill((pid_t)pids[i], SIGKILL), 0);
    assert_int_equal(wait_for(&board->arrived, 4), 0); /* somebody else has it */
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 49);
    fiber_result_close(r);
    meet(pool, 2);
    assert_int_equal(stats_of(pool).deaths, 2);
    assert_int_equal(stats_of(pool).restarts, 2);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("heartbeat", "5s"));
}

/* By its name, as `fiber kill` does; its heart would be missed far too late. */
static void kill_a_busy_worker(int per_job)
{
    struct fiber_worker_stats w[2];
    struct fiber_pool *pool;
    struct fiber_result *r;
    int busy;

    assert_ok(fiber_config_set("heartbeat", "1h"));
    pool =
        open_pool_with((struct fiber_pool_options){.min = 2, .max = 2, .workers_per_job = per_job});
    meet(pool, 2);
    r = apply_later(pool, wait_at_gate, 7, NULL);
    assert_int_equal(wait_for(&board->arrived, 3), 0);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 2), 2);
    busy = w[0].state == 2 ? 0 : 1;
    assert_int_equal(w[busy].state, 2);
    assert_int_equal(w[!busy].state, 1);
    assert_ok(fiber_pool_worker_kill(pool, w[busy].name));
    assert_int_equal(wait_for(&board->arrived, 4), 0); /* somebody else has it */
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 49);
    fiber_result_close(r);
    meet(pool, 2);
    assert_int_equal(stats_of(pool).deaths, 1);
    assert_int_equal(stats_of(pool).restarts, 1);
    assert_int_equal(stats_of(pool).requeued, 1);
    assert_int_equal(fiber_pool_worker_kill(pool, w[busy].name), -ESRCH); /* not its successor */
    assert_contains(fiber_last_error(), w[busy].name);
    assert_int_equal(fiber_pool_worker_kill(pool, "nobody"), -ESRCH);
    assert_contains(fiber_last_error(), "nobody");
    assert_int_equal(fiber_pool_worker_kill(pool, NULL), -EINVAL);
    assert_int_equal(fiber_pool_worker_kill(NULL, w[!busy].name), -EINVAL);
    assert_contains(fiber_last_error(), "needs a pool");
    meet(pool, 2);
    assert_int_equal(stats_of(pool).deaths, 1);
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("heartbeat", "5s"));
}

static void test_a_worker_is_killed_by_its_name_and_its_task_runs_again(void **state)
{
    kill_a_busy_worker(1);
}

static void test_a_worker_that_shares_its_job_is_killed_alone(void **state)
{
    kill_a_busy_worker(2);
}

/* ---- How many ---- */

static void test_resizing_while_a_map_runs_loses_nothing(void **state)
{
    static const int sizes[] = {4, 1, 3, 6, 2, 1, 5};
    struct fiber_pool *pool = open_pool(1);
    size_t n = SANITIZED ? 1000 : 4000;
    int64_t *in = calloc(n, sizeof(*in)), *out = calloc(n, sizeof(*out));
    struct fiber_result *r;

    for (size_t i = 0; i < n; i++)
        in[i] = (int64_t)i;
    assert_ok(fiber_pool_map_array(pool, nap_1ms, in, 8, out, 8, n, NULL, &r));
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        size_t until = fiber_result_done(r) + n / 20;

        assert_ok(fiber_pool_resize(pool, sizes[k]));
        assert_int_equal(stats_of(pool).target, sizes[k]);
        assert_ok(fiber_result_wait_task(r, until < n ? until : n - 1, WAIT_MS));
    }
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (size_t i = 0; i < n; i++)
        if (out[i] != (int64_t)(i * i))
            fail_msg("result %zu is %lld", i, (long long)out[i]);
    fiber_result_close(r);
    free(in);
    free(out);
    meet(pool, 5);
    assert_int_equal(stats_of(pool).deaths, 0);
    assert_int_equal(stats_of(pool).requeued, 0);
    assert_ok(fiber_pool_resize(pool, 1));
    assert_comes(fiber_pool_worker_stats(pool, NULL, 0) == 1);
    assert_int_equal(fiber_pool_resize(pool, 0), -EINVAL);
    assert_int_equal(fiber_pool_autoscale(pool, 3, 2), -EINVAL);
    fiber_pool_close(pool);
}

static int init_at_gate(const void *arg, size_t len)
{
    int rc = board_init(arg, len);

    return rc < 0 ? rc : wait_for(&board->gate, 1);
}

static void test_a_pool_that_shrinks_keeps_the_workers_that_started_first(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 3,
                                                   .max = 3,
                                                   .init = init_at_gate,
                                                   .init_arg = board_path,
                                                   .init_len = strlen(board_path) + 1});
    struct fiber_result *r = apply_later(pool, square, 7, NULL);
    struct fiber_worker_stats before[3], after[3];

    assert_int_equal(fiber_pool_worker_stats(pool, before, 3), 3);
    assert_ok(fiber_pool_resize(pool, 1));
    assert_comes(fiber_pool_worker_stats(pool, after, 3) == 1);
    assert_string_equal(after[0].name, before[0].name);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(number_of(r, 0), 49);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static void test_a_drained_worker_finishes_its_task(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    int64_t in[3] = {1, 2, 3}, out[3];
    struct fiber_result *r;

    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, 8, out, 8, 3, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, 3), 0);
    assert_ok(fiber_pool_resize(pool, 1));
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_int_equal(fiber_result_error(r, NULL), 0);
    assert_int_equal(atomic_load(&board->arrived), 3); /* none ran twice */
    fiber_result_close(r);
    assert_comes(fiber_pool_worker_stats(pool, NULL, 0) == 1);
    fiber_pool_close(pool);
}

static void test_autoscale_grows_with_the_backlog_and_shrinks_when_idle(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 1, .max = 4, .idle_ms = 100});
    int64_t n = 3;

    assert_ok(fiber_pool_apply(pool, square, &n, 8, NULL));
    assert_int_equal(stats_of(pool).target, 1);
    meet(pool, 4);
    assert_comes(stats_of(pool).target == 1 && fiber_pool_worker_stats(pool, NULL, 0) == 1);
    meet(pool, 3);
    assert_true(fiber_pool_worker_stats(pool, NULL, 0) <= 4);
    assert_int_equal(stats_of(pool).deaths, 0);
    fiber_pool_close(pool);
}

/* Tasks that are expected to take no time are handed out ahead; then the one before them takes long. */
static void test_autoscale_grows_for_what_waits_in_a_worker(void **state)
{
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){.min = 1, .max = 4});
    struct fiber_result *r[4];
    uint32_t before;
    int64_t n = 3;

    open_gate();
    for (int i = 0; i < 20; i++)
        assert_ok(fiber_pool_apply(pool, wait_at_gate, &n, 8, NULL));
    before = atomic_load(&board->arrived);
    atomic_store(&board->gate, 0);
    for (int i = 0; i < 4; i++)
        r[i] = apply_later(pool, wait_at_gate, i, NULL);
    assert_int_equal(wait_for(&board->arrived, before + 4), 0); /* all at once */
    open_gate();
    for (int i = 0; i < 4; i++) {
        assert_ok(fiber_result_wait(r[i], WAIT_MS));
        assert_int_equal(number_of(r[i], 0), i * i);
        fiber_result_close(r[i]);
    }
    fiber_pool_close(pool);
}

static void test_a_pool_may_shrink_to_nobody_and_come_back(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 0, .max = 2, .idle_ms = 50});

    assert_int_equal(fiber_pool_worker_stats(pool, NULL, 0), 0);
    meet(pool, 2);
    assert_comes(fiber_pool_worker_stats(pool, NULL, 0) == 0);
    meet(pool, 2);
    fiber_pool_close(pool);
}

static int three_inputs(void *user, struct fiber_bytes *in)
{
    int *left = user;

    *in = (struct fiber_bytes){left, sizeof(*left)};
    return (*left)-- > 0;
}

static void test_a_lazy_source_makes_a_pool_grow(void **state)
{
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){.min = 1, .max = 3});
    int left = 3;
    struct fiber_imap *it;
    struct fiber_bytes out;

    assert_ok(fiber_pool_imap(pool, wait_at_gate, three_inputs, &left, 3, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, NULL, &out, 0), -ETIMEDOUT);
    assert_int_equal(wait_for(&board->arrived, 3), 0);
    open_gate();
    fiber_imap_close(it);
    fiber_pool_close(pool);
}

static void test_several_pools_work_at_once(void **state)
{
    struct fiber_pool *pool[4];
    struct fiber_result *r[4];
    int64_t in[1000], out[4][1000];

    for (int i = 0; i < 1000; i++)
        in[i] = i;
    for (int i = 0; i < 4; i++)
        pool[i] = open_pool(1 + i % 2);
    for (int i = 0; i < 4; i++)
        assert_ok(fiber_pool_map_array(pool[i], square, in, 8, out[i], 8, 1000, NULL, &r[i]));
    fiber_pool_close(pool[0]);
    for (int i = 1; i < 4; i++) {
        assert_ok(fiber_result_wait(r[i], WAIT_MS));
        for (int k = 0; k < 1000; k++)
            assert_int_equal(out[i][k], k * k);
        fiber_pool_close(pool[i]);
    }
    for (int i = 0; i < 4; i++)
        fiber_result_close(r[i]);
}

static void test_wrong_options_are_refused(void **state)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 1};
    struct fiber_pool *pool = NULL;

    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = 8};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .serve = 1};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .min = -1};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .job.command = (const char *const[]){NULL}};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .job.cpus = -1};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .job.gpus = -1};
    assert_int_equal(fiber_pool_open(&pool, &o), -EINVAL);
    o = (struct fiber_pool_options){.size = sizeof(o), .backend = "no-such"};
    assert_int_equal(fiber_pool_open(&pool, &o), -ENOENT);
    assert_contains(fiber_last_error(), "no-such");
    assert_null(pool);
    fiber_pool_close(NULL);
}

/* ---- Several workers in one job ---- */

static void test_jobs_hold_several_workers(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 5, .max = 5, .workers_per_job = 2});
    int64_t in[300], out[300];
    struct fiber_worker_stats w[5];

    for (int i = 0; i < 300; i++)
        in[i] = i;
    meet(pool, 5);
    assert_int_equal(children_active(NULL), 8); /* three hosts */
    assert_ok(fiber_pool_map(pool, square, in, 8, out, 8, 300, NULL));
    assert_int_equal(fiber_pool_worker_stats(pool, w, 5), 5);
    assert_int_equal(kill((pid_t)w[1].pid, SIGKILL), 0);
    assert_comes(stats_of(pool).deaths == 1);
    meet(pool, 5);
    assert_ok(fiber_pool_map(pool, kill_worker, in, 8, out, 8, 0, NULL));
    assert_ok(fiber_pool_resize(pool, 1));
    assert_comes(children_active(NULL) == 2);
    fiber_pool_close(pool);
}

/* ---- Figures ---- */

/* Squares; the first to run task STOPS stops its host, which has then not passed on all that was answered before. */
#define STOPS 300

static int stop_host(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n;

    memcpy(&n, in, sizeof(n));
    if (atomic_fetch_add(&board->runs[n], 1) == 0 && n == STOPS) {
        kill(getppid(), SIGSTOP);
        add(&board->arrived);
        if (wait_for(&board->gate, 1) < 0) /* it is killed */
            return -ETIME;
    }
    return square(in, len, reply);
}

/* Forks a child that returns from the task as well, and waits for its end. */
static int fork_and_return(const void *in, size_t len, struct fiber_reply *reply)
{
    pid_t pid = fork();
    struct pollfd end = {.events = POLLIN};
    int ended;

    if (pid <= 0) {
        setsid(); /* as daemon() does: out of the reach of those who end the worker's group */
        return pid;
    }
    end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    ended = poll(&end, 1, 20000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(end.fd);
    return ended == 1 ? fiber_reply_write(reply, in, len)
                      : fiber_reply_fail(reply, -EBUSY, "waits");
}

static int own_parent(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t pid = getppid();

    return fiber_reply_write(reply, &pid, sizeof(pid));
}

/* With a time limit each task is a batch, whose result has left before the next one begins. */
static void test_what_a_killed_worker_has_answered_is_not_run_again(void **state)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 1, .max = 1, .workers_per_job = 2});
    struct fiber_map_options o = {
        .size = sizeof(o), .retries = FIBER_RETRIES_DEFAULT, .timeout_ms = WAIT_MS};
    int64_t in[2 * STOPS], out[2 * STOPS], worker, host;
    struct fiber_worker_stats w[2];
    struct fiber_result *r;

    for (int i = 0; i < 2 * STOPS; i++)
        in[i] = i;
    assert_ok(fiber_pool_map(pool, own_parent, in, 8, &host, 8, 1, NULL));
    assert_ok(fiber_pool_map_array(pool, stop_host, in, 8, out, 8, 2 * STOPS, &o, &r));
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_int_equal(fiber_pool_worker_stats(pool, w, 2), 1);
    worker = w[0].pid;
    assert_true(worker > 1 && host > 1 && host != getpid());
    assert_int_equal(kill((pid_t)worker, SIGKILL), 0);
    assert_int_equal(kill((pid_t)host, SIGCONT), 0);
    assert_ok(fiber_result_wait(r, WAIT_MS));
    for (int i = 0; i < 2 * STOPS; i++) {
        assert_int_equal(out[i], (int64_t)i * i);
        assert_int_equal(atomic_load(&board->runs[i]), i == STOPS ? 2 : 1);
    }
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static void test_figures_add_up(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct fiber_worker_stats w[3];
    struct fiber_pool_stats s;
    int64_t in[500] = {0}, out[500];
    uint64_t tasks = 0, overheads = 0, alone;

    meet(pool, 2);
    for (int i = 0; i < 10; i++)
        assert_ok(fiber_pool_apply(pool, nap_1ms, in, 8, NULL));
    s = stats_of(pool);
    for (int i = 0; i < FIBER_POOL_BUCKETS; i++)
        overheads += s.overhead_us[i];
    assert_int_equal(overheads, s.messages);
    alone = s.messages;
    overheads = 0;
    assert_ok(fiber_pool_map(pool, nap_1ms, in, 8, out, 8, 90, NULL));
    assert_int_equal(fiber_pool_map(pool, refuse_odd, (int64_t[]){1, 3}, 8, out, 8, 2, NULL),
                     -EDOM);
    s = stats_of(pool);
    assert_int_equal(s.workers, 2);
    assert_int_equal(s.starting, 0);
    assert_int_equal(s.busy, 0);
    assert_int_equal(s.target, 2);
    assert_int_equal(s.submitted, 104);
    assert_int_equal(s.done, 104);
    assert_int_equal(s.failed, 2);
    assert_int_equal(s.waiting + s.running, 0);
    for (int i = 0; i < FIBER_POOL_BUCKETS; i++) {
        tasks += s.task_us[i];
        overheads += s.overhead_us[i];
    }
    assert_int_equal(tasks, 104);
    assert_in_range(overheads, alone + 1, s.messages); /* some may have come back whole */
    for (int i = 0; i < 9; i++)
        assert_true(i < 2 || s.task_us[i] == 0 ||
                    s.task_us[i] <= 4); /* naps of 1 ms are in bucket 9 or above */
    assert_int_equal(fiber_pool_worker_stats(pool, w, 3), 2);
    assert_int_equal(w[0].tasks + w[1].tasks, 104);
    assert_true(w[0].busy + w[1].busy >= 0.1);
    assert_true(w[0].pid > 0 && w[1].pid > 0 && w[0].pid != w[1].pid);
    assert_string_not_equal(w[0].name, w[1].name);
    assert_int_equal(w[0].state, 1);
    s.size = 8;
    assert_int_equal(fiber_pool_stats(pool, &s), -EINVAL);
    fiber_pool_close(pool);
}

/* ---- Worker programs of their own ---- */

static void test_another_program_serves(void **state)
{
    const char *const command[] = {TEST_PROGRAM_DIR "/serve_prog", NULL};
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 2, .max = 2, .serve = 1, .job.command = command});
    struct fiber_bytes in[4] = {{"abc", 3}, {"", 0}, {"fail", 4}, {"die", 3}};
    struct fiber_result *r;
    const void *data;
    size_t len;

    assert_ok(fiber_pool_map_async(pool, NULL, in, 4, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_MS));
    assert_ok(fiber_result_get(r, 0, &data, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(data, "cba", 3);
    assert_ok(fiber_result_get(r, 1, &data, &len));
    assert_int_equal(len, 0);
    assert_int_equal(error_of(r, 2, "as you like"), -1000);
    assert_int_equal(error_of(r, 3, "signal 6"), -EOWNERDEAD);
    fiber_result_close(r);
    fiber_pool_close(pool);
}

static void test_a_program_that_does_not_serve_is_reported(void **state)
{
    const char *const command[] = {TEST_PROGRAM_DIR "/serve_prog", "refuse", NULL},
                      *const none[] = {"/no/such", NULL};
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 1, .max = 1, .serve = 1, .job.command = command});

    assert_int_equal(fiber_pool_apply(pool, NULL, "x", 1, NULL), -ECHILD);
    assert_contains(fiber_last_error(), "no licence found");
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("start_patience", "0ms"));
    pool = open_pool_with(
        (struct fiber_pool_options){.min = 1, .max = 1, .serve = 1, .job.command = none});
    assert_int_equal(fiber_pool_apply(pool, NULL, "x", 1, NULL), -ECHILD);
    assert_contains(fiber_last_error(), "/no/such");
    fiber_pool_close(pool);
    assert_ok(fiber_config_set("start_patience", "30s"));
}

/* ---- Shortages ---- */

/* Workers of a script that writes a line for each start and fails, but for the starts with these
 * numbers: as when something runs short. */
struct shortage {
    char dir[64], script[80];
    const char *command[6];
};

static void begin_shortage(struct shortage *s, const char *works)
{
    static const char text[] = "#!/bin/sh\n"
                               "echo >>\"$1/starts\"; n=$(wc -l <\"$1/starts\")\n"
                               "case $2,$(cat \"$1/enough\" 2>/dev/null), in *,$n,*|*all*)\n"
                               "exec \"$3\";; esac\n"
                               "exit 1\n";
    FILE *f;

    snprintf(s->dir, sizeof(s->dir), "/tmp/crew-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->script, sizeof(s->script), "%s/run", s->dir);
    f = fopen(s->script, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fchmod(fileno(f), 0700), 0);
    fclose(f);
    memcpy(s->command,
           (const char *[]){s->script, s->dir, works, TEST_PROGRAM_DIR "/serve_prog", NULL},
           5 * sizeof(char *));
}

static struct fiber_pool *open_short(const struct shortage *s)
{
    return open_pool_with((struct fiber_pool_options){
        .min = 1, .max = 1, .workers_per_job = 1, .serve = 1, .job.command = s->command});
}

/* How many starts there were. */
static long starts(const struct shortage *s)
{
    char path[80];
    struct stat st;

    snprintf(path, sizeof(path), "%s/starts", s->dir);
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

static void end_shortage(const struct shortage *s)
{
    static const char *const files[] = {"run", "starts", "enough"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[80];

        snprintf(path, sizeof(path), "%s/%s", s->dir, files[i]);
        unlink(path);
    }
    rmdir(s->dir);
}

static void test_a_shortage_passes(void **state)
{
    struct fiber_pool *pool;
    struct shortage s;

    begin_shortage(&s, ",6");
    pool = open_short(&s);
    assert_ok(fiber_pool_apply(pool, NULL, "x", 1, NULL));
    assert_int_equal(starts(&s), 6);
    fiber_pool_close(pool);
    end_shortage(&s);
}

/* No shortage: the next one would not run either. */
static void test_a_program_that_is_not_there_ends_a_pool_soon(void **state)
{
    static const char *const nowhere[] = {"/nowhere/program", NULL};
    struct fiber_pool *pool = open_pool_with((struct fiber_pool_options){
        .min = 3, .max = 3, .workers_per_job = 1, .serve = 1, .job.command = nowhere});

    assert_int_equal(fiber_pool_apply(pool, NULL, "x", 1, NULL), -ECHILD);
    assert_non_null(strstr(fiber_last_error(), "4 workers in a row could not be started"));
    assert_non_null(strstr(fiber_last_error(), "/nowhere/program"));
    fiber_pool_close(pool);
}

static void test_gpus_that_are_not_there_end_a_pool_soon(void **state)
{
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 3, .max = 3, .workers_per_job = 1, .job.gpus = 1000});
    int64_t n = 3;

    assert_int_equal(fiber_pool_apply(pool, square, &n, 8, NULL), -ECHILD);
    assert_non_null(strstr(fiber_last_error(), "4 workers in a row could not be started"));
    fiber_pool_close(pool);
}

static void test_the_next_map_of_a_pool_that_gave_up_tries_again(void **state)
{
    struct fiber_pool *pool;
    struct shortage s;
    char path[80];
    FILE *f;

    assert_ok(fiber_config_set("start_patience", "0ms"));
    begin_shortage(&s, "none");
    pool = open_short(&s);
    assert_int_equal(fiber_pool_apply(pool, NULL, "x", 1, NULL), -ECHILD);
    assert_int_equal(starts(&s), 4);
    snprintf(path, sizeof(path), "%s/enough", s.dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("all", f);
    fclose(f);
    assert_ok(fiber_pool_apply(pool, NULL, "x", 1, NULL));
    fiber_pool_close(pool);
    end_shortage(&s);
    assert_ok(fiber_config_set("start_patience", "30s"));
}

static void test_starts_that_fail_while_others_work_do_not_add_up(void **state)
{
    struct fiber_worker_stats w[2];
    struct fiber_pool *pool;
    struct shortage s;

    assert_ok(fiber_config_set("start_patience", "0ms"));
    begin_shortage(&s, ",1,6,7"); /* two at a time, once nobody works */
    pool = open_short(&s);
    assert_ok(fiber_pool_apply(pool, NULL, "x", 1, NULL));
    assert_ok(fiber_pool_resize(pool, 2));
    assert_comes(starts(&s) >= 4);
    assert_in_range(fiber_pool_worker_stats(pool, w, 2), 1, 2); /* the first one is the oldest */
    assert_int_equal(kill((pid_t)w[0].pid, SIGKILL), 0);
    assert_comes(starts(&s) >= 5);
    assert_ok(fiber_pool_apply(pool, NULL, "x", 1, NULL));
    fiber_pool_close(pool);
    end_shortage(&s);
    assert_ok(fiber_config_set("start_patience", "30s"));
}

static void test_a_forked_child_that_returns_from_a_task_ends(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    int64_t in = 7, out = 0;

    assert_ok(fiber_pool_map(pool, fork_and_return, &in, 8, &out, 8, 1, NULL));
    assert_int_equal(out, 7);
    fiber_pool_close(pool);
}

static void test_serving_needs_a_pool(void **state)
{
    assert_int_equal(fiber_serve(NULL), -EINVAL);
    assert_int_equal(fiber_serve(square), -ENODATA);
}

/* ---- What the program sees of them ---- */

static void test_workers_are_not_children_of_the_programs_own(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    int others = children_active(NULL);

    assert_true(others >= 2);
    assert_int_equal(fiber_active_children(NULL, 0), 0);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_the_initializer_runs_once_in_each_worker),
        pool_test(test_a_failing_initializer_breaks_the_pool_and_says_why),
        pool_test(test_a_worker_that_does_not_start_is_tried_again),
        pool_test(test_a_large_pool_waits_for_all_that_are_on_their_way),
        pool_test(test_workers_are_replaced_after_their_share_of_tasks),
        pool_test(test_workers_have_the_environment_that_was_there_when_the_pool_was_opened),
        pool_test(test_a_killed_worker_is_replaced_and_its_task_runs_again),
        pool_test(test_a_worker_is_killed_by_its_name_and_its_task_runs_again),
        pool_test(test_a_worker_that_shares_its_job_is_killed_alone),
        pool_test(test_resizing_while_a_map_runs_loses_nothing),
        pool_test(test_a_pool_that_shrinks_keeps_the_workers_that_started_first),
        pool_test(test_a_drained_worker_finishes_its_task),
        pool_test(test_autoscale_grows_with_the_backlog_and_shrinks_when_idle),
        pool_test(test_autoscale_grows_for_what_waits_in_a_worker),
        pool_test(test_a_pool_may_shrink_to_nobody_and_come_back),
        pool_test(test_a_lazy_source_makes_a_pool_grow),
        pool_test(test_several_pools_work_at_once),
        pool_test(test_wrong_options_are_refused),
        pool_test(test_jobs_hold_several_workers),
        pool_test(test_what_a_killed_worker_has_answered_is_not_run_again),
        pool_test(test_figures_add_up),
        pool_test(test_another_program_serves),
        pool_test(test_a_program_that_does_not_serve_is_reported),
        pool_test(test_a_shortage_passes),
        pool_test(test_a_program_that_is_not_there_ends_a_pool_soon),
        pool_test(test_gpus_that_are_not_there_end_a_pool_soon),
        pool_test(test_the_next_map_of_a_pool_that_gave_up_tries_again),
        pool_test(test_starts_that_fail_while_others_work_do_not_add_up),
        pool_test(test_a_forked_child_that_returns_from_a_task_ends),
        pool_test(test_serving_needs_a_pool),
        pool_test(test_workers_are_not_children_of_the_programs_own),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "crew");
}
