/* subjob_host.c - the host process's side of subjobs: starts and watches them on its parent's
 * orders.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/proc/child.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/proc/subjobs.h"
#include "runtime/proc/process.h"
#include "runtime/net/relay.h"

#define FULL \
    (4u << 20) /* bytes that wait for the parent, from which on jobs that print wait, too */
#define LOOK_MS 10
#define START_FDS 17 /* pipes, pidfd, ticket, data, control, and for a moment the other ends */

struct job {
    struct job *next, *prev;
    struct fbr_subjob_host *subjob_host;
    uint64_t process;
    void *handle; /* NULL: the process does not run */
    /* connection to it; may end before the process does, or after it. NULL: ended */
    struct fbr_conn *conn;
    bool joined; /* if set, the parent closes the connection, unless it ends by itself */
    /* its output is not read: the parent has asked for that; the parent has much to read */
    bool paused, held;
};

struct fbr_subjob_host {
    struct fbr_runtime *rt;
    const struct fbr_backend_ops *ops;
    struct fbr_backend *backend;
    struct job *jobs;
    struct fbr_timer look; /* runs while jobs are held */
};

static void send_event(struct fbr_subjob_host *n, uint64_t process, const struct fbr_job_event *e)
{
    struct fbr_buf b = {0};
    char text[256];

    snprintf(text, sizeof(text), "%s", e->text);
    fbr_put_u64(&b, process);
    fbr_put_u8(&b, (uint8_t)e->type);
    fbr_put_u8(&b, (uint8_t)e->stream);
    fbr_put_u32(&b, (uint32_t)e->code);
    fbr_put_u64(&b, (uint64_t)e->pid);
    fbr_put_str(&b, text);
    fbr_put_bytes(&b, e->data, e->len);
    fbr_child_send(n->rt->child, FBR_SUBJOB_EVENT, &b);
    fbr_buf_fini(&b);
}

static void maybe_free(struct job *j)
{
    if (j->handle || j->conn)
        return;
    DL_DELETE(j->subjob_host->jobs, j);
    free(j);
}

/* A parent that is stopped, or far away, takes nothing for a while. */
static void hold_back(struct fbr_subjob_host *n, struct job *j)
{
    if (j->held || fbr_child_queued(n->rt->child) < FULL)
        return;
    j->held = true;
    n->ops->pause_output(n->backend, j->handle, 1);
    fbr_timer_start(&n->look, LOOK_MS, LOOK_MS);
}

static void on_look(void *arg)
{
    struct fbr_subjob_host *n = arg;
    struct job *j;

    if (fbr_child_queued(n->rt->child) >= FULL / 2)
        return;
    fbr_timer_stop(&n->look);
    DL_FOREACH(n->jobs, j) {
        if (j->held && j->handle && !j->paused)
            n->ops->pause_output(n->backend, j->handle, 0);
        j->held = false;
    }
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct job *j = user;
    struct fbr_subjob_host *n = j->subjob_host;

    send_event(n, j->process, e);
    if (e->type == FBR_JOB_OUTPUT)
        hold_back(n, j);
    if (e->type != FBR_JOB_EXITED)
        return;
    if (n->rt->relay)
        fbr_relay_end(n->rt->relay, j->process);
    n->ops->release(n->backend, j->handle);
    j->handle = NULL;
    /* its own children may still hold the other end, so that it would never end */
    if (!j->joined) {
        fbr_conn_close(j->conn);
        j->conn = NULL;
    }
    maybe_free(j);
}

/* ---- Frames of a subjob ---- */

static void carry(struct job *j, uint8_t type, const void *body, size_t len)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, j->process);
    fbr_put_u8(&b, type);
    fbr_put(&b, body, len);
    fbr_child_send(j->subjob_host->rt->child, FBR_SUBJOB_CARRIED, &b);
    fbr_buf_fini(&b);
}

/* The process has joined: watches it from now on. */
static void on_join(struct job *j)
{
    const struct fbr_config *config = j->subjob_host->rt->config;

    j->joined = true;
    fbr_conn_heartbeat(j->conn, (unsigned)fbr_config_ms(config, "heartbeat"),
                       (unsigned)fbr_config_int(config, "heartbeat_misses"));
}

