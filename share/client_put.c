/* client_put.c - puts into a channel that lives in another process; see channel.h.
 *
 * A lone message is sent at once. When another message follows quickly, the client asks the owner
 * for an answer, and collects the messages that are put until the answer comes and sends them
 * together. So a stream of messages is fast, and a conversation has no answers in it. Unanswered
 * messages are limited to WINDOW bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "share/client_priv.h"

#define FLUSH_BYTES (64 * 1024)
#define WINDOW (4u << 20) /* bytes that are not acknowledged */
#define UNASKED_MAX 16    /* batches in a row for which no answer is asked */
#define QUICK_NS 20000    /* ns: a put sooner than this after the last put is part of a stream */

void fbr_client_on_ack(struct client_lane *l, struct fbr_cur *c)
{
    uint64_t batch = fbr_get_u64(c);
    int code = (int)fbr_get_u64(c);

    /* no owner answers -EAGAIN, which would have put() tried again for ever */
    if (!fbr_cur_ok(c) || batch > l->sent || code > 0 || code == -EAGAIN)
        return;
    if (l->client->bounded) {
        fbr_client_call_answer(l, FBR_CH_ACK, batch, code);
    } else if (batch > l->acked) {
        while (l->acked < batch)
            l->unacked -= l->sizes[++l->acked % FBR_CLIENT_UNDER_WAY];
        if (code && !l->put_code)
            l->put_code = code;
        /* more messages are likely to follow */
        if (!l->put_code && l->out_count && l->asked <= l->acked)
            fbr_client_flush_out(l, true);
    }
    pthread_cond_broadcast(&l->room);
}

/* ---- Sending ---- */

/* Sends the collected messages, or the one message (data, len). Under the lock. */
static int post_puts(struct client_lane *l, uint32_t count, const void *data, size_t len, bool lone,
                     bool answer)
{
    struct {
        uint32_t op, lane;
        uint64_t batch;
        uint32_t count, flags;
        uint64_t len;
    } h = {FBR_CH_PUTS, l->number, l->sent + 1, count, answer ? FBR_CH_ANSWER : 0, len};
    const struct iovec iov[3] = {{&h, lone ? sizeof(h) : sizeof(h) - 8},
                                 {(void *)(uintptr_t)data, len},
                                 {(void *)(uintptr_t)fbr_zeros, lone ? fbr_pad8(len) : 0}};
    int rc;

    fbr_client_notify_news(l->client, true);
    rc = fbr_proxy_post(l->client->shared.proxy, iov, 3, false);
    if (rc < 0) {
        l->put_code = rc;
        return rc;
    }
    l->sent++;
    l->sizes[l->sent % FBR_CLIENT_UNDER_WAY] = len;
    l->unacked += len;
    l->unasked += len;
    if (answer) {
        l->asked = l->sent;
        l->unasked = 0;
    }
    return 0;
}

/* Whether the owner must answer the next batch, which has `len` bytes. */
static bool wants_answer(struct client_lane *l, size_t len)
{
    uint64_t now = fbr_now_ns(), before = l->sent_ns;

    l->sent_ns = now;
    if (l->asked > l->acked) /* an answer is under way */
        return l->unasked + len > WINDOW / 4 || l->sent - l->asked >= UNASKED_MAX;
    return now - before < QUICK_NS || l->unasked + len > WINDOW / 4 ||
           l->sent - l->acked >= UNASKED_MAX;
}

int fbr_client_flush_out(struct client_lane *l, bool answer)
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

static int collect(struct client_lane *l, const void *data, size_t len)
{
    if (!fbr_buf_reserve(&l->out, 8 + len + fbr_pad8(len))) {
        l->out.failed = false;
        return -ENOMEM;
    }
    fbr_put_u64(&l->out, len);
    fbr_put(&l->out, data, len);
    fbr_put_pad8(&l->out, len);
    l->out_count++;
    return 0;
}

int fbr_client_put_fault(const struct client_lane *l)
{
    return l->client->gone ? -EPIPE : l->put_code;
}

/* The program learns of this error. A refusal at hold_max is told once: there may be room later. */
static int tell(struct client_lane *l, int rc)
{
    if (rc == -ENOBUFS)
        l->put_code = 0;
    return rc;
}

