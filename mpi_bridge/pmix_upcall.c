/* pmix_upcall.c - takes the requests of libpmix on its progress thread: copies and queues them.
 *
 * A request that needs no answer of ours is acknowledged at once. A fence is always accepted,
 * because libpmix 4 looks at that answer in one of three places only; an error goes to the callback
 * of the fence. Tools and forwarding of standard I/O have no entry in the table, so libpmix refuses
 * them itself.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/pmix_bridge.h"

/* NULL without memory; the functions below accept NULL. */
static struct fbr_pmix_request *request(void (*start)(struct fbr_pmix_request *r),
                                        const pmix_proc_t *who, enum fbr_pmix_answer answer,
                                        union fbr_pmix_call call, void *call_data)
{
    struct fbr_pmix_request *r = fbr_pmix_request_new(start, who);

    if (r) {
        r->answer = answer;
        r->call = call;
        r->call_data = call_data;
    }
    return r;
}

static pmix_status_t post_with(struct fbr_pmix_request *r, const pmix_info_t info[], size_t ninfo)
{
    if (r) {
        r->info = info;
        r->ninfo = ninfo;
    }
    return fbr_pmix_request_post(r);
}

/* Returns NULL without memory; r is freed then. */
static struct fbr_pmix_request *keep_procs(struct fbr_pmix_request *r, const pmix_proc_t *procs,
                                           size_t n)
{
    if (!r || n == 0)
        return r;
    r->procs = calloc(n, sizeof(*procs));
    if (!r->procs) {
        free(r);
        return NULL;
    }
    memcpy(r->procs, procs, n * sizeof(*procs));
    r->nprocs = n;
    return r;
}

/* The same for names, of which each must be there: none would mean all. */
static struct fbr_pmix_request *keep_keys(struct fbr_pmix_request *r, char **keys)
{
    size_t n = 0;
    bool whole;

    if (!r)
        return NULL;
    while (keys && keys[n])
        n++;
    r->keys = calloc(n + 1, sizeof(*r->keys));
    r->found = calloc(n + 1, sizeof(*r->found));
    whole = r->keys && r->found;
    for (; whole && r->nkeys < n; r->nkeys++) {
        r->found[r->nkeys].request = r;
        r->keys[r->nkeys] = strdup(keys[r->nkeys]);
        whole = r->keys[r->nkeys];
    }
    if (whole)
        return r;
    fbr_pmix_request_free(r);
    return NULL;
}

/* ---- Connect and finalize ---- */

static void start_met(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    struct fbr_pmix_rank *rank = j ? fbr_pmix_local(j, r->who.rank) : NULL;

    if (rank) {
        char how[48];

        snprintf(how, sizeof(how), "PMIx %s", fbr_pmix_version(j));
        rank->state = FBR_PMIX_MET;
        rank->came = true;
        host->met(host->user, j->job->id, r->who.rank, how);
    }
    fbr_pmix_fail(r, PMIX_SUCCESS);
}

static void start_left(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    struct fbr_pmix_rank *rank = j ? fbr_pmix_local(j, r->who.rank) : NULL;

    if (rank) {
        rank->state = FBR_PMIX_LEFT;
        host->left(host->user, j->job->id, r->who.rank);
    }
    fbr_pmix_fail(r, PMIX_SUCCESS);
}

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t call,
                               void *call_data)
{
    fbr_pmix_request_post(fbr_pmix_request_new(start_met, proc));
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t call,
                               void *call_data)
{
    fbr_pmix_request_post(fbr_pmix_request_new(start_left, proc));
    return PMIX_OPERATION_SUCCEEDED;
}

static void start_abort(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, r->who.nspace);
    uint32_t rank = r->who.rank;
    int code = r->code;
    char *text = r->data;

    r->data = NULL;
    fbr_pmix_fail(r, j ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND);
    if (j)
        fbr_pmix_report_missed(b, j, rank);
    if (j)
        b->host->abort(b->host->user, j->job->id, rank, code, text ? text : "");
    free(text);
}

