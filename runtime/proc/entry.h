/* entry.h - a function to run instead of main(), for programs that start without a parent of
 * Fiber's own: the ranks of a ring.
 *
 * FIBER_WORK names a file in a directory of mode 0700: [reference of a fiber_process_fn: fnref.h],
 * then its argument. Several processes may read it; the owner of the directory removes it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ENTRY_H
#define FBR_ENTRY_H

#include "fiber.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_ENTRY_ENV "FIBER_WORK"

int fbr_entry_put(struct fbr_buf *b, fiber_process_fn fn, const void *arg, size_t len,
                  struct fbr_error *err);
/* Runs the function that the environment names, and exits with its code. Returns 0 if the
 * environment names none, else the error. */
int fbr_entry_run(struct fbr_error *err);

#endif
