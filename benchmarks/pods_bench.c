/* pods_bench.c - jobs that come and go on an engine: `pods_bench N` starts N processes at once, and
 * waits until each has ended.
 *
 * It is the engine that ends them: what is asked of simulated pods, which run nothing and tell
 * nobody (calls.py, suite_backends.py). A job whose engine does not say that it ended with exit
 * code 0 is an error. Output: one JSON object, with the processor time and the largest memory of
 * this process.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>

#include "fiber.h"
#include "bench.h"

static int return_zero(const void *arg, size_t len)
{
    return 0;
}

static void start(struct fiber_process **process)
{
    struct fiber_process_options options = {.size = sizeof(options), .start_timeout_ms = 600000};

    bench_check(fiber_process_start(process, return_zero, NULL, 0, &options),
                "fiber_process_start");
}

static void end(struct fiber_process *process)
{
    int code = -1;

    bench_check(fiber_process_join(process, 600000), "fiber_process_join");
    bench_check(fiber_process_exitcode(process, &code), "fiber_process_exitcode");
    if (code != 0 &&
        !strstr(fiber_process_report(process), "exited with code 0 before it joined")) {
        fprintf(stderr, "%s: exit code %d: %s\n", fiber_process_name(process), code,
                fiber_process_report(process));
        exit(1);
    }
    fiber_process_close(process);
}

int main(int argc, char **argv)
{
    struct fiber_process **processes;
    struct rusage usage;
    double begin, started, ended;
    size_t n;

    bench_check(fiber_init(&argc, &argv), "fiber_init");
    n = (size_t)bench_number(argc, argv, 1, 1000);
    processes = bench_alloc(n, sizeof(struct fiber_process *));
    begin = bench_now();
    for (size_t i = 0; i < n; i++)
        start(&processes[i]);
    started = bench_now() - begin;
    for (size_t i = 0; i < n; i++)
        end(processes[i]);
    ended = bench_now() - begin;
    free(processes);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"bench\": \"pods\", \"pods\": %zu, \"asked_s\": %.6f, \"seconds\": %.6f, \"cpu_s\": "
           "%.6f, "
           "\"mib\": %.1f}\n",
           n, started, ended,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
           (double)usage.ru_maxrss / 1024);
    return 0;
}
