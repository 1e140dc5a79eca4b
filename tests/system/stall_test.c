/* stall_test.c - masters that are stopped (SIGSTOP, as a laptop or a virtual machine may be) while their children are
 * reached by TCP: a short stall loses nothing; after a long one the reports say that it was the master who stood still.
 * And a child that is frozen is given up after 15 s. On the same host children wait for their
 * master for as long as it takes, and it keeps its place at objects that they own.
 *
 * The masters are this program in another role. All of them are stopped at the same time, so that the test takes
 * little longer than one of them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/net/loop.h"
#include "tests/support/children.h"
#include "tests/support/run.h"

#define BEAT_MS 1500                 /* three are missed only by one who is stopped */
#define SILENCE_MS (3 * BEAT_MS)     /* after which a child is given up */
#define PATIENCE_MS (4 * SILENCE_MS) /* and its parent */
#define TASKS 48

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* ---- The masters ---- */

static void notify_gate(void)
{
    char byte = 'x';

    gate_notify(getenv("STALL_GATE"), &byte, 1);
}

static int slow_square(const void *in, size_t len, struct fiber_reply *reply)
{
    int64_t n;

    if (len != sizeof(n))
        return -1;
    memcpy(&n, in, sizeof(n));
    if (n == 0)
        notify_gate();
    let_time_pass(100);
    n *= n;
    return fiber_reply_write(reply, &n, sizeof(n));
}

static int play_pool(const char *arg)
{
    const struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    struct fiber_pool_stats stats = {.size = sizeof(stats)};
    int64_t in[TASKS], out[TASKS], sum = 0;
    struct fiber_result *r;
    struct fiber_pool *pool;

    for (int i = 0; i < TASKS; i++)
        in[i] = i;
    if (fiber_pool_open(&pool, &o) < 0 ||
        fiber_pool_map_array(pool, slow_square, in, 8, out, 8, TASKS, NULL, &r) < 0 ||
        fiber_result_wait(r, TEST_LONG_MS) < 0 || fiber_pool_stats(pool, &stats) < 0) {
        printf("%s\n", fiber_last_error());
        return 1;
    }
    for (int i = 0; i < TASKS; i++)
        sum += out[i];
    printf("sum %lld, deaths %llu, %s\n", (long long)sum, (unsigned long long)stats.deaths,
           stats.requeued ? "some again" : "none again");
    fiber_result_close(r);
    fiber_pool_close(pool);
    return 0;
}

/* Runs until it is told to end, in the first ring; at once to its end in the next. */
static int rank(int rank, int size, const void *arg, size_t len)
{
    if (getenv("FIBER_LAST_FAILURE")) {
        printf("rank %d again\n", rank);
        return 0;
    }
    notify_gate();
    return gate_listen(arg) == 0 ? 0 : 9;
}

static int run_ring(const char *gate, enum fiber_ring_policy policy)
{
    const struct fiber_ring_options o = {.size = sizeof(o),
                                         .per_node = 1,
                                         .nodes = 2,
                                         .on_failure = policy,
                                         .flags = FIBER_RING_OVERSUBSCRIBE};
    int rc = fiber_ring_run(2, rank, gate, strlen(gate) + 1, &o);

    printf("ring %d\n", rc);
    return 0;
}

static int play_ring(const char *gate)
{
    return run_ring(gate, FIBER_RING_ABORT);
}

static int play_restart(const char *gate)
{
    return run_ring(gate, FIBER_RING_RESTART);
}

static int freeze(const void *gate, size_t len)
{
    notify_gate();
    if (gate_notify(gate, "x", 1) < 0)
        return 1;
    raise(SIGSTOP);
    return 0;
}

/* The promise with the settings that everybody has: 15 s, and for how long the master gets no processor. */
static int play_frozen(const char *arg)
{
    struct fiber_process *p;
    uint64_t since, took;
    struct gate there;
    char byte;

    gate_open(&there);
    p = begin_str(freeze, there.path);
    if (gate_wait(&there, &byte, 1) < 0)
        return 1;
    since = fbr_now_ms();
    ended(p);
    took = fbr_now_ms() - since;
    printf("%s after %llu ms, %s\n", fiber_process_report(p), (unsigned long long)took,
           took <= 15000 + 5000 ? "in time" : "too late");
    fiber_process_close(p);
    gate_close(&there);
    return 0;
}

static int get_seven(const void *arg, size_t len)
{
    struct fiber_bytes b = {0};
    struct fiber_queue *q;
    int rc;

    if (fiber_queue_connect(&q, arg) < 0)
        return 1;
    notify_gate();
    rc = fiber_queue_get(q, &b, -1);
    if (rc < 0)
        fprintf(stderr, "%s\n", fiber_last_error());
    else
        rc = b.len == 1 && *(char *)b.data == '7' ? 0 : 2;
    fiber_bytes_free(&b);
    fiber_queue_close(q);
    return rc;
}

/* Puts once it goes on; a child waits for that in a get. */
static int play_queue(const char *gate)
{
    struct fiber_address a;
    struct fiber_process *p;
    struct fiber_queue *q;

    if (fiber_queue_open(&q, 0) < 0 || fiber_queue_address(q, &a) < 0)
        return 1;
    p = begin(get_seven, &a, sizeof(a), NULL);
    if (gate_listen(gate) < 0 || fiber_queue_put(q, "7", 1, -1) < 0)
        return 2;
    printf("get %d\n", finish(p));
    fiber_queue_close(q);
    return 0;
}

