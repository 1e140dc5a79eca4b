/* pmix_port_test.c - what libpmix gets in place of a connection that it cannot have.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_port.c" /* of the module; the library does not have it */

/* A rank calls while the agent has no descriptor left. libpmix waits only after EAGAIN, and then
 * takes it. */
static void test_a_shortage_of_descriptors_does_not_end_the_listening(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct {
        int32_t index;
        uint32_t tag;
        size_t len;
    } message = {0};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), rank, fd;
    struct sockaddr_storage from;
    socklen_t len = sizeof(in);
    struct rlimit before, none;

    assert_int_equal(bind(listener, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(listen_for_ranks(listener, 8), 0);
    rank = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(rank, (struct sockaddr *)&in, len), 0);
    assert_int_equal(send(rank, &message, sizeof(message), 0), sizeof(message));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    len = sizeof(from);
    fd = accept_rank(listener, (struct sockaddr *)&from, &len);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(errno, EAGAIN);
    len = sizeof(from);
    fd = accept_rank(listener, (struct sockaddr *)&from, &len);
    assert_true(fd >= 0);
    close(fd);
    close(rank);
    close(listener);
    assert_int_equal(accept_rank(listener, NULL, NULL), -1);
    assert_int_equal(errno, EBADF); /* libpmix has closed it: it ends */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shortage_of_descriptors_does_not_end_the_listening),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
