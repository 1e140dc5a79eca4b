/* dispatch_task.c - states of tasks, and which of a map's waiting tasks come next.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/dispatch_priv.h"

struct page fbr_page_done = {.size = 0};

/* ---- pages ---- */

struct page *fbr_task_page(const struct map *m, uint64_t index)
{
    uint64_t number = index / PAGE;

    if (number < m->base)
        return &fbr_page_done;
    return number - m->base < m->npages ? m->pages[number - m->base] : NULL;
}

uint8_t *fbr_task_states(const struct map *m, uint64_t index)
{
    struct page *page = fbr_task_page(m, index);

    return page && page != &fbr_page_done ? page->states + index % PAGE : NULL;
}

/* Extends the directory to the n-th page from `base` on. */
static int reach(struct map *m, uint64_t n)
{
    uint64_t cap = m->cap ? m->cap : 1;
    struct page **pages;

    if (n > UINT32_MAX)
        return -ENOMEM;
    if (n > m->cap) {
        while (cap < n)
            cap *= 2;
        pages = realloc(m->pages, cap * sizeof(struct page *));
        if (!pages)
            return -ENOMEM;
        m->pages = pages;
        m->cap = (uint32_t)cap;
    }
    while (m->npages < n)
        m->pages[m->npages++] = NULL;
    return 0;
}

static struct page *page_new(const struct map *m, uint64_t number)
{
    uint64_t rest = m->total - number * PAGE;
    uint32_t size = m->open || rest > PAGE ? PAGE : (uint32_t)rest;
    struct page *page = calloc(1, sizeof(*page) + size);

    if (page)
        page->size = size;
    return page;
}

int fbr_task_touch(struct map *m, uint64_t index, uint8_t **states)
{
    uint64_t number = index / PAGE;
    struct page *page = fbr_task_page(m, index);

    if (!page) {
        if (reach(m, number - m->base + 1))
            return -ENOMEM;
        page = page_new(m, number);
        if (!page)
            return -ENOMEM;
        m->pages[number - m->base] = page;
    }
    *states = page != &fbr_page_done ? page->states + index % PAGE : NULL;
    return 0;
}

/* Drops the finished pages at the front of the directory, once they are half of it. */
static void trim(struct map *m)
{
    while (m->leading < m->npages && m->pages[m->leading] == &fbr_page_done)
        m->leading++;
    if (m->leading * 2 < m->npages)
        return;
    m->npages -= m->leading;
    memmove(m->pages, m->pages + m->leading, m->npages * sizeof(struct page *));
    m->base += m->leading;
    m->leading = 0;
}

void fbr_task_retire(struct fbr_dispatch *d, struct map *m, uint64_t index, uint32_t n)
{
    struct page *page = fbr_task_page(m, index);

    m->done += n;
    d->stats.done += n;
    page->done += n;
    if (page->done < page->size)
        return;
    m->pages[index / PAGE - m->base] = &fbr_page_done;
    free(page);
    trim(m);
}

void fbr_task_pages_free(struct map *m)
{
    for (uint32_t i = 0; i < m->npages; i++)
        if (m->pages[i] != &fbr_page_done)
            free(m->pages[i]);
    free(m->pages);
}

void fbr_task_end(struct fbr_dispatch *d, struct map *m, uint64_t index, uint8_t *state)
{
    uint8_t was = *state;

    *state = task_set(was, TASK_DONE);
    if (task_what(was) == TASK_WAITING) {
        fbr_map_wait(d, m, -1, task_deaths(was) ? -1 : 0);
    } else {
        m->held--;
        d->stats.held--;
    }
    fbr_task_retire(d, m, index, 1);
}

/* ---- the heap of maps with waiting tasks ---- */

static bool goes_before(const struct map *a, const struct map *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->age < b->age;
}

static void heap_set(struct fbr_dispatch *d, uint32_t at, struct map *m)
{
    d->ready[at] = m;
    m->heap = at + 1;
}

