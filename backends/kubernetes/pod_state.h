/* pod_state.h - what a pod's object says, in the words of a backend: pure.
 *
 * The job is one container of the pod, FBR_KUBE_CONTAINER; others, which a template may add, do not
 * count. A pod may be over without ever having been seen running, and may wait for ever without a
 * status that says so: the table of reasons is in pod_state.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_STATE_H
#define FBR_KUBE_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct json_t;

#define FBR_KUBE_CONTAINER "fiber"

enum fbr_kube_phase {
    FBR_KUBE_PENDING,
    FBR_KUBE_RUNNING,
    FBR_KUBE_ENDED,
};

/* Why it waits: how long that may go on is the backend's to decide. */
enum fbr_kube_wait {
    FBR_KUBE_WAIT_NONE,
    FBR_KUBE_WAIT_PLACE,  /* the scheduler finds no node */
    FBR_KUBE_WAIT_QUEUE,  /* gated: a queue has not admitted it yet */
    FBR_KUBE_WAIT_PULL,   /* its image cannot be had, and is tried again */
    FBR_KUBE_WAIT_CONFIG, /* its containers cannot be made; might heal */
    FBR_KUBE_WAIT_NEVER,  /* will not heal */
};

struct fbr_kube_state {
    enum fbr_kube_phase phase;
    enum fbr_kube_wait wait;
    int32_t code;    /* of ENDED, as in struct fbr_job_event */
    bool disruption; /* ended by the cluster, not by its program */
    bool deleting;   /* somebody has deleted it */
    bool others;     /* other containers of it still run */
    bool gone;       /* its object is there no more: the watch tells, not the object */
    bool placed;     /* it has its node */
    /* PENDING: why; ENDED: the reason, or ""; RUNNING: why the cluster is about to end it, or "" */
    char text[512];
};

void fbr_kube_state(struct fbr_kube_state *s, const struct json_t *pod);

/* Stores the text of the newest warning in a list of events, or "". */
void fbr_kube_newest_event(const struct json_t *list, char *text, unsigned size);

#endif
