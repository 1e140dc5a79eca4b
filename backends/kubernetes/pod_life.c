/* pod_life.c - from a pod to its end: what the watch says, its output, and how long it may wait.
 *
 * Only the server ends a job: its pod has ended, or is no longer there. What this backend gives up (an image
 * that cannot be had) it deletes, and the end comes as any other, with the reason that it was given up for.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/net/bind.h"
#include "runtime/base/log.h"

#define TICK_MS 1000
#define DRAIN_MS 3000   /* for the rest of its output */
#define BROKEN_MS 20000 /* when it broke off: the server may not yet be what it was */
#define TAIL_LINES 100
#define CONFIG_MS 30000
#define LOOK_AFTER_MS 10000 /* then what its events say is asked for */
#define LOOK_AGAIN_MS 30000
#define LOOKS 4 /* in one tick */
#define AWAY_MS 5000
#define LOG_AGAIN_MS 5000
#define ASK_AFTER_MS 15000
#define PATIENCE_MS 600000
#define GIVEN_UP " (given up after kubernetes_pending_timeout)"
#define DELETED_BY_OTHERS "its pod was deleted by somebody else"

/* ---- Words to the runtime ---- */

void fbr_kube_tell(struct fbr_kube_job *j, const struct fbr_job_event *e)
{
    struct fbr_job_event copy = *e;

    copy.text = copy.text ? copy.text : "";
    if (!j->released)
        j->b->env.event(j->user, &copy);
}

void fbr_kube_pending(struct fbr_kube_job *j, const char *text)
{
    if (!text[0] || !strcmp(text, j->text))
        return;
    snprintf(j->text, sizeof(j->text), "%s", text);
    fbr_debug("kubernetes: %s: %s", j->name, j->text);
    fbr_kube_tell(
        j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = j->text, .placed = j->placed});
}

void fbr_kube_job_free(struct fbr_kube_job *j)
{
    fbr_kube_log_close(j->log);
    fbr_timer_fini(&j->drain);
    fbr_kube_forget_ticket(j);
    fbr_json_free(j->pod);
    free(j->body);
    free(j->around);
    free(j);
}

void fbr_kube_settle(struct fbr_kube_job *j)
{
    if (j->released && j->stage == ENDED && !j->calls)
        fbr_kube_job_free(j);
}

int fbr_kube_call(struct fbr_kube_job *j, const char *method, char *path, const char *body,
                  void (*done)(void *user, const struct fbr_http_answer *))
{
    int rc = fbr_kube_send(j->b->api, method, path, body, PATIENCE_MS, done, j);

    j->calls += rc == 0;
    return rc;
}

void fbr_kube_answered(struct fbr_kube_job *j)
{
    j->calls--;
    fbr_kube_settle(j);
}

/* ---- Deleting ---- */

char *fbr_kube_delete_body(int grace_s, const char *uid)
{
    struct json_t *j =
        fbr_json_pack("{s:s, s:s, s:i, s:s}", "kind", "DeleteOptions", "apiVersion", "v1",
                      "gracePeriodSeconds", grace_s, "propagationPolicy", "Background");
    char *text = NULL;

    if (j && (!uid[0] || fbr_json_set(j, "preconditions", fbr_json_pack("{s:s}", "uid", uid)) == 0))
        text = fbr_json_print(j, NULL);
    fbr_json_free(j);
    return text;
}

static void on_deleted(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;
    char text[512];

    if (a->status == 404 ||
        a->status == 409) { /* it, or the pod that we knew, is no longer there */
        if (j->stage == LIVING)
            fbr_kube_gone(j);
    } else if (a->status < 200 || a->status >= 300) {
        fbr_kube_say(j->b->api, a, "its pod cannot be deleted", text, sizeof(text));
        fbr_warn("kubernetes: %s: %s", j->name, text);
    }
    fbr_kube_answered(j);
}

void fbr_kube_delete(struct fbr_kube_job *j, int grace_s)
{
    char *body = fbr_kube_delete_body(grace_s, j->uid);

    j->asked_at = fbr_now_ms() + (uint64_t)grace_s * 1000;
    if (!body || fbr_kube_call(j, "DELETE", fbr_kube_path(j->b->api, "pods/%s", j->name), body,
                               on_deleted) < 0)
        fbr_warn("kubernetes: %s: out of memory for its end", j->name);
    free(body);
}

