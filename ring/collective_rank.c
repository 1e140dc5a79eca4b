/* collective_rank.c - collectives as a rank calls them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/collective.h"
#include "share/rpc.h"

struct fbr_rank_group {
    uint32_t rank, size, epoch;
    struct fiber_address address;
    pthread_mutex_t lock; /* one collective at a time; all below */
    struct fbr_rpc *rpc;  /* NULL until the first collective */
    uint64_t number;
};

/* The rank that this process is; NULL: it is none. Set once, before the rank's function runs,
 * and never freed. */
static struct fbr_rank_group *ours;

int fbr_collective_join(uint32_t rank, uint32_t size, uint32_t epoch,
                        const struct fiber_address *address)
{
    struct fbr_rank_group *g = calloc(1, sizeof(*g));

    if (!g)
        return -ENOMEM;
    g->rank = rank;
    g->size = size;
    g->epoch = epoch;
    g->address = *address;
    pthread_mutex_init(&g->lock, NULL);
    ours = g;
    return 0;
}

static int explain(int rc, const char *what, bool lost, const char *text)
{
    if (lost)
        return fbr_keep(-EPIPE, "%s: the launcher is gone", what);
    return fbr_keep(rc, "%s: %s", what,
                    text && text[0]    ? text
                    : rc == -ETIMEDOUT ? "not all ranks made the call within the timeout"
                    : rc == -EMSGSIZE  ? "the data is longer than max_message"
                                       : fbr_strerror(rc));
}

static int connect_group(struct fbr_rank_group *g)
{
    struct fbr_address a;
    int rc;

    if (g->rpc)
        return 0;
    rc = fbr_address_get(&a, &g->address, FBR_KIND_RING);
    if (rc == 0)
        rc = fbr_rpc_open(&g->rpc, &a);
    fbr_wipe(&a, sizeof(a));
    return rc;
}

/* Sends the request and waits for its answer. The bytes of the answer, if there are any, replace
 * the data. */
static int exchange(struct fbr_rank_group *g, const char *what, const struct iovec *iov, int n,
                    const struct iovec *into, uint64_t deadline)
{
    struct fiber_bytes out = {NULL, 0};
    struct fiber_future *f;
    bool lost = false;
    int rc = fbr_rpc_call(g->rpc, iov, n, deadline, &f);

    if (rc < 0)
        return explain(rc, what, rc == -EPIPE, NULL);
    if (fbr_future_wait(f, deadline) == -ETIMEDOUT) {
        fbr_future_cancel(f);
        fbr_future_wait(f, UINT64_MAX);
    }
    rc = fbr_future_code(f, &lost);
    fbr_future_take(f, &out);
    if (rc < 0)
        explain(rc, what, lost, out.data);
    else if (out.len == into->iov_len && out.len)
        memcpy(into->iov_base, out.data, out.len);
    fiber_bytes_free(&out);
    fbr_future_close(f);
    return rc;
}

static int collect(const char *what, struct fbr_collective_ask ask, void *data, bool brings,
                   int timeout_ms)
{
    struct fbr_rank_group *g = ours;
    uint64_t deadline = fbr_deadline(timeout_ms);
    struct iovec iov[2] = {{NULL, 0}, {data, ask.len}};
    struct fbr_buf head = {0};
    int rc = fbr_rt_check();

    if (rc < 0)
        return rc;
    if (!g)
        return fbr_keep(-EPERM,
                        "%s: this process is not a rank that runs a function of "
                        "fiber_ring_start()",
                        what);
    if (ask.root >= g->size || (!data && ask.len))
        return fbr_keep(-EINVAL, "%s: there is no rank %d, or the data pointer is NULL", what,
                        (int)ask.root);
    if (g->size == 1)
        return 0;
    ask.rank = g->rank;
    ask.epoch = g->epoch;
    brings |= ask.op == FBR_COLLECTIVE_BROADCAST && ask.root == g->rank;
    pthread_mutex_lock(&g->lock);
    ask.number = g->number++;
    fbr_collective_put(&head, &ask);
    iov[0] = (struct iovec){head.data, head.len};
    rc = head.failed ? fbr_keep(-ENOMEM, "%s: out of memory", what) : connect_group(g);
    if (rc == 0)
        rc = exchange(g, what, iov, brings ? 2 : 1, &iov[1], deadline);
    pthread_mutex_unlock(&g->lock);
    fbr_buf_fini(&head);
    return rc;
}

int fiber_ring_barrier(int timeout_ms)
{
    const struct fbr_collective_ask ask = {.op = FBR_COLLECTIVE_BARRIER};

    return collect("fiber_ring_barrier", ask, NULL, false, timeout_ms);
}

int fiber_ring_broadcast(void *data, size_t len, int root, int timeout_ms)
{
    const struct fbr_collective_ask ask = {
        .op = FBR_COLLECTIVE_BROADCAST, .root = (uint32_t)root, .len = len};

    return collect("fiber_ring_broadcast", ask, data, false, timeout_ms);
}

int fiber_ring_allreduce(void *data, size_t n, enum fiber_ring_type type, enum fiber_ring_op op,
                         int timeout_ms)
{
    const struct fbr_collective_ask ask = {
        .op = FBR_COLLECTIVE_ALLREDUCE, .type = type, .how = op, .len = (uint64_t)n * 8};

    if ((type != FIBER_RING_INT64 && type != FIBER_RING_DOUBLE) || op < FIBER_RING_SUM ||
        op > FIBER_RING_MAX || n > SIZE_MAX / 8)
        return fbr_keep(-EINVAL, "fiber_ring_allreduce: invalid type, operation, or number of "
                                 "elements");
    return collect("fiber_ring_allreduce", ask, data, true, timeout_ms);
}
