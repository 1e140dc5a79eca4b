/* backend_client.c - opens a backend for a command, and runs its operations.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/backend_client.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The operations that run on the loop's thread. */
enum op {
    OP_OPEN,
    OP_CLOSE,
    OP_LIST,
    OP_REMOVE,
    OP_SWEEP,
    OP_LOGS,
    OP_ADDRESS,
    OP_CHECK,
    OP_WOULD,
    OP_START,
    OP_SIGNAL,
    OP_RELEASE
};

struct asking {
    enum op op;
    struct cli_backend *b;
    fbr_backend_found *found;
    fbr_backend_report *say;
    void *user;
    const char *id;
    const struct fbr_backend_reader *reader;
    bool follow;
    int64_t before_ms;
    bool dry;
    fbr_backend_swept *swept;
    char *out;
    size_t size;
    const struct fbr_job *job;
    struct cli_job *j;
    void *handle;
    int sig;
    struct fbr_error *err;
};

static void on_event(void *job_user, const struct fbr_job_event *event)
{
    const struct cli_job *j = job_user;

    j->event(j->user, event);
}

static int run_op(void *arg)
{
    struct asking *a = arg;
    const struct fbr_backend_ops *ops = a->b->ops;
    const struct fbr_backend_housekeeping *h = ops->housekeeping;
    const struct fbr_backend_env env = {a->b->loop, a->b->config, on_event, NULL};
    struct fbr_backend *b = a->b->backend;

    switch (a->op) {
    case OP_OPEN:
        return ops->open(&a->b->backend, &env, a->err);
    case OP_CLOSE:
        ops->close(b);
        break;
    case OP_LIST:
        return h->list(b, a->found, a->user, a->err);
    case OP_REMOVE:
        return h->remove(b, a->id, a->err);
    case OP_SWEEP:
        return h->sweep(b, a->before_ms, a->dry, a->swept, a->user, a->err);
    case OP_LOGS:
        return h->logs(b, a->id, a->follow, a->reader, a->err);
    case OP_ADDRESS:
        return ops->address(b, a->out, a->size, a->err);
    case OP_CHECK:
        ops->check(b, a->say, a->user);
        break;
    case OP_WOULD:
        return ops->would(b, a->job, a->say, a->user);
    case OP_START:
        return ops->start(b, a->job, a->j, &a->j->handle, a->err);
    case OP_SIGNAL:
        return ops->signal(b, a->handle, a->sig);
    case OP_RELEASE:
        ops->release(b, a->handle);
        break;
    }
    return 0;
}

static int set_one(void *user, const char *key, const char *value, struct fbr_error *err)
{
    struct cli_backend *b = user;

    return fbr_config_set(b->config, key, value, "option", err);
}

int cli_backend_open(struct cli_backend *b, const char *name, struct fbr_error *err)
{
    return cli_backend_open_with(b, name, NULL, err);
}

int cli_backend_open_with(struct cli_backend *b, const char *name, const struct cli_args *args,
                          struct fbr_error *err)
{
    struct asking a = {.op = OP_OPEN, .b = b, .err = err};
    int rc;

    memset(b, 0, sizeof(*b));
    if ((rc = fbr_config_load_again(&b->config, err)) < 0 ||
        (args && (rc = cli_args_settings(args, set_one, b, err)) < 0))
        goto fail;
    b->ops = fbr_backend_find(name, err);
    rc = b->ops ? fbr_loop_open(&b->loop, err) : -ENOENT;
    if (rc < 0 || (rc = fbr_loop_call(b->loop, run_op, &a)) < 0)
        goto fail;
    return 0;
fail:
    cli_backend_close(b);
    return rc;
}

void cli_backend_close(struct cli_backend *b)
{
    struct asking a = {.op = OP_CLOSE, .b = b};

    if (b->backend)
        fbr_loop_call(b->loop, run_op, &a);
    if (b->loop)
        fbr_loop_close(b->loop);
    fbr_config_free(b->config);
    memset(b, 0, sizeof(*b));
}

int cli_backend_list(struct cli_backend *b, fbr_backend_found *found, void *user,
                     struct fbr_error *err)
{
    struct asking a = {.op = OP_LIST, .b = b, .found = found, .user = user, .err = err};

    return b->ops->housekeeping
               ? fbr_loop_call(b->loop, run_op, &a)
               : fbr_fail(err, -ENOTSUP, "backend %s: jobs end with their master", b->ops->name);
}

