/* clock.h - the clocks, which are the same in all processes of a host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC, in nanoseconds and in milliseconds. Any thread. */
uint64_t fbr_now_ns(void);
uint64_t fbr_now_ms(void);
/* CLOCK_BOOTTIME, in milliseconds. Unlike the others, this clock runs while the machine sleeps:
 * sleep counts as time in which this process was stopped. Any thread. */
uint64_t fbr_boot_ms(void);
/* CLOCK_REALTIME: microseconds and milliseconds since the epoch. Any thread. */
int64_t fbr_wall_us(void);
int64_t fbr_wall_ms(void);
