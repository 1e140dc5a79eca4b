/* kept_job.h - a copy of a job, for a backend that starts the job later: the caller's strings are
 * valid only during start() (backend.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/backend.h"

/* Copies a job with its name, file, argv, env, workdir and ticket, without the members that only a
 * local process gets (local, link, control). Its other pointers are the caller's, and not valid
 * after the caller's start(). For fbr_kept_job_free(). NULL: out of memory. */
struct fbr_job *fbr_kept_job(const struct fbr_job *job);
void fbr_kept_job_free(struct fbr_job *job);
