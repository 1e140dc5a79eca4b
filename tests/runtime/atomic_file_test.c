/* atomic_file_test.c - what is not whole yet, and what becomes of it when who made it is killed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/atomic_file.h"
#include "runtime/inspect/tree.h"
#include "tests/support/files.h"
#include "tests/support/nfs_locks.h"
#include "tests/support/sync.h"

#define OTHER_BOOT FBR_ATOMIC_PREFIX "zzzzzzzz-abcdef"

static char dir[64];
static struct maker {
    pid_t pid;
    int end; /* closed when it may go on */
} maker;

static int set_up(void **state)
{
    temp_dir_make(dir);
    maker = (struct maker){.end = -1};
    return 0;
}

static int tear_down(void **state)
{
    like_nfs = false;
    temp_dir_remove(dir);
    return 0;
}

static const char *in_dir(const char *name)
{
    return path_in(dir, name);
}

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* How many in the folder are not whole yet. */
static int unfinished(void)
{
    return dir_count(dir, FBR_ATOMIC_PREFIX);
}

static void age(const char *path, long days)
{
    const time_t then = time(NULL) - days * 24 * 3600 - 60;
    const struct timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A process that has made one of them, and holds it. */
static void make_in_another(bool tree)
{
    struct fbr_tree t;
    int ends[2];
    char c;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    maker.pid = fork();
    assert_true(maker.pid >= 0);
    if (maker.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fbr_tree_begin(&t, in_dir("tree"), "x", FBR_MSG_IS_TREE, NULL) < 0 ||
            mkdirat(t.fd, "sub", 0500))
            _exit(1);
        if (!tree) { /* a file of that name, as one has just before it gets its final name */
            fbr_tree_drop(&t);
            if (flock(open(t.beside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600), LOCK_EX) < 0)
                _exit(3);
        }
        if (write(ends[1], "x", 1) != 1)
            _exit(2);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &c, 1), 1);
    close(ends[0]);
}

static void kill_it(void)
{
    assert_int_equal(kill(maker.pid, SIGKILL), 0);
    assert_int_equal(waitpid(maker.pid, NULL, 0), maker.pid);
}

static void begin_file(void)
{
    struct fbr_atomic f;

    assert_int_equal(fbr_atomic_begin(&f, in_dir("new"), "x", NULL), 0);
    fbr_atomic_drop(&f);
}

static void begin_tree(void)
{
    struct fbr_tree t;

    assert_int_equal(fbr_tree_begin(&t, in_dir("new"), "x", FBR_MSG_IS_TREE, NULL), 0);
    fbr_tree_drop(&t);
}

/* ---- Cases ---- */

static void what_a_killed_one_left_behind_goes_with_the_next(void **state)
{
    for (int i = 0; i < 4; i++) {
        make_in_another(i & 1);
        assert_int_equal(unfinished(), 1);
        if (i & 2)
            begin_file();
        else
            begin_tree();
        assert_int_equal(unfinished(), 1); /* it lives */
        kill_it();
        assert_int_equal(unfinished(), 1);
        if (i & 2)
            begin_file();
        else
            begin_tree();
        assert_int_equal(unfinished(), 0);
    }
}

static void files_that_were_left_behind_go_on_nfs(void **state)
{
    like_nfs = true;
    make_in_another(false);
    begin_file();
    assert_int_equal(unfinished(), 1); /* it lives */
    kill_it();
    begin_file();
    assert_int_equal(unfinished(), 0);
}

/* Of another host, say, whose locks we need not see. */
static void what_another_boot_left_behind_goes_after_a_day(void **state)
{
    assert_int_equal(mkdir(in_dir(OTHER_BOOT), 0700), 0);
    file_make(in_dir(OTHER_BOOT "/part"), "data", 4, 0400);
    file_make(in_dir(FBR_ATOMIC_PREFIX "other"), "data", 4, 0600);
    begin_file();
    assert_int_equal(unfinished(), 2);
    age(in_dir(OTHER_BOOT), 0);
    age(in_dir(FBR_ATOMIC_PREFIX "other"), 1);
    begin_tree();
    assert_int_equal(unfinished(), 1);
    assert_true(is_there(in_dir(OTHER_BOOT)));
    age(in_dir(OTHER_BOOT), 1);
    begin_file();
    assert_int_equal(unfinished(), 0);
}

