/* dispatch_sim.h - simulated workers for tests of the scheduling engine, with their own clock.
 *
 * A discrete simulation: workers that take messages after a latency, run tasks one after the other,
 * report about every two milliseconds, die, freeze, are slow. The master costs no time. Each run is
 * a pure function of its seed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/dispatch.h"
#include "tests/support/dispatch_check.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define LATENCY (30 * US) /* of each message */
#define REPORT_EVERY (2 * MS)
#define MAX_MAPS 8

/* ---- how long tasks take ---- */

static inline uint64_t takes_1ms(uint64_t index)
{
    return MS;
}

static inline uint64_t takes_10ms(uint64_t index)
{
    return 10 * MS;
}

static inline uint64_t takes_50ms(uint64_t index)
{
    return 50 * MS;
}

/* ---- the simulation ---- */

enum event_kind {
    TASKS,
    RECALL,
    SKIP,
    TASK_ENDS,
    FLUSH,
    RESULTS,
    RETURNED,
    DEATH_SEEN,
    STARTED,
    DRAIN,
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
    uint64_t skip; /* a bit for each of the first 64 positions: cancelled */
};

struct sim_worker {
    uint64_t id;
    double slow; /* its task times over those of others */
    bool dead, frozen, gone;
    struct sim_batch batches[3];
    unsigned n;
    uint64_t reported_at, busy, running;
    uint64_t joined_at, first_at, gone_at; /* first_at: its first task began */
    uint32_t ran;                          /* tasks that it began */
};

struct sim_map {
    uint64_t id, tasks, ended, failed, finished_at;
    int retries;
    uint64_t (*duration)(uint64_t index);
    uint64_t killer; /* index of a task that kills its worker; UINT64_MAX: none */
    uint64_t given;  /* of an open map: tasks that it has; one more for each that is over */
    uint64_t began, began_last, first_at, last_at; /* tasks that began, the last of them; when */
    uint64_t timed_out;
    uint8_t *over, *ran;
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
    uint64_t max_tasks;     /* of each worker that starts; 0: no limit */
    uint32_t innocent_blamed, blamed, lost; /* tasks */
};

static inline uint64_t random_u64(struct sim *s)
{
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return s->rng;
}

static inline bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static inline void post(struct sim *s, struct event e)
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

static inline struct event next_event(struct sim *s)
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

static inline struct sim_map *map_of(struct sim *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->nmaps; i++)
        if (s->maps[i].id == id)
            return &s->maps[i];
    fail_msg("no such map");
    return NULL;
}

static inline void task_over(struct sim *s, struct sim_map *m, uint64_t index)
{
    assert_true(index < m->tasks);
    assert_int_equal(m->over[index], 0);
    m->over[index] = 1;
    s->unfinished--;
    if (++m->ended == m->tasks)
        m->finished_at = s->now;
    if (m->given < m->tasks) {
        m->given++;
        assert_int_equal(fbr_dispatch_map_grow(s->d, m->id, 1), 0);
    }
}

/* ---- workers ---- */

static inline uint32_t add_worker(struct sim *s, double slow)
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
    w->joined_at = s->now;
    assert_int_equal(
        fbr_dispatch_worker_add(s->d, s->now, (void *)(uintptr_t)s->nworkers, s->max_tasks, &w->id),
        0);
    return s->nworkers++;
}

static inline void worker_dies(struct sim *s, uint32_t i)
{
    s->workers[i].dead = true;
    post(s, (struct event){.at = s->now + s->detect, .kind = DEATH_SEEN, .worker = i});
}

static inline void worker_reports(struct sim *s, uint32_t i)
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
static inline void on_flush(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    if (!w->dead && !w->frozen && w->n && w->batches[0].id == e->batch &&
        w->batches[0].ended > w->batches[0].reported)
        worker_reports(s, e->worker);
}

static inline void note_began(struct sim *s, struct sim_worker *w, struct sim_map *m,
                              uint64_t index)
{
    if (!w->ran++)
        w->first_at = s->now;
    if (!m->began++)
        m->first_at = s->now;
    m->last_at = s->now;
    m->began_last = index;
    m->ran[index] += m->ran[index] < 255;
    assert_true(m->retries || m->ran[index] == 1);
}

