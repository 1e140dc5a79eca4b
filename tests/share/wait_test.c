/* wait_test.c - descriptors of queues, pipes, results and futures, in loops of the program's own, and
 * fiber_wait_any.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/epoll.h>
#include <uv.h>

#include "queue_util.h"
#include "share/owner_priv.h"

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void await(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, LONG_MS), 1);
    assert_int_equal(p.revents, POLLIN);
}

/* ---- Queues ---- */

static void test_a_queue_of_ours(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *same;
    int fd = fiber_queue_fd(q);

    assert_true(fd >= 0);
    assert_false(readable(fd));
    must(put_number(q, 1));
    must(put_number(q, 2));
    assert_true(readable(fd));
    assert_int_equal(fiber_queue_fd(q), fd);
    must(fiber_queue_connect(&same, &a));
    assert_int_equal(fiber_queue_fd(same), fd);
    expect_number(q, 1);
    assert_true(readable(fd));
    expect_number(same, 2);
    assert_false(readable(fd));
    must(fiber_queue_shut(q));
    assert_true(readable(fd));
    fiber_queue_close(same);
    fiber_queue_close(q);
}

static void test_the_last_handle_that_waits_closes_the_descriptor(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *first, *second;
    int fds = count_fds();

    for (int i = 0; i < 3; i++) {
        must(fiber_queue_connect(&first, &a));
        must(fiber_queue_connect(&second, &a));
        fiber_queue_fd(first);
        fiber_queue_fd(first);
        fiber_queue_fd(second);
        fiber_queue_close(first);
        assert_int_equal(count_fds(), fds + 1);
        must(put_number(q, 1));
        await(fiber_queue_fd(second));
        expect_number(second, 1);
        assert_false(readable(fiber_queue_fd(second)));
        fiber_queue_close(second);
        assert_int_equal(count_fds(), fds);
    }
    fiber_queue_close(q);
}

static void test_nobody_asks_and_nothing_is_made(void **state)
{
    struct fiber_queue *q[100];
    int fds;

    q[0] = plain_queue(0);
    fds = count_fds();
    for (int i = 1; i < 100; i++)
        q[i] = plain_queue(0);
    assert_int_equal(count_fds(), fds);
    for (int i = 0; i < 100; i++)
        assert_true(fiber_queue_fd(q[i]) >= 0);
    assert_int_equal(count_fds(), fds + 100);
    for (int i = 0; i < 100; i++)
        fiber_queue_close(q[i]);
    assert_true(count_fds() <= fds);
}

/* Reads by epoll until the end; says how many it had. */
static int consume_by_epoll(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->queue), *report = connect_queue(&o->report);
    struct epoll_event e = {.events = EPOLLIN};
    int rc = 0, loop = epoll_create1(EPOLL_CLOEXEC);
    uint64_t n, had = 0;

    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fiber_queue_fd(q), &e) == 0);
    CHECK(put_number(report, UINT32_MAX) == 0); /* it watches */
    while (rc != -EPIPE) {
        CHECK(epoll_wait(loop, &e, 1, LONG_MS) == 1);
        n = get_number(q, 0, &rc);
        CHECK(rc == 0 || rc == -ETIMEDOUT || rc == -EPIPE);
        had += rc == 0;
        if (rc == 0 && o->count) /* one by one */
            CHECK(put_number(report, n) == 0);
    }
    if (!o->count)
        CHECK(put_number(report, had) == 0);
    close(loop);
    fiber_queue_close(q);
    return 0;
}

