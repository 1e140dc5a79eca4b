/* host.c - the process in which a channel lives; see channel.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "share/channel.h"

#define OVERDUE_MS 1000 /* a guest that does not answer a recall holds up the others no longer */

/* A batch of a guest of which some messages wait for room. */
struct parked {
    struct parked *next, *prev;
    uint64_t peer, batch;
    uint32_t left;
    int code;
};

/* A thread of ours that waits for room. */
struct local_put {
    struct local_put *next, *prev;
    uint64_t call;
    bool done;
    int code;
};

struct lane {
    struct fbr_host *host;
    uint32_t number;
    struct fbr_queue_engine *engine;
    struct parked *parked;
    struct local_put *puts;
    uint64_t recalled[16]; /* guests that were asked to return messages */
    int n_recalled;
};

struct end {
    bool exported, left; /* its address was given away; nobody here uses it */
    uint64_t holder;     /* the guest that has it */
    bool ended;
};

struct fbr_host {
    struct fbr_object *object;
    struct fbr_runtime *rt;
    enum fbr_kind kind;
    int n_lanes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lane lanes[2];
    struct end ends[2];
    uint64_t next_call;
    bool dying;
};

/* ---- Decisions of the engine, under the lock ---- */

static void tell(struct lane *l, uint64_t peer, enum fbr_channel_op op, const void *more, size_t more_len, const void *data,
                 size_t len)
{
    const uint32_t head[2] = {op, l->number};
    const struct iovec iov[3] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)more, more_len},
                                 {(void *)(uintptr_t)data, len}};

    fbr_object_send(l->host->object, peer, iov, 3); /* a peer that has gone is told of by on_gone */
}

static void deliver(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len)
{
    tell(user, peer, FBR_CH_DELIVER, &seq, sizeof(seq), data, len);
}

static void ack(struct lane *l, uint64_t peer, uint64_t batch, int code)
{
    struct {
        uint64_t batch;
        int32_t code;
        uint32_t zero;
    } a = {batch, code, 0};

    tell(l, peer, FBR_CH_ACK, &a, sizeof(a), NULL, 0);
}

static struct parked *find_parked(struct lane *l, uint64_t peer, uint64_t batch)
{
    struct parked *p;

    DL_FOREACH(l->parked, p)
        if (p->peer == peer && p->batch == batch)
            break;
    return p;
}

static void put_done(void *user, uint64_t peer, uint64_t call, int code)
{
    struct lane *l = user;
    struct local_put *put;
    struct parked *p;

    if (peer == 0) {
        DL_FOREACH(l->puts, put)
            if (put->call == call) {
                put->done = true;
                put->code = code;
            }
        pthread_cond_broadcast(&l->host->changed);
        return;
    }
    p = find_parked(l, peer, call / FBR_CH_BATCH_MAX);
    if (!p)
        return;
    if (code)
        p->code = code;
    if (--p->left)
        return;
    ack(l, peer, p->batch, p->code);
    DL_DELETE(l->parked, p);
    free(p);
}

static void recall(void *user, uint64_t peer)
{
    struct lane *l = user;

    if (l->n_recalled < (int)(sizeof(l->recalled) / sizeof(l->recalled[0])))
        l->recalled[l->n_recalled++] = peer;
    tell(l, peer, FBR_CH_RECALL, NULL, 0, NULL, 0);
}

static void eof(void *user, uint64_t peer)
{
    tell(user, peer, FBR_CH_EOF, NULL, 0, NULL, 0);
}

static void wake_local(void *user, bool all)
{
    struct lane *l = user;

    (void)all; /* one condition serves both lanes and the puts */
    pthread_cond_broadcast(&l->host->changed);
}

static const struct fbr_queue_engine_ops engine_ops = {
    .deliver = deliver, .put_done = put_done, .recall = recall, .eof = eof, .wake_local = wake_local};

/* ---- Records of guests ---- */

