/* lines_test.c - bytes of ranks on a screen: whole lines, unfinished ones, tags, returns, colours.
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

#include "runtime/proc/lines.h"

struct t {
    struct fbr_line_stream s[2];
    struct fbr_screen screen;
    struct fbr_buf out;
    const char *tags[2];
};

static void init(struct t *t, bool terminal, const char *tag0, const char *tag1)
{
    *t = (struct t){.screen = {.terminal = terminal, .shared = true}, .tags = {tag0, tag1}};
    for (int i = 0; i < 2; i++)
        t->s[i].who = &t->s[i];
}

static void add(struct t *t, int who, const char *data)
{
    fbr_line_add(&t->s[who], &t->screen, t->tags[who], data, strlen(data), &t->out);
}

static void show(struct t *t, int who)
{
    fbr_line_show(&t->s[who], &t->screen, t->tags[who], &t->out);
}

static void end(struct t *t, int who)
{
    fbr_line_end(&t->s[who], &t->screen, t->tags[who], &t->out);
}

static void expect(struct t *t, const char *text)
{
    fbr_put_u8(&t->out, 0);
    assert_string_equal((char *)t->out.data, text);
    fbr_buf_clear(&t->out);
}

static void fini(struct t *t)
{
    for (int i = 0; i < 2; i++)
        fbr_line_fini(&t->s[i], &t->screen);
    assert_int_equal(t->screen.held, 0);
    fbr_buf_fini(&t->out);
}

static void test_halves_wait_for_their_end(void **state)
{
    struct t t;

    init(&t, false, "", "");
    add(&t, 0, "one\ntw");
    expect(&t, "one\n");
    add(&t, 0, "o");
    add(&t, 1, "other\n");
    expect(&t, "other\n");
    add(&t, 0, "\nthree\nfo");
    expect(&t, "two\nthree\n");
    end(&t, 0);
    expect(&t, "fo");
    end(&t, 0);
    expect(&t, "");
    fini(&t);
}

static void test_the_next_ranks_line_begins_on_a_fresh_one(void **state)
{
    struct t t;

    init(&t, false, "", "");
    add(&t, 0, "name? ");
    expect(&t, "");
    show(&t, 0);
    expect(&t, "name? ");
    show(&t, 0);
    expect(&t, "");
    add(&t, 0, "again? ");
    show(&t, 0);
    expect(&t, "again? ");
    add(&t, 1, "hello\n");
    expect(&t, "\nhello\n");
    add(&t, 0, "yes\n");
    expect(&t, "yes\n");
    add(&t, 1, "half");
    end(&t, 1);
    expect(&t, "half");
    fbr_screen_break(&t.screen, &t.out);
    expect(&t, "\n");
    fini(&t);
}

static void test_each_line_has_its_tag(void **state)
{
    struct t t;

    init(&t, false, "[0] ", "[1] ");
    add(&t, 1, "a\nb\n\nc");
    expect(&t, "[1] a\n[1] b\n[1] \n");
    show(&t, 1);
    expect(&t, "[1] c");
    add(&t, 1, "d\n");
    expect(&t, "d\n");
    add(&t, 1, "e");
    show(&t, 1);
    add(&t, 0, "x\n");
    add(&t, 1, "f\n");
    expect(&t, "[1] e\n[0] x\n[1] f\n");
    fini(&t);
}

static void test_a_bar_keeps_its_tag_on_a_terminal(void **state)
{
    struct t t;

    init(&t, true, "[0] ", "[1] ");
    add(&t, 0, "\r10%");
    show(&t, 0);
    expect(&t, "[0] \r[0] 10%");
    add(&t, 0, "\r20%");
    show(&t, 0);
    expect(&t, "\r[0] 20%");
    add(&t, 1, "x\r\n");
    expect(&t, "\n[1] x\r\n");
    add(&t, 0, "\r30%\n");
    expect(&t, "[0] \r[0] 30%\n");
    add(&t, 0, "40%\r");
    show(&t, 0);
    expect(&t, "[0] 40%\r");
    add(&t, 0, "50%\r");
    show(&t, 0);
    expect(&t, "[0] 50%\r");
    fini(&t);
}

static void test_a_bar_is_one_line_elsewhere(void **state)
{
    struct t t;

    init(&t, false, "[0] ", "");
    add(&t, 0, "a\r10%\r20%");
    show(&t, 0);
    expect(&t, ""); /* it moves on */
    add(&t, 0, "\r30%\nb\r\nc\rd\r\nx\r");
    expect(&t, "[0] 30%\n[0] b\r\n[0] d\r\n");
    end(&t, 0);
    expect(&t, "[0] x\r");
    t.screen.owner = NULL;
    add(&t, 1, "a\r10%\r20%"); /* without a tag every byte is there */
    show(&t, 1);
    expect(&t, "");
    add(&t, 1, "\r30%\n");
    expect(&t, "a\r10%\r20%\r30%\n");
    t.screen.shared = false;
    add(&t, 1, "\r10%");
    show(&t, 1);
    expect(&t, "\r10%");
    fini(&t);
}

