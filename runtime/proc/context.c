/* context.c - the context of a process: fiber_init, the order in which parts open, and the end.
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

#include "runtime/net/bind.h"
#include "runtime/proc/child.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/proc/nested.h"
#include "runtime/proc/output.h"
#include "runtime/pin/limits.h"
#include "runtime/proc/process.h"
#include "runtime/net/relay.h"
#include "runtime/proc/work.h"

#define END_AT_ONCE_MS 1000
#define END_OF_OTHER_MS 60000 /* only a thread that the end itself waits for can wait so long */
#define START_FDS 13          /* directory, two locks, loop */

static struct fbr_runtime *the_runtime;
static _Thread_local int callbacks; /* nested callbacks that run on this thread */

/* ---- Small helpers ---- */

const char *fiber_version(void)
{
    return "0.1.0";
}

void fiber_bytes_free(struct fiber_bytes *bytes)
{
    if (!bytes)
        return;
    free(bytes->data);
    bytes->data = NULL;
    bytes->len = 0;
}

/* ---- Parts that open when first needed ---- */

static int door_secret(void *user, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE])
{
    struct fbr_runtime *rt = user;

    if (who->kind == FBR_CALLER_JOB)
        return fbr_process_secret(rt, who, secret);
    if (who->kind != FBR_CALLER_PEER || !rt->admit_peer)
        return -EACCES;
    memcpy(secret, rt->peer_key, FBR_KEY_SIZE);
    return 0;
}

static int door_admit(void *user, const struct fbr_caller *who, struct fbr_conn *conn)
{
    struct fbr_runtime *rt = user;

    return who->kind == FBR_CALLER_JOB ? fbr_process_admit(rt, who, conn)
                                       : rt->admit_peer(rt, who, conn);
}

/* Stores the host of a URL that is called over TCP. */
static bool host_of(const char *url, char *out, size_t size)
{
    bool bracket = strncmp(url, "tcp://[", 7) == 0;

    if (strncmp(url, "tcp://", 6) != 0)
        return false;
    url += bracket ? 7 : 6;
    snprintf(out, size, "%.*s", (int)strcspn(url, bracket ? "]" : ":"), url);
    return true;
}

static bool parent_host(const struct fbr_runtime *rt, char *out, size_t size)
{
    return rt->child && host_of(fbr_child_url(rt->child), out, size);
}

/* Finds the address to listen at: the one where we listen already, because an engine may not answer
 * a second time; the configured one; the one where the jobs of a backend find us; the one where our
 * parent listens. A child has its parent's configuration, but that address is not the child's when
 * it runs on another host. */
static int bind_address(struct fbr_runtime *rt, char out[FBR_BIND_MAX], struct fbr_error *err)
{
    const char *bind = fbr_config_str(rt->config, "bind");
    char parent[FBR_BIND_MAX];
    struct fbr_backend_slot *s;
    const struct fbr_listener *door = rt->listener[FBR_REACH_TCP];
    int rc;

    if (door && host_of(fbr_listener_url(door), out, FBR_BIND_MAX))
        return 0;
    rc = bind[0] ? fbr_bind_find(bind, out) : -ENOENT;
    if (rc == 0)
        return 0;
    if (bind[0] && !rt->child)
        return fbr_fail(err, rc, "bind = %s: this host has no such address or interface", bind);
    for (s = rt->backends; s; s = s->next)
        if (s->ops->reach == FBR_REACH_TCP && s->ops->address)
            return s->ops->address(s->backend, out, FBR_BIND_MAX, err);
    if (parent_host(rt, parent, sizeof(parent)) && fbr_bind_toward(parent, 0, out, NULL) == 0)
        return 0;
    snprintf(out, FBR_BIND_MAX, "127.0.0.1");
    return 0;
}

/* Finds the manager from the surroundings of this process. A child has its parent's answer. */
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
    /* In a container there is no engine to ask: its processes start in the same container. */
    if (rt->child && about && about->contained)
        return FBR_BACKEND_LOCAL;
    return strcmp(name, "auto") == 0 ? automatic(rt) : name;
}

static const struct fbr_backend_ops *configured_backend(const struct fbr_runtime *rt)
{
    return fbr_backend_find(fbr_rt_backend_name(rt, NULL), NULL);
}

