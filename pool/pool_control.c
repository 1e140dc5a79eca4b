/* pool_control.c - what `fiber ps`, `top`, `kill` and `scale` may ask of a pool
 * (runtime/inspect/run_control.h has how), and the output of its workers, for `fiber logs`.
 *
 * Only pools of a master have a control socket, and only those that live for a while: many programs
 * open a pool for a moment, and no user would find it. Workers take the place that ranks have in a
 * ring.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/inspect/run_control.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/program/script.h"

#define WHILE_MS 500 /* life of a pool until it has a control socket */

struct fbr_pool_control {
    struct fbr_timer timer;
    struct fbr_run_control *control;
    struct fbr_run_control_about about;
    struct fbr_spool *spool;
    bool keeps; /* an attempt to open the spool was made */
};

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

/* The number of "worker-7" is 7, for as long as the worker lives. */
static int number_of(struct fiber_process *process)
{
    const char *name = fiber_process_name(process), *dash = strrchr(name, '-');

    return dash ? atoi(dash + 1) : 0;
}

/* Until a worker has reported its host name, the name of its job says where it is. A container's
 * host name is the beginning of its long id. */
static void put_host(char *out, size_t size, const struct fbr_pool_worker *w)
{
    const char *job = fiber_process_job(w->process), *where = w->use.host;

    /* on this host the name of a job is its pid, which has a column of its own */
    if (!where[0] && strtoll(job, NULL, 10) != fiber_process_pid(w->process))
        where = job;
    snprintf(out, size, "%.*s", strlen(where) == 64 ? 12 : (int)size - 1, where);
}

static void put_worker(struct fbr_run_rank *out, const struct fbr_pool_worker *w)
{
    out->stats.rank = number_of(w->process);
    out->stats.state = w->state != FBR_WORKER_STARTING;
    out->stats.pid = fiber_process_pid(w->process);
    out->stats.cpu = (double)w->use.cpu_ns / 1e9;
    out->stats.memory = w->use.resident;
    if (w->ready_ms)
        out->started_ms = fbr_wall_ms() - (int64_t)(fbr_now_ms() - w->ready_ms);
    out->tasks = w->tasks;
    out->busy = (double)w->busy_ns / 1e9;
    put_host(out->stats.host, sizeof(out->stats.host), w);
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
    struct fbr_buf none = {0};

    pthread_mutex_lock(&p->lock);
    DL_FOREACH(p->workers, w)
        if (w->state == FBR_WORKER_READY)
            fbr_process_send(w->process, FBR_POOL_LOOK, &none);
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
        if (rank < 0 || number_of(w->process) == rank)
            rc = fiber_process_kill(w->process);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* The pool's program is what the user started, and it knows how to end. */
static int control_stop(void *user)
{
    return kill(getpid(), SIGTERM) < 0 ? -errno : 0;
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
        if (rank < 0 || number_of(w->process) == rank)
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

/* Opens the spool. A pool without a name has its program's name, as in `fiber ps`. */
static void open_spool(struct fiber_pool *p)
{
    struct fbr_pool_control *d = p->run_control;
    struct fbr_run_control_about *about = &d->about;
    struct fbr_error err = {0, ""};

    if (d->keeps)
        return;
    d->keeps = true;
    fbr_script_own(about->name[0] ? NULL : about->name, sizeof(about->name), about->command,
                   sizeof(about->command));
    if (fbr_spool_open(&d->spool, p->rt->config, about, about->size > 0 ? (uint32_t)about->size : 1,
                       &err) < 0)
        fbr_info("the output of workers is not kept for `fiber logs`: %s", err.text);
}

void fbr_pool_control_keep(struct fiber_pool *p, struct fiber_process *process, int stream,
                           const void *data, size_t len)
{
    int rc;

    if (!p->run_control)
        return;
    open_spool(p);
    rc = fbr_spool_add(p->run_control->spool, 0, (uint32_t)number_of(process),
                       stream == 2 ? FBR_RECORD_ERR : FBR_RECORD_OUT, data, len);
    if (rc < 0)
        fbr_warn("`fiber logs` will not show all output of this pool: the output of workers cannot "
                 "be kept: %s",
                 fbr_strerror(rc));
}

static void open_now(void *arg)
{
    static const struct fbr_run_control_ops ops = {.facts = control_facts,
                                                   .stats = control_stats,
                                                   .look = control_look,
                                                   .signal = control_signal,
                                                   .stop = control_stop,
                                                   .scale = control_scale,
                                                   .host = control_host};
    struct fiber_pool *p = arg;
    struct fbr_error err = {0, ""};

    fbr_timer_fini(&p->run_control->timer);
    open_spool(p);
    if (fbr_run_control_open(&p->run_control->control, p->rt->loop, &ops, p, &p->run_control->about,
                             &err) < 0)
        fbr_info("`fiber ps` will not show this pool: %s", err.text);
}

void fbr_pool_control_open(struct fiber_pool *p)
{
    struct fbr_pool_control *d = p->rt->child ? NULL : calloc(1, sizeof(*d));

    if (!d)
        return;
    d->about =
        (struct fbr_run_control_about){.pid = getpid(),
                                       .started_ms = fbr_wall_ms(),
                                       .size = p->size.target,
                                       .kind = FBR_RUN_POOL,
                                       .unkept = fbr_config_size(p->rt->config, "log_keep") == 0};
    snprintf(d->about.name, sizeof(d->about.name), "%s", p->name);
    snprintf(d->about.backend, sizeof(d->about.backend), "%s",
             fbr_rt_backend_name(p->rt, p->backend[0] ? p->backend : NULL));
    if (fbr_random_id(d->about.uid) < 0 ||
        fbr_timer_init(&d->timer, p->rt->loop, open_now, p) < 0) {
        free(d);
        return;
    }
    p->run_control = d;
    fbr_timer_start(&d->timer, WHILE_MS, 0);
}

void fbr_pool_control_close(struct fiber_pool *p)
{
    struct fbr_pool_control *d = p->run_control;
    struct fbr_run_facts facts;

    if (!d)
        return;
    control_facts(p, &facts);
    fbr_spool_end(d->spool, &facts, 0, "");
    p->kept = d->spool;
    fbr_timer_fini(&d->timer);
    fbr_run_control_close(d->control, 0, "");
    p->run_control = NULL;
    free(d);
}
