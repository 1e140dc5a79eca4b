/* pod.h - the objects that are sent to a cluster: a pod for each job, a Secret for the tickets of
 * several jobs. Pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/proc/backend.h"
#include "runtime/base/error.h"

struct json_t;

#define FBR_KUBE_NAME 64 /* size of an object's name, with its NUL: a DNS label */
#define FBR_KUBE_TICKET_DIR "/run/fiber/ticket"
#define FBR_KUBE_TEMPLATE_DIR "/run/fiber/template" /* in pods of masters */
#define FBR_KUBE_RUN_LABEL "fiber.io/run"
#define FBR_KUBE_JOB_LABEL "fiber.io/job"
#define FBR_KUBE_USER_LABEL "fiber.io/user"
/* for a ring's pods: the node's number, from 0 */
#define FBR_KUBE_INDEX_LABEL "fiber.io/index"
/* no two pods with the same value run on one host */
#define FBR_KUBE_APART_LABEL "fiber.io/apart"
#define FBR_KUBE_ROLE_LABEL "fiber.io/role" /* "master" for masters; other pods have none */
#define FBR_KUBE_MASTER "fiber.io/master"   /* an annotation */

/* The common settings of all pods of a backend. A text may be "" where nothing is set. */
struct fbr_kube_settings {
    const char *image, *pull_policy, *program, *workdir, *account, *gpu_resource, *user_label;
    const char *master_account; /* for jobs that are masters */
    /* An image with this program, which is put into pods whose image lacks it (bundle.h); "":
     * none */
    const char *agent_image;
    const char *master; /* our master id, for `fiber gc` */
    int64_t run_as;     /* user id; -1: the image's user */
    int grace_s;
    const struct json_t *pull_secrets; /* the imagePullSecrets of our own pod; NULL: none */
    const struct json_t *overlay;      /* NULL: none */
};

/* Makes a name for the job, the same each time: "fiber-1f2e3d4c-worker-3-0". */
void fbr_kube_pod_name(char out[FBR_KUBE_NAME], const struct fbr_job *job);
/* Writes a label's value: characters that are not allowed in one become '-'. */
void fbr_kube_label(char out[FBR_KUBE_NAME], const char *text);

/* Makes a pod without its Secret and its owner, which fbr_kube_pod_bind() adds. NULL and a
 * message. */
struct json_t *fbr_kube_pod(const struct fbr_job *job, const struct fbr_kube_settings *s,
                            struct fbr_error *err);
/* pod_master.c: adds the parts that only a master's pod has (is_master); `program` is the path of
 * its program in other pods, or "". -ENOMEM; -E2BIG and a message. */
int fbr_kube_pod_master(struct json_t *pod, struct json_t *container, const char *program,
                        const struct fbr_kube_settings *s, struct fbr_error *err);
/* Returns the seconds that the pod has to end after SIGTERM: a master ends its own jobs first. */
int fbr_kube_grace(const struct fbr_job *job, const struct fbr_kube_settings *s);
/* Makes a Job that runs this pod once. The pod is deleted with the Job, also when the Job's time is
 * over. NULL without memory. */
struct json_t *fbr_kube_master_job(const struct json_t *pod);
/* `secret` NULL: the pod has no ticket. `owner` NULL: none. -ENOMEM. */
int fbr_kube_pod_bind(struct json_t *pod, const char *secret, const char *key,
                      const struct json_t *owner);

/* Makes a text in which Kubernetes replaces nothing, for commands and values of variables. NULL
 * without memory. */
struct json_t *fbr_kube_words(const char *text);

/* The immutable ConfigMap that owns the objects of a run; `owner` may be NULL. */
struct json_t *fbr_kube_owner_map(const char *name, const char *run, const char *user,
                                  const char *master, const struct json_t *owner);
/* An immutable Secret without keys; fbr_kube_secret_add() adds one. */
struct json_t *fbr_kube_secret(const char *name, const char *run, const char *user,
                               const struct json_t *owner);
int fbr_kube_secret_add(struct json_t *secret, const char *key, const void *ticket, size_t len);
/* Makes the metadata.ownerReferences of what the object owns. */
struct json_t *fbr_kube_owner(const char *kind, const char *name, const char *uid);

/* ---- Parts ---- */

/* Appends to a list of an object; a template may have removed the list. Takes ownership of the
 * item. -ENOMEM. */
int fbr_kube_append(struct json_t *object, const char *list, struct json_t *item);

/* Merges a template into a pod: objects member by member (null removes), lists of named items by
 * name, other lists as a whole. -ENOMEM. */
int fbr_kube_overlay(struct json_t *pod, const struct json_t *over);
/* Checks whether a template may be merged into a pod: -EINVAL and the reason. */
int fbr_kube_overlay_check(const struct json_t *over, struct fbr_error *err);
