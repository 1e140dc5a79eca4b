/* pmix_fuzz.c - what agents tell each other for PMIx, in any order with what ranks and libpmix do:
 * each request of libpmix is answered exactly once, and whatever it is given is its own.
 *
 * The input is a list of events: u8 what, u8 number, u8 n, n bytes. What of libpmix is called with
 * bytes of another agent is played here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_bridge/pmix_bridge.h"

#define MANY 64

static struct fbr_cur input; /* of the event */

static void must(bool what)
{
    if (!what)
        abort();
}

/* Reads them all, for the sanitizer. */
static void look(const void *data, size_t len)
{
    unsigned sum = 0;

    for (size_t i = 0; i < len; i++)
        sum += ((const volatile uint8_t *)data)[i];
    (void)sum;
}

static uint8_t next_byte(void)
{
    return fbr_cur_left(&input) ? fbr_get_u8(&input) : 0;
}

/* ---- Our host ---- */

static struct {
    void (*fn)(void *arg);
    void *arg;
} posted[MANY];
static size_t nposted;

static int host_post(void *user, void (*fn)(void *arg), void *arg)
{
    if (nposted == MANY)
        return -1;
    posted[nposted].fn = fn;
    posted[nposted++].arg = arg;
    return 0;
}

static void run_posted(void)
{
    for (size_t i = 0; i < nposted; i++) /* more may come meanwhile */
        posted[i].fn(posted[i].arg);
    nposted = 0;
}

static int host_notify(void *user, uint32_t agent, const void *data, size_t len)
{
    must(agent < 256 && len > 0 && strchr("QAE", *(const char *)data));
    look(data, len);
    return next_byte() % 8 == 7 ? -1 : 0;
}

const char *fbr_pmix_version(struct fbr_pmix_job *j)
{
    return "";
}

/* ---- libpmix, as far as it is called with what comes from others ---- */

static struct {
    pmix_dmodex_response_fn_t fn;
    void *arg;
} asked[MANY];
static struct {
    pmix_op_cbfunc_t fn;
    void *arg;
} notified[MANY];
static size_t nasked, nnotified;

static void check_proc(const pmix_proc_t *p)
{
    must(memchr(p->nspace, '\0', sizeof(p->nspace)) != NULL);
}

