/* ring_run.c - computes pi in four ranks that run a C function, without MPI.
 *
 * Rank 0 sends the number of steps (broadcast), each rank adds up its part, and all ranks get the
 * sum (allreduce).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include "fiber.h"

#define WAIT_MS 60000 /* longest wait for the other ranks */

static int failed(const char *what)
{
    fprintf(stderr, "ring_run: %s: %s\n", what, fiber_last_error());
    return 1;
}

static int pi(int rank, int size, const void *arg, size_t len) /* runs in each rank */
{
    int64_t steps = rank == 0 ? *(const int64_t *)arg : 0;
    double sum = 0;

    (void)len;
    if (fiber_ring_broadcast(&steps, sizeof(steps), 0, WAIT_MS) < 0)
        return failed("broadcast");
    for (int64_t i = rank; i < steps; i += size) {
        double x = ((double)i + 0.5) / (double)steps;

        sum += 4 / (1 + x * x) / (double)steps;
    }
    if (fiber_ring_allreduce(&sum, 1, FIBER_RING_DOUBLE, FIBER_RING_SUM, WAIT_MS) < 0)
        return failed("allreduce");
    if (rank == 0)
        printf("pi is %.9f, as %d ranks say\n", sum, size);
    if (fiber_ring_barrier(WAIT_MS) < 0)
        return failed("barrier");
    return fabs(sum - 3.141592653589793) < 1e-9 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct fiber_ring_options options = {.size = sizeof(options),
                                         .flags = FIBER_RING_OVERSUBSCRIBE};
    int64_t steps = 1000000;
    int code;

    if (fiber_init(&argc, &argv) < 0)
        return failed("init");
    code = fiber_ring_run(4, pi, &steps, sizeof(steps), &options);
    return code < 0 ? failed("ring") : code;
}
