/* manager_test.c - managers: methods one at a time on a state of its own, futures in any order,
 * deaths and ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"
#include "tests/support/sanitized.h"

#define ROUNDS 100

/* ---- The class: what happens in the manager's process ---- */

struct ledger {
    int sum;
    int inside; /* methods that run */
    char gate[96];
};

static int ledger_open(void **state, const void *arg, size_t len)
{
    struct ledger *l = calloc(1, sizeof(*l));

    if (!l || (uintptr_t)arg % 8)
        return -EFAULT;
    snprintf(l->gate, sizeof(l->gate), "%.*s", (int)len, (const char *)arg);
    *state = l;
    return strcmp(l->gate, "refuse") == 0 ? -EDOM : 0;
}

static void ledger_close(void *state)
{
    struct ledger *l = state;

    if (l->gate[0])
        gate_notify(l->gate, &l->sum, sizeof(l->sum));
    free(l);
}

/* Another one in between would be seen. */
static int add(struct ledger *l, int n)
{
    int sum = l->sum;

    l->inside++;
    sched_yield();
    l->sum = sum + n;
    return --l->inside;
}

struct own_call {
    struct fiber_manager *m;
    char gate[96];
};

/* In the manager's process, but not its main thread. */
static void *call_own_manager(void *arg)
{
    struct own_call *c = arg;
    struct fiber_bytes b;
    int sum = -1;

    if (fiber_manager_call(c->m, "add", &(int){5}, sizeof(int), &b, -1) == 0)
        memcpy(&sum, b.data, sizeof(sum));
    fiber_bytes_free(&b);
    fiber_manager_close(c->m);
    gate_notify(c->gate, &sum, sizeof(sum));
    free(c);
    return NULL;
}

static int call_by_thread(struct ledger *l, const void *address)
{
    struct own_call *c = calloc(1, sizeof(*c));
    pthread_t t;

    if (!c || fiber_manager_connect(&c->m, address) < 0)
        return -EIO;
    strcpy(c->gate, l->gate);
    pthread_create(&t, NULL, call_own_manager, c);
    return pthread_detach(t);
}

static int call_itself(const void *address)
{
    struct fiber_manager *m;
    int rc = fiber_manager_connect(&m, address);

    if (rc < 0)
        return rc;
    rc = fiber_manager_call(m, "sum", NULL, 0, NULL, -1);
    fiber_manager_close(m);
    return rc;
}

static int misbehave(struct ledger *l, const char *method, struct fiber_reply *reply)
{
    pid_t me = getpid();

    if (strcmp(method, "crash") == 0)
        raise(SIGKILL);
    if (strcmp(method, "exit") == 0)
        _exit(0);
    if (strcmp(method, "hang") == 0)
        return gate_notify(l->gate, &me, sizeof(me)) < 0 || child_wait(NULL, 0);
    if (strcmp(method, "fail") == 0)
        return fiber_reply_fail(reply, -ENODATA, "the ledger has %d", l->sum);
    if (strcmp(method, "fail plainly") == 0)
        return -ENOSPC;
    return fiber_reply_fail(reply, -ENOSYS, "no method '%s'", method);
}

static const char much[1 << 20];

