/* object_server.c - the owner's side of shared objects: their table, and the peers that use them;
 * see share.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "runtime/base/log.h"
#include "share/share_priv.h"

#define REMIND_MS 1000
#define UNREAD_FREE (64u << 20) /* bytes that may wait for a peer in any case */

struct fbr_object {
    uint64_t id;
    struct fbr_share *share;
    const struct fbr_object_ops *ops;
    void *user;
    int busy;                 /* callbacks that run, and threads that look at the object */
    bool closed;              /* no new callbacks */
    void (*done)(void *user); /* for a retired object: called when no callback runs */
    bool reminds;             /* ops->on_time comes with the next tick of the clock */
    UT_hash_handle hh;
};

struct peer {
    uint64_t id;
    struct fbr_share *share;
    struct fbr_conn *conn; /* loop thread */
    struct fbr_link *link; /* NULL before it is open, and once it closes */
    int sending;           /* threads that use the link */
    bool cut;              /* it is about to be disconnected. Atomic */
    UT_hash_handle hh;
};

/* ---- Calls of objects; no object goes away during a call ---- */

static void notify_gone(struct fbr_share *s, uint64_t id, uint64_t to);
static void cut_off(struct peer *p);

/* No callback runs, and none will. */
static void end_object(struct fbr_object *o)
{
    struct fbr_share *s = o->share;

    pthread_mutex_lock(&s->lock);
    HASH_DELETE(hh, s->objects, o);
    pthread_mutex_unlock(&s->lock);
    notify_gone(s, o->id, 0);
    if (o->done)
        o->done(o->user);
    free(o);
}

static struct fbr_object *grab(struct fbr_share *s, uint64_t id)
{
    struct fbr_object *o;

    pthread_mutex_lock(&s->lock);
    HASH_FIND(hh, s->objects, &id, sizeof(id), o);
    if (o && o->closed)
        o = NULL;
    if (o)
        o->busy++;
    pthread_mutex_unlock(&s->lock);
    return o;
}

static void release(struct fbr_object *o)
{
    struct fbr_share *s = o->share;
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --o->busy == 0;
    if (last)
        pthread_cond_broadcast(&s->idle);
    last = last && o->done;
    pthread_mutex_unlock(&s->lock);
    if (last)
        end_object(o);
}

/* Notifies one peer, or all (0), that an object does not exist (any more), by a record without a
 * body. */
static void notify_gone(struct fbr_share *s, uint64_t id, uint64_t to)
{
    const struct iovec iov = {&id, sizeof(id)};
    struct peer *p, *next;

    pthread_mutex_lock(&s->lock);
    HASH_ITER(hh, s->peers, p, next)
        if (p->link && (to == 0 || to == p->id) && fbr_link_send(p->link, &iov, 1) == -ENOMEM)
            cut_off(p);
    pthread_mutex_unlock(&s->lock);
}

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    struct peer *p = user;
    struct fbr_cur c = fbr_cur(record, len);
    uint64_t id = fbr_get_u64(&c);
    struct fbr_object *o;

    if (!fbr_cur_ok(&c))
        return;
    o = grab(p->share, id);
    if (!o) {
        notify_gone(p->share, id, p->id);
        return;
    }
    o->ops->on_record(o->user, p->id, c.at, fbr_cur_left(&c));
    release(o);
}

/* ---- Peers come and go, on the loop thread ---- */

/* Grabs the object after o (NULL: the first). While o is grabbed, it stays in the table. */
static struct fbr_object *grab_next(struct fbr_share *s, struct fbr_object *o)
{
    pthread_mutex_lock(&s->lock);
    o = o ? o->hh.next : s->objects;
    while (o && o->closed)
        o = o->hh.next;
    if (o)
        o->busy++;
    pthread_mutex_unlock(&s->lock);
    return o;
}

static void notify_objects(struct fbr_share *s, uint64_t peer)
{
    struct fbr_object *o = grab_next(s, NULL);

    while (o) {
        struct fbr_object *next;

        o->ops->on_gone(o->user, peer);
        next = grab_next(s, o);
        release(o);
        o = next;
    }
}

static void remove_peer(struct peer *p)
{
    struct fbr_share *s = p->share;
    struct fbr_link *link;

    pthread_mutex_lock(&s->lock);
    HASH_DELETE(hh, s->peers, p);
    link = p->link;
    p->link = NULL;
    while (p->sending) /* a sending thread never waits */
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    fbr_link_close(link);
    notify_objects(s, p->id);
    free(p);
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct peer *p = user;

    fbr_debug("peer %llu is gone: %s", (unsigned long long)p->id, text);
    remove_peer(p);
}

