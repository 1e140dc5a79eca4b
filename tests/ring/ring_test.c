/* ring_test.c - rings as programs see them: ranks, output, failures and what is done about them.
 *
 * What a ring prints is looked at from outside: the test runs itself in the role of a launcher.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/pin/cgroup.h"
#include "tests/support/children.h"
#include "tests/support/files.h"
#include "tests/support/run.h"
#include "tests/support/sync.h"

#define RING(...) \
    (&(struct fiber_ring_options){.size = sizeof(struct fiber_ring_options), __VA_ARGS__})
#define SH(script)                    \
    (const char *const[])             \
    {                                 \
        "/bin/sh", "-c", script, NULL \
    }

/* ---- Roles ---- */

/* Runs argv[2] with sh in a ring; argv[3...]: -n N, -p per node, -f policy, -r restarts, -g grace,
 * -T limit, -x flags, -o directory, -b binding, -c processors per rank. */
static int launch(int argc, char **argv)
{
    struct fiber_ring_options o = {.size = sizeof(o)};
    int n = 2, code;

    for (int i = 3; i + 1 < argc; i += 2) {
        int v = atoi(argv[i + 1]);

        switch (argv[i][1]) {
        case 'n':
            n = v;
            break;
        case 'p':
            o.per_node = v;
            break;
        case 'f':
            o.on_failure = (enum fiber_ring_policy)v;
            break;
        case 'r':
            o.max_restarts = v;
            break;
        case 'g':
            o.grace_ms = v;
            break;
        case 'T':
            o.timeout_ms = v;
            break;
        case 'x':
            o.flags = (unsigned)v;
            break;
        case 'o':
            o.output_dir = argv[i + 1];
            break;
        case 'b':
            o.bind_to = argv[i + 1];
            break;
        case 'c':
            o.cpus_per_rank = v;
            break;
        }
    }
    o.flags |= FIBER_RING_OVERSUBSCRIBE;
    o.job.command = SH(argv[2]);
    code = fiber_ring_run(n, NULL, NULL, 0, &o);
    if (code < 0)
        fprintf(stderr, "%s\n", fiber_last_error());
    return code < 0 ? 126 : code;
}

/* A ring of `script`, with these options; the list ends with NULL. */
static struct ran ring(const char *script, ...)
{
    const char *argv[32] = {"/proc/self/exe", "launch", script};
    char self[512];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int n = 3;
    va_list ap;

    assert_true(len > 0);
    self[len] = '\0';
    argv[0] = self;
    va_start(ap, script);
    while ((argv[n] = va_arg(ap, const char *)))
        n++;
    va_end(ap);
    return run_program(argv, NULL, NULL);
}

/* ---- Ranks that run a function ---- */

struct order {
    char gate[96];
    int value;
};

static int report_rank(int rank, int size, const void *arg, size_t len)
{
    const struct order *o = arg;
    int told[3] = {rank, size, o->value};

    if ((uintptr_t)arg % 8 || len != sizeof(*o))
        return 9;
    return gate_notify(o->gate, told, sizeof(told)) < 0;
}

static void test_ranks_run_a_function_with_its_argument(void **state)
{
    struct order o = {.value = 42};
    int told[3], seen = 0;
    struct fiber_ring *r;
    struct gate g;
    int code = -1;

    gate_open(&g);
    snprintf(o.gate, sizeof(o.gate), "%s", g.path);
    assert_int_equal(fiber_ring_start(&r, 3, report_rank, &o, sizeof(o),
                                      RING(.flags = FIBER_RING_OVERSUBSCRIBE)),
                     0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gate_wait(&g, told, sizeof(told)), 0);
        assert_int_equal(told[1], 3);
        assert_int_equal(told[2], 42);
        seen |= 1 << told[0];
    }
    assert_int_equal(seen, 7);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 0);
    assert_string_equal(fiber_ring_report(r), "");
    fiber_ring_close(r);
    gate_close(&g);
}

static int fail_with_rank(int rank, int size, const void *arg, size_t len)
{
    return rank == 1 ? 33 : 0;
}

static void test_the_code_of_the_first_failure_is_the_rings(void **state)
{
    assert_int_equal(fiber_ring_run(2, fail_with_rank, NULL, 0, RING(.flags = FIBER_RING_QUIET)),
                     33);
}

/* ---- Looking and stopping ---- */

/* News of the start comes from the agent, and may come after the rank has told its gate. */
static void stats_of_running(struct fiber_ring *r, struct fiber_rank_stats *s, int n)
{
    for (int i = 0; i < n;) {
        assert_int_equal(fiber_ring_stats(r, s, n), n);
        assert_true(s[i].state < 2);
        if (s[i].state == 1)
            i++;
    }
}

