/* item_ring.h - a ring that grows: the messages of a queue, or of one of its consumers, in their
 * order.
 *
 * For queue_engine.c. The caller reserves room before it adds, so that only a reservation can fail.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define RING_MIN 16

struct item {
    void *data;
    size_t len;
    uint64_t order : 63;
    uint64_t far : 1; /* the message came from another process */
};

struct item_ring {
    struct item *items;
    size_t cap, head, len; /* cap: 0 or a power of two */
};

static inline struct item *ring_at(const struct item_ring *r, size_t i)
{
    return &r->items[(r->head + i) & (r->cap - 1)];
}

static inline int ring_resize(struct item_ring *r, size_t cap)
{
    struct item *items = cap > SIZE_MAX / sizeof(*items) ? NULL : malloc(cap * sizeof(*items));

    if (!items)
        return -ENOMEM;
    for (size_t i = 0; i < r->len; i++)
        items[i] = *ring_at(r, i);
    free(r->items);
    r->items = items;
    r->cap = cap;
    r->head = 0;
    return 0;
}

static inline int ring_reserve(struct item_ring *r, size_t n)
{
    size_t cap = r->cap ? r->cap : RING_MIN;

    if (n <= r->cap)
        return 0;
    while (cap < n)
        cap *= 2;
    return ring_resize(r, cap);
}

static inline void ring_push(struct item_ring *r, struct item item)
{
    r->items[(r->head + r->len++) & (r->cap - 1)] = item;
}

static inline struct item ring_pop(struct item_ring *r)
{
    struct item item = r->items[r->head];

    r->head = (r->head + 1) & (r->cap - 1);
    r->len--;
    return item;
}

/* Merges the first n items of `from` into `into`. Both are sorted, and `into` has the room. */
static inline void ring_merge(struct item_ring *into, struct item_ring *from, size_t n)
{
    size_t to = 0, next = n; /* the gap is [to, next) */

    into->head = (into->head - n) & (into->cap - 1);
    into->len += n;
    while (to < next) {
        if (next < into->len && ring_at(into, next)->order < from->items[from->head].order)
            *ring_at(into, to++) = *ring_at(into, next++);
        else
            *ring_at(into, to++) = ring_pop(from);
    }
}

/* How many items at the front of r are sorted. */
static inline size_t ring_run(const struct item_ring *r)
{
    size_t n = r->len ? 1 : 0;

    while (n < r->len && ring_at(r, n - 1)->order < ring_at(r, n)->order)
        n++;
    return n;
}
