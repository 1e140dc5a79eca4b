/* run_wait.h - waits for a ring in the foreground: handles signals, and reports long waits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "fiber.h"

/* Returns those of the n signals that are not ignored. */
sigset_t run_wait_unignored(const int *list, size_t n);

/* Call before the first thread starts: from then on the signals stay pending for run_wait(). */
void run_wait_prepare(void);
/* Waits until the ring has ended and its output is written. SIGINT, SIGTERM and SIGHUP: the first
 * stops the ring gracefully, the second kills its ranks. SIGUSR1 and SIGUSR2 go to every rank.
 * SIGTSTP stops the ranks and then us, SIGCONT continues them. When the ring has ended, a signal to
 * stop gives up the output that its reader has not taken. Returns 0, or the signal that stopped the
 * ring or that wait. */
int run_wait(struct fiber_ring *ring, bool quiet);
/* Ends this process by that signal, as its parent expects; call after everything is closed. */
void run_wait_die(int sig);
