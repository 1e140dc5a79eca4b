/* exec_test.c - a command beside a visited process: its streams, its end, and what becomes of it
 * when the caller is slow, goes away or does not keep to the rules.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/exec.h"
#include "tests/runtime/visitor_util.h"
#include "tests/support/sync.h"

static struct gate gate;
static char script[512]; /* with the gate's path */
static struct fbr_msg m;

static int set_up(void **state)
{
    gate_open(&gate);
    return 0;
}

static int tear_down(void **state)
{
    leave();
    gate_close(&gate);
    fbr_buf_fini(&m.bytes);
    return 0;
}

static void run(bool input, char *const *argv)
{
    struct fbr_buf b = {0};

    tunnel();
    fbr_exec_put(&b, input, -1, argv);
    assert_false(b.failed);
    assert_int_equal(fbr_msg_send(ours, FBR_MSG_EXEC, b.data, b.len), 0);
    fbr_buf_fini(&b);
}

__attribute__((format(printf, 2, 3))) static void run_script(bool input, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(script, sizeof(script), format, args);
    va_end(args);
    run(input, (char *[]){"/bin/sh", "-c", script, NULL});
}

struct said {
    size_t out, errors, taken;
    char text[256]; /* the beginning of both */
    int code;
    char why[FBR_MSG_TEXT];
};

static int next(struct said *s)
{
    struct fbr_error err = {0, ""};
    int rc = fbr_msg_recv(ours, &m, &err);
    size_t n = fbr_cur_left(&m.body), had = strlen(s->text);

    if (rc == FBR_MSG_DATA || rc == FBR_MSG_ERRORS) {
        *(rc == FBR_MSG_DATA ? &s->out : &s->errors) += n;
        if (had + n < sizeof(s->text))
            memcpy(s->text + had, m.body.at, n);
    } else if (rc == FBR_MSG_TAKEN) {
        s->taken += fbr_get_u32(&m.body);
    } else if (rc == FBR_MSG_DONE) {
        assert_true(fbr_msg_get_done(&m.body, &s->code, s->why));
    } else if (rc < 0) {
        s->code = rc;
        snprintf(s->why, sizeof(s->why), "%.500s", err.text);
    }
    return rc;
}

static void to_the_end(struct said *s)
{
    int rc;

    do
        rc = next(s);
    while (rc >= 0 && rc != FBR_MSG_DONE);
}

/* What the script has told: its pid. */
static int wait_for_pid(void)
{
    char text[12] = "";
    int fd;

    assert_int_equal(gate_wait(&gate, text, 10), 0);
    fd = pid_open((pid_t)strtol(text, NULL, 10));
    assert_true(fd >= 0);
    return fd;
}

#define TELL_PID "printf %%010d $$ >%s; "

/* ---- What works ---- */

static void streams_and_the_code_come_back(void **state)
{
    struct said s = {.code = -1};

    run_script(false, "read x || echo none; echo wrong >&2; exit 7");
    to_the_end(&s);
    assert_int_equal(s.code, 7);
    assert_int_equal(s.out, 5);
    assert_int_equal(s.errors, 6);
    assert_string_equal(s.why, "");
}

static void it_knows_whom_it_is_beside(void **state)
{
    struct said s = {.code = -1};
    char expected[32];

    run_script(false, "echo $FIBER_PID $FIBER_TICKET");
    to_the_end(&s);
    snprintf(expected, sizeof(expected), "%d\n", (int)getpid());
    assert_string_equal(s.text, expected);
}

/* As many as a message has room for. */
static void a_command_may_have_many_words(void **state)
{
    struct said s = {.code = -1};
    static char *argv[10001] = {"/bin/sh", "-c", "echo $#"};

    for (int i = 3; i < 10000; i++)
        argv[i] = "w";
    run(false, argv);
    to_the_end(&s);
    assert_string_equal(s.text, "9996\n");
    assert_int_equal(s.code, 0);
}

static void a_signal_is_a_code(void **state)
{
    struct said s = {.code = -1};

    run_script(false, "kill -9 $$");
    to_the_end(&s);
    assert_int_equal(s.code, 128 + SIGKILL);
}

static void what_cannot_be_started_says_why(void **state)
{
    struct said s = {.code = -1};

    run(false, (char *[]){"no-such-program", NULL});
    to_the_end(&s);
    assert_int_equal(s.code, FBR_EXEC_NONE);
    assert_non_null(strstr(s.why, "no such program"));
    leave();
    run(false, (char *[]){"/etc/passwd", NULL});
    to_the_end(&s);
    assert_int_equal(s.code, FBR_EXEC_CANNOT);
    assert_non_null(strstr(s.why, "Permission denied"));
    leave();
    run(false, (char *[]){"", NULL});
    to_the_end(&s);
    assert_int_equal(s.code, FBR_EXEC_NONE);
}