static void heap_up(struct fbr_dispatch *d, uint32_t at, struct map *m)
{
    for (; at > 0 && goes_before(m, d->ready[(at - 1) / 2]); at = (at - 1) / 2)
        heap_set(d, at, d->ready[(at - 1) / 2]);
    heap_set(d, at, m);
}

static void heap_down(struct fbr_dispatch *d, uint32_t at, struct map *m)
{
    for (uint32_t child; (child = 2 * at + 1) < d->nready; at = child) {
        if (child + 1 < d->nready && goes_before(d->ready[child + 1], d->ready[child]))
            child++;
        if (goes_before(m, d->ready[child]))
            break;
        heap_set(d, at, d->ready[child]);
    }
    heap_set(d, at, m);
}

static void heap_remove(struct fbr_dispatch *d, struct map *m)
{
    uint32_t at = m->heap - 1;
    struct map *last = d->ready[--d->nready];

    m->heap = 0;
    if (last == m)
        return;
    heap_up(d, at, last);
    heap_down(d, last->heap - 1, last);
}

int fbr_map_reserve(struct fbr_dispatch *d)
{
    uint32_t cap = d->ready_cap ? d->ready_cap * 2 : 16;
    struct map **ready;

    if (d->stats.maps < d->ready_cap)
        return 0;
    ready = realloc(d->ready, cap * sizeof(struct map *));
    if (!ready)
        return -ENOMEM;
    d->ready = ready;
    d->ready_cap = cap;
    return 0;
}

void fbr_map_renew(struct fbr_dispatch *d, struct map *m)
{
    m->age = ++d->age;
    if (m->heap)
        heap_down(d, m->heap - 1, m);
}

/* May free b: see fbr_batch_put(). */
static void window_unlist(struct batch *b, enum window_kind kind)
{
    DL_DELETE2(b->map->windows[kind], b, windows[kind].prev, windows[kind].next);
    b->windows[kind].listed = false;
    fbr_batch_put(b);
}

void fbr_map_wait(struct fbr_dispatch *d, struct map *m, int64_t n, int64_t suspects)
{
    m->waiting += (uint64_t)n;
    m->suspects += (uint64_t)suspects;
    d->stats.waiting += (uint64_t)n;
    if (m->waiting && !m->heap)
        heap_up(d, d->nready++, m);
    if (m->waiting || !m->heap)
        return;
    heap_remove(d, m);
    for (int kind = 0; kind < WINDOWS; kind++)
        while (m->windows[kind])
            window_unlist(m->windows[kind], kind);
}

/* ---- batches and segments ---- */

/* Lists positions [at, end) of b, before the other batches of its map. */
static void list_window(struct batch *b, enum window_kind kind, uint32_t at, uint32_t end)
{
    struct window *window = &b->windows[kind];

    if (window->listed) {
        DL_DELETE2(b->map->windows[kind], b, windows[kind].prev, windows[kind].next);
        at = at < window->at ? at : window->at;
        end = end > window->end ? end : window->end;
    }
    window->at = at;
    window->end = end;
    window->listed = true;
    DL_PREPEND2(b->map->windows[kind], b, windows[kind].prev, windows[kind].next);
}

void fbr_batch_put(struct batch *b)
{
    if (b->worker || b->windows[AGAIN].listed || b->windows[SUSPECTS].listed)
        return;
    if (b->map)
        DL_DELETE2(b->map->batches, b, map_prev, map_next);
    free(b);
}

void fbr_batch_leave(struct fbr_dispatch *d, uint64_t now, struct batch *b)
{
    struct dispatch_worker *w = b->worker;

    fbr_order_drop(d, b);
    fbr_timed_drop(d, b);
    if (b == w->batches)
        w->last_seen = now;
    DL_DELETE2(w->batches, b, worker_prev, worker_next);
    w->nbatches--;
    w->shy = w->shy && w->batches;
    b->worker = NULL;
    fbr_batch_put(b);
    if (w->batches && w->life < DEAD)
        fbr_timed_start(d, now, w->batches);
    fbr_dispatch_place(d, now, w);
}

