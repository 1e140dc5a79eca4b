/* container.c - the life of one container; see docker_priv.h.
 *
 * A container that the engine does not have any more is waited for: the event that tells how it ended may be on its
 * way still. Output that breaks off while the container runs (the engine was restarted) is asked for again from the
 * engine's log, less what was told before.
 *
 * What is begun comes before what waits: the first containers run while others are not even made, and few are made and
 * not started at a time, which nobody removes if we are killed then.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/docker/docker_priv.h"
#include "runtime/base/log.h"

#define CANNOT_START 125
#define DRAIN_MS 1000 /* without a word, after the end */
#define LOOK_MS 1000  /* after its output has ended, and nothing more */
#define AT_ONCE 16    /* as many requests as backends/http/http.c sends */

static void create(struct fbr_docker_job *j);

/* ---- Telling ---- */

static void tell(struct fbr_docker_job *j, const struct fbr_job_event *e)
{
    struct fbr_job_event copy = *e;

    copy.text = copy.text ? copy.text : "";
    if (!j->released)
        j->b->env.event(j->user, &copy);
}

void fbr_docker_job_wipe(struct fbr_docker_job *j)
{
    if (j->ticket.data)
        explicit_bzero(j->ticket.data, j->ticket.len);
    fbr_buf_fini(&j->ticket);
    free(j->body);
    free(j->bundled_body);
    j->body = j->bundled_body = NULL;
    if (j->bundle >= 0)
        close(j->bundle);
    j->bundle = -1;
}

static void finish(struct fbr_docker_job *j, int32_t code, const char *why)
{
    if (j->stage == ENDED)
        return;
    j->stage = ENDED;
    fbr_timer_fini(&j->timer);
    fbr_http_cancel(j->call);
    fbr_http_cancel(j->output);
    j->call = j->output = NULL;
    fbr_docker_job_wipe(j);
    DL_DELETE(j->b->jobs, j);
    tell(j, &(struct fbr_job_event){
                .type = FBR_JOB_EXITED, .code = code, .text = why, .disrupted = j->unseen});
    j->told = true;
    if (j->released)
        free(j);
}

/* ---- Requests ---- */

char *fbr_docker_path(const struct fbr_backend *b, const char *format, const char *text)
{
    char *path = NULL, *end = NULL;

    if (asprintf(&end, format, text) < 0)
        return NULL;
    if (asprintf(&path, "/v%s%s", b->engine.api, end) < 0)
        path = NULL;
    free(end);
    return path;
}

struct fbr_http_call *fbr_docker_send(struct fbr_backend *b, const char *format, const char *text,
                                      struct fbr_http_request r)
{
    char *path = fbr_docker_path(b, format, text);
    struct fbr_http_call *c = NULL;

    r.path = path;
    if (path)
        c = fbr_http_send(b->engine.http, &r, NULL);
    free(path);
    return c;
}

static void log_answer(const struct fbr_http_answer *a)
{
    char say[200];

    if (a->status != 404 && a->status != 409 && (a->status < 200 || a->status >= 400))
        fbr_debug("docker: %s", fbr_http_say(a, say, sizeof(say)));
}

static void on_kill_sent(void *user, const struct fbr_http_answer *a)
{
    (void)user;
    log_answer(a);
}

static void on_removed(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_doomed *d = user;

    log_answer(a);
    DL_DELETE(d->b->doomed, d);
    free(d);
}

static void remove_container(struct fbr_docker_job *j)
{
    struct fbr_docker_doomed *d = calloc(1, sizeof(*d));
    const struct fbr_http_request r = {
        .method = "DELETE", .patience_ms = FBR_DOCKER_PATIENCE_MS, .done = on_removed, .user = d};

    if (!d)
        return;
    d->b = j->b;
    snprintf(d->name, sizeof(d->name), "%s", j->name);
    if (fbr_docker_send(j->b, "/containers/%s?force=1&v=1", j->name, r))
        DL_APPEND(j->b->doomed, d);
    else
        free(d);
}