static void test_a_queue_of_another_process(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = plain_queue(0), *report = open_queue(0, &a);
    struct order o = order_for(q, report);
    struct fiber_process *p;

    o.count = 1;
    p = start(consume_by_epoll, &o, sizeof(o));
    expect_number(report, UINT32_MAX);
    for (uint64_t i = 0; i < 200; i++) {
        must(put_number(q, i));
        expect_number(report, i);
    }
    must(fiber_queue_shut(q));
    join(p);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

#define WATCHERS 4
#define MESSAGES 2000

static void test_each_message_goes_to_one_of_those_that_watch(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *p[WATCHERS];
    uint64_t sum = 0;
    int rc;

    for (int i = 0; i < WATCHERS; i++)
        p[i] = start(consume_by_epoll, &o, sizeof(o));
    for (int i = 0; i < WATCHERS; i++)
        expect_number(report, UINT32_MAX);
    for (uint64_t i = 0; i < MESSAGES; i++)
        must(put_number(q, i));
    must(fiber_queue_shut(q));
    for (int i = 0; i < WATCHERS; i++)
        sum += get_number(report, LONG_MS, &rc);
    assert_int_equal(sum, MESSAGES);
    for (int i = 0; i < WATCHERS; i++)
        join(p[i]);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* It has taken one message, and others had come ahead of it; then it does something else. */
static void test_who_watches_gets_what_another_one_does_not_ask_for(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0);
    struct order o = order_for(q, report);
    struct fiber_process *p;
    int fd;

    for (uint64_t i = 0; i < 10; i++)
        must(put_number(q, i));
    o.count = 1;
    p = start(take_some, &o, sizeof(o));
    expect_number(report, 1);
    fd = fiber_queue_fd(q);
    for (uint64_t i = 1; i < 10; i++) {
        await(fd);
        expect_number(q, i);
    }
    must(put_number(q, 10));
    await(fd);
    expect_number(q, 10);
    kill_and_join(p);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

static void test_a_consumer_reads_ahead_again_when_no_handle_watches(void **state)
{
    struct fiber_queue *q = plain_queue(0), *report = plain_queue(0), *watcher;
    struct order o = order_for(q, report);
    struct fbr_queue_engine_stats s;
    struct fiber_process *p;
    struct fbr_owner *owner;
    struct fbr_address a;

    must(fiber_queue_connect(&watcher, &o.queue));
    must(fiber_queue_fd(watcher));
    fiber_queue_close(watcher);
    for (uint64_t i = 0; i < 10; i++)
        must(put_number(q, i));
    o.count = 1;
    p = start(take_some, &o, sizeof(o));
    expect_number(report, 1);
    must(fbr_address_get(&a, &o.queue, FBR_KIND_QUEUE));
    owner = fbr_owner_local(&a);
    fbr_queue_engine_stats(owner->lanes[0].engine, &s);
    assert_true(s.ahead > 0);
    fbr_owner_release(owner);
    kill_and_join(p);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* Gives out the address of a queue of its own, puts a number, and waits to be killed. */
static int own_queue(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *q;
    struct fiber_address a;
    struct fiber_bytes b;

    q = open_queue(0, &a);
    CHECK(fiber_queue_put(report, &a, sizeof(a), -1) == 0 && fiber_queue_flush(report, -1) == 0);
    fiber_queue_get(q, &b, -1);
    CHECK(put_number(q, 5) == 0);
    fiber_queue_get(report, &b, -1);
    return 0;
}

/* What is readable may have been somebody else's meanwhile. */
static uint64_t get_by_poll(struct fiber_queue *q, int *rc)
{
    uint64_t n;

    do {
        await(fiber_queue_fd(q));
        n = get_number(q, 0, rc);
    } while (*rc == -ETIMEDOUT);
    return n;
}

static void test_the_death_of_the_owner_is_readable(void **state)
{
    struct fiber_queue *report = plain_queue(0), *q;
    struct order o = order_for(report, report);
    struct fiber_process *p = start(own_queue, &o, sizeof(o));
    struct fiber_bytes a;
    uint64_t n;
    int fd, rc;

    must(fiber_queue_get(report, &a, LONG_MS));
    must(fiber_queue_connect(&q, a.data));
    fiber_bytes_free(&a);
    fd = fiber_queue_fd(q);
    assert_false(readable(fd));
    /* The owner takes the number and puts another one. If it does not wait yet, the number is ours. */
    do {
        must(put_number(q, 1));
        n = get_by_poll(q, &rc);
    } while (n == 1);
    assert_int_equal(n, 5);
    must(fiber_process_kill(p));
    get_by_poll(q, &rc);
    assert_int_equal(rc, -EPIPE);
    assert_true(readable(fd));
    assert_int_equal(fiber_process_join(p, LONG_MS), 0);
    fiber_process_close(p);
    fiber_queue_close(q);
    fiber_queue_close(report);
}

/* ---- Pipes ---- */

struct pipe_order {
    struct fiber_address end;
    uint64_t count;
};

/* Sends back what comes, by poll, so many times. */
static int echo_by_poll(const void *arg, size_t len)
{
    const struct pipe_order *o = arg;
    struct pollfd fd = {.events = POLLIN};
    struct fiber_pipe *p;
    struct fiber_bytes b;

    CHECK(fiber_pipe_connect(&p, &o->end) == 0);
    keep(p);
    fd.fd = fiber_pipe_fd(p);
    for (uint64_t i = 0; i < o->count;) {
        CHECK(poll(&fd, 1, LONG_MS) == 1);
        if (fiber_pipe_recv(p, &b, 0) == -ETIMEDOUT)
            continue;
        CHECK(fiber_pipe_send(p, b.data, b.len, -1) == 0);
        fiber_bytes_free(&b);
        i++;
    }
    return 0;
}

static void test_pipes_there_and_back(void **state)
{
    struct pipe_order o = {.count = 500};
    struct fiber_pipe *ends[2], *oneway[2];
    struct fiber_process *p;
    struct fiber_bytes b;
    int fd;

    must(fiber_pipe_open(ends, 0));
    must(fiber_pipe_address(ends[1], &o.end));
    p = start(echo_by_poll, &o, sizeof(o));
    fiber_pipe_close(ends[1]);
    fd = fiber_pipe_fd(ends[0]);
    for (uint64_t i = 0; i < o.count; i++) {
        must(fiber_pipe_send(ends[0], &i, sizeof(i), -1));
        await(fd);
        must(fiber_pipe_recv(ends[0], &b, LONG_MS));
        assert_memory_equal(b.data, &i, sizeof(i));
        fiber_bytes_free(&b);
    }
    join(p); /* and the end of file */
    await(fd);
    assert_int_equal(fiber_pipe_recv(ends[0], &b, 0), -EPIPE);
    fiber_pipe_close(ends[0]);
    must(fiber_pipe_open(oneway, FIBER_PIPE_ONEWAY));
    assert_int_equal(fiber_pipe_fd(oneway[1]), -EBADF);
    assert_false(readable(fiber_pipe_fd(oneway[0])));
    fiber_pipe_close(oneway[1]);
    assert_true(readable(fiber_pipe_fd(oneway[0])));
    fiber_pipe_close(oneway[0]);
}

/* ---- Results and futures ---- */

static int wait_for_number(const void *in, size_t len, struct fiber_reply *reply)
{
    struct fiber_queue *q = connect_queue(in);
    int rc;
    uint64_t n = get_number(q, LONG_MS, &rc);

    return rc < 0 ? rc : fiber_reply_write(reply, &n, sizeof(n));
}

static void note_end(void *user, size_t index, int code, const void *data, size_t len)
{
    atomic_store((atomic_int *)user, code == 0 ? 1 : code);
}

static void test_results(void **state)
{
    struct fiber_pool_options po = {.size = sizeof(po), .min = 1, .max = 1};
    static atomic_int called;
    struct fiber_map_options mo = {.size = sizeof(mo), .on_done = note_end, .user = &called};
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a);
    struct fiber_pool *pool;
    struct fiber_result *r, *none;

    must(fiber_pool_open(&pool, &po));
    must(fiber_pool_apply_async(pool, wait_for_number, &a, sizeof(a), &mo, &r));
    assert_false(readable(fiber_result_fd(r)));
    must(put_number(q, 7));
    await(fiber_result_fd(r));
    assert_int_equal(atomic_load(&called), 1); /* its callback has been here */
    assert_int_equal(fiber_result_wait(r, 0), 0);
    fiber_result_close(r);
    must(fiber_pool_map_async(pool, wait_for_number, NULL, 0, NULL, &none));
    assert_true(readable(fiber_result_fd(none)));
    fiber_result_close(none);
    must(fiber_pool_apply_async(pool, wait_for_number, &a, sizeof(a), NULL, &r));
    assert_false(readable(fiber_result_fd(r)));
    must(fiber_result_cancel(r));
    assert_true(readable(fiber_result_fd(r)));
    fiber_result_close(r);
    fiber_pool_close(pool);
    fiber_queue_close(q);
}

static int method(void *state, const char *name, const void *in, size_t len,
                  struct fiber_reply *reply)
{
    if (strcmp(name, "die") == 0)
        _exit(3);
    return wait_for_number(in, len, reply);
}

static void test_futures(void **state)
{
    const struct fiber_class cls = {.size = sizeof(cls), .call = method};
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a);
    struct fiber_future *f[2];
    struct fiber_manager *m;

    must(fiber_manager_start(&m, &cls, NULL, 0, NULL));
    must(fiber_manager_call_async(m, "number", &a, sizeof(a), &f[0]));
    assert_false(readable(fiber_future_fd(f[0])));
    must(put_number(q, 7));
    await(fiber_future_fd(f[0]));
    must(fiber_future_get(f[0], NULL, 0));
    must(fiber_manager_call_async(m, "die", NULL, 0, &f[1])); /* no answer is under way any more */
    await(fiber_future_fd(f[1]));
    assert_int_equal(fiber_future_get(f[1], NULL, 0), -EPIPE);
    for (int i = 0; i < 2; i++)
        fiber_future_close(f[i]);
    fiber_manager_close(m);
    fiber_queue_close(q);
}

/* ---- Loops ---- */

struct uv_reader {
    struct fiber_queue *q;
    uv_poll_t poll;
    uint64_t sum;
};

static void on_queue(uv_poll_t *handle, int status, int events)
{
    struct uv_reader *r = handle->data;
    uint64_t n;
    int rc;

    assert_int_equal(status, 0);
    assert_int_equal(events, UV_READABLE);
    n = get_number(r->q, 0, &rc);
    if (rc == 0)
        r->sum += n;
    if (rc == -EPIPE)
        uv_close((uv_handle_t *)handle, NULL);
}

static void test_a_loop_of_libuv(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct order o = order_for(q, NULL);
    struct uv_reader r = {.q = q};
    struct fiber_process *p;
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_poll_init(&loop, &r.poll, fiber_queue_fd(q)), 0);
    r.poll.data = &r;
    assert_int_equal(uv_poll_start(&r.poll, UV_READABLE, on_queue), 0);
    o.count = 300;
    p = start(produce, &o, sizeof(o));
    join(p);
    must(fiber_queue_shut(q));
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(r.sum, 300 * 299 / 2);
    fiber_queue_close(q);
}

