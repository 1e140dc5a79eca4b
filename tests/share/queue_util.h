/* queue_util.h - what the tests of queues share: what children are told, and what several of them
 * do.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "channel_util.h"

/* What a child is told. */
struct order {
    struct fiber_address queue, report;
    uint64_t id, count, seed;
    int timeout_ms;
};

static inline struct order order_for(struct fiber_queue *queue, struct fiber_queue *report)
{
    struct order o;

    memset(&o, 0, sizeof(o));
    if (queue)
        must(fiber_queue_address(queue, &o.queue));
    if (report)
        must(fiber_queue_address(report, &o.report));
    return o;
}

static inline struct fiber_queue *plain_queue(size_t bound)
{
    struct fiber_queue *q;

    must(fiber_queue_open(&q, bound));
    return q;
}

/* Puts id << 32 | 0, 1, 2, ... */
static inline int produce(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);

    for (uint64_t i = 0; i < o->count; i++)
        CHECK(put_number(q, o->id << 32 | i) == 0);
    return 0; /* without flush or close: it arrives all the same */
}

/* Gets some, has the owner know, and holds on to what came ahead. */
static inline int take_some(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report), *never;
    struct fiber_bytes b;
    size_t n;
    int rc;

    CHECK(fiber_queue_open(&never, 0) == 0);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(get_number(q, LONG_MS, &rc) == o->id + i);
    CHECK(fiber_queue_size(q, &n) == 0); /* the answer comes after what we say has been read */
    CHECK(put_number(report, o->count) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}
