/* awake.h - staying awake for a moment, where what is waited for may come sooner than a thread
 * sleeps and wakes.
 *
 * Whoever stays awake yields its processor each time it has looked: the threads that bring what it
 * waits for need one too, and find it awake. It does not look again and again without a yield: a
 * scheduler may let it do so until its time slice is over, while they wait. On a processor that
 * others want, a yield lasts a time slice. Then it is not done again for a while, which is longer
 * each time that it is so again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AWAKE_H
#define FBR_AWAKE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/net/loop.h"

#define FBR_AWAKE_LONG_NS 300000 /* a yield in which others than ours have run */
#define FBR_AWAKE_NOT_NS 2000000 /* for so long then; twice as long each time, */
#define FBR_AWAKE_DOUBLINGS 7    /* at most so often: 256 ms */
#define FBR_AWAKE_GOOD 64        /* short yields in a row, after which it is half as long again */

struct fbr_awake { /* any thread; several may lose a count to each other, which does no harm */
    uint64_t not_before;
    uint32_t doublings, good;
};

/* Yields, at `now`. false: stay awake no longer. */
static inline bool fbr_awake_yield(struct fbr_awake *a, uint64_t now)
{
    uint32_t doublings = __atomic_load_n(&a->doublings, __ATOMIC_RELAXED);
    uint32_t good = __atomic_load_n(&a->good, __ATOMIC_RELAXED) + 1;
    uint64_t after;

    if (now < __atomic_load_n(&a->not_before, __ATOMIC_RELAXED))
        return false;
    sched_yield();
    after = fbr_now_ns();
    if (after - now < FBR_AWAKE_LONG_NS) {
        if (good == FBR_AWAKE_GOOD && doublings)
            __atomic_store_n(&a->doublings, doublings - 1, __ATOMIC_RELAXED);
        __atomic_store_n(&a->good, good % FBR_AWAKE_GOOD, __ATOMIC_RELAXED);
        return true;
    }
    __atomic_store_n(&a->not_before, after + ((uint64_t)FBR_AWAKE_NOT_NS << doublings),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&a->good, 0, __ATOMIC_RELAXED);
    if (doublings < FBR_AWAKE_DOUBLINGS)
        __atomic_store_n(&a->doublings, doublings + 1, __ATOMIC_RELAXED);
    return false;
}

#endif
