/* plan.h - which ranks run on which node: pure arithmetic, the same for every backend.
 *
 * Ranks go to nodes in blocks: node k has the ranks first[k] .. first[k + 1] - 1. MPI programs
 * expect that ranks with neighbouring numbers are near each other.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_PLAN_RANKS (1u << 20) /* at most, in one job */

struct fbr_plan {
    uint32_t size, nodes;
    uint32_t *first; /* [nodes + 1], owned */
};

/* size: 1 to FBR_PLAN_RANKS. per_node 0: an even split over `nodes`. nodes 0: as many as per_node
 * needs, or one if per_node is 0 too. */
int fbr_plan_make(struct fbr_plan *p, uint32_t size, uint32_t per_node, uint32_t nodes,
                  struct fbr_error *err);
/* The same over nodes of different capacity: fills the slots of a node before the next node gets
 * ranks. If there are more ranks than slots, spreads all ranks in proportion to the slots. */
int fbr_plan_fill(struct fbr_plan *p, uint32_t size, const uint32_t *slots, uint32_t nodes,
                  struct fbr_error *err);
void fbr_plan_fini(struct fbr_plan *p);
