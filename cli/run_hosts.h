/* run_hosts.h - the hosts of `fiber run`, in the formats of mpirun, and the number of ranks of each
 * host. Pure, except for the hostfile and this host's own names.
 *
 *   -H a,b:2,[2001:db8::1]:4     at most that many ranks, 1 without a number; a host that is named
 *                                again gets more
 *
 *   # a hostfile
 *   a slots=4 max_slots=8        Open MPI's format: never more than 8 ranks, however many there are
 *   b:4                          MPICH's format
 *   c                            no slots: 1; if no line has slots, ranks are spread evenly
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "ring/capacity.h"

/* The backend that starts jobs on named hosts. */
#define RUN_HOSTS_BACKEND "command"

struct run_host {
    char *name;
    int64_t slots, most; /* as given; 0: not given */
    unsigned bare;       /* how often the host is named without slots */
};

struct run_hosts {
    struct run_host *at;
    size_t n;
    bool of_file;
    const char **names; /* [n]; after run_hosts_fit() */
    int *ranks;         /* [n]; after run_hosts_fit() */
};

/* Add hosts. -EINVAL and a message, with the line of the file. */
int run_hosts_list(struct run_hosts *h, const char *text, struct fbr_error *err);
int run_hosts_parse(struct run_hosts *h, const char *origin, const char *text, size_t len,
                    struct fbr_error *err);
int run_hosts_read(struct run_hosts *h, const char *path, struct fbr_error *err);
/* Keeps only these hosts; all of them must be in h. Their slots replace the old ones. */
int run_hosts_choose(struct run_hosts *h, const struct run_hosts *only, struct fbr_error *err);

/* Whether all hosts are this host. */
bool run_hosts_here(const struct run_hosts *h);
/* Returns the largest possible number of ranks, by max_slots; 0: any number. */
int64_t run_hosts_most(const struct run_hosts *h);
/* Keeps only the first n hosts. */
void run_hosts_cut(struct run_hosts *h, size_t n);
/* Returns the default number of ranks. */
int64_t run_hosts_slots(const struct run_hosts *h);

struct run_hosts_wish {
    int size;     /* ranks; 0: as many as slots */
    int nodes;    /* use only the first ones; 0: all */
    int per_node; /* slots of each host, instead of the given ones; 0: not set */
    bool even;    /* as many on each host as its slots allow, instead of one host after the other */
    bool oversubscribe;
};

/* Gives each host its ranks, numbered host by host, and drops hosts without ranks. Returns the
 * number of ranks. */
int run_hosts_fit(struct run_hosts *h, const struct run_hosts_wish *wish, struct fbr_error *err);

/* Returns the hosts in the format of command_hosts, for free(); NULL without memory. */
char *run_hosts_setting(const struct run_hosts *h);
void run_hosts_fini(struct run_hosts *h);

/* ---- Allocations ----
 *
 * The hosts of the allocation of PBS, LSF, SGE or Flux in which `fiber run` runs, and the ranks of
 * each. Slurm has a backend of its own.
 *
 *     PBS, Torque    PBS_NODEFILE         a file: a line HOST for each rank
 *     LSF            LSB_MCPU_HOSTS       HOST RANKS HOST RANKS ...
 *                    LSB_DJOB_HOSTFILE    a file: a line HOST for each rank
 *     SGE            PE_HOSTFILE          a file: lines HOST RANKS QUEUE PROCESSORS
 *     Flux           FLUX_URI             output of `flux resource list`: lines NODES CORES
 *                                         HOSTLIST; one rank for each core */

enum run_manager { RUN_PBS, RUN_LSF, RUN_LSF_FILE, RUN_SGE, RUN_FLUX, RUN_MANAGERS };

struct run_allocation {
    struct run_hosts hosts;
    /* the manager's own command that starts a job on {host}; NULL: ssh */
    const char *start;
    unsigned copies; /* as in struct fbr_capacity */
};

/* Adds the hosts in a text of that kind. -EINVAL and a message with `origin` and the line or word.
 * Pure. */
int run_allocation_parse(struct run_hosts *h, enum run_manager kind, const char *origin,
                         const char *text, size_t len, struct fbr_error *err);
/* Finds the allocation in which we run. No hosts: we run in none, or its manager does not
 * answer. */
int run_allocation_find(struct run_allocation *a, struct fbr_error *err);
/* Converts the hosts to a ring's capacity. -ENOMEM. */
int run_allocation_room(const struct run_allocation *a, struct fbr_capacity *room,
                        struct fbr_error *err);
