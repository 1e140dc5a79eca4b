/* sp_server_test.c - strangers at the port of the data channel: how many there may be, for how long, what
 * memory and descriptors they get, and that they keep nobody out.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/net/data_server.h"
#include "runtime/proc/context.h"
#include "runtime/net/sock.h"
#include "runtime/net/sp.h"
#include "runtime/net/sp_server.h"
#include "runtime/net/tcp.h"
#include "runtime/net/data_client.h"
#include "tests/support/sanitized.h"
#include "tests/support/sync.h"

#define LIMIT (1u << 20)
#define FLOOD 5000
#define SOME 1000 /* strangers that stay */
#define SPARE 40  /* descriptors of which a test has few */
/* Who waits until strangers go needs more; who waits for a processor, on a busy machine, needs less; but a sanitizer's
 * build may wait for long. */
#define JOIN_MS (SANITIZED ? TEST_LONG_MS : FBR_SP_UNPROVEN_MS - 1000)
#define LATE_MS 20000

static const uint8_t greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
static struct fbr_data_server *data_server;
static struct sockaddr_storage at;
static socklen_t at_len;

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    const struct iovec iov = {(void *)(uintptr_t)record, len};

    fbr_link_send(link, &iov, 1);
}

static void on_broken(void *user, struct fbr_link *link, int why)
{
}

static const struct fbr_link_ops ops = {on_record, on_broken};

static int open_data_server_for(bool own_user)
{
    const struct fbr_data_server_options options = {.limit = LIMIT, .own_user = own_user};

    assert_int_equal(fbr_data_server_open(&data_server, "tcp://127.0.0.1:0", &options, NULL), 0);
    return fbr_tcp_address(fbr_data_server_url(data_server), &at, &at_len);
}

static int set_up(void **state)
{
    return open_data_server_for(false);
}

static int tear_down(void **state)
{
    fbr_data_server_close(data_server);
    return 0;
}

static int call(void)
{
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, at_len) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Whether the server has hung up, within so many milliseconds. Its greeting is passed over. */
static bool is_over(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char bytes[64];
    ssize_t n;

    do
        n = poll(&p, 1, ms) == 1 ? recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) : -2;
    while (n > 0);
    return n == 0 || n == -1;
}