static void on_swept(void *user, const struct fbr_http_answer *a)
{
    (void)user;
    if (a->status >= 300 && a->status != 404)
        fbr_debug("kubernetes: what is not needed any more stays: HTTP status %d", a->status);
}

void fbr_kube_sweep(struct fbr_backend *b, const char *kind, const char *name)
{
    char *body = fbr_kube_delete_body(0, "");

    if (body)
        fbr_kube_send(b->api, "DELETE", fbr_kube_path(b->api, "%s/%s", kind, name), body,
                      PATIENCE_MS, on_swept, b);
    free(body);
}

/* The last few pods stay until the run ends, for people who want to look at them. */
static void keep(struct fbr_kube_job *j)
{
    struct fbr_backend *b = j->b;
    char *place = b->kept[b->kept_at++ % FBR_KUBE_KEPT];

    if (place[0])
        fbr_kube_sweep(b, "pods", place);
    memcpy(place, j->name, FBR_KUBE_NAME);
}

/* ---- The end ---- */

static void finish(struct fbr_kube_job *j)
{
    struct fbr_backend *b = j->b;
    int32_t code = j->code;

    if (j->asked == SIGKILL && (code == -SIGTERM || code == FBR_EXIT_UNKNOWN))
        code = -SIGKILL; /* the cluster says please first */
    fbr_timer_fini(&j->drain);
    fbr_kube_log_close(j->log);
    j->log = NULL;
    b->follows -= j->follows;
    j->follows = false;
    HASH_DEL(b->all, j);
    j->stage = ENDED;
    fbr_kube_forget_ticket(j);
    j->calls++; /* it lives until the end of this function */
    fbr_kube_tell(
        j, &(struct fbr_job_event){
               .type = FBR_JOB_EXITED, .code = code, .text = j->text, .disrupted = j->disruption});
    fbr_kube_answered(j);
}

static void on_drained(void *arg)
{
    struct fbr_kube_job *j = arg;

    if (j->log && !j->log_over && j->paused) /* a slow reader of ours is not the server's fault */
        fbr_timer_start(&j->drain, DRAIN_MS, 0);
    else
        finish(j);
}

static void set_end(struct fbr_kube_job *j, int32_t code, const char *text)
{
    if (!j->failing) {
        j->code = code;
        snprintf(j->text, sizeof(j->text), "%s", text);
    }
    j->stage = ENDING;
}

void fbr_kube_finish(struct fbr_kube_job *j, int32_t code, const char *text)
{
    if (j->stage >= ENDING)
        return;
    set_end(j, code, text);
    finish(j);
}

static void drain(struct fbr_kube_job *j, uint64_t ms)
{
    if (fbr_timer_init(&j->drain, j->b->env.loop, on_drained, j) < 0)
        finish(j);
    else
        fbr_timer_start(&j->drain, ms, 0);
}

void fbr_kube_finish_soon(struct fbr_kube_job *j, int32_t code, const char *text)
{
    set_end(j, code, text);
    drain(j, 0);
}

/* ---- Output ---- */

static void on_output(void *user, const void *data, size_t len)
{
    struct fbr_kube_job *j = user;

    if (len)
        fbr_kube_tell(j, &(struct fbr_job_event){
                             .type = FBR_JOB_OUTPUT, .stream = 1, .data = data, .len = len});
}

static void on_output_end(void *user)
{
    struct fbr_kube_job *j = user;

    j->log_over = true;
    j->log_over_at = fbr_now_ms();
    if (j->stage == ENDING) /* not from here, where its log is in use */
        fbr_timer_start(&j->drain, 0, 0);
}

static void read_output(struct fbr_kube_job *j, bool follow, unsigned tail)
{
    const struct fbr_kube_log_options o = {.pod = j->name,
                                           .follow = follow,
                                           .tail = tail,
                                           .data = on_output,
                                           .done = on_output_end,
                                           .user = j};

    if (fbr_kube_log_open(&j->log, j->b->api, &o) < 0)
        j->log = NULL;
    else if (follow) {
        j->follows = true;
        j->b->follows++;
    }
}

static bool may_follow(const struct fbr_backend *b)
{
    return b->follows < (unsigned)fbr_config_int(b->env.config, "kubernetes_follow_logs");
}

