/* process_test.c - job-backed processes as programs see them: start, join, codes, signals, names,
 * nesting, threads.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"

/* ---- What children do ---- */

static int exit_within(const void *arg, size_t len)
{
    exit(*(const int *)arg);
}

static int raise_signal(const void *arg, size_t len)
{
    signal(*(const int *)arg, SIG_DFL); /* a sanitizer may have its own */
    raise(*(const int *)arg);
    return child_wait(arg, len);
}

static int check_pattern(const void *arg, size_t len)
{
    const uint64_t *x = arg;

    if ((uintptr_t)arg % 8 || len % 8)
        return 2;
    for (size_t i = 0; i < len / 8; i++)
        if (x[i] != i * 0x9e3779b97f4a7c15u)
            return 1;
    return 0;
}

static int expect_no_argument(const void *arg, size_t len)
{
    return len == 0 ? 11 : 12;
}

static int ignore_term(const void *gate, size_t len)
{
    signal(SIGTERM, SIG_IGN);
    return child_notify_wait(gate, len);
}

static int notify_and_listen(const void *gates, size_t len)
{
    const char *notify = gates, *listen = notify + strlen(notify) + 1;

    return gate_notify(notify, "x", 1) < 0 || gate_listen(listen) < 0 ? 1 : 21;
}

static int am_i_called(const void *name, size_t len)
{
    return strcmp(fiber_process_self(), name) == 0 && fiber_process_is_child() ? 0 : 1;
}

static int start_another(const void *arg, size_t len)
{
    int depth = *(const int *)arg - 1;

    return depth > 0 ? finish(begin(start_another, &depth, sizeof(depth), NULL)) + 1 : 1;
}

static int check_environment(const void *arg, size_t len)
{
    char cwd[256] = "";

    if (strcmp(getenv("TEST_ADDED") ? getenv("TEST_ADDED") : "", "new value") != 0)
        return 1;
    if (strcmp(getenv("TEST_REPLACED") ? getenv("TEST_REPLACED") : "", "theirs") != 0)
        return 2;
    if (getenv("FIBER_TICKET"))
        return 3;
    return getcwd(cwd, sizeof(cwd)) && strcmp(cwd, arg) == 0 ? 0 : 4;
}

static int compare_env(const void *want, size_t len)
{
    const char *is = getenv("TEST_LATER");

    return is && strcmp(is, want) == 0 ? 0 : 1;
}

static int read_stdin(const void *arg, size_t len)
{
    char byte;

    return (int)read(0, &byte, 1) + 50;
}

static int fork_and_wait(const void *gate, size_t len)
{
    if (fork() == 0)
        return child_notify_wait(gate, len);
    return child_notify_wait(gate, len);
}

/* ---- Tests ---- */

static void test_waiting_until_it_has_joined(void **state)
{
    const char *const nowhere[] = {"/nowhere/at/all", NULL};
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL);

    assert_int_equal(fiber_process_wait_joined(p, TEST_LONG_MS), 0);
    assert_true(fiber_process_pid(p) > 0);
    assert_int_equal(fiber_process_kill(p), 0);
    assert_int_equal(ended(p), -SIGKILL);
    assert_int_equal(fiber_process_wait_joined(p, 0), 0); /* it had */
    fiber_process_close(p);
    p = begin(child_wait, NULL, 0, OPTIONS(.job.command = nowhere));
    assert_int_equal(fiber_process_wait_joined(p, TEST_LONG_MS), -ECHILD);
    assert_true(has(fiber_last_error(), "/nowhere/at/all", NULL));
    assert_int_equal(finish(p), 125);
}

static void test_exit_codes(void **state)
{
    int codes[] = {0, 7, 255, 125};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(finish(begin(child_return, &codes[i], sizeof(int), NULL)), codes[i]);
        assert_int_equal(finish(begin(exit_within, &codes[i], sizeof(int), NULL)), codes[i]);
    }
}

