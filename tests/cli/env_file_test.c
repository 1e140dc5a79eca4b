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

#include "cli/run_env.h"
#include "cli/text_file.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static struct fbr_env got;

/* The variables of `got` as one text. */
static const char *said(void)
{
    static char text[512];
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < got.count; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "[%s]", got.list[i]);
    return text;
}

static int parse(const char *text, size_t len, struct fbr_error *err)
{
    fbr_env_fini(&got);
    *err = (struct fbr_error){0, ""};
    return text_file_lines("x.env", text, len, run_env_line, &got, err);
}

static int read_file(const char *path, struct fbr_error *err)
{
    fbr_env_fini(&got);
    return text_file_each(path, run_env_line, &got, err);
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
        {"A=b=c\r\nHERE\r\nNOT_HERE\r\n", "[A=b=c][HERE=it is]"},
        {"EMPTY=\n", "[EMPTY=]"},
        {"A=1\nB=\nA=2", "[A=2][B=]"},
    };
    struct fbr_error err;

    setenv("HERE", "it is", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].text, strlen(cases[i].text), &err), 0);
        assert_string_equal(said(), cases[i].said);
    }
}

static void a_wrong_line_is_named(void **state)
{
    struct fbr_error err;

    assert_int_equal(parse("A=1\n=2\n", 7, &err), -EINVAL);
    assert_non_null(strstr(err.text, "x.env:2: "));
    assert_int_equal(parse("export A=1", 10, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"export A\""));
    assert_int_equal(parse("A=\0", 4, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not text"));
}

static void a_file_is_read_whole_or_refused(void **state)
{
    char dir[64], path[128];
    struct fbr_error err = {0, ""};
    FILE *f;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/x", dir);
    assert_int_equal(read_file(path, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    file_make(path, "\xef\xbb\xbfMARKED=1\n", 12, 0600);
    assert_int_equal(read_file(path, &err), 0);
    assert_string_equal(said(), "[MARKED=1]");
    f = fopen(path, "w");
    for (unsigned i = 0; i < TEXT_FILE_MAX / 8; i++)
        fputs("#234567\n", f);
    fclose(f);
    assert_int_equal(read_file(path, &err), 0);
    f = fopen(path, "a");
    fputs("A=1\n", f);
    fclose(f);
    assert_int_equal(read_file(path, &err), -EFBIG);
    assert_string_equal(said(), "");
    assert_int_equal(read_file(dir, &err), -EISDIR);
    temp_dir_remove(dir);
    fbr_env_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_variables),
        cmocka_unit_test(a_wrong_line_is_named),
        cmocka_unit_test(a_file_is_read_whole_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
