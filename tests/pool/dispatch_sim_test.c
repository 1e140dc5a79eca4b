/* dispatch_sim_test.c - the scheduling engine against simulated workers: how long things take, and
 * chaos.
 *
 * A discrete simulation with its own clock: workers that take messages after a latency, run tasks
 * one after the other, report about every millisecond, die, freeze, are slow. The master costs no
 * time. Each run is a pure function of its seed; FIBER_TEST_SEED sets that of the random ones.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/dispatch.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define LATENCY (30 * US) /* of each message */
#define REPORT_EVERY MS
#define MAX_MAPS 8

/* ---- the simulation ---- */

enum event_kind {
    TASKS,
    RECALL,
    TASK_ENDS,
    FLUSH,
    RESULTS,
    RETURNED,
    DEATH_SEEN,
    STARTED,
    THAW,
    WAKE,
    TROUBLE
};

struct event {
    uint64_t at, number; /* same time: in the order of their making */
    enum event_kind kind;
    uint32_t worker; /* index in sim.workers */
    uint64_t batch, map;
    uint64_t first;
    uint32_t count, pos;
    uint64_t busy;
};

struct sim_batch {
    uint64_t id, map, first;
    uint32_t count, started, ended, reported;
};

struct sim_worker {
    uint64_t id;
    double slow; /* its task times over those of others */
    bool dead, frozen, gone;
    struct sim_batch batches[3];
    unsigned n;
    uint64_t reported_at, busy, running;
};

struct sim_map {
    uint64_t id, tasks, ended, failed, finished_at;
    int retries;
    uint64_t (*duration)(uint64_t index);
    uint64_t killer; /* index of a task that kills its worker; UINT64_MAX: none */
    uint8_t *over;
};

struct sim {
    struct fbr_dispatch *d;
    uint64_t now, number, rng, wake;
    struct event *heap;
    uint32_t n, cap;
    struct sim_worker *workers;
    uint32_t nworkers, room;
    struct sim_map maps[MAX_MAPS];
    uint32_t nmaps;
    uint64_t unfinished;
    uint64_t detect, spawn; /* how long it takes to see a death, to start a replacement */
    uint32_t trouble;       /* mean ms between faults; 0: none */
    uint32_t innocent_blamed;
};

