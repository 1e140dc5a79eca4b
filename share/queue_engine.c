/* queue_engine.c - decides which process gets which message of a queue; see queue_engine.h.
 *
 * Every message has a number, `order`: its place among all accepted messages. `queue` is sorted by
 * it at all times: new messages are the newest, and messages that come back from consumers are
 * merged into the front.
 *
 * A consumer is in the `line` while it is hungry for more than it has, and is `ahead` while it has
 * more than it is hungry for (the two exclude each other). While one consumer stands in line and
 * another is ahead, the consumers ahead are recalled, and nothing is assigned before they have
 * answered. So an assigned message is always the oldest message that no program has. A peer with an
 * open recall gets no message either: its answer must report exactly what it has.
 *
 * For the owner's own process, messages are not assigned but reserved: `reserved` messages of the
 * queue, no matter which, are for threads of the owner that were woken.
 *
 * `queue` has room for all messages that wait, are dealt, assigned or parked, so that no call can
 * fail when messages come back.
 *
 * While the engine deals, `line` is the turn: it has each consumer that ever was hungry, the next
 * one first. No consumer is ahead, nothing is recalled, and nothing is reserved.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/queue_engine.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "share/item_ring.h"

/* A consumer may read ahead once it alone has read this many messages in a row. */
#define SOLE_STREAK 64
#define RING_SHRINK 1024
#define GAP (1ull << 32) /* orders that a mark leaves for messages that come later */
#define BOOKKEEPING 64   /* bytes that a message needs in addition to its own, about */

struct peer {
    uint64_t id;
    uint64_t last;         /* sequence number of the newest assigned message; `held` ends with it */
    struct item_ring held; /* assigned, not known to be taken */
    size_t reserved;       /* for peer 0, in place of `held` */
    struct item_ring dealt; /* its share, not yet assigned */
    uint64_t open;          /* messages that it took and has not finished */
    size_t hungry, want;
    bool in_line, is_ahead;
    bool recalled, late;
    /* told: it knows that a message is here for it; used while the engine deals */
    bool watches, told;
    struct peer *prev, *next; /* in the line, or among those ahead */
    UT_hash_handle hh;
};

struct park {
    uint64_t peer, call;
    void *data;
    size_t len;
    struct park *prev, *next;
};

struct fbr_queue_engine {
    const struct fbr_queue_engine_ops *ops;
    void *user;
    size_t max_messages, max_bytes;
    struct fbr_held *account;
    struct item_ring queue;
    uint64_t order;     /* of the next message */
    uint64_t earlier;   /* of the next message that goes to the mark */
    bool awaits;        /* such messages are on their way: nobody gets a message */
    size_t held, bytes; /* assigned messages; bytes of all in queue and held */
    size_t parked;
    bool shut, done; /* done: shut, and the last message was taken */
    bool deals;
    size_t dealt;        /* messages in all shares */
    uint64_t unfinished; /* messages that were put and that no peer has finished */
    uint64_t open;       /* sum over all known peers */
    struct park *parks;  /* oldest first */
    struct peer local;
    struct peer *peers; /* hash of the remote consumers */
    struct peer *line, *ahead;
    size_t recalls;    /* open and not late */
    size_t late_held;  /* messages of peers that are late */
    struct peer *sole; /* the last reader */
    size_t streak;     /* messages that it alone read since */
    size_t watchers;
    bool told_ready; /* the state that the watchers know */
};

/* ---- messages ---- */

static size_t total(const struct fbr_queue_engine *e)
{
    return e->queue.len + e->dealt + e->held;
}

/* Messages that are not reserved for anyone yet. */
static size_t available(const struct fbr_queue_engine *e)
{
    return e->queue.len - e->local.reserved;
}

static void drop(struct fbr_queue_engine *e, void *data, size_t len)
{
    if (e->ops->drop)
        e->ops->drop(e->user, data, len);
    else
        free(data);
}

