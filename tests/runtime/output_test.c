/* output_test.c - what jobs print arrives: whole lines, never mixed, tagged when asked for, to the
 * last byte.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/output.h"
#include "tests/support/children.h"
#include "tests/support/run.h"

#define LINES 200
#define WRITERS 8
#define LONG_LINE (10 << 20)

/* ---- What children print ---- */

/* Each line in two writes, so that only whole-line output keeps those of different writers
 * apart. */
static int write_halves(const void *arg, size_t len)
{
    char line[64];
    int me = *(const int *)arg;

    for (int i = 0; i < LINES; i++) {
        int n = snprintf(line, sizeof(line), "writer %d line %d end\n", me, i);

        if (write(1, line, 8) != 8 || write(1, line + 8, (size_t)n - 8) != n - 8)
            return 1;
    }
    return 0;
}

static int write_long_line(const void *arg, size_t len)
{
    char *line = malloc(LONG_LINE);

    memset(line, 'x', LONG_LINE);
    printf("before\n");
    fwrite(line, 1, LONG_LINE, stdout);
    printf("\nafter\n");
    free(line);
    return 0;
}

static int write_both(const void *arg, size_t len)
{
    printf("to stdout, no newline");
    fprintf(stderr, "to stderr\n\nno newline");
    return 0;
}

static int write_and_die(const void *arg, size_t len)
{
    char line[600];

    memset(line, 'y', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 100; i++) /* less than a pipe holds, more than one read takes at a time */
        if (write(1, line, sizeof(line)) < 0)
            return 1;
    raise(SIGKILL);
    return child_wait(arg, len);
}

static int write_much(const void *arg, size_t len)
{
    char line[100];

    memset(line, 'z', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 200000; i++)
        fwrite(line, 1, sizeof(line), stdout);
    return 0;
}

static int write_raw_bytes(const void *arg, size_t len)
{
    return write(1, "a\0b\n\n\r\n\xff\n", 9) == 9 ? 0 : 1;
}

/* ---- Roles: masters whose stdout the tests read ---- */

static int play_halves(void)
{
    struct fiber_process *p[WRITERS];

    for (int i = 0; i < WRITERS; i++)
        p[i] = begin(write_halves, &i, sizeof(i), NULL);
    for (int i = 0; i < WRITERS; i++)
        if (finish(p[i]) != 0)
            return 1;
    return 0;
}

static int play_long(void)
{
    return finish(begin(write_long_line, NULL, 0, NULL));
}

static int play_both(void)
{
    return finish(begin(write_both, NULL, 0, OPTIONS(.job.name = "talker")));
}

static int play_killed(void)
{
    return finish(begin(write_and_die, NULL, 0, NULL)) == -SIGKILL ? 0 : 1;
}

static int play_much(void)
{
    int code = finish(begin(write_much, NULL, 0, NULL));

    return write(1, "END", 3) < 0 && errno != EPIPE ? 1 : code; /* past the queue of our output */
}

static int play_raw(void)
{
    return finish(begin(write_raw_bytes, NULL, 0, NULL));
}

/* Its stderr is what the test reads, and its stdout is a full disk. */
static int play_full(void)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    if (dup2(1, 2) < 0 || dup2(full, 1) < 0)
        return 1;
    return finish(begin(write_halves, &full, sizeof(full), NULL));
}

/* Its stdout is not read before the child's end is known: the child must not hang in us, nor we in
 * our own exit. */
static int play_unread(void)
{
    struct fiber_process *p = begin(write_much, NULL, 0, NULL), *q;
    int code = 3;

    if (fiber_process_join(p, 100) == 0)
        return 1; /* 20 MB cannot have gone anywhere */
    q = begin(child_return, &code, sizeof(code), NULL);
    if (finish(q) != 3) /* others go on */
        return 2;
    fiber_process_kill(p);
    return finish(p) == -SIGKILL ? 0 : 3;
}

/* ---- Tests ---- */

static void test_lines_of_many_jobs_stay_whole(void **state)
{
    int next[WRITERS] = {0};
    struct ran r = run_self("halves", NULL, NULL);
    size_t lines = 0;
    char *save;

    assert_int_equal(r.code, 0);
    for (char *line = strtok_r(r.out, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), lines++) {
        int writer, number, end = 0;

        assert_int_equal(sscanf(line, "writer %d line %d end%n", &writer, &number, &end), 2);
        assert_int_equal(end, strlen(line));
        assert_true(writer >= 0 && writer < WRITERS);
        assert_int_equal(number, next[writer]++); /* in order, none is missing */
    }
    assert_int_equal(lines, WRITERS * LINES);
    ran_free(&r);
}

