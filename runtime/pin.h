/* pin.h - where the processes of a host go: processors, memory and GPUs for each, planned over a topology.
 *
 * The plan is pure: the same topology and the same wishes give the same places, on any machine, so it is tested on
 * recorded ones. hwloc is known to topology.c alone. Both are in a module that is loaded when first needed (module.h),
 * because loading hwloc costs more than a worker's whole start: everybody else calls through fbr_pin_load().
 *
 * A topology holds only what this process may use: its affinity, its cgroup's cpuset, what a resource manager left.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PIN_H
#define FBR_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/error.h"

#define FBR_PIN_LIST 256 /* of "0-3,8,10-12" lists, with the NUL */
#define FBR_PIN_GPUS 16  /* for one process */

enum fbr_pin_bind { /* --bind-to */
                    FBR_BIND_DEFAULT, /* core; numa with more than one processor each that do not fit a core; none when oversubscribed */
                    FBR_BIND_NONE,
                    FBR_BIND_HWTHREAD,
                    FBR_BIND_CORE,
                    FBR_BIND_L3,
                    FBR_BIND_NUMA,
                    FBR_BIND_PACKAGE,
};

enum fbr_pin_map {                  /* --map-by */
                   FBR_MAP_COMPACT, /* fill from the first core on */
                   FBR_MAP_SPREAD,  /* as far apart as possible */
                   FBR_MAP_CORE,
                   FBR_MAP_L3, /* round robin over these */
                   FBR_MAP_NUMA,
                   FBR_MAP_PACKAGE,
                   FBR_MAP_GPU, /* by the GPU that a process gets: its neighbours */
};

struct fbr_pin_wish {
    enum fbr_pin_bind bind;
    enum fbr_pin_map map;
    unsigned count;         /* processes on this host */
    unsigned cpus_per_rank; /* 0: one core */
    unsigned gpus_per_rank; /* 0: none is chosen, and no variable is set */
    bool bind_memory;       /* to the NUMA nodes of its processors */
};

enum fbr_gpu_vendor { FBR_GPU_NVIDIA, FBR_GPU_AMD, FBR_GPU_INTEL };

struct fbr_pin_gpu {
    enum fbr_gpu_vendor vendor;
    unsigned index;  /* in its vendor's order by PCI bus id, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts */
    char bus_id[20]; /* "0000:3b:00.0" */
};

/* One process's place. */
struct fbr_pin {
    char cpus[FBR_PIN_LIST];  /* "" when it is not bound */
    char nodes[FBR_PIN_LIST]; /* NUMA nodes that its memory is bound to, "" when it is not */
    unsigned ngpus;
    struct fbr_pin_gpu gpus[FBR_PIN_GPUS];
    char nic[32];   /* the fabric device nearest to its first GPU ("mlx5_0"), else to its processors; "" */
    char where[96]; /* for people: "package 0, NUMA 0, cores 0-3" */
};

struct fbr_topology;

struct fbr_topology_facts {
    unsigned packages, numa_nodes, l3s, cores, hwthreads, gpus; /* that may be used */
    bool this_machine;                                          /* binding to it means something */
    bool restricted;                                            /* the machine has more than we may use */
    char model[64];                                             /* of the processor, "" if unknown */
};

struct fbr_pin_ops {
    /* source: NULL this machine; "xml:PATH"; "synthetic:pack:2 core:4 pu:2". */
    int (*open)(struct fbr_topology **t, const char *source, struct fbr_error *err);
    void (*close)(struct fbr_topology *t); /* NULL is fine */
    void (*facts)(const struct fbr_topology *t, struct fbr_topology_facts *facts);
    /* Places for wish->count processes in pins[]. `note` (size bytes) gets a sentence when more processes than
     * processors were asked for, or a wish could not be met wholly; else "". -EINVAL: it cannot be met at all. */
    int (*plan)(const struct fbr_topology *t, const struct fbr_pin_wish *wish, struct fbr_pin *pins,
                char *note, size_t size, struct fbr_error *err);
    /* The machine with the processes in it, as text of several lines; the caller frees. `label(user, i)` names process
     * i. */
    char *(*draw)(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                  void (*label)(void *user, unsigned i, char *out, size_t size), void *user);
    /* The whole as hwloc XML, for PMIx servers and for tests; the caller frees with free(). */
    char *(*xml)(const struct fbr_topology *t);
};

/* The table, or NULL and why (no hwloc on this machine): then nothing can be bound, and that must be said. */
const struct fbr_pin_ops *fbr_pin_load(struct fbr_error *err);

/* Names on the command line to wishes and back; negative: -EINVAL with the names that there are. */
int fbr_pin_bind_named(const char *name, struct fbr_error *err);
int fbr_pin_map_named(const char *name, struct fbr_error *err);
const char *fbr_pin_bind_name(enum fbr_pin_bind bind);

/* "0-3,8" to the bit mask that sched_setaffinity() takes: bytes written, or -EINVAL, -E2BIG. */
int fbr_pin_mask(const char *list, void *mask, size_t size);

/* What the kernel says of a process: its affinity, memory policy ("bind:0", "default"), processors that it may use. */
struct fbr_pin_seen {
    char cpus[FBR_PIN_LIST];
    char mems[FBR_PIN_LIST];
    char policy[64];
};
int fbr_pin_read(int pid, struct fbr_pin_seen *seen, struct fbr_error *err);

/* The variables that show a process its GPUs and no others (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
 * ZE_AFFINITY_MASK, with CUDA_DEVICE_ORDER): calls set() for each. An outer list of visible devices (as a resource
 * manager or MIG gives: `outer`, the value of the variable in our own environment, NULL if unset) is indexed, not
 * replaced. */
void fbr_pin_gpu_env(const struct fbr_pin *pin, const char *(*outer)(void *user, const char *name),
                     void (*set)(void *user, const char *name, const char *value), void *user);

#endif
