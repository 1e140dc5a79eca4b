/* process.c - handles of job-backed processes: the functions that programs call.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/proc/backend.h"
#include "runtime/proc/fnref.h"
#include "runtime/proc/process_priv.h"
#include "runtime/base/jobspec.h"

void fbr_process_ref(struct fiber_process *p)
{
    pthread_mutex_lock(&p->rt->lock);
    p->refs++;
    pthread_mutex_unlock(&p->rt->lock);
}

void fbr_process_fds_release(struct fiber_process *p, int n)
{
    if (n > p->fds)
        n = p->fds;
    p->fds -= n;
    fbr_fds_release(n);
}

void fbr_process_release_ends(struct fiber_process *p, struct fbr_cur *body)
{
    uint64_t owner = body ? fbr_get_u64(body) : 0, object = body ? fbr_get_u64(body) : 0;
    uint8_t end = body ? fbr_get_u8(body) : 0;
    size_t kept = 0;

    if (body && !fbr_cur_ok(body))
        return;
    for (size_t i = 0; i < p->n_holds; i++) {
        struct fbr_hold *h = &p->holds[i];

        if (body && (h->owner != owner || h->object != object || h->end != end))
            p->holds[kept++] = *h;
        else
            p->rt->holds->release(h);
    }
    p->n_holds = kept;
}

static void destroy(struct fiber_process *p)
{
    fbr_process_fds_release(p, p->fds);
    fbr_process_release_ends(p, NULL);
    free(p->holds);
    fbr_fds_close(p->sentinel);
    fbr_buf_fini(&p->start);
    fbr_buf_fini(&p->strings);
    free(p->env);
    fbr_wipe(p->secret, sizeof(p->secret));
    pthread_cond_destroy(&p->changed);
    free(p->report);
    free(p);
}

void fbr_process_unref(struct fiber_process *p)
{
    struct fbr_runtime *rt = p->rt;
    bool last;

    pthread_mutex_lock(&rt->lock);
    last = --p->refs == 0;
    if (last)
        DL_DELETE(rt->processes, p);
    pthread_mutex_unlock(&rt->lock);
    if (!last)
        return;
    if (p->host)
        fbr_process_unref(p->host);
    destroy(p);
}

static void run_kill(void *process);

/* ---- The program ---- */

/* Set before any process is started. */
static char **program;

static bool has_started(struct fbr_runtime *rt)
{
    bool started;

    pthread_mutex_lock(&rt->lock);
    started = rt->next_process > 0;
    pthread_mutex_unlock(&rt->lock);
    return started;
}

int fiber_program(const char *const *argv)
{
    struct fbr_runtime *rt;
    char **copy;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (!argv || !argv[0] || !argv[0][0])
        return fbr_keep(-EINVAL, "fiber_program: needs a command");
    rt = fbr_rt_peek();
    if (rt && has_started(rt))
        return fbr_keep(-EBUSY,
                        "fiber_program: processes were started already, by another command");
    copy = fbr_strings_copy((char *const *)(uintptr_t)argv);
    if (!copy)
        return fbr_keep(-ENOMEM, "fiber_program: out of memory");
    free(program);
    program = copy;
    return 0;
}

const char *const *fbr_process_program(void)
{
    return (const char *const *)program;
}

/* The command of the program's template; NULL: there is none. */
static char **_Atomic template;

int fiber_template(const char *const *argv)
{
    char **now = atomic_load(&template), **kept = NULL;
    char *const *words = (char *const *)(uintptr_t)argv;

    if (fbr_rt_check() < 0)
        return -EPERM;
    if (argv && (!argv[0] || !argv[0][0]))
        return fbr_keep(-EINVAL, "fiber_template: needs a command");
    if (argv && now && fbr_strings_same(words, now))
        return 0;
    if (argv && !(kept = fbr_strings_keep(words)))
        return fbr_keep(-ENOMEM, "fiber_template: out of memory");
    atomic_store(&template, kept);
    return 0;
}

int fiber_template_serve(void)
{
    if (fbr_rt_check() < 0) /* in a fork child of a program that has joined */
        return -EPERM;
    return fbr_copies_serve();
}

const char *const *fbr_process_template(void)
{
    return (const char *const *)atomic_load(&template);
}

/* ---- Starting ---- */

static int put_start(struct fiber_process *p, const struct fbr_process_spec *spec,
                     struct fbr_error *err)
{
    struct fbr_fnref ref;
    int rc;

