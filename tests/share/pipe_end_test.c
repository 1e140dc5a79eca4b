/* pipe_end_test.c - fiber_pipe: ends that move, close and die.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pipe_util.h"

/* ---- Ends ---- */

static int send_and_close(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    char *data = calloc(1, o->size + 8);

    CHECK(data);
    for (uint64_t i = 0; i < o->count; i++) {
        memcpy(data, &i, sizeof(i));
        CHECK(fiber_pipe_send(p, data, o->size, LONG_MS) == 0);
    }
    fiber_pipe_close(p);
    free(data);
    return 0;
}

static int send_and_return(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    char *data = calloc(1, o->size + 8);

    CHECK(data);
    for (uint64_t i = 0; i < o->count; i++) {
        memcpy(data, &i, sizeof(i));
        CHECK(fiber_pipe_send(p, data, o->size, LONG_MS) == 0);
    }
    free(data);
    return 0;
}

static void run_in_flight(fiber_process_fn fn, uint64_t count, uint64_t size)
{
    struct fiber_pipe *ends[2];
    struct order o = {.count = count, .size = size};
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, fn, &o);
    join(p); /* nobody has read anything */
    for (uint64_t i = 0; i < count; i++) {
        struct fiber_bytes b;
        uint64_t n;

        must(fiber_pipe_recv(ends[0], &b, LONG_MS));
        assert_int_equal(b.len, size);
        memcpy(&n, b.data, sizeof(n));
        assert_int_equal(n, i);
        fiber_bytes_free(&b);
    }
    expect_end(ends[0]);
    assert_int_equal(send_number(ends[0], 1), -EPIPE);
    fiber_pipe_close(ends[0]);
}

static void test_what_was_sent_before_close_is_read_before_the_end(void **state)
{
    run_in_flight(send_and_close, 1, 8);
    run_in_flight(send_and_close, 1000, 8);
    run_in_flight(send_and_close, 170, 65536);
}

static void test_what_was_sent_before_return_is_read_before_the_end(void **state)
{
    run_in_flight(send_and_return, 1, 8);
    run_in_flight(send_and_return, 1000, 8);
    run_in_flight(send_and_return, 170, 65536);
}

/* Says that it is there, and waits for its end. */
static int sit(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *never;
    struct fiber_bytes b;

    CHECK(fiber_queue_open(&never, 0) == 0);
    CHECK(send_number(p, 7) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}

static void test_the_death_of_the_other_end_is_the_end_of_file(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, sit, &o);
    expect_recv(ends[0], 7);
    kill_and_join(p);
    expect_end(ends[0]);
    assert_int_equal(send_number(ends[0], 1), -EPIPE);
    fiber_pipe_close(ends[0]);
}

static void test_the_owners_first_handle_keeps_an_end_that_was_given_away(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    o.size = 8;
    o.count = 1;
    for (int i = 0; i < 2; i++) { /* one after the other */
        join(start(send_and_close, &o, sizeof(o)));
        expect_recv(ends[0], 0);
    }
    must(send_number(ends[1], 5));
    expect_recv(ends[0], 5);
    assert_int_equal(fiber_pipe_poll(ends[0], 0), 0);
    fiber_pipe_close(ends[1]);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
}

/* ---- Both ends elsewhere ---- */

/* Sends numbers, expects them back. */
static int talk(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    int rc;

    for (uint64_t i = 0; i < o->count; i++) {
        CHECK(send_number(p, i) == 0);
        CHECK(recv_number(p, &rc) == i);
    }
    fiber_pipe_close(p);
    return 0;
}

static void run_two_children(bool close_first)
{
    struct fiber_process *p[2];
    struct fiber_pipe *ends[2];
    struct order o = {.count = 500};

    open_pipe(ends, 0);
    o.end = address_of(ends[0]);
    p[0] = start(talk, &o, sizeof(o));
    o.end = address_of(ends[1]);
    p[1] = start(echo, &o, sizeof(o));
    for (int i = 0; i < 2 && close_first; i++)
        fiber_pipe_close(ends[i]);
    join(p[0]);
    if (!close_first) { /* the owner holds both ends still, and the other child reads */
        must(send_number(ends[0], 3));
        expect_recv(ends[0], 3);
        fiber_pipe_close(ends[0]);
        expect_end(ends[1]);
        assert_int_equal(fiber_pipe_send(ends[1], "x", 1, LONG_MS), -EPIPE);
        fiber_pipe_close(ends[1]);
    }
    join(p[1]);
}

static void test_both_ends_in_two_children(void **state)
{
    run_two_children(true);
    run_two_children(false);
}

static int hold_both(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p[2] = {connect_end(&o->end), connect_end(&o->other)};
    int rc;

    for (uint64_t i = 0; i < o->count; i++) {
        CHECK(send_number(p[i % 2], i) == 0);
        CHECK(recv_number(p[!(i % 2)], &rc) == i);
    }
    CHECK(send_number(p[0], 1) == 0);
    fiber_pipe_close(p[0]);
    CHECK(recv_number(p[1], &rc) == 1);
    CHECK(recv_number(p[1], &rc) == UINT64_MAX && rc == -EPIPE);
    CHECK(send_number(p[1], 1) == 0 || true); /* it may not know yet */
    fiber_pipe_close(p[1]);
    return 0;
}

