/* sync.h - conditions that are waited for by the monotonic clock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SYNC_H
#define FBR_SYNC_H

#include <pthread.h>
#include <stdint.h>

#include "runtime/base/clock.h"

/* Returns the milliseconds until `deadline` (of fbr_now_ms); for a timeout of -1 always -1. */
static inline uint64_t fbr_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : fbr_now_ms() + (uint64_t)timeout_ms;
}
/* Waits on a condition with CLOCK_MONOTONIC until the deadline: 0 or -ETIMEDOUT. */
int fbr_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);
void fbr_cond_init(pthread_cond_t *cond);

#endif
