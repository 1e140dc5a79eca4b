/* pod_life.c - the life of a pod to its end: the watch's events, its output, and the limits of its
 * waits.
 *
 * Only the server ends a job: the job's pod has ended, or no longer exists. A pod that this backend
 * gives up (for instance, its image cannot be pulled) is deleted; its end is then handled as any
 * other, with the reason for the deletion.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/net/host_address.h"
#include "runtime/base/log.h"

#define DRAIN_MS 3000   /* without output, after a pod's end: the rest of it has come */
#define BROKEN_MS 20000 /* if the output broke off: the server may still be recovering */
#define EARLY_MS 2000   /* an end of the output so long before the pod's is not the program's */
#define DRAIN_LOOKS 10  /* in that time; what comes while a callback runs counts once */
#define TAIL_LINES 100
#define CONFIG_MS 30000
#define LOOK_AFTER_MS 10000 /* after this time its events are requested */
#define LOOK_AGAIN_MS 30000
#define LOOKS 4 /* most requests for events in one tick */
#define AWAY_MS 5000
#define LOG_AGAIN_MS 5000
#define ASK_AFTER_MS 15000
#define PATIENCE_MS 600000
#define TOO_LONG " (given up after kubernetes_pending_timeout)"
#define DELETED_BY_OTHERS "its pod was deleted by somebody else"

static const struct fbr_kube_state gone = {
    .phase = FBR_KUBE_ENDED, .code = FBR_EXIT_UNKNOWN, .gone = true};

/* ---- Events for the runtime ---- */

static void notify(struct fbr_kube_job *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->b->env.event(j->user, e);
}

void fbr_kube_pending(struct fbr_kube_job *j, const char *text)
{
    if (!text[0] || !strcmp(text, j->text))
        return;
    snprintf(j->text, sizeof(j->text), "%s", text);
    fbr_debug("kubernetes: %s: %s", j->name, j->text);
    notify(j,
           &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = j->text, .placed = j->placed});
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

void fbr_kube_free_if_done(struct fbr_kube_job *j)
{
    if (j->user || j->state != ENDED || j->calls)
        return;
    DL_DELETE(j->b->ended, j);
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
    fbr_kube_free_if_done(j);
}

/* ---- Deleting ---- */

static void on_deleted(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;
    char text[512];

    /* it, or the pod with the known uid, does not exist */
    if (a->status == 404 || a->status == 409) {
        fbr_kube_step(j, ON_GONE, &gone);
    } else if (a->status < 200 || a->status >= 300) {
        fbr_kube_describe(j->b->api, a, "its pod cannot be deleted", text, sizeof(text));
        fbr_warn("kubernetes: %s: %s", j->name, text);
    }
    fbr_kube_answered(j);
}

static void delete_pod(struct fbr_kube_job *j, int grace_s)
{
    struct json_t *options =
        fbr_json_pack("{s:s, s:s, s:i, s:s}", "kind", "DeleteOptions", "apiVersion", "v1",
                      "gracePeriodSeconds", grace_s, "propagationPolicy", "Background");
    char *body;

    if (j->uid[0])
        fbr_json_put(&options, "preconditions", fbr_json_pack("{s:s}", "uid", j->uid));
    body = options ? fbr_json_print(options, NULL) : NULL;
    j->asked_at = fbr_now_ms() + (uint64_t)grace_s * 1000;
    if (!body || fbr_kube_call(j, "DELETE", fbr_kube_path(j->b->api, "pods/%s", j->name), body,
                               on_deleted) < 0)
        fbr_warn("kubernetes: %s: out of memory for its end", j->name);
    free(body);
    fbr_json_free(options);
}

static void on_swept(void *user, const struct fbr_http_answer *a)
{
    if (a->status >= 300 && a->status != 404)
        fbr_debug("kubernetes: an object that is no longer needed remains: HTTP status %d",
                  a->status);
}

void fbr_kube_sweep(struct fbr_backend *b, char *path)
{
    fbr_kube_send(b->api, "DELETE", path, FBR_KUBE_DELETE(0), PATIENCE_MS, on_swept, b);
}

