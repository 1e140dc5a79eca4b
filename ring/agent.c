/* agent.c - the agent of a node: it joins, reports what it has, and carries out the launcher's
 * orders. agent_priv.h has the design.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/agent_priv.h"
#include "runtime/proc/child.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/net/host_address.h"

/* Descriptors that the agent needs for a rank: output, errors, pidfd, and connections by PMI, by
 * PMIx and to a store. A rank for whose connection to libpmix there is no descriptor waits, and no
 * error reports it. */
#define RANK_FDS 6
#define JOB_FDS 8 /* listeners, and descriptors that are open for a moment */

#define TWICE_MS 2000 /* the launcher and the cluster's manager both end us: that counts as one */

#define USUAL_SLACK 50000 /* ns; the kernel's default: no one has chosen another value */

/* ---- Small things ---- */

void fbr_agent_send(struct agent *a, uint8_t type, struct fbr_buf *body)
{
    int rc = fbr_child_send(a->rt->child, type, body);

    if (rc == -ENOMEM || rc == -EMSGSIZE) { /* the launcher would wait for it for ever */
        fbr_log_error("cannot send frame %u to the launcher: %s", type, fbr_strerror(rc));
        eventfd_write(a->over, 1);
    }
    fbr_buf_fini(body);
}

void fbr_agent_about(struct fbr_buf *b, uint32_t job, uint32_t rank)
{
    fbr_buf_init(b);
    fbr_put_u32(b, job);
    fbr_put_u32(b, rank);
}

void fbr_agent_note(struct agent *a, const char *fmt, ...)
{
    struct fbr_buf b = {0};
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fbr_put_str(&b, text);
    fbr_agent_send(a, FBR_RING_NOTE, &b);
}

struct agent_job *fbr_agent_job_find(struct agent *a, uint32_t id)
{
    struct agent_job *j;

    DL_FOREACH(a->jobs, j)
        if (j->job.info.id == id)
            break;
    return j;
}

#define FIELD(member) FBR_FIELD(struct fbr_agent_order, member)
static const struct fbr_field order_fields[] = {FIELD(number),
                                                FIELD(wish.bind),
                                                FIELD(wish.map),
                                                FIELD(wish.cpus_per_rank),
                                                FIELD(wish.gpus_per_rank),
                                                FIELD(verbose),
                                                FIELD(report),
                                                FIELD(oversubscribe),
                                                FIELD(survive),
                                                FIELD(image),
                                                FIELD(ranks),
                                                {0}};

void fbr_agent_order_put(const struct fbr_agent_order *o, struct fbr_buf *b)
{
    fbr_put_fields(b, order_fields, o);
}

static int read_order(struct fbr_agent_order *o, const void *data, size_t len)
{
    struct fbr_cur c = fbr_cur(data, len);

    o->wish = (struct fbr_pin_wish){.bind_memory = true};
    fbr_get_fields(&c, order_fields, o);
    return fbr_cur_ok(&c) ? 0 : -EBADMSG;
}

/* ---- Jobs ---- */

static void free_job(struct agent_job *j)
{
    fbr_timer_fini(&j->look);
    fbr_env_fini(&j->cures);
    fbr_env_fini(&j->given);
    fbr_ring_job_fini(&j->job);
    for (uint32_t k = 0; j->ranks && k < j->nlocal; k++)
        free(j->ranks[k].file);
    free(j->ranks);
    free(j->pins);
    free(j->local);
    free(j);
}

static void on_cure(void *user, const char *text)
{
    struct agent *a = user;

    if (a->order.verbose)
        fbr_agent_note(a, "%s", text);
}

/* Finds the settings that the libraries of the job's ranks need on this host. */
static void find_cures(struct agent_job *j)
{
    struct agent *a = j->agent;
    uint32_t sharing = fbr_agent_job_sharing(j);
    const struct fbr_host_use use = {.ranks = j->nlocal,
                                     .nodes = j->job.info.nodes,
                                     .oversubscribed = sharing > a->cpus,
                                     .scratch = a->dir};

    fbr_host_env(&a->probe, &use, &j->cures, on_cure, a);
    if (prctl(PR_GET_TIMERSLACK) == USUAL_SLACK)
        j->slack = fbr_host_env_slack(sharing, a->cpus);
    if (j->slack) {
        char text[96];

        snprintf(text, sizeof(text),
                 "more ranks than processors: timers of the ranks may be %g ms late (timer slack)",
                 (double)j->slack / 1e6);
        on_cure(a, text);
    }
}

