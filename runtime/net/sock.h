/* sock.h - nanomsg: the raw sockets of the data channel. The one place that knows the library.
 *
 * Serving side: one raw REP socket for all peers, in a directory that only our user can enter; a
 * message carries the route it came by, and goes back by it. Over TCP nanomsg does not serve
 * (sp_server.h). Calling side: a raw REQ socket to one server. Raw, because the cooked ones resend
 * after a minute and talk in strict pairs.
 *
 * What nanomsg 1.1.5 does, measured: the serving side silently drops what it sends to a peer whose
 * pipe is still busy, so the layer above (link.h) sends the next message only when the peer has
 * said that it has the last one. It has the kernel keep 10 callers for it, so we ask for more on the
 * same socket. It waits for ever for a peer that cannot be reached any more, so we set the time.
 *
 * Messages are allocated by fbr_sock_alloc and handed over whole, without a copy. Any thread may
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

void *
fbr_sock_alloc(size_t len); /* 16-byte aligned but for a fixed offset; NULL when memory is short */
void fbr_sock_free(void *msg); /* NULL is fine */

/* Sends msg (of fbr_sock_alloc) and owns it on success. The serving side needs the route and never
 * waits; the calling side waits at most timeout_ms for room (-1: as long as it takes): -EAGAIN; -EPIPE
 * when the connection is lost meanwhile. */
int fbr_sock_send(struct fbr_sock *s, const struct fbr_route *route, void *msg, int timeout_ms);
/* -EAGAIN: nothing there. The caller frees *msg. */
int fbr_sock_recv(struct fbr_sock *s, struct fbr_route *route, void **msg, size_t *len);
/* Calling side: its TCP connection is lost when the server's host has answered nothing for so
 * long. */
void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms);
/* Calling side: the connection was lost once since the first message left. Those that break before have
 * nothing to lose: nanomsg gives a busy server a second to greet, and then tries again. It makes a new
 * one by itself and says nothing of what was lost with the old one. */
int fbr_sock_lost(const struct fbr_sock *s);
/* Polls readable when there is something to receive. */
int fbr_sock_fd(const struct fbr_sock *s);
/* Of a calling side: polls readable when there is room to send. */
int fbr_sock_room_fd(const struct fbr_sock *s);

#endif