static uint64_t random_u64(struct sim *s)
{
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return s->rng;
}

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void post(struct sim *s, struct event e)
{
    uint32_t at = s->n++;

    if (s->n > s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->heap = realloc(s->heap, s->cap * sizeof(e));
        assert_non_null(s->heap);
    }
    e.number = ++s->number;
    for (; at && earlier(&e, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = e;
}

static struct event next_event(struct sim *s)
{
    struct event first = s->heap[0], last = s->heap[--s->n];
    uint32_t at = 0, child;

    for (; (child = 2 * at + 1) < s->n; at = child) {
        if (child + 1 < s->n && earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (earlier(&last, &s->heap[child]))
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return first;
}

static struct sim_map *map_of(struct sim *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->nmaps; i++)
        if (s->maps[i].id == id)
            return &s->maps[i];
    fail_msg("no such map");
    return NULL;
}

static void task_over(struct sim *s, struct sim_map *m, uint64_t index)
{
    assert_true(index < m->tasks);
    assert_int_equal(m->over[index], 0);
    m->over[index] = 1;
    s->unfinished--;
    if (++m->ended == m->tasks)
        m->finished_at = s->now;
}

/* ---- workers ---- */

static uint32_t add_worker(struct sim *s, double slow)
{
    struct sim_worker *w;

    if (s->nworkers == s->room) {
        s->room = s->room ? s->room * 2 : 64;
        s->workers = realloc(s->workers, s->room * sizeof(*w));
        assert_non_null(s->workers);
    }
    w = &s->workers[s->nworkers];
    memset(w, 0, sizeof(*w));
    w->slow = slow;
    assert_int_equal(
        fbr_dispatch_worker_add(s->d, s->now, (void *)(uintptr_t)s->nworkers, 0, &w->id), 0);
    return s->nworkers++;
}

static void worker_dies(struct sim *s, uint32_t i)
{
    s->workers[i].dead = true;
    post(s, (struct event){.at = s->now + s->detect, .kind = DEATH_SEEN, .worker = i});
}

static void worker_reports(struct sim *s, uint32_t i)
{
    struct sim_worker *w = &s->workers[i];
    struct sim_batch *b = &w->batches[0];

    post(s, (struct event){.at = s->now + LATENCY,
                           .kind = RESULTS,
                           .worker = i,
                           .batch = b->id,
                           .map = b->map,
                           .first = b->first,
                           .pos = b->reported,
                           .count = b->ended - b->reported,
                           .busy = w->busy});
    b->reported = b->ended;
    w->busy = 0;
    w->reported_at = s->now;
}

/* A long task runs: what was finished before it is reported without it. */
static void on_flush(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    if (!w->dead && !w->frozen && w->n && w->batches[0].id == e->batch &&
        w->batches[0].ended > w->batches[0].reported)
        worker_reports(s, e->worker);
}

static void worker_starts_task(struct sim *s, uint32_t i)
{
    struct sim_worker *w = &s->workers[i];
    struct sim_batch *b = &w->batches[0];
    struct sim_map *m;
    uint64_t index, ns;

    if (w->dead || w->frozen || !w->n || b->started > b->ended)
        return;
    m = map_of(s, b->map);
    index = b->first + b->started++;
    ns = (uint64_t)((double)m->duration(index) * w->slow);
    if (index == m->killer) {
        worker_dies(s, i);
        return;
    }
    w->running = ns;
    post(s, (struct event){.at = s->now + ns, .kind = TASK_ENDS, .worker = i, .batch = b->id});
    if (ns > REPORT_EVERY && b->ended > b->reported)
        post(s, (struct event){
                    .at = s->now + REPORT_EVERY, .kind = FLUSH, .worker = i, .batch = b->id});
}

static void worker_next_batch(struct sim_worker *w)
{
    memmove(&w->batches[0], &w->batches[1], sizeof(w->batches[0]) * 2);
    w->n--;
}

static void on_task_ends(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];
    struct sim_batch *b = &w->batches[0];

    if (w->dead)
        return;
    if (w->frozen) { /* it ends when it thaws */
        post(s, (struct event){.at = s->now + 10 * MS,
                               .kind = TASK_ENDS,
                               .worker = e->worker,
                               .batch = e->batch});
        return;
    }
    assert_int_equal(b->id, e->batch);
    b->ended++;
    w->busy += w->running;
    if (b->ended == b->count || s->now - w->reported_at >= REPORT_EVERY)
        worker_reports(s, e->worker);
    if (b->ended == b->count)
        worker_next_batch(w);
    worker_starts_task(s, e->worker);
}

static void on_tasks(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    if (w->dead)
        return;
    assert_in_range(w->n, 0, 1);
    w->batches[w->n++] =
        (struct sim_batch){.id = e->batch, .map = e->map, .first = e->first, .count = e->count};
    worker_starts_task(s, e->worker);
}

static void on_recall(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    if (w->dead)
        return;
    if (w->frozen) {
        struct event later = *e;

        later.at = s->now + 10 * MS;
        post(s, later);
        return;
    }
    for (unsigned i = 0; i < w->n; i++) {
        struct sim_batch *b = &w->batches[i];

        if (b->id != e->batch)
            continue;
        b->count = b->started;
        post(s, (struct event){.at = s->now + LATENCY,
                               .kind = RETURNED,
                               .worker = e->worker,
                               .batch = b->id,
                               .pos = b->count});
        if (!b->count) {
            assert_int_equal(i, w->n - 1);
            w->n--;
        }
        return;
    }
}

/* ---- the master ---- */

static void pull(struct sim *s)
{
    struct fbr_dispatch_batch b;
    struct fbr_dispatch_order o;
    uint64_t wake;

    while (fbr_dispatch_next(s->d, s->now, &b) > 0)
        post(s, (struct event){.at = s->now + LATENCY,
                               .kind = TASKS,
                               .worker = (uint32_t)(uintptr_t)b.worker_user,
                               .batch = b.id,
                               .map = b.map,
                               .first = b.first,
                               .count = b.count});
    while (fbr_dispatch_order(s->d, s->now, &o) > 0)
        if (o.kind == FBR_DISPATCH_RECALL)
            post(s, (struct event){.at = s->now + LATENCY,
                                   .kind = RECALL,
                                   .worker = (uint32_t)(uintptr_t)o.worker_user,
                                   .batch = o.batch});
    wake = fbr_dispatch_wake(s->d);
    if (wake != FBR_DISPATCH_NEVER && (wake < s->wake || s->wake <= s->now)) {
        s->wake = wake > s->now ? wake : s->now + 1;
        post(s, (struct event){.at = s->wake, .kind = WAKE});
    }
}

static void on_results(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];

    if (w->gone)
        return;
    assert_int_equal(
        fbr_dispatch_results(s->d, s->now, w->id, e->batch, e->pos, e->count, e->busy, take, &out),
        0);
    for (uint32_t i = 0; i < e->count; i++)
        if (take[i])
            task_over(s, map_of(s, e->map), out.first + i);
}

static void on_failure(struct sim *s, const struct fbr_dispatch_failure *f)
{
    struct sim_map *m = map_of(s, f->map);

    m->failed++;
    s->innocent_blamed += f->why == FBR_DISPATCH_BLAMED && f->index != m->killer;
    assert_true(f->why == FBR_DISPATCH_BLAMED ||
                (m->retries >= 0 && f->deaths <= (unsigned)m->retries + 1));
    task_over(s, m, f->index);
}

static void on_death_seen(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];
    struct fbr_dispatch_failure f;

    if (fbr_dispatch_worker_dead(s->d, s->now, w->id, e->worker, 0, &f))
        on_failure(s, &f);
    if (w->dead) {
        fbr_dispatch_worker_remove(s->d, s->now, w->id, &f);
        w->gone = true;
    }
    post(s, (struct event){.at = s->now + s->spawn, .kind = STARTED});
}

