/* logs.c - `fiber logs`: shows a run's kept output (logs_kept.c). For a run that only engines know,
 * it shows the output of the run's jobs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/orphans.h"
#include "cli/logs_kept.h"
#include "cli/option.h"
#include "runtime/proc/lines.h"

enum {
    LOGS_FOLLOW,
    LOGS_TAIL,
    LOGS_SINCE,
    LOGS_GREP,
    LOGS_TIMESTAMP,
    LOGS_TAG,
    LOGS_BACKEND,
    LOGS_OPTIONS
};

/* Whether lines are chosen or marked as only kept output can be. */
static bool wants_kept(const struct cli_args *args)
{
    return args->values[LOGS_TAIL].text || args->values[LOGS_SINCE].text ||
           args->values[LOGS_GREP].text || args->values[LOGS_TIMESTAMP].number > 0;
}

/* ---- A run that only the engines know ---- */

struct reading;

/* One job. Used on its backend's thread, under the lock. */
struct job_reader {
    struct reading *all;
    const struct orphan *job;
    char tag[80];
    struct fbr_line_stream out[2]; /* standard output and standard error */
};

struct reading {
    pthread_mutex_t lock; /* protects the terminal, and all members below */
    pthread_cond_t changed;
    struct job_reader *jobs;
    struct fbr_screen screens[2];
    struct fbr_buf text; /* for a screen */
    int left, failed;
    bool shown;
};

static void print_text(struct reading *all, int k)
{
    all->shown |= all->text.len > 0;
    if (all->text.len)
        cli_write(k ? stderr : stdout, all->text.data, all->text.len);
    cli_flush();
    fbr_buf_clear(&all->text);
}

static void on_job_piece(void *user, int stream, const void *data, size_t len)
{
    struct job_reader *r = user;
    struct reading *all = r->all;
    int k = stream == 2;

    pthread_mutex_lock(&all->lock);
    fbr_line_add(&r->out[k], &all->screens[k], r->tag, data, len, &all->text);
    print_text(all, k);
    pthread_mutex_unlock(&all->lock);
}

