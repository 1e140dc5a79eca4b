/* cluster_check.c - the checks of a cluster for `fiber doctor`.
 *
 * Whether each needed verb is allowed (the server reviews our own access); whether the server would
 * accept a pod (a dry run); which GPUs the nodes have; and whether a pod can reach the address that
 * jobs connect to.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "runtime/net/host_address.h"
#include "runtime/base/environ.h"

#define ANSWER_MS 10000
#define ROOM_MS 4000
#define NODES "500" /* most nodes whose GPUs are counted */

static const struct {
    const char *resource, *verb, *what;
    bool needed;
    const char *group; /* NULL: the core group */
} verbs[] = {
    {"pods", "create", "starting jobs", true, NULL},
    {"pods", "get", "finding out what a lost answer was", true, NULL},
    {"pods", "list", "following the state of jobs", true, NULL},
    {"pods", "watch", "following the state of jobs", true, NULL},
    {"pods", "delete", "ending jobs", true, NULL},
    {"pods/log", "get", "showing the output of jobs", false, NULL},
    {"secrets", "create", "passing tickets to jobs", true, NULL},
    {"secrets", "delete", "removing tickets", true, NULL},
    {"configmaps", "create", "making the owner of a run's objects", true, NULL},
    {"configmaps", "list", "finding what dead masters left", true, NULL},
    {"configmaps", "delete", "removing a run's objects", true, NULL},
    {"events", "list", "explaining why a pod does not start", false, NULL},
    {"jobs", "create", "starting masters in the cluster", false, "batch"},
    {"jobs", "delete", "ending masters in the cluster", false, "batch"},
};

