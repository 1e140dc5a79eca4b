/* data_server.c - the server of the data channel.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/data_server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "runtime/base/random.h"
#include "runtime/net/conn.h"
#include "runtime/base/log.h"
#include "runtime/base/sync.h"
#include "runtime/net/sp_server.h"
#include "runtime/net/tcp.h"

#define TICKS 2 /* ticks per heartbeat */
#define DUE_MAX 256

struct fbr_link {
    uint64_t id; /* for a branch: the number of its stream */
    /* Under the data server's lock; the trunk of a branch does not change. */
    struct fbr_link *trunk, *branches;
    /* One reference of the link itself and one per branch. Under the data server's lock. */
    int refs;
    void (*on_drained)(void *user); /* for a branch */
    void *drained_user;
    struct fbr_data_server *data_server;
    const struct fbr_link_ops *ops;
    void *user;
    pthread_mutex_t lock; /* guards the members from here to `failed` */
    struct fbr_mux_out out;
    /* The authenticated connection of the link; NULL: there is none yet, or it has ended. */
    struct fbr_sp_conn *conn;
    uint32_t sent, acked;       /* messages down; equal: the peer holds all of them */
    uint32_t sent_at, heard_at; /* ticks of the data server */
    bool met, broken;
    bool answers;   /* the last message down was an answer without records, */
    unsigned asked; /* and this many beats have arrived since */
    /* our first message was an answer without records to the peer's first */
    bool fresh;
    int failed;           /* negative errno: why push() could not send */
    struct fbr_mux_in in; /* data server thread only */
    uint64_t streams;     /* highest stream of all branches so far. Under the data server's lock */
    /* Branches were closed since the trunk's last message. Under the data server's lock. */
    bool pruned;
    /* Busy: in a callback. Closed: no more callbacks. Under the data server's lock. */
    bool busy, closed;
    /* Closed within its own callback: the data server's thread frees it. Under the data server's
     * lock. */
    bool orphan;
    UT_hash_handle hh;
};

struct fbr_data_server {
    struct fbr_sp_server *sp;
    bool local; /* a unix socket */
    char url[FBR_URL_MAX];
    struct fbr_data_server_options options;
    uint32_t ticks;    /* atomic: counts only time in which this process ran */
    uint32_t patience; /* ticks */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the table, and `busy` and `closed` of the links */
    pthread_cond_t idle;
    struct fbr_link *links;
    struct fbr_spare spare; /* data server thread only */
};

static uint32_t ticks_of(const struct fbr_data_server *h)
{
    return __atomic_load_n(&h->ticks, __ATOMIC_RELAXED);
}

/* Sends the next message, or an empty one if there are no records. Under the link's lock. */
static int send_next(struct fbr_link *l)
{
    void *msg;
    size_t len;
    int rc;

    l->answers = fbr_mux_empty(&l->out);
    l->asked = 0;
    rc = fbr_mux_take(&l->out, 0, &msg, &len);
    if (rc < 0)
        return l->failed = rc;
    l->sent++;
    l->sent_at = ticks_of(l->data_server);
    rc = fbr_sp_send(l->conn, msg, len);
    if (rc < 0)
        l->failed = rc;
    return rc;
}

/* Sends the next message if there is one and the peer is ready for it. Under the link's lock. */
static int push(struct fbr_link *l)
{
    if (!l->conn || l->broken || l->sent != l->acked || fbr_mux_empty(&l->out))
        return 0;
    return send_next(l);
}

struct arrival {
    struct fbr_link *link;
    struct fbr_sp_conn *conn;
};

/* Handles the link's first message, which proves its connection. If the peer has not received our
 * answer, it sends the message again on another connection; until then the peer has sent nothing
 * else. */
static void meet(struct fbr_link *l, const struct arrival *a)
{
    l->met = true;
    if (l->conn)
        fbr_sp_hang_up(l->conn);
    l->conn = a->conn;
    l->heard_at = ticks_of(l->data_server);
    l->sent = l->acked = l->out.seq = 0;
    l->fresh = !l->data_server->local && fbr_mux_empty(&l->out);
    fbr_sp_prove(a->conn, l->id);
    if (l->fresh)
        send_next(l);
}

/* Whether the peer may connect again and repeat its first message. */
static bool is_fresh(const struct fbr_link *l)
{
    return l->fresh && l->sent == 1 && l->acked == 0 && l->in.seq == 1;
}

