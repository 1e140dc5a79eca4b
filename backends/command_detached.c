/* command_detached.c - jobs of managers whose start command prints an id and leaves; see command_detached.h.
 *
 *     STARTING    the start command runs; its output has the id
 *     LIVING      one status command for all of them, each poll_ms, while there are any
 *     ENDING      the manager said that it has ended; the logs command runs, if there is one, and tells its output
 *     ENDED       told
 *
 * Commands are jobs of the local backend, so nothing here blocks. A status command that fails says nothing about any
 * job; one that succeeds, and leaves a job out three times, says that nobody knows about it any more.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/command_detached.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/buf.h"
#include "runtime/log.h"
#include "runtime/spawn.h"

#define LAST_WORD "([^[:space:]]+)[[:space:]]*$"
#define MAX_OUTPUT (1u << 20)
#define MAX_ID 128
#define FORGOTTEN 3
#define CLOSE_MS 5000
#define CANNOT_START 125

extern char **environ;
extern const struct fbr_backend_ops fbr_backend_local;
static const struct fbr_backend_ops *const local = &fbr_backend_local;

enum stage { STARTING, LIVING, ENDING, ENDED };

/* A command that runs. */
struct tool {
    struct tool *next, *prev;
    struct fbr_detached *d;
    struct detached_job *job; /* NULL: of all of them, or the job is gone */
    void *process;
    struct fbr_buf out, err;
    void (*done)(struct tool *t, int code);
};

struct detached_job {
    struct detached_job *next, *prev;
    struct fbr_detached *d;
    void *user;
    enum stage stage;
    char id[MAX_ID], ticket[PATH_MAX];
    bool cancel, released; /* it was signalled before it had an id */
    int missing;
    int32_t code;
    char why[256];
};

struct fbr_detached {
    struct fbr_backend_env env;
    const struct fbr_command_settings *settings;
    struct fbr_backend *processes;
    struct detached_job *jobs;
    struct tool *tools;
    struct fbr_timer tick;
    regex_t id;
    bool looking; /* a status command runs */
};

/* ---- Commands ---- */

static void free_tool(struct tool *t)
{
    fbr_buf_fini(&t->out);
    fbr_buf_fini(&t->err);
    free(t);
}

static void on_tool(void *user, const struct fbr_job_event *e)
{
    struct tool *t = user;
    struct fbr_buf *b = e->stream == 2 ? &t->err : &t->out;

    if (e->type == FBR_JOB_OUTPUT && b->len + e->len <= MAX_OUTPUT)
        fbr_put(b, e->data, e->len);
    if (e->type != FBR_JOB_EXITED)
        return;
    fbr_put_u8(&t->out, 0);
    fbr_put_u8(&t->err, 0);
    DL_DELETE(t->d->tools, t);
    if (!t->out.failed && !t->err.failed)
        t->done(t, e->code);
    else
        t->done(t, FBR_EXIT_UNKNOWN);
    local->release(t->d->processes, t->process);
    free_tool(t);
}

static int run_words(struct fbr_detached *d, struct detached_job *job, const struct fbr_words *w,
                     char *const *env, void (*done)(struct tool *t, int code),
                     struct fbr_error *err)
{
    struct tool *t = calloc(1, sizeof(*t));
    char file[PATH_MAX];
    int rc = t ? fbr_command_find(w->at[0], file, sizeof(file), err)
               : fbr_fail(err, -ENOMEM, "out of memory");

    if (rc == 0) {
        const struct fbr_job run = {
            .name = w->at[0], .run_uid = "", .file = file, .argv = w->at, .env = env};

        *t = (struct tool){.d = d, .job = job, .done = done};
        rc = local->start(d->processes, &run, t, &t->process, err);
    }
    if (rc < 0) {
        free(t);
        return rc;
    }
    DL_APPEND(d->tools, t);
    return 0;
}

