/* autoscale.h - how many workers an autoscaled pool is to have, and when to look again.
 *
 * Pure, as the engine that it asks: the time goes in, no clock is read. Growing is not held back:
 * one look at a backlog asks for all the workers that it can use. The pool looks whenever tasks
 * come, and while there are any once in a tick, since what runs may turn out to be longer than
 * expected. Shrinking takes one worker a look, one that held nothing for `idle`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AUTOSCALE_H
#define FBR_AUTOSCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/dispatch.h"

#define FBR_AUTOSCALE_TICK_MS 100

struct fbr_autoscale {
    int min, max, target; /* workers; target: how many are wanted by now */
    uint64_t idle_ns;     /* a worker above min that was idle for longer goes */
};

/* The target that the backlog asks for: at most max, and never less than the one before. */
int fbr_autoscale_target(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                         uint64_t now_ns);
/* Whether this worker, which is ready, is one too many: then the target is one less. */
bool fbr_autoscale_spares(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                          uint64_t now_ns, uint64_t worker);
/* When to look again, `undone` tasks being in the pool; UINT64_MAX: not before something comes. */
uint64_t fbr_autoscale_next_ms(const struct fbr_autoscale *w, uint64_t now_ms, uint64_t undone);

#endif
