/* buf_test.c - the buffer and the cursor of runtime/base/buf.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/buf.h"

static void reads_back_what_was_put(void **state)
{
    struct fbr_buf b = {0};
    struct fbr_cur c;
    char name[8];
    size_t len;

    fbr_put_u8(&b, 0xfe);
    fbr_put_u16(&b, 0xfedc);
    fbr_put_u32(&b, 0xfedcba98u);
    fbr_put_u64(&b, 0xfedcba9876543210u);
    fbr_put_bytes(&b, "a\0b", 3);
    fbr_put_str(&b, "worker");
    fbr_put_str(&b, NULL);
    assert_false(b.failed);

    c = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_get_u8(&c), 0xfe);
    assert_int_equal(fbr_get_u16(&c), 0xfedc);
    assert_int_equal(fbr_get_u32(&c), 0xfedcba98u);
    assert_true(fbr_get_u64(&c) == 0xfedcba9876543210u);
    assert_memory_equal(fbr_get_bytes(&c, &len), "a\0b", 3);
    assert_int_equal(len, 3);
    fbr_get_str(&c, name, sizeof(name));
    assert_string_equal(name, "worker");
    fbr_get_str(&c, name, sizeof(name));
    assert_string_equal(name, "");
    assert_true(fbr_cur_ok(&c));
    assert_int_equal(fbr_cur_left(&c), 0);
    fbr_buf_fini(&b);
}

static void is_little_endian_on_the_wire(void **state)
{
    struct fbr_buf b = {0};

    fbr_put_u16(&b, 0x0201);
    fbr_put_u32(&b, 0x06050403u);
    assert_int_equal(b.len, 6);
    assert_memory_equal(b.data, "\1\2\3\4\5\6", 6);
    fbr_buf_fini(&b);
}

static void keeps_its_bytes_while_it_grows(void **state)
{
    struct fbr_buf b = {0};
    struct fbr_cur c;

    for (uint32_t i = 0; i < 10000; i++)
        fbr_put_u32(&b, i);
    assert_false(b.failed);
    assert_int_equal(b.len, 40000);
    c = fbr_cur(b.data, b.len);
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(fbr_get_u32(&c), i);
    fbr_buf_fini(&b);
}

static void remembers_that_it_could_not_grow(void **state)
{
    struct fbr_buf b = {0};

    fbr_put_u8(&b, 1);
    assert_null(fbr_buf_reserve(&b, SIZE_MAX - 1 - b.len));
    assert_true(b.failed);
    fbr_put_u8(&b, 2); /* refused, although there is room */
    assert_int_equal(b.len, 1);
    fbr_buf_clear(&b);
    assert_false(b.failed);
    fbr_put_u8(&b, 3);
    assert_int_equal(b.data[0], 3);
    fbr_buf_fini(&b);
}

static void overflowing_length_fails(void **state)
{
    struct fbr_buf b = {0};

    fbr_put_u8(&b, 1);
    assert_null(fbr_buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    fbr_buf_fini(&b);
}

static void consume_drops_from_the_front(void **state)
{
    struct fbr_buf b = {0};

    fbr_put(&b, "abcdef", 6);
    fbr_buf_consume(&b, 2);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.data, "cdef", 4);
    fbr_buf_consume(&b, 100);
    assert_int_equal(b.len, 0);
    fbr_buf_fini(&b);
}

static void set_overwrites_in_place_and_not_beyond(void **state)
{
    struct fbr_buf b = {0};

    fbr_put_u32(&b, 0);
    fbr_put_u8(&b, 9);
    fbr_set_u32(&b, 0, 0x04030201u);
    assert_memory_equal(b.data, "\1\2\3\4\x09", 5);
    fbr_set_u32(&b, 2, 0xffffffffu); /* would end behind the last byte */
    assert_memory_equal(b.data, "\1\2\3\4\x09", 5);
    fbr_buf_fini(&b);
}

static void cursor_turns_bad_at_the_end_and_stays_bad(void **state)
{
    struct fbr_cur c = fbr_cur("\1\2\3", 3);

    assert_int_equal(fbr_get_u32(&c), 0);
    assert_false(fbr_cur_ok(&c));
    assert_int_equal(fbr_get_u8(&c), 0); /* there is a byte, but nothing is read any more */
    assert_int_equal(fbr_cur_left(&c), 3);
}

static void cursor_over_nothing_is_empty(void **state)
{
    struct fbr_cur c = fbr_cur(NULL, 100);

    assert_int_equal(fbr_cur_left(&c), 0);
    assert_null(fbr_get(&c, 1));
    assert_false(fbr_cur_ok(&c));
}

