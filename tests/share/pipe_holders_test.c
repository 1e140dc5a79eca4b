/* pipe_holders_test.c - fiber_pipe: ends that several processes hold, and ends of processes that never
 * come to life.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pipe_util.h"

static struct fiber_process *start_with(fiber_process_fn fn, const struct order *o,
                                        struct fiber_pipe *end)
{
    struct fiber_process_options options = {
        .size = sizeof(options), .pipes = &end, .npipes = end ? 1 : 0};
    struct fiber_process *p;

    must(fiber_process_start(&p, fn, o, sizeof(*o), &options));
    return p;
}

/* ---- Several holders ---- */

/* Sends `count` numbers from `size` on when it is told to, and ends without a close. */
static int send_some(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *go = connect_queue(&o->report);
    int rc;

    CHECK(get_number(go, LONG_MS, &rc) == 1);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(send_number(p, o->size + i) == 0);
    return 0;
}

static void test_an_end_lives_until_its_last_writer_has_gone(void **state)
{
    struct order o = {.count = 100};
    struct fiber_queue *go = open_queue(0, &o.report);
    struct fiber_process *p[3];
    struct fiber_pipe *ends[2];
    bool seen[300] = {false};

    open_pipe(ends, FIBER_PIPE_ONEWAY);
    o.end = address_of(ends[1]);
    for (uint64_t i = 0; i < 3; i++) {
        o.size = i * o.count;
        p[i] = start_with(send_some, &o, ends[1]);
    }
    fiber_pipe_close(ends[1]);
    for (int i = 0; i < 3; i++) { /* one after the other: each one's end is not that of the pipe */
        must(put_number(go, 1));
        for (uint64_t n = 0; n < o.count; n++) {
            int rc;
            uint64_t k = recv_number(ends[0], &rc);

            assert_true(k < 300 && !seen[k]);
            seen[k] = true;
        }
    }
    expect_end(ends[0]);
    for (int i = 0; i < 3; i++)
        join(p[i]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
}

static int sit_there(const void *arg, size_t len)
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

static void test_the_death_of_one_holder_leaves_the_others_at_work(void **state)
{
    struct order o = {.count = 10};
    struct fiber_queue *go = open_queue(0, &o.report);
    struct fiber_process *victim, *other;
    struct fiber_pipe *ends[2];

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    victim = start_with(sit_there, &o, ends[1]);
    expect_recv(ends[0], 7);
    other = start_with(send_some, &o, ends[1]);
    fiber_pipe_close(ends[1]);
    kill_and_join(victim);
    must(put_number(go, 1));
    for (uint64_t i = 0; i < o.count; i++)
        expect_recv(ends[0], i);
    join(other);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
}

/* Receives until the end, and reports how many there were and their sum. */
static int receive_all(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);
    uint64_t n, sum = 0;
    int rc;

    while ((n = recv_number(p, &rc)), rc == 0)
        sum += n;
    CHECK(rc == -EPIPE);
    CHECK(put_number(report, sum) == 0);
    return 0;
}

static void test_several_receivers_share_what_comes(void **state)
{
    struct order o = {.count = 3000};
    struct fiber_queue *report = open_queue(0, &o.report);
    struct fiber_process *p[3];
    struct fiber_pipe *ends[2];
    uint64_t sum = 0;
    int rc;

    open_pipe(ends, FIBER_PIPE_ONEWAY);
    o.end = address_of(ends[0]);
    for (int i = 0; i < 3; i++)
        p[i] = start_with(receive_all, &o, ends[0]);
    fiber_pipe_close(ends[0]);
    for (uint64_t i = 1; i <= o.count; i++)
        must(send_number(ends[1], i));
    fiber_pipe_close(ends[1]);
    for (int i = 0; i < 3; i++)
        sum += get_number(report, LONG_MS, &rc);
    assert_int_equal(sum, o.count * (o.count + 1) / 2);
    for (int i = 0; i < 3; i++)
        join(p[i]);
    fiber_queue_close(report);
}

/* ---- Processes that are given an end ---- */

static int return_at_once(const void *arg, size_t len)
{
    return 3;
}

static void test_a_process_that_never_connects_ends_its_end(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    p = start_with(return_at_once, &o, ends[1]);
    fiber_pipe_close(ends[1]);
    expect_end(ends[0]);
    assert_int_equal(fiber_process_join(p, LONG_MS), 0);
    fiber_process_close(p);
    fiber_pipe_close(ends[0]);
}

static void test_a_process_that_cannot_start_ends_its_end(void **state)
{
    static const char *const none[] = {"/nonexistent/program", NULL};
    struct fiber_process_options options = {.size = sizeof(options), .job = {.command = none}};
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    options.pipes = &ends[1];
    options.npipes = 1;
    must(fiber_process_start(&p, return_at_once, &o, sizeof(o), &options));
    fiber_pipe_close(ends[1]);
    expect_end(ends[0]);
    assert_int_equal(fiber_process_join(p, LONG_MS), 0);
    fiber_process_close(p);
    fiber_pipe_close(ends[0]);
}

