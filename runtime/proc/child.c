/* child.c - a process that another one started: joins its parent, runs the function that it gets,
 * and ends with its parent.
 *
 * When the control connection ends, a child removes what a killed parent left behind, and exits. On
 * the parent's host, the kernel also kills a child whose parent dies (die_with_parent).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "runtime/proc/fnref.h"
#include "runtime/base/log.h"
#include "runtime/proc/subjobs.h"
#include "runtime/net/relay.h"
#include "runtime/program/spawn.h"
#include "runtime/proc/tunnel.h"

#define RETRY_MS 50
#define TURNED_AWAY_MAX 8
#define PARENT_LOST 74 /* EX_IOERR of sysexits.h */
#define CANNOT_START 125
#define VISIT_FDS 4 /* a pair of sockets, a file, and one to spare */

/* A frame that came before it could be handled. */
struct early {
    struct early *next, *prev;
    uint8_t type;
    size_t len;
    uint8_t body[];
};

struct fbr_child {
    struct fbr_runtime *rt;
    struct fbr_join join;
    struct fbr_conn *conn; /* loop thread */
    struct fbr_timer retry;
    uint64_t deadline;
    unsigned turned_away; /* loop thread */
    bool said_goodbye;
    /* the process that started us on this host, whose death ends us; 0: none */
    pid_t watcher;
    struct fbr_error failure; /* under lock, as all below */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, failed;
    uint8_t *start; /* the START frame's body */
    size_t start_len;
    /* Loop thread. */
    void (*fn)(void *user, uint8_t type, struct fbr_cur *body);
    void *user;
    struct early *early; /* frames that came before there was a handler */
    /* orders about subjobs, kept until we would outlive the parent and could end the subjobs */
    struct early *orders;
    bool outlives;
    struct fbr_post outliving;
    struct fbr_tunnels tunnels;
    /* From START, read-only after it. */
    int kind;
    struct fbr_fnref ref;
    const void *work;
    size_t work_len;
    char data_server_url[FBR_URL_MAX];
    uint64_t link;
    uint8_t alg;      /* 0: not encrypted */
    uint32_t beat_ms; /* the data server must hear us at this interval; 0: never */
};

/* Keeps the reason of a failed attempt to join; `last`: no other attempt follows. */
static void keep_failure(struct fbr_child *c, int code, const char *text, bool last)
{
    pthread_mutex_lock(&c->lock);
    fbr_fail(&c->failure, code, "%s: %s", c->join.url, text);
    c->failed = last;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* The parent is gone: kills all processes that we have forked, removes the parent's leftovers, and
 * exits. If the master of the run is dead, the run's directory goes, too; the kernel may take a
 * moment to release the master's lock. */
static _Noreturn void exit_orphaned(struct fbr_child *c, const char *text)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    const char *root = c->join.root;

    fbr_log(root[0] ? FBR_LOG_INFO : FBR_LOG_WARN, "%s: lost the parent (%s)", c->join.name, text);
    if (c->rt->orphaned)
        c->rt->orphaned(c->rt);
    /* also those that have not joined: they would leave their own children behind */
    fbr_subjob_host_kill(c->rt->subjob_host);
    if (getsid(0) == getpid())
        fbr_spawn_sweep(getpid());
    for (int i = 0; i < 20 && root[0] && !fbr_rundir_wreck_dead(root, c->rt->dir.joined_shared);
         i++)
        if (access(root, F_OK) < 0 || nanosleep(&nap, NULL) < 0)
            break;
    /* the run's directory on this host, which is not the master's */
    if (!root[0])
        fbr_rundir_remove(&c->rt->dir);
    if (getpgrp() == getpid())
        kill(0, SIGKILL);
    _exit(PARENT_LOST);
}

/* Replaces the signal that we get when our parent dies; false: that signal was not `instead`. The
 * kernel kills a child on this host when its parent dies (spawn.c). After the join, the end of the
 * connection reports the parent's death instead, and leaves time to clean up; the signal then only
 * wakes us if we were stopped. This setting belongs to the calling thread, the main thread. */
static bool die_with_parent(int instead, int sig)
{
    int now = 0;

    return prctl(PR_GET_PDEATHSIG, &now) == 0 && now == instead &&
           prctl(PR_SET_PDEATHSIG, sig) == 0;
}

/* The parent has too many callers, or does not admit us. */
static bool was_turned_away(int why)
{
    return why == -EPIPE || why == -ECONNRESET;
}