/* Keeps the last few pods until the run ends, so that users can look at them. */
static void keep(struct fbr_kube_job *j)
{
    struct fbr_backend *b = j->b;
    char *place = b->kept[b->kept_at++ % FBR_KUBE_KEPT];

    if (place[0])
        fbr_kube_sweep(b, fbr_kube_path(b->api, "pods/%s", place));
    memcpy(place, j->name, FBR_KUBE_NAME);
}

/* ---- The end ---- */

static void finish(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    struct fbr_backend *b = j->b;
    int32_t code = j->code;

    /* the cluster sends SIGTERM before SIGKILL */
    if (j->asked == SIGKILL && (code == -SIGTERM || code == FBR_EXIT_UNKNOWN))
        code = -SIGKILL;
    fbr_timer_fini(&j->drain);
    fbr_kube_log_close(j->log);
    j->log = NULL;
    b->follows -= j->follows;
    j->follows = false;
    if (j->hh.tbl) /* NULL: there was no memory for its new name */
        HASH_DEL(b->all, j);
    DL_APPEND(b->ended, j);
    if (j->others) /* they would run on; with the pod its output is gone, too */
        fbr_kube_sweep(b, fbr_kube_path(b->api, "pods/%s", j->name));
    fbr_kube_forget_ticket(j);
    fbr_kube_leave_ticket(j);
    j->calls++; /* keeps the job until the end of this function */
    notify(j,
           &(struct fbr_job_event){
               .type = FBR_JOB_EXITED, .code = code, .text = j->text, .disrupted = j->disruption});
    fbr_kube_answered(j);
}

static void set_end(struct fbr_kube_job *j, int32_t code, const char *text)
{
    j->code = code;
    snprintf(j->text, sizeof(j->text), "%s", text);
}

static int32_t code_of_unstarted(const struct fbr_kube_job *j)
{
    return j->asked ? -j->asked : FBR_EXIT_UNKNOWN;
}

static void refuse(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    set_end(j, code_of_unstarted(j), s->text);
    finish(j, s);
}

static uint64_t look_ms(const struct fbr_kube_job *j)
{
    return (fbr_kube_log_is_whole(j->log) ? DRAIN_MS : BROKEN_MS) / DRAIN_LOOKS;
}

static void on_drained(void *arg)
{
    struct fbr_kube_job *j = arg;

    if (j->paused) /* the runtime pauses the output; the server is not slow */
        j->silent = 0;
    if (j->log && j->reading == READS && ++j->silent < DRAIN_LOOKS)
        fbr_timer_start(&j->drain, look_ms(j), 0);
    else
        fbr_kube_step(j, ON_DRAINED, NULL);
}

static void drain(struct fbr_kube_job *j, uint64_t ms)
{
    if (fbr_timer_init(&j->drain, j->b->env.loop, on_drained, j) < 0)
        fbr_kube_step(j, ON_DRAINED, NULL);
    else
        fbr_timer_start(&j->drain, ms, 0);
}

static void drain_now(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    fbr_timer_start(&j->drain, 0, 0);
}

void fbr_kube_finish_soon(struct fbr_kube_job *j, const char *text)
{
    set_end(j, code_of_unstarted(j), text);
    drain(j, 0);
}

/* ---- Output ---- */

static void on_output(void *user, const void *data, size_t len)
{
    struct fbr_kube_job *j = user;

    j->silent = 0;
    if (len)
        notify(j, &(struct fbr_job_event){
                      .type = FBR_JOB_OUTPUT, .stream = 1, .text = "", .data = data, .len = len});
}

