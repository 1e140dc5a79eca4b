/* relay_test.c - processes behind a host: what passes through its relay, and when their end is told.
 *
 * The parent (a data server, the host's link, a branch for each process), the host (an data client, a relay on a
 * thread of its own) and the processes are all in here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/net/data_server.h"
#include "runtime/net/relay.h"
#include "runtime/proc/context.h"
#include "tests/support/sync.h"

/* The linker replaces malloc and its like in this program and in libfiber. */
static _Atomic bool short_of_memory;
static __thread bool is_relay;

static bool refuse(void)
{
    return is_relay && short_of_memory;
}

#include "tests/support/wrapped_malloc.h"

#define LIMIT (32u << 20)
#define PROCESSES 3
#define LONG (3u << 20)

/* The parent's side under `lock`; the other one is the test's own. */
static struct process {
    struct fbr_link *branch;
    struct fbr_data_client *up;
    unsigned came, dry, late; /* records; ends; records after one */
    uint64_t sum;
    unsigned got;
    uint64_t got_sum;
    bool greeted;
} processes[PROCESSES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static char dir[64], url[128];
static struct fbr_data_server *data_server;
static struct fbr_link *trunk;
static struct fbr_data_client *host_up;
static struct fbr_relay *relay;
static pthread_t runner;
static int run_code;
static const char first[] = "what all of them need";

static uint64_t sum_of(uint64_t sum, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < len; i += 1 + len / 1000)
        sum = sum * 31 + at[i];
    return sum * 31 + len;
}

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    struct process *p = user;

    assert_non_null(p);
    pthread_mutex_lock(&lock);
    p->came++;
    p->late += p->dry;
    p->sum = sum_of(p->sum, record, len);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_broken(void *user, struct fbr_link *link, int why)
{
}

static void on_drained(void *user)
{
    struct process *p = user;

    pthread_mutex_lock(&lock);
    p->dry++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct fbr_link_ops ops = {on_record, on_broken};

static void on_down(void *user, const void *record, size_t len)
{
    struct process *p = user;

    if (!p->greeted) {
        assert_int_equal(len, sizeof(first));
        assert_memory_equal(record, first, len);
        p->greeted = true;
        return;
    }
    assert_int_equal((uintptr_t)record % 8, 0);
    p->got++;
    p->got_sum = sum_of(p->got_sum, record, len);
}

static void *run(void *arg)
{
    is_relay = true;
    run_code = fbr_relay_run(relay, host_up, 1000);
    return NULL;
}

static void add_process(int i)
{
    struct process *p = &processes[i];
    struct fbr_error err = {0, ""};
    int end;

    memset(p, 0, sizeof(*p));
    assert_int_equal(fbr_link_branch(&p->branch, trunk, (uint64_t)i + 1, &ops, p, on_drained, p),
                     0);
    assert_int_equal(fbr_relay_add(relay, (uint64_t)i + 1, &end, &err), 0);
    assert_int_equal(fbr_data_client_open_local(&p->up, end, LIMIT, &err), 0);
}

static void open_ends(bool sealed)
{
    struct fbr_error err = {0, ""};
    struct fbr_keys keys = {{1, 2}, {3, 4}, FBR_AEAD_AES_256_GCM};

    fbr_cond_init(&changed);
    temp_dir_make(dir);
    snprintf(url, sizeof(url), "unix:%s/d", dir);
    assert_int_equal(fbr_data_server_open(&data_server, url,
                                          &(struct fbr_data_server_options){.limit = LIMIT}, &err),
                     0);
    assert_int_equal(fbr_link_open(&trunk, data_server, &ops, NULL), 0);
    if (sealed)
        assert_int_equal(fbr_link_seal(trunk, &keys), 0);
    assert_int_equal(fbr_data_client_open(&host_up, url, fbr_link_id(trunk), sealed ? &keys : NULL,
                                          LIMIT, TEST_LONG_MS, &err),
                     0);
    assert_int_equal(fbr_relay_open(&relay, first, sizeof(first), LIMIT, &err), 0);
    for (int i = 0; i < PROCESSES; i++)
        add_process(i);
}

static void open_all(bool sealed)
{
    open_ends(sealed);
    assert_int_equal(pthread_create(&runner, NULL, run, NULL), 0);
}

static void close_ends(void)
{
    fbr_data_client_close(host_up);
    for (int i = 0; i < PROCESSES; i++) {
        fbr_data_client_close(processes[i].up);
        fbr_link_close(processes[i].branch);
    }
    fbr_link_close(trunk);
    fbr_data_server_close(data_server);
    temp_dir_remove(dir);
}

static void close_all(void)
{
    fbr_relay_stop(relay);
    pthread_join(runner, NULL);
    assert_int_equal(run_code, 0);
    fbr_relay_close(relay);
    close_ends();
}

static void send_order(enum fbr_relay_order order, uint64_t id, uint64_t more)
{
    const uint64_t record[3] = {order, id, more};
    const struct iovec iov = {(void *)(uintptr_t)record, sizeof(record)};

    assert_int_equal(fbr_link_send(trunk, &iov, 1), 0);
}

static void send_down(int i, const void *bytes, size_t len)
{
    const struct iovec iov = {(void *)(uintptr_t)bytes, len};

    assert_int_equal(fbr_link_send(processes[i].branch, &iov, 1), 0);
}

static void send_up(int i, const void *bytes, size_t len)
{
    const struct iovec iov[2] = {{(void *)(uintptr_t)bytes, len / 2},
                                 {(uint8_t *)(uintptr_t)bytes + len / 2, len - len / 2}};

    assert_int_equal(fbr_data_client_send(processes[i].up, iov, 2), 0);
}

static void receive(int i, unsigned n)
{
    struct process *p = &processes[i];
    struct pollfd fd = {.fd = fbr_data_client_fd(p->up), .events = POLLIN};

    while (p->got < n) {
        int rc = fbr_data_client_recv(p->up, on_down, p);

        assert_true(rc >= 0);
        if (rc == 0 && p->got < n)
            assert_int_equal(poll(&fd, 1, TEST_LONG_MS), 1);
    }
    assert_int_equal(p->got, n);
}

static void wait_for(const unsigned *count, unsigned n)
{
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;
    int rc = 0;

    pthread_mutex_lock(&lock);
    while (*count < n && rc == 0)
        rc = fbr_cond_wait(&changed, &lock, deadline);
    assert_int_equal(*count, n);
    pthread_mutex_unlock(&lock);
}

static uint8_t *pattern(size_t len)
{
    uint8_t *bytes = malloc(len);

    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8));
    return bytes;
}

