/* ring_control.c - answers the requests of `fiber ps`, `logs`, `kill` and `top` to a ring;
 * run_control.h has the calls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ring/apps.h"
#include "runtime/inspect/run_control.h"
#include "ring/ring_priv.h"
#include "runtime/base/log.h"
#include "runtime/program/script.h"

static void control_facts(void *user, struct fbr_run_facts *facts)
{
    fbr_ring_facts(user, facts);
}

static int control_stats(void *user, struct fbr_run_rank *out, int max)
{
    struct fiber_rank_stats *stats = calloc((size_t)max, sizeof(*stats));
    int n = stats ? fiber_ring_stats(user, stats, max) : -ENOMEM;

    for (int i = 0; i < n && i < max; i++)
        out[i].stats = stats[i];
    free(stats);
    return n;
}

static void control_look(void *user)
{
    static const struct fbr_buf none;

    fbr_ring_send_all(user, FBR_RING_LOOK, &none);
}

static int control_signal(void *user, int rank, int sig)
{
    return fbr_ring_signal_one(user, rank, sig);
}

static int control_stop(void *user)
{
    fbr_ring_stop(user);
    return 0;
}

/* Returns the agent of the rank: it is on the same host and has the same files. */
static struct fiber_process *control_host(void *user, int rank, struct fbr_error *err)
{
    struct fiber_ring *r = user;
    const struct ring_job *last = fbr_ring_newest(r);
    struct ring_agent *a;

    if (rank < 0)
        rank = 0;
    if (!last || (uint32_t)rank >= last->job.info.size) {
        fbr_fail(err, -ESRCH, last ? "there is no rank %d" : "rank %d has no node yet", rank);
        return NULL;
    }
    a = fbr_ring_agent_of(last, (uint32_t)rank);
    if (!a->process)
        fbr_fail(err, -ESRCH, "the agent of rank %d is gone", rank);
    return a->process;
}

/* Writes the name that the user has given; else that of the first program, or of ours. */
static void name_of(const struct fiber_ring *r, char *out, size_t size)
{
    const char *named = r->options.job.name;
    const char *const *command = (const char *const *)r->programs[0].argv;

    if (named && named[0])
        snprintf(out, size, "%s", named);
    else if (command[0])
        fbr_script_name(command, out, size);
    else
        fbr_script_own(out, size, NULL, 0);
}

void fbr_ring_describe(struct fiber_ring *r, const struct fiber_ring_options *o)
{
    struct fbr_run_control_about *a = &r->about;
    char text[sizeof(a->command)];

    a->pid = getpid();
    a->started_ms = fbr_wall_ms();
    a->size = (int32_t)r->size;
    a->unkept = fbr_config_size(r->rt->config, "log_keep") == 0;
    name_of(r, text, sizeof(a->name));
    fbr_printable_plain(a->name, sizeof(a->name), text);
    fbr_ring_apps_name(o, text, sizeof(text));
    if (!text[0])
        fbr_script_own(NULL, 0, text, sizeof(text));
    fbr_printable_plain(a->command, sizeof(a->command), text);
    snprintf(a->backend, sizeof(a->backend), "%s", fbr_ring_backend(r));
    if (r->options.output_dir)
        snprintf(a->output_dir, sizeof(a->output_dir), "%.500s", r->options.output_dir);
}

void fbr_ring_control_open(void *arg)
{
    struct fiber_ring *r = arg;
    static const struct fbr_run_control_ops ops = {.facts = control_facts,
                                                   .stats = control_stats,
                                                   .look = control_look,
                                                   .signal = control_signal,
                                                   .stop = control_stop,
                                                   .host = control_host};
    struct fbr_error err = {0, ""};

    if (r->state == R_ENDED || r->control)
        return;
    if (fbr_run_control_open(&r->control, r->rt->loop, &ops, r, &r->about, &err) < 0)
        fbr_warn("`fiber ps` will not show this ring: %s", err.text);
}
