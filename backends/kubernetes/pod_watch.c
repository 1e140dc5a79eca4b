/* pod_watch.c - one list and one watch of pods.
 *
 *     LISTING    GET, in pages                          -> WATCHING, or RESTING when it fails
 *     WATCHING   GET with watch=1 from the list's end   -> WATCHING when the server ends it or is
 *                                                       silent, LISTING after a 410 or after three
 *                                                       immediate ends in a row, RESTING when the
 *                                                       server is away, or before a LISTING when
 *                                                       the watch has ended at once
 *     RESTING    a growing random pause                 -> the state before the pause
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/pod_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"
#include "runtime/base/buf.h"
#include "runtime/base/log.h"

#define PAGE 500
#define PATIENCE_MS 60000
#define MIN_S 240
#define MAX_S 300
#define LATE_MS 30000   /* most ms that the server may exceed the requested duration */
#define SILENT_MS 90000 /* a live server sends a bookmark each minute */
#define AT_ONCE_MS 5000 /* a busy machine may notice an end seconds late */
#define AT_ONCE_TIMES 3
#define REST_MS 250
#define REST_MAX_MS 30000

struct fbr_kube_watch {
    struct fbr_kube_api *api;
    char *selector;
    struct fbr_kube_watch_ops ops;
    void *user;
    char version[64]; /* resourceVersion */
    char *next;       /* `continue` of a list in pages, escaped; NULL: the list begins */
    bool list;        /* the next request is a list */
    bool expired;     /* the server reported 410: list again */
    struct fbr_http_call *stream;
    struct fbr_json_lines lines;
    uint64_t began;
    unsigned events, at_once, rests;
    struct fbr_timer rest;
};

static void go_on(struct fbr_kube_watch *w);

static void drop_lines(struct fbr_kube_watch *w)
{
    fbr_buf_fini(&w->lines.line);
    w->lines = (struct fbr_json_lines){0};
}

/* The pause is over, or a watch has been silent for too long. */
static void on_rested(void *arg)
{
    struct fbr_kube_watch *w = arg;

    if (w->stream) {
        fbr_debug("kubernetes: the watch has been silent for %d s; starting another one",
                  SILENT_MS / 1000);
        fbr_http_cancel(w->stream);
        w->stream = NULL;
        drop_lines(w);
    }
    go_on(w);
}

static void rest(struct fbr_kube_watch *w)
{
    uint64_t ms = (uint64_t)REST_MS << (w->rests < 8 ? w->rests : 8);

    w->rests++;
    ms = ms < REST_MAX_MS ? ms : REST_MAX_MS;
    fbr_timer_start(&w->rest, ms / 2 + fbr_now_ns() % (ms / 2 + 1), 0);
}

/* ---- The list ---- */

static void keep_version(struct fbr_kube_watch *w, const char *text)
{
    snprintf(w->version, sizeof(w->version), "%s", strlen(text) < sizeof(w->version) ? text : "");
}

static void begin_list(struct fbr_kube_watch *w)
{
    free(w->next);
    w->next = NULL;
}

/* False: there is no memory to ask for the next page. */
static bool take_page(struct fbr_kube_watch *w, const struct json_t *page)
{
    const struct json_t *items = fbr_json_at(page, "items", NULL);
    const char *more = fbr_json_text(page, "metadata", "continue", NULL);

    for (size_t i = 0; i < fbr_json_count(items); i++)
        w->ops.pod(w->user, fbr_json_item(items, i), false);
    keep_version(w, fbr_json_text(page, "metadata", "resourceVersion", NULL));
    begin_list(w);
    if (more[0]) {
        w->next = fbr_http_escape(more);
        return w->next != NULL;
    }
    w->list = false;
    w->rests = w->at_once = 0;
    w->ops.listed(w->user);
    return true;
}

static void trouble(struct fbr_kube_watch *w, const struct fbr_http_answer *a, const char *what)
{
    char text[512];

    fbr_kube_describe(w->api, a, what, text, sizeof(text));
    w->ops.trouble(w->user, text);
}

static void on_page(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_watch *w = user;
    struct json_t *page = a->status == 200 ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    bool good = page && take_page(w, page);

    fbr_json_free(page);
    if (good) {
        go_on(w);
        return;
    }
    begin_list(w); /* it broke off, or expired */
    if (a->status != 410)
        trouble(w, a, "list pods");
    rest(w);
}

static void list(struct fbr_kube_watch *w)
{
    if (!w->next)
        w->ops.listing(w->user);
    if (fbr_kube_send(w->api, "GET",
                      fbr_kube_path(w->api, "pods?labelSelector=%s&limit=%d%s%s", w->selector, PAGE,
                                    w->next ? "&continue=" : "", w->next ? w->next : ""),
                      NULL, PATIENCE_MS, on_page, w) < 0)
        rest(w);
}

