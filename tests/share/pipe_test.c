/* pipe_test.c - fiber_pipe across processes: both directions, polls, back-pressure, many of them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pipe_util.h"

/* ---- Both directions ---- */

static void test_what_is_sent_comes_back(void **state)
{
    static const size_t sizes[] = {5, 0, 1, 65536, 65537, 3 * MIB, 0, 100 * MIB, 1};
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;
    char *data = malloc(100 * MIB);

    assert_non_null(data);
    for (size_t i = 0; i < 100 * MIB; i++)
        data[i] = (char)(i * 31 + i / 65536);
    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct fiber_bytes b;

        must(fiber_pipe_send(ends[0], data, sizes[i], LONG_MS));
        must(fiber_pipe_recv(ends[0], &b, LONG_MS));
        assert_int_equal(b.len, sizes[i]);
        assert_int_equal(memcmp(b.data, data, b.len), 0);
        fiber_bytes_free(&b);
    }
    for (uint64_t i = 0; i < 2000; i++) {
        must(send_number(ends[0], i));
        expect_recv(ends[0], i);
    }
    fiber_pipe_close(ends[0]);
    join(p);
    free(data);
}

static void test_a_stream_stays_in_order_in_both_directions(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    for (uint64_t i = 0; i < 20000; i++)
        must(send_number(ends[0], i));
    for (uint64_t i = 0; i < 20000; i++)
        expect_recv(ends[0], i);
    fiber_pipe_close(ends[0]);
    join(p);
}

static int read_oneway(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    int rc;

    CHECK(fiber_pipe_send(p, "x", 1, 0) == -EBADF);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(recv_number(p, &rc) == i);
    CHECK(recv_number(p, &rc) == UINT64_MAX && rc == -EPIPE);
    fiber_pipe_close(p);
    return 0;
}

static void test_a_oneway_pipe_goes_one_way(void **state)
{
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    struct fiber_bytes b;
    struct order o = {.count = 1000};

    assert_int_equal(fiber_pipe_open(ends, 2), -EINVAL);
    open_pipe(ends, FIBER_PIPE_ONEWAY);
    assert_int_equal(fiber_pipe_send(ends[0], "x", 1, 0), -EBADF);
    assert_int_equal(fiber_pipe_recv(ends[1], &b, 0), -EBADF);
    assert_int_equal(fiber_pipe_poll(ends[1], 0), -EBADF);
    o.end = address_of(ends[0]);
    p = start(read_oneway, &o, sizeof(o));
    fiber_pipe_close(ends[0]);
    for (uint64_t i = 0; i < o.count; i++)
        must(send_number(ends[1], i));
    fiber_pipe_close(ends[1]);
    join(p);
}

static void test_what_was_sent_before_the_other_end_connects_is_there(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {.count = 100};
    struct fiber_process *p;

    open_pipe(ends, FIBER_PIPE_ONEWAY);
    for (uint64_t i = 0; i < o.count; i++)
        must(send_number(ends[1], i));
    o.end = address_of(ends[0]);
    fiber_pipe_close(ends[0]); /* it was given away */
    fiber_pipe_close(ends[1]);
    p = start(read_oneway, &o, sizeof(o));
    join(p);
}

/* ---- poll, times, back-pressure ---- */

static int poll_and_talk(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    uint64_t t = now_ms();
    int rc;

    CHECK(fiber_pipe_poll(p, 0) == 0);
    CHECK(fiber_pipe_poll(p, 100) == 0 && now_ms() - t >= 99);
    CHECK(send_number(p, 1) == 0);
    CHECK(fiber_pipe_poll(p, LONG_MS) == 1);
    CHECK(fiber_pipe_poll(p, 0) == 1); /* it takes nothing */
    CHECK(recv_number(p, &rc) == 2);
    CHECK(recv_number(p, &rc) == 3);
    CHECK(fiber_pipe_poll(p, 0) == 0);
    CHECK(send_number(p, 4) == 0);
    CHECK(fiber_pipe_poll(p, LONG_MS) == 1);
    CHECK(recv_number(p, &rc) == UINT64_MAX && rc == -EPIPE);
    CHECK(fiber_pipe_poll(p, 0) == 1);
    return 0;
}

static void test_poll_tells_of_messages_and_of_the_end(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    open_pipe(ends, 0);
    assert_int_equal(fiber_pipe_poll(ends[0], 0), 0);
    assert_int_equal(fiber_pipe_poll(ends[0], 20), 0);
    p = give_end(ends, poll_and_talk, &o);
    assert_int_equal(fiber_pipe_poll(ends[0], LONG_MS), 1);
    assert_int_equal(fiber_pipe_poll(ends[0], 0), 1);
    expect_recv(ends[0], 1);
    must(send_number(ends[0], 2));
    must(send_number(ends[0], 3));
    expect_recv(ends[0], 4);
    fiber_pipe_close(ends[0]);
    join(p);
}

#define ROOM_LEAST (8 * MIB / 65536) /* messages of 64 KiB that a pipe takes unread */

/* Sends until there is no room, tells how much it was, and goes on when it may. */
static int press(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);
    char *data = calloc(1, 65536);
    uint64_t n = 0;
    int rc;

    CHECK(data);
    while ((rc = fiber_pipe_send(p, data, 65536, n < ROOM_LEAST ? LONG_MS : 200)) == 0)
        n++;
    CHECK(rc == -ETIMEDOUT);
    CHECK(put_number(report, n) == 0);
    for (uint64_t i = 0; i < 100; i++)
        CHECK(fiber_pipe_send(p, data, 65536, LONG_MS) == 0);
    fiber_pipe_close(p);
    free(data);
    return 0;
}

