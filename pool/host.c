/* host.c - jobs that hold several workers of a pool.
 *
 * The job's first process, the host, starts the workers on the pool's order (runtime/nested.h) and
 * does nothing else, so that no task can take it along. It is told to go when its last worker has
 * ended.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "pool/pool.h"
#include "runtime/child.h"

/* ---- In the host's process ---- */

static void on_frame(void *user, uint8_t type, struct fbr_cur *body)
{
    const int *wake = user;
    uint64_t one = 1;

    (void)body;
    if (type == FBR_POOL_STOP && write(*wake, &one, sizeof(one)) < 0)
        _exit(1);
}

int fbr_pool_host_main(const void *arg, size_t len)
{
    int wake = eventfd(0, EFD_CLOEXEC);
    struct fbr_buf none;
    uint64_t n;

    (void)arg;
    (void)len;
    if (wake < 0)
        return 1;
    fbr_child_on_frame(fbr_rt()->child, on_frame, &wake);
    fbr_buf_init(&none);
    fbr_child_send(fbr_rt()->child, FBR_FRAME_READY, &none);
    while (read(wake, &n, sizeof(n)) < 0 && errno == EINTR)
        continue;
    fbr_child_on_frame(fbr_rt()->child, NULL, NULL);
    return 0;
}

/* ---- In the pool ---- */

static void on_host_frame(void *user, struct fiber_process *process, uint8_t type,
                          struct fbr_cur *body)
{
    struct fbr_pool_host *h = user;

    (void)process;
    (void)body;
    if (type != FBR_FRAME_READY)
        return;
    pthread_mutex_lock(&h->pool->lock);
    h->joined = true;
    pthread_mutex_unlock(&h->pool->lock);
}

/* Its workers end with it, for no fault of theirs; so if it never had one that was ready, this is
 * what to blame. */
static void on_end(void *user, struct fiber_process *process)
{
    struct fbr_pool_host *h = user;
    struct fiber_pool *p = h->pool;

    pthread_mutex_lock(&p->lock);
    h->ended = true;
    if (!h->useful && !h->leaving && !p->closing)
        fbr_crew_failed_start(p, fiber_process_report(process));
    fbr_crew_arm(p);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    fbr_pool_call_back(p);
}

/* Under the lock: once it is gone, and nobody points to it. */
static void maybe_free(struct fbr_pool_host *h)
{
    if (!h->gone || h->workers > 0)
        return;
    DL_DELETE(h->pool->hosts, h);
    pthread_cond_broadcast(&h->pool->changed);
    free(h);
}

/* A worker with a connection of its own may end later: the job of the host can be gone before the
 * news of it. */
static void on_gone(void *user, struct fiber_process *process)
{
    struct fbr_pool_host *h = user;
    struct fiber_pool *p = h->pool;

    pthread_mutex_lock(&p->lock);
    h->gone = true;
    h->process = NULL;
    maybe_free(h);
    pthread_mutex_unlock(&p->lock);
    fiber_process_close(process);
    fbr_pool_unref(p);
}

static const struct fbr_process_ops ops = {
    .on_frame = on_host_frame, .on_end = on_end, .on_gone = on_gone};

struct fbr_pool_host *fbr_pool_host_get(struct fiber_pool *p)
{
    static const uint32_t magic = FBR_HOST_MAGIC;
    struct fbr_process_spec spec = {.fn = p->serve ? NULL : fbr_pool_host_main,
                                    .arg = &magic,
                                    .len = sizeof(magic),
                                    .prefix = "host",
                                    .options = &p->start,
                                    .ops = &ops};
    struct fbr_pool_host *h;

    DL_FOREACH(p->hosts, h)
        if (!h->ended && !h->leaving && h->workers < p->workers_per_job) {
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
    return h;
}

void fbr_pool_host_put(struct fbr_pool_host *h)
{
    struct fbr_buf none;

    if (--h->workers > 0)
        return;
    if (h->ended) {
        maybe_free(h);
        return;
    }
    h->leaving = true;
    fbr_buf_init(&none);
    /* One that has not joined could not be told. */
    if (!h->joined || fbr_process_send(h->process, FBR_POOL_STOP, &none) < 0)
        fiber_process_kill(h->process);
}

void fbr_pool_host_kill_all(struct fiber_pool *p)
{
    struct fbr_pool_host *h;

    DL_FOREACH(p->hosts, h)
        if (h->process)
            fiber_process_kill(h->process);
}

/* As long as there are ever fewer. */
static void wait_hosts(struct fiber_pool *p, uint64_t ms)
{
    uint64_t deadline = fbr_now_ms() + ms;
    const struct fbr_pool_host *h;
    int n, before = INT_MAX;

    do {
        DL_COUNT(p->hosts, h, n);
        if (n < before)
            deadline = fbr_now_ms() + ms;
        before = n;
    } while (n && fbr_cond_wait(&p->changed, &p->lock, deadline) == 0);
}

void fbr_pool_host_close_all(struct fiber_pool *p)
{
    wait_hosts(p, (uint64_t)fbr_config_ms(p->rt->config, "grace"));
    fbr_pool_host_kill_all(p);
    wait_hosts(p, (uint64_t)fbr_config_ms(p->rt->config, "linger"));
}
