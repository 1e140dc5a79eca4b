/* channel_records_test.c - queues and pipes whose other side is this test itself, which sends and
 * answers records by hand: late, at the worst moment, or more than it may.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>

#include "channel_util.h"

#include "share/direct.h"
#include "share/owner_priv.h"
#include "share/share_priv.h"
#include "tests/support/sanitized.h"
#include "tests/support/sync.h"

#define MIB (1u << 20)
#define HANGS_MS 60000 /* a call that takes so long has hung */

struct order {
    struct fiber_address channel, report, go;
};

/* ---- A user of a channel ---- */

struct user {
    struct fbr_proxy *proxy;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    uint32_t op; /* of the last record */
    uint64_t body[2];
};

static void on_user_record(void *arg, const void *record, size_t len)
{
    struct user *u = arg;
    struct fbr_cur c = fbr_cur(record, len);

    pthread_mutex_lock(&u->lock);
    u->op = fbr_get_u32(&c);
    fbr_get_u32(&c);
    u->body[0] = fbr_get_u64(&c);
    u->body[1] = fbr_get_u64(&c);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

static void on_user_gone(void *arg)
{
}

static const struct fbr_proxy_ops user_ops = {.on_record = on_user_record, .on_gone = on_user_gone};

static void user_open(struct user *u, const struct fiber_address *address, enum fbr_kind kind,
                      struct fbr_address *a)
{
    *u = (struct user){.op = 0};
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->changed, NULL);
    CHECK(fbr_address_get(a, address, kind) == 0);
    CHECK(fbr_proxy_open(&u->proxy, a, &user_ops, u) == 0);
}

/* `more`: it travels with the next one. */
static void user_post_one(struct user *u, uint32_t op, uint32_t lane, const void *body, size_t len,
                          bool more)
{
    const uint32_t head[2] = {op, lane};
    const struct iovec iov[2] = {{(void *)(uintptr_t)head, sizeof(head)},
                                 {(void *)(uintptr_t)body, len}};

    CHECK(fbr_proxy_post(u->proxy, iov, len ? 2 : 1, more) == 0);
}

static void user_post(struct user *u, uint32_t op, uint32_t lane, const void *body, size_t len)
{
    user_post_one(u, op, lane, body, len, false);
}

static uint64_t user_await(struct user *u, uint32_t op)
{
    uint64_t body;

    pthread_mutex_lock(&u->lock);
    while (u->op != op)
        pthread_cond_wait(&u->changed, &u->lock);
    body = u->body[0];
    pthread_mutex_unlock(&u->lock);
    return body;
}

static void user_call(struct user *u, uint32_t op, uint32_t lane)
{
    const uint64_t body[2] = {1, 0};

    user_post(u, op, lane, body, sizeof(body));
    user_await(u, op);
}

/* Asks the owner of a pipe for a stream. NULL: the owner refuses. */
static struct fbr_direct *user_stream(struct user *u, const struct fbr_address *a)
{
    uint8_t token[FBR_DIRECT_TOKEN];
    char path[FBR_DIRECT_PATH];
    struct fbr_buf b = {0};
    struct fbr_direct *d;

    CHECK(fbr_direct_listen(&d, a->url + 5, MIB, path, token) == 0);
    fbr_put(&b, token, sizeof(token));
    fbr_put_str(&b, path);
    user_post(u, FBR_CH_DIRECT, 1, b.data, b.len);
    fbr_buf_fini(&b);
    if (!user_await(u, FBR_CH_DIRECT_IS)) {
        fbr_direct_unref(d);
        return NULL;
    }
    CHECK(fbr_direct_lock(d, UINT64_MAX) == 0 && fbr_direct_open(d) == 0);
    fbr_direct_unlock(d);
    return d;
}

/* Has the owner of a pipe connect to a stream, says later that it sends by the stream, and has sent
 * by then. */
