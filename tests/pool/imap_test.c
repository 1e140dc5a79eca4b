/* imap_test.c - maps over lazy sources: order, the window, errors, an end before the end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "tests/pool/tasks.h"

struct source {
    size_t taken, end, len;
    size_t handed_out, window, most; /* most that was ever between taken and handed out */
    size_t fails_at;
    bool ended;
    uint8_t *bytes;
};

static int next_input(void *user, struct fiber_bytes *in)
{
    struct source *s = user;
    int64_t n = (int64_t)s->taken;

    assert_false(s->ended); /* not called again after its end */
    s->ended = s->taken == s->end || (s->fails_at && s->taken == s->fails_at);
    if (s->ended)
        return s->taken == s->end ? 0 : -EIO;
    s->taken++;
    if (s->taken - s->handed_out > s->most)
        s->most = s->taken - s->handed_out;
    memset(s->bytes, 0x77, s->len);
    memcpy(s->bytes, &n, sizeof(n) < s->len ? sizeof(n) : s->len);
    *in = (struct fiber_bytes){s->bytes, s->len};
    return 1;
}

static struct source make_source(size_t end, size_t len)
{
    return (struct source){.end = end, .len = len, .bytes = malloc(len ? len : 1)};
}

static long resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long all = 0, resident = 0;

    if (f && fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void test_100000_inputs_of_4_kib_are_never_in_memory_at_once(void **state)
{
    struct fiber_pool *pool = open_pool(3);
    size_t n = SANITIZED ? 10000 : 100000, index = 0;
    struct source s = make_source(n, 4096);
    long before = resident_kib(), most = 0;
    struct fiber_imap *it;

    assert_ok(fiber_pool_imap(pool, echo, next_input, &s, 200, 0, NULL, &it));
    for (size_t i = 0; i < n; i++) {
        struct fiber_bytes out;

        assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), 1);
        s.handed_out++;
        assert_int_equal(index, i);
        assert_int_equal(out.len, 4096);
        assert_int_equal(number(out.data, out.len), i);
        fiber_bytes_free(&out);
        if (i % 1000 == 0 && resident_kib() > most)
            most = resident_kib();
    }
    assert_int_equal(fiber_imap_next(it, &index, &(struct fiber_bytes){0}, WAIT_MS), 0);
    assert_int_equal(fiber_imap_next(it, &index, &(struct fiber_bytes){0}, WAIT_MS), 0);
    assert_int_equal(s.most, 200);
    if (!SANITIZED && most > before + 32 * 1024)
        fail_msg("the map used %ld KiB", most - before);
    assert_ok(fiber_pool_drain(pool, 0));
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

/* Input 0 waits at the gate. */
static int first_waits(const void *in, size_t len, struct fiber_reply *reply)
{
    return number(in, len) == 0 ? wait_at_gate(in, len, reply) : square(in, len, reply);
}