/* In a worker behind the relay of its host. */
static int take_by_wait_any(const void *in, size_t len, struct fiber_reply *reply)
{
    struct fiber_queue *q = connect_queue(in);
    struct fiber_wait w = {.queue = q};
    uint64_t n;
    int rc;

    do {
        CHECK(fiber_wait_any(&w, 1, LONG_MS) == 1 && w.ready == 1);
        n = get_number(q, 0, &rc);
    } while (rc == -ETIMEDOUT);
    CHECK(rc == 0);
    fiber_queue_close(q);
    return fiber_reply_write(reply, &n, sizeof(n));
}

static void test_behind_the_relay_of_a_host(void **state)
{
    struct fiber_pool_options po = {.size = sizeof(po), .min = 3, .max = 3, .workers_per_job = 3};
    struct fiber_address in[12];
    struct fiber_queue *q = plain_queue(0);
    struct fiber_result *r;
    struct fiber_pool *pool;
    uint64_t out[12], sum = 0;

    must(fiber_pool_open(&pool, &po));
    for (int i = 0; i < 12; i++)
        must(fiber_queue_address(q, &in[i]));
    must(fiber_pool_map_array(pool, take_by_wait_any, in, sizeof(in[0]), out, sizeof(out[0]), 12,
                              NULL, &r));
    for (uint64_t i = 0; i < 12; i++)
        must(put_number(q, i));
    must(fiber_result_wait(r, LONG_MS));
    must(fiber_result_error(r, NULL));
    for (int i = 0; i < 12; i++)
        sum += out[i];
    assert_int_equal(sum, 66);
    fiber_result_close(r);
    fiber_pool_close(pool);
    fiber_queue_close(q);
}