static int stream_late(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *go = connect_queue(&o->go);
    uint64_t number = 7;
    struct fbr_address a;
    struct fbr_direct *d;
    struct user u;
    int rc;

    user_open(&u, &o->channel, FBR_KIND_PIPE, &a);
    user_call(&u, FBR_CH_ATTACH, 1);
    d = user_stream(&u, &a);
    CHECK(d);
    CHECK(put_number(report, 1) == 0 && get_number(go, LONG_MS, &rc) == 1);
    CHECK(fbr_direct_send(d, &number, sizeof(number), UINT64_MAX) == 0);
    user_post(&u, FBR_CH_GO, 1, NULL, 0);
    CHECK(get_number(go, LONG_MS, &rc) == 2);
    fbr_proxy_close(u.proxy);
    fbr_direct_unref(d);
    return 0;
}

static void test_a_stream_that_begins_late_raises_the_descriptor(void **state)
{
    struct pollfd fd = {.events = POLLIN};
    struct fiber_pipe *ends[2];
    struct fiber_queue *report, *go;
    struct fiber_process *p;
    struct fiber_bytes b;
    struct order o;

    report = open_queue(0, &o.report);
    go = open_queue(0, &o.go);
    must(fiber_pipe_open(ends, 0));
    must(fiber_pipe_address(ends[1], &o.channel));
    p = start(stream_late, &o, sizeof(o));
    fiber_pipe_close(ends[1]);
    expect_number(report, 1);
    fd.fd = fiber_pipe_fd(ends[0]);
    assert_true(fd.fd >= 0);
    must(put_number(go, 1));
    assert_int_equal(poll(&fd, 1, HANGS_MS), 1);
    must(fiber_pipe_recv(ends[0], &b, LONG_MS));
    assert_int_equal(*(uint64_t *)b.data, 7);
    fiber_bytes_free(&b);
    must(put_number(go, 2));
    join(p);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(report);
    fiber_queue_close(go);
}

/* Has nothing to return from its stream, and asks for the next stream at once. */
static int return_and_stream(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fbr_direct *first, *second;
    struct fiber_bytes b;
    struct fbr_address a;
    struct user u;
    int rc;

    user_open(&u, &o->channel, FBR_KIND_PIPE, &a);
    user_call(&u, FBR_CH_ATTACH, 1);
    first = user_stream(&u, &a);
    CHECK(first);
    CHECK(put_number(connect_queue(&o->report), 1) == 0);
    CHECK(get_number(connect_queue(&o->go), LONG_MS, &rc) == 1);
    user_await(&u, FBR_CH_DIRECT_END);
    user_post_one(&u, FBR_CH_DIRECT_ENDED, 1, NULL, 0, true);
    second = user_stream(&u, &a);
    if (!second) /* the message was faster */
        return 0;
    CHECK(fbr_direct_lock(second, UINT64_MAX) == 0);
    for (int i = 0; (rc = fbr_direct_take(second, &b)) == -EAGAIN && i < 100; i++)
        fbr_direct_sleep(second, now_ms() + 50);
    CHECK(rc == 0 && *(uint64_t *)b.data == 7);
    fbr_direct_unlock(second);
    fiber_bytes_free(&b);
    fbr_direct_unref(first);
    fbr_direct_unref(second);
    fbr_proxy_close(u.proxy);
    return 0;
}

static void *send_seven(void *end)
{
    const uint64_t number = 7;

    return (void *)(intptr_t)fiber_pipe_send(end, &number, sizeof(number), LONG_MS);
}

/* Another process has the other end for a moment, so messages come back. When none does any more, a
 * stream begins: a send that has waited for them goes that way, too. */