/* What it wrote and was not read yet. */
static void read_rest(struct fbr_kube_job *j, int32_t code)
{
    if (j->is_deleted)
        return;
    if (!j->log && may_follow(j->b))
        read_output(j, false, 0);
    else if (!j->log && code != 0)
        read_output(j, false, TAIL_LINES);
    /* It may have broken off while the server was away, and not have been asked for again. */
    else if (j->log && j->log_over && !j->log_lost && !fbr_kube_log_is_whole(j->log))
        j->log_over = !fbr_kube_log_resume(j->log);
}

/* It has ended; what it wrote comes first. */
static void begin_end(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    if (!j->is_deleted && !s->deleting) {
        if (s->others)
            fbr_kube_sweep(j->b, "pods", j->name); /* other containers of it would run on */
        else
            keep(j);
    }
    j->disruption =
        s->disruption || j->theirs || ((j->is_deleted || s->deleting) && !j->asked && !j->failing);
    set_end(j, s->code, j->disruption && !s->text[0] ? DELETED_BY_OTHERS : s->text);
    read_rest(j, s->code);
    if (j->log && !j->log_over)
        drain(j, fbr_kube_log_is_whole(j->log) ? DRAIN_MS : BROKEN_MS);
    else
        finish(j);
}

/* ---- States ---- */

/* Gives it up: it cannot start. */
static void give_up(struct fbr_kube_job *j, const char *text)
{
    if (j->failing)
        return;
    fbr_kube_pending(j, text);
    j->failing = true;
    j->code = FBR_EXIT_UNKNOWN;
    snprintf(j->text, sizeof(j->text), "%s", text);
    fbr_kube_delete(j, 1);
}

static void note_waiting(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    if (s->wait != j->waits) {
        j->waits = s->wait;
        j->waits_since = fbr_now_ms();
    }
    j->placed = s->placed;
    if (!j->failing)
        fbr_kube_pending(j, s->text);
    if (s->wait == FBR_KUBE_WAIT_NEVER)
        give_up(j, s->text);
}

/* The server has its pod: from now on people can look at it by its name. */
void fbr_kube_created(struct fbr_kube_job *j, const char *uid)
{
    snprintf(j->uid, sizeof(j->uid), "%s", uid);
    j->stage = LIVING;
    j->began = fbr_now_ms(); /* it may have waited for its turn: it is not to blame for that */
    fbr_kube_tell(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->name});
    if (j->asked)
        fbr_kube_delete(j, j->asked == SIGKILL ? 1 : j->grace_s);
}

static void note_running(struct fbr_kube_job *j)
{
    const char *bind = fbr_config_str(j->b->env.config, "bind"), *address = j->b->address;
    char text[200], ours[FBR_BIND_MAX];

    if (j->started)
        return;
    j->started = true;
    j->waits = FBR_KUBE_WAIT_NONE;
    if (bind[0] && fbr_bind_find(bind, ours) == 0)
        address = ours;
    /* The sentence for a job that does not join; not longer, since a report has little room. */
    snprintf(text, sizeof(text),
             "its pod runs and calls %.45s: if it cannot, set bind, a NetworkPolicy (`fiber "
             "kubernetes manifest --master`) or --in-cluster",
             address[0] ? address : "us");
    snprintf(j->text, sizeof(j->text), "%s", text);
    fbr_kube_tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text, .runs = 1});
    if (!j->log && may_follow(j->b))
        read_output(j, true, 0);
}

void fbr_kube_gone(struct fbr_kube_job *j)
{
    struct fbr_kube_state none = {.phase = FBR_KUBE_ENDED, .code = FBR_EXIT_UNKNOWN};

    j->is_deleted = true;
    if (j->asked && !j->started)
        none.code = -j->asked;
    else
        snprintf(none.text, sizeof(none.text), "%s",
                 j->asked ? "" : "its pod was deleted, and nobody saw how it ended");
    begin_end(j, &none);
}

/* Somebody else ends it. That is told at once: its program may hang up seconds before its pod is seen to be over. */
static void note_theirs(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    bool first = !j->theirs;

    j->theirs = true;
    if (first && s->phase == FBR_KUBE_RUNNING)
        fbr_kube_tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                                 .text = s->text[0] ? s->text : DELETED_BY_OTHERS,
                                                 .runs = 1,
                                                 .disrupted = 1});
}