/* Whether the last message to a waiting peer should have arrived by now. A peer that waits sends
 * empty messages. An answer has one heartbeat less: when the peer sent its beat, it had heard
 * nothing for that long already. A peer that was stopped meanwhile reads the answer late, but has
 * sent fewer beats. */
static bool is_overdue(const struct fbr_link *l)
{
    const struct fbr_data_server *h = l->data_server;
    unsigned beats = h->options.misses > 1 ? h->options.misses - 1 : 1;
    uint32_t patience = l->answers ? TICKS * beats - 1 : h->patience;

    return ticks_of(h) - l->sent_at >= patience && (!l->answers || l->asked >= beats) &&
           fbr_sp_all_arrived(l->conn);
}

/* Handles a beat, which a peer sends when it has nothing else to send. The data server answers the
 * beat if nothing else went to the peer for a while; the peer's next beat shows whether the peer
 * holds the answer. */
static void on_beat(struct fbr_link *l)
{
    if (!l->conn || !l->data_server->patience)
        return;
    if (l->sent == l->acked) {
        if (ticks_of(l->data_server) != l->sent_at)
            send_next(l);
        return;
    }
    l->asked++;
    if (is_overdue(l))
        l->failed = -ETIMEDOUT;
}

/* Called when a message is authentic, and is the next one. */
static void on_ack(void *user, uint32_t ack, bool records)
{
    struct arrival *a = user;
    struct fbr_link *l = a->link;
    bool first;

    pthread_mutex_lock(&l->lock);
    first = !l->met || (l->conn != a->conn && l->in.repeats);
    if (first)
        meet(l, a);
    if (ack == l->sent)
        l->acked = ack;
    push(l);
    if (!records)
        on_beat(l);
    pthread_mutex_unlock(&l->lock);
}

static void unref(struct fbr_link *l);

/* Ends the calls into a link, and wakes a thread that waits for this in fbr_link_close(). Takes the
 * data server's lock. */
static void end_call(struct fbr_data_server *h, struct fbr_link *l)
{
    bool orphan;

    pthread_mutex_lock(&h->lock);
    l->busy = false;
    orphan = l->orphan;
    pthread_cond_broadcast(&h->idle);
    pthread_mutex_unlock(&h->lock);
    if (orphan)
        unref(l);
}

/* Passes a record of a stream to its branch, if the branch still exists. An empty record is from
 * the job's host process: no more records come. */
static void deliver_to_branch(struct fbr_link *trunk, const void *record, size_t len)
{
    struct fbr_data_server *h = trunk->data_server;
    struct fbr_link *b;

    pthread_mutex_lock(&h->lock);
    HASH_FIND(hh, trunk->branches, &trunk->in.stream, sizeof(trunk->in.stream), b);
    if (b)
        b->busy = true;
    pthread_mutex_unlock(&h->lock);
    if (!b)
        return;
    if (len == 0)
        b->on_drained(b->drained_user);
    else
        b->ops->on_record(b->user, b, record, len);
    end_call(h, b);
}

static bool has_branch(void *user, uint64_t stream)
{
    struct fbr_link *trunk = user, *b;

    pthread_mutex_lock(&trunk->data_server->lock);
    HASH_FIND(hh, trunk->branches, &stream, sizeof(stream), b);
    pthread_mutex_unlock(&trunk->data_server->lock);
    return b;
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_link *l = ((struct arrival *)user)->link;

    if (__atomic_load_n(&l->closed, __ATOMIC_ACQUIRE))
        return;
    if (l->in.stream)
        deliver_to_branch(l, record, len);
    else if (l->ops->on_record)
        l->ops->on_record(l->user, l, record, len);
}

static void break_link(struct fbr_link *l, int why)
{
    bool before;

    pthread_mutex_lock(&l->lock);
    before = l->broken;
    l->broken = true;
    pthread_mutex_unlock(&l->lock);
    if (before)
        return;
    if (l->in.fault)
        fbr_warn("data link %016llx is broken: %s", (unsigned long long)l->id, l->in.fault);
    else
        fbr_info("data link %016llx is broken: %s", (unsigned long long)l->id, fbr_strerror(why));
    if (!__atomic_load_n(&l->closed, __ATOMIC_ACQUIRE))
        l->ops->on_broken(l->user, l, why);
}