/* The backend knows the address; an object may have to publish its own before a job was started. */
static int open_listener(struct fbr_runtime *rt, char url[FBR_URL_MAX], struct fbr_error *err)
{
    const struct fbr_backend_ops *ops = configured_backend(rt);
    struct fbr_backend_slot *slot;
    char address[FBR_BIND_MAX];
    int rc = ops && ops->reach == FBR_REACH_TCP ? fbr_rt_backend(rt, NULL, &slot, err) : 0;

    if (rc == 0)
        rc = bind_address(rt, address, err);
    if (rc == 0)
        snprintf(url, FBR_URL_MAX, strchr(address, ':') ? "tcp://[%s]:0" : "tcp://%s:0", address);
    return rc;
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
    const struct fbr_door door = {
        door_secret,   door_admit, rt, (unsigned)fbr_config_ms(rt->config, "join_timeout"),
        only_ours(rt), &rt->held};
    char url[FBR_URL_MAX];
    int rc = 0;

    if (!rt->listener[reach]) {
        if (reach == FBR_REACH_HOST)
            rc = fbr_rundir_own(&rt->dir, err);
        if (reach == FBR_REACH_HOST)
            snprintf(url, sizeof(url), "unix:%s/c", rt->dir.own);
        else
            rc = open_listener(rt, url, err);
        if (rc == 0)
            rc = fbr_listener_open(&rt->listener[reach], rt->loop, url, &door, err);
    }
    *l = rt->listener[reach];
    return rc;
}

static int open_hub(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_hub **hub,
                    struct fbr_error *err)
{
    const struct fbr_hub_options o = {
        .limit = fbr_config_size(rt->config, "max_message") + FBR_LANE_SLACK,
        .beat_ms = (unsigned)fbr_config_ms(rt->config, "heartbeat"),
        .misses = (unsigned)fbr_config_int(rt->config, "heartbeat_misses"),
        .own_user = only_ours(rt),
        .held = &rt->held,
    };
    char url[FBR_URL_MAX], address[FBR_BIND_MAX];
    int rc;

    if (reach == FBR_REACH_HOST) {
        rc = fbr_rundir_own(&rt->dir, err);
        snprintf(url, sizeof(url), "ipc://%s/d", rt->dir.own);
    } else {
        rc = bind_address(rt, address, err);
        snprintf(url, sizeof(url), strchr(address, ':') ? "tcp://[%s]:0" : "tcp://%s:0", address);
    }
    return rc < 0 ? rc : fbr_hub_open(hub, url, &o, err);
}

int fbr_rt_hub(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_hub **h, const char **url,
               struct fbr_error *err)
{
    struct fbr_hub *hub = rt->hub[reach];
    int rc = hub ? 0 : open_hub(rt, reach, &hub, err);

    pthread_mutex_lock(&rt->lock);
    rt->hub[reach] = *h = hub;
    pthread_mutex_unlock(&rt->lock);
    *url = rc < 0 ? "" : fbr_hub_url(hub);
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
    if (rt->child && !fbr_child_is_near(rt->child))
        return FBR_REACH_TCP;
    for (const struct fbr_backend_slot *s = rt->backends; s; s = s->next)
        if (s->ops->reach == FBR_REACH_TCP)
            return FBR_REACH_TCP;
    return ops ? ops->reach : FBR_REACH_HOST;
}

static void on_output_room(void *user)
{
    struct fbr_runtime *rt = user;

    fbr_process_resume_output(rt);
    if (rt->output_room)
        rt->output_room(rt);
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
    rc = rt->output ? 0 : fbr_output_open(&rt->output, rt->loop, on_output_room, rt);
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

/* ---- Birth ---- */

/* Messages of some 100 KiB come and go all the time. By default glibc gives their memory back to
 * the kernel each time, and faults it in again: that halves the rate of large tasks
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

    if (rc == 0)
        fbr_timer_start(&rt->keep, FBR_RUNDIR_KEEP_MS, FBR_RUNDIR_KEEP_MS);
    return rc;
}

/* The bound of what is kept for others, where the configuration says none: half of the memory of
 * the machine, of our control group or of this process, whichever is least. */
static uint64_t half_of_memory(void)
{
    uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct fbr_limits limits;
    struct rlimit own;

    fbr_limits_read(&limits);
    if (limits.memory && limits.memory < most)
        most = limits.memory;
    if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur < most)
        most = own.rlim_cur;
    return most / 2;
}

