/* env_file_test.c - files of variables are read as docker reads them.
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
#include <unistd.h>

#include <cmocka.h>

#include "cli/text_file.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char got[512];

static int keep(void *user, const char *name, const char *value)
{
    size_t n = strlen(got);

    snprintf(got + n, sizeof(got) - n, "[%s%s%s]", name, value ? "=" : "", value ? value : "");
    return user ? -ECANCELED : 0;
}

static int parse(const char *text, size_t len, struct fbr_error *err)
{
    got[0] = '\0';
    *err = (struct fbr_error){0, ""};
    return env_file_parse("x.env", text, len, keep, NULL, err);
}

static void lines_are_variables(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", ""},
        {"A=1", "[A=1]"},
        {"A=1\nB=2\n", "[A=1][B=2]"},
        {"# c\n\n  \t\n  A=1\n", "[A=1]"},
        {"A= x 'y' \"z\" # no comment ", "[A= x 'y' \"z\" # no comment ]"},
        {"A=b=c\r\nHERE\r\n", "[A=b=c][HERE]"},
        {"EMPTY=\n", "[EMPTY=]"},
        {"A=1\nA=2", "[A=1][A=2]"},
    };
    struct fbr_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &err), 0);
        assert_string_equal(got, cases[i].said);
    }
}

static void a_wrong_line_is_named(void **state)
{
    struct fbr_error err;

    (void)state;
    assert_int_equal(parse("A=1\n=2\n", 7, &err), -EINVAL);
    assert_non_null(strstr(err.text, "x.env:2: "));
    assert_int_equal(parse("export A=1", 10, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"export A\""));
    assert_int_equal(parse("A=\0", 4, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not text"));
}

static void who_does_not_want_more_gets_no_more(void **state)
{
    struct fbr_error err = {0, ""};

    (void)state;
    got[0] = '\0';
    assert_int_equal(env_file_parse("x", "A=1\nB=2", 7, keep, got, &err), -ECANCELED);
    assert_string_equal(got, "[A=1]");
}

static void a_file_is_read_whole_or_refused(void **state)
{
    char dir[64], path[128];
    struct fbr_error err = {0, ""};
    FILE *f;

    (void)state;
    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/x", dir);
    assert_int_equal(env_file_read(path, keep, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    file_make(path, "\xef\xbb\xbfMARKED=1\n", 12, 0600);
    got[0] = '\0';
    assert_int_equal(env_file_read(path, keep, NULL, &err), 0);
    assert_string_equal(got, "[MARKED=1]");
    f = fopen(path, "w");
    for (unsigned i = 0; i < TEXT_FILE_MAX / 8; i++)
        fputs("#234567\n", f);
    fclose(f);
    got[0] = '\0';
    assert_int_equal(env_file_read(path, keep, NULL, &err), 0);
    f = fopen(path, "a");
    fputs("A=1\n", f);
    fclose(f);
    assert_int_equal(env_file_read(path, keep, NULL, &err), -EFBIG);
    assert_string_equal(got, "");
    assert_int_equal(env_file_read(dir, keep, NULL, &err), -EISDIR);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_variables),
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(who_does_not_want_more_gets_no_more),
        cmocka_unit_test(a_file_is_read_whole_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
