/* assign.c - chooses the agents that serve a job, and names their hosts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/plan.h"
#include "ring/ring.h"
#include "ring/ring_priv.h"

static bool same_host(const struct fiber_ring *r, uint32_t a, uint32_t b)
{
    return strcmp(r->agents[a].host, r->agents[b].host) == 0;
}

static bool is_host(const struct fiber_ring *r, const struct fbr_bridge_job *i, const char *name)
{
    uint32_t k = 0;

    while (k < i->nodes && strcmp(r->agents[i->agents[k]].host, name) != 0)
        k++;
    return k < i->nodes;
}

/* Makes the host names of the job, distinct if agents share a host, and the address of rank 0. */
static int name_hosts(struct fiber_ring *r, struct fbr_bridge_job *i)
{
    char **hosts = calloc((size_t)i->nodes + 1, sizeof(*hosts)), text[300];
    bool local = true;

    if (!hosts)
        return -ENOMEM;
    i->hosts = (const char *const *)hosts;
    for (uint32_t k = 0; k < i->nodes; k++) {
        uint32_t a = i->agents[k];
        bool shared = false;

        for (uint32_t m = 0; m < i->nodes && !shared; m++)
            shared = m != k && same_host(r, i->agents[m], a);
        local &= k == 0 || same_host(r, i->agents[0], a);
        snprintf(text, sizeof(text), "%s", r->agents[a].host);
        while (shared && is_host(r, i, text))
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "-%u", a);
        hosts[k] = strdup(text);
        if (!hosts[k])
            return -ENOMEM;
    }
    i->master_host =
        strdup(local || !r->agents[i->agents[0]].address[0] ? "127.0.0.1"
                                                            : r->agents[i->agents[0]].address);
    return i->master_host ? 0 : -ENOMEM;
}

/* Finds the nodes that are on one machine: their ranks are placed on its processors together. */
static int find_machines(struct fiber_ring *r, struct fbr_ring_job *j)
{
    const struct fbr_bridge_job *i = &j->info;

    j->machines = calloc(i->nodes, sizeof(*j->machines));
    if (!j->machines)
        return -ENOMEM;
    for (uint32_t k = 0; k < i->nodes; k++)
        while (r->agents[i->agents[j->machines[k]]].machine != r->agents[i->agents[k]].machine)
            j->machines[k]++;
    return 0;
}

int fbr_ring_plan(struct fbr_plan *p, int size, const struct fiber_ring_options *o,
                  struct fbr_error *err)
{
    uint32_t n = (uint32_t)o->nodes;
    uint64_t all = 0;
    int rc;

    if (!o->slots)
        return fbr_plan_make(p, (uint32_t)size, (uint32_t)o->per_node, n, err);
    if (!n || o->per_node)
        return fbr_fail(err, -EINVAL,
                        "ring options: slots need nodes, and cannot be combined with per_node");
    for (uint32_t k = 0; k < n; k++) {
        if (o->slots[k] < 1)
            return fbr_fail(err, -EINVAL, "ring options: node %u has %d slots", k, o->slots[k]);
        all += (uint32_t)o->slots[k];
    }
    if (all < (uint64_t)size)
        return fbr_fail(err, -EINVAL, "ring options: %d ranks do not fit into all slots", size);
    rc = fbr_plan_fill(p, (uint32_t)size, (const uint32_t *)o->slots, n, err);
    if (rc < 0)
        return rc;
    while (p->nodes > 1 && p->first[p->nodes - 1] == p->size)
        p->nodes--;
    return 0;
}

/* Spreads the ranks over the agents that live. */
static int spread(const struct fiber_ring *r, struct fbr_plan *p, uint32_t size, bool spawned,
                  const uint32_t *slots, uint32_t living, struct fbr_error *err)
{
    const struct fiber_ring_options *o = &r->options;

    if (!spawned && (r->ranks || (o->per_node == 0 && o->nodes == 0)))
        return fbr_plan_fill(p, size, slots, living, err);
    return fbr_plan_make(p, size, spawned ? 0 : (uint32_t)o->per_node,
                         living < size ? living : size, err);
}

int fbr_ring_assign(struct fiber_ring *r, struct ring_job *j, bool spawned, struct fbr_error *err)
{
    struct fbr_bridge_job *i = &j->job.info;
    uint32_t living = 0, *agents = calloc(r->nagents, sizeof(*agents)),
             *slots = calloc(r->nagents, sizeof(*slots));
    struct fbr_plan plan = {0};
    int rc;

    i->agents = agents;
    if (!agents || !slots) {
        free(slots);
        return fbr_fail(err, -ENOMEM, "out of memory");
    }
    for (uint32_t k = 0; k < r->nagents; k++)
        if (r->agents[k].state == AGENT_READY) {
            agents[living] = k;
            slots[living++] = r->ranks ? r->ranks[k] : r->agents[k].cpus;
        }
    rc = living ? spread(r, &plan, i->size, spawned, slots, living, err)
                : fbr_fail(err, -ECHILD, "no agent is left that can start ranks");
    free(slots);
    if (rc < 0)
        return rc;
    i->nodes = plan.nodes;
    i->first = plan.first;
    if ((rc = name_hosts(r, i)) < 0 || (rc = find_machines(r, &j->job)) < 0)
        return fbr_fail(err, rc, "out of memory");
    return 0;
}
