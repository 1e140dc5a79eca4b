/* run_foreign.h - options that mpirun, srun and torchrun have, in their own words and units.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_FOREIGN_H
#define CLI_RUN_FOREIGN_H

#include "cli/run_spec.h"

/* Ranks on each host: a number, or torchrun's auto, cpu, gpu, which are counted here. -EINVAL. */
int run_foreign_per_node(const struct cli_value *v, int *per_node, struct fbr_error *err);
/* What else of theirs was given. -EINVAL and a sentence. */
int run_foreign_take(struct run_spec *s, const struct cli_args *args, struct fbr_error *err);

#endif
