/* pmix_message.c - messages between the bridges of agents: direct modex and events.
 *
 * Direct modex: the agent of the reader asks the agent of the rank (message 'Q'), whose libpmix
 * answers as soon as the rank has committed its data (message 'A'). If that agent is gone, the
 * question comes back.
 *
 * Events: libpmix passes an event of a local rank to the ranks of its own host. This bridge sends
 * it to the other agents that it concerns (message 'E').
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

const char fbr_pmix_relayed[] = "fiber.relayed";

enum { ASK = 'Q', ANSWER = 'A', EVENT = 'E' };

/* ---- Direct modex ---- */

void fbr_pmix_start_dmodex(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, r->who.nspace);
    struct fbr_buf ask = {0};
    uint32_t agent;
    int rc;

    if (!j || r->who.rank >= j->job->size) {
        fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
        return;
    }
    agent = j->job->agents[fbr_bridge_node_of(j->job, r->who.rank)];
    if (agent == b->host->agent) { /* libpmix would have answered by itself */
        fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
        return;
    }
    r->id = ++b->last_id;
    fbr_put_u8(&ask, ASK);
    fbr_put_u32(&ask, r->id);
    fbr_put_str(&ask, r->who.nspace);
    fbr_put_u32(&ask, r->who.rank);
    rc = ask.failed ? -ENOMEM : b->host->notify(b->host->user, agent, ask.data, ask.len);
    if (rc < 0)
        fbr_pmix_fail(r, fbr_pmix_status(rc));
    fbr_buf_fini(&ask);
}

static void put_answer(struct fbr_buf *b, uint32_t id, pmix_status_t status, const void *data,
                       size_t len)
{
    fbr_put_u8(b, ANSWER);
    fbr_put_u32(b, id);
    fbr_put_u32(b, (uint32_t)status);
    fbr_put_bytes(b, data, len);
}

/* The rank that asks waits without a limit, so it gets an answer also if memory is short here. */
static void send_answer(const struct fbr_bridge *b, uint32_t agent, uint32_t id,
                        pmix_status_t status, const void *data, size_t len)
{
    uint8_t few[32];
    struct fbr_buf answer = {0}, none = {.data = few, .cap = sizeof(few)}; /* all of it fits */

    put_answer(&answer, id, status, data, len);
    put_answer(&none, id, PMIX_ERR_NOMEM, NULL, 0);
    if (answer.failed)
        b->host->notify(b->host->user, agent, none.data, none.len);
    else
        b->host->notify(b->host->user, agent, answer.data, answer.len);
    fbr_buf_fini(&answer);
}

/* Back on the loop with the data that dmodex_ready() got. */
static void start_answer(struct fbr_pmix_request *r)
{
    send_answer(r->bridge, r->agent, r->id, r->code, r->data, r->len);
    fbr_pmix_fail(r, PMIX_SUCCESS);
}

/* libpmix's thread. The request is in the bridge's list, but no thread looks at it before it is
 * in the queue. */
static void dmodex_ready(pmix_status_t status, char *data, size_t len, void *arg)
{
    struct fbr_pmix_request *r = arg;

    r->code = status;
    r->data = len ? malloc(len) : NULL;
    if (r->data) {
        memcpy(r->data, data, len);
        r->len = len;
    } else if (len) {
        r->code = PMIX_ERR_NOMEM;
    }
    fbr_pmix_request_back(r);
}

/* True if the rank has data, or may have some later. libpmix waits for ever for those of a rank
 * that was lost before it has connected. */
static bool may_have_data(struct fbr_bridge *b, const pmix_proc_t *who)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, who->nspace);
    const struct fbr_pmix_rank *rank = j ? fbr_pmix_local(j, who->rank) : NULL;

    return rank && (rank->came || !rank->lost);
}

static void asked(struct fbr_bridge *b, uint32_t agent, struct fbr_cur *c)
{
    struct fbr_pmix_request *r = fbr_pmix_request_new(start_answer, NULL);
    uint32_t id = fbr_get_u32(c);
    pmix_status_t rc;

    if (!r) {
        send_answer(b, agent, id, PMIX_ERR_NOMEM, NULL, 0);
        return;
    }
    r->agent = agent;
    r->id = id;
    fbr_get_str(c, r->who.nspace, sizeof(r->who.nspace));
    r->who.rank = fbr_get_u32(c);
    fbr_pmix_request_attach(b, r);
    if (!fbr_cur_ok(c)) {
        fbr_pmix_fail(r, PMIX_SUCCESS); /* not from an agent of this version */
        return;
    }
    rc = may_have_data(b, &r->who) ? PMIx_server_dmodex_request(&r->who, dmodex_ready, r)
                                   : PMIX_ERR_NOT_FOUND;
    if (rc != PMIX_SUCCESS) {
        r->code = rc;
        start_answer(r);
    }
}

static struct fbr_pmix_request *find_asked(struct fbr_bridge *b, uint32_t id)
{
    struct fbr_pmix_request *r;

    DL_FOREACH(b->pending, r) {
        if (r->start == fbr_pmix_start_dmodex && r->id == id)
            break;
    }
    return r;
}

static void answered(struct fbr_bridge *b, struct fbr_cur *c)
{
    struct fbr_pmix_request *r = find_asked(b, fbr_get_u32(c));
    int32_t status = (int32_t)fbr_get_u32(c);
    size_t len;
    const void *data = fbr_get_bytes(c, &len);
    char *copy;

    if (!r || !fbr_cur_ok(c))
        return;
    copy = status == PMIX_SUCCESS ? malloc(len ? len : 1) : NULL;
    if (!copy) {
        fbr_pmix_fail(r, status == PMIX_SUCCESS ? PMIX_ERR_NOMEM : status);
        return;
    }
    memcpy(copy, data, len);
    fbr_pmix_reply_modex(r, copy, len);
}