static void test_unordered_results_pass_one_that_is_late(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(500, 8);
    struct fiber_imap *it;
    char seen[500] = {0};
    struct fiber_bytes out;
    size_t index = 0;

    assert_ok(
        fiber_pool_imap(pool, first_waits, next_input, &s, 10, FIBER_IMAP_UNORDERED, NULL, &it));
    for (int i = 0; i < 500; i++) {
        if (i == 499)
            open_gate();
        assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), 1);
        s.handed_out++;
        assert_int_equal(seen[index]++, 0);
        assert_int_equal(number(out.data, out.len), index * index);
        fiber_bytes_free(&out);
    }
    assert_int_equal(index, 0);
    assert_int_equal(s.most, 10);
    assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), 0);
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_ordered_results_wait_for_the_first_and_no_longer_than_asked(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(50, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;
    size_t index;

    assert_ok(fiber_pool_imap(pool, first_waits, next_input, &s, 7, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, &index, &out, 0), -ETIMEDOUT);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    assert_int_equal(fiber_imap_next(it, &index, &out, 30), -ETIMEDOUT);
    assert_null(out.data);
    assert_int_equal(s.taken, 7);
    open_gate();
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), 1);
        assert_int_equal(index, i);
        fiber_bytes_free(&out);
    }
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_a_source_without_inputs_ends_at_once(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct source s = make_source(0, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;

    assert_ok(fiber_pool_imap(pool, square, next_input, &s, 0, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, NULL, &out, -1), 0);
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_inputs_may_be_empty_and_large(void **state)
{
    static const size_t lens[] = {0, 1, 100000, 1024 * 1024};
    struct fiber_pool *pool = open_pool(2);

    for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
        struct source s = make_source(20, lens[k]);
        struct fiber_imap *it;
        struct fiber_bytes out;
        int n = 0;

        assert_ok(fiber_pool_imap(pool, echo, next_input, &s, 0, 0, NULL, &it));
        while (fiber_imap_next(it, NULL, &out, WAIT_MS) == 1) {
            assert_int_equal(out.len, lens[k]);
            fiber_bytes_free(&out);
            n++;
        }
        assert_int_equal(n, 20);
        fiber_imap_close(it);
        free(s.bytes);
    }
    fiber_pool_close(pool);
}

static void test_a_tasks_error_is_told_and_the_next_call_goes_on(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(100, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;
    char text[32];
    size_t index;

    assert_ok(fiber_pool_imap(pool, refuse_odd, next_input, &s, 0, 0, NULL, &it));
    for (size_t i = 0; i < 100; i++) {
        int rc = fiber_imap_next(it, &index, &out, WAIT_MS);

        assert_int_equal(index, i);
        assert_int_equal(rc, i % 2 ? -EDOM : 1);
        snprintf(text, sizeof(text), "%zu is odd", i);
        if (i % 2)
            assert_string_equal(fiber_last_error(), text);
        fiber_bytes_free(&out);
    }
    assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), 0);
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_an_error_of_the_source_comes_behind_what_it_gave(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(100, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;

    s.fails_at = 30;
    assert_ok(fiber_pool_imap(pool, square, next_input, &s, 100, 0, NULL, &it));
    for (int i = 0; i < 30; i++) {
        assert_int_equal(fiber_imap_next(it, NULL, &out, WAIT_MS), 1);
        fiber_bytes_free(&out);
    }
    assert_int_equal(fiber_imap_next(it, NULL, &out, WAIT_MS), -EIO);
    assert_contains(fiber_last_error(), "source");
    assert_int_equal(fiber_imap_next(it, NULL, &out, WAIT_MS), -EIO);
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_closing_early_cancels_what_runs(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(1000000, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;

    for (int round = 0; round < 20; round++) {
        assert_ok(
            fiber_pool_imap(pool, square, next_input, &s, 50, FIBER_IMAP_UNORDERED, NULL, &it));
        for (int i = 0; i < 10; i++) {
            assert_int_equal(fiber_imap_next(it, NULL, &out, WAIT_MS), 1);
            fiber_bytes_free(&out);
        }
        fiber_imap_close(it);
    }
    assert_ok(fiber_pool_imap(pool, until_cancelled, next_input, &s, 50, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, NULL, &out, 0), -ETIMEDOUT);
    assert_int_equal(wait_for(&board->arrived, 2), 0);
    fiber_imap_close(it);
    assert_int_equal(wait_for(&board->steps, 2), 0);
    assert_ok(fiber_pool_drain(pool, WAIT_MS));
    free(s.bytes);
    fiber_pool_close(pool);
}

static void test_a_pool_that_closes_ends_the_iteration(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct source s = make_source(1000000, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;
    int cancelled = 0, rc;

    assert_ok(fiber_pool_imap(pool, first_waits, next_input, &s, 20, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, NULL, &out, 0), -ETIMEDOUT);
    assert_int_equal(wait_for(&board->arrived, 1), 0);
    fiber_pool_close(pool);
    while ((rc = fiber_imap_next(it, NULL, &out, 1000)) == -ECANCELED && cancelled < 20)
        cancelled++;
    assert_int_equal(cancelled, 20);
    assert_int_equal(rc, -ECANCELED); /* and so on */
    assert_int_equal(s.taken, 20);
    fiber_imap_close(it);
    free(s.bytes);
}

static int die_at_13(const void *in, size_t len, struct fiber_reply *reply)
{
    return number(in, len) == 13 ? kill_worker(in, len, reply) : count_run(in, len, reply);
}

static void test_a_killer_in_a_stream_is_blamed_and_the_rest_comes(void **state)
{
    struct fiber_pool *pool = open_pool(2);
    struct source s = make_source(200, 8);
    struct fiber_imap *it;
    struct fiber_bytes out;
    size_t index;

    assert_ok(fiber_pool_imap(pool, die_at_13, next_input, &s, 0, 0, NULL, &it));
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(fiber_imap_next(it, &index, &out, WAIT_MS), i == 13 ? -EOWNERDEAD : 1);
        assert_int_equal(index, i);
        if (i != 13)
            assert_int_equal(number(out.data, out.len), i * i);
        fiber_bytes_free(&out);
    }
    assert_true(atomic_load(&board->runs[13]) >= 3);
    assert_int_equal(stats_of(pool).deaths, atomic_load(&board->runs[13]));
    fiber_imap_close(it);
    free(s.bytes);
    fiber_pool_close(pool);
}

struct looked {
    pthread_t program;
    _Atomic uint32_t gone; /* results that the program has had and freed */
    _Atomic uint32_t calls, wrong;
};

/* Looks at its result when the program is done with its own. */
static void look_late(void *user, size_t index, int code, const void *data, size_t len)
{
    struct looked *l = user;
    bool ours = pthread_equal(pthread_self(), l->program);

    if (!ours && wait_for(&l->gone, (uint32_t)index + 1) < 0)
        add(&l->wrong);
    if (code || len != 8 || number(data, len) != (int64_t)(index * index))
        add(&l->wrong);
    add(&l->calls);
}

static void test_callbacks_see_a_result_that_the_program_has_freed(void **state)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    struct looked l = {.program = pthread_self()};
    struct fiber_pool *pool = open_pool(1);
    struct source s = make_source(20, 8);
    struct fiber_bytes out;
    struct fiber_imap *it;

    o.on_done = look_late;
    o.user = &l;
    assert_ok(fiber_pool_imap(pool, square, next_input, &s, 2, 0, &o, &it));
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(fiber_imap_next(it, NULL, &out, WAIT_MS), 1);
        s.handed_out++;
        assert_int_equal(number(out.data, out.len), i * i);
        memset(out.data, 0xff, out.len);
        fiber_bytes_free(&out);
        add(&l.gone);
    }
    fiber_imap_close(it);
    assert_int_equal(atomic_load(&l.calls), 20);
    assert_int_equal(atomic_load(&l.wrong), 0);
    free(s.bytes);
    fiber_pool_close(pool);
}

/* Bytes of that many; none when the place for them is missing. */
struct given {
    void *data;
    size_t len;
};

static int give(void *user, struct fiber_bytes *in)
{
    const struct given *g = user;

    *in = (struct fiber_bytes){g->data, g->len};
    return 1;
}

static void test_an_input_that_cannot_be_sent_ends_the_iteration(void **state)
{
    char *mebibytes = calloc(2, 1 << 20);
    struct given given[] = {{mebibytes, 2 << 20}, {NULL, 5}};
    struct fiber_pool *pool = open_pool(1);
    struct fiber_bytes out;
    struct fiber_imap *it;

    assert_ok(fiber_config_set("max_message", "1Mi"));
    for (int i = 0; i < 2; i++) {
        assert_ok(fiber_pool_imap(pool, square, give, &given[i], 0, 0, NULL, &it));
        assert_int_equal(fiber_imap_next(it, NULL, &out, -1), i ? -EINVAL : -EMSGSIZE);
        assert_contains(fiber_last_error(), i ? "its data is NULL" : "longer than max_message");
        fiber_imap_close(it);
    }
    assert_ok(fiber_config_set("max_message", "4Gi"));
    assert_int_equal(stats_of(pool).submitted, 0);
    fiber_pool_close(pool);
    free(mebibytes);
}

/* As a function of the program that returns errno. */
static int return_a_number(void *user, struct fiber_bytes *in)
{
    return 5;
}

static void test_a_source_that_returns_another_number_ends_the_iteration(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_bytes out;
    struct fiber_imap *it;

    assert_ok(fiber_pool_imap(pool, square, return_a_number, NULL, 0, 0, NULL, &it));
    assert_int_equal(fiber_imap_next(it, NULL, &out, -1), -EIO);
    assert_contains(fiber_last_error(), "returned 5");
    fiber_imap_close(it);
    fiber_pool_close(pool);
}

static void test_wrong_arguments_are_refused(void **state)
{
    struct fiber_pool *pool = open_pool(1);
    struct fiber_imap *it = NULL;

    assert_int_equal(fiber_pool_imap(pool, square, NULL, NULL, 0, 0, NULL, &it), -EINVAL);
    assert_int_equal(fiber_pool_imap(pool, NULL, next_input, NULL, 0, 0, NULL, &it), -EINVAL);
    assert_int_equal(fiber_pool_imap(pool, square, next_input, NULL, 0, 2, NULL, &it), -EINVAL);
    assert_null(it);
    fiber_imap_close(NULL);
    fiber_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_100000_inputs_of_4_kib_are_never_in_memory_at_once),
        pool_test(test_unordered_results_pass_one_that_is_late),
        pool_test(test_ordered_results_wait_for_the_first_and_no_longer_than_asked),
        pool_test(test_a_source_without_inputs_ends_at_once),
        pool_test(test_inputs_may_be_empty_and_large),
        pool_test(test_a_tasks_error_is_told_and_the_next_call_goes_on),
        pool_test(test_an_error_of_the_source_comes_behind_what_it_gave),
        pool_test(test_closing_early_cancels_what_runs),
        pool_test(test_a_pool_that_closes_ends_the_iteration),
        pool_test(test_a_killer_in_a_stream_is_blamed_and_the_rest_comes),
        pool_test(test_callbacks_see_a_result_that_the_program_has_freed),
        pool_test(test_an_input_that_cannot_be_sent_ends_the_iteration),
        pool_test(test_a_source_that_returns_another_number_ends_the_iteration),
        pool_test(test_wrong_arguments_are_refused),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "imap");
}
