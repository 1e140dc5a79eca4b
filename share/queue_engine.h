/* queue_engine.h - decides which process gets which message of a queue, in the process that owns
 * the queue.
 *
 * Pure: events in (a put, a wish, an acknowledgement, a death), decisions out through the
 * callbacks. No clock, no descriptors, no lock: the caller serialises all calls on one engine, and
 * no callback may call the engine back.
 *
 * Peers are numbers that are never used again; 0 is the owner's own process. A peer is known from
 * its first call on, until fbr_queue_engine_gone(). All functions with a `peer` are for remote
 * peers and for 0 alike, unless they say otherwise.
 *
 * A message is (data, len) and opaque; the engine owns it from an accepted or parked put until it
 * hands it over to a local get or drops it (`drop`). A message that was assigned to a remote peer
 * stays with the engine until that peer's program has taken it, so that it can go to another one if
 * the peer dies.
 *
 * A remote consumer reports a state, in fbr_queue_engine_ask(), and not an increment, so repeats do
 * no harm:
 *
 *     taken   the highest sequence number that its program has taken. Say it soon after each take
 *             (or batch of takes): what is not known to be taken when the peer dies is delivered
 *             again
 *     hungry  how many of its threads wait in get and have nothing. Ask whenever it grows, and when
 *             it shrinks because a thread gave up
 *     want    how many untaken messages it would like to have with it, hungry ones included
 *             (>= hungry)
 *
 * A peer that is the only consumer at work is given up to `want` messages. As soon as somebody else
 * is hungry (or reads in the owner) the untaken ones are recalled, and from then on each consumer
 * gets what it is hungry for and no more, until one of them has been the only reader for a while.
 * So one consumer alone is fast; among several nobody sits on messages that another one waits for,
 * and nobody gets an older message of a sender after a newer one. The exception: a message that
 * comes back because its receiver died, gave up its get while it was on its way, or answered a
 * recall too late, comes back as early as possible, which may be after newer ones that others took.
 * Among the hungry, first come, first served.
 *
 * A queue that deals gives its messages to the consumers in turn. Each consumer has a share, which
 * stays here until the consumer is hungry; nothing is recalled. A consumer takes its place in the
 * turn with its first get. When one comes, or goes before it took all of its share, the shares that
 * are still here are dealt anew.
 *
 * The engine also counts messages that are not finished: a message is unfinished from its put until
 * some consumer says that it has finished one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_QUEUE_ENGINE_H
#define FBR_QUEUE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/held.h"

struct fbr_queue_engine;

struct fbr_queue_engine_ops {
    /* Send this to the remote peer, in order with what else is sent to it. Sequence numbers of a
     * peer begin at 1 and have no gaps. `data` stays valid until the peer acknowledged it, returned
     * it, or is gone: before the caller reports that a peer is gone, it drops what it has still
     * queued for it. */
    void (*deliver)(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len);
    /* A parked put ended: 0 (accepted) or -EPIPE (the queue was shut; the message was dropped). */
    void (*put_done)(void *user, uint64_t peer, uint64_t call, int code);
    /* Send RECALL to the remote peer. It answers fbr_queue_engine_returned(), at once and whatever
     * its program does. */
    void (*recall)(void *user, uint64_t peer);
    /* The queue is shut and drained: the hungry gets of this remote peer fail with -EPIPE; the
     * engine takes it as no longer hungry. An ask that is hungry is answered so again. */
    void (*eof)(void *user, uint64_t peer);
    /* A thread of this process that said fbr_queue_engine_wait() may try again; `all`: all of
     * them. */
    void (*wake_local)(void *user, bool all);
    /* Frees a message; NULL: free(data). */
    void (*drop)(void *user, void *data, size_t len);
    /* To a peer that watches: from now on a get would not wait (`ready`), or would. NULL: nobody
     * watches. */
    void (*ready)(void *user, uint64_t peer, bool ready);
};

#define FBR_QUEUE_OURS (1ull << 63)

struct fbr_queue_engine_config {
    size_t max_messages;   /* put and not yet taken, but for those that are late; 0: no bound */
    size_t max_bytes;      /* no put is accepted while so many bytes or more wait; 0: no bound */
    struct fbr_held *held; /* counts the messages of remote peers, parked ones too; may be NULL */
};

/* The contents of the queue; fbr_queue_engine_stats(). */
struct fbr_queue_engine_stats {
    size_t waiting;  /* messages in the queue, or dealt */
    size_t assigned; /* at remote consumers, not known to be taken; `late` of them, */
    size_t late;     /* where a recall is overdue */
    size_t parked;   /* puts that wait for room */
    size_t bytes;    /* of waiting and assigned messages */
    bool shut;
};

/* NULL when memory is short. `ops` must live as long as the engine; config may be NULL. */
struct fbr_queue_engine *fbr_queue_engine_open(const struct fbr_queue_engine_ops *ops, void *user,
                                               const struct fbr_queue_engine_config *config);
/* Drops all messages; no other callback runs. NULL is fine. */
void fbr_queue_engine_close(struct fbr_queue_engine *e);

/* ---- producers ---- */

