/* sync.h - condition variables with deadlines by the monotonic clock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SYNC_H
#define FBR_SYNC_H

#include <pthread.h>
#include <stdint.h>

#include "runtime/base/clock.h"

/* Returns the deadline on the clock of fbr_now_ms(), in ms. UINT64_MAX, which is never, for a
 * negative timeout. */
static inline uint64_t fbr_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : fbr_now_ms() + (uint64_t)timeout_ms;
}
/* Waits until the condition is signalled or the deadline has passed: 0 or -ETIMEDOUT.
 * fbr_cond_init() made `cond`. */
int fbr_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);
void fbr_cond_init(pthread_cond_t *cond);

#endif
