/* container.c - the life of one container.
 *
 * When the engine no longer has a container, the backend waits a moment: the event that reports how
 * the container ended may still be on its way. If the output breaks off while the container runs
 * (the engine was restarted), the backend reads it again from the engine's log and skips the bytes
 * that it has already reported, unless the engine has shortened the log meanwhile.
 *
 * Started work goes before waiting work: the first containers run while others are not even
 * created. So at any time few containers are created and not started; nothing removes those if we
 * are killed then.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "backends/docker/docker_priv.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"

#define CANNOT_START 125
#define DRAIN_MS 1000 /* after the end: time without further output */
#define LOOK_MS 1000  /* after the end of its output, when nothing else arrives */
#define AT_ONCE 16    /* as many requests as backends/http/http.c sends at once */

static void step(struct fbr_docker_job *j, enum fbr_container_event event, const char *why);

/* ---- Telling ---- */

static void notify(struct fbr_docker_job *j, const struct fbr_job_event *e)
{
    if (j->user)
        j->b->env.event(j->user, e);
}

void fbr_docker_job_wipe(struct fbr_docker_job *j)
{
    if (j->ticket.data)
        explicit_bzero(j->ticket.data, j->ticket.len);
    fbr_buf_fini(&j->ticket);
    free(j->body);
    free(j->bundled_body);
    j->body = j->bundled_body = NULL;
    j->bundle = fbr_fds_close(j->bundle);
}

static void finish(struct fbr_docker_job *j, int32_t code, const char *why)
{
    fbr_timer_fini(&j->timer);
    fbr_http_cancel(j->call);
    fbr_http_cancel(j->output);
    j->call = j->output = NULL;
    fbr_docker_job_wipe(j);
    DL_DELETE(j->b->jobs, j);
    notify(j, &(struct fbr_job_event){
                  .type = FBR_JOB_EXITED, .code = code, .text = why, .disrupted = j->unseen});
    step(j, ON_TOLD, "");
    if (!j->user)
        free(j);
}

/* ---- Requests ---- */

void fbr_docker_on_sent(void *user, const struct fbr_http_answer *a)
{
    char say[200];

    if (a->status != 404 && a->status != 409 && (a->status < 200 || a->status >= 400))
        fbr_debug("docker: %s", fbr_http_describe(a, say, sizeof(say)));
}

/* If it fails, the close of the backend tries again. */
static void remove_container(struct fbr_docker_job *j)
{
    const struct fbr_docker_engine *e = &j->b->engine;

    fbr_docker_send(e, fbr_docker_path(e, "/containers/%s?force=1&v=1", j->name),
                    (struct fbr_http_request){.method = "DELETE",
                                              .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                              .done = fbr_docker_on_sent});
}

/* ---- It never ran ---- */

static const char *find_mend(const char *why)
{
    if (strstr(why, "unmapped user"))
        return "; the engine maps users (userns-remap): docker_user sets one that it can map";
    if (strstr(why, "rootfs is marked read-only"))
        return "; its key is put into it as a file: omit ReadonlyRootfs from docker_template";
    return "";
}

static void fail(struct fbr_docker_job *j, const char *why)
{
    char text[720];

    remove_container(j);
    snprintf(text, sizeof(text), "could not be started by the Docker engine: %.590s%s", why,
             find_mend(why));
    finish(j, CANNOT_START, text);
}

static void fail_killed(struct fbr_docker_job *j)
{
    remove_container(j);
    finish(j, -j->sig, "");
}

/* ---- The end ---- */

/* Finds the error of process 1 about the program. tini prints "[FATAL tini (7)] exec ./x failed: No
 * such file or directory"; Podman's catatonit prints "ERROR (catatonit:6): failed to exec pid1: No
 * such file or directory". */
static void explain_exec(const struct fbr_docker_job *j, char *out, size_t size)
{
    const char *said = j->first[1], *at = NULL;

    if (strncmp(said, "[FATAL tini (", 13) == 0)
        at = strchr(said, ']');
    else if (strncmp(said, "ERROR (catatonit:", 17) == 0)
        at = strstr(said, "):");
    if (at)
        at += *at == ']' ? 1 : 2;
    if (at)
        snprintf(out, size, "cannot run in its image:%.*s", (int)strcspn(at, "\r\n"), at);
}