void fbr_kube_update(struct fbr_kube_job *j, const struct json_t *pod, bool deleted)
{
    struct fbr_kube_state s;

    j->missing = false;
    if (j->stage != LIVING)
        return;
    fbr_kube_state(&s, pod);
    if (s.deleting && !j->asked && !j->failing)
        note_theirs(j, &s);
    if (deleted && s.phase != FBR_KUBE_ENDED) {
        fbr_kube_gone(j);
        return;
    }
    j->is_deleted = deleted;
    if (s.phase == FBR_KUBE_ENDED)
        begin_end(j, &s);
    else if (s.phase == FBR_KUBE_RUNNING)
        note_running(j);
    else
        note_waiting(j, &s);
}

/* ---- The watch ---- */

/* The pod of a master's Job gets its name from the cluster; from now on that is the job's. */
static struct fbr_kube_job *rename_master(struct fbr_backend *b, const struct json_t *pod,
                                          const char *name)
{
    const char *of = fbr_json_text(pod, "metadata", "labels", "batch.kubernetes.io/job-name", NULL);
    struct fbr_kube_job *j;

    if (!of[0]) /* before 1.27 */
        of = fbr_json_text(pod, "metadata", "labels", "job-name", NULL);
    HASH_FIND_STR(b->all, of, j);
    if (!j || !j->is_master || j->stage != CREATING || strlen(name) >= sizeof(j->name))
        return NULL;
    HASH_DEL(b->all, j);
    strcpy(j->name, name);
    HASH_ADD_STR(b->all, name, j);
    return j;
}

static void on_pod(void *user, const struct json_t *pod, bool deleted)
{
    const char *name = fbr_json_text(pod, "metadata", "name", NULL);
    const char *uid = fbr_json_text(pod, "metadata", "uid", NULL);
    struct fbr_backend *b = user;
    struct fbr_kube_job *j;

    b->troubled = 0;
    HASH_FIND_STR(b->all, name, j);
    if (!j && b->master_job[0])
        j = rename_master(b, pod, name);
    if (!j || j->stage < CREATING)
        return;
    if (j->stage == CREATING) /* before its answer */
        fbr_kube_created(j, uid);
    if (!strcmp(j->uid, uid))
        fbr_kube_update(j, pod, deleted);
}

static void on_listing(void *user)
{
    struct fbr_backend *b = user;
    struct fbr_kube_job *j, *next;

    HASH_ITER(hh, b->all, j, next)
        j->missing = j->stage == LIVING;
}

static void on_listed(void *user)
{
    struct fbr_backend *b = user;
    struct fbr_kube_job *j, *next;

    b->troubled = 0;
    HASH_ITER(hh, b->all, j, next)
        if (j->missing && j->stage == LIVING)
            fbr_kube_gone(j);
}

static void on_trouble(void *user, const char *text)
{
    struct fbr_backend *b = user;
    uint64_t now = fbr_now_ms();

    if (b->troubled && now < b->troubled + 60000)
        return;
    b->troubled = now;
    fbr_warn("kubernetes: %s; jobs go on, and what becomes of them is seen when that is over",
             text);
}

const struct fbr_kube_watch_ops fbr_kube_watch_ops = {
    .pod = on_pod, .listing = on_listing, .listed = on_listed, .trouble = on_trouble};

/* ---- Waiting too long ---- */

static void on_events(void *user, const struct fbr_http_answer *a)
{
    struct json_t *list = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    struct fbr_kube_job *j = user;
    char text[512];

    fbr_kube_newest_event(list, text, sizeof(text));
    if (j->stage == LIVING && !j->started && !j->failing && j->waits == FBR_KUBE_WAIT_NONE)
        fbr_kube_pending(j, text);
    fbr_json_free(list);
    fbr_kube_answered(j);
}

static bool look(struct fbr_kube_job *j, uint64_t now)
{
    if (j->waits != FBR_KUBE_WAIT_NONE || now < j->began + LOOK_AFTER_MS ||
        (j->looked && now < j->looked + LOOK_AGAIN_MS))
        return false;
    j->looked = now;
    return fbr_kube_call(
               j, "GET",
               fbr_kube_path(j->b->api, "events?fieldSelector=involvedObject.uid%%3D%s", j->uid),
               NULL, on_events) == 0;
}

