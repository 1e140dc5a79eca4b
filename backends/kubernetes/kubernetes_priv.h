/* kubernetes_priv.h - the state of the Kubernetes backend and of its jobs, which the backend's
 * files share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "backends/kubernetes/api.h"
#include "backends/kubernetes/pod_fsm.h"
#include "backends/kubernetes/pod_log.h"
#include "backends/kubernetes/pod.h"
#include "backends/kubernetes/pod_state.h"
#include "backends/kubernetes/pod_watch.h"
#include "runtime/proc/backend.h"
#include "runtime/base/master_id.h"

/* The body of a DELETE, with so many seconds for a pod to end. */
#define FBR_KUBE_DELETE(grace_s)                         \
    "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\"," \
    "\"gracePeriodSeconds\":" #grace_s ",\"propagationPolicy\":\"Background\"}"
/* the body of a DELETE that only tells whether the object exists */
#define FBR_KUBE_TRY_DELETE \
    "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"dryRun\":[\"All\"]}"
/* Creates an object; a field of the template that the server does not know is an error. */
#define FBR_KUBE_CREATE "?fieldManager=fiber&fieldValidation=Strict"
#define FBR_KUBE_KEPT 16 /* ended pods that stay, so that users can look at them */

/* The state of an open log. READS: it is being read; READ: it has ended, and may be requested
 * again; READ_LOST: it will not come again. */
enum fbr_kube_reading { READS, READ, READ_LOST };

struct fbr_kube_job {
    struct fbr_kube_job *next, *prev; /* in the list of its state */
    UT_hash_handle hh;                /* by name, until the job has ended */
    struct fbr_backend *b;
    void *user; /* NULL: released, the runtime takes no further events */
    char name[FBR_KUBE_NAME], uid[64];
    enum fbr_pod_state state; /* after the start only fbr_kube_step() changes it */
    struct json_t *pod;       /* until its owner and its Secret are known */
    char *body;               /* then its text, until the pod exists */
    /* for a master: the text of its Job, which has the name until its pod exists */
    char *around;
    bool is_master; /* fact: the job is a master; a Job owns its pod */
    unsigned calls; /* requests without an answer */
    void *ticket;   /* until a Secret has it */
    size_t ticket_len;
    struct fbr_kube_secret *secret; /* the Secret with the ticket; NULL: none */
    int asked;                      /* the last signal that was requested */
    int grace_s;                    /* between SIGTERM and SIGKILL */
    bool awaited;                   /* fact: the list at hand has not shown it yet */
    /* fact: neither its program nor we ended it; it may still run */
    bool disruption;
    bool asking;       /* fact: a request for the current state of its pod is under way */
    bool placed;       /* fact: its pod has a node */
    uint64_t asked_at; /* when its end or its state was requested; 0: neither */
    uint64_t began;    /* when it was requested; from PENDING on: when the server had it */
    uint64_t waits_since, looked; /* clock of fbr_now_ms(), as are the other times */
    enum fbr_kube_wait waits;
    int32_t code;
    char text[512]; /* the last reported text of PENDING; then the reason of its end */
    struct fbr_kube_log *log;
    enum fbr_kube_reading reading;
    bool others;  /* fact: it has ended, and other containers of its pod run on */
    bool follows; /* fact: it counts in the backend's `follows` */
    bool paused;  /* wish: the runtime takes no output */
    unsigned log_ends;
    uint64_t log_over_at;
    struct fbr_timer drain;
    unsigned silent; /* looks without output since its pod has ended */
};

/* One batch of tickets. */
struct fbr_kube_secret {
    struct fbr_kube_secret *next, *prev;
    struct fbr_backend *b;
    char name[FBR_KUBE_NAME];
    struct fbr_kube_job *jobs; /* while the Secret is on its way */
    unsigned users;            /* jobs that have not ended and have it as their `secret` */
    bool made;                 /* it exists */
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_kube_api *api;
    struct fbr_kube_settings settings;
    struct json_t *overlay;
    char user[FBR_KUBE_NAME], master[FBR_MASTER_ID_MAX];
    struct json_t *own_pod;       /* NULL: we run outside, or may not read it */
    struct fbr_kube_watch *watch; /* from the first job on */
    char run[64];
    struct fbr_kube_job *all; /* hash */
    struct fbr_kube_job *queue, *waiting;
    struct fbr_kube_job *ended; /* until they are released, and their last answers have come */
    struct fbr_kube_secret *secrets;
    unsigned batches;
    struct json_t *owner;           /* for what the ConfigMap owns; NULL: it does not exist yet */
    char owner_name[FBR_KUBE_NAME]; /* "": the next batch makes it, or another */
    char master_job[FBR_KUBE_NAME]; /* the Job of a master that we have started; "": none */
    bool owning;                    /* fact: the request that makes it is under way */
    bool owner_tried;               /* fact: a request whether it exists is under way */
    struct fbr_timer batch, create, tick;
    double credit;
    uint64_t credit_at;      /* when it was counted; later than now: no pod is created until then */
    unsigned follows, looks; /* looks: requests for events in this tick */
    char kept[FBR_KUBE_KEPT][FBR_KUBE_NAME]; /* names of pods that have ended */
    unsigned kept_at;
    char address[64];
    uint64_t troubled;
};

