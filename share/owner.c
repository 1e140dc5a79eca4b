/* owner.c - a channel in the process in which it lives; see channel.h.
 *
 * The channel (struct fbr_owner) is held by the handles of its own process and, while other
 * processes can reach it, by its object. Its last holder frees it. owner_local.c has the puts and
 * gets of threads of this process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "share/owner_priv.h"

#define FDS_FREE 128 /* descriptors that stay free for other uses than streams */

/* ---- The stream, under the lock ---- */

/* Waits no more for messages that the peer of the stream had not read. */
static void end_returns(struct fbr_owner *h)
{
    if (!h->returns_by_ms)
        return;
    h->returns_by_ms = 0;
    fbr_queue_engine_await(h->lanes[h->near].engine, false);
    pthread_cond_broadcast(&h->lanes[h->near].room);
    pthread_cond_broadcast(&h->lanes[h->near].arrived);
}

/* The messages that this peer had not read are back, or never come back. */
static void end_returns_of(struct fbr_owner *h, uint64_t peer)
{
    if (h->direct_peer != peer)
        return;
    h->asked_back = true; /* if it has left, there is nobody to ask */
    end_returns(h);
}

/* Drops the stream, which is not needed any more. */
static void drop_direct(struct fbr_owner *h)
{
    if (h->direct)
        fbr_direct_cut(h->direct);
    fbr_direct_unref(h->direct);
    h->direct = NULL;
    h->streams = false;
}

bool fbr_owner_by_stream(const struct lane *l)
{
    const struct fbr_owner *h = l->host;

    return h->direct && h->streams && !h->before && (int)l->number != h->near;
}

static void wake_stream(struct lane *l)
{
    if (l->host->direct && (int)l->number != l->host->near)
        fbr_direct_wake(l->host->direct);
}

/* ---- Decisions of the engine, under the lock ---- */

static void notify_peer(struct lane *l, uint64_t peer, enum fbr_channel_op op, const void *more,
                        size_t more_len, const void *data, size_t len)
{
    const uint32_t head[2] = {op, l->number};
    const struct iovec iov[3] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)more, more_len},
                                 {(void *)(uintptr_t)data, len}};

    if (!l->host->closed) /* on_peer_gone handles peers that are gone */
        fbr_object_send(l->host->object, peer, iov, 3);
}

static void on_deliver(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len)
{
    struct lane *l = user;
    bool ahead = fbr_queue_engine_reads_ahead(l->engine, peer);

    notify_peer(l, peer, ahead ? FBR_CH_AHEAD : FBR_CH_DELIVER, &seq, sizeof(seq), data, len);
}

/* The answer to a call, or to a batch of puts, by its number. */
static void answer(struct lane *l, uint64_t peer, enum fbr_channel_op op, uint64_t call,
                   int64_t result)
{
    struct {
        uint64_t call;
        int64_t result;
    } a = {call, result};

    notify_peer(l, peer, op, &a, sizeof(a), NULL, 0);
}

static struct pending *find_parked(struct lane *l, uint64_t peer, uint64_t batch)
{
    struct pending *p;

    DL_FOREACH(l->parked, p)
        if (p->peer == peer && p->number == batch)
            break;
    return p;
}

/* Answers the complete batches of a peer, in their order. */
static void finish_peer(struct lane *l, uint64_t peer)
{
    struct pending *p, *next;

    DL_FOREACH_SAFE(l->parked, p, next) {
        if (p->peer != peer)
            continue;
        if (p->left)
            return;
        if (p->answer || p->code)
            answer(l, peer, FBR_CH_ACK, p->number, p->code);
        DL_DELETE(l->parked, p);
        free(p);
    }
}

static void on_put_done(void *user, uint64_t peer, uint64_t call, int code)
{
    struct lane *l = user;
    struct local_put *put;
    struct pending *p;

    if (peer == 0) {
        DL_FOREACH(l->puts, put)
            if (put->call == call) {
                put->done = true;
                put->code = code;
            }
        pthread_cond_broadcast(&l->room);
        return;
    }
    p = find_parked(l, peer, call / FBR_CH_BATCH_MAX);
    if (!p)
        return;
    if (code)
        p->code = code;
    if (--p->left == 0)
        finish_peer(l, peer);
}

void fbr_owner_remind(struct lane *l)
{
    if (!l->host->closed)
        fbr_object_remind(l->host->object);
}

