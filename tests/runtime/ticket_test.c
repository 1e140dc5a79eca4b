/* ticket_test.c - the ticket: what is put in comes out, damage is refused, and it is gone once it
 * was read.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/ticket.h"
#include "tests/support/sync.h"

static const struct fbr_join example = {
    .url = "unix:/tmp/fiber-1-abcdef/c",
    .run_uid = "0123456789abcdef0123456789abcdef",
    .name = "process-7",
    .root = "/tmp/fiber-1-abcdef",
    .me = {FBR_CALLER_JOB, 0x1234567890abcdef},
    .secret = "a secret of thirty-two bytes ..",
};

static void write_ticket(struct fbr_buf *b)
{
    struct fbr_config *c = fbr_config_new();

    assert_int_equal(fbr_config_set(c, "heartbeat", "700ms", "test", NULL), 0);
    fbr_buf_init(b);
    fbr_join_put(&example, c, b);
    assert_false(b->failed);
    fbr_config_free(c);
}

static void expect_example(const struct fbr_join *j, struct fbr_config *c)
{
    assert_string_equal(j->url, example.url);
    assert_string_equal(j->run_uid, example.run_uid);
    assert_string_equal(j->name, example.name);
    assert_string_equal(j->root, example.root);
    assert_memory_equal(&j->me, &example.me, sizeof(j->me));
    assert_memory_equal(j->secret, example.secret, FBR_KEY_SIZE);
    assert_int_equal(fbr_config_ms(c, "heartbeat"), 700);
    assert_string_equal(fbr_config_origin(c, "heartbeat"), "parent");
}

static void test_there_and_back(void **state)
{
    struct fbr_config *c = NULL;
    struct fbr_join j;
    struct fbr_buf b;

    write_ticket(&b);
    assert_int_equal(fbr_join_get(&j, &c, b.data, b.len, NULL), 0);
    expect_example(&j, c);
    fbr_config_free(c);
    fbr_buf_fini(&b);
}

static void test_a_part_of_a_ticket_is_refused(void **state)
{
    struct fbr_buf b;

    write_ticket(&b);
    for (size_t len = 0; len < b.len; len++) {
        struct fbr_config *c = NULL;
        struct fbr_error err = {0, ""};
        struct fbr_join j;
        uint8_t *part = malloc(len ? len : 1);

        memcpy(part, b.data, len);
        assert_true(fbr_join_get(&j, &c, part, len, &err) < 0);
        assert_null(c);
        assert_int_not_equal(strlen(err.text), 0);
        free(part);
    }
    fbr_buf_fini(&b);
}

static void test_strings_that_are_too_long_are_refused(void **state)
{
    struct fbr_buf b;

    write_ticket(&b);
    for (size_t at = 4; at < 80; at++) { /* among them the lengths of the strings */
        struct fbr_config *c = NULL;
        struct fbr_join j;
        uint8_t old = b.data[at];

        b.data[at] = 0xff;
        if (fbr_join_get(&j, &c, b.data, b.len, NULL) == 0)
            fbr_config_free(c);
        b.data[at] = old;
    }
    fbr_buf_fini(&b);
}

/* ---- Where it lies ---- */

static void test_none(void **state)
{
    struct fbr_config *c = NULL;
    struct fbr_join j;

    unsetenv(FBR_TICKET_ENV);
    assert_int_equal(fbr_join_take(&j, &c, NULL), 1);
    setenv(FBR_TICKET_ENV, "", 1);
    assert_int_equal(fbr_join_take(&j, &c, NULL), 1);
}

static void test_an_inherited_descriptor(void **state)
{
    int fd = memfd_create("ticket", MFD_CLOEXEC), other;
    char where[16];
    struct fbr_config *c = NULL;
    struct fbr_join j;
    struct fbr_buf b;
    struct stat st;

    write_ticket(&b);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    other = dup(fd);
    snprintf(where, sizeof(where), "fd:%d", fd);
    setenv(FBR_TICKET_ENV, where, 1);
    assert_int_equal(fbr_join_take(&j, &c, NULL), 0);
    expect_example(&j, c);
    assert_null(getenv(FBR_TICKET_ENV));
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(fstat(other, &st), 0);
    assert_int_equal(st.st_size, 0); /* wiped */
    close(other);
    fbr_config_free(c);
    fbr_buf_fini(&b);
}

/* A wrapper of the program may have a file of its own at that descriptor; and where two programs of
 * one job get the variable, the first one has emptied the ticket. */
