/* pmix_fence.c - collectives of ranks: fences, connects and groups.
 *
 * A collective goes to the launcher as one fence of the host. Its key has its kind and the ranks
 * that take part. The agents that take part follow from the jobs, which every agent knows. libpmix
 * sends no request for a collective in which all ranks are local.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

static int compare_procs(const void *a, const void *b)
{
    const pmix_proc_t *x = a, *y = b;
    int by_name = strcmp(x->nspace, y->nspace);

    return by_name ? by_name : (x->rank > y->rank) - (x->rank < y->rank);
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
    uint32_t end = fbr_pmix_agents_end(b);
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

/* NULL: the request has no info with that key. */
static const pmix_info_t *find_info(const struct fbr_pmix_request *r, const char *key)
{
    for (size_t i = 0; i < r->ninfo; i++)
        if (PMIX_CHECK_KEY(&r->info[i], key))
            return &r->info[i];
    return NULL;
}

/* All agents have come. `all` has their contributions, one after the other. Takes over `all`. */
static void finish(struct fbr_pmix_request *r, uint64_t number, char *all, size_t len)
{
    pmix_byte_object_t blob = {.bytes = all, .size = len};
    size_t context = (size_t)number;
    const pmix_info_t *wanted;
    void *list;

    if (r->code == FBR_PMIX_FENCE) {
        fbr_pmix_reply_modex(r, all, len);
        return;
    }
    if (r->code == FBR_PMIX_GROUP) {
        list = PMIx_Info_list_start();
        wanted = find_info(r, PMIX_GROUP_ASSIGN_CONTEXT_ID);
        if (wanted && PMIX_INFO_TRUE(wanted))
            PMIx_Info_list_add(list, PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE);
        if (len)
            PMIx_Info_list_add(list, PMIX_GROUP_ENDPT_DATA, &blob, PMIX_BYTE_OBJECT);
        fbr_pmix_reply_info(r, PMIX_SUCCESS, list);
    } else {
        fbr_pmix_fail(r, PMIX_SUCCESS);
    }
    free(all);
}

/* The host's answer: for each agent u32 agent, u32 length, u64 number, and its contribution. */
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
        uint64_t its;
        size_t n;

        fbr_get_u32(&all);
        bytes = fbr_get_bytes(&all, &n);
        part = fbr_cur(bytes, n);
        its = fbr_get_u64(&part);
        number = number ? number : its; /* that of the first agent */
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

/* Puts the bytes that the other agents get: for a group, the endpoint data that its ranks share. */
static void put_contribution(const struct fbr_pmix_request *r, struct fbr_buf *out)
{
    const pmix_info_t *shared = find_info(r, PMIX_GROUP_ENDPT_DATA);

    if (shared)
        fbr_put(out, shared->value.data.bo.bytes, shared->value.data.bo.size);
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
    uint64_t number; /* of a group, in case this agent is the first of its agents */
    int rc = find_parts(b, r->procs, r->nprocs, &agents, &parts);

    if (rc == 0 && r->code == FBR_PMIX_GROUP && !groups_work(r))
        rc = -ENOSYS;
    if (rc < 0) {
        free(agents);
        fbr_pmix_fail(r, fbr_pmix_status(rc));
        return;
    }
    number = (uint64_t)++b->groups << 16 | (b->host->agent & 0xffff);
    if (parts > 1)
        fbr_put_u64(&mine, number);
    put_contribution(r, &mine);
    if (parts <= 1 && !mine.failed) {
        free(agents);
        finish(r, number, (char *)mine.data, mine.len);
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