/* 1: allowed, 0: not allowed, negative: unknown. */
static int is_allowed(struct fbr_backend *b, const char *group, const char *resource,
                      const char *verb, struct fbr_error *err)
{
    size_t n = strcspn(resource, "/");
    struct json_t *ask = fbr_json_pack(
        "{s:s, s:s, s:{s:{s:s, s:s, s:s%, s:s, s:s}}}", "kind", "SelfSubjectAccessReview",
        "apiVersion", "authorization.k8s.io/v1", "spec", "resourceAttributes", "namespace",
        b->api->namespace_, "group", group, "resource", resource, n, "subresource",
        resource[n] ? resource + n + 1 : "", "verb", verb);
    char *body = ask ? fbr_json_print(ask, NULL) : NULL;
    struct json_t *answer = NULL;
    int status = 0, allowed;

    if (body)
        status = fbr_kube_ask(b->api, "POST",
                              strdup("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
                              body, ANSWER_MS, &answer, err);
    allowed = fbr_json_bool(answer, "status", "allowed", NULL);
    fbr_json_free(answer);
    fbr_json_free(ask);
    free(body);
    return status == 201 || status == 200 ? allowed : -1;
}

static void check_verbs(struct fbr_backend *b, const struct fbr_findings *to)
{
    size_t n = sizeof(verbs) / sizeof(verbs[0]), good = 0;
    char what[64], mend[256];

    for (size_t i = 0; i < n; i++) {
        struct fbr_error err = {0, ""};
        const char *group = verbs[i].group ? verbs[i].group : "";
        int allowed = is_allowed(b, group, verbs[i].resource, verbs[i].verb, &err);

        if (allowed < 0) {
            fbr_report(to, FBR_FINDING_ABSENT, "permissions", "", "%s", err.text);
            return;
        }
        good += allowed > 0;
        if (allowed)
            continue;
        snprintf(what, sizeof(what), "%s %s", verbs[i].verb, verbs[i].resource);
        snprintf(mend, sizeof(mend),
                 "in a Role:  - apiGroups: [\"%s\"]\n              resources: [\"%s\"]\n"
                 "              verbs: [\"%s\"]",
                 group, verbs[i].resource, verbs[i].verb);
        fbr_report(to, verbs[i].needed ? FBR_FINDING_BAD : FBR_FINDING_ABSENT, what, mend,
                   "not allowed in namespace %s; it is needed for %s", b->api->namespace_,
                   verbs[i].what);
    }
    if (good == n)
        fbr_report(to, FBR_FINDING_GOOD, "permissions", "", "all that is needed in namespace %s",
                   b->api->namespace_);
}

static void check_server(struct fbr_backend *b, const struct fbr_findings *to)
{
    struct fbr_error err = {0, ""};
    struct json_t *version = NULL;

    fbr_kube_ask(b->api, "GET", strdup("/version"), NULL, ANSWER_MS, &version, &err);
    fbr_report(to, FBR_FINDING_GOOD, "server", "", "%.60s at %.200s, %s%.100s",
               version ? fbr_json_text(version, "gitVersion", NULL) : "of an unknown version",
               b->api->config.server, b->api->config.context ? "context " : "service account",
               b->api->config.context ? b->api->config.context : "");
    fbr_json_free(version);
    if (b->api->config.insecure)
        fbr_report(to, FBR_FINDING_BAD, "certificate",
                   "in the kubeconfig, replace insecure-skip-tls-verify with certificate-authority",
                   "is not checked: every host on the way can read and change everything");
}

/* ---- A pod ---- */

/* Checks whether the server would accept a job's pod, with the image, the template and the account
 * of the settings. */
static void check_pod(struct fbr_backend *b, const struct fbr_findings *to)
{
    static char *const argv[] = {(char *)(uintptr_t) "fiber-worker", NULL};
    const struct fbr_job job = {.name = "doctor-1",
                                .run_uid = "doctor",
                                .file = "/proc/self/exe",
                                .argv = argv,
                                .own_program = 1,
                                .ticket = "",
                                .process = 1};

    if (!b->settings.image[0]) {
        fbr_report(to, FBR_FINDING_BAD, "image",
                   "fiber image build, push it where nodes can pull it, and set FIBER_IMAGE",
                   "none is set: jobs that set none cannot be started");
        return;
    }
    fbr_report(to, FBR_FINDING_GOOD, "image", "", "%s", b->settings.image);
    fbr_kube_would(b, &job, to);
}

/* ---- GPUs ---- */

/* Reads a quantity such as "8", "2k" or "1930m", without the fraction. */
static unsigned long long quantity(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    if (text[0] == '-')
        return 0;
    return *end == 'k' ? n * 1000 : *end == 'm' ? n / 1000 : n;
}

struct fbr_kube_gpus fbr_kube_count_gpus(const struct json_t *nodes, const char *resource)
{
    const struct json_t *items = fbr_json_at(nodes, "items", NULL);
    struct fbr_kube_gpus g = {.nodes = fbr_json_count(items)};

    for (size_t i = 0; i < g.nodes; i++) {
        const struct json_t *one = fbr_json_item(items, i);
        unsigned long long n =
            quantity(fbr_json_text(one, "status", "allocatable", resource, NULL));

        g.gpus += n;
        g.most = n > g.most ? n : g.most;
        g.with += n > 0;
    }
    return g;
}

/* ---- The size of nodes ---- */

/* Whether pods without tolerations cannot run on the node. */
static bool is_closed(const struct json_t *node)
{
    const struct json_t *taints = fbr_json_at(node, "spec", "taints", NULL);

    for (size_t i = 0; i < fbr_json_count(taints); i++)
        if (!strncmp(fbr_json_text(fbr_json_item(taints, i), "effect", NULL), "No", 2))
            return true; /* NoSchedule, NoExecute */
    return fbr_json_bool(node, "spec", "unschedulable", NULL);
}

unsigned fbr_kube_smallest(const struct json_t *nodes)
{
    const struct json_t *items = fbr_json_at(nodes, "items", NULL);
    unsigned long long least = 0;

    for (size_t i = 0; i < fbr_json_count(items); i++) {
        const struct json_t *one = fbr_json_item(items, i);
        unsigned long long n = quantity(fbr_json_text(one, "status", "allocatable", "cpu", NULL));

        if (n && !is_closed(one) && (!least || n < least))
            least = n;
    }
    return least < 1u << 20 ? (unsigned)least : 1u << 20;
}

int fbr_kube_room(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                  struct fbr_error *err)
{
    struct fbr_kube_api *api = NULL;
    struct json_t *nodes = NULL;
    int rc;

    if (!sizes)
        return 0;
    fbr_environ_use(env->environ);
    rc = fbr_kube_api_open(&api, env->loop, env->config, err);
    if (rc < 0)
        return rc;
    rc = fbr_kube_ask(api, "GET", strdup("/api/v1/nodes?limit=" NODES), NULL, ROOM_MS, &nodes, err);
    if (nodes)
        room->cpus = fbr_kube_smallest(nodes);
    fbr_json_free(nodes);
    fbr_kube_api_close(api);
    return rc >= 200 && rc < 300 ? 0 : -EIO;
}

/* ---- GPUs of nodes ---- */

static void check_gpus(struct fbr_backend *b, const struct fbr_findings *to)
{
    const char *resource = b->settings.gpu_resource;
    struct fbr_error err = {0, ""};
    struct json_t *nodes = NULL;
    struct fbr_kube_gpus g;
    bool more;
    int status = fbr_kube_ask(b->api, "GET", strdup("/api/v1/nodes?limit=" NODES), NULL, ANSWER_MS,
                              &nodes, &err);

    if (!nodes) {
        fbr_report(to, FBR_FINDING_ABSENT, "GPUs", "", "not known: %.380s",
                   status == 403
                       ? "this user may not list the nodes, which is not needed; a pod that asks "
                         "for some (--gpus-per-rank) shows whether there are any"
                       : err.text);
        return;
    }
    g = fbr_kube_count_gpus(nodes, resource);
    more = fbr_json_text(nodes, "metadata", "continue", NULL)[0] != '\0';
    fbr_json_free(nodes);
    if (g.gpus)
        fbr_report(to, FBR_FINDING_GOOD, "GPUs", "",
                   "%llu %.80s on %zu of %zu nodes, at most %llu on one%s", g.gpus, resource,
                   g.with, g.nodes, g.most, more ? ", of the first " NODES : "");
    else
        fbr_report(to, FBR_FINDING_ABSENT, "GPUs",
                   "install the vendor's device plugin, and set kubernetes_gpu_resource to the "
                   "name that it uses",
                   "none of %zu nodes has %.80s%s", g.nodes, resource,
                   more ? ", of the first " NODES : "");
}

/* ---- The way back ---- */

const char *fbr_kube_why_unreachable(const char *address)
{
    unsigned char four[4];
    struct in6_addr six;
    bool v4 = inet_pton(AF_INET, address, four) == 1, v6 = inet_pton(AF_INET6, address, &six) == 1;

    if ((v4 && four[0] == 127) || (v6 && IN6_IS_ADDR_LOOPBACK(&six)))
        return "is the loopback: a pod that calls it calls itself";
    if ((v4 && four[0] == 169 && four[1] == 254) || (v6 && IN6_IS_ADDR_LINKLOCAL(&six)))
        return "is link-local: it means something else in each network";
    if ((v4 && four[0] == 0) || (v6 && IN6_IS_ADDR_UNSPECIFIED(&six)))
        return "is not an address that can be called";
    return NULL;
}

static void check_way_back(struct fbr_backend *b, const struct fbr_findings *to)
{
    const char *bind = fbr_config_str(b->env.config, "bind"), *why;
    struct fbr_error err = {0, ""};
    char address[FBR_HOST_ADDRESS_MAX] = "";
    int rc =
        bind[0] ? fbr_host_address_find(bind, address) : fbr_kube_ops.address(b, address, &err);

    if (rc < 0 && bind[0])
        fbr_fail(&err, rc, "bind = %.64s: this host has no such address or interface", bind);
    why = rc < 0 ? NULL : fbr_kube_why_unreachable(address);
    if (rc < 0)
        fbr_report(to, FBR_FINDING_BAD, "way back",
                   "set bind to an address of this host that pods reach", "%s", err.text);
    else if (why)
        fbr_report(to, FBR_FINDING_BAD, "way back",
                   "export FIBER_BIND=ADDRESS, one of this host that pods reach; or fiber run "
                   "--in-cluster",
                   "jobs would call %.64s, which %s", address, why);
    else if (b->api->config.in_cluster)
        fbr_report(to, FBR_FINDING_GOOD, "way back", "", "jobs call %.64s, this pod", address);
    else
        fbr_report(to, FBR_FINDING_GOOD, "way back", "",
                   "jobs call %.64s; only a running pod shows whether pods reach it. If the "
                   "cluster enforces NetworkPolicy, use fiber kubernetes manifest --master %.64s",
                   address, address);
}

void fbr_kube_check(struct fbr_backend *b, const struct fbr_findings *to)
{
    check_server(b, to);
    check_verbs(b, to);
    check_pod(b, to);
    check_gpus(b, to);
    check_way_back(b, to);
}
