/* cp.h - the operands of `fiber cp`; for its test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#define CP_NAME 64 /* no run and no job has so long a name, but a file may have */

struct cp_place {
    char job[2 * CP_NAME]; /* "RUN/JOB" or "RUN" */
    const char *path;      /* points into the operand */
};

/* Splits "RUN/JOB:PATH" or "RUN:PATH"; false: `typed` is a file of this host. */
bool cp_place(const char *typed, struct cp_place *p);
