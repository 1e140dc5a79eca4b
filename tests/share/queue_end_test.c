/* queue_end_test.c - fiber_queue: how it ends, and what the deaths of its users cost.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "queue_util.h"

/* ---- Size, shut, close ---- */

static int look_at_size(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    size_t n;

    CHECK(fiber_queue_size(q, &n) == 0 && n == 3);
    CHECK(put_number(q, 3) == 0);
    CHECK(fiber_queue_size(q, &n) == 0 && n == 4);
    CHECK(fiber_queue_shut(q) == 0);
    CHECK(put_number(q, 4) == -EPIPE);
    for (uint64_t i = 0; i < 4; i++) {
        int rc;

        CHECK(get_number(q, LONG_MS, &rc) == i);
    }
    CHECK(put_number(q, 5) == -EPIPE);
    return 0;
}

static void test_size_and_shut_from_another_process(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    struct fiber_bytes b;
    size_t n;

    for (uint64_t i = 0; i < 3; i++)
        must(put_number(q, i));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 3);
    join(start(look_at_size, &o, sizeof(o)));
    assert_int_equal(fiber_queue_get(q, &b, LONG_MS), -EPIPE); /* shut and drained */
    assert_int_equal(put_number(q, 6), -EPIPE);
    fiber_queue_close(q);
}

static int drain(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    uint64_t n = 0;
    int rc;

    CHECK(put_number(report, 0) == 0); /* here */
    while (get_number(q, LONG_MS, &rc) != UINT64_MAX)
        n++;
    CHECK(rc == -EPIPE);
    CHECK(put_number(report, n) == 0);
    return 0;
}

static void test_shut_ends_the_gets_of_all_once_it_is_drained(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[3];
    uint64_t sum = 0;
    int rc;

    for (int i = 0; i < 3; i++)
        c[i] = start(drain, &o, sizeof(o));
    for (int i = 0; i < 3; i++)
        expect_number(report, 0);
    for (uint64_t i = 0; i < 100; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (int i = 0; i < 3; i++)
        sum += get_number(report, LONG_MS, &rc);
    assert_int_equal(sum, 100);
    for (int i = 0; i < 3; i++)
        join(c[i]);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_close_of_the_owner_ends_the_gets_of_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c = start(drain, &o, sizeof(o));

    expect_number(report, 0);
    fiber_queue_close(q);
    expect_number(report, 0);
    join(c);
    fiber_queue_close(report);
}

static int put_and_return(const void *arg, size_t len)
{
    const struct order *o = arg;

    CHECK(put_number(connect_queue(&o->queue), o->id) == 0);
    return 0;
}

static int put_and_exit(const void *arg, size_t len)
{
    const struct order *o = arg;

    CHECK(put_number(connect_queue(&o->queue), o->id) == 0);
    exit(0);
}

static void test_what_was_put_just_before_the_end_arrives(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    uint64_t sum = 0;
    int rc;

    for (o.id = 1; o.id <= 16; o.id++)
        join(start(o.id % 2 ? put_and_return : put_and_exit, &o, sizeof(o)));
    for (int i = 0; i < 16; i++)
        sum += get_number(q, 0, &rc);
    assert_int_equal(sum, 136);
    fiber_queue_close(q);
}

/* Gets `count` messages and returns without a word. */
static int get_and_return(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    int rc;

    for (uint64_t i = 0; i < o->count; i++)
        CHECK(get_number(q, LONG_MS, &rc) == o->id + i);
    return 0;
}

static void test_what_was_got_just_before_the_end_does_not_come_back(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);

    for (uint64_t i = 0; i < 2000; i++)
        must(put_number(q, i));
    o.count = 300;
    for (o.id = 0; o.id < 1800; o.id += o.count)
        join(start(get_and_return, &o, sizeof(o)));
    for (uint64_t i = 1800; i < 2000; i++)
        expect_number(q, i);
    fiber_queue_close(q);
}

/* ---- Deaths ---- */

