/* sock.c - raw nanomsg sockets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/sock.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <nanomsg/tcp.h>

#include "runtime/base/fds.h"
#include "runtime/net/tcp.h"

#define URL_MAX 128

struct fbr_sock {
    int s, in_fd, out_fd;
    bool begun;           /* calling side: the first message was sent, */
    uint64_t attempts;    /* number of connections that had broken then */
    struct fbr_route own; /* calling side: the request id that every message carries */
    char url[URL_MAX];    /* calling side */
};

#define CONTROL_SIZE (NN_CMSG_SPACE(sizeof(size_t) + sizeof(struct fbr_route)))
#define SOCKET_FDS 12             /* with those of its thread */
#define BUFFER_SIZE (1024 * 1024) /* per direction; nanomsg's own default is 128 KiB */
#define BACKLOG 4096
#define LOOK_MS 200      /* between two looks whether a connection was lost */
#define AGAIN_MS 10      /* until a failed call is made again, */
#define AGAIN_MAX_MS 160 /* twice as long after each failure, up to this */

/* An SP header travels as ancillary data: a size_t with its length, then its bytes
 * (nn_sendmsg(3)). */
static size_t put_route(void *control, const struct fbr_route *route)
{
    struct nn_cmsghdr *c = control;
    size_t n = route->len;

    c->cmsg_level = PROTO_SP;
    c->cmsg_type = SP_HDR;
    c->cmsg_len = NN_CMSG_LEN(sizeof(n) + n);
    memcpy(NN_CMSG_DATA(c), &n, sizeof(n));
    memcpy(NN_CMSG_DATA(c) + sizeof(n), route->bytes, n);
    return NN_CMSG_SPACE(sizeof(n) + n);
}

static int get_route(const struct nn_msghdr *h, struct fbr_route *route)
{
    struct nn_cmsghdr *c = NN_CMSG_FIRSTHDR(h);
    size_t n;

    while (c && !(c->cmsg_level == PROTO_SP && c->cmsg_type == SP_HDR))
        c = NN_CMSG_NXTHDR(h, c);
    if (!c)
        return -EPROTO;
    memcpy(&n, NN_CMSG_DATA(c), sizeof(n));
    if (n > sizeof(route->bytes)) /* a path through devices, which do not occur here */
        return -EPROTO;
    route->len = (uint8_t)n;
    memcpy(route->bytes, NN_CMSG_DATA(c) + sizeof(n), n);
    return 0;
}

static int set_int(int s, int option, int value)
{
    return nn_setsockopt(s, NN_SOL_SOCKET, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int get_fd(int s, int option, int *fd)
{
    size_t len = sizeof(*fd);

    return nn_getsockopt(s, NN_SOL_SOCKET, option, fd, &len) < 0 ? -errno : 0;
}

static int sock_open(struct fbr_sock **out, int protocol, const char *url,
                     int (*attach)(int, const char *), struct fbr_error *err)
{
    struct fbr_sock *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return fbr_fail(err, -ENOMEM, "data channel: out of memory");
    rc = fbr_fds_need(SOCKET_FDS, "data channel", err); /* else nanomsg would abort */
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->s = nn_socket(AF_SP_RAW, protocol);
    if (s->s < 0) {
        rc = -errno;
        free(s);
        return fbr_fail(err, rc, "data channel: cannot make a socket: %s", nn_strerror(-rc));
    }
    rc = set_int(s->s, NN_RCVMAXSIZE, FBR_SOCK_MAX);
    if (rc == 0)
        rc = set_int(s->s, NN_SNDBUF, BUFFER_SIZE);
    if (rc == 0)
        rc = set_int(s->s, NN_RCVBUF, BUFFER_SIZE);
    if (rc == 0)
        rc = get_fd(s->s, NN_RCVFD, &s->in_fd);
    if (rc == 0 && protocol == NN_REQ) {
        set_int(s->s, NN_RECONNECT_IVL, AGAIN_MS);
        set_int(s->s, NN_RECONNECT_IVL_MAX, AGAIN_MAX_MS);
        rc = get_fd(s->s, NN_SNDFD, &s->out_fd);
    }
    if (rc == 0 && strchr(url, '[')) /* an address of IPv6 */
        rc = set_int(s->s, NN_IPV4ONLY, 0);
    if (rc == 0) { /* off by default; without it, small messages would wait for acknowledgements */
        int on = 1;

        nn_setsockopt(s->s, NN_TCP, NN_TCP_NODELAY, &on, sizeof(on));
    }
    if (rc == 0 && attach(s->s, url) < 0)
        rc = -errno;
    if (rc < 0) {
        fbr_sock_close(s);
        return fbr_fail(err, rc, "data channel: %s: %s", url, nn_strerror(-rc));
    }
    *out = s;
    return 0;
}

/* Visits nanomsg's descriptors, which the library does not tell. */
static void each_fd(void (*fn)(int fd, const void *what, uint64_t ms), const void *what,
                    uint64_t ms)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *e;

    while (all && (e = readdir(all)) != NULL)
        fn(atoi(e->d_name), what, ms);
    if (all)
        closedir(all);
}

/* Lengthens the accept queue, which nanomsg sets to 10. Callers beyond that make a new socket every
 * few milliseconds and call again; a thousand workers that start together would waste the
 * processors. */
static void widen(int fd, const void *path, uint64_t ms)
{
    struct sockaddr_un a = {0};
    socklen_t len = sizeof(a), one = sizeof(int);
    int listens = 0;

    (void)ms;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &one) == 0 && listens &&
        getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.sun_family == AF_UNIX &&
        strncmp(a.sun_path, path, sizeof(a.sun_path)) == 0)
        listen(fd, BACKLOG);
}

