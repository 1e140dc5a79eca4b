/* ring.h - calls on rings that the `fiber` command needs and fiber.h does not have.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "fiber.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

struct fbr_pin_wish;
struct fbr_plan;

/* Reads from the options how ranks are bound. */
int fbr_ring_wish(struct fbr_pin_wish *w, const struct fiber_ring_options *o,
                  struct fbr_error *err);
/* Plans from the options which ranks each node has. */
int fbr_ring_plan(struct fbr_plan *p, int size, const struct fiber_ring_options *o,
                  struct fbr_error *err);
/* Describes the start that these options would make, as text for people: the argv of a rank,
 * ranks by node, bindings on this machine (for the local backend). Starts nothing. `hosts`: the
 * name of each node; NULL: not known yet. The caller frees the text. Returns NULL and keeps an
 * error if the options are wrong. */
char *fbr_ring_plan_text(int size, const struct fiber_ring_options *opts, const char *const *hosts);
/* The same as a JSON object. */
char *fbr_ring_plan_json(int size, const struct fiber_ring_options *opts, const char *const *hosts);

/* Checks the directory or the pattern for the output of ranks: 0, or -EINVAL. */
int fbr_ring_output_check(const char *output, int size, struct fbr_error *err);

/* Facts about a run that fiber_ring_stats() does not have: those that stay, those that change. */
const struct fbr_run_control_about *fbr_ring_about(const struct fiber_ring *ring);
void fbr_ring_facts(struct fiber_ring *ring, struct fbr_run_facts *facts);
/* Stops the ranks before the caller stops itself, or lets them go on when it goes on. No agent
 * takes the silence for the launcher's death. Returns when all agents have been notified, or
 * after 2 s. */
void fbr_ring_suspend(struct fiber_ring *ring, bool suspend);
/* Waits until the output of a ring that has ended is written, at most `ms`, however slow its reader
 * is: fiber_ring_wait() gives up a reader that takes nothing for a second. *moved: something was
 * written since the last call. */
bool fbr_ring_wait_output(struct fiber_ring *ring, int ms, bool *moved);
/* Gives up the output that is not written, because a signal asked us to end: the ring fails, unless
 * it has failed before, and later calls do not wait for the output. */
void fbr_ring_give_up_output(struct fiber_ring *ring, int sig);
/* Gives the new size of our terminal to a rank's pseudo-terminal. */
void fbr_ring_resize(struct fiber_ring *ring);
