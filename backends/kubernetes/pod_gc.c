/* pod_gc.c - objects that runs of this user have in the namespace, also those of dead masters.
 *
 * The ConfigMap of a run owns all its objects, so it is reported as "configmap/NAME", and may be
 * removed when they may be. The Job of a master that was started in the cluster is reported in the
 * same way.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image/bundle.h"
#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"

#define ANSWER_MS 10000

struct listing {
    fbr_backend_found *found;
    void *user;
    char job[FBR_KUBE_NAME]; /* the Job that was reported last */
};

/* Reports an object that owns others of the run. */
static void report_owner(struct listing *l, const char *kind, const char *name,
                         const struct fbr_orphan *of)
{
    char id[FBR_KUBE_NAME + 16];

    snprintf(id, sizeof(id), "%s/%.63s", kind, name);
    l->found(
        l->user,
        &(struct fbr_orphan){
            .run = of->run, .id = id, .name = "", .master = of->master, .since_ms = of->since_ms});
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

static struct fbr_orphan describe(const struct json_t *object)
{
    int64_t since = fbr_json_time(fbr_json_text(object, "metadata", "creationTimestamp", NULL));

    return (struct fbr_orphan){
        .run = fbr_json_text(object, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL),
        .id = fbr_json_text(object, "metadata", "name", NULL),
        .name = fbr_json_text(object, "metadata", "labels", FBR_KUBE_JOB_LABEL, NULL),
        .master = fbr_json_text(object, "metadata", "annotations", FBR_KUBE_MASTER, NULL),
        .since_ms = since > 0 ? since * 1000 : 0};
}

/* The pods of a Job follow each other, because lists are sorted by name: a queue that suspends the
 * Job ends its pod, and another one begins when the Job goes on. */
static void report_job(struct listing *l, const struct json_t *owner, const struct fbr_orphan *pod)
{
    const char *name = fbr_json_text(owner, "name", NULL);

    if (strcmp(fbr_json_text(owner, "kind", NULL), "Job") != 0 || !strcmp(l->job, name))
        return;
    snprintf(l->job, sizeof(l->job), "%s", name);
    report_owner(l, "job", name, pod);
}

static void report_pod(struct listing *l, const struct json_t *pod)
{
    const struct json_t *owners = fbr_json_at(pod, "metadata", "ownerReferences", NULL);
    struct fbr_orphan job = describe(pod);
    struct fbr_kube_state s;
    char fiber[128];

    fbr_kube_state(&s, pod);
    job.runs = s.phase == FBR_KUBE_RUNNING;
    job.fiber = fiber_in(pod, fiber, sizeof(fiber));
    l->found(l->user, &job);
    report_job(l, fbr_json_item(owners, 0), &job);
}

static void report_map(struct listing *l, const struct json_t *map)
{
    const struct fbr_orphan owner = describe(map);

    report_owner(l, "configmap", owner.id, &owner);
}

/* ---- Lists ---- */

/* Returns the path of a list of this user's objects; NULL without memory. */
static char *list_path(struct fbr_backend *b, const char *kind, const char *more)
{
    char selector[160], *escaped, *path = NULL;

    snprintf(selector, sizeof(selector), FBR_KUBE_RUN_LABEL "," FBR_KUBE_USER_LABEL "=%s", b->user);
    escaped = fbr_http_escape(selector);
    if (escaped)
        path = fbr_kube_path(b->api, "%s?limit=500&labelSelector=%s%s%s", kind, escaped,
                             more[0] ? "&continue=" : "", more);
    free(escaped);
    return path;
}

static void on_owners(void *user, const struct fbr_http_answer *a)
{
    struct json_t *list = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    const struct json_t *items = fbr_json_at(list, "items", NULL);
    struct fbr_backend *b = user;

    for (size_t i = 0; i < fbr_json_count(items); i++) {
        const struct fbr_orphan owner = describe(fbr_json_item(items, i));

        if (fbr_master_id_state(owner.master) == FBR_MASTER_ID_DEAD)
            fbr_kube_sweep(b, fbr_kube_path(b->api, "configmaps/%s", owner.id));
    }
    fbr_json_free(list);
}

void fbr_kube_sweep_dead(struct fbr_backend *b)
{
    fbr_kube_send(b->api, "GET", list_path(b, "configmaps", ""), NULL, ANSWER_MS, on_owners, b);
}

static int list_all(struct fbr_backend *b, const char *kind,
                    void (*report)(struct listing *l, const struct json_t *object),
                    struct listing *l, struct fbr_error *err)
{
    char *more = NULL;
    int rc;

    do {
        struct json_t *page = NULL;
        char *path = list_path(b, kind, more ? more : "");
        int status = fbr_kube_ask(b->api, "GET", path, NULL, ANSWER_MS, &page, err);

        rc = status == 200 && page ? 0 : fbr_wrap(err, "list %s", kind);
        for (size_t i = 0; i < fbr_json_count(fbr_json_at(page, "items", NULL)); i++)
            report(l, fbr_json_item(fbr_json_at(page, "items", NULL), i));
        free(more);
        more = fbr_http_escape(fbr_json_text(page, "metadata", "continue", NULL));
        fbr_json_free(page);
    } while (rc == 0 && more && more[0]);
    free(more);
    return rc;
}

int fbr_kube_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                  struct fbr_error *err)
{
    struct listing l = {.found = found, .user = user};
    int rc = list_all(b, "pods", report_pod, &l, err);

    return rc < 0 ? rc : list_all(b, "configmaps", report_map, &l, err);
}

int fbr_kube_remove(struct fbr_backend *b, const char *id, struct fbr_error *err)
{
    const char *slash = strchr(id, '/'), *name = slash ? slash + 1 : id;
    int status = 0;

    if (!name[0] || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != strlen(name))
        fbr_fail(err, -EINVAL, "that is not the name of a pod");
    else
        status =
            fbr_kube_ask(b->api, "DELETE",
                         strncmp(id, "job/", 4) == 0
                             ? fbr_kube_jobs_path(b->api, "/%s", name)
                             : fbr_kube_path(b->api, "%s/%s", slash ? "configmaps" : "pods", name),
                         FBR_KUBE_DELETE(1), ANSWER_MS, NULL, err);
    if (status == 404 || (status >= 200 && status < 300))
        return 0;
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
