/* agent_priv.h - declarations that the files of an agent share: agent.c (frames, jobs),
 * agent_rank.c (ranks), agent_look.c (finds ranks that run MPI alone), agent_output.c (output of
 * ranks), agent_pty.c (pseudo-terminal of a rank), agent_stdin.c (input of a rank), agent_host.c
 * (services for bridges).
 *
 * An agent is one job of a backend. It starts, binds, watches and ends the ranks of its node. It
 * runs on the loop thread; the main thread only waits for the end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an entry that could not be added has hh.tbl NULL */
#include <uthash.h>
#include <utlist.h>

#include "ring/agent.h"
#include "ring/job_codec.h"
#include "mpi_bridge/host_env.h"
#include "ring/ring_wire.h"
#include "runtime/pin/claim.h"
#include "runtime/pin/cgroup.h"
#include "runtime/pin/pin.h"
#include "runtime/proc/process.h"

#define AGENT_BRIDGES 8

struct agent;
struct agent_feed;
struct agent_job;

struct agent_rank {
    struct agent_job *job;
    uint32_t rank;
    void *handle; /* job of the local backend; NULL: not running */
    pid_t pid;
    uint32_t restarts; /* restarts, by this agent or by an agent before it */
    unsigned threads;  /* OpenMP threads to set; 0: not set */
    bool met, left;
    bool mpi;                /* it or a descendant was seen with an MPI library */
    uint64_t mpi_since;      /* when, as fbr_now_ms(); 0: torch may have loaded the library */
    struct agent_feed *feed; /* its standard input; NULL: it reads none */
    int pty;                 /* our end of its pseudo-terminal; 0: it has none */
    uint64_t piece_ms[2];    /* when an unfinished line came, by stream, as fbr_now_ms(); 0: none */
    char *file;              /* path of its program; NULL: not found yet */
};

/* A file that a rank or a descendant of the rank executes. */
struct agent_seen {
    dev_t device;
    ino_t inode;
    bool mpi; /* it needs an MPI library */
};

struct agent_job {
    struct agent_job *next, *prev;
    struct agent *agent;
    struct fbr_ring_job job;
    uint32_t nlocal;
    struct agent_rank *ranks; /* [nlocal] */
    struct fbr_pin *pins;     /* [nlocal]; NULL: nothing is bound */
    bool shares_cpus;         /* too few processors are free of other runs' bound ranks */
    char dir[256];
    struct fbr_bridge_rank *local;
    struct fbr_timer look;             /* looks for MPI in ranks that have not met a server */
    uint64_t look_began, libraries_ms; /* start of looking; age at which libraries are read next */
    struct agent_seen seen[8];
    size_t oldest_seen;
    bool told_missed;     /* a rank that runs alone was reported */
    bool ending;          /* the launcher has sent JOB_END */
    bool served;          /* a rank has used a service of the launcher */
    struct fbr_env cures; /* settings that the probes found necessary */
    struct fbr_env given; /* MPI settings that its ranks got here, not from the user */
    unsigned long slack;  /* timer slack of its ranks, in ns; 0: the same as ours */
};

/* A request of a bridge that the launcher has not answered. */
struct agent_request {
    UT_hash_handle hh;
    uint64_t id;
    fbr_bridge_done *done;
    void *arg;
};

/* A connection of a rank to a service of the launcher. */
struct agent_stream {
    UT_hash_handle hh;
    uint64_t id;
    void (*on_data)(void *arg, const void *data, size_t len);
    void *arg;
};

struct agent_bridge {
    struct agent *agent;
    const struct fbr_bridge_ops *ops;
    struct fbr_bridge *bridge;
    struct fbr_bridge_host host;
};

