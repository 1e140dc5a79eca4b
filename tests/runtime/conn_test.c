/* conn_test.c - the control channel over unix sockets and TLS: frames, heartbeats, and callers who
 * mean no good.
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/runtime/door_util.h"

/* ---- Tests, over both ---- */

static void frames_arrive_whole_and_in_order(void **state)
{
    const size_t sizes[] = {0, 1, 65536, 100000, 8 << 20, 3};
    uint8_t *bytes = calloc(1, 8 << 20);
    struct end client;
    unsigned n = 0;

    server.echo = true;
    assert_int_equal(dial_as(&client, url, GOOD, secret_of_good), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]);
         i++, n++) { /* at once, before it is connected */
        memset(bytes, (int)i + 1, sizes[i]);
        send_frames(&client, (uint8_t)(FBR_FRAME_USER + i), bytes, sizes[i], 1);
    }
    wait_for(&client.frames, n);
    assert_int_equal(server.frames, n);
    assert_int_equal(client.bytes, server.bytes);
    assert_true(client.sum == server.sum);
    assert_int_equal(client.last_type, FBR_FRAME_USER + n - 1);
    send_frames(&client, 200, "ab", 2, 5000);
    wait_for(&client.frames, n + 5000);
    assert_true(client.sum == server.sum);
    hang_up(&client);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -EPIPE);
    assert_int_equal(client.closes, 0); /* none for our own close */
    free(bytes);
}

static void what_is_queued_is_sent_before_the_close(void **state)
{
    uint8_t *bytes = calloc(1, 8 << 20);
    struct end client;
    struct send s = {&client, 20, bytes, 8 << 20, 2, true};

    join(&client);
    assert_int_equal(fbr_loop_call(loop, do_send, &s), 0);
    wait_for(&server.closes, 1);
    assert_int_equal(server.bytes, 16 << 20);
    free(bytes);
}

/* Bytes that the closing end has not read: the kernel would reset the connection, and drop what is under way. */
static int do_send_across(void *arg)
{
    struct send *s = arg;
    int rc = fbr_conn_send(server.conn, 20, "late", 4);

    return rc < 0 ? rc : do_send(s);
}

static void what_was_sent_arrives_although_the_peer_sends_too(void **state)
{
    uint8_t *bytes = calloc(1, 1 << 20);
    struct end client;
    struct send s = {&client, 20, bytes, 1 << 20, 1, true};

    join(&client);
    assert_int_equal(fbr_loop_call(loop, do_send_across, &s), 0);
    wait_for(&server.closes, 1);
    assert_int_equal(server.bytes, 1 << 20);
    free(bytes);
}

static void a_wrong_secret_is_not_let_in(void **state)
{
    uint8_t wrong[FBR_KEY_SIZE];
    struct end client[3];

    memcpy(wrong, secret_of_good, sizeof(wrong));
    wrong[31] ^= 1;
    assert_int_equal(dial_as(&client[0], url, GOOD, wrong), 0);
    assert_int_equal(dial_as(&client[1], url, GOOD + 100, secret_of_good), 0);
    assert_int_equal(dial_as(&client[2], url, REFUSED, secret_of_good), 0);
    for (int i = 0; i < 3; i++) {
        wait_for(&client[i].closes, 1);
        assert_true(client[i].why < 0);
        assert_int_equal(client[i].frames, 0);
    }
    assert_int_equal(admitted, 0);
    join(&client[0]);
    hang_up(&client[0]);
}

static void garbage_is_cut_off(void **state)
{
    struct end client;
    uint8_t bytes[4096];

    for (int round = 0; round < 20; round++) {
        int fd = stranger();

        memset(bytes, round * 13, sizeof(bytes));
        if (round % 2)
            assert_int_equal(fbr_random(bytes, sizeof(bytes)), 0);
        for (int i = 0; i < 16; i++)
            if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) < 0)
                break;
        expect_closed(fd);
    }
    assert_int_equal(admitted, 0);
    join(&client);
    hang_up(&client);
}

static int do_heartbeat(void *arg)
{
    struct end *e = arg;

    fbr_conn_heartbeat(e->conn, 20, 3);
    return 0;
}

