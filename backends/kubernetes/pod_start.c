/* pod_start.c - from a job to its pod: tickets in batches, pods at a limited rate.
 *
 * Jobs that are started within BATCH_MS share one Secret; each pod sees only its own key. A
 * ConfigMap owns the Secrets and pods of a run, and our own pod owns the ConfigMap, if we run in
 * one. So the end of the ConfigMap ends all objects of the run in the cluster, and it can be
 * listed, which Secrets cannot with the permissions that Fiber asks for. A master that is started
 * in the cluster has a Job of its own instead, and its pod owns the objects that it makes.
 *
 * A request may have taken effect although no answer came. So names are fixed beforehand: if a name
 * is taken by a pod with our label, that pod is ours.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/base/log.h"

#define BATCH_MS 10
#define BATCH_JOBS 500
#define BATCH_BYTES (600u << 10) /* before base64; the limit of a Secret is 1 MiB */
#define PATIENCE_MS 600000
#define QUOTA_MS 5000
#define QUOTA_TRIES 20
#define CONFLICT_MS 500
#define CREATE_MS 20
#define TICK_MS 1000

static const struct fbr_http_answer no_memory = {.body = "", .why = "out of memory"};

void fbr_kube_forget_ticket(struct fbr_kube_job *j)
{
    if (j->ticket)
        explicit_bzero(j->ticket, j->ticket_len);
    free(j->ticket);
    j->ticket = NULL;
}

/* ---- Pods ---- */

/* Adds credit for the pods that may be created now. */
static void refill(struct fbr_backend *b)
{
    double rate = fbr_config_int(b->env.config, "kubernetes_rate");
    double burst = fbr_config_int(b->env.config, "kubernetes_burst");
    uint64_t now = fbr_now_ms();

    b->credit += (double)(now - b->credit_at) * rate / 1000;
    b->credit = b->credit < burst ? b->credit : burst;
    b->credit_at = now;
}

static void create_after(struct fbr_backend *b, uint64_t ms)
{
    if (!fbr_timer_runs(&b->create))
        fbr_timer_start(&b->create, ms, 0);
}

static bool is_ours(const struct fbr_kube_job *j, const struct json_t *pod)
{
    return !strcmp(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL), j->b->run);
}

static void take_pod(struct fbr_kube_job *j, const struct json_t *pod)
{
    free(j->body);
    j->body = NULL;
    /* the watch was faster */
    if (!fbr_pod_takes(j->state, ON_CREATED))
        return;
    fbr_kube_created(j, fbr_json_text(pod, "metadata", "uid", NULL));
    fbr_kube_update(j, pod, false);
}

/* Returns after how many ms the namespace's quota may have room; 0: the quota was not the reason. A
 * new quota has not been counted yet, and of many concurrent requests some fail because another was
 * faster. */
static uint64_t quota_ms(const struct fbr_http_answer *a)
{
    if (a->status == 409 && strstr(a->body, "on resourcequotas"))
        return CONFLICT_MS;
    return a->status == 403 && (strstr(a->body, "exceeded quota") ||
                                strstr(a->body, "status unknown for quota"))
               ? QUOTA_MS
               : 0;
}

/* An answer 409 may have other reasons: a quota, or somebody's webhook. */
static bool is_taken(const struct fbr_http_answer *a)
{
    return a->status == 409 && strstr(a->body, "AlreadyExists");
}

static void wait_for_room(struct fbr_kube_job *j, const char *text)
{
    if (j->waits != FBR_KUBE_WAIT_QUEUE)
        j->waits_since = fbr_now_ms();
    j->waits = FBR_KUBE_WAIT_QUEUE;
    fbr_kube_pending(j, text);
}

/* The job is in the line before the runtime is notified, because the runtime may request its end
 * then. */
void fbr_kube_wait_turn(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    DL_APPEND(j->b->waiting, j);
    wait_for_room(j, s->text);
}

