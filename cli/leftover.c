/* leftover.c - jobs that engines have of this user's runs; see leftover.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/leftover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/master.h"

/* ---- Asking ---- */

const char *leftovers_backend(const char *only, size_t at)
{
    if (only)
        return at == 0 ? only : NULL;
    for (size_t i = 0; fbr_backends[i]; i++)
        if (fbr_backends[i]->about && fbr_backends[i]->about->leaves_jobs && !at--)
            return fbr_backends[i]->name;
    return NULL;
}

void leftovers_add(struct leftovers *l, const char *backend, const struct fbr_leftover *job)
{
    struct leftover *more = realloc(l->jobs, (l->count + 1) * sizeof(*more)), *j;

    if (!more) {
        l->failed = true;
        return;
    }
    l->jobs = more;
    j = &l->jobs[l->count];
    *j = (struct leftover){.backend = backend,
                           .run = strdup(job->run),
                           .id = strdup(job->id),
                           .name = strdup(job->name),
                           .master = strdup(job->master),
                           .fiber = job->fiber ? strdup(job->fiber) : NULL,
                           .since_ms = job->since_ms,
                           .alive = job->alive,
                           .verdict = LEFTOVER_UNKNOWN,
                           .why = ""};
    l->count++;
    if (!j->run || !j->id || !j->name || !j->master || (job->fiber && !j->fiber))
        l->failed = true;
}

struct asked {
    struct leftovers *l;
    const char *backend;
};

static void on_job(void *user, const struct fbr_leftover *job)
{
    struct asked *a = user;

    leftovers_add(a->l, a->backend, job);
}

void leftovers_free(struct leftovers *l)
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

/* ---- Judging ---- */

static void judge(struct leftover *j)
{
    switch (fbr_master_state(j->master)) {
    case FBR_MASTER_ALIVE:
        j->verdict = LEFTOVER_LIVES;
        j->why = "its master runs";
        break;
    case FBR_MASTER_DEAD:
        j->verdict = LEFTOVER_DEAD;
        j->why = "its master is gone";
        break;
    default:
        j->verdict = LEFTOVER_UNKNOWN;
        j->why = j->master[0] ? "its master is not on this host" : "its master is not known";
    }
}

static int by_run(const void *a, const void *b)
{
    const struct leftover *x = a, *y = b;
    int order = strcmp(x->run, y->run);

    if (!order)
        order = strcmp(x->backend, y->backend);
    return order ? order : strcmp(x->id, y->id);
}

size_t leftovers_same_run(const struct leftovers *l, size_t first)
{
    size_t n = 1;

    while (first + n < l->count && !strcmp(l->jobs[first].run, l->jobs[first + n].run))
        n++;
    return n;
}

/* One that lives speaks for all of its run. */
static void share_life(struct leftover *jobs, size_t count)
{
    const struct leftover *lives = NULL;

    for (size_t i = 0; i < count; i++)
        if (jobs[i].verdict == LEFTOVER_LIVES)
            lives = &jobs[i];
    for (size_t i = 0; i < count && lives; i++)
        if (jobs[i].verdict == LEFTOVER_UNKNOWN) {
            jobs[i].verdict = LEFTOVER_LIVES;
            jobs[i].why = lives->why;
        }
}

void leftovers_judge(struct leftovers *l)
{
    if (l->count)
        qsort(l->jobs, l->count, sizeof(*l->jobs), by_run);
    for (size_t i = 0; i < l->count; i++)
        judge(&l->jobs[i]);
    for (size_t i = 0; i < l->count; i += leftovers_same_run(l, i))
        share_life(&l->jobs[i], leftovers_same_run(l, i));
}

int leftovers_ask(struct leftovers *l, struct cli_backend *b, const char *name, const char *only,
                  struct fbr_error *err)
{
    struct asked a = {l, name};
    int rc = cli_backend_open(b, name, err);

    memset(l, 0, sizeof(*l));
    if (rc == 0) {
        rc = cli_backend_list(b, on_job, &a, err);
        if (rc == 0 && l->failed)
            rc = fbr_fail(err, -ENOMEM, "out of memory");
        if (rc == 0) {
            leftovers_judge(l);
            return 1;
        }
        leftovers_free(l);
        cli_backend_close(b);
    }
    if (only || (rc != -ENOTSUP && cli_backend_is_configured(name)))
        return fbr_wrap(err, "backend %s", name);
    fbr_info("backend %s is not asked: %s", name, err->text);
    return 0;
}

/* ---- For people ---- */

void leftover_command(const struct leftover *j, char *out, size_t size)
{
    const struct fbr_backend_about *about = fbr_backend_about(j->backend);

    if (about && about->remove_command)
        about->remove_command(j->id, out, size);
    else
        snprintf(out, size, "fiber gc --backend %s --all", j->backend);
}

void leftover_master(const struct leftover *j, char out[40])
{
    size_t host = strcspn(j->master, ":"), len = host;

    if (j->master[len])
        len += 1 + strcspn(j->master + len + 1, ":");
    snprintf(out, 40, "%.*s", (int)(len < 39 ? len : 39), j->master);
}

long leftover_pid(const struct leftover *j)
{
    const char *at = strchr(j->master, ':');

    return at ? strtol(at + 1, NULL, 10) : 0;
}