static void on_output_end(void *user)
{
    struct fbr_kube_job *j = user;

    j->reading = READ;
    j->log_over_at = fbr_now_ms();
    fbr_kube_step(j, ON_LOG_END, NULL); /* ends nothing here, because its log is in use */
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

/* Whether there may be more than was read. The log breaks off while the server is away. If the
 * node's agent is started again, the log ends as if the program had ended, but long before the pod
 * is seen to be over. */
static bool may_have_more(const struct fbr_kube_job *j)
{
    return !fbr_kube_log_is_whole(j->log) || fbr_now_ms() >= j->log_over_at + EARLY_MS;
}

/* Reads the output that was written and not yet read. */
static void read_rest(struct fbr_kube_job *j, int32_t code)
{
    if (!j->log && may_follow(j->b))
        read_output(j, false, 0);
    else if (!j->log && code != 0)
        read_output(j, false, TAIL_LINES);
    else if (j->log && j->reading == READ && may_have_more(j) && fbr_kube_log_resume(j->log))
        j->reading = READS;
}

/* The pod has ended; the rest of its output is read first. */
static void begin_end(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    j->others = s->others && !s->gone && !s->deleting;
    if (!s->others && !s->gone && !s->deleting)
        keep(j);
    j->disruption |= s->disruption;
    if (!s->gone)
        read_rest(j, s->code);
    if (j->log && j->reading == READS)
        drain(j, look_ms(j));
    else
        fbr_kube_step(j, ON_DRAINED, NULL);
}

/* `others`: neither its program nor we ended it. */
static void end_with(struct fbr_kube_job *j, const struct fbr_kube_state *s, int32_t code,
                     const char *text, bool others)
{
    others |= s->disruption || j->disruption;
    j->disruption = others;
    set_end(j, code, others && !text[0] ? DELETED_BY_OTHERS : text);
    if (others && !s->disruption)
        fbr_kube_try_owner(j->b);
    begin_end(j, s);
}

static void end(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    end_with(j, s, s->code, s->text, s->gone || s->deleting);
}

static void end_unseen(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    end_with(j, s, s->code, "its pod was deleted, and its exit code is unknown", true);
}

static void end_asked(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    end_with(j, s, s->code, s->text, false);
}

static void end_killed(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    end_with(j, s, -j->asked, "", false);
}

/* ---- States ---- */

/* Deletes a pod that cannot start. */
static void abandon(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    fbr_kube_pending(j, s->text);
    set_end(j, FBR_EXIT_UNKNOWN, s->text);
    delete_pod(j, 1);
}

static void notify_waiting(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    if (s->wait != j->waits) {
        j->waits = s->wait;
        j->waits_since = fbr_now_ms();
    }
    j->placed = s->placed;
    fbr_kube_pending(j, s->text);
    if (s->wait == FBR_KUBE_WAIT_NEVER)
        fbr_kube_step(j, ON_NEVER, s);
}

/* The server has the pod: from now on users can look at it by its name. */
static void notify_started(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    /* restarts the clock, because the job may have waited for its turn */
    j->began = fbr_now_ms();
    j->looked = 0;
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->name});
}

static void delete_asked(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    delete_pod(j, j->asked == SIGKILL ? 1 : j->grace_s);
}

static void notify_started_delete(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    notify_started(j, s);
    delete_asked(j, s);
}

void fbr_kube_created(struct fbr_kube_job *j, const char *uid)
{
    snprintf(j->uid, sizeof(j->uid), "%s", uid);
    fbr_kube_step(j, ON_CREATED, NULL);
}

static void notify_running(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    const char *bind = fbr_config_str(j->b->env.config, "bind"), *address = j->b->address;
    char ours[FBR_HOST_ADDRESS_MAX];

    j->waits = FBR_KUBE_WAIT_NONE;
    if (bind[0] && fbr_host_address_find(bind, ours) == 0)
        address = ours;
    /* The message for a job that does not join. Keep it short: a report has little room. */
    snprintf(j->text, sizeof(j->text),
             "its pod runs and calls %.45s: if it cannot reach that, set bind, a NetworkPolicy "
             "(`fiber kubernetes manifest --master`) or --in-cluster",
             address[0] ? address : "us");
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = j->text, .runs = 1});
    if (!j->log && may_follow(j->b))
        read_output(j, true, 0);
}

