/* oom_calls_test.c - memory that is short in the middle of each call on a queue, a pipe or a store:
 * it succeeds, or fails with -ENOMEM or (its connection is lost) -EPIPE; what was said to be put or
 * sent is there, and nobody waits for ever.
 *
 * Each round has a new object, in this process or in a manager's, and new handles. The manager has
 * memory, and says what came.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "channel_util.h"
#include "tests/support/children.h"
#include "tests/support/refuse.h"

#define LARGE 300000 /* longer than what travels in one piece */
#define MESSAGES 3   /* the last one is large */

static char text[LARGE];

static size_t len_of(int i)
{
    return i == MESSAGES - 1 ? LARGE : (size_t)i + 1;
}

/* Message i begins with i. */
static const void *message(int i)
{
    text[0] = (char)i;
    return text;
}

/* Which message this is; -1: none of ours. Frees it. */
static int which(struct fiber_bytes *b)
{
    const unsigned char *data = b->data;
    int i = b->len ? data[0] : -1;

    if (i >= MESSAGES || (i >= 0 && b->len != len_of(i)))
        i = -1;
    fiber_bytes_free(b);
    return i;
}

/* ---- The other side ---- */

struct other {
    struct fiber_queue *queue;
    struct fiber_pipe *ends[2];
};

static int open_other(void **state, const void *arg, size_t len)
{
    return (*state = calloc(1, sizeof(struct other))) ? 0 : -ENOMEM;
}

static int open_pipe(struct other *o, struct fiber_reply *reply)
{
    struct fiber_address a;
    int rc = fiber_pipe_open(o->ends, 0);

    for (int i = 0; rc == 0 && i < MESSAGES; i++)
        rc = fiber_pipe_send(o->ends[0], message(i), len_of(i), LONG_MS);
    if (rc == 0)
        rc = fiber_pipe_address(o->ends[1], &a);
    if (rc == 0)
        fiber_pipe_close(o->ends[1]); /* it is the other process's alone */
    return rc < 0 ? rc : fiber_reply_write(reply, &a, sizeof(a));
}

#define ROUNDS 50 /* of a conversation, after which a pipe has a stream */

static int open_silent_pipe(struct other *o, struct fiber_reply *reply)
{
    struct fiber_address a;
    int rc = fiber_pipe_open(o->ends, 0);

    if (rc == 0)
        rc = fiber_pipe_address(o->ends[1], &a);
    if (rc == 0)
        fiber_pipe_close(o->ends[1]);
    return rc < 0 ? rc : fiber_reply_write(reply, &a, sizeof(a));
}

/* Answers ROUNDS messages, and sends ours. */
static int answer_and_send(struct fiber_pipe *end)
{
    struct fiber_bytes b;
    int rc = 0;

    for (int i = 0; rc == 0 && i < ROUNDS; i++) {
        rc = fiber_pipe_recv(end, &b, LONG_MS);
        fiber_bytes_free(&b);
        if (rc == 0)
            rc = fiber_pipe_send(end, "", 0, LONG_MS);
    }
    for (int i = 0; rc == 0 && i < MESSAGES; i++)
        rc = fiber_pipe_send(end, message(i), len_of(i), LONG_MS);
    return rc;
}

/* How many messages came by the pipe, until the other end was gone; they come in order. */
static int drain_pipe(struct other *o, struct fiber_reply *reply)
{
    struct fiber_bytes b;
    int n = 0, rc;

    while ((rc = fiber_pipe_recv(o->ends[0], &b, LONG_MS)) == 0)
        if (which(&b) != n++)
            return -EBADMSG;
    fiber_pipe_close(o->ends[0]);
    return rc != -EPIPE ? rc : fiber_reply_write(reply, &n, sizeof(n));
}

static int call_other(void *state, const char *method, const void *in, size_t len,
                      struct fiber_reply *reply)
{
    struct other *o = state;
    struct fiber_address a;
    int rc;