static void test_a_descriptor_that_is_no_ticket(void **state)
{
    static const char *const contents[] = {"", "log", "a log of the user's, which stays as it is"};

    for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        int fd = memfd_create("log", MFD_CLOEXEC), other = dup(fd);
        ssize_t len = (ssize_t)strlen(contents[i]);
        struct fbr_error err = {0, ""};
        struct fbr_config *c = NULL;
        struct fbr_join j;
        char where[16], left[64];

        assert_int_equal(write(fd, contents[i], (size_t)len), len);
        snprintf(where, sizeof(where), "fd:%d", fd);
        setenv(FBR_TICKET_ENV, where, 1);
        assert_int_equal(fbr_join_take(&j, &c, &err), -ENODATA);
        assert_non_null(strstr(err.text, "was the variable inherited"));
        assert_int_equal(pread(other, left, sizeof(left), 0), len);
        assert_memory_equal(left, contents[i], (size_t)len);
        close(other);
    }
}

static void test_a_file(void **state)
{
    char dir[64], path[96], where[112];
    struct fbr_config *c = NULL;
    struct fbr_join j;
    struct fbr_buf b;
    int fd;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/ticket", dir);
    snprintf(where, sizeof(where), "file:%s", path);
    write_ticket(&b);
    for (int mode = 0; mode < 2; mode++) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode ? 0600 : 0400);
        assert_int_equal(write(fd, b.data, b.len), b.len);
        close(fd);
        setenv(FBR_TICKET_ENV, where, 1);
        assert_int_equal(fbr_join_take(&j, &c, NULL), 0);
        expect_example(&j, c);
        assert_int_equal(access(path, F_OK), -1);
        fbr_config_free(c);
    }
    temp_dir_remove(dir);
    fbr_buf_fini(&b);
}

/* Puts these bytes on standard input; with `open` what writes them stays open. */
static int feed_stdin(const void *data, size_t len, bool open, int *keep)
{
    int ends[2], old = dup(0);

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], data, len), len);
    assert_int_equal(dup2(ends[0], 0), 0);
    close(ends[0]);
    *keep = ends[1];
    if (!open) {
        close(ends[1]);
        *keep = -1;
    }
    setenv(FBR_TICKET_ENV, "fd:0", 1);
    return old;
}

static void restore_stdin(int old, int keep)
{
    char byte;

    assert_int_equal(read(0, &byte, 1), 0); /* it is /dev/null by now */
    dup2(old, 0);
    close(old);
    if (keep >= 0)
        close(keep);
}

static void test_standard_input_that_does_not_end(void **state)
{
    struct fbr_config *c = NULL;
    struct fbr_buf b, head = {0};
    struct fbr_join j;
    int old, keep;

    write_ticket(&b);
    fbr_put_bytes(&head, b.data, b.len);
    fbr_put_str(&head, "what comes behind it is not for us");
    old = feed_stdin(head.data, head.len, true, &keep);
    assert_int_equal(fbr_join_take(&j, &c, NULL), 0);
    expect_example(&j, c);
    assert_null(getenv(FBR_TICKET_ENV));
    restore_stdin(old, keep);
    fbr_config_free(c);
    fbr_buf_fini(&b);
    fbr_buf_fini(&head);
}

static void test_standard_input_without_a_whole_ticket(void **state)
{
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f}, part[] = {100, 0, 0, 0, 'x'};
    static const struct {
        const void *data;
        size_t len;
    } cases[] = {{"", 0}, {part, 2}, {part, sizeof(part)}, {huge, sizeof(huge)}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_config *c = NULL;
        struct fbr_error err = {0, ""};
        struct fbr_join j;
        int keep, old = feed_stdin(cases[i].data, cases[i].len, false, &keep);

        assert_true(fbr_join_take(&j, &c, &err) < 0);
        assert_non_null(strstr(err.text, "fd:0"));
        restore_stdin(old, keep);
    }
}

static void test_places_where_there_is_none(void **state)
{
    static const char *const places[] = {"fd:77", "fd:-1",    "fd:", "fd:x", "file:/nowhere/ticket",
                                         "file:", "elsewhere"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct fbr_config *c = NULL;
        struct fbr_error err = {0, ""};
        struct fbr_join j;

        setenv(FBR_TICKET_ENV, places[i], 1);
        assert_true(fbr_join_take(&j, &c, &err) < 0);
        assert_non_null(strstr(err.text, places[i]));
        assert_null(getenv(FBR_TICKET_ENV));
        if (strchr(places[i], '/')) /* the file's own reason */
            assert_non_null(strstr(err.text, strerror(ENOENT)));
    }
    assert_int_not_equal(fcntl(0, F_GETFD), -1); /* nothing of ours was closed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_a_part_of_a_ticket_is_refused),
        cmocka_unit_test(test_strings_that_are_too_long_are_refused),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_an_inherited_descriptor),
        cmocka_unit_test(test_a_descriptor_that_is_no_ticket),
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_standard_input_that_does_not_end),
        cmocka_unit_test(test_standard_input_without_a_whole_ticket),
        cmocka_unit_test(test_places_where_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