static bool may_retry(const struct fbr_child *c, int why)
{
    bool busy = why == -EAGAIN || why == -ECONNREFUSED; /* its queue of callers is full */

    return !c->join.by_host && (busy || (was_turned_away(why) && c->turned_away < TURNED_AWAY_MAX));
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct fbr_child *c = user;
    bool started, again;

    c->conn = NULL;
    pthread_mutex_lock(&c->lock);
    started = c->started;
    pthread_mutex_unlock(&c->lock);
    if (started)
        exit_orphaned(c, text);
    c->turned_away += was_turned_away(why);
    again = may_retry(c, why) && fbr_now_ms() < c->deadline;
    keep_failure(c, why, text, !again);
    if (again)
        fbr_timer_start(&c->retry, RETRY_MS * (1 + c->turned_away), 0);
}

/* Until the join, start_timeout is the limit for the parent's silence. Our heartbeats begin at
 * once: a long START takes its time, and the parent must hear us meanwhile. */
static void send_beats(struct fbr_child *c)
{
    fbr_conn_heartbeat(c->conn, (unsigned)fbr_config_ms(c->rt->config, "heartbeat"), 0);
}

/* Whether we call the parent over the network. */
static bool is_far(const struct fbr_child *c)
{
    return !c->join.by_host && strncmp(c->join.url, "unix:", 5) != 0;
}

/* Call it after the join. A parent on this host, or our host process, may be stopped by a debugger
 * without being dead: only the end of the connection means its death. A parent on another host may
 * be stopped for a while, too, so we wait longer for the parent than it waits for us. */
static void watch_parent(struct fbr_child *c)
{
    const struct fbr_config *config = c->rt->config;

    fbr_conn_heartbeat(
        c->conn, (unsigned)fbr_config_ms(config, "heartbeat"),
        is_far(c) ? FBR_PARENT_PATIENCE * (unsigned)fbr_config_int(config, "heartbeat_misses") : 0);
}

/* START: u8 kind, [reference of the function], u64 length, argument; then, of the data link, str
 * url of the data server, u64 link, u8 AEAD algorithm, u32 heartbeat in ms. The argument moves to
 * the front of our copy, where it is aligned. */
static int read_start(struct fbr_child *c)
{
    struct fbr_cur cur = fbr_cur(c->start, c->start_len);
    const void *work;

    c->kind = fbr_get_u8(&cur);
    if (c->kind != FBR_START_FN && c->kind != FBR_START_WORK)
        return -EPROTO;
    if (c->kind == FBR_START_FN)
        fbr_fnref_get(&cur, &c->ref);
    c->work_len = fbr_get_u64(&cur);
    work = fbr_get(&cur, c->work_len);
    fbr_get_str(&cur, c->data_server_url, sizeof(c->data_server_url));
    c->link = fbr_get_u64(&cur);
    c->alg = fbr_get_u8(&cur);
    c->beat_ms = fbr_get_u32(&cur);
    if (!fbr_cur_ok(&cur))
        return -EPROTO;
    memmove(c->start, work, c->work_len);
    c->work = c->start;
    /* our children must not inherit this descriptor */
    if (strcmp(c->data_server_url, FBR_URL_OF_HOST) == 0)
        fcntl(FBR_RELAY_FD, F_SETFD, FD_CLOEXEC);
    return 0;
}

static void on_start(struct fbr_child *c, struct fbr_cur *body)
{
    size_t len = fbr_cur_left(body);
    int rc = -ENOMEM;

    pthread_mutex_lock(&c->lock);
    if (c->start) { /* a second START */
        pthread_mutex_unlock(&c->lock);
        return;
    }
    c->start = malloc(len + 1);
    if (c->start) {
        memcpy(c->start, body->at, len);
        c->start_len = len;
        rc = read_start(c);
    }
    c->started = rc == 0;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        keep_failure(c, rc,
                     "the parent's start record cannot be read; is it another version of Fiber?",
                     true);
    else
        watch_parent(c);
}

static void keep_early(struct fbr_child *c, struct early **l, uint8_t type,
                       const struct fbr_cur *body)
{
    size_t len = fbr_cur_left(body);
    struct early *e = malloc(sizeof(*e) + len);

    if (!e)
        exit_orphaned(c, "out of memory");
    *e = (struct early){.type = type, .len = len};
    memcpy(e->body, body->at, len);
    DL_APPEND(*l, e);
}

static int send_of_tunnel(void *user, uint8_t type, const struct fbr_buf *body)
{
    return fbr_child_send(user, type, body);
}

