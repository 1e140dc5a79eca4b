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

#include "runtime/proc/context.h"

struct call {
    struct cli_backend *b;
    const struct cli_ask *ask;
    struct fbr_error *err;
};

static void on_event(void *job_user, const struct fbr_job_event *event)
{
    const struct cli_job *j = job_user;

    j->event(j->user, event);
}

/* ---- On the loop's thread ---- */

static int run_open(void *arg)
{
    const struct call *c = arg;
    const struct fbr_backend_env env = {c->b->loop, c->b->config, on_event, NULL};

    return c->b->ops->open(&c->b->backend, &env, c->err);
}

static int run_close(void *arg)
{
    const struct cli_backend *b = arg;

    b->ops->close(b->backend);
    return 0;
}

static int run_ask(void *arg)
{
    const struct call *c = arg;
    const struct cli_ask *a = c->ask;
    const struct fbr_backend_ops *ops = c->b->ops;
    const struct fbr_backend_housekeeping *h = ops->housekeeping;
    struct fbr_backend *b = c->b->backend;
    const char *lacks = "jobs end with their master";

    switch (a->op) {
    case BACKEND_LIST:
        if (h)
            return h->list(b, a->found, a->user, c->err);
        break;
    case BACKEND_REMOVE:
        if (h)
            return h->remove(b, a->id, c->err);
        break;
    case BACKEND_SWEEP:
        return h && h->sweep ? h->sweep(b, a->before_ms, a->dry, a->swept, a->user, c->err) : 0;
    case BACKEND_LOGS:
        if (h && h->logs)
            return h->logs(b, a->id, a->follow, a->reader, c->err);
        lacks = "the output of jobs is not kept";
        break;
    case BACKEND_ADDRESS:
        if (ops->address)
            return ops->address(b, a->out, c->err);
        lacks = "jobs are on this host";
        break;
    case BACKEND_CHECK:
        if (ops->check)
            ops->check(b, a->to);
        return 0;
    case BACKEND_WOULD:
        return ops->would ? ops->would(b, a->job, a->to) : -ENOTSUP;
    case BACKEND_START:
        return ops->start(b, a->job, a->mine, &a->mine->handle, c->err);
    case BACKEND_SIGNAL:
        return ops->signal(b, a->mine->handle, a->sig);
    case BACKEND_RELEASE:
        ops->release(b, a->mine->handle);
        return 0;
    }
    return fbr_fail(c->err, -ENOTSUP, "backend %s: %s", ops->name, lacks);
}

/* ---- On ours ---- */

int cli_backend_ask(struct cli_backend *b, const struct cli_ask *ask, struct fbr_error *err)
{
    struct call c = {b, ask, err};

    return fbr_loop_call(b->loop, run_ask, &c);
}

int cli_backend_open(struct cli_backend *b, const char *name, struct fbr_error *err)
{
    const struct fbr_runtime *rt = fbr_rt_any();
    struct call c = {b, NULL, err};
    int rc;

    memset(b, 0, sizeof(*b));
    if (!rt)
        return fbr_fail(err, -EINVAL, "%s", fiber_last_error());
    b->config = rt->config;
    b->ops = fbr_backend_find(name, err);
    rc = b->ops ? fbr_loop_open(&b->loop, err) : -ENOENT;
    if (rc < 0 || (rc = fbr_loop_call(b->loop, run_open, &c)) < 0)
        cli_backend_close(b);
    return rc;
}

void cli_backend_close(struct cli_backend *b)
{
    if (b->backend)
        fbr_loop_call(b->loop, run_close, b);
    if (b->loop)
        fbr_loop_close(b->loop);
    memset(b, 0, sizeof(*b));
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
    const struct fbr_runtime *rt = fbr_rt_any();
    bool yes = rt && strcmp(fbr_config_str(rt->config, "backend"), name) == 0;

    for (size_t i = 0; rt && about && i < about->nsigns && !yes; i++) {
        const struct fbr_backend_sign *sign = &about->signs[i];

        yes = is_set(sign->variable) || is_there(sign->file) ||
              (sign->key && *fbr_config_str(rt->config, sign->key));
    }
    return yes;
}
