/* pin_plan.c - plans a place for each process, from a topology and wishes.
 *
 * First the machine is cut into slots, each wide enough for one process. The scale is the smallest
 * that has enough slots: within a core, an L3, a NUMA node, a package, or, if necessary, across all
 * borders. Then the map deals the slots out, and the binding widens each slot to the wished size. A
 * slot is a span of neighbouring processors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/cpulist.h"
#include "runtime/pin/topology.h"

struct slot {
    struct fbr_span span;
    unsigned key[2]; /* sort keys; cut() sets the first: strong cores come first */
};

struct plan {
    const struct fbr_topology *t;
    const struct fbr_pin_wish *wish;
    struct fbr_pin *pins;
    struct fbr_error *err;
    char *note;
    size_t note_size;
    enum fbr_pin_bind bind; /* not FBR_BIND_DEFAULT */
    enum fbr_pin_map map;
    enum fbr_level unit; /* unit of slots: cores or processors */
    /* The levels that the machine shows, from small to large, cores first. */
    enum fbr_level sizes[FBR_LEVELS];
    unsigned nsizes;
    struct slot *slots;
    unsigned nslots;
    struct fbr_span *spans; /* for each process: its slot, later the span that it is bound to */
    struct fbr_gpu_slot *gpus;
    unsigned ngpus;
};

static int out_of_memory(const struct plan *p)
{
    return fbr_fail(p->err, -ENOMEM, "out of memory for a plan of %u ranks", p->wish->count);
}

__attribute__((format(printf, 2, 3))) static void note(struct plan *p, const char *fmt, ...)
{
    size_t len = strlen(p->note);
    va_list ap;

    snprintf(p->note + len, p->note_size - len, "%s", len ? "; " : "");
    len = strlen(p->note);
    va_start(ap, fmt);
    vsnprintf(p->note + len, p->note_size - len, fmt, ap);
    va_end(ap);
}

/* ---- Slots ---- */

/* Cuts a span into slots. `cross`: a slot may have processors of several kinds. Returns the number
 * of slots; `slots` may be NULL. */
static unsigned cut(const struct plan *p, struct fbr_span within, bool cross, struct slot *slots)
{
    const struct fbr_topology *t = p->t;
    unsigned need = p->wish->cpus_per_rank ? p->wish->cpus_per_rank : 1, n = 0;
    struct fbr_span s = {within.first, within.first};

    for (int i = fbr_topology_place(t, p->unit, within.first);
         i >= 0 && i < (int)t->nplaces[p->unit] && t->places[p->unit][i].span.end <= within.end;
         i++) {
        struct fbr_span unit = t->places[p->unit][i].span;

        if (s.end != unit.first ||
            (s.end > s.first && !cross && t->pus[unit.first].kind != t->pus[s.first].kind))
            s.first = unit.first;
        s.end = unit.end;
        if (s.end - s.first < need)
            continue;
        if (slots)
            slots[n] = (struct slot){.span = s, .key = {~t->pus[s.first].kind}};
        n++;
        s.first = s.end;
    }
    return n;
}

static unsigned cut_level(const struct plan *p, enum fbr_level level, bool cross,
                          struct slot *slots)
{
    unsigned n = 0;

    for (unsigned i = 0; i < p->t->nplaces[level]; i++)
        n += cut(p, p->t->places[level][i].span, cross, slots ? slots + n : NULL);
    return n;
}

/* Orders the levels. A NUMA node may be a part of an L3, or may contain several packages: a level
 * with fewer objects is larger. */
static void order_levels(struct plan *p)
{
    const unsigned *n = p->t->nplaces;

    for (int level = FBR_LEVEL_CORE; level < FBR_LEVELS; level++) {
        unsigned at = p->nsizes;

        if (!n[level])
            continue;
        for (; at && n[p->sizes[at - 1]] < n[level]; at--)
            p->sizes[at] = p->sizes[at - 1];
        p->sizes[at] = (enum fbr_level)level;
        p->nsizes++;
    }
}

/* Returns the index of a level in p->sizes. If the machine does not show the level, returns the
 * next larger one: for an L3 the one above the cores, for a package the largest. */
static unsigned size_of(const struct plan *p, enum fbr_level level)
{
    for (unsigned at = 0; at < p->nsizes; at++)
        if (p->sizes[at] == level)
            return at;
    return level == FBR_LEVEL_L3 ? 1 : p->nsizes - 1;
}

/* Cuts the machine into slots on the smallest scale that has enough slots, or else on the scale
 * that has most. */
