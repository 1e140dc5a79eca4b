/* conn.h - the control channel: authenticated streams of frames between two processes.
 *
 * Over a unix socket (url "unix:/path", in a directory of mode 0700) a caller is let in when its
 * user id is ours (SO_PEERCRED) and it knows the secret of what it claims to be; over TCP (url
 * "tcp://host:port") the same secret is the pre-shared key of TLS 1.3 (tls.h). Nothing of a caller
 * is parsed before that. Each caller is accepted at once. At most FBR_DOOR_HALF_OPEN calls may be unfinished, each
 * for door.join_ms. One that is silent costs a descriptor and some hundred bytes; when there is no place
 * left, the oldest call that has not proved itself, from the host that has most of them, ends at once.
 * A caller with the right key proves itself by its first bytes, so strangers hardly delay it.
 *
 * A frame is u32 length of body, u8 type, body. Types below FBR_FRAME_USER are conn's own
 * (heartbeats). Frames of several processes may share a connection: each has one of its own to us, which
 * is carried by another (nested.h). All functions are for the loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CONN_H
#define FBR_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/auth.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/base/held.h"
#include "runtime/net/loop.h"

#define FBR_DOOR_HALF_OPEN 64
#define FBR_FRAME_MAX (1u << 30)
#define FBR_FRAME_USER 16
#define FBR_URL_MAX 112

/* What a caller says that it is. */
struct fbr_caller {
    uint8_t kind; /* enum fbr_caller_kind */
    uint64_t id;
    uint32_t epoch;
};
enum fbr_caller_kind {
    FBR_CALLER_JOB = 1,  /* a process that we started: its process id and epoch */
    FBR_CALLER_PEER = 2, /* a process that has an address of ours; id is its own choice */
};

struct fbr_conn;

struct fbr_conn_ops {
    void (*on_frame)(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
    void (*on_pong)(
        void *user,
        struct fbr_conn *conn); /* a heartbeat was answered: fbr_conn_rtt_ns(). May be NULL */
    /* The peer has gone, or was given up: -EPIPE it closed, -ETIMEDOUT it fell silent, -EACCES it
     * was not let in, ... Comes once, as the last; the conn is freed after it. Not after our own
     * fbr_conn_close. */
    void (*on_close)(void *user, struct fbr_conn *conn, int why, const char *text);
};

/* Who may come in. */
struct fbr_door {
    /* The secret of that caller; negative: unknown. Must not consume it. */
    int (*secret)(void *user, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE]);
    /* It knew the secret. Sets the conn's ops by fbr_conn_adopt and keeps it, or returns negative:
     * it is closed. */
    int (*admit)(void *user, const struct fbr_caller *who, struct fbr_conn *conn);
    void *user;
    unsigned join_ms;      /* for each call */
    bool own_user;         /* over TCP: callers on this host's loopback must be of our user */
    struct fbr_held *held; /* counts what callers make us keep; may be NULL */
};

struct fbr_listener;

/* Listens at "unix:/path" (made 0600) or "tcp://address:port" (0: any port). */
int fbr_listener_open(struct fbr_listener **l, struct fbr_loop *loop, const char *url,
                      const struct fbr_door *door, struct fbr_error *err);
const char *fbr_listener_url(const struct fbr_listener *l); /* with the port that it got */
void fbr_listener_close(struct fbr_listener *l); /* half-open calls are dropped; NULL is fine */

/* Calls; goes on in the background, a failure is an on_close. Frames may be sent at once. */
int fbr_conn_dial(struct fbr_conn **conn, struct fbr_loop *loop, const char *url,
                  const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* One of two sockets that were made for these two ends: nobody else can have it, so nobody is to be
 * authenticated. Open at once. The descriptor is taken over, also on failure. */
int fbr_conn_open(struct fbr_conn **conn, struct fbr_loop *loop, int fd,
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err);

/* Carried by another one: a frame is sent there as one of type `wrap`, u64 id, u8 type, body; the end
 * as type 0. It is open until it is closed or lost; `by` must be closed after it, and has the
 * heartbeats. NULL: out of memory. */
struct fbr_conn *fbr_conn_carried(struct fbr_conn *by, uint8_t wrap, uint64_t id);
/* A frame for it has come. */
void fbr_conn_came(struct fbr_conn *conn, uint8_t type, struct fbr_cur *body);
/* The other end of it has gone: ends with on_close. Also of any other conn. */
void fbr_conn_lost(struct fbr_conn *conn, int why, const char *text);

void fbr_conn_adopt(struct fbr_conn *conn, const struct fbr_conn_ops *ops, void *user);
/* After an error the connection breaks off, but for -EMSGSIZE: one frame is too long. Its on_close comes later, never
 * from in here: who sends may hold locks, and goes on using the conn. */
int fbr_conn_send(struct fbr_conn *conn, uint8_t type, const void *body, size_t len);
int fbr_conn_send_buf(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
/* The same, of something that the peer has asked for. A peer that asks and does not read is cut off with
 * -ENOBUFS once answers to it fill the account of the door. */
int fbr_conn_answer(struct fbr_conn *conn, uint8_t type, const struct fbr_buf *body);
size_t fbr_conn_queued(const struct fbr_conn *conn); /* bytes not yet taken by the kernel */
/* Sends what is queued (until the peer takes nothing for a second) and closes. No callback comes
 * after this call. NULL is fine. */
void fbr_conn_close(struct fbr_conn *conn);

/* Pings each interval; a peer that was silent for `misses` intervals is given up (-ETIMEDOUT), and not
 * later. So is one that speaks and answers no ping, as the way to it is cut. misses 0: ping only.
 * Time in which this process was itself stopped does not count. */
void fbr_conn_heartbeat(struct fbr_conn *conn, unsigned interval_ms, unsigned misses);
/* A child on another host waits so many times as long for its parent as its parent waits for it: a
 * master that was stopped for a while finds its children where it left them. */
#define FBR_PARENT_PATIENCE 4
/* How long this process was itself stopped, if that ended less than `misses` intervals ago and lasted
 * at least as long; else 0. */
uint64_t fbr_conn_stall_ms(struct fbr_conn *conn);
/* Tells the peer that this process says nothing from now on (it will be stopped), or goes on: it is
 * not given up meanwhile. */
void fbr_conn_silent(struct fbr_conn *conn, bool silent);
uint64_t fbr_conn_rtt_ns(const struct fbr_conn *conn); /* of the last answered ping, 0 before */

/* 32 bytes that both ends derive from this connection for `label` and `id`; -ENOTSUP on a unix
 * socket, which needs none. */
int fbr_conn_export(struct fbr_conn *conn, const char *label, uint64_t id,
                    uint8_t key[FBR_KEY_SIZE]);

#endif