static void test_stats_and_the_sentinel(void **state)
{
    struct pollfd p = {.events = POLLIN};
    struct fiber_rank_stats s[4];
    struct fiber_ring *r;
    struct gate g;
    char script[200], byte;
    int code;

    gate_open(&g);
    snprintf(script, sizeof(script), "printf x >%s; exec sleep 1000", g.path);
    assert_int_equal(
        fiber_ring_start(&r, 2, NULL, NULL, 0,
                         RING(.job.command = SH(script), .flags = FIBER_RING_OVERSUBSCRIBE)),
        0);
    assert_int_equal(fiber_ring_exitcode(r, &code), -EAGAIN);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gate_wait(&g, &byte, 1), 0);
    stats_of_running(r, s, 2);
    assert_int_equal(fiber_ring_stats(r, s, 4), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s[i].rank, i);
        assert_int_equal(s[i].state, 1);
        assert_true(s[i].pid > 1 && s[i].host[0]);
        assert_int_equal(kill((pid_t)s[i].pid, 0), 0);
    }
    p.fd = fiber_ring_sentinel(r);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(fiber_ring_wait(r, 0), -ETIMEDOUT);
    assert_int_equal(fiber_ring_stop(r), 0);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 128 + SIGTERM);
    fiber_ring_close(r);
    gate_close(&g);
}

static void test_close_ends_what_runs(void **state)
{
    struct fiber_rank_stats s[3];
    struct fiber_ring *r;
    struct gate g;
    char script[200], byte;
    int fds[3];

    gate_open(&g);
    snprintf(script, sizeof(script), "trap '' TERM; printf x >%s; while :; do sleep 1000; done",
             g.path);
    assert_int_equal(
        fiber_ring_start(&r, 3, NULL, NULL, 0,
                         RING(.job.command = SH(script), .flags = FIBER_RING_OVERSUBSCRIBE)),
        0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gate_wait(&g, &byte, 1), 0);
    stats_of_running(r, s, 3);
    for (int i = 0; i < 3; i++)
        fds[i] = pid_open((pid_t)s[i].pid);
    fiber_ring_close(r);
    assert_int_equal(pids_gone(fds, 3, TEST_LONG_MS), 0);
    gate_close(&g);
}

static void test_signals_reach_every_rank(void **state)
{
    struct fiber_ring *r;
    struct gate g;
    char script[300], byte;
    int code;

    gate_open(&g);
    snprintf(script, sizeof(script),
             "trap 'exit 0' USR1; printf x >%s; while :; do sleep 0.05; done", g.path);
    assert_int_equal(
        fiber_ring_start(&r, 2, NULL, NULL, 0,
                         RING(.job.command = SH(script), .flags = FIBER_RING_OVERSUBSCRIBE)),
        0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gate_wait(&g, &byte, 1), 0);
    assert_int_equal(fiber_ring_signal(r, 0), -EINVAL);
    assert_int_equal(fiber_ring_signal(r, SIGUSR1), 0);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    fiber_ring_close(r);
    gate_close(&g);
}

/* The others have a handler for it that would end the ring with another code. */
static void test_a_signal_to_one_rank_reaches_no_other(void **state)
{
    struct fiber_rank_stats s[3];
    struct fiber_ring *r;
    struct gate g, next;
    char script[500], byte;
    int code;

    gate_open(&g);
    gate_open(&next);
    snprintf(script, sizeof(script),
             "trap 'printf $FIBER_RANK >%s; exit $((FIBER_RANK == 1 ? 0 : 7))' USR1; "
             "trap 'exit 0' USR2; printf x >%s; while :; do sleep 0.05; done",
             next.path, g.path);
    assert_int_equal(
        fiber_ring_start(&r, 3, NULL, NULL, 0,
                         RING(.job.command = SH(script), .flags = FIBER_RING_OVERSUBSCRIBE)),
        0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gate_wait(&g, &byte, 1), 0);
    stats_of_running(r, s, 3);
    assert_int_equal(fiber_ring_signal_rank(r, 3, SIGUSR1), -ESRCH);
    assert_true(has(fiber_last_error(), "no rank 3", NULL));
    assert_int_equal(fiber_ring_signal_rank(r, -1, SIGUSR1), -ESRCH); /* -1 is not all */
    assert_int_equal(fiber_ring_signal_rank(r, 1, 0), -EINVAL);
    assert_int_equal(fiber_ring_signal_rank(r, 1, SIGUSR1), 0);
    assert_int_equal(gate_wait(&next, &byte, 1), 0);
    assert_int_equal(byte, '1');
    assert_int_equal(fiber_ring_signal(r, SIGUSR2), 0);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 0);
    assert_int_equal(fiber_ring_signal_rank(r, 0, SIGUSR1), -ESRCH);
    fiber_ring_close(r);
    gate_close(&next);
    gate_close(&g);
}

