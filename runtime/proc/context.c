/* context.c - the context of a process, and its parts, which open when they are first needed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/context.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/net/host_address.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/proc/output.h"
#include "runtime/pin/cgroup.h"

#define START_FDS 13 /* directory, two locks, loop */

static struct fbr_runtime *the_runtime;
static volatile bool forked;        /* this is a fork() child of the process that set it */
static _Thread_local int callbacks; /* nested callbacks that run on this thread */

/* ---- Parts that open when first needed ---- */

/* Finds the address to listen at, the first of these: the one where we listen already, because an
 * engine may not answer a second time; the configured one; the one that the jobs of a backend can
 * reach; the one from which we reach our parent; 127.0.0.1. A child has its parent's configuration,
 * whose address does not exist in a child on another host. */
static int bind_address(struct fbr_runtime *rt, char out[FBR_HOST_ADDRESS_MAX],
                        struct fbr_error *err)
{
    const char *bind = fbr_config_str(rt->config, "bind");
    char parent[FBR_HOST_ADDRESS_MAX];
    struct fbr_backend_slot *s;
    const struct fbr_listener *auth = rt->listener[FBR_REACH_TCP];
    int rc;

    if (auth && fbr_host_address_of_url(fbr_listener_url(auth), out))
        return 0;
    rc = bind[0] ? fbr_host_address_find(bind, out) : -ENOENT;
    if (rc == 0)
        return 0;
    if (bind[0] && !rt->child)
        return fbr_fail(err, rc, "bind = %s: this host has no such address or interface", bind);
    for (s = rt->backends; s; s = s->next)
        if (s->ops->reach == FBR_REACH_TCP && s->ops->address)
            return s->ops->address(s->backend, out, err);
    if (rt->child && fbr_host_address_of_url(rt->parent_url, parent) &&
        fbr_host_address_toward(parent, 0, out, NULL) == 0)
        return 0;
    snprintf(out, FBR_HOST_ADDRESS_MAX, "127.0.0.1");
    return 0;
}

/* Finds the backend that fits the surroundings of this process. In a child it is the local
 * backend. */
static const char *automatic(const struct fbr_runtime *rt)
{
    for (size_t i = 0; fbr_backends[i] && !rt->child; i++) {
        const struct fbr_backend_about *about = fbr_backends[i]->about;

        if (about && about->here && about->here())
            return fbr_backends[i]->name;
    }
    return FBR_BACKEND_LOCAL;
}

const char *fbr_rt_backend_name(const struct fbr_runtime *rt, const char *name)
{
    const struct fbr_backend_about *about;

    if (name && strcmp(name, "auto") != 0)
        return name;
    name = fbr_config_str(rt->config, "backend");
    about = fbr_backend_about(name);
    /* A job that runs in a container cannot ask the engine: its processes start in the same
     * container. */
    if (rt->child && about && about->contained)
        return FBR_BACKEND_LOCAL;
    return strcmp(name, "auto") == 0 ? automatic(rt) : name;
}

static const struct fbr_backend_ops *configured_backend(const struct fbr_runtime *rt)
{
    return fbr_backend_find(fbr_rt_backend_name(rt, NULL), NULL);
}

/* Stores where to listen: on this host at the socket `file` in our directory, else at an address.
 * Opens the backend first, which knows the address: an object may have to publish its address
 * before any job was started. */
static int find_url(struct fbr_runtime *rt, enum fbr_reach reach, const char *file,
                    char url[FBR_URL_MAX], struct fbr_error *err)
{
    const struct fbr_backend_ops *ops = configured_backend(rt);
    struct fbr_backend_slot *slot;
    char address[FBR_HOST_ADDRESS_MAX];
    int rc = 0;

    if (rt->killed) /* the thread that calls exit() is removing our directory */
        return fbr_fail(err, -ESHUTDOWN, "fiber_fini() was called");
    if (reach == FBR_REACH_HOST) {
        rc = fbr_rundir_own(&rt->dir, err);
        snprintf(url, FBR_URL_MAX, "unix:%s/%s", rt->dir.own, file);
        return rc;
    }
    if (ops && ops->reach == FBR_REACH_TCP)
        rc = fbr_rt_backend(rt, NULL, &slot, err);
    if (rc < 0 || (rc = bind_address(rt, address, err)) < 0)
        return rc;
    snprintf(url, FBR_URL_MAX, strchr(address, ':') ? "tcp://[%s]:0" : "tcp://%s:0", address);
    return 0;
}

