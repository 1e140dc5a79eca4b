/* plan.c - which ranks run on which node.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/plan.h"

#include <errno.h>
#include <stdlib.h>

static int set_up(struct fbr_plan *p, uint32_t size, uint32_t nodes, struct fbr_error *err)
{
    p->size = size;
    p->nodes = nodes;
    p->first = calloc((size_t)nodes + 1, sizeof(*p->first));
    return p->first ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

int fbr_plan_make(struct fbr_plan *p, uint32_t size, uint32_t per_node, uint32_t nodes,
                  struct fbr_error *err)
{
    int rc;

    if (nodes == 0)
        nodes = per_node ? (size + per_node - 1) / per_node : 1;
    if (nodes > size)
        return fbr_fail(err, -EINVAL,
                        "%u ranks cannot be spread over %u nodes: each needs at least one", size,
                        nodes);
    if (per_node && (uint64_t)per_node * nodes < size)
        return fbr_fail(err, -EINVAL,
                        "%u ranks do not fit on %u nodes with %u each; ask for %u nodes", size,
                        nodes, per_node, (size + per_node - 1) / per_node);
    rc = set_up(p, size, nodes, err);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k <= nodes; k++) {
        uint64_t full = (uint64_t)k * per_node;

        if (per_node)
            p->first[k] = full < size ? (uint32_t)full : size;
        else
            p->first[k] = (uint32_t)(((uint64_t)size * k + nodes - 1) / nodes);
    }
    if (per_node && p->first[nodes - 1] == size) { /* the last nodes would have none */
        fbr_plan_fini(p);
        return fbr_plan_make(p, size, 0, nodes, err);
    }
    return 0;
}

int fbr_plan_fill(struct fbr_plan *p, uint32_t size, const uint32_t *slots, uint32_t nodes,
                  struct fbr_error *err)
{
    uint64_t all = 0, before = 0;
    int rc;

    for (uint32_t k = 0; k < nodes; k++)
        all += slots[k];
    if (all == 0 || nodes == 0)
        return fbr_fail(err, -EINVAL, "there is no processor for %u ranks", size);
    rc = set_up(p, size, nodes, err);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < nodes; k++) {
        p->first[k] =
            (uint32_t)(all >= size ? (before < size ? before : size) : before * size / all);
        before += slots[k];
    }
    p->first[nodes] = size;
    return 0;
}

void fbr_plan_fini(struct fbr_plan *p)
{
    free(p->first);
    p->first = NULL;
    p->nodes = 0;
}
