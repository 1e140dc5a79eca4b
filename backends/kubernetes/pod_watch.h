/* pod_watch.h - all pods of a run, seen by one list and one watch.
 *
 * A watch that ends continues where it was. If the server no longer knows that version (410, as a
 * status or in the stream), the pods are listed again. While the server is away nothing is
 * reported.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "backends/kubernetes/api.h"

struct fbr_kube_watch;

struct fbr_kube_watch_ops {
    /* The current state of a pod; `deleted`: its state when it was deleted. */
    void (*pod)(void *user, const struct json_t *pod, bool deleted);
    /* A list has begun: a known pod that pod() does not report before listed() is gone. */
    void (*listing)(void *user);
    void (*listed)(void *user);
    /* The watch cannot go on, for instance because a permission is missing; it is tried again. */
    void (*trouble)(void *user, const char *text);
};

/* `selector` is already escaped. Begins at once. */
int fbr_kube_watch_open(struct fbr_kube_watch **out, struct fbr_kube_api *api, const char *selector,
                        const struct fbr_kube_watch_ops *ops, void *user, struct fbr_error *err);
void fbr_kube_watch_close(struct fbr_kube_watch *w);
/* Whether the watch reports no changes now, because it was refused or broke off. */
bool fbr_kube_watch_rests(const struct fbr_kube_watch *w);
