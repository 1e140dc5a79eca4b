/* pin.h - where the processes of a host go: processors, memory and GPUs for each, planned over a
 * topology.
 *
 * The plan is pure: the same topology and the same wishes give the same places, on any machine, so
 * it is tested on recorded ones. hwloc is known to topology.c alone. Both are in a module that is
 * loaded when first needed (module.h), because loading hwloc costs more than a worker's whole
 * start: everybody else calls through fbr_pin_load().
 *
 * A topology holds only what this process may use: its affinity, its cgroup's cpuset, what a
 * resource manager left. A "processor" is what the kernel counts as one: a hardware thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PIN_H
#define FBR_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_PIN_LIST \
    2048 /* of "0-3,8,10-12" lists, with the NUL: some 450 processors that are no neighbours */
#define FBR_PIN_GPUS 16 /* for one process */

/* --bind-to. core and hwthread: a process has its own, as many as cpus_per_rank asks for. l3, numa
 * and package: all of those in which its own would be, together with the others there; where the
 * machine shows none, the next larger. */
enum fbr_pin_bind {
    /* core; hwthread when there are more ranks than cores; numa for ranks with GPUs when
     * cpus_per_rank is 0, as what feeds a GPU has threads; none when oversubscribed. */
    FBR_BIND_DEFAULT,
    FBR_BIND_NONE,
    FBR_BIND_HWTHREAD,
    FBR_BIND_CORE, /* whole cores, rounded up */
    FBR_BIND_L3,
    FBR_BIND_NUMA,
    FBR_BIND_PACKAGE,
};

/* --map-by. Strong cores are taken before weak ones on machines that have both; the processors of
 * one process are in one L3, NUMA node or package, if there is room for all that way. */
enum fbr_pin_map {
    FBR_MAP_DEFAULT, /* gpu when GPUs are asked for, else compact */
    FBR_MAP_COMPACT, /* fill from the first core on */
    FBR_MAP_SPREAD,  /* as far apart as possible */
    FBR_MAP_CORE,    /* round robin over these */
    FBR_MAP_L3,
    FBR_MAP_NUMA,
    FBR_MAP_PACKAGE,
    FBR_MAP_GPU, /* by the GPU that a process gets, in the order of the GPUs: its neighbours */
};

enum fbr_gpu_vendor { FBR_GPU_NVIDIA, FBR_GPU_AMD, FBR_GPU_INTEL };
#define FBR_GPU_VENDORS 3

struct fbr_pin_wish {
    enum fbr_pin_bind bind;
    enum fbr_pin_map map;
    unsigned count;         /* processes on this host */
    unsigned cpus_per_rank; /* processors; 0: one core */
    unsigned gpus_per_rank; /* 0: none is chosen, and no variable is set */
    bool bind_memory; /* to the NUMA nodes of its processors; not for a process that is not bound */
    /* By vendor: the list of visible devices that we were given ourselves (fbr_pin_gpu_outer),
     * NULL: none. */
    const char *visible[FBR_GPU_VENDORS];
};

struct fbr_pin_gpu {
    enum fbr_gpu_vendor vendor;
    /* In its vendor's order by PCI bus id, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts, of those that
     * may be used; where wish->visible has a list, the position in it. */
    unsigned index;
    char bus_id[20]; /* "0000:3b:00.0"; "" when a list names what no bus id is known for (MIG) */
};

/* One process's place. */
struct fbr_pin {
    char cpus[FBR_PIN_LIST]; /* "" when it is not bound */
    char nodes[256];         /* NUMA nodes that its memory is bound to, "" when it is not */
    bool shared; /* there are fewer processors than ranks want: it should yield while it waits */
    unsigned ngpus;
    struct fbr_pin_gpu gpus[FBR_PIN_GPUS];
    char nic
        /* the fabric device nearest to its first GPU ("mlx5_0"), else to its processors; "" */
        [32];
    char where[96]; /* for people: "package 0, NUMA 0, cores 0-3" */
};

struct fbr_topology;

struct fbr_topology_facts {
    unsigned packages, numa_nodes, l3s, cores,
        hwthreads;       /* that may be used; 0: the machine shows none of these */
    unsigned gpus, nics; /* 0 without FBR_TOPOLOGY_DEVICES */
    bool this_machine;   /* binding to it means something */
    bool restricted;     /* the machine has more than we may use */
    char model[64];      /* of the processor, "" if unknown */
};

