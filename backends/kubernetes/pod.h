/* pod.h - the objects that are sent to a cluster: a pod for each job, a Secret for the tickets of
 * several. Pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_POD_H
#define FBR_KUBE_POD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/proc/backend.h"
#include "runtime/base/error.h"

struct json_t;

#define FBR_KUBE_NAME 64 /* of an object, with its NUL: a DNS label */
#define FBR_KUBE_TICKET_DIR "/run/fiber/ticket"
#define FBR_KUBE_TEMPLATE_DIR "/run/fiber/template" /* of masters */
#define FBR_KUBE_RUN_LABEL "fiber.io/run"
#define FBR_KUBE_JOB_LABEL "fiber.io/job"
#define FBR_KUBE_USER_LABEL "fiber.io/user"
#define FBR_KUBE_INDEX_LABEL "fiber.io/index" /* of a ring's pods: which of its nodes, from 0 */
#define FBR_KUBE_APART_LABEL "fiber.io/apart" /* no two with the same value are on one host */
#define FBR_KUBE_ROLE_LABEL "fiber.io/role"   /* "master": of those; others have none */
#define FBR_KUBE_MASTER "fiber.io/master"     /* an annotation */

/* The common settings of all pods of a backend. Texts may be "" where there is nothing to say. */
struct fbr_kube_settings {
    const char *image, *pull_policy, *program, *workdir, *account, *gpu_resource, *user_label;
    const char *master_account; /* of jobs that are masters */
    /* An image with this program, which is put into pods of images that lack it (bundle.h); "" */
    const char *agent_image;
    const char *master;      /* who we are, for `fiber gc` */
    const char *pull_secret; /* NULL or the imagePullSecrets of our own pod as JSON value text */
    int64_t run_as;          /* user id; -1: as the image says */
    int grace_s;
    const struct json_t *overlay; /* NULL: none */
};

/* A name of the job's own that the same job always gets: "fiber-1f2e3d4c-worker-3-0". */
void fbr_kube_pod_name(char out[FBR_KUBE_NAME], const struct fbr_job *job);
/* Writes a label's value: characters that are not allowed in one become '-'. */
void fbr_kube_label(char out[FBR_KUBE_NAME], const char *text);

/* A pod without its Secret and its owner, which fbr_kube_pod_bind() adds. NULL and a sentence. */
struct json_t *fbr_kube_pod(const struct fbr_job *job, const struct fbr_kube_settings *s,
                            struct fbr_error *err);
/* pod_master.c: what a pod has besides when its job is a master (is_master), `program` being what
 * it would call itself in other pods, or "". -ENOMEM, -E2BIG and a sentence. */
int fbr_kube_pod_master(struct json_t *pod, struct json_t *container, const char *program,
                        const struct fbr_kube_settings *s, struct fbr_error *err);
/* How long its pod has to end after SIGTERM: a master ends its own jobs first. */
int fbr_kube_grace(const struct fbr_job *job, const struct fbr_kube_settings *s);
/* A Job that runs this pod once, and takes it along when it is deleted or its time is over. NULL
 * without memory. */
struct json_t *fbr_kube_master_job(const struct json_t *pod);
/* `secret` NULL: it has no ticket. `owner` (a metadata.ownerReferences entry) NULL: none.
 * -ENOMEM. */
int fbr_kube_pod_bind(struct json_t *pod, const char *secret, const char *key,
                      const struct json_t *owner);

/* The job's own, or NULL. */
struct json_t *fbr_kube_own_container(const struct json_t *pod);

/* A text that Kubernetes replaces nothing in: for commands and values of variables. NULL without
 * memory. */
struct json_t *fbr_kube_words(const char *text);

/* An immutable Secret without keys; fbr_kube_secret_add() adds one. */
struct json_t *fbr_kube_secret(const char *name, const char *run, const char *user,
                               const struct json_t *owner);
int fbr_kube_secret_add(struct json_t *secret, const char *key, const void *ticket, size_t len);
/* An entry for metadata.ownerReferences. */
struct json_t *fbr_kube_owner(const char *kind, const char *name, const char *uid);

/* ---- Of which that is made ---- */

/* Adds to a list of an object that a template may have taken away. Takes the item. -ENOMEM. */
int fbr_kube_append(struct json_t *object, const char *list, struct json_t *item);

/* Puts a template over a pod: objects member by member (null removes), lists of things that have
 * names by name, other lists as they are. -ENOMEM. */
int fbr_kube_overlay(struct json_t *pod, const struct json_t *over);
/* Whether that may be put over a pod: -EINVAL and why not. */
int fbr_kube_overlay_check(const struct json_t *over, struct fbr_error *err);

#endif
