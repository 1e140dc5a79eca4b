/* print.c - what --json prints; see print.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/print.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/option.h"

bool cli_is_screen(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

int cli_print_json(FILE *out, struct fbr_json *j)
{
    char *text = fbr_json_take(j);

    if (!text)
        return cli_failed(1, "out of memory");
    fprintf(out, "%s\n", text);
    free(text);
    return 0;
}