/* It never ran. */
static void fail(struct fbr_docker_job *j, const char *why)
{
    char text[640];

    remove_container(j);
    if (j->killed) {
        finish(j, -j->sig, "");
        return;
    }
    snprintf(text, sizeof(text), "could not be started by the Docker engine: %.590s", why);
    finish(j, CANNOT_START, text);
}

/* ---- The end ---- */

/* What process 1 said of the program: "[FATAL tini (7)] exec ./x failed: No such file or directory"; Podman's says
 * "ERROR (catatonit:6): failed to exec pid1: No such file or directory". */
static void explain_exec(const struct fbr_docker_job *j, char *out, size_t size)
{
    const char *at = NULL;

    if (strncmp(j->first, "[FATAL tini (", 13) == 0)
        at = strchr(j->first, ']');
    else if (strncmp(j->first, "ERROR (catatonit:", 17) == 0)
        at = strstr(j->first, "):");
    if (at)
        at += *at == ']' ? 1 : 2;
    if (at)
        snprintf(out, size, "cannot run in its image:%.*s", (int)strcspn(at, "\r\n"), at);
}

static void explain(const struct fbr_docker_job *j, char *out, size_t size)
{
    char limit[80] = "the host has none left";

    out[0] = '\0';
    if (j->memory)
        snprintf(limit, sizeof(limit), "its container's limit is %.0f MiB (memory sets it)",
                 (double)j->memory / (1 << 20));
    if (j->gone)
        snprintf(out, size, "lost its container: it was removed, or the engine was restarted");
    else if (j->oom && j->code != 0)
        snprintf(out, size, "was killed for want of memory: %s", limit);
    else if (j->code == 126 || j->code == 127 || j->code == 1)
        explain_exec(j, out, size);
}

static void end_now(struct fbr_docker_job *j)
{
    char why[280];

    explain(j, why, sizeof(why));
    finish(j, j->code, why);
}

static void end_soon(struct fbr_docker_job *j)
{
    if (j->stage == STARTING && j->call)
        return; /* the answer to its start has the sentence */
    if (j->output && j->paused)
        fbr_http_pause(j->output, false); /* what is left is little */
    if (j->output || j->gone)
        fbr_timer_start(&j->timer, DRAIN_MS, 0);
    else
        end_now(j);
}

void fbr_docker_job_died(struct fbr_docker_job *j, int32_t code)
{
    if (j->stage < STARTING || (j->died && !j->gone))
        return;
    j->died = true;
    j->gone = false;
    if (code == -SIGKILL || code == -SIGTERM) /* as an engine ends them */
        j->unseen |= j->b->away;
    else
        j->unseen = false;
    j->code = code;
    end_soon(j);
}

void fbr_docker_job_gone(struct fbr_docker_job *j)
{
    if (j->stage < STARTING || j->died)
        return;
    j->died = j->gone = true;
    j->unseen = j->b->away;
    j->code = FBR_EXIT_UNKNOWN;
    end_soon(j);
}

void fbr_docker_job_on_time(void *job)
{
    struct fbr_docker_job *j = job;

    if (j->died && !j->call)
        end_now(j);
    else if (!j->output && j->stage == RUNNING)
        fbr_docker_look(j->b);
}

/* ---- Output ---- */

static void on_piece(void *user, int stream, const void *data, size_t len)
{
    struct fbr_docker_job *j = user;
    uint64_t *skip = &j->skip[stream - 1];
    const char *at = data;
    size_t known = *skip < len ? (size_t)*skip : len;

    *skip -= known;
    at += known;
    len -= known;
    if (len == 0 || j->stage == ENDED)
        return;
    if (stream == 2 && j->got[1] < sizeof(j->first) - 1) {
        size_t room = sizeof(j->first) - 1 - (size_t)j->got[1];

        memcpy(j->first + j->got[1], at, len < room ? len : room);
    }
    j->got[stream - 1] += len;
    tell(j,
         &(struct fbr_job_event){.type = FBR_JOB_OUTPUT, .stream = stream, .data = at, .len = len});
}

