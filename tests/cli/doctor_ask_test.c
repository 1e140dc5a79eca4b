/* doctor_ask_test.c - how `fiber doctor` asks other programs: their first line, and what is made of
 * those that fail, say nothing or are not there.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/command_util.h"

#include <errno.h>
#include <limits.h>

#include "cli/doctor.h"
#include "runtime/program/spawn.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char dir[64], old_path[4096];

static int set_up(void **state)
{
    char path[5000];

    temp_dir_make(dir);
    snprintf(old_path, sizeof(old_path), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", dir);
    return setenv("PATH", path, 1);
}

static int tear_down(void **state)
{
    setenv("PATH", old_path, 1);
    temp_dir_remove(dir);
    return 0;
}

#define ask_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void put_program(const char *script)
{
    char text[400];
    int n = snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);

    file_make(path_in(dir, "fiber-test-tool"), text, (size_t)n, 0700);
}

static void a_programs_first_line_is_its_answer(void **state)
{
    static const char *const argv[] = {"fiber-test-tool", "an argument", NULL};
    static const struct {
        const char *script;
        int rc;
        const char *line, *all;
    } cases[] = {
        {"echo one", 0, "one", "one\n"},
        {"echo one; echo two", 0, "one", "one\ntwo\n"},
        {"printf one", 0, "one", "one"},
        {"echo; echo two", 0, "", "\ntwo\n"},
        {"echo \"$1.\"", 0, "an argument.", "an argument.\n"},
        {"echo bad >&2", 0, "", ""}, /* errors are no answer */
        {"exit 3", -EIO, "", ""},
        {"echo bad >&2; exit 3", -EIO, "", ""},
        {"echo one; exit 3", 0, "one", "one\n"}, /* some say their version so */
        {"cat", 0, "", ""},                      /* nothing is typed for it */
        {"echo 0123456789012345678901234567890123456789", 0, "0123456789012345678901234567890",
         "0123456789012345678901234567890"},
    };
    char text[32];

    for (size_t i = 0; i < COUNT(cases); i++) {
        int rc;

        put_program(cases[i].script);
        rc = doctor_ask(argv, text, sizeof(text));
        if (rc != cases[i].rc || strcmp(text, cases[i].line) != 0)
            fail_msg("%s: %d '%s'", cases[i].script, rc, text);
        rc = doctor_ask_all(argv, text, sizeof(text));
        if (rc != cases[i].rc || strcmp(text, cases[i].all) != 0)
            fail_msg("%s, all: %d '%s'", cases[i].script, rc, text);
    }
}

static void a_program_that_is_not_there_is_told(void **state)
{
    static const char *const argv[] = {"fiber-test-tool", NULL};
    char text[32] = "before", path[PATH_MAX];

    assert_int_equal(doctor_ask(argv, text, sizeof(text)), -ENOENT);
    assert_string_equal(text, "");
    assert_int_equal(fbr_spawn_find("fiber-test-tool", path, sizeof(path), NULL), -ENOENT);
    put_program("exit 0");
    assert_int_equal(fbr_spawn_find("fiber-test-tool", path, sizeof(path), NULL), 0);
    assert_string_equal(path, path_in(dir, "fiber-test-tool"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ask_test(a_programs_first_line_is_its_answer),
        ask_test(a_program_that_is_not_there_is_told),
    };

    return cmocka_run_group_tests_name("doctor_ask", tests, NULL, NULL);
}