/* Another client ends the pod. This is reported at once: the program may hang up seconds before the
 * pod is seen to be over. */
static void notify_theirs(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    bool first = !j->disruption;

    j->disruption = true;
    if (first && s->phase == FBR_KUBE_RUNNING)
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                          .text = s->text[0] ? s->text : DELETED_BY_OTHERS,
                                          .runs = 1,
                                          .disrupted = 1});
}

void fbr_kube_update(struct fbr_kube_job *j, const struct json_t *pod, bool deleted)
{
    struct fbr_kube_state s;

    j->awaited = false;
    if (!fbr_pod_takes(j->state, ON_OVER))
        return;
    fbr_kube_state(&s, pod);
    s.gone = deleted;
    if (s.deleting)
        fbr_kube_step(j, ON_THEIRS, &s);
    if (s.phase == FBR_KUBE_ENDED)
        fbr_kube_step(j, ON_OVER, &s);
    else if (deleted)
        fbr_kube_step(j, ON_GONE, &gone);
    else
        fbr_kube_step(j, s.phase == FBR_KUBE_RUNNING ? ON_RUNS : ON_WAITS, &s);
}

/* ---- The watch ---- */

/* The cluster names the pod of a master's Job; from now on that name is the job's name. */
static struct fbr_kube_job *rename_master(struct fbr_backend *b, const struct json_t *pod,
                                          const char *name)
{
    const char *of = fbr_json_text(pod, "metadata", "labels", "batch.kubernetes.io/job-name", NULL);
    struct fbr_kube_job *j;

    if (!of[0]) /* Kubernetes before 1.27 */
        of = fbr_json_text(pod, "metadata", "labels", "job-name", NULL);
    HASH_FIND_STR(b->all, of, j);
    if (!j || !j->is_master || !fbr_pod_takes(j->state, ON_CREATED) ||
        strlen(name) >= sizeof(j->name))
        return NULL;
    HASH_DEL(b->all, j);
    strcpy(j->name, name);
    HASH_ADD_STR(b->all, name, j);
    if (j->hh.tbl)
        return j;
    strcpy(j->name, of); /* the name of its Job, which its end removes */
    return NULL;
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
    if (!j)
        return;
    if (fbr_pod_takes(j->state, ON_CREATED)) /* the watch was faster than the answer */
        fbr_kube_created(j, uid);
    if (!strcmp(j->uid, uid))
        fbr_kube_update(j, pod, deleted);
}

static void on_listing(void *user)
{
    struct fbr_backend *b = user;
    struct fbr_kube_job *j, *next;

    HASH_ITER(hh, b->all, j, next)
        j->awaited = fbr_pod_takes(j->state, ON_GONE);
}

static void on_listed(void *user)
{
    struct fbr_backend *b = user;
    struct fbr_kube_job *j, *next;

    b->troubled = 0;
    HASH_ITER(hh, b->all, j, next)
        if (j->awaited)
            fbr_kube_step(j, ON_GONE, &gone);
}

