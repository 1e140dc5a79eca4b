/* random_test.c - randomness, wiping and comparing of runtime/base/random.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/random.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_differ_and_fill_all),
        cmocka_unit_test(wiping_leaves_zeros_and_only_there),
        cmocka_unit_test(comparing_sees_every_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
