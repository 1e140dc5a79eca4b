/* pod_gc.c - pods and Secrets that runs of this user have in the namespace, also those of dead
 * masters.
 *
 * Secrets cannot be listed with the permissions that Fiber asks for. A run's first Secret owns all
 * pods of the run, so it is reported as "secret/NAME" next to them, and may be removed when they
 * may be. For a first Secret without pods there is a note on the master's host (anchor.h). The Job
 * of a master that was started in the cluster is reported in the same way.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image/bundle.h"
#include "backends/http/json.h"
#include "backends/kubernetes/anchor.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/base/log.h"

#define ANSWER_MS 10000

struct owner {
    struct owner *next, *prev;
    char id[FBR_KUBE_NAME + 8], run[FBR_KUBE_NAME], master[FBR_MASTER_ID_MAX];
    int64_t since_ms;
    int alive;
};

struct listing {
    fbr_backend_found *found;
    void *user;
    struct owner *owners;
};

static void note_owner(struct listing *l, const struct json_t *pod, const struct fbr_orphan *job)
{
    const struct json_t *owners = fbr_json_at(pod, "metadata", "ownerReferences", NULL);
    const struct json_t *first = fbr_json_item(owners, 0);
    const char *kind = fbr_json_text(first, "kind", NULL);
    char id[FBR_KUBE_NAME + 8];
    struct owner *o;

    if (strcmp(kind, "Secret") != 0 && strcmp(kind, "Job") != 0)
        return;
    snprintf(id, sizeof(id), "%s/%.63s", kind[0] == 'S' ? "secret" : "job",
             fbr_json_text(first, "name", NULL));
    DL_FOREACH(l->owners, o)
        if (!strcmp(o->id, id))
            break;
    if (!o) {
        o = calloc(1, sizeof(*o));
        if (!o)
            return;
        memcpy(o->id, id, sizeof(id));
        snprintf(o->run, sizeof(o->run), "%s", job->run);
        snprintf(o->master, sizeof(o->master), "%s", job->master);
        o->since_ms = job->since_ms;
        DL_APPEND(l->owners, o);
    }
    o->since_ms = job->since_ms < o->since_ms ? job->since_ms : o->since_ms;
}

/* Returns Fiber's command in a master's pod: it was put there, or is a program of the image. */
static const char *fiber_in(const struct json_t *pod, char *out, size_t size)
{
    const struct json_t *c = fbr_kube_own_container(pod), *env = fbr_json_at(c, "env", NULL);
    const struct json_t *command = fbr_json_at(c, "command", NULL), *program;

    if (strcmp(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_ROLE_LABEL, NULL), "master") != 0)
        return NULL;
    if (!strcmp(fbr_json_text(fbr_json_item(command, 0), NULL), fbr_bundle_command[0])) {
        snprintf(out, size, "%s %s %s " FBR_BUNDLE_PROGRAM, fbr_bundle_command[0],
                 fbr_bundle_command[1], fbr_bundle_command[2]);
        return out;
    }
    program = fbr_json_find(env, "name", "FIBER_KUBERNETES_PROGRAM");
    return program ? fbr_json_text(program, "value", NULL) : NULL;
}

static void report_pod(struct listing *l, const struct json_t *pod)
{
    int64_t since = fbr_json_time(fbr_json_text(pod, "metadata", "creationTimestamp", NULL));
    struct fbr_orphan job = {
        .run = fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL),
        .id = fbr_json_text(pod, "metadata", "name", NULL),
        .name = fbr_json_text(pod, "metadata", "labels", FBR_KUBE_JOB_LABEL, NULL),
        .master = fbr_json_text(pod, "metadata", "annotations", FBR_KUBE_MASTER, NULL),
        .since_ms = since > 0 ? since * 1000 : 0};
    struct fbr_kube_state s;
    char fiber[128];

    fbr_kube_state(&s, pod);
    job.runs = s.phase == FBR_KUBE_RUNNING;
    job.fiber = fiber_in(pod, fiber, sizeof(fiber));
    l->found(l->user, &job);
    note_owner(l, pod, &job);
}

/* ---- Secrets without a pod ---- */

/* Reports an anchor without pods; the other anchors were reported with their pods. */
static void on_note(void *user, const struct fbr_kube_anchor *a)
{
    struct listing *l = user;
    struct owner *o;
    char id[FBR_KUBE_NAME + 8];

    snprintf(id, sizeof(id), "secret/%s", a->name);
    DL_FOREACH(l->owners, o)
        if (!strcmp(o->id, id))
            return;
    l->found(
        l->user,
        &(struct fbr_orphan){
            .run = a->run, .id = id, .name = "", .master = a->master, .since_ms = a->since_ms});
}

struct removal {
    struct fbr_backend *b;
    const char *body;
};

static void on_dead_removed(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_dead *dead = user; /* freed with the backend */

    if (a->status == 404 || (a->status >= 200 && a->status < 300))
        fbr_kube_anchor_forget(dead->name);
}

static void on_other(void *user, const struct fbr_kube_anchor *a)
{
    struct removal *r = user;
    struct fbr_kube_dead *dead;

    if (fbr_master_id_state(a->master) != FBR_MASTER_ID_DEAD || !r->body)
        return;
    dead = calloc(1, sizeof(*dead));
    if (!dead)
        return;
    snprintf(dead->name, sizeof(dead->name), "%s", a->name);
    DL_APPEND(r->b->dead, dead);
    fbr_kube_send(r->b->api, "DELETE", fbr_kube_path(r->b->api, "secrets/%s", a->name), r->body,
                  ANSWER_MS, on_dead_removed, dead);
}

