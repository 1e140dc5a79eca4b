/* fini_test.c - the end of a program whose pools are open: waiters return, nothing hangs, nothing
 * is called afterwards.
 *
 * The programs are this one in another role, with the board as the argument. They are judged by
 * their exit code and by what they say, and under ASan by what they leak.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "runtime/proc/context.h"
#include "tests/pool/tasks.h"
#include "tests/support/run.h"

#define WORKERS 2
#define WAITERS 3
#define TASKS 20
#define WINDOW 4
#define check(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, fiber_last_error()); \
            _exit(99);                                                                       \
        }                                                                                    \
    } while (0)

/* ---- What the programs share ---- */

static struct fiber_pool *the_pool;
static struct fiber_result *results[WAITERS];
static pthread_t waiters[WAITERS];
static _Atomic int called, over;

static void on_done(void *user, size_t index, int code, const void *data, size_t len)
{
    check(!atomic_load(&over));
    atomic_fetch_add(&called, 1);
}

/* More tasks than workers: some run, some wait. */
static void *wait_for_map(void *arg)
{
    struct fiber_map_options o = {
        .size = sizeof(o), .retries = FIBER_RETRIES_DEFAULT, .on_done = on_done};
    int64_t in[TASKS] = {0}, out[TASKS];
    struct fiber_result **r = arg;

    check(fiber_pool_map_array(the_pool, wait_at_gate, in, 8, out, 8, TASKS, &o, r) == 0);
    check(fiber_result_wait(*r, -1) == 0);
    check(fiber_result_error(*r, NULL) == -ESHUTDOWN);
    return NULL;
}

static int one_after_another(void *user, struct fiber_bytes *in)
{
    static int64_t n;

    n++;
    *in = (struct fiber_bytes){&n, sizeof(n)};
    return 1;
}

static void *wait_for_imap(void *arg)
{
    struct fiber_bytes out;
    struct fiber_imap *it;

    check(fiber_pool_imap(the_pool, wait_at_gate, one_after_another, NULL, WINDOW, 0, NULL, &it) ==
          0);
    check(fiber_imap_next(it, NULL, &out, -1) == -ESHUTDOWN);
    fiber_imap_close(it);
    return NULL;
}

static void *wait_for_drain(void *arg)
{
    check(fiber_pool_drain(the_pool, -1) == 0);
    return NULL;
}

static void begin_work(int workers_per_job)
{
    the_pool = open_pool_with((struct fiber_pool_options){
        .min = WORKERS, .max = WORKERS, .workers_per_job = workers_per_job});
    check(pthread_create(&waiters[0], NULL, wait_for_map, &results[0]) == 0);
    check(wait_for(&board->arrived, WORKERS) == 0);
    check(pthread_create(&waiters[1], NULL, wait_for_imap, NULL) == 0);
    check(pthread_create(&waiters[2], NULL, wait_for_drain, NULL) == 0);
    assert_comes(stats_of(the_pool).submitted == TASKS + WINDOW);
}

/* After the end: all waiters have returned, all callbacks were called, and handles may be
 * closed. */
static void end_work(void)
{
    int64_t n = 1;

    atomic_store(&over, 1);
    for (int i = 0; i < WAITERS; i++)
        check(pthread_join(waiters[i], NULL) == 0);
    check(atomic_load(&called) == TASKS);
    check(fiber_pool_apply(the_pool, square, &n, 8, NULL) == -ESHUTDOWN);
    fiber_result_close(results[0]);
    fiber_pool_close(the_pool);
    the_pool = NULL;
}

/* ---- Programs ---- */

static int fini(void)
{
    struct fiber_pool *none;

    begin_work(1);
    fiber_fini();
    check(fiber_pool_open(&none, NULL) == -ESHUTDOWN);
    check(children_active(NULL) == 0);
    end_work();
    return 7;
}

static int fini_hosts(void)
{
    begin_work(2);
    fiber_fini();
    end_work();
    return 7;
}