/* pod_start.c: from a job to its pod. */
int fbr_kube_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                   struct fbr_error *err);
void fbr_kube_on_batch(void *backend);
/* Creates the pods that may be created now, at the limited rate. */
void fbr_kube_create_more(void *backend);
void fbr_kube_forget_ticket(struct fbr_kube_job *j);
/* The job needs its Secret no longer: removes the Secret if no other job does. */
void fbr_kube_leave_ticket(struct fbr_kube_job *j);
/* A pod was deleted by others: checks whether that was because its owner is gone. */
void fbr_kube_try_owner(struct fbr_backend *b);

/* Actions of the table. */
void fbr_kube_leave_queue(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_leave_secret(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_leave_waiting(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_queue(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_wait_turn(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_create(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_find(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_create_job(struct fbr_kube_job *j, const struct fbr_kube_state *s);
void fbr_kube_end_job(struct fbr_kube_job *j, const struct fbr_kube_state *s);

/* pod_life.c: from a pod to its end. */
/* Does one step of the table: sets the state, then runs its action, which may free the job. `s` is
 * the pod's state that the action reports or uses; NULL where it needs none. */
void fbr_kube_step(struct fbr_kube_job *j, enum fbr_pod_event event,
                   const struct fbr_kube_state *s);
void fbr_kube_step_text(struct fbr_kube_job *j, enum fbr_pod_event event, const char *text);
void fbr_kube_pending(struct fbr_kube_job *j, const char *text);
/* Ends the job, as the runtime requests by j->asked. */
void fbr_kube_kill(struct fbr_kube_job *j);
/* The server has accepted the job's pod. */
void fbr_kube_created(struct fbr_kube_job *j, const char *uid);
/* Takes the server's report about the job's pod. */
void fbr_kube_update(struct fbr_kube_job *j, const struct json_t *pod, bool deleted);
/* Reports the end of the job in the next round of the loop. */
void fbr_kube_finish_soon(struct fbr_kube_job *j, const char *text);
/* Removes an object that is no longer needed; the result is ignored. Takes ownership of `path`. */
void fbr_kube_sweep(struct fbr_backend *b, char *path);
void fbr_kube_on_tick(void *backend);
/* Sends a request about the job; done() ends with fbr_kube_answered(). Takes ownership of
 * `path`. */
int fbr_kube_call(struct fbr_kube_job *j, const char *method, char *path, const char *body,
                  void (*done)(void *user, const struct fbr_http_answer *));
void fbr_kube_answered(struct fbr_kube_job *j);
/* Frees the job when it is no longer needed. */
void fbr_kube_free_if_done(struct fbr_kube_job *j);
void fbr_kube_job_free(struct fbr_kube_job *j);
extern const struct fbr_kube_watch_ops fbr_kube_watch_ops;

/* pod_gc.c: objects that runs have left. */
int fbr_kube_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                  struct fbr_error *err);
int fbr_kube_remove(struct fbr_backend *b, const char *id, struct fbr_error *err);
/* Removes the objects of this user's runs whose masters, on this host, are dead. */
void fbr_kube_sweep_dead(struct fbr_backend *b);
int fbr_kube_logs(struct fbr_backend *b, const char *id, int follow,
                  const struct fbr_backend_reader *reader, struct fbr_error *err);

extern const struct fbr_backend_ops fbr_kube_ops;

/* kubernetes.c: reads the settings; sends no request. */
int fbr_kube_take_config(struct fbr_backend *b, struct fbr_error *err);
void fbr_kube_set_settings(struct fbr_backend *b);

/* dryrun.c */
int fbr_kube_show(const struct fbr_config *config, const struct fbr_job *job, int json, char **text,
                  struct fbr_error *err);
int fbr_kube_would(struct fbr_backend *b, const struct fbr_job *job, const struct fbr_findings *to);
/* Prints a value as YAML, for free(); NULL without memory. */
char *fbr_kube_show_yaml(const struct json_t *value);

/* cluster_check.c */
struct fbr_kube_gpus {
    size_t nodes, with; /* with: nodes that have GPUs */
    unsigned long long gpus, most;
};
/* Counts, in a NodeList, the GPUs that pods can get. Pure. */
struct fbr_kube_gpus fbr_kube_count_gpus(const struct json_t *nodes, const char *resource);
/* Returns the processors of the smallest node that accepts pods; 0: there is none. Pure. */
unsigned fbr_kube_smallest(const struct json_t *nodes);
/* Reports only the size of nodes: if a cluster grows on demand, their number is unknown. */
int fbr_kube_room(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                  struct fbr_error *err);
/* Returns the reason why no pod can reach that address, or NULL: no reason is known. Pure. */
const char *fbr_kube_why_unreachable(const char *address);
void fbr_kube_check(struct fbr_backend *b, const struct fbr_findings *to);
