/* clock.c - the clocks. Each loaded module has its own copy of this code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/clock.h"

#include <time.h>

uint64_t fbr_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t fbr_now_ms(void)
{
    return fbr_now_ns() / 1000000u;
}

uint64_t fbr_boot_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int64_t fbr_wall_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t fbr_wall_ms(void)
{
    return fbr_wall_us() / 1000;
}