static void cannot_create(struct fbr_kube_job *j, const struct fbr_http_answer *a)
{
    struct fbr_backend *b = j->b;
    uint64_t ms = quota_ms(a);
    char text[512];

    fbr_kube_describe(b->api, a,
                      b->master_job[0] ? "its Job cannot be created" : "its pod cannot be created",
                      text, sizeof(text));
    fbr_kube_step_text(j, ms ? ON_NO_ROOM : ON_REFUSED, text);
    if (ms == QUOTA_MS) { /* then some try whether there is room, however many wait */
        b->credit = QUOTA_TRIES;
        b->credit_at = fbr_now_ms() + ms;
    }
    if (ms)
        create_after(b, ms);
}

/* Handles a pod that already has the job's name. */
static void on_found(void *user, const struct fbr_http_answer *a)
{
    struct json_t *pod = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    struct fbr_kube_job *j = user;

    if (pod && is_ours(j, pod))
        take_pod(j, pod);
    else if (pod)
        fbr_kube_step_text(j, ON_REFUSED, "another run has a pod of the same name");
    else
        cannot_create(j, a);
    fbr_json_free(pod);
    fbr_kube_answered(j);
}

void fbr_kube_find(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    if (fbr_kube_call(j, "GET", fbr_kube_path(j->b->api, "pods/%s", j->name), NULL, on_found) < 0)
        fbr_kube_step_text(j, ON_REFUSED, "its pod cannot be created: out of memory");
}

static void on_created(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;
    struct json_t *pod = NULL;
    bool made = a->status == 200 || a->status == 201 || a->status == 202;

    if (made)
        pod = fbr_json_parse(a->body, a->len, NULL);
    if (pod)
        take_pod(j, pod);
    else if (made || is_taken(a))
        fbr_kube_step(j, ON_TAKEN, NULL);
    else
        cannot_create(j, a);
    fbr_json_free(pod);
    fbr_kube_answered(j);
}

/* ---- A master's Job ---- */

static int wrap_master(struct fbr_kube_job *j)
{
    struct json_t *around = fbr_kube_master_job(j->pod);

    j->around = around ? fbr_json_print(around, NULL) : NULL;
    fbr_json_free(around);
    return j->around ? 0 : -ENOMEM;
}

void fbr_kube_end_job(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    fbr_kube_sweep(j->b, fbr_kube_jobs_path(j->b->api, "/%s", j->name));
    fbr_kube_finish_soon(j, s->text);
}

/* The watch will show the Job's pod. If the name is taken, the Job is ours: only this run knows its
 * names. */
static void on_job(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;

    if (a->status == 200 || a->status == 201 || a->status == 202 || is_taken(a))
        fbr_kube_step_text(j, ON_JOB, "");
    else
        cannot_create(j, a);
    fbr_kube_answered(j);
}

/* The server would accept the pod. Without this check, a Job whose pod is refused would wait for
 * ever without a reason. */
static void on_tried(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;

    if (a->status == 200 || a->status == 201 || a->status == 202)
        fbr_kube_step_text(j, ON_TRIED, "");
    else
        cannot_create(j, a);
    fbr_kube_answered(j);
}

void fbr_kube_create_job(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    struct fbr_backend *b = j->b;

    memcpy(b->master_job, j->name, sizeof(b->master_job));
    if (fbr_kube_call(j, "POST", fbr_kube_jobs_path(b->api, "?fieldManager=fiber"), j->around,
                      on_job) < 0)
        fbr_kube_step_text(j, ON_REFUSED, "its Job cannot be created: out of memory");
}

/* ---- Pods, again ---- */

/* Completes the pod's text with facts that were unknown before. */
static int finish_pod(struct fbr_kube_job *j)
{
    int rc;

    if (j->body)
        return 0;
    rc = fbr_kube_pod_bind(j->pod, j->secret ? j->secret->name : NULL, j->name, j->b->owner);
    if (rc < 0)
        goto done;
    j->body = fbr_json_print(j->pod, NULL);
    if (!j->body || (j->is_master && wrap_master(j) < 0))
        rc = -ENOMEM;
done:
    fbr_json_free(j->pod);
    j->pod = NULL;
    return rc;
}

void fbr_kube_create(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    const char *how = j->is_master ? "&dryRun=All" : "";

    if (finish_pod(j) < 0 ||
        fbr_kube_call(j, "POST", fbr_kube_path(j->b->api, "pods" FBR_KUBE_CREATE "%s", how),
                      j->body, j->is_master ? on_tried : on_created) < 0)
        fbr_kube_step_text(j, ON_REFUSED, "its pod cannot be created: out of memory");
}

