/* pool_bench.c - the pool's figures, one question per run: `pool_bench QUESTION [ARGUMENT...]`.
 *
 *     tasks N MS WORKERS         one map of N tasks that sleep MS milliseconds: seconds
 *     empty N WORKERS            one map of N tasks that answer their 16 bytes: tasks per second
 *     master N WORKERS           the same: CPU of this process per task, all its threads, in microseconds
 *     apply N WORKERS            N round trips of one such task, one after the other: p50, p99 in microseconds
 *     barrier BATCHES MS WORKERS batches of WORKERS sleeping tasks, waiting for each batch: seconds
 *     payload N BYTES WORKERS    N tasks that answer a copy of their BYTES: MiB per second, in and out added
 *     straggler WORKERS          1 task of 2 s, then 59 of 50 ms: seconds
 *     scale WORKERS TASKS MS GENERATIONS PER_JOB
 *                                seconds until every worker has answered, PSS of the idle workers, seconds of each map
 *     start WORKERS              seconds from opening a pool until all its workers have joined
 *     version                    the library's version
 *
 * The workers have joined and have run a task before the clock starts, except in `scale`. Output:
 * one JSON object.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
#include <unistd.h>

#include "fiber.h"
#include "bench.h"

#define SMALL 16    /* bytes of a no-op task */
#define PAYLOADS 64 /* distinct inputs of `payload` */

/* ---- Tasks ---- */

static int sleep_task(const void *in, size_t len, struct fiber_reply *reply)
{
    double seconds;
    int64_t pid = getpid();

    if (len != sizeof(seconds))
        return fiber_reply_fail(reply, -EINVAL, "a duration has 8 bytes, not %zu", len);
    memcpy(&seconds, in, sizeof(seconds));
    bench_sleep(seconds);
    return fiber_reply_write(reply, &pid, sizeof(pid));
}

static int echo_task(const void *in, size_t len, struct fiber_reply *reply)
{
    void *out = fiber_reply_alloc(reply, len);

    if (!out)
        return -ENOMEM;
    memcpy(out, in, len);
    return 0;
}

/* ---- Measuring ---- */

/* One map of n sleeping tasks; the pids of who ran them in `pids`. Returns its seconds. */
static double time_sleeps(struct fiber_pool *pool, const double *durations, int64_t *pids, size_t n)
{
    double start = bench_now();

    bench_check(fiber_pool_map(pool, sleep_task, durations, sizeof(*durations), pids, sizeof(*pids),
                               n, NULL),
                "fiber_pool_map");
    return bench_now() - start;
}

static double time_equal_sleeps(struct fiber_pool *pool, size_t n, double seconds)
{
    double *durations = bench_alloc(n, sizeof(*durations)), elapsed;
    int64_t *pids = bench_alloc(n, sizeof(*pids));
    size_t i;

    for (i = 0; i < n; i++)
        durations[i] = seconds;
    elapsed = time_sleeps(pool, durations, pids, n);
    for (i = 0; i < n; i++)
        if (pids[i] == 0)
            bench_check(-EPROTO, "a result is missing");
    free(durations);
    free(pids);
    return elapsed;
}

static struct fiber_pool *warm_pool(int workers)
{
    struct fiber_pool *pool = bench_pool(workers);

    time_equal_sleeps(pool, 4 * (size_t)workers, 0.001);
    return pool;
}