/* A process joins, and has its word echoed: milliseconds that it took. */
static uint64_t join(void)
{
    struct fbr_keys keys = {{1, 2}, {3, 4}, fbr_aead_preferred()};
    uint64_t begin = fbr_now_ms();
    struct fbr_error err = {0, ""};
    struct fbr_data_client *up;
    struct fbr_link *link;

    assert_int_equal(fbr_link_open(&link, data_server, &ops, NULL), 0);
    assert_int_equal(fbr_link_seal(link, &keys), 0);
    if (fbr_data_client_open(&up, fbr_data_server_url(data_server), fbr_link_id(link), &keys, LIMIT,
                             TEST_LONG_MS, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(fbr_data_client_send(up, &(struct iovec){"x", 1}, 1), 0);
    fbr_data_client_close(up);
    fbr_link_close(link);
    return fbr_now_ms() - begin;
}

static long rss_kib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (f && kib < 0 && fgets(line, sizeof(line), f))
        sscanf(line, "VmRSS: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static int count_over(const int *fds, int n)
{
    int over = 0;

    for (int i = 0; i < n; i++)
        over += fds[i] < 0 || is_over(fds[i], 0);
    return over;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* ---- Tests ---- */

static void so_many_may_say_nothing_and_the_oldest_goes(void **state)
{
    int fds[FBR_SP_UNPROVEN + 10];

    for (int i = 0; i < FBR_SP_UNPROVEN; i++)
        assert_true((fds[i] = call()) >= 0);
    assert_false(is_over(fds[0], 100));
    for (int i = FBR_SP_UNPROVEN; i < FBR_SP_UNPROVEN + 10; i++)
        assert_true((fds[i] = call()) >= 0);
    for (int i = 0; i < 10; i++)
        assert_true(is_over(fds[i], TEST_LONG_MS));
    assert_false(is_over(fds[FBR_SP_UNPROVEN + 9], 0));
    assert_true(join() < JOIN_MS);
    close_all(fds, FBR_SP_UNPROVEN + 10);
}

static void who_says_nothing_goes_in_time(void **state)
{
    uint64_t begin = fbr_now_ms();
    int silent = call(), half = call();

    assert_int_equal(send(half, greeting, 5, MSG_NOSIGNAL), 5);
    assert_true(is_over(silent, TEST_LONG_MS));
    assert_true(is_over(half, TEST_LONG_MS));
    assert_in_range(fbr_now_ms() - begin, FBR_SP_UNPROVEN_MS - 500, FBR_SP_UNPROVEN_MS + LATE_MS);
    close(silent);
    close(half);
}

static void what_strangers_announce_costs_no_memory(void **state)
{
    static int fds[SOME];
    static uint8_t bytes[65536];
    long before = rss_kib();

    for (int i = 0; i < SOME; i++) {
        uint8_t head[FBR_SP_HEAD_MAX];

        fds[i] = call();
        fbr_sp_head(head, FBR_SOCK_MAX - 4, false);
        send(fds[i], greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT);
        send(fds[i], head, FBR_SP_HEAD, MSG_NOSIGNAL | MSG_DONTWAIT);
        send(fds[i], bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (int i = 0; i < SOME; i++)
        assert_true(fds[i] < 0 || is_over(fds[i], TEST_LONG_MS));
    assert_true(rss_kib() - before < 8 * 1024);
    assert_true(join() < JOIN_MS);
    close_all(fds, SOME);
}

static atomic_int called, joins;

/* Its second half waits for a join, which others who want the processors may put off. */
static void *flood(void *arg)
{
    int *fds = arg;

    for (int i = 0; i < FLOOD; i++) {
        while (i == FLOOD / 2 && !atomic_load(&joins))
            sched_yield();
        fds[i] = call();
        if (fds[i] >= 0)
            send(fds[i], greeting, sizeof(greeting), MSG_NOSIGNAL);
        atomic_store(&called, i + 1);
    }
    return NULL;
}

static void a_flood_delays_nobody(void **state)
{
    static int fds[FLOOD];
    struct rlimit r;
    pthread_t thread;
    uint64_t took, worst = 0, deadline = fbr_now_ms() + TEST_LONG_MS;

    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < FLOOD + 500)
        skip();
    atomic_store(&called, 0);
    atomic_store(&joins, 0);
    assert_int_equal(pthread_create(&thread, NULL, flood, fds), 0);
    while (atomic_load(&called) < FLOOD / 10)
        sched_yield();
    while (atomic_load(&called) < FLOOD) {
        took = join();
        worst = took > worst ? took : worst;
        atomic_fetch_add(&joins, 1);
    }
    pthread_join(thread, NULL);
    printf("           %d joins in the flood, the slowest took %d ms\n", atomic_load(&joins),
           (int)worst);
    assert_true(worst < JOIN_MS);
    while (count_over(fds, FLOOD) <
           FLOOD - FBR_SP_UNPROVEN) /* the last of them still wait in the kernel */
        assert_true(fbr_now_ms() < deadline);
    close_all(fds, FLOOD);
}

/* Another process calls as often as it can, and holds what it gets. */
static pid_t begin_crowd(void)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    for (int i = 0; i < SOME; i++) {
        int fd = call();

        if (fd >= 0)
            send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL);
    }
    raise(SIGSTOP);
    _exit(0);
}

static int open_fds(void)
{
    return dir_count("/proc/self/fd", "");
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Where there are few descriptors strangers get a part of them, and where there are none, callers wait and
 * cost no time. */
static void descriptors_are_left_for_others(void **state)
{
    struct rlimit before, low;
    int had = open_fds(), fds[SPARE + 10], n = 0, status;
    double spent;
    pid_t crowd;

    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = (rlim_t)had + SPARE;
    fbr_data_server_close(data_server);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    open_data_server_for(false);
    crowd = begin_crowd();
    assert_int_equal(waitpid(crowd, &status, WUNTRACED), crowd);
    assert_true(WIFSTOPPED(status));
    assert_true(open_fds() <= had + SPARE / 2);
    assert_true(join() < JOIN_MS);
    while (n < SPARE + 10 && (fds[n] = dup(0)) >= 0)
        n++;
    kill(crowd, SIGKILL);
    waitpid(crowd, &status, 0);
    while (n < SPARE + 10 && (fds[n] = dup(0)) >= 0)
        n++;
    close(fds[--n]);
    fds[n] = call(); /* the last one: none is left to take the call with */
    spent = cpu_seconds();
    let_time_pass(500);
    assert_true(cpu_seconds() - spent < 0.2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(join() < JOIN_MS);
    close_all(fds, n + 1);
}

/* A user of this host who is not us. */
static void other_users_are_refused_at_once(void **state)
{
    int status, fd;
    pid_t pid;

    if (geteuid() != 0)
        skip();
    fbr_data_server_close(data_server);
    open_data_server_for(true);
    pid = fork();
    if (pid == 0) {
        char bytes[8];

        fd = setuid(65534) == 0 ? call() : -1;
        _exit(fd >= 0 && recv(fd, bytes, sizeof(bytes), 0) <= 0 ? 0 : 1); /* not even a greeting */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fd = call();
    assert_false(is_over(fd, 100));
    close(fd);
    assert_true(join() < JOIN_MS);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(so_many_may_say_nothing_and_the_oldest_goes),
        CASE(who_says_nothing_goes_in_time),
        CASE(what_strangers_announce_costs_no_memory),
        CASE(a_flood_delays_nobody),
        CASE(descriptors_are_left_for_others),
        CASE(other_users_are_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
