/* cp.h - what `fiber cp` is told; for its test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CP_H
#define CLI_CP_H

#include <stdbool.h>

struct cp_place {
    char run[64], job[64]; /* job "" when none is named */
    const char *path;      /* within what was typed */
};

/* Takes "RUN/JOB:PATH" or "RUN:PATH" apart; false: that is a file of this host. */
bool cp_place(const char *typed, struct cp_place *p);

#endif
