/* relay.h - the data path of processes that share a job: one link for all of them.
 *
 * The job's first process, the host, has the link to the parent. Each process that it starts
 * (subjobs.h) has a socket to it, one end of a pair that was made for it: nobody can knock, so
 * nobody is to be authenticated. The host passes records on, each as a stream of its link (mux.h),
 * and looks into none:
 *
 *     parent's data server  <== the host's link: streams ==>  relay  <-- pipe_frames.h -->  process
 *
 * Records of the link's own, which belong to no stream, are orders to the relay:
 *
 *     KEEP  u32 1, u32 0, u64 id, bytes: a record that several processes need travels to a host
 *           once
 *     GIVE  u32 2, u32 0, u64 id, u64 process: they are that process's next record
 *     DROP  u32 3, u32 0, u64 id
 *
 * They keep their order, and may come before or behind what was sent on a stream.
 *
 * The first record that a process gets is what the host itself was started with: what all of them
 * need travels to a host once.
 *
 * Records for a process that does not read wait here, and hold nobody else up: the parent gives
 * each one only so much. A process is not read while the parent does not take what it has said
 * before. When it has ended and all it said is passed on, an empty record says so.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RELAY_H
#define FBR_RELAY_H

#include "runtime/base/error.h"
#include "runtime/net/data_client.h"

#define FBR_RELAY_FD 4 /* of a process: the descriptor of its end of the pair */
/* in START of a process, in place of the address of the parent's data server */
#define FBR_URL_OF_HOST "host:"

enum fbr_relay_order { FBR_RELAY_KEEP = 1, FBR_RELAY_GIVE = 2, FBR_RELAY_DROP = 3 };

struct fbr_relay;

/* `first` must last as long as the relay does. */
int fbr_relay_open(struct fbr_relay **r, const void *first, size_t len, size_t limit,
                   struct fbr_error *err);
/* Adds a process that is being started: *end is for the process, and the caller closes it. Loop
 * thread. */
int fbr_relay_add(struct fbr_relay *r, uint64_t process, int *end, struct fbr_error *err);
/* The process has ended, or was not started. Loop thread. */
void fbr_relay_end(struct fbr_relay *r, uint64_t process);
/* Passes records on, on the calling thread, until fbr_relay_stop(): 0. Ends with an error when the
 * link is broken, or when it is silent and its connection was lost, which is checked every
 * beat_ms. */
int fbr_relay_run(struct fbr_relay *r, struct fbr_data_client *up, int beat_ms);
void fbr_relay_stop(struct fbr_relay *r);  /* any thread */
void fbr_relay_close(struct fbr_relay *r); /* The relay must not run any more. NULL is fine. */

#endif
