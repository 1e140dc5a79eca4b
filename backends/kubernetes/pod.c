/* pod.c - makes pods and Secrets as JSON.
 *
 * Kubernetes replaces $(NAME) in commands and values, and $$ by $, so each '$' of ours is doubled.
 *
 * The root user of a container keeps its power over files, but nothing else: all capabilities are
 * dropped, and no program in the container can gain any. With a user id (kubernetes_user) the pod
 * passes the Pod Security level "restricted", without one "baseline". The processes of a pod share
 * one process space, so that none of them is process 1, which would not die of a signal for which
 * it has no handler.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/pod.h"

#include "backends/image/bundle.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/base64.h"
#include "backends/http/json.h"
#include "backends/kubernetes/pod_state.h"
#include "runtime/program/spawn.h"

#define RUN_CHARS 8

/* ---- Names ---- */

/* isalnum() depends on the program's locale. */
static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

void fbr_kube_pod_name(char out[FBR_KUBE_NAME], const struct fbr_job *job)
{
    char number[24], name[FBR_KUBE_NAME];
    size_t n = 0, len = strlen(job->name), ends;

    snprintf(number, sizeof(number), "-%llu", (unsigned long long)job->process);
    ends = strlen(number);
    /* the name already ends in the number */
    if (len > ends && !strcmp(job->name + len - ends, number))
        len -= ends;
    for (size_t i = 0; i < len && n < sizeof(name) - 1; i++)
        name[n++] = is_alnum(job->name[i]) ? job->name[i] | 0x20 : '-'; /* a small letter */
    name[n] = '\0';
    ends = FBR_KUBE_NAME - 1 - (6 + RUN_CHARS + 1) - strlen(number);
    snprintf(out, FBR_KUBE_NAME, "fiber-%.*s-%.*s%s", RUN_CHARS, job->run_uid, (int)ends, name,
             number);
}

void fbr_kube_label(char out[FBR_KUBE_NAME], const char *text)
{
    size_t n = 0;

    for (; *text && n < FBR_KUBE_NAME - 1; text++) {
        bool good = is_alnum(*text) || (strchr("-_.", *text) && n);

        if (good || n)
            out[n++] = good ? *text : '-';
    }
    while (n && !is_alnum(out[n - 1]))
        n--;
    out[n] = '\0';
}

/* ---- Texts ---- */

struct json_t *fbr_kube_words(const char *text)
{
    size_t n = strlen(text), k = 0;
    char *copy = malloc(2 * n + 1);
    struct json_t *j;

    for (size_t i = 0; copy && i < n; i++) {
        copy[k++] = text[i];
        if (text[i] == '$')
            copy[k++] = '$';
    }
    if (!copy)
        return NULL;
    copy[k] = '\0';
    j = fbr_json_string(copy);
    free(copy);
    return j;
}

static struct json_t *words_of(char *const *words)
{
    struct json_t *list = fbr_json_pack("[]");

    for (; words && *words; words++)
        fbr_json_push(&list, fbr_kube_words(*words));
    return list;
}

static struct json_t *environment(char *const *env, bool ticket)
{
    struct json_t *list = fbr_json_pack("[]");

    for (; env && *env; env++) {
        const char *eq = strchr(*env, '=');
        struct json_t *one;

        if (!eq || eq == *env || !strncmp(*env, "FIBER_TICKET=", 13))
            continue;
        one = fbr_json_pack("{s:s%}", "name", *env, (size_t)(eq - *env));
        fbr_json_put(&one, "value", fbr_kube_words(eq + 1));
        fbr_json_push(&list, one);
    }
    if (ticket)
        fbr_json_push(&list, fbr_json_pack("{s:s, s:s}", "name", "FIBER_TICKET", "value",
                                           "file:" FBR_KUBE_TICKET_DIR "/ticket"));
    return list;
}

/* ---- The container ---- */

