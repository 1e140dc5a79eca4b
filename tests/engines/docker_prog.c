/* docker_prog.c - a program for the tests on engines, run by the configured backend.
 *
 *   docker_prog pool WORKERS TASKS MS [FILE [DEATHS]]
 *                                       maps TASKS of MS milliseconds; says "begun" when a tenth is done, and at the
 *                                       end how many are right and how many workers died. With FILE it is "begun" when
 *                                       all workers have joined, too, and goes on at least until there is that file
 *                                       and so many have died
 *   docker_prog jobs JOBS WORKERS TASKS FILE [DEATHS]
 *                                       maps by so many jobs with so many workers in each; says "begun" when all have
 *                                       joined, and when there is FILE maps TASKS, in the middle of which one worker
 *                                       is killed; again until so many (1) died; says how many are right and died
 *   docker_prog process [-i IMAGE] [-c CPUS] [-m MiB] [-n NAME] ORDER
 *                                       one process; says its exit code and how it ended. ORDER is one of: exit CODE,
 *                                       signal N, eat MiB, hello, wait, program PATH
 *   docker_prog output LINES [FIFO]     a process that writes so many lines to each of its streams; half of them when
 *                                       somebody has written to FIFO, which it makes where it runs
 *   docker_prog many N [FIFO]           N processes at once; when all have ended it waits until somebody writes to
 *                                       FIFO, which it makes
 *   docker_prog nested                  a process that starts processes
 *   docker_prog cpus                    a process that says which processors it may use
 *   docker_prog rank                    a rank that says who it is, then waits
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fiber.h"

#define LINE 100
#define MANY 200

static int fail(const char *what)
{
    fprintf(stderr, "docker_prog: %s: %s\n", what, fiber_last_error());
    return 1;
}

static const char *host(void)
{
    static char name[64];

    gethostname(name, sizeof(name) - 1);
    return name;
}

/* ---- Pool ---- */

struct task {
    int ms, n;
};

static int square(const void *in, size_t len, struct fiber_reply *reply)
{
    const struct task *t = in;
    const struct timespec nap = {.tv_nsec = t->ms * 1000000L};
    int *out = fiber_reply_alloc(reply, sizeof(*out));

    nanosleep(&nap, NULL); /* the work of the task */
    if (out)
        *out = t->n * t->n;
    return out ? 0 : -1;
}

static int map(struct fiber_pool *pool, struct task *in, int *out, int n)
{
    memset(out, 255, (size_t)n * sizeof(*out));
    return fiber_pool_map(pool, square, in, sizeof(*in), out, sizeof(*out), (size_t)n, NULL);
}

static struct fiber_pool_stats stats_of(struct fiber_pool *pool)
{
    struct fiber_pool_stats stats = {.size = sizeof(stats)};

    fiber_pool_stats(pool, &stats);
    return stats;
}

static int play_pool(int workers, int n, int ms, const char *file, int deaths)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = workers, .max = workers};
    struct task *in = calloc((size_t)n, sizeof(*in));
    int *out = calloc((size_t)n, sizeof(*out)), right = 0, tenth = n / 10, rc;
    struct fiber_pool *pool;

    for (int i = 0; i < n; i++)
        in[i] = (struct task){ms, i};
    if (fiber_pool_open(&pool, &o) < 0)
        return fail("pool");
    do
        rc = map(pool, in, out, tenth);
    while (rc == 0 && file && stats_of(pool).workers < workers);
    printf("begun\n");
    fflush(stdout);
    while (rc == 0 && file && (access(file, F_OK) < 0 || (int)stats_of(pool).deaths < deaths))
        rc = map(pool, in, out, tenth);
    if (rc == 0)
        rc = map(pool, in, out, n);
    if (rc < 0)
        return fail("map");
    for (int i = 0; i < n; i++)
        right += out[i] == i * i;
    printf("right %d of %d\ndeaths %d\n", right, n, (int)stats_of(pool).deaths);
    fflush(stdout); /* it may take a while to close */
    fiber_pool_close(pool);
    free(in);
    free(out);
    return right != n;
}

/* ---- Several workers in a job ---- */

#define NAME 64

struct worker {
    char host[NAME];
    int pid;
};

struct visit {
    int n, end;           /* end: this visit kills the worker, if it is that one */
    struct worker victim; /* pid 0: none */
};

struct visited {
    int square;
    struct worker by;
};