void fbr_kube_create_more(void *backend)
{
    struct fbr_backend *b = backend;
    uint64_t now = fbr_now_ms();

    if (now < b->credit_at) {
        create_after(b, b->credit_at - now);
        return;
    }
    refill(b);
    while (b->waiting && b->credit >= 1) {
        struct fbr_kube_job *j = b->waiting;

        DL_DELETE(b->waiting, j);
        b->credit -= 1;
        fbr_kube_step(j, j->is_master ? ON_TURN_MASTER : ON_TURN, NULL);
    }
    if (b->waiting)
        create_after(b, CREATE_MS);
}

/* ---- Secrets ---- */

static void free_secret(struct fbr_kube_secret *s)
{
    DL_DELETE(s->b->secrets, s);
    free(s);
}

/* Secrets count in the namespace's quota, so none stays for a job that has ended. */
static void sweep_unused(struct fbr_kube_secret *s)
{
    if (s->users || !s->made)
        return;
    fbr_kube_sweep(s->b, fbr_kube_path(s->b->api, "secrets/%s", s->name));
    free_secret(s);
}

void fbr_kube_leave_ticket(struct fbr_kube_job *j)
{
    struct fbr_kube_secret *s = j->secret;

    if (!s)
        return;
    j->secret = NULL;
    s->users--;
    sweep_unused(s);
}

void fbr_kube_queue(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    DL_APPEND(j->b->queue, j);
    wait_for_room(j, s->text);
}

static void on_batch_failed(struct fbr_kube_secret *s, const struct fbr_http_answer *a,
                            const char *what)
{
    struct fbr_backend *b = s->b;
    uint64_t ms = quota_ms(a);
    struct fbr_kube_job *j;
    char text[512];

    fbr_kube_describe(b->api, a, what, text, sizeof(text));
    while ((j = s->jobs)) {
        DL_DELETE(s->jobs, j);
        fbr_kube_leave_ticket(j);
        fbr_kube_step_text(j, ms ? ON_NO_ROOM : ON_REFUSED, text);
    }
    if (ms && b->queue)
        fbr_timer_start(&b->batch, ms, 0);
    free_secret(s);
}

static void on_secret_failed(struct fbr_kube_secret *s, const struct fbr_http_answer *a)
{
    on_batch_failed(s, a, "its ticket cannot be handed over (create secrets)");
}

static void on_secret(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_secret *s = user;
    struct fbr_backend *b = s->b;
    struct fbr_kube_job *j;

    if (a->status != 201 && !is_taken(a)) {
        on_secret_failed(s, a);
    } else {
        while ((j = s->jobs)) {
            DL_DELETE(s->jobs, j);
            fbr_kube_step(j, ON_SECRET, NULL);
            fbr_kube_forget_ticket(j);
            if (!j->ticket_len)
                fbr_kube_leave_ticket(j);
            DL_APPEND(b->waiting, j);
        }
        s->made = true;
        sweep_unused(s);
        fbr_kube_create_more(b);
    }
}

/* Takes jobs from the line into the batch, when there is memory for what they need. */
static void fill(struct fbr_kube_secret *s)
{
    struct fbr_backend *b = s->b;
    size_t bytes = 0, n = 0;

    while (b->queue && n < BATCH_JOBS && bytes < BATCH_BYTES) {
        struct fbr_kube_job *j = b->queue;

        DL_DELETE(b->queue, j);
        DL_APPEND(s->jobs, j);
        fbr_kube_step(j, ON_BATCH, NULL);
        j->secret = s;
        s->users++;
        n++;
        bytes += j->ticket_len;
    }
}

/* Sends an object that the batch needs, and takes ownership of it. -ENOMEM; also if it is NULL. */
static int post(struct fbr_kube_secret *s, const char *kind, struct json_t *object,
                void (*done)(void *user, const struct fbr_http_answer *))
{
    struct fbr_kube_api *api = s->b->api;
    char *body = object ? fbr_json_print(object, NULL) : NULL;
    int rc = body ? fbr_kube_send(api, "POST", fbr_kube_path(api, "%s?fieldManager=fiber", kind),
                                  body, PATIENCE_MS, done, s)
                  : -ENOMEM;

    fbr_kube_forget(&body);
    fbr_json_free(object);
    return rc;
}

