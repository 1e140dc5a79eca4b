/* hub.c - the serving side of the data channel; see hub.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/hub.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>

#include "runtime/auth.h"
#include "runtime/log.h"
#include "runtime/sock.h"

struct fbr_link {
    uint64_t id;                       /* of a branch: its stream */
    struct fbr_link *trunk, *branches; /* under the hub's lock; a branch's trunk stays as it is */
    int refs;                          /* its own, each branch's. Under the hub's lock */
    void (*on_dry)(void *user);        /* of a branch */
    void *dry_user;
    struct fbr_hub *hub;
    const struct fbr_link_ops *ops;
    void *user;
    pthread_mutex_t lock; /* out, route, sent, acked, broken */
    struct fbr_lane_out out;
    struct fbr_route route; /* how the peer's last message came */
    uint32_t sent, acked;   /* messages down; equal: the peer holds all of them */
    bool met, broken;
    int failed;            /* why push() could not send */
    struct fbr_lane_in in; /* hub thread only */
    uint64_t streams;      /* the highest of its branches, ever. Under the hub's lock */
    bool pruned;           /* branches were closed since its last message. Under the hub's lock */
    bool busy, closed;     /* in a callback; not to be called any more. Under the hub's lock */
    bool
        /* closed within its own callback: the hub's thread frees it. Under the hub's lock */
        orphan;
    UT_hash_handle hh;
};

struct fbr_hub {
    struct fbr_sock *sock;
    size_t limit;
    int wake;
    bool stop; /* under lock */
    pthread_t thread;
    pthread_mutex_t lock; /* the table, busy and closed of its links */
    pthread_cond_t idle;
    struct fbr_link *links;
    struct fbr_spare spare; /* hub thread only */
};

/* Sends the next message if the peer is ready for it. Under the link's lock. */
static int push(struct fbr_link *l)
{
    void *msg;
    size_t len;
    int rc;

    if (!l->met || l->broken || l->sent != l->acked || fbr_lane_empty(&l->out))
        return 0;
    rc = fbr_lane_take(&l->out, 0, &msg, &len);
    if (rc < 0) {
        l->failed = rc;
        return rc;
    }
    l->sent++;
    rc = fbr_sock_send(l->hub->sock, &l->route, msg, 0);
    if (rc < 0) {
        fbr_sock_free(msg);
        l->failed = rc;
    }
    return rc;
}

struct arrival {
    struct fbr_link *link;
    const struct fbr_route *route;
};

static void on_ack(void *user, uint32_t ack, bool records)
{
    struct arrival *a = user;
    struct fbr_link *l = a->link;

    (void)records;
    pthread_mutex_lock(&l->lock);
    l->route = *a->route;
    l->met = true;
    if (ack == l->sent)
        l->acked = ack;
    push(l);
    pthread_mutex_unlock(&l->lock);
}

static void unref(struct fbr_link *l);

/* Calls into a link are over: somebody may wait for that. Takes and leaves the hub's lock. */
static void end_call(struct fbr_hub *h, struct fbr_link *l)
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

/* A record of a stream: for its branch, if there is one still. An empty one is the host's: nothing
 * more comes. */
static void give_branch(struct fbr_link *trunk, const void *record, size_t len)
{
    struct fbr_hub *h = trunk->hub;
    struct fbr_link *b;

    pthread_mutex_lock(&h->lock);
    HASH_FIND(hh, trunk->branches, &trunk->in.stream, sizeof(trunk->in.stream), b);
    if (b)
        b->busy = true;
    pthread_mutex_unlock(&h->lock);
    if (!b)
        return;
    if (len == 0)
        b->on_dry(b->dry_user);
    else
        b->ops->on_record(b->user, b, record, len);
    end_call(h, b);
}

