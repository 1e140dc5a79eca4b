/* cleanup.h - removes a run's objects from the cluster, while the program waits for its end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/kubernetes/api.h"

struct fbr_kube_last {
    char *path;                   /* of the object */
    const char *body;             /* DeleteOptions */
    bool gone;                    /* set: the object is removed, or did not exist */
    struct fbr_kube_removal *all; /* for cleanup.c */
};

/* Sends all DELETEs at once. Those with a bad answer, or with none in time, are sent again a second
 * later: for up to 10 s, as long as another answer may be better; 30 s with a server that was away
 * just before; 10 s more when credentials must be renewed. Returns how many objects may be left,
 * and the reason in out ("" if none is left). */
size_t fbr_kube_last_remove(struct fbr_kube_api *a, struct fbr_kube_last *list, size_t n, char *out,
                            size_t size);
