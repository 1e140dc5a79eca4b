/* pipe_bench.c - there and back through a pipe: `pipe_bench ROUNDS BYTES`.
 *
 * This process sends a message to another one, which sends it back. Output: one JSON object with the
 * microseconds of a round.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"
#include "bench.h"

#define WARM_UP 20

static int echo(const void *arg, size_t len)
{
    struct fiber_bytes message;
    struct fiber_pipe *end;
    int rc;

    if (len != sizeof(struct fiber_address) || fiber_pipe_connect(&end, arg) < 0)
        return 1;
    while ((rc = fiber_pipe_recv(end, &message, -1)) == 0) {
        if (fiber_pipe_send(end, message.data, message.len, -1) < 0)
            return 1;
        fiber_bytes_free(&message);
    }
    fiber_pipe_close(end);
    return rc != -EPIPE;
}

static double one_round(struct fiber_pipe *end, const char *data, size_t bytes)
{
    struct fiber_bytes message;
    double start = bench_now();

    bench_check(fiber_pipe_send(end, data, bytes, 60000), "send");
    bench_check(fiber_pipe_recv(end, &message, 60000), "recv");
    start = bench_now() - start;
    if (message.len != bytes) {
        fprintf(stderr, "pipe_bench: %zu bytes came back of %zu\n", message.len, bytes);
        exit(1);
    }
    fiber_bytes_free(&message);
    return start * 1e6;
}

int main(int argc, char **argv)
{
    struct fiber_address address;
    struct fiber_process *process;
    struct fiber_pipe *ends[2];
    size_t rounds, bytes, i;
    double *us;
    char *data;

    bench_exact_timers();
    bench_check(fiber_init(&argc, &argv), "fiber_init");
    rounds = (size_t)bench_number(argc, argv, 1, 3000);
    bytes = (size_t)bench_number(argc, argv, 2, 5);
    us = bench_alloc(rounds, sizeof(*us));
    data = bench_alloc(1, bytes + 1);
    bench_check(fiber_pipe_open(ends, 0), "open");
    bench_check(fiber_pipe_address(ends[1], &address), "address");
    bench_check(fiber_process_start(&process, echo, &address, sizeof(address), NULL), "start");
    fiber_pipe_close(ends[1]);
    for (i = 0; i < WARM_UP; i++)
        one_round(ends[0], data, bytes);
    for (i = 0; i < rounds; i++)
        us[i] = one_round(ends[0], data, bytes);
    fiber_pipe_close(ends[0]);
    bench_check(fiber_process_join(process, 60000), "join");
    printf("{\"bench\": \"pipe\", \"bytes\": %zu, \"p50\": %.1f, \"p99\": %.1f}\n", bytes,
           bench_quantile(us, rounds, 0.5), bench_quantile(us, rounds, 0.99));
    free(us);
    free(data);
    return 0;
}
