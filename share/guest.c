/* guest.c - a channel as it is used from another process than its own; see channel.h.
 *
 * Putting: a lone message is sent at once. When another one follows quickly the host is asked for an answer, and
 * what is
 * put until the answer comes is collected and sent together; so a stream is fast, and a conversation has no answers in
 * it. What the host has not answered is bounded (WINDOW).
 *
 * Getting: some messages come ahead of their gets, as many as are used up in about a millisecond. What the program took
 * and how many of its threads wait is told to the host with the next record to it, or a little later by a tick: with
 * one
 * consumer and one message at a time a get costs no record of its own.
 *
 * The handles of a process on a channel share one guest, because for the host a process is one peer. A guest that goes
 * waits until the host has let go of it: a new one for the same channel must not be given what was meant for the old.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "share/channel.h"
#include "share/share_priv.h"

#define FLUSH_BYTES (64 * 1024)
#define WINDOW (4u << 20) /* bytes that are not acknowledged */
#define UNDER_WAY_MAX 64  /* batches */
#define UNASKED_MAX 16    /* batches in a row for which no answer is asked */
#define QUICK_NS 20000    /* a put sooner than that after the last one is part of a stream */
#define WANT_MAX 4096
#define WANT_BYTES (4u << 20)
#define FAST_NS 1000000 /* an ask sooner than that after the last one: prefetch more */
#define CLOSE_MS 1000

struct message {
    struct message *next;
    uint64_t seq;
    size_t len;
    void *data;
};

/* A thread that waits for the answer to its batch, in a bounded queue. */
struct put_wait {
    struct put_wait *next;
    uint64_t batch;
    bool done;
    int code;
};

struct guest_lane {
    struct fbr_guest *guest;
    uint32_t number;
    int putters;        /* handles that put here; for a pipe, that are this end */
    bool leaving, left; /* the last of them goes; the host has let go of it */
    /* Putting. */
    struct fbr_buf out; /* messages that are not sent */
    uint32_t out_count;
    uint64_t sent, asked, acked; /* batches; the last one that will be answered */
    size_t unacked, unasked; /* bytes that are not acknowledged; those behind the last answer that was asked for */
    size_t sizes[UNDER_WAY_MAX]; /* of batches under way, by number */
    uint64_t sent_ns;
    struct put_wait *waits;
    int put_code; /* why no more can be put */
    pthread_cond_t room;
    /* Getting. */
    struct message *first, **last;
    size_t n_in;              /* messages that are here */
    uint64_t last_seq, taken; /* delivered; taken by the program, or handed */
    uint32_t hungry, looking; /* threads that wait; those of them that will take nothing */
    uint32_t handed; /* the first of the messages here: they count as taken, as somebody woke up for them */
    uint32_t want;
    struct {
        uint64_t taken;
        uint32_t hungry, want;
    } told; /* what the host knows */
    uint64_t asked_ns, mean_len;
    bool ahead; /* it gives us messages before we say that we are hungry */
    uint64_t probe, answered;
    bool eof;
    int get_code; /* why no more can be had */
    pthread_cond_t arrived;
    /* Asking. */
    bool have_size;
    uint64_t size;
};

struct guest_key {
    uint64_t owner, object;
    uint8_t secret[FBR_KEY_SIZE]; /* who has a wrong one joins nobody who had the right one */
};

static struct guest_key key_of(const struct fbr_address *a)
{
    struct guest_key key = {.owner = a->owner, .object = a->object};

    memcpy(key.secret, a->key, sizeof(key.secret));
    return key;
}

enum guest_state { OPENING, OPEN, CLOSING };

struct fbr_guest {
    struct guest_key key;
    struct fbr_share *share;
    enum guest_state state; /* these under share's lock */
    int users;
    bool listed;
    UT_hash_handle hh;
    struct fbr_proxy *proxy;
    int n_lanes;
    bool pipe, bounded;
    size_t longest;       /* message */
    pthread_mutex_t lock; /* the lanes, and: */
    bool gone;
    bool later; /* a tick will come */
    struct guest_lane lanes[2];
};

/* ---- What the host should know. All under the lock ---- */

