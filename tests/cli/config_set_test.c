/* config_set_test.c - the text of a settings file, with one setting changed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/config_set.h"

static void becomes(const char *before, const char *after)
{
    char *text = config_set_text(before, before ? strlen(before) : 0, "grace", "2s");

    assert_string_equal(text, after);
    free(text);
}

static void a_setting_is_added_or_replaced(void **state)
{
    becomes(NULL, "grace = 2s\n");
    becomes("", "grace = 2s\n");
    becomes("image = a\n", "image = a\ngrace = 2s\n");
    becomes("image = a", "image = a\ngrace = 2s\n");
    becomes("grace = 5s\nimage = a\n", "grace = 2s\nimage = a\n");
    becomes("  grace: 5s", "grace = 2s\n");
    becomes("graceful = 1\ngrace\n", "graceful = 1\ngrace\ngrace = 2s\n");
    becomes("; grace = 1s\n", "; grace = 1s\ngrace = 2s\n");
}

static void of_several_one_is_left(void **state)
{
    becomes("grace=1s\nimage=a\ngrace=3s\n", "grace = 2s\nimage=a\n");
}

static void what_is_in_a_section_is_left_alone(void **state)
{
    becomes("image = a\n[x]\ngrace = 1s\n", "image = a\ngrace = 2s\n[x]\ngrace = 1s\n");
    becomes(" [x]", "grace = 2s\n [x]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setting_is_added_or_replaced),
        cmocka_unit_test(of_several_one_is_left),
        cmocka_unit_test(what_is_in_a_section_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
