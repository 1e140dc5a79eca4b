/* program_test.c - fiber_program(): everything that a program starts runs its own command again.
 *
 * The command is this program with an argument, so that what runs knows how it was called.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"

#define AGAIN "--again"
#define WELL 23

static const char *argument = ""; /* that this process was called with */

static const char *const again[] = {"/proc/self/exe", AGAIN, NULL};

static int was_called_again(const void *arg, size_t len)
{
    return strcmp(argument, AGAIN) == 0 ? WELL : 1;
}

static int start_another(const void *arg, size_t len)
{
    if (was_called_again(arg, len) != WELL)
        return 1;
    return finish(begin(was_called_again, NULL, 0, NULL));
}

static int reply_how(const void *in, size_t len, struct fiber_reply *reply)
{
    int code = was_called_again(in, len);

    return fiber_reply_write(reply, &code, sizeof(code));
}

static int call_how(void *state, const char *method, const void *in, size_t len,
                    struct fiber_reply *reply)
{
    return reply_how(in, len, reply);
}

static int be_a_rank(int rank, int size, const void *arg, size_t len)
{
    return was_called_again(arg, len) == WELL ? 0 : 1;
}

static void test_a_process_and_its_child(void **state)
{
    assert_int_equal(finish(begin(was_called_again, NULL, 0, NULL)), WELL);
    assert_int_equal(finish(begin(start_another, NULL, 0, NULL)), WELL);
}

static void test_a_command_of_the_job_wins(void **state)
{
    const char *const other[] = {"/proc/self/exe", "--other", NULL};
    struct fiber_process_options *o = OPTIONS(.job.command = other);

    assert_int_equal(finish(begin(was_called_again, NULL, 0, o)), 1);
}

static void map_over(const struct fiber_pool_options *o)
{
    int in[8] = {0}, out[8] = {0};
    struct fiber_pool *pool;

    assert_int_equal(fiber_pool_open(&pool, o), 0);
    assert_int_equal(
        fiber_pool_map(pool, reply_how, in, sizeof(in[0]), out, sizeof(out[0]), 8, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i], WELL);
    fiber_pool_close(pool);
}

static void test_workers_of_a_pool(void **state)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};

    map_over(&o);
    o.workers_per_job = 2; /* which a host starts */
    map_over(&o);
}

static void test_managers_and_stores(void **state)
{
    const struct fiber_class class = {.size = sizeof(class), .call = call_how};
    struct fiber_manager *manager;
    struct fiber_store *store;
    struct fiber_bytes out;

    assert_int_equal(fiber_manager_start(&manager, &class, NULL, 0, NULL), 0);
    assert_int_equal(fiber_manager_call(manager, "how", NULL, 0, &out, TEST_LONG_MS), 0);
    assert_int_equal(*(int *)out.data, WELL);
    fiber_bytes_free(&out);
    fiber_manager_close(manager);
    assert_int_equal(fiber_store_start(&store, NULL), 0);
    assert_int_equal(fiber_store_set(store, "key", "value", 5), 0);
    fiber_store_close(store);
}

static void test_ranks_of_a_function(void **state)
{
    const struct fiber_ring_options o = {.size = sizeof(o), .flags = FIBER_RING_OVERSUBSCRIBE};

    assert_int_equal(fiber_ring_run(2, be_a_rank, NULL, 0, &o), 0);
}

static void test_it_is_too_late_once_something_was_started(void **state)
{
    assert_int_equal(finish(begin(was_called_again, NULL, 0, NULL)), WELL);
    assert_int_equal(fiber_program(again), -EBUSY);
    assert_int_equal(fiber_program((const char *const[]){NULL}), -EINVAL);
    assert_int_equal(fiber_program(NULL), -EINVAL);
}

static void test_not_after_a_fork(void **state)
{
    int status;
    pid_t pid;

    assert_int_equal(finish(begin(was_called_again, NULL, 0, NULL)), WELL);
    pid = fork();
    if (pid == 0)
        _exit(fiber_program(again) == -EPERM ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_process_and_its_child),
        cmocka_unit_test(test_a_command_of_the_job_wins),
        cmocka_unit_test(test_workers_of_a_pool),
        cmocka_unit_test(test_managers_and_stores),
        cmocka_unit_test(test_ranks_of_a_function),
        cmocka_unit_test(test_it_is_too_late_once_something_was_started),
        cmocka_unit_test(test_not_after_a_fork),
    };

    if (argc > 1)
        argument = argv[1];
    if (fiber_program(again) < 0 || fiber_init(&argc, &argv) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
