/* remote.c - the user's side of shared objects: one connection to each owner, a proxy for each handle; see share.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/log.h"
#include "runtime/uplink.h"
#include "share/share.h"
#include "share/share_priv.h"

#define CONNECT_MS 30000

enum remote_state { R_CALLING, R_WELCOME, R_OPEN, R_DEAD };

struct fbr_proxy {
    struct fbr_proxy *next, *prev;
    struct fbr_remote *remote;
    uint64_t object;
    const struct fbr_proxy_ops *ops;
    void *user;
    bool busy, closed, gone; /* under share's lock */
    pthread_t caller;        /* while busy */
};

struct fbr_remote {
    struct fbr_remote *next, *prev;
    struct fbr_share *share;
    uint64_t owner;
    char url[FBR_URL_MAX];
    uint8_t key[FBR_KEY_SIZE];
    int refs;                /* under share's lock: proxies, its thread, its connection */
    enum remote_state state; /* under share's lock */
    struct fbr_error err;
    struct fbr_conn *conn; /* loop thread */
    struct fbr_keys keys;
    char hub_url[FBR_URL_MAX];
    uint64_t link;
    uint8_t alg;
    struct fbr_uplink *up;
    int wake;
    pthread_t thread;
    bool has_thread;
    struct fbr_proxy *proxies; /* under share's lock */
};

/* ---- Callbacks of proxies ---- */

/* Under share's lock, which is given up during the call. Frees a proxy that was closed within it. */
static void call(struct fbr_proxy *p, const void *record, size_t len)
{
    struct fbr_share *s = p->remote->share;

    p->busy = true;
    p->caller = pthread_self();
    if (!record)
        p->gone = true;
    pthread_mutex_unlock(&s->lock);
    if (record)
        p->ops->on_record(p->user, record, len);
    else
        p->ops->on_gone(p->user);
    pthread_mutex_lock(&s->lock);
    p->busy = false;
    pthread_cond_broadcast(&s->idle);
    if (p->closed)
        free(p);
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_remote *r = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint64_t id = fbr_get_u64(&c);
    struct fbr_proxy *p;

    if (!fbr_cur_ok(&c))
        return;
    pthread_mutex_lock(&r->share->lock);
    DL_FOREACH(r->proxies, p)
        if (p->object == id && !p->gone)
            break;
    if (p)
        call(p, fbr_cur_left(&c) ? c.at : NULL, fbr_cur_left(&c));
    pthread_mutex_unlock(&r->share->lock);
}

/* The owner is gone: all proxies are told. */
static void die(struct fbr_remote *r)
{
    struct fbr_share *s = r->share;
    struct fbr_proxy *p;

    pthread_mutex_lock(&s->lock);
    r->state = R_DEAD;
    pthread_cond_broadcast(&s->idle);
    do {
        DL_FOREACH(r->proxies, p)
            if (!p->gone && !p->closed)
                break;
        while (p && p->busy) /* the other thread's callback comes first */
            pthread_cond_wait(&s->idle, &s->lock), p = NULL;
        if (p)
            call(p, NULL, 0);
        DL_FOREACH(r->proxies, p)
            if (!p->gone && !p->closed)
                break;
    } while (p);
    pthread_mutex_unlock(&s->lock);
}

/* ---- The thread that receives ---- */

static void *receive(void *arg)
{
    struct fbr_remote *r = arg;
    struct pollfd p[2] = {{.fd = fbr_uplink_fd(r->up), .events = POLLIN}, {.fd = r->wake, .events = POLLIN}};
    int rc = 0;

    pthread_setname_np(pthread_self(), "fbr-remote");
    while (rc >= 0 && !p[1].revents) {
        while ((rc = fbr_uplink_recv(r->up, on_record, r)) > 0)
            continue;
        if (rc == 0 && poll(p, 2, -1) < 0 && errno != EINTR)
            rc = -errno;
    }
    if (rc < 0) {
        fbr_info("the data link to %s broke: %s", r->url, fbr_strerror(rc));
        die(r);
    }
    return NULL;
}

