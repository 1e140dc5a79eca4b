/* orphans.c - finds jobs and runs that only the engines know.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/orphans.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/master_id.h"
#include "runtime/base/printable.h"
#include "runtime/program/spawn.h"

/* ---- Queries ---- */

const char *orphans_backend(const char *only, size_t at)
{
    if (only)
        return at == 0 ? only : NULL;
    for (size_t i = 0; fbr_backends[i]; i++)
        if (fbr_backends[i]->about && fbr_backends[i]->about->leaves_jobs && !at--)
            return fbr_backends[i]->name;
    return NULL;
}

/* Copies a text that somebody else may have written: labels and annotations are free text. */
static char *copy_plain(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);

    if (copy)
        fbr_printable_plain(copy, size, text);
    return copy;
}

void orphans_add(void *list, const struct fbr_orphan *job)
{
    struct orphans *l = list;
    struct orphan *j = fbr_grow(&l->jobs, l->count, sizeof(*j));

    if (!j) {
        l->failed = true;
        return;
    }
    *j = (struct orphan){.backend = l->backend,
                         .run = copy_plain(job->run),
                         .id = strdup(job->id),
                         .name = copy_plain(job->name),
                         .master = copy_plain(job->master),
                         .fiber = job->fiber ? copy_plain(job->fiber) : NULL,
                         .since_ms = job->since_ms,
                         .runs = job->runs,
                         .verdict = ORPHAN_UNKNOWN,
                         .why = ""};
    l->count++;
    if (!j->run || !j->id || !j->name || !j->master || (job->fiber && !j->fiber))
        l->failed = true;
}

void orphans_free(struct orphans *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->jobs[i].run);
        free(l->jobs[i].id);
        free(l->jobs[i].name);
        free(l->jobs[i].master);
        free(l->jobs[i].fiber);
    }
    free(l->jobs);
    memset(l, 0, sizeof(*l));
}

/* ---- Verdicts ---- */

static void judge(struct orphan *j)
{
    switch (fbr_master_id_state(j->master)) {
    case FBR_MASTER_ID_ALIVE:
        j->verdict = ORPHAN_LIVES;
        j->why = "its master runs";
        break;
    case FBR_MASTER_ID_DEAD:
        j->verdict = ORPHAN_DEAD;
        j->why = "its master is gone";
        break;
    default:
        j->verdict = ORPHAN_UNKNOWN;
        j->why = j->master[0] ? "its master is not on this host" : "its master is unknown";
    }
}

static int by_run(const void *a, const void *b)
{
    const struct orphan *x = a, *y = b;
    int order = strcmp(x->run, y->run);

    if (!order)
        order = (x->verdict > y->verdict) - (x->verdict < y->verdict);
    return order ? order : strcmp(x->id, y->id);
}

size_t orphans_same_run(const struct orphans *l, size_t first)
{
    size_t n = 1;

    while (first + n < l->count && !strcmp(l->jobs[first].run, l->jobs[first + n].run))
        n++;
    return n;
}

/* A living job shows that its whole run lives. */
static void share_life(struct orphan *jobs, size_t count)
{
    const struct orphan *lives = NULL;

    for (size_t i = 0; i < count; i++)
        if (jobs[i].verdict == ORPHAN_LIVES)
            lives = &jobs[i];
    for (size_t i = 0; i < count && lives; i++)
        if (jobs[i].verdict == ORPHAN_UNKNOWN) {
            jobs[i].verdict = ORPHAN_LIVES;
            jobs[i].why = lives->why;
        }
}

void orphans_judge(struct orphans *l)
{
    for (size_t i = 0; i < l->count; i++)
        judge(&l->jobs[i]);
    if (l->count)
        qsort(l->jobs, l->count, sizeof(*l->jobs), by_run);
    for (size_t i = 0; i < l->count; i += orphans_same_run(l, i))
        share_life(&l->jobs[i], orphans_same_run(l, i));
}

static int list_jobs(struct orphans *l, struct cli_backend *b, const char *name,
                     struct fbr_error *err)
{
    const struct cli_ask list = {.op = BACKEND_LIST, .found = orphans_add, .user = l};
    int rc = cli_backend_open(b, name, err);

    *l = (struct orphans){.backend = name};
    if (rc < 0)
        return rc;
    rc = cli_backend_ask(b, &list, err);
    if (rc < 0 || l->failed) {
        orphans_free(l);
        cli_backend_close(b);
        return rc < 0 ? rc : fbr_fail(err, -ENOMEM, "out of memory");
    }
    orphans_judge(l);
    return 0;
}

int orphans_ask(struct orphans *l, struct cli_backend *b, const char *name, const char *only,
                struct fbr_error *err)
{
    int rc = list_jobs(l, b, name, err);

    if (rc == 0)
        return 1;
    if (only || (rc != -ENOTSUP && cli_backend_is_configured(name)))
        return fbr_wrap(err, "backend %s", name);
    fbr_info("cannot query backend %s: %s", name, err->text);
    return 0;
}

