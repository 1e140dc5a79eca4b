/* anchor.h - notes on this host of the first Secrets of runs, by which the Secrets of dead masters
 * are found.
 *
 * A run's first Secret owns all objects of the run in the cluster, and Secrets cannot be listed
 * with the permissions that Fiber asks for. If a master outside the cluster is killed before its
 * first pod exists, only this note shows that the Secret exists. The note is a file of mode 0600 in
 * $XDG_RUNTIME_DIR/fiber/kubernetes (/tmp/fiber-<user id>/kubernetes), and has no secret in it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_ANCHOR_H
#define FBR_KUBE_ANCHOR_H

#include <stdint.h>

#include "runtime/base/master_id.h"

struct fbr_kube_anchor {
    /* name of the Secret; its namespace; the label of its run */
    char name[64], space[64], run[64];
    char server[256], master[FBR_MASTER_ID_MAX];
    int64_t since_ms; /* since the epoch */
};

/* Call before the Secret is requested. 0 or -errno. */
int fbr_kube_anchor_note(const struct fbr_kube_anchor *a);
/* Call when the Secret is gone. */
void fbr_kube_anchor_forget(const char *name);
/* Calls found() for each note of that server and namespace; found() may forget the note. */
void fbr_kube_anchor_each(const char *server, const char *space,
                          void (*found)(void *user, const struct fbr_kube_anchor *a), void *user);

#endif