static long peak_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");

    while (f && kib == 0 && fgets(line, sizeof(line), f))
        sscanf(line, "VmHWM: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

#define LARGE (64u << 20)

/* An answer for which there is memory, but not for a copy of it. */
static int answer_without_memory(struct fiber_reply *reply)
{
    FILE *f = fopen("/proc/self/statm", "re");
    struct rlimit limit;
    unsigned long pages;

    if (!f || fscanf(f, "%lu", &pages) != 1 || !fiber_reply_alloc(reply, LARGE))
        return -EIO;
    fclose(f);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + LARGE + LARGE / 2;
    return setrlimit(RLIMIT_AS, &limit) < 0 ? -errno : 0;
}

static int ledger_call(void *state, const char *method, const void *in, size_t len,
                       struct fiber_reply *reply)
{
    struct ledger *l = state;

    if ((uintptr_t)in % 8)
        return fiber_reply_fail(reply, -EFAULT, "the input is not aligned");
    if (strcmp(method, "sum") == 0)
        return fiber_reply_write(reply, &l->sum, sizeof(l->sum));
    if (strcmp(method, "add") == 0)
        return add(l, *(const int *)in) ? -EBUSY
                                        : fiber_reply_write(reply, &l->sum, sizeof(l->sum));
    if (strcmp(method, "much") == 0)
        return fiber_reply_write(reply, much, sizeof(much));
    if (strcmp(method, "memory") == 0)
        return fiber_reply_write(reply, &(long){peak_kib()}, sizeof(long));
    if (strcmp(method, "add slowly") == 0) {
        let_time_pass(250);
        return add(l, 1) ? -EBUSY : 0;
    }
    if (strcmp(method, "echo") == 0)
        return fiber_reply_write(reply, in, len);
    if (strcmp(method, "sized") == 0)
        return fiber_reply_alloc(reply, *(const size_t *)in) ? 0 : -ENOMEM;
    if (strcmp(method, "scarce") == 0)
        return answer_without_memory(reply);
    if (strcmp(method, "listen") == 0)
        return gate_listen(in) < 0 || add(l, 1000) ? -EIO : fiber_reply_write(reply, "heard", 5);
    if (strcmp(method, "itself") == 0)
        return call_itself(in);
    if (strcmp(method, "by thread") == 0)
        return call_by_thread(l, in);
    return misbehave(l, method, reply);
}

static const struct fiber_class ledger = {sizeof(ledger), ledger_open, ledger_call, ledger_close};

/* ---- Short ways ---- */

static struct fiber_manager *start(const char *gate)
{
    struct fiber_manager *m;

    if (fiber_manager_start(&m, &ledger, gate, gate ? strlen(gate) : 0, NULL) < 0)
        fail_msg("%s", fiber_last_error());
    return m;
}

static int call_add(struct fiber_manager *m, int n)
{
    struct fiber_bytes b;
    int sum;

    if (fiber_manager_call(m, "add", &n, sizeof(n), &b, -1) < 0)
        return -1;
    memcpy(&sum, b.data, sizeof(sum));
    fiber_bytes_free(&b);
    return sum;
}

static struct fiber_future *begin_call(struct fiber_manager *m, const char *method, const void *in,
                                       size_t len)
{
    struct fiber_future *f;

    if (fiber_manager_call_async(m, method, in, len, &f) < 0)
        fail_msg("%s", fiber_last_error());
    return f;
}

static int get_int(struct fiber_future *f)
{
    struct fiber_bytes b;
    int v = -1;

    if (fiber_future_get(f, &b, TEST_LONG_MS) == 0 && b.len == sizeof(v))
        memcpy(&v, b.data, sizeof(v));
    fiber_bytes_free(&b);
    fiber_future_close(f);
    return v;
}

/* ---- Calls ---- */

static void test_methods_run_on_the_state(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_bytes b;

    assert_int_equal(call_add(m, 3), 3);
    assert_int_equal(call_add(m, 4), 7);
    assert_int_equal(fiber_manager_call(m, "sum", NULL, 0, &b, -1), 0);
    assert_int_equal(*(int *)b.data, 7);
    fiber_bytes_free(&b);
    assert_int_equal(fiber_manager_call(m, "sum", NULL, 0, NULL, TEST_LONG_MS), 0);
    fiber_manager_close(m);
    assert_int_equal(children_active(NULL), 0);
}

static void test_errors_arrive_as_errors(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_future *f;
    struct fiber_bytes b = {(void *)1, 1};

    assert_int_equal(fiber_manager_call(m, "fail", NULL, 0, &b, -1), -ENODATA);
    assert_string_equal(fiber_last_error(), "the ledger has 0");
    assert_null(b.data);
    assert_int_equal(fiber_manager_call(m, "fail plainly", NULL, 0, NULL, -1), -ENOSPC);
    assert_true(strlen(fiber_last_error()) > 0);
    assert_int_equal(fiber_manager_call(m, "nonsense", NULL, 0, NULL, -1), -ENOSYS);
    assert_true(has(fiber_last_error(), "nonsense", NULL));
    f = begin_call(m, "fail", NULL, 0);
    assert_int_equal(fiber_future_wait(f, -1), 0);
    assert_int_equal(fiber_future_get(f, &b, -1), -ENODATA);
    assert_string_equal(fiber_last_error(), "the ledger has 0");
    fiber_future_close(f);
    assert_int_equal(call_add(m, 1), 1); /* it lives on */
    fiber_manager_close(m);
}

static void test_futures_in_any_order(void **state)
{
    static const int order[10] = {7, 0, 9, 3, 1, 8, 2, 6, 4, 5};
    struct fiber_manager *m = start(NULL);
    struct fiber_future *f[10];
    struct fiber_bytes b;

    for (int i = 0; i < 10; i++)
        f[i] = begin_call(m, "add", &(int){1}, sizeof(int));
    for (int i = 0; i < 9; i++)
        assert_int_equal(get_int(f[order[i]]),
                         order[i] + 1); /* they ran in the order of the calls */
    assert_int_equal(fiber_future_wait(f[5], -1), 0);
    assert_int_equal(fiber_future_wait(f[5], 0), 0);
    assert_int_equal(fiber_future_get(f[5], &b, 0), 0);
    assert_int_equal(*(int *)b.data, 6);
    fiber_bytes_free(&b);
    assert_int_equal(fiber_future_get(f[5], &b, 0), -ENODATA);
    fiber_future_close(f[5]);
    fiber_future_close(NULL);
    fiber_manager_close(m);
}

static void test_a_future_that_is_dropped_is_run_all_the_same(void **state)
{
    struct fiber_manager *m = start(NULL);

    for (int i = 0; i < ROUNDS; i++)
        fiber_future_close(begin_call(m, "add", &(int){1}, sizeof(int)));
    assert_int_equal(call_add(m, 0), ROUNDS);
    fiber_manager_close(m);
}

static void test_thousands_of_calls_under_way(void **state)
{
    enum { N = 5000 };
    static struct fiber_future *f[N];
    struct fiber_manager *m = start(NULL);

    for (int i = 0; i < N; i++)
        f[i] = begin_call(m, "add", &(int){1}, sizeof(int));
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(get_int(f[i]), i + 1);
    fiber_manager_close(m);
}

static void test_large_calls(void **state)
{
    struct fiber_manager *m = start(NULL);
    size_t len = (17 << 20) + 5;
    unsigned char *big = malloc(len);
    struct fiber_future *f[4]; /* more than may be under way at once */
    struct fiber_bytes b;

    for (size_t i = 0; i < len; i++)
        big[i] = (unsigned char)(i * 11 + (i >> 10));
    for (int i = 0; i < 4; i++)
        f[i] = begin_call(m, "echo", big, len - (size_t)i);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fiber_future_get(f[i], &b, -1), 0);
        assert_int_equal(b.len, len - (size_t)i);
        assert_memory_equal(b.data, big, b.len);
        fiber_bytes_free(&b);
        fiber_future_close(f[i]);
    }
    free(big);
    fiber_manager_close(m);
}

