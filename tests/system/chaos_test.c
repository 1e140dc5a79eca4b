/* chaos_test.c - 20,000 tasks of 1 ms while workers are killed, frozen, crashed and told to exit:
 * nothing is lost, nothing comes twice, nothing takes for ever.
 *
 * Every event goes into one history in shared memory: a task is submitted, a worker begins to
 * execute it, its result is delivered. Each execution has a number of its own, which is part of its
 * result. The checker goes through the history when all is over. The seed is printed; CHAOS_SEED
 * repeats a run's choices, CHAOS_TASKS says how many tasks, CHAOS_ONLY is a pattern of the names of
 * tests.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

#define WORKERS 6
#define EVERY_MS 200
#define EVENTS (1u << 18)
#define WAIT_S 300 /* only a failure reaches it */
/* Where frozen workers are to be noticed. Elsewhere nobody is to be taken for frozen, however busy
 * the machine is. */
#define SOON "500ms"
#define NOTICED_MS (3 * 500)
#define NEVER "1h"
#define FAILS(i) ((i) % 997 == 500) /* these have a user error */

enum event_kind { SUBMITTED = 1, EXECUTED, DELIVERED, FAILED };

struct event {
    _Atomic uint32_t kind;
    uint32_t task, execution;
};

struct history {
    _Atomic uint32_t n, executions;
    _Atomic uint32_t exit_now; /* the process that is to exit in its next task */
    _Atomic uint32_t die_now;  /* or to be killed in it */
    _Atomic uint32_t hits;     /* workers that were harmed, so that their deaths must be seen */
    _Atomic uint32_t killed;   /* of these, in the middle of a task */
    struct event events[EVENTS];
};

static struct history *history;
static char history_path[64];
static uint64_t seed, random_state;
static uint32_t n_tasks = SANITIZED ? 5000 : 20000;

static uint32_t draw(uint32_t n) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

/* ---- The history ---- */

static void record(enum event_kind kind, uint32_t task, uint32_t execution)
{
    uint32_t at = atomic_fetch_add(&history->n, 1);

    if (at >= EVENTS)
        return;
    history->events[at].task = task;
    history->events[at].execution = execution;
    atomic_store_explicit(&history->events[at].kind, kind, memory_order_release);
}

static int worker_init(const void *arg, size_t len)
{
    return len ? map_shared(arg, sizeof(*history), &history) : -EINVAL;
}

struct tally {
    uint32_t submitted, executed, delivered, failed;
    uint32_t most_executions; /* of one task */
    uint32_t wrong;
};

/* Goes through the events in their order. What a task may see: one submission, then executions,
 * then one end; its end is the result of one of the executions before it, or a failure. An
 * execution may come behind the end: a worker that was taken for dead. */
static struct tally check_history(void)
{
    struct per_task {
        uint32_t submitted, executed, ended;
    } *tasks = calloc(n_tasks, sizeof(*tasks));
    uint32_t n = atomic_load(&history->n), executions = atomic_load(&history->executions);
    uint32_t *by_execution = calloc(executions + 1, sizeof(*by_execution)); /* its task, plus 1 */
    struct tally t = {0};

    assert_true(n < EVENTS);
    for (uint32_t i = 0; i < n; i++) {
        const struct event *e = &history->events[i];
        struct per_task *task = &tasks[e->task];

        switch (atomic_load_explicit(&e->kind, memory_order_acquire)) {
        case SUBMITTED:
            t.submitted++;
            t.wrong += task->submitted++ != 0;
            break;
        case EXECUTED:
            t.executed++;
            t.wrong += !task->submitted;
            by_execution[e->execution] = e->task + 1;
            if (++task->executed > t.most_executions)
                t.most_executions = task->executed;
            break;
        case DELIVERED:
            t.delivered++;
            t.wrong += task->ended++ != 0 || by_execution[e->execution] != e->task + 1;
            break;
        case FAILED:
            t.failed++;
            t.wrong += task->ended++ != 0; /* its worker may have died before it began */
            break;
        default: /* its writer was killed before it was whole */
            break;
        }
    }
    for (uint32_t i = 0; i < n_tasks; i++)
        t.wrong += tasks[i].submitted != 1 || tasks[i].ended != 1;
    free(tasks);
    free(by_execution);
    return t;
}

/* ---- Tasks ---- */

static void spin_us(int64_t us)
{
    double until = now_s() + (double)us * 1e-6;

    while (now_s() < until)
        continue;
}

struct answer {
    int64_t square;
    uint32_t execution, task;
};

