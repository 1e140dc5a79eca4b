/* cleanup.h - what is removed at the end of a program, while it waits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_LAST_H
#define FBR_KUBE_LAST_H

#include "backends/kubernetes/api.h"

struct fbr_kube_last {
    char *path;       /* of the object */
    const char *body; /* DeleteOptions */
    bool gone;        /* set: it is removed, or was not there */
};

/* Sends all DELETEs at once; those that are not answered well, or not in time, go once more a
 * second later for up to 10 s, as long as another answer may be better; 30 s with a server that was
 * away just before; 10 s more when credentials must be renewed. Answers how many objects may be
 * left, and why in out ("" when none is). */
size_t fbr_kube_last_remove(struct fbr_kube_api *a, struct fbr_kube_last *list, size_t n, char *out,
                            size_t size);

#endif
