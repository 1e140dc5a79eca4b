/* run_env.h - the variables that commands give to jobs: `fiber run` by -x, --env-file, --mca and
 * --genv, others by -x or -e.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/option.h"
#include "mpi_bridge/env.h"

/* Adds the variables of an option that takes VAR[=VALUE]; without =VALUE they have their values
 * here. -EINVAL and a message, which `hint` ends, if there is no such variable here. */
int run_env_list(struct fbr_env *e, const struct cli_value *v, const char *hint,
                 struct fbr_error *err);
/* Adds the variables of the options of `fiber run`; the last one of a name wins. -EINVAL and a
 * message. */
int run_env_take(struct fbr_env *e, const struct cli_args *args, struct fbr_error *err);
/* Adds the variable of a line of --env-file to the struct fbr_env `user`, as docker takes it; a
 * text_file_line. -EINVAL and a message that begins with `where`.
 *
 *   # a comment
 *   NAME=VALUE      the value is all of the rest of the line, quotes too
 *   NAME            with its value here; left out if there is no such variable here */
int run_env_line(void *user, const char *where, char *line, struct fbr_error *err);
