/* pmix_names.c - PMIx_Publish, PMIx_Lookup and PMIx_Unpublish over the launcher's table of names.
 *
 * The value of a name in the table is u8 persistence, then the value as PMIx packs it. When a job
 * ends, the launcher drops what the job published. "Until first read" is done here: the agent of
 * the reader takes the name back and answers its rank after that, so that the name is free when the
 * rank goes on (MPI_Comm_accept uses a name again and again). Ranges are ignored: every rank of the
 * ring sees every name.
 *
 * Names of other runs are not visible, and MPI_Comm_connect to a port of another run would wait for
 * ever. Open MPI then looks up "JOB.RANK:NUMBER:accept", where JOB is a number that it makes of the
 * job's name. If JOB is none of our jobs, the rank gets an error at once, but only after the
 * launcher has answered: then we know every job that was there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

/* ---- Publish, unpublish ---- */

/* Answers if no call is open any more. r->code: the first error. A loop that calls the host counts
 * as one call more, so that r is not answered before its end. */
static void step_done(struct fbr_pmix_request *r)
{
    if (fbr_pmix_request_answered(r) && r->open == 0)
        fbr_pmix_fail(r, r->code);
}

static void note(struct fbr_pmix_request *r, int code)
{
    if (code < 0 && r->code == PMIX_SUCCESS)
        r->code = fbr_pmix_status(code);
}

/* Notes the result of a call of the host that r->open has counted. */
static void called(struct fbr_pmix_request *r, int rc)
{
    if (rc < 0)
        r->open--;
    note(r, rc);
}

static void named(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_request *r = arg;

    note(r, code);
    step_done(r);
}

static int publish_one(struct fbr_pmix_request *r, const struct fbr_bridge_job *job,
                       const pmix_info_t *info, uint8_t lasts)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    pmix_data_buffer_t packed;
    struct fbr_buf value = {0};
    int rc = -EINVAL;

    fbr_put_u8(&value, lasts);
    PMIX_DATA_BUFFER_CONSTRUCT(&packed);
    if (PMIx_Data_pack(NULL, &packed, (void *)&info->value, 1, PMIX_VALUE) == PMIX_SUCCESS) {
        fbr_put(&value, packed.base_ptr, packed.bytes_used);
        rc = value.failed ? -ENOMEM
                          : host->publish(host->user, job->id, r->who.rank, info->key, value.data,
                                          value.len, named, r);
    }
    PMIX_DATA_BUFFER_DESTRUCT(&packed);
    fbr_buf_fini(&value);
    return rc;
}

void fbr_pmix_start_publish(struct fbr_pmix_request *r)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    uint8_t lasts = PMIX_PERSIST_APP;

    if (!j) {
        fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
        return;
    }
    for (size_t i = 0; i < r->ninfo; i++) {
        if (PMIX_CHECK_KEY(&r->info[i], PMIX_PERSISTENCE))
            lasts = r->info[i].value.data.persist;
    }
    r->open++; /* the loop itself */
    for (size_t i = 0; i < r->ninfo && r->code == PMIX_SUCCESS; i++) {
        if (strncmp(r->info[i].key, "pmix.", 5) == 0) /* steers the call, and is no name */
            continue;
        r->open++;
        called(r, publish_one(r, j->job, &r->info[i], lasts));
    }
    step_done(r);
}

void fbr_pmix_start_unpublish(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);

    if (!j) {
        fbr_pmix_fail(r, PMIX_ERR_NOT_FOUND);
        return;
    }
    r->open++; /* the loop itself */
    for (size_t i = 0; i == 0 || i < r->nkeys; i++) {
        const char *key = r->nkeys ? r->keys[i] : NULL;

        r->open++;
        called(r, host->unpublish(host->user, j->job->id, r->who.rank, key, named, r));
    }
    step_done(r);
}

/* ---- Ports and names that no rank has ---- */

#define ONE_RUN                                                                              \
    "Names and ports of other runs are not visible here: start both programs in one run (a " \
    "script that can select one by FIBER_RANK), or start one from the other (MPI_Comm_spawn)"

