/* shared_proxy.h - what a process has of an object, for all of its handles on it.
 *
 * The owner knows a process as one peer. So the first handle on an object connects, later ones join
 * it, and one that comes while the last handle disconnects waits, because the owner's records would
 * not tell the two apart. A proxy whose connection fails is joined by no handle.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "share/share_priv.h"

struct fbr_shared_proxy_key {
    uint64_t owner, object;
    /* a handle with a wrong key does not join those with the right one */
    uint8_t secret[FBR_KEY_SIZE];
};

/* The first member of what its kind has. */
struct fbr_shared_proxy {
    struct fbr_share *share;
    struct fbr_proxy *proxy; /* once it is open */
    /* Under share's lock. */
    struct fbr_shared_proxy_key key;
    enum { FBR_SHARED_OPENING, FBR_SHARED_OPEN, FBR_SHARED_CLOSING } state;
    int handles;
    bool listed;
    UT_hash_handle hh;
};

/* Joins, or calls `make` under share's lock and connects with `ops`, whose user is the new one. 0;
 * or kept, and *made is what the caller frees (NULL: nothing). */
int fbr_shared_proxy_open(struct fbr_shared_proxy **p, const struct fbr_address *a,
                          const struct fbr_proxy_ops *ops,
                          struct fbr_shared_proxy *(*make)(struct fbr_share *s,
                                                           const struct fbr_address *a));
void fbr_shared_proxy_hold(struct fbr_shared_proxy *p); /* one handle more, for one that has one */
/* The object is gone: no handle joins any more. */
void fbr_shared_proxy_gone(struct fbr_shared_proxy *p);
/* One handle less. True: it was the last one, so the caller disconnects, and then calls
 * fbr_shared_proxy_close() and frees it. */
bool fbr_shared_proxy_leave(struct fbr_shared_proxy *p);
void fbr_shared_proxy_close(struct fbr_shared_proxy *p);