    fbr_put_u8(&p->start, spec->fn ? FBR_START_FN : FBR_START_WORK);
    if (spec->fn) {
        rc = fbr_fnref_make(&ref, (void (*)(void))spec->fn, err);
        if (rc < 0)
            return fbr_wrap(err, "%s: its function cannot be sent", p->name);
        fbr_fnref_put(&p->start, &ref);
    }
    fbr_put_u64(&p->start, spec->len);
    fbr_put(&p->start, spec->arg, spec->len);
    if (p->start.failed)
        return fbr_fail(err, -ENOMEM, "%s: out of memory", p->name);
    if (p->start.len > FBR_FRAME_MAX - 1024)
        return fbr_fail(err, -EMSGSIZE,
                        "%s: an argument of %zu bytes is too long; send it by a queue or a pipe",
                        p->name, spec->len);
    return 0;
}

static bool name_is_good(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n < FBR_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

/* Copies the environment in the caller's thread: the program may change it as soon as the call has
 * returned. */
static int keep_env(struct fiber_process *p, const struct fbr_process_spec *spec,
                    const struct fiber_jobspec *job)
{
    if (!spec->env)
        fbr_rt_see_environ(p->rt, p->backend_name[0] ? p->backend_name : NULL);
    p->env = spec->env ? fbr_strings_copy(spec->env) : fbr_environ_copy(job->env);
    return p->env ? 0 : -ENOMEM;
}

static int take_fds(struct fiber_process *p, const struct fbr_process_spec *spec,
                    struct fbr_error *err)
{
    int later = p->host ? 0 : FDS_OF_JOB + FDS_OF_CONN + (spec->link ? FDS_OF_LINK : 0);
    int rc = fbr_fds_take(1 + (p->host ? 1 : FDS_FOR_START), later, p->name, err);

    if (rc < 0)
        return rc;
    p->fds = later;
    return 0;
}

static int hold_pipes(struct fiber_process *p, const struct fiber_process_options *o,
                      struct fbr_error *err)
{
    if (o->npipes && (!o->pipes || !p->rt->holds))
        return fbr_fail(err, -EINVAL,
                        "%s: options.npipes is above 0, but options.pipes has no pipe ends",
                        p->name);
    p->holds = o->npipes ? calloc(o->npipes, sizeof(*p->holds)) : NULL;
    if (o->npipes && !p->holds)
        return fbr_fail(err, -ENOMEM, "%s: out of memory", p->name);
    for (size_t i = 0; i < o->npipes; i++) {
        int rc = p->rt->holds->hold(o->pipes[i], &p->holds[i]);

        if (rc < 0)
            return fbr_fail(err, rc, "%s: %s", p->name, fiber_last_error());
        p->n_holds++;
    }
    return 0;
}

static int check_options(const struct fiber_process_options *o, struct fbr_error *err)
{
    if (o->size != sizeof(*o))
        return fbr_fail(err, -EINVAL,
                        "process options: size is %zu, not sizeof(struct fiber_process_options)",
                        o->size);
    if (o->job.name && !name_is_good(o->job.name))
        return fbr_fail(err, -EINVAL,
                        "process name '%s': must be 1 to %d of the characters a-z A-Z 0-9 - _ .",
                        o->job.name, FBR_NAME_MAX - 1);
    return fbr_jobspec_check("process", &o->job, err);
}

static int set_up(struct fiber_process *p, const struct fbr_process_spec *spec,
                  struct fbr_error *err)
{
    static const struct fiber_process_options none = {.size = sizeof(none)};
    const struct fiber_process_options *o = spec->options ? spec->options : &none;
    int rc = check_options(o, err);

    if (rc < 0)
        return rc;
    if (spec->host && !spec->host->spec.is_host)
        return fbr_fail(err, -EINVAL, "process options: %s is not a host", spec->host->name);
    if (o->job.name)
        snprintf(p->name, sizeof(p->name), "%s", o->job.name);
    else
        snprintf(p->name, sizeof(p->name), "%.40s-%llu", spec->prefix ? spec->prefix : "process",
                 (unsigned long long)p->id);
    if (o->backend)
        snprintf(p->backend_name, sizeof(p->backend_name), "%s", o->backend);
    p->start_timeout_ms = o->start_timeout_ms > 0 ? o->start_timeout_ms : 0;
    p->keep_stdin = o->keep_stdin;
    rc = take_fds(p, spec, err);
    if (rc < 0)
        return rc;
    p->sentinel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->sentinel < 0)
        return fbr_fail(err, -errno, "%s: cannot make its sentinel's descriptor: %s", p->name,
                        fbr_strerror(errno));
    rc = fbr_jobspec_copy(&p->job, &p->strings, &o->job);
    p->job.name = p->name;
    if (rc < 0 || (rc = keep_env(p, spec, &o->job)) < 0 ||
        (rc = fbr_random(p->secret, sizeof(p->secret))) < 0)
        return fbr_fail(err, rc, "%s: %s", p->name, fbr_strerror(rc));
    rc = hold_pipes(p, o, err);
    return rc < 0 ? rc : put_start(p, spec, err);
}

