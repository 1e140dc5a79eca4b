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

static char dir[64], out[8192], more[65536]; /* words; lines */
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

static void make_dir(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static int set_up(void **state)
{
    temp_dir_make(dir);
    put("train", "#!/bin/sh\n");
    put("x.sh", "#!/bin/sh\n");
    put("python3.99", "");
    put("with blank", "");
    assert_return_code(setenv("PATH", dir, 1), errno);
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_remove(dir);
    return 0;
}

static int files_of(const char *const *command, const char *workdir)
{
    struct run_image_files f = {0};
    int rc = run_image_add(&f, command, workdir, false, &err);

    snprintf(out, sizeof(out), "%.*s", (int)f.words.len, f.words.len ? (char *)f.words.data : "");
    assert_true(f.lines.len < sizeof(more));
    snprintf(more, sizeof(more), "%.*s", (int)f.lines.len, f.lines.len ? (char *)f.lines.data : "");
    run_image_files_fini(&f);
    return rc;
}

#define FILES(...) files_of((const char *const[]){__VA_ARGS__, NULL}, dir)

static void is(const char *format)
{
    char whole[512];

    snprintf(whole, sizeof(whole), format, dir, dir);
    assert_string_equal(out, whole);
}

static void the_program_is_found_as_the_ranks_find_it(void **state)
{
    assert_int_equal(FILES("./train", "-n", "3"), 0);
    is("%s/./train");
    assert_int_equal(FILES("train"), 0);
    is("%s/train");
    assert_int_equal(FILES("/bin/sh"), 0);
    is("/bin/sh");
}

static void the_script_of_a_shell_goes_with_it(void **state)
{
    assert_int_equal(FILES("/bin/sh", "-e", "x.sh", "train"), 0);
    is("/bin/sh %s/x.sh");
    assert_int_equal(FILES("/bin/sh", "-c", "x.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("/bin/sh", "-ec", "x.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("/bin/sh", "nowhere.sh"), 0);
    is("/bin/sh");
    assert_int_equal(FILES("/bin/bash", "--norc", "-euo", "pipefail", "x.sh"), 0);
    is("/bin/bash %s/x.sh");
    assert_int_equal(FILES("./train", "x.sh"), 0);
    is("%s/./train");
    put("shuffle", "a program whose name begins as a shell's");
    assert_int_equal(FILES("./shuffle", "x.sh"), 0);
    is("%s/./shuffle");
    put("bash-5.2", "a shell");
    assert_int_equal(FILES("./bash-5.2", "x.sh"), 0);
    is("%s/./bash-5.2 %s/x.sh");
}

static void what_is_not_here_is_told(void **state)
{
    assert_int_equal(FILES("./nowhere"), -ENOENT);
    assert_non_null(strstr(err.text, "--image"));
    assert_int_equal(FILES("nowhere"), -ENOENT);
    assert_int_equal(FILES("/"), -ENOENT);
}

/* A python3 of this folder, which answers what its library is. */
static void put_python(const char *name)
{
    char text[512];

    snprintf(text, sizeof(text),
             "#!/bin/sh\n[ \"$1\" = -c ] && echo noise && printf '%%s\\n' %s/real %s/lib %s/site\n",
             dir, dir, dir);
    put(name, text);
}

static bool has_line(const char *name)
{
    char line[256];

    snprintf(line, sizeof(line), "%s/%s\n", dir, name);
    return strstr(more, line);
}

static void an_interpreter_says_what_it_needs(void **state)
{
    put_python("python3");
    assert_int_equal(FILES("python3", "-c", "print(1)"), 0);
    is("%s/real");
    assert_true(has_line("lib") && has_line("site"));
    assert_false(has_line("x.sh")); /* code needs no folder */
    put_python("python3.98");
    assert_int_equal(FILES("./python3.98", "-c", "print(1)"), 0);
    is("%s/real %s/./python3.98");
}

static void a_script_takes_its_folder_along(void **state)
{
    static const char *const in[] = {"job/x.py", "job/mine.py", "job/pkg/y.py"};
    static const char *const out_of[] = {"x.sh", "job/.git/z", "job/venv/v.py"};

    put_python("python3");
    make_dir("job"), make_dir("job/.git"), make_dir("job/venv"), make_dir("job/pkg");
    put("job/x.py", "#!/usr/bin/env -S python3 -u\n");
    for (size_t i = 0; i < 3; i++)
        put(i ? in[i] : "job/.git/z", "");
    put("job/venv/v.py", "");
    put("job/venv/pyvenv.cfg", "");
    for (int how = 0; how < 3; how++) {
        assert_int_equal(how == 0   ? FILES("python3", "-u", "-X", "dev", "job/x.py", "-c")
                         : how == 1 ? FILES("job/x.py")
                                    : FILES("python3", "-W", "error", "--", "job/x.py"),
                         0);
        is(how == 1 ? "%s/real %s/job/x.py" : "%s/real");
        assert_true(has_line("lib"));
        for (size_t i = 0; i < 3; i++) {
            assert_true(has_line(in[i]));
            assert_false(has_line(out_of[i]));
        }
    }
    assert_int_equal(FILES("python3", "-m", "mod"), 0);
    assert_true(has_line("job/x.py") && has_line("x.sh"));
}

static void a_script_of_path_lies_among_strangers(void **state)
{
    put_python("python3");
    put("tool", "#!/usr/bin/env python3\n");
    assert_int_equal(FILES("tool"), 0);
    assert_true(has_line("lib") && has_line("tool"));
    assert_false(has_line("x.sh"));
}

static void a_folder_that_is_too_large_is_told(void **state)
{
    char path[256];

    put_python("python3");
    make_dir("big");
    put("big/x.py", "");
    put("big/data", "");
    snprintf(path, sizeof(path), "%s/big/data", dir);
    assert_return_code(truncate(path, 64 << 20), errno);
    assert_int_equal(FILES("python3", "big/x.py"), -E2BIG);
    assert_non_null(strstr(err.text, "FIBER_IMAGE_ADD="));
    assert_int_equal(FILES("python3", "-c", "1"), 0);
    assert_return_code(unlink(path), errno);
}

static void what_cannot_be_asked_needs_an_image(void **state)
{
    assert_int_equal(FILES("./python3.99", "x.sh"), -ENOTSUP); /* an empty file */
    assert_non_null(strstr(err.text, "fiber image build NAME"));
    put("ruby", "#!/bin/sh\n");
    assert_int_equal(FILES("ruby", "x.rb"), -ENOTSUP);
    assert_non_null(strstr(err.text, "--image NAME"));
}

static void a_path_with_blanks_goes_along(void **state)
{
    assert_int_equal(FILES("./with blank"), 0);
    is("%s/./with\\ blank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_is_found_as_the_ranks_find_it),
        cmocka_unit_test(the_script_of_a_shell_goes_with_it),
        cmocka_unit_test(what_is_not_here_is_told),
        cmocka_unit_test(an_interpreter_says_what_it_needs),
        cmocka_unit_test(a_script_takes_its_folder_along),
        cmocka_unit_test(a_script_of_path_lies_among_strangers),
        cmocka_unit_test(a_folder_that_is_too_large_is_told),
        cmocka_unit_test(what_cannot_be_asked_needs_an_image),
        cmocka_unit_test(a_path_with_blanks_goes_along),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
