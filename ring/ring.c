/* ring.c - rings as programs see them: the calls of fiber.h, and their options.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/ring.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "ring/collective.h"
#include "ring/apps.h"
#include "ring/ring_priv.h"
#include "ring/capacity.h"
#include "runtime/base/fds.h"
#include "runtime/inspect/run_control.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/base/environ.h"
#include "runtime/base/jobspec.h"

#define TOLD_MS 2000 /* ms to notify the agents that we stop */

/* ---- Options ---- */

static int check_numbers(int size, const struct fiber_ring_options *o, struct fbr_error *err)
{
    if (size < 1 || size > (int)FBR_PLAN_RANKS)
        return fbr_fail(err, -EINVAL, "a ring has 1 to %u ranks, not %d", FBR_PLAN_RANKS, size);
    if (o->per_node < 0 || o->nodes < 0 || o->max_restarts < 0 || o->timeout_ms < 0 ||
        o->grace_ms < 0 || o->cpus_per_rank < 0 || o->gpus_per_rank < 0)
        return fbr_fail(err, -EINVAL, "ring options: no number may be negative");
    if (o->on_failure < FIBER_RING_ABORT || o->on_failure > FIBER_RING_REPLACE)
        return fbr_fail(
            err, -EINVAL,
            "ring options: on_failure is %d; use one of FIBER_RING_ABORT to FIBER_RING_REPLACE",
            (int)o->on_failure);
    if (o->flags >= 2 * FIBER_RING_PTY) /* the highest one */
        return fbr_fail(err, -EINVAL, "ring options: flags is %#x; use FIBER_RING_TAG to _PTY",
                        o->flags);
    if ((o->flags & FIBER_RING_PTY) && (o->pty_rank < 0 || o->pty_rank >= size))
        return fbr_fail(err, -EINVAL, "ring options: there is no rank %d for a pseudo-terminal",
                        o->pty_rank);
    if (o->gpus_per_rank > FBR_PIN_GPUS)
        return fbr_fail(err, -EINVAL, "ring options: at most %d GPUs for a rank", FBR_PIN_GPUS);
    return 0;
}

int fbr_ring_wish(struct fbr_pin_wish *w, const struct fiber_ring_options *o, struct fbr_error *err)
{
    int bind = o->bind_to ? fbr_pin_bind_named(o->bind_to, err) : FBR_BIND_DEFAULT;
    int map = o->map_by ? fbr_pin_map_named(o->map_by, err) : FBR_MAP_DEFAULT;

    if (bind < 0 || map < 0)
        return -EINVAL;
    *w = (struct fbr_pin_wish){.bind = (enum fbr_pin_bind)bind,
                               .map = (enum fbr_pin_map)map,
                               .cpus_per_rank = (unsigned)o->cpus_per_rank,
                               .gpus_per_rank = (unsigned)o->gpus_per_rank,
                               .bind_memory = true};
    return 0;
}

/* Counts the agents: by the nodes asked for, else by the ranks on each; one if neither is given. */
static int count_agents(struct fiber_ring *r, const struct fiber_ring_options *o,
                        struct fbr_error *err)
{
    struct fbr_plan p = {0};
    int rc = fbr_ring_plan(&p, (int)r->size, o, err);

    if (rc < 0)
        return rc;
    r->nagents = p.nodes;
    r->most = p.first[1];
    if (o->slots) {
        r->ranks = calloc(p.nodes, sizeof(*r->ranks));
        rc = r->ranks ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
    }
    for (uint32_t k = 0; r->ranks && k < p.nodes; k++)
        r->ranks[k] = p.first[k + 1] - p.first[k];
    fbr_plan_fini(&p);
    return rc;
}