/* One fault: a worker dies, or freezes (and is fenced, and wakes up later and goes on), or gets
 * slower. */
static void on_trouble(struct sim *s)
{
    uint32_t i = (uint32_t)(random_u64(s) % s->nworkers);
    struct sim_worker *w = &s->workers[i];
    unsigned what = random_u64(s) % 8;

    post(s, (struct event){.at = s->now + random_u64(s) % (2 * s->trouble * MS), .kind = TROUBLE});
    if (w->dead || w->frozen)
        return;
    if (what < 5) {
        worker_dies(s, i);
    } else if (what < 7) {
        w->frozen = true;
        if (what == 5)
            post(s, (struct event){.at = s->now + 50 * MS, .kind = DEATH_SEEN, .worker = i});
        post(s, (struct event){.at = s->now + 20 * MS + random_u64(s) % (100 * MS),
                               .kind = THAW,
                               .worker = i});
    } else {
        w->slow = 1 + (double)(random_u64(s) % 10);
    }
}

static void handle(struct sim *s, const struct event *e)
{
    struct fbr_dispatch_worker info;

    switch (e->kind) {
    case TASKS:
        on_tasks(s, e);
        break;
    case RECALL:
        on_recall(s, e);
        break;
    case TASK_ENDS:
        on_task_ends(s, e);
        break;
    case FLUSH:
        on_flush(s, e);
        break;
    case RESULTS:
        on_results(s, e);
        break;
    case RETURNED:
        if (!s->workers[e->worker].gone &&
            !fbr_dispatch_worker_get(s->d, s->workers[e->worker].id, &info) && !info.dead)
            assert_int_equal(
                fbr_dispatch_returned(s->d, s->now, s->workers[e->worker].id, e->batch, e->pos), 0);
        break;
    case DEATH_SEEN:
        on_death_seen(s, e);
        break;
    case STARTED:
        add_worker(s, 1);
        break;
    case THAW:
        s->workers[e->worker].frozen = false;
        worker_starts_task(s, e->worker);
        break;
    case TROUBLE:
        on_trouble(s);
        break;
    case WAKE:
        break;
    }
}

