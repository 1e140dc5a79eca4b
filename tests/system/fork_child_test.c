/* fork_child_test.c - what a fork() child may still do with Fiber: ask, and nothing else.
 *
 * A child by fork() has a copy of every handle, but none of the threads that serve them, and locks
 * that they may have held. Each call of fiber.h is tried there, and none is forgotten: the header
 * is read for their names.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

static struct fiber_process *process;
static struct fiber_queue *queue;
static struct fiber_pipe *ends[2];
static struct fiber_manager *manager;
static struct fiber_future *future;
static struct fiber_store *store;
static struct fiber_shared *shared;
static struct fiber_pool *pool;
static struct fiber_result *result;
static struct fiber_imap *imap;
static struct fiber_stream *stream;
static struct fiber_ring *ring;
static struct fiber_address queue_at, manager_at, store_at, pipe_at;

static int answer(void *state, const char *method, const void *in, size_t len,
                  struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len);
}

static const struct fiber_class class = {.size = sizeof(class), .call = answer};

static int echo(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len);
}

static int no_more(void *user, struct fiber_bytes *in)
{
    *in = (struct fiber_bytes){NULL, 0};
    return 0;
}

static int fill(void *data, size_t len, void *user)
{
    memset(data, 7, len);
    return 0;
}

static int rank_waits(int rank, int size, const void *arg, size_t len)
{
    return child_wait(arg, len);
}

/* ---- Each call, in a fork() child ---- */

static const char *tried[200];
static size_t n_tried, wrong;

static void expect(const char *call, bool is)
{
    if (n_tried < COUNT(tried))
        tried[n_tried++] = call;
    if (is)
        return;
    wrong++;
    fprintf(stderr, "%s() in a fork() child: not as fiber.h says\n", call);
}

static void expect_failure(const char *call, int64_t rc)
{
    expect(call, rc == -EPERM && strstr(fiber_last_error(), "child of fork()") != NULL);
}

#define FAILS(call, ...) expect_failure(#call, call(__VA_ARGS__))
#define ANSWERS(call, condition) expect(#call, condition)
/* It returns nothing; that it returns is what is asked. */
#define PASSES(call, ...) (call(__VA_ARGS__), expect(#call, true))

static int number;
static size_t size;
static int64_t value;
static const void *place;
static struct fiber_bytes bytes;
static struct fiber_address address;
static struct fiber_process *new_process, *children[2];
static struct fiber_queue *new_queue;
static struct fiber_pipe *new_end, *new_ends[2];
static struct fiber_manager *new_manager;
static struct fiber_future *new_future;
static struct fiber_store *new_store;
static struct fiber_shared *new_shared;
static struct fiber_pool *new_pool;
static struct fiber_result *new_result;
static struct fiber_imap *new_imap;
static struct fiber_stream *new_stream;
static struct fiber_done done;
static struct fiber_ring *new_ring;
static struct fiber_pool_stats pool_stats = {.size = sizeof(pool_stats)};
static struct fiber_worker_stats worker_stats;
static struct fiber_rank_stats rank_stats;

static void try_the_library(void)
{
    FAILS(fiber_init, NULL, NULL);
    FAILS(fiber_program, (const char *const[]){"/bin/true", NULL});
    FAILS(fiber_template, (const char *const[]){"/bin/true", NULL});
    FAILS(fiber_template_serve);
    FAILS(fiber_config_set, "heartbeat", "5s");
    FAILS(fiber_config_get, "heartbeat", (char[64]){""}, 64);
    ANSWERS(fiber_last_error, fiber_last_error() != NULL);
    ANSWERS(fiber_strerror, strcmp(fiber_strerror(-ENOENT), fiber_strerror(-EPERM)) != 0);
    ANSWERS(fiber_version, strcmp(fiber_version(), "") != 0);
    PASSES(fiber_bytes_free, &bytes);
}

static void try_processes(void)
{
    FAILS(fiber_process_start, &new_process, child_wait, NULL, 0, NULL);
    FAILS(fiber_process_start_work, &new_process, "", 0,
          OPTIONS(.job.command = (const char *const[]){"/bin/true", NULL}));
    FAILS(fiber_process_join, process, -1);
    FAILS(fiber_process_wait_joined, process, -1);
    FAILS(fiber_process_terminate, process);
    FAILS(fiber_process_kill, process);
    FAILS(fiber_process_signal, process, SIGURG);
    FAILS(fiber_process_is_alive, process);
    FAILS(fiber_process_exitcode, process, &number);
    FAILS(fiber_process_pid, process);
    ANSWERS(fiber_process_name, strcmp(fiber_process_name(process), "") != 0);
    ANSWERS(fiber_process_job, strcmp(fiber_process_job(process), "") == 0);
    ANSWERS(fiber_process_report, strcmp(fiber_process_report(process), "") == 0);
    FAILS(fiber_process_sentinel, process);
    FAILS(fiber_active_children, children, 2);
    ANSWERS(fiber_process_self, strcmp(fiber_process_self(), "main") == 0);
    ANSWERS(fiber_process_is_child, fiber_process_is_child() == 0);
    ANSWERS(fiber_process_work, fiber_process_work(&place, &size) == -ENODATA);
}

