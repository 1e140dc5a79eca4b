/* listener_test.c - who is let in at the control channel, and who cannot keep others out: silent and trickling
 * callers, floods of them, a shortage of descriptors.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/runtime/door_util.h"
#include "tests/support/sanitized.h"

static void silent_callers_keep_nobody_out(void **state)
{
    int silent[200], n = strcmp(*state, "tcp") == 0 ? 200 : 100;
    struct end client;

    for (int i = 0; i < n; i++)
        silent[i] = stranger();
    join(&client); /* while they hold their lines */
    for (int i = 0; i < n; i++)
        close(silent[i]);
    hang_up(&client);
}

/* A silent caller may hold its place longer than a test waits. So a listener that waits for silent callers fails. */
#define PATIENT_MS (100 * TEST_LONG_MS)

/* The promise, on a machine that has a processor for it; the flood and its victim are slow in a sanitizer's build. */
#define JOIN_MS (SANITIZED ? TEST_LONG_MS : 1000)
#define JOINS (SANITIZED ? 3 : 10)
#define JOIN_BUSY_MS 4000
#define FLOOD 4000

static int set_up_patient(void **state)
{
    int rc;

    join_ms = PATIENT_MS;
    rc = set_up(state);
    join_ms = 5000;
    return rc;
}

/* Always FLOOD silent calls, or as many as this process may have. Tells `ready` when all are made. */
static _Noreturn void flood(int ready)
{
    static int fds[FLOOD];
    struct rlimit r;
    int n, fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    n = r.rlim_cur < FLOOD + 100 ? (int)r.rlim_cur - 100 : FLOOD;
    for (int round = 0;; round++) {
        for (int i = 0; i < n; i++) {
            char byte;

            fd = fds[i];
            if (fd > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
                continue;
            if (fd > 0)
                close(fd);
            fds[i] = try_stranger();
        }
        if (round == 0 && write(ready, "x", 1) != 1)
            _exit(1);
        let_time_pass(10);
    }
}

/* As a child does that is turned away: again. */
static uint64_t time_to_join(struct end *client)
{
    uint64_t since = fbr_now_ms();
    unsigned before = admitted;

    while (admitted == before) {
        assert_true(fbr_now_ms() - since < TEST_LONG_MS);
        assert_int_equal(dial_as(client, url, GOOD, secret_of_good), 0);
        pthread_mutex_lock(&lock);
        while (admitted == before && !client->closes)
            assert_int_equal(fbr_cond_wait(&changed, &lock, since + TEST_LONG_MS), 0);
        pthread_mutex_unlock(&lock);
    }
    return fbr_now_ms() - since;
}

/* How long a join may take: on a busy machine it also waits for processors. */
static uint64_t join_limit(void)
{
    double load = 0;

    return getloadavg(&load, 1) == 1 && load > 2 * (double)sysconf(_SC_NPROCESSORS_ONLN) &&
                   JOIN_MS < JOIN_BUSY_MS
               ? JOIN_BUSY_MS
               : JOIN_MS;
}

static void tcp_a_flood_of_silent_callers_delays_nobody(void **state)
{
    struct end client;
    uint64_t took[10], limit;
    int late = 0;
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0)
        flood(ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; i < JOINS; i++) {
        took[i] = time_to_join(&client);
        hang_up(&client);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    limit = join_limit();
    for (int i = 0; i < JOINS; i++)
        late += took[i] >= limit;
    assert_in_range(late, 0, JOINS - 1); /* others want the processors, too */
    close(ready[0]);
}

/* All places are held by callers that have begun to speak, and one that knows its key is let in. */
static void tcp_tricklers_keep_nobody_out(void **state)
{
    static const uint8_t hello[] = {0x16, 3, 1, 2, 0, 1, 0, 1};
    int fds[3 * FBR_LISTENER_HALF_OPEN];
    struct end client;

    for (size_t i = 0; i < COUNT(fds); i++) {
        fds[i] = stranger();
        assert_int_equal(send(fds[i], hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    }
    time_to_join(&client);
    for (size_t i = 0; i < COUNT(fds); i++)
        close(fds[i]);
    hang_up(&client);
}

static uint64_t cpu_ms(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* Waits until n callers have been let in, or this one is hung up on; returns whether they were let in. */
static bool is_let_in(struct end *client, unsigned n)
{
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;
    bool done;

    pthread_mutex_lock(&lock);
    while (admitted < n && !client->closes)
        assert_int_equal(fbr_cond_wait(&changed, &lock, deadline), 0);
    done = admitted >= n;
    pthread_mutex_unlock(&lock);
    return done;
}

/* Callers wait, the loop does not spin meanwhile, and they are served when there are some again. */
static void a_shortage_of_descriptors_passes(void **state)
{
    struct rlimit r, few;
    struct end client;
    int silent = stranger();
    uint64_t cpu;

    assert_int_equal(dial_as(&client, url, GOOD, secret_of_good), 0);
    wait_for(&admitted, 1);
    hang_up(&client);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    few = r;
    few.rlim_cur = 3;
    assert_int_equal(dial_as(&client, url, GOOD, secret_of_good), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    close(silent);
    cpu = cpu_ms();
    let_time_pass(500);
    assert_true(cpu_ms() - cpu < 250);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    if (!is_let_in(&client,
                   2)) /* accepted in the last moment, and then its owner could not be looked up */
        time_to_join(&client);
    hang_up(&client);
}

static void callers_that_hang_up_at_once(void **state)
{
    struct end client;

    for (int i = 0; i < 300; i++)
        close(stranger());
    join(&client);
    hang_up(&client);
}

static void a_listener_that_closes_drops_the_half_open(void **state)
{
    int silent[3];
    char again[FBR_URL_MAX];

    for (int i = 0; i < 3; i++)
        silent[i] = stranger();
    snprintf(again, sizeof(again), "%s", url);
    fbr_loop_call(loop, do_shut, NULL);
    for (int i = 0; i < 3; i++)
        expect_closed(silent[i]);
    assert_int_equal(dir_count(dir, ""), 0);
    assert_int_equal(fbr_loop_call(loop, do_listen, again), 0);
}

static void silent_callers_have_their_time(void **state)
{
    char again[FBR_URL_MAX];
    uint64_t since;
    int fd;

    snprintf(again, sizeof(again), "%s", url);
    fbr_loop_call(loop, do_shut, NULL);
    join_ms = 300;
    assert_int_equal(fbr_loop_call(loop, do_listen, again), 0);
    join_ms = 5000;
    since = fbr_now_ms();
    fd = stranger();
    expect_closed(fd);
    assert_in_range(fbr_now_ms() - since, 250, 20000); /* others want the processors, too */
}

/* It is gone before anything of it is read, also if it knows the secret. */
static void tcp_another_user_is_not_heard(void **state)
{
    int status;
    pid_t pid;

    if (geteuid() != 0)
        skip();
    pid = fork();
    if (pid == 0) {
        char byte;
        int fd;

        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        fd = try_stranger();
        alarm(TEST_LONG_MS / 1000); /* a silent caller of our own user has longer */
        _exit(fd < 0 || recv(fd, &byte, 1, 0) > 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define PATIENT(fn)                                               \
    {                                                             \
        "tcp: " #fn, fn, set_up_patient, tear_down, (void *)"tcp" \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(silent_callers_keep_nobody_out),
        PATIENT(tcp_a_flood_of_silent_callers_delays_nobody),
        ON_BOTH(a_shortage_of_descriptors_passes),
        PATIENT(tcp_tricklers_keep_nobody_out),
        PATIENT(tcp_another_user_is_not_heard),
        ON_BOTH(callers_that_hang_up_at_once),
        ON_BOTH(a_listener_that_closes_drops_the_half_open),
        ON_BOTH(silent_callers_have_their_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
