/* pmix_control.c - requests of ranks to their runtime: spawn, query, log, job control.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

/* ---- Spawn ---- */

/* The arrays of one application. The strings of argv are libpmix's. */
struct app {
    const char **argv;
    struct fbr_env env;
};

static bool is_variable(const pmix_info_t *info)
{
    const pmix_envar_t *v = &info->value.data.envar;

    return (PMIX_CHECK_KEY(info, PMIX_SET_ENVAR) || PMIX_CHECK_KEY(info, PMIX_ADD_ENVAR)) &&
           info->value.type == PMIX_ENVAR && v->envar && v->value;
}

/* PMIX_ADD_ENVAR replaces no value: neither the application's nor that which ranks have from us. */
static void add_variable(struct fbr_env *e, const pmix_info_t *info)
{
    const pmix_envar_t *v = &info->value.data.envar;

    if (PMIX_CHECK_KEY(info, PMIX_SET_ENVAR))
        fbr_env_set(e, v->envar, "%s", v->value);
    else if (!getenv(v->envar))
        fbr_env_default(e, v->envar, "%s", v->value);
}

/* -ENOSYS: the caller requires one that has no effect here. Others that have none, such as those
 * for the placement, are ignored. */
static int take_infos(struct app *a, struct fbr_bridge_app *to, const pmix_info_t *infos, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_variable(&infos[i]))
            add_variable(&a->env, &infos[i]);
        else if (PMIX_CHECK_KEY(&infos[i], PMIX_WDIR) && infos[i].value.type == PMIX_STRING)
            to->workdir = infos[i].value.data.string;
        else if (PMIX_INFO_IS_REQUIRED(&infos[i]))
            return -ENOSYS;
    }
    return 0;
}

/* The infos of the whole job come first, so that those of the application replace them. */
static int app_fill(const struct fbr_pmix_request *r, const pmix_app_t *from, struct app *a,
                    struct fbr_bridge_app *to)
{
    size_t n = 0;
    int rc;

    if (!from->cmd || !from->cmd[0] || from->maxprocs < 1)
        return -EINVAL;
    while (from->argv && from->argv[n])
        n++;
    a->argv = calloc(n + 2, sizeof(*a->argv));
    if (!a->argv)
        return -ENOMEM;
    for (size_t i = 1; i < n; i++)
        a->argv[i] = from->argv[i];
    a->argv[0] = from->cmd;
    to->argv = a->argv;
    to->count = (uint32_t)from->maxprocs;
    rc = take_infos(a, to, r->info, r->ninfo);
    if (from->cwd && from->cwd[0])
        to->workdir = from->cwd;
    fbr_env_copy(&a->env, from->env);
    if (rc < 0 || (rc = take_infos(a, to, from->info, from->ninfo)) < 0)
        return rc;
    to->env = (const char *const *)a->env.list;
    return a->env.failed ? -ENOMEM : 0;
}

static void spawned(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_request *r = arg;
    struct fbr_cur c = fbr_cur(data, len);
    struct fbr_pmix_job *j;

    if (!fbr_pmix_request_answered(r))
        return;
    j = code == 0 ? fbr_pmix_job_numbered(r->bridge, fbr_get_u32(&c)) : NULL;
    if (j && fbr_cur_ok(&c)) {
        fbr_pmix_reply_spawn(r, j->job->nspace);
        return;
    }
    if (code == -ENOENT)
        fbr_pmix_fail(r, PMIX_ERR_JOB_EXE_NOT_FOUND);
    else if (code == -ENOSPC || code == -EAGAIN)
        fbr_pmix_fail(r, PMIX_ERR_JOB_INSUFFICIENT_RESOURCES);
    else if (code == -EACCES)
        fbr_pmix_fail(r, PMIX_ERR_JOB_APP_NOT_EXECUTABLE);
    else if (code == -ENOSYS || code == -EOPNOTSUPP)
        fbr_pmix_fail(r, PMIX_ERR_NOT_SUPPORTED);
    else
        fbr_pmix_fail(r, PMIX_ERR_JOB_FAILED_TO_LAUNCH);
}

