/* tcpstore_test.c - torch's store as such: both dialects, every request, hostile bytes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "mpi_bridge/tcpstore.h"
#include "runtime/base/buf.h"

#define CONNS 4

enum {
    VALIDATE,
    SET,
    COMPARE_SET,
    GET,
    ADD,
    CHECK,
    WAIT,
    GETNUMKEYS,
    DELETE_KEY,
    APPEND,
    MULTI_GET,
    MULTI_SET
};
enum { CANCEL_WAIT = 12, PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER };

static const struct fbr_service_ops *const ops = &fbr_service_tcpstore;
static struct fbr_service *store;
static struct fbr_buf got[CONNS];
static struct fbr_service_conn *conns[CONNS];
static bool gone[CONNS];

static void on_send(void *peer, const void *data, size_t len)
{
    struct fbr_buf *to = peer;

    assert_false(gone[to - got]);
    fbr_put(to, data, len);
}

static void on_hang_up(void *peer)
{
    gone[(struct fbr_buf *)peer - got] = true;
}

static void open_conn(int i)
{
    gone[i] = false;
    conns[i] = ops->opened(store, &got[i]);
    assert_non_null(conns[i]);
}

static void close_conn(int i)
{
    ops->closed(conns[i]);
    conns[i] = NULL;
}

static int open_store(void **state)
{
    static const struct fbr_service_host host = {on_send, on_hang_up};

    store = ops->open(&host);
    for (int i = 0; i < CONNS; i++)
        open_conn(i);
    return 0;
}

static int close_store(void **state)
{
    for (int i = 0; i < CONNS; i++) {
        if (conns[i] && !gone[i])
            close_conn(i);
        fbr_buf_fini(&got[i]);
    }
    ops->close(store);
    return 0;
}

/* Builds a request: u a byte, 4 and 8 numbers, s a text, and sends it in pieces of `step` bytes, 0:
 * whole. */
static void ask_in_steps(uint64_t conn, size_t step, const char *shape, va_list ap)
{
    struct fbr_buf b = {0};

    for (; *shape; shape++) {
        if (*shape == 'u') {
            fbr_put_u8(&b, (uint8_t)va_arg(ap, int));
        } else if (*shape == '4') {
            fbr_put_u32(&b, va_arg(ap, uint32_t));
        } else if (*shape == '8') {
            fbr_put_u64(&b, va_arg(ap, uint64_t));
        } else {
            const char *text = va_arg(ap, const char *);

            fbr_put_u64(&b, strlen(text));
            fbr_put(&b, text, strlen(text));
        }
    }
    fbr_buf_clear(&got[conn]);
    for (size_t at = 0; at < b.len && !gone[conn]; at += step ? step : b.len)
        ops->bytes(conns[conn], b.data + at, step && b.len - at > step ? step : b.len - at);
    fbr_buf_fini(&b);
}

static void ask(uint64_t conn, const char *shape, ...)
{
    va_list ap;

    va_start(ap, shape);
    ask_in_steps(conn, 0, shape, ap);
    va_end(ap);
}

static void ask_slowly(uint64_t conn, const char *shape, ...)
{
    va_list ap;

    va_start(ap, shape);
    ask_in_steps(conn, 1, shape, ap);
    va_end(ap);
}

static void validate(uint64_t conn)
{
    ask(conn, "u4", VALIDATE, FBR_TCPSTORE_MAGIC);
    assert_false(gone[conn]);
}

static void expect_u8(uint64_t conn, uint8_t v)
{
    assert_int_equal(got[conn].len, 1);
    assert_int_equal(got[conn].data[0], v);
    fbr_buf_clear(&got[conn]);
}

static void expect_i64(uint64_t conn, int64_t v)
{
    struct fbr_cur c = fbr_cur(got[conn].data, got[conn].len);

    assert_int_equal(got[conn].len, 8);
    assert_int_equal((int64_t)fbr_get_u64(&c), v);
    fbr_buf_clear(&got[conn]);
}

