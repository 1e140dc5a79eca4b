/* object_client.c - the user's side of shared objects: a connection to each owner, and proxies of
 * its objects; see share.h.
 *
 * A connection (struct fbr_object_client, `remote` in names) is held by its proxies, by the thread
 * that connects it, and by the thread that notifies its proxies of its death. The last holder
 * destroys it. The connection's own thread must be joined, so it leaves that to the loop thread.
 *
 * Records are sent by fbr_data_client_post(), which does not wait: a thread that waited for a dead
 * owner with the lock of a client would block the thread that must report the death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/base/sync.h"
#include "runtime/net/data_client.h"
#include "share/share_priv.h"

#define CONNECT_MS 30000 /* limit for the control connection and the data link together */
#define LATER_NS 500000
#define BUCKETS 256 /* hash of objects; their numbers are consecutive */

/* R_FAILING: the link is broken: the connection's thread will find that out, and no new proxy takes
 * it. */
enum remote_state { R_CALLING, R_WELCOME, R_OPEN, R_FAILING, R_DEAD };

/* All under share's lock. */
struct fbr_proxy {
    struct fbr_proxy *next, *prev; /* in its bucket, while it is not gone: one for each object */
    struct fbr_proxy *later_next, *later_prev;
    struct fbr_object_client *remote;
    uint64_t object;
    const struct fbr_proxy_ops *ops;
    void *user;
    bool calling;     /* a callback runs */
    pthread_t caller; /* the thread on which it runs */
    bool flushing;    /* ops->flush runs */
    bool flushed;
    bool closed; /* closed within its callback; call() frees it */
    bool gone;   /* on_gone runs, or ran */
    bool later;  /* in the connection's list of ticks */
};

struct fbr_object_client {
    struct fbr_object_client *next, *prev;
    struct fbr_share *share;
    uint64_t owner;
    char url[FBR_URL_MAX];
    uint8_t key[FBR_KEY_SIZE];
    /* Under share's lock. */
    int refs;
    bool cut;
    enum remote_state state;
    struct fbr_error err;
    struct fbr_proxy *buckets[BUCKETS];
    struct fbr_proxy *later;
    uint64_t later_ns; /* when the first entry of `later` came */
    bool awake;        /* the thread will look at `later` soon */
    /* Loop thread, while the state is below R_OPEN. */
    struct fbr_conn *conn;
    struct fbr_keys keys;
    char data_server_url[FBR_URL_MAX];
    uint64_t link;
    uint8_t alg;
    uint32_t beat_ms; /* how often the owner wants to hear from us; 0: never */
    /* Set once. */
    struct fbr_data_client *up;
    int wake;
    pthread_t thread;
    bool has_thread;
    /* Atomic. */
    bool stop;
    bool watching; /* the thread waits for room */
    /* The connection's thread. */
    bool hurry, calm;
    uint64_t beat_at_ms;
};

static void release(struct fbr_object_client *r);
static void break_off(struct fbr_object_client *r, int why);

/* ---- Callbacks of proxies. All under share's lock, which is released during the call ---- */

static void drop_later(struct fbr_proxy *p)
{
    if (p->later)
        DL_DELETE2(p->remote->later, p, later_prev, later_next);
    p->later = false;
}

enum event { RECORD, GONE, TICK };

/* Calls the proxy. Frees a proxy that was closed within the call. */
static void call(struct fbr_proxy *p, enum event event, const void *record, size_t len)
{
    struct fbr_object_client *r = p->remote;
    struct fbr_share *s = r->share;

    p->calling = true;
    p->caller = pthread_self();
    if (event == GONE) {
        p->gone = true;
        DL_DELETE(r->buckets[p->object % BUCKETS], p);
        drop_later(p);
    }
    pthread_mutex_unlock(&s->lock);
    if (event == RECORD)
        p->ops->on_record(p->user, record, len);
    else if (event == GONE)
        p->ops->on_gone(p->user);
    else if (p->ops->tick)
        p->ops->tick(p->user);
    pthread_mutex_lock(&s->lock);
    p->calling = false;
    pthread_cond_broadcast(&s->idle);
    if (p->closed)
        free(p);
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_object_client *r = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint64_t id = fbr_get_u64(&c);
    struct fbr_proxy *p;

    if (!fbr_cur_ok(&c))
        return;
    r->calm = false;
    pthread_mutex_lock(&r->share->lock);
    DL_SEARCH_SCALAR(r->buckets[id % BUCKETS], p, object, id);
    if (p)
        call(p, fbr_cur_left(&c) ? RECORD : GONE, c.at, fbr_cur_left(&c));
    pthread_mutex_unlock(&r->share->lock);
    if (!r->calm)
        r->hurry = true;
}