static int post(struct guest_lane *l, enum fbr_channel_op op, const void *body, size_t len, bool more)
{
    const uint32_t head[2] = {op, l->number};
    const struct iovec iov[2] = {{(void *)(uintptr_t)head, sizeof(head)}, {(void *)(uintptr_t)body, len}};

    return fbr_proxy_post(l->guest->proxy, iov, len ? 2 : 1, more);
}

/* Threads that wait and for which nothing is here. */
static uint32_t still_hungry(const struct guest_lane *l)
{
    return l->hungry - l->handed;
}

/* Says where we are. probe: the host answers when it has given us what it can. */
static int ask(struct guest_lane *l, uint64_t probe, bool more)
{
    uint64_t now = fbr_now_ns();
    uint32_t room = l->mean_len ? (uint32_t)(WANT_BYTES / (l->mean_len + 1)) : WANT_MAX;
    struct {
        uint64_t taken;
        uint32_t hungry, want;
        uint64_t probe;
    } a;

    if (now - l->asked_ns < FAST_NS)
        l->want = l->want * 2 < WANT_MAX ? l->want * 2 : WANT_MAX;
    else if (l->want > 1)
        l->want /= 2;
    if (l->want > room)
        l->want = room ? room : 1;
    l->asked_ns = now;
    a.taken = l->told.taken = l->taken;
    a.hungry = l->told.hungry = still_hungry(l);
    a.want = l->told.want = l->want > a.hungry ? l->want : a.hungry;
    a.probe = probe;
    return post(l, FBR_CH_ASK, &a, sizeof(a), more);
}

static bool is_news(const struct guest_lane *l)
{
    return l->taken != l->told.taken || still_hungry(l) != l->told.hungry;
}

static void tell_news(struct fbr_guest *g, bool more)
{
    for (int i = 0; i < g->n_lanes; i++)
        if (is_news(&g->lanes[i]))
            ask(&g->lanes[i], 0, more);
}

/* A record, behind what else there is to say. */
static int tell_host(struct guest_lane *l, enum fbr_channel_op op, const void *body, size_t len)
{
    tell_news(l->guest, true);
    return post(l, op, body, len, false);
}

/* News that may wait for the next record. */
static void tell_soon(struct guest_lane *l)
{
    struct fbr_guest *g = l->guest;

    if (!is_news(l))
        return;
    if (!g->later)
        g->later = fbr_proxy_later(g->proxy);
    if (!g->later)
        ask(l, 0, false);
}

static void on_tick(void *user)
{
    struct fbr_guest *g = user;

    pthread_mutex_lock(&g->lock);
    g->later = false;
    tell_news(g, false);
    pthread_mutex_unlock(&g->lock);
}

/* ---- Records of the host, on the remote's thread ---- */

static int flush_out(struct guest_lane *l, bool answer);

static void answer_wait(struct guest_lane *l, uint64_t batch, int code)
{
    struct put_wait **at = &l->waits, *w;

    while (*at && (*at)->batch != batch)
        at = &(*at)->next;
    w = *at;
    if (!w)
        return;
    *at = w->next;
    w->done = true;
    w->code = code;
}

static void on_ack(struct guest_lane *l, struct fbr_cur *c)
{
    uint64_t batch = fbr_get_u64(c);
    int code = (int32_t)fbr_get_u32(c);

    if (!fbr_cur_ok(c) || batch > l->sent || code > 0)
        return;
    if (l->guest->bounded) {
        answer_wait(l, batch, code);
    } else if (batch > l->acked) {
        while (l->acked < batch)
            l->unacked -= l->sizes[++l->acked % UNDER_WAY_MAX];
        if (code && !l->put_code)
            l->put_code = code;
        if (!l->put_code && l->out_count && l->asked <= l->acked)
            flush_out(l, true); /* more are likely to follow */
    }
    pthread_cond_broadcast(&l->room);
}

/* False: no memory. */
static bool keep_message(struct guest_lane *l, uint64_t seq, const void *bytes, size_t len)
{
    struct message *m = malloc(sizeof(*m));
    void *data = malloc(len ? len : 1);

    if (!m || !data) {
        free(m);
        free(data);
        return false;
    }
    if (len)
        memcpy(data, bytes, len);
    *m = (struct message){.seq = seq, .len = len, .data = data};
    *l->last = m;
    l->last = &m->next;
    l->n_in++;
    return true;
}

