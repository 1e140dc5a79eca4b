/* pipe_direct_test.c - pipes whose ends talk enough to get a stream of their own: order, deaths, freezes,
 * ends that get more holders meanwhile.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "pipe_util.h"
#include "runtime/proc/context.h"
#include "share/channel.h"
#include "share/direct.h"

#define ROUNDS 50 /* after which there is a stream, or was one */

static void talk_rounds(struct fiber_pipe *end, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        must(send_number(end, i));
        expect_recv(end, i);
    }
}

static void test_a_conversation_gets_a_stream(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;
    int fds;

    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    talk_rounds(ends[0], 2);
    fds = count_fds();
    talk_rounds(ends[0], ROUNDS);
    assert_true(count_fds() > fds);
    talk_rounds(ends[0], 1000);
    fiber_pipe_close(ends[0]);
    join(p);
}

/* A message that says which one it is, at each of its bytes. */
static void fill(char *data, size_t len, uint64_t number)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(number * 131 + i * 7 + i / 4096);
}

static bool is_filled(const struct fiber_bytes *b, uint64_t number)
{
    const char *data = b->data;

    for (size_t i = 0; i < b->len; i++)
        if (data[i] != (char)(number * 131 + i * 7 + i / 4096))
            return false;
    return true;
}

/* Bursts that the reader takes late make the stream end, again and again. */
static void test_bursts_of_all_sizes_stay_in_order(void **state)
{
    uint64_t random = 7, sent = 0, got = 0;
    char *data = malloc(300000);
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;

    assert_non_null(data);
    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    for (int burst = 0; burst < 400 / SLOWNESS; burst++) {
        uint64_t n = burst % 2 ? 1 + next_random(&random) % 12 : 1;

        for (uint64_t i = 0; i < n; i++) {
            size_t len = next_random(&random) % (burst % 5 ? 500 : 300000);

            fill(data, len, sent++);
            must(fiber_pipe_send(ends[0], data, len, LONG_MS));
        }
        for (uint64_t i = 0; i < n; i++) {
            struct fiber_bytes b;

            must(fiber_pipe_recv(ends[0], &b, LONG_MS));
            assert_true(is_filled(&b, got++));
            fiber_bytes_free(&b);
        }
    }
    fiber_pipe_close(ends[0]);
    join(p);
    free(data);
}

/* In a child: sends back the numbers of so many rounds that the pipe has its stream. */
static void answer_rounds(struct fiber_pipe *p)
{
    int rc;

    for (uint64_t i = 0; i < ROUNDS; i++)
        CHECK(recv_number(p, &rc) == i && send_number(p, i) == 0);
}

/* ---- Deaths and freezes ---- */

static int flood(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    char *data = malloc(o->size);

    CHECK(data);
    answer_rounds(p);
    for (uint64_t i = 0;; i++) {
        fill(data, o->size, i);
        CHECK(fiber_pipe_send(p, data, o->size, -1) == 0);
    }
}

static void run_killed(uint64_t before)
{
    struct order o = {.size = MIB + 3};
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    struct fiber_bytes b;
    uint64_t n = 0;
    int rc;

    open_pipe(ends, 0);
    p = give_end(ends, flood, &o);
    talk_rounds(ends[0], ROUNDS);
    while ((rc = fiber_pipe_recv(ends[0], &b, LONG_MS)) == 0) {
        assert_int_equal(b.len, o.size);
        assert_true(is_filled(&b, n++));
        fiber_bytes_free(&b);
        if (n == before)
            must(fiber_process_kill(p));
    }
    assert_int_equal(rc, -EPIPE);
    assert_true(n >= before);
    kill_and_join(p);
    fiber_pipe_close(ends[0]);
}

static void test_a_kill_tears_no_message(void **state)
{
    for (uint64_t i = 1; i < 6; i++)
        run_killed(i);
}

static void test_a_frozen_reader_holds_up_its_writer_and_loses_nothing(void **state)
{
    static char data[65536];
    uint64_t sent = 0, got = 0;
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;
    siginfo_t info;
    pid_t pid;

    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    talk_rounds(ends[0], ROUNDS);
    pid = (pid_t)fiber_process_pid(p);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
    for (fill(data, sizeof(data), 0);
         fiber_pipe_send(ends[0], data, sizeof(data), 100) == 0 && sent < 1000;
         fill(data, sizeof(data), sent))
        sent++;
    assert_true(sent >= 8 * MIB / sizeof(data) && sent <= 17 * MIB / sizeof(data));
    assert_int_equal(kill(pid, SIGCONT), 0);
    while (got < sent) {
        struct fiber_bytes b;

        must(fiber_pipe_recv(ends[0], &b, LONG_MS));
        assert_int_equal(b.len, sizeof(data));
        assert_true(is_filled(&b, got++));
        fiber_bytes_free(&b);
    }
    talk_rounds(ends[0], ROUNDS);
    fiber_pipe_close(ends[0]);
    join(p);
}

