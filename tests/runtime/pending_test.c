/* pending_test.c - many jobs that wait become one line.
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

#include "runtime/proc/pending.h"

static const char *say(size_t n, const char *const *texts)
{
    static char out[224];
    struct fbr_pending p = {0};

    for (size_t i = 0; i < n; i++)
        fbr_pending_add(&p, texts[i], 0);
    fbr_pending_format(&p, out, sizeof(out));
    return out;
}

static void jobs_are_counted(void **state)
{
    assert_string_equal(say(0, NULL), "");
    assert_string_equal(say(2, (const char *const[]){NULL, NULL}), "");
    assert_string_equal(say(1, (const char *const[]){"the queue"}),
                        "1 of 1 job pending: the queue");
    assert_string_equal(say(3, (const char *const[]){NULL, "no node", "no node"}),
                        "2 of 3 jobs pending: no node");
}

static void other_reasons_are_counted_and_other_numbers_are_none(void **state)
{
    assert_string_equal(say(3, (const char *const[]){"0/3 nodes", "quota", "quota"}),
                        "3 of 3 jobs pending: 0/3 nodes; 2 for other reasons");
    assert_string_equal(say(2, (const char *const[]){"image x: 9 %", "image x: 10 %"}),
                        "2 of 2 jobs pending: image x: 9 %");
}

static void long_texts_are_cut(void **state)
{
    char text[400], out[64];
    struct fbr_pending p = {0};

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    fbr_pending_add(&p, text, 0);
    fbr_pending_format(&p, out, sizeof(out));
    assert_int_equal(strlen(out), sizeof(out) - 1);
    assert_string_equal(out + sizeof(out) - 5, " ...");
}

static void the_time_is_that_of_who_has_waited_longest(void **state)
{
    struct fbr_pending p = {0};

    fbr_pending_add(&p, NULL, 100); /* it runs by now */
    assert_int_equal(p.since, 0);
    fbr_pending_add(&p, "no node", 5000);
    assert_int_equal(p.since, 5000);
    fbr_pending_add(&p, "no node", 3000);
    fbr_pending_add(&p, "quota", 4000);
    fbr_pending_add(&p, NULL, 100);
    assert_int_equal(p.since, 3000);
    assert_int_equal(p.jobs, 5);
    assert_int_equal(p.pending, 3);
    assert_int_equal(p.same, 2);
}

static void texts_differ_by_more_than_their_numbers(void **state)
{
    assert_false(fbr_pending_differ("", ""));
    assert_false(fbr_pending_differ("2 of 8: 10 %", "12 of 8: 9 %"));
    assert_true(fbr_pending_differ("2 of 8", "2 of 8 jobs"));
    assert_true(fbr_pending_differ("", "x"));
    assert_true(fbr_pending_differ("a1", "1b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_counted),
        cmocka_unit_test(other_reasons_are_counted_and_other_numbers_are_none),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(the_time_is_that_of_who_has_waited_longest),
        cmocka_unit_test(texts_differ_by_more_than_their_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
