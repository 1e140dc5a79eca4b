/* steps.c - jobs as steps of the allocation in which we run.
 *
 * srun is the job: a process of the local backend, whose end is the job's end, whose output is the
 * job's output, and whose standard input gets the ticket. srun's own messages stand among the lines
 * of standard error. They are removed, and decide what the end means. srun's exit code alone is not
 * enough: it is 1 for a step that was never made, and 0 for a step whose node was lost.
 *
 * Steps overlap, because an agent or a worker needs all that the allocation has on its node. We
 * choose the node: the one with the fewest steps for its processors. A job that requests processors
 * or GPUs gets them for itself, where Slurm finds them.
 *
 * When srun gets SIGTERM, it ends its step by SIGKILL. So other signals are sent by scancel, which
 * needs the step's number: one squeue finds the numbers of all steps that wait for one.
 *
 * A step's life needs no table of states: srun runs (`process`), or the step waits for its next
 * try, or its end was reported (`told`). The only events are the end of srun, the time of the next
 * try, a signal and the release, and each has one effect in each of the three.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/slurm/steps.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/tool/kept_job.h"
#include "backends/tool/ticket_pipe.h"
#include "backends/slurm/query.h"
#include "backends/slurm/slurm_lines.h"
#include "backends/tool/tool.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"

#define MAX_NODES 65536
#define MAX_COMPONENTS 128 /* Slurm's own limit */
#define TOOL_MS 20000
#define CLOSE_MS 4000
#define RETRY_MS 1000
#define MAX_TRIES 3 /* if nodes do not answer */
#define CANNOT_START 125
#define AVOID_MS 60000 /* how long a failed node is avoided */

extern const struct fbr_backend_ops fbr_backend_local;
static const struct fbr_backend_ops *const local = &fbr_backend_local;

struct node {
    const char *name;
    unsigned cpus, used;
    uint64_t avoid_until;
};

struct step {
    struct step *next, *prev;
    struct fbr_slurm_steps *s;
    void *user;    /* NULL: released, the runtime takes no further events */
    void *process; /* srun; NULL: it is tried again soon, or the end was reported */
    pid_t srun;
    struct node *node; /* NULL: Slurm chooses */
    char name[160];
    struct fbr_slurm_lines err;
    struct fbr_job *job; /* its srun may be started again */
    struct fbr_timer again;
    unsigned tries;
    bool waiting;  /* fact: srun's last line was that the step waits */
    bool told;     /* state: its end was reported */
    int asked;     /* the last signal that we sent, or one that ends it */
    uint64_t want; /* signals to send when the step's number is known, by bit */
    /* the number, if it is known and the signals are not sent yet; "" */
    char number[FBR_SLURM_ID + 16];
};

struct fbr_slurm_steps {
    struct fbr_backend_env env;
    const struct fbr_slurm_settings *settings;
    struct fbr_backend *processes;
    struct fbr_tools *tools;
    const char *job_id;
    int component; /* of a heterogeneous allocation, which srun uses; -1: it is not heterogeneous */
    struct fbr_args names;
    struct node *nodes;
    struct step *steps;
    bool asking; /* squeue runs */
};

/* ---- Events of srun ---- */

static void notify(struct step *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->s->env.event(j->user, e);
}

static void on_bytes(void *user, const void *data, size_t len)
{
    notify(user, &(struct fbr_job_event){
                     .type = FBR_JOB_OUTPUT, .stream = 2, .text = "", .data = data, .len = len});
}

/* From now on it has the time of start_timeout to join. */
static void notify_running(struct step *j)
{
    char text[200];

    snprintf(text, sizeof(text),
             "a step of allocation %s runs%s%.60s: if its node cannot reach this host, set bind",
             j->s->job_id, j->node ? " on " : "", j->node ? j->node->name : "");
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text, .runs = 1});
}

static void on_line(void *user, const char *line)
{
    struct step *j = user;
    char text[300];

    fbr_info("%s: %s", j->name, line);
    if (j->err.said.waits && !j->waiting) {
        snprintf(text, sizeof(text), "waits for room in allocation %s: %.200s", j->s->job_id,
                 j->err.said.text);
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text});
    } else if (j->waiting && !j->err.said.waits) {
        notify_running(j);
    }
    j->waiting = j->err.said.waits;
}

