/* sock.c - client sockets of the data channel: raw nanomsg sockets, and unix sockets of our own.
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

#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <nanomsg/tcp.h>

#include "runtime/base/fds.h"
#include "runtime/net/sp_client.h"
#include "runtime/net/tcp.h"

#define URL_MAX 128

struct fbr_sock {
    /* a unix socket; NULL: a nanomsg socket, which uses all members below */
    struct fbr_sp_client *local;
    int s, in_fd, out_fd;
    bool begun;        /* the first message was sent, */
    uint64_t attempts; /* number of broken connections at that time */
    char url[URL_MAX];
};

#define THE_REQUEST 0x80000001u /* the id of every message; its top bit ends the stack of ids */
#define CONTROL_SIZE (NN_CMSG_SPACE(sizeof(size_t) + sizeof(uint32_t)))
#define SOCKET_FDS 12             /* with those of its thread */
#define BUFFER_SIZE (1024 * 1024) /* per direction; nanomsg's own default is 128 KiB */
#define LOOK_MS 200               /* time between two checks for a lost connection */
#define AGAIN_MS 10               /* time until the next try after a failed connect, */
#define AGAIN_MAX_MS 160          /* twice as long after each failure, up to this */

/* An SP header travels as ancillary data: a size_t with its length, then its bytes
 * (nn_sendmsg(3)). */
static void put_request(void *control)
{
    struct nn_cmsghdr *c = control;
    uint32_t id = htobe32(THE_REQUEST);
    size_t n = sizeof(id);

    c->cmsg_level = PROTO_SP;
    c->cmsg_type = SP_HDR;
    c->cmsg_len = NN_CMSG_LEN(sizeof(n) + n);
    memcpy(NN_CMSG_DATA(c), &n, sizeof(n));
    memcpy(NN_CMSG_DATA(c) + sizeof(n), &id, n);
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

/* Sets the limit on fd if it is a connection to this server. Other connections of ours to the same
 * server get it too, which does no harm. */
static void be_patient(int fd, const char *server, uint64_t ms)
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

/* Tries all descriptors of the process, because nanomsg does not report its own. */
void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms)
{
    DIR *all = strncmp(s->url, "tcp://", 6) == 0 ? opendir("/proc/self/fd") : NULL;
    struct dirent *e;

    while (all && (e = readdir(all)) != NULL)
        be_patient(atoi(e->d_name), s->url, ms);
    if (all)
        closedir(all);
}

static int open_nanomsg(struct fbr_sock *s, const char *url)
{
    int rc, on = 1;

    s->s = nn_socket(AF_SP_RAW, NN_REQ);
    if (s->s < 0)
        return -errno;
    if ((rc = set_int(s->s, NN_RCVMAXSIZE, FBR_SOCK_MAX)) < 0 ||
        (rc = set_int(s->s, NN_SNDBUF, BUFFER_SIZE)) < 0 ||
        (rc = set_int(s->s, NN_RCVBUF, BUFFER_SIZE)) < 0 ||
        (rc = get_fd(s->s, NN_RCVFD, &s->in_fd)) < 0 ||
        (rc = get_fd(s->s, NN_SNDFD, &s->out_fd)) < 0)
        return rc;
    /* An IPv6 address. */
    if (strchr(url, '[') && (rc = set_int(s->s, NN_IPV4ONLY, 0)) < 0)
        return rc;
    set_int(s->s, NN_RECONNECT_IVL, AGAIN_MS);
    set_int(s->s, NN_RECONNECT_IVL_MAX, AGAIN_MAX_MS);
    /* Off by default. Without it, small messages would wait for acknowledgements. */
    nn_setsockopt(s->s, NN_TCP, NN_TCP_NODELAY, &on, sizeof(on));
    return nn_connect(s->s, url) < 0 ? -errno : 0;
}

int fbr_sock_connect(struct fbr_sock **out, const char *url, int timeout_ms, struct fbr_error *err)
{
    struct fbr_sock *s = calloc(1, sizeof(*s));
    const char *path = fbr_unix_path(url);
    int rc;

    if (!s)
        return fbr_fail(err, -ENOMEM, "data channel: out of memory");
    s->s = -1;
    rc = fbr_fds_need(SOCKET_FDS, "data channel", err); /* otherwise nanomsg would abort */
    if (rc < 0) {
        free(s);
        return rc;
    }
    if (path)
        rc = fbr_sp_client_open(&s->local, path, FBR_SOCK_MAX, timeout_ms);
    else
        rc = open_nanomsg(s, url);
    if (rc < 0) {
        fbr_sock_close(s);
        return fbr_fail(err, rc, "data channel: %s: %s", url,
                        rc == -EMFILE && !path
                            ? "nanomsg allows a process no more connections over TCP"
                            : nn_strerror(-rc));
    }
    snprintf(s->url, sizeof(s->url), "%s", url);
    *out = s;
    return 0;
}

void fbr_sock_close(struct fbr_sock *s)
{
    if (!s)
        return;
    fbr_sp_client_close(s->local);
    if (s->s >= 0)
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

static int try_send(struct fbr_sock *s, const struct nn_msghdr *h)
{
    int n;

    /* A connection that breaks after this check has no successor before the next check. */
    if (!s->begun)
        s->attempts = broken_connections(s);
    n = nn_sendmsg(s->s, h, NN_DONTWAIT);
    s->begun |= n >= 0;
    return n;
}

/* Waits until there may be room, in short steps, because nanomsg does not report that the
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

static int send_local(struct fbr_sock *s, void *msg, size_t len, int timeout_ms)
{
    int rc = fbr_sp_client_send(s->local, msg, len, timeout_ms);

    if (rc == 0)
        fbr_sock_free(msg);
    return rc;
}

int fbr_sock_send(struct fbr_sock *s, void *msg, size_t len, int timeout_ms)
{
    union {
        struct nn_cmsghdr align;
        uint8_t bytes[CONTROL_SIZE];
    } control;
    struct nn_iovec iov = {&msg, NN_MSG};
    struct nn_msghdr h = {.msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control)};
    int rc = 0;

    if (s->local)
        return send_local(s, msg, len, timeout_ms);
    memset(&control, 0, sizeof(control));
    put_request(&control);
    while (rc == 0 && try_send(s, &h) < 0)
        if (errno != EINTR)
            rc = errno != EAGAIN ? -errno : await_room(s, &timeout_ms);
    return rc;
}

int fbr_sock_recv(struct fbr_sock *s, fbr_sp_fn fn, void *user)
{
    void *msg = NULL;
    int n, rc;

    if (s->local)
        return fbr_sp_client_recv(s->local, fn, user);
    do
        n = nn_recv(s->s, &msg, NN_MSG, NN_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    rc = fn(user, msg, (size_t)n);
    nn_freemsg(msg);
    return rc < 0 ? rc : 1;
}

int fbr_sock_lost(const struct fbr_sock *s)
{
    return s->local ? fbr_sp_client_lost(s->local) : broken_connections(s) > s->attempts;
}

int fbr_sock_fd(const struct fbr_sock *s)
{
    return s->local ? fbr_sp_client_fd(s->local) : s->in_fd;
}

int fbr_sock_room_fd(const struct fbr_sock *s)
{
    return s->local ? fbr_sp_client_room_fd(s->local) : s->out_fd;
}