struct agent {
    struct fbr_runtime *rt;
    struct fbr_agent_order order;
    char hostname[256], address[64], dir[128], shm[128], topology[160];
    uint32_t cpus;            /* processors that its ranks can keep busy */
    struct fbr_cgroup limits; /* oom_kills: as last read */
    struct fbr_probe probe;
    const struct fbr_pin_ops *pin;
    struct fbr_topology *machine;
    int claims; /* descriptor of the claims on processors (claim.h); negative: not open */
    const struct fbr_backend_ops *local;
    struct fbr_backend *backend;
    struct agent_bridge bridges[AGENT_BRIDGES];
    int nbridges;
    struct agent_job *jobs;
    struct agent_request *requests;
    struct agent_stream *streams;
    uint64_t next_id;
    uint64_t unwritten; /* bytes of output that the launcher has not written */
    bool full;
    struct fbr_timer show; /* runs while there is an unfinished line */
    bool leaving;          /* SIGTERM has come, and the ranks got it; no rank is started any more */
    bool ended;            /* all is closed */
    uint64_t asked_ms;     /* when the launcher had all ranks asked to end; 0: never */
    int signal;            /* that the main thread passes to the loop */
    int over;              /* an eventfd: the main thread need wait no longer */
};

/* Frames to the launcher. */
/* begins a frame about a rank */
void fbr_agent_about(struct fbr_buf *body, uint32_t job, uint32_t rank);
/* sends `body` and frees it */
void fbr_agent_send(struct agent *a, uint8_t type, struct fbr_buf *body);
void fbr_agent_note(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports that the rank cannot be started; FBR_RING_ALL: no rank can. */
void fbr_agent_failed(struct agent *a, uint32_t job, uint32_t rank, const char *why);
struct agent_job *fbr_agent_job_find(struct agent *a, uint32_t id);
/* Ends a leaving agent, if none of its ranks runs. */
void fbr_agent_leave(struct agent *a);

/* agent_rank.c */
void fbr_agent_on_event(void *rank, const struct fbr_job_event *event);
int fbr_agent_open_machine(struct agent *a, struct fbr_error *err);
/* chooses processors for its ranks */
int fbr_agent_job_place(struct agent_job *j, struct fbr_error *err);
/* Ranks that share the processors of this host: those of the job and, if it was spawned, those that
 * live here already. */
uint32_t fbr_agent_job_sharing(const struct agent_job *j);
void fbr_agent_job_unclaim(struct agent *a); /* after a job has left the list */
int fbr_agent_rank_start(struct agent_rank *r);
/* NULL: not on this agent */
struct agent_rank *fbr_agent_rank_find(struct agent_job *j, uint32_t rank);
void fbr_agent_rank_signal(struct agent_rank *r, int sig);
/* Frees the job if none of its ranks runs. */
void fbr_agent_job_ended(struct agent_job *j);
void fbr_agent_on_look(struct agent *a, struct fbr_cur *body); /* answers with USE */

/* agent_look.c */
void fbr_agent_look(struct agent_job *j); /* starts looking for MPI in ranks without a server */
/* False: MPI without a server gives its only rank the same world. */
bool fbr_agent_need_server(const struct agent_job *j);
void fbr_agent_on_waits(struct agent *a, struct fbr_cur *body);

/* agent_output.c */
void fbr_agent_send_output(struct agent_rank *r, const struct fbr_job_event *e);
void fbr_agent_on_credit(struct agent *a, struct fbr_cur *body);

/* agent_stdin.c */
/* *theirs: the rank's end, which the caller closes; -1: none. */
int fbr_agent_stdin_open(struct agent_rank *r, int *theirs, struct fbr_error *err);
void fbr_agent_stdin_close(struct agent_rank *r);
void fbr_agent_on_stdin(struct agent *a, struct fbr_cur *body);

/* agent_pty.c */
/* *theirs: the rank's end, which the caller closes. */
int fbr_agent_pty_open(struct agent_rank *r, int *theirs, struct fbr_error *err);
void fbr_agent_pty_close(struct agent_rank *r);
void fbr_agent_on_resize(struct agent *a, struct fbr_cur *body);

/* agent_host.c */
void fbr_agent_host_init(struct agent_bridge *b);
void fbr_agent_on_answer(struct agent *a, struct fbr_cur *body);
void fbr_agent_on_stream(struct agent *a, struct fbr_cur *body);
void fbr_agent_host_fini(struct agent *a);