int cli_backend_remove(struct cli_backend *b, const char *id, struct fbr_error *err)
{
    struct asking a = {.op = OP_REMOVE, .b = b, .id = id, .err = err};

    return b->ops->housekeeping
               ? fbr_loop_call(b->loop, run_op, &a)
               : fbr_fail(err, -ENOTSUP, "backend %s: jobs end with their master", b->ops->name);
}

int cli_backend_sweep(struct cli_backend *b, int64_t before_ms, bool dry, fbr_backend_swept *swept,
                      void *user, struct fbr_error *err)
{
    const struct fbr_backend_housekeeping *h = b->ops->housekeeping;
    struct asking a = {.op = OP_SWEEP,
                       .b = b,
                       .before_ms = before_ms,
                       .dry = dry,
                       .swept = swept,
                       .user = user,
                       .err = err};

    return h && h->sweep ? fbr_loop_call(b->loop, run_op, &a) : 0;
}

int cli_backend_logs(struct cli_backend *b, const char *id, bool follow,
                     const struct fbr_backend_reader *reader, struct fbr_error *err)
{
    const struct fbr_backend_housekeeping *h = b->ops->housekeeping;
    struct asking a = {
        .op = OP_LOGS, .b = b, .id = id, .reader = reader, .follow = follow, .err = err};

    return h && h->logs ? fbr_loop_call(b->loop, run_op, &a)
                        : fbr_fail(err, -ENOTSUP, "backend %s does not keep the output of jobs",
                                   b->ops->name);
}

int cli_backend_address(struct cli_backend *b, char *out, size_t size, struct fbr_error *err)
{
    struct asking a = {.op = OP_ADDRESS, .b = b, .out = out, .size = size, .err = err};

    return b->ops->address
               ? fbr_loop_call(b->loop, run_op, &a)
               : fbr_fail(err, -ENOTSUP, "backend %s: jobs are on this host", b->ops->name);
}

void cli_backend_check(struct cli_backend *b, fbr_backend_report *say, void *user)
{
    struct asking a = {.op = OP_CHECK, .b = b, .say = say, .user = user};

    if (b->ops->check)
        fbr_loop_call(b->loop, run_op, &a);
}

int cli_backend_would(struct cli_backend *b, const struct fbr_job *job, fbr_backend_report *say,
                      void *user)
{
    struct asking a = {.op = OP_WOULD, .b = b, .job = job, .say = say, .user = user};

    return b->ops->would ? fbr_loop_call(b->loop, run_op, &a) : -ENOTSUP;
}

int cli_backend_start(struct cli_backend *b, const struct fbr_job *job, struct cli_job *j,
                      struct fbr_error *err)
{
    struct asking a = {.op = OP_START, .b = b, .job = job, .j = j, .err = err};

    return fbr_loop_call(b->loop, run_op, &a);
}

int cli_backend_signal(struct cli_backend *b, const struct cli_job *j, int sig)
{
    struct asking a = {.op = OP_SIGNAL, .b = b, .handle = j->handle, .sig = sig};

    return fbr_loop_call(b->loop, run_op, &a);
}

void cli_backend_release(struct cli_backend *b, const struct cli_job *j)
{
    struct asking a = {.op = OP_RELEASE, .b = b, .handle = j->handle};

    fbr_loop_call(b->loop, run_op, &a);
}

static bool is_set(const char *variable)
{
    const char *value = variable ? getenv(variable) : NULL;

    return value && *value;
}

/* "~" at the beginning means the home directory. */
static bool is_there(const char *path)
{
    const char *home = getenv("HOME");
    char whole[PATH_MAX];

    if (!path)
        return false;
    snprintf(whole, sizeof(whole), "%s%s", path[0] == '~' && home ? home : "",
             path + (path[0] == '~'));
    return access(whole, R_OK) == 0;
}

bool cli_backend_is_configured(const char *name)
{
    const struct fbr_backend_about *about = fbr_backend_about(name);
    struct fbr_config *c;
    bool yes;

    if (fbr_config_load_again(&c, NULL) < 0)
        return false;
    yes = strcmp(fbr_config_str(c, "backend"), name) == 0;
    for (size_t i = 0; about && i < about->nsigns && !yes; i++) {
        const struct fbr_backend_sign *sign = &about->signs[i];

        yes = is_set(sign->variable) || is_there(sign->file) ||
              (sign->key && *fbr_config_str(c, sign->key));
    }
    fbr_config_free(c);
    return yes;
}
