/* kubernetes_priv.h - what the files of the kubernetes backend share: kubernetes.c, pod_start.c,
 * pod_life.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_KUBE_PRIV_H
#define FBR_KUBE_PRIV_H

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

#define FBR_KUBE_KEPT 16 /* pods that have ended, for people who want to look at them */

/* A log that is open: it is read; it has ended, and may be asked for again; it will not come
 * again. */
enum fbr_kube_reading { READS, READ, READ_LOST };

struct fbr_kube_job {
    struct fbr_kube_job *next, *prev; /* in the line that its state has */
    UT_hash_handle hh;                /* by name, until it has ended */
    struct fbr_backend *b;
    void *user; /* NULL: released, the runtime wants to hear no more */
    char name[FBR_KUBE_NAME], uid[64];
    enum fbr_pod_state state; /* fbr_kube_step() alone changes it */
    struct json_t *pod;       /* until its owner and its Secret are known */
    char *body;               /* then its text, until it is there */
    char *around; /* of a master: the text of its Job, which has the name until its pod is there */
    bool is_master; /* fact: what is started is a master; it has a Job around its pod */
    unsigned calls; /* that are not answered */
    void *ticket;   /* until it is in a Secret */
    size_t ticket_len;
    struct fbr_kube_secret *secret; /* that has the ticket; NULL: none */
    int asked;                      /* signal that was asked for last */
    int grace_s;                    /* between SIGTERM and SIGKILL */
    bool missing;                   /* fact: not yet seen in the list at hand */
    bool disruption;                /* fact: not its program ended it, nor we; it may still run */
    bool asking;                    /* fact: what its pod is now is being asked */
    bool placed;                    /* fact: its pod has a node */
    uint64_t asked_at;              /* for its end, or what it is; 0: neither */
    uint64_t began;                 /* it was asked for; since it is LIVING: the server had it */
    uint64_t waits_since, looked;   /* clock of fbr_now_ms(), as the other times */
    enum fbr_kube_wait waits;
    int32_t code;
    char text[512]; /* PENDING as it was told last; the reason of its end */
    struct fbr_kube_log *log;
    enum fbr_kube_reading reading;
    bool follows; /* fact: one of the backend's `follows` is its */
    bool paused;  /* wish: the runtime takes no output */
    unsigned log_ends;
    uint64_t log_over_at;
    struct fbr_timer drain;
};

/* One batch of tickets. */
struct fbr_kube_secret {
    struct fbr_kube_secret *next, *prev;
    struct fbr_backend *b;
    char name[FBR_KUBE_NAME];
    struct fbr_kube_job *jobs; /* while it is on its way */
    bool anchor;
};

/* The first Secret of a run whose master is dead. */
struct fbr_kube_dead {
    struct fbr_kube_dead *next, *prev;
    char name[FBR_KUBE_NAME];
};

struct fbr_backend {
    struct fbr_backend_env env;
    struct fbr_kube_api *api;
    struct fbr_kube_settings settings;
    struct json_t *overlay;
    char *image, *pull_policy, *workdir, *pull_secret; /* of our own pod, or of the settings */
    char user[FBR_KUBE_NAME], master[FBR_MASTER_ID_MAX];
    struct json_t *own_pod;       /* its owner entry; NULL: outside */
    struct fbr_kube_watch *watch; /* from the first job on */
    char run[64];
    struct fbr_kube_job *all; /* hash */
    struct fbr_kube_job *queue, *waiting;
    struct fbr_kube_secret *secrets;
    unsigned batches;
    struct json_t *anchor; /* owner entry of the first Secret; NULL: not there yet */
    char anchor_name[FBR_KUBE_NAME];
    char master_job[FBR_KUBE_NAME]; /* the Job of a master that we have started; "": none */
    bool anchoring;
    struct fbr_timer batch, create, tick;
    double credit;
    uint64_t credit_at;
    unsigned follows, looks;                 /* looks: at what events say, in this tick */
    char kept[FBR_KUBE_KEPT][FBR_KUBE_NAME]; /* names of pods that have ended */
    unsigned kept_at;
    char address[64];
    uint64_t troubled;
    struct fbr_kube_dead *dead; /* what is being removed of others */
};

