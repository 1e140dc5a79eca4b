/* log_test.c - log lines: one write each, whole, harmless, and quiet when they should be.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"

/* While a test logs, stderr is one end of a socket that keeps boundaries: each read gives what one write(2)
 * wrote. */
static int saved_stderr, reader;

static int capture_begin(void **state)
{
    int ends[2], room = 212992;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) ||
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)))
        return -1;
    saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    reader = ends[0];
    fbr_log_level(FBR_LOG_WARN);
    fbr_log_name("fiber");
    return 0;
}

static int capture_end(void **state)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(reader);
    return 0;
}

/* The next line without "name[PID]: ", or "" when nothing was written. */
static const char *next_line(void)
{
    static char line[2 * FBR_LOG_LINE];
    char prefix[64];
    ssize_t n = recv(reader, line, sizeof(line) - 1, MSG_DONTWAIT);
    int len = snprintf(prefix, sizeof(prefix), "fiber[%ld]: ", (long)getpid());

    if (n < 0)
        return "";
    line[n] = '\0';
    assert_memory_equal(line, prefix, (size_t)len);
    return line + len;
}

static void a_line_has_name_pid_level_and_text(void **state)
{
    fbr_warn("disk %s is %d %% full", "sda", 93);
    assert_string_equal(next_line(), "warn: disk sda is 93 % full\n");
    fbr_log_error("gone");
    assert_string_equal(next_line(), "error: gone\n");
    assert_string_equal(next_line(), "");
}

static void levels_above_the_threshold_are_silent_and_not_evaluated(void **state)
{
    int evaluated = 0;

    fbr_info("%d", ++evaluated);
    assert_string_equal(next_line(), "");
    assert_int_equal(evaluated, 0);
    fbr_log_level(FBR_LOG_TRACE);
    fbr_info("%d", ++evaluated);
    assert_string_equal(next_line(), "info: 1\n");
    fbr_debug("d");
    assert_string_equal(next_line(), "debug: d\n");
    fbr_log(FBR_LOG_TRACE, "t");
    assert_string_equal(next_line(), "trace: t\n");
}

static void the_name_can_be_changed(void **state)
{
    char line[128] = "", want[128];

    fbr_log_name("worker");
    fbr_warn("x");
    assert_true(recv(reader, line, sizeof(line) - 1, MSG_DONTWAIT) > 0);
    snprintf(want, sizeof(want), "worker[%ld]: warn: x\n", (long)getpid());
    assert_string_equal(line, want);
    fbr_log_name(NULL); /* as the command speaks */
    fbr_warn("x\n  y");
    memset(line, 0, sizeof(line));
    assert_true(recv(reader, line, sizeof(line) - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(line, "fiber: x\nfiber:   y\n");
}

static void errno_survives_and_percent_m_works(void **state)
{
    errno = ENOENT;
    fbr_warn("open: %m");
    assert_int_equal(errno, ENOENT);
    assert_string_equal(next_line(), "warn: open: No such file or directory\n");
}

static void errno_survives_a_broken_stderr(void **state)
{
    int copy = dup(STDERR_FILENO);

    close(STDERR_FILENO);
    errno = EAGAIN;
    fbr_warn("nobody reads this");
    assert_int_equal(errno, EAGAIN);
    dup2(copy, STDERR_FILENO);
    close(copy);
}

static void control_characters_cannot_reach_the_terminal(void **state)
{
    char want[128];

    fbr_warn("a\033[2Jb\nfiber[1]: error: fake\r\x7f\n\n");
    snprintf(want, sizeof(want), "warn: a [2Jb\nfiber[%ld]: warn: fiber[1]: error: fake  \n",
             (long)getpid());
    assert_string_equal(next_line(), want);
    assert_string_equal(next_line(), "");
}

static void a_long_line_is_cut_and_marked(void **state)
{
    char *text = malloc(3 * FBR_LOG_LINE);
    const char *line;
    size_t len;

    memset(text, 'x', 3 * FBR_LOG_LINE);
    text[3 * FBR_LOG_LINE - 1] = '\0';
    fbr_warn("%s", text);
    line = next_line();
    len = strlen(line);
    assert_string_equal(line + len - 5, "x...\n");
    assert_true(len > FBR_LOG_LINE - 64 && len < FBR_LOG_LINE);
    assert_string_equal(next_line(), "");
    free(text);
}

/* A line that fills the whole record leaves no room for the lines after it. */
static void lines_behind_a_long_line_are_cut_off(void **state)
{
    char text[FBR_LOG_LINE];

    for (size_t n = FBR_LOG_LINE - 64; n < FBR_LOG_LINE - 2; n++) {
        const char *line;

        memset(text, 'y', sizeof(text));
        memset(text, 'z', n);
        text[n] = '\n';
        text[sizeof(text) - 1] = '\0';
        fbr_warn("%s", text);
        line = next_line();
        assert_memory_equal(line, "warn: zz", 8);
        assert_true(strlen(line) < FBR_LOG_LINE);
        assert_int_equal(line[strlen(line) - 1], '\n');
        assert_string_equal(next_line(), "");
    }
}

static void empty_text_is_a_line(void **state)
{
    fbr_warn("%s", "");
    assert_string_equal(next_line(), "warn: \n");
}

#define THREADS 4
#define LINES 25 /* all of them have room in the socket: no line is lost if the reader is late */

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++)
        fbr_warn("thread %d line %03d %s", (int)(intptr_t)arg, i,
                 "........................................");
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    pthread_t threads[THREADS];
    int next[THREADS] = {0};

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS * LINES; i++) {
        char line[256] = "", dots[64];
        int thread, number;

        assert_true(recv(reader, line, sizeof(line) - 1, 0) > 0);
        assert_int_equal(
            sscanf(line, "%*[^:]: warn: thread %d line %d %63s", &thread, &number, dots), 3);
        assert_in_range(thread, 0, THREADS - 1);
        assert_int_equal(number, next[thread]++);
        assert_int_equal(strlen(dots), 40);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_string_equal(next_line(), "");
}