static void explain(const struct fbr_docker_job *j, char *out, size_t size)
{
    char limit[80] = "the host has no memory left";

    out[0] = '\0';
    if (j->memory > 0)
        snprintf(limit, sizeof(limit),
                 "its container's limit is %.0f MiB (memory or docker_template sets it)",
                 (double)j->memory / (1 << 20));
    if (j->oom && j->code != 0)
        snprintf(out, size, "was killed because memory ran out: %s", limit);
    /* An engine does not see that memory ran out just after the start, and Podman never does. */
    else if (j->code == -SIGKILL && !j->sig && j->memory > 0)
        snprintf(out, size, "was killed by signal 9 (Killed), perhaps because memory ran out: %s",
                 limit);
    else if (j->code == -SIGTERM && !j->sig)
        snprintf(
            out, size,
            "was ended by signal %d, which its program, `docker stop` or the end of the engine "
            "sent",
            SIGTERM);
    else if (j->code == 126 || j->code == 127 || j->code == 1)
        explain_exec(j, out, size);
}

static void end(struct fbr_docker_job *j)
{
    char text[280];

    explain(j, text, sizeof(text));
    finish(j, j->code, text);
}

static void end_lost(struct fbr_docker_job *j)
{
    remove_container(j); /* if it is there after all, nothing else does so */
    finish(j, FBR_EXIT_UNKNOWN, "lost its container: it was removed, or the engine was restarted");
}

static void drain_more(struct fbr_docker_job *j)
{
    fbr_timer_start(&j->timer, DRAIN_MS, 0);
}

static void drain(struct fbr_docker_job *j)
{
    /* little output is left */
    if (j->output && j->paused)
        fbr_http_pause(j->output, false);
    if (j->output || j->state == LOST)
        drain_more(j);
    else
        step(j, ON_TIME, "");
}

void fbr_docker_job_died(struct fbr_docker_job *j, int32_t code)
{
    if (fbr_container_step(j->state, ON_DIED).action == DO_NOTHING)
        return;
    /* the signals with which an engine ends containers */
    if (code == -SIGKILL || code == -SIGTERM)
        j->unseen |= j->b->away;
    else
        j->unseen = false;
    j->code = code;
    step(j, ON_DIED, "");
}

void fbr_docker_job_gone(struct fbr_docker_job *j)
{
    if (fbr_container_step(j->state, ON_GONE).action == DO_NOTHING)
        return;
    j->unseen = j->b->away;
    step(j, ON_GONE, "");
}

void fbr_docker_job_on_time(void *job)
{
    step(job, ON_TIME, "");
}

static void look(struct fbr_docker_job *j)
{
    if (!j->output)
        fbr_docker_look(j->b);
}

static void look_soon(struct fbr_docker_job *j)
{
    fbr_timer_start(&j->timer, LOOK_MS, 0);
}

/* ---- Output ---- */

/* Whether these bytes of the engine's log are those that the stream had at this place. Only the
 * beginning of a stream is kept: an engine that shortens a log removes its beginning. */
static bool is_repeated(const struct fbr_docker_job *j, int stream, const char *data, size_t len)
{
    const char *first = j->first[stream - 1];
    uint64_t at = j->got[stream - 1] - j->skip[stream - 1];
    size_t kept = at < FBR_DOCKER_FIRST - 1 ? FBR_DOCKER_FIRST - 1 - (size_t)at : 0;

    return !kept || memcmp(first + at, data, len < kept ? len : kept) == 0;
}

/* Returns how many of these bytes were reported before the output broke off. */
static size_t known_bytes(struct fbr_docker_job *j, int stream, const char *data, size_t len)
{
    uint64_t *skip = &j->skip[stream - 1];
    size_t known = *skip < len ? (size_t)*skip : len;

    if (known && !is_repeated(j, stream, data, known)) {
        fbr_warn("docker: %s: the engine no longer has the beginning of its log: output may be "
                 "missing here, and what the log has is shown again",
                 j->name);
        *skip = known = 0;
    }
    *skip -= known;
    return known;
}

static void on_piece(void *user, int stream, const void *data, size_t len)
{
    struct fbr_docker_job *j = user;
    uint64_t *got = &j->got[stream - 1];
    size_t known = known_bytes(j, stream, data, len);
    const char *at = (const char *)data + known;

    len -= known;
    if (len == 0 || j->state >= ENDED)
        return;
    if (*got < FBR_DOCKER_FIRST - 1) {
        size_t room = FBR_DOCKER_FIRST - 1 - (size_t)*got;

        memcpy(j->first[stream - 1] + *got, at, len < room ? len : room);
    }
    *got += len;
    notify(j, &(struct fbr_job_event){
                  .type = FBR_JOB_OUTPUT, .stream = stream, .text = "", .data = at, .len = len});
}