static void test_a_send_that_waited_goes_by_the_new_stream(void **state)
{
    struct fiber_pipe *ends[2];
    struct fiber_queue *report, *go;
    struct fiber_process *p;
    struct fbr_owner *owner;
    struct fbr_address a;
    struct order o;
    pthread_t thread;
    void *rc;

    report = open_queue(0, &o.report);
    go = open_queue(0, &o.go);
    must(fiber_pipe_open(ends, 0));
    must(fiber_pipe_address(ends[1], &o.channel));
    p = start(return_and_stream, &o, sizeof(o));
    fiber_pipe_close(ends[1]);
    expect_number(report, 1);
    must(fbr_address_get(&a, &o.channel, FBR_KIND_PIPE));
    owner = fbr_owner_local(&a);
    pthread_mutex_lock(&owner->lock);
    fbr_owner_second_holder(owner);
    pthread_mutex_unlock(&owner->lock);
    assert_int_equal(pthread_create(&thread, NULL, send_seven, ends[0]), 0);
    let_time_pass(20); /* it waits by then; otherwise this shows nothing */
    must(put_number(go, 1));
    pthread_join(thread, &rc);
    assert_null(rc);
    join(p);
    fbr_owner_release(owner);
    fiber_pipe_close(ends[0]);
    fiber_queue_close(report);
    fiber_queue_close(go);
}

/* Numbers its batches as the owner numbers its own messages, and puts more than hold_max. */
static int put_with_high_numbers(const void *arg, size_t len)
{
    static struct {
        uint64_t batch;
        uint32_t count, flags;
        uint64_t len;
        uint8_t bytes[65536];
    } puts = {.count = 1, .len = sizeof(puts.bytes)};
    const struct order *o = arg;
    struct fbr_address a;
    struct user u;

    user_open(&u, &o->channel, FBR_KIND_QUEUE, &a);
    for (uint64_t i = 1; i <= 400; i++) {
        puts.batch = FBR_QUEUE_OURS / FBR_CH_BATCH_MAX + i;
        user_post(&u, FBR_CH_PUTS, 0, &puts, sizeof(puts));
    }
    user_call(&u, FBR_CH_SIZE, 0);
    fbr_proxy_close(u.proxy);
    return 0;
}

static void test_no_number_of_a_batch_evades_the_limit_of_memory(void **state)
{
    struct order o;
    struct fiber_queue *q = open_queue(0, &o.channel);

    join(start(put_with_high_numbers, &o, sizeof(o)));
    assert_true(fbr_rt()->held.bytes <= 8 * MIB);
    fiber_queue_close(q);
}

/* Takes a message ahead, and never answers the recall. */
static int take_ahead_and_hang(const void *arg, size_t len)
{
    const struct {
        uint64_t taken;
        uint32_t hungry, want;
        uint64_t probe;
    } ask = {0, 1, 4, 1};
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report), *go = connect_queue(&o->go);
    struct fbr_address a;
    struct user u;
    int rc;

    user_open(&u, &o->channel, FBR_KIND_QUEUE, &a);
    user_post(&u, FBR_CH_ASK, 0, &ask, sizeof(ask));
    user_await(&u, FBR_CH_EMPTY);
    CHECK(put_number(report, 1) == 0 && get_number(go, LONG_MS, &rc) == 1);
    fbr_proxy_close(u.proxy);
    return 0;
}

static void *ask_size(void *q)
{
    size_t n;

    must(fiber_queue_size(q, &n));
    return NULL;
}

struct getter {
    struct fiber_queue *q;
    atomic_int tid;
};

static void *get_one(void *arg)
{
    struct getter *g = arg;
    int rc;

    atomic_store(&g->tid, gettid());
    return (void *)(uintptr_t)(get_number(g->q, LONG_MS, &rc) == 9);
}

/* Two threads ask for the size while a user does not answer. The second still waits when the user
 * is given up, and then may not take the signal for a message. */