static int get_rtt(void *arg)
{
    struct end *e = arg;

    return e->conn && fbr_conn_rtt_ns(e->conn) > 0;
}

static void heartbeats_keep_an_idle_connection(void **state)
{
    struct end client;

    join(&client);
    fbr_loop_call(loop, do_heartbeat, &client);
    wait_for_some(&client.pongs, 8); /* longer than three intervals */
    assert_int_equal(client.closes, 0);
    assert_int_equal(fbr_loop_call(loop, get_rtt, &client), 1);
    hang_up(&client);
}

struct key_request {
    struct end *end;
    uint8_t key[FBR_KEY_SIZE];
};

static int do_export(void *arg)
{
    struct key_request *k = arg;

    return fbr_conn_export(k->end->conn, "fiber test", 5, k->key);
}

static void both_ends_derive_the_same_keys(void **state)
{
    struct end client;
    struct key_request ours = {.end = &client}, theirs = {.end = &server};

    join(&client);
    send_frames(&client, 20, "x", 1, 1);
    wait_for(&server.frames, 1);
    if (strcmp(*state, "unix") == 0) {
        assert_int_equal(fbr_loop_call(loop, do_export, &ours), -ENOTSUP);
    } else {
        assert_int_equal(fbr_loop_call(loop, do_export, &ours), 0);
        assert_int_equal(fbr_loop_call(loop, do_export, &theirs), 0);
        assert_memory_equal(ours.key, theirs.key, FBR_KEY_SIZE);
    }
    hang_up(&client);
}

/* ---- Over unix sockets ---- */

static void unix_a_hello_in_pieces(void **state)
{
    struct fbr_buf hello;
    int fd = stranger();

    put_hello(&hello, secret_of_good);
    for (size_t i = 0; i < hello.len; i++)
        assert_int_equal(send(fd, hello.data + i, 1, 0), 1);
    wait_for(&admitted, 1);
    close(fd);
    wait_for(&server.closes, 1);
    fbr_buf_fini(&hello);
}

static int do_nothing(void *arg)
{
    return 0;
}

static void unix_a_hostile_length(void **state)
{
    const uint8_t frame[] = {0xff, 0xff, 0xff, 0xff, 99, 1, 2, 3};
    struct fbr_buf hello;
    int fd = stranger();

    put_hello(&hello, secret_of_good);
    fbr_put(&hello, frame, sizeof(frame));
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -EPROTO);
    assert_int_equal(server.frames, 0);
    expect_closed(fd);
    fbr_buf_fini(&hello);
}

/* The loop's thread reads it. */
static void set_limit(uint64_t bytes)
{
    __atomic_store_n(&held.limit, bytes, __ATOMIC_RELAXED);
}

/* A frame of 64 MiB, of which all but the end comes, where 1 MiB may be kept. */
static void unix_half_of_a_long_frame_is_bounded(void **state)
{
    static uint8_t bytes[64 << 10];
    const uint8_t head[] = {0, 0, 0, 4, 99};
    struct fbr_buf hello;
    int fd = stranger();
    ssize_t sent = 0;
    size_t all = 0;

    set_limit(1 << 20);
    put_hello(&hello, secret_of_good);
    fbr_put(&hello, head, sizeof(head));
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    while (sent >= 0 && (all += (size_t)sent) < 63u << 20)
        sent = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    assert_true(sent < 0);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -ENOBUFS);
    assert_int_equal(server.frames, 0);
    expect_closed(fd);
    assert_int_equal(fbr_loop_call(loop, do_nothing, NULL), 0); /* it is freed by then */
    assert_int_equal(held.bytes, 0);
    fbr_buf_fini(&hello);
}

struct answers {
    int left, rc;
};

static int do_answer(void *arg)
{
    struct answers *a = arg;
    struct fbr_buf body = {0};

    fbr_buf_extend(&body, 1 << 20);
    memset(body.data, 0, body.len);
    while (a->left > 0 && a->rc == 0 && server.conn) {
        a->rc = fbr_conn_answer(server.conn, FBR_FRAME_USER, &body);
        a->left--;
    }
    fbr_buf_fini(&body);
    return 0;
}