static void free_step(struct step *j)
{
    fbr_kept_job_free(j->job);
    fbr_timer_fini(&j->again);
    free(j);
}

static void drop_srun(struct step *j)
{
    if (j->process)
        local->release(j->s->processes, j->process);
    j->process = NULL;
    j->srun = 0;
}

/* Reports the end. The step is freed afterwards if the runtime has released it, or releases it in
 * its event callback. */
static void notify_end(struct step *j, const struct fbr_slurm_end *end)
{
    DL_DELETE(j->s->steps, j);
    fbr_timer_stop(&j->again);
    drop_srun(j);
    j->told = true;
    if (j->user)
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_EXITED,
                                          .code = end->code,
                                          .text = end->text,
                                          .disrupted = end->disrupted});
    else
        free_step(j);
}

/* Whether the node, or the moment, and not the request is the reason of the failure. A node that is
 * down has no "configuration". After its own restart, Slurm has no memory for any job until its
 * nodes have reported theirs. */
static bool may_be_made_elsewhere(const struct step *j)
{
    const struct fbr_slurm_step *said = &j->err.said;

    return j->tries < MAX_TRIES &&
           (said->unreached ||
            (j->node && strstr(said->text, "Requested node configuration is not available")) ||
            (!j->job->memory && strstr(said->text, "Memory required by task is not available")));
}

/* The step was not made, and may be made the next time: Slurm did not answer, or a node that Slurm
 * takes for good does not answer. */
static bool try_again(struct step *j)
{
    const struct fbr_slurm_step *said = &j->err.said;
    char line[256], text[320];
    bool away = fbr_slurm_refusal(said->text, line, sizeof(line)) != FBR_SLURM_NEVER;

    if (!said->refused || said->code || j->asked || j->want || !j->user ||
        (!away && !may_be_made_elsewhere(j)))
        return false;
    drop_srun(j);
    fbr_timer_start(&j->again, RETRY_MS << (j->tries < 4 ? j->tries : 4), 0);
    j->tries++;
    snprintf(text, sizeof(text), "srun is tried again: %.250s", line);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text});
    return true;
}

static void on_exited(struct step *j, const struct fbr_job_event *event)
{
    struct fbr_slurm_end end;

    fbr_slurm_lines_end(&j->err);
    fbr_slurm_step_end(&j->err.said, event->code, j->asked, j->job->memory, &end);
    if (j->node) {
        j->node->used--;
        if (j->err.said.lost || (j->err.said.refused && !j->asked))
            j->node->avoid_until = fbr_now_ms() + AVOID_MS;
    }
    if (!try_again(j))
        notify_end(j, &end);
}

static void on_event(void *user, const struct fbr_job_event *event)
{
    struct step *j = user;
    char id[64];

    if (event->type == FBR_JOB_STARTED) {
        j->srun = (pid_t)event->pid;
        snprintf(id, sizeof(id), "%.30s%s%.30s", j->s->job_id, j->node ? ":" : "",
                 j->node ? j->node->name : "");
        if (j->tries == 0)
            notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = id});
        else
            notify_running(j);
    } else if (event->type == FBR_JOB_EXITED) {
        on_exited(j, event);
    } else if (event->type == FBR_JOB_OUTPUT && event->stream == 2 && event->len) {
        fbr_slurm_lines_add(&j->err, event->data, event->len);
    } else if (event->type == FBR_JOB_OUTPUT && event->len) {
        /* len 0, the end of the output, is not passed on: it comes with the job's end */
        notify(j, event);
    }
}

/* ---- Starting ---- */

/* Whether a node is better than another: first a node that works, then an empty node (each agent of
 * a ring needs a node of its own), then the node with the fewest steps for its processors. */
static bool is_better(const struct node *n, const struct node *other, uint64_t now)
{
    bool avoid = n->avoid_until > now, avoid_other = other->avoid_until > now;

    if (avoid != avoid_other)
        return avoid_other;
    if (!n->used != !other->used)
        return !n->used;
    return (uint64_t)(n->used + 1) * other->cpus < (uint64_t)(other->used + 1) * n->cpus;
}

