/* pmix_fence.c - collectives and messages of agents: fences, connects, groups, direct modex,
 * events.
 *
 * A collective goes to the launcher as one fence of the host. Its key has its kind and the ranks
 * that take part. The agents that take part follow from the jobs, which every agent knows. libpmix
 * sends no request for a collective in which all ranks are local.
 *
 * Direct modex: the agent of the reader asks the agent of the rank (message 'Q'), whose libpmix
 * answers as soon as the rank has committed its data (message 'A').
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

const char fbr_pmix_relayed[] = "fiber.relayed";

enum { ASK = 'Q', ANSWER = 'A', EVENT = 'E' };

/* ---- Fences ---- */

static int compare_procs(const void *a, const void *b)
{
    const pmix_proc_t *x = a, *y = b;
    int by_name = strcmp(x->nspace, y->nspace);

    return by_name ? by_name : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Every agent that has ranks of a job that we know has a number below this. */
static uint32_t agents_end(const struct fbr_bridge *b)
{
    const struct fbr_pmix_job *j;
    uint32_t end = 0;

    DL_FOREACH(b->jobs, j)
        if (j->job->agents[j->job->nodes - 1] >= end)
            end = j->job->agents[j->job->nodes - 1] + 1;
    return end;
}

/* Marks the agents that have ranks of `proc`. */
static int mark_agents(struct fbr_bridge *b, const pmix_proc_t *proc, bool *marks)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(b, proc->nspace);
    bool all = proc->rank == PMIX_RANK_WILDCARD;
    uint32_t first, last;

    if (!j || (proc->rank >= j->job->size && !all))
        return -ENOENT;
    first = all ? 0 : fbr_bridge_node_of(j->job, proc->rank);
    last = all ? j->job->nodes - 1 : first;
    for (uint32_t node = first; node <= last; node++)
        marks[j->job->agents[node]] = true;
    return 0;
}

/* Makes the list of agents that have ranks among procs, in rising order; the caller frees it.
 * -ENOENT: one of procs is of no job that we know. */
static int find_parts(struct fbr_bridge *b, const pmix_proc_t *procs, size_t n, uint32_t **list,
                      uint32_t *parts)
{
    uint32_t end = agents_end(b);
    bool *marks = calloc((size_t)end + 1, sizeof(*marks));
    int rc = 0;

    *list = calloc((size_t)end + 1, sizeof(**list));
    if (!marks || !*list)
        rc = -ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = mark_agents(b, &procs[i], marks);
    for (uint32_t agent = 0; agent < end && rc == 0; agent++)
        if (marks[agent])
            (*list)[(*parts)++] = agent;
    free(marks);
    return rc;
}

/* The endpoint data that the ranks of a group share. */
static const pmix_byte_object_t *group_blob(const struct fbr_pmix_request *r)
{
    for (size_t i = 0; i < r->ninfo; i++) {
        if (PMIX_CHECK_KEY(&r->info[i], PMIX_GROUP_ENDPT_DATA))
            return &r->info[i].value.data.bo;
    }
    return NULL;
}

static bool wants_number(const struct fbr_pmix_request *r)
{
    for (size_t i = 0; i < r->ninfo; i++) {
        if (PMIX_CHECK_KEY(&r->info[i], PMIX_GROUP_ASSIGN_CONTEXT_ID))
            return PMIX_INFO_TRUE(&r->info[i]);
    }
    return false;
}

/* All agents have come. `all` has their contributions, one after the other. Takes over `all`. */
static void finish(struct fbr_pmix_request *r, uint64_t number, char *all, size_t len)
{
    pmix_byte_object_t blob = {.bytes = all, .size = len};
    size_t context = (size_t)number;
    void *list;

    if (r->code == FBR_PMIX_FENCE) {
        fbr_pmix_reply_modex(r, all, len);
        return;
    }
    if (r->code == FBR_PMIX_GROUP) {
        list = PMIx_Info_list_start();
        if (wants_number(r))
            PMIx_Info_list_add(list, PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE);
        if (len)
            PMIx_Info_list_add(list, PMIX_GROUP_ENDPT_DATA, &blob, PMIX_BYTE_OBJECT);
        fbr_pmix_reply_info(r, PMIX_SUCCESS, list);
    } else {
        fbr_pmix_fail(r, PMIX_SUCCESS);
    }
    free(all);
}

/* The host's answer: for each agent u32 agent, u32 length, and what put_part() wrote. */
static void fence_done(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_request *r = arg;
    struct fbr_cur all = fbr_cur(data, len);
    struct fbr_buf joined = {0};
    uint64_t number = 0;

    if (!fbr_pmix_request_answered(r))
        return;
    if (code < 0) {
        fbr_pmix_fail(r, fbr_pmix_status(code));
        return;
    }
    while (fbr_cur_left(&all) > 0 && fbr_cur_ok(&all)) {
        struct fbr_cur part;
        const void *bytes;
        size_t n;

        fbr_get_u32(&all);
        bytes = fbr_get_bytes(&all, &n);
        part = fbr_cur(bytes, n);
        /* the number of the first agent is used */
        if (number == 0)
            number = fbr_get_u64(&part);
        else
            fbr_get_u64(&part);
        if (!fbr_cur_ok(&part))
            all.bad = true;
        n = fbr_cur_left(&part);
        fbr_put(&joined, fbr_get(&part, n), n);
    }
    if (!fbr_cur_ok(&all) || joined.failed) {
        fbr_buf_fini(&joined);
        fbr_pmix_fail(r, joined.failed ? PMIX_ERR_NOMEM : PMIX_ERR_UNPACK_FAILURE);
        return;
    }
    finish(r, number, (char *)joined.data, joined.len);
}

