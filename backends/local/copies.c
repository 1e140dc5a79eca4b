/* copies.c - the side of the backend: starts a template, orders copies from it, and starts jobs
 * without it when it fails.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/local/copies.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/buf.h"
#include "runtime/base/clock.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/program/spawn.h"

/* number of similar jobs, in a row or at once, from which a template is worthwhile */
#define FROM 4
#define LOAD_MS 10000   /* for the template to load its modules */
#define COPY_MS 10000   /* for a copy, however busy the machine is */
#define KILL_MS 3000    /* for killed processes to end; one may hang in the kernel */
#define FAILURES 3      /* failures in a row after which this program gets no template */
#define STATUS_MAX 8192 /* of /proc/thread-self/status */

enum state { ABSENT, LOADING, IDLE, ASKED };

struct fbr_copies {
    struct fbr_loop *loop;
    enum state state;
    /* what the last jobs inherit, in the form of put_status() and others */
    struct fbr_buf like;
    unsigned alike;        /* how many such jobs in a row */
    struct fbr_buf serves; /* what the template has inherited */
    const char *const *argv;
    unsigned failures;
    pid_t pid;
    int pidfd, fd, gate;
    uv_poll_t *watch; /* of fd; freed when closed */
    struct fbr_timer timer;
    struct fbr_copies_order *orders; /* ASKED: the first one is under way */
};

static void next(struct fbr_copies *t);

/* ---- Packets ---- */

int fbr_copies_send(int sock, const void *data, size_t len, const int *fds, size_t n)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FBR_COPIES_FDS * sizeof(*fds))] = {0};
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = CMSG_SPACE(n * sizeof(*fds))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    *c = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(*fds))};
    memcpy(CMSG_DATA(c), fds, n * sizeof(*fds));
    return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len ? 0 : -EIO;
}

size_t fbr_copies_receive(int sock, void *data, size_t size, int *fds, size_t n, int flags)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FBR_COPIES_FDS * sizeof(*fds))];
    struct iovec iov = {data, size};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = CMSG_SPACE(n * sizeof(*fds))};
    ssize_t len = TEMP_FAILURE_RETRY(recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags));
    const struct cmsghdr *c = len > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    if (!c || c->cmsg_len != CMSG_LEN(n * sizeof(*fds)) || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    memcpy(fds, CMSG_DATA(c), n * sizeof(*fds));
    return (size_t)len;
}

/* ---- What a job inherits ---- */

/* Variables that each copy gets itself: ours, and pytest's, which changes with each test. */
static bool travels(const void *none, const char *variable)
{
    return strncmp(variable, "FIBER_", 6) == 0 ||
           strncmp(variable, "PYTEST_CURRENT_TEST=", 20) == 0;
}

/* Adds the lines with the properties that a child inherits: identity, ignored signals, rights,
 * processors, nodes. */
static void put_status(struct fbr_buf *b)
{
    static const char *const inherited[] = {
        "Umask:",  "Uid:",    "Gid:",          "Groups:",       "SigIgn:", "Cap",
        "NoNewPr", "Seccomp", "Cpus_allowed:", "Mems_allowed:", NULL};
    char text[STATUS_MAX], *at, *rest = text;

    fbr_fds_read_file("/proc/thread-self/status", text, sizeof(text));
    while ((at = strsep(&rest, "\n")))
        if (fbr_strings_begin(at, inherited))
            fbr_put_str(b, at);
}

static void put_limits(struct fbr_buf *b)
{
    struct rlimit limit;

    for (int i = 0; i < RLIMIT_NLIMITS; i++)
        if (getrlimit((__rlimit_resource_t)i, &limit) == 0)
            fbr_put(b, &limit, sizeof(limit));
    fbr_put_u32(b, (uint32_t)getpriority(PRIO_PROCESS, 0));
}

static void describe(struct fbr_buf *b, const struct fbr_job *job)
{
    fbr_buf_clear(b);
    for (size_t i = 0; job->template[i]; i++)
        fbr_put_str(b, job->template[i]);
    fbr_put_str(b, "");
    for (char *const *e = job->env; *e; e++)
        if (!travels(NULL, *e))
            fbr_put_str(b, *e);
    put_status(b);
    put_limits(b);
}

