/* ready.h - a descriptor that polls readable while a condition holds, made on first use.
 *
 * The lock that guards the condition also guards this object: it serialises all calls on one
 * object. An object of zeros has no descriptor yet; then a change only costs the check of a flag.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

struct fbr_ready {
    bool made, raised;
    int fd;
};

/* Returns the descriptor, or keeps an error for fiber_last_error() and returns its code. A new
 * descriptor does not show the condition before the next fbr_ready_set(). */
int fbr_ready_fd(struct fbr_ready *r);
/* Records whether the condition holds. */
void fbr_ready_set(struct fbr_ready *r, bool holds);
void fbr_ready_fini(struct fbr_ready *r);
