/* pmix_names.c - PMIx_Publish, PMIx_Lookup and PMIx_Unpublish over the launcher's table of names.
 *
 * A name's value there is u8 how long it lasts, then the value as PMIx packs it. The launcher drops
 * what a job published when the job ends; "until first read" is done here: who reads it takes it
 * back, and answers its rank after that, so that the name is free when the rank goes on
 * (MPI_Comm_accept uses a name again and again). Ranges are not told apart: every rank of the ring
 * sees every name.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/pmix_bridge.h"

/* Attributes that steer the call, and are no names. */
static bool is_option(const pmix_info_t *info)
{
    return strncmp(info->key, "pmix.", 5) == 0;
}

/* ---- Publish, unpublish ---- */

/* Takes a hold on r for the time of a loop that calls the host, so that a failure inside does not
 * free it. */
static void begin(struct fbr_pmix_request *r)
{
    r->open++;
}

/* Answers when nothing is open any more. r->code: the first error. */
static void step_done(struct fbr_pmix_request *r)
{
    if (fbr_pmix_heard(r) && r->open == 0)
        fbr_pmix_fail(r, r->code);
}

static void note(struct fbr_pmix_request *r, int code)
{
    if (code < 0 && r->code == PMIX_SUCCESS)
        r->code = fbr_pmix_status(code);
}

static void named(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_request *r = arg;

    (void)data;
    (void)len;
    note(r, code);
    step_done(r);
}

static int publish_one(struct fbr_pmix_request *r, const struct fbr_bridge_job *job,
                       const pmix_info_t *info, uint8_t lasts)
{
    const struct fbr_bridge_host *host = r->bridge->host;
    pmix_data_buffer_t packed;
    struct fbr_buf value;
    int rc = -EINVAL;

    fbr_buf_init(&value);
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
    begin(r);
    for (size_t i = 0; i < r->ninfo && r->code == PMIX_SUCCESS; i++) {
        int rc;

        if (is_option(&r->info[i]))
            continue;
        r->open++;
        rc = publish_one(r, j->job, &r->info[i], lasts);
        if (rc < 0)
            r->open--;
        note(r, rc);
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
    begin(r);
    for (size_t i = 0; i == 0 || i < r->nkeys; i++) {
        const char *key = r->nkeys ? r->keys[i] : NULL;
        int rc;

        r->open++;
        rc = host->unpublish(host->user, j->job->id, r->who.rank, key, named, r);
        if (rc < 0)
            r->open--;
        note(r, rc);
    }
    step_done(r);
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

/* All that we wait for are there, or will not be. */
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
    if (fbr_pmix_heard(r) && (r->open == 0 || r->nfound >= r->wanted))
        finish_lookup(r);
}

static void taken_back(void *arg, int code, const void *data, size_t len)
{
    struct fbr_pmix_found *f = arg;

    (void)code; /* another reader may have been faster */
    (void)data;
    (void)len;
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

    if (code < 0 || !fbr_cur_ok(&c) || r->answered) {
        if (code < 0 && code != -ENOENT)
            note(r, code);
        lookup_step(r);
        return;
    }
    fbr_put(&f->data, data, len);
    f->there = !f->data.failed;
    if (lasts == PMIX_PERSIST_FIRST_READ &&
        host->unpublish(host->user, job, rank, r->keys[f - r->found], taken_back, f) == 0)
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
    begin(r);
    for (size_t i = 0; i < r->nkeys; i++) {
        int rc;

        r->open++;
        rc = host->lookup(host->user, r->keys[i], wait_ms, looked_up, &r->found[i]);
        if (rc < 0)
            r->open--;
        note(r, rc);
    }
    lookup_step(r);
}