static int work(int64_t n, int64_t us, struct fiber_reply *reply)
{
    struct answer a = {n * n, atomic_fetch_add(&history->executions, 1), (uint32_t)n};
    uint32_t me = (uint32_t)getpid();

    record(EXECUTED, (uint32_t)n, a.execution);
    if (us >= 1000)
        nap_us(us);
    else
        spin_us(us);
    /* A hit is counted before the order to be hit is gone (is_noticed()). */
    if (atomic_load(&history->exit_now) == me) {
        atomic_fetch_add(&history->hits, 1);
        atomic_store(&history->exit_now, 0);
        exit(0);
    }
    if (atomic_load(&history->die_now) == me) {
        atomic_fetch_add(&history->hits, 1);
        atomic_fetch_add(&history->killed, 1);
        atomic_store(&history->die_now, 0);
        raise(SIGKILL);
    }
    if (FAILS(n))
        return fiber_reply_fail(reply, -EDOM, "execution %u of %lld", a.execution, (long long)n);
    return fiber_reply_write(reply, &a, sizeof(a));
}

static int work_1ms(const void *in, size_t len, struct fiber_reply *reply)
{
    return work(number(in, len), 1000, reply);
}

static int work_100us(const void *in, size_t len, struct fiber_reply *reply)
{
    return work(number(in, len), 100, reply);
}

/* ---- A run ---- */

struct run {
    struct fiber_pool *pool;
    struct fiber_result *r;
    int64_t *in;
    struct fiber_bytes *bytes;
    bool *ended;
    uint32_t lost, blamed, wrong;
};

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct run *run = user;
    const struct answer *a = data;
    unsigned execution = 0;
    long long n = -1;
    char text[4096];

    __atomic_store_n(&run->ended[index], true, __ATOMIC_RELEASE);
    if (code == 0) {
        run->wrong +=
            len != sizeof(*a) || a->square != (int64_t)(index * index) || a->task != index;
        record(DELIVERED, (uint32_t)index, a->execution);
        return;
    }
    snprintf(text, sizeof(text), "%.*s", (int)len, (const char *)data);
    if (code == -EDOM) {
        run->wrong += sscanf(text, "execution %u of %lld", &execution, &n) != 2;
        run->wrong += n != (long long)index || !FAILS(index);
        record(DELIVERED, (uint32_t)index, execution);
        return;
    }
    record(FAILED, (uint32_t)index, 0);
    run->wrong += code != -EOWNERDEAD;
    if (strstr(text, "workers died")) {
        printf("blamed: %s\n", text);
        run->blamed++;
    } else {
        run->lost++;
    }
}

static struct run begin_run(void)
{
    struct run run = {.in = calloc(n_tasks, sizeof(*run.in)),
                      .bytes = calloc(n_tasks, sizeof(*run.bytes)),
                      .ended = calloc(n_tasks, sizeof(*run.ended))};

    atomic_store(&history->n, 0);
    atomic_store(&history->executions, 0);
    atomic_store(&history->exit_now, 0);
    atomic_store(&history->die_now, 0);
    atomic_store(&history->hits, 0);
    atomic_store(&history->killed, 0);
    for (uint32_t i = 0; i < n_tasks; i++) {
        run.in[i] = i;
        run.bytes[i] = (struct fiber_bytes){&run.in[i], sizeof(run.in[i])};
    }
    for (uint32_t i = 0; i < EVENTS; i++)
        atomic_store(&history->events[i].kind, 0);
    run.pool = open_pool_with((struct fiber_pool_options){.min = WORKERS,
                                                          .max = WORKERS,
                                                          .init = worker_init,
                                                          .init_arg = history_path,
                                                          .init_len = strlen(history_path) + 1});
    return run;
}

static void submit(struct run *run, fiber_task_fn fn, int retries)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};

    for (uint32_t i = 0; i < n_tasks; i++)
        record(SUBMITTED, i, 0);
    o.retries = retries;
    o.on_done = on_done;
    o.user = run;
    assert_ok(fiber_pool_map_async(run->pool, fn, run->bytes, n_tasks, &o, &run->r));
}

/* The process ids of workers that are up. */
static int find_workers(struct fiber_pool *pool, pid_t pids[WORKERS])
{
    struct fiber_worker_stats w[4 * WORKERS];
    int n = fiber_pool_worker_stats(pool, w, 4 * WORKERS), found = 0;

    for (int i = 0; i < n && i < 4 * WORKERS && found < WORKERS; i++)
        if ((w[i].state == 1 || w[i].state == 2) && w[i].pid > 1)
            pids[found++] = (pid_t)w[i].pid;
    return found;
}

