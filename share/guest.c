/* guest.c - a channel as it is used from another process than its own; see channel.h.
 *
 * Putting: messages are collected and sent together, the first at once, the next ones when the host has acknowledged what
 * is under way, or when they are many. So a lone message is quick and a stream of them is fast, and what is not
 * acknowledged is bounded (WINDOW). Getting: some messages come ahead of their gets, as many as are used up in
 * about a millisecond; what the program took is told to the host so that a death does not deliver it again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share/channel.h"

#define FLUSH_BYTES (64 * 1024)
#define WINDOW (4u << 20)       /* bytes that are not acknowledged */
#define UNDER_WAY_MAX 64        /* batches */
#define WANT_MAX 4096
#define WANT_BYTES (4u << 20)
#define FAST_NS 1000000         /* an ask sooner than that after the last one: prefetch more */
#define CLOSE_MS 1000

struct message {
    struct message *next;
    uint64_t seq;
    size_t len;
    void *data;
};

struct guest_lane {
    struct fbr_guest *guest;
    uint32_t number;
    /* Putting. */
    struct fbr_buf out; /* messages that are not sent */
    uint32_t out_count;
    uint64_t sent, acked;   /* batches */
    size_t unacked;         /* bytes, of `sizes` */
    size_t sizes[UNDER_WAY_MAX]; /* of batches under way, by number */
    int put_code;           /* why no more can be put */
    /* Getting. */
    struct message *first, **last;
    size_t n_in;            /* messages that are here */
    uint64_t last_seq, taken, told; /* delivered; taken by the program; told to the host */
    uint32_t hungry, want;
    uint64_t asked_ns, mean_len;
    uint64_t probe, answered;
    bool eof;
    /* Asking. */
    bool have_size;
    uint64_t size;
};

struct fbr_guest {
    struct fbr_proxy *proxy;
    int end, n_lanes;
    bool bounded, gone;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct guest_lane lanes[2];
};

static int tell(struct guest_lane *l, enum fbr_channel_op op, const void *body, size_t len)
{
    const uint32_t head[2] = {op, l->number};
    const struct iovec iov[2] = {{(void *)(uintptr_t)head, sizeof(head)}, {(void *)(uintptr_t)body, len}};

    return fbr_proxy_send(l->guest->proxy, iov, len ? 2 : 1, -1);
}

/* ---- Records of the host, on the remote's thread ---- */

static int flush_out(struct guest_lane *l);

static void on_ack(struct guest_lane *l, struct fbr_cur *c)
{
    uint64_t batch = fbr_get_u64(c);
    int code = (int32_t)fbr_get_u32(c);

    if (!fbr_cur_ok(c) || batch <= l->acked || batch > l->sent)
        return;
    l->acked = batch; /* the host answers in order: parked batches are served first come, first served */
    l->unacked -= l->sizes[batch % UNDER_WAY_MAX];
    if (code && code != -ETIMEDOUT)
        l->put_code = code;
    else if (code)
        l->put_code = l->put_code ? l->put_code : code; /* for the one that waits; it resets it */
    if (!l->put_code)
        flush_out(l);
    pthread_cond_broadcast(&l->guest->changed);
}

static void on_deliver(struct guest_lane *l, struct fbr_cur *c)
{
    uint64_t seq = fbr_get_u64(c);
    size_t len = fbr_cur_left(c);
    struct message *m;

    if (!fbr_cur_ok(c) || seq != l->last_seq + 1)
        return;
    m = malloc(sizeof(*m));
    if (m)
        m->data = malloc(len ? len : 1);
    if (!m || !m->data) { /* nothing is lost: what we do not take goes to others when we end */
        free(m);
        l->put_code = -ENOMEM;
        return;
    }
    m->next = NULL;
    m->seq = l->last_seq = seq;
    m->len = len;
    if (len)
        memcpy(m->data, c->at, len);
    l->mean_len += (len >> 3) - (l->mean_len >> 3);
    *l->last = m;
    l->last = &m->next;
    l->n_in++;
    if (l->hungry)
        pthread_cond_broadcast(&l->guest->changed);
}

static void drop_in(struct guest_lane *l)
{
    while (l->first) {
        struct message *m = l->first;

        l->first = m->next;
        free(m->data);
        free(m);
    }
    l->last = &l->first;
    l->n_in = 0;
}

static void on_recall(struct guest_lane *l)
{
    uint64_t from = l->first ? l->first->seq : l->last_seq + 1;

    drop_in(l);
    l->last_seq = from - 1;
    l->want = 1;
    tell(l, FBR_CH_RETURNED, &from, sizeof(from));
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_guest *g = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c);
    struct guest_lane *l;

    if (!fbr_cur_ok(&c) || lane >= (uint32_t)g->n_lanes)
        return;
    l = &g->lanes[lane];
    pthread_mutex_lock(&g->lock);
    switch (op) {
    case FBR_CH_ACK:
        on_ack(l, &c);
        break;
    case FBR_CH_DELIVER:
        on_deliver(l, &c);
        break;
    case FBR_CH_RECALL:
        on_recall(l);
        break;
    case FBR_CH_EMPTY:
        l->answered = fbr_get_u64(&c);
        pthread_cond_broadcast(&g->changed);
        break;
    case FBR_CH_EOF:
        l->eof = true;
        pthread_cond_broadcast(&g->changed);
        break;
    case FBR_CH_SIZE_IS:
        l->size = fbr_get_u64(&c);
        l->have_size = true;
        pthread_cond_broadcast(&g->changed);
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&g->lock);
}

