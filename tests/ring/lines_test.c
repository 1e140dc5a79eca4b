/* lines_test.c - bytes of ranks to whole lines, tagged and not.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/lines.h"

struct t {
    struct fbr_line_stream s;
    struct fbr_buf out;
};

static void add(struct t *t, const char *tag, bool reset, const char *data)
{
    fbr_line_add(&t->s, tag, reset, data, strlen(data), &t->out);
}

static void expect(struct t *t, const char *text)
{
    fbr_put_u8(&t->out, 0);
    assert_string_equal((char *)t->out.data, text);
    fbr_buf_clear(&t->out);
}

static void fini(struct t *t)
{
    fbr_line_fini(&t->s);
    fbr_buf_fini(&t->out);
}

static void test_halves_wait_for_their_end(void **state)
{
    struct t t = {0};

    (void)state;
    add(&t, "", false, "one\ntw");
    expect(&t, "one\n");
    add(&t, "", false, "o");
    expect(&t, "");
    add(&t, "", false, "\nthree\nfo");
    expect(&t, "two\nthree\n");
    fbr_line_end(&t.s, "", false, &t.out);
    expect(&t, "fo\n");
    fbr_line_end(&t.s, "", false, &t.out);
    expect(&t, "");
    fini(&t);
}

static void test_each_line_has_its_tag(void **state)
{
    struct t t = {0};

    (void)state;
    add(&t, "[1] ", false, "a\nb\n\nc");
    expect(&t, "[1] a\n[1] b\n[1] \n");
    fbr_line_end(&t.s, "[1] ", false, &t.out);
    expect(&t, "[1] c\n");
    fini(&t);
}

static void test_binary_bytes_stay(void **state)
{
    const char data[] = {'a', 0, (char)0xff, '\n', 0};
    struct t t = {0};

    (void)state;
    fbr_line_add(&t.s, "", false, data, sizeof(data), &t.out);
    assert_int_equal(t.out.len, 4);
    assert_memory_equal(t.out.data, data, 4);
    fini(&t);
}

static void test_a_colour_ends_with_its_line(void **state)
{
    struct t t = {0};

    (void)state;
    add(&t, "", true, "\033[31mred\nplain\n\033[3");
    expect(&t, "\033[31mred\033[0m\nplain\n");
    add(&t, "", true, "2mgreen\n");
    expect(&t, "\033[32mgreen\033[0m\n");
    fini(&t);
}

static void test_a_line_of_ten_megabytes(void **state)
{
    size_t len = 10u << 20, piece = 65536;
    char *x = malloc(piece);
    struct t t = {0};

    (void)state;
    memset(x, 'x', piece);
    for (size_t at = 0; at < len; at += piece)
        fbr_line_add(&t.s, "[0] ", false, x, piece, &t.out);
    assert_int_equal(t.out.len, 0);
    add(&t, "[0] ", false, "\n");
    assert_int_equal(t.out.len, len + 5);
    free(x);
    fini(&t);
}

static void test_the_tail_has_the_last_bytes(void **state)
{
    struct t t = {0};
    char line[32];

    (void)state;
    for (int i = 0; i < 10000; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        add(&t, "", false, line);
        fbr_buf_clear(&t.out);
    }
    assert_true(t.s.tail.len >= 1024 && t.s.tail.len <= 2 * FBR_LINE_TAIL);
    assert_memory_equal(t.s.tail.data + t.s.tail.len - 10, "line 9999\n", 10);
    fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_wait_for_their_end),
        cmocka_unit_test(test_each_line_has_its_tag),
        cmocka_unit_test(test_binary_bytes_stay),
        cmocka_unit_test(test_a_colour_ends_with_its_line),
        cmocka_unit_test(test_a_line_of_ten_megabytes),
        cmocka_unit_test(test_the_tail_has_the_last_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
