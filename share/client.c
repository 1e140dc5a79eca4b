/* client.c - a channel that lives in another process: its records, questions to it, and the life of
 * a client; see channel.h.
 *
 * The handles of a process on a channel share one client, because the owner knows a process as one
 * peer. A client that closes waits until the owner has answered LEAVE: a new client for the same
 * channel must not receive messages that were meant for the old one. client_put.c puts and
 * client_get.c gets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "share/client_priv.h"

#define SURE_MS \
    1000 /* how long a client may not look at the clock and be sure that its owner keeps it */

/* ---- Records ---- */

int fbr_client_post(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len,
                    bool more)
{
    const uint32_t head[2] = {op, l->number};
    const struct iovec iov[2] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)body, len}};

    return fbr_proxy_post(l->client->shared.proxy, iov, len ? 2 : 1, more);
}

int fbr_client_notify(struct client_lane *l, enum fbr_channel_op op, const void *body, size_t len)
{
    fbr_client_notify_news(l->client, true);
    return fbr_client_post(l, op, body, len, false);
}

static void on_tick(void *user)
{
    struct fbr_client *g = user;

    pthread_mutex_lock(&g->lock);
    g->later = false;
    fbr_client_notify_news(g, false);
    pthread_mutex_unlock(&g->lock);
}

/* ---- Calls ---- */

void fbr_client_call_begin(struct client_lane *l, struct call_wait *w, enum fbr_channel_op op,
                           uint64_t call)
{
    *w = (struct call_wait){.next = l->calls, .op = op, .call = call};
    l->calls = w;
}

void fbr_client_call_answer(struct client_lane *l, enum fbr_channel_op op, uint64_t call,
                            int64_t result)
{
    for (struct call_wait *w = l->calls; w; w = w->next) {
        bool meant = w->call == call || (op == FBR_CH_JOIN && result != -EAGAIN && w->call < call);

        if (w->op != op || w->done || !meant)
            continue;
        w->done = true;
        w->result = result;
    }
}

static void on_answer(struct client_lane *l, enum fbr_channel_op op, struct fbr_cur *c)
{
    uint64_t call = fbr_get_u64(c);
    int64_t result = (int64_t)fbr_get_u64(c);

    if (!fbr_cur_ok(c) || (op != FBR_CH_SIZE && (int)result > 0))
        return;
    fbr_client_call_answer(l, op, call, result);
    pthread_cond_broadcast(&l->room);
}

static int begin_call(struct client_lane *l, struct call_wait *w, enum fbr_channel_op op, bool poll)
{
    const struct {
        uint64_t call;
        uint32_t poll, zero;
    } body = {++l->last_call, poll, 0};

    fbr_client_call_begin(l, w, op, body.call);
    return fbr_client_notify(l, op, &body, sizeof(body));
}

static int wait_call(struct client_lane *l, const struct call_wait *w, uint64_t deadline)
{
    int rc = 0;

    while (rc == 0 && !w->done && !l->client->gone)
        rc = fbr_cond_wait(&l->room, &l->client->lock, deadline);
    return w->done ? 0 : rc ? rc : -EPIPE;
}

/* Sends all that was put, then the call, and waits for its answer: the owner has then done all that
 * it was asked to do before. Under the lock. */
static int64_t call_owner(struct client_lane *l, enum fbr_channel_op op, bool poll,
                          uint64_t deadline)
{
    struct call_wait w;
    int rc;

    if ((rc = fbr_client_flush_out(l, false)) < 0)
        return rc;
    if (!(rc = begin_call(l, &w, op, poll)))
        rc = wait_call(l, &w, deadline);
    LL_DELETE(l->calls, &w);
    return rc < 0 ? rc : w.result;
}

/* ---- Records of the owner ---- */

static void on_op(struct client_lane *l, uint32_t op, struct fbr_cur *c)
{
    switch (op) {
    case FBR_CH_ACK:
        fbr_client_on_ack(l, c);
        break;
    case FBR_CH_DELIVER:
    case FBR_CH_AHEAD:
        l->ahead = op == FBR_CH_AHEAD;
        fbr_client_on_deliver(l, c);
        break;
    case FBR_CH_RECALL:
        fbr_client_on_recall(l);
        break;
    case FBR_CH_EMPTY:
        fbr_client_on_empty(l, c);
        break;
    case FBR_CH_READY:
        fbr_client_on_ready(l, c);
        break;
    case FBR_CH_EOF:
        l->eof = true;
        l->told.hungry = 0;
        pthread_cond_broadcast(&l->arrived);
        break;
    case FBR_CH_DIRECT_IS:
        fbr_client_on_direct(l, c);
        break;
    default: /* no thread waits for the answer to an unknown op */
        on_answer(l, op, c);
    }
}

