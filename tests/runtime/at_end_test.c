/* at_end_test.c - the end calls what parts registered, in the order of the stages, each once.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/proc/context.h"

static char called[16];
static struct fbr_runtime *late; /* report() registers objects() there */

static void note(char what)
{
    size_t n = strlen(called);

    called[n] = what;
    called[n + 1] = '\0';
}

static void runs(struct fbr_runtime *rt)
{
    note('r');
}

static void tasks(struct fbr_runtime *rt)
{
    note('t');
}

static void objects(struct fbr_runtime *rt)
{
    note('o');
}

static void report(struct fbr_runtime *rt)
{
    note('w');
    if (!late)
        return;
    assert_int_equal(fbr_rt_at_end(late, FBR_END_REPORT, report), -ESHUTDOWN);
    assert_int_equal(fbr_rt_at_end(late, FBR_END_OBJECTS, objects), 0);
}

static void run_all(struct fbr_runtime *e)
{
    called[0] = '\0';
    fbr_rt_end_parts(e);
}

static void stages_are_called_in_their_order(void **state)
{
    struct fbr_runtime e = {.lock = PTHREAD_MUTEX_INITIALIZER};

    late = NULL;
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_OBJECTS, objects), 0);
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_TASKS, tasks), 0);
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_RUNS, runs), 0);
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_REPORT, report), 0);
    run_all(&e);
    assert_string_equal(called, "wrto");
}

static void a_stage_without_a_function_is_passed_over(void **state)
{
    struct fbr_runtime e = {.lock = PTHREAD_MUTEX_INITIALIZER};

    assert_int_equal(fbr_rt_at_end(&e, FBR_END_TASKS, tasks), 0);
    run_all(&e);
    assert_string_equal(called, "t");
}

static void a_function_that_is_set_again_is_called_once(void **state)
{
    struct fbr_runtime e = {.lock = PTHREAD_MUTEX_INITIALIZER};

    assert_int_equal(fbr_rt_at_end(&e, FBR_END_TASKS, tasks), 0);
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_TASKS, tasks), 0);
    run_all(&e);
    assert_string_equal(called, "t");
    run_all(&e);
    assert_string_equal(called, "");
}

static void a_stage_that_has_begun_is_closed_and_a_later_one_is_not(void **state)
{
    struct fbr_runtime e = {.lock = PTHREAD_MUTEX_INITIALIZER};

    late = &e;
    assert_int_equal(fbr_rt_at_end(&e, FBR_END_REPORT, report), 0);
    run_all(&e);
    assert_string_equal(called, "wo");
    for (int stage = 0; stage < FBR_END_STAGES; stage++)
        assert_int_equal(fbr_rt_at_end(&e, (enum fbr_end_stage)stage, runs), -ESHUTDOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_called_in_their_order),
        cmocka_unit_test(a_stage_without_a_function_is_passed_over),
        cmocka_unit_test(a_function_that_is_set_again_is_called_once),
        cmocka_unit_test(a_stage_that_has_begun_is_closed_and_a_later_one_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
