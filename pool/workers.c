/* workers.c - the workers of a pool: how many there are, and the states of each.
 *
 *     STARTING  its process was started             -> READY when it reports READY, or STOPPING
 *                                                   (killed) when there are too many
 *     READY     the engine gives it tasks           -> DRAINING when there are too many
 *     DRAINING  it finishes what it holds           -> STOPPING when the engine reports DRAINED
 *     STOPPING  it was asked to exit, or killed
 *
 * A worker that has done its tasks_per_child goes from READY to STOPPING, also by DRAINED. A worker
 * may end in any state. Only its end removes it from the list.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"

#define BACKOFF_MS 100 /* after a failed start, doubled each time */
#define BACKOFF_MAX_MS 5000
#define FAILED_STARTS_MAX \
    4                    /* in a row, with no worker at work, for start_patience: the pool breaks */
#define CANNOT_START 125 /* exit code of a process whose job did not get as far as running it */
#define OWN_SHORTAGE_MS 1000
#define CLOSE_KILLED_MS 1000 /* time for hosts to kill their workers */
#define CLOSE_BUSY_MS 200    /* time at close for a task that checks fiber_reply_cancelled() */

/* ---- Events of a worker's process, on the loop thread ---- */

void fbr_workers_ready(struct fbr_pool_worker *w)
{
    struct fiber_pool *p = w->pool;

    pthread_mutex_lock(&p->lock);
    if (w->state != FBR_WORKER_STARTING || p->closing) {
        /* it ends anyway */
    } else if (fbr_dispatch_worker_add(p->dispatch, fbr_now_ns(), w, p->tasks_per_child, &w->id) <
               0) {
        fbr_process_abandon(w->process, "could not be added to the pool: out of memory");
    } else {
        w->state = FBR_WORKER_READY;
        w->ready_ms = fbr_now_ms();
        if (w->host)
            w->host->useful = true;
        p->failed_starts = p->failed_alone = p->unstarted = 0;
        fbr_workers_adjust(p); /* it may be one too many by now */
    }
    pthread_cond_broadcast(&p->changed);
    fbr_pool_leave(p);
}

static bool on_the_way(const struct fiber_pool *p)
{
    const struct fbr_pool_worker *w;

    DL_FOREACH(p->workers, w)
        if (w->state == FBR_WORKER_STARTING && !(w->host && w->host->ended))
            return true;
    return false;
}

/* Whether the cluster has no room yet for a job of the pool that it has taken. Loop thread. */
static bool one_waits_for_a_place(const struct fiber_pool *p)
{
    const struct fbr_pool_supervisor *h;
    const struct fbr_pool_worker *w;

    DL_FOREACH(p->workers, w)
        if (w->state == FBR_WORKER_STARTING && fbr_process_wants_place(w->process))
            return true;
    DL_FOREACH(p->hosts, h)
        if (!h->ended && fbr_process_wants_place(h->process))
            return true;
    return false;
}

static uint64_t keep_report(struct fiber_pool *p, const char *report)
{
    uint64_t id = ++p->next_report;
    char **slot = &p->reports[id % FBR_DEATH_REPORTS];

    free(*slot);
    *slot = strdup(report);
    return id;
}

/* Whether the failure may pass. A shortage (of memory, names, hosts) passes; one of this process
 * itself, which has no descriptors left, mostly not while the program waits for the pool. A program
 * that is not there stays away, and a process that ran and ended itself, as after an initializer
 * that failed, will do so again. */
static bool may_pass(const struct fiber_pool *p, struct fiber_process *process)
{
    int64_t patience = fbr_config_ms(p->rt->config, "start_patience");
    int code;

    if (!process && patience > OWN_SHORTAGE_MS)
        patience = OWN_SHORTAGE_MS;
    if (process && fbr_process_cannot_run(process))
        return false;
    if (process && fiber_process_exitcode(process, &code) == 0 && code > 0 && code != CANNOT_START)
        return false;
    if (fbr_now_ms() - p->alone_since_ms < (uint64_t)patience)
        return true;
    /* the cluster refuses more jobs than it has taken; without a process this is any thread */
    return process && !fiber_process_job(process)[0] && one_waits_for_a_place(p);
}

