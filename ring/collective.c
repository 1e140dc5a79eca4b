/* collective.c - collectives in the launcher: gathers the contributions of the ranks, and answers
 * all ranks together.
 *
 * Numbers are added in the order of the ranks, so that the same numbers have the same sum in each
 * run.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/collective.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "share/rpc.h"

/* The contribution of a rank. */
struct part {
    bool here;
    uint64_t peer, call;
    struct fbr_collective_ask ask;
    void *data;
};

struct fbr_collective {
    struct fbr_rpc_service service;
    uint32_t size;
    pthread_mutex_t lock; /* all below */
    uint32_t epoch, there;
    uint64_t number; /* of the current collective */
    struct part *parts;
    int code; /* not 0: the group is broken, and `why` says why */
    char why[200];
};

#define FIELD(member) FBR_FIELD(struct fbr_collective_ask, member)
static const struct fbr_field ask_fields[] = {FIELD(op),     FIELD(rank), FIELD(epoch),
                                              FIELD(root),   FIELD(type), FIELD(how),
                                              FIELD(number), FIELD(len),  {0}};

void fbr_collective_put(struct fbr_buf *b, const struct fbr_collective_ask *ask)
{
    fbr_put_fields(b, ask_fields, ask);
}

/* ---- Numbers ---- */

static void reduce_int64(int64_t *sum, const int64_t *more, size_t n, uint32_t how)
{
    for (size_t i = 0; i < n; i++) {
        if (how == FIBER_RING_SUM)
            sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)more[i]);
        else if (how == FIBER_RING_MIN ? more[i] < sum[i] : more[i] > sum[i])
            sum[i] = more[i];
    }
}

static void reduce_double(double *sum, const double *more, size_t n, uint32_t how)
{
    for (size_t i = 0; i < n; i++) {
        if (how == FIBER_RING_SUM)
            sum[i] += more[i];
        else if (isnan(more[i]) || (how == FIBER_RING_MIN ? more[i] < sum[i] : more[i] > sum[i]))
            sum[i] = more[i];
    }
}

/* Reduces all parts into the part of rank 0. */
static void reduce(struct fbr_collective *c)
{
    const struct fbr_collective_ask *ask = &c->parts[0].ask;
    size_t n = (size_t)ask->len / 8;

    for (uint32_t i = 1; i < c->size; i++) {
        if (ask->type == FIBER_RING_INT64)
            reduce_int64(c->parts[0].data, c->parts[i].data, n, ask->how);
        else
            reduce_double(c->parts[0].data, c->parts[i].data, n, ask->how);
    }
}

/* ---- One collective. Under the lock ---- */

static void answer(struct fbr_collective *c, struct part *p, int code, const void *data, size_t len)
{
    if (!p->here)
        return;
    fbr_service_answer(&c->service, p->peer, p->call, code, data ? data : "", data ? len : 0);
    p->here = false;
    c->there--;
}

static void forget(struct fbr_collective *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        free(c->parts[i].data);
        c->parts[i] = (struct part){.here = false};
    }
    c->there = 0;
}

__attribute__((format(printf, 3, 4))) static void fail(struct fbr_collective *c, int code,
                                                       const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    c->code = code;
    for (uint32_t i = 0; i < c->size; i++)
        answer(c, &c->parts[i], code, c->why, strlen(c->why));
    forget(c);
}

static void complete(struct fbr_collective *c)
{
    const struct fbr_collective_ask ask = c->parts[0].ask;
    const void *result = NULL;

    if (ask.op == FBR_COLLECTIVE_ALLREDUCE)
        reduce(c);
    if (ask.op != FBR_COLLECTIVE_BARRIER)
        result = c->parts[ask.root].data;
    c->number++;
    for (uint32_t i = 0; i < c->size; i++) {
        bool has_it = ask.op == FBR_COLLECTIVE_BROADCAST && i == ask.root;

        answer(c, &c->parts[i], 0, has_it ? NULL : result, ask.len);
    }
    forget(c);
}

/* Ranks of an older epoch have ended, or will end. */
static void begin_epoch(struct fbr_collective *c, uint32_t epoch)
{
    forget(c);
    c->epoch = epoch;
    c->number = 0;
    c->code = 0;
    c->why[0] = '\0';
}

/* ---- Calls of ranks ---- */

static bool is_valid(const struct fbr_collective *c, const struct fbr_collective_ask *a, size_t len)
{
    bool brings = a->op == FBR_COLLECTIVE_ALLREDUCE ||
                  (a->op == FBR_COLLECTIVE_BROADCAST && a->rank == a->root);

    return a->op >= FBR_COLLECTIVE_BARRIER && a->op <= FBR_COLLECTIVE_ALLREDUCE &&
           a->rank < c->size && a->root < c->size && len == (brings ? a->len : 0) &&
           (a->op != FBR_COLLECTIVE_ALLREDUCE || a->len % 8 == 0);
}

static bool agree(const struct fbr_collective_ask *a, const struct fbr_collective_ask *b)
{
    return a->op == b->op && a->number == b->number && a->root == b->root && a->type == b->type &&
           a->how == b->how && a->len == b->len;
}

static const struct fbr_collective_ask *first_of(const struct fbr_collective *c)
{
    for (uint32_t i = 0; i < c->size; i++)
        if (c->parts[i].here)
            return &c->parts[i].ask;
    return NULL;
}

