/* spawn_test.c - starting programs: their descriptors, environment, signals, process group, and
 * what fails.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/program/spawn.h"
#include "tests/support/sync.h"

extern char **environ;

/* Runs `script` by sh with `extra` as descriptor 3 (or none: -1) and answers its exit code; its
 * output goes to out. */
static int run(const char *script, int extra, char *out, size_t size)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL},
         *env[] = {"ONLY=this", "PATH=/usr/bin:/bin", NULL};
    struct fbr_spawn s = {.file = "/bin/sh", .argv = argv, .env = env, .nfds = 4};
    struct fbr_error err = {0, ""};
    int pipes[2], pidfd, status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    s.fds[0] = -1;
    s.fds[1] = s.fds[2] = pipes[1];
    s.fds[3] = extra;
    if (fbr_spawn(&s, &pid, &pidfd, &err) < 0)
        fail_msg("%s", err.text);
    close(pipes[1]);
    while (n < size - 1 && (got = read(pipes[0], out + n, size - 1 - n)) > 0)
        n += (size_t)got;
    out[n] = '\0';
    close(pipes[0]);
    assert_int_equal(fcntl(pidfd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(pidfd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_descriptors_are_those_asked_for_and_no_others(void **state)
{
    char out[1000];
    int keep[20],
        extra = open("/dev/zero", O_RDONLY); /* not close-on-exec, as other code may open some */

    for (int i = 0; i < 20; i++)
        keep[i] = open("/etc/passwd", O_RDONLY);
    assert_int_equal(
        run("for f in 0 1 2 3; do readlink /proc/$$/fd/$f; done;"
            "for f in $(seq 4 200); do [ -e /proc/$$/fd/$f ] && echo more: $f; done; true",
            extra, out, sizeof(out)),
        0);
    assert_memory_equal(out, "/dev/null\npipe:", 15);
    assert_non_null(strstr(out, "/dev/zero"));
    assert_null(strstr(out, "more"));
    assert_null(strstr(out, "passwd"));
    for (int i = 0; i < 20; i++)
        close(keep[i]);
    close(extra);
}

/* As an old kernel in a container does, whose engine forbids what it does not know. */
static int forbid(long call, long other)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0
               ? -errno
               : 0;
}

/* Runs a test in a process in which both calls are forbidden. Before all other tests: a process
 * looks once at what it may do. */
static void test_without(long call, long other, void (*test)(void **state), void **state)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (forbid(call, other) < 0)
            _exit(77);
        test(state);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

static void test_close_range_may_be_forbidden(void **state)
{
    test_without(SYS_close_range, SYS_unshare, test_descriptors_are_those_asked_for_and_no_others,
                 state);
}

static void test_a_child_is_signalled_and_waited_for(void **state)
{
    char *argv[] = {"sleep", "1000", NULL};
    struct fbr_spawn s = {.file = "/bin/sleep", .argv = argv, .env = environ, .nfds = 3};
    struct fbr_error err = {0, ""};
    struct pollfd end = {.events = POLLIN};
    siginfo_t how;
    pid_t pid;

    s.fds[0] = s.fds[1] = s.fds[2] = -1;
    if (fbr_spawn(&s, &pid, &end.fd, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(poll(&end, 1, 0), 0);
    assert_int_equal(fbr_spawn_signal(pid, end.fd, SIGTERM), 0);
    assert_int_equal(poll(&end, 1, TEST_LONG_MS), 1);
    assert_int_equal(fbr_spawn_wait(pid, end.fd, &how, NULL), 0);
    assert_int_equal(how.si_code, CLD_KILLED);
    assert_int_equal(how.si_status, SIGTERM);
    close(end.fd);
}

static void test_pidfds_may_be_forbidden(void **state)
{
    test_without(SYS_pidfd_send_signal, SYS_pidfd_open, test_a_child_is_signalled_and_waited_for,
                 state);
}

/* The target numbers themselves as sources, crosswise. */
static void test_descriptors_that_overlap_their_targets(void **state)
{
    char *argv[] = {"sh", "-c", "echo to three >&3; echo to one", NULL};
    struct fbr_spawn s = {.file = "/bin/sh", .argv = argv, .env = environ, .nfds = 4};
    int a[2], b[2], pidfd, saved = dup(1);
    char text[64] = "";
    pid_t pid;

    fflush(stdout);
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    dup2(b[1], 1); /* our own 1 becomes its 3 */
    s.fds[0] = -1;
    s.fds[1] = a[1];
    s.fds[2] = 2;
    s.fds[3] = 1;
    assert_int_equal(fbr_spawn(&s, &pid, &pidfd, NULL), 0);
    dup2(saved, 1);
    close(a[1]);
    close(b[1]);
    assert_int_equal(read(a[0], text, sizeof(text)), 7);
    assert_memory_equal(text, "to one\n", 7);
    assert_int_equal(read(b[0], text, sizeof(text)), 9);
    assert_memory_equal(text, "to three\n", 9);
    waitpid(pid, NULL, 0);
    close(pidfd);
    close(a[0]);
    close(b[0]);
    close(saved);
}

static void test_environment_group_and_signals(void **state)
{
    char out[1000];
    sigset_t set, old;

    assert_int_equal(run("echo $ONLY; [ -z \"$HOME\" ] && echo nothing else", -1, out, sizeof(out)),
                     0);
    assert_string_equal(out, "this\nnothing else\n");
    assert_int_equal(run("set -- $(cat /proc/$$/stat); [ $1 = $5 ] && echo leads its group", -1,
                         out, sizeof(out)),
                     0);
    assert_string_equal(out, "leads its group\n");
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(run("grep -E 'Sig(Blk|Ign)' /proc/self/status", -1, out, sizeof(out)), 0);
    assert_string_equal(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_int_equal(run("kill -TERM $$", -1, out, sizeof(out)), -SIGTERM);
    sigprocmask(SIG_BLOCK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 1); /* ours is as it was */
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
}

/* The child's timers have its slack, ours keep our own. */
static void test_timers_have_the_slack_that_was_asked_for(void **state)
{
    char *argv[] = {"cat", "/proc/self/timerslack_ns", NULL};
    struct fbr_spawn s = {.file = "/bin/cat", .argv = argv, .env = environ, .nfds = 3};
    const unsigned long slack[] = {123456, 0};
    int usual = prctl(PR_GET_TIMERSLACK);

    for (int i = 0; i < 2; i++) {
        char text[64] = "";
        int pipes[2], pidfd;
        pid_t pid;

        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        s.fds[0] = -1;
        s.fds[1] = pipes[1];
        s.fds[2] = 2;
        s.slack = slack[i];
        assert_int_equal(fbr_spawn(&s, &pid, &pidfd, NULL), 0);
        close(pipes[1]);
        assert_true(read(pipes[0], text, sizeof(text) - 1) > 0);
        assert_int_equal(atol(text), slack[i] ? (int)slack[i] : usual);
        assert_int_equal(prctl(PR_GET_TIMERSLACK), usual);
        close(pipes[0]);
        close(pidfd);
        waitpid(pid, NULL, 0);
    }
}

static void test_the_pidfd_tells_the_end(void **state)
{
    char *argv[] = {"sleep", "1000", NULL};
    struct fbr_spawn s = {
        .file = "/bin/sleep", .argv = argv, .env = environ, .fds = {-1, -1, -1}, .nfds = 3};
    struct pollfd p = {.events = POLLIN};
    pid_t pid;

    assert_int_equal(fbr_spawn(&s, &pid, &p.fd, NULL), 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    kill(pid, SIGKILL);
    assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(p.fd);
}

static void expect_failure(const char *file, const char *workdir, const char *first,
                           const char *second)
{
    char *argv[] = {"x", NULL};
    struct fbr_spawn s = {.file = file,
                          .argv = argv,
                          .env = environ,
                          .workdir = workdir,
                          .fds = {-1, -1, -1},
                          .nfds = 3};
    struct fbr_error err = {0, ""};
    int pidfd = -7;
    pid_t pid = -7;

    assert_true(fbr_spawn(&s, &pid, &pidfd, &err) < 0);
    assert_non_null(strstr(err.text, first));
    assert_non_null(strstr(err.text, second));
    assert_int_equal(pid, -7);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left to wait for */
}

static void test_failures_say_what_and_why(void **state)
{
    int before = dir_count("/proc/self/fd", "");

    expect_failure("/no/such/file", NULL, "/no/such/file: exec", "No such file");
    expect_failure("/etc/passwd", NULL, "exec", "Permission denied");
    expect_failure("/etc", NULL, "exec", "Permission denied");
    expect_failure("/bin/true", "/no/such/dir", "working directory", "No such file");
    assert_int_equal(dir_count("/proc/self/fd", ""), before);
}

static void test_many(void **state)
{
    char out[16];
    int before = dir_count("/proc/self/fd", "");

    for (int i = 0; i < 200; i++)
        assert_int_equal(run("exit 3", -1, out, sizeof(out)), 3);
    assert_int_equal(dir_count("/proc/self/fd", ""), before);
}

/* The beginning of a path may be another program's. */
static void test_a_path_that_does_not_fit_is_no_other_programs(void **state)
{
    char path[16], long_name[5000];
    char *const bin[] = {"PATH=/bin", NULL}, *const two[] = {"PATH=/a/long/folder:/bin", NULL};
    struct fbr_error err = {0, ""};

    memset(long_name, '/', sizeof(long_name));
    memcpy(long_name, "/bin/sh", 7);
    long_name[sizeof(long_name) - 1] = '\0';
    assert_int_equal(fbr_spawn_find("/bin/sh", path, 8, &err), 0);
    assert_string_equal(path, "/bin/sh");
    assert_int_equal(fbr_spawn_find("/bin/sh.there.is.none", path, 8, &err), -ENAMETOOLONG);
    assert_string_equal(path, "");
    assert_non_null(strstr(err.text, "/bin/sh.there.is.none is longer than 7 characters"));
    assert_int_equal(fbr_spawn_find(long_name, path, sizeof(path), &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "///... is longer than 15 characters"));
    assert_int_equal(fbr_spawn_find_in(bin, "sh", path, 7, &err), -ENAMETOOLONG);
    assert_int_equal(fbr_spawn_find_in(two, "sh", path, 8, &err), 0);
    assert_string_equal(path, "/bin/sh");
    err = (struct fbr_error){0, ""};
    assert_int_equal(fbr_spawn_find_in(bin, "nosuch", path, sizeof(path), &err), -ENOENT);
    assert_int_equal(fbr_spawn_find("/bin/nosuch", path, sizeof(path), &err), -ENOENT);
    assert_string_equal(err.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_range_may_be_forbidden),
        cmocka_unit_test(test_pidfds_may_be_forbidden),
        cmocka_unit_test(test_a_child_is_signalled_and_waited_for),
        cmocka_unit_test(test_descriptors_are_those_asked_for_and_no_others),
        cmocka_unit_test(test_descriptors_that_overlap_their_targets),
        cmocka_unit_test(test_environment_group_and_signals),
        cmocka_unit_test(test_timers_have_the_slack_that_was_asked_for),
        cmocka_unit_test(test_the_pidfd_tells_the_end),
        cmocka_unit_test(test_failures_say_what_and_why),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_a_path_that_does_not_fit_is_no_other_programs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