/* Makes the batch's Secret; NULL without memory. */
static struct json_t *make_secret(struct fbr_kube_secret *s)
{
    struct fbr_backend *b = s->b;
    struct json_t *secret = fbr_kube_secret(s->name, b->run, b->user, b->owner);

    if (secret && !s->jobs)
        fill(s);
    for (struct fbr_kube_job *j = s->jobs; secret && j; j = j->next)
        if (j->ticket && fbr_kube_secret_add(secret, j->name, j->ticket, j->ticket_len) < 0) {
            fbr_json_free(secret);
            secret = NULL;
        }
    return secret;
}

static void send_secret(struct fbr_kube_secret *s)
{
    struct fbr_backend *b = s->b;

    snprintf(s->name, sizeof(s->name), "fiber-%.32s-t%u", b->run, b->batches++);
    if (post(s, "secrets", make_secret(s), on_secret) < 0)
        on_secret_failed(s, &no_memory);
}

/* ---- The owner ---- */

static void send_owner(struct fbr_kube_secret *s);

static void on_owner(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_secret *s = user;
    struct fbr_backend *b = s->b;
    struct json_t *made = a->status == 201 ? fbr_json_parse(a->body, a->len, NULL) : NULL;

    b->owning = false;
    if (is_taken(a)) {
        fbr_debug("kubernetes: the answer with the owner's uid was lost; making another");
        /* nothing else would remove it */
        fbr_kube_sweep(b, fbr_kube_path(b->api, "configmaps/%s", b->owner_name));
        send_owner(s);
        return;
    }
    if (made) {
        fbr_json_free(b->owner);
        b->owner = fbr_kube_owner("ConfigMap", b->owner_name,
                                  fbr_json_text(made, "metadata", "uid", NULL));
    }
    if (made && b->owner) {
        fbr_kube_sweep_dead(b);
        send_secret(s);
    } else {
        if (a->status >= 400) /* else it may exist */
            b->owner_name[0] = '\0';
        on_batch_failed(s, a, "the owner of its pod cannot be made (create configmaps)");
    }
    fbr_json_free(made);
    if (b->queue && !fbr_timer_runs(&b->batch))
        fbr_kube_on_batch(b);
}

/* Makes the object that is to own all others, for the first batch. */
static void send_owner(struct fbr_kube_secret *s)
{
    struct fbr_backend *b = s->b;
    struct json_t *map = NULL, *ours = NULL;

    snprintf(b->owner_name, sizeof(b->owner_name), "fiber-%.32s-o%u", b->run, b->batches++);
    if (b->own_pod)
        ours = fbr_kube_owner("Pod", fbr_json_text(b->own_pod, "metadata", "name", NULL),
                              fbr_json_text(b->own_pod, "metadata", "uid", NULL));
    if (ours || !b->own_pod)
        map = fbr_kube_owner_map(b->owner_name, b->run, b->user, b->master, ours);
    fbr_json_free(ours);
    if (map && !s->jobs)
        fill(s);
    b->owning = post(s, "configmaps", map, on_owner) == 0;
    if (!b->owning) {
        b->owner_name[0] = '\0';
        on_secret_failed(s, &no_memory);
    }
}

static void on_owner_tried(void *user, const struct fbr_http_answer *a)
{
    struct fbr_backend *b = user;

    b->owner_tried = false;
    if (a->status != 404 || !b->owner_name[0] || b->owning)
        return;
    fbr_warn("kubernetes: the ConfigMap %s, which owns the pods of the run, was deleted by "
             "somebody else, so the cluster deletes these pods; the next ones get another owner",
             b->owner_name);
    b->owner_name[0] = '\0';
}

void fbr_kube_try_owner(struct fbr_backend *b)
{
    if (b->owner_tried || !b->owner_name[0])
        return;
    b->owner_tried =
        fbr_kube_send(b->api, "DELETE", fbr_kube_path(b->api, "configmaps/%s", b->owner_name),
                      FBR_KUBE_TRY_DELETE, PATIENCE_MS, on_owner_tried, b) == 0;
}