static int run_template(struct fbr_detached *d, struct detached_job *job,
                        const struct fbr_words *template, const char *const *ids,
                        void (*done)(struct tool *t, int code))
{
    const struct fbr_fill f = {.id = ids[0], .ids = ids};
    struct fbr_error err = {0, ""};
    struct fbr_words w = {0};
    int rc = fbr_template_fill(template, &f, &w, &err);

    if (rc == 0)
        rc = run_words(d, job, &w, environ, done, &err);
    fbr_words_fini(&w);
    if (rc < 0)
        fbr_warn("command backend: %s", err.text);
    return rc;
}

/* The last line of what a command said on standard error. */
static void last_line(const struct tool *t, char *out, size_t size)
{
    const char *text = (const char *)t->err.data, *at = text ? text + strlen(text) : "";

    while (text && at > text && at[-1] == '\n')
        at--;
    snprintf(out, size, "%s", "");
    if (text && at > text) {
        const char *end = at;

        while (at > text && at[-1] != '\n')
            at--;
        snprintf(out, size, "%.*s", (int)(end - at), at);
    }
}

/* ---- The life of a job ---- */

static void tell(struct detached_job *j, const struct fbr_job_event *e)
{
    struct fbr_job_event copy = *e;

    copy.text = copy.text ? copy.text : "";
    if (!j->released)
        j->d->env.event(j->user, &copy);
}

static void tell_end(struct detached_job *j)
{
    if (j->ticket[0])
        unlink(j->ticket);
    DL_DELETE(j->d->jobs, j);
    tell(j, &(struct fbr_job_event){.type = FBR_JOB_EXITED, .code = j->code, .text = j->why});
    j->stage = ENDED;
    if (j->released)
        free(j);
}

static void on_logs(struct tool *t, int code)
{
    struct detached_job *j = t->job;

    (void)code;
    if (!j)
        return;
    if (t->out.len > 1)
        tell(j,
             &(struct fbr_job_event){
                 .type = FBR_JOB_OUTPUT, .stream = 1, .data = t->out.data, .len = t->out.len - 1});
    tell_end(j);
}

static void job_ended(struct detached_job *j, int32_t code, const char *why)
{
    const char *const ids[] = {j->id, NULL};

    if (j->stage >= ENDING)
        return;
    j->stage = ENDING;
    j->code = code;
    snprintf(j->why, sizeof(j->why), "%s", why);
    if (!j->id[0] || j->d->settings->logs.n == 0 ||
        run_template(j->d, j, &j->d->settings->logs, ids, on_logs) < 0)
        tell_end(j);
}

static void on_cancelled(struct tool *t, int code)
{
    char line[200];

    last_line(t, line, sizeof(line));
    if (code)
        fbr_info("command backend: cancel ended with code %d: %s", code, line);
}

static void cancel(struct detached_job *j)
{
    const char *const ids[] = {j->id, NULL};

    run_template(j->d, NULL, &j->d->settings->cancel, ids, on_cancelled);
}

/* The group of the pattern in what the start command said. */
static bool find_id(struct fbr_detached *d, const char *text, char id[MAX_ID])
{
    regmatch_t m[2];

    if (regexec(&d->id, text, 2, m, 0) != 0 || m[1].rm_so < 0 || m[1].rm_eo - m[1].rm_so >= MAX_ID)
        return false;
    snprintf(id, MAX_ID, "%.*s", (int)(m[1].rm_eo - m[1].rm_so), text + m[1].rm_so);
    return id[0] && id[0] != '-';
}

static void on_submitted(struct tool *t, int code)
{
    struct detached_job *j = t->job;
    char line[160], why[256];

    if (!j)
        return;
    last_line(t, line, sizeof(line));
    if (code != 0) {
        snprintf(why, sizeof(why), "the start command ended with code %d: %s", code, line);
        job_ended(j, CANNOT_START, why);
        return;
    }
    if (!find_id(j->d, (const char *)t->out.data, j->id)) {
        snprintf(why, sizeof(why), "the start command printed no id: '%.100s'",
                 (const char *)t->out.data);
        job_ended(j, CANNOT_START, why);
        return;
    }
    j->stage = LIVING;
    tell(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->id});
    if (j->cancel)
        cancel(j);
}