static void test_a_fork_child_with_a_copy_of_the_stream_keeps_nothing_open(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;
    pid_t pid;

    open_pipe(ends, 0);
    p = give_end(ends, echo, &o);
    talk_rounds(ends[0], ROUNDS);
    pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_true(pid > 0);
    talk_rounds(ends[0], ROUNDS);
    fiber_pipe_close(ends[0]);
    join(p);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- More holders ---- */

/* Talks, sends `count` numbers more, and waits for the end. */
static int talk_and_send(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);
    int rc;

    answer_rounds(p);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(send_number(p, i) == 0);
    CHECK(put_number(report, 1) == 0 && fiber_queue_flush(report, -1) == 0);
    CHECK(recv_number(p, &rc) == UINT64_MAX && rc == -EPIPE);
    return 0;
}

static int expect_all(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    int rc;

    for (uint64_t i = 0; i < o->count; i++)
        CHECK(recv_number(p, &rc) == i);
    return 0;
}

static void test_the_owner_gives_its_end_away_with_what_has_come(void **state)
{
    struct order o = {.count = 500};
    struct fiber_queue *sent = open_queue(0, &o.report);
    struct fiber_process *p, *heir;
    struct fiber_pipe *ends[2];

    open_pipe(ends, 0);
    p = give_end(ends, talk_and_send, &o);
    talk_rounds(ends[0], ROUNDS);
    expect_number(sent, 1);
    o.end = address_of(ends[0]);
    heir = start(expect_all, &o, sizeof(o));
    join(heir);
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(sent);
}

/* Talks, lets its own child have the end, which reads what it does not, and goes. */
static int talk_and_pass_on(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *go = connect_queue(&o->report);
    struct fiber_process *child;
    int rc, code;

    answer_rounds(p);
    CHECK(get_number(go, LONG_MS, &rc) == 1); /* they are in the stream to us */
    CHECK(fiber_process_start(&child, expect_all, o, sizeof(*o), NULL) == 0);
    CHECK(fiber_process_join(child, LONG_MS) == 0);
    CHECK(fiber_process_exitcode(child, &code) == 0 && code == 0);
    fiber_pipe_close(p);
    return 0;
}

/* `held`: bytes that the owner keeps for others meanwhile. */
static void pass_on_unread(uint64_t held)
{
    struct order o = {.count = 500};
    struct fiber_queue *go = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, talk_and_pass_on, &o);
    talk_rounds(ends[0], ROUNDS);
    for (uint64_t i = 0; i < o.count / 2; i++)
        must(send_number(ends[0], i));
    must(fbr_held_reserve(&fbr_rt()->held, held));
    must(put_number(go, 1));
    for (uint64_t i = o.count / 2; i < o.count; i++) /* while the other one comes */
        must(send_number(ends[0], i));
    join(p);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
    fbr_held_release(&fbr_rt()->held, held);
}

static void test_what_one_holder_has_not_read_is_for_the_next(void **state)
{
    pass_on_unread(0);
}

/* They are the program's own messages, which hold_max does not count. */
static void test_what_one_holder_has_not_read_is_not_lost_at_hold_max(void **state)
{
    pass_on_unread(fbr_held_limit(&fbr_rt()->held));
}

/* ---- A holder that leaves its stream in two ways at once ---- */

static const struct order *_Atomic to_pass_on; /* set: the next wake passes the end on first */
static struct fiber_process *heir_of_ours;
static sem_t returned;

void __real_fbr_client_return_stream(struct fbr_client *g);
void __wrap_fbr_client_return_stream(struct fbr_client *g);
void __wrap_fbr_client_return_stream(struct fbr_client *g)
{
    __real_fbr_client_return_stream(g);
    sem_post(&returned);
}

