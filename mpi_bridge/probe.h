/* probe.h - what this host has for MPI and similar libraries: copies between processes, shared
 * memory, interfaces, a fabric.
 *
 * An agent probes once, before its ranks start. host_env.h makes variables of these facts; `fiber
 * doctor` prints them.
 *
 * A probe takes about a millisecond, starts no process and leaves nothing behind. Any thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct fbr_probe {
    bool cma;        /* a rank may read the memory of another (process_vm_readv) */
    bool xpmem;      /* a rank may map the memory of another */
    char no_cma[96]; /* why cma is false */

    bool shm;          /* /dev/shm is there and can be written */
    uint64_t shm_size; /* bytes of the file system */
    uint64_t shm_free;

    bool loopback; /* lo is up */
    /* The interface and the address by which other hosts reach us: those that were asked for, else
     * those of the default route, else of the first interface that is up. "": there is only lo. */
    char interface[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN];

    /* a port of InfiniBand, RoCE, EFA, Omni-Path or Slingshot is up, and we may use it */
    bool fabric;
    /* "mlx5_0"; without a fabric, a device that was found but cannot be used, or "" */
    char fabric_name[32];
    char no_fabric[96]; /* why that device cannot be used */

    bool gpu;    /* there is a GPU device, of any make, usable or not */
    bool caches; /* the kernel reports which processors share a cache */
};

/* `address`: of ours, by which other hosts reach us; "": not known. */
void fbr_probe_run(struct fbr_probe *p, const char *address);

/* Tries to bring lo up: in a new network namespace it is down. Returns 0 or a negative errno
 * (-EPERM). */
int fbr_probe_raise_loopback(void);

/* Returns the bytes of /dev/shm that Open MPI needs for so many ranks. Measured: 64 MiB hold 32
 * ranks and an alltoall. */
uint64_t fbr_probe_shm_need(unsigned ranks);
