/* env_test.c - environments: each name once, the last value wins, defaults leave what is there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mpi_bridge/env.h"

static void test_the_last_value_wins_and_names_stay_apart(void **state)
{
    struct fbr_env e = {0};

    fbr_env_set(&e, "A", "%d", 1);
    fbr_env_set(&e, "AB", "%d", 2);
    fbr_env_set(&e, "A", "three");
    assert_int_equal(e.count, 2);
    assert_string_equal(fbr_env_get(&e, "A"), "three");
    assert_string_equal(fbr_env_get(&e, "AB"), "2");
    assert_null(fbr_env_get(&e, "B"));
    assert_null(e.list[2]);
    assert_false(e.failed);
    fbr_env_fini(&e);
}

static void test_defaults_leave_what_the_user_said(void **state)
{
    struct fbr_env e = {0};

    fbr_env_set(&e, "EMPTY", "%s", "");
    fbr_env_default(&e, "EMPTY", "full");
    fbr_env_default(&e, "NEW", "%s=%d", "x", 1);
    assert_string_equal(fbr_env_get(&e, "EMPTY"), "");
    assert_string_equal(fbr_env_get(&e, "NEW"), "x=1");
    fbr_env_fini(&e);
}

static void test_copies_drop_doubles_and_what_has_no_name(void **state)
{
    char *list[] = {"A=1", "=C:=odd", "no value", "A=2", "B=", NULL};
    struct fbr_env e = {0};

    fbr_env_copy(&e, list);
    fbr_env_copy(&e, NULL);
    assert_int_equal(e.count, 2);
    assert_string_equal(fbr_env_get(&e, "A"), "2");
    assert_string_equal(fbr_env_get(&e, "B"), "");
    fbr_env_fini(&e);
}

static void drop(struct fbr_env *e, const char *start)
{
    fbr_env_drop(e, (const char *const[]){start, NULL});
}

static void test_drop_takes_one_away_or_all_that_begin_so(void **state)
{
    struct fbr_env e = {0};

    drop(&e, "NOTHING=");
    for (int i = 0; i < 200; i++) {
        char name[16];

        snprintf(name, sizeof(name), "N%d", i);
        fbr_env_set(&e, name, "%d", i);
    }
    drop(&e, "N100=");
    drop(&e, "N100=");
    assert_int_equal(e.count, 199);
    assert_null(e.list[199]);
    assert_null(fbr_env_get(&e, "N100"));
    assert_string_equal(fbr_env_get(&e, "N101"), "101");
    fbr_env_put(&e, "N100=back");
    assert_string_equal(e.list[199], "N100=back");
    drop(&e, "N19");
    assert_int_equal(e.count, 200 - 11);
    assert_null(e.list[189]);
    fbr_env_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_value_wins_and_names_stay_apart),
        cmocka_unit_test(test_defaults_leave_what_the_user_said),
        cmocka_unit_test(test_copies_drop_doubles_and_what_has_no_name),
        cmocka_unit_test(test_drop_takes_one_away_or_all_that_begin_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
