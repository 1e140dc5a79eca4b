/* stream.c - tasks that are put one after another, and results that are taken as they come.
 *
 * A stream is a map that grows. Its finished tasks move to the pool's list `done`, from which any
 * thread takes results of all streams in the order in which they arrived. The stream counts its
 * items in that list, and removes them when it is closed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "pool/pool.h"

#define WATCH_NS 150000

int fiber_stream_open(struct fiber_stream **out, struct fiber_pool *p, fiber_task_fn fn,
                      const struct fiber_map_options *opts, void *user)
{
    struct fiber_result *r;
    int rc;

    if (!p || !out)
        return fbr_keep(-EINVAL, "pool: a stream needs a pool and a pointer for the handle");
    if (opts && opts->size == sizeof(*opts) && (opts->on_done || opts->on_progress))
        return fbr_keep(-EINVAL,
                        "pool: a stream calls no functions; leave on_done and on_progress NULL");
    rc = fbr_result_new(p, fn, opts, &r);
    if (rc < 0)
        return rc;
    r->kind = FBR_RESULT_STREAM;
    r->put = true;
    r->stream.r = r;
    r->user = user;
    rc = fbr_result_begin(r, true);
    if (rc < 0)
        return rc;
    *out = &r->stream;
    return 0;
}

/* ---- Tasks ---- */

static void free_items(struct fbr_item *list)
{
    struct fbr_item *item, *next;

    DL_FOREACH_SAFE(list, item, next) {
        fbr_item_free(item);
    }
}

static int copy_inputs(struct fiber_result *r, const struct fiber_bytes *in, size_t n,
                       struct fbr_item **list)
{
    *list = NULL;
    for (size_t i = 0; i < n; i++) {
        struct fbr_item *item = fbr_item_new(&in[i]);

        if (!item) {
            free_items(*list);
            return fbr_keep(-ENOMEM, "pool: out of memory for %zu input%s", n, n == 1 ? "" : "s");
        }
        item->r = r;
        DL_APPEND(*list, item);
    }
    return 0;
}

/* Under the lock: takes back the items with an index from `from` up to `end`. */
static void take_back(struct fiber_result *r, struct fbr_item **list, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++) {
        struct fbr_item *item;

        HASH_FIND(hh, r->items, &i, sizeof(i), item);
        HASH_DELETE(hh, r->items, item);
        DL_APPEND(*list, item);
    }
}

int fbr_stream_add(struct fiber_result *r, struct fbr_item **list, size_t n)
{
    struct fiber_pool *p = r->pool;
    struct fbr_item *item, *next;
    uint64_t index = r->n;

    DL_FOREACH_SAFE(*list, item, next) {
        DL_DELETE(*list, item);
        item->index = index;
        HASH_ADD(hh, r->items, index, sizeof(item->index), item);
        if (!item->hh.tbl) {
            DL_APPEND(*list, item);
            break;
        }
        index++;
    }
    if (*list || fbr_dispatch_map_grow(p->dispatch, r->map, n) < 0) {
        take_back(r, list, r->n, index);
        return fbr_keep(-ENOMEM, "pool: out of memory for %zu task%s", n, n == 1 ? "" : "s");
    }
    r->n += n;
    p->stats.submitted += n;
    p->undone += n;
    return 0;
}

/* Under the lock: 0, or the kept reason why no task can be added. */
static int check_open(const struct fiber_result *r)
{
    const struct fiber_pool *p = r->pool;

    if (p->closing)
        return fbr_keep(-ESHUTDOWN, "%s", p->end_why);
    if (!r->map)
        return fbr_keep(r->end_code ? r->end_code : -ESHUTDOWN, "%s",
                        r->why ? r->why : "the stream has ended");
    return 0;
}

int fiber_stream_put(struct fiber_stream *s, const struct fiber_bytes *in, size_t n,
                     uint64_t *first)
{
    struct fiber_result *r = s->r;
    struct fiber_pool *p = r->pool;
    struct fbr_item *list;
    int rc = fbr_rt_check();

    if (rc < 0 || (rc = fbr_pool_check_inputs(p, in, n)) < 0 ||
        (rc = copy_inputs(r, in, n, &list)) < 0)
        return rc;
    pthread_mutex_lock(&p->lock);
    if ((rc = check_open(r)) < 0 || (rc = fbr_stream_add(r, &list, n)) < 0)
        goto done;
    if (first)
        *first = r->n - n;
    if (p->size.min < p->size.max)
        fbr_workers_adjust(p);
done:
    fbr_pool_leave(p);
    free_items(list);
    return rc;
}