static bool has_branch(void *user, uint64_t stream)
{
    struct fbr_link *trunk = user, *b;

    pthread_mutex_lock(&trunk->hub->lock);
    HASH_FIND(hh, trunk->branches, &stream, sizeof(stream), b);
    pthread_mutex_unlock(&trunk->hub->lock);
    return b;
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_link *l = ((struct arrival *)user)->link;

    if (__atomic_load_n(&l->closed, __ATOMIC_ACQUIRE))
        return;
    if (l->in.stream)
        give_branch(l, record, len);
    else
        l->ops->on_record(l->user, l, record, len);
}

static void break_link(struct fbr_link *l, int why)
{
    pthread_mutex_lock(&l->lock);
    l->broken = true;
    pthread_mutex_unlock(&l->lock);
    if (l->in.fault)
        fbr_warn("data link %016llx is broken: %s", (unsigned long long)l->id, l->in.fault);
    else
        fbr_info("data link %016llx is broken: %s", (unsigned long long)l->id, fbr_strerror(why));
    if (!__atomic_load_n(&l->closed, __ATOMIC_ACQUIRE))
        l->ops->on_broken(l->user, l, why);
}

static bool is_broken(struct fbr_link *l)
{
    bool broken;

    pthread_mutex_lock(&l->lock);
    broken = l->broken;
    pthread_mutex_unlock(&l->lock);
    return broken;
}

static int has_failed(struct fbr_link *l)
{
    int failed;

    pthread_mutex_lock(&l->lock);
    failed = l->broken ? 0 : l->failed;
    pthread_mutex_unlock(&l->lock);
    return failed;
}

static void free_link(struct fbr_link *l)
{
    fbr_lane_out_fini(&l->out);
    fbr_lane_in_fini(&l->in);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Not under the hub's lock. */
static void unref(struct fbr_link *l)
{
    struct fbr_link *trunk = l->trunk;
    bool last;

    pthread_mutex_lock(&l->hub->lock);
    last = --l->refs == 0;
    pthread_mutex_unlock(&l->hub->lock);
    if (!last)
        return;
    free_link(l);
    if (trunk)
        unref(trunk);
}

static void take_message(struct fbr_hub *h, const struct fbr_route *route, void *msg, size_t len)
{
    struct arrival a = {.route = route};
    uint64_t id, streams = 0;
    bool pruned = false;
    int rc;

    if (fbr_lane_link(msg, len, &id) < 0)
        return;
    pthread_mutex_lock(&h->lock);
    HASH_FIND(hh, h->links, &id, sizeof(id), a.link);
    if (a.link) {
        a.link->busy = true;
        streams = a.link->streams;
        pruned = a.link->pruned;
        a.link->pruned = false;
    }
    pthread_mutex_unlock(&h->lock);
    if (!a.link)
        return;
    a.link->in.streams = streams;
    if (pruned)
        fbr_lane_forget(&a.link->in);
    rc = is_broken(a.link) ? 0 : fbr_lane_open(&a.link->in, msg, len, on_ack, on_record, &a);
    /* Bytes that are not authentic may come from anybody who reached the port: they break
     * nothing. */
    if (rc == -EBADMSG && a.link->in.sealed)
        rc = 0;
    if (rc == 0)
        rc = has_failed(a.link);
    if (rc < 0)
        break_link(a.link, rc);
    end_call(h, a.link);
}

static void *hub_main(void *arg)
{
    struct fbr_hub *h = arg;
    struct pollfd p[2] = {{.fd = fbr_sock_fd(h->sock), .events = POLLIN},
                          {.fd = h->wake, .events = POLLIN}};

    pthread_setname_np(pthread_self(), "fbr-hub");
    while (poll(p, 2, -1) >= 0 || errno == EINTR) {
        struct fbr_route route;
        void *msg;
        size_t len;

        if (p[1].revents)
            break;
        while (fbr_sock_recv(h->sock, &route, &msg, &len) == 0) {
            take_message(h, &route, msg, len);
            fbr_sock_free(msg);
        }
    }
    return NULL;
}

int fbr_hub_open(struct fbr_hub **out, const char *url, size_t limit, struct fbr_error *err)
{
    struct fbr_hub *h = calloc(1, sizeof(*h));
    sigset_t all, old;
    int rc;

    if (!h)
        return fbr_fail(err, -ENOMEM, "data channel: out of memory");
    h->limit = limit;
    h->wake = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->idle, NULL);
    rc = h->wake < 0 ? fbr_fail(err, -errno, "data channel: %s", fbr_strerror(errno))
                     : fbr_sock_bind(&h->sock, url, err);
    if (rc == 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = -pthread_create(&h->thread, NULL, hub_main, h);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc < 0)
            fbr_fail(err, rc, "data channel: no thread: %s", fbr_strerror(rc));
    }
    if (rc < 0) {
        fbr_sock_close(h->sock);
        if (h->wake >= 0)
            close(h->wake);
        free(h);
        return rc;
    }
    *out = h;
    return 0;
}