static void test_death_by_signals(void **state)
{
    int signals[] = {SIGSEGV, SIGABRT, SIGKILL, SIGTERM, SIGUSR1};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct fiber_process *p = begin(raise_signal, &signals[i], sizeof(int), NULL);
        char text[64];

        assert_int_equal(ended(p), -signals[i]);
        snprintf(text, sizeof(text), "was killed by signal %d", signals[i]);
        assert_true(has(fiber_process_report(p), fiber_process_name(p), "(pid ", text, NULL));
        fiber_process_close(p);
    }
}

static void test_a_large_argument(void **state)
{
    size_t n = 1 << 20;
    uint64_t *x = malloc(n * 8);

    for (size_t i = 0; i < n; i++)
        x[i] = i * 0x9e3779b97f4a7c15u;
    assert_int_equal(finish(begin(check_pattern, x, n * 8, NULL)), 0);
    assert_int_equal(finish(begin(check_pattern, x, 8, NULL)), 0);
    free(x);
}

static void test_an_empty_argument(void **state)
{
    assert_int_equal(finish(begin(expect_no_argument, NULL, 0, NULL)), 11);
}

static void test_asking_while_it_lives_and_after(void **state)
{
    struct gate told;
    struct fiber_process *p;
    pid_t pid;
    int code = 77;

    gate_open(&told);
    p = begin_str(child_notify_wait, told.path);
    assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
    assert_int_equal(fiber_process_pid(p), pid);
    assert_int_equal(atoi(fiber_process_job(p)), pid);
    assert_int_equal(fiber_process_is_alive(p), 1);
    assert_int_equal(fiber_process_join(p, 0), -ETIMEDOUT);
    assert_true(has(fiber_last_error(), fiber_process_name(p), NULL));
    assert_int_equal(fiber_process_join(p, 10), -ETIMEDOUT);
    assert_int_equal(fiber_process_exitcode(p, &code), -EAGAIN);
    assert_int_equal(code, 77);
    assert_string_equal(fiber_process_report(p), "");
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(ended(p), -SIGTERM);
    assert_int_equal(fiber_process_is_alive(p), 0);
    assert_int_equal(fiber_process_pid(p), pid);
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(fiber_process_kill(p), 0);
    assert_int_equal(fiber_process_join(p, 0), 0);
    fiber_process_close(p);
    gate_close(&told);
}

static void test_other_signals_reach_it(void **state)
{
    static const int none[] = {-1, 0, 1000};
    struct gate told;
    struct fiber_process *p;
    pid_t pid;

    gate_open(&told);
    p = begin_str(child_notify_wait, told.path);
    assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(fiber_process_signal(p, none[i]), -EINVAL);
    assert_true(has(fiber_last_error(), "there is no signal 1000", NULL));
    assert_int_equal(fiber_process_signal(p, SIGUSR2), 0);
    assert_int_equal(ended(p), -SIGUSR2);
    assert_int_equal(fiber_process_signal(p, SIGUSR2), 0);
    fiber_process_close(p);
    p = begin_str(child_notify_wait, told.path);
    assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
    assert_int_equal(fiber_process_signal(p, SIGKILL), 0);
    assert_int_equal(finish(p), -SIGKILL);
    gate_close(&told);
}

static void test_kill_ends_what_ignores_terminate(void **state)
{
    struct gate told;
    struct fiber_process *p;
    pid_t pid;

    gate_open(&told);
    p = begin_str(ignore_term, told.path);
    assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(fiber_process_join(p, 50), -ETIMEDOUT);
    assert_int_equal(fiber_process_kill(p), 0);
    assert_int_equal(finish(p), -SIGKILL);
    gate_close(&told);
}

static void test_kill_before_it_has_joined(void **state)
{
    for (int i = 0; i < 8; i++) {
        struct fiber_process *p = begin(child_wait, NULL, 0, NULL);

        assert_int_equal(i % 2 ? fiber_process_kill(p) : fiber_process_terminate(p), 0);
        assert_int_equal(finish(p), i % 2 ? -SIGKILL : -SIGTERM);
    }
}

