/* topology.h - a machine as the planner sees it: its usable processors in a row, and everything
 * else as spans of it.
 *
 * The processors stand in the order of hwloc's tree. In that order a core, a cache, a NUMA node, a
 * package and the neighbourhood of a device each cover one unbroken span, so sets of processors are
 * pairs of numbers here. Processors that this process may not use are left out, and so are objects
 * of which nothing is left; devices stay, wherever they are: a GPU beside forbidden cores may be
 * used all the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TOPOLOGY_H
#define FBR_TOPOLOGY_H

#include "runtime/pin/pin.h"

struct fbr_span {
    unsigned first, end; /* positions first..end-1 */
};

enum fbr_level {
    FBR_LEVEL_PU,
    FBR_LEVEL_CORE,
    FBR_LEVEL_L3,
    FBR_LEVEL_NUMA,
    FBR_LEVEL_PACKAGE,
    FBR_LEVEL_MACHINE
};
#define FBR_LEVELS (FBR_LEVEL_MACHINE + 1)

struct fbr_place { /* an object of a level; those of a level are disjoint and in order */
    struct fbr_span span;
    unsigned
        /* for people: the kernel's for processors and NUMA nodes, hwloc's logical one for the rest
         */
        number;
};

struct fbr_pu {
    unsigned os;   /* the kernel's number */
    unsigned kind; /* 0 the weakest; more on machines with several kinds of cores */
};

struct fbr_memory { /* several NUMA nodes may be local to the same processors (DRAM and HBM) */
    struct fbr_span span;
    unsigned os;
    uint64_t bytes;
    bool allowed;
};

#define FBR_NEAR 12   /* distinct spans around a device */
#define FBR_BRIDGES 8 /* PCI bridges above a device */

struct fbr_device {
    char name[64]; /* of a NIC; a GPU's unique id ("GPU-..."), or "" */
    struct fbr_pin_gpu gpu;
    unsigned domain, bus, dev, func;
    struct fbr_span near[FBR_NEAR]; /* from the narrowest that is not empty to the whole machine */
    unsigned nnear;
    uint64_t bridges[FBR_BRIDGES]; /* ids, from the root down */
    unsigned nbridges;
};

struct fbr_topology {
    struct fbr_topology_facts facts;
    bool devices; /* they were looked for */
    unsigned npus;
    struct fbr_pu *pus;
    struct fbr_place *places[FBR_LEVELS];
    unsigned nplaces[FBR_LEVELS]; /* PU, CORE, NUMA and MACHINE have some always */
    struct fbr_memory *memories;
    unsigned nmemories;
    struct fbr_device *gpus; /* each vendor's by PCI bus id */
    unsigned ngpus;
    struct fbr_device *nics; /* by name */
    unsigned nnics;
    void *hwloc;
};

int fbr_topology_open(struct fbr_topology **t, const char *source, bool devices,
                      struct fbr_error *err);
void fbr_topology_close(struct fbr_topology *t);
char *fbr_topology_xml(const struct fbr_topology *t);

/* The place of that level that position `at` is in, -1 for none. */
int fbr_topology_place(const struct fbr_topology *t, enum fbr_level level, unsigned at);

/* topology_gpu.c - which GPUs of this machine may be used, as the kernel's files say; no hwloc. */

/* By PCI class and vendor: false for what is not a GPU to compute on (a server's own graphics, an
 * Intel NPU). */
bool fbr_gpu_vendor(unsigned pci_class, unsigned pci_vendor, enum fbr_gpu_vendor *vendor);
/* Has a driver, and a device file that we may open; `uuid` (size bytes) gets NVIDIA's id if it is
 * known. `root` is put before the paths, "" but in tests. */
bool fbr_gpu_usable(const char *root, const struct fbr_pin_gpu *gpu, char *uuid, size_t size);

/* pin_gpu.c - who gets which GPU and NIC. */

struct fbr_gpu_slot { /* a GPU as the programs of this host can name it */
    struct fbr_pin_gpu gpu;
    const struct fbr_device *device; /* NULL: it is not known which (MIG, an unknown id) */
};

/* The GPUs of one vendor that can be given away, `wish->visible` followed. -ENOMEM. The caller
 * frees. */
int fbr_gpu_slots(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                  struct fbr_gpu_slot **slots, unsigned *count);
/* Fills pins[].gpus with wish->gpus_per_rank each, near to spans[]. -ENOMEM. */
int fbr_gpu_assign(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                   const struct fbr_gpu_slot *slots, unsigned nslots, const struct fbr_span *spans,
                   struct fbr_pin *pins);
/* The same before there are places: in the order of the GPUs, those of one process near each
 * other. */
int fbr_gpu_deal(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                 const struct fbr_gpu_slot *slots, unsigned nslots, struct fbr_pin *pins);
/* The device of a GPU that was given, NULL if it is not known. */
const struct fbr_device *fbr_gpu_device(const struct fbr_topology *t,
                                        const struct fbr_pin_gpu *gpu);
/* Name of the fabric device for process i, "" when there is none. */
const char *fbr_nic_choose(const struct fbr_topology *t, const struct fbr_device *gpu,
                           struct fbr_span span, unsigned i);

/* pin_draw.c */
char *fbr_pin_draw(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                   void (*label)(void *user, unsigned i, char *out, size_t size), void *user);

#endif
