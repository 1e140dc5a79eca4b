/* cp_test.c - what is typed for a file there is told from a file here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cp.h"

static void a_file_there_has_a_run_and_perhaps_a_job(void **state)
{
    static const struct {
        const char *typed, *job, *path;
    } cases[] = {
        {"train:x", "train", "x"},
        {"train/3:/tmp/x", "train/3", "/tmp/x"},
        {"3fa9/worker-7:", "3fa9/worker-7", ""},
        {"train:a/b:c", "train", "a/b:c"},
        {"train/:x", "train/", "x"},
    };
    struct cp_place p;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(cp_place(cases[i].typed, &p));
        assert_string_equal(p.job, cases[i].job);
        assert_string_equal(p.path, cases[i].path);
    }
}

static void all_else_is_a_file_here(void **state)
{
    static const char *const cases[] = {"x",    "/tmp/x", "./a:b",   "../a:b",
                                        "/a:b", ":x",     "a/b/c:d", ""};
    char longer[130];
    struct cp_place p;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_false(cp_place(cases[i], &p));
        assert_string_equal(p.path, cases[i]);
    }
    /* longer than the name of a run, or of a job */
    snprintf(longer, sizeof(longer), "%064d:x", 1);
    assert_false(cp_place(longer, &p));
    snprintf(longer, sizeof(longer), "r/%064d:x", 1);
    assert_false(cp_place(longer, &p));
    assert_string_equal(p.path, longer);
    snprintf(longer, sizeof(longer), "%063d/%063d:x", 1, 1);
    assert_true(cp_place(longer, &p));
    assert_string_equal(p.path, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_there_has_a_run_and_perhaps_a_job),
        cmocka_unit_test(all_else_is_a_file_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
