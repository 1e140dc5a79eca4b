/* sp_client.h - the client side of a unix socket of the data channel: one connection to one server.
 *
 * It speaks the protocol of a raw REQ socket of nanomsg (sp.h). nanomsg has a thread for its
 * sockets, which wakes for each message and then wakes the thread that waits for the message. Here
 * the waiting thread itself receives.
 *
 * Threads: at most one thread at a time sends, and at most one receives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/net/sp.h"

struct fbr_sp_client;

/* Connects to the socket at this path. `most`: longest message accepted. -EAGAIN: for timeout_ms
 * there was no server, or no greeting from it. -EPROTO: the server does not speak our protocol. */
int fbr_sp_client_open(struct fbr_sp_client **c, const char *path, size_t most, int timeout_ms);
void fbr_sp_client_close(struct fbr_sp_client *c); /* NULL is fine */

/* Sends a message of len bytes. Waits at most timeout_ms for room (-1: without limit). -EAGAIN:
 * there was no room; the next call must be for the same message, a part of which may have left.
 * -EPIPE: the connection is lost. */
int fbr_sp_client_send(struct fbr_sp_client *c, const void *msg, size_t len, int timeout_ms);
/* Takes the messages that have come. 1: fn has handled them. 0: there is none, or the last one is
 * incomplete; fn has handled those before it. -EPROTO or -EMSGSIZE: the server does not speak our
 * protocol. -ENOMEM; or the error of fn. If the server has hung up, the result is also 0, and the
 * descriptor does not poll readable any more, so check fbr_sp_client_lost() from time to time. */
int fbr_sp_client_recv(struct fbr_sp_client *c, fbr_sp_fn fn, void *user);
bool fbr_sp_client_lost(const struct fbr_sp_client *c); /* any thread */
/* Returns a descriptor that polls readable when there may be a message. */
int fbr_sp_client_fd(const struct fbr_sp_client *c);
int fbr_sp_client_room_fd(const struct fbr_sp_client *c); /* polls readable when there is room */
