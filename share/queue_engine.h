/* queue_engine.h - decides which process gets which message of a queue, in the process that owns
 * the queue.
 *
 * Pure: events go in (a put, a wish, an acknowledgement, a death), decisions come out through the
 * callbacks. The engine has no clock, no descriptors and no lock: the caller serialises all calls
 * on one engine, and no callback may call the engine back.
 *
 * Peers are numbers that are never used again; 0 is the owner's own process. The engine knows a
 * peer from the peer's first call until fbr_queue_engine_gone(). All functions with a `peer` take
 * remote peers and 0 alike, unless they say otherwise.
 *
 * A message is (data, len) and opaque. The engine owns it from an accepted or parked put until it
 * hands the message to a local get or drops it (`drop`). A message that was assigned to a remote
 * peer stays with the engine until that peer's program has taken it, so that it can go to another
 * peer if that peer dies.
 *
 * A remote consumer reports a state in fbr_queue_engine_ask(), not an increment, so repeats do no
 * harm:
 *
 *     taken   the highest sequence number that its program has taken. Report it soon after each
 *             take (or batch of takes): when the peer dies, messages that are not known to be taken
 *             are delivered again
 *     hungry  how many of its threads wait in get and have no message. Ask whenever this number
 *             grows, and when it shrinks because a thread gave up
 *     want    how many untaken messages the peer would like to have, those for hungry threads
 *             included (>= hungry)
 *
 * A peer that is the only consumer at work gets up to `want` messages. As soon as another peer is
 * hungry (or a thread reads in the owner), the untaken messages are recalled. From then on each
 * consumer gets as many messages as it is hungry for and no more, until one consumer has been the
 * only reader for a while. So one consumer alone is fast; among several, no consumer keeps messages
 * that another one waits for, and none gets an older message of a sender after a newer one. The
 * exception is a message that comes back because its receiver died, gave up its get while the
 * message was on its way, or answered a recall too late: it comes back as early as possible, which
 * may be after newer messages that others took. The hungry are served first come, first served.
 *
 * A queue that deals gives its messages to the consumers in turn. Each consumer has a share, which
 * stays here until the consumer is hungry; nothing is recalled. A consumer takes its place in the
 * turn with its first get. When a consumer comes, or goes before it took all of its share, the
 * shares that are still here are dealt again.
 *
 * The engine also counts unfinished messages: a message is unfinished from its put until a consumer
 * reports that it has finished one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "runtime/base/held.h"

struct fbr_queue_engine;

struct fbr_queue_engine_ops {
    /* Send this message to the remote peer, in order with all else that is sent to it. The sequence
     * numbers of a peer begin at 1 and have no gaps. `data` stays valid until the peer acknowledged
     * the message, returned it, or is gone: before the caller reports that a peer is gone, it drops
     * all that it has queued for the peer. */
    void (*deliver)(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len);
    /* A parked put ended: 0 (accepted) or -EPIPE (the queue was shut; the message was dropped). */
    void (*put_done)(void *user, uint64_t peer, uint64_t call, int code);
    /* Send RECALL to the remote peer. The peer answers fbr_queue_engine_returned() at once,
     * whatever its program does. */
    void (*recall)(void *user, uint64_t peer);
    /* The queue is shut and drained: the hungry gets of this remote peer fail with -EPIPE, and the
     * engine treats the peer as no longer hungry. A later hungry ask gets the same answer. */
    void (*eof)(void *user, uint64_t peer);
    /* A thread of this process that called fbr_queue_engine_wait() may try again; `all`: all such
     * threads may. */
    void (*wake_local)(void *user, bool all);
    /* Frees a message; NULL: free(data). */
    void (*drop)(void *user, void *data, size_t len);
    /* To a peer that watches: from now on a get would not wait (`ready`), or it would (not
     * `ready`). NULL if no peer watches. */
    void (*ready)(void *user, uint64_t peer, bool ready);
};

