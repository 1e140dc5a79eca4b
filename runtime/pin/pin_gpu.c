/* pin_gpu.c - assigns GPUs to processes, and finds the nearest NIC.
 *
 * Distances in a tree are nested: of two devices, the nearer to a process is the one with which the
 * process shares the smaller part of the machine. So GPUs are assigned from the smallest parts up:
 * a process takes a free GPU in its own part, and only a process without one looks in the next
 * larger part. No other order gives a near GPU to more processes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/topology.h"

/* ---- GPUs that processes may get ---- */

/* Reads one entry of a list of visible devices. False: the list ends before this entry, as it does
 * for its other readers. */
static bool read_entry(const struct fbr_topology *t, enum fbr_gpu_vendor vendor, const char *entry,
                       const struct fbr_device **device)
{
    const char *id = !strncmp(entry, "MIG-GPU-", 8) ? entry + 4 : entry;
    char *end;
    unsigned long index;
    bool known = false; /* GPUs of this vendor are known; hwloc may have no PCI plugin */

    *device = NULL;
    if (entry[0] >= '0' && entry[0] <= '9') {
        index = strtoul(entry, &end, 10);
        if (*end && (vendor != FBR_GPU_INTEL || *end != '.'))
            return false;
        for (unsigned i = 0; i < t->ngpus; i++) {
            known |= t->gpus[i].gpu.vendor == vendor;
            if (t->gpus[i].gpu.vendor == vendor && t->gpus[i].gpu.index == index)
                *device = &t->gpus[i];
        }
        return *device || !known || vendor == FBR_GPU_INTEL; /* Intel may count tiles */
    }
    if (strncmp(entry, "GPU-", 4) != 0 && strncmp(entry, "MIG-", 4) != 0)
        return false;
    for (unsigned i = 0; i < t->ngpus; i++) {
        size_t n = strcspn(id, "/");
        const struct fbr_device *d = &t->gpus[i];

        /* The beginning of an id is enough. */
        if (d->gpu.vendor == vendor && n > 4 && !strncmp(d->name, id, n))
            *device = d;
    }
    return true;
}

static unsigned read_visible(const struct fbr_topology *t, enum fbr_gpu_vendor vendor,
                             const char *list, struct fbr_gpu_slot *slots, unsigned max)
{
    char entry[128];
    unsigned n = 0;

    for (const char *at = list; *at && n < max; at += *at == ',') {
        size_t len;

        at += strspn(at, " ");
        len = strcspn(at, ", ");
        snprintf(entry, sizeof(entry), "%.*s", (int)(len < sizeof(entry) ? len : sizeof(entry) - 1),
                 at);
        at += strcspn(at, ",");
        if (!read_entry(t, vendor, entry, &slots[n].device))
            break;
        slots[n].gpu = (struct fbr_pin_gpu){.vendor = vendor, .index = n};
        if (slots[n].device)
            memcpy(slots[n].gpu.bus_id, slots[n].device->gpu.bus_id, sizeof(slots[n].gpu.bus_id));
        n++;
    }
    return n;
}

static unsigned read_vendor(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                            enum fbr_gpu_vendor vendor, struct fbr_gpu_slot *slots, unsigned max)
{
    unsigned n = 0;

    if (wish->visible[vendor])
        return read_visible(t, vendor, wish->visible[vendor], slots, max);
    for (unsigned i = 0; i < t->ngpus && n < max; i++)
        if (t->gpus[i].gpu.vendor == vendor)
            slots[n++] = (struct fbr_gpu_slot){.gpu = t->gpus[i].gpu, .device = &t->gpus[i]};
    return n;
}

/* A program uses the GPUs of one vendor: this chooses the vendor with most GPUs, or the first one
 * if several have equally many. */