static void report(struct fbr_bridge *b, struct fbr_pmix_job *j, uint32_t rank, const char *text)
{
    b->host->print(b->host->user, j->job->id, rank, 2, text, strlen(text));
}

/* Bob Jenkins' one-at-a-time hash, with which Open MPI makes numbers of names. */
static uint32_t hash_of(const char *name)
{
    uint32_t h = 0;

    for (; *name; name++) {
        h += (uint32_t)(int32_t)*name;
        h += h << 10;
        h ^= h >> 6;
    }
    h += h << 3;
    h ^= h >> 11;
    return h + (h << 15);
}

/* True if Open MPI looks up this key in MPI_Comm_connect or MPI_Comm_accept, and its job is none
 * that we know. Before version 5 Open MPI's number of a job was the hash without one bit; now it
 * is the two halves, folded. */
static bool is_port_of_nobody(struct fbr_bridge *b, const char *key)
{
    const char *end = strrchr(key, ':');
    uint32_t job = 0, rank, number;
    struct fbr_pmix_job *j;
    int n = 0;

    if (!end || (strcmp(end, ":accept") != 0 && strcmp(end, ":connect") != 0) ||
        sscanf(key, "%10u.%10u:%10u%n", &job, &rank, &number, &n) != 3 || key + n != end)
        return false;
    DL_FOREACH(b->jobs, j) {
        uint32_t h = hash_of(j->job->nspace);

        if (job == (h & ~0x8000u) || job == ((h >> 16 ^ h) & 0xffff) << 16)
            return false;
    }
    return true;
}

static void report_port(struct fbr_pmix_request *r, const char *key)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    char text[512];

    snprintf(text, sizeof(text), "MPI: no rank of this run has the port \"%.*s\". " ONE_RUN "\n",
             (int)strcspn(key, ":"), key);
    if (j)
        report(r->bridge, j, r->who.rank, text);
}

/* Keeps the name that the rank has just looked up in vain; NULL: the name was there. */
static void note_missed(struct fbr_pmix_request *r, const char *key)
{
    struct fbr_pmix_job *j = fbr_pmix_job_named(r->bridge, r->who.nspace);
    struct fbr_pmix_rank *rank = j ? fbr_pmix_local(j, r->who.rank) : NULL;

    if (rank)
        snprintf(rank->missed, sizeof(rank->missed), "%.60s", key ? key : "");
}

void fbr_pmix_report_missed(struct fbr_bridge *b, struct fbr_pmix_job *j, uint32_t rank)
{
    struct fbr_pmix_rank *local = fbr_pmix_local(j, rank);
    char text[512];

    if (!local || !local->missed[0])
        return;
    snprintf(text, sizeof(text), "MPI: no rank of this run has published \"%s\". " ONE_RUN "\n",
             local->missed);
    report(b, j, rank, text);
}

/* ---- Lookup ---- */

static bool unpack(struct fbr_bridge *b, struct fbr_pmix_found *f, const char *key,
                   pmix_pdata_t *out)
{
    struct fbr_cur c = fbr_cur(f->data.data, f->data.len);
    struct fbr_pmix_job *j = fbr_pmix_job_numbered(b, fbr_get_u32(&c));
    uint32_t rank = fbr_get_u32(&c);
    pmix_data_buffer_t packed;
    int32_t n = 1;

    fbr_get_u8(&c);
    if (!fbr_cur_ok(&c) || !j)
        return false;
    PMIX_DATA_BUFFER_CONSTRUCT(&packed);
    packed.base_ptr = packed.unpack_ptr = (char *)c.at;
    packed.bytes_allocated = packed.bytes_used = fbr_cur_left(&c);
    packed.pack_ptr = packed.base_ptr + packed.bytes_used;
    if (PMIx_Data_unpack(NULL, &packed, &out->value, &n, PMIX_VALUE) != PMIX_SUCCESS)
        return false;
    PMIX_LOAD_PROCID(&out->proc, j->job->nspace, rank);
    PMIX_LOAD_KEY(out->key, key);
    return true;
}