/* ---- For users ---- */

void orphan_command(const struct orphan *j, const struct fbr_config *config, char *out, size_t size)
{
    const struct fbr_backend_about *about = fbr_backend_about(j->backend);

    if (about && about->remove_command)
        about->remove_command(config, j->id, out, size);
    else
        snprintf(out, size, "fiber gc --backend %s --all", j->backend);
}

void orphan_master(const struct orphan *j, char out[40])
{
    size_t host = strcspn(j->master, ":"), len = host;

    if (j->master[len])
        len += 1 + strcspn(j->master + len + 1, ":");
    snprintf(out, 40, "%.*s", (int)(len < 39 ? len : 39), j->master);
}

long orphan_pid(const struct orphan *j)
{
    const char *at = strchr(j->master, ':');

    return at ? strtol(at + 1, NULL, 10) : 0;
}

/* ---- Runs ---- */

#define NAMES_SHOWN 8

bool orphan_run_is_id(const char *typed)
{
    size_t n = strspn(typed, "0123456789abcdef");

    return n >= 2 && n <= 32 && !typed[n];
}

/* A run of the registry has another id than the label of its jobs; both have the same master. */
static bool is_its_job(const struct orphan *j, const struct run_client *lost)
{
    return j->verdict == ORPHAN_DEAD && lost->about.pid == orphan_pid(j) &&
           !strcmp(lost->about.backend, j->backend);
}

int orphan_run_choose(const struct orphans *l, const char *typed, const struct run_client *lost,
                      const struct orphan **first, struct fbr_error *err)
{
    size_t n, found = 0;

    for (size_t i = 0; i < l->count; i += n) {
        n = orphans_same_run(l, i);
        if (!(typed && !strncmp(l->jobs[i].run, typed, strlen(typed))) &&
            !(lost && is_its_job(&l->jobs[i], lost)))
            continue;
        if (found)
            return fbr_fail(err, -EEXIST,
                            "several runs have an id that begins with %.40s: %.12s and %.12s; use "
                            "a longer id, see `fiber ps --all-backends`",
                            typed ? typed : lost->about.uid, (*first)->run, l->jobs[i].run);
        *first = &l->jobs[i];
        found = n;
    }
    return (int)found;
}

/* 1: the engine has jobs of the run, which are added; 0: none. */
static int ask_one(struct orphan_run *e, const char *name, const char *typed,
                   const struct run_client *lost, const char *only, struct fbr_error *err)
{
    struct engine_jobs *at = &e->at[e->count];
    int rc = orphans_ask(&at->all, &at->backend, name, only, err), n;

    if (rc <= 0)
        return rc;
    n = orphan_run_choose(&at->all, typed, lost, &at->jobs, err);
    if (n > 0 && e->count && strcmp(e->uid, at->jobs->run) != 0)
        n = fbr_fail(err, -EEXIST,
                     "several runs have an id that begins with %.40s: %.12s on %s and %.12s on %s; "
                     "use a longer id, or --backend",
                     typed ? typed : "", e->uid, e->at[0].backend.ops->name, at->jobs->run, name);
    if (n <= 0) {
        orphans_free(&at->all);
        cli_backend_close(&at->backend);
        return n;
    }
    at->count = (size_t)n;
    snprintf(e->uid, sizeof(e->uid), "%.39s", at->jobs->run);
    e->count++;
    return 1;
}

int orphan_run_ask(struct orphan_run *e, const char *typed, const struct run_client *lost,
                   const char *only, struct fbr_error *err)
{
    struct fbr_error failed = {0, ""};
    const char *name;

    memset(e, 0, sizeof(*e));
    for (size_t i = 0; (name = orphans_backend(only, i)) && e->count < ORPHAN_RUN_BACKENDS; i++) {
        struct fbr_error why = {0, ""};
        const struct fbr_backend_ops *ops = fbr_backend_find(name, NULL);
        int rc = ops && !ops->housekeeping ? 0 : ask_one(e, name, typed, lost, only, &why);

        if (rc == -EEXIST) {
            orphan_run_free(e);
            *err = why;
            return rc;
        }
        if (rc < 0)
            failed = why;
    }
    if (!e->count && failed.code) {
        *err = failed;
        return failed.code;
    }
    return (int)e->count;
}

int orphan_run_find(const char *typed, const char *only, struct run_client *run,
                    struct orphan_run *e, struct fbr_error *err)
{
    struct fbr_error why = {0, ""};
    int rc = run_client_find(typed, run, err);
    bool is_id = orphan_run_is_id(typed);

