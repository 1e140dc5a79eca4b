/* share.h - objects that live in one process and are used from others: addresses, and the interface
 * of both sides.
 *
 *     owner's side (object_server.c)   an object has an id in its process. Peers are the processes
 *                                      that use objects here. A peer connects to the control
 *                                      channel with the key of an address and gets a data link.
 *     user's side (object_client.c)    one connection to each owner, shared by all handles on
 *                                      objects there.
 *
 * A record on a data link is u64 object id, then bytes that only the kind of the object
 * understands. When a process ends, every object that the process used is notified once, and so is
 * every handle on an object of that process.
 *
 * Threads: see each callback. Lock order: the object's own lock, then share's lock, then the link's
 * lock.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/uio.h>

#include "runtime/proc/context.h"

/* ---- Addresses (address.c) ---- */

enum fbr_kind {
    FBR_KIND_QUEUE = 1,
    FBR_KIND_PIPE,
    FBR_KIND_MANAGER,
    FBR_KIND_STORE,
    FBR_KIND_RING
};

struct fbr_address {
    uint8_t kind;
    uint8_t flags;  /* the kind's own */
    uint64_t owner; /* fbr_runtime.self of the process in which it lives */
    uint64_t object;
    uint8_t key[FBR_KEY_SIZE];
    char url[FBR_URL_MAX];
};

int fbr_address_put(const struct fbr_address *a, struct fiber_address *out);
/* -EINVAL, kept: the bytes are not an address, or the address is of another kind. */
int fbr_address_get(struct fbr_address *a, const struct fiber_address *in, enum fbr_kind kind);

/* ---- Owner's side (object_server.c) ---- */

struct fbr_object_ops {
    /* A record of a peer; it is valid during the call. Data server's thread. */
    void (*on_record)(void *user, uint64_t peer, const void *record, size_t len);
    /* The process is gone. Also called for peers that never used the object. Loop thread. */
    void (*on_gone)(void *user, uint64_t peer);
    /* The call that fbr_object_remind() arranges. NULL if none is arranged. Loop thread. */
    void (*on_time)(void *user);
    /* fiber_fini() was called and no peer is left, so no thread may wait for one. NULL if no thread
     * ever waits. The ending thread. */
    void (*on_end)(void *user);
};

struct fbr_object;

/* Opens share for this process if this is its first object. 0, or kept. */
int fbr_object_open(struct fbr_object **o, const struct fbr_object_ops *ops, void *user);
uint64_t fbr_object_id(const struct fbr_object *o);
/* The address of an object of this process. */
int fbr_address_here(uint64_t object, enum fbr_kind kind, uint8_t flags,
                     struct fiber_address *address);
/* Sends a record of at most 7 parts to a peer; any thread. -EPIPE: the peer is gone. -ENOMEM: the
 * record is missing, so the peer is disconnected. Never waits: a record that the peer has not read
 * yet is queued. */
int fbr_object_send(struct fbr_object *o, uint64_t peer, const struct iovec *iov, int n);
/* Bytes that are queued for the peer, from all objects. */
size_t fbr_object_queued(struct fbr_object *o, uint64_t peer);
/* Arranges one call of ops->on_time, within about a second. When memory is short, the call does not
 * come. Any thread. */
void fbr_object_remind(struct fbr_object *o);
/* Closes the object: no callback runs or starts after this call. Users of the object are notified
 * that it is gone. Not from a callback. NULL is fine. */
void fbr_object_close(struct fbr_object *o);
/* The same, but may also be called from a callback. Once no callback runs, this call or the
 * callback that ends last calls `done`. */
void fbr_object_retire(struct fbr_object *o, void (*done)(void *user));

/* If the address is of an object that lives in this process, returns the `user` of the object; else
 * NULL. `hold` is called with `user` while the object cannot go away, and may not take a lock. */
void *fbr_object_hold(const struct fbr_address *a, const struct fbr_object_ops *ops,
                      void (*hold)(void *user));

/* ---- User's side (object_client.c) ---- */

struct fbr_proxy_ops {
    /* A record of the object; it is valid during the call. The connection's thread. */
    void (*on_record)(void *user, const void *record, size_t len);
    /* The object or its process is gone. Called once, as the last call. The connection's thread or
     * the loop thread. */
    void (*on_gone)(void *user);
    /* The process ends: data that it wrote may be sent now, up to the time *until, which is one
     * time for all objects of an owner. Moves it when the owner has taken something. May be NULL.
     * The thread that exits. */
    void (*flush)(void *user, uint64_t *until);
    /* The time of fbr_proxy_later() has come. May be NULL. The connection's thread. */
    void (*tick)(void *user);
};

struct fbr_proxy;

/* Connects to the process of the address (waits at most 30 s), or joins the connection that exists.
 * 0, or kept. */
int fbr_proxy_open(struct fbr_proxy **p, const struct fbr_address *a,
                   const struct fbr_proxy_ops *ops, void *user);
/* Sends a record of at most 7 parts to the object; any thread. Never waits: the caller limits how
 * much it sends. `more`: another record follows at once. -EPIPE: the object is gone. */
int fbr_proxy_post(struct fbr_proxy *p, const struct iovec *iov, int n, bool more);
/* The user has a record that can wait for the next one. True: ops->tick is called within about 0.5
 * ms. False: no tick comes, send the record now. (Just after a record has arrived, the connection's
 * thread is awake soon; this call wakes the thread only if `wakes`.) */
bool fbr_proxy_later(struct fbr_proxy *p, bool wakes);
/* From on_record: this record wakes a thread that will soon send a record to the owner, or wait for
 * it, and no other record is expected. The notice to the owner that it can send its next message
 * may then go a little later, together with that record. */
void fbr_proxy_delay_ack(struct fbr_proxy *p);
/* The owner waits for the notice that it can send. A record that is sent now is not wasted, even if
 * the record could wait. */
bool fbr_proxy_ack_due(struct fbr_proxy *p);
/* Whether the proxy's connection is broken, or about to be found broken; a new proxy gets another
 * connection. Under share's lock. */
bool fbr_proxy_fails(const struct fbr_proxy *p);
/* Bytes, for all objects of the owner, that the owner has not read. */
size_t fbr_proxy_queued(struct fbr_proxy *p);
/* Closes the proxy: no callback runs or starts after this call, unless it is called from a
 * callback. NULL is fine. */
void fbr_proxy_close(struct fbr_proxy *p);
