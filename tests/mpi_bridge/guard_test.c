/* guard_test.c - strangers and half messages never reach a library's listener; ranks do.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi_bridge/guard.h"
#include "tests/support/sync.h"

/* bytes of a message, the first of which is how many there are in all; UINT8_MAX: it never ends */
#define HEAD 4
#define STRANGERS 200
#define OTHER_USER 65534

/* A library as libpmix is: accepts everybody, reads the first message as long as it takes, and
 * waits for its listener before there is a guard. */
static struct {
    int listener, stop[2];
    int task; /* atomic: /proc's entry of the thread, which only waits from then on */
    unsigned short port;
    pthread_t thread;
    unsigned accepted; /* atomic, as all below */
    unsigned waited;   /* a first message was not whole */
} library;

static struct fbr_loop *loop;
static struct fbr_guard *guard;
static char dir[64], path[128];

static bool is_whole(const uint8_t *bytes, size_t len)
{
    return len > 0 && bytes[0] != UINT8_MAX && len >= bytes[0];
}

static void serve(int fd)
{
    char bytes[256];
    ssize_t n = recv(fd, bytes, HEAD, MSG_WAITALL);

    if (n != 0) /* not the guard's own, which says nothing */
        __atomic_add_fetch(&library.accepted, 1, __ATOMIC_RELAXED);
    if (n > 0 && n != HEAD)
        __atomic_add_fetch(&library.waited, 1, __ATOMIC_RELAXED);
    while (n > 0 && send(fd, bytes, (size_t)n, MSG_NOSIGNAL) == n)
        n = recv(fd, bytes, sizeof(bytes), 0);
    close(fd);
}

static void *library_main(void *arg)
{
    __atomic_store_n(&library.task, open("/proc/thread-self/stat", O_RDONLY), __ATOMIC_RELEASE);
    for (;;) {
        struct pollfd p[2] = {{.fd = library.listener, .events = POLLIN},
                              {.fd = library.stop[0], .events = POLLIN}};
        int fd;

        assert_true(poll(p, 2, -1) > 0);
        if (p[1].revents)
            return NULL;
        fd = accept(library.listener, NULL, NULL);
        if (fd >= 0)
            serve(fd);
    }
}

static bool library_waits(void)
{
    char stat[512] = "";
    int fd = __atomic_load_n(&library.task, __ATOMIC_ACQUIRE);

    return fd > 0 && pread(fd, stat, sizeof(stat) - 1, 0) > 0 && strstr(stat, ") S ");
}

static int open_guard(void *arg)
{
    return fbr_guard_open(&guard, loop, library.listener, path, is_whole, NULL);
}

static int close_guard(void *arg)
{
    fbr_guard_close(guard);
    return 0;
}

static int set_up(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);

    memset(&library, 0, sizeof(library));
    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/guarded", dir);
    library.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(library.listener, (struct sockaddr *)&in, len) < 0 ||
        listen(library.listener, 128) < 0 ||
        getsockname(library.listener, (struct sockaddr *)&in, &len) < 0 || pipe(library.stop) < 0)
        return -1;
    library.port = in.sin_port;
    if (pthread_create(&library.thread, NULL, library_main, NULL) != 0)
        return -1;
    while (!library_waits())
        sched_yield();
    return fbr_loop_open(&loop, NULL) < 0 ? -1 : fbr_loop_call(loop, open_guard, NULL);
}

static int tear_down(void **state)
{
    fbr_loop_call(loop, close_guard, NULL);
    fbr_loop_close(loop);
    close(library.stop[1]);
    pthread_join(library.thread, NULL);
    close(library.stop[0]);
    close(library.task);
    close(library.listener);
    temp_dir_remove(dir);
    return 0;
}

