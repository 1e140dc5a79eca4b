/* topology.c - turns hwloc's tree into the rows and spans that the planner uses.
 *
 * hwloc loads everything, also forbidden processors, and learns afterwards which are allowed. So a
 * device keeps its place if the cores next to it are not ours, and readers of the XML see which
 * processors are allowed.
 *
 * Three components of hwloc are left out: "gl" and "opencl" connect to X displays and load drivers,
 * and "x86" moves this thread over all processors. None of them finds anything that Linux and PCI
 * do not report.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/cpulist.h"

static unsigned count_of(hwloc_topology_t h, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(h, type);

    return n < 0 ? 0 : (unsigned)n;
}

/* ---- Loading ---- */

/* Splits "only:LIST:SOURCE" into `only` and SOURCE. */
static int take_only(const char **source, hwloc_bitmap_t *only, struct fbr_error *err)
{
    char list[FBR_PIN_LIST];
    const char *end, *at = list;
    unsigned first, last;
    int rc;

    if (!*source || strncmp(*source, "only:", 5))
        return 0;
    end = strchr(*source + 5, ':');
    if (!end || (size_t)(end - *source - 5) >= sizeof(list))
        return fbr_fail(
            err, -EINVAL,
            "topology \"%.100s\" is invalid; use only:LIST:SOURCE, as in only:0-3:xml:FILE",
            *source);
    snprintf(list, sizeof(list), "%.*s", (int)(end - *source - 5), *source + 5);
    *only = hwloc_bitmap_alloc();
    if (!*only)
        return fbr_fail(err, -ENOMEM, "out of memory");
    while ((rc = fbr_cpulist_next(&at, &first, &last)) > 0)
        hwloc_bitmap_set_range(*only, first, (int)last);
    if (rc)
        return fbr_fail(err, rc,
                        "topology: \"%.100s\" is not a list of processors; use a list like 0-3,8",
                        list);
    *source = end + 1;
    return 0;
}

static int set_source(hwloc_topology_t h, const char *source, struct fbr_error *err)
{
    if (!source)
        return 0;
    if (!strncmp(source, "xml:", 4)) {
        if (hwloc_topology_set_xml(h, source + 4))
            return fbr_fail(err, -errno, "cannot read the topology %.200s: %s", source + 4,
                            fbr_strerror(errno));
        return 0;
    }
    if (!strncmp(source, "synthetic:", 10)) {
        if (hwloc_topology_set_synthetic(h, source + 10))
            return fbr_fail(
                err, -EINVAL,
                "\"%.200s\" is not a synthetic topology; use one like pack:2 core:4 pu:2",
                source + 10);
        return 0;
    }
    return fbr_fail(err, -EINVAL,
                    "\"%.200s\" is not a source of topologies; use xml:FILE or synthetic:TEXT",
                    source);
}

