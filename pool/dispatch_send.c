/* dispatch_send.c - which worker gets the next tasks, and how many.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "pool/dispatch_priv.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Workers that hold nothing come first. A second batch is only for tasks that are not long, not for
 * the last tasks, and not behind tasks of a lower priority: another worker may have nothing
 * sooner. */
static struct dispatch_worker *choose_worker(const struct fbr_dispatch *d, const struct map *m)
{
    if (d->idle)
        return d->idle;
    if (m->solo || m->suspects || m->mean <= 0 || m->mean > (float)FBR_DISPATCH_PREFETCH_NS)
        return NULL;
    if (d->stats.waiting < d->nhalf || !d->half)
        return NULL;
    return d->half->batches->map->priority >= m->priority ? d->half : NULL;
}

/* The number of tasks that this worker should get, by the time that they take. */
static uint64_t measured_size(struct dispatch_worker *w, const struct map *m)
{
    const struct rate *rate = fbr_rate_find(w, m->id);
    uint64_t ns;

    if (!rate || !rate->answered)
        return m->chunk ? m->chunk : 1;
    ns = fbr_rate_estimate(w, m);
    return min_u64(ns ? FBR_DISPATCH_TARGET_NS / ns : UINT32_MAX, rate->answered * UINT64_C(4));
}

static uint32_t fit_bytes(const struct fbr_dispatch *d, const struct map *m, uint64_t first,
                          uint32_t n)
{
    uint64_t bytes = 0;
    uint32_t i;

    if (m->task_bytes)
        return (uint32_t)min_u64(n, d->max_bytes / m->task_bytes);
    if (!m->size_of)
        return n;
    for (i = 0; i < n; i++) {
        uint64_t size = m->size_of(m->user, first + i);

        if (size > d->max_bytes - bytes)
            break;
        bytes += size;
    }
    return i;
}

/* Whether the worker gets two tasks at once, in one message: there are two for each worker that
 * could take as many. */
static bool takes_two(const struct fbr_dispatch *d, struct dispatch_worker *w, const struct map *m)
{
    uint64_t ns = fbr_rate_estimate(w, m);
    uint64_t others = w->nbatches ? d->takers - d->nfull : d->stats.idle;

    return ns && ns <= FBR_DISPATCH_PREFETCH_NS && m->waiting >= 2 * others;
}

static uint32_t batch_size(const struct fbr_dispatch *d, struct dispatch_worker *w,
                           const struct map *m, const struct found *f)
{
    uint64_t crowd = 2 * (uint64_t)d->takers;
    uint64_t n;

    if (m->solo || m->timeout_ns || f->kind == SUSPECTS)
        return 1;
    n = measured_size(w, m);
    n = min_u64(n, (m->waiting + crowd - 1) / crowd);
    if (n < 2 && takes_two(d, w, m))
        n = 2;
    n = min_u64(n, FBR_DISPATCH_BATCH_MAX);
    n = min_u64(n, f->most);
    n = min_u64(n, w->tasks_left);
    if (n > 1)
        n = fit_bytes(d, m, f->first, (uint32_t)n);
    return n > 1 ? fbr_task_run(f, (uint32_t)n) : 1;
}

static struct batch *batch_new(struct fbr_dispatch *d, struct dispatch_worker *w, struct map *m,
                               const struct found *f)
{
    struct batch *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->id = ++d->batch_count;
    b->first = f->first;
    b->kept = batch_size(d, w, m, f);
    b->alone = m->solo || f->kind == SUSPECTS;
    b->start = FBR_DISPATCH_NEVER;
    if (f->kind == SUSPECTS) {
        b->nreports = f->from->nreports;
        for (uint32_t i = 0; i < b->nreports; i++)
            b->reports[i] = f->from->reports[i];
    }
    return b;
}

static void batch_assign(struct fbr_dispatch *d, uint64_t now, struct batch *b,
                         struct dispatch_worker *w, struct map *m)
{
    b->map = m;
    b->worker = w;
    DL_APPEND2(m->batches, b, map_prev, map_next);
    DL_APPEND2(w->batches, b, worker_prev, worker_next);
    w->nbatches++;
    if (w->nbatches == 1)
        w->last_seen = now;
    if (m->timeout_ns) {
        DL_APPEND2(d->timed, b, timed_prev, timed_next);
        if (w->nbatches == 1)
            fbr_timed_start(d, now, b);
    }
    if (w->tasks_left != UINT64_MAX)
        w->tasks_left -= b->kept;
    if (!w->tasks_left) {
        w->life = DRAINING;
        d->takers--;
    }
    fbr_rate_touch(w, m->id);
    fbr_dispatch_place(d, now, w);
}

int fbr_dispatch_next(struct fbr_dispatch *d, uint64_t now, struct fbr_dispatch_batch *out)
{
    struct map *m = d->nready ? d->ready[0] : NULL;
    struct dispatch_worker *w = m ? choose_worker(d, m) : NULL;
    struct found f;
    struct batch *b;
    int rc;

    if (!w)
        return 0;
    rc = fbr_task_find(m, &f);
    if (rc)
        return rc;
    b = batch_new(d, w, m, &f);
    if (!b)
        return -ENOMEM;
    d->stats.batches++;
    fbr_task_hold(d, m, &f, b->kept);
    if (m->open)
        fbr_map_renew(d, m);
    batch_assign(d, now, b, w, m);
    *out = (struct fbr_dispatch_batch){b->id, w->id, m->id, w->user, m->user, b->first, b->kept};
    return 1;
}