static void hostile_length_is_refused(void **state)
{
    struct fbr_cur c = fbr_cur("\xff\xff\xff\xff"
                               "abc",
                               7);
    size_t len = 1;

    assert_null(fbr_get_bytes(&c, &len));
    assert_int_equal(len, 0);
    assert_false(fbr_cur_ok(&c));
}

static void string_that_does_not_fit_is_refused(void **state)
{
    struct fbr_buf b = {0};
    struct fbr_cur c;
    char out[4] = "old";

    fbr_put_str(&b, "four");
    c = fbr_cur(b.data, b.len);
    fbr_get_str(&c, out, sizeof(out));
    assert_false(fbr_cur_ok(&c));
    assert_string_equal(out, "");

    c = fbr_cur(b.data, b.len);
    assert_null(fbr_get_strdup(&c, 3));
    assert_false(fbr_cur_ok(&c));
    fbr_buf_fini(&b);
}

static void string_with_a_nul_byte_is_refused(void **state)
{
    struct fbr_buf b = {0};
    struct fbr_cur c;
    char out[8];

    fbr_put_bytes(&b, "a\0b", 3);
    c = fbr_cur(b.data, b.len);
    fbr_get_str(&c, out, sizeof(out));
    assert_false(fbr_cur_ok(&c));
    c = fbr_cur(b.data, b.len);
    assert_null(fbr_get_strdup(&c, 8));
    assert_false(fbr_cur_ok(&c));
    fbr_buf_fini(&b);
}

static void strdup_copies(void **state)
{
    struct fbr_buf b = {0};
    struct fbr_cur c;
    char *s;

    fbr_put_str(&b, "hello");
    c = fbr_cur(b.data, b.len);
    s = fbr_get_strdup(&c, 5);
    fbr_buf_fini(&b);
    assert_string_equal(s, "hello");
    free(s);
}

static void fields_are_written_and_read_by_their_types(void **state)
{
    struct thing {
        int number;
        char name[4];
        bool is;
        double real;
        uint8_t bytes[2];
        char letter;
    } in = {-2, "abc", true, 0.5, {1, 2}, 'x'}, out;
    static const struct fbr_field fields[] = {FBR_FIELD(struct thing, number),
                                              FBR_FIELD(struct thing, name),
                                              FBR_FIELD(struct thing, is),
                                              FBR_FIELD(struct thing, real),
                                              FBR_FIELD(struct thing, bytes),
                                              FBR_FIELD(struct thing, letter),
                                              {0}};
    struct fbr_buf b = {0};
    struct fbr_cur c;

    fbr_put_fields(&b, fields, &in);
    assert_int_equal(b.len, 4 + (4 + 3) + 1 + 8 + 2 + 1);
    c = fbr_cur(b.data, b.len);
    fbr_get_fields(&c, fields, &out);
    assert_true(fbr_cur_ok(&c) && !fbr_cur_left(&c));
    assert_int_equal(out.number, -2);
    assert_string_equal(out.name, "abc");
    assert_true(out.is && out.real == 0.5 && out.bytes[1] == 2 && out.letter == 'x');
    c = fbr_cur(b.data, b.len - 3); /* what is missing is 0 */
    fbr_get_fields(&c, fields, &out);
    assert_false(fbr_cur_ok(&c));
    assert_int_equal(out.number, -2);
    assert_true(out.bytes[0] == 0 && out.letter == 0);
    fbr_set_u32(&b, 4, 4);
    c = fbr_cur(b.data, b.len);
    fbr_get_fields(&c, fields, &out); /* its name is too long */
    assert_false(fbr_cur_ok(&c));
    assert_string_equal(out.name, "");
    fbr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_put),
        cmocka_unit_test(is_little_endian_on_the_wire),
        cmocka_unit_test(keeps_its_bytes_while_it_grows),
        cmocka_unit_test(remembers_that_it_could_not_grow),
        cmocka_unit_test(overflowing_length_fails),
        cmocka_unit_test(consume_drops_from_the_front),
        cmocka_unit_test(set_overwrites_in_place_and_not_beyond),
        cmocka_unit_test(cursor_turns_bad_at_the_end_and_stays_bad),
        cmocka_unit_test(cursor_over_nothing_is_empty),
        cmocka_unit_test(hostile_length_is_refused),
        cmocka_unit_test(string_that_does_not_fit_is_refused),
        cmocka_unit_test(string_with_a_nul_byte_is_refused),
        cmocka_unit_test(strdup_copies),
        cmocka_unit_test(fields_are_written_and_read_by_their_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