int fiber_stream_cancel(struct fiber_stream *s, uint64_t index)
{
    return fiber_result_cancel_task(s->r, index);
}

/* ---- Results ---- */

/* Under the lock. */
static void leave_done(struct fiber_pool *p, struct fbr_item *item)
{
    DL_DELETE(p->done, item);
    item->r->untaken--;
    __atomic_store_n(&p->n_done, p->n_done - 1, __ATOMIC_RELEASE);
}

void fbr_stream_deliver(struct fiber_result *r, struct fbr_item *item)
{
    struct fiber_pool *p = r->pool;

    HASH_DELETE(hh, r->items, item);
    if (r->dropped) {
        fbr_item_free(item);
        return;
    }
    DL_APPEND(p->done, item);
    r->untaken++;
    __atomic_store_n(&p->n_done, p->n_done + 1, __ATOMIC_RELEASE);
    if (p->n_done == 1)
        fbr_ready_set(&p->takable, true);
    p->wake_takers |= p->takers > 0;
}

void fbr_stream_shut(struct fiber_pool *p)
{
    fbr_ready_set(&p->takable, true);
    p->wake_takers = true;
}

void fiber_stream_close(struct fiber_stream *s)
{
    struct fiber_result *r;
    struct fbr_item *item, *next;

    if (!s)
        return;
    r = s->r;
    if (fbr_rt_check() < 0) /* a fork() child has only a copy of the stream */
        return;
    pthread_mutex_lock(&r->pool->lock);
    r->dropped = true;
    DL_FOREACH_SAFE(r->pool->done, item, next) {
        if (!r->untaken)
            break;
        if (item->r != r)
            continue;
        leave_done(r->pool, item);
        fbr_item_free(item);
    }
    fbr_ready_set(&r->pool->takable, r->pool->done || r->pool->closing);
    pthread_mutex_unlock(&r->pool->lock);
    fiber_result_close(r);
}

/* Spins for a while: a thread that sleeps wakes late, and results of short tasks may come before
 * that. */
static void watch(struct fiber_pool *p)
{
    uint64_t end = fbr_now_ns() + WATCH_NS;

    if (p->cpus < 2 || !__atomic_load_n(&p->quick, __ATOMIC_RELAXED))
        return;
    while (!__atomic_load_n(&p->n_done, __ATOMIC_ACQUIRE) && fbr_spin_yield(&p->awake, end))
        ;
}

/* Under the lock. */
static int hand_out(struct fiber_pool *p, struct fiber_done *out, int max)
{
    struct fbr_item *item;
    int n = 0;

    while (n < max && (item = p->done)) {
        leave_done(p, item);
        out[n++] = (struct fiber_done){
            item->r->user, item->index, item->slot.code, {item->slot.data, item->slot.len}};
        free(item);
    }
    if (n && !p->done)
        fbr_ready_set(&p->takable, p->closing);
    return n;
}

int fiber_pool_take(struct fiber_pool *p, struct fiber_done *out, int max, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check(), n;

    if (rc < 0)
        return rc;
    if (!out || max < 1)
        return fbr_keep(-EINVAL, "pool: fiber_pool_take() needs an array for at least one result");
    if (timeout_ms != 0)
        watch(p);
    pthread_mutex_lock(&p->lock);
    p->refs++;
    p->takers++;
    /* a wait whose time is over takes as long as to sleep and wake up */
    while (!p->done && !p->closing && rc == 0)
        rc = timeout_ms ? fbr_rt_wait(p->rt, &p->taken, &p->lock, deadline) : -ETIMEDOUT;
    p->takers--;
    n = hand_out(p, out, max);
    if (n == 0 && p->closing)
        rc = fbr_keep(-ESHUTDOWN, "%s", p->end_why);
    else if (n == 0 && rc == -ETIMEDOUT)
        fbr_keep(rc, "no result of a stream within %d ms", timeout_ms);
    pthread_mutex_unlock(&p->lock);
    fbr_pool_unref(p);
    return n ? n : rc;
}

int fiber_pool_take_fd(struct fiber_pool *p)
{
    int fd = fbr_rt_check();

    if (fd < 0)
        return fd;
    pthread_mutex_lock(&p->lock);
    fd = fbr_ready_fd(&p->takable);
    fbr_ready_set(&p->takable, p->done || p->closing);
    pthread_mutex_unlock(&p->lock);
    return fd;
}
