/* apps.h - the programs that the ranks of a ring run: one, or several with ranks of their own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "ring/job_codec.h"
#include "runtime/base/error.h"

/* The number of programs: 1 if the options have only job.command or a function. */
int fbr_ring_apps_count(const struct fiber_ring_options *o);
/* Program i of a ring of `size` ranks. */
struct fiber_ring_program fbr_ring_app(const struct fiber_ring_options *o, int size, int i);
/* Checks that the programs make `size` ranks. Returns 0, or -EINVAL and a sentence. */
int fbr_ring_apps_check(const struct fiber_ring_options *o, int size, struct fbr_error *err);
/* Makes the programs that are sent to agents, a copy of all that the options say of them. Each gets
 * the NAME=VALUE strings of the job and its own. Returns NULL without memory; free with
 * fbr_apps_free(). */
struct fbr_app *fbr_ring_apps_make(const struct fiber_ring_options *o, int size);
/* Writes the programs for people, as in "a x : b", cut to size. */
void fbr_ring_apps_name(const struct fiber_ring_options *o, char *out, size_t size);
