/* cgroup.h - the limits of this process: those of its control group, and the processors that it may
 * use.
 *
 * A container with half a processor sees all processors of the machine. A program that counts them,
 * and starts as many threads, is throttled most of the time. This reads cgroup versions 2 and 1
 * (kernel: Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fbr_cgroup {
    uint32_t affinity; /* processors that we may run on, at least 1 */
    /* processors' worth of time, for all processes of the group together; 0: no limit */
    double quota;
    uint64_t memory; /* bytes; 0: no limit */
    /* a hash: equal for processes that may run on the same processors of the same machine */
    uint64_t machine;
    /* How many processes the kernel has killed because memory was short: in our group, or on the
     * whole machine if no group reports it. */
    uint64_t oom_kills;
    bool oom_known; /* a group reports oom_kills */
};

/* Reads the limits from the kernel. A limit that the kernel does not report does not exist. Any
 * thread. */
void fbr_cgroup_read(struct fbr_cgroup *l);
/* The same with other files: puts `root` in front of /proc and /sys. For tests. */
void fbr_cgroup_read_at(struct fbr_cgroup *l, const char *root);

/* Returns how many processors we can keep busy, at least 1. */
uint32_t fbr_cgroup_cpus(const struct fbr_cgroup *l);
/* Whether the group has less time than processors. Then the processors that we get change, so
 * nothing should be bound to one. */
bool fbr_cgroup_floats(const struct fbr_cgroup *l);
