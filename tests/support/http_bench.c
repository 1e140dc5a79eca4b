/* http_bench.c - a client and a server for tests of requests; see http_bench.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/http_bench.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/sync.h"

#define LONG_S 60

/* ---- The server's side ---- */

void sem_come(sem_t *s)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_S;
    if (sem_timedwait(s, &until) < 0)
        fail_msg("nothing came");
}

static bool begin_stream(struct http_peer *p)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

    return http_write(p, head, sizeof(head) - 1);
}

static bool stream_much(struct http_peer *p, size_t pieces)
{
    static const char piece[HTTP_PIECE];

    while (pieces--)
        if (!http_write(p, piece, HTTP_PIECE))
            return false;
    return false;
}

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct stage *s = user;
    char text[600];

    if (strcmp(q->path, "/echo") == 0) {
        snprintf(text, sizeof(text), "%s %s %zu %.100s", q->method, q->type, q->len, q->body);
        return http_say(p, 200, "", text);
    }
    if (strcmp(q->path, "/fails") == 0) {
        if (q->number > s->fails)
            return http_say(p, 200, "", "at last");
        return s->status && http_say(p, s->status, s->headers, "{\"message\":\"not now\"}");
    }
    if (strcmp(q->path, "/breaks") == 0) {
        if (q->number > s->fails)
            return http_say(p, 200, "", "at last");
        http_write(p, s->raw, strlen(s->raw));
        if (s->reset)
            http_reset(p);
        return false;
    }
    if (strcmp(q->path, "/token") == 0)
        return http_say(p, q->number < 2 ? 503 : 200, "", q->authorization);
    if (strcmp(q->path, "/held") == 0) {
        sem_post(&s->come);
        sem_come(&s->go);
        return http_say(p, 200, "", "late");
    }
    if (strcmp(q->path, "/hangs") == 0) {
        sem_post(&s->come);
        http_wait_for_end(p);
        sem_post(&s->come);
        return false;
    }
    if (strcmp(q->path, "/stream") == 0) {
        begin_stream(p);
        http_write(p, "one", 3);
        sem_come(&s->go);
        http_write(p, "two", 3);
        return false;
    }
    if (strcmp(q->path, "/much") == 0)
        return begin_stream(p) && stream_much(p, HTTP_MUCH);
    if (strcmp(q->path, "/too-much") == 0)
        return begin_stream(p) && stream_much(p, (64u << 20) / HTTP_PIECE + 2);
    if (strcmp(q->path, "/certified") == 0)
        return http_say(p, 200, "", q->certified ? "yes" : "no");
    return http_say(p, 404, "", "{\"message\":\"no \\u003csuch\\u003e\\nthing\"}");
}

/* ---- The client's side ---- */

static void on_done(void *user, const struct fbr_http_answer *a)
{
    struct got *g = user;

    g->answers++;
    g->status = a->status;
    g->tls = a->tls;
    g->len = a->len;
    assert_int_equal(a->body[a->len], 0);
    snprintf(g->body, sizeof(g->body), "%s", a->body);
    snprintf(g->why, sizeof(g->why), "%s", a->why);
    g->call = NULL;
    if (g->resend)
        g->other->call = fbr_http_send(g->b->http, &g->other->r);
    else if (g->other && g->other->call)
        fbr_http_cancel(g->other->call);
    sem_post(&g->done);
}

static void on_data(void *user, const void *data, size_t len)
{
    struct got *g = user;

    fbr_put(&g->stream, data, len);
    if (g->stop_at && g->stream.len >= (size_t)g->stop_at) {
        g->stop_at = 0;
        if (g->cancel) {
            fbr_http_cancel(g->call);
            g->call = NULL;
        } else {
            fbr_http_pause(g->call, true);
        }
        if (g->other)
            g->other->call = fbr_http_send(g->b->http, &g->other->r);
    }
    sem_post(&g->more);
}

static void on_opened(void *user)
{
    struct got *g = user;

    g->opened++;
}

void got_init(struct got *g, struct bench *b, const char *method, const char *path)
{
    memset(g, 0, sizeof(*g));
    g->b = b;
    sem_init(&g->done, 0, 0);
    sem_init(&g->more, 0, 0);
    g->r = (struct fbr_http_request){.method = method, .path = path, .done = on_done, .user = g};
}

void got_stream(struct got *g, struct bench *b, const char *path)
{
    got_init(g, b, "GET", path);
    g->r.data = on_data;
    g->r.opened = on_opened;
}

int got_send_it(void *arg)
{
    struct got *g = arg;

    g->call = fbr_http_send(g->b->http, &g->r);
    return g->call ? 0 : -ENOMEM;
}

void got_send(struct got *g)
{
    assert_int_equal(fbr_loop_call(g->b->loop, got_send_it, g), 0);
}

void got_ask(struct got *g)
{
    got_send(g);
    sem_come(&g->done);
    assert_int_equal(g->answers, 1);
}

int got_cancel(void *arg)
{
    struct got *g = arg;

    fbr_http_cancel(g->call);
    g->call = NULL;
    return 0;
}

int got_go_on(void *arg)
{
    struct got *g = arg;

    fbr_http_pause(g->call, false);
    return 0;
}

static int open_it(void *arg)
{
    struct bench *b = arg;

    return fbr_http_open(&b->http, b->loop, &b->o, NULL);
}

int bench_close(void *arg)
{
    struct bench *b = arg;

    fbr_http_close(b->http);
    b->http = NULL;
    return 0;
}

void bench_reopen(struct bench *b)
{
    fbr_loop_call(b->loop, bench_close, b);
    assert_int_equal(fbr_loop_call(b->loop, open_it, b), 0);
}

static struct bench *make_bench(bool tls)
{
    struct bench *b = calloc(1, sizeof(*b));

    sem_init(&b->stage.go, 0, 0);
    sem_init(&b->stage.come, 0, 0);
    b->stage.headers = "";
    temp_dir_make(b->dir);
    snprintf(b->path, sizeof(b->path), "%s/s", b->dir);
    b->server = http_server_open(tls ? NULL : b->path, tls, answer, &b->stage);
    if (tls)
        snprintf(b->url, sizeof(b->url), "https://127.0.0.1:%d", http_server_port(b->server));
    b->o.url = tls ? b->url : "http://localhost";
    b->o.socket = tls ? NULL : b->path;
    b->o.http1 = true;
    assert_int_equal(fbr_loop_open(&b->loop, NULL), 0);
    assert_int_equal(fbr_loop_call(b->loop, open_it, b), 0);
    return b;
}

int bench_set_up(void **state)
{
    *state = make_bench(false);
    return 0;
}

int bench_set_up_tls(void **state)
{
    *state = make_bench(true);
    return 0;
}

int bench_tear_down(void **state)
{
    struct bench *b = *state;

    fbr_loop_call(b->loop, bench_close, b);
    fbr_loop_close(b->loop);
    http_server_close(b->server);
    temp_dir_remove(b->dir);
    free(b);
    return 0;
}
