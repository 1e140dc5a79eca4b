/* bridge.h - the contract of a bridge: one bootstrap protocol (PMIx, PMI-1, ...) that ranks speak
 * and that their node's agent serves.
 *
 * An agent opens every bridge, once. Every bridge of every agent gets each *job* (an
 * MPI_COMM_WORLD: the ranks that `fiber run` starts, a restart of them, the ranks that
 * MPI_Comm_spawn adds), even if the agent has no rank of it. For each local rank the bridges add
 * variables to one environment, so the user need not say what the program is linked with.
 *
 * Bridges of several agents exchange data through their host, which is the agent: it sends to the
 * launcher, and the launcher answers. A bridge never opens a connection to another host.
 *
 * Contract:
 * - every function here, of both tables, is called on the loop thread. A bridge whose library has
 *   threads of its own posts to the loop (host->post, which any thread may call);
 * - no function waits for another process. open() and job() may take the time that a library needs
 *   on this host;
 * - a request that returned 0 is answered exactly once, by its done function, never before the
 *   request returns; a request that failed is not answered;
 * - after close() nothing is called any more; requests without an answer are dropped.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_bridge/env.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* A local rank, as it will be started. */
struct fbr_bridge_rank {
    uint32_t rank;
    const char *cpus; /* processors that it is bound to, as in "0-3,8"; "": not bound */
    unsigned gpus;    /* GPUs that it was given: it sees no others, and their numbers start at 0 */
    uint32_t app;     /* which of the programs that were spawned together it runs (MPI_APPNUM) */
};

/* A job. Ranks are numbered by node: node k of the job has the ranks first[k] .. first[k + 1] - 1.
 * The strings and arrays live until job_end(). */
struct fbr_bridge_job {
    uint32_t id;     /* number within the ring, from 0; never used again */
    const char *run; /* random name of the ring; the same after a restart */
    /* name of the job in PMIx and elsewhere: random, never used again, at most 200 bytes */
    const char *nspace;
    uint32_t size;            /* ranks */
    uint32_t nodes;           /* nodes that have ranks of it */
    const uint32_t *first;    /* [nodes + 1] */
    const char *const *hosts; /* [nodes]: names of the nodes; distinct for distinct agents */
    const uint32_t *agents;   /* [nodes]: the agent that serves each node, in rising order */
    int node;                 /* our node within the job; -1: we have no rank of it */
    /* a directory of mode 0700 on this host for its files; removed after job_end() */
    const char *dir;
    uint32_t epoch; /* 0, or the number of the restart */
    uint32_t max_restarts;
    bool spawned; /* by rank parent_rank of job parent */
    uint32_t parent, parent_rank;
    const char *master_host;             /* name or address at which the other ranks reach rank 0 */
    const struct fbr_bridge_rank *local; /* [fbr_bridge_local()], by rank */
};