static int copy_strings(struct fiber_ring *r, const struct fiber_ring_options *o)
{
    struct fiber_ring_options *own = &r->options;

    own->backend = o->backend ? strdup(o->backend) : NULL;
    own->output_dir = o->output_dir ? strdup(o->output_dir) : NULL;
    own->bind_to = own->map_by = NULL; /* they are in `wish` */
    own->slots = NULL;                 /* they are in `ranks` */
    if ((o->backend && !own->backend) || (o->output_dir && !own->output_dir))
        return -ENOMEM;
    own->programs = NULL; /* they are in the ring's own `programs` */
    r->programs = fbr_ring_apps_make(o, (int)r->size);
    if (!r->programs || fbr_jobspec_copy(&own->job, &r->strings, &o->job) < 0 ||
        !(r->env = fbr_environ_copy(NULL)))
        return -ENOMEM;
    fbr_rt_see_environ(r->rt, o->backend);
    return 0;
}

const char *fbr_ring_backend(const struct fiber_ring *r)
{
    return fbr_rt_backend_name(r->rt, r->options.backend);
}

/* Sets up the ring. The options leave nothing open. */
static int set_up_whole(struct fiber_ring *r, int size, fiber_rank_fn fn, const void *arg,
                        size_t len, const struct fiber_ring_options *o, struct fbr_error *err)
{
    int rc = fbr_ring_wish(&r->wish, o, err);

    if (rc < 0)
        return rc;
    r->size = (uint32_t)size;
    r->options = *o;
    rc = copy_strings(r, o);
    if (rc < 0)
        return fbr_fail(err, rc, "out of memory");
    r->grace_ms = o->grace_ms ? o->grace_ms : fbr_config_ms(r->rt->config, "grace");
    if (o->on_failure == FIBER_RING_RESTART || o->on_failure == FIBER_RING_REPLACE)
        r->max_restarts = o->max_restarts ? (uint32_t)o->max_restarts : 3;
    if ((rc = fbr_random_id(r->about.uid)) < 0)
        return fbr_fail(err, rc, "cannot create an id for the ring: %s", fbr_strerror(rc));
    if ((rc = count_agents(r, o, err)) < 0 || (rc = fbr_ring_files_open(r, err)) < 0 ||
        (fn && (rc = fbr_ring_make_work(r, fn, arg, len, err)) < 0))
        return rc;
    fbr_ring_describe(r, o);
    r->agents = calloc(r->nagents, sizeof(*r->agents));
    if (!r->agents)
        return fbr_fail(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < r->nagents; i++)
        r->agents[i] = (struct ring_agent){.ring = r, .number = i};
    r->sentinel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return r->sentinel < 0 ? fbr_fail(err, -errno, "cannot create the sentinel's descriptor: %s",
                                      fbr_strerror(errno))
                           : 0;
}

static int set_up(struct fiber_ring *r, int size, fiber_rank_fn fn, const void *arg, size_t len,
                  const struct fiber_ring_options *opts, struct fbr_error *err)
{
    struct fiber_ring_options o = {.size = sizeof(o)};
    struct fbr_ring_capacity room = {0};
    int rc;

    if (opts)
        o = *opts;
    if ((rc = check_numbers(size, &o, err)) < 0 || (rc = fbr_ring_apps_check(&o, size, err)) < 0)
        return rc;
    rc = fbr_ring_capacity_ask(&room, &size, &o, err);
    if (room.note[0] && !(o.flags & FIBER_RING_QUIET))
        fbr_warn("%s", room.note);
    if (rc == 0)
        rc = set_up_whole(r, size, fn, arg, len, &o, err);
    fbr_ring_capacity_fini(&room);
    return rc;
}

/* ---- Life of the handle ---- */

static void destroy(struct fiber_ring *r)
{
    fbr_collective_close(r->collect);
    fbr_spool_close(r->spool);
    fbr_fds_close(r->sentinel);
    free((char *)(uintptr_t)r->options.backend);
    free((char *)(uintptr_t)r->options.output_dir);
    fbr_apps_free(r->programs, (uint32_t)fbr_ring_apps_count(&r->options));
    fbr_buf_fini(&r->strings);
    free(r->env);
    fbr_buf_fini(&r->block);
    free(r->work);
    free(r->ranks);
    free(r->agents);
    free(r->report);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
}

/* Loop thread. Our own reader has caught up. */
static void on_room(struct fbr_runtime *rt)
{
    struct fiber_ring *r;

    DL_FOREACH(rt->rings, r)
        fbr_ring_send_credit(r);
}

