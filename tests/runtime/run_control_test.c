/* run_control_test.c - the door of a run: what callers may ask, who may ask, and what is left when it
 * is gone.
 *
 * The run behind the door is made up. Callers are blocking sockets of this thread; the door lives
 * on the loop's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/run_control.h"
#include "runtime/proc/rundir.h"
#include "tests/support/sync.h"

#define OTHER_USER 20000u /* and those behind it: nobody's */

static struct {
    struct fbr_loop *loop;
    struct fbr_run_control *control;
    struct fbr_run_control_about about;
    char root[64];
    /* loop thread */
    int ranks, signal, signal_rank, stops, looks, workers;
    bool is_fixed;
    void (*at_facts)(void); /* called when the facts are asked for, or NULL */
} run;

static atomic_uint until_refusal; /* requests of the loop thread for memory; 0: none is refused */

static bool refuse(void)
{
    return until_refusal && fbr_loop_here(run.loop) && --until_refusal == 0;
}

#include "tests/support/wrapped_malloc.h"

static void facts(void *user, struct fbr_run_facts *f)
{
    if (run.at_facts)
        run.at_facts();
    f->size = 2;
    f->agents = f->agents_joined = 1;
    f->running = 2;
    f->restarts = 7;
    snprintf(f->waiting, sizeof(f->waiting), "nothing");
}

static int stats(void *user, struct fbr_run_rank *out, int max)
{
    for (int i = 0; i < run.ranks && i < max; i++)
        out[i] = (struct fbr_run_rank){.stats = {.rank = i,
                                                 .state = 1,
                                                 .pid = 100 + i,
                                                 .host = "here",
                                                 .cpus = "0",
                                                 .how = "PMIx",
                                                 .cpu = 1.5,
                                                 .memory = 4096},
                                       .started_ms = 1234567890000,
                                       .tasks = 9,
                                       .busy = 0.5};
    return run.ranks;
}

static void look(void *user)
{
    run.looks++;
}

static int send_signal(void *user, int rank, int sig)
{
    run.signal = sig;
    run.signal_rank = rank;
    return rank > 1 ? -ESRCH : 0;
}

static int stop_run(void *user)
{
    run.stops++;
    return 0;
}

static int scale(void *user, int workers)
{
    run.workers = workers;
    return workers > 9 ? -EINVAL : 0;
}

static const struct fbr_run_control_ops ops = {.facts = facts,
                                               .stats = stats,
                                               .look = look,
                                               .signal = send_signal,
                                               .stop = stop_run,
                                               .scale = scale};
static const struct fbr_run_control_ops fixed = {
    .facts = facts, .stats = stats, .look = look, .signal = send_signal, .stop = stop_run};

/* ---- On the loop thread ---- */

static int open_control(void *arg)
{
    return fbr_run_control_open(&run.control, run.loop, run.is_fixed ? &fixed : &ops, NULL,
                                &run.about, arg);
}

/* arg: the report of its end; NULL: it has not ended. */
static int close_control(void *arg)
{
    fbr_run_control_close(run.control, arg ? 3 : FBR_REGISTRY_LOST, arg ? arg : "");
    run.control = NULL;
    return 0;
}

/* ---- Callers ---- */

static int found_fd, found_count;

static void keep_fd(void *user, int fd, const struct fbr_run_control_about *about)
{
    assert_string_equal(about->uid, run.about.uid);
    assert_string_equal(about->command, "sleep 5");
    found_fd = fd;
    found_count++;
}

static int call(void)
{
    struct fbr_error err = {0, ""};

    found_count = 0;
    assert_int_equal(fbr_registry_each(keep_fd, NULL, &err), 0);
    assert_int_equal(found_count, 1);
    assert_int_equal(fcntl(found_fd, F_SETFL, 0), 0); /* it may wait here */
    return found_fd;
}

static void ask(int fd, int op, int rank, int argument)
{
    const struct fbr_run_control_request r = {FBR_RUN_CONTROL_VERSION, (uint8_t)op, rank, argument};
    struct fbr_buf b = {0};

    fbr_run_control_put_request(&b, &r);
    assert_int_equal(send(fd, b.data, b.len, 0), b.len);
    fbr_buf_fini(&b);
}