static void read_text(struct fbr_cur *c, const char *text)
{
    size_t len = (size_t)fbr_get_u64(c);

    assert_int_equal(len, strlen(text));
    assert_memory_equal(fbr_get(c, len), text, len);
}

static void expect_text(uint64_t conn, const char *text)
{
    struct fbr_cur c = fbr_cur(got[conn].data, got[conn].len);

    read_text(&c, text);
    assert_int_equal(fbr_cur_left(&c), 0);
    fbr_buf_clear(&got[conn]);
}

static void expect_nothing(uint64_t conn)
{
    assert_int_equal(got[conn].len, 0);
    assert_false(gone[conn]);
}

static void test_values(void **state)
{
    validate(0);
    ask(0, "u4", PING, 0x12345678u);
    assert_memory_equal(got[0].data, "\x78\x56\x34\x12", 4);
    ask(0, "uss", SET, "/k", "v");
    expect_nothing(0);
    ask_slowly(0, "us", GET, "/k");
    expect_text(0, "v");
    ask(0, "us", GET, "/none");
    expect_text(0, "");
    ask(0, "uss", APPEND, "/k", "w");
    ask(0, "uss", APPEND, "/new", "n");
    ask(0, "u8sss", MULTI_GET, UINT64_C(3), "/k", "/none", "/new");
    {
        struct fbr_cur c = fbr_cur(got[0].data, got[0].len);

        read_text(&c, "vw");
        read_text(&c, "");
        read_text(&c, "n");
    }
    ask_slowly(0, "u8ssss", MULTI_SET, UINT64_C(2), "/a", "1", "/b", "2");
    ask(0, "u", GETNUMKEYS);
    expect_i64(0, 4);
    ask(0, "us", DELETE_KEY, "/a");
    expect_i64(0, 1);
    ask(0, "us", DELETE_KEY, "/a");
    expect_i64(0, 0);
    ask(0, "u8ss", CHECK, UINT64_C(2), "/k", "/a");
    expect_u8(0, 1);
    ask(0, "u8ss", CHECK, UINT64_C(2), "/k", "/b");
    expect_u8(0, 0);
    ask(0, "u", LIST_KEYS);
    assert_int_equal(got[0].data[0], 3);
    assert_int_equal(got[0].len, 8 + 3 * 8 + strlen("/k/b/new"));
}

static void test_numbers(void **state)
{
    validate(0);
    ask(0, "us8", ADD, "/n", UINT64_C(5));
    expect_i64(0, 5);
    ask_slowly(0, "us8", ADD, "/n", (uint64_t)-7);
    expect_i64(0, -2);
    ask(0, "us", GET, "/n");
    expect_text(0, "-2");
    ask(0, "uss", SET, "/n", "9223372036854775807");
    ask(0, "us8", ADD, "/n", UINT64_C(1));
    assert_true(gone[0]);
    validate(1);
    ask(1, "uss", SET, "/text", "no number");
    ask(1, "us8", ADD, "/text", UINT64_C(1));
    assert_true(gone[1]);
}

static void test_compare_and_set(void **state)
{
    validate(0);
    ask(0, "usss", COMPARE_SET, "/k", "x", "1");
    expect_text(0, "x"); /* as torch: it is not there, and nothing is set */
    ask(0, "usss", COMPARE_SET, "/k", "", "1");
    expect_text(0, "1");
    ask(0, "usss", COMPARE_SET, "/k", "x", "2");
    expect_text(0, "1");
    ask_slowly(0, "usss", COMPARE_SET, "/k", "1", "2");
    expect_text(0, "2");
}

