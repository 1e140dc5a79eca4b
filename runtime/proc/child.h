/* child.h - a process that another process has started: how it joins, runs its function, and ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/proc/context.h"
#include "runtime/proc/ticket.h"
#include "runtime/net/data_client.h"

struct fbr_child;

/* Joins the parent and waits for a function. On failure, *err names the parent's address and the
 * reason. */
int fbr_child_join(struct fbr_runtime *rt, const struct fbr_join *join, struct fbr_error *err);
/* Runs the function that the parent sent, and exits. Returns only if the parent sent work for the
 * program itself. */
void fbr_child_run(struct fbr_runtime *rt);
void fbr_child_close(struct fbr_child *c); /* NULL is fine */
/* The last step of fiber_fini(): exits if the process that watched this one is gone. NULL is
 * fine. */
void fbr_child_closed(const struct fbr_child *c);

const char *fbr_child_name(const struct fbr_child *c);
int fbr_child_work(const struct fbr_child *c, const void **work, size_t *len);

/* Sets the function that gets the parent's frames, on the loop thread. It gets earlier frames
 * first. */
void fbr_child_on_frame(struct fbr_child *c,
                        void (*fn)(void *user, uint8_t type, struct fbr_cur *body), void *user);
/* Sends a frame to the parent, on the control channel. Any thread. */
int fbr_child_send(struct fbr_child *c, uint8_t type, const struct fbr_buf *body);
/* Returns the number of bytes that the parent has not taken yet. Loop thread. */
size_t fbr_child_queued(const struct fbr_child *c);
/* Opens the data link that the parent has for us. */
int fbr_child_data_client(struct fbr_child *c, struct fbr_data_client **u, struct fbr_error *err);
/* Opens a relay for the processes that we start. Its first record is our own first record
 * (relay.h). Loop thread. */
struct fbr_relay;
int fbr_child_relay(struct fbr_child *c, struct fbr_relay **r, struct fbr_error *err);
/* Serves an exec client (tunnel.h) at this socket, on a thread of its own; takes the socket over on
 * success. Any thread. runtime/inspect/exec_server.c defines it, as backends define
 * fbr_backend_find(). */
int fbr_exec_server_start(int sock, struct fbr_error *err);
/* Appends the body of a USE frame of this process, struct fbr_process_use; defined there, too. */
void fbr_exec_server_put_use(struct fbr_buf *use);
/* Appends the answer to a client that cannot be served. */
void fbr_exec_server_refuse(struct fbr_buf *answer, int code, const char *why);
/* Flushes the program's streams, reports code and reason to the parent, and exits. */
void fbr_child_exit(struct fbr_child *c, int code, const char *why) __attribute__((noreturn));
