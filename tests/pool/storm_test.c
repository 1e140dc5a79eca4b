/* storm_test.c - pools whose jobs hold several workers each, while hosts and workers are killed,
 * stopped and woken at random, tasks exit and kill their workers, and the program resizes, cancels
 * and closes at random: every map ends, what it says is true, nothing is left.
 *
 * Every execution of a task has a number, which it writes down in shared memory and returns: so a
 * result is known to be of that task, and a task that is run at most once to have run once. Inputs
 * and results are as long as 70 MiB and are looked through at both ends. Who is left without its
 * parent becomes our child, so that at the end all of them can be seen to have gone.
 *
 * STORM_SEED repeats a run's choices, STORM_EVENTS says how many things happen in each pool,
 * STORM_POOLS how many pools there are.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/prctl.h>

#include "tests/pool/tasks.h"

#define MOST 12 /* workers */
#define MOST_PER_JOB 16
#define MAPS 5 /* at once */
#define ALL_MAPS 1024
#define TASKS 256
#define EXECUTIONS (1u << 19)
#define MIB (1u << 20)
#define LONGEST (SANITIZED ? 9 * MIB : 70 * MIB)

enum kind { QUICK, NAP, LONG, EXITS_ONCE, DIES_ONCE, KILLS, KINDS };

struct history {
    _Atomic uint32_t executions, owners[EXECUTIONS]; /* of an execution: its task, plus 1 */
    _Atomic uint32_t runs[ALL_MAPS * TASKS];
};

/* In front of each input and each result; words of a pattern follow. */
struct head {
    uint32_t task; /* map x TASKS + index */
    uint32_t kind, execution;
    uint32_t answer; /* words of the result's pattern */
};

struct map {
    struct fiber_result *r;
    uint32_t number, n;
    struct fiber_bytes in[TASKS];
    _Atomic int called[TASKS];
    _Atomic int wrong;
    int retries;
    bool cancelled;
};

static struct history *history;
static char history_path[64];
static struct map maps[MAPS];
static uint32_t n_maps;
static struct fiber_pool *pool;
static uint64_t seed, random_state;
static int events = SANITIZED ? 30 : 60, pools = 3;

static uint32_t draw(uint32_t n) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

/* ---- Bytes ---- */

static uint64_t word_at(const struct head *h, size_t i)
{
    return (h->task + 1) * 0x9e3779b97f4a7c15u + i;
}

static void put_pattern(const struct head *h, uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        words[i] = word_at(h, i);
}

static bool is_pattern(const struct head *h, const void *bytes, size_t n)
{
    const uint64_t *words = bytes;
    size_t wrong = 0;

    for (size_t i = 0; i < n; i++)
        wrong += words[i] != word_at(h, i);
    return wrong == 0;
}

/* ---- In the workers ---- */

/* The argument: the paths of the board and of the history. */
static int init_worker(const void *arg, size_t len)
{
    const char *board_of = arg;
    int rc = board_init(board_of, len);

    return rc ? rc : map_shared(board_of + strlen(board_of) + 1, sizeof(*history), &history);
}

static int answer(const struct head *h, struct fiber_reply *reply)
{
    size_t n = h->answer;
    uint64_t *words = malloc(n * 8 + 1);
    int rc = words ? fiber_reply_write(reply, h, sizeof(*h)) : -ENOMEM;

    if (rc == 0) {
        put_pattern(h, words, n);
        rc = n ? fiber_reply_write(reply, words, n * 8) : 0;
    }
    free(words);
    return rc;
}

static int act(const void *in, size_t len, struct fiber_reply *reply)
{
    struct head h;
    bool first;

    if (len < sizeof(h))
        return fiber_reply_fail(reply, -EBADMSG, "an input of %zu bytes", len);
    memcpy(&h, in, sizeof(h));
    if (!is_pattern(&h, (const char *)in + sizeof(h), (len - sizeof(h)) / 8))
        return fiber_reply_fail(reply, -EBADMSG, "not what was sent");
    h.execution = atomic_fetch_add(&history->executions, 1);
    if (h.execution < EXECUTIONS)
        atomic_store(&history->owners[h.execution], h.task + 1);
    first = atomic_fetch_add(&history->runs[h.task], 1) == 0;
    if (h.kind == NAP || h.kind == LONG)
        nap_us(h.kind == NAP ? 1000 : 50000);
    else if (h.kind == EXITS_ONCE && first)
        exit(0);
    else if (h.kind == KILLS || (h.kind == DIES_ONCE && first))
        raise(SIGKILL);
    return answer(&h, reply);
}

/* ---- Maps ---- */