/* Returns the node for a job; NULL: Slurm chooses. An agent of a ring has a node of its own, as
 * long as that node works. */
static struct node *pick(struct fbr_slurm_steps *s, const struct fbr_job *job)
{
    struct node *best = NULL;
    uint64_t now = fbr_now_ms();

    if (!s->names.n || (!job->numbered && (job->cpus > 0 || job->gpus > 0)))
        return NULL;
    if (job->numbered)
        best = &s->nodes[(size_t)(job->index - 1) % s->names.n];
    if (best && best->avoid_until <= now)
        return best;
    for (size_t i = 0; i < s->names.n; i++)
        if (!best || is_better(&s->nodes[i], best, now))
            best = &s->nodes[i];
    return best;
}

/* Returns the memory share of a step that has its own processors, if Slurm counts memory. 0:
 * unknown. */
static unsigned long share_of_memory(const struct fbr_slurm_steps *s, unsigned cpus)
{
    const char *text = fbr_getenv("SLURM_MEM_PER_NODE");
    unsigned long mib = text ? strtoul(text, NULL, 10) : 0;
    unsigned of = s->names.n ? s->nodes[0].cpus : 1;

    for (size_t i = 1; i < s->names.n; i++)
        of = s->nodes[i].cpus > of ? s->nodes[i].cpus : of;
    return cpus >= of ? mib : mib * cpus / of;
}

/* Returns the processors of a job that requested none. An agent of a ring gets those of its node in
 * proportion to its GPUs there, because other agents may need the rest. */
static unsigned share_of_cpus(const struct fbr_slurm_steps *s, const struct fbr_job *job)
{
    const char *on_node = fbr_getenv("SLURM_GPUS_ON_NODE");
    unsigned long all, gpus = on_node ? strtoul(on_node, NULL, 10) : 0, share;

    if (!job->numbered || !s->names.n)
        return 1;
    all = s->nodes[(size_t)(job->index - 1) % s->names.n].cpus;
    share = job->gpus > 0 && (unsigned long)job->gpus < gpus ? all * (unsigned long)job->gpus / gpus
                                                             : all;
    if (job->width > 1 && share < (unsigned long)job->width)
        share = (unsigned long)job->width < all ? (unsigned long)job->width : all;
    return share ? (unsigned)share : 1;
}

static void add_share(const struct fbr_slurm_steps *s, const struct fbr_job *job,
                      struct fbr_args *w)
{
    unsigned asked = fbr_slurm_cpus(job), cpus = asked ? asked : share_of_cpus(s, job);
    unsigned long mib = share_of_memory(s, cpus);

    fbr_args_addf(w, "--exact");
    if (!asked)
        fbr_args_addf(w, "--cpus-per-task=%u", cpus);
    if (!job->memory && mib)
        fbr_args_addf(w, "--mem=%luM", mib);
    if (!job->gpus)
        fbr_args_addf(w, "--gres=none");
}

static bool lists(const char *list, const char *name)
{
    struct fbr_args names = {0};
    bool found = false;

    if (fbr_slurm_hosts(list, MAX_NODES, &names) == 0)
        for (size_t i = 0; i < names.n && !found; i++)
            found = strcmp(names.at[i], name) == 0;
    fbr_args_fini(&names);
    return found;
}

/* Returns the component of a heterogeneous allocation that has the node, or its first one; -1: the
 * allocation is not heterogeneous. The variables by which srun would choose one are not passed on:
 * they describe another srun. */
static int find_component(const char *node)
{
    const char *size = fbr_getenv("SLURM_HET_SIZE"), *list;
    int n = size ? atoi(size) : 0;
    char name[64];

    for (int i = 0; node && i < n && i < MAX_COMPONENTS; i++) {
        snprintf(name, sizeof(name), "SLURM_JOB_NODELIST_HET_GROUP_%d", i);
        list = fbr_getenv(name);
        if (list && lists(list, node))
            return i;
    }
    return n > 0 ? 0 : -1;
}

/* Makes the command that starts the job on `node` (NULL: where Slurm likes); without memory,
 * w->failed is set. */
