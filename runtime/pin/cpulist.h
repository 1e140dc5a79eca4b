/* cpulist.h - the kernel's lists of processors and NUMA nodes, "0-3,8,10-12": reading and writing.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CPULIST_H
#define FBR_CPULIST_H

#include <stdbool.h>
#include <stddef.h>

#define FBR_CPU_MAX (1u << 20) /* numbers are below this */

/* The next range of *at, which moves behind it: 1, 0 at the end, -EINVAL for what is not a list. An
 * empty string is an empty list. Ranges may come in any order and overlap. */
int fbr_cpulist_next(const char **at, unsigned *first, unsigned *last);

/* Numbers from low to high (to first..last) into a list; start with {.out = , .size = }. */
struct fbr_cpulist {
    char *out;
    size_t size, len;
    bool open;            /* a range was begun and is not written */
    unsigned first, last; /* it */
    bool full;            /* it did not fit: `out` ends before */
};

void fbr_cpulist_add(struct fbr_cpulist *l, unsigned first, unsigned last);
/* Writes what is left. 0, or -E2BIG. */
int fbr_cpulist_end(struct fbr_cpulist *l);

#endif
