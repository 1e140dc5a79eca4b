/* query.h - asks Slurm and waits for the answer; what `fiber doctor` asks it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SLURM_ASK_H
#define FBR_SLURM_ASK_H

#include "backends/slurm/slurm_args.h"

/* Runs a command of Slurm: 0 and in `out` (NULL: nowhere) what it printed, with NUL at its end.
 * -ETIMEDOUT: it took longer than `ms`; -EIO: it failed, and the sentence is its own. Any
 * thread. */
int fbr_slurm_ask(const struct fbr_args *w, unsigned ms, struct fbr_buf *out,
                  struct fbr_error *err);
/* The same with the words of `command` and, unless `value` is NULL, one more: `option` and `value`
 * together. */
int fbr_slurm_ask_about(const char *command, const char *option, const char *value, unsigned ms,
                        struct fbr_buf *out, struct fbr_error *err);

/* How many nodes take jobs in our partition, and the processors of the smallest. Any thread. */
int fbr_slurm_ask_room(const struct fbr_slurm_settings *s, struct fbr_capacity *room,
                       struct fbr_error *err);

/* Checks all steps to a job that starts, from the tools to the answer of sbatch. False: something
 * does, and a finding about the backend itself ("") says what, with the line that mends it. Some
 * seconds at most. */
bool fbr_slurm_check(const struct fbr_slurm_settings *s, bool steps, fbr_backend_report *say,
                     void *user);

#endif
