/* hello_pool.c - runs a function over an array, in worker processes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "fiber.h"

static int square(const void *in, size_t len, struct fiber_reply *reply) /* runs in a worker */
{
    int x = *(const int *)in, y = x * x;

    (void)len;
    return fiber_reply_write(reply, &y, sizeof(y));
}

int main(int argc, char **argv)
{
    int in[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, out[10];
    struct fiber_pool *pool;

    if (fiber_init(&argc, &argv) < 0 ||
        fiber_pool_open(&pool, NULL) < 0) { /* one worker per processor */
        fprintf(stderr, "hello_pool: %s\n", fiber_last_error());
        return 1;
    }
    if (fiber_pool_map(pool, square, in, sizeof(in[0]), out, sizeof(out[0]), 10, NULL) < 0) {
        fprintf(stderr, "hello_pool: %s\n", fiber_last_error());
        return 1;
    }
    for (int i = 0; i < 10; i++)
        printf("%d squared is %d\n", in[i], out[i]);
    fiber_pool_close(pool);
    return 0;
}