struct begin_call {
    struct fiber_ring *r;
    struct fbr_error *err;
    bool begun;
};

static int begin(void *arg)
{
    struct begin_call *c = arg;
    struct fiber_ring *r = c->r;
    struct fbr_runtime *rt = r->rt;

    if (fbr_rt_at_end(rt, FBR_END_RUNS, fbr_ring_end_all) < 0)
        return -ESHUTDOWN;
    c->begun = r->listed = true;
    DL_APPEND(rt->rings, r);
    rt->output_room = on_room;
    for (int fd = 0; rt->output && fd < 2; fd++)
        r->losses[fd] = fbr_output_losses(rt->output, fd);
    return fbr_ring_begin(r, c->err);
}

/* Frees what the ring has on the loop thread. Notifies no one. */
static int tear_down(void *arg)
{
    struct fiber_ring *r = arg;

    if (!r->listed)
        return 0;
    r->listed = false;
    DL_DELETE(r->rt->rings, r);
    fbr_ring_terminal_restore(r);
    fbr_run_control_close(r->control, FBR_REGISTRY_LOST, "it was closed before its end");
    r->control = NULL;
    fbr_ring_stdin_close(r->input);
    r->input = NULL;
    fbr_ring_notes_free(r);
    while (r->jobs) {
        struct ring_job *j = r->jobs;

        DL_DELETE(r->jobs, j);
        fbr_ring_free_job(j);
    }
    return 0;
}

static int kill_it(void *arg)
{
    struct fiber_ring *r = arg;

    if (r->state == R_ENDED)
        return 0;
    r->options.flags |= FIBER_RING_QUIET;
    fbr_ring_stop(r);
    fbr_ring_kill(r);
    return 0;
}

/* Checks that there is a function, a command or programs. Reads nothing of options of another
 * size. */
static int check_program(fiber_rank_fn fn, const struct fiber_ring_options *o)
{
    bool programs, any;

    if (o && o->size != sizeof(*o))
        return fbr_keep(-EINVAL, "ring options: size is %zu, not sizeof(struct fiber_ring_options)",
                        o->size);
    programs = o && o->nprograms != 0;
    any = fn || programs || (o && o->job.command && o->job.command[0]);
    if (!any || (fn && programs))
        return fbr_keep(-EINVAL, "fiber_ring_start: set a function, job.command or programs, but "
                                 "not both a function and programs");
    return 0;
}

int fiber_ring_start(struct fiber_ring **out, int size, fiber_rank_fn fn, const void *arg,
                     size_t len, const struct fiber_ring_options *opts)
{
    struct fbr_error err = {0, ""};
    struct fiber_ring *r;
    struct begin_call c;
    int rc;

    if (!out || (!arg && len))
        return fbr_keep(-EINVAL, "fiber_ring_start: needs a pointer for the handle, and an "
                                 "argument if its length is not 0");
    rc = check_program(fn, opts);
    if (rc < 0)
        return rc;
    r = calloc(1, sizeof(*r));
    if (!r)
        return fbr_keep(-ENOMEM, "ring: out of memory");
    r->sentinel = -1;
    pthread_mutex_init(&r->lock, NULL);
    fbr_cond_init(&r->changed);
    r->rt = fbr_rt();
    rc = r->rt ? set_up(r, size, fn, arg, len, opts, &err) : fbr_kept();
    if (rc < 0) {
        if (r->rt && !err.code)
            fbr_fail(&err, rc, "ring: %s", fbr_strerror(rc));
        destroy(r);
        return err.code ? fbr_keep_error(&err) : rc;
    }
    c = (struct begin_call){r, &err, false};
    rc = fbr_loop_call(r->rt->loop, begin, &c);
    if (rc < 0 && !c.begun) {
        destroy(r);
        return fbr_keep(rc, "ring: the program is ending: fiber_fini() or exit() was called");
    }
    if (rc < 0) { /* some agents may run */
        fiber_ring_close(r);
        return fbr_keep_error(&err);
    }
    *out = r;
    return 0;
}

bool fbr_ring_wait_output(struct fiber_ring *r, int ms, bool *moved)
{
    *moved = false;
    return !r->rt->output || fbr_output_wait(r->rt->output, ms, moved);
}