static int make_slots(struct plan *p)
{
    enum fbr_level best = FBR_LEVEL_MACHINE;
    bool cross = true;
    unsigned n = 0;

    for (unsigned step = 0; step <= p->nsizes; step++) {
        enum fbr_level level = step < p->nsizes ? p->sizes[step] : FBR_LEVEL_MACHINE;
        unsigned found = cut_level(p, level, step == p->nsizes, NULL);

        if (found > n) {
            n = found;
            best = level;
            cross = step == p->nsizes;
        }
        if (n >= p->wish->count)
            break;
    }
    free(p->slots);
    p->slots = calloc(n + 1, sizeof(*p->slots));
    if (!p->slots)
        return out_of_memory(p);
    p->nslots = cut_level(p, best, cross, p->slots);
    return 0;
}

static const char *s_if(unsigned n)
{
    return n == 1 ? "" : "s";
}

/* Chooses the binding and the unit of slots. Sets `shared` if there are fewer slots than
 * processes. */
static int choose_units(struct plan *p, bool *shared)
{
    const struct fbr_pin_wish *w = p->wish;
    bool by_core = w->bind != FBR_BIND_HWTHREAD;
    int rc;

    p->bind = w->bind;
    /* a process that feeds a GPU has threads, and the wish does not say how many */
    if (w->bind == FBR_BIND_DEFAULT)
        p->bind = w->gpus_per_rank && !w->cpus_per_rank ? FBR_BIND_NUMA : FBR_BIND_CORE;
    p->unit = by_core ? FBR_LEVEL_CORE : FBR_LEVEL_PU;
    rc = make_slots(p);
    if (!rc && by_core && w->bind != FBR_BIND_CORE && p->nslots < w->count &&
        p->t->npus > p->t->facts.cores) {
        p->unit = FBR_LEVEL_PU;
        rc = make_slots(p);
        if (p->nslots >= w->count && w->bind == FBR_BIND_DEFAULT && p->bind == FBR_BIND_CORE) {
            p->bind = FBR_BIND_HWTHREAD;
            note(p, "%u ranks share %u cores: each has hardware threads of its own", w->count,
                 p->t->facts.cores);
        }
    }
    *shared = p->nslots < w->count;
    return rc;
}

static int by_position(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    return x->span.first < y->span.first ? -1 : x->span.first > y->span.first;
}

static int by_key(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    if (x->key[0] != y->key[0])
        return x->key[0] < y->key[0] ? -1 : 1;
    if (x->key[1] != y->key[1])
        return x->key[1] < y->key[1] ? -1 : 1;
    return by_position(a, b);
}

static void sort(struct plan *p)
{
    qsort(p->slots, p->nslots, sizeof(*p->slots), by_key);
}

/* Sorts slots with strong cores first, and drops those with weak cores if there are enough without
 * them. */
static void prefer_strong(struct plan *p)
{
    unsigned n = 0;

    sort(p);
    while (n < p->nslots && (n < p->wish->count || p->slots[n].key[0] == p->slots[n - 1].key[0]))
        n++;
    p->nslots = n;
}

/* ---- Maps ---- */

static unsigned place_of(const struct fbr_topology *t, enum fbr_level level, const struct slot *s)
{
    int at = fbr_topology_place(t, level, s->span.first);

    return at < 0 ? t->nplaces[level] : (unsigned)at;
}

/* Orders the slots: the first slot of each place, then the second of each, and so on. Within a
 * place the slots keep their order. */
static int round_robin(struct plan *p, enum fbr_level level)
{
    unsigned *given = calloc(p->t->nplaces[level] + 1, sizeof(*given));

    if (!given)
        return out_of_memory(p);
    for (unsigned i = 0; i < p->nslots; i++) {
        unsigned at = place_of(p->t, level, &p->slots[i]);

        p->slots[i].key[0] = given[at]++;
        p->slots[i].key[1] = at;
    }
    free(given);
    sort(p);
    return 0;
}

/* Computes how many of `count` each of n places gets, if it has room: one each in turn. If more
 * places than `count` have room, evenly spaced places get one each. */
static void share_out(const unsigned *room, unsigned n, unsigned count, unsigned *share)
{
    unsigned places = 0, seen = 0, given = 0;

    for (unsigned i = 0; i < n; i++)
        places += room[i] > 0;
    if (places > count) {
        for (unsigned i = 0; i < n && given < count; i++)
            if (room[i] && seen++ == (unsigned)((uint64_t)given * places / count)) {
                share[i] = 1;
                given++;
            }
        return;
    }
    while (given < count)
        for (unsigned i = 0; i < n && given < count; i++)
            if (share[i] < room[i]) {
                share[i]++;
                given++;
            }
}