/* Drops all of that peer from the list. */
static void forget(struct pending **list, uint64_t peer)
{
    struct pending *p, *next;

    DL_FOREACH_SAFE(*list, p, next)
        if (p->peer == peer) {
            DL_DELETE(*list, p);
            free(p);
        }
}

static void on_recall(void *user, uint64_t peer)
{
    struct lane *l = user;
    struct pending *r = calloc(1, sizeof(*r));

    if (r) { /* without memory, the recall never becomes overdue */
        *r = (struct pending){.peer = peer, .number = fbr_now_ms()};
        DL_APPEND(l->recalled, r);
    }
    fbr_owner_remind(l);
    notify_peer(l, peer, FBR_CH_RECALL, NULL, 0, NULL, 0);
}

static void on_eof(void *user, uint64_t peer)
{
    notify_peer(user, peer, FBR_CH_EOF, NULL, 0, NULL, 0);
}

static void on_wake_local(void *user, bool all)
{
    struct lane *l = user;

    wake_stream(l);
    if (all || l->host->direct) /* some threads that wait may wait for the stream */
        pthread_cond_broadcast(&l->arrived);
    else
        pthread_cond_signal(&l->arrived);
}

static void on_ready(void *user, uint64_t peer, bool ready)
{
    const uint32_t body[2] = {ready, 0};
    struct lane *l = user;

    if (peer)
        notify_peer(l, peer, FBR_CH_READY, body, sizeof(body), NULL, 0);
    else
        fbr_ready_set(&l->ready, ready || l->host->over);
}

static const struct fbr_queue_engine_ops engine_ops = {.deliver = on_deliver,
                                                       .put_done = on_put_done,
                                                       .recall = on_recall,
                                                       .eof = on_eof,
                                                       .wake_local = on_wake_local,
                                                       .ready = on_ready};

/* ---- Records of clients ---- */

/* The engine has all messages of the batch; `left` of them found no room. */
static void end_batch(struct lane *l, uint64_t peer, const struct pending *batch)
{
    bool behind = false; /* an answer also answers all batches before it */
    struct pending *p;

    if (!batch->left && l->host->kind == FBR_KIND_PIPE)
        DL_FOREACH(l->parked, p)
            behind = behind || p->peer == peer;
    p = batch->left || (behind && batch->answer) ? malloc(sizeof(*p)) : NULL;
    if (p) {
        *p = *batch;
        DL_APPEND(l->parked, p);
        fbr_owner_remind(l);
    } else if (batch->answer || batch->code || batch->left) {
        answer(l, peer, FBR_CH_ACK, batch->number, batch->code);
    }
}

static int put_one(struct lane *l, struct pending *batch, uint32_t i, const void *bytes, size_t len)
{
    void *copy = malloc(len ? len : 1);
    int rc;

    if (!copy)
        return -ENOMEM;
    if (len)
        memcpy(copy, bytes, len);
    rc = fbr_queue_engine_put(l->engine, batch->peer, batch->number * FBR_CH_BATCH_MAX + i, copy,
                              len);
    if (rc < 0)
        free(copy);
    batch->left += rc == 1;
    return rc < 0 ? rc : 0;
}

/* Takes messages of a client, in order. Messages that find no room are parked. */
static void take_puts(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    struct pending batch = {.peer = peer, .number = fbr_get_u64(c)};
    uint32_t count = fbr_get_u32(c);

    batch.answer = fbr_get_u32(c) & FBR_CH_ANSWER;
    if (!fbr_cur_ok(c) || count > FBR_CH_BATCH_MAX ||
        batch.number >= FBR_QUEUE_OURS / FBR_CH_BATCH_MAX)
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t len = fbr_get_u64(c);
        const void *bytes = len <= fbr_cur_left(c) ? fbr_get(c, len) : NULL;
        int rc = -EBADMSG;

        fbr_get(c, fbr_pad8(len));
        if (bytes && fbr_cur_ok(c))
            rc = put_one(l, &batch, i, bytes, len);
        if (rc < 0)
            batch.code = rc;
        if (rc == -EBADMSG)
            break;
    }
    end_batch(l, peer, &batch);
}

