/* gc.c - `fiber gc`: removes what dead runs have left, here and on the engines.
 *
 * Runs end their own jobs, and jobs end when their master is gone. Jobs are left only if both ways
 * were cut, for instance by a power failure, or by an engine that was stopped.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run_client.h"
#include "cli/orphans.h"
#include "cli/option.h"
#include "cli/screen.h"
#include "runtime/base/clock.h"
#include "runtime/proc/context.h"
#include "runtime/proc/rundir.h"
#include "runtime/inspect/spool_dir.h"

enum { GC_BACKEND, GC_ALL, GC_IMAGES, GC_DRY_RUN, GC_JSON, GC_OPTIONS };

#define DAY_MS (24 * 3600 * 1000LL)

struct gc {
    const char *only, *run; /* a backend; the beginning of a run's uid; NULL: all */
    const char *sweeping;   /* the backend that is being cleaned; this host is "local" */
    bool all, dry, is_json;
    int64_t images_ms; /* images that no run has used for this long are removed */
    struct fbr_json json;
    unsigned removed, kept, failed;
};

static bool is_asked_for(const struct gc *g, const struct orphan *j)
{
    return !g->run || !strncmp(j->run, g->run, strlen(g->run));
}

static bool is_to_go(const struct gc *g, const struct orphan *j)
{
    return j->verdict == ORPHAN_DEAD || (j->verdict == ORPHAN_UNKNOWN && g->all);
}

static void report_job(struct gc *g, const struct orphan *j, const char *done, const char *why)
{
    char command[400], master[40];

    orphan_command(j, fbr_rt_any()->config, command, sizeof(command));
    orphan_master(j, master);
    if (g->is_json) {
        fbr_json_object(&g->json);
        fbr_json_str(&g->json, "backend", j->backend);
        fbr_json_str(&g->json, "kind", "job");
        fbr_json_str(&g->json, "id", j->id);
        fbr_json_str(&g->json, "run", j->run);
        fbr_json_str(&g->json, "job", j->name);
        fbr_json_str(&g->json, "master", master);
        fbr_json_int(&g->json, "since_ms", j->since_ms);
        fbr_json_str(&g->json, "action", done);
        fbr_json_str(&g->json, "why", why);
        fbr_json_str(&g->json, "command", command);
        fbr_json_end_object(&g->json);
        return;
    }
    printf("%-12s %s job %.24s of run %.8s: %s%s%s%s\n", done, j->backend,
           j->name[0] ? j->name : j->id, j->run, why, master[0] ? " (" : "", master,
           master[0] ? ")" : "");
    if (!strcmp(done, "kept"))
        printf("%13s-> fiber gc --all %.8s, or %s\n", "", j->run, command);
}

static void on_swept(void *user, const struct fbr_swept *e)
{
    static const char *const done[] = {"would remove", "removed", "kept", "failed"};
    char age[32], size[32];
    struct gc *g = user;

    g->removed += e->action <= FBR_SWEPT_REMOVED;
    g->kept += e->action == FBR_SWEPT_KEPT;
    g->failed += e->action == FBR_SWEPT_FAILED;
    if (g->is_json) {
        fbr_json_object(&g->json);
        fbr_json_str(&g->json, "backend", g->sweeping);
        fbr_json_str(&g->json, "kind", e->kind);
        fbr_json_str(&g->json, "id", e->id);
        fbr_json_int(&g->json, "since_ms", e->since_ms);
        fbr_json_int(&g->json, "bytes", e->bytes);
        fbr_json_str(&g->json, "action", done[e->action]);
        fbr_json_str(&g->json, "why", e->why);
        fbr_json_end_object(&g->json);
        return;
    }
    printf("%-12s %s %s %s: %s", done[e->action], g->sweeping, e->kind, e->id, e->why);
    run_client_age(age, fbr_wall_ms() - e->since_ms);
    run_client_bytes(size, (uint64_t)e->bytes);
    if (e->bytes > 0)
        printf(" (%s%s%s)", size, e->since_ms ? ", unused for " : "", e->since_ms ? age : "");
    putchar('\n');
}

