/* cp.h - the operands of `fiber cp`; for its test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CP_H
#define CLI_CP_H

#include <stdbool.h>

struct cp_place {
    char run[64], job[64]; /* job is "" if none was given */
    const char *path;      /* points into the operand */
};

/* Splits "RUN/JOB:PATH" or "RUN:PATH"; false: `typed` is a file of this host. */
bool cp_place(const char *typed, struct cp_place *p);

#endif