void __real_fbr_direct_wake(struct fbr_direct *d);
void __wrap_fbr_direct_wake(struct fbr_direct *d);
void __wrap_fbr_direct_wake(struct fbr_direct *d)
{
    const struct order *o = atomic_exchange(&to_pass_on, NULL);

    __real_fbr_direct_wake(d);
    if (!o)
        return;
    CHECK(fiber_process_start(&heir_of_ours, expect_all, o, sizeof(*o), NULL) == 0);
    CHECK(sem_wait(&returned) == 0);
}

/* Talks, and asks for a descriptor; before it leaves the stream for that, another process gets the end, too. */
static int talk_watch_and_pass_on(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *go = connect_queue(&o->report);
    int rc, code;

    CHECK(sem_init(&returned, 0, 0) == 0);
    answer_rounds(p);
    CHECK(get_number(go, LONG_MS, &rc) == 1); /* they are in the stream to us */
    to_pass_on = o;
    CHECK(fiber_pipe_fd(p) >= 0);
    CHECK(heir_of_ours && fiber_process_join(heir_of_ours, LONG_MS) == 0);
    CHECK(fiber_process_exitcode(heir_of_ours, &code) == 0 && code == 0);
    fiber_pipe_close(p);
    return 0;
}

static void test_a_descriptor_while_the_end_is_passed_on(void **state)
{
    struct order o = {.count = 500};
    struct fiber_queue *go = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, talk_watch_and_pass_on, &o);
    talk_rounds(ends[0], ROUNDS);
    for (uint64_t i = 0; i < o.count; i++)
        must(send_number(ends[0], i));
    must(put_number(go, 1));
    join(p);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
}

/* The owner keeps the end that it gave away. */
static void test_the_next_holder_does_not_wait_for_a_dead_one(void **state)
{
    struct order o = {0};
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    uint64_t began;

    open_pipe(ends, 0);
    o.end = address_of(ends[1]);
    p = start(echo, &o, sizeof(o));
    talk_rounds(ends[0], ROUNDS);
    kill_and_join(p);
    p = start(echo, &o, sizeof(o));
    began = now_ms();
    talk_rounds(ends[0], ROUNDS);
    assert_true(now_ms() - began < 4000); /* a recall is overdue after 5 s */
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_pipe_close(ends[1]);
}

static int expect_filled(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_bytes b;

    for (uint64_t i = 0; i < o->count; i++) {
        CHECK(fiber_pipe_recv(p, &b, LONG_MS) == 0);
        CHECK(b.len == o->size && is_filled(&b, i));
        fiber_bytes_free(&b);
    }
    return 0;
}

/* Talks, and lets its own child have the end. */
static int talk_and_give_away(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *go = connect_queue(&o->report);
    struct fiber_process *child;
    int rc, code;

    answer_rounds(p);
    CHECK(get_number(go, LONG_MS, &rc) == 1);
    CHECK(fiber_process_start(&child, expect_filled, o, sizeof(*o), NULL) == 0);
    CHECK(fiber_process_join(child, LONG_MS) == 0);
    CHECK(fiber_process_exitcode(child, &code) == 0 && code == 0);
    fiber_pipe_close(p);
    return 0;
}

/* The stream is full and has ended, and the later messages wait in the queue of the pipe. */
static void test_a_full_stream_is_for_the_next_holder_and_comes_first(void **state)
{
    static char data[65536];
    struct order o = {.count = 200, .size = sizeof(data)};
    struct fiber_queue *go = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, talk_and_give_away, &o);
    talk_rounds(ends[0], ROUNDS);
    for (uint64_t i = 0; i < o.count; i++) {
        fill(data, sizeof(data), i);
        must(fiber_pipe_send(ends[0], data, sizeof(data), LONG_MS));
    }
    must(put_number(go, 1));
    join(p);
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(go);
}