static void *end_it(void *arg)
{
    fiber_fini();
    check(children_active(NULL) == 0);
    return NULL;
}

/* The second caller waits for the first. */
static int fini_in_threads(void)
{
    pthread_t enders[3];

    begin_work(2);
    for (int i = 0; i < 3; i++)
        check(pthread_create(&enders[i], NULL, end_it, NULL) == 0);
    end_it(NULL);
    for (int i = 0; i < 3; i++)
        check(pthread_join(enders[i], NULL) == 0);
    end_work();
    return 7;
}

/* Registered before fiber_init() was called, so it runs after Fiber's own. */
static void at_exit(void)
{
    if (the_pool)
        end_work();
}

static int leave(void)
{
    begin_work(1);
    exit(7);
}

/* A pool and results whose handles nobody has any more. */
static int leave_unclosed(void)
{
    open_pool(WORKERS);
    open_pool_with((struct fiber_pool_options){.min = 1, .max = 4, .workers_per_job = 3});
    return 7;
}

static void leave_now(void *user, size_t index, int code, const void *data, size_t len)
{
    exit(7);
}

/* On the thread that takes results. */
static int leave_in_callback(void)
{
    struct fiber_map_options o = {
        .size = sizeof(o), .retries = FIBER_RETRIES_DEFAULT, .on_done = leave_now};
    struct fiber_pool *pool = open_pool(WORKERS);
    struct fiber_result *r;
    int64_t in[8] = {0}, out[8];

    check(fiber_pool_map_array(pool, square, in, 8, out, 8, 8, &o, &r) == 0);
    pause();
    return 1;
}

/* On the thread that sees workers die. */
static int leave_in_callback_of_death(void)
{
    struct fiber_map_options o = {.size = sizeof(o), .on_done = leave_now};
    struct fiber_pool *pool = open_pool(WORKERS);
    struct fiber_result *r;
    int64_t n = 0;

    check(fiber_pool_apply_async(pool, kill_worker, &n, 8, &o, &r) == 0);
    pause();
    return 1;
}

/* On the program's own thread, in a call that ends tasks. */
static int leave_in_callback_of_cancel(void)
{
    struct fiber_map_options o = {.size = sizeof(o), .on_done = leave_now};
    struct fiber_pool *pool = open_pool(WORKERS);
    struct fiber_result *r;
    int64_t n = 0;

    check(fiber_pool_apply_async(pool, wait_at_gate, &n, 8, &o, &r) == 0);
    check(wait_for(&board->arrived, 1) == 0);
    fiber_result_cancel(r);
    return 1;
}

static int leave_in_callback_of_close(void)
{
    struct fiber_map_options o = {.size = sizeof(o), .on_done = leave_now};
    struct fiber_pool *pool = open_pool(WORKERS);
    struct fiber_result *r;
    int64_t n = 0;

    check(fiber_pool_apply_async(pool, wait_at_gate, &n, 8, &o, &r) == 0);
    check(wait_for(&board->arrived, 1) == 0);
    fiber_pool_close(pool);
    return 1;
}

static _Atomic int in_callback;

/* Another thread ends everything, and waits for us. */
static void leave_late(void *user, size_t index, int code, const void *data, size_t len)
{
    struct fiber_result *r;
    int64_t n = 1;

    atomic_store(&in_callback, 1);
    assert_comes(fiber_pool_apply_async(the_pool, square, &n, 8, NULL, &r) < 0 ||
                 (fiber_result_close(r), false));
    the_pool = NULL; /* at_exit() has nothing to look at */
    leave_now(user, index, code, data, len);
}

static void *cancel_it(void *arg)
{
    fiber_result_cancel(arg);
    return NULL;
}

static int leave_in_callback_while_fini_waits(void)
{
    struct fiber_map_options o = {.size = sizeof(o), .on_done = leave_late};
    struct fiber_result *r;
    int64_t n = 0;

    alarm(45); /* less than a thread waits for another one's fiber_fini() */
    the_pool = open_pool(WORKERS);
    check(fiber_pool_apply_async(the_pool, wait_at_gate, &n, 8, &o, &r) == 0);
    check(wait_for(&board->arrived, 1) == 0);
    check(pthread_create(&waiters[0], NULL, cancel_it, r) == 0);
    assert_comes(atomic_load(&in_callback));
    fiber_fini();
    pause();
    return 1;
}

