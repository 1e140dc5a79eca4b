/* processes.c - job-backed processes: arguments, exit codes, death, and a process that starts one
 * of its own. SPDX-License-Identifier: Apache-2.0 */
#include <err.h>
#include <stdio.h>
#include <unistd.h>
#include "fiber.h"

static struct fiber_process *start(fiber_process_fn fn, const void *arg, size_t len)
{
    struct fiber_process *p;

    if (fiber_process_start(&p, fn, arg, len, NULL) < 0)
        errx(1, "%s", fiber_last_error());
    return p;
}

static int finish(struct fiber_process *p) /* waits for the process; returns its exit code */
{
    int code;

    if (fiber_process_join(p, -1) < 0 || fiber_process_exitcode(p, &code) < 0)
        errx(1, "%s", fiber_last_error());
    fiber_process_close(p);
    return code;
}

static int add(const void *arg, size_t len)
{
    const int *x = arg;

    (void)len;
    return x[0] + x[1]; /* the exit code, 0 to 255 */
}

static int add_elsewhere(const void *arg, size_t len) /* a process starts a process */
{
    return finish(start(add, arg, len));
}

static int wait_for_ever(const void *arg, size_t len)
{
    (void)arg, (void)len;
    return pause();
}

int main(int argc, char **argv)
{
    int x[] = {3, 39};
    struct fiber_process *sum, *nested, *waiting;

    if (fiber_init(&argc, &argv) < 0)
        errx(1, "%s", fiber_last_error());
    sum = start(add, x, sizeof(x)); /* the three run at the same time */
    nested = start(add_elsewhere, x, sizeof(x));
    waiting = start(wait_for_ever, NULL, 0);
    printf("the sum is %d; a process of a process says %d\n", finish(sum), finish(nested));
    fiber_process_kill(waiting);
    printf("a process that was killed has exit code %d\n", finish(waiting));
    return 0;
}
