/* queue_use_test.c - fiber_queue: many of them, many handles and threads, addresses that travel.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "queue_util.h"

/* ---- Many ---- */

#define MANY 1000

static int use_many(const void *arg, size_t len)
{
    const struct fiber_address *a = arg;
    struct fiber_queue *q[MANY];

    CHECK(len == sizeof(*a) * MANY);
    for (uint64_t i = 0; i < MANY; i++)
        q[i] = connect_queue(&a[i]);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(put_number(q[i], i) == 0);
    for (uint64_t i = 0; i < MANY; i++) {
        int rc;

        CHECK(get_number(q[i], LONG_MS, &rc) % MANY == i);
    }
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(put_number(q[i], MANY + i) == 0);
    for (uint64_t i = 0; i < MANY; i += 2)
        fiber_queue_close(q[i]); /* and the others by the end of the process */
    return 0;
}

static void test_a_thousand_queues(void **state)
{
    struct fiber_address *a = calloc(MANY, sizeof(*a));
    struct fiber_process *p[2];
    struct fiber_queue *q[MANY];
    int fds = count_fds();

    assert_non_null(a);
    for (int i = 0; i < MANY; i++)
        q[i] = open_queue(0, &a[i]);
    for (int i = 0; i < 2; i++)
        p[i] = start(use_many, a, sizeof(*a) * MANY);
    for (int i = 0; i < 2; i++)
        join(p[i]);
    for (uint64_t i = 0; i < MANY; i++) {
        int rc;

        for (int k = 0; k < 2; k++) /* the one that was late may have got the other's second one */
            assert_int_equal(get_number(q[i], LONG_MS, &rc) % MANY, i);
        assert_int_equal(get_number(q[i], 0, &rc), UINT64_MAX);
        fiber_queue_close(q[i]);
    }
    assert_true(count_fds() < fds + 32); /* they share what they need */
    free(a);
}

static void *read_all(void *queue)
{
    struct fiber_bytes b;

    while (fiber_queue_get(queue, &b, -1) == 0)
        fiber_bytes_free(&b);
    return NULL;
}

/* Reads one queue while a thread reads another one of the same owner. */
static int read_both(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    pthread_t thread;
    int rc;

    CHECK(pthread_create(&thread, NULL, read_all, connect_queue(&o->report)) == 0);
    pthread_detach(thread);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(get_number(q, LONG_MS, &rc) == i);
    return 0;
}

static atomic_bool enough;

static void *put_often(void *queue)
{
    while (!atomic_load(&enough)) {
        put_number(queue, 0);
        usleep(50);
    }
    return NULL;
}

/* A consumer reports that it has taken a message when its connection is quiet for half a millisecond,
 * or that time after it. */
static void test_a_busy_queue_does_not_hold_up_another_one(void **state)
{
    struct fiber_queue *q = plain_queue(2), *busy = plain_queue(0);
    struct order o = order_for(q, busy);
    struct fiber_process *p;
    pthread_t thread;
    uint64_t began;

    o.count = 300;
    p = start(read_both, &o, sizeof(o));
    assert_int_equal(pthread_create(&thread, NULL, put_often, busy), 0);
    must(put_number(q, 0));
    began = now_ms();
    for (uint64_t i = 1; i < o.count; i++)
        must(put_number(q, i));
    assert_true(now_ms() - began < 1000 * SLOWNESS);
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    join(p);
    fiber_queue_close(q);
    fiber_queue_close(busy);
}

/* ---- Addresses on their way ---- */

static int answer_grandparent(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);

    CHECK(put_number(q, o->id) == 0);
    return 0;
}

