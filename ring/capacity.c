/* capacity.c - fills in the settings that a ring's options leave open.
 *
 * In an allocation the ranks are placed as mpirun places them: node by node, as many on each as the
 * user asked the manager for. The options take precedence. If there are more ranks than the user
 * asked for, they are spread in proportion.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/capacity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ring/plan.h"
#include "runtime/base/environ.h"
#include "runtime/base/log.h"
#include "runtime/proc/process.h"

/* ---- In an allocation ---- */

static unsigned sum(const unsigned *slots, unsigned n)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < n; i++)
        all += slots[i];
    return all < FBR_PLAN_RANKS ? (unsigned)all : FBR_PLAN_RANKS;
}

/* The number of ranks on n nodes. */
static unsigned choose_size(const struct fbr_ring_capacity *r, const struct fiber_ring_options *o,
                            unsigned n)
{
    uint64_t each = (uint64_t)o->per_node * n;

    if (o->per_node)
        return each < FBR_PLAN_RANKS ? (unsigned)each : FBR_PLAN_RANKS;
    return r->room.ranks && !o->nodes ? r->room.ranks : sum(r->room.slots, n);
}

static int plan_nodes(struct fbr_plan *p, const struct fbr_ring_capacity *r, uint32_t size,
                      const struct fiber_ring_options *o, unsigned n, struct fbr_error *err)
{
    uint64_t room = (uint64_t)o->per_node * n;

    if (o->per_node && size > room && o->flags & FIBER_RING_OVERSUBSCRIBE)
        return fbr_plan_make(p, size, 0, n, err);
    if (o->per_node && size > room)
        return fbr_fail(err, -EINVAL,
                        "%u ranks with %d on each node do not fit on the %u node%s of the "
                        "allocation; omit one of the numbers, or add --oversubscribe",
                        size, o->per_node, n, n == 1 ? "" : "s");
    if (o->per_node)
        return fbr_plan_make(p, size, (uint32_t)o->per_node, (uint32_t)o->nodes, err);
    if (o->nodes && size != sum(r->room.slots, n)) /* each node gets some */
        return fbr_plan_make(p, size, 0, n, err);
    return fbr_plan_fill(p, size, r->room.slots, n, err);
}

static void note_idle(struct fbr_ring_capacity *r, unsigned used)
{
    unsigned all = r->room.hosts, idle = all - used;

    if (idle)
        snprintf(r->note, sizeof(r->note),
                 "%u of %u nodes of the allocation %s not used: %.120s%s%.120s", idle, all,
                 idle == 1 ? "is" : "are", r->room.names[used],
                 idle == 1   ? ""
                 : idle == 2 ? " and "
                             : " to ",
                 idle == 1 ? "" : r->room.names[all - 1]);
}

/* True if no node has more ranks than the user asked for: then each rank has the processors and
 * GPUs that were asked for it. */
static bool as_asked(const struct fbr_ring_capacity *r, const struct fiber_ring_options *o)
{
    for (int i = 0; i < o->nodes; i++)
        if ((unsigned)r->slots[i] > r->room.slots[i])
            return false;
    return true;
}

/* Nodes at the end that get no rank are not used. */
static int take_plan(struct fbr_ring_capacity *r, struct fbr_plan *p, struct fiber_ring_options *o,
                     struct fbr_error *err)
{
    while (p->nodes > 1 && p->first[p->nodes - 1] == p->size)
        p->nodes--;
    r->slots = calloc(p->nodes, sizeof(*r->slots));
    if (!r->slots)
        return fbr_fail(err, -ENOMEM, "out of memory");
    for (uint32_t k = 0; k < p->nodes; k++)
        r->slots[k] = (int)(p->first[k + 1] - p->first[k]);
    o->slots = r->slots;
    o->nodes = (int)p->nodes;
    o->per_node = 0;
    return 0;
}

static int use_allocation(struct fbr_ring_capacity *r, int *size, struct fiber_ring_options *o,
                          struct fbr_error *err)
{
    unsigned n = o->nodes ? (unsigned)o->nodes : r->room.hosts;
    bool chosen = o->nodes;
    struct fbr_plan p = {0};
    int rc;

    if (n > r->room.hosts)
        return fbr_fail(err, -EINVAL, "--nodes %u: the allocation has %u node%s", n, r->room.hosts,
                        r->room.hosts == 1 ? "" : "s");
    if (!*size && r->room.copies > 1)
        return fbr_fail(
            err, -EINVAL,
            "this is one of %u tasks that the resource manager started, and each would start all "
            "ranks: omit srun (flux run), which fiber run replaces, or use -n and --backend local "
            "for a separate run in each task",
            r->room.copies);
    if (!*size)
        *size = (int)choose_size(r, o, n);
    rc = plan_nodes(&p, r, (uint32_t)*size, o, n, err);
    if (rc < 0)
        return rc;
    rc = take_plan(r, &p, o, err);
    fbr_plan_fini(&p);
    if (rc < 0)
        return rc;
    if (!chosen)
        note_idle(r, (unsigned)o->nodes);
    if (!as_asked(r, o))
        return 0;
    if (!o->cpus_per_rank && r->room.cpus_per_rank > 1)
        o->cpus_per_rank = (int)r->room.cpus_per_rank;
    if (!o->gpus_per_rank)
        o->gpus_per_rank = (int)r->room.gpus_per_rank;
    return 0;
}