    if (strcmp(method, "pipe") == 0)
        return open_pipe(o, reply);
    if (strcmp(method, "silent pipe") == 0)
        return open_silent_pipe(o, reply);
    if (strcmp(method, "talk") == 0)
        return answer_and_send(o->ends[0]);
    if (strcmp(method, "drain") == 0)
        return drain_pipe(o, reply);
    fiber_queue_close(o->queue);
    o->queue = NULL;
    if (strcmp(method, "queue") != 0)
        return 0;
    rc = fiber_queue_open(&o->queue, 0);
    if (rc == 0)
        rc = fiber_queue_address(o->queue, &a);
    return rc < 0 ? rc : fiber_reply_write(reply, &a, sizeof(a));
}

static void close_other(void *state)
{
    struct other *o = state;

    fiber_queue_close(o->queue);
    free(o);
}

static const struct fiber_class others = {
    .size = sizeof(others), .open = open_other, .call = call_other, .close = close_other};

static struct fiber_manager *owner;
static struct fiber_address owner_address;

static int start_owner(void **state)
{
    return fiber_manager_start(&owner, &others, NULL, 0, NULL) ||
           fiber_manager_address(owner, &owner_address);
}

static int end_owner(void **state)
{
    fiber_manager_close(owner);
    return 0;
}

/* Asks it, by a connection that has lost no memory yet. */
static void ask(const char *method, void *out, size_t len)
{
    struct fiber_bytes b = {NULL, 0};
    struct fiber_manager *m;

    must(fiber_manager_connect(&m, &owner_address));
    must(fiber_manager_call(m, method, NULL, 0, &b, LONG_MS));
    assert_int_equal(b.len, len);
    if (len)
        memcpy(out, b.data, len);
    fiber_bytes_free(&b);
    fiber_manager_close(m);
}

/* ---- Queues ---- */

/* What happened to each message: whether its put answered 0, how often it was got. */
struct ledger {
    int put[MESSAGES], got[MESSAGES];
    bool flushed, lost; /* lost: something failed, and maybe the connection with it */
};

static int use_queue(struct fiber_queue *q, struct ledger *l)
{
    struct fiber_bytes b;
    size_t n;
    int rc = 0;

    for (int i = 0; rc == 0 && i < MESSAGES; i++) {
        rc = fiber_queue_put(q, message(i), len_of(i), LONG_MS);
        l->put[i] = rc == 0;
    }
    if (rc == 0)
        rc = fiber_queue_flush(q, LONG_MS);
    l->flushed = rc == 0;
    if (rc == 0)
        rc = fiber_queue_size(q, &n);
    if (rc == 0)
        rc = fiber_queue_get(q, &b, LONG_MS);
    if (rc == 0) {
        int i = which(&b);

        assert_int_equal(i, 0);
        l->got[i]++;
    }
    return rc == 0 ? fiber_queue_shut(q) : rc;
}

/* Takes what is left. All that was put and has reached the owner comes, once. */
static void check_queue(struct fiber_queue *q, struct ledger *l)
{
    struct fiber_bytes b;
    int rc;

    must(fiber_queue_shut(q));
    while ((rc = fiber_queue_get(q, &b, LONG_MS)) == 0) {
        int i = which(&b);

        assert_true(i >= 0);
        l->got[i]++;
    }
    assert_int_equal(rc, -EPIPE);
    for (int i = 0; i < MESSAGES; i++) {
        /* What was got by a connection that was lost before it said so comes again. */
        assert_true(l->got[i] <= (l->lost ? 2 : 1));
        if (l->put[i] && l->flushed)
            assert_true(l->got[i] >= 1);
    }
}

static void test_a_queue_of_this_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_queue *q = NULL, *again = NULL;
        struct ledger l = {0};
        struct fiber_address a;
        int rc;

        begin_refusing(k);
        rc = fiber_queue_open(&q, 10);
        if (rc == 0)
            rc = fiber_queue_address(q, &a);
        if (rc == 0)
            rc = fiber_queue_connect(&again, &a);
        if (rc == 0)
            rc = use_queue(again, &l);
        fiber_queue_close(again);
        more = end_refusing(k, rc);
        l.flushed = true; /* what is put here is there at once */
        if (q)
            check_queue(q, &l);
        begin_refusing(k);
        fiber_queue_close(q);
        refuse_at = 0;
    }
}