void fbr_ring_give_up_output(struct fiber_ring *r, int sig)
{
    if (r->rt->output)
        fbr_output_give_up(r->rt->output);
    pthread_mutex_lock(&r->lock);
    if (r->code == 0) {
        r->code = 128 + sig;
        free(r->report);
        r->report = strdup("some output of the ranks is lost: its reader did not take it\n");
    }
    pthread_mutex_unlock(&r->lock);
}

/* Returns the errno by which output was lost since the ring started, or 0. */
static int loss_of(const struct fiber_ring *r, int fd)
{
    const struct fbr_output *o = r->rt->output;

    return fbr_output_losses(o, fd) != r->losses[fd] ? fbr_output_error(o, fd) : 0;
}

/* Fails a run that has lost output: the output of ranks is part of the result. */
static void check_output(struct fiber_ring *r)
{
    int out = loss_of(r, 1), file = loss_of(r, 0);
    char *report = NULL;
    bool full, lost; /* full: standard output failed */

    pthread_mutex_lock(&r->lock);
    /* the ring has ended, so file_error does not change */
    file = r->file_error ? r->file_error : file;
    full = out && out != EPIPE && (out != EBADF || !r->options.output_dir);
    lost = full || (file && r->options.output_dir);
    if (lost && r->code == 0) {
        r->code = 1;
        if (asprintf(&report, "some output of the ranks is lost: %s: %s.\n",
                     full ? "standard output" : r->options.output_dir,
                     fbr_strerror(full ? out : file)) < 0)
            report = NULL;
        if (report) {
            free(r->report);
            r->report = report;
        }
    }
    pthread_mutex_unlock(&r->lock);
    if (report && !(r->options.flags & FIBER_RING_QUIET)) {
        fbr_ring_print_report(r, report);
        fbr_output_drain(r->rt->output);
    }
}

int fiber_ring_wait(struct fiber_ring *r, int timeout_ms)
{
    uint64_t deadline = fbr_deadline(timeout_ms);
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (fbr_loop_here(r->rt->loop))
        return fbr_keep(-EDEADLK, "fiber_ring_wait: cannot be called from a callback");
    pthread_mutex_lock(&r->lock);
    while (!r->ended && rc == 0)
        rc = fbr_cond_wait(&r->changed, &r->lock, deadline);
    if (r->ended)
        rc = 0;
    pthread_mutex_unlock(&r->lock);
    if (rc < 0)
        return fbr_keep(rc, "the ring still runs after %d ms", timeout_ms);
    if (r->rt->output) { /* else no agent was ever started */
        fbr_output_drain(r->rt->output);
        fbr_spool_drain(r->spool);
        check_output(r);
    }
    return 0;
}

int fiber_ring_exitcode(struct fiber_ring *r, int *code)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&r->lock);
    rc = r->ended ? 0 : -EAGAIN;
    *code = r->code;
    pthread_mutex_unlock(&r->lock);
    return rc < 0 ? fbr_keep(rc, "the ring still runs, and has no exit code yet") : 0;
}

const char *fiber_ring_report(struct fiber_ring *r)
{
    const char *report;

    if (fbr_rt_check() < 0)
        return "";
    pthread_mutex_lock(&r->lock);
    /* check_output() may replace an empty report later, but callers may keep this one */
    report = r->ended && r->report && r->report[0] ? r->report : "";
    pthread_mutex_unlock(&r->lock);
    return report;
}

int fiber_ring_sentinel(struct fiber_ring *r)
{
    int rc = fbr_rt_check();

    return rc < 0 ? rc : r->sentinel;
}

/* Keeps the error of a call that the loop did not take. */
static int refused(int rc, const char *what)
{
    return fbr_keep(rc, "the ring cannot %s: %s", what,
                    rc == -ESHUTDOWN ? "fiber_fini() was called" : fbr_strerror(rc));
}

struct signal_call {
    struct fiber_ring *r;
    int rank, sig;
};

static int call_signal(void *arg)
{
    struct signal_call *c = arg;

    return fbr_ring_signal_one(c->r, c->rank, c->sig);
}