uint32_t fbr_batch_requeue(struct fbr_dispatch *d, struct batch *b, uint32_t at, uint32_t end,
                           unsigned saw)
{
    struct map *m = b->map;
    uint8_t *states = at < end ? fbr_task_states(m, b->first + at) : NULL;
    uint32_t n = 0;
    bool suspect = false;

    if (!states)
        return 0;
    for (uint32_t i = 0; i < end - at; i++) {
        if (task_what(states[i]) != TASK_HELD)
            continue;
        states[i] = task_set(states[i], TASK_WAITING);
        if (saw != TASK_JOB || task_jobs(states[i]) < FBR_DISPATCH_DEATHS)
            states[i] = (uint8_t)(states[i] + saw);
        if (task_jobs(states[i]) > d->stats.lost_jobs)
            d->stats.lost_jobs = task_jobs(states[i]);
        suspect = task_deaths(states[i]);
        n++;
    }
    if (!n)
        return 0;
    m->held -= n;
    d->stats.held -= n;
    list_window(b, suspect ? SUSPECTS : AGAIN, at, end);
    fbr_map_wait(d, m, n, suspect ? n : 0);
    return n;
}

/* ---- the next tasks of a map ---- */

static bool wanted(uint8_t state, enum window_kind kind)
{
    return task_what(state) == TASK_WAITING && (task_deaths(state) > 0) == (kind == SUSPECTS);
}

/* True: a task waits in the window, which begins with that task now. */
static bool find_in_window(struct map *m, struct batch *b, enum window_kind kind, struct found *f)
{
    struct window *window = &b->windows[kind];
    uint8_t *states = fbr_task_states(m, b->first);

    while (states && window->at < window->end && !wanted(states[window->at], kind))
        window->at++;
    if (!states || window->at == window->end)
        return false;
    *f = (struct found){b->first + window->at, window->end - window->at, states + window->at, b,
                        kind};
    return true;
}

static bool find_again(struct map *m, enum window_kind kind, struct found *f)
{
    while (m->windows[kind]) {
        if (find_in_window(m, m->windows[kind], kind, f))
            return true;
        window_unlist(m->windows[kind], kind);
    }
    return false;
}

static int find_fresh(struct map *m, struct found *f)
{
    uint64_t end;
    uint8_t *states;

    while (m->cursor < m->total) {
        if (fbr_task_touch(m, m->cursor, &states))
            return -ENOMEM;
        end = (m->cursor / PAGE + 1) * PAGE;
        end = end < m->total ? end : m->total;
        for (; states && m->cursor < end && task_what(*states) != TASK_WAITING; states++)
            m->cursor++;
        if (states && m->cursor < end) {
            *f = (struct found){m->cursor, (uint32_t)(end - m->cursor), states, NULL, AGAIN};
            return 0;
        }
        m->cursor = end;
    }
    return -ENOENT; /* not possible: every waiting task is in a window or fresh */
}

int fbr_task_find(struct map *m, struct found *f)
{
    if (m->suspects && find_again(m, SUSPECTS, f))
        return 0;
    if (find_again(m, AGAIN, f))
        return 0;
    return find_fresh(m, f);
}

uint32_t fbr_task_run(const struct found *f, uint32_t n)
{
    uint32_t run = 1;

    while (run < n && wanted(f->states[run], f->kind))
        run++;
    return run;
}

void fbr_task_hold(struct fbr_dispatch *d, struct map *m, const struct found *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        f->states[i] = task_set(f->states[i], TASK_HELD);
    if (f->from)
        f->from->windows[f->kind].at += n;
    else
        m->cursor += n;
    m->held += n;
    d->stats.held += n;
    fbr_map_wait(d, m, -(int64_t)n, f->kind == SUSPECTS ? -(int64_t)n : 0);
}