/* ---- Output ---- */

static int count(const char *text, const char *word)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void test_lines_are_whole_and_tagged(void **state)
{
    struct ran ran =
        ring("i=0; while [ $i -lt 2000 ]; do printf 'line %s of ' $i; echo rank; i=$((i+1)); done; "
             "echo news >&2",
             "-n", "3", "-x", "1", NULL);
    int lines[3] = {0};
    char *save = NULL;

    assert_int_equal(ran.code, 0);
    assert_int_equal(count(ran.err, "news\n"), 3);
    for (char *line = strtok_r(ran.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int rank, number, end = 0;

        assert_int_equal(sscanf(line, "[%d] line %d of rank%n", &rank, &number, &end), 2);
        assert_int_equal(line[end], '\0');
        assert_int_equal(number, lines[rank]); /* in order */
        lines[rank]++;
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(lines[i], 2000);
    ran_free(&ran);
}

static void test_an_end_without_newline_and_binary_bytes(void **state)
{
    struct ran ran = ring("printf 'a\\000b\\377'", "-n", "1", NULL);

    assert_int_equal(ran.code, 0);
    assert_int_equal(ran.out_len, 4);
    assert_memory_equal(ran.out, "a\0b\377", 4);
    ran_free(&ran);
}

static void test_ranks_that_share_processors_share_threads_of_openmp(void **state)
{
    const char *say = "echo ${OMP_NUM_THREADS-unset}";
    struct fbr_cgroup limits;
    unsigned cpus, threads;
    struct ran ran;

    fbr_cgroup_read(&limits);
    cpus = fbr_cgroup_cpus(&limits);
    unsetenv("OMP_NUM_THREADS");
    for (unsigned agents = 1; agents <= 2; agents++) {
        ran = ring(say, "-n", "2", "-b", "none", "-p", agents == 1 ? "2" : "1", NULL);
        assert_int_equal(sscanf(ran.out, "%u", &threads), 1);
        assert_int_equal(threads, cpus > 2 ? cpus / 2 : 1);
        ran_free(&ran);
    }
    ran = ring(say, "-n", "2", "-b", "none", "-c", "3", NULL);
    assert_string_equal(ran.out, "3\n3\n");
    ran_free(&ran);
    ran = ring(say, "-n", "1", NULL);
    if (fbr_cgroup_floats(&limits))
        assert_int_equal(atoi(ran.out), (int)cpus);
    else /* alone on its processors: it counts them itself */
        assert_string_equal(ran.out, "unset\n");
    ran_free(&ran);
    setenv("OMP_NUM_THREADS", "5", 1);
    ran = ring(say, "-n", "2", "-b", "none", "-c", "3", NULL);
    assert_string_equal(ran.out, "5\n5\n"); /* what the user has set stays */
    ran_free(&ran);
    unsetenv("OMP_NUM_THREADS");
}

static void test_each_rank_has_its_files(void **state)
{
    char dir[64], path[100], text[32] = "";
    struct ran ran;
    FILE *f;

    temp_dir_make(dir);
    ran = ring("echo out $FIBER_RANK; echo err $FIBER_RANK >&2", "-n", "2", "-o", dir, NULL);
    assert_int_equal(ran.code, 0);
    snprintf(path, sizeof(path), "%s/latest/1.err", dir);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    assert_string_equal(text, "err 1\n");
    assert_int_equal(dir_count(dir, ""), 2);
    snprintf(path, sizeof(path), "%s/latest/", dir);
    assert_int_equal(dir_count(path, ""), 4);
    ran_free(&ran);
    temp_dir_remove(dir);
}

/* The end of a ring has a report; the wait for its output may find that there is another one. */
static void test_a_report_is_valid_until_the_close(void **state)
{
    char dir[64], path[100];
    struct fiber_ring *r;
    const char *report;
    struct pollfd p = {.events = POLLIN};

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/0", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%%t", dir);
    assert_int_equal(fiber_ring_start(&r, 1, NULL, NULL, 0,
                                      RING(.job.command = SH("echo lost"), .output_dir = path,
                                           .flags = FIBER_RING_QUIET)),
                     0);
    p.fd = fiber_ring_sentinel(r);
    assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
    report = fiber_ring_report(r);
    assert_string_equal(report, "");
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_string_equal(report, "");
    assert_true(has(fiber_ring_report(r), "some output of the ranks is lost", NULL));
    fiber_ring_close(r);
    temp_dir_remove(dir);
}

/* The reader of the first ring's file goes away; the next ring has a file of its own. */
static void test_a_ring_is_not_blamed_for_lost_output_of_another(void **state)
{
    char dir[64], path[100], go[100], script[200];
    struct pollfd reader = {.events = POLLIN};
    struct fiber_ring *r;
    int code, gate;

    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/0", dir);
    snprintf(go, sizeof(go), "%s/go", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mkfifo(go, 0600), 0);
    reader.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    gate = open(go, O_RDWR | O_CLOEXEC);
    assert_true(reader.fd >= 0 && gate >= 0);
    snprintf(script, sizeof(script), "echo one; read x <%s; echo two", go);
    snprintf(path, sizeof(path), "%s/%%t", dir);
    assert_int_equal(fiber_ring_start(&r, 1, NULL, NULL, 0,
                                      RING(.job.command = SH(script), .output_dir = path,
                                           .flags = FIBER_RING_QUIET)),
                     0);
    assert_int_equal(poll(&reader, 1, TEST_LONG_MS), 1);
    close(reader.fd);
    assert_int_equal(write(gate, "\n", 1), 1);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 1);
    assert_true(has(fiber_ring_report(r), "output of the ranks is lost", "Broken pipe", NULL));
    fiber_ring_close(r);
    close(gate);
    snprintf(path, sizeof(path), "%s/next-%%t", dir);
    assert_int_equal(
        fiber_ring_run(1, NULL, NULL, 0, RING(.job.command = SH("echo three"), .output_dir = path)),
        0);
    temp_dir_remove(dir);
}