/* Look for GPUs and NICs too, which takes several times as long; needed for gpus_per_rank,
 * FBR_MAP_GPU and `nic`. */
#define FBR_TOPOLOGY_DEVICES 1u

struct fbr_pin_ops {
    /* source: NULL this machine; "xml:PATH"; "synthetic:pack:2 core:4 pu:2"; either of these with
     * "only:0-3,8:" before it, as if that were all that we may use. Any thread; a topology is not
     * changed after that. */
    int (*open)(struct fbr_topology **t, const char *source, unsigned flags, struct fbr_error *err);
    void (*close)(struct fbr_topology *t); /* NULL is fine */
    void (*facts)(const struct fbr_topology *t, struct fbr_topology_facts *facts);
    /* Places for wish->count processes in pins[]. `note` (size bytes) gets a sentence when more
     * processes than processors were asked for ("8 ranks share 2 processors: they are not bound"),
     * or a wish could not be met wholly; else "". -EINVAL: it cannot be met at all, pins[] is not
     * to be used. */
    int (*plan)(const struct fbr_topology *t, const struct fbr_pin_wish *wish, struct fbr_pin *pins,
                char *note, size_t size, struct fbr_error *err);
    /* The machine with the processes in it, as text of several lines; the caller frees.
     * `label(user, i)` names process i. NULL: out of memory. */
    char *(*draw)(const struct fbr_topology *t, const struct fbr_pin *pins, unsigned count,
                  void (*label)(void *user, unsigned i, char *out, size_t size), void *user);
    /* The whole as hwloc XML, for PMIx servers and for tests; the caller frees with free().
     * Forbidden objects are in it and marked so. NULL: out of memory. */
    char *(*xml)(const struct fbr_topology *t);
};

/* The table, or NULL and why (no hwloc on this machine): then nothing can be bound, and that must
 * be said. */
const struct fbr_pin_ops *fbr_pin_load(struct fbr_error *err);

/* Names on the command line to wishes; negative: -EINVAL with the names that there are.
 * "socket" is taken for package and "slot" for compact, as mpirun's users write. */
int fbr_pin_bind_named(const char *name, struct fbr_error *err);
int fbr_pin_map_named(const char *name, struct fbr_error *err);

/* "0-3,8" to the bit mask that sched_setaffinity() takes: bytes written (a multiple of 8), or
 * -EINVAL for what is not a list or an empty one, -E2BIG. */
int fbr_pin_mask(const char *list, void *mask, size_t size);

/* How many threads process `at` of `count` should have so that nobody's processors are asked for
 * twice: as many as its processors, divided among all that were given the same ones. 0 when they
 * are its own alone, or when it is not bound: then nothing need be said, or the caller knows. */
unsigned fbr_pin_threads(const struct fbr_pin *pins, unsigned count, unsigned at);

/* The kernel's account of a process. A text is "" where the kernel does not tell. */
struct fbr_pin_seen {
    char cpus[FBR_PIN_LIST]; /* its affinity */
    char mems[256];          /* NUMA nodes that it may use at all */
    char policy[64];         /* of its memory: "default", "bind:0" */
    char gpus[256];          /* the devices that it was shown: "CUDA_VISIBLE_DEVICES=0,1" */
};
/* pid 0: this thread. -ESRCH when there is no such process. */
int fbr_pin_read(int pid, struct fbr_pin_seen *seen, struct fbr_error *err);

/* A look-up in an environment: fbr_pin_getenv(NULL, name), or another one. NULL if unset. */
typedef const char *fbr_pin_getenv_fn(void *user, const char *name);
const char *fbr_pin_getenv(void *user, const char *name);

/* Lists of visible devices in an environment, as a resource manager, a user or MIG gives, for
 * fbr_pin_wish. */
void fbr_pin_gpu_outer(fbr_pin_getenv_fn *outer, void *user, const char *visible[FBR_GPU_VENDORS]);

/* The variables that show a process its GPUs and no others (CUDA_VISIBLE_DEVICES,
 * ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK, with what makes their numbers mean the order of PCI bus
 * ids): calls set() for each; never for a process that has no GPU chosen. A list in the environment
 * `outer` - the one that the plan was made with - is indexed, not replaced: the process gets the
 * entries of its own, as they stand there. */
void fbr_pin_gpu_env(const struct fbr_pin *pin, fbr_pin_getenv_fn *outer,
                     void (*set)(void *user, const char *name, const char *value), void *user);

#endif
