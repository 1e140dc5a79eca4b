/* ring_door.c - what `fiber ps`, `logs`, `kill` and `top` may ask of a ring; control.h has how.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/control.h"
#include "ring/ring_priv.h"
#include "runtime/log.h"

static void door_facts(void *user, struct fbr_run_facts *facts)
{
    fbr_ring_facts(user, facts);
}

static int door_stats(void *user, struct fiber_rank_stats *out, int max)
{
    return fiber_ring_stats(user, out, max);
}

static void door_look(void *user)
{
    fbr_ring_look(user);
}

static void door_follow(void *user, void (*fn)(void *, int, int, const void *, size_t), void *arg)
{
    fbr_ring_follow(user, fn, arg);
}

static int door_signal(void *user, int rank, int sig)
{
    return fbr_ring_signal_one(user, rank, sig);
}

static int door_stop(void *user)
{
    fbr_ring_stop(user);
    return 0;
}

void fbr_ring_open_door(void *arg)
{
    struct fiber_ring *r = arg;
    static const struct fbr_control_ops ops = {.facts = door_facts,
                                               .stats = door_stats,
                                               .look = door_look,
                                               .follow = door_follow,
                                               .signal = door_signal,
                                               .stop = door_stop};
    struct fbr_control_about about = {
        .pid = getpid(), .started_ms = r->started_ms, .size = (int32_t)r->size};
    struct fbr_error err = {0, ""};

    snprintf(about.uid, sizeof(about.uid), "%s", r->uid);
    snprintf(about.name, sizeof(about.name), "%s", r->job.name ? r->job.name : "");
    snprintf(about.command, sizeof(about.command), "%s", r->command);
    snprintf(about.backend, sizeof(about.backend), "%s", fbr_ring_backend(r));
    if (r->options.output_dir)
        snprintf(about.output_dir, sizeof(about.output_dir), "%.500s", r->options.output_dir);
    if (r->state == R_ENDED || r->control)
        return;
    if (fbr_control_open(&r->control, r->rt->loop, &ops, r, &about, &err) < 0)
        fbr_warn("`fiber ps` will not show this ring: %s", err.text);
}
