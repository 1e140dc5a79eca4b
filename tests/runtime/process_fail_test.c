/* process_fail_test.c - processes that cannot start, freeze, or lose their parent; calls at the
 * wrong time; all of it must end in a sentence, and never in a hang.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/ticket.h"
#include "tests/support/children.h"
#include "tests/support/files.h"
#include "tests/support/run.h"

#define CANNOT_START 125

static struct fiber_process *begin_command(const char *const *argv, int timeout_ms)
{
    struct fiber_process *p;

    assert_int_equal(fiber_process_start_work(
                         &p, "", 0, OPTIONS(.job.command = argv, .start_timeout_ms = timeout_ms)),
                     0);
    return p;
}

/* ---- Starts that fail ---- */

static void test_a_program_that_does_not_exist(void **state)
{
    struct fiber_process *p = begin_command((const char *const[]){"/nowhere/to/be/found", NULL}, 0);
    struct pollfd polled = {.fd = fiber_process_sentinel(p), .events = POLLIN};

    assert_int_equal(poll(&polled, 1, TEST_LONG_MS), 1);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "could not be started", "/nowhere/to/be/found",
                    "No such file", NULL));
    assert_int_equal(fiber_process_pid(p), 0);
    assert_string_equal(fiber_process_job(p), "");
    assert_int_equal(fiber_process_kill(p), 0);
    fiber_process_close(p);
}

static void test_a_file_that_is_no_program(void **state)
{
    struct fiber_process *p = begin_command((const char *const[]){"/etc/passwd", NULL}, 0);

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "/etc/passwd", "Permission denied", NULL));
    fiber_process_close(p);
}

static void test_a_directory_that_does_not_exist(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, OPTIONS(.job.workdir = "/nowhere"));

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "working directory", "No such file", NULL));
    fiber_process_close(p);
}

static void test_a_program_that_does_not_call_fiber_init(void **state)
{
    const char *const quiet[] = {"/bin/true", NULL};
    const char *const loud[] = {"/bin/sh", "-c",
                                "echo first; echo second >&2; printf third; exit 3", NULL};
    const char *const failed[] = {"/bin/sh", "-c", "echo fiber_init says why; exit 125", NULL};
    const char *const lacking[] = {"/bin/sh", "-c", "echo libx.so: cannot open >&2; exit 127",
                                   NULL};
    struct fiber_process *p = begin_command(quiet, 0);

    assert_int_equal(ended(p), CANNOT_START); /* its function has not run: not a success */
    assert_true(
        has(fiber_process_report(p), "exited with code 0 before it joined", "fiber_init", NULL));
    fiber_process_close(p);
    p = begin_command(loud, 0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "exited with code 3 before it joined", "fiber_init",
                    "\n    first", "\n    second", "\n    third", NULL));
    fiber_process_close(p);
    p = begin_command(failed, 0);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "exited with code 125 before it joined; its last",
                    "\n    fiber_init says why", NULL));
    fiber_process_close(p);
    p = begin_command(lacking, 0); /* as a loader or a shell ends */
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p),
                    "exited with code 127 before it joined; is its program", "libraries",
                    "\n    libx.so: cannot open", NULL));
    fiber_process_close(p);
}

/* Forks a child that returns from the function as well; 0: it ends by itself. */
static int fork_and_return(const void *arg, size_t len)
{
    pid_t pid = fork();
    struct pollfd end = {.events = POLLIN};
    int ended;

    if (pid <= 0) {
        setsid(); /* as daemon() does */
        return 1;
    }
    end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    ended = poll(&end, 1, 20000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(end.fd);
    return ended == 1 ? 0 : 2;
}

static void test_a_forked_child_that_returns_ends(void **state)
{
    struct fiber_process *p = begin(fork_and_return, NULL, 0, OPTIONS(.start_timeout_ms = 0));

    assert_int_equal(ended(p), 0);
    fiber_process_close(p);
}

static void test_a_program_that_never_joins(void **state)
{
    const char *const argv[] = {"/bin/sh", "-c", "echo here I stay; exec sleep 1000", NULL};
    struct fiber_process *p = begin_command(argv, 4000); /* time for sh to say its word */

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "did not join within 4.0 s", "start_timeout",
                    "here I stay", NULL));
    fiber_process_close(p);
}