static int visit(const void *in, size_t len, struct fiber_reply *reply)
{
    const struct visit *v = in;
    const struct timespec nap = {.tv_nsec = 20 * 1000000L};
    struct visited *out = fiber_reply_alloc(reply, sizeof(*out));

    nanosleep(&nap, NULL); /* the work of the task */
    if (!out)
        return -1;
    *out = (struct visited){.square = v->n * v->n, .by.pid = getpid()};
    snprintf(out->by.host, NAME, "%s", host());
    if (v->end && memcmp(&out->by, &v->victim, sizeof(out->by)) == 0)
        kill(getpid(), SIGKILL);
    return 0;
}

/* The first n; returns how many are right. */
static int visit_all(struct fiber_pool *pool, struct visit *in, struct visited *out, int n)
{
    int right = 0;

    memset(out, 255, (size_t)n * sizeof(*out));
    if (fiber_pool_map(pool, visit, in, sizeof(*in), out, sizeof(*out), (size_t)n, NULL) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        right += out[i].square == i * i;
    return right;
}

static int play_jobs(int jobs, int per_job, int n, const char *file, int deaths)
{
    int workers = jobs * per_job, tenth = n / 10, right;
    struct fiber_pool_options o = {
        .size = sizeof(o), .min = workers, .max = workers, .workers_per_job = per_job};
    struct visit *in = calloc((size_t)n, sizeof(*in));
    struct visited *out = calloc((size_t)n, sizeof(*out));
    struct fiber_pool *pool;

    for (int i = 0; i < n; i++)
        in[i].n = i;
    if (fiber_pool_open(&pool, &o) < 0)
        return fail("pool");
    do
        right = visit_all(pool, in, out, tenth);
    while (right == tenth && stats_of(pool).workers < workers);
    printf("begun\n");
    fflush(stdout);
    while (right == tenth && access(file, F_OK) < 0)
        right = visit_all(pool, in, out, tenth);
    if (right != tenth)
        return fail("map");
    for (int i = 0; i < n; i++) {
        in[i].victim = out[0].by;
        in[i].end = i >= n / 2;
    }
    do
        right = visit_all(pool, in, out, n);
    while (right == n && (int)stats_of(pool).deaths < deaths); /* it may have had none of those */
    while (right == n && stats_of(pool).workers < workers)
        right = visit_all(pool, in, out, n); /* until another is there in its place */
    printf("right %d of %d\ndeaths %d\n", right, n, (int)stats_of(pool).deaths);
    fiber_pool_close(pool);
    free(in);
    free(out);
    return right != n;
}

/* ---- One process ---- */

struct order {
    char what[16];
    int n;
};

static int obey(const void *arg, size_t len)
{
    const struct order *o = arg;
    void *(*volatile take)(size_t) = malloc; /* a compiler leaves out what nobody reads */
    size_t mib = (size_t)1 << 20;

    if (strcmp(o->what, "signal") == 0)
        raise(o->n);
    if (strcmp(o->what, "eat") == 0)
        for (int i = 0; i < o->n; i++)
            memset(take(mib), 1, mib);
    if (strcmp(o->what, "hello") == 0)
        printf("hello from %s\n", host());
    if (strcmp(o->what, "wait") == 0) {
        printf("waits in %s\n", host());
        fflush(stdout);
        pause();
    }
    return strcmp(o->what, "exit") == 0 ? o->n : 0;
}

static int notify_end(struct fiber_process *p)
{
    int code = 0;

    fiber_process_join(p, -1);
    if (fiber_process_exitcode(p, &code) < 0)
        return fail("exit code");
    printf("code %d: %s\n", code, fiber_process_report(p));
    fiber_process_close(p);
    return 0;
}

static int play_process(char **argv)
{
    struct fiber_process_options o = {.size = sizeof(o)};
    const char *program[2] = {NULL, NULL};
    struct fiber_process *p;
    struct order order = {"", 0};

    for (; argv[0] && argv[0][0] == '-' && argv[1]; argv += 2)
        switch (argv[0][1]) {
        case 'i':
            o.job.image = argv[1];
            break;
        case 'c':
            o.job.cpus = atof(argv[1]);
            break;
        case 'm':
            o.job.memory = (uint64_t)atoi(argv[1]) << 20;
            break;
        default:
            o.job.name = argv[1];
        }
    if (!argv[0])
        return 2;
    snprintf(order.what, sizeof(order.what), "%s", argv[0]);
    order.n = argv[1] ? atoi(argv[1]) : 0;
    program[0] = argv[1];
    if (strcmp(argv[0], "program") == 0)
        o.job.command = program;
    if (o.job.command ? fiber_process_start_work(&p, "", 0, &o) < 0
                      : fiber_process_start(&p, obey, &order, sizeof(order), &o) < 0)
        return fail("start");
    return notify_end(p);
}

/* ---- Output ---- */

struct lines {
    int n;
    char fifo[256]; /* "": none */
};

static void wait_for_writer(const char *fifo)
{
    int fd = mkfifo(fifo, 0666) == 0 || errno == EEXIST ? open(fifo, O_RDONLY) : -1;

    if (fd >= 0)
        close(fd);
}

static int write_lines(const void *arg, size_t len)
{
    const struct lines *l = arg;
    char text[LINE + 1];

    for (int i = 0; i < l->n; i++) {
        if (i == l->n / 2 && l->fifo[0])
            wait_for_writer(l->fifo);
        for (int stream = 1; stream <= 2; stream++) {
            snprintf(text, sizeof(text), "%s %07d %080d\n", stream == 1 ? "out" : "err", i, i);
            if (write(stream, text, strlen(text)) < 0)
                return 1;
        }
    }
    return 0;
}

static int play_output(int n, const char *fifo)
{
    struct lines lines = {.n = n};
    struct fiber_process *p;

    snprintf(lines.fifo, sizeof(lines.fifo), "%s", fifo ? fifo : "");
    if (fiber_process_start(&p, write_lines, &lines, sizeof(lines), NULL) < 0)
        return fail("start");
    return notify_end(p);
}

/* ---- Several ---- */

static int say_cpus(const void *arg, size_t len)
{
    cpu_set_t set;

    sched_getaffinity(0, sizeof(set), &set);
    printf("cpus");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            printf(" %d", i);
    printf("\n");
    return 0;
}

static int leaf(const void *arg, size_t len)
{
    printf("leaf %s its parent\n", strcmp(arg, host()) == 0 ? "beside" : "far from");
    return 3;
}

static int start_and_join(int n, fiber_process_fn fn, const void *arg, size_t len)
{
    struct fiber_process *p[MANY];
    int code, sum = 0;

    for (int i = 0; i < n; i++)
        if (fiber_process_start(&p[i], fn, arg, len, NULL) < 0)
            return fail("start");
    for (int i = 0; i < n; i++) {
        fiber_process_join(p[i], -1);
        if (fiber_process_exitcode(p[i], &code) < 0)
            return fail("exit code");
        if (code != 0 && code != 3)
            fprintf(stderr, "%s\n", fiber_process_report(p[i]));
        sum += code;
        fiber_process_close(p[i]);
    }
    return sum;
}

static int branch(const void *arg, size_t len)
{
    return start_and_join(2, leaf, host(), strlen(host()) + 1) != 6;
}

static int idle(const void *arg, size_t len)
{
    return 0;
}

static int play_many(int n, const char *fifo)
{
    int rc = n > MANY ? 2 : start_and_join(n, idle, NULL, 0);

    printf("%d ended well\n", rc ? -1 : n);
    fflush(stdout);
    if (fifo)
        wait_for_writer(fifo);
    return rc;
}

static int play_rank(void)
{
    printf("rank %s of %s on %s\n", getenv("FIBER_RANK"), getenv("FIBER_SIZE"), host());
    fflush(stdout);
    pause();
    return 0;
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    if (strcmp(role, "rank") == 0)
        return play_rank();
    if (fiber_init(NULL, NULL) < 0)
        return fail("init");
    if (strcmp(role, "pool") == 0 && argc >= 5)
        return play_pool(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), argc > 5 ? argv[5] : NULL,
                         argc > 6 ? atoi(argv[6]) : 0);
    if (strcmp(role, "jobs") == 0 && argc >= 6)
        return play_jobs(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), argv[5],
                         argc > 6 ? atoi(argv[6]) : 1);
    if (strcmp(role, "process") == 0 && argc > 2)
        return play_process(argv + 2);
    if (strcmp(role, "output") == 0 && argc >= 3)
        return play_output(atoi(argv[2]), argv[3]);
    if (strcmp(role, "many") == 0 && argc >= 3)
        return play_many(atoi(argv[2]), argv[3]);
    if (strcmp(role, "nested") == 0)
        return start_and_join(1, branch, NULL, 0);
    if (strcmp(role, "cpus") == 0)
        return start_and_join(1, say_cpus, NULL, 0);
    fprintf(stderr, "docker_prog: see the beginning of its source\n");
    return 2;
}