static bool has_space(const struct fbr_queue_engine *e)
{
    return (!e->max_messages || total(e) - e->late_held < e->max_messages) &&
           (!e->max_bytes || e->bytes < e->max_bytes);
}

/* The cost of a message of another process. Our program limits our own messages, which cost
 * nothing. */
static uint64_t cost_of(bool far, size_t len)
{
    return far ? len + BOOKKEEPING : 0;
}

static void uncount(struct fbr_queue_engine *e, const struct item *item)
{
    e->bytes -= item->len;
    fbr_held_release(e->account, cost_of(item->far, item->len));
}

/* Puts a message that goes to the mark before those that came after the mark. */
static void enqueue_earlier(struct fbr_queue_engine *e, struct item item)
{
    struct item_ring one = {&item, 1, 0, 1};

    item.order = e->earlier++;
    ring_merge(&e->queue, &one, 1);
}

/* The caller has made room in the ring. */
static void enqueue(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, void *data,
                    size_t len)
{
    if (call >= FBR_QUEUE_EARLIER)
        enqueue_earlier(e, (struct item){data, len, 0, peer != 0});
    else
        ring_push(&e->queue, (struct item){data, len, e->order++, peer != 0});
    e->bytes += len;
    e->unfinished++;
    e->done = false; /* when a message that was here already comes after the shut */
}

/* Called after messages left the engine: releases memory, best effort. */
static void shrink(struct fbr_queue_engine *e)
{
    size_t need = total(e) + e->parked;

    if (e->queue.cap > RING_SHRINK && need < e->queue.cap / 8)
        (void)ring_resize(&e->queue, e->queue.cap / 4);
}

static void drop_ring(struct fbr_queue_engine *e, struct item_ring *r)
{
    while (r->len) {
        struct item item = ring_pop(r);

        uncount(e, &item);
        drop(e, item.data, item.len);
    }
    free(r->items);
}

/* ---- consumers ---- */

static size_t has(const struct peer *p)
{
    return p->held.len + p->reserved;
}

/* There is more than one sorted run only if the owner of `from` was given messages that came back
 * from another consumer. */
static void merge_back(struct fbr_queue_engine *e, struct item_ring *from)
{
    while (from->len)
        ring_merge(&e->queue, from, ring_run(from));
}

static void set_in_line(struct fbr_queue_engine *e, struct peer *p, bool in)
{
    if (p->in_line == in)
        return;
    if (in)
        DL_APPEND(e->line, p);
    else
        DL_DELETE(e->line, p);
    p->in_line = in;
}

static void set_ahead(struct fbr_queue_engine *e, struct peer *p, bool ahead)
{
    if (p->is_ahead == ahead)
        return;
    if (ahead)
        DL_APPEND(e->ahead, p);
    else
        DL_DELETE(e->ahead, p);
    p->is_ahead = ahead;
}

/* Puts the shares that are still here back into the queue, to be dealt again. */
static void undeal(struct fbr_queue_engine *e)
{
    struct peer *p;

    DL_FOREACH(e->line, p) {
        e->dealt -= p->dealt.len;
        merge_back(e, &p->dealt);
    }
}

/* p is a consumer from its first get on. */
static void take_turn(struct fbr_queue_engine *e, struct peer *p)
{
    if (p->in_line || e->done)
        return;
    undeal(e);
    set_in_line(e, p, true);
}

/* Puts p where it belongs after its numbers changed. */
static void place(struct fbr_queue_engine *e, struct peer *p)
{
    bool ahead = has(p) > p->hungry && !p->late;
    bool in_line = has(p) < p->hungry && !p->recalled && !e->done;

    if (e->deals) {
        if (p->hungry)
            take_turn(e, p);
        return;
    }
    if (!ahead)
        set_ahead(e, p, false);
    set_in_line(e, p, in_line);
    if (ahead)
        set_ahead(e, p, true);
}

