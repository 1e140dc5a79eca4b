/* http_bench.h - a client and a server for tests of requests: what the server answers at which path, and what came of a
 * request.
 *
 *   /echo        method, type, length and body
 *   /fails       `status` and `headers` for the first requests, or the end of the connection when it is 0; then 200
 *   /breaks      `raw` for the first requests, and the end of the connection, or its reset; then 200
 *   /token       503 once, then what the header Authorization said
 *   /held        says that it came, and answers when it is let go
 *   /hangs       says that it came, and never answers; and says when the client has gone
 *   /stream      "one", and, when it is let go, "two"
 *   /much        4 MiB; /too-much: more than an answer may have
 *   /certified   whether the client has shown a certificate
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <semaphore.h>
#include <stdbool.h>

#include "backends/http/http.h"
#include "runtime/base/buf.h"
#include "tests/support/http_server.h"

#define HTTP_PIECE 16384
#define HTTP_MUCH 256 /* pieces */

/* What a test and its server tell each other. */
struct stage {
    sem_t go, come; /* the test: go on; the server: I am there */
    int fails;      /* answer so many with `status`, or with none when it is 0; break so many */
    int status, held;
    const char *headers, *raw;
    bool reset;
};

struct got {
    struct bench *b;
    sem_t done, more;
    int answers, status, opened,
        stop_at; /* stop_at: the stream is paused, or cancelled, after so many bytes */
    enum fbr_http_tls tls;
    bool cancel, resend;
    size_t len;
    struct fbr_buf stream;
    char body[700], why[300];
    struct fbr_http_call *call;
    struct got *other; /* is sent or cancelled from within a callback */
    struct fbr_http_request r;
};

struct bench {
    struct fbr_loop *loop;
    struct fbr_http *http;
    struct http_server *server;
    struct stage stage;
    struct fbr_http_options o;
    char dir[64], path[108], url[64];
};

/* Waits for it; a minute is a failure. */
void sem_come(sem_t *s);

/* A request and a stream, to be sent. */
void got_init(struct got *g, struct bench *b, const char *method, const char *path);
void got_stream(struct got *g, struct bench *b, const char *path);
void got_send(struct got *g);
void got_ask(struct got *g); /* and waits for the answer */

/* On the loop, by fbr_loop_call(). */
int got_send_it(void *got);
int got_cancel(void *got);
int got_go_on(void *got);
int bench_close(void *bench);

/* Another client, as bench->o says now. */
void bench_reopen(struct bench *b);

/* Of cmocka: a server on a unix socket, or with TLS on a port, and a client. */
int bench_set_up(void **state);
int bench_set_up_tls(void **state);
int bench_tear_down(void **state);
