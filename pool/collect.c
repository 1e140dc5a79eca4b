/* collect.c - messages of workers: results on the data link, returned tasks on the control channel.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "pool/pool.h"
#include "runtime/base/log.h"

/* time of a task whose result may come sooner than a thread sleeps and wakes */
#define QUICK_NS 50000

static int bucket(uint64_t us)
{
    int i = us ? 63 - __builtin_clzll(us) : 0;

    return i < FIBER_POOL_BUCKETS ? i : FIBER_POOL_BUCKETS - 1;
}

/* Called when all results of a batch have come. */
static void account_overhead(struct fbr_pool_worker *w, int slot)
{
    uint64_t took = fbr_now_ns() - w->sent[slot].at_ns, busy = w->sent[slot].busy_ns;

    w->pool->stats.overhead_us[bucket(took > busy ? (took - busy) / 1000 : 0)]++;
}

static void account(struct fbr_pool_worker *w, uint64_t batch, uint32_t n, uint64_t busy_ns)
{
    w->tasks += n;
    w->busy_ns += busy_ns;
    w->pool->stats.task_us[bucket(busy_ns / n / 1000)] += n;
    for (int i = 0; i < 2; i++) {
        if (w->sent[i].id != batch || !w->sent[i].left)
            continue;
        w->sent[i].busy_ns += busy_ns;
        w->sent[i].left -= n < w->sent[i].left ? n : w->sent[i].left;
        if (!w->sent[i].left)
            account_overhead(w, i);
    }
}

/* Accounts for returned tasks, which do not come from this worker. A batch of which it kept nothing
 * has no overhead. */
static void account_returned(struct fbr_pool_worker *w, uint64_t batch, uint32_t kept)
{
    for (int i = 0; i < 2; i++) {
        uint32_t came = w->sent[i].count - w->sent[i].left;

        if (w->sent[i].id != batch || !w->sent[i].left)
            continue;
        w->sent[i].left = kept > came ? kept - came : 0;
        w->sent[i].count = kept;
        if (!w->sent[i].left && kept)
            account_overhead(w, i);
    }
}

/* Walks over the items; with `take`, delivers those that it marks. -EBADMSG: they are not n
 * items. */
static int walk(struct fbr_cur c, uint32_t n, const bool *take,
                const struct fbr_dispatch_taken *taken)
{
    for (uint32_t i = 0; i < n; i++) {
        int32_t code = (int32_t)fbr_get_u32(&c);
        size_t len = fbr_get_u32(&c);
        const void *data = fbr_get(&c, len);

        fbr_get(&c, fbr_pad8(len));
        if (!fbr_cur_ok(&c))
            return -EBADMSG;
        if (take && take[i])
            fbr_result_deliver(taken->map_user, taken->first + i, code, data, len);
    }
    return 0;
}

static int take_results(struct fbr_pool_worker *w, struct fbr_cur *c)
{
    struct fiber_pool *p = w->pool;
    uint32_t n = fbr_get_u32(c), pos;
    uint64_t batch = fbr_get_u64(c), busy;
    struct fbr_dispatch_taken taken;
    bool take[FBR_DISPATCH_BATCH_MAX];
    int rc;

    pos = fbr_get_u32(c);
    fbr_get_u32(c);
    busy = fbr_get_u64(c);
    if (!fbr_cur_ok(c) || n == 0 || n > FBR_DISPATCH_BATCH_MAX || walk(*c, n, NULL, NULL) < 0)
        return -EBADMSG;
    rc = fbr_dispatch_results(p->dispatch, fbr_now_ns(), w->id, batch, pos, n, busy, take, &taken);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    account(w, batch, n, busy);
    __atomic_store_n(&p->quick, busy / n < QUICK_NS, __ATOMIC_RELAXED);
    if (taken.map_user) {
        walk(*c, n, take, &taken);
        fbr_result_messages_end(taken.map_user);
    }
    return 0;
}

/* Kills a worker whose message makes no sense: other workers do its tasks, and no task is to blame.
 * Under the pool's lock. */
static void evict(struct fbr_pool_worker *w, const char *why)
{
    w->disrupted = true;
    fbr_process_abandon(w->process, why);
}

/* Lets a worker exit that waits for our notice that its results are here: records come in order.
 * Only once, because each answer costs us a message. */
static void release(struct fbr_pool_worker *w)
{
    struct fbr_buf none = {0};

    if (w->release) {
        pthread_mutex_lock(&w->pool->lock);
        evict(w, "reported more than once that it exits; killed");
        pthread_mutex_unlock(&w->pool->lock);
        return;
    }
    w->release = true;
    if (fbr_process_send(w->process, FBR_POOL_TAKEN, &none) < 0)
        fbr_process_abandon(w->process,
                            "exited, and could not be notified that its results were taken");
}

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    struct fbr_pool_worker *w = user;
    struct fiber_pool *p = w->pool;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t kind;

    kind = fbr_get_u32(&c);
    if (kind == FBR_LAST)
        release(w);
    if (kind != FBR_RESULTS)
        return;
    pthread_mutex_lock(&p->lock);
    if (take_results(w, &c) < 0)
        evict(w, "sent invalid results; killed");
    fbr_pool_leave(p);
}

void fbr_pool_link_broken(struct fiber_process *process, int why)
{
    fbr_warn("pool: the data link of %s is broken: %s", fiber_process_name(process),
             fbr_strerror(why));
    fbr_process_abandon(
        process, why == -ENOBUFS
                     ? "sent a result, but this process holds as much as hold_max allows; killed"
                     : "lost its data link; killed");
}

static void on_broken(void *user, struct fbr_link *link, int why)
{
    struct fbr_pool_worker *w = user;
    bool leaves, lost = why == -EPIPE || why == -ETIMEDOUT || why == -ENOBUFS;

    pthread_mutex_lock(&w->pool->lock);
    leaves = why == -EPIPE && (w->state == FBR_WORKER_STOPPING || w->pool->closing);
    /* A lost link counts as a death, as lost heartbeats do: a task may be to blame, because it
     * stopped the process, closed its descriptors or has a result that is too long for us. */
    w->disrupted |= !lost;
    pthread_mutex_unlock(&w->pool->lock);
    if (!leaves) /* it was asked to exit, and may still have something to do */
        fbr_pool_link_broken(w->process, why);
}

const struct fbr_link_ops fbr_pool_link_ops = {.on_record = on_record, .on_broken = on_broken};

static void take_returned(struct fbr_pool_worker *w, struct fbr_cur *c)
{
    struct fiber_pool *p = w->pool;
    uint64_t batch = fbr_get_u64(c);
    uint32_t kept = fbr_get_u32(c);
    int rc;

    if (!fbr_cur_ok(c))
        return;
    pthread_mutex_lock(&p->lock);
    rc = w->id ? fbr_dispatch_returned(p->dispatch, fbr_now_ns(), w->id, batch, kept) : -ENOENT;
    if (rc == 0)
        account_returned(w, batch, kept);
    else if (rc == -EPROTO)
        fbr_warn("pool: %s returned tasks that it does not hold", fiber_process_name(w->process));
    fbr_pool_leave(p);
}

void fbr_pool_on_frame(void *user, struct fiber_process *process, uint8_t type,
                       struct fbr_cur *body)
{
    struct fbr_pool_worker *w = user;

    if (type == FBR_FRAME_READY)
        fbr_workers_ready(w);
    else if (type == FBR_POOL_RETURNED)
        take_returned(w, body);
}