static const struct fbr_conn_ops conn_ops = {.on_close = on_close};

/* Disconnects the peers that were cut off. Only this thread changes the table. */
static void hang_up(void *arg)
{
    struct fbr_share *s = arg;
    struct peer *p, *next;

    HASH_ITER(hh, s->peers, p, next)
        if (__atomic_load_n(&p->cut, __ATOMIC_ACQUIRE)) {
            fbr_conn_close(p->conn);
            remove_peer(p);
        }
}

/* Sends nothing more to the peer, and disconnects it. Needs no memory. */
static void cut_off(struct peer *p)
{
    __atomic_store_n(&p->cut, true, __ATOMIC_RELEASE);
    fbr_loop_post_own(p->share->rt->loop, &p->share->hang_up);
}

static void on_broken(void *user, struct fbr_link *link, int why)
{
    cut_off(user);
}

static const struct fbr_link_ops link_ops = {.on_record = on_record, .on_broken = on_broken};

/* Sends FBR_FRAME_PEER: str url of the data channel, u64 link, u8 algorithm of its AEAD (0: none),
 * u32 heartbeat. */
static int welcome(struct peer *p, struct fbr_conn *conn)
{
    enum fbr_reach reach;
    struct fbr_link *link;
    struct fbr_keys keys;
    struct fbr_data_server *data_server;
    struct fbr_buf b = {0};
    const char *url;
    int rc;

    reach = fbr_conn_is_local(conn) ? FBR_REACH_HOST : FBR_REACH_TCP;
    if ((rc = fbr_rt_data_server(p->share->rt, reach, &data_server, &url, NULL)) < 0 ||
        (rc = fbr_link_open(&link, data_server, &link_ops, p)) < 0)
        return rc;
    if (reach == FBR_REACH_TCP &&
        ((rc = fbr_rt_keys(conn, fbr_link_id(link), fbr_aead_preferred(), &keys)) < 0 ||
         (rc = fbr_link_seal(link, &keys)) < 0)) {
        fbr_link_close(link);
        return rc;
    }
    pthread_mutex_lock(&p->share->lock);
    p->link = link;
    pthread_mutex_unlock(&p->share->lock);
    fbr_put_str(&b, url);
    fbr_put_u64(&b, fbr_link_id(link));
    fbr_put_u8(&b, reach == FBR_REACH_TCP ? (uint8_t)keys.alg : 0);
    fbr_put_u32(&b, fbr_data_server_beat_ms(data_server));
    rc = fbr_conn_send_buf(conn, FBR_FRAME_PEER, &b);
    fbr_buf_fini(&b);
    fbr_wipe(&keys, sizeof(keys));
    return rc;
}

/* Gives the peer its number and a place in the table. Under share's lock. */
static int list_peer(struct fbr_share *s, struct peer *p)
{
    if (s->ended)
        return -ESHUTDOWN;
    p->id = ++s->next_peer;
    HASH_ADD(hh, s->peers, id, sizeof(p->id), p);
    return p->hh.tbl ? 0 : -ENOMEM;
}

/* A user on this host may be the master, which a debugger may stop, or Ctrl-Z: only the end of the
 * connection means its death. Any other user there has a parent, which kills it if it is frozen. */
static void watch_user(struct fbr_runtime *rt, struct fbr_conn *conn)
{
    fbr_conn_heartbeat(
        conn, (unsigned)fbr_config_ms(rt->config, "heartbeat"),
        fbr_conn_is_local(conn) ? 0 : (unsigned)fbr_config_int(rt->config, "heartbeat_misses"));
}

/* Admits a peer. It is in the table, with its number, before it learns where to send, because its
 * records may come at once. */
static int admit(struct fbr_runtime *rt, const struct fbr_caller *who, struct fbr_conn *conn)
{
    struct fbr_share *s = rt->share;
    struct peer *p = calloc(1, sizeof(*p));
    int rc;

    if (!p)
        return -ENOMEM;
    p->share = s;
    p->conn = conn;
    pthread_mutex_lock(&s->lock);
    rc = list_peer(s, p);
    pthread_mutex_unlock(&s->lock);
    if (rc < 0) {
        free(p);
        return rc;
    }
    rc = welcome(p, conn);
    if (rc < 0) {
        remove_peer(p);
        return rc;
    }
    fbr_conn_attach(conn, &conn_ops, p);
    watch_user(rt, conn);
    return 0;
}

/* ---- Reminders, on the loop thread: one timer for all objects ---- */