void fbr_kube_note_anchor(struct fbr_backend *b, const char *name)
{
    char *body = b->own_pod ? NULL : fbr_kube_delete_body(0, "");
    struct removal r = {b, body};
    struct fbr_kube_anchor a = {0};

    if (b->own_pod) /* the cluster removes it with our pod */
        return;
    snprintf(a.name, sizeof(a.name), "%s", name);
    snprintf(a.space, sizeof(a.space), "%s", b->api->namespace_);
    snprintf(a.run, sizeof(a.run), "%s", b->run);
    snprintf(a.server, sizeof(a.server), "%s", b->api->config.server);
    snprintf(a.master, sizeof(a.master), "%s", b->master);
    fbr_kube_anchor_each(a.server, a.space, on_other, &r);
    if (fbr_kube_anchor_note(&a) < 0)
        fbr_debug("kubernetes: cannot record %s: `fiber gc` finds it only by its pods", name);
    free(body);
}

static void report_owners(struct listing *l)
{
    struct owner *o, *next;

    DL_FOREACH_SAFE(l->owners, o, next) {
        const struct fbr_orphan job = {
            .run = o->run, .id = o->id, .name = "", .master = o->master, .since_ms = o->since_ms};

        l->found(l->user, &job);
        free(o);
    }
}

static int list_page(struct fbr_backend *b, const char *more, struct json_t **page,
                     struct fbr_error *err)
{
    char selector[160], *escaped, *path = NULL;
    int status;

    snprintf(selector, sizeof(selector), FBR_KUBE_RUN_LABEL "," FBR_KUBE_USER_LABEL "=%s", b->user);
    escaped = fbr_http_escape(selector);
    if (escaped)
        path = fbr_kube_path(b->api, "pods?limit=500&labelSelector=%s%s%s", escaped,
                             more[0] ? "&continue=" : "", more);
    free(escaped);
    status = fbr_kube_ask(b->api, "GET", path, NULL, ANSWER_MS, page, err);
    return status == 200 && *page ? 0 : fbr_wrap(err, "list pods");
}

int fbr_kube_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                  struct fbr_error *err)
{
    struct listing l = {.found = found, .user = user};
    char more[1024] = "";
    int rc = 0;

    do {
        struct json_t *page = NULL;
        char *escaped;

        rc = list_page(b, more, &page, err);
        for (size_t i = 0; i < fbr_json_count(fbr_json_at(page, "items", NULL)); i++)
            report_pod(&l, fbr_json_item(fbr_json_at(page, "items", NULL), i));
        escaped = fbr_http_escape(fbr_json_text(page, "metadata", "continue", NULL));
        snprintf(more, sizeof(more), "%s",
                 escaped && strlen(escaped) < sizeof(more) ? escaped : "");
        free(escaped);
        fbr_json_free(page);
    } while (rc == 0 && more[0]);
    if (rc == 0)
        fbr_kube_anchor_each(b->api->config.server, b->api->namespace_, on_note, &l);
    report_owners(&l);
    return rc;
}

int fbr_kube_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    const char *slash = strchr(id, '/'), *name = slash ? slash + 1 : id;
    char *body = fbr_kube_delete_body(1, "");
    int status = 0;

    if (!name[0] || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != strlen(name))
        fbr_fail(err, -EINVAL, "that is not the name of a pod");
    else
        status =
            fbr_kube_ask(b->api, "DELETE",
                         strncmp(id, "job/", 4) == 0
                             ? fbr_kube_jobs_path(b->api, "/", name)
                             : fbr_kube_path(b->api, "%s/%s", slash ? "secrets" : "pods", name),
                         body, ANSWER_MS, NULL, err);
    free(body);
    if (status == 404 || (status >= 200 && status < 300)) {
        if (strncmp(id, "secret/", 7) == 0)
            fbr_kube_anchor_forget(name);
        return 0;
    }
    return fbr_wrap(err, "delete %.64s", id);
}

/* ---- Output ---- */

struct reading {
    struct fbr_backend_reader to;
    struct fbr_kube_log *log;
};

static void on_log(void *user, const void *data, size_t len)
{
    struct reading *r = user;

    r->to.out(r->to.user, 1, data, len); /* the server does not separate the streams */
}

static void on_log_end(void *user)
{
    struct reading *r = user;
    const char *why = "";

    if (fbr_kube_log_is_refused(r->log))
        why = "the API server has no log of it, or does not let us read it (`get` on pods/log)";
    else if (!fbr_kube_log_is_whole(r->log))
        why = "it broke off, and there may be more: is the API server up?";
    r->to.done(r->to.user, why);
    fbr_kube_log_close(r->log);
    free(r);
}

int fbr_kube_logs(struct fbr_backend *b, const char *id, int follow,
                  const struct fbr_backend_reader *reader, struct fbr_error *err)
{
    struct reading *r;
    int rc;

    if (strchr(id, '/'))
        return fbr_fail(err, -EINVAL, "%.64s is not a pod, and has no output", id);
    r = calloc(1, sizeof(*r));
    if (!r)
        return fbr_fail(err, -ENOMEM, "out of memory");
    r->to = *reader;
    rc = fbr_kube_log_open(
        &r->log, b->api,
        &(struct fbr_kube_log_options){
            .pod = id, .follow = follow != 0, .data = on_log, .done = on_log_end, .user = r});
    if (rc < 0) {
        free(r);
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    }
    return 0;
}
