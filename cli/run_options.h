/* run_options.h - what `fiber run` was asked for, as options of a ring. Pure, but for the
 * environment.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_SPEC_H
#define CLI_RUN_SPEC_H

#include "cli/option.h"
#include "cli/run_env.h"
#include "cli/run_hosts.h"
#include "cli/run_apps.h"
#include "cli/run_table.h"
#include "fiber.h"
#include "ring/capacity.h"

struct run_options {
    int size;
    bool sized; /* by -n, or by the programs; else an allocation may have another default */
    struct fiber_ring_options ring;
    bool pty_named;                /* --pty=RANK */
    struct fbr_ring_capacity room; /* of the options; after run_options_resolve() */
    struct run_env env;
    struct run_apps programs; /* none: one program, ring.job.command */
    struct run_hosts hosts; /* of the ring's nodes; none where nobody named others than this one */
    const char *start;      /* the command that starts a job on one of them; NULL: ssh does */
    const char *const *names; /* of its nodes; NULL: not known yet */
    char note[400];           /* what is to be said before the start; "" */
};

/* -EINVAL and a sentence. On success free with run_options_fini(); it points into args. */
int run_options_make(struct run_options *spec, const struct cli_args *args, struct fbr_error *err);
/* Asks the backend, which is known by now, for what the options leave open. -EINVAL and a
 * sentence. */
int run_options_resolve(struct run_options *spec, struct fbr_error *err);
void run_options_fini(struct run_options *spec);

#endif
