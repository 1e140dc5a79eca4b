/* sp_server.c - the server socket of the data channel.
 *
 * The running thread owns the connections. Only their output is shared, under the lock of each
 * connection. A connection that ends while events are handled stays in a list until all are
 * handled, because a later event may name it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/sp_server.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/net/conn.h"
#include "runtime/base/fds.h"
#include "runtime/net/mux.h"
#include "runtime/base/log.h"
#include "runtime/net/sock.h"
#include "runtime/net/sp.h"
#include "runtime/net/tcp.h"

#define EVENTS 64
#define CALLS 16       /* calls accepted in a row before other connections have their turn */
#define OWN_FDS 3      /* listening, epoll, eventfd */
#define UNPROVEN_MIN 8 /* places that remain even if descriptors are short */
#define SHORT_MS 100   /* time until the next accept, after one without a free descriptor */
/* For a unix socket, per direction, as far as the kernel allows it. */
#define BUFFER_SIZE (1024 * 1024)

struct fbr_sp_conn {
    struct fbr_sp_server *server;
    struct fbr_sp_conn *prev, *next; /* in its list: unproven, proven or dead */
    int fd;                          /* -1: the connection has ended */
    uint64_t since_ms;
    uint8_t from[16]; /* the address of its host */
    bool proven;
    size_t came; /* bytes since the last progress; FBR_SP_PROGRESS: a whole message, too */
    uint64_t link;
    struct fbr_sp_in in;
    pthread_mutex_t lock; /* guards msg, len and sent */
    void *msg;            /* a message that is not completely sent; NULL: nothing waits */
    size_t len, sent;     /* `sent` includes the head */
};

struct fbr_sp_server {
    const struct fbr_sp_server_ops *ops;
    void *user;
    bool own_user;
    bool local; /* a unix socket: there are no strangers */
    int listening, ep, wake;
    char url[FBR_URL_MAX];
    unsigned tick_ms;
    uint64_t silent_ms, tick_at, deaf_until; /* deaf_until 0: callers are accepted */
    struct fbr_sp_conn *unproven, *proven, *dead;
    int n_unproven, unproven_max, reserved;
    uint8_t *scratch;
};

static int watch(struct fbr_sp_server *s, int op, int fd, uint32_t events, void *who)
{
    struct epoll_event e = {.events = events, .data.ptr = who};

    return epoll_ctl(s->ep, op, fd, &e) < 0 ? -errno : 0;
}

/* ---- Sending: any thread ---- */

/* Sends what the kernel takes, under the connection's lock. True: all is sent, or nothing more can
 * be sent. The kernel may lack memory for a message although the connection is whole: it is shut
 * down, so that both sides notice. */
static bool send_some(struct fbr_sp_conn *c)
{
    int rc = fbr_sp_write(c->fd, c->msg, c->len, &c->sent, c->in.local);

    if (rc == -EAGAIN)
        return false;
    if (rc < 0)
        fbr_sp_hang_up(c);
    fbr_sock_free(c->msg);
    c->msg = NULL;
    return true;
}