static void *close_it(void *arg)
{
    fiber_pool_close(arg);
    return NULL;
}

/* One thread closes what the end of the program closes at the same time. */
static int close_and_fini(void)
{
    for (int i = 0; i < WAITERS; i++) {
        struct fiber_pool *pool = open_pool(1);
        struct fiber_result *r = apply_later(pool, wait_at_gate, 1, NULL);

        check(wait_for(&board->arrived, 1 + (uint32_t)i) == 0);
        check(pthread_create(&waiters[i], NULL, close_it, pool) == 0);
        fiber_result_close(r);
    }
    fiber_fini();
    for (int i = 0; i < WAITERS; i++)
        check(pthread_join(waiters[i], NULL) == 0);
    return 7;
}

/* A slow thread stops in the middle of fiber_pool_open(). */
static _Thread_local bool slow;
static _Atomic int opening, may_open, opened;

int __real_fbr_workers_open(struct fiber_pool *p);
int __wrap_fbr_workers_open(struct fiber_pool *p);

int __wrap_fbr_workers_open(struct fiber_pool *p)
{
    if (slow) {
        atomic_store(&opening, 1);
        while (!atomic_load(&may_open))
            nap_us(1000);
    }
    return __real_fbr_workers_open(p);
}

static void *open_it(void *arg)
{
    struct fiber_pool *pool = NULL;

    slow = true;
    check(fiber_pool_open(&pool, NULL) == -ESHUTDOWN && !pool);
    check(strstr(fiber_last_error(), "the program ends"));
    atomic_store(&opened, 1);
    return NULL;
}

/* The end waits for this call. It has ended the other pool already. */
static void let_it_open(void *user, size_t index, int code, const void *data, size_t len)
{
    atomic_store(&may_open, 1);
    assert_comes(atomic_load(&opened));
    nap_us(700000); /* a pool that lives so long gets a control socket */
}

/* One thread opens a pool while another one ends all pools. */
static int open_and_fini(void)
{
    struct fiber_map_options o = {.size = sizeof(o), .on_done = let_it_open};
    struct fiber_result *r;
    struct fiber_pool *last;

    check(pthread_create(&waiters[0], NULL, open_it, NULL) == 0);
    assert_comes(atomic_load(&opening));
    last = open_pool(1); /* it is ended after the other one */
    r = apply_later(last, wait_at_gate, 1, &o);
    check(wait_for(&board->arrived, 1) == 0);
    fiber_fini();
    check(pthread_join(waiters[0], NULL) == 0);
    fiber_result_close(r);
    fiber_pool_close(last);
    return 7;
}

static _Atomic int draining, closed;

int __real_fbr_rt_wait(struct fbr_runtime *rt, pthread_cond_t *changed, pthread_mutex_t *lock,
                       uint64_t deadline);
int __wrap_fbr_rt_wait(struct fbr_runtime *rt, pthread_cond_t *changed, pthread_mutex_t *lock,
                       uint64_t deadline);

/* A slow thread gets the lock back late. */
int __wrap_fbr_rt_wait(struct fbr_runtime *rt, pthread_cond_t *changed, pthread_mutex_t *lock,
                       uint64_t deadline)
{
    int rc;

    if (slow)
        atomic_store(&draining, 1);
    rc = __real_fbr_rt_wait(rt, changed, lock, deadline);
    if (slow) {
        pthread_mutex_unlock(lock);
        assert_comes(atomic_load(&closed));
        pthread_mutex_lock(lock);
    }
    return rc;
}

static void *drain_it(void *arg)
{
    slow = true;
    check(fiber_pool_drain(arg, -1) == 0);
    return NULL;
}