static int has_failed(struct fbr_link *l)
{
    int failed;

    pthread_mutex_lock(&l->lock);
    failed = l->failed;
    pthread_mutex_unlock(&l->lock);
    return failed;
}

static void free_link(struct fbr_link *l)
{
    fbr_mux_out_fini(&l->out);
    fbr_mux_in_fini(&l->in);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Call this without the data server's lock. */
static void unref(struct fbr_link *l)
{
    struct fbr_link *trunk = l->trunk;
    bool last;

    pthread_mutex_lock(&l->data_server->lock);
    last = --l->refs == 0;
    pthread_mutex_unlock(&l->data_server->lock);
    if (!last)
        return;
    free_link(l);
    if (trunk)
        unref(trunk);
}

/* Finds the link with that id and marks it busy until end_call(). */
static struct fbr_link *grab(struct fbr_data_server *h, uint64_t id)
{
    bool pruned = false;
    struct fbr_link *l;

    pthread_mutex_lock(&h->lock);
    HASH_FIND(hh, h->links, &id, sizeof(id), l);
    if (l) {
        l->busy = true;
        l->in.streams = l->streams;
        pruned = l->pruned;
        l->pruned = false;
    }
    pthread_mutex_unlock(&h->lock);
    if (pruned)
        fbr_mux_forget(&l->in);
    return l;
}

/* Checks whether this connection may belong to the link. -EACCES: the link is broken, or the
 * message proves nothing, because it came over TCP and is not encrypted. -EPIPE: the link has
 * another connection. A second connection of a peer means that the peer has lost the first one,
 * unless only the first message arrived on the second. */
static int check_conn(struct fbr_link *l, const struct fbr_sp_conn *conn)
{
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    l->in.repeats = l->conn != conn && is_fresh(l);
    if (l->broken || (!l->in.sealed && !l->data_server->local))
        rc = -EACCES;
    else if (l->met && l->conn != conn && !l->in.repeats)
        rc = -EPIPE;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

/* Opens and handles a message. Negative: the caller must take nothing more from that connection.
 * Anybody who can reach the port can send bytes that are not authentic, so these break nothing but
 * their connection. */
static int open_message(struct arrival *a, void *msg, size_t len)
{
    struct fbr_link *l = a->link;
    int conn = check_conn(l, a->conn), rc;

    if (conn == -EACCES)
        return conn;
    rc = fbr_mux_open(&l->in, msg, len, on_ack, on_record, a);
    if (rc == -EBADMSG && l->in.sealed)
        return rc;
    if (rc < 0 || (rc = conn) < 0 || (rc = has_failed(l)) < 0)
        break_link(l, rc);
    return rc;
}

static int take_message(struct fbr_data_server *h, struct arrival *a, void *msg, size_t len)
{
    uint64_t id, own;
    int rc = fbr_mux_link(msg, len, &id);

    if (rc < 0)
        return rc;
    if (fbr_sp_is_proven(a->conn, &own) && own != id)
        return -EPROTO;
    a->link = grab(h, id);
    if (!a->link)
        return -ENOENT;
    rc = open_message(a, msg, len);
    end_call(h, a->link);
    return rc;
}

/* ---- The server's events ---- */

static int on_message(void *user, struct fbr_sp_conn *conn, void *msg, size_t len)
{
    return take_message(user, &(struct arrival){.conn = conn}, msg, len);
}

/* Handles the end of a connection. A peer that closes may be about to announce its end on the
 * control channel, or to connect again: it has until the second tick. */
static void on_end(void *user, struct fbr_sp_conn *conn, int why)
{
    struct fbr_data_server *h = user;
    struct fbr_link *l;
    uint64_t id;
    bool its, waits = why == -EPIPE || why == -ECONNRESET;

    fbr_sp_is_proven(conn, &id);
    l = grab(h, id);
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    its = l->conn == conn;
    if (its) {
        waits = waits && (h->local || h->patience || is_fresh(l));
        l->conn = NULL;
        l->heard_at = ticks_of(h);
    }
    pthread_mutex_unlock(&l->lock);
    if (its && !waits)
        break_link(l, why);
    end_call(h, l);
}

/* Returns the reason why a link must break, or 0. Under the data server's lock. */
static int look_at(struct fbr_link *l, uint32_t now)
{
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    if (l->conn && fbr_sp_progressed(l->conn))
        l->heard_at = now;
    if (l->met && !l->broken) {
        if (!l->conn)
            rc = now - l->heard_at >= TICKS ? -EPIPE : 0;
        else
            rc = now - l->heard_at >= l->data_server->patience ? -ETIMEDOUT : 0;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

static void on_tick(void *user)
{
    struct due {
        uint64_t id;
        int why;
    } due[DUE_MAX];
    struct fbr_data_server *h = user;
    uint32_t now = __atomic_add_fetch(&h->ticks, 1, __ATOMIC_RELAXED);
    struct fbr_link *l, *next;
    int n;

    do {
        n = 0;
        pthread_mutex_lock(&h->lock);
        HASH_ITER(hh, h->links, l, next) {
            int why = n < DUE_MAX ? look_at(l, now) : 0;

            if (why < 0)
                due[n++] = (struct due){l->id, why};
        }
        pthread_mutex_unlock(&h->lock);
        for (int i = 0; i < n; i++) {
            l = grab(h, due[i].id);
            if (l) {
                break_link(l, due[i].why);
                end_call(h, l);
            }
        }
    } while (n == DUE_MAX);
}

static const struct fbr_sp_server_ops server_ops = {
    .on_message = on_message, .on_end = on_end, .on_tick = on_tick};

/* ---- The data server ---- */

static void *data_server_main(void *arg)
{
    struct fbr_data_server *h = arg;

    pthread_setname_np(pthread_self(), "fbr-data");
    fbr_sp_server_run(h->sp);
    return NULL;
}

static int start_listening(struct fbr_data_server *h, const char *url, struct fbr_error *err)
{
    const struct fbr_data_server_options *o = &h->options;
    int rc = fbr_sp_server_open(&h->sp, url, o->own_user, &server_ops, h, err);

    if (rc < 0)
        return rc;
    snprintf(h->url, sizeof(h->url), "%s", fbr_sp_server_url(h->sp));
    if (o->beat_ms && o->misses && !h->local) {
        /* Arrived bytes are noticed at the next tick, so the patience is one tick shorter. */
        h->patience = o->misses > 1 ? TICKS * o->misses - 1 : TICKS + 1;
        fbr_sp_server_patience(h->sp, (uint64_t)o->beat_ms * o->misses, o->beat_ms / TICKS);
    }
    return 0;
}

static void free_data_server(struct fbr_data_server *h)
{
    fbr_sp_server_close(h->sp);
    free(h->spare.data);
    pthread_cond_destroy(&h->idle);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

int fbr_data_server_open(struct fbr_data_server **out, const char *url,
                         const struct fbr_data_server_options *options, struct fbr_error *err)
{
    struct fbr_data_server *h = calloc(1, sizeof(*h));
    int rc;

    if (!h)
        return fbr_fail(err, -ENOMEM, "data channel: out of memory");
    h->options = *options;
    h->local = fbr_unix_path(url) != NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->idle, NULL);
    rc = start_listening(h, url, err);
    if (rc < 0)
        goto fail;
    rc = fbr_thread_start(&h->thread, data_server_main, h);
    if (rc < 0) {
        fbr_fail(err, rc, "data channel: cannot start a thread: %s", fbr_strerror(rc));
        goto fail;
    }
    *out = h;
    return 0;
fail:
    free_data_server(h);
    return rc;
}

const char *fbr_data_server_url(const struct fbr_data_server *h)
{
    return h->url;
}

unsigned fbr_data_server_beat_ms(const struct fbr_data_server *h)
{
    return h->patience ? h->options.beat_ms : 0;
}

bool fbr_data_server_here(const struct fbr_data_server *h)
{
    return h && pthread_equal(h->thread, pthread_self());
}

void fbr_data_server_close(struct fbr_data_server *h)
{
    if (!h)
        return;
    fbr_sp_server_stop(h->sp);
    pthread_join(h->thread, NULL);
    free_data_server(h);
}

static int init_mux(struct fbr_link *l, const struct fbr_keys *keys)
{
    enum fbr_aead_alg alg = keys ? keys->alg : 0;
    size_t limit = l->data_server->options.limit;
    int rc;

    if ((rc = fbr_mux_out_init(&l->out, l->id, keys ? keys->down : NULL, alg)) < 0 ||
        (rc = fbr_mux_in_init(&l->in, l->id, keys ? keys->up : NULL, alg, limit)) < 0)
        return rc;
    l->in.spare = &l->data_server->spare;
    l->in.held = l->data_server->options.held;
    l->in.is_open = has_branch;
    l->in.user = l;
    return 0;
}

int fbr_link_open(struct fbr_link **out, struct fbr_data_server *h, const struct fbr_link_ops *ops,
                  void *user)
{
    struct fbr_link *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    rc = fbr_random(&l->id, sizeof(l->id));
    if (rc < 0) {
        free(l);
        return rc;
    }
    l->refs = 1;
    l->data_server = h;
    l->ops = ops;
    l->user = user;
    pthread_mutex_init(&l->lock, NULL);
    rc = init_mux(l, NULL);
    if (rc < 0)
        goto fail;
    pthread_mutex_lock(&h->lock);
    HASH_ADD(hh, h->links, id, sizeof(l->id), l);
    rc = l->hh.tbl ? 0 : -ENOMEM;
    pthread_mutex_unlock(&h->lock);
    if (rc < 0)
        goto fail;
    *out = l;
    return 0;
fail:
    free_link(l);
    return rc;
}

int fbr_link_branch(struct fbr_link **out, struct fbr_link *trunk, uint64_t stream,
                    const struct fbr_link_ops *ops, void *user, void (*on_drained)(void *user),
                    void *drained_user)
{
    struct fbr_data_server *h = trunk->data_server;
    struct fbr_link *l = calloc(1, sizeof(*l));
    bool added;

    if (!l)
        return -ENOMEM;
    *l = (struct fbr_link){.id = stream,
                           .trunk = trunk,
                           .refs = 1,
                           .on_drained = on_drained,
                           .drained_user = drained_user,
                           .data_server = h,
                           .ops = ops,
                           .user = user};
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_lock(&h->lock);
    HASH_ADD(hh, trunk->branches, id, sizeof(l->id), l);
    added = l->hh.tbl != NULL;
    trunk->refs += added;
    if (added && stream > trunk->streams)
        trunk->streams = stream;
    pthread_mutex_unlock(&h->lock);
    if (!added) {
        free_link(l);
        return -ENOMEM;
    }
    *out = l;
    return 0;
}

int fbr_link_seal(struct fbr_link *l, const struct fbr_keys *keys)
{
    int rc;

    pthread_mutex_lock(&l->lock);
    fbr_mux_out_fini(&l->out);
    fbr_mux_in_fini(&l->in);
    rc = init_mux(l, keys);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

uint64_t fbr_link_id(const struct fbr_link *l)
{
    return l->id;
}

int fbr_link_send(struct fbr_link *l, const struct iovec *iov, int n)
{
    uint64_t stream = l->trunk ? l->id : 0;
    int rc;

    if (l->trunk)
        l = l->trunk;
    pthread_mutex_lock(&l->lock);
    rc = l->broken ? -EPIPE : fbr_mux_add_to(&l->out, stream, iov, n);
    if (rc == 0)
        rc = push(l);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

size_t fbr_link_queued(struct fbr_link *l)
{
    size_t n;

    if (l->trunk)
        l = l->trunk;
    pthread_mutex_lock(&l->lock);
    n = l->out.queued;
    pthread_mutex_unlock(&l->lock);
    return n;
}

void fbr_link_close(struct fbr_link *l)
{
    struct fbr_data_server *h;
    bool mine = true;

    if (!l)
        return;
    h = l->data_server;
    if (!l->trunk) {
        pthread_mutex_lock(&l->lock);
        l->broken = true; /* for branches that exist longer than the trunk */
        if (l->conn)
            fbr_sp_hang_up(l->conn);
        l->conn = NULL;
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_lock(&h->lock);
    if (l->trunk) {
        HASH_DELETE(hh, l->trunk->branches, l);
        l->trunk->pruned = true;
    } else {
        HASH_DELETE(hh, h->links, l);
    }
    __atomic_store_n(&l->closed, true, __ATOMIC_RELEASE);
    if (l->busy && pthread_equal(pthread_self(), h->thread)) {
        l->orphan = true;
        mine = false;
    }
    while (mine && l->busy)
        pthread_cond_wait(&h->idle, &h->lock);
    pthread_mutex_unlock(&h->lock);
    if (mine)
        unref(l);
}