/* ---- Batches ---- */

static void send_batch(struct fbr_backend *b)
{
    struct fbr_kube_secret *s = calloc(1, sizeof(*s));

    if (!s) /* the next batch takes the jobs along */
        return;
    s->b = b;
    DL_APPEND(b->secrets, s);
    if (b->owner && b->owner_name[0])
        send_secret(s);
    else
        send_owner(s);
}

void fbr_kube_on_batch(void *backend)
{
    struct fbr_backend *b = backend;

    while (b->queue && !b->owning) {
        const struct fbr_kube_job *first = b->queue;

        send_batch(b);
        /* no memory for a Secret: lets the loop do other work first */
        if (b->queue == first) {
            fbr_timer_start(&b->batch, BATCH_MS, 0);
            return;
        }
    }
}

/* ---- Killed, or timed out, before its pod was sent ---- */

void fbr_kube_leave_queue(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    DL_DELETE(j->b->queue, j);
    fbr_kube_finish_soon(j, s->text);
}

void fbr_kube_leave_secret(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    DL_DELETE(j->secret->jobs, j);
    fbr_kube_leave_ticket(j);
    fbr_kube_finish_soon(j, s->text);
}

void fbr_kube_leave_waiting(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    DL_DELETE(j->b->waiting, j);
    fbr_kube_finish_soon(j, s->text);
}

/* ---- Jobs ---- */

static int begin_watch(struct fbr_backend *b, const struct fbr_job *job, struct fbr_error *err)
{
    char selector[128], *escaped;
    int rc;

    if (b->watch)
        return 0;
    fbr_kube_label(b->run, job->run_uid);
    snprintf(selector, sizeof(selector), FBR_KUBE_RUN_LABEL "=%s", b->run);
    escaped = fbr_http_escape(selector);
    rc = escaped ? fbr_kube_watch_open(&b->watch, b->api, escaped, &fbr_kube_watch_ops, b, err)
                 : fbr_fail(err, -ENOMEM, "out of memory");
    free(escaped);
    return rc;
}

/* False: there is no memory for its entry. */
static bool keep(struct fbr_kube_job *j)
{
    HASH_ADD_STR(j->b->all, name, j);
    return j->hh.tbl;
}

int fbr_kube_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                   struct fbr_error *err)
{
    struct fbr_kube_job *j = calloc(1, sizeof(*j)), *same;
    int rc = j ? begin_watch(b, job, err) : fbr_fail(err, -ENOMEM, "out of memory");

    if (rc < 0) {
        free(j);
        return rc;
    }
    j->b = b;
    j->user = user;
    j->began = fbr_now_ms();
    j->code = FBR_EXIT_UNKNOWN;
    j->is_master = job->is_master != 0;
    j->grace_s = fbr_kube_grace(job, &b->settings);
    fbr_kube_pod_name(j->name, job);
    j->pod = fbr_kube_pod(job, &b->settings, err);
    j->ticket = job->ticket ? malloc(job->ticket_len + 1) : NULL;
    j->ticket_len = job->ticket ? job->ticket_len : 0;
    if (j->ticket)
        memcpy(j->ticket, job->ticket, job->ticket_len);
    HASH_FIND_STR(b->all, j->name, same);
    if (!j->pod)
        rc = -EINVAL;
    else if (same)
        rc = fbr_fail(err, -EEXIST, "there is a job '%s' already", job->name);
    else if ((job->ticket && !j->ticket) || !keep(j))
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        fbr_kube_forget_ticket(j);
        fbr_json_free(j->pod);
        free(j);
        return rc;
    }
    *handle = j;
    if (!fbr_timer_runs(&b->tick))
        fbr_timer_start(&b->tick, TICK_MS, TICK_MS);
    if (j->is_master) { /* it has no ticket, and only its Job remains after its end */
        j->state = WAITING;
        DL_APPEND(b->waiting, j);
        create_after(b, 0);
        return 0;
    }
    DL_APPEND(b->queue, j);
    if (!fbr_timer_runs(&b->batch) && !b->owning)
        fbr_timer_start(&b->batch, BATCH_MS, 0);
    return 0;
}