/* Takes `count` of n slots, which are in order of position, as far apart as possible, into `out`.
 * The places of a size get equal shares, in turn, and so do the next smaller places within each of
 * them. `sizes` is the number of sizes that are left. */
static int spread(const struct plan *p, unsigned sizes, const struct slot *in, unsigned n,
                  unsigned count, struct slot *out)
{
    enum fbr_level level = sizes ? p->sizes[sizes - 1] : FBR_LEVEL_PU;
    unsigned places = p->t->nplaces[level] + 1, *room, *share, taken = 0;
    struct slot *parts;
    int rc = 0;

    if (!sizes) {
        for (unsigned i = 0; i < count; i++)
            out[i] = in[(size_t)i * n / count];
        return 0;
    }
    room = calloc((size_t)places * 2, sizeof(*room));
    parts = calloc(count + 1, sizeof(*parts));
    share = room + places;
    if (!room || !parts) {
        free(room);
        free(parts);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < n; i++)
        room[place_of(p->t, level, &in[i])]++;
    share_out(room, places, count, share);
    for (unsigned b = 0, at = 0, put = 0; b < places && !rc; b++) {
        unsigned has = room[b];

        if (share[b])
            rc = spread(p, sizes - 1, in + at, has, share[b], parts + put);
        at += has;
        room[b] = put; /* from now on: where the part of this place begins */
        put += share[b];
    }
    for (unsigned turn = 0; !rc && taken < count; turn++)
        for (unsigned b = 0; b < places; b++)
            if (turn < share[b])
                out[taken++] = parts[room[b] + turn];
    free(room);
    free(parts);
    return rc;
}

static int map_spread(struct plan *p)
{
    unsigned count = p->wish->count < p->nslots ? p->wish->count : p->nslots;
    struct slot *out = calloc(count + 1, sizeof(*out));

    if (!out)
        return out_of_memory(p);
    qsort(p->slots, p->nslots, sizeof(*p->slots), by_position);
    if (spread(p, p->nsizes, p->slots, p->nslots, count, out)) {
        free(out);
        return out_of_memory(p);
    }
    free(p->slots);
    p->slots = out;
    p->nslots = count;
    return 0;
}

/* Returns the least used slot within `around`, of those that fewer than `most` processes have.
 * p->nslots: none. */
static unsigned free_slot(const struct plan *p, struct fbr_span around, unsigned most,
                          const unsigned *used)
{
    unsigned best = p->nslots;

    for (unsigned s = 0; s < p->nslots; s++)
        if (used[s] < most && around.first <= p->slots[s].span.first &&
            p->slots[s].span.end <= around.end && (best == p->nslots || used[s] < used[best]))
            best = s;
    return best;
}

/* Finds a slot around the GPU of each process, from the smallest surroundings up, as GPUs are
 * assigned (pin_gpu.c). A process whose GPU has no known place waits for the last step, in which
 * every slot is near. */
static int map_gpu(struct plan *p)
{
    const struct fbr_pin_wish *w = p->wish;
    unsigned most = (w->count + p->nslots - 1) / p->nslots,
             *used = calloc(p->nslots, sizeof(*used)), slot;
    bool *done = calloc(w->count, sizeof(*done));
    int rc = used && done ? fbr_gpu_deal(p->t, w, p->gpus, p->ngpus, p->pins) : -ENOMEM;

    for (unsigned step = 0; !rc && step <= FBR_NEAR; step++)
        for (unsigned i = 0; i < w->count; i++) {
            const struct fbr_device *d = fbr_gpu_device(p->t, &p->pins[i].gpus[0]);
            bool near = d && step < d->nnear;

            if (done[i] || (!near && step < FBR_NEAR))
                continue;
            slot =
                free_slot(p, near ? d->near[step] : (struct fbr_span){0, p->t->npus}, most, used);
            if (slot == p->nslots)
                continue;
            p->spans[i] = p->slots[slot].span;
            used[slot]++;
            done[i] = true;
        }
    free(used);
    free(done);
    return rc ? out_of_memory(p) : 0;
}