/* Under rt->lock: loop, directory, output. `root`: of the run, in a child. */
static int start(struct fbr_runtime *rt, const char *root, struct fbr_error *err)
{
    const char *base = fbr_config_str(rt->config, "run_dir");
    int rc;

    if (rt->started)
        return 0;
    /* a peer that closes is an error of the call, not the end of the process */
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
    if (rc == 0)
        rc = fbr_loop_open(&rt->loop, err);
    if (rc == 0)
        rc = fbr_loop_call(rt->loop, begin_keeping, rt);
    if (rc == 0)
        rc = fbr_random(rt->peer_key, sizeof(rt->peer_key));
    rt->started = rc == 0;
    if (rc == 0)
        return 0;
    fbr_loop_close(rt->loop); /* the next call may try again */
    fbr_rundir_remove(&rt->dir);
    rt->loop = NULL;
    return err && !err->code ? fbr_fail(err, rc, "start: %s", fbr_strerror(rc)) : rc;
}

static int new_runtime(struct fbr_error *err)
{
    struct fbr_runtime *rt = calloc(1, sizeof(*rt));
    uint8_t uid[16];
    int rc;

    if (!rt)
        return fbr_fail(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&rt->lock, NULL);
    fbr_cond_init(&rt->changed);
    rt->pid = getpid();
    rc = fbr_random(uid, sizeof(uid));
    if (rc == 0)
        rc = fbr_random(&rt->self, sizeof(rt->self));
    for (size_t i = 0; i < sizeof(uid); i++)
        snprintf(rt->run_uid + 2 * i, 3, "%02x", uid[i]);
    if (rc < 0) {
        free(rt);
        return fbr_fail(err, rc, "no random bytes: %s", fbr_strerror(rc));
    }
    the_runtime = rt;
    return 0;
}

static void apply_log_level(struct fbr_runtime *rt)
{
    int level = fbr_log_level_named(fbr_config_str(rt->config, "log_level"));

    if (level >= 0)
        fbr_log_level((enum fbr_log_level)level);
}

static int become_child(struct fbr_runtime *rt, const struct fbr_join *join, struct fbr_error *err)
{
    int rc;

    snprintf(rt->run_uid, sizeof(rt->run_uid), "%s", join->run_uid);
    pthread_mutex_lock(&rt->lock);
    rc = start(rt, join->root, err);
    pthread_mutex_unlock(&rt->lock);
    return rc < 0 ? rc : fbr_child_join(rt, join, err);
}

int fiber_init(int *argc, char ***argv)
{
    struct fbr_error err = {0, ""};
    struct fbr_join join;
    struct fbr_runtime *rt;
    int rc;

    (void)argc; /* for options of Fiber's own in future */
    (void)argv;
    if (the_runtime)
        return fbr_rt_check(NULL) < 0 ? -EPERM : the_runtime->child != NULL;
    rc = new_runtime(&err);
    if (rc < 0)
        return fbr_keep_error(&err);
    rt = the_runtime;
    atexit(fiber_fini);
    rc = fbr_join_take(&join, &rt->config, &err);
    fbr_environ_keep(); /* without the ticket, which was for this process alone */
    if (rc == 1) {
        rc = fbr_config_load(&rt->config, &err);
        if (rc < 0) {
            free(rt);
            the_runtime = NULL;
            return fbr_keep_error(&err);
        }
        apply_log_level(rt);
        rc = fbr_work_run(&err);
        if (rc == 0)
            return 0;
    } else if (rc == 0) {
        apply_log_level(rt);
        rc = become_child(rt, &join, &err);
        fbr_wipe(&join, sizeof(join));
    }
    if (rc < 0) {
        fbr_log_error("%s", err.text);
        _exit(125);
    }
    fbr_child_run(rt);
    return 1;
}

/* ---- Access ---- */

int fbr_rt_check(const struct fbr_runtime *rt)
{
    if (!rt)
        rt = the_runtime;
    if (!rt || rt->pid == getpid())
        return 0;
    return fbr_keep(-EPERM, "this is a child of fork(), in which Fiber does not work; start "
                            "processes by fiber_process_start(), in Python by fiber.Process");
}

