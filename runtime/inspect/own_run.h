/* own_run.h - the run that a program opens by itself: for each of its pools, and for the processes
 * that it has started otherwise.
 *
 * It gets its control socket only if it lives for a while: many programs use a pool or a process
 * for a moment, and no user would find it. The output of its jobs is kept for `fiber logs` from
 * the first byte on. Only masters have such runs.
 *
 * Loop thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/inspect/run_control.h"
#include "runtime/inspect/spool.h"
#include "runtime/proc/process.h"

struct fbr_own_run;

/* `name`, if not "", is the run's name, and else that of the program's script; `backend` as in the
 * options of a process. NULL: this process is no master, or memory is short; it goes on without. */
struct fbr_own_run *fbr_own_run_new(struct fbr_runtime *rt, enum fbr_run_kind kind,
                                    const char *name, const char *backend,
                                    const struct fbr_run_control_ops *ops, void *user);
/* The run has something to show: opens its control socket in a while, unless a process of kind
 * FBR_RUN_PROGRAM has none alive then. */
void fbr_own_run_wake(struct fbr_own_run *r);
/* Keeps output of a job. NULL is fine. */
void fbr_own_run_keep(struct fbr_own_run *r, int number, enum fbr_record_kind kind,
                      const void *data, size_t len);
/* Ends the run and frees it. Returns its spool, which another thread closes. NULL is fine. */
struct fbr_spool *fbr_own_run_end(struct fbr_own_run *r);

/* Parts of fbr_run_control_ops: stores what the process uses, and where; ends the program. */
void fbr_own_run_put(struct fiber_process *p, struct fbr_run_rank *out);
int fbr_own_run_stop(void *user);
