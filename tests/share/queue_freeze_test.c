/* queue_freeze_test.c - fiber_queue: receivers that are stopped (SIGSTOP), and may go on later.
 *
 * The heartbeat of these processes is an hour, so that nobody is taken for dead because he is
 * silent, unless a test has him say otherwise: what arrives here, arrives while the frozen one
 * counts as alive.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/syscall.h>

#include "queue_util.h"
#include "tests/support/sync.h"

/* Waits until all of its threads have stopped. */
static void wait_for_stop(struct fiber_process *p)
{
    siginfo_t info;

    assert_int_equal(waitid(P_PID, (id_t)fiber_process_pid(p), &info, WSTOPPED | WNOWAIT), 0);
}

static void freeze(struct fiber_process *p)
{
    assert_int_equal(kill((pid_t)fiber_process_pid(p), SIGSTOP), 0);
    wait_for_stop(p);
}

static void go_on(struct fiber_process *p)
{
    assert_int_equal(kill((pid_t)fiber_process_pid(p), SIGCONT), 0);
}

/* Gets `count` messages, of which each is new. */
static void get_new(struct fiber_queue *q, uint8_t *seen, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        int rc;
        uint64_t m = get_number(q, LONG_MS, &rc);

        assert_int_equal(rc, 0);
        assert_int_equal(seen[m]++, 0);
    }
}

/* Passes some messages on. */
static int pass_some(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    size_t n;

    for (uint64_t i = 0; i < o->count; i++) {
        int rc;
        uint64_t m = get_number(q, LONG_MS, &rc);

        /* the owner answers when it knows that the message was taken */
        CHECK(rc == 0 && fiber_queue_size(q, &n) == 0 && put_number(report, m) == 0);
    }
    fiber_queue_close(q);
    fiber_queue_close(report);
    return 0;
}

enum { TAKEN = 500, PASSED = 100 };

/* A receiver that has taken the first TAKEN messages, has some of the next ones with it, and is
 * stopped. */
static struct fiber_process *freeze_one(struct fiber_queue *q)
{
    struct fiber_queue *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *p;

    o.count = TAKEN;
    p = start(take_some, &o, sizeof(o));
    expect_number(report, TAKEN);
    freeze(p);
    fiber_queue_close(report);
    return p;
}

static void put_numbers(struct fiber_queue *q, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        must(put_number(q, i));
}

/* Kills the frozen one, and gets all messages that nobody has had. */
static void expect_the_rest(struct fiber_process *frozen, struct fiber_queue *q, uint8_t *seen,
                            uint64_t n)
{
    int rc;

    kill_and_join(frozen);
    must(fiber_queue_shut(q));
    get_new(q, seen, n);
    get_number(q, LONG_MS, &rc);
    assert_int_equal(rc, -EPIPE);
    for (uint64_t i = 0; i < TAKEN; i++)
        assert_int_equal(seen[i], 0);
}

static void test_a_frozen_receiver_does_not_hold_up_the_owner(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct fiber_process *frozen;
    uint8_t seen[8000] = {0};
    uint64_t began;
    size_t n;

    put_numbers(q, COUNT(seen));
    frozen = freeze_one(q);
    must(fiber_queue_size(q, &n)); /* waits for it, as a get does */
    assert_true(n >= COUNT(seen) - TAKEN && n <= COUNT(seen));
    began = now_ms();
    must(fiber_queue_size(q, &n));
    assert_true(now_ms() - began < 4000); /* the first call took 5 s */
    get_new(q, seen, PASSED);
    expect_the_rest(frozen, q, seen, COUNT(seen) - TAKEN - PASSED);
    fiber_queue_close(q);
}