/* Whether callers over TCP from this host must be of our user: yes where jobs of the backend are
 * processes of ours; in a container they may be of another user. */
static bool only_ours(const struct fbr_runtime *rt)
{
    const struct fbr_backend_ops *ops = configured_backend(rt);

    for (const struct fbr_backend_slot *s = rt->backends; s; s = s->next)
        if (s->ops->reach == FBR_REACH_TCP)
            return false;
    return ops && ops->reach == FBR_REACH_HOST && !rt->child;
}

int fbr_rt_listener(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_listener **l,
                    struct fbr_error *err)
{
    const struct fbr_auth_ops auth = {fbr_process_secret,
                                      fbr_process_admit,
                                      rt,
                                      (unsigned)fbr_config_ms(rt->config, "join_timeout"),
                                      only_ours(rt),
                                      &rt->held};
    char url[FBR_URL_MAX];
    int rc;

    *l = rt->listener[reach];
    if (*l)
        return 0;
    rc = find_url(rt, reach, "c", url, err);
    if (rc < 0 || (rc = fbr_listener_open(&rt->listener[reach], rt->loop, url, &auth, err)) < 0)
        return rc;
    *l = rt->listener[reach];
    return 0;
}

static int open_data_server(struct fbr_runtime *rt, enum fbr_reach reach,
                            struct fbr_data_server **data_server, struct fbr_error *err)
{
    const struct fbr_data_server_options o = {
        .limit = fbr_config_size(rt->config, "max_message") + FBR_MUX_SLACK,
        .beat_ms = (unsigned)fbr_config_ms(rt->config, "heartbeat"),
        .misses = (unsigned)fbr_config_int(rt->config, "heartbeat_misses"),
        .own_user = only_ours(rt),
        .held = &rt->held,
    };
    char url[FBR_URL_MAX];
    int rc = find_url(rt, reach, "d", url, err);

    return rc < 0 ? rc : fbr_data_server_open(data_server, url, &o, err);
}

int fbr_rt_data_server(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_data_server **h,
                       const char **url, struct fbr_error *err)
{
    struct fbr_data_server *data_server = rt->data_server[reach];
    int rc = data_server ? 0 : open_data_server(rt, reach, &data_server, err);

    pthread_mutex_lock(&rt->lock);
    rt->data_server[reach] = *h = data_server;
    pthread_mutex_unlock(&rt->lock);
    *url = rc < 0 ? "" : fbr_data_server_url(data_server);
    return rc;
}

enum fbr_reach fbr_rt_reach(struct fbr_runtime *rt, const struct fbr_backend_ops *ops)
{
    return strcmp(fbr_config_str(rt->config, "transport"), "tcp") == 0 ? FBR_REACH_TCP : ops->reach;
}

enum fbr_reach fbr_rt_object_reach(struct fbr_runtime *rt)
{
    const char *transport = fbr_config_str(rt->config, "transport");
    const struct fbr_backend_ops *ops = configured_backend(rt);

    if (strcmp(transport, "auto") != 0)
        return strcmp(transport, "tcp") == 0 ? FBR_REACH_TCP : FBR_REACH_HOST;
    if (rt->child && !rt->near_master)
        return FBR_REACH_TCP;
    for (const struct fbr_backend_slot *s = rt->backends; s; s = s->next)
        if (s->ops->reach == FBR_REACH_TCP)
            return FBR_REACH_TCP;
    return ops ? ops->reach : FBR_REACH_HOST;
}

int fbr_rt_backend(struct fbr_runtime *rt, const char *name, struct fbr_backend_slot **out,
                   struct fbr_error *err)
{
    const struct fbr_backend_env env = {rt->loop, rt->config, fbr_job_event, fbr_environ()};
    struct fbr_backend_slot *s;
    const struct fbr_backend_ops *ops;
    int rc;

    name = fbr_rt_backend_name(rt, name);
    for (s = rt->backends; s; s = s->next)
        if (strcmp(s->ops->name, name) == 0) {
            *out = s;
            return 0;
        }
    rc = rt->output ? 0 : fbr_output_open(&rt->output, rt->loop, fbr_process_resume_output, rt);
    if (rc < 0)
        return fbr_fail(err, rc, "output of jobs: %s", fbr_strerror(rc));
    ops = fbr_backend_find(name, err);
    if (!ops)
        return -ENOENT;
    s = calloc(1, sizeof(*s));
    if (!s)
        return fbr_fail(err, -ENOMEM, "out of memory");
    s->ops = ops;
    rc = ops->open(&s->backend, &env, err);
    if (rc < 0) {
        free(s);
        return fbr_wrap(err, "backend %s", name);
    }
    s->next = rt->backends;
    pthread_mutex_lock(&rt->lock);
    rt->backends = s;
    pthread_mutex_unlock(&rt->lock);
    *out = s;
    return 0;
}

