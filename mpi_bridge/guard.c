/* guard.c - the thread that serves a guarded port.
 *
 * A pair is a caller and, once the caller's first message is whole, our connection to the library.
 * Each direction has one buffer. While the buffer holds bytes, nothing more is read into it: so a
 * side that does not read holds up only its own pair.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/sync.h"
#include "runtime/net/tcp.h"

#define BLOCK 65536
#define BACKLOG 4096
#define AT_ONCE 64    /* callers to accept before the pairs have their turn */
#define CONNECT_MS 10 /* ms until the next try to connect to the library, whose queue was full */

struct flow {
    size_t at, len;
    uint8_t bytes[BLOCK];
};

struct pair {
    int fds[2];           /* the caller, the library; the latter is -1 until a message is whole */
    bool whole;           /* the first message is whole */
    struct flow *flow[2]; /* bytes from fds[i] to the other side */
};

struct fbr_guard {
    int port, stop;
    uid_t uid;
    fbr_guard_whole_fn *is_whole;
    struct sockaddr_un inner;
    uint64_t refused; /* atomic */
    pthread_t thread;
    struct pair **pairs; /* used by the thread only, as all below */
    struct pollfd *polls;
    size_t n, cap;
};

/* ---- Pairs ---- */

static void free_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->fds[i] >= 0)
            close(p->fds[i]);
        free(p->flow[i]);
    }
    free(p);
}

static bool make_room(struct fbr_guard *g)
{
    size_t cap = g->cap ? 2 * g->cap : 64;
    struct pair **pairs;
    struct pollfd *polls;

    if (g->n < g->cap)
        return true;
    pairs = realloc(g->pairs, cap * sizeof(*pairs));
    if (pairs)
        g->pairs = pairs;
    polls = realloc(g->polls, (2 + 2 * cap) * sizeof(*polls));
    if (polls)
        g->polls = polls;
    if (!pairs || !polls)
        return false;
    g->cap = cap;
    return true;
}

/* Takes over the descriptor. */
static void add_pair(struct fbr_guard *g, int fd)
{
    struct pair *p = make_room(g) ? calloc(1, sizeof(*p)) : NULL;
    int on = 1;

    for (int i = 0; p && i < 2; i++)
        p->flow[i] = calloc(1, sizeof(*p->flow[i]));
    if (!p || !p->flow[0] || !p->flow[1]) {
        if (p) {
            free(p->flow[0]);
            free(p->flow[1]);
        }
        free(p);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    p->fds[0] = fd;
    p->fds[1] = -1;
    g->pairs[g->n++] = p;
}

static void take_calls(struct fbr_guard *g)
{
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(g->port, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        uid_t uid = 0;

        if (fd < 0)
            return;
        if (fbr_loopback_owner(fd, &uid) == 0 && (uid == g->uid || uid == geteuid())) {
            add_pair(g, fd);
            continue;
        }
        __atomic_add_fetch(&g->refused, 1, __ATOMIC_RELAXED);
        close(fd);
    }
}

/* Returns 0, or -EAGAIN: the library has not accepted earlier connections yet. */
static int call_library(struct fbr_guard *g, struct pair *p)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

    if (fd < 0)
        return -errno;
    rc = connect(fd, (struct sockaddr *)&g->inner, sizeof(g->inner)) < 0 ? -errno : 0;
    if (rc < 0)
        close(fd);
    else
        p->fds[1] = fd;
    return rc;
}

/* ---- Bytes ---- */

/* True if side i is read now. */
static bool has_room(const struct pair *p, int i)
{
    return p->fds[i] >= 0 && (p->flow[i]->len == 0 || !p->whole);
}