/* One thread waits for the work of a pool that another one closes. */
static int close_and_drain(void)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_result *r = apply_later(pool, wait_at_gate, 1, NULL);

    check(pthread_create(&waiters[0], NULL, drain_it, pool) == 0);
    assert_comes(atomic_load(&draining));
    fiber_result_close(r);
    fiber_pool_close(pool);
    atomic_store(&closed, 1);
    check(pthread_join(waiters[0], NULL) == 0);
    return 7;
}

/* A host that is stopped cannot kill its workers; nobody waits for its heartbeats to fail, which
 * would take hours. */
static int fini_stopped_host(void)
{
    struct fiber_worker_stats w[2];
    char path[64], line[256] = "";
    int host = 0;
    FILE *f;

    check(fiber_config_set("heartbeat", "1h") == 0 && fiber_config_set("grace", "300ms") == 0);
    the_pool =
        open_pool_with((struct fiber_pool_options){.min = 2, .max = 2, .workers_per_job = 2});
    results[0] = apply_later(the_pool, wait_at_gate, 1, NULL);
    check(wait_for(&board->arrived, 1) == 0);
    check(fiber_pool_worker_stats(the_pool, w, 2) == 2);
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)w[0].pid);
    f = fopen(path, "re");
    check(f && fgets(line, sizeof(line), f) &&
          sscanf(strrchr(line, ')') + 2, "%*c %d", &host) == 1);
    fclose(f);
    check(host > 1 && host != getpid() && kill(host, SIGSTOP) == 0);
    fiber_fini();
    check(children_active(NULL) == 0);
    fiber_result_close(results[0]);
    fiber_pool_close(the_pool);
    the_pool = NULL;
    return 7;
}

/* Workers that have not joined yet, and some that never will. */
static int fini_while_starting(void)
{
    static const char *const never[] = {"FIBER_MOCK=never_joins", NULL};
    struct fiber_pool *pool = open_pool_with(
        (struct fiber_pool_options){.min = 2, .max = 2, .backend = "mock", .job = {.env = never}});
    struct fiber_result *r = apply_later(pool, square, 1, NULL);

    open_pool(2);
    fiber_fini();
    check(fiber_result_wait(r, -1) == 0);
    check(fiber_result_error(r, NULL) == -ESHUTDOWN);
    fiber_result_close(r);
    fiber_pool_close(pool);
    return 7;
}

static int forked(void)
{
    struct fiber_pool *pool = open_pool(1), *none;
    struct fiber_result *r = apply_later(pool, wait_at_gate, 2, NULL);
    int64_t n = 1;
    int status;
    pid_t pid;

    check(wait_for(&board->arrived, 1) == 0);
    pid = fork();
    if (pid == 0) {
        check(fiber_pool_apply(pool, square, &n, 8, NULL) == -EPERM);
        check(strstr(fiber_last_error(), "child of fork()"));
        check(fiber_result_wait(r, -1) == -EPERM);
        check(fiber_result_cancel(r) == -EPERM);
        check(fiber_pool_drain(pool, -1) == -EPERM);
        check(fiber_pool_resize(pool, 2) == -EPERM);
        check(fiber_pool_open(&none, NULL) == -EPERM);
        fiber_result_close(r);
        fiber_pool_close(pool);
        exit(5);
    }
    check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    open_gate();
    check(fiber_result_wait(r, -1) == 0 && number_of(r, 0) == 4); /* ours is as it was */
    fiber_result_close(r);
    fiber_pool_close(pool);
    return 7;
}

static const struct role {
    const char *name;
    int (*run)(void);
    bool quick; /* ends in a callback: what the program has open stays so */
} roles[] = {
    {"fini", fini, false},
    {"fini_hosts", fini_hosts, false},
    {"fini_in_threads", fini_in_threads, false},
    {"fini_stopped_host", fini_stopped_host, false},
    {"exit", leave, false},
    {"unclosed", leave_unclosed, false},
    {"close_and_fini", close_and_fini, false},
    {"open_and_fini", open_and_fini, false},
    {"close_and_drain", close_and_drain, false},
    {"starting", fini_while_starting, false},
    {"fork", forked, false},
    {"callback", leave_in_callback, true},
    {"callback_of_death", leave_in_callback_of_death, true},
    {"callback_of_cancel", leave_in_callback_of_cancel, true},
    {"callback_of_close", leave_in_callback_of_close, true},
    {"callback_and_fini", leave_in_callback_while_fini_waits, true},
};

