/* restart.h - how often something may be started again: pure counting.
 *
 * A failure of its own counts against what the user allows. An act of the cluster (an eviction, a
 * preemption, a lost node) is no failure of the ring and counts apart, against a bound of its own,
 * so that a cluster which takes everything away at once does not make it go on for ever.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RESTART_H
#define FBR_RESTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_RESTART_TAKEN 100 /* at most for what the cluster does; or `max`, when that is more */

struct fbr_restarts {
    uint32_t failed, taken; /* started again for a failure; for what the cluster did */
};

/* May it be started again? Then it is counted. */
bool fbr_restart_again(struct fbr_restarts *r, uint32_t max, bool taken);
uint32_t fbr_restart_count(const struct fbr_restarts *r);
/* Describes the restart that was just counted: "2 of 3", "2 of 100 for what the cluster does". */
const char *fbr_restart_describe(const struct fbr_restarts *r, uint32_t max, bool taken, char *out,
                                 size_t size);
/* Why it is not started again after restarts: a sentence, or "" when there were none. */
const char *fbr_restart_spent(const struct fbr_restarts *r, bool taken, char *out, size_t size);

#endif