static void take_cancel(struct lane *l, uint64_t peer, uint64_t batch)
{
    struct pending *p = find_parked(l, peer, batch);

    /* the put was accepted and acknowledged already */
    if (!p || fbr_queue_engine_put_cancel(l->engine, peer, batch * FBR_CH_BATCH_MAX) < 0)
        return;
    answer(l, peer, FBR_CH_ACK, batch, -ETIMEDOUT);
    DL_DELETE(l->parked, p);
    free(p);
}

static void take_ask(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    uint64_t taken = fbr_get_u64(c), probe;
    uint32_t hungry = fbr_get_u32(c), want = fbr_get_u32(c);

    probe = fbr_get_u64(c);
    if (!fbr_cur_ok(c) || fbr_queue_engine_ask(l->engine, peer, taken, hungry, want) == -EPROTO)
        return;
    if (probe) /* also when memory is short: a thread waits for this answer */
        notify_peer(l, peer, FBR_CH_EMPTY, &probe, sizeof(probe), NULL, 0);
}

static void take_returned(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    uint64_t from = fbr_get_u64(c);

    if (!fbr_cur_ok(c))
        return;
    forget(&l->recalled, peer);
    fbr_queue_engine_returned(l->engine, peer, from);
    pthread_cond_broadcast(&l->arrived); /* for fbr_owner_size() */
}

/* ---- Finished messages, under the lock ---- */

/* Called after a message was finished or a consumer is gone. */
static void answer_joiners(struct lane *l)
{
    int rc = fbr_queue_engine_joined(l->engine);

    if (rc == -EAGAIN)
        return;
    pthread_cond_broadcast(&l->finished);
    while (l->joiners) {
        struct pending *j = l->joiners;

        answer(l, j->peer, FBR_CH_JOIN, j->number, rc);
        DL_DELETE(l->joiners, j);
        free(j);
    }
}

static void take_join(struct lane *l, uint64_t peer, uint64_t call, bool poll)
{
    int rc = fbr_queue_engine_joined(l->engine);
    struct pending *j;

    if (rc == -EAGAIN && !poll) {
        forget(&l->joiners, peer);
        j = malloc(sizeof(*j));
        if (j) {
            *j = (struct pending){.peer = peer, .number = call};
            DL_APPEND(l->joiners, j);
            return;
        }
        rc = -ENOMEM;
    }
    answer(l, peer, FBR_CH_JOIN, call, rc);
}

/* Ends this end if no process holds it: messages that it sent may still be read, and no more are
 * sent to it. An end whose address was exported waits for the first process that attaches to it. */
static void end_unheld(struct fbr_owner *h, uint32_t end)
{
    struct channel_end *e = &h->ends[end];

    if (h->kind != FBR_KIND_PIPE || e->ended || e->here || e->holders || e->awaits)
        return;
    e->ended = true;
    for (int i = 0; i < h->n_lanes; i++)
        fbr_queue_engine_shut(h->lanes[i].engine);
    if (h->direct && (int)end == h->near)
        fbr_direct_cut(h->direct);
}

/* A process holds an end once, however many handles it has and however often it attaches. When
 * memory is short, the end may end before that process has left it. */
static void add_holder(struct channel_end *e, uint64_t peer)
{
    struct pending *holder = malloc(sizeof(*holder));

    e->awaits = false;
    if (!holder)
        return;
    forget(&e->holders, peer);
    *holder = (struct pending){.peer = peer};
    DL_APPEND(e->holders, holder);
}

static void drop_holder(struct fbr_owner *h, uint32_t end, uint64_t peer)
{
    forget(&h->ends[end].holders, peer);
    end_unheld(h, end);
}

/* A client no longer uses this lane. Its messages in a pipe stay to be read; messages for which a
 * bounded queue had no room were not accepted. */
static void leave_lane(struct lane *l, uint64_t peer)
{
    if (l->host->kind == FBR_KIND_PIPE)
        fbr_queue_engine_put_admit(l->engine, peer);
    forget(&l->parked, peer);
    forget(&l->recalled, peer);
    forget(&l->joiners, peer);
    fbr_queue_engine_gone(l->engine, peer);
    pthread_cond_broadcast(&l->arrived);
    answer_joiners(l);
}

