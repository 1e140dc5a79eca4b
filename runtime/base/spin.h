/* spin.h - a short wait without sleep, for events that may come sooner than a thread sleeps and
 * wakes.
 *
 * A thread that spins yields its processor after each check, because the threads that bring the
 * event need a processor too. The thread never checks twice without a yield, because a scheduler
 * may let it spin until the end of its time slice while the other threads wait. On a busy processor
 * a yield lasts a time slice. Then the thread does not spin for a pause, which becomes longer each
 * time that a yield is long again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>
#include <stdbool.h>

#include "runtime/base/clock.h"

#define FBR_SPIN_LONG_NS 300000 /* a yield of this length means that other processes ran */
#define FBR_SPIN_NOT_NS 2000000 /* length of the first pause; each later pause is twice as long, */
#define FBR_SPIN_DOUBLINGS 7    /* at most this many times: 256 ms */
/* after this many short yields in a row, the next pause is half as long */
#define FBR_SPIN_GOOD 64

/* Any thread; concurrent threads may lose a count, which does no harm. */
struct fbr_spin {
    uint64_t not_before;
    uint32_t doublings, good;
};

/* Yields, unless it is `end` (by fbr_now_ns()) or later, or a pause is on. False: the thread must
 * sleep now. */
static inline bool fbr_spin_yield(struct fbr_spin *a, uint64_t end)
{
    uint64_t now = fbr_now_ns(), after;
    uint32_t doublings = __atomic_load_n(&a->doublings, __ATOMIC_RELAXED);
    uint32_t good = __atomic_load_n(&a->good, __ATOMIC_RELAXED) + 1;

    if (now >= end || now < __atomic_load_n(&a->not_before, __ATOMIC_RELAXED))
        return false;
    sched_yield();
    after = fbr_now_ns();
    if (after - now < FBR_SPIN_LONG_NS) {
        if (good == FBR_SPIN_GOOD && doublings)
            __atomic_store_n(&a->doublings, doublings - 1, __ATOMIC_RELAXED);
        __atomic_store_n(&a->good, good % FBR_SPIN_GOOD, __ATOMIC_RELAXED);
        return true;
    }
    __atomic_store_n(&a->not_before, after + ((uint64_t)FBR_SPIN_NOT_NS << doublings),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&a->good, 0, __ATOMIC_RELAXED);
    if (doublings < FBR_SPIN_DOUBLINGS)
        __atomic_store_n(&a->doublings, doublings + 1, __ATOMIC_RELAXED);
    return false;
}