/* The name of its socket is there, and nobody listens, as where a master was killed. */
static void test_a_child_that_reaches_no_parent_says_why(void **state)
{
    struct fbr_join join = {
        .name = "process-7", .run_uid = "0123456789abcdef", .me = {FBR_CALLER_JOB, 7}};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct fbr_config *config = fbr_config_new();
    const char *env[] = {NULL, NULL};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct fbr_buf ticket = {0};
    char where[128];

    temp_dir_make(join.root);
    snprintf(name.sun_path, sizeof(name.sun_path), "%.90s/c", join.root);
    snprintf(join.url, sizeof(join.url), "unix:%.90s/c", join.root);
    assert_int_equal(bind(fd, (const void *)&name, sizeof(name)), 0);
    assert_int_equal(fbr_config_set(config, "start_timeout", "1s", "test", NULL), 0);
    fbr_join_put(&join, config, &ticket);
    snprintf(where, sizeof(where), "FIBER_TICKET=file:%.90s/ticket", join.root);
    env[0] = where;
    for (int i = 0; i < 2; i++) {
        struct ran r;

        file_make(path_in(join.root, "ticket"), ticket.data, ticket.len, 0600);
        r = run_self("finished", NULL, env);
        assert_int_equal(r.code, CANNOT_START);
        assert_true(
            has(r.err, "process-7", join.url, i ? "did not answer" : "Connection refused", NULL));
        ran_free(&r);
        assert_int_equal(listen(fd, 1), 0); /* from now on it takes calls, and says nothing */
    }
    fbr_buf_fini(&ticket);
    fbr_config_free(config);
    close(fd);
    temp_dir_remove(join.root);
}

static void test_another_program_gets_no_function_of_ours(void **state)
{
    const char *const argv[] = {TEST_PROGRAM_DIR "/process_prog", NULL};
    struct fiber_process *p = begin(child_wait, NULL, 0, OPTIONS(.job.command = argv));

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "build", NULL));
    fiber_process_close(p);
}

static void test_a_function_that_cannot_travel(void **state)
{
    fiber_process_fn fn = (fiber_process_fn)(uintptr_t)malloc(16);
    struct fiber_process *p = NULL;

    assert_true(fiber_process_start(&p, fn, NULL, 0, NULL) < 0);
    assert_true(has(fiber_last_error(), "function", NULL));
    free((void *)(uintptr_t)fn);
}

static void test_an_unknown_backend(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, OPTIONS(.backend = "steam"));

    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "no backend 'steam'", "local", "command", NULL));
    fiber_process_close(p);
}

static void expect_refused(const char *word, const struct fiber_process_options *o)
{
    struct fiber_process *p = NULL;

    assert_int_equal(fiber_process_start(&p, child_wait, NULL, 0, o), -EINVAL);
    assert_true(has(fiber_last_error(), word, NULL));
    assert_null(p);
}

static int child_die(const void *arg, size_t len)
{
    raise(SIGTERM);
    return 0;
}

/* Its connection tells at once that it is gone, its engine too late: it is given up. What the engine says then counts
 * for more than that. */
static void test_an_engine_that_tells_late_why_it_ended(void **state)
{
    static const char *const env[] = {"FIBER_MOCK=late_word", NULL};
    struct fiber_process *p;

    assert_int_equal(
        fiber_process_start(&p, child_die, NULL, 0, OPTIONS(.backend = "mock", .job.env = env)), 0);
    assert_int_equal(ended(p), -SIGTERM);
    assert_true(has(fiber_process_report(p), "beyond its time in the mock engine", NULL));
    assert_null(strstr(fiber_process_report(p), "closed its connection"));
    fiber_process_close(p);
}

#define VARIABLES 5000
#define ENVIRONMENT (1u << 20)

extern char **environ;