static void read_exactly(int fd, void *data, size_t len)
{
    assert_int_equal(recv(fd, data, len, MSG_WAITALL), len);
}

/* The next answer; its bytes live until the next call. Answers its kind, 0 at the end. */
static int answer(int fd, struct fbr_cur *c)
{
    static uint8_t *data;
    uint32_t len;

    /* The kernel interrupts it once when it takes down the io_uring of the loop before. */
    if (TEMP_FAILURE_RETRY(recv(fd, &len, 4, MSG_WAITALL)) != 4)
        return 0;
    free(data);
    data = malloc(len);
    assert_non_null(data);
    read_exactly(fd, data, len);
    *c = fbr_cur(data, len);
    return fbr_get_u8(c);
}

static void done_is(int fd, int code, const char *part)
{
    char text[256];
    struct fbr_cur c;
    int got;

    assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_DONE);
    assert_true(fbr_run_control_get_done(&c, &got, text, sizeof(text)));
    assert_int_equal(got, code);
    assert_non_null(strstr(text, part));
}

static void limit_wait(int fd)
{
    const struct timeval patience = {.tv_sec = TEST_LONG_MS / 1000};

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
}

/* ---- Tests ---- */

static void a_run_is_listed_with_its_facts_and_ranks(void **state)
{
    struct fbr_run_control_about about;
    struct fbr_run_facts f;
    struct fbr_run_rank r;
    struct fbr_cur c;
    int fd = call();

    ask(fd, FBR_RUN_CONTROL_STATUS, -1, 1);
    assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RUN);
    assert_true(fbr_run_control_get_run(&c, &about, &f));
    assert_string_equal(about.name, "nap");
    assert_int_equal(about.started_ms, 1234567890123);
    assert_int_equal(f.restarts, 7);
    assert_string_equal(f.waiting, "nothing");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RANK);
        assert_true(fbr_run_control_get_rank(&c, &r));
        assert_int_equal(r.stats.rank, i);
        assert_int_equal(r.stats.pid, 100 + i);
        assert_true(r.stats.cpu == 1.5);
        assert_string_equal(r.stats.how, "PMIx");
        assert_int_equal(r.started_ms, 1234567890000);
        assert_int_equal(r.tasks, 9);
        assert_true(r.busy == 0.5);
    }
    done_is(fd, 0, "");
    assert_int_equal(run.looks, 1);
    ask(fd, FBR_RUN_CONTROL_STATUS, -1, 0);
    assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RUN);
    done_is(fd, 0, "");
    close(fd);
}

/* As after `fiber scale RUN 2`: the others have not done their tasks yet. */
static void workers_beyond_its_size_are_listed(void **state)
{
    struct fbr_cur c;
    int fd = call();

    run.ranks = 100;
    ask(fd, FBR_RUN_CONTROL_STATUS, -1, 1);
    assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RUN);
    for (int i = 0; i < 100; i++)
        assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RANK);
    done_is(fd, 0, "");
    close(fd);
}

static void a_caller_without_memory_is_let_in_later(void **state)
{
    struct fbr_cur c;
    int fd;

    until_refusal = 1;
    fd = call();
    limit_wait(fd);
    ask(fd, FBR_RUN_CONTROL_STATUS, -1, 0);
    assert_int_equal(answer(fd, &c), FBR_RUN_CONTROL_RUN);
    close(fd);
}

static void an_answer_without_memory_is_the_end(void **state)
{
    unsigned k = 0, left;

    do {
        int fd = call();
        struct fbr_cur c;
        uint8_t byte;

        limit_wait(fd);
        until_refusal = ++k;
        ask(fd, FBR_RUN_CONTROL_STATUS, -1, 1);
        if (TEMP_FAILURE_RETRY(recv(fd, &byte, 1, MSG_PEEK)) == 1)
            while (answer(fd, &c) != FBR_RUN_CONTROL_DONE)
                continue;
        else
            assert_int_equal(TEMP_FAILURE_RETRY(recv(fd, &byte, 1, 0)), 0);
        left = until_refusal;
        until_refusal = 0;
        close(fd);
    } while (!left);
    assert_true(k > 2);
}