static void check(const struct sim *s)
{
    const char *wrong = fbr_dispatch_check(s->d);

    if (wrong)
        fail_msg("%s", wrong);
}

/* Runs until `left` tasks are not over, and no longer than `limit`. */
static void run_until(struct sim *s, uint64_t left, uint64_t limit)
{
    uint64_t steps = 0;

    for (pull(s); s->unfinished > left; pull(s)) {
        struct event e;

        assert_true(s->n > 0);
        e = next_event(s);
        assert_true(e.at >= s->now);
        s->now = e.at;
        if (s->now > limit)
            fail_msg("%llu tasks are not over at %llu ms", (unsigned long long)s->unfinished,
                     (unsigned long long)(s->now / MS));
        handle(s, &e);
        if (++steps % 4096 == 0)
            check(s);
    }
    check(s);
}

static void run(struct sim *s, uint64_t limit)
{
    run_until(s, 0, limit);
}

static void sim_open(struct sim *s, uint32_t workers)
{
    memset(s, 0, sizeof(*s));
    s->d = fbr_dispatch_open(NULL);
    assert_non_null(s->d);
    s->rng = 88172645463325252u;
    s->detect = MS;
    s->spawn = 5 * MS;
    for (uint32_t i = 0; i < workers; i++)
        add_worker(s, 1);
}

static void sim_close(struct sim *s)
{
    fbr_dispatch_close(s->d);
    for (uint32_t i = 0; i < s->nmaps; i++)
        free(s->maps[i].over);
    free(s->workers);
    free(s->heap);
}

static struct sim_map *add_map(struct sim *s, uint64_t tasks, int retries,
                               uint64_t (*duration)(uint64_t index))
{
    struct sim_map *m = &s->maps[s->nmaps++];
    struct fbr_dispatch_map map = {.user = m, .tasks = tasks, .retries = retries};

    *m = (struct sim_map){
        .tasks = tasks, .retries = retries, .duration = duration, .killer = UINT64_MAX};
    m->over = calloc(tasks, 1);
    assert_non_null(m->over);
    assert_int_equal(fbr_dispatch_map_add(s->d, &map, &m->id), 0);
    s->unfinished += tasks;
    return m;
}

/* ---- how long tasks take ---- */

static uint64_t takes_1us(uint64_t index)
{
    (void)index;
    return US;
}

static uint64_t takes_20us(uint64_t index)
{
    (void)index;
    return 20 * US;
}

static uint64_t takes_1ms(uint64_t index)
{
    (void)index;
    return MS;
}

static uint64_t takes_10ms(uint64_t index)
{
    (void)index;
    return 10 * MS;
}

static uint64_t takes_50ms(uint64_t index)
{
    (void)index;
    return 50 * MS;
}

static uint64_t takes_2s_at_first(uint64_t index)
{
    return index == 0 ? 2 * SECOND : 50 * MS;
}

static uint64_t takes_half_a_second_once(uint64_t index)
{
    return index == 5000 ? SECOND / 2 : 20 * US;
}

/* From 1 us to 16 ms, most of them short. */
static uint64_t takes_anything(uint64_t index)
{
    uint64_t x = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    return US << (x & x >> 8 & x >> 16 & 15 ? 1 + (x >> 40) % 5 : x % 14);
}

/* ---- how long maps take ---- */