/* Calls from these numbers on are for messages that are here already (fbr_queue_engine_put()), and
 * for those that also go to the mark (fbr_queue_engine_mark()). */
#define FBR_QUEUE_OURS (1ull << 63)
#define FBR_QUEUE_EARLIER (3ull << 62)

struct fbr_queue_engine_config {
    size_t max_messages;   /* put and not yet taken, without the late ones; 0: no limit */
    size_t max_bytes;      /* no put is accepted while this many bytes or more wait; 0: no limit */
    struct fbr_held *held; /* counts the messages of remote peers, parked ones too; may be NULL */
};

/* The contents of the queue; fbr_queue_engine_stats(). */
struct fbr_queue_engine_stats {
    size_t waiting;  /* messages in the queue, or dealt */
    size_t assigned; /* at remote consumers, not known to be taken */
    size_t late;     /* of these, at consumers whose recall is overdue */
    size_t ahead;    /* of the others, those for which no thread waits */
    size_t recalls;  /* recalls without an answer */
    size_t parked;   /* puts that wait for room */
    size_t bytes;    /* of waiting and assigned messages */
    bool shut;
};

/* NULL when memory is short. `ops` must live as long as the engine; config may be NULL. */
struct fbr_queue_engine *fbr_queue_engine_open(const struct fbr_queue_engine_ops *ops, void *user,
                                               const struct fbr_queue_engine_config *config);
/* Drops all messages; no callback except `drop` runs. NULL is fine. */
void fbr_queue_engine_close(struct fbr_queue_engine *e);

/* ---- producers ---- */

/* 0: accepted; the engine owns the message. 1: parked until there is room; the engine owns the
 * message, and put_done or fbr_queue_engine_put_cancel() ends the put. -EPIPE (shut), -ENOMEM,
 * -ENOBUFS (for a remote peer: the account is full): the caller keeps the message. `call` tells the
 * parked puts of a peer apart. A `call` from FBR_QUEUE_OURS on is for a message that is here
 * already: it is counted in any case, and accepted even after the queue was shut. */
int fbr_queue_engine_put(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, void *data,
                         size_t len);
/* Withdraws a parked put and drops its message: 0; put_done does not run. -ENOENT: the put is not
 * parked (any more), because it was accepted or put_done reported its end. */
int fbr_queue_engine_put_cancel(struct fbr_queue_engine *e, uint64_t peer, uint64_t call);
/* Accepts all parked puts of this peer, even without room; put_done runs for each. Messages that a
 * peer wrote before it went must be read, and are in our memory anyway. */
void fbr_queue_engine_put_admit(struct fbr_queue_engine *e, uint64_t peer);
/* Messages with calls from FBR_QUEUE_EARLIER on go here: behind those that were put before this
 * call, before those that are put after it, and in their own order. */
void fbr_queue_engine_mark(struct fbr_queue_engine *e);
/* Such messages are on their way: until none are awaited, nobody gets a message or the end. */
void fbr_queue_engine_await(struct fbr_queue_engine *e, bool awaits);
/* No more puts are accepted, and parked ones fail; gets drain the rest. Idempotent. */
void fbr_queue_engine_shut(struct fbr_queue_engine *e);

/* ---- remote consumers (peer != 0) ---- */

/* The peer's state, see the top of this file. 0; -EPROTO for a `taken` that was never assigned,
 * want < hungry, or peer 0 (nothing is changed); -ENOMEM. All messages that the ask makes possible
 * are delivered before the call returns. So when a peer only looks (a get with timeout 0), an
 * answer that is sent after this call means "empty"; the peer then asks again, with one hungry
 * thread less. */
int fbr_queue_engine_ask(struct fbr_queue_engine *e, uint64_t peer, uint64_t taken, uint32_t hungry,
                         uint32_t want);
/* Whether this peer, while it stays the only consumer, gets up to `want` messages without being
 * hungry. */
