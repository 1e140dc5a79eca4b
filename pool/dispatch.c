/* dispatch.c - the scheduling engine: its maps and workers, and the effects of a death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "pool/dispatch_priv.h"

/* ---- objects by id ---- */

static struct map *find_map(const struct fbr_dispatch *d, uint64_t id)
{
    struct map *m;

    HASH_FIND(hh, d->maps, &id, sizeof(id), m);
    return m;
}

struct dispatch_worker *fbr_dispatch_worker_find(const struct fbr_dispatch *d, uint64_t id)
{
    struct dispatch_worker *w;

    HASH_FIND(hh, d->workers, &id, sizeof(id), w);
    return w;
}

struct batch *fbr_dispatch_batch_find(const struct dispatch_worker *w, uint64_t id)
{
    struct batch *b;

    DL_FOREACH2(w->batches, b, worker_next)
    if (b->id == id)
        return b;
    return NULL;
}

/* ---- the engine ---- */

struct fbr_dispatch *fbr_dispatch_open(uint64_t max_bytes)
{
    struct fbr_dispatch *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->max_bytes = max_bytes;
    d->lowest = INT_MAX;
    d->timeout_at = FBR_DISPATCH_NEVER;
    return d;
}

void fbr_dispatch_close(struct fbr_dispatch *d)
{
    struct fbr_dispatch_failure failure;

    if (!d)
        return;
    while (d->maps)
        fbr_dispatch_map_close(d, d->maps->id);
    while (d->workers)
        fbr_dispatch_worker_remove(d, 0, d->workers->id, &failure);
    free(d->ready);
    free(d);
}

const struct fbr_dispatch_stats *fbr_dispatch_stats(const struct fbr_dispatch *d)
{
    return &d->stats;
}

/* ---- maps ---- */

static void tasks_came(struct fbr_dispatch *d, struct map *m, uint64_t tasks)
{
    fbr_map_wait(d, m, (int64_t)tasks, 0);
    d->outranked |= m->priority > d->lowest && d->loaded;
}

int fbr_dispatch_map_add(struct fbr_dispatch *d, const struct fbr_dispatch_map *map, uint64_t *id)
{
    struct map *m = fbr_map_reserve(d) == 0 ? calloc(1, sizeof(*m)) : NULL;

    if (!m)
        return -ENOMEM;
    m->id = ++d->count;
    HASH_ADD(hh, d->maps, id, sizeof(m->id), m);
    if (!m->hh.tbl) {
        free(m);
        return -ENOMEM;
    }
    m->user = map->user;
    m->age = ++d->age;
    m->total = map->tasks;
    m->open = map->open;
    m->priority = map->priority;
    m->retries = map->retries;
    m->timeout_ns = map->timeout_ns;
    m->chunk = map->chunk;
    m->mean = (float)map->expect_ns;
    m->task_bytes = map->task_bytes;
    m->size_of = map->size_of;
    m->solo = !map->retries;
    d->stats.maps++;
    if (m->priority < d->lowest)
        d->lowest = m->priority;
    if (m->total)
        tasks_came(d, m, m->total);
    *id = m->id;
    return 0;
}

int fbr_dispatch_map_grow(struct fbr_dispatch *d, uint64_t map, uint64_t tasks)
{
    struct map *m = find_map(d, map);

    if (!m)
        return -ENOENT;
    if (!m->open || tasks > INT64_MAX - m->total)
        return -EINVAL;
    if (!tasks)
        return 0;
    m->total += tasks;
    tasks_came(d, m, tasks);
    return 0;
}

/* Detaches a batch from its map, which is being closed; may free the batch. */
static void batch_orphan(struct fbr_dispatch *d, struct batch *b)
{
    struct dispatch_worker *w = b->worker;

    for (int kind = 0; kind < WINDOWS; kind++) {
        if (b->windows[kind].listed)
            DL_DELETE2(b->map->windows[kind], b, windows[kind].prev, windows[kind].next);
        b->windows[kind].listed = false;
    }
    fbr_timed_drop(d, b);
    DL_DELETE2(b->map->batches, b, map_prev, map_next);
    b->map = NULL;
    if (w && w->life < DEAD) {
        fbr_order_push(d, b, FBR_DISPATCH_CANCEL);
        fbr_dispatch_place(d, 0, w);
    }
    fbr_batch_put(b);
}

void fbr_dispatch_map_close(struct fbr_dispatch *d, uint64_t map)
{
    struct map *m = find_map(d, map);

    if (!m)
        return;
    fbr_map_wait(d, m, -(int64_t)m->waiting, -(int64_t)m->suspects);
    d->stats.held -= m->held;
    d->stats.maps--;
    while (m->batches)
        batch_orphan(d, m->batches);
    fbr_task_pages_free(m);
    HASH_DELETE(hh, d->maps, m);
    free(m);
}

