/* loopback.h - connections of local ranks to their agent: a listener on 127.0.0.1, and links with a
 * bounded queue.
 *
 * Loop thread only. Nothing here waits. Anybody on the host can connect to a loopback port, so a
 * listener asks the kernel who owns the other end and hangs up at once unless it is the user of the
 * ranks, or ours.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_LOOPBACK_H
#define FBR_LOOPBACK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* Bytes that may wait to be written on one link; a peer that lets more pile up is cut off. */
#define FBR_LO_LINK_QUEUE_MAX (256u << 20)

struct fbr_lo_link;

struct fbr_lo_link_ops {
    void (*bytes)(void *user, const void *data, size_t len); /* may close the link */
    /* The other side has hung up or does not read. Called once, never from within a call to the
     * link; nothing follows. The owner closes the link. */
    void (*gone)(void *user);
};

/* Takes fd, a connected stream socket, also when it fails. Nothing is read before
 * fbr_lo_link_start. */
int fbr_lo_link_open(struct fbr_lo_link **link, struct fbr_loop *loop, int fd);
void fbr_lo_link_start(struct fbr_lo_link *link, const struct fbr_lo_link_ops *ops, void *user);
void fbr_lo_link_send(struct fbr_lo_link *link, const void *data, size_t len);
/* Reads now what has come: bytes() is called for it before this returns. */
void fbr_lo_link_read(struct fbr_lo_link *link);
/* NULL is fine; drops what is queued, calls no ops */
void fbr_lo_link_close(struct fbr_lo_link *link);
/* Reads no more; gone() is called when the queue is written or can not be. The owner closes it
 * then. */
void fbr_lo_link_finish(struct fbr_lo_link *link);

struct fbr_lo_listener;

/* on_link gets each accepted link, which it starts or closes. Only `uid` and our own user may
 * connect. */
int fbr_lo_listener_open(struct fbr_lo_listener **listener, struct fbr_loop *loop, uid_t uid,
                         void (*on_link)(void *user, struct fbr_lo_link *link), void *user,
                         struct fbr_error *err);
uint16_t fbr_lo_listener_port(const struct fbr_lo_listener *listener);
/* NULL is fine; links that it gave live on */
void fbr_lo_listener_close(struct fbr_lo_listener *listener);

#endif
