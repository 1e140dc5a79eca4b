/* import_test.c - a library calls the function that replaces one which it imports, and only that
 * library does.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "runtime/program/import.h"

static pid_t get_seven(void)
{
    return 7;
}

static void test_a_program_calls_the_replacement(void **state)
{
    pid_t parent = getppid();

    assert_int_equal(fbr_import_replace((void *)get_seven, "getppid", (void *)get_seven), 0);
    assert_int_equal(getppid(), 7);
    assert_int_equal(uv_os_getppid(), parent); /* libuv calls the C library's */
}

static int deny_pair(int domain, int type, int protocol, int fds[2])
{
    errno = EPERM;
    return -1;
}

static void test_a_library_calls_the_replacement(void **state)
{
    uv_os_sock_t pair[2];

    assert_int_equal(uv_socketpair(SOCK_STREAM, 0, pair, 0, 0), 0);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(fbr_import_replace((void *)uv_socketpair, "socketpair", (void *)deny_pair), 0);
    assert_int_equal(uv_socketpair(SOCK_STREAM, 0, pair, 0, 0), UV_EPERM);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0); /* called by this program */
    close(pair[0]);
    close(pair[1]);
}

static void test_a_function_that_is_not_called_cannot_be_replaced(void **state)
{
    assert_int_equal(fbr_import_replace((void *)uv_socketpair, "crypt", (void *)deny_pair),
                     -ENOENT);
    assert_int_equal(fbr_import_replace(NULL, "socketpair", (void *)deny_pair), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_calls_the_replacement),
        cmocka_unit_test(test_a_library_calls_the_replacement),
        cmocka_unit_test(test_a_function_that_is_not_called_cannot_be_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
