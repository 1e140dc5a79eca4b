/* cpu_alloc.h - the processors and GPUs of this machine that local jobs have for themselves.
 *
 * A job that requests whole processors (jobspec.cpus of 1 or more) or GPUs gets a place: that many
 * cores near each other, memory next to them, the nearest GPUs. Places of running jobs do not
 * overlap. When all processors are taken the next job is not bound, but has its GPUs; a request for
 * a GPU that does not exist is an error.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

#define FBR_PLACE_CPUS 4096

struct fbr_cpu_allocs;

struct fbr_cpu_alloc {
    uint8_t cpus[FBR_PLACE_CPUS / 8]; /* a mask */
    int cpus_len;                     /* bytes of the mask; 0: not bound */
    uint64_t nodes;                   /* nodes of its memory; 0: not bound */
    char *env[8];                     /* NAME=VALUE for its GPUs, NULL-terminated */
    uint64_t gpus;                    /* by their numbers on this machine, a mask */
};

/* Loads the topology: some ms, once. -ENOTSUP and a message without hwloc. */
int fbr_cpu_allocs_open(struct fbr_cpu_allocs **out, struct fbr_error *err);
void fbr_cpu_allocs_close(struct fbr_cpu_allocs *p); /* NULL is allowed */

/* 0: *place is taken until fbr_cpu_allocs_leave(); 1: all places are taken, the job runs unbound.
 * -EINVAL: the machine has fewer GPUs; -EBUSY: too few GPUs are free. */
int fbr_cpu_allocs_take(struct fbr_cpu_allocs *p, unsigned cpus, unsigned gpus,
                        struct fbr_cpu_alloc **place, struct fbr_error *err);
/* NULL is allowed */
void fbr_cpu_allocs_leave(struct fbr_cpu_allocs *p, struct fbr_cpu_alloc *place);
