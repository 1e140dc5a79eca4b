/* batch.h - jobs of their own, by sbatch: for callers outside of an allocation.
 *
 * Jobs that start at about the same time, with the same needs, become one array, submitted once.
 * One squeue for all jobs reports their states, each poll; their output is read from the files that
 * Slurm writes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/slurm/slurm_args.h"

struct fbr_slurm_batch;

/* The caller owns `settings`, which must outlive *b. All functions: loop thread. */
int fbr_slurm_batch_open(struct fbr_slurm_batch **b, const struct fbr_backend_env *env,
                         const struct fbr_slurm_settings *settings, struct fbr_error *err);
/* Whether the folder of the jobs exists, or can be made, and can be written: 0, or an error. */
int fbr_slurm_batch_check(const struct fbr_slurm_batch *b, struct fbr_error *err);
/* Removes the folders of dead masters; with `dry` nonzero, only reports them. */
void fbr_slurm_batch_sweep(const struct fbr_slurm_batch *b, int dry, fbr_backend_swept *swept,
                           void *user);
/* Cancels the living jobs, and waits for scancel, some seconds at most. NULL is allowed. */
void fbr_slurm_batch_close(struct fbr_slurm_batch *b);
/* Writes the command that would submit the job: sbatch, and the script that it reads. `dir` is the
 * folder of the script. */
int fbr_slurm_batch_show(const struct fbr_slurm_settings *settings, const char *dir,
                         const struct fbr_job *job, struct fbr_buf *out);
int fbr_slurm_batch_start(struct fbr_slurm_batch *b, const struct fbr_job *job, void *user,
                          void **handle, struct fbr_error *err);
int fbr_slurm_batch_signal(void *handle, int sig);
void fbr_slurm_batch_pause(struct fbr_slurm_batch *b, void *handle, int paused);
void fbr_slurm_batch_release(void *handle);