static void on_output(void *user, const void *data, size_t len)
{
    struct fbr_docker_job *j = user;

    step(j, ON_OUTPUT, "");
    if (j->b->tty) {
        on_piece(j, 1, data, len);
    } else if (!fbr_docker_frames(&j->frames, data, len, on_piece, j) && j->output) {
        fbr_warn("docker: %s: its output is not in the engine's format, and is not shown", j->name);
        fbr_http_cancel(j->output);
        j->output = NULL;
    }
}

/* The end of the output means the end of the container, which is reported next, unless the
 * connection broke. */
static void on_output_end(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[400];

    j->output = NULL;
    step(j, ON_DETACHED, fbr_http_describe(a, say, sizeof(say)));
}

void fbr_docker_job_runs(struct fbr_docker_job *j)
{
    step(j, ON_RUNS, "");
}

/* The engine lists the container as running. The engine's log has all its output. */
static void read_log(struct fbr_docker_job *j)
{
    const struct fbr_docker_engine *e = &j->b->engine;

    if (j->output)
        return;
    memset(&j->frames, 0, sizeof(j->frames));
    memcpy(j->skip, j->got, sizeof(j->skip));
    j->output = fbr_docker_send(
        e, fbr_docker_path(e, "/containers/%s/logs?follow=1&stdout=1&stderr=1", j->id),
        (struct fbr_http_request){
            .method = "GET", .data = on_output, .done = on_output_end, .user = j});
    if (j->output && j->paused)
        fbr_http_pause(j->output, true);
}

/* ---- Signals ---- */

static void send_signal(struct fbr_docker_job *j, int sig)
{
    const struct fbr_docker_engine *e = &j->b->engine;

    fbr_docker_send(e, fbr_docker_path(e, "/containers/%s/kill?signal=%d", j->id, sig),
                    (struct fbr_http_request){.method = "POST",
                                              .urgent = true,
                                              .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                              .done = fbr_docker_on_sent});
}

void fbr_docker_job_signal(struct fbr_docker_job *j, int sig)
{
    if (j->sig != SIGKILL)
        j->sig = sig;
    if (j->state < RUNNING)
        j->early |= UINT64_C(1) << (sig - 1);
    step(j, sig == SIGTERM || sig == SIGKILL ? ON_KILL : ON_SIGNAL, "");
}

static void pass_signal(struct fbr_docker_job *j)
{
    /* the container may have ended with the engine, and the runtime waits */
    if (j->sig == SIGKILL && j->b->away)
        notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                          .text = "ended while the engine was unreachable",
                                          .runs = 1,
                                          .disrupted = 1});
    send_signal(j, j->sig);
}

/* ---- Starting ---- */

static void run(struct fbr_docker_job *j)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (j->early >> (sig - 1) & 1)
            send_signal(j, sig);
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->id});
    if (!j->output)
        look_soon(j);
}

static void run_drain(struct fbr_docker_job *j)
{
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->id});
    drain(j);
}

/* Receives the answer; a job has one request in flight at a time. If a container of our name exists
 * already, it is ours, and an answer was lost, or it is not ours. */
static void on_answer(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    enum fbr_container_event event = fbr_container_answer(j->state, a->status);
    bool exists = event == ON_CREATED || event == ON_OURS;
    struct json_t *o = exists ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    const char *run = fbr_json_text(o, "Config", "Labels", "fiber.run", NULL);
    char say[400];

    j->call = NULL;
    fbr_http_describe(a, say, sizeof(say));
    if (o)
        snprintf(j->id, sizeof(j->id), "%.64s", fbr_json_text(o, "Id", NULL));
    else if (exists)
        event = ON_REFUSED;
    if (event == ON_OURS && strcmp(run, j->b->run) != 0) {
        event = ON_THEIRS;
        snprintf(say, sizeof(say), "the name %.100s is taken by another container, %.64s", j->name,
                 j->id);
    }
    fbr_json_free(o);
    if (event == ON_VANISHED && strncmp(say, "network ", 8) == 0)
        event = ON_REFUSED; /* the container is there, and what it names is not */
    if (event == ON_VANISHED && j->state == STARTING)
        j->unseen = j->b->away;
    if (event == ON_HAS || event == ON_LACKS)
        fbr_docker_bundle_learn(j->b->bundle, j->image, event == ON_LACKS);
    step(j, event, say);
}

