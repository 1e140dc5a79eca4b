/* address_test.c - addresses: what they say, and what becomes of those that are wrong, old or
 * forged.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "channel_util.h"

#include "share/share.h"

#define URL_AT 51 /* of the url's length */

static struct fbr_address sample(void)
{
    struct fbr_address a = {
        .kind = FBR_KIND_PIPE, .flags = 6, .owner = 0x1122334455667788, .object = 99};

    for (int i = 0; i < FBR_KEY_SIZE; i++)
        a.key[i] = (uint8_t)(i * 3 + 1);
    snprintf(a.url, sizeof(a.url), "unix:/tmp/fiber-1-abcdef/c");
    return a;
}

static void test_an_address_comes_back_as_it_was(void **state)
{
    struct fbr_address a = sample(), b;
    struct fiber_address bytes;

    assert_int_equal(fbr_address_put(&a, &bytes), 0);
    assert_int_equal(fbr_address_get(&b, &bytes, FBR_KIND_PIPE), 0);
    assert_int_equal(b.kind, a.kind);
    assert_int_equal(b.flags, a.flags);
    assert_int_equal(b.owner, a.owner);
    assert_int_equal(b.object, a.object);
    assert_memory_equal(b.key, a.key, sizeof(a.key));
    assert_string_equal(b.url, a.url);
}

static void test_the_longest_url_fits(void **state)
{
    struct fbr_address a = sample(), b;
    struct fiber_address bytes;

    memset(a.url, 'x', sizeof(a.url) - 1);
    a.url[sizeof(a.url) - 1] = '\0';
    assert_int_equal(fbr_address_put(&a, &bytes), 0);
    assert_int_equal(fbr_address_get(&b, &bytes, FBR_KIND_PIPE), 0);
    assert_string_equal(b.url, a.url);
}

static void refuse(const struct fiber_address *bytes, const char *why)
{
    struct fbr_address b;

    assert_int_equal(fbr_address_get(&b, bytes, FBR_KIND_PIPE), -EINVAL);
    assert_non_null(strstr(fiber_last_error(), why));
}

static void test_other_bytes_are_refused(void **state)
{
    struct fbr_address a = sample();
    struct fiber_address good, bytes;

    assert_int_equal(fbr_address_put(&a, &good), 0);
    memset(&bytes, 0, sizeof(bytes));
    refuse(&bytes, "not an address");
    memset(&bytes, 0xff, sizeof(bytes));
    refuse(&bytes, "not an address");
    bytes = good;
    bytes.bytes[0]++; /* version */
    refuse(&bytes, "not an address");
    bytes = good;
    bytes.bytes[1] = 0; /* kind */
    refuse(&bytes, "not an address");
    bytes.bytes[1] = FBR_KIND_RING + 1;
    refuse(&bytes, "not an address");
    bytes = good;
    bytes.bytes[URL_AT] = 200; /* url: longer than what is left, */
    refuse(&bytes, "not an address");
    bytes.bytes[URL_AT] = FBR_URL_MAX; /* than any url, */
    refuse(&bytes, "not an address");
    bytes = good;
    bytes.bytes[URL_AT + 4 + 5] = '\0'; /* and with a NUL in it */
    refuse(&bytes, "not an address");
}

static void test_the_address_of_another_kind_is_refused_by_name(void **state)
{
    struct fbr_address a = sample();
    struct fiber_address bytes;
    struct fiber_queue *q;

    a.kind = FBR_KIND_MANAGER;
    assert_int_equal(fbr_address_put(&a, &bytes), 0);
    assert_int_equal(fiber_queue_connect(&q, &bytes), -EINVAL);
    assert_string_equal(fiber_last_error(), "this is the address of a manager, not of a queue");
}

static void test_a_queues_address_opens_no_pipe(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a);
    struct fiber_pipe *p, *ends[2];

    assert_int_equal(fiber_pipe_connect(&p, &a), -EINVAL);
    must(fiber_pipe_open(ends, 0));
    must(fiber_pipe_address(ends[0], &a));
    fiber_queue_close(q);
    assert_int_equal(fiber_queue_connect(&q, &a), -EINVAL);
    fiber_pipe_close(ends[0]);
    fiber_pipe_close(ends[1]);
}

