/* subjobs_test.c - processes in another one's job: what becomes of them when their host is silent, and what they leave
 * at a host that lives.
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

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/proc/process_priv.h"
#include "runtime/program/spawn.h"
#include "tests/support/children.h"
#include "tests/support/run.h"

#define STRAYS 12
#define CROWD 48

/* Starts a process that is to start others in its job. */
static struct fiber_process *begin_host(fiber_process_fn fn, const char *gate)
{
    struct fbr_process_spec spec = {
        .fn = fn, .arg = gate, .len = strlen(gate) + 1, .is_host = true};
    struct fiber_process *p = NULL;

    assert_int_equal(fbr_process_start(&p, &spec), 0);
    return p;
}

/* Starts a process in the job of `host`, that runs fn or argv. */
static struct fiber_process *begin_in(struct fiber_process *host, fiber_process_fn fn,
                                      const struct gate *gate, const char *const *argv)
{
    struct fbr_process_spec spec = {.fn = fn,
                                    .arg = gate ? gate->path : NULL,
                                    .len = gate ? strlen(gate->path) + 1 : 0,
                                    .options = OPTIONS(.job.command = argv),
                                    .host = host};
    struct fiber_process *p = NULL;

    assert_int_equal(fbr_process_start(&p, &spec), 0);
    return p;
}

/* Nobody has seen how it ended, so nobody says so; and it has not ended before its host. The last test: it alone has a
 * short heartbeat, which hosts that are well do not always keep on a busy machine. */
static void test_processes_of_a_silent_host_end_with_it(void **state)
{
    struct fiber_process *host, *p;
    struct gate gate;
    pid_t pid;
    int watched;

    assert_int_equal(fiber_config_set("heartbeat", "1s"), 0);
    gate_open(&gate);
    host = begin_host(child_notify_wait, gate.path);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    p = begin_in(host, child_notify_wait, &gate, NULL);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    watched = pid_open(pid);
    assert_int_equal(kill((pid_t)fiber_process_pid(host), SIGSTOP), 0);
    assert_int_equal(ended(p), -ENODATA);
    assert_true(has(fiber_process_report(p), "no heartbeat", "frozen", NULL));
    assert_int_equal(finish(host), -SIGKILL);
    assert_int_equal(pids_gone(&watched, 1, TEST_LONG_MS), 0);
    fiber_process_close(p);
    gate_close(&gate);
}

/* A program that never joins; what it forks, in a group of its own (timeout makes it), tells the gate its number, in
 * eight digits. */
#define FORKS                                                                                \
    {                                                                                        \
        "/bin/sh", "-c", "timeout 1000 sh -c '" TELL "; exec sleep 1000' sh $1& wait", "sh", \
            (char *)NULL, NULL                                                               \
    }
#define TELL "printf %08d $$ >$1"

static int watch_forked(struct gate *gate)
{
    char text[9] = "";

    assert_int_equal(gate_wait(gate, text, 8), 0);
    return pid_open(atoi(text));
}

/* The kernel kills a program with its host, but not what that has forked. The host has told us who the program is by
 * the time that it starts another one. */
static void test_what_programs_of_a_killed_host_forked_goes_with_them(void **state)
{
    const char *forks[] = FORKS;
    struct fiber_process *host, *p, *later;
    struct gate gate;
    pid_t pid;
    int watched;

    gate_open(&gate);
    forks[4] = gate.path;
    host = begin_host(child_notify_wait, gate.path);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    p = begin_in(host, NULL, NULL, forks);
    watched = watch_forked(&gate);
    later = begin_in(host, child_notify_wait, &gate, NULL);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    assert_int_equal(kill((pid_t)fiber_process_pid(host), SIGKILL), 0);
    assert_int_equal(finish(host), -SIGKILL);
    assert_int_equal(pids_gone(&watched, 1, TEST_LONG_MS), 0);
    assert_int_equal(ended(p), 125);
    fiber_process_close(p);
    assert_int_equal(ended(later), -ENODATA);
    fiber_process_close(later);
    gate_close(&gate);
}

static int start_untold(void *gate)
{
    char *forks[] = FORKS;
    struct fbr_spawn s = {
        .file = forks[0], .argv = forks, .env = fbr_environ(), .fds = {-1, -1, -1}, .nfds = 3};
    pid_t pid;
    int pidfd;

    forks[4] = gate;
    return fbr_spawn(&s, &pid, &pidfd, NULL);
}

