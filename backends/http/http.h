/* http.h - HTTP requests to an engine's API, on the loop: many at once, none of them blocks.
 *
 * A client is for one server, which it reaches over TCP, with or without TLS, or over a unix
 * socket. `done` answers a request exactly once, unless the request is cancelled. If more than
 * `parallel` requests are under way, further requests wait in line; streams (watches, logs) do not
 * count. If the server is away, busy or broken (no connection, 429, 500, 502, 503, 504), the client
 * repeats the request until `patience_ms` is over. Between attempts it waits a growing random time,
 * plus the time of Retry-After. Streams that have begun and requests with body_fd are not repeated.
 *
 * Only http.c and http_attempt.c use libcurl. All functions run on the loop thread, except where
 * noted; `done` and `data` may send and cancel requests, but must not close the client.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

struct fbr_http;
struct fbr_http_call;

/* They and their texts belong to the caller, and stay until the client is closed. NULL or 0: not
 * set, or the default. */
struct fbr_http_options {
    const char *url;    /* "https://host:6443/prefix", "http://localhost" */
    const char *socket; /* path of a unix socket to use instead of the host of `url` */
    /* "http://...", "socks5://..." (the proxy resolves the names); NULL: no proxy, whatever the
     * environment says */
    const char *proxy;
    const char *no_proxy; /* hosts that are reached without it, as in $NO_PROXY */
    /* PEM text in memory, not files; others count from the next attempt on. */
    const char *ca;         /* accepted CAs of the server's certificate; NULL: the system's CAs */
    const char *cert, *key; /* the client's certificate */
    /* for SNI and the check of the certificate, instead of the host of `url` */
    const char *server_name;
    bool insecure; /* the certificate is not checked; only on a user's explicit request */
    const char *user, *password; /* basic authentication */
    /* Called before each attempt: returns the bearer token, or NULL. The text is used before
     * control returns to the loop. May change ca, cert and key. */
    const char *(*token)(void *user);
    void *token_user;
    unsigned parallel; /* most requests at once; 0: 16 */
    bool http1;        /* no HTTP/2: each request has a connection of its own */
    bool final_500;    /* 500 is a final answer, and not repeated */
};

/* Whether TLS is the reason why no answer came. THEIRS: we do not trust the server's certificate.
 * OURS: the server ended the connection after it received our certificate, as a server does that
 * does not trust it. NO_TLS: the server speaks no TLS. */
enum fbr_http_tls { FBR_HTTP_NO_MATTER, FBR_HTTP_THEIRS, FBR_HTTP_OURS, FBR_HTTP_NO_TLS };

struct fbr_http_answer {
    int status; /* 0: no answer came; `why` has the reason */
    enum fbr_http_tls tls;
    const char *body; /* NUL-terminated, never NULL. "" for a stream */
    size_t len;
    const char *why; /* describes a transport failure; "" otherwise */
};

struct fbr_http_request {
    const char *method; /* "GET"; not copied */
    const char *path;   /* with its query, escaped (fbr_http_escape()) */
    const char *type;   /* of the body; NULL: application/json; not copied */
    const void *body;   /* copied */
    size_t len;
    /* > 0: the body is read from this file, from its position. The caller owns the file and keeps
     * it open until `done` or fbr_http_cancel(). Not repeated. */
    int body_fd;
    /* for one attempt, from its start on the wire; 0: 60 s, no limit for a stream */
    uint64_t timeout_ms;
    uint64_t patience_ms; /* repeated until then; 0: one attempt */
    bool urgent;          /* sent before other requests that wait in line */
    /* If set, the request is a stream: receives the bytes of an answer with status 2xx as they
     * arrive. An answer with another status is collected and passed to `done` as usual. A stream is
     * not repeated after it has begun. */
    void (*data)(void *user, const void *data, size_t len);
    void (*opened)(void *user); /* for a stream: the status is 2xx; may be NULL */
    /* Called before the request is repeated after this answer; may be NULL. False: the request is
     * not repeated, and this is its answer. Must not send or cancel requests. */
    bool (*repeats)(void *user, const struct fbr_http_answer *answer);
    void (*done)(void *user, const struct fbr_http_answer *answer);
    void *user;
};

struct fbr_http_stats {
    uint64_t requests; /* attempts sent */
    uint64_t repeats;
    uint64_t sent, received; /* bytes of bodies and headers */
};

int fbr_http_open(struct fbr_http **out, struct fbr_loop *loop, const struct fbr_http_options *o,
                  struct fbr_error *err);
/* No callback runs after it. */
void fbr_http_close(struct fbr_http *h);

/* Returns NULL without memory. The call is invalid once `done` is called. */
struct fbr_http_call *fbr_http_send(struct fbr_http *h, const struct fbr_http_request *r);
void fbr_http_cancel(struct fbr_http_call *call);
/* Whether an attempt has begun, so that the server may have the request. */
bool fbr_http_sent(const struct fbr_http_call *call);
/* Stops or resumes the reading of a stream, also before the stream has begun. */
void fbr_http_pause(struct fbr_http_call *call, bool paused);

/* Sends n requests, `parallel` at once, and blocks until all are answered or `ms` are over; calls
 * `done` before it returns. Only for the opening and closing of a backend; any thread. */
void fbr_http_now(struct fbr_http *h, const struct fbr_http_request *r, size_t n, uint64_t ms);

void fbr_http_stats(const struct fbr_http *h, struct fbr_http_stats *out);

/* Percent-encodes all characters that are not unreserved (RFC 3986), for a segment of a path or a
 * value of a query. For free(); NULL without memory. */
char *fbr_http_escape(const char *text);

/* Returns the path of a request, for free(): a, b and c, then the formatted rest. The parts must
 * need no escaping. NULL without memory. */
char *fbr_http_path(const char *a, const char *b, const char *c, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Describes an answer that is not 2xx: the field "message" of the body (Docker and Kubernetes set
 * it), or the status, or the reason why no answer came. */
const char *fbr_http_describe(const struct fbr_http_answer *a, char *out, size_t size);