/* Notes that p reads, and whether another consumer did before. */
static void note_reader(struct fbr_queue_engine *e, struct peer *p)
{
    if (e->sole == p)
        return;
    e->streak = e->sole ? 0 : SOLE_STREAK;
    e->sole = p;
}

bool fbr_queue_engine_reads_ahead(const struct fbr_queue_engine *e, uint64_t peer)
{
    const struct peer *p = e->sole;

    return p && !e->deals && p->id && p->id == peer && e->streak >= SOLE_STREAK && !p->recalled &&
           e->watchers == p->watches;
}

/* The consumer that may have one more message without being hungry for it. */
static struct peer *reads_ahead(const struct fbr_queue_engine *e)
{
    struct peer *p = e->sole;

    return p && fbr_queue_engine_reads_ahead(e, p->id) && has(p) < p->want ? p : NULL;
}

/* Sends p the next message of that ring; `held` must have room. */
static void deliver(struct fbr_queue_engine *e, struct peer *p, struct item_ring *from)
{
    struct item item = ring_pop(from);

    ring_push(&p->held, item);
    e->held++;
    place(e, p);
    e->ops->deliver(e->user, p->id, ++p->last, item.data, item.len);
}

static int assign(struct fbr_queue_engine *e, struct peer *p)
{
    /* the next event tries again */
    if (p->id && ring_reserve(&p->held, p->held.len + 1) < 0)
        return -ENOMEM;
    note_reader(e, p);
    e->streak++;
    set_in_line(e, p, false); /* if it wants more, it waits behind the others */
    if (!p->id) {
        p->reserved++;
        place(e, p);
        e->ops->wake_local(e->user, false);
        return 0;
    }
    deliver(e, p, &e->queue);
    return 0;
}

static void recall(struct fbr_queue_engine *e, struct peer *p)
{
    if (p->recalled || e->deals)
        return;
    p->recalled = true;
    e->recalls++;
    place(e, p);
    e->ops->recall(e->user, p->id);
}

static void recall_ahead(struct fbr_queue_engine *e)
{
    struct peer *p;

    DL_FOREACH(e->ahead, p)
        recall(e, p);
}

/* Recalls to learn which messages were taken, once there is nothing else to send. */
static void recall_all(struct fbr_queue_engine *e)
{
    struct peer *p, *tmp;

    HASH_ITER(hh, e->peers, p, tmp) {
        if (p->held.len)
            recall(e, p);
    }
}

static void end_gets(struct fbr_queue_engine *e)
{
    e->done = true;
    while (e->line) {
        struct peer *p = e->line;

        set_in_line(e, p, false);
        if (p->id) {
            p->hungry = 0;
            e->ops->eof(e->user, p->id);
        }
    }
    e->ops->wake_local(e->user, true);
}

static bool is_ready(const struct fbr_queue_engine *e)
{
    return !e->awaits && ((available(e) && !e->recalls) || (e->shut && !total(e)));
}

static void notify_share(struct fbr_queue_engine *e, struct peer *p)
{
    bool ready = p->dealt.len || (e->shut && !total(e));

    if (!p->watches || p->told == ready)
        return;
    p->told = ready;
    e->ops->ready(e->user, p->id, ready);
}

static void notify_watchers(struct fbr_queue_engine *e)
{
    struct peer *p, *tmp;

    if (e->watchers && e->deals) {
        notify_share(e, &e->local);
        HASH_ITER(hh, e->peers, p, tmp)
            notify_share(e, p);
        return;
    }
    if (!e->watchers || e->told_ready == is_ready(e))
        return;
    e->told_ready = !e->told_ready;
    if (e->local.watches)
        e->ops->ready(e->user, 0, e->told_ready);
    HASH_ITER(hh, e->peers, p, tmp) {
        if (p->watches)
            e->ops->ready(e->user, p->id, e->told_ready);
    }
}

