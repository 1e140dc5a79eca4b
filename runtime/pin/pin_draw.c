/* pin_draw.c - draws the machine with the processes on it, as text.
 *
 *     2 packages, 2 NUMA nodes, 16 cores, 32 hardware threads, 1 GPU
 *     package 0
 *       NUMA 0, 64 GiB, cores 0-7
 *         [0: rank 0] [1: rank 1] [2-7: free]
 *         GPU 0 0000:17:00.0: rank 0
 *
 * A cell is a run of cores that the same processes have. If the threads of a core have different
 * processes, each thread has a cell; "3.1" is the second thread of core 3.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"
#include "runtime/pin/cpulist.h"
#include "runtime/pin/topology.h"

#define COLUMNS 96
#define MORE ",..."
#define NAMED 4 /* largest number of processes that a cell names all */

struct drawing {
    const struct fbr_topology *t;
    const struct fbr_pin *pins;
    unsigned count;
    void (*label)(void *user, unsigned i, char *out, size_t size);
    void *user;
    /* which processes are where: `words` for each position, a bit for each process */
    uint64_t *bits;
    size_t words;
    struct fbr_buf out;
};

/* Returns how many bytes are on the last line. */
static size_t column(const struct drawing *d)
{
    const uint8_t *line = d->out.len ? memrchr(d->out.data, '\n', d->out.len) : NULL;

    return line ? d->out.len - (size_t)(line + 1 - d->out.data) : d->out.len;
}

/* ---- Which processes are where ---- */

static uint64_t *at_position(const struct drawing *d, unsigned at)
{
    return d->bits + d->words * at;
}

static bool same(const struct drawing *d, unsigned a, unsigned b)
{
    return !memcmp(at_position(d, a), at_position(d, b), d->words * sizeof(uint64_t));
}

/* Sets the bits of all processes. position[]: the position of each processor number of the kernel;
 * npus: there is none. */
static bool place_processes(struct drawing *d)
{
    unsigned max = 0, *position, first, last;

    for (unsigned i = 0; i < d->t->npus; i++)
        max = d->t->pus[i].os > max ? d->t->pus[i].os : max;
    position = malloc((max + 1) * sizeof(*position));
    if (!position)
        return false;
    for (unsigned i = 0; i <= max; i++)
        position[i] = d->t->npus;
    for (unsigned i = 0; i < d->t->npus; i++)
        position[d->t->pus[i].os] = i;
    for (unsigned i = 0; i < d->count; i++)
        for (const char *at = d->pins[i].cpus; fbr_cpulist_next(&at, &first, &last) > 0;)
            for (unsigned os = first; os <= last && os <= max; os++)
                if (position[os] < d->t->npus)
                    at_position(d, position[os])[i / 64] |= UINT64_C(1) << i % 64;
    free(position);
    return true;
}

/* Writes the names of the processes of a set: all of them, or the first few and how many more. */
static void name_processes(const struct drawing *d, const uint64_t *set, const char *none,
                           char *out, size_t size)
{
    char name[48];
    size_t len = 0;
    unsigned n = 0, named = 0;

    for (size_t w = 0; w < d->words; w++)
        n += (unsigned)__builtin_popcountll(set[w]);
    snprintf(out, size, "%s", none);
    for (unsigned i = 0; i < d->count && len < size; i++) {
        if (!(set[i / 64] >> i % 64 & 1))
            continue;
        if (n > NAMED && named == NAMED - 1) {
            snprintf(out + len, size - len, " and %u more", n - named);
            return;
        }
        d->label(d->user, i, name, sizeof(name));
        len += (size_t)snprintf(out + len, size - len, "%s%s", named++ ? ", " : "", name);
    }
}

/* Ends a list of cores, for whose end the caller has left room. */
static void end_list(struct fbr_cpulist *l)
{
    if (fbr_cpulist_end(l) < 0)
        memcpy(l->out + l->len, MORE, sizeof(MORE));
}

/* ---- Cells ---- */

static void put_cell(struct drawing *d, const char *indent, const char *what, unsigned at)
{
    char who[4 * 50 + 32], cell[4 * 50 + 96];
    size_t used = column(d);

    name_processes(d, at_position(d, at), "free", who, sizeof(who));
    snprintf(cell, sizeof(cell), "[%s: %s]", what, who);
    if (used > strlen(indent) && used + strlen(cell) + 1 > COLUMNS)
        fbr_putf(&d->out, "\n%s", indent);
    else if (used > strlen(indent))
        fbr_putf(&d->out, " ");
    fbr_putf(&d->out, "%s", cell);
}

static bool one_owner(const struct drawing *d, struct fbr_span core, unsigned like)
{
    for (unsigned at = core.first; at < core.end; at++)
        if (!same(d, at, like))
            return false;
    return true;
}

/* Draws the cells of a span. The numbers of cores are in order, but on a restricted machine they
 * have gaps. */
