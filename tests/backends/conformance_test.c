/* conformance_test.c - what every backend must do, as one table of cases that runs over each of
 * them.
 *
 * A backend is a row in `backends`: its name and what it can be asked for. A case that needs more
 * is not run on it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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

#include "tests/support/children.h"
#include "tests/support/run.h"

#define CANNOT_START 125

enum { FAULTS = 1 /* takes FIBER_MOCK in the job's environment */ };

static const struct backend {
    const char *name;
    unsigned can;
} backends[] = {{"local", 0}, {"mock", FAULTS}, {"command", 0}};

/* ---- What jobs do ---- */

static int print_and_return(const void *arg, size_t len)
{
    (void)len;
    printf("a line on stdout\n");
    fprintf(stderr, "a line on stderr\nand an end");
    return *(const int *)arg;
}

static int count_bytes(const void *arg, size_t len)
{
    const char *bytes = arg;
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += bytes[i] == 'b';
    return n == len ? 0 : 1;
}

static int tell_name(const void *gate, size_t len)
{
    (void)len;
    return gate_tell(gate, fiber_process_self(), strlen(fiber_process_self())) < 0;
}

static int start_on(const void *backend, size_t len)
{
    int code = 9;

    (void)len;
    return finish(begin(child_return, &code, sizeof(code), OPTIONS(.backend = backend)));
}

static int check_env(const void *arg, size_t len)
{
    const char *value = getenv("TEST_CONFORMANCE");
    char cwd[64] = "";

    (void)arg;
    (void)len;
    return value && strcmp(value, "a b;$c") == 0 && getcwd(cwd, sizeof(cwd)) &&
                   strcmp(cwd, "/") == 0
               ? 0
               : 1;
}

static int give_signal(const void *arg, size_t len)
{
    raise(SIGUSR2);
    return child_wait(arg, len);
}

/* ---- Cases ---- */

static struct fiber_process *start_with_fault(const struct backend *b, fiber_process_fn fn,
                                              const char *fault, int timeout_ms)
{
    static int code = 7;
    const char *const env[] = {fault, NULL};

    return begin(fn, &code, sizeof(code),
                 OPTIONS(.backend = b->name, .job.env = env, .start_timeout_ms = timeout_ms));
}

static void exit_codes(void **state)
{
    const struct backend *b = *state;
    int codes[] = {0, 1, 255};

    for (int i = 0; i < 3; i++)
        assert_int_equal(
            finish(begin(child_return, &codes[i], sizeof(int), OPTIONS(.backend = b->name))),
            codes[i]);
}

static void argument_environment_directory(void **state)
{
    const struct backend *b = *state;
    const char *const env[] = {"TEST_CONFORMANCE=a b;$c", NULL};
    char *arg = malloc(1 << 20);

    memset(arg, 'b', 1 << 20);
    assert_int_equal(finish(begin(count_bytes, arg, 1 << 20, OPTIONS(.backend = b->name))), 0);
    assert_int_equal(
        finish(begin(check_env, NULL, 0,
                     OPTIONS(.backend = b->name, .job = {.env = env, .workdir = "/"}))),
        0);
    free(arg);
}

static void terminate_and_kill(void **state)
{
    const struct backend *b = *state;

    for (int i = 0; i < 2; i++) {
        struct fiber_process *p;
        struct gate told;
        pid_t pid;

        gate_open(&told);
        p = begin(child_tell_wait, told.path, strlen(told.path) + 1, OPTIONS(.backend = b->name));
        assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
        assert_int_not_equal(strlen(fiber_process_job(p)), 0);
        assert_int_equal(i ? fiber_process_kill(p) : fiber_process_terminate(p), 0);
        assert_int_equal(ended(p), i ? -SIGKILL : -SIGTERM);
        assert_int_equal(fiber_process_kill(p), 0);
        fiber_process_close(p);
        gate_close(&told);
    }
}

static void death_by_its_own_signal(void **state)
{
    const struct backend *b = *state;

    assert_int_equal(finish(begin(give_signal, NULL, 0, OPTIONS(.backend = b->name))), -SIGUSR2);
}

static void last_lines_in_the_report(void **state)
{
    const struct backend *b = *state;
    int code = 4;
    struct fiber_process *p =
        begin(print_and_return, &code, sizeof(code), OPTIONS(.backend = b->name));

    assert_int_equal(ended(p), 4);
    assert_true(has(fiber_process_report(p), "exited with code 4", "a line on stdout",
                    "a line on stderr", "and an end", NULL));
    fiber_process_close(p);
}

