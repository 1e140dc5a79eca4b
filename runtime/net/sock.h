/* sock.h - sockets that call a server of the data channel (sp_server.h). Only sock.c knows nanomsg.
 *
 * Over TCP it is a raw REQ socket of nanomsg: raw because the cooked ones resend after a minute and
 * talk in strict pairs. nanomsg 1.1.5 waits for ever for a server that cannot be reached any more,
 * so we set a limit. To a unix socket our own client speaks the same protocol (sp_client.h).
 *
 * Messages to be sent are allocated by fbr_sock_alloc() and handed over whole, without a copy. One
 * thread may send while another one receives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SOCK_H
#define FBR_SOCK_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/sp.h"

/* Longest message that is taken from a peer; a longer one ends its connection (nanomsg's default
 * would lose messages above 1 MiB in silence, and none at all lets a hostile length end the
 * process). */
#define FBR_SOCK_MAX (512 * 1024)

struct fbr_sock;

/* Url: "ipc:///path", "tcp://address:port" or "tcp://[address]:port". -EAGAIN: nobody greeted us at
 * a unix socket for timeout_ms; over TCP the first message waits for that. */
int fbr_sock_connect(struct fbr_sock **s, const char *url, int timeout_ms, struct fbr_error *err);
void fbr_sock_close(struct fbr_sock *s); /* NULL is fine */

/* 16-byte aligned but for a fixed offset; NULL when memory is short */
void *fbr_sock_alloc(size_t len);
void fbr_sock_free(void *msg); /* NULL is fine */

/* Sends msg (of fbr_sock_alloc), of so many bytes, and owns it on success. Waits at most timeout_ms
 * for room (-1: as long as it takes): -EAGAIN, and the next call must be for the same message;
 * -EPIPE when the connection is lost meanwhile. One thread at a time. */
int fbr_sock_send(struct fbr_sock *s, void *msg, size_t len, int timeout_ms);
/* Takes one message if there is one: 1; 0: there is none; negative: the connection is lost, or the
 * error of fn. One thread at a time. */
int fbr_sock_recv(struct fbr_sock *s, fbr_sp_fn fn, void *user);
/* Sets how long the server's host may answer nothing before the TCP connection is lost. */
void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms);
/* Whether a connection was lost since the first message left. Connections that break earlier have
 * nothing to lose: nanomsg gives a busy server a second to greet, and then tries again. nanomsg
 * reconnects by itself and does not report messages that were lost with the old connection. */
int fbr_sock_lost(const struct fbr_sock *s);
/* Polls readable when there is something to receive. */
int fbr_sock_fd(const struct fbr_sock *s);
/* Polls readable when there is room to send. */
int fbr_sock_room_fd(const struct fbr_sock *s);

#endif
