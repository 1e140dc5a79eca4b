/* pipe.c - fiber_pipe: a channel with one lane each way.
 *
 * Lane 0 carries the messages of end 0, lane 1 those of end 1.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/proc/child.h"
#include "runtime/base/log.h"
#include "share/channel.h"
#include "share/share_priv.h"

#define HELD_BYTES (8u << 20) /* bytes of messages that wait at the other end */

/* Flags of a pipe's address. */
#define END_ONE 2
#define ONEWAY 4

struct fiber_pipe {
    struct fbr_owner *host;
    struct fbr_client *client;
    int end;
    bool sends, receives;
    bool watches; /* see fbr_owner_fd() */
    unsigned flags;
    uint64_t owner, object;       /* as in its address */
    struct fiber_address address; /* by which it was connected */
};

static int explain(int rc, const char *what, int timeout_ms)
{
    if (rc == -ETIMEDOUT)
        return fbr_keep(rc, "pipe: %s: %s within %d ms", what,
                        *what == 's' ? "the pipe is full, and the other end read nothing"
                                     : "nothing arrived",
                        timeout_ms);
    if (rc == -EPIPE)
        return fbr_keep(rc, "pipe: %s: the other end is gone", what);
    if (rc == -ENOBUFS)
        return fbr_keep(rc,
                        "pipe: %s: the process that opened it holds as much for others as hold_max "
                        "allows; set hold_max higher there",
                        what);
    if (rc == -EMSGSIZE)
        return fbr_keep(rc, "pipe: %s: the message is too long; max_message sets the limit", what);
    return fbr_keep(rc, "pipe: %s: %s", what, fbr_strerror(rc));
}

static struct fiber_pipe *new_end(int end, unsigned flags)
{
    struct fiber_pipe *p = calloc(1, sizeof(*p));

    if (!p) {
        fbr_keep(-ENOMEM, "pipe: out of memory");
        return NULL;
    }
    p->end = end;
    p->flags = flags;
    p->sends = !(flags & FIBER_PIPE_ONEWAY) || end == 1;
    p->receives = !(flags & FIBER_PIPE_ONEWAY) || end == 0;
    return p;
}

int fiber_pipe_open(struct fiber_pipe *ends[2], unsigned flags)
{
    static const struct fbr_queue_engine_config config = {.max_bytes = HELD_BYTES};
    struct fbr_owner *h;
    int rc;

    if (!ends || flags > FIBER_PIPE_ONEWAY)
        return fbr_keep(-EINVAL, "pipe: needs an array for two ends, and valid flags");
    ends[0] = new_end(0, flags);
    ends[1] = ends[0] ? new_end(1, flags) : NULL;
    rc = ends[1] ? fbr_owner_open(&h, FBR_KIND_PIPE, &config) : fbr_kept();
    if (rc < 0) {
        free(ends[0]);
        free(ends[1]);
        ends[0] = ends[1] = NULL;
        return rc;
    }
    for (int i = 0; i < 2; i++) {
        ends[i]->host = h;
        ends[i]->owner = fbr_rt_any()->self;
        ends[i]->object = fbr_owner_id(h);
    }
    return 0;
}

int fiber_pipe_address(struct fiber_pipe *p, struct fiber_address *address)
{
    uint8_t flags = (uint8_t)((p->end ? END_ONE : 0) | (p->flags & FIBER_PIPE_ONEWAY ? ONEWAY : 0));
    int rc;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (p->host) {
        rc = fbr_owner_address(p->host, flags, address);
        if (rc < 0)
            return rc;
        fbr_owner_call(p->host, p->end, FBR_CH_EXPORT);
        return 0;
    }
    rc = fbr_client_call(p->client, p->end, FBR_CH_EXPORT);
    if (rc < 0)
        return explain(rc, "address", 0);
    *address = p->address;
    return 0;
}

/* Notifies the process that started us, which may hold the end until we hold it. */
static void notify_parent(const struct fiber_pipe *p)
{
    struct fbr_child *child = fbr_rt_any()->child;
    struct fbr_buf b = {0};

    if (!child)
        return;
    fbr_put_u64(&b, p->owner);
    fbr_put_u64(&b, p->object);
    fbr_put_u8(&b, (uint8_t)p->end);
    /* the parent holds the end until we have ended */
    if (fbr_child_send(child, FBR_FRAME_HOLDS, &b) < 0)
        fbr_debug("pipe: the parent cannot be notified of an end");
    fbr_buf_fini(&b);
}

