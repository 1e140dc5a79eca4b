/* awake.h - staying awake for a moment, where what is waited for may come sooner than a thread
 * sleeps and wakes.
 *
 * Whoever stays awake yields its processor each time it has looked: the threads that bring what it
 * waits for need one too, and find it awake. On a processor that others want, a yield lasts a time
 * slice. Then it is not done again for a while.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AWAKE_H
#define FBR_AWAKE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/loop.h"

#define FBR_AWAKE_LONG_NS 300000   /* a yield in which others than ours have run */
#define FBR_AWAKE_NOT_NS 250000000 /* for so long then */

struct fbr_awake {
    uint64_t not_before; /* any thread */
};

/* Yields, at `now`. false: stay awake no longer, or by other means. */
static inline bool fbr_awake_yield(struct fbr_awake *a, uint64_t now)
{
    uint64_t after;

    if (now < __atomic_load_n(&a->not_before, __ATOMIC_RELAXED))
        return false;
    sched_yield();
    after = fbr_now_ns();
    if (after - now < FBR_AWAKE_LONG_NS)
        return true;
    __atomic_store_n(&a->not_before, after + FBR_AWAKE_NOT_NS, __ATOMIC_RELAXED);
    return false;
}

#endif
