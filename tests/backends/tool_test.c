/* tool_test.c - commands of managers: what they say, how they end, and what happens to one that does
 * not.
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/tool/tool.h"
#include "runtime/net/loop.h"
#include "tests/support/sync.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct {
    struct fbr_loop *loop;
    struct fbr_config *config;
    struct fbr_tools *tools;
    struct fbr_backend_env env;
    struct fbr_error err;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int ended;
    int32_t code;
    size_t out_len;
    char out[200], said[200];
} t = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- Running ---- */

static void on_done(void *user, const struct fbr_tool_result *r)
{
    pthread_mutex_lock(&t.lock);
    t.ended++;
    t.code = r->code;
    t.out_len = r->out_len;
    snprintf(t.out, sizeof(t.out), "%s", r->out);
    snprintf(t.said, sizeof(t.said), "%s", r->err);
    pthread_cond_broadcast(&t.changed);
    pthread_mutex_unlock(&t.lock);
}

static int do_open(void *arg)
{
    return fbr_tools_open(&t.tools, &t.env, &t.err);
}

static int do_close(void *arg)
{
    fbr_tools_close(t.tools);
    t.tools = NULL;
    return 0;
}

static int do_run(void *arg)
{
    return fbr_tool_run(t.tools, arg, &t.err);
}

static int set_up(void **state)
{
    t.err = (struct fbr_error){0, ""};
    t.ended = 0;
    t.config = fbr_config_new();
    if (!t.config || fbr_loop_open(&t.loop, &t.err) < 0)
        return -1;
    t.env = (struct fbr_backend_env){t.loop, t.config, NULL, NULL};
    return fbr_loop_call(t.loop, do_open, NULL);
}

static int tear_down(void **state)
{
    fbr_loop_call(t.loop, do_close, NULL);
    fbr_loop_close(t.loop);
    fbr_config_free(t.config);
    return 0;
}

#define tool_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* "sh -c SCRIPT" */
static void script_words(struct fbr_args *w, const char *script)
{
    assert_int_equal(fbr_args_add(w, "sh", 2), 0);
    assert_int_equal(fbr_args_add(w, "-c", 2), 0);
    assert_int_equal(fbr_args_add(w, script, strlen(script)), 0);
}

/* Starts it: 0, or what refuses it. */
static int begin_script(const char *script, const struct fbr_tool *how)
{
    struct fbr_args w = {0};
    struct fbr_tool tool = *how;
    int rc;

    script_words(&w, script);
    tool.words = &w;
    tool.done = on_done;
    rc = fbr_loop_call(t.loop, do_run, &tool);
    fbr_args_fini(&w);
    return rc;
}

static void wait_for(int ended)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TEST_LONG_MS / 1000;
    pthread_mutex_lock(&t.lock);
    while (t.ended < ended && rc == 0)
        rc = pthread_cond_timedwait(&t.changed, &t.lock, &until);
    pthread_mutex_unlock(&t.lock);
    assert_int_equal(rc, 0);
}