/* An environment with many more variables, in memory of its own. */
static char **new_environment(char *const *base)
{
    char **list =
        mmap(NULL, ENVIRONMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t n = 0;
    char *at;

    assert_true(list != MAP_FAILED);
    for (; base[n]; n++)
        list[n] = base[n];
    at = (char *)&list[n + VARIABLES + 1];
    for (size_t i = 0; i < VARIABLES; i++) {
        list[n + i] = at;
        at += snprintf(at, 24, "TEST_%zu=", i) + 1;
    }
    return list;
}

/* A program may change its environment where none of its own threads reads it; it knows nothing of ours. What was its
 * environment before cannot be read then. */
static void test_the_environment_changes_while_processes_start(void **state)
{
    char **before = environ, **turns[2] = {new_environment(before), new_environment(before)};
    struct fiber_process *p[8];

    environ = turns[0];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            p[i] = begin(child_return, &round, sizeof(round), NULL);
            for (int k = 1; k <= 2000; k++) {
                mprotect(turns[k % 2], ENVIRONMENT, PROT_READ | PROT_WRITE);
                environ = turns[k % 2];
                mprotect(turns[1 - k % 2], ENVIRONMENT, PROT_NONE);
            }
        }
        for (int i = 0; i < 8; i++)
            assert_int_equal(finish(p[i]), round);
    }
    environ = before;
    for (int i = 0; i < 2; i++)
        munmap(turns[i], ENVIRONMENT);
}

static void test_wrong_arguments(void **state)
{
    char name[65];
    struct fiber_process *p;

    memset(name, 'n', 64);
    name[64] = '\0';
    expect_refused("size", &(struct fiber_process_options){.size = 3});
    expect_refused("name", OPTIONS(.job.name = ""));
    expect_refused("name", OPTIONS(.job.name = "a b"));
    expect_refused("name", OPTIONS(.job.name = "../x"));
    expect_refused("name", OPTIONS(.job.name = "\x1b[31m"));
    expect_refused("name", OPTIONS(.job.name = name));
    expect_refused("job.cpus is -1; use 0 to 1e+06", OPTIONS(.job.cpus = -1));
    expect_refused("job.cpus is nan", OPTIONS(.job.cpus = NAN));
    expect_refused("job.cpus is 1e+300", OPTIONS(.job.cpus = 1e300));
    expect_refused("negative", OPTIONS(.job.gpus = -1));
    expect_refused("empty", OPTIONS(.job.command = (const char *const[]){NULL}));
    assert_int_equal(fiber_process_start(&p, NULL, NULL, 0, NULL), -EINVAL);
    assert_int_equal(fiber_process_start(NULL, child_wait, NULL, 0, NULL), -EINVAL);
    assert_int_equal(fiber_process_start(&p, child_wait, NULL, 1, NULL), -EINVAL);
    assert_int_equal(fiber_process_start_work(&p, "", 0, NULL), -EINVAL);
    assert_true(has(fiber_last_error(), "job.command", NULL));
}

/* ---- Processes that freeze, and parents that stop or die ----
 *
 * The heartbeat is one that who is well also keeps where many want the processor. */

#define BEAT_MS 1000
#define SILENCE_MS (3 * BEAT_MS)

static const char *const quick_beat[] = {"FIBER_HEARTBEAT=1s", NULL};

static int stop_yourself(const void *arg, size_t len)
{
    raise(SIGSTOP);
    return child_wait(arg, len);
}

static int play_frozen(const char *arg)
{
    struct fiber_process *frozen = begin(stop_yourself, NULL, 0, NULL),
                         *well = begin(child_wait, NULL, 0, NULL);
    int code = ended(frozen);

    printf("%d %s; the other one: %d\n", code, fiber_process_report(frozen),
           fiber_process_is_alive(well));
    return 0;
}

static void test_a_frozen_process_is_killed(void **state)
{
    struct ran r = run_self("frozen", NULL, quick_beat);

    assert_int_equal(r.code, 0);
    assert_true(has(r.out, "-9 ", "no heartbeat", "frozen", "the other one: 1", NULL));
    ran_free(&r);
}

static int play_stopped(const char *gate)
{
    struct fiber_process *p = begin_str(child_notify_wait, gate);
    char byte;

    if (read(0, &byte, 1) != 1) /* stopped and continued meanwhile */
        return 1;
    if (fiber_process_join(p, SILENCE_MS + BEAT_MS) != -ETIMEDOUT) { /* nobody gives it up */
        printf("%s\n", fiber_process_report(p));
        return 2;
    }
    fiber_process_kill(p);
    return finish(p) == -SIGKILL ? 0 : 3;
}

/* A debugger, or Ctrl-Z: what the children said meanwhile has not been read, and they are well. Also those that
 * are reached by TCP: they wait for their parent four times as long as it waits for them. */