/* By another connection; then its owner closes it. */
static void check_at(const struct fiber_address *a, struct ledger *l)
{
    struct fiber_queue *q;

    must(fiber_queue_connect(&q, a));
    check_queue(q, l);
    fiber_queue_close(q);
    ask("close", NULL, 0);
}

static void test_a_queue_of_another_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct ledger l = {0};
        struct fiber_address a;
        struct fiber_queue *q = NULL;
        int rc;

        ask("queue", &a, sizeof(a));
        begin_refusing(k);
        rc = fiber_queue_connect(&q, &a);
        if (rc == 0)
            rc = use_queue(q, &l);
        fiber_queue_close(q);
        l.lost = true; /* maybe at its close */
        more = end_refusing(k, rc);
        check_at(&a, &l);
    }
}

/* What was put arrives though nobody waits for it. */
static void test_a_queue_is_put_to_and_closed_at_once(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct ledger l = {0};
        struct fiber_address a;
        struct fiber_queue *q = NULL;
        int rc;

        ask("queue", &a, sizeof(a));
        must(fiber_queue_connect(&q, &a));
        begin_refusing(k);
        rc = fiber_queue_put(q, message(MESSAGES - 1), LARGE, LONG_MS);
        more = end_refusing(k, rc);
        l.put[MESSAGES - 1] = l.flushed = rc == 0;
        fiber_queue_close(q);
        check_at(&a, &l);
    }
}

/* ---- Pipes ---- */

static int send_all(struct fiber_pipe *end, int *sent)
{
    int rc = 0;

    for (*sent = 0; *sent < MESSAGES; ++*sent)
        if ((rc = fiber_pipe_send(end, message(*sent), len_of(*sent), LONG_MS)) < 0)
            break;
    return rc;
}

static int recv_all(struct fiber_pipe *end, int *received)
{
    struct fiber_bytes b;
    int rc = 0;

    for (*received = 0; *received < MESSAGES; ++*received) {
        rc = fiber_pipe_poll(end, LONG_MS);
        if (rc >= 0)
            assert_int_equal(rc, 1);
        if (rc >= 0)
            rc = fiber_pipe_recv(end, &b, LONG_MS);
        if (rc < 0)
            break;
        assert_int_equal(which(&b), *received);
    }
    return rc;
}

/* An end whose address was given out is whose who connected it. */
static void test_a_pipe_of_this_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_pipe *ends[2] = {NULL, NULL}, *moved = NULL;
        struct fiber_address a;
        int rc, given = -1, sent = 0, received = 0, rest;

        begin_refusing(k);
        rc = fiber_pipe_open(ends, FIBER_PIPE_ONEWAY);
        if (rc == 0)
            rc = given = fiber_pipe_address(ends[1], &a);
        if (rc == 0)
            rc = fiber_pipe_connect(&moved, &a);
        if (rc == 0)
            rc = send_all(moved, &sent);
        if (rc == 0)
            rc = recv_all(ends[0], &received);
        more = end_refusing(k, rc);
        if (given == 0 && !moved)
            must(fiber_pipe_connect(&moved, &a));
        begin_refusing(k);
        fiber_pipe_close(moved);
        fiber_pipe_close(ends[1]);
        refuse_at = 0;
        for (rest = 0; ends[0]; rest++) {
            struct fiber_bytes b;

            rc = fiber_pipe_recv(ends[0], &b, LONG_MS);
            if (rc < 0)
                break;
            assert_int_equal(which(&b), received + rest);
        }
        assert_int_equal(received + rest, sent);
        fiber_pipe_close(ends[0]);
    }
}

static int watch_pipe(struct fiber_pipe *end)
{
    int fd = fiber_pipe_fd(end);

    return fd < 0 ? fd : 0;
}

static void test_a_pipe_of_another_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_pipe *end = NULL;
        struct fiber_address a;
        int rc, sent = 0, received = 0, came = -1;
        bool well;

        ask("pipe", &a, sizeof(a));
        begin_refusing(k);
        rc = fiber_pipe_connect(&end, &a);
        if (rc == 0)
            rc = watch_pipe(end);
        if (rc == 0)
            rc = recv_all(end, &received);
        if (rc == 0)
            rc = send_all(end, &sent);
        well = rc == 0;
        more = end_refusing(k, rc);
        if (!end) /* it has not moved: somebody has to take it, and let go */
            must(fiber_pipe_connect(&end, &a));
        fiber_pipe_close(end);
        ask("drain", &came, sizeof(came));
        assert_true(came <= sent + 1);
        if (well)
            assert_int_equal(came, MESSAGES);
    }
}