static void test_who_waits_is_woken_when_all_is_there(void **state)
{
    for (uint64_t i = 0; i < CONNS; i++)
        validate(i);
    ask(1, "uss", SET, "/a", "1");
    ask(0, "u8s", WAIT, UINT64_C(1), "/a");
    expect_u8(0, 0);
    ask(0, "u8sss", WAIT, UINT64_C(3), "/a", "/b", "/c");
    ask(2, "u8s", WAIT, UINT64_C(1), "/c");
    ask(1, "us8", ADD, "/b", UINT64_C(1));
    expect_nothing(0);
    ask(1, "usss", COMPARE_SET, "/c", "", "1");
    expect_u8(0, 0);
    expect_u8(2, 0);
    ask(2, "u8s", WAIT, UINT64_C(1), "/never");
    close_conn(2); /* while it waits */
    ask(0, "u8s", WAIT, UINT64_C(1), "/never");
    ask(0, "u", CANCEL_WAIT);
    expect_u8(0, 1);
    ask(1, "uss", SET, "/never", "after all");
    expect_nothing(0);
    expect_nothing(2);
    ask(0, "u", CANCEL_WAIT); /* without a wait too */
    expect_u8(0, 1);
}

static void test_queues(void **state)
{
    struct fbr_cur c;

    for (uint64_t i = 0; i < CONNS; i++)
        validate(i);
    ask(0, "us", QUEUE_POP, "q");
    expect_i64(0, 0);
    ask(0, "u8s", WAIT, UINT64_C(1), "q");
    ask(1, "u8s", WAIT, UINT64_C(1), "q");
    ask(2, "uss", QUEUE_PUSH, "q", "x");
    expect_u8(0, 0); /* one message, one is woken */
    expect_nothing(1);
    ask(2, "uss", QUEUE_PUSH, "q", "y");
    expect_u8(1, 0);
    ask(0, "us", QUEUE_LEN, "q");
    expect_i64(0, 2);
    ask(0, "us", QUEUE_POP, "q");
    c = fbr_cur(got[0].data, got[0].len);
    assert_int_equal(fbr_get_u64(&c), 2);
    read_text(&c, "x");
    ask(0, "u8s", CHECK, UINT64_C(1), "q");
    expect_u8(0, 0);
}

static void test_a_barrier_lets_all_go_with_the_last(void **state)
{
    for (uint64_t i = 0; i < 3; i++) {
        validate(i);
        expect_nothing(0);
        ask(i, "us8", BARRIER, "b", UINT64_C(3));
    }
    for (uint64_t i = 0; i < 3; i++)
        expect_u8(i, 0);
}

static void test_the_first_dialect(void **state)
{
    ask_slowly(0, "uss", 0, "/k", "v"); /* SET comes first: a zero, as VALIDATE */
    ask(0, "us", 2, "/k");
    expect_text(0, "v");
    ask(1, "us", 7, "/k"); /* WATCH_KEY is not served */
    assert_true(gone[1]);
    ask(0, "us", 8, "/k"); /* DELETE_KEY */
    expect_i64(0, 1);
    ask(0, "us8", 3, "/k", UINT64_C(4));
    expect_i64(0, 4);
    ask(2, "u8s", 5, UINT64_C(1), "/x");
    ask(0, "uss", 0, "/x", "");
    expect_u8(2, 0);
    ask(0, "u", 13); /* PING is of the second */
    assert_true(gone[0]);
}

static void test_hostile_bytes_cost_a_connection_and_nothing_else(void **state)
{
    validate(0);
    ask(0, "u8", SET, UINT64_C(1) << 62);
    assert_true(gone[0]);
    validate(1);
    ask(1, "u8", CHECK, UINT64_C(1) << 40);
    assert_true(gone[1]);
    ask(2, "u4", VALIDATE, FBR_TCPSTORE_MAGIC + 1); /* then it is a key, of a gigabyte */
    ask(2, "4", 0u);
    assert_true(gone[2]);
    ask(3, "u", 77);
    assert_true(gone[3]);
    open_conn(0);
    validate(0);
    ask(0, "us8", SET, "/k", UINT64_C(1) << 30); /* said, not sent: nothing is kept for it */
    expect_nothing(0);
}

#define with_store(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_values),
        with_store(test_numbers),
        with_store(test_compare_and_set),
        with_store(test_who_waits_is_woken_when_all_is_there),
        with_store(test_queues),
        with_store(test_a_barrier_lets_all_go_with_the_last),
        with_store(test_the_first_dialect),
        with_store(test_hostile_bytes_cost_a_connection_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
