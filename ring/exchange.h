/* exchange.h - fences and published names of agents. Pure: requests of agents in, answers out.
 *
 * The exchange lives in the launcher. Each request has the number that its agent gave it, and gets
 * one answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/held.h"

struct fbr_exchange;

typedef void fbr_exchange_answer(void *user, uint32_t agent, uint64_t request, int code,
                                 const void *data, size_t len);

/* Agents have the numbers 0 to `agents` - 1. Names, waiting parts of fences and waiting lookups are
 * counted on `held` (may be NULL). When it is full, requests are refused with -ENOBUFS. Returns
 * NULL without memory. */
struct fbr_exchange *fbr_exchange_open(uint32_t agents, fbr_exchange_answer *answer, void *user,
                                       struct fbr_held *held);
void fbr_exchange_close(struct fbr_exchange *x); /* answers nothing. NULL is fine */

/* The requests have the meaning that bridge.h gives them. A fence gets -EINVAL if the agent is none
 * of `agents`, or if an open fence with that key has others. */
void fbr_exchange_fence(struct fbr_exchange *x, uint32_t agent, uint64_t request, const void *key,
                        size_t key_len, const uint32_t *agents, uint32_t parts, const void *data,
                        size_t len);
/* `idle`: no rank of the agent lives, so fences do not wait for the agent. Not idle: a rank
 * lives again. */
void fbr_exchange_idle(struct fbr_exchange *x, uint32_t agent, bool idle);
void fbr_exchange_publish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                          uint32_t rank, const char *key, const void *value, size_t len);
void fbr_exchange_lookup(struct fbr_exchange *x, uint32_t agent, uint64_t request, const char *key,
                         int wait_ms, uint64_t now_ms);
void fbr_exchange_unpublish(struct fbr_exchange *x, uint32_t agent, uint64_t request, uint32_t job,
                            uint32_t rank, const char *key);

/* The agent is gone: drops its requests. The caller sets it idle if no other agent takes its
 * place. */
void fbr_exchange_agent_gone(struct fbr_exchange *x, uint32_t agent);
/* The job has ended: removes its names. */
void fbr_exchange_job_end(struct fbr_exchange *x, uint32_t job);
/* The time at which the next lookup times out, in ms; UINT64_MAX: never. */
uint64_t fbr_exchange_deadline(const struct fbr_exchange *x);
void fbr_exchange_tick(struct fbr_exchange *x, uint64_t now_ms);