static int send_signal(struct fiber_ring *r, int rank, int sig)
{
    struct signal_call c = {r, rank, sig};
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (sig < 1 || sig > 64)
        return fbr_keep(-EINVAL, "cannot send signal %d to the ring: there is no such signal", sig);
    rc = fbr_loop_call(r->rt->loop, call_signal, &c);
    return rc < 0 ? refused(rc, "be sent a signal") : 0;
}

int fiber_ring_signal(struct fiber_ring *r, int sig)
{
    int rc = send_signal(r, -1, sig);

    return rc == -ESRCH ? 0 : rc;
}

int fiber_ring_signal_rank(struct fiber_ring *r, int rank, int sig)
{
    int rc = rank < 0 ? -ESRCH : send_signal(r, rank, sig);

    return rc == -ESRCH ? fbr_keep(rc, "the ring has no rank %d now", rank) : rc;
}

static int call_stop(void *arg)
{
    fbr_ring_stop(arg);
    return 0;
}

int fiber_ring_stop(struct fiber_ring *r)
{
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    rc = fbr_loop_call(r->rt->loop, call_stop, r);
    return rc < 0 ? refused(rc, "be stopped") : 0;
}

void fiber_ring_close(struct fiber_ring *r)
{
    if (!r || fbr_rt_check() < 0)
        return;
    if (fbr_rt_peek() == r->rt && !fbr_rt_finished(r->rt)) {
        fbr_loop_call(r->rt->loop, kill_it, r);
        fiber_ring_wait(r, -1);
        fbr_loop_call(r->rt->loop, tear_down, r);
    }
    pthread_mutex_lock(&r->lock);
    while (r->held)
        fbr_cond_wait(&r->changed, &r->lock, UINT64_MAX);
    pthread_mutex_unlock(&r->lock);
    destroy(r);
}