static void check_waiting(struct fbr_kube_job *j, uint64_t now, unsigned *looks)
{
    const struct fbr_config *config = j->b->env.config;
    uint64_t pull = (uint64_t)fbr_config_ms(config, "kubernetes_pull_timeout");
    uint64_t pending = (uint64_t)fbr_config_ms(config, "kubernetes_pending_timeout");
    char text[512];

    if (j->failing)
        return;
    snprintf(text, sizeof(text), "%s", j->text);
    if ((j->waits == FBR_KUBE_WAIT_PULL && now >= j->waits_since + pull) ||
        (j->waits == FBR_KUBE_WAIT_CONFIG && now >= j->waits_since + CONFIG_MS)) {
        give_up(j, text);
    } else if (pending && now >= j->began + pending) {
        snprintf(text, sizeof(text), "%.400s" GIVEN_UP, j->text);
        give_up(j, text);
    } else if (*looks < LOOKS && look(j, now)) {
        ++*looks;
    }
}

static void on_asked(void *user, const struct fbr_http_answer *a)
{
    struct json_t *pod = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    struct fbr_kube_job *j = user;

    j->asking = false;
    if (j->stage == LIVING && a->status == 404)
        fbr_kube_gone(j);
    else if (j->stage == LIVING && pod &&
             !strcmp(fbr_json_text(pod, "metadata", "uid", NULL), j->uid))
        fbr_kube_update(j, pod, false);
    fbr_json_free(pod);
    fbr_kube_answered(j);
}

/* Its log has ended, or it was to end, and nothing more was heard of it: has the watch gone deaf, was the node's agent
 * started again? */
static void check_silence(struct fbr_kube_job *j, uint64_t now)
{
    if (j->log && j->log_over && fbr_kube_log_is_refused(j->log) && !j->log_ends)
        j->log_lost = true; /* it never gave anything, so its end says nothing */
    if (j->log && j->log_over && !j->log_lost &&
        now >= j->log_over_at + ((uint64_t)LOG_AGAIN_MS << (j->log_ends < 5 ? j->log_ends : 5))) {
        j->log_ends++;
        j->log_lost = !fbr_kube_log_resume(j->log);
        j->log_over = j->log_lost;
    } else if (!j->asked_at || now < j->asked_at + ASK_AFTER_MS) {
        return;
    }
    if (j->asking)
        return;
    j->asked_at = j->asked_at ? now : 0;
    j->asking =
        fbr_kube_call(j, "GET", fbr_kube_path(j->b->api, "pods/%s", j->name), NULL, on_asked) == 0;
}

/* It is not there yet: a quota has no room, or the server has not answered. */
static void check_absent(struct fbr_kube_job *j, uint64_t now)
{
    struct fbr_backend *b = j->b;
    uint64_t pending = (uint64_t)fbr_config_ms(b->env.config, "kubernetes_pending_timeout");
    const char *why = b->api->refused;
    char text[512];

    if (j->waits == FBR_KUBE_WAIT_QUEUE) {
        if (pending && now >= j->waits_since + pending &&
            (j->stage == QUEUED || j->stage == WAITING)) {
            fbr_kube_leave_line(j);
            snprintf(text, sizeof(text), "%.400s" GIVEN_UP, j->text);
            fbr_kube_finish_soon(j, FBR_EXIT_UNKNOWN, text);
        }
    } else if (now > j->began + AWAY_MS && (j->job_made || why[0] || !j->text[0])) {
        snprintf(text, sizeof(text),
                 j->job_made ? "its Job has no pod yet (%.100s)"
                             : "the API server %.100s has not taken it yet",
                 j->job_made ? b->master_job : b->api->config.server);
        if (!j->job_made && why[0])
            snprintf(text + strlen(text), sizeof(text) - strlen(text), ": %.380s", why);
        fbr_kube_pending(j, text);
    }
}

void fbr_kube_on_tick(void *backend)
{
    struct fbr_backend *b = backend;
    uint64_t now = fbr_now_ms();
    struct fbr_kube_job *j, *next;
    unsigned looks = 0;

    fbr_kube_creds_token(b->api->creds); /* a new one in time, also while nothing is asked */
    HASH_ITER(hh, b->all, j, next) {
        if (j->stage == LIVING && (j->started || j->asked_at))
            check_silence(j, now);
        else if (j->stage == LIVING)
            check_waiting(j, now, &looks);
        else if (j->stage < LIVING)
            check_absent(j, now);
    }
    if (!b->all) {
        b->ticking = false;
        fbr_timer_stop(&b->tick);
    }
}

void fbr_kube_start_tick(struct fbr_backend *b)
{
    if (b->ticking)
        return;
    b->ticking = true;
    fbr_timer_start(&b->tick, TICK_MS, TICK_MS);
}