static void try_addresses(void)
{
    char text[FIBER_ADDRESS_TEXT];

    ANSWERS(fiber_address_format, fiber_address_format(&queue_at, text, sizeof(text)) == 0);
    ANSWERS(fiber_address_parse, fiber_address_parse(&address, text) == 0);
}

static void try_queues_and_pipes(void)
{
    FAILS(fiber_queue_open, &new_queue, 0);
    FAILS(fiber_queue_address, queue, &address);
    FAILS(fiber_queue_connect, &new_queue, &queue_at);
    FAILS(fiber_queue_put, queue, "x", 1, -1);
    FAILS(fiber_queue_get, queue, &bytes, -1);
    FAILS(fiber_queue_fd, queue);
    FAILS(fiber_queue_flush, queue, -1);
    FAILS(fiber_queue_size, queue, &size);
    FAILS(fiber_queue_shut, queue);
    FAILS(fiber_queue_done, queue);
    FAILS(fiber_queue_join, queue, -1);
    FAILS(fiber_queue_deal, queue);
    FAILS(fiber_pipe_open, new_ends, 0);
    FAILS(fiber_pipe_address, ends[0], &address);
    FAILS(fiber_pipe_connect, &new_end, &pipe_at);
    FAILS(fiber_pipe_send, ends[0], "x", 1, -1);
    FAILS(fiber_pipe_recv, ends[0], &bytes, -1);
    FAILS(fiber_pipe_poll, ends[0], -1);
    FAILS(fiber_pipe_fd, ends[0]);
    FAILS(fiber_wait_any, &(struct fiber_wait){.queue = queue}, 1, -1);
}

static void try_managers(void)
{
    FAILS(fiber_manager_start, &new_manager, &class, NULL, 0, NULL);
    FAILS(fiber_manager_address, manager, &address);
    FAILS(fiber_manager_connect, &new_manager, &manager_at);
    FAILS(fiber_manager_call, manager, "m", "x", 1, &bytes, -1);
    FAILS(fiber_manager_call_async, manager, "m", "x", 1, &new_future);
    FAILS(fiber_future_wait, future, -1);
    FAILS(fiber_future_get, future, &bytes, -1);
    FAILS(fiber_future_fd, future);
}

static void try_stores(void)
{
    FAILS(fiber_store_start, &new_store, NULL);
    FAILS(fiber_store_address, store, &address);
    FAILS(fiber_store_connect, &new_store, &store_at);
    FAILS(fiber_store_set, store, "k", "v", 1);
    FAILS(fiber_store_get, store, "k", &bytes, -1);
    FAILS(fiber_store_swap, store, "k", NULL, 0, "v", 1, NULL);
    FAILS(fiber_store_delete, store, "k");
    FAILS(fiber_store_keys, store, NULL, &bytes);
    FAILS(fiber_store_add, store, "c", 1, &value);
    FAILS(fiber_store_push, store, "l", "v", 1);
    FAILS(fiber_store_pop, store, "l", &bytes, -1);
    FAILS(fiber_store_at, store, "l", 0, &bytes);
    FAILS(fiber_store_length, store, "l", &size);
    FAILS(fiber_store_lock, store, "m", -1);
    FAILS(fiber_store_unlock, store, "m");
    FAILS(fiber_store_acquire, store, "s", 1, -1);
    FAILS(fiber_store_release, store, "s");
    FAILS(fiber_store_event_set, store, "e");
    FAILS(fiber_store_event_clear, store, "e");
    FAILS(fiber_store_event_wait, store, "e", -1);
    FAILS(fiber_store_barrier, store, "b", 2, NULL, -1);
}

static void try_shared_memory(void)
{
    FAILS(fiber_shared_open, &new_shared, "other", 8, fill, NULL);
    FAILS(fiber_shared_open_writable, &new_shared, "other", 8, FIBER_SHARED_CREATE);
    FAILS(fiber_shared_delete, "other");
    ANSWERS(fiber_shared_memory, fiber_shared_memory(shared) == NULL);
    ANSWERS(fiber_shared_data, *(const unsigned char *)fiber_shared_data(shared) == 7);
    ANSWERS(fiber_shared_len, fiber_shared_len(shared) == 8);
    ANSWERS(fiber_shared_built, fiber_shared_built(shared) == 1);
}

