/* channel.h - queues of messages between processes, from which queue.c and pipe.c are made.
 *
 * A channel has one or two lanes (a pipe has one each way). It lives in one process, its host (host.c), and is used there
 * and from other processes, its guests (guest.c), through the same calls. queue_engine.h decides who gets which message.
 *
 * Records, after the object's id; all begin u32 op, u32 lane:
 *
 *     guest to host                                             host to guest
 *     PUTS      u64 batch, u32 count, u32 0,                    ACK      u64 batch, i32 code, u32 0
 *               count x (u32 length, u32 0, bytes, zeros to 8)  DELIVER  u64 seq, bytes
 *     CANCEL    u64 batch: withdraw it (of one message)         RECALL
 *     ASK       u64 taken, u32 hungry, u32 want, u64 probe      EMPTY    u64 probe: there was nothing to deliver
 *     RETURNED  u64 from                                        EOF
 *     SHUT                                                      SIZE_IS  u64 messages
 *     LEAVE     (of an end of a pipe: lane is the end)
 *     ATTACH    (likewise)
 *     SIZE
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
    FBR_CH_RECALL,
    FBR_CH_EMPTY,
    FBR_CH_EOF,
    FBR_CH_SIZE_IS,
};

#define FBR_CH_BATCH_MAX 4096 /* messages in one PUTS */
#define FBR_CH_BOUNDED 1      /* flag of an address: a put is done when it was accepted */

/* ---- The host's side ---- */

struct fbr_host;

struct fbr_host_options {
    enum fbr_kind kind;
    int lanes;
    struct fbr_queue_engine_config config;
};

int fbr_host_open(struct fbr_host **h, const struct fbr_host_options *o);
int fbr_host_address(struct fbr_host *h, uint8_t flags, struct fiber_address *address);
int fbr_host_put(struct fbr_host *h, int lane, const void *data, size_t len, int timeout_ms);
int fbr_host_get(struct fbr_host *h, int lane, struct fiber_bytes *out, int timeout_ms);
int fbr_host_size(struct fbr_host *h, int lane, size_t *n);
void fbr_host_shut(struct fbr_host *h, int lane);
/* Pipes: the end is this process's until a guest attaches to it. leave: nobody here uses it any more; an end whose address
 * was given away lives on until its guest goes. The host frees itself when both ends have ended. */
void fbr_host_export_end(struct fbr_host *h, int end);
void fbr_host_leave(struct fbr_host *h, int end);
void fbr_host_close(struct fbr_host *h); /* queues */
/* The host of an address of this process, or NULL. */
struct fbr_host *fbr_host_local(const struct fbr_address *a);

/* ---- The guest's side ---- */

struct fbr_guest;

/* end: of a pipe; -1 for a queue. */
int fbr_guest_open(struct fbr_guest **g, const struct fbr_address *a, int lanes, int end);
int fbr_guest_put(struct fbr_guest *g, int lane, const void *data, size_t len, int timeout_ms);
int fbr_guest_get(struct fbr_guest *g, int lane, struct fiber_bytes *out, int timeout_ms);
int fbr_guest_flush(struct fbr_guest *g, int timeout_ms);
int fbr_guest_size(struct fbr_guest *g, int lane, size_t *n);
int fbr_guest_shut(struct fbr_guest *g, int lane);
void fbr_guest_close(struct fbr_guest *g); /* flushes, for at most a second */

#endif