/* Prints why the first start of a row failed, without the process's own last lines, which are on
 * the screen already. Later prints only the number of failures. */
static void warn_of_start(const struct fiber_pool *p, const char *report)
{
    const char *lines = strstr(report, "; its last lines:");
    int n = p->unstarted;

    if (n == 1)
        fbr_warn("pool: a worker did not start: %.*s",
                 (int)(lines ? (size_t)(lines - report) : strlen(report)), report);
    else if ((n & (n - 1)) == 0) /* the 2nd, 4th, 8th, ... */
        fbr_warn("pool: %d workers in a row did not start", n);
}

void fbr_workers_failed_start(struct fiber_pool *p, struct fiber_process *process,
                              const char *report)
{
    uint64_t wait = (uint64_t)BACKOFF_MS << (p->failed_starts < 8 ? p->failed_starts : 8);
    char last[3001];
    int most;

    p->failed_starts++;
    p->unstarted++;
    p->not_before_ms = fbr_now_ms() + (wait < BACKOFF_MAX_MS ? wait : BACKOFF_MAX_MS);
    p->start_at_ms = p->not_before_ms;
    warn_of_start(p, report);
    if (fbr_dispatch_stats(p->dispatch)->workers) {
        p->failed_alone = 0;
        return;
    }
    if (!p->failed_alone++)
        p->alone_since_ms = fbr_now_ms();
    if (p->failed_alone < FAILED_STARTS_MAX || may_pass(p, process))
        return;
    /* Others may be starting, in a large pool many; but we do not wait for them for ever. */
    most = p->size.target > 4 * FAILED_STARTS_MAX ? p->size.target : 4 * FAILED_STARTS_MAX;
    if (on_the_way(p) && p->failed_alone < most && !(process && fbr_process_cannot_run(process)))
        return;
    p->broken = true;
    fbr_printable_cut(last, sizeof(last), report);
    snprintf(p->why, sizeof(p->why), "%d workers in a row could not be started; the last one: %s",
             p->failed_alone, last);
    fbr_result_end_all(p, -ECHILD, p->why);
    pthread_cond_broadcast(&p->changed);
}

void fbr_workers_retry(struct fiber_pool *p)
{
    if (!p->broken)
        return;
    p->broken = false;
    p->failed_starts = p->failed_alone = 0;
    p->not_before_ms = 0;
    fbr_workers_adjust(p);
}

/* Its end, as the engine counts it. A task that was alone in its job may be one that takes its job
 * along each time. */
static unsigned flags_of_end(const struct fbr_pool_worker *w, const struct fiber_process *process)
{
    bool with_job = w->host && w->host->ended;

    if (w->disrupted || fbr_process_disrupted(process) || (with_job && !fbr_workers_is_busy(w)))
        return FBR_DISPATCH_DISRUPTION;
    return with_job && w->host->busy > 1 ? FBR_DISPATCH_JOB : 0;
}

static void on_end(void *user, struct fiber_process *process)
{
    struct fbr_pool_worker *w = user;
    struct fiber_pool *p = w->pool;
    struct fbr_dispatch_failure failure;
    const char *report = fiber_process_report(process);
    unsigned flags;
    bool expected;

    pthread_mutex_lock(&p->lock);
    flags = flags_of_end(w, process);
    w->disrupted = flags != 0;
    expected = w->state == FBR_WORKER_STOPPING || p->closing || w->disrupted;
    if (w->id && w->state != FBR_WORKER_STOPPING) {
        if (!expected)
            p->stats.deaths++;
        if (fbr_dispatch_worker_dead(p->dispatch, fbr_now_ns(), w->id, keep_report(p, report),
                                     flags, &failure) > 0)
            fbr_result_task_failure(p, &failure);
    }
    w->state = FBR_WORKER_STOPPING;
    if (!w->ready_ms && !expected)
        fbr_workers_failed_start(p, process, report);
    DL_DELETE(p->workers, w);
    p->n_workers--;
    if (w->host)
        fbr_pool_supervisor_put(w->host);
    if (!p->closing) {
        if (w->ready_ms && !expected)
            p->stats.restarts += p->n_workers < p->size.target;
        fbr_workers_adjust(p);
    }
    pthread_cond_broadcast(&p->changed);
    fbr_pool_leave(p);
}

