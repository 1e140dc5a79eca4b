/* cpu_alloc.h - which processors and GPUs of this machine the local backend's jobs have to
 * themselves.
 *
 * A job that asks for whole processors (jobspec.cpus of 1 or more) or for GPUs gets a place: so
 * many cores near each other, memory next to them, the nearest GPUs. Places of jobs that live do
 * not overlap. When the processors are all taken the next job is not bound; a GPU that is not there
 * is an error.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CPU_ALLOCS_H
#define FBR_CPU_ALLOCS_H

#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_PLACE_CPUS 4096

struct fbr_cpu_allocs;

struct fbr_cpu_alloc {
    uint8_t cpus[FBR_PLACE_CPUS / 8]; /* a mask */
    int cpus_len;                     /* bytes of it; 0: not bound */
    uint64_t nodes;                   /* of its memory; 0: not bound */
    char *env[8];                     /* NAME=VALUE for its GPUs, NULL-terminated */
    char where[96];
    unsigned gpus[16], ngpus; /* as they are numbered here */
};

/* Loads the topology: some ms, once. -ENOTSUP and a sentence without hwloc. */
int fbr_cpu_allocs_open(struct fbr_cpu_allocs **out, struct fbr_error *err);
void fbr_cpu_allocs_close(struct fbr_cpu_allocs *p); /* NULL is fine */

/* 0, and *place is taken until fbr_cpu_allocs_leave(); 1: all are taken, it goes unbound. -EINVAL,
 * -EBUSY: there are not so many GPUs, or not so many free ones. */
int fbr_cpu_allocs_take(struct fbr_cpu_allocs *p, unsigned cpus, unsigned gpus,
                        struct fbr_cpu_alloc **place, struct fbr_error *err);
void fbr_cpu_allocs_leave(struct fbr_cpu_allocs *p, struct fbr_cpu_alloc *place); /* NULL is fine */

#endif
