/* kubernetes.c - the backend of Kubernetes: a job is a pod, which runs once.
 *
 *     kubeconfig, credentials, yaml     finds the API server, and our credentials for it
 *     api                               requests
 *     pod, pod_master, pod_patch        the objects that are sent
 *     pod_state                         the objects that come back
 *     pod_watch, pod_log                streams
 *     pod_start, pod_life, pod_fsm      the life of a job
 *     pod_gc, cluster_check, dryrun     for `fiber gc`, `fiber doctor` and `fiber run --dry-run`
 *     cleanup                           removes the run's objects when the program ends
 *
 * A pod costs three requests: it is created, its output is read, and it is deleted. One watch shows
 * all pods. Only pods, Secrets and their owner, a ConfigMap, are created, and a Job for a master
 * that runs in the cluster; no Secret is ever read.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/http/json.h"
#include "backends/kubernetes/cleanup.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "backends/kubernetes/yaml.h"
#include "runtime/net/host_address.h"
#include "runtime/base/environ.h"
#include "runtime/base/log.h"

#define FIRST_MS 10000 /* for the first answer of the server */
#define LOOK_UP_MS 1000
#define SOMEWHERE "192.0.2.1" /* in no network that exists: its route is the default route */

/* ---- Opening ---- */

static void set_user(char out[FBR_KUBE_NAME])
{
    struct passwd entry, *p = NULL; /* NULL also if the look-up fails */
    char buffer[16384];

    getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &p);
    fbr_kube_label(out, p ? p->pw_name : "");
    if (!out[0])
        snprintf(out, FBR_KUBE_NAME, "uid-%u", (unsigned)getuid());
}

static int load_overlay(struct fbr_backend *b, struct fbr_error *err)
{
    const char *path = fbr_config_str(b->env.config, "kubernetes_pod_template");
    int rc;

    if (!path[0])
        return 0;
    b->overlay = fbr_kube_yaml_file(path, err);
    rc = b->overlay ? fbr_kube_overlay_check(b->overlay, err) : -EINVAL;
    return rc < 0 ? fbr_wrap(err, "kubernetes_pod_template %s", path) : 0;
}

static const struct json_t *main_container(const struct json_t *pod)
{
    const struct json_t *all = fbr_json_at(pod, "spec", "containers", NULL);
    const char *chosen = fbr_json_text(pod, "metadata", "annotations",
                                       "kubectl.kubernetes.io/default-container", NULL);
    const struct json_t *main = fbr_json_find(all, "name", chosen[0] ? chosen : FBR_KUBE_CONTAINER);

    return main ? main : fbr_json_item(all, 0);
}

/* Our host's name is cut off at 63 characters, and a pod may set another one. */
static void own_pod_name(struct fbr_backend *b, char out[FBR_KUBE_POD_MAX])
{
    const char *name = fbr_getenv("FIBER_POD_NAME"), *token = fbr_kube_creds_token(b->api->creds);

    snprintf(out, FBR_KUBE_POD_MAX, "%s", name ? name : "");
    if (!out[0] && token)
        fbr_kube_token_pod(token, out);
    if (!out[0])
        gethostname(out, FBR_KUBE_POD_MAX - 1);
}

static void look_at_own_pod(struct fbr_backend *b)
{
    char name[FBR_KUBE_POD_MAX] = "";
    struct fbr_error err = {0, ""};
    const char *user;

    own_pod_name(b, name);
    fbr_kube_ask(b->api, "GET", fbr_kube_path(b->api, "pods/%s", name), NULL, FIRST_MS, &b->own_pod,
                 &err);
    if (!b->own_pod)
        fbr_warn("kubernetes: this pod (%s) cannot be read: %s; jobs need an image, and their pods "
                 "stay when this one is killed",
                 name, err.text);
    user = fbr_json_text(b->own_pod, "metadata", "labels", FBR_KUBE_USER_LABEL, NULL);
    if (user[0] && strlen(user) < sizeof(b->user)) /* who started it from outside */
        strcpy(b->user, user);
}

/* Checks that the server answers and accepts our credentials, before the first job waits for it. */
static int try_it(struct fbr_backend *b, struct fbr_error *err)
{
    char *path = fbr_kube_path(b->api, "pods?limit=1&labelSelector=" FBR_KUBE_RUN_LABEL "%%3Dnone");
    int status = fbr_kube_ask(b->api, "GET", path, NULL, FIRST_MS, NULL, err);

    if (status >= 200 && status < 300)
        return 0;
    fbr_wrap(err, "namespace %s of %s (%s)", b->api->namespace_, b->api->config.server,
             b->api->config.context ? b->api->config.context : "service account");
    return status == 403 && !strstr(err->text, FBR_KUBE_NOBODY) ? -EACCES : err->code;
}

