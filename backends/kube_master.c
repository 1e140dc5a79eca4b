/* kube_master.c - a pod whose job is a master itself: `fiber run --in-cluster` and `fiber kubernetes run`.
 *
 * It is the pod of any other job, but for what `fiber kubernetes manifest` gives a master: an account with a token, the
 * label by which the NetworkPolicy knows it, and its own name, so that it finds its pod and owns what it makes.
 * What was configured where we are holds there too.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/json.h"
#include "backends/kube_pod.h"

#define MASTER_GRACE_S 10 /* more than its jobs have */
#define TEMPLATE_MAX 4096 /* longest text that the configuration takes */
#define ROLE_LABEL "fiber.io/role"

int fbr_kube_grace(const struct fbr_job *job, const struct fbr_kube_settings *s)
{
    return s->grace_s + (job->is_master ? MASTER_GRACE_S : 0);
}

static int add_variable(struct json_t *list, const char *name, const char *value)
{
    for (size_t i = 0; i < fbr_json_count(list); i++) /* somebody has thought of it */
        if (!strcmp(fbr_json_text(fbr_json_item(list, i), "name", NULL), name))
            return 0;
    return fbr_json_append(
        list, fbr_json_pack("{s:s, s:o}", "name", name, "value", fbr_kube_words(value)));
}

/* Workers' account as in the manifest: the master's name with "-worker". */
static int add_account(struct json_t *list, const struct fbr_kube_settings *s)
{
    char worker[300];

    snprintf(worker, sizeof(worker), "%.253s-worker", s->master_account);
    return add_variable(list, "FIBER_KUBERNETES_SERVICE_ACCOUNT",
                        s->account[0] ? s->account : worker);
}

/* The file is here, so its text goes there. */
static int add_template(struct json_t *list, const struct json_t *overlay, struct fbr_error *err)
{
    size_t len = 0;
    char *text = overlay ? fbr_json_print(overlay, &len) : NULL;
    int rc = overlay && !text ? -ENOMEM : 0;

    if (len > TEMPLATE_MAX)
        rc =
            fbr_fail(err, -E2BIG,
                     "kubernetes_pod_template has %zu bytes; only %d reach a master in the cluster",
                     len, TEMPLATE_MAX);
    else if (text)
        rc = add_variable(list, "FIBER_KUBERNETES_POD_TEMPLATE", text);
    free(text);
    return rc;
}

static int add_environment(struct json_t *list, const char *program,
                           const struct fbr_kube_settings *s, struct fbr_error *err)
{
    int rc = add_variable(list, "FIBER_BACKEND", "kubernetes");

    if (rc == 0)
        rc = add_account(list, s);
    if (rc == 0 && program[0])
        rc = add_variable(list, "FIBER_KUBERNETES_PROGRAM", program);
    if (rc == 0)
        rc = fbr_json_append(list,
                             fbr_json_pack("{s:s, s:{s:{s:s}}}", "name", "FIBER_POD_NAME",
                                           "valueFrom", "fieldRef", "fieldPath", "metadata.name"));
    return rc == 0 ? add_template(list, s->overlay, err) : rc;
}

int fbr_kube_pod_master(struct json_t *pod, struct json_t *container, const char *program,
                        const struct fbr_kube_settings *s, struct fbr_error *err)
{
    struct json_t *spec = fbr_json_at(pod, "spec", NULL);
    int rc = fbr_json_set(spec, "serviceAccountName", fbr_json_string(s->master_account));

    if (rc == 0)
        rc = fbr_json_set(spec, "automountServiceAccountToken", fbr_json_pack("b", 1));
    if (rc == 0)
        rc = fbr_json_set(fbr_json_at(pod, "metadata", "labels", NULL), ROLE_LABEL,
                          fbr_json_string("master"));
    if (rc == 0 && !fbr_json_at(container, "env", NULL))
        rc = fbr_json_set(container, "env", fbr_json_pack("[]"));
    if (rc == 0)
        rc = add_environment(fbr_json_at(container, "env", NULL), program, s, err);
    return rc == -ENOMEM ? fbr_fail(err, rc, "out of memory") : rc;
}