static void test_binary_bytes_stay(void **state)
{
    const char data[] = {'a', 0, (char)0xff, '\r', '\033', '\n', 0};
    struct t t;

    init(&t, false, "", "");
    fbr_line_add(&t.s[0], &t.screen, "", data, sizeof(data), &t.out);
    end(&t, 0);
    assert_int_equal(t.out.len, sizeof(data));
    assert_memory_equal(t.out.data, data, sizeof(data));
    fini(&t);
}

static void test_a_colour_ends_with_its_line(void **state)
{
    struct t t;

    init(&t, true, "", "");
    add(&t, 0, "\033[31mred\nplain\n\033[3");
    expect(&t, "\033[31mred\033[0m\nplain\n");
    add(&t, 0, "2mgreen\n");
    expect(&t, "\033[32mgreen\033[0m\n");
    add(&t, 0, "\033[33myellow");
    show(&t, 0);
    add(&t, 1, "x\n");
    expect(&t, "\033[33myellow\033[0m\nx\n");
    add(&t, 0, "\033[34mblue");
    end(&t, 0);
    expect(&t, "\033[34mblue\033[0m");
    fini(&t);
}

static void test_a_terminal_is_not_steered(void **state)
{
    static const char hostile[] =
        "\033]0;title\aa\033[2Jb\033[1;1Hc\033Pq\033\\d\033(0e\302\2331mf\a\016g"
        "\033[?25lh\033[Ki\302\240j\033]0;x\nk\033[9\nl\177\n";
    struct t t;

    init(&t, true, "", "");
    for (const char *at = hostile; *at; at++) /* however it is cut */
        fbr_line_add(&t.s[0], &t.screen, "", at, 1, &t.out);
    expect(&t, "abcde1mfgh\033[Ki\302\240j\033[0m\nk\nl\n");
    fini(&t);
    init(&t, false, "", "");
    add(&t, 0, hostile);
    expect(&t, hostile); /* a file gets what was written */
    fini(&t);
}

static void test_a_line_without_an_end_is_bounded(void **state)
{
    size_t len = 10u << 20, piece = 65536, most = 0;
    char *x = malloc(piece);
    struct t t;

    init(&t, false, "[0] ", "[1] ");
    memset(x, 'x', piece);
    for (size_t at = 0; at < len; at += piece) {
        fbr_line_add(&t.s[0], &t.screen, "[0] ", x, piece, &t.out);
        most = t.screen.held > most ? t.screen.held : most;
    }
    add(&t, 0, "\n");
    assert_true(most <= FBR_LINE_HELD + piece);
    assert_int_equal(t.out.len, len + 5); /* in parts, and yet one line */
    fbr_buf_clear(&t.out);
    t.screen.held = FBR_LINES_HELD; /* of others */
    add(&t, 1, "y");
    expect(&t, "[1] y");
    t.screen.held -= FBR_LINES_HELD;
    free(x);
    fini(&t);
}

static void test_a_report_has_the_last_lines(void **state)
{
    struct fbr_buf lines = {0};
    struct t t;
    char line[32];

    init(&t, false, "", "");
    for (int i = 0; i < 10000; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        add(&t, 0, line);
        fbr_buf_clear(&t.out);
    }
    assert_true(t.s[0].tail.len >= 1024 && t.s[0].tail.len <= 2 * FBR_LINE_TAIL);
    fbr_line_report(&t.s[0], "", "\n", &lines);
    assert_memory_equal(lines.data, "line 9990\n", 10);
    assert_int_equal(lines.len, 10 * FBR_LINE_REPORT);
    fbr_buf_clear(&lines);
    for (int i = 0; i <= 100; i++) {
        snprintf(line, sizeof(line), "\r\033[32m%3d%%|#\033[0m|", i);
        add(&t, 0, line);
    }
    fbr_line_report(&t.s[0], "", "\n", &lines);
    fbr_put_u8(&lines, 0);
    assert_non_null(strstr((char *)lines.data, "100%|#|\n"));
    assert_null(strstr((char *)lines.data, "99%"));
    fbr_buf_fini(&lines);
    fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_wait_for_their_end),
        cmocka_unit_test(test_the_next_ranks_line_begins_on_a_fresh_one),
        cmocka_unit_test(test_each_line_has_its_tag),
        cmocka_unit_test(test_a_bar_keeps_its_tag_on_a_terminal),
        cmocka_unit_test(test_a_bar_is_one_line_elsewhere),
        cmocka_unit_test(test_binary_bytes_stay),
        cmocka_unit_test(test_a_colour_ends_with_its_line),
        cmocka_unit_test(test_a_terminal_is_not_steered),
        cmocka_unit_test(test_a_line_without_an_end_is_bounded),
        cmocka_unit_test(test_a_report_has_the_last_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