/* ---- The watch ---- */

static void on_event(void *user, const struct json_t *event)
{
    struct fbr_kube_watch *w = user;
    const struct json_t *object = fbr_json_at(event, "object", NULL);
    const char *type = fbr_json_text(event, "type", NULL),
               *version = fbr_json_text(object, "metadata", "resourceVersion", NULL);

    if (!strcmp(type, "ERROR")) {
        w->expired |= fbr_json_int(object, 0, "code", NULL) == 410;
        if (!w->expired)
            fbr_debug("kubernetes: watch: %s", fbr_json_text(object, "message", NULL));
    } else if (version[0]) {
        w->events++;
        keep_version(w, version);
        if (strcmp(type, "BOOKMARK") != 0)
            w->ops.pod(w->user, object, !strcmp(type, "DELETED"));
    }
}

static void on_bytes(void *user, const void *data, size_t len)
{
    struct fbr_kube_watch *w = user;

    fbr_timer_start(&w->rest, SILENT_MS, 0);
    fbr_json_lines(&w->lines, data, len, on_event, w);
}

static void on_stream_end(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_watch *w = user;
    bool at_once = w->events == 0 && fbr_now_ms() < w->began + AT_ONCE_MS;

    w->stream = NULL;
    fbr_timer_stop(&w->rest);
    if (a->status == 0)
        w->api->away_at = fbr_now_ms();
    /* also if an event is lost */
    w->expired |= a->status == 410 || w->lines.lost || w->lines.line.failed;
    drop_lines(w);
    w->at_once = at_once ? w->at_once + 1 : 0;
    if (w->events)
        w->rests = 0;
    if (w->expired || (a->status == 200 && w->at_once >= AT_ONCE_TIMES)) {
        w->list = true;
        if (w->expired)
            w->rests = 0; /* the server is back */
        if (at_once)
            rest(w);
        else
            go_on(w);
        return;
    }
    if (a->status == 401)
        fbr_kube_creds_refused(w->api->creds);
    if (a->status == 200 && !at_once) {
        go_on(w);
        return;
    }
    if (a->status != 200 && w->rests >= 3) /* a single failure is not reported */
        trouble(w, a, "watch pods");
    rest(w);
}

static void watch(struct fbr_kube_watch *w)
{
    unsigned seconds = MIN_S + (unsigned)(fbr_now_ns() % (MAX_S - MIN_S));
    char *path = fbr_kube_path(w->api,
                               "pods?labelSelector=%s&watch=1&allowWatchBookmarks=true&"
                               "resourceVersion=%s&timeoutSeconds=%u",
                               w->selector, w->version, seconds);
    const struct fbr_http_request r = {.method = "GET",
                                       .path = path,
                                       .timeout_ms = seconds * 1000 + LATE_MS,
                                       .data = on_bytes,
                                       .done = on_stream_end,
                                       .user = w};

    w->events = 0;
    w->expired = false;
    w->began = fbr_now_ms();
    w->stream = path ? fbr_http_send(w->api->streams, &r) : NULL;
    free(path);
    if (w->stream)
        fbr_timer_start(&w->rest, SILENT_MS, 0);
    else
        rest(w);
}

static void go_on(struct fbr_kube_watch *w)
{
    if (w->list)
        list(w);
    else
        watch(w);
}

/* ---- All ---- */

int fbr_kube_watch_open(struct fbr_kube_watch **out, struct fbr_kube_api *api, const char *selector,
                        const struct fbr_kube_watch_ops *ops, void *user, struct fbr_error *err)
{
    struct fbr_kube_watch *w = calloc(1, sizeof(*w));

    if (!w)
        return fbr_fail(err, -ENOMEM, "out of memory");
    w->api = api;
    w->ops = *ops;
    w->user = user;
    w->list = true;
    w->selector = strdup(selector);
    if (!w->selector || fbr_timer_init(&w->rest, api->loop, on_rested, w) < 0) {
        fbr_kube_watch_close(w);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    *out = w;
    list(w);
    return 0;
}

bool fbr_kube_watch_rests(const struct fbr_kube_watch *w)
{
    return !w->stream;
}

void fbr_kube_watch_close(struct fbr_kube_watch *w)
{
    if (!w)
        return;
    fbr_http_cancel(w->stream);
    fbr_timer_fini(&w->rest);
    drop_lines(w);
    free(w->next);
    free(w->selector);
    free(w);
}
