/* bridge_host_priv.h - what bridge_host.c (agents, jobs, processes) and bridge_host_ops.c (what
 * bridges ask) share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "mpi_bridge/service.h"
#include "tests/support/bridge_host.h"

#define BRIDGES 8
#define SERVICES 8

struct agent {
    struct bridge_host *h;
    uint32_t number;
    char name[32], dir[128];
    struct fbr_bridge_host host;
    struct fbr_bridge *bridges[BRIDGES];
};

struct job {
    struct fbr_bridge_job of[HOST_AGENTS]; /* as each agent sees it */
    char nspace[64], dir[128], names[HOST_AGENTS][32];
    uint32_t first[HOST_AGENTS + 1], agents[HOST_AGENTS];
    const char *hosts[HOST_AGENTS];
    struct fbr_bridge_rank local[HOST_AGENTS][HOST_RANKS];
    struct host_rank ranks[HOST_RANKS];
    char *const *env; /* of a spawned one: what its ranks get */
    bool ended, aborted;
};

struct part {
    bool there;
    uint32_t agent;
    struct fbr_buf data;
    fbr_bridge_done *done;
    void *arg;
};

struct fence {
    struct fbr_buf key;
    uint32_t parts, come;
    struct part part[HOST_AGENTS];
    struct fence *prev, *next;
};

struct name {
    char key[2048];
    uint32_t job, rank;
    struct fbr_buf value;
    struct name *prev, *next;
};

struct service {
    struct bridge_host *h;
    uint32_t job;
    const struct fbr_service_ops *ops;
    struct fbr_service *engine;
};

struct stream {
    uint64_t id;
    struct service *service;
    struct fbr_service_conn *conn;
    void (*on_data)(void *arg, const void *data, size_t len);
    void *arg;
    struct stream *prev, *next;
};

struct bridge_host {
    struct fbr_loop *loop;
    char dir[64];
    uint32_t nagents, nbridges, njobs, nservices;
    const struct fbr_bridge_ops *ops[BRIDGES];
    struct agent agents[HOST_AGENTS];
    struct job *jobs[HOST_JOBS];
    struct fence *fences;
    struct name *names;
    struct service services[SERVICES];
    struct stream *streams;
    uint64_t last_stream;
    unsigned fence_count;
    size_t fence_bytes;
    bool broken;
    char *output;
};

void host_must(bool ok, const char *what);
void *host_make(size_t size); /* zeroed */
/* Gives it from a later turn of the loop. */
void host_answer(struct bridge_host *h, fbr_bridge_done *done, void *arg, int code,
                 const void *data, size_t len);
/* Sets the functions of the agent's host but for spawn. */
void host_ops_fill(struct fbr_bridge_host *host);
void host_ops_free(struct bridge_host *h); /* after the loop */
