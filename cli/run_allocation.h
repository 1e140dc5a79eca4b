/* run_allocation.h - the hosts of the allocation of PBS, LSF, SGE or Flux that `fiber run` is in, and the ranks of
 * each. Slurm has a backend of its own.
 *
 *     PBS, Torque    PBS_NODEFILE         a file: a line HOST for each rank
 *     LSF            LSB_MCPU_HOSTS       HOST RANKS HOST RANKS ...
 *                    LSB_DJOB_HOSTFILE    a file: a line HOST for each rank
 *     SGE            PE_HOSTFILE          a file: lines HOST RANKS QUEUE PROCESSORS
 *     Flux           FLUX_URI             `flux resource list` is asked: lines NODES CORES HOSTLIST; a rank a core
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_ALLOCATION_H
#define CLI_RUN_ALLOCATION_H

#include "cli/run_hosts.h"
#include "ring/room.h"

enum run_manager { RUN_PBS, RUN_LSF, RUN_LSF_FILE, RUN_SGE, RUN_FLUX, RUN_MANAGERS };

struct run_allocation {
    struct run_hosts hosts;
    const char *start; /* the manager's own command that starts a job on {host}; NULL: ssh does */
    unsigned copies;   /* as in struct fbr_room */
};

/* Adds the hosts in a text of that kind. -EINVAL and a sentence that names `origin` and the line or word. Pure. */
int run_allocation_parse(struct run_hosts *h, enum run_manager kind, const char *origin,
                         const char *text, size_t len, struct fbr_error *err);
/* The allocation that we are in. No hosts: we are in none, or its manager does not answer. */
int run_allocation_find(struct run_allocation *a, struct fbr_error *err);
/* The same hosts as a ring takes them. -ENOMEM. */
int run_allocation_room(const struct run_allocation *a, struct fbr_room *room,
                        struct fbr_error *err);

#endif