/* 0: accepted; the message is the engine's. 1: parked until there is room; the message is the
 * engine's, and put_done or fbr_queue_engine_put_cancel() ends it. -EPIPE (shut), -EALREADY (this
 * peer has parked a put of that call), -ENOMEM, -ENOBUFS (of a remote peer: the account is full):
 * the message stays the caller's. `call` tells a peer's parked puts apart; one of
 * FBR_QUEUE_OURS on is of a message that is here already, and counted in any case. */
int fbr_queue_engine_put(struct fbr_queue_engine *e, uint64_t peer, uint64_t call, void *data,
                         size_t len);
/* Withdraws a parked put and drops its message: 0; put_done does not run. -ENOENT: it is not parked
 * (any more): it was accepted, or put_done told its end. */
int fbr_queue_engine_put_cancel(struct fbr_queue_engine *e, uint64_t peer, uint64_t call);
/* Accepts all that this peer has parked, though there is no room; put_done runs for each. Messages
 * that a peer wrote before it went must be read, and are in our memory anyway. */
void fbr_queue_engine_put_admit(struct fbr_queue_engine *e, uint64_t peer);
/* No more puts by anyone, parked ones fail; gets drain the rest. Idempotent. */
void fbr_queue_engine_shut(struct fbr_queue_engine *e);

/* ---- remote consumers (peer != 0) ---- */

/* The peer's state, see the top of this file. 0; -EPROTO for a `taken` of what was never assigned,
 * want < hungry, or peer 0 (nothing is changed); -ENOMEM. Everything that it makes possible is
 * delivered before it returns: when a peer only looks (a get with timeout 0), an answer that is
 * sent after this call says "empty", and then ask with hungry less one. */
int fbr_queue_engine_ask(struct fbr_queue_engine *e, uint64_t peer, uint64_t taken, uint32_t hungry,
                         uint32_t want);
/* Whether this peer, while it stays the only consumer, is given up to `want` messages without being
 * hungry. */
bool fbr_queue_engine_reads_ahead(const struct fbr_queue_engine *e, uint64_t peer);
/* The answer to a recall: its program has taken all before `from`, and every message that was
 * delivered from `from` on is back (none: from = last delivered + 1). Its taken messages have fed
 * hungry threads. -EPROTO: nothing was recalled, or `from` cannot be; nothing is changed. */
int fbr_queue_engine_returned(struct fbr_queue_engine *e, uint64_t peer, uint64_t from);
/* While recalls are unanswered nobody is given messages, so that the order holds. The caller may
 * say that a peer takes too long (it is frozen, say): the others go on without it. Its messages may
 * be in its program's hands, so they come back only when it answers or is gone. Until then they do
 * not count for max_messages, so there may be more messages than that afterwards. */
void fbr_queue_engine_overdue(struct fbr_queue_engine *e, uint64_t peer);
/* From now on each consumer gets its share, in turn. Idempotent. */
void fbr_queue_engine_deal(struct fbr_queue_engine *e);

/* ---- finished messages ---- */

/* That peer (0, too) has finished one message. -ERANGE: no message is unfinished. */
int fbr_queue_engine_done(struct fbr_queue_engine *e, uint64_t peer);
/* 0: every message that was put is finished. -EAGAIN: some are not. -EOWNERDEAD: some are not, and
 * those who took them are gone. This changes only with done, gone and put. */
int fbr_queue_engine_joined(const struct fbr_queue_engine *e);

/* Puts have waited for room for a while. If gets wait as well, and all messages are with consumers,
 * these are recalled: one of them may be frozen, and hold the room. */
void fbr_queue_engine_press(struct fbr_queue_engine *e);
/* The peer is gone, or has closed its handle (after a last ask that tells what it took): what it
 * had not taken goes back to the front, its parked puts are dropped without put_done, its gets are
 * forgotten. Unknown peers are fine. */
void fbr_queue_engine_gone(struct fbr_queue_engine *e, uint64_t peer);

/* The peer (0, too) wants to be told when there is a message for the next that asks, or the end,
 * and when not any more; at once if there is now. Nothing is kept for it. While it watches nobody
 * else reads ahead, so that there is something to be told of. Until fbr_queue_engine_gone(). 0 or
 * -ENOMEM. */
int fbr_queue_engine_watch(struct fbr_queue_engine *e, uint64_t peer);

/* ---- consumers in the owner's process ---- */

/* 0: the next message, now the caller's. -EPIPE: shut and drained. -EAGAIN: empty. -EINPROGRESS:
 * messages are on their way back from a remote consumer; who would not wait should wait for them a
 * moment. */
int fbr_queue_engine_get(struct fbr_queue_engine *e, void **data, size_t *len);
/* Returns the code that get would return, without taking the message. */
int fbr_queue_engine_look(struct fbr_queue_engine *e);
/* One more, one less thread waits in get. A thread that got -EAGAIN or -EINPROGRESS calls wait
 * once, sleeps until wake_local, gets again, sleeps again..., and calls unwait once when it has a
 * message or gives up. */
void fbr_queue_engine_wait(struct fbr_queue_engine *e);
void fbr_queue_engine_unwait(struct fbr_queue_engine *e);

void fbr_queue_engine_stats(const struct fbr_queue_engine *e, struct fbr_queue_engine_stats *stats);

#endif
