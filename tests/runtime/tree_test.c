/* tree_test.c - directories through a visitor, both ways: what comes, what is left out, what stays when it breaks off.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/tree.h"
#include "tests/runtime/visitor_util.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char dir[64];

static int make_dir(void **state)
{
    temp_dir_make(dir);
    return 0;
}

static int remove_dir(void **state)
{
    leave();
    temp_dir_remove(dir);
    return 0;
}

static const char *in_dir(const char *name)
{
    return path_in(dir, name);
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    file_make(in_dir(name), text, strlen(text), mode);
}

static void check_file(const char *name, const char *text, mode_t mode)
{
    file_expect(in_dir(name), text, strlen(text), mode);
}

static void check_link(const char *name, const char *target)
{
    char got[256] = "";

    assert_true(readlink(in_dir(name), got, sizeof(got) - 1) > 0);
    assert_string_equal(got, target);
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(in_dir(name), &st) == 0;
}

static int unfinished = -1; /* holds the lock of one */

/* A directory with all sorts of things in it. */
static void make_sorts(const char *name)
{
    char path[64];

    assert_int_equal(mkdir(in_dir(name), 0755), 0);
    snprintf(path, sizeof(path), "%s/a", name);
    make_file(path, "hello", 0640);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(mkdir(in_dir(path), 0755), 0);
    snprintf(path, sizeof(path), "%s/sub/empty", name);
    make_file(path, "", 0400);
    snprintf(path, sizeof(path), "%s/sub/up", name);
    assert_int_equal(symlink("../a", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/sub/out", name);
    assert_int_equal(symlink("../../x", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/root", name);
    assert_int_equal(symlink("/etc/passwd", in_dir(path)), 0);
    snprintf(path, sizeof(path), "%s/fifo", name);
    assert_int_equal(mkfifo(in_dir(path), 0600), 0);
    snprintf(path, sizeof(path), "%s/.fiber-cp-abcdef", name); /* another one's, unfinished */
    assert_int_equal(mkdir(in_dir(path), 0700), 0);
    if (unfinished >= 0)
        close(unfinished);
    unfinished = open(in_dir(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(unfinished, LOCK_EX), 0);
    snprintf(path, sizeof(path), "%s/.fiber-cp-0-mine", name); /* a file like others */
    make_file(path, "mine", 0600);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(chmod(in_dir(path), 0555), 0);
}

static void check_sorts(const char *name)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "%s/a", name);
    check_file(path, "hello", 0640);
    snprintf(path, sizeof(path), "%s/sub/empty", name);
    check_file(path, "", 0400);
    snprintf(path, sizeof(path), "%s/.fiber-cp-0-mine", name);
    check_file(path, "mine", 0600);
    snprintf(path, sizeof(path), "%s/sub", name);
    assert_int_equal(stat(in_dir(path), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0555);
    snprintf(path, sizeof(path), "%s/sub/up", name);
    check_link(path, "../a");
    for (int i = 0; i < 4; i++) {
        static const char *const not_there[] = {"sub/out", "root", "fifo", ".fiber-cp-abcdef"};

        snprintf(path, sizeof(path), "%s/%s", name, not_there[i]);
        assert_false(is_there(path));
    }
}

static void say(uint8_t kind, const char *name, const char *target)
{
    assert_int_equal(fbr_msg_send_item(ours, kind, 0644, name, target), 0);
}

/* ---- Cases ---- */

static void a_directory_is_put_as_it_is(void **state)
{
    char name[FBR_MSG_NAME];
    unsigned left;
    uint32_t mode;
    int fd;

    make_sorts("from");
    fd = fbr_tree_open(in_dir("from/sub/.."), &mode, name, NULL);
    assert_true(fd >= 0);
    assert_string_equal(name, "from");
    assert_int_equal(mode, 0755 | FBR_MSG_IS_TREE);
    assert_int_equal(mkdir(in_dir("to"), 0700), 0);
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), name, mode);
    ready();
    assert_int_equal(fbr_tree_send(ours, fd, mode, &left, NULL), 0);
    assert_int_equal(left, 1);
    expect_done(0, "left out: 2 links that lead out of it");
    leave();
    check_sorts("to/from");
}

static void a_directory_is_got_as_it_is(void **state)
{
    struct fbr_msg_item i;
    struct fbr_tree t;

    make_sorts("from");
    tunnel();
    ask(FBR_MSG_GET, in_dir("from"), "", 0);
    i = ready();
    assert_true(i.mode & FBR_MSG_IS_TREE);
    assert_string_equal(i.name, "from");
    assert_int_equal(fbr_tree_begin(&t, in_dir("to/"), i.name, i.mode | 0750, NULL), 0);
    assert_int_equal(fbr_tree_recv(&t, ours, NULL), 0);
    assert_false(is_there("to")); /* before all is there, nothing is */
    expect_done(0, "left out: 1 that is neither file, directory nor link");
    assert_int_equal(fbr_tree_commit(&t, NULL), 0);
    leave();
    check_sorts("to");
    assert_int_equal(dir_count(dir, ""), 2);
}

static void what_is_there_stays(void **state)
{
    struct fbr_error err;
    struct fbr_tree t;

    make_file("file", "mine", 0600);
    assert_int_equal(mkdir(in_dir("full"), 0700), 0);
    make_file("full/x", "mine", 0600);
    assert_int_equal(symlink("nowhere", in_dir("link")), 0);
    assert_int_equal(fbr_tree_begin(&t, in_dir("file"), "x", FBR_MSG_IS_TREE, &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, dir, "full", FBR_MSG_IS_TREE, &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, in_dir("link"), "x", FBR_MSG_IS_TREE, &err), -EEXIST);
    assert_int_equal(fbr_tree_begin(&t, in_dir("none/x"), "x", FBR_MSG_IS_TREE, &err), -ENOENT);
    assert_int_equal(fbr_tree_begin(&t, dir, "..", FBR_MSG_IS_TREE, &err),
                     0); /* that is not a name */
    assert_non_null(strstr(t.path, "/files"));
    fbr_tree_drop(&t);
    check_file("full/x", "mine", 0600);
    assert_int_equal(dir_count(dir, ""), 3);
}

static void what_breaks_off_leaves_nothing(void **state)
{
    static const char piece[] = {6, 0, 0, 0, FBR_MSG_DATA, 'h', 'e'};
    int before;

    before = dir_count(dir, "");
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "from", 0700 | FBR_MSG_IS_TREE);
    ready();
    say(FBR_MSG_DIR, "sub", "");
    say(FBR_MSG_FILE, "a", "");
    assert_int_equal(send(ours, piece, sizeof(piece), 0), sizeof(piece));
    leave();
    assert_int_equal(dir_count(dir, ""), before);
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "from", 0700 | FBR_MSG_IS_TREE);
    ready();
    say(FBR_MSG_DIR, "sub", "");
    say(FBR_MSG_UP, "", "");
    assert_int_equal(fbr_msg_send_done(ours, -EIO, "cannot be read"), 0);
    leave();
    assert_int_equal(dir_count(dir, ""), before);
}

