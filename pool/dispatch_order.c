/* dispatch_order.c - orders to workers: recalls, timeouts, cancels, the end of a drain.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/dispatch_priv.h"

#define VICTIMS 16                 /* recalls in one look at the workers */
#define LOOK_AGAIN (NS_PER_MS / 2) /* after a look that found nothing to recall */
#define ANSWER_TIME NS_PER_MS      /* time that recalls may take before other workers are asked */
#define SILENCE 4 /* a worker that is silent this many times longer than usual may hang */

/* ---- orders that wait to be pulled ---- */

void fbr_order_push(struct fbr_dispatch *d, struct batch *b, enum fbr_dispatch_order_kind kind)
{
    b->order = kind;
    if (!b->listed)
        DL_APPEND2(d->orders, b, order_prev, order_next);
    b->listed = true;
}

void fbr_order_drop(struct fbr_dispatch *d, struct batch *b)
{
    if (b->listed)
        DL_DELETE2(d->orders, b, order_prev, order_next);
    b->listed = false;
}

static void order_fill(struct fbr_dispatch_order *out, enum fbr_dispatch_order_kind kind,
                       const struct batch *b)
{
    *out = (struct fbr_dispatch_order){.kind = kind, .worker = b->worker->id, .batch = b->id};
    out->worker_user = b->worker->user;
    if (kind == FBR_DISPATCH_CANCEL)
        out->pos = FBR_DISPATCH_ALL;
    if (b->map) {
        out->map = b->map->id;
        out->map_user = b->map->user;
        out->index = b->first + b->seen;
    }
}

static int drained_pop(struct fbr_dispatch *d, struct fbr_dispatch_order *out)
{
    struct dispatch_worker *w = d->drained;

    DL_DELETE2(d->drained, w, drained_prev, drained_next);
    w->drained_prev = NULL;
    *out = (struct fbr_dispatch_order){
        .kind = FBR_DISPATCH_DRAINED, .worker = w->id, .worker_user = w->user};
    return 1;
}

static int order_pop(struct fbr_dispatch *d, struct fbr_dispatch_order *out)
{
    struct batch *b = d->orders;

    fbr_order_drop(d, b);
    order_fill(out, b->order, b);
    return 1;
}

/* ---- timeouts ---- */

static uint64_t timed_end(const struct batch *b)
{
    if (b->start > FBR_DISPATCH_NEVER - b->map->timeout_ns)
        return FBR_DISPATCH_NEVER;
    return b->start + b->map->timeout_ns;
}

static bool is_timed(const struct batch *b)
{
    return b->timed_prev;
}

void fbr_timed_start(struct fbr_dispatch *d, uint64_t now, struct batch *b)
{
    if (!is_timed(b))
        return;
    b->start = now;
    if (timed_end(b) < d->timeout_at)
        d->timeout_at = timed_end(b);
}

void fbr_timed_drop(struct fbr_dispatch *d, struct batch *b)
{
    if (is_timed(b))
        DL_DELETE2(d->timed, b, timed_prev, timed_next);
    b->timed_prev = NULL;
}

/* Fails the task of a batch whose time is over; false: the task was done (cancelled) already. */
static bool timed_expire(struct fbr_dispatch *d, struct batch *b, struct fbr_dispatch_order *out)
{
    uint8_t *state = fbr_task_states(b->map, b->first);

    fbr_timed_drop(d, b);
    if (!state || task_what(*state) != TASK_HELD)
        return false;
    order_fill(out, FBR_DISPATCH_TIMEOUT, b);
    fbr_task_end(d, b->map, b->first, state);
    return true;
}

static int timeout_pop(struct fbr_dispatch *d, uint64_t now, struct fbr_dispatch_order *out)
{
    uint64_t earliest = FBR_DISPATCH_NEVER;
    struct batch *b, *next;

    DL_FOREACH_SAFE2(d->timed, b, next, timed_next)
    {
        uint64_t end = timed_end(b);

        /* timeout_at stays: the next call looks for other timeouts */
        if (end <= now && timed_expire(d, b, out))
            return 1;
        if (end > now && end < earliest)
            earliest = end;
    }
    d->timeout_at = earliest;
    return 0;
}

/* ---- stragglers ---- */

struct batch *fbr_order_recallable(const struct dispatch_worker *w)
{
    struct batch *first = w->batches, *last = first ? first->worker_prev : NULL, *b;

    DL_FOREACH2(w->batches, b, worker_next)
    if (b->recalled)
        return NULL;
    if (last != first && last->map)
        return last->begun ? NULL : last;
    return first && first->map && !first->begun && first->kept - first->seen > 1 ? first : NULL;
}

static void recall_now(struct fbr_dispatch *d, uint64_t now, struct dispatch_worker *w)
{
    struct batch *b = fbr_order_recallable(w);

    b->recalled = true;
    w->shy = true;
    d->stats.recalls++;
    fbr_order_push(d, b, FBR_DISPATCH_RECALL);
    fbr_dispatch_place(d, now, w);
}