static void on_own_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct job *j = user;

    carry(j, type, body->at, fbr_cur_left(body));
    if (type == FBR_FRAME_JOIN)
        on_join(j);
}

static void on_own_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct job *j = user;
    struct fbr_buf b = {0};

    fbr_put_u32(&b, (uint32_t)why);
    fbr_put_str(&b, text);
    carry(j, 0, b.data, b.len);
    fbr_buf_fini(&b);
    j->conn = NULL;
    maybe_free(j);
}

static const struct fbr_conn_ops conn_ops = {.on_frame = on_own_frame, .on_close = on_own_close};

/* Passes a frame of the parent to the process. */
static void on_carried(struct job *j, struct fbr_cur *body)
{
    uint8_t type = fbr_get_u8(body);

    if (!fbr_cur_ok(body) || !j->conn)
        return;
    if (type >= FBR_FRAME_USER) {
        fbr_conn_send(j->conn, type, body->at, fbr_cur_left(body));
    } else if (type == 0) {
        fbr_conn_close(j->conn);
        j->conn = NULL;
        maybe_free(j);
    }
}

/* ---- Starting ---- */

static int open_subjob_host(struct fbr_runtime *rt, struct fbr_error *err)
{
    const struct fbr_backend_env env = {rt->loop, rt->config, on_event, NULL};
    struct fbr_subjob_host *n = calloc(1, sizeof(*n));
    int rc;

    if (!n)
        return fbr_fail(err, -ENOMEM, "out of memory");
    n->rt = rt;
    n->ops = fbr_backend_find(FBR_BACKEND_LOCAL, err);
    rc = fbr_timer_init(&n->look, rt->loop, on_look, n);
    if (rc < 0)
        fbr_fail(err, rc, "out of memory");
    else
        rc = n->ops ? n->ops->open(&n->backend, &env, err) : -ENOENT;
    if (rc < 0)
        goto fail;
    rt->subjob_host = n;
    return 0;
fail:
    fbr_timer_fini(&n->look);
    free(n);
    return rc;
}

struct order {
    struct fbr_job job;
    char name[FBR_NAME_MAX];
    char **argv, **added, **env, *workdir;
};

static void get_order(struct order *o, struct fbr_cur *c)
{
    size_t len;

    memset(o, 0, sizeof(*o));
    o->job.process = fbr_get_u64(c);
    fbr_get_str(c, o->name, sizeof(o->name));
    o->argv = fbr_get_list(c);
    o->added = fbr_get_list(c);
    o->workdir = fbr_get_strdup(c, 4096);
    o->job.ticket = fbr_get_bytes(c, &len);
    o->job.ticket_len = len;
    o->job.relayed = fbr_get_u8(c) == 1;
}

/* Opens the data path of a process: its end of a pair of sockets, whose other end is the
 * relay's. */
static int open_line(struct fbr_subjob_host *n, struct order *o, struct fbr_error *err)
{
    int rc = 0;

    if (!o->job.relayed)
        return 0;
    if (!n->rt->relay)
        rc = fbr_child_relay(n->rt->child, &n->rt->relay, err);
    return rc < 0 ? rc : fbr_relay_add(n->rt->relay, o->job.process, &o->job.link, err);
}

static void close_line(struct fbr_subjob_host *n, struct order *o, bool started)
{
    if (o->job.control)
        close(o->job.control);
    if (!o->job.link)
        return;
    close(o->job.link);
    if (!started)
        fbr_relay_end(n->rt->relay, o->job.process);
}

static int open_control(struct job *j, int *end, struct fbr_error *err)
{
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fbr_fail(err, -errno, "cannot make sockets for its control channel: %s",
                        fbr_strerror(-errno));
    rc = fbr_conn_open(&j->conn, j->subjob_host->rt->loop, pair[0], &conn_ops, j, err);
    if (rc < 0)
        close(pair[1]);
    else
        *end = pair[1];
    return rc;
}