static void signals_and_stops_reach_the_run(void **state)
{
    int fd = call();

    ask(fd, FBR_RUN_CONTROL_SIGNAL, 1, SIGUSR1);
    done_is(fd, 0, "");
    assert_int_equal(run.signal, SIGUSR1);
    assert_int_equal(run.signal_rank, 1);
    ask(fd, FBR_RUN_CONTROL_SIGNAL, 5, SIGUSR1);
    done_is(fd, -ESRCH, "not running");
    ask(fd, FBR_RUN_CONTROL_SIGNAL, -1, 1000);
    done_is(fd, -EINVAL, "no such signal");
    ask(fd, FBR_RUN_CONTROL_STOP, -1, 0);
    done_is(fd, 0, "");
    assert_int_equal(run.stops, 1);
    close(fd);
}

static void a_pool_is_scaled(void **state)
{
    int fd = call();

    ask(fd, FBR_RUN_CONTROL_SCALE, -1, 7);
    done_is(fd, 0, "");
    assert_int_equal(run.workers, 7);
    ask(fd, FBR_RUN_CONTROL_SCALE, -1, 10);
    done_is(fd, -EINVAL, "");
    close(fd);
}

static void what_a_run_cannot_is_refused_in_words(void **state)
{
    int fd = call();

    ask(fd, FBR_RUN_CONTROL_SCALE, -1, 7);
    done_is(fd, -ENOTSUP, "fixed");
    ask(fd, FBR_RUN_CONTROL_TUNNEL, -1, 0);
    done_is(fd, -ENOTSUP, "accept no commands");
    ask(fd, 99, -1, 0);
    done_is(fd, -ENOSYS, "does not know");
    close(fd);
}

static void a_record_of_an_older_version_is_read(void **state)
{
    struct fbr_run_control_about about = {.uid = "u", .kind = FBR_RUN_POOL, .unkept = true};
    struct fbr_run_facts f = {.waiting = "w", .doing = "3 tasks"};
    struct fbr_buf b = {0};
    struct fbr_cur c;
    size_t used;

    fbr_run_control_put_run(&b, &about, &f);
    assert_int_equal(fbr_run_control_frame(b.data, b.len, FBR_RUN_CONTROL_ANSWER_MAX, &c, &used),
                     1);
    fbr_get_u8(&c);
    assert_true(fbr_run_control_get_run(&c, &about, &f));
    assert_int_equal(about.kind, FBR_RUN_POOL);
    assert_string_equal(f.doing, "3 tasks");
    assert_true(about.unkept);
    assert_int_equal(fbr_run_control_frame(b.data, b.len, FBR_RUN_CONTROL_ANSWER_MAX, &c, &used),
                     1);
    fbr_get_u8(&c);
    c.end -= 1 + 4 + strlen("3 tasks") + 8 + 1; /* kind, doing, ended_ms, unkept */
    assert_true(fbr_run_control_get_run(&c, &about, &f));
    assert_false(about.unkept);
    assert_int_equal(about.kind, FBR_RUN_RING);
    assert_string_equal(f.waiting, "w");
    fbr_buf_fini(&b);
}

static void garbage_is_hung_up_on(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } garbage[] = {{"GET / HTTP/1.0\r\n\r\n", 18},
                   {"\xff\xff\xff\xff", 4},
                   {"\x02\x00\x00\x00\x01\x01", 6},
                   {"\0\0\0\0", 4}};
    struct fbr_cur c;

    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        int fd = call();

        assert_int_equal(send(fd, garbage[i].bytes, garbage[i].len, 0), garbage[i].len);
        assert_int_equal(answer(fd, &c), 0);
        close(fd);
    }
}

/* Its answers would take all memory of the launcher. */
static void a_caller_that_asks_and_never_reads_is_hung_up_on(void **state)
{
    const struct fbr_run_control_request r = {FBR_RUN_CONTROL_VERSION, FBR_RUN_CONTROL_STATUS, -1,
                                              1};
    struct fbr_buf b = {0};
    ssize_t n = 0;
    int fd = call();

    for (int i = 0; i < 1000; i++)
        fbr_run_control_put_request(&b, &r);
    for (int i = 0; i < 500 && n >= 0; i++)
        n = send(fd, b.data, b.len, MSG_NOSIGNAL);
    assert_true(n < 0 && (errno == EPIPE || errno == ECONNRESET));
    fbr_buf_fini(&b);
    close(fd);
}