static void on_gone(void *user)
{
    struct fbr_guest *g = user;

    pthread_mutex_lock(&g->lock);
    g->gone = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void flush_at_exit(void *user)
{
    fbr_guest_flush(user, CLOSE_MS);
}

static const struct fbr_proxy_ops proxy_ops = {.on_record = on_record, .on_gone = on_gone, .flush = flush_at_exit};

/* ---- Life ---- */

int fbr_guest_open(struct fbr_guest **out, const struct fbr_address *a, int lanes, int end)
{
    struct fbr_guest *g = calloc(1, sizeof(*g));
    int rc;

    if (!g)
        return fbr_keep(-ENOMEM, "channel: out of memory");
    pthread_mutex_init(&g->lock, NULL);
    fbr_cond_init(&g->changed);
    g->n_lanes = lanes;
    g->end = end;
    g->bounded = a->flags & FBR_CH_BOUNDED;
    for (int i = 0; i < lanes; i++) {
        g->lanes[i].guest = g;
        g->lanes[i].number = (uint32_t)i;
        g->lanes[i].last = &g->lanes[i].first;
        g->lanes[i].want = 1;
    }
    rc = fbr_proxy_open(&g->proxy, a, &proxy_ops, g);
    if (rc < 0) {
        pthread_cond_destroy(&g->changed);
        pthread_mutex_destroy(&g->lock);
        free(g);
        return rc;
    }
    if (end >= 0)
        tell(&g->lanes[end], FBR_CH_ATTACH, NULL, 0);
    *out = g;
    return 0;
}

void fbr_guest_close(struct fbr_guest *g)
{
    fbr_guest_flush(g, CLOSE_MS);
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n_lanes; i++) {
        struct guest_lane *l = &g->lanes[i];
        const uint64_t ask[3] = {l->taken, 0, 0};

        if (l->taken != l->told)
            tell(l, FBR_CH_ASK, ask, sizeof(ask));
        if (g->end < 0 || g->end == i)
            tell(l, FBR_CH_LEAVE, NULL, 0);
    }
    pthread_mutex_unlock(&g->lock);
    fbr_proxy_close(g->proxy);
    for (int i = 0; i < g->n_lanes; i++) {
        drop_in(&g->lanes[i]);
        fbr_buf_fini(&g->lanes[i].out);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- Putting ---- */

/* Sends what was collected. Under the lock. */
static int flush_out(struct guest_lane *l)
{
    const uint32_t head[2] = {FBR_CH_PUTS, l->number};
    struct {
        uint64_t batch;
        uint32_t count, zero;
    } h = {l->sent + 1, l->out_count, 0};
    const struct iovec iov[3] = {{(void *)(uintptr_t)head, sizeof(head)}, {&h, sizeof(h)}, {l->out.data, l->out.len}};
    int rc;

    if (!l->out_count || l->sent - l->acked >= UNDER_WAY_MAX)
        return 0;
    rc = fbr_proxy_send(l->guest->proxy, iov, 3, -1);
    if (rc < 0) {
        l->put_code = -EPIPE;
        return rc;
    }
    l->sent++;
    l->sizes[l->sent % UNDER_WAY_MAX] = l->out.len;
    l->unacked += l->out.len;
    l->out_count = 0;
    if (l->out.cap > (1u << 20))
        fbr_buf_fini(&l->out);
    else
        fbr_buf_clear(&l->out);
    return 0;
}

static void collect(struct guest_lane *l, const void *data, size_t len)
{
    static const uint8_t zeros[8];

    fbr_put_u32(&l->out, (uint32_t)len);
    fbr_put_u32(&l->out, 0);
    fbr_put(&l->out, data, len);
    fbr_put(&l->out, zeros, (8 - len % 8) % 8);
    l->out_count++;
}

/* Bounded: the put is done when the host has accepted it. Under the lock. */
static int put_and_wait(struct guest_lane *l, const void *data, size_t len, uint64_t deadline)
{
    struct fbr_guest *g = l->guest;
    uint64_t batch;
    int rc = 0;

    while (l->sent != l->acked && !g->gone && !l->put_code && rc == 0) /* another thread's put */
        rc = fbr_cond_wait(&g->changed, &g->lock, deadline);
    if (rc < 0 || g->gone || l->put_code)
        return g->gone ? -EPIPE : l->put_code ? l->put_code : rc;
    collect(l, data, len);
    rc = l->out.failed ? -ENOMEM : flush_out(l);
    batch = l->sent;
    while (rc == 0 && l->acked < batch && !g->gone)
        rc = fbr_cond_wait(&g->changed, &g->lock, deadline);
    if (rc == -ETIMEDOUT && l->acked < batch) {
        tell(l, FBR_CH_CANCEL, &batch, sizeof(batch));
        while (l->acked < batch && !g->gone) /* it answers at once, or the host is dead */
            fbr_cond_wait(&g->changed, &g->lock, UINT64_MAX);
        rc = 0;
    }
    if (g->gone)
        return -EPIPE;
    if (l->put_code == -ETIMEDOUT) {
        l->put_code = 0;
        return -ETIMEDOUT;
    }
    return l->put_code ? l->put_code : rc;
}

int fbr_guest_put(struct fbr_guest *g, int lane, const void *data, size_t len, int timeout_ms)
{
    struct guest_lane *l = &g->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = 0;

    if (len > UINT32_MAX - 64)
        return -EMSGSIZE;
    pthread_mutex_lock(&g->lock);
    if (g->bounded) {
        rc = put_and_wait(l, data, len, deadline);
        pthread_mutex_unlock(&g->lock);
        return rc;
    }
    while (rc == 0 && !g->gone && !l->put_code && (l->unacked + l->out.len > WINDOW || l->out_count == FBR_CH_BATCH_MAX))
        rc = fbr_cond_wait(&g->changed, &g->lock, deadline);
    if (g->gone || l->put_code)
        rc = g->gone ? -EPIPE : l->put_code;
    if (rc == 0) {
        collect(l, data, len);
        if (l->out.failed)
            rc = l->put_code = -ENOMEM;
        else if (l->sent == l->acked || l->out.len >= FLUSH_BYTES || l->out_count == FBR_CH_BATCH_MAX)
            rc = flush_out(l);
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int fbr_guest_flush(struct fbr_guest *g, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n_lanes; i++) {
        struct guest_lane *l = &g->lanes[i];

        while (rc == 0 && !g->gone && !l->put_code && (l->out_count || l->acked != l->sent)) {
            if (l->acked == l->sent)
                flush_out(l);
            rc = fbr_cond_wait(&g->changed, &g->lock, deadline);
        }
        if (rc == 0 && (l->out_count || l->acked != l->sent))
            rc = -EPIPE;
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- Getting ---- */

/* Says to the host where we are. Under the lock. */
static int ask(struct guest_lane *l, uint64_t probe)
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
    a.taken = l->told = l->taken;
    a.hungry = l->hungry;
    a.want = l->want > l->hungry ? l->want : l->hungry;
    a.probe = probe;
    return tell(l, FBR_CH_ASK, &a, sizeof(a));
}

/* Takes a message that is here, and tells the host of it now and then. Under the lock. */
static void take(struct guest_lane *l, struct fiber_bytes *out)
{
    struct message *m = l->first;

    l->first = m->next;
    if (!l->first)
        l->last = &l->first;
    l->n_in--;
    l->taken = m->seq;
    *out = (struct fiber_bytes){m->data, m->len};
    free(m);
    if (l->n_in <= l->want / 2 && (l->taken - l->told >= (l->want + 1) / 2 || fbr_now_ns() - l->asked_ns > FAST_NS))
        ask(l, 0);
}

/* Nothing is here: waits for a message, the end, or the time. Under the lock. */
static int wait_in(struct guest_lane *l, int timeout_ms, uint64_t deadline)
{
    struct fbr_guest *g = l->guest;
    uint64_t probe = timeout_ms == 0 ? ++l->probe : 0;
    int rc = 0;

    l->hungry++;
    if (ask(l, probe) < 0)
        rc = -EPIPE;
    while (rc == 0 && !l->first && !l->eof && !g->gone && !(probe && l->answered >= probe))
        rc = fbr_cond_wait(&g->changed, &g->lock, probe ? UINT64_MAX : deadline);
    l->hungry--;
    if (l->first)
        return 0;
    if (l->eof || g->gone)
        return -EPIPE;
    ask(l, 0); /* no longer hungry */
    return rc < 0 ? rc : -ETIMEDOUT;
}

int fbr_guest_get(struct fbr_guest *g, int lane, struct fiber_bytes *out, int timeout_ms)
{
    struct guest_lane *l = &g->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    while (!l->first && rc == 0)
        rc = g->gone ? -EPIPE : wait_in(l, timeout_ms, deadline);
    if (l->first) {
        take(l, out);
        rc = 0;
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int fbr_guest_size(struct fbr_guest *g, int lane, size_t *n)
{
    struct guest_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    l->have_size = false;
    rc = tell(l, FBR_CH_SIZE, NULL, 0);
    while (rc == 0 && !l->have_size && !g->gone)
        rc = fbr_cond_wait(&g->changed, &g->lock, UINT64_MAX);
    if (rc == 0 && !l->have_size)
        rc = -EPIPE;
    *n = l->size + l->out_count;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int fbr_guest_shut(struct fbr_guest *g, int lane)
{
    int rc = fbr_guest_flush(g, -1);

    return rc < 0 ? rc : tell(&g->lanes[lane], FBR_CH_SHUT, NULL, 0);
}
