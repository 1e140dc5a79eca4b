/* sync.c - condition variables with deadlines by the monotonic clock. Each loaded module has its
 * own copy of this code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/sync.h"

#include <time.h>

void fbr_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t a;

    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
}

int fbr_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
    struct timespec t = {(time_t)(deadline / 1000), (long)(deadline % 1000) * 1000000};

    if (deadline == UINT64_MAX)
        return -pthread_cond_wait(cond, lock);
    return -pthread_cond_timedwait(cond, lock, &t);
}