static void on_output(void *user, const void *data, size_t len)
{
    struct fbr_docker_job *j = user;

    if (j->died)
        fbr_timer_start(&j->timer, DRAIN_MS, 0);
    if (j->b->tty) {
        on_piece(j, 1, data, len);
    } else if (!fbr_docker_frames(&j->frames, data, len, on_piece, j) && j->output) {
        fbr_warn("docker: %s: its output is not in frames, and is not shown", j->name);
        fbr_http_cancel(j->output);
        j->output = NULL;
    }
}

/* Its end is known by the container's, which is told next; unless the connection broke. */
static void on_output_end(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[200];

    j->output = NULL;
    if (j->stage == FILLING) { /* before it was attached */
        fail(j, fbr_http_say(a, say, sizeof(say)));
        return;
    }
    if (j->died && !j->gone && !j->call)
        end_now(j);
    else
        fbr_timer_start(&j->timer, j->died ? DRAIN_MS : LOOK_MS, 0);
}

/* The engine says that it runs. Its log has all that it has written. */
void fbr_docker_job_runs(struct fbr_docker_job *j)
{
    if (j->output || j->died || j->stage != RUNNING)
        return;
    memset(&j->frames, 0, sizeof(j->frames));
    memcpy(j->skip, j->got, sizeof(j->skip));
    j->output =
        fbr_docker_send(j->b, "/containers/%s/logs?follow=1&stdout=1&stderr=1", j->id,
                        (struct fbr_http_request){
                            .method = "GET", .data = on_output, .done = on_output_end, .user = j});
    if (j->output && j->paused)
        fbr_http_pause(j->output, true);
}

/* ---- Signals ---- */

static void send_signal(struct fbr_docker_job *j, int sig)
{
    char text[160];

    snprintf(text, sizeof(text), "%s/kill?signal=%d", j->id, sig);
    fbr_docker_send(j->b, "/containers/%s", text,
                    (struct fbr_http_request){.method = "POST",
                                              .urgent = true,
                                              .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                              .done = on_kill_sent});
}

void fbr_docker_job_signal(struct fbr_docker_job *j, int sig)
{
    if (j->stage == ENDED || j->died)
        return;
    if (j->stage == RUNNING) {
        if (sig == SIGKILL && j->b->away) /* has it hung up? It may have ended with the engine */
            tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                            .text = "ended while the engine was away",
                                            .runs = 1,
                                            .disrupted = 1});
        send_signal(j, sig);
        return;
    }
    if (j->sig != SIGKILL)
        j->sig = sig; /* it will get that when it runs */
    if (j->stage == STARTING || (sig != SIGTERM && sig != SIGKILL))
        return;
    j->killed = true; /* what is under way ends in fail() */
    if (j->stage == CREATING && !j->call) {
        fbr_docker_bundle_forget(j->b->bundle, j);
        fbr_docker_images_forget(j->b->images, j);
        fail(j, "");
    }
}

/* ---- Starting ---- */

static void on_started(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[400];

    j->call = NULL;
    if (a->status != 204 && a->status != 304 && a->status != 404 && a->status != 409) {
        fail(j, fbr_http_say(a, say, sizeof(say)));
        return;
    }
    j->stage = RUNNING;
    /* An answer was lost, and meanwhile it has ended and is removed (404), or just being removed (409). */
    if (a->status >= 400 && !j->died) {
        fbr_docker_job_gone(j);
        return;
    }
    if (j->sig && !j->died)
        send_signal(j, j->sig);
    tell(j, &(struct fbr_job_event){.type = FBR_JOB_STARTED, .text = j->id});
    if (j->stage != RUNNING)
        return;
    if (j->died)
        end_soon(j);
    else if (!j->output)
        fbr_timer_start(&j->timer, LOOK_MS, 0);
}

