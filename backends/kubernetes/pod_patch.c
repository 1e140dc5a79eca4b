/* pod_patch.c - merges a user's template into a pod.
 *
 * It works as kubectl patches: lists whose items have names are merged by name, so a template can
 * add a volume or change one variable. An item without a name in the list of containers means the
 * job's own container.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "backends/http/json.h"
#include "backends/kubernetes/pod.h"
#include "backends/kubernetes/pod_state.h"
#include "runtime/base/config_value.h"

/* Returns the member that identifies the items of a list; NULL: the list is replaced as a whole. */
static const char *key_of(const char *list)
{
    static const char *const keys[][2] = {
        {"containers", "name"},        {"initContainers", "name"},
        {"volumes", "name"},           {"env", "name"},
        {"volumeMounts", "mountPath"}, {"volumeDevices", "devicePath"},
        {"imagePullSecrets", "name"},  {"ports", "containerPort"},
        {"hostAliases", "ip"},         {"schedulingGates", "name"},
        {"resourceClaims", "name"},
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!strcmp(list, keys[i][0]))
            return keys[i][1];
    return NULL;
}

struct merge {
    struct json_t *into;
    int rc;
};

static bool same(const struct json_t *a, const struct json_t *b, const char *list, const char *key)
{
    const char *name = fbr_json_text(b, key, NULL);

    if (!name[0] && !strcmp(list, "containers"))
        name = FBR_KUBE_CONTAINER;
    if (name[0])
        return !strcmp(fbr_json_text(a, key, NULL), name);
    return fbr_json_at(b, key, NULL) &&
           fbr_json_int(a, -1, key, NULL) == fbr_json_int(b, -2, key, NULL);
}

static bool all_objects(const struct json_t *list)
{
    for (size_t i = 0; i < fbr_json_count(list); i++)
        if (!fbr_json_is_object(fbr_json_item(list, i)))
            return false;
    return fbr_json_is_array(list);
}

static int merge_list(struct json_t *into, const struct json_t *over, const char *list,
                      const char *key)
{
    for (size_t i = 0; i < fbr_json_count(over); i++) {
        const struct json_t *item = fbr_json_item(over, i);
        struct json_t *mine = NULL;
        int rc;

        for (size_t k = 0; k < fbr_json_count(into) && !mine; k++)
            if (same(fbr_json_item(into, k), item, list, key))
                mine = fbr_json_item(into, k);
        if (!mine) {
            if (fbr_json_append(into, fbr_json_pack("{}")) < 0)
                return -ENOMEM;
            mine = fbr_json_item(into, fbr_json_count(into) - 1);
        }
        rc = fbr_kube_overlay(mine, item);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void merge_member(void *user, const char *key, struct json_t *value)
{
    struct merge *m = user;
    struct json_t *mine = fbr_json_at(m->into, key, NULL);

    if (m->rc < 0)
        return;
    if (key_of(key) && all_objects(mine) && all_objects(value)) {
        m->rc = merge_list(mine, value, key, key_of(key));
    } else if (fbr_json_is_object(mine) && fbr_json_is_object(value)) {
        m->rc = fbr_kube_overlay(mine, value);
    } else {
        m->rc = fbr_json_merge_new(m->into, fbr_json_pack("{s:O}", key, value));
    }
}

/* Recursive; yaml.c limits the nesting of a template. */
int fbr_kube_overlay(struct json_t *pod, const struct json_t *over)
{
    struct merge m = {pod, 0};

    fbr_json_each(over, merge_member, &m);
    return m.rc;
}

static void check_member(void *user, const char *key, struct json_t *value)
{
    const char **bad = user;

    if (fbr_word_index("apiVersion kind metadata spec", key) < 0)
        *bad = key;
}

int fbr_kube_overlay_check(const struct json_t *over, struct fbr_error *err)
{
    static const char *const objects[] = {"metadata", "spec"};
    const struct json_t *containers = fbr_json_at(over, "spec", "containers", NULL);
    const char *kind = fbr_json_text(over, "kind", NULL), *bad = NULL;

    if (!fbr_json_is_object(over))
        return fbr_fail(err, -EINVAL, "it is not an object with spec and metadata");
    if (kind[0] && strcmp(kind, "Pod") && strcmp(kind, "PodTemplate"))
        return fbr_fail(err, -EINVAL, "its kind is %.64s, not Pod", kind);
    fbr_json_each(over, check_member, &bad);
    if (bad)
        return fbr_fail(err, -EINVAL,
                        "a pod has no '%.64s'; known are apiVersion, kind, metadata and spec "
                        "(containers, volumes, nodeSelector... belong in spec)",
                        bad);
    for (size_t i = 0; i < 2; i++) {
        const struct json_t *part = fbr_json_at(over, objects[i], NULL);

        if (part && !fbr_json_is_object(part))
            return fbr_fail(err, -EINVAL, "its %s is not an object", objects[i]);
    }
    if (fbr_json_at(over, "spec", "containers", NULL) && !all_objects(containers))
        return fbr_fail(err, -EINVAL, "its spec.containers is not a list of objects");
    return 0;
}