static bool same(const struct fbr_buf *a, const struct fbr_buf *b)
{
    return !a->failed && !b->failed && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* ---- Its life ---- */

/* Reaps the processes of a killed group; blocks at most as long as a loop thread may. */
static void reap_group(pid_t group)
{
    uint64_t until = fbr_now_ms() + KILL_MS;
    pid_t pid; /* 0: they have not ended yet */

    while ((pid = waitpid(-group, NULL, WNOHANG)) > 0 || (pid == 0 && fbr_now_ms() < until))
        if (pid == 0)
            poll(NULL, 0, 1);
}

/* Copies that did not get their GO are in the template's group, and end with it. */
static void end_template(struct fbr_copies *t)
{
    if (t->state == ABSENT)
        return;
    t->state = ABSENT;
    fbr_timer_stop(&t->timer);
    uv_close((uv_handle_t *)t->watch, fbr_free_handle);
    t->watch = NULL;
    close(t->fd);
    t->gate = fbr_fds_close(t->gate);
    /* else the program itself has waited for it */
    if (fbr_spawn_signal(t->pid, t->pidfd, SIGKILL) == 0) {
        kill(-t->pid, SIGKILL);
        reap_group(t->pid);
    }
    close(t->pidfd);
}

static void deliver(struct fbr_copies *t, pid_t pid, int pidfd)
{
    struct fbr_copies_order *o = t->orders;

    DL_DELETE(t->orders, o);
    o->done(o, pid, pidfd);
}

/* All waiting jobs are started in the other way. */
static void fail(struct fbr_copies *t, const char *why)
{
    struct fbr_copies_order *late = t->orders, *o, *more;

    fbr_info("the template %s; jobs are started without it", why);
    end_template(t);
    t->failures++;
    t->alike = 0;
    t->orders = NULL;
    DL_FOREACH_SAFE(late, o, more)
        o->done(o, 0, -1);
}

static void on_time(void *arg)
{
    struct fbr_copies *t = arg;

    fail(t, t->state == LOADING ? "takes too long to load" : "does not answer");
}

/* ---- A copy ---- */

/* Returns the copy's pid, and its pidfd; 0: there is no copy. */
static pid_t read_copy(struct fbr_copies *t, int *pidfd)
{
    int32_t pid = 0;
    size_t n = fbr_copies_receive(t->fd, &pid, sizeof(pid), pidfd, 1, MSG_DONTWAIT);

    if (n == sizeof(pid) && pid > 0)
        return pid;
    if (n)
        close(*pidfd);
    return 0;
}

static void take_copy(struct fbr_copies *t)
{
    const char go = FBR_COPIES_GO;
    int gate = t->gate, pidfd;
    pid_t pid = read_copy(t, &pidfd);

    if (!pid) {
        fail(t, "makes no copies");
        return;
    }
    t->state = IDLE;
    t->gate = -1;
    t->failures = 0;
    fbr_timer_stop(&t->timer);
    /* before it runs, so that from now on a signal to its group reaches it */
    setpgid(pid, pid);
    deliver(t, pid, pidfd);
    send(gate, &go, 1, MSG_NOSIGNAL);
    close(gate);
    next(t);
}

static void on_readable(uv_poll_t *watch, int status, int events)
{
    struct fbr_copies *t = watch->data;
    char hello;

    if (t->state == ASKED) {
        take_copy(t);
    } else if (t->state == LOADING && recv(t->fd, &hello, 1, MSG_DONTWAIT) == 1 &&
               hello == FBR_COPIES_HELLO) {
        t->state = IDLE;
        fbr_timer_stop(&t->timer);
        next(t);
    } else {
        fail(t, t->state == LOADING ? "cannot be loaded" : "has ended");
    }
}

static int send_order(struct fbr_copies *t, const struct fbr_copies_order *o)
{
    struct fbr_buf b = {0};
    int rc = -EIO;

    for (char *const *e = o->env; *e; e++)
        if (travels(NULL, *e))
            fbr_put(&b, *e, strlen(*e) + 1);
    if (!b.failed && b.len && b.len <= FBR_COPIES_MESSAGE)
        rc = fbr_copies_send(t->fd, b.data, b.len, o->fds, FBR_COPIES_FDS);
    fbr_buf_fini(&b);
    return rc;
}

/* Orders the next copy. */
static void next(struct fbr_copies *t)
{
    int gates[2];

    while (t->state == IDLE && t->orders && t->orders->turn(t->orders) < 0)
        deliver(t, 0, -1);
    if (t->state != IDLE || !t->orders)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gates) < 0) {
        fail(t, "cannot be asked: no descriptors");
        return;
    }
    t->gate = gates[0];
    t->state = ASKED;
    t->orders->fds[FBR_COPIES_GATE] = gates[1];
    fbr_timer_start(&t->timer, COPY_MS, 0);
    if (send_order(t, t->orders) < 0)
        fail(t, "cannot be asked");
    close(gates[1]);
}