static struct fbr_proxy *any_proxy(struct fbr_object_client *r)
{
    for (int i = 0; i < BUCKETS; i++)
        if (r->buckets[i])
            return r->buckets[i];
    return NULL;
}

/* The owner is gone: notifies all proxies. */
static void die(struct fbr_object_client *r)
{
    struct fbr_share *s = r->share;
    struct fbr_proxy *p;

    pthread_mutex_lock(&s->lock);
    r->state = R_DEAD;
    pthread_cond_broadcast(&s->idle);
    if (!r->refs) { /* another thread destroys it */
        pthread_mutex_unlock(&s->lock);
        return;
    }
    r->refs++;
    while ((p = any_proxy(r))) {
        if (p->calling) /* the callback on the other thread comes first */
            pthread_cond_wait(&s->idle, &s->lock);
        else
            call(p, GONE, NULL, 0);
    }
    pthread_mutex_unlock(&s->lock);
    release(r);
}

/* ---- The thread that receives ---- */

/* Also looks at `later`, when it sleeps or the first entry is old: while records come all the time,
 * it does not sleep. */
static void set_awake(struct fbr_object_client *r, bool awake)
{
    pthread_mutex_lock(&r->share->lock);
    r->awake = awake;
    while (r->later && (!awake || fbr_now_ns() - r->later_ns > LATER_NS)) {
        struct fbr_proxy *p = r->later;

        drop_later(p);
        if (!p->calling) /* otherwise its end is reported */
            call(p, TICK, NULL, 0);
    }
    pthread_mutex_unlock(&r->share->lock);
}

/* Sends queued data, as far as there is room. */
static int flush_rest(struct fbr_object_client *r)
{
    int rc;

    /* A thread that posts from here on wakes us if there is no room. */
    __atomic_store_n(&r->watching, false, __ATOMIC_SEQ_CST);
    rc = fbr_data_client_flush(r->up);
    __atomic_store_n(&r->watching, rc == 1, __ATOMIC_SEQ_CST);
    return rc < 0 ? rc : 0;
}

/* A beat is due when nothing has arrived for so long. */
static void set_beat(struct fbr_object_client *r)
{
    r->beat_at_ms = fbr_deadline(fbr_data_client_beat_ms(r->up));
}

/* Takes the records that have come. The owner is notified at once that we have them, unless a
 * thread will send it a record soon. */
static int take_in(struct fbr_object_client *r)
{
    int rc = 0, got;

    set_beat(r);
    do {
        set_awake(r, true);
        r->hurry = false;
        got = fbr_data_client_recv(r->up, on_record, r);
        if (got > 0 && r->hurry)
            rc = flush_rest(r);
    } while (got > 0 && rc == 0);
    return got < 0 ? got : rc;
}