static int run_tasks(int argc, char **argv)
{
    size_t n = (size_t)bench_number(argc, argv, 2, 5000);
    double ms = bench_number(argc, argv, 3, 1), elapsed;
    int workers = (int)bench_number(argc, argv, 4, 5);
    struct fiber_pool *pool = warm_pool(workers);

    elapsed = time_equal_sleeps(pool, n, ms / 1e3);
    printf(
        "{\"bench\": \"tasks\", \"tasks\": %zu, \"ms\": %g, \"workers\": %d, \"seconds\": %.6f}\n",
        n, ms, workers, elapsed);
    fiber_pool_close(pool);
    return 0;
}

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* `empty` and `master`: a warm-up map of a tenth, then the map that counts. */
static int run_empty(int argc, char **argv)
{
    size_t n = (size_t)bench_number(argc, argv, 2, 1e6), i;
    int workers = (int)bench_number(argc, argv, 3, 5);
    char *in = bench_alloc(n, SMALL), *out = bench_alloc(n, SMALL);
    struct fiber_pool *pool = warm_pool(workers);
    double start, elapsed, cpu;

    for (i = 0; i < n; i++)
        memcpy(in + i * SMALL, &i, sizeof(i));
    memset(out, 1, n * SMALL); /* its pages are there before the clock starts */
    bench_check(fiber_pool_map(pool, echo_task, in, SMALL, out, SMALL, n / 10, NULL),
                "fiber_pool_map");
    cpu = cpu_seconds();
    start = bench_now();
    bench_check(fiber_pool_map(pool, echo_task, in, SMALL, out, SMALL, n, NULL), "fiber_pool_map");
    elapsed = bench_now() - start;
    cpu = cpu_seconds() - cpu;
    if (memcmp(in, out, n * SMALL) != 0)
        bench_check(-EPROTO, "the results differ from the inputs");
    printf("{\"bench\": \"%s\", \"tasks\": %zu, \"workers\": %d, \"seconds\": %.6f, "
           "\"tasks_per_s\": %.0f, "
           "\"master_us_per_task\": %.4f}\n",
           argv[1], n, workers, elapsed, (double)n / elapsed, cpu / (double)n * 1e6);
    fiber_pool_close(pool);
    free(in);
    free(out);
    return 0;
}

static int run_apply(int argc, char **argv)
{
    size_t n = (size_t)bench_number(argc, argv, 2, 4000), warm = n / 10, i;
    int workers = (int)bench_number(argc, argv, 3, 5);
    double *us = bench_alloc(n + warm, sizeof(*us)), start, p50, p99;
    struct fiber_pool *pool = warm_pool(workers);
    struct fiber_bytes out = {NULL, 0};
    char in[SMALL] = {0};

    for (i = 0; i < n + warm; i++) {
        start = bench_now();
        bench_check(fiber_pool_apply(pool, echo_task, in, sizeof(in), &out), "fiber_pool_apply");
        us[i] = (bench_now() - start) * 1e6;
        fiber_bytes_free(&out);
    }
    p50 = bench_quantile(us + warm, n, 0.5);
    p99 = bench_quantile(us + warm, n, 0.99);
    printf("{\"bench\": \"apply\", \"tasks\": %zu, \"workers\": %d, \"p50_us\": %.2f, \"p99_us\": "
           "%.2f, "
           "\"max_us\": %.2f}\n",
           n, workers, p50, p99, us[warm + n - 1]);
    fiber_pool_close(pool);
    free(us);
    return 0;
}

static int run_barrier(int argc, char **argv)
{
    int batches = (int)bench_number(argc, argv, 2, 1000), i;
    double ms = bench_number(argc, argv, 3, 1), start, elapsed;
    int workers = (int)bench_number(argc, argv, 4, 5);
    double *durations = bench_alloc((size_t)workers, sizeof(*durations));
    int64_t *pids = bench_alloc((size_t)workers, sizeof(*pids));
    struct fiber_pool *pool = warm_pool(workers);

    for (i = 0; i < workers; i++)
        durations[i] = ms / 1e3;
    start = bench_now();
    for (i = 0; i < batches; i++)
        time_sleeps(pool, durations, pids, (size_t)workers);
    elapsed = bench_now() - start;
    printf("{\"bench\": \"barrier\", \"batches\": %d, \"ms\": %g, \"workers\": %d, \"seconds\": "
           "%.6f}\n",
           batches, ms, workers, elapsed);
    fiber_pool_close(pool);
    free(durations);
    free(pids);
    return 0;
}