struct fbr_runtime *fbr_rt_peek(void)
{
    struct fbr_runtime *rt = the_runtime;
    bool started = false;

    if (rt && rt->pid == getpid()) {
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
    if (fbr_rt_check(rt) < 0)
        return NULL;
    pthread_mutex_lock(&rt->lock);
    rc = rt->finished ? fbr_fail(&err, -ESHUTDOWN, "fiber_fini() was called already")
                      : start(rt, NULL, &err);
    pthread_mutex_unlock(&rt->lock);
    if (rc < 0) {
        fbr_keep_error(&err);
        return NULL;
    }
    return rt;
}

int fiber_config_set(const char *key, const char *value)
{
    struct fbr_error err = {0, ""};

    if (!the_runtime)
        return fbr_keep(-EPERM, "fiber_config_set: fiber_init() has not been called");
    if (fbr_rt_check(NULL) < 0)
        return -EPERM;
    if (!key || !value)
        return fbr_keep(-EINVAL, "fiber_config_set: needs a key and a value");
    if (fbr_config_set(the_runtime->config, key, value, "fiber_config_set", &err) < 0)
        return fbr_keep_error(&err);
    apply_log_level(the_runtime);
    return 0;
}

int fiber_config_get(const char *key, char *value, size_t size)
{
    const char *text;

    if (!the_runtime)
        return fbr_keep(-EPERM, "fiber_config_get: fiber_init() has not been called");
    if (fbr_rt_check(NULL) < 0)
        return -EPERM;
    text = key && value ? fbr_config_text(the_runtime->config, key) : NULL;
    if (!text)
        return fbr_keep(-EINVAL, "fiber_config_get: unknown key \"%.64s\"", key ? key : "");
    if (strlen(text) >= size)
        return fbr_keep(-ERANGE, "fiber_config_get: %s has %zu bytes", key, strlen(text));
    memcpy(value, text, strlen(text) + 1);
    return 0;
}

const char *fiber_process_self(void)
{
    return the_runtime && the_runtime->child ? fbr_child_name(the_runtime->child) : "main";
}

int fiber_process_is_child(void)
{
    return the_runtime && the_runtime->child;
}

int fiber_process_work(const void **work, size_t *len)
{
    if (!the_runtime || !the_runtime->child)
        return fbr_keep(-ENODATA,
                        "fiber_process_work: this process was not started by another one");
    if (fbr_child_work(the_runtime->child, work, len) < 0)
        return fbr_keep(-ENODATA, "fiber_process_work: this process runs a function");
    return 0;
}

/* ---- Death ---- */

static int close_engines(void *arg)
{
    struct fbr_runtime *rt = arg;

    fbr_timer_fini(&rt->keep);
    fbr_pending_end(rt);
    fbr_nest_close(rt->nest);
    rt->nest = NULL;
    fbr_relay_close(rt->relay);
    rt->relay = NULL;
    while (rt->backends) {
        struct fbr_backend_slot *s = rt->backends;

        pthread_mutex_lock(&rt->lock);
        rt->backends = s->next;
        pthread_mutex_unlock(&rt->lock);
        s->ops->close(s->backend);
        free(s);
    }
    for (int i = 0; i < 2; i++) {
        fbr_listener_close(rt->listener[i]);
        rt->listener[i] = NULL;
    }
    return 0;
}

/* The program has called exit() in a callback of ours. Our thread cannot wait for itself, so our
 * processes are only killed, and the end of this process does the rest. */
struct at_once {
    struct fbr_runtime *rt;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void kill_at_once(void *arg)
{
    struct at_once *a = arg;

