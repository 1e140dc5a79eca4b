/* detached.h - jobs of managers whose start command prints an id and leaves.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_COMMAND_DETACHED_H
#define FBR_COMMAND_DETACHED_H

#include "backends/command/settings.h"
#include "runtime/proc/backend.h"

struct fbr_detached;

/* Both are the caller's, and outlive it. */
int fbr_detached_open(struct fbr_detached **d, const struct fbr_backend_env *env,
                      const struct fbr_command_settings *settings, struct fbr_error *err);
/* Cancels what lives, and waits for the commands that do it, some seconds at most. */
void fbr_detached_close(struct fbr_detached *d);
/* `words` starts it, and finds its ticket in the file `ticket` (NULL: none), which is removed at
 * its end. While as many as the settings allow are being started it is held, and the words are
 * taken. */
int fbr_detached_start(struct fbr_detached *d, struct fbr_args *words, char *const *env,
                       const char *ticket, void *user, void **handle, struct fbr_error *err);
int fbr_detached_signal(struct fbr_detached *d, void *handle, int sig);
void fbr_detached_release(struct fbr_detached *d, void *handle);

#endif
