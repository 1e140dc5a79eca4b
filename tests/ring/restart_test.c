/* restart_test.c - how often something may be started again: failures, and what the cluster does, which counts apart.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ring/restart.h"

static void failures_count_against_what_is_allowed(void **state)
{
    struct fbr_restarts r = {0};

    assert_true(fbr_restart_again(&r, 2, false));
    assert_true(fbr_restart_again(&r, 2, false));
    assert_false(fbr_restart_again(&r, 2, false));
    assert_int_equal(fbr_restart_count(&r), 2);
    assert_false(fbr_restart_again(&(struct fbr_restarts){0}, 0, false));
}

static void what_the_cluster_does_counts_apart(void **state)
{
    struct fbr_restarts r = {0};

    for (int i = 0; i < 10; i++)
        assert_true(fbr_restart_again(&r, 1, true));
    assert_true(fbr_restart_again(&r, 1, false));
    assert_false(fbr_restart_again(&r, 1, false));
    assert_true(fbr_restart_again(&r, 1, true));
    assert_int_equal(r.failed, 1);
    assert_int_equal(r.taken, 11);
    assert_int_equal(fbr_restart_count(&r), 12);
}

static void what_the_cluster_does_has_a_bound_too(void **state)
{
    struct fbr_restarts few = {0}, many = {0};

    for (int i = 0; i < FBR_RESTART_TAKEN; i++)
        assert_true(fbr_restart_again(&few, 3, true));
    assert_false(fbr_restart_again(&few, 3, true));
    assert_true(fbr_restart_again(&few, 3, false));
    for (int i = 0; i < 500; i++) /* who allows more, allows this more */
        assert_true(fbr_restart_again(&many, 500, true));
    assert_false(fbr_restart_again(&many, 500, true));
}

static void counts_are_said(void **state)
{
    const struct fbr_restarts r = {2, 5};
    char text[80];

    assert_string_equal(fbr_restart_describe(&r, 3, false, text, sizeof(text)), "2 of 3");
    assert_string_equal(fbr_restart_describe(&r, 3, true, text, sizeof(text)),
                        "5 of 100 after disruptions by the cluster");
}

static void the_end_of_restarts_is_said(void **state)
{
    const struct fbr_restarts none = {0, 0}, failed = {1, 0}, both = {3, 2}, taken = {0, 100};
    char text[256];

    assert_string_equal(fbr_restart_spent(&none, false, text, sizeof(text)), "");
    assert_string_equal(fbr_restart_spent(&none, true, text, sizeof(text)), "");
    assert_string_equal(fbr_restart_spent(&failed, false, text, sizeof(text)),
                        "It was started again once, as often as --max-restarts allows.");
    assert_string_equal(fbr_restart_spent(&both, false, text, sizeof(text)),
                        "It was started again 3 times, as often as --max-restarts allows, and 2 "
                        "times after disruptions by the cluster, which do not count.");
    assert_non_null(strstr(fbr_restart_spent(&taken, true, text, sizeof(text)),
                           "started again 100 times after disruptions by the cluster"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_count_against_what_is_allowed),
        cmocka_unit_test(what_the_cluster_does_counts_apart),
        cmocka_unit_test(what_the_cluster_does_has_a_bound_too),
        cmocka_unit_test(counts_are_said),
        cmocka_unit_test(the_end_of_restarts_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