/* The number of its tasks that are not known to be started. */
static uint64_t unstarted(const struct dispatch_worker *w, const struct batch *b)
{
    return b->begun ? 0 : b->kept - b->seen - (b == w->batches);
}

/* How long (ns) other workers would wait for the tasks that this worker has not started; 0: not
 * worth a recall. By the usual times it begins the last of them after `work`, of which a part has
 * passed. After that it has most likely begun the last one, and its results are on the way: until
 * they are later than usual, a recall would bring nothing. */
static uint64_t straggles(const struct fbr_dispatch *d, uint64_t now, struct dispatch_worker *w)
{
    uint64_t silent = now - w->last_seen, usual = NS_PER_MS, work = 0, ns, late;
    /* the tasks come back, and go to another worker */
    uint64_t costs = FBR_DISPATCH_RECALL_NS + 2 * d->lag;
    const struct batch *b;

    DL_FOREACH2(w->batches, b, worker_next)
    {
        ns = b->map ? fbr_rate_estimate(w, b->map) : 0;
        work += ns * unstarted(w, b);
        if (b == w->batches && ns > usual)
            usual = ns;
    }
    late = work + costs > SILENCE * NS_PER_MS ? work + costs : SILENCE * NS_PER_MS;
    if (silent > SILENCE * usual || silent > late)
        return work + silent;
    return work > silent + costs ? work - silent : 0;
}

/* The number of tasks that a recall would bring back from this worker, if it is worth one. */
static uint64_t ahead_of(const struct fbr_dispatch *d, uint64_t now, struct dispatch_worker *w)
{
    uint64_t tasks = 0;
    const struct batch *b;

    DL_FOREACH2(w->batches, b, worker_next)
    tasks += b->map ? unstarted(w, b) : 0;
    return tasks && straggles(d, now, w) ? tasks : 0;
}

uint64_t fbr_dispatch_ahead(const struct fbr_dispatch *d, uint64_t now)
{
    uint64_t tasks = 0;
    struct dispatch_worker *w;

    DL_FOREACH2(d->loaded, w, loaded_next)
    tasks += ahead_of(d, now, w);
    return tasks;
}

/* A map of higher priority has come: as many workers as it can use return the tasks that they would
 * do before it. */
static void make_way(struct fbr_dispatch *d, uint64_t now)
{
    const struct map *m = d->nready ? d->ready[0] : NULL;
    uint64_t left = m ? m->waiting : 0;
    struct dispatch_worker *w, *next;

    d->outranked = false;
    DL_FOREACH_SAFE2(d->loaded, w, next, loaded_next)
    {
        if (!left)
            break;
        if (fbr_order_recallable(w)->map->priority < m->priority && ahead_of(d, now, w)) {
            recall_now(d, now, w);
            left--;
        }
    }
}

struct victim {
    uint64_t score;
    struct dispatch_worker *worker;
};

/* Inserts v into the n best, best first; returns how many there are now. */
static uint32_t victim_add(struct victim *best, uint32_t n, uint32_t max, struct victim v)
{
    uint32_t i = n < max ? n : max - 1;

    if (n == max && best[i].score >= v.score)
        return n;
    for (; i > 0 && best[i - 1].score < v.score; i--)
        best[i] = best[i - 1];
    best[i] = v;
    return n < max ? n + 1 : n;
}

static void recall_look(struct fbr_dispatch *d, uint64_t now)
{
    uint32_t max = d->stats.idle < VICTIMS ? d->stats.idle : VICTIMS, n = 0;
    struct victim best[VICTIMS];
    struct dispatch_worker *w;

    DL_FOREACH2(d->loaded, w, loaded_next)
    {
        struct victim v = {straggles(d, now, w), w};

        if (v.score)
            n = victim_add(best, n, max, v);
    }
    for (uint32_t i = 0; i < n; i++)
        recall_now(d, now, best[i].worker);
    d->recall_at = now + (n ? ANSWER_TIME : LOOK_AGAIN);
}

static bool may_recall(const struct fbr_dispatch *d)
{
    return d->idle && d->loaded && !d->stats.waiting;
}

/* ---- calls of the caller ---- */

int fbr_dispatch_order(struct fbr_dispatch *d, uint64_t now, struct fbr_dispatch_order *out)
{
    if (d->orders)
        return order_pop(d, out);
    if (d->drained)
        return drained_pop(d, out);
    if (now >= d->timeout_at && timeout_pop(d, now, out))
        return 1;
    if (d->outranked)
        make_way(d, now);
    if (may_recall(d) && now >= d->recall_at)
        recall_look(d, now);
    return d->orders ? order_pop(d, out) : 0;
}

uint64_t fbr_dispatch_wake(const struct fbr_dispatch *d)
{
    uint64_t wake = d->timeout_at;

    if (may_recall(d) && d->recall_at < wake)
        wake = d->recall_at;
    return d->orders || d->drained || d->outranked ? 0 : wake;
}
