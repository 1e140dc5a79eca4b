/* channel.h - queues of messages between processes, from which queue.c and pipe.c are made.
 *
 * A channel has one or two lanes (a pipe has one each way). It lives in one process, its owner
 * (owner.c), and is used there and from other processes, its clients (client.c), through the same
 * calls. queue_engine.h decides which process gets which message. A process has one client for all
 * its handles on a channel.
 *
 * Records, after the object's id; all begin u32 op, u32 lane. Client to owner:
 *
 *     PUTS      u64 batch, u32 count, u32 flags, count x (u64 length, bytes, zeros to 8)
 *     CANCEL    u64 batch: withdraw it (of one message)
 *     ASK       u64 taken, u32 hungry, u32 want, u64 probe: the state of this client
 *     RETURNED  u64 from: the answer to RECALL
 *     WATCH     for a lane that the client reads: report when there is a message, and when not
 *     DIRECT    token (32 bytes), str path: for a pipe, the client listens at this path for a
 *               stream (direct.h)
 *     GO        the client sends by the stream from now on
 *     UNREAD    bytes: a message that came by the stream and was not taken
 *     DIRECT_ENDED  there are no more UNREAD messages
 *
 * Calls, u64 call, u32 poll, u32 0. The owner answers each with u64 call, i64 result: 0 or more, or
 * a negative errno.
 *
 *     SHUT
 *     LEAVE     for a pipe, the lane is the end that the client leaves
 *     ATTACH    for a pipe, the lane is the end that the client attaches to
 *     SIZE      the result is the number of messages
 *     DONE      this client has finished one message
 *     JOIN      answered when all messages are finished; poll: at once. Also answers all JOINs
 *               before it, except with -EAGAIN
 *     DEAL      from now on deal the messages in turn
 *
 * Owner to client:
 *
 *     ACK       u64 batch, i64 code
 *     DELIVER   u64 seq, bytes
 *     AHEAD     the same; the client need not ask for the next messages, up to `want`
 *     RECALL
 *     EMPTY     u64 probe: all that there was for this client has been delivered and is its own
 *     EOF
 *     READY     u32 1: a get would not wait; 0: it would. Sent to watching clients on each change
 *     DIRECT_IS  u32 1: the owner has connected and sends by the stream; 0: it has not
 *     DIRECT_END  return the messages of the stream that were not taken
 *
 * An ACK answers all batches up to its own. In a bounded queue it answers only its own batch, which
 * is one message that a thread waits for. An ACK is sent when the batch was accepted, if
 * FBR_CH_ANSWER asks for one or something went wrong. A batch of no messages asks for the state of
 * the batches before it.
 *
 * Ownership of messages. A delivered message belongs to the client, which may hand it to its
 * program at once and report that later. So the owner cannot know which messages a silent client
 * has handed out, and gives them to no other process: they belong to the client until it answers a
 * RECALL, leaves, or is gone. But no other process waits for that. A RECALL that has no answer
 * after 5 s is overdue: from then on the other processes get the messages that there are, and the
 * messages of the late client take no room in a bounded queue. The late client has few messages:
 * only those that are ahead of its program, about a millisecond's work.
 *
 * The owner may take a client for gone while the client lives and does not know it, for example
 * because the client was stopped for longer than the heartbeat allows. The messages of that client
 * went to others, and the client must not hand them out as well. So a client whose threads did not
 * look at the clock for a while (a quarter of the silence after which the owner gives it up, at
 * most a second) doubts the messages that it holds: it sends a probe, and hands out nothing before
 * EMPTY has answered the probe. If its connection ends instead, it drops the messages that it
 * holds. Only messages that its program had taken without the owner's knowledge may come twice, as
 * after a death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "share/queue_engine.h"
#include "share/share.h"

enum fbr_channel_op {
    FBR_CH_PUTS = 1,
    FBR_CH_CANCEL,
    FBR_CH_ASK,
    FBR_CH_RETURNED,
    FBR_CH_SHUT,
    FBR_CH_LEAVE,
    FBR_CH_ATTACH,
    FBR_CH_SIZE,
    FBR_CH_ACK,
    FBR_CH_DELIVER,
    FBR_CH_AHEAD,
    FBR_CH_RECALL,
    FBR_CH_EMPTY,
    FBR_CH_EOF,
    FBR_CH_WATCH = 17,
    FBR_CH_READY,
    FBR_CH_DONE,
    FBR_CH_JOIN,
    FBR_CH_DEAL,
    FBR_CH_DIRECT = 24,
    FBR_CH_DIRECT_IS,
    FBR_CH_GO,
    FBR_CH_DIRECT_END,
    FBR_CH_UNREAD,
    FBR_CH_DIRECT_ENDED,
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
/* SHUT, DONE or DEAL. -EPIPE: the channel is closed. */
int fbr_owner_call(struct fbr_owner *h, int lane, enum fbr_channel_op op);
/* Ends the channel: its users, in this process and in others, get -EPIPE. */
void fbr_owner_close(struct fbr_owner *h);
/* For pipes. An end lives as long as a process holds it, by a handle or by its address. attach: one
 * more handle of this process; leave: one less. An end whose address was exported also waits for
 * the first process that attaches to it. When both ends have ended, the channel ends. */
void fbr_owner_export_end(struct fbr_owner *h, int end);
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
int fbr_client_call(struct fbr_client *g, int lane, enum fbr_channel_op op); /* DONE or DEAL */
/* Flushes for as long as the owner takes something within the configured `linger`. */
void fbr_client_close(struct fbr_client *g, int lane);