/* Reads the bytes that have come from side i. False: that side has hung up. */
static bool fill(const struct fbr_guard *g, struct pair *p, int i)
{
    struct flow *f = p->flow[i];
    ssize_t n = recv(p->fds[i], f->bytes + f->len, sizeof(f->bytes) - f->len, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    f->at = 0;
    f->len += (size_t)n;
    p->whole = p->whole || f->len == sizeof(f->bytes) || g->is_whole(f->bytes, f->len);
    return n > 0;
}

/* Sends to the other side. False: that side has hung up. */
static bool drain(struct pair *p, int i)
{
    struct flow *f = p->flow[i];
    ssize_t n = send(p->fds[!i], f->bytes + f->at, f->len, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    f->at += (size_t)n;
    f->len -= (size_t)n;
    return true;
}

/* Serves a pair whose descriptors had these events. False: the pair is over. */
static bool serve_pair(struct fbr_guard *g, struct pair *p, const struct pollfd *polls)
{
    for (int i = 0; i < 2; i++) {
        if (has_room(p, i) && polls[i].revents && !fill(g, p, i))
            return false;
        if (!p->whole)
            return true;
        if (p->fds[1] < 0) {
            int rc = call_library(g, p);

            if (rc < 0)
                return rc == -EAGAIN;
        }
        if (p->flow[i]->len && !drain(p, i))
            return false;
    }
    return true;
}

static void want(struct pollfd *poll, const struct pair *p, int i)
{
    poll->fd = p->fds[i];
    poll->events = 0;
    if (has_room(p, i))
        poll->events |= POLLIN;
    if (p->flow[!i]->len && p->fds[1] >= 0)
        poll->events |= POLLOUT;
    if (!poll->events) /* nor look for its end; the other side decides */
        poll->fd = -1;
}

static void *guard_main(void *arg)
{
    struct fbr_guard *g = arg;

    pthread_setname_np(pthread_self(), "fbr-guard");
    for (;;) {
        size_t n = g->n, left = 0;
        int wait_ms = -1;

        g->polls[0] = (struct pollfd){.fd = g->stop, .events = POLLIN};
        g->polls[1] = (struct pollfd){.fd = g->port, .events = POLLIN};
        for (size_t i = 0; i < n; i++) {
            want(&g->polls[2 + 2 * i], g->pairs[i], 0);
            want(&g->polls[3 + 2 * i], g->pairs[i], 1);
            if (g->pairs[i]->fds[1] < 0 && g->pairs[i]->whole)
                wait_ms = CONNECT_MS;
        }
        if (poll(g->polls, 2 + 2 * n, wait_ms) < 0 && errno != EINTR)
            return NULL;
        if (g->polls[0].revents)
            return NULL;
        for (size_t i = 0; i < n; i++) {
            struct pair *p = g->pairs[i];

            if (serve_pair(g, p, &g->polls[2 + 2 * i]))
                g->pairs[left++] = p;
            else
                free_pair(p);
        }
        g->n = left;
        if (g->polls[1].revents)
            take_calls(g);
    }
}

/* ---- Life ---- */

/* Puts a unix socket under the library's descriptor, and the port under one of ours. */
static int swap_sockets(struct fbr_guard *g, int listener)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&g->inner, sizeof(g->inner)) < 0 || listen(fd, BACKLOG) < 0 ||
        dup3(fd, listener, O_CLOEXEC) < 0) {
        rc = -errno;
        unlink(g->inner.sun_path);
    }
    close(fd);
    return rc;
}

/* A library that waits for the port since before the swap is woken by events of the port only, and
 * then finds none on its new socket. One event of each makes it look again: a connection that has
 * hung up waits at the new socket, then one comes to the port. */
static int wake_library(struct fbr_guard *g)
{
    struct sockaddr_storage port;
    socklen_t len = sizeof(port);
    int fds[3], rc;

    getsockname(g->port, (struct sockaddr *)&port, &len);
    fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = socket(port.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rc = connect(fds[0], (struct sockaddr *)&g->inner, sizeof(g->inner)) < 0 ||
                 connect(fds[1], (struct sockaddr *)&port, len) < 0
             ? -errno
             : 0;
    fds[2] = accept4(g->port, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

static void free_guard(struct fbr_guard *g)
{
    for (size_t i = 0; i < g->n; i++)
        free_pair(g->pairs[i]);
    free(g->pairs);
    free(g->polls);
    if (g->stop >= 0)
        close(g->stop);
    if (g->port >= 0)
        close(g->port);
    free(g);
}

int fbr_guard_open(struct fbr_guard **out, int listener, const char *path, uid_t uid,
                   fbr_guard_whole_fn *whole, struct fbr_error *err)
{
    struct fbr_guard *g = calloc(1, sizeof(*g));
    int rc = -ENOMEM;

    if (!g)
        return fbr_fail(err, rc, "guard: out of memory");
    *g = (struct fbr_guard){.port = -1, .stop = -1, .uid = uid, .is_whole = whole};
    g->inner.sun_family = AF_UNIX;
    if (!make_room(g))
        goto fail;
    rc = -ENAMETOOLONG;
    if (strlen(path) >= sizeof(g->inner.sun_path))
        goto fail;
    memcpy(g->inner.sun_path, path, strlen(path));
    g->port = fcntl(listener, F_DUPFD_CLOEXEC, 0);
    g->stop = eventfd(0, EFD_CLOEXEC);
    rc = g->port < 0 || g->stop < 0 || fcntl(g->port, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    if (rc < 0)
        goto fail;
    rc = swap_sockets(g, listener);
    if (rc < 0)
        goto fail;
    if ((rc = wake_library(g)) < 0 || (rc = fbr_thread_start(&g->thread, guard_main, g)) < 0) {
        dup3(g->port, listener, O_CLOEXEC);
        unlink(path);
        goto fail;
    }
    *out = g;
    return 0;
fail:
    free_guard(g);
    return fbr_fail(err, rc, "guard: %s", fbr_strerror(rc));
}

uint64_t fbr_guard_refused(const struct fbr_guard *g)
{
    return __atomic_load_n(&g->refused, __ATOMIC_RELAXED);
}

void fbr_guard_close(struct fbr_guard *g)
{
    uint64_t one = 1;

    if (!g)
        return;
    while (write(g->stop, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
    pthread_join(g->thread, NULL);
    unlink(g->inner.sun_path);
    free_guard(g);
}