static void test_a_timeout_leaves_the_call_running(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_future *f;
    struct fiber_bytes b;
    struct gate g;

    gate_open(&g);
    assert_int_equal(fiber_manager_call(m, "listen", g.path, sizeof(g.path), &b, 50), -ETIMEDOUT);
    assert_true(has(fiber_last_error(), "listen", "timeout", NULL));
    assert_null(b.data);
    f = begin_call(m, "add", &(int){1}, sizeof(int));
    assert_int_equal(fiber_future_wait(f, 20), -ETIMEDOUT);
    assert_int_equal(fiber_future_get(f, &b, 0), -ETIMEDOUT);
    assert_int_equal(gate_notify(g.path, "x", 1), 0);
    assert_int_equal(get_int(f), 1001); /* and the late answer went to nobody */
    fiber_manager_close(m);
    gate_close(&g);
}

static void test_wrong_arguments_are_errors(void **state)
{
    struct fiber_class bad = ledger;
    struct fiber_address address;
    struct fiber_manager *m;
    struct fiber_store *s;

    bad.size = 8;
    assert_int_equal(fiber_manager_start(&m, &bad, NULL, 0, NULL), -EINVAL);
    bad = ledger;
    bad.call = NULL;
    assert_int_equal(fiber_manager_start(&m, &bad, NULL, 0, NULL), -EINVAL);
    bad = ledger;
    bad.open = (int (*)(void **, const void *, size_t))(uintptr_t)&bad; /* not a function */
    assert_int_equal(fiber_manager_start(&m, &bad, NULL, 0, NULL), -EFAULT);
    assert_true(has(fiber_last_error(), "open", NULL));
    m = start(NULL);
    assert_int_equal(fiber_manager_call(m, NULL, NULL, 0, NULL, -1), -EINVAL);
    assert_int_equal(fiber_manager_call(m, "add", NULL, 4, NULL, -1), -EINVAL);
    assert_int_equal(fiber_manager_address(m, &address), 0);
    assert_int_equal(fiber_store_connect(&s, &address), -EINVAL);
    assert_true(has(fiber_last_error(), "manager", "store", NULL));
    memset(&address, 7, sizeof(address));
    fiber_manager_close(m);
    assert_int_equal(fiber_manager_connect(&m, &address), -EINVAL);
    fiber_manager_close(NULL);
}

