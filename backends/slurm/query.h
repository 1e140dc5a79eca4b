/* query.h - queries Slurm and waits for the answer; the checks of `fiber doctor`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/slurm/slurm_args.h"
#include "backends/tool/tool.h"

/* Begins one of the commands that query or cancel; if that fails, it warns. Loop thread. */
int fbr_slurm_run(struct fbr_tools *tools, const struct fbr_args *w, unsigned ms,
                  void (*done)(void *user, const struct fbr_tool_result *r), void *user);
/* Runs a command of Slurm and waits. 0: `out` (NULL: discarded) is its output, NUL-terminated.
 * -ETIMEDOUT: it took longer than `ms`; -EIO: it failed, and err has its own message. Any
 * thread. */
int fbr_slurm_ask(const struct fbr_args *w, unsigned ms, struct fbr_buf *out,
                  struct fbr_error *err);
/* The same with the words of `command` and, unless `value` is NULL, one more word: `option` and
 * `value` joined. */
int fbr_slurm_ask_about(const char *command, const char *option, const char *value, unsigned ms,
                        struct fbr_buf *out, struct fbr_error *err);

/* Counts the nodes of our partition that accept jobs, and finds the processors of the smallest. Any
 * thread. */
int fbr_slurm_ask_room(const struct fbr_slurm_settings *s, struct fbr_capacity *room,
                       struct fbr_error *err);

/* Checks all steps to a job's start, from the commands to the answer of sbatch. If one fails, a
 * finding about the backend itself ("") has the reason and the remedy. Some seconds at most. */
void fbr_slurm_check(const struct fbr_slurm_settings *s, bool steps, const struct fbr_findings *to);