static void test_a_thread_that_counts_takes_no_signal_of_a_get(void **state)
{
    struct timespec late;
    struct order o;
    struct getter g = {.q = open_queue(0, &o.channel)};
    struct fiber_queue *report = open_queue(0, &o.report), *go = open_queue(0, &o.go);
    pthread_t first, second, getter;
    struct fiber_process *p;
    void *well;

    for (uint64_t i = 0; i < 4; i++)
        must(put_number(g.q, i));
    p = start(take_ahead_and_hang, &o, sizeof(o));
    expect_number(report, 1);
    assert_int_equal(pthread_create(&first, NULL, ask_size, g.q), 0);
    let_time_pass(OVERDUE_MS - 1500);
    assert_int_equal(pthread_create(&second, NULL, ask_size, g.q), 0);
    assert_int_equal(pthread_join(first, NULL), 0);
    assert_int_equal(pthread_create(&getter, NULL, get_one, &g), 0);
    while (!atomic_load(&g.tid) || !sleeps(atomic_load(&g.tid)))
        sched_yield();
    must(put_number(g.q, 9));
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += HANGS_MS / 1000;
    if (pthread_timedjoin_np(getter, &well, &late) != 0)
        fail_msg("a get does not return, though there is a message");
    assert_non_null(well);
    assert_int_equal(pthread_join(second, NULL), 0);
    must(put_number(go, 1));
    join(p);
    fiber_queue_close(g.q);
    fiber_queue_close(report);
    fiber_queue_close(go);
}

/* ---- An owner of a channel ---- */

#define END_ONE 2 /* a flag of a pipe's address */
#define RECORDS 64

struct owner {
    struct fbr_object *object;
    struct fiber_address address;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    uint64_t peer;
    uint32_t ops[RECORDS], n;
    uint32_t hungry; /* the highest number in an ASK */
    bool holds;      /* answers no probe for now */
    uint64_t probe;  /* of the last ASK that has one */
    uint64_t from;   /* of the last RETURNED */
    int returned;    /* how many came */
    uint8_t token[FBR_DIRECT_TOKEN];
    char path[FBR_DIRECT_PATH];
};

static void owner_send(struct owner *o, uint32_t op, uint32_t lane, uint64_t first, uint64_t second)
{
    const struct {
        uint32_t op, lane;
        uint64_t body[2];
    } r = {op, lane, {first, second}};
    const struct iovec iov = {(void *)(uintptr_t)&r, sizeof(r)};

    fbr_object_send(o->object, o->peer, &iov, 1);
}

static void on_owner_record(void *arg, uint64_t peer, const void *record, size_t len)
{
    struct fbr_cur c = fbr_cur(record, len);
    uint32_t op = fbr_get_u32(&c), lane = fbr_get_u32(&c), hungry;
    struct fbr_cur stream = c;
    uint64_t first = fbr_get_u64(&c), probe;
    struct owner *o = arg;

    pthread_mutex_lock(&o->lock);
    o->peer = peer;
    if (o->n < RECORDS)
        o->ops[o->n++] = op;
    if (op == FBR_CH_ATTACH || op == FBR_CH_LEAVE || op == FBR_CH_SIZE)
        owner_send(o, op, lane, first, 0);
    if (op == FBR_CH_DIRECT) {
        memcpy(o->token, fbr_get(&stream, sizeof(o->token)), sizeof(o->token));
        fbr_get_str(&stream, o->path, sizeof(o->path));
    }
    if (op == FBR_CH_RETURNED) {
        o->from = first;
        o->returned++;
        if (first == 1) /* the message came back */
            owner_send(o, FBR_CH_DELIVER, lane, 2, 0);
    }
    if (op == FBR_CH_ASK) {
        hungry = fbr_get_u32(&c);
        fbr_get_u32(&c);
        probe = fbr_get_u64(&c);
        o->hungry = hungry > o->hungry ? hungry : o->hungry;
        o->probe = probe ? probe : o->probe;
        if (probe && !o->holds)
            owner_send(o, FBR_CH_EMPTY, lane, probe, 0);
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static void on_owner_gone(void *arg, uint64_t peer)
{
}

static const struct fbr_object_ops owner_ops = {.on_record = on_owner_record,
                                                .on_gone = on_owner_gone};

static void owner_open(struct owner *o, enum fbr_kind kind, uint8_t flags)
{
    *o = (struct owner){.n = 0};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    must(fbr_object_open(&o->object, &owner_ops, o));
    must(fbr_address_here(fbr_object_id(o->object), kind, flags, &o->address));
}

static bool owner_has(const struct owner *o, uint32_t op)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->ops[i] == op)
            return true;
    return false;
}