void fbr_pmix_start_spawn(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    struct fbr_bridge_app *apps = calloc(r->count + 1, sizeof(*apps));
    struct app *own = calloc(r->count + 1, sizeof(*own));
    int rc = !j ? -ENOENT : r->count == 0 ? -EINVAL : !apps || !own ? -ENOMEM : 0;
    struct fbr_bridge_spawn spawn;

    if (rc < 0)
        goto done;
    for (size_t i = 0; i < r->count; i++)
        if ((rc = app_fill(r, &r->apps[i], &own[i], &apps[i])) < 0)
            goto done;
    spawn = (struct fbr_bridge_spawn){j->job->id, r->who.rank, apps, r->count};
    r->open++;
    rc = host->spawn(host->user, &spawn, spawned, r);
    if (rc < 0)
        r->open--;
done:
    for (size_t i = 0; own && i < r->count; i++) {
        fbr_env_fini(&own[i].env);
        free(own[i].argv);
    }
    free(own);
    free(apps);
    if (rc < 0)
        fbr_pmix_fail(r, fbr_pmix_status(rc));
}

/* ---- Query ---- */

static pmix_proc_state_t proc_state(const struct fbr_pmix_rank *rank)
{
    switch (rank->state) {
    case FBR_PMIX_NEW:
        return PMIX_PROC_STATE_PREPPED;
    case FBR_PMIX_STARTED:
        return PMIX_PROC_STATE_RUNNING;
    case FBR_PMIX_MET:
    case FBR_PMIX_LEFT:
        return PMIX_PROC_STATE_CONNECTED;
    case FBR_PMIX_ENDED:
        break;
    }
    return rank->code < 0    ? PMIX_PROC_STATE_ABORTED_BY_SIG
           : rank->code != 0 ? PMIX_PROC_STATE_TERM_NON_ZERO
                             : PMIX_PROC_STATE_TERMINATED;
}

/* Adds the ranks first .. last - 1 of a job. The state of ranks on other agents is "undefined":
 * we do not know it. */
static pmix_status_t add_table(struct fbr_pmix_job *j, const char *key, uint32_t first,
                               uint32_t last, void *list)
{
    pmix_data_array_t array = {.type = PMIX_PROC_INFO, .size = last - first};
    pmix_proc_info_t *table;
    pmix_status_t rc;

    PMIX_PROC_INFO_CREATE(table, array.size);
    if (!table && array.size)
        return PMIX_ERR_NOMEM;
    array.array = table;
    for (uint32_t rank = first; rank < last; rank++) {
        const struct fbr_pmix_rank *local = fbr_pmix_local(j, rank);
        pmix_proc_info_t *p = &table[rank - first];

        PMIX_LOAD_PROCID(&p->proc, j->job->nspace, rank);
        p->hostname = strdup(j->job->hosts[fbr_bridge_node_of(j->job, rank)]);
        p->state = local ? proc_state(local) : PMIX_PROC_STATE_UNDEF;
        p->exit_code = local ? local->code : 0;
    }
    rc = PMIx_Info_list_add(list, key, &array, PMIX_DATA_ARRAY);
    PMIX_PROC_INFO_FREE(table, array.size);
    return rc;
}

static pmix_status_t add_namespaces(struct fbr_bridge *b, const char *key, void *list)
{
    struct fbr_buf names = {0};
    struct fbr_pmix_job *j;
    pmix_status_t rc;

    DL_FOREACH(b->jobs, j) {
        fbr_putf(&names, "%s%s", names.len ? "," : "", j->job->nspace);
    }
    fbr_put_u8(&names, 0);
    rc = names.failed ? PMIX_ERR_NOMEM : PMIx_Info_list_add(list, key, names.data, PMIX_STRING);
    fbr_buf_fini(&names);
    return rc;
}

static pmix_status_t answer_key(struct fbr_bridge *b, struct fbr_pmix_job *j, const char *key,
                                void *list)
{
    if (strcmp(key, PMIX_QUERY_NAMESPACES) == 0)
        return add_namespaces(b, key, list);
    if (strcmp(key, PMIX_QUERY_SPAWN_SUPPORT) == 0)
        return PMIx_Info_list_add(list, key, PMIX_WDIR "," PMIX_SET_ENVAR "," PMIX_ADD_ENVAR,
                                  PMIX_STRING);
    if (!j)
        return PMIX_ERR_NOT_FOUND;
    if (strcmp(key, PMIX_JOB_SIZE) == 0 || strcmp(key, PMIX_UNIV_SIZE) == 0)
        return PMIx_Info_list_add(list, key, &j->job->size, PMIX_UINT32);
    if (strcmp(key, PMIX_NUM_NODES) == 0)
        return PMIx_Info_list_add(list, key, &j->job->nodes, PMIX_UINT32);
    if (strcmp(key, PMIX_QUERY_PROC_TABLE) == 0)
        return add_table(j, key, 0, j->job->size, list);
    if (strcmp(key, PMIX_QUERY_LOCAL_PROC_TABLE) == 0 && j->job->node < 0)
        return add_table(j, key, 0, 0, list);
    if (strcmp(key, PMIX_QUERY_LOCAL_PROC_TABLE) == 0)
        return add_table(j, key, j->job->first[j->job->node], j->job->first[j->job->node + 1],
                         list);
    return PMIX_ERR_NOT_SUPPORTED;
}

