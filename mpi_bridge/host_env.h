/* host_env.h - variables that MPI and similar libraries need to work well: facts of a host or a
 * rank go in, variables of Open MPI, UCX, gloo, NCCL, hwloc and Horovod come out.
 *
 * All variables are defaults: a variable that the user has set, even to an empty value, stays.
 * Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mpi_bridge/env.h"
#include "mpi_bridge/probe.h"

/* The prefix of Open MPI's parameters in the environment. */
#define FBR_MCA_PREFIX "OMPI_MCA_"

/* ---- A host ---- */

/* How the ranks use this host. */
struct fbr_host_use {
    unsigned ranks; /* on this host */
    unsigned nodes; /* of the job; 1: nothing leaves this host */
    bool oversubscribed;
    const char *scratch; /* a directory on disk for what /dev/shm has no room for; NULL: none */
};

/* Adds the variables that are the same for all ranks of this host. Calls say() (may be NULL)
 * with a sentence for each variable that was not there. */
void fbr_host_env(const struct fbr_probe *p, const struct fbr_host_use *use, struct fbr_env *env,
                  void (*say)(void *user, const char *text), void *user);

/* How late the timers of so many ranks on so many processors may be, in nanoseconds; 0: there is
 * a processor for each rank, and the timers stay as they are. */
unsigned long fbr_host_env_slack(uint32_t ranks, uint32_t cpus);

/* ---- A rank ---- */

struct fbr_rank_use {
    unsigned nodes;   /* nodes of its job */
    const char *shm;  /* a directory in /dev/shm for the job's files; NULL: none */
    bool shares_cpus; /* other ranks may run on its processors */
    bool survives;    /* it goes on after the death of others */
    const char *nic;  /* the nearest adapter of the fabric; NULL: not known */
};

/* Adds the variables of one rank. */
void fbr_rank_env(const struct fbr_probe *p, const struct fbr_rank_use *use, struct fbr_env *e);

/* Removes the variables by which an outer launcher names its own job and task: they are not for our
 * ranks, unless the user asks for them. */
void fbr_rank_env_drop_outer(struct fbr_env *e);
/* Removes the variables that would lead a rank to the server of an outer launcher. */
void fbr_rank_env_drop_servers(struct fbr_env *e);

/* True if Open MPI passes the variable on to the ranks that a rank spawns, on whatever host they
 * start. */
bool fbr_rank_env_is_inherited(const char *name);
