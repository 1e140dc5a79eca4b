/* sp_client.h - the calling side of a unix socket of the data channel: one connection to one
 * server, by which we speak as a raw REQ socket of nanomsg does (sp.h).
 *
 * nanomsg has a thread for its sockets, which wakes for each message and then wakes the thread that
 * waits for the message. Here the waiting thread receives.
 *
 * Threads: one thread sends at a time, and one receives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SP_CLIENT_H
#define FBR_SP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/net/sp.h"

struct fbr_sp_client;

/* Connects to the socket at this path. `most`: longest message that is taken. -EAGAIN: no server
 * was there, or greeted us, for timeout_ms; -EPROTO: the server makes no sense. */
int fbr_sp_client_open(struct fbr_sp_client **c, const char *path, size_t most, int timeout_ms);
void fbr_sp_client_close(struct fbr_sp_client *c); /* NULL is fine */

/* Sends a message of so many bytes. Waits at most timeout_ms for room (-1: as long as it takes).
 * -EAGAIN: there was none; the next call must be for the same message, a part of which may have
 * left. -EPIPE: the connection is lost. */
int fbr_sp_client_send(struct fbr_sp_client *c, const void *msg, size_t len, int timeout_ms);
/* Takes one message if there is one: 1; 0: there is none; -EPROTO or -EMSGSIZE: the server makes no
 * sense; -ENOMEM; or the error of fn. When the server has hung up it is 0, too, and nothing polls
 * readable any more: ask fbr_sp_client_lost() now and then. */
int fbr_sp_client_recv(struct fbr_sp_client *c, fbr_sp_fn fn, void *user);
bool fbr_sp_client_lost(const struct fbr_sp_client *c); /* any thread */
/* Polls readable when there may be a message. */
int fbr_sp_client_fd(const struct fbr_sp_client *c);
int fbr_sp_client_room_fd(const struct fbr_sp_client *c); /* polls readable when there is room */

#endif