static void a_command_says_and_ends(void **state)
{
    static const struct {
        const char *script;
        int32_t code;
        const char *out, *said;
    } cases[] = {
        {"exit 0", 0, "", ""},
        {"echo one; echo two; echo bad >&2; exit 7", 7, "one\ntwo\n", "bad\n"},
        {"printf 'no end'", 0, "no end", ""},
        {"kill -TERM $$", -SIGTERM, "", ""},
        {"echo said; kill -KILL $$", -SIGKILL, "said\n", ""},
        {"cat", 0, "", ""}, /* there is no input */
        {"echo $FIBER_TEST_HERE", 0, "here\n", ""},
        {"exit 255", 255, "", ""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(begin_script(cases[i].script, &(struct fbr_tool){.words = NULL}), 0);
        wait_for((int)i + 1);
        if (t.code != cases[i].code || strcmp(t.out, cases[i].out) != 0 ||
            strcmp(t.said, cases[i].said) != 0)
            fail_msg("%s: %d '%s' '%s'", cases[i].script, (int)t.code, t.out, t.said);
        assert_int_equal(t.out_len, strlen(cases[i].out));
    }
}

static void it_reads_what_it_is_given(void **state)
{
    static char large[300000];
    char *env[] = {"ONLY=this", "PATH=/usr/bin:/bin", NULL};

    assert_int_equal(begin_script("cat", &(struct fbr_tool){.input = "secret\n", .input_len = 7}),
                     0);
    wait_for(1);
    assert_string_equal(t.out, "secret\n");
    memset(large, 'x', sizeof(large)); /* more than a pipe holds */
    assert_int_equal(
        begin_script("wc -c", &(struct fbr_tool){.input = large, .input_len = sizeof(large)}), 0);
    wait_for(2);
    assert_int_equal(atoi(t.out), sizeof(large));
    assert_int_equal(begin_script("echo $ONLY $FIBER_TEST_HERE.", &(struct fbr_tool){.env = env}),
                     0);
    wait_for(3);
    assert_string_equal(t.out, "this .\n");
}

static void bytes_that_are_no_text_are_kept(void **state)
{
    assert_int_equal(begin_script("printf 'a\\000b'", &(struct fbr_tool){.words = NULL}), 0);
    wait_for(1);
    assert_int_equal(t.out_len, 3);
    assert_string_equal(t.out, "a");
}

/* Otherwise a list of jobs would seem whole that is not. */
static void output_that_is_too_long_is_no_answer(void **state)
{
    assert_int_equal(begin_script("head -c 16777216 /dev/zero; echo more; exit 0",
                                  &(struct fbr_tool){.words = NULL}),
                     0);
    wait_for(1);
    assert_int_equal(t.code, FBR_EXIT_UNKNOWN);
    assert_true(t.out_len > 16000000 && t.out_len <= 16777216);
    assert_int_equal(begin_script("head -c 16777216 /dev/zero", &(struct fbr_tool){.words = NULL}),
                     0);
    wait_for(2);
    assert_int_equal(t.code, 0);
    assert_int_equal(t.out_len, 16777216);
}

static void one_that_takes_too_long_is_killed(void **state)
{
    assert_int_equal(
        begin_script("echo begun; exec tail -f /dev/null", &(struct fbr_tool){.limit_ms = 50}), 0);
    wait_for(1);
    assert_int_equal(t.code, -SIGKILL);
    assert_int_equal(begin_script("exit 3", &(struct fbr_tool){.limit_ms = TEST_LONG_MS}), 0);
    wait_for(2);
    assert_int_equal(t.code, 3);
}

static void what_is_not_there_is_refused(void **state)
{
    struct fbr_args w = {0};
    const struct fbr_tool tool = {.words = &w, .done = on_done};
    char path[8];

    assert_int_equal(fbr_args_add(&w, "fiber-no-such-command", 21), 0);
    assert_int_equal(fbr_loop_call(t.loop, do_run, (void *)&tool), -ENOENT);
    assert_string_equal(t.err.text, "there is no command 'fiber-no-such-command' in PATH");
    fbr_args_fini(&w);
    assert_int_equal(fbr_args_add(&w, "/nowhere/command", 16), 0);
    assert_true(fbr_loop_call(t.loop, do_run, (void *)&tool) < 0);
    assert_non_null(strstr(t.err.text, "/nowhere/command"));
    fbr_args_fini(&w);
    assert_int_equal(t.ended, 0);
    assert_true(fbr_tool_find("/bin/sh", path, sizeof(path), &t.err) == 0);
    assert_string_equal(path, "/bin/sh");
    assert_int_equal(fbr_tool_find("/bin/sh-and-more", path, sizeof(path), &t.err), -ENAMETOOLONG);
}

/* Two commands wait for ever when the tools are closed: they are killed, and not done. */
static void those_that_run_are_killed_at_the_end(void **state)
{
    struct gate gate;
    char script[200], line[9] = "";
    pid_t pids[2] = {0, 0};
    int fds[2];

    gate_open(&gate);
    snprintf(script, sizeof(script), "printf '%%07d\\n' $$ >%s; exec tail -f /dev/null", gate.path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(begin_script(script, &(struct fbr_tool){.words = NULL}), 0);
        assert_int_equal(gate_wait(&gate, line, 8), 0);
        pids[i] = (pid_t)atoi(line);
        fds[i] = pid_open(pids[i]);
    }
    fbr_loop_call(t.loop, do_close, NULL);
    assert_int_equal(pids_gone(fds, 2, TEST_LONG_MS), 0);
    assert_int_equal(t.ended, 0);
    gate_close(&gate);
}

/* ---- Without a loop ---- */

static void a_command_is_waited_for(void **state)
{
    static const struct {
        const char *script;
        int32_t code;
        const char *out, *said;
    } cases[] = {
        {"echo one; echo bad >&2; exit 3", 3, "one\n", "bad\n"},
        {"kill -INT $$", -SIGINT, "", ""},
        {"head -c 200000 /dev/zero | tr '\\0' x | wc -c", 0, "200000\n", ""},
        /* what it leaves behind holds its output open */
        {"tail -f /dev/null & echo $!; exit 4", 4, NULL, ""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_args w = {0};
        struct fbr_buf out, said;
        int32_t code = -1;

        fbr_buf_init(&out);
        fbr_buf_init(&said);
        script_words(&w, cases[i].script);
        assert_int_equal(fbr_tool_wait(&w, NULL, TEST_LONG_MS, &out, &said, &code, &t.err), 0);
        assert_int_equal(code, cases[i].code);
        if (cases[i].out)
            assert_string_equal((char *)out.data, cases[i].out);
        else
            assert_int_equal(kill((pid_t)atoi((char *)out.data), SIGKILL), 0);
        assert_string_equal((char *)said.data, cases[i].said);
        if (cases[i].out)
            assert_int_equal(fbr_tool_wait(&w, NULL, TEST_LONG_MS, NULL, NULL, &code, NULL), 0);
        assert_int_equal(code, cases[i].code);
        fbr_args_fini(&w);
        fbr_buf_fini(&out);
        fbr_buf_fini(&said);
    }
}

static void nobody_waits_longer_than_said(void **state)
{
    struct fbr_args w = {0};
    struct fbr_buf out;
    int32_t code = 0;

    fbr_buf_init(&out);
    script_words(&w, "exec tail -f /dev/null");
    assert_int_equal(fbr_tool_wait(&w, NULL, 100, &out, NULL, &code, &t.err), -ETIMEDOUT);
    assert_string_equal(t.err.text, "sh did not end within 0.1 s");
    assert_int_equal(code, -SIGKILL);
    assert_string_equal((char *)out.data, "");
    fbr_args_fini(&w);
    fbr_buf_fini(&out);
    assert_int_equal(fbr_args_add(&w, "fiber-no-such-command", 21), 0);
    assert_int_equal(fbr_tool_wait(&w, NULL, 100, NULL, NULL, &code, &t.err), -ENOENT);
    fbr_args_fini(&w);
}

/* ---- Small things ---- */

static void the_program_is_found_by_its_own_path(void **state)
{
    char path[PATH_MAX], self[PATH_MAX] = "";

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    assert_int_equal(fbr_tool_own_program(path, sizeof(path), "install it", &t.err), 0);
    assert_string_equal(path, self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tool_test(a_command_says_and_ends),
        tool_test(it_reads_what_it_is_given),
        tool_test(bytes_that_are_no_text_are_kept),
        tool_test(output_that_is_too_long_is_no_answer),
        tool_test(one_that_takes_too_long_is_killed),
        tool_test(what_is_not_there_is_refused),
        tool_test(those_that_run_are_killed_at_the_end),
        cmocka_unit_test(a_command_is_waited_for),
        cmocka_unit_test(nobody_waits_longer_than_said),
        cmocka_unit_test(the_program_is_found_by_its_own_path),
    };

    setenv("FIBER_TEST_HERE", "here", 1);
    return cmocka_run_group_tests_name("tool", tests, NULL, NULL);
}