static inline void worker_starts_task(struct sim *s, uint32_t i)
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
    if (b->started <= 64 && b->skip >> (b->started - 1) & 1)
        ns = 0;
    else
        note_began(s, w, m, index);
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

static inline void worker_next_batch(struct sim_worker *w)
{
    memmove(&w->batches[0], &w->batches[1], sizeof(w->batches[0]) * 2);
    w->n--;
}

static inline void on_task_ends(struct sim *s, const struct event *e)
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

static inline void on_tasks(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    if (w->dead)
        return;
    assert_in_range(w->n, 0, 1);
    if (!map_of(s, e->map)->retries) /* at most once, so alone */
        assert_int_equal(e->count + w->n, 1);
    if (w->n)
        assert_int_not_equal(map_of(s, w->batches[0].map)->retries, 0);
    w->batches[w->n++] =
        (struct sim_batch){.id = e->batch, .map = e->map, .first = e->first, .count = e->count};
    worker_starts_task(s, e->worker);
}

static inline void on_recall(struct sim *s, const struct event *e)
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

/* One that runs already is not stopped: its result is dropped. */
static inline void on_skip(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];

    for (unsigned i = 0; i < w->n; i++)
        if (w->batches[i].id == e->batch && e->pos < 64)
            w->batches[i].skip |= UINT64_C(1) << e->pos;
}

/* ---- the master ---- */

static inline void replace(struct sim *s, uint32_t i)
{
    s->workers[i].gone = true;
    s->workers[i].gone_at = s->now;
    post(s, (struct event){.at = s->now + s->spawn, .kind = STARTED});
}

static inline void on_timeout(struct sim *s, const struct fbr_dispatch_order *o)
{
    uint32_t i = (uint32_t)(uintptr_t)o->worker_user;
    struct fbr_dispatch_failure f;

    map_of(s, o->map)->timed_out++;
    task_over(s, map_of(s, o->map), o->index);
    s->workers[i].dead = true;
    assert_int_equal(
        fbr_dispatch_worker_dead(s->d, s->now, o->worker, i, FBR_DISPATCH_DISRUPTION, &f), 0);
    fbr_dispatch_worker_remove(s->d, s->now, o->worker, &f);
    replace(s, i);
}

static inline void carry_out(struct sim *s, const struct fbr_dispatch_order *o)
{
    struct event e = {.at = s->now + LATENCY,
                      .kind = RECALL,
                      .worker = (uint32_t)(uintptr_t)o->worker_user,
                      .batch = o->batch,
                      .pos = o->pos};
    struct fbr_dispatch_failure f;

    switch (o->kind) {
    case FBR_DISPATCH_CANCEL:
        if (o->pos != FBR_DISPATCH_ALL)
            e.kind = SKIP;
        post(s, e);
        break;
    case FBR_DISPATCH_RECALL:
        post(s, e);
        break;
    case FBR_DISPATCH_TIMEOUT:
        on_timeout(s, o);
        break;
    case FBR_DISPATCH_DRAINED:
        assert_int_equal(fbr_dispatch_worker_remove(s->d, s->now, o->worker, &f), 0);
        s->workers[e.worker].dead = true;
        replace(s, e.worker);
        break;
    }
}

/* Ends it; false: it was over. */
static inline bool cancel_task(struct sim *s, struct sim_map *m, uint64_t index)
{
    struct fbr_dispatch_order o;
    int rc = fbr_dispatch_task_cancel(s->d, m->id, index, &o);

    if (rc < 0)
        return false;
    if (rc > 0)
        carry_out(s, &o);
    task_over(s, m, index);
    return true;
}

static inline void pull(struct sim *s)
{
    struct fbr_dispatch_batch b;
    struct fbr_dispatch_order o;
    uint64_t wake;
    bool more;

    do {
        more = false;
        while (fbr_dispatch_next(s->d, s->now, &b) > 0)
            post(s, (struct event){.at = s->now + LATENCY,
                                   .kind = TASKS,
                                   .worker = (uint32_t)(uintptr_t)b.worker_user,
                                   .batch = b.id,
                                   .map = b.map,
                                   .first = b.first,
                                   .count = b.count});
        for (; fbr_dispatch_order(s->d, s->now, &o) > 0; more = true)
            carry_out(s, &o);
    } while (more); /* an order may have made room */
    wake = fbr_dispatch_wake(s->d);
    if (wake != FBR_DISPATCH_NEVER && (wake < s->wake || s->wake <= s->now)) {
        s->wake = wake > s->now ? wake : s->now + 1;
        post(s, (struct event){.at = s->wake, .kind = WAKE});
    }
}

