/* events.c - follows our containers: one stream of events, and a list of containers after the
 * stream broke.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include "backends/docker/docker_priv.h"
#include "runtime/base/log.h"

#define AGAIN_MS 100 /* before the events are requested again; doubles each time */
#define AGAIN_MAX_MS 3000
#define LIST_AGAIN_MS 1000

struct fbr_docker_job *fbr_docker_find(const struct fbr_backend *b, const char *id,
                                       const char *name)
{
    struct fbr_docker_job *j;

    name += name[0] == '/';
    DL_FOREACH(b->jobs, j)
        if ((j->id[0] && strcmp(j->id, id) == 0) || strcmp(j->name, name) == 0)
            return j;
    return NULL;
}

char *fbr_docker_list_path(const struct fbr_backend *b, const char *path, const char *filter)
{
    char *escaped = fbr_http_escape(filter), *whole = NULL;

    if (escaped)
        whole = fbr_docker_path(&b->engine, "%s&filters=%s", path, escaped);
    free(escaped);
    return whole;
}

/* ---- Events ---- */

/* Docker and Podman use different names for the exit code. */
static int32_t exit_code(const struct json_t *e)
{
    const char *code = fbr_json_text(e, "Actor", "Attributes", "exitCode", NULL);

    if (!code[0])
        code = fbr_json_text(e, "Actor", "Attributes", "containerExitCode", NULL);
    return code[0] ? fbr_docker_code(atoll(code)) : FBR_EXIT_UNKNOWN;
}

static void on_event(void *user, const struct json_t *e)
{
    struct fbr_backend *b = user;
    const char *action = fbr_json_text(e, "Action", NULL);
    int64_t nano = fbr_json_int(e, 0, "timeNano", NULL);
    struct fbr_docker_job *j =
        fbr_docker_find(b, fbr_json_text(e, "Actor", "ID", NULL),
                        fbr_json_text(e, "Actor", "Attributes", "name", NULL));

    if (nano > 0)
        snprintf(b->since, sizeof(b->since), "%lld.%09lld", (long long)(nano / 1000000000),
                 (long long)(nano % 1000000000));
    if (!j)
        return;
    if (strcmp(action, "oom") == 0)
        j->oom = true;
    else if (strcmp(action, "die") == 0 || strcmp(action, "died") == 0)
        fbr_docker_job_died(j, exit_code(e));
    else if (strcmp(action, "destroy") == 0 || strcmp(action, "remove") == 0)
        fbr_docker_job_gone(j);
}

static void on_events(void *user, const void *data, size_t len)
{
    struct fbr_backend *b = user;

    b->failures = 0;
    fbr_json_lines(&b->lines, data, len, on_event, b);
}

/* The first time, no event can have been missed; later, events may have been. */
static void on_events_opened(void *user)
{
    struct fbr_backend *b = user;

    if (b->failures)
        fbr_docker_look(b);
    b->failures = 0;
}

static void on_events_end(void *user, const struct fbr_http_answer *a)
{
    struct fbr_backend *b = user;
    uint64_t ms = (uint64_t)AGAIN_MS << (b->failures < 8 ? b->failures : 8);
    char say[200];

    b->events = NULL;
    b->failures++;
    b->away = true;
    fbr_buf_fini(&b->lines.line);
    b->lines.skip = false;
    fbr_debug("docker: the events ended: %s", fbr_http_describe(a, say, sizeof(say)));
    fbr_timer_start(&b->again, ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS, 0);
}

void fbr_docker_watch(struct fbr_backend *b)
{
    char path[80], filter[120];

    snprintf(path, sizeof(path), "/events?since=%s", b->since);
    snprintf(filter, sizeof(filter), "{\"type\":[\"container\"],\"label\":[\"fiber.run=%s\"]}",
             b->run);
    b->events = fbr_docker_send(&b->engine, fbr_docker_list_path(b, path, filter),
                                (struct fbr_http_request){.method = "GET",
                                                          .data = on_events,
                                                          .opened = on_events_opened,
                                                          .done = on_events_end,
                                                          .user = b});
    if (!b->events)
        fbr_timer_start(&b->again, AGAIN_MAX_MS, 0);
}