/* Sets up this agent's part of a job: local ranks, a directory, processors. */
static int set_up_job(struct agent_job *j, struct fbr_error *err)
{
    struct fbr_bridge_job *i = &j->job.info;
    struct agent *a = j->agent;
    int rc;

    for (uint32_t k = 0; k < i->nodes && i->node < 0; k++)
        if (i->agents[k] == a->order.number)
            i->node = (int)k;
    j->nlocal = fbr_bridge_local(i);
    j->ranks = calloc((size_t)j->nlocal + 1, sizeof(*j->ranks));
    j->local = calloc((size_t)j->nlocal + 1, sizeof(*j->local));
    if (!j->ranks || !j->local) {
        j->nlocal = 0;
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    snprintf(j->dir, sizeof(j->dir), "%s/job-%u", a->dir, i->id);
    if (mkdir(j->dir, 0700) < 0)
        return fbr_fail(err, -errno, "cannot make %s: %s", j->dir, fbr_strerror(errno));
    i->dir = j->dir;
    for (uint32_t k = 0; k < j->nlocal; k++) {
        j->ranks[k] = (struct agent_rank){.job = j, .rank = i->first[i->node] + k};
        j->ranks[k].restarts = fbr_ring_job_restarts(&j->job, j->ranks[k].rank);
        j->local[k] = (struct fbr_bridge_rank){.rank = j->ranks[k].rank, .cpus = ""};
        j->local[k].app =
            (uint32_t)(fbr_ring_job_program(&j->job, j->ranks[k].rank) - j->job.programs);
    }
    i->local = j->local;
    find_cures(j);
    rc = fbr_fds_need(j->nlocal ? (int)j->nlocal * RANK_FDS + JOB_FDS : 0, "the ranks here", err);
    if (rc < 0 || (rc = fbr_agent_job_place(j, err)) < 0)
        return rc;
    for (uint32_t k = 0; j->pins && k < j->nlocal; k++) {
        j->local[k].cpus = j->pins[k].cpus;
        j->local[k].gpus = j->pins[k].ngpus;
    }
    for (int b = 0; b < a->nbridges; b++)
        if (a->bridges[b].ops->job && a->bridges[b].ops->job(a->bridges[b].bridge, i, err) < 0)
            return fbr_wrap(err, "%s", a->bridges[b].ops->name);
    return 0;
}

void fbr_agent_failed(struct agent *a, uint32_t job, uint32_t rank, const char *why)
{
    struct fbr_buf b;

    fbr_agent_about(&b, job, rank);
    fbr_put_str(&b, why);
    fbr_agent_send(a, FBR_RING_FAILED, &b);
}

static void on_job(struct agent *a, struct fbr_cur *body)
{
    struct fbr_error err = {0, ""};
    struct agent_job *j;
    int rc;

    if (a->leaving)
        return;
    j = calloc(1, sizeof(*j));
    rc = j ? fbr_ring_job_get(&j->job, body) : -ENOMEM;
    if (rc < 0) {
        fbr_log_error("cannot read a job of the launcher: %s", fbr_strerror(rc));
        free(j);
        fbr_agent_failed(a, FBR_RING_ALL, FBR_RING_ALL,
                         "cannot read the launcher's order; use the same version of Fiber on all "
                         "hosts");
        return;
    }
    j->agent = a;
    DL_APPEND(a->jobs, j);
    if (set_up_job(j, &err) < 0) {
        fbr_agent_failed(a, j->job.info.id, j->nlocal ? j->ranks[0].rank : FBR_RING_ALL, err.text);
        return;
    }
    for (uint32_t k = 0; k < j->nlocal; k++)
        if (fbr_agent_rank_start(&j->ranks[k]) < 0) /* the ranks after it are not started */
            break;
    fbr_agent_look(j);
}

void fbr_agent_job_ended(struct agent_job *j)
{
    struct agent *a = j->agent;

    for (uint32_t k = 0; k < j->nlocal; k++)
        if (j->ranks[k].handle)
            return;
    for (int b = 0; b < a->nbridges; b++)
        if (a->bridges[b].ops->job_end)
            a->bridges[b].ops->job_end(a->bridges[b].bridge, &j->job.info);
    DL_DELETE(a->jobs, j);
    fbr_agent_job_unclaim(a);
    fbr_rundir_remove_tree(j->dir);
    free_job(j);
}

/* A refused spawn may leave ranks behind; the launcher has already asked for them to be killed. */
static void on_job_end(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));

    if (!j || !fbr_cur_ok(body))
        return;
    j->ending = true;
    fbr_agent_job_ended(j);
}

