/* store_things.c - the tables of a store's things, peers, waiters and holders; see store_things.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "share/store_things.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

/* ---- memory ---- */

void *fbr_things_alloc(struct fbr_things *s, size_t size, int *code)
{
    void *p;

    if (s->memory_max && (size > s->memory_max || s->memory > s->memory_max - size)) {
        *code = -ENOSPC;
        return NULL;
    }
    p = calloc(1, size);
    if (p)
        s->memory += size;
    else
        *code = -ENOMEM;
    return p;
}

void fbr_things_free(struct fbr_things *s, void *p, size_t size)
{
    if (p)
        s->memory -= size;
    free(p);
}

int fbr_blob_copy(struct fbr_things *s, struct fbr_blob *blob, const void *data, size_t len)
{
    int code = 0;

    *blob = (struct fbr_blob){NULL, len};
    if (!len)
        return 0;
    blob->data = fbr_things_alloc(s, len, &code);
    if (blob->data)
        memcpy(blob->data, data, len);
    return code;
}

void fbr_blob_drop(struct fbr_things *s, struct fbr_blob *blob)
{
    fbr_things_free(s, blob->data, blob->len);
    *blob = (struct fbr_blob){NULL, 0};
}

/* ---- things and peers ---- */

struct fbr_thing *fbr_thing_find(struct fbr_things *s, enum fbr_thing_kind kind,
                                 const struct fbr_store_ask *ask)
{
    struct fbr_thing *t;

    HASH_FIND(hh, s->things[kind], ask->name, ask->name_len, t);
    return t;
}

static size_t thing_size(size_t name_len)
{
    return sizeof(struct fbr_thing) + name_len;
}

struct fbr_thing *fbr_thing_make(struct fbr_things *s, enum fbr_thing_kind kind,
                                 const struct fbr_store_ask *ask, int *code)
{
    struct fbr_thing *t = fbr_things_alloc(s, thing_size(ask->name_len), code);

    if (!t)
        return NULL;
    t->kind = kind;
    t->name_len = ask->name_len;
    memcpy(t->name, ask->name, ask->name_len);
    HASH_ADD_KEYPTR(hh, s->things[kind], t->name, t->name_len, t);
    if (t->hh.tbl)
        return t;
    fbr_things_free(s, t, thing_size(t->name_len));
    *code = -ENOMEM;
    return NULL;
}

/* Whether it is in its initial state, apart from requests that wait for it. */
static bool is_initial(const struct fbr_thing *t)
{
    switch (t->kind) {
    case VALUE:
        return !t->value.set;
    case COUNTER:
        return !t->counter;
    case LIST:
        return !t->list.len;
    case LOCK:
        return !t->lock.holder && !t->lock.owner_died;
    case SEMAPHORE:
        return !t->semaphore.held;
    case EVENT:
        return !t->event;
    default:
        return true;
    }
}

static void drop_list(struct fbr_things *s, struct fbr_thing_list *l)
{
    for (size_t i = 0; i < l->len; i++)
        fbr_blob_drop(s, &l->items[(l->head + i) & (l->cap - 1)]);
    fbr_things_free(s, l->items, l->cap * sizeof(*l->items));
    *l = (struct fbr_thing_list){.items = NULL};
}

bool fbr_thing_reset(struct fbr_things *s, struct fbr_thing *t)
{
    bool was_initial = is_initial(t);

    if (t->kind == VALUE) {
        fbr_blob_drop(s, &t->value.blob);
        t->value.set = false;
    } else if (t->kind == LIST) {
        drop_list(s, &t->list);
    } else if (t->kind == COUNTER) {
        t->counter = 0;
    } else if (t->kind == EVENT) {
        t->event = false;
    }
    return !was_initial;
}

static void drop_thing(struct fbr_things *s, struct fbr_thing *t)
{
    HASH_DEL(s->things[t->kind], t);
    fbr_thing_reset(s, t);
    fbr_things_free(s, t, thing_size(t->name_len));
}

void fbr_thing_tidy(struct fbr_things *s, struct fbr_thing *t)
{
    if (t && !t->waiters && is_initial(t))
        drop_thing(s, t);
}

struct fbr_holder *fbr_holder_find(struct fbr_things *s, uint64_t id)
{
    struct fbr_holder *p;

    HASH_FIND(hh, s->peers, &id, sizeof(id), p);
    return p;
}

struct fbr_holder *fbr_holder_need(struct fbr_things *s, uint64_t id, int *code)
{
    struct fbr_holder *p = fbr_holder_find(s, id);