/* Serves an exec client in a thread, over a pair of sockets. */
static int attach(struct fbr_child *c, uint64_t id, struct fbr_error *err)
{
    int ends[2], rc = fbr_fds_need(VISIT_FDS, "a client of `fiber exec`", err);

    if (rc < 0)
        return rc;
    c->tunnels.loop = c->rt->loop;
    c->tunnels.send = send_of_tunnel;
    c->tunnels.user = c;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return fbr_fail(err, -errno, "%s", fbr_strerror(-errno));
    rc = fbr_tunnels_open(&c->tunnels, id, ends[0], NULL, err);
    if (rc < 0)
        close(ends[0]);
    else
        rc = fbr_exec_server_start(ends[1], err);
    if (rc < 0)
        close(ends[1]);
    return rc;
}

static void on_tunnel(struct fbr_child *c, uint8_t type, struct fbr_cur *body)
{
    struct fbr_error err = {0, ""};
    struct fbr_cur id = *body;
    struct fbr_buf b = {0};

    if (type != FBR_TUNNEL_OPEN) {
        fbr_tunnels_on_frame(&c->tunnels, type, body);
        return;
    }
    if (attach(c, fbr_get_u64(&id), &err) == 0)
        return;
    fbr_put_u64(&b, fbr_get_u64(body));
    fbr_exec_server_refuse(&b, err.code, err.text);
    fbr_child_send(c, FBR_TUNNEL_DATA, &b);
    b.len = sizeof(uint64_t); /* the number of the tunnel alone */
    fbr_child_send(c, FBR_TUNNEL_END, &b);
    fbr_buf_fini(&b);
}

/* The kernel refuses a number that is no signal. */
static void on_signal(struct fbr_cur *body)
{
    uint32_t sig = fbr_get_u32(body);

    if (fbr_cur_ok(body))
        kill(getpid(), (int)sig);
}

static void send_use(struct fbr_child *c)
{
    struct fbr_buf use = {0};

    fbr_exec_server_put_use(&use);
    fbr_child_send(c, FBR_FRAME_USE, &use);
    fbr_buf_fini(&use);
}

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct fbr_child *c = user;

    if (type == FBR_FRAME_SIGNAL) {
        on_signal(body);
        return;
    }
    if (type == FBR_FRAME_LOOK) {
        send_use(c);
        return;
    }
    if (type == FBR_FRAME_START) {
        on_start(c, body);
        return;
    }
    if (fbr_subjob_host_takes(type)) {
        if (c->outlives)
            fbr_subjob_host_on_frame(c->rt, type, body);
        else
            keep_early(c, &c->orders, type, body);
        return;
    }
    if (fbr_tunnel_takes(type)) {
        on_tunnel(c, type, body);
        return;
    }
    if (c->fn)
        c->fn(c->user, type, body);
    else
        keep_early(c, &c->early, type, body);
}

/* Handles the frames that were kept; those for which it is still too early are kept again. */
static void take_early(struct fbr_child *c, struct early **list)
{
    struct early *kept = *list, *e, *next;

    *list = NULL;
    DL_FOREACH_SAFE(kept, e, next) {
        struct fbr_cur cur = fbr_cur(e->body, e->len);

        on_frame(c, c->conn, e->type, &cur);
        free(e);
    }
}

/* We start subjobs only now: if the parent died earlier, the kernel would kill us, and the children
 * of our children would stay. */
static void on_outliving(void *arg)
{
    struct fbr_child *c = arg;

    c->outlives = true;
    take_early(c, &c->orders);
}

static const struct fbr_conn_ops conn_ops = {.on_frame = on_frame, .on_close = on_close};

/* Most backends do not know our pid, so we send it. */
static void send_join(struct fbr_child *c)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, (uint64_t)getpid());
    if (fbr_conn_send_buf(c->conn, FBR_FRAME_JOIN, &b) == 0)
        send_beats(c);
    fbr_buf_fini(&b);
}

/* Our host process has made a connection for us; this descriptor is our end. */
static void join_by_host(struct fbr_child *c)
{
    struct fbr_error err = {0, ""};

    fcntl(FBR_CONTROL_FD, F_SETFD, FD_CLOEXEC); /* our children must not inherit this descriptor */
    if (fbr_conn_open(&c->conn, c->rt->loop, FBR_CONTROL_FD, &conn_ops, c, &err) < 0)
        keep_failure(c, err.code, err.text, true);
    else
        send_join(c);
}