static void a_hostile_end_gets_nowhere(void **state)
{
    static const struct {
        uint8_t kind;
        const char *name, *target;
        int second; /* code of the answer when the same comes again */
    } cases[] = {
        {FBR_MSG_DIR, "..", "", 0},   {FBR_MSG_FILE, "../x", "", 0}, {FBR_MSG_DIR, ".", "", 0},
        {FBR_MSG_LINK, "/x", "y", 0}, {FBR_MSG_DIR, "", "", 0},      {9, "x", "", 0},
        {FBR_MSG_LINK, "x", "y", 1}, /* a name that is taken */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tunnel();
        ask(FBR_MSG_PUT, in_dir("to"), "from", 0700 | FBR_MSG_IS_TREE);
        ready();
        say(cases[i].kind, cases[i].name, cases[i].target);
        if (cases[i].second)
            say(FBR_MSG_DIR, cases[i].name, "");
        expect_done(cases[i].second ? -EEXIST : -EBADMSG, "");
        leave();
        assert_int_equal(dir_count(dir, ""), 0);
    }
}

static void too_deep_is_told_and_leaves_nothing(void **state)
{
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "from", 0700 | FBR_MSG_IS_TREE);
    ready();
    for (int i = 0; i <= FBR_TREE_DEPTH; i++)
        say(FBR_MSG_DIR, "d", "");
    expect_done(-ELOOP, "");
    leave();
    assert_int_equal(dir_count(dir, ""), 0);
}

static void only_links_that_stay_inside_are_made(void **state)
{
    assert_true(fbr_tree_stays("a", 0));
    assert_true(fbr_tree_stays("./a//b/", 0));
    assert_true(fbr_tree_stays("..a/b..", 0));
    assert_true(fbr_tree_stays("../a", 1));
    assert_true(fbr_tree_stays("./../../a", 2));
    assert_false(fbr_tree_stays("", 5));
    assert_false(fbr_tree_stays("/", 5));
    assert_false(fbr_tree_stays("..", 0));
    assert_false(fbr_tree_stays("../..", 1));
    assert_false(fbr_tree_stays("a/../b", 5)); /* a may be a link that leads up */
    assert_false(fbr_tree_stays("a/..", 5));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_directory_is_put_as_it_is),
        CASE(a_directory_is_got_as_it_is),
        CASE(what_is_there_stays),
        CASE(what_breaks_off_leaves_nothing),
        CASE(a_hostile_end_gets_nowhere),
        CASE(too_deep_is_told_and_leaves_nothing),
        CASE(only_links_that_stay_inside_are_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
