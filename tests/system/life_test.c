/* life_test.c - calls before fiber_init(), while fiber_fini() runs in another thread, and after it: none hangs, none
 * crashes, and each says why it fails.
 *
 * The programs are this one in another role; they are judged by their exit code and by what they say.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

static struct fiber_process *process;
static struct fiber_queue *queue, *full;
static struct fiber_pipe *ends[2];
static struct fiber_manager *manager;
static struct fiber_future *future;
static struct fiber_store *store;
static struct fiber_shared *shared;
static struct fiber_pool *pool;
static struct fiber_result *result;
static struct fiber_imap *imap;
static struct fiber_ring *ring;
static struct fiber_address queue_at, manager_at, store_at, pipe_at;

/* ---- What others do meanwhile ---- */

static int method_waits(void *state, const char *method, const void *in, size_t len,
                        struct fiber_reply *reply)
{
    return child_wait(in, len);
}

static const struct fiber_class class = {.size = sizeof(class), .call = method_waits};

static int task_waits(const void *in, size_t len, struct fiber_reply *reply)
{
    return child_wait(in, len);
}

static int rank_waits(int rank, int size, const void *arg, size_t len)
{
    return child_wait(arg, len);
}

static int one(void *user, struct fiber_bytes *in)
{
    *in = (struct fiber_bytes){NULL, 0};
    return 1;
}

static int fill(void *data, size_t len, void *user)
{
    memset(data, 7, len);
    return 0;
}

/* ---- Judging ---- */

static _Atomic size_t wrong;

static void expect(const char *call, bool is)
{
    if (is)
        return;
    wrong++;
    fprintf(stderr, "%s: %s\n", call, fiber_last_error());
}

