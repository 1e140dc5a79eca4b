/* ring.h - the launcher's ring, for the `fiber` command: what fiber.h does not need to say.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_H
#define FBR_RING_H

#include "fiber.h"
#include "runtime/inspect/run_control_wire.h"
#include "runtime/base/error.h"

struct fbr_pin_wish;
struct fbr_plan;

/* How its ranks are bound, by the options. */
int fbr_ring_wish(struct fbr_pin_wish *w, const struct fiber_ring_options *o,
                  struct fbr_error *err);
/* Which ranks its nodes have, by the options. */
int fbr_ring_plan(struct fbr_plan *p, int size, const struct fiber_ring_options *o,
                  struct fbr_error *err);
/* Describes the start that these options would make, as text for people: the argv of a rank, ranks
 * by node, bindings on this machine (for the local backend). Nothing is started. `hosts`: the name
 * of each node; NULL: nobody knows yet. The caller frees; NULL and a kept error when the options
 * are wrong. */
char *fbr_ring_plan_text(int size, const struct fiber_ring_options *opts, const char *const *hosts,
                         int with_map);
/* The same as a JSON object. */
char *fbr_ring_plan_json(int size, const struct fiber_ring_options *opts, const char *const *hosts);

/* More about a run than fiber_ring_stats() tells. */
void fbr_ring_facts(struct fiber_ring *ring, struct fbr_run_facts *facts);
/* Asks the agents for processor time and memory of the ranks; the next fiber_ring_stats() after
 * their answer (a few milliseconds) has them. */
void fbr_ring_look(struct fiber_ring *ring);
/* Before the caller stops itself, and when it goes on again: the ranks do the same, and no agent
 * takes the silence for death. Returns when the agents have been told (or do not listen). */
void fbr_ring_suspend(struct fiber_ring *ring, bool suspend);
/* Our terminal has another size, which a rank's pseudo-terminal gets. */
void fbr_ring_resize(struct fiber_ring *ring);
/* Sends what is shown of all ranks from now on to fn as well, on the loop
 * thread, until it is called with fn NULL: `fiber logs -f`. */
void fbr_ring_follow(struct fiber_ring *ring,
                     void (*fn)(void *user, int rank, int stream, const void *data, size_t len),
                     void *user);

#endif
