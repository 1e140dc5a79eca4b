/* detached.c - jobs of managers whose start command prints an id and exits.
 *
 *     STARTING    the start command runs; its output has the id
 *     LIVING      one status command for all such jobs, each poll_ms
 *     ENDING      the manager reported the end; the logs command runs, if there is one, and its
 *                 output is reported
 *
 * tool.c runs the commands, so nothing here blocks. A status command that fails gives no
 * information about any job. Three successful status commands that leave a job out mean that the
 * manager no longer knows the job. A cancel command that fails, as when the manager is away, is
 * repeated as long as a status command lists the job.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/command/detached.h"

#include <errno.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "backends/tool/tool.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"

#define LAST_WORD "([^[:space:]]+)[[:space:]]*$"
#define MAX_ID 128
#define FORGOTTEN 3
#define CLOSE_MS 5000
#define LIMIT_MS 60000  /* a command that hangs would keep all ends from being known */
#define START_MS 600000 /* a start command that hangs would keep other jobs from starting */
#define CANNOT_START 125

enum detached_stage { STARTING, LIVING, ENDING };

struct detached_job {
    struct detached_job *next, *prev;
    struct fbr_detached *d;
    void *user; /* NULL: released, its end was reported */
    enum detached_stage stage;
    char id[MAX_ID];
    bool waits;          /* the last word about it was that it is pending */
    int cancel;          /* the signal that arrived before the job had an id */
    unsigned cancelling; /* cancel commands that run, which refer to the job */
    bool uncancelled;    /* the last one has failed: it is repeated if the job lives on */
    int missing;
    int32_t code;
    char why[256];
};

struct fbr_detached {
    struct fbr_backend_env env;
    const struct fbr_command_settings *settings;
    struct fbr_tools *tools;
    struct detached_job *jobs, *ended; /* `ended`: not released, or a cancel command still runs */
    struct fbr_timer tick;
    regex_t id;
    bool looking; /* a status command runs */
};

/* ---- Commands ---- */

static int run_template(struct fbr_detached *d, const struct fbr_args *template,
                        const char *const *ids,
                        void (*done)(void *user, const struct fbr_tool_result *r), void *user)
{
    const struct fbr_fill f = {.id = ids[0], .ids = ids};
    struct fbr_error err = {0, ""};
    struct fbr_args w = {0};
    const struct fbr_tool tool = {.words = &w, .limit_ms = LIMIT_MS, .done = done, .user = user};
    int rc;

    if ((rc = fbr_template_fill(template, &f, &w, &err)) < 0 ||
        (rc = fbr_tool_run(d->tools, &tool, &err)) < 0)
        fbr_warn("command backend: %s", err.text);
    fbr_args_fini(&w);
    return rc;
}

/* ---- The life of a job ---- */

static void notify(struct detached_job *j, const struct fbr_job_event *e)
{
    j->d->env.event(j->user, e);
}

/* The event's callback may release the job. */
static void notify_end(struct detached_job *j)
{
    DL_DELETE(j->d->jobs, j);
    DL_APPEND(j->d->ended, j);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_EXITED, .code = j->code, .text = j->why});
}

static void on_logs(void *user, const struct fbr_tool_result *r)
{
    struct detached_job *j = user;

    if (r->out_len)
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_OUTPUT,
                                          .stream = 1,
                                          .text = "",
                                          .data = r->out,
                                          .len = r->out_len});
    notify_end(j);
}

static void job_ended(struct detached_job *j, int32_t code, const char *why)
{
    const char *const ids[] = {j->id, NULL};

    if (j->stage == ENDING)
        return;
    j->stage = ENDING;
    j->code = code;
    snprintf(j->why, sizeof(j->why), "%s", why);
    if (!j->id[0] || j->d->settings->logs.n == 0 ||
        run_template(j->d, &j->d->settings->logs, ids, on_logs, j) < 0)
        notify_end(j);
}

static void maybe_free(struct detached_job *j)
{
    if (j->user || j->cancelling)
        return;
    DL_DELETE(j->d->ended, j);
    free(j);
}

static void on_cancelled(void *user, const struct fbr_tool_result *r)
{
    struct detached_job *j = user;
    char line[200];

    fbr_printable_last_line(r->err, line, sizeof(line));
    if (r->code)
        fbr_info("command backend: cancel ended with code %d: %s", r->code, line);
    j->uncancelled = r->code != 0;
    j->cancelling--;
    maybe_free(j);
}