/* ---- This host ---- */

/* Reports something of this host that is left; returns whether it is to be removed. */
static bool report(struct gc *g, const char *kind, const char *what, const char *why)
{
    on_swept(g, &(struct fbr_swept){.kind = kind,
                                    .id = what,
                                    .action = g->dry ? FBR_SWEPT_WOULD : FBR_SWEPT_REMOVED,
                                    .why = why});
    return !g->dry;
}

static bool on_directory(void *user, const char *root)
{
    return report(user, "directory", root, "its run has ended");
}

static bool on_logs(void *user, const char *dir)
{
    return report(user, "logs", dir, "more than the limit of log_total, 200 runs or 14 days");
}

static void sweep_host(struct gc *g)
{
    const struct fbr_config *c = fbr_rt_any()->config;
    char logs[PATH_MAX];

    fbr_rundir_sweep(fbr_config_str(c, "run_dir"), on_directory, g);
    if (fbr_spool_root(logs, c, NULL) == 0)
        fbr_spool_prune(logs, fbr_config_size(c, "log_total"), on_logs, g);
}

/* ---- Engines ---- */

static void remove_job(struct gc *g, struct cli_backend *b, const struct orphan *j)
{
    const struct cli_ask remove = {.op = BACKEND_REMOVE, .id = j->id};
    struct fbr_error err = {0, ""};

    if (g->dry) {
        g->removed++;
        report_job(g, j, "would remove", j->why);
    } else if (cli_backend_ask(b, &remove, &err) == 0) {
        g->removed++;
        report_job(g, j, "removed", j->why);
    } else {
        g->failed++;
        report_job(g, j, "failed", err.text);
    }
}

static void sweep_jobs(struct gc *g, struct cli_backend *b, const struct orphans *l)
{
    unsigned unknown = 0;

    for (size_t i = 0; i < l->count; i++)
        unknown += l->jobs[i].verdict == ORPHAN_UNKNOWN && is_asked_for(g, &l->jobs[i]);
    if (unknown && g->all && !g->dry)
        fprintf(stderr,
                "fiber: %s: --all also removes %u job%s of runs whose state is unknown here\n",
                b->ops->name, unknown, unknown == 1 ? "" : "s");
    for (size_t i = 0; i < l->count; i++) {
        if (!is_asked_for(g, &l->jobs[i]))
            continue;
        if (is_to_go(g, &l->jobs[i])) {
            remove_job(g, b, &l->jobs[i]);
        } else if (l->jobs[i].verdict == ORPHAN_UNKNOWN) {
            g->kept++;
            report_job(g, &l->jobs[i], "kept", l->jobs[i].why);
        }
    }
}

static int sweep_backend(struct gc *g, const char *name, struct fbr_error *err)
{
    const struct cli_ask sweep = {.op = BACKEND_SWEEP,
                                  .before_ms = fbr_wall_ms() - g->images_ms,
                                  .dry = g->dry,
                                  .swept = on_swept,
                                  .user = g};
    struct orphans l;
    struct cli_backend b;
    int rc = orphans_ask(&l, &b, name, g->only, err);

    if (rc <= 0)
        return rc;
    sweep_jobs(g, &b, &l);
    g->sweeping = b.ops->name;
    rc = g->run ? 0 /* images belong to no run */ : cli_backend_ask(&b, &sweep, err);
    orphans_free(&l);
    cli_backend_close(&b);
    return rc;
}

/* Only one run may be meant: jobs that are removed by mistake do not come back. */
static int check_run(const struct gc *g, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    struct orphan_run e;
    int rc;

    if (!g->run)
        return 0;
    if (!orphan_run_is_id(g->run))
        return fbr_fail(err, -EINVAL,
                        "'%.40s' is not the beginning of a run's id: it takes 2 to 32 hexadecimal "
                        "digits, see `fiber ps --all-backends`",
                        g->run);
    rc = orphan_run_ask(&e, g->run, NULL, g->only, &why);
    orphan_run_free(&e);
    /* an engine that does not answer is reported when it is cleaned */
    return rc == -EEXIST ? fbr_fail(err, rc, "%s", why.text) : 0;
}