static void test_a_rank_that_closes_its_output_runs_on(void **state)
{
    struct ran ran = ring("exec >&- 2>&-; sleep 0.05; exit 5", "-n", "2", NULL);

    assert_int_equal(ran.code, 5);
    ran_free(&ran);
}

/* ---- Failures ---- */

static void test_a_signal_is_128_more_and_says_who_and_why(void **state)
{
    struct ran ran =
        ring("[ $FIBER_RANK = 1 ] && { echo last words; kill -9 $$; }; exec sleep 1000", "-n", "3",
             NULL);

    assert_int_equal(ran.code, 137);
    assert_true(has(ran.err, "rank 1 (pid", "was killed by signal 9 (Killed)",
                    "its last lines:", "    last words", NULL));
    assert_int_equal(count(ran.err, "was killed"), 1); /* the first cause only */
    ran_free(&ran);
}

static void test_a_rank_that_ignores_the_notice_is_killed_after_grace(void **state)
{
    struct ran ran =
        ring("trap '' TERM; [ $FIBER_RANK = 0 ] && exit 4; while :; do sleep 1000; done", "-n", "2",
             "-g", "100", NULL);

    assert_int_equal(ran.code, 4);
    ran_free(&ran);
}

static void test_a_program_that_is_not_there(void **state)
{
    const char *const command[] = {"no-such-program", NULL};
    struct fiber_ring *r;
    int code;

    assert_int_equal(fiber_ring_start(&r, 4, NULL, NULL, 0, RING(.job.command = command)), 0);
    assert_int_equal(fiber_ring_wait(r, TEST_LONG_MS), 0);
    assert_int_equal(fiber_ring_exitcode(r, &code), 0);
    assert_int_equal(code, 125);
    assert_true(has(fiber_ring_report(r), "could not be started",
                    "no program 'no-such-program' in PATH", NULL));
    fiber_ring_close(r);
}

static void test_the_time_limit(void **state)
{
    struct ran ran = ring("exec sleep 1000", "-T", "200", NULL);

    assert_int_equal(ran.code, 124);
    assert_true(has(ran.err, "the time limit of 0.2 s is over", NULL));
    ran_free(&ran);
}

static void test_the_time_limit_ends_a_ring_that_is_about_to_restart(void **state)
{
    struct ran ran = ring("[ $FIBER_EPOCH = 0 ] && [ $FIBER_RANK = 1 ] && exit 7; "
                          "trap '' TERM; exec sleep 1000",
                          "-f", "1", "-g", "2000", "-T", "1000", NULL);

    assert_int_equal(ran.code, 124);
    assert_true(has(ran.err, "the time limit of 1 s is over", NULL));
    ran_free(&ran);
}

