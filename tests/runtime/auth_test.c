/* auth_test.c - randomness, wiping, comparing and tickets of runtime/auth.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/auth.h"

static void count_up(uint8_t key[FBR_KEY_SIZE])
{
    for (int i = 0; i < FBR_KEY_SIZE; i++)
        key[i] = (uint8_t)i;
}

static void random_bytes_differ_and_fill_all(void **state)
{
    enum { SIZE = 100000 };
    uint8_t *a = calloc(1, SIZE), *b = calloc(1, SIZE);
    size_t zeros = 0;

    (void)state;
    assert_int_equal(fbr_random(a, SIZE), 0);
    assert_int_equal(fbr_random(b, SIZE), 0);
    assert_memory_not_equal(a, b, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        zeros += a[i] == 0;
    assert_in_range(zeros, 200, 600); /* 391 expected, 10 standard deviations */
    assert_memory_not_equal(a + SIZE - 32, b + SIZE - 32, 32);
    assert_int_equal(fbr_random(NULL, 0), 0);
    free(a);
    free(b);
}

static void wiping_leaves_zeros_and_only_there(void **state)
{
    uint8_t b[40], zeros[32] = {0};

    (void)state;
    memset(b, 7, sizeof(b));
    fbr_wipe(b + 4, 32);
    assert_memory_equal(b + 4, zeros, 32);
    assert_int_equal(b[3], 7);
    assert_int_equal(b[36], 7);
    fbr_wipe(NULL, 0);
}

static void comparing_sees_every_bit(void **state)
{
    uint8_t a[FBR_KEY_SIZE], b[FBR_KEY_SIZE];

    (void)state;
    count_up(a);
    count_up(b);
    assert_true(fbr_same(a, b, sizeof(a)));
    assert_true(fbr_same(NULL, NULL, 0));
    for (int bit = 0; bit < 8 * FBR_KEY_SIZE; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(fbr_same(a, b, sizeof(a)));
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Expected values by Python's hmac and struct modules: hmac.new(key, b"fiber join" +
 * struct.pack("<I", len(uid)) + uid + struct.pack("<QI", process, epoch), "sha256") */
static void tickets_have_known_values(void **state)
{
    static const struct {
        const char *uid;
        uint64_t process;
        uint32_t epoch;
        const uint8_t ticket[FBR_KEY_SIZE];
    } known[] = {
        {"a", 0x0u, 0x0u, {0x87, 0x50, 0xb3, 0xd3, 0xdb, 0x0b, 0xdb, 0x0a, 0xf6, 0xa7, 0x45,
                           0x7b, 0xec, 0xfe, 0xd1, 0x9e, 0xce, 0x7a, 0x3c, 0xbe, 0x30, 0xf6,
                           0x3e, 0xd5, 0x88, 0x47, 0xf3, 0x25, 0xa1, 0xde, 0xc4, 0xf2}},
        {"5f1c2a9e", 0x1u, 0x1u, {0x32, 0xb8, 0xa1, 0xbf, 0x5b, 0x1c, 0x7f, 0x78, 0xb2, 0x8b, 0x78,
                                  0xec, 0xd9, 0x32, 0xa8, 0xdd, 0xeb, 0x36, 0xfc, 0x22, 0xb8, 0xcb,
                                  0x48, 0xa4, 0x45, 0x69, 0xb4, 0xda, 0x6c, 0xdb, 0x10, 0x94}},
        {"default/es-digits-7d4f",
         0xfedcba9876543210u,
         0x89abcdefu,
         {0x98, 0xe0, 0x50, 0x94, 0xae, 0xf9, 0xe4, 0x99, 0x2b, 0x37, 0x76,
          0x2b, 0x53, 0xda, 0x4f, 0xb0, 0x8e, 0x45, 0x43, 0xc3, 0x43, 0xfd,
          0xb5, 0x63, 0x9b, 0xde, 0xf2, 0x0a, 0x62, 0x0a, 0xa9, 0x51}},
    };
    uint8_t key[FBR_KEY_SIZE], out[FBR_KEY_SIZE];

    (void)state;
    count_up(key);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_int_equal(fbr_ticket(key, known[i].uid, known[i].process, known[i].epoch, out), 0);
        assert_memory_equal(out, known[i].ticket, FBR_KEY_SIZE);
    }
}

static void every_input_changes_the_ticket(void **state)
{
    uint8_t key[FBR_KEY_SIZE], first[FBR_KEY_SIZE], out[FBR_KEY_SIZE];

    (void)state;
    count_up(key);
    assert_int_equal(fbr_ticket(key, "job", 1, 1, first), 0);
    assert_int_equal(fbr_ticket(key, "job", 1, 1, out), 0);
    assert_true(fbr_same(first, out, sizeof(out)));
    assert_int_equal(fbr_ticket(key, "jod", 1, 1, out), 0);
    assert_false(fbr_same(first, out, sizeof(out)));
    assert_int_equal(fbr_ticket(key, "job", 2, 1, out), 0);
    assert_false(fbr_same(first, out, sizeof(out)));
    assert_int_equal(fbr_ticket(key, "job", 1, 2, out), 0);
    assert_false(fbr_same(first, out, sizeof(out)));
    key[31] ^= 0x80;
    assert_int_equal(fbr_ticket(key, "job", 1, 1, out), 0);
    assert_false(fbr_same(first, out, sizeof(out)));
}

static void a_ticket_needs_a_uid_of_sane_length(void **state)
{
    uint8_t key[FBR_KEY_SIZE], out[FBR_KEY_SIZE], zeros[FBR_KEY_SIZE] = {0};
    char uid[FBR_JOB_UID_MAX + 2];

    (void)state;
    count_up(key);
    memset(uid, 'u', sizeof(uid));
    uid[FBR_JOB_UID_MAX] = '\0';
    assert_int_equal(fbr_ticket(key, uid, 1, 1, out), 0);
    uid[FBR_JOB_UID_MAX] = 'u';
    uid[FBR_JOB_UID_MAX + 1] = '\0';
    assert_int_equal(fbr_ticket(key, uid, 1, 1, out), -EINVAL);
    assert_memory_equal(out, zeros, sizeof(out));
    assert_int_equal(fbr_ticket(key, "", 1, 1, out), -EINVAL);
    assert_int_equal(fbr_ticket(key, NULL, 1, 1, out), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_differ_and_fill_all),
        cmocka_unit_test(wiping_leaves_zeros_and_only_there),
        cmocka_unit_test(comparing_sees_every_bit),
        cmocka_unit_test(tickets_have_known_values),
        cmocka_unit_test(every_input_changes_the_ticket),
        cmocka_unit_test(a_ticket_needs_a_uid_of_sane_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