/* ---- fiber_wait_any ---- */

static int wait_and_return(const void *arg, size_t len)
{
    struct fiber_queue *q = connect_queue(arg);
    int rc;

    return (int)get_number(q, LONG_MS, &rc);
}

static int rank_waits(int rank, int size, const void *arg, size_t len)
{
    return wait_and_return(arg, len);
}

static void test_any_of_several_things(void **state)
{
    struct fiber_ring_options ro = {.size = sizeof(ro), .flags = FIBER_RING_QUIET};
    struct fiber_address gate, a;
    struct fiber_queue *go = open_queue(0, &gate), *q = open_queue(0, &a);
    struct fiber_wait w[4] = {{.queue = q}, {.process = NULL}};
    struct fiber_pipe *ends[2];

    must(fiber_pipe_open(ends, 0));
    w[1].process = start(wait_and_return, &gate, sizeof(gate));
    w[2].pipe = ends[0]; /* w[3] names nothing yet */
    assert_int_equal(fiber_wait_any(w, 4, 0), -ETIMEDOUT);
    assert_int_equal(fiber_wait_any(w, 4, 20), -ETIMEDOUT);
    assert_non_null(strstr(fiber_last_error(), "after 20 ms"));
    must(fiber_pipe_send(ends[1], "x", 1, -1));
    must(put_number(q, 1));
    assert_int_equal(fiber_wait_any(w, 4, -1), 2);
    assert_true(w[0].ready && !w[1].ready && w[2].ready && !w[3].ready);
    expect_number(q, 1);
    w[2].pipe = NULL;
    must(put_number(go, 0));
    assert_int_equal(fiber_wait_any(w, 4, LONG_MS), 1);
    assert_true(!w[0].ready && w[1].ready);
    join(w[1].process);
    w[1].process = NULL;
    must(fiber_ring_start(&w[3].ring, 1, rank_waits, &gate, sizeof(gate), &ro));
    must(put_number(go, 0));
    assert_int_equal(fiber_wait_any(w, 4, LONG_MS), 1);
    assert_true(w[3].ready);
    fiber_ring_close(w[3].ring);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
    fiber_queue_close(q);
    fiber_queue_close(go);
}