int fiber_pipe_connect(struct fiber_pipe **out, const struct fiber_address *address)
{
    struct fbr_address a;
    struct fiber_pipe *p;
    int rc = fbr_address_get(&a, address, FBR_KIND_PIPE);

    if (rc < 0)
        return rc;
    p = new_end(a.flags & END_ONE ? 1 : 0, a.flags & ONEWAY ? FIBER_PIPE_ONEWAY : 0);
    if (!p)
        return fbr_kept();
    a.flags = 0;
    p->owner = a.owner;
    p->object = a.object;
    p->host = fbr_owner_local(&a);
    if (p->host)
        fbr_owner_attach(p->host, p->end);
    else
        rc = fbr_client_open(&p->client, &a, p->end);
    fbr_wipe(&a, sizeof(a));
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->address = *address;
    notify_parent(p);
    *out = p;
    return 0;
}

/* ---- Holds: a parent holds the ends that a child was given until the child has attached to them
 * ---- */

static int hold(struct fiber_pipe *end, struct fbr_hold *out)
{
    struct fiber_pipe *p;

    if (fbr_rt_check() < 0)
        return -EPERM;
    p = malloc(sizeof(*p));
    if (!p)
        return fbr_keep(-ENOMEM, "pipe: out of memory");
    *p = *end;
    p->watches = false;
    if (p->host)
        fbr_owner_attach(fbr_owner_hold(p->host), p->end);
    else
        fbr_client_call(fbr_client_hold(p->client, p->end), p->end, FBR_CH_ATTACH);
    *out = (struct fbr_hold){p, p->owner, p->object, (uint8_t)p->end};
    return 0;
}

static void *close_held(void *arg)
{
    struct fiber_pipe *p = arg;
    struct fbr_share *s = fbr_rt_any()->share;

    fiber_pipe_close(p);
    pthread_mutex_lock(&s->lock);
    s->closing--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* On the loop thread, which must not wait until the pipe's owner has received the LEAVE. */
static void release(struct fbr_hold *h)
{
    struct fiber_pipe *p = h->held;
    struct fbr_share *s = fbr_rt_any()->share; /* the pipe has opened it; also after the end */
    bool apart;

    if (p->host) {
        fiber_pipe_close(p);
        return;
    }
    pthread_mutex_lock(&s->lock);
    apart = !s->ended;
    s->closing += apart;
    pthread_mutex_unlock(&s->lock);
    if (!apart) /* the owner is not notified any more */
        fiber_pipe_close(p);
    else if (fbr_thread_start(NULL, close_held, p) < 0)
        close_held(p);
}

const struct fbr_hold_ops fbr_pipe_holds = {.hold = hold, .release = release};

/* ---- Messages ---- */

int fiber_pipe_send(struct fiber_pipe *p, const void *data, size_t len, int timeout_ms)
{
    int rc;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!p->sends)
        return fbr_keep(-EBADF, "pipe: this end only receives");
    if (!data && len)
        return fbr_keep(-EINVAL, "pipe: the length is above 0, but data is NULL");
    rc = p->host ? fbr_owner_put(p->host, p->end, data, len, timeout_ms)
                 : fbr_client_put(p->client, p->end, data, len, timeout_ms);
    return rc == 0 ? 0 : explain(rc, "send", timeout_ms);
}

int fiber_pipe_recv(struct fiber_pipe *p, struct fiber_bytes *out, int timeout_ms)
{
    int rc;

    *out = (struct fiber_bytes){NULL, 0};
    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!p->receives)
        return fbr_keep(-EBADF, "pipe: this end only sends");
    rc = p->host ? fbr_owner_get(p->host, !p->end, out, timeout_ms)
                 : fbr_client_get(p->client, !p->end, out, timeout_ms);
    return rc == 0 ? 0 : explain(rc, "recv", timeout_ms);
}

int fiber_pipe_poll(struct fiber_pipe *p, int timeout_ms)
{
    int rc;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!p->receives)
        return fbr_keep(-EBADF, "pipe: this end only sends");
    rc = p->host ? fbr_owner_get(p->host, !p->end, NULL, timeout_ms)
                 : fbr_client_get(p->client, !p->end, NULL, timeout_ms);
    /* the end of file is readable, too */
    if (rc == 0 || rc == -EPIPE)
        return 1;
    return rc == -ETIMEDOUT ? 0 : explain(rc, "poll", timeout_ms);
}

int fiber_pipe_fd(struct fiber_pipe *p)
{
    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!p->receives)
        return fbr_keep(-EBADF, "pipe: this end only sends");
    return p->host ? fbr_owner_fd(p->host, !p->end, &p->watches)
                   : fbr_client_fd(p->client, !p->end);
}

void fiber_pipe_close(struct fiber_pipe *p)
{
    if (!p || fbr_rt_forked())
        return;
    if (p->client) {
        fbr_client_close(p->client, p->end);
    } else {
        fbr_owner_unwatch(p->host, !p->end, p->watches);
        fbr_owner_leave(p->host, p->end);
        fbr_owner_release(p->host);
    }
    fbr_wipe(&p->address, sizeof(p->address));
    free(p);
}
