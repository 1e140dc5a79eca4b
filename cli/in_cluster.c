/* in_cluster.c - starts a master as a job of the kubernetes backend.
 *
 * To the backend the master is a job like others, except for its account
 * (backends/kubernetes/pod_master.c). So its pod, its output and its failures are handled in the
 * same way. Our configuration is passed on as variables; files are not, so the program must be in
 * the image.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/in_cluster.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/program/args.h"
#include "cli/run_wait.h"
#include "fiber.h"
#include "runtime/base/environ.h"
#include "runtime/base/random.h"
#include "runtime/proc/context.h"

#define COULD_NOT_START 125
#define PATIENCE_MS 2000 /* time without a report while the master waits */
#define WRITE_MS 100     /* between two looks at signals while output is written */
#define IDLE_LOOKS 10    /* a reader that takes nothing for so many does not delay a stop */

/* The contents of the events so far. */
struct seen {
    bool ended, broken; /* broken: our output has no reader any more */
    bool wrote;         /* the master has written something */
    int32_t code;
    char waiting[512], why[512], pod[256];
};

struct master {
    struct cli_backend b;
    struct cli_job job;
    pthread_mutex_t lock;
    int event; /* eventfd: `seen` has changed */
    bool quiet;
    struct fbr_printable_filter filter; /* of the loop's thread */
    atomic_bool stopped; /* a signal came; the loop's thread may wait for the reader meanwhile */
    struct seen seen;    /* protected by the lock */
};

/* ---- The master's command line ---- */

/* Options about where the master runs, and variables, which are passed in another way. */
static bool stays_here(size_t option)
{
    static const size_t list[] = {RUN_IN_CLUSTER,       RUN_BACKEND, RUN_NAMESPACE, RUN_ENV,
                                  RUN_ENV_FILE,         RUN_MCA,     RUN_GENV,      RUN_NOTHING,
                                  RUN_NOTHING_ARGUMENT, RUN_DRY_RUN};

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        if (list[i] == option)
            return true;
    return false;
}

char **in_cluster_words(const struct run_options *spec, const struct cli_args *args)
{
    struct fbr_args w = {0};

    fbr_args_addf(&w, "fiber");
    fbr_args_addf(&w, "run");
    for (size_t i = 0; i < RUN_OPTIONS; i++) {
        const struct cli_option *o = &run_option_table[i];
        const struct cli_value *v = &args->values[i];

        if (stays_here(i))
            continue;
        for (int64_t n = 0; o->type == CLI_FLAG && n < v->number; n++)
            fbr_args_addf(&w, "--%s", o->name);
        if (o->type != CLI_FLAG && v->text)
            fbr_args_addf(&w, "--%s=%s", o->name, v->text);
    }
    for (size_t i = 0; i < spec->env.count; i++)
        fbr_args_addf(&w, "--env=%.*s", (int)strcspn(spec->env.list[i], "="), spec->env.list[i]);
    fbr_args_addf(&w, "--");
    for (int i = 0; i < args->noperands; i++)
        fbr_args_addf(&w, "%s", args->operands[i]);
    return fbr_args_take(&w);
}

/* Whether a setting has a meaning in the cluster; the backend adds the settings that it knows
 * better. */
static bool goes_along(const char *key)
{
    static const char *const ours[] = {"backend",
                                       "bind",
                                       "run_dir",
                                       "image",
                                       "command_",
                                       "docker_",
                                       "slurm_",
                                       "kubernetes_context",
                                       "kubernetes_namespace",
                                       "kubernetes_pod_template",
                                       "kubernetes_program",
                                       "kubernetes_service_account",
                                       "kubernetes_master_account",
                                       NULL};

    return !fbr_strings_begin(key, ours);
}

static char **environment(char *const *given, size_t count)
{
    const struct fbr_config *c = fbr_rt_any()->config;
    struct fbr_args w = {0};
    size_t n;
    const struct fbr_config_key *keys = fbr_config_keys(&n);

    for (size_t i = 0; i < count; i++)
        fbr_args_addf(&w, "%s", given[i]);
    for (size_t i = 0; i < n; i++)
        if (goes_along(keys[i].name) && strcmp(fbr_config_origin(c, keys[i].name), "default") != 0)
            fbr_args_addf(&w, "%s=%s", keys[i].env, fbr_config_str(c, keys[i].name));
    return fbr_args_take(&w);
}

/* ---- Events, on the loop's thread ---- */

/* Slow readers slow the output down, as a pipe would, but do not delay a stop: each write takes no
 * more than a pipe that is writable has room for. */