/* Deals the next message to the next consumer in turn. -ENOMEM: later. */
static int deal_one(struct fbr_queue_engine *e)
{
    struct peer *p = e->line;

    if (ring_reserve(&p->dealt, p->dealt.len + 1) < 0)
        return -ENOMEM;
    ring_push(&p->dealt, ring_pop(&e->queue));
    e->dealt++;
    set_in_line(e, p, false);
    set_in_line(e, p, true);
    if (!p->id)
        e->ops->wake_local(e->user, false);
    return 0;
}

static void deliver_share(struct fbr_queue_engine *e, struct peer *p)
{
    while (p->id && !p->recalled && p->dealt.len && has(p) < p->hungry) {
        if (ring_reserve(&p->held, p->held.len + 1) < 0)
            return;
        e->dealt--;
        deliver(e, p, &p->dealt);
    }
}

static void dispatch_shares(struct fbr_queue_engine *e)
{
    struct peer *p;

    while (e->line && e->queue.len)
        if (deal_one(e) < 0)
            break;
    DL_FOREACH(e->line, p)
        deliver_share(e, p);
    if (e->shut && e->line && !total(e))
        end_gets(e);
    notify_watchers(e);
}

static void dispatch(struct fbr_queue_engine *e)
{
    if (e->deals) {
        dispatch_shares(e);
        return;
    }
    for (;;) {
        struct peer *p = e->line ? e->line : reads_ahead(e);

        if (e->line && e->ahead)
            recall_ahead(e);
        if (!p || e->recalls || e->awaits || !available(e))
            break;
        if (assign(e, p) < 0)
            return;
    }
    if (e->shut && e->line && !e->queue.len && !e->awaits) {
        if (total(e))
            recall_all(e);
        else
            end_gets(e);
    }
    notify_watchers(e);
}

/* ---- producers ---- */

static void forget_park(struct fbr_queue_engine *e, struct park *w)
{
    DL_DELETE(e->parks, w);
    e->parked--;
    free(w);
}

/* Forgets the put and drops its message. */
static void drop_park(struct fbr_queue_engine *e, struct park *w)
{
    fbr_held_release(e->account, cost_of(w->peer != 0, w->len));
    drop(e, w->data, w->len);
    forget_park(e, w);
}

static void accept_park(struct fbr_queue_engine *e, struct park *w)
{
    uint64_t peer = w->peer, call = w->call;

    enqueue(e, peer, call, w->data, w->len);
    forget_park(e, w);
    e->ops->put_done(e->user, peer, call, 0);
}

/* Called after messages left the engine. Returns whether parked puts were accepted in their
 * place. */
static bool freed(struct fbr_queue_engine *e)
{
    bool any = e->parks && has_space(e);

    shrink(e);
    while (e->parks && has_space(e))
        accept_park(e, e->parks);
    return any;
}

static int park(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, void *data, size_t len)
{
    struct park *w = malloc(sizeof(*w));

    if (!w)
        return -ENOMEM;
    *w = (struct park){.peer = peer, .call = call, .data = data, .len = len};
    DL_APPEND(e->parks, w);
    e->parked++;
    return 1;
}

/* Takes the cost of the message from the account. A message that is here already is never
 * refused. */
static int count(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, size_t len)
{
    struct fbr_held_part none = {0};

    if (call < FBR_QUEUE_OURS)
        return fbr_held_reserve(e->account, cost_of(peer != 0, len));
    fbr_held_set(e->account, &none, cost_of(peer != 0, len));
    return 0;
}

int fbr_queue_engine_put(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, void *data,
                         size_t len)
{
    int rc;

    if (e->shut && call < FBR_QUEUE_OURS)
        return -EPIPE;
    if (ring_reserve(&e->queue, total(e) + e->parked + 1) < 0)
        return -ENOMEM;
    rc = count(e, peer, call, len);
    if (rc < 0)
        return rc;
    if (e->parks || !has_space(e)) {
        rc = park(e, peer, call, data, len);
        if (rc < 0)
            fbr_held_release(e->account, cost_of(peer != 0, len));
        return rc;
    }
    enqueue(e, peer, call, data, len);
    if (e->line || e->sole != &e->local)
        dispatch(e);
    else
        notify_watchers(e);
    return 0;
}