/* ---- Many ---- */

static void *call_from_thread(void *manager)
{
    char text[64];

    for (int i = 0; i < ROUNDS; i++) {
        struct fiber_bytes b;
        int len = snprintf(text, sizeof(text), "%p says %d", (void *)text, i);

        if (fiber_manager_call(manager, "echo", text, (size_t)len, &b, -1) < 0)
            return (void *)"failed";
        if (b.len != (size_t)len || memcmp(b.data, text, b.len) != 0)
            return (void *)"another's answer";
        fiber_bytes_free(&b);
    }
    return NULL;
}

static void test_eight_threads_share_a_handle(void **state)
{
    struct fiber_manager *m = start(NULL);
    pthread_t t[8];
    void *rc;

    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, call_from_thread, m), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    fiber_manager_close(m);
}

static int call_from_process(const void *arg, size_t len)
{
    struct fiber_address passed_on;
    struct fiber_manager *m, *again;
    int rc = 0;

    if (fiber_manager_connect(&m, arg) < 0 || fiber_manager_address(m, &passed_on) < 0 ||
        fiber_manager_connect(&again, &passed_on) < 0)
        return 1;
    for (int i = 0; i < ROUNDS && rc >= 0; i++)
        rc = call_add(i % 2 ? m : again, 1);
    fiber_manager_close(m);
    fiber_manager_close(again);
    return rc < 0;
}