static void on_signal(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));
    uint32_t rank = fbr_get_u32(body);
    int sig = (int)fbr_get_u32(body);

    if (!j || !fbr_cur_ok(body) || sig <= 0 || sig > 64 || (a->leaving && sig == SIGTERM))
        return;
    if (rank == FBR_RING_ALL && sig == SIGTERM)
        a->asked_ms = fbr_now_ms();
    for (uint32_t k = 0; k < j->nlocal; k++)
        if (rank == FBR_RING_ALL || rank == j->ranks[k].rank)
            fbr_agent_rank_signal(&j->ranks[k], sig);
}

static void on_lost(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));
    uint32_t rank = fbr_get_u32(body);
    int code = (int)fbr_get_u32(body);

    for (int b = 0; j && fbr_cur_ok(body) && b < a->nbridges; b++)
        if (a->bridges[b].ops->lost)
            a->bridges[b].ops->lost(a->bridges[b].bridge, &j->job.info, rank, code);
}

static void on_again(struct agent *a, struct fbr_cur *body)
{
    struct agent_job *j = fbr_agent_job_find(a, fbr_get_u32(body));
    struct agent_rank *r = j ? fbr_agent_rank_find(j, fbr_get_u32(body)) : NULL;
    uint32_t restarts = fbr_get_u32(body);

    if (!r || !fbr_cur_ok(body) || r->handle || a->leaving)
        return;
    r->restarts = restarts;
    r->met = r->left = r->mpi = false;
    if (fbr_agent_rank_start(r) == 0)
        fbr_agent_look(j);
}

static void on_notify(struct agent *a, struct fbr_cur *body)
{
    char name[32];
    uint32_t from;

    fbr_get_str(body, name, sizeof(name));
    from = fbr_get_u32(body);
    for (int b = 0; fbr_cur_ok(body) && b < a->nbridges; b++)
        if (strcmp(a->bridges[b].ops->name, name) == 0 && a->bridges[b].ops->message)
            a->bridges[b].ops->message(a->bridges[b].bridge, from, body);
}

/* ---- The end ---- */

/* Removes the agent's folders, and the run's folder in /dev/shm if it is empty and the run is over:
 * the last agent may have made it after another agent removed the run's directory. */
static void remove_dirs(struct agent *a)
{
    if (a->dir[0])
        fbr_rundir_remove_tree(a->dir);
    if (!a->shm[0])
        return;
    fbr_rundir_remove_tree(a->shm);
    fbr_rundir_shm_leave(&a->rt->dir);
}

static void shut_down(struct agent *a)
{
    struct agent_job *j, *next;

    for (int b = a->nbridges - 1; b >= 0; b--)
        if (a->bridges[b].ops->close)
            a->bridges[b].ops->close(a->bridges[b].bridge);
    a->nbridges = 0;
    if (a->backend)
        a->local->close(a->backend);
    a->backend = NULL;
    DL_FOREACH_SAFE(a->jobs, j, next) {
        for (uint32_t k = 0; k < j->nlocal; k++)
            fbr_agent_stdin_close(&j->ranks[k]);
        DL_DELETE(a->jobs, j);
        free_job(j);
    }
    fbr_timer_fini(&a->show);
    fbr_agent_host_fini(a);
    if (a->pin)
        a->pin->close(a->machine);
    a->claims = fbr_fds_close(a->claims);
    remove_dirs(a);
    a->ended = true;
    eventfd_write(a->over, 1);
}

