/* interrupt_test.c - Ctrl-C in a program with a busy pool: nothing is left, and the program may
 * close it in good order.
 *
 * The program is this one in another role. It writes one line when its workers are busy, and gets
 * SIGINT as a terminal sends it: to its process group. Nobody's heartbeat is heard in time: what
 * ends, ends because an end was seen.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>

#include "tests/pool/tasks.h"

#define WORKERS 4

extern char **environ;

/* ---- The program ---- */

static int told[2];

static void on_interrupt(int sig)
{
    if (write(told[1], "!", 1) < 0)
        _exit(9);
}

static void say_ready(struct fiber_pool *pool)
{
    struct fiber_worker_stats w[WORKERS];
    int n = fiber_pool_worker_stats(pool, w, WORKERS);

    for (int i = 0; i < n; i++)
        printf("%lld ", (long long)w[i].pid);
    printf("\n");
    fflush(stdout);
}

static int close_when_told(struct fiber_pool *pool, struct fiber_result *r)
{
    struct pollfd p = {.fd = told[0], .events = POLLIN};
    bool good;

    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        continue;
    printf("closing\n");
    fflush(stdout);
    fiber_pool_close(pool);
    good = fiber_result_wait(r, 0) == 0 && fiber_result_error(r, NULL) == -ECANCELED;
    good = good && children_active(NULL) == 0;
    fiber_result_close(r);
    return good ? 7 : 1;
}

/* A task that heeds nothing, so that closing takes its time. */
static int ignore_all(const void *in, size_t len, struct fiber_reply *reply)
{
    signal(SIGTERM, SIG_IGN);
    return wait_at_gate(in, len, reply);
}

/* What it is closing takes until the second interrupt. */
static void close_for_ever(void *user, size_t index, int code, const void *data, size_t len)
{
    wait_for(&board->steps, 1); /* which nobody makes */
}

static int program(const char *role)
{
    struct fiber_map_options o = {.size = sizeof(struct fiber_map_options)};
    bool impatient = strcmp(role, "impatient") == 0;
    struct fiber_bytes in[2 * WORKERS] = {{NULL, 0}};
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    struct fiber_pool *pool = open_pool(WORKERS);
    struct fiber_result *r;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test be killed */
    if (strcmp(role, "handler") == 0 || impatient) {
        if (impatient)
            act.sa_flags |= SA_RESETHAND; /* the second one ends it */
        if (pipe2(told, O_CLOEXEC) < 0 || sigaction(SIGINT, &act, NULL) < 0)
            return 1;
    }
    if (impatient)
        o.on_done = close_for_ever;
    if (fiber_pool_map_async(pool, ignore_all, in, 2 * WORKERS, &o, &r) < 0 ||
        wait_for(&board->arrived, WORKERS) < 0)
        return 1;
    say_ready(pool);
    if (act.sa_flags && told[1])
        return close_when_told(pool, r);
    return fiber_result_wait(r, -1);
}

/* ---- The test ---- */

struct started {
    pid_t pid;
    FILE *out;
    int pidfd[WORKERS];
    char dir[32];
};

static struct started start(char *role)
{
    struct started s = {.dir = "/tmp/fiber-test-run-XXXXXX"};
    char self[] = "/proc/self/exe", run_dir[64], *argv[] = {self, role, board_path, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    long long pid[WORKERS];
    sigset_t interrupt;
    char line[128];
    int out[2];

    assert_non_null(mkdtemp(s.dir));
    snprintf(run_dir, sizeof(run_dir), "%s", s.dir);
    setenv("FIBER_RUN_DIR", run_dir, 1);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawnattr_init(&attr);
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT); /* the parent of this test may ignore it */
    posix_spawnattr_setsigdefault(&attr, &interrupt);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    assert_int_equal(posix_spawn(&s.pid, self, &files, &attr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    close(out[1]);
    s.out = fdopen(out[0], "r");
    assert_non_null(fgets(line, sizeof(line), s.out));
    assert_int_equal(sscanf(line, "%lld %lld %lld %lld", &pid[0], &pid[1], &pid[2], &pid[3]),
                     WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        s.pidfd[i] = (int)syscall(SYS_pidfd_open, (pid_t)pid[i], 0);
        assert_true(s.pidfd[i] >= 0);
    }
    return s;
}

static int count_entries(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

/* How it ended; nothing of it is left soon after. */
static int end_of(struct started *s)
{
    char prefix[32];
    int status;

    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    for (int i = 0; i < WORKERS; i++) {
        struct pollfd p = {.fd = s->pidfd[i], .events = POLLIN};

        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        close(s->pidfd[i]);
    }
    snprintf(prefix, sizeof(prefix), "fiber-%d-", (int)s->pid);
    assert_comes(count_entries(s->dir, "") == 0 && count_entries("/dev/shm", prefix) == 0);
    fclose(s->out);
    assert_int_equal(rmdir(s->dir), 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_an_interrupt_ends_the_program_and_all_its_workers(void **state)
{
    struct started s = start("plain");

    assert_int_equal(kill(-s.pid, SIGINT), 0);
    assert_int_equal(end_of(&s), -SIGINT);
}

static void test_a_program_with_a_handler_closes_its_pool_in_good_order(void **state)
{
    struct started s = start("handler");
    char line[32] = "";

    assert_int_equal(kill(-s.pid, SIGINT), 0);
    assert_non_null(fgets(line, sizeof(line), s.out));
    assert_string_equal(line, "closing\n");
    assert_int_equal(kill(-s.pid, SIGINT), 0); /* its handler takes it, and nothing comes of it */
    assert_int_equal(end_of(&s), 7);
}

static void test_a_second_interrupt_ends_a_program_that_is_closing(void **state)
{
    struct started s = start("impatient");
    char line[32] = "";

    assert_int_equal(kill(-s.pid, SIGINT), 0);
    assert_non_null(fgets(line, sizeof(line), s.out));
    assert_int_equal(kill(-s.pid, SIGINT), 0);
    assert_int_equal(end_of(&s), -SIGINT);
}

static int make_board(void **state)
{
    board_make();
    return 0;
}

static int drop_board(void **state)
{
    board_drop();
    return 0;
}

#define interrupt_test(fn) cmocka_unit_test_setup_teardown(fn, make_board, drop_board)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        interrupt_test(test_an_interrupt_ends_the_program_and_all_its_workers),
        interrupt_test(test_a_program_with_a_handler_closes_its_pool_in_good_order),
        interrupt_test(test_a_second_interrupt_ends_a_program_that_is_closing),
    };

    setenv("FIBER_HEARTBEAT", "1h", 1);
    if (fiber_init(&argc, &argv) != 0)
        return 1;
    if (argc == 3) {
        snprintf(board_path, sizeof(board_path), "%s", argv[2]);
        return board_map(board_path) < 0 ? 1 : program(argv[1]);
    }
    return cmocka_run_group_tests_name("interrupts", tests, NULL, NULL);
}
