/* uplink.h - the calling side of a data link (hub.h is the other): one socket to one serving process.
 *
 * Each message down is answered at once by a message up that says "I hold it", so that the next one can come while this
 * one is worked on.
 *
 * Threads: any thread may send; one thread receives.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_UPLINK_H
#define FBR_UPLINK_H

#include "runtime/error.h"
#include "runtime/lane.h"

struct fbr_uplink;

/* keys NULL: not sealed. The first message up, which tells the server the way back, is sent here. */
int fbr_uplink_open(struct fbr_uplink **u, const char *url, uint64_t link, const struct fbr_keys *keys, size_t limit,
                    struct fbr_error *err);
void fbr_uplink_close(struct fbr_uplink *u); /* NULL is fine */

/* Sends a record (copied); waits while the server does not read, at most timeout_ms: -EAGAIN, and the link is broken then
 * if a part of the record was sent. -EPIPE: broken. */
int fbr_uplink_send(struct fbr_uplink *u, const struct iovec *iov, int n, int timeout_ms);
/* Takes one message if there is one: 1 and its records were handed out, 0 nothing there, negative: the link is broken. */
int fbr_uplink_recv(struct fbr_uplink *u, fbr_record_fn on_record, void *user);
/* Polls readable when there may be a message. */
int fbr_uplink_fd(const struct fbr_uplink *u);

#endif