/* ---- Starting it ---- */

static int spawn(struct fbr_copies *t, char *const *env, int fd)
{
    struct fbr_error err = {0, ""};
    char file[4096];
    struct fbr_spawn s = {.file = file,
                          .argv = (char *const *)(uintptr_t)t->argv,
                          .env = env,
                          .fds = {-1, -1, -1, fd},
                          .nfds = FBR_COPIES_FD + 1};
    int rc;

    if ((rc = fbr_spawn_find_in(env, t->argv[0], file, sizeof(file), &err)) < 0 ||
        (rc = fbr_spawn(&s, &t->pid, &t->pidfd, &err)) < 0)
        fbr_info("no template: %s", err.text);
    return rc;
}

static int start_template(struct fbr_copies *t, const struct fbr_job *job)
{
    /* without the variables that each copy gets itself */
    char **own = fbr_environ_without(job->env, travels, NULL, NULL);
    int ends[2], rc = -ENOMEM;

    t->argv = job->template;
    t->watch = calloc(1, sizeof(*t->watch));
    if (!own || !t->watch)
        goto fail;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        rc = -errno;
        goto fail;
    }
    rc = spawn(t, own, ends[1]);
    close(ends[1]);
    if (rc < 0) {
        close(ends[0]);
        goto fail;
    }
    free(own);
    t->fd = ends[0];
    t->state = LOADING;
    fbr_buf_clear(&t->serves);
    fbr_put(&t->serves, t->like.data, t->like.len);
    uv_poll_init(fbr_loop_uv(t->loop), t->watch, t->fd);
    t->watch->data = t;
    uv_poll_start(t->watch, UV_READABLE, on_readable);
    fbr_timer_start(&t->timer, LOAD_MS, 0);
    return 0;
fail:
    free(t->watch);
    t->watch = NULL;
    t->failures++;
    free(own);
    return rc;
}

/* ---- For the backend ---- */

int fbr_copies_open(struct fbr_copies **out, struct fbr_loop *loop)
{
    struct fbr_copies *t = calloc(1, sizeof(*t));
    int rc = t ? fbr_timer_init(&t->timer, loop, on_time, t) : -ENOMEM;

    if (rc < 0) {
        free(t);
        return rc;
    }
    t->loop = loop;
    t->gate = -1;
    *out = t;
    return 0;
}

bool fbr_copies_takes(struct fbr_copies *t, const struct fbr_job *job)
{
    struct fbr_buf now = {0};

    if (t->failures >= FAILURES)
        return false;
    describe(&now, job);
    if (!same(&now, &t->like)) {
        fbr_buf_fini(&t->like);
        t->like = now;
        t->alike = 0;
    } else {
        fbr_buf_fini(&now);
    }
    if (++t->alike < FROM && job->alike < FROM)
        return false;
    if (t->state != ABSENT && same(&t->like, &t->serves))
        return true;
    if (t->orders) /* orders that the template still fits */
        return false;
    end_template(t);
    return start_template(t, job) == 0;
}

void fbr_copies_order(struct fbr_copies *t, struct fbr_copies_order *o)
{
    DL_APPEND(t->orders, o);
    next(t);
}

void fbr_copies_close(struct fbr_copies *t)
{
    if (!t)
        return;
    end_template(t);
    fbr_timer_fini(&t->timer);
    fbr_buf_fini(&t->like);
    fbr_buf_fini(&t->serves);
    free(t);
}
