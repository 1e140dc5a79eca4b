/* sp_server.h - the server socket of the data channel, which limits what strangers can use up.
 *
 * Callers use raw REQ sockets of nanomsg (sp.h). nanomsg's own server refuses no caller: it
 * allocates as many bytes as a stranger announces, and keeps each connection for ever. Here a
 * connection is unproven until its owner has checked its first message and calls fbr_sp_prove(). An
 * unproven connection may send one short message (FBR_MUX_EMPTY) and costs a descriptor and a few
 * hundred bytes. There are at most FBR_SP_UNPROVEN unproven connections, each for at most
 * FBR_SP_UNPROVEN_MS. When one more caller connects, one of them ends at once: the oldest from the
 * address that has most of them, unless its message has arrived by then. A wrong byte ends a
 * connection.
 *
 * A proven connection may send messages of up to FBR_SOCK_MAX. It ends when its peer has been
 * unreachable for the time set with fbr_sp_server_patience(), whether the connection is idle or
 * not.
 *
 * A unix socket is in a directory that only our user can enter, so there are no strangers: any
 * number of connections may be unproven, for any time, and may send messages of up to FBR_SOCK_MAX.
 *
 * Threads: the server and its callbacks run in the thread that calls fbr_sp_server_run(). Any
 * thread may send to a proven connection until on_end is called for it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_SP_UNPROVEN 64
#define FBR_SP_UNPROVEN_MS 5000
/* this many bytes of an incomplete message show that its sender is alive */
#define FBR_SP_PROGRESS 16384

struct fbr_sp_server;
struct fbr_sp_conn;

struct fbr_sp_server_ops {
    /* Handles a message, which is valid during the call. Negative: the connection ends. */
    int (*on_message)(void *user, struct fbr_sp_conn *conn, void *msg, size_t len);
    /* A proven connection has ended, and all its messages were passed on. Reasons: -EPIPE the peer
     * closed it, -ETIMEDOUT, the result of on_message, and others. The connection is freed after
     * the call. */
    void (*on_end)(void *user, struct fbr_sp_conn *conn, int why);
    void (*on_tick)(void *user);
};

/* Listens at "unix:/path", "tcp://address:port" or "tcp://[address]:port"; port 0: any.
 * `own_user`: callers from this host must have our user id. */
int fbr_sp_server_open(struct fbr_sp_server **s, const char *url, bool own_user,
                       const struct fbr_sp_server_ops *ops, void *user, struct fbr_error *err);
const char *fbr_sp_server_url(const struct fbr_sp_server *s); /* with the actual port */
/* Call this before fbr_sp_server_run(). Sets how long a peer may be unreachable, and how often
 * on_tick is called. 0: no limit, never. */
void fbr_sp_server_patience(struct fbr_sp_server *s, uint64_t silent_ms, unsigned tick_ms);
void fbr_sp_server_run(struct fbr_sp_server *s);  /* returns after fbr_sp_server_stop() */
void fbr_sp_server_stop(struct fbr_sp_server *s); /* any thread */
/* fbr_sp_server_run() must have returned. on_end is not called. NULL is fine. */
void fbr_sp_server_close(struct fbr_sp_server *s);

/* Within on_message: marks the connection as authenticated, and as belonging to this link. */
void fbr_sp_prove(struct fbr_sp_conn *conn, uint64_t link);
bool fbr_sp_is_proven(const struct fbr_sp_conn *conn, uint64_t *link);

/* Sends msg (from fbr_sock_alloc), or queues the bytes that the kernel does not take now. Takes
 * ownership of msg in any case. -EBUSY: the last message is not sent yet, and this one is
 * dropped. */
int fbr_sp_send(struct fbr_sp_conn *conn, void *msg, size_t len);
/* Whether the peer's host has acknowledged all bytes that were sent. */
bool fbr_sp_all_arrived(struct fbr_sp_conn *conn);
/* Whether the connection has made progress since the last call: a complete message was taken, or
 * FBR_SP_PROGRESS bytes of an incomplete one have arrived. Running thread. Fewer bytes are no sign
 * of life: after a length field that was damaged in transit, heartbeats would pass for the rest of
 * that message. */
bool fbr_sp_progressed(struct fbr_sp_conn *conn);
/* Ends the connection soon; on_end is called as for any other end. */
void fbr_sp_hang_up(struct fbr_sp_conn *conn);