/* Closes what it was given, says so, and lives on until it is told to end. */
static int close_and_stay(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *stay = connect_queue(&o->report);
    int rc;

    fiber_pipe_close(p);
    CHECK(get_number(stay, LONG_MS, &rc) == 1);
    return 0;
}

static void test_a_close_in_the_child_ends_the_end_before_the_child(void **state)
{
    struct order o = {0};
    struct fiber_queue *stay = open_queue(0, &o.report);
    struct fiber_process *p;
    struct fiber_pipe *ends[2];

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    p = start_with(close_and_stay, &o, ends[1]);
    fiber_pipe_close(ends[1]);
    expect_end(ends[0]);
    assert_int_equal(fiber_process_is_alive(p), 1);
    must(put_number(stay, 1));
    join(p);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(stay);
}

/* Gives its end to a child of its own, which never connects (count 0) or sends, and lets go. */
static int give_to_child(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_process_options options = {.size = sizeof(options), .pipes = &p, .npipes = 1};
    struct fiber_queue *stay = connect_queue(&o->other);
    struct fiber_process *child;
    struct fiber_address a;
    int rc;

    CHECK(fiber_pipe_address(p, &a) == 0); /* the same one */
    CHECK(fiber_process_start(&child, o->count ? send_some : return_at_once, o, sizeof(*o),
                              &options) == 0);
    fiber_pipe_close(p);
    CHECK(fiber_process_join(child, LONG_MS) == 0);
    CHECK(get_number(stay, LONG_MS, &rc) == 1);
    return 0;
}

static void run_grandchild(uint64_t count)
{
    struct order o = {.count = count};
    struct fiber_queue *go = open_queue(0, &o.report), *stay = open_queue(0, &o.other);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    p = start_with(give_to_child, &o, ends[1]);
    fiber_pipe_close(ends[1]);
    must(put_number(go, 1));
    for (uint64_t i = 0; i < count; i++)
        expect_recv(ends[0], i);
    expect_end(ends[0]); /* the child lives still */
    must(put_number(stay, 1));
    join(p);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
    fiber_queue_close(stay);
}

static void test_a_grandchild_holds_the_end_that_it_was_given(void **state)
{
    run_grandchild(5);
    run_grandchild(0);
}

/* Passes on the address of its end, closes the end, and waits to be killed. */
static int pass_on_and_close(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *stay = connect_queue(&o->other);
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_address a;
    int rc;

    CHECK(fiber_pipe_address(p, &a) == 0);
    fiber_pipe_close(p);
    CHECK(fiber_queue_put(report, &a, sizeof(a), -1) == 0 && fiber_queue_flush(report, -1) == 0);
    get_number(stay, LONG_MS, &rc);
    return 0;
}

/* Each process gets the end from one that has closed it; the last one of them is killed. */
static void test_an_end_that_was_passed_on_stays_open(void **state)
{
    struct order o = {0};
    struct fiber_queue *report = open_queue(0, &o.report), *stay = open_queue(0, &o.other);
    struct fiber_pipe *ends[2];
    struct fiber_process *p[3];

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    for (int i = 0; i < 3; i++) {
        struct fiber_bytes b;

        p[i] = start(pass_on_and_close, &o, sizeof(o));
        if (i == 0)
            fiber_pipe_close(ends[1]);
        must(fiber_queue_get(report, &b, LONG_MS));
        memcpy(&o.end, b.data, sizeof(o.end));
        fiber_bytes_free(&b);
        assert_int_equal(fiber_pipe_poll(ends[0], 0), 0);
    }
    kill_and_join(p[2]);
    expect_end(ends[0]);
    kill_and_join(p[0]);
    kill_and_join(p[1]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(report);
    fiber_queue_close(stay);
}

static void test_options_that_name_no_ends(void **state)
{
    struct fiber_process_options options = {.size = sizeof(options), .npipes = 1};
    struct fiber_process *p;

    assert_int_equal(fiber_process_start(&p, return_at_once, NULL, 0, &options), -EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_end_lives_until_its_last_writer_has_gone),
        cmocka_unit_test(test_the_death_of_one_holder_leaves_the_others_at_work),
        cmocka_unit_test(test_several_receivers_share_what_comes),
        cmocka_unit_test(test_a_process_that_never_connects_ends_its_end),
        cmocka_unit_test(test_a_process_that_cannot_start_ends_its_end),
        cmocka_unit_test(test_a_close_in_the_child_ends_the_end_before_the_child),
        cmocka_unit_test(test_a_grandchild_holds_the_end_that_it_was_given),
        cmocka_unit_test(test_an_end_that_was_passed_on_stays_open),
        cmocka_unit_test(test_options_that_name_no_ends),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