static void a_bad_program(void **state)
{
    const struct backend *b = *state;
    const char *const missing[] = {"/no/such/program", NULL}, *const stranger[] = {"/bin/false",
                                                                                   NULL};
    struct fiber_process *p;

    assert_int_equal(
        fiber_process_start_work(&p, "", 0, OPTIONS(.backend = b->name, .job.command = missing)),
        0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "/no/such/program", "No such file", NULL));
    fiber_process_close(p);
    assert_int_equal(
        fiber_process_start_work(&p, "", 0, OPTIONS(.backend = b->name, .job.command = stranger)),
        0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "before it joined", NULL));
    fiber_process_close(p);
}

static void a_program_that_never_joins(void **state)
{
    const struct backend *b = *state;
    const char *const argv[] = {"/bin/sleep", "1000", NULL};
    struct fiber_process *p;

    assert_int_equal(
        fiber_process_start_work(
            &p, "", 0, OPTIONS(.backend = b->name, .job.command = argv, .start_timeout_ms = 150)),
        0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "did not join within", NULL));
    fiber_process_close(p);
}

static void a_hundred_at_once(void **state)
{
    const struct backend *b = *state;
    struct fiber_process *p[100];

    for (int i = 0; i < 100; i++)
        p[i] = begin(child_return, &i, sizeof(i), OPTIONS(.backend = b->name));
    for (int i = 0; i < 100; i++)
        assert_int_equal(finish(p[i]), i);
}

static void odd_names(void **state)
{
    static const char *const names[] = {
        "-",   ".",       "..",
        "-rf", "A.b-C_d", "0123456789012345678901234567890123456789012345678901234567890-z"};
    const struct backend *b = *state;
    struct gate told;

    gate_open(&told);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int twice = 0; twice < 2; twice++) { /* names need not be unique */
            char name[64] = "";

            assert_int_equal(finish(begin(tell_name, told.path, strlen(told.path) + 1,
                                          OPTIONS(.backend = b->name, .job.name = names[i]))),
                             0);
            assert_int_equal(gate_wait(&told, name, strlen(names[i])), 0);
            assert_string_equal(name, names[i]);
        }
    gate_close(&told);
}

static void nested_jobs(void **state)
{
    const struct backend *b = *state;

    assert_int_equal(
        finish(begin(start_on, b->name, strlen(b->name) + 1, OPTIONS(.backend = b->name))), 9);
}

static int play_master(const char *arg)
{
    char name[32], gate[96];

    if (sscanf(arg, "%31s %95s", name, gate) != 2)
        return 1;
    for (int i = 0; i < 8; i++)
        begin(child_tell_wait, gate, strlen(gate) + 1, OPTIONS(.backend = name));
    return child_wait(NULL, 0);
}

static void a_killed_master_takes_its_jobs_along(void **state)
{
    const struct backend *b = *state;
    char arg[160];
    struct gate told;
    pid_t pid, master;
    int fds[8];

    gate_open(&told);
    snprintf(arg, sizeof(arg), "%s %s", b->name, told.path);
    master = start_self("master", arg, NULL, NULL);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
        fds[i] = pid_open(pid);
    }
    kill(master, SIGKILL);
    assert_int_equal(waitpid(master, NULL, 0), master);
    assert_int_equal(pids_gone(fds, 8, TEST_LONG_MS), 0);
    gate_close(&told);
}

/* ---- With faults to order ---- */

static void an_engine_that_refuses(void **state)
{
    struct fiber_process *p = start_with_fault(*state, child_wait, "FIBER_MOCK=start_fails", 0);

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "could not be started", "refuses the job", NULL));
    fiber_process_close(p);
    p = start_with_fault(*state, child_wait, "FIBER_MOCK=fails_later", 0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "the mock engine failed it", NULL));
    fiber_process_close(p);
}

static void an_engine_that_is_slow(void **state)
{
    struct fiber_process *p =
        start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100", 0);

    assert_int_equal(finish(p), 7);
    p = start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100000", 50);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "did not join within",
                    "the mock engine takes its time", NULL));
    fiber_process_close(p);
    p = start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100000", 0);
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(finish(p), -SIGTERM);
}

static void a_job_that_never_joins(void **state)
{
    struct fiber_process *p = start_with_fault(*state, child_return, "FIBER_MOCK=never_joins", 150);

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "did not join within", NULL));
    fiber_process_close(p);
}

static void a_job_that_the_engine_kills(void **state)
{
    for (int ms = 0; ms < 12; ms += 3) /* at different stages of its life */ {
        char fault[40];

        snprintf(fault, sizeof(fault), "FIBER_MOCK=dies_after=%d", ms);
        assert_int_equal(finish(start_with_fault(*state, child_wait, fault, 0)), -SIGKILL);
    }
}

