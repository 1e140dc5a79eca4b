/* plain.c - the bridge of programs that need no server, only variables.
 *
 * FIBER_*               which rank this is, for programs that are written for Fiber and for scripts
 * OMPI_COMM_WORLD_*     what mpirun sets; many scripts and libraries find the rank by them
 * OMPI_VERSION          whose mpirun: from version 5 on, or without it, JAX 0.12 asks mpi4py in
 *                         place of these variables, also a program that passes the JAX_* on
 * MPI_LOCALRANKID       and MPI_LOCALNRANKS: what MPICH's and Intel MPI's mpiexec set, for scripts
 *                         that choose a GPU
 * JAX_*                 jax.distributed.initialize() reads the address; a program reads the rest
 *                         and passes it on. JAX would find all of it by itself with
 *                         OMPI_MCA_orte_hnp_uri. But then Open MPI 4.1 looks for an ompi-server
 *                         when a spawned rank meets its parents, and MPI_Comm_spawn fails, so this
 *                         is left to the user (docs/frameworks.md). Process 0 listens at the
 *                         coordinator's address itself. No one can ask it for a free port before it
 *                         runs, so the port is made from the job's name, in the range that JAX uses
 *                         for Open MPI's jobs
 *
 * JAX_* variables that the user has set stay. The others are facts, and replace those of an outer
 * launcher.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/bridge.h"
#include "runtime/base/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define JAX_PORT_FIRST 61440u /* 65536 - 4096 */
#define JAX_PORTS 4096u

static void set_jax(const struct fbr_bridge_job *job, uint32_t rank, struct fbr_env *env)
{
    const char *host = job->master_host;
    bool v6 = strchr(host, ':') != NULL;
    /* the same on every agent */
    uint32_t h = (uint32_t)fbr_hash(FBR_HASH, job->nspace, strlen(job->nspace)) + job->epoch;
    unsigned gpus = job->local[rank - job->first[job->node]].gpus;
    char ids[256] = "";
    size_t len = 0;

    fbr_env_default(env, "JAX_COORDINATOR_ADDRESS", v6 ? "[%s]:%u" : "%s:%u", host,
                    JAX_PORT_FIRST + (h ^ h >> 12 ^ h >> 24) % JAX_PORTS);
    fbr_env_default(env, "JAX_NUM_PROCESSES", "%u", job->size);
    fbr_env_default(env, "JAX_PROCESS_ID", "%u", rank);
    for (unsigned i = 0; i < gpus && len < sizeof(ids); i++)
        len += (size_t)snprintf(ids + len, sizeof(ids) - len, i ? ",%u" : "%u", i);
    if (gpus)
        fbr_env_default(env, "JAX_LOCAL_DEVICE_IDS", "%s", ids);
}

static int plain_rank(struct fbr_bridge *b, const struct fbr_bridge_job *job, uint32_t rank,
                      struct fbr_env *env, int *fd, struct fbr_error *err)
{
    uint32_t node = (uint32_t)job->node, first = job->first[node];
    uint32_t local_size = fbr_bridge_local(job);

    fbr_env_set(env, "FIBER_RANK", "%u", rank);
    fbr_env_set(env, "FIBER_SIZE", "%u", job->size);
    fbr_env_set(env, "FIBER_LOCAL_RANK", "%u", rank - first);
    fbr_env_set(env, "FIBER_LOCAL_SIZE", "%u", local_size);
    fbr_env_set(env, "FIBER_NODE", "%u", node);
    fbr_env_set(env, "FIBER_NODES", "%u", job->nodes);
    fbr_env_set(env, "FIBER_JOB", "%s", job->nspace);
    fbr_env_set(env, "FIBER_EPOCH", "%u", job->epoch);
    fbr_env_set(env, "OMPI_COMM_WORLD_RANK", "%u", rank);
    fbr_env_set(env, "OMPI_COMM_WORLD_SIZE", "%u", job->size);
    fbr_env_set(env, "OMPI_COMM_WORLD_LOCAL_RANK", "%u", rank - first);
    fbr_env_set(env, "OMPI_COMM_WORLD_LOCAL_SIZE", "%u", local_size);
    fbr_env_set(env, "OMPI_COMM_WORLD_NODE_RANK", "%u", rank - first);
    fbr_env_set(env, "OMPI_VERSION", "4");
    fbr_env_set(env, "MPI_LOCALRANKID", "%u", rank - first);
    fbr_env_set(env, "MPI_LOCALNRANKS", "%u", local_size);
    set_jax(job, rank, env);
    return 0;
}

const struct fbr_bridge_ops fbr_bridge_plain = {
    .name = "plain",
    .rank = plain_rank,
};
