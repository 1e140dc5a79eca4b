/* pod_state.c - the states of a pod.
 *
 * A container that has ended decides, then a container that runs; only without either do the pod's
 * phase and conditions count. Unknown words of Kubernetes are shown unchanged, and never end a job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/pod_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backends/image/image.h"
#include "backends/http/json.h"
#include "runtime/base/config_value.h"
#include "runtime/base/printable.h"
#include "runtime/proc/backend.h"

#define LOGIN                                                                                     \
    " (pods may need a login: kubectl create secret docker-registry NAME, and imagePullSecrets: " \
    "[{name: NAME}] in the spec of kubernetes_pod_template)"
#define MAX_SIGNAL 31 /* a shell reports signal N as 128 + N */

struct reason {
    const char *name;
    enum fbr_kube_wait wait;
    const char *describe; /* stands before the message */
};

/* Reasons of a waiting container. */
static const struct reason waiting[] = {
    {"ErrImagePull", FBR_KUBE_WAIT_PULL, "cannot be pulled"},
    {"ImagePullBackOff", FBR_KUBE_WAIT_PULL, "cannot be pulled"},
    {"RegistryUnavailable", FBR_KUBE_WAIT_PULL, "cannot be pulled: its registry does not answer"},
    {"SignatureValidationFailed", FBR_KUBE_WAIT_PULL, "is not signed as the node requires"},
    {"ImageInspectError", FBR_KUBE_WAIT_CONFIG, "cannot be read on the node"},
    {"InvalidImageName", FBR_KUBE_WAIT_NEVER, "has an invalid name"},
    {"ErrImageNeverPull", FBR_KUBE_WAIT_NEVER,
     "is not on the node, and must not be pulled (imagePullPolicy: Never)"},
    {"CreateContainerConfigError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"CreateContainerError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"RunContainerError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"PreCreateHookError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"PreStartHookError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"PostStartHookError", FBR_KUBE_WAIT_CONFIG, NULL},
    {"CrashLoopBackOff", FBR_KUBE_WAIT_CONFIG, NULL},
};

/* Reasons in status.reason of a pod that the cluster ended. */
static const char disruptions[] = "Evicted Preempting Preempted NodeLost NodeShutdown Shutdown "
                                  "Terminated NodeAffinity NodeUnreachable";

static const struct json_t *condition_of(const struct json_t *pod, const char *type)
{
    return fbr_json_find(fbr_json_at(pod, "status", "conditions", NULL), "type", type);
}

struct json_t *fbr_kube_own_container(const struct json_t *pod)
{
    return fbr_json_find(fbr_json_at(pod, "spec", "containers", NULL), "name", FBR_KUBE_CONTAINER);
}

static void describe(struct fbr_kube_state *s, const char *what, const char *more)
{
    snprintf(s->text, sizeof(s->text), "%.160s%s%.340s", what, what[0] && more[0] ? ": " : "",
             more);
}

/* ---- The end ---- */

/* Notes a disruption by the cluster, if there was one. */
static bool disrupted(struct fbr_kube_state *s, const struct json_t *pod)
{
    const struct json_t *target = condition_of(pod, "DisruptionTarget");
    const char *reason = fbr_json_text(pod, "status", "reason", NULL);
    const char *message = fbr_json_text(pod, "status", "message", NULL);
    char what[160];

    if (target && !strcmp(fbr_json_text(target, "status", NULL), "True")) {
        reason = fbr_json_text(target, "reason", NULL);
        message = fbr_json_text(target, "message", NULL);
    } else if (fbr_word_index(disruptions, reason) < 0) {
        return false;
    }
    snprintf(what, sizeof(what), "the cluster ended its pod (%.80s)", reason);
    describe(s, what, message);
    s->disruption = true;
    return true;
}

/* Checks for a pod that used more of its node's disk than its own limit. A node that runs short of
 * something evicts pods, too, but its message names no limit. */
static bool over_disk_limit(struct fbr_kube_state *s, const struct json_t *pod)
{
    const char *message = fbr_json_text(pod, "status", "message", NULL);

    if (strcmp(fbr_json_text(pod, "status", "reason", NULL), "Evicted") != 0 ||
        !strstr(message, " limit"))
        return false;
    describe(s, "used more disk than its limit, and was evicted", message);
    return true;
}

static int32_t exit_code(int64_t code)
{
    if (code > 128 && code <= 128 + MAX_SIGNAL)
        return (int32_t)(128 - code);
    return code >= 0 && code <= 255 ? (int32_t)code : FBR_EXIT_UNKNOWN;
}

static void out_of_memory(struct fbr_kube_state *s, const struct json_t *pod)
{
    const char *limit =
        fbr_json_text(fbr_kube_own_container(pod), "resources", "limits", "memory", NULL);

    s->code = -SIGKILL;
    snprintf(s->text, sizeof(s->text),
             limit[0] ? "used more memory than its limit of %.40s, and was killed (OOMKilled); the "
                        "cluster does not report its peak"
                      : "was killed because its node ran out of memory%.0s (OOMKilled); ask for "
                        "memory to run on a node that has enough",
             limit);
}

/* Says what brings the program into the image. Rings start the command fiber. */
static void describe_lack(struct fbr_kube_state *s, const struct json_t *pod, const char *message)
{
    const struct json_t *command = fbr_json_at(fbr_kube_own_container(pod), "command", NULL);
    const char *program = fbr_json_text(fbr_json_item(command, 0), NULL);
    const char *name = strrchr(program, '/');
    bool agent = name && !strcmp(name, "/fiber");

    snprintf(s->text, sizeof(s->text),
             "its program cannot be started: it is not in the image: %.300s%s", message,
             agent ? "; kubernetes_agent_image gives it to images that lack it"
                   : "; `fiber image export` makes an image that has it");
}

/* Explains the message of the container runtime; the cause is at its end. */
static void not_started(struct fbr_kube_state *s, const struct json_t *pod, const char *message)
{
    const char *cause = strstr(message, "exec: ");

    cause = cause ? cause : message;
    s->code = strstr(message, "permission denied") ? 126 : 127;
    if (s->code == 126)
        describe(s, "its program cannot be started: it is not executable", cause);
    else if (strstr(message, "exec format error"))
        describe(s, "its program cannot be started: it is for another kind of processor", cause);
    else if (strstr(message, "no such file") || strstr(message, "not found"))
        describe_lack(s, pod, cause);
    else
        describe(s, "its program cannot be started", message);
}

/* Explains the codes by which a shell, or another program starter, reports a failed start. */
static void describe_shells_code(struct fbr_kube_state *s, const struct json_t *pod)
{
    const char *image = fbr_json_text(fbr_kube_own_container(pod), "image", NULL);

    if (s->code == 127)
        snprintf(s->text, sizeof(s->text),
                 "exited with code 127: a program, or a library that it needs, is not in the image "
                 "'%.200s'",
                 image);
    else if (s->code == 126)
        snprintf(
            s->text, sizeof(s->text),
            "exited with code 126: a program of the image '%.200s' cannot be executed: it lacks "
            "the permission, or is for other processors",
            image);
}

static void container_ended(struct fbr_kube_state *s, const struct json_t *pod,
                            const struct json_t *end)
{
    const char *reason = fbr_json_text(end, "reason", NULL);
    const char *message = fbr_json_text(end, "message", NULL);

    s->phase = FBR_KUBE_ENDED;
    s->code = exit_code(fbr_json_int(end, -1, "exitCode", NULL));
    if (!strcmp(reason, "OOMKilled")) {
        out_of_memory(s, pod);
    } else if (!strcmp(reason, "StartError") || !strcmp(reason, "ContainerCannotRun")) {
        not_started(s, pod, message);
    } else if (!strcmp(reason, "ContainerStatusUnknown") || !strcmp(reason, "Unknown")) {
        s->code = FBR_EXIT_UNKNOWN; /* the container runtime has not seen its end */
        s->disruption = true;
        describe(s, "its node was restarted, or lost track of it", message);
    } else if (!strcmp(fbr_json_text(pod, "status", "reason", NULL), "DeadlineExceeded")) {
        describe(s, "its pod ran longer than its activeDeadlineSeconds", "");
    } else if (s->code != 0 && !over_disk_limit(s, pod) && !disrupted(s, pod)) {
        describe_shells_code(s, pod);
    }
}

/* Checks for a failed init container, which has kept ours from running. */
static bool init_failed(struct fbr_kube_state *s, const struct json_t *pod)
{
    const struct json_t *all = fbr_json_at(pod, "status", "initContainerStatuses", NULL);
    char what[160], line[340];

    for (size_t i = 0; i < fbr_json_count(all); i++) {
        const struct json_t *one = fbr_json_item(all, i);
        const struct json_t *end = fbr_json_at(one, "state", "terminated", NULL);
        int64_t code = fbr_json_int(end, 0, "exitCode", NULL);

        if (code == 0)
            continue;
        snprintf(what, sizeof(what),
                 "the init container '%.64s' of its pod failed with code %lld (%.40s)",
                 fbr_json_text(one, "name", NULL), (long long)code,
                 fbr_json_text(end, "reason", NULL));
        /* its message is the end of its output */
        fbr_printable_last_line(fbr_json_text(end, "message", NULL), line, sizeof(line));
        describe(s, what, line);
        return true;
    }
    return false;
}

/* Describes a pod that is over, with nothing known about our container. */
static void pod_failed(struct fbr_kube_state *s, const struct json_t *pod)
{
    const char *reason = fbr_json_text(pod, "status", "reason", NULL);
    const char *message = fbr_json_text(pod, "status", "message", NULL);
    char what[160];

    s->phase = FBR_KUBE_ENDED;
    s->code = FBR_EXIT_UNKNOWN;
    if (over_disk_limit(s, pod) || disrupted(s, pod) || init_failed(s, pod))
        return;
    if (!strncmp(reason, "OutOf", 5) || !strcmp(reason, "UnexpectedAdmissionError"))
        s->disruption = true; /* the node had promised more than it has */
    snprintf(what, sizeof(what), "its pod failed%s%.80s%s", reason[0] ? " (" : "", reason,
             reason[0] ? ")" : "");
    describe(s, what, message);
}

/* ---- Waiting ---- */

/* Skips what names the image again: `failed to resolve reference "IMAGE": CAUSE`. A long name would
 * leave no room for the cause. */
static const char *cause_of(const char *message, const char *image)
{
    const char *at;

    while (image[0] && (at = strstr(message, image))) {
        at += strcspn(at, " \"");
        if (strncmp(at, "\": ", 3) != 0)
            break;
        message = at + 3;
    }
    return message;
}

/* Finds the first container in a list that cannot go on. */
static bool stuck(struct fbr_kube_state *s, const struct json_t *all)
{
    for (size_t i = 0; i < fbr_json_count(all); i++) {
        const struct json_t *one = fbr_json_item(all, i);
        const char *reason = fbr_json_text(one, "state", "waiting", "reason", NULL);
        const char *image = fbr_json_text(one, "image", NULL);
        const char *message =
            cause_of(fbr_json_text(one, "state", "waiting", "message", NULL), image);
        const char *mend = "";
        char what[160];

        for (size_t k = 0; k < sizeof(waiting) / sizeof(waiting[0]); k++) {
            if (strcmp(reason, waiting[k].name) != 0)
                continue;
            s->wait = waiting[k].wait;
            if (waiting[k].describe)
                snprintf(what, sizeof(what), "image '%.80s' %s", image, waiting[k].describe);
            else
                snprintf(what, sizeof(what), "%.60s", reason);
            if (s->wait == FBR_KUBE_WAIT_PULL && fbr_image_refused(message)) {
                mend = LOGIN;
            } else if (strstr(message, "runAsNonRoot")) {
                s->wait = FBR_KUBE_WAIT_NEVER;
                mend = "; kubernetes_user sets a user id";
            }
            describe(s, what, message);
            if (mend[0])
                snprintf(s->text, sizeof(s->text), "%.160s: %.180s%s", what, message, mend);
            return true;
        }
    }
    return false;
}

/* Names the controller that holds a pod by a scheduling gate. */
static void describe_holder(const struct json_t *pod, char *out, size_t size)
{
    static const struct {
        const char *gate, *who;
    } known[] = {
        {"kueue.x-k8s.io/", "Kueue"},         {"scheduling.volcano.sh/", "Volcano"},
        {"volcano.sh/", "Volcano"},           {"scheduling.x-k8s.io/", "coscheduling"},
        {"yunikorn.apache.org/", "YuniKorn"}, {"jobset.sigs.k8s.io/", "JobSet"},
    };
    const struct json_t *gates = fbr_json_at(pod, "spec", "schedulingGates", NULL);
    const char *gate = fbr_json_text(fbr_json_item(gates, 0), "name", NULL);

    out[0] = '\0';
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !out[0]; i++)
        if (!strncmp(gate, known[i].gate, strlen(known[i].gate)))
            snprintf(out, size, "waits in a queue of %s (gate %.80s)", known[i].who, gate);
    if (!out[0])
        snprintf(out, size, "waits in a queue of the cluster%s%.80s%s", gate[0] ? " (gate " : "",
                 gate, gate[0] ? ")" : "");
}

