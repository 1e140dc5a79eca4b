/* http_server.h - a small HTTP server for tests: on a unix socket or on the loopback, with TLS or without; each
 * connection has its thread, and the test says what is answered.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct http_server;
struct http_peer; /* a connection */

struct http_asked {
    char method[16], path[512], authorization[256], type[128];
    const char *body;
    size_t len;
    int number;     /* of the request at this server, from 1 */
    bool certified; /* the client has shown a certificate */
};

/* Answers one request, in the thread of its connection. False: the connection is closed. */
typedef bool http_answer(struct http_peer *p, const struct http_asked *q, void *user);

/* On a unix socket at `path`, or, with NULL, on a port of 127.0.0.1; with `tls` under the certificate for the name
 * "engine.test". */
struct http_server *http_server_open(const char *path, bool tls, http_answer *answer, void *user);
/* Cuts all connections and joins all threads. */
void http_server_close(struct http_server *s);
int http_server_port(const struct http_server *s);
int http_server_asked(struct http_server *s);    /* requests until now */
int http_server_most(struct http_server *s);     /* that were under way at once */
int http_server_accepted(struct http_server *s); /* connections */
/* PEM: the authority that signed the server's certificate and signs clients'; a client's certificate and key. */
const char *http_server_ca(const struct http_server *s);
const char *http_server_cert(const struct http_server *s);
const char *http_server_key(const struct http_server *s);

/* A whole answer. `headers` are whole lines with CR LF; may be "". */
bool http_say(struct http_peer *p, int status, const char *headers, const char *body);
/* Bytes as they are; false: the client is gone. */
bool http_write(struct http_peer *p, const void *data, size_t len);
/* Ends the connection, which must be over TCP, by a reset; what the client has not read is lost. */
void http_reset(struct http_peer *p);
/* Blocks until the client or the server has closed. */
void http_wait_for_end(struct http_peer *p);