static void owner_await(struct owner *o, uint32_t op)
{
    pthread_mutex_lock(&o->lock);
    while (!owner_has(o, op))
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

struct ender {
    struct fiber_pipe *end;
    const struct fiber_address *address;
    atomic_int tid, done;
};

static void *close_end(void *arg)
{
    struct ender *e = arg;

    atomic_store(&e->tid, gettid());
    fiber_pipe_close(e->end);
    atomic_store(&e->done, 1);
    return NULL;
}

static void *open_end(void *arg)
{
    struct ender *e = arg;

    atomic_store(&e->tid, gettid());
    CHECK(fiber_pipe_connect(&e->end, e->address) == 0);
    atomic_store(&e->done, 1);
    return NULL;
}

static void await_sleep(struct ender *e)
{
    while (!atomic_load(&e->done) && (!atomic_load(&e->tid) || !sleeps(atomic_load(&e->tid))))
        sched_yield();
}

/* An end of the pipe that asks for a stream. */
static struct fiber_pipe *ask_for_stream(const struct fiber_address *address)
{
    struct fiber_pipe *end;
    struct fiber_bytes b;

    CHECK(fiber_pipe_connect(&end, address) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(fiber_pipe_send(end, "x", 1, LONG_MS) == 0);
    CHECK(fiber_pipe_recv(end, &b, 1) == -ETIMEDOUT);
    return end;
}

/* Asks for a stream, closes the end before the answer comes, and opens it again meanwhile. */
static int close_and_open(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report);
    struct ender closer = {.end = NULL}, opener = {.address = &o->channel};
    pthread_t threads[2];

    CHECK(fiber_config_set("linger", "1h") == 0);
    closer.end = ask_for_stream(&o->channel);
    CHECK(pthread_create(&threads[0], NULL, close_end, &closer) == 0);
    await_sleep(&closer);
    CHECK(pthread_create(&threads[1], NULL, open_end, &opener) == 0);
    await_sleep(&opener);
    CHECK(put_number(report, 1) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    keep(opener.end);
    return 0;
}

static void test_an_end_that_closes_is_opened_again_after_it_has_left(void **state)
{
    uint32_t left = 0, attached = 0;
    struct fiber_queue *report;
    struct fiber_process *p;
    struct order order;
    struct owner o;

    report = open_queue(0, &order.report);
    owner_open(&o, FBR_KIND_PIPE, END_ONE);
    order.channel = o.address;
    p = start(close_and_open, &order, sizeof(order));
    expect_number(report, 1);
    pthread_mutex_lock(&o.lock);
    assert_true(owner_has(&o, FBR_CH_DIRECT));
    owner_send(&o, FBR_CH_DIRECT_IS, 1, 0, 0);
    pthread_mutex_unlock(&o.lock);
    join(p);
    for (uint32_t i = 0; i < o.n; i++) {
        if (o.ops[i] == FBR_CH_ATTACH && attached++ > 0)
            assert_int_equal(left, 1);
        left += o.ops[i] == FBR_CH_LEAVE;
    }
    assert_int_equal(attached, 2);
    fbr_object_close(o.object);
    fiber_queue_close(report);
}

static int watch_and_get(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *end = ask_for_stream(&o->channel);
    struct pollfd fd = {.fd = fiber_pipe_fd(end), .events = POLLIN};
    struct fiber_bytes b;

    keep(end);
    CHECK(fd.fd >= 0 && poll(&fd, 1, HANGS_MS) == 1);
    CHECK(fiber_pipe_recv(end, &b, LONG_MS) == 0 && *(uint64_t *)b.data == 7);
    fiber_bytes_free(&b);
    return 0;
}

/* The owner sends by the stream before its answer arrives, and the user watches the end by then. */
static void test_a_message_of_a_stream_that_is_not_wanted_raises_the_descriptor(void **state)
{
    uint64_t number = 7;
    struct fiber_process *p;
    struct fbr_direct *d;
    struct order order;
    struct owner o;

    owner_open(&o, FBR_KIND_PIPE, END_ONE);
    order.channel = o.address;
    p = start(watch_and_get, &order, sizeof(order));
    owner_await(&o, FBR_CH_WATCH);
    assert_int_equal(fbr_direct_connect(&d, o.path, o.token, MIB), 0);
    assert_int_equal(fbr_direct_send(d, &number, sizeof(number), UINT64_MAX), 0);
    owner_send(&o, FBR_CH_DIRECT_IS, 1, 1, 0);
    join(p);
    fbr_direct_unref(d);
    fbr_object_close(o.object);
}

static int get_late(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->channel);
    struct fiber_bytes b;

    CHECK(fiber_queue_get(q, &b, LONG_MS) == 0);
    fiber_bytes_free(&b);
    return 0;
}

/* The thread has waited so long that the message is in doubt, and the message is recalled before
 * the thread wakes up; if not, it comes again. */
static void test_a_thread_with_a_message_in_doubt_is_not_hungry(void **state)
{
    struct fiber_process *p;
    struct order order;
    struct owner o;

    owner_open(&o, FBR_KIND_QUEUE, 0);
    order.channel = o.address;
    p = start(get_late, &order, sizeof(order));
    owner_await(&o, FBR_CH_ASK);
    let_time_pass(1500);
    owner_send(&o, FBR_CH_READY, 0, 0, 0); /* the others travel together, behind this one */
    owner_send(&o, FBR_CH_DELIVER, 0, 1, 0);
    owner_send(&o, FBR_CH_RECALL, 0, 0, 0);
    join(p);
    assert_int_equal(o.hungry, 1);
    fbr_object_close(o.object);
}

/* While the thread waits for the answer to its doubt, the next message comes and is recalled. The
 * first one, which was reported as taken, stays. */
static void test_a_message_in_doubt_outlasts_the_next_recall(void **state)
{
    struct fiber_process *p;
    struct order order;
    bool kept;
    struct owner o;

    owner_open(&o, FBR_KIND_QUEUE, 0);
    o.holds = true;
    order.channel = o.address;
    p = start(get_late, &order, sizeof(order));
    owner_await(&o, FBR_CH_ASK);
    let_time_pass(1500);
    owner_send(&o, FBR_CH_READY, 0, 0, 0);
    owner_send(&o, FBR_CH_DELIVER, 0, 1, 0);
    owner_send(&o, FBR_CH_RECALL, 0, 0, 0);
    pthread_mutex_lock(&o.lock);
    while (!o.returned || !o.probe)
        pthread_cond_wait(&o.changed, &o.lock);
    kept = o.from == 2; /* otherwise the thread woke up before the recall */
    pthread_mutex_unlock(&o.lock);
    if (kept) {
        owner_send(&o, FBR_CH_DELIVER, 0, 2, 0);
        owner_send(&o, FBR_CH_RECALL, 0, 0, 0);
    }
    pthread_mutex_lock(&o.lock);
    while (kept && o.returned < 2)
        pthread_cond_wait(&o.changed, &o.lock);
    assert_true(!kept || o.from == 2);
    owner_send(&o, FBR_CH_EMPTY, 0, o.probe, 0);
    pthread_mutex_unlock(&o.lock);
    join(p);
    fbr_object_close(o.object);
}

/* ---- A record that comes while its receiver opens ---- */

static _Thread_local pthread_mutex_t *slow;

#if !SANITIZED /* ThreadSanitizer must see each call itself */
/* Replaces the function of libc in this program. */
int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static int (*real)(pthread_mutex_t *);
    int rc;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    rc = real(lock);
    if (lock == slow)
        let_time_pass(200);
    return rc;
}
#endif

