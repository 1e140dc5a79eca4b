/* send.c - carries out the decisions of the engine: batches to workers, recalls, cancels.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "pool/pool.h"

#define DIRECT (16 * 1024) /* a longer input is sent without a copy */
#define AHEAD_NS 500000    /* time for the next batch to come before this one is done */
#define MAX_DIRECT 300     /* such inputs in one batch; dispatch.h limits its bytes */

/* A message that is being made: pieces of p->message, given by offset while it grows, and long
 * inputs in between. */
struct gather {
    struct fbr_buf *b;
    struct iovec iov[2 * MAX_DIRECT + 2];
    int n;
    size_t from; /* offset of the current piece */
};

static void end_piece(struct gather *g)
{
    if (g->b->len > g->from)
        g->iov[g->n++] = (struct iovec){(void *)(uintptr_t)g->from, g->b->len - g->from};
    g->from = g->b->len;
}

static void put_input(struct gather *g, const void *data, size_t len)
{
    fbr_put_u32(g->b, (uint32_t)len);
    fbr_put_u32(g->b, 0);
    if (len >= DIRECT && g->n < 2 * MAX_DIRECT) {
        end_piece(g);
        g->iov[g->n++] = (struct iovec){(void *)(uintptr_t)data, len};
    } else {
        fbr_put(g->b, data, len);
    }
    fbr_put_pad8(g->b, len);
}

static bool is_offset(const struct gather *g, const struct iovec *v)
{
    return (uintptr_t)v->iov_base < g->b->len;
}

static int put_batch(struct gather *g, const struct fbr_dispatch_batch *batch,
                     const struct fiber_result *r, bool alone)
{
    fbr_put_u32(g->b, alone ? FBR_TASKS_ALONE : FBR_TASKS);
    fbr_put_u32(g->b, batch->count);
    fbr_put_u64(g->b, batch->id);
    fbr_put_bytes(g->b, r->ref, r->ref_len);
    fbr_put_pad8(g->b, 4 + r->ref_len);
    for (uint32_t i = 0; i < batch->count; i++) {
        const void *data;
        size_t len;

        fbr_result_input(r, batch->first + i, &data, &len);
        put_input(g, data, len);
    }
    end_piece(g);
    return g->b->failed ? -ENOMEM : 0;
}

static void note_sent(struct fbr_pool_worker *w, const struct fbr_dispatch_batch *batch)
{
    int slot = w->sent[0].left ? 1 : 0;

    w->sent[slot].id = batch->id;
    w->sent[slot].at_ns = fbr_now_ns();
    w->sent[slot].count = w->sent[slot].left = batch->count;
    w->sent[slot].busy_ns = 0;
}

/* Whether the worker need not report at once that it has the batch: no batch follows until it is
 * done, or its first results report that in time. */
static bool is_alone(struct fiber_pool *p, const struct fbr_dispatch_batch *batch)
{
    uint64_t mean = fbr_dispatch_map_mean(p->dispatch, batch->map), first;

    if (fbr_dispatch_stats(p->dispatch)->waiting == 0 || mean > FBR_DISPATCH_PREFETCH_NS)
        return true;
    if (!mean)
        return false;
    first = (FBR_REPORT_NS + mean - 1) / mean; /* tasks until the first report */
    return batch->count > first && (batch->count - first) * mean >= AHEAD_NS;
}

static int send_message(struct fiber_pool *p, struct fbr_pool_worker *w,
                        const struct fbr_dispatch_batch *batch)
{
    struct fiber_result *r = batch->map_user;
    struct gather g = {.b = &p->message};
    int rc;

    fbr_buf_clear(&p->message);
    if ((rc = fbr_common_send(w, r->common)) < 0 ||
        (rc = put_batch(&g, batch, r, is_alone(p, batch))) < 0)
        return rc;
    for (int i = 0; i < g.n; i++)
        if (is_offset(&g, &g.iov[i]))
            g.iov[i].iov_base = p->message.data + (uintptr_t)g.iov[i].iov_base;
    return fbr_link_send(fbr_process_link(w->process), g.iov, g.n);
}

static void send_batch(struct fiber_pool *p, const struct fbr_dispatch_batch *batch)
{
    struct fbr_pool_worker *w = batch->worker_user;
    int rc = send_message(p, w, batch);

    if (rc < 0) { /* the worker cannot get tasks; another worker does them */
        /* on_broken() decides whose fault a broken link of the worker itself is */
        w->disrupted |= rc != -EPIPE || w->host;
        fbr_process_abandon(w->process, rc == -ENOMEM ? "got no tasks: out of memory"
                                                      : "has a broken data link; killed");
    }
    note_sent(w, batch);
    p->stats.messages++;
    if (p->message.cap > (1u << 20))
        fbr_buf_fini(&p->message);
}

static void notify(struct fbr_pool_worker *w, uint8_t type, const struct fbr_dispatch_order *o)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, o->batch);
    if (type == FBR_POOL_CANCEL)
        fbr_put_u32(&b, o->pos);
    fbr_process_send(w->process, type, &b);
    fbr_buf_fini(&b);
}

static void on_timeout(const struct fbr_dispatch_order *o)
{
    struct fbr_pool_worker *w = o->worker_user;
    struct fiber_result *r = o->map_user;

    if (r)
        fbr_result_failed(r, o->index, -ETIMEDOUT,
                          "task %llu ran longer than %d ms on %s; its worker was replaced",
                          (unsigned long long)o->index, r->opts.timeout_ms,
                          fiber_process_name(w->process));
    w->disrupted = true;
    fbr_process_abandon(w->process, "was killed because a task ran longer than its timeout");
}

void fbr_pool_carry_out(const struct fbr_dispatch_order *o)
{
    struct fbr_pool_worker *w = o->worker_user;

    switch (o->kind) {
    case FBR_DISPATCH_RECALL:
        notify(w, FBR_POOL_RECALL, o);
        break;
    case FBR_DISPATCH_CANCEL:
        notify(w, FBR_POOL_CANCEL, o);
        break;
    case FBR_DISPATCH_TIMEOUT:
        on_timeout(o);
        break;
    case FBR_DISPATCH_DRAINED:
        fbr_workers_stop(w);
        break;
    }
}

void fbr_pool_pump(struct fiber_pool *p)
{
    struct fbr_dispatch_batch batch;
    struct fbr_dispatch_order order;
    uint64_t now = fbr_now_ns();
    bool more = true;
    int rc = 0;

    while (more) {
        more = false;
        while ((rc = fbr_dispatch_next(p->dispatch, now, &batch)) > 0)
            send_batch(p, &batch);
        while (fbr_dispatch_order(p->dispatch, now, &order) > 0) {
            fbr_pool_carry_out(&order);
            more = true; /* an order may have made room */
        }
    }
    p->short_of_memory = rc < 0;
    fbr_workers_arm(p);
}