static void test_the_sentinel_polls_readable_at_the_end(void **state)
{
    struct fiber_process *p[3];
    struct pollfd polled[3];
    int codes[3] = {1, 2, 3}, open = 3;

    p[0] = begin(child_wait, NULL, 0, NULL);
    for (int i = 1; i < 3; i++)
        p[i] = begin(child_return, &codes[i], sizeof(int), NULL);
    for (int i = 0; i < 3; i++)
        polled[i] = (struct pollfd){.fd = fiber_process_sentinel(p[i]), .events = POLLIN};
    assert_int_equal(poll(polled, 1, 0), 0);
    while (open > 1) {
        assert_true(poll(polled, 3, TEST_LONG_MS) > 0);
        assert_int_equal(polled[0].revents, 0);
        for (int i = 1; i < 3; i++)
            if (polled[i].fd >= 0 && polled[i].revents) {
                assert_int_equal(fiber_process_is_alive(p[i]), 0);
                assert_int_equal(finish(p[i]), i + 1);
                polled[i].fd = -1;
                open--;
            }
    }
    fiber_process_kill(p[0]);
    assert_int_equal(poll(polled, 1, TEST_LONG_MS), 1);
    assert_int_equal(poll(polled, 1, 0), 1); /* it stays readable */
    assert_int_equal(finish(p[0]), -SIGKILL);
}

static void test_names(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL), *q;
    char name[64];

    assert_int_equal(strncmp(fiber_process_name(p), "process-", 8), 0);
    q = begin(am_i_called, "a.Name_of-63", 13, OPTIONS(.job.name = "a.Name_of-63"));
    assert_string_equal(fiber_process_name(q), "a.Name_of-63");
    assert_int_equal(finish(q), 0);
    memset(name, 'n', 63);
    name[63] = '\0';
    assert_int_equal(finish(begin(am_i_called, name, 64, OPTIONS(.job.name = name))), 0);
    assert_string_equal(fiber_process_self(), "main");
    assert_int_equal(fiber_process_is_child(), 0);
    assert_int_equal(fiber_process_work(&(const void *){NULL}, &(size_t){0}), -ENODATA);
    fiber_process_kill(p);
    finish(p);
}

