/* logs_since_test.c - times as people write them for `fiber logs --since`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cli/logs_kept.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECOND 1000000ll
#define NOW (1795000000ll * SECOND + 250000) /* 2026-11-18T11:06:40.25 in UTC */

static int64_t since(const char *text)
{
    struct fbr_error err = {0, ""};
    int64_t us = -1;

    assert_int_equal(logs_since(text, NOW, &us, &err), 0);
    return us;
}

static void a_number_with_a_unit_is_counted_back_from_now(void **state)
{
    assert_int_equal(since("0s"), NOW);
    assert_int_equal(since("1.5s"), NOW - 1500000);
    assert_int_equal(since("10m"), NOW - 600 * SECOND);
    assert_int_equal(since("2h"), NOW - 7200 * SECOND);
    assert_int_equal(since("3d"), NOW - 3 * 86400 * SECOND);
}

static void a_time_that_began_before_all_time_is_the_beginning(void **state)
{
    static const char *const longs[] = {"99999999999d", "1e300s", "infs", "30000000000m"};

    for (size_t i = 0; i < COUNT(longs); i++)
        assert_int_equal(since(longs[i]), 0);
}

static void a_time_of_day_is_todays_and_a_day_begins_at_midnight(void **state)
{
    const int64_t midnight = NOW / SECOND / 86400 * 86400 * SECOND;

    assert_int_equal(since("09:30"), midnight + (9 * 3600 + 1800) * SECOND);
    assert_int_equal(since("09:30:07"), midnight + (9 * 3600 + 1807) * SECOND);
    assert_int_equal(since("2026-11-18"), midnight);
    assert_int_equal(since("2026-11-17T23:59"), midnight - 60 * SECOND);
    assert_int_equal(since("2026-11-17 23:59:59"), midnight - SECOND);
}

static void other_texts_are_refused(void **state)
{
    static const char *const wrong[] = {"",           "10",         "10x",      "-1h",
                                        "m",          "nans",       "10mm",     "25:00",
                                        "9:61",       "2026-13-01", "tomorrow", "2026-11-18T",
                                        "2026-02-30", "2026-11-31", "10 m ",    "14:30Z"};

    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct fbr_error err = {0, ""};
        int64_t us;

        if (logs_since(wrong[i], NOW, &us, &err) != -EINVAL)
            fail_msg("\"%s\" is taken for a time", wrong[i]);
        assert_non_null(strstr(err.text, "--since"));
    }
}

static int in_utc(void **state)
{
    setenv("TZ", "UTC0", 1);
    tzset();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_with_a_unit_is_counted_back_from_now),
        cmocka_unit_test(a_time_that_began_before_all_time_is_the_beginning),
        cmocka_unit_test(a_time_of_day_is_todays_and_a_day_begins_at_midnight),
        cmocka_unit_test(other_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, in_utc, NULL);
}
