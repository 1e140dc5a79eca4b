/* run_hosts.h - the hosts of `fiber run`, as mpirun takes them, and how many ranks each gets. Pure,
 * but for the file that it reads, and who we are.
 *
 *   -H a,b:2,[2001:db8::1]:4     so many ranks at most, 1 where it is not said; a host that is
 *                                named again adds to it
 *
 *   # a hostfile
 *   a slots=4 max_slots=8        as Open MPI writes it: more than 8 it does not get, however many
 *                                there are
 *   b:4                          as MPICH does
 *   c                            nothing is said: 1; where no line says anything, ranks are spread
 *                                evenly
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_HOSTS_H
#define CLI_RUN_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "ring/capacity.h"

/* The backend that starts jobs on hosts that are named. */
#define RUN_HOSTS_BACKEND "command"

struct run_host {
    char *name;
    int64_t slots, most; /* as they are said; 0: they are not */
    unsigned bare;       /* how often it is named without slots */
};

struct run_hosts {
    struct run_host *at;
    size_t n;
    bool of_file;
    const char **names; /* [n]; after run_hosts_fit() */
    int *ranks;         /* [n]; the same */
};

/* Add hosts. -EINVAL and a sentence, which names the line of a file. */
int run_hosts_list(struct run_hosts *h, const char *text, struct fbr_error *err);
int run_hosts_parse(struct run_hosts *h, const char *origin, const char *text, size_t len,
                    struct fbr_error *err);
int run_hosts_read(struct run_hosts *h, const char *path, struct fbr_error *err);
/* Keeps only these hosts: all must be there. Their slots count for more. */
int run_hosts_choose(struct run_hosts *h, const struct run_hosts *only, struct fbr_error *err);

/* All are the host that we are on. */
bool run_hosts_here(const struct run_hosts *h);
/* How many there may be at most, by max_slots; 0: any number. */
int64_t run_hosts_most(const struct run_hosts *h);
/* Only the first n are left. */
void run_hosts_cut(struct run_hosts *h, size_t n);
/* How many ranks there are when nobody says it. */
int64_t run_hosts_slots(const struct run_hosts *h);

struct run_hosts_wish {
    int size;     /* ranks; 0: as many as there are slots */
    int nodes;    /* only the first ones; 0: all */
    int per_node; /* slots of each instead of what is said; 0: not */
    bool oversubscribe;
};

/* Gives each host its ranks, block by block, and drops those that get none. Answers how many ranks
 * there are. */
int run_hosts_fit(struct run_hosts *h, const struct run_hosts_wish *wish, struct fbr_error *err);

/* As command_hosts has them. The caller frees; NULL without memory. */
char *run_hosts_setting(const struct run_hosts *h);
void run_hosts_fini(struct run_hosts *h);

/* ---- Allocations ----
 *
 * The hosts of the allocation of PBS, LSF, SGE or Flux that `fiber run` is in, and the ranks of
 * each. Slurm has a backend of its own.
 *
 *     PBS, Torque    PBS_NODEFILE         a file: a line HOST for each rank
 *     LSF            LSB_MCPU_HOSTS       HOST RANKS HOST RANKS ...
 *                    LSB_DJOB_HOSTFILE    a file: a line HOST for each rank
 *     SGE            PE_HOSTFILE          a file: lines HOST RANKS QUEUE PROCESSORS
 *     Flux           FLUX_URI             `flux resource list` is asked: lines NODES CORES
 *                                         HOSTLIST; a rank a core */

enum run_manager { RUN_PBS, RUN_LSF, RUN_LSF_FILE, RUN_SGE, RUN_FLUX, RUN_MANAGERS };

struct run_allocation {
    struct run_hosts hosts;
    const char *start; /* the manager's own command that starts a job on {host}; NULL: ssh does */
    unsigned copies;   /* as in struct fbr_capacity */
};

/* Adds the hosts in a text of that kind. -EINVAL and a sentence that names `origin` and the line or
 * word. Pure. */
int run_allocation_parse(struct run_hosts *h, enum run_manager kind, const char *origin,
                         const char *text, size_t len, struct fbr_error *err);
/* The allocation that we are in. No hosts: we are in none, or its manager does not answer. */
int run_allocation_find(struct run_allocation *a, struct fbr_error *err);
/* The same hosts as a ring takes them. -ENOMEM. */
int run_allocation_room(const struct run_allocation *a, struct fbr_capacity *room,
                        struct fbr_error *err);

#endif
