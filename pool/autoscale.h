/* autoscale.h - how many workers an autoscaled pool wants, and when to look again.
 *
 * Pure, like the engine that it asks: the time goes in, no clock is read. Growth is immediate: one
 * look at a backlog asks for all the workers that the backlog can use. The pool looks whenever
 * tasks come, and once in a tick while there are any, because running tasks may turn out to be
 * longer than expected. A look removes at most one worker, which held nothing for longer than
 * `idle_ns`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/dispatch.h"

#define FBR_AUTOSCALE_TICK_MS 100

struct fbr_autoscale {
    int min, max, target; /* workers; target: how many are wanted now */
    uint64_t idle_ns;     /* a worker above min that was idle for longer is drained */
};

/* The target for the backlog: at most max, and never less than the target before. */
int fbr_autoscale_target(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                         uint64_t now_ns);
/* Whether this ready worker is one too many; then the target is one less. */
bool fbr_autoscale_spares(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                          uint64_t now_ns, uint64_t worker);
/* When to look again with `undone` tasks in the pool; UINT64_MAX: not before an event. */
uint64_t fbr_autoscale_next_ms(const struct fbr_autoscale *w, uint64_t now_ms, uint64_t undone);