#define FAILS(rc, text, call, ...) \
    expect(#call, call(__VA_ARGS__) == (rc) && strstr(fiber_last_error(), text) != NULL)

static int number;
static size_t size;
static int64_t value;
static const void *place;
static struct fiber_bytes bytes;

/* All that begins something. */
static void try_to_begin(int rc, const char *why)
{
    struct fiber_process *new_process;
    struct fiber_queue *new_queue;
    struct fiber_pipe *new_ends[2];
    struct fiber_manager *new_manager;
    struct fiber_store *new_store;
    struct fiber_shared *new_shared;
    struct fiber_pool *new_pool;
    struct fiber_ring *new_ring;

    FAILS(rc, why, fiber_process_start, &new_process, child_wait, NULL, 0, NULL);
    FAILS(rc, why, fiber_process_start_work, &new_process, "", 0,
          OPTIONS(.job.command = (const char *const[]){"/bin/true", NULL}));
    FAILS(rc, why, fiber_queue_open, &new_queue, 0);
    FAILS(rc, why, fiber_pipe_open, new_ends, 0);
    FAILS(rc, why, fiber_manager_start, &new_manager, &class, NULL, 0, NULL);
    FAILS(rc, why, fiber_store_start, &new_store, NULL);
    FAILS(rc, why, fiber_shared_open, &new_shared, "other", 8, fill, NULL);
    FAILS(rc, why, fiber_pool_open, &new_pool, NULL);
    FAILS(rc, why, fiber_ring_start, &new_ring, 1, rank_waits, NULL, 0, NULL);
    FAILS(rc, why, fiber_ring_run, 1, rank_waits, NULL, 0, NULL);
}

/* The same with addresses of what was there. */
static void try_to_connect(int rc, const char *why)
{
    struct fiber_queue *new_queue;
    struct fiber_pipe *new_end;
    struct fiber_manager *new_manager;
    struct fiber_store *new_store;

    FAILS(rc, why, fiber_queue_connect, &new_queue, &queue_at);
    FAILS(rc, why, fiber_pipe_connect, &new_end, &pipe_at);
    FAILS(rc, why, fiber_manager_connect, &new_manager, &manager_at);
    FAILS(rc, why, fiber_store_connect, &new_store, &store_at);
}

/* ---- Before ---- */

static int before(void)
{
    static const char why[] = "fiber_init() has not been called";

    try_to_begin(-EPERM, why);
    FAILS(-EPERM, why, fiber_config_set, "heartbeat", "5s");
    FAILS(-ENODATA, "", fiber_serve, task_waits);
    FAILS(-ENODATA, "", fiber_process_work, &place, &size);
    expect("fiber_active_children", fiber_active_children(NULL, 0) == 0);
    expect("fiber_process_self", strcmp(fiber_process_self(), "main") == 0);
    expect("fiber_process_is_child", fiber_process_is_child() == 0);
    expect("fiber_strerror", strcmp(fiber_strerror(-ENOENT), "") != 0);
    expect("fiber_version", strcmp(fiber_version(), "") != 0);
    fiber_fini();
    return wrong ? 1 : 0;
}

/* ---- All that there is ---- */

static void open_all(void)
{
    struct fiber_pool_options one_worker = {.size = sizeof(one_worker), .min = 1, .max = 1};

    process = begin(child_wait, NULL, 0, NULL);
    expect("queue", fiber_queue_open(&queue, 0) == 0 && fiber_queue_address(queue, &queue_at) == 0);
    expect("full", fiber_queue_open(&full, 1) == 0 && fiber_queue_put(full, "x", 1, 0) == 0);
    expect("pipe", fiber_pipe_open(ends, 0) == 0 && fiber_pipe_address(ends[1], &pipe_at) == 0);
    expect("manager", fiber_manager_start(&manager, &class, NULL, 0, NULL) == 0 &&
                          fiber_manager_address(manager, &manager_at) == 0 &&
                          fiber_manager_call_async(manager, "m", "x", 1, &future) == 0);
    expect("store",
           fiber_store_start(&store, NULL) == 0 && fiber_store_address(store, &store_at) == 0);
    expect("shared", fiber_shared_open(&shared, "life", 8, fill, NULL) == 0);
    expect("pool", fiber_pool_open(&pool, &one_worker) == 0 &&
                       fiber_pool_apply_async(pool, task_waits, "x", 1, NULL, &result) == 0 &&
                       fiber_pool_imap(pool, task_waits, one, NULL, 1, 0, NULL, &imap) == 0);
    expect("ring", fiber_ring_start(&ring, 1, rank_waits, NULL, 0, NULL) == 0);
}

static void close_all(void)
{
    fiber_ring_close(ring);
    fiber_imap_close(imap);
    fiber_result_close(result);
    fiber_pool_close(pool);
    fiber_shared_close(shared);
    fiber_store_close(store);
    fiber_future_close(future);
    fiber_manager_close(manager);
    for (int i = 0; i < 2; i++)
        fiber_pipe_close(ends[i]);
    fiber_queue_close(full);
    fiber_queue_close(queue);
    fiber_process_close(process);
}

/* ---- While it ends ---- */

static pthread_barrier_t all_there;

#define WAITS(name, call)                       \
    static void *wait_##name(void *arg)         \
    {                                           \
        struct fiber_bytes got = {NULL, 0};     \
                                                \
        (void)got;                              \
        pthread_barrier_wait(&all_there);       \
        expect(#name " while fini runs", call); \
        return NULL;                            \
    }

WAITS(get, fiber_queue_get(queue, &got, -1) == -EPIPE)
WAITS(put, fiber_queue_put(full, "x", 1, -1) == -EPIPE)
WAITS(recv, fiber_pipe_recv(ends[0], &got, -1) == -EPIPE)
WAITS(poll, fiber_pipe_poll(ends[1], -1) == 1)
WAITS(key, fiber_store_get(store, "none", &got, -1) == -EPIPE)
WAITS(event, fiber_store_event_wait(store, "never", -1) == -EPIPE)
WAITS(answer, fiber_manager_call(manager, "m", NULL, 0, NULL, -1) == -EPIPE)
WAITS(future, fiber_future_get(future, &got, -1) == -EPIPE)
WAITS(join, fiber_process_join(process, -1) == 0)
WAITS(result, fiber_result_wait(result, -1) == 0)
WAITS(next, fiber_imap_next(imap, NULL, &got, -1) == -ESHUTDOWN)
WAITS(drain, fiber_pool_drain(pool, -1) == 0)
WAITS(ring, fiber_ring_wait(ring, -1) == 0)

/* Each returns with the end, if it has begun to wait by then or not. */
static int during(void)
{
    static void *(*const waits[])(void *) = {
        wait_get,    wait_put,  wait_recv,   wait_poll, wait_key,   wait_event, wait_answer,
        wait_future, wait_join, wait_result, wait_next, wait_drain, wait_ring};
    pthread_t threads[COUNT(waits)];

    alarm(TEST_LONG_MS / 1000); /* a call that hangs is a failure */
    open_all();
    pthread_barrier_init(&all_there, NULL, COUNT(waits) + 1);
    for (size_t i = 0; i < COUNT(waits); i++)
        expect("pthread_create", pthread_create(&threads[i], NULL, waits[i], NULL) == 0);
    pthread_barrier_wait(&all_there);
    fiber_fini();
    for (size_t i = 0; i < COUNT(waits); i++)
        pthread_join(threads[i], NULL);
    close_all();
    return wrong ? 1 : 0;
}

/* ---- After ---- */

static void ask_processes(void)
{
    expect("fiber_process_join", fiber_process_join(process, -1) == 0);
    expect("fiber_process_exitcode",
           fiber_process_exitcode(process, &number) == 0 && number == -SIGKILL);
    expect("fiber_process_is_alive", fiber_process_is_alive(process) == 0);
    expect("fiber_process_kill", fiber_process_kill(process) == 0);
    expect("fiber_process_terminate", fiber_process_terminate(process) == 0);
    expect("fiber_active_children", fiber_active_children(NULL, 0) == 0);
}

static void ask_channels(void)
{
    FAILS(-EPIPE, "owner is gone", fiber_queue_put, queue, "x", 1, -1);
    FAILS(-EPIPE, "owner is gone", fiber_queue_get, queue, &bytes, -1);
    FAILS(-EPIPE, "", fiber_pipe_send, ends[0], "x", 1, -1);
    FAILS(-EPIPE, "", fiber_pipe_recv, ends[0], &bytes, -1);
    expect("fiber_pipe_poll", fiber_pipe_poll(ends[0], -1) == 1);
    expect("fiber_queue_flush", fiber_queue_flush(queue, -1) == 0);
    expect("fiber_queue_shut", fiber_queue_shut(queue) == 0);
}

static void ask_services(void)
{
    FAILS(-EPIPE, "gone", fiber_manager_call, manager, "m", "x", 1, &bytes, -1);
    FAILS(-EPIPE, "gone", fiber_future_get, future, &bytes, -1);
    FAILS(-EPIPE, "gone", fiber_store_get, store, "k", &bytes, -1);
    FAILS(-EPIPE, "gone", fiber_store_pop, store, "l", &bytes, -1);
    FAILS(-EPIPE, "gone", fiber_store_lock, store, "m", -1);
    FAILS(-EPIPE, "gone", fiber_store_acquire, store, "s", 1, -1);
    FAILS(-EPIPE, "gone", fiber_store_event_wait, store, "e", -1);
    FAILS(-EPIPE, "gone", fiber_store_barrier, store, "b", 2, NULL, -1);
    FAILS(-EPIPE, "gone", fiber_store_add, store, "c", 1, &value);
}

static void ask_pools(void)
{
    struct fiber_pool_stats stats = {.size = sizeof(stats)};

    FAILS(-ESHUTDOWN, "fiber_fini()", fiber_pool_apply, pool, task_waits, "x", 1, &bytes);
    FAILS(-ESHUTDOWN, "fiber_fini()", fiber_imap_next, imap, NULL, &bytes, -1);
    expect("fiber_result_wait", fiber_result_wait(result, -1) == 0);
    expect("fiber_result_get", fiber_result_get(result, 0, &place, &size) == -ESHUTDOWN);
    expect("fiber_result_cancel", fiber_result_cancel(result) == 0);
    expect("fiber_pool_drain", fiber_pool_drain(pool, -1) == 0);
    expect("fiber_pool_stats", fiber_pool_stats(pool, &stats) == 0 && stats.workers == 0);
}

static void ask_rings(void)
{
    expect("fiber_ring_wait", fiber_ring_wait(ring, -1) == 0);
    expect("fiber_ring_exitcode", fiber_ring_exitcode(ring, &number) == 0 && number != 0);
    expect("fiber_ring_report", strcmp(fiber_ring_report(ring), "") != 0);
    FAILS(-ESHUTDOWN, "fiber_fini()", fiber_ring_stop, ring);
}

static int after(void)
{
    alarm(TEST_LONG_MS / 1000);
    open_all();
    fiber_fini();
    try_to_begin(-ESHUTDOWN, "fiber_fini() was called");
    try_to_connect(-ESHUTDOWN, "fiber_fini() was called");
    ask_processes();
    ask_channels();
    ask_services();
    ask_pools();
    ask_rings();
    expect("fiber_shared_data", *(const unsigned char *)fiber_shared_data(shared) == 7);
    close_all();
    fiber_fini();
    return wrong ? 1 : 0;
}

/* ---- Tests ---- */

static void expect_role(const char *role)
{
    struct ran r = run_self(role, NULL, NULL);

    if (r.code != 0)
        fail_msg("%s: ended with %d:\n%s%s", role, r.code, r.out, r.err);
    ran_free(&r);
}

static void test_before_init_every_call_says_so(void **state)
{
    expect_role("before");
}

static void test_whoever_waits_returns_when_the_program_ends(void **state)
{
    for (int i = 0; i < 3; i++)
        expect_role("during");
}

static void test_after_fini_nothing_begins_and_nothing_waits(void **state)
{
    expect_role("after");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_init_every_call_says_so),
        cmocka_unit_test(test_whoever_waits_returns_when_the_program_ends),
        cmocka_unit_test(test_after_fini_nothing_begins_and_nothing_waits),
    };

    if (argc > 1 && strcmp(argv[1], "before") == 0)
        return before();
    init_fiber(&argc, &argv);
    if (argc > 1)
        return strcmp(argv[1], "during") == 0 ? during() : after();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