static int play(const char *name)
{
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(roles[i].name, name) == 0)
            return roles[i].run();
    return 1;
}

/* ---- Tests ---- */

/* It ends with 7, and leaves no process: its workers would keep its pipes open
 * (run.c). */
static void expect(const char *role)
{
    const char *const no_leaks[] = {"ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1",
                                    NULL};
    struct ran ran;
    bool quick = false;

    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        quick |= roles[i].quick && strcmp(roles[i].name, role) == 0;
    ran = run_self(role, board_path, quick ? no_leaks : NULL);
    if (ran.code != 7)
        fail_msg("%s: ended with %d:\n%s%s", role, ran.code, ran.out, ran.err);
    ran_free(&ran);
}

static void test_fini_ends_open_pools_and_their_waiters(void **state)
{
    expect("fini");
}

static void test_fini_ends_pools_with_several_workers_in_a_job(void **state)
{
    expect("fini_hosts");
}

static void test_several_threads_may_call_fini_at_once(void **state)
{
    for (int i = 0; i < 5; i++)
        expect("fini_in_threads");
}

static void test_fini_does_not_wait_for_a_stopped_host(void **state)
{
    expect("fini_stopped_host");
}

static void test_exit_does_the_same(void **state)
{
    expect("exit");
}

static void test_pools_that_nobody_closed_are_no_leak(void **state)
{
    expect("unclosed");
}

static void test_a_pool_may_be_closed_while_the_program_ends(void **state)
{
    expect("close_and_fini");
}

static void test_a_pool_may_be_closed_while_a_thread_drains_it(void **state)
{
    expect("close_and_drain");
}

static void test_no_pool_is_opened_while_the_program_ends(void **state)
{
    expect("open_and_fini");
}

static void test_fini_ends_workers_that_never_joined(void **state)
{
    expect("starting");
}

static void test_a_fork_child_gets_errors_and_harms_nothing(void **state)
{
    expect("fork");
}

static void test_exit_in_a_callback_ends_the_program(void **state)
{
    expect("callback");
    expect("callback_of_death");
    expect("callback_of_cancel");
    expect("callback_of_close");
    expect("callback_and_fini");
}

static int make_board(void **state)
{
    board_make();
    return 0;
}

static int drop_board(void **state)
{
    board_drop();
    return 0;
}

#define fini_test(fn) cmocka_unit_test_setup_teardown(fn, make_board, drop_board)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        fini_test(test_fini_ends_open_pools_and_their_waiters),
        fini_test(test_fini_ends_pools_with_several_workers_in_a_job),
        fini_test(test_several_threads_may_call_fini_at_once),
        fini_test(test_fini_does_not_wait_for_a_stopped_host),
        fini_test(test_exit_does_the_same),
        fini_test(test_pools_that_nobody_closed_are_no_leak),
        fini_test(test_a_pool_may_be_closed_while_the_program_ends),
        fini_test(test_a_pool_may_be_closed_while_a_thread_drains_it),
        fini_test(test_no_pool_is_opened_while_the_program_ends),
        fini_test(test_fini_ends_workers_that_never_joined),
        fini_test(test_a_fork_child_gets_errors_and_harms_nothing),
        fini_test(test_exit_in_a_callback_ends_the_program),
    };

    atexit(at_exit);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    if (argc == 3) {
        snprintf(board_path, sizeof(board_path), "%s", argv[2]);
        return board_map(board_path) < 0 ? 1 : play(argv[1]);
    }
    return cmocka_run_group_tests_name("the end", tests, NULL, NULL);
}
