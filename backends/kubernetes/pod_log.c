/* pod_log.c - reads logs of containers from the API server.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/pod_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kubernetes/pod_state.h"
#include "runtime/base/log.h"

#define AGAIN_MS 1000
#define TRIES 5 /* consecutive tries without a byte */

/* ---- Lines ---- */

static bool is_stamp(const char *s)
{
    for (const char *form = "0000-00-00T00:00:00"; *form; form++, s++)
        if (*form == '0' ? *s < '0' || *s > '9' : *s != *form)
            return false;
    return true;
}

/* A stamp is complete: checks whether its line was already passed on before the break. */
static void begin_line(struct fbr_kube_lines *l)
{
    int order;

    l->head[l->head_len] = '\0';
    if (!is_stamp(l->head)) { /* the line is an error message of the node's agent */
        l->in_text = l->dropping = l->foreign = true;
        return;
    }
    order = l->skip_to[0] ? strcmp(l->head, l->skip_to) : 1;
    l->in_text = true;
    l->dropping = order < 0 || (order == 0 && l->skip > 0);
    if (order == 0 && l->skip > 0)
        l->skip--;
    if (l->dropping)
        return;
    if (order > 0)
        l->skip_to[0] = '\0';
    if (order == 0 && l->partial) {
        l->eat = l->partial;
        return;
    }
    l->partial = 0;
    l->same = strcmp(l->head, l->stamp) == 0 ? l->same + 1 : 1;
    memcpy(l->stamp, l->head, sizeof(l->stamp));
}

/* Passes on a line, or a piece of it. */
static void take_text(struct fbr_kube_lines *l, const char *at, size_t n,
                      void (*out)(void *user, const void *data, size_t len), void *user)
{
    size_t known = l->eat < n ? l->eat : n;
    bool whole = at[n - 1] == '\n';

    if (whole) {
        l->in_text = false;
        l->head_len = 0;
    }
    if (l->dropping)
        return;
    l->eat -= known;
    if (n > known)
        out(user, at + known, n - known);
    l->partial = whole ? 0 : l->partial + n - known;
}

void fbr_kube_lines_add(struct fbr_kube_lines *l, const void *data, size_t len,
                        void (*out)(void *user, const void *data, size_t len), void *user)
{
    const char *at = data, *end = at + len;

    while (at < end) {
        if (l->in_text) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            size_t n = newline ? (size_t)(newline + 1 - at) : (size_t)(end - at);

            take_text(l, at, n, out, user);
            at += n;
        } else if (*at == ' ') {
            begin_line(l);
            at++;
        } else if (l->head_len == FBR_KUBE_STAMP - 1) { /* too long for a stamp */
            begin_line(l);
        } else if (*at == '\n') {
            l->head_len = 0;
            at++;
        } else {
            l->head[l->head_len++] = *at++;
        }
    }
}

bool fbr_kube_lines_resume(struct fbr_kube_lines *l)
{
    l->in_text = l->foreign = false;
    l->head_len = l->eat = 0;
    if (!l->stamp[0])
        return false;
    memcpy(l->skip_to, l->stamp, sizeof(l->skip_to));
    l->skip = l->same - (l->partial > 0);
    return true;
}

/* ---- The stream ---- */

struct fbr_kube_log {
    struct fbr_kube_api *api;
    struct fbr_kube_log_options o;
    char *pod;
    struct fbr_kube_lines lines;
    struct fbr_http_call *stream;
    struct fbr_timer again;
    unsigned tries;
    bool paused, refused, broke;
    bool answered; /* the server has given the log, or a part of it */
};

static void on_text(void *user, const void *data, size_t len)
{
    struct fbr_kube_log *l = user;

    l->tries = 0;
    l->o.data(l->o.user, data, len);
}

static void on_bytes(void *user, const void *data, size_t len)
{
    struct fbr_kube_log *l = user;

    l->api->had_logs = l->answered = true;
    fbr_kube_lines_add(&l->lines, data, len, on_text, l);
}