/* It has asked for 256 MiB, where 8 may be kept. */
static void unix_a_peer_that_asks_and_does_not_read(void **state)
{
    struct answers a = {.left = 256};
    struct fbr_buf hello;
    int fd = stranger();

    set_limit(8 << 20);
    put_hello(&hello, secret_of_good);
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    assert_int_equal(fbr_loop_call(loop, do_answer, &a), 0);
    assert_int_equal(a.rc, -ENOBUFS);
    assert_in_range(a.left, 256 - 20, 256 - 8);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -ENOBUFS);
    close(fd);
    assert_int_equal(fbr_loop_call(loop, do_nothing, NULL), 0);
    assert_int_equal(held.bytes, 0);
    fbr_buf_fini(&hello);
}

static void unix_a_peer_that_falls_silent(void **state)
{
    struct fbr_buf hello;
    int fd = stranger();

    put_hello(&hello, secret_of_good);
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    fbr_loop_call(loop, do_heartbeat, &server);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -ETIMEDOUT);
    close(fd);
    fbr_buf_fini(&hello);
}

/* The limit is that of the peer's last byte, wherever it comes between two pings. */
#define SLOW_BEAT_MS 500

static int do_slow_heartbeat(void *arg)
{
    struct end *e = arg;

    fbr_conn_heartbeat(e->conn, SLOW_BEAT_MS, 3);
    return 0;
}

/* UINT_MAX: it was given up before its last byte was read, because this process got no processor. */
static unsigned silence_until_given_up(void)
{
    static const uint8_t pong[] = {8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0};
    struct fbr_buf hello;
    int fd = stranger();
    uint64_t since;

    put_hello(&hello, secret_of_good);
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for_some(&admitted, 1);
    fbr_loop_call(loop, do_slow_heartbeat, &server);
    let_time_pass(SLOW_BEAT_MS * 7 / 5);
    since = fbr_now_ms();
    send(fd, pong, sizeof(pong), MSG_NOSIGNAL);
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -ETIMEDOUT);
    close(fd);
    fbr_buf_fini(&hello);
    return server.pongs ? (unsigned)(fbr_now_ms() - since) : UINT_MAX;
}

static void unix_silence_is_noticed_in_time(void **state)
{
    unsigned took = UINT_MAX;

    /* Others may want the processor, so one of several times counts. */
    for (int i = 0; i < 20 && took > SLOW_BEAT_MS * 7 / 2; i++) {
        memset(&server, 0, sizeof(server));
        took = silence_until_given_up();
        assert_true(took >= 3 * SLOW_BEAT_MS);
    }
    assert_true(took <= SLOW_BEAT_MS * 7 / 2);
}

struct pause {
    int ms;
    uint64_t stall_ms;
};

static int do_pause(void *arg)
{
    struct pause *p = arg;

    let_time_pass(p->ms);
    p->stall_ms = fbr_conn_stall_ms(server.conn);
    return 0;
}

/* What the peer said meanwhile is not read yet, and the peer has as long as ever to be heard. */
static void unix_our_own_stall_is_not_the_peers(void **state)
{
    struct pause none = {.ms = 0}, some = {.ms = 700};
    struct end client;
    uint64_t until = fbr_now_ms() + TEST_LONG_MS;

    join(&client);
    do { /* others may want the processor */
        fbr_loop_call(loop, do_heartbeat, &server);
        fbr_loop_call(loop, do_pause, &none);
    } while (none.stall_ms && fbr_now_ms() < until);
    assert_int_equal(none.stall_ms, 0);
    fbr_loop_call(loop, do_pause, &some);
    assert_true(some.stall_ms >= 600 && some.stall_ms < TEST_LONG_MS);
    wait_for_some(&server.pongs, count_of(&server.pongs) + 8);
    assert_int_equal(server.closes, 0);
    hang_up(&client);
}