void fbr_rt_see_environ(struct fbr_runtime *rt, const char *name)
{
    const struct fbr_backend_slot *s;

    name = fbr_rt_backend_name(rt, name);
    pthread_mutex_lock(&rt->lock);
    for (s = rt->backends; s && strcmp(s->ops->name, name) != 0; s = s->next)
        continue;
    pthread_mutex_unlock(&rt->lock);
    if (!s)
        fbr_environ_keep();
}

static int nothing(void *none)
{
    return 0;
}

void fbr_rt_await_starts(struct fbr_runtime *rt, const char *name)
{
    if (strcmp(fbr_rt_backend_name(rt, name), FBR_BACKEND_LOCAL) == 0)
        fbr_loop_call(rt->loop, nothing, NULL);
}

/* ---- Start ---- */

/* Messages of some 100 KiB come and go all the time. By default glibc returns their memory to the
 * kernel each time, and faults it in again: that halves the rate of large tasks
 * (docs/performance.md). Settings of the user stay. */
static void tune_malloc(void)
{
#ifdef __GLIBC__
    if (getenv("MALLOC_TRIM_THRESHOLD_") || getenv("MALLOC_MMAP_THRESHOLD_") ||
        getenv("GLIBC_TUNABLES"))
        return;
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

static void on_keep(void *arg)
{
    struct fbr_runtime *rt = arg;

    fbr_rundir_keep(&rt->dir);
}

static int begin_keeping(void *arg)
{
    struct fbr_runtime *rt = arg;
    int rc = fbr_timer_init(&rt->keep, rt->loop, on_keep, rt);

    if (rc < 0)
        return rc;
    fbr_timer_start(&rt->keep, FBR_RUNDIR_KEEP_MS, FBR_RUNDIR_KEEP_MS);
    return 0;
}

/* The limit of what this process keeps for others, if the configuration sets none: half of the
 * memory of the machine, of our control group or of this process, whichever is least. */
static uint64_t half_of_memory(void)
{
    uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct fbr_cgroup limits;
    struct rlimit own;

    fbr_cgroup_read(&limits);
    if (limits.memory && limits.memory < most)
        most = limits.memory;
    if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur < most)
        most = own.rlim_cur;
    return most / 2;
}

int fbr_rt_start(struct fbr_runtime *rt, const char *root, struct fbr_error *err)
{
    const char *base = fbr_config_str(rt->config, "run_dir");
    int rc;

    if (rt->started)
        return 0;
    /* a write to a peer that has closed is an error of the call, and does not end the process */
    signal(SIGPIPE, SIG_IGN);
    fbr_fds_raise();
    tune_malloc();
    rt->held.limit = fbr_config_size(rt->config, "hold_max");
    rt->held.find = half_of_memory;
    rc = fbr_fds_need(START_FDS, "start", err);
    if (rc < 0)
        return rc;
    if (root && !root[0])
        rc = fbr_rundir_share(&rt->dir, rt->run_uid, base, err);
    else if (root)
        rc = fbr_rundir_join(&rt->dir, root, base, err);
    else
        rc = fbr_rundir_create(&rt->dir, base, err);
    if (rc < 0 || (rc = fbr_loop_open(&rt->loop, err)) < 0 ||
        (rc = fbr_loop_call(rt->loop, begin_keeping, rt)) < 0 ||
        (rc = fbr_random(rt->peer_key, sizeof(rt->peer_key))) < 0)
        goto fail;
    rt->started = true;
    return 0;
fail:
    fbr_loop_close(rt->loop); /* the next call may try again */
    fbr_rundir_remove(&rt->dir);
    rt->loop = NULL;
    return err && !err->code ? fbr_fail(err, rc, "start: %s", fbr_strerror(rc)) : rc;
}

/* ---- Access ---- */

static void on_fork(void)
{
    forked = true;
}

int fbr_rt_set(struct fbr_runtime *rt)
{
    static bool watched;

    if (!watched && pthread_atfork(NULL, NULL, on_fork) != 0)
        return -ENOMEM;
    watched = true;
    forked = false;
    the_runtime = rt;
    return 0;
}

struct fbr_runtime *fbr_rt_any(void)
{
    return the_runtime;
}

bool fbr_rt_forked(void)
{
    return forked;
}

