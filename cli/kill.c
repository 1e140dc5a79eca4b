/* kill.c - `fiber kill`: ends a run, or sends its ranks a signal.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <strings.h>

#include "cli/orphans.h"
#include "cli/option.h"
#include "runtime/base/config_value.h"

enum {
    KILL_SIGNAL,
    KILL_BACKEND,
    KILL_KILL, /* from here on: the options of `kill -9` and the like */
    KILL_TERM,
    KILL_INT,
    KILL_USR1,
    KILL_USR2,
    KILL_OPTIONS
};

/* Parses "USR1", "SIGUSR1" or "10"; -EINVAL. */
static int signal_named(const char *text)
{
    int64_t v;

    if (!strncasecmp(text, "SIG", 3))
        text += 3;
    if (fbr_number(text, 1, NSIG - 1, &v))
        return (int)v;
    for (int i = 1; i < NSIG; i++)
        if (sigabbrev_np(i) && !strcasecmp(sigabbrev_np(i), text))
            return i;
    return -EINVAL;
}

/* ---- A run that only the engines know ---- */

/* Removes the jobs of that name; NULL: all. Returns how many are gone, or an error with the first
 * job that is not. */
static int remove_jobs(struct orphan_run *e, const char *name, struct fbr_error *err)
{
    int removed = 0, failed = 0;

    for (size_t i = 0; i < e->count; i++)
        for (size_t k = 0; k < e->at[i].count; k++) {
            const struct orphan *j = &e->at[i].jobs[k];
            const struct cli_ask remove = {.op = BACKEND_REMOVE, .id = j->id};
            struct fbr_error why = {0, ""};

            if (name && !orphan_run_wants(j, name))
                continue;
            if (cli_backend_ask(&e->at[i].backend, &remove, &why) == 0)
                removed += j->name[0] != '\0';
            else if (!failed++)
                fbr_fail(err, why.code, "run %.12s: %s: %s; try %s", e->uid, j->backend, why.text,
                         "fiber gc --all");
        }
    return failed ? err->code : removed;
}

static int kill_on_engines(struct orphan_run *e, const char *name, const char *sig,
                           struct fbr_error *err)
{
    const struct orphan *first = e->at[0].jobs;
    char master[40];
    int n;

    orphan_master(first, master);
    if (sig)
        return fbr_fail(err, -ENOTSUP,
                        "run %.12s: only its master, %s, can forward a signal, and the master "
                        "cannot be reached from here; use fiber kill without --signal to remove "
                        "its jobs",
                        e->uid, master[0] ? master : "which is unknown");
    if (name && orphan_run_wanted(e, name, err) < 0)
        return err->code;
    if (first->verdict == ORPHAN_LIVES && !name) { /* it has no control socket here */
        if (kill((pid_t)orphan_pid(first), SIGTERM) == 0)
            return 0;
        return fbr_fail(err, -errno, "run %.12s: its master, process %ld: %s", e->uid,
                        orphan_pid(first), strerror(errno));
    }
    n = remove_jobs(e, name, err);
    if (n < 0)
        return n;
    if (n)
        fprintf(stderr, "fiber: run %.12s: %d job%s removed", e->uid, n, n == 1 ? "" : "s");
    else /* it had only objects that own jobs */
        fprintf(stderr, "fiber: run %.12s: it had no jobs; what was left of it is removed", e->uid);
    if (first->verdict != ORPHAN_DEAD)
        fprintf(stderr, "; its master, %s, %s, and may start others: end it there",
                master[0] ? master : "which is unknown",
                first->verdict == ORPHAN_LIVES ? "still runs" : "is not on this host");
    fputc('\n', stderr);
    return 0;
}

/* ---- A run of this host ---- */

/* Returns the signal, given by --signal or as in kill(1). NULL: none. */
static const char *wanted_signal(const struct cli_args *args)
{
    for (int i = KILL_KILL; i < KILL_OPTIONS; i++)
        if (args->values[i].number)
            return args->command->options[i].name;
    return args->values[KILL_SIGNAL].text;
}

static int kill_here(struct run_client *run, const char *job, const char *name, int sig,
                     struct fbr_error *err)
{
    int rank = job ? run_client_job(job, run, err) : -1, rc;

