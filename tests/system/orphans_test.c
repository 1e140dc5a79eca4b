/* orphans_test.c - when a master dies, by whatever, nothing of its run stays: no process, no
 * socket, no segment. Nobody's heartbeat is heard in time: what ends, ends because an end was seen.
 * Its entry in the registry goes with the next run or with `fiber ps`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"
#include "tests/support/sanitized.h"

#define BUSY 64
#define PARENTS 4 /* each with a child of its own */
#define OTHERS (3 + 2 * PARENTS + 2)
#define PROMISED_S 2 /* after SIGKILL of the master nothing of its run is left */
#define TRIES 3      /* of which the best counts: the promise is about the product alone */

static char base[64];     /* where runs make their directories */
static char registry[72]; /* where runs that have a door are found */

/* ---- What the children do: each tells its pid, and goes on for ever ---- */

static int be_busy(const void *gate, size_t len)
{
    pid_t me = getpid();

    if (nice(19) < 0) /* this thread: the others of the family have to start, too */
        return 1;
    if (gate_notify(gate, &me, sizeof(me)) < 0)
        return 1;
    for (;;)
        continue;
}

static int be_stopped(const void *gate, size_t len)
{
    pid_t me = getpid();

    if (gate_notify(gate, &me, sizeof(me)) < 0)
        return 1;
    raise(SIGSTOP);
    return child_wait(gate, len);
}

static int ignore_everything(const void *gate, size_t len)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_IGN);
    return be_busy(gate, len);
}

static int fork_and_wait(const void *gate, size_t len)
{
    fork();
    return child_notify_wait(gate, len);
}

static int be_a_parent(const void *gate, size_t len)
{
    begin(be_busy, gate, len, NULL);
    return child_notify_wait(gate, len);
}

static int fill(void *data, size_t len, void *user)
{
    memset(data, 1, len);
    return 0;
}

static int map_segment(const void *gate, size_t len)
{
    struct fiber_shared *s;

    return fiber_shared_open(&s, "table", 1 << 20, fill, NULL) < 0 ? 1
                                                                   : child_notify_wait(gate, len);
}

static void start_family(const char *gate)
{
    static const fiber_process_fn others[] = {be_stopped, ignore_everything, map_segment,
                                              fork_and_wait};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        begin_str(others[i], gate);
    for (int i = 0; i < PARENTS; i++)
        begin_str(be_a_parent, gate);
    for (int i = atoi(getenv("TEST_BUSY")); i > 0; i--)
        begin_str(be_busy, gate);
}

/* ---- Masters ---- */

static int play_family(const char *gate)
{
    start_family(gate);
    return child_wait(NULL, 0);
}

static int play_alone(const char *gate)
{
    int code = 0;

    finish(begin(child_return, &code, sizeof(code), NULL)); /* its sockets are there */
    return child_notify_wait(gate, strlen(gate) + 1);
}

static int play_short(const char *arg)
{
    int code = 0;

    return finish(begin(child_return, &code, sizeof(code), NULL));
}