/* ---- Events ---- */

struct event {
    pmix_info_t *info;
    size_t ninfo;
};

static void event_notified(pmix_status_t status, void *arg)
{
    struct event *e = arg;

    PMIX_INFO_FREE(e->info, e->ninfo);
    free(e);
}

/* Notifies our ranks. Takes over info. */
static void notify_ranks(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range,
                         pmix_info_t *info, size_t ninfo)
{
    struct event *e = calloc(1, sizeof(*e));

    if (!e) {
        PMIX_INFO_FREE(info, ninfo);
        return;
    }
    e->info = info;
    e->ninfo = ninfo;
    if (PMIx_Notify_event(code, source, range, info, ninfo, event_notified, e) != PMIX_SUCCESS)
        event_notified(PMIX_ERROR, e);
}

void fbr_pmix_lost(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank, int code)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, job->nspace);
    struct fbr_pmix_rank *local = j ? fbr_pmix_local(j, rank) : NULL;
    struct fbr_pmix_request *r, *next;
    pmix_proc_t dead;
    pmix_info_t *info;

    if (local)
        local->lost = true;
    PMIX_LOAD_PROCID(&dead, job->nspace, rank);
    DL_FOREACH_SAFE(b->pending, r, next) {
        if (r->start == fbr_pmix_start_dmodex && PMIX_CHECK_PROCID(&r->who, &dead))
            fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND); /* the rank will not commit its data any more */
    }
    PMIX_INFO_CREATE(info, 1);
    if (!info)
        return;
    PMIX_INFO_LOAD(&info[0], PMIX_EVENT_AFFECTED_PROC, &dead, PMIX_PROC);
    notify_ranks(PMIX_ERR_PROC_ABORTED, &dead, PMIX_RANGE_LOCAL, info, 1);
}

/* Sends an event that a local rank raised to all agents that it concerns. */
void fbr_pmix_start_notify(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    bool *told = calloc((size_t)fbr_pmix_agents_end(b) + 1, sizeof(*told));
    struct fbr_pmix_job *j;
    struct fbr_buf event = {0};

    fbr_put_u8(&event, EVENT);
    fbr_put_u32(&event, (uint32_t)r->code);
    fbr_put_u32(&event, r->id);
    fbr_put_str(&event, r->who.nspace);
    fbr_put_u32(&event, r->who.rank);
    fbr_put_u32(&event, (uint32_t)r->count);
    fbr_put(&event, r->data, r->len);
    DL_FOREACH(b->jobs, j) {
        bool concerned =
            r->id != PMIX_RANGE_NAMESPACE || strcmp(j->job->nspace, r->who.nspace) == 0;

        for (uint32_t k = 0; concerned && told && !event.failed && k < j->job->nodes; k++) {
            uint32_t agent = j->job->agents[k];

            /* our own has notified its ranks already */
            if (agent != b->host->agent && !told[agent])
                b->host->notify(b->host->user, agent, event.data, event.len);
            told[agent] = true;
        }
    }
    fbr_buf_fini(&event);
    free(told);
    fbr_pmix_fail(r, PMIX_SUCCESS);
}

static void event_came(struct fbr_cur *c)
{
    int32_t code = (int32_t)fbr_get_u32(c);
    pmix_data_range_t range = (pmix_data_range_t)fbr_get_u32(c);
    pmix_data_buffer_t packed;
    pmix_proc_t source = {0};
    pmix_info_t *info = NULL;
    uint32_t ninfo;
    int32_t n;
    bool yes = true;

    fbr_get_str(c, source.nspace, sizeof(source.nspace));
    source.rank = fbr_get_u32(c);
    ninfo = fbr_get_u32(c);
    if (!fbr_cur_ok(c) || ninfo > fbr_cur_left(c))
        return;
    PMIX_INFO_CREATE(info, ninfo + 1);
    if (!info)
        return;
    PMIX_DATA_BUFFER_CONSTRUCT(&packed);
    packed.base_ptr = packed.unpack_ptr = (char *)c->at;
    packed.pack_ptr = packed.base_ptr + fbr_cur_left(c);
    packed.bytes_allocated = packed.bytes_used = fbr_cur_left(c);
    n = (int32_t)ninfo;
    if (n > 0 && PMIx_Data_unpack(NULL, &packed, info, &n, PMIX_INFO) != PMIX_SUCCESS) {
        PMIX_INFO_FREE(info, ninfo + 1);
        return;
    }
    PMIX_INFO_LOAD(&info[ninfo], fbr_pmix_relayed, &yes, PMIX_BOOL);
    notify_ranks(code, &source, range, info, ninfo + 1);
}

/* A message of ours came back: the agent to which it went is gone. */
static void came_back(struct fbr_bridge *b, struct fbr_cur *c)
{
    struct fbr_pmix_request *r = fbr_get_u8(c) == ASK ? find_asked(b, fbr_get_u32(c)) : NULL;

    if (r)
        fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
}

void fbr_pmix_message(struct fbr_bridge *b, uint32_t agent, struct fbr_cur *data)
{
    if (agent == FBR_BRIDGE_NOBODY) {
        came_back(b, data);
        return;
    }
    switch (fbr_get_u8(data)) {
    case ASK:
        asked(b, agent, data);
        break;
    case ANSWER:
        answered(b, data);
        break;
    case EVENT:
        event_came(data);
        break;
    default:
        break;
    }
}