static void put_cells(struct drawing *d, struct fbr_span span, const char *indent)
{
    const struct fbr_topology *t = d->t;
    const struct fbr_place *cores = t->places[FBR_LEVEL_CORE];
    int i = fbr_topology_place(t, FBR_LEVEL_CORE, span.first),
        end = (int)t->nplaces[FBR_LEVEL_CORE];
    char what[64];

    while (i >= 0 && i < end && cores[i].span.end <= span.end) {
        struct fbr_span core = cores[i].span;
        struct fbr_cpulist list = {.out = what, .size = sizeof(what) - strlen(MORE)};

        if (!one_owner(d, core, core.first)) {
            for (unsigned at = core.first; at < core.end; at++) {
                snprintf(what, sizeof(what), "%u.%u", cores[i].number, at - core.first);
                put_cell(d, indent, what, at);
            }
            i++;
            continue;
        }
        for (; i < end && cores[i].span.end <= span.end && one_owner(d, cores[i].span, core.first);
             i++)
            fbr_cpulist_add(&list, cores[i].number);
        end_list(&list);
        put_cell(d, indent, what, core.first);
    }
    fbr_putf(&d->out, "\n");
}

/* ---- Devices ---- */

static bool inside(struct fbr_span in, struct fbr_span of)
{
    return of.first <= in.first && in.end <= of.end;
}

/* Whether a device is drawn in this place: in the smallest of the NUMA nodes, packages and the
 * machine that contains it. */
static bool belongs(const struct drawing *d, const struct fbr_device *dev, enum fbr_level level,
                    struct fbr_span span)
{
    if (!dev->nnear || !inside(dev->near[0], span))
        return false;
    for (enum fbr_level smaller = FBR_LEVEL_NUMA; smaller < level; smaller++)
        for (unsigned i = 0; i < d->t->nplaces[smaller]; i++)
            if (inside(dev->near[0], d->t->places[smaller][i].span))
                return false;
    return true;
}

static void put_users(struct drawing *d, const char *indent, const char *what, uint64_t *set)
{
    char who[4 * 50 + 32];

    name_processes(d, set, "free", who, sizeof(who));
    fbr_putf(&d->out, "%s%s: %s\n", indent, what, who);
    memset(set, 0, d->words * sizeof(*set));
}

/* Draws the devices of a place. `set` must be empty, and is empty again afterwards. */
static void put_devices(struct drawing *d, enum fbr_level level, struct fbr_span span,
                        const char *indent, uint64_t *set)
{
    static const char *const vendors[] = {"NVIDIA ", "AMD ", "Intel "};
    const struct fbr_topology *t = d->t;
    bool mixed = t->ngpus && t->gpus[0].gpu.vendor != t->gpus[t->ngpus - 1].gpu.vendor;
    char what[96];

    for (unsigned g = 0; g < t->ngpus; g++) {
        const struct fbr_pin_gpu *gpu = &t->gpus[g].gpu;

        if (!belongs(d, &t->gpus[g], level, span))
            continue;
        for (unsigned i = 0; i < d->count; i++)
            for (unsigned n = 0; n < d->pins[i].ngpus; n++)
                if (!strcmp(d->pins[i].gpus[n].bus_id, gpu->bus_id))
                    set[i / 64] |= UINT64_C(1) << i % 64;
        snprintf(what, sizeof(what), "%sGPU %u %s", mixed ? vendors[gpu->vendor] : "", gpu->index,
                 gpu->bus_id);
        put_users(d, indent, what, set);
    }
    for (unsigned n = 0; n < t->nnics; n++) {
        if (!belongs(d, &t->nics[n], level, span))
            continue;
        for (unsigned i = 0; i < d->count; i++)
            if (!strncmp(d->pins[i].nic, t->nics[n].name, sizeof(d->pins[i].nic) - 1))
                set[i / 64] |= UINT64_C(1) << i % 64;
        snprintf(what, sizeof(what), "NIC %s", t->nics[n].name);
        put_users(d, indent, what, set);
    }
}

/* ---- The machine ---- */

static void put_count(struct drawing *d, unsigned n, const char *what, bool must)
{
    if (n || must)
        fbr_putf(&d->out, "%s%u %s%s", column(d) ? ", " : "", n, what, n == 1 ? "" : "s");
}

static void put_head(struct drawing *d)
{
    const struct fbr_topology_facts *f = &d->t->facts;

    put_count(d, f->packages, "package", false);
    put_count(d, f->numa_nodes, "NUMA node", true);
    put_count(d, f->cores, "core", true);
    put_count(d, f->hwthreads, "hardware thread", true);
    put_count(d, f->gpus, "GPU", d->t->devices);
    fbr_putf(&d->out, f->restricted ? " that this process may use; the machine has more\n" : "\n");
}

/* Draws a span part by part, if it has several parts of that level that cover all its processors,
 * and each part by the next smaller level. Otherwise draws it as a whole. */