static void on_job_end(void *user, const char *why)
{
    struct job_reader *r = user;
    struct reading *all = r->all;

    pthread_mutex_lock(&all->lock);
    for (int k = 0; k < 2; k++) {
        fbr_line_end(&r->out[k], &all->screens[k], r->tag, &all->text);
        fbr_screen_break(&all->screens[k], &all->text);
        print_text(all, k);
        fbr_line_fini(&r->out[k], &all->screens[k]);
    }
    if (why[0]) {
        all->failed++;
        cli_failed(1, "%s job %.64s: %s", r->job->backend, r->job->name, why);
    }
    all->left--;
    pthread_cond_signal(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* Reads one job. Without --follow the jobs are read one after the other, so that their output is
 * not mixed. */
static void read_job(struct reading *all, struct job_reader *r, struct cli_backend *b, bool follow)
{
    const struct fbr_backend_reader reader = {on_job_piece, on_job_end, r};
    const struct cli_ask ask = {
        .op = BACKEND_LOGS, .id = r->job->id, .follow = follow, .reader = &reader};
    struct fbr_error err = {0, ""};

    pthread_mutex_lock(&all->lock);
    all->left++;
    pthread_mutex_unlock(&all->lock);
    if (cli_backend_ask(b, &ask, &err) < 0)
        on_job_end(r, err.text);
    pthread_mutex_lock(&all->lock);
    while (!follow && all->left)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

/* The output of ranks is not in that of their agents' jobs. */
static void report_silence(const struct orphan_run *e)
{
    char master[40];

    orphan_master(e->at[0].jobs, master);
    cli_failed(0,
               "run %.12s: its jobs wrote nothing that their engine has; the output of the ranks "
               "of a ring is at its master, %s: use `fiber logs` there",
               e->uid, master[0] ? master : "which is unknown");
}

static int show_orphan_run(struct orphan_run *e, const char *name, const struct cli_args *args)
{
    struct reading all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct fbr_error err = {0, ""};
    int wanted = orphan_run_wanted(e, name, &err);
    size_t n = 0;

    if (wanted < 0)
        return cli_failed(1, "%s", err.text);
    if (wants_kept(args))
        return cli_failed(2, "--tail, --since, --grep and --timestamp apply to kept output only; "
                             "see `fiber logs --help`");
    all.jobs = calloc((size_t)wanted, sizeof(*all.jobs));
    if (!all.jobs)
        return cli_failed(1, "out of memory");
    for (int k = 0; k < 2; k++)
        all.screens[k] = (struct fbr_screen){.terminal = isatty(k + 1), .shared = wanted > 1};
    for (size_t i = 0; i < e->count; i++)
        for (size_t k = 0; k < e->at[i].count; k++) {
            struct job_reader *r = &all.jobs[n];

            if (!orphan_run_wants(&e->at[i].jobs[k], name))
                continue;
            n++;
            r->all = &all;
            r->job = &e->at[i].jobs[k];
            r->out[0].who = r->out[1].who = r;
            if (args->values[LOGS_TAG].number)
                snprintf(r->tag, sizeof(r->tag), "[%.70s] ", r->job->name);
            read_job(&all, r, &e->at[i].backend, args->values[LOGS_FOLLOW].number > 0);
        }
    pthread_mutex_lock(&all.lock);
    while (all.left)
        pthread_cond_wait(&all.changed, &all.lock);
    pthread_mutex_unlock(&all.lock);
    free(all.jobs);
    fbr_buf_fini(&all.text);
    if (!all.shown && !all.failed)
        report_silence(e);
    return all.failed ? 1 : 0;
}

/* ---- The request ---- */

/* Chooses the run to show if none is named, and says which one it is. Stores its uid. Kept output
 * outlives the registry, which goes when the user logs out. */
static int name_last(char *name, size_t size, struct fbr_error *err)
{
    struct fbr_spool_run kept;
    struct run_client run;
    char root[PATH_MAX];
    int rc = run_client_only(&run, true, err);

    if (rc == -ENOENT && logs_root(root) && fbr_spool_find(&kept, root, NULL, NULL) == 0)
        run = (struct run_client){.about = kept.about, .fd = -1};
    else if (rc < 0)
        return rc;
    snprintf(name, size, "%s", run.about.uid);
    fprintf(stderr, "fiber: logs of run %.8s, %s\n", run.about.uid, run.about.name);
    run_client_free(&run);
    return 0;
}

static int get_wish(struct logs_wish *w, const struct cli_args *args, struct fbr_error *err)
{
    *w = (struct logs_wish){.rank = -1,
                            .follow = args->values[LOGS_FOLLOW].number > 0,
                            .tag = args->values[LOGS_TAG].number > 0,
                            .timestamp = args->values[LOGS_TIMESTAMP].number > 0,
                            .tail =
                                args->values[LOGS_TAIL].text ? args->values[LOGS_TAIL].number : -1,
                            .grep = args->values[LOGS_GREP].text};
    return args->values[LOGS_SINCE].text
               ? logs_since(args->values[LOGS_SINCE].text, fbr_wall_us(), &w->since_us, err)
               : 0;
}

static struct run_client without_registry(const struct fbr_spool_run *kept)
{
    return (struct run_client){
        .about = kept->about, .facts = kept->facts, .fd = -1, .state = CLIENT_ENDED};
}

/* Whether output is kept of the run of that name. If so, sets *kept and *run. *run has no
 * connection if the registry no longer knows the run, or never did (a pool that ended at once). */
static bool find_kept(const char *name, const char *root, struct run_client *run,
                      struct fbr_spool_run *kept)
{
    struct fbr_error err = {0, ""};
    int rc = run_client_find(name, run, &err);
    bool found;

    if (rc < 0 && rc != -ENOENT)
        return false;
    found = fbr_spool_find(kept, root, name, NULL) == 0;
    if (rc == 0) {
        if (!found || run->state <= CLIENT_SILENT ||
            kept->about.started_ms <= run->about.started_ms) {
            if (fbr_spool_look(kept, root, run->about.uid))
                return true;
            found = false;
        }
        run_client_free(run);
    }
    if (!found)
        return false;
    *run = without_registry(kept);
    return true;
}

static int show_kept(struct run_client *run, struct fbr_spool_run *kept, const char *root,
                     const char *rank, struct logs_wish *w)
{
    struct fbr_error err = {0, ""};
    int code;

    w->rank = rank ? run_client_job(rank, run, &err) : -1;
    if (w->follow && run->state == CLIENT_SILENT && run->fd >= 0)
        fprintf(stderr, "fiber: run %.16s: its launcher, process %lld, does not answer; waiting\n",
                run->about.uid, (long long)run->about.pid);
    code = err.code ? cli_failed(1, "%s", err.text) : logs_kept(kept, root, w);
    run_client_free(run);
    return code;
}

/* Reports where nothing is kept of the run, and why, and where else its output is. */
static int refuse_unkept(const struct run_client *run)
{
    bool lives = run->state <= CLIENT_SILENT, ring = run->about.kind == FBR_RUN_RING;
    const char *report = run->report[0] ? ". Its report:\n" : "";
    int shown = (int)strlen(run->report); /* cli_failed() ends the last line */
    char root[PATH_MAX] = "", why[PATH_MAX + FBR_ERROR_TEXT];
    struct fbr_error err = {0, ""};
    const char *files = "";

    shown -= shown && run->report[shown - 1] == '\n';
    if (run->about.unkept)
        snprintf(why, sizeof(why), ", because it was started with log_keep=0 (FIBER_LOG_KEEP)%s",
                 lives ? "; it goes to where the run was started" : "");
    else if (logs_root(root) && fbr_spool_root_make(root, &err) < 0)
        snprintf(why, sizeof(why), ": %s; set log_dir to a directory in which output can be kept",
                 err.text);
    else if (lives)
        snprintf(why, sizeof(why),
                 " in %s, and goes to where the run was started; for `fiber logs`, "
                 "start it with log_keep=16Mi (FIBER_LOG_KEEP) and this log_dir",
                 root);
    else
        snprintf(why, sizeof(why),
                 " in %s: only the last %d runs of %d days are kept, within the limits "
                 "log_keep and log_total",
                 root, FBR_SPOOL_RUNS, FBR_SPOOL_DAYS);
    if (run->about.output_dir[0])
        files = "; the files of its --output are in ";
    else if (ring && !lives && !err.code)
        files = "; use fiber run --output DIR to keep it permanently";
    return cli_failed(1, "run %.16s%s its output is not kept%s%s%s%s%.*s", run->about.uid,
                      lives ? ":" : " has ended, and", why, files, run->about.output_dir, report,
                      shown, run->report);
}

static int run_logs(const struct cli_args *args)
{
    const char *backend = args->values[LOGS_BACKEND].text, *rank = NULL;
    struct fbr_error err = {0, ""};
    struct fbr_spool_run kept;
    struct run_client run;
    struct logs_wish wish;
    struct orphan_run e;
    char root[PATH_MAX], name[128];
    int code;

    if (!args->noperands && name_last(name, sizeof(name), &err) < 0)
        return cli_failed(1, "%s", err.text);
    if (args->noperands && run_client_split(args->operands[0], name, sizeof(name), &rank) < 0)
        return cli_failed(1, "there is no run with such a long name");
    if (args->noperands > 1)
        rank = args->operands[1];
    if (get_wish(&wish, args, &err) < 0)
        return cli_failed(2, "%s", err.text);
    if (!backend && logs_root(root) && find_kept(name, root, &run, &kept))
        return show_kept(&run, &kept, root, rank, &wish);
    code = orphan_run_find(name, backend, &run, &e, &err);
    /* an engine that does not answer is not needed for what is kept */
    if (code < 0 && code != -EEXIST && backend && logs_root(root) &&
        fbr_spool_find(&kept, root, name, backend) >= 0) {
        run = without_registry(&kept);
        return show_kept(&run, &kept, root, rank, &wish);
    }
    if (code < 0)
        return cli_failed(1, "%s", err.text);
    if (code == 0) {
        if (logs_root(root) && fbr_spool_look(&kept, root, run.about.uid))
            return show_kept(&run, &kept, root, rank, &wish);
        code = refuse_unkept(&run);
        run_client_free(&run);
        return code;
    }
    code = show_orphan_run(&e, rank, args);
    orphan_run_free(&e);
    return code;
}

static const struct cli_option options[LOGS_OPTIONS] = {
    [LOGS_FOLLOW] = {"follow", 'f', CLI_FLAG, .help = "continues until the run ends"},
    [LOGS_TAIL] = {"tail", 'n', CLI_INT, "N",
                   .help = "only the last N lines, and with -f all later ones"},
    [LOGS_SINCE] = {"since", 0, CLI_TEXT, "TIME",
                    .help = "only lines printed since then: 10m, 2h, 14:30, 2026-11-23T14:30"},
    [LOGS_GREP] = {"grep", 'g', CLI_TEXT, "RE",
                   .help = "only lines that match the extended regular expression"},
    [LOGS_TIMESTAMP] = {"timestamp", 't', CLI_FLAG, .help = "puts the time in front of each line",
                        .also = "timestamps"},
    [LOGS_TAG] = {"tag", 'l', CLI_FLAG,
                  .help = "puts the rank, or the job's name, in front of each line; the default "
                          "with several ranks"},
    [LOGS_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_names,
                      .help = "only a run of this backend; no other engine is queried"},
};

const struct cli_command cli_logs = {
    .name = "logs",
    .operands = "[RUN[/RANK] [RANK|JOB]]",
    .kind = CLI_RUN,
    .about = "Shows the output of a run: of its ranks, workers or processes",
    .text =
        "Shows all the kept output, in the order of time, and returns; with --follow it continues "
        "until the run ends. The last 16 MiB of each rank are kept (the setting log_keep) in "
        "~/.local/state/fiber/logs (log_dir), also after the run has ended: for 14 days, for the "
        "last 200 runs, and at most 1 GiB in total (log_total). If RANK is given, its output is "
        "written into a file or a pipe byte for byte; otherwise only the last state of a progress "
        "bar is shown. RANK of a pool or a program is a worker or a process, numbered as in `fiber "
        "top`. Without RUN it shows the run that goes on, if there is only one; if none goes on, "
        "the run that ended last.\n\n"
        "If a run is not of this host, or its launcher is dead, the configured engines are "
        "searched for its id; logs shows the output of its jobs, or of the job with that name, and "
        "with --follow their later output. --tail, --since, --grep and --timestamp apply to kept "
        "output only.",
    .examples = "fiber logs train\tthe output of all ranks\n"
                "fiber logs train/3\trank 3\n"
                "fiber logs -f\tthe only run that goes on, or the last one\n"
                "fiber logs -f train --tail 20\tthe last lines, and all later ones\n"
                "fiber logs train --since 10m --grep loss -t\tlines of the last ten minutes that "
                "have loss\n"
                "fiber logs -b docker 3fa9 worker-2\tone job of a run that only the engine knows",
    .options = options,
    .count = LOGS_OPTIONS,
    .most = 2,
    .run = run_logs,
};
