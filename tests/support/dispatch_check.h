/* dispatch_check.h - the invariants of the scheduling engine, looked at from outside.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/dispatch.h"

/* Returns NULL, or what is wrong. O(everything). */
const char *dispatch_check(const struct fbr_dispatch *d);

/* How many tasks a worker holds; 0: it is dead, or not known. */
uint32_t dispatch_held(const struct fbr_dispatch *d, uint64_t worker);
/* How many tasks of a map are not done; 0: the map is gone. */
uint64_t dispatch_left(const struct fbr_dispatch *d, uint64_t map);
