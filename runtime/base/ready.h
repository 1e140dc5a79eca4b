/* ready.h - a descriptor that polls readable while a condition holds, made when first asked for.
 *
 * Whoever guards the condition guards this, too: all calls on one are serialised by the same lock. Zero is "nobody has
 * asked", and then a change costs a look at a flag.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_READY_H
#define FBR_READY_H

#include <stdbool.h>

struct fbr_ready {
    bool made, raised;
    int fd;
};

/* The descriptor, or a kept error. One that is made now polls readable from the next fbr_ready_set() on. */
int fbr_ready_fd(struct fbr_ready *r);
/* The condition holds, or not any more. */
void fbr_ready_set(struct fbr_ready *r, bool holds);
void fbr_ready_fini(struct fbr_ready *r);

#endif
