/* clock.c - the clocks. Each loaded module has its own copy of this code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t fbr_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t fbr_now_ms(void)
{
    return fbr_now_ns() / 1000000u;
}

uint64_t fbr_boot_ms(void)
{
    return read_ns(CLOCK_BOOTTIME) / 1000000u;
}

int64_t fbr_wall_us(void)
{
    return (int64_t)(read_ns(CLOCK_REALTIME) / 1000u);
}

int64_t fbr_wall_ms(void)
{
    return fbr_wall_us() / 1000;
}