typedef void (*harm_fn)(struct fiber_pool *pool, pid_t *pids, int n);

static void hit(pid_t pid, int sig)
{
    if (kill(pid, sig) == 0)
        atomic_fetch_add(&history->hits, 1);
}

static void harm_kill(struct fiber_pool *pool, pid_t *pids, int n)
{
    hit(pids[draw((uint32_t)n)], SIGKILL);
}

/* At any moment, or in the middle of a task. */
static void harm_kill_in_task(struct fiber_pool *pool, pid_t *pids, int n)
{
    if (draw(2))
        harm_kill(pool, pids, n);
    else
        atomic_store(&history->die_now, (uint32_t)pids[draw((uint32_t)n)]);
}

static void harm_freeze(struct fiber_pool *pool, pid_t *pids, int n)
{
    hit(pids[draw((uint32_t)n)], SIGSTOP);
}

/* Some come back before anybody has noticed, some too late. */
static void harm_freeze_and_thaw(struct fiber_pool *pool, pid_t *pids, int n)
{
    pid_t victim = pids[draw((uint32_t)n)];

    kill(victim, SIGSTOP);
    nap_us(draw(2) ? 50000 : (NOTICED_MS + 1000) * 1000);
    kill(victim, SIGCONT);
}

static void harm_crash(struct fiber_pool *pool, pid_t *pids, int n)
{
    /* sanitizers take long to report the other */
    hit(pids[draw((uint32_t)n)], SANITIZED ? SIGILL : SIGSEGV);
}

static void harm_exit(struct fiber_pool *pool, pid_t *pids, int n)
{
    atomic_store(&history->exit_now, (uint32_t)pids[draw((uint32_t)n)]);
}

static void harm_half(struct fiber_pool *pool, pid_t *pids, int n)
{
    for (int i = 0; i < n / 2; i++)
        hit(pids[i], SIGKILL);
}

/* All of the first `n` have come to their end, the ones that a harm sent back included. */
static bool all_ended(const struct run *run, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!__atomic_load_n(&run->ended[i], __ATOMIC_ACQUIRE))
            return false;
    return true;
}

/* Nobody who was harmed is given tasks any more. */
static bool is_noticed(struct fiber_pool *pool)
{
    return !atomic_load(&history->exit_now) && !atomic_load(&history->die_now) &&
           stats_of(pool).deaths >= atomic_load(&history->hits);
}

/* Harms; returns how many tasks may have been hit: those that were handed out before it was
 * noticed. These are the first ones, of which some are back by then. */
static uint32_t harm_once(struct run *run, harm_fn harm, pid_t *pids, int n)
{
    struct fiber_pool_stats before = stats_of(run->pool), after;
    uint64_t reach;

    harm(run->pool, pids, n);
    while (!is_noticed(run->pool) && fiber_result_wait(run->r, 1) == -ETIMEDOUT)
        continue;
    after = stats_of(run->pool);
    reach = n_tasks - after.waiting + (after.requeued - before.requeued);
    if (reach < n_tasks - before.waiting)
        reach = n_tasks - before.waiting;
    return reach < n_tasks ? (uint32_t)reach : n_tasks;
}

static void harm_until_done(struct run *run, harm_fn harm, int every_ms)
{
    double until = now_s() + WAIT_S;
    uint32_t reach = 0;
    int wait_ms = 1; /* the first one as soon as somebody works */
    pid_t pids[WORKERS];

    /* A task that is hit again when it comes back is rightly blamed: so not before those that were
     * hit, or may have been, are done. */
    while (fiber_result_wait(run->r, wait_ms) == -ETIMEDOUT) {
        int n = find_workers(run->pool, pids);

        if (now_s() > until)
            fail_msg("%zu of %u tasks are done after %d s", fiber_result_done(run->r), n_tasks,
                     WAIT_S);
        if (n == 0 || !all_ended(run, reach))
            continue;
        reach = harm_once(run, harm, pids, n);
        wait_ms = every_ms / 2 + (int)draw((uint32_t)every_ms);
    }
}

/* Who was harmed last may have held nothing, so that all is done before it is missed. Only where
 * workers freeze may others die too: those that were woken too late, or never froze. */
static struct tally end(struct run *run, const char *what, double began, bool freezing)
{
    struct tally t = check_history();
    struct fiber_pool_stats s;

