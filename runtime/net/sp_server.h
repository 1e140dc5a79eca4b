/* sp_server.h - the socket that serves the data channel: it answers the callers' raw REQ sockets of
 * nanomsg (sp.h), and gives strangers nothing.
 *
 * nanomsg itself cannot refuse anybody: it allocates as much as a stranger announces, and keeps
 * each connection for ever. Here a connection is unproven until its owner, who looks into its first
 * message, says fbr_sp_prove(). Until then it may send one short message (FBR_MUX_EMPTY) and costs
 * a descriptor and some hundred bytes. There are at most FBR_SP_UNPROVEN of them, each for at most
 * FBR_SP_UNPROVEN_MS; when one more calls, one goes at once: the oldest of those from the address
 * that has most of them, unless its message has come by then. A wrong byte ends a connection.
 *
 * A proven connection sends messages of up to FBR_SOCK_MAX. It ends when the kernel has found no
 * way to the peer for as long as fbr_sp_server_patience() says, be it idle or not.
 *
 * A unix socket is in a directory that only our user can enter, so there are no strangers: any
 * number of connections may be unproven there, for any time, and send messages of up to
 * FBR_SOCK_MAX.
 *
 * Threads: the server and its callbacks run on the thread in fbr_sp_server_run(). Any thread may
 * send to a proven connection until on_end was called for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SP_SERVER_H
#define FBR_SP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_SP_UNPROVEN 64
#define FBR_SP_UNPROVEN_MS 5000
#define FBR_SP_PROGRESS \
    16384 /* bytes of a message that is not whole yet, by which its sender is heard */

struct fbr_sp_server;
struct fbr_sp_conn;

struct fbr_sp_server_ops {
    /* A message, valid during the call. Negative: the connection ends. */
    int (*on_message)(void *user, struct fbr_sp_conn *conn, void *msg, size_t len);
    /* A proven connection has ended, and all that has come by it was handed out: -EPIPE it closed,
     * -ETIMEDOUT, what on_message returned, ... The connection is freed after the call. */
    void (*on_end)(void *user, struct fbr_sp_conn *conn, int why);
    void (*on_tick)(void *user);
};

/* Listens at "ipc:///path", "tcp://address:port" or "tcp://[address]:port"; port 0: any.
 * `own_user`: callers from this host must be of our user. */
int fbr_sp_server_open(struct fbr_sp_server **s, const char *url, bool own_user,
                       const struct fbr_sp_server_ops *ops, void *user, struct fbr_error *err);
const char *fbr_sp_server_url(const struct fbr_sp_server *s); /* with the actual port */
/* Before it runs: how long a peer may be out of reach, and how often on_tick is called. 0:
 * never. */
void fbr_sp_server_patience(struct fbr_sp_server *s, uint64_t silent_ms, unsigned tick_ms);
void fbr_sp_server_run(struct fbr_sp_server *s);  /* until fbr_sp_server_stop() */
void fbr_sp_server_stop(struct fbr_sp_server *s); /* any thread */
/* The server must not run any more; on_end is not called. NULL is fine. */
void fbr_sp_server_close(struct fbr_sp_server *s);

/* Within on_message: says that this connection is the link's, and no stranger's. */
void fbr_sp_prove(struct fbr_sp_conn *conn, uint64_t link);
bool fbr_sp_is_proven(const struct fbr_sp_conn *conn, uint64_t *link);

/* Sends msg (of fbr_sock_alloc), or keeps what the kernel does not take now, and owns it in any
 * case. -EBUSY: the last one is not sent yet, and this one is dropped. */
int fbr_sp_send(struct fbr_sp_conn *conn, void *msg, size_t len);
/* Whether the peer's host has acknowledged all bytes that were sent. */
bool fbr_sp_all_arrived(struct fbr_sp_conn *conn);
/* Whether the connection has made progress since the last question: a whole message was taken, or
 * FBR_SP_PROGRESS bytes of an unfinished one have come. Running thread. Fewer bytes are no sign of
 * life: after a length that was damaged on its way they would pass for the rest of that message. */
bool fbr_sp_progressed(struct fbr_sp_conn *conn);
/* Ends the connection soon; on_end is called as for any other end. */
void fbr_sp_hang_up(struct fbr_sp_conn *conn);

#endif
