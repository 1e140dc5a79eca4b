/* pin.h - places the processes of a host: plans processors, memory and GPUs for each of them.
 *
 * The plan is pure: the same topology and the same wishes give the same places on any machine, so
 * tests use recorded topologies. Only topology.c knows hwloc. Both are in a module that is loaded
 * on first use (module.h), because loading hwloc takes longer than the whole start of a worker. All
 * other code calls through fbr_pin_load().
 *
 * A topology holds only what this process may use: its affinity, the cpuset of its cgroup, the
 * processors that a resource manager left to it. A "processor" is what the kernel counts as one: a
 * hardware thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* size of a list such as "0-3,8,10-12", with its NUL: about 450 separate processors */
#define FBR_PIN_LIST 2048
#define FBR_PIN_GPUS 16 /* maximum for one process */

/* The values of --bind-to. core and hwthread: a process has its own processors, as many as
 * cpus_per_rank asks for. l3, numa and package: a process has all processors of the objects that
 * its own processors would be in, together with the other processes there. If the machine shows no
 * such object, the next larger one is used. */
enum fbr_pin_bind {
    /* core; but hwthread if there are more ranks than cores; numa for ranks with GPUs if
     * cpus_per_rank is 0, because a process that feeds a GPU has threads; none if
     * oversubscribed. */
    FBR_BIND_DEFAULT,
    FBR_BIND_NONE,
    FBR_BIND_HWTHREAD,
    FBR_BIND_CORE, /* whole cores, rounded up */
    FBR_BIND_L3,
    FBR_BIND_NUMA,
    FBR_BIND_PACKAGE,
};

/* The values of --map-by. On machines with strong and weak cores the strong ones are taken first.
 * The processors of one process are in one L3, NUMA node or package, if all processes have room
 * that way. */
enum fbr_pin_map {
    FBR_MAP_DEFAULT, /* gpu if ranks get GPUs, else compact */
    FBR_MAP_COMPACT, /* fill from the first core on */
    FBR_MAP_SPREAD,  /* as far apart as possible */
    FBR_MAP_CORE,    /* this and the next three: round robin over these */
    FBR_MAP_L3,
    FBR_MAP_NUMA,
    FBR_MAP_PACKAGE,
    FBR_MAP_GPU, /* near the GPU that a process gets, in the order of the GPUs */
};

enum fbr_gpu_vendor { FBR_GPU_NVIDIA, FBR_GPU_AMD, FBR_GPU_INTEL };
#define FBR_GPU_VENDORS 3

struct fbr_pin_wish {
    enum fbr_pin_bind bind;
    enum fbr_pin_map map;
    unsigned count;         /* processes on this host */
    unsigned cpus_per_rank; /* processors; 0: one core */
    unsigned gpus_per_rank; /* 0: no GPU is chosen, and no variable is set */
    /* Bind memory to the NUMA nodes of the processors. Has no effect on a process that is not
     * bound. */
    bool bind_memory;
    /* By vendor: the list of visible devices that this process itself was given
     * (fbr_pin_gpu_outer). NULL: none. */
    const char *visible[FBR_GPU_VENDORS];
};

struct fbr_pin_gpu {
    enum fbr_gpu_vendor vendor;
    /* Position among the vendor's usable GPUs in the order of PCI bus ids, as with
     * CUDA_DEVICE_ORDER=PCI_BUS_ID; or, if wish->visible has a list, the position in that list. */
    unsigned index;
    char bus_id[20]; /* "0000:3b:00.0"; "" if it is unknown for the entry of a list (MIG) */
};

/* The place of one process. */
struct fbr_pin {
    char cpus[FBR_PIN_LIST]; /* "" if the process is not bound */
    char nodes[256];         /* NUMA nodes that its memory is bound to; "": not bound */
    /* Ranks want more processors than there are, so this process should yield while it waits. */
    bool shared;
    unsigned ngpus;
    struct fbr_pin_gpu gpus[FBR_PIN_GPUS];
    /* The fabric device nearest to its first GPU ("mlx5_0"), else to its processors; "": none. */
    char nic[32];
    char where[96]; /* for people: "package 0, NUMA 0, cores 0-3" */
};

struct fbr_topology;

struct fbr_topology_facts {
    /* Objects with usable processors; 0: the machine shows none of these. */
    unsigned packages, numa_nodes, l3s, cores, hwthreads;
    unsigned gpus, nics; /* 0 without FBR_TOPOLOGY_DEVICES */
    bool this_machine;   /* the topology is that of this machine, so processes can be bound to it */
    bool restricted;     /* the machine has more than we may use */
    char model[64];      /* model of the processor, "" if unknown */
};

