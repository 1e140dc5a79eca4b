/* capacity.h - fills in what a ring's options leave open by what the backend knows of its hosts:
 * nodes, ranks on each, processors and GPUs of each rank.
 *
 *     in an allocation     the ranks that the user asked the manager for, on the nodes of the
 *                          allocation
 *     on a cluster         --nodes K needs K hosts; ranks without --per-node go where there is a
 *                          processor for each
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "runtime/proc/backend.h"
#include "runtime/base/error.h"

struct fbr_ring_capacity {
    struct fbr_capacity room;
    int *slots;     /* options.slots points to it; NULL: not set by us */
    char note[400]; /* text for people about idle nodes of the allocation; "": none */
};

/* Asks the backend and fills in what `o` leaves open; `o` points into `r` until
 * fbr_ring_capacity_fini(). *size 0: the user gave no size; it stays 0 if the backend does not
 * know one either. -EINVAL and a sentence: there are too few hosts. A backend that cannot be
 * asked is no error. Any thread but the loop's; may take some seconds. */
int fbr_ring_capacity_ask(struct fbr_ring_capacity *r, int *size, struct fiber_ring_options *o,
                          struct fbr_error *err);
/* The same with r->room as it is. Pure. */
int fbr_ring_capacity_use(struct fbr_ring_capacity *r, int *size, struct fiber_ring_options *o,
                          struct fbr_error *err);
void fbr_ring_capacity_fini(struct fbr_ring_capacity *r);