static void dial(void *arg)
{
    struct fbr_child *c = arg;
    struct fbr_error err = {0, ""};

    if (c->join.by_host) {
        join_by_host(c);
        return;
    }
    if (fbr_conn_dial(&c->conn, c->rt->loop, c->join.url, &c->join.me, c->join.secret, &conn_ops, c,
                      &err) < 0) {
        keep_failure(c, err.code, err.text, true);
        return;
    }
    send_join(c);
}

static int begin(void *arg)
{
    struct fbr_child *c = arg;
    int rc = fbr_timer_init(&c->retry, c->rt->loop, dial, c);

    if (rc < 0)
        return rc;
    dial(c);
    return 0;
}

/* While START comes, the deadline moves: start_timeout counts from the last bytes of the parent. */
static int put_off_deadline(void *arg)
{
    struct fbr_child *c = arg;
    uint64_t limit = (uint64_t)fbr_config_ms(c->rt->config, "start_timeout");
    uint64_t silence = c->conn ? fbr_conn_silence_ms(c->conn) : limit;

    if (!c->conn) { /* the next attempt would come too late, so the last failure is the reason */
        pthread_mutex_lock(&c->lock);
        c->failed = true;
        pthread_mutex_unlock(&c->lock);
    }
    if (silence >= limit)
        return -ETIMEDOUT;
    c->deadline = fbr_now_ms() + limit - silence;
    return 0;
}

/* Waits for START. Under the lock. */
static int wait_start(struct fbr_child *c)
{
    int rc = 0;

    while (rc == 0 && !c->started && !c->failed) {
        rc = fbr_cond_wait(&c->changed, &c->lock, c->deadline);
        if (rc == 0)
            continue;
        pthread_mutex_unlock(&c->lock);
        rc = fbr_loop_call(c->rt->loop, put_off_deadline, c);
        pthread_mutex_lock(&c->lock);
    }
    return c->started ? 0 : rc;
}

