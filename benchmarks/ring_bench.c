/* ring_bench.c - what a ring takes for things that happen to it: `ring_bench kill|replace RANKS`,
 * `agents COUNT`, `shrink RANKS PROGRAM`, `fence AGENTS PROGRAM`.
 *
 *     kill     SIGKILL of one of RANKS sleeping ranks, until the ring has ended and every rank is
 *              dead
 *     replace  the same with FIBER_RING_REPLACE, until the new rank runs
 *     shrink   the same with FIBER_RING_SHRINK, until each of the others has been told by PMIx; all
 *              of them go on and end well. PROGRAM is ranks/pmix_rank
 *     agents   COUNT agents of one rank each that runs /bin/true, from fiber_ring_start() to the end
 *     fence    AGENTS agents of one rank each that runs PROGRAM: a fence, from when the last
 *              rank came to it until the last one has left it; the median of 20, and the longest.
 *              PROGRAM is ranks/pmix_rank or ranks/pmi_rank
 *
 * Output: one JSON object, milliseconds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "fiber.h"
#include "bench.h"
#include "rank_times.h"

#define RANKS_MAX 1024
#define FENCES 20

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

/* ---- Ranks that note times ---- */

static struct rank_times *rows;
static char rows_path[] = "/tmp/ring_bench.XXXXXX";

static void remove_rows(void)
{
    unlink(rows_path);
}

static void make_rows(int n)
{
    size_t len = (size_t)n * sizeof(*rows);
    int fd = mkostemp(rows_path, O_CLOEXEC);

    if (fd < 0 || atexit(remove_rows) != 0 || ftruncate(fd, (off_t)len) < 0)
        bench_check(-errno, rows_path);
    rows = rank_times_map(rows_path);
    close(fd);
}

static void end_well(struct fiber_ring *r)
{
    int code = -1;

    bench_check(fiber_ring_wait(r, 60000), "fiber_ring_wait");
    bench_check(fiber_ring_exitcode(r, &code), "fiber_ring_exitcode");
    if (code != 0) {
        fprintf(stderr, "exit code %d: %s\n", code, fiber_ring_report(r));
        exit(1);
    }
    fiber_ring_close(r);
}

static double shrink_one(int n, const char *program)
{
    const char *const command[] = {program, rows_path, "lose", NULL};
    struct fiber_ring *r;
    double begin, last = 0;

    make_rows(n);
    r = start(n, command, FIBER_RING_SHRINK, 0);
    wait_running(r, n);
    for (int i = 0; i < n; i++)
        while (!__atomic_load_n(&rows[i].ready, __ATOMIC_ACQUIRE) && fiber_ring_wait(r, 1) < 0)
            ;
    bench_check(fiber_ring_stats(r, stats, n) < 0 ? -1 : 0, "fiber_ring_stats");
    begin = bench_now();
    kill((pid_t)stats[n / 2].pid, SIGKILL);
    end_well(r);
    for (int i = 0; i < n; i++) {
        if (i != n / 2 && rows[i].out[0] == 0) {
            fprintf(stderr, "rank %d was not told\n", i);
            exit(1);
        }
        last = rows[i].out[0] > last ? rows[i].out[0] : last;
    }
    return last - begin;
}

/* In seconds; *longest of them. */
static double fence_all(int n, const char *program, double *longest)
{
    const char *const command[] = {program, rows_path, "fences", "20", NULL};
    double took[FENCES], in, out;

    make_rows(n);
    end_well(start(n, command, FIBER_RING_ABORT, 1));
    for (int round = 0; round < FENCES; round++) {
        in = out = 0;
        for (int i = 0; i < n; i++) {
            in = rows[i].in[round] > in ? rows[i].in[round] : in;
            out = rows[i].out[round] > out ? rows[i].out[round] : out;
            if (rows[i].out[round] == 0)
                bench_check(-EPROTO, "a rank was in no fence");
        }
        took[round] = out - in;
    }
    in = bench_quantile(took, FENCES, 0.5);
    *longest = took[FENCES - 1];
    return in;
}

int main(int argc, char **argv)
{
    const char *what;
    int n;
    double seconds, longest = 0;

    bench_check(fiber_init(&argc, &argv), "fiber_init");
    what = argc > 1 ? argv[1] : "";
    n = argc > 2 ? atoi(argv[2]) : 0;
    if (n < 1 || n > RANKS_MAX ||
        argc != 3 + (strcmp(what, "shrink") == 0 || strcmp(what, "fence") == 0)) {
        fprintf(stderr, "usage: ring_bench kill|replace|agents COUNT\n"
                        "       ring_bench shrink|fence COUNT PROGRAM\n");
        return 2;
    }
    if (strcmp(what, "kill") == 0)
        seconds = kill_one(n);
    else if (strcmp(what, "replace") == 0)
        seconds = replace_one(n);
    else if (strcmp(what, "shrink") == 0)
        seconds = shrink_one(n, argv[3]);
    else if (strcmp(what, "fence") == 0)
        seconds = fence_all(n, argv[3], &longest);
    else
        seconds = start_agents(n);
    if (strcmp(what, "fence") == 0)
        printf("{\"ms\": %.3f, \"longest_ms\": %.3f}\n", seconds * 1e3, longest * 1e3);
    else
        printf("{\"ms\": %.3f}\n", seconds * 1e3);
    return 0;
}
