/* held.h - the memory that a process keeps for others, all of it within one bound.
 *
 * A process that may call us may also send without end: messages that nobody takes, values of a
 * store, calls of a manager, half of a long frame or record. Each place that keeps such bytes takes
 * them from one account, and refuses what does not fit with -ENOBUFS. The bound is the setting
 * hold_max; 0 there is half of the memory that this process may use.
 *
 * All functions may be called from any thread. A NULL account has no bound.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_HELD_H
#define FBR_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fbr_held {
    uint64_t bytes; /* atomic */
    uint64_t limit; /* atomic; 0: find() says it once there is much */
    uint64_t (*find)(void);
};

/* One place's part of it: how much is counted. Begins as zeros; under the place's own lock. */
struct fbr_held_part {
    uint64_t bytes;
};

/* The bound. 0 where nobody knows one. */
uint64_t fbr_held_limit(struct fbr_held *h);
/* Takes n bytes: 0, or -ENOBUFS and nothing is taken. */
int fbr_held_reserve(struct fbr_held *h, uint64_t n);
void fbr_held_release(struct fbr_held *h, uint64_t n);
/* Whether n more bytes would be too many. */
bool fbr_held_full(struct fbr_held *h, uint64_t n);
/* The place keeps so many bytes now. Never refused: ask before. */
void fbr_held_set(struct fbr_held *h, struct fbr_held_part *part, uint64_t bytes);

#endif
