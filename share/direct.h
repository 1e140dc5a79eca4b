/* direct.h - a stream of a pipe's own, between the process in which it lives and the one that holds
 * its other end: a unix socket, written and read by the threads that send and receive.
 *
 * Each message is u64 length (little endian) and its bytes. A message that was not sent whole was
 * not sent: the receiver drops the beginning of a message behind which the stream ends, and the
 * sender sends it by another way. Each direction ends for itself and does not begin again:
 *
 *   - by the sender, when the other side takes nothing for a moment, or when it is told to stop;
 *   - by the receiver, which first takes all that is in it. The sender finds out by its next
 *     message.
 *
 * A process that connects proves that it is the one that was asked by a token, and is of our user.
 *
 * Threads: any, unless it says otherwise. The lock for receiving comes before those of host and
 * client, and so does the one for sending.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_DIRECT_H
#define FBR_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fiber.h"

#define FBR_DIRECT_TOKEN 32
#define FBR_DIRECT_PATH 108

struct fbr_direct;

/* Listens in the folder of the socket at this path and fills in path and token for the other
 * process. `longest`: a message. One reference is the caller's. */
int fbr_direct_listen(struct fbr_direct **d, const char *beside, size_t longest,
                      char path[FBR_DIRECT_PATH], uint8_t token[FBR_DIRECT_TOKEN]);
/* Connects to the one that listens there, without waiting. */
int fbr_direct_connect(struct fbr_direct **d, const char *path,
                       const uint8_t token[FBR_DIRECT_TOKEN], size_t longest);
struct fbr_direct *fbr_direct_ref(struct fbr_direct *d);
void fbr_direct_unref(struct fbr_direct *d); /* NULL is fine */

/* Sends a message. -EAGAIN: it was not sent, and no other one will be. -ETIMEDOUT: not sent, as
 * other threads send. */
int fbr_direct_send(struct fbr_direct *d, const void *data, size_t len, uint64_t deadline);
/* No message is sent behind the one that is on its way. Never waits. */
void fbr_direct_stop(struct fbr_direct *d);
/* Nothing is sent any more. */
bool fbr_direct_stopped(const struct fbr_direct *d);

/* For the end that listens, once the other end has answered. The caller has the lock for receiving;
 * fbr_direct_take() needs it, too. */
int fbr_direct_open(struct fbr_direct *d);

/* Receiving, between lock and unlock. lock: -ETIMEDOUT. */
int fbr_direct_lock(struct fbr_direct *d, uint64_t deadline);
void fbr_direct_unlock(struct fbr_direct *d);
/* The next message; out NULL: whether there is one. -EAGAIN: not yet; -EPIPE: no more will come;
 * -ENOMEM, -EMFILE: try again. */
int fbr_direct_take(struct fbr_direct *d, struct fiber_bytes *out);
/* Waits until a take may have another answer, or fbr_direct_wake(), or the deadline. */
void fbr_direct_sleep(struct fbr_direct *d, uint64_t deadline);
void fbr_direct_wake(struct fbr_direct *d);
/* Nothing more is taken in; what is there can be taken still. */
void fbr_direct_shut(struct fbr_direct *d);

/* Both directions end. Messages that have come can be taken still. Never waits. */
void fbr_direct_cut(struct fbr_direct *d);

#endif