static bool print(const atomic_bool *stopped, const char *data, size_t len)
{
    for (unsigned idle = 0; len && idle < IDLE_LOOKS;) {
        struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
        ssize_t n;

        if (poll(&p, 1, WRITE_MS) == 0) {
            idle += atomic_load(stopped);
            continue;
        }
        n = write(STDOUT_FILENO, data, len < PIPE_BUF ? len : PIPE_BUF);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        idle = 0;
    }
    return len == 0;
}

bool in_cluster_print(struct fbr_printable_filter *filter, const atomic_bool *stopped,
                      const char *data, size_t len)
{
    struct fbr_buf shown = {0};
    bool done;

    if (!isatty(STDOUT_FILENO))
        return print(stopped, data, len);
    fbr_printable_filter(filter, data, len, &shown);
    done = print(stopped, (const char *)shown.data, shown.len);
    fbr_buf_fini(&shown);
    return done;
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct master *m = user;
    struct seen *s = &m->seen;
    bool broken = e->type == FBR_JOB_OUTPUT && !s->broken &&
                  !in_cluster_print(&m->filter, &m->stopped, e->data, e->len);

    pthread_mutex_lock(&m->lock);
    s->broken |= broken;
    s->wrote |= e->type == FBR_JOB_OUTPUT;
    if (e->type == FBR_JOB_STARTED)
        snprintf(s->pod, sizeof(s->pod), "%s", e->text);
    if (e->type == FBR_JOB_PENDING)
        snprintf(s->waiting, sizeof(s->waiting), "%s", e->runs ? "" : e->text);
    if (e->type == FBR_JOB_EXITED) {
        s->ended = true;
        s->code = e->code;
        snprintf(s->why, sizeof(s->why), "%s", e->text);
    }
    pthread_mutex_unlock(&m->lock);
    if (broken || e->type != FBR_JOB_OUTPUT)
        eventfd_write(m->event, 1);
}

/* ---- In our process ---- */

const char *in_cluster_backend(const char *named)
{
    const struct fbr_backend_ops *const *b = fbr_backends;

    while (!(*b)->about || !(*b)->about->in_master)
        b++;
    if (!named || !strcmp(named, (*b)->name) || !strcmp(named, "auto"))
        return (*b)->name;
    cli_failed(0, "--in-cluster is for --backend %s, not %s", (*b)->name, named);
    return NULL;
}

