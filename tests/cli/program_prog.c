/* program_prog.c - a program that has a manager and two processes, of which one ends at once, and
 * the other prints two lines and ends when a byte comes through the FIFO that is named; with a
 * second argument, a pool as well.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fiber.h"

static int end_at_once(const void *arg, size_t len)
{
    return 0;
}

static int wait_for_byte(const void *arg, size_t len)
{
    char path[256] = "", byte;
    int fd;

    puts("waits for a byte");
    fflush(stdout);
    fputs("says so\n", stderr);
    memcpy(path, arg, len < sizeof(path) ? len : sizeof(path) - 1);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : 1;
}

static int answer(void *state, const char *method, const void *in, size_t len,
                  struct fiber_reply *reply)
{
    return 0;
}

static int failed(void)
{
    fprintf(stderr, "program_prog FIFO: %s\n", fiber_last_error());
    return 2;
}

int main(int argc, char **argv)
{
    struct fiber_process_options named = {.size = sizeof(named), .job.name = "waiter"};
    const struct fiber_class nothing = {.size = sizeof(nothing), .call = answer};
    struct fiber_process *first, *second;
    struct fiber_manager *manager;
    struct fiber_pool *pool = NULL;
    int code = 1;

    if (fiber_init(&argc, &argv) < 0 || argc < 2 ||
        fiber_manager_start(&manager, &nothing, NULL, 0, NULL) < 0 ||
        fiber_process_start(&first, end_at_once, NULL, 0, NULL) < 0 ||
        fiber_process_start(&second, wait_for_byte, argv[1], strlen(argv[1]), &named) < 0 ||
        (argc > 2 && fiber_pool_open(&pool, NULL) < 0) || fiber_process_join(first, -1) < 0 ||
        fiber_process_join(second, -1) < 0)
        return failed();
    fiber_process_exitcode(second, &code);
    fiber_pool_close(pool);
    fiber_manager_close(manager);
    fiber_process_close(first);
    fiber_process_close(second);
    return code;
}