/* Handles the next event, or a timeout without one. */
static int turn(struct fbr_object_client *r, struct pollfd p[3])
{
    const int ms = fbr_ms_until(r->beat_at_ms);
    const struct timespec soon = {.tv_nsec = LATER_NS},
                          idle = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    bool awake = r->awake; /* only this thread sets it */
    eventfd_t count;
    int n, rc;

    p[2].fd = r->watching ? fbr_data_client_room_fd(r->up) : -1;
    n = ppoll(p, 3, awake ? &soon : &idle, NULL);
    if (n < 0)
        return 0;
    if (n == 0)
        set_awake(r, false);
    if (p[1].revents) {
        eventfd_read(r->wake, &count);
        set_awake(r, true);
    }
    if ((n == 0 || p[1].revents || p[2].revents) && (rc = flush_rest(r)) < 0)
        return rc;
    if (p[0].revents)
        return take_in(r);
    if (awake)
        return 0;
    if (fbr_data_client_lost(r->up))
        return -EPIPE;
    if (fbr_now_ms() < r->beat_at_ms)
        return 0;
    set_beat(r);
    return fbr_data_client_beat(r->up, false);
}

static void *receive(void *arg)
{
    struct fbr_object_client *r = arg;
    struct pollfd p[3] = {{.fd = fbr_data_client_fd(r->up), .events = POLLIN},
                          {.fd = r->wake, .events = POLLIN},
                          {.events = POLLIN}};
    int rc = 0;

    pthread_setname_np(pthread_self(), "fbr-remote");
    set_beat(r);
    while (rc == 0 && !__atomic_load_n(&r->stop, __ATOMIC_SEQ_CST))
        rc = turn(r, p);
    if (rc < 0)
        break_off(r, rc);
    return NULL;
}

/* ---- Connecting ---- */

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct fbr_object_client *r = user;
    int rc = 0;

    if (type != FBR_FRAME_PEER)
        return;
    fbr_get_str(body, r->data_server_url, sizeof(r->data_server_url));
    r->link = fbr_get_u64(body);
    r->alg = fbr_get_u8(body);
    r->beat_ms = fbr_get_u32(body);
    if (r->alg)
        rc = fbr_rt_keys(conn, r->link, r->alg, &r->keys);
    pthread_mutex_lock(&r->share->lock);
    if (r->state != R_CALLING) { /* the frame came twice */
    } else if (!fbr_cur_ok(body) || rc < 0) {
        r->state = R_DEAD;
        fbr_fail(&r->err, -EPROTO,
                 "the answer of %s cannot be read; is it another version of Fiber?", r->url);
    } else {
        r->state = R_WELCOME;
    }
    pthread_cond_broadcast(&r->share->idle);
    pthread_mutex_unlock(&r->share->lock);
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct fbr_object_client *r = user;

    r->conn = NULL;
    pthread_mutex_lock(&r->share->lock);
    if (!r->err.code)
        fbr_fail(&r->err,
                 why == -ENOENT || why == -ECONNREFUSED || why == -ECONNRESET ? -EPIPE : why,
                 "the process that owns the object is gone, or cannot be reached (%s: %s)", r->url,
                 text);
    pthread_mutex_unlock(&r->share->lock);
    die(r);
}

static const struct fbr_conn_ops conn_ops = {.on_frame = on_frame, .on_close = on_close};

/* The owner is often the master, which a debugger may stop: on its host its children wait for it,
 * as they do as its children. If another owner there is stopped, its parent kills it, and the end
 * of the connection is the news. */
static void watch_owner(struct fbr_object_client *r)
{
    const struct fbr_config *config = r->share->rt->config;

    fbr_conn_heartbeat(
        r->conn, (unsigned)fbr_config_ms(config, "heartbeat"),
        fbr_conn_is_local(r->conn) ? 0 : (unsigned)fbr_config_int(config, "heartbeat_misses"));
}

static int dial(void *arg)
{
    struct fbr_object_client *r = arg;
    struct fbr_runtime *rt = r->share->rt;
    const struct fbr_caller me = {FBR_CALLER_PEER, rt->self};
    bool cut;
    int rc;

    pthread_mutex_lock(&r->share->lock);
    cut = r->cut; /* a connection that was cut off is not made again */
    pthread_mutex_unlock(&r->share->lock);
    if (cut)
        return -ESHUTDOWN;
    rc = fbr_conn_dial(&r->conn, rt->loop, r->url, &me, r->key, &conn_ops, r, &r->err);
    if (rc < 0)
        return rc;
    watch_owner(r);
    return 0;
}