static int create(struct fiber_process **out, const struct fbr_process_spec *spec,
                  struct fbr_error *err)
{
    struct fbr_runtime *rt = fbr_rt();
    struct fiber_process *p;
    int rc;

    if (!rt)
        return fbr_kept();
    p = calloc(1, sizeof(*p));
    if (!p)
        return fbr_fail(err, -ENOMEM, "process: out of memory");
    p->rt = rt;
    p->spec = *spec;
    p->host = spec->host;
    p->sentinel = -1;
    p->drained_post = (struct fbr_post){.fn = fbr_job_drained, .arg = p, .own = true};
    p->kill = (struct fbr_post){.fn = run_kill, .arg = p, .own = true};
    p->refs = 2; /* one for the handle, one for the job */
    p->handle_open = true;
    p->code = p->told_code = FBR_EXIT_UNKNOWN;
    fbr_cond_init(&p->changed);
    pthread_mutex_lock(&rt->lock);
    p->id = ++rt->next_process;
    pthread_mutex_unlock(&rt->lock);
    rc = set_up(p, spec, err);
    if (rc < 0) {
        destroy(p);
        return rc;
    }
    pthread_mutex_lock(&rt->lock);
    if (rt->finished) { /* fiber_fini() was called after the first check */
        rc = fbr_fail(err, -ESHUTDOWN, "%s: fiber_fini() was called", p->name);
    } else {
        DL_APPEND(rt->processes, p);
        if (p->host)
            p->host->refs++;
        *out = p;
    }
    pthread_mutex_unlock(&rt->lock);
    if (rc < 0)
        destroy(p);
    return rc;
}

int fbr_process_start(struct fiber_process **out, const struct fbr_process_spec *spec)
{
    struct fbr_error err = {0, ""};
    struct fiber_process *p = NULL;
    int rc = create(&p, spec, &err);

    if (rc < 0)
        return err.code ? fbr_keep_error(&err) : rc;
    *out = p; /* before the start, whose callbacks may look for the handle */
    rc = fbr_loop_post(p->rt->loop, fbr_job_start, p);
    if (rc < 0) {
        *out = NULL;
        fbr_process_unref(p);
        fbr_process_unref(p);
        return fbr_keep(rc, "process: %s", fbr_strerror(rc));
    }
    return 0;
}

static int start_for_program(struct fiber_process **p, const struct fbr_process_spec *spec)
{
    int rc = fbr_process_start(p, spec);

    if (rc < 0)
        return rc;
    fbr_rt_await_starts((*p)->rt, spec->options ? spec->options->backend : NULL);
    return 0;
}

int fiber_process_start(struct fiber_process **p, fiber_process_fn fn, const void *arg, size_t len,
                        const struct fiber_process_options *opts)
{
    struct fbr_process_spec spec = {.fn = fn, .arg = arg, .len = len, .options = opts};

    if (!p || !fn || (!arg && len))
        return fbr_keep(-EINVAL, "fiber_process_start: needs a pointer for the handle, a function, "
                                 "and an argument if len is above 0");
    return start_for_program(p, &spec);
}

int fiber_process_start_work(struct fiber_process **p, const void *work, size_t len,
                             const struct fiber_process_options *opts)
{
    struct fbr_process_spec spec = {.arg = work, .len = len, .options = opts};

    if (!p || (!work && len) || !opts || !opts->job.command)
        return fbr_keep(
            -EINVAL,
            "fiber_process_start_work: needs a pointer for the handle, the work, and job.command");
    return start_for_program(p, &spec);
}

/* ---- Asking ---- */

static enum process_state state_of(struct fiber_process *p)
{
    enum process_state s;

    pthread_mutex_lock(&p->rt->lock);
    s = p->state;
    pthread_mutex_unlock(&p->rt->lock);
    return s;
}