static int call(void)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = library.port};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&in, sizeof(in)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* One whole message, which comes back. */
static void check_rank(int fd)
{
    const char message[HEAD] = {HEAD, 1, 2, 3};
    char back[HEAD] = "";

    assert_int_equal(send(fd, message, HEAD, 0), HEAD);
    assert_int_equal(recv(fd, back, HEAD, MSG_WAITALL), HEAD);
    assert_memory_equal(back, message, HEAD);
}

static void test_a_rank_gets_through_and_long_streams_stay_whole(void **state)
{
    static char sent[1 << 20], got[1 << 20];
    size_t out = 0, in = 0;
    int fd = call();

    check_rank(fd);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (char)(i * 7 + (i >> 9));
    while (in < sizeof(got)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (out < sizeof(sent))
            p.events |= POLLOUT;
        assert_true(poll(&p, 1, TEST_LONG_MS) > 0);
        if (p.revents & POLLOUT) {
            n = send(fd, sent + out, sizeof(sent) - out, MSG_DONTWAIT);
            out += n > 0 ? (size_t)n : 0;
        }
        if (p.revents & POLLIN) {
            n = recv(fd, got + in, sizeof(got) - in, 0);
            assert_true(n > 0);
            in += (size_t)n;
        }
    }
    assert_memory_equal(sent, got, sizeof(sent));
    close(fd);
}

/* Of our own user, too. */
static void test_half_messages_cost_the_library_nothing(void **state)
{
    const char half[2] = {HEAD, 1};
    int fds[STRANGERS], fd;

    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = call();
        if (i % 2)
            assert_int_equal(send(fds[i], half, sizeof(half), 0), sizeof(half));
    }
    fd = call();
    check_rank(fd);
    close(fd);
    assert_int_equal(__atomic_load_n(&library.accepted, __ATOMIC_RELAXED), 1);
    assert_int_equal(send(fds[1], "23", 2, 0), 2); /* the rest of it */
    assert_int_equal(recv(fds[1], (char[HEAD]){0}, HEAD, MSG_WAITALL), HEAD);
    assert_int_equal(__atomic_load_n(&library.waited, __ATOMIC_RELAXED), 0);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
}

/* The library would wait for the rest, and the loop thread may wait for the library. */
static void test_a_first_message_without_end_is_not_passed_on(void **state)
{
    static uint8_t endless[1 << 17];
    char byte;
    int fd = call();

    memset(endless, UINT8_MAX, sizeof(endless));
    for (size_t at = 0; at < sizeof(endless);) {
        ssize_t n = send(fd, endless + at, sizeof(endless) - at, MSG_NOSIGNAL);

        if (n < 0)
            break;
        at += (size_t)n;
    }
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    fd = call();
    check_rank(fd);
    close(fd);
    assert_int_equal(__atomic_load_n(&library.accepted, __ATOMIC_RELAXED), 1);
}

/* As another user: whole messages and halves, and nothing comes back. */
static int play_stranger(void)
{
    const char message[HEAD] = {HEAD, 1, 2, 3};
    char back[HEAD];

    if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
        return 1;
    for (int i = 0; i < STRANGERS; i++) {
        int fd = call();

        if (fd < 0)
            return 2;
        send(fd, message, i % 2 ? 2 : HEAD, MSG_NOSIGNAL);
        if (recv(fd, back, HEAD, 0) > 0)
            return 3;
        close(fd);
    }
    return 0;
}

static void test_another_user_never_reaches_the_library(void **state)
{
    int fd = -1, status = -1;
    pid_t pid;

    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    pid = fork();
    if (pid == 0)
        _exit(play_stranger());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fd = call();
    check_rank(fd);
    close(fd);
    assert_int_equal(__atomic_load_n(&library.accepted, __ATOMIC_RELAXED), 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_rank_gets_through_and_long_streams_stay_whole),
        TEST(test_half_messages_cost_the_library_nothing),
        TEST(test_a_first_message_without_end_is_not_passed_on),
        TEST(test_another_user_never_reaches_the_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
