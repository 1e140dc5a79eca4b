/* autoscale.c - how many workers an autoscaled pool wants, and when to look again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/autoscale.h"

int fbr_autoscale_target(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                         uint64_t now_ns)
{
    const struct fbr_dispatch_stats *s = fbr_dispatch_stats(d);
    uint64_t want = s->workers - s->idle + s->waiting;

    if (w->target < w->max)
        want += fbr_dispatch_ahead(d, now_ns);
    if (want > (uint64_t)w->max)
        want = (uint64_t)w->max;
    return (int)want > w->target ? (int)want : w->target;
}

bool fbr_autoscale_spares(const struct fbr_autoscale *w, const struct fbr_dispatch *d,
                          uint64_t now_ns, uint64_t worker)
{
    uint64_t since = fbr_dispatch_worker_idle_since(d, worker);

    if (w->target <= w->min || since == FBR_DISPATCH_NEVER)
        return false;
    return fbr_dispatch_stats(d)->waiting == 0 && now_ns - since > w->idle_ns;
}

uint64_t fbr_autoscale_next_ms(const struct fbr_autoscale *w, uint64_t now_ms, uint64_t undone)
{
    bool busy = undone || w->target > w->min;

    return w->min < w->max && busy ? now_ms + FBR_AUTOSCALE_TICK_MS : UINT64_MAX;
}
