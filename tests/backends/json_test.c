/* json_test.c - JSON: reading by path, making, merging.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/http/json.h"

static struct json_t *parse(const char *text)
{
    struct json_t *j = fbr_json_parse(text, strlen(text), NULL);

    assert_non_null(j);
    return j;
}

/* Takes it. */
static void assert_prints(struct json_t *j, const char *text)
{
    size_t len;
    char *printed = fbr_json_print(j, &len);

    assert_string_equal(printed, text);
    assert_int_equal(len, strlen(text));
    free(printed);
    fbr_json_free(j);
}

static void test_values_are_found_by_path(void **state)
{
    struct json_t *j =
        parse("{\"a\":{\"b\":\"text\",\"n\":7,\"yes\":true,\"no\":false},\"l\":[1,2]}");

    assert_string_equal(fbr_json_text(j, "a", "b", NULL), "text");
    assert_int_equal(fbr_json_int(j, -1, "a", "n", NULL), 7);
    assert_true(fbr_json_bool(j, "a", "yes", NULL));
    assert_false(fbr_json_bool(j, "a", "no", NULL));
    assert_true(fbr_json_is_object(fbr_json_at(j, "a", NULL)));
    assert_true(fbr_json_is_array(fbr_json_at(j, "l", NULL)));
    assert_int_equal(fbr_json_count(fbr_json_at(j, "l", NULL)), 2);
    assert_ptr_equal(fbr_json_at(j, NULL), j);
    fbr_json_free(j);
}

static void test_what_is_not_there_is_the_default(void **state)
{
    struct json_t *j = parse("{\"a\":{\"b\":\"text\"},\"l\":[1],\"big\":9223372036854775807}");

    assert_string_equal(fbr_json_text(j, "a", "c", NULL), "");
    assert_string_equal(fbr_json_text(j, "a", "b", "c", NULL), "");
    assert_string_equal(fbr_json_text(j, "a", NULL), "");
    assert_string_equal(fbr_json_text(NULL, "a", NULL), "");
    assert_int_equal(fbr_json_int(j, 5, "a", "b", NULL), 5);
    assert_int_equal(fbr_json_int(j, 0, "big", NULL), INT64_MAX);
    assert_false(fbr_json_bool(j, "a", NULL));
    assert_null(fbr_json_at(j, "l", "0", NULL));
    assert_int_equal(fbr_json_count(j), 0);
    assert_null(fbr_json_item(j, 0));
    assert_null(fbr_json_item(fbr_json_at(j, "l", NULL), 1));
    assert_int_equal(fbr_json_count(NULL), 0);
    fbr_json_free(j);
    fbr_json_free(NULL);
}

static void test_what_is_no_json_is_told(void **state)
{
    static const char *const wrong[] = {"",           "{",        "{\"a\":}", "[1,]",
                                        "{\"a\":1}x", "\"\xff\"", "nul",      "{\"a\" 1}"};
    char deep[8192];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct fbr_error err = {0, ""};

        assert_null(fbr_json_parse(wrong[i], strlen(wrong[i]), &err));
        assert_int_equal(err.code, -EBADMSG);
        assert_non_null(strstr(err.text, "not JSON"));
    }
    memset(deep, '[', sizeof(deep));
    assert_null(fbr_json_parse(deep, sizeof(deep), NULL));
}

static void count_members(void *user, const char *key, struct json_t *value)
{
    char *out = user;

    strcat(out, key);
    assert_non_null(value);
}

static void test_members_come_in_their_order(void **state)
{
    struct json_t *j = parse("{\"z\":1,\"a\":2,\"m\":3}");
    char keys[8] = "";

    fbr_json_each(j, count_members, keys);
    assert_string_equal(keys, "zam");
    fbr_json_each(NULL, count_members, keys);
    fbr_json_each(fbr_json_at(j, "z", NULL), count_members, keys);
    assert_string_equal(keys, "zam");
    fbr_json_free(j);
}