bool fbr_queue_engine_reads_ahead(const struct fbr_queue_engine *e, uint64_t peer);
/* The answer to a recall: the peer's program has taken all messages before `from`, and every
 * message that was delivered from `from` on is back (none: from = last delivered + 1). The taken
 * messages count as gets of hungry threads. -EPROTO: nothing was recalled, or `from` is not
 * possible; nothing is changed. */
int fbr_queue_engine_returned(struct fbr_queue_engine *e, uint64_t peer, uint64_t from);
/* While recalls are unanswered, no consumer gets messages, so that the order holds. The caller may
 * report that a peer takes too long (for example, it is frozen): the others then go on without it.
 * The peer's program may have taken the peer's messages, so they come back only when the peer
 * answers or is gone. Until then they do not count for max_messages, so there may be more messages
 * than that afterwards. */
void fbr_queue_engine_overdue(struct fbr_queue_engine *e, uint64_t peer);
/* From now on each consumer gets its share, in turn. Idempotent. */
void fbr_queue_engine_deal(struct fbr_queue_engine *e);

/* ---- finished messages ---- */

/* The peer (0, too) has finished one message. -ERANGE: no message is unfinished. */
int fbr_queue_engine_done(struct fbr_queue_engine *e, uint64_t peer);
/* 0: every message that was put is finished. -EAGAIN: some are not. -EOWNERDEAD: some are not, and
 * the consumers that took them are gone. The result changes only with done, gone and put. */
int fbr_queue_engine_joined(const struct fbr_queue_engine *e);

/* Called when puts have waited for room for a while. If gets wait as well, and all messages are
 * with consumers, the messages are recalled: one consumer may be frozen and hold the room. */
void fbr_queue_engine_press(struct fbr_queue_engine *e);
/* The peer is gone, or has closed its handle (after a last ask that reports what it took). The
 * messages that it had not taken go back to the front, its parked puts are dropped without
 * put_done, and its gets are forgotten. Unknown peers are fine. */
void fbr_queue_engine_gone(struct fbr_queue_engine *e, uint64_t peer);

/* The peer (0, too) wants a `ready` call when there is a message for the next get, or the end, and
 * another one when there is none any more; the first call comes at once if there is a message now.
 * No message is reserved for the peer. While it watches, no other peer reads ahead, so that there
 * is a message to report. Lasts until fbr_queue_engine_gone(); for 0, until
 * fbr_queue_engine_unwatch(). 0 or -ENOMEM. */
int fbr_queue_engine_watch(struct fbr_queue_engine *e, uint64_t peer);
void fbr_queue_engine_unwatch(struct fbr_queue_engine *e);

/* ---- consumers in the owner's process ---- */

/* 0: the next message, which the caller owns now. -EPIPE: shut and drained. -EAGAIN: empty.
 * -EINPROGRESS: messages are on their way back from a remote consumer; even a caller that does not
 * want to wait should wait a moment for them. */
int fbr_queue_engine_get(struct fbr_queue_engine *e, void **data, size_t *len);
/* Returns the code that get would return, without taking the message. */
int fbr_queue_engine_look(struct fbr_queue_engine *e);
/* One thread more (wait) or less (unwait) waits in get. A thread that got -EAGAIN or -EINPROGRESS
 * calls wait once, sleeps until wake_local, and gets again, as often as needed. It calls unwait
 * once, when it has a message or gives up. */
void fbr_queue_engine_wait(struct fbr_queue_engine *e);
void fbr_queue_engine_unwait(struct fbr_queue_engine *e);

/* Recalls all messages for which no thread waits. When `recalls` of the stats is 0, all that a
 * program took before this call is known, except what its waiting threads got. */
void fbr_queue_engine_settle(struct fbr_queue_engine *e);

void fbr_queue_engine_stats(const struct fbr_queue_engine *e, struct fbr_queue_engine_stats *stats);
