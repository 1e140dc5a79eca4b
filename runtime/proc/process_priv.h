/* process_priv.h - what process.c (handles), job.c (life and death) and admit.c share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PROCESS_PRIV_H
#define FBR_PROCESS_PRIV_H

#include "runtime/proc/output.h"
#include "runtime/proc/process.h"
#include "runtime/proc/process_fsm.h"
#include "runtime/proc/ticket.h"
#include "runtime/proc/tunnel.h"

/* Descriptors that a process costs us: pipes and pidfd, and for a moment the other ends, its ticket
 * and the like; then its connections. */
enum { FDS_OF_JOB = 3, FDS_FOR_START = 10, FDS_OF_CONN = 1, FDS_OF_LINK = 1 };

struct fiber_process {
    struct fiber_process *next, *prev; /* rt->processes, under its lock */
    struct fbr_runtime *rt;
    /* under rt->lock: the program's handle, the job until it has ended, each post on its way */
    int refs;
    bool handle_open;   /* fact: the program has not closed it */
    bool killed_by_end; /* fact: the end of this process has killed it already */
    /* Needs no memory, as a lost process must be killed in any case. */
    struct fbr_post kill;

    uint64_t id;
    uint32_t epoch;
    char name[FBR_NAME_MAX];
    struct fbr_process_spec
        spec; /* only ops, user, link, is_host, prefix are used after the start */
    uint8_t secret[FBR_KEY_SIZE];
    struct fbr_buf start;     /* the START frame, until it is sent */
    struct fiber_jobspec job; /* owned copies, until started */
    struct fbr_buf strings;   /* strings of `job` */
    const char *const *env;   /* the whole environment, copied at the call */
    struct fbr_buf env_strings;
    struct fbr_hold *holds; /* the loop thread's after the post */
    size_t n_holds;
    int start_timeout_ms, keep_stdin, width, alike;
    bool by_program;    /* fact: it runs the command of fiber_program(), or ours */
    bool waits_in_line; /* wish: its clock stands while the engine has no place for it */
    int fds; /* set aside for it here (fds.h); the loop thread's once it is posted there */
    char backend_name[32];

    /* Loop thread. */
    struct fbr_backend_slot *slot;
    enum fbr_reach reach; /* the way on which it reaches us, from its start on */
    void *handle;
    struct fbr_conn *conn;
    struct fbr_link *link;
    struct fbr_timer timer;
    struct fbr_lines out[2];
    struct fiber_process *host;      /* the process in whose job it is nested; referenced */
    struct fbr_backend_slot as_host; /* the "backend" of processes that are nested in its job */
    struct fbr_subjobs *nested;
    struct fbr_tunnels tunnels; /* at it, by way of us */
    bool signalled;             /* fact: it was told to end */
    bool leaving;               /* fact: it has said with which code it ends */
    bool drained;    /* fact: nothing more comes by way of its host; maybe before its end */
    bool presumed;   /* fact: `why` is our guess; what its backend knows of its end is better */
    bool disrupted;  /* fact: its backend took it: eviction, preemption, a lost node */
    bool cannot_run; /* fact: its program is not there, or cannot be executed */
    bool ready;      /* fact: it has all connections that it needs */
    bool paused;     /* wish: we take no output for a while */
    struct fbr_post drained_post; /* tells the loop that it is dry */
    uint64_t stalled_ms; /* it gave us up while this process was itself stopped for so long */
    char pending[400];   /* why it does not run yet, in the backend's words */
    uint64_t pending_ms; /* fbr_now_ms() when that began */
    bool placed;         /* fact: what it waits for is not a place to run at */
    char shortage[160];  /* of our descriptors, when it was seen to fail */

    /* Under rt->lock. */
    enum process_state state; /* the loop thread alone changes it */
    bool joined;              /* fact: it has been P_JOINED */
    pthread_cond_t changed;
    int sentinel;
    int32_t code;      /* exit code, -signal, FBR_EXIT_UNKNOWN */
    int32_t told_code; /* the code in its own EXIT frame */
    char job_id[80];
    int64_t pid;
    char why[512]; /* a reason that explains more than the code */
    char *report;
    double rtt;
};

/* job.c, loop thread. */
void fbr_job_start(void *process);
void fbr_job_fail(struct fiber_process *p, int32_t code, const char *why);
void fbr_job_refuse(struct fiber_process *p, const char *why);
void fbr_job_signal(struct fiber_process *p, int sig);
void fbr_job_drained(void *process);
extern const struct fbr_conn_ops fbr_job_conn_ops;

/* admit.c: admits the process and sends its START. Negative: the process is told to go. */
int fbr_process_attach(struct fiber_process *p, struct fbr_conn *conn);

/* Releases the end that the process's frame names; all ends (NULL). Loop thread. */
void fbr_process_release_ends(struct fiber_process *p, struct fbr_cur *body);

void fbr_process_fds_release(struct fiber_process *p, int n); /* at most as many as are set aside */

void fbr_process_ref(struct fiber_process *p);
void fbr_process_unref(struct fiber_process *p);

#endif