uint64_t fbr_dispatch_map_mean(const struct fbr_dispatch *d, uint64_t map)
{
    const struct map *m = find_map(d, map);

    return m ? (uint64_t)m->mean : 0;
}

static struct batch *holder(const struct map *m, uint64_t index)
{
    struct batch *b;

    DL_FOREACH2(m->batches, b, map_next)
    if (b->worker && b->worker->life < DEAD && index >= b->first + b->seen &&
        index < b->first + b->kept)
        return b;
    return NULL;
}

int fbr_dispatch_task_cancel(struct fbr_dispatch *d, uint64_t map, uint64_t index,
                             struct fbr_dispatch_order *order)
{
    struct map *m = find_map(d, map);
    struct batch *b;
    uint8_t *state;

    if (!m || index >= m->total)
        return -ENOENT;
    if (fbr_task_touch(m, index, &state))
        return -ENOMEM;
    if (!state || task_what(*state) == TASK_DONE)
        return -EALREADY;
    b = task_what(*state) == TASK_HELD ? holder(m, index) : NULL;
    fbr_task_end(d, m, index, state);
    if (!b)
        return 0;
    *order = (struct fbr_dispatch_order){
        FBR_DISPATCH_CANCEL,         b->worker->id, b->id, map, index, b->worker->user, m->user,
        (uint32_t)(index - b->first)};
    return 1;
}

/* ---- workers ---- */

/* Whether a second batch may go to this worker, which holds one. */
static bool takes_second(struct dispatch_worker *w)
{
    const struct batch *b = w->batches;
    uint64_t ns;

    if (b->alone || w->shy || !b->map)
        return false;
    ns = fbr_rate_estimate(w, b->map);
    return ns && ns <= FBR_DISPATCH_PREFETCH_NS &&
           (b->kept - b->seen - 1) * ns <= FBR_DISPATCH_TARGET_NS;
}

static enum place place_of(struct dispatch_worker *w)
{
    if (w->life != LIVE)
        return NOWHERE;
    if (!w->nbatches)
        return IDLE;
    return w->nbatches == 1 && takes_second(w) ? HALF : NOWHERE;
}

static void place_leave(struct fbr_dispatch *d, struct dispatch_worker *w)
{
    if (w->place == IDLE) {
        DL_DELETE2(d->idle, w, place_prev, place_next);
        d->stats.idle--;
    } else if (w->place == HALF) {
        DL_DELETE2(d->half, w, place_prev, place_next);
        d->nhalf--;
    }
}

/* The last worker to become idle is the first to be used, so that the others are seen to be idle;
 * but not a slow worker. */
static void place_enter(struct fbr_dispatch *d, struct dispatch_worker *w)
{
    if (w->place == HALF) {
        DL_APPEND2(d->half, w, place_prev, place_next);
        d->nhalf++;
    } else if (w->place == IDLE) {
        d->stats.idle++;
        if (w->slowness > 2)
            DL_APPEND2(d->idle, w, place_prev, place_next);
        else
            DL_PREPEND2(d->idle, w, place_prev, place_next);
    }
}

void fbr_dispatch_place(struct fbr_dispatch *d, uint64_t now, struct dispatch_worker *w)
{
    enum place place = place_of(w);
    bool loaded = w->life < DEAD && fbr_order_recallable(w);
    bool full = w->life == LIVE && w->nbatches > 1;

    if (place != w->place) {
        place_leave(d, w);
        w->place = place;
        place_enter(d, w);
        if (place == IDLE)
            w->idle_since = now;
    }
    if (loaded && !w->loaded)
        DL_APPEND2(d->loaded, w, loaded_prev, loaded_next);
    else if (!loaded && w->loaded)
        DL_DELETE2(d->loaded, w, loaded_prev, loaded_next);
    w->loaded = loaded;
    d->nfull += full;
    d->nfull -= w->full;
    w->full = full;
    if (w->life == DRAINING && !w->nbatches) {
        w->life = DRAINED;
        DL_APPEND2(d->drained, w, drained_prev, drained_next);
    }
}

int fbr_dispatch_worker_add(struct fbr_dispatch *d, uint64_t now, void *user, uint64_t max_tasks,
                            uint64_t *id)
{
    struct dispatch_worker *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->id = ++d->count;
    HASH_ADD(hh, d->workers, id, sizeof(w->id), w);
    if (!w->hh.tbl) {
        free(w);
        return -ENOMEM;
    }
    w->user = user;
    w->tasks_left = max_tasks ? max_tasks : UINT64_MAX;
    w->slowness = 1;
    d->stats.workers++;
    d->takers++;
    fbr_dispatch_place(d, now, w);
    *id = w->id;
    return 0;
}

