/* serve_prog.c - a worker program of its own: answers each task with its input reversed; "die" ends
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fiber.h"

static int reverse(const void *in, size_t len, struct fiber_reply *reply)
{
    const char *from = in;
    char *to;

    if (len == 3 && memcmp(in, "die", 3) == 0)
        abort();
    if (len == 4 && memcmp(in, "fail", 4) == 0)
        return fiber_reply_fail(reply, -1000, "as you like");
    to = fiber_reply_alloc(reply, len);
    if (!to)
        return -1;
    for (size_t i = 0; i < len; i++)
        to[i] = from[len - 1 - i];
    return 0;
}

int main(int argc, char **argv)
{
    int rc = fiber_init(&argc, &argv);

    if (argc == 2 && strcmp(argv[1], "refuse") == 0) {
        fprintf(stderr, "no licence found\n");
        return 3;
    }
    if (rc == 1)
        rc = fiber_serve(reverse);
    else if (rc == 0)
        rc = fiber_serve(reverse) == 0; /* not started by a pool: an error */
    if (rc)
        fprintf(stderr, "serve_prog: %s\n", fiber_last_error());
    return rc ? 1 : 0;
}