/* ---- In a child: addresses that look good ---- */

static void change(struct fiber_address *bytes, void (*fn)(struct fbr_address *a))
{
    struct fbr_address a;

    CHECK(fbr_address_get(&a, bytes, FBR_KIND_QUEUE) == 0);
    fn(&a);
    CHECK(fbr_address_put(&a, bytes) == 0);
}

static void other_key(struct fbr_address *a)
{
    a->key[7] ^= 1;
}

static void other_object(struct fbr_address *a)
{
    a->object += 1000;
}

static void other_place(struct fbr_address *a)
{
    size_t n = strlen(a->url);

    a->url[n - 1] = a->url[n - 1] == '1' ? '2' : '1'; /* another file, or port */
}

static void no_place(struct fbr_address *a)
{
    snprintf(a->url, sizeof(a->url), "gopher://nowhere");
}

static void expect_no_connection(const struct fiber_address *good,
                                 void (*fn)(struct fbr_address *a))
{
    struct fiber_address bad = *good;
    struct fiber_queue *q;
    uint64_t t = now_ms();

    change(&bad, fn);
    CHECK(fiber_queue_connect(&q, &bad) < 0);
    CHECK(fiber_last_error()[0] && now_ms() - t < LONG_MS);
}

static int try_forged(const void *arg, size_t len)
{
    const struct fiber_address *good = arg;
    struct fiber_address bad = *good;
    struct fiber_queue *q, *ghost;
    struct fiber_bytes b;
    size_t n;

    CHECK(len == sizeof(*good));
    expect_no_connection(good, other_key);
    expect_no_connection(good, other_place);
    expect_no_connection(good, no_place);
    q = connect_queue(good);
    expect_no_connection(good, other_key); /* although this process is connected */
    change(&bad, other_object);
    if (fiber_queue_connect(&ghost, &bad) == 0) { /* it is only found out there */
        CHECK(fiber_queue_get(ghost, &b, LONG_MS) == -EPIPE);
        CHECK(fiber_queue_put(ghost, "x", 1, LONG_MS) == -EPIPE);
        CHECK(fiber_queue_size(ghost, &n) == -EPIPE);
        CHECK(fiber_queue_shut(ghost) == -EPIPE);
        CHECK(fiber_queue_flush(ghost, LONG_MS) <= 0);
        fiber_queue_close(ghost);
    }
    CHECK(put_number(q, 1) == 0); /* and the good one is as good as before */
    fiber_queue_close(q);
    return 0;
}

static void test_forged_addresses_lead_nowhere(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a);

    join(start(try_forged, &a, sizeof(a)));
    expect_number(q, 1);
    fiber_queue_close(q);
}

static int give_address(const void *arg, size_t len)
{
    struct fiber_queue *report = connect_queue(arg);
    struct fiber_address a;

    keep(open_queue(0, &a));
    CHECK(fiber_queue_put(report, &a, sizeof(a), -1) == 0);
    return 0;
}

static void test_the_address_of_a_process_that_ended_leads_nowhere(void **state)
{
    struct fiber_address a;
    struct fiber_queue *report = open_queue(0, &a), *q;
    struct fiber_bytes b;
    uint64_t t;

    join(start(give_address, &a, sizeof(a)));
    must(fiber_queue_get(report, &b, LONG_MS));
    t = now_ms();
    assert_int_equal(fiber_queue_connect(&q, b.data), -EPIPE);
    assert_true(now_ms() - t < LONG_MS);
    fiber_bytes_free(&b);
    fiber_queue_close(report);
}

static void test_the_address_of_a_closed_queue_is_the_end(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a), *again;
    struct fiber_bytes b;

    fiber_queue_close(q);
    if (fiber_queue_connect(&again, &a) == 0) {
        assert_int_equal(fiber_queue_get(again, &b, LONG_MS), -EPIPE);
        fiber_queue_close(again);
    }
}

static int ask_for_address(const void *arg, size_t len)
{
    struct fiber_queue *q = connect_queue(arg);
    struct fiber_address a;

    CHECK(fiber_queue_address(q, &a) == -EPERM);
    fiber_queue_close(q);
    return 0;
}