static void make_words(const struct step *j, const struct fbr_job *job, const char *node,
                       struct fbr_args *w)
{
    static const char *const always =
        "--mpi=none --nodes=1 --ntasks=1 --cpu-bind=none --unbuffered --kill-on-bad-exit=0";

    fbr_args_addf(w, "srun");
    if (node)
        fbr_args_addf(w, "--nodelist=%s", node);
    fbr_args_split(w, always, NULL);
    fbr_args_addf(w, "--input=%s", job->ticket ? "0" : "none");
    fbr_args_addf(w, "--export=ALL%s", job->ticket ? ",FIBER_TICKET=fd:0" : "");
    fbr_args_addf(w, "--job-name=%s", j->name);
    if (j->s->component >= 0)
        fbr_args_addf(w, "--het-group=%d", j->s->component);
    if (job->cpus > 0 || job->gpus > 0)
        add_share(j->s, job, w);
    else
        fbr_args_addf(w, "--overlap");
    fbr_slurm_add_needs(w, job);
    fbr_args_add_all(w, j->s->settings->options.at);
    if (job->workdir) { /* srun's --chdir uses another folder if it cannot enter this one */
        fbr_args_addf(w, "env");
        fbr_args_addf(w, "--chdir=%s", job->workdir);
    }
    fbr_args_add_program(w, job->file);
    if (job->argv && job->argv[0])
        fbr_args_add_all(w, job->argv + 1);
}

int fbr_slurm_steps_show(const struct fbr_slurm_settings *settings, const struct fbr_job *job,
                         struct fbr_buf *out)
{
    struct fbr_slurm_steps s = {.settings = settings, .component = find_component(NULL)};
    struct step j = {.s = &s};
    struct fbr_args w = {0};
    int rc;

    snprintf(j.name, sizeof(j.name), "fiber-%.40s-%.80s", job->run_uid, job->name);
    make_words(&j, job, "NODE", &w);
    rc = w.failed ? -ENOMEM : 0;
    fbr_args_line(&w, out);
    fbr_put(out, "\n", 1);
    fbr_args_fini(&w);
    return rc;
}

/* Chooses the node and starts srun; may be called again. */
static int launch(struct step *j, struct fbr_error *err)
{
    const struct fbr_job *job = j->job;
    struct fbr_slurm_steps *s = j->s;
    char **env = fbr_slurm_env(job->env, FBR_SLURM_FOR_SRUN, NULL);
    struct fbr_args w = {0};
    int in = -1, rc;

    j->err.said = (struct fbr_slurm_step){0};
    j->waiting = false;
    j->node = pick(s, job);
    make_words(j, job, j->node ? j->node->name : NULL, &w);
    if (!env || w.failed) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto done;
    }
    if (job->ticket &&
        (rc = in = fbr_ticket_pipe_send(s->env.loop, job->ticket, job->ticket_len, true, err)) < 0)
        goto done;
    rc = fbr_tool_start(s->processes, w.at, env, in, j, &j->process, err);
    fbr_fds_close(in);
    if (j->node)
        j->node->used += rc == 0;
done:
    fbr_args_fini(&w);
    free(env);
    return rc;
}

static void on_again(void *arg)
{
    struct step *j = arg;
    struct fbr_slurm_end end = {.code = CANNOT_START};
    struct fbr_error err = {0, ""};

    if (launch(j, &err) == 0)
        return;
    snprintf(end.text, sizeof(end.text), "could not be started as a step: %.300s", err.text);
    notify_end(j, &end);
}

int fbr_slurm_steps_start(struct fbr_slurm_steps *s, const struct fbr_job *job, void *user,
                          void **handle, struct fbr_error *err)
{
    struct step *j = calloc(1, sizeof(*j));
    char name[80];
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->s = s;
    j->user = user;
    j->err = (struct fbr_slurm_lines){.bytes = on_bytes, .line_of_slurm = on_line, .user = j};
    fbr_slurm_name(job->name, name, sizeof(name));
    snprintf(j->name, sizeof(j->name), "fiber-%.32s-%s.%d", job->run_uid, name, (int)getpid());
    j->job = fbr_kept_job(job);
    *handle = j;
    if (!j->job || fbr_timer_init(&j->again, s->env.loop, on_again, j) < 0)
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    else
        rc = launch(j, err);
    if (rc < 0) {
        *handle = NULL;
        free_step(j);
        return rc;
    }
    DL_APPEND(s->steps, j);
    return 0;
}