static void take_leave(struct lane *l, uint64_t peer)
{
    struct fbr_owner *h = l->host;

    if (h->kind == FBR_KIND_PIPE)
        fbr_queue_engine_put_admit(l->engine, peer);
    /* the lane that this end reads */
    leave_lane(h->kind == FBR_KIND_PIPE ? &h->lanes[!l->number] : l, peer);
    if (h->kind == FBR_KIND_PIPE)
        drop_holder(h, l->number, peer);
    end_returns_of(h, peer);
}

void fbr_owner_second_holder(struct fbr_owner *h)
{
    if (!h->direct || h->asked_back)
        return;
    h->asked_back = true;
    h->returns_by_ms = fbr_now_ms() + OVERDUE_MS;
    fbr_queue_engine_await(h->lanes[h->near].engine, true);
    fbr_owner_remind(&h->lanes[h->near]);
    fbr_direct_stop(h->direct);
    notify_peer(&h->lanes[!h->near], h->direct_peer, FBR_CH_DIRECT_END, NULL, 0, NULL, 0);
}

/* Takes back a message that this peer got by the stream and has not read. This process sent it, so
 * hold_max does not refuse it. */
static void take_unread(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    uint64_t call = FBR_QUEUE_EARLIER | ++l->host->next_call;
    size_t len = fbr_cur_left(c);
    void *copy = peer == l->host->direct_peer ? malloc(len ? len : 1) : NULL;

    if (!copy)
        return;
    memcpy(copy, c->at, len);
    if (fbr_queue_engine_put(l->engine, peer, call, copy, len) < 0)
        free(copy);
    fbr_queue_engine_put_admit(l->engine, peer);
}

static bool is_idle(const struct lane *l)
{
    struct fbr_queue_engine_stats s;

    fbr_queue_engine_stats(l->engine, &s);
    return !s.waiting && !s.assigned && !s.parked && !l->puts;
}

/* Whether this peer, which holds `end`, may have a stream to the other end. */
static bool may_stream(const struct fbr_owner *h, uint32_t end, uint64_t peer)
{
    const struct channel_end *far = &h->ends[end], *near = &h->ends[!end];
    struct fbr_error err;

    return h->kind == FBR_KIND_PIPE && !h->over && !h->direct && !h->no_direct && far->holders &&
           !far->holders->next && far->holders->peer == peer && !near->holders && near->here &&
           !far->ended && is_idle(&h->lanes[!end]) && fbr_fds_need(FDS_FREE, "a pipe", &err) == 0;
}

/* A peer that waits and has nothing to read listens for us: from now on we send by the stream. */
static void take_direct(struct lane *l, uint64_t peer, struct fbr_cur *c)
{
    struct fbr_owner *h = l->host;
    char path[FBR_DIRECT_PATH];
    const void *token = fbr_get(c, FBR_DIRECT_TOKEN);
    uint32_t answer[2] = {0, 0};

    fbr_get_str(c, path, sizeof(path));
    if (!fbr_cur_ok(c))
        return;
    if (h->direct && !h->streams && fbr_direct_stopped(h->direct)) {
        end_returns(h);
        drop_direct(h);
    }
    if (may_stream(h, l->number, peer) &&
        fbr_direct_connect(&h->direct, path, token, h->longest) == 0) {
        h->direct_peer = peer;
        h->near = !l->number;
        h->before = 0;
        h->asked_back = false;
        fbr_queue_engine_mark(h->lanes[h->near].engine);
        answer[0] = 1;
    }
    notify_peer(l, peer, FBR_CH_DIRECT_IS, answer, sizeof(answer), NULL, 0);
}

/* The peer sends by the stream from now on, after the messages that it has put. */
static void take_go(struct lane *l, uint64_t peer)
{
    struct fbr_owner *h = l->host;
    struct fbr_queue_engine_stats s;

    if (!h->direct || h->direct_peer != peer || (int)l->number == h->near)
        return;
    fbr_queue_engine_put_admit(l->engine, peer); /* they go before the mark */
    fbr_queue_engine_mark(l->engine);
    fbr_queue_engine_stats(l->engine, &s);
    h->before = s.waiting + s.assigned + s.parked;
    h->streams = true;
    pthread_cond_broadcast(&l->arrived);
}