int fbr_rt_check(void)
{
    if (!forked)
        return 0;
    return fbr_keep(-EPERM, "this is a child of fork(), in which Fiber does not work; start "
                            "processes by fiber_process_start(), in Python by fiber.Process");
}

struct fbr_runtime *fbr_rt_peek(void)
{
    struct fbr_runtime *rt = the_runtime;
    bool started = false;

    if (rt && !forked) {
        pthread_mutex_lock(&rt->lock);
        started = rt->started;
        pthread_mutex_unlock(&rt->lock);
    }
    return started ? rt : NULL;
}

bool fbr_rt_finished(struct fbr_runtime *rt)
{
    bool finished;

    pthread_mutex_lock(&rt->lock);
    finished = rt->finished;
    pthread_mutex_unlock(&rt->lock);
    return finished;
}

struct fbr_runtime *fbr_rt(void)
{
    struct fbr_runtime *rt = the_runtime;
    struct fbr_error err = {0, ""};
    int rc;

    if (!rt) {
        fbr_keep(-EPERM, "fiber_init() has not been called");
        return NULL;
    }
    if (fbr_rt_check() < 0)
        return NULL;
    pthread_mutex_lock(&rt->lock);
    rc = rt->finished ? fbr_fail(&err, -ESHUTDOWN, "fiber_fini() was called already")
                      : fbr_rt_start(rt, rt->root[0] ? rt->root : NULL, &err);
    pthread_mutex_unlock(&rt->lock);
    if (rc < 0) {
        fbr_keep_error(&err);
        return NULL;
    }
    return rt;
}

void fbr_rt_callback(bool begins)
{
    callbacks += begins ? 1 : -1;
}

bool fbr_rt_awaited(struct fbr_runtime *rt)
{
    bool ours;

    pthread_mutex_lock(&rt->lock);
    ours = rt->started &&
           (callbacks || fbr_loop_here(rt->loop) || fbr_data_server_here(rt->data_server[0]) ||
            fbr_data_server_here(rt->data_server[1]));
    pthread_mutex_unlock(&rt->lock);
    return ours;
}

int fbr_rt_wait(struct fbr_runtime *rt, pthread_cond_t *changed, pthread_mutex_t *lock,
                uint64_t deadline)
{
    if (fbr_rt_awaited(rt) && fbr_now_ms() < deadline)
        return fbr_keep(-EDEADLK, "a callback cannot wait for what comes after it");
    return fbr_cond_wait(changed, lock, deadline);
}

int fbr_rt_at_end(struct fbr_runtime *rt, enum fbr_end_stage stage, fbr_end_fn *fn)
{
    int rc = 0;

    pthread_mutex_lock(&rt->lock);
    if ((unsigned)stage < rt->stages_begun)
        rc = -ESHUTDOWN;
    else
        rt->at_end[stage] = fn;
    pthread_mutex_unlock(&rt->lock);
    return rc;
}

void fbr_rt_end_parts(struct fbr_runtime *rt)
{
    while (rt->stages_begun < FBR_END_STAGES) {
        fbr_end_fn *fn;

        pthread_mutex_lock(&rt->lock);
        fn = rt->at_end[rt->stages_begun++];
        pthread_mutex_unlock(&rt->lock);
        if (fn)
            fn(rt);
    }
}

struct frame_post {
    struct fbr_conn *const *conn;
    void (*done)(void *arg);
    void *arg;
    uint8_t type;
    size_t len;
    uint8_t body[];
};

static void run_frame(void *arg)
{
    struct frame_post *f = arg;

    if (*f->conn)
        fbr_conn_send(*f->conn, f->type, f->body, f->len);
    if (f->done)
        f->done(f->arg);
    free(f);
}

int fbr_rt_send(struct fbr_runtime *rt, struct fbr_conn *const *conn, uint8_t type,
                const struct fbr_buf *body, void (*done)(void *arg), void *arg)
{
    struct frame_post *f;
    int rc;

    if (body->failed)
        return -ENOMEM;
    if (fbr_loop_here(rt->loop))
        return *conn ? fbr_conn_send_buf(*conn, type, body) : -EPIPE;
    f = malloc(sizeof(*f) + body->len);
    if (!f)
        return -ENOMEM;
    *f = (struct frame_post){conn, done, arg, type, body->len};
    if (body->len)
        memcpy(f->body, body->data, body->len);
    rc = fbr_loop_post(rt->loop, run_frame, f);
    if (rc < 0)
        free(f);
    return rc < 0 ? rc : 1;
}
