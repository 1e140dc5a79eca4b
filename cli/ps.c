/* ps.c - `fiber ps`: the runs of this user on this host and, if requested, the runs whose jobs the
 * engines have.
 *
 * The former are found in the registry, and report their own state; of the latter only the labels
 * of their jobs are known.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "cli/logs_kept.h"
#include "cli/run_client.h"
#include "cli/orphans.h"
#include "cli/option.h"
#include "cli/screen.h"
#include "runtime/base/clock.h"

enum { PS_ALL, PS_BACKEND, PS_BACKENDS, PS_JSON, PS_OPTIONS };

static const char *state_of(const struct run_client *run, char out[48])
{
    switch (run->state) {
    case CLIENT_SILENT:
        return "no answer";
    case CLIENT_LOST:
        return "lost";
    case CLIENT_ENDED:
        snprintf(out, 48, "exit %d", run->code);
        return out;
    default:
        if (run->facts.waiting[0])
            return "waiting";
        return run->facts.running || (run->about.kind == FBR_RUN_PROGRAM && !run->facts.agents)
                   ? "running"
                   : "starting";
    }
}

static void put_json(struct fbr_json *j, const struct run_client *run)
{
    char state[48];

    fbr_json_object(j);
    fbr_json_str(j, "uid", run->about.uid);
    fbr_json_str(j, "name", run->about.name);
    fbr_json_str(j, "command", run->about.command);
    fbr_json_str(j, "backend", run->about.backend);
    fbr_json_str(j, "state", run->state == CLIENT_ENDED ? "ended" : state_of(run, state));
    if (run->state == CLIENT_ENDED)
        fbr_json_int(j, "code", run->code);
    else
        fbr_json_str(j, "code", NULL);
    fbr_json_int(j, "pid", run->about.pid);
    fbr_json_str(j, "kind", run_client_words(&run->about)->kind);
    fbr_json_int(j, "size", run_client_size(run));
    fbr_json_int(j, "agents", run->facts.agents);
    fbr_json_int(j, "running", run->facts.running);
    fbr_json_int(j, "ended", run->facts.ended);
    fbr_json_int(j, "restarts", run->facts.restarts);
    fbr_json_int(j, "started_ms", run->about.started_ms);
    if (run->facts.ended_ms)
        fbr_json_int(j, "ended_ms", run->facts.ended_ms);
    else
        fbr_json_str(j, "ended_ms", NULL);
    fbr_json_str(j, "waiting", run->facts.waiting);
    fbr_json_str(j, "doing", run->facts.doing);
    fbr_json_str(j, "output", run->about.output_dir);
    if (run->state >= CLIENT_ENDED)
        fbr_json_str(j, "report", run->report);
    fbr_json_end_object(j);
}

/* A row of the table. `ended` NULL: a list of running runs has no such column. On a terminal rows
 * are cut to its width. */
struct row {
    const char *uid, *name, *kind, *backend, *state, *ranks, *restarts, *time, *ended, *command;
};

static void print_row(const struct row *r)
{
    int width = cli_width(STDOUT_FILENO), name = cli_column(r->name, 16), size, n;
    char line[1024], ended[32] = "";

    if (r->ended)
        snprintf(ended, sizeof(ended), "%12s ", r->ended);
    size = (int)sizeof(line);
    n = snprintf(line, sizeof(line), "%-9.8s %-*.*s %-7s %-10.10s %-9s %9s %8s %9s %s %s", r->uid,
                 name, name, r->name, r->kind, r->backend, r->state, r->ranks, r->restarts, r->time,
                 ended, r->command);
    if (n >= size)
        n = size - 1;
    if (isatty(STDOUT_FILENO) && n > cli_column(line, width))
        strcpy(line + cli_column(line, width - 3), "...");
    puts(line);
}

/* Writes how long the run has lasted, and when it ended. */
static void put_times(const struct run_client *run, char took[32], char ended[40])
{
    int64_t now = fbr_wall_ms(), end = run->facts.ended_ms;
    char ago[32];

    snprintf(took, 32, "-");
    snprintf(ended, 40, "-");
    if (run->state <= CLIENT_SILENT)
        run_client_age(took, now - run->about.started_ms);
    if (run->state <= CLIENT_SILENT || !end)
        return;
    run_client_age(took, end - run->about.started_ms);
    run_client_age(ago, now - end);
    snprintf(ended, 40, "%s ago", ago);
}

