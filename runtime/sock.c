/* sock.c - raw nanomsg sockets; see sock.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/sock.h"

#include <arpa/inet.h>
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

#include "runtime/fds.h"

struct fbr_sock {
    int s, in_fd, out_fd;
    uint64_t attempts;    /* calling side: connections that broke before anything was sent */
    struct fbr_route own; /* calling side: the request id that every message carries */
};

#define CONTROL_SIZE (NN_CMSG_SPACE(sizeof(size_t) + sizeof(struct fbr_route)))
#define SOCKET_FDS 12             /* with those of its thread */
#define BUFFER_SIZE (1024 * 1024) /* per direction; nanomsg's own default is 128 KiB */
#define BACKLOG 4096
#define AGAIN_MS 10      /* a call that failed is made again, */
#define AGAIN_MAX_MS 160 /* after twice as long each time */

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
    if (n > sizeof(route->bytes)) /* a path through devices, which we do not have */
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
    rc = fbr_fds_need(SOCKET_FDS, "data channel", err); /* nanomsg would abort */
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->s = nn_socket(AF_SP_RAW, protocol);
    if (s->s < 0) {
        rc = -errno;
        free(s);
        return fbr_fail(err, rc, "data channel: no socket: %s", nn_strerror(-rc));
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
    if (rc == 0) { /* off by default; small messages would wait for acknowledgements */
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

static bool listens_at(int fd, const char *url)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_in in;
    } a;
    socklen_t len = sizeof(a), one = sizeof(int);
    char own[sizeof(a.un.sun_path) + 8], address[INET_ADDRSTRLEN] = "";
    int listens = 0;

    memset(&a, 0, sizeof(a));
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &one) < 0 || !listens ||
        getsockname(fd, &a.any, &len) < 0)
        return false;
    inet_ntop(AF_INET, &a.in.sin_addr, address, sizeof(address));
    if (a.any.sa_family == AF_UNIX)
        snprintf(own, sizeof(own), "ipc://%.*s", (int)sizeof(a.un.sun_path), a.un.sun_path);
    else
        snprintf(own, sizeof(own), "tcp://%s:%d", address, ntohs(a.in.sin_port));
    return strcmp(own, url) == 0;
}

/* nanomsg has the kernel keep 10 callers for it (100 of TCP). Each of the others makes a new socket every few
 * milliseconds and calls again, and a thousand workers that start together take the processors from each other for
 * nothing. It does not tell its descriptor, so we look for it. */
static void widen(const char *url)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *e;

    while (all && (e = readdir(all)) != NULL) {
        int fd = atoi(e->d_name);

        if (listens_at(fd, url))
            listen(fd, BACKLOG);
    }
    if (all)
        closedir(all);
}

int fbr_sock_bind(struct fbr_sock **s, const char *url, struct fbr_error *err)
{
    int rc = sock_open(s, NN_REP, url, nn_bind, err);

    if (rc == 0)
        widen(url);
    return rc;
}

int fbr_sock_connect(struct fbr_sock **s, const char *url, struct fbr_error *err)
{
    uint32_t id = htobe32(0x80000001u); /* the top bit ends the stack of routing ids */
    int rc = sock_open(s, NN_REQ, url, nn_connect, err);

    if (rc == 0) {
        (*s)->own.len = sizeof(id);
        memcpy((*s)->own.bytes, &id, sizeof(id));
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

int fbr_sock_send(struct fbr_sock *s, const struct fbr_route *route, void *msg, int timeout_ms)
{
    union {
        struct nn_cmsghdr align;
        uint8_t bytes[CONTROL_SIZE];
    } control;
    struct nn_iovec iov = {&msg, NN_MSG};
    struct nn_msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};

    memset(&control, 0, sizeof(control));
    h.msg_controllen = put_route(&control, route ? route : &s->own);
    while (nn_sendmsg(s->s, &h, NN_DONTWAIT) < 0) {
        struct pollfd p = {.fd = s->out_fd, .events = POLLIN};

        if (errno == EINTR)
            continue;
        if (errno != EAGAIN || route || timeout_ms == 0)
            return -errno;
        if (poll(&p, 1, timeout_ms) == 0)
            return -EAGAIN;
    }
    return 0;
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

void fbr_sock_met(struct fbr_sock *s)
{
    s->attempts = nn_get_statistic(s->s, NN_STAT_BROKEN_CONNECTIONS);
}

int fbr_sock_lost(const struct fbr_sock *s)
{
    return nn_get_statistic(s->s, NN_STAT_BROKEN_CONNECTIONS) > s->attempts;
}

int fbr_sock_fd(const struct fbr_sock *s)
{
    return s->in_fd;
}

int fbr_sock_room_fd(const struct fbr_sock *s)
{
    return s->out_fd;
}