static struct fbr_proxy *opened;
static atomic_int records, early;

static void on_record_of_opened(void *user, const void *record, size_t len)
{
    if (!__atomic_load_n(&opened, __ATOMIC_ACQUIRE))
        atomic_fetch_add(&early, 1);
    atomic_fetch_add(&records, 1);
}

static int open_slowly(const void *arg, size_t len)
{
    static const struct fbr_proxy_ops ops = {.on_record = on_record_of_opened,
                                             .on_gone = on_user_gone};
    static const uint64_t ask[3];
    const struct order *o = arg;
    struct fiber_queue *report = connect_queue(&o->report);
    struct fbr_address a;
    struct user u;

    user_open(&u, &o->channel, FBR_KIND_QUEUE, &a);
    user_post(&u, FBR_CH_ASK, 0, ask, sizeof(ask));
    fbr_proxy_close(u.proxy);
    slow = &fbr_share()->lock;
    CHECK(fbr_proxy_open(&opened, &a, &ops, NULL) == 0);
    slow = NULL;
    while (!atomic_load(&records))
        sched_yield();
    CHECK(atomic_load(&early) == 0);
    CHECK(put_number(report, 1) == 0);
    return 0;
}

/* An answer to a handle that was closed may reach the next handle at once. */
static void test_no_record_comes_before_the_receiver_knows_its_proxy(void **state)
{
    struct fiber_queue *report;
    struct fiber_process *p;
    struct order order;
    struct owner o;
    int rc;

    report = open_queue(0, &order.report);
    owner_open(&o, FBR_KIND_QUEUE, 0);
    order.channel = o.address;
    p = start(open_slowly, &order, sizeof(order));
    owner_await(&o, FBR_CH_ASK);
    do
        owner_send(&o, FBR_CH_READY, 0, 0, 0);
    while (get_number(report, 1, &rc) == UINT64_MAX && fiber_process_join(p, 0) < 0);
    join(p);
    fbr_object_close(o.object);
    fiber_queue_close(report);
}