static void try_pools(void)
{
    FAILS(fiber_pool_open, &new_pool, NULL);
    FAILS(fiber_pool_resize, pool, 2);
    FAILS(fiber_pool_autoscale, pool, 1, 2);
    FAILS(fiber_pool_drain, pool, -1);
    FAILS(fiber_pool_map, pool, echo, "x", 1, &number, 1, 1, NULL);
    FAILS(fiber_pool_map_array, pool, echo, "x", 1, &number, 1, 1, NULL, &new_result);
    FAILS(fiber_pool_map_async, pool, echo, &bytes, 1, NULL, &new_result);
    FAILS(fiber_pool_apply, pool, echo, "x", 1, &bytes);
    FAILS(fiber_pool_apply_async, pool, echo, "x", 1, NULL, &new_result);
    FAILS(fiber_pool_imap, pool, echo, no_more, NULL, 1, 0, NULL, &new_imap);
    FAILS(fiber_pool_stats, pool, &pool_stats);
    FAILS(fiber_pool_worker_stats, pool, &worker_stats, 1);
    FAILS(fiber_pool_worker_kill, pool, "worker-1");
    FAILS(fiber_pool_wait_workers, pool, 1, -1);
    ANSWERS(fiber_task_common, fiber_task_common(&size, NULL) == NULL);
    FAILS(fiber_task_on_cancel, NULL, NULL);
    FAILS(fiber_serve, echo);
}

static void try_streams(void)
{
    FAILS(fiber_stream_open, &new_stream, pool, echo, NULL, NULL);
    FAILS(fiber_stream_put, stream, &bytes, 1, NULL);
    FAILS(fiber_stream_cancel, stream, 0);
    FAILS(fiber_pool_take, pool, &done, 1, -1);
    FAILS(fiber_pool_take_fd, pool);
}

static void try_results(void)
{
    FAILS(fiber_result_wait, result, -1);
    FAILS(fiber_result_wait_task, result, 0, -1);
    FAILS(fiber_result_fd, result);
    FAILS(fiber_result_get, result, 0, &place, &size);
    ANSWERS(fiber_result_count, fiber_result_count(result) == 1);
    ANSWERS(fiber_result_done, fiber_result_done(result) == 1);
    FAILS(fiber_result_error, result, &size);
    FAILS(fiber_result_cancel, result);
    FAILS(fiber_result_cancel_task, result, 0);
    FAILS(fiber_imap_next, imap, NULL, &bytes, -1);
}

static void try_rings(void)
{
    FAILS(fiber_ring_start, &new_ring, 1, rank_waits, NULL, 0, NULL);
    FAILS(fiber_ring_wait, ring, -1);
    FAILS(fiber_ring_exitcode, ring, &number);
    ANSWERS(fiber_ring_report, strcmp(fiber_ring_report(ring), "") == 0);
    FAILS(fiber_ring_sentinel, ring);
    FAILS(fiber_ring_signal, ring, SIGTERM);
    FAILS(fiber_ring_signal_rank, ring, 0, SIGTERM);
    FAILS(fiber_ring_stop, ring);
    FAILS(fiber_ring_barrier, -1);
    FAILS(fiber_ring_broadcast, &value, sizeof(value), 0, -1);
    FAILS(fiber_ring_allreduce, &value, 1, FIBER_RING_INT64, FIBER_RING_SUM, -1);
    FAILS(fiber_ring_run, 1, rank_waits, NULL, 0, NULL);
    FAILS(fiber_ring_stats, ring, &rank_stats, 1);
}

/* Last: what is given to them is not used after. */
static void try_ends(void)
{
    PASSES(fiber_stream_close, stream);
    PASSES(fiber_imap_close, imap);
    PASSES(fiber_result_close, result);
    PASSES(fiber_future_close, future);
    PASSES(fiber_process_close, process);
    PASSES(fiber_queue_close, queue);
    PASSES(fiber_pipe_close, ends[0]);
    PASSES(fiber_manager_close, manager);
    PASSES(fiber_store_close, store);
    PASSES(fiber_shared_close, shared);
    PASSES(fiber_pool_close, pool);
    PASSES(fiber_ring_close, ring);
    PASSES(fiber_fini);
}

/* A reply belongs to a method or a task: there is none here, and the header says that it works. */
static bool was_tried(const char *name)
{
    for (size_t i = 0; i < n_tried; i++)
        if (strcmp(tried[i], name) == 0)
            return true;
    return strncmp(name, "fiber_reply_", strlen("fiber_reply_")) == 0;
}

