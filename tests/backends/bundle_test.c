/* bundle_test.c - a program that was moved with its libraries runs from there, and loads nothing from elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

#include "backends/image/bundle.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

static char dir[64];

/* The archive's tree below dir. */
static void unpack(const char *program)
{
    char tar[96];
    const char *argv[] = {"/bin/tar", "-C", dir, "-xf", tar, NULL};
    struct fbr_error err = {0, ""};
    struct ran ran;
    int fd;

    snprintf(tar, sizeof(tar), "%s/bundle.tar", dir);
    fd = open(tar, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (fbr_bundle_write(program, fd, &err) < 0)
        fail_msg("%s", err.text);
    close(fd);
    ran = run_program(argv, NULL, NULL);
    if (ran.code != 0)
        fail_msg("tar: %s%s", ran.out, ran.err);
    ran_free(&ran);
}

static void test_a_program_runs_where_it_was_moved_to(void **state)
{
    char ld[96], lib[96], agent[96];
    const char *argv[] = {ld, "--library-path", lib, agent, "-c", "echo moved", NULL};
    const char *list[] = {ld, "--library-path", lib, "--list", agent, NULL};
    struct ran ran;

    (void)state;
    temp_dir_make(dir);
    unpack("/bin/sh");
    snprintf(ld, sizeof(ld), "%s/.fiber/ld.so", dir);
    snprintf(lib, sizeof(lib), "%s/.fiber/lib", dir);
    snprintf(agent, sizeof(agent), "%s" FBR_BUNDLE_PROGRAM, dir);
    ran = run_program(argv, NULL, NULL);
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.out, "moved\n");
    ran_free(&ran);
    ran = run_program(list, NULL, NULL); /* "libc.so.6 => DIR/.fiber/lib/libc.so.6 (0x...)" */
    assert_int_equal(ran.code, 0);
    for (const char *at = ran.out; (at = strstr(at, "=> ")); at++)
        if (strncmp(at + 3, lib, strlen(lib)) != 0 && strncmp(at + 3, ld, strlen(ld)) != 0)
            fail_msg("loaded from elsewhere:\n%s", ran.out);
    ran_free(&ran);
    temp_dir_remove(dir);
}

static void test_modules_lie_where_a_moved_program_looks_for_them(void **state)
{
    char path[128];

    (void)state;
    temp_dir_make(dir);
    unpack("/proc/self/exe");
    snprintf(path, sizeof(path), "%s/.fiber/fiber/crypto.so", dir);
    if (access(path, R_OK) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    temp_dir_remove(dir);
}

static void test_what_is_no_program_is_refused(void **state)
{
    struct fbr_error err = {0, ""};

    (void)state;
    assert_int_equal(fbr_bundle_write("/etc/passwd", 1, &err), -ENOEXEC);
    assert_non_null(strstr(err.text, "/etc/passwd"));
    assert_int_equal(fbr_bundle_write("/nowhere", 1, &err), -ENOEXEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_runs_where_it_was_moved_to),
        cmocka_unit_test(test_modules_lie_where_a_moved_program_looks_for_them),
        cmocka_unit_test(test_what_is_no_program_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
