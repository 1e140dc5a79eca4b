/* tasks.h - what the tests of pools share: task functions, a board in shared memory, waiting
 * without a race.
 *
 * The board is a file that the test and all its workers map (board_init is the pools' initializer).
 * Tasks count on it how often they ran, and meet there: a test that needs three busy workers lets
 * three tasks wait at the gate.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fiber.h"
#include "tests/support/children.h"
#include "tests/support/sanitized.h"

#define CELLS 32768
#define WAIT_MS 300000 /* only a failure reaches it */

struct board {
    _Atomic uint32_t gate;    /* tasks that wait_at_gate wait until it is not 0 */
    _Atomic uint32_t arrived; /* how many have come there */
    _Atomic uint32_t inits;   /* initializers that ran */
    _Atomic uint32_t steps;
    _Atomic uint32_t step[1024];  /* a log of who ran, in order */
    _Atomic uint32_t runs[CELLS]; /* of task i */
};

static struct board *board;
static char board_path[64];

/* ---- Time ---- */

static inline double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void nap_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        continue;
}

/* For figures that change without an event. */
#define assert_comes(condition)                                                 \
    do {                                                                        \
        double until_ = now_s() + WAIT_MS / 1e3;                                \
        while (!(condition)) {                                                  \
            if (now_s() > until_)                                               \
                fail_msg("after %d s not yet: %s", WAIT_MS / 1000, #condition); \
            nap_us(5000);                                                       \
        }                                                                       \
    } while (0)

#define assert_ok(call)                                              \
    do {                                                             \
        int rc_ = (call);                                            \
        if (rc_ != 0)                                                \
            fail_msg("%s: %d (%s)", #call, rc_, fiber_last_error()); \
    } while (0)

#define assert_contains(text, part)                                  \
    do {                                                             \
        const char *text_ = (text);                                  \
        if (!strstr(text_, part))                                    \
            fail_msg("\"%s\" does not contain \"%s\"", text_, part); \
    } while (0)

/* ---- The board ---- */

/* A file that the test and its workers map. */
static inline int map_shared(const char *path, size_t size, void *to)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at;

    if (fd < 0)
        return -errno;
    at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return -errno;
    memcpy(to, &at, sizeof(at));
    return 0;
}

/* Makes one of zeros, at a path that ends in XXXXXX. */
static inline int make_shared(char *path, size_t size)
{
    int fd = mkostemp(path, O_CLOEXEC);
    int rc = fd < 0 || ftruncate(fd, (off_t)size) < 0 ? -errno : 0;

    if (fd >= 0)
        close(fd);
    return rc;
}

static inline int board_map(const char *path)
{
    return map_shared(path, sizeof(*board), &board);
}

/* The initializer: maps the board whose path is the argument. */
static inline int board_init(const void *arg, size_t len)
{
    int rc = len ? board_map(arg) : -EINVAL;

    if (rc == 0)
        atomic_fetch_add(&board->inits, 1);
    return rc;
}

static inline void board_make(void)
{
    snprintf(board_path, sizeof(board_path), "/tmp/fiber-test-board-XXXXXX");
    assert_int_equal(make_shared(board_path, sizeof(struct board)), 0);
    assert_int_equal(board_map(board_path), 0);
}

static inline void board_drop(void)
{
    munmap(board, sizeof(*board));
    unlink(board_path);
}

static inline void wake_all(_Atomic uint32_t *cell)
{
    syscall(SYS_futex, cell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static inline void add(_Atomic uint32_t *cell)
{
    atomic_fetch_add(cell, 1);
    wake_all(cell);
}

/* Waits until the cell has reached n: 0, or -1 after WAIT_MS. */
static inline int wait_for(_Atomic uint32_t *cell, uint32_t n)
{
    struct timespec t = {1, 0};
    double until = now_s() + WAIT_MS / 1e3;
    uint32_t seen;

    while ((seen = atomic_load(cell)) < n) {
        if (now_s() > until)
            return -1;
        syscall(SYS_futex, cell, FUTEX_WAIT, seen, &t, NULL, 0);
    }
    return 0;
}

static inline void open_gate(void)
{
    atomic_store(&board->gate, 1);
    wake_all(&board->gate);
}

/* ---- Tasks ---- */

static inline int64_t number(const void *in, size_t len)
{
    int64_t n = -1;

    if (len >= sizeof(n))
        memcpy(&n, in, sizeof(n));
    return n;
}

static inline int square(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    n *= n;
    return fiber_reply_write(reply, &n, sizeof(n));
}

static inline int echo(const void *in, size_t len, struct fiber_reply *reply)
{
    return len ? fiber_reply_write(reply, in, len) : 0;
}

/* Waits until the gate is open, then squares. */
static inline int wait_at_gate(const void *in, size_t len, struct fiber_reply *reply)
{
    add(&board->arrived);
    if (wait_for(&board->gate, 1) < 0)
        return fiber_reply_fail(reply, -ETIME, "nobody opened the gate");
    return square(in, len, reply);
}

/* Works until nobody wants the result. */
static inline int until_cancelled(const void *in, size_t len, struct fiber_reply *reply)
{
    add(&board->arrived);
    while (!fiber_reply_cancelled(reply))
        nap_us(1000);
    add(&board->steps);
    return 0;
}

static inline int log_step(const void *in, size_t len, struct fiber_reply *reply)
{
    uint32_t at = atomic_fetch_add(&board->steps, 1);

    if (at < 1024)
        atomic_store(&board->step[at], (uint32_t)number(in, len));
    return square(in, len, reply);
}

/* Counts its run on the board. */
static inline int count_run(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    if (n >= 0 && n < CELLS)
        add(&board->runs[n]);
    return square(in, len, reply);
}

static inline int refuse_odd(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    if (n % 2)
        return fiber_reply_fail(reply, -EDOM, "%lld is odd", (long long)n);
    return square(in, len, reply);
}

static inline int nap_1ms(const void *in, size_t len, struct fiber_reply *reply)
{
    nap_us(1000);
    return square(in, len, reply);
}

static inline int kill_worker(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n = number(in, len);

    if (n >= 0 && n < CELLS)
        add(&board->runs[n]);
    raise(SIGKILL);
    return 0;
}

/* Answers with the worker's process id. */
static inline int notify_pid(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t pid = getpid();

    return fiber_reply_write(reply, &pid, sizeof(pid));
}

/* ---- Pools ---- */

static inline struct fiber_pool *open_pool_with(struct fiber_pool_options o)
{
    const char *per_job = getenv("TEST_WORKERS_PER_JOB"); /* where the test does not say */
    struct fiber_pool *pool = NULL;

    o.size = sizeof(o);
    if (per_job && !o.workers_per_job)
        o.workers_per_job = atoi(per_job);
    if (!o.init && !o.serve) {
        o.init = board_init;
        o.init_arg = board_path;
        o.init_len = strlen(board_path) + 1;
    }
    assert_ok(fiber_pool_open(&pool, &o));
    return pool;
}

static inline struct fiber_pool *open_pool(int workers)
{
    return open_pool_with((struct fiber_pool_options){.min = workers, .max = workers});
}

static inline struct fiber_pool_stats stats_of(struct fiber_pool *pool)
{
    struct fiber_pool_stats s = {.size = sizeof(s)};

    assert_ok(fiber_pool_stats(pool, &s));
    return s;
}

/* Runs a task in every one of n workers at once, so that all have joined. */
static inline void meet(struct fiber_pool *pool, int n)
{
    int64_t *in = calloc((size_t)n, sizeof(*in)), *out = calloc((size_t)n, sizeof(*out));
    uint32_t before = atomic_load(&board->arrived);
    struct fiber_result *r;

    atomic_store(&board->gate, 0);
    assert_ok(fiber_pool_map_array(pool, wait_at_gate, in, sizeof(*in), out, sizeof(*out),
                                   (size_t)n, NULL, &r));
    assert_int_equal(wait_for(&board->arrived, before + (uint32_t)n), 0);
    open_gate();
    assert_ok(fiber_result_wait(r, WAIT_MS));
    fiber_result_close(r);
    atomic_store(&board->gate, 0);
    free(in);
    free(out);
}

static inline struct fiber_result *apply_later(struct fiber_pool *pool, fiber_task_fn fn, int64_t n,
                                               const struct fiber_map_options *opts)
{
    struct fiber_result *r = NULL;

    assert_ok(fiber_pool_apply_async(pool, fn, &n, sizeof(n), opts, &r));
    return r;
}

static inline int64_t number_of(struct fiber_result *r, size_t index)
{
    const void *data;
    size_t len;

    assert_ok(fiber_result_get(r, index, &data, &len));
    assert_int_equal(len, sizeof(int64_t));
    return number(data, len);
}

/* The error of a done task: its code; its text must contain `part`. */
static inline int error_of(struct fiber_result *r, size_t index, const char *part)
{
    const void *data;
    size_t len;
    int rc = fiber_result_get(r, index, &data, &len);
    char *text;

    if (rc == 0)
        fail_msg("task %zu did not fail", index);
    text = strndup(data ? data : "", len);
    if (!strstr(text, part))
        fail_msg("task %zu failed with %d and \"%s\", which does not contain \"%s\"", index, rc,
                 text, part);
    free(text);
    return rc;
}

static inline unsigned count_in(const char *text, const char *part)
{
    unsigned n = 0;

    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* Whether the error says that the task was there at three deaths: then it is rightly given up. */
static inline bool is_blamed(int code, const void *data, size_t len)
{
    char *text = code == -EOWNERDEAD && data ? strndup(data, len) : NULL;
    bool blamed =
        text && strstr(text, "was running when 3 workers died") && count_in(text, "\nworker-") == 3;

    free(text);
    return blamed;
}

/* ---- Before and after each test, and at the end ---- */

static int children_before, descriptors_before;

static inline int board_setup(void **state)
{
    board_make();
    children_before = children_active(NULL);
    return 0;
}

static inline int board_teardown(void **state)
{
    board_drop();
    return children_active(NULL) != children_before; /* pools that were closed leave nobody */
}

static inline int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static inline int warm_up(void **state)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 1, .max = 1};
    struct fiber_pool *pool = NULL;

    if (fiber_pool_open(&pool, &o) || fiber_pool_apply(pool, echo, "", 0, NULL))
        return -1;
    fiber_pool_close(pool);
    descriptors_before = open_descriptors();
    return 0;
}

/* What the first pool opened is open still; nothing else is. cmocka tells that the end of a group has failed, and
 * answers that all is well. */
static inline int cool_down(void **state)
{
    double until = now_s() + WAIT_MS / 1e3;
    char command[64];
    int after, status = 0;
    pid_t left;

    while ((after = open_descriptors()) > descriptors_before && now_s() < until)
        nap_us(5000); /* the last process's are closed behind its end */
    if (after > descriptors_before) {
        fprintf(stderr, "%d descriptors are open, %d were before:\n", after, descriptors_before);
        snprintf(command, sizeof(command), "ls -l /proc/%d/fd >&2", (int)getpid());
        _exit(system(command) ? 2 : 1);
    }
    fiber_fini();
    left = waitpid(-1, &status, WNOHANG);
    if (left == -1 && errno == ECHILD)
        return 0;
    fprintf(stderr, "a child is left: pid %d (0: it runs), status %#x\n", (int)left, status);
    _exit(1);
}

#define run_pool_tests(tests, name) cmocka_run_group_tests_name(name, tests, warm_up, cool_down)
#define pool_test(fn) cmocka_unit_test_setup_teardown(fn, board_setup, board_teardown)
