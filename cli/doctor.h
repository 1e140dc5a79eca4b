/* doctor.h - the report of `fiber doctor`, and its checks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

enum doctor_state {
    DOCTOR_GOOD,
    DOCTOR_ABSENT, /* not available here, and not needed by every user */
    DOCTOR_BAD,    /* something will not work, or slowly */
};

struct doctor; /* collects the report */

/* Adds one line to the report. `mend`, the remedy, may be "". */
void doctor_report(struct doctor *d, const char *name, enum doctor_state state, const char *mend,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

void doctor_place(struct doctor *d); /* configuration and run directory */
void doctor_machine(struct doctor *d);
void doctor_bootstraps(struct doctor *d);
/* only: the only backend to check, which counts as needed; NULL: all. Ten seconds at most for
 * each. */
void doctor_backends(struct doctor *d, const char *only);

/* Runs a program for at most five seconds and copies the first line of its output; argv is
 * NULL-terminated and searched in PATH. 0; -ENOENT: there is no such program; -ETIMEDOUT; -EIO: it
 * failed, and printed nothing. */
int doctor_ask(const char *const *argv, char *line, size_t size);
/* The same with all its output, or as much as fits. */
int doctor_ask_all(const char *const *argv, char *text, size_t size);