/* Messages of a guest, in order. Those that find no room are parked; the batch is acknowledged when none is. */
static void on_puts(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    uint64_t batch = fbr_get_u64(c);
    uint32_t count = fbr_get_u32(c), waiting = 0;
    struct parked *p;
    int code = 0;

    fbr_get_u32(c);
    if (count > FBR_CH_BATCH_MAX)
        return;
    for (uint32_t i = 0; i < count; i++) {
        size_t len = fbr_get_u32(c);
        const void *bytes;
        void *copy;
        int rc;

        fbr_get_u32(c);
        bytes = fbr_get(c, len);
        fbr_get(c, (8 - len % 8) % 8);
        if (!fbr_cur_ok(c))
            return;
        copy = malloc(len ? len : 1);
        if (copy && len)
            memcpy(copy, bytes, len);
        rc = copy ? fbr_queue_engine_put(l->engine, peer, batch * FBR_CH_BATCH_MAX + i, copy, len) : -ENOMEM;
        waiting += rc == 1;
        if (rc < 0) {
            free(copy);
            code = rc;
        }
    }
    p = waiting ? calloc(1, sizeof(*p)) : NULL;
    if (!p) {
        ack(l, peer, batch, code);
        return;
    }
    *p = (struct parked){.peer = peer, .batch = batch, .left = waiting, .code = code};
    DL_APPEND(l->parked, p);
}

static void on_cancel(struct lane *l, uint64_t peer, uint64_t batch)
{
    struct parked *p = find_parked(l, peer, batch);

    if (!p || fbr_queue_engine_put_cancel(l->engine, peer, batch * FBR_CH_BATCH_MAX) < 0)
        return; /* it was accepted, and acknowledged */
    ack(l, peer, batch, -ETIMEDOUT);
    DL_DELETE(l->parked, p);
    free(p);
}

static void on_ask(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    uint64_t taken = fbr_get_u64(c), probe;
    uint32_t hungry = fbr_get_u32(c), want = fbr_get_u32(c);

    probe = fbr_get_u64(c);
    if (!fbr_cur_ok(c))
        return;
    fbr_queue_engine_ask(l->engine, peer, taken, hungry, want);
    if (probe)
        tell(l, peer, FBR_CH_EMPTY, &probe, sizeof(probe), NULL, 0);
}

static void end_end(struct fbr_host *h, int end);

static void on_lane_record(struct lane *l, uint64_t peer, uint32_t op, struct fbr_cur *c)
{
    struct fbr_queue_engine_stats s;
    uint64_t v;

    switch (op) {
    case FBR_CH_PUTS:
        on_puts(l, peer, c);
        break;
    case FBR_CH_CANCEL:
        v = fbr_get_u64(c);
        if (fbr_cur_ok(c))
            on_cancel(l, peer, v);
        break;
    case FBR_CH_ASK:
        on_ask(l, peer, c);
        break;
    case FBR_CH_RETURNED:
        v = fbr_get_u64(c);
        if (fbr_cur_ok(c))
            fbr_queue_engine_returned(l->engine, peer, v);
        break;
    case FBR_CH_SHUT:
        fbr_queue_engine_shut(l->engine);
        break;
    case FBR_CH_SIZE:
        fbr_queue_engine_stats(l->engine, &s);
        v = s.waiting + s.assigned;
        tell(l, peer, FBR_CH_SIZE_IS, &v, sizeof(v), NULL, 0);
        break;
    default:
        break;
    }
}

static void on_record(void *user, uint64_t peer, const void *record, size_t len)
{
    struct fbr_host *h = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c);

    if (!fbr_cur_ok(&c) || lane >= (uint32_t)h->n_lanes)
        return;
    pthread_mutex_lock(&h->lock);
    if (op == FBR_CH_ATTACH && h->kind == FBR_KIND_PIPE)
        h->ends[lane].holder = peer;
    else if (op == FBR_CH_LEAVE && h->kind == FBR_KIND_PIPE && h->ends[lane].holder == peer)
        end_end(h, (int)lane);
    else if (op == FBR_CH_LEAVE)
        fbr_queue_engine_gone(h->lanes[lane].engine, peer);
    else
        on_lane_record(&h->lanes[lane], peer, op, &c);
    pthread_mutex_unlock(&h->lock);
}

