/* held.c - the account of the memory that a process keeps for other processes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/held.h"

#include <errno.h>

#define ALWAYS (16u << 20) /* below this many bytes, find() is not called */

uint64_t fbr_held_limit(struct fbr_held *h)
{
    uint64_t limit = h ? __atomic_load_n(&h->limit, __ATOMIC_RELAXED) : 0;

    if (limit || !h || !h->find)
        return limit;
    limit = h->find();
    __atomic_store_n(&h->limit, limit, __ATOMIC_RELAXED);
    return limit;
}

static bool fits(struct fbr_held *h, uint64_t bytes)
{
    uint64_t known = __atomic_load_n(&h->limit, __ATOMIC_RELAXED);
    uint64_t limit = known || bytes <= ALWAYS ? known : fbr_held_limit(h);

    return !limit || bytes <= limit;
}

int fbr_held_reserve(struct fbr_held *h, uint64_t n)
{
    if (!h || !n || fits(h, __atomic_add_fetch(&h->bytes, n, __ATOMIC_RELAXED)))
        return 0;
    fbr_held_release(h, n);
    return -ENOBUFS;
}

void fbr_held_release(struct fbr_held *h, uint64_t n)
{
    if (h && n)
        __atomic_sub_fetch(&h->bytes, n, __ATOMIC_RELAXED);
}

bool fbr_held_full(struct fbr_held *h, uint64_t n)
{
    return h && !fits(h, __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) + n);
}

void fbr_held_set(struct fbr_held *h, struct fbr_held_part *part, uint64_t bytes)
{
    if (!h || part->bytes == bytes)
        return;
    __atomic_add_fetch(&h->bytes, bytes - part->bytes, __ATOMIC_RELAXED);
    part->bytes = bytes;
}