/* ---- Signals ---- */

static void on_sent(void *user, const struct fbr_tool_result *r)
{
    if (r->code) /* scancel also complains about steps that it has signalled */
        fbr_debug("scancel ended with code %d: %.200s", r->code, r->err);
}

static uint64_t bit(int sig)
{
    return sig ? UINT64_C(1) << (sig - 1) : 0;
}

/* The signals that end a program which does not handle them. */
#define ENDS (bit(SIGTERM) | bit(SIGINT) | bit(SIGHUP))

/* One scancel for all steps that get this signal and whose numbers are known. */
static void send_signal(struct fbr_slurm_steps *s, int sig)
{
    struct fbr_args w = {0};
    struct step *j;

    fbr_args_split(&w, "scancel --quiet", NULL);
    fbr_args_addf(&w, "--signal=%d", sig);
    DL_FOREACH(s->steps, j)
        if (j->number[0] && (j->want & bit(sig))) {
            fbr_args_addf(&w, "%s", j->number);
            j->asked = bit(j->asked) & ENDS ? j->asked : sig;
        }
    if (w.failed || fbr_slurm_run(s->tools, &w, TOOL_MS, on_sent, NULL) < 0)
        fbr_warn("slurm: cannot send signal %d to the steps", sig);
    fbr_args_fini(&w);
}

/* Ends the step in any case, because srun can do so without the step's number. */
static void kill_step(struct step *j)
{
    if (!j->process)
        return;
    local->signal(j->s->processes, j->process, SIGTERM);
}

static struct step *find(struct fbr_slurm_steps *s, const char *name)
{
    struct step *j;

    DL_FOREACH(s->steps, j)
        if (strcmp(j->name, name) == 0)
            return j;
    return NULL;
}

/* Reads lines "ID|NAME". */
static void on_numbers(void *user, const struct fbr_tool_result *r)
{
    struct fbr_slurm_steps *s = user;
    struct step *j;
    uint64_t wanted = 0;
    char *rest = NULL;

    s->asking = false;
    for (char *line = strtok_r(r->out, "\n", &rest); r->code == 0 && line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *name = strchr(line, '|');

        if (!name)
            continue;
        *name++ = '\0';
        j = find(s, name);
        if (!j)
            continue;
        snprintf(j->number, sizeof(j->number), "%s", line);
        wanted |= j->want;
    }
    for (int sig = 1; sig < NSIG; sig++)
        if (wanted & bit(sig))
            send_signal(s, sig);
    DL_FOREACH(s->steps, j) {
        uint64_t ends = j->want & ENDS;

        if (ends && !j->number[0]) { /* there is no step yet, or Slurm does not list it */
            j->asked = ffsll((long long)ends);
            kill_step(j);
        }
        j->want = 0;
        j->number[0] = '\0';
    }
}

static void ask_numbers(struct fbr_slurm_steps *s)
{
    struct fbr_args w = {0};
    char text[128];

    snprintf(text, sizeof(text), "squeue --noheader --steps --format=%%i|%%j --jobs=%.40s",
             s->job_id);
    s->asking = fbr_args_split(&w, text, NULL) == 0 &&
                fbr_slurm_run(s->tools, &w, TOOL_MS, on_numbers, s) == 0;
    if (!s->asking)
        on_numbers(s, &(struct fbr_tool_result){.code = FBR_EXIT_UNKNOWN, .out = (char[]){""}});
    fbr_args_fini(&w);
}

int fbr_slurm_steps_signal(struct fbr_slurm_steps *s, void *handle, int sig)
{
    struct step *j = handle;

    if (j->told)
        return 0;
    if (!j->process) { /* between two tries */
        const struct fbr_slurm_end end = {.code = -sig};

        if (sig == SIGKILL || sig == SIGTERM || sig == SIGINT)
            notify_end(j, &end);
        return 0;
    }
    if (sig == SIGKILL) {
        j->asked = sig;
        j->want = 0;
        kill_step(j);
        return 0;
    }
    j->want |= bit(sig);
    if (!s->asking)
        ask_numbers(s);
    return 0;
}