/* Sets p->spans[] to the slots of the processes. */
static int map(struct plan *p)
{
    static const enum fbr_level levels[] = {
        [FBR_MAP_CORE] = FBR_LEVEL_CORE,
        [FBR_MAP_L3] = FBR_LEVEL_L3,
        [FBR_MAP_NUMA] = FBR_LEVEL_NUMA,
        [FBR_MAP_PACKAGE] = FBR_LEVEL_PACKAGE,
    };
    enum fbr_level level;
    int rc = 0;

    if (p->map != FBR_MAP_GPU)
        prefer_strong(p);
    switch (p->map) {
    case FBR_MAP_GPU:
        return map_gpu(p);
    case FBR_MAP_SPREAD:
        rc = map_spread(p);
        break;
    case FBR_MAP_CORE:
    case FBR_MAP_L3:
    case FBR_MAP_NUMA:
    case FBR_MAP_PACKAGE:
        level = p->sizes[size_of(p, levels[p->map])];
        if (level != levels[p->map])
            note(p, "the machine shows no %s: mapped by the next larger level",
                 p->map == FBR_MAP_L3 ? "L3" : "package");
        rc = round_robin(p, level);
        break;
    default: /* compact: in order */
        break;
    }
    for (unsigned i = 0; !rc && i < p->wish->count; i++)
        p->spans[i] = p->slots[i % p->nslots].span;
    return rc;
}

/* ---- Bindings ---- */

/* Widens a span to the whole objects of that level that it is in. A processor may be in no L3
 * although others are. */
static struct fbr_span widen(const struct plan *p, struct fbr_span s, enum fbr_level level)
{
    for (unsigned at = size_of(p, level); at < p->nsizes; at++) {
        int first = fbr_topology_place(p->t, p->sizes[at], s.first);
        int last = fbr_topology_place(p->t, p->sizes[at], s.end - 1);

        if (first >= 0 && last >= 0)
            return (struct fbr_span){p->t->places[p->sizes[at]][first].span.first,
                                     p->t->places[p->sizes[at]][last].span.end};
    }
    return (struct fbr_span){0, p->t->npus};
}

static void bind(struct plan *p)
{
    static const enum fbr_level levels[] = {
        [FBR_BIND_L3] = FBR_LEVEL_L3,
        [FBR_BIND_NUMA] = FBR_LEVEL_NUMA,
        [FBR_BIND_PACKAGE] = FBR_LEVEL_PACKAGE,
    };
    enum fbr_level level;

    if (p->bind == FBR_BIND_NONE || p->bind == FBR_BIND_CORE || p->bind == FBR_BIND_HWTHREAD)
        return;
    level = p->sizes[size_of(p, levels[p->bind])];
    if (level != levels[p->bind])
        note(p, "the machine shows no %s: bound to the next larger level",
             p->bind == FBR_BIND_L3 ? "L3" : "package");
    for (unsigned i = 0; i < p->wish->count; i++)
        p->spans[i] = widen(p, p->spans[i], level);
}

/* ---- Description of a place ---- */

/* Writes "NUMA 0" or "NUMA 0-3" for the places that a span is in, or nothing if there are none. */
static size_t describe(const struct fbr_topology *t, enum fbr_level level, struct fbr_span span,
                       const char *one, const char *several, char *out, size_t size)
{
    int first = fbr_topology_place(t, level, span.first),
        last = fbr_topology_place(t, level, span.end - 1);
    char list[64];
    struct fbr_cpulist numbers = {.out = list, .size = sizeof(list)};
    int n;

    if (first < 0 || last < 0)
        return 0;
    for (int i = first; i <= last; i++)
        fbr_cpulist_add(&numbers, t->places[level][i].number);
    n = snprintf(out, size, "%s %s%s", first == last ? one : several, list,
                 fbr_cpulist_end(&numbers) ? ",..." : "");
    return n < 0 || (size_t)n >= size ? size - 1 : (size_t)n;
}

