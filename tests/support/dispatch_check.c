/* dispatch_check.c - looks at each part of a scheduling engine, and counts again what it keeps.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/dispatch_check.h"

#include "pool/dispatch_priv.h"

#define CHECK(truth, sentence) \
    do {                       \
        if (!(truth))          \
            return sentence;   \
    } while (0)

/* Counted values, to be compared with the kept ones. */
struct count {
    uint64_t waiting, suspects, held, done;
};

static uint8_t state_of(const struct map *m, uint64_t index)
{
    const struct page *page = fbr_task_page(m, index);

    if (page == &fbr_page_done)
        return TASK_DONE;
    return page ? page->states[index % PAGE] : TASK_WAITING;
}

static bool in_window(const struct map *m, uint64_t index, enum window_kind kind)
{
    const struct batch *b;

    DL_FOREACH2(m->windows[kind], b, windows[kind].next)
    if (index >= b->first + b->windows[kind].at && index < b->first + b->windows[kind].end)
        return true;
    return false;
}

static const char *check_task(const struct map *m, uint64_t index, struct count *c)
{
    uint8_t state = state_of(m, index);
    bool suspect = task_deaths(state);

    switch (task_what(state)) {
    case TASK_WAITING:
        c->waiting++;
        c->suspects += suspect;
        CHECK(!suspect || index < m->cursor, "a fresh task has seen a death");
        CHECK(index >= m->cursor || in_window(m, index, suspect ? SUSPECTS : AGAIN),
              "a waiting task is nowhere");
        return NULL;
    case TASK_HELD:
        c->held++;
        CHECK(index < m->cursor, "a fresh task is held");
        return NULL;
    case TASK_DONE:
        c->done++;
        return NULL;
    default:
        return "a task is in no state";
    }
}

/* The tasks of a live batch are held, by it alone, or done. */
static const char *check_batch(const struct map *m, const struct batch *b, struct count *c)
{
    const struct dispatch_worker *w = b->worker;

    CHECK(b->map == m, "a batch is with the wrong map");
    CHECK(w || b->windows[AGAIN].listed || b->windows[SUSPECTS].listed,
          "a batch that nobody needs");
    if (!w || w->life == DEAD)
        return NULL;
    CHECK(b->seen < b->kept, "a worker holds a complete batch");
    for (uint32_t pos = b->seen; pos < b->kept; pos++) {
        unsigned what = task_what(state_of(m, b->first + pos));

        CHECK(what != TASK_WAITING, "a task waits and is held");
        c->held += what == TASK_HELD;
    }
    return NULL;
}

static const char *check_map(const struct fbr_dispatch *d, const struct map *m)
{
    struct count tasks = {0}, batches = {0};
    const struct batch *b;
    const char *wrong = NULL;

    for (uint64_t i = 0; i < m->total && !wrong; i++)
        wrong = check_task(m, i, &tasks);
    DL_FOREACH2(m->batches, b, map_next)
    if (!wrong)
        wrong = check_batch(m, b, &batches);
    CHECK(!wrong, wrong);
    CHECK(tasks.waiting == m->waiting, "waiting tasks are counted wrongly");
    CHECK(tasks.suspects == m->suspects, "suspects are counted wrongly");
    CHECK(tasks.held == m->held, "held tasks are counted wrongly");
    CHECK(tasks.done == m->done, "done tasks are counted wrongly");
    CHECK(batches.held == m->held, "a task is held by nobody, or by two");
    CHECK(!m->heap == !m->waiting, "a map with waiting tasks is not ready, or one without is");
    CHECK(!m->heap || d->ready[m->heap - 1] == m, "a map is at the wrong place of the heap");
    return NULL;
}

static const char *check_heap(const struct fbr_dispatch *d)
{
    for (uint32_t i = 1; i < d->nready; i++) {
        const struct map *parent = d->ready[(i - 1) / 2], *m = d->ready[i];

        CHECK(parent->priority >= m->priority, "the heap is out of order");
        CHECK(parent->priority > m->priority || parent->age < m->age, "the heap is out of order");
    }
    return NULL;
}

static const char *check_worker(const struct dispatch_worker *w)
{
    const struct batch *b;
    uint32_t n = 0;
    bool alone = false;

    DL_FOREACH2(w->batches, b, worker_next)
    {
        n++;
        alone = alone || b->alone;
        CHECK(b->worker == w, "a batch is with the wrong worker");
        CHECK(w->life < DEAD || !b->listed, "an order for a dead worker");
    }
    CHECK(n == w->nbatches && n <= 2, "a worker holds too many batches");
    CHECK(!alone || n == 1 || w->life == DEAD, "a task that should be alone is not");
    CHECK(w->place != IDLE || n == 0, "an idle worker has a batch");
    CHECK(w->place != HALF || n == 1, "a worker waits for a second batch and has no first one");
    CHECK(w->life != LIVE || n || w->place == IDLE, "a worker is forgotten");
    CHECK(w->loaded == (w->life < DEAD && fbr_order_recallable(w)),
          "a worker is wrongly (not) loaded");
    return NULL;
}

static const char *check_workers(const struct fbr_dispatch *d)
{
    uint32_t alive = 0, takers = 0, idle = 0, listed = 0, full = 0;
    const struct dispatch_worker *w;
    const char *wrong;

    for (w = d->workers; w; w = w->hh.next) {
        wrong = check_worker(w);
        CHECK(!wrong, wrong);
        alive += w->life < DEAD;
        takers += w->life == LIVE;
        idle += w->place == IDLE;
        full += w->life == LIVE && w->nbatches > 1;
    }
    DL_FOREACH2(d->idle, w, place_next)
    listed++;
    CHECK(alive == d->stats.workers && takers == d->takers, "workers are counted wrongly");
    CHECK(idle == d->stats.idle && idle == listed, "idle workers are counted wrongly");
    CHECK(full == d->nfull, "workers with two batches are counted wrongly");
    return NULL;
}

const char *dispatch_check(const struct fbr_dispatch *d)
{
    struct count sum = {0};
    uint32_t ready = 0, maps = 0;
    const char *wrong;

    for (const struct map *m = d->maps; m; m = m->hh.next) {
        wrong = check_map(d, m);
        CHECK(!wrong, wrong);
        sum.waiting += m->waiting;
        sum.held += m->held;
        ready += m->heap > 0;
        maps++;
    }
    CHECK(sum.waiting == d->stats.waiting && sum.held == d->stats.held,
          "the sums over all maps are wrong");
    CHECK(ready == d->nready && maps == d->stats.maps, "maps are counted wrongly");
    wrong = check_heap(d);
    return wrong ? wrong : check_workers(d);
}

uint32_t dispatch_held(const struct fbr_dispatch *d, uint64_t worker)
{
    const struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    const struct batch *b;
    uint32_t held = 0;

    if (!w || w->life == DEAD)
        return 0;
    DL_FOREACH2(w->batches, b, worker_next)
    held += b->kept - b->seen;
    return held;
}

uint64_t dispatch_left(const struct fbr_dispatch *d, uint64_t map)
{
    const struct map *m;

    HASH_FIND(hh, d->maps, &map, sizeof(map), m);
    return m ? m->total - m->done : 0;
}