    fbr_timer_fini(&a->rt->keep);
    fbr_process_kill_all(a->rt);
    pthread_mutex_lock(&a->lock);
    a->done = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void end_at_once(struct fbr_runtime *rt)
{
    /* the loop may run it late */
    static struct at_once a = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t deadline = fbr_now_ms() + END_AT_ONCE_MS;
    int rc = 0;

    a.rt = rt;
    fbr_cond_init(&a.changed);
    if (fbr_loop_here(rt->loop))
        kill_at_once(&a);
    /* the loop may wait for us, but not for long */
    else
        rc = fbr_loop_post(rt->loop, kill_at_once, &a);
    pthread_mutex_lock(&a.lock);
    while (!a.done && rc == 0)
        rc = fbr_cond_wait(&a.changed, &a.lock, deadline);
    pthread_mutex_unlock(&a.lock);
    fbr_rundir_remove(&rt->dir);
}

void fbr_rt_callback(bool begins)
{
    callbacks += begins ? 1 : -1;
}

/* Whether other threads may wait for the calling thread. */
static bool on_our_thread(struct fbr_runtime *rt)
{
    bool ours;

    pthread_mutex_lock(&rt->lock);
    ours = rt->started && (callbacks || fbr_loop_here(rt->loop) || fbr_hub_here(rt->hub[0]) ||
                           fbr_hub_here(rt->hub[1]));
    pthread_mutex_unlock(&rt->lock);
    return ours;
}

/* Whether the calling thread must end everything. When another thread does that already, waits for
 * it: the program may be gone as soon as this call returns. */
static bool begin_end(struct fbr_runtime *rt)
{
    uint64_t deadline = fbr_now_ms() + END_OF_OTHER_MS;
    pthread_t self = pthread_self();
    bool mine = false;
    int rc = 0;

    pthread_mutex_lock(&rt->lock);
    if (rt->ends) {
        while (!rt->over && !pthread_equal(rt->ender, self) && rc == 0)
            rc = fbr_cond_wait(&rt->changed, &rt->lock, deadline);
    } else if (!rt->started) {
        rt->finished = true;
    } else if (!rt->finished) {
        rt->ends = mine = true;
        rt->ender = self;
    }
    pthread_mutex_unlock(&rt->lock);
    return mine;
}

static void finish(struct fbr_runtime *rt)
{
    pthread_mutex_lock(&rt->lock);
    rt->finished = true; /* nothing is started from now on */
    pthread_mutex_unlock(&rt->lock);
}

int fbr_rt_at_end(struct fbr_runtime *rt, enum fbr_end_stage stage, fbr_end_fn *fn)
{
    int rc;

    pthread_mutex_lock(&rt->lock);
    rc = fbr_at_end_set(&rt->at_end, stage, fn);
    pthread_mutex_unlock(&rt->lock);
    return rc;
}

/* Without the lock: the functions wait for threads that take it. */
static void end_parts(struct fbr_runtime *rt)
{
    fbr_end_fn *fn;
    int more;

    do {
        pthread_mutex_lock(&rt->lock);
        more = fbr_at_end_next(&rt->at_end, &fn);
        pthread_mutex_unlock(&rt->lock);
        if (more && fn)
            fn(rt);
    } while (more);
}

static void close_hubs(struct fbr_runtime *rt)
{
    struct fbr_hub *hub[2];

    pthread_mutex_lock(&rt->lock);
    memcpy(hub, rt->hub, sizeof(hub));
    memset(rt->hub, 0, sizeof(rt->hub));
    pthread_mutex_unlock(&rt->lock);
    for (int i = 0; i < 2; i++)
        fbr_hub_close(hub[i]);
}

void fiber_fini(void)
{
    struct fbr_runtime *rt = the_runtime;

    if (!rt || rt->pid != getpid())
        return;
    if (on_our_thread(rt)) {
        bool finished = fbr_rt_finished(rt);

        finish(rt);
        if (!finished)
            end_at_once(rt);
        return;
    }
    if (!begin_end(rt))
        return;
    end_parts(rt);
    finish(rt);
    fbr_process_end_all(rt);
    fbr_loop_call(rt->loop, close_engines, rt);
    if (rt->output)
        fbr_output_stop(rt->output);
    close_hubs(rt);
    fbr_child_close(rt->child);
    fbr_rundir_remove(&rt->dir);
    fbr_loop_stop(rt->loop); /* the loop and the output stay: earlier calls may still use them */
    fbr_wipe(rt->peer_key, sizeof(rt->peer_key));
    pthread_mutex_lock(&rt->lock);
    rt->over = true;
    pthread_cond_broadcast(&rt->changed);
    pthread_mutex_unlock(&rt->lock);
    fbr_child_closed(rt->child);
    /* The context itself stays: the program may still close its handles. */
}