static void print_run(const struct run_client *run, bool all)
{
    char state[48], ranks[48], restarts[16], took[32], ended[40];

    put_times(run, took, ended);
    if (run->state == CLIENT_SILENT)
        snprintf(ranks, sizeof(ranks), "?/%d", run_client_size(run));
    else if (run->state == CLIENT_RUNNING)
        snprintf(ranks, sizeof(ranks), "%d/%d", run->facts.running, run_client_size(run));
    else
        snprintf(ranks, sizeof(ranks), "%d", run_client_size(run));
    snprintf(restarts, sizeof(restarts), "%d", run->facts.restarts);
    print_row(&(struct row){run->about.uid, run->about.name, run_client_words(&run->about)->kind,
                            run->about.backend, state_of(run, state), ranks, restarts, took,
                            all ? ended : NULL, run->about.command});
}

/* ---- Runs that the engines know ---- */

struct group {
    const struct orphan *first;
    int running, total;
    int64_t since_ms;
    enum orphan_verdict verdict;
    char about[160];
};

static void make_group(struct group *g, const struct orphan *jobs, size_t count)
{
    char master[40];

    *g = (struct group){.first = jobs, .verdict = jobs->verdict};
    orphan_master(jobs, master);
    for (size_t i = 0; i < count; i++) {
        bool is_job = orphan_run_wants(&jobs[i], NULL);

        g->total += is_job;
        g->running += is_job && jobs[i].runs;
        if (jobs[i].since_ms && (!g->since_ms || jobs[i].since_ms < g->since_ms))
            g->since_ms = jobs[i].since_ms;
        if (jobs[i].verdict == ORPHAN_DEAD)
            g->verdict = ORPHAN_DEAD;
    }
    snprintf(g->about, sizeof(g->about), "%d job%s; master %s%s", g->total,
             g->total == 1 ? "" : "s", master[0] ? master : "unknown",
             g->verdict == ORPHAN_DEAD ? " is gone: use fiber gc to remove what is left" : "");
}

static const char *group_state(const struct group *g)
{
    static const char *const states[] = {
        [ORPHAN_LIVES] = "running", [ORPHAN_DEAD] = "lost", [ORPHAN_UNKNOWN] = "elsewhere"};

    return states[g->verdict];
}

static void put_group(struct fbr_json *j, const struct group *g)
{
    fbr_json_object(j);
    fbr_json_str(j, "uid", g->first->run);
    fbr_json_str(j, "name", "");
    fbr_json_str(j, "command", "");
    fbr_json_str(j, "backend", g->first->backend);
    fbr_json_str(j, "state", group_state(g));
    fbr_json_str(j, "code", NULL);
    fbr_json_int(j, "pid", orphan_pid(g->first));
    fbr_json_int(j, "jobs", g->total);
    fbr_json_int(j, "running", g->running);
    fbr_json_int(j, "started_ms", g->since_ms);
    fbr_json_str(j, "waiting", "");
    fbr_json_str(j, "report", g->about);
    fbr_json_end_object(j);
}

static void print_group(const struct group *g, bool all)
{
    char age[32] = "-", jobs[48];

    if (g->since_ms)
        run_client_age(age, fbr_wall_ms() - g->since_ms);
    snprintf(jobs, sizeof(jobs), "%d/%d", g->running, g->total);
    print_row(&(struct row){g->first->run, "-", "-", g->first->backend, group_state(g), jobs, "-",
                            age, all ? "-" : NULL, g->about});
}

/* ---- All of it ---- */

struct ps {
    const char *only;
    bool engines, all, is_json;
    struct run_client *runs;
    size_t count;
    struct fbr_json json;
};

static bool is_listed(const struct ps *p, const struct orphan *job)
{
    for (size_t i = 0; i < p->count && job->verdict == ORPHAN_LIVES; i++)
        if (p->runs[i].state <= CLIENT_SILENT && p->runs[i].about.pid == orphan_pid(job) &&
            !strcmp(p->runs[i].about.backend, job->backend))
            return true;
    return false;
}

static int show_engine(struct ps *p, const char *name)
{
    struct fbr_error err = {0, ""};
    struct orphans l;
    struct cli_backend b;
    int rc = orphans_ask(&l, &b, name, p->only, &err);

    if (rc <= 0)
        return rc == 0 || rc == -ENOTSUP ? 0 : cli_failed(1, "%s", err.text);
    for (size_t i = 0, n; i < l.count; i += n) {
        struct group g;

        n = orphans_same_run(&l, i);
        make_group(&g, &l.jobs[i], n);
        if (is_listed(p, &l.jobs[i]))
            continue;
        if (p->is_json)
            put_group(&p->json, &g);
        else
            print_group(&g, p->all);
    }
    orphans_free(&l);
    cli_backend_close(&b);
    return 0;
}

