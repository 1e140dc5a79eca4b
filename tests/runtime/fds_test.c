/* fds_test.c - whole files are read, in however many pieces they come.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/fds.h"

/* The reader's end of a pair that has each letter of a text as a piece, as /proc has pages. */
static int in_pieces(const char *text)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    for (; *text; text++)
        assert_int_equal(send(ends[1], text, 1, 0), 1);
    close(ends[1]);
    return ends[0];
}

static void test_all_pieces_are_read(void **state)
{
    char *text = NULL;
    size_t len = 0;

    (void)state;
    assert_int_equal(fbr_fds_read_all(in_pieces("abc"), 3, &text, &len), 0);
    assert_int_equal(len, 3);
    assert_string_equal(text, "abc");
    free(text);
    assert_int_equal(fbr_fds_read_all(in_pieces(""), 0, &text, &len), 0);
    assert_int_equal(len, 0);
    assert_string_equal(text, "");
    free(text);
}

static void test_the_limit_is_that_of_the_file(void **state)
{
    char *text = NULL;
    size_t len;

    (void)state;
    assert_int_equal(fbr_fds_read_all(in_pieces("abcd"), 3, &text, &len), -EFBIG);
    assert_null(text);
}

static void test_the_error_of_the_open_or_the_read_is_returned(void **state)
{
    char *text = NULL;
    size_t len;

    (void)state;
    assert_int_equal(fbr_fds_read_all(open("/nowhere/file", O_RDONLY), 3, &text, &len), -ENOENT);
    assert_int_equal(fbr_fds_read_all(open("/", O_RDONLY | O_CLOEXEC), 3, &text, &len), -EISDIR);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pieces_are_read),
        cmocka_unit_test(test_the_limit_is_that_of_the_file),
        cmocka_unit_test(test_the_error_of_the_open_or_the_read_is_returned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