/* ---- States ---- */

/* ID WORD [CODE] [TEXT] */
static void on_line(struct fbr_detached *d, char *line)
{
    char *rest = NULL, *id = strtok_r(line, " \t|", &rest), *word = strtok_r(NULL, " \t|", &rest);
    struct detached_job *j, *next;

    DL_FOREACH_SAFE(d->jobs, j, next) {
        int state = word ? fbr_command_state(d->settings, word) : -ENOENT;
        char *end = NULL;
        long code = rest ? strtol(rest, &end, 10) : 0;
        bool has_code = rest && end != rest;

        if (j->stage != LIVING || strcmp(j->id, id) != 0)
            continue;
        j->missing = 0;
        if (state < 0)
            fbr_debug(
                "command backend: job %s has the state '%s', of which no key says what it means",
                id, word ? word : "");
        else if (state == JOB_PENDING)
            tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                            .text = rest && rest[0] ? rest : word});
        else if (state == JOB_DONE)
            job_ended(j, has_code ? (int32_t)(code & 255) : 0, "");
        else if (state == JOB_FAILED)
            job_ended(j, has_code && code & 255 ? (int32_t)(code & 255) : 1, "");
        else if (state == JOB_KILLED)
            job_ended(j, -SIGKILL, "");
        else if (state == JOB_LOST)
            job_ended(j, FBR_EXIT_UNKNOWN, "the manager lost it");
        return;
    }
}

static void on_status(struct tool *t, int code)
{
    struct fbr_detached *d = t->d;
    char *rest = NULL, line[160];
    struct detached_job *j, *next;

    d->looking = false;
    if (code != 0) {
        last_line(t, line, sizeof(line));
        fbr_debug("command backend: status ended with code %d: %s", code, line);
        return;
    }
    DL_FOREACH(d->jobs, j)
        j->missing += j->stage == LIVING;
    for (char *at = strtok_r((char *)t->out.data, "\n", &rest); at;
         at = strtok_r(NULL, "\n", &rest))
        if (at[strspn(at, " \t|")])
            on_line(d, at);
    DL_FOREACH_SAFE(d->jobs, j, next)
        if (j->missing >= FORGOTTEN)
            job_ended(j, FBR_EXIT_UNKNOWN, "the manager does not know it any more");
}

static void on_tick(void *arg)
{
    struct fbr_detached *d = arg;
    struct detached_job *j;
    const char **ids;
    size_t n = 0;

    DL_FOREACH(d->jobs, j)
        n += j->stage == LIVING;
    if (d->looking || n == 0)
        return;
    ids = calloc(n + 1, sizeof(*ids));
    n = 0;
    if (ids)
        DL_FOREACH(d->jobs, j)
            if (j->stage == LIVING)
                ids[n++] = j->id;
    d->looking = ids && run_template(d, NULL, &d->settings->status, ids, on_status) == 0;
    free(ids);
}

/* ---- What the backend calls ---- */

int fbr_detached_open(struct fbr_detached **out, const struct fbr_backend_env *env,
                      const struct fbr_command_settings *settings, struct fbr_error *err)
{
    struct fbr_detached *d = calloc(1, sizeof(*d));
    const struct fbr_backend_env inner = {env->loop, env->config, on_tool};
    const char *pattern = settings->id ? settings->id : LAST_WORD;
    int rc;

    if (!d)
        return fbr_fail(err, -ENOMEM, "out of memory");
    d->env = *env;
    d->settings = settings;
    if (regcomp(&d->id, pattern, REG_EXTENDED) != 0 || d->id.re_nsub < 1) {
        free(d);
        return fbr_fail(err, -EINVAL,
                        "%s: id = %.100s: not an extended regular expression with a group in ()",
                        settings->origin, pattern);
    }
    rc = local->open(&d->processes, &inner, err);
    if (rc == 0 && fbr_timer_init(&d->tick, env->loop, on_tick, d) < 0) {
        local->close(d->processes);
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    }
    if (rc < 0) {
        regfree(&d->id);
        free(d);
        return rc;
    }
    fbr_timer_start(&d->tick, settings->poll_ms, settings->poll_ms);
    *out = d;
    return 0;
}

