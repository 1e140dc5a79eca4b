/* held.h - the memory that a process keeps for other processes, within one limit.
 *
 * A process that may call us may also send without end: messages that no process takes, values of a
 * store, calls of a manager, half of a long frame or record. Each place that keeps such bytes takes
 * them from one account, and refuses bytes that do not fit with -ENOBUFS. The limit is the setting
 * hold_max; if hold_max is 0, the limit is half of the memory that this process may use.
 *
 * Any thread may call these functions. A NULL account has no limit.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fbr_held {
    uint64_t bytes; /* atomic */
    uint64_t limit; /* atomic; 0: find() returns it, called once many bytes are held */
    uint64_t (*find)(void);
};

/* The share of one place: how many bytes it has counted. Starts as zeros; guarded by the place's
 * own lock. */
struct fbr_held_part {
    uint64_t bytes;
};

/* Returns the limit. 0: there is no limit. */
uint64_t fbr_held_limit(struct fbr_held *h);
/* Takes n bytes. Returns 0, or -ENOBUFS and takes nothing. */
int fbr_held_reserve(struct fbr_held *h, uint64_t n);
void fbr_held_release(struct fbr_held *h, uint64_t n);
/* Whether n more bytes would exceed the limit. */
bool fbr_held_full(struct fbr_held *h, uint64_t n);
/* Sets how many bytes the place keeps now. Never fails: call fbr_held_full() before. */
void fbr_held_set(struct fbr_held *h, struct fbr_held_part *part, uint64_t bytes);
