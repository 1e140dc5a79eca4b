/* kubernetes_table.c - the facts about the backend kubernetes that are known before its module is
 * loaded.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/proc/backend.h"

#define POD_TOKEN "/var/run/secrets/kubernetes.io/serviceaccount/token"

static const struct fbr_config_key keys[] = {
    {"kubernetes_context", "FIBER_KUBERNETES_CONTEXT", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX,
     NULL, "backend kubernetes: context of the kubeconfig; empty: its current one"},
    {"kubernetes_namespace", "FIBER_KUBERNETES_NAMESPACE", FBR_CONFIG_STR, "", 0, 63, NULL,
     "backend kubernetes: namespace of the pods; empty: the context's, in a pod its own"},
    {"kubernetes_pod_template", "FIBER_KUBERNETES_POD_TEMPLATE", FBR_CONFIG_STR, "", 0,
     FBR_CONFIG_TEXT_MAX, NULL, "backend kubernetes: YAML file that is merged into each pod"},
    {"kubernetes_program", "FIBER_KUBERNETES_PROGRAM", FBR_CONFIG_STR, "", 0, FBR_CONFIG_TEXT_MAX,
     NULL, "backend kubernetes: path of this program in the image; empty: the same as here"},
    {"kubernetes_agent_image", "FIBER_KUBERNETES_AGENT_IMAGE", FBR_CONFIG_STR, "", 0,
     FBR_CONFIG_TEXT_MAX, NULL,
     "backend kubernetes: image with the command fiber, for pods of images that lack it"},
    {"kubernetes_pull_policy", "FIBER_KUBERNETES_PULL_POLICY", FBR_CONFIG_ENUM, "auto", 0, 0,
     "auto Always IfNotPresent Never",
     "backend kubernetes: when nodes pull the image; auto: as this process's own pod, or as the "
     "cluster does"},
    {"kubernetes_service_account", "FIBER_KUBERNETES_SERVICE_ACCOUNT", FBR_CONFIG_STR, "", 0, 253,
     NULL, "backend kubernetes: service account of the pods, which get no token of it"},
    {"kubernetes_master_account", "FIBER_KUBERNETES_MASTER_ACCOUNT", FBR_CONFIG_STR, "fiber", 1,
     253, NULL, "backend kubernetes: service account of masters that are started in the cluster"},
    {"kubernetes_user", "FIBER_KUBERNETES_USER", FBR_CONFIG_INT, "-1", -1, INT32_MAX, NULL,
     "backend kubernetes: user id that pods run as; -1: as the image says"},
    {"kubernetes_gpu_resource", "FIBER_KUBERNETES_GPU_RESOURCE", FBR_CONFIG_STR, "nvidia.com/gpu",
     1, 253, NULL, "backend kubernetes: the resource name of a GPU"},
    {"kubernetes_follow_logs", "FIBER_KUBERNETES_FOLLOW_LOGS", FBR_CONFIG_INT, "64", 0, 100000,
     NULL,
     "backend kubernetes: number of pods whose output is shown as it comes; that of others is "
     "shown when they fail"},
    {"kubernetes_pull_timeout", "FIBER_KUBERNETES_PULL_TIMEOUT", FBR_CONFIG_MS, "120s", 1000,
     24 * FBR_HOUR_MS, NULL,
     "backend kubernetes: how long to wait for an image that cannot be pulled"},
    {"kubernetes_pending_timeout", "FIBER_KUBERNETES_PENDING_TIMEOUT", FBR_CONFIG_MS, "0s", 0,
     7 * 24 * FBR_HOUR_MS, NULL, "backend kubernetes: how long a pod may wait to run; 0: for ever"},
    {"kubernetes_rate", "FIBER_KUBERNETES_RATE", FBR_CONFIG_INT, "50", 1, 100000, NULL,
     "backend kubernetes: pods that are created in a second, on average"},
    {"kubernetes_burst", "FIBER_KUBERNETES_BURST", FBR_CONFIG_INT, "200", 1, 100000, NULL,
     "backend kubernetes: pods that are created at once"},
};

static const struct fbr_backend_sign signs[] = {
    {"KUBECONFIG", NULL, "~/.kube/config"},
    {NULL, NULL, POD_TOKEN},
};

static const struct fbr_backend_advice advice = {
    .absent = "set KUBECONFIG to the file that your cluster's owner gave you",
    .bad = "kubectl cluster-info, with the same KUBECONFIG",
    .may = "in a Role:  - apiGroups: [\"\"]\n              resources: [\"pods\"]\n"
           "              verbs: [\"list\"]",
};

/* Whether we run in a pod that may use the API server. */
static int here(void)
{
    const char *host = fbr_getenv("KUBERNETES_SERVICE_HOST");

    return host && host[0] && access(POD_TOKEN, R_OK) == 0;
}

/* Writes a kubectl command for the cluster and the namespace of the settings. */
static void put_kubectl(const struct fbr_config *config, const char *verb, char *out, size_t size)
{
    const char *context = fbr_config_str(config, "kubernetes_context");
    const char *space = fbr_config_str(config, "kubernetes_namespace");

    snprintf(out, size, "kubectl %s%s%.100s%s%.63s ", verb, context[0] ? " --context " : "",
             context, space[0] ? " -n " : "", space);
}

static void remove_command(const struct fbr_config *config, const char *id, char *out, size_t size)
{
    put_kubectl(config, "delete", out, size);
    snprintf(out + strlen(out), size - strlen(out), "%s%s", strchr(id, '/') ? "" : "pod/", id);
}

static void in_master(const struct fbr_config *config, const char *id, const char *fiber, char *out,
                      size_t size)
{
    put_kubectl(config, "exec", out, size);
    snprintf(out + strlen(out), size - strlen(out), "%.63s -- %.200s", id, fiber);
}

static const char *const variables[] = {"FIBER_POD_NAME", NULL};

static const struct fbr_backend_about about = {
    .keys = keys,
    .nkeys = sizeof(keys) / sizeof(keys[0]),
    .signs = signs,
    .nsigns = sizeof(signs) / sizeof(signs[0]),
    .advice = &advice,
    .here = here,
    .remove_command = remove_command,
    .job = "pod",
    .in_master = in_master,
    .leaves_jobs = 1,
    .variables = variables,
    .contained = 1,
    .in_images = 1,
    .shows = 1,
};

extern const struct fbr_backend_ops fbr_backend_kubernetes;
const struct fbr_backend_ops fbr_backend_kubernetes = {
    .name = "kubernetes", .about = &about, .reach = FBR_REACH_TCP};