/* In a way that it is told through standard input, once its children are there. */
static int play_ends(const char *gate)
{
    char how[16] = "";

    begin_str(child_notify_wait, gate);
    begin_str(be_a_parent, gate);
    if (read(0, how, sizeof(how) - 1) < 0)
        return 1;
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "abort") == 0) {
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    if (strcmp(how, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
    return 0;
}

static int rank(int rank, int size, const void *gate, size_t len)
{
    return len ? child_notify_wait(gate, len) : 0;
}

/* With a gate its rank stays, and without it ends. */
static int play_ring(const char *gate)
{
    const struct fiber_ring_options o = {.size = sizeof(o), .flags = FIBER_RING_OVERSUBSCRIBE};

    return fiber_ring_run(1, rank, gate, gate[0] ? strlen(gate) + 1 : 0, &o);
}

/* ---- Tests ---- */

static int set_up(void **state)
{
    temp_dir_make(base);
    setenv("FIBER_RUN_DIR", base, 1);
    return 0;
}

static int tear_down(void **state)
{
    unsetenv("FIBER_RUN_DIR");
    temp_dir_remove(base);
    return 0;
}

static char home[64];

static int set_up_registry(void **state)
{
    temp_dir_make(home);
    snprintf(registry, sizeof(registry), "%s/fiber", home);
    setenv("XDG_RUNTIME_DIR", home, 1);
    return set_up(state);
}

static int tear_down_registry(void **state)
{
    unsetenv("XDG_RUNTIME_DIR");
    temp_dir_remove(home);
    return tear_down(state);
}

/* The one run's name; fails when there is none. */
static void get_run_name(char name[64])
{
    DIR *d = opendir(base);
    struct dirent *e;

    name[0] = '\0';
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "fiber-", 6) == 0)
            snprintf(name, 64, "%.60s", e->d_name);
    closedir(d);
    assert_int_not_equal(strlen(name), 0);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns after how many seconds all processes were gone. */
static double expect_nothing_left_after(int sig, int busy)
{
    char name[64], count[24];
    const char *const env[] = {count, NULL};
    struct gate told;
    int all = busy + OTHERS, fds[BUSY + OTHERS];
    pid_t master, pids[BUSY + OTHERS];
    double start, took;

    gate_open(&told);
    snprintf(count, sizeof(count), "TEST_BUSY=%d", busy);
    master = start_self("family", told.path, env, NULL);
    for (int i = 0; i < all; i++) {
        assert_int_equal(gate_wait(&told, &pids[i], sizeof(pids[i])), 0);
        fds[i] = pid_open(pids[i]);
    }
    get_run_name(name);
    assert_int_equal(dir_count("/dev/shm", name), 1);
    start = now();
    kill(master, sig);
    /* A thread needs the processor to die, too: if we may, none stays behind all others of the machine. */
    for (int i = 0; i < all; i++)
        setpriority(PRIO_PROCESS, (id_t)pids[i], 0);
    assert_int_equal(waitpid(master, NULL, 0), master);
    assert_int_equal(pids_gone(fds, (size_t)all, TEST_LONG_MS), 0);
    took = now() - start;
    printf("           %d processes were gone after %.3f s\n", all, took);
    assert_int_equal(dir_count(base, ""), 0);
    assert_int_equal(dir_count("/dev/shm", name), 0);
    gate_close(&told);
    return took;
}

static void test_sigkill_of_the_master(void **state)
{
    double took = expect_nothing_left_after(SIGKILL, BUSY);

    for (int i = 1; i < TRIES && took > PROMISED_S && !SANITIZED; i++)
        took = expect_nothing_left_after(SIGKILL, BUSY);
    assert_true(took <= PROMISED_S || SANITIZED);
}

static void test_sigterm_of_the_master(void **state)
{
    expect_nothing_left_after(SIGTERM, 8);
}

static void test_sigint_of_the_master(void **state)
{
    expect_nothing_left_after(SIGINT, 8);
}

static void test_all_other_ways_to_end(void **state)
{
    static const char *const ways[] = {"return", "_exit", "abort", "exec"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        int pipes[2], old = dup(0), fds[3];
        struct gate told;
        pid_t master, pid;

        gate_open(&told);
        assert_int_equal(pipe(pipes), 0);
        dup2(pipes[0], 0);
        master = start_self("ends", told.path, NULL, NULL);
        dup2(old, 0);
        for (int n = 0; n < 3; n++) {
            assert_int_equal(gate_wait(&told, &pid, sizeof(pid)), 0);
            fds[n] = pid_open(pid);
        }
        assert_true(write(pipes[1], ways[i], strlen(ways[i])) > 0);
        assert_int_equal(waitpid(master, NULL, 0), master);
        assert_int_equal(pids_gone(fds, 3, TEST_LONG_MS), 0);
        if (dir_count(base, "") != 0)
            fail_msg("%s leaves something behind", ways[i]);
        close(pipes[0]);
        close(pipes[1]);
        close(old);
        gate_close(&told);
    }
}

static void test_what_nobody_could_remove_is_swept_by_the_next_run(void **state)
{
    char name[64], path[160];
    struct gate told;
    pid_t master;
    struct ran r;

    gate_open(&told);
    master = start_self("alone", told.path, NULL, NULL);
    assert_int_equal(gate_wait(&told, &master, sizeof(master)), 0);
    get_run_name(name);
    snprintf(path, sizeof(path), "%s/%s", base, name);
    r = run_self("short", "", NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
    assert_int_equal(access(path, F_OK), 0); /* it lives, and is left alone */
    kill(master, SIGKILL);
    assert_int_equal(waitpid(master, NULL, 0), master);
    assert_int_equal(access(path, F_OK), 0); /* it had no children */
    r = run_self("short", "", NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
    assert_int_equal(dir_count(base, ""), 0);
    gate_close(&told);
}

/* Directories of runs, which have names of 16 hexadecimal digits. */
static int count_entries(void)
{
    DIR *d = opendir(registry);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += strspn(e->d_name, "0123456789abcdef") == 16 && !e->d_name[16];
    closedir(d);
    return n;
}

/* Its entry stays, as nobody is left who could remove it. */
static void leave_an_entry(void)
{
    struct gate told;
    pid_t master, child;
    int fd;

    gate_open(&told);
    master = start_self("ring", told.path, NULL, NULL);
    assert_int_equal(gate_wait(&told, &child, sizeof(child)), 0);
    fd = pid_open(child);
    kill(master, SIGKILL);
    assert_int_equal(waitpid(master, NULL, 0), master);
    assert_int_equal(pids_gone(&fd, 1, TEST_LONG_MS), 0);
    assert_int_equal(count_entries(), 1);
    gate_close(&told);
}

static void test_a_registry_entry_goes_with_the_next_run(void **state)
{
    struct ran r;

    leave_an_entry();
    r = run_self("ring", "", NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
    assert_int_equal(count_entries(), 0);
}

static void test_a_registry_entry_goes_with_fiber_ps(void **state)
{
    char fiber[512];
    struct ran r;

    snprintf(fiber, sizeof(fiber), "%.400s/cli/fiber", getenv("TEST_BINARY_DIR"));
    leave_an_entry();
    r = run_program((const char *const[]){fiber, "ps", NULL}, NULL, NULL);
    assert_int_equal(r.code, 0);
    ran_free(&r);
    assert_int_equal(count_entries(), 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*play)(const char *arg);
    } roles[] = {{"family", play_family},
                 {"alone", play_alone},
                 {"ends", play_ends},
                 {"short", play_short},
                 {"ring", play_ring}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sigkill_of_the_master, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sigterm_of_the_master, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sigint_of_the_master, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_other_ways_to_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_nobody_could_remove_is_swept_by_the_next_run,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_registry_entry_goes_with_the_next_run,
                                        set_up_registry, tear_down_registry),
        cmocka_unit_test_setup_teardown(test_a_registry_entry_goes_with_fiber_ps, set_up_registry,
                                        tear_down_registry),
    };

    setenv("FIBER_HEARTBEAT", "1h", 1);
    setenv("FIBER_START_TIMEOUT", "10m", 1); /* dozens start, beside dozens that are busy */
    init_fiber(&argc, &argv);
    for (size_t i = 0; argc > 2 && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].play(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
