/* collective.h - barrier, broadcast and allreduce of a ring whose ranks run a function.
 *
 * The launcher has a service (share/rpc.h); its address travels with the function. A rank calls the
 * service once for each collective. When all ranks have called, the launcher answers them together.
 * So a collective is one message from each rank and one to each rank, and needs no connection
 * between ranks.
 *
 * A collective that fails breaks the group, because the ranks no longer agree on the next
 * collective. All calls that wait and all later calls get the same error text, until the ring
 * starts again with a new epoch.
 *
 * Request: u32 op, u32 rank, u32 epoch, u32 root, u32 type, u32 how, u64 number, u64 len, bytes.
 * The bytes of the answer replace the rank's data; they are empty if the data stay. The bytes of an
 * error are its text.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
    uint64_t number; /* of the collective in this epoch, from 0 */
    uint64_t len;    /* bytes of the result */
};

/* Writes the request; the data may follow it. */
void fbr_collective_put(struct fbr_buf *b, const struct fbr_collective_ask *ask);

/* ---- In the launcher (collective.c) ---- */

struct fbr_collective;

/* Called on the program's thread. Returns 0, or an error that is kept (fbr_keep()). */
int fbr_collective_open(struct fbr_collective **c, uint32_t size, struct fiber_address *address);
/* A rank has ended, with any code: collectives of the epoch fail from now on. Any thread. */
void fbr_collective_ended(struct fbr_collective *c, uint32_t epoch, uint32_t rank);
/* Not on the loop thread. NULL is fine. */
void fbr_collective_close(struct fbr_collective *c);

/* ---- In a rank (collective_rank.c) ---- */

/* Sets the rank of this process and the address of the launcher's service, before the function
 * runs. Returns 0 or -ENOMEM. */
int fbr_collective_join(uint32_t rank, uint32_t size, uint32_t epoch,
                        const struct fiber_address *address);