/* ---- Tests ---- */

static void records_pass_whole_and_in_order(bool sealed)
{
    const size_t sizes[] = {1, 7, 8, 4000, 65536, 65537, LONG, 3, 300000};
    uint8_t *bytes = pattern(LONG + 1000);
    uint64_t sum = 0;
    unsigned n = 0;

    open_all(sealed);
    for (int round = 0; round < 5; round++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++, n++) {
            for (int i = 0; i < PROCESSES; i++)
                send_down(i, bytes + n, sizes[k]);
            sum = sum_of(sum, bytes + n, sizes[k]);
        }
    for (int i = 0; i < PROCESSES; i++) {
        receive(i, n);
        assert_true(processes[i].got_sum == sum);
    }
    n = 0;
    for (int round = 0; round < 5; round++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++, n++)
            for (int i = 0; i < PROCESSES; i++)
                send_up(i, bytes + n, sizes[k]);
    for (int i = 0; i < PROCESSES; i++) {
        wait_for(&processes[i].came, n);
        assert_true(processes[i].sum == sum);
    }
    close_all();
    free(bytes);
}

static void test_records_pass_whole_and_in_order(void **state)
{
    records_pass_whole_and_in_order(false);
}

static void test_records_pass_whole_and_in_order_on_a_sealed_link(void **state)
{
    records_pass_whole_and_in_order(true);
}

static void test_a_process_that_does_not_read_holds_nobody_up(void **state)
{
    uint8_t *bytes = pattern(LONG);

    open_all(false);
    for (int i = 0; i < 4; i++)
        send_down(0, bytes, LONG);
    for (unsigned n = 1; n <= 100; n++) {
        send_down(1, bytes, 100);
        receive(1, n);
    }
    receive(0, 4); /* and nothing of its own was lost */
    close_all();
    free(bytes);
}

