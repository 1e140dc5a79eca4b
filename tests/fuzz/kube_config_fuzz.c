/* kube_config_fuzz.c - kubeconfig files, pod templates and what exec plugins print, from hostile text: what is taken is
 * whole, what is not has a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubeconfig.h"
#include "backends/kubernetes/credentials.h"
#include "backends/kubernetes/pod.h"
#include "backends/kubernetes/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

/* Files that a configuration names are not to be read here. */
static int names_files(const struct json_t *all)
{
    char *text = fbr_json_print(all, NULL);
    int found = !text || strstr(text, "\"certificate-authority\":") ||
                strstr(text, "\"client-certificate\":") || strstr(text, "\"client-key\":");

    free(text);
    return found;
}

static void try_config(const struct json_t *file)
{
    struct json_t *all = fbr_json_pack("{}");
    struct fbr_error err = {0, ""};
    struct fbr_kube_config c;

    if (!all || fbr_kube_config_add(all, file, "/folder", &err) < 0) {
        require(!all || err.text[0]);
    } else if (!names_files(all)) {
        if (fbr_kube_config_take(&c, all, "", &err) < 0) {
            require(err.text[0] && !c.server && !c.namespace_);
        } else {
            require(!strncmp(c.server, "http", 4) && c.namespace_ && c.context);
            require(!c.cert == !c.key && (!c.exec.argv.n || c.exec.version));
            fbr_kube_config_fini(&c);
        }
    }
    fbr_json_free(all);
}

static void try_template(const struct json_t *over)
{
    const struct fbr_kube_settings s = {.image = "i",
                                        .pull_policy = "",
                                        .program = "/p",
                                        .workdir = "",
                                        .account = "",
                                        .gpu_resource = "g",
                                        .agent_image = "",
                                        .user_label = "u",
                                        .master = "m",
                                        .run_as = -1,
                                        .overlay = over};
    const struct fbr_job job = {.name = "j", .run_uid = "0123456789", .own_program = 1};
    struct fbr_error err = {0, ""};
    struct json_t *pod;

    if (fbr_kube_overlay_check(over, &err) < 0) {
        require(err.text[0]);
        return;
    }
    pod = fbr_kube_pod(&job, &s, &err);
    if (pod) {
        require(!strcmp(fbr_json_text(pod, "spec", "restartPolicy", NULL), "Never"));
        require(!strcmp(fbr_json_text(pod, "metadata", "labels", FBR_KUBE_RUN_LABEL, NULL),
                        "0123456789"));
        require(fbr_kube_pod_bind(pod, "s", "k", NULL) <= 0);
    } else {
        require(err.text[0]);
    }
    fbr_json_free(pod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_credential credential;
    struct json_t *j = fbr_kube_yaml((const char *)data, size, "fuzz", &err);

    if (j) {
        try_config(j);
        try_template(j);
        fbr_json_free(j);
    } else {
        require(err.text[0]);
    }
    if (fbr_kube_credential_parse(&credential, (const char *)data, size,
                                  "client.authentication.k8s.io/v1", &err) == 0) {
        require(credential.token || (credential.cert && credential.key));
        fbr_kube_credential_fini(&credential);
    }
    return 0;
}