/* Does what a client, or a thread of this process, asks for. Returns the answer. */
static int64_t do_call(struct lane *l, uint64_t peer, enum fbr_channel_op op)
{
    int rc;

    switch (op) {
    case FBR_CH_SIZE:
        return (int64_t)fbr_owner_count(l);
    case FBR_CH_DONE:
        rc = fbr_queue_engine_done(l->engine, peer);
        answer_joiners(l);
        return rc;
    case FBR_CH_SHUT:
        fbr_queue_engine_shut(l->engine);
        return 0;
    case FBR_CH_DEAL:
        fbr_queue_engine_deal(l->engine);
        return 0;
    case FBR_CH_LEAVE:
        take_leave(l, peer);
        return 0;
    case FBR_CH_ATTACH:
        if (l->host->kind == FBR_KIND_PIPE) {
            if (peer != l->host->direct_peer || (int)l->number == l->host->near)
                fbr_owner_second_holder(l->host);
            add_holder(&l->host->ends[l->number], peer);
        }
        return 0;
    case FBR_CH_EXPORT:
        l->host->ends[l->number].awaits = true;
        l->host->ends[l->number].exporter = peer;
        return 0;
    default:
        return -ENOSYS;
    }
}

static void take_call(struct lane *l, uint64_t peer, enum fbr_channel_op op, struct fbr_cur *c)
{
    uint64_t call = fbr_get_u64(c);
    uint32_t poll = fbr_get_u32(c);

    if (!fbr_cur_ok(c))
        return;
    if (op == FBR_CH_JOIN)
        take_join(l, peer, call, poll);
    else
        answer(l, peer, op, call, do_call(l, peer, op));
}

static void take_record(struct lane *l, uint64_t peer, uint32_t op, struct fbr_cur *c)
{
    uint64_t v;

    switch (op) {
    case FBR_CH_PUTS:
        take_puts(l, peer, c);
        break;
    case FBR_CH_CANCEL:
        v = fbr_get_u64(c);
        if (fbr_cur_ok(c))
            take_cancel(l, peer, v);
        break;
    case FBR_CH_ASK:
        take_ask(l, peer, c);
        break;
    case FBR_CH_RETURNED:
        take_returned(l, peer, c);
        break;
    case FBR_CH_WATCH:
        /* memory is short: the peer had better look */
        if (fbr_queue_engine_watch(l->engine, peer) < 0)
            on_ready(l, peer, true);
        break;
    case FBR_CH_DIRECT:
        take_direct(l, peer, c);
        break;
    case FBR_CH_GO:
        take_go(l, peer);
        break;
    case FBR_CH_UNREAD:
        take_unread(l, peer, c);
        break;
    case FBR_CH_DIRECT_ENDED:
        end_returns_of(l->host, peer);
        break;
    default:
        take_call(l, peer, op, c);
    }
}

static void retired(void *user)
{
    fbr_owner_release(user);
}

/* Under both locks. -ENOMEM: the rest is still in the stream. */
static int empty_stream(struct lane *l)
{
    struct fbr_owner *h = l->host;
    struct fiber_bytes m;
    int rc;

    fbr_direct_shut(h->direct); /* no message arrives after those that we take */
    while ((rc = fbr_direct_take(h->direct, &m)) == 0) {
        uint64_t call = FBR_QUEUE_EARLIER | ++h->next_call;

        rc = fbr_queue_engine_put(l->engine, h->direct_peer, call, m.data, m.len);
        if (rc < 0) {
            fbr_direct_put_back(h->direct, &m);
            break;
        }
        h->before++;
    }
    fbr_queue_engine_put_admit(l->engine, h->direct_peer);
    h->streams = rc == -ENOMEM;
    return h->streams ? rc : 0;
}