static void print_time(const char *what, const struct sim *s, uint64_t floor)
{
    struct fbr_dispatch_stats stats;

    fbr_dispatch_stats(s->d, &stats);
    print_message(
        "    %s: %.2f ms, floor %.2f, %.3f x; %llu batches, %llu recalls, %llu tasks returned\n",
        what, (double)s->now / MS, (double)floor / MS, (double)s->now / (double)floor,
        (unsigned long long)stats.batches, (unsigned long long)stats.recalls,
        (unsigned long long)stats.returned);
}

static void expect_within(uint32_t workers, uint64_t tasks, uint64_t (*duration)(uint64_t),
                          double factor, uint64_t slack)
{
    uint64_t floor = tasks * duration(1) / workers;
    struct sim s;

    sim_open(&s, workers);
    add_map(&s, tasks, 2, duration);
    run(&s, SECOND * 100);
    print_time("even tasks", &s, floor);
    assert_true((double)s.now <= (double)floor * factor + (double)slack);
    sim_close(&s);
}

static void short_tasks_keep_every_worker_busy(void **state)
{
    (void)state;
    expect_within(5, 5000, takes_1ms, 1.03, 0);
    expect_within(5, 500, takes_10ms, 1.03, 0);
    expect_within(5, 100000, takes_20us, 1.05, 0);
    expect_within(1, 1000, takes_1ms, 1.01, 0);
}

static void a_thousand_workers_are_kept_busy(void **state)
{
    (void)state;
    expect_within(1024, 2048, takes_50ms, 1.03, 0);
    expect_within(1024, 102400, takes_1ms, 1.03, 0);
}

static void a_few_short_tasks_go_out_at_once(void **state)
{
    (void)state;
    expect_within(5, 5, takes_1ms, 1, 2 * LATENCY);
}

static void empty_tasks_travel_in_large_batches(void **state)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    (void)state;
    sim_open(&s, 5);
    add_map(&s, 1000000, 2, takes_1us);
    run(&s, 100 * SECOND);
    print_time("empty tasks", &s, 200 * MS);
    fbr_dispatch_stats(s.d, &stats);
    assert_true(stats.batches < 1000000 / 400);
    assert_true(s.now < 225 * MS);
    sim_close(&s);
}

static void one_long_task_does_not_hold_back_the_others(void **state)
{
    struct sim s;

    (void)state;
    sim_open(&s, 4);
    add_map(&s, 60, 2, takes_2s_at_first);
    run(&s, 3 * SECOND);
    print_time("straggler", &s, 2 * SECOND);
    assert_true(s.now <= 2001 * MS);
    sim_close(&s);
}

static void batch_mates_of_a_long_task_are_recalled(void **state)
{
    struct sim s;

    (void)state;
    sim_open(&s, 4);
    add_map(&s, 20000, 2, takes_half_a_second_once);
    run_until(&s, 1, 127 * MS);
    print_time("all but one", &s, 125 * MS); /* three workers, most of the time */
    assert_int_equal(s.maps[0].over[5000], 0);
    run(&s, SECOND);
    sim_close(&s);
}

static void slow_worker(uint64_t tasks, uint64_t (*duration)(uint64_t), double factor)
{
    uint64_t floor = (uint64_t)((double)(tasks * duration(0)) / 4.1);
    struct sim s;

    sim_open(&s, 5);
    s.workers[2].slow = 10;
    add_map(&s, tasks, 2, duration);
    run(&s, 100 * SECOND);
    print_time("one worker 10 x slower", &s, floor);
    assert_true((double)s.now < (double)floor * factor);
    sim_close(&s);
}

static void a_slow_worker_holds_nobody_back(void **state)
{
    (void)state;
    slow_worker(2000, takes_1ms, 1.03);
    slow_worker(100000, takes_20us, 1.05);
    slow_worker(1000, takes_10ms, 1.06);
}