static int hang_up(void *arg)
{
    struct fbr_object_client *r = arg;

    fbr_conn_close(r->conn);
    r->conn = NULL;
    return 0;
}

static void hang_up_held(void *arg)
{
    hang_up(arg);
    release(arg);
}

/* The data link broke. The control connection closes with it, so that the owner knows, too. The
 * connection's thread. */
static void break_off(struct fbr_object_client *r, int why)
{
    bool held;

    fbr_info("the data link to %s broke: %s", r->url, fbr_strerror(why));
    die(r);
    pthread_mutex_lock(&r->share->lock);
    held = r->refs > 0;
    r->refs += held;
    pthread_mutex_unlock(&r->share->lock);
    if (held && fbr_loop_post(r->share->rt->loop, hang_up_held, r) < 0)
        release(r);
}

static int start_thread(struct fbr_object_client *r)
{
    int rc;

    r->wake = eventfd(0, EFD_CLOEXEC);
    if (r->wake < 0)
        return -errno;
    rc = fbr_thread_start(&r->thread, receive, r);
    r->has_thread = rc == 0;
    return rc;
}

static void stop_thread(struct fbr_object_client *r)
{
    if (!r->has_thread)
        return;
    __atomic_store_n(&r->stop, true, __ATOMIC_SEQ_CST);
    eventfd_write(r->wake, 1);
    pthread_join(r->thread, NULL);
    r->has_thread = false;
}

/* Not on the connection's own thread. Once it was cut off there may be no loop any more. */
static void destroy(struct fbr_object_client *r)
{
    if (!r->cut)
        fbr_loop_call(r->share->rt->loop, hang_up, r);
    stop_thread(r);
    fbr_data_client_close(r->up);
    fbr_fds_close(r->wake);
    fbr_wipe(r->key, sizeof(r->key));
    fbr_wipe(&r->keys, sizeof(r->keys));
    free(r);
}

static void destroy_later(void *arg)
{
    destroy(arg);
}

static void release(struct fbr_object_client *r)
{
    struct fbr_share *s = r->share;
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --r->refs == 0;
    if (last)
        DL_DELETE(s->remotes, r);
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    if (r->has_thread && pthread_equal(r->thread, pthread_self()))
        fbr_loop_post(s->rt->loop, destroy_later, r); /* when memory is short, it is not freed */
    else
        destroy(r);
}