static void on_gone(void *user, struct fiber_process *process)
{
    struct fbr_pool_worker *w = user;
    struct fiber_pool *p = w->pool;
    struct fbr_dispatch_failure failure;

    pthread_mutex_lock(&p->lock);
    if (w->id && fbr_dispatch_worker_remove(p->dispatch, fbr_now_ns(), w->id, &failure) > 0)
        fbr_result_task_failure(p, &failure);
    fbr_pool_leave(p);
    fiber_process_close(process);
    fbr_buf_fini(&w->commons);
    free(w);
    fbr_pool_unref(p);
}

static void on_output(void *user, struct fiber_process *process, int stream, const void *data,
                      size_t len)
{
    const struct fbr_pool_worker *w = user;

    fbr_pool_control_keep(w->pool, process, stream, data, len);
}

static const struct fbr_process_ops process_ops = {
    .on_frame = fbr_pool_on_frame, .on_output = on_output, .on_end = on_end, .on_gone = on_gone};

/* ---- How many ---- */

static int start_one(struct fiber_pool *p, char *why, size_t size)
{
    struct fbr_pool_worker *w = calloc(1, sizeof(*w));
    struct fbr_process_spec spec = {.fn = p->serve ? NULL : fbr_pool_worker_main,
                                    .arg = p->work.data,
                                    .len = p->work.len,
                                    .prefix = "worker",
                                    .options = &p->start,
                                    .env = p->env,
                                    .ops = &process_ops,
                                    .user = w,
                                    .alike = p->size.target,
                                    .in_run = true,
                                    .link = &fbr_pool_link_ops};
    static const uint32_t of_host = FBR_WORKER_MAGIC;
    int rc;

    if (!w) {
        snprintf(why, size, "out of memory");
        return -ENOMEM;
    }
    w->pool = p;
    if (p->workers_per_job > 1) {
        w->host = fbr_pool_supervisor_get(p);
        spec.host = w->host ? w->host->process : NULL;
        spec.arg = &of_host;
        spec.len = sizeof(of_host);
    }
    rc = p->workers_per_job > 1 && !w->host ? -ECHILD : fbr_process_start(&w->process, &spec);
    if (rc < 0) {
        snprintf(why, size, "%s", fiber_last_error());
        if (w->host)
            fbr_pool_supervisor_put(w->host);
        free(w);
        return rc;
    }
    p->refs++;
    p->n_workers++;
    DL_APPEND(p->workers, w);
    return 0;
}

static void drain_one(struct fiber_pool *p, struct fbr_pool_worker *w)
{
    if (w->state == FBR_WORKER_STARTING) {
        w->disrupted = true;
        w->state = FBR_WORKER_STOPPING;
        fiber_process_kill(w->process);
        return;
    }
    w->state = FBR_WORKER_DRAINING;
    fbr_dispatch_worker_drain(p->dispatch, w->id);
}

bool fbr_workers_is_busy(const struct fbr_pool_worker *w)
{
    return fbr_dispatch_worker_idle_since(w->pool->dispatch, w->id) == FBR_DISPATCH_NEVER;
}

/* The worker that is needed least: the one that will join last, else an idle one, else any. If the
 * first to join were stopped, none would ever join a pool that is resized all the time. */
static struct fbr_pool_worker *least_missed(struct fiber_pool *p)
{
    struct fbr_pool_worker *w, *starting = NULL, *idle = NULL, *any = NULL;