static void signal_all(struct agent *a, int sig)
{
    struct agent_job *j;

    DL_FOREACH(a->jobs, j)
        for (uint32_t k = 0; k < j->nlocal; k++)
            fbr_agent_rank_signal(&j->ranks[k], sig);
}

/* The launcher is gone: no rank may outlive it, nor any process that a rank forked. */
static void on_orphaned(struct fbr_runtime *rt)
{
    if (!rt->agent)
        return;
    signal_all(rt->agent, SIGKILL);
    remove_dirs(rt->agent);
}

/* ---- Signals to the agent ---- */

static bool has_ranks(const struct agent *a)
{
    const struct agent_job *j;

    DL_FOREACH(a->jobs, j)
        for (uint32_t k = 0; k < j->nlocal; k++)
            if (j->ranks[k].handle)
                return true;
    return false;
}

void fbr_agent_leave(struct agent *a)
{
    if (!has_ranks(a))
        eventfd_write(a->over, 1);
}

/* A manager ends a job by SIGTERM and, after a while, SIGKILL (its time is over, it is preempted,
 * its pod is deleted). The ranks get that while, too. Their ends are not reported: the launcher
 * sees the end of the agent, and its backend knows the reason. */
static int on_own_signal(void *arg)
{
    struct agent *a = arg;
    bool asked = a->leaving || (a->asked_ms && fbr_now_ms() - a->asked_ms < TWICE_MS);

    if (a->signal != SIGTERM || !asked)
        signal_all(a, a->signal);
    if (a->signal != SIGTERM || a->ended)
        return 0;
    signal_all(a, SIGCONT); /* a stopped rank would not act on SIGTERM */
    a->leaving = true;
    fbr_agent_leave(a);
    return 0;
}

/* Returns the exit code. Later frames find no agent. */
static int end(void *arg)
{
    struct agent *a = arg;

    a->rt->agent = NULL;
    if (a->ended)
        return 0;
    shut_down(a);
    return 128 + SIGTERM;
}