static void another_version_is_refused_in_words(void **state)
{
    const struct fbr_run_control_request r = {99, FBR_RUN_CONTROL_STATUS, -1, 0};
    struct fbr_buf b = {0};
    int fd = call();

    fbr_run_control_put_request(&b, &r);
    assert_int_equal(send(fd, b.data, b.len, 0), b.len);
    fbr_buf_fini(&b);
    done_is(fd, -EPROTO, "another version");
    ask(fd, 77, 0, 0);
    done_is(fd, -ENOSYS, "does not know");
    close(fd);
}

static void too_many_callers_are_hung_up_on(void **state)
{
    enum { MANY = 80 };
    int fds[MANY], ends = 0;
    struct fbr_cur c;

    for (int i = 0; i < MANY; i++) {
        fds[i] = call();
        send(fds[i], "\x0a\0\0\0\x01\x01\xff\xff\xff\xff\0\0\0\0", 14, MSG_NOSIGNAL); /* STATUS */
        if (answer(fds[i], &c) == FBR_RUN_CONTROL_RUN)
            done_is(fds[i], 0, "");
        else
            ends++;
    }
    assert_int_equal(ends, MANY - 64);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

/* ---- What is left ---- */

static int ended_code;
static int64_t ended_ms;
static char ended_report[64];

static void keep_ended(void *user, const struct fbr_run_control_about *about,
                       const struct fbr_run_facts *f, int code, const char *report)
{
    if (strcmp(about->uid, run.about.uid) != 0)
        return;
    ended_code = code;
    ended_ms = f->ended_ms;
    snprintf(ended_report, sizeof(ended_report), "%s", report);
    found_count++;
}

static void count_run(void *user, int fd, const struct fbr_run_control_about *about)
{
    close(fd);
    (*(int *)user)++;
}

static int runs_listed(void)
{
    int count = 0;

    assert_int_equal(fbr_registry_each(count_run, &count, NULL), 0);
    return count;
}

static void an_ended_run_is_kept_as_a_record(void **state)
{
    fbr_loop_call(run.loop, close_control, (char[]){"all is well"});
    assert_int_equal(runs_listed(), 0);
    found_count = 0;
    assert_int_equal(fbr_registry_ended(keep_ended, NULL, NULL), 0);
    assert_int_equal(found_count, 1);
    assert_int_equal(ended_code, 3);
    assert_string_equal(ended_report, "all is well");
    assert_true(ended_ms > run.about.started_ms);
}

static int listed_at_end;

static void list_at_end(void)
{
    listed_at_end = runs_listed();
}

/* Else a command that lists runs at that moment takes it for one whose launcher was killed. */
static void a_run_answers_until_its_end_is_recorded(void **state)
{
    listed_at_end = -1;
    run.at_facts = list_at_end;
    fbr_loop_call(run.loop, close_control, (char[]){"all is well"});
    run.at_facts = NULL;
    assert_int_equal(listed_at_end, 1);
    assert_int_equal(runs_listed(), 0);
}

static void count_named(void *user, const struct fbr_run_control_about *about,
                        const struct fbr_run_facts *f, int code, const char *report)
{
    ((int *)user)[!strcmp(about->name, "suite")]++;
}

/* A test suite that starts one run after the other does not push out the run that somebody looks for. */
static void many_runs_of_one_name_leave_the_records_of_others(void **state)
{
    struct fbr_run_control_about about = run.about;
    struct fbr_run_facts f = {0};
    int count[2] = {0, 0};
    char dir[FBR_REGISTRY_MAX];

    fbr_loop_call(run.loop, close_control, (char[]){""});
    snprintf(about.name, sizeof(about.name), "suite");
    for (int i = 0; i < 60; i++) {
        about.started_ms++;
        snprintf(about.uid, sizeof(about.uid), "%032d", i);
        memmove(about.uid, about.uid + 16, 17); /* the first 16 name it */
        assert_int_equal(fbr_registry_add(&about, dir, NULL), 0);
        fbr_registry_end(dir, &about, &f, 0, "");
    }
    assert_int_equal(fbr_registry_ended(count_named, count, NULL), 0);
    assert_true(count[0] >= 1);
    assert_int_equal(count[1], 50);
}

static int add_socket(const struct fbr_run_control_about *about, char dir[FBR_REGISTRY_MAX])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(fbr_registry_add(about, dir, NULL), 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/control", dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* It has a socket that nobody listens at. */
static void add_dead(const struct fbr_run_control_about *dead, char dir[FBR_REGISTRY_MAX])
{
    close(add_socket(dead, dir));
}

static void a_killed_launchers_run_is_swept(void **state)
{
    struct fbr_run_control_about dead = run.about;
    char dir[FBR_REGISTRY_MAX];

    fbr_loop_call(run.loop, close_control, NULL);
    memset(dead.uid, 'd', 32);
    add_dead(&dead, dir);
    memcpy(run.about.uid, dead.uid, sizeof(dead.uid));
    assert_int_equal(runs_listed(), 0);
    assert_int_equal(access(dir, F_OK), -1);
    found_count = 0;
    ended_code = 0;
    run.about.started_ms = dead.started_ms;
    assert_int_equal(fbr_registry_ended(keep_ended, NULL, NULL), 0);
    assert_int_equal(ended_code, FBR_REGISTRY_LOST);
}

/* A process that the launcher has forked still has its socket. */
static void a_forked_child_is_not_taken_for_its_launcher(void **state)
{
    struct fbr_run_control_about dead = run.about;
    int fd, ends[2], status, listed;
    char dir[FBR_REGISTRY_MAX];
    pid_t pid, forked;

    memset(dead.uid, 'd', 32);
    fd = add_socket(&dead, dir);
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        if (listen(fd, 4) < 0 || (forked = fork()) < 0)
            _exit(1);
        while (forked == 0)
            pause();
        _exit(write(ends[1], &forked, sizeof(forked)) != (ssize_t)sizeof(forked));
    }
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &forked, sizeof(forked)), sizeof(forked));
    listed = runs_listed();
    assert_int_equal(kill(forked, SIGKILL), 0);
    assert_int_equal(listed, 1); /* the one that lives */
    assert_int_equal(access(dir, F_OK), -1);
    close(ends[0]);
    close(ends[1]);
}