    DL_FOREACH(p->workers, w) {
        if (w->state == FBR_WORKER_STARTING)
            starting = w;
        if (w->state != FBR_WORKER_READY)
            continue;
        any = w;
        if (!fbr_workers_is_busy(w))
            idle = w;
    }
    if (starting)
        return starting;
    return idle ? idle : any;
}

static int staying(struct fiber_pool *p)
{
    struct fbr_pool_worker *w;
    int n = 0;

    DL_FOREACH(p->workers, w)
        n += w->state == FBR_WORKER_STARTING || w->state == FBR_WORKER_READY;
    return n;
}

/* Autoscale: sets the target to as many workers as the backlog can use, at once, or to one less
 * when a worker is idle for long. */
static void retarget(struct fiber_pool *p)
{
    struct fbr_pool_worker *w;

    p->size.target = fbr_autoscale_target(&p->size, p->dispatch, fbr_now_ns());
    DL_FOREACH(p->workers, w)
        if (w->state == FBR_WORKER_READY &&
            fbr_autoscale_spares(&p->size, p->dispatch, fbr_now_ns(), w->id)) {
            p->size.target--;
            drain_one(p, w);
            return;
        }
}

void fbr_workers_adjust(struct fiber_pool *p)
{
    char why[sizeof(p->why)];
    int n;

    p->start_at_ms = UINT64_MAX;
    if (p->closing || p->broken)
        return;
    if (p->size.min < p->size.max)
        retarget(p);
    n = staying(p);
    while (n < p->size.target && fbr_now_ms() >= p->not_before_ms) {
        if (start_one(p, why, sizeof(why)) < 0) {
            fbr_workers_failed_start(p, NULL, why);
            return;
        }
        n++;
    }
    if (n < p->size.target)
        p->start_at_ms = p->not_before_ms;
    while (n > p->size.target) {
        struct fbr_pool_worker *w = least_missed(p);

        if (!w)
            break;
        drain_one(p, w);
        n--;
    }
}

/* Asks a worker to exit. If the message cannot be sent, the worker is killed: no result of it is
 * needed. */
static void dismiss(struct fbr_pool_worker *w)
{
    struct fbr_buf none = {0};

    if (fbr_process_send(w->process, FBR_POOL_STOP, &none) < 0) {
        w->disrupted = true;
        fiber_process_kill(w->process);
    }
}

void fbr_workers_stop(struct fbr_pool_worker *w)
{
    struct fiber_pool *p = w->pool;
    struct fbr_dispatch_failure failure;

    if (fbr_dispatch_worker_remove(p->dispatch, fbr_now_ns(), w->id, &failure) > 0)
        fbr_result_task_failure(p, &failure);
    w->id = 0;
    w->state = FBR_WORKER_STOPPING;
    dismiss(w);
    /* its place may need a new worker */
    if (!p->closing)
        fbr_workers_adjust(p);
}

/* ---- The timer ---- */

static void on_tick(void *arg)
{
    struct fiber_pool *p = arg;

    pthread_mutex_lock(&p->lock);
    p->timer_at_ms = UINT64_MAX;
    fbr_result_end_late(p);
    fbr_workers_adjust(p);
    fbr_pool_leave(p);
}

static void arm(void *arg)
{
    struct fiber_pool *p = arg;
    uint64_t now = fbr_now_ms(), at;

    pthread_mutex_lock(&p->lock);
    at = p->timer_at_ms;
    pthread_mutex_unlock(&p->lock);
    if (p->timer.uv && at != UINT64_MAX)
        fbr_timer_start(&p->timer, at > now ? at - now : 0, 0);
    fbr_pool_unref(p);
}

