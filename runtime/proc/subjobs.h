/* subjobs.h - subjobs: processes that another process of ours starts and watches for us, in its
 * job.
 *
 * A job of a cluster manager may hold several processes. The backend starts the first one, the host
 * process; the host process starts the others, the subjobs, on our orders. To us a subjob is like
 * any other process, with a ticket and a control connection of its own. But its connection is
 * carried by the host's: the subjob and its host process share a pair of sockets, to which no other
 * process can connect, and the host process passes frames on in both directions without reading
 * them. So a job costs us one connection. We exchange heartbeats with the host process; the host
 * process exchanges heartbeats with its subjobs. When the host process ends, its subjobs have
 * ended.
 *
 *     to the host     SUBJOB_START   u64 process, str name, u32 n, n x str argv (none: our own
 *                                    program), u32 m, m x str NAME=VALUE to add, str workdir,
 *                                    bytes ticket, u8 1: its data goes through the host process
 *                                    (relay.h), 0: it has none
 *                     SUBJOB_SIGNAL  u64 process, u32 signal
 *                     SUBJOB_PAUSE   u64 process, u8 paused
 *     from the host   SUBJOB_EVENT   u64 process, u8 type, u8 stream, i32 code, u64 pid, str text,
 *                                    bytes data
 *     both            SUBJOB_CARRIED u64 process, u8 type, the body of a frame; type 0: its
 *                                    connection has ended, from the host with i32 why, str text
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/context.h"

#define FBR_CONTROL_FD 5 /* in a subjob: the descriptor of its end of the pair */

enum {
    FBR_SUBJOB_START = FBR_FRAME_SUBJOB,
    FBR_SUBJOB_SIGNAL,
    FBR_SUBJOB_PAUSE,
    FBR_SUBJOB_EVENT,
    FBR_SUBJOB_CARRIED,
};

/* Our side (subjobs.c): a backend whose `struct fbr_backend` is the host process. Loop thread. */
extern const struct fbr_backend_ops fbr_backend_subjobs;
void fbr_subjobs_host_joined(struct fiber_process *host);
void fbr_subjobs_host_lost(struct fiber_process *host, int why, const char *text);
void fbr_subjobs_host_ended(struct fiber_process *host, const char *report);
void fbr_subjobs_on_event(struct fiber_process *host, struct fbr_cur *body);
void fbr_subjobs_on_carried(struct fiber_process *host, struct fbr_cur *body);

/* The host process's side (subjob_host.c): carries out its parent's orders. Loop thread. */
struct fbr_subjob_host;
bool fbr_subjob_host_takes(uint8_t type);
void fbr_subjob_host_on_frame(struct fbr_runtime *rt, uint8_t type, struct fbr_cur *body);
/* kills all running subjobs, and does not wait; NULL is fine */
void fbr_subjob_host_kill(struct fbr_subjob_host *n);
void fbr_subjob_host_close(struct fbr_subjob_host *n); /* NULL is fine */
