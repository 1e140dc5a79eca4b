/* topology.h - a machine as the planner sees it: its usable processors in a row, and all other
 * objects as spans of the row.
 *
 * The processors are in the order of hwloc's tree. In that order a core, a cache, a NUMA node, a
 * package and the neighbourhood of a device each cover one unbroken span, so a set of processors is
 * a pair of numbers. Processors that this process may not use are left out, and so are objects
 * without usable processors. Devices stay, wherever they are, because a GPU next to forbidden cores
 * may still be used.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

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

struct fbr_place { /* an object of a level; the objects of a level are disjoint and in order */
    struct fbr_span span;
    /* For people: the kernel's number for processors and NUMA nodes, hwloc's logical index for
     * other objects. */
    unsigned number;
};

struct fbr_pu {
    unsigned os;   /* the kernel's number */
    unsigned kind; /* 0: the weakest; higher on machines with several kinds of cores */
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
    char name[64]; /* the name of a NIC; the unique id of a GPU ("GPU-..."), or "" */
    struct fbr_pin_gpu gpu;
    unsigned domain, bus;
    struct fbr_span near[FBR_NEAR]; /* from the narrowest that is not empty to the whole machine */
    unsigned nnear;
    uint64_t bridges[FBR_BRIDGES]; /* ids of the bridges, from the root down */
    unsigned nbridges;
};

struct fbr_topology {
    struct fbr_topology_facts facts;
    bool devices; /* GPUs and NICs were looked for */
    unsigned npus;
    struct fbr_pu *pus;
    struct fbr_place *places[FBR_LEVELS];
    unsigned nplaces[FBR_LEVELS]; /* PU, CORE, NUMA and MACHINE always have some */
    struct fbr_memory *memories;
    unsigned nmemories;
    struct fbr_device *gpus; /* by vendor, then by PCI bus id */
    unsigned ngpus;
    struct fbr_device *nics; /* sorted by name */
    unsigned nnics;
    void *hwloc;
};

int fbr_topology_open(struct fbr_topology **t, const char *source, unsigned flags,
                      struct fbr_error *err);
void fbr_topology_close(struct fbr_topology *t);
char *fbr_topology_xml(const struct fbr_topology *t);

/* Write the kernel's list of the processors of a span, or of its NUMA nodes: those that have memory
 * which this process may use, because the kernel takes no list with others. -ENOMEM, -E2BIG. */
int fbr_topology_cpus(const struct fbr_topology *t, struct fbr_span span, char *out, size_t size);
int fbr_topology_nodes(const struct fbr_topology *t, struct fbr_span span, char *out, size_t size);

/* Returns the index of the place of that level that contains position `at`, or -1. */
int fbr_topology_place(const struct fbr_topology *t, enum fbr_level level, unsigned at);

/* topology_gpu.c - which GPUs of this machine may be used, according to the kernel's files; without
 * hwloc. */

/* Decides by PCI class and vendor. False: the device is not a GPU for computation (a server's own
 * graphics, an Intel NPU). */
bool fbr_gpu_vendor(unsigned pci_class, unsigned pci_vendor, enum fbr_gpu_vendor *vendor);
/* Whether the GPU has a driver, and a device file that we may open. Stores NVIDIA's id in `uuid`
 * (size bytes) if it is known. `root` is put in front of the paths; it is "" except in tests. */
bool fbr_gpu_usable(const char *root, const struct fbr_pin_gpu *gpu, char *uuid, size_t size);

/* pin_gpu.c - which process gets which GPU and NIC. */

struct fbr_gpu_slot { /* a GPU, as the programs of this host can name it */
    struct fbr_pin_gpu gpu;
    const struct fbr_device *device; /* NULL: unknown (MIG, an unknown id) */
};

/* Finds the GPUs of one vendor that processes may get; follows `wish->visible`. -ENOMEM. The caller
 * frees *slots. */
int fbr_gpu_slots(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                  struct fbr_gpu_slot **slots, unsigned *count);
/* Gives each process wish->gpus_per_rank GPUs, in pins[].gpus, near to spans[]. -ENOMEM. */
int fbr_gpu_assign(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                   const struct fbr_gpu_slot *slots, unsigned nslots, const struct fbr_span *spans,
                   struct fbr_pin *pins);
/* The same before the processes have places: in the order of the GPUs, with the GPUs of one process
 * near each other. */
int fbr_gpu_deal(const struct fbr_topology *t, const struct fbr_pin_wish *wish,
                 const struct fbr_gpu_slot *slots, unsigned nslots, struct fbr_pin *pins);
/* Returns the device of an assigned GPU; NULL: unknown. */
const struct fbr_device *fbr_gpu_device(const struct fbr_topology *t,
                                        const struct fbr_pin_gpu *gpu);
/* Returns the name of the fabric device for process i, or "" if there is none. */
const char *fbr_nic_choose(const struct fbr_topology *t, const struct fbr_device *gpu,
                           struct fbr_span span, unsigned i);

/* pin_draw.c */
char *fbr_pin_draw(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                   void (*label)(void *user, unsigned i, char *out, size_t size), void *user);