void fbr_workers_arm(struct fiber_pool *p)
{
    uint64_t wake = fbr_dispatch_wake(p->dispatch), at = UINT64_MAX, now = fbr_now_ms(), look;

    if (p->closing)
        return;
    if (wake != FBR_DISPATCH_NEVER)
        at = wake / 1000000 + 1;
    look = fbr_autoscale_next_ms(&p->size, now, p->undone);
    if (look < at)
        at = look;
    if (p->start_at_ms < at) /* even if that time has passed */
        at = p->start_at_ms;
    if (p->end_by_ms < at)
        at = p->end_by_ms;
    if (p->short_of_memory && now + FBR_AUTOSCALE_TICK_MS < at)
        at = now + FBR_AUTOSCALE_TICK_MS;
    if (at >= p->timer_at_ms)
        return;
    p->timer_at_ms = at;
    /* `armer` runs on another thread, and takes the lock */
    if (fbr_loop_post_own(p->rt->loop, &p->armer) > 0)
        p->refs++;
}

static int open_timer(void *arg)
{
    struct fiber_pool *p = arg;
    int rc;

    pthread_mutex_lock(&p->lock);
    rc = p->closing ? -ESHUTDOWN : 0; /* close_timer() may have been here already */
    pthread_mutex_unlock(&p->lock);
    if (rc < 0 || (rc = fbr_timer_init(&p->timer, p->rt->loop, on_tick, p)) < 0)
        return rc;
    fbr_pool_control_open(p);
    return 0;
}

static int close_timer(void *arg)
{
    struct fiber_pool *p = arg;

    fbr_pool_control_close(p);
    fbr_timer_fini(&p->timer);
    return 0;
}

int fbr_workers_open(struct fiber_pool *p)
{
    int rc = fbr_loop_call(p->rt->loop, open_timer, p);

    if (rc < 0)
        return rc;
    p->armer = (struct fbr_post){.fn = arm, .arg = p, .own = true};
    pthread_mutex_lock(&p->lock);
    fbr_workers_adjust(p);
    fbr_pool_leave(p);
    return 0;
}

/* ---- The end ---- */

/* Asks all workers to exit. Workers that hold tasks are killed a little later. */
static void dismiss_all(struct fiber_pool *p)
{
    struct fbr_pool_worker *w;

    DL_FOREACH(p->workers, w) {
        if (w->state == FBR_WORKER_STARTING)
            drain_one(p, w);
        else if (w->state != FBR_WORKER_STOPPING)
            dismiss(w);
    }
}

static void kill_all(struct fiber_pool *p, bool busy_only)
{
    struct fbr_pool_worker *w;

    DL_FOREACH(p->workers, w) {
        if (busy_only && !fbr_workers_is_busy(w))
            continue;
        w->disrupted = true;
        fiber_process_kill(w->process);
    }
}

void fbr_pool_wait_dwindle(struct fiber_pool *p, const int *n, uint64_t ms)
{
    uint64_t deadline = fbr_now_ms() + ms;
    int before = *n;

    while (*n && fbr_cond_wait(&p->changed, &p->lock, deadline) == 0) {
        if (*n < before)
            deadline = fbr_now_ms() + ms;
        before = *n;
    }
}

static void wait_gone(struct fiber_pool *p, uint64_t ms)
{
    uint64_t deadline = fbr_now_ms() + ms;

    while (p->n_workers && fbr_cond_wait(&p->changed, &p->lock, deadline) == 0)
        continue;
}

void fbr_workers_close(struct fiber_pool *p)
{
    pthread_mutex_lock(&p->lock);
    dismiss_all(p);
    fbr_pool_wait_dwindle(p, &p->n_workers, CLOSE_BUSY_MS);
    kill_all(p, true);
    wait_gone(p, (uint64_t)fbr_config_ms(p->rt->config, "grace"));
    kill_all(p, false);
    fbr_pool_wait_dwindle(p, &p->n_workers, CLOSE_KILLED_MS);
    if (p->n_workers)
        fbr_pool_supervisor_kill_all(p);
    fbr_pool_wait_dwindle(p, &p->n_workers, (uint64_t)fbr_config_ms(p->rt->config, "linger"));
    fbr_pool_supervisor_close_all(p);
    pthread_mutex_unlock(&p->lock);
    fbr_loop_call(p->rt->loop, close_timer, p);
    fbr_spool_close(p->kept);
    p->kept = NULL;
}
