/* pool_prog.c - a pool of two workers, a task that fails, and a task that prints two lines and ends when a byte comes
 * through the FIFO that is named; with a number instead, so many tasks of a millisecond.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fiber.h"

static int wait_for_byte(const void *in, size_t len, struct fiber_reply *reply)
{
    char path[256] = "", byte;
    int fd;

    puts("waits for a byte");
    fflush(stdout);
    fputs("says so\n", stderr);
    memcpy(path, in, len < sizeof(path) ? len : sizeof(path) - 1);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : 1;
}

static int refuse(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_fail(reply, -EDOM, "refused");
}

static int nap(const void *in, size_t len, struct fiber_reply *reply)
{
    usleep(1000); /* the work of the task */
    return fiber_reply_write(reply, in, 1);
}

static int map(struct fiber_pool *pool, size_t n)
{
    char *in = calloc(n, 1), *out = malloc(n);
    int rc = in && out ? fiber_pool_map(pool, nap, in, 1, out, 1, n, NULL) : 1;

    free(in);
    free(out);
    return rc;
}

int main(int argc, char **argv)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    struct fiber_bytes out = {NULL, 0};
    struct fiber_pool *pool;
    int rc;

    if (fiber_init(&argc, &argv) < 0 || argc < 2 || fiber_pool_open(&pool, &o) < 0) {
        fprintf(stderr, "pool_prog FIFO|N: %s\n", fiber_last_error());
        return 2;
    }
    if (atol(argv[1]))
        rc = map(pool, (size_t)atol(argv[1]));
    else if ((rc = fiber_pool_apply(pool, refuse, NULL, 0, NULL)) == -EDOM)
        rc = fiber_pool_apply(pool, wait_for_byte, argv[1], strlen(argv[1]), &out);
    fiber_bytes_free(&out);
    fiber_pool_close(pool);
    return rc != 0;
}