static void write_where(const struct plan *p, struct fbr_span span, char *out, size_t size)
{
    const struct fbr_topology *t = p->t;
    int core = fbr_topology_place(t, FBR_LEVEL_CORE, span.first);
    struct fbr_span whole = widen(p, span, FBR_LEVEL_CORE);
    char *at = out, *end = out + size;

    at += describe(t, FBR_LEVEL_PACKAGE, span, "package", "packages", at, (size_t)(end - at));
    if (t->nplaces[FBR_LEVEL_NUMA] > 1 && at + 3 < end) {
        at += snprintf(at, 3, "%s", at > out ? ", " : "");
        at += describe(t, FBR_LEVEL_NUMA, span, "NUMA", "NUMA", at, (size_t)(end - at));
    }
    if (at + 3 < end) {
        at += snprintf(at, 3, "%s", at > out ? ", " : "");
        at += describe(t, FBR_LEVEL_CORE, span, "core", "cores", at, (size_t)(end - at));
    }
    if (core >= 0 && (whole.first != span.first || whole.end != span.end)) {
        unsigned first = t->places[FBR_LEVEL_CORE][core].span.first;

        if (span.end - span.first == 1)
            snprintf(at, (size_t)(end - at), ", thread %u", span.first - first);
        else if (whole.end == t->places[FBR_LEVEL_CORE][core].span.end)
            snprintf(at, (size_t)(end - at), ", threads %u-%u", span.first - first,
                     span.end - 1 - first);
        else
            snprintf(at, (size_t)(end - at), ", %u of their threads", span.end - span.first);
    }
}

static int describe_all(struct plan *p, bool shared)
{
    int rc = 0;

    for (unsigned i = 0; i < p->wish->count && !rc; i++) {
        struct fbr_pin *pin = &p->pins[i];
        struct fbr_span span = p->spans[i];

        pin->shared = shared;
        if (p->bind == FBR_BIND_NONE) {
            snprintf(pin->where, sizeof(pin->where), "not bound");
            continue;
        }
        rc = fbr_topology_cpus(p->t, span, pin->cpus, sizeof(pin->cpus));
        if (!rc && p->wish->bind_memory)
            rc = fbr_topology_nodes(p->t, span, pin->nodes, sizeof(pin->nodes));
        if (rc == -ENOMEM)
            return out_of_memory(p);
        if (rc)
            fbr_fail(p->err, rc,
                     "rank %u would be bound to processors or NUMA nodes in too many pieces; bind "
                     "to something smaller",
                     i);
        if (p->wish->bind_memory && !pin->nodes[0] && !rc && !strstr(p->note, "memory"))
            note(p, "this process may not use the memory near some ranks, so it is not bound");
        write_where(p, span, pin->where, sizeof(pin->where));
    }
    return rc;
}

/* ---- The whole ---- */

static int check(struct plan *p)
{
    const struct fbr_pin_wish *w = p->wish;
    int rc;

    if (!w->count)
        return fbr_fail(p->err, -EINVAL, "a plan needs at least one rank");
    if (w->gpus_per_rank > FBR_PIN_GPUS)
        return fbr_fail(p->err, -EINVAL, "a rank can have %d GPUs at most, not %u", FBR_PIN_GPUS,
                        w->gpus_per_rank);
    p->map = w->map;
    if (w->map == FBR_MAP_DEFAULT)
        p->map = w->gpus_per_rank ? FBR_MAP_GPU : FBR_MAP_COMPACT;
    if (p->map == FBR_MAP_GPU && !w->gpus_per_rank)
        return fbr_fail(p->err, -EINVAL,
                        "ranks without GPUs cannot be mapped by GPU; add --gpus-per-rank 1");
    if (!w->gpus_per_rank)
        return 0;
    if (!p->t->devices)
        return fbr_fail(p->err, -EINVAL,
                        "the topology was read without its GPUs, so none can be given to ranks");
    rc = fbr_gpu_slots(p->t, w, &p->gpus, &p->ngpus);
    if (rc)
        return out_of_memory(p);
    if (p->ngpus < w->gpus_per_rank)
        return fbr_fail(
            p->err, -EINVAL,
            "every rank needs %u GPU%s, but %u %s found on this host that this process may use; "
            "use fewer (--gpus-per-rank), or check nvidia-smi, rocm-smi, CUDA_VISIBLE_DEVICES and "
            "ROCR_VISIBLE_DEVICES%s",
            w->gpus_per_rank, s_if(w->gpus_per_rank), p->ngpus, p->ngpus == 1 ? "was" : "were",
            !p->t->ngpus && p->t->facts.this_machine ? " (hwloc needs its PCI plugin to find GPUs)"
                                                     : "");
    if ((uint64_t)w->count * w->gpus_per_rank > p->ngpus)
        note(p, "%u ranks share %u GPU%s", w->count, p->ngpus, s_if(p->ngpus));
    return 0;
}

/* Returns the largest number of ranks on one slot. *more: they want more processors than the slot
 * has. */
static unsigned crowd(const struct plan *p, unsigned need, bool *more)
{
    unsigned most = (p->wish->count + p->nslots - 1) / p->nslots;

    *more = false;
    for (unsigned i = 0; i < p->nslots; i++)
        *more |= (uint64_t)most * need > p->slots[i].span.end - p->slots[i].span.first;
    return most;
}

