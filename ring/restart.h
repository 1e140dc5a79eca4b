/* restart.h - how often something may be started again: pure counting.
 *
 * A failure counts against the number that the user allows. An act of the cluster (an eviction, a
 * preemption, a lost node) is no failure of the ring. It counts separately, against its own bound,
 * so that a cluster which takes everything away at once cannot restart the ring for ever.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* restarts for acts of the cluster, at most; or `max`, if that is more */
#define FBR_RESTART_TAKEN 100

struct fbr_restarts {
    uint32_t failed, taken; /* restarts for failures; restarts for acts of the cluster */
};

/* Returns true if one more restart is allowed, and counts it. */
bool fbr_restart_again(struct fbr_restarts *r, uint32_t max, bool taken);
uint32_t fbr_restart_count(const struct fbr_restarts *r);
/* Describes the restart that was just counted: "2 of 3", "2 of 100 after disruptions by the
 * cluster". */
const char *fbr_restart_describe(const struct fbr_restarts *r, uint32_t max, bool taken, char *out,
                                 size_t size);
/* Writes a sentence that says why there is no further restart; "" if there was none before. */
const char *fbr_restart_spent(const struct fbr_restarts *r, bool taken, char *out, size_t size);