static int join(struct fiber_process *p, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = 0;

    if (fbr_loop_here(p->rt->loop))
        return fbr_keep(-EDEADLK, "fiber_process_join: cannot be called in a callback");
    pthread_mutex_lock(&p->rt->lock);
    while (p->state != P_ENDED && rc == 0)
        rc = fbr_cond_wait(&p->changed, &p->rt->lock, deadline);
    if (p->state == P_ENDED)
        rc = 0;
    pthread_mutex_unlock(&p->rt->lock);
    return rc < 0 ? fbr_keep(rc, "%s still runs after %d ms", p->name, timeout_ms) : 0;
}

int fiber_process_join(struct fiber_process *p, int timeout_ms)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (state_of(p) != P_ENDED && (rc = join(p, timeout_ms)) < 0)
        return rc;
    /* our own output from now on comes after the process's lines */
    if (timeout_ms && p->rt->output && !fbr_loop_here(p->rt->loop))
        fbr_output_drain(p->rt->output);
    return 0;
}

int fiber_process_wait_joined(struct fiber_process *p, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();
    bool joined;

    if (rc < 0)
        return rc;
    if (fbr_loop_here(p->rt->loop))
        return fbr_keep(-EDEADLK, "fiber_process_wait_joined: cannot be called in a callback");
    pthread_mutex_lock(&p->rt->lock);
    while (!p->joined && p->state != P_ENDED && rc == 0)
        rc = fbr_cond_wait(&p->changed, &p->rt->lock, deadline);
    joined = p->joined;
    if (!joined && p->state == P_ENDED)
        rc = -ECHILD;
    pthread_mutex_unlock(&p->rt->lock);
    if (joined)
        return 0;
    return rc == -ECHILD ? fbr_keep(rc, "%s", p->report ? p->report : p->name)
                         : fbr_keep(rc, "%s has not joined after %d ms", p->name, timeout_ms);
}

struct signal_post {
    struct fiber_process *p;
    int sig;
};

static void run_signal(void *arg)
{
    struct signal_post *s = arg;

    fbr_job_signal(s->p, s->sig);
    fbr_process_unref(s->p);
    free(s);
}

static int post_signal(struct fiber_process *p, int sig)
{
    struct signal_post *s;
    int rc = fbr_rt_check();

    if (rc < 0 || state_of(p) == P_ENDED)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return fbr_keep(-ENOMEM, "%s: out of memory", p->name);
    s->p = p;
    s->sig = sig;
    fbr_process_ref(p);
    rc = fbr_loop_post(p->rt->loop, run_signal, s);
    if (rc < 0) {
        fbr_keep(rc, "%s cannot be signalled: %s", p->name, fbr_strerror(rc));
        fbr_process_unref(p);
        free(s);
    }
    return rc;
}

static void run_kill(void *arg)
{
    struct fiber_process *p = arg;

    fbr_job_signal(p, SIGKILL);
    fbr_process_unref(p);
}

int fbr_process_abandon(struct fiber_process *p, const char *why)
{
    int rc = fbr_rt_check();

    if (rc < 0 || state_of(p) == P_ENDED)
        return rc;
    pthread_mutex_lock(&p->rt->lock);
    if (!p->why[0])
        snprintf(p->why, sizeof(p->why), "%s", why);
    p->refs++;
    pthread_mutex_unlock(&p->rt->lock);
    rc = fbr_loop_post_own(p->rt->loop, &p->kill);
    if (rc < 0)
        fbr_keep(rc, "%s cannot be killed: %s", p->name, fbr_strerror(rc));
    if (rc <= 0)
        fbr_process_unref(p);
    return rc < 0 ? rc : 0;
}

_Static_assert((int)FBR_TUNNEL_OPEN == (int)FBR_FRAME_TUNNEL,
               "its frames begin where others do not");

static int send_of_tunnel(void *user, uint8_t type, const struct fbr_buf *body)
{
    struct fiber_process *p = user;

    return p->conn ? fbr_conn_send_buf(p->conn, type, body) : -EPIPE;
}

int fbr_process_tunnel(struct fiber_process *p, int fd, const struct fbr_buf *first,
                       struct fbr_error *err)
{
    struct fbr_buf open = {0};
    uint64_t id;
    int rc;