static void look_for_others(void)
{
    static char text[1 << 17];
    const char *source = getenv("TEST_SOURCE_DIR"), *at = text;
    char path[4096], name[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/include/fiber.h", source ? source : ".");
    f = fopen(path, "r");
    if (f) {
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
    }
    expect(path, strstr(text, "\nFIBER_API ") != NULL);
    while ((at = strstr(at, "\nFIBER_API ")) && (at = strchr(at, '('))) {
        const char *from = at;

        while (from[-1] == '_' || isalnum((unsigned char)from[-1]))
            from--;
        snprintf(name, sizeof(name), "%.*s", (int)(at - from), from);
        if (!was_tried(name)) {
            wrong++;
            fprintf(stderr, "%s() is not tried in a fork() child\n", name);
        }
    }
}

static void be_a_fork_child(void)
{
    alarm(TEST_LONG_MS / 1000); /* a call that hangs is a failure */
    try_the_library();
    try_processes();
    try_addresses();
    try_queues_and_pipes();
    try_managers();
    try_stores();
    try_shared_memory();
    try_pools();
    try_streams();
    try_results();
    try_rings();
    try_ends();
    look_for_others();
    fflush(NULL);
    _exit(wrong ? 1 : 0);
}

/* ---- Tests ---- */

static void open_all(void)
{
    int byte = 1;

    process = begin(child_wait, NULL, 0, NULL);
    assert_int_equal(fiber_queue_open(&queue, 0), 0);
    assert_int_equal(fiber_queue_address(queue, &queue_at), 0);
    assert_int_equal(fiber_pipe_open(ends, 0), 0);
    assert_int_equal(fiber_pipe_address(ends[1], &pipe_at), 0);
    assert_int_equal(fiber_manager_start(&manager, &class, NULL, 0, NULL), 0);
    assert_int_equal(fiber_manager_address(manager, &manager_at), 0);
    assert_int_equal(fiber_manager_call_async(manager, "m", "x", 1, &future), 0);
    assert_int_equal(fiber_store_start(&store, NULL), 0);
    assert_int_equal(fiber_store_address(store, &store_at), 0);
    assert_int_equal(fiber_shared_open(&shared, "forked", 8, fill, NULL), 0);
    assert_int_equal(
        fiber_pool_open(&pool,
                        &(struct fiber_pool_options){
                            .size = sizeof(struct fiber_pool_options), .min = 1, .max = 1}),
        0);
    assert_int_equal(fiber_pool_apply_async(pool, echo, &byte, 1, NULL, &result), 0);
    assert_int_equal(fiber_result_wait(result, TEST_LONG_MS), 0);
    assert_int_equal(fiber_pool_imap(pool, echo, no_more, NULL, 1, 0, NULL, &imap), 0);
    assert_int_equal(fiber_stream_open(&stream, pool, echo, NULL, NULL), 0);
    assert_int_equal(fiber_ring_start(&ring, 1, rank_waits, NULL, 0, NULL), 0);
}

static void close_all(void)
{
    int code;

    assert_int_equal(fiber_ring_stop(ring), 0);
    assert_int_equal(fiber_ring_wait(ring, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(ring, &code), 0);
    fiber_ring_close(ring);
    fiber_stream_close(stream);
    fiber_imap_close(imap);
    fiber_result_close(result);
    fiber_pool_close(pool);
    fiber_shared_close(shared);
    fiber_store_close(store);
    fiber_future_close(future);
    fiber_manager_close(manager);
    for (int i = 0; i < 2; i++)
        fiber_pipe_close(ends[i]);
    fiber_queue_close(queue);
    fiber_process_kill(process);
    assert_int_equal(finish(process), -SIGKILL);
}

static void test_what_acts_or_waits_fails_in_a_fork_child(void **state)
{
    struct fiber_bytes got;
    pid_t pid;
    int status;

    open_all();
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        be_a_fork_child();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    /* The parent's are as they were. */
    assert_int_equal(fiber_process_is_alive(process), 1);
    assert_int_equal(fiber_future_get(future, &got, TEST_LONG_MS), 0);
    fiber_bytes_free(&got);
    assert_int_equal(fiber_queue_put(queue, "x", 1, 0), 0);
    assert_int_equal(fiber_queue_get(queue, &got, TEST_LONG_MS), 0);
    fiber_bytes_free(&got);
    assert_int_equal(fiber_pipe_send(ends[0], "x", 1, TEST_LONG_MS), 0);
    assert_int_equal(fiber_store_set(store, "k", "v", 1), 0);
    assert_int_equal(fiber_pool_apply(pool, echo, "x", 1, &got), 0);
    fiber_bytes_free(&got);
    close_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_acts_or_waits_fails_in_a_fork_child),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
