/* pmix_request.c - requests of libpmix: their way from its thread to the loop, and their answers.
 *
 * The queue is the only thing that both threads touch. The first request in an empty queue posts
 * one drain to the loop, which takes all requests that come until it has run.
 *
 * There is one libpmix in a process, its upcalls have no argument, and a posted drain may run after
 * close(). So the queue is the one global here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "mpi_bridge/pmix_bridge.h"

static struct {
    pthread_mutex_t lock;
    /* NULL: none is open. Set before libpmix has a thread, reset after that thread has ended */
    struct fbr_bridge *bridge;
    struct fbr_pmix_request *first, **last;
    bool posted, shut;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

int fbr_pmix_queue_open(struct fbr_bridge *b)
{
    if (queue.bridge)
        return -EBUSY;
    pthread_mutex_lock(&queue.lock);
    queue.bridge = b;
    queue.first = NULL;
    queue.last = &queue.first;
    queue.posted = queue.shut = false;
    pthread_mutex_unlock(&queue.lock);
    return 0;
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

void fbr_pmix_request_free(struct fbr_pmix_request *r)
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

static void drain(void *unused)
{
    pthread_mutex_lock(&queue.lock);
    queue.posted = false;
    pthread_mutex_unlock(&queue.lock);
    fbr_pmix_queue_drain();
}

/* False: the bridge closes, and r belongs to the caller. */
static bool put(struct fbr_pmix_request *r)
{
    const struct fbr_bridge_host *host;
    bool post, shut;

    pthread_mutex_lock(&queue.lock);
    host = queue.bridge->host;
    shut = queue.shut;
    post = !shut && !queue.posted;
    if (!shut) {
        r->next_queued = NULL;
        *queue.last = r;
        queue.last = &r->next_queued;
        queue.posted = true;
    }
    pthread_mutex_unlock(&queue.lock);
    /* if this fails, the next request tries again; when the loop ends, close() answers those in the
     * queue */
    if (post && host->post(host->user, drain, NULL) < 0) {
        pthread_mutex_lock(&queue.lock);
        queue.posted = false;
        pthread_mutex_unlock(&queue.lock);
    }
    return !shut;
}

pmix_status_t fbr_pmix_request_post(struct fbr_pmix_request *r)
{
    if (!r)
        return PMIX_ERR_NOMEM;
    if (put(r))
        return PMIX_SUCCESS;
    fbr_pmix_request_free(r);
    return PMIX_ERR_UNREACH;
}

void fbr_pmix_request_back(struct fbr_pmix_request *r)
{
    put(r); /* if it fails, r stays with the bridge, which frees it */
}

static struct fbr_pmix_request *dequeue(void)
{
    struct fbr_pmix_request *r;

    pthread_mutex_lock(&queue.lock);
    r = queue.first;
    if (r) {
        queue.first = r->next_queued;
        if (!queue.first)
            queue.last = &queue.first;
    }
    pthread_mutex_unlock(&queue.lock);
    return r;
}

void fbr_pmix_request_attach(struct fbr_bridge *b, struct fbr_pmix_request *r)
{
    if (r->bridge) /* r comes back with the data that it waited for */
        return;
    r->bridge = b;
    DL_APPEND(b->pending, r);
}

void fbr_pmix_queue_drain(void)
{
    struct fbr_pmix_request *r;

    while ((r = dequeue())) {
        fbr_pmix_request_attach(queue.bridge, r);
        r->start(r);
    }
}

void fbr_pmix_queue_shut(void)
{
    struct fbr_pmix_request *r, *next;

    pthread_mutex_lock(&queue.lock);
    queue.shut = true;
    pthread_mutex_unlock(&queue.lock);
    while ((r = dequeue()))
        fbr_pmix_request_attach(queue.bridge, r);
    DL_FOREACH_SAFE(queue.bridge->pending, r, next) {
        r->open++; /* keeps r: libpmix may call for it until libpmix has ended */
        fbr_pmix_fail(r, PMIX_ERR_UNREACH);
    }
}

void fbr_pmix_queue_close(struct fbr_bridge *b)
{
    struct fbr_pmix_request *r, *next;

    if (queue.bridge != b)
        return;
    DL_FOREACH_SAFE(b->pending, r, next)
        fbr_pmix_request_free(r);
    pthread_mutex_lock(&queue.lock);
    queue.bridge = NULL;
    pthread_mutex_unlock(&queue.lock);
}

/* ---- Answers ---- */

static void mark_answered(struct fbr_pmix_request *r)
{
    r->answered = true;
    if (r->open == 0)
        fbr_pmix_request_free(r);
}

bool fbr_pmix_request_answered(struct fbr_pmix_request *r)
{
    r->open--;
    if (!r->answered)
        return true;
    if (r->open == 0)
        fbr_pmix_request_free(r);
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

uint32_t fbr_pmix_agents_end(const struct fbr_bridge *b)
{
    const struct fbr_pmix_job *j;
    uint32_t end = 0;

    DL_FOREACH(b->jobs, j)
        if (j->job->agents[j->job->nodes - 1] >= end)
            end = j->job->agents[j->job->nodes - 1] + 1;
    return end;
}

struct fbr_pmix_rank *fbr_pmix_local(struct fbr_pmix_job *j, uint32_t rank)
{
    const struct fbr_bridge_job *job = j->job;

    if (job->node < 0 || rank < job->first[job->node] || rank >= job->first[job->node + 1])
        return NULL;
    return &j->local[rank - job->first[job->node]];
}