static void test_making(void **state)
{
    struct json_t *j = fbr_json_pack("{s:s, s:i, s:[s]}", "a", "b", "n", 3, "l", "x");

    assert_int_equal(fbr_json_append(fbr_json_at(j, "l", NULL), fbr_json_string("y")), 0);
    assert_int_equal(fbr_json_set(j, "s", fbr_json_string("\xc3\xa9\n")), 0);
    assert_prints(j, "{\"a\":\"b\",\"n\":3,\"l\":[\"x\",\"y\"],\"s\":\"\xc3\xa9\\n\"}");
    j = fbr_json_pack("{}");
    assert_int_equal(fbr_json_set(j, "a", NULL), -ENOMEM);
    assert_int_equal(fbr_json_set(NULL, "a", fbr_json_pack("{}")), -ENOMEM);
    assert_int_equal(fbr_json_append(j, fbr_json_pack("{}")), -ENOMEM);
    assert_null(fbr_json_pack("{s:s}", "a", "\xff"));
    fbr_json_free(j);
}

static void test_making_remembers_its_first_failure(void **state)
{
    struct json_t *j = fbr_json_pack("{}"), *list = fbr_json_pack("[]");

    fbr_json_push(&list, fbr_json_string("x"));
    fbr_json_push(&list, fbr_json_string("y"));
    fbr_json_put(&j, "l", list);
    fbr_json_put(&j, "s", fbr_json_string("z"));
    assert_prints(fbr_json_pack("O", j), "{\"l\":[\"x\",\"y\"],\"s\":\"z\"}");
    fbr_json_put(&j, "a", NULL);
    assert_null(j);
    fbr_json_put(&j, "b", fbr_json_string("late")); /* takes the value: a leak would be told */
    assert_null(j);
    list = fbr_json_pack("[]");
    fbr_json_push(&list, NULL);
    assert_null(list);
    fbr_json_push(&list, fbr_json_string("late"));
    assert_null(list);
}

static void test_texts_become_utf8(void **state)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"plain", "\"plain\""},
        {"\xff\xfe", "\"??\""},
        {"a\xc3", "\"a?\""},              /* cut */
        {"\xc0\x80", "\"??\""},           /* too long a form */
        {"\xed\xa0\x80", "\"???\""},      /* a surrogate */
        {"\xf4\x90\x80\x80", "\"????\""}, /* beyond the last */
        {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_prints(fbr_json_string(cases[i].text), cases[i].json);
        assert_int_equal(fbr_json_utf8(cases[i].text), strchr(cases[i].json, '?') == NULL);
    }
    assert_true(fbr_json_utf8(""));
}

static void test_merging(void **state)
{
    static const char *const cases[][3] = {
        {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
        {"{\"a\":1}", "{\"a\":[2]}", "{\"a\":[2]}"},
        {"{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"b\":null,\"d\":3}}", "{\"a\":{\"c\":2,\"d\":3}}"},
        {"{\"a\":1}", "{\"a\":{\"b\":null,\"c\":2}}", "{\"a\":{\"c\":2}}"},
        {"{\"a\":1}", "{\"x\":null}", "{\"a\":1}"},
        {"{\"a\":[1,2]}", "{\"a\":[3]}", "{\"a\":[3]}"},
        {"{\"a\":1}", "[1]", "{\"a\":1}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_t *j = parse(cases[i][0]), *over = parse(cases[i][1]);

        assert_int_equal(fbr_json_merge(j, over), 0);
        fbr_json_free(over); /* nothing of it is shared */
        assert_prints(j, cases[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_found_by_path),
        cmocka_unit_test(test_what_is_not_there_is_the_default),
        cmocka_unit_test(test_what_is_no_json_is_told),
        cmocka_unit_test(test_members_come_in_their_order),
        cmocka_unit_test(test_making),
        cmocka_unit_test(test_making_remembers_its_first_failure),
        cmocka_unit_test(test_texts_become_utf8),
        cmocka_unit_test(test_merging),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