/* ---- On a cluster ---- */

static unsigned fit(unsigned all, int each)
{
    return all / (unsigned)(each > 0 ? each : 1);
}

/* True if the GPUs of a host, not its processors, limit its ranks. */
static bool gpus_decide(const struct fbr_capacity *room, const struct fiber_ring_options *o)
{
    return o->gpus_per_rank > 0 && room->gpus &&
           fit(room->gpus, o->gpus_per_rank) < fit(room->cpus, o->cpus_per_rank);
}

static int refuse_size(const struct fbr_capacity *room, int size, unsigned nodes, bool by_gpus,
                       struct fbr_error *err)
{
    unsigned units = by_gpus ? room->gpus : room->cpus;

    return fbr_fail(err, -EINVAL,
                    "%d ranks need %u nodes of %u %s%s, and only %u can take jobs; %sset the ranks "
                    "of each node with --per-node",
                    size, nodes, units, by_gpus ? "GPU" : "processor", units == 1 ? "" : "s",
                    room->hosts, by_gpus ? "" : "add --oversubscribe, or ");
}

static int use_cluster(struct fbr_ring_capacity *r, int size, struct fiber_ring_options *o,
                       struct fbr_error *err)
{
    const struct fbr_capacity *room = &r->room;
    bool by_gpus = gpus_decide(room, o);
    unsigned each = by_gpus ? fit(room->gpus, o->gpus_per_rank) : fit(room->cpus, o->cpus_per_rank);
    unsigned nodes;

    if (room->hosts && o->nodes > 1 && (unsigned)o->nodes > room->hosts)
        return fbr_fail(err, -EINVAL, "--nodes %d: only %u node%s can take jobs", o->nodes,
                        room->hosts, room->hosts == 1 ? "" : "s");
    if (o->nodes || o->per_node || !room->cpus || size < 2)
        return 0;
    each += !each;
    nodes = ((unsigned)size + each - 1) / each;
    if (room->hosts && nodes > room->hosts) {
        if (by_gpus || !(o->flags & FIBER_RING_OVERSUBSCRIBE))
            return refuse_size(room, size, nodes, by_gpus, err);
        each = ((unsigned)size + room->hosts - 1) / room->hosts;
    }
    if (nodes > 1)
        o->per_node = (int)each;
    return 0;
}

int fbr_ring_capacity_use(struct fbr_ring_capacity *r, int *size, struct fiber_ring_options *o,
                          struct fbr_error *err)
{
    return r->room.names ? use_allocation(r, size, o, err) : use_cluster(r, *size, o, err);
}

/* ---- Asking ---- */

struct asking {
    struct fbr_runtime *rt;
    const struct fbr_backend_ops *ops;
    struct fbr_capacity *room;
    int sizes;
    struct fbr_error err;
};

static int ask(void *arg)
{
    struct asking *a = arg;
    const struct fbr_backend_env env = {a->rt->loop, a->rt->config, fbr_job_event, fbr_environ()};

    return a->ops->room(&env, a->sizes, a->room, &a->err);
}

int fbr_ring_capacity_ask(struct fbr_ring_capacity *r, int *size, struct fiber_ring_options *o,
                          struct fbr_error *err)
{
    struct asking a = {.rt = fbr_rt(), .room = &r->room};

    if (!a.rt)
        return fbr_fail(err, fbr_kept(), "%s", fiber_last_error());
    a.ops = fbr_backend_find(fbr_rt_backend_name(a.rt, o->backend), NULL);
    if (!a.ops) /* the start of a job reports why */
        return 0;
    if (a.ops->one_host && o->nodes > 1)
        return fbr_fail(err, -EINVAL,
                        "--nodes %d: all jobs of backend %s run on one host; use --per-node to "
                        "start several jobs there",
                        o->nodes, a.ops->name);
    if (o->slots || !a.ops->room)
        return 0;
    a.sizes = o->nodes > 1 || (*size > 1 && !o->nodes && !o->per_node);
    fbr_rt_see_environ(a.rt, o->backend);
    if (fbr_loop_call(a.rt->loop, ask, &a) < 0) {
        fbr_info("%s: cannot find out where jobs can run: %s", a.ops->name, a.err.text);
        return 0;
    }
    return fbr_ring_capacity_use(r, size, o, err);
}

void fbr_ring_capacity_fini(struct fbr_ring_capacity *r)
{
    fbr_list_free(r->room.names);
    free(r->room.slots);
    free(r->slots);
    *r = (struct fbr_ring_capacity){0};
}