static void test_only_the_owner_gives_out_addresses(void **state)
{
    struct fiber_address a;
    struct fiber_queue *q = open_queue(0, &a);

    join(start(ask_for_address, &a, sizeof(a)));
    fiber_queue_close(q);
}

/* ---- As text ---- */

static void test_an_address_travels_as_text(void **state)
{
    char text[FIBER_ADDRESS_TEXT], line[FIBER_ADDRESS_TEXT + 2];
    struct fiber_address a, b;
    struct fiber_queue *q = open_queue(0, &a), *same;

    assert_int_equal(fiber_address_format(&a, text, sizeof(text)), 0);
    assert_int_equal(strncmp(text, "fiber:", 6), 0);
    assert_int_equal(strcspn(text, " \t\n'\"\\$&;"),
                     strlen(text)); /* nothing that a shell looks at */
    snprintf(line, sizeof(line), "%s\r\n", text);
    assert_int_equal(fiber_address_parse(&b, line), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    must(fiber_queue_connect(&same, &b));
    fiber_queue_close(same);
    fiber_queue_close(q);
}

static void test_the_longest_address_has_room(void **state)
{
    struct fbr_address a = {.kind = FBR_KIND_STORE, .owner = 1, .object = UINT64_MAX};
    char text[FIBER_ADDRESS_TEXT];
    struct fiber_address bytes;

    memset(a.url, 'u', sizeof(a.url) - 1);
    while (fbr_address_put(&a, &bytes) < 0)
        a.url[strlen(a.url) - 1] = '\0';
    assert_int_equal(fiber_address_format(&bytes, text, sizeof(text)), 0);
    assert_int_equal(fiber_address_format(&bytes, text, strlen(text) + 1), 0);
    assert_int_equal(fiber_address_format(&bytes, text, strlen(text)), -ERANGE);
}

static void test_other_texts_are_refused(void **state)
{
    char text[FIBER_ADDRESS_TEXT], other[FIBER_ADDRESS_TEXT + 2];
    struct fiber_address a, none = {{0}}, b = none;
    struct fiber_queue *q = open_queue(0, &a);
    size_t len;

    assert_int_equal(fiber_address_format(&none, text, sizeof(text)), -EINVAL);
    assert_int_equal(fiber_address_format(&a, text, sizeof(text)), 0);
    len = strlen(text);
    for (size_t n = 0; n < len; n++) { /* cut off */
        snprintf(other, sizeof(other), "%.*s", (int)n, text);
        assert_int_equal(fiber_address_parse(&b, other), -EINVAL);
    }
    for (size_t i = 0; i < 7; i++) {
        static const char *const bad[] = {"",         "fiber:", "fiber:zz", "fiber:0",
                                          "FIBER:01", "\n",     NULL};

        assert_int_equal(fiber_address_parse(&b, bad[i]), -EINVAL);
    }
    snprintf(other, sizeof(other), "%s x", text);
    assert_int_equal(fiber_address_parse(&b, other), -EINVAL);
    memset(other, '0', sizeof(other) - 1);
    memcpy(other, "fiber:", 6);
    other[sizeof(other) - 1] = '\0';
    assert_int_equal(fiber_address_parse(&b, other), -EINVAL);
    assert_memory_equal(&b, &none, sizeof(b));
    fiber_queue_close(q);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_address_comes_back_as_it_was),
        cmocka_unit_test(test_the_longest_url_fits),
        cmocka_unit_test(test_other_bytes_are_refused),
        cmocka_unit_test(test_the_address_of_another_kind_is_refused_by_name),
        cmocka_unit_test(test_a_queues_address_opens_no_pipe),
        cmocka_unit_test(test_forged_addresses_lead_nowhere),
        cmocka_unit_test(test_the_address_of_a_process_that_ended_leads_nowhere),
        cmocka_unit_test(test_the_address_of_a_closed_queue_is_the_end),
        cmocka_unit_test(test_only_the_owner_gives_out_addresses),
        cmocka_unit_test(test_an_address_travels_as_text),
        cmocka_unit_test(test_the_longest_address_has_room),
        cmocka_unit_test(test_other_texts_are_refused),
    };

    init_fiber(&argc, &argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