/* Owns three queues, tells their addresses, and waits for its end. */
static int own(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *full, *empty;
    struct fiber_address a[3];
    struct fiber_bytes b;

    full = open_queue(1, &a[0]);
    empty = open_queue(0, &a[1]);
    open_queue(0, &a[2]);
    CHECK(put_number(full, 1) == 0);
    CHECK(fiber_queue_put(report, a, sizeof(a), -1) == 0);
    CHECK(fiber_queue_flush(report, -1) == 0);
    if (o->count) { /* ends by itself when it is told to */
        struct fiber_queue *stop;
        struct fiber_address s;

        stop = open_queue(0, &s);
        CHECK(fiber_queue_put(report, &s, sizeof(s), -1) == 0);
        CHECK(fiber_queue_get(stop, &b, LONG_MS) == 0);
        return 0;
    }
    fiber_queue_get(empty, &b, -1);
    return 1;
}

struct places {
    struct fiber_address queue[3], report;
};

static int block_in_get(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *empty = connect_queue(&a->queue[1]), *report = connect_queue(&a->report);
    struct fiber_bytes b;

    CHECK(put_number(report, 1) == 0);
    CHECK(fiber_queue_get(empty, &b, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_get(empty, &b, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_put(empty, "x", 1, LONG_MS) == -EPIPE);
    return 0;
}

static int block_in_put(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *full = connect_queue(&a->queue[0]), *report = connect_queue(&a->report);

    CHECK(put_number(report, 1) == 0);
    CHECK(fiber_queue_put(full, "x", 1, LONG_MS) == -EPIPE);
    CHECK(fiber_queue_put(full, "x", 1, LONG_MS) == -EPIPE);
    fiber_queue_close(full);
    return 0;
}

/* Writes as fast as it can, so that it is met in the middle of sending. */
static int flood(const void *arg, size_t len)
{
    const struct places *a = arg;
    struct fiber_queue *q = connect_queue(&a->queue[2]), *report = connect_queue(&a->report);
    char *data = calloc(1, 1 << 20);
    int rc;

    CHECK(data && put_number(report, 1) == 0);
    while ((rc = fiber_queue_put(q, data, 1 << 20, LONG_MS)) == 0)
        continue;
    CHECK(rc == -EPIPE);
    free(data);
    return 0;
}

static void run_death_of_owner(uint64_t by_itself)
{
    struct fiber_queue *report = plain_queue(0), *stop = NULL;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner, *c[3];
    struct places a;
    struct fiber_bytes b;

    o.count = by_itself;
    owner = start(own, &o, sizeof(o));
    must(fiber_queue_get(report, &b, LONG_MS));
    memcpy(a.queue, b.data, sizeof(a.queue));
    fiber_bytes_free(&b);
    a.report = o.report;
    if (by_itself) {
        must(fiber_queue_get(report, &b, LONG_MS));
        must(fiber_queue_connect(&stop, b.data));
        fiber_bytes_free(&b);
    }
    c[0] = start(block_in_get, &a, sizeof(a));
    c[1] = start(block_in_put, &a, sizeof(a));
    c[2] = start(flood, &a, sizeof(a));
    for (int i = 0; i < 3; i++)
        expect_number(report, 1);
    if (by_itself) {
        must(put_number(stop, 1));
        join(owner);
    } else {
        kill_and_join(owner);
    }
    for (int i = 0; i < 3; i++)
        join(c[i]);
    fiber_queue_close(stop);
    fiber_queue_close(report);
}

static void test_killed_owner_ends_gets_and_puts_of_others(void **state)
{
    run_death_of_owner(0);
}

static void test_owner_that_returns_ends_gets_and_puts_of_others(void **state)
{
    run_death_of_owner(1);
}

static void test_messages_that_a_killed_receiver_had_not_taken_go_to_others(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);

    for (uint64_t i = 0; i < 3000; i++)
        must(put_number(q, i));
    o.count = 500;
    for (o.id = 0; o.id < 1500; o.id += o.count) {
        struct fiber_process *c = start(take_some, &o, sizeof(o));

        expect_number(report, o.count);
        kill_and_join(c);
    }
    for (uint64_t i = 1500; i < 3000; i++)
        expect_number(q, i);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* Reports each message once it has it, and sees to it that the report arrives. */
static int report_each(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    int rc;

    for (;;) {
        uint64_t m = get_number(q, LONG_MS, &rc);

        if (rc == -EPIPE)
            return 0;
        CHECK(rc == 0 && put_number(report, o->id << 32 | m) == 0 &&
              fiber_queue_flush(report, -1) == 0);
    }
}

struct reports {
    enum { messages = 3000 / SLOWNESS, receivers = 3, kills = 12 / SLOWNESS } sizes;
    struct {
        uint32_t message, receiver;
    } list[2 * messages];
    uint32_t n;
    bool killed[receivers + kills];
};

static bool next_report(struct fiber_queue *q, struct reports *r, int timeout_ms)
{
    int rc;
    uint64_t word = get_number(q, timeout_ms, &rc);

    if (rc < 0)
        return false;
    assert_true(r->n < 2 * messages);
    r->list[r->n].message = (uint32_t)word;
    r->list[r->n].receiver = (uint32_t)(word >> 32);
    assert_true(r->list[r->n].message < messages);
    assert_true(r->list[r->n].receiver < receivers + kills);
    r->n++;
    return true;
}

/* A message can be lost only with a receiver that had it in its hands. One comes twice only if its
 * first receiver was killed and could not say any more that it had taken it, and what it had not
 * said is the last that it took: so, from the end, the first one that did not come again shows what
 * it had said. */
static void check_reports(const struct reports *r)
{
    bool seen[messages] = {false}, said[receivers + kills] = {false};
    int lost = 0;

    for (uint32_t i = r->n; i-- > 0;) {
        uint32_t m = r->list[i].message, who = r->list[i].receiver;

        if (!seen[m])
            said[who] = true;
        else
            assert_true(r->killed[who] && !said[who]);
        seen[m] = true;
    }
    for (int i = 0; i < messages; i++)
        lost += !seen[i];
    assert_in_range(lost, 0, kills);
}

static void test_kills_of_receivers_cost_at_most_what_they_had_in_their_hands(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *c[receivers];
    struct reports *r = calloc(1, sizeof(*r));
    uint64_t random = 20240607, next = 100, id[receivers];
    int killed = 0;

    assert_non_null(r);
    for (uint64_t i = 0; i < messages; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (o.id = 0; o.id < receivers; o.id++) {
        id[o.id] = o.id;
        c[o.id] = start(report_each, &o, sizeof(o));
    }
    while (r->n < messages - 2 * kills) {
        uint64_t victim = next_random(&random) % receivers;

        assert_true(next_report(report, r, LONG_MS));
        if (r->n <= next || killed == kills)
            continue;
        next += 50 + next_random(&random) % 200;
        killed++;
        r->killed[id[victim]] = true;
        kill_and_join(c[victim]);
        id[victim] = o.id;
        c[victim] = start(report_each, &o, sizeof(o));
        o.id++;
    }
    assert_int_equal(killed, kills);
    for (int i = 0; i < receivers; i++)
        join(c[i]);
    while (next_report(report, r, 0))
        continue;
    check_reports(r);
    free(r);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_the_put_of_a_killed_sender_is_whole_or_nothing(void **state)
{
    struct fiber_queue *q = plain_queue(2);
    struct order o = order_for(q, NULL);
    size_t n;
    int rc;

    o.count = 1000;
    for (o.id = 0; o.id < 4; o.id++) {
        struct fiber_process *p = start(produce, &o, sizeof(o));

        for (uint64_t i = 0; i < 50; i++)
            expect_number(q, o.id << 32 | i);
        kill_and_join(p);
        for (uint64_t i = 50; get_number(q, 50, &rc) != UINT64_MAX; i++)
            assert_true(i < 60);
    }
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 0);
    fiber_queue_close(q);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_and_shut_from_another_process),
        cmocka_unit_test(test_shut_ends_the_gets_of_all_once_it_is_drained),
        cmocka_unit_test(test_close_of_the_owner_ends_the_gets_of_others),
        cmocka_unit_test(test_what_was_put_just_before_the_end_arrives),
        cmocka_unit_test(test_what_was_got_just_before_the_end_does_not_come_back),
        cmocka_unit_test(test_killed_owner_ends_gets_and_puts_of_others),
        cmocka_unit_test(test_owner_that_returns_ends_gets_and_puts_of_others),
        cmocka_unit_test(test_messages_that_a_killed_receiver_had_not_taken_go_to_others),
        cmocka_unit_test(test_kills_of_receivers_cost_at_most_what_they_had_in_their_hands),
        cmocka_unit_test(test_the_put_of_a_killed_sender_is_whole_or_nothing),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
