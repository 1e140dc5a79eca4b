/* anchor.h - notes on this host of the first Secrets of runs, so that those of dead masters are
 * found.
 *
 * A run's first Secret owns all that the run has in the cluster, and Secrets cannot be listed with
 * the permissions that we ask for. When a master outside the cluster is killed before its first pod
 * is there, nothing but this note tells of it. It is a file of mode 0600 in
 * $XDG_RUNTIME_DIR/fiber/kubernetes (/tmp/fiber-<user id>/kubernetes), and has no secret in it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_ANCHOR_H
#define FBR_KUBE_ANCHOR_H

#include <stdint.h>

#include "runtime/base/master_id.h"

struct fbr_kube_anchor {
    char name[64], space[64], run[64]; /* of the Secret; its namespace; the label of its run */
    char server[256], master[FBR_MASTER_ID_MAX];
    int64_t since_ms; /* since the epoch */
};

/* Before it is asked for: 0 or -errno. */
int fbr_kube_anchor_note(const struct fbr_kube_anchor *a);
/* When it is gone. */
void fbr_kube_anchor_forget(const char *name);
/* Calls found() for each note of that server and namespace. It may forget it. */
void fbr_kube_anchor_each(const char *server, const char *space,
                          void (*found)(void *user, const struct fbr_kube_anchor *a), void *user);

#endif