static void test_one_method_at_a_time_for_all_processes(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_address address;
    struct fiber_process *p[4];

    assert_int_equal(fiber_manager_address(m, &address), 0);
    for (int i = 0; i < 4; i++)
        p[i] = begin(call_from_process, &address, sizeof(address), NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(finish(p[i]), 0);
    assert_int_equal(call_add(m, 0), 4 * ROUNDS);
    fiber_manager_close(m);
}

#define MUCH SOME_OF(400) /* answers of a MiB, more than the 64 that may wait for one process */

/* Stops before it reads its answers. */
static int stop_and_read(const void *arg, size_t len)
{
    struct fiber_future *f[MUCH];
    struct fiber_manager *m;
    int rc = 0;

    if (fiber_manager_connect(&m, arg) < 0)
        return 1;
    for (int i = 0; i < MUCH; i++)
        f[i] = begin_call(m, "much", NULL, 0);
    raise(SIGSTOP);
    for (int i = 0; i < MUCH; i++) {
        struct fiber_bytes b;

        rc |= fiber_future_get(f[i], &b, -1) < 0 || b.len != sizeof(much);
        fiber_bytes_free(&b);
        fiber_future_close(f[i]);
    }
    fiber_manager_close(m);
    return rc;
}

static long memory_of(struct fiber_manager *m)
{
    struct fiber_bytes b;
    long kib;

    assert_int_equal(fiber_manager_call(m, "memory", NULL, 0, &b, TEST_LONG_MS), 0);
    memcpy(&kib, b.data, sizeof(kib));
    fiber_bytes_free(&b);
    return kib;
}

/* The answers to a process that was stopped wait for it, and some of its calls do: not the calls of others. */
static void test_a_process_that_does_not_read_takes_little_memory(void **state)
{
    struct fiber_manager *m = start(NULL);
    long before = memory_of(m);
    struct fiber_address address;
    struct fiber_process *p;
    siginfo_t info;

    assert_int_equal(fiber_manager_address(m, &address), 0);
    p = begin(stop_and_read, &address, sizeof(address), NULL);
    assert_int_equal(fiber_process_wait_joined(p, TEST_LONG_MS), 0);
    assert_int_equal(waitid(P_PID, (id_t)fiber_process_pid(p), &info, WSTOPPED | WNOWAIT), 0);
    assert_int_equal(call_add(m, 1), 1); /* behind the others' calls */
    assert_true(SANITIZED || memory_of(m) - before < 128 << 10);
    kill((pid_t)fiber_process_pid(p), SIGCONT);
    assert_int_equal(finish(p), 0);
    fiber_manager_close(m);
}

static void test_many_managers_work_at_the_same_time(void **state)
{
    enum { N = 8 };
    struct fiber_manager *m[N];
    struct fiber_future *f[N];
    struct gate g[N];

    for (int i = 0; i < N; i++) {
        gate_open(&g[i]);
        m[i] = start(NULL);
        f[i] = begin_call(m[i], "listen", g[i].path, sizeof(g[i].path));
    }
    for (int i = N - 1; i >= 0; i--) { /* all are in their method; each waits for its own gate */
        struct fiber_bytes b;

        assert_int_equal(gate_notify(g[i].path, "x", 1), 0);
        assert_int_equal(fiber_future_get(f[i], &b, -1), 0);
        assert_memory_equal(b.data, "heard", 5);
        fiber_bytes_free(&b);
        fiber_future_close(f[i]);
    }
    for (int i = 0; i < N; i++) {
        fiber_manager_close(m[i]);
        gate_close(&g[i]);
    }
}

static void test_a_manager_may_be_called_from_its_own_process(void **state)
{
    struct fiber_manager *m;
    struct fiber_address address;
    struct gate g;
    int sum;

    gate_open(&g);
    m = start(g.path);
    assert_int_equal(fiber_manager_address(m, &address), 0);
    assert_int_equal(fiber_manager_call(m, "by thread", &address, sizeof(address), NULL, -1), 0);
    assert_int_equal(gate_wait(&g, &sum, sizeof(sum)), 0);
    assert_int_equal(sum, 5);
    assert_int_equal(fiber_manager_call(m, "itself", &address, sizeof(address), NULL, -1),
                     -EDEADLK);
    fiber_manager_close(m);
    gate_close(&g);
}

/* ---- Deaths and ends ---- */

static void test_a_class_that_does_not_open_says_why(void **state)
{
    struct fiber_manager *m;

    assert_int_equal(
        fiber_manager_start(&m, &ledger, "refuse", 6, OPTIONS(.job = {.name = "grumpy"})), -ECHILD);
    assert_true(has(fiber_last_error(), "grumpy",
                    ") cannot serve: its class did not open: open returned -33", NULL));
    assert_int_equal(children_active(NULL), 0);
}

static void test_a_manager_that_dies_in_a_call(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_future *f[3];
    struct gate g;

    gate_open(&g);
    f[0] = begin_call(m, "listen", g.path, sizeof(g.path)); /* until all calls are under way */
    f[1] = begin_call(m, "crash", NULL, 0);
    f[2] = begin_call(m, "add", &(int){1}, sizeof(int));
    assert_int_equal(gate_notify(g.path, "x", 1), 0);
    assert_int_equal(fiber_manager_call(m, "sum", NULL, 0, NULL, -1), -EPIPE);
    assert_true(has(fiber_last_error(), "sum", "manager", "killed by signal 9", NULL));
    for (int i = 1; i < 3; i++) {
        assert_int_equal(fiber_future_wait(f[i], 0), 0);
        assert_int_equal(fiber_future_get(f[i], NULL, 0), -EPIPE);
    }
    for (int i = 0; i < 3; i++)
        fiber_future_close(f[i]);
    assert_int_equal(fiber_manager_call(m, "sum", NULL, 0, NULL, -1), -EPIPE);
    fiber_manager_close(m);
    gate_close(&g);
}

static void test_a_manager_that_exits_in_a_call(void **state)
{
    struct fiber_manager *m = start(NULL);

    assert_int_equal(fiber_manager_call(m, "exit", NULL, 0, NULL, -1), -EPIPE);
    assert_true(has(fiber_last_error(), "exited with code 0", NULL));
    fiber_manager_close(m);
}

static void test_an_answer_that_finds_no_memory_ends_its_connection(void **state)
{
    struct fiber_manager *m, *again;
    struct fiber_address a;

    if (SANITIZED) {
        print_message("a sanitizer needs more memory than a limit would leave\n");
        skip();
    }
    m = start(NULL);
    assert_int_equal(fiber_manager_address(m, &a), 0);
    assert_int_equal(fiber_config_set("linger", "100ms"), 0); /* the message looks for its end */
    assert_int_equal(fiber_manager_call(m, "scarce", NULL, 0, NULL, 20000), -EPIPE);
    assert_int_equal(fiber_config_set("linger", "5s"), 0);
    assert_int_equal(fiber_manager_connect(&again, &a), 0);
    assert_int_equal(call_add(again, 7), 7);
    fiber_manager_close(again);
    fiber_manager_close(m);
}

static int call_until_gone(const void *arg, size_t len)
{
    struct fiber_manager *m;
    int rc;

    if (fiber_manager_connect(&m, arg) < 0)
        return 1;
    rc = fiber_manager_call(m, "hang", NULL, 0, NULL, -1);
    fiber_manager_close(m);
    return rc == -EPIPE ? 0 : 2;
}

static void test_when_it_is_killed_callers_elsewhere_are_told(void **state)
{
    struct fiber_manager *m;
    struct fiber_process *p;
    struct fiber_address address;
    struct gate g;
    pid_t pid;

    gate_open(&g);
    m = start(g.path);
    assert_int_equal(fiber_manager_address(m, &address), 0);
    p = begin(call_until_gone, &address, sizeof(address), NULL);
    assert_int_equal(gate_wait(&g, &pid, sizeof(pid)), 0);
    kill(pid, SIGKILL);
    assert_int_equal(finish(p), 0);
    fiber_manager_close(m);
    gate_close(&g);
}

static void test_to_close_it_runs_what_was_called_and_closes_the_state(void **state)
{
    struct fiber_manager *m;
    struct gate g;
    int sum;

    gate_open(&g);
    m = start(g.path);
    for (int i = 0; i < ROUNDS; i++)
        fiber_future_close(begin_call(m, "add", &(int){1}, sizeof(int)));
    fiber_manager_close(m);
    assert_int_equal(children_active(NULL), 0);
    assert_int_equal(gate_wait(&g, &sum, sizeof(sum)), 0);
    assert_int_equal(sum, ROUNDS);
    gate_close(&g);
}

/* Each takes its time, and all together more than the grace. */
static int close_behind_slow_calls(void)
{
    struct fiber_manager *m;
    struct gate g;
    int sum;

    gate_open(&g);
    m = start(g.path);
    for (int i = 0; i < 8; i++)
        fiber_future_close(begin_call(m, "add slowly", NULL, 0));
    fiber_manager_close(m);
    if (gate_wait(&g, &sum, sizeof(sum)) < 0)
        return 1;
    gate_close(&g);
    return sum == 8 ? 0 : 2;
}

static void test_the_grace_is_that_of_one_method(void **state)
{
    const char *const env[] = {"FIBER_GRACE=1500ms", NULL};
    struct ran r = run_self("slow", NULL, env);

    if (r.code)
        fprintf(stderr, "%s", r.err);
    assert_int_equal(r.code, 0);
    ran_free(&r);
}

static void test_a_future_outlives_the_handle(void **state)
{
    struct fiber_manager *m = start(NULL);
    struct fiber_future *f = begin_call(m, "add", &(int){7}, sizeof(int));

    fiber_manager_close(m);
    assert_int_equal(get_int(f), 7);
}

static int close_while_it_hangs(void)
{
    struct fiber_manager *m;
    struct fiber_future *f;
    struct gate g;
    pid_t pid;
    int rc;

    gate_open(&g);
    m = start(g.path);
    f = begin_call(m, "hang", NULL, 0);
    if (gate_wait(&g, &pid, sizeof(pid)) < 0)
        return 1;
    gate_close(&g);
    fiber_manager_close(m);
    if (children_active(NULL) != 0)
        return 2;
    rc = fiber_future_get(f, NULL, 0);
    fiber_future_close(f);
    return rc == -EPIPE ? 0 : 3;
}

static void test_a_method_that_hangs_is_killed_after_the_grace(void **state)
{
    const char *const env[] = {"FIBER_GRACE=100ms", NULL};
    struct ran r = run_self("hang", NULL, env);

    if (r.code)
        fprintf(stderr, "%s", r.err);
    assert_int_equal(r.code, 0);
    ran_free(&r);
}

static void test_a_forked_child_gets_an_error(void **state)
{
    struct fiber_manager *m = start(NULL);
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int rc = fiber_manager_call(m, "sum", NULL, 0, NULL, -1);

        fiber_manager_close(m);
        _exit(rc == -EPERM ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(call_add(m, 1), 1);
    fiber_manager_close(m);
}

/* max_message is 64 KiB. */
static int say_too_much(void)
{
    static char bytes[1 << 17];
    struct fiber_manager *m = start(NULL);
    size_t n = sizeof(bytes);
    int rc = 0;

    if (fiber_manager_call(m, "echo", bytes, n, NULL, -1) != -EMSGSIZE)
        rc = 1;
    if (!has(fiber_last_error(), "echo", "max_message", NULL))
        rc = 4;
    if (fiber_manager_call(m, "sized", &n, sizeof(n), NULL, -1) != -EMSGSIZE)
        rc = 2;
    if (!has(fiber_last_error(), "131072", "max_message", NULL) || call_add(m, 5) != 5)
        rc = 3;
    fiber_manager_close(m);
    return rc;
}

static void test_what_is_too_long_is_an_error_and_nothing_more(void **state)
{
    const char *const env[] = {"FIBER_MAX_MESSAGE=64Ki", NULL};
    struct ran r = run_self("much", NULL, env);

    if (r.code)
        fprintf(stderr, "%s", r.err);
    assert_int_equal(r.code, 0);
    ran_free(&r);
}

static int close_after_the_end(void)
{
    struct fiber_manager *m = start(NULL), *none;
    struct fiber_future *f = begin_call(m, "add", &(int){1}, sizeof(int));

    fiber_fini();
    if (fiber_manager_start(&none, &ledger, NULL, 0, NULL) != -ESHUTDOWN)
        return 1;
    fiber_future_close(f);
    fiber_manager_close(m);
    return 0;
}

static void test_a_handle_may_be_closed_after_the_end(void **state)
{
    struct ran r = run_self("fini", NULL, NULL);

    if (r.code)
        fprintf(stderr, "%s", r.err);
    assert_int_equal(r.code, 0);
    ran_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods_run_on_the_state),
        cmocka_unit_test(test_errors_arrive_as_errors),
        cmocka_unit_test(test_futures_in_any_order),
        cmocka_unit_test(test_a_future_that_is_dropped_is_run_all_the_same),
        cmocka_unit_test(test_thousands_of_calls_under_way),
        cmocka_unit_test(test_large_calls),
        cmocka_unit_test(test_a_timeout_leaves_the_call_running),
        cmocka_unit_test(test_wrong_arguments_are_errors),
        cmocka_unit_test(test_eight_threads_share_a_handle),
        cmocka_unit_test(test_one_method_at_a_time_for_all_processes),
        cmocka_unit_test(test_a_process_that_does_not_read_takes_little_memory),
        cmocka_unit_test(test_many_managers_work_at_the_same_time),
        cmocka_unit_test(test_a_manager_may_be_called_from_its_own_process),
        cmocka_unit_test(test_a_class_that_does_not_open_says_why),
        cmocka_unit_test(test_a_manager_that_dies_in_a_call),
        cmocka_unit_test(test_a_manager_that_exits_in_a_call),
        cmocka_unit_test(test_an_answer_that_finds_no_memory_ends_its_connection),
        cmocka_unit_test(test_when_it_is_killed_callers_elsewhere_are_told),
        cmocka_unit_test(test_to_close_it_runs_what_was_called_and_closes_the_state),
        cmocka_unit_test(test_the_grace_is_that_of_one_method),
        cmocka_unit_test(test_a_future_outlives_the_handle),
        cmocka_unit_test(test_a_method_that_hangs_is_killed_after_the_grace),
        cmocka_unit_test(test_a_forked_child_gets_an_error),
        cmocka_unit_test(test_what_is_too_long_is_an_error_and_nothing_more),
        cmocka_unit_test(test_a_handle_may_be_closed_after_the_end),
    };

    /* nobody who is stopped is taken for dead, however long the others need */
    if (fiber_init(&argc, &argv) < 0 || fiber_config_set("heartbeat", "1h") < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "fini") == 0)
        return close_after_the_end();
    if (argc > 1 && strcmp(argv[1], "much") == 0)
        return say_too_much();
    if (argc > 1 && strcmp(argv[1], "slow") == 0)
        return close_behind_slow_calls();
    if (argc > 1 && strcmp(argv[1], "hang") == 0)
        return close_while_it_hangs();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
