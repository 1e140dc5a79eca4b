/* visit.h - bytes between the door of a run (control.h) and one of its processes, for `fiber cp`,
 * `stack` and `exec`.
 *
 * A launcher passes a caller at its door on to a process: from then on the caller's connection is
 * a stream of bytes to a thread there (visitor.h), and the launcher understands none of it. In
 * between the bytes are frames of the control channel, which carries the heartbeats, too; so each
 * end may send only what it was given credit for, and nobody holds more than that.
 *
 *     VISIT_OPEN    u64 visit              to the process
 *     VISIT_DATA    u64 visit, bytes       both ways; at most FBR_VISIT_WINDOW of them without
 *                                          credit
 *     VISIT_CREDIT  u64 visit, u32 bytes   so many have been taken
 *     VISIT_END     u64 visit              nothing more comes; the other end ends, too
 *
 * All on the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_VISIT_H
#define FBR_VISIT_H

#include <stdbool.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

#define FBR_VISIT_WINDOW (1u << 18)
#define FBR_VISITS_MAX 16 /* at one process at a time */

enum fbr_visit_frame {
    FBR_VISIT_OPEN = 112, /* context.h: FBR_FRAME_VISIT */
    FBR_VISIT_DATA,
    FBR_VISIT_CREDIT,
    FBR_VISIT_END,
};

struct fbr_visit;

/* Those of one control channel. Zeroed, then set, before the first. */
struct fbr_visits {
    struct fbr_visit *list;
    unsigned count;
    struct fbr_loop *loop;
    int (*send)(void *user, uint8_t type, const struct fbr_buf *body); /* to the other end */
    void *user;
};

static inline bool fbr_visit_takes(uint8_t type)
{
    return type >= FBR_VISIT_OPEN && type <= FBR_VISIT_END;
}

/* Passes bytes on between this socket, which it takes over on success, and the visit of that number
 * at the other end; `first` (may be NULL) is written to the socket before all. -EBUSY: there are
 * too many. */
int fbr_visits_open(struct fbr_visits *v, uint64_t id, int fd, const struct fbr_buf *first,
                    struct fbr_error *err);
/* DATA, CREDIT or END from the other end; what is not understood, or of no visit, is passed
 * over. */
void fbr_visits_on_frame(struct fbr_visits *v, uint8_t type, struct fbr_cur *body);
/* The control channel is gone, or is about to go. */
void fbr_visits_close(struct fbr_visits *v);

#endif
