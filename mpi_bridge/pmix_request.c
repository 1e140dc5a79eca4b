/* pmix_request.c - requests of libpmix: their way from its thread to the loop, and their answers.
 *
 * The queue is the only thing that both threads touch. The first request in an empty queue posts
 * one drain to the loop, which takes all requests that come until it has run. A posted drain may
 * run after close(): it holds the queue, not the bridge.
 *
 * There is one libpmix in a process, and its upcalls have no argument, so the queue for the upcalls
 * is the one global here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

struct fbr_pmix_queue {
    struct fbr_bridge *bridge; /* loop thread, until shut */
    pthread_mutex_t lock;
    struct fbr_pmix_request *first, **last;
    bool posted, shut;
    int refs; /* the bridge, and the posted drain */
};

/* set before libpmix has a thread, reset after that thread has ended */
static struct fbr_pmix_queue *queue;

static void unref(struct fbr_pmix_queue *q)
{
    int refs;

    pthread_mutex_lock(&q->lock);
    refs = --q->refs;
    pthread_mutex_unlock(&q->lock);
    if (refs > 0)
        return;
    pthread_mutex_destroy(&q->lock);
    free(q);
}

struct fbr_pmix_queue *fbr_pmix_queue_open(struct fbr_bridge *b)
{
    struct fbr_pmix_queue *q = queue ? NULL : calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    q->bridge = b;
    q->last = &q->first;
    q->refs = 1;
    pthread_mutex_init(&q->lock, NULL);
    queue = q;
    return q;
}

/* ---- Requests ---- */

struct fbr_pmix_request *fbr_pmix_request_new(void (*start)(struct fbr_pmix_request *r),
                                              const pmix_proc_t *who)
{
    struct fbr_pmix_request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->start = start;
    if (who)
        r->who = *who;
    return r;
}

static void request_free(struct fbr_pmix_request *r)
{
    if (r->bridge)
        DL_DELETE(r->bridge->pending, r);
    for (size_t i = 0; i < r->nkeys; i++) {
        if (r->keys)
            free(r->keys[i]);
        if (r->found)
            fbr_buf_fini(&r->found[i].data);
    }
    free(r->keys);
    free(r->found);
    free(r->procs);
    free(r->data);
    free(r);
}

/* Called with the queue's lock. True: the caller has to post a drain. */
static bool enqueue(struct fbr_pmix_queue *q, struct fbr_pmix_request *r)
{
    bool first = !q->posted;

    r->next_queued = NULL;
    *q->last = r;
    q->last = &r->next_queued;
    if (first) {
        q->posted = true;
        q->refs++;
    }
    return first;
}

static void drain(void *arg)
{
    struct fbr_pmix_queue *q = arg;

    pthread_mutex_lock(&q->lock);
    q->posted = false;
    pthread_mutex_unlock(&q->lock);
    fbr_pmix_queue_drain(q);
    unref(q);
}

/* False: the bridge closes, and r belongs to the caller. */
static bool put(struct fbr_pmix_request *r)
{
    struct fbr_pmix_queue *q = queue;
    const struct fbr_bridge_host *host = NULL;
    bool post = false, shut;

    pthread_mutex_lock(&q->lock);
    shut = q->shut;
    if (!shut) {
        host = q->bridge->host;
        post = enqueue(q, r);
    }
    pthread_mutex_unlock(&q->lock);
    /* the loop ends: close() answers the requests in the queue */
    if (post && host->post(host->user, drain, q) < 0)
        unref(q);
    return !shut;
}

pmix_status_t fbr_pmix_request_post(struct fbr_pmix_request *r)
{
    if (!r)
        return PMIX_ERR_NOMEM;
    if (put(r))
        return PMIX_SUCCESS;
    request_free(r);
    return PMIX_ERR_UNREACH;
}

void fbr_pmix_request_back(struct fbr_pmix_request *r)
{
    put(r); /* if it fails, r stays with the bridge, which frees it */
}

static struct fbr_pmix_request *dequeue(struct fbr_pmix_queue *q)
{
    struct fbr_pmix_request *r;