int fbr_kube_take_config(struct fbr_backend *b, struct fbr_error *err)
{
    set_user(b->user);
    fbr_master_id_self(b->master);
    return load_overlay(b, err);
}

void fbr_kube_set_settings(struct fbr_backend *b)
{
    const struct fbr_config *c = b->env.config;
    const struct json_t *own = main_container(b->own_pod); /* our pods inherit from it */
    struct fbr_kube_settings *s = &b->settings;
    const char *policy = fbr_config_str(c, "kubernetes_pull_policy");
    const char *image = fbr_config_str(c, "image");
    int grace = fbr_config_ms(c, "grace");

    s->image = image[0] ? image : fbr_json_text(own, "image", NULL);
    s->pull_policy =
        strcmp(policy, "auto") != 0 ? policy : fbr_json_text(own, "imagePullPolicy", NULL);
    s->program = fbr_config_str(c, "kubernetes_program");
    s->agent_image = fbr_config_str(c, "kubernetes_agent_image");
    s->workdir = fbr_json_text(own, "workingDir", NULL);
    s->pull_secrets = fbr_json_at(b->own_pod, "spec", "imagePullSecrets", NULL);
    s->account = fbr_config_str(c, "kubernetes_service_account");
    s->master_account = fbr_config_str(c, "kubernetes_master_account");
    s->gpu_resource = fbr_config_str(c, "kubernetes_gpu_resource");
    s->run_as = fbr_config_int(c, "kubernetes_user");
    s->user_label = b->user;
    s->master = b->master;
    s->grace_s = grace > 1000 ? (grace + 999) / 1000 : 1;
    s->overlay = b->overlay;
}

static void free_backend(struct fbr_backend *b)
{
    struct fbr_kube_secret *s, *next;

    fbr_timer_fini(&b->batch);
    fbr_timer_fini(&b->create);
    fbr_timer_fini(&b->tick);
    fbr_kube_watch_close(b->watch);
    fbr_kube_api_close(b->api);
    DL_FOREACH_SAFE(b->secrets, s, next)
        free(s);
    fbr_json_free(b->overlay);
    fbr_json_free(b->own_pod);
    fbr_json_free(b->owner);
    free(b);
}

static int kube_open(struct fbr_backend **out, const struct fbr_backend_env *env,
                     struct fbr_error *err)
{
    struct fbr_backend *b = calloc(1, sizeof(*b));
    int rc;

