/* context.h - the one context of a process that uses Fiber, and how its parts find each other.
 *
 * Order of construction (destruction is the reverse): configuration; loop; run directory; then,
 * when first needed, the listener (control channel), the data server (data channel) and the
 * backends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "fiber.h"
#include "runtime/proc/backend.h"
#include "runtime/net/conn.h"
#include "runtime/net/data_server.h"
#include "runtime/proc/pending.h"
#include "runtime/proc/rundir.h"
#include "runtime/base/sync.h"

/* Frames of the control channel; docs/wire.md has them byte by byte. */
enum fbr_frame {
    FBR_FRAME_START = FBR_FRAME_USER, /* parent to child: its function or its work */
    FBR_FRAME_EXIT,                   /* child to parent: i32 code, str text; then it exits */
    /* child to parent: bytes for the caller that started the child */
    FBR_FRAME_READY,
    FBR_FRAME_JOIN, /* child to its parent or host process: the child has joined; u64 pid */
    /* child to parent: the child has attached to an end of a pipe */
    FBR_FRAME_HOLDS,
    FBR_FRAME_SIGNAL,       /* parent to child: u32 signal, which the child sends itself */
    FBR_FRAME_LOOK,         /* parent to child: empty: answer with USE */
    FBR_FRAME_USE,          /* child to parent: struct fbr_process_use */
    FBR_FRAME_POOL = 32,    /* pool/pool_wire.h */
    FBR_FRAME_SUBJOB = 48,  /* subjobs.h */
    FBR_FRAME_PEER = 64,    /* share/object_server.c */
    FBR_FRAME_RING = 80,    /* ring/ring_wire.h */
    FBR_FRAME_TUNNEL = 112, /* tunnel.h */
};

/* The kinds of START frames: a function, or work for the program. */
enum { FBR_START_FN = 1, FBR_START_WORK };

/* An end of a pipe that a process holds from its start on; the process that starts it has a handle
 * of that end. */
struct fbr_hold {
    struct fiber_pipe *held;
    uint64_t owner, object; /* as in the address of the end */
    uint8_t end;
};

struct fbr_hold_ops {
    int (*hold)(struct fiber_pipe *end, struct fbr_hold *out); /* 0, or an error that is kept */
    /* Called when the process has the end itself, or has ended. Loop thread. */
    void (*release)(struct fbr_hold *hold);
};

/* The stages of the end of this process, in their order: each may still use what later stages
 * close. The runtime does not know pools, rings and objects: a part that has something to end
 * registers a function at the stage where it ends. fiber_fini() calls them before it ends processes
 * and closes the context. */
enum fbr_end_stage {
    FBR_END_REPORT,  /* a child sends its parent the rest of its results */
    FBR_END_RUNS,    /* rings, whose functions may use pools and objects */
    FBR_END_TASKS,   /* pools, whose tasks may use objects */
    FBR_END_OBJECTS, /* queues, pipes, managers and stores */
    FBR_END_STAGES
};
struct fbr_runtime;
typedef void fbr_end_fn(struct fbr_runtime *rt);

struct fbr_child;
struct fbr_subjob_host;
struct fbr_relay;
struct fbr_output;
struct fiber_process;
struct fbr_own_run;
struct fbr_program;

struct fbr_runtime {
    pthread_mutex_t lock; /* guards processes, started to ender, data server, at_end */
    struct fbr_config *config;
    struct fbr_loop *loop;
    struct fbr_rundir dir;
    char root[FBR_DIR_MAX];         /* in a rank: the directory of the ring's run; else "" */
    struct fbr_timer keep;          /* loop thread */
    struct fbr_held held;           /* what this process keeps for others */
    char run_uid[33];               /* uid of the whole run, in hex; the master makes it */
    uint8_t peer_key[FBR_KEY_SIZE]; /* part of the addresses of objects that live here */
    uint64_t self;                  /* random; distinguishes the processes of a run */
    bool started, finished;
    bool ends, over; /* fiber_fini() was called; it is about to return */
    bool killed;     /* it was called in a callback, and has killed all processes */
    pthread_t ender; /* the thread that called it */
    pthread_cond_t changed;
    bool ending; /* fiber_fini() has begun: no pool opens any more; under the pools' lock */
    struct fbr_listener *listener[2];       /* by enum fbr_reach; loop thread */
    struct fbr_data_server *data_server[2]; /* set on the loop thread */
    struct fbr_output *output;
    struct fbr_pending_watch pending; /* loop thread */
    struct fbr_backend_slot {
        const struct fbr_backend_ops *ops;
        struct fbr_backend *backend;
        struct fbr_backend_slot *next;
    } * backends;                    /* changed on the loop thread, under lock */
    struct fiber_process *processes; /* under lock */
    uint64_t next_process;
    uint64_t next_tunnel;         /* loop thread */
    struct fbr_own_run *own_runs; /* runs of pools, and that of the program; loop thread */
    struct fbr_program *program;  /* what the run of its other processes shows; loop thread */
    struct fbr_child *child;      /* our connection to our parent; NULL in a master */
    const char *parent_url;       /* where the parent listens */
    bool near_master; /* this process is on the master's host, and uses its run directory */
    struct fbr_subjob_host *subjob_host; /* subjobs that we run for our parent; loop thread */
    struct fbr_relay *relay;             /* relays the data of subjobs; opened on the loop thread */
    /* Set by share/: admits a process that has an address of ours. Loop thread. */
    int (*admit_peer)(struct fbr_runtime *rt, const struct fbr_caller *who, struct fbr_conn *conn);
    const struct fbr_hold_ops *holds;   /* set by share/ */
    fbr_end_fn *at_end[FBR_END_STAGES]; /* by fbr_rt_at_end(); under lock, as the next */
    unsigned stages_begun;
    struct fiber_pool *pools; /* open pools; under their own lock (pool.c) */
    struct fiber_ring *rings; /* open rings; under the lock */
    /* Set by ring/: the output's queue has room again. Loop thread. */
    void (*output_room)(struct fbr_runtime *rt);
    /* Set by ring/: our parent is gone, and this process is about to end. Loop thread. */
    void (*orphaned)(struct fbr_runtime *rt);
    void *agent; /* owned by ring/ */
    void *share;
};

