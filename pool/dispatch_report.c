/* dispatch_report.c - messages of workers: results, returned tasks, and the task times that follow
 * from them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "pool/dispatch_priv.h"

#define SETTLED \
    8 /* samples after which a mean is trusted; from then on a new sample has weight 1/SETTLED */
#define LONGEST 1e15f /* ns; limits measured times, so that sums cannot overflow */
#define SLOWNESS_MAX 64.0
#define LAG_WEIGHT 16 /* weight of all earlier samples, plus one */

/* ---- times ---- */

struct rate *fbr_rate_find(struct dispatch_worker *w, uint64_t map)
{
    for (int i = 0; i < RATES; i++)
        if (w->rates[i].map == map)
            return &w->rates[i];
    return NULL;
}

struct rate *fbr_rate_touch(struct dispatch_worker *w, uint64_t map)
{
    struct rate *found = fbr_rate_find(w, map);
    struct rate rate = {.map = map};
    size_t before = RATES - 1;

    if (found) {
        rate = *found;
        before = (size_t)(found - w->rates);
    }
    memmove(&w->rates[1], &w->rates[0], before * sizeof(rate));
    w->rates[0] = rate;
    return &w->rates[0];
}

/* A worker's own few samples may be lucky, so until there are enough of them the larger of both
 * means counts. */
uint64_t fbr_rate_estimate(struct dispatch_worker *w, const struct map *m)
{
    const struct rate *rate = fbr_rate_find(w, m->id);
    float ns = m->mean;

    if (rate && rate->samples && (rate->samples >= SETTLED || rate->mean > ns))
        ns = rate->mean;
    return (uint64_t)ns;
}

static void mean_add(float *mean, uint32_t *samples, float sample)
{
    if (*samples < SETTLED)
        ++*samples;
    *mean += (sample - *mean) / (float)*samples;
}

static void learn(struct dispatch_worker *w, struct map *m, uint32_t n, uint64_t busy_ns)
{
    struct rate *rate = fbr_rate_touch(w, m->id);
    float sample = (float)busy_ns / (float)n;
    double ratio;

    sample = sample < 1 ? 1 : sample > LONGEST ? LONGEST : sample;
    if (m->samples >= SETTLED) {
        ratio = (double)sample / (double)m->mean;
        w->slowness += ((ratio < SLOWNESS_MAX ? ratio : SLOWNESS_MAX) - w->slowness) / 16;
    }
    mean_add(&rate->mean, &rate->samples, sample);
    mean_add(&m->mean, &m->samples, sample);
}

/* Learns how long messages to and from a worker are on their way: the time in which it was silent
 * without being busy. */
static void learn_lag(struct fbr_dispatch *d, uint64_t silent, uint64_t busy_ns)
{
    uint64_t sample = silent > busy_ns ? silent - busy_ns : 0;

    if (sample > FBR_DISPATCH_PREFETCH_NS) /* it was stopped */
        sample = FBR_DISPATCH_PREFETCH_NS;
    d->lag = (d->lag * (LAG_WEIGHT - 1) + sample) / LAG_WEIGHT;
}

/* ---- results ---- */

/* Marks which of the next n results of b are taken; returns how many are. */
static uint32_t take_results(struct fbr_dispatch *d, struct batch *b, uint32_t n, bool *take)
{
    struct map *m = b->map;
    uint64_t index = b->first + b->seen;
    uint8_t *states = m ? fbr_task_states(m, index) : NULL;
    uint32_t held = 0, waited = 0, suspects = 0;

    if (!states) {
        memset(take, 0, n * sizeof(*take));
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        unsigned what = task_what(states[i]);

        held += what == TASK_HELD;
        waited += what == TASK_WAITING;
        suspects += what == TASK_WAITING && task_deaths(states[i]);
        take[i] = what != TASK_DONE;
        states[i] = task_set(states[i], TASK_DONE);
    }
    m->held -= held;
    d->stats.held -= held;
    if (waited)
        fbr_map_wait(d, m, -(int64_t)waited, -(int64_t)suspects);
    if (held + waited)
        fbr_task_retire(d, m, index, held + waited);
    return held + waited;
}

int fbr_dispatch_results(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t batch,
                         uint32_t pos, uint32_t n, uint64_t busy_ns, bool *take,
                         struct fbr_dispatch_taken *out)
{
    struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    struct batch *b = w ? fbr_dispatch_batch_find(w, batch) : NULL;

    if (!b) {
        d->stats.dropped += n;
        return -ENOENT;
    }
    if (pos != b->seen || n > b->kept - pos)
        return -EPROTO;
    *out = (struct fbr_dispatch_taken){.first = b->first + pos};
    if (b->map) {
        out->map = b->map->id;
        out->map_user = b->map->user;
    }
    out->taken = take_results(d, b, n, take);
    d->stats.dropped += n - out->taken;
    d->stats.late += w->life == DEAD ? out->taken : 0;
    b->seen += n;
    if (b == w->batches && n && w->life < DEAD)
        learn_lag(d, now - w->last_seen, busy_ns);
    w->last_seen = now;
    if (b->map && n)
        learn(w, b->map, n, busy_ns);
    if (b->seen < b->kept) {
        fbr_dispatch_place(d, now, w);
        return 0;
    }
    if (b->map && n && w->rates[0].answered < b->kept)
        w->rates[0].answered = b->kept;
    fbr_batch_leave(d, now, b);
    return 0;
}

int fbr_dispatch_returned(struct fbr_dispatch *d, uint64_t now, uint64_t worker, uint64_t batch,
                          uint32_t kept)
{
    struct dispatch_worker *w = fbr_dispatch_worker_find(d, worker);
    struct batch *b = w && w->life < DEAD ? fbr_dispatch_batch_find(w, batch) : NULL;
    uint32_t had;

    if (!b)
        return -ENOENT;
    if (kept < b->seen || kept > b->kept)
        return -EPROTO;
    had = b->kept;
    b->kept = kept;
    b->begun = b->recalled;
    /* an answer does not show that the task makes progress, so `last_seen` stays */
    b->recalled = false;
    if (kept < had)
        d->recall_at = now;
    if (b->map)
        d->stats.returned += fbr_batch_requeue(d, b, kept, had, 0);
    if (b->seen == b->kept)
        fbr_batch_leave(d, now, b);
    else
        fbr_dispatch_place(d, now, w);
    return 0;
}
