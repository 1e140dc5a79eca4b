/* kube_check.c - what `fiber doctor` finds out about a cluster: whether each verb that is needed is allowed, by asking
 * the server for a review of our own access.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/json.h"
#include "backends/kube_priv.h"

#define ANSWER_MS 10000

static const struct {
    const char *resource, *sub, *verb, *what;
    bool needed;
    const char *group; /* NULL: the core's */
} verbs[] = {
    {"pods", "", "create", "starting jobs", true, NULL},
    {"pods", "", "get", "seeing what a lost answer was", true, NULL},
    {"pods", "", "list", "seeing what becomes of jobs", true, NULL},
    {"pods", "", "watch", "seeing what becomes of jobs", true, NULL},
    {"pods", "", "delete", "ending jobs", true, NULL},
    {"pods", "log", "get", "showing what jobs write", false, NULL},
    {"secrets", "", "create", "handing over tickets", true, NULL},
    {"secrets", "", "delete", "removing tickets", true, NULL},
    {"events", "", "list", "saying why a pod does not start", false, NULL},
    {"jobs", "", "create", "starting masters in the cluster", false, "batch"},
    {"jobs", "", "delete", "ending masters in the cluster", false, "batch"},
};

/* 1: allowed, 0: not, negative: unknown. */
static int is_allowed(struct fbr_backend *b, const char *group, const char *resource,
                      const char *sub, const char *verb, struct fbr_error *err)
{
    struct json_t *ask = fbr_json_pack(
        "{s:s, s:s, s:{s:{s:s, s:s, s:s, s:s, s:s}}}", "kind", "SelfSubjectAccessReview",
        "apiVersion", "authorization.k8s.io/v1", "spec", "resourceAttributes", "namespace",
        b->api->namespace_, "group", group, "resource", resource, "subresource", sub, "verb", verb);
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

static void check_verbs(struct fbr_backend *b, fbr_backend_say *say, void *user)
{
    size_t n = sizeof(verbs) / sizeof(verbs[0]), good = 0;
    char what[64], text[256], mend[256];

    for (size_t i = 0; i < n; i++) {
        struct fbr_error err = {0, ""};
        const char *slash = verbs[i].sub[0] ? "/" : "", *group = verbs[i].group;
        int allowed =
            is_allowed(b, group ? group : "", verbs[i].resource, verbs[i].sub, verbs[i].verb, &err);

        if (allowed < 0) {
            say(user, FBR_FINDING_ABSENT, "permissions", err.text, "");
            return;
        }
        good += allowed > 0;
        if (allowed)
            continue;
        snprintf(what, sizeof(what), "%s %s%s%s", verbs[i].verb, verbs[i].resource, slash,
                 verbs[i].sub);
        snprintf(text, sizeof(text), "not allowed in namespace %s; it is needed for %s",
                 b->api->namespace_, verbs[i].what);
        snprintf(
            mend, sizeof(mend),
            "in a Role:  - apiGroups: [\"%s\"]\n              resources: [\"%s%s%s\"]\n        "
            "      verbs: [\"%s\"]",
            group ? group : "", verbs[i].resource, slash, verbs[i].sub, verbs[i].verb);
        say(user, verbs[i].needed ? FBR_FINDING_BAD : FBR_FINDING_ABSENT, what, text, mend);
    }
    if (good == n) {
        snprintf(text, sizeof(text), "all that is needed in namespace %s", b->api->namespace_);
        say(user, FBR_FINDING_GOOD, "permissions", text, "");
    }
}

static void check_server(struct fbr_backend *b, fbr_backend_say *say, void *user)
{
    struct fbr_error err = {0, ""};
    struct json_t *version = NULL;
    char text[384];

    fbr_kube_ask(b->api, "GET", strdup("/version"), NULL, ANSWER_MS, &version, &err);
    snprintf(text, sizeof(text), "%.60s at %.200s, %s%.100s",
             version ? fbr_json_text(version, "gitVersion", NULL) : "of an unknown version",
             b->api->config.server, b->api->config.context ? "context " : "service account",
             b->api->config.context ? b->api->config.context : "");
    say(user, FBR_FINDING_GOOD, "server", text, "");
    fbr_json_free(version);
    if (b->api->config.insecure)
        say(user, FBR_FINDING_BAD, "certificate",
            "is not checked: whoever is on the way can read and change everything",
            "take insecure-skip-tls-verify out of the kubeconfig, put certificate-authority in");
}

static void check_image(struct fbr_backend *b, fbr_backend_say *say, void *user)
{
    if (b->settings.image[0])
        say(user, FBR_FINDING_GOOD, "image", b->settings.image, "");
    else
        say(user, FBR_FINDING_BAD, "image", "none is set: jobs that name none cannot be started",
            "fiber image build, push it where nodes can pull it, and set FIBER_IMAGE");
}

static void check_way_back(struct fbr_backend *b, fbr_backend_say *say, void *user)
{
    const char *bind = fbr_config_str(b->env.config, "bind");
    struct fbr_error err = {0, ""};
    char address[64], text[160];

    if (fbr_backend_kubernetes.address(b, address, sizeof(address), &err) < 0) {
        say(user, FBR_FINDING_BAD, "way back", err.text,
            "set bind to an address of ours that pods reach");
        return;
    }
    snprintf(text, sizeof(text), "jobs call %.64s; whether pods reach it is seen when one runs",
             bind[0] ? bind : address);
    say(user, FBR_FINDING_GOOD, "way back", text, "");
}

void fbr_kube_check(struct fbr_backend *b, fbr_backend_say *say, void *user)
{
    check_server(b, say, user);
    check_verbs(b, say, user);
    check_image(b, say, user);
    check_way_back(b, say, user);
}