/* Sends a request to the engine; `format` has %s in the place of the container's id or name. */
static void ask(struct fbr_docker_job *j, const char *format, const char *text,
                struct fbr_http_request r)
{
    r.urgent = j->state != CREATING && j->state != RECREATING; /* started work goes first */
    r.patience_ms = FBR_DOCKER_PATIENCE_MS;
    r.done = on_answer;
    r.user = j;
    j->call = fbr_docker_send(&j->b->engine, fbr_docker_path(&j->b->engine, format, text), r);
    if (!j->call)
        step(j, ON_REFUSED, "out of memory");
}

static void start(struct fbr_docker_job *j)
{
    fbr_docker_job_wipe(j);
    ask(j, "/containers/%s/start", j->id, (struct fbr_http_request){.method = "POST"});
}

static void on_attached(void *user)
{
    step(user, ON_ATTACHED, "");
}

/* Puts the next archive into the container: first our program, if the image lacks it, then the
 * ticket. */
static void put_next(struct fbr_docker_job *j)
{
    struct fbr_http_request r = {.method = "PUT", .type = "application/x-tar"};

    if (j->archive == 0 && j->bundle < 0)
        j->archive = 1;
    if (j->archive == 1 && !j->ticket.len)
        j->archive = 2;
    if (j->archive == 2) {
        step(j, ON_ALL_PUT, "");
        return;
    }
    if (j->archive++ == 0) {
        r.body_fd = j->bundle;
    } else {
        r.body = j->ticket.data;
        r.len = j->ticket.len;
    }
    ask(j, "/containers/%s/archive?path=/", j->id, r);
}

static void fill(struct fbr_docker_job *j)
{
    const struct fbr_docker_engine *e = &j->b->engine;

    j->output = fbr_docker_send(
        e, fbr_docker_path(e, "/containers/%s/attach?stream=1&stdout=1&stderr=1", j->id),
        (struct fbr_http_request){.method = "POST",
                                  .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                  .data = on_output,
                                  .opened = on_attached,
                                  .done = on_output_end,
                                  .user = j});
    if (!j->output) {
        step(j, ON_REFUSED, "out of memory");
        return;
    }
    if (j->paused)
        fbr_http_pause(j->output, true);
    put_next(j);
}

/* ---- An image without our program ---- */

static void cannot_bundle(struct fbr_docker_job *j, const char *why)
{
    char text[600];

    snprintf(text, sizeof(text),
             "the image %.200s does not have this program, and it cannot be copied in: %.300s",
             j->image, why);
    step(j, ON_REFUSED, text);
}

static void take_bundle(struct fbr_docker_job *j)
{
    struct fbr_error err = {0, ""};

    j->bundle = fbr_docker_bundle_take(j->b->bundle, &err);
    if (j->bundle >= 0)
        step(j, ON_BUNDLE, "");
    else if (j->bundle != -EAGAIN)
        cannot_bundle(j, err.text);
}

void fbr_docker_on_bundle(struct fbr_backend *b, const char *why)
{
    struct fbr_docker_job *j;

    do { /* from the beginning each time, because a step may change the list */
        DL_SEARCH_SCALAR(b->jobs, j, state, BUNDLING);
        if (j && why)
            cannot_bundle(j, why);
        else if (j)
            take_bundle(j);
    } while (j);
}

/* Removes a container that was created with a command that the image lacks. */
static void undo(struct fbr_docker_job *j)
{
    ask(j, "/containers/%s?force=1&v=1", j->id, (struct fbr_http_request){.method = "DELETE"});
}

/* Checks whether a new container has the program. */
static void probe(struct fbr_docker_job *j)
{
    char *program = fbr_http_escape(j->b->program), *query = NULL;

    if (j->bundled)
        step(j, ON_BUNDLED, "");
    else if (!j->bundled_body || fbr_docker_bundle_lacks(j->b->bundle, j->image) == 0)
        step(j, ON_HAS, "");
    else if (program && asprintf(&query, "%s/archive?path=%s", j->id, program) >= 0)
        ask(j, "/containers/%s", query, (struct fbr_http_request){.method = "HEAD"});
    else
        step(j, ON_REFUSED, "out of memory");
    free(query);
    free(program);
}

