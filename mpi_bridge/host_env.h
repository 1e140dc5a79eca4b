/* host_env.h - the variables that MPI libraries and their like need to do well: facts of a host or
 * a rank go in, variables of Open MPI, UCX, gloo, NCCL, hwloc and Horovod come out.
 *
 * All of them are defaults: a variable that the user has set, be it empty, stays. Pure; any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_HOST_ENV_H
#define FBR_HOST_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "mpi_bridge/env.h"
#include "mpi_bridge/probe.h"

/* The names of Open MPI's parameters in the environment begin with it. */
#define FBR_MCA_PREFIX "OMPI_MCA_"

/* ---- A host ---- */

/* The plans of the ranks of this host. */
struct fbr_host_use {
    unsigned ranks; /* on this host */
    unsigned nodes; /* of the job; 1: nothing leaves this host */
    bool oversubscribed;
    const char *scratch; /* a directory on disk for what /dev/shm has no room for; NULL: none */
};

/* Adds the variables that are the same for all ranks of this host, and tells say() (may be NULL)
 * one sentence for each that was not there. */
void fbr_host_env(const struct fbr_probe *p, const struct fbr_host_use *use, struct fbr_env *env,
                  void (*say)(void *user, const char *text), void *user);

/* How late the timers of so many ranks may be on so many processors, in nanoseconds; 0: there is
 * one for each, and they keep what they have. */
unsigned long fbr_host_env_slack(uint32_t ranks, uint32_t cpus);

/* ---- A rank ---- */

struct fbr_rank_use {
    unsigned nodes;   /* of its job */
    const char *shm;  /* a directory in /dev/shm for the files of its job; NULL: none */
    bool shares_cpus; /* it is bound to processors that other ranks are bound to, too */
    const char *nic;  /* the nearest adapter of the fabric; NULL: not known */
};

/* Adds the variables of one rank. */
void fbr_rank_env(const struct fbr_probe *p, const struct fbr_rank_use *use, struct fbr_env *e);

/* Removes the variables by which an outer launcher told us of its own server: they are not for our
 * ranks. */
void fbr_rank_env_drop_outer(struct fbr_env *e);

/* Whether Open MPI hands the variable on to the ranks that a rank spawns, wherever those start. */
bool fbr_rank_env_is_inherited(const char *name);

/* Defaults for ranks that outlive others, "NAME=VALUE", NULL at the end. The first is what `mpirun
 * --with-ft` sets. Before 5.0.10 Open MPI's collectives by host (coll/han) do not hear of a
 * communicator that was revoked: over several hosts survivors of a death wait for ever, or go on
 * with a wrong sum. */
const char *const *fbr_survive_env(void);

#endif