static struct json_t *wanted_by(const struct fbr_job *job, const struct fbr_kube_settings *s,
                                double cpus)
{
    struct json_t *wanted = fbr_json_pack("{}");
    char text[32];

    if (cpus > 0) {
        double milli = cpus * 1000 + 0.999;

        snprintf(text, sizeof(text), "%lldm", milli < 1e15 ? (long long)milli : 1000000000000000);
        fbr_json_put(&wanted, "cpu", fbr_json_string(text));
    }
    if (job->memory) {
        bool whole = job->memory % (1 << 20) == 0;

        snprintf(text, sizeof(text), "%llu%s",
                 (unsigned long long)(whole ? job->memory >> 20 : job->memory), whole ? "Mi" : "");
        fbr_json_put(&wanted, "memory", fbr_json_string(text));
    }
    if (job->gpus > 0) {
        snprintf(text, sizeof(text), "%d", job->gpus);
        fbr_json_put(&wanted, s->gpu_resource, fbr_json_string(text));
    }
    return wanted;
}

/* Each of the two has an object of its own: a template may change one of them. */
static struct json_t *resources(const struct fbr_job *job, const struct fbr_kube_settings *s)
{
    struct json_t *both = fbr_json_pack("{}");

    fbr_json_put(&both, "requests", wanted_by(job, s, job->cpus > 0 ? job->cpus : job->reserve));
    fbr_json_put(&both, "limits", wanted_by(job, s, job->cpus));
    return both;
}

/* Finds the program to run, or sets a message why there is none. */
static int find_program(const struct fbr_job *job, const struct fbr_kube_settings *s,
                        char path[PATH_MAX], struct fbr_error *err)
{
    if (job->own_program && !s->program[0])
        return fbr_spawn_own_path(path, PATH_MAX, err);
    snprintf(path, PATH_MAX, "%s", job->own_program ? s->program : job->file);
    return 0;
}

/* Whether the program is put into the pod before the pod's container starts. */
static bool is_given(const struct fbr_job *job, const struct fbr_kube_settings *s)
{
    return job->own_program && s->agent_image[0];
}

/* Makes the securityContext of the pod's spec. */
static struct json_t *pod_security(const struct fbr_kube_settings *s)
{
    if (s->run_as < 0)
        return fbr_json_pack("{s:{s:s}}", "seccompProfile", "type", "RuntimeDefault");
    return fbr_json_pack("{s:{s:s}, s:I, s:I, s:s, s:b}", "seccompProfile", "type",
                         "RuntimeDefault", "runAsUser", (long long)s->run_as, "fsGroup",
                         (long long)s->run_as, "fsGroupChangePolicy", "OnRootMismatch",
                         "runAsNonRoot", s->run_as != 0);
}

static struct json_t *make_container(const struct fbr_job *job, const struct fbr_kube_settings *s,
                                     char *program, struct fbr_error *err)
{
    const char *workdir = job->workdir ? job->workdir : s->workdir;
    char *const *args = job->argv && job->argv[0] ? job->argv + 1 : NULL;
    char *own[] = {program, NULL};
    struct json_t *c;

    if (job->keep_stdin) {
        fbr_fail(err, -ENOTSUP,
                 "a pod cannot read the standard input of this process (keep_stdin)");
        return NULL;
    }
    c = fbr_json_pack("{s:s, s:s, s:o, s:[{s:s, s:s}], s:s}", "name", FBR_KUBE_CONTAINER, "image",
                      job->image ? job->image : s->image, "env",
                      environment(job->added_env, job->ticket != NULL), "volumeMounts", "name",
                      "shm", "mountPath", "/dev/shm", "terminationMessagePolicy", "File");
    fbr_json_put(&c, "command",
                 words_of(is_given(job, s) ? (char *const *)(uintptr_t)fbr_bundle_command : own));
    if (args && args[0])
        fbr_json_put(&c, "args", words_of(args));
    fbr_json_put(&c, "resources", resources(job, s));
    if (workdir[0])
        fbr_json_put(&c, "workingDir", fbr_json_string(workdir));
    if (s->pull_policy[0])
        fbr_json_put(&c, "imagePullPolicy", fbr_json_string(s->pull_policy));
    fbr_json_put(&c, "securityContext",
                 fbr_json_pack("{s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0, "capabilities",
                               "drop", "ALL"));
    if (!c)
        fbr_fail(err, -ENOMEM, "out of memory");
    return c;
}

/* ---- A program that the image lacks ---- */

#define GIVEN "fiber-agent"