/* Calls the objects that wait for it. */
static void on_clock(void *arg)
{
    struct fbr_share *s = arg;
    struct fbr_object *o, *after;

    pthread_mutex_lock(&s->lock);
    s->reminding = false; /* a reminder that is wanted after this sets it again */
    pthread_mutex_unlock(&s->lock);
    for (o = grab_next(s, NULL); o; o = after) {
        bool reminds;

        pthread_mutex_lock(&s->lock);
        reminds = o->reminds;
        o->reminds = false;
        pthread_mutex_unlock(&s->lock);
        if (reminds)
            o->ops->on_time(o->user);
        after = grab_next(s, o);
        release(o);
    }
}

static void start_clock(void *arg)
{
    struct fbr_share *s = arg;
    bool there;

    pthread_mutex_lock(&s->lock);
    there = s->clock.uv || (!s->ended && fbr_timer_init(&s->clock, s->rt->loop, on_clock, s) == 0);
    if (!there)
        s->reminding = false;
    pthread_mutex_unlock(&s->lock);
    if (there)
        fbr_timer_start(&s->clock, REMIND_MS, 0);
}

void fbr_object_remind(struct fbr_object *o)
{
    struct fbr_share *s = o->share;

    pthread_mutex_lock(&s->lock);
    o->reminds = true;
    if (!s->reminding)
        s->reminding = fbr_loop_post(s->rt->loop, start_clock, s) == 0;
    pthread_mutex_unlock(&s->lock);
}

/* ---- Share itself ---- */

static void end_objects(struct fbr_share *s)
{
    struct fbr_object *o = grab_next(s, NULL), *next;

    for (; o; o = next) {
        if (o->ops->on_end)
            o->ops->on_end(o->user);
        next = grab_next(s, o);
        release(o);
    }
}

static int drop_peers(void *arg)
{
    struct fbr_share *s = arg;

    fbr_timer_fini(&s->clock);
    while (s->peers) {
        struct peer *p = s->peers;

        fbr_conn_close(p->conn);
        remove_peer(p);
    }
    return 0;
}

static int open_share(void *arg);

static void close_share(struct fbr_runtime *rt)
{
    struct fbr_share *s;

    fbr_loop_call(rt->loop, open_share, rt); /* waits for the call that opened it to end */
    s = rt->share;
    pthread_mutex_lock(&s->lock);
    while (s->closing)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    fbr_object_client_close_all(s); /* sets `ended` */
    fbr_loop_call(rt->loop, drop_peers, s);
    end_objects(s);
}

static int open_share(void *arg)
{
    struct fbr_runtime *rt = arg;
    struct fbr_share *s;

    if (rt->share)
        return 0;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    if (fbr_rt_at_end(rt, FBR_END_OBJECTS, close_share) < 0) {
        free(s);
        return -ESHUTDOWN;
    }
    s->rt = rt;
    s->hang_up = (struct fbr_post){.fn = hang_up, .arg = s, .own = true};
    pthread_mutex_init(&s->lock, NULL);
    fbr_cond_init(&s->idle);
    rt->admit_peer = admit;
    rt->holds = &fbr_pipe_holds;
    __atomic_store_n(&rt->share, s, __ATOMIC_RELEASE);
    return 0;
}

struct fbr_share *fbr_share(void)
{
    struct fbr_runtime *rt = fbr_rt();
    void *share;
    int rc;

    if (!rt)
        return NULL;
    share = __atomic_load_n(&rt->share, __ATOMIC_ACQUIRE);
    if (share)
        return share;
    rc = fbr_loop_call(rt->loop, open_share, rt);
    if (rc < 0) {
        fbr_keep(rc, "share: %s", fbr_strerror(rc));
        return NULL;
    }
    return rt->share;
}

/* ---- Objects ---- */

int fbr_object_open(struct fbr_object **out, const struct fbr_object_ops *ops, void *user)
{
    struct fbr_share *s = fbr_share();
    struct fbr_object *o;

    if (!s)
        return fbr_kept();
    o = calloc(1, sizeof(*o));
    if (!o)
        return fbr_keep(-ENOMEM, "share: out of memory");
    o->share = s;
    o->ops = ops;
    o->user = user;
    pthread_mutex_lock(&s->lock);
    o->id = ++s->next_object;
    HASH_ADD(hh, s->objects, id, sizeof(o->id), o);
    pthread_mutex_unlock(&s->lock);
    if (!o->hh.tbl) {
        free(o);
        return fbr_keep(-ENOMEM, "share: out of memory");
    }
    *out = o;
    return 0;
}

uint64_t fbr_object_id(const struct fbr_object *o)
{
    return o->id;
}

