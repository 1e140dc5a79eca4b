/* clock.h - the monotonic clock, which is the same in all processes of a host.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CLOCK_H
#define FBR_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC, in nanoseconds and in milliseconds. Any thread. */
uint64_t fbr_now_ns(void);
uint64_t fbr_now_ms(void);

#endif
