/* direct.h - a stream of a pipe, between the process in which the pipe lives and the process that
 * holds its other end: a unix socket, written and read by the threads that send and receive.
 *
 * Each message is u64 length (little endian) and its bytes. A message that was not sent whole
 * counts as not sent: if the stream ends within a message, the receiver drops the beginning and the
 * sender sends the message another way. Each direction ends separately and does not begin again:
 *
 *   - the sender ends it when the other side takes nothing for a moment, or by fbr_direct_stop();
 *   - the receiver ends it after it has taken all that is in the stream. The sender learns of this
 *     with its next message.
 *
 * A process that connects proves by a token that it is the process that was asked, and must run as
 * our user.
 *
 * Threads: any, unless a function says otherwise. The lock for receiving is taken before those of
 * the owner and the client, and so is the lock for sending.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "fiber.h"

#define FBR_DIRECT_TOKEN 32
#define FBR_DIRECT_PATH 108

struct fbr_direct;

/* Listens in the folder of the socket at path `beside`, and fills in `path` and `token` for the
 * other process. `longest`: bytes of a message, at most. One reference belongs to the caller. */
int fbr_direct_listen(struct fbr_direct **d, const char *beside, size_t longest,
                      char path[FBR_DIRECT_PATH], uint8_t token[FBR_DIRECT_TOKEN]);
/* Connects, without waiting, to the process that listens at `path`. */
int fbr_direct_connect(struct fbr_direct **d, const char *path,
                       const uint8_t token[FBR_DIRECT_TOKEN], size_t longest);
struct fbr_direct *fbr_direct_ref(struct fbr_direct *d);
void fbr_direct_unref(struct fbr_direct *d); /* NULL is fine */

/* Sends a message. -EAGAIN: the message was not sent, and no later one will be. -ETIMEDOUT: not
 * sent, because other threads were sending. */
int fbr_direct_send(struct fbr_direct *d, const void *data, size_t len, uint64_t deadline);
/* No message is sent after the current one. Never waits. */
void fbr_direct_stop(struct fbr_direct *d);
/* Whether sending has ended. */
bool fbr_direct_stopped(const struct fbr_direct *d);

/* For the end that listens, once the other end has answered. The caller holds the lock for
 * receiving; fbr_direct_take() needs this lock, too. */
int fbr_direct_open(struct fbr_direct *d);

/* Receiving, between lock and unlock. fbr_direct_lock() may return -ETIMEDOUT. */
int fbr_direct_lock(struct fbr_direct *d, uint64_t deadline);
void fbr_direct_unlock(struct fbr_direct *d);
/* The next message; `out` NULL: whether there is one. -EAGAIN: not yet; -EPIPE: no more will come;
 * -ENOMEM, -EMFILE: try again. */
int fbr_direct_take(struct fbr_direct *d, struct fiber_bytes *out);
/* The next take returns this message again, which the last one returned. */
void fbr_direct_put_back(struct fbr_direct *d, const struct fiber_bytes *message);
/* Waits until a take may give another result, fbr_direct_wake() is called, or the deadline has
 * come. */
void fbr_direct_sleep(struct fbr_direct *d, uint64_t deadline);
void fbr_direct_wake(struct fbr_direct *d);
/* No more messages arrive; those that are here can still be taken. */
void fbr_direct_shut(struct fbr_direct *d);

/* Ends both directions. Messages that have arrived can still be taken. Never waits. */
void fbr_direct_cut(struct fbr_direct *d);