/* An init container writes the program into a volume that both containers share. */
static int give(struct json_t *pod, struct json_t *container, const struct fbr_job *job,
                const struct fbr_kube_settings *s, char *program)
{
    char *command[] = {program,
                       (char *)"image",
                       (char *)"unpack",
                       (char *)FBR_BUNDLE_DIR,
                       job->is_master ? (char *)"--cluster" : NULL,
                       NULL};
    struct json_t *spec = fbr_json_at(pod, "spec", NULL), *first;

    first = fbr_json_pack("{s:s, s:s, s:o, s:[{s:s, s:s}], s:{s:b, s:{s:[s]}}}", "name", GIVEN,
                          "image", s->agent_image, "command", words_of(command), "volumeMounts",
                          "name", GIVEN, "mountPath", FBR_BUNDLE_DIR, "securityContext",
                          "allowPrivilegeEscalation", 0, "capabilities", "drop", "ALL");
    if (s->pull_policy[0])
        fbr_json_put(&first, "imagePullPolicy", fbr_json_string(s->pull_policy));
    if (fbr_json_set(spec, "initContainers", fbr_json_pack("[o]", first)) < 0 ||
        fbr_json_append(fbr_json_at(spec, "volumes", NULL),
                        fbr_json_pack("{s:s, s:{}}", "name", GIVEN, "emptyDir")) < 0)
        return -ENOMEM;
    return fbr_json_append(fbr_json_at(container, "volumeMounts", NULL),
                           fbr_json_pack("{s:s, s:s}", "name", GIVEN, "mountPath", FBR_BUNDLE_DIR));
}

/* ---- The pod ---- */

static struct json_t *labels_of(const struct fbr_job *job, const char *user)
{
    char name[FBR_KUBE_NAME], run[FBR_KUBE_NAME], index[16];
    struct json_t *labels;

    fbr_kube_label(name, job->name);
    fbr_kube_label(run, job->run_uid);
    snprintf(index, sizeof(index), "%d", job->index - 1);
    labels =
        fbr_json_pack("{s:s, s:s, s:s, s:s}", FBR_KUBE_RUN_LABEL, run, FBR_KUBE_JOB_LABEL, name,
                      FBR_KUBE_USER_LABEL, user, "app.kubernetes.io/managed-by", "fiber");
    if (job->index)
        fbr_json_put(&labels, FBR_KUBE_INDEX_LABEL, fbr_json_string(index));
    return labels;
}

#define APART "requiredDuringSchedulingIgnoredDuringExecution"

/* Keeps the pod off hosts that have another pod of the same label, whatever else a template
 * requests. */
static int keep_apart(struct json_t *pod, const char *apart)
{
    if (fbr_json_merge_new(pod, fbr_json_pack("{s:{s:{s:s}}, s:{s:{s:{}}}}", "metadata", "labels",
                                              FBR_KUBE_APART_LABEL, apart, "spec", "affinity",
                                              "podAntiAffinity")) < 0)
        return -ENOMEM;
    return fbr_kube_append(fbr_json_at(pod, "spec", "affinity", "podAntiAffinity", NULL), APART,
                           fbr_json_pack("{s:s, s:{s:{s:s}}}", "topologyKey",
                                         "kubernetes.io/hostname", "labelSelector", "matchLabels",
                                         FBR_KUBE_APART_LABEL, apart));
}

/* Sets the parts that a template may not change: the pod's identity, and that the pod runs once. */
static int set_identity(struct json_t *pod, const struct fbr_job *job,
                        const struct fbr_kube_settings *s)
{
    char name[FBR_KUBE_NAME];

    fbr_kube_pod_name(name, job);
    if (fbr_json_merge_new(pod, fbr_json_pack("{s:s, s:s, s:{s:s, s:o, s:{s:s}}, s:{s:s}}",
                                              "apiVersion", "v1", "kind", "Pod", "metadata", "name",
                                              name, "labels", labels_of(job, s->user_label),
                                              "annotations", FBR_KUBE_MASTER, s->master, "spec",
                                              "restartPolicy", "Never")) < 0)
        return -ENOMEM;
    return job->apart ? keep_apart(pod, job->apart) : 0;
}

/* Lets the init container have what the job's container has, but no GPUs: with less the pod would
 * not be Guaranteed, and a quota may refuse it. */
static int size_given(const struct json_t *pod, const char *gpu)
{
    struct json_t *first =
        fbr_json_find(fbr_json_at(pod, "spec", "initContainers", NULL), "name", GIVEN);
    struct json_t *own = fbr_json_at(fbr_kube_own_container(pod), "resources", NULL);

    if (!first || fbr_json_at(first, "resources", NULL))
        return 0;
    if (own && fbr_json_set(first, "resources", fbr_json_copy(own)) < 0)
        return -ENOMEM;
    return fbr_json_merge_new(first, fbr_json_pack("{s:{s:{s:n}, s:{s:n}}}", "resources",
                                                   "requests", gpu, "limits", gpu));
}

