/* run_plan.h - `fiber run --dry-run`: what would be started, and with =server whether the cluster
 * would take it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_PLAN_H
#define CLI_RUN_PLAN_H

#include "cli/run_options.h"

/* Prints it; answers the exit code. */
int run_plan_show(const struct run_options *spec, const struct cli_args *args);

#endif
