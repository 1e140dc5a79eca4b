/* run_plan.h - `fiber run --dry-run`: shows what would be started, and with =server whether the
 * cluster would accept it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/run_options.h"

/* Prints the plan; returns the exit code. */
int run_plan_show(const struct run_options *spec, const struct cli_args *args);
