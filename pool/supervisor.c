/* supervisor.c - jobs that hold several workers of a pool.
 *
 * The job's host process starts the workers on the pool's order (runtime/proc/subjobs.h) and passes
 * batches and results on (runtime/net/relay.h). It does nothing else, so that no task can kill it.
 * It is asked to exit when its last worker has ended.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/proc/child.h"
#include "runtime/base/log.h"
#include "runtime/net/relay.h"

/* ---- In the host's process ---- */

static void on_frame(void *user, uint8_t type, struct fbr_cur *body)
{
    if (type == FBR_POOL_STOP)
        fbr_relay_stop(user);
}

struct opening {
    struct fbr_runtime *rt;
    struct fbr_error err;
};

/* The order to start a worker may have come first and opened the relay. */
static int open_relay(void *arg)
{
    struct opening *o = arg;

    return o->rt->relay ? 0 : fbr_child_relay(o->rt->child, &o->rt->relay, &o->err);
}

int fbr_pool_supervisor_main(const void *arg, size_t len)
{
    struct fbr_runtime *rt = fbr_rt();
    struct opening o = {rt, {0, ""}};
    struct fbr_data_client *up = NULL;
    struct fbr_buf none = {0};

    if (fbr_loop_call(rt->loop, open_relay, &o) < 0 ||
        fbr_child_data_client(rt->child, &up, &o.err) < 0)
        fbr_child_exit(rt->child, 1, o.err.text);
    fbr_child_on_frame(rt->child, on_frame, rt->relay);
    fbr_child_send(rt->child, FBR_FRAME_READY, &none);
    if (fbr_relay_run(rt->relay, up, fbr_data_client_beat_ms(up)) < 0)
        fbr_child_exit(rt->child, 1, "lost its data link");
    fbr_child_on_frame(rt->child, NULL, NULL);
    fbr_data_client_close(up);
    return 0;
}

/* ---- In the pool ---- */

static void on_host_frame(void *user, struct fiber_process *process, uint8_t type,
                          struct fbr_cur *body)
{
    struct fbr_pool_supervisor *h = user;

    if (type != FBR_FRAME_READY)
        return;
    pthread_mutex_lock(&h->pool->lock);
    h->joined = true;
    pthread_mutex_unlock(&h->pool->lock);
}

/* The host has ended, and its workers with it. If none of them was ever ready, the host is to
 * blame. */
static void on_end(void *user, struct fiber_process *process)
{
    struct fbr_pool_supervisor *h = user;
    struct fiber_pool *p = h->pool;
    const struct fbr_pool_worker *w;

    pthread_mutex_lock(&p->lock);
    h->ended = true;
    DL_FOREACH(p->workers, w)
        h->busy += w->host == h && fbr_workers_is_busy(w);
    if (!h->useful && h->workers && !p->closing)
        fbr_workers_failed_start(p, process, fiber_process_report(process));
    pthread_cond_broadcast(&p->changed);
    fbr_pool_leave(p);
}

/* Under the lock: frees the host once its process is gone and no worker points to it. */
static void maybe_free(struct fbr_pool_supervisor *h)
{
    if (h->process || h->workers > 0)
        return;
    DL_DELETE(h->pool->hosts, h);
    h->pool->n_hosts--;
    pthread_cond_broadcast(&h->pool->changed);
    fbr_buf_fini(&h->commons);
    free(h);
}

/* A worker may end later: a worker that was about to start in this host finds it gone. */
static void on_gone(void *user, struct fiber_process *process)
{
    struct fbr_pool_supervisor *h = user;
    struct fiber_pool *p = h->pool;

    pthread_mutex_lock(&p->lock);
    h->process = NULL;
    maybe_free(h);
    pthread_mutex_unlock(&p->lock);
    fiber_process_close(process);
    fbr_pool_unref(p);
}

static void on_output(void *user, struct fiber_process *process, int stream, const void *data,
                      size_t len)
{
    const struct fbr_pool_supervisor *h = user;

    fbr_pool_control_keep(h->pool, process, stream, data, len);
}

static const struct fbr_process_ops ops = {
    .on_frame = on_host_frame, .on_output = on_output, .on_end = on_end, .on_gone = on_gone};

/* The workers of the host end with it, and other workers do their tasks. */
static void on_broken(void *user, struct fbr_link *link, int why)
{
    struct fbr_pool_supervisor *h = user;
    bool leaves;

    pthread_mutex_lock(&h->pool->lock);
    leaves = why == -EPIPE && !h->workers;
    pthread_mutex_unlock(&h->pool->lock);
    if (!leaves) /* it was asked to exit */
        fbr_pool_link_broken(h->process, why);
}

/* The host's own link carries only records of its workers. */
static const struct fbr_link_ops link_ops = {.on_broken = on_broken};

/* If a task was running whenever a job was lost, it may be the cause, but so may the tasks of the
 * other workers. Alone in its job it is found, as any task that kills its worker. */
static void keep_apart(struct fiber_pool *p)
{
    if (p->apart || fbr_dispatch_stats(p->dispatch)->lost_jobs < FBR_DISPATCH_DEATHS)
        return;
    p->apart = true;
    fbr_warn("pool: a task was running when %d jobs were lost, each with several workers; from now "
             "on new jobs of this pool hold one worker each, to find out whether it is the cause",
             FBR_DISPATCH_DEATHS);
}

struct fbr_pool_supervisor *fbr_pool_supervisor_get(struct fiber_pool *p)
{
    struct fbr_process_spec spec = {.fn = p->serve ? NULL : fbr_pool_supervisor_main,
                                    .arg = p->host_work.data,
                                    .len = p->host_work.len,
                                    .prefix = "host",
                                    .options = &p->start,
                                    .env = p->env,
                                    .ops = &ops,
                                    .link = &link_ops,
                                    .in_run = true,
                                    .is_host = true};
    struct fbr_pool_supervisor *h;

    keep_apart(p);
    DL_FOREACH(p->hosts, h)
        if (!h->ended && h->workers && h->workers < (p->apart ? 1 : p->workers_per_job)) {
            h->workers++;
            return h;
        }
    h = calloc(1, sizeof(*h));
    if (!h) {
        fbr_keep(-ENOMEM, "pool: out of memory");
        return NULL;
    }
    h->pool = p;
    h->workers = 1;
    spec.user = h;
    if (fbr_process_start(&h->process, &spec) < 0) {
        free(h);
        return NULL;
    }
    p->refs++;
    DL_APPEND(p->hosts, h);
    p->n_hosts++;
    return h;
}

void fbr_pool_supervisor_put(struct fbr_pool_supervisor *h)
{
    struct fbr_buf none = {0};

    if (--h->workers > 0)
        return;
    if (h->ended) {
        maybe_free(h);
        return;
    }
    /* A host that has not joined cannot be asked. */
    if (!h->joined || fbr_process_send(h->process, FBR_POOL_STOP, &none) < 0)
        fiber_process_kill(h->process);
}

void fbr_pool_supervisor_kill_all(struct fiber_pool *p)
{
    struct fbr_pool_supervisor *h;

    DL_FOREACH(p->hosts, h)
        if (h->process)
            fiber_process_kill(h->process);
}

void fbr_pool_supervisor_close_all(struct fiber_pool *p)
{
    fbr_pool_wait_dwindle(p, &p->n_hosts, (uint64_t)fbr_config_ms(p->rt->config, "grace"));
    fbr_pool_supervisor_kill_all(p);
    fbr_pool_wait_dwindle(p, &p->n_hosts, (uint64_t)fbr_config_ms(p->rt->config, "linger"));
}
