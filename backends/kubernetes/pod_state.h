/* pod_state.h - reads the state of a job from its pod's object: pure.
 *
 * The job is one container of the pod, FBR_KUBE_CONTAINER; other containers, which a template may
 * add, do not count. A pod may be over without ever having been seen running, and may wait for ever
 * without a status that shows it: pod_state.c has the table of reasons.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json_t;

#define FBR_KUBE_CONTAINER "fiber"

enum fbr_kube_phase {
    FBR_KUBE_PENDING,
    FBR_KUBE_RUNNING,
    FBR_KUBE_ENDED,
};

/* Why the pod waits. The backend decides how long it may wait. */
enum fbr_kube_wait {
    FBR_KUBE_WAIT_NONE,
    FBR_KUBE_WAIT_PLACE,  /* the scheduler finds no node */
    FBR_KUBE_WAIT_QUEUE,  /* gated: a queue has not admitted it yet */
    FBR_KUBE_WAIT_PULL,   /* its image cannot be pulled, and is tried again */
    FBR_KUBE_WAIT_CONFIG, /* its containers cannot be created; may recover */
    FBR_KUBE_WAIT_NEVER,  /* will not recover */
};

struct fbr_kube_state {
    enum fbr_kube_phase phase;
    enum fbr_kube_wait wait;
    int32_t code;    /* for ENDED, as in struct fbr_job_event */
    bool disruption; /* the cluster ended it, not its program */
    bool deleting;   /* a client has deleted it */
    bool others;     /* other containers of it still run */
    bool gone;       /* its object no longer exists; set by the watch */
    bool placed;     /* it has a node */
    /* PENDING: the reason; ENDED: the reason, or ""; RUNNING: why the cluster will end it soon, or
     * "" */
    char text[512];
};

void fbr_kube_state(struct fbr_kube_state *s, const struct json_t *pod);

/* Returns the job's own container in the spec of a pod, or NULL. */
struct json_t *fbr_kube_own_container(const struct json_t *pod);

/* Stores the text of the newest warning in a list of events, or "". */
void fbr_kube_newest_event(const struct json_t *list, char *text, unsigned size);