static void on_trouble(void *user, const char *text)
{
    struct fbr_backend *b = user;
    uint64_t now = fbr_now_ms();

    if (b->troubled && now < b->troubled + 60000)
        return;
    b->troubled = now;
    fbr_warn("kubernetes: %s; jobs go on, and their states are read again when the server answers",
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
    fbr_kube_step_text(j, ON_NEWS, text);
    fbr_json_free(list);
    fbr_kube_answered(j);
}

static void notify_news(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    if (j->waits == FBR_KUBE_WAIT_NONE)
        fbr_kube_pending(j, s->text);
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

static void check_waiting(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    const struct fbr_config *config = j->b->env.config;
    uint64_t pull = (uint64_t)fbr_config_ms(config, "kubernetes_pull_timeout");
    uint64_t pending = (uint64_t)fbr_config_ms(config, "kubernetes_pending_timeout");
    uint64_t now = fbr_now_ms();
    char text[512];

    if ((j->waits == FBR_KUBE_WAIT_PULL && now >= j->waits_since + pull) ||
        (j->waits == FBR_KUBE_WAIT_CONFIG && now >= j->waits_since + CONFIG_MS)) {
        fbr_kube_step_text(j, ON_TIMEOUT, j->text);
    } else if (pending && now >= j->began + pending) {
        snprintf(text, sizeof(text), "%.400s" TOO_LONG, j->text);
        fbr_kube_step_text(j, ON_TIMEOUT, text);
    } else if (j->b->looks < LOOKS) {
        j->b->looks += look(j, now);
    }
}

static void take_answer(struct fbr_kube_job *j, const struct fbr_http_answer *a)
{
    struct json_t *pod = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;

    if (a->status == 404)
        fbr_kube_step(j, ON_GONE, &gone);
    else if (pod && !strcmp(fbr_json_text(pod, "metadata", "uid", NULL), j->uid))
        fbr_kube_update(j, pod, false);
    fbr_json_free(pod);
}

static void on_asked(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;

    j->asking = false;
    take_answer(j, a);
    fbr_kube_answered(j);
}

static int ask(struct fbr_kube_job *j, void (*done)(void *user, const struct fbr_http_answer *))
{
    return fbr_kube_call(j, "GET", fbr_kube_path(j->b->api, "pods/%s", j->name), NULL, done);
}

/* For a pod whose log has ended, or whose end was requested, without news since then: checks
 * whether the watch no longer delivers events, or the node's agent was restarted. */
static void check_silence(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    uint64_t now = fbr_now_ms();

    if (j->log && j->reading == READ && fbr_kube_log_is_refused(j->log) && !j->log_ends)
        j->reading = READ_LOST; /* the log never gave output, so its end has no meaning */
    if (j->log && j->reading == READ &&
        now >= j->log_over_at + ((uint64_t)LOG_AGAIN_MS << (j->log_ends < 5 ? j->log_ends : 5))) {
        j->log_ends++;
        j->reading = fbr_kube_log_resume(j->log) ? READS : READ_LOST;
    } else if (!j->asked_at || now < j->asked_at + ASK_AFTER_MS) {
        return;
    }
    if (j->asking)
        return;
    j->asked_at = j->asked_at ? now : 0;
    j->asking = ask(j, on_asked) == 0;
}

static void on_looked(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;

    take_answer(j, a);
    fbr_kube_step_text(j, ON_KILL, "");
    fbr_kube_answered(j);
}

/* After our own request nobody can tell whether the pod ended for another reason. While the watch
 * rests, such a reason was not reported. */
void fbr_kube_kill(struct fbr_kube_job *j)
{
    if (j->state != RUNNING || !fbr_kube_watch_rests(j->b->watch) || ask(j, on_looked) < 0)
        fbr_kube_step_text(j, ON_KILL, "");
}

static void on_job_tried(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_job *j = user;

    j->asking = false;
    if (a->status == 404 && j->state == JOB_MADE)
        fbr_kube_step_text(j, ON_TIMEOUT, "its Job was deleted by somebody else");
    fbr_kube_answered(j);
}

/* Checks for a Job that was deleted before it had a pod: the watch of pods would never report it.
 * We may not read Jobs, but delete them. */
static void try_job(struct fbr_kube_job *j, uint64_t now)
{
    if (j->asking || (j->looked && now < j->looked + ASK_AFTER_MS))
        return;
    j->looked = now;
    j->asking = fbr_kube_call(j, "DELETE", fbr_kube_jobs_path(j->b->api, "/%s", j->name),
                              FBR_KUBE_TRY_DELETE, on_job_tried) == 0;
}

/* For a pod that does not exist yet: a quota has no room, a queue holds its Job, or the server has
 * not answered. */
static void check_absent(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    struct fbr_backend *b = j->b;
    uint64_t pending = (uint64_t)fbr_config_ms(b->env.config, "kubernetes_pending_timeout");
    const char *why = b->api->refused;
    bool job_made = j->state == JOB_MADE, queued = !job_made && j->waits == FBR_KUBE_WAIT_QUEUE;
    uint64_t now = fbr_now_ms(), since = job_made ? j->began : j->waits_since;
    char text[512];

    if ((queued || job_made) && j->text[0] && pending && now >= since + pending) {
        snprintf(text, sizeof(text), "%.400s" TOO_LONG, j->text);
        fbr_kube_step_text(j, ON_TIMEOUT, text);
    } else if (job_made && now > j->began + AWAY_MS) {
        snprintf(text, sizeof(text),
                 "its Job has no pod yet (kubectl -n %.63s describe job/%.63s says why: a queue "
                 "may have suspended it)",
                 b->api->namespace_, b->master_job);
        fbr_kube_pending(j, text);
        try_job(j, now);
    } else if (!queued && now > j->began + AWAY_MS && (why[0] || !j->text[0])) {
        snprintf(text, sizeof(text), "the API server %.100s has not accepted it yet%s%.340s",
                 b->api->config.server, why[0] ? ": " : "", why);
        fbr_kube_pending(j, text);
    }
}

void fbr_kube_on_tick(void *backend)
{
    struct fbr_backend *b = backend;
    struct fbr_kube_job *j, *next;

    b->looks = 0;
    /* renews the token in time, also while no request is sent */
    fbr_kube_creds_token(b->api->creds);
    HASH_ITER(hh, b->all, j, next)
        fbr_kube_step(j, ON_TICK, NULL);
    if (!b->all)
        fbr_timer_stop(&b->tick);
}

static void hurry(struct fbr_kube_job *j, const struct fbr_kube_state *s)
{
    fbr_kube_unwanted(j->b->api, j);
}

/* ---- The table's actions ---- */

void fbr_kube_step(struct fbr_kube_job *j, enum fbr_pod_event event, const struct fbr_kube_state *s)
{
    static void (*const actions[FBR_POD_ACTIONS])(struct fbr_kube_job *,
                                                  const struct fbr_kube_state *) = {
        [DO_LEAVE_QUEUE] = fbr_kube_leave_queue,
        [DO_LEAVE_SECRET] = fbr_kube_leave_secret,
        [DO_LEAVE_WAITING] = fbr_kube_leave_waiting,
        [DO_QUEUE] = fbr_kube_queue,
        [DO_WAIT_TURN] = fbr_kube_wait_turn,
        [DO_CREATE] = fbr_kube_create,
        [DO_FIND] = fbr_kube_find,
        [DO_CREATE_JOB] = fbr_kube_create_job,
        [DO_HURRY] = hurry,
        [DO_END_JOB] = fbr_kube_end_job,
        [DO_REFUSE] = refuse,
        [DO_TELL_STARTED] = notify_started,
        [DO_TELL_STARTED_DELETE] = notify_started_delete,
        [DO_DELETE] = delete_asked,
        [DO_TELL_WAITING] = notify_waiting,
        [DO_TELL_RUNNING] = notify_running,
        [DO_TELL_THEIRS] = notify_theirs,
        [DO_TELL_NEWS] = notify_news,
        [DO_GIVE_UP] = abandon,
        [DO_CHECK_ABSENT] = check_absent,
        [DO_CHECK_WAITING] = check_waiting,
        [DO_CHECK_SILENCE] = check_silence,
        [DO_END] = end,
        [DO_END_ASKED] = end_asked,
        [DO_END_GIVEN_UP] = begin_end,
        [DO_END_KILLED] = end_killed,
        [DO_END_UNSEEN] = end_unseen,
        [DO_DRAIN_NOW] = drain_now,
        [DO_FINISH] = finish,
    };
    const struct fbr_pod_step step = fbr_pod_step(j->state, event);

    j->state = step.next;
    if (actions[step.action])
        actions[step.action](j, s);
}

void fbr_kube_step_text(struct fbr_kube_job *j, enum fbr_pod_event event, const char *text)
{
    struct fbr_kube_state s = {.code = FBR_EXIT_UNKNOWN};

    snprintf(s.text, sizeof(s.text), "%s", text);
    fbr_kube_step(j, event, &s);
}