/* ---- Creating ---- */

/* Reports why the container does not run yet. */
static void notify_placed(struct fbr_docker_job *j, const char *text)
{
    notify(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text, .placed = 1});
}

static void look_up(struct fbr_docker_job *j)
{
    ask(j, "/containers/%s/json", j->name, (struct fbr_http_request){.method = "GET"});
}

void fbr_docker_on_image(void *backend, int fetch, const char *text, bool done, bool good)
{
    struct fbr_backend *b = backend;
    struct fbr_docker_job *j;

    if (!done) {
        DL_FOREACH(b->jobs, j)
            if (j->fetch == fetch)
                notify_placed(j, text);
        return;
    }
    do { /* from the beginning each time, because a step may change the list */
        DL_SEARCH_SCALAR(b->jobs, j, fetch, fetch);
        if (j) {
            j->fetch = 0;
            step(j, good ? ON_IMAGE : ON_REFUSED, text);
        }
    } while (j);
}

/* `fetch`: as fbr_docker_images_want() returns it. */
static void await_image(struct fbr_docker_job *j, int fetch)
{
    if (fetch > 0)
        j->fetch = fetch;
    else
        step(j, fetch == 0 ? ON_IMAGE : ON_REFUSED, "out of memory");
}

static void pull(struct fbr_docker_job *j)
{
    bool made = fbr_docker_images_is_made(j->b->images, j->image);
    int fetch = fbr_docker_images_pull(j->b->images, j->image);
    char text[300];

    snprintf(text, sizeof(text), "image %.200s is not on the engine, and is pulled", j->image);
    await_image(j, fetch);
    if (fetch > 0 && !made) /* a slow pull may report nothing for a while */
        notify_placed(j, text);
}

/* Whether more jobs start than the engine gets requests at a time. If so, those at the end wait in
 * our line, and the time that they have to join has not begun yet. */
static bool has_line(const struct fbr_backend *b)
{
    const struct fbr_docker_job *j;
    unsigned n = 0;

    DL_FOREACH(b->jobs, j)
        n += j->state < RUNNING;
    return n > AT_ONCE;
}

static void create(struct fbr_docker_job *j)
{
    const char *body = j->body;

    if (has_line(j->b))
        notify_placed(j, "the engine starts other containers first");
    j->bundled = j->bundled_body && fbr_docker_bundle_lacks(j->b->bundle, j->image) == 1;
    if (j->bundled)
        body = j->bundled_body;
    ask(j, "/containers/create?name=%s", j->name,
        (struct fbr_http_request){.method = "POST", .body = body, .len = strlen(body)});
}

/* ---- The table's actions ---- */

static void step(struct fbr_docker_job *j, enum fbr_container_event event, const char *why)
{
    static void (*const actions[FBR_CONTAINER_ACTIONS])(struct fbr_docker_job *) = {
        [DO_CREATE] = create,
        [DO_PULL] = pull,
        [DO_LOOK_UP] = look_up,
        [DO_PROBE] = probe,
        [DO_UNDO] = undo,
        [DO_BUNDLE] = take_bundle,
        [DO_FILL] = fill,
        [DO_PUT] = put_next,
        [DO_START] = start,
        [DO_RUN] = run,
        [DO_RUN_DRAIN] = run_drain,
        [DO_SIGNAL] = pass_signal,
        [DO_LOOK] = look,
        [DO_LOOK_SOON] = look_soon,
        [DO_READ_LOG] = read_log,
        [DO_DRAIN] = drain,
        [DO_DRAIN_MORE] = drain_more,
        [DO_END] = end,
        [DO_END_LOST] = end_lost,
        [DO_FAIL_KILLED] = fail_killed,
    };
    const struct fbr_container_step s = fbr_container_step(j->state, event);

    j->state = s.next;
    if (s.action == DO_FAIL)
        fail(j, why);
    else if (s.action == DO_FAIL_TAKEN) /* the container is another's, and stays */
        finish(j, CANNOT_START, why);
    else if (actions[s.action])
        actions[s.action](j);
}

void fbr_docker_job_start(struct fbr_docker_job *j)
{
    j->state = FETCHING;
    await_image(j, fbr_docker_images_want(j->b->images, j->image));
}
