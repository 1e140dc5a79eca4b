/* conn_priv.h - the state that conn.c (frames), dial.c (calling) and listener.c (accepting) share.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/net/conn.h"
#include "runtime/net/tls.h"

enum conn_state { CONN_CALLING, CONN_GREETING, CONN_OPEN, CONN_CLOSING, CONN_GONE };

/* First bytes of a caller on a unix socket: magic, kind, id, secret. Their size is fixed.
 * They are only compared; nothing else is parsed until the secret has proved right. */
#define FBR_HELLO_SIZE (4 + 1 + 8 + FBR_KEY_SIZE)
#define FBR_HELLO_MAGIC 0x31524246u /* "FBR1" */

struct fbr_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } h;
    struct fbr_loop *loop;
    /* the conn that carries this one, which then has no socket itself; NULL: this conn has a
     * socket */
    struct fbr_conn *by;
    uint64_t id; /* the id of this conn on the carrier */
    uint8_t wrap;
    enum conn_state state;
    bool tcp;
    bool silent; /* the peer has announced that it will be stopped */
    struct fbr_tls *tls;
    struct fbr_buf in; /* plain bytes not yet taken */
    /* account of the listener that accepted the conn; NULL: nothing is counted */
    struct fbr_held *held;
    struct fbr_held_part kept;    /* the counted part of `in` */
    struct fbr_held_part waiting; /* answers that the peer has not read */
    const char *fault;            /* why we broke the connection; NULL: we did not */
    struct fbr_buf early;         /* frames sent before the greeting was over */
    const struct fbr_conn_ops *ops;
    void *user;
    struct fbr_timer timer; /* half-open limit, then heartbeat, then the close limit */
    unsigned beat_ms, misses;
    uint64_t rtt_ns;
    /* times in ms: the last bytes from the peer, the last ping, the next expiry of the timer */
    uint64_t heard_ms, beat_at, due_ms;
    /* time of the first unanswered ping, or 0; moved later while the peer sends much */
    uint64_t asked_ms;
    uint64_t stall_ms, stalled_at; /* this process was stopped for stall_ms, until stalled_at */
    size_t left_over;              /* when closing: bytes that were still queued */
    unsigned stuck;                /* checks in a row that found no fewer bytes queued */
    uv_shutdown_t shut;
    uv_connect_t dial;
    uint8_t hello[FBR_HELLO_SIZE]; /* first bytes of a caller */
    struct fbr_listener *listener; /* set while the conn is half-open on the accepting side */
    uint8_t from[16];              /* the address of the calling host */
    struct fbr_conn *next, *prev;  /* in the listener's list of half-open calls */
};

struct fbr_conn *fbr_conn_new(struct fbr_loop *loop, bool tcp);
void fbr_conn_refuse(struct fbr_conn *c, int32_t why);
int fbr_conn_write(struct fbr_conn *c, const void *data, size_t len);
int fbr_conn_flush_tls(struct fbr_conn *c);
void fbr_conn_opened(struct fbr_conn *c);
int fbr_conn_start_reading(struct fbr_conn *c);
/* Reads from a half-open conn at once; afterwards the conn may be gone. False: nothing has
 * arrived. */
bool fbr_conn_read_now(struct fbr_conn *c);
int fbr_conn_timer(struct fbr_conn *c, void (*fn)(void *arg), uint64_t after_ms);

/* These open the conn if its first bytes authenticate the caller and the caller is admitted. */
int fbr_listener_greet_unix(struct fbr_conn *c);
int fbr_listener_greet_tls(struct fbr_conn *c);
/* Starts TLS when a half-open caller has sent something. */
int fbr_listener_open_tls(struct fbr_conn *c);
void fbr_listener_forget(struct fbr_conn *c); /* marks the conn as no longer half-open */

/* The name of a caller in TLS is "KIND.ID.EPOCH", in decimal. */
#define FBR_IDENTITY_MAX 64
int fbr_caller_scan(const char *identity, struct fbr_caller *who);
