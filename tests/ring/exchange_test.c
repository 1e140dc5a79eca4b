/* exchange_test.c - fences and names of agents: rounds, order, waiting, loss.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/exchange.h"
#include "runtime/base/buf.h"

struct answer {
    uint32_t agent;
    uint64_t request;
    int code;
    char text[128];
};

static struct {
    struct fbr_exchange *x;
    struct fbr_held held;
    struct answer answers[64];
    int n;
} t;

/* Fence data as "agent:data agent:data"; other data as it is, after the 8 bytes of who published
 * it. */
static void on_answer(void *user, uint32_t agent, uint64_t request, int code, const void *data,
                      size_t len)
{
    struct answer *a = &t.answers[t.n++];

    assert_true(t.n < 64);
    *a = (struct answer){.agent = agent, .request = request, .code = code};
    if (len)
        snprintf(a->text, sizeof(a->text), "%.*s", (int)len, (const char *)data);
    if (len >= 8 && request >= 100) { /* a fence */
        struct fbr_cur c = fbr_cur(data, len);
        int n = 0;

        while (fbr_cur_left(&c)) {
            uint32_t who = fbr_get_u32(&c);
            size_t part;
            const char *bytes = fbr_get_bytes(&c, &part);

            assert_true(fbr_cur_ok(&c));
            n += snprintf(a->text + n, sizeof(a->text) - (size_t)n, "%s%u:%.*s", n ? " " : "", who,
                          (int)part, bytes);
        }
    } else if (len >= 8) {
        snprintf(a->text, sizeof(a->text), "%.*s", (int)len - 8, (const char *)data + 8);
    }
}

static int set_up(void **state)
{
    memset(&t, 0, sizeof(t));
    t.x = fbr_exchange_open(4, on_answer, NULL, &t.held);
    return t.x ? 0 : -1;
}

static int tear_down(void **state)
{
    fbr_exchange_close(t.x);
    return 0;
}

static void fence(uint32_t agent, uint64_t request, const char *key, uint32_t parts,
                  const char *data)
{
    static const uint32_t agents[] = {0, 1, 2, 3};

    fbr_exchange_fence(t.x, agent, request, key, strlen(key), agents, parts, data, strlen(data));
}

static const struct answer *answer_to(uint32_t agent, uint64_t request)
{
    for (int i = 0; i < t.n; i++)
        if (t.answers[i].agent == agent && t.answers[i].request == request)
            return &t.answers[i];
    return NULL;
}

static void test_a_fence_waits_for_all_and_gives_all_data_in_order(void **state)
{
    fence(2, 100, "k", 3, "c");
    fence(0, 101, "k", 3, "a");
    assert_int_equal(t.n, 0);
    fence(1, 102, "k", 3, "b");
    assert_int_equal(t.n, 3);
    assert_string_equal(answer_to(0, 101)->text, "0:a 1:b 2:c");
    assert_string_equal(answer_to(1, 102)->text, "0:a 1:b 2:c");
    assert_string_equal(answer_to(2, 100)->text, "0:a 1:b 2:c");
}

static void test_rounds_of_one_key_do_not_mix(void **state)
{
    fence(0, 100, "k", 2, "first");
    fence(0, 101, "k", 2, "second"); /* one ahead */
    assert_int_equal(t.n, 0);
    fence(1, 200, "k", 2, "x");
    assert_int_equal(t.n, 2);
    assert_string_equal(answer_to(1, 200)->text, "0:first 1:x");
    fence(1, 201, "k", 2, "y");
    assert_string_equal(answer_to(0, 101)->text, "0:second 1:y");
}

static void test_keys_are_apart(void **state)
{
    fence(0, 100, "a", 2, "");
    fence(1, 101, "b", 2, "");
    assert_int_equal(t.n, 0);
    fence(1, 102, "a", 2, "");
    assert_int_equal(t.n, 2);
}

static void test_nobody_waits_for_an_agent_that_is_gone(void **state)
{
    fence(0, 100, "k", 3, "a");
    fence(1, 101, "k", 3, "b");
    fbr_exchange_agent_gone(t.x, 1);
    fbr_exchange_idle(t.x, 1, true);
    assert_int_equal(t.n, 0); /* 2 may come yet */
    fence(2, 102, "k", 3, "c");
    assert_int_equal(t.n, 2); /* nobody answers the dead */
    assert_string_equal(answer_to(0, 100)->text, "0:a 2:c");
    assert_string_equal(answer_to(2, 102)->text, "0:a 2:c");
}

static void test_the_place_of_an_agent_that_is_gone_may_be_taken(void **state)
{
    fence(0, 100, "k", 2, "a");
    fbr_exchange_agent_gone(t.x, 1);
    assert_int_equal(t.n, 0); /* its ranks are started anew */
    fence(1, 101, "k", 2, "b");
    assert_string_equal(answer_to(0, 100)->text, "0:a 1:b");
}

static void test_nobody_waits_for_an_agent_without_ranks(void **state)
{
    fence(0, 100, "k", 2, "a");
    fbr_exchange_idle(t.x, 2, true); /* not of this fence */
    assert_int_equal(t.n, 0);
    fbr_exchange_idle(t.x, 1, true);
    assert_string_equal(answer_to(0, 100)->text, "0:a");
    fbr_exchange_idle(t.x, 1, false); /* a rank was started anew */
    fence(0, 101, "k", 2, "b");
    assert_int_equal(t.n, 1);
    fence(1, 102, "k", 2, "c");
    assert_string_equal(answer_to(1, 102)->text, "0:b 1:c");
}

