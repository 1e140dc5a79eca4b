/* json_out_test.c - JSON of any bytes is JSON, and text of any bytes can be shown.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/json_out.h"
#include "runtime/base/printable.h"

static void string_is(const char *value, const char *json)
{
    struct fbr_json j = {0};
    char *text;

    fbr_json_str(&j, NULL, value);
    text = fbr_json_take(&j);
    assert_string_equal(text, json);
    free(text);
}

static void strings_are_escaped(void **state)
{
    string_is("plain", "\"plain\"");
    string_is("", "\"\"");
    string_is(NULL, "null");
    string_is("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
    string_is("line\nnext\ttab\r\x01\x7f", "\"line\\nnext\\u0009tab\\u000d\\u0001\\u007f\"");
    string_is("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa7",
              "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa7\"");
}

static void broken_utf8_is_replaced(void **state)
{
    string_is("\xff", "\"\xef\xbf\xbd\"");
    string_is("a\xc3", "\"a\xef\xbf\xbd\"");                               /* cut off */
    string_is("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong */
    string_is("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* a surrogate */
    string_is("\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    string_is("\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    string_is("\xc2\x9b", "\"\xef\xbf\xbd\xef\xbf\xbd\""); /* CSI, which steers terminals */
}

static void values_nest(void **state)
{
    struct fbr_json j = {0};
    char *text;

    fbr_json_object(&j);
    fbr_json_int(&j, "a", -5);
    fbr_json_array(&j, "b");
    fbr_json_bool(&j, NULL, true);
    fbr_json_str(&j, NULL, NULL);
    fbr_json_object(&j);
    fbr_json_end_object(&j);
    fbr_json_array(&j, NULL);
    fbr_json_end_array(&j);
    fbr_json_end_array(&j);
    fbr_json_double(&j, "c", 0.5);
    fbr_json_double(&j, "d", (double)INFINITY);
    fbr_json_double(&j, "e", (double)NAN);
    fbr_json_end_object(&j);
    text = fbr_json_take(&j);
    assert_string_equal(text, "{\"a\":-5,\"b\":[true,null,{},[]],\"c\":0.5,\"d\":null,\"e\":null}");
    free(text);
}

static void shown_text_is_plain_and_fits(void **state)
{
    char out[12];

    fbr_printable_plain(out, sizeof(out), "short");
    assert_string_equal(out, "short");
    fbr_printable_plain(out, sizeof(out), "eleven char");
    assert_string_equal(out, "eleven char");
    fbr_printable_plain(out, sizeof(out), "twelve chars");
    assert_string_equal(out, "twelve c...");
    fbr_printable_plain(out, sizeof(out), "\033[2J\xff\n");
    assert_string_equal(out, "?[2J??");
    fbr_printable_plain(out, sizeof(out), "1234567\xe2\x82\xac\xe2\x82\xac");
    assert_string_equal(out, "1234567..."); /* no half character */
    for (size_t size = 0; size <= 4; size++) {
        memset(out, 'x', sizeof(out));
        fbr_printable_plain(out, size, "\xe2\x82\xac\xe2\x82\xac");
        assert_int_equal(out[size], 'x');
        assert_true(size == 0 || memchr(out, '\0', size));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(broken_utf8_is_replaced),
        cmocka_unit_test(values_nest),
        cmocka_unit_test(shown_text_is_plain_and_fits),
    };

    return cmocka_run_group_tests_name("json_out", tests, NULL, NULL);
}