static int carry_out(struct fbr_subjob_host *n, struct order *o, struct fbr_error *err)
{
    static char *self[] = {(char *)"fiber-worker", NULL};
    int rc = fbr_fds_need(START_FDS, fbr_child_name(n->rt->child), err);
    struct job *j;

    if (rc < 0)
        return rc;
    j = calloc(1, sizeof(*j));
    o->env = fbr_environ_with(fbr_environ(), (const char *const *)o->added);
    if (!j || !o->env || !o->argv) {
        free(j);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    j->subjob_host = n;
    j->process = o->job.process;
    o->job.name = o->name;
    o->job.run_uid = n->rt->run_uid;
    o->job.file = o->argv[0] ? o->argv[0] : "/proc/self/exe";
    o->job.argv = o->argv[0] ? o->argv : self;
    o->job.env = o->env;
    o->job.workdir = o->workdir && o->workdir[0] ? o->workdir : NULL;
    DL_APPEND(n->jobs, j);
    if ((rc = open_line(n, o, err)) < 0 || (rc = open_control(j, &o->job.control, err)) < 0 ||
        (rc = n->ops->start(n->backend, &o->job, j, &j->handle, err)) < 0)
        goto fail;
    close_line(n, o, true);
    return 0;
fail:
    close_line(n, o, false);
    fbr_conn_close(j->conn);
    DL_DELETE(n->jobs, j);
    free(j);
    return rc;
}

static int obey(struct fbr_runtime *rt, struct order *o, const struct fbr_cur *body,
                struct fbr_error *err)
{
    int rc = rt->subjob_host ? 0 : open_subjob_host(rt, err);

    if (rc < 0)
        return rc;
    if (!fbr_cur_ok(body))
        return fbr_fail(err, -E2BIG, "its arguments or environment are too long, or malformed");
    return carry_out(rt->subjob_host, o, err);
}

static void on_start(struct fbr_runtime *rt, struct fbr_cur *body)
{
    struct fbr_error err = {0, ""};
    struct order o;

    get_order(&o, body);
    if (obey(rt, &o, body, &err) < 0) {
        struct fbr_subjob_host n = {.rt = rt};
        char text[256];

        snprintf(text, sizeof(text), "could not be started: %.200s", err.text);
        send_event(&n, o.job.process,
                   &(struct fbr_job_event){.type = FBR_JOB_EXITED, .code = 125, .text = text});
    }
    fbr_list_free(o.argv);
    fbr_list_free(o.added);
    free(o.env);
    free(o.workdir);
}

static struct job *find(struct fbr_subjob_host *n, uint64_t process)
{
    struct job *j;

    DL_FOREACH(n->jobs, j)
        if (j->process == process)
            break;
    return j;
}

bool fbr_subjob_host_takes(uint8_t type)
{
    return type >= FBR_SUBJOB_START && type <= FBR_SUBJOB_CARRIED && type != FBR_SUBJOB_EVENT;
}

void fbr_subjob_host_on_frame(struct fbr_runtime *rt, uint8_t type, struct fbr_cur *body)
{
    struct fbr_subjob_host *n = rt->subjob_host;
    struct job *j;
    uint32_t arg;

    if (type == FBR_SUBJOB_START) {
        on_start(rt, body);
        return;
    }
    j = n ? find(n, fbr_get_u64(body)) : NULL;
    /* the process has ended, and its event is on the way */
    if (!j)
        return;
    if (type == FBR_SUBJOB_CARRIED) {
        on_carried(j, body);
        return;
    }
    if (!j->handle)
        return;
    arg = type == FBR_SUBJOB_SIGNAL ? fbr_get_u32(body) : fbr_get_u8(body);
    if (!fbr_cur_ok(body))
        return;
    if (type == FBR_SUBJOB_SIGNAL) {
        n->ops->signal(n->backend, j->handle, (int)arg);
        return;
    }
    j->paused = arg != 0;
    if (!j->held)
        n->ops->pause_output(n->backend, j->handle, j->paused);
}

void fbr_subjob_host_kill(struct fbr_subjob_host *n)
{
    struct job *j;

    DL_FOREACH(n ? n->jobs : NULL, j)
        if (j->handle)
            n->ops->signal(n->backend, j->handle, SIGKILL);
}

void fbr_subjob_host_close(struct fbr_subjob_host *n)
{
    if (!n)
        return;
    n->ops->close(n->backend);
    fbr_timer_fini(&n->look);
    while (n->jobs) {
        struct job *j = n->jobs;

        fbr_conn_close(j->conn);
        DL_DELETE(n->jobs, j);
        free(j);
    }
    free(n);
}
