/* queue.c - fiber_queue: a channel with one lane.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "share/channel.h"

struct fiber_queue {
    struct fbr_owner *host;    /* in the process that owns the queue */
    struct fbr_client *client; /* in other processes */
    bool owner;
    bool bounded;
    bool watches; /* see fbr_owner_fd() */
};

static int explain(int rc, const char *what)
{
    if (rc == 0)
        return 0;
    if (rc == -EPIPE)
        return fbr_keep(rc, "queue: %s: the queue was shut, or its owner is gone", what);
    if (rc == -ENOBUFS)
        return fbr_keep(rc,
                        "queue: %s: its owner holds as much for others as hold_max allows; bound "
                        "the queue, or set hold_max higher there",
                        what);
    if (rc == -EMSGSIZE)
        return fbr_keep(rc, "queue: %s: the message is too long; max_message sets the limit", what);
    return fbr_keep(rc, "queue: %s: %s", what, fbr_strerror(rc));
}

/* For -ETIMEDOUT, `state` is the condition that held for the whole timeout. */
static int explain_wait(int rc, const char *what, const char *state, int timeout_ms)
{
    if (rc != -ETIMEDOUT)
        return explain(rc, what);
    if (timeout_ms == 0)
        return fbr_keep(rc, "queue: %s: %s", what, state);
    return fbr_keep(rc, "queue: %s: %s for %d ms", what, state, timeout_ms);
}

static struct fiber_queue *new_queue(void)
{
    struct fiber_queue *q = calloc(1, sizeof(*q));

    if (!q)
        fbr_keep(-ENOMEM, "queue: out of memory");
    return q;
}

int fiber_queue_open(struct fiber_queue **out, size_t max_messages)
{
    const struct fbr_queue_engine_config config = {.max_messages = max_messages};
    struct fiber_queue *q = new_queue();
    int rc;

    if (!q)
        return fbr_kept();
    q->owner = true;
    q->bounded = max_messages > 0;
    rc = fbr_owner_open(&q->host, FBR_KIND_QUEUE, &config);
    if (rc < 0) {
        free(q);
        return rc;
    }
    *out = q;
    return 0;
}

int fiber_queue_address(struct fiber_queue *q, struct fiber_address *address)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!q->host)
        return fbr_keep(
            -EPERM, "queue: only its owner can make addresses; pass on the one that you received");
    return fbr_owner_address(q->host, q->bounded ? FBR_CH_BOUNDED : 0, address);
}

int fiber_queue_connect(struct fiber_queue **out, const struct fiber_address *address)
{
    struct fbr_address a;
    struct fiber_queue *q;
    int rc = fbr_address_get(&a, address, FBR_KIND_QUEUE);

    if (rc < 0)
        return rc;
    q = new_queue();
    if (!q)
        return fbr_kept();
    q->bounded = a.flags & FBR_CH_BOUNDED;
    q->host = fbr_owner_local(&a);
    if (!q->host)
        rc = fbr_client_open(&q->client, &a, 0);
    fbr_wipe(&a, sizeof(a));
    if (rc < 0) {
        free(q);
        return rc;
    }
    *out = q;
    return 0;
}

int fiber_queue_put(struct fiber_queue *q, const void *data, size_t len, int timeout_ms)
{
    int rc;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!data && len)
        return fbr_keep(-EINVAL, "queue: the length is above 0, but data is NULL");
    rc = q->host ? fbr_owner_put(q->host, 0, data, len, timeout_ms)
                 : fbr_client_put(q->client, 0, data, len, timeout_ms);
    return explain_wait(rc, "put", q->bounded ? "full" : "its owner has taken nothing", timeout_ms);
}

int fiber_queue_get(struct fiber_queue *q, struct fiber_bytes *out, int timeout_ms)
{
    int rc;

    *out = (struct fiber_bytes){NULL, 0};
    if (fbr_rt_check() < 0)
        return -EPERM;
    rc = q->host ? fbr_owner_get(q->host, 0, out, timeout_ms)
                 : fbr_client_get(q->client, 0, out, timeout_ms);
    return explain_wait(rc, "get", "empty", timeout_ms);
}

int fiber_queue_fd(struct fiber_queue *q)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return q->host ? fbr_owner_fd(q->host, 0, &q->watches) : fbr_client_fd(q->client, 0);
}

int fiber_queue_flush(struct fiber_queue *q, int timeout_ms)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return q->host ? 0
                   : explain_wait(fbr_client_flush(q->client, 0, timeout_ms), "flush",
                                  "its owner has not taken everything", timeout_ms);
}

int fiber_queue_size(struct fiber_queue *q, size_t *n)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return explain(q->host ? fbr_owner_size(q->host, 0, n) : fbr_client_size(q->client, 0, n),
                   "size");
}

int fiber_queue_shut(struct fiber_queue *q)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!q->host)
        return explain(fbr_client_shut(q->client, 0), "shut");
    fbr_owner_call(q->host, 0, FBR_CH_SHUT); /* a closed queue is shut */
    return 0;
}

static int explain_finished(int rc, const char *what, int timeout_ms)
{
    if (rc == -ERANGE)
        return fbr_keep(rc, "queue: %s: every message that was put is finished already", what);
    if (rc == -EOWNERDEAD)
        return fbr_keep(
            rc,
            "queue: %s: processes that took messages ended before they reported them as finished",
            what);
    if (rc == -EPIPE)
        return fbr_keep(rc, "queue: %s: the owner of the queue is gone, or has closed it", what);
    return explain_wait(rc, what, "messages were unfinished", timeout_ms);
}

int fiber_queue_done(struct fiber_queue *q)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return explain_finished(q->host ? fbr_owner_call(q->host, 0, FBR_CH_DONE)
                                    : fbr_client_call(q->client, 0, FBR_CH_DONE),
                            "done", 0);
}

int fiber_queue_join(struct fiber_queue *q, int timeout_ms)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return explain_finished(q->host ? fbr_owner_join(q->host, 0, timeout_ms)
                                    : fbr_client_join(q->client, 0, timeout_ms),
                            "join", timeout_ms);
}

int fiber_queue_deal(struct fiber_queue *q)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    return explain(q->host ? fbr_owner_call(q->host, 0, FBR_CH_DEAL)
                           : fbr_client_call(q->client, 0, FBR_CH_DEAL),
                   "deal");
}

void fiber_queue_close(struct fiber_queue *q)
{
    if (!q || fbr_rt_forked())
        return;
    if (q->client) {
        fbr_client_close(q->client, 0);
    } else {
        fbr_owner_unwatch(q->host, 0, q->watches);
        if (q->owner)
            fbr_owner_close(q->host);
        fbr_owner_release(q->host);
    }
    free(q);
}