    if (!b)
        return fbr_fail(err, -ENOMEM, "out of memory");
    b->env = *env;
    /* a module has a log level of its own */
    fbr_log_level(fbr_config_int(env->config, "log_level"));
    fbr_environ_use(env->environ);
    if ((rc = fbr_kube_take_config(b, err)) < 0 ||
        (rc = fbr_kube_api_open(&b->api, env->loop, env->config, err)) < 0 ||
        (rc = try_it(b, err)) < 0)
        goto fail;
    if (b->api->config.in_cluster)
        look_at_own_pod(b);
    if (fbr_timer_init(&b->batch, env->loop, fbr_kube_on_batch, b) < 0 ||
        fbr_timer_init(&b->create, env->loop, fbr_kube_create_more, b) < 0 ||
        fbr_timer_init(&b->tick, env->loop, fbr_kube_on_tick, b) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    fbr_kube_set_settings(b);
    b->credit = fbr_config_int(env->config, "kubernetes_burst");
    b->credit_at = fbr_now_ms();
    *out = b;
    return 0;

fail:
    free_backend(b);
    return rc;
}

/* ---- Closing ---- */

static void add_last(struct fbr_kube_last *list, size_t *n, char *path, const char *body)
{
    if (path)
        list[(*n)++] = (struct fbr_kube_last){.path = path, .body = body};
}

/* Lists the pods that may run, and the ConfigMap or the Job, which owns all the rest. Returns the
 * number of these objects. */
static size_t list_all(struct fbr_backend *b, struct fbr_kube_last *list)
{
    struct fbr_kube_job *j, *next;
    size_t n = 0;

    if (b->owner_name[0])
        add_last(list, &n, fbr_kube_path(b->api, "configmaps/%s", b->owner_name),
                 FBR_KUBE_DELETE(0));
    if (b->master_job[0])
        add_last(list, &n, fbr_kube_jobs_path(b->api, "/%s", b->master_job), FBR_KUBE_DELETE(1));
    HASH_ITER(hh, b->all, j, next)
        if (fbr_pod_may_exist(j->state))
            add_last(list, &n, fbr_kube_path(b->api, "pods/%s", j->name), FBR_KUBE_DELETE(1));
    /* the cluster would also remove these, later */
    for (size_t i = 0; i < FBR_KUBE_KEPT; i++)
        if (b->kept[i][0])
            add_last(list, &n, fbr_kube_path(b->api, "pods/%s", b->kept[i]), FBR_KUBE_DELETE(0));
    return n;
}

static void end_all(struct fbr_backend *b)
{
    char why[200] = "";
    struct fbr_kube_last *list = calloc(HASH_COUNT(b->all) + FBR_KUBE_KEPT + 2, sizeof(*list));
    size_t n = list ? list_all(b, list) : 0;
    size_t left = n ? fbr_kube_last_remove(b->api, list, n, why, sizeof(why)) : 0;

    if (left)
        fbr_warn("kubernetes: %zu of %zu objects of the run %s may remain (%s): `fiber gc` "
                 "removes them",
                 left, n, b->run, why);
    for (size_t i = 0; i < n; i++)
        free(list[i].path);
    free(list);
}

static void kube_close(struct fbr_backend *b)
{
    struct fbr_http_stats s = {0}, t = {0};
    struct fbr_kube_job *j, *next;

    end_all(b);
    fbr_http_stats(b->api->calls, &s);
    fbr_http_stats(b->api->streams, &t);
    fbr_info("kubernetes: %llu requests (%llu of them watches and logs, %llu repeated), %llu bytes "
             "sent, %llu received",
             (unsigned long long)(s.requests + t.requests), (unsigned long long)t.requests,
             (unsigned long long)(s.repeats + t.repeats), (unsigned long long)(s.sent + t.sent),
             (unsigned long long)(s.received + t.received));
    HASH_ITER(hh, b->all, j, next) {
        HASH_DEL(b->all, j);
        fbr_kube_job_free(j);
    }
    DL_FOREACH_SAFE(b->ended, j, next)
        fbr_kube_job_free(j);
    free_backend(b);
}

/* ---- The rest ---- */

static int kube_signal(struct fbr_backend *b, void *handle, int sig)
{
    struct fbr_kube_job *j = handle;

    if (!fbr_pod_takes(j->state, ON_KILL))
        return 0;
    if (sig != SIGKILL && sig != SIGTERM)
        return -ENOTSUP;
    if (j->asked == sig || j->asked == SIGKILL)
        return 0;
    j->asked = sig;
    fbr_kube_kill(j);
    return 0;
}

static void kube_pause_output(struct fbr_backend *b, void *handle, int paused)
{
    struct fbr_kube_job *j = handle;

    j->paused = paused;
    if (j->log)
        fbr_kube_log_pause(j->log, paused);
}

static void kube_release(struct fbr_backend *b, void *handle)
{
    struct fbr_kube_job *j = handle;

    j->user = NULL;
    fbr_kube_free_if_done(j);
}

static int kube_address(struct fbr_backend *b, char out[FBR_HOST_ADDRESS_MAX],
                        struct fbr_error *err)
{
    int rc = fbr_host_address_toward(b->api->host, LOOK_UP_MS, out, NULL);

    /* The server runs on this machine (kind, minikube, a tunnel): its pods are behind a bridge. */
    if (rc < 0 || !strncmp(out, "127.", 4) || !strcmp(out, "::1"))
        rc = fbr_host_address_toward(SOMEWHERE, LOOK_UP_MS, out, NULL);
    if (rc < 0)
        return fbr_host_address_fail(err, rc, "pods");
    snprintf(b->address, sizeof(b->address), "%s", out);
    return 0;
}

static const struct fbr_backend_housekeeping housekeeping = {
    .list = fbr_kube_list,
    .remove = fbr_kube_remove,
    .logs = fbr_kube_logs,
};

const struct fbr_backend_ops fbr_kube_ops = {
    .name = "kubernetes",
    .reach = FBR_REACH_TCP,
    .room = fbr_kube_room,
    .open = kube_open,
    .close = kube_close,
    .start = fbr_kube_start,
    .signal = kube_signal,
    .pause_output = kube_pause_output,
    .release = kube_release,
    .housekeeping = &housekeeping,
    .address = kube_address,
    .check = fbr_kube_check,
    .show = fbr_kube_show,
    .would = fbr_kube_would,
};
