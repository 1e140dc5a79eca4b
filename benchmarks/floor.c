/* floor.c - the floor of the pool benchmarks: `floor TASKS MS WORKERS`.
 *
 * Forks WORKERS children that sleep their share of TASKS, MS milliseconds each, one after the
 * other, and nothing else: no message, no result. They wait behind a gate until all exist; the time
 * goes from the opening of the gate until the last child has slept its share; they exit afterwards.
 * No scheduler can be faster with so many workers; what a pool takes longer is its overhead.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

struct board { /* shared by all */
    atomic_int ready, done;
    double end[]; /* of each child */
};

/* In a child: waits until the parent has closed the entry's other end, sleeps, waits for the exit
 * to open. */
static void sleep_share(int entry[2], int leave[2], struct board *board, int i, long tasks,
                        double seconds)
{
    char c;

    close(entry[1]);
    close(leave[1]);
    bench_sleep(1e-3); /* what a first time costs (pages of its own after the fork) is behind it */
    board->end[i] = bench_now();
    atomic_fetch_add(&board->ready, 1);
    if (read(entry[0], &c, 1) != 0)
        _exit(1);
    while (tasks-- > 0)
        bench_sleep(seconds);
    board->end[i] = bench_now();
    atomic_fetch_add(&board->done, 1);
    _exit(read(leave[0], &c, 1) != 0);
}

static int start_children(int entry[2], int leave[2], struct board *board, long tasks,
                          double seconds, int workers)
{
    pid_t pid;
    int i;

    for (i = 0; i < workers; i++) {
        pid = fork();
        if (pid < 0)
            return -errno;
        if (pid == 0)
            sleep_share(entry, leave, board, i, tasks / workers + (i < tasks % workers), seconds);
    }
    while (atomic_load(&board->ready) < workers)
        bench_sleep(0.001);
    bench_sleep(0.01); /* the last one reaches its read */
    return 0;
}

int main(int argc, char **argv)
{
    long tasks = (long)bench_number(argc, argv, 1, 5000);
    double ms = bench_number(argc, argv, 2, 1), start, end = 0;
    int workers = (int)bench_number(argc, argv, 3, 5), i, status, failed = 0;
    int entry[2], leave[2];
    size_t size = sizeof(struct board) + (size_t)workers * sizeof(double);
    struct board *board =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    bench_exact_timers();
    if (board == MAP_FAILED || pipe(entry) < 0 || pipe(leave) < 0 ||
        start_children(entry, leave, board, tasks, ms / 1e3, workers) < 0) {
        perror("floor");
        return 1;
    }
    start = bench_now();
    close(entry[1]);
    while (atomic_load(&board->done) < workers)
        bench_sleep(0.002);
    close(leave[1]);
    while (wait(&status) > 0)
        failed |= status;
    for (i = 0; i < workers; i++)
        end = board->end[i] > end ? board->end[i] : end;
    printf(
        "{\"bench\": \"floor\", \"tasks\": %ld, \"ms\": %g, \"workers\": %d, \"seconds\": %.6f}\n",
        tasks, ms, workers, end - start);
    return failed != 0;
}