static void test_a_frozen_receiver_does_not_hold_up_another_one(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *frozen, *other;
    uint8_t seen[8000] = {0};

    put_numbers(q, COUNT(seen));
    frozen = freeze_one(q);
    o.count = PASSED;
    other = start(pass_some, &o, sizeof(o));
    get_new(report, seen, PASSED);
    join(other);
    expect_the_rest(frozen, q, seen, COUNT(seen) - TAKEN - PASSED);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_a_frozen_receiver_does_not_fill_a_bounded_queue(void **state)
{
    struct fiber_queue *q = plain_queue(4), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *frozen, *other, *producer;
    uint8_t seen[2000] = {0};

    o.count = COUNT(seen);
    producer = start(produce, &o, sizeof(o));
    frozen = freeze_one(q);
    o.count = COUNT(seen) - TAKEN - 4; /* all but what the frozen one may have */
    other = start(pass_some, &o, sizeof(o));
    get_new(report, seen, o.count);
    join(other);
    join(producer);
    expect_the_rest(frozen, q, seen, 4);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_a_message_for_a_receiver_that_freezes_in_get_waits_for_it_alone(void **state)
{
    struct fiber_queue *q = plain_queue(1), *reports[2] = {plain_queue(0), plain_queue(0)};
    struct order first = order_for(q, reports[0]), second = order_for(q, reports[1]);
    struct fiber_process *p[2];
    uint64_t a, b;
    int rc;

    first.count = 2;
    p[0] = start(pass_some, &first, sizeof(first));
    must(put_number(q, 0));
    expect_number(reports[0], 0);
    freeze(p[0]);
    must(put_number(q, 1));
    second.count = 1;
    p[1] = start(pass_some, &second, sizeof(second));
    must(put_number(q, 2)); /* though there is no room while 1 counts */
    b = get_number(reports[1], LONG_MS, &rc);
    go_on(p[0]);
    a = get_number(reports[0], LONG_MS, &rc);
    assert_true((a == 1 && b == 2) ||
                (a == 2 && b == 1)); /* the latter if it froze before its get */
    join(p[0]);
    join(p[1]);
    fiber_queue_close(q);
    fiber_queue_close(reports[0]);
    fiber_queue_close(reports[1]);
}

/* Not so fast that one who is well misses three where many want the processor. By TCP, because on
 * its own host an owner gives nobody up. */
static void beat_fast(void)
{
    CHECK(fiber_config_set("heartbeat", "1s") == 0 && fiber_config_set("transport", "tcp") == 0);
}

/* Owns a queue of numbers. Once its other user is given up, it gets what that one had not taken. */
static int own_and_get(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report, *q, *words;
    struct fiber_address a[2];
    uint8_t seen[3000] = {0};
    int rc;

    beat_fast();
    report = connect_queue(&o->report);
    q = open_queue(0, &a[0]);
    words = open_queue(0, &a[1]);
    for (uint64_t i = 0; i < COUNT(seen); i++)
        CHECK(put_number(q, i) == 0);
    CHECK(fiber_queue_put(report, a, sizeof(a), -1) == 0);
    CHECK(get_number(words, LONG_MS, &rc) == 1);
    for (uint64_t i = TAKEN; i < COUNT(seen); i++) {
        uint64_t m = get_number(q, LONG_MS, &rc);

        CHECK(rc == 0 && m >= TAKEN && m < COUNT(seen) && seen[m]++ == 0);
    }
    CHECK(put_number(report, COUNT(seen)) == 0 && fiber_queue_flush(report, -1) == 0);
    CHECK(get_number(words, LONG_MS, &rc) == 2);
    return 0;
}

/* When this machine fell asleep, by CLOCK_MONOTONIC in ns. Until this is 0 again, that clock goes at a
 * hundredth of its speed. */
static atomic_ullong asleep_at;

static unsigned long long ns_of(const struct timespec *t)
{
    return (unsigned long long)t->tv_sec * 1000000000 + (unsigned long long)t->tv_nsec;
}

/* Replaces the function of libc in this program. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    unsigned long long asleep = atomic_load(&asleep_at);
    int rc = (int)syscall(SYS_clock_gettime, clock, t);

    if (asleep && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
        unsigned long long now = ns_of(t);

        now = now > asleep ? asleep + (now - asleep) / 100 : now;
        *t = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
    }
    return rc;
}

static void fall_asleep(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    atomic_store(&asleep_at, ns_of(&t));
}

/* Takes some, has the owner know, stops (o->id: its machine sleeps, too), and tries to go on. */
static int stop_and_get(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q;
    size_t n;
    int rc;

    beat_fast();
    q = connect_queue(&o->queue);
    for (uint64_t i = 0; i < TAKEN; i++)
        CHECK(get_number(q, LONG_MS, &rc) == i);
    CHECK(fiber_queue_size(q, &n) == 0);
    if (o->id)
        fall_asleep();
    raise(SIGSTOP);
    CHECK(get_number(q, LONG_MS, &rc) == UINT64_MAX && rc == -EPIPE);
    atomic_store(&asleep_at, 0);
    CHECK(get_number(q, 0, &rc) == UINT64_MAX && rc == -EPIPE);
    return 0;
}

static void run_given_up(bool asleep)
{
    struct fiber_queue *report = plain_queue(0), *words;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner = start(own_and_get, &o, sizeof(o)), *p;
    struct fiber_bytes b;

    o.id = asleep;
    must(fiber_queue_get(report, &b, LONG_MS));
    assert_int_equal(b.len, 2 * sizeof(o.queue));
    memcpy(&o.queue, b.data, sizeof(o.queue));
    must(fiber_queue_connect(&words, (struct fiber_address *)b.data + 1));
    fiber_bytes_free(&b);
    p = start(stop_and_get, &o, sizeof(o));
    while (!fiber_process_pid(p))
        assert_int_equal(fiber_process_join(p, 10), -ETIMEDOUT);
    wait_for_stop(p);
    must(put_number(words, 1));
    expect_number(report, 3000);
    go_on(p);
    join(p);
    must(put_number(words, 2));
    join(owner);
    fiber_queue_close(words);
    fiber_queue_close(report);
}

static void test_a_receiver_that_was_given_up_while_it_was_stopped_finds_out(void **state)
{
    run_given_up(false);
}

static void test_a_receiver_that_was_given_up_while_its_machine_slept_finds_out(void **state)
{
    run_given_up(true);
}

/* Waits in slices for longer than its silence may last, and gets a message then. */
static int wait_in_slices(const void *arg, size_t len)
{
    const struct order *o = arg;
    uint64_t until = now_ms() + 4000, n;
    struct fiber_queue *q;
    int rc;

    beat_fast();
    q = connect_queue(&o->queue);
    while ((n = get_number(q, 20, &rc)) == UINT64_MAX && now_ms() < until)
        CHECK(rc == -ETIMEDOUT);
    CHECK(put_number(connect_queue(&o->report), 1) == 0);
    CHECK(get_number(q, LONG_MS, &rc) == 1);
    return 0;
}

/* Owns a queue, and puts a number when it is told to. */
static int own_and_put(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report, *q, *words;
    struct fiber_address a[2];
    int rc;

    beat_fast();
    report = connect_queue(&o->report);
    q = open_queue(0, &a[0]);
    words = open_queue(0, &a[1]);
    CHECK(fiber_queue_put(report, a, sizeof(a), -1) == 0);
    CHECK(get_number(words, LONG_MS, &rc) == 1 && put_number(q, 1) == 0);
    CHECK(get_number(words, LONG_MS, &rc) == 2);
    return 0;
}

static void test_a_receiver_that_waits_in_slices_is_not_given_up(void **state)
{
    struct fiber_queue *report = plain_queue(0), *words;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner = start(own_and_put, &o, sizeof(o)), *p;
    struct fiber_bytes b;

    must(fiber_queue_get(report, &b, LONG_MS));
    assert_int_equal(b.len, 2 * sizeof(o.queue));
    memcpy(&o.queue, b.data, sizeof(o.queue));
    must(fiber_queue_connect(&words, (struct fiber_address *)b.data + 1));
    fiber_bytes_free(&b);
    p = start(wait_in_slices, &o, sizeof(o));
    expect_number(report, 1);
    must(put_number(words, 1));
    join(p);
    must(put_number(words, 2));
    join(owner);
    fiber_queue_close(words);
    fiber_queue_close(report);
}

/* ---- An owner that is stopped ---- */

/* Owns a queue, and tells its address and then what it got there. */
static int own_and_sum(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *q;
    struct fiber_address a;
    uint64_t sum = 0;
    int rc = 0;

    q = open_queue(0, &a);
    CHECK(fiber_queue_put(report, &a, sizeof(a), -1) == 0);
    for (uint64_t i = 0; i < o->count && rc == 0; i++)
        sum += get_number(q, LONG_MS, &rc);
    CHECK(rc == 0 && put_number(report, sum) == 0);
    return 0;
}

/* Puts when it is told to, and exits at once; or closes its handle. */
static int put_when_told(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report), *go;
    struct fiber_address a;
    struct fiber_bytes b;

    CHECK(fiber_config_set("linger", "1h") == 0);
    go = open_queue(0, &a);
    CHECK(fiber_queue_put(report, &a, sizeof(a), -1) == 0);
    CHECK(fiber_queue_get(go, &b, LONG_MS) == 0);
    for (uint64_t i = 1; i <= o->count; i++)
        CHECK(put_number(q, i) == 0);
    if (o->id)
        fiber_queue_close(q);
    exit(0);
}

static void get_address(struct fiber_queue *report, struct fiber_address *a)
{
    struct fiber_bytes b;

    must(fiber_queue_get(report, &b, LONG_MS));
    assert_int_equal(b.len, sizeof(*a));
    memcpy(a, b.data, sizeof(*a));
    fiber_bytes_free(&b);
}

static void test_what_was_put_before_the_end_waits_for_a_stopped_owner(void **state)
{
    struct fiber_queue *report = plain_queue(0), *go;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner, *putters[2];
    struct fiber_address a[2];

    o.count = 2000;
    owner = start(own_and_sum, &o, sizeof(o));
    get_address(report, &o.queue);
    o.count = 1000;
    for (int i = 0; i < 2; i++) {
        o.id = (uint64_t)i;
        putters[i] = start(put_when_told, &o, sizeof(o));
        get_address(report, &a[i]);
    }
    freeze(owner);
    for (int i = 0; i < 2; i++) {
        must(fiber_queue_connect(&go, &a[i]));
        must(put_number(go, 1));
        must(fiber_queue_flush(go, LONG_MS));
        fiber_queue_close(go);
    }
    let_time_pass(7000); /* more than the default */
    go_on(owner);
    expect_number(report, 2 * 500500);
    join(owner);
    for (int i = 0; i < 2; i++)
        join(putters[i]);
    fiber_queue_close(report);
}

#define LINGER_MS 5000

static void test_close_waits_once_for_a_stopped_owner(void **state)
{
    struct fiber_queue *report = plain_queue(0), *q;
    struct order o = order_for(NULL, report);
    struct fiber_process *owner;
    struct fiber_address a;
    uint64_t took;

    o.count = 2;
    owner = start(own_and_sum, &o, sizeof(o));
    get_address(report, &a);
    must(fiber_queue_connect(&q, &a));
    freeze(owner);
    must(put_number(q, 1));
    took = now_ms();
    fiber_queue_close(q);
    took = now_ms() - took;
    assert_true(took >= LINGER_MS && took < 2 * LINGER_MS - 500);
    kill_and_join(owner);
    fiber_queue_close(report);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_frozen_receiver_does_not_hold_up_the_owner),
        cmocka_unit_test(test_a_frozen_receiver_does_not_hold_up_another_one),
        cmocka_unit_test(test_a_frozen_receiver_does_not_fill_a_bounded_queue),
        cmocka_unit_test(test_a_message_for_a_receiver_that_freezes_in_get_waits_for_it_alone),
        cmocka_unit_test(test_a_receiver_that_was_given_up_while_it_was_stopped_finds_out),
        cmocka_unit_test(test_a_receiver_that_was_given_up_while_its_machine_slept_finds_out),
        cmocka_unit_test(test_a_receiver_that_waits_in_slices_is_not_given_up),
        cmocka_unit_test(test_what_was_put_before_the_end_waits_for_a_stopped_owner),
        cmocka_unit_test(test_close_waits_once_for_a_stopped_owner),
    };

    if (fiber_init(&argc, &argv) < 0 || fiber_config_set("heartbeat", "1h") < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
