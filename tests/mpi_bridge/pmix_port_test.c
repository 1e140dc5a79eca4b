/* pmix_port_test.c - libpmix gets the connections of ranks, and no others.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "mpi_bridge/pmix_port.c" /* of the module; the library does not have it */

struct message {
    int32_t index;
    uint32_t tag;
    size_t len;
    char more[16];
};
#define OTHER_USER 65534

static int listener;
static struct sockaddr_in address;

static int set_up(void **state)
{
    socklen_t len = sizeof(address);

    address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, len) < 0)
        return -1;
    getsockname(listener, (struct sockaddr *)&address, &len);
    return listen_for_ranks(listener, 8);
}

static int tear_down(void **state)
{
    return close(listener);
}

/* Connects, and sends the first `len` bytes of a message. */
static int call(const struct message *m, size_t len)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        send(fd, m, len, 0) != (ssize_t)len)
        return -1;
    return fd;
}

/* What libpmix's call returns, once there is something to accept. */
static int take(void)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);

    assert_int_equal(poll(&p, 1, -1), 1);
    return accept_rank(listener, (struct sockaddr *)&from, &len);
}

static void expect_refused(int caller)
{
    char byte;

    assert_true(caller >= 0);
    assert_int_equal(take(), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(recv(caller, &byte, 1, 0) <= 0); /* hung up */
    close(caller);
}

static void test_a_rank_comes_with_all_that_it_has_sent(void **state)
{
    const struct message m = {.len = sizeof(m.more), .more = "as it was sent"};
    int caller = call(&m, sizeof(m)), fd = take();
    struct message got;

    assert_int_equal(recv(fd, &got, sizeof(got), 0), sizeof(got));
    assert_memory_equal(&got, &m, sizeof(m));
    close(fd);
    close(caller);
}

static void test_a_message_that_is_not_whole_is_refused(void **state)
{
    const struct message m = {.len = sizeof(m.more)}, endless = {.len = SIZE_MAX};

    expect_refused(call(&m, 3));
    expect_refused(call(&m, sizeof(m) - 1));
    expect_refused(call(&endless, sizeof(endless)));
}

static void test_another_user_is_refused(void **state)
{
    const struct message m = {.len = sizeof(m.more)};
    int status;
    pid_t pid;

    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    pid = fork();
    if (pid == 0) {
        char byte;
        int caller = setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0 ? -1 : call(&m, sizeof(m));

        _exit(caller < 0 || recv(caller, &byte, 1, 0) > 0);
    }
    assert_int_equal(take(), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A rank calls while the agent has no descriptor left. libpmix waits only after EAGAIN, and then
 * takes it. */
static void test_a_shortage_of_descriptors_does_not_end_the_listening(void **state)
{
    const struct message m = {.len = sizeof(m.more)};
    int rank = call(&m, sizeof(m)), fd;
    struct rlimit before, none;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    fd = accept_rank(listener, NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(errno, EAGAIN);
    fd = take();
    assert_true(fd >= 0);
    close(fd);
    close(rank);
}

static void test_libpmix_hears_that_it_has_closed_the_port(void **state)
{
    assert_int_equal(accept_rank(-1, NULL, NULL), -1);
    assert_int_equal(errno, EBADF);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_rank_comes_with_all_that_it_has_sent),
        TEST(test_a_message_that_is_not_whole_is_refused),
        TEST(test_another_user_is_refused),
        TEST(test_a_shortage_of_descriptors_does_not_end_the_listening),
        TEST(test_libpmix_hears_that_it_has_closed_the_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