/* Waits in slices, as a program does that looks for signals. */
static int get_in_slices(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_queue *q = connect_queue(&o->channel);
    int rc;

    for (int i = 0; i < 20; i++)
        CHECK(get_number(q, 10, &rc) == UINT64_MAX && rc == -ETIMEDOUT);
    CHECK(put_number(connect_queue(&o->report), 1) == 0);
    return 0;
}

static void test_a_wait_in_slices_asks_about_once(void **state)
{
    struct fiber_queue *report;
    struct fiber_process *p;
    struct order order;
    struct owner o;
    int asks = 0;

    report = open_queue(0, &order.report);
    owner_open(&o, FBR_KIND_QUEUE, 0);
    order.channel = o.address;
    p = start(get_in_slices, &order, sizeof(order));
    expect_number(report, 1);
    pthread_mutex_lock(&o.lock);
    for (uint32_t i = 0; i < o.n; i++)
        asks += o.ops[i] == FBR_CH_ASK;
    pthread_mutex_unlock(&o.lock);
    assert_in_range(asks, 1, 20); /* two for each slice that is interrupted for a while */
    join(p);
    fbr_object_close(o.object);
    fiber_queue_close(report);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wait_in_slices_asks_about_once),
        cmocka_unit_test(test_a_stream_that_begins_late_raises_the_descriptor),
        cmocka_unit_test(test_a_send_that_waited_goes_by_the_new_stream),
        cmocka_unit_test(test_no_number_of_a_batch_evades_the_limit_of_memory),
        cmocka_unit_test(test_a_thread_that_counts_takes_no_signal_of_a_get),
        cmocka_unit_test(test_an_end_that_closes_is_opened_again_after_it_has_left),
        cmocka_unit_test(test_a_message_of_a_stream_that_is_not_wanted_raises_the_descriptor),
        cmocka_unit_test(test_a_thread_with_a_message_in_doubt_is_not_hungry),
        cmocka_unit_test(test_a_message_in_doubt_outlasts_the_next_recall),
        cmocka_unit_test(test_no_record_comes_before_the_receiver_knows_its_proxy),
    };

    setenv("FIBER_HOLD_MAX", "8Mi", 1);
    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