    if (!p->conn || !fbr_process_is_joined(state_of(p)))
        return fbr_fail(err, -EAGAIN, "%s has not joined yet, or has ended", p->name);
    p->tunnels.loop = p->rt->loop;
    p->tunnels.send = send_of_tunnel;
    p->tunnels.user = p;
    id = ++p->rt->next_tunnel;
    fbr_put_u64(&open, id);
    rc = open.failed ? fbr_fail(err, -ENOMEM, "out of memory")
                     : fbr_tunnels_open(&p->tunnels, id, fd, first, err);
    /* a send that fails also ends the channel */
    if (rc == 0)
        send_of_tunnel(p, FBR_TUNNEL_OPEN, &open);
    else
        fbr_wrap(err, "%s", p->name);
    fbr_buf_fini(&open);
    return rc;
}

int fiber_process_terminate(struct fiber_process *p)
{
    return post_signal(p, SIGTERM);
}

int fiber_process_kill(struct fiber_process *p)
{
    return fbr_process_abandon(p, "");
}

int fiber_process_signal(struct fiber_process *p, int sig)
{
    if (sig == SIGKILL)
        return fiber_process_kill(p);
    if (sig < 1 || sig > SIGRTMAX)
        return fbr_keep(-EINVAL, "%s: there is no signal %d", p->name, sig);
    return post_signal(p, sig);
}

int fiber_process_is_alive(struct fiber_process *p)
{
    int rc = fbr_rt_check();

    return rc < 0 ? rc : state_of(p) != P_ENDED;
}

int fiber_process_exitcode(struct fiber_process *p, int *code)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (state_of(p) != P_ENDED) /* its code and its report do not change afterwards */
        return fbr_keep(-EAGAIN, "%s still runs, and has no exit code yet", p->name);
    if (p->code == FBR_EXIT_UNKNOWN)
        return fbr_keep(-ENODATA, "%s ended, and its exit code is unknown", p->name);
    *code = p->code;
    return 0;
}

int64_t fiber_process_pid(struct fiber_process *p)
{
    int64_t pid = fbr_rt_check();

    if (pid < 0)
        return pid;
    pthread_mutex_lock(&p->rt->lock);
    pid = p->pid;
    pthread_mutex_unlock(&p->rt->lock);
    return pid;
}

const char *fiber_process_name(struct fiber_process *p)
{
    return p->name;
}

const char *fiber_process_job(struct fiber_process *p)
{
    const char *id;

    if (fbr_rt_check() < 0)
        return "";
    pthread_mutex_lock(&p->rt->lock);
    id = p->job_id[0] ? p->job_id : ""; /* once set, it stays the same */
    pthread_mutex_unlock(&p->rt->lock);
    return id;
}

const char *fiber_process_report(struct fiber_process *p)
{
    return fbr_rt_check() == 0 && state_of(p) == P_ENDED && p->report ? p->report : "";
}

int fiber_process_sentinel(struct fiber_process *p)
{
    int rc = fbr_rt_check();

    return rc < 0 ? rc : p->sentinel;
}

void fiber_process_close(struct fiber_process *p)
{
    if (!p || fbr_rt_check() < 0) /* a fork() child has only a copy of the process */
        return;
    pthread_mutex_lock(&p->rt->lock);
    p->handle_open = false;
    pthread_mutex_unlock(&p->rt->lock);
    fbr_process_unref(p);
}

int fiber_active_children(struct fiber_process **out, int max)
{
    struct fbr_runtime *rt = fbr_rt_peek();
    struct fiber_process *p;
    int n = fbr_rt_check(), listed = 0;

    if (n < 0 || !rt)
        return n;
    pthread_mutex_lock(&rt->lock);
    DL_FOREACH(rt->processes, p) {
        if (p->state == P_ENDED || p->spec.prefix)
            continue;
        n++;
        if (out && listed < max && p->handle_open)
            out[listed++] = p;
    }
    pthread_mutex_unlock(&rt->lock);
    return n;
}

/* ---- For the rest of Fiber ---- */

struct fbr_link *fbr_process_link(struct fiber_process *p)
{
    return p->link;
}

const char *fbr_process_pending(const struct fiber_process *p)
{
    return fbr_process_is_starting(p->state) && p->pending[0] ? p->pending : NULL;
}

bool fbr_process_wants_place(const struct fiber_process *p)
{
    return fbr_process_pending(p) && !p->placed;
}

double fbr_process_rtt(struct fiber_process *p)
{
    double rtt;

    pthread_mutex_lock(&p->rt->lock);
    rtt = p->host ? p->host->rtt : p->rtt;
    pthread_mutex_unlock(&p->rt->lock);
    return rtt;
}

void fbr_process_use(struct fiber_process *p, struct fbr_process_use *use)
{
    pthread_mutex_lock(&p->rt->lock);
    *use = p->use;
    pthread_mutex_unlock(&p->rt->lock);
}

