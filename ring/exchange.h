/* exchange.h - where agents meet: fences and names. Pure: requests of agents in, answers out.
 *
 * It lives in the launcher. Each request has the number that its agent gave it, and is answered
 * once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_EXCHANGE_H
#define FBR_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/held.h"

struct fbr_exchange;

typedef void fbr_exchange_answer(void *user, uint32_t agent, uint64_t request, int code,
                                 const void *data, size_t len);

/* Names, parts of fences and lookups that wait are counted on `held` (may be NULL), and refused
 * with -ENOBUFS when it is full. NULL without memory. */
struct fbr_exchange *fbr_exchange_open(fbr_exchange_answer *answer, void *user,
                                       struct fbr_held *held);
void fbr_exchange_close(struct fbr_exchange *x); /* answers nothing. NULL is fine */

/* bridge.h says what they mean. */
void fbr_exchange_fence(struct fbr_exchange *x, uint32_t agent, uint64_t request, const void *key,
                        size_t key_len, const uint32_t *agents, uint32_t parts, const void *data,
                        size_t len);
/* No rank of that agent lives (or one does again): fences do not wait for it. */
void fbr_exchange_idle(struct fbr_exchange *x, uint32_t agent, bool idle);
void fbr_exchange_publish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                          uint32_t rank, const char *key, const void *value, size_t len);
void fbr_exchange_lookup(struct fbr_exchange *x, uint32_t agent, uint64_t request, const char *key,
                         int wait_ms, uint64_t now_ms);
void fbr_exchange_unpublish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                            uint32_t rank, const char *key);

/* The agent is gone: its requests are forgotten. It is idle if no other takes its place. */
void fbr_exchange_agent_gone(struct fbr_exchange *x, uint32_t agent);
/* The job has ended: its names go. */
void fbr_exchange_job_end(struct fbr_exchange *x, uint32_t job);
/* When a lookup's time is over next; UINT64_MAX: never. */
uint64_t fbr_exchange_deadline(const struct fbr_exchange *x);
void fbr_exchange_tick(struct fbr_exchange *x, uint64_t now_ms);

#endif