static void input_goes_there_and_comes_back(void **state)
{
    static char data[FBR_EXEC_WINDOW];
    struct said s = {.code = -1};
    size_t sent = 0;

    memset(data, 'x', sizeof(data));
    run(true, (char *[]){"/bin/cat", NULL});
    while (sent < 20 * sizeof(data)) {
        if (sent - s.taken < sizeof(data)) {
            size_t n = sizeof(data) - (sent - s.taken);

            assert_int_equal(fbr_msg_send(ours, FBR_MSG_DATA, data, n), 0);
            sent += n;
        } else {
            assert_true(next(&s) > 0);
        }
    }
    assert_int_equal(fbr_msg_send(ours, FBR_MSG_DATA, NULL, 0), 0);
    to_the_end(&s);
    assert_int_equal(s.code, 0);
    assert_int_equal(s.out, sent);
    assert_int_equal(s.taken, sent);
}

static void input_that_is_not_wanted_is_taken(void **state)
{
    static char data[FBR_EXEC_WINDOW];
    struct said s = {.code = -1};
    int pidfd;

    run_script(true, "exec <&-; " TELL_PID "exec tail -f /dev/null", gate.path);
    pidfd = wait_for_pid();
    assert_int_equal(fbr_msg_send(ours, FBR_MSG_DATA, data, sizeof(data)), 0);
    while (s.taken < sizeof(data))
        assert_true(next(&s) > 0);
    leave();
    assert_int_equal(pids_gone(&pidfd, 1, TEST_LONG_MS), 0);
}

/* ---- What does not ---- */

static void much_output_waits_for_who_reads_it(void **state)
{
    struct said s = {.code = -1};
    int pidfd;

    run_script(false, TELL_PID "exec head -c 30000000 /dev/zero", gate.path);
    pidfd = wait_for_pid(); /* and it fills what is between us */
    to_the_end(&s);
    assert_int_equal(s.out, 30000000);
    assert_int_equal(s.code, 0);
    assert_int_equal(pids_gone(&pidfd, 1, TEST_LONG_MS), 0);
}

/* The caller goes while the command does what the script says; the process that it has told of must
 * end. */
static void goes_while(bool input, const char *format)
{
    static char data[FBR_EXEC_WINDOW];
    int pidfd;

    run_script(input, format, gate.path);
    pidfd = wait_for_pid();
    if (input)
        assert_int_equal(fbr_msg_send(ours, FBR_MSG_DATA, data, sizeof(data)), 0);
    leave(); /* joins the thread, too */
    assert_int_equal(pids_gone(&pidfd, 1, TEST_LONG_MS), 0);
}

static void a_command_ends_with_its_caller(void **state)
{
    goes_while(false, TELL_PID "exec tail -f /dev/null");
    goes_while(false, "tail -f /dev/null & printf %%010d $! >%s; wait"); /* what it has started */
    goes_while(true, TELL_PID "exec tail -f /dev/null");                 /* its input is full */
    goes_while(false, TELL_PID "exec yes");                              /* its output is */
    goes_while(false, "trap '' TERM; " TELL_PID "exec tail -f /dev/null");
}

static void more_input_than_may_come_ends_it(void **state)
{
    static char data[FBR_EXEC_WINDOW];
    struct said s = {.code = 0};
    int pidfd;

    run_script(true, TELL_PID "exec tail -f /dev/null", gate.path);
    pidfd = wait_for_pid();
    for (int i = 0; i < 3; i++) /* a pipe takes one of them */
        fbr_msg_send(ours, FBR_MSG_DATA, data, sizeof(data));
    to_the_end(&s);
    assert_int_equal(s.code, -EBADMSG);
    assert_int_equal(pids_gone(&pidfd, 1, TEST_LONG_MS), 0);
}

static void what_is_no_command_is_refused(void **state)
{
    static const uint8_t none[] = {0, 255, 255, 255, 255, 0, 0};
    struct said s = {.code = 0};

    tunnel();
    assert_int_equal(fbr_msg_send(ours, FBR_MSG_EXEC, none, sizeof(none)), 0);
    to_the_end(&s);
    assert_int_equal(s.code, -EBADMSG);
}

static void what_is_left_in_the_background_holds_up_nothing(void **state)
{
    struct said s = {.code = -1};
    int pidfd;

    run_script(false, "tail -f /dev/null & printf %%010d $! >%s; exit 3", gate.path);
    pidfd = wait_for_pid();
    to_the_end(&s);
    assert_int_equal(s.code, 3);
    assert_int_equal(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0), 0);
    assert_int_equal(pids_gone(&pidfd, 1, TEST_LONG_MS), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(streams_and_the_code_come_back),
        CASE(it_knows_whom_it_is_beside),
        CASE(a_command_may_have_many_words),
        CASE(a_signal_is_a_code),
        CASE(what_cannot_be_started_says_why),
        CASE(input_goes_there_and_comes_back),
        CASE(input_that_is_not_wanted_is_taken),
        CASE(much_output_waits_for_who_reads_it),
        CASE(a_command_ends_with_its_caller),
        CASE(more_input_than_may_come_ends_it),
        CASE(what_is_no_command_is_refused),
        CASE(what_is_left_in_the_background_holds_up_nothing),
    };

    signal(SIGPIPE, SIG_IGN); /* a visitor's thread has signals blocked */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