/* The output of an init container is not read; if it fails, the end of it becomes its message. */
static int show_init_output(const struct json_t *all)
{
    for (size_t i = 0; i < fbr_json_count(all); i++) {
        struct json_t *one = fbr_json_item(all, i);

        if (fbr_json_is_object(one) && !fbr_json_at(one, "terminationMessagePolicy", NULL) &&
            fbr_json_set(one, "terminationMessagePolicy",
                         fbr_json_string("FallbackToLogsOnError")) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Adds the rest of the spec, and the user's template. */
static int fill(struct json_t *pod, struct json_t *container, const struct fbr_job *job,
                const struct fbr_kube_settings *s, char *program)
{
    struct json_t *spec = fbr_json_at(pod, "spec", NULL);
    int rc;

    if ((is_given(job, s) && (rc = give(pod, container, job, s, program)) < 0) ||
        (s->account[0] &&
         (rc = fbr_json_set(spec, "serviceAccountName", fbr_json_string(s->account))) < 0) ||
        (s->pull_secrets &&
         (rc = fbr_json_set(spec, "imagePullSecrets", fbr_json_copy(s->pull_secrets))) < 0) ||
        (s->overlay && (rc = fbr_kube_overlay(pod, s->overlay)) < 0) ||
        (rc = show_init_output(fbr_json_at(spec, "initContainers", NULL))) < 0)
        return rc;
    return is_given(job, s) ? size_given(pod, s->gpu_resource) : 0;
}

static bool is_list(const struct json_t *value)
{
    return !value || fbr_json_is_array(value);
}

/* Checks that a template has left what more is added to, now and by fbr_kube_pod_bind(). */
static int check_parts(const struct json_t *pod, struct fbr_error *err)
{
    const struct json_t *own = fbr_kube_own_container(pod);
    const char *bad =
        !is_list(fbr_json_at(pod, "spec", "volumes", NULL)) ? "volumes"
        : !is_list(fbr_json_at(own, "volumeMounts", NULL))  ? "volumeMounts"
        : !is_list(fbr_json_at(own, "env", NULL))           ? "env"
        : !is_list(fbr_json_at(pod, "spec", "affinity", "podAntiAffinity", APART, NULL)) ? APART
                                                                                         : NULL;

    if (!own)
        return fbr_fail(err, -EINVAL, "kubernetes_pod_template removed its container");
    if (bad)
        return fbr_fail(err, -EINVAL, "kubernetes_pod_template: %s is not a list", bad);
    if (!fbr_json_text(own, "image", NULL)[0])
        return fbr_fail(
            err, -EINVAL,
            "no image is set: set the job's image, FIBER_IMAGE or `image` in the "
            "configuration to one that has this program (`fiber image build` makes one)");
    return 0;
}

struct json_t *fbr_kube_pod(const struct fbr_job *job, const struct fbr_kube_settings *s,
                            struct fbr_error *err)
{
    struct json_t *container, *pod;
    char program[PATH_MAX];
    int rc;

    if (find_program(job, s, program, err) < 0 ||
        !(container = make_container(job, s, program, err)))
        return NULL;
    pod = fbr_json_pack("{s:s, s:s, s:{}, s:{s:[o], s:b, s:b, s:b, s:i, s:[{s:s, s:{s:s}}], s:o}}",
                        "apiVersion", "v1", "kind", "Pod", "metadata", "spec", "containers",
                        container, "automountServiceAccountToken", 0, "enableServiceLinks", 0,
                        "shareProcessNamespace", 1, "terminationGracePeriodSeconds",
                        fbr_kube_grace(job, s), "volumes", "name", "shm", "emptyDir", "medium",
                        "Memory", "securityContext", pod_security(s));
    if ((rc = pod ? fill(pod, container, job, s, program) : -ENOMEM) < 0 ||
        (rc = check_parts(pod, err)) < 0 || (rc = set_identity(pod, job, s)) < 0) {
        if (rc == -ENOMEM)
            fbr_fail(err, rc, "out of memory");
    } else if (!job->is_master ||
               fbr_kube_pod_master(pod, fbr_kube_own_container(pod),
                                   job->own_program ? program : s->program, s, err) == 0) {
        return pod;
    }
    fbr_json_free(pod);
    return NULL;
}

int fbr_kube_append(struct json_t *object, const char *list, struct json_t *item)
{
    if (!fbr_json_at(object, list, NULL) && fbr_json_set(object, list, fbr_json_pack("[]")) < 0) {
        fbr_json_free(item);
        return -ENOMEM;
    }
    return fbr_json_append(fbr_json_at(object, list, NULL), item);
}

/* Whether the container's process can read a file that only root and the pod's group can read. */
static bool reads_as_root(const struct json_t *pod, const struct json_t *container)
{
    int64_t user = fbr_json_int(pod, -1, "spec", "securityContext", "runAsUser", NULL);

    return fbr_json_at(pod, "spec", "securityContext", "fsGroup", NULL) ||
           fbr_json_int(container, user, "securityContext", "runAsUser", NULL) == 0;
}

int fbr_kube_pod_bind(struct json_t *pod, const char *secret, const char *key,
                      const struct json_t *owner)
{
    struct json_t *container = fbr_kube_own_container(pod);
    int rc;

    if (owner && fbr_json_set(fbr_json_at(pod, "metadata", NULL), "ownerReferences",
                              fbr_json_pack("O", owner)) < 0)
        return -ENOMEM;
    if (!secret)
        return 0;
    /* Only the pod's own user can read the file. If the image sets that user, the user is unknown
     * here, and the file belongs to root: then every user may read it, in a volume that only this
     * container has. */
    rc = fbr_kube_append(fbr_json_at(pod, "spec", NULL), "volumes",
                         fbr_json_pack("{s:s, s:{s:s, s:[{s:s, s:s, s:i}]}}", "name",
                                       "fiber-ticket", "secret", "secretName", secret, "items",
                                       "key", key, "path", "ticket", "mode",
                                       reads_as_root(pod, container) ? 0400 : 0444));
    if (rc < 0)
        return rc;
    return fbr_kube_append(container, "volumeMounts",
                           fbr_json_pack("{s:s, s:s, s:b}", "name", "fiber-ticket", "mountPath",
                                         FBR_KUBE_TICKET_DIR, "readOnly", 1));
}

/* ---- Secrets and their owner ---- */

struct json_t *fbr_kube_owner(const char *kind, const char *name, const char *uid)
{
    return fbr_json_pack("[{s:s, s:s, s:s, s:s, s:b, s:b}]", "apiVersion", "v1", "kind", kind,
                         "name", name, "uid", uid, "controller", 1, "blockOwnerDeletion", 0);
}

static struct json_t *object(const char *kind, const char *name, const char *run, const char *user,
                             const struct json_t *owner)
{
    char label[FBR_KUBE_NAME];

    fbr_kube_label(label, run);
    return fbr_json_pack("{s:s, s:s, s:b, s:{s:s, s:{s:s, s:s, s:s}, s:O*}, s:{}}", "apiVersion",
                         "v1", "kind", kind, "immutable", 1, "metadata", "name", name, "labels",
                         FBR_KUBE_RUN_LABEL, label, FBR_KUBE_USER_LABEL, user,
                         "app.kubernetes.io/managed-by", "fiber", "ownerReferences", owner, "data");
}

struct json_t *fbr_kube_owner_map(const char *name, const char *run, const char *user,
                                  const char *master, const struct json_t *owner)
{
    struct json_t *map = object("ConfigMap", name, run, user, owner);

    if (map && fbr_json_set(fbr_json_at(map, "metadata", NULL), "annotations",
                            fbr_json_pack("{s:s}", FBR_KUBE_MASTER, master)) < 0) {
        fbr_json_free(map);
        return NULL;
    }
    return map;
}

struct json_t *fbr_kube_secret(const char *name, const char *run, const char *user,
                               const struct json_t *owner)
{
    return object("Secret", name, run, user, owner); /* its type is Opaque */
}

int fbr_kube_secret_add(struct json_t *secret, const char *key, const void *ticket, size_t len)
{
    char *text = fbr_base64_encode(ticket, len);
    int rc = text ? fbr_json_set(fbr_json_at(secret, "data", NULL), key, fbr_json_string(text))
                  : -ENOMEM;

    free(text);
    return rc;
}