static void the_next_run_sweeps_it_too(void **state)
{
    struct fbr_run_control_about about = run.about;
    char dead[FBR_REGISTRY_MAX], next[FBR_REGISTRY_MAX];

    memset(about.uid, 'd', 32);
    add_dead(&about, dead);
    memset(about.uid, 'e', 32);
    assert_int_equal(fbr_registry_add(&about, next, NULL), 0);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(runs_listed(), 1); /* the one that lives */
    fbr_rundir_remove_tree(next);
}

/* The limit of a file's size stands for a full disk. */
static void a_record_that_cannot_be_written_says_why(void **state)
{
    struct fbr_run_control_about about = run.about;
    struct rlimit usual, none;
    char dir[FBR_REGISTRY_MAX];
    int rc;

    memset(about.uid, 'f', 32);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &usual);
    none = usual;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
    rc = fbr_registry_add(&about, dir, NULL);
    setrlimit(RLIMIT_FSIZE, &usual);
    assert_int_equal(rc, -EFBIG);
    assert_int_equal(access(dir, F_OK), -1);
}

/* systemd-tmpfiles leaves alone what is locked so, with all that is below. */
static void its_directory_is_held_while_it_lives(void **state)
{
    char root[FBR_REGISTRY_MAX], dir[FBR_REGISTRY_MAX + 20];

    assert_int_equal(fbr_registry_root(root, NULL), 0);
    snprintf(dir, sizeof(dir), "%s/%.16s", root, run.about.uid);
    assert_true(fbr_rundir_is_held(dir));
}

static void a_directory_of_others_is_not_used(void **state)
{
    struct fbr_error err = {0, ""};
    char root[FBR_REGISTRY_MAX];

    assert_int_equal(fbr_registry_root(root, &err), 0);
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(fbr_registry_root(root, &err), -EPERM);
    assert_non_null(strstr(err.text, "only you can enter"));
    assert_int_equal(chmod(root, 0700), 0);
}

