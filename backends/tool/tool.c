/* tool.c - runs the commands of a manager and collects their output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/tool/ticket_pipe.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/program/spawn.h"
#include "runtime/program/subprocess.h"

#define MAX_OUTPUT (16u << 20)

extern const struct fbr_backend_ops fbr_backend_local;
static const struct fbr_backend_ops *const local = &fbr_backend_local;

struct running {
    struct running *next, *prev;
    struct fbr_tools *tools;
    void *process;
    struct fbr_buf out, err;
    bool cut; /* more was printed to `out` than it has */
    struct fbr_timer limit;
    void (*done)(void *user, const struct fbr_tool_result *r);
    void *user;
};

struct fbr_tools {
    struct fbr_loop *loop;
    struct fbr_backend *processes;
    struct running *running;
};

static void free_running(struct running *t)
{
    fbr_timer_fini(&t->limit);
    fbr_buf_fini(&t->out);
    fbr_buf_fini(&t->err);
    free(t);
}

static void keep_output(struct running *t, const struct fbr_job_event *e)
{
    struct fbr_buf *b = e->stream == 2 ? &t->err : &t->out;

    if (!t->cut && b->len + e->len <= MAX_OUTPUT)
        fbr_put(b, e->data, e->len);
    else if (b == &t->out)
        t->cut = true;
}

static void on_tool(void *user, const struct fbr_job_event *e)
{
    struct running *t = user;
    struct fbr_tool_result r = {.code = t->cut ? FBR_EXIT_UNKNOWN : e->code};
    char nothing[1] = "";

    if (e->type == FBR_JOB_OUTPUT)
        keep_output(t, e);
    if (e->type != FBR_JOB_EXITED)
        return;
    r.out_len = t->out.len;
    fbr_put_u8(&t->out, 0);
    fbr_put_u8(&t->err, 0);
    r.out = (char *)t->out.data;
    r.err = (char *)t->err.data;
    if (t->out.failed || t->err.failed)
        r = (struct fbr_tool_result){.code = FBR_EXIT_UNKNOWN, .out = nothing, .err = nothing};
    DL_DELETE(t->tools->running, t);
    t->done(t->user, &r);
    local->release(t->tools->processes, t->process);
    free_running(t);
}

static void on_limit(void *arg)
{
    struct running *t = arg;

    local->signal(t->tools->processes, t->process, SIGKILL);
}

int fbr_tool_start(struct fbr_backend *processes, char *const *argv, char *const *env, int in,
                   void *user, void **process, struct fbr_error *err)
{
    const struct fbr_job_local how = {.in = in, .fd = -1};
    char file[PATH_MAX];
    const struct fbr_job job = {
        .name = argv[0], .run_uid = "", .file = file, .argv = argv, .env = env, .local = &how};
    int rc = fbr_tool_find(argv[0], file, sizeof(file), err);

    return rc < 0 ? rc : local->start(processes, &job, user, process, err);
}

static int launch(struct running *t, const struct fbr_tool *tool, struct fbr_error *err)
{
    int in = -1, rc;

    if (tool->input &&
        (in = fbr_ticket_pipe_send(t->tools->loop, tool->input, tool->input_len, false, err)) < 0)
        return in;
    rc = fbr_tool_start(t->tools->processes, tool->words->at, tool->env ? tool->env : fbr_environ(),
                        in, t, &t->process, err);
    fbr_fds_close(in);
    return rc;
}

int fbr_tool_run(struct fbr_tools *tools, const struct fbr_tool *tool, struct fbr_error *err)
{
    struct running *t = calloc(1, sizeof(*t));
    int rc;

    if (!t)
        return fbr_fail(err, -ENOMEM, "out of memory");
    t->tools = tools;
    t->done = tool->done;
    t->user = tool->user;
    rc = fbr_timer_init(&t->limit, tools->loop, on_limit, t);
    rc = rc < 0 ? fbr_fail(err, rc, "out of memory") : launch(t, tool, err);
    if (rc < 0) {
        free_running(t);
        return rc;
    }
    if (tool->limit_ms)
        fbr_timer_start(&t->limit, tool->limit_ms, 0);
    DL_APPEND(tools->running, t);
    return 0;
}

int fbr_tools_open(struct fbr_tools **out, const struct fbr_backend_env *env, struct fbr_error *err)
{
    struct fbr_tools *t = calloc(1, sizeof(*t));
    const struct fbr_backend_env inner = {env->loop, env->config, on_tool, NULL};
    int rc;

    if (!t)
        return fbr_fail(err, -ENOMEM, "out of memory");
    t->loop = env->loop;
    rc = local->open(&t->processes, &inner, err);
    if (rc < 0) {
        free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void fbr_tools_close(struct fbr_tools *t)
{
    struct running *r, *next;

    if (!t)
        return;
    DL_FOREACH_SAFE(t->running, r, next) {
        local->release(t->processes, r->process);
        free_running(r);
    }
    local->close(t->processes);
    free(t);
}

/* ---- Without a loop ---- */

int fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms, struct fbr_buf *out,
                  struct fbr_buf *said, int32_t *code, struct fbr_error *err)
{
    char file[PATH_MAX];
    const struct fbr_subprocess p = {.file = file,
                                     .argv = words->at,
                                     .env = env,
                                     .in = -1,
                                     .errors = -1,
                                     .said = said,
                                     .limit_ms = ms,
                                     .max = MAX_OUTPUT};
    struct fbr_buf *const to[] = {out, said};
    int rc = fbr_tool_find(words->at[0], file, sizeof(file), err);

    rc = rc < 0 ? rc : fbr_subprocess_run(&p, out, code, err);
    if (rc == -ETIMEDOUT)
        fbr_fail(err, rc, "%.100s did not end within %.1f s", words->at[0], ms / 1e3);
    else if (rc == -EFBIG)
        fbr_fail(err, rc, "%.100s printed more than %u MiB", words->at[0], MAX_OUTPUT >> 20);
    for (int i = 0; i < 2; i++) {
        if (to[i])
            fbr_put_u8(to[i], 0);
        if (to[i] && to[i]->failed)
            rc = fbr_fail(err, -ENOMEM, "out of memory");
    }
    return rc;
}

/* ---- Small things ---- */

int fbr_tool_find(const char *name, char *path, size_t size, struct fbr_error *err)
{
    int rc = fbr_spawn_find(name, path, size, err);

    if (rc == -ENAMETOOLONG)
        return rc;
    /* for a path, exec reports the error */
    if (rc < 0 && !strchr(name, '/'))
        return fbr_fail(err, -ENOENT, "there is no command '%s' in PATH", name);
    return 0;
}

int fbr_tool_own_program(char *path, size_t size, const char *mend, struct fbr_error *err)
{
    int rc = fbr_spawn_own_path(path, size, err);

    if (rc < 0)
        return rc;
    if (access(path, F_OK) < 0)
        return fbr_fail(err, -ENOENT,
                        "the file of this program is gone (%s): jobs on other hosts need it; %s",
                        path, mend);
    return 0;
}
