/* own_run.c - the run that a program opens by itself.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/inspect/own_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/program/script.h"

#define WHILE_MS 500 /* life of a run until it has a control socket */

struct fbr_own_run {
    struct fbr_own_run *next, *prev; /* rt->own_runs */
    struct fbr_runtime *rt;
    const struct fbr_run_control_ops *ops;
    void *user;
    struct fbr_timer timer;
    bool waits; /* the timer runs */
    bool keeps; /* an attempt to open the spool was made */
    struct fbr_run_control *control;
    struct fbr_run_control_about about;
    struct fbr_spool *spool;
};

static void open_spool(struct fbr_own_run *r)
{
    struct fbr_run_control_about *a = &r->about;
    struct fbr_run_facts facts;
    struct fbr_error err = {0, ""};

    if (r->keeps)
        return;
    r->keeps = true;
    r->ops->facts(r->user, &facts);
    a->size = facts.size;
    fbr_script_own(a->name[0] ? NULL : a->name, sizeof(a->name), a->command, sizeof(a->command));
    if (fbr_spool_open(&r->spool, r->rt->config, a, a->size > 0 ? (uint32_t)a->size : 1, &err) < 0)
        fbr_info("the output of %s is not kept for `fiber logs`: %s", a->name, err.text);
}

static void open_control(void *arg)
{
    struct fbr_own_run *r = arg;
    struct fbr_run_facts facts;
    struct fbr_error err = {0, ""};

    r->waits = false;
    r->ops->facts(r->user, &facts);
    if (r->about.kind == FBR_RUN_PROGRAM && !facts.agents)
        return;
    open_spool(r);
    if (fbr_run_control_open(&r->control, r->rt->loop, r->ops, r->user, &r->about, &err) < 0)
        fbr_info("`fiber ps` will not show %s: %s", r->about.name, err.text);
}

struct fbr_own_run *fbr_own_run_new(struct fbr_runtime *rt, enum fbr_run_kind kind,
                                    const char *name, const char *backend,
                                    const struct fbr_run_control_ops *ops, void *user)
{
    struct fbr_own_run *r = rt->child ? NULL : calloc(1, sizeof(*r));
    struct fbr_run_control_about *a = r ? &r->about : NULL;

    if (!r)
        return NULL;
    r->rt = rt;
    r->ops = ops;
    r->user = user;
    *a = (struct fbr_run_control_about){.pid = getpid(),
                                        .started_ms = fbr_wall_ms(),
                                        .kind = kind,
                                        .unkept = fbr_config_size(rt->config, "log_keep") == 0};
    snprintf(a->name, sizeof(a->name), "%s", name);
    snprintf(a->backend, sizeof(a->backend), "%s",
             fbr_rt_backend_name(rt, backend[0] ? backend : NULL));
    if (fbr_random_id(a->uid) < 0 || fbr_timer_init(&r->timer, rt->loop, open_control, r) < 0) {
        free(r);
        return NULL;
    }
    DL_APPEND(rt->own_runs, r);
    return r;
}

void fbr_own_run_wake(struct fbr_own_run *r)
{
    if (!r || r->control || r->waits)
        return;
    r->waits = true;
    fbr_timer_start(&r->timer, WHILE_MS, 0);
}

void fbr_own_run_keep(struct fbr_own_run *r, int number, enum fbr_record_kind kind,
                      const void *data, size_t len)
{
    int rc;

    if (!r)
        return;
    open_spool(r);
    rc = fbr_spool_add(r->spool, 0, (uint32_t)number, kind, data, len);
    if (rc < 0)
        fbr_warn("`fiber logs` will not show all output of %s: it cannot be kept: %s",
                 r->about.name, fbr_strerror(rc));
}

struct fbr_spool *fbr_own_run_end(struct fbr_own_run *r)
{
    struct fbr_run_facts facts;
    struct fbr_spool *spool;

    if (!r)
        return NULL;
    DL_DELETE(r->rt->own_runs, r);
    spool = r->spool;
    r->ops->facts(r->user, &facts);
    fbr_spool_end(spool, &facts, 0, "");
    fbr_timer_fini(&r->timer);
    fbr_run_control_close(r->control, 0, "");
    free(r);
    return spool;
}

/* Until the process has reported its host name, the name of its job says where it is. A container's
 * host name is the beginning of its long id. */
void fbr_own_run_put(struct fiber_process *p, struct fbr_run_rank *out)
{
    struct fiber_rank_stats *s = &out->stats;
    const char *job = fiber_process_job(p), *where;
    struct fbr_process_use use;

    fbr_process_use(p, &use);
    s->pid = fiber_process_pid(p);
    s->cpu = (double)use.cpu_ns / 1e9;
    s->memory = use.resident;
    where = use.host;
    /* on this host the name of a job is its pid, which has a column of its own */
    if (!where[0] && strtoll(job, NULL, 10) != s->pid)
        where = job;
    snprintf(s->host, sizeof(s->host), "%.*s", strlen(where) == 64 ? 12 : (int)sizeof(s->host) - 1,
             where);
}

/* The program is what the user started, and it knows how to end. All its runs end with it. */
int fbr_own_run_stop(void *user)
{
    struct fbr_own_run *r;

    DL_FOREACH(fbr_rt_any()->own_runs, r)
        fbr_run_control_stopping(r->control);
    return kill(getpid(), SIGTERM) < 0 ? -errno : 0;
}
