/* apps.h - what the ranks of a ring run: one program, or several with ranks of their own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_RING_APPS_H
#define FBR_RING_APPS_H

#include "fiber.h"
#include "ring/job_codec.h"
#include "runtime/base/error.h"

/* How many there are: 1 when the options name none but job.command, or a function. */
int fbr_ring_apps_count(const struct fiber_ring_options *o);
/* The i-th of them in a ring of that size. */
struct fiber_ring_program fbr_ring_app(const struct fiber_ring_options *o, int size, int i);
/* Whether they make `size` ranks: -EINVAL and a sentence. */
int fbr_ring_apps_check(const struct fiber_ring_options *o, int size, struct fbr_error *err);
/* A deep copy of the options' programs; -ENOMEM. */
int fbr_ring_apps_copy(struct fiber_ring_program **out, const struct fiber_ring_options *o);
void fbr_ring_apps_free(struct fiber_ring_program *programs, int n);
/* As they travel: each with the NAME=VALUE of `before`, the job's and its own, and `after`; both
 * end with NULL. NULL without memory; free with fbr_apps_free(). */
struct fbr_app *fbr_ring_apps_make(const struct fiber_ring_options *o, int size,
                                   const char *const *before, const char *const *after);
/* For people: "a x : b", cut to size. */
void fbr_ring_apps_name(const struct fiber_ring_options *o, char *out, size_t size);

#endif