/* At the end there is no loop to run commands on; their end is waited for here. */
static void cancel_now(struct fbr_detached *d, const char *id, struct pollfd *ended, pid_t *pid)
{
    const char *const ids[] = {id, NULL};
    const struct fbr_fill f = {.id = id, .ids = ids};
    struct fbr_words w = {0};
    char file[PATH_MAX];
    struct fbr_spawn s = {.env = environ, .file = file, .fds = {-1, -1, -1}, .nfds = 3};

    *ended = (struct pollfd){.fd = -1, .events = POLLIN};
    if (fbr_template_fill(&d->settings->cancel, &f, &w, NULL) == 0 &&
        fbr_command_find(w.at[0], file, sizeof(file), NULL) == 0) {
        s.argv = w.at;
        if (fbr_spawn(&s, pid, &ended->fd, NULL) < 0)
            ended->fd = -1;
    }
    fbr_words_fini(&w);
}

static void cancel_all(struct fbr_detached *d)
{
    uint64_t until = fbr_now_ms() + CLOSE_MS, now;
    struct detached_job *j;

    DL_FOREACH(d->jobs, j) {
        struct pollfd ended;
        pid_t pid = 0;

        now = fbr_now_ms();
        if (j->stage != LIVING || now >= until)
            continue;
        cancel_now(d, j->id, &ended, &pid);
        if (ended.fd < 0)
            continue;
        if (poll(&ended, 1, (int)(until - now)) != 1)
            kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(ended.fd);
    }
}

void fbr_detached_close(struct fbr_detached *d)
{
    struct detached_job *j, *next;
    struct tool *t, *next_tool;

    if (!d)
        return;
    cancel_all(d);
    DL_FOREACH_SAFE(d->tools, t, next_tool) {
        local->release(d->processes, t->process);
        free_tool(t);
    }
    local->close(d->processes);
    DL_FOREACH_SAFE(d->jobs, j, next) {
        if (j->ticket[0])
            unlink(j->ticket);
        free(j);
    }
    fbr_timer_fini(&d->tick);
    regfree(&d->id);
    free(d);
}

int fbr_detached_start(struct fbr_detached *d, const struct fbr_words *words, char *const *env,
                       const char *ticket, void *user, void **handle, struct fbr_error *err)
{
    struct detached_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->d = d;
    j->user = user;
    snprintf(j->ticket, sizeof(j->ticket), "%s", ticket ? ticket : "");
    rc = run_words(d, j, words, env, on_submitted, err);
    if (rc < 0) {
        free(j);
        return rc;
    }
    DL_APPEND(d->jobs, j);
    *handle = j;
    return 0;
}

int fbr_detached_signal(struct fbr_detached *d, void *handle, int sig)
{
    struct detached_job *j = handle;

    (void)d;
    if (sig != SIGTERM && sig != SIGKILL)
        return -ENOTSUP;
    if (j->stage == STARTING)
        j->cancel = true;
    else if (j->stage == LIVING)
        cancel(j);
    return 0;
}

void fbr_detached_release(struct fbr_detached *d, void *handle)
{
    struct detached_job *j = handle;
    struct tool *t;

    j->released = true;
    if (j->stage != ENDED)
        return; /* within its last event, or before it: tell_end() frees it */
    DL_FOREACH(d->tools, t)
        if (t->job == j)
            t->job = NULL;
    free(j);
}