/* Finds the job of a query. libpmix 4 asks in its own name, so a query has to name the job, as
 * PMIx requires, unless there is only one job. */
static struct fbr_pmix_job *query_job(struct fbr_pmix_request *r, const pmix_query_t *q)
{
    struct fbr_pmix_job *jobs = r->bridge->jobs;
    const char *nspace = jobs && !jobs->next ? jobs->job->nspace : r->who.nspace;

    for (size_t i = 0; i < q->nqual; i++) {
        const pmix_value_t *v = &q->qualifiers[i].value;

        if (PMIX_CHECK_KEY(&q->qualifiers[i], PMIX_NSPACE) && v->type == PMIX_STRING &&
            v->data.string)
            nspace = v->data.string;
        else if (PMIX_CHECK_KEY(&q->qualifiers[i], PMIX_PROCID) && v->type == PMIX_PROC &&
                 v->data.proc)
            nspace = v->data.proc->nspace;
    }
    return fbr_pmix_job_named(r->bridge, nspace);
}

void fbr_pmix_start_query(struct fbr_pmix_request *r)
{
    void *list = PMIx_Info_list_start();
    pmix_status_t first = PMIX_SUCCESS;
    size_t found = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct fbr_pmix_job *j = query_job(r, &r->queries[i]);

        for (char **key = r->queries[i].keys; key && *key; key++) {
            pmix_status_t rc = answer_key(r->bridge, j, *key, list);

            if (rc == PMIX_SUCCESS)
                found++;
            else if (first == PMIX_SUCCESS)
                first = rc;
        }
    }
    if (found == 0) {
        PMIx_Info_list_release(list);
        fbr_pmix_fail(r, first == PMIX_SUCCESS ? PMIX_ERR_BAD_PARAM : first);
        return;
    }
    fbr_pmix_reply_info(r, first == PMIX_SUCCESS ? PMIX_SUCCESS : PMIX_QUERY_PARTIAL_SUCCESS, list);
}

/* ---- Log ---- */

void fbr_pmix_start_log(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, r->who.nspace);
    pmix_status_t rc = PMIX_ERR_NOT_SUPPORTED;

    for (size_t i = 0; i < r->ninfo; i++) {
        const pmix_info_t *info = &r->info[i];
        int stream = PMIX_CHECK_KEY(info, PMIX_LOG_STDOUT)   ? 1
                     : PMIX_CHECK_KEY(info, PMIX_LOG_STDERR) ? 2
                                                             : 0;

        if (!stream || info->value.type != PMIX_STRING || !info->value.data.string)
            continue;
        rc = PMIX_SUCCESS;
        if (j)
            b->host->print(b->host->user, j->job->id, r->who.rank, stream, info->value.data.string,
                           strlen(info->value.data.string));
        else /* from libpmix itself, about this process */
            dprintf(b->output, "%s\n", info->value.data.string);
    }
    fbr_pmix_fail(r, rc);
}

/* ---- Job control ---- */

/* Ends a job as an abort does. A rank may end only its own job. */
void fbr_pmix_start_control(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, r->who.nspace);
    uint32_t rank = r->who.rank;
    bool end = false;
    pmix_status_t rc = j ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND;

    for (size_t i = 0; i < r->ninfo; i++) {
        if (PMIX_CHECK_KEY(&r->info[i], PMIX_JOB_CTRL_TERMINATE) ||
            PMIX_CHECK_KEY(&r->info[i], PMIX_JOB_CTRL_KILL))
            end = PMIX_INFO_TRUE(&r->info[i]);
        else if (rc == PMIX_SUCCESS && strncmp(r->info[i].key, "pmix.jctrl.", 11) == 0)
            rc = PMIX_ERR_NOT_SUPPORTED;
    }
    for (size_t i = 0; end && i < r->nprocs; i++) {
        if (!PMIX_CHECK_NSPACE(r->procs[i].nspace, r->who.nspace) ||
            r->procs[i].rank != PMIX_RANK_WILDCARD)
            rc = PMIX_ERR_NOT_SUPPORTED;
    }
    fbr_pmix_fail(r, rc);
    if (rc == PMIX_SUCCESS && end)
        b->host->abort(b->host->user, j->job->id, rank, 1,
                       "it requested the end of its job (PMIx_Job_control)");
}