static int load(hwloc_topology_t *h, const char *source, bool devices, struct fbr_error *err)
{
    static const char *const left_out[] = {"gl", "opencl", "x86"};
    int rc;

    if (hwloc_topology_init(h))
        return fbr_fail(err, -ENOMEM, "cannot start hwloc: %s", fbr_strerror(errno));
    rc = set_source(*h, source, err);
    for (size_t i = 0; !source && i < sizeof(left_out) / sizeof(left_out[0]); i++)
        hwloc_topology_set_components(*h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
    if (!rc) {
        hwloc_topology_set_flags(*h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
        if (devices)
            hwloc_topology_set_io_types_filter(*h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        if (hwloc_topology_load(*h))
            rc = fbr_fail(err, errno ? -errno : -EINVAL,
                          "hwloc cannot load the topology%s%.200s: %s",
                          source ? " " : " of this machine", source ? source : "",
                          fbr_strerror(errno ? errno : EINVAL));
    }
    if (rc)
        hwloc_topology_destroy(*h);
    return rc;
}

/* Restricts the topology to the allowed processors, and reports them to hwloc. */
static int restrict_to(struct fbr_topology *t, hwloc_topology_t h, hwloc_const_bitmap_t only,
                       struct fbr_error *err)
{
    hwloc_bitmap_t set = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(h)),
                   mine = hwloc_bitmap_alloc();
    int rc = set && mine ? 0 : -ENOMEM;

    if (!rc && t->facts.this_machine && hwloc_get_cpubind(h, mine, HWLOC_CPUBIND_THREAD) < 0)
        rc = -errno;
    if (rc) {
        fbr_fail(err, rc, "cannot find out which processors may be used: %s", fbr_strerror(rc));
    } else {
        if (t->facts.this_machine)
            hwloc_bitmap_and(set, set, mine);
        if (only)
            hwloc_bitmap_and(set, set, only);
        t->facts.restricted = !hwloc_bitmap_isequal(set, hwloc_topology_get_topology_cpuset(h));
        if (hwloc_bitmap_iszero(set))
            rc = fbr_fail(err, -EINVAL,
                          "none of the processors of the topology may be used by this process");
        else if (hwloc_topology_allow(h, set, NULL, HWLOC_ALLOW_FLAG_CUSTOM))
            rc = fbr_fail(err, -errno, "hwloc does not accept the processors that may be used: %s",
                          fbr_strerror(errno));
    }
    hwloc_bitmap_free(set);
    hwloc_bitmap_free(mine);
    return rc;
}

/* ---- Processors, caches, packages, memory ---- */

/* before[i]: how many of hwloc's first i processors may be used. */
struct rows {
    hwloc_topology_t h;
    unsigned *before;
};

/* Returns the span of an object: the processors below it are neighbours in hwloc's logical order. A
 * NUMA node is attached to the object that it belongs to. */
static struct fbr_span span_of(const struct rows *r, hwloc_obj_t obj)
{
    struct fbr_span span = {0, 0};
    int n = hwloc_bitmap_weight(obj->cpuset);

    while (hwloc_obj_type_is_memory(obj->type))
        obj = obj->parent;
    while (obj && obj->type != HWLOC_OBJ_PU)
        obj = obj->first_child;
    if (obj && n > 0) {
        span.first = r->before[obj->logical_index];
        span.end = r->before[obj->logical_index + (unsigned)n];
    }
    return span;
}

static int number_pus(struct fbr_topology *t, struct rows *r)
{
    unsigned all = count_of(r->h, HWLOC_OBJ_PU);
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(r->h);

    r->before = calloc(all + 1, sizeof(*r->before));
    t->pus = calloc(all, sizeof(*t->pus));
    if (!r->before || !t->pus)
        return -ENOMEM;
    for (unsigned i = 0; i < all; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(r->h, HWLOC_OBJ_PU, i);

        r->before[i] = t->npus;
        if (hwloc_bitmap_isset(allowed, pu->os_index)) {
            int kind = hwloc_cpukinds_get_by_cpuset(r->h, pu->cpuset, 0);

            t->pus[t->npus++] =
                (struct fbr_pu){.os = pu->os_index, .kind = kind < 0 ? 0 : (unsigned)kind};
        }
    }
    r->before[all] = t->npus;
    return 0;
}

static void add_place(struct fbr_topology *t, enum fbr_level level, struct fbr_span span,
                      unsigned number)
{
    if (span.first < span.end)
        t->places[level][t->nplaces[level]++] = (struct fbr_place){.span = span, .number = number};
}

/* Reads the objects of one level. A machine may report no cores at all: then each processor counts
 * as one. */
static int read_level(struct fbr_topology *t, const struct rows *r, enum fbr_level level,
                      hwloc_obj_type_t type)
{
    unsigned n = count_of(r->h, type);

    t->places[level] = calloc(n > t->npus ? n : t->npus, sizeof(*t->places[level]));
    if (!t->places[level])
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        hwloc_obj_t obj = hwloc_get_obj_by_type(r->h, type, i);

        add_place(t, level, span_of(r, obj), level == FBR_LEVEL_PU ? obj->os_index : i);
    }
    for (unsigned i = 0; level == FBR_LEVEL_CORE && !n && i < t->npus; i++)
        add_place(t, level, (struct fbr_span){i, i + 1}, t->pus[i].os);
    return 0;
}

/* Whether a NUMA node can be the home of a process. NUMA nodes are attached to the object whose
 * processors they serve. A node that has all processors of another node and more (such as memory
 * behind CXL) is nearest to no process, and the memory of a GPU is no home. */
static bool is_home(const struct rows *r, hwloc_obj_t node)
{
    for (unsigned i = 0; i < count_of(r->h, HWLOC_OBJ_NUMANODE); i++) {
        hwloc_obj_t other = hwloc_get_obj_by_type(r->h, HWLOC_OBJ_NUMANODE, i);

        if (!hwloc_bitmap_iszero(other->cpuset) &&
            !hwloc_bitmap_isequal(other->cpuset, node->cpuset) &&
            hwloc_bitmap_isincluded(other->cpuset, node->cpuset))
            return false;
    }
    return !node->subtype || strcmp(node->subtype, "GPUMemory") != 0;
}

static int by_place(const void *a, const void *b)
{
    const struct fbr_place *x = a, *y = b;

    return x->span.first < y->span.first ? -1 : x->span.first > y->span.first;
}

static int read_memory(struct fbr_topology *t, const struct rows *r)
{
    unsigned n = count_of(r->h, HWLOC_OBJ_NUMANODE), at;
    hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(r->h);

    t->memories = calloc(n + 1, sizeof(*t->memories));
    t->places[FBR_LEVEL_NUMA] = calloc(n + 1, sizeof(*t->places[0]));
    if (!t->memories || !t->places[FBR_LEVEL_NUMA])
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(r->h, HWLOC_OBJ_NUMANODE, i);
        struct fbr_span span = span_of(r, node);

        if (span.first == span.end || !is_home(r, node))
            continue;
        t->memories[t->nmemories++] =
            (struct fbr_memory){.span = span,
                                .os = node->os_index,
                                .bytes = node->attr->numanode.local_memory,
                                .allowed = hwloc_bitmap_isset(allowed, node->os_index)};
        for (at = 0; at < t->nplaces[FBR_LEVEL_NUMA]; at++)
            if (t->places[FBR_LEVEL_NUMA][at].span.first == span.first)
                break;
        if (at == t->nplaces[FBR_LEVEL_NUMA])
            add_place(t, FBR_LEVEL_NUMA, span, node->os_index);
    }
    if (!t->nplaces[FBR_LEVEL_NUMA])
        add_place(t, FBR_LEVEL_NUMA, (struct fbr_span){0, t->npus}, 0);
    qsort(t->places[FBR_LEVEL_NUMA], t->nplaces[FBR_LEVEL_NUMA], sizeof(*t->places[0]), by_place);
    return 0;
}