/* pod_start.c: from a job to its pod. */
int fbr_kube_start(struct fbr_backend *b, const struct fbr_job *job, void *user, void **handle,
                   struct fbr_error *err);
void fbr_kube_on_batch(void *backend);
void fbr_kube_on_create(void *backend);
void fbr_kube_forget_ticket(struct fbr_kube_job *j);

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
/* One step of the table: the state, then its action, which may free the job. `s` is what the action
 * says or takes from the pod; NULL where it needs nothing. */
void fbr_kube_step(struct fbr_kube_job *j, enum fbr_pod_event event,
                   const struct fbr_kube_state *s);
void fbr_kube_step_text(struct fbr_kube_job *j, enum fbr_pod_event event, const char *text);
void fbr_kube_pending(struct fbr_kube_job *j, const char *text);
/* The server has taken its pod. */
void fbr_kube_created(struct fbr_kube_job *j, const char *uid);
/* Takes the server's report about the job's pod. */
void fbr_kube_update(struct fbr_kube_job *j, const struct json_t *pod, bool deleted);
/* Its end, when the loop comes to it. */
void fbr_kube_finish_soon(struct fbr_kube_job *j, const char *text);
/* Removes an object ("pods" or "secrets") that nobody needs; nobody is told how that went. */
void fbr_kube_sweep(struct fbr_backend *b, const char *kind, const char *name);
void fbr_kube_on_tick(void *backend);
void fbr_kube_start_tick(struct fbr_backend *b);
/* A request about it; done() ends with fbr_kube_answered(). Takes `path`. */
int fbr_kube_call(struct fbr_kube_job *j, const char *method, char *path, const char *body,
                  void (*done)(void *user, const struct fbr_http_answer *));
void fbr_kube_answered(struct fbr_kube_job *j);
/* Frees it when nobody needs it any more. */
void fbr_kube_free_if_done(struct fbr_kube_job *j);
void fbr_kube_job_free(struct fbr_kube_job *j);
/* A DELETE's body, for free(). */
char *fbr_kube_delete_body(int grace_s, const char *uid);
extern const struct fbr_kube_watch_ops fbr_kube_watch_ops;

/* pods_left.c: what is left of runs. */
int fbr_kube_list(struct fbr_backend *b, fbr_backend_found *found, void *user,
                  struct fbr_error *err);
int fbr_kube_remove(struct fbr_backend *b, const char *id, struct fbr_error *err);
/* Notes our own first Secret, and removes those of masters of this host that are dead. */
void fbr_kube_note_anchor(struct fbr_backend *b, const char *name);
int fbr_kube_logs(struct fbr_backend *b, const char *id, int follow,
                  const struct fbr_backend_reader *reader, struct fbr_error *err);

extern const struct fbr_backend_ops fbr_kube_ops;

/* kubernetes.c: what is known without asking anybody. */
int fbr_kube_take_config(struct fbr_backend *b, struct fbr_error *err);
void fbr_kube_set_settings(struct fbr_backend *b);

/* dryrun.c */
int fbr_kube_show(const struct fbr_config *config, const struct fbr_job *job, int json, char **text,
                  struct fbr_error *err);
int fbr_kube_would(struct fbr_backend *b, const struct fbr_job *job, fbr_backend_report *say,
                   void *user);
/* A value as YAML, for free(); NULL without memory. */
char *fbr_kube_show_yaml(const struct json_t *value);

/* cluster_check.c */
struct fbr_kube_gpus {
    size_t nodes, with; /* with: of them those that have some */
    unsigned long long gpus, most;
};
/* Counts, in a NodeList, the GPUs that pods can be given. Pure. */
struct fbr_kube_gpus fbr_kube_count_gpus(const struct json_t *nodes, const char *resource);
/* The processors of the smallest node that takes pods; 0: there is none. Pure. */
unsigned fbr_kube_smallest(const struct json_t *nodes);
/* Only how large nodes are: their number is not known where a cluster grows on demand. */
int fbr_kube_room(const struct fbr_backend_env *env, int sizes, struct fbr_capacity *room,
                  struct fbr_error *err);
/* Why no pod can call us there, or NULL: nothing speaks against it. Pure. */
const char *fbr_kube_why_unreachable(const char *address);
void fbr_kube_check(struct fbr_backend *b, fbr_backend_report *say, void *user);

#endif
