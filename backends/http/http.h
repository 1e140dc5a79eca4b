/* http.h - requests to an engine's API, on the loop: many at once, none of them blocks.
 *
 * One client is one server, reached over TCP with TLS or a unix socket. A request is answered
 * exactly once, by `done`, unless it is cancelled. Requests wait in line when more than `parallel`
 * are under way; streams (watches, logs) do not count. Safe requests are repeated here when the
 * server is away, busy or broken (no connection, 429, 500, 502, 503, 504), with growing random
 * pauses or as Retry-After says, until `patience_ms` is over.
 *
 * libcurl is known to http.c and http_attempt.c alone. All on the loop thread; `done` and `data`
 * may send and cancel requests, but not close the client.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_HTTP_H
#define FBR_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

struct fbr_http;
struct fbr_http_call;

/* Texts are copied. NULL or 0: none, or the default. */
struct fbr_http_options {
    const char *url;    /* "https://host:6443/prefix", "http://localhost" */
    const char *socket; /* path of a unix socket that the host of `url` is reached by */
    const char *proxy; /* "http://...", "socks5://..."; NULL: none, whatever the environment says */
    /* PEM text in memory, not files. */
    const char *ca;         /* who may have signed the server's certificate; NULL: the system's */
    const char *cert, *key; /* ours */
    /* for SNI and the check of the certificate, instead of the host of `url` */
    const char *server_name;
    bool insecure; /* the certificate is not checked; only when a person asked for it */
    const char *user, *password; /* basic authentication */
    /* Called before each attempt: the bearer token, or NULL. Its text is used before the call
     * returns to the loop. */
    const char *(*token)(void *user);
    void *token_user;
    unsigned parallel; /* requests at once; 16 */
    bool http1;        /* no HTTP/2: each request has a connection of its own */
    bool final_500;    /* 500 is the server's last word, and not repeated */
    const char *name;  /* for sentences: "the Docker engine at unix:///run/docker.sock" */
};

/* Whether TLS is why there was no answer: we do not trust their certificate; they have ended the
 * connection when they had ours, as one does that does not trust it; they speak no TLS. */
enum fbr_http_tls { FBR_HTTP_NO_MATTER, FBR_HTTP_THEIRS, FBR_HTTP_OURS, FBR_HTTP_NO_TLS };

struct fbr_http_answer {
    int status; /* 0: no answer came; `why` says why */
    enum fbr_http_tls tls;
    const char *body; /* NUL-terminated, never NULL. "" for a stream */
    size_t len;
    const char *why; /* a sentence about a transport failure; "" otherwise */
};

struct fbr_http_request {
    const char *method; /* "GET" */
    const char *path;   /* with its query, escaped (fbr_http_escape()) */
    const char *type;   /* of the body; NULL: application/json */
    const char *header; /* one more, "Name: value", which may be secret; NULL: none */
    const void *body;   /* copied */
    size_t len;
    /* > 0: the body is this file's, from its position; it stays the caller's and open until `done`.
     * Not repeated */
    int body_fd;
    /* of one attempt, from its start on the wire; 0: 60 s, for a stream none */
    uint64_t timeout_ms;
    uint64_t patience_ms; /* repeats until then; 0: one attempt */
    bool urgent;          /* before those that wait in line */
    /* With it the request is a stream: bytes of an answer with status 2xx as they come. Another
     * status is collected and told by `done` as usual. A stream is not repeated. */
    void (*data)(void *user, const void *data, size_t len);
    void (*opened)(void *user); /* of a stream: the server has said 2xx; may be NULL */
    /* The request is repeated after this answer; may be NULL. Must not send or cancel requests. */
    void (*repeats)(void *user, const struct fbr_http_answer *answer);
    void (*done)(void *user, const struct fbr_http_answer *answer);
    void *user;
};

struct fbr_http_stats {
    uint64_t requests; /* attempts that were sent */
    uint64_t repeats;
    uint64_t sent, received; /* bytes of bodies and headers */
};

int fbr_http_open(struct fbr_http **out, struct fbr_loop *loop, const struct fbr_http_options *o,
                  struct fbr_error *err);
/* Nothing is called after it. */
void fbr_http_close(struct fbr_http *h);

/* NULL and a sentence without memory. The call is gone when `done` is called. */
struct fbr_http_call *fbr_http_send(struct fbr_http *h, const struct fbr_http_request *r,
                                    struct fbr_error *err);
void fbr_http_cancel(struct fbr_http_call *call);
/* The server may have it: an attempt has begun. */
bool fbr_http_sent(const struct fbr_http_call *call);
/* Stops or goes on reading a stream, also before it has begun. */
void fbr_http_pause(struct fbr_http_call *call, bool paused);

/* Sends n requests now, `parallel` at once, and blocks until they are answered or ms are over;
 * `done` is called within. For the beginning and the end of a backend only; any thread. */
void fbr_http_now(struct fbr_http *h, const struct fbr_http_request *r, size_t n, uint64_t ms);

void fbr_http_stats(const struct fbr_http *h, struct fbr_http_stats *out);

/* Percent-encodes what is not unreserved (RFC 3986), for a segment of a path or a value of a query.
 * For free(); NULL without memory. */
char *fbr_http_escape(const char *text);

/* A sentence about an answer that is not 2xx: the message of the body ("message", as Docker and
 * Kubernetes answer), or the status, or why none came. */
const char *fbr_http_describe(const struct fbr_http_answer *a, char *out, size_t size);

#endif