/* Connects a new connection. No other thread touches it while its state is below R_OPEN. */
static int bring_up(struct fbr_object_client *r)
{
    struct fbr_share *s = r->share;
    const struct fbr_config *config = s->rt->config;
    uint64_t deadline = fbr_now_ms() + CONNECT_MS;
    struct fbr_error err = {0, ""};
    int rc = fbr_loop_call(s->rt->loop, dial, r);

    pthread_mutex_lock(&s->lock);
    while (rc == 0 && r->state == R_CALLING)
        rc = fbr_cond_wait(&s->idle, &s->lock, deadline);
    if (r->state == R_DEAD && rc == 0)
        rc = r->err.code ? r->err.code : -EPIPE;
    pthread_mutex_unlock(&s->lock);
    if (rc < 0)
        goto done;
    rc = fbr_data_client_open(&r->up, r->data_server_url, r->link, r->alg ? &r->keys : NULL,
                              fbr_config_size(config, "max_message") + FBR_MUX_SLACK,
                              fbr_ms_until(deadline), &err);
    if (rc < 0)
        goto done;
    fbr_data_client_heartbeat(r->up, r->beat_ms, fbr_config_ms(config, "heartbeat"),
                              fbr_config_int(config, "heartbeat_misses"));
    fbr_data_client_never_wait(r->up);
    fbr_data_client_no_streams(r->up);
    rc = start_thread(r);
done:
    pthread_mutex_lock(&s->lock);
    if (rc < 0 && !r->err.code && err.code)
        r->err = err;
    if (rc < 0 && !r->err.code)
        fbr_fail(&r->err, rc, "cannot reach the owner of the object (%s): %s", r->url,
                 fbr_strerror(rc));
    if (rc == 0 && r->state == R_DEAD)
        rc = -EPIPE;
    r->state = rc < 0 ? R_DEAD : R_OPEN;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static struct fbr_object_client *new_remote(struct fbr_share *s, const struct fbr_address *a)
{
    struct fbr_object_client *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->share = s;
    r->owner = a->owner;
    r->wake = -1;
    r->refs = 1;
    memcpy(r->url, a->url, sizeof(r->url));
    memcpy(r->key, a->key, sizeof(r->key));
    return r;
}

/* Under share's lock: the existing connection that this address would open. */
static struct fbr_object_client *find_remote(struct fbr_share *s, const struct fbr_address *a)
{
    struct fbr_object_client *r;

    DL_FOREACH(s->remotes, r)
        if (r->owner == a->owner && r->state < R_FAILING &&
            memcmp(r->key, a->key, sizeof(r->key)) == 0 && strcmp(r->url, a->url) == 0)
            break;
    return r;
}

static int keep_why(struct fbr_object_client *r, int rc)
{
    struct fbr_error err;

    pthread_mutex_lock(&r->share->lock);
    err = r->err;
    pthread_mutex_unlock(&r->share->lock);
    return err.code ? fbr_keep_error(&err)
                    : fbr_keep(rc, "the process that owns the object is gone");
}

/* The live connection to that owner, or a new one, for which others wait. */
static int get_remote(struct fbr_share *s, const struct fbr_address *a,
                      struct fbr_object_client **out)
{
    struct fbr_object_client *r;
    bool mine = false;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    if (s->ended) {
        pthread_mutex_unlock(&s->lock);
        return fbr_keep(-ESHUTDOWN, "fiber_fini() was called already");
    }
    r = find_remote(s, a);
    if (r) {
        r->refs++;
        while (r->state == R_CALLING || r->state == R_WELCOME)
            /* the thread that connects it has a time limit */
            pthread_cond_wait(&s->idle, &s->lock);
        rc = r->state == R_DEAD ? -EPIPE : 0;
    } else if ((r = new_remote(s, a))) {
        mine = true;
        DL_APPEND(s->remotes, r);
    }
    pthread_mutex_unlock(&s->lock);
    if (!r)
        return fbr_keep(-ENOMEM, "share: out of memory");
    if (mine)
        rc = bring_up(r);
    if (rc < 0) {
        rc = keep_why(r, rc);
        release(r);
        return rc;
    }
    *out = r;
    return 0;
}

/* ---- Proxies ---- */

int fbr_proxy_open(struct fbr_proxy **out, const struct fbr_address *a,
                   const struct fbr_proxy_ops *ops, void *user)
{
    struct fbr_share *s = fbr_share();
    struct fbr_proxy *p;
    struct fbr_object_client *r = NULL;
    bool dead;
    int rc;

    if (!s)
        return fbr_kept();
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
    dead = r->state == R_DEAD; /* it died just now */
    if (!dead) {
        *out = p; /* callbacks may come at once, and use it */
        DL_APPEND(r->buckets[p->object % BUCKETS], p);
    }
    pthread_mutex_unlock(&s->lock);
    if (dead) {
        rc = keep_why(r, -EPIPE);
        release(r);
        free(p);
        return rc;
    }
    return 0;
}

/* Without share's lock. */
static bool is_dead(struct fbr_proxy *p)
{
    struct fbr_share *s = p->remote->share;
    bool dead;

    pthread_mutex_lock(&s->lock);
    dead = p->gone || p->remote->state == R_DEAD;
    pthread_mutex_unlock(&s->lock);
    return dead;
}

int fbr_proxy_post(struct fbr_proxy *p, const struct iovec *iov, int n, bool more)
{
    struct iovec all[8] = {{&p->object, sizeof(p->object)}};
    struct fbr_object_client *r = p->remote;
    int rc;

    if (is_dead(p))
        return -EPIPE;
    memcpy(all + 1, iov, sizeof(*iov) * (size_t)n);
    rc = fbr_data_client_post(r->up, all, n + 1, more);
    if (rc < 0) {
        pthread_mutex_lock(&r->share->lock);
        if (r->state == R_OPEN)
            r->state = R_FAILING;
        pthread_mutex_unlock(&r->share->lock);
    }
    /* to send the rest, or to find that the link is broken */
    if (rc && !__atomic_load_n(&r->watching, __ATOMIC_SEQ_CST))
        eventfd_write(r->wake, 1);
    return rc < 0 ? -EPIPE : 0;
}

bool fbr_proxy_later(struct fbr_proxy *p, bool wakes)
{
    struct fbr_object_client *r = p->remote;
    bool later;

    pthread_mutex_lock(&r->share->lock);
    later = (r->awake || wakes) && !p->gone;
    if (later && !r->awake)
        eventfd_write(r->wake, 1);
    if (later && !p->later) {
        p->later = true;
        if (!r->later)
            r->later_ns = fbr_now_ns();
        DL_APPEND2(r->later, p, later_prev, later_next);
    }
    pthread_mutex_unlock(&r->share->lock);
    return later;
}

void fbr_proxy_delay_ack(struct fbr_proxy *p)
{
    p->remote->calm = true;
}

bool fbr_proxy_ack_due(struct fbr_proxy *p)
{
    return fbr_data_client_ack_due(p->remote->up);
}

bool fbr_proxy_fails(const struct fbr_proxy *p)
{
    return p->remote->state >= R_FAILING;
}

size_t fbr_proxy_queued(struct fbr_proxy *p)
{
    return fbr_data_client_queued(p->remote->up);
}

void fbr_proxy_close(struct fbr_proxy *p)
{
    struct fbr_object_client *r;
    struct fbr_share *s;
    bool within;

    if (!p)
        return;
    r = p->remote;
    s = r->share;
    pthread_mutex_lock(&s->lock);
    within = p->calling && pthread_equal(p->caller, pthread_self());
    while ((p->calling && !within) || p->flushing)
        pthread_cond_wait(&s->idle, &s->lock);
    if (!p->gone)
        DL_DELETE(r->buckets[p->object % BUCKETS], p);
    drop_later(p);
    p->closed = within;
    pthread_mutex_unlock(&s->lock);
    if (!within)
        free(p);
    release(r);
}

/* ---- The end of the process ---- */

/* Under share's lock: a proxy of that bucket that may have data to send. */
static struct fbr_proxy *unflushed(struct fbr_object_client *r, int bucket)
{
    struct fbr_proxy *p;

    DL_FOREACH(r->buckets[bucket], p)
        if (p->ops->flush && !p->flushed)
            break;
    return p;
}

/* Under share's lock. */
static void flush_all(struct fbr_object_client *r)
{
    struct fbr_share *s = r->share;
    uint64_t until = fbr_deadline(fbr_config_ms(s->rt->config, "linger"));
    struct fbr_proxy *p;

    for (int i = 0; i < BUCKETS; i++)
        while (r->state == R_OPEN && (p = unflushed(r, i))) {
            p->flushing = p->flushed = true;
            pthread_mutex_unlock(&s->lock);
            p->ops->flush(p->user, &until);
            pthread_mutex_lock(&s->lock);
            p->flushing = false;
            pthread_cond_broadcast(&s->idle);
        }
}

/* Cuts off all open connections and frees none: the program may still close its handles. */
void fbr_object_client_close_all(struct fbr_share *s)
{
    struct fbr_object_client *r;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        DL_FOREACH(s->remotes, r)
            if (!r->cut)
                break;
        if (!r)
            break;
        r->refs++;
        flush_all(r);
        r->cut = true;
        pthread_mutex_unlock(&s->lock);
        fbr_loop_call(s->rt->loop, hang_up, r);
        stop_thread(r);
        die(r);
        release(r);
        pthread_mutex_lock(&s->lock);
    }
    s->ended = true;
    pthread_mutex_unlock(&s->lock);
}