/* A host in the instant after its start of a program, in which nobody else knows of that. */
static int child_in_the_instant(const void *arg, size_t len)
{
    char gate[64];

    snprintf(gate, sizeof(gate), "%.*s", (int)len, (const char *)arg);
    return fbr_loop_call(fbr_rt()->loop, start_untold, gate) < 0 ? 1 : child_wait(NULL, 0);
}

static void test_what_a_killed_host_had_no_time_to_tell_goes_with_it(void **state)
{
    struct fiber_process *host;
    struct gate gate;
    int watched;

    gate_open(&gate);
    host = begin_host(child_in_the_instant, gate.path);
    watched = watch_forked(&gate);
    assert_int_equal(kill((pid_t)fiber_process_pid(host), SIGKILL), 0);
    assert_int_equal(finish(host), -SIGKILL);
    assert_int_equal(pids_gone(&watched, 1, TEST_LONG_MS), 0);
    gate_close(&gate);
}

/* It orders a host of its own to start the program. */
static int child_with_a_host(const void *arg, size_t len)
{
    const char *forks[] = FORKS;

    forks[4] = arg;
    begin_in(begin_host(child_wait, arg), NULL, NULL, forks);
    return child_wait(NULL, 0);
}

static void test_what_never_joined_goes_with_a_host_that_lost_its_parent(void **state)
{
    struct fiber_process *parent;
    struct gate gate;
    int watched;

    gate_open(&gate);
    parent = begin(child_with_a_host, gate.path, strlen(gate.path) + 1, NULL);
    watched = watch_forked(&gate);
    assert_int_equal(kill((pid_t)fiber_process_pid(parent), SIGKILL), 0);
    assert_int_equal(finish(parent), -SIGKILL);
    assert_int_equal(pids_gone(&watched, 1, TEST_LONG_MS), 0);
    gate_close(&gate);
}

static void test_who_is_no_host_is_given_no_process(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL), *other = NULL;
    struct fbr_process_spec spec = {.fn = child_wait, .host = p};

    assert_int_equal(fbr_process_start(&other, &spec), -EINVAL);
    assert_true(has(fiber_last_error(), "is not a host", NULL));
    fiber_process_kill(p);
    assert_int_equal(finish(p), -SIGKILL);
}

/* Descriptors of the host while it has one more process, which has joined: all that it did for others before is done
 * then. */
static int descriptors_of(struct fiber_process *host, struct gate *gate)
{
    struct fiber_process *p = begin_in(host, child_notify_wait, gate, NULL);
    char folder[64];
    pid_t pid;
    int n;

    assert_int_equal(gate_wait(gate, &pid, sizeof(pid)), 0);
    snprintf(folder, sizeof(folder), "/proc/%lld/fd", (long long)fiber_process_pid(host));
    n = dir_count(folder, "");
    fiber_process_kill(p);
    assert_int_equal(finish(p), -SIGKILL);
    return n;
}

/* What they have started lives on with all descriptors that they had, and the host has given up its own. */
static void test_programs_that_never_join_leave_no_descriptor_at_their_host(void **state)
{
    /* In a session of its own, so that it outlives its parent; sh waits until it is there. */
    static const char *const stray[] = {
        "/bin/sh", "-c",
        "echo stray $(setsid -f sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1'); exit 3", NULL};
    struct fiber_process *host;
    struct gate gate;
    pid_t pid, strays[STRAYS];
    int before, after;

    gate_open(&gate);
    host = begin_host(child_notify_wait, gate.path);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    before = descriptors_of(host, &gate);
    for (int i = 0; i < STRAYS; i++) {
        struct fiber_process *p = begin_in(host, NULL, NULL, stray);

        assert_int_equal(ended(p), 125);
        assert_true(has(fiber_process_report(p), "exited with code 3 before it joined", NULL));
        strays[i] = atoi(strstr(fiber_process_report(p), "stray ") + 6);
        assert_true(strays[i] > 1);
        fiber_process_close(p);
    }
    after = descriptors_of(host, &gate);
    for (int i = 0; i < STRAYS; i++)
        assert_int_equal(kill(strays[i], SIGKILL), 0);
    assert_int_equal(after, before);
    fiber_process_kill(host);
    assert_int_equal(finish(host), -SIGKILL);
    gate_close(&gate);
}