static int sweep_all(struct gc *g)
{
    struct fbr_error err = {0, ""};
    const char *name;
    int code = 0;

    if (check_run(g, &err) < 0)
        return cli_failed(2, "%s", err.text);
    if (!g->run && (!g->only || !strcmp(g->only, FBR_BACKEND_LOCAL)))
        sweep_host(g);
    for (size_t i = 0; (name = orphans_backend(g->only, i)); i++)
        if (strcmp(name, FBR_BACKEND_LOCAL) != 0 && sweep_backend(g, name, &err) < 0)
            code = cli_failed(1, "%s", err.text);
    return code;
}

static int run_gc(const struct cli_args *args)
{
    struct gc g = {.only = args->values[GC_BACKEND].text,
                   .sweeping = FBR_BACKEND_LOCAL,
                   .run = args->operands[0],
                   .all = args->values[GC_ALL].number > 0,
                   .dry = args->values[GC_DRY_RUN].number > 0,
                   .images_ms =
                       args->values[GC_IMAGES].text ? args->values[GC_IMAGES].number : 7 * DAY_MS,
                   .is_json = args->values[GC_JSON].number > 0};
    int code;

    fbr_json_array(&g.json, NULL);
    code = sweep_all(&g);
    fbr_json_end_array(&g.json);
    if (g.is_json && cli_print_json(stdout, &g.json))
        code = 1;
    else if (!g.is_json && !g.removed && !g.kept && !g.failed && !code)
        puts("nothing to remove");
    fbr_buf_fini(&g.json.text);
    return g.failed ? 1 : code;
}

static const struct cli_option options[GC_OPTIONS] = {
    [GC_BACKEND] = {"backend", 'b', CLI_WORD, "B", .words = fbr_backend_names,
                    .help = "only this backend; an error if it does not answer"},
    [GC_ALL] = {"all", 'a', CLI_FLAG,
                .help = "also jobs of runs whose state is unknown here. Your runs that still go on "
                        "elsewhere lose their jobs"},
    [GC_IMAGES] = {"images", 0, CLI_MS, "AGE", .max = 3650 * DAY_MS,
                   .help = "removes images of Fiber that no run has used for this time, such as "
                           "12h or 0; default 168h, a week"},
    [GC_DRY_RUN] = {"dry-run", 'n', CLI_FLAG, .help = "only prints what would be removed"},
    [GC_JSON] = {"json", 0, CLI_FLAG, .help = "as a JSON array"},
};

const struct cli_command cli_gc = {
    .name = "gc",
    .operands = "[RUN]",
    .about = "Removes what dead runs left on this host and on the engines",
    .text =
        "Runs clean up after themselves, and jobs end when their master is gone. This command "
        "removes what remains nevertheless, for example after a power failure: directories on this "
        "host, and your jobs on every configured engine.\n\n"
        "A job is removed when its run has certainly ended: its master was a process of this host "
        "that no longer exists. A job whose master is elsewhere is kept and shown, with the "
        "command that removes it. With RUN, the beginning of a run's id, only that run is cleaned "
        "up.\n\n"
        "On Docker the images that Fiber made of programs (fiber-auto:ID) are removed, too, if no "
        "container, running or ended, uses them and no run has used them for the time of --images; "
        "they are made again when needed. Images with other names are never removed.",
    .examples = "fiber gc --dry-run\tshow what would be removed\n"
                "fiber gc\tremove what dead runs left\n"
                "fiber gc --all 3fa9\tremove that run's jobs, even if its state is unknown",
    .exit = "0\tdone\n"
            "1\tan engine did not answer, or something could not be removed\n"
            "2\tthe options are wrong, or RUN is not clear",
    .options = options,
    .count = GC_OPTIONS,
    .most = 1,
    .run = run_gc,
};