static void test_a_parent_that_was_stopped_kills_nobody(void **state)
{
    int pipes[2], old = dup(0), status;
    struct gate told;
    pid_t child, pid;

    assert_int_equal(pipe(pipes), 0);
    gate_open(&told);
    dup2(pipes[0], 0);
    pid = start_self("stopped", told.path, quick_beat, NULL);
    dup2(old, 0);
    assert_int_equal(gate_wait(&told, &child, sizeof(child)), 0);
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    let_time_pass(SILENCE_MS + BEAT_MS);
    kill(pid, SIGCONT);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(pipes[0]);
    close(pipes[1]);
    close(old);
    gate_close(&told);
}

static int start_and_wait(const void *gate, size_t len)
{
    begin(child_notify_wait, gate, len, NULL);
    return child_notify_wait(gate, len);
}

/* In a run of several levels the death of one process ends those below it, and the run goes on. */
static void test_death_in_the_middle_leaves_the_run_whole(void **state)
{
    struct fiber_process *p;
    struct gate told;
    pid_t pids[2];
    int fds[2], code = 5;

    gate_open(&told);
    for (int round = 0; round < 3; round++) {
        p = begin_str(start_and_wait, told.path);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(gate_wait(&told, &pids[i], sizeof(pid_t)), 0);
            fds[i] = pid_open(pids[i]);
        }
        kill((pid_t)fiber_process_pid(p), SIGKILL);
        assert_int_equal(finish(p), -SIGKILL);
        assert_int_equal(pids_gone(fds, 2, TEST_LONG_MS), 0);
        assert_int_equal(finish(begin(child_return, &code, sizeof(code), NULL)), code);
    }
    gate_close(&told);
}

/* ---- Calls where there is no Fiber ---- */

static int fork_call(struct fiber_process *p)
{
    struct fiber_process *q, *found[2];
    int code,
        rc[] = {fiber_process_start(&q, child_wait, NULL, 0, NULL),
                fiber_process_start_work(
                    &q, "", 0, OPTIONS(.job.command = (const char *const[]){"/bin/true", NULL})),
                fiber_process_join(p, -1),
                fiber_process_terminate(p),
                fiber_process_kill(p),
                fiber_process_is_alive(p),
                fiber_process_exitcode(p, &code),
                (int)fiber_process_pid(p),
                fiber_process_sentinel(p),
                fiber_active_children(found, 2),
                fiber_config_set("heartbeat", "5s"),
                fiber_init(NULL, NULL)};

    for (size_t i = 0; i < sizeof(rc) / sizeof(rc[0]); i++)
        if (rc[i] != -EPERM || !strstr(fiber_last_error(), "child of fork()"))
            return 10 + (int)i;
    fiber_process_close(p);
    fiber_fini();
    return *fiber_process_report(p) || *fiber_process_job(p) ? 2 : 0;
}

static void fork_in(struct fiber_process *p, int by_exit)
{
    pid_t pid;
    int status;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int rc = fork_call(p);

        if (by_exit)
            exit(rc);
        _exit(rc);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_what_acts_on_a_process_fails_in_a_fork_child(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL);

    fork_in(p, 0);
#ifndef __SANITIZE_ADDRESS__ /* it takes the memory of threads that are not there for leaks */
    fork_in(p, 1);           /* its exit() takes nothing of ours along */
#endif
    assert_int_equal(fiber_process_is_alive(p), 1);
    fiber_process_kill(p);
    assert_int_equal(finish(p), -SIGKILL);
}

static int play_uninitialised(void)
{
    struct fiber_process *p;

    if (fiber_process_start(&p, child_wait, NULL, 0, NULL) != -EPERM ||
        !has(fiber_last_error(), "fiber_init()", NULL))
        return 1;
    if (fiber_config_set("backend", "local") != -EPERM || fiber_active_children(NULL, 0) != 0)
        return 2;
    fiber_fini();
    return strcmp(fiber_process_self(), "main") != 0;
}

static int play_finished(const char *arg)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL), *q = NULL;
    int code = 0;

    fiber_fini();
    if (fiber_process_join(p, 0) != 0 || fiber_process_exitcode(p, &code) != 0 || code != -SIGKILL)
        return 1;
    if (fiber_process_kill(p) != 0 || fiber_process_is_alive(p))
        return 2;
    if (fiber_process_start(&q, child_wait, NULL, 0, NULL) != -ESHUTDOWN ||
        !has(fiber_last_error(), "fiber_fini()", NULL))
        return 3;
    fiber_process_close(p);
    fiber_fini();
    return 0;
}

