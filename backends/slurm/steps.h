/* steps.h - jobs as steps of the allocation in which we run, one srun for each.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/slurm/slurm_args.h"

struct fbr_slurm_steps;

/* The caller owns `settings`, which must outlive *s. All functions: loop thread. */
int fbr_slurm_steps_open(struct fbr_slurm_steps **s, const struct fbr_backend_env *env,
                         const struct fbr_slurm_settings *settings, struct fbr_error *err);
/* Ends all steps, and waits for their end, some seconds at most. NULL is allowed. */
void fbr_slurm_steps_close(struct fbr_slurm_steps *s);
/* Writes the command that would start the job in an allocation whose nodes are not known yet. */
int fbr_slurm_steps_show(const struct fbr_slurm_settings *settings, const struct fbr_job *job,
                         struct fbr_buf *out);
int fbr_slurm_steps_start(struct fbr_slurm_steps *s, const struct fbr_job *job, void *user,
                          void **handle, struct fbr_error *err);
int fbr_slurm_steps_signal(struct fbr_slurm_steps *s, void *handle, int sig);
void fbr_slurm_steps_pause(struct fbr_slurm_steps *s, void *handle, int paused);
void fbr_slurm_steps_release(struct fbr_slurm_steps *s, void *handle);
