/* print.h - what --json prints, in one way for all subcommands.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stdbool.h>
#include <stdio.h>

#include "ring/json_out.h"

/* There is a terminal, and TERM does not say that it is dumb: it knows escape sequences. */
bool cli_is_screen(int fd);

/* The finished text as one line; j is freed. 0, or 1 after it was said on standard error that there is no
 * memory for it. */
int cli_print_json(FILE *out, struct fbr_json *j);

#endif
