/* queue_pipe.c - two processes each read numbers from a pipe and put the squares into one queue.
 * SPDX-License-Identifier: Apache-2.0 */
#include <err.h>
#include <stdio.h>
#include "fiber.h"

struct places {
    struct fiber_address pipe, queue; /* plain bytes, which may travel anywhere */
};

static void must(int rc) /* on failure: prints why, and ends this process */
{
    if (rc < 0)
        errx(1, "%s", fiber_last_error());
}

static int square_numbers(const void *arg, size_t len)
{
    const struct places *places = arg;
    struct fiber_queue *queue;
    struct fiber_pipe *pipe;
    struct fiber_bytes in;

    (void)len;
    must(fiber_pipe_connect(&pipe, &places->pipe));
    must(fiber_queue_connect(&queue, &places->queue));
    for (; fiber_pipe_recv(pipe, &in, -1) == 0;
         fiber_bytes_free(&in)) /* until the other end is closed */
        must(fiber_queue_put(queue, &(int){*(int *)in.data * *(int *)in.data}, sizeof(int), -1));
    fiber_queue_close(queue); /* waits until everything has arrived */
    return 0;
}

int main(int argc, char **argv)
{
    struct fiber_process *process[2];
    struct fiber_pipe *ends[2];
    struct fiber_queue *queue;
    struct fiber_bytes out;
    struct places places;
    int sum = 0;

    must(fiber_init(&argc, &argv));
    must(fiber_queue_open(&queue, 0));
    must(fiber_queue_address(queue, &places.queue));
    for (int p = 0; p < 2; p++) {
        must(fiber_pipe_open(ends, FIBER_PIPE_ONEWAY));
        must(fiber_pipe_address(ends[0], &places.pipe));
        must(fiber_process_start(&process[p], square_numbers, &places, sizeof(places), NULL));
        for (int i = 1; i <= 100; i++)
            must(fiber_pipe_send(ends[1], &i, sizeof(i), -1));
        fiber_pipe_close(ends[1]);
    }
    for (int i = 0; i < 200; i++, fiber_bytes_free(&out)) {
        must(fiber_queue_get(queue, &out, -1));
        sum += *(int *)out.data;
    }
    printf("twice the sum of the squares from 1 to 100 is %d\n", sum);
    return 0;
}