static void test_calls_before_init_and_after_fini(void **state)
{
    const char *roles[] = {"uninitialised", "finished"};

    for (int i = 0; i < 2; i++) {
        struct ran r = run_self(roles[i], NULL, NULL);

        assert_string_equal(r.err, "");
        assert_int_equal(r.code, 0);
        ran_free(&r);
    }
}

/* ---- Configuration ---- */

static int play_config(const char *arg)
{
    char value[8];

    if (fiber_config_set("heartbeat", "1500ms") < 0 ||
        fiber_config_get("heartbeat", value, sizeof(value)) < 0 || strcmp(value, "1500ms") != 0 ||
        fiber_config_get("heartbeat", value, 6) != -ERANGE ||
        fiber_config_get("hartbeat", value, sizeof(value)) != -EINVAL)
        return 2;
    return fiber_config_set("heartbeat", "soon") == -EINVAL &&
                   has(fiber_last_error(), "heartbeat", "soon", NULL) &&
                   fiber_config_set("hartbeat", "5s") == -EINVAL &&
                   has(fiber_last_error(), "hartbeat", "heartbeat", NULL)
               ? 0
               : 1;
}

static void expect_config_error(const char *text, const char *first, const char *second,
                                const char *third)
{
    char dir[64], path[96];
    char exe[256] = "";
    struct ran r;
    FILE *f;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/.fiberconfig", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    r = run_program((const char *const[]){exe, "config", NULL}, NULL, dir);
    assert_int_equal(r.code, 1);
    assert_true(has(r.err, ".fiberconfig", first, second, third, NULL));
    ran_free(&r);
    temp_dir_remove(dir);
}

static void test_configuration_errors_name_file_and_line(void **state)
{
    const char *const env[] = {"FIBER_HEARTBEET=5s", NULL};
    struct ran r;

    expect_config_error("# a comment\nheartbeat = often\n", ":2", "heartbeat", "often");
    expect_config_error("backend = local\n\nhartbeat = 5s\n", ":3", "hartbeat", "heartbeat");
    r = run_self("config", NULL, env);
    assert_int_equal(r.code, 1);
    assert_true(has(r.err, "FIBER_HEARTBEET", "FIBER_HEARTBEAT", NULL));
    ran_free(&r);
    r = run_self("config", NULL, NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
}

static int play(const char *role, const char *arg)
{
    static const struct {
        const char *name;
        int (*fn)(const char *arg);
    } roles[] = {{"frozen", play_frozen},
                 {"stopped", play_stopped},
                 {"finished", play_finished},
                 {"config", play_config}};

    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(role, roles[i].name) == 0)
            return roles[i].fn(arg);
    return 99;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_that_does_not_exist),
        cmocka_unit_test(test_a_file_that_is_no_program),
        cmocka_unit_test(test_a_directory_that_does_not_exist),
        cmocka_unit_test(test_a_program_that_does_not_call_fiber_init),
        cmocka_unit_test(test_a_forked_child_that_returns_ends),
        cmocka_unit_test(test_a_program_that_never_joins),
        cmocka_unit_test(test_a_child_that_reaches_no_parent_says_why),
        cmocka_unit_test(test_another_program_gets_no_function_of_ours),
        cmocka_unit_test(test_a_function_that_cannot_travel),
        cmocka_unit_test(test_an_unknown_backend),
        cmocka_unit_test(test_an_engine_that_tells_late_why_it_ended),
        cmocka_unit_test(test_the_environment_changes_while_processes_start),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_a_frozen_process_is_killed),
        cmocka_unit_test(test_a_parent_that_was_stopped_kills_nobody),
        cmocka_unit_test(test_death_in_the_middle_leaves_the_run_whole),
        cmocka_unit_test(test_what_acts_on_a_process_fails_in_a_fork_child),
        cmocka_unit_test(test_calls_before_init_and_after_fini),
        cmocka_unit_test(test_configuration_errors_name_file_and_line),
    };

    if (argc > 1 && strcmp(argv[1], "uninitialised") == 0)
        return play_uninitialised();
    init_fiber(&argc, &argv);
    return argc > 1 ? play(argv[1], argv[2]) : cmocka_run_group_tests(tests, NULL, NULL);
}