static void test_what_cannot_be_waited_for(void **state)
{
    struct fiber_queue *q = plain_queue(0);
    struct fiber_pipe *ends[2];
    struct fiber_wait w[2] = {{.ready = 1}, {.ready = 1}};

    must(fiber_pipe_open(ends, FIBER_PIPE_ONEWAY));
    assert_int_equal(fiber_wait_any(NULL, 1, 0), -EINVAL);
    assert_int_equal(fiber_wait_any(w, 0, 0), -EINVAL);
    assert_int_equal(fiber_wait_any(w, 2, -1), -EINVAL); /* would be for ever */
    assert_int_equal(w[0].ready, 0);
    w[1].pipe = ends[1];
    assert_int_equal(fiber_wait_any(w, 2, 0), -EBADF);
    w[1].queue = q;
    w[1].pipe = ends[0];
    assert_int_equal(fiber_wait_any(w, 2, 0), -EINVAL);
    assert_non_null(strstr(fiber_last_error(), "more than one"));
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
    fiber_queue_close(q);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_queue_of_ours),
        cmocka_unit_test(test_the_last_handle_that_waits_closes_the_descriptor),
        cmocka_unit_test(test_nobody_asks_and_nothing_is_made),
        cmocka_unit_test(test_a_queue_of_another_process),
        cmocka_unit_test(test_each_message_goes_to_one_of_those_that_watch),
        cmocka_unit_test(test_who_watches_gets_what_another_one_does_not_ask_for),
        cmocka_unit_test(test_a_consumer_reads_ahead_again_when_no_handle_watches),
        cmocka_unit_test(test_the_death_of_the_owner_is_readable),
        cmocka_unit_test(test_pipes_there_and_back),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_futures),
        cmocka_unit_test(test_a_loop_of_libuv),
        cmocka_unit_test(test_behind_the_relay_of_a_host),
        cmocka_unit_test(test_any_of_several_things),
        cmocka_unit_test(test_what_cannot_be_waited_for),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