static void test_a_slow_reader_stops_the_writer(void **state)
{
    struct fiber_address a;
    struct fiber_queue *report = open_queue(0, &a);
    struct fiber_pipe *ends[2];
    struct order o = {.report = a};
    struct fiber_process *p;
    struct fiber_bytes b;
    uint64_t n, got = 0;
    int rc;

    open_pipe(ends, 0);
    p = give_end(ends, press, &o);
    n = get_number(report, LONG_MS, &rc);
    assert_true(n >= ROOM_LEAST && n <= 16 * MIB / 65536);
    while (fiber_pipe_recv(ends[0], &b, LONG_MS) == 0) {
        got++;
        fiber_bytes_free(&b);
    }
    assert_int_equal(got, n + 100);
    join(p);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(report);
}

/* Connects, and reads only when it is told to. */
static int read_late(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *go = connect_queue(&o->report);
    struct fiber_bytes b;
    uint64_t n = 0;
    int rc;

    CHECK(send_number(p, 0) == 0);
    CHECK(get_number(go, LONG_MS, &rc) == 1);
    while (fiber_pipe_recv(p, &b, LONG_MS) == 0) {
        n++;
        fiber_bytes_free(&b);
    }
    CHECK(n == o->count);
    return 0;
}

static void test_a_slow_reader_elsewhere_stops_the_owner(void **state)
{
    struct fiber_address a;
    struct fiber_queue *go = open_queue(0, &a);
    struct order o = {.report = a, .count = 300};
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    char *data = calloc(1, 65536);
    uint64_t n = 0;

    assert_non_null(data);
    open_pipe(ends, 0);
    p = give_end(ends, read_late, &o);
    expect_recv(ends[0], 0);
    while (n < o.count && fiber_pipe_send(ends[0], data, 65536, 0) == 0)
        n++;
    assert_true(n >= 8 * MIB / 65536 && n <= 16 * MIB / 65536);
    assert_int_equal(fiber_pipe_send(ends[0], data, 65536, 50), -ETIMEDOUT);
    must(put_number(go, 1));
    for (; n < o.count; n++)
        must(fiber_pipe_send(ends[0], data, 65536, LONG_MS));
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(go);
    free(data);
}

/* ---- Many ---- */

#define MANY 1000

static int echo_many(const void *arg, size_t len)
{
    const struct fiber_address *a = arg;
    struct fiber_pipe *p[MANY];
    int rc;

    CHECK(len == sizeof(*a) * MANY);
    for (int i = 0; i < MANY; i++)
        p[i] = connect_end(&a[i]);
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(recv_number(p[i], &rc) == i);
        CHECK(send_number(p[i], i + 1) == 0);
    }
    for (int i = 0; i < MANY; i += 2)
        fiber_pipe_close(p[i]);
    return 0;
}

static void test_a_thousand_pipes(void **state)
{
    struct fiber_address *a = calloc(MANY, sizeof(*a));
    struct fiber_pipe *ends[MANY][2];
    struct fiber_process *p;
    int fds = count_fds();

    assert_non_null(a);
    for (int i = 0; i < MANY; i++) {
        open_pipe(ends[i], 0);
        a[i] = address_of(ends[i][1]);
        fiber_pipe_close(ends[i][1]);
    }
    p = start(echo_many, a, sizeof(*a) * MANY);
    for (uint64_t i = 0; i < MANY; i++)
        must(send_number(ends[i][0], i));
    for (uint64_t i = 0; i < MANY; i++)
        expect_recv(ends[i][0], i + 1);
    assert_true(count_fds() < fds + 32);
    join(p);
    for (uint64_t i = 0; i < MANY; i++) {
        expect_end(ends[i][0]);
        fiber_pipe_close(ends[i][0]);
    }
    free(a);
}

/* ---- Threads ---- */

struct thread_work {
    struct fiber_pipe *p;
    uint64_t count, sum;
};

static void *send_in_thread(void *arg)
{
    struct thread_work *w = arg;

    for (uint64_t i = 0; i < w->count; i++)
        CHECK(send_number(w->p, i) == 0);
    return NULL;
}

static void *recv_in_thread(void *arg)
{
    struct thread_work *w = arg;
    int rc;

    for (uint64_t i = 0; i < w->count; i++) {
        if (i % 7 == 0)
            CHECK(fiber_pipe_poll(w->p, LONG_MS) == 1);
        w->sum += recv_number(w->p, &rc);
    }
    return NULL;
}

static void run_threads(struct fiber_pipe *p, uint64_t count)
{
    struct thread_work w[8];
    uint64_t sum = 0;
    pthread_t t[8];

    for (int i = 0; i < 8; i++) {
        w[i] = (struct thread_work){p, count, 0};
        CHECK(pthread_create(&t[i], NULL, i % 2 ? recv_in_thread : send_in_thread, &w[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        sum += w[i].sum;
    }
    CHECK(sum == 4 * (count * (count - 1) / 2));
}

static int use_threads(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);

    run_threads(p, o->count);
    fiber_pipe_close(p);
    return 0;
}

static void test_eight_threads_on_each_end(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {.count = 1000};
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, use_threads, &o);
    run_threads(ends[0], o.count);
    join(p);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent_comes_back),
        cmocka_unit_test(test_a_stream_stays_in_order_in_both_directions),
        cmocka_unit_test(test_a_oneway_pipe_goes_one_way),
        cmocka_unit_test(test_what_was_sent_before_the_other_end_connects_is_there),
        cmocka_unit_test(test_poll_tells_of_messages_and_of_the_end),
        cmocka_unit_test(test_a_slow_reader_stops_the_writer),
        cmocka_unit_test(test_a_slow_reader_elsewhere_stops_the_owner),
        cmocka_unit_test(test_a_thousand_pipes),
        cmocka_unit_test(test_eight_threads_on_each_end),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