static void on_deliver(struct guest_lane *l, struct fbr_cur *c)
{
    uint64_t seq = fbr_get_u64(c);
    size_t len = fbr_cur_left(c);

    if (!fbr_cur_ok(c) || seq != l->last_seq + 1 || l->get_code)
        return;
    if (!keep_message(l, seq, c->at, len)) { /* what we do not take goes to others when we end */
        l->get_code = -ENOMEM;
        pthread_cond_broadcast(&l->arrived);
        return;
    }
    l->last_seq = seq;
    l->mean_len += (len >> 3) - (l->mean_len >> 3);
    if (!l->hungry)
        return;
    if (l->n_in == 1)
        fbr_proxy_calm(l->guest->proxy);
    pthread_cond_signal(&l->arrived);
}

/* Drops what is here but the first n. */
static void drop_in(struct guest_lane *l, size_t n)
{
    struct message **at = &l->first, *m;

    l->n_in = n < l->n_in ? n : l->n_in;
    for (; n && *at; n--)
        at = &(*at)->next;
    while ((m = *at)) {
        *at = m->next;
        free(m->data);
        free(m);
    }
    l->last = at;
}

/* Somebody else waits. What is here for our own threads that wait is theirs: it was given to them before, and
 * another one
 * may have got something newer meanwhile. */
static void on_recall(struct guest_lane *l)
{
    size_t ours = l->hungry - l->looking < l->n_in ? l->hungry - l->looking : l->n_in;
    uint64_t from = l->last_seq + 1;
    struct message *m = l->first;

    for (size_t i = 0; i < ours; i++)
        m = m->next;
    if (m)
        from = m->seq;
    if (l->taken < from - 1)
        l->taken = from - 1;
    l->handed = (uint32_t)ours;
    drop_in(l, ours); /* the numbers of the others are not used again */
    l->want = 1;
    l->ahead = false;
    post(l, FBR_CH_RETURNED, &from, sizeof(from), true);
    ask(l, 0, false);
}

static void on_empty(struct guest_lane *l, struct fbr_cur *c)
{
    uint64_t probe = fbr_get_u64(c);

    if (!fbr_cur_ok(c))
        return;
    l->answered = probe;
    pthread_cond_broadcast(&l->arrived);
}

static void on_op(struct guest_lane *l, uint32_t op, struct fbr_cur *c)
{
    switch (op) {
    case FBR_CH_ACK:
        on_ack(l, c);
        break;
    case FBR_CH_DELIVER:
    case FBR_CH_AHEAD:
        l->ahead = op == FBR_CH_AHEAD;
        on_deliver(l, c);
        break;
    case FBR_CH_RECALL:
        on_recall(l);
        break;
    case FBR_CH_EMPTY:
        on_empty(l, c);
        break;
    case FBR_CH_EOF:
        l->eof = true;
        l->told.hungry = 0;
        pthread_cond_broadcast(&l->arrived);
        break;
    case FBR_CH_SIZE_IS:
        l->size = fbr_get_u64(c);
        l->have_size = true;
        pthread_cond_broadcast(&l->arrived);
        break;
    case FBR_CH_LEFT:
        l->left = true;
        pthread_cond_broadcast(&l->room);
        break;
    default:
        break;
    }
}

static void on_host_record(void *user, const void *record, size_t len)
{
    struct fbr_guest *g = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c);

    if (!fbr_cur_ok(&c) || lane >= (uint32_t)g->n_lanes)
        return;
    pthread_mutex_lock(&g->lock);
    on_op(&g->lanes[lane], op, &c);
    pthread_mutex_unlock(&g->lock);
}

/* Under share's lock: whoever connects from now on does not join this one. */
static void unlist(struct fbr_guest *g)
{
    if (g->listed)
        HASH_DEL(g->share->guests, g);
    g->listed = false;
    pthread_cond_broadcast(&g->share->idle);
}

