/* slow_start_test.c - a child whose START takes long to arrive, as over a slow network: longer than the silence after
 * which a child is given up, and longer than start_timeout.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"

#define LEN (14u << 20)

static bool slow;

static bool is_tcp(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);

    return getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.ss_family == AF_INET;
}

/* Replaces the function of libc in this program: in a slow child, 1 MiB from a TCP socket takes a second. The kernel
 * keeps little of what has not been read. */
ssize_t read(int fd, void *data, size_t len)
{
    ssize_t n = syscall(SYS_read, fd, data, len);
    int room = 65536;

    if (slow && n > 0 && is_tcp(fd)) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
        let_time_pass((int)(n / 1024));
    }
    return n;
}

static int check_arg(const void *arg, size_t len)
{
    const char *bytes = arg;

    return len == LEN && bytes[0] == 1 && bytes[LEN - 1] == 2 ? 0 : 1;
}

static void test_a_long_start_over_a_slow_network_arrives(void **state)
{
    static const char *const env[] = {"SLOW_READ=1", NULL};
    struct fiber_process *p;
    char *arg = calloc(1, LEN);

    assert_non_null(arg);
    arg[0] = 1;
    arg[LEN - 1] = 2;
    p = begin(check_arg, arg, LEN, OPTIONS(.job = {.env = env}));
    free(arg);
    assert_int_equal(finish(p), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_start_over_a_slow_network_arrives),
    };

    slow = getenv("SLOW_READ");
    setenv("FIBER_TRANSPORT", "tcp", 1);
    setenv("FIBER_HEARTBEAT", "4s", 1);
    setenv("FIBER_START_TIMEOUT", "10s", 1);
    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