static void forget_parked(struct lane *l, uint64_t peer)
{
    struct parked *p, *next;

    DL_FOREACH_SAFE(l->parked, p, next)
        if (p->peer == peer) {
            DL_DELETE(l->parked, p);
            free(p);
        }
}

static void on_gone(void *user, uint64_t peer)
{
    struct fbr_host *h = user;

    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->n_lanes; i++) {
        forget_parked(&h->lanes[i], peer);
        fbr_queue_engine_gone(h->lanes[i].engine, peer);
    }
    for (int i = 0; i < 2; i++)
        if (h->kind == FBR_KIND_PIPE && h->ends[i].holder == peer)
            end_end(h, i);
    pthread_mutex_unlock(&h->lock);
}

static const struct fbr_object_ops object_ops = {.on_record = on_record, .on_gone = on_gone};

/* ---- Life ---- */

static void destroy(struct fbr_host *h)
{
    for (int i = 0; i < h->n_lanes; i++) {
        while (h->lanes[i].parked) {
            struct parked *p = h->lanes[i].parked;

            DL_DELETE(h->lanes[i].parked, p);
            free(p);
        }
        fbr_queue_engine_close(h->lanes[i].engine);
    }
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

int fbr_host_open(struct fbr_host **out, const struct fbr_host_options *o)
{
    struct fbr_host *h = calloc(1, sizeof(*h));
    int rc;

    if (!h)
        return fbr_keep(-ENOMEM, "channel: out of memory");
    pthread_mutex_init(&h->lock, NULL);
    fbr_cond_init(&h->changed);
    h->kind = o->kind;
    for (h->n_lanes = 0; h->n_lanes < o->lanes; h->n_lanes++) {
        struct lane *l = &h->lanes[h->n_lanes];

        l->host = h;
        l->number = (uint32_t)h->n_lanes;
        l->engine = fbr_queue_engine_open(&engine_ops, l, &o->config);
        if (!l->engine) {
            destroy(h);
            return fbr_keep(-ENOMEM, "channel: out of memory");
        }
    }
    rc = fbr_object_open(&h->object, &object_ops, h);
    if (rc < 0) {
        destroy(h);
        return rc;
    }
    h->rt = fbr_rt();
    *out = h;
    return 0;
}

int fbr_host_address(struct fbr_host *h, uint8_t flags, struct fiber_address *address)
{
    return fbr_object_address(h->object, h->kind, flags, address);
}

void fbr_host_close(struct fbr_host *h)
{
    fbr_object_close(h->object);
    destroy(h);
}

static void close_later(void *arg)
{
    fbr_host_close(arg);
}

/* Nobody uses this end any more: what it sent may be read, nothing more is sent to it. */
static void end_end(struct fbr_host *h, int end)
{
    if (h->ends[end].ended)
        return;
    h->ends[end].ended = true;
    for (int i = 0; i < h->n_lanes; i++)
        fbr_queue_engine_shut(h->lanes[i].engine);
    pthread_cond_broadcast(&h->changed);
    if (h->ends[!end].ended && !h->dying) {
        h->dying = true;
        fbr_loop_post(h->rt->loop, close_later, h); /* not within a callback of the object's */
    }
}

void fbr_host_export_end(struct fbr_host *h, int end)
{
    pthread_mutex_lock(&h->lock);
    h->ends[end].exported = true;
    pthread_mutex_unlock(&h->lock);
}

void fbr_host_leave(struct fbr_host *h, int end)
{
    pthread_mutex_lock(&h->lock);
    h->ends[end].left = true;
    if (!h->ends[end].exported)
        end_end(h, end);
    pthread_mutex_unlock(&h->lock);
}

struct fbr_host *fbr_host_local(const struct fbr_address *a)
{
    return fbr_object_local(a, &object_ops);
}

void fbr_host_shut(struct fbr_host *h, int lane)
{
    pthread_mutex_lock(&h->lock);
    fbr_queue_engine_shut(h->lanes[lane].engine);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

/* ---- The host's own puts and gets ---- */

/* Under the lock: waits until a parked put of ours is done; exactly one of done and withdrawn. */
static int wait_put(struct fbr_host *h, struct lane *l, uint64_t call, uint64_t deadline)
{
    struct local_put put = {.call = call};
    int rc = 0;

    DL_APPEND(l->puts, &put);
    while (!put.done && rc == 0)
        rc = fbr_cond_wait(&h->changed, &h->lock, deadline);
    if (!put.done && fbr_queue_engine_put_cancel(l->engine, 0, call) == 0) {
        put.done = true;
        put.code = -ETIMEDOUT;
    }
    DL_DELETE(l->puts, &put);
    return put.code;
}

int fbr_host_put(struct fbr_host *h, int lane, const void *data, size_t len, int timeout_ms)
{
    struct lane *l = &h->lanes[lane];
    void *copy = malloc(len ? len : 1);
    uint64_t call;
    int rc;

    if (!copy)
        return -ENOMEM;
    if (len)
        memcpy(copy, data, len);
    pthread_mutex_lock(&h->lock);
    call = ++h->next_call;
    rc = fbr_queue_engine_put(l->engine, 0, call, copy, len);
    if (rc < 0)
        free(copy);
    if (rc == 1)
        rc = wait_put(h, l, call, fbr_deadline(timeout_ms));
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Under the lock: guests that were asked for their messages and do not answer wait for nobody any more. */
static void give_up_recalls(struct lane *l)
{
    for (int i = 0; i < l->n_recalled; i++)
        fbr_queue_engine_overdue(l->engine, l->recalled[i]);
    l->n_recalled = 0;
}

int fbr_host_get(struct fbr_host *h, int lane, struct fiber_bytes *out, int timeout_ms)
{
    struct lane *l = &h->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms), overdue = 0;
    bool waiting = false;
    int rc;

    pthread_mutex_lock(&h->lock);
    while ((rc = fbr_queue_engine_get(l->engine, &out->data, &out->len)) == -EAGAIN || rc == -EINPROGRESS) {
        uint64_t until = deadline;

        if (rc == -EINPROGRESS) {
            if (!overdue)
                overdue = fbr_now_ms() + OVERDUE_MS;
            if (overdue < until || timeout_ms == 0)
                until = overdue;
        } else if (timeout_ms == 0) {
            break;
        }
        if (!waiting)
            fbr_queue_engine_wait(l->engine);
        waiting = true;
        if (fbr_cond_wait(&h->changed, &h->lock, until) == 0)
            continue;
        if (until == overdue && overdue)
            give_up_recalls(l);
        if (fbr_now_ms() >= deadline || timeout_ms == 0) {
            rc = fbr_queue_engine_get(l->engine, &out->data, &out->len);
            break;
        }
        overdue = 0;
    }
    if (waiting)
        fbr_queue_engine_unwait(l->engine);
    pthread_mutex_unlock(&h->lock);
    return rc == -EAGAIN || rc == -EINPROGRESS ? -ETIMEDOUT : rc;
}

int fbr_host_size(struct fbr_host *h, int lane, size_t *n)
{
    struct fbr_queue_engine_stats s;

    pthread_mutex_lock(&h->lock);
    fbr_queue_engine_stats(h->lanes[lane].engine, &s);
    pthread_mutex_unlock(&h->lock);
    *n = s.waiting + s.assigned;
    return 0;
}