int fbr_owner_end_stream(struct fbr_owner *h, int end, bool for_ever)
{
    struct lane *l = &h->lanes[!end];
    struct fbr_direct *d = NULL;
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    h->no_direct |= for_ever;
    if (h->direct && h->near == end) { /* the caller waits if another thread does the same */
        d = fbr_direct_ref(h->direct);
        h->leaving = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (!d)
        return 0;
    fbr_direct_wake(d);
    fbr_direct_lock(d, UINT64_MAX);
    pthread_mutex_lock(&h->lock);
    if (h->direct == d && h->streams)
        rc = empty_stream(l);
    h->leaving = false;
    for (int i = 0; i < h->n_lanes; i++) /* the readers of both ends wait for this */
        pthread_cond_broadcast(&h->lanes[i].arrived);
    pthread_mutex_unlock(&h->lock);
    fbr_direct_unlock(d);
    fbr_direct_unref(d);
    return rc;
}

/* Releases the lock. If both ends of a pipe have ended, it ends. */
static void unlock(struct fbr_owner *h)
{
    bool ends = !h->closed && h->kind == FBR_KIND_PIPE && h->ends[0].ended && h->ends[1].ended;

    if (ends)
        h->closed = h->over = true;
    pthread_mutex_unlock(&h->lock);
    if (ends)
        fbr_object_retire(h->object, retired);
}

static void on_peer_record(void *user, uint64_t peer, const void *record, size_t len)
{
    struct fbr_owner *h = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c);
    bool late;

    if (!fbr_cur_ok(&c) || lane >= (uint32_t)h->n_lanes)
        return;
    if (op == FBR_CH_ATTACH)
        fbr_owner_end_stream(h, (int)lane, false);
    pthread_mutex_lock(&h->lock);
    take_record(&h->lanes[lane], peer, op, &c);
    /* a thread watches, or another process has our end, since we have connected */
    late = op == FBR_CH_GO && (h->no_direct || h->ends[!lane].holders);
    unlock(h);
    if (late)
        fbr_owner_end_stream(h, !lane, false);
}

static void on_peer_gone(void *user, uint64_t peer)
{
    struct fbr_owner *h = user;

    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->n_lanes; i++)
        leave_lane(&h->lanes[i], peer);
    for (uint32_t i = 0; i < 2; i++) {
        if (h->ends[i].exporter == peer)
            h->ends[i].awaits = false;
        drop_holder(h, i, peer);
    }
    if (h->direct && h->direct_peer == peer)
        fbr_direct_cut(h->direct);
    end_returns_of(h, peer);
    unlock(h);
}

/* From now on no process waits for clients whose recall is overdue. */
static void drop_recalls(struct lane *l)
{
    struct pending *r, *next;
    uint64_t now = fbr_now_ms();

    DL_FOREACH_SAFE(l->recalled, r, next)
        if (now - r->number >= OVERDUE_MS) {
            uint64_t peer = r->peer;

            DL_DELETE(l->recalled, r);
            free(r);
            fbr_queue_engine_overdue(l->engine, peer);
            pthread_cond_broadcast(&l->arrived); /* for fbr_owner_size() */
        }
}

static void on_time(void *user)
{
    struct fbr_owner *h = user;

    pthread_mutex_lock(&h->lock);
    if (h->returns_by_ms && fbr_now_ms() >= h->returns_by_ms)
        end_returns(h); /* for example, the peer is frozen */
    for (int i = 0; i < h->n_lanes; i++) {
        struct lane *l = &h->lanes[i];

        drop_recalls(l);
        fbr_queue_engine_press(l->engine);
        if (l->recalled || l->parked || l->puts || h->returns_by_ms)
            fbr_owner_remind(l);
    }
    pthread_mutex_unlock(&h->lock);
}

/* Under the lock: wakes all waiters, which look again. */
static void wake_all(struct fbr_owner *h)
{
    for (int i = 0; i < h->n_lanes; i++) {
        pthread_cond_broadcast(&h->lanes[i].arrived);
        pthread_cond_broadcast(&h->lanes[i].room);
        pthread_cond_broadcast(&h->lanes[i].finished);
        fbr_ready_set(&h->lanes[i].ready, true);
    }
    if (h->direct)
        fbr_direct_wake(h->direct);
}

static void on_end(void *user)
{
    struct fbr_owner *h = user;

    pthread_mutex_lock(&h->lock);
    h->over = true;
    wake_all(h);
    pthread_mutex_unlock(&h->lock);
}

static const struct fbr_object_ops object_ops = {
    .on_record = on_peer_record, .on_gone = on_peer_gone, .on_time = on_time, .on_end = on_end};

/* ---- Life ---- */

static void free_all(struct pending *list)
{
    struct pending *p, *next;

    DL_FOREACH_SAFE(list, p, next)
        free(p);
}

static void close_lane(struct lane *l)
{
    free_all(l->parked);
    free_all(l->recalled);
    free_all(l->joiners);
    fbr_queue_engine_close(l->engine);
    fbr_ready_fini(&l->ready);
    pthread_cond_destroy(&l->arrived);
    pthread_cond_destroy(&l->room);
    pthread_cond_destroy(&l->finished);
}

