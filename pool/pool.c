/* pool.c - opens, resizes and closes pools.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "runtime/proc/backend.h"
#include "runtime/base/environ.h"
#include "runtime/base/jobspec.h"
#include "runtime/pin/cpulist.h"

/* Guards the list of pools. A pool's own lock may be taken under this lock, not the other way
 * round. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

static void destroy(struct fiber_pool *p)
{
    pthread_mutex_lock(&list_lock);
    if (p->prev)
        DL_DELETE(p->rt->pools, p);
    pthread_mutex_unlock(&list_lock);
    fbr_dispatch_close(p->dispatch);
    for (int i = 0; i < FBR_DEATH_REPORTS; i++)
        free(p->reports[i]);
    fbr_buf_fini(&p->message);
    fbr_buf_fini(&p->strings);
    free(p->env);
    fbr_buf_fini(&p->work);
    fbr_buf_fini(&p->host_work);
    fbr_common_free_all(p);
    fbr_ready_fini(&p->takable);
    pthread_cond_destroy(&p->taken);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void fbr_pool_unref(struct fiber_pool *p)
{
    bool last;

    pthread_mutex_lock(&p->lock);
    last = --p->refs == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        destroy(p);
}

static int put_work(struct fiber_pool *p, const struct fiber_pool_options *o, struct fbr_error *err)
{
    struct fbr_fnref ref;
    int rc = 0;

    fbr_put_u32(&p->work, FBR_WORKER_MAGIC);
    fbr_put_u8(&p->work, o->init != NULL);
    if (o->init) {
        rc = fbr_fnref_make(&ref, (void (*)(void))o->init, err);
        if (rc < 0)
            return fbr_wrap(err, "the pool's initializer cannot be sent to workers");
        fbr_fnref_put(&p->work, &ref);
    }
    fbr_put_u64(&p->work, o->init_len);
    fbr_put(&p->work, o->init_arg, o->init_len);
    if (p->workers_per_job > 1) {
        fbr_put_u32(&p->host_work, FBR_HOST_MAGIC);
        fbr_put(&p->host_work, p->work.data, p->work.len);
    }
    return p->work.failed || p->host_work.failed ? fbr_fail(err, -ENOMEM, "pool: out of memory")
                                                 : 0;
}

static int check_options(const struct fiber_pool_options *o, struct fbr_error *err)
{
    if (o->size != sizeof(*o))
        return fbr_fail(err, -EINVAL,
                        "pool options: size is %zu, not sizeof(struct fiber_pool_options)",
                        o->size);
    if (o->min < 0 || o->max < 0 || (o->max && o->min > o->max))
        return fbr_fail(err, -EINVAL,
                        "pool options: min %d and max %d workers are invalid; use 0 <= min <= max",
                        o->min, o->max);
    if (o->serve && !o->job.command)
        return fbr_fail(err, -EINVAL,
                        "pool options: serve needs the program's argv in job.command");
    if (!o->init_arg && o->init_len)
        return fbr_fail(err, -EINVAL, "pool options: init_len is above 0, but init_arg is NULL");
    if (o->backend && strcmp(o->backend, "auto") != 0 && !fbr_backend_find(o->backend, err))
        return -ENOENT;
    if (o->workers_per_job < 0)
        return fbr_fail(err, -EINVAL, "pool options: workers_per_job cannot be negative");
    return fbr_jobspec_check("pool", &o->job, err);
}

static int set_up(struct fiber_pool *p, const struct fiber_pool_options *o, struct fbr_error *err)
{
    int rc = check_options(o, err);
    struct fbr_cpuset usable;
    uint64_t longest;

    if (rc < 0)
        return rc;
    p->cpus = fbr_cpuset_read(&usable, 0) == 0 ? (int)fbr_cpuset_count(&usable) : 1;
    p->size.min = o->min || o->max ? o->min : p->cpus;
    p->size.max = o->max ? o->max : p->size.min;
    if (p->size.max == 0)
        return fbr_fail(err, -EINVAL, "pool options: max is 0");
    p->size.target = p->size.min;
    p->serve = o->serve;
    p->workers_per_job = o->workers_per_job > 1 ? o->workers_per_job : 1;
    p->tasks_per_child = o->tasks_per_child;
    p->size.idle_ns = (uint64_t)(o->idle_ms > 0 ? o->idle_ms : 2000) * 1000000u;
    p->start.size = sizeof(p->start);
    if (o->backend) {
        snprintf(p->backend, sizeof(p->backend), "%s", o->backend);
        p->start.backend = p->backend;
    }
    if (fbr_jobspec_copy(&p->start.job, &p->strings, &o->job) < 0 ||
        !(p->env = fbr_environ_copy(o->job.env)))
        return fbr_fail(err, -ENOMEM, "pool: out of memory");
    fbr_rt_see_environ(p->rt, o->backend);
    if (o->job.name)
        snprintf(p->name, sizeof(p->name), "%s", o->job.name);
    p->start.job.name = NULL; /* each worker has a name of its own */
    rc = put_work(p, o, err);
    if (rc < 0)
        return rc;
    longest = fbr_config_size(p->rt->config, "max_message");
    p->dispatch =
        fbr_dispatch_open(longest < FBR_DISPATCH_BYTES_MAX ? longest : FBR_DISPATCH_BYTES_MAX);
    return p->dispatch ? 0 : fbr_fail(err, -ENOMEM, "pool: out of memory");
}

