/* http_stream_test.c - streams on the loop, what callbacks may do, and the end with calls under way.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/files.h"
#include "tests/support/http_bench.h"

/* ---- Streams ---- */

static void test_a_stream_comes_as_it_is_sent(void **state)
{
    struct bench *b = *state;
    struct got g;

    got_stream(&g, b, "/stream");
    got_send(&g);
    sem_come(&g.more);
    assert_int_equal(g.opened, 1);
    sem_post(&b->stage.go);
    sem_come(&g.done);
    assert_int_equal(g.status, 200);
    assert_int_equal(g.stream.len, 6);
    assert_memory_equal(g.stream.data, "onetwo", 6);
    assert_string_equal(g.body, "");
    fbr_buf_fini(&g.stream);
}

static void test_a_stream_that_is_refused_has_an_answer(void **state)
{
    struct got g;

    got_stream(&g, *state, "/nothing");
    got_ask(&g);
    assert_int_equal(g.status, 404);
    assert_int_equal(g.opened, 0);
    assert_int_equal(g.stream.len, 0);
    assert_non_null(strstr(g.body, "message"));
}

static void test_a_stream_is_repeated_until_it_begins(void **state)
{
    static const char *const broken[] = {"", "HTTP/1.1 200 OK\r\nConte",
                                         "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"};
    struct bench *b = *state;
    struct got g;

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        b->stage.raw = broken[i];
        b->stage.fails = http_server_asked(b->server) + 2;
        got_stream(&g, b, "/breaks");
        g.r.patience_ms = 60000;
        got_ask(&g);
        assert_int_equal(g.status, 200);
        assert_int_equal(g.opened, 1);
        assert_int_equal(g.stream.len, 7);
        assert_int_equal(http_server_asked(b->server), b->stage.fails + 1);
        fbr_buf_fini(&g.stream);
    }
    b->stage.raw = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome";
    b->stage.fails = http_server_asked(b->server) + 2;
    got_stream(&g, b, "/breaks");
    g.r.patience_ms = 60000;
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_int_equal(g.opened, 1);
    assert_int_equal(http_server_asked(b->server), b->stage.fails - 1);
    fbr_buf_fini(&g.stream);
}

static void test_a_paused_stream_waits(void **state)
{
    struct bench *b = *state;
    struct got g, other;
    size_t len;

    got_stream(&g, b, "/much");
    g.stop_at = 1;
    got_send(&g);
    sem_come(&g.more);
    got_init(&other, b, "GET", "/echo"); /* meanwhile */
    got_ask(&other);
    len = g.stream.len;
    assert_true(len < (size_t)HTTP_MUCH * HTTP_PIECE);
    assert_int_equal(g.answers, 0);
    fbr_loop_call(b->loop, got_go_on, &g);
    sem_come(&g.done);
    assert_int_equal(g.stream.len, (size_t)HTTP_MUCH * HTTP_PIECE);
    fbr_buf_fini(&g.stream);
}

static int send_paused(void *arg)
{
    struct got *g = arg;

    got_send_it(g);
    fbr_http_pause(g->call, true);
    return 0;
}

static void test_a_stream_can_begin_paused(void **state)
{
    struct bench *b = *state;
    struct got g, other;

    got_stream(&g, b, "/stream");
    fbr_loop_call(b->loop, send_paused, &g);
    sem_post(&b->stage.go);
    got_init(&other, b, "GET", "/echo");
    got_ask(&other);
    assert_int_equal(g.stream.len, 0);
    fbr_loop_call(b->loop, got_go_on, &g);
    sem_come(&g.done);
    assert_int_equal(g.stream.len, 6);
    fbr_buf_fini(&g.stream);
}

/* ---- What callbacks may do ---- */

static void test_the_data_of_a_stream_may_cancel_it_and_send(void **state)
{
    struct bench *b = *state;
    struct got g, other;

    got_stream(&g, b, "/much");
    got_init(&other, b, "GET", "/echo");
    g.stop_at = 1;
    g.cancel = true;
    g.other = &other;
    got_send(&g);
    sem_come(&other.done);
    assert_int_equal(other.status, 200);
    assert_int_equal(g.answers, 0);
    fbr_buf_fini(&g.stream);
}

static void test_an_answer_may_send_the_next(void **state)
{
    struct bench *b = *state;
    struct got g, other;

    b->o.parallel = 1;
    bench_reopen(b);
    got_init(&g, b, "GET", "/echo");
    got_init(&other, b, "GET", "/echo");
    g.other = &other;
    g.resend = true;
    got_send(&g);
    sem_come(&other.done);
    assert_int_equal(other.status, 200);
}