static int read_levels(struct fbr_topology *t, const struct rows *r)
{
    int rc = 0;

    t->places[FBR_LEVEL_MACHINE] = calloc(1, sizeof(*t->places[0]));
    if (!t->places[FBR_LEVEL_MACHINE])
        return -ENOMEM;
    add_place(t, FBR_LEVEL_MACHINE, (struct fbr_span){0, t->npus}, 0);
    if ((rc = read_level(t, r, FBR_LEVEL_PU, HWLOC_OBJ_PU)) ||
        (rc = read_level(t, r, FBR_LEVEL_CORE, HWLOC_OBJ_CORE)) ||
        (rc = read_level(t, r, FBR_LEVEL_L3, HWLOC_OBJ_L3CACHE)) ||
        (rc = read_level(t, r, FBR_LEVEL_PACKAGE, HWLOC_OBJ_PACKAGE)))
        return rc;
    return read_memory(t, r);
}

/* ---- Devices ---- */

/* Finds the surroundings of a device: the processors of each object above it, and the bridges
 * between. */
static void find_surroundings(const struct rows *r, hwloc_obj_t pci, struct fbr_device *d)
{
    uint64_t up[FBR_BRIDGES];
    unsigned n = 0;
    hwloc_obj_t obj = pci->parent;
    struct fbr_span span;

    for (; obj && !obj->cpuset; obj = obj->parent)
        if (obj->type == HWLOC_OBJ_BRIDGE && n < FBR_BRIDGES)
            up[n++] = obj->gp_index;
    while (n)
        d->bridges[d->nbridges++] = up[--n];
    for (; obj; obj = obj->parent) {
        span = span_of(r, obj);
        if (span.first == span.end || (d->nnear && d->near[d->nnear - 1].first == span.first &&
                                       d->near[d->nnear - 1].end == span.end))
            continue;
        if (d->nnear == FBR_NEAR) /* the widest is always the whole machine */
            d->nnear--;
        d->near[d->nnear++] = span;
    }
}

