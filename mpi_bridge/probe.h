/* probe.h - what this host has for MPI and its like: copies between processes, shared memory,
 * interfaces, a fabric.
 *
 * An agent looks once, before its ranks start; host_env.h makes variables of these facts. `fiber
 * doctor` prints them.
 *
 * Looking takes about a millisecond, starts no process and leaves nothing behind. Any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PROBE_H
#define FBR_PROBE_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fbr_probe {
    bool cma;        /* a rank may read the memory of another (process_vm_readv) */
    bool xpmem;      /* or map it */
    char no_cma[96]; /* why not */

    bool shm;          /* /dev/shm is there and can be written */
    uint64_t shm_size; /* bytes; of the file system */
    uint64_t shm_free;

    bool loopback; /* lo is up */
    /* The interface and the address that other hosts reach us by: the one of the default route,
     * else the first that is up. "" when there is only lo. fbr_probe_toward() says it better. */
    char interface[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN];

    bool
        /* a port of InfiniBand, RoCE, EFA, Omni-Path or Slingshot is up, and we may use it */
        fabric;
    char fabric_name[32]; /* "mlx5_0"; without a fabric what was found but cannot be used, or "" */
    char no_fabric[96];   /* why not, when something was found */

    bool gpu;    /* there is a device of a GPU, of whatever make, whether we may use it or not */
    bool caches; /* the kernel tells which processors share a cache */

    uid_t uid;
};

void fbr_probe_run(struct fbr_probe *p);

/* The interface and the address by which this host reaches `peer`, an IPv4 or IPv6 address: sends
 * nothing. -ENETUNREACH and the like, and what was known stays. */
int fbr_probe_toward(struct fbr_probe *p, const char *peer);

/* Tries to bring lo up, as somebody must who has a network namespace of his own: 0 or a negative
 * errno (-EPERM). */
int fbr_probe_raise_loopback(void);

/* Returns the bytes of /dev/shm that Open MPI needs for so many ranks; measured: 64 MiB hold 32
 * ranks and an alltoall. */
uint64_t fbr_probe_shm_need(unsigned ranks);

#endif