static void cancel(struct detached_job *j)
{
    const char *const ids[] = {j->id, NULL};

    j->uncancelled = run_template(j->d, &j->d->settings->cancel, ids, on_cancelled, j) < 0;
    j->cancelling += !j->uncancelled;
}

/* Matches the pattern against the output of the start command; `id` becomes its group. */
static bool find_id(struct fbr_detached *d, const char *text, char id[MAX_ID])
{
    regmatch_t m[2];

    if (regexec(&d->id, text, 2, m, 0) != 0 || m[1].rm_so < 0 ||
        m[1].rm_eo - m[1].rm_so >= MAX_ID || text[m[1].rm_so] == '-')
        return false;
    snprintf(id, MAX_ID, "%.*s", (int)(m[1].rm_eo - m[1].rm_so), text + m[1].rm_so);
    return id[0];
}

static void on_submitted(void *user, const struct fbr_tool_result *r)
{
    struct detached_job *j = user;
    struct fbr_detached *d = j->d;
    char line[160], why[256];

    fbr_printable_last_line(r->err, line, sizeof(line));
    if (r->code != 0) {
        snprintf(why, sizeof(why), "the start command ended with code %d: %s", r->code, line);
        job_ended(j, CANNOT_START, why);
    } else if (!find_id(d, r->out, j->id)) {
        snprintf(why, sizeof(why), "the start command printed no id: '%.100s'", r->out);
        job_ended(j, CANNOT_START, why);
    } else {
        j->stage = LIVING;
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->id});
        if (j->cancel)
            cancel(j);
    }
}

/* ---- States ---- */

/* When it has its place, the time that it has to join begins. */
static void notify_pending(struct detached_job *j, bool runs, const char *why)
{
    j->waits = !runs;
    notify(j, &(struct fbr_job_event){
                  .type = FBR_JOB_PENDING,
                  .text = runs ? "it runs: if its host cannot reach this one, set bind" : why,
                  .runs = runs});
}

/* Reads one line of the status command: ID WORD [CODE] [TEXT] */
static void on_line(struct fbr_detached *d, char *line)
{
    char *rest = NULL, *id = strtok_r(line, " \t|", &rest), *word = strtok_r(NULL, " \t|", &rest);
    const char *text = word ? rest + strspn(rest, " \t|") : "";
    int state = word ? fbr_command_state(d->settings, word) : -ENOENT;
    struct detached_job *j;
    char *end;
    long code = strtol(text, &end, 10);
    bool has_code = end != text;

    DL_FOREACH(d->jobs, j)
        if (j->stage == LIVING && strcmp(j->id, id) == 0)
            break;
    if (!j)
        return;
    j->missing = 0;
    if (state < 0)
        fbr_debug("command backend: job %s has the unknown state '%s'; add it to a key, such as "
                  "running",
                  id, word ? word : "");
    else if (state == JOB_PENDING || (state == JOB_RUNNING && j->waits))
        notify_pending(j, state == JOB_RUNNING, text[0] ? text : word);
    else if (state == JOB_DONE)
        job_ended(j, has_code ? (int32_t)(code & 255) : 0, "");
    else if (state == JOB_FAILED)
        job_ended(j, has_code && code & 255 ? (int32_t)(code & 255) : 1, "");
    else if (state == JOB_KILLED)
        job_ended(j, -SIGKILL, "");
    else if (state == JOB_LOST)
        job_ended(j, FBR_EXIT_UNKNOWN, "the manager lost it");
}

static void on_status(void *user, const struct fbr_tool_result *r)
{
    struct fbr_detached *d = user;
    char *rest = NULL, line[160];
    struct detached_job *j, *next;

    d->looking = false;
    if (r->code != 0) {
        fbr_printable_last_line(r->err, line, sizeof(line));
        fbr_debug("command backend: status ended with code %d: %s", r->code, line);
        return;
    }
    DL_FOREACH(d->jobs, j)
        j->missing += j->stage == LIVING;
    for (char *at = strtok_r(r->out, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest))
        if (at[strspn(at, " \t|")])
            on_line(d, at);
    DL_FOREACH_SAFE(d->jobs, j, next) {
        if (j->stage == LIVING && j->uncancelled && !j->missing)
            cancel(j);
        if (j->missing >= FORGOTTEN)
            job_ended(j, FBR_EXIT_UNKNOWN, "the manager no longer knows it");
    }
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
    d->looking = ids && run_template(d, &d->settings->status, ids, on_status, d) == 0;
    free(ids);
}

