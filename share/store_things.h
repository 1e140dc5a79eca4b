/* store_things.h - the contents of a store: named things, peers, waiters and holders.
 *
 * For store_engine.c only. It decides when a thing changes; this file keeps the tables and counts
 * the memory.
 *
 * Everything that has a name is a `struct fbr_thing`; each kind has a table of its own. A request
 * that must wait is a `struct fbr_waiter`, in the list of the thing that it waits for (oldest
 * first) and in the list of its peer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "share/store_wire.h"

enum fbr_thing_kind { VALUE, COUNTER, LIST, LOCK, SEMAPHORE, EVENT, BARRIER, KINDS };

struct fbr_blob {
    void *data; /* NULL: empty */
    size_t len;
};

struct fbr_holder {
    uint64_t id;
    char who[96]; /* its name for messages, or "" */
    bool gone;    /* being forgotten: no more answers go to it */
    struct fbr_waiter *waiters;
    struct fbr_thing *locks;
    struct fbr_store_hold *holds;
    UT_hash_handle hh;
};

/* The items are items[head .. head + len) modulo cap, a power of two. */
struct fbr_thing_list {
    struct fbr_blob *items;
    size_t cap, head, len;
};

struct fbr_thing_lock {
    struct fbr_holder *holder;
    bool owner_died;               /* the next holder has not got -EOWNERDEAD yet */
    struct fbr_thing *prev, *next; /* in the list of the holder */
};

struct fbr_thing {
    enum fbr_thing_kind kind;
    struct fbr_waiter *waiters;
    size_t waiting;
    union {
        struct {
            bool set;
            struct fbr_blob blob;
        } value;
        int64_t counter;
        struct fbr_thing_list list;
        struct fbr_thing_lock lock;
        struct {
            int64_t free;
            uint64_t held;
        } semaphore;
        bool event;
        int64_t parties;
    };
    UT_hash_handle hh;
    size_t name_len;
    char name[];
};

struct fbr_waiter_key {
    uint64_t peer, call;
};

struct fbr_waiter {
    struct fbr_waiter_key key;
    enum fbr_store_op op;
    struct fbr_thing *thing;
    struct fbr_holder *peer;
    struct fbr_store_hold *hold;    /* for ACQUIRE */
    struct fbr_waiter *prev, *next; /* in the list of the thing */
    struct fbr_waiter *peer_prev, *peer_next;
    UT_hash_handle hh;
};

struct fbr_hold_key {
    struct fbr_holder *peer;
    struct fbr_thing *thing;
};

/* A peer at a semaphore. It stays while one of the two numbers is not 0. */
struct fbr_store_hold {
    struct fbr_hold_key key;
    uint64_t units, waiting;
    struct fbr_store_hold *prev, *next; /* in the list of the peer */
    UT_hash_handle hh;
};

struct fbr_things {
    size_t memory, memory_max; /* memory_max 0: no limit */
    struct fbr_thing *things[KINDS];
    struct fbr_waiter *waiters;
    struct fbr_holder *peers;
    struct fbr_store_hold *holds;
};

/* Drops everything; no request is answered. */
void fbr_things_fini(struct fbr_things *s);

/* Zeroed memory that counts against memory_max, or NULL and the reason, -ENOSPC or -ENOMEM, in
 * *code. */
void *fbr_things_alloc(struct fbr_things *s, size_t size, int *code);
void fbr_things_free(struct fbr_things *s, void *p, size_t size);

/* A copy of the bytes. 0 or the reason. */
int fbr_blob_copy(struct fbr_things *s, struct fbr_blob *blob, const void *data, size_t len);
void fbr_blob_drop(struct fbr_things *s, struct fbr_blob *blob);

struct fbr_thing *fbr_thing_find(struct fbr_things *s, enum fbr_thing_kind kind,
                                 const struct fbr_store_ask *ask);
/* A new thing with the name of `ask`, in its initial state; NULL and the reason. */
struct fbr_thing *fbr_thing_make(struct fbr_things *s, enum fbr_thing_kind kind,
                                 const struct fbr_store_ask *ask, int *code);
/* Puts a value, counter, list or event into its initial state; its waiters stay. False: it was in
 * that state. */
bool fbr_thing_reset(struct fbr_things *s, struct fbr_thing *t);
/* Frees the thing if it is in its initial state and no request waits for it. NULL is fine. */
void fbr_thing_tidy(struct fbr_things *s, struct fbr_thing *t);

struct fbr_holder *fbr_holder_find(struct fbr_things *s, uint64_t id);
/* The peer, made if it is new; NULL and the reason. */
struct fbr_holder *fbr_holder_need(struct fbr_things *s, uint64_t id, int *code);
/* Frees a peer that waits for nothing and holds nothing. */
void fbr_holder_drop(struct fbr_things *s, struct fbr_holder *p);

struct fbr_waiter *fbr_waiter_find(struct fbr_things *s, uint64_t peer, uint64_t call);
/* Adds the last waiter of t. `hold`: for ACQUIRE, else NULL. 0 or the reason. */
int fbr_waiter_add(struct fbr_things *s, struct fbr_thing *t, uint64_t peer, uint64_t call,
                   enum fbr_store_op op, struct fbr_store_hold *hold);
void fbr_waiter_drop(struct fbr_things *s, struct fbr_waiter *w);

struct fbr_store_hold *fbr_hold_find(struct fbr_things *s, struct fbr_holder *p,
                                     struct fbr_thing *t);
struct fbr_store_hold *fbr_hold_need(struct fbr_things *s, struct fbr_holder *p,
                                     struct fbr_thing *t, int *code);
/* Frees it, unless it is in use. */
void fbr_hold_tidy(struct fbr_things *s, struct fbr_store_hold *h);