/* ---- The rest ---- */

static int read_allocation(struct fbr_slurm_steps *s, struct fbr_error *err)
{
    const char *list = fbr_getenv("SLURM_JOB_NODELIST"),
               *cpus = fbr_getenv("SLURM_JOB_CPUS_PER_NODE");
    unsigned *counts = NULL;

    s->job_id = fbr_getenv("SLURM_JOB_ID");
    if (!s->job_id || !s->job_id[0])
        return fbr_fail(err, -EINVAL,
                        "there is no allocation (SLURM_JOB_ID is not set): start this program with "
                        "salloc or sbatch, or set slurm_mode to batch");
    if (list && fbr_slurm_hosts(list, MAX_NODES, &s->names) < 0) {
        fbr_warn("slurm: cannot read SLURM_JOB_NODELIST '%.100s'; Slurm chooses the nodes", list);
        fbr_args_fini(&s->names);
    }
    if (s->names.n) {
        s->nodes = calloc(s->names.n, sizeof(*s->nodes));
        counts = calloc(s->names.n, sizeof(*counts));
    }
    if (s->names.n && (!s->nodes || !counts)) {
        free(counts);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    s->component = find_component(s->names.n ? s->names.at[0] : NULL);
    if (counts)
        fbr_slurm_counts(cpus ? cpus : "1", counts, s->names.n);
    for (size_t i = 0; i < s->names.n; i++)
        s->nodes[i] = (struct node){.name = s->names.at[i], .cpus = counts[i] ? counts[i] : 1};
    free(counts);
    return 0;
}

int fbr_slurm_steps_open(struct fbr_slurm_steps **out, const struct fbr_backend_env *env,
                         const struct fbr_slurm_settings *settings, struct fbr_error *err)
{
    struct fbr_slurm_steps *s = calloc(1, sizeof(*s));
    const struct fbr_backend_env inner = {env->loop, env->config, on_event, NULL};
    int rc;

    if (!s)
        return fbr_fail(err, -ENOMEM, "out of memory");
    s->env = *env;
    s->settings = settings;
    if ((rc = read_allocation(s, err)) < 0 || (rc = local->open(&s->processes, &inner, err)) < 0 ||
        (rc = fbr_tools_open(&s->tools, env, err)) < 0) {
        fbr_slurm_steps_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* Each srun ends its step, and then itself. */
static void end_all(struct fbr_slurm_steps *s)
{
    uint64_t until = fbr_now_ms() + CLOSE_MS, now;
    struct step *j;

    DL_FOREACH(s->steps, j)
        kill_step(j);
    DL_FOREACH(s->steps, j) {
        int fd = j->srun > 0 ? (int)syscall(SYS_pidfd_open, j->srun, 0) : -1;
        struct pollfd ended = {.fd = fd, .events = POLLIN};

        now = fbr_now_ms();
        if (fd >= 0 && now < until)
            poll(&ended, 1, (int)(until - now));
        fbr_fds_close(fd);
    }
}

void fbr_slurm_steps_close(struct fbr_slurm_steps *s)
{
    struct step *j, *next;

    if (!s)
        return;
    end_all(s);
    DL_FOREACH(s->steps, j) {
        j->user = NULL;
        drop_srun(j);
    }
    if (s->processes)
        local->close(s->processes);
    fbr_tools_close(s->tools);
    DL_FOREACH_SAFE(s->steps, j, next) /* steps whose end was not reported */
        free_step(j);
    free(s->nodes);
    fbr_args_fini(&s->names);
    free(s);
}

void fbr_slurm_steps_pause(struct fbr_slurm_steps *s, void *handle, int paused)
{
    struct step *j = handle;

    if (j->process)
        local->pause_output(s->processes, j->process, paused);
}

void fbr_slurm_steps_release(struct fbr_slurm_steps *s, void *handle)
{
    struct step *j = handle;

    j->user = NULL;
    if (j->process) { /* given up: srun had enough time */
        local->signal(s->processes, j->process, SIGKILL);
        return;
    }
    if (!j->told)
        DL_DELETE(s->steps, j);
    free_step(j);
}