/* ---- Descriptors ---- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1;
}

static int echo_by_fd(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_bytes b;
    int fd, rc;

    answer_rounds(p);
    fd = fiber_pipe_fd(p);
    CHECK(fd >= 0);
    for (;;) {
        CHECK(readable(fd, LONG_MS));
        rc = fiber_pipe_recv(p, &b, LONG_MS);
        if (rc < 0)
            break;
        CHECK(fiber_pipe_send(p, b.data, b.len, -1) == 0);
        fiber_bytes_free(&b);
    }
    CHECK(rc == -EPIPE);
    fiber_pipe_close(p);
    return 0;
}

static void test_a_descriptor_in_the_middle_of_a_conversation(void **state)
{
    struct fiber_pipe *ends[2];
    struct order o = {0};
    struct fiber_process *p;
    int fd;

    open_pipe(ends, 0);
    p = give_end(ends, echo_by_fd, &o);
    talk_rounds(ends[0], ROUNDS);
    for (uint64_t i = 0; i < 5; i++) /* some come back before there is a descriptor */
        must(send_number(ends[0], i));
    assert_int_equal(fiber_pipe_poll(ends[0], LONG_MS), 1);
    fd = fiber_pipe_fd(ends[0]);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(readable(fd, LONG_MS));
        expect_recv(ends[0], i);
    }
    assert_false(readable(fd, 0));
    for (uint64_t i = 0; i < ROUNDS; i++) {
        must(send_number(ends[0], i));
        assert_true(readable(fd, LONG_MS));
        expect_recv(ends[0], i);
    }
    fiber_pipe_close(ends[0]);
    join(p);
}

/* Talks, and sends more than a stream takes. */
static int talk_and_fill(const void *arg, size_t len)
{
    static char data[65536];
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);

    answer_rounds(p);
    for (uint64_t i = 0; i < o->count; i++) {
        fill(data, sizeof(data), i);
        CHECK(fiber_pipe_send(p, data, sizeof(data), LONG_MS) == 0);
    }
    CHECK(put_number(report, 1) == 0);
    fiber_pipe_close(p);
    return 0;
}

/* The later messages wait in the queue of the pipe. */
static void test_a_descriptor_keeps_the_order_of_a_full_stream(void **state)
{
    struct order o = {.count = 150};
    struct fiber_queue *sent = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    struct fiber_bytes b;

    open_pipe(ends, 0);
    p = give_end(ends, talk_and_fill, &o);
    talk_rounds(ends[0], ROUNDS);
    expect_number(sent, 1);
    assert_true(fiber_pipe_fd(ends[0]) >= 0);
    for (uint64_t i = 0; i < o.count; i++) {
        must(fiber_pipe_recv(ends[0], &b, LONG_MS));
        assert_true(is_filled(&b, i));
        fiber_bytes_free(&b);
    }
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(sent);
}

/* Talks, sends some numbers more, and closes its end. */
static int talk_send_and_close(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_queue *report = connect_queue(&o->report);

    answer_rounds(p);
    for (uint64_t i = 0; i < o->count; i++)
        CHECK(send_number(p, i) == 0);
    fiber_pipe_close(p); /* returns once the owner knows */
    CHECK(put_number(report, 1) == 0);
    return 0;
}

static void test_a_descriptor_after_the_other_end_has_gone(void **state)
{
    struct order o = {.count = 20};
    struct fiber_queue *closed = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;
    int fd;

    open_pipe(ends, 0);
    p = give_end(ends, talk_send_and_close, &o);
    talk_rounds(ends[0], ROUNDS);
    expect_number(closed, 1);
    fd = fiber_pipe_fd(ends[0]);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < o.count; i++) {
        assert_true(readable(fd, LONG_MS));
        expect_recv(ends[0], i);
    }
    expect_end(ends[0]);
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(closed);
}

static void test_an_end_is_given_away_after_the_other_end_has_gone(void **state)
{
    struct order o = {.count = 20};
    struct fiber_queue *closed = open_queue(0, &o.report);
    struct fiber_pipe *ends[2];
    struct fiber_process *p;

    open_pipe(ends, 0);
    p = give_end(ends, talk_send_and_close, &o);
    talk_rounds(ends[0], ROUNDS);
    expect_number(closed, 1);
    o.end = address_of(ends[0]);
    join(start(expect_all, &o, sizeof(o)));
    fiber_pipe_close(ends[0]);
    join(p);
    fiber_queue_close(closed);
}

/* ---- Both ends in use here, and one leaves its stream ---- */

#define PIPES 20

struct pipes_order {
    struct fiber_address ends[PIPES], go;
};

struct both_ends {
    struct fiber_pipe *ends[2];
    pthread_barrier_t begin;
    int polled;
};

