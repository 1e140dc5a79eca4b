/* sync.h - condition variables with deadlines by the monotonic clock, and threads without signals.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "runtime/base/clock.h"

/* Returns the deadline on the clock of fbr_now_ms(), in ms. UINT64_MAX, which is never, for a
 * negative timeout. */
static inline uint64_t fbr_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : fbr_now_ms() + (uint64_t)timeout_ms;
}
/* Returns the milliseconds until the deadline, as poll(2) has them: -1 for UINT64_MAX. */
static inline int fbr_ms_until(uint64_t deadline)
{
    uint64_t now;

    if (deadline == UINT64_MAX)
        return -1;
    now = fbr_now_ms();
    return now >= deadline ? 0 : deadline - now > INT_MAX ? INT_MAX : (int)(deadline - now);
}
/* Waits until the condition is signalled or the deadline has passed: 0 or -ETIMEDOUT.
 * fbr_cond_init() made `cond`. */
int fbr_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);
void fbr_cond_init(pthread_cond_t *cond);

/* Starts a thread with all signals blocked, because they are for the program's threads. NULL: no
 * thread joins it. 0 or -errno. */
static inline int fbr_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, old;
    pthread_t own;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(thread ? thread : &own, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return -rc;
    if (!thread)
        pthread_detach(own);
    return 0;
}
