/* children.h - short ways to start and end processes in tests.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fiber.h"
#include "tests/support/sync.h"

#define OPTIONS(...) \
    (&(struct fiber_process_options){.size = sizeof(struct fiber_process_options), __VA_ARGS__})

/* For main(): fiber_init(), or the reason why not and the end of this process. */
void init_fiber(int *argc, char ***argv);
/* Starts it, or fails the test. */
struct fiber_process *begin(fiber_process_fn fn, const void *arg, size_t len,
                            const struct fiber_process_options *o);
/* The same with a string as the argument. */
struct fiber_process *begin_str(fiber_process_fn fn, const char *arg);
/* Waits for its end and answers its code (or -ENODATA); fails the test when it does not end. Does
 * not close it. */
int ended(struct fiber_process *p);
/* The same, and closes it. */
int finish(struct fiber_process *p);
/* The number of processes that have not ended, as fiber_active_children() counts them, but with
 * those of pools, rings, managers and stores. *first, if not NULL: one of them. */
int children_active(struct fiber_process **first);
/* Whether text has all of these words in it; the list ends with NULL. Prints the text when it has
 * not. */
int has(const char *text, ...) __attribute__((sentinel));

/* What children do. */
int child_return(const void *arg, size_t len); /* returns the int of its argument */
int child_wait(const void *arg, size_t len);   /* pause() for ever */
int child_notify_wait(const void *gate,
                      size_t len); /* tells the gate its pid_t, then waits for ever */