static void talk(struct fiber_pipe *end)
{
    struct fiber_bytes b;

    for (int i = 0; i < ROUNDS; i++) {
        must(fiber_pipe_send(end, "", 0, LONG_MS));
        must(fiber_pipe_recv(end, &b, LONG_MS));
        fiber_bytes_free(&b);
    }
}

/* Asks for the descriptor of the end; whether there may be a next request to refuse. Then all that
 * came by the stream is still there. */
static bool watch_stream(struct fiber_pipe *end, unsigned k)
{
    int received;
    bool more;

    begin_refusing(k);
    more = end_refusing(k, watch_pipe(end));
    must(recv_all(end, &received));
    return more;
}

static int talk_and_leave(const void *arg, size_t len)
{
    struct fiber_pipe *end;

    CHECK(fiber_pipe_connect(&end, arg) == 0);
    CHECK(answer_and_send(end) == 0);
    fiber_pipe_close(end);
    return 0;
}

static void test_a_stream_to_this_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_pipe *ends[2];
        struct fiber_process *p;
        struct fiber_address a;

        must(fiber_pipe_open(ends, 0));
        must(fiber_pipe_address(ends[1], &a));
        p = start(talk_and_leave, &a, sizeof(a));
        fiber_pipe_close(ends[1]);
        talk(ends[0]);
        join(p);
        more = watch_stream(ends[0], k);
        fiber_pipe_close(ends[0]);
    }
}

static void test_a_stream_from_another_process(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_manager *m;
        struct fiber_future *f;
        struct fiber_pipe *end;
        struct fiber_address a;
        int came;

        ask("silent pipe", &a, sizeof(a));
        must(fiber_pipe_connect(&end, &a));
        must(fiber_manager_connect(&m, &owner_address));
        must(fiber_manager_call_async(m, "talk", NULL, 0, &f));
        talk(end);
        must(fiber_future_get(f, NULL, LONG_MS));
        fiber_future_close(f);
        fiber_manager_close(m);
        more = watch_stream(end, k);
        fiber_pipe_close(end);
        ask("drain", &came, sizeof(came));
    }
}

/* ---- Stores ---- */

struct round {
    char name[32]; /* of all that this round uses */
    int pushed, popped;
};

static int use_values(struct fiber_store *s, const char *name)
{
    struct fiber_bytes b = {NULL, 0};
    int rc = fiber_store_swap(s, name, NULL, 0, "one", 3, NULL);

    if (rc == 0)
        rc = fiber_store_swap(s, name, "one", 3, "two", 3, NULL);
    if (rc == 0) {
        rc = fiber_store_swap(s, name, "other", 5, "three", 5, &b);
        if (rc == -ESTALE) {
            assert_int_equal(b.len, 3);
            assert_memory_equal(b.data, "two", 3);
            rc = 0;
        } else {
            assert_true(rc < 0);
        }
    }
    fiber_bytes_free(&b);
    return rc == 0 ? fiber_store_delete(s, name) : rc;
}

static int use_list(struct fiber_store *s, struct round *r)
{
    struct fiber_bytes b = {NULL, 0};
    size_t n;
    int rc = 0;

    for (int i = 0; rc == 0 && i < MESSAGES; i++) {
        rc = fiber_store_push(s, r->name, message(i), len_of(i));
        r->pushed += rc == 0;
    }
    if (rc == 0 && (rc = fiber_store_length(s, r->name, &n)) == 0)
        assert_int_equal(n, MESSAGES);
    if (rc == 0 && (rc = fiber_store_at(s, r->name, MESSAGES - 1, &b)) == 0)
        assert_int_equal(which(&b), MESSAGES - 1);
    if (rc == 0 && (rc = fiber_store_pop(s, r->name, &b, LONG_MS)) == 0) {
        assert_int_equal(which(&b), 0);
        r->popped++;
    }
    return rc;
}