static pmix_status_t aborted(const pmix_proc_t *proc, void *object, int status, const char text[],
                             pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t call,
                             void *call_data)
{
    struct fbr_pmix_request *r = request(start_abort, proc, FBR_PMIX_OP, call, call_data);

    (void)procs; /* an abort of some ranks ends the whole job: the rest could not go on */
    if (!r)
        return PMIX_ERR_NOMEM;
    r->code = status;
    r->data = text ? strdup(text) : NULL;
    return fbr_pmix_request_post(r);
}

/* ---- Collectives ---- */

static pmix_status_t fenced(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                            size_t ninfo, char *data, size_t len, pmix_modex_cbfunc_t call,
                            void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_fence, NULL, FBR_PMIX_MODEX, call, call_data);
    pmix_status_t rc = PMIX_ERR_NOMEM;

    r = keep_procs(r, procs, nprocs);
    if (r) {
        r->code = FBR_PMIX_FENCE;
        r->data = data; /* ours from now on */
        r->len = len;
        rc = fbr_pmix_request_post(r);
    } else {
        free(data);
    }
    if (rc != PMIX_SUCCESS)
        call(rc, NULL, 0, call_data, NULL, NULL);
    return PMIX_SUCCESS;
}

/* All call a connect and a disconnect in the same order, so one kind of fence serves both. */
static pmix_status_t joined(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                            size_t ninfo, pmix_op_cbfunc_t call, void *call_data)
{
    struct fbr_pmix_request *r = request(fbr_pmix_start_fence, NULL, FBR_PMIX_OP, call, call_data);
    pmix_status_t rc;

    r = keep_procs(r, procs, nprocs);
    if (r)
        r->code = FBR_PMIX_JOIN;
    rc = fbr_pmix_request_post(r);
    if (rc != PMIX_SUCCESS)
        call(rc, call_data);
    return PMIX_SUCCESS;
}

static pmix_status_t group(pmix_group_operation_t op, char name[], const pmix_proc_t procs[],
                           size_t nprocs, const pmix_info_t info[], size_t ninfo,
                           pmix_info_cbfunc_t call, void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_fence, NULL, FBR_PMIX_INFO, call, call_data);

    r = keep_keys(keep_procs(r, procs, nprocs), (char *[]){name, NULL});
    if (!r)
        return PMIX_ERR_NOMEM;
    r->code = op == PMIX_GROUP_CONSTRUCT ? FBR_PMIX_GROUP : FBR_PMIX_UNGROUP;
    return post_with(r, info, ninfo);
}

static pmix_status_t modex_wanted(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                                  pmix_modex_cbfunc_t call, void *call_data)
{
    return fbr_pmix_request_post(
        request(fbr_pmix_start_dmodex, proc, FBR_PMIX_MODEX, call, call_data));
}

/* ---- Names ---- */

static pmix_status_t publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                             pmix_op_cbfunc_t call, void *call_data)
{
    return post_with(request(fbr_pmix_start_publish, proc, FBR_PMIX_OP, call, call_data), info,
                     ninfo);
}

static pmix_status_t lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                            size_t ninfo, pmix_lookup_cbfunc_t call, void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_lookup, proc, FBR_PMIX_LOOKUP, call, call_data);

    return post_with(keep_keys(r, keys), info, ninfo);
}

static pmix_status_t unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[],
                               size_t ninfo, pmix_op_cbfunc_t call, void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_unpublish, proc, FBR_PMIX_OP, call, call_data);

    return fbr_pmix_request_post(keep_keys(r, keys));
}

/* ---- Processes and events ---- */

static pmix_status_t spawn(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                           const pmix_app_t apps[], size_t napps, pmix_spawn_cbfunc_t call,
                           void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_spawn, proc, FBR_PMIX_SPAWN, call, call_data);

    if (r) {
        r->apps = apps;
        r->count = napps;
    }
    return post_with(r, info, ninfo);
}

