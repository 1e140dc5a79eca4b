/* stats.c - statistics of a pool and its workers, and a way to kill one worker.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"

int fiber_pool_stats(struct fiber_pool *p, struct fiber_pool_stats *out)
{
    const struct fbr_dispatch_stats *s;
    struct fbr_pool_worker *w;

    if (!out || out->size != sizeof(*out))
        return fbr_keep(-EINVAL, "pool statistics: set size to sizeof(struct fiber_pool_stats)");
    if (fbr_rt_check() < 0)
        return -EPERM;
    pthread_mutex_lock(&p->lock);
    s = fbr_dispatch_stats(p->dispatch);
    *out = p->stats;
    out->size = sizeof(*out);
    out->workers = (int)s->workers;
    out->busy = (int)(s->workers - s->idle);
    DL_FOREACH(p->workers, w)
        out->starting += w->state == FBR_WORKER_STARTING;
    out->target = p->size.target;
    out->waiting = s->waiting;
    out->running = s->held;
    out->requeued = s->requeued;
    out->dropped = s->dropped;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void describe(struct fbr_pool_worker *w, struct fiber_worker_stats *o)
{
    snprintf(o->name, sizeof(o->name), "%s", fiber_process_name(w->process));
    o->pid = fiber_process_pid(w->process);
    o->tasks = w->tasks;
    o->busy = (double)w->busy_ns / 1e9;
    o->rtt = fbr_process_rtt(w->process);
    o->state = w->state == FBR_WORKER_STARTING ? 0
               : w->state == FBR_WORKER_READY  ? (fbr_workers_is_busy(w) ? 2 : 1)
                                               : 3;
}

int fiber_pool_worker_stats(struct fiber_pool *p, struct fiber_worker_stats *out, int max)
{
    struct fbr_pool_worker *w;
    int n = fbr_rt_check();

    if (n < 0)
        return n;
    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w) {
        if (out && n < max)
            describe(w, &out[n]);
        n++;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

int fiber_pool_worker_kill(struct fiber_pool *p, const char *name)
{
    struct fbr_pool_worker *w;
    int rc;

    if (!p || !name)
        return fbr_keep(-EINVAL, "fiber_pool_worker_kill: needs a pool, and the name of a worker");
    rc = fbr_rt_check();
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w)
        if (strcmp(fiber_process_name(w->process), name) == 0)
            break;
    rc = w ? fiber_process_kill(w->process) : -ESRCH;
    pthread_mutex_unlock(&p->lock);
    return rc == -ESRCH ? fbr_keep(rc, "the pool has no worker '%.64s' now", name) : rc;
}
