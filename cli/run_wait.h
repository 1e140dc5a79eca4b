/* run_wait.h - waits for a ring in the terminal's way: signals, and words about what takes long.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_WAIT_H
#define CLI_RUN_WAIT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "fiber.h"

/* Returns those of the n signals that are not ignored. */
sigset_t run_wait_unignored(const int *list, size_t n);

/* Before the first thread is started: from now on the signals wait for run_wait(). */
void run_wait_prepare(void);
/* Waits until the ring has ended. SIGINT, SIGTERM and SIGHUP: once it is stopped gracefully, twice
 * its ranks are killed; SIGUSR1 and SIGUSR2 go to every rank; SIGTSTP stops them and then us,
 * SIGCONT lets them go on. Answers 0, or the signal that stopped it. */
int run_wait(struct fiber_ring *ring, bool quiet);
/* Dies of that signal, as our parent would expect it; after everything is closed. */
void run_wait_die(int sig);

#endif
