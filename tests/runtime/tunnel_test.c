/* tunnel_test.c - bytes between a socket and a control channel: in order, within the window, to the end of either side.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/tunnel.h"

#define MANY (3 * FBR_TUNNEL_WINDOW + 1000)

/* Two ends of a channel that is a function call; all frames are sent on the loop thread. */
static struct fbr_loop *loop;
static struct fbr_tunnels ends[2];
static int outer[2]; /* our ends of the sockets */
static unsigned sent[4], under_way;
static bool mute; /* the channel loses CREDIT */

static int pass(void *user, uint8_t type, const struct fbr_buf *body)
{
    struct fbr_tunnels *to = user;
    struct fbr_cur c = fbr_cur(body->data, body->len);

    sent[type - FBR_TUNNEL_OPEN]++;
    if (type == FBR_TUNNEL_DATA)
        under_way += (unsigned)body->len - 8;
    if (!mute || type != FBR_TUNNEL_CREDIT)
        fbr_tunnels_on_frame(to, type, &c);
    return 0;
}

static int open_both(void *arg)
{
    struct fbr_error err = {0, ""};
    int *inner = arg;
    struct fbr_buf first = {0};

    for (int i = 0; i < 2; i++)
        ends[i] = (struct fbr_tunnels){.loop = loop, .send = pass, .user = &ends[1 - i]};
    fbr_put(&first, "first", 5);
    assert_int_equal(fbr_tunnels_open(&ends[0], 7, inner[0], &first, &err), 0);
    assert_int_equal(fbr_tunnels_open(&ends[1], 7, inner[1], NULL, &err), 0);
    fbr_buf_fini(&first);
    return 0;
}

static void expect_bytes(int fd, const char *expected)
{
    char found[32] = "";

    assert_true(strlen(expected) < sizeof(found));
    assert_int_equal(recv(fd, found, strlen(expected), MSG_WAITALL), strlen(expected));
    assert_string_equal(found, expected);
}

static int set_up(void **state)
{
    int inner[2];

    memset(sent, 0, sizeof(sent));
    under_way = 0;
    mute = false;
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    for (int i = 0; i < 2; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        outer[i] = pair[0];
        inner[i] = pair[1];
    }
    fbr_loop_call(loop, open_both, inner);
    expect_bytes(outer[0], "first");
    return 0;
}

static int close_both(void *arg)
{
    fbr_tunnels_close(&ends[0]);
    fbr_tunnels_close(&ends[1]);
    return 0;
}

static int tear_down(void **state)
{
    fbr_loop_call(loop, close_both, NULL);
    fbr_loop_close(loop);
    for (int i = 0; i < 2; i++)
        if (outer[i] >= 0)
            close(outer[i]);
    return 0;
}

static void expect_end(int fd)
{
    char byte;

    assert_true(recv(fd, &byte, 1, 0) <= 0);
}

static void bytes_pass_both_ways(void **state)
{
    assert_int_equal(send(outer[0], "there", 5, 0), 5);
    expect_bytes(outer[1], "there");
    assert_int_equal(send(outer[1], "and back", 8, 0), 8);
    expect_bytes(outer[0], "and back");
}

