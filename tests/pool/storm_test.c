/* storm_test.c - pools whose jobs hold three workers each, while hosts and workers are killed,
 * stopped and woken at random, and the program resizes, cancels and closes at random: every map
 * ends, what it says is true, nothing is left.
 *
 * STORM_SEED repeats a run's choices, STORM_EVENTS says how many things happen.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/tasks.h"

#define PER_JOB 3
#define MOST 6
#define MAPS 3
#define TASKS 400

static uint64_t seed, random_state;
static int events = 120;

struct map {
    struct fiber_result *r;
    int64_t in[TASKS], out[TASKS];
    _Atomic int called[TASKS];
    bool cancelled;
};

static struct map maps[MAPS];
static struct fiber_pool *pool;

static uint32_t draw(uint32_t n) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    struct map *m = user;

    (void)code;
    (void)data;
    (void)len;
    atomic_fetch_add(&m->called[index], 1);
}

static void begin_map(struct map *m)
{
    struct fiber_map_options o = {
        .size = sizeof(o), .retries = 1000, .on_done = on_done, .user = m};

    for (int i = 0; i < TASKS; i++) {
        m->in[i] = i;
        m->out[i] = -1;
        atomic_store(&m->called[i], 0);
    }
    m->cancelled = false;
    assert_ok(fiber_pool_map_array(pool, nap_1ms, m->in, 8, m->out, 8, TASKS, &o, &m->r));
}

/* Every task has one end: its square, an error that the program asked for, or the reports of three
 * deaths at which it was there. */
static void end_map(struct map *m)
{
    assert_ok(fiber_result_wait(m->r, WAIT_MS));
    for (size_t i = 0; i < TASKS; i++) {
        const void *data;
        size_t len;
        int rc = fiber_result_get(m->r, i, &data, &len);

        assert_int_equal(atomic_load(&m->called[i]), 1);
        if (rc == 0)
            assert_int_equal(number(data, len), i * i);
        else if ((rc != -ECANCELED || !m->cancelled) && !is_blamed(rc, data, len))
            fail_msg("task %zu failed with %d: %.*s", i, rc, (int)len, (const char *)data);
    }
    fiber_result_close(m->r);
    m->r = NULL;
}

static void open_it(void)
{
    pool = open_pool_with((struct fiber_pool_options){
        .min = 1 + (int)draw(3), .max = MOST, .workers_per_job = PER_JOB, .idle_ms = 20});
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
    pid = one && one->state != 0 ? (pid_t)one->pid : 0;
    if (pid <= 1)
        return 0;
    parent = parent_of(pid);
    if (draw(2) && parent > 1 && parent != getpid() && parent_of(parent) == getpid())
        return parent;
    return parent > 1 && (parent == getpid() || parent_of(parent) == getpid()) ? pid : 0;
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
        fiber_result_cancel_task(m->r, draw(TASKS));
}

static void one_event(void)
{
    struct map *m = &maps[draw(MAPS)];
    uint32_t what = draw(32);

    if (what < 8)
        harm(SIGKILL);
    else if (what < 12)
        harm(SIGSTOP);
    else if (what < 15)
        wake_one();
    else if (what < 20)
        change_size();
    else if (what < 23)
        cancel();
    else if (what < 24) {
        close_it();
        open_it();
    } else if (!m->r)
        begin_map(m);
    else if (what < 26)
        end_map(m);
    else
        fiber_result_wait_task(m->r, draw(TASKS), (int)draw(50));
}

static void test_a_storm(void **state)
{
    (void)state;
    print_message("STORM_SEED=%llu STORM_EVENTS=%d\n", (unsigned long long)seed, events);
    random_state = seed;
    open_it();
    for (int i = 0; i < events; i++)
        one_event();
    assert_ok(fiber_pool_resize(pool, 2));
    for (int i = 0; i < MAPS; i++)
        if (maps[i].r)
            end_map(&maps[i]);
    meet(pool, 2); /* it is well afterwards */
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {pool_test(test_a_storm)};
    const char *text = getenv("STORM_SEED"), *number_text = getenv("STORM_EVENTS");

    setenv("FIBER_HEARTBEAT", "500ms", 0);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    if (number_text)
        events = atoi(number_text);
    return run_pool_tests(tests, "storm");
}