static void pending(struct fbr_kube_state *s, const struct json_t *pod)
{
    const struct json_t *scheduled = condition_of(pod, "PodScheduled");
    const char *reason = fbr_json_text(scheduled, "reason", NULL);
    const char *node = fbr_json_text(pod, "spec", "nodeName", NULL);
    char holder[160];

    s->phase = FBR_KUBE_PENDING;
    if (stuck(s, fbr_json_at(pod, "status", "containerStatuses", NULL)) ||
        stuck(s, fbr_json_at(pod, "status", "initContainerStatuses", NULL)))
        return;
    if (!strcmp(fbr_json_text(scheduled, "status", NULL), "False")) {
        bool gated = !strcmp(reason, "SchedulingGated");

        s->wait = gated ? FBR_KUBE_WAIT_QUEUE : FBR_KUBE_WAIT_PLACE;
        describe_holder(pod, holder, sizeof(holder));
        describe(s, gated ? holder : "no node takes it", fbr_json_text(scheduled, "message", NULL));
    } else if (node[0]) {
        snprintf(s->text, sizeof(s->text), "its pod is being set up on node %.200s", node);
    } else {
        snprintf(s->text, sizeof(s->text), "its pod waits for a node (schedulerName: %.200s)",
                 fbr_json_text(pod, "spec", "schedulerName", NULL));
    }
}

