/* oom_test.c - memory that is short in the middle of a call on a manager, a store or shared memory:
 * an error, and they live on. What is short may be the memory of the connection: then it is lost,
 * and a new one works.
 *
 * The linker replaces malloc and its like in this program and in libfiber (-Wl,--wrap); each call
 * is made again and again, and the k-th request for memory of the calling thread is refused, for k
 * = 1, 2, ... until the call gets by without that request.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fiber.h"
#include "tests/support/children.h"
#include "tests/support/refuse.h"

/* As end_refusing(), where a connection may go in the round after the one that broke it; true while
 * there may be a next request to refuse. */
static bool end_round(unsigned k, int rc)
{
    refuse_at = 0;
    if (rc < 0 && rc != -ENOMEM && rc != -EPIPE)
        fail_msg("with request %u refused: %d (%s)", k, rc, fiber_last_error());
    if (rc < 0)
        assert_true(fiber_last_error()[0] != '\0');
    if (rc == -EPIPE) /* maybe of the last round's refusal: its connection was just about to go */
        return true;
    if (asked < k)
        assert_int_equal(rc, 0);
    return asked >= k;
}

static int echo(void *state, const char *method, const void *in, size_t len,
                struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len);
}

static const struct fiber_class echoes = {.size = sizeof(echoes), .call = echo};

static void test_a_manager_starts_and_ends(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_manager *m = NULL;
        int rc;

        begin_refusing(k);
        rc = fiber_manager_start(&m, &echoes, NULL, 0, NULL);
        more = end_round(k, rc);
        if (rc == 0) {
            assert_int_equal(fiber_manager_call(m, "echo", "x", 1, NULL, -1), 0);
            fiber_manager_close(m);
        }
        assert_int_equal(children_active(NULL), 0);
    }
}

static void test_a_manager_is_called(void **state)
{
    struct fiber_manager *owner, *m;
    struct fiber_address a;
    bool more = true;

    assert_int_equal(fiber_manager_start(&owner, &echoes, NULL, 0, NULL), 0);
    assert_int_equal(fiber_manager_address(owner, &a), 0);
    for (unsigned k = 1; more; k++) {
        struct fiber_bytes b = {NULL, 0};
        struct fiber_future *f;
        int rc;

        assert_int_equal(fiber_manager_connect(&m, &a), 0);
        begin_refusing(k);
        rc = fiber_manager_call_async(m, "echo", "some words", 10, &f);
        if (rc == 0) {
            rc = fiber_future_get(f, &b, -1);
            fiber_future_close(f);
        }
        more = end_round(k, rc);
        if (rc == 0)
            assert_memory_equal(b.data, "some words", 10);
        fiber_bytes_free(&b);
        fiber_manager_close(m);
    }
    fiber_manager_close(owner);
}

static int use_store(struct fiber_store *s, int64_t *count)
{
    struct fiber_bytes b = {NULL, 0};
    int rc = fiber_store_set(s, "key", "value", 5);

    if (rc == 0)
        rc = fiber_store_get(s, "key", &b, -1);
    if (rc == 0)
        assert_memory_equal(b.data, "value", 5);
    fiber_bytes_free(&b);
    if (rc == 0)
        rc = fiber_store_keys(s, NULL, &b);
    fiber_bytes_free(&b);
    if (rc == 0)
        rc = fiber_store_lock(s, "lock", -1);
    if (rc == -EOWNERDEAD) /* its connection was lost while it held it */
        rc = 0;
    while (rc == 0 && fiber_store_unlock(s, "lock") == -ENOMEM)
        continue;
    if (rc == 0)
        rc = fiber_store_add(s, "count", 1, NULL);
    *count += rc == 0;
    return rc;
}

static void test_a_store_is_used(void **state)
{
    struct fiber_address a;
    struct fiber_store *s, *s2;
    int64_t count = 0, n;
    bool more = true;

    assert_int_equal(fiber_store_start(&s, NULL), 0);
    assert_int_equal(fiber_store_address(s, &a), 0);
    fiber_store_set(s, "first", "value", 5);
    for (unsigned k = 1; more; k++) {
        struct fiber_store *again;
        int rc;

        begin_refusing(k);
        rc = fiber_store_connect(&again, &a);
        if (rc == 0) {
            rc = use_store(again, &count);
            fiber_store_close(again);
        }
        more = end_round(k, rc);
    }
    assert_int_equal(fiber_store_connect(&s2, &a), 0);
    assert_int_equal(fiber_store_add(s2, "count", 0, &n), 0);
    assert_true(n >= count);
    fiber_store_close(s2);
    fiber_store_close(s);
}

static int fill(void *data, size_t len, void *user)
{
    memset(data, 1, len);
    return 0;
}

static void test_shared_memory_is_opened(void **state)
{
    bool more = true;

    for (unsigned k = 1; more; k++) {
        struct fiber_shared *s;
        int rc;

        begin_refusing(k);
        rc = fiber_shared_open(&s, "shared", 1000, fill, NULL);
        more = end_round(k, rc);
        if (rc == 0)
            fiber_shared_close(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_manager_starts_and_ends),
        cmocka_unit_test(test_a_manager_is_called),
        cmocka_unit_test(test_a_store_is_used),
        cmocka_unit_test(test_shared_memory_is_opened),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
