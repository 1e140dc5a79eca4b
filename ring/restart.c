/* restart.c - counts how often something was started again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/restart.h"

#include <stdio.h>

static uint32_t bound(uint32_t max, bool taken)
{
    return taken && max < FBR_RESTART_TAKEN ? FBR_RESTART_TAKEN : max;
}

bool fbr_restart_again(struct fbr_restarts *r, uint32_t max, bool taken)
{
    uint32_t *n = taken ? &r->taken : &r->failed;

    if (*n >= bound(max, taken))
        return false;
    ++*n;
    return true;
}

uint32_t fbr_restart_count(const struct fbr_restarts *r)
{
    return r->failed + r->taken;
}

const char *fbr_restart_describe(const struct fbr_restarts *r, uint32_t max, bool taken, char *out,
                                 size_t size)
{
    snprintf(out, size, "%u of %u%s", taken ? r->taken : r->failed, bound(max, taken),
             taken ? " after disruptions by the cluster" : "");
    return out;
}

static void put_count(uint32_t n, char *out, size_t size)
{
    if (n == 1)
        snprintf(out, size, "once");
    else
        snprintf(out, size, "%u times", n);
}

const char *fbr_restart_spent(const struct fbr_restarts *r, bool taken, char *out, size_t size)
{
    char failed[24], by_cluster[24];

    put_count(r->failed, failed, sizeof(failed));
    put_count(r->taken, by_cluster, sizeof(by_cluster));
    out[0] = '\0';
    if (taken && r->taken)
        snprintf(out, size,
                 "It was started again %s after disruptions by the cluster, which is the limit: "
                 "something stops it whenever it runs.",
                 by_cluster);
    else if (!taken && r->taken && r->failed)
        snprintf(out, size,
                 "It was started again %s, as often as --max-restarts allows, and %s after "
                 "disruptions by the cluster, which do not count.",
                 failed, by_cluster);
    else if (!taken && r->failed)
        snprintf(out, size, "It was started again %s, as often as --max-restarts allows.", failed);
    return out;
}