/* It speaks, and answers no ping: what we send does not reach it. */
static void unix_a_peer_that_hears_nothing(void **state)
{
    static const uint8_t frame[] = {0, 0, 0, 0, 20};
    struct fbr_buf hello;
    int fd = stranger();
    unsigned closes = 0;

    put_hello(&hello, secret_of_good);
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    fbr_loop_call(loop, do_heartbeat, &server);
    for (int i = 0; i < 1000 && !closes; i++) { /* of which ten are enough */
        send(fd, frame, sizeof(frame), MSG_NOSIGNAL);
        let_time_pass(20);
        pthread_mutex_lock(&lock);
        closes = server.closes;
        pthread_mutex_unlock(&lock);
    }
    assert_int_equal(closes, 1);
    assert_int_equal(server.why, -ETIMEDOUT);
    close(fd);
    fbr_buf_fini(&hello);
}

static int get_queued(void *arg)
{
    struct end *e = arg;

    return e->conn ? (int)fbr_conn_queued(e->conn) : -1;
}

/* It may not have us hold the answers to its pings. */
static void unix_a_peer_that_pings_and_does_not_read(void **state)
{
    uint8_t pings[13 * 4096] = {0};
    struct fbr_buf hello;
    int fd = stranger(), queued;

    for (size_t i = 0; i < sizeof(pings); i += 13) {
        pings[i] = 8;
        pings[i + 4] = 1;
    }
    put_hello(&hello, secret_of_good);
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    for (int i = 0; i < 120; i++) /* 6 MiB */
        assert_int_equal(send(fd, pings, sizeof(pings), 0), sizeof(pings));
    queued = fbr_loop_call(loop, get_queued, &server);
    assert_in_range(queued, 1, 1 << 20);
    close(fd);
    wait_for(&server.closes, 1);
    fbr_buf_fini(&hello);
}

static unsigned ticks;
static struct fbr_timer ticker;