static void test_restart_begins_a_new_epoch_and_tells_what_was(void **state)
{
    struct ran ran = ring("[ $FIBER_EPOCH = 0 ] && [ $FIBER_RANK = 1 ] && exit 7; [ $FIBER_EPOCH = "
                          "0 ] && exec sleep 1000; "
                          "echo rank $FIBER_RANK epoch $FIBER_EPOCH: $FIBER_LAST_FAILURE",
                          "-n", "2", "-f", "1", NULL);

    assert_int_equal(ran.code, 0);
    assert_true(has(ran.out, "rank 0 epoch 1: rank 1 (pid", "rank 1 epoch 1: rank 1 (pid",
                    "exited with code 7", NULL));
    assert_true(has(ran.err, "starting all ranks again (1 of 3)", NULL));
    ran_free(&ran);
}

static void test_a_restart_keeps_the_name_of_the_run_and_not_that_of_the_job(void **state)
{
    struct ran ran = ring("echo $TORCHELASTIC_RUN_ID $FIBER_JOB; exit $((9 - 9 * FIBER_EPOCH))",
                          "-n", "1", "-f", "1", NULL);
    char run[2][64], job[2][64];

    assert_int_equal(ran.code, 0);
    assert_int_equal(sscanf(ran.out, "%63s %63s %63s %63s", run[0], job[0], run[1], job[1]), 4);
    assert_string_equal(run[0], run[1]);
    assert_string_not_equal(job[0], job[1]);
    ran_free(&ran);
}

static void test_restarts_come_to_an_end(void **state)
{
    struct ran ran = ring("exit 3", "-n", "2", "-f", "1", "-r", "2", NULL);

    assert_int_equal(ran.code, 3);
    assert_int_equal(count(ran.err, "starting all ranks again"), 2);
    ran_free(&ran);
}

/* Where agents are said to have been taken away: it happens more often than failures may, and is not a failure. */
static void test_what_the_cluster_takes_away_counts_apart(void **state)
{
    static const char script[] =
        "[ $FIBER_RANK = 1 ] && [ $FIBER_EPOCH -lt 3 ] && { kill -9 $PPID; exec sleep 1000; }; "
        "[ $FIBER_EPOCH -lt 3 ] && exec sleep 1000; [ $FIBER_EPOCH -lt 4 ] && exit 7; "
        "[ $FIBER_RANK = 1 ] && exit 8; exec sleep 1000";
    struct ran ran;

    setenv("FIBER_BACKEND", "mock", 1);
    setenv("FIBER_MOCK", "evicted", 1);
    ran = ring(script, "-n", "2", "-p", "1", "-f", "1", "-r", "1", NULL);
    unsetenv("FIBER_BACKEND");
    unsetenv("FIBER_MOCK");
    assert_int_equal(ran.code, 8);
    assert_int_equal(count(ran.err, "starting all ranks again"), 4);
    assert_true(has(ran.err, "again (1 of 100 after disruptions by the cluster)",
                    "again (3 of 100 after disruptions by the cluster)", "again (1 of 1)",
                    "It was started again once, as often as --max-restarts allows, and 3 "
                    "times after disruptions by the cluster",
                    NULL));
    ran_free(&ran);
}

/* Has agents started by a script, whose starts from the second on fail as long as `fails` holds. */
static struct ran restart_by(const char *dir, const char *fails, const char *limit_ms)
{
    char text[512];
    struct ran ran;

    snprintf(text, sizeof(text),
             "#!/bin/sh\ndate +%%s%%N >>\"$0.times\"\nn=$(wc -l <\"$0.times\")\n"
             "[ $n %s ] && exit 1\nshift\nexec \"$@\"\n",
             fails);
    file_make(path_in(dir, "start"), text, strlen(text), 0700);
    snprintf(text, sizeof(text), "%s/start {host}", dir);
    setenv("FIBER_BACKEND", "command", 1);
    setenv("FIBER_COMMAND_START", text, 1);
    setenv("FIBER_COMMAND_HOSTS", "127.0.0.1", 1);
    ran = ring("[ $FIBER_EPOCH = 0 ] || exit 0; kill -9 $PPID; exec sleep 1000", "-n", "1", "-f",
               "1", "-r", "9", "-T", limit_ms, NULL);
    unsetenv("FIBER_BACKEND");
    unsetenv("FIBER_COMMAND_START");
    unsetenv("FIBER_COMMAND_HOSTS");
    return ran;
}