/* Handles a machine that has fewer slots than processes. */
static int share_processors(struct plan *p, bool *shared)
{
    const struct fbr_pin_wish *w = p->wish;
    unsigned need = w->cpus_per_rank ? w->cpus_per_rank : 1, most = 0;
    char then[64] = "they are not bound", wide[48] = "";
    bool more = false;

    if (w->bind == FBR_BIND_DEFAULT)
        p->bind = FBR_BIND_NONE;
    if (!p->nslots && p->bind != FBR_BIND_NONE)
        return fbr_fail(p->err, -EINVAL,
                        "a rank cannot be bound to %u processors: this process may use only %u",
                        need, p->t->npus);
    if (p->bind != FBR_BIND_NONE) {
        most = crowd(p, need, &more);
        snprintf(then, sizeof(then), "up to %u are on the same %s", most,
                 need > 1                    ? "ones"
                 : p->unit == FBR_LEVEL_CORE ? "core"
                                             : "hardware thread");
    }
    *shared = (uint64_t)w->count * need > p->t->npus ||
              (more && (p->bind == FBR_BIND_CORE || p->bind == FBR_BIND_HWTHREAD));
    if (need > 1)
        snprintf(wide, sizeof(wide), " that want %u processors each", need);
    if (w->count == 1)
        note(p, "a rank that wants %u processors has %u: it is not bound", need, p->t->npus);
    else if (need > 1 || w->count > p->t->npus)
        note(p, "%u ranks%s share %u processor%s: %s", w->count, wide, p->t->npus, s_if(p->t->npus),
             then);
    else
        note(p, "%u ranks share %u core%s: %s", w->count, p->t->facts.cores,
             s_if(p->t->facts.cores), then);
    return 0;
}

static int assign_devices(struct plan *p)
{
    if (p->ngpus && p->map != FBR_MAP_GPU &&
        fbr_gpu_assign(p->t, p->wish, p->gpus, p->ngpus, p->spans, p->pins))
        return out_of_memory(p);
    for (unsigned i = 0; i < p->wish->count; i++) {
        struct fbr_pin *pin = &p->pins[i];
        const struct fbr_device *gpu = pin->ngpus ? fbr_gpu_device(p->t, &pin->gpus[0]) : NULL;

        snprintf(pin->nic, sizeof(pin->nic), "%s", fbr_nic_choose(p->t, gpu, p->spans[i], i));
    }
    return 0;
}

static int make_plan(struct plan *p)
{
    bool shared;
    int rc = check(p);

    order_levels(p);
    if (rc || (rc = choose_units(p, &shared)))
        return rc;
    if (shared && (rc = share_processors(p, &shared)))
        return rc;
    if (!p->nslots) { /* not bound, and the wish is wider than the machine */
        p->nslots = 1;
        p->slots[0].span = (struct fbr_span){0, p->t->npus};
    }
    rc = map(p);
    if (rc)
        return rc;
    /* The kernel chooses the processors, so all devices are equally near. */
    if (p->bind == FBR_BIND_NONE && p->map != FBR_MAP_GPU)
        for (unsigned i = 0; i < p->wish->count; i++)
            p->spans[i] = (struct fbr_span){0, p->t->npus};
    bind(p);
    rc = assign_devices(p);
    return rc ? rc : describe_all(p, shared);
}

static int plan(const struct fbr_topology *t, const struct fbr_pin_wish *wish, struct fbr_pin *pins,
                char *text, size_t size, struct fbr_error *err)
{
    struct plan p = {
        .t = t, .wish = wish, .pins = pins, .err = err, .note = text, .note_size = size};
    int rc;

    text[0] = '\0';
    memset(pins, 0, wish->count * sizeof(*pins));
    p.spans = calloc(wish->count + 1u, sizeof(*p.spans));
    rc = p.spans ? make_plan(&p) : out_of_memory(&p);
    free(p.spans);
    free(p.slots);
    free(p.gpus);
    return rc;
}

static void facts(const struct fbr_topology *t, struct fbr_topology_facts *out)
{
    *out = t->facts;
}

__attribute__((visibility("default"))) extern const struct fbr_pin_ops fbr_module_pin;
const struct fbr_pin_ops fbr_module_pin = {
    .open = fbr_topology_open,
    .close = fbr_topology_close,
    .facts = facts,
    .plan = plan,
    .draw = fbr_pin_draw,
    .xml = fbr_topology_xml,
};
