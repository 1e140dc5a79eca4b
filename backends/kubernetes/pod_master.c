/* pod_master.c - a pod whose job is itself a master: `fiber run --in-cluster` and `fiber kubernetes
 * run`.
 *
 * The pod belongs to a Job, so that the cluster removes it an hour after its end, also if no client
 * waits for it any more. The pod also has the items that `fiber kubernetes manifest` gives a
 * master: an account with a token, the label by which the NetworkPolicy selects it, and its own
 * name, so that the master finds its pod and owns the objects that it makes. It inherits our
 * configuration. In all else it is like the pod of any job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod.h"

#define MASTER_GRACE_S 10         /* added to the grace of its jobs */
#define TEMPLATE_MAX (240u << 10) /* the limit for all annotations together is 256 KiB */
#define ANNOTATION "fiber.io/template"
#define FILE_NAME "template.json"
#define STAYS_S 3600 /* after its end, so that users can look at it */

int fbr_kube_grace(const struct fbr_job *job, const struct fbr_kube_settings *s)
{
    return s->grace_s + (job->is_master ? MASTER_GRACE_S : 0);
}

static int add_variable(struct json_t *container, const char *name, const char *value)
{
    if (fbr_json_find(fbr_json_at(container, "env", NULL), "name", name))
        return 0; /* the template already sets it */
    return fbr_kube_append(
        container, "env",
        fbr_json_pack("{s:s, s:o}", "name", name, "value", fbr_kube_words(value)));
}

/* The template file exists only here, so its text becomes an annotation of the pod, which the pod
 * sees as a file. */
static int add_template(struct json_t *pod, struct json_t *container, const struct json_t *overlay,
                        struct fbr_error *err)
{
    size_t len = 0;
    char *text = fbr_json_print(overlay, &len);
    int rc = 0;

    if (len > TEMPLATE_MAX)
        rc = fbr_fail(err, -E2BIG,
                      "kubernetes_pod_template has %zu bytes; at most %u can be sent to a master "
                      "in the cluster",
                      len, TEMPLATE_MAX);
    else if (!text ||
             fbr_json_set(fbr_json_at(pod, "metadata", "annotations", NULL), ANNOTATION,
                          fbr_json_string(text)) < 0 ||
             fbr_kube_append(fbr_json_at(pod, "spec", NULL), "volumes",
                             fbr_json_pack("{s:s, s:{s:[{s:s, s:{s:s}}]}}", "name",
                                           "fiber-template", "downwardAPI", "items", "path",
                                           FILE_NAME, "fieldRef", "fieldPath",
                                           "metadata.annotations['" ANNOTATION "']")) < 0 ||
             fbr_kube_append(container, "volumeMounts",
                             fbr_json_pack("{s:s, s:s, s:b}", "name", "fiber-template", "mountPath",
                                           FBR_KUBE_TEMPLATE_DIR, "readOnly", 1)) < 0 ||
             add_variable(container, "FIBER_KUBERNETES_POD_TEMPLATE",
                          FBR_KUBE_TEMPLATE_DIR "/" FILE_NAME) < 0)
        rc = -ENOMEM;
    free(text);
    return rc;
}

static int add_environment(struct json_t *container, const char *program,
                           const struct fbr_kube_settings *s)
{
    char worker[300]; /* the workers' account, named as in the manifest */

    snprintf(worker, sizeof(worker), "%.253s-worker", s->master_account);
    if (add_variable(container, "FIBER_BACKEND", "kubernetes") < 0 ||
        add_variable(container, "FIBER_KUBERNETES_SERVICE_ACCOUNT",
                     s->account[0] ? s->account : worker) < 0 ||
        (program[0] && add_variable(container, "FIBER_KUBERNETES_PROGRAM", program) < 0))
        return -ENOMEM;
    return fbr_kube_append(container, "env",
                           fbr_json_pack("{s:s, s:{s:{s:s}}}", "name", "FIBER_POD_NAME",
                                         "valueFrom", "fieldRef", "fieldPath", "metadata.name"));
}

int fbr_kube_pod_master(struct json_t *pod, struct json_t *container, const char *program,
                        const struct fbr_kube_settings *s, struct fbr_error *err)
{
    int rc;

    if (fbr_json_merge_new(pod,
                           fbr_json_pack("{s:{s:{s:s}}, s:{s:o, s:b}}", "metadata", "labels",
                                         FBR_KUBE_ROLE_LABEL, "master", "spec",
                                         "serviceAccountName", fbr_json_string(s->master_account),
                                         "automountServiceAccountToken", 1)) < 0 ||
        add_environment(container, program, s) < 0)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = s->overlay ? add_template(pod, container, s->overlay, err) : 0;
    return rc == -ENOMEM ? fbr_fail(err, rc, "out of memory") : rc;
}

struct json_t *fbr_kube_master_job(const struct json_t *pod)
{
    struct json_t *meta = fbr_json_at(pod, "metadata", NULL);
    struct json_t *labels = fbr_json_at(meta, "labels", NULL),
                  *notes = fbr_json_at(meta, "annotations", NULL);

    return fbr_json_pack(
        "{s:s, s:s, s:{s:s, s:O}, s:{s:i, s:i, s:{s:{s:O, s:O*}, s:O}}}", "apiVersion", "batch/v1",
        "kind", "Job", "metadata", "name", fbr_json_text(meta, "name", NULL), "labels", labels,
        "spec", "backoffLimit", 0, "ttlSecondsAfterFinished", STAYS_S, "template", "metadata",
        "labels", labels, "annotations", notes, "spec", fbr_json_at(pod, "spec", NULL));
}
