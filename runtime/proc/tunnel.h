/* tunnel.h - passes bytes between the control socket of a run (run_control.h) and one of its
 * processes, for `fiber cp`, `stack` and `exec`.
 *
 * A launcher passes a client of its control socket on to a target process. From then on the
 * client's connection is a stream of bytes to a thread of the target process (exec_server.c), and
 * the launcher does not interpret the bytes. Between launcher and target process the bytes travel
 * in frames of the control channel, which also carries the heartbeats. So each end sends only as
 * many bytes as it has credit for, and neither end holds more than that.
 *
 *     TUNNEL_OPEN    u64 tunnel              to the process
 *     TUNNEL_DATA    u64 tunnel, bytes       both ways; at most FBR_TUNNEL_WINDOW of them without
 *                                            credit
 *     TUNNEL_CREDIT  u64 tunnel, u32 bytes   so many bytes have been written to the socket
 *     TUNNEL_END     u64 tunnel              nothing more comes; the other end ends, too
 *
 * All functions: loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

#define FBR_TUNNEL_WINDOW (1u << 18)
#define FBR_TUNNELS_MAX 16 /* to one process at a time */

enum fbr_tunnel_frame {
    FBR_TUNNEL_OPEN = 112, /* context.h: FBR_FRAME_TUNNEL */
    FBR_TUNNEL_DATA,
    FBR_TUNNEL_CREDIT,
    FBR_TUNNEL_END,
};

struct fbr_tunnel;

/* The tunnels of one control channel. Zero it, then set loop, send and user, before the first
 * tunnel. */
struct fbr_tunnels {
    struct fbr_tunnel *list;
    unsigned count;
    struct fbr_loop *loop;
    int (*send)(void *user, uint8_t type, const struct fbr_buf *body); /* to the other end */
    void *user;
};

static inline bool fbr_tunnel_takes(uint8_t type)
{
    return type >= FBR_TUNNEL_OPEN && type <= FBR_TUNNEL_END;
}

/* Passes bytes between this socket and the tunnel `id` at the other end; takes the socket over on
 * success. Writes `first` (may be NULL) to the socket before all else. -EBUSY: there are too many
 * tunnels. */
int fbr_tunnels_open(struct fbr_tunnels *v, uint64_t id, int fd, const struct fbr_buf *first,
                     struct fbr_error *err);
/* Handles DATA, CREDIT or END from the other end; ignores a frame that is malformed, or of no
 * tunnel. */
void fbr_tunnels_on_frame(struct fbr_tunnels *v, uint8_t type, struct fbr_cur *body);
/* Closes all tunnels. Call it when the control channel is closed, or is about to be closed. */
void fbr_tunnels_close(struct fbr_tunnels *v);
