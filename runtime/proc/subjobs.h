/* subjobs.h - processes that another process of ours starts and watches for us, in its own job.
 *
 * A job of a cluster manager may hold several processes: its first one (the host) is started by the
 * backend, the others by the host on our order. To us such a process is like any other, with a
 * ticket and a control connection of its own; but that is carried by the host's: the process has
 * one of a pair of sockets (nobody can knock), and the host passes frames on, each way, looking
 * into none. So a job costs one connection, whose heartbeats are the host's, and the host has those
 * of its processes. When the host ends, they have ended.
 *
 *     to the host     SUBJOB_START   u64 process, u64 epoch, str name, u32 n, n x str argv (none:
 *                                    our own program), u32 m, m x str NAME=VALUE to add, str
 *                                    workdir, u8 keep stdin, bytes ticket, u8 1: its data goes by
 *                                    way of the host (relay.h), 0: it needs none
 *                     SUBJOB_SIGNAL  u64 process, u32 signal
 *                     SUBJOB_PAUSE   u64 process, u8 paused
 *     from the host   SUBJOB_EVENT   u64 process, u8 type, u8 stream, i32 code, u64 pid, str text,
 *                                    bytes data
 *     both            SUBJOB_CARRIED u64 process, u8 type, the body of a frame; type 0: its
 *                                    connection has ended, from the host with i32 why, str text
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SUBJOBS_H
#define FBR_SUBJOBS_H

#include "runtime/proc/context.h"

#define FBR_CONTROL_FD 5 /* of such a process: the descriptor of its end of the pair */

enum {
    FBR_SUBJOB_START = FBR_FRAME_SUBJOB,
    FBR_SUBJOB_SIGNAL,
    FBR_SUBJOB_PAUSE,
    FBR_SUBJOB_EVENT,
    FBR_SUBJOB_CARRIED,
};

/* Our side (subjobs.c): a backend whose `struct fbr_backend` is the host's process. Loop thread. */
extern const struct fbr_backend_ops fbr_backend_subjobs;
void fbr_subjobs_host_joined(struct fiber_process *host);
void fbr_subjobs_host_lost(struct fiber_process *host, int why, const char *text);
void fbr_subjobs_host_ended(struct fiber_process *host, const char *report);
void fbr_subjobs_on_event(struct fiber_process *host, struct fbr_cur *body);
void fbr_subjobs_on_carried(struct fiber_process *host, struct fbr_cur *body);

/* The host's side (subjob_host.c): carries out its parent's orders. Loop thread. */
struct fbr_subjob_host;
bool fbr_subjob_host_takes(uint8_t type);
void fbr_subjob_host_on_frame(struct fbr_runtime *rt, uint8_t type, struct fbr_cur *body);
/* kills all running processes, waits for none; NULL is fine */
void fbr_subjob_host_kill(struct fbr_subjob_host *n);
void fbr_subjob_host_close(struct fbr_subjob_host *n); /* NULL is fine */

#endif