    if (p)
        return p;
    p = fbr_things_alloc(s, sizeof(*p), code);
    if (!p)
        return NULL;
    p->id = id;
    HASH_ADD(hh, s->peers, id, sizeof(p->id), p);
    if (p->hh.tbl)
        return p;
    fbr_things_free(s, p, sizeof(*p));
    *code = -ENOMEM;
    return NULL;
}

void fbr_holder_drop(struct fbr_things *s, struct fbr_holder *p)
{
    HASH_DEL(s->peers, p);
    fbr_things_free(s, p, sizeof(*p));
}

/* ---- waiting and holding ---- */

struct fbr_waiter *fbr_waiter_find(struct fbr_things *s, uint64_t peer, uint64_t call)
{
    struct fbr_waiter_key key = {peer, call};
    struct fbr_waiter *w;

    HASH_FIND(hh, s->waiters, &key, sizeof(key), w);
    return w;
}

int fbr_waiter_add(struct fbr_things *s, struct fbr_thing *t, uint64_t peer, uint64_t call,
                   enum fbr_store_op op, struct fbr_store_hold *hold)
{
    int code = -ENOMEM;
    struct fbr_holder *p = fbr_holder_need(s, peer, &code);
    struct fbr_waiter *w = p ? fbr_things_alloc(s, sizeof(*w), &code) : NULL;

    if (!w)
        return code;
    w->key = (struct fbr_waiter_key){peer, call};
    HASH_ADD(hh, s->waiters, key, sizeof(w->key), w);
    if (!w->hh.tbl) {
        fbr_things_free(s, w, sizeof(*w));
        return -ENOMEM;
    }
    w->op = op;
    w->thing = t;
    w->peer = p;
    w->hold = hold;
    if (hold)
        hold->waiting++;
    DL_APPEND(t->waiters, w);
    DL_APPEND2(p->waiters, w, peer_prev, peer_next);
    t->waiting++;
    return 0;
}

struct fbr_store_hold *fbr_hold_find(struct fbr_things *s, struct fbr_holder *p,
                                     struct fbr_thing *t)
{
    struct fbr_hold_key key = {p, t};
    struct fbr_store_hold *h;

    HASH_FIND(hh, s->holds, &key, sizeof(key), h);
    return h;
}

struct fbr_store_hold *fbr_hold_need(struct fbr_things *s, struct fbr_holder *p,
                                     struct fbr_thing *t, int *code)
{
    struct fbr_store_hold *h = fbr_hold_find(s, p, t);

    if (h)
        return h;
    h = fbr_things_alloc(s, sizeof(*h), code);
    if (!h)
        return NULL;
    h->key = (struct fbr_hold_key){p, t};
    HASH_ADD(hh, s->holds, key, sizeof(h->key), h);
    if (!h->hh.tbl) {
        fbr_things_free(s, h, sizeof(*h));
        *code = -ENOMEM;
        return NULL;
    }
    DL_APPEND(p->holds, h);
    return h;
}

void fbr_hold_tidy(struct fbr_things *s, struct fbr_store_hold *h)
{
    if (h->units || h->waiting)
        return;
    DL_DELETE(h->key.peer->holds, h);
    HASH_DEL(s->holds, h);
    fbr_things_free(s, h, sizeof(*h));
}

void fbr_waiter_drop(struct fbr_things *s, struct fbr_waiter *w)
{
    if (w->hold) {
        w->hold->waiting--;
        fbr_hold_tidy(s, w->hold);
    }
    DL_DELETE(w->thing->waiters, w);
    DL_DELETE2(w->peer->waiters, w, peer_prev, peer_next);
    w->thing->waiting--;
    HASH_DEL(s->waiters, w);
    fbr_things_free(s, w, sizeof(*w));
}

void fbr_things_fini(struct fbr_things *s)
{
    struct fbr_waiter *w, *next_w;
    struct fbr_store_hold *h, *next_h;
    struct fbr_holder *p, *next_p;
    struct fbr_thing *t, *next_t;

    HASH_ITER(hh, s->waiters, w, next_w)
        fbr_waiter_drop(s, w);
    HASH_ITER(hh, s->holds, h, next_h) {
        h->units = 0;
        fbr_hold_tidy(s, h);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        HASH_ITER(hh, s->things[kind], t, next_t)
            drop_thing(s, t);
    }
    HASH_ITER(hh, s->peers, p, next_p)
        fbr_holder_drop(s, p);
}