static void on_host_record(void *user, const void *record, size_t len)
{
    struct fbr_client *g = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c);

    if (!fbr_cur_ok(&c) || lane >= (uint32_t)g->n_lanes)
        return;
    if (op == FBR_CH_DIRECT_END) {
        if (g->pipe) /* a queue has no stream and no other end */
            fbr_client_return_stream(g);
        return;
    }
    pthread_mutex_lock(&g->lock);
    fbr_client_note_time(g);
    on_op(&g->lanes[lane], op, &c);
    fbr_client_show(&g->lanes[lane]);
    pthread_mutex_unlock(&g->lock);
}

static void on_host_gone(void *user)
{
    struct fbr_client *g = user;

    fbr_shared_proxy_gone(&g->shared);
    pthread_mutex_lock(&g->lock);
    fbr_client_note_time(g);
    g->gone = true;
    if (g->direct)
        fbr_direct_cut(g->direct);
    for (int i = 0; i < g->n_lanes; i++) {
        pthread_cond_broadcast(&g->lanes[i].arrived);
        pthread_cond_broadcast(&g->lanes[i].room);
        fbr_client_show(&g->lanes[i]);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- Asking ---- */

static int64_t ask(struct fbr_client *g, int lane, enum fbr_channel_op op, bool poll,
                   uint64_t deadline)
{
    int64_t result;

    pthread_mutex_lock(&g->lock);
    result = call_owner(&g->lanes[lane], op, poll, deadline);
    pthread_mutex_unlock(&g->lock);
    return result;
}

int fbr_client_size(struct fbr_client *g, int lane, size_t *n)
{
    int64_t size = ask(g, lane, FBR_CH_SIZE, false, UINT64_MAX);

    *n = size < 0 ? 0 : (size_t)size;
    return size < 0 ? (int)size : 0;
}

/* Waits until the owner has shut the lane, so that a process that learns of it afterwards finds
 * the lane shut. */
int fbr_client_shut(struct fbr_client *g, int lane)
{
    struct client_lane *l = &g->lanes[lane];
    int rc;

    pthread_mutex_lock(&g->lock);
    if ((rc = fbr_client_flush_lane(l, UINT64_MAX)) < 0 ||
        (rc = (int)call_owner(l, FBR_CH_SHUT, false, UINT64_MAX)) < 0)
        goto done;
    if (!l->put_code)
        l->put_code = -EPIPE;
done:
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int fbr_client_call(struct fbr_client *g, int lane, enum fbr_channel_op op)
{
    return (int)ask(g, lane, op, false, UINT64_MAX);
}

int fbr_client_join(struct fbr_client *g, int lane, int timeout_ms)
{
    bool poll = timeout_ms == 0;
    int rc = (int)ask(g, lane, FBR_CH_JOIN, poll, poll ? UINT64_MAX : fbr_deadline(timeout_ms));

    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* ---- Life ---- */

static uint64_t linger_from_now(const struct fbr_client *g)
{
    return fbr_deadline(fbr_config_ms(g->shared.share->rt->config, "linger"));
}

/* Under the lock: waits for the answer to a call (w NULL: to all puts) for as long as the owner
 * takes something that we sent to it. `until`: the end of the wait if the owner takes nothing. */
static int linger(struct client_lane *l, const struct call_wait *w, uint64_t *until)
{
    int rc;

    for (;;) {
        uint64_t acked = l->acked;
        size_t queued = fbr_proxy_queued(l->client->shared.proxy);

        rc = w ? wait_call(l, w, *until) : fbr_client_flush_lane(l, *until);
        if (rc != -ETIMEDOUT ||
            (l->acked == acked && fbr_proxy_queued(l->client->shared.proxy) >= queued))
            return rc;
        *until = linger_from_now(l->client);
    }
}

/* The same, for a call. */
static void linger_call(struct client_lane *l, enum fbr_channel_op op, uint64_t *until)
{
    struct call_wait w;

    if (begin_call(l, &w, op, false) < 0)
        return;
    linger(l, &w, until);
    LL_DELETE(l->calls, &w);
}

/* At the end of the process: the messages that it put arrive, and the messages that it took do not
 * go to another process. */
static void on_flush(void *user, uint64_t *until)
{
    struct fbr_client *g = user;

    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n_lanes; i++) {
        struct client_lane *l = &g->lanes[i];

        if (g->pipe) /* it is enough that the owner has the messages: a pipe loses nothing there */
            fbr_client_flush_out(l, false);
        else
            linger(l, NULL, until);
        if (l->taken || l->sent != l->acked)
            linger_call(l, FBR_CH_SIZE, until);
    }
    pthread_mutex_unlock(&g->lock);
}

static const struct fbr_proxy_ops proxy_ops = {
    .on_record = on_host_record, .on_gone = on_host_gone, .flush = on_flush, .tick = on_tick};

static void begin_lane(struct fbr_client *g, int number)
{
    struct client_lane *l = &g->lanes[number];

    l->client = g;
    l->number = (uint32_t)number;
    l->last = &l->first;
    fbr_client_begin_get(l);
    fbr_cond_init(&l->arrived);
    fbr_cond_init(&l->room);
}

static void free_client(struct fbr_client *g)
{
    for (int i = 0; i < g->n_lanes; i++) {
        struct client_lane *l = &g->lanes[i];

        fbr_client_drop(l, 0);
        fbr_buf_fini(&l->out);
        fbr_ready_fini(&l->ready);
        pthread_cond_destroy(&l->arrived);
        pthread_cond_destroy(&l->room);
    }
    for (struct client_message *m; (m = fbr_client_unspill(g)); free(m))
        free(m->data);
    fbr_client_drop_stream(g);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static struct fbr_shared_proxy *new_client(struct fbr_share *s, const struct fbr_address *a)
{
    struct fbr_client *g = calloc(1, sizeof(*g));
    uint64_t silence = (uint64_t)fbr_config_ms(s->rt->config, "heartbeat") *
                       (uint64_t)fbr_config_int(s->rt->config, "heartbeat_misses");

    if (!g)
        return NULL;
    g->pipe = a->kind == FBR_KIND_PIPE;
    g->n_lanes = g->pipe ? 2 : 1;
    g->bounded = a->flags & FBR_CH_BOUNDED;
    if (g->pipe && strncmp(a->url, "unix:", 5) == 0)
        memcpy(g->beside, a->url + 5, strlen(a->url + 5) + 1);
    g->longest = fbr_config_size(s->rt->config, "max_message") - FBR_CH_ROOM;
    g->sure_ms = silence / 4 < SURE_MS ? silence / 4 : SURE_MS;
    fbr_client_note_time(g);
    pthread_mutex_init(&g->lock, NULL);
    for (int i = 0; i < g->n_lanes; i++)
        begin_lane(g, i);
    return &g->shared;
}

int fbr_client_open(struct fbr_client **out, const struct fbr_address *a, int lane)
{
    struct fbr_shared_proxy *shared;
    int rc = fbr_shared_proxy_open(&shared, a, &proxy_ops, new_client);
    struct fbr_client *g = (struct fbr_client *)shared;
    struct client_lane *l;

    if (rc < 0 && g)
        free_client(g); /* no thread joined it, because it never was open */
    if (rc < 0)
        return rc;
    l = &g->lanes[lane];
    pthread_mutex_lock(&g->lock);
    while (l->leaving)
        fbr_cond_wait(&l->room, &g->lock, UINT64_MAX);
    l->putters++;
    /* Once the owner has this answer, it notices the end of the process that holds this end. */
    if (g->pipe)
        rc = (int)call_owner(l, FBR_CH_ATTACH, false, UINT64_MAX);
    pthread_mutex_unlock(&g->lock);
    if (rc < 0) { /* the end has not moved */
        fbr_client_close(g, lane);
        return fbr_keep(rc, "channel: its owner cannot be notified: %s", fbr_strerror(rc));
    }
    *out = g;
    return 0;
}

struct fbr_client *fbr_client_hold(struct fbr_client *g, int lane)
{
    fbr_shared_proxy_hold(&g->shared);
    pthread_mutex_lock(&g->lock);
    g->lanes[lane].putters++;
    pthread_mutex_unlock(&g->lock);
    return g;
}

/* Under the lock, which is released for a moment: messages that the stream has for us go back to
 * the owner, because other processes may hold this end, too. */
static void return_unread(struct fbr_client *g, struct client_lane *l, uint64_t until)
{
    int rc = 0;

    while (rc == 0 && g->asked && !g->gone)
        rc = fbr_cond_wait(&l->room, &g->lock, until);
    if (!g->direct)
        return;
    pthread_mutex_unlock(&g->lock);
    fbr_client_return_stream(g);
    pthread_mutex_lock(&g->lock);
    if (!g->asked)
        fbr_client_drop_stream(g);
}

/* Under the lock, for the last handle of this end. Returns when the owner has received all that was
 * put and then LEAVE, or when it is gone or takes nothing until that time. */
static void leave(struct client_lane *l, struct client_lane *in, uint64_t until)
{
    struct fbr_client *g = l->client;

    l->leaving = true;
    if (g->pipe)
        return_unread(g, l, until);
    if (!fbr_client_put_fault(l))
        fbr_client_flush_out(l, false);
    if (!g->gone)
        linger_call(l, FBR_CH_LEAVE, &until);
    fbr_client_begin_get(in); /* in case a new handle opens this end */
    l->leaving = false;
    pthread_cond_broadcast(&l->room);
}

void fbr_client_close(struct fbr_client *g, int lane)
{
    struct client_lane *l = &g->lanes[lane];
    uint64_t until = linger_from_now(g);

    pthread_mutex_lock(&g->lock);
    if (g->pipe && --l->putters == 0)
        leave(l, &g->lanes[!lane], until);
    else if (linger(l, NULL, &until) == 0)
        until = linger_from_now(g); /* the owner takes what it gets */
    pthread_mutex_unlock(&g->lock);
    if (!fbr_shared_proxy_leave(&g->shared))
        return;
    pthread_mutex_lock(&g->lock);
    if (!g->pipe)
        leave(l, l, until);
    pthread_mutex_unlock(&g->lock);
    fbr_shared_proxy_close(&g->shared);
    free_client(g);
}