/* ---- The list ---- */

/* Reads one container of the list; its status is such as "Exited (137) 3 seconds ago". */
static void on_listed(struct fbr_backend *b, const struct json_t *c)
{
    const char *state = fbr_json_text(c, "State", NULL), *status = fbr_json_text(c, "Status", NULL);
    struct fbr_docker_job *j = fbr_docker_find(b, fbr_json_text(c, "Id", NULL), "");
    bool awaited = j && j->awaited;
    int code;

    if (!j)
        return;
    j->awaited = false;
    if (strcmp(state, "running") == 0)
        fbr_docker_job_runs(j);
    else if (awaited && strcmp(state, "exited") == 0 && sscanf(status, "Exited (%d)", &code) == 1)
        fbr_docker_job_died(j, fbr_docker_code(code));
}

/* A container that was running when the list was requested, and is not in the list, is gone. */
static void on_list(void *user, const struct fbr_http_answer *a)
{
    struct fbr_backend *b = user;
    struct json_t *list = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    struct fbr_docker_job *j;

    b->looking = NULL;
    if (!fbr_json_is_array(list)) { /* an engine that has just begun may not be ready */
        fbr_timer_start(&b->again, LIST_AGAIN_MS, 0);
        fbr_json_free(list);
        return;
    }
    for (size_t i = 0; i < fbr_json_count(list); i++)
        on_listed(b, fbr_json_item(list, i));
    DL_FOREACH(b->jobs, j) /* removes no job now, so the list of jobs stays as it is */
        if (j->awaited)
            fbr_docker_job_gone(j);
    if (b->failures == 0)
        b->away = false;
    fbr_json_free(list);
}

/* ---- What others left ---- */

/* Removes the containers of dead masters. A master that was killed while it created containers
 * leaves those that were not started yet. */
static void on_leftovers(void *user, const struct fbr_http_answer *a)
{
    struct fbr_backend *b = user;
    struct json_t *list = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;

    for (size_t i = 0; i < fbr_json_count(list); i++) {
        const struct json_t *c = fbr_json_item(list, i);

        if (fbr_master_id_state(fbr_json_text(c, "Labels", "fiber.master", NULL)) ==
            FBR_MASTER_ID_DEAD)
            fbr_docker_send(
                &b->engine,
                fbr_docker_path(&b->engine, "/containers/%s?force=1&v=1",
                                fbr_json_text(c, "Id", NULL)),
                (struct fbr_http_request){.method = "DELETE", .done = fbr_docker_on_sent});
    }
    fbr_json_free(list);
}

void fbr_docker_sweep(struct fbr_backend *b)
{
    char filter[120];

    snprintf(filter, sizeof(filter),
             "{\"label\":[\"fiber.uid=%d\"],\"status\":[\"created\",\"exited\"]}", (int)geteuid());
    fbr_docker_send(&b->engine, fbr_docker_list_path(b, "/containers/json?all=1", filter),
                    (struct fbr_http_request){.method = "GET", .done = on_leftovers, .user = b});
}

/* ---- Looking ---- */

void fbr_docker_look(struct fbr_backend *b)
{
    struct fbr_docker_job *j;
    char filter[80];

    if (b->looking)
        return;
    DL_FOREACH(b->jobs, j)
        j->awaited = j->state >= RUNNING;
    snprintf(filter, sizeof(filter), "{\"label\":[\"fiber.run=%s\"]}", b->run);
    b->looking = fbr_docker_send(
        &b->engine, fbr_docker_list_path(b, "/containers/json?all=1", filter),
        (struct fbr_http_request){
            .method = "GET", .patience_ms = FBR_DOCKER_PATIENCE_MS, .done = on_list, .user = b});
    if (!b->looking)
        fbr_timer_start(&b->again, LIST_AGAIN_MS, 0);
}

void fbr_docker_on_again(void *backend)
{
    struct fbr_backend *b = backend;

    if (b->events)
        fbr_docker_look(b);
    else
        fbr_docker_watch(b);
}