static void all_that_was_sent_comes_before_the_end(void **state)
{
    char *data = malloc(MANY), *found = malloc(MANY);
    size_t at = 0, got = 0;

    assert_true(data && found);
    for (size_t i = 0; i < MANY; i++)
        data[i] = (char)(i ^ i >> 9);
    while (at < MANY) { /* more than the window: only a reader lets it go on */
        ssize_t n = send(outer[0], data + at, MANY - at, MSG_DONTWAIT);

        if (n > 0)
            at += (size_t)n;
        else
            assert_int_equal(errno, EAGAIN);
        n = recv(outer[1], found + got, MANY - got, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
    }
    close(outer[0]);
    outer[0] = -1;
    assert_int_equal(recv(outer[1], found + got, MANY - got, MSG_WAITALL), MANY - got);
    assert_memory_equal(found, data, MANY);
    expect_end(outer[1]);
    free(data);
    free(found);
}

static int sample(void *arg)
{
    *(unsigned *)arg = under_way;
    return 0;
}

static void without_credit_no_more_than_the_window_is_sent(void **state)
{
    char *data = calloc(1, MANY);
    unsigned now;

    assert_non_null(data);
    mute = true;
    do {
        ssize_t n = send(outer[0], data, MANY, MSG_DONTWAIT);

        assert_true(n > 0 || errno == EAGAIN);
        recv(outer[1], data, MANY, MSG_DONTWAIT);
        fbr_loop_call(loop, sample, &now);
    } while (now < FBR_TUNNEL_WINDOW);
    assert_int_equal(now, FBR_TUNNEL_WINDOW);
    free(data);
}

static int send_too_much(void *arg)
{
    struct fbr_cur c;
    struct fbr_buf b = {0};

    fbr_put_u64(&b, 7);
    memset(fbr_buf_extend(&b, FBR_TUNNEL_WINDOW + 1), 0, FBR_TUNNEL_WINDOW + 1);
    c = fbr_cur(b.data, b.len);
    fbr_tunnels_on_frame(&ends[1], FBR_TUNNEL_DATA, &c);
    fbr_buf_fini(&b);
    return 0;
}

static void who_sends_more_than_the_window_is_hung_up_on(void **state)
{
    fbr_loop_call(loop, send_too_much, NULL);
    expect_end(outer[1]);
    expect_end(outer[0]);
    assert_int_equal(ends[0].count + ends[1].count, 0);
}

/* A command that ends without having read all of its input. */
static int end_before_more_comes(void *arg)
{
    static const uint8_t more[12] = {7};
    struct fbr_cur c = fbr_cur(more, sizeof(more));

    assert_int_equal(send(outer[1], "last words", 10, 0), 10);
    close(outer[1]);
    outer[1] = -1;
    fbr_tunnels_on_frame(&ends[1], FBR_TUNNEL_DATA, &c);
    return 0;
}

static void the_last_words_of_who_takes_no_more_are_passed_on(void **state)
{
    fbr_loop_call(loop, end_before_more_comes, NULL);
    expect_bytes(outer[0], "last words");
    expect_end(outer[0]);
}

static int send_nonsense(void *arg)
{
    static const uint8_t other[12] = {8}, cut[3] = {7};

    for (uint8_t type = FBR_TUNNEL_DATA; type <= FBR_TUNNEL_END; type++) {
        struct fbr_cur c = fbr_cur(other, sizeof(other));

        fbr_tunnels_on_frame(&ends[1], type, &c);
        c = fbr_cur(cut, sizeof(cut));
        fbr_tunnels_on_frame(&ends[1], type, &c);
    }
    return 0;
}

static void frames_of_no_visit_are_passed_over(void **state)
{
    fbr_loop_call(loop, send_nonsense, NULL);
    bytes_pass_both_ways(state);
}

static int open_more(void *arg)
{
    struct fbr_error err = {0, ""};
    int pair[2];

    for (uint64_t i = 1; i < FBR_TUNNELS_MAX; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(fbr_tunnels_open(&ends[0], 100 + i, pair[0], NULL, &err), 0);
        close(pair[1]);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fbr_tunnels_open(&ends[0], 99, pair[0], NULL, &err), -EBUSY);
    close(pair[0]);
    close(pair[1]);
    return 0;
}

static void there_are_only_so_many_at_a_time(void **state)
{
    fbr_loop_call(loop, open_more, NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(bytes_pass_both_ways),
        CASE(all_that_was_sent_comes_before_the_end),
        CASE(without_credit_no_more_than_the_window_is_sent),
        CASE(who_sends_more_than_the_window_is_hung_up_on),
        CASE(the_last_words_of_who_takes_no_more_are_passed_on),
        CASE(frames_of_no_visit_are_passed_over),
        CASE(there_are_only_so_many_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