static inline void on_results(struct sim *s, const struct event *e)
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

static inline void on_failure(struct sim *s, const struct fbr_dispatch_failure *f)
{
    struct sim_map *m = map_of(s, f->map);

    m->failed++;
    *(f->why == FBR_DISPATCH_BLAMED ? &s->blamed : &s->lost) += 1;
    s->innocent_blamed += f->why == FBR_DISPATCH_BLAMED && f->index != m->killer;
    assert_true(f->why == FBR_DISPATCH_BLAMED ||
                (m->retries >= 0 && f->deaths <= (unsigned)m->retries + 1));
    task_over(s, m, f->index);
}

static inline void on_death_seen(struct sim *s, const struct event *e)
{
    struct sim_worker *w = &s->workers[e->worker];
    struct fbr_dispatch_failure f;

    if (w->gone)
        return;
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
static inline void on_trouble(struct sim *s)
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

static inline void handle(struct sim *s, const struct event *e)
{
    switch (e->kind) {
    case TASKS:
        on_tasks(s, e);
        break;
    case RECALL:
        on_recall(s, e);
        break;
    case SKIP:
        on_skip(s, e);
        break;
    case DRAIN:
        fbr_dispatch_worker_drain(s->d, s->workers[e->worker].id);
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
        if (!s->workers[e->worker].gone && dispatch_held(s->d, s->workers[e->worker].id))
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

static inline void check(const struct sim *s)
{
    const char *wrong = dispatch_check(s->d);

    if (wrong)
        fail_msg("%s", wrong);
}

/* Runs until `left` tasks are not over, and no longer than `limit`. */
static inline void run_until(struct sim *s, uint64_t left, uint64_t limit)
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

static inline void run(struct sim *s, uint64_t limit)
{
    run_until(s, 0, limit);
}

/* Workers that run max_tasks each, 0: no limit. */
static inline void sim_open_with(struct sim *s, uint32_t workers, uint64_t max_tasks)
{
    memset(s, 0, sizeof(*s));
    s->max_tasks = max_tasks;
    s->d = fbr_dispatch_open(FBR_DISPATCH_BYTES_MAX);
    assert_non_null(s->d);
    s->rng = 88172645463325252u;
    s->detect = MS;
    s->spawn = 5 * MS;
    for (uint32_t i = 0; i < workers; i++)
        add_worker(s, 1);
}

static inline void sim_open(struct sim *s, uint32_t workers)
{
    sim_open_with(s, workers, 0);
}

static inline void sim_close(struct sim *s)
{
    fbr_dispatch_close(s->d);
    for (uint32_t i = 0; i < s->nmaps; i++) {
        free(s->maps[i].over);
        free(s->maps[i].ran);
    }
    free(s->workers);
    free(s->heap);
}

/* As `map` says; an open one begins with map.tasks, and grows to `tasks` by one for each that is
 * over. */
static inline struct sim_map *add_map_with(struct sim *s, struct fbr_dispatch_map map,
                                           uint64_t tasks, uint64_t (*duration)(uint64_t index))
{
    struct sim_map *m = &s->maps[s->nmaps++];

    assert_true(s->nmaps <= MAX_MAPS);
    *m = (struct sim_map){.tasks = tasks,
                          .given = map.tasks,
                          .retries = map.retries,
                          .duration = duration,
                          .killer = UINT64_MAX};
    map.user = m;
    m->over = calloc(tasks, 1);
    m->ran = calloc(tasks, 1);
    assert_non_null(m->over);
    assert_non_null(m->ran);
    assert_int_equal(fbr_dispatch_map_add(s->d, &map, &m->id), 0);
    s->unfinished += tasks;
    return m;
}

static inline struct sim_map *add_map(struct sim *s, uint64_t tasks, int retries,
                                      uint64_t (*duration)(uint64_t index))
{
    struct fbr_dispatch_map map = {.tasks = tasks, .retries = retries};

    return add_map_with(s, map, tasks, duration);
}
