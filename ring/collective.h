/* collective.h - barrier, broadcast and allreduce of a ring whose ranks run a function.
 *
 * The launcher has a service (share/rpc.h) whose address travels with the function. A rank calls it
 * once for each collective; when all have called they are answered together. So a collective is one
 * message from each rank and one to it, and needs no connection between ranks.
 *
 * A collective that fails breaks the group: ranks could not agree any more on which one is the
 * next. All that wait and all that call later get the same sentence, until the ring starts again
 * with a new epoch.
 *
 * Request: u32 op, u32 rank, u32 epoch, u32 root, u32 type, u32 how, u64 number, u64 len, bytes.
 * The answer's bytes are what the rank's data become, none when they stay; of an error, its text.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_COLLECT_H
#define FBR_RING_COLLECT_H

#include "fiber.h"
#include "runtime/base/buf.h"

enum fbr_collective_op {
    FBR_COLLECTIVE_BARRIER = 1,
    FBR_COLLECTIVE_BROADCAST,
    FBR_COLLECTIVE_ALLREDUCE
};

/* The request of a rank; members that its op does not need are 0. */
struct fbr_collective_ask {
    uint32_t op, rank, epoch, root, type, how;
    uint64_t number; /* of collectives of this rank in this epoch, from 0 */
    uint64_t len;    /* bytes of the result */
};

/* Writes it, so that the data may follow. */
void fbr_collective_put(struct fbr_buf *b, const struct fbr_collective_ask *ask);

/* ---- In the launcher (collective.c) ---- */

struct fbr_collective;

/* The program's thread. 0, or kept. */
int fbr_collective_open(struct fbr_collective **c, uint32_t size, struct fiber_address *address);
/* A rank has ended, well or not: no collective succeeds without it. Any thread. */
void fbr_collective_ended(struct fbr_collective *c, uint32_t epoch, uint32_t rank);
/* Not on the loop thread. NULL is fine. */
void fbr_collective_close(struct fbr_collective *c);

/* ---- In a rank (collective_rank.c) ---- */

/* Before its function runs: who it is and whom to ask. 0 or -ENOMEM. */
int fbr_collective_join(uint32_t rank, uint32_t size, uint32_t epoch,
                        const struct fiber_address *address);

#endif