    if (rc == 0 && only && strcmp(only, run->about.backend) != 0) {
        run_client_free(run);
        rc = fbr_fail(err, -ENOENT, "run %.16s is not of backend %s, but of %s", run->about.uid,
                      only, run->about.backend);
    } else if (rc == 0) {
        if (run->state != CLIENT_LOST || !strcmp(run->about.backend, FBR_BACKEND_LOCAL) ||
            orphan_run_ask(e, NULL, run, run->about.backend, &why) <= 0)
            return 0;
        run_client_free(run);
        return 1;
    }
    if (rc != -ENOENT || !is_id)
        return rc;
    rc = orphan_run_ask(e, typed, NULL, only, &why);
    if (rc > 0)
        return 1;
    if (rc < 0)
        *err = why;
    return rc < 0 ? rc : -ENOENT;
}

/* ---- Runs that only their master can answer for ---- */

/* Returns the job in which a run's master runs, or NULL. If the run is a launcher's, that is its
 * only job; else the master's name begins with the name of its host, cut to the available size. */
static const struct orphan *master_job(const struct engine_jobs *at)
{
    const char *host = at->jobs->master;
    size_t len = strcspn(host, ":");

    for (size_t i = 0; i < at->count; i++)
        if (!strcmp(at->jobs[i].name, "master") && !strchr(at->jobs[i].id, '/'))
            return &at->jobs[i];
    for (size_t i = 0; i < at->all.count; i++)
        if (len && !strncmp(at->all.jobs[i].id, host, len))
            return &at->all.jobs[i];
    return NULL;
}

int orphan_run_elsewhere(const struct engine_jobs *at, const char *verb, struct fbr_error *err)
{
    const struct fbr_backend_about *about = fbr_backend_about(at->jobs->backend);
    const struct orphan *job = about && about->in_master ? master_job(at) : NULL;
    const char *run = at->jobs->run;
    char master[40], exec[500], self[256];

    if (fbr_spawn_own_path(self, sizeof(self), NULL) < 0)
        snprintf(self, sizeof(self), "fiber");
    orphan_master(at->jobs, master);
    if (job) {
        about->in_master(at->backend.config, job->id, job->fiber ? job->fiber : self, exec,
                         sizeof(exec));
        return fbr_fail(err, -EHOSTUNREACH,
                        "run %.12s: only its master, a %s, can do that. To list the runs there: %s "
                        "ps; then, with the id or name of one: %s %s",
                        run, about->job, exec, exec, verb);
    }
    if (at->jobs->verdict == ORPHAN_DEAD)
        return fbr_fail(err, -ESRCH,
                        "run %.12s: only its master can do that, and the master is gone; use "
                        "`fiber gc` to remove what it left",
                        run);
    return fbr_fail(err, -EHOSTUNREACH,
                    "run %.12s: only its master can do that, and the master is not on this host "
                    "(%s): use `fiber ps` and `fiber %s` there",
                    run, master[0] ? master : "its host is unknown", verb);
}

int orphan_run_here(const char *typed, const char *verb, struct run_client *run, const char **job,
                    struct fbr_error *err)
{
    size_t len = typed ? strcspn(typed, job ? "/" : "") : 0;
    struct orphan_run e;
    char name[128]; /* no run has a longer one */
    int rc;

    snprintf(name, sizeof(name), "%.*s", (int)len, typed ? typed : "");
    rc = typed ? orphan_run_find(name, NULL, run, &e, err) : run_client_only(run, false, err);
    if (rc < 0)
        return rc;
    if (job)
        *job = typed + len + (typed[len] == '/');
    if (rc > 0) {
        rc = orphan_run_elsewhere(&e.at[0], verb, err);
        orphan_run_free(&e);
    } else if (run->state >= CLIENT_ENDED) {
        rc = fbr_fail(err, -ESRCH, "run %.16s has ended, so it has no jobs; see `fiber ps -a`",
                      run->about.uid);
        run_client_free(run);
    }
    return rc;
}

void orphan_run_free(struct orphan_run *e)
{
    for (size_t i = 0; i < e->count; i++) {
        orphans_free(&e->at[i].all);
        cli_backend_close(&e->at[i].backend);
    }
    e->count = 0;
}

/* Objects that own pods are listed with the pods, without a name. */
bool orphan_run_wants(const struct orphan *job, const char *name)
{
    return job->name[0] && (!name || !strcmp(job->name, name) || !strcmp(job->id, name));
}

int orphan_run_wanted(const struct orphan_run *e, const char *name, struct fbr_error *err)
{
    char names[512] = "";
    size_t len = 0;
    int wanted = 0, shown = 0;

    for (size_t i = 0; i < e->count; i++)
        for (size_t k = 0; k < e->at[i].count; k++) {
            const struct orphan *j = &e->at[i].jobs[k];

            wanted += orphan_run_wants(j, name);
            if (j->name[0] && len + 80 < sizeof(names) && shown++ < NAMES_SHOWN)
                len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.64s",
                                        len ? ", " : "", j->name);
        }
    if (wanted)
        return wanted;
    return fbr_fail(err, -ENOENT, "run %.12s has no job%s%.64s; it has %s%s", e->uid,
                    name ? " " : "", name ? name : "", names[0] ? names : "none",
                    shown > NAMES_SHOWN ? ", and more" : "");
}
