/* loopback.h - connections of local ranks to their agent: a listener on 127.0.0.1, and links with a
 * bounded queue.
 *
 * Loop thread only. No call waits. Any user of the host can connect to a loopback port. So a
 * listener asks the kernel for the owner of the other end, and hangs up at once unless that is our
 * own user.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* Bytes that may wait to be written on one link. If more pile up, the link fails. */
#define FBR_LO_LINK_QUEUE_MAX (256u << 20)

struct fbr_lo_link;

struct fbr_lo_link_ops {
    void (*bytes)(void *user, const void *data, size_t len); /* may close the link */
    /* The other side has hung up or does not read. Called once, never from within a call to the
     * link; no other call follows. The owner closes the link. */
    void (*gone)(void *user);
};

/* Takes over fd, a connected stream socket, even on failure. Nothing is read before
 * fbr_lo_link_start(). */
int fbr_lo_link_open(struct fbr_lo_link **link, struct fbr_loop *loop, int fd);
void fbr_lo_link_start(struct fbr_lo_link *link, const struct fbr_lo_link_ops *ops, void *user);
void fbr_lo_link_send(struct fbr_lo_link *link, const void *data, size_t len);
/* Reads the bytes that have come, and calls bytes() for them before it returns. */
void fbr_lo_link_read(struct fbr_lo_link *link);
/* NULL is fine. Drops queued bytes and calls no ops. */
void fbr_lo_link_close(struct fbr_lo_link *link);
/* Reads no more. Calls gone() when the queue is written or cannot be written; the owner closes
 * the link then. */
void fbr_lo_link_finish(struct fbr_lo_link *link);

struct fbr_lo_listener;

/* on_link gets each accepted link and starts or closes it. Only our own user may connect. */
int fbr_lo_listener_open(struct fbr_lo_listener **listener, struct fbr_loop *loop,
                         void (*on_link)(void *user, struct fbr_lo_link *link), void *user,
                         struct fbr_error *err);
uint16_t fbr_lo_listener_port(const struct fbr_lo_listener *listener);
/* NULL is fine. Accepted links stay open. */
void fbr_lo_listener_close(struct fbr_lo_listener *listener);
