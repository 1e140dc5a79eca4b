/* exec.c - runs a command next to a process of a run.
 *
 * One thread polls the client's socket, the command's three streams and its pidfd. Output is sent
 * by a call that blocks, so a client that does not read delays its command, and nothing else.
 * Standard input waits in `pending` while the command does not read it. The client sends no more
 * than fits there, so the thread always reads the socket, and notices when the client hangs up.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/program/spawn.h"
#include "runtime/inspect/stack.h"

#define FDS 12
#define LEFT_MAX (1u << 20) /* bytes that are read after the command's end: as many as pipes hold */

/* ---- The request ---- */

void fbr_exec_put(struct fbr_buf *b, bool input, int32_t rank, char *const *argv)
{
    size_t n = 0;

    while (argv[n])
        n++;
    fbr_put_u8(b, input);
    fbr_put_u32(b, (uint32_t)rank);
    fbr_put_u16(b, (uint16_t)n);
    for (size_t i = 0; i < n; i++)
        fbr_put_str(b, argv[i]);
}

int fbr_exec_get(struct fbr_cur *c, struct fbr_exec_request *r)
{
    uint16_t n;

    r->input = fbr_get_u8(c) != 0;
    r->rank = (int32_t)fbr_get_u32(c);
    n = fbr_get_u16(c);
    r->argv = NULL;
    if (!fbr_cur_ok(c) || r->rank < -1 || n == 0)
        return -EBADMSG;
    r->argv = calloc((size_t)n + 1, sizeof(*r->argv));
    if (!r->argv)
        return -ENOMEM;
    for (uint16_t i = 0; i < n; i++) {
        r->argv[i] = fbr_get_strdup(c, FBR_MSG_MAX);
        if (!r->argv[i])
            return -EBADMSG;
    }
    return 0;
}

/* ---- The start ---- */

struct exec {
    int sock;
    pid_t pid;
    int pidfd, in, out, errors; /* -1: closed */
    struct fbr_buf pending;     /* for its standard input */
    bool input_ends;
    struct fbr_msg m;
    uint8_t *data; /* FBR_MSG_MAX */
};

/* Returns the pid of a rank, which is one of our descendants; for rank -1, our own pid. 0: the rank
 * does not run here. */
static uint32_t pid_of(int32_t rank)
{
    struct fbr_stack_list l;
    uint32_t pid = 0;

    if (rank < 0)
        return (uint32_t)getpid();
    if (fbr_stack_look("/proc", (uint32_t)getpid(), &l, NULL) < 0)
        return 0;
    for (size_t i = 0; i < l.count && !pid; i++)
        if (l.all[i].rank == rank)
            pid = l.all[i].pid;
    fbr_stack_list_fini(&l);
    return pid;
}

static void close_fd(int *fd)
{
    *fd = fbr_fds_close(*fd);
}

