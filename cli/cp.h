/* cp.h - the operands of `fiber cp`; for its test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CP_H
#define CLI_CP_H

#include <stdbool.h>

struct cp_place {
    char job[128];    /* "RUN/JOB" or "RUN" */
    const char *path; /* points into the operand */
};

/* Splits "RUN/JOB:PATH" or "RUN:PATH"; false: `typed` is a file of this host. */
bool cp_place(const char *typed, struct cp_place *p);

#endif
