/* share.h - objects that live in one process and are used from others: how both sides meet.
 *
 *     owner's side (object_server.c)   an object has an id in its process. Peers, the processes
 *                                      that use objects here, come in by the control channel with
 *                                      the key of an address, and get a data link each.
 *     user's side (object_client.c)    one connection to each owner, shared by all handles on
 *                                      objects there.
 *
 * A record on such a link is u64 object id, then bytes that only the kind of the object
 * understands. When a process goes, every object that it used (or every handle on objects of its)
 * is told, once.
 *
 * Threads: see each callback. Locks are taken in this order: an object's own, then share's, then
 * the link's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SHARE_H
#define FBR_SHARE_H

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
/* -EINVAL with a kept sentence: not an address, or one of another kind. */
int fbr_address_get(struct fbr_address *a, const struct fiber_address *in, enum fbr_kind kind);

/* ---- Owner's side (object_server.c) ---- */

struct fbr_object_ops {
    /* A record of a peer, valid during the call. Data server's thread. */
    void (*on_record)(void *user, uint64_t peer, const void *record, size_t len);
    /* That process is gone; also called for peers that never used the object. Loop thread. */
    void (*on_gone)(void *user, uint64_t peer);
    /* The time that fbr_object_remind() set is over. NULL if it is never set. Loop thread. */
    void (*on_time)(void *user);
    /* fiber_fini() was called, and no peer is left: nobody may wait for one. NULL: nobody does. The
     * ending thread. */
    void (*on_end)(void *user);
};

struct fbr_object;

/* Opens share for this process when it is the first; rt comes from fbr_rt(). 0, or kept. */
int fbr_object_open(struct fbr_object **o, const struct fbr_object_ops *ops, void *user);
uint64_t fbr_object_id(const struct fbr_object *o);
int fbr_object_address(struct fbr_object *o, enum fbr_kind kind, uint8_t flags,
                       struct fiber_address *address);
/* The same by its id. */
int fbr_address_here(uint64_t object, enum fbr_kind kind, uint8_t flags,
                     struct fiber_address *address);
/* Sends a record to a peer; any thread. -EPIPE: it is gone. Never waits: what the peer does not
 * read yet is queued. */
int fbr_object_send(struct fbr_object *o, uint64_t peer, const struct iovec *iov, int n);
/* Bytes on their way to that peer, of all objects. */
size_t fbr_object_queued(struct fbr_object *o, uint64_t peer);
/* Has ops->on_time called once, in about a second from the first call since the last time. When
 * memory is short it does not come. Any thread. */
void fbr_object_remind(struct fbr_object *o);
/* No callback runs or comes after it. Users of the object are told that it is gone. Not from a
 * callback. NULL is fine. */
void fbr_object_close(struct fbr_object *o);
/* The same from anywhere, also from a callback: `done` is called once no callback runs, by this
 * call or by the one that ends last. */
void fbr_object_retire(struct fbr_object *o, void (*done)(void *user));

/* An object of this process by an address of it, when it lives here: its user; NULL otherwise.
 * `hold` (may be NULL) is called for it while it cannot go, and may not lock anything. */
void *fbr_object_local(const struct fbr_address *a, const struct fbr_object_ops *ops);
void *fbr_object_hold(const struct fbr_address *a, const struct fbr_object_ops *ops,
                      void (*hold)(void *user));

/* ---- User's side (object_client.c) ---- */

struct fbr_proxy_ops {
    /* A record of the object, valid during the call. The remote's thread. */
    void (*on_record)(void *user, const void *record, size_t len);
    /* The object or its process is gone; once, the last call. The remote's or the loop thread. */
    void (*on_gone)(void *user);
    /* The process ends: what it wrote may be sent now, until fbr_proxy_exit_by(). May be NULL. Its
     * exiting thread. */
    void (*flush)(void *user);
    /* The time of fbr_proxy_later() has come. May be NULL. The remote's thread. */
    void (*tick)(void *user);
};

struct fbr_proxy;

/* Connects (waits, at most 30 s) to the process of the address, or joins the connection that there
 * is. 0, or kept. */
int fbr_proxy_open(struct fbr_proxy **p, const struct fbr_address *a,
                   const struct fbr_proxy_ops *ops, void *user);
/* Sends a record to the object; any thread. Waits while too much is queued for an owner that does
 * not read, at most timeout_ms: -EAGAIN, and the record was not sent; never on the remote's own
 * thread. -EPIPE: gone. */
int fbr_proxy_send(struct fbr_proxy *p, const struct iovec *iov, int n, int timeout_ms);
/* The same without ever waiting; the caller bounds what it sends. `more`: another record follows at
 * once. */
int fbr_proxy_post(struct fbr_proxy *p, const struct iovec *iov, int n, bool more);
/* The user has something to say that can wait for the next thing to say: ops->tick comes within
 * about 0.5 ms. False: it does not, say it now. (Just after something came the remote's thread will
 * be awake; it is not woken for this.) */
bool fbr_proxy_later(struct fbr_proxy *p);
/* From on_record: this record wakes somebody who will soon send something to this owner, or wait
 * for it; and nothing else is expected. The owner may be told a little later, along with that, that
 * it can send its next message. */
void fbr_proxy_delay_ack(struct fbr_proxy *p);
/* The owner waits to be told so: what is sent now, even if it could wait, is not wasted. */
bool fbr_proxy_ack_due(struct fbr_proxy *p);
/* Whether its connection is broken, or about to be found so: a new proxy gets another one. Under
 * share's lock. */
bool fbr_proxy_fails(const struct fbr_proxy *p);
/* Bytes that the owner has not read, of all its objects. */
size_t fbr_proxy_queued(struct fbr_proxy *p);
/* For ops->flush: when it gives up, one time for all that goes to this owner; later, when the
 * owner has taken something. */
uint64_t fbr_proxy_exit_by(struct fbr_proxy *p);
void fbr_proxy_exit_goes_on(struct fbr_proxy *p);
/* No callback runs or comes after it, unless called from one. NULL is fine. */
void fbr_proxy_close(struct fbr_proxy *p);

#endif