/* Makes a pipe: *theirs is the child's end, *end is ours, which does not block. */
static int open_pipe(int *theirs, int *end, bool we_write)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    *end = ends[we_write];
    *theirs = ends[!we_write];
    return fcntl(*end, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int start(struct exec *e, const struct fbr_exec_request *r, struct fbr_error *err)
{
    uint32_t pid = pid_of(r->rank);
    char path[PATH_MAX], setting[32] = "FIBER_PID";
    /* FIBER_RANK, which we may have from a ring around us, would make the command a part of that
     * rank (stack.h) */
    const char *const more[] = {"FIBER_TICKET", "FIBER_WORK", "FIBER_RANK", setting, NULL};
    struct fbr_spawn s = {.file = path, .argv = r->argv, .fds = {-1, -1, -1}, .nfds = 3};
    char **env;
    int rc = fbr_fds_need(FDS, "a command", err);

    if (rc < 0)
        return rc;
    if (strchr(r->argv[0], '/'))
        s.file = r->argv[0];
    else if ((rc = fbr_spawn_find(r->argv[0], path, sizeof(path), err)) == -ENOENT)
        fbr_fail(err, rc, "%.300s: no such program", r->argv[0]);
    if (rc < 0)
        return rc;
    if (pid)
        snprintf(setting, sizeof(setting), "FIBER_PID=%u", pid);
    env = fbr_environ_with(fbr_environ(), more);
    e->data = malloc(FBR_MSG_MAX);
    rc = env && e->data ? 0 : -ENOMEM;
    if (rc < 0 || (r->input && (rc = open_pipe(&s.fds[0], &e->in, true)) < 0) ||
        (rc = open_pipe(&s.fds[1], &e->out, false)) < 0 ||
        (rc = open_pipe(&s.fds[2], &e->errors, false)) < 0) {
        fbr_fail(err, rc, "%s", fbr_strerror(rc));
        goto done;
    }
    s.env = env;
    rc = fbr_spawn(&s, &e->pid, &e->pidfd, err);
done:
    for (int i = 0; i < 3; i++)
        close_fd(&s.fds[i]);
    free(env);
    return rc;
}

/* ---- While it runs ---- */

static int send_taken(const struct exec *e, size_t n)
{
    uint32_t taken = (uint32_t)n;

    return n ? fbr_msg_send(e->sock, FBR_MSG_TAKEN, &taken, sizeof(taken)) : 0;
}

/* Writes as much of the pending input as the command takes now. Drops all of it if the command
 * takes no more. */
static int feed(struct exec *e)
{
    ssize_t n = e->in < 0 ? -1 : write(e->in, e->pending.data, e->pending.len);
    size_t taken = n >= 0 ? (size_t)n : e->pending.len;

    if (n < 0 && e->in >= 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    fbr_buf_consume(&e->pending, taken);
    if (n < 0 || (e->input_ends && !e->pending.len))
        close_fd(&e->in);
    return send_taken(e, taken);
}

/* Receives more input, the end of the input, or the end of the client. */
static int take(struct exec *e, struct fbr_error *err)
{
    int rc = fbr_msg_expect(e->sock, &e->m, FBR_MSG_DATA, err);
    size_t n = fbr_cur_left(&e->m.body);

    if (rc < 0)
        return rc;
    if (e->pending.len + n > FBR_EXEC_WINDOW || (n && e->input_ends))
        return fbr_msg_malformed(err);
    e->input_ends = n == 0;
    fbr_put(&e->pending, e->m.body.at, n);
    if (e->pending.failed)
        return fbr_fail(err, -ENOMEM, "out of memory");
    return e->pending.len || e->input_ends ? feed(e) : 0;
}

/* Sends some output of the command. 1: sent; 0: there is none now; -errno: the client is gone. */
static int pass(struct exec *e, int *fd, enum fbr_msg_kind kind)
{
    ssize_t n = *fd < 0 ? 0 : read(*fd, e->data, FBR_MSG_MAX);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close_fd(fd);
        return 0;
    }
    rc = fbr_msg_send(e->sock, kind, e->data, (size_t)n);
    return rc < 0 ? rc : 1;
}

static int attend(struct exec *e, struct fbr_error *err)
{
    struct pollfd p[5] = {{.fd = e->sock, .events = POLLIN},
                          {.fd = e->pidfd, .events = POLLIN},
                          {.fd = e->out, .events = POLLIN},
                          {.fd = e->errors, .events = POLLIN},
                          {.fd = e->pending.len ? e->in : -1, .events = POLLOUT}};
    int rc;

    if (poll(p, 5, -1) < 0)
        return errno == EINTR ? 0 : -errno;
    if ((p[0].revents && (rc = take(e, err)) < 0) ||
        (p[2].revents && (rc = pass(e, &e->out, FBR_MSG_DATA)) < 0) ||
        (p[3].revents && (rc = pass(e, &e->errors, FBR_MSG_ERRORS)) < 0) ||
        (p[4].revents && (rc = feed(e)) < 0))
        return rc;
    return p[1].revents != 0;
}

/* Reads the rest of the output after the command's end: a pipe may still hold some. */
static int drain(struct exec *e, int *fd, enum fbr_msg_kind kind)
{
    int rc = 1;

    for (unsigned left = LEFT_MAX; rc > 0 && left; left -= FBR_MSG_MAX)
        rc = pass(e, fd, kind);
    return rc < 0 ? rc : 0;
}

/* Ends the command, because the client is gone. The command has not been waited for, so its pid is
 * still the id of its process group. */
static void end_it(struct exec *e)
{
    struct pollfd p = {.fd = e->pidfd, .events = POLLIN};

    kill(-e->pid, SIGTERM);
    poll(&p, 1, FBR_EXEC_GRACE_MS);
    kill(-e->pid, SIGKILL);
}

static int run(struct exec *e, struct fbr_error *err)
{
    siginfo_t how = {.si_status = 0};
    int rc = fbr_msg_send_item(e->sock, FBR_MSG_READY, 0, "", ""), waited;

    while (rc == 0)
        rc = attend(e, err);
    if (rc < 0 || (rc = drain(e, &e->out, FBR_MSG_DATA)) < 0 ||
        (rc = drain(e, &e->errors, FBR_MSG_ERRORS)) < 0)
        end_it(e);
    waited = fbr_spawn_wait(e->pid, e->pidfd, &how, NULL);
    if (rc < 0)
        return rc;
    if (waited < 0)
        return fbr_fail(
            err, waited,
            "the command ended, but its exit code is unknown: the job's program has collected it");
    return how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
}

int fbr_exec_serve(int sock, const struct fbr_exec_request *r, struct fbr_error *err)
{
    struct exec e = {.sock = sock, .pidfd = -1, .in = -1, .out = -1, .errors = -1};
    int rc = start(&e, r, err);

    rc = rc == 0 ? run(&e, err) : rc == -ENOENT ? FBR_EXEC_NONE : FBR_EXEC_CANNOT;
    close_fd(&e.in);
    close_fd(&e.out);
    close_fd(&e.errors);
    close_fd(&e.pidfd);
    fbr_buf_fini(&e.pending);
    fbr_buf_fini(&e.m.bytes);
    free(e.data);
    return rc;
}