/* Keeps the contribution of the rank. */
static int enter(struct fbr_collective *c, struct part *p, const void *data, size_t len)
{
    struct part *mine = &c->parts[p->ask.rank];

    p->data = len ? malloc(len) : NULL;
    if (len && !p->data)
        return -ENOMEM;
    if (len)
        memcpy(p->data, data, len);
    p->here = true;
    *mine = *p;
    c->there++;
    return 0;
}

/* Names all in which calls of ranks may differ, except their number. */
static const char *describe(const struct fbr_collective_ask *a, char *text, size_t size)
{
    static const char *const results[] = {"?", "sum", "minimum", "maximum"};
    unsigned long long len = a->len;

    if (a->op == FBR_COLLECTIVE_BARRIER)
        return "a barrier";
    if (a->op == FBR_COLLECTIVE_BROADCAST)
        snprintf(text, size, "a broadcast of %llu bytes from rank %u", len, a->root);
    else
        snprintf(text, size, "a %s of %llu %s", results[a->how > FIBER_RING_MAX ? 0 : a->how],
                 len / 8, a->type == FIBER_RING_INT64 ? "int64" : "double");
    return text;
}

static void take(struct fbr_collective *c, struct part *p, const void *data, size_t len)
{
    const struct fbr_collective_ask *first = first_of(c), *ask = &p->ask;
    char one[80], other[80];

    if (first && !agree(first, ask) && first->number == ask->number)
        fail(c, -EINVAL, "the ranks do not agree: rank %u calls %s, and rank %u %s", ask->rank,
             describe(ask, one, sizeof(one)), first->rank, describe(first, other, sizeof(other)));
    else if (c->parts[ask->rank].here || ask->number != c->number)
        fail(c, -EINVAL, "the ranks do not agree: rank %u calls %s out of order", ask->rank,
             describe(ask, one, sizeof(one)));
    else if (enter(c, p, data, len) < 0)
        fail(c, -ENOMEM, "the launcher is out of memory for the data of rank %u", ask->rank);
    else if (c->there == c->size)
        complete(c);
}

static void on_call(void *user, uint64_t peer, uint64_t call, const void *bytes, size_t len)
{
    struct fbr_collective *c = user;
    struct part p = {.peer = peer, .call = call};
    struct fbr_cur cur = fbr_cur(bytes, len);

    fbr_get_fields(&cur, ask_fields, &p.ask);
    if (!fbr_cur_ok(&cur) || !is_valid(c, &p.ask, fbr_cur_left(&cur))) {
        fbr_service_answer(&c->service, peer, call, -EBADMSG, "", 0);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (p.ask.epoch > c->epoch)
        begin_epoch(c, p.ask.epoch);
    if (p.ask.epoch == c->epoch && !c->code)
        take(c, &p, cur.at, fbr_cur_left(&cur));
    if (c->code && !p.here) /* broken now or before; this call is not answered yet */
        fbr_service_answer(&c->service, peer, call, c->code, c->why, strlen(c->why));
    else if (p.ask.epoch < c->epoch)
        fbr_service_answer(&c->service, peer, call, -ESTALE, "the ring has started again", 26);
    pthread_mutex_unlock(&c->lock);
}

static void on_cancel(void *user, uint64_t peer, uint64_t call)
{
    struct fbr_collective *c = user;

    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->size; i++) {
        struct part *p = &c->parts[i];

        if (!p->here || p->peer != peer || p->call != call)
            continue;
        answer(c, p, -ETIMEDOUT, NULL, 0);
        fail(c, -ECONNABORTED, "rank %u stopped waiting: its timeout expired", i);
        break;
    }
    pthread_mutex_unlock(&c->lock);
}

static const struct fbr_rpc_service_ops service_ops = {.on_call = on_call, .on_cancel = on_cancel};

void fbr_collective_ended(struct fbr_collective *c, uint32_t epoch, uint32_t rank)
{
    pthread_mutex_lock(&c->lock);
    if (epoch > c->epoch)
        begin_epoch(c, epoch);
    if (epoch == c->epoch && !c->code)
        fail(c, -ECONNABORTED, "rank %u has ended", rank);
    pthread_mutex_unlock(&c->lock);
}

/* ---- Life ---- */

int fbr_collective_open(struct fbr_collective **out, uint32_t size, struct fiber_address *address)
{
    struct fbr_collective *c = calloc(1, sizeof(*c));
    int rc;

    if (c)
        c->parts = calloc(size, sizeof(*c->parts));
    if (!c || !c->parts) {
        free(c);
        return fbr_keep(-ENOMEM, "ring: out of memory");
    }
    c->size = size;
    c->service.ops = &service_ops;
    c->service.user = c;
    pthread_mutex_init(&c->lock, NULL);
    if ((rc = fbr_service_open(&c->service)) < 0 ||
        (rc = fbr_address_here(fbr_object_id(c->service.object), FBR_KIND_RING, 0, address)) < 0) {
        fbr_collective_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void fbr_collective_close(struct fbr_collective *c)
{
    if (!c)
        return;
    fbr_service_close(&c->service);
    forget(c);
    pthread_mutex_destroy(&c->lock);
    free(c->parts);
    free(c);
}
