/* clock_ahead.h - replaces the monotonic clock of a test's program, so that a pause of seconds is over when the test
 * says so. Include it in one file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How far the clock is ahead of the system's; and by how much more with each look at it. */
static _Atomic int64_t ahead_ms, look_ms;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);

    if (clock == CLOCK_MONOTONIC)
        t->tv_sec += (ahead_ms += look_ms) / 1000;
    return rc;
}