int fbr_queue_engine_put_cancel(struct fbr_queue_engine *e, uint64_t peer, uint64_t call)
{
    struct park *w;

    DL_FOREACH(e->parks, w)
        if (w->peer == peer && w->call == call) {
            drop_park(e, w);
            return 0;
        }
    return -ENOENT;
}

void fbr_queue_engine_put_admit(struct fbr_queue_engine *e, uint64_t peer)
{
    struct park *w, *tmp;

    DL_FOREACH_SAFE(e->parks, w, tmp)
        if (w->peer == peer)
            accept_park(e, w);
    dispatch(e);
}

void fbr_queue_engine_mark(struct fbr_queue_engine *e)
{
    e->earlier = e->order;
    e->order += GAP;
}

void fbr_queue_engine_await(struct fbr_queue_engine *e, bool awaits)
{
    e->awaits = awaits;
    dispatch(e);
}

void fbr_queue_engine_shut(struct fbr_queue_engine *e)
{
    e->shut = true;
    while (e->parks) {
        uint64_t peer = e->parks->peer, call = e->parks->call;

        drop_park(e, e->parks);
        e->ops->put_done(e->user, peer, call, -EPIPE);
    }
    dispatch(e);
}

/* ---- remote consumers ---- */

static struct peer *find_peer(struct fbr_queue_engine *e, uint64_t id)
{
    struct peer *p;

    HASH_FIND(hh, e->peers, &id, sizeof(id), p);
    return p;
}

static struct peer *add_peer(struct fbr_queue_engine *e, uint64_t id)
{
    struct peer *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->id = id;
    HASH_ADD(hh, e->peers, id, sizeof(p->id), p);
    if (!p->hh.tbl) {
        free(p);
        return NULL;
    }
    return p;
}

/* The program of p has taken the first n messages of `held`. */
static void taken(struct fbr_queue_engine *e, struct peer *p, size_t n)
{
    e->held -= n;
    p->open += n;
    e->open += n;
    if (p->late)
        e->late_held -= n;
    for (; n; n--) {
        struct item item = ring_pop(&p->held);

        uncount(e, &item);
        drop(e, item.data, item.len);
    }
}

/* Puts all that p still holds back into the queue. */
static void put_back(struct fbr_queue_engine *e, struct peer *p)
{
    e->held -= p->held.len;
    merge_back(e, &p->held);
}

static void recall_ended(struct fbr_queue_engine *e, struct peer *p)
{
    if (p->late)
        e->late_held -= p->held.len;
    else if (p->recalled)
        e->recalls--;
    p->recalled = false;
    p->late = false;
}

int fbr_queue_engine_ask(struct fbr_queue_engine *e, uint64_t peer, uint64_t upto, uint32_t hungry,
                         uint32_t want)
{
    struct peer *p = find_peer(e, peer);
    uint64_t first;

    if (!peer || want < hungry || upto > (p ? p->last : 0))
        return -EPROTO;
    if (!p)
        p = add_peer(e, peer);
    if (!p)
        return -ENOMEM;
    first = p->last - p->held.len + 1;
    p->hungry = hungry;
    p->want = want;
    if (hungry)
        note_reader(e, p);
    if (upto >= first)
        taken(e, p, (size_t)(upto - first + 1));
    place(e, p);
    freed(e);
    dispatch(e);
    if (p->hungry && e->done) {
        p->hungry = 0;
        e->ops->eof(e->user, peer);
    }
    return 0;
}

