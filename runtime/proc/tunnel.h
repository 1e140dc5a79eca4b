/* tunnel.h - bytes between the door of a run (run_control.h) and one of its processes, for `fiber
 * cp`, `stack` and `exec`.
 *
 * A launcher passes a caller at its door on to a process: from then on the caller's connection is
 * a stream of bytes to a thread there (exec_server.h), and the launcher understands none of it. In
 * between the bytes are frames of the control channel, which carries the heartbeats, too; so each
 * end may send only what it was given credit for, and nobody holds more than that.
 *
 *     TUNNEL_OPEN    u64 tunnel              to the process
 *     TUNNEL_DATA    u64 tunnel, bytes       both ways; at most FBR_TUNNEL_WINDOW of them without
 *                                          credit
 *     TUNNEL_CREDIT  u64 tunnel, u32 bytes   so many have been taken
 *     TUNNEL_END     u64 tunnel              nothing more comes; the other end ends, too
 *
 * All on the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TUNNEL_H
#define FBR_TUNNEL_H

#include <stdbool.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

#define FBR_TUNNEL_WINDOW (1u << 18)
#define FBR_TUNNELS_MAX 16 /* at one process at a time */

enum fbr_tunnel_frame {
    FBR_TUNNEL_OPEN = 112, /* context.h: FBR_FRAME_TUNNEL */
    FBR_TUNNEL_DATA,
    FBR_TUNNEL_CREDIT,
    FBR_TUNNEL_END,
};

struct fbr_tunnel;

/* Those of one control channel. Zeroed, then set, before the first. */
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

/* Passes bytes on between this socket, which it takes over on success, and the tunnel of that
 * number at the other end; `first` (may be NULL) is written to the socket before all. -EBUSY: there
 * are too many. */
int fbr_tunnels_open(struct fbr_tunnels *v, uint64_t id, int fd, const struct fbr_buf *first,
                     struct fbr_error *err);
/* DATA, CREDIT or END from the other end; what is not understood, or of no tunnel, is passed
 * over. */
void fbr_tunnels_on_frame(struct fbr_tunnels *v, uint8_t type, struct fbr_cur *body);
/* The control channel is gone, or is about to go. */
void fbr_tunnels_close(struct fbr_tunnels *v);

#endif