static bool is_answer(const struct map *m, size_t index, const void *data, size_t len)
{
    struct head h;

    if (len < sizeof(h))
        return false;
    memcpy(&h, data, sizeof(h));
    return h.task == m->number * TASKS + index && h.kind != KILLS &&
           len == sizeof(h) + h.answer * 8ull && h.execution < EXECUTIONS &&
           atomic_load(&history->owners[h.execution]) == h.task + 1 &&
           is_pattern(&h, (const char *)data + sizeof(h), h.answer);
}

/* Not on the test's thread. */
static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct map *m = user;

    atomic_fetch_add(&m->called[index], 1);
    if (code == 0 && !is_answer(m, index, data, len))
        atomic_fetch_add(&m->wrong, 1);
}

static uint32_t draw_words(bool large)
{
    return large ? draw(draw(4) ? MIB / 4 : LONGEST / 8) : draw(draw(4) ? 8 : 2048);
}

static void make_input(struct map *m, uint32_t index, bool large, uint32_t kind)
{
    struct head h = {m->number * TASKS + index, kind, 0, draw_words(large)};
    size_t n = draw_words(large);
    char *bytes = malloc(sizeof(h) + n * 8);

    assert_non_null(bytes);
    if (draw(8) == 0)
        h.kind = draw(KINDS);
    memcpy(bytes, &h, sizeof(h));
    put_pattern(&h, (uint64_t *)(void *)(bytes + sizeof(h)), n);
    m->in[index] = (struct fiber_bytes){bytes, sizeof(h) + n * 8};
}

static void begin_map(struct map *m)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    bool large = draw(5) == 0;
    uint32_t kind = draw(LONG + 1);

    if (n_maps == ALL_MAPS)
        return;
    m->number = n_maps++;
    m->n = 1 + draw(large ? 4 : kind == LONG ? 60 : TASKS);
    m->retries = draw(4) ? 1000 : 0;
    m->cancelled = false;
    atomic_store(&m->wrong, 0);
    for (uint32_t i = 0; i < m->n; i++) {
        make_input(m, i, large, kind);
        atomic_store(&m->called[i], 0);
    }
    o.retries = m->retries ? m->retries : FIBER_RETRIES_NONE;
    o.priority = (int)draw(3);
    o.on_done = on_done;
    o.user = m;
    assert_ok(fiber_pool_map_async(pool, act, m->in, m->n, &o, &m->r));
}

/* Every task has one end: its result, an error that the program asked for, the reports of three
 * deaths at which it was there, or of the one that it was not to survive. */
static void end_task(const struct map *m, size_t i)
{
    uint32_t runs = atomic_load(&history->runs[m->number * TASKS + i]);
    const void *data;
    size_t len;
    int rc = fiber_result_get(m->r, i, &data, &len);

    assert_int_equal(atomic_load(&m->called[i]), 1);
    assert_true(runs <= 1 || m->retries);
    if (rc == 0 ? !is_answer(m, i, data, len)
                : (rc != -ECANCELED || !m->cancelled) && (rc != -EOWNERDEAD || m->retries) &&
                      !is_blamed(rc, data, len))
        fail_msg("task %zu failed with %d: %.*s", i, rc, rc ? (int)len : 0, (const char *)data);
}

static void end_map(struct map *m)
{
    if (fiber_result_wait(m->r, WAIT_MS) < 0)
        fail_msg("%zu of %u tasks are done after %d s", fiber_result_done(m->r), m->n,
                 WAIT_MS / 1000);
    assert_int_equal(atomic_load(&m->wrong), 0);
    for (size_t i = 0; i < m->n; i++)
        end_task(m, i);
    fiber_result_close(m->r);
    m->r = NULL;
    for (size_t i = 0; i < m->n; i++)
        free((void *)(uintptr_t)m->in[i].data);
}

static void open_it(void)
{
    char paths[sizeof(board_path) + sizeof(history_path)];
    size_t at = strlen(board_path) + 1;
    struct fiber_pool_options o = {.min = 1 + (int)draw(MOST), .max = MOST, .idle_ms = 20};

    memcpy(paths, board_path, at);
    strcpy(paths + at, history_path);
    o.workers_per_job = 2 + (int)draw(MOST_PER_JOB - 1);
    o.tasks_per_child = draw(4) ? 0 : 1 + draw(100);
    o.init = init_worker;
    o.init_arg = paths;
    o.init_len = at + strlen(history_path) + 1;
    pool = open_pool_with(o);
}

static void close_it(void)
{
    for (int i = 0; i < MAPS; i++)
        maps[i].cancelled = true;
    fiber_pool_close(pool);
    for (int i = 0; i < MAPS; i++)
        if (maps[i].r)
            end_map(&maps[i]);
}

/* ---- What happens to processes ---- */