static void read_pci(const struct rows *r, hwloc_obj_t pci, struct fbr_device *d)
{
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

    d->domain = a->domain;
    d->bus = a->bus;
    snprintf(d->gpu.bus_id, sizeof(d->gpu.bus_id), "%04x:%02x:%02x.%x", a->domain, a->bus, a->dev,
             a->func);
    find_surroundings(r, pci, d);
}

static int by_bus(const void *a, const void *b)
{
    const struct fbr_device *x = a, *y = b;

    if (x->gpu.vendor != y->gpu.vendor)
        return x->gpu.vendor < y->gpu.vendor ? -1 : 1;
    return strcmp(x->gpu.bus_id, y->gpu.bus_id);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(((const struct fbr_device *)a)->name, ((const struct fbr_device *)b)->name);
}

static void add_gpu(struct fbr_topology *t, const struct rows *r, hwloc_obj_t pci)
{
    struct fbr_device *d = &t->gpus[t->ngpus];
    const char *uuid = NULL;

    memset(d, 0, sizeof(*d));
    if (!fbr_gpu_vendor(pci->attr->pcidev.class_id, pci->attr->pcidev.vendor_id, &d->gpu.vendor))
        return;
    read_pci(r, pci, d);
    for (hwloc_obj_t os = pci->io_first_child; os && !uuid; os = os->next_sibling)
        uuid = hwloc_obj_get_info_by_name(os, "NVIDIAUUID");
    if (uuid)
        snprintf(d->name, sizeof(d->name), "%s", uuid);
    if (!t->facts.this_machine || fbr_gpu_usable("", &d->gpu, d->name, sizeof(d->name)))
        t->ngpus++;
}

/* Adds a NIC, unless its port is down. A device that reports nothing about its ports is added. */
static void add_nic(struct fbr_topology *t, const struct rows *r, hwloc_obj_t os)
{
    struct fbr_device *d = &t->nics[t->nnics];
    const char *state = hwloc_obj_get_info_by_name(os, "Port1State");
    hwloc_obj_t pci = os->parent;

    memset(d, 0, sizeof(*d));
    if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !os->name ||
        (state && strcmp(state, "4") != 0))
        return;
    while (pci && pci->type != HWLOC_OBJ_PCI_DEVICE && !pci->cpuset)
        pci = pci->parent;
    if (pci && pci->type == HWLOC_OBJ_PCI_DEVICE)
        read_pci(r, pci, d);
    else
        find_surroundings(r, os, d);
    snprintf(d->name, sizeof(d->name), "%s", os->name);
    t->nnics++;
}

static int read_devices(struct fbr_topology *t, const struct rows *r)
{
    hwloc_obj_t obj;

    t->gpus = calloc(count_of(r->h, HWLOC_OBJ_PCI_DEVICE) + 1, sizeof(*t->gpus));
    t->nics = calloc(count_of(r->h, HWLOC_OBJ_OS_DEVICE) + 1, sizeof(*t->nics));
    if (!t->gpus || !t->nics)
        return -ENOMEM;
    for (obj = NULL; (obj = hwloc_get_next_pcidev(r->h, obj));)
        add_gpu(t, r, obj);
    for (obj = NULL; (obj = hwloc_get_next_osdev(r->h, obj));)
        add_nic(t, r, obj);
    qsort(t->gpus, t->ngpus, sizeof(*t->gpus), by_bus);
    qsort(t->nics, t->nnics, sizeof(*t->nics), by_name);
    for (unsigned i = 0; i < t->ngpus; i++)
        t->gpus[i].gpu.index = i && t->gpus[i].gpu.vendor == t->gpus[i - 1].gpu.vendor
                                   ? t->gpus[i - 1].gpu.index + 1
                                   : 0;
    return 0;
}

/* ---- Facts about the machine ---- */