/* Returns the node of the job that has the rank. */
static inline uint32_t fbr_bridge_node_of(const struct fbr_bridge_job *job, uint32_t rank)
{
    uint32_t low = 0, high = job->nodes;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (job->first[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns the number of local ranks. */
static inline uint32_t fbr_bridge_local(const struct fbr_bridge_job *job)
{
    return job->node < 0 ? 0 : job->first[job->node + 1] - job->first[job->node];
}

/* A program that MPI_Comm_spawn or PMI's spawn asks for. Valid during the call. */
struct fbr_bridge_app {
    const char *const *argv; /* NULL-terminated */
    const char *const *env;  /* NULL-terminated NAME=VALUE to add; may be NULL */
    const char *workdir;     /* NULL: the same as the job's */
    uint32_t count;
};
struct fbr_bridge_spawn {
    uint32_t parent, parent_rank; /* job id, rank */
    const struct fbr_bridge_app *apps;
    size_t napps;
};

/* The answer to a request: 0 or a negative errno, and bytes that are valid during the call. */
typedef void fbr_bridge_done(void *arg, int code, const void *data, size_t len);

/* The agent's services for a bridge. */
struct fbr_bridge_host {
    struct fbr_loop *loop;
    uint32_t agent;       /* our number, from 0 */
    uint32_t ranks;       /* ranks of the ring's first job, on all agents; 0: not known yet */
    const char *hostname; /* host name of this agent; fbr_bridge_job.hosts may add a suffix */
    /* directory of mode 0700 for sockets and files of the bridge; removed after close() */
    const char *dir;
    const char *topology; /* file with hwloc's XML of this machine; "": none */
    int log_level;        /* for a bridge with its own copy of the log */
    void *user;

    /* Any thread: runs fn(arg) on the loop thread. */
    int (*post)(void *user, void (*fn)(void *arg), void *arg);

    /* Waits until all of `agents` have called fence() with these bytes as key. `agents` has
     * `parts` numbers, in rising order, each once, ours among them. Then answers each agent with
     * the data of all, in the order of `agents`: for each u32 agent, u32 length, bytes. The n-th
     * call of an agent with a key belongs to the n-th call of the others with that key. An agent
     * that is gone, or whose ranks have all died, is not waited for. */
    int (*fence)(void *user, const void *key, size_t key_len, const uint32_t *agents,
                 uint32_t parts, const void *data, size_t len, fbr_bridge_done *done, void *arg);
    /* Sends bytes to the same bridge of that agent (ours too), whose message() gets them. If the
     * agent is gone, our message() gets them back, from FBR_BRIDGE_NOBODY. They are lost if the
     * agent is lost later. */
    int (*notify)(void *user, uint32_t agent, const void *data, size_t len);

    /* Publishes a name that any rank of the ring may look up, until it is unpublished or its job
     * ends. The answer may be -EEXIST. */
    int (*publish)(void *user, uint32_t job, uint32_t rank, const char *key, const void *value,
                   size_t len, fbr_bridge_done *done, void *arg);
    /* Looks up a name. The answer is u32 job and u32 rank of the publisher, then the value.
     * wait_ms: 0 looks once (-ENOENT), -1 waits for ever; or the time to wait (-ETIMEDOUT). */
    int (*lookup)(void *user, const char *key, int wait_ms, fbr_bridge_done *done, void *arg);
    /* Takes back a name; key NULL: all names of that rank. */
    int (*unpublish)(void *user, uint32_t job, uint32_t rank, const char *key,
                     fbr_bridge_done *done, void *arg);

    /* Starts a new job. The answer is its id as a u32, when every agent knows the job and its
     * ranks run. job() has been called for it by then. */
    int (*spawn)(void *user, const struct fbr_bridge_spawn *spawn, fbr_bridge_done *done,
                 void *arg);

    /* Opens a connection of a local rank to a service of the launcher (service.h), e.g.
     * "tcpstore". Bytes of the service go to on_data; len 0: the service has hung up, and the
     * stream is gone. */
    int (*stream_open)(void *user, uint32_t job, const char *service,
                       void (*on_data)(void *arg, const void *data, size_t len), void *arg,
                       uint64_t *stream);
    int (*stream_send)(void *user, uint64_t stream, const void *data, size_t len);
    void (*stream_close)(void *user, uint64_t stream); /* on_data is not called after this */

    /* Events of a local rank. */
    /* it has met its server: "PMIx 4.1" */
    void (*met)(void *user, uint32_t job, uint32_t rank, const char *how);
    /* it has left its server (MPI_Finalize) */
    void (*left)(void *user, uint32_t job, uint32_t rank);
    void (*abort)(void *user, uint32_t job, uint32_t rank, int code, const char *text);
    /* Prints text for the rank; stream 1 or 2. */
    void (*print)(void *user, uint32_t job, uint32_t rank, int stream, const char *text,
                  size_t len);
};

#define FBR_BRIDGE_NOBODY UINT32_MAX /* instead of an agent's number */

struct fbr_bridge;

struct fbr_bridge_ops {
    const char *name;
    /* All calls except rank() may be NULL. Without open(), `b` is NULL. */
    int (*open)(struct fbr_bridge **b, const struct fbr_bridge_host *host, struct fbr_error *err);
    int (*job)(struct fbr_bridge *b, const struct fbr_bridge_job *job, struct fbr_error *err);
    /* Called just before a local rank is started. Adds its variables, and may set *fd, which the
     * rank gets as descriptor FBR_BRIDGE_FD; the host closes it after the start. At most one
     * bridge sets it. */
    int (*rank)(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                struct fbr_env *env, int *fd, struct fbr_error *err);
    /* A local rank has ended: exit code or -signal. */
    void (*ended)(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank, int code);
    /* A rank, here or elsewhere, has died, and its job goes on without it: notifies the
     * survivors. */
    void (*lost)(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank, int code);
    void (*message)(struct fbr_bridge *b, uint32_t agent, struct fbr_cur *data);
    /* no rank of it lives, here or elsewhere */
    void (*job_end)(struct fbr_bridge *b, const struct fbr_bridge_job *job);
    void (*close)(struct fbr_bridge *b);

    /* For the launcher, which opens no bridge: how to treat a rank that has met this bridge.
     * Each may be NULL. */
    const char *met_as;    /* the text that met() gets begins with this */
    const char *no_rejoin; /* why no new process can take the place of such a rank; NULL: one can */
    bool spawns_any;       /* a spawn returns before the spawned ranks have called MPI_Init */
    const char *abort_said;   /* if a rank has printed this and aborts, ... */
    const char *abort_advice; /* ... this is the advice to the user */
};

#define FBR_BRIDGE_FD 3

/* The registry (mpi_bridge/bridges.c), with NULL at its end. If the library of a bridge is
 * missing, the registry has no such bridge, and fbr_bridge_missing() returns the reason (for -v
 * and `fiber doctor`). */
const struct fbr_bridge_ops *const *fbr_bridges(void);
const char *fbr_bridge_missing(const char *name);
/* Returns the built-in bridge whose met() reports such a text, or NULL. Loads no module. */
const struct fbr_bridge_ops *fbr_bridge_met(const char *how);
