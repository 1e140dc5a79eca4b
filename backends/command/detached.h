/* detached.h - jobs of managers whose start command prints an id and exits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "backends/command/settings.h"
#include "runtime/proc/backend.h"

struct fbr_detached;

/* *env is copied; the caller owns `settings`, which must outlive *d. */
int fbr_detached_open(struct fbr_detached **d, const struct fbr_backend_env *env,
                      const struct fbr_command_settings *settings, struct fbr_error *err);
/* Cancels the jobs that live, and waits for the cancel commands, some seconds at most. */
void fbr_detached_close(struct fbr_detached *d);
/* Runs the command `words`, which submits the job. */
int fbr_detached_start(struct fbr_detached *d, char *const *words, char *const *env, void *user,
                       void **handle, struct fbr_error *err);
int fbr_detached_signal(void *handle, int sig); /* SIGTERM or SIGKILL */
void fbr_detached_release(void *handle);        /* not before the job's EXITED */