static void on_end(void *user, const struct fbr_http_answer *a)
{
    struct fbr_kube_log *l = user;
    /* A server that has just started refuses for some seconds requests that it later allows again.
     * If a node's agent cannot read a log, because its container runtime is slow, the agent writes
     * so into the log. */
    bool away = a->status == 0 || (a->status == 200 && l->lines.foreign) || a->status == 429 ||
                a->status >= 500 || a->status == 401 || (a->status == 403 && l->api->had_logs);

    l->stream = NULL;
    l->answered |= a->status == 200;
    /* also an agent that has just started, and does not know its pods yet */
    l->broke |= away || (l->answered && a->status != 200);
    if (a->status == 401)
        fbr_kube_creds_refused(l->api->creds);
    if (a->status == 400 || away) {
        if (++l->tries < TRIES) { /* 400: the container has not started yet */
            fbr_timer_start(&l->again, AGAIN_MS, 0);
            return;
        }
        fbr_debug("kubernetes: log of %s: HTTP status %d %s", l->pod, a->status, a->why);
    } else if (a->status == 403 && !l->api->no_logs) {
        l->api->no_logs = true;
        fbr_warn("kubernetes: the output of pods cannot be read, because `get` on pods/log is not "
                 "allowed");
    }
    l->refused = !l->answered && !away;
    l->o.done(l->o.user);
}

/* Writes the second of a stamp, with its zone: this parameter has no fractions of a second. */
static void format_since(char *out, size_t size, const char *stamp)
{
    const char *zone = stamp + (strlen(stamp) > 19 ? 19 : strlen(stamp));

    if (*zone == '.')
        zone += 1 + strspn(zone + 1, "0123456789");
    snprintf(out, size, "&sinceTime=%.19s%s%s", stamp, *zone == '+' ? "%2B" : "",
             *zone == '+' ? zone + 1 : zone);
}

static void begin(void *arg)
{
    struct fbr_kube_log *l = arg;
    char since[FBR_KUBE_STAMP + 16] = "", tail[32] = "", *path;
    struct fbr_http_request r = {.method = "GET", .data = on_bytes, .done = on_end, .user = l};

    if (fbr_kube_lines_resume(&l->lines))
        format_since(since, sizeof(since), l->lines.stamp);
    else if (l->o.tail)
        snprintf(tail, sizeof(tail), "&tailLines=%u", l->o.tail);
    path =
        fbr_kube_path(l->api, "pods/%s/log?container=" FBR_KUBE_CONTAINER "&timestamps=true%s%s%s",
                      l->pod, l->o.follow ? "&follow=true" : "", since, tail);
    r.path = path;
    l->stream = path ? fbr_http_send(l->api->streams, &r) : NULL;
    free(path);
    if (!l->stream)
        fbr_timer_start(&l->again, AGAIN_MS, 0);
    else if (l->paused)
        fbr_http_pause(l->stream, true);
}

int fbr_kube_log_open(struct fbr_kube_log **out, struct fbr_kube_api *api,
                      const struct fbr_kube_log_options *o)
{
    struct fbr_kube_log *l = calloc(1, sizeof(*l));

    if (!l)
        return -ENOMEM;
    l->api = api;
    l->o = *o;
    l->pod = strdup(o->pod);
    if (!l->pod || fbr_timer_init(&l->again, api->loop, begin, l) < 0) {
        free(l->pod);
        free(l);
        return -ENOMEM;
    }
    *out = l;
    begin(l);
    return 0;
}

void fbr_kube_log_close(struct fbr_kube_log *l)
{
    if (!l)
        return;
    fbr_http_cancel(l->stream);
    fbr_timer_fini(&l->again);
    free(l->pod);
    free(l);
}

void fbr_kube_log_pause(struct fbr_kube_log *l, bool paused)
{
    l->paused = paused;
    if (l->stream)
        fbr_http_pause(l->stream, paused);
}

bool fbr_kube_log_is_refused(const struct fbr_kube_log *l)
{
    return l->refused;
}

bool fbr_kube_log_is_whole(const struct fbr_kube_log *l)
{
    return !l->broke;
}

bool fbr_kube_log_resume(struct fbr_kube_log *l)
{
    if (!l->stream && !l->refused)
        begin(l);
    return !l->refused;
}