static void start_it(struct fbr_docker_job *j)
{
    if (--j->filling > 0)
        return;
    fbr_docker_job_wipe(j);
    if (j->killed) {
        fail(j, "");
        return;
    }
    j->stage = STARTING;
    j->call = fbr_docker_send(j->b, "/containers/%s/start", j->id,
                              (struct fbr_http_request){.method = "POST",
                                                        .urgent = true,
                                                        .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                                        .done = on_started,
                                                        .user = j});
    if (!j->call)
        fail(j, "out of memory");
}

static void on_attached(void *user)
{
    struct fbr_docker_job *j = user;

    if (j->stage == FILLING)
        start_it(j);
}

static void put_next(struct fbr_docker_job *j);

static void on_filled(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[400];

    j->call = NULL;
    if (a->status == 200)
        put_next(j);
    else
        fail(j, fbr_http_say(a, say, sizeof(say)));
}

/* Our program, when the image lacks it; then the ticket. */
static void put_next(struct fbr_docker_job *j)
{
    struct fbr_http_request r = {.method = "PUT",
                                 .urgent = true,
                                 .type = "application/x-tar",
                                 .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                 .done = on_filled,
                                 .user = j};

    if (j->bundle >= 0 && !j->sent_bundle) {
        j->sent_bundle = true;
        r.body_fd = j->bundle;
    } else if (j->ticket.len && !j->sent_ticket) {
        j->sent_ticket = true;
        r.body = j->ticket.data;
        r.len = j->ticket.len;
    } else {
        start_it(j);
        return;
    }
    j->call = fbr_docker_send(j->b, "/containers/%s/archive?path=/", j->id, r);
    if (!j->call)
        fail(j, "out of memory");
}

static void fill(struct fbr_docker_job *j)
{
    j->stage = FILLING;
    j->filling = 2;
    j->output = fbr_docker_send(j->b, "/containers/%s/attach?stream=1&stdout=1&stderr=1", j->id,
                                (struct fbr_http_request){.method = "POST",
                                                          .data = on_output,
                                                          .opened = on_attached,
                                                          .done = on_output_end,
                                                          .user = j});
    if (!j->output) {
        fail(j, "out of memory");
        return;
    }
    if (j->paused)
        fbr_http_pause(j->output, true);
    put_next(j);
}

/* ---- An image without our program ---- */

static void on_bundle(void *user, int fd, const char *why)
{
    struct fbr_docker_job *j = user;
    char text[600];

    if (fd < 0) {
        snprintf(text, sizeof(text),
                 "the image %.200s has not our program, and it cannot be put in: %.300s", j->image,
                 why);
        fail(j, text);
        return;
    }
    j->bundle = fd;
    fill(j);
}

/* The container is gone that had the wrong command. */
static void on_undone(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[200];

    j->call = NULL;
    if (j->killed)
        fail(j, "");
    else if (a->status == 204 || a->status == 404)
        create(j);
    else
        fail(j, fbr_http_say(a, say, sizeof(say)));
}

static void on_looked_in(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    char say[200];

    j->call = NULL;
    if (j->killed) {
        fail(j, "");
    } else if (a->status == 200) {
        fbr_docker_bundle_learn(j->b->bundle, j->image, false);
        fill(j);
    } else if (a->status == 404) {
        fbr_docker_bundle_learn(j->b->bundle, j->image, true);
        j->call = fbr_docker_send(j->b, "/containers/%s?force=1&v=1", j->id,
                                  (struct fbr_http_request){.method = "DELETE",
                                                            .urgent = true,
                                                            .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                                            .done = on_undone,
                                                            .user = j});
        if (!j->call)
            fail(j, "out of memory");
    } else {
        fail(j, fbr_http_say(a, say, sizeof(say)));
    }
}