static int have_children(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    struct fiber_process *p[3];
    struct fiber_queue *q = connect_queue(&o.queue);
    int code;

    for (int i = 0; i < 3; i++) {
        o.id = 10 + (uint64_t)i;
        CHECK(fiber_process_start(&p[i], answer_grandparent, &o, sizeof(o), NULL) == 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK(fiber_process_join(p[i], LONG_MS) == 0 && fiber_process_exitcode(p[i], &code) == 0 &&
              code == 0);
    CHECK(put_number(q, 1) == 0);
    return 0;
}

static void test_grandchildren_use_an_address(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    struct fiber_process *p = start(have_children, &o, sizeof(o));
    uint64_t sum = 0;
    int rc;

    for (int i = 0; i < 4; i++)
        sum += get_number(q, LONG_MS, &rc);
    assert_int_equal(sum, 34);
    join(p);
    fiber_queue_close(q);
}

/* Gets a place from a queue, and puts its number there. */
static int follow(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *there;
    struct fiber_bytes b;

    CHECK(fiber_queue_get(q, &b, LONG_MS) == 0 && b.len == sizeof(struct fiber_address));
    there = connect_queue(b.data);
    fiber_bytes_free(&b);
    CHECK(put_number(there, o->id) == 0);
    fiber_queue_close(there);
    fiber_queue_close(q);
    return 0;
}

static void test_an_address_travels_in_a_message(void **state)
{
    struct fiber_queue *q = plain_queue(0), *there;
    struct order o = order_for(q, NULL);
    struct fiber_process *p;
    struct fiber_address a;

    o.id = 77;
    p = start(follow, &o, sizeof(o));
    there = open_queue(0, &a);
    must(fiber_queue_put(q, &a, sizeof(a), -1));
    expect_number(there, 77);
    join(p);
    fiber_queue_close(q);
    fiber_queue_close(there);
}

static int own_handles(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q[3];
    int rc;

    for (int i = 0; i < 3; i++)
        q[i] = connect_queue(&o->queue);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(put_number(q[i], i) == 0);
    CHECK(fiber_queue_flush(q[0], LONG_MS) == 0);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(get_number(q[2 - i], LONG_MS, &rc) == i); /* all of them are one consumer */
    fiber_queue_close(q[1]);
    CHECK(put_number(q[0], 9) == 0 && get_number(q[2], LONG_MS, &rc) == 9);
    fiber_queue_close(q[0]);
    fiber_queue_close(q[2]);
    q[0] = connect_queue(&o->queue); /* and once more from the beginning */
    CHECK(put_number(q[0], 10) == 0 && get_number(q[0], LONG_MS, &rc) == 10);
    fiber_queue_close(q[0]);
    return 0;
}

static void test_several_handles_in_one_process(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);

    join(start(own_handles, &o, sizeof(o)));
    own_handles(&o, sizeof(o));
    fiber_queue_close(q);
}

static void test_a_second_handle_of_the_owner_outlives_the_first(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *second;
    struct fiber_bytes b;
    size_t n;

    must(fiber_queue_connect(&second, &a));
    must(put_number(second, 4));
    expect_number(q, 4);
    fiber_queue_close(q);
    assert_int_equal(fiber_queue_put(second, "x", 1, 0), -EPIPE);
    assert_int_equal(fiber_queue_get(second, &b, LONG_MS), -EPIPE);
    must(fiber_queue_shut(second));
    assert_int_equal(fiber_queue_size(second, &n), -EPIPE);
    assert_int_equal(fiber_queue_deal(second), -EPIPE);
    fiber_queue_close(second);
    fiber_queue_close(NULL);
}

/* ---- Threads ---- */

struct thread_work {
    struct fiber_queue *q;
    uint64_t id, count, sum;
};

static void *put_in_thread(void *arg)
{
    struct thread_work *w = arg;

    for (uint64_t i = 0; i < w->count; i++)
        CHECK(put_number(w->q, w->id << 32 | i) == 0);
    return NULL;
}

static void *get_in_thread(void *arg)
{
    struct thread_work *w = arg;
    int rc;

    for (uint64_t i = 0; i < w->count; i++)
        w->sum += get_number(w->q, LONG_MS, &rc) & UINT32_MAX;
    return NULL;
}

/* Four threads put and four get, all by one handle. */
static int use_threads(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue);
    struct thread_work w[8];
    pthread_t t[8];
    uint64_t sum = 0;

    for (int i = 0; i < 8; i++) {
        w[i] = (struct thread_work){q, (uint64_t)i, o->count, 0};
        CHECK(pthread_create(&t[i], NULL, i % 2 ? get_in_thread : put_in_thread, &w[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        sum += w[i].sum;
    }
    CHECK(sum == 4 * (o->count * (o->count - 1) / 2));
    fiber_queue_close(q);
    return 0;
}

static void run_threads(size_t bound, uint64_t count)
{
    struct fiber_queue *q = plain_queue(bound);
    struct order o = order_for(q, NULL);
    size_t n;

    o.count = count;
    join(start(use_threads, &o, sizeof(o)));
    use_threads(&o, sizeof(o));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 0);
    fiber_queue_close(q);
}

static void test_eight_threads_on_one_handle(void **state)
{
    run_threads(0, 2000 / SLOWNESS);
}

static void test_eight_threads_on_one_handle_of_a_bounded_queue(void **state)
{
    run_threads(2, 250 / SLOWNESS);
}

/* Opens and closes handles on one queue while another thread does the same. */
static void *come_and_go(void *arg)
{
    const struct order *o = arg;

    for (int i = 0; i < 100; i++) {
        struct fiber_queue *q = connect_queue(&o->queue);
        int rc;

        CHECK(put_number(q, 1) == 0);
        if (i % 3 == 0)
            CHECK(get_number(q, LONG_MS, &rc) == 1);
        fiber_queue_close(q);
    }
    return NULL;
}

static int come_and_go_twice(const void *arg, size_t len)
{
    struct order o = *(const struct order *)arg;
    pthread_t t[2];

    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, come_and_go, &o) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return 0;
}

static void test_handles_come_and_go_in_two_threads(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    size_t n;

    join(start(come_and_go_twice, &o, sizeof(o)));
    must(fiber_queue_size(q, &n));
    assert_int_equal(n, 200 - 2 * 34);
    fiber_queue_close(q);
}

static void test_a_forked_child_is_told(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct fiber_queue *other;
        struct fiber_bytes b;
        bool good = fiber_queue_put(q, "x", 1, 0) == -EPERM &&
                    fiber_queue_get(q, &b, -1) == -EPERM && fiber_queue_open(&other, 0) == -EPERM;

        fiber_queue_close(q);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fiber_queue_close(q);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thousand_queues),
        cmocka_unit_test(test_a_busy_queue_does_not_hold_up_another_one),
        cmocka_unit_test(test_grandchildren_use_an_address),
        cmocka_unit_test(test_an_address_travels_in_a_message),
        cmocka_unit_test(test_several_handles_in_one_process),
        cmocka_unit_test(test_a_second_handle_of_the_owner_outlives_the_first),
        cmocka_unit_test(test_eight_threads_on_one_handle),
        cmocka_unit_test(test_eight_threads_on_one_handle_of_a_bounded_queue),
        cmocka_unit_test(test_handles_come_and_go_in_two_threads),
        cmocka_unit_test(test_a_forked_child_is_told),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
