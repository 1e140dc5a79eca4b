/* entry.h - a function to run instead of main(), for programs that start without a parent of
 * Fiber's own: the ranks of a ring.
 *
 * FIBER_WORK names a file in a directory of mode 0700: the run's directory on this host, the
 * reference of a fiber_process_fn (fnref.h), and its argument. Several processes may read it; the
 * owner of the directory removes it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"
#include "runtime/proc/rundir.h"

#define FBR_ENTRY_ENV "FIBER_WORK"

/* Appends what is the same on all hosts: function and argument. The run's directory (str) comes
 * first in the file. */
int fbr_entry_put(struct fbr_buf *b, fiber_process_fn fn, const void *arg, size_t len,
                  struct fbr_error *err);
/* Runs the function that the environment names, and exits with its code. Before, `root` gets the
 * run's directory on this host, which this process is to join. Returns 0 if the environment names
 * none, else the error. */
int fbr_entry_run(char root[FBR_DIR_MAX], struct fbr_error *err);