/* Our other threads block all signals. */
static int take_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void wait_for_end(struct agent *a, int signals)
{
    struct pollfd p[2] = {{.fd = a->over, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo s;

    while (poll(p, 2, -1) < 0 || !p[0].revents)
        while (read(signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
            a->signal = (int)s.ssi_signo;
            fbr_loop_call(a->rt->loop, on_own_signal, a);
        }
}

static void on_end(struct agent *a, struct fbr_cur *body)
{
    shut_down(a);
}

static void (*const handlers[])(struct agent *a, struct fbr_cur *body) = {
    [FBR_RING_JOB] = on_job,
    [FBR_RING_SIGNAL] = on_signal,
    [FBR_RING_ANSWER] = fbr_agent_on_answer,
    [FBR_RING_NOTIFY] = on_notify,
    [FBR_RING_STREAM] = fbr_agent_on_stream,
    [FBR_RING_STDIN] = fbr_agent_on_stdin,
    [FBR_RING_CREDIT] = fbr_agent_on_credit,
    [FBR_RING_LOST] = on_lost,
    [FBR_RING_AGAIN] = on_again,
    [FBR_RING_JOB_END] = on_job_end,
    [FBR_RING_LOOK] = fbr_agent_on_look,
    [FBR_RING_WAITS] = fbr_agent_on_waits,
    [FBR_RING_RESIZE] = fbr_agent_on_resize,
    [FBR_RING_END] = on_end,
};

static void on_frame(void *user, uint8_t type, struct fbr_cur *body)
{
    struct fbr_runtime *rt = user;

    if (rt->agent && type < sizeof(handlers) / sizeof(handlers[0]) && handlers[type])
        handlers[type](rt->agent, body);
}

/* ---- The beginning ---- */

static void send_hello(struct agent *a)
{
    struct fbr_buf b = {0};

    fbr_put_str(&b, a->hostname);
    fbr_put_str(&b, a->address);
    fbr_put_u32(&b, a->cpus);
    fbr_put_u64(&b, a->limits.machine);
    fbr_agent_send(a, FBR_RING_HELLO, &b);
}

static int make_dirs(struct agent *a, struct fbr_error *err)
{
    struct fbr_rundir *d = &a->rt->dir;
    int rc = fbr_rundir_own(d, err);

    if (rc < 0)
        return rc;
    snprintf(a->dir, sizeof(a->dir), "%s/agent-%u", d->own, a->order.number);
    if (mkdir(a->dir, 0700) < 0)
        return fbr_fail(err, -errno, "cannot make %s: %s", a->dir, fbr_strerror(errno));
    if (fbr_rundir_shm(d, NULL) == 0) {
        /* Other rings of the run, and an agent that was killed, have some for the same number. */
        snprintf(a->shm, sizeof(a->shm), "%s/agent-%u-XXXXXX", d->shm, a->order.number);
        if (!mkdtemp(a->shm))
            a->shm[0] = '\0';
    }
    return 0;
}

static int open_bridges(struct agent *a, struct fbr_error *err)
{
    const struct fbr_bridge_ops *const *all = fbr_bridges();

    for (int i = 0; all[i] && a->nbridges < AGENT_BRIDGES; i++) {
        struct agent_bridge *b = &a->bridges[a->nbridges];

        b->agent = a;
        b->ops = all[i];
        fbr_agent_host_init(b);
        if (b->ops->open && b->ops->open(&b->bridge, &b->host, err) < 0)
            return fbr_wrap(err, "%s", b->ops->name);
        a->nbridges++;
    }
    return 0;
}

/* The launcher reaches all hosts of the ring by one network, so the ranks use our interface to
 * that network. */
static void probe_host(struct agent *a)
{
    char host[FBR_HOST_ADDRESS_MAX], ours[FBR_HOST_ADDRESS_MAX];
    bool known = fbr_host_address_of_url(a->rt->parent_url, host) &&
                 fbr_host_address_toward(host, 0, ours, NULL) == 0;

    fbr_probe_run(&a->probe, known ? ours : "");
}

/* Opens the parts that start ranks. */
static int open_parts(struct agent *a, struct fbr_error *err)
{
    const struct fbr_backend_env env = {a->rt->loop, a->rt->config, fbr_agent_on_event, NULL};
    int rc = make_dirs(a, err);

    if (rc < 0)
        return rc;
    a->local = fbr_backend_find(FBR_BACKEND_LOCAL, err);
    rc = a->local ? a->local->open(&a->backend, &env, err) : err->code;
    if (rc < 0)
        return rc;
    if (fbr_agent_open_machine(a, err) < 0) /* reported later, if a binding is asked for */
        fbr_debug("%s", err->text);
    return open_bridges(a, err);
}

static int begin(void *arg)
{
    struct agent *a = arg;
    struct fbr_error err = {0, ""};
    int rc;

    a->rt->agent = a;
    a->rt->orphaned = on_orphaned;
    fbr_cgroup_read(&a->limits);
    a->cpus = fbr_cgroup_cpus(&a->limits);
    probe_host(a);
    if (!a->probe.loopback && fbr_probe_raise_loopback() == 0)
        a->probe.loopback = true;
    if (gethostname(a->hostname, sizeof(a->hostname) - 1) < 0)
        snprintf(a->hostname, sizeof(a->hostname), "node%u", a->order.number);
    snprintf(a->address, sizeof(a->address), "%s", a->probe.address);
    send_hello(a);
    rc = open_parts(a, &err);
    if (rc < 0) {
        fbr_agent_failed(a, FBR_RING_ALL, FBR_RING_ALL, err.text);
        fbr_log_error("%s", err.text);
    }
    return rc;
}

int fbr_agent_main(const void *arg, size_t len)
{
    struct agent a = {.rt = fbr_rt(), .claims = -1, .over = eventfd(0, EFD_CLOEXEC)};
    int signals = take_signals(), code;

    if (!a.rt || a.over < 0 || read_order(&a.order, arg, len) < 0)
        return 125;
    if (fbr_loop_call(a.rt->loop, begin, &a) < 0) {
        fbr_loop_call(a.rt->loop, end, &a);
        return 125;
    }
    fbr_child_on_frame(a.rt->child, on_frame, a.rt);
    wait_for_end(&a, signals);
    code = fbr_loop_call(a.rt->loop, end, &a);
    close(signals);
    close(a.over);
    return code;
}
