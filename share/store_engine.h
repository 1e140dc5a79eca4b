/* store_engine.h - the state of a shared store: carries out requests, and decides when each one is
 * answered.
 *
 * Pure: requests go in, answers come out through one callback. The engine has no clock, no
 * descriptors and no lock: the caller serialises all calls on one engine, and the callback may not
 * call the engine back.
 *
 * A request is (peer, call): the number of a process, which is never used again, and the number
 * that the process gave to the request, which is not used again while the request is unanswered.
 * Every request is answered exactly once, at once or later, unless its peer is gone before.
 *
 *  - Requests that wait for one thing are served first come, first served.
 *  - Locks and semaphores are held by peers. When a peer is gone, its locks are free, and the next
 *    holder of each lock is answered -EOWNERDEAD, once, even if it comes much later; the units of
 *    the peer are released. A peer that asks for a lock that it holds waits like all others. Only
 *    the holder of a unit can release it: a semaphore guards, it does not signal.
 *  - A semaphore's initial number counts when the semaphore begins. It begins again when no peer
 *    holds it or waits for it.
 *  - All callers of a barrier name the same number of parties; while one waits, another number is
 *    answered -EINVAL and changes nothing. The first to come has index parties - 1, the last has 0.
 *  - A delete removes the value, counter, list and event of its name at once. Waiting calls
 *    continue to wait.
 *  - A thing that is in its initial state again (an empty list, a counter at 0, a clear event, ...)
 *    takes no memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "share/store_wire.h"

struct fbr_store_engine;

/* `bytes` (never NULL) are valid during the call. */
typedef void fbr_store_reply_fn(void *user, uint64_t peer, uint64_t call, int code,
                                const void *bytes, size_t len);

/* memory_max: bytes of names, values, waiting requests and their bookkeeping, about. A request that
 * would exceed it is answered -ENOSPC and changes nothing. 0: no limit. NULL when memory is
 * short. */
struct fbr_store_engine *fbr_store_engine_open(fbr_store_reply_fn *reply, void *user,
                                               size_t memory_max);
/* Closes the engine; no request is answered. NULL is fine. */
void fbr_store_engine_close(struct fbr_store_engine *e);

/* Runs one request, which must fill `c` to its end. A malformed request is answered -EBADMSG and
 * changes nothing; so is a request whose (peer, call) still waits. */
void fbr_store_request(struct fbr_store_engine *e, uint64_t peer, uint64_t call, struct fbr_cur *c);
/* The client's time is over. A request that still waits is answered -ETIMEDOUT (GET: -ENOENT) and
 * has no effect, except that a barrier breaks. A request that was answered (or never made) is left
 * alone, and nothing is answered. */
void fbr_store_cancel(struct fbr_store_engine *e, uint64_t peer, uint64_t call);
/* Forgets the peer's waiting requests without an answer, breaks the barriers at which it waits, and
 * frees all that it holds. */
void fbr_store_peer_gone(struct fbr_store_engine *e, uint64_t peer);

/* Bytes counted against memory_max; 0 for a store in its initial state without peers. */
size_t fbr_store_engine_memory(const struct fbr_store_engine *e);
