/* bench.h - what the benchmark programs have in common: a clock, an exact sleep, sorted samples, a
 * pool that is up.
 *
 * Every program prints one JSON object per line and nothing else on standard output.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The kernel may end a sleep up to the timer slack (50 us by default) late. Set before anything is
 * started: children and threads inherit it, also across exec. The peers and the floor get the
 * same. */
static inline void bench_exact_timers(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

static inline void bench_sleep(double seconds)
{
    struct timespec left;

    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The value below which `part` (0 to 1) of the n samples lie; sorts them. */
static inline double bench_quantile(double *samples, size_t n, double part)
{
    size_t i = (size_t)(part * (double)n);

    qsort(samples, n, sizeof(*samples), bench_compare);
    return samples[i < n ? i : n - 1];
}

static inline void *bench_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* argv[i] as a positive number, or `otherwise` when it is not given. */
static inline double bench_number(int argc, char **argv, int i, double otherwise)
{
    char *end;
    double value;

    if (i >= argc)
        return otherwise;
    value = strtod(argv[i], &end);
    if (*end || end == argv[i] || !(value > 0)) {
        fprintf(stderr, "%s: not a positive number: %s\n", argv[0], argv[i]);
        exit(2);
    }
    return value;
}

#ifdef FIBER_H
/* Ends the program with Fiber's sentence when a call failed. */
static inline void bench_check(int code, const char *what)
{
    if (code >= 0)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, fiber_last_error(), fiber_strerror(code));
    exit(1);
}

/* A pool of exactly n workers, all of which have joined. */
static inline struct fiber_pool *bench_pool(int n)
{
    struct fiber_pool_options options = {.size = sizeof(options), .min = n, .max = n};
    struct fiber_pool_stats stats = {.size = sizeof(stats)};
    double end = bench_now() + 60;
    struct fiber_pool *pool;

    bench_check(fiber_pool_open(&pool, &options), "fiber_pool_open");
    do {
        bench_sleep(0.001);
        bench_check(fiber_pool_stats(pool, &stats), "fiber_pool_stats");
    } while (stats.workers < n && bench_now() < end);
    if (stats.workers < n) {
        fprintf(stderr, "only %d of %d workers joined in 60 s\n", stats.workers, n);
        exit(1);
    }
    return pool;
}
#endif
