/* cgroup.h - what this process may use of its machine: by its control group, and by the processors
 * it is given.
 *
 * A container with half a processor sees all of the machine's; who counts them there, and starts as
 * many threads, is throttled most of the time. Read from cgroup version 2 and 1 (kernel:
 * Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CGROUP_H
#define FBR_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct fbr_cgroup {
    uint32_t affinity; /* processors that we may run on, at least 1 */
    double quota;     /* processors' worth of time, of all of us together; 0: as much as there is */
    uint64_t memory;  /* bytes; 0: as much as there is */
    uint64_t machine; /* the same for all who may run on the same processors of the same machine */
    /* how often the kernel has killed for want of memory: in our group, or on the whole machine
     * where no group says */
    uint64_t oom_kills;
    bool oom_known; /* by a group */
};

/* Asks the kernel; what it does not say is unlimited. Any thread. */
void fbr_cgroup_read(struct fbr_cgroup *l);
/* The same with other files: `root` stands before /proc and /sys. For tests. */
void fbr_cgroup_read_at(struct fbr_cgroup *l, const char *root);

/* How many processors can be kept busy: at least 1. */
uint32_t fbr_cgroup_cpus(const struct fbr_cgroup *l);
/* Less time than processors: which of them we get changes, so nothing should be bound to one. */
bool fbr_cgroup_floats(const struct fbr_cgroup *l);

#endif