static void only_files_and_directories_of_that_name_go(void **state)
{
    file_make(in_dir(".fiber-c"), "data", 4, 0600);
    file_make(in_dir("x" FBR_ATOMIC_PREFIX), "data", 4, 0600);
    assert_int_equal(symlink("x" FBR_ATOMIC_PREFIX, in_dir(FBR_ATOMIC_PREFIX "link")), 0);
    assert_int_equal(mkfifo(in_dir(FBR_ATOMIC_PREFIX "fifo"), 0600), 0);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {".fiber-c", "x" FBR_ATOMIC_PREFIX,
                                            FBR_ATOMIC_PREFIX "link", FBR_ATOMIC_PREFIX "fifo"};

        age(in_dir(names[i]), 2);
    }
    begin_file();
    begin_tree();
    assert_int_equal(dir_count(dir, ""), 4);
}

static void a_link_in_it_is_not_followed(void **state)
{
    assert_int_equal(mkdir(in_dir("kept"), 0700), 0);
    file_make(in_dir("kept/file"), "data", 4, 0600);
    assert_int_equal(mkdir(in_dir(OTHER_BOOT), 0700), 0);
    assert_int_equal(symlink("../kept", in_dir(OTHER_BOOT "/link")), 0);
    age(in_dir(OTHER_BOOT), 2);
    begin_file();
    assert_int_equal(unfinished(), 0);
    file_expect(in_dir("kept/file"), "data", 4, 0600);
}

/* The links lead from one folder into another, and to a file that need not exist. */
static void a_file_is_written_through_links(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_atomic f;

    assert_int_equal(mkdir(in_dir("a"), 0700) | mkdir(in_dir("b"), 0700), 0);
    assert_int_equal(symlink("../b/second", in_dir("a/first")), 0);
    assert_int_equal(symlink(in_dir("target"), in_dir("b/second")), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fbr_atomic_begin(&f, in_dir("a/first"), "", &err), 0);
        assert_int_equal(write(f.fd, "whole", 5), 5);
        assert_int_equal(fbr_atomic_commit(&f, 0600, &err), 0);
        assert_int_equal(readlink(in_dir("a/first"), err.text, sizeof(err.text)), 11);
        file_expect(in_dir("target"), "whole", 5, 0600);
    }
    assert_int_equal(symlink("round", in_dir("round")), 0);
    assert_int_equal(fbr_atomic_begin(&f, in_dir("round"), "", &err), -ELOOP);
}

static void errors_say_why(void **state)
{
    char name[PATH_MAX], *too_long = malloc(2 * PATH_MAX);
    struct fbr_error err = {0, ""};
    struct fbr_atomic f;
    struct fbr_tree t;

    assert_int_equal(fbr_atomic_dir(in_dir("none/x"), name, sizeof(name)), -ENOENT);
    assert_int_equal(fbr_atomic_begin(&f, in_dir("none/x"), "", &err), -ENOENT);
    assert_non_null(strstr(err.text, "none/x"));
    assert_int_equal(fbr_tree_begin(&t, in_dir("none/x"), "x", FBR_MSG_IS_TREE, &err), -ENOENT);
    assert_non_null(strstr(err.text, "none/x"));
    assert_int_equal(fbr_atomic_dir(in_dir("x"), name, 20), -ENAMETOOLONG);
    memset(too_long, 'a', 2 * PATH_MAX - 1);
    too_long[2 * PATH_MAX - 1] = '\0';
    too_long[2 * PATH_MAX - 2] = '/';
    assert_int_equal(fbr_atomic_dir(too_long, name, sizeof(name)), -ENAMETOOLONG);
    too_long[2 * PATH_MAX - 2] = 'a';
    assert_int_equal(fbr_atomic_begin(&f, too_long, "", &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "the name is too long"));
    free(too_long);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_killed_one_left_behind_goes_with_the_next, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(files_that_were_left_behind_go_on_nfs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_another_boot_left_behind_goes_after_a_day, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(only_files_and_directories_of_that_name_go, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_link_in_it_is_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_is_written_through_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_say_why, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
