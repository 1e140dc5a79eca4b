/* channel.h - queues of messages between processes, from which queue.c and pipe.c are made.
 *
 * A channel has one or two lanes (a pipe has one each way). It lives in one process, its owner
 * (owner.c), and is used there and from other processes, its clients (client.c), through the same
 * calls. queue_engine.h decides which process gets which message. A process has one client for all
 * its handles on a channel.
 *
 * docs/wire.md has the rules of their conversation: who owns a message, when a client doubts what
 * it has, what a stream changes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "share/queue_engine.h"
#include "share/share.h"

/* Records, after the object's id; all begin u32 op, u32 lane. The owner answers a call (u64 call,
 * u32 poll, u32 0) by a record with the same op: u64 call, i64 result, which is 0 or more, or a
 * negative errno. */
enum fbr_channel_op {
    /* Client to owner. */
    FBR_CH_PUTS = 1, /* u64 batch, u32 count, u32 flags, count x (u64 length, bytes, zeros to 8) */
    FBR_CH_CANCEL,   /* u64 batch: withdraw it (of one message) */
    FBR_CH_ASK,      /* u64 taken, u32 hungry, u32 want, u64 probe: the state of this client */
    FBR_CH_RETURNED, /* u64 from: the answer to RECALL */
    /* Calls. For a pipe, the lane of LEAVE, ATTACH and EXPORT is the end. */
    FBR_CH_SHUT,
    FBR_CH_LEAVE,
    FBR_CH_ATTACH,
    FBR_CH_SIZE, /* the result is the number of messages */
    /* Owner to client. */
    FBR_CH_ACK,     /* u64 batch, i64 code */
    FBR_CH_DELIVER, /* u64 seq, bytes */
    FBR_CH_AHEAD,   /* the same; the client need not ask for the next messages, up to `want` */
    FBR_CH_RECALL,  /* return what your program has not taken */
    FBR_CH_EMPTY,   /* u64 probe: no message was there for the ask with this probe */
    FBR_CH_EOF,     /* the lane is shut and empty: hungry gets fail */
    /* Client to owner, for a lane that it reads: report when there is a message, and when not. */
    FBR_CH_WATCH = 17,
    FBR_CH_READY, /* owner to client: u32 1, a get would not wait; 0, it would; u32 0 */
    /* Calls. */
    FBR_CH_DONE, /* this client has finished one message */
    /* Answered when all messages are finished; poll: at once. Also answers all JOINs before it,
     * except with -EAGAIN. */
    FBR_CH_JOIN,
    FBR_CH_DEAL,   /* from now on deal the messages in turn */
    FBR_CH_EXPORT, /* the end waits for a process that attaches, as long as this client lives */
    /* Streams of pipes (direct.h). */
    FBR_CH_DIRECT = 24, /* token (32 bytes), str path: the client listens there for a stream */
    FBR_CH_DIRECT_IS,   /* owner to client: u32 1, it sends by the stream from now on; 0; u32 0 */
    FBR_CH_GO,          /* so does the client */
    FBR_CH_DIRECT_END,  /* owner to client: return the messages of the stream that were not taken */
    FBR_CH_UNREAD,      /* bytes: such a message */
    FBR_CH_DIRECT_ENDED, /* there are no more UNREAD messages */
};

#define FBR_CH_BATCH_MAX 4096 /* messages in one PUTS */
#define FBR_CH_ANSWER 1       /* flag of PUTS */
/* flag of an address: a put ends when the owner has accepted the message */
#define FBR_CH_BOUNDED 1
#define FBR_CH_ROOM 128 /* bytes that a record has around one message, at most */

/* ---- The owner's side ---- */

struct fbr_owner;

/* A queue with one handle, or a pipe with two; each handle releases it once. config->held is
 * ignored. */
int fbr_owner_open(struct fbr_owner **h, enum fbr_kind kind,
                   const struct fbr_queue_engine_config *config);
/* The channel, if its address is of this process, held once more; or NULL. */
struct fbr_owner *fbr_owner_local(const struct fbr_address *a);
/* Holds once more a channel that the caller holds. */
struct fbr_owner *fbr_owner_hold(struct fbr_owner *h);
void fbr_owner_release(struct fbr_owner *h);
uint64_t fbr_owner_id(const struct fbr_owner *h); /* the id of its object */
int fbr_owner_address(struct fbr_owner *h, uint8_t flags, struct fiber_address *address);
int fbr_owner_put(struct fbr_owner *h, int lane, const void *data, size_t len, int timeout_ms);
/* `out` NULL: the message stays. */
int fbr_owner_get(struct fbr_owner *h, int lane, struct fiber_bytes *out, int timeout_ms);
/* A descriptor that polls readable while a get need not wait; or an error that is kept. All handles
 * of this process share it; *watches notes that this handle has asked for it. */
int fbr_owner_fd(struct fbr_owner *h, int lane, bool *watches);
/* A handle ends. The last one that has asked for the descriptor closes it. */
void fbr_owner_unwatch(struct fbr_owner *h, int lane, bool watches);
int fbr_owner_size(struct fbr_owner *h, int lane, size_t *n);
int fbr_owner_join(struct fbr_owner *h, int lane, int timeout_ms);
/* SHUT, DONE, DEAL or EXPORT. -EPIPE: the channel is closed. */
int fbr_owner_call(struct fbr_owner *h, int lane, enum fbr_channel_op op);
/* Ends the channel: its users, in this process and in others, get -EPIPE. */
void fbr_owner_close(struct fbr_owner *h);
/* For pipes. An end lives as long as a process holds it, by a handle or by its address. attach: one
 * more handle of this process; leave: one less. An end whose address was exported also waits for
 * the first process that attaches to it. When both ends have ended, the channel ends. */
void fbr_owner_attach(struct fbr_owner *h, int end);
void fbr_owner_leave(struct fbr_owner *h, int end);

/* ---- The client's side ---- */

struct fbr_client;

/* `lane` is the lane in which this handle puts; for a pipe it is the end. */
int fbr_client_open(struct fbr_client **g, const struct fbr_address *a, int lane);
/* One more handle, for a caller that has one. */
struct fbr_client *fbr_client_hold(struct fbr_client *g, int lane);
int fbr_client_put(struct fbr_client *g, int lane, const void *data, size_t len, int timeout_ms);
int fbr_client_get(struct fbr_client *g, int lane, struct fiber_bytes *out, int timeout_ms);
/* As fbr_owner_fd(); all handles of this process share the descriptor. */
int fbr_client_fd(struct fbr_client *g, int lane);
int fbr_client_flush(struct fbr_client *g, int lane, int timeout_ms);
int fbr_client_size(struct fbr_client *g, int lane, size_t *n);
int fbr_client_shut(struct fbr_client *g, int lane);
int fbr_client_join(struct fbr_client *g, int lane, int timeout_ms);
/* DONE, DEAL, EXPORT or ATTACH */
int fbr_client_call(struct fbr_client *g, int lane, enum fbr_channel_op op);
/* Flushes for as long as the owner takes something within the configured `linger`. */
void fbr_client_close(struct fbr_client *g, int lane);