void fbr_process_look(struct fiber_process *p)
{
    struct fbr_buf none = {0};

    if (fbr_process_is_joined(p->state))
        fbr_process_send(p, FBR_FRAME_LOOK, &none);
}

int fbr_process_number(const struct fiber_process *p)
{
    return (int)p->id;
}

bool fbr_process_has_joined(const struct fiber_process *p)
{
    return fbr_process_is_joined(p->state);
}

bool fbr_process_has_printed(const struct fiber_process *p)
{
    return p->out[0].stream.tail.len || p->out[1].stream.tail.len;
}

uint64_t fbr_process_since_ms(const struct fiber_process *p)
{
    return p->since_ms;
}

struct fiber_process *fbr_process_next_own(struct fbr_runtime *rt, struct fiber_process *p)
{
    pthread_mutex_lock(&rt->lock);
    for (p = p ? p->next : rt->processes; p; p = p->next)
        if (!p->spec.in_run && p->slot && p->state != P_ENDED)
            break;
    pthread_mutex_unlock(&rt->lock);
    return p;
}

int fbr_process_answer(struct fiber_process *p, uint8_t type, const struct fbr_buf *body)
{
    return p->conn ? fbr_conn_answer(p->conn, type, body) : -EPIPE;
}

static void unref(void *process)
{
    fbr_process_unref(process);
}

int fbr_process_send(struct fiber_process *p, uint8_t type, const struct fbr_buf *body)
{
    bool posts = !fbr_loop_here(p->rt->loop);
    int rc;

    if (posts)
        fbr_process_ref(p);
    rc = fbr_rt_send(p->rt, &p->conn, type, body, unref, p);
    if (posts && rc < 0)
        fbr_process_unref(p);
    return rc < 0 ? rc : 0;
}

/* A process that does not die in time counts as ended: nothing watches it any more. */
static int abandon(void *arg)
{
    struct fbr_runtime *rt = arg;
    struct fiber_process *p;

    do {
        pthread_mutex_lock(&rt->lock);
        DL_FOREACH(rt->processes, p)
            if (p->state != P_ENDED)
                break;
        pthread_mutex_unlock(&rt->lock);
        if (p)
            fbr_job_fail(p, FBR_EXIT_UNKNOWN, "did not end in time when its parent ended");
    } while (p);
    return 0;
}

/* A process may leave the list while it is killed, and the program may close handles meanwhile, so
 * the next one is referenced first. */
void fbr_process_kill_all(struct fbr_runtime *rt)
{
    struct fiber_process *p = NULL, *next;

    do {
        pthread_mutex_lock(&rt->lock);
        next = p ? p->next : rt->processes;
        if (next)
            next->refs++;
        pthread_mutex_unlock(&rt->lock);
        if (p)
            fbr_process_unref(p);
        if (next)
            fbr_job_signal(next, SIGKILL);
        p = next;
    } while (p);
}

static int kill_all(void *arg)
{
    fbr_process_kill_all(arg);
    return 0;
}

/* Kills all processes at the end of this one, and waits for their end as long as their number
 * falls. */
void fbr_process_end_all(struct fbr_runtime *rt)
{
    uint64_t linger = (uint64_t)fbr_config_ms(rt->config, "linger"), deadline = 0;
    struct fiber_process *p, *one;
    int alive, before = INT_MAX;

    fbr_loop_call(rt->loop, kill_all, rt);
    do {
        alive = 0;
        one = NULL;
        pthread_mutex_lock(&rt->lock);
        DL_FOREACH(rt->processes, p)
            if (p->state != P_ENDED) {
                alive++;
                one = p;
            }
        if (alive < before)
            deadline = fbr_now_ms() + linger;
        before = alive;
        if (one) {
            one->refs++;
            fbr_cond_wait(&one->changed, &rt->lock, fbr_now_ms() + 100);
        }
        pthread_mutex_unlock(&rt->lock);
        if (one)
            fbr_process_unref(one);
    } while (alive && fbr_now_ms() < deadline);
    if (alive)
        fbr_loop_call(rt->loop, abandon, rt);
}

size_t fbr_process_queued(const struct fiber_process *p)
{
    return p->conn ? fbr_conn_queued(p->conn) : 0;
}

size_t fbr_process_silent(struct fiber_process *p, bool silent)
{
    if (p->conn)
        fbr_conn_silent(p->conn, silent);
    return fbr_process_queued(p);
}