    assert_comes(stats_of(run->pool).deaths >= atomic_load(&history->hits));
    s = stats_of(run->pool);
    printf("%s: %.1f s, %u executions of %u tasks, %u hits, %llu deaths, %u lost, %u blamed, "
           "%llu results dropped\n",
           what, now_s() - began, t.executed, t.submitted, atomic_load(&history->hits),
           (unsigned long long)s.deaths, run->lost, run->blamed, (unsigned long long)s.dropped);
    assert_int_equal(run->wrong, 0);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.submitted, n_tasks);
    assert_int_equal(t.delivered + t.failed, n_tasks);
    assert_true(s.deaths == atomic_load(&history->hits) || freezing);
    fiber_result_close(run->r);
    fiber_pool_close(run->pool);
    free(run->in);
    free(run->bytes);
    free(run->ended);
    return t;
}

static void check_nothing_is_lost(const char *what, fiber_task_fn fn, harm_fn harm)
{
    bool freezing = harm == harm_freeze || harm == harm_freeze_and_thaw;
    double began = now_s();
    struct run run;
    struct tally t;

    assert_ok(fiber_config_set("heartbeat", freezing ? SOON : NEVER));
    run = begin_run();
    submit(&run, fn, FIBER_RETRIES_DEFAULT);
    harm_until_done(&run, harm, fn == work_1ms ? EVERY_MS : EVERY_MS / 4);
    t = end(&run, what, began, freezing);
    assert_ok(fiber_config_set("heartbeat", NEVER));
    assert_int_equal(t.failed, 0);
}

static void test_nothing_is_lost_when_workers_are_killed(void **state)
{
    check_nothing_is_lost("SIGKILL", work_1ms, harm_kill);
}

static void test_nothing_is_lost_when_workers_freeze(void **state)
{
    check_nothing_is_lost("SIGSTOP", work_1ms, harm_freeze);
}

static void test_nothing_comes_twice_when_frozen_workers_come_back(void **state)
{
    check_nothing_is_lost("SIGSTOP, SIGCONT", work_1ms, harm_freeze_and_thaw);
}

static void test_nothing_is_lost_when_workers_crash(void **state)
{
    check_nothing_is_lost("SIGSEGV", work_1ms, harm_crash);
}

static void test_nothing_is_lost_when_workers_exit_0_in_a_task(void **state)
{
    check_nothing_is_lost("exit(0)", work_1ms, harm_exit);
}

static void test_nothing_is_lost_when_half_of_the_workers_die_at_once(void **state)
{
    check_nothing_is_lost("half at once", work_1ms, harm_half);
}

static void test_nothing_is_lost_when_workers_die_within_batches(void **state)
{
    check_nothing_is_lost("short tasks, half at once", work_100us, harm_half);
}

/* No death takes more than one task with it, and none runs again. */
static void test_without_retries_every_task_runs_at_most_once(void **state)
{
    double began = now_s();
    struct run run = begin_run();
    uint32_t whole = n_tasks;
    struct tally t;
    uint64_t deaths;

    n_tasks /= 2;
    submit(&run, work_1ms, FIBER_RETRIES_NONE);
    harm_until_done(&run, harm_kill_in_task, EVERY_MS);
    deaths = stats_of(run.pool).deaths;
    assert_in_range(run.lost, atomic_load(&history->killed), deaths);
    assert_int_equal(run.blamed, 0);
    t = end(&run, "no retries", began, false);
    assert_int_equal(t.most_executions, 1);
    assert_int_equal(t.failed, run.lost);
    n_tasks = whole;
}

/* ---- Tasks that kill ---- */

#define KILLS(i) ((i) % 1000 == 321)

static int kill_some(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    return KILLS(n) ? kill_worker(in, len, reply) : count_run(in, len, reply);
}

static void test_killers_are_blamed_and_their_neighbours_are_not(void **state)
{
    struct fiber_pool *pool = open_pool(WORKERS);
    int64_t in[5000], out[5000];
    uint32_t runs = 0;
    struct fiber_result *r;
    const void *text;
    size_t len;

    for (int i = 0; i < 5000; i++)
        in[i] = i;
    assert_ok(fiber_pool_map_array(pool, kill_some, in, 8, out, 8, 5000, NULL, &r));
    assert_ok(fiber_result_wait(r, WAIT_S * 1000));
    for (size_t i = 0; i < 5000; i++) {
        if (!KILLS(i)) {
            assert_int_equal(number_of(r, i), i * i);
            continue;
        }
        assert_int_equal(fiber_result_get(r, i, &text, &len), -EOWNERDEAD);
        if (count_in(text, "was killed by signal 9") != 3)
            fail_msg("%s", (const char *)text);
        assert_true(atomic_load(&board->runs[i]) >= 3);
        runs += atomic_load(&board->runs[i]);
    }
    /* A death counts for the batch whose results are missing: when the results of the one before
     * were lost on their way, the killer gets away with it that time. */
    assert_int_equal(stats_of(pool).deaths, runs);
    fiber_result_close(r);
    meet(pool, WORKERS);
    fiber_pool_close(pool);
}