/* A dead rank is an event that every rank may register for; there is nothing to prepare. */
static pmix_status_t register_events(pmix_status_t *codes, size_t ncodes, const pmix_info_t info[],
                                     size_t ninfo, pmix_op_cbfunc_t call, void *call_data)
{
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t deregister_events(pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t call,
                                       void *call_data)
{
    return PMIX_OPERATION_SUCCEEDED;
}

/* If we answer later, libpmix 4 frees what that answer needs. So we copy all of it here. */
static pmix_status_t notify(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range,
                            pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t call,
                            void *call_data)
{
    struct fbr_pmix_request *r;
    pmix_data_buffer_t packed;
    pmix_status_t rc = PMIX_SUCCESS;

    if (range == PMIX_RANGE_LOCAL || range == PMIX_RANGE_PROC_LOCAL || range == PMIX_RANGE_RM)
        return PMIX_OPERATION_SUCCEEDED;
    for (size_t i = 0; i < ninfo; i++) {
        if (strcmp(info[i].key, fbr_pmix_relayed) == 0)
            return PMIX_OPERATION_SUCCEEDED;
    }
    r = fbr_pmix_request_new(fbr_pmix_start_notify, source);
    if (!r)
        return PMIX_ERR_NOMEM;
    PMIX_DATA_BUFFER_CONSTRUCT(&packed);
    if (ninfo)
        rc = PMIx_Data_pack(NULL, &packed, info, (int32_t)ninfo, PMIX_INFO);
    r->code = code;
    r->id = range;
    r->count = rc == PMIX_SUCCESS ? ninfo : 0;
    r->data = packed.base_ptr; /* malloc() gave it to libpmix */
    r->len = rc == PMIX_SUCCESS ? packed.bytes_used : 0;
    rc = fbr_pmix_request_post(r);
    return rc == PMIX_SUCCESS ? PMIX_OPERATION_SUCCEEDED : rc;
}

/* ---- Queries and control ---- */

static pmix_status_t query(pmix_proc_t *proc, pmix_query_t *queries, size_t nqueries,
                           pmix_info_cbfunc_t call, void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_query, proc, FBR_PMIX_INFO, call, call_data);

    if (r) {
        r->queries = queries;
        r->count = nqueries;
    }
    return fbr_pmix_request_post(r);
}

static void log_text(const pmix_proc_t *proc, const pmix_info_t data[], size_t ndata,
                     const pmix_info_t how[], size_t nhow, pmix_op_cbfunc_t call, void *call_data)
{
    pmix_status_t rc =
        post_with(request(fbr_pmix_start_log, proc, FBR_PMIX_OP, call, call_data), data, ndata);

    if (rc != PMIX_SUCCESS && call)
        call(rc, call_data);
}

static pmix_status_t control(const pmix_proc_t *proc, const pmix_proc_t targets[], size_t ntargets,
                             const pmix_info_t orders[], size_t norders, pmix_info_cbfunc_t call,
                             void *call_data)
{
    struct fbr_pmix_request *r =
        request(fbr_pmix_start_control, proc, FBR_PMIX_INFO, call, call_data);

    return post_with(keep_procs(r, targets, ntargets), orders, norders);
}

const pmix_server_module_t fbr_pmix_module = {
    .client_connected = connected,
    .client_finalized = finalized,
    .abort = aborted,
    .fence_nb = fenced,
    .direct_modex = modex_wanted,
    .publish = publish,
    .lookup = lookup,
    .unpublish = unpublish,
    .spawn = spawn,
    .connect = joined,
    .disconnect = joined,
    .register_events = register_events,
    .deregister_events = deregister_events,
    .notify_event = notify,
    .query = query,
    .log = log_text,
    .job_control = control,
    .group = group,
};
