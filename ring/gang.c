/* gang.c - all or none: a ring that has some of its places, and cannot get the others, releases
 * those that it has.
 *
 * Two rings may each hold half of a cluster and wait for the other half for ever. So nodes that
 * have joined wait at most `gang_timeout` for nodes that have no place yet. Other waits have other
 * limits: the backend gives up a node that has its place and waits for its image; start_timeout
 * limits the wait for a node that runs and has not joined. A ring without any place blocks no other
 * ring, so it may wait.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ring/ring_priv.h"
#include "runtime/base/log.h"

static void on_time(void *arg);

static void start(struct fiber_ring *r)
{
    int64_t ms = fbr_config_ms(r->rt->config, "gang_timeout");

    if (ms > 0 && fbr_timer_init(&r->gang, r->rt->loop, on_time, r) == 0)
        fbr_timer_start(&r->gang, (uint64_t)ms, 0);
}

static void on_time(void *arg)
{
    struct fiber_ring *r = arg;
    struct fbr_pending waiting = {0};
    uint32_t ready = 0, pending = 0;

    for (uint32_t i = 0; i < r->nagents; i++) {
        struct ring_agent *a = &r->agents[i];
        bool wants = a->state == AGENT_STARTING && fbr_process_wants_place(a->process);

        ready += a->state == AGENT_READY;
        pending += wants;
        if (wants)
            fbr_pending_add(&waiting, fbr_process_pending(a->process), 0);
    }
    for (size_t n = strlen(waiting.text); n > 0 && waiting.text[n - 1] == '.'; n--)
        waiting.text[n - 1] = '\0'; /* the report adds the full stop */
    if (ready && pending)
        fbr_ring_fail(r, NULL, 0, 125,
                      "Request less (-n, --nodes, --mem, --gpus-per-rank), use a queue or a gang "
                      "scheduler that places all at once, or set gang_timeout (0: no limit).",
                      "%u of the ring's %u nodes have joined, and %u got no place within %g s "
                      "(gang_timeout), so all are released: %s",
                      ready, r->nagents, pending,
                      (double)fbr_config_ms(r->rt->config, "gang_timeout") / 1e3, waiting.text);
    else if (ready) {
        fbr_info("ring: gang_timeout has expired, and all nodes have their places; waiting for "
                 "those that are not ready");
        start(r);
    }
}

void fbr_ring_gang_wait(struct fiber_ring *r)
{
    bool ready = false;

    for (uint32_t i = 0; i < r->nagents && !ready; i++)
        ready = r->agents[i].state == AGENT_READY;
    if (ready && !fbr_timer_runs(&r->gang))
        start(r);
}
