/* kept_job.h - a copy of a job, for a backend that starts it later: the caller's strings are valid
 * during start() only (backend.h).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LOCAL_KEPT_JOB_H
#define FBR_LOCAL_KEPT_JOB_H

#include "runtime/proc/backend.h"

/* A job with its own name, file, argv, env, workdir and ticket, and nothing of what only a local
 * process is given (local, link, control). For fbr_kept_job_free(). NULL: out of memory. */
struct fbr_job *fbr_kept_job(const struct fbr_job *job);
void fbr_kept_job_free(struct fbr_job *job);

#endif