/* Also while a request waits to be repeated, whose time is far away. */
static void test_an_answer_may_cancel_another(void **state)
{
    struct bench *b = *state;
    struct got g, hangs, waits;

    b->stage.status = 429;
    b->stage.headers = "Retry-After: 1000\r\n";
    b->stage.fails = 1000;
    got_init(&waits, b, "GET", "/fails");
    waits.r.patience_ms = 1000000;
    got_send(&waits);
    got_init(&hangs, b, "GET", "/hangs");
    got_send(&hangs);
    sem_come(&b->stage.come);
    got_init(&g, b, "GET", "/echo");
    g.other = &hangs;
    got_ask(&g);
    sem_come(&b->stage.come); /* its connection is closed */
    assert_int_equal(hangs.answers, 0);
    fbr_loop_call(b->loop, got_cancel, &waits);
    got_init(&g, b, "GET", "/echo");
    got_ask(&g);
    assert_int_equal(waits.answers, 0);
}

struct reuse {
    struct got *g;
    int fd, other;
    sem_t there, go;
};

static void hold_loop(void *arg)
{
    struct reuse *r = arg;

    sem_post(&r->there);
    sem_come(&r->go);
}

static void cancel_and_reuse(void *arg)
{
    struct reuse *r = arg;

    fbr_http_cancel(r->g->call);
    dup2(r->other, r->fd);
}

static int nothing(void *arg)
{
    return 0;
}

/* Waits until the server's socket takes no more bytes of the file. */
static void fill_socket(struct bench *b, int fd)
{
    off_t before = 0, now = 0;

    while (!now || now != before) {
        before = now;
        for (int i = 0; i < 4; i++) /* in each of these rounds the loop writes what it can */
            fbr_loop_call(b->loop, nothing, NULL);
        now = lseek(fd, 0, SEEK_CUR);
    }
}

/* The caller closes the file then, and another one may get its number, before libcurl hears of it. */
static void test_a_cancelled_request_reads_no_file(void **state)
{
    struct bench *b = *state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct got g;
    struct reuse r = {.g = &g, .fd = memfd_create("body", MFD_CLOEXEC)};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), server, ends[2], left = 0;
    char bytes[65536];

    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path_in(b->dir, "slow"));
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(ftruncate(r.fd, 64 << 20), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "mine", 4), 4);
    r.other = ends[0];
    sem_init(&r.there, 0, 0);
    sem_init(&r.go, 0, 0);
    b->o.socket = at.sun_path;
    bench_reopen(b);
    got_init(&g, b, "PUT", "/echo");
    g.r.body_fd = r.fd;
    got_send(&g);
    server = accept(listener, NULL, NULL);
    fill_socket(b, r.fd);
    fbr_loop_post(b->loop, hold_loop, &r);
    sem_come(&r.there);
    fbr_loop_post(b->loop, cancel_and_reuse, &r); /* the loop wakes for this, then for the socket */
    while (recv(server, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    sem_post(&r.go);
    for (int i = 0; i < 3; i++)
        fbr_loop_call(b->loop, nothing, NULL);
    assert_int_equal(ioctl(ends[0], FIONREAD, &left), 0);
    assert_int_equal(left, 4);
    fbr_loop_call(b->loop, bench_close, b);
    close(server);
    close(listener);
    close(ends[0]);
    close(ends[1]);
    close(r.fd);
}

static void test_what_is_under_way_at_the_end_is_not_answered(void **state)
{
    struct bench *b = *state;
    struct got hangs, stream, waits[3];

    b->o.parallel = 1;
    bench_reopen(b);
    got_init(&hangs, b, "GET", "/hangs");
    got_send(&hangs);
    got_stream(&stream, b, "/stream");
    got_send(&stream);
    for (int i = 0; i < 3; i++) {
        got_init(&waits[i], b, "GET", "/echo");
        got_send(&waits[i]);
    }
    sem_come(&stream.more);
    sem_come(&b->stage.come);
    sem_post(&b->stage.go);
    fbr_loop_call(b->loop, bench_close, b);
    assert_int_equal(hangs.answers + waits[0].answers + waits[1].answers + waits[2].answers, 0);
    fbr_buf_fini(&stream.stream);
}

int main(void)
{
#define PLAIN(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        PLAIN(test_a_stream_comes_as_it_is_sent),
        PLAIN(test_a_stream_that_is_refused_has_an_answer),
        PLAIN(test_a_stream_is_repeated_until_it_begins),
        PLAIN(test_a_paused_stream_waits),
        PLAIN(test_a_stream_can_begin_paused),
        PLAIN(test_the_data_of_a_stream_may_cancel_it_and_send),
        PLAIN(test_an_answer_may_send_the_next),
        PLAIN(test_an_answer_may_cancel_another),
        PLAIN(test_a_cancelled_request_reads_no_file),
        PLAIN(test_what_is_under_way_at_the_end_is_not_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