static void test_agents_of_a_fence_are_the_same_for_all(void **state)
{
    fence(0, 100, "k", 2, "a");
    fence(1, 101, "k", 3, "b");
    assert_int_equal(answer_to(1, 101)->code, -EINVAL);
    fence(3, 102, "k", 2, "c"); /* it is none of them */
    assert_int_equal(answer_to(3, 102)->code, -EINVAL);
    fence(3, 103, "other", 2, "c");
    assert_int_equal(answer_to(3, 103)->code, -EINVAL);
    fence(1, 104, "k", 2, "b");
    assert_string_equal(answer_to(0, 100)->text, "0:a 1:b");
}

static void test_names(void **state)
{
    fbr_exchange_lookup(t.x, 0, 1, "port", 0, 0);
    assert_int_equal(answer_to(0, 1)->code, -ENOENT);
    fbr_exchange_publish(t.x, 0, 2, 0, 3, "port", "tcp:1", 5);
    assert_int_equal(answer_to(0, 2)->code, 0);
    fbr_exchange_publish(t.x, 0, 3, 0, 4, "port", "tcp:2", 5);
    assert_int_equal(answer_to(0, 3)->code, -EEXIST);
    fbr_exchange_lookup(t.x, 1, 4, "port", 0, 0);
    assert_string_equal(answer_to(1, 4)->text, "tcp:1");
    fbr_exchange_unpublish(t.x, 0, 5, 0, 4, "port"); /* not its own */
    assert_int_equal(answer_to(0, 5)->code, -ENOENT);
    fbr_exchange_unpublish(t.x, 0, 6, 0, 3, NULL);
    assert_int_equal(answer_to(0, 6)->code, 0);
    fbr_exchange_lookup(t.x, 1, 7, "port", 0, 0);
    assert_int_equal(answer_to(1, 7)->code, -ENOENT);
}

static void test_lookups_wait(void **state)
{
    fbr_exchange_lookup(t.x, 1, 1, "k", 500, 1000);
    fbr_exchange_lookup(t.x, 2, 2, "k", -1, 1000);
    assert_true(fbr_exchange_deadline(t.x) == 1500);
    fbr_exchange_tick(t.x, 1499);
    assert_int_equal(t.n, 0);
    fbr_exchange_tick(t.x, 1500);
    assert_int_equal(answer_to(1, 1)->code, -ETIMEDOUT);
    assert_true(fbr_exchange_deadline(t.x) == UINT64_MAX);
    fbr_exchange_publish(t.x, 0, 3, 0, 0, "k", "v", 1);
    assert_string_equal(answer_to(2, 2)->text, "v");
}

static void test_a_job_takes_its_names_along(void **state)
{
    fbr_exchange_publish(t.x, 0, 1, 5, 0, "a", "", 0);
    fbr_exchange_publish(t.x, 0, 2, 6, 0, "b", "", 0);
    fbr_exchange_job_end(t.x, 5);
    fbr_exchange_lookup(t.x, 0, 3, "a", 0, 0);
    fbr_exchange_lookup(t.x, 0, 4, "b", 0, 0);
    assert_int_equal(answer_to(0, 3)->code, -ENOENT);
    assert_int_equal(answer_to(0, 4)->code, 0);
}

static void test_open_requests_are_freed(void **state)
{
    fence(0, 100, "k", 2, "data");
    fbr_exchange_lookup(t.x, 1, 1, "k", -1, 0);
    fbr_exchange_publish(t.x, 0, 2, 0, 0, "n", "value",
                         5); /* and tear_down closes: the sanitizer looks */
}

/* An agent publishes, fences and looks up without end; what it gives back can be used again. */
static void test_what_is_kept_for_agents_is_bounded(void **state)
{
    char value[1024] = "", name[16];
    int refused[3] = {0};

    t.held.limit = 64 << 10;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        t.n = 0;
        fbr_exchange_publish(t.x, 0, 1, 5, 0, name, value, sizeof(value));
        assert_int_equal(t.n, 1);
        refused[0] += t.answers[0].code == -ENOBUFS;
        t.n = 0;
        fbr_exchange_fence(t.x, 0, 2, name, strlen(name), (const uint32_t[]){0, 1}, 2, value,
                           sizeof(value));
        refused[1] += t.n == 1 && t.answers[0].code == -ENOBUFS;
        t.n = 0;
        fbr_exchange_lookup(t.x, 0, 3, "none", -1, 0);
        refused[2] += t.n == 1 && t.answers[0].code == -ENOBUFS;
        assert_true(t.held.bytes <= t.held.limit);
    }
    assert_true(refused[0] > 100 && refused[1] > 100 && refused[2] > 0);
    fbr_exchange_agent_gone(t.x, 0);
    fbr_exchange_job_end(t.x, 5);
    assert_int_equal(t.held.bytes, 0);
    t.n = 0;
    fbr_exchange_publish(t.x, 0, 1, 5, 0, "again", value, sizeof(value));
    assert_int_equal(t.answers[0].code, 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_fence_waits_for_all_and_gives_all_data_in_order),
        TEST(test_rounds_of_one_key_do_not_mix),
        TEST(test_keys_are_apart),
        TEST(test_nobody_waits_for_an_agent_that_is_gone),
        TEST(test_the_place_of_an_agent_that_is_gone_may_be_taken),
        TEST(test_nobody_waits_for_an_agent_without_ranks),
        TEST(test_agents_of_a_fence_are_the_same_for_all),
        TEST(test_names),
        TEST(test_lookups_wait),
        TEST(test_a_job_takes_its_names_along),
        TEST(test_open_requests_are_freed),
        TEST(test_what_is_kept_for_agents_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