/* When agents were started, in nanoseconds; returns how many were. */
static int start_times(const char *dir, long long times[10])
{
    FILE *f = fopen(path_in(dir, "start.times"), "re");
    int n = 0;

    assert_non_null(f);
    while (n < 10 && fscanf(f, "%lld", &times[n]) == 1)
        n++;
    fclose(f);
    return n;
}

/* As while a host starts again: the first agent is killed, and the next one cannot be started. */
static void test_a_ring_waits_before_it_tries_a_failed_start_again(void **state)
{
    long long times[10];
    char dir[64];
    struct ran ran;

    temp_dir_make(dir);
    ran = restart_by(dir, "= 2", "0");
    assert_int_equal(ran.code, 0);
    assert_true(has(ran.err, "starting all ranks again (2 of 9)", NULL));
    assert_int_equal(start_times(dir, times), 3);
    assert_true(times[2] - times[1] >= 1000000000);
    temp_dir_remove(dir);
    ran_free(&ran);
}

/* It waits for 4 s by then. */
static void test_the_time_limit_ends_a_ring_that_waits_to_start_again(void **state)
{
    long long times[10];
    struct timespec now;
    char dir[64];
    struct ran ran;
    int n;

    temp_dir_make(dir);
    ran = restart_by(dir, "-ge 2", "4500");
    clock_gettime(CLOCK_REALTIME, &now);
    assert_int_equal(ran.code, 124);
    n = start_times(dir, times);
    assert_true(n >= 2);
    assert_true(now.tv_sec * 1000000000 + now.tv_nsec - times[n - 1] < 1000000000LL << (n - 2));
    temp_dir_remove(dir);
    ran_free(&ran);
}

/* One of two nodes has its place, the other one gets none: two such rings would wait for each other for ever. */
static void test_half_a_ring_gives_its_places_back(void **state)
{
    struct ran ran;

    setenv("FIBER_BACKEND", "mock", 1);
    setenv("FIBER_MOCK", "agent-2:slow_start=86400000", 1);
    setenv("FIBER_GANG_TIMEOUT", "200ms", 1);
    ran = ring("echo ran", "-n", "2", "-p", "1", NULL);
    unsetenv("FIBER_BACKEND");
    unsetenv("FIBER_MOCK");
    unsetenv("FIBER_GANG_TIMEOUT");
    assert_int_equal(ran.code, 125);
    assert_int_equal(count(ran.out, "ran"), 0);
    assert_true(has(ran.err, "1 of the ring's 2 nodes have joined, and 1 got no place within 0.2 s",
                    "all are released: ", NULL));
    ran_free(&ran);
}

/* The others end once their agent has seen the death of rank 1: nobody has its number any more. */
static void test_shrink_goes_on_without(void **state)
{
    char dir[64], script[400];
    struct ran ran;

    temp_dir_make(dir);
    snprintf(script, sizeof(script),
             "cd %s; [ $FIBER_RANK = 1 ] && { echo $$ >new; mv new one; kill -9 $$; }; "
             "while [ ! -e one ] || kill -0 $(cat one) 2>&-; do sleep 0.02; done; "
             "echo survived $FIBER_RANK",
             dir);
    ran = ring(script, "-n", "3", "-f", "2", NULL);
    assert_int_equal(ran.code, 0);
    assert_int_equal(count(ran.out, "survived"), 2);
    assert_true(has(ran.err, "the others go on (2 of 3)", NULL));
    ran_free(&ran);
    temp_dir_remove(dir);
}

static void test_shrink_to_nothing_is_a_failure(void **state)
{
    struct ran ran = ring("exit 6", "-n", "3", "-f", "2", NULL);

    assert_int_equal(ran.code, 6);
    assert_true(has(ran.err, "the others go on (1 of 3)", "it was the last one", NULL));
    assert_int_equal(count(ran.err, "(0 of 3)"), 0); /* no others go on when there are none */
    ran_free(&ran);
}

static void test_replace_starts_the_rank_anew(void **state)
{
    struct ran ran = ring("[ $FIBER_RANK = 1 ] && [ -z \"$FIBER_RANK_RESTARTS\" ] && kill -9 $$; "
                          "echo here $FIBER_RANK after ${FIBER_RANK_RESTARTS:-0}",
                          "-n", "3", "-f", "3", NULL);

    assert_int_equal(ran.code, 0);
    assert_true(has(ran.out, "here 0 after 0", "here 1 after 1", "here 2 after 0", NULL));
    ran_free(&ran);
}