static sigset_t block_signals(void)
{
    static const int list[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set = run_wait_unignored(list, sizeof(list) / sizeof(list[0]));

    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return set;
}

/* The first signal asks the master to end, the second kills its pod, the third ends us, and with us
 * all objects that we own. */
static void stop(struct master *m, int sig, unsigned times)
{
    const struct cli_ask signal = {
        .op = BACKEND_SIGNAL, .mine = &m->job, .sig = times > 1 ? SIGKILL : SIGTERM};

    if (times > 2)
        run_wait_die(sig);
    atomic_store(&m->stopped, true);
    cli_backend_ask(&m->b, &signal, NULL);
    if (!m->quiet && isatty(STDERR_FILENO) && times == 1)
        fprintf(stderr, "fiber: stopping; press Ctrl-C again to kill\n");
}

static struct seen look(struct master *m)
{
    struct seen now;

    pthread_mutex_lock(&m->lock);
    now = m->seen;
    pthread_mutex_unlock(&m->lock);
    return now;
}

/* Waits until the master has ended. Returns the signal that stopped it, or 0. */
static int wait_for(struct master *m, int signals)
{
    struct pollfd p[2] = {{.fd = m->event, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    struct seen now = look(m);
    char said[512] = "";
    unsigned times = 0;
    bool named = m->quiet;
    int by = 0;

    while (!now.ended) {
        bool news = strcmp(now.waiting, said) != 0;
        struct signalfd_siginfo s;
        eventfd_t count;

        if (poll(p, 2, news && !m->quiet ? PATIENCE_MS : -1) == 0) {
            if (now.waiting[0])
                cli_failed(0, "the master waits: %s", now.waiting);
            memcpy(said, now.waiting, sizeof(said));
        }
        eventfd_read(m->event, &count);
        while (read(signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
            by = by ? by : (int)s.ssi_signo;
            stop(m, (int)s.ssi_signo, ++times);
        }
        now = look(m);
        if (now.broken && !times) {
            by = SIGPIPE;
            stop(m, SIGPIPE, ++times);
        }
        if (now.pod[0] && !named)
            cli_failed(0, "the master is pod %s", now.pod);
        named |= now.pod[0] != '\0';
    }
    return by;
}

/* Reports common mistakes, if there is a sign of them. A launcher that has written something was in
 * the image: the code is that of a rank. */
static void report_missing(const struct master *m, const struct fbr_job *job)
{
    const struct fbr_config *config = m->b.config;
    int32_t code = m->seen.code;
    const char *image = job->image ? job->image : fbr_config_str(config, "image");
    bool absent = code == 126 || code == 127; /* it could not be executed */

    if (absent && job->own_program && !m->seen.wrote)
        cli_failed(0,
                   "the image %s must have the command fiber, at the same path as here or at that "
                   "of kubernetes_program; otherwise set kubernetes_agent_image",
                   image);
    else if (absent || (job->own_program && code == COULD_NOT_START))
        cli_failed(0,
                   "programs and files come from the image %s, none is copied from here; `fiber "
                   "kubernetes manifest` makes the account %s and its Role",
                   image, fbr_config_str(config, "kubernetes_master_account"));
}

static int code_of(int32_t code)
{
    if (code == FBR_EXIT_UNKNOWN)
        return COULD_NOT_START;
    return code < 0 ? 128 - code : code;
}

static int run_job(struct master *m, const struct fbr_job *job, int signals)
{
    const struct cli_ask start = {.op = BACKEND_START, .job = job, .mine = &m->job};
    struct fbr_error err = {0, ""};
    int by;

    m->job = (struct cli_job){.event = on_event, .user = m};
    if (cli_backend_ask(&m->b, &start, &err) < 0)
        return cli_failed(COULD_NOT_START, "the master cannot be started: %s", err.text);
    by = wait_for(m, signals);
    cli_backend_ask(&m->b, &(struct cli_ask){.op = BACKEND_RELEASE, .mine = &m->job}, &err);
    if (m->seen.why[0] && !by)
        cli_failed(0, "the master%s%s: %s", m->seen.pod[0] ? " " : "", m->seen.pod, m->seen.why);
    if (!by)
        report_missing(m, job);
    cli_backend_close(&m->b);
    if (by)
        run_wait_die(by);
    return code_of(m->seen.code);
}

static int run_master(struct fbr_job *job, bool quiet)
{
    struct master m = {.lock = PTHREAD_MUTEX_INITIALIZER,
                       .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                       .quiet = quiet};
    sigset_t set = block_signals(); /* before any thread exists */
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), code = COULD_NOT_START;
    struct fbr_error err = {0, ""};
    char run[33];

    job->run_uid = run;
    if (m.event < 0 || signals < 0) {
        cli_failed(0, "cannot open descriptors: %m");
    } else if (fbr_random_id(run) < 0) {
        cli_failed(0, "cannot get random numbers: %m");
    } else if (cli_backend_open(&m.b, in_cluster_backend(NULL), &err) < 0) {
        cli_failed(0, "%s", err.text);
    } else {
        code = run_job(&m, job, signals);
        cli_backend_close(&m.b);
    }
    fbr_fds_close(m.event);
    fbr_fds_close(signals);
    return code;
}

/* ---- Both entry points ---- */

int in_cluster_run(const struct run_options *spec, const struct cli_args *args)
{
    struct in_cluster_draft d;
    struct fbr_error err;
    int code;

    if (!in_cluster_backend(args->values[RUN_BACKEND].text))
        return 2;
    code = in_cluster_draft(&d, spec, args, &err) < 0
               ? cli_failed(COULD_NOT_START, "%s", err.text)
               : run_master(&d.job, args->values[RUN_QUIET].number > 0 ||
                                        args->values[RUN_JSON].number > 0);
    in_cluster_draft_fini(&d);
    return code;
}

int in_cluster_draft(struct in_cluster_draft *d, const struct run_options *spec,
                     const struct cli_args *args, struct fbr_error *err)
{
    d->words = in_cluster_words(spec, args);
    d->env = environment(spec->env.list, spec->env.count);
    d->job = (struct fbr_job){.name = "master",
                              .run_uid = "dry-run",
                              .image = spec->ring.job.image,
                              .file = "/proc/self/exe",
                              .argv = d->words,
                              .added_env = d->env,
                              .own_program = 1,
                              .is_master = 1};
    return d->words && d->env ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

void in_cluster_draft_fini(struct in_cluster_draft *d)
{
    fbr_list_free(d->words);
    fbr_list_free(d->env);
}

int in_cluster_master(const struct cli_args *args, const struct cli_value *env, bool quiet)
{
    char *named = args->operands[1], *whole = run_program_whole(named), **added = NULL;
    struct fbr_job job = {.name = "master", .is_master = 1, .argv = args->operands + 1};
    struct fbr_error err = {0, ""};
    struct fbr_env list = {0};
    int code;

    if (whole)
        args->operands[1] = whole;
    job.file = args->operands[1];
    if (run_env_list(&list, env, "", &err) < 0)
        code = cli_failed(2, "%s", err.text);
    else if (!(job.added_env = added = environment(list.list, list.count)))
        code = cli_failed(COULD_NOT_START, "out of memory");
    else
        code = run_master(&job, quiet);
    fbr_list_free(added);
    fbr_env_fini(&list);
    args->operands[1] = named;
    free(whole);
    return code;
}