struct url_call {
    struct fbr_runtime *rt;
    struct fbr_error err;
    const char *url;
};

static int get_url(void *arg)
{
    struct url_call *c = arg;
    struct fbr_listener *l;
    int rc = fbr_rt_listener(c->rt, fbr_rt_object_reach(c->rt), &l, &c->err);

    if (rc < 0)
        return rc;
    c->url = fbr_listener_url(l);
    return 0;
}

int fbr_address_here(uint64_t object, enum fbr_kind kind, uint8_t flags, struct fiber_address *out)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fbr_address a = {.kind = (uint8_t)kind, .flags = flags, .object = object};
    struct url_call call = {.rt = rt};
    size_t n;
    int rc;

    if (!rt)
        return fbr_kept();
    a.owner = rt->self;
    rc = fbr_loop_call(rt->loop, get_url, &call);
    if (rc < 0)
        return call.err.code ? fbr_keep_error(&call.err)
                             : fbr_keep(rc, "share: %s", fbr_strerror(rc));
    n = strlen(call.url);
    memcpy(a.url, call.url, n + 1);
    memcpy(a.key, rt->peer_key, FBR_KEY_SIZE);
    rc = fbr_address_put(&a, out);
    fbr_wipe(&a, sizeof(a));
    return rc < 0 ? fbr_keep(rc, "share: the address is too long: %s", call.url) : 0;
}

/* Whether so many bytes wait for this peer, together with those for others, that no more may. Under
 * share's lock. */
static bool is_deluged(struct fbr_share *s, struct peer *p)
{
    uint64_t unread = 0;
    struct peer *q, *next;

    if (fbr_link_queued(p->link) <= UNREAD_FREE)
        return false;
    HASH_ITER(hh, s->peers, q, next)
        if (q->link)
            unread += fbr_link_queued(q->link);
    return fbr_held_full(&s->rt->held, unread);
}

int fbr_object_send(struct fbr_object *o, uint64_t to, const struct iovec *iov, int n)
{
    struct fbr_share *s = o->share;
    struct iovec all[8] = {{&o->id, sizeof(o->id)}};
    struct fbr_link *link;
    struct peer *p;
    int rc;

    memcpy(all + 1, iov, sizeof(*iov) * (size_t)n);
    pthread_mutex_lock(&s->lock);
    HASH_FIND(hh, s->peers, &to, sizeof(to), p);
    link = p && !__atomic_load_n(&p->cut, __ATOMIC_ACQUIRE) ? p->link : NULL;
    if (link && is_deluged(s, p)) {
        fbr_warn("a process that uses objects here was disconnected: it does not read its answers, "
                 "and as many wait as hold_max allows");
        cut_off(p);
        link = NULL;
    }
    if (link)
        p->sending++;
    pthread_mutex_unlock(&s->lock);
    if (!link)
        return -EPIPE;
    rc = fbr_link_send(link, all, n + 1);
    pthread_mutex_lock(&s->lock);
    if (rc == -ENOMEM) /* the record is missing: the peer would wait for it for ever */
        cut_off(p);
    if (--p->sending == 0 && !p->link)
        pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

size_t fbr_object_queued(struct fbr_object *o, uint64_t to)
{
    struct fbr_share *s = o->share;
    struct peer *p;
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    HASH_FIND(hh, s->peers, &to, sizeof(to), p);
    if (p && p->link)
        n = fbr_link_queued(p->link);
    pthread_mutex_unlock(&s->lock);
    return n;
}

void fbr_object_close(struct fbr_object *o)
{
    struct fbr_share *s;

    if (!o)
        return;
    s = o->share;
    pthread_mutex_lock(&s->lock);
    o->closed = true;
    while (o->busy)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    end_object(o);
}

void fbr_object_retire(struct fbr_object *o, void (*done)(void *))
{
    bool idle;

    pthread_mutex_lock(&o->share->lock);
    o->closed = true;
    o->done = done;
    idle = o->busy == 0;
    pthread_mutex_unlock(&o->share->lock);
    if (idle)
        end_object(o);
}

void *fbr_object_hold(const struct fbr_address *a, const struct fbr_object_ops *ops,
                      void (*hold)(void *))
{
    struct fbr_share *s = fbr_share();
    struct fbr_object *o = NULL;
    void *user = NULL;

    if (!s || a->owner != s->rt->self)
        return NULL;
    pthread_mutex_lock(&s->lock);
    HASH_FIND(hh, s->objects, &a->object, sizeof(a->object), o);
    if (o && !o->closed && o->ops == ops) {
        user = o->user;
        hold(user);
    }
    pthread_mutex_unlock(&s->lock);
    return user;
}