static int play_freeze(const char *name)
{
    struct backend b = {name, FAULTS};
    struct fiber_process *p = start_with_fault(&b, child_wait, "FIBER_MOCK=freezes_after=20", 5000);
    int code = ended(p);

    if (code == CANNOT_START) /* on a slow machine it freezes before it has joined */
        return has(fiber_process_report(p), "did not join within", NULL) ? 0 : 1;
    return code == -SIGKILL && has(fiber_process_report(p), "no heartbeat", NULL) ? 0 : 2;
}

static void a_job_that_freezes(void **state)
{
    const struct backend *b = *state;
    const char *const env[] = {"FIBER_HEARTBEAT=100ms", NULL};
    struct ran r = run_self("freeze", b->name, env);

    assert_int_equal(r.code, 0);
    ran_free(&r);
}

static void an_end_that_the_engine_knows_nothing_about(void **state)
{
    struct fiber_process *p = start_with_fault(*state, child_return, "FIBER_MOCK=exit_unknown", 0);
    int code = 0;

    assert_int_equal(finish(p), 7); /* it said so itself */
    p = start_with_fault(*state, give_signal, "FIBER_MOCK=exit_unknown", 0);
    assert_int_equal(fiber_process_join(p, TEST_LONG_MS), 0);
    assert_int_equal(fiber_process_exitcode(p, &code), -ENODATA);
    assert_true(has(fiber_process_report(p), "nobody knows how", NULL));
    fiber_process_close(p);
}

static void a_job_that_vanishes(void **state)
{
    struct fiber_process *p = start_with_fault(*state, child_return, "FIBER_MOCK=mute", 0);
    struct fiber_process *q = start_with_fault(*state, give_signal, "FIBER_MOCK=mute", 0);
    int code;

    assert_int_equal(finish(p), 7);
    assert_int_equal(fiber_process_join(q, TEST_LONG_MS), 0);
    assert_int_equal(fiber_process_exitcode(q, &code), -ENODATA);
    fiber_process_close(q);
}

static const struct {
    const char *name;
    void (*run)(void **state);
    unsigned needs;
} cases[] = {
    {"exit codes", exit_codes, 0},
    {"argument, environment, directory", argument_environment_directory, 0},
    {"terminate and kill", terminate_and_kill, 0},
    {"death by its own signal", death_by_its_own_signal, 0},
    {"last lines in the report", last_lines_in_the_report, 0},
    {"a bad program", a_bad_program, 0},
    {"a program that never joins", a_program_that_never_joins, 0},
    {"a hundred at once", a_hundred_at_once, 0},
    {"odd names", odd_names, 0},
    {"nested jobs", nested_jobs, 0},
    {"a killed master takes its jobs along", a_killed_master_takes_its_jobs_along, 0},
    {"an engine that refuses", an_engine_that_refuses, FAULTS},
    {"an engine that is slow", an_engine_that_is_slow, FAULTS},
    {"a job that never joins", a_job_that_never_joins, FAULTS},
    {"a job that the engine kills", a_job_that_the_engine_kills, FAULTS},
    {"a job that freezes", a_job_that_freezes, FAULTS},
    {"an end that the engine knows nothing about", an_end_that_the_engine_knows_nothing_about,
     FAULTS},
    {"a job that vanishes", a_job_that_vanishes, FAULTS},
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[COUNT(backends) * COUNT(cases)];
    static char names[COUNT(tests)][80];
    size_t n = 0;

    if (fiber_init(&argc, &argv) < 0 || fiber_config_set("grace", "100ms") < 0 ||
        (!fiber_process_is_child() &&
         (fiber_config_set("command_start", "env") < 0 || /* of this host */
          fiber_config_set("bind", "lo") < 0))) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    if (argc > 2 && strcmp(argv[1], "master") == 0)
        return play_master(argv[2]);
    if (argc > 2 && strcmp(argv[1], "freeze") == 0)
        return play_freeze(argv[2]);
    for (size_t b = 0; b < COUNT(backends); b++)
        for (size_t c = 0; c < COUNT(cases); c++) {
            if (cases[c].needs & ~backends[b].can)
                continue;
            snprintf(names[n], sizeof(names[n]), "%s: %s", backends[b].name, cases[c].name);
            tests[n] = (struct CMUnitTest){.name = names[n],
                                           .test_func = cases[c].run,
                                           .initial_state = (void *)(uintptr_t)&backends[b]};
            n++;
        }
    return _cmocka_run_group_tests("conformance", tests, n, NULL, NULL);
}