static void destroy(struct fbr_owner *h)
{
    for (int i = 0; i < h->n_lanes; i++)
        close_lane(&h->lanes[i]);
    for (int i = 0; i < 2; i++)
        free_all(h->ends[i].holders);
    drop_direct(h);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static int open_lane(struct fbr_owner *h, const struct fbr_queue_engine_config *config)
{
    struct lane *l = &h->lanes[h->n_lanes];

    l->host = h;
    l->number = (uint32_t)h->n_lanes;
    l->engine = fbr_queue_engine_open(&engine_ops, l, config);
    if (!l->engine)
        return -ENOMEM;
    fbr_cond_init(&l->arrived);
    fbr_cond_init(&l->room);
    fbr_cond_init(&l->finished);
    h->n_lanes++;
    return 0;
}

int fbr_owner_open(struct fbr_owner **out, enum fbr_kind kind,
                   const struct fbr_queue_engine_config *limits)
{
    const int lanes = kind == FBR_KIND_PIPE ? 2 : 1; /* and handles */
    struct fbr_queue_engine_config config = *limits;
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_owner *h;
    int rc = 0;

    if (!rt)
        return fbr_kept();
    h = calloc(1, sizeof(*h));
    if (!h)
        return fbr_keep(-ENOMEM, "channel: out of memory");
    pthread_mutex_init(&h->lock, NULL);
    h->kind = kind;
    h->refs = lanes + 1;
    h->ends[0].here = h->ends[1].here = 1;
    h->longest = fbr_config_size(rt->config, "max_message") - FBR_CH_ROOM;
    config.held = &rt->held;
    while (rc == 0 && h->n_lanes < lanes)
        rc = open_lane(h, &config);
    rc = rc < 0 ? fbr_keep(rc, "channel: out of memory")
                : fbr_object_open(&h->object, &object_ops, h);
    if (rc < 0) {
        destroy(h);
        return rc;
    }
    h->id = fbr_object_id(h->object);
    *out = h;
    return 0;
}

static void hold(void *user)
{
    struct fbr_owner *h = user;

    __atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
}

struct fbr_owner *fbr_owner_local(const struct fbr_address *a)
{
    return fbr_object_hold(a, &object_ops, hold);
}

struct fbr_owner *fbr_owner_hold(struct fbr_owner *h)
{
    hold(h);
    return h;
}

void fbr_owner_release(struct fbr_owner *h)
{
    if (__atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) == 0)
        destroy(h);
}

uint64_t fbr_owner_id(const struct fbr_owner *h)
{
    return h->id;
}

int fbr_owner_address(struct fbr_owner *h, uint8_t flags, struct fiber_address *address)
{
    return fbr_address_here(h->id, h->kind, flags, address);
}

void fbr_owner_close(struct fbr_owner *h)
{
    pthread_mutex_lock(&h->lock);
    h->closed = h->over = true;
    wake_all(h);
    pthread_mutex_unlock(&h->lock);
    fbr_object_close(h->object);
    fbr_owner_release(h);
}

void fbr_owner_attach(struct fbr_owner *h, int end)
{
    pthread_mutex_lock(&h->lock);
    h->ends[end].awaits = false;
    h->ends[end].here++;
    pthread_mutex_unlock(&h->lock);
}

void fbr_owner_leave(struct fbr_owner *h, int end)
{
    pthread_mutex_lock(&h->lock);
    h->ends[end].here--;
    end_unheld(h, (uint32_t)end);
    unlock(h);
}

int fbr_owner_call(struct fbr_owner *h, int lane, enum fbr_channel_op op)
{
    int rc = -EPIPE;

    pthread_mutex_lock(&h->lock);
    if (!h->over)
        rc = (int)do_call(&h->lanes[lane], 0, op);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int fbr_owner_join(struct fbr_owner *h, int lane, int timeout_ms)
{
    struct lane *l = &h->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = -EAGAIN, waited = 0;

    pthread_mutex_lock(&h->lock);
    while (rc == -EAGAIN && waited == 0) {
        rc = h->over ? -EPIPE : fbr_queue_engine_joined(l->engine);
        if (rc == -EAGAIN)
            waited = fbr_cond_wait(&l->finished, &h->lock, deadline);
    }
    pthread_mutex_unlock(&h->lock);
    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}
