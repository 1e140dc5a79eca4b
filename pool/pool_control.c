/* pool_control.c - what `fiber ps`, `top`, `kill` and `scale` may ask of a pool
 * (runtime/inspect/run_control.h has how), and the output of its workers, for `fiber logs`.
 *
 * Workers take the place that ranks have in a ring.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"

/* ---- Requests ---- */

static void control_facts(void *user, struct fbr_run_facts *f)
{
    struct fiber_pool *p = user;
    struct fbr_pending jobs = {0};
    const struct fbr_dispatch_stats *s = fbr_dispatch_stats(p->dispatch);
    struct fbr_pool_worker *w;

    memset(f, 0, sizeof(*f));
    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w) {
        f->agents++;
        f->running += w->state != FBR_WORKER_STARTING;
        fbr_pending_add(&jobs, fbr_process_pending(w->process), 0);
    }
    f->agents_joined = f->running;
    f->size = p->size.target;
    f->restarts = (int)p->stats.restarts;
    snprintf(f->doing, sizeof(f->doing), "%llu task%s running, %llu waiting, %llu done",
             (unsigned long long)s->held, s->held == 1 ? "" : "s", (unsigned long long)s->waiting,
             (unsigned long long)p->stats.done);
    if (p->broken)
        snprintf(f->waiting, sizeof(f->waiting), "%.190s", p->why);
    else
        fbr_pending_format(&jobs, f->waiting, sizeof(f->waiting));
    pthread_mutex_unlock(&p->lock);
}

static void put_worker(struct fbr_run_rank *out, const struct fbr_pool_worker *w)
{
    fbr_own_run_put(w->process, out);
    out->stats.rank = fbr_process_number(w->process);
    out->stats.state = w->state != FBR_WORKER_STARTING;
    if (w->ready_ms)
        out->started_ms = fbr_wall_ms() - (int64_t)(fbr_now_ms() - w->ready_ms);
    out->tasks = w->tasks;
    out->busy = (double)w->busy_ns / 1e9;
}

static int control_stats(void *user, struct fbr_run_rank *out, int max)
{
    struct fiber_pool *p = user;
    struct fbr_pool_worker *w;
    int n = 0;

    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w) {
        if (n < max)
            put_worker(&out[n], w);
        n++;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* Task counts and times come with each batch. The rest is asked for here, and is known at the next
 * look. */
static void control_look(void *user)
{
    struct fiber_pool *p = user;
    struct fbr_pool_worker *w;

    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w)
        fbr_process_look(w->process);
    pthread_mutex_unlock(&p->lock);
}

/* SIGTERM and SIGKILL end workers, which are then replaced. Rank -1: all workers. */
static int control_signal(void *user, int rank, int sig)
{
    struct fiber_pool *p = user;
    struct fbr_pool_worker *w;
    int rc = -ESRCH;

    if (sig != SIGTERM && sig != SIGKILL)
        return -EOPNOTSUPP;
    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w)
        if (rank < 0 || fbr_process_number(w->process) == rank)
            rc = fiber_process_kill(w->process);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int control_scale(void *user, int workers)
{
    return workers < 1 ? -EINVAL : fiber_pool_resize(user, workers);
}

static struct fiber_process *control_host(void *user, int rank, struct fbr_error *err)
{
    struct fiber_pool *p = user;
    struct fbr_pool_worker *w;
    struct fiber_process *found = NULL;
    int n = 0;

    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w) {
        n++;
        if (rank < 0 || fbr_process_number(w->process) == rank)
            found = w->process;
    }
    pthread_mutex_unlock(&p->lock);
    if (rank < 0 && n > 1) {
        fbr_fail(err, -EINVAL, "it has %d workers: name one as RUN/WORKER, see `fiber top`", n);
        return NULL;
    }
    if (!found && rank < 0)
        fbr_fail(err, -ESRCH, "it has no workers now");
    else if (!found)
        fbr_fail(err, -ESRCH, "it has no worker %d now; see `fiber top`", rank);
    return found; /* a worker goes away only on the loop thread, which this is */
}

/* ---- Opening ---- */

void fbr_pool_control_keep(struct fiber_pool *p, struct fiber_process *process, int stream,
                           const void *data, size_t len)
{
    fbr_own_run_keep(p->run, fbr_process_number(process),
                     stream == 2 ? FBR_RECORD_ERR : FBR_RECORD_OUT, data, len);
}

void fbr_pool_control_open(struct fiber_pool *p)
{
    static const struct fbr_run_control_ops ops = {.facts = control_facts,
                                                   .stats = control_stats,
                                                   .look = control_look,
                                                   .signal = control_signal,
                                                   .stop = fbr_own_run_stop,
                                                   .scale = control_scale,
                                                   .host = control_host};

    p->run = fbr_own_run_new(p->rt, FBR_RUN_POOL, p->name, p->backend, &ops, p);
    fbr_own_run_wake(p->run);
}

void fbr_pool_control_close(struct fiber_pool *p)
{
    p->kept = fbr_own_run_end(p->run);
    p->run = NULL;
}
