/* sock.h - client sockets of the data channel, which connect to a server (sp_server.h). Only sock.c
 * knows nanomsg.
 *
 * Over TCP a socket is a raw REQ socket of nanomsg. It is raw because cooked sockets resend after a
 * minute and strictly alternate requests and answers. nanomsg 1.1.5 waits for ever for a server
 * that has become unreachable, so we set a limit. Over a unix socket our own client speaks the same
 * protocol (sp_client.h).
 *
 * Messages to send are allocated with fbr_sock_alloc() and handed over without a copy. One thread
 * may send while another one receives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/error.h"
#include "runtime/net/sp.h"

/* Longest message accepted from a peer; a longer one ends its connection. (nanomsg's default would
 * silently lose messages above 1 MiB; without a limit, a hostile length could end the process.) */
#define FBR_SOCK_MAX (512 * 1024)

struct fbr_sock;

/* Connects to "unix:/path", "tcp://address:port" or "tcp://[address]:port". -EAGAIN: no server
 * greeted us at a unix socket for timeout_ms. Over TCP the call does not wait, but the first
 * message does. */
int fbr_sock_connect(struct fbr_sock **s, const char *url, int timeout_ms, struct fbr_error *err);
void fbr_sock_close(struct fbr_sock *s); /* NULL is fine */

/* Returns memory whose address is a fixed offset from a multiple of 16. NULL: out of memory. */
void *fbr_sock_alloc(size_t len);
void fbr_sock_free(void *msg); /* NULL is fine */

/* Sends msg (from fbr_sock_alloc), of len bytes, and owns it on success. Waits at most timeout_ms
 * for room (-1: without limit). -EAGAIN: there was no room, and the next call must be for the same
 * message. -EPIPE: the connection was lost meanwhile. One thread at a time. */
int fbr_sock_send(struct fbr_sock *s, void *msg, size_t len, int timeout_ms);
/* Takes one message, or over a unix socket those that have come. 1: fn has handled them. 0: there
 * is none, or the last one is incomplete. Negative: the connection is lost, or the error of fn. One
 * thread at a time. */
int fbr_sock_recv(struct fbr_sock *s, fbr_sp_fn fn, void *user);
/* Sets how long the server's host may answer nothing before the TCP connection is lost. */
void fbr_sock_patience(const struct fbr_sock *s, uint64_t ms);
/* Whether a connection was lost since the first message left. Earlier connections carry nothing
 * that could be lost: nanomsg gives a busy server a second to greet, and then connects again.
 * nanomsg reconnects by itself and does not report messages that were lost with the old
 * connection. */
int fbr_sock_lost(const struct fbr_sock *s);
/* Returns a descriptor that polls readable when there is something to receive. */
int fbr_sock_fd(const struct fbr_sock *s);
/* Returns a descriptor that polls readable when there is room to send. */
int fbr_sock_room_fd(const struct fbr_sock *s);