    if (err->code)
        return err->code;
    if (run->state >= CLIENT_ENDED)
        return fbr_fail(err, -ESRCH, "run %.16s has ended already", run->about.uid);
    if (!name && rank < 0)
        rc = run_client_ask(run, FBR_RUN_CONTROL_STOP, -1, 0, err);
    else
        rc = run_client_ask(run, FBR_RUN_CONTROL_SIGNAL, rank, sig, err);
    /* it ended before it could answer */
    if (rc == -ECONNRESET && !name && rank < 0)
        return 0;
    if (rc == -ESRCH && rank >= 0)
        fbr_fail(err, rc, "%s %d does not run: `fiber top %.12s` shows those that do",
                 run_client_words(&run->about)->one, rank, run->about.uid);
    return rc;
}

static int run_kill(const struct cli_args *args)
{
    const char *name = wanted_signal(args), *job = NULL;
    int sig = name ? signal_named(name) : SIGTERM, rc;
    struct fbr_error err = {0, ""};
    struct run_client run;
    struct orphan_run e;
    char typed[128];

    if (sig < 0) {
        fbr_fail(&err, -EINVAL, "--signal: there is no signal %.32s", name);
        return cli_usage(args->command, &err);
    }
    if (run_client_split(args->operands[0], typed, sizeof(typed), &job) < 0)
        return cli_failed(1, "there is no run with such a long name");
    if (args->noperands > 1)
        job = args->operands[1];
    rc = orphan_run_find(typed, args->values[KILL_BACKEND].text, &run, &e, &err);
    if (rc < 0)
        return cli_failed(1, "%s", err.text);
    if (rc > 0) {
        rc = kill_on_engines(&e, job, name, &err);
        orphan_run_free(&e);
        return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
    }
    rc = kill_here(&run, job, name, sig, &err);
    run_client_free(&run);
    return rc < 0 ? cli_failed(1, "%s", err.text) : 0;
}

static const struct cli_option options[KILL_OPTIONS] = {
    [KILL_SIGNAL] = {"signal", 's', CLI_TEXT, "S",
                     .help = "only sends this signal, such as USR1 or KILL"},
    [KILL_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_names,
                      .help = "only a run of this backend; no other engine is queried"},
    [KILL_KILL] = {"KILL", 0, CLI_FLAG, .also = "9 SIGKILL", .hidden = true},
    [KILL_TERM] = {"TERM", 0, CLI_FLAG, .also = "15 SIGTERM", .hidden = true},
    [KILL_INT] = {"INT", 0, CLI_FLAG, .also = "2 SIGINT", .hidden = true},
    [KILL_USR1] = {"USR1", 0, CLI_FLAG, .also = "10 SIGUSR1", .hidden = true},
    [KILL_USR2] = {"USR2", 0, CLI_FLAG, .also = "12 SIGUSR2", .hidden = true},
};

const struct cli_command cli_kill = {
    .name = "kill",
    .operands = "RUN[/RANK] [RANK|JOB]",
    .kind = CLI_RUN,
    .about = "Ends a run, or sends its ranks a signal",
    .text =
        "Without --signal and RANK the run is stopped as by Ctrl-C: its ranks get SIGTERM, and "
        "SIGKILL after the grace period (the setting grace). With RANK alone that rank gets "
        "SIGTERM, and --on-failure of the run decides what follows.\n\n"
        "For a pool or a program, the program gets SIGTERM. RANK is the number of a worker, which "
        "is killed and replaced, or of a process, which gets the signal.\n\n"
        "If a run is not of this host, or its launcher is dead, the configured engines are "
        "searched for its id: its jobs are removed, or only the job with that name. A master "
        "on another host may start new ones.",
    .examples = "fiber kill train\tstop the run with that name\n"
                "fiber kill 3fa9 --signal KILL\tkill its ranks at once\n"
                "fiber kill train/3 -s USR1\ta signal to rank 3\n"
                "fiber kill -b docker 3fa9 worker-2\tone job of a run that only the engine knows",
    .options = options,
    .count = KILL_OPTIONS,
    .least = 1,
    .most = 2,
    .run = run_kill,
};
