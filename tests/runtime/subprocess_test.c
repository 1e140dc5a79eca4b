/* subprocess_test.c - programs that are run for their output: what comes back, and what ends one that does not end.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/program/subprocess.h"
#include "tests/support/sync.h"

static struct fbr_buf out;
static struct fbr_error err;
static struct gate gate;
static atomic_bool stop;
static int code;

static int set_up(void **state)
{
    fbr_buf_init(&out);
    gate_open(&gate);
    memset(&err, 0, sizeof(err));
    atomic_store(&stop, false);
    code = 99;
    return 0;
}

static int tear_down(void **state)
{
    fbr_buf_fini(&out);
    gate_close(&gate);
    return 0;
}

/* Runs a script of the shell, which finds the gate's path in $0. */
static int run(const char *script, unsigned limit_ms, size_t max)
{
    char *argv[] = {"sh", "-c", (char *)script, gate.path, NULL};
    const struct fbr_subprocess p = {.file = "/bin/sh",
                                     .argv = argv,
                                     .in = -1,
                                     .errors = -1,
                                     .limit_ms = limit_ms,
                                     .max = max,
                                     .stop = &stop};

    return fbr_subprocess_run(&p, &out, &code, &err);
}

static void expect_output(const char *text)
{
    assert_int_equal(out.len, strlen(text));
    assert_memory_equal(out.data, text, out.len);
}

/* A process whose pid the script has told through the gate must be gone. */
static void expect_gone(void)
{
    char text[11] = "";
    int fd;

    assert_int_equal(gate_wait(&gate, text, 10), 0);
    fd = pid_open((pid_t)strtol(text, NULL, 10));
    assert_true(fd < 0 || pids_gone(&fd, 1, TEST_LONG_MS) == 0);
}

#define TELL "printf %010d $$ >\"$0\"; "

static void output_and_the_code_come_back(void **state)
{
    fbr_put(&out, "before ", 7);
    assert_int_equal(run("echo one; echo lost >&2; cat; echo two; exit 3", TEST_LONG_MS, 100), 0);
    assert_int_equal(code, 3);
    expect_output("before one\ntwo\n");
}

static void a_signal_is_a_negative_code(void **state)
{
    assert_int_equal(run("kill -9 $$", TEST_LONG_MS, 100), 0);
    assert_int_equal(code, -SIGKILL);
}

static void one_that_closes_its_output_is_waited_for(void **state)
{
    assert_int_equal(run("exec >&-; read x <\"$0\"; exit 4", 200, 100), -ETIMEDOUT);
    assert_int_equal(code, -SIGKILL);
}

static void more_output_than_wanted_ends_it(void **state)
{
    assert_int_equal(run(TELL "exec yes", TEST_LONG_MS, 100000), -EFBIG);
    expect_gone();
}

static void one_that_takes_too_long_is_killed_with_its_children(void **state)
{
    assert_int_equal(run("tail -f /dev/null & printf %010d $! >\"$0\"; echo some; wait", 2000, 100),
                     -ETIMEDOUT);
    expect_gone();
    expect_output("some\n");
}

static void *stop_it(void *arg)
{
    char text[10];

    gate_wait(&gate, text, 10);
    atomic_store(&stop, true);
    return NULL;
}

static void one_that_nobody_waits_for_is_killed(void **state)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, stop_it, NULL), 0);
    assert_int_equal(run(TELL "exec tail -f /dev/null", TEST_LONG_MS, 100), -ECANCELED);
    assert_int_equal(code, -SIGKILL);
    pthread_join(thread, NULL);
}

static void one_that_cannot_be_started_says_why(void **state)
{
    char *argv[] = {"x", NULL};
    const struct fbr_subprocess p = {
        .file = "/etc/passwd", .argv = argv, .in = -1, .errors = -1, .limit_ms = 1, .max = 1};

    assert_int_equal(fbr_subprocess_run(&p, &out, &code, &err), -EACCES);
    assert_non_null(strstr(err.text, "Permission denied"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(output_and_the_code_come_back),
        CASE(a_signal_is_a_negative_code),
        CASE(one_that_closes_its_output_is_waited_for),
        CASE(more_output_than_wanted_ends_it),
        CASE(one_that_takes_too_long_is_killed_with_its_children),
        CASE(one_that_nobody_waits_for_is_killed),
        CASE(one_that_cannot_be_started_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
