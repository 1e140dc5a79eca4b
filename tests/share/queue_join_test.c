/* queue_join_test.c - fiber_queue_done(), _join() and _deal() across processes, and what deaths do
 * to them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "queue_util.h"

#define CHILDREN 3

/* Takes `count` messages, finishes each, and goes on to wait until it is killed. */
static int work(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report), *never;
    struct fiber_bytes b;
    int rc;

    CHECK(fiber_queue_open(&never, 0) == 0);
    for (uint64_t i = 0; i < o->count; i++) {
        CHECK(get_number(q, LONG_MS, &rc) != UINT64_MAX);
        CHECK(fiber_queue_done(q) == 0);
    }
    CHECK(put_number(report, o->id) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}

static void test_join_waits_for_what_all_processes_finish(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[CHILDREN];

    must(fiber_queue_join(q, 0)); /* nothing was put */
    for (uint64_t i = 0; i < 100 * CHILDREN; i++)
        must(put_number(q, i));
    assert_int_equal(fiber_queue_join(q, 10), -ETIMEDOUT);
    assert_int_equal(fiber_queue_join(q, 0), -ETIMEDOUT);
    o.count = 100;
    for (o.id = 0; o.id < CHILDREN; o.id++)
        c[o.id] = start(work, &o, sizeof(o));
    must(fiber_queue_join(q, LONG_MS));
    assert_int_equal(fiber_queue_done(q), -ERANGE);
    for (int i = 0; i < CHILDREN; i++)
        kill_and_join(c[i]);
    must(fiber_queue_join(q, 0));
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* Puts, lets the owner finish, and joins; a thread of this process joins as well. */
static void *join_too(void *arg)
{
    CHECK(fiber_queue_join(arg, LONG_MS) == 0);
    return NULL;
}

static int put_and_join(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    pthread_t thread;

    CHECK(fiber_queue_join(q, 0) == 0 && fiber_queue_done(q) == -ERANGE);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(put_number(q, i) == 0);
    CHECK(fiber_queue_join(q, 0) == -ETIMEDOUT); /* what was put before counts */
    CHECK(fiber_queue_join(q, 1) == -ETIMEDOUT);
    CHECK(pthread_create(&thread, NULL, join_too, q) == 0);
    CHECK(put_number(report, 1) == 0);
    CHECK(fiber_queue_join(q, LONG_MS) == 0);
    pthread_join(thread, NULL);
    CHECK(fiber_queue_done(q) == -ERANGE);
    return 0;
}

static void test_join_in_another_process_than_the_owner(void **state)
{
    struct fiber_queue *q = plain_queue(4), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c;
    int rc;

    o.count = 4;
    c = start(put_and_join, &o, sizeof(o));
    expect_number(report, 1);
    for (uint64_t i = 0; i < o.count; i++) {
        assert_int_equal(get_number(q, LONG_MS, &rc), i);
        must(fiber_queue_done(q));
    }
    join(c);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

#define HANGS_MS 60000 /* a get that waits so long has missed its message */

struct threads {
    struct fiber_queue *q;
    atomic_int joiner, getter;
};

static void *join_beside(void *arg)
{
    struct threads *t = arg;

    atomic_store(&t->joiner, gettid());
    CHECK(fiber_queue_join(t->q, LONG_MS) == 0);
    return NULL;
}

static void *put_when_it_sleeps(void *arg)
{
    struct threads *t = arg;

    while (!sleeps(atomic_load(&t->getter)))
        sched_yield();
    CHECK(put_number(t->q, 1) == 0);
    return NULL;
}

/* One thread waits for the end of all messages, and then another one for the next message. */
static int join_and_get(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct threads t = {.q = connect_queue(&o->queue)};
    pthread_t joiner, putter;
    uint64_t began;
    int rc;

    CHECK(get_number(t.q, LONG_MS, &rc) == 0);
    CHECK(pthread_create(&joiner, NULL, join_beside, &t) == 0);
    while (!atomic_load(&t.joiner) || !sleeps(atomic_load(&t.joiner)))
        sched_yield();
    atomic_store(&t.getter, gettid());
    CHECK(pthread_create(&putter, NULL, put_when_it_sleeps, &t) == 0);
    began = now_ms();
    CHECK(get_number(t.q, HANGS_MS, &rc) == 1);
    CHECK(now_ms() - began < HANGS_MS);
    CHECK(fiber_queue_done(t.q) == 0 && fiber_queue_done(t.q) == 0);
    CHECK(pthread_join(joiner, NULL) == 0 && pthread_join(putter, NULL) == 0);
    return 0;
}

static void test_a_message_wakes_a_get_though_another_thread_joins(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);

    must(put_number(q, 0));
    join(start(join_and_get, &o, sizeof(o)));
    fiber_queue_close(q);
}

/* ---- Deaths ---- */

static void test_join_tells_of_a_receiver_that_died_before_done(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c;
    int rc;

    o.count = 2;
    for (uint64_t i = 0; i < 3; i++)
        must(put_number(q, i));
    c = start(take_some, &o, sizeof(o));
    expect_number(report, 2);
    assert_int_equal(fiber_queue_join(q, 0), -ETIMEDOUT);
    kill_and_join(c);
    assert_int_equal(get_number(q, LONG_MS, &rc), 2); /* nobody had taken it */
    must(fiber_queue_done(q));
    assert_int_equal(fiber_queue_join(q, LONG_MS), -EOWNERDEAD);
    assert_non_null(strstr(fiber_last_error(), "ended before they reported"));
    must(fiber_queue_done(q));
    must(fiber_queue_done(q));
    must(fiber_queue_join(q, 0));
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static int join_until_dead(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);

    CHECK(fiber_queue_join(q, 0) == -ETIMEDOUT);
    CHECK(put_number(report, 7) == 0);
    CHECK(fiber_queue_join(q, LONG_MS) == -EOWNERDEAD);
    return 0;
}

static void test_a_join_elsewhere_hears_of_the_death(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *taker, *joiner;

    o.count = 1;
    must(put_number(q, 0));
    taker = start(take_some, &o, sizeof(o));
    expect_number(report, 1);
    joiner = start(join_until_dead, &o, sizeof(o));
    expect_number(report, 7);
    kill_and_join(taker);
    join(joiner);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static int join_a_queue_that_ends(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);

    CHECK(fiber_queue_join(q, 0) == -ETIMEDOUT);
    CHECK(put_number(report, 7) == 0);
    CHECK(fiber_queue_join(q, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_done(q) == -EPIPE);
    CHECK(fiber_queue_deal(q) == -EPIPE);
    return 0;
}

static void test_the_end_of_the_owner_ends_a_join(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *joiner;

    must(put_number(q, 0));
    joiner = start(join_a_queue_that_ends, &o, sizeof(o));
    expect_number(report, 7);
    fiber_queue_close(q);
    join(joiner);
    fiber_queue_close(report);
}

/* ---- Equal shares ---- */

static int count_share(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t n = 0;
    int rc;

    CHECK(get_number(q, 0, &rc) == UINT64_MAX && rc == -ETIMEDOUT); /* from now on a receiver */
    CHECK(put_number(report, 0) == 0);
    while (get_number(q, LONG_MS, &rc) != UINT64_MAX)
        n++;
    CHECK(rc == -EPIPE);
    CHECK(put_number(report, n) == 0);
    return 0;
}

static void test_a_queue_that_deals_gives_equal_shares(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[CHILDREN];

    must(fiber_queue_deal(q));
    for (int i = 0; i < CHILDREN; i++)
        c[i] = start(count_share, &o, sizeof(o));
    for (int i = 0; i < CHILDREN; i++)
        expect_number(report, 0);
    for (uint64_t i = 0; i < 100 * CHILDREN; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (int i = 0; i < CHILDREN; i++)
        expect_number(report, 100);
    for (int i = 0; i < CHILDREN; i++)
        join(c[i]);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static int wait_for_share(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report), *never;
    struct fiber_bytes b;
    int rc;

    CHECK(fiber_queue_open(&never, 0) == 0);
    CHECK(get_number(q, 0, &rc) == UINT64_MAX && rc == -ETIMEDOUT);
    CHECK(put_number(report, 0) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(never, &b, -1);
    return 0;
}

static void test_the_share_of_a_dead_receiver_is_lost_to_nobody(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c;
    int rc;

    must(fiber_queue_deal(q));
    assert_int_equal(get_number(q, 0, &rc), UINT64_MAX);
    c = start(wait_for_share, &o, sizeof(o));
    expect_number(report, 0);
    for (uint64_t i = 0; i < 10; i++)
        must(put_number(q, i));
    for (uint64_t i = 0; i < 10; i += 2)
        assert_int_equal(get_number(q, LONG_MS, &rc), i);
    assert_int_equal(get_number(q, 0, &rc), UINT64_MAX);
    kill_and_join(c);
    for (uint64_t i = 1; i < 10; i += 2)
        assert_int_equal(get_number(q, LONG_MS, &rc), i);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static int deal_and_share(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);

    CHECK(fiber_queue_deal(q) == 0);
    return count_share(arg, len);
}

static void test_any_process_may_have_a_queue_deal(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c;
    int rc;

    c = start(deal_and_share, &o, sizeof(o));
    expect_number(report, 0);
    assert_int_equal(get_number(q, 0, &rc), UINT64_MAX);
    for (uint64_t i = 0; i < 10; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (uint64_t i = 1; i < 10; i += 2)
        assert_int_equal(get_number(q, LONG_MS, &rc), i);
    expect_number(report, 5);
    join(c);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_waits_for_what_all_processes_finish),
        cmocka_unit_test(test_join_in_another_process_than_the_owner),
        cmocka_unit_test(test_a_message_wakes_a_get_though_another_thread_joins),
        cmocka_unit_test(test_join_tells_of_a_receiver_that_died_before_done),
        cmocka_unit_test(test_a_join_elsewhere_hears_of_the_death),
        cmocka_unit_test(test_the_end_of_the_owner_ends_a_join),
        cmocka_unit_test(test_a_queue_that_deals_gives_equal_shares),
        cmocka_unit_test(test_the_share_of_a_dead_receiver_is_lost_to_nobody),
        cmocka_unit_test(test_any_process_may_have_a_queue_deal),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