/* Returns the context, started (loop and run directory exist), or NULL and a kept error (not
 * initialised, ended, after fork). */
struct fbr_runtime *fbr_rt(void);
/* In a fork() child: no thread of the context is here, and no lock may be taken. */
bool fbr_rt_forked(void);
/* Returns 0, or -EPERM and a kept error in a fork() child. */
int fbr_rt_check(void);
/* Registers a function that fiber_fini() calls at this stage; a later call replaces it. -ESHUTDOWN:
 * the stage has begun, or is over. Later stages still take functions: a pool that ends may use a
 * queue for the first time. Any thread. */
int fbr_rt_at_end(struct fbr_runtime *rt, enum fbr_end_stage stage, fbr_end_fn *fn);
/* Calls the functions of all stages, once. Without the lock: they wait for threads that take it. */
void fbr_rt_end_parts(struct fbr_runtime *rt);
/* Returns the context if it is started, else NULL. Does not start it. */
struct fbr_runtime *fbr_rt_peek(void);

/* For init.c. fbr_rt_set() sets the context. fbr_rt_any() returns it in any state, or NULL; it has
 * its configuration before it is started, when `fiber run` reads that. fbr_rt_start() starts its
 * loop and directory, under rt->lock; `root` is the run's directory in a child ("": the master is
 * on another host) or a rank, else NULL. */
int fbr_rt_set(struct fbr_runtime *rt);
struct fbr_runtime *fbr_rt_any(void);
int fbr_rt_start(struct fbr_runtime *rt, const char *root, struct fbr_error *err);
/* Whether other threads may wait for the calling thread. */
bool fbr_rt_awaited(struct fbr_runtime *rt);
/* As fbr_cond_wait(), for what other threads bring about. -EDEADLK and a kept error: the deadline
 * has not come, but the calling thread is one of these threads, or runs a callback. */
int fbr_rt_wait(struct fbr_runtime *rt, pthread_cond_t *changed, pthread_mutex_t *lock,
                uint64_t deadline);

/* Marks the beginning and the end of a callback of the program for which fiber_fini() waits. A
 * fiber_fini() that this thread calls in between does not wait. */
void fbr_rt_callback(bool begins);

/* Whether fiber_fini() has begun, so that nothing new may start. */
bool fbr_rt_finished(struct fbr_runtime *rt);

/* Store the listener, and the data server with its url, for processes of this reach. The first call
 * opens them. Loop thread. */
int fbr_rt_listener(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_listener **l,
                    struct fbr_error *err);
int fbr_rt_data_server(struct fbr_runtime *rt, enum fbr_reach reach, struct fbr_data_server **h,
                       const char **url, struct fbr_error *err);
/* Returns the name of a backend. NULL stands for the configured one, "auto" for the one that is
 * found. */
const char *fbr_rt_backend_name(const struct fbr_runtime *rt, const char *name);
/* Opens a backend by name (NULL: as configured). Loop thread. */
int fbr_rt_backend(struct fbr_runtime *rt, const char *name, struct fbr_backend_slot **slot,
                   struct fbr_error *err);
/* Call it in the program's thread before a start by a backend (NULL: as configured): a backend that
 * is not open yet then gets the environment of this moment (environ.h). */
void fbr_rt_see_environ(struct fbr_runtime *rt, const char *name);
/* Waits until the loop thread has started what was posted, if the backend (NULL: as configured) is
 * the local one: its jobs inherit umask, limits and ignored signals, which the program may change
 * afterwards. Not under a lock that the loop thread takes. */
void fbr_rt_await_starts(struct fbr_runtime *rt, const char *name);
/* Returns the reach of our objects' addresses, which may travel to any of our jobs. Loop thread. */
enum fbr_reach fbr_rt_object_reach(struct fbr_runtime *rt);
/* Returns the reach of children of this backend, with the configuration's transport applied. */
enum fbr_reach fbr_rt_reach(struct fbr_runtime *rt, const struct fbr_backend_ops *ops);

/* Sends a frame on *conn; NULL: the connection has ended. A thread other than the loop's posts a
 * copy, and *conn is read when it is sent; then done(arg) is called, unless done is NULL. 1:
 * posted; 0: sent; -errno. Frames of one thread keep their order. */
int fbr_rt_send(struct fbr_runtime *rt, struct fbr_conn *const *conn, uint8_t type,
                const struct fbr_buf *body, void (*done)(void *arg), void *arg);

/* Derives the keys of a data link from its control connection; both ends do so. -ENOTSUP: the
 * connection needs no keys. */
int fbr_rt_keys(struct fbr_conn *conn, uint64_t link, enum fbr_aead_alg alg, struct fbr_keys *keys);

/* Parts of processes that the context's own parts call; job.c and admit.c define them. Loop thread.
 *
 * Takes the events of backends, with a process as the job's user (backend.h). */
void fbr_job_event(void *process, const struct fbr_job_event *event);
/* The output's queue has room: resumes reading the output of processes. */
void fbr_process_resume_output(void *rt);
/* For struct fbr_auth_ops: the secret and the admission of a caller at our listener. */
int fbr_process_secret(void *rt, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE]);
int fbr_process_admit(void *rt, const struct fbr_caller *who, struct fbr_conn *conn);