/* ---- A lazy source ---- */

#define WINDOW 300

struct source {
    struct run *run;
    uint32_t taken, handed_out, most;
};

static int next_input(void *user, struct fiber_bytes *in)
{
    struct source *s = user;

    if (s->taken == n_tasks)
        return 0;
    record(SUBMITTED, s->taken, 0);
    *in = s->run->bytes[s->taken++];
    if (s->taken - s->handed_out > s->most)
        s->most = s->taken - s->handed_out;
    return 1;
}

static void test_a_lazy_source_stays_within_its_window(void **state)
{
    double began = now_s(), harmed = began;
    uint32_t reach = 0; /* of the last harm, as in harm_until_done() */
    bool noticed = true;
    struct run run = begin_run();
    struct source s = {.run = &run};
    struct fiber_imap *it;
    pid_t pids[WORKERS];

    assert_ok(fiber_pool_imap(run.pool, work_1ms, next_input, &s, WINDOW, FIBER_IMAP_UNORDERED,
                              NULL, &it));
    for (;;) {
        struct fiber_bytes out;
        size_t index = 0;
        int rc = fiber_imap_next(it, &index, &out, WAIT_S * 1000), n;

        if (rc == 0)
            break;
        s.handed_out++;
        assert_true(rc == 1 || rc == -EDOM);
        if (rc == 1)
            on_done(&run, index, 0, out.data, out.len);
        else
            on_done(&run, index, rc, fiber_last_error(), strlen(fiber_last_error()));
        fiber_bytes_free(&out);
        if (!noticed && is_noticed(run.pool)) {
            noticed = true;
            reach = s.taken;
        }
        if (noticed && now_s() - harmed > EVERY_MS / 1e3 && all_ended(&run, reach) &&
            (n = find_workers(run.pool, pids)) > 0) {
            harm_kill(run.pool, pids, n);
            harmed = now_s();
            noticed = false;
        }
    }
    assert_int_equal(s.most, WINDOW);
    fiber_imap_close(it);
    assert_int_equal(end(&run, "lazy source", began, false).failed, 0);
}

/* ---- */

static int make_history(void **state)
{
    if (warm_up(state) < 0)
        return -1;
    snprintf(history_path, sizeof(history_path), "/tmp/fiber-test-history-XXXXXX");
    if (make_shared(history_path, sizeof(struct history)) < 0)
        return -1;
    return map_shared(history_path, sizeof(*history), &history);
}

static int drop_history(void **state)
{
    munmap(history, sizeof(*history));
    unlink(history_path);
    return cool_down(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_nothing_is_lost_when_workers_are_killed),
        pool_test(test_nothing_is_lost_when_workers_freeze),
        pool_test(test_nothing_comes_twice_when_frozen_workers_come_back),
        pool_test(test_nothing_is_lost_when_workers_crash),
        pool_test(test_nothing_is_lost_when_workers_exit_0_in_a_task),
        pool_test(test_nothing_is_lost_when_half_of_the_workers_die_at_once),
        pool_test(test_nothing_is_lost_when_workers_die_within_batches),
        pool_test(test_without_retries_every_task_runs_at_most_once),
        pool_test(test_killers_are_blamed_and_their_neighbours_are_not),
        pool_test(test_a_lazy_source_stays_within_its_window),
    };
    const char *text = getenv("CHAOS_SEED");

    assert_ok(fiber_init(&argc, &argv));
    seed = text ? strtoull(text, NULL, 0) : (uint64_t)(now_s() * 1e6) ^ (uint64_t)getpid() << 32;
    random_state = seed;
    if (getenv("CHAOS_ONLY"))
        cmocka_set_test_filter(getenv("CHAOS_ONLY"));
    if (getenv("CHAOS_TASKS"))
        n_tasks = (uint32_t)strtoul(getenv("CHAOS_TASKS"), NULL, 0);
    printf("CHAOS_SEED=%llu\n", (unsigned long long)seed);
    assert_ok(fiber_config_set("heartbeat", NEVER));
    assert_ok(fiber_config_set("start_timeout", NEVER)); /* four failed starts end a pool */
    return cmocka_run_group_tests_name("chaos", tests, make_history, drop_history);
}
