/* doctor.h - what `fiber doctor` found, and the checks that find it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stddef.h>

enum doctor_state {
    DOCTOR_GOOD,
    DOCTOR_ABSENT, /* not here, and not needed by everybody */
    DOCTOR_BAD,    /* something will not work, or slowly */
};

struct doctor; /* collects */

/* One line of the report. `mend`, the line that mends it, may be "". */
void doctor_report(struct doctor *d, const char *name, enum doctor_state state, const char *mend,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

void doctor_place(struct doctor *d); /* configuration and run directory */
void doctor_machine(struct doctor *d);
void doctor_bootstraps(struct doctor *d);
/* only: that one, which is needed then; NULL: all. Ten seconds at most for each. */
void doctor_backends(struct doctor *d, const char *only);

/* The first line that a program prints, at most five seconds; NULL-terminated argv, searched in
 * PATH. 0, or -ENOENT when there is none, -ETIMEDOUT, -EIO when it fails. */
int doctor_ask(const char *const *argv, char *line, size_t size);
/* All that it prints, or as much as fits. */
int doctor_ask_all(const char *const *argv, char *text, size_t size);
/* Where a program of that name is in PATH; -ENOENT. */
int doctor_which(const char *name, char *path, size_t size);

#endif
