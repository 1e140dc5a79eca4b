/* run_options.h - the request of `fiber run`, as options of a ring. Pure, except for the
 * environment.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/option.h"
#include "cli/run_env.h"
#include "cli/run_hosts.h"
#include "cli/run_apps.h"
#include "cli/run_table.h"
#include "fiber.h"
#include "ring/capacity.h"

struct run_options {
    int size;
    /* size is set by -n, or by the programs; else an allocation may have another default */
    bool sized;
    struct fiber_ring_options ring;
    bool pty_named; /* --pty=RANK */
    bool by_node;   /* --map-by node */
    /* capacity for the options; set by run_options_resolve() */
    struct fbr_ring_capacity room;
    struct fbr_env env;
    struct run_apps programs; /* none: one program, ring.job.command */
    /* hosts of the ring's nodes; none if only this host is named */
    struct run_hosts hosts;
    const char *start;        /* the command that starts a job on one of the hosts; NULL: ssh */
    const char *const *names; /* names of the ring's nodes; NULL: not known yet */
    char note[400];           /* message to print before the start; "" */
};

/* -EINVAL and a message. On success free with run_options_fini(); the result points into args. */
int run_options_make(struct run_options *spec, const struct cli_args *args, struct fbr_error *err);
/* Asks the backend, which is known by now, for values that the options leave open. -EINVAL and a
 * message. */
int run_options_resolve(struct run_options *spec, struct fbr_error *err);
void run_options_fini(struct run_options *spec);