int fbr_child_join(struct fbr_runtime *rt, const struct fbr_join *join, struct fbr_error *err)
{
    struct fbr_child *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return fbr_fail(err, -ENOMEM, "out of memory");
    c->rt = rt;
    c->join = *join;
    c->outliving = (struct fbr_post){.fn = on_outliving, .arg = c, .own = true};
    pthread_mutex_init(&c->lock, NULL);
    fbr_cond_init(&c->changed);
    c->deadline = fbr_now_ms() + (uint64_t)fbr_config_ms(rt->config, "start_timeout");
    rt->child = c;
    rt->parent_url = c->join.url;
    rt->near_master = c->join.root[0];
    rc = fbr_loop_call(rt->loop, begin, c);
    pthread_mutex_lock(&c->lock);
    if (rc == 0)
        rc = wait_start(c);
    if (c->failed) {
        *err = c->failure;
        rc = c->failure.code;
    } else if (rc < 0) {
        fbr_fail(err, rc, "%s: the parent did not answer within start_timeout%s", c->join.url,
                 is_far(c) ? "; can this host reach that address?" : "");
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        return fbr_wrap(err, "%s cannot join its parent", join->name);
    if (die_with_parent(SIGKILL, SIGCONT))
        c->watcher = getppid();
    fbr_loop_post_own(rt->loop, &c->outliving);
    return 0;
}

void fbr_child_run(struct fbr_runtime *rt)
{
    struct fbr_child *c = rt->child;
    struct fbr_error err = {0, ""};
    void (*fn)(void);

    if (c->kind == FBR_START_WORK)
        return;
    if (fbr_fnref_resolve(&c->ref, &fn, &err) < 0)
        fbr_child_exit(c, CANNOT_START, err.text);
    fbr_child_exit(c, ((fiber_process_fn)fn)(c->work, c->work_len), "");
}

int fbr_child_send(struct fbr_child *c, uint8_t type, const struct fbr_buf *body)
{
    int rc = fbr_rt_send(c->rt, &c->conn, type, body, NULL, NULL);

    return rc < 0 ? rc : 0;
}

size_t fbr_child_queued(const struct fbr_child *c)
{
    return c->conn ? fbr_conn_queued(c->conn) : 0;
}

struct listening {
    struct fbr_child *c;
    void (*fn)(void *user, uint8_t type, struct fbr_cur *body);
    void *user;
};

static int listen_to(void *arg)
{
    struct listening *l = arg;

    l->c->fn = l->fn;
    l->c->user = l->user;
    take_early(l->c, &l->c->early);
    return 0;
}

void fbr_child_on_frame(struct fbr_child *c, void (*fn)(void *, uint8_t, struct fbr_cur *),
                        void *user)
{
    struct listening l = {c, fn, user};

    fbr_loop_call(c->rt->loop, listen_to, &l);
}

struct key_call {
    struct fbr_child *c;
    struct fbr_keys *keys;
};

static int get_keys(void *arg)
{
    struct key_call *k = arg;

    return k->c->conn ? fbr_rt_keys(k->c->conn, k->c->link, k->c->alg, k->keys) : -EPIPE;
}

static size_t longest_record(const struct fbr_child *c)
{
    return fbr_config_size(c->rt->config, "max_message") + FBR_MUX_SLACK;
}

int fbr_child_relay(struct fbr_child *c, struct fbr_relay **r, struct fbr_error *err)
{
    return fbr_relay_open(r, c->work, c->work_len, longest_record(c), err);
}

int fbr_child_data_client(struct fbr_child *c, struct fbr_data_client **u, struct fbr_error *err)
{
    struct fbr_keys keys;
    struct key_call call = {c, &keys};
    size_t limit = longest_record(c);
    int rc = 0;

    if (!c->link)
        return fbr_fail(err, -ENODATA, "the parent offers no data link");
    if (strcmp(c->data_server_url, FBR_URL_OF_HOST) == 0)
        return fbr_data_client_open_local(u, FBR_RELAY_FD, limit, err);
    if (c->alg)
        rc = fbr_loop_call(c->rt->loop, get_keys, &call);
    if (rc < 0)
        return fbr_fail(err, rc, "data link: no keys: %s", fbr_strerror(rc));
    rc = fbr_data_client_open(u, c->data_server_url, c->link, c->alg ? &keys : NULL, limit,
                              fbr_config_ms(c->rt->config, "start_timeout"), err);
    fbr_wipe(&keys, sizeof(keys));
    if (rc < 0)
        return rc;
    fbr_data_client_heartbeat(*u, c->beat_ms, fbr_config_ms(c->rt->config, "heartbeat"),
                              fbr_config_int(c->rt->config, "heartbeat_misses"));
    return 0;
}

struct goodbye {
    struct fbr_child *c;
    int code;
    const char *why;
};

static int send_goodbye(void *arg)
{
    struct goodbye *g = arg;
    struct fbr_buf b = {0};

    fbr_put_u32(&b, (uint32_t)g->code);
    fbr_put_str(&b, g->why);
    if (g->c->conn && !g->c->said_goodbye)
        fbr_conn_send_buf(g->c->conn, FBR_FRAME_EXIT, &b);
    g->c->said_goodbye = true;
    fbr_buf_fini(&b);
    return 0;
}

void fbr_child_exit(struct fbr_child *c, int code, const char *why)
{
    struct goodbye g = {c, code & 255, why};

    if (fbr_rt_forked()) /* the function forked, and the child returned, too: it has no loop */
        exit(code & 255);
    fflush(NULL);
    fbr_loop_call(c->rt->loop, send_goodbye, &g);
    exit(code & 255); /* fiber_fini() sends what is queued on the connection, and closes it */
}

static int hang_up(void *arg)
{
    struct fbr_child *c = arg;

    send_goodbye(&(struct goodbye){c, FBR_EXIT_UNKNOWN, ""}); /* the program itself called exit() */
    fbr_timer_fini(&c->retry);
    fbr_tunnels_close(&c->tunnels);
    fbr_conn_close(c->conn);
    c->conn = NULL;
    return 0;
}

void fbr_child_close(struct fbr_child *c)
{
    if (!c)
        return;
    /* Nothing watches the connection any more, so the parent's death must kill us again. A thread
     * that is not the main thread, too, may end us; it sets the signal for itself. */
    if (c->watcher && gettid() != getpid())
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    else
        die_with_parent(SIGCONT, SIGKILL);
    fbr_loop_call(c->rt->loop, hang_up, c);
}

/* The program's own exit handlers run next, and may hang. If our parent is dead already, its death
 * sent only SIGCONT, and no other process would kill us. */
void fbr_child_closed(const struct fbr_child *c)
{
    if (c && c->watcher && getppid() != c->watcher)
        _exit(PARENT_LOST);
}

const char *fbr_child_name(const struct fbr_child *c)
{
    return c->join.name;
}

int fbr_child_work(const struct fbr_child *c, const void **work, size_t *len)
{
    if (c->kind != FBR_START_WORK)
        return -ENODATA;
    *work = c->work;
    *len = c->work_len;
    return 0;
}