/* Look for GPUs and NICs too, which takes several times as long. Needed for gpus_per_rank,
 * FBR_MAP_GPU and `nic`. */
#define FBR_TOPOLOGY_DEVICES 1u

struct fbr_pin_ops {
    /* Opens a topology. source: NULL for this machine; "xml:PATH"; "synthetic:pack:2 core:4 pu:2";
     * or "only:0-3,8:" in front of one of these (or of nothing, for this machine), as if we could
     * use only those processors. Any thread; the topology does not change afterwards. */
    int (*open)(struct fbr_topology **t, const char *source, unsigned flags, struct fbr_error *err);
    void (*close)(struct fbr_topology *t); /* NULL is fine */
    void (*facts)(const struct fbr_topology *t, struct fbr_topology_facts *facts);
    /* Plans places for wish->count processes in pins[]. Stores a sentence in `note` (size bytes) if
     * more processes than processors were asked for ("8 ranks share 2 processors: they are not
     * bound"), or if a wish could be met only in part; else "". -EINVAL: the wish cannot be met,
     * and pins[] must not be used. */
    int (*plan)(const struct fbr_topology *t, const struct fbr_pin_wish *wish, struct fbr_pin *pins,
                char *note, size_t size, struct fbr_error *err);
    /* Draws the machine with the processes on it, as text of several lines, which the caller frees.
     * `label(user, i)` names process i. NULL: out of memory. */
    char *(*draw)(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                  void (*label)(void *user, unsigned i, char *out, size_t size), void *user);
    /* Returns the whole topology as hwloc XML, for PMIx servers and for tests; the caller frees it
     * with free(). It includes forbidden objects, marked as such. NULL: out of memory. */
    char *(*xml)(const struct fbr_topology *t);
};

/* Returns the table, or NULL and an error (no hwloc on this machine). Then nothing can be bound,
 * and the caller must report that. */
const struct fbr_pin_ops *fbr_pin_load(struct fbr_error *err);

/* Turn names into wishes. Negative: -EINVAL, with the list of valid names. */
int fbr_pin_bind_named(const char *name, struct fbr_error *err);
int fbr_pin_map_named(const char *name, struct fbr_error *err);

/* Turns "0-3,8" into the bit mask for sched_setaffinity(). Returns the number of bytes written (a
 * multiple of 8), -EINVAL if the text is not a list or the list is empty, or -E2BIG. */
int fbr_pin_mask(const char *list, void *mask, size_t size);

/* Returns how many threads process `at` of `count` should have so that no processor is used twice:
 * the number of its processors, divided by the number of processes that have the same ones. 0: no
 * other process has the same processors, or the process is not bound; then no limit applies. */
unsigned fbr_pin_threads(const struct fbr_pin *pins, unsigned count, unsigned at);

/* The facts that the kernel reports of a process. A text is "" if the kernel does not report it. */
struct fbr_pin_seen {
    char cpus[FBR_PIN_LIST]; /* its affinity mask */
    char policy[64];         /* memory policy: "default", "bind:0" */
    char gpus[256];          /* the devices that it was shown: "CUDA_VISIBLE_DEVICES=0,1" */
};
/* Reads the above. -ESRCH: there is no such process. */
int fbr_pin_read(int pid, struct fbr_pin_seen *seen);

/* Looks up a variable in an environment, as fbr_pin_getenv(NULL, name) does in ours. NULL:
 * unset. */
typedef const char *fbr_pin_getenv_fn(void *user, const char *name);
const char *fbr_pin_getenv(void *user, const char *name);

/* Stores the lists of visible devices in an environment, which a resource manager, a user or MIG
 * sets, for fbr_pin_wish. */
void fbr_pin_gpu_outer(fbr_pin_getenv_fn *outer, void *user, const char *visible[FBR_GPU_VENDORS]);

/* Calls set() for each variable that shows a process its GPUs and no others: CUDA_VISIBLE_DEVICES,
 * ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK, and the variables that make their numbers follow the
 * order of PCI bus ids. Does nothing for a process without GPUs. If the environment `outer` (the
 * one that the plan was made with) has a list, that list is indexed and not replaced: the process
 * gets its own entries of the list, as written there. */
void fbr_pin_gpu_env(const struct fbr_pin *pin, fbr_pin_getenv_fn *outer,
                     void (*set)(void *user, const char *name, const char *value), void *user);