/* In a bounded queue the put ends when the owner has accepted the message. Under the lock. */
static int put_and_wait(struct client_lane *l, const void *data, size_t len, uint64_t deadline)
{
    struct fbr_client *g = l->client;
    struct call_wait w;
    bool withdrawn = false;
    int rc;

    if ((rc = fbr_client_put_fault(l)) < 0 || (rc = post_puts(l, 1, data, len, true, true)) < 0)
        return rc;
    fbr_client_call_begin(l, &w, FBR_CH_ACK, l->sent);
    while (!w.done && !g->gone)
        if (fbr_cond_wait(&l->room, &g->lock, withdrawn ? UINT64_MAX : deadline) == -ETIMEDOUT &&
            !w.done) {
            withdrawn = true; /* the owner answers at once, or is dead */
            fbr_client_post(l, FBR_CH_CANCEL, &w.call, sizeof(w.call), false);
        }
    LL_DELETE(l->calls, &w);
    return w.done ? (int)w.result : -EPIPE;
}

/* Sends all that was put, and makes sure that an answer to it will come. Under the lock. */
static int push_out(struct client_lane *l)
{
    int rc;

    if ((rc = fbr_client_put_fault(l)) < 0 || (rc = fbr_client_flush_out(l, true)) < 0)
        return rc;
    return l->asked < l->sent ? post_puts(l, 0, NULL, 0, false, true) : 0;
}

/* Waits until there is room for one message more among the unacknowledged ones. Under the lock. */
static int wait_room(struct client_lane *l, size_t len, uint64_t deadline)
{
    int rc = 0;

    while (rc == 0 && !fbr_client_put_fault(l) && l->unacked &&
           (l->unacked + l->out.len + len > WINDOW ||
            l->sent - l->acked >= FBR_CLIENT_UNDER_WAY - 2)) {
        push_out(l); /* so that an answer comes */
        rc = fbr_cond_wait(&l->room, &l->client->lock, deadline);
    }
    return fbr_client_put_fault(l) ? fbr_client_put_fault(l) : rc;
}

/* Under the lock. -EAGAIN: the stream began while we waited, and the message must go that way: the
 * owner reads the stream before it takes a record that was sent after the GO. */
static int put(struct client_lane *l, const void *data, size_t len, uint64_t deadline)
{
    size_t most = l->client->longest / 2 < FLUSH_BYTES ? l->client->longest / 2 : FLUSH_BYTES;
    int rc = wait_room(l, len, deadline);

    if (rc < 0)
        return rc;
    if (fbr_client_writes_stream(l))
        return -EAGAIN;
    if (l->out.len + len > most && (rc = fbr_client_flush_out(l, false)) < 0)
        return rc;
    if (len > most)
        return post_puts(l, 1, data, len, true, wants_answer(l, len));
    rc = collect(l, data, len);
    if (rc < 0 || (l->asked > l->acked && l->out_count < FBR_CH_BATCH_MAX))
        return rc;
    return fbr_client_flush_out(l, false);
}

int fbr_client_put(struct fbr_client *g, int lane, const void *data, size_t len, int timeout_ms)
{
    struct client_lane *l = &g->lanes[lane];
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = -EAGAIN;

    if (len > g->longest)
        return -EMSGSIZE;
    while (rc == -EAGAIN) {
        struct fbr_direct *d = NULL;

        pthread_mutex_lock(&g->lock);
        g->used += g->pipe;
        if (g->pipe && g->unanswered) {
            g->unanswered = false;
            g->answers = true;
            fbr_client_ask_stream(&g->lanes[!lane]);
        }
        if (fbr_client_writes_stream(l))
            d = fbr_direct_ref(g->direct);
        else
            rc = g->bounded ? put_and_wait(l, data, len, deadline)
                            : tell(l, put(l, data, len, deadline));
        pthread_mutex_unlock(&g->lock);
        if (!d)
            continue;
        rc = fbr_direct_send(d, data, len, deadline);
        fbr_direct_unref(d);
    }
    return rc;
}

int fbr_client_flush_lane(struct client_lane *l, uint64_t deadline)
{
    uint64_t upto;
    int rc = 0;

    if (l->client->bounded)
        return 0;
    if (l->out_count || l->sent != l->acked)
        rc = push_out(l);
    upto = l->sent;
    while (rc == 0 && l->acked < upto && !l->client->gone)
        rc = fbr_cond_wait(&l->room, &l->client->lock, deadline);
    if (l->acked < upto && l->client->gone)
        rc = -EPIPE;
    return tell(l, l->put_code ? l->put_code : rc);
}

int fbr_client_flush(struct fbr_client *g, int lane, int timeout_ms)
{
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = fbr_client_flush_lane(&g->lanes[lane], fbr_deadline(timeout_ms));
    pthread_mutex_unlock(&g->lock);
    return rc;
}