/* ---- Connecting ---- */

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct fbr_remote *r = user;
    int rc = 0;

    if (type != FBR_FRAME_PEER)
        return;
    fbr_get_str(body, r->hub_url, sizeof(r->hub_url));
    r->link = fbr_get_u64(body);
    r->alg = fbr_get_u8(body);
    if (r->alg)
        rc = fbr_rt_keys(conn, r->link, r->alg, &r->keys);
    pthread_mutex_lock(&r->share->lock);
    if (!fbr_cur_ok(body) || rc < 0) {
        r->state = R_DEAD;
        fbr_fail(&r->err, -EPROTO, "%s: its welcome cannot be read", r->url);
    } else {
        r->state = R_WELCOME;
    }
    pthread_cond_broadcast(&r->share->idle);
    pthread_mutex_unlock(&r->share->lock);
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct fbr_remote *r = user;

    (void)conn;
    r->conn = NULL;
    pthread_mutex_lock(&r->share->lock);
    if (!r->err.code)
        fbr_fail(&r->err, why == -EPIPE || why == -ENOENT || why == -ECONNREFUSED ? -EPIPE : why,
                 "the process that owns the object is gone, or cannot be reached (%s: %s)", r->url, text);
    pthread_mutex_unlock(&r->share->lock);
    die(r);
}

static const struct fbr_conn_ops conn_ops = {.on_frame = on_frame, .on_close = on_close};

static int dial(void *arg)
{
    struct fbr_remote *r = arg;
    struct fbr_runtime *rt = r->share->rt;
    const struct fbr_caller me = {FBR_CALLER_PEER, rt->self, 0};
    int rc = fbr_conn_dial(&r->conn, rt->loop, r->url, &me, r->key, &conn_ops, r, &r->err);

    if (rc == 0)
        fbr_conn_heartbeat(r->conn, (unsigned)fbr_config_ms(rt->config, "heartbeat"),
                           (unsigned)fbr_config_int(rt->config, "heartbeat_misses"));
    return rc;
}

static int hang_up(void *arg)
{
    struct fbr_remote *r = arg;

    fbr_conn_close(r->conn);
    r->conn = NULL;
    return 0;
}

