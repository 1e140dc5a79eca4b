/* copy_test.c - a file comes whole or not at all, whatever becomes of either end.
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/tree.h"
#include "tests/runtime/visitor_util.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define LARGE 300000

static char dir[64];

static int set_up(void **state)
{
    temp_dir_make(dir);
    return 0;
}

static int tear_down(void **state)
{
    leave();
    temp_dir_remove(dir);
    return 0;
}

static const char *in_dir(const char *name)
{
    return path_in(dir, name);
}

static char *large(void)
{
    char *data = malloc(LARGE);

    assert_non_null(data);
    for (int i = 0; i < LARGE; i++)
        data[i] = (char)(i * 7 + i / 251);
    return data;
}

/* ---- What works ---- */

static void a_file_goes_there_with_its_permissions(void **state)
{
    char *data = large();
    char name[FBR_MSG_NAME];
    unsigned left;
    uint32_t mode;
    int fd;

    file_make(in_dir("from"), data, LARGE, 0750);
    fd = fbr_tree_open(in_dir("from"), &mode, name, NULL);
    assert_true(fd >= 0);
    tunnel();
    ask(FBR_MSG_PUT, dir, "to", mode);
    ready();
    assert_int_equal(fbr_tree_send(ours, fd, mode, &left, NULL), 0);
    expect_done(0, "");
    leave();
    file_expect(in_dir("to"), data, LARGE, 0750);
    assert_int_equal(dir_count(dir, ""), 2);
    free(data);
}

static void a_file_comes_from_there(void **state)
{
    struct fbr_msg_item i;
    struct fbr_tree t;
    char *data = large();

    file_make(in_dir("from"), data, LARGE, 0604);
    tunnel();
    ask(FBR_MSG_GET, in_dir("from"), "", 0);
    i = ready();
    assert_int_equal(fbr_tree_begin(&t, in_dir("to"), "x", i.mode, NULL), 0);
    assert_int_equal(fbr_tree_recv(&t, ours, NULL), 0);
    expect_done(0, "");
    assert_int_equal(access(in_dir("to"), F_OK), -1); /* not before it is asked for */
    assert_int_equal(fbr_tree_commit(&t, NULL), 0);
    file_expect(in_dir("to"), data, LARGE, 0604);
    free(data);
}

static void an_empty_file_replaces_what_is_there(void **state)
{
    char name[FBR_MSG_NAME];
    unsigned left;
    uint32_t mode;
    int fd;

    file_make(in_dir("from"), "", 0, 0600);
    file_make(in_dir("to"), "before", 6, 0644);
    fd = fbr_tree_open(in_dir("from"), &mode, name, NULL);
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "from", mode);
    ready();
    assert_int_equal(fbr_tree_send(ours, fd, mode, &left, NULL), 0);
    expect_done(0, "");
    file_expect(in_dir("to"), "", 0, 0600);
    assert_int_equal(dir_count(dir, ""), 2);
}

/* ---- What does not ---- */

static void send_head(uint32_t len, uint8_t kind)
{
    const uint8_t head[5] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                             (uint8_t)(len >> 24), kind};

    assert_int_equal(send(ours, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
}

static void what_breaks_off_leaves_what_was_there(void **state)
{
    file_make(in_dir("to"), "before", 6, 0644);
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "x", 0600);
    ready();
    send_head(100, FBR_MSG_DATA);
    assert_int_equal(send(ours, "only this", 9, MSG_NOSIGNAL), 9);
    leave();
    file_expect(in_dir("to"), "before", 6, 0644);
    assert_int_equal(dir_count(dir, ""), 1);
}

static void what_could_not_be_read_leaves_what_was_there(void **state)
{
    file_make(in_dir("to"), "before", 6, 0644);
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "x", 0600);
    ready();
    assert_int_equal(fbr_msg_send(ours, FBR_MSG_DATA, "some", 4), 0);
    assert_int_equal(fbr_msg_send_done(ours, -EIO, "cannot be read"), 0);
    leave();
    file_expect(in_dir("to"), "before", 6, 0644);
    assert_int_equal(dir_count(dir, ""), 1);
}

static void a_piece_that_is_none_is_refused(void **state)
{
    tunnel();
    ask(FBR_MSG_PUT, in_dir("to"), "x", 0600);
    ready();
    send_head(FBR_MSG_MAX + 2, FBR_MSG_DATA);
    expect_done(-EBADMSG, "sent an invalid message");
    leave();
    assert_int_equal(dir_count(dir, ""), 0);
}

static void what_cannot_be_is_told_before_any_byte(void **state)
{
    static const struct {
        uint8_t op;
        int code;
        const char *path, *part;
    } cases[] = {
        {FBR_MSG_GET, -ENOENT, "nothing", "No such file"},
        {FBR_MSG_GET, -EINVAL, "fifo", "not a regular file"},
        {FBR_MSG_PUT, -ENOENT, "none/x", "No such file"},
        {FBR_MSG_PUT, -ENOENT, "none/", "no such directory"},
        {FBR_MSG_PUT, -EEXIST, "fifo", "not a regular file"},
    };

    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tunnel();
        ask(cases[i].op, in_dir(cases[i].path), "x", 0600);
        expect_done(cases[i].code, cases[i].part);
        leave();
    }
    assert_int_equal(dir_count(dir, ""), 1);
}

static void a_request_that_is_none_is_answered(void **state)
{
    tunnel();
    ask(99, "x", "y", 0);
    expect_done(-EPROTO, "another version");
    leave();
    tunnel();
    ask(FBR_MSG_PUT, dir, "../out", 0600); /* a name that leads out of the directory */
    expect_done(-EPROTO, "not understood");
    leave();
    tunnel();
    send_head(1u << 31, FBR_MSG_GET);
    expect_done(-EBADMSG, "");
}

static void a_visitor_that_says_nothing_may_go(void **state)
{
    tunnel();
    leave();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_file_goes_there_with_its_permissions),
        CASE(a_file_comes_from_there),
        CASE(an_empty_file_replaces_what_is_there),
        CASE(what_breaks_off_leaves_what_was_there),
        CASE(what_could_not_be_read_leaves_what_was_there),
        CASE(a_piece_that_is_none_is_refused),
        CASE(what_cannot_be_is_told_before_any_byte),
        CASE(a_request_that_is_none_is_answered),
        CASE(a_visitor_that_says_nothing_may_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
