/* plain.h - what ring/ may ask of the plain bridge besides its table.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PLAIN_H
#define FBR_PLAIN_H

#include "mpi_bridge/bridge.h"

/* The variables that `srun` gives a task, for programs that know no other launcher: SLURM_PROCID,
 * SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_NNODES, SLURM_NTASKS_PER_NODE (of this node) and
 * the old SLURM_NPROCS. Only when the user wants them: libraries that see them talk to Slurm.
 * `rank` is a local one. */
void fbr_plain_slurm_env(const struct fbr_bridge_job *job, uint32_t rank, struct fbr_env *env);

#endif