/* It is made; does it have the program? */
static void complete(struct fbr_docker_job *j)
{
    char *program = fbr_http_escape(j->b->program), *query = NULL;

    if (j->bundled) {
        fbr_docker_bundle_want(j->b->bundle, on_bundle, j);
    } else if (!j->bundled_body || fbr_docker_bundle_lacks(j->b->bundle, j->image) == 0) {
        fill(j);
    } else {
        if (program && asprintf(&query, "%s/archive?path=%s", j->id, program) < 0)
            query = NULL;
        if (query)
            j->call =
                fbr_docker_send(j->b, "/containers/%s", query,
                                (struct fbr_http_request){.method = "HEAD",
                                                          .urgent = true,
                                                          .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                                          .done = on_looked_in,
                                                          .user = j});
        if (!j->call)
            fail(j, "out of memory");
    }
    free(query);
    free(program);
}

/* ---- Creating ---- */

/* There is one of that name: ours, whose answer was lost, or somebody else's. */
static void on_looked_up(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    struct json_t *o = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    const char *run = fbr_json_text(o, "Config", "Labels", "fiber.run", NULL);
    char why[400], say[200];

    j->call = NULL;
    if (!o) {
        fail(j, fbr_http_say(a, say, sizeof(say)));
    } else if (strcmp(run, j->b->run) == 0) {
        snprintf(j->id, sizeof(j->id), "%.64s", fbr_json_text(o, "Id", NULL));
        complete(j);
    } else {
        snprintf(why, sizeof(why), "the name %.100s is taken by another container, %.64s", j->name,
                 fbr_json_text(o, "Id", NULL));
        finish(j, CANNOT_START, why);
    }
    fbr_json_free(o);
}

static void on_image(void *user, const char *text, bool done, bool good)
{
    struct fbr_docker_job *j = user;

    if (!done)
        tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING, .text = text, .placed = 1});
    else if (good)
        create(j);
    else
        fail(j, text);
}

static void on_created(void *user, const struct fbr_http_answer *a)
{
    struct fbr_docker_job *j = user;
    struct json_t *o = a->status == 201 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    char say[400];

    j->call = NULL;
    if (j->killed && a->status != 409) {
        fail(j, "");
    } else if (o) {
        snprintf(j->id, sizeof(j->id), "%.64s", fbr_json_text(o, "Id", NULL));
        complete(j);
    } else if (a->status == 409) {
        j->call = fbr_docker_send(j->b, "/containers/%s/json", j->name,
                                  (struct fbr_http_request){.method = "GET",
                                                            .urgent = true,
                                                            .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                                            .done = on_looked_up,
                                                            .user = j});
        if (!j->call)
            fail(j, "out of memory");
    } else if (a->status == 404 && !j->pulled) {
        j->pulled = true;
        fbr_docker_images_pull(j->b->images, j->image, on_image, j);
    } else {
        fail(j, fbr_http_say(a, say, sizeof(say)));
    }
    fbr_json_free(o);
}

/* More than the engine is asked for at a time? Then those at the end wait for us, and the time that they have to join
 * in does not begin yet. */
static bool has_line(const struct fbr_backend *b)
{
    const struct fbr_docker_job *j;
    unsigned n = 0;

    DL_FOREACH(b->jobs, j)
        n += j->stage < RUNNING;
    return n > AT_ONCE;
}

static void create(struct fbr_docker_job *j)
{
    const char *body = j->body;

    if (has_line(j->b))
        tell(j, &(struct fbr_job_event){.type = FBR_JOB_PENDING,
                                        .text = "the engine starts others before it",
                                        .placed = 1});
    j->bundled = j->bundled_body && fbr_docker_bundle_lacks(j->b->bundle, j->image) == 1;
    if (j->bundled)
        body = j->bundled_body;
    j->call = fbr_docker_send(j->b, "/containers/create?name=%s", j->name,
                              (struct fbr_http_request){.method = "POST",
                                                        .body = body,
                                                        .len = strlen(body),
                                                        .patience_ms = FBR_DOCKER_PATIENCE_MS,
                                                        .done = on_created,
                                                        .user = j});
    if (!j->call)
        fail(j, "out of memory");
}

void fbr_docker_job_start(struct fbr_docker_job *j)
{
    fbr_docker_images_want(j->b->images, j->image, on_image, j);
}
