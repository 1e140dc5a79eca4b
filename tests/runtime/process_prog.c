/* process_prog.c - a worker program of its own: its exit code says what it was given.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "fiber.h"

int main(int argc, char **argv)
{
    const void *work;
    size_t len;
    int rc = fiber_init(&argc, &argv);

    if (rc != 1) {
        fprintf(stderr, "not started by another one: %d\n", rc);
        return 3;
    }
    if (fiber_process_work(&work, &len) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 4;
    }
    printf("%s of %d arguments got %zu bytes\n", fiber_process_self(), argc, len);
    return len == 5 && memcmp(work, "seven", 5) == 0 ? 7 : 8;
}
