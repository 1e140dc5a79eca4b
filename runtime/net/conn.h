/* conn.h - the control channel: authenticated streams of frames between two processes.
 *
 * Over a unix socket (url "unix:/path", in a directory of mode 0700) a caller is admitted if its
 * user id is ours (SO_PEERCRED) and it knows the secret of the identity that it claims. Over TCP
 * (url "tcp://address:port") the same secret is the pre-shared key of TLS 1.3 (tls.h). Before that,
 * nothing from a caller is parsed. Each call is accepted at once. At most FBR_LISTENER_HALF_OPEN
 * calls may be half-open (not yet authenticated), each for the join_ms of fbr_auth_ops. A silent
 * call costs a descriptor and a few hundred bytes. When no place is left, a call that has not
 * proved its identity ends at once: the oldest call from the host that has most of them. The first
 * bytes of a caller with the right key prove its identity, so strangers hardly delay it.
 *
 * A frame is u32 length of body, u8 type, body. Types below FBR_FRAME_USER are reserved for this
 * file (heartbeats). Several processes may share a connection: each of them has a carried
 * connection to us, on top of the shared one (subjobs.h). Call all functions on the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
};
enum fbr_caller_kind {
    FBR_CALLER_JOB = 1,  /* a process that we started: its process id */
    FBR_CALLER_PEER = 2, /* a process that has an address of ours; it chooses its id */
};

struct fbr_conn;

struct fbr_conn_ops {
    /* NULL: frames are dropped. */
    void (*on_frame)(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
    /* The peer answered a heartbeat: see fbr_conn_rtt_ns(). May be NULL. */
    void (*on_pong)(void *user, struct fbr_conn *conn);
    /* The connection has ended. Reasons: -EPIPE the peer closed it, -ETIMEDOUT the peer fell
     * silent, -EACCES the peer did not admit us, and others. Called once, as the last callback; the
     * conn is freed after it. Not called after our own fbr_conn_close(). */
    void (*on_close)(void *user, struct fbr_conn *conn, int why, const char *text);
};

/* The listener's owner decides with these which callers to admit. */
struct fbr_auth_ops {
    /* Stores the secret of that caller. Negative: the caller is unknown. Must not consume the
     * secret. */
    int (*secret)(void *user, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE]);
    /* The caller knew the secret. Sets the conn's ops with fbr_conn_attach() and keeps the conn, or
     * returns a negative errno, and the conn is closed. */
    int (*admit)(void *user, const struct fbr_caller *who, struct fbr_conn *conn);
    void *user;
    unsigned join_ms;      /* time for each call to authenticate */
    bool own_user;         /* over TCP: callers on this host's loopback must have our user id */
    struct fbr_held *held; /* counts what callers make us keep; may be NULL */
};

struct fbr_listener;

/* Listens at "unix:/path" (with mode 0600) or "tcp://address:port" (port 0: any port). */
int fbr_listener_open(struct fbr_listener **l, struct fbr_loop *loop, const char *url,
                      const struct fbr_auth_ops *auth, struct fbr_error *err);
const char *fbr_listener_url(const struct fbr_listener *l); /* with the actual port */
void fbr_listener_close(struct fbr_listener *l); /* drops half-open calls; NULL is fine */

/* Connects to `url` in the background; on_close reports a failure. Frames may be sent at once. */
int fbr_conn_dial(struct fbr_conn **conn, struct fbr_loop *loop, const char *url,
                  const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* Opens a conn on one end of a socket pair. No other process can have an end of the pair, so there
 * is no authentication. The conn is open at once. The call takes ownership of the descriptor, also
 * on failure. */
int fbr_conn_open(struct fbr_conn **conn, struct fbr_loop *loop, int fd,
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* Opens a conn that the conn `by` carries. Each of its frames travels on `by` in a frame of type
 * `wrap`: u64 id, u8 type, body. Type 0 ends the carried conn. The conn is open until it is closed
 * or lost. Close `by` after it; `by` has the heartbeats. NULL: out of memory. */
struct fbr_conn *fbr_conn_carried(struct fbr_conn *by, uint8_t wrap, uint64_t id);
/* Passes a frame that arrived on the carrier to its carried conn. */
void fbr_conn_came(struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
/* Ends a carried conn whose other end is gone, and calls on_close. Works on any other conn, too. */
void fbr_conn_lost(struct fbr_conn *conn, int why, const char *text);

/* Whether both ends are on one host: the connection is a unix socket. */
bool fbr_conn_is_local(const struct fbr_conn *conn);
void fbr_conn_attach(struct fbr_conn *conn, const struct fbr_conn_ops *ops, void *user);
/* These send a frame. After an error the connection breaks, except after -EMSGSIZE: the frame is
 * too long. on_close comes later, never from within the call, because callers may hold locks and
 * use the conn afterwards. */
int fbr_conn_send(struct fbr_conn *conn, uint8_t type, const void *body, size_t len);
int fbr_conn_send_buf(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
/* The same, for an answer to a request of the peer. If the answers that the peer has not read fill
 * the account (`held`) of the listener, the connection breaks with -ENOBUFS. */
int fbr_conn_answer(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
size_t fbr_conn_queued(const struct fbr_conn *conn); /* bytes not yet taken by the kernel */
/* Sends the queued bytes (until the peer takes nothing for a few seconds) and closes. No callback
 * comes after this call. NULL is fine. */
void fbr_conn_close(struct fbr_conn *conn);

/* Sends a ping each interval. After `misses` intervals of silence the connection is lost
 * (-ETIMEDOUT), and also if the peer sends but answers no ping, because then our bytes do not reach
 * it. misses 0: only ping. Time in which this process itself was stopped does not count. */
void fbr_conn_heartbeat(struct fbr_conn *conn, unsigned interval_ms, unsigned misses);
/* A child on another host waits for its parent this many times as long as its parent waits for the
 * child, so a master that was stopped for a while does not lose its children. */
#define FBR_PARENT_PATIENCE 4
/* Returns how long nothing has come from the peer of a conn that has heartbeats. */
uint64_t fbr_conn_silence_ms(const struct fbr_conn *conn);
/* Returns how long this process itself was stopped, if the stop ended less than `misses` intervals
 * ago and lasted at least as long; else 0. */
uint64_t fbr_conn_stall_ms(struct fbr_conn *conn);
/* Notifies the peer that this process will be stopped, so that the peer waits for it, or that this
 * process continues. */
void fbr_conn_silent(struct fbr_conn *conn, bool silent);
/* Returns the round-trip time of the last answered ping; 0 before. */
uint64_t fbr_conn_rtt_ns(const struct fbr_conn *conn);

/* Derives 32 bytes from `label` and `id` that only the two ends of this connection know. -ENOTSUP
 * on a unix socket, which needs no keys. */
int fbr_conn_export(struct fbr_conn *conn, const char *label, uint64_t id,
                    uint8_t key[FBR_KEY_SIZE]);
