/* printable_test.c - text that is shown: cut behind a word, and ended as a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/printable.h"

static void expect_cut(size_t size, const char *text, const char *want)
{
    char out[64];

    fbr_printable_cut(out, size, text);
    assert_string_equal(out, want);
}

static void a_text_is_cut_behind_a_word(void **state)
{
    expect_cut(20, "it fits in there", "it fits in there");
    expect_cut(20, "it does not fit into that", "it does not fit ...");
    expect_cut(20, "one two three, fourteen", "one two three ...");
    expect_cut(12, "onlyonewordandthatislong", "onlyone ...");
    expect_cut(12, "onlyon\xc3\xa4wordandlong", "onlyon ...");
}

static void expect_end(const char *text, const char *want)
{
    char out[64];

    strcpy(out, text);
    fbr_printable_end(out, sizeof(out));
    assert_string_equal(out, want);
}

static void a_sentence_has_one_end(void **state)
{
    expect_end("No route to host \r\n", "No route to host.");
    expect_end("is it complete?", "is it complete?");
    expect_end("has start = ...", "has start = ...");
    expect_end("its last lines:\n    x (17.1 s)", "its last lines:\n    x (17.1 s)");
    expect_end("", "");
}

static void the_last_line_is_found(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", ""},
        {"one", "one"},
        {"one\n", "one"},
        {"one\ntwo\n", "two"},
        {"\n\n\n", ""},
        {"one\n\n\n", "one"},
        {"one\ntwo", "two"},
        {"\none", "one"},
        {" a \n", " a "},
        {"0123456789012345", "012345678"},
    };
    char out[10];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fbr_printable_last_line(cases[i].text, out, sizeof(out));
        assert_string_equal(out, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_is_cut_behind_a_word),
                                       cmocka_unit_test(a_sentence_has_one_end),
                                       cmocka_unit_test(the_last_line_is_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
