/* cpulist.c - reads and writes the kernel's lists of processors and NUMA nodes, and reads its
 * sets of processors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/cpulist.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static bool number(const char **at, unsigned *n)
{
    const char *p = *at;

    for (*n = 0; *p >= '0' && *p <= '9'; p++) {
        *n = *n * 10 + (unsigned)(*p - '0');
        if (*n >= FBR_CPU_MAX)
            return false;
    }
    if (p == *at)
        return false;
    *at = p;
    return true;
}

int fbr_cpulist_next(const char **at, unsigned *first, unsigned *last)
{
    const char *p = *at;

    if (!*p)
        return 0;
    if (!number(&p, first))
        return -EINVAL;
    *last = *first;
    if (*p == '-') {
        p++;
        if (!number(&p, last) || *last < *first)
            return -EINVAL;
    }
    if (*p == ',' && p[1])
        p++;
    else if (*p)
        return -EINVAL;
    *at = p;
    return 1;
}

static void write_range(struct fbr_cpulist *l)
{
    char text[32];
    int n;

    if (l->first == l->last)
        n = snprintf(text, sizeof(text), "%s%u", l->len ? "," : "", l->first);
    else
        n = snprintf(text, sizeof(text), "%s%u-%u", l->len ? "," : "", l->first, l->last);
    l->open = false;
    if (l->full || l->len + (size_t)n >= l->size) {
        l->full = true;
        return;
    }
    memcpy(l->out + l->len, text, (size_t)n + 1);
    l->len += (size_t)n;
}

void fbr_cpulist_add(struct fbr_cpulist *l, unsigned number)
{
    if (l->open && number != l->last + 1)
        write_range(l);
    if (!l->open)
        l->first = number;
    l->last = number;
    l->open = true;
}

int fbr_cpulist_end(struct fbr_cpulist *l)
{
    if (!l->len && l->size)
        l->out[0] = '\0';
    if (l->open)
        write_range(l);
    return l->full ? -E2BIG : 0;
}

int fbr_cpuset_read(struct fbr_cpuset *set, int pid)
{
    memset(set, 0, sizeof(*set));
    return sched_getaffinity(pid, sizeof(*set), (cpu_set_t *)(void *)set) < 0 ? -errno : 0;
}

bool fbr_cpuset_has(const struct fbr_cpuset *set, unsigned cpu)
{
    return set->bits[cpu / 8] >> cpu % 8 & 1;
}

unsigned fbr_cpuset_count(const struct fbr_cpuset *set)
{
    unsigned n = 0;

    for (unsigned i = 0; i < sizeof(set->bits); i++)
        n += (unsigned)__builtin_popcount(set->bits[i]);
    return n;
}