/* ---- The end ---- */

/* Waits until another thread has run the callbacks and returned. */
static void wait_callbacks(struct fiber_pool *p)
{
    while ((p->callbacks || p->calling) && !fbr_pool_in_callback(p))
        fbr_cond_wait(&p->changed, &p->lock, UINT64_MAX);
}

/* Ends the work and the workers. A second caller waits for the first, unless the second caller is a
 * callback for which the first waits. */
static void shut(struct fiber_pool *p, int code, const char *why)
{
    bool first;

    pthread_mutex_lock(&p->lock);
    first = !p->closing;
    if (first) {
        p->closing = true;
        p->end_code = code;
        p->end_why = why;
        fbr_result_end_all(p, code, why);
        fbr_stream_shut(p);
        pthread_cond_broadcast(&p->changed);
    }
    while (!first && !p->closed && !fbr_pool_in_callback(p))
        fbr_cond_wait(&p->changed, &p->lock, UINT64_MAX);
    first = !p->closed;
    fbr_pool_leave(p);
    if (!first)
        return;
    fbr_workers_close(p);
    pthread_mutex_lock(&p->lock);
    wait_callbacks(p);
    p->closed = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *close_main(void *pool)
{
    shut(pool, -ECANCELED, "the pool was closed");
    fbr_pool_unref(pool);
    return NULL;
}

void fiber_pool_close(struct fiber_pool *p)
{
    if (!p || fbr_rt_check() < 0)
        return;
    /* the workers cannot end while a callback on an internal thread waits for them */
    if (!fbr_rt_awaited(p->rt) || fbr_thread_start(NULL, close_main, p) < 0)
        close_main(p);
}

static const char ends[] = "the program ends: fiber_fini() or exit() was called";

/* The next open pool, with a reference. */
static struct fiber_pool *next_open(struct fbr_runtime *rt)
{
    struct fiber_pool *p;

    pthread_mutex_lock(&list_lock);
    rt->ending = true; /* no more pools are opened */
    DL_FOREACH(rt->pools, p) {
        bool open;

        pthread_mutex_lock(&p->lock);
        open = !p->closed && p->refs > 0;
        p->refs += open;
        pthread_mutex_unlock(&p->lock);
        if (open)
            break;
    }
    pthread_mutex_unlock(&list_lock);
    return p;
}

static void close_pools(struct fbr_runtime *rt)
{
    struct fiber_pool *p;

    while ((p = next_open(rt))) {
        shut(p, -ESHUTDOWN, ends);
        fbr_pool_unref(p);
    }
}

/* Lists the pool, so that the end of the program ends it. */
static int enlist(struct fiber_pool *p)
{
    struct fbr_runtime *rt = p->rt;
    bool ending = fbr_rt_at_end(rt, FBR_END_TASKS, close_pools) < 0;

    pthread_mutex_lock(&list_lock);
    ending |= rt->ending;
    if (!ending)
        DL_APPEND(rt->pools, p);
    pthread_mutex_unlock(&list_lock);
    return ending ? -ESHUTDOWN : 0;
}

/* ---- Opening ---- */

int fiber_pool_open(struct fiber_pool **out, const struct fiber_pool_options *opts)
{
    static const struct fiber_pool_options none = {.size = sizeof(none)};
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_error err = {0, ""};
    struct fiber_pool *p;
    int rc;

    if (!rt)
        return fbr_kept();
    p = calloc(1, sizeof(*p));
    if (!p)
        return fbr_keep(-ENOMEM, "pool: out of memory");
    p->rt = rt;
    p->refs = 1;
    p->timer_at_ms = UINT64_MAX;
    p->end_by_ms = UINT64_MAX;
    p->callbacks_last = &p->callbacks;
    /* The lock is held for microseconds, often by the data server: a thread that spins for it saves
     * two wake-ups. */
    p->lock = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    fbr_cond_init(&p->changed);
    fbr_cond_init(&p->taken);
    if (set_up(p, opts ? opts : &none, &err) < 0)
        goto fail;
    if ((rc = enlist(p)) < 0 || (rc = fbr_workers_open(p)) < 0) {
        fbr_fail(&err, rc, "pool: %s", rc == -ESHUTDOWN ? ends : fbr_strerror(rc));
        goto fail;
    }
    fbr_rt_await_starts(rt, p->start.backend);
    *out = p;
    return 0;
fail:
    fbr_pool_unref(p); /* the thread that ends the program may have it, too */
    return fbr_keep_error(&err);
}

int fiber_pool_autoscale(struct fiber_pool *p, int min, int max)
{
    if (min < 0 || max < 1 || min > max)
        return fbr_keep(
            -EINVAL,
            "pool: min %d and max %d workers are invalid; use 0 <= min <= max, and max above 0",
            min, max);
    if (fbr_rt_check() < 0)
        return -EPERM;
    pthread_mutex_lock(&p->lock);
    p->size.min = min;
    p->size.max = max;
    if (p->size.target < min)
        p->size.target = min;
    if (p->size.target > max)
        p->size.target = max;
    fbr_workers_adjust(p);
    fbr_pool_leave(p);
    return 0;
}

int fiber_pool_resize(struct fiber_pool *p, int workers)
{
    return fiber_pool_autoscale(p, workers, workers);
}

static bool busy(const struct fiber_pool *p)
{
    return p->undone || ((p->callbacks || p->calling) && !fbr_pool_in_callback(p));
}

int fiber_pool_drain(struct fiber_pool *p, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&p->lock);
    p->refs++; /* another thread may close the pool */
    while (busy(p) && rc == 0)
        rc = fbr_rt_wait(p->rt, &p->changed, &p->lock, deadline);
    if (!busy(p))
        rc = 0;
    pthread_mutex_unlock(&p->lock);
    fbr_pool_unref(p);
    return rc == -ETIMEDOUT ? fbr_keep(rc, "the pool still has work after %d ms", timeout_ms) : rc;
}

/* Under the lock. */
static int joined(const struct fiber_pool *p)
{
    const struct fbr_pool_worker *w;
    int n = 0;

    DL_FOREACH(p->workers, w)
        n += w->state == FBR_WORKER_READY || w->state == FBR_WORKER_DRAINING;
    return n;
}

int fiber_pool_wait_workers(struct fiber_pool *p, int workers, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check(), n;

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&p->lock);
    p->refs++;
    while ((n = joined(p)) < workers && rc == 0 && !p->broken && !p->closing)
        rc = fbr_rt_wait(p->rt, &p->changed, &p->lock, deadline);
    if (n >= workers)
        rc = 0;
    else if (p->closing)
        rc = fbr_keep(-ESHUTDOWN, "%s", p->end_why);
    else if (p->broken)
        rc = fbr_keep(-ECHILD, "%s", p->why);
    else if (rc == -ETIMEDOUT)
        fbr_keep(rc, "%d of %d worker%s joined within %d ms", n, workers, workers == 1 ? "" : "s",
                 timeout_ms);
    pthread_mutex_unlock(&p->lock);
    fbr_pool_unref(p);
    return rc;
}
