/* run_spec.h - what `fiber run` was asked for, as options of a ring. Pure, but for the environment.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_SPEC_H
#define CLI_RUN_SPEC_H

#include "cli/option.h"
#include "cli/run_env.h"
#include "cli/run_hosts.h"
#include "cli/run_programs.h"
#include "fiber.h"
#include "ring/room.h"

#define RUN_RANKS_MAX (1 << 20)

/* The options of `fiber run`, by index. */
enum {
    RUN_N,
    RUN_PER_NODE,
    RUN_NODES,
    RUN_HOSTS,
    RUN_HOSTFILE,
    RUN_BACKEND,
    RUN_IMAGE,
    RUN_IN_CLUSTER,
    RUN_BIND_TO,
    RUN_MAP_BY,
    RUN_CPUS,
    RUN_GPUS,
    RUN_MEM,
    RUN_ENV,
    RUN_ENV_FILE,
    RUN_WORKDIR,
    RUN_NAME,
    RUN_NAMESPACE,
    RUN_ON_FAILURE,
    RUN_MAX_RESTARTS,
    RUN_TIMEOUT,
    RUN_GRACE,
    RUN_TAG,
    RUN_TIMESTAMP,
    RUN_OUTPUT,
    RUN_STDIN,
    RUN_PTY,
    RUN_REPORT,
    RUN_MAP,
    RUN_DRY_RUN,
    RUN_JSON,
    RUN_OVERSUBSCRIBE,
    RUN_VERBOSE,
    RUN_QUIET,
    RUN_MCA,
    RUN_GENV,
    RUN_NOTHING,
    RUN_NOTHING_ARGUMENT,
    RUN_RANK_BY,
    RUN_CPU_LIST,
    RUN_KILL,
    RUN_HWTHREADS,
    RUN_STANDALONE,
    RUN_RENDEZVOUS,
    RUN_PROCESSORS,
    RUN_ONE_A_NODE,
    RUN_BY_NODE,
    RUN_BY_PACKAGE,
    RUN_PROGRAMS,
    RUN_MCA_FILE,
    RUN_MCA_OTHER,
    RUN_NAMES,
    RUN_NO_NAMES,
    RUN_STAGING,
    RUN_DISPLAY,
    RUN_STREAMS,
    RUN_SURVIVORS,
    RUN_DEBUGGER,
    RUN_INTERFACE,
    RUN_MODULE,
    RUN_SLURM,
    RUN_TIME,
    RUN_PID,
    RUN_ALL_GPUS,
    RUN_OPTIONS
};

struct run_spec {
    int size;
    bool sized; /* by -n, or by the programs; else an allocation may have another default */
    struct fiber_ring_options ring;
    bool pty_named;            /* --pty=RANK */
    struct fbr_ring_room room; /* of the options; after run_spec_settle() */
    struct run_env env;
    struct run_programs programs; /* none: one program, ring.job.command */
    struct run_hosts hosts; /* of the ring's nodes; none where nobody named others than this one */
    const char *start;      /* the command that starts a job on one of them; NULL: ssh does */
    const char *const *names; /* of its nodes; NULL: not known yet */
    char note[400];           /* what is to be said before the start; "" */
};

/* -EINVAL and a sentence. On success free with run_spec_fini(); it points into args. */
int run_spec_make(struct run_spec *spec, const struct cli_args *args, struct fbr_error *err);
/* Asks the backend, which is known by now, for what the options leave open. -EINVAL and a sentence. */
int run_spec_settle(struct run_spec *spec, struct fbr_error *err);
void run_spec_fini(struct run_spec *spec);

extern const struct cli_option run_options[RUN_OPTIONS];

#endif
