/* slurm_lines.h - separates Slurm's own lines from a job's standard error; pure.
 *
 * Bytes are passed on as they come, whole lines or not. Only a line that begins like a line of
 * Slurm is held back until its end has come.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/slurm/slurm_state.h"

#define FBR_SLURM_LINE 512

struct fbr_slurm_lines {
    char line[FBR_SLURM_LINE];
    size_t len;
    bool inside; /* inside a line that is not Slurm's */
    struct fbr_slurm_step said;
    void (*bytes)(void *user, const void *data, size_t len); /* receives the job's bytes */
    /* called after `said` was updated; may be NULL */
    void (*line_of_slurm)(void *user, const char *line);
    void *user;
};

void fbr_slurm_lines_add(struct fbr_slurm_lines *l, const char *data, size_t len);
/* Call when no more bytes will come. */
void fbr_slurm_lines_end(struct fbr_slurm_lines *l);