static void a_frozen_worker_keeps_only_what_it_may_have_started(void **state)
{
    struct sim s;

    (void)state;
    sim_open(&s, 5);
    add_map(&s, 5000, 2, takes_1ms);
    s.workers[3].frozen =
        true; /* from the beginning: it takes its first batch and is not heard of again */
    post(&s, (struct event){.at = 15 * SECOND, .kind = DEATH_SEEN, .worker = 3});
    run_until(&s, 1, 1260 * MS);
    run(&s, 16 * SECOND);
    sim_close(&s);
}

/* ---- deaths ---- */

static void a_killer_is_blamed_and_its_batch_mates_are_not(void **state)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    (void)state;
    sim_open(&s, 5);
    add_map(&s, 20000, -1, takes_20us)->killer = 15000;
    run(&s, SECOND);
    fbr_dispatch_stats(s.d, &stats);
    print_time("with a killer", &s, 80 * MS);
    assert_int_equal(stats.blamed, 1);
    assert_int_equal(stats.deaths, 3);
    assert_int_equal(s.innocent_blamed, 0);
    assert_int_equal(s.maps[0].failed, 1);
    assert_true(s.now < 115 * MS);
    sim_close(&s);
}

static uint64_t test_seed(void)
{
    const char *text = getenv("FIBER_TEST_SEED");

    return text ? strtoull(text, NULL, 0) : 20240607;
}

static void chaos(uint64_t seed)
{
    struct fbr_dispatch_stats stats;
    struct sim s;
    uint64_t lost = 0;

    sim_open(&s, 5);
    s.rng = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t i = 5 + random_u64(&s) % 196; i > 5; i--)
        add_worker(&s, random_u64(&s) % 10 ? 1 : 10);
    s.trouble = 1 + (uint32_t)(random_u64(&s) % 10);
    for (uint64_t i = 1 + random_u64(&s) % 5; i > 0; i--)
        add_map(&s, 1 + random_u64(&s) % 20000, (int)(random_u64(&s) % 4) - 1, takes_anything);
    post(&s, (struct event){.at = 0, .kind = TROUBLE});
    run(&s, 300 * SECOND);
    fbr_dispatch_stats(s.d, &stats);
    for (uint32_t i = 0; i < s.nmaps; i++) {
        lost += s.maps[i].failed;
        for (uint64_t t = 0; t < s.maps[i].tasks; t++)
            assert_int_equal(s.maps[i].over[t], 1);
    }
    assert_int_equal(stats.waiting + stats.held, 0);
    assert_int_equal(stats.blamed + stats.lost, lost);
    assert_true(stats.deaths >= stats.blamed + stats.lost);
    print_message(
        "    seed %llu: %u workers, %u maps, %llu ms, %llu deaths, %llu requeued, %llu late, %llu "
        "dropped, %llu "
        "lost, %llu blamed, %llu recalls\n",
        (unsigned long long)seed, s.nworkers, s.nmaps, (unsigned long long)(s.now / MS),
        (unsigned long long)stats.deaths, (unsigned long long)stats.requeued,
        (unsigned long long)stats.late, (unsigned long long)stats.dropped,
        (unsigned long long)stats.lost, (unsigned long long)stats.blamed,
        (unsigned long long)stats.recalls);
    sim_close(&s);
}

static void every_task_ends_once_in_any_chaos(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (uint64_t i = 0; i < 12; i++)
        chaos(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_tasks_keep_every_worker_busy),
        cmocka_unit_test(a_thousand_workers_are_kept_busy),
        cmocka_unit_test(a_few_short_tasks_go_out_at_once),
        cmocka_unit_test(empty_tasks_travel_in_large_batches),
        cmocka_unit_test(one_long_task_does_not_hold_back_the_others),
        cmocka_unit_test(batch_mates_of_a_long_task_are_recalled),
        cmocka_unit_test(a_slow_worker_holds_nobody_back),
        cmocka_unit_test(a_frozen_worker_keeps_only_what_it_may_have_started),
        cmocka_unit_test(a_killer_is_blamed_and_its_batch_mates_are_not),
        cmocka_unit_test(every_task_ends_once_in_any_chaos),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