static int run_start(int argc, char **argv)
{
    int workers = (int)bench_number(argc, argv, 2, 20);
    double start = bench_now();
    struct fiber_pool *pool = bench_pool(workers);

    printf("{\"bench\": \"start\", \"workers\": %d, \"seconds\": %.6f}\n", workers,
           bench_now() - start);
    fiber_pool_close(pool);
    return 0;
}

static int run_straggler(int argc, char **argv)
{
    int workers = (int)bench_number(argc, argv, 2, 4), i;
    struct fiber_pool *pool = warm_pool(workers);
    double durations[60] = {2.0}, elapsed;
    int64_t pids[60];

    for (i = 1; i < 60; i++)
        durations[i] = 0.05;
    elapsed = time_sleeps(pool, durations, pids, 60);
    printf("{\"bench\": \"straggler\", \"workers\": %d, \"seconds\": %.6f}\n", workers, elapsed);
    fiber_pool_close(pool);
    return 0;
}

/* ---- Payload ---- */

static double time_payloads(struct fiber_pool *pool, const struct fiber_bytes *in, size_t n)
{
    struct fiber_result *result;
    double start = bench_now(), elapsed;
    const void *data;
    size_t i, len;

    bench_check(fiber_pool_map_async(pool, echo_task, in, n, NULL, &result),
                "fiber_pool_map_async");
    bench_check(fiber_result_wait(result, -1), "fiber_result_wait");
    elapsed = bench_now() - start;
    for (i = 0; i < n; i++) {
        bench_check(fiber_result_get(result, i, &data, &len), "fiber_result_get");
        if (len != in[i].len || memcmp(data, in[i].data, len) != 0)
            bench_check(-EPROTO, "a result differs from its input");
    }
    fiber_result_close(result);
    return elapsed;
}

/* Maps of 64 distinct inputs each, so that neither side lives from its cache; the results are
 * checked between maps, outside the time. */
static int run_payload(int argc, char **argv)
{
    size_t n = (size_t)bench_number(argc, argv, 2, 512),
           bytes = (size_t)bench_number(argc, argv, 3, 1 << 20);
    int workers = (int)bench_number(argc, argv, 4, 2);
    struct fiber_pool *pool = warm_pool(workers);
    struct fiber_bytes in[PAYLOADS];
    size_t i, done;
    double elapsed = 0;

    for (i = 0; i < PAYLOADS; i++) {
        in[i].data = bench_alloc(1, bytes);
        in[i].len = bytes;
        memset(in[i].data, (int)i + 1, bytes);
    }
    time_payloads(pool, in, PAYLOADS);
    for (done = 0; done < n; done += PAYLOADS)
        elapsed += time_payloads(pool, in, PAYLOADS);
    printf("{\"bench\": \"payload\", \"tasks\": %zu, \"bytes\": %zu, \"workers\": %d, \"seconds\": "
           "%.6f, "
           "\"mib_s\": %.1f}\n",
           done, bytes, workers, elapsed, 2.0 * (double)(done * bytes) / elapsed / 1048576);
    fiber_pool_close(pool);
    for (i = 0; i < PAYLOADS; i++)
        free(in[i].data);
    return 0;
}

/* ---- Scale ---- */

static int compare_pids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* Adds pids that are not in `seen` (sorted, *known entries, room for max). */
static void note_pids(int64_t *seen, size_t *known, size_t max, const int64_t *pids, size_t n)
{
    size_t i, sorted = *known;

    for (i = 0; i < n; i++) {
        if (bsearch(&pids[i], seen, sorted, sizeof(*seen), compare_pids) || *known == max)
            continue;
        seen[(*known)++] = pids[i];
        qsort(seen, *known, sizeof(*seen), compare_pids);
        sorted = *known;
    }
}

/* Proportional set size of a process in KiB; 0 when it cannot be read. */
static long read_pss(int64_t pid)
{
    char path[64], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%lld/smaps_rollup", (long long)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "Pss: %ld kB", &kib) == 1)
            break;
    fclose(file);
    return kib;
}

