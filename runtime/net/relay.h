/* relay.h - the data path of processes that share a job: one data link for all of them.
 *
 * The job's first process, the host process, has the link to the parent. Each process that it
 * starts (subjobs.h) has a socket to the host process, one end of a pair. No other process can
 * connect to it, so there is no authentication. The host process passes records on, each as a
 * stream of its link (mux.h), and reads none of them:
 *
 *     parent's data server  <== the host's link: streams ==>  relay  <-- pipe_frames.h -->  process
 *
 * Records of the link itself, which belong to no stream, are orders to the relay:
 *
 *     KEEP  u32 1, u32 0, u64 id, bytes: keeps a record that several processes need, so that it
 *           travels to a host once
 *     GIVE  u32 2, u32 0, u64 id, u64 process: passes the kept record to that process
 *     DROP  u32 3, u32 0, u64 id: frees the kept record
 *
 * Orders keep their order, and arrive before all records that are sent on a stream after them.
 *
 * The first record that each process gets is a copy of the one that the host process was started
 * with (`first`), so the data that all of them need travels to a host once.
 *
 * Records for a process that does not read wait here and delay no other process, because the parent
 * limits what it sends to each. The relay stops reading from a process while the parent does not
 * take the earlier records of that process. When a process has ended and all its records are passed
 * on, the relay sends an empty record on its stream.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/error.h"
#include "runtime/net/data_client.h"

#define FBR_RELAY_FD 4 /* in a process: the descriptor of its end of the pair */
/* In the START frame of a process, instead of the address of the parent's data server. */
#define FBR_URL_OF_HOST "host:"

enum fbr_relay_order { FBR_RELAY_KEEP = 1, FBR_RELAY_GIVE = 2, FBR_RELAY_DROP = 3 };

struct fbr_relay;

/* Opens a relay. `first` must stay valid as long as the relay. */
int fbr_relay_open(struct fbr_relay **r, const void *first, size_t len, size_t limit,
                   struct fbr_error *err);
/* Adds a process that is being started. *end is for the process; the caller closes it. Loop
 * thread. */
int fbr_relay_add(struct fbr_relay *r, uint64_t process, int *end, struct fbr_error *err);
/* Reports that the process has ended, or was not started. Loop thread. */
void fbr_relay_end(struct fbr_relay *r, uint64_t process);
/* Passes records on, in the calling thread, until fbr_relay_stop(); then returns 0. Returns an
 * error if the link breaks, or if it is silent and its connection was lost, which is checked every
 * beat_ms. */
int fbr_relay_run(struct fbr_relay *r, struct fbr_data_client *up, int beat_ms);
void fbr_relay_stop(struct fbr_relay *r);  /* any thread */
void fbr_relay_close(struct fbr_relay *r); /* fbr_relay_run() must have returned. NULL is fine. */