/* All names that we wait for are there, or will not come. */
static void finish_lookup(struct fbr_pmix_request *r)
{
    pmix_pdata_t *list = NULL;
    size_t n = 0;

    if (r->answered)
        return;
    if (r->nfound > 0)
        PMIX_PDATA_CREATE(list, r->nkeys);
    for (size_t i = 0; list && i < r->nkeys; i++) {
        if (r->found[i].there && unpack(r->bridge, &r->found[i], r->keys[i], &list[n]))
            n++;
    }
    note_missed(r, n == 0 && r->nkeys && r->wait_ms == 0 ? r->keys[0] : NULL);
    if (n > 0) {
        r->call.lookup(PMIX_SUCCESS, list, n, r->call_data);
        r->call.lookup = NULL;
        r->answer = FBR_PMIX_NOTHING;
    }
    if (list)
        PMIX_PDATA_FREE(list, r->nkeys);
    fbr_pmix_fail(r, r->code != PMIX_SUCCESS ? r->code : PMIX_ERR_NOT_FOUND);
}

static void lookup_step(struct fbr_pmix_request *r)
{
    if (fbr_pmix_request_answered(r) && (r->open == 0 || r->nfound >= r->wanted))
        finish_lookup(r);
}

static void taken_back(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_found *f = arg;

    (void)code; /* another reader may have been faster */
    f->request->nfound++;
    lookup_step(f->request);
}

static void looked_up(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_found *f = arg;
    struct fbr_pmix_request *r = f->request;
    const struct fbr_bridge_host *host = r->bridge->host;
    struct fbr_cur c = fbr_cur(data, len);
    uint32_t job = fbr_get_u32(&c), rank = fbr_get_u32(&c);
    uint8_t lasts = fbr_get_u8(&c);
    const char *key = r->keys[f - r->found];

    if (f->early && code == -ENOENT && !r->answered) {
        f->early = false;
        if (is_port_of_nobody(r->bridge, key))
            report_port(r, key);
        /* the job of the name has begun meanwhile */
        else if (host->lookup(host->user, key, r->wait_ms, looked_up, f) == 0)
            return;
    }
    if (code < 0 || !fbr_cur_ok(&c) || r->answered) {
        if (code < 0 && code != -ENOENT)
            note(r, code);
        lookup_step(r);
        return;
    }
    fbr_put(&f->data, data, len);
    f->there = !f->data.failed;
    if (lasts == PMIX_PERSIST_FIRST_READ &&
        host->unpublish(host->user, job, rank, key, taken_back, f) == 0)
        return;
    r->nfound++;
    lookup_step(r);
}

void fbr_pmix_start_lookup(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    int wait_ms = 0, timeout = 0;

    r->wanted = r->nkeys;
    for (size_t i = 0; i < r->ninfo; i++) {
        const pmix_info_t *info = &r->info[i];

        if (PMIX_CHECK_KEY(info, PMIX_WAIT)) {
            wait_ms = -1;
            if (info->value.type == PMIX_INT && info->value.data.integer > 0)
                r->wanted = (size_t)info->value.data.integer < r->nkeys
                                ? (size_t)info->value.data.integer
                                : r->nkeys;
        } else if (PMIX_CHECK_KEY(info, PMIX_TIMEOUT) && info->value.type == PMIX_INT) {
            timeout = info->value.data.integer;
        }
    }
    if (wait_ms < 0 && timeout > 0)
        wait_ms = timeout > INT32_MAX / 1000 ? INT32_MAX : timeout * 1000;
    r->wait_ms = wait_ms;
    r->open++; /* the loop itself */
    for (size_t i = 0; i < r->nkeys; i++) {
        struct fbr_pmix_found *f = &r->found[i];

        r->open++;
        f->early = wait_ms != 0 && is_port_of_nobody(r->bridge, r->keys[i]);
        called(r, host->lookup(host->user, r->keys[i], f->early ? 0 : wait_ms, looked_up, f));
    }
    lookup_step(r);
}