/* Talks on one pipe after the other, and sends one number more when it may go on. */
static int talk_on_each(const void *arg, size_t len)
{
    const struct pipes_order *o = arg;
    struct fiber_queue *go = connect_queue(&o->go);
    int rc;

    for (uint64_t i = 0; i < PIPES; i++) {
        struct fiber_pipe *p = connect_end(&o->ends[i]);

        for (uint64_t n = 0; n < ROUNDS; n++)
            CHECK(recv_number(p, &rc) == n && send_number(p, n) == 0);
        CHECK(get_number(go, LONG_MS, &rc) == i);
        CHECK(send_number(p, ROUNDS) == 0);
        fiber_pipe_close(p);
    }
    return 0;
}

static void *recv_last(void *arg)
{
    struct both_ends *b = arg;
    int rc;

    pthread_barrier_wait(&b->begin);
    return (void *)(uintptr_t)(recv_number(b->ends[0], &rc) == ROUNDS);
}

static void *poll_once(void *arg)
{
    struct both_ends *b = arg;

    pthread_barrier_wait(&b->begin);
    b->polled = fiber_pipe_poll(b->ends[1], 0);
    return NULL;
}

/* In each round the poll may meet the short time in which the other end leaves the stream. */
static void run_poll_beside(struct both_ends *b, struct fiber_queue *go, uint64_t round)
{
    pthread_t reader, poller;
    struct timespec late;
    void *well;

    talk_rounds(b->ends[0], ROUNDS);
    assert_int_equal(pthread_barrier_init(&b->begin, NULL, 3), 0);
    assert_int_equal(pthread_create(&reader, NULL, recv_last, b), 0);
    assert_int_equal(pthread_create(&poller, NULL, poll_once, b), 0);
    pthread_barrier_wait(&b->begin);
    assert_true(fiber_pipe_fd(b->ends[0]) >= 0);
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += 60;
    if (pthread_timedjoin_np(poller, NULL, &late) != 0)
        fail_msg("a poll with timeout 0 does not return, in round %d", (int)round);
    assert_int_equal(b->polled, 0);
    must(put_number(go, round));
    assert_int_equal(pthread_join(reader, &well), 0);
    assert_non_null(well);
    pthread_barrier_destroy(&b->begin);
}

static void test_a_poll_returns_while_the_other_end_leaves_its_stream(void **state)
{
    static struct both_ends pipes[PIPES]; /* a thread that hangs keeps using them */
    static struct pipes_order o;
    struct fiber_queue *go = open_queue(0, &o.go);
    struct fiber_process *p;

    for (int i = 0; i < PIPES; i++) {
        open_pipe(pipes[i].ends, 0);
        o.ends[i] = address_of(pipes[i].ends[1]);
    }
    p = start(talk_on_each, &o, sizeof(o));
    for (int i = 0; i < PIPES; i++)
        run_poll_beside(&pipes[i], go, (uint64_t)i);
    join(p);
    for (int i = 0; i < PIPES; i++) {
        fiber_pipe_close(pipes[i].ends[0]);
        fiber_pipe_close(pipes[i].ends[1]);
    }
    fiber_queue_close(go);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_conversation_gets_a_stream),
        cmocka_unit_test(test_bursts_of_all_sizes_stay_in_order),
        cmocka_unit_test(test_a_kill_tears_no_message),
        cmocka_unit_test(test_a_frozen_reader_holds_up_its_writer_and_loses_nothing),
        cmocka_unit_test(test_a_fork_child_with_a_copy_of_the_stream_keeps_nothing_open),
        cmocka_unit_test(test_the_owner_gives_its_end_away_with_what_has_come),
        cmocka_unit_test(test_what_one_holder_has_not_read_is_for_the_next),
        cmocka_unit_test(test_what_one_holder_has_not_read_is_not_lost_at_hold_max),
        cmocka_unit_test(test_a_descriptor_while_the_end_is_passed_on),
        cmocka_unit_test(test_the_next_holder_does_not_wait_for_a_dead_one),
        cmocka_unit_test(test_a_full_stream_is_for_the_next_holder_and_comes_first),
        cmocka_unit_test(test_a_descriptor_in_the_middle_of_a_conversation),
        cmocka_unit_test(test_a_descriptor_keeps_the_order_of_a_full_stream),
        cmocka_unit_test(test_a_descriptor_after_the_other_end_has_gone),
        cmocka_unit_test(test_an_end_is_given_away_after_the_other_end_has_gone),
        cmocka_unit_test(test_a_poll_returns_while_the_other_end_leaves_its_stream),
    };

    /* nobody who is stopped is taken for dead, however long the others need */
    if (fiber_init(&argc, &argv) < 0 || fiber_config_set("heartbeat", "1h") < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