/* With one more character, the registry is in /tmp. */
static void the_longest_runtime_directory_has_room_for_all_names(void **state)
{
    char folder[FBR_REGISTRY_MAX - 48];
    int n = snprintf(folder, sizeof(folder), "%s/", run.root);

    fbr_loop_call(run.loop, close_control, (char[]){""});
    memset(folder + n, 'x', sizeof(folder) - 1 - (size_t)n);
    folder[sizeof(folder) - 1] = '\0';
    assert_int_equal(mkdir(folder, 0700), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(fbr_loop_call(run.loop, open_control, NULL), 0);
    close(call());
    fbr_loop_call(run.loop, close_control, (char[]){"all is well"});
    assert_int_equal(runs_listed(), 0);
    ended_code = 0;
    assert_int_equal(fbr_registry_ended(keep_ended, NULL, NULL), 0);
    assert_int_equal(ended_code, 3);
}

/* In a child that is another user: this one has made its directory before it. */
static int use_another(unsigned user, const char *taken)
{
    char root[FBR_REGISTRY_MAX], again[FBR_REGISTRY_MAX];
    bool same;

    unsetenv("XDG_RUNTIME_DIR");
    if (setuid(user) < 0 || fbr_registry_root(root, NULL) < 0 || fbr_registry_root(again, NULL) < 0)
        return 1;
    same = !strcmp(root, again) && strcmp(root, taken) != 0;
    rmdir(root);
    return same ? 0 : 2;
}

static void a_directory_that_another_user_took_is_replaced(void **state)
{
    unsigned user = OTHER_USER + (unsigned)getpid() % 40000; /* this test may run more than once */
    char taken[64];
    int status;
    pid_t pid;

    if (geteuid() != 0)
        skip();
    snprintf(taken, sizeof(taken), "/tmp/fiber-%u", user);
    rmdir(taken); /* of a test that was killed */
    assert_int_equal(mkdir(taken, 0700), 0);
    pid = fork();
    if (pid == 0)
        _exit(use_another(user, taken));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(rmdir(taken), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int setup_as(bool is_fixed)
{
    struct fbr_error err = {0, ""};

    memset(&run, 0, sizeof(run));
    run.is_fixed = is_fixed;
    signal(SIGPIPE, SIG_IGN);
    temp_dir_make(run.root);
    setenv("XDG_RUNTIME_DIR", run.root, 1);
    snprintf(run.about.uid, sizeof(run.about.uid), "%s", "0123456789abcdef0123456789abcdef");
    snprintf(run.about.name, sizeof(run.about.name), "nap");
    snprintf(run.about.command, sizeof(run.about.command), "sleep 5");
    run.about.started_ms = 1234567890123;
    run.about.size = 2;
    run.ranks = 2;
    if (fbr_loop_open(&run.loop, &err) < 0 || fbr_loop_call(run.loop, open_control, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int setup(void **state)
{
    return setup_as(false);
}

static int setup_fixed(void **state)
{
    return setup_as(true);
}

static int teardown(void **state)
{
    fbr_loop_call(run.loop, close_control, NULL);
    fbr_loop_close(run.loop);
    temp_dir_remove(run.root);
    return 0;
}

#define control_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        control_test(a_run_is_listed_with_its_facts_and_ranks),
        control_test(workers_beyond_its_size_are_listed),
        control_test(a_caller_without_memory_is_let_in_later),
        control_test(an_answer_without_memory_is_the_end),
        control_test(signals_and_stops_reach_the_run),
        control_test(a_pool_is_scaled),
        cmocka_unit_test_setup_teardown(what_a_run_cannot_is_refused_in_words, setup_fixed,
                                        teardown),
        cmocka_unit_test(a_record_of_an_older_version_is_read),
        control_test(garbage_is_hung_up_on),
        control_test(a_caller_that_asks_and_never_reads_is_hung_up_on),
        control_test(another_version_is_refused_in_words),
        control_test(too_many_callers_are_hung_up_on),
        control_test(an_ended_run_is_kept_as_a_record),
        control_test(a_run_answers_until_its_end_is_recorded),
        control_test(many_runs_of_one_name_leave_the_records_of_others),
        control_test(a_killed_launchers_run_is_swept),
        control_test(a_forked_child_is_not_taken_for_its_launcher),
        control_test(the_next_run_sweeps_it_too),
        control_test(a_record_that_cannot_be_written_says_why),
        control_test(its_directory_is_held_while_it_lives),
        control_test(a_directory_of_others_is_not_used),
        control_test(the_longest_runtime_directory_has_room_for_all_names),
        control_test(a_directory_that_another_user_took_is_replaced),
    };

    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