static void on_host_gone(void *user)
{
    struct fbr_guest *g = user;

    pthread_mutex_lock(&g->share->lock);
    unlist(g);
    pthread_mutex_unlock(&g->share->lock);
    pthread_mutex_lock(&g->lock);
    g->gone = true;
    for (int i = 0; i < g->n_lanes; i++) {
        pthread_cond_broadcast(&g->lanes[i].arrived);
        pthread_cond_broadcast(&g->lanes[i].room);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- Putting ---- */

/* Sends what was collected, or the one message (data, len). Under the lock. */
static int post_puts(struct guest_lane *l, uint32_t count, const void *data, size_t len, bool lone, bool answer)
{
    static const uint8_t zeros[8];
    struct {
        uint32_t op, lane;
        uint64_t batch;
        uint32_t count, flags;
        uint64_t len;
    } h = {FBR_CH_PUTS, l->number, l->sent + 1, count, answer ? FBR_CH_ANSWER : 0, len};
    const struct iovec iov[3] = {{&h, lone ? sizeof(h) : sizeof(h) - 8},
                                 {(void *)(uintptr_t)data, len},
                                 {(void *)(uintptr_t)zeros, lone ? (8 - len % 8) % 8 : 0}};
    int rc;

    tell_news(l->guest, true);
    rc = fbr_proxy_post(l->guest->proxy, iov, 3, false);
    if (rc < 0) {
        l->put_code = rc;
        return rc;
    }
    l->sent++;
    l->sizes[l->sent % UNDER_WAY_MAX] = len;
    l->unacked += len;
    l->unasked += len;
    if (answer) {
        l->asked = l->sent;
        l->unasked = 0;
    }
    return 0;
}

/* Whether the host shall answer the next batch, which has so many bytes. */
static bool wants_answer(struct guest_lane *l, size_t len)
{
    uint64_t now = fbr_now_ns(), before = l->sent_ns;

    l->sent_ns = now;
    if (l->asked > l->acked) /* an answer is under way */
        return l->unasked + len > WINDOW / 4 || l->sent - l->asked >= UNASKED_MAX;
    return now - before < QUICK_NS || l->unasked + len > WINDOW / 4 || l->sent - l->acked >= UNASKED_MAX;
}

static int flush_out(struct guest_lane *l, bool answer)
{
    int rc;

    if (!l->out_count)
        return 0;
    answer = wants_answer(l, l->out.len) || answer;
    rc = post_puts(l, l->out_count, l->out.data, l->out.len, false, answer);
    l->out_count = 0;
    if (l->out.cap > 4 * FLUSH_BYTES)
        fbr_buf_fini(&l->out);
    else
        fbr_buf_clear(&l->out);
    return rc;
}

static int collect(struct guest_lane *l, const void *data, size_t len)
{
    size_t pad = (8 - len % 8) % 8;
    uint8_t *at = fbr_buf_reserve(&l->out, 8 + len + pad);

    if (!at) {
        l->out.failed = false;
        return -ENOMEM;
    }
    fbr_put_u64(&l->out, len);
    fbr_put(&l->out, data, len);
    fbr_put(&l->out, "\0\0\0\0\0\0\0", pad);
    l->out_count++;
    return 0;
}

/* Why nothing can be put, or 0. Under the lock. */
static int put_fault(const struct guest_lane *l)
{
    return l->guest->gone ? -EPIPE : l->put_code;
}

/* Bounded: the put is done when the host has accepted it. Under the lock. */
static int put_and_wait(struct guest_lane *l, const void *data, size_t len, uint64_t deadline)
{
    struct fbr_guest *g = l->guest;
    struct put_wait w = {.batch = l->sent + 1, .next = l->waits};
    int rc = put_fault(l);
    bool withdrawn = false;

    if (rc == 0)
        rc = post_puts(l, 1, data, len, true, true);
    if (rc < 0)
        return rc;
    l->waits = &w;
    while (!w.done && !g->gone)
        if (fbr_cond_wait(&l->room, &g->lock, withdrawn ? UINT64_MAX : deadline) == -ETIMEDOUT && !w.done) {
            withdrawn = true; /* it answers at once, or is dead */
            post(l, FBR_CH_CANCEL, &w.batch, sizeof(w.batch), false);
        }
    if (!w.done)
        answer_wait(l, w.batch, -EPIPE);
    return w.code;
}

/* Under the lock: all that was put is on its way, and its answer will come. */
static int push_out(struct guest_lane *l)
{
    int rc = put_fault(l);

    if (rc == 0 && l->out_count)
        rc = flush_out(l, true);
    if (rc == 0 && l->asked < l->sent)
        rc = post_puts(l, 0, NULL, 0, false, true);
    return rc;
}

/* Waits until what is not acknowledged is little enough for one message more. Under the lock. */
static int wait_room(struct guest_lane *l, size_t len, uint64_t deadline)
{
    int rc = 0;

    while (rc == 0 && !put_fault(l) && l->unacked &&
           (l->unacked + l->out.len + len > WINDOW || l->sent - l->acked >= UNDER_WAY_MAX - 2)) {
        push_out(l); /* so that an answer comes */
        rc = fbr_cond_wait(&l->room, &l->guest->lock, deadline);
    }
    return put_fault(l) ? put_fault(l) : rc;
}

/* Under the lock. */
static int put(struct guest_lane *l, const void *data, size_t len, uint64_t deadline)
{
    size_t most = l->guest->longest / 2 < FLUSH_BYTES ? l->guest->longest / 2 : FLUSH_BYTES;
    int rc = wait_room(l, len, deadline);

    if (rc == 0 && l->out.len + len > most)
        rc = flush_out(l, false);
    if (rc == 0 && len > most)
        return post_puts(l, 1, data, len, true, wants_answer(l, len));
    if (rc == 0)
        rc = collect(l, data, len);
    if (rc == 0 && (l->asked <= l->acked || l->out_count == FBR_CH_BATCH_MAX))
        rc = flush_out(l, false);
    return rc;
}

int fbr_guest_put(struct fbr_guest *g, int lane, const void *data, size_t len, int timeout_ms)
{
    struct guest_lane *l = &g->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc;

    if (len > g->longest)
        return -EMSGSIZE;
    pthread_mutex_lock(&g->lock);
    rc = g->bounded ? put_and_wait(l, data, len, deadline) : put(l, data, len, deadline);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

static int flush_lane(struct guest_lane *l, uint64_t deadline)
{
    uint64_t upto;
    int rc = 0;

    if (l->guest->bounded)
        return 0;
    if (l->out_count || l->sent != l->acked)
        rc = push_out(l);
    upto = l->sent;
    while (rc == 0 && l->acked < upto && !l->guest->gone)
        rc = fbr_cond_wait(&l->room, &l->guest->lock, deadline);
    if (l->acked < upto && l->guest->gone)
        rc = -EPIPE;
    return l->put_code ? l->put_code : rc;
}

int fbr_guest_flush(struct fbr_guest *g, int lane, int timeout_ms)
{
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = flush_lane(&g->lanes[lane], fbr_deadline(timeout_ms));
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- Getting ---- */

/* Takes a message that is here, and lets the host know in time. Under the lock. */
static void take(struct guest_lane *l, struct fiber_bytes *out)
{
    struct message *m = l->first;

    l->first = m->next;
    if (!l->first)
        l->last = &l->first;
    l->n_in--;
    if (l->handed)
        l->handed--;
    else
        l->taken = m->seq;
    *out = (struct fiber_bytes){m->data, m->len};
    free(m);
    if (l->n_in && l->n_in <= l->want / 2 && l->taken - l->told.taken >= (l->want + 1) / 2)
        ask(l, 0, false); /* it should send more before we run out */
    else
        tell_soon(l);
}

/* Nothing is here, and somebody wants something. A host that gives ahead, and as far as it knows may do so, will do so
 * without being told. */
static int tell_hungry(struct guest_lane *l, uint64_t probe)
{
    if (!probe && l->ahead && l->last_seq - l->told.taken < l->told.want && !fbr_proxy_owes(l->guest->proxy)) {
        tell_soon(l);
        return 0;
    }
    return ask(l, probe, false);
}

/* Waits for a message, the end, or the time. Under the lock. */
static int wait_in(struct guest_lane *l, int timeout_ms, bool looks)
{
    struct fbr_guest *g = l->guest;
    uint64_t deadline = timeout_ms == 0 ? UINT64_MAX : fbr_deadline(timeout_ms);
    uint64_t probe = timeout_ms == 0 ? ++l->probe : 0;
    int rc = 0;

    if (l->first)
        return 0;
    if (l->eof || g->gone || l->get_code)
        return l->get_code ? l->get_code : -EPIPE;
    l->hungry++;
    l->looking += looks;
    rc = tell_hungry(l, probe);
    while (rc == 0 && !l->first && !l->eof && !g->gone && !l->get_code && !(probe && l->answered >= probe))
        rc = fbr_cond_wait(&l->arrived, &g->lock, deadline);
    l->hungry--;
    l->looking -= looks;
    if (l->first)
        return 0;
    if (l->get_code)
        return l->get_code;
    if (l->eof || g->gone)
        return -EPIPE;
    tell_soon(l); /* no longer hungry */
    return rc < 0 ? rc : -ETIMEDOUT;
}

int fbr_guest_get(struct fbr_guest *g, int lane, struct fiber_bytes *out, int timeout_ms)
{
    struct guest_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = wait_in(l, timeout_ms, false);
    if (rc == 0)
        take(l, out);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int fbr_guest_look(struct fbr_guest *g, int lane, int timeout_ms)
{
    struct guest_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = wait_in(l, timeout_ms, true);
    if (rc == 0) {
        tell_soon(l);
        pthread_cond_signal(&l->arrived); /* it may have been meant for a thread that gets */
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- Asking ---- */

/* How much is there; and the host has done all that it was told before. Under the lock. */
static int ask_size(struct guest_lane *l, uint64_t deadline)
{
    int rc;

    l->have_size = false;
    rc = tell_host(l, FBR_CH_SIZE, NULL, 0);
    while (rc == 0 && !l->have_size && !l->guest->gone)
        rc = fbr_cond_wait(&l->arrived, &l->guest->lock, deadline);
    return rc == 0 && !l->have_size ? -EPIPE : rc;
}

int fbr_guest_size(struct fbr_guest *g, int lane, size_t *n)
{
    struct guest_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = flush_out(l, false);
    if (rc == 0)
        rc = ask_size(l, UINT64_MAX);
    *n = l->size;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* Waits until the host has shut it: whoever is told of it afterwards finds it so. */
int fbr_guest_shut(struct fbr_guest *g, int lane)
{
    struct guest_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = flush_lane(l, UINT64_MAX);
    if (rc == 0)
        rc = tell_host(l, FBR_CH_SHUT, NULL, 0);
    if (rc == 0)
        rc = ask_size(l, UINT64_MAX);
    if (rc == 0 && !l->put_code)
        l->put_code = -EPIPE;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- Life ---- */

/* At the end of the process: what it put arrives, and what it took is not given to another one. */
static void on_flush(void *user)
{
    struct fbr_guest *g = user;
    uint64_t deadline = fbr_deadline(fbr_proxy_exit_ms(g->proxy));

    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n_lanes; i++) {
        struct guest_lane *l = &g->lanes[i];

        if (g->pipe)
            flush_out(l, false); /* that the host has it is enough: nothing of a pipe is lost there */
        else
            flush_lane(l, deadline);
        if (l->taken || l->sent != l->acked)
            ask_size(l, deadline);
    }
    pthread_mutex_unlock(&g->lock);
}

static const struct fbr_proxy_ops proxy_ops = {
    .on_record = on_host_record, .on_gone = on_host_gone, .flush = on_flush, .tick = on_tick};

static void begin_lane(struct fbr_guest *g, int number)
{
    struct guest_lane *l = &g->lanes[number];

    l->guest = g;
    l->number = (uint32_t)number;
    l->last = &l->first;
    l->want = 1;
    fbr_cond_init(&l->arrived);
    fbr_cond_init(&l->room);
}

static void free_guest(struct fbr_guest *g)
{
    for (int i = 0; i < g->n_lanes; i++) {
        struct guest_lane *l = &g->lanes[i];

        drop_in(l, 0);
        fbr_buf_fini(&l->out);
        pthread_cond_destroy(&l->arrived);
        pthread_cond_destroy(&l->room);
    }
    pthread_mutex_destroy(&g->lock);
    fbr_wipe(&g->key, sizeof(g->key));
    free(g);
}

static struct fbr_guest *new_guest(struct fbr_share *s, const struct fbr_address *a, int lanes)
{
    struct fbr_guest *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->key = key_of(a);
    g->share = s;
    g->users = 1;
    g->n_lanes = lanes;
    g->pipe = a->kind == FBR_KIND_PIPE;
    g->bounded = a->flags & FBR_CH_BOUNDED;
    g->longest = fbr_config_size(s->rt->config, "max_message") - FBR_CH_ROOM;
    pthread_mutex_init(&g->lock, NULL);
    for (int i = 0; i < lanes; i++)
        begin_lane(g, i);
    return g;
}

/* The guest that this process has on the channel, one user more; or a new one that is to be connected (*made). */
static struct fbr_guest *find_or_make(struct fbr_share *s, const struct fbr_address *a, int lanes, bool *made)
{
    struct guest_key key = key_of(a);
    struct fbr_guest *g;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        HASH_FIND(hh, s->guests, &key, sizeof(key), g);
        if (!g || g->state == OPEN)
            break;
        pthread_cond_wait(&s->idle, &s->lock);
    }
    *made = !g;
    if (g) {
        g->users++;
    } else if ((g = new_guest(s, a, lanes))) {
        HASH_ADD(hh, s->guests, key, sizeof(g->key), g);
        g->listed = g->hh.tbl != NULL;
        if (!g->listed) {
            free_guest(g);
            g = NULL;
        }
    }
    pthread_mutex_unlock(&s->lock);
    fbr_wipe(&key, sizeof(key));
    return g;
}

static int connect_guest(struct fbr_guest *g, const struct fbr_address *a)
{
    struct fbr_share *s = g->share;
    int rc = fbr_proxy_open(&g->proxy, a, &proxy_ops, g);

    pthread_mutex_lock(&s->lock);
    if (rc < 0)
        unlist(g);
    else
        g->state = OPEN;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int fbr_guest_open(struct fbr_guest **out, const struct fbr_address *a, int lanes, int lane)
{
    struct fbr_share *s = fbr_share();
    struct fbr_guest *g;
    bool made;
    int rc = 0;

    if (!s)
        return fbr_kept();
    g = find_or_make(s, a, lanes, &made);
    if (!g)
        return fbr_keep(-ENOMEM, "channel: out of memory");
    if (made)
        rc = connect_guest(g, a);
    if (rc < 0) {
        free_guest(g); /* nobody joined it: it never was open */
        return rc;
    }
    pthread_mutex_lock(&g->lock);
    while (g->lanes[lane].leaving)
        fbr_cond_wait(&g->lanes[lane].room, &g->lock, UINT64_MAX);
    if (g->lanes[lane].putters++ == 0 && g->pipe)
        tell_host(&g->lanes[lane], FBR_CH_ATTACH, NULL, 0);
    pthread_mutex_unlock(&g->lock);
    *out = g;
    return 0;
}

/* Under the lock: the last handle of this end goes, and the host has heard of it, and before of all that was put, or is
 * not there. */
static void leave(struct guest_lane *l, struct guest_lane *in)
{
    struct fbr_guest *g = l->guest;
    uint64_t deadline;
    int rc;

    if (!g->pipe)
        flush_lane(l, fbr_deadline(CLOSE_MS));
    if (!put_fault(l))
        flush_out(l, false);
    deadline = fbr_deadline(CLOSE_MS);
    l->leaving = true;
    l->left = false;
    rc = g->gone ? -EPIPE : tell_host(l, FBR_CH_LEAVE, NULL, 0);
    while (rc == 0 && !l->left && !g->gone)
        rc = fbr_cond_wait(&l->room, &g->lock, deadline);
    drop_in(in, 0); /* and begin again, should somebody come back */
    in->last_seq = in->taken = in->handed = 0;
    memset(&in->told, 0, sizeof(in->told));
    in->want = 1;
    in->ahead = in->eof = l->leaving = false;
    pthread_cond_broadcast(&l->room);
}

void fbr_guest_close(struct fbr_guest *g, int lane)
{
    struct guest_lane *l = &g->lanes[lane];
    struct fbr_share *s = g->share;
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --g->users == 0;
    if (last)
        g->state = CLOSING;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&g->lock);
    if (g->pipe ? --l->putters == 0 : last)
        leave(l, &g->lanes[g->pipe ? !lane : lane]);
    else
        flush_lane(l, fbr_deadline(CLOSE_MS));
    pthread_mutex_unlock(&g->lock);
    if (!last)
        return;
    fbr_proxy_close(g->proxy);
    pthread_mutex_lock(&s->lock);
    unlist(g);
    pthread_mutex_unlock(&s->lock);
    free_guest(g);
}
