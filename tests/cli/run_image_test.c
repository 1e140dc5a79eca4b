/* run_image_test.c - which files of a command go into an image that is made for it.
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_image.h"
#include "tests/support/sync.h"

static char dir[64], out[8192];
static struct fbr_error err;

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_return_code(chmod(path, 0755), errno);
}

static int set_up(void **state)
{
    (void)state;
    temp_dir_make(dir);
    put("train", "#!/bin/sh\n");
    put("x.sh", "#!/bin/sh\n");
    put("x.py", "#!/usr/bin/env python3\n");
    put("python3.99", "");
    put("with blank", "");
    assert_return_code(setenv("PATH", dir, 1), errno);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

#define FILES(...) \
    run_image_files((const char *const[]){__VA_ARGS__, NULL}, dir, out, sizeof(out), &err)

static void is(const char *format)
{
    char whole[512];

    snprintf(whole, sizeof(whole), format, dir, dir);
    assert_string_equal(out, whole);
}

static void the_program_is_found_as_the_ranks_find_it(void **state)
{
    (void)state;
    assert_int_equal(FILES("./train", "-n", "3"), 0);
    is("%s/./train");
    assert_int_equal(FILES("train"), 0);
    is("%s/train");
    assert_int_equal(FILES("/bin/sh"), 0);
    is("/bin/sh");
}

static void the_script_of_a_shell_goes_with_it(void **state)
{
    (void)state;
    assert_int_equal(FILES("/bin/sh", "-e", "x.sh", "train"), 0);
    is("/bin/sh %s/x.sh");
    assert_int_equal(FILES("/bin/sh", "-c", "x.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("/bin/sh", "-ec", "x.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("/bin/sh", "nowhere.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("./train", "x.sh"), 0);
    is("%s/./train");
}

static void what_is_not_here_is_told(void **state)
{
    (void)state;
    assert_int_equal(FILES("./nowhere"), -ENOENT);
    assert_non_null(strstr(err.text, "--image"));
    assert_int_equal(FILES("nowhere"), -ENOENT);
    assert_int_equal(FILES("/"), -ENOENT);
}

static void an_interpreter_with_a_library_of_files_needs_an_image(void **state)
{
    (void)state;
    assert_int_equal(FILES("python3.99", "x.sh"), -ENOTSUP);
    assert_non_null(strstr(err.text, "--image"));
    assert_int_equal(FILES("./x.py"), -ENOTSUP);
}

static void blanks_cannot_be_said(void **state)
{
    (void)state;
    assert_int_equal(FILES("./with blank"), -ENOTSUP);
    assert_non_null(strstr(err.text, "blanks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_is_found_as_the_ranks_find_it),
        cmocka_unit_test(the_script_of_a_shell_goes_with_it),
        cmocka_unit_test(what_is_not_here_is_told),
        cmocka_unit_test(an_interpreter_with_a_library_of_files_needs_an_image),
        cmocka_unit_test(blanks_cannot_be_said),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