/* ---- Killed while they start ---- */

struct one {
    struct fiber_process *process;
    bool killed;
};

static int kill_the_rest(void *crowd)
{
    struct one *one = crowd;

    for (int i = 0; i < CROWD; i++)
        if (!fbr_process_is_joined(one[i].process->state)) {
            one[i].killed = true;
            fbr_job_signal(one[i].process, SIGKILL);
        }
    return 0;
}

/* Its host may have said long ago that it is gone, and that nothing more comes of it. */
static void test_who_was_killed_before_it_joined_does_not_join(void **state)
{
    static struct one crowd[CROWD];
    struct fiber_process *host;
    struct gate gate;
    pid_t pid;

    gate_open(&gate);
    host = begin_host(child_notify_wait, gate.path);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    for (int i = 0; i < CROWD; i++) {
        struct fbr_process_spec spec = {
            .fn = child_wait, .options = OPTIONS(.start_timeout_ms = 0), .host = host};

        assert_int_equal(fbr_process_start(&crowd[i].process, &spec), 0);
    }
    for (int i = 0; i < CROWD / 4; i++)
        assert_int_equal(fiber_process_wait_joined(crowd[i].process, TEST_LONG_MS), 0);
    assert_int_equal(fbr_loop_call(fbr_rt()->loop, kill_the_rest, crowd), 0);
    for (int i = 0; i < CROWD; i++) {
        fiber_process_kill(crowd[i].process);
        assert_int_equal(ended(crowd[i].process), -SIGKILL);
        assert_false(crowd[i].killed && crowd[i].process->joined);
        fiber_process_close(crowd[i].process);
    }
    fiber_process_kill(host);
    assert_int_equal(finish(host), -SIGKILL);
    gate_close(&gate);
}

/* ---- A parent that is stopped ---- */

/* In a process of its own, whose output goes nowhere: a host, and a subjob that prints all the
 * time. */
static int play_flood(const char *path)
{
    static const char *const flood[] = {"yes", NULL};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct fiber_process *host;

    if (dup2(null, 1) < 0)
        return 1;
    host = begin_host(child_notify_wait, path);
    begin_in(host, NULL, NULL, flood);
    return fiber_process_join(host, -1);
}

static long resident_bytes(pid_t pid)
{
    char path[32], text[64];
    long all = 0, resident = 0;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    assert_true(fbr_fds_read_file(path, text, sizeof(text)) > 0);
    assert_int_equal(sscanf(text, "%ld %ld", &all, &resident), 2);
    return resident * sysconf(_SC_PAGESIZE);
}

static void test_a_host_keeps_little_for_a_parent_that_is_stopped(void **state)
{
    struct gate gate;
    pid_t parent, pid;
    int watched, status;
    long before;

    gate_open(&gate);
    parent = start_self("flood", gate.path, NULL, NULL);
    assert_int_equal(gate_wait(&gate, &pid, sizeof(pid)), 0);
    watched = pid_open(pid);
    let_time_pass(300); /* the subjob is printing */
    assert_int_equal(kill(parent, SIGSTOP), 0);
    before = resident_bytes(pid);
    let_time_pass(1000);
    assert_in_range(resident_bytes(pid), 0, (unsigned long)before + (32 << 20));
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(pids_gone(&watched, 1, TEST_LONG_MS), 0);
    gate_close(&gate);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_programs_of_a_killed_host_forked_goes_with_them),
        cmocka_unit_test(test_what_a_killed_host_had_no_time_to_tell_goes_with_it),
        cmocka_unit_test(test_what_never_joined_goes_with_a_host_that_lost_its_parent),
        cmocka_unit_test(test_who_is_no_host_is_given_no_process),
        cmocka_unit_test(test_programs_that_never_join_leave_no_descriptor_at_their_host),
        cmocka_unit_test(test_who_was_killed_before_it_joined_does_not_join),
        cmocka_unit_test(test_a_host_keeps_little_for_a_parent_that_is_stopped),
        cmocka_unit_test(test_processes_of_a_silent_host_end_with_it),
    };

    init_fiber(&argc, &argv);
    if (argc > 2 && strcmp(argv[1], "flood") == 0)
        return play_flood(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