/* Writes the part of this agent: a number for the group, in case this part is the first, and the
 * bytes. */
static void put_part(struct fbr_bridge *b, struct fbr_pmix_request *r, struct fbr_buf *out)
{
    const pmix_byte_object_t *blob = group_blob(r);

    fbr_put_u64(out, (uint64_t)++b->groups << 16 | (b->host->agent & 0xffff));
    if (blob)
        fbr_put(out, blob->bytes, blob->size);
    else
        fbr_put(out, r->data, r->len);
}

static void put_key(struct fbr_pmix_request *r, struct fbr_buf *key)
{
    /* all agents must make the same key */
    qsort(r->procs, r->nprocs, sizeof(*r->procs), compare_procs);
    fbr_put_u8(key, (uint8_t)r->code);
    for (size_t i = 0; i < r->nkeys; i++)
        fbr_put_str(key, r->keys[i]);
    for (size_t i = 0; i < r->nprocs; i++) {
        fbr_put_str(key, r->procs[i].nspace);
        fbr_put_u32(key, r->procs[i].rank);
    }
}

/* PMIx 4 and PMIx 5 do not work together for groups. If a server of 5.0.7 gets the members of a
 * group, it makes the group, but its thread never returns from that. If it gets no members, its
 * clients fail. Returns false after it has printed why. */
static bool groups_work(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_pmix_job *j = r->nprocs ? fbr_pmix_job_named(b, r->procs[0].nspace) : NULL;
    const char *theirs = j && j->job->node >= 0 ? fbr_pmix_version(j) : "";
    char text[256];

    if (strtol(b->version, NULL, 10) >= 5)
        snprintf(text, sizeof(text),
                 "MPI sessions do not work with the PMIx of this agent (%s): call MPI_Init "
                 "instead, or use MPICH\n",
                 b->version);
    else if (theirs[0] && strtol(theirs, NULL, 10) >= 5)
        snprintf(text, sizeof(text),
                 "MPI sessions need PMIx 4 in both the program (%s) and its agent (%s): call "
                 "MPI_Init instead, or use MPICH\n",
                 theirs, b->version);
    else
        return true;
    if (j && j->job->node >= 0)
        b->host->print(b->host->user, j->job->id, j->job->first[j->job->node], 2, text,
                       strlen(text));
    return false;
}

void fbr_pmix_start_fence(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    struct fbr_buf key = {0}, mine = {0};
    uint32_t parts = 0, *agents = NULL;
    int rc = find_parts(b, r->procs, r->nprocs, &agents, &parts);

    if (rc == 0 && r->code == FBR_PMIX_GROUP && !groups_work(r))
        rc = -ENOSYS;
    if (rc < 0) {
        free(agents);
        fbr_pmix_fail(r, fbr_pmix_status(rc));
        return;
    }
    put_part(b, r, &mine);
    if (parts <= 1 && !mine.failed) {
        free(agents);
        fbr_buf_consume(&mine, 8);
        finish(r, (uint64_t)b->groups << 16 | (b->host->agent & 0xffff), (char *)mine.data,
               mine.len);
        return;
    }
    put_key(r, &key);
    r->open++;
    rc = key.failed || mine.failed ? -ENOMEM
                                   : b->host->fence(b->host->user, key.data, key.len, agents, parts,
                                                    mine.data, mine.len, fence_done, r);
    free(agents);
    if (rc < 0) {
        r->open--;
        fbr_pmix_fail(r, fbr_pmix_status(rc));
    }
    fbr_buf_fini(&key);
    fbr_buf_fini(&mine);
}

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

/* Back on the loop with the data that dmodex_ready() got. */
static void start_answer(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_buf answer = {0};

    fbr_put_u8(&answer, ANSWER);
    fbr_put_u32(&answer, r->id);
    fbr_put_u32(&answer, (uint32_t)r->code);
    fbr_put_bytes(&answer, r->data, r->len);
    if (!answer.failed)
        host->notify(host->user, r->agent, answer.data, answer.len);
    fbr_buf_fini(&answer);
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
    pmix_status_t rc;

    if (!r)
        return;
    r->agent = agent;
    r->id = fbr_get_u32(c);
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

static void answered(struct fbr_bridge *b, struct fbr_cur *c)
{
    uint32_t id = fbr_get_u32(c);
    int32_t status = (int32_t)fbr_get_u32(c);
    struct fbr_pmix_request *r;
    size_t len;
    const void *data = fbr_get_bytes(c, &len);
    char *copy;

    DL_FOREACH(b->pending, r) {
        if (r->start == fbr_pmix_start_dmodex && r->id == id)
            break;
    }
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

/* Called before libpmix drops the job: libpmix then frees what it keeps for a direct modex,
 * answered or not. */
void fbr_pmix_forget(struct fbr_bridge *b, const struct fbr_bridge_job *job)
{
    struct fbr_pmix_request *r, *next;

    DL_FOREACH_SAFE(b->pending, r, next) {
        bool about = strcmp(r->who.nspace, job->nspace) == 0;

        for (size_t i = 0; i < r->nprocs && !about; i++)
            about = strcmp(r->procs[i].nspace, job->nspace) == 0;
        if (about && r->answer != FBR_PMIX_NOTHING)
            fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
    }
}

/* Sends an event that a local rank raised to all agents that it concerns. */
void fbr_pmix_start_notify(struct fbr_pmix_request *r)
{
    struct fbr_bridge *b = r->bridge;
    bool *told = calloc((size_t)agents_end(b) + 1, sizeof(*told));
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

void fbr_pmix_message(struct fbr_bridge *b, uint32_t agent, struct fbr_cur *data)
{
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