static void on_tick(void *arg)
{
    pthread_mutex_lock(&lock);
    ticks++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int do_tick(void *arg)
{
    ticks = 0;
    if (fbr_timer_init(&ticker, loop, on_tick, NULL) < 0)
        return -1;
    fbr_timer_start(&ticker, 20, 20);
    return 0;
}

static int end_ticks(void *arg)
{
    fbr_timer_fini(&ticker);
    return 0;
}

static void unix_a_peer_that_says_that_it_is_stopped(void **state)
{
    static const uint8_t silent[] = {1, 0, 0, 0, 4, 1}, back[] = {1, 0, 0, 0, 4, 0};
    struct fbr_buf hello;
    int fd = stranger();

    put_hello(&hello, secret_of_good);
    fbr_put(&hello, silent, sizeof(silent));
    assert_int_equal(send(fd, hello.data, hello.len, 0), hello.len);
    wait_for(&admitted, 1);
    fbr_loop_call(loop, do_heartbeat, &server);
    assert_int_equal(fbr_loop_call(loop, do_tick, NULL), 0);
    wait_for_some(&ticks, 20); /* of which three would be too many */
    assert_int_equal(server.closes, 0);
    assert_int_equal(send(fd, back, sizeof(back), 0), sizeof(back));
    wait_for(&server.closes, 1);
    assert_int_equal(server.why, -ETIMEDOUT);
    fbr_loop_call(loop, end_ticks, NULL);
    close(fd);
    fbr_buf_fini(&hello);
}

static void unix_another_user_is_not_let_in(void **state)
{
    int status;
    pid_t pid;

    if (geteuid() != 0)
        skip();
    chmod(dir, 0755); /* what usually keeps him out */
    chmod(url + 5, 0666);
    pid = fork();
    if (pid == 0) {
        struct fbr_buf hello;
        char byte;
        int fd;

        put_hello(&hello, secret_of_good);
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        fd = stranger();
        send(fd, hello.data, hello.len, MSG_NOSIGNAL);
        _exit(recv(fd, &byte, 1, 0) > 0); /* the end, and not a byte */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(admitted, 0);
}

static void unix_the_socket_is_its_owners(void **state)
{
    struct stat st;

    assert_int_equal(stat(url + 5, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(fbr_loop_call(loop, do_listen, url), -EADDRINUSE);
}

/* ---- Calls that lead nowhere ---- */

static void calls_to_nobody(void **state)
{
    struct end client;

    assert_int_equal(dial_as(&client, "unix:/tmp/fbrtest-nobody-is-here", GOOD, secret_of_good), 0);
    wait_for(&client.closes, 1);
    assert_int_equal(client.why, -ENOENT);
    assert_int_equal(dial_as(&client, "tcp://127.0.0.1:1", GOOD, secret_of_good), 0);
    wait_for(&client.closes, 1);
    assert_int_equal(client.why, -ECONNREFUSED);
}

static void addresses_that_are_none(void **state)
{
    static const char *const bad[] = {"",
                                      "unix:",
                                      "unix:relative",
                                      "http://x:1",
                                      "tcp://",
                                      "tcp://1.2.3.4",
                                      "tcp://:1",
                                      "tcp://1.2.3.4:123456789",
                                      "tcp://localhost:1"};
    char far[300];
    struct end client;

    memset(far, 'a', sizeof(far));
    memcpy(far, "unix:/", 6);
    far[sizeof(far) - 1] = '\0';
    assert_true(dial_as(&client, far, GOOD, secret_of_good) < 0);
    assert_int_equal(fbr_loop_call(loop, do_listen, far), -ENAMETOOLONG);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(dial_as(&client, bad[i], GOOD, secret_of_good) < 0);
        assert_true(fbr_loop_call(loop, do_listen, (void *)(uintptr_t)bad[i]) < 0);
    }
}

static int do_dial_badly(void *arg)
{
    const struct fbr_caller who = {FBR_CALLER_JOB, GOOD};
    struct fbr_conn *conn;

    return fbr_conn_dial(&conn, loop, "tcp://127.0.0.1:1", &who, secret_of_good, &ops, NULL, arg);
}

/* OpenSSL reads its configuration once in a process. */
static int dial_without_ciphers(const char *config)
{
    struct fbr_error err = {0, ""};

    setenv("OPENSSL_CONF", config, 1);
    if (fbr_loop_open(&loop, NULL) < 0 || fbr_loop_call(loop, do_dial_badly, &err) != -ENOTSUP)
        return 1;
    if (strstr(err.text, "cannot connect to tcp://127.0.0.1:1: tls: OpenSSL offers no TLS 1.3"))
        return 0;
    print_error("%s\n", err.text);
    return 2;
}

static void a_call_without_ciphers_says_why(void **state)
{
    char config[96];
    int status;
    pid_t pid;
    FILE *f;

    temp_dir_make(dir);
    snprintf(config, sizeof(config), "%s/openssl.cnf", dir);
    f = fopen(config, "we");
    assert_non_null(f);
    fprintf(f, "openssl_conf = all\n[all]\nproviders = some\n[some]\nnull = none\n"
               "[none]\nactivate = 1\n");
    fclose(f);
    pid = fork();
    if (pid == 0)
        _exit(dial_without_ciphers(config));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_call_without_ciphers_says_why), /* first: this process has no threads yet */
        ON_BOTH(frames_arrive_whole_and_in_order),
        ON_BOTH(what_is_queued_is_sent_before_the_close),
        ON_BOTH(what_was_sent_arrives_although_the_peer_sends_too),
        ON_BOTH(a_wrong_secret_is_not_let_in),
        ON_BOTH(garbage_is_cut_off),
        ON_BOTH(heartbeats_keep_an_idle_connection),
        ON_BOTH(both_ends_derive_the_same_keys),
        ON(unix, unix_a_hello_in_pieces),
        ON(unix, unix_a_hostile_length),
        ON(unix, unix_half_of_a_long_frame_is_bounded),
        ON(unix, unix_a_peer_that_asks_and_does_not_read),
        ON(unix, unix_a_peer_that_falls_silent),
        ON(unix, unix_silence_is_noticed_in_time),
        ON(unix, unix_our_own_stall_is_not_the_peers),
        ON(unix, unix_a_peer_that_hears_nothing),
        ON(unix, unix_a_peer_that_pings_and_does_not_read),
        ON(unix, unix_a_peer_that_says_that_it_is_stopped),
        ON(unix, unix_another_user_is_not_let_in),
        ON(unix, unix_the_socket_is_its_owners),
        ON(unix, calls_to_nobody),
        ON(unix, addresses_that_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
