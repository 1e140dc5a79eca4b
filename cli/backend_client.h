/* backend_client.h - a backend for a command: on a loop of its own, without a runtime.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include <stdbool.h>

#include "cli/option.h"
#include "runtime/proc/backend.h"

struct cli_backend {
    const struct fbr_backend_ops *ops;
    struct fbr_backend *backend;
    struct fbr_loop *loop;
    struct fbr_config *config;
};

/* Opens a backend with the loaded configuration; blocks as long as the backend's own open() does.
 * -ENOENT and a message: the backend is not available here, or not in this build. */
int cli_backend_open(struct cli_backend *b, const char *name, struct fbr_error *err);
/* The same with the settings of the given options. */
int cli_backend_open_with(struct cli_backend *b, const char *name, const struct cli_args *args,
                          struct fbr_error *err);
void cli_backend_close(struct cli_backend *b);

/* The backend's operations, called from our thread. -ENOTSUP: the backend does not have the
 * operation. */
int cli_backend_list(struct cli_backend *b, fbr_backend_found *found, void *user,
                     struct fbr_error *err);
int cli_backend_remove(struct cli_backend *b, const char *id, struct fbr_error *err);
/* Does nothing if the backend has no such operation. */
int cli_backend_sweep(struct cli_backend *b, int64_t before_ms, bool dry, fbr_backend_swept *swept,
                      void *user, struct fbr_error *err);
/* Returns at once; the reader's functions run on the backend's thread. */
int cli_backend_logs(struct cli_backend *b, const char *id, bool follow,
                     const struct fbr_backend_reader *reader, struct fbr_error *err);
int cli_backend_address(struct cli_backend *b, char *out, size_t size, struct fbr_error *err);
void cli_backend_check(struct cli_backend *b, fbr_backend_report *say, void *user);

/* Asks whether the engine would accept a job; -ENOTSUP: the backend cannot find out. */
int cli_backend_would(struct cli_backend *b, const struct fbr_job *job, fbr_backend_report *say,
                      void *user);

/* A job of this command. event() runs on the loop's thread. */
struct cli_job {
    void (*event)(void *user, const struct fbr_job_event *event);
    void *user, *handle;
};
int cli_backend_start(struct cli_backend *b, const struct fbr_job *job, struct cli_job *j,
                      struct fbr_error *err);
int cli_backend_signal(struct cli_backend *b, const struct cli_job *j, int sig);
/* Call after its EXITED event. */
void cli_backend_release(struct cli_backend *b, const struct cli_job *j);

/* Whether a variable, key or file shows that the backend is used here, so that a failure is worth a
 * report. */
bool cli_backend_is_configured(const char *name);

#endif
