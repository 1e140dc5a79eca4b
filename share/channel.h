/* channel.h - queues of messages between processes, from which queue.c and pipe.c are made.
 *
 * A channel has one or two lanes (a pipe has one each way). It lives in one process, its host
 * (owner.c), and is used there and from other processes, its clients (client.c), through the same
 * calls. queue_engine.h decides who gets which message. A process has one client for all its
 * handles on a channel.
 *
 * Records, after the object's id; all begin u32 op, u32 lane. Client to host:
 *
 *     PUTS      u64 batch, u32 count, u32 flags, count x (u64 length, bytes, zeros to 8)
 *     CANCEL    u64 batch: withdraw it (of one message)
 *     ASK       u64 taken, u32 hungry, u32 want, u64 probe: where this client stands
 *     RETURNED  u64 from: the answer to RECALL
 *     SHUT
 *     LEAVE     lane: of a pipe, the end
 *     ATTACH    likewise
 *     SIZE
 *     WATCH     of a lane where it reads: say when there is something, and when not
 *     DONE      u64 call: this client has finished one message
 *     JOIN      u64 call, u32 poll: say when all messages are finished; poll: or at once that not
 *     DEAL      from now on deal the messages in turn
 *     DIRECT    token (32 bytes), str path: of a pipe, listens there for a stream (direct.h)
 *     GO        sends by the stream from now on
 *     UNREAD    bytes: came by the stream, and nobody took it
 *     DIRECT_ENDED  nothing more is unread
 *
 * Host to client:
 *
 *     ACK       u64 batch, i32 code, u32 0
 *     DELIVER   u64 seq, bytes
 *     AHEAD     the same; and the next ones need not be asked for, up to `want`
 *     RECALL
 *     EMPTY     u64 probe: all that there was for you has been delivered, and is yours
 *     EOF
 *     SIZE_IS   u64 messages
 *     LEFT      answers LEAVE
 *     READY     u32 1: a get would not wait; 0: it would. To those that watch, when it changes
 *     DONE_IS   u64 call, i32 code: answers DONE
 *     JOINED    u64 call, i32 code: answers all JOINs up to that one
 *     DIRECT_IS  u32 1: we have connected, and send by the stream; 0: we have not
 *     DIRECT_END  give back what nobody took of the stream
 *
 * An ACK is for all batches up to its own, but in a bounded queue, where each batch is one message
 * that somebody waits for. It is sent when the batch was accepted, if FBR_CH_ANSWER asks for it or
 * something went wrong. A batch of no messages asks where the others are.
 *
 * Ownership of messages. A delivered message is the client's, which may hand it to its program at
 * once and report that later. So the host cannot know what is in the hands of a client that is
 * silent, and gives it to nobody else: it is the client's until it answers a RECALL, leaves, or is
 * gone. But nobody waits for that. A RECALL that was not answered for 5 s is overdue: from then on
 * the others are given what there is, and what the late one has takes no room in a bounded queue.
 * That is little: as much as is ahead of its program, about a millisecond's work.
 *
 * A client that is gone for the host may live and not know it: it was stopped, say, for longer than
 * the heartbeat allows. Its messages went to others, and must not come out of it as well. So a
 * client in which nobody has looked at the clock for a while (a quarter of the silence after which
 * it would be given up, at most a second) doubts what it holds: it sends a probe, and hands out
 * nothing before EMPTY has answered it. When its connection ends instead, it drops what it holds.
 * Only messages that its program had taken already without the host's knowledge may come twice, as
 * after a death.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CHANNEL_H
#define FBR_CHANNEL_H

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
    FBR_CH_SIZE_IS,
    FBR_CH_LEFT,
    FBR_CH_WATCH,
    FBR_CH_READY,
    FBR_CH_DONE,
    FBR_CH_JOIN,
    FBR_CH_DEAL,
    FBR_CH_DONE_IS,
    FBR_CH_JOINED,
    FBR_CH_DIRECT,
    FBR_CH_DIRECT_IS,
    FBR_CH_GO,
    FBR_CH_DIRECT_END,
    FBR_CH_UNREAD,
    FBR_CH_DIRECT_ENDED,
};

#define FBR_CH_BATCH_MAX 4096 /* messages in one PUTS */
#define FBR_CH_ANSWER 1       /* flag of PUTS */
#define FBR_CH_BOUNDED 1      /* flag of an address: a put is done when it was accepted */
#define FBR_CH_ROOM 128       /* what a message of one record has around it, at most */

