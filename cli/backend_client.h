/* backend_client.h - a backend for a command: on a loop of its own, without a runtime.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/option.h"
#include "runtime/proc/backend.h"

struct cli_backend {
    const struct fbr_backend_ops *ops;
    struct fbr_backend *backend;
    struct fbr_loop *loop;
    const struct fbr_config *config; /* of this process */
};

/* Opens a backend; blocks as long as the backend's own open() does. -ENOENT and a message: the
 * backend is not available here, or not in this build. -EINVAL: the configuration is invalid. */
int cli_backend_open(struct cli_backend *b, const char *name, struct fbr_error *err);
void cli_backend_close(struct cli_backend *b);

/* A job of this command. event() runs on the loop's thread. */
struct cli_job {
    void (*event)(void *user, const struct fbr_job_event *event);
    void *user, *handle;
};

/* One of the backend's operations (runtime/proc/backend.h), with the arguments that it takes. */
struct cli_ask {
    enum {
        BACKEND_LIST,   /* found, user */
        BACKEND_REMOVE, /* id */
        BACKEND_SWEEP,  /* before_ms, dry, swept, user; nothing if the backend does not have it */
        /* id, follow, reader, whose functions run on the loop's thread; not awaited */
        BACKEND_LOGS,
        BACKEND_ADDRESS, /* out */
        BACKEND_CHECK,   /* to; nothing if the backend does not have it */
        BACKEND_WOULD,   /* job, to */
        BACKEND_START,   /* job, mine */
        BACKEND_SIGNAL,  /* mine, sig */
        BACKEND_RELEASE, /* mine, after its EXITED event */
    } op;
    fbr_backend_found *found;
    fbr_backend_swept *swept;
    const struct fbr_findings *to;
    void *user;
    const char *id;
    const struct fbr_backend_reader *reader;
    int64_t before_ms;
    bool dry, follow;
    char *out; /* of FBR_HOST_ADDRESS_MAX bytes */
    const struct fbr_job *job;
    struct cli_job *mine;
    int sig;
};

/* Runs it on the loop's thread, and waits. -ENOTSUP: the backend does not have the operation. */
int cli_backend_ask(struct cli_backend *b, const struct cli_ask *ask, struct fbr_error *err);

/* Whether a variable, key or file shows that the backend is used here, so that a failure is worth a
 * report. */
bool cli_backend_is_configured(const char *name);
