/* rpc.h - requests to an object and its answers: each call is answered once, in any order.
 *
 *     user's side (rpc.c)            one struct fbr_rpc for all handles that a process has on an
 *                                    object; its calls are futures.
 *     owner's side (rpc_service.c)   calls come with the number of the calling process; the owner
 *                                    may answer each at any time.
 *
 * Records, after the object's id:
 *
 *     to the owner   u32 op, u32 0, u64 call, bytes of the request (CALL); nothing more (CANCEL,
 *                    LEAVE)
 *     to the user    u64 call, i32 code, u32 0, bytes of the answer
 *
 * CANCEL: the user's time is over; the owner may answer now. LEAVE: the process has no handle any
 * more; the owner acts as if the process were gone. Numbers of calls are never used again within a
 * process. The process of the object calls it as any other process does.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "share/share.h"

/* ---- Heads of records ---- */

#define FBR_RPC_ROOM 64 /* bytes of heads in a record, at most */

enum fbr_rpc_op { FBR_RPC_CALL = 1, FBR_RPC_CANCEL, FBR_RPC_LEAVE };

/* To the owner. */
struct fbr_rpc_head {
    uint32_t op, zero;
    uint64_t call;
};

/* To the user. */
struct fbr_rpc_answer {
    uint64_t call;
    int32_t code;
    uint32_t zero;
};

/* ---- User's side. Any thread ---- */

struct fbr_rpc;

/* Connects, or joins the connection that this process has. 0, or kept. */
int fbr_rpc_open(struct fbr_rpc **r, const struct fbr_address *a);
/* Starts a call of at most 6 parts. Waits, at most until the deadline, while too many bytes of this
 * process's calls there have no answer. -EPIPE: the object is gone; -EMSGSIZE: above max_message;
 * -ETIMEDOUT; -ENOMEM. No error is kept. */
int fbr_rpc_call(struct fbr_rpc *r, const struct iovec *iov, int n, uint64_t deadline,
                 struct fiber_future **f);
/* Waits until every call that this process has made is answered: 0, or -ETIMEDOUT if no call was
 * answered for patience_ms. */
int fbr_rpc_drain(struct fbr_rpc *r, int patience_ms);
/* Closes a handle. With the last handle, unanswered calls end as lost. NULL is fine. */
void fbr_rpc_close(struct fbr_rpc *r);

/* 0: answered or lost; -ETIMEDOUT; -EDEADLK: this is the main thread of the manager's process,
 * which must answer. No error is kept. */
int fbr_future_wait(struct fiber_future *f, uint64_t deadline);
/* A descriptor that polls readable once a wait would not wait; or an error that is kept. */
int fbr_future_fd(struct fiber_future *f);
/* Asks the owner to answer now. Then wait for the answer. */
void fbr_future_cancel(struct fiber_future *f);
/* Returns the code of a future that was waited for. *lost: the object was gone before it answered
 * (code -EPIPE). */
int fbr_future_code(struct fiber_future *f, bool *lost);
/* Takes the answer's bytes from a future that was waited for; the caller owns them then. -ENODATA
 * the second time. */
int fbr_future_take(struct fiber_future *f, struct fiber_bytes *out);
/* Returns the bytes of a future that was waited for, as text, in place. */
const char *fbr_future_text(struct fiber_future *f);
/* Closes a future. A call without an answer goes on; its answer is dropped. NULL is fine. */
void fbr_future_close(struct fiber_future *f);

/* ---- Owner's side ---- */

struct fbr_rpc_service_ops {
    /* Bytes are valid during the call and 8-byte aligned. The data server's thread. */
    void (*on_call)(void *user, uint64_t peer, uint64_t call, const void *bytes, size_t len);
    void (*on_cancel)(void *user, uint64_t peer, uint64_t call); /* may be NULL */
    /* The process does not use the object any more. Also called for processes that never did. Data
     * server's or loop thread. May be NULL. */
    void (*on_gone)(void *user, uint64_t peer);
    /* The parent asks the process to end (service_process.h). Loop thread. May be NULL. */
    void (*on_close)(void *user);
};

struct fbr_rpc_service {
    struct fbr_object *object;
    const struct fbr_rpc_service_ops *ops;
    void *user;
    size_t limit; /* bytes of an answer, at most */
};

/* Set ops and user before the call. 0, or kept. */
int fbr_service_open(struct fbr_rpc_service *s);
/* Any thread; never waits. An answer that is too long becomes -EMSGSIZE. An answer to a peer that
 * is gone is dropped. */
void fbr_service_answer(struct fbr_rpc_service *s, uint64_t peer, uint64_t call, int code,
                        const void *bytes, size_t len);
/* No more callbacks come; users are notified that the object is gone. */
void fbr_service_close(struct fbr_rpc_service *s);