static void hold(struct fiber_ring *r, bool held)
{
    pthread_mutex_lock(&r->lock);
    r->held = held;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

struct next_call {
    struct fbr_runtime *rt;
    struct fiber_ring *r;
};

/* A thread that closes the ring now waits for us, after its tear_down(). */
static int kill_next(void *arg)
{
    struct next_call *c = arg;

    c->r = c->rt->rings;
    if (!c->r)
        return 0;
    hold(c->r, true);
    return kill_it(c->r);
}

/* Called at the end of the process. Ends all rings that are open; their handles may still be
 * closed. */
void fbr_ring_end_all(struct fbr_runtime *rt)
{
    struct next_call c = {.rt = rt};

    while (fbr_loop_call(rt->loop, kill_next, &c) == 0 && c.r) {
        fiber_ring_wait(c.r, -1);
        fbr_loop_call(rt->loop, tear_down, c.r);
        hold(c.r, false);
    }
}

int fiber_ring_run(int size, fiber_rank_fn fn, const void *arg, size_t len,
                   const struct fiber_ring_options *opts)
{
    struct fiber_ring *r;
    int code = 0, rc = fiber_ring_start(&r, size, fn, arg, len, opts);

    if (rc < 0)
        return rc;
    rc = fiber_ring_wait(r, -1);
    if (rc == 0)
        rc = fiber_ring_exitcode(r, &code);
    fiber_ring_close(r);
    return rc < 0 ? rc : code;
}

/* ---- Looking ---- */

struct stats_call {
    struct fiber_ring *r;
    struct fiber_rank_stats *out;
    int max;
};

static int call_stats(void *arg)
{
    struct stats_call *c = arg;
    struct ring_job *j = fbr_ring_newest(c->r);

    for (int i = 0; i < c->max && i < (int)c->r->size; i++) {
        struct fiber_rank_stats *s = &c->out[i];
        const struct ring_rank *k = j ? &j->ranks[i] : NULL;

        *s = (struct fiber_rank_stats){.rank = i};
        if (!k)
            continue;
        s->state = (int)k->state;
        s->code = k->code;
        s->restarts =
            (int)(fbr_ring_job_restarts(&j->job, (uint32_t)i) + fbr_restart_count(&c->r->again));
        s->pid = k->pid;
        s->cpu = (double)k->cpu_ns / 1e9;
        s->memory = k->resident;
        snprintf(s->host, sizeof(s->host), "%.63s", fbr_ring_host_of(j, (uint32_t)i));
        snprintf(s->cpus, sizeof(s->cpus), "%s", k->cpus);
        snprintf(s->how, sizeof(s->how), "%s", k->how);
    }
    return (int)c->r->size;
}

int fiber_ring_stats(struct fiber_ring *r, struct fiber_rank_stats *out, int max)
{
    struct stats_call c = {r, out, out ? max : 0};
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    rc = fbr_loop_call(r->rt->loop, call_stats, &c);
    return rc < 0 ? refused(rc, "be queried") : rc;
}

/* Describes the agents that have not joined, with the reasons of their backend if it has any. */
static void format_waiting(const struct fiber_ring *r, struct fbr_run_facts *f)
{
    struct fbr_pending jobs = {0};

    for (uint32_t i = 0; i < r->nagents; i++)
        if (r->agents[i].process)
            fbr_pending_add(&jobs, fbr_process_pending(r->agents[i].process), 0);
    fbr_pending_format(&jobs, f->waiting, sizeof(f->waiting));
    if (!f->waiting[0])
        snprintf(f->waiting, sizeof(f->waiting), "%d of %d agent%s joined", f->agents_joined,
                 f->agents, f->agents == 1 ? " has" : "s have");
}

struct facts_call {
    struct fiber_ring *r;
    struct fbr_run_facts *facts;
};

static int call_facts(void *arg)
{
    struct facts_call *c = arg;
    struct fiber_ring *r = c->r;
    struct fbr_run_facts *f = c->facts;
    struct ring_job *j = fbr_ring_newest(r);
    uint32_t living = fbr_ring_living(r);

    memset(f, 0, sizeof(*f));
    f->size = (int)r->size;
    f->agents = (int)r->nagents;
    f->restarts = (int)fbr_restart_count(&r->again);
    for (uint32_t i = 0; i < r->nagents; i++)
        f->agents_joined += r->agents[i].state == AGENT_READY;
    for (uint32_t i = 0; j && i < j->job.info.size; i++) {
        f->running += j->ranks[i].state == RANK_RUNNING;
        f->ended += j->ranks[i].state == RANK_ENDED;
    }
    if (r->state == R_WAITING)
        format_waiting(r, f);
    else if ((r->state == R_RESTARTING || r->state == R_STOPPING) && living)
        snprintf(f->waiting, sizeof(f->waiting), "%u rank%s not ended yet", living,
                 living == 1 ? " has" : "s have");
    else if (r->state == R_RESTARTING || r->state == R_STOPPING)
        snprintf(f->waiting, sizeof(f->waiting), "its agents have not ended yet");
    return 0;
}

const struct fbr_run_control_about *fbr_ring_about(const struct fiber_ring *r)
{
    return &r->about;
}

void fbr_ring_facts(struct fiber_ring *r, struct fbr_run_facts *facts)
{
    struct facts_call c = {r, facts};

    fbr_loop_call(r->rt->loop, call_facts, &c);
}

struct suspend_call {
    struct fiber_ring *r;
    bool suspend, told;
    size_t left; /* bytes that are still queued for all agents */
};

static int call_suspend(void *arg)
{
    struct suspend_call *c = arg;

    if (!c->told)
        fbr_ring_signal(c->r, NULL, FBR_RING_ALL, c->suspend ? SIGSTOP : SIGCONT);
    c->left = 0;
    for (uint32_t i = 0; i < c->r->nagents; i++) {
        struct fiber_process *p = c->r->agents[i].process;

        if (p)
            c->left += c->told ? fbr_process_queued(p) : fbr_process_silent(p, c->suspend);
    }
    c->told = true;
    return 0;
}

void fbr_ring_suspend(struct fiber_ring *r, bool suspend)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    struct suspend_call c = {.r = r, .suspend = suspend};
    uint64_t end = fbr_now_ms() + TOLD_MS;

    while (fbr_loop_call(r->rt->loop, call_suspend, &c) == 0 && c.left && fbr_now_ms() < end)
        nanosleep(&moment, NULL);
}
