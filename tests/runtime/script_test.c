/* script_test.c - the names that runs get from their commands.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/program/script.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void a_run_is_named_after_what_the_user_wrote(void **state)
{
    static const struct {
        const char *words[8], *name;
    } cases[] = {
        {{"./train"}, "train"},
        {{"/home/jane/My Project/train", "--fast"}, "train"},
        {{"train.py"}, "train"},
        {{"/opt/train.sh"}, "train"},
        {{"train.v2"}, "train.v2"},
        {{".py"}, ".py"},
        {{"python3", "train.py"}, "train"},
        {{"/opt/conda/envs/x y/bin/python3.12", "-u", "-X", "dev", "/src/train.py", "a.py"},
         "train"},
        {{"python", "-Werror", "-W", "ignore", "--", "-train.py"}, "-train"},
        {{"python3", "--check-hash-based-pycs", "never", "train.py"}, "train"},
        {{"python3", "-m", "pkg.train", "x.py"}, "pkg.train"},
        {{"python3", "-um", "pkg.train"}, "pkg.train"},
        {{"python3", "-mpkg.train"}, "pkg.train"},
        {{"python3", "-m"}, "python3"},
        {{"python3", "-c", "import train"}, "python3"},
        {{"python3"}, "python3"},
        {{"python3", "-"}, "python3"},
        {{"python3", "."}, "python3"},
        {{"/usr/bin/python3", "../"}, "python3"},
        {{"python3", "app.pyz"}, "app.pyz"},
        {{"pythonic", "train.py"}, "pythonic"},
        {{"bash", "-euo", "pipefail", "train.sh"}, "train"},
        {{"sh", "-c", "exec ./train"}, "sh"},
        {{"bash", "-lc", "./train"}, "bash"},
        {{"sh", "-e", "./train"}, "train"},
        {{"perl", "-Mstrict", "-I", "lib", "train.pl"}, "train"},
        {{"perl", "-ne", "print"}, "perl"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        char name[64];

        fbr_script_name(cases[i].words, name, sizeof(name));
        if (strcmp(name, cases[i].name) != 0)
            fail_msg("%zu: %s is not %s", i, name, cases[i].name);
    }
}

static void a_long_name_is_cut(void **state)
{
    const char *const words[] = {"python3", "training.py", NULL};
    char name[5];

    fbr_script_name(words, name, sizeof(name));
    assert_string_equal(name, "trai");
}

/* The command line of this test. */
static void our_own_name_is_that_of_our_program(void **state)
{
    char name[64], command[256], beginning[8];

    fbr_script_own(name, sizeof(name), command, sizeof(command));
    assert_string_equal(name, "script_test");
    assert_non_null(strstr(command, "script_test"));
    fbr_script_own(NULL, 0, beginning, sizeof(beginning));
    assert_memory_equal(command, beginning, sizeof(beginning) - 1);
    assert_int_equal(strlen(beginning), sizeof(beginning) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_named_after_what_the_user_wrote),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(our_own_name_is_that_of_our_program),
    };

    return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
