/* run_control.h - the control socket of a run, a ring or a pool, in its launcher, for `fiber ps`,
 * `logs`, `kill`, `top` and `scale`.
 *
 * It is a unix socket in a directory that only this user can enter (registry.h). A caller that is
 * another user, as the kernel reports (SO_PEERCRED), is disconnected; root is not. Requests and
 * answers: run_control_wire.h.
 *
 * All functions run on the loop thread, and so do the functions that they call.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/run_control_wire.h"
#include "runtime/inspect/registry.h"
#include "runtime/base/error.h"
#include "runtime/net/loop.h"

/* Functions of the run, which the control socket calls. */
struct fbr_run_control_ops {
    void (*facts)(void *user, struct fbr_run_facts *facts);
    /* As fiber_ring_stats(); `out` is zeroed. */
    int (*stats)(void *user, struct fbr_run_rank *out, int max);
    /* Asks for processor time and memory. A call of stats() has them some milliseconds later. */
    void (*look)(void *user);
    int (*signal)(void *user, int rank, int signal); /* rank -1: all */
    int (*stop)(void *user);                         /* as fiber_ring_stop() */
    int (*scale)(void *user, int workers);           /* NULL: the size of the run is fixed */
    /* Returns the process that serves clients of that rank or worker (-1: any that can), or NULL
     * and a sentence. NULL: no process of the run can. */
    struct fiber_process *(*host)(void *user, int rank, struct fbr_error *err);
};

struct fbr_run_control;

/* Adds the run to the registry by the name about->uid, and listens. If that fails (a full disk, for
 * instance), the run goes on without a control socket: a warning is enough. */
int fbr_run_control_open(struct fbr_run_control **c, struct fbr_loop *loop,
                         const struct fbr_run_control_ops *ops, void *user,
                         const struct fbr_run_control_about *about, struct fbr_error *err);
/* Notes in the registry that the run's launcher will get SIGTERM, and may leave no other record of
 * its end. NULL is fine. */
void fbr_run_control_stopping(struct fbr_run_control *c);
/* Removes the run from the registry, which then lists it as ended, with this exit code, or
 * FBR_REGISTRY_LOST, and report (may be ""). NULL is fine. */
void fbr_run_control_close(struct fbr_run_control *c, int code, const char *report);
