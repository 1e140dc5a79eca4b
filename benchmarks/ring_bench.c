/* ring_bench.c - what a ring takes for things that happen to it: `ring_bench kill|replace RANKS`,
 * `agents COUNT`.
 *
 *     kill     SIGKILL of one of RANKS sleeping ranks, until the ring has ended and every rank is dead
 *     replace  the same with FIBER_RING_REPLACE, until the new rank runs
 *     agents   COUNT agents of one rank each that runs /bin/true, from fiber_ring_start() to the end
 *
 * Output: one JSON object, milliseconds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "fiber.h"
#include "bench.h"

#define RANKS_MAX 1024

static struct fiber_rank_stats stats[RANKS_MAX];

static struct fiber_ring *start(int n, const char *const *command, enum fiber_ring_policy policy,
                                int per_node)
{
    struct fiber_ring_options o = {.size = sizeof(o),
                                   .on_failure = policy,
                                   .per_node = per_node,
                                   .bind_to = "none",
                                   .flags = FIBER_RING_QUIET | FIBER_RING_OVERSUBSCRIBE};
    struct fiber_ring *r;

    o.job.command = command;
    bench_check(fiber_ring_start(&r, n, NULL, NULL, 0, &o), "fiber_ring_start");
    return r;
}

static void wait_running(struct fiber_ring *r, int n)
{
    int running;

    do {
        running = 0;
        bench_check(fiber_ring_stats(r, stats, n) < 0 ? -1 : 0, "fiber_ring_stats");
        for (int i = 0; i < n; i++)
            running += stats[i].state == 1;
        bench_sleep(0.0002);
    } while (running < n);
}

static double kill_one(int n)
{
    static const char *const command[] = {"/bin/sleep", "1000", NULL};
    struct fiber_ring *r = start(n, command, FIBER_RING_ABORT, 0);
    double begin;

    wait_running(r, n);
    begin = bench_now();
    kill((pid_t)stats[n / 2].pid, SIGKILL);
    bench_check(fiber_ring_wait(r, 60000), "fiber_ring_wait");
    for (int i = 0; i < n; i++)
        if (kill((pid_t)stats[i].pid, 0) == 0 || errno != ESRCH) {
            fprintf(stderr, "rank %d still lives\n", i);
            exit(1);
        }
    begin = bench_now() - begin;
    fiber_ring_close(r);
    return begin;
}

static double replace_one(int n)
{
    static const char *const command[] = {"/bin/sleep", "1000", NULL};
    struct fiber_ring *r = start(n, command, FIBER_RING_REPLACE, 0);
    int64_t old;
    double begin;

    wait_running(r, n);
    old = stats[n / 2].pid;
    begin = bench_now();
    kill((pid_t)old, SIGKILL);
    do {
        bench_sleep(0.0002);
        bench_check(fiber_ring_stats(r, stats, n) < 0 ? -1 : 0, "fiber_ring_stats");
    } while (stats[n / 2].pid == old || stats[n / 2].state != 1);
    begin = bench_now() - begin;
    fiber_ring_close(r);
    return begin;
}

static double start_agents(int n)
{
    static const char *const command[] = {"/bin/true", NULL};
    double begin = bench_now();
    struct fiber_ring *r = start(n, command, FIBER_RING_ABORT, 1);
    int code = -1;

    bench_check(fiber_ring_wait(r, 60000), "fiber_ring_wait");
    begin = bench_now() - begin;
    bench_check(fiber_ring_exitcode(r, &code), "fiber_ring_exitcode");
    if (code != 0) {
        fprintf(stderr, "%s", fiber_ring_report(r));
        exit(1);
    }
    fiber_ring_close(r);
    return begin;
}

int main(int argc, char **argv)
{
    int n;
    double seconds;

    bench_check(fiber_init(&argc, &argv), "fiber_init");
    n = argc == 3 ? atoi(argv[2]) : 0;
    if (n < 1 || n > RANKS_MAX) {
        fprintf(stderr, "usage: ring_bench kill|replace|agents COUNT\n");
        return 2;
    }
    if (strcmp(argv[1], "kill") == 0)
        seconds = kill_one(n);
    else if (strcmp(argv[1], "replace") == 0)
        seconds = replace_one(n);
    else
        seconds = start_agents(n);
    printf("{\"ms\": %.3f}\n", seconds * 1e3);
    return 0;
}