/* Rank 0 ends well at its second try, and only then rank 1, the last one, is lost for good. */
static void test_a_rank_that_was_replaced_may_end_well(void **state)
{
    char dir[64], script[400];
    struct ran ran;

    temp_dir_make(dir);
    snprintf(script, sizeof(script),
             "cd %s; if [ $FIBER_RANK = 0 ]; then [ -n \"$FIBER_RANK_RESTARTS\" ] || exit 3; "
             "echo $$ >new; mv new one; exit 0; fi; "
             "while [ ! -e one ] || kill -0 $(cat one) 2>&-; do sleep 0.02; done; exit 4",
             dir);
    ran = ring(script, "-n", "2", "-f", "3", "-r", "1", NULL);
    assert_int_equal(ran.code, 0);
    assert_true(has(ran.err, "the others had already ended with code 0", NULL));
    ran_free(&ran);
    temp_dir_remove(dir);
}

/* Rank 1 kills itself, then its agent, which is the parent of its process, then itself again: it is
 * told how often it was started again, by whichever agent. The new agent has a directory for shared
 * memory, without the files that ranks of the old one left in theirs. */
static void test_replace_starts_a_lost_agent_anew(void **state)
{
    struct ran ran = ring("case $FIBER_RANK.${FIBER_RANK_RESTARTS:-0} in "
                          "1.0 | 1.2) kill -9 $$ ;; "
                          "1.1) >\"$UCX_POSIX_DIR/left\"; kill -9 $PPID; exec sleep 1000 ;; "
                          "esac; echo here $FIBER_RANK after ${FIBER_RANK_RESTARTS:-0}; "
                          "[ -d \"$UCX_POSIX_DIR\" -a ! -e \"$UCX_POSIX_DIR/left\" ] && echo empty",
                          "-n", "2", "-p", "1", "-f", "3", NULL);

    assert_int_equal(ran.code, 0);
    assert_int_equal(count(ran.out, "here 1"), 1);
    assert_int_equal(count(ran.out, "here 1 after 3\n"), 1);
    assert_int_equal(count(ran.out, "here 0 after 0\n"), 1);
    assert_int_equal(count(ran.out, "empty\n"), 2);
    assert_true(has(ran.err, "it is replaced (1 of 3)", "its ranks are replaced (1 of 3)",
                    "it is replaced (3 of 3)", NULL));
    ran_free(&ran);
}

/* Nothing is said of the host of the agent before it: the new one may have been meant for another. */
static void test_an_agent_that_does_not_start_again_has_no_host(void **state)
{
    struct ran ran;

    setenv("FIBER_BACKEND", "mock", 1);
    setenv("FIBER_MOCK", "agent-2:fails_later", 1);
    ran = ring("[ $FIBER_EPOCH = 0 ] || exit 0; kill -9 $PPID; exec sleep 1000", "-f", "1", NULL);
    unsetenv("FIBER_BACKEND");
    unsetenv("FIBER_MOCK");
    assert_int_equal(ran.code, 0);
    assert_int_equal(count(ran.err, "the agent on "), 1);
    assert_true(
        has(ran.err, "an agent could not be started: agent-2: the mock", "again (2 of 3)", NULL));
    ran_free(&ran);
}

/* The ranks send an ADD, as the TCPStore of torch before 2.1 does, and die after its answer. */
static void test_replace_warns_of_a_store_that_was_used(void **state)
{
    struct ran ran = ring("[ -z \"$FIBER_RANK_RESTARTS\" ] || exit 0; exec bash -c '"
                          "exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; "
                          "printf \"\\3\\1\\0\\0\\0\\0\\0\\0\\0k"
                          "\\1\\0\\0\\0\\0\\0\\0\\0\" >&3; "
                          "head -c 8 <&3 >/dev/null && kill -9 $$'",
                          "-n", "2", "-f", "3", NULL);

    assert_int_equal(ran.code, 0);
    assert_int_equal(count(ran.err, "it is replaced (1 of 3)"), 2);
    assert_int_equal(count(ran.err, "if the ranks have called init_process_group() already"), 1);
    ran_free(&ran);
}

/* One ring after the other, until the program ends. */
static void *run_rings(void *command)
{
    struct fiber_ring_options *o = RING(.job.command = SH(command), .flags = FIBER_RING_QUIET);
    int rc;

    do
        rc = fiber_ring_run(2, NULL, NULL, 0, o);
    while (rc != -ESHUTDOWN);
    return NULL;
}

