/* run_table.h - the options of `fiber run`, by index; run_options.c has their table.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/option.h"

#define RUN_RANKS_MAX (1 << 20)

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
    RUN_KILL,
    RUN_HWTHREADS,
    RUN_TIME,
    RUN_REFUSED, /* the first of the options that are answered with an explanation */
    RUN_OPTIONS = RUN_REFUSED + 31
};

extern const struct cli_option run_option_table[RUN_OPTIONS];