/* ---- What the backend calls ---- */

int fbr_detached_open(struct fbr_detached **out, const struct fbr_backend_env *env,
                      const struct fbr_command_settings *settings, struct fbr_error *err)
{
    struct fbr_detached *d = calloc(1, sizeof(*d));
    const char *pattern = settings->id ? settings->id : LAST_WORD;
    bool is_regex;
    int rc;

    if (!d)
        return fbr_fail(err, -ENOMEM, "out of memory");
    d->env = *env;
    d->settings = settings;
    is_regex = regcomp(&d->id, pattern, REG_EXTENDED) == 0;
    if (!is_regex || d->id.re_nsub < 1) {
        if (is_regex)
            regfree(&d->id);
        free(d);
        return fbr_fail(err, -EINVAL,
                        "%s: id = %.100s: not an extended regular expression with a group in ()",
                        settings->origin, pattern);
    }
    rc = fbr_tools_open(&d->tools, env, err);
    if (rc < 0)
        goto fail;
    if (fbr_timer_init(&d->tick, env->loop, on_tick, d) < 0) {
        rc = fbr_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    fbr_timer_start(&d->tick, settings->poll_ms, settings->poll_ms);
    *out = d;
    return 0;
fail:
    fbr_detached_close(d);
    return rc;
}

/* At close no loop is left to run commands on, so this function waits for their end. */
static void cancel_all(struct fbr_detached *d)
{
    uint64_t until = fbr_now_ms() + CLOSE_MS, now;
    struct detached_job *j;
    struct fbr_error err = {0, "there was no time left to cancel them"};
    unsigned left = 0;

    DL_FOREACH(d->jobs, j) {
        const char *const ids[] = {j->id, NULL};
        const struct fbr_fill f = {.id = j->id, .ids = ids};
        struct fbr_args w = {0};
        int32_t code;

        if (j->stage != LIVING)
            continue;
        now = fbr_now_ms();
        if (now >= until || fbr_template_fill(&d->settings->cancel, &f, &w, NULL) < 0 ||
            fbr_tool_wait(&w, NULL, (unsigned)(until - now), NULL, NULL, &code, &err) < 0)
            left++;
        fbr_args_fini(&w);
    }
    if (left)
        fbr_warn("command backend: jobs may remain (%u): %s", left, err.text);
}

void fbr_detached_close(struct fbr_detached *d)
{
    struct detached_job *j, *next;

    if (!d)
        return;
    cancel_all(d);
    fbr_tools_close(d->tools);
    DL_CONCAT(d->jobs, d->ended);
    DL_FOREACH_SAFE(d->jobs, j, next)
        free(j);
    fbr_timer_fini(&d->tick);
    regfree(&d->id);
    free(d);
}

int fbr_detached_start(struct fbr_detached *d, char *const *words, char *const *env, void *user,
                       void **handle, struct fbr_error *err)
{
    struct detached_job *j = calloc(1, sizeof(*j));
    const struct fbr_args w = {.at = (char **)(uintptr_t)words};
    const struct fbr_tool tool = {
        .words = &w, .env = env, .limit_ms = START_MS, .done = on_submitted, .user = j};
    int rc;

    if (!j)
        return fbr_fail(err, -ENOMEM, "out of memory");
    j->d = d;
    j->user = user;
    rc = fbr_tool_run(d->tools, &tool, err);
    if (rc < 0) {
        free(j);
        return rc;
    }
    DL_APPEND(d->jobs, j);
    *handle = j;
    return 0;
}

int fbr_detached_signal(void *handle, int sig)
{
    struct detached_job *j = handle;

    if (j->stage == STARTING)
        j->cancel = sig;
    else if (j->stage == LIVING)
        cancel(j);
    return 0;
}

void fbr_detached_release(void *handle)
{
    struct detached_job *j = handle;

    j->user = NULL;
    maybe_free(j);
}