static void read_facts(struct fbr_topology *t, hwloc_topology_t h)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(h, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;

    if (!model)
        model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(h), "CPUModel");
    snprintf(t->facts.model, sizeof(t->facts.model), "%s", model ? model : "");
    t->facts.packages = t->nplaces[FBR_LEVEL_PACKAGE];
    t->facts.numa_nodes = t->nplaces[FBR_LEVEL_NUMA];
    t->facts.l3s = t->nplaces[FBR_LEVEL_L3];
    t->facts.cores = t->nplaces[FBR_LEVEL_CORE];
    t->facts.hwthreads = t->npus;
    t->facts.gpus = t->ngpus;
    t->facts.nics = t->nnics;
}

int fbr_topology_open(struct fbr_topology **out, const char *source, unsigned flags,
                      struct fbr_error *err)
{
    bool devices = flags & FBR_TOPOLOGY_DEVICES;
    struct fbr_topology *t = calloc(1, sizeof(*t));
    struct rows rows = {0};
    hwloc_bitmap_t only = NULL;
    int rc;

    *out = NULL;
    if (!t)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = take_only(&source, &only, err);
    if (source && !*source) /* "only:0-3:" means this machine */
        source = NULL;
    if (rc || (rc = load(&rows.h, source, devices, err)))
        goto done;
    t->hwloc = rows.h;
    t->devices = devices;
    t->facts.this_machine = !source && hwloc_topology_is_thissystem(rows.h);
    if ((rc = restrict_to(t, rows.h, only, err)))
        goto done;
    if ((rc = number_pus(t, &rows)) || (rc = read_levels(t, &rows)) ||
        (devices && (rc = read_devices(t, &rows))))
        fbr_fail(err, rc, "cannot read the topology: %s", fbr_strerror(rc));
    else
        read_facts(t, rows.h);
done:
    free(rows.before);
    hwloc_bitmap_free(only);
    if (rc) {
        fbr_topology_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void fbr_topology_close(struct fbr_topology *t)
{
    if (!t)
        return;
    if (t->hwloc)
        hwloc_topology_destroy(t->hwloc);
    for (unsigned i = 0; i < FBR_LEVELS; i++)
        free(t->places[i]);
    free(t->pus);
    free(t->memories);
    free(t->gpus);
    free(t->nics);
    free(t);
}

char *fbr_topology_xml(const struct fbr_topology *t)
{
    char *hwlocs, *text = NULL;
    int size;

    if (hwloc_topology_export_xmlbuffer(t->hwloc, &hwlocs, &size, 0))
        return NULL;
    text = strdup(hwlocs);
    hwloc_free_xmlbuffer(t->hwloc, hwlocs);
    return text;
}

/* Writes the kernel's list of the set, unless there is no set or `rc` says that a number could not
 * be added, and frees it. */
static int write_list(hwloc_bitmap_t set, int rc, char *out, size_t size)
{
    int n = set && rc == 0 ? hwloc_bitmap_list_snprintf(out, size, set) : -1;

    hwloc_bitmap_free(set);
    return n < 0 ? -ENOMEM : (size_t)n < size ? 0 : -E2BIG;
}

int fbr_topology_cpus(const struct fbr_topology *t, struct fbr_span span, char *out, size_t size)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int rc = 0;

    for (unsigned at = span.first; set && rc == 0 && at < span.end; at++)
        rc = hwloc_bitmap_set(set, t->pus[at].os);
    return write_list(set, rc, out, size);
}

int fbr_topology_nodes(const struct fbr_topology *t, struct fbr_span span, char *out, size_t size)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int rc = 0;

    for (unsigned i = 0; set && rc == 0 && i < t->nmemories; i++) {
        const struct fbr_memory *m = &t->memories[i];

        if (m->allowed && m->bytes && m->span.first < span.end && span.first < m->span.end)
            rc = hwloc_bitmap_set(set, m->os);
    }
    return write_list(set, rc, out, size);
}

int fbr_topology_place(const struct fbr_topology *t, enum fbr_level level, unsigned at)
{
    unsigned low = 0, high = t->nplaces[level];

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (t->places[level][middle].span.end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->nplaces[level] && t->places[level][low].span.first <= at ? (int)low : -1;
}