static void put_parts(struct drawing *d, enum fbr_level level, struct fbr_span span,
                      const char *indent)
{
    const struct fbr_topology *t = d->t;
    unsigned covered = 0, parts = 0;
    char deeper[32];

    for (unsigned i = 0; i < t->nplaces[level]; i++) {
        const struct fbr_span *part = &t->places[level][i].span;

        covered += inside(*part, span) ? part->end - part->first : 0;
        parts += inside(*part, span);
    }
    if (parts < 2 || covered < span.end - span.first) {
        if (level == FBR_LEVEL_PACKAGE) {
            put_parts(d, FBR_LEVEL_L3, span, indent);
            return;
        }
        fbr_putf(&d->out, "%s", indent);
        put_cells(d, span, indent);
        return;
    }
    snprintf(deeper, sizeof(deeper), "%.16s  ", indent);
    for (unsigned i = 0; i < t->nplaces[level]; i++) {
        const struct fbr_place *part = &t->places[level][i];

        if (!inside(part->span, span))
            continue;
        fbr_putf(&d->out, "%s%s %u\n", indent, level == FBR_LEVEL_L3 ? "L3" : "package",
                 part->number);
        if (level == FBR_LEVEL_PACKAGE) {
            put_parts(d, FBR_LEVEL_L3, part->span, deeper);
            continue;
        }
        fbr_putf(&d->out, "%s", deeper);
        put_cells(d, part->span, deeper);
    }
}

static void put_numa(struct drawing *d, const struct fbr_place *numa, const char *indent,
                     uint64_t *set)
{
    const struct fbr_topology *t = d->t;
    char deeper[16], list[64];
    struct fbr_cpulist cores = {.out = list, .size = sizeof(list) - strlen(MORE)};
    uint64_t bytes = 0;

    snprintf(deeper, sizeof(deeper), "%s  ", indent);
    for (unsigned i = 0; i < t->nmemories; i++)
        if (t->memories[i].span.first == numa->span.first)
            bytes += t->memories[i].bytes;
    for (unsigned i = 0; i < t->nplaces[FBR_LEVEL_CORE]; i++)
        if (inside(t->places[FBR_LEVEL_CORE][i].span, numa->span))
            fbr_cpulist_add(&cores, t->places[FBR_LEVEL_CORE][i].number);
    end_list(&cores);
    fbr_putf(&d->out, "%sNUMA %u", indent, numa->number);
    if (bytes >= UINT64_C(1) << 30)
        fbr_putf(&d->out, ", %llu GiB", (unsigned long long)((bytes + (UINT64_C(1) << 29)) >> 30));
    fbr_putf(&d->out, ", cores %s\n", list);
    put_parts(d, FBR_LEVEL_PACKAGE, numa->span, deeper);
    put_devices(d, FBR_LEVEL_NUMA, numa->span, deeper, set);
}

static void put_machine(struct drawing *d, uint64_t *set)
{
    const struct fbr_topology *t = d->t;
    const struct fbr_place *numas = t->places[FBR_LEVEL_NUMA];
    char who[4 * 50 + 32];
    int package, last = -1;
    bool unbound = false;

    put_head(d);
    for (unsigned i = 0; i < t->nplaces[FBR_LEVEL_NUMA]; i++) {
        package = fbr_topology_place(t, FBR_LEVEL_PACKAGE, numas[i].span.first);
        if (package >= 0 && !inside(numas[i].span, t->places[FBR_LEVEL_PACKAGE][package].span))
            package = -1; /* one NUMA node with several packages */
        if (package >= 0 && package != last)
            fbr_putf(&d->out, "package %u\n", t->places[FBR_LEVEL_PACKAGE][package].number);
        put_numa(d, &numas[i], package >= 0 ? "  " : "", set);
        if (package >= 0 &&
            (i + 1 == t->nplaces[FBR_LEVEL_NUMA] ||
             !inside(numas[i + 1].span, t->places[FBR_LEVEL_PACKAGE][package].span)))
            put_devices(d, FBR_LEVEL_PACKAGE, t->places[FBR_LEVEL_PACKAGE][package].span, "  ",
                        set);
        last = package;
    }
    /* Devices without a known place. */
    put_devices(d, FBR_LEVEL_MACHINE, (struct fbr_span){0, t->npus}, "", set);
    for (unsigned i = 0; i < d->count; i++)
        if (!d->pins[i].cpus[0]) {
            set[i / 64] |= UINT64_C(1) << i % 64;
            unbound = true;
        }
    name_processes(d, set, "", who, sizeof(who));
    if (unbound)
        fbr_putf(&d->out, "not bound: %s\n", who);
}

char *fbr_pin_draw(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                   void (*label)(void *user, unsigned i, char *out, size_t size), void *user)
{
    struct drawing d = {.t = t,
                        .pins = pins,
                        .count = count,
                        .label = label,
                        .user = user,
                        .words = count / 64 + 1};
    uint64_t *set = calloc(d.words, sizeof(*set));
    char *text = NULL;

    d.bits = calloc(d.words * t->npus, sizeof(*d.bits));
    if (set && d.bits && place_processes(&d)) {
        put_machine(&d, set);
        text = fbr_buf_text(&d.out);
    }
    free(set);
    free(d.bits);
    return text;
}