/* ---- All ---- */

static bool others_run(const struct json_t *all)
{
    for (size_t i = 0; i < fbr_json_count(all); i++) {
        const struct json_t *one = fbr_json_item(all, i);

        if (strcmp(fbr_json_text(one, "name", NULL), FBR_KUBE_CONTAINER) != 0 &&
            !fbr_json_at(one, "state", "terminated", NULL))
            return true;
    }
    return false;
}

void fbr_kube_state(struct fbr_kube_state *s, const struct json_t *pod)
{
    const struct json_t *all = fbr_json_at(pod, "status", "containerStatuses", NULL);
    const struct json_t *own = fbr_json_find(all, "name", FBR_KUBE_CONTAINER);
    const struct json_t *end = fbr_json_at(own, "state", "terminated", NULL);
    const char *phase = fbr_json_text(pod, "status", "phase", NULL);

    memset(s, 0, sizeof(*s));
    s->code = FBR_EXIT_UNKNOWN;
    s->deleting = fbr_json_text(pod, "metadata", "deletionTimestamp", NULL)[0] != '\0';
    s->others = others_run(all);
    s->placed = fbr_json_text(pod, "spec", "nodeName", NULL)[0] != '\0';
    if (end) {
        container_ended(s, pod, end);
    } else if (!strcmp(phase, "Succeeded")) {
        s->phase = FBR_KUBE_ENDED;
        s->code = 0;
    } else if (!strcmp(phase, "Failed")) {
        pod_failed(s, pod);
    } else if (fbr_json_at(own, "state", "running", NULL) || (!own && !strcmp(phase, "Running"))) {
        s->phase = FBR_KUBE_RUNNING;
        if (s->deleting)
            disrupted(s, pod);
    } else {
        pending(s, pod);
    }
}

void fbr_kube_newest_event(const struct json_t *list, char *text, unsigned size)
{
    const struct json_t *items = fbr_json_at(list, "items", NULL), *newest = NULL;
    const char *last = "";

    for (size_t i = 0; i < fbr_json_count(items); i++) {
        const struct json_t *one = fbr_json_item(items, i);
        const char *when = fbr_json_text(one, "lastTimestamp", NULL);

        if (!when[0])
            when = fbr_json_text(one, "eventTime", NULL);
        if (!strcmp(fbr_json_text(one, "reason", NULL), "MissingClusterDNS"))
            continue; /* every pod of such a cluster has this event */
        if (!strcmp(fbr_json_text(one, "type", NULL), "Warning") && strcmp(when, last) >= 0) {
            newest = one;
            last = when;
        }
    }
    snprintf(text, size, "%s%s%.400s", fbr_json_text(newest, "reason", NULL), newest ? ": " : "",
             fbr_json_text(newest, "message", NULL));
}
