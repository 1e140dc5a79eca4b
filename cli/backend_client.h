/* backend_client.h - a backend for a command that asks it something: on a loop of its own, without
 * a runtime.
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

/* The configuration is loaded; blocks as long as the backend's own open() does. -ENOENT and a
 * sentence: there is none here, or not in this build. */
int cli_backend_open(struct cli_backend *b, const char *name, struct fbr_error *err);
/* The same with the settings that options were given for. */
int cli_backend_open_with(struct cli_backend *b, const char *name, const struct cli_args *args,
                          struct fbr_error *err);
void cli_backend_close(struct cli_backend *b);

/* The backend's operations, from our thread. -ENOTSUP: the backend does not have this one. */
int cli_backend_list(struct cli_backend *b, fbr_backend_found *found, void *user,
                     struct fbr_error *err);
int cli_backend_remove(struct cli_backend *b, const char *id, struct fbr_error *err);
/* Does nothing where there is no such operation. */
int cli_backend_sweep(struct cli_backend *b, int64_t before_ms, bool dry, fbr_backend_swept *swept,
                      void *user, struct fbr_error *err);
/* Returns at once; the reader is called on the backend's thread. */
int cli_backend_logs(struct cli_backend *b, const char *id, bool follow,
                     const struct fbr_backend_reader *reader, struct fbr_error *err);
int cli_backend_address(struct cli_backend *b, char *out, size_t size, struct fbr_error *err);
void cli_backend_check(struct cli_backend *b, fbr_backend_report *say, void *user);

/* Whether its engine would take a job; -ENOTSUP: it cannot tell. */
int cli_backend_would(struct cli_backend *b, const struct fbr_job *job, fbr_backend_report *say,
                      void *user);

/* A job of ours. event() is called on the loop's thread. */
struct cli_job {
    void (*event)(void *user, const struct fbr_job_event *event);
    void *user, *handle;
};
int cli_backend_start(struct cli_backend *b, const struct fbr_job *job, struct cli_job *j,
                      struct fbr_error *err);
int cli_backend_signal(struct cli_backend *b, const struct cli_job *j, int sig);
/* After its EXITED event. */
void cli_backend_release(struct cli_backend *b, const struct cli_job *j);

/* There is a sign that it is used here, a variable, key or file: a failure is worth telling
 * then. */
bool cli_backend_is_configured(const char *name);

#endif
