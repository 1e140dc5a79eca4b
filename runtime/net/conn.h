/* conn.h - the control channel: authenticated streams of frames between two processes.
 *
 * Over a unix socket (url "unix:/path", in a directory of mode 0700) a caller is admitted when its
 * user id is ours (SO_PEERCRED) and it knows the secret of the identity that it claims. Over TCP
 * (url "tcp://host:port") the same secret is the pre-shared key of TLS 1.3 (tls.h). Nothing of a
 * caller is parsed before that. Each call is accepted at once. At most FBR_LISTENER_HALF_OPEN calls
 * may be unfinished, each for door.join_ms. A silent call costs a descriptor and some hundred
 * bytes. When no place is left, a call that has not proved itself ends at once: the oldest from the
 * host that has most of them. A caller with the right key proves itself by its first bytes, so
 * strangers hardly delay it.
 *
 * A frame is u32 length of body, u8 type, body. Types below FBR_FRAME_USER are conn's own
 * (heartbeats). Frames of several processes may share a connection: each of these processes has a
 * carried connection to us, on top of the shared one (subjobs.h). All functions are for the loop
 * thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CONN_H
#define FBR_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/random.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/base/held.h"
#include "runtime/net/loop.h"

#define FBR_LISTENER_HALF_OPEN 64
#define FBR_FRAME_MAX (1u << 30)
#define FBR_FRAME_USER 16
#define FBR_URL_MAX 112

/* The identity that a caller claims. */
struct fbr_caller {
    uint8_t kind; /* enum fbr_caller_kind */
    uint64_t id;
    uint32_t epoch;
};
enum fbr_caller_kind {
    FBR_CALLER_JOB = 1,  /* a process that we started: its process id and epoch */
    FBR_CALLER_PEER = 2, /* a process that has an address of ours; it chooses its id */
};

struct fbr_conn;

struct fbr_conn_ops {
    void (*on_frame)(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
    /* A heartbeat was answered: see fbr_conn_rtt_ns(). May be NULL. */
    void (*on_pong)(void *user, struct fbr_conn *conn);
    /* The connection has ended: -EPIPE the peer closed it, -ETIMEDOUT the peer fell silent, -EACCES
     * the peer did not admit us, ... This callback comes once and last; the conn is freed after it.
     * Not called after our own fbr_conn_close(). */
    void (*on_close)(void *user, struct fbr_conn *conn, int why, const char *text);
};

/* The owner's rules for callers. */
struct fbr_auth_ops {
    /* Stores the secret of that caller; negative: the caller is unknown. Must not consume the
     * secret. */
    int (*secret)(void *user, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE]);
    /* The caller knew the secret. Sets the conn's ops by fbr_conn_attach() and keeps the conn; or
     * returns a negative errno, and the conn is closed. */
    int (*admit)(void *user, const struct fbr_caller *who, struct fbr_conn *conn);
    void *user;
    unsigned join_ms;      /* for each call */
    bool own_user;         /* over TCP: callers on this host's loopback must be of our user */
    struct fbr_held *held; /* counts what callers make us keep; may be NULL */
};

struct fbr_listener;

/* Listens at "unix:/path" (made 0600) or "tcp://address:port" (0: any port). */
int fbr_listener_open(struct fbr_listener **l, struct fbr_loop *loop, const char *url,
                      const struct fbr_auth_ops *auth, struct fbr_error *err);
const char *fbr_listener_url(const struct fbr_listener *l); /* with the actual port */
void fbr_listener_close(struct fbr_listener *l); /* half-open calls are dropped; NULL is fine */

/* Calls `url` in the background; on_close reports a failure. Frames may be sent at once. */
int fbr_conn_dial(struct fbr_conn **conn, struct fbr_loop *loop, const char *url,
                  const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* Opens a conn on one end of a socket pair. Both ends were made for each other and nobody else can
 * have them, so there is no authentication. The conn is open at once. The call takes over the
 * descriptor, also on failure. */
int fbr_conn_open(struct fbr_conn **conn, struct fbr_loop *loop, int fd,
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* Opens a conn that the conn `by` carries. A frame of it travels as a frame of type `wrap` there:
 * u64 id, u8 type, body. Type 0 ends the carried conn. It is open until it is closed or lost. Close
 * `by` after it; `by` has the heartbeats. NULL: out of memory. */
struct fbr_conn *fbr_conn_carried(struct fbr_conn *by, uint8_t wrap, uint64_t id);
/* Hands a frame that has come on the carrier to its carried conn. */
void fbr_conn_came(struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
/* Ends a carried conn whose other end has gone, with on_close. Works on any other conn, too. */
void fbr_conn_lost(struct fbr_conn *conn, int why, const char *text);

void fbr_conn_attach(struct fbr_conn *conn, const struct fbr_conn_ops *ops, void *user);
/* After an error the connection breaks off, except for -EMSGSIZE: the frame is too long. on_close
 * comes later, never from within this call, because callers may hold locks and go on to use the
 * conn. */
int fbr_conn_send(struct fbr_conn *conn, uint8_t type, const void *body, size_t len);
int fbr_conn_send_buf(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
/* The same, of something that the peer has asked for. A peer that asks and does not read is cut off
 * with -ENOBUFS once answers to it fill the account of the door. */
int fbr_conn_answer(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
size_t fbr_conn_queued(const struct fbr_conn *conn); /* bytes not yet taken by the kernel */
/* Sends what is queued (until the peer takes nothing for a second) and closes. No callback comes
 * after this call. NULL is fine. */
void fbr_conn_close(struct fbr_conn *conn);

/* Pings each interval. A peer that was silent for `misses` intervals is given up then (-ETIMEDOUT).
 * So is a peer that sends but answers no ping: our way to it is cut. misses 0: ping only. Time in
 * which this process was itself stopped does not count. */
void fbr_conn_heartbeat(struct fbr_conn *conn, unsigned interval_ms, unsigned misses);
/* A child on another host waits this many times as long for its parent as its parent waits for the
 * child: a master that was stopped for a while finds its children still there. */
#define FBR_PARENT_PATIENCE 4
/* How long this process was itself stopped, if the stop ended less than `misses` intervals ago and
 * lasted at least as long; else 0. */
uint64_t fbr_conn_stall_ms(struct fbr_conn *conn);
/* Tells the peer that this process will be stopped, so that the peer waits for it; or that this
 * process goes on. */
void fbr_conn_silent(struct fbr_conn *conn, bool silent);
/* round-trip time of the last answered ping; 0 before */
uint64_t fbr_conn_rtt_ns(const struct fbr_conn *conn);

/* Derives 32 bytes for `label` and `id` that only both ends of this connection know. -ENOTSUP on a
 * unix socket, which needs none. */
int fbr_conn_export(struct fbr_conn *conn, const char *label, uint64_t id,
                    uint8_t key[FBR_KEY_SIZE]);

#endif