int fbr_gpu_slots(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                  struct fbr_gpu_slot **out, unsigned *count)
{
    unsigned max = t->ngpus + 1, n;
    struct fbr_gpu_slot *slots, *fewer;
    int rc;

    *count = 0;
    /* an entry has at least two characters, with its comma */
    for (int v = 0; v < FBR_GPU_VENDORS; v++)
        if (wish->visible[v] && strlen(wish->visible[v]) / 2 + 1 > max)
            max = (unsigned)strlen(wish->visible[v]) / 2 + 1;
    *out = calloc(max, sizeof(**out));
    slots = calloc(max, sizeof(*slots));
    for (int v = 0; *out && slots && v < FBR_GPU_VENDORS; v++) {
        n = read_vendor(t, wish, (enum fbr_gpu_vendor)v, slots, max);
        if (n <= *count)
            continue;
        fewer = *out;
        *out = slots;
        slots = fewer;
        *count = n;
    }
    rc = *out && slots ? 0 : -ENOMEM;
    free(slots);
    return rc;
}

const struct fbr_device *fbr_gpu_device(const struct fbr_topology *t, const struct fbr_pin_gpu *gpu)
{
    for (unsigned i = 0; gpu->bus_id[0] && i < t->ngpus; i++)
        if (!strcmp(t->gpus[i].gpu.bus_id, gpu->bus_id))
            return &t->gpus[i];
    return NULL;
}

/* ---- Distances ---- */

/* Returns the distance: the number of processors in the smallest part of the machine that contains
 * both. Small is near. */
static unsigned distance_of(const struct fbr_topology *t, const struct fbr_device *d,
                            struct fbr_span span)
{
    for (unsigned i = 0; d && i < d->nnear; i++)
        if (d->near[i].first <= span.first && span.end <= d->near[i].end)
            return d->near[i].end - d->near[i].first;
    return t->npus;
}

/* ---- Assigning ---- */

struct assigning {
    const struct fbr_topology *t;
    const struct fbr_gpu_slot *slots;
    unsigned nslots, each, *used; /* used[slot]: how many processes have it */
};

static void assign(struct assigning *g, struct fbr_pin *pin, unsigned slot)
{
    pin->gpus[pin->ngpus++] = g->slots[slot].gpu;
    g->used[slot]++;
}

static bool has(const struct fbr_pin *pin, const struct fbr_gpu_slot *slot)
{
    for (unsigned i = 0; i < pin->ngpus; i++)
        if (pin->gpus[i].index == slot->gpu.index)
            return true;
    return false;
}

/* Assigns free GPUs within `reach` of a process until it has its number. */
static void assign_near(struct assigning *g, struct fbr_pin *pin, struct fbr_span span,
                        unsigned reach, unsigned most)
{
    for (unsigned s = 0; s < g->nslots && pin->ngpus < g->each; s++)
        if (g->used[s] < most && !has(pin, &g->slots[s]) &&
            distance_of(g->t, g->slots[s].device, span) <= reach)
            assign(g, pin, s);
}

/* Assigns the least used GPUs; there are always enough that the process does not have yet. */
static void assign_rest(struct assigning *g, struct fbr_pin *pin)
{
    while (pin->ngpus < g->each) {
        unsigned best = g->nslots;

        for (unsigned s = 0; s < g->nslots; s++)
            if (!has(pin, &g->slots[s]) && (best == g->nslots || g->used[s] < g->used[best]))
                best = s;
        assign(g, pin, best);
    }
}

static int start_assigning(struct assigning *g, const struct fbr_topology *t,
                           const struct fbr_pin_wish *wish, const struct fbr_gpu_slot *slots,
                           unsigned nslots)
{
    *g = (struct assigning){.t = t, .slots = slots, .nslots = nslots, .each = wish->gpus_per_rank};
    g->used = calloc(nslots + 1, sizeof(*g->used));
    return g->used ? 0 : -ENOMEM;
}

static int by_size(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    return x < y ? -1 : x > y;
}

int fbr_gpu_assign(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                   const struct fbr_gpu_slot *slots, unsigned nslots, const struct fbr_span *spans,
                   struct fbr_pin *pins)
{
    unsigned most = (wish->count * wish->gpus_per_rank + nslots - 1) / nslots, n = 0, *reach;
    struct assigning g;