static void test_active_children(void **state)
{
    struct fiber_process *p[3], *found[8];
    struct gate told;
    pid_t pid;
    int code = 3;

    gate_open(&told);
    assert_int_equal(fiber_active_children(NULL, 0), 0);
    for (int i = 0; i < 3; i++)
        p[i] = begin_str(child_notify_wait, told.path);
    finish(begin(child_return, &code, sizeof(code), NULL));
    assert_int_equal(fiber_active_children(found, 8), 3);
    for (int i = 0; i < 3; i++)
        assert_true(found[i] == p[0] || found[i] == p[1] || found[i] == p[2]);
    assert_int_equal(fiber_active_children(found, 1), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
    fiber_process_close(p[0]); /* it lives on */
    assert_int_equal(fiber_active_children(found, 8), 3);
    assert_true(found[0] != p[0] && found[1] != p[0]);
    for (int i = 1; i < 3; i++) {
        fiber_process_kill(p[i]);
        finish(p[i]);
    }
    assert_int_equal(fiber_active_children(NULL, 0), 1);
    gate_close(&told);
}

static void test_a_closed_process_goes_on(void **state)
{
    struct gate told, listening;
    char gates[200], byte;
    struct fiber_process *p;
    int n;

    gate_open(&told);
    gate_open(&listening);
    n = snprintf(gates, sizeof(gates), "%s%c%s", told.path, 0, listening.path);
    p = begin(notify_and_listen, gates, (size_t)n + 1, NULL);
    fiber_process_close(p);
    assert_int_equal(gate_wait(&told, &byte, 1), 0);
    p = begin(notify_and_listen, gates, (size_t)n + 1, NULL);
    assert_int_equal(gate_wait(&told, &byte, 1), 0);
    assert_int_equal(write(listening.fd, "xx", 2), 2);
    assert_int_equal(finish(p), 21);
    gate_close(&told);
    gate_close(&listening);
}

static void test_processes_start_processes(void **state)
{
    int depth = 3;

    assert_int_equal(finish(begin(start_another, &depth, sizeof(depth), NULL)), 3);
}

static void test_environment_and_directory(void **state)
{
    const char *const env[] = {"TEST_ADDED=new value", "TEST_REPLACED=theirs", "FIBER_TICKET=fd:77",
                               NULL};

    setenv("TEST_REPLACED", "ours", 1);
    assert_int_equal(finish(begin(check_environment, "/proc", 6,
                                  OPTIONS(.job = {.env = env, .workdir = "/proc"}))),
                     0);
}

/* As clearenv() leaves it. What sanitizers are told is in the environment, too. */
static void test_a_program_without_an_environment_starts_processes(void **state)
{
    const char *kept[8] = {NULL};
    char **all = environ;
    int code = 7;

    for (size_t i = 0, n = 0; all[i] && n < 7; i++)
        if (strstr(all[i], "SAN_OPTIONS="))
            kept[n++] = all[i];
    environ = NULL;
    code = finish(begin(child_return, &code, sizeof(code), OPTIONS(.job.env = kept)));
    environ = all;
    assert_int_equal(code, 7);
}

static void test_the_environment_is_as_it_was_at_the_call(void **state)
{
    struct fiber_process *p[20];

    for (int i = 0; i < 20; i++) {
        char value[16];

        snprintf(value, sizeof(value), "%d", i);
        setenv("TEST_LATER", value, 1);
        p[i] = begin_str(compare_env, value);
    }
    unsetenv("TEST_LATER");
    for (int i = 0; i < 20; i++)
        assert_int_equal(finish(p[i]), 0);
}

static void test_standard_input(void **state)
{
    int pipes[2], old = dup(0);

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], "xx", 2), 2);
    dup2(pipes[0], 0);
    assert_int_equal(finish(begin(read_stdin, NULL, 0, NULL)), 50);
    assert_int_equal(finish(begin(read_stdin, NULL, 0, OPTIONS(.keep_stdin = 1))), 51);
    dup2(old, 0);
    close(old);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_what_a_process_forks_ends_with_it(void **state)
{
    struct gate told;
    struct fiber_process *p;
    pid_t pids[2];
    int fds[2];

    gate_open(&told);
    p = begin_str(fork_and_wait, told.path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gate_wait(&told, &pids[i], sizeof(pid_t)), 0);
        fds[i] = pid_open(pids[i]);
    }
    kill(pids[0] == fiber_process_pid(p) ? pids[0] : pids[1], SIGKILL);
    assert_int_equal(finish(p), -SIGKILL);
    assert_int_equal(pids_gone(fds, 2, TEST_LONG_MS), 0);
    gate_close(&told);
}

static void test_a_program_of_its_own(void **state)
{
    const char *const argv[] = {TEST_PROGRAM_DIR "/process_prog", "one", "two", NULL};
    struct fiber_process *p;

    assert_int_equal(fiber_process_start_work(&p, "seven", 5, OPTIONS(.job.command = argv)), 0);
    assert_int_equal(finish(p), 7);
}

static void test_a_program_is_looked_for_in_PATH(void **state)
{
    const char *const argv[] = {"process_prog", "one", "two", NULL};
    const char *const nobody[] = {"no-such-program", NULL};
    char *before = strdup(getenv("PATH"));
    struct fiber_process *p;

    setenv("PATH", "/nowhere:" TEST_PROGRAM_DIR, 1);
    assert_int_equal(fiber_process_start_work(&p, "seven", 5, OPTIONS(.job.command = argv)), 0);
    assert_int_equal(finish(p), 7);
    assert_int_equal(fiber_process_start_work(&p, "", 0, OPTIONS(.job.command = nobody)), 0);
    assert_int_equal(fiber_process_join(p, TEST_LONG_MS), 0);
    assert_non_null(strstr(fiber_process_report(p), "no such program in PATH"));
    fiber_process_close(p);
    setenv("PATH", before, 1);
    free(before);
}