/* Sets the limit on all our connections to the same server: that does no harm. */
static void be_patient(int fd, const void *server, uint64_t ms)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    char url[URL_MAX];

    if (getpeername(fd, (struct sockaddr *)&a, &len) < 0 ||
        (a.ss_family != AF_INET && a.ss_family != AF_INET6))
        return;
    fbr_tcp_url(&a, url, sizeof(url));
    if (strcmp(url, server) == 0)
        fbr_tcp_patience(fd, ms);
}

void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms)
{
    if (strncmp(s->url, "tcp://", 6) == 0)
        each_fd(be_patient, s->url, ms);
}

int fbr_sock_bind(struct fbr_sock **s, const char *url, struct fbr_error *err)
{
    int rc = sock_open(s, NN_REP, url, nn_bind, err);

    if (rc == 0)
        each_fd(widen, url + strlen("ipc://"), 0);
    return rc;
}

int fbr_sock_connect(struct fbr_sock **s, const char *url, struct fbr_error *err)
{
    uint32_t id = htobe32(0x80000001u); /* the top bit ends the stack of routing ids */
    int rc = sock_open(s, NN_REQ, url, nn_connect, err);

    if (rc == 0) {
        (*s)->own.len = sizeof(id);
        memcpy((*s)->own.bytes, &id, sizeof(id));
        snprintf((*s)->url, sizeof((*s)->url), "%s", url);
    }
    return rc;
}

void fbr_sock_close(struct fbr_sock *s)
{
    if (!s)
        return;
    nn_close(s->s);
    free(s);
}

void *fbr_sock_alloc(size_t len)
{
    return nn_allocmsg(len, 0);
}

void fbr_sock_free(void *msg)
{
    if (msg)
        nn_freemsg(msg);
}

static uint64_t broken_connections(const struct fbr_sock *s)
{
    return nn_get_statistic(s->s, NN_STAT_BROKEN_CONNECTIONS);
}

/* `calling`: the calling side, whose threads send one at a time (uplink.c). On the serving side
 * threads send at the same time, and no connection of their own can be lost. */
static int try_send(struct fbr_sock *s, const struct nn_msghdr *h, bool calling)
{
    int n;

    /* a connection that breaks after this look cannot have a successor before the next look */
    if (calling && !s->begun)
        s->attempts = broken_connections(s);
    n = nn_sendmsg(s->s, h, NN_DONTWAIT);
    if (calling)
        s->begun |= n >= 0;
    return n;
}

/* Calling side: waits until there may be room, in short steps, as nanomsg does not tell when the
 * connection is lost. */
static int await_room(const struct fbr_sock *s, int *timeout_ms)
{
    struct pollfd p = {.fd = s->out_fd, .events = POLLIN};
    int ms = *timeout_ms < 0 || *timeout_ms > LOOK_MS ? LOOK_MS : *timeout_ms;

    if (*timeout_ms == 0)
        return -EAGAIN;
    if (s->begun && fbr_sock_lost(s))
        return -EPIPE;
    if (poll(&p, 1, ms) == 0 && *timeout_ms > 0)
        *timeout_ms -= ms;
    return 0;
}

int fbr_sock_send(struct fbr_sock *s, const struct fbr_route *route, void *msg, int timeout_ms)
{
    union {
        struct nn_cmsghdr align;
        uint8_t bytes[CONTROL_SIZE];
    } control;
    struct nn_iovec iov = {&msg, NN_MSG};
    struct nn_msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};
    int rc = 0;

    memset(&control, 0, sizeof(control));
    h.msg_controllen = put_route(&control, route ? route : &s->own);
    while (rc == 0 && try_send(s, &h, !route) < 0)
        if (errno != EINTR)
            rc = errno != EAGAIN || route ? -errno : await_room(s, &timeout_ms);
    return rc;
}

int fbr_sock_recv(struct fbr_sock *s, struct fbr_route *route, void **msg, size_t *len)
{
    union {
        struct nn_cmsghdr align;
        uint8_t bytes[CONTROL_SIZE];
    } control;
    void *body = NULL;
    struct nn_iovec iov = {&body, NN_MSG};
    struct nn_msghdr h = {.msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control)};
    int n;

    do
        n = nn_recvmsg(s->s, &h, NN_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (route && get_route(&h, route) < 0) {
        nn_freemsg(body);
        return -EPROTO;
    }
    *msg = body;
    *len = (size_t)n;
    return 0;
}

int fbr_sock_lost(const struct fbr_sock *s)
{
    return broken_connections(s) > s->attempts;
}

int fbr_sock_fd(const struct fbr_sock *s)
{
    return s->in_fd;
}

int fbr_sock_room_fd(const struct fbr_sock *s)
{
    return s->out_fd;
}
