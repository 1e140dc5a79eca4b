/* claim_test.c - processors are claimed by one run at a time, and free when it ends, however it ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/pin/claim.h"
#include "tests/support/sync.h"

static char base[64];
static bool without_locks;

/* The C library's, or as gVisor has it. */
int fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    if (without_locks && (cmd == F_OFD_SETLK || cmd == F_OFD_GETLK)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static int set_up(void **state)
{
    temp_dir_make(base);
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_remove(base);
    return 0;
}

static struct fbr_cpuset cpus(const char *list)
{
    struct fbr_cpuset set = {{0}};

    assert_int_equal(fbr_cpuset_add(&set, list), 0);
    return set;
}

static void test_two_do_not_have_the_same(void **state)
{
    struct fbr_cpuset a = cpus("0-2,9"), b = cpus("2-4"), c = cpus("3-4"), others;
    int one = fbr_claim_open(base), two = fbr_claim_open(base);

    assert_true(one >= 0 && two >= 0);
    assert_int_equal(fbr_claim_take(one, &a), 0);
    assert_int_equal(fbr_claim_take(one, &b), 0); /* one's own may overlap */
    fbr_claim_drop(one);
    assert_int_equal(fbr_claim_take(one, &a), 0);
    assert_int_equal(fbr_claim_take(two, &b), -EAGAIN);
    fbr_claim_others(one, &others);
    assert_int_equal(fbr_cpuset_count(&others), 0); /* nothing of it is kept */
    assert_int_equal(fbr_claim_take(two, &c), 0);
    fbr_claim_others(two, &others);
    assert_memory_equal(&others, &a, sizeof(a));
    close(one);
    assert_int_equal(fbr_claim_take(two, &b), 0);
    close(two);
}

static void test_they_are_free_when_their_process_is_killed(void **state)
{
    struct fbr_cpuset a = cpus("0"), others;
    int fd = fbr_claim_open(base);
    struct gate told;
    pid_t pid;

    gate_open(&told);
    pid = fork();
    if (pid == 0) {
        int own = fbr_claim_open(base), rc = fbr_claim_take(own, &a);

        gate_notify(told.path, &rc, sizeof(rc));
        for (;;)
            pause();
    }
    assert_int_equal(gate_wait(&told, &others, sizeof(int)), 0);
    assert_int_equal(fbr_claim_take(fd, &a), -EAGAIN);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fbr_claim_take(fd, &a), 0);
    close(fd);
    gate_close(&told);
}

static void test_where_there_are_no_locks_there_are_no_claims(void **state)
{
    without_locks = true;
    assert_int_equal(fbr_claim_open(base), -EINVAL);
    without_locks = false;
}

static void test_the_rest_is_a_list(void **state)
{
    struct fbr_cpuset set = cpus("0,3-5,4095"), all = cpus("0-4095");
    char list[64];

    assert_true(fbr_cpuset_rest(&set, list, sizeof(list)));
    assert_string_equal(list, "1-2,6-4094");
    assert_false(fbr_cpuset_rest(&set, list, 5));
    assert_false(fbr_cpuset_rest(&all, list, sizeof(list)));
}

static void test_only_allowed_processors_are_left(void **state)
{
    struct fbr_cpuset all = cpus("0-4095");
    cpu_set_t before, one;
    int cpu = sched_getcpu();

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    fbr_cpuset_allowed(&all);
    assert_int_equal(fbr_cpuset_count(&all), CPU_COUNT(&before));
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    fbr_cpuset_allowed(&all);
    assert_int_equal(fbr_cpuset_count(&all), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_do_not_have_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_they_are_free_when_their_process_is_killed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_where_there_are_no_locks_there_are_no_claims, set_up,
                                        tear_down),
        cmocka_unit_test(test_the_rest_is_a_list),
        cmocka_unit_test(test_only_allowed_processors_are_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
