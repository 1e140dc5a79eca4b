/* guard.c - serves a guarded port.
 *
 * A pair is a caller and, once the caller's first message is whole, our connection to the library.
 * The bytes of each go to the other. When one hangs up, the other still gets what is queued.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <utlist.h>

#include "mpi_bridge/loopback.h"
#include "runtime/base/buf.h"
#include "runtime/base/fds.h"
#include "runtime/net/tcp.h"

#define FIRST_MAX 65536 /* bytes of a first message; one of libpmix has less than a thousand */
#define BACKLOG 4096
#define CONNECT_MS 10 /* ms until the next try to connect to the library, whose queue was full */

struct pair {
    struct fbr_guard *guard;
    struct fbr_lo_link *caller, *library; /* NULL: hung up; the library also before the message */
    struct fbr_buf first;                 /* the caller's bytes, until there is a library */
    struct fbr_timer again;
    struct pair *prev, *next;
};

struct fbr_guard {
    struct fbr_loop *loop;
    struct fbr_lo_listener *listener;
    fbr_guard_whole_fn *is_whole;
    struct sockaddr_un inner;
    struct pair *pairs;
};

/* ---- Pairs ---- */

static void free_pair(struct pair *p)
{
    DL_DELETE(p->guard->pairs, p);
    fbr_lo_link_close(p->caller);
    fbr_lo_link_close(p->library);
    fbr_timer_fini(&p->again);
    fbr_buf_fini(&p->first);
    free(p);
}

/* One side has hung up, or everything is written to it after the other side has. */
static void on_gone(struct pair *p, struct fbr_lo_link **side, struct fbr_lo_link *other)
{
    fbr_lo_link_close(*side);
    *side = NULL;
    if (other)
        fbr_lo_link_finish(other);
    else
        free_pair(p);
}

static void on_library_gone(void *user)
{
    struct pair *p = user;

    on_gone(p, &p->library, p->caller);
}

static void on_library_bytes(void *user, const void *data, size_t len)
{
    struct pair *p = user;

    if (p->caller)
        fbr_lo_link_send(p->caller, data, len);
}

static const struct fbr_lo_link_ops library_ops = {on_library_bytes, on_library_gone};

/* Sends the first message. The library may not have accepted earlier connections yet. */
static void call_library(void *arg)
{
    struct pair *p = arg;
    struct fbr_guard *g = p->guard;
    int rc = fbr_unix_connect(g->inner.sun_path);

    if (rc >= 0)
        rc = fbr_lo_link_open(&p->library, g->loop, rc);
    if (rc == -EAGAIN) {
        fbr_timer_start(&p->again, CONNECT_MS, 0);
        return;
    }
    if (rc < 0) {
        free_pair(p);
        return;
    }
    fbr_lo_link_start(p->library, &library_ops, p);
    fbr_lo_link_send(p->library, p->first.data, p->first.len);
    fbr_buf_fini(&p->first);
}

static void on_caller_gone(void *user)
{
    struct pair *p = user;

    on_gone(p, &p->caller, p->library);
}

static void on_caller_bytes(void *user, const void *data, size_t len)
{
    struct pair *p = user;

    if (p->library) {
        fbr_lo_link_send(p->library, data, len);
        return;
    }
    fbr_put(&p->first, data, len);
    if (p->first.failed || p->first.len > FIRST_MAX)
        free_pair(p);
    else if (!fbr_timer_runs(&p->again) && p->guard->is_whole(p->first.data, p->first.len))
        call_library(p);
}

static const struct fbr_lo_link_ops caller_ops = {on_caller_bytes, on_caller_gone};

static void on_link(void *user, struct fbr_lo_link *link)
{
    struct fbr_guard *g = user;
    struct pair *p = calloc(1, sizeof(*p));

    if (!p || fbr_timer_init(&p->again, g->loop, call_library, p) < 0) {
        free(p);
        fbr_lo_link_close(link);
        return;
    }
    p->guard = g;
    p->caller = link;
    DL_APPEND(g->pairs, p);
    fbr_lo_link_start(link, &caller_ops, p);
}

/* ---- Life ---- */

/* Puts a unix socket under the library's descriptor. */
static int swap_sockets(struct fbr_guard *g, int listener)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&g->inner, sizeof(g->inner)) < 0 || listen(fd, BACKLOG) < 0 ||
        dup3(fd, listener, O_CLOEXEC) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

/* A library that waits for the port since before the swap is woken by events of the port only, and
 * then finds none on its new socket. One event of each makes it look again: a connection that has
 * hung up waits at the new socket, then one comes to the port. */
static int wake_library(struct fbr_guard *g, int port)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    int fds[3], rc;

    getsockname(port, (struct sockaddr *)&a, &len);
    fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    rc = connect(fds[0], (struct sockaddr *)&g->inner, sizeof(g->inner)) < 0 ||
                 connect(fds[1], (struct sockaddr *)&a, len) < 0
             ? -errno
             : 0;
    fds[2] = accept4(port, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; i < 3; i++)
        fbr_fds_close(fds[i]);
    return rc;
}

int fbr_guard_open(struct fbr_guard **out, struct fbr_loop *loop, int listener, const char *path,
                   fbr_guard_whole_fn *whole, struct fbr_error *err)
{
    struct fbr_guard *g = calloc(1, sizeof(*g));
    int port = g ? fcntl(listener, F_DUPFD_CLOEXEC, 0) : -1, rc = -ENOMEM;

    if (!g)
        return fbr_fail(err, rc, "guard: out of memory");
    *g = (struct fbr_guard){.loop = loop, .is_whole = whole, .inner.sun_family = AF_UNIX};
    rc = strlen(path) >= sizeof(g->inner.sun_path) ? -ENAMETOOLONG : port < 0 ? -errno : 0;
    if (rc < 0) {
        fbr_fds_close(port);
        free(g);
        return fbr_fail(err, rc, "guard: %s", fbr_strerror(rc));
    }
    memcpy(g->inner.sun_path, path, strlen(path));
    rc = fbr_lo_listener_open(&g->listener, loop, port, on_link, g, err);
    if (rc < 0) {
        free(g);
        return rc;
    }
    /* nothing is accepted before we return */
    if ((rc = swap_sockets(g, listener)) < 0 || (rc = wake_library(g, port)) < 0) {
        dup3(port, listener, O_CLOEXEC);
        fbr_guard_close(g);
        return fbr_fail(err, rc, "guard: %s", fbr_strerror(rc));
    }
    *out = g;
    return 0;
}

void fbr_guard_close(struct fbr_guard *g)
{
    if (!g)
        return;
    fbr_lo_listener_close(g->listener);
    while (g->pairs)
        free_pair(g->pairs);
    unlink(g->inner.sun_path);
    free(g);
}