/* Ends it while two threads run rings, wait for them and close them. */
static int end_among_rings(void)
{
    char command[160], told[4];
    pthread_t threads[2];
    struct gate gate;

    gate_open(&gate);
    snprintf(command, sizeof(command), "echo 1 >%s; exec sleep 1000", gate.path);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run_rings, command) != 0)
            return 1;
    if (gate_wait(&gate, told, sizeof(told)) < 0) /* two ranks run */
        return 2;
    fiber_fini();
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    gate_close(&gate);
    return children_active(NULL) == 0 ? 7 : 3;
}

static void test_the_program_may_end_while_threads_run_rings(void **state)
{
    for (int i = 0; i < 5; i++) {
        struct ran ran = run_self("end", NULL, NULL);

        if (ran.code != 7)
            fail_msg("ended with %d:\n%s%s", ran.code, ran.out, ran.err);
        ran_free(&ran);
    }
}

static void test_two_rings_and_several_agents_at_once(void **state)
{
    struct fiber_ring *r[3];
    int code;

    for (int i = 0; i < 3; i++)
        assert_int_equal(
            fiber_ring_start(&r[i], 4, NULL, NULL, 0,
                             RING(.job.command = SH("test -d \"$UCX_POSIX_DIR\""),
                                  .per_node = i ? 2 : 1, .flags = FIBER_RING_OVERSUBSCRIBE)),
            0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fiber_ring_wait(r[i], TEST_LONG_MS), 0);
        assert_int_equal(fiber_ring_exitcode(r[i], &code), 0);
        assert_int_equal(code, 0);
        fiber_ring_close(r[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_run_a_function_with_its_argument),
        cmocka_unit_test(test_the_code_of_the_first_failure_is_the_rings),
        cmocka_unit_test(test_stats_and_the_sentinel),
        cmocka_unit_test(test_close_ends_what_runs),
        cmocka_unit_test(test_signals_reach_every_rank),
        cmocka_unit_test(test_a_signal_to_one_rank_reaches_no_other),
        cmocka_unit_test(test_lines_are_whole_and_tagged),
        cmocka_unit_test(test_an_end_without_newline_and_binary_bytes),
        cmocka_unit_test(test_ranks_that_share_processors_share_threads_of_openmp),
        cmocka_unit_test(test_each_rank_has_its_files),
        cmocka_unit_test(test_a_report_is_valid_until_the_close),
        cmocka_unit_test(test_a_ring_is_not_blamed_for_lost_output_of_another),
        cmocka_unit_test(test_a_rank_that_closes_its_output_runs_on),
        cmocka_unit_test(test_a_signal_is_128_more_and_says_who_and_why),
        cmocka_unit_test(test_a_rank_that_ignores_the_notice_is_killed_after_grace),
        cmocka_unit_test(test_a_program_that_is_not_there),
        cmocka_unit_test(test_the_time_limit),
        cmocka_unit_test(test_the_time_limit_ends_a_ring_that_is_about_to_restart),
        cmocka_unit_test(test_restart_begins_a_new_epoch_and_tells_what_was),
        cmocka_unit_test(test_a_restart_keeps_the_name_of_the_run_and_not_that_of_the_job),
        cmocka_unit_test(test_restarts_come_to_an_end),
        cmocka_unit_test(test_a_ring_waits_before_it_tries_a_failed_start_again),
        cmocka_unit_test(test_the_time_limit_ends_a_ring_that_waits_to_start_again),
        cmocka_unit_test(test_what_the_cluster_takes_away_counts_apart),
        cmocka_unit_test(test_half_a_ring_gives_its_places_back),
        cmocka_unit_test(test_shrink_goes_on_without),
        cmocka_unit_test(test_shrink_to_nothing_is_a_failure),
        cmocka_unit_test(test_replace_starts_the_rank_anew),
        cmocka_unit_test(test_a_rank_that_was_replaced_may_end_well),
        cmocka_unit_test(test_replace_starts_a_lost_agent_anew),
        cmocka_unit_test(test_an_agent_that_does_not_start_again_has_no_host),
        cmocka_unit_test(test_replace_warns_of_a_store_that_was_used),
        cmocka_unit_test(test_the_program_may_end_while_threads_run_rings),
        cmocka_unit_test(test_two_rings_and_several_agents_at_once),
    };

    init_fiber(&argc, &argv);
    if (argc > 2 && strcmp(argv[1], "launch") == 0)
        return launch(argc, argv);
    if (argc > 1 && strcmp(argv[1], "end") == 0)
        return end_among_rings();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
