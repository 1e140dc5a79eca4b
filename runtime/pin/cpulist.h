/* cpulist.h - reads and writes the kernel's lists of processors and NUMA nodes, such as
 * "0-3,8,10-12", and its sets of processors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_CPU_MAX (1u << 20) /* all numbers are below this */

/* Reads the next range of *at, and moves *at behind it. Returns 1, 0 at the end, or -EINVAL if the
 * text is not a list. An empty string is an empty list. Ranges may come in any order and may
 * overlap. */
int fbr_cpulist_next(const char **at, unsigned *first, unsigned *last);

/* Writes a list of numbers in the order of their addition. Start with {.out = , .size = }. */
struct fbr_cpulist {
    char *out;
    size_t size, len;
    bool open;            /* a range was begun and is not yet written */
    unsigned first, last; /* the begun range */
    bool full;            /* the list did not fit: `out` has only its beginning */
};

void fbr_cpulist_add(struct fbr_cpulist *l, unsigned number);
/* Writes the last range. Returns 0, or -E2BIG. */
int fbr_cpulist_end(struct fbr_cpulist *l);

/* A set of processors, in the form of the kernel's masks (on little endian machines: buf.h). */
#define FBR_CPUSET_MAX 4096 /* more than a machine has */
struct fbr_cpuset {
    uint8_t bits[FBR_CPUSET_MAX / 8];
};
/* Stores the processors that a thread may run on; pid 0: the calling one. 0 or -errno. */
int fbr_cpuset_read(struct fbr_cpuset *set, int pid);
bool fbr_cpuset_has(const struct fbr_cpuset *set, unsigned cpu);
unsigned fbr_cpuset_count(const struct fbr_cpuset *set);