pmix_status_t PMIx_server_dmodex_request(const pmix_proc_t *proc, pmix_dmodex_response_fn_t fn,
                                         void *arg)
{
    check_proc(proc);
    if (nasked == MANY || next_byte() % 8 == 7)
        return PMIX_ERR_NOT_FOUND;
    asked[nasked].fn = fn;
    asked[nasked++].arg = arg;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Notify_event(pmix_status_t status, const pmix_proc_t *source,
                                pmix_data_range_t range, const pmix_info_t info[], size_t ninfo,
                                pmix_op_cbfunc_t fn, void *arg)
{
    check_proc(source);
    must(ninfo > 0 && info);
    look(info, ninfo * sizeof(*info));
    if (nnotified == MANY || next_byte() % 8 == 7)
        return PMIX_ERR_BAD_PARAM;
    notified[nnotified].fn = fn;
    notified[nnotified++].arg = arg;
    return PMIX_SUCCESS;
}

/* A text each, until the bytes are over. */
pmix_status_t PMIx_Data_unpack(const pmix_proc_t *source, pmix_data_buffer_t *buffer, void *dest,
                               int32_t *max, pmix_data_type_t type)
{
    pmix_info_t *info = dest;
    size_t left = buffer->bytes_used;

    must(type == PMIX_INFO && *max > 0 && buffer->unpack_ptr == buffer->base_ptr);
    look(buffer->base_ptr, left);
    for (int32_t i = 0; i < *max; i++) {
        if (left < 2)
            return PMIX_ERR_UNPACK_READ_PAST_END_OF_BUFFER;
        left -= 2;
        info[i].value.type = PMIX_STRING;
        info[i].value.data.string = strdup("text");
    }
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Info_load(pmix_info_t *info, const char *key, const void *data,
                             pmix_data_type_t type)
{
    must(key && data);
    info->value.type = PMIX_BOOL;
    return PMIX_SUCCESS;
}

/* ---- Events ---- */

static uint8_t answers[MANY];
static size_t nrequests;

static void on_modex(pmix_status_t status, const char *data, size_t len, void *arg,
                     pmix_release_cbfunc_t release, void *release_arg)
{
    uint8_t *count = arg;

    must((*count)++ == 0);
    must(status == PMIX_SUCCESS || len == 0);
    look(data, len);
    if (release)
        release(release_arg);
}

/* A rank of ours wants the data of another. */
static void begin_request(uint32_t rank)
{
    pmix_proc_t who;
    struct fbr_pmix_request *r;

    PMIX_LOAD_PROCID(&who, "job", rank);
    r = nrequests < MANY ? fbr_pmix_request_new(fbr_pmix_start_dmodex, &who) : NULL;
    if (!r)
        return;
    r->answer = FBR_PMIX_MODEX;
    r->call.modex = on_modex;
    r->call_data = &answers[nrequests++];
    must(fbr_pmix_request_post(r) == PMIX_SUCCESS);
}

static void answer_asked(size_t i, const uint8_t *data, size_t len)
{
    char *copy = malloc(len + 1);

    if (i >= nasked || !copy) {
        free(copy);
        return;
    }
    memcpy(copy, data, len);
    asked[i].fn(len % 4 == 3 ? PMIX_ERR_NOT_FOUND : PMIX_SUCCESS, len % 4 == 3 ? NULL : copy,
                len % 4 == 3 ? 0 : len, asked[i].arg);
    free(copy);
    asked[i] = asked[--nasked];
}

static void answer_notified(size_t i)
{
    if (i >= nnotified)
        return;
    notified[i].fn(PMIX_SUCCESS, notified[i].arg);
    notified[i] = notified[--nnotified];
}

static void play(struct fbr_bridge *b, uint8_t what, uint8_t number, const uint8_t *data,
                 size_t len)
{
    struct fbr_pmix_job *j = b->jobs;

    input = fbr_cur(data, len);
    switch (what % 8) {
    case 0:
        begin_request(number);
        break;
    case 1:
        answer_asked(number, data, len);
        break;
    case 2:
        answer_notified(number);
        break;
    case 3:
        fbr_pmix_lost(b, j->job, number, -9);
        break;
    case 4:
        fbr_pmix_forget(b, j->job);
        break;
    case 5:
        run_posted();
        break;
    default:
        fbr_pmix_message(b, number, &input);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t first[] = {0, 2, 4}, agents[] = {0, 1};
    static const struct fbr_bridge_host host = {.post = host_post, .notify = host_notify};
    const struct fbr_bridge_job job = {
        .nspace = "job", .size = 4, .nodes = 2, .first = first, .agents = agents};
    struct fbr_pmix_rank local[2] = {{0}};
    struct fbr_pmix_job j = {.job = &job, .local = local};
    struct fbr_bridge b = {.host = &host};

    memset(answers, 0, sizeof(answers));
    nrequests = nposted = nasked = nnotified = 0;
    j.prev = &j;
    b.jobs = &j;
    must(fbr_pmix_queue_open(&b) == 0);
    while (size >= 3) {
        size_t n = data[2] < size - 3 ? data[2] : size - 3;
        uint8_t *exact = malloc(n + 1);

        if (!exact)
            break;
        memcpy(exact, data + 3, n);
        play(&b, data[0], data[1], exact, n);
        free(exact);
        data += 3 + n;
        size -= 3 + n;
    }
    fbr_pmix_queue_shut();
    while (nasked) /* libpmix may call as long as it has not ended */
        answer_asked(0, (const uint8_t *)"late", 4);
    while (nnotified)
        answer_notified(0);
    fbr_pmix_queue_close(&b);
    run_posted();
    for (size_t i = 0; i < nrequests; i++)
        must(answers[i] == 1);
    return 0;
}