static void test_both_ends_in_one_process(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {.count = 200};

    open_pipe(ends, 0);
    o.end = address_of(ends[0]);
    o.other = address_of(ends[1]);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
    join(start(hold_both, &o, sizeof(o)));
    open_pipe(ends, 0);
    o.end = address_of(ends[0]);
    o.other = address_of(ends[1]);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
    hold_both(&o, sizeof(o)); /* the owner itself */
}

static void test_both_ends_unmoved(void **state)
{
    struct fiber_pipe *ends[2];

    open_pipe(ends, 0);
    for (uint64_t i = 0; i < 100; i++) {
        must(send_number(ends[i % 2], i));
        expect_recv(ends[!(i % 2)], i);
    }
    must(send_number(ends[0], 5));
    fiber_pipe_close(ends[0]);
    expect_recv(ends[1], 5);
    expect_end(ends[1]);
    fiber_pipe_close(ends[1]);
    fiber_pipe_close(NULL);
}

/* Has the end, reads a little, and passes it on to a child of its own before it lets go. */
static int pass_end_on(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    struct fiber_pipe *p = connect_end(&o.end);
    struct fiber_queue *told = connect_queue(&o.report), *notify = connect_queue(&o.other);
    struct fiber_process *child;
    int rc, code;

    for (uint64_t i = 0; i < 10; i++)
        CHECK(recv_number(p, &rc) == i && send_number(p, i) == 0);
    CHECK(fiber_process_start(&child, echo, &o, sizeof(o), NULL) == 0);
    CHECK(get_number(told, LONG_MS, &rc) == 1); /* the child answers already */
    fiber_pipe_close(p);
    CHECK(put_number(notify, 2) == 0);
    CHECK(fiber_process_join(child, LONG_MS) == 0 && fiber_process_exitcode(child, &code) == 0 &&
          code == 0);
    return 0;
}

static void test_an_end_moves_on_to_a_grandchild(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_queue *to_child = open_queue(0, &o.report), *from_child = open_queue(0, &o.other);
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, pass_end_on, &o);
    for (uint64_t i = 0; i < 10; i++) {
        must(send_number(ends[0], i));
        expect_recv(ends[0], i);
    }
    must(send_number(ends[0], 10)); /* may come to the child ahead of a recv that it does not do */
    expect_recv(ends[0], 10);
    must(put_number(to_child, 1));
    expect_number(from_child, 2);
    for (uint64_t i = 0; i < 100; i++) {
        must(send_number(ends[0], i));
        expect_recv(ends[0], i);
    }
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(to_child);
    fiber_queue_close(from_child);
}

/* ---- Deaths of the owner ---- */

/* Opens a pipe, gives away both ends, and waits for its end. */
static int own(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *never;
    struct fiber_pipe *ends[2];
    struct fiber_address a[2];
    struct fiber_bytes b;

    CHECK(fiber_queue_open(&never, 0) == 0 && fiber_pipe_open(ends, 0) == 0);
    CHECK(fiber_pipe_address(ends[0], &a[0]) == 0 && fiber_pipe_address(ends[1], &a[1]) == 0);
    CHECK(fiber_queue_put(report, a, sizeof(a), -1) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}

static int press_until_the_end(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);
    char *data = calloc(1, 65536);
    uint64_t n = 0;
    int rc;

    CHECK(data);
    while ((rc = fiber_pipe_send(p, data, 65536, LONG_MS)) == 0)
        if (++n == 64)
            CHECK(put_number(report, n) == 0);
    CHECK(rc == -EPIPE);
    free(data);
    return 0;
}

static void test_the_death_of_the_owner_ends_both_ends(void **state)
{
    struct fiber_address a;
    struct fiber_queue *report = open_queue(0, &a);
    struct order o = {.report = a};
    struct fiber_process *owner = start(own, &o, sizeof(o)), *p;
    struct fiber_pipe *mine;
    struct fiber_bytes b;
    struct fiber_address ends[2];

    must(fiber_queue_get(report, &b, LONG_MS));
    memcpy(ends, b.data, sizeof(ends));
    fiber_bytes_free(&b);
    must(fiber_pipe_connect(&mine, &ends[0]));
    o.end = ends[1];
    p = start(press_until_the_end, &o, sizeof(o));
    expect_number(report, 64);
    kill_and_join(owner);
    join(p);
    while (fiber_pipe_recv(mine, &b, LONG_MS) == 0)
        fiber_bytes_free(&b); /* what had come before */
    expect_end(mine);
    assert_int_equal(send_number(mine, 1), -EPIPE);
    fiber_pipe_close(mine);
    fiber_queue_close(report);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_sent_before_close_is_read_before_the_end),
        cmocka_unit_test(test_what_was_sent_before_return_is_read_before_the_end),
        cmocka_unit_test(test_the_death_of_the_other_end_is_the_end_of_file),
        cmocka_unit_test(test_the_owners_first_handle_keeps_an_end_that_was_given_away),
        cmocka_unit_test(test_both_ends_in_two_children),
        cmocka_unit_test(test_both_ends_in_one_process),
        cmocka_unit_test(test_both_ends_unmoved),
        cmocka_unit_test(test_an_end_moves_on_to_a_grandchild),
        cmocka_unit_test(test_the_death_of_the_owner_ends_both_ends),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
