/* run_control.c - the control socket of a run.
 *
 * A caller is a connection with one request at a time. It is freed with its handle, in the close
 * callback, so libuv never uses freed memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/run_control.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "runtime/net/tcp.h"
#include "runtime/proc/process.h"
#include "runtime/base/printable.h"

#define CALLERS_MAX 64
/* bytes of answers; a caller that has left so many unread may not ask for more */
#define UNREAD_MAX (64u << 20)
#define AGAIN_MS 100 /* time until a caller for whom there was no memory is accepted */

struct caller {
    uv_pipe_t pipe;
    struct fbr_run_control *control; /* NULL: closing */
    struct caller *prev, *next;
    uint8_t got[FBR_RUN_CONTROL_REQUEST_MAX + 4];
    size_t len;
};

struct fbr_run_control {
    struct fbr_loop *loop;
    const struct fbr_run_control_ops *ops;
    void *user;
    struct fbr_run_control_about about;
    char dir[FBR_REGISTRY_MAX];
    int held_fd; /* marks dir as in use, for cleaners of temporary directories */
    struct fbr_timer keep;
    uv_pipe_t *listener;
    bool waits; /* a caller is not accepted yet; until then libuv reports no further callers */
    struct caller *callers;
    int count;
    bool open; /* the run was in the registry, visible to others */
};

/* ---- Callers ---- */

static void caller_close(struct caller *k)
{
    struct fbr_run_control *c = k->control;

    if (!c)
        return;
    DL_DELETE(c->callers, k);
    c->count--;
    k->control = NULL;
    uv_close((uv_handle_t *)&k->pipe, fbr_free_data);
}

/* Sends the bytes and frees them. Without memory for them, hangs up: the caller would wait for its
 * answer. */
static void caller_send(struct caller *k, struct fbr_buf *bytes)
{
    int rc = bytes->failed
                 ? -ENOMEM
                 : fbr_stream_write((uv_stream_t *)&k->pipe, bytes->data, bytes->len, NULL, NULL);

    fbr_buf_fini(bytes);
    if (rc < 0)
        caller_close(k);
}

static void caller_done(struct caller *k, int code, const char *text)
{
    struct fbr_buf b = {0};

    fbr_run_control_put_done(&b, code, text);
    caller_send(k, &b);
}

/* A pool whose size was reduced has more workers than that, until they have done their tasks. */
static void put_ranks(struct fbr_run_control *c, struct fbr_buf *b)
{
    int room = c->ops->stats(c->user, NULL, 0), n;
    struct fbr_run_rank *stats = calloc((size_t)(room > 0 ? room : 1), sizeof(*stats));

    b->failed |= !stats;
    n = stats ? c->ops->stats(c->user, stats, room) : 0;
    for (int i = 0; i < n && i < room; i++)
        fbr_run_control_put_rank(b, &stats[i]);
    free(stats);
}

static void answer_status(struct fbr_run_control *c, struct caller *k, bool ranks)
{
    struct fbr_run_facts facts;
    struct fbr_buf b = {0};

    memset(&facts, 0, sizeof(facts));
    c->ops->facts(c->user, &facts);
    fbr_run_control_put_run(&b, &c->about, &facts);
    if (ranks) {
        put_ranks(c, &b);
        c->ops->look(c->user);
    }
    fbr_run_control_put_done(&b, 0, "");
    caller_send(k, &b);
}

static void answer_signal(struct fbr_run_control *c, struct caller *k, int rank, int signal)
{
    int rc;

    if (signal < 1 || signal >= NSIG) {
        caller_done(k, -EINVAL, "there is no such signal");
        return;
    }
    rc = c->ops->signal(c->user, rank, signal);
    caller_done(k, rc,
                rc == -ESRCH        ? "the rank is not running"
                : rc == -EOPNOTSUPP ? "the workers of a pool take only TERM and KILL"
                : rc < 0            ? fbr_strerror(rc)
                                    : "");
}

/* Opens a tunnel from the caller to the process of that rank, and closes our handle of the
 * connection. */
