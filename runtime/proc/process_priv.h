/* process_priv.h - the struct of a job-backed process, and the functions that its files share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/output.h"
#include "runtime/proc/process.h"
#include "runtime/proc/process_fsm.h"
#include "runtime/proc/ticket.h"
#include "runtime/proc/tunnel.h"

/* Descriptors that a process costs us: pipes and a pidfd; while it starts, also the other ends, its
 * ticket and the like; later, its connections. */
enum { FDS_OF_JOB = 3, FDS_FOR_START = 10, FDS_OF_CONN = 1, FDS_OF_LINK = 1 };

struct fiber_process {
    struct fiber_process *next, *prev; /* rt->processes, under its lock */
    struct fbr_runtime *rt;
    /* under rt->lock: the program's handle, the job until it has ended, each post on its way */
    int refs;
    bool handle_open; /* fact: the program has not closed it */
    /* Posts a kill without allocating memory: a lost process must be killed in any case. */
    struct fbr_post kill;

    uint64_t id;
    char name[FBR_NAME_MAX];
    /* after the start of its job, only ops, user, link, is_host and prefix are used */
    struct fbr_process_spec spec;
    uint8_t secret[FBR_KEY_SIZE];
    struct fbr_buf start;     /* the START frame, until it is sent */
    struct fiber_jobspec job; /* owned copies, until started */
    struct fbr_buf strings;   /* strings of `job` */
    char **env;               /* the whole environment, copied at the call; until started */
    struct fbr_hold *holds;   /* the loop thread's, once the start is posted */
    size_t n_holds;
    /* 0: as configured, and it does not count while the engine has no place for it */
    int start_timeout_ms;
    int keep_stdin;
    /* number of descriptors reserved for it (fds.h); the loop thread's, once the start is posted;
     * from then on for the connections that it has not made yet */
    int fds;
    char backend_name[32];

    /* Loop thread. */
    struct fbr_backend_slot *slot;
    enum fbr_reach reach; /* how it reaches us; set when it starts */
    void *handle;
    uint64_t since_ms; /* fbr_now_ms() when it started */
    struct fbr_conn *conn;
    struct fbr_link *link;
    struct fbr_timer timer;
    struct fbr_lines out[2];
    struct fiber_process *host;      /* its host process, if it is a subjob; referenced */
    struct fbr_backend_slot as_host; /* the backend of its subjobs */
    struct fbr_subjobs *nested;
    struct fbr_tunnels tunnels; /* tunnels to it */
    bool signalled;             /* fact: SIGTERM or SIGKILL was sent to it */
    bool leaving;               /* fact: it has sent its EXIT frame */
    /* fact: its host process has passed on all its data; may be set before its end */
    bool drained;
    /* fact: `why` is our guess, which a reason from its backend replaces */
    bool presumed;
    bool disrupted; /* fact: its backend took it from us: eviction, preemption, a lost node */
    /* fact: its program is missing or cannot be executed, or this machine has too few GPUs */
    bool cannot_run;
    bool paused;                  /* wish: its output is not read for a while */
    struct fbr_post drained_post; /* calls fbr_job_drained() on the loop thread */
    /* time for which this process was stopped, before the child gave it up */
    uint64_t stalled_ms;
    char pending[400];   /* why it does not run yet, in the backend's words */
    uint64_t pending_ms; /* fbr_now_ms() when that began */
    bool placed;         /* fact: it has a place to run at, and waits for something else */
    char shortage[160];  /* our lack of descriptors, noted when it failed */

    /* Under rt->lock. */
    enum process_state state; /* the loop thread alone changes it */
    bool joined;              /* fact: it has been P_JOINED, and its pid is known */
    pthread_cond_t changed;
    int sentinel;
    int32_t code;      /* exit code, -signal, FBR_EXIT_UNKNOWN */
    int32_t told_code; /* the code of its EXIT frame, or 125 if we refused it */
    char job_id[80];
    int64_t pid;
    char why[512]; /* a reason that explains more than the code */
    char *report;
    double rtt;
    struct fbr_process_use use;
};

/* job.c, loop thread. */
void fbr_job_start(void *process);
void fbr_job_fail(struct fiber_process *p, int32_t code, const char *why);
void fbr_job_refuse(struct fiber_process *p, const char *why);
void fbr_job_signal(struct fiber_process *p, int sig);
/* Begins to watch the process's heartbeats, which a suspended process does not send. */
void fbr_job_beats(struct fiber_process *p, bool suspended);
void fbr_job_drained(void *process);
extern const struct fbr_conn_ops fbr_job_conn_ops;

/* admit.c: admits the process and sends its START. Negative: the process was refused. */
int fbr_process_attach(struct fiber_process *p, struct fbr_conn *conn);

/* Releases the end of a pipe that the process's HOLDS frame names; all ends if body is NULL. Loop
 * thread. */
void fbr_process_release_ends(struct fiber_process *p, struct fbr_cur *body);

void fbr_process_fds_release(struct fiber_process *p, int n); /* at most as many as are reserved */

void fbr_process_ref(struct fiber_process *p);
void fbr_process_unref(struct fiber_process *p);
