/* fds_test.c - whole files are read, in however many pieces they come, and a FIFO while it has a
 * writer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/fds.h"
#include "tests/support/sync.h"

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

    assert_int_equal(fbr_fds_read_all(in_pieces("abcd"), 3, &text, &len), -EFBIG);
    assert_null(text);
}

static void test_the_error_of_the_open_or_the_read_is_returned(void **state)
{
    char *text = NULL;
    size_t len;

    assert_int_equal(fbr_fds_read_all(open("/nowhere/file", O_RDONLY), 3, &text, &len), -ENOENT);
    assert_int_equal(fbr_fds_read_all(open("/", O_RDONLY | O_CLOEXEC), 3, &text, &len), -EISDIR);
    assert_null(text);
}

static void *write_late(void *path)
{
    FILE *f = fopen(path, "w"); /* returns when the FIFO has a reader */

    fputs("late", f);
    fclose(f);
    return NULL;
}

static void test_a_fifo_is_read_while_it_has_a_writer(void **state)
{
    char dir[64], path[PATH_MAX];
    struct fbr_error err = {0, ""};
    pthread_t writer;
    char *text;
    size_t len;
    int fds[2];

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(fbr_fds_slurp(path, NULL, &err));
    assert_non_null(strstr(err.text, "/fifo: it is a FIFO, and nothing writes to it"));
    assert_int_equal(pthread_create(&writer, NULL, write_late, path), 0);
    text = fbr_fds_slurp(path, &len, &err);
    pthread_join(writer, NULL);
    assert_int_equal(len, 4);
    assert_string_equal(text, "late");
    free(text);
    temp_dir_remove(dir);
    /* as in <(true) of a shell: its writer may have ended */
    assert_int_equal(pipe(fds), 0);
    close(fds[1]);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
    text = fbr_fds_slurp(path, &len, &err);
    assert_string_equal(text, "");
    free(text);
    close(fds[0]);
}

static const char *fifo; /* NULL: written */
static volatile sig_atomic_t ticks;

/* Interrupts the wait for a writer twice, and then is the writer. */
static void on_tick(int sig)
{
    int error = errno, fd = fifo && ++ticks > 2 ? open(fifo, O_WRONLY | O_NONBLOCK) : -1;

    if (fd >= 0) {
        if (write(fd, "late", 4) == 4)
            fifo = NULL;
        close(fd);
    }
    errno = error;
}

static void test_a_signal_does_not_end_the_wait_for_a_writer(void **state)
{
    const struct sigaction act = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    const struct itimerval often = {{.tv_usec = 20000}, {.tv_usec = 20000}}, never = {{0}, {0}};
    char dir[64], path[PATH_MAX];
    struct fbr_error err = {0, ""};
    char *text;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    fifo = path;
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    text = fbr_fds_slurp(path, NULL, &err);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    if (!text)
        fail_msg("%s", err.text);
    assert_string_equal(text, "late");
    free(text);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pieces_are_read),
        cmocka_unit_test(test_the_limit_is_that_of_the_file),
        cmocka_unit_test(test_a_fifo_is_read_while_it_has_a_writer),
        cmocka_unit_test(test_a_signal_does_not_end_the_wait_for_a_writer),
        cmocka_unit_test(test_the_error_of_the_open_or_the_read_is_returned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