static bool has_list(const char *backend)
{
    const struct fbr_backend_ops *ops = fbr_backend_find(backend, NULL);

    return !ops || ops->housekeeping; /* a missing backend is reported when it is queried */
}

static int show_engines(struct ps *p)
{
    const char *name;
    int code = 0;

    for (size_t i = 0; p->engines && (name = orphans_backend(p->only, i)); i++)
        if (has_list(name) && show_engine(p, name))
            code = 1;
    return code;
}

static int show_json(struct ps *p)
{
    int code;

    fbr_json_array(&p->json, NULL);
    for (size_t i = 0; i < p->count; i++)
        if (!p->only || !strcmp(p->only, p->runs[i].about.backend))
            put_json(&p->json, &p->runs[i]);
    code = show_engines(p);
    fbr_json_end_array(&p->json);
    return cli_print_json(stdout, &p->json) ? 1 : code;
}

static int show_rows(struct ps *p)
{
    print_row(&(struct row){"RUN", "NAME", "KIND", "BACKEND", "STATE", "RANKS", "RESTARTS", "TIME",
                            p->all ? "ENDED" : NULL, "COMMAND"});
    for (size_t i = 0; i < p->count; i++)
        if (!p->only || !strcmp(p->only, p->runs[i].about.backend))
            print_run(&p->runs[i], p->all);
    cli_flush(); /* an engine may take long to answer */
    return show_engines(p);
}

static int run_ps(const struct cli_args *args)
{
    struct ps p = {.only = args->values[PS_BACKEND].text,
                   .is_json = args->values[PS_JSON].number > 0};
    struct fbr_error err = {0, ""};
    char root[PATH_MAX];
    int code;

    p.all = args->values[PS_ALL].number > 0;
    p.engines = p.only || args->values[PS_BACKENDS].number > 0;
    if (run_client_list(&p.runs, &p.count, p.all, p.all && logs_root(root) ? root : NULL, &err) < 0)
        return cli_failed(1, "%s", err.text);
    code = p.is_json ? show_json(&p) : show_rows(&p);
    run_client_list_free(p.runs, p.count);
    return code;
}

static const struct cli_option options[PS_OPTIONS] = {
    [PS_ALL] = {"all", 'a', CLI_FLAG, .help = "also lists the last runs that have ended"},
    [PS_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_names,
                    .help = "only runs of this backend, also those that only its engine knows: "
                            "runs whose master is elsewhere or gone"},
    [PS_BACKENDS] = {"all-backends", 'A', CLI_FLAG,
                     .help = "also queries every configured engine, which takes time"},
    [PS_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON array"},
};

const struct cli_command cli_ps = {
    .name = "ps",
    .operands = "",
    .about = "Lists your runs on this host, and those on engines",
    .text =
        "A run is a ring, a pool, or the processes and managers that a program has started by "
        "themselves (KIND is program). Pools and programs are shown when they have lived for half "
        "a second.\n\n"
        "RANKS is the number of running ranks, and of all ranks; for a pool, of workers; for a "
        "program, of running processes, and of all that it has started. TIME is how long the run "
        "has taken so far, or took. In cp, exec, kill, logs, scale, stack and top a run is named "
        "by its id, the beginning of its id, or its name; of the runs of one program, its name "
        "means the pool or the ring. The list of ended runs goes when you log out, except for "
        "those whose output is kept (see `fiber logs --help`).\n\n"
        "Some words of STATE: no answer means that the launcher lives, but has not answered for "
        "two seconds; it is stopped, or the machine is very busy. lost means that the launcher was "
        "killed, so how the run ended is unknown. For a run that only an engine knows, the number "
        "of its jobs is shown; lost then means that its master is gone, elsewhere that its master "
        "is not on this host.",
    .examples = "fiber ps\tthe runs that go on\n"
                "fiber ps -a\talso ended runs: how, when, and how long they took\n"
                "fiber ps -b docker\truns on the Docker engine, also lost ones\n"
                "fiber ps --json\tfor programs",
    .options = options,
    .count = PS_OPTIONS,
    .run = run_ps,
};