void fbr_dispatch_worker_drain(struct fbr_dispatch *d, uint64_t worker)
{
    struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    struct batch *b;

    if (!w || w->life == DEAD)
        return;
    if (w->life == LIVE) {
        w->life = DRAINING;
        d->takers--;
    }
    DL_FOREACH2(w->batches, b, worker_next)
    if (b->map && !b->recalled && !b->begun && (b != w->batches || b->kept - b->seen > 1)) {
        b->recalled = true;
        fbr_order_push(d, b, FBR_DISPATCH_RECALL);
    }
    fbr_dispatch_place(d, 0, w);
}

uint64_t fbr_dispatch_worker_idle_since(const struct fbr_dispatch *d, uint64_t worker)
{
    const struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);

    return w && w->nbatches ? FBR_DISPATCH_NEVER : w ? w->idle_since : 0;
}

/* ---- deaths ---- */

static enum fbr_dispatch_why why_fails(const struct map *m, unsigned deaths, bool counts)
{
    if (counts && deaths >= FBR_DISPATCH_DEATHS)
        return FBR_DISPATCH_BLAMED;
    if (!m->retries || (m->retries > 0 && deaths > (unsigned)m->retries))
        return FBR_DISPATCH_LOST;
    return 0;
}

/* The worker of this batch died. Returns whether its task fails. Only a task that was alone can
 * fail: those of a shared batch had seen no death and may run again. */
static int batch_fails(struct fbr_dispatch *d, struct batch *b, bool counts,
                       struct fbr_dispatch_failure *failure)
{
    struct map *m = b->map;
    uint8_t *state = b->alone ? fbr_task_states(m, b->first) : NULL;
    enum fbr_dispatch_why why;
    unsigned deaths;

    if (!state || task_what(*state) != TASK_HELD)
        return 0;
    deaths = task_deaths(*state) + counts;
    why = why_fails(m, deaths, counts);
    if (!why)
        return 0;
    *failure = (struct fbr_dispatch_failure){
        .map = m->id, .index = b->first, .map_user = m->user, .why = why};
    failure->deaths = deaths;
    failure->reports = b->nreports;
    for (uint32_t i = 0; i < b->nreports; i++)
        failure->report[i] = b->reports[i];
    fbr_task_end(d, m, b->first, state);
    return 1;
}

/* Takes back the tasks of a dead worker: its oldest batch may have started, the next one counts as
 * untouched. */
static int worker_release(struct fbr_dispatch *d, struct dispatch_worker *w, unsigned saw,
                          struct fbr_dispatch_failure *failure)
{
    struct batch *b;
    int failed = 0;

    for (b = w->batches ? w->batches->worker_prev : NULL; b;
         b = b == w->batches ? NULL : b->worker_prev) {
        bool first = b == w->batches;

        fbr_order_drop(d, b);
        fbr_timed_drop(d, b);
        if (!b->map)
            continue;
        failed = first && batch_fails(d, b, saw == TASK_DEATH, failure);
        if (!failed)
            d->stats.requeued += fbr_batch_requeue(d, b, b->seen, b->kept, first ? saw : 0);
    }
    return failed;
}

int fbr_dispatch_worker_dead(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t report,
                             unsigned flags, struct fbr_dispatch_failure *failure)
{
    struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    struct batch *b = w ? w->batches : NULL;
    unsigned saw = flags == FBR_DISPATCH_JOB ? TASK_JOB : flags ? 0 : TASK_DEATH;

    if (!w || w->life == DEAD)
        return 0;
    d->takers -= w->life == LIVE;
    d->stats.workers--;
    d->stats.deaths++;
    w->life = DEAD;
    if (w->drained_prev)
        DL_DELETE2(d->drained, w, drained_prev, drained_next);
    w->drained_prev = NULL;
    fbr_dispatch_place(d, now, w);
    if (b && saw == TASK_DEATH && b->nreports < FBR_DISPATCH_REPORTS)
        b->reports[b->nreports++] = report;
    return worker_release(d, w, saw, failure);
}

int fbr_dispatch_worker_remove(struct fbr_dispatch *d, uint64_t now, uint64_t worker,
                               struct fbr_dispatch_failure *failure)
{
    struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    int failed = 0;

    if (!w)
        return 0;
    if (w->life < DEAD) {
        failed = fbr_dispatch_worker_dead(d, now, worker, 0, FBR_DISPATCH_DISRUPTION, failure);
        d->stats.deaths--;
    }
    while (w->batches)
        fbr_batch_leave(d, now, w->batches);
    HASH_DELETE(hh, d->workers, w);
    free(w);
    return failed;
}