static int start_thread(struct fbr_remote *r)
{
    sigset_t all, old;
    int rc;

    r->wake = eventfd(0, EFD_CLOEXEC);
    if (r->wake < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = -pthread_create(&r->thread, NULL, receive, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    r->has_thread = rc == 0;
    return rc;
}

static void destroy(struct fbr_remote *r)
{
    uint64_t one = 1;

    fbr_loop_call(r->share->rt->loop, hang_up, r);
    if (r->has_thread) {
        if (write(r->wake, &one, sizeof(one)) < 0)
            fbr_debug("remote: wake: %m");
        pthread_join(r->thread, NULL);
    }
    fbr_uplink_close(r->up);
    if (r->wake >= 0)
        close(r->wake);
    fbr_wipe(r->key, sizeof(r->key));
    fbr_wipe(&r->keys, sizeof(r->keys));
    free(r);
}

/* Brings a new remote to life. Nobody else touches it while its state is below R_OPEN. */
static int bring_up(struct fbr_remote *r)
{
    struct fbr_share *s = r->share;
    uint64_t deadline = fbr_now_ms() + CONNECT_MS;
    int rc = fbr_loop_call(s->rt->loop, dial, r);

    pthread_mutex_lock(&s->lock);
    while (rc == 0 && r->state == R_CALLING)
        rc = fbr_cond_wait(&s->idle, &s->lock, deadline);
    if (r->state == R_DEAD && rc == 0)
        rc = r->err.code ? r->err.code : -EPIPE;
    pthread_mutex_unlock(&s->lock);
    if (rc == 0)
        rc = fbr_uplink_open(&r->up, r->hub_url, r->link, r->alg ? &r->keys : NULL,
                             fbr_config_size(s->rt->config, "max_message"), &r->err);
    if (rc == 0)
        rc = start_thread(r);
    if (rc < 0 && !r->err.code)
        fbr_fail(&r->err, rc, "cannot reach the owner of the object (%s): %s", r->url, fbr_strerror(rc));
    pthread_mutex_lock(&s->lock);
    if (rc < 0)
        r->state = R_DEAD;
    else if (r->state == R_WELCOME)
        r->state = R_OPEN;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static struct fbr_remote *new_remote(struct fbr_share *s, const struct fbr_address *a)
{
    struct fbr_remote *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->share = s;
    r->owner = a->owner;
    r->wake = -1;
    memcpy(r->url, a->url, sizeof(r->url));
    memcpy(r->key, a->key, sizeof(r->key));
    return r;
}

static void release(struct fbr_remote *r)
{
    struct fbr_share *s = r->share;
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --r->refs == 0;
    if (last)
        DL_DELETE(s->remotes, r);
    pthread_mutex_unlock(&s->lock);
    if (last)
        destroy(r);
}

/* The live connection to that owner, or a new one that others wait for. */
static int get_remote(struct fbr_share *s, const struct fbr_address *a, struct fbr_remote **out)
{
    struct fbr_remote *r;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    DL_FOREACH(s->remotes, r)
        if (r->owner == a->owner && r->state != R_DEAD)
            break;
    if (r) {
        r->refs++;
        while (r->state == R_CALLING || r->state == R_WELCOME)
            fbr_cond_wait(&s->idle, &s->lock, UINT64_MAX); /* whoever brings it up has a limit */
        if (r->state == R_DEAD)
            rc = -EPIPE;
        pthread_mutex_unlock(&s->lock);
    } else {
        r = new_remote(s, a);
        if (r) {
            r->refs = 1;
            DL_APPEND(s->remotes, r);
        }
        pthread_mutex_unlock(&s->lock);
        if (!r)
            return fbr_keep(-ENOMEM, "share: out of memory");
        rc = bring_up(r);
    }
    if (rc < 0) {
        if (r->err.code)
            fbr_keep_error(&r->err);
        else
            fbr_keep(rc, "the process that owns the object is gone");
        release(r);
        return rc;
    }
    *out = r;
    return 0;
}

/* ---- Proxies ---- */

int fbr_proxy_open(struct fbr_proxy **out, const struct fbr_address *a, const struct fbr_proxy_ops *ops,
                   void *user)
{
    struct fbr_share *s = fbr_share();
    struct fbr_proxy *p;
    struct fbr_remote *r = NULL;
    int rc;

    if (!s)
        return -EPERM;
    rc = get_remote(s, a, &r);
    if (rc < 0)
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p) {
        release(r);
        return fbr_keep(-ENOMEM, "share: out of memory");
    }
    p->remote = r;
    p->object = a->object;
    p->ops = ops;
    p->user = user;
    pthread_mutex_lock(&s->lock);
    p->gone = r->state == R_DEAD; /* it died just now: sends will say so */
    DL_APPEND(r->proxies, p);
    pthread_mutex_unlock(&s->lock);
    *out = p;
    return 0;
}

int fbr_proxy_send(struct fbr_proxy *p, const struct iovec *iov, int n, int timeout_ms)
{
    struct iovec all[8] = {{&p->object, sizeof(p->object)}};
    bool dead;

    if (n > 7)
        return -EINVAL;
    pthread_mutex_lock(&p->remote->share->lock);
    dead = p->gone || p->remote->state == R_DEAD;
    pthread_mutex_unlock(&p->remote->share->lock);
    if (dead)
        return -EPIPE;
    memcpy(all + 1, iov, sizeof(*iov) * (size_t)n);
    return fbr_uplink_send(p->remote->up, all, n + 1, timeout_ms);
}

void fbr_proxy_close(struct fbr_proxy *p)
{
    struct fbr_remote *r;
    struct fbr_share *s;
    bool within;

    if (!p)
        return;
    r = p->remote;
    s = r->share;
    pthread_mutex_lock(&s->lock);
    within = p->busy && pthread_equal(p->caller, pthread_self());
    while (p->busy && !within)
        pthread_cond_wait(&s->idle, &s->lock);
    DL_DELETE(r->proxies, p);
    p->closed = within;
    pthread_mutex_unlock(&s->lock);
    if (!within)
        free(p);
    release(r);
}

/* At the end of the process: what is still open is cut off, not freed; its handles may still be closed. */
void fbr_remote_close_all(struct fbr_share *s)
{
    struct fbr_remote *r;
    struct fbr_proxy *p;

    DL_FOREACH(s->remotes, r)
        DL_FOREACH(r->proxies, p)
            if (p->ops->flush && r->state == R_OPEN)
                p->ops->flush(p->user);
    DL_FOREACH(s->remotes, r) {
        uint64_t one = 1;

        fbr_loop_call(s->rt->loop, hang_up, r);
        if (r->has_thread && write(r->wake, &one, sizeof(one)) == sizeof(one))
            pthread_join(r->thread, NULL);
        r->has_thread = false;
        die(r);
    }
}
