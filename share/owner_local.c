/* owner_local.c - puts and gets in the process in which a channel lives; see channel.h.
 *
 * Messages of the other end of a pipe may come by its stream (direct.h) and, from other processes
 * that hold that end, by their records: a thread that receives by the stream looks at both. Before
 * its next record, a process that leaves its stream has sent all that is in the stream.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "share/owner_priv.h"

/* Under the lock: waits until a parked put of this process ends. The put is either done or
 * withdrawn, never both. */
static int wait_put(struct lane *l, uint64_t call, uint64_t deadline)
{
    struct local_put put = {.call = call};
    struct fbr_owner *h = l->host;
    int rc = 0;

    DL_APPEND(l->puts, &put);
    fbr_owner_remind(l);
    while (!put.done && rc == 0 && !h->over)
        rc = fbr_cond_wait(&l->room, &h->lock, deadline);
    if (!put.done && fbr_queue_engine_put_cancel(l->engine, 0, call) == 0)
        put.code = h->over ? -EPIPE : -ETIMEDOUT;
    DL_DELETE(l->puts, &put);
    return put.code;
}

/* Under the lock: waits for messages that come back from a peer, because they were sent before the
 * next one. */
static int wait_returns(struct lane *l, uint64_t deadline)
{
    struct fbr_owner *h = l->host;
    int rc = 0;

    while (rc == 0 && !h->over && h->returns_by_ms && (int)l->number == h->near)
        rc = fbr_cond_wait(&l->room, &h->lock, deadline);
    return rc;
}

/* Under the lock. */
static bool sends_by_stream(const struct fbr_owner *h, int lane)
{
    return h->direct && lane == h->near && !h->over && !fbr_direct_stopped(h->direct);
}

/* -EAGAIN: the message must go another way, by the engine. */
static int put_direct(struct fbr_owner *h, int lane, const void *data, size_t len,
                      uint64_t deadline)
{
    struct fbr_direct *d = NULL;
    int rc;

    pthread_mutex_lock(&h->lock);
    if (sends_by_stream(h, lane))
        d = fbr_direct_ref(h->direct);
    pthread_mutex_unlock(&h->lock);
    if (!d)
        return -EAGAIN;
    rc = fbr_direct_send(d, data, len, deadline);
    fbr_direct_unref(d);
    return rc;
}