static double mean_pss(const int64_t *pids, size_t n)
{
    double total = 0;
    size_t i;

    for (i = 0; i < n; i++)
        total += (double)read_pss(pids[i]);
    return n ? total / (double)n : 0;
}

/* Maps of two tasks per worker until each of the `workers` has answered one. Returns how many maps
 * it took. */
static int map_until_all(struct fiber_pool *pool, int workers, int64_t *seen, double *first_map,
                         double start)
{
    size_t n = 2 * (size_t)workers, known = 0, i;
    double *durations = bench_alloc(n, sizeof(*durations));
    int64_t *pids = bench_alloc(n, sizeof(*pids));
    int maps = 0;

    for (i = 0; i < n; i++)
        durations[i] = 0.01;
    while (known < (size_t)workers && bench_now() - start < 60) {
        time_sleeps(pool, durations, pids, n);
        if (maps++ == 0)
            *first_map = bench_now() - start;
        note_pids(seen, &known, (size_t)workers, pids, n);
    }
    if (known < (size_t)workers) {
        fprintf(stderr, "only %zu of %d workers answered in 60 s\n", known, workers);
        exit(1);
    }
    free(durations);
    free(pids);
    return maps;
}

static int run_scale(int argc, char **argv)
{
    int workers = (int)bench_number(argc, argv, 2, 1024), generations, maps, i;
    size_t tasks = (size_t)bench_number(argc, argv, 3, 2048);
    double ms = bench_number(argc, argv, 4, 50);
    struct fiber_pool_options options = {.size = sizeof(options), .min = workers, .max = workers};
    int64_t *seen = bench_alloc((size_t)workers, sizeof(*seen));
    double start = bench_now(), first_map = 0, all, pss;
    struct fiber_pool *pool;

    generations = (int)bench_number(argc, argv, 5, 3);
    options.workers_per_job = (int)bench_number(argc, argv, 6, 1);
    bench_check(fiber_pool_open(&pool, &options), "fiber_pool_open");
    maps = map_until_all(pool, workers, seen, &first_map, start);
    all = bench_now() - start;
    bench_sleep(0.3); /* idle: results are delivered, buffers are released */
    pss = mean_pss(seen, (size_t)workers);
    printf(
        "{\"bench\": \"scale\", \"workers\": %d, \"first_map_s\": %.4f, \"all_answered_s\": %.4f, "
        "\"maps\": %d, "
        "\"pss_kib\": %.1f, \"tasks\": %zu, \"ms\": %g, \"generation_s\": [",
        workers, first_map, all, maps, pss, tasks, ms);
    time_equal_sleeps(pool, 2 * (size_t)workers, ms / 1e3);
    for (i = 0; i < generations; i++)
        printf("%s%.5f", i ? ", " : "", time_equal_sleeps(pool, tasks, ms / 1e3));
    start = bench_now();
    fiber_pool_close(pool);
    printf("], \"close_s\": %.4f}\n", bench_now() - start);
    free(seen);
    return 0;
}

/* ---- Main ---- */

static int run_version(int argc, char **argv)
{
    printf("{\"version\": \"%s\"}\n", fiber_version());
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} questions[] = {
    {"tasks", run_tasks},     {"empty", run_empty},     {"master", run_empty},
    {"apply", run_apply},     {"barrier", run_barrier}, {"payload", run_payload},
    {"scale", run_scale},     {"start", run_start},     {"straggler", run_straggler},
    {"version", run_version},
};

int main(int argc, char **argv)
{
    size_t i, n = sizeof(questions) / sizeof(*questions);

    bench_exact_timers();
    bench_check(fiber_init(&argc, &argv), "fiber_init");
    for (i = 0; argc > 1 && i < n; i++)
        if (strcmp(argv[1], questions[i].name) == 0)
            return questions[i].run(argc, argv);
    fprintf(stderr, "usage: pool_bench QUESTION [ARGUMENT...]\nquestions:");
    for (i = 0; i < n; i++)
        fprintf(stderr, " %s", questions[i].name);
    fprintf(stderr, "\n");
    return 2;
}