/* ---- Many ---- */

static void *start_and_join(void *arg)
{
    for (int i = 0; i < 6; i++) {
        int code = (*(int *)arg * 6 + i) % 200;

        if (finish(begin(child_return, &code, sizeof(code), NULL)) != code)
            return "wrong code";
    }
    return NULL;
}

static void test_eight_threads_start_and_join(void **state)
{
    pthread_t threads[8];
    int numbers[8];

    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, start_and_join, &numbers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void *join_it(void *p)
{
    return (void *)(intptr_t)fiber_process_join(p, TEST_LONG_MS);
}

static void test_many_threads_join_one(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL);
    pthread_t threads[8];
    void *rc;

    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, join_it, p), 0);
    fiber_process_kill(p);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &rc);
        assert_null(rc);
    }
    finish(p);
}

static void test_sixty_four_at_once(void **state)
{
    struct fiber_process *p[64];

    for (int i = 0; i < 64; i++)
        p[i] = begin(child_return, &i, sizeof(i), NULL);
    assert_int_equal(fiber_active_children(NULL, 0) > 0, 1);
    for (int i = 63; i >= 0; i--)
        assert_int_equal(finish(p[i]), i);
}

static void *set_on_and_on(void *arg)
{
    static const char *const values[][3] = {{"transport", "tcp", "auto"},
                                            {"heartbeat", "5s", "4s"},
                                            {"grace", "5s", "6s"},
                                            {"log_level", "error", "warn"},
                                            {"tag_output", "true", "false"}};
    atomic_bool *stop = arg;
    int failed = 0;

    for (int round = 0; !atomic_load(stop) || round % 2; round++) /* ends with the last ones */
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
            failed += fiber_config_set(values[i][0], values[i][1 + round % 2]) != 0;
    return failed ? arg : NULL;
}

static void test_settings_change_while_processes_start(void **state)
{
    atomic_bool stop = false;
    pthread_t setter;
    void *failed;

    assert_int_equal(pthread_create(&setter, NULL, set_on_and_on, &stop), 0);
    for (int round = 0; round < 10; round++) {
        struct fiber_process *p[4];

        for (int i = 0; i < 4; i++)
            p[i] = begin(child_return, &i, sizeof(i), NULL);
        for (int i = 0; i < 4; i++)
            assert_int_equal(finish(p[i]), i);
    }
    atomic_store(&stop, true);
    pthread_join(setter, &failed);
    assert_null(failed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_active_children),
        cmocka_unit_test(test_waiting_until_it_has_joined),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_death_by_signals),
        cmocka_unit_test(test_a_large_argument),
        cmocka_unit_test(test_an_empty_argument),
        cmocka_unit_test(test_asking_while_it_lives_and_after),
        cmocka_unit_test(test_other_signals_reach_it),
        cmocka_unit_test(test_kill_ends_what_ignores_terminate),
        cmocka_unit_test(test_kill_before_it_has_joined),
        cmocka_unit_test(test_the_sentinel_polls_readable_at_the_end),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_closed_process_goes_on),
        cmocka_unit_test(test_processes_start_processes),
        cmocka_unit_test(test_environment_and_directory),
        cmocka_unit_test(test_a_program_without_an_environment_starts_processes),
        cmocka_unit_test(test_the_environment_is_as_it_was_at_the_call),
        cmocka_unit_test(test_standard_input),
        cmocka_unit_test(test_what_a_process_forks_ends_with_it),
        cmocka_unit_test(test_a_program_of_its_own),
        cmocka_unit_test(test_a_program_is_looked_for_in_PATH),
        cmocka_unit_test(test_eight_threads_start_and_join),
        cmocka_unit_test(test_many_threads_join_one),
        cmocka_unit_test(test_sixty_four_at_once),
        cmocka_unit_test(test_settings_change_while_processes_start),
    };

    init_fiber(&argc, &argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