    reach = calloc(nslots * (size_t)FBR_NEAR + 1, sizeof(*reach));
    if (!reach || start_assigning(&g, t, wish, slots, nslots)) {
        free(reach);
        return -ENOMEM;
    }
    reach[n++] = t->npus;
    for (unsigned s = 0; s < nslots; s++)
        for (unsigned i = 0; slots[s].device && i < slots[s].device->nnear; i++)
            reach[n++] = slots[s].device->near[i].end - slots[s].device->near[i].first;
    qsort(reach, n, sizeof(*reach), by_size);
    for (unsigned r = 0; r < n; r++)
        for (unsigned i = 0; i < wish->count && (!r || reach[r] != reach[r - 1]); i++)
            assign_near(&g, &pins[i], spans[i], reach[r], most);
    for (unsigned i = 0; i < wish->count; i++)
        assign_rest(&g, &pins[i]);
    free(g.used);
    free(reach);
    return 0;
}

int fbr_gpu_deal(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                 const struct fbr_gpu_slot *slots, unsigned nslots, struct fbr_pin *pins)
{
    struct assigning g;
    struct fbr_span first;

    if (start_assigning(&g, t, wish, slots, nslots))
        return -ENOMEM;
    for (unsigned i = 0; i < wish->count; i++) {
        unsigned least = 0;

        for (unsigned s = 1; s < nslots; s++)
            if (g.used[s] < g.used[least])
                least = s;
        assign(&g, &pins[i], least);
        /* Take the other GPUs from around the first one, if they are used no more than it. */
        if (slots[least].device && slots[least].device->nnear) {
            first = slots[least].device->near[0];
            for (unsigned r = 0; r < slots[least].device->nnear; r++)
                assign_near(&g, &pins[i], first,
                            slots[least].device->near[r].end - slots[least].device->near[r].first,
                            g.used[least]);
        }
        assign_rest(&g, &pins[i]);
    }
    free(g.used);
    return 0;
}

/* ---- NICs ---- */

/* The distance of a NIC from a GPU; small is near. Compares the bridges above both, then the part
 * of the machine that contains both, then the bus numbers, because devices are numbered in the
 * order of their slots. */
struct nearness {
    unsigned bridges, distance, bus;
};

static struct nearness between(const struct fbr_topology *t, const struct fbr_device *gpu,
                               const struct fbr_device *nic)
{
    struct nearness n = {.distance = t->npus, .bus = ~0u};
    unsigned same = 0;

    while (same < gpu->nbridges && same < nic->nbridges && gpu->bridges[same] == nic->bridges[same])
        same++;
    n.bridges = FBR_BRIDGES - same;
    if (nic->nnear)
        n.distance = distance_of(t, gpu, nic->near[0]);
    if (gpu->domain == nic->domain)
        n.bus = gpu->bus > nic->bus ? gpu->bus - nic->bus : nic->bus - gpu->bus;
    return n;
}

static int compare(struct nearness a, struct nearness b)
{
    if (a.bridges != b.bridges)
        return a.bridges < b.bridges ? -1 : 1;
    if (a.distance != b.distance)
        return a.distance < b.distance ? -1 : 1;
    return a.bus < b.bus ? -1 : a.bus > b.bus;
}

/* Without a GPU, processes take turns on the NICs that are equally near. */
static const struct fbr_device *near_processors(const struct fbr_topology *t, struct fbr_span span,
                                                unsigned turn)
{
    unsigned best = ~0u, equal = 0;

    for (unsigned i = 0; i < t->nnics; i++) {
        unsigned d = distance_of(t, &t->nics[i], span);

        equal = d < best ? 1 : equal + (d == best);
        best = d < best ? d : best;
    }
    turn %= equal;
    for (unsigned i = 0; i < t->nnics; i++)
        if (distance_of(t, &t->nics[i], span) == best && !turn--)
            return &t->nics[i];
    return &t->nics[0];
}

const char *fbr_nic_choose(const struct fbr_topology *t, const struct fbr_device *gpu,
                           struct fbr_span span, unsigned i)
{
    const struct fbr_device *best = NULL;

    if (!t->nnics)
        return "";
    if (!gpu)
        return near_processors(t, span, i)->name;
    for (unsigned n = 0; n < t->nnics; n++)
        if (!best || compare(between(t, gpu, &t->nics[n]), between(t, gpu, best)) < 0)
            best = &t->nics[n];
    return best->name;
}