/* Logs one line on a terminal and returns what it got. */
static const char *terminal_line(void)
{
    static char line[256];
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave, copy = dup(STDERR_FILENO);
    ssize_t n;

    if (master < 0 || grantpt(master) || unlockpt(master))
        return NULL;
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0)
        return NULL;
    dup2(slave, STDERR_FILENO);
    fbr_warn("colour");
    dup2(copy, STDERR_FILENO);
    n = read(master, line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = '\0';
    close(copy);
    close(slave);
    close(master);
    return line;
}

static void only_a_terminal_gets_colour_unless_no_color_is_set(void **state)
{
    const char *line;

    unsetenv("NO_COLOR");
    line = terminal_line();
    if (!line) {
        print_message("no pseudo-terminals here\n");
        skip();
    }
    assert_non_null(strstr(line, "\033[33mwarn\033[0m: colour"));
    setenv("NO_COLOR", "", 1);
    assert_non_null(strstr(terminal_line(), "\033[33mwarn"));
    setenv("NO_COLOR", "1", 1);
    assert_null(strchr(terminal_line(), '\033'));
    unsetenv("NO_COLOR");
}

/* Makes a full pipe of stderr, and returns the end to read. */
static int fill_stderr(void)
{
    static const char junk[4096];
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(ends[1], junk, sizeof(junk)) > 0)
        ;
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

static void *write_three(void *arg)
{
    for (int i = 0; i < 3; i++)
        fbr_warn("%d", i);
    return arg;
}

static void a_full_stderr_costs_lines_but_no_thread_waits_in_it(void **state)
{
    char got[8192] = "", want[256];
    int pid = (int)getpid(), end = fill_stderr();
    struct timespec late;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, write_three, NULL), 0);
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += 60;
    if (pthread_timedjoin_np(thread, NULL, &late) != 0) {
        dup2(saved_stderr, STDERR_FILENO); /* cmocka writes there, too */
        fail_msg("a thread waits in write(2)");
    }
    while (read(end, got, sizeof(got)) > 0)
        ;
    fbr_warn("now");
    fbr_warn("later");
    snprintf(want, sizeof(want),
             "fiber[%d]: warn: lines lost here because stderr took none: 3\n"
             "fiber[%d]: warn: now\n"
             "fiber[%d]: warn: later\n",
             pid, pid, pid);
    memset(got, 0, sizeof(got));
    assert_true(read(end, got, sizeof(got) - 1) > 0);
    assert_string_equal(got, want);
    close(end);
}

#define log_test(f) cmocka_unit_test_setup_teardown(f, capture_begin, capture_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(a_line_has_name_pid_level_and_text),
        log_test(levels_above_the_threshold_are_silent_and_not_evaluated),
        log_test(the_name_can_be_changed),
        log_test(errno_survives_and_percent_m_works),
        log_test(errno_survives_a_broken_stderr),
        log_test(control_characters_cannot_reach_the_terminal),
        log_test(a_long_line_is_cut_and_marked),
        log_test(lines_behind_a_long_line_are_cut_off),
        log_test(empty_text_is_a_line),
        log_test(lines_of_threads_do_not_mix),
        log_test(a_full_stderr_costs_lines_but_no_thread_waits_in_it),
        log_test(only_a_terminal_gets_colour_unless_no_color_is_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