static int use_sync(struct fiber_store *s, const char *name)
{
    int index = -1, rc = fiber_store_acquire(s, name, 1, LONG_MS);

    if (rc == 0)
        rc = fiber_store_release(s, name);
    if (rc == 0)
        rc = fiber_store_acquire(s, name, 1, LONG_MS); /* given back at its close */
    if (rc == 0)
        rc = fiber_store_event_set(s, name);
    if (rc == 0)
        rc = fiber_store_event_wait(s, name, LONG_MS);
    if (rc == 0)
        rc = fiber_store_event_clear(s, name);
    if (rc == 0 && (rc = fiber_store_barrier(s, name, 1, &index, LONG_MS)) == 0)
        assert_int_equal(index, 0);
    return rc;
}

/* What was pushed is there, but for what was popped, and nothing is held by who is gone. */
static void check_store(struct fiber_store *s, const struct round *r)
{
    struct fiber_bytes b;
    size_t n;

    must(fiber_store_length(s, r->name, &n));
    assert_true(n + (size_t)r->popped <= MESSAGES);
    assert_true(n + 1 >= (size_t)r->pushed); /* a pop without an answer may have taken one */
    for (size_t i = 0; i < n; i++) {
        must(fiber_store_at(s, r->name, i, &b));
        assert_true(which(&b) >= (int)i);
    }
    must(fiber_store_acquire(s, r->name, 1, LONG_MS));
    must(fiber_store_release(s, r->name));
}

static void test_a_store(void **state)
{
    struct fiber_address a;
    struct fiber_store *mine;
    bool more = true;

    must(fiber_store_start(&mine, NULL));
    must(fiber_store_address(mine, &a));
    for (unsigned k = 1; more; k++) {
        struct round r = {"", 0, 0};
        struct fiber_store *s = NULL;
        int rc;

        snprintf(r.name, sizeof(r.name), "round-%u", k);
        begin_refusing(k);
        rc = fiber_store_connect(&s, &a);
        if (rc == 0)
            rc = use_values(s, r.name);
        if (rc == 0)
            rc = use_list(s, &r);
        if (rc == 0)
            rc = use_sync(s, r.name);
        fiber_store_close(s);
        more = end_refusing(k, rc);
        must(fiber_store_connect(&s, &a));
        check_store(s, &r);
        fiber_store_close(s);
    }
    fiber_store_close(mine);
}

/* ---- Programs of their own ---- */

static void test_a_program_gets_its_work(void **state)
{
    const char *const argv[] = {"/proc/self/exe", NULL};
    char self[512];
    const char *command[] = {self, NULL};
    ssize_t len = readlink(argv[0], self, sizeof(self) - 1);
    bool more = true;

    assert_true(len > 0);
    self[len] = '\0';
    for (unsigned k = 1; more; k++) {
        struct fiber_process_options o = {.size = sizeof(o), .job.command = command};
        struct fiber_process *p = NULL;
        int rc;

        begin_refusing(k);
        rc = fiber_process_start_work(&p, "the work", 8, &o);
        more = end_refusing(k, rc);
        if (rc == 0)
            join(p);
        assert_int_equal(children_active(NULL), 1); /* the manager */
    }
}

static int do_work(void)
{
    const void *work;
    size_t len;

    return fiber_process_work(&work, &len) < 0 || len != 8 || memcmp(work, "the work", 8) != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_queue_of_this_process),
        cmocka_unit_test(test_a_queue_of_another_process),
        cmocka_unit_test(test_a_queue_is_put_to_and_closed_at_once),
        cmocka_unit_test(test_a_pipe_of_this_process),
        cmocka_unit_test(test_a_pipe_of_another_process),
        cmocka_unit_test(test_a_stream_to_this_process),
        cmocka_unit_test(test_a_stream_from_another_process),
        cmocka_unit_test(test_a_store),
        cmocka_unit_test(test_a_program_gets_its_work),
    };
    int rc = fiber_init(&argc, &argv);

    if (rc < 0)
        fprintf(stderr, "%s\n", fiber_last_error());
    if (rc)
        return rc < 0 ? 1 : do_work();
    return cmocka_run_group_tests(tests, start_owner, end_owner);
}