int fbr_sp_send(struct fbr_sp_conn *c, void *msg, size_t len)
{
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (c->msg) {
        fbr_sock_free(msg);
        rc = -EBUSY;
    } else {
        c->msg = msg;
        c->len = len;
        c->sent = 0;
        if (!send_some(c))
            rc = watch(c->server, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT, c);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

bool fbr_sp_all_arrived(struct fbr_sp_conn *c)
{
    int waits = 0;
    bool arrived;

    pthread_mutex_lock(&c->lock);
    arrived = !c->msg && ioctl(c->fd, SIOCOUTQ, &waits) == 0 && waits == 0;
    pthread_mutex_unlock(&c->lock);
    return arrived;
}

bool fbr_sp_progressed(struct fbr_sp_conn *c)
{
    bool progressed = c->came >= FBR_SP_PROGRESS;

    if (progressed)
        c->came = 0;
    return progressed;
}

void fbr_sp_hang_up(struct fbr_sp_conn *c)
{
    shutdown(c->fd, SHUT_RDWR);
}

/* ---- A connection's life: running thread ---- */

void fbr_sp_prove(struct fbr_sp_conn *c, uint64_t link)
{
    struct fbr_sp_server *s = c->server;

    if (c->proven)
        return;
    DL_DELETE(s->unproven, c);
    s->n_unproven--;
    DL_APPEND(s->proven, c);
    c->proven = true;
    c->link = link;
    c->in.most = FBR_SOCK_MAX;
    if (s->silent_ms && !s->local)
        fbr_tcp_patience(c->fd, s->silent_ms);
}

bool fbr_sp_is_proven(const struct fbr_sp_conn *c, uint64_t *link)
{
    *link = c->link;
    return c->proven;
}

static void end(struct fbr_sp_conn *c, int why)
{
    static const struct linger at_once = {.l_onoff = 1};
    struct fbr_sp_server *s = c->server;

    if (c->proven) {
        s->ops->on_end(s->user, c, why);
        DL_DELETE(s->proven, c);
    } else {
        /* The kernel must not keep its bytes, either. */
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        fbr_debug("data channel: a caller did not authenticate: %s", fbr_strerror(why));
        DL_DELETE(s->unproven, c);
        s->n_unproven--;
    }
    /* Closing alone is not enough: a child that is being started may have a copy of the
     * descriptor. */
    watch(s, EPOLL_CTL_DEL, c->fd, 0, NULL);
    if (c->proven)
        shutdown(c->fd, SHUT_RDWR);
    close(c->fd);
    c->fd = -1;
    DL_APPEND(s->dead, c);
}

static void free_conn(struct fbr_sp_conn *c)
{
    fbr_fds_close(c->fd);
    fbr_sock_free(c->msg);
    fbr_sp_in_fini(&c->in);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void free_all(struct fbr_sp_conn **list)
{
    struct fbr_sp_conn *c, *next;

    DL_FOREACH_SAFE(*list, c, next) {
        DL_DELETE(*list, c);
        free_conn(c);
    }
}

static int on_message(void *user, void *msg, size_t len)
{
    struct fbr_sp_conn *c = user;
    int rc = c->server->ops->on_message(c->server->user, c, msg, len);

    if (rc < 0)
        return rc;
    c->came = FBR_SP_PROGRESS;
    return rc;
}

static void receive(struct fbr_sp_conn *c)
{
    struct fbr_sp_server *s = c->server;
    size_t room;
    void *to = fbr_sp_room(&c->in, s->scratch, &room);
    ssize_t n = recv(c->fd, to, room, MSG_DONTWAIT);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->came += n > 0 ? (size_t)n : 0;
    rc = n < 0    ? -errno
         : n == 0 ? -EPIPE
                  : fbr_sp_took(&c->in, s->scratch, (size_t)n, on_message, c);
    if (rc < 0)
        end(c, rc);
}

static void on_event(struct fbr_sp_conn *c, uint32_t events)
{
    if (c->fd >= 0 && (events & EPOLLOUT)) {
        pthread_mutex_lock(&c->lock);
        if (!c->msg || send_some(c))
            watch(c->server, EPOLL_CTL_MOD, c->fd, EPOLLIN, c);
        pthread_mutex_unlock(&c->lock);
    }
    if (c->fd >= 0 && (events & ~(uint32_t)EPOLLOUT))
        receive(c);
}

/* ---- Callers ---- */

/* Finds the oldest unproven connection from the address that has most of them. */
static struct fbr_sp_conn *most_crowded(struct fbr_sp_server *s)
{
    struct fbr_sp_conn *found = s->unproven, *c, *other;
    int most = 0;

    DL_FOREACH(s->unproven, c) {
        int n = 0;

        DL_FOREACH(s->unproven, other)
            n += memcmp(c->from, other->from, sizeof(c->from)) == 0;
        if (n > most)
            found = c;
        most = n > most ? n : most;
        if (2 * most >= s->n_unproven)
            break;
    }
    return found;
}

static void make_room(struct fbr_sp_server *s)
{
    struct fbr_sp_conn *c = most_crowded(s);

    if (!c)
        return;
    receive(c); /* the message that proves it may have arrived and not been read yet */
    if (c->fd >= 0 && !c->proven)
        end(c, -EBUSY);
}

static bool is_foreign(const struct fbr_sp_server *s, int fd, const struct sockaddr_storage *from)
{
    int rc = s->own_user && !s->local ? fbr_tcp_check_owner(fd, from) : 0;

    if (rc < 0)
        fbr_debug("data channel: refused a caller on this host: %s",
                  rc == -EPERM ? "another user" : fbr_strerror(rc));
    return rc < 0;
}

static void set_up(const struct fbr_sp_server *s, int fd)
{
    int on = 1, size = BUFFER_SIZE;

    if (!s->local) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static void take_call(struct fbr_sp_server *s, int fd, const struct sockaddr_storage *from)
{
    struct fbr_sp_conn *c;

    if (!s->local && s->n_unproven >= s->unproven_max)
        make_room(s);
    c = is_foreign(s, fd, from) ? NULL : calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return;
    }
    set_up(s, fd);
    c->server = s;
    c->fd = fd;
    c->since_ms = fbr_now_ms();
    c->in.local = s->local;
    c->in.most = s->local ? FBR_SOCK_MAX : FBR_MUX_EMPTY;
    fbr_tcp_host(from, c->from);
    pthread_mutex_init(&c->lock, NULL);
    if (send(fd, fbr_sp_rep_greeting, FBR_SP_GREETING, MSG_NOSIGNAL) != FBR_SP_GREETING ||
        watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, c) < 0) {
        free_conn(c);
        return;
    }
    DL_APPEND(s->unproven, c);
    s->n_unproven++;
}

/* No descriptor is left: ends an unproven connection. If there is none, callers wait in the
 * kernel's queue. */
static void on_shortage(struct fbr_sp_server *s)
{
    if (s->unproven && !s->local) {
        make_room(s);
        return;
    }
    s->deaf_until = fbr_now_ms() + SHORT_MS;
    watch(s, EPOLL_CTL_MOD, s->listening, 0, s);
}

static void on_calls(struct fbr_sp_server *s)
{
    for (int i = 0; i < CALLS; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(s->listening, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);

        if (fd >= 0) {
            take_call(s, fd, &from);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            on_shortage(s);
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

/* ---- Time ---- */

static void look_at_clock(struct fbr_sp_server *s)
{
    uint64_t now = fbr_now_ms();

    while (s->unproven && !s->local && now - s->unproven->since_ms >= FBR_SP_UNPROVEN_MS)
        end(s->unproven, -ETIMEDOUT);
    if (s->deaf_until && now >= s->deaf_until) {
        s->deaf_until = 0;
        watch(s, EPOLL_CTL_MOD, s->listening, EPOLLIN, s);
    }
    if (s->tick_ms && now >= s->tick_at) {
        /* one tick only, even if it is very late: this process may have been stopped */
        s->tick_at = now + s->tick_ms;
        s->ops->on_tick(s->user);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the milliseconds until the next event. -1: no limit. */
static int next_look(const struct fbr_sp_server *s)
{
    uint64_t now = fbr_now_ms(), at = s->tick_ms ? s->tick_at : UINT64_MAX;

    if (s->unproven && !s->local)
        at = sooner(at, s->unproven->since_ms + FBR_SP_UNPROVEN_MS);
    if (s->deaf_until)
        at = sooner(at, s->deaf_until);
    return at == UINT64_MAX ? -1 : at > now ? (int)(at - now) : 0;
}

void fbr_sp_server_patience(struct fbr_sp_server *s, uint64_t silent_ms, unsigned tick_ms)
{
    s->silent_ms = silent_ms;
    s->tick_ms = tick_ms;
    s->tick_at = fbr_now_ms() + tick_ms;
}

void fbr_sp_server_run(struct fbr_sp_server *s)
{
    struct epoll_event e[EVENTS];
    bool stop = false;

    while (!stop) {
        int n = epoll_wait(s->ep, e, EVENTS, next_look(s));

        for (int i = 0; i < n; i++)
            if (e[i].data.ptr == &s->wake)
                stop = true;
            else if (e[i].data.ptr == s)
                on_calls(s);
            else
                on_event(e[i].data.ptr, e[i].events);
        look_at_clock(s);
        free_all(&s->dead);
    }
}

void fbr_sp_server_stop(struct fbr_sp_server *s)
{
    eventfd_write(s->wake, 1);
}

/* ---- The server ---- */

static int start_listening(struct fbr_sp_server *s, const char *url)
{
    if (strlen(url) >= sizeof(s->url))
        return -ENAMETOOLONG;
    s->listening = s->local ? fbr_unix_listen(fbr_unix_path(url))
                            : fbr_tcp_listen(url, s->url, sizeof(s->url));
    if (s->listening < 0)
        return s->listening;
    if (s->local)
        strcpy(s->url, url);
    return watch(s, EPOLL_CTL_ADD, s->listening, EPOLLIN, s);
}

/* Reserves descriptors for strangers, at most a quarter of the free ones, so that strangers take
 * none from the processes that are being started. */
static void reserve(struct fbr_sp_server *s)
{
    int n = FBR_SP_UNPROVEN;

    while (n > UNPROVEN_MIN && fbr_fds_take(3 * n, n, "data channel", NULL) < 0)
        n /= 2;
    s->unproven_max = n;
    s->reserved = n > UNPROVEN_MIN ? n : 0;
}

int fbr_sp_server_open(struct fbr_sp_server **out, const char *url, bool own_user,
                       const struct fbr_sp_server_ops *ops, void *user, struct fbr_error *err)
{
    struct fbr_sp_server *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return fbr_fail(err, -ENOMEM, "data channel: out of memory");
    s->ops = ops;
    s->user = user;
    s->own_user = own_user;
    s->local = fbr_unix_path(url) != NULL;
    s->listening = s->ep = s->wake = -1;
    rc = fbr_fds_need(OWN_FDS, "data channel", err);
    if (rc < 0)
        goto fail;
    s->scratch = aligned_alloc(16, FBR_SP_SCRATCH);
    s->ep = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC);
    rc = !s->scratch ? -ENOMEM : s->ep < 0 || s->wake < 0 ? -errno : 0;
    if (rc < 0 || (rc = watch(s, EPOLL_CTL_ADD, s->wake, EPOLLIN, &s->wake)) < 0 ||
        (rc = start_listening(s, url)) < 0) {
        fbr_fail(err, rc, "data channel: %s: %s", url, fbr_strerror(rc));
        goto fail;
    }
    if (!s->local)
        reserve(s);
    *out = s;
    return 0;
fail:
    fbr_sp_server_close(s);
    return rc;
}

const char *fbr_sp_server_url(const struct fbr_sp_server *s)
{
    return s->url;
}

void fbr_sp_server_close(struct fbr_sp_server *s)
{
    if (!s)
        return;
    free_all(&s->unproven);
    free_all(&s->proven);
    free_all(&s->dead);
    fbr_fds_close(s->listening);
    if (s->local && *s->url)
        unlink(fbr_unix_path(s->url));
    fbr_fds_close(s->ep);
    fbr_fds_close(s->wake);
    fbr_fds_release(s->reserved);
    free(s->scratch);
    free(s);
}