int fbr_owner_put(struct fbr_owner *h, int lane, const void *data, size_t len, int timeout_ms)
{
    struct lane *l = &h->lanes[lane];
    uint64_t call, deadline = fbr_deadline(timeout_ms);
    void *copy;
    int rc;

    if (len > h->longest)
        return -EMSGSIZE;
    rc = put_direct(h, lane, data, len, deadline);
    if (rc != -EAGAIN)
        return rc;
    copy = malloc(len ? len : 1);
    if (!copy)
        return -ENOMEM;
    if (len)
        memcpy(copy, data, len);
    pthread_mutex_lock(&h->lock);
    rc = wait_returns(l, deadline);
    if (sends_by_stream(h, lane)) { /* the stream began since we looked */
        pthread_mutex_unlock(&h->lock);
        free(copy);
        return fbr_owner_put(h, lane, data, len, fbr_ms_until(deadline));
    }
    call = ++h->next_call;
    if (rc < 0 || (rc = h->over ? -EPIPE : fbr_queue_engine_put(l->engine, 0, call, copy, len)) < 0)
        free(copy);
    else if (rc == 1)
        rc = wait_put(l, call, deadline);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Under the lock; `out` NULL: only looks. */
static int try_get(struct lane *l, struct fiber_bytes *out)
{
    struct fbr_owner *h = l->host;
    int rc;

    if (h->over)
        return -EPIPE;
    rc = out ? fbr_queue_engine_get(l->engine, &out->data, &out->len)
             : fbr_queue_engine_look(l->engine);
    if (h->before && (int)l->number != h->near)
        h->before = rc == -EAGAIN || rc == -EPIPE ? 0 : h->before - (rc == 0 && out);
    return rc != 0 && fbr_owner_by_stream(l) ? -ESTALE : rc;
}

/* Under the lock. */
static int wait_get(struct lane *l, struct fiber_bytes *out, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    bool waiting = false, over = false;
    int rc = -ESTALE;

    while (!fbr_owner_by_stream(l) && ((rc = try_get(l, out)) == -EAGAIN || rc == -EINPROGRESS)) {
        /* a message on its way back counts as here, until its recall is overdue */
        bool comes = rc == -EINPROGRESS && timeout_ms == 0;

        if (over || (timeout_ms == 0 && !comes))
            break;
        if (!waiting)
            fbr_queue_engine_wait(l->engine);
        waiting = true;
        over = fbr_cond_wait(&l->arrived, &l->host->lock, comes ? UINT64_MAX : deadline) < 0;
    }
    if (waiting)
        fbr_queue_engine_unwait(l->engine);
    if (rc != -EAGAIN && rc != -EINPROGRESS)
        return rc;
    return fbr_owner_by_stream(l) ? -ESTALE : -ETIMEDOUT;
}

/* The reader of the stream has found it empty. The engine may have a message for this reader: from
 * another process that holds the other end, or from the same peer, once its stream has ended. Under
 * the lock. */
static int get_beside(struct lane *l, struct fbr_direct *d, struct fiber_bytes *out)
{
    struct fbr_owner *h = l->host;
    int rc;

    if (h->over)
        return -ESHUTDOWN;
    if (h->direct != d || h->leaving || !fbr_owner_by_stream(l))
        return -ESTALE;
    if (fbr_queue_engine_look(l->engine) != 0)
        return -EAGAIN;
    rc = fbr_direct_take(d, out); /* messages that were sent before that one */
    if (rc == -EAGAIN)
        rc = out ? fbr_queue_engine_get(l->engine, &out->data, &out->len) : 0;
    return rc == -EINPROGRESS ? -EAGAIN : rc;
}

/* The caller holds the stream's receive lock. */
static int get_from(struct lane *l, struct fbr_direct *d, struct fiber_bytes *out,
                    uint64_t deadline)
{
    struct fbr_owner *h = l->host;
    bool late = false;
    int rc;

    while ((rc = fbr_direct_take(d, out)) == -EAGAIN) {
        pthread_mutex_lock(&h->lock);
        rc = get_beside(l, d, out);
        if (rc != -EAGAIN || late) {
            pthread_mutex_unlock(&h->lock);
            break;
        }
        fbr_queue_engine_wait(l->engine);
        pthread_mutex_unlock(&h->lock);
        fbr_direct_sleep(d, deadline);
        pthread_mutex_lock(&h->lock);
        fbr_queue_engine_unwait(l->engine);
        pthread_mutex_unlock(&h->lock);
        late = fbr_now_ms() >= deadline;
    }
    if (rc != -EPIPE)
        return rc == -EAGAIN ? -ETIMEDOUT : rc == -ESHUTDOWN ? -EPIPE : rc;
    pthread_mutex_lock(&h->lock);
    /* it has ended: later messages come another way, and our own go that way too */
    if (h->direct == d) {
        h->streams = false;
        fbr_direct_stop(d);
    }
    pthread_cond_broadcast(&l->arrived);
    pthread_mutex_unlock(&h->lock);
    return -ESTALE;
}

/* Gets a message that is here without a look at the clock. -EAGAIN: there is none, or a stream. */
static int get_now(struct lane *l, struct fiber_bytes *out)
{
    struct fbr_owner *h = l->host;
    int rc = -EAGAIN;

    pthread_mutex_lock(&h->lock);
    if (!h->direct)
        rc = try_get(l, out);
    pthread_mutex_unlock(&h->lock);
    return rc == -EINPROGRESS ? -EAGAIN : rc;
}

int fbr_owner_get(struct fbr_owner *h, int lane, struct fiber_bytes *out, int timeout_ms)
{
    struct lane *l = &h->lanes[lane];
    int rc = get_now(l, out);
    struct fbr_direct *d;
    uint64_t deadline;

    if (rc != -EAGAIN)
        return rc;
    deadline = fbr_deadline(timeout_ms);
    do {
        d = NULL;
        pthread_mutex_lock(&h->lock);
        /* this process reads the other end, too */
        if (h->direct && lane == h->near)
            fbr_owner_second_holder(h);
        /* a thread leaves the stream for a short time only */
        while (h->leaving)
            pthread_cond_wait(&l->arrived, &h->lock);
        if (fbr_owner_by_stream(l))
            d = fbr_direct_ref(h->direct);
        else
            rc = wait_get(l, out, fbr_ms_until(deadline));
        pthread_mutex_unlock(&h->lock);
        if (!d)
            continue;
        rc = fbr_direct_lock(d, deadline);
        if (rc == 0) {
            rc = get_from(l, d, out, deadline);
            fbr_direct_unlock(d);
        }
        fbr_direct_unref(d);
    } while (rc == -ESTALE);
    return rc;
}

int fbr_owner_fd(struct fbr_owner *h, int lane, bool *watches)
{
    struct lane *l = &h->lanes[lane];
    int fd, rc = fbr_owner_end_stream(h, !lane, true);

    if (rc < 0)
        return fbr_keep(rc, "channel: out of memory");
    pthread_mutex_lock(&h->lock);
    fd = fbr_ready_fd(&l->ready);
    if (fd >= 0) {
        l->watchers += !*watches;
        *watches = true;
        fbr_queue_engine_watch(l->engine, 0); /* this needs no memory for peer 0 */
        if (h->over)
            fbr_ready_set(&l->ready, true);
    }
    pthread_mutex_unlock(&h->lock);
    return fd;
}

void fbr_owner_unwatch(struct fbr_owner *h, int lane, bool watches)
{
    struct lane *l = &h->lanes[lane];

    if (!watches)
        return;
    pthread_mutex_lock(&h->lock);
    if (--l->watchers == 0) {
        fbr_ready_fini(&l->ready);
        fbr_queue_engine_unwatch(l->engine);
    }
    pthread_mutex_unlock(&h->lock);
}

size_t fbr_owner_count(const struct lane *l)
{
    struct fbr_queue_engine_stats s;

    fbr_queue_engine_stats(l->engine, &s);
    return s.waiting + s.ahead + s.late;
}

/* A program may know that another one took messages before we do: it asks whether the queue is
 * empty, and a get after the wrong answer would never end. */
int fbr_owner_size(struct fbr_owner *h, int lane, size_t *n)
{
    struct lane *l = &h->lanes[lane];
    struct fbr_queue_engine_stats s;
    int rc = -EPIPE;

    pthread_mutex_lock(&h->lock);
    if (h->over)
        goto out;
    fbr_queue_engine_settle(l->engine);
    do /* until the recalls are answered or overdue */
        fbr_queue_engine_stats(l->engine, &s);
    while (s.recalls && !h->over && fbr_cond_wait(&l->arrived, &h->lock, UINT64_MAX) == 0);
    *n = fbr_owner_count(l);
    rc = 0;
out:
    pthread_mutex_unlock(&h->lock);
    return rc;
}
