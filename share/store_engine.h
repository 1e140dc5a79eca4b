/* store_engine.h - the state of a shared store: carries out requests, and decides when each is
 * answered.
 *
 * Pure: requests in, answers out through one callback. No clock, no descriptors, no lock: the
 * caller serialises all calls on one engine, and the callback may not call the engine back.
 *
 * A request is (peer, call): the number of a process, never used again, and the number that it gave
 * to this request, not used again while it is unanswered. Every request is answered exactly once,
 * at once or later, unless its peer is gone before. Requests and answers are laid out in
 * store_wire.h.
 *
 *  - Those that wait for one thing are served first come, first served.
 *  - Locks and semaphores are held by peers. When a peer is gone, its locks are free, and the next
 *    to hold each is answered -EOWNERDEAD, once, also if it comes much later; its units are given
 *    back. A peer that asks for a lock that it holds waits like all others. Only the holder of a
 *    unit can release it: a semaphore guards, it does not signal.
 *  - A semaphore's initial number counts when it begins, and it begins again when nobody holds or
 *    waits for it.
 *  - All callers of a barrier name the same number of parties; another number is answered -EINVAL
 *    and changes nothing. The first to come has index parties - 1, the last has 0.
 *  - A delete takes the value, counter, list and event of its name at once. Waiting calls go on to
 *    wait.
 *  - A thing that has its initial state again (an empty list, a counter at 0, a clear event, ...)
 *    takes no memory.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_STORE_ENGINE_H
#define FBR_STORE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "share/store_wire.h"

struct fbr_store_engine;

/* `bytes` (never NULL) are valid during the call. */
typedef void fbr_store_reply_fn(void *user, uint64_t peer, uint64_t call, int code,
                                const void *bytes, size_t len);

/* memory_max: bytes of names, values, waiting requests and their bookkeeping, about; requests that
 * would exceed it are answered -ENOSPC and change nothing. 0: no limit. NULL when memory is
 * short. */
struct fbr_store_engine *fbr_store_engine_open(fbr_store_reply_fn *reply, void *user,
                                               size_t memory_max);
/* Nobody is answered. NULL is fine. */
void fbr_store_engine_close(struct fbr_store_engine *e);

/* One request, which must fill `c` to its end. A malformed one is answered -EBADMSG and changes
 * nothing; so is one whose (peer, call) is still waiting. */
void fbr_store_request(struct fbr_store_engine *e, uint64_t peer, uint64_t call, struct fbr_cur *c);
/* The client's time is over: a request that still waits is answered -ETIMEDOUT (GET: -ENOENT) and
 * has no effect, except that a barrier breaks; one that was answered (or never asked) is left
 * alone, and nothing is answered. */
void fbr_store_cancel(struct fbr_store_engine *e, uint64_t peer, uint64_t call);
/* Forgets the peer's waiting requests without an answer, breaks the barriers it waits at, frees
 * what it holds. */
void fbr_store_peer_gone(struct fbr_store_engine *e, uint64_t peer);

/* Bytes counted against memory_max; 0 for a store in its initial state without peers. */
size_t fbr_store_engine_memory(const struct fbr_store_engine *e);

#endif