static void pass_on(struct fbr_run_control *c, struct caller *k, int rank)
{
    struct fbr_error err = {0, ""};
    struct fiber_process *p = c->ops->host ? c->ops->host(c->user, rank, &err) : NULL;
    struct fbr_buf done = {0};
    uv_os_fd_t fd;
    int rc = p ? uv_fileno((uv_handle_t *)&k->pipe, &fd) : -ENOTSUP;
    int own = rc < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own >= 0) {
        fbr_run_control_put_done(&done, 0, "");
        rc = fbr_process_tunnel(p, own, &done, &err);
        fbr_buf_fini(&done);
        if (rc < 0)
            close(own);
    } else if (rc == 0) {
        rc = fbr_fail(&err, -errno, "%s", fbr_strerror(-errno));
    }
    if (rc < 0)
        caller_done(k, err.code ? err.code : rc,
                    err.text[0] ? err.text : "its jobs accept no commands");
    else
        caller_close(k);
}

static void answer(struct caller *k, const struct fbr_run_control_request *r)
{
    struct fbr_run_control *c = k->control;
    int rc;

    if (k->pipe.write_queue_size > UNREAD_MAX) {
        caller_close(k);
        return;
    }
    if (r->version != FBR_RUN_CONTROL_VERSION) {
        char text[128];

        snprintf(text, sizeof(text),
                 "this run was started by another version of Fiber, %s; use its own `fiber`",
                 fiber_version());
        caller_done(k, -EPROTO, text);
        return;
    }
    switch (r->op) {
    case FBR_RUN_CONTROL_STATUS:
        answer_status(c, k, r->argument != 0);
        break;
    case FBR_RUN_CONTROL_SIGNAL:
        answer_signal(c, k, r->rank, r->argument);
        break;
    case FBR_RUN_CONTROL_STOP:
        rc = c->ops->stop(c->user);
        caller_done(k, rc, rc < 0 ? fbr_strerror(rc) : "");
        break;
    case FBR_RUN_CONTROL_SCALE:
        rc = c->ops->scale ? c->ops->scale(c->user, r->argument) : -ENOTSUP;
        caller_done(k, rc,
                    rc != -ENOTSUP ? (rc < 0 ? fbr_strerror(rc) : "")
                    : c->about.kind == FBR_RUN_RING
                        ? "the size of a ring is fixed; only pools can be scaled"
                        : "only pools can be scaled");
        break;
    case FBR_RUN_CONTROL_TUNNEL:
        pass_on(c, k, r->rank);
        break;
    default:
        caller_done(k, -ENOSYS, "this run's launcher does not know that request");
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct caller *k = handle->data;

    *buf = uv_buf_init((char *)k->got + k->len, (unsigned)(sizeof(k->got) - k->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct caller *k = stream->data;
    struct fbr_run_control_request r;
    struct fbr_cur frame;
    size_t used;
    int rc;

    if (n < 0) { /* also UV_ENOBUFS: it is longer than a request */
        caller_close(k);
        return;
    }
    k->len += (size_t)n;
    while (k->control && (rc = fbr_run_control_frame(k->got, k->len, FBR_RUN_CONTROL_REQUEST_MAX,
                                                     &frame, &used)) != 0) {
        if (rc < 0 || !fbr_run_control_get_request(&frame, &r)) {
            caller_close(k);
            return;
        }
        k->len -= used;
        memmove(k->got, k->got + used, k->len);
        answer(k, &r);
    }
}

/* Whether the caller is this user, or root, who may see everything anyway. */
static bool is_us(uv_pipe_t *pipe)
{
    uv_os_fd_t fd;
    uid_t who = uv_fileno((uv_handle_t *)pipe, &fd) == 0 ? fbr_unix_peer(fd) : (uid_t)-1;

    return who == geteuid() || who == 0;
}

static void on_caller(uv_stream_t *listener, int status)
{
    struct fbr_run_control *c = listener->data;
    struct caller *k = status < 0 ? NULL : calloc(1, sizeof(*k));

    c->waits = status == 0 && !k;
    if (c->waits)
        fbr_timer_start(&c->keep, AGAIN_MS, FBR_RUNDIR_KEEP_MS);
    if (!k)
        return;
    uv_pipe_init(listener->loop, &k->pipe, 0);
    k->pipe.data = k;
    k->control = c;
    DL_APPEND(c->callers, k);
    c->count++;
    if (uv_accept(listener, (uv_stream_t *)&k->pipe) < 0 || c->count > CALLERS_MAX ||
        !is_us(&k->pipe) || uv_read_start((uv_stream_t *)&k->pipe, on_alloc, on_read) < 0)
        caller_close(k);
}

/* ---- The socket ---- */

/* Names the socket last, so that no caller finds it before it listens. */
static int listen_there(struct fbr_run_control *c, struct fbr_error *err)
{
    char made[FBR_REGISTRY_MAX], path[FBR_REGISTRY_MAX];
    int rc;

    c->listener = malloc(sizeof(*c->listener));
    if (!c->listener)
        return fbr_fail(err, -ENOMEM, "out of memory");
    uv_pipe_init(fbr_loop_uv(c->loop), c->listener, 0);
    c->listener->data = c;
    snprintf(made, sizeof(made), "%.90s/new", c->dir);
    snprintf(path, sizeof(path), "%.90s/control", c->dir);
    if ((rc = uv_pipe_bind(c->listener, made)) < 0 ||
        (rc = uv_listen((uv_stream_t *)c->listener, 16, on_caller)) < 0 ||
        (rc = rename(made, path) < 0 ? -errno : 0) < 0)
        return fbr_fail(err, rc, "%s: %s", path, fbr_strerror(rc));
    return 0;
}

static void on_keep(void *arg)
{
    struct fbr_run_control *c = arg;

    if (c->waits)
        on_caller((uv_stream_t *)c->listener, 0);
    if (c->held_fd < 0)
        c->held_fd = fbr_rundir_hold(c->dir);
    fbr_rundir_touch(c->dir);
}

static int keep_there(struct fbr_run_control *c)
{
    int rc = fbr_timer_init(&c->keep, c->loop, on_keep, c);

    if (rc < 0)
        return rc;
    fbr_timer_start(&c->keep, FBR_RUNDIR_KEEP_MS, FBR_RUNDIR_KEEP_MS);
    c->held_fd = fbr_rundir_hold(c->dir);
    return 0;
}

int fbr_run_control_open(struct fbr_run_control **out, struct fbr_loop *loop,
                         const struct fbr_run_control_ops *ops, void *user,
                         const struct fbr_run_control_about *about, struct fbr_error *err)
{
    struct fbr_run_control *c = calloc(1, sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return fbr_fail(err, -ENOMEM, "out of memory");
    c->held_fd = -1;
    c->loop = loop;
    c->ops = ops;
    c->user = user;
    c->about = *about;
    /* other programs show it */
    fbr_printable_plain(c->about.name, sizeof(c->about.name), about->name);
    fbr_printable_plain(c->about.command, sizeof(c->about.command), about->command);
    rc = fbr_registry_add(&c->about, c->dir, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    rc = keep_there(c) < 0 ? fbr_fail(err, -ENOMEM, "out of memory") : listen_there(c, err);
    c->open = rc == 0;
    if (rc < 0)
        fbr_run_control_close(c, 0, "");
    else
        *out = c;
    return rc;
}

void fbr_run_control_stopping(struct fbr_run_control *c)
{
    if (c)
        fbr_registry_stopping(c->dir);
}

/* Bytes that were written to callers are still sent, except a write that libuv could not finish at
 * once. */
void fbr_run_control_close(struct fbr_run_control *c, int code, const char *report)
{
    struct fbr_run_facts facts = {.size = 0};

    if (!c)
        return;
    if (c->open) {
        if (code != FBR_REGISTRY_LOST)
            c->ops->facts(c->user, &facts);
        fbr_registry_end(c->dir, &c->about, &facts, code, report);
    } else {
        fbr_rundir_remove_tree(c->dir);
    }
    /* Only now: a command that found the directory without a listener would record a killed run. */
    while (c->callers)
        caller_close(c->callers);
    if (c->listener)
        uv_close((uv_handle_t *)c->listener, fbr_free_handle);
    fbr_timer_fini(&c->keep);
    fbr_fds_close(c->held_fd);
    free(c);
}