/* ---- The host's side ---- */

struct fbr_owner;

struct fbr_owner_options {
    enum fbr_kind kind;
    int lanes;
    int handles; /* how many hold it; each releases it once */
    struct fbr_queue_engine_config config;
};

int fbr_owner_open(struct fbr_owner **h, const struct fbr_owner_options *o);
/* The host of an address of this process, held once more; or NULL. */
struct fbr_owner *fbr_owner_local(const struct fbr_address *a);
/* A host that the caller holds, once more. */
struct fbr_owner *fbr_owner_hold(struct fbr_owner *h);
void fbr_owner_release(struct fbr_owner *h);
uint64_t fbr_owner_id(const struct fbr_owner *h); /* of its object */
int fbr_owner_address(struct fbr_owner *h, uint8_t flags, struct fiber_address *address);
int fbr_owner_put(struct fbr_owner *h, int lane, const void *data, size_t len, int timeout_ms);
int fbr_owner_get(struct fbr_owner *h, int lane, struct fiber_bytes *out, int timeout_ms);
/* As get, but the message stays. */
int fbr_owner_look(struct fbr_owner *h, int lane, int timeout_ms);
/* A descriptor that polls readable while a get need not wait; or kept. */
int fbr_owner_fd(struct fbr_owner *h, int lane);
int fbr_owner_size(struct fbr_owner *h, int lane, size_t *n);
void fbr_owner_shut(struct fbr_owner *h, int lane);
int fbr_owner_done(struct fbr_owner *h, int lane);
int fbr_owner_join(struct fbr_owner *h, int lane, int timeout_ms);
void fbr_owner_deal(struct fbr_owner *h, int lane);
/* Ends the channel: its users, here and elsewhere, get -EPIPE. */
void fbr_owner_close(struct fbr_owner *h);
/* Pipes: an end lives as long as a process holds it, by a handle or by its address. attach: one
 * more handle of this process; leave: one less. An end whose address was given away also waits for
 * the first process that attaches to it. With both ends the channel ends. */
void fbr_owner_export_end(struct fbr_owner *h, int end);
void fbr_owner_attach(struct fbr_owner *h, int end);
void fbr_owner_leave(struct fbr_owner *h, int end);

/* ---- The client's side ---- */

struct fbr_client;

/* lane: in which this handle puts; of a pipe it is the end. */
int fbr_client_open(struct fbr_client **g, const struct fbr_address *a, int lanes, int lane);
/* One more handle like one that the caller has. */
struct fbr_client *fbr_client_hold(struct fbr_client *g, int lane);
int fbr_client_put(struct fbr_client *g, int lane, const void *data, size_t len, int timeout_ms);
int fbr_client_get(struct fbr_client *g, int lane, struct fiber_bytes *out, int timeout_ms);
int fbr_client_look(struct fbr_client *g, int lane, int timeout_ms);
/* As fbr_owner_fd(); it belongs to all handles of this process. */
int fbr_client_fd(struct fbr_client *g, int lane);
int fbr_client_flush(struct fbr_client *g, int lane, int timeout_ms);
int fbr_client_size(struct fbr_client *g, int lane, size_t *n);
int fbr_client_shut(struct fbr_client *g, int lane);
int fbr_client_done(struct fbr_client *g, int lane);
int fbr_client_join(struct fbr_client *g, int lane, int timeout_ms);
int fbr_client_deal(struct fbr_client *g, int lane);
void fbr_client_close(struct fbr_client *g, int lane); /* flushes, for at most a second */

#endif
