/* ready.h - a descriptor that polls readable while a condition holds, made when first asked for.
 *
 * The lock that guards the condition guards this, too: it serialises all calls on one object. Zeros
 * mean that nobody has asked for the descriptor; then a change costs a look at a flag.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_READY_H
#define FBR_READY_H

#include <stdbool.h>

struct fbr_ready {
    bool made, raised;
    int fd;
};

/* Returns the descriptor, or keeps an error. A new descriptor polls readable from the next
 * fbr_ready_set() on. */
int fbr_ready_fd(struct fbr_ready *r);
/* Notes whether the condition holds. */
void fbr_ready_set(struct fbr_ready *r, bool holds);
void fbr_ready_fini(struct fbr_ready *r);

#endif
