/* sp_client.c - the client side of a unix socket of the data channel.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/sp_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fds.h"

#define BUFFER_SIZE (1024 * 1024) /* per direction, as far as the kernel allows it */
#define AGAIN_MS 10               /* time until the next try to connect */

struct fbr_sp_client {
    int fd, room; /* room: an epoll descriptor, which polls readable when fd polls writable */
    bool lost;    /* atomic */
    size_t sent;  /* bytes sent of the current message, with its head */
    /* Receiving thread only. */
    bool hushed; /* the server hung up, and fd is not the socket any more */
    struct fbr_sp_in in;
    uint8_t *scratch;
};

static int mark_lost(struct fbr_sp_client *c)
{
    __atomic_store_n(&c->lost, true, __ATOMIC_RELAXED);
    return -EPIPE;
}

/* ---- Connecting ---- */

/* Connects, sends our greeting, and waits for the server's greeting. */
static int connect_to(struct fbr_sp_client *c, const struct sockaddr_un *a, uint64_t left_ms)
{
    const struct timeval left = {(time_t)(left_ms / 1000), (suseconds_t)(left_ms % 1000 * 1000)};
    uint8_t greeting[FBR_SP_GREETING];
    int size = BUFFER_SIZE;
    ssize_t n;

    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -errno;
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &left, sizeof(left));
    if (connect(c->fd, (const struct sockaddr *)a, sizeof(*a)) < 0 ||
        send(c->fd, fbr_sp_req_greeting, sizeof(greeting), MSG_NOSIGNAL) < 0)
        return -errno;
    n = recv(c->fd, greeting, sizeof(greeting), MSG_WAITALL);
    if (n != (ssize_t)sizeof(greeting))
        return n < 0 ? -errno : -EPIPE;
    return memcmp(greeting, fbr_sp_rep_greeting, sizeof(greeting)) == 0 ? 0 : -EPROTO;
}

/* A busy server may take a while to listen and to greet. */
static bool may_retry(int rc)
{
    return rc == -ENOENT || rc == -ECONNREFUSED || rc == -EPIPE || rc == -ECONNRESET ||
           rc == -EINTR || rc == -EAGAIN;
}

static int connect_within(struct fbr_sp_client *c, const char *path, int timeout_ms)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t now = fbr_now_ms(), deadline = now + (uint64_t)timeout_ms;
    int rc = -EAGAIN;

    if (strlen(path) >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    strcpy(a.sun_path, path);
    while (may_retry(rc) && now < deadline) {
        if (c->fd >= 0) { /* not the first try */
            close(c->fd);
            c->fd = -1;
            poll(NULL, 0, AGAIN_MS);
        }
        rc = connect_to(c, &a, deadline - now);
        now = fbr_now_ms();
    }
    return may_retry(rc) ? -EAGAIN : rc;
}

static int open_room(struct fbr_sp_client *c)
{
    struct epoll_event e = {.events = EPOLLOUT};

    c->room = epoll_create1(EPOLL_CLOEXEC);
    return c->room < 0 || epoll_ctl(c->room, EPOLL_CTL_ADD, c->fd, &e) < 0 ? -errno : 0;
}

int fbr_sp_client_open(struct fbr_sp_client **out, const char *path, size_t most, int timeout_ms)
{
    struct fbr_sp_client *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->fd = c->room = -1;
    c->in = (struct fbr_sp_in){.most = most, .local = true, .greeted = true};
    c->scratch = aligned_alloc(16, FBR_SP_SCRATCH);
    rc = c->scratch ? 0 : -ENOMEM;
    if (rc < 0 || (rc = connect_within(c, path, timeout_ms)) < 0 || (rc = open_room(c)) < 0) {
        fbr_sp_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void fbr_sp_client_close(struct fbr_sp_client *c)
{
    if (!c)
        return;
    fbr_fds_close(c->room);
    fbr_fds_close(c->fd);
    fbr_sp_in_fini(&c->in);
    free(c->scratch);
    free(c);
}

/* ---- Sending ---- */

static int await_room(const struct fbr_sp_client *c, int timeout_ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};

    return poll(&p, 1, timeout_ms) == 0 ? -EAGAIN : 0;
}

int fbr_sp_client_send(struct fbr_sp_client *c, const void *msg, size_t len, int timeout_ms)
{
    int rc;

    while ((rc = fbr_sp_write(c->fd, msg, len, &c->sent, true)) == -EAGAIN)
        if (await_room(c, timeout_ms) < 0)
            return -EAGAIN;
    if (rc < 0)
        return mark_lost(c);
    c->sent = 0;
    return 0;
}

/* ---- Receiving ---- */

/* The server hung up. Replaces fd with a descriptor that never polls readable: the owner learns of
 * the end first on the control channel, and later from fbr_sp_client_lost(). */
static int hush(struct fbr_sp_client *c)
{
    int silent = eventfd(0, EFD_CLOEXEC);

    mark_lost(c);
    if (silent < 0)
        return -EPIPE;
    c->hushed = dup3(silent, c->fd, O_CLOEXEC) >= 0;
    close(silent);
    return c->hushed ? 0 : -EPIPE;
}

int fbr_sp_client_recv(struct fbr_sp_client *c, fbr_sp_fn fn, void *user)
{
    while (!c->hushed) {
        size_t room;
        void *to = fbr_sp_room(&c->in, c->scratch, &room);
        ssize_t n = recv(c->fd, to, room, MSG_DONTWAIT);
        int rc;

        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return hush(c);
        if (n < 0) /* another error: the program closed our descriptor */
            return errno == EAGAIN || errno == EINTR ? 0 : mark_lost(c);
        rc = fbr_sp_took(&c->in, c->scratch, (size_t)n, fn, user);
        if (rc < 0 || c->in.have == 0)
            return rc < 0 ? rc : 1;
    }
    return 0;
}

bool fbr_sp_client_lost(const struct fbr_sp_client *c)
{
    struct pollfd p = {.fd = c->fd}; /* poll() reports the end even with no events requested */

    return __atomic_load_n(&c->lost, __ATOMIC_RELAXED) || poll(&p, 1, 0) == 1;
}

int fbr_sp_client_fd(const struct fbr_sp_client *c)
{
    return c->fd;
}

int fbr_sp_client_room_fd(const struct fbr_sp_client *c)
{
    return c->room;
}