/* Holds a lock of a store, which is a child, over the stop. */
static int play_store(const char *gate)
{
    struct fiber_store *s;

    if (fiber_store_start(&s, NULL) < 0 || fiber_store_lock(s, "lock", -1) < 0)
        return 1;
    notify_gate();
    if (gate_listen(gate) < 0)
        return 2;
    printf("unlock %d\n", fiber_store_unlock(s, "lock"));
    fiber_store_close(s);
    return 0;
}

/* ---- The test ---- */

struct master {
    const char *role;
    int stall_ms; /* 0: it is not stopped, and has the settings that everybody has */
    int tells;    /* bytes that say that its children work */
    bool near;    /* they are not reached by TCP */
    const char *says[4];
    struct gate works, go_on;
    uint64_t stopped_at;
    pid_t pid;
    int out;
};

static void start_master(struct master *m)
{
    char gate[128], beat[40];
    const char *const env[] = {gate, m->near ? "FIBER_TRANSPORT=auto" : "FIBER_TRANSPORT=tcp",
                               m->stall_ms ? beat : NULL, NULL};
    char bytes[4];

    gate_open(&m->works);
    gate_open(&m->go_on);
    snprintf(gate, sizeof(gate), "STALL_GATE=%s", m->works.path);
    snprintf(beat, sizeof(beat), "FIBER_HEARTBEAT=%dms", BEAT_MS);
    m->pid = start_self(m->role, m->go_on.path, env, &m->out);
    assert_int_equal(gate_wait(&m->works, bytes, (size_t)m->tells), 0);
}

static void read_all(int fd, char *text, size_t size)
{
    size_t len = 0;
    ssize_t n;

    while (len + 1 < size && (n = read(fd, text + len, size - len - 1)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    close(fd);
}

static void expect_of_master(struct master *m)
{
    char text[16384];
    int status;

    assert_int_equal(write(m->go_on.fd, "xx", 2), 2);
    read_all(m->out, text, sizeof(text));
    assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
    if (status)
        fprintf(stderr, "%s: %s\n", m->role, text);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < COUNT(m->says) && m->says[i]; i++)
        assert_true(has(text, m->says[i], NULL));
    gate_close(&m->works);
    gate_close(&m->go_on);
}

static void stop_master(struct master *m)
{
    int status;

    kill(m->pid, SIGSTOP);
    assert_int_equal(waitpid(m->pid, &status, WUNTRACED), m->pid);
    assert_true(WIFSTOPPED(status));
    m->stopped_at = fbr_now_ms();
}

/* Lets those that are stopped for so long go on. */
static void let_go_on(const struct master *all, size_t n, int stall_ms)
{
    for (size_t i = 0; i < n; i++) {
        int64_t left = (int64_t)(all[i].stopped_at + (uint64_t)stall_ms - fbr_now_ms());

        if (all[i].stall_ms != stall_ms)
            continue;
        let_time_pass(left > 0 ? (int)left : 0);
        kill(all[i].pid, SIGCONT);
    }
}

/* Those that may be stopped for a short time only begin last: nobody waits for the start of another one then. */
static void test_masters_that_were_stopped(void **state)
{
    enum { SHORT = SILENCE_MS + 2 * BEAT_MS, LONG = PATIENCE_MS + 3 * BEAT_MS };
    struct master all[] = {
        {.role = "frozen", .tells = 1, .says = {"no heartbeat for 15.", "in time"}},
        {.role = "pool", .stall_ms = LONG, .tells = 1, .says = {"sum 35720, deaths 0, some again"}},
        {.role = "ring",
         .stall_ms = LONG,
         .tells = 2,
         .says = {"ring 137", "its parent was itself stopped for"}},
        {.role = "restart",
         .stall_ms = LONG,
         .tells = 2,
         .says = {"rank 0 again", "rank 1 again", "ring 0"}},
        {.role = "queue", .stall_ms = LONG, .tells = 1, .near = true, .says = {"get 0"}},
        {.role = "store", .stall_ms = LONG, .tells = 1, .near = true, .says = {"unlock 0"}},
        {.role = "pool",
         .stall_ms = SHORT,
         .tells = 1,
         .says = {"sum 35720, deaths 0, none again"}},
        {.role = "ring", .stall_ms = SHORT, .tells = 2, .says = {"ring 0"}},
    };

    for (size_t i = 0; i < COUNT(all); i++) {
        start_master(&all[i]);
        if (all[i].stall_ms)
            stop_master(&all[i]); /* in the middle of its work */
    }
    let_go_on(all, COUNT(all), SHORT);
    let_go_on(all, COUNT(all), LONG);
    for (size_t i = 0; i < COUNT(all); i++)
        expect_of_master(&all[i]);
}

static int play(const char *role, const char *arg)
{
    if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        return 98;
    if (strcmp(role, "pool") == 0)
        return play_pool(arg);
    if (strcmp(role, "frozen") == 0)
        return play_frozen(arg);
    if (strcmp(role, "queue") == 0)
        return play_queue(arg);
    if (strcmp(role, "store") == 0)
        return play_store(arg);
    return strcmp(role, "ring") == 0 ? play_ring(arg) : play_restart(arg);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masters_that_were_stopped),
    };

    init_fiber(&argc, &argv);
    return argc > 2 ? play(argv[1], argv[2]) : cmocka_run_group_tests(tests, NULL, NULL);
}