int fbr_queue_engine_returned(struct fbr_queue_engine *e, uint64_t peer, uint64_t from)
{
    struct peer *p = find_peer(e, peer);
    uint64_t first;

    if (!p || !p->recalled)
        return -EPROTO;
    first = p->last - p->held.len + 1;
    if (from < first || from > p->last + 1)
        return -EPROTO;
    recall_ended(e, p);
    p->hungry -= from - first < p->hungry ? (size_t)(from - first) : p->hungry;
    taken(e, p, (size_t)(from - first));
    put_back(e, p);
    place(e, p);
    freed(e);
    dispatch(e);
    return 0;
}

void fbr_queue_engine_overdue(struct fbr_queue_engine *e, uint64_t peer)
{
    struct peer *p = find_peer(e, peer);

    if (!p || !p->recalled || p->late)
        return;
    p->late = true;
    e->recalls--;
    e->late_held += p->held.len;
    place(e, p);
    freed(e);
    dispatch(e);
}

void fbr_queue_engine_press(struct fbr_queue_engine *e)
{
    if (e->parks && e->line && !e->queue.len)
        recall_all(e);
}

void fbr_queue_engine_gone(struct fbr_queue_engine *e, uint64_t peer)
{
    struct peer *p = find_peer(e, peer);
    struct park *w, *tmp;

    if (!peer)
        return;
    DL_FOREACH_SAFE(e->parks, w, tmp)
        if (w->peer == peer)
            drop_park(e, w);
    if (!p)
        return;
    recall_ended(e, p);
    /* otherwise the shares of the others are right */
    if (e->deals && (p->held.len || p->dealt.len))
        undeal(e);
    put_back(e, p);
    set_in_line(e, p, false);
    set_ahead(e, p, false);
    e->open -= p->open;
    if (e->sole == p)
        e->sole = NULL;
    e->watchers -= p->watches;
    HASH_DEL(e->peers, p);
    free(p->held.items);
    free(p->dealt.items);
    free(p);
    dispatch(e);
}

int fbr_queue_engine_watch(struct fbr_queue_engine *e, uint64_t peer)
{
    struct peer *p = peer ? find_peer(e, peer) : &e->local, *other;

    if (!p)
        p = add_peer(e, peer);
    if (!p)
        return -ENOMEM;
    e->watchers += !p->watches;
    p->watches = true;
    DL_FOREACH(e->ahead, other)
        if (other != p)
            recall(e, other);
    if (e->deals) {
        p->told = false;
        notify_share(e, p);
        return 0;
    }
    e->told_ready = is_ready(e);
    if (e->told_ready)
        e->ops->ready(e->user, peer, true);
    return 0;
}

void fbr_queue_engine_unwatch(struct fbr_queue_engine *e)
{
    e->watchers -= e->local.watches;
    e->local.watches = false;
}

static void deal_to(struct fbr_queue_engine *e, struct peer *p)
{
    set_in_line(e, p, false);
    set_ahead(e, p, false);
    p->told = p->watches && e->told_ready;
    place(e, p);
}

void fbr_queue_engine_deal(struct fbr_queue_engine *e)
{
    struct peer *p, *tmp;

    if (e->deals)
        return;
    e->deals = true;
    e->local.reserved = 0;
    deal_to(e, &e->local);
    HASH_ITER(hh, e->peers, p, tmp)
        deal_to(e, p);
    dispatch(e);
}

/* ---- finished messages ---- */

int fbr_queue_engine_done(struct fbr_queue_engine *e, uint64_t peer)
{
    struct peer *p = peer ? find_peer(e, peer) : &e->local;

    if (!e->unfinished)
        return -ERANGE;
    e->unfinished--;
    if (p && p->open) { /* otherwise it finishes a message that another consumer took */
        p->open--;
        e->open--;
    }
    return 0;
}

int fbr_queue_engine_joined(const struct fbr_queue_engine *e)
{
    if (!e->unfinished)
        return 0;
    return total(e) || e->open ? -EAGAIN : -EOWNERDEAD;
}

/* ---- consumers in the owner's process ---- */

