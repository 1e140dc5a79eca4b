/* consumer.c - the smallest program of a user.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fiber.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rc = fiber_init(&argc, &argv);

    if (rc) {
        fprintf(stderr, "fiber_init: %s\n", fiber_last_error());
        return 1;
    }
    puts(fiber_strerror(-ENOENT));
    return 0;
}