static void test_what_an_ended_process_has_said_comes_before_its_end(void **state)
{
    uint8_t *bytes = pattern(LONG);

    open_all(false);
    for (int i = 0; i < 50; i++)
        send_up(0, bytes, 100 + (size_t)i);
    send_up(0, bytes, LONG);
    fbr_data_client_close(processes[0].up);
    processes[0].up = NULL;
    wait_for(&processes[0].dry, 1);
    assert_int_equal(processes[0].came, 51);
    /* One whose socket somebody else keeps open: its host knows that it has ended. */
    for (int i = 0; i < 50; i++)
        send_up(1, bytes, 100);
    fbr_relay_end(relay, 2);
    wait_for(&processes[1].dry, 1);
    assert_int_equal(processes[1].came, 50);
    fbr_relay_end(relay, 2);
    /* What is for those that are gone goes nowhere, and the others live on. */
    send_down(0, bytes, LONG);
    send_down(1, bytes, 10);
    send_down(2, bytes, 10);
    receive(2, 1);
    send_up(2, bytes, 10);
    wait_for(&processes[2].came, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(processes[i].dry + processes[i].late, 1);
    close_all();
    free(bytes);
}

/* As one that is just being started has, until it is another program. */
static void test_an_ended_process_whose_sockets_a_fork_has_is_forgotten(void **state)
{
    pid_t fork_of_us;

    open_all(false);
    fork_of_us = fork();
    if (fork_of_us == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    fbr_relay_end(relay, 1);
    wait_for(&processes[0].dry, 1);
    assert_int_equal(write(fbr_data_client_fd(processes[0].up), "x", 1), 1);
    for (unsigned n = 1; n <= 100; n++) {
        send_up(1, "x", 1);
        wait_for(&processes[1].came, n);
    }
    assert_int_equal(processes[0].came, 0);
    assert_int_equal(processes[0].dry, 1);
    kill(fork_of_us, SIGKILL);
    assert_int_equal(waitpid(fork_of_us, NULL, 0), fork_of_us);
    close_all();
}

static void test_a_record_above_the_limit_ends_its_process_alone(void **state)
{
    const uint64_t head = LIMIT + 1;

    open_all(false);
    assert_int_equal(write(fbr_data_client_fd(processes[0].up), &head, sizeof(head)), sizeof(head));
    wait_for(&processes[0].dry, 1);
    send_up(1, "x", 1);
    wait_for(&processes[1].came, 1);
    assert_int_equal(processes[0].came, 0);
    close_all();
}

/* The orders and the record are in one message, because the host has not read the first one. */
static void test_nothing_passes_after_a_record_that_could_not_be_kept(void **state)
{
    struct process *p = &processes[0];

    open_ends(false);
    send_order(FBR_RELAY_DROP, 1, 0);
    send_order(FBR_RELAY_KEEP, 2, 0);
    send_order(FBR_RELAY_GIVE, 2, 1);
    send_down(0, "needs the kept one", 18);
    short_of_memory = true;
    assert_int_equal(pthread_create(&runner, NULL, run, NULL), 0);
    pthread_join(runner, NULL);
    short_of_memory = false;
    assert_int_equal(run_code, -ENOMEM);
    fbr_relay_close(relay);
    while (fbr_data_client_recv(p->up, on_down, p) >= 0)
        continue;
    assert_int_equal(p->got, 0);
    close_ends();
}

static void test_a_branch_may_outlive_its_trunk(void **state)
{
    const struct iovec iov = {(void *)(uintptr_t) "x", 1};

    open_all(false);
    fbr_link_close(processes[1].branch);
    processes[1].branch = NULL;
    send_up(1, "for nobody", 10);
    send_up(0, "x", 1);
    wait_for(&processes[0].came, 1);
    fbr_link_close(trunk);
    trunk = NULL;
    assert_int_equal(fbr_link_send(processes[0].branch, &iov, 1), -EPIPE);
    assert_int_equal(processes[1].came, 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_pass_whole_and_in_order),
        cmocka_unit_test(test_records_pass_whole_and_in_order_on_a_sealed_link),
        cmocka_unit_test(test_a_process_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(test_what_an_ended_process_has_said_comes_before_its_end),
        cmocka_unit_test(test_an_ended_process_whose_sockets_a_fork_has_is_forgotten),
        cmocka_unit_test(test_a_record_above_the_limit_ends_its_process_alone),
        cmocka_unit_test(test_nothing_passes_after_a_record_that_could_not_be_kept),
        cmocka_unit_test(test_a_branch_may_outlive_its_trunk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