static int may_get_share(struct fbr_queue_engine *e)
{
    if (!e->local.in_line) {
        take_turn(e, &e->local);
        dispatch(e);
    }
    if (e->local.dealt.len)
        return 0;
    return e->shut && !total(e) ? -EPIPE : -EAGAIN;
}

/* Whether a thread without a reserved message may have the next message. */
static int may_get(struct fbr_queue_engine *e)
{
    note_reader(e, &e->local);
    if (e->deals)
        return may_get_share(e);
    if (!total(e) && !e->awaits)
        return e->shut ? -EPIPE : -EAGAIN;
    if (e->ahead)
        recall_ahead(e);
    if (e->shut && !e->queue.len)
        recall_all(e);
    if (e->recalls || e->awaits)
        return -EINPROGRESS;
    return e->queue.len ? 0 : -EAGAIN;
}

int fbr_queue_engine_look(struct fbr_queue_engine *e)
{
    return e->local.reserved ? 0 : may_get(e);
}

int fbr_queue_engine_get(struct fbr_queue_engine *e, void **data, size_t *len)
{
    struct item item;

    if (!e->local.reserved) {
        int rc = may_get(e);

        if (rc < 0)
            return rc;
    } else {
        e->local.reserved--;
        place(e, &e->local);
    }
    item = ring_pop(e->deals ? &e->local.dealt : &e->queue);
    e->dealt -= e->deals;
    e->local.open++;
    e->open++;
    uncount(e, &item);
    *data = item.data;
    *len = item.len;
    if (freed(e) || (e->shut && !total(e))) /* others wait for the end */
        dispatch(e);
    else
        notify_watchers(e);
    return 0;
}

void fbr_queue_engine_wait(struct fbr_queue_engine *e)
{
    e->local.hungry++;
    note_reader(e, &e->local);
    place(e, &e->local);
    dispatch(e);
    if (e->done)
        e->ops->wake_local(e->user, true);
}

void fbr_queue_engine_unwait(struct fbr_queue_engine *e)
{
    struct peer *p = &e->local;

    if (!p->hungry)
        return;
    p->hungry--;
    if (p->reserved > p->hungry)
        p->reserved = p->hungry;
    place(e, p);
    if (p->reserved || p->dealt.len) /* the thread that was woken may be the thread that gives up */
        e->ops->wake_local(e->user, false);
    dispatch(e);
}

/* ---- the engine ---- */

void fbr_queue_engine_settle(struct fbr_queue_engine *e)
{
    recall_ahead(e);
}

void fbr_queue_engine_stats(const struct fbr_queue_engine *e, struct fbr_queue_engine_stats *stats)
{
    const struct peer *p;

    stats->waiting = e->queue.len + e->dealt;
    stats->assigned = e->held;
    stats->late = e->late_held;
    stats->ahead = 0;
    DL_FOREACH(e->ahead, p)
        stats->ahead += has(p) - p->hungry;
    stats->recalls = e->recalls;
    stats->parked = e->parked;
    stats->bytes = e->bytes;
    stats->shut = e->shut;
}

struct fbr_queue_engine *fbr_queue_engine_open(const struct fbr_queue_engine_ops *ops, void *user,
                                               const struct fbr_queue_engine_config *config)
{
    struct fbr_queue_engine *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->ops = ops;
    e->user = user;
    if (config) {
        e->max_messages = config->max_messages;
        e->max_bytes = config->max_bytes;
        e->account = config->held;
    }
    return e;
}

void fbr_queue_engine_close(struct fbr_queue_engine *e)
{
    struct peer *p, *tmp;

    if (!e)
        return;
    while (e->parks)
        drop_park(e, e->parks);
    HASH_ITER(hh, e->peers, p, tmp) {
        HASH_DEL(e->peers, p);
        drop_ring(e, &p->held);
        drop_ring(e, &p->dealt);
        free(p);
    }
    drop_ring(e, &e->local.dealt);
    drop_ring(e, &e->queue);
    free(e);
}