static pid_t stopped[64];
static int n_stopped;

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    int ppid = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (f && fgets(line, sizeof(line), f) && strrchr(line, ')'))
        sscanf(strrchr(line, ')') + 2, "%*c %d", &ppid);
    if (f)
        fclose(f);
    return ppid;
}

/* A worker, or its host; 0 when there is none, or it has just gone. One that has joined: four in a
 * row that do not come so far are the end of a pool. */
static pid_t somebody(void)
{
    struct fiber_worker_stats w[2 * MOST], *one;
    int n = fiber_pool_worker_stats(pool, w, 2 * MOST);
    pid_t pid, parent;

    if (n > 2 * MOST)
        n = 2 * MOST;
    one = n > 0 ? &w[draw((uint32_t)n)] : NULL;
    /* One that is draining may have been told to before it had joined. */
    pid = one && (one->tasks || one->state == 1 || one->state == 2) ? (pid_t)one->pid : 0;
    if (pid <= 1)
        return 0;
    parent = parent_of(pid);
    if (parent <= 1 || parent == getpid() || parent_of(parent) != getpid())
        return 0;
    return draw(2) ? parent : pid;
}

static void harm(int sig)
{
    pid_t pid = somebody();

    if (!pid || kill(pid, sig) < 0)
        return;
    if (sig == SIGSTOP && n_stopped < 64)
        stopped[n_stopped++] = pid;
}

static void wake_one(void)
{
    if (n_stopped)
        kill(stopped[--n_stopped], SIGCONT);
}

/* ---- What the program does ---- */

static void change_size(void)
{
    int min = (int)draw(MOST), max = min + (int)draw((uint32_t)(MOST - min)) + 1;

    if (draw(2))
        assert_ok(fiber_pool_resize(pool, 1 + (int)draw(MOST)));
    else
        assert_ok(fiber_pool_autoscale(pool, min, max));
}

static void cancel(void)
{
    struct map *m = &maps[draw(MAPS)];

    if (!m->r)
        return;
    m->cancelled = true;
    if (draw(4) == 0)
        fiber_result_cancel(m->r);
    else
        fiber_result_cancel_task(m->r, draw(m->n));
}

static void one_event(void)
{
    struct map *m = &maps[draw(MAPS)];
    uint32_t what = draw(32);

    if (what < 6)
        harm(SIGKILL);
    else if (what < 9)
        harm(SIGSTOP);
    else if (what < 12)
        wake_one();
    else if (what < 16)
        change_size();
    else if (what < 19)
        cancel();
    else if (!m->r)
        begin_map(m);
    else if (what < 22)
        end_map(m);
    else
        fiber_result_wait_task(m->r, draw(m->n), (int)draw(50));
}

static void one_pool(void)
{
    open_it();
    for (int i = 0; i < events; i++)
        one_event();
    if (draw(3) == 0) {
        close_it();
        return;
    }
    assert_ok(fiber_pool_resize(pool, 2));
    for (int i = 0; i < MAPS; i++)
        if (maps[i].r)
            end_map(&maps[i]);
    meet(pool, 2); /* it is well afterwards */
    fiber_pool_close(pool);
}

static void test_a_storm(void **state)
{
    print_message("STORM_SEED=%llu STORM_EVENTS=%d STORM_POOLS=%d\n", (unsigned long long)seed,
                  events, pools);
    random_state = seed;
    for (int i = 0; i < pools; i++) {
        n_stopped = 0;
        one_pool();
    }
    print_message("%u maps, %u executions\n", n_maps, atomic_load(&history->executions));
    assert_true(atomic_load(&history->executions) < EXECUTIONS);
}

/* ---- */

static int make_history(void **state)
{
    if (warm_up(state) < 0)
        return -1;
    snprintf(history_path, sizeof(history_path), "/tmp/fiber-test-history-XXXXXX");
    if (make_shared(history_path, sizeof(struct history)) < 0)
        return -1;
    return prctl(PR_SET_CHILD_SUBREAPER, 1) < 0
               ? -1
               : map_shared(history_path, sizeof(*history), &history);
}

/* Workers whose host was killed have become our children; nothing else is left of them. */
static int drop_history(void **state)
{
    double until = now_s() + WAIT_MS / 1e3;
    pid_t pid;

    munmap(history, sizeof(*history));
    unlink(history_path);
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && now_s() < until)
        if (pid == 0)
            nap_us(5000);
    return cool_down(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {pool_test(test_a_storm)};
    const char *text = getenv("STORM_SEED"), *number_text = getenv("STORM_EVENTS");
    const char *pools_text = getenv("STORM_POOLS");

    setenv("FIBER_HEARTBEAT", "500ms", 0);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    if (number_text)
        events = atoi(number_text);
    if (pools_text)
        pools = atoi(pools_text);
    return cmocka_run_group_tests_name("storm", tests, make_history, drop_history);
}