bool fbr_hub_here(const struct fbr_hub *h)
{
    return h && pthread_equal(h->thread, pthread_self());
}

void fbr_hub_close(struct fbr_hub *h)
{
    uint64_t one = 1;

    if (!h)
        return;
    if (write(h->wake, &one, sizeof(one)) < 0)
        fbr_debug("data channel: wake: %m");
    pthread_join(h->thread, NULL);
    fbr_sock_close(h->sock);
    close(h->wake);
    free(h->spare.data);
    pthread_cond_destroy(&h->idle);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static int init_lanes(struct fbr_link *l, const struct fbr_keys *keys)
{
    enum fbr_seal_alg alg = keys ? keys->alg : 0;
    int rc = fbr_lane_out_init(&l->out, l->id, keys ? keys->down : NULL, alg);

    if (rc == 0)
        rc = fbr_lane_in_init(&l->in, l->id, keys ? keys->up : NULL, alg, l->hub->limit);
    l->in.spare = &l->hub->spare;
    l->in.is_open = has_branch;
    l->in.user = l;
    return rc;
}

int fbr_link_open(struct fbr_link **out, struct fbr_hub *h, const struct fbr_link_ops *ops,
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
    l->hub = h;
    l->ops = ops;
    l->user = user;
    pthread_mutex_init(&l->lock, NULL);
    rc = init_lanes(l, NULL);
    pthread_mutex_lock(&h->lock);
    HASH_ADD(hh, h->links, id, sizeof(l->id), l);
    if (rc == 0 && !l->hh.tbl)
        rc = -ENOMEM;
    if (rc < 0 && l->hh.tbl)
        HASH_DELETE(hh, h->links, l);
    pthread_mutex_unlock(&h->lock);
    if (rc < 0)
        free_link(l);
    else
        *out = l;
    return rc;
}

int fbr_link_branch(struct fbr_link **out, struct fbr_link *trunk, uint64_t stream,
                    const struct fbr_link_ops *ops, void *user, void (*on_dry)(void *user),
                    void *dry_user)
{
    struct fbr_hub *h = trunk->hub;
    struct fbr_link *l = calloc(1, sizeof(*l));
    bool added;

    if (!l)
        return -ENOMEM;
    *l = (struct fbr_link){.id = stream,
                           .trunk = trunk,
                           .refs = 1,
                           .on_dry = on_dry,
                           .dry_user = dry_user,
                           .hub = h,
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
    fbr_lane_out_fini(&l->out);
    fbr_lane_in_fini(&l->in);
    rc = init_lanes(l, keys);
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
    rc = l->broken ? -EPIPE : fbr_lane_add_to(&l->out, stream, iov, n);
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
    struct fbr_hub *h;
    bool mine = true;

    if (!l)
        return;
    h = l->hub;
    if (!l->trunk) {
        pthread_mutex_lock(&l->lock);
        l->broken = true; /* for branches that outlive it */
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