    pthread_mutex_lock(&q->lock);
    r = q->first;
    if (r) {
        q->first = r->next_queued;
        if (!q->first)
            q->last = &q->first;
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

void fbr_pmix_request_attach(struct fbr_bridge *b, struct fbr_pmix_request *r)
{
    if (r->bridge) /* r comes back with the data that it waited for */
        return;
    r->bridge = b;
    DL_APPEND(b->pending, r);
}

void fbr_pmix_queue_drain(struct fbr_pmix_queue *q)
{
    struct fbr_pmix_request *r;

    pthread_mutex_lock(&q->lock);
    q->refs++; /* a request may close the bridge */
    pthread_mutex_unlock(&q->lock);
    while ((r = dequeue(q))) {
        fbr_pmix_request_attach(q->bridge, r);
        r->start(r);
    }
    unref(q);
}

void fbr_pmix_queue_shut(struct fbr_pmix_queue *q)
{
    struct fbr_pmix_request *r, *next;

    pthread_mutex_lock(&q->lock);
    q->shut = true;
    pthread_mutex_unlock(&q->lock);
    while ((r = dequeue(q)))
        fbr_pmix_request_attach(q->bridge, r);
    DL_FOREACH_SAFE(q->bridge->pending, r, next) {
        r->open++; /* keeps r: libpmix may call for it until libpmix has ended */
        fbr_pmix_fail(r, PMIX_ERR_UNREACH);
    }
}

void fbr_pmix_queue_close(struct fbr_pmix_queue *q)
{
    struct fbr_pmix_request *r, *next;

    DL_FOREACH_SAFE(q->bridge->pending, r, next)
        request_free(r);
    q->bridge = NULL;
    queue = NULL;
    unref(q);
}

/* ---- Answers ---- */

static void mark_answered(struct fbr_pmix_request *r)
{
    r->answered = true;
    if (r->open == 0)
        request_free(r);
}

bool fbr_pmix_request_answered(struct fbr_pmix_request *r)
{
    r->open--;
    if (!r->answered)
        return true;
    if (r->open == 0)
        request_free(r);
    return false;
}

void fbr_pmix_fail(struct fbr_pmix_request *r, pmix_status_t status)
{
    if (r->answered)
        return;
    switch (r->answer) {
    case FBR_PMIX_NOTHING:
        break;
    case FBR_PMIX_OP:
        if (r->call.op)
            r->call.op(status, r->call_data);
        break;
    case FBR_PMIX_MODEX:
        r->call.modex(status, NULL, 0, r->call_data, NULL, NULL);
        break;
    case FBR_PMIX_LOOKUP:
        r->call.lookup(status, NULL, 0, r->call_data);
        break;
    case FBR_PMIX_SPAWN:
        r->call.spawn(status, NULL, r->call_data);
        break;
    case FBR_PMIX_INFO:
        r->call.info(status, NULL, 0, r->call_data, NULL, NULL);
        break;
    }
    mark_answered(r);
}

void fbr_pmix_reply_modex(struct fbr_pmix_request *r, char *data, size_t len)
{
    r->call.modex(PMIX_SUCCESS, data, len, r->call_data, free, data);
    mark_answered(r);
}

void fbr_pmix_reply_spawn(struct fbr_pmix_request *r, const char *nspace)
{
    pmix_nspace_t name;

    PMIX_LOAD_NSPACE(name, nspace);
    r->call.spawn(PMIX_SUCCESS, name, r->call_data);
    mark_answered(r);
}

static void free_infos(void *arg)
{
    pmix_data_array_t *array = arg;

    PMIX_DATA_ARRAY_DESTRUCT(array);
    free(array);
}

void fbr_pmix_reply_info(struct fbr_pmix_request *r, pmix_status_t status, void *list)
{
    pmix_data_array_t *array = calloc(1, sizeof(*array));
    pmix_status_t rc = array ? PMIx_Info_list_convert(list, array) : PMIX_ERR_NOMEM;

    PMIx_Info_list_release(list);
    if (rc != PMIX_SUCCESS) {
        free(array);
        fbr_pmix_fail(r, rc == PMIX_ERR_EMPTY ? status : rc);
        return;
    }
    r->call.info(status, array->array, array->size, r->call_data, free_infos, array);
    mark_answered(r);
}

pmix_status_t fbr_pmix_status(int code)
{
    switch (code) {
    case 0:
        return PMIX_SUCCESS;
    case -ENOMEM:
        return PMIX_ERR_NOMEM;
    case -ENOENT:
        return PMIX_ERR_NOT_FOUND;
    case -EEXIST:
        return PMIX_ERR_DUPLICATE_KEY;
    case -ETIMEDOUT:
        return PMIX_ERR_TIMEOUT;
    case -EINVAL:
        return PMIX_ERR_BAD_PARAM;
    case -ENOSYS:
    case -EOPNOTSUPP:
        return PMIX_ERR_NOT_SUPPORTED;
    case -EPERM:
    case -EACCES:
        return PMIX_ERR_NO_PERMISSIONS;
    case -ENOSPC:
    case -EAGAIN:
        return PMIX_ERR_OUT_OF_RESOURCE;
    case -ECONNABORTED:
        return PMIX_ERR_LOST_CONNECTION;
    default:
        return PMIX_ERROR;
    }
}

/* ---- Jobs and ranks ---- */

struct fbr_pmix_job *fbr_pmix_job_named(struct fbr_bridge *b, const char *nspace)
{
    struct fbr_pmix_job *j;

    DL_FOREACH(b->jobs, j) {
        if (strcmp(j->job->nspace, nspace) == 0)
            return j;
    }
    return NULL;
}

struct fbr_pmix_job *fbr_pmix_job_numbered(struct fbr_bridge *b, uint32_t id)
{
    struct fbr_pmix_job *j;

    DL_FOREACH(b->jobs, j) {
        if (j->job->id == id)
            return j;
    }
    return NULL;
}

struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank)
{
    const struct fbr_bridge_job *job = j->job;

    if (job->node < 0 || rank < job->first[job->node] || rank >= job->first[job->node + 1])
        return NULL;
    return &j->local[rank - job->first[job->node]];
}
