/* sock.h - the raw nanomsg sockets of the data channel. Only sock.c knows the library.
 *
 * Serving side: one raw REP socket for all peers, in a directory that only our user can enter; a
 * message carries the route by which it came, and the answer goes back by it. Over TCP nanomsg does
 * not serve (sp_server.h). Calling side: a raw REQ socket to one server. The sockets are raw
 * because the cooked ones resend after a minute and talk in strict pairs.
 *
 * nanomsg 1.1.5 behaves as follows, as measured. The serving side silently drops messages to a peer
 * whose pipe is still busy, so the layer above (link.h) sends the next message only when the peer
 * has said that it has the last one. The kernel keeps 10 callers for nanomsg, so we ask for more on
 * the same socket. nanomsg waits for ever for a peer that cannot be reached any more, so we set a
 * limit.
 *
 * Messages are allocated by fbr_sock_alloc() and handed over whole, without a copy. Any thread may
 * send and receive.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SOCK_H
#define FBR_SOCK_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* Longest message that is taken from a peer; a longer one ends its connection (nanomsg's default
 * would lose messages above 1 MiB in silence, and none at all lets a hostile length end the
 * process). */
#define FBR_SOCK_MAX (512 * 1024)

struct fbr_sock;

struct fbr_route {
    uint8_t len, bytes[15];
};

/* Url: "ipc:///path"; callers may also name "tcp://address:port" or "tcp://[address]:port". */
int fbr_sock_bind(struct fbr_sock **s, const char *url, struct fbr_error *err);
int fbr_sock_connect(struct fbr_sock **s, const char *url, struct fbr_error *err);
void fbr_sock_close(struct fbr_sock *s); /* NULL is fine */

/* 16-byte aligned but for a fixed offset; NULL when memory is short */
void *fbr_sock_alloc(size_t len);
void fbr_sock_free(void *msg); /* NULL is fine */

/* Sends msg (of fbr_sock_alloc) and owns it on success. The serving side needs the route and never
 * waits; the calling side waits at most timeout_ms for room (-1: as long as it takes): -EAGAIN;
 * -EPIPE when the connection is lost meanwhile. */
int fbr_sock_send(struct fbr_sock *s, const struct fbr_route *route, void *msg, int timeout_ms);
/* Receives a message, which the caller frees. -EAGAIN: there is none. */
int fbr_sock_recv(struct fbr_sock *s, struct fbr_route *route, void **msg, size_t *len);
/* Calling side: sets how long the server's host may answer nothing before the TCP connection is
 * lost. */
void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms);
/* Calling side: whether a connection was lost since the first message left. Connections that break
 * earlier have nothing to lose: nanomsg gives a busy server a second to greet, and then tries
 * again. nanomsg reconnects by itself and does not report messages that were lost with the old
 * connection. */
int fbr_sock_lost(const struct fbr_sock *s);
/* Polls readable when there is something to receive. */
int fbr_sock_fd(const struct fbr_sock *s);
/* Calling side: polls readable when there is room to send. */
int fbr_sock_room_fd(const struct fbr_sock *s);

#endif