static void test_a_line_of_ten_megabytes(void **state)
{
    struct ran r = run_self("long", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_int_equal(r.out_len, 7 + LONG_LINE + 1 + 6);
    assert_memory_equal(r.out, "before\nx", 8);
    assert_memory_equal(r.out + r.out_len - 8, "x\nafter\n", 8);
    assert_int_equal(strspn(r.out + 7, "x"), LONG_LINE);
    ran_free(&r);
}

static void test_no_newline_at_the_end(void **state)
{
    struct ran r = run_self("both", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "to stdout, no newline\n");
    assert_string_equal(r.err, "to stderr\n\nno newline\n");
    ran_free(&r);
}

static void test_tagged(void **state)
{
    const char *const env[] = {"FIBER_TAG_OUTPUT=yes", NULL};
    struct ran r = run_self("both", NULL, env);

    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "[talker] to stdout, no newline\n");
    assert_string_equal(r.err, "[talker] to stderr\n[talker] \n[talker] no newline\n");
    ran_free(&r);
}

static void test_what_a_killed_job_wrote_is_not_lost(void **state)
{
    struct ran r = run_self("killed", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_int_equal(r.out_len, 100 * 600);
    ran_free(&r);
}

static void test_more_than_is_held_in_memory_comes_before_the_join_returns(void **state)
{
    struct ran r = run_self("much", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_int_equal(r.out_len, 200000 * 100 + 3);
    assert_string_equal(r.out + 200000 * 100, "END"); /* a join has waited for all lines */
    ran_free(&r);
}

static void test_any_bytes(void **state)
{
    struct ran r = run_self("raw", NULL, NULL);

    assert_int_equal(r.code, 0);
    assert_int_equal(r.out_len, 9);
    assert_memory_equal(r.out, "a\0b\n\n\r\n\xff\n", 9);
    ran_free(&r);
}

static void test_a_reader_that_does_not_read_holds_up_nobody_else(void **state)
{
    int out, status;
    pid_t pid = start_self("unread", NULL, NULL, &out);

    assert_int_equal(waitpid(pid, &status, 0),
                     pid); /* `out` is full, and stays so until it is gone */
    assert_int_equal(status, 0);
    close(out);
}

static void test_a_closed_stdout_ends_nobody(void **state)
{
    int out, status;
    pid_t pid = start_self("much", NULL, NULL, &out);

    close(out);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_lost_output_is_a_warning(void **state)
{
    static const char want[] =
        "warn: output of processes is lost: standard output: No space left on device\n";
    struct ran r = run_self("full", NULL, NULL);
    char *at;

    assert_int_equal(r.code, 0);
    at = memmem(r.out, r.out_len, want, sizeof(want) - 1);
    assert_non_null(at);
    assert_int_equal(at + sizeof(want) - 1 - r.out, r.out_len); /* it comes once */
    ran_free(&r);
}

static void on_room(void *user)
{
}

static void test_output_that_finds_no_memory_is_counted(void **state)
{
    volatile size_t too_much = PTRDIFF_MAX - 1024;
    static struct fbr_output *o; /* it is never freed */
    struct fbr_loop *loop;

    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    assert_int_equal(fbr_output_open(&o, loop, on_room, NULL), 0);
    for (int fd = 1; fd <= 3; fd++) {
        assert_false(fbr_output_add(o, fd, "", too_much));
        assert_int_equal(fbr_output_losses(o, fd % 3), 1);
        assert_int_equal(fbr_output_error(o, fd % 3), ENOMEM);
    }
    fbr_output_stop(o);
    fbr_loop_close(loop);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*play)(void);
    } roles[] = {{"halves", play_halves}, {"long", play_long}, {"both", play_both},
                 {"killed", play_killed}, {"much", play_much}, {"raw", play_raw},
                 {"unread", play_unread}, {"full", play_full}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_of_many_jobs_stay_whole),
        cmocka_unit_test(test_a_line_of_ten_megabytes),
        cmocka_unit_test(test_no_newline_at_the_end),
        cmocka_unit_test(test_tagged),
        cmocka_unit_test(test_what_a_killed_job_wrote_is_not_lost),
        cmocka_unit_test(test_more_than_is_held_in_memory_comes_before_the_join_returns),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_a_reader_that_does_not_read_holds_up_nobody_else),
        cmocka_unit_test(test_a_closed_stdout_ends_nobody),
        cmocka_unit_test(test_lost_output_is_a_warning),
        cmocka_unit_test(test_output_that_finds_no_memory_is_counted),
    };

    init_fiber(&argc, &argv);
    for (size_t i = 0; argc > 1 && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].play();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
