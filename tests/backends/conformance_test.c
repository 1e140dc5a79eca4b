/* conformance_test.c - what every backend must do, as one table of cases that runs over each of
 * them.
 *
 * A backend is a row in `backends`: its name and what it can be asked for. A case that needs more
 * is not run on it. Which rows run is said by TEST_BACKENDS ("docker"); by default those that need
 * no engine. Where there is an engine, TEST_BED is the script of its bed (tests/beds/run), by which
 * cases do to it what an administrator or a crash would.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/backend.h"
#include "tests/support/children.h"
#include "tests/support/run.h"

#define CANNOT_START 125
#define SKIPPED 77
#define LINES 300
#define PATIENCE_MS 300000 /* of a start, while an engine is away or busy */
#define LOOK_MS 30000      /* in which an engine has said why it does not start something */

enum {
    FAULTS = 1,   /* takes FIBER_MOCK in the job's environment */
    BED = 2,      /* an engine, with a bed */
    MEMORY = 4,   /* enforces the memory that was asked for */
    IMAGES = 8,   /* jobs have images */
    STREAMS = 16, /* tells standard output and standard error apart */
    SURVIVES = 32 /* jobs go on when their engine is started again */
};

static const struct backend {
    const char *name;
    unsigned can;
    const char *no_room; /* what it says of 10,000 processors */
    const char *nested;  /* what a job starts jobs by: NULL: what it is told there */
} backends[] = {{"local", STREAMS, NULL, "local"},
                {"mock", FAULTS | STREAMS, NULL, "mock"},
                {"command", STREAMS, NULL, "command"},
                {"docker", BED | MEMORY | IMAGES | STREAMS, "CPUs", NULL},
                {"kubernetes", BED | MEMORY | IMAGES | SURVIVES, "nsufficient cpu", NULL},
                {"slurm", BED | STREAMS | SURVIVES, "onfiguration", NULL}};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* ---- Word from jobs ---- */

/* A queue of ours, which they reach from wherever they run. */
struct word {
    struct fiber_queue *queue;
    struct fiber_address address;
};

static void word_open(struct word *w)
{
    assert_int_equal(fiber_queue_open(&w->queue, 0), 0);
    assert_int_equal(fiber_queue_address(w->queue, &w->address), 0);
}

static void word_wait(struct word *w, void *data, size_t len)
{
    struct fiber_bytes got = {0};

    assert_int_equal(fiber_queue_get(w->queue, &got, PATIENCE_MS), 0);
    assert_int_equal(got.len, len);
    memcpy(data, got.data, len);
    fiber_bytes_free(&got);
}

static void word_close(struct word *w)
{
    fiber_queue_close(w->queue);
}

/* In a job. */
static int say(const void *address, const void *data, size_t len)
{
    struct fiber_queue *q;
    int rc = fiber_queue_connect(&q, address);

    if (rc < 0)
        return rc;
    rc = fiber_queue_put(q, data, len, TEST_LONG_MS);
    if (rc == 0)
        rc = fiber_queue_flush(q, TEST_LONG_MS);
    fiber_queue_close(q);
    return rc;
}

static struct fiber_process *begin_telling(const struct backend *b, fiber_process_fn fn,
                                           const struct word *w)
{
    return begin(fn, &w->address, sizeof(w->address),
                 OPTIONS(.backend = b->name, .start_timeout_ms = PATIENCE_MS));
}

/* ---- The bed ---- */

static int bed(const char *verb, const char *arg)
{
    const char *const argv[] = {getenv("TEST_BED"), verb, arg, NULL};
    struct ran r = run_program(argv, NULL, NULL);
    int code = r.code;

    if (code)
        fprintf(stderr, "bed %s %s: %d: %s%s\n", verb, arg ? arg : "", code, r.out, r.err);
    ran_free(&r);
    return code;
}

/* ---- What jobs do ---- */

static int print_and_return(const void *arg, size_t len)
{
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

static int notify_name(const void *address, size_t len)
{
    return say(address, fiber_process_self(), strlen(fiber_process_self())) < 0;
}

static int notify_wait(const void *address, size_t len)
{
    pid_t me = getpid();

    if (say(address, &me, sizeof(me)) < 0)
        return 1;
    return child_wait(address, len);
}

static void exit_by_signal(int sig)
{
    _exit(sig);
}

static int notify_wait_for_signal(const void *address, size_t len)
{
    signal(SIGUSR1, exit_by_signal);
    return notify_wait(address, len);
}

static int start_on(const void *backend, size_t len)
{
    int code = 9;

    return finish(
        begin(child_return, &code, sizeof(code), OPTIONS(.backend = len ? backend : NULL)));
}

/* Tells where it can be told something, and returns what that is. */
static int return_when_told(const void *address, size_t len)
{
    struct word mine;
    int code = -1;

    if (fiber_queue_open(&mine.queue, 0) < 0 ||
        fiber_queue_address(mine.queue, &mine.address) < 0 ||
        say(address, &mine.address, sizeof(mine.address)) < 0)
        return 1;
    word_wait(&mine, &code, sizeof(code));
    word_close(&mine);
    return code;
}

static int print_many(const void *which, size_t len)
{
    for (int i = 0; i < LINES; i++) {
        printf("out %d of %s.\n", i, (const char *)which);
        fflush(stdout);
        fprintf(stderr, "err %d of %s.\n", i, (const char *)which);
    }
    printf("out without an end of %s.", (const char *)which);
    return 0;
}

static int take_memory(const void *arg, size_t len)
{
    const size_t piece = 1 << 20;

    for (int i = 0; i < 512; i++) {
        char *more = malloc(piece);

        if (!more)
            return 1;
        memset(more, i, piece);
        __asm__ volatile("" : : "r"(more) : "memory");
    }
    return 0;
}

static int check_env(const void *arg, size_t len)
{
    const char *value = getenv("TEST_CONFORMANCE");
    char cwd[64] = "";

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
        struct word told;
        pid_t pid;

        word_open(&told);
        p = begin_telling(b, notify_wait, &told);
        word_wait(&told, &pid, sizeof(pid));
        assert_int_equal(i ? fiber_process_kill(p) : fiber_process_terminate(p), 0);
        if (ended(p) != (i ? -SIGKILL : -SIGTERM))
            fail_msg("ended with %d: %s", ended(p), fiber_process_report(p));
        assert_int_not_equal(strlen(fiber_process_job(p)), 0);
        assert_int_equal(fiber_process_kill(p), 0);
        fiber_process_close(p);
        word_close(&told);
    }
}

static void another_signal(void **state)
{
    struct fiber_process *p;
    struct word told;
    pid_t pid;

    word_open(&told);
    p = begin_telling(*state, notify_wait_for_signal, &told);
    word_wait(&told, &pid, sizeof(pid));
    assert_int_equal(fiber_process_signal(p, SIGUSR1), 0);
    if (ended(p) != SIGUSR1)
        fail_msg("ended with %d: %s", ended(p), fiber_process_report(p));
    fiber_process_close(p);
    word_close(&told);
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

    char place[16];

    assert_int_equal(ended(p), 4);
    assert_true(has(fiber_process_report(p), "exited with code 4", "a line on stdout",
                    "a line on stderr", "and an end", NULL));
    snprintf(place, sizeof(place), "%.12s", fiber_process_job(p)); /* what its engine calls it */
    assert_true(has(fiber_process_report(p), fiber_process_pid(p) > 0 ? "(pid " : " job ",
                    fiber_process_pid(p) > 0 ? "" : place, NULL));
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
    assert_true(has(fiber_process_report(p), "/no/such/program", NULL));
    assert_true(strcasestr(fiber_process_report(p), "no such file") ||
                strcasestr(fiber_process_report(p), "not found")); /* some are started by a shell */
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
        fiber_process_start_work(&p, "", 0,
                                 OPTIONS(.backend = b->name, .job.command = argv,
                                         .start_timeout_ms = b->can & BED ? 6000 : 150)),
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
        p[i] = begin(child_return, &i, sizeof(i),
                     OPTIONS(.backend = b->name, .start_timeout_ms = PATIENCE_MS));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fiber_process_join(p[i], PATIENCE_MS), 0);
        assert_int_equal(finish(p[i]), i);
    }
}

static void odd_names(void **state)
{
    static const char *const names[] = {
        "-",   ".",       "..",
        "-rf", "A.b-C_d", "0123456789012345678901234567890123456789012345678901234567890-z"};
    const struct backend *b = *state;
    struct word told;

    word_open(&told);
    for (size_t i = 0; i < COUNT(names); i++)
        for (int twice = 0; twice < 2; twice++) { /* names need not be unique */
            char name[64] = "";

            assert_int_equal(finish(begin(notify_name, &told.address, sizeof(told.address),
                                          OPTIONS(.backend = b->name, .job.name = names[i]))),
                             0);
            word_wait(&told, name, strlen(names[i]));
            assert_string_equal(name, names[i]);
        }
    word_close(&told);
}

static void nested_jobs(void **state)
{
    const struct backend *b = *state;
    size_t len = b->nested ? strlen(b->nested) + 1 : 0;

    assert_int_equal(finish(begin(start_on, b->nested, len, OPTIONS(.backend = b->name))), 9);
}

/* Starts jobs, and tells their pids on standard output. */
static int play_master(const char *name)
{
    struct backend b = {.name = name};
    struct word told;
    pid_t pid;

    word_open(&told);
    for (int i = 0; i < 8; i++)
        begin_telling(&b, notify_wait, &told);
    for (int i = 0; i < 8; i++) {
        word_wait(&told, &pid, sizeof(pid));
        if (write(STDOUT_FILENO, &pid, sizeof(pid)) != sizeof(pid))
            return 1;
    }
    return child_wait(NULL, 0);
}

static void a_killed_master_takes_its_jobs_along(void **state)
{
    const struct backend *b = *state;
    int fds[8], out;
    pid_t pid, master = start_self("master", b->name, NULL, &out);

    for (int i = 0; i < 8; i++) {
        assert_int_equal(read(out, &pid, sizeof(pid)), sizeof(pid));
        fds[i] = b->can & BED ? -1 : pid_open(pid); /* there it is a pid of another host */
    }
    close(out);
    kill(master, SIGKILL);
    assert_int_equal(waitpid(master, NULL, 0), master);
    if (b->can & BED)
        assert_int_equal(bed("empty", NULL), 0);
    else
        assert_int_equal(pids_gone(fds, 8, TEST_LONG_MS), 0);
}

static int play_loud(const char *name)
{
    struct fiber_process *p[3];
    static const char *const which[] = {"one", "two", "three"};
    int bad = 0;

    for (int i = 0; i < 3; i++)
        p[i] = begin(print_many, which[i], strlen(which[i]) + 1, OPTIONS(.backend = name));
    for (int i = 0; i < 3; i++)
        bad |= finish(p[i]);
    return bad;
}

/* Whether it is where a line begins. Where the engine merges the streams into one, that may be after the end of the
 * other stream, if that ended in no newline: Kubernetes' agent then goes on in the same line (containerd marks it as a
 * partial one, and cri-client's ReadLogs writes no stamp behind those). */
static bool begins(const char *text, const char *at, const char *which)
{
    char end[64];
    int n = snprintf(end, sizeof(end), "out without an end of %s.", which);

    return at == text || at[-1] == '\n' || (at - text >= n && strncmp(at - n, end, (size_t)n) == 0);
}

/* Whether these lines are in text, each alone on its line, in their order. */
static bool in_order(const char *text, const char *stream, const char *which)
{
    const char *last = text;

    for (int i = 0; i < LINES; i++) {
        char line[64];
        const char *at;

        snprintf(line, sizeof(line), "%s %d of %s.\n", stream, i, which);
        at = strstr(last, line);
        if (!at || !begins(text, at, which)) {
            fprintf(stderr, "not there, or not in order: %sit goes on: %.200s\n", line, last);
            return false;
        }
        last = at + strlen(line);
    }
    return true;
}

static void whole_lines_in_their_order(void **state)
{
    const struct backend *b = *state;
    static const char *const which[] = {"one", "two", "three"};
    struct ran r = run_self("loud", b->name, NULL);

    assert_int_equal(r.code, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(in_order(r.out, "out", which[i]));
        assert_true(in_order(b->can & STREAMS ? r.err : r.out, "err", which[i]));
    }
    assert_true(has(r.out, "out without an end of one.", "out without an end of two.", NULL));
    ran_free(&r);
}

/* ---- With an engine ---- */

static void more_memory_than_asked_for(void **state)
{
    const struct backend *b = *state;
    struct fiber_process *p =
        begin(take_memory, NULL, 0, OPTIONS(.backend = b->name, .job.memory = 64 << 20));

    assert_int_equal(ended(p), -SIGKILL);
    assert_true(has(fiber_process_report(p), "memory", "64", NULL));
    fiber_process_close(p);
}

/* Jobs that cannot run. Some engines let such a job wait for ever, and it costs its whole time: they
 * are begun early, and other cases go on meanwhile. */
static struct fiber_process *hopeless[2];
static const char *const no_image = "127.0.0.1:1/fiber-no-such-image:1";

static struct fiber_process *begin_hopeless(const struct backend *b, int i)
{
    struct fiber_process_options o = {
        .size = sizeof(o), .backend = b->name, .start_timeout_ms = LOOK_MS};
    int code = 0;

    if (i == 0)
        o.job.cpus = 10000;
    else
        o.job.image = no_image;
    return begin(child_return, &code, sizeof(code), &o);
}

static void jobs_that_cannot_run_begin(void **state)
{
    const struct backend *b = *state;

    for (int i = 0; i < 2; i++)
        if (i == 0 || b->can & IMAGES)
            hopeless[i] = begin_hopeless(b, i);
}

static void tells_why(const struct backend *b, int i, const char *why)
{
    struct fiber_process *p = hopeless[i] ? hopeless[i] : begin_hopeless(b, i);

    hopeless[i] = NULL;
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), why, NULL));
    fiber_process_close(p);
}

static void more_than_there_is(void **state)
{
    const struct backend *b = *state;

    tells_why(b, 0, b->no_room);
}

static void an_image_that_is_not_there(void **state)
{
    tells_why(*state, 1, no_image);
}

/* The engine's name for it: what the job itself says may come before the engine's answer does. */
static const char *job_of(struct fiber_process *p)
{
    while (!*fiber_process_job(p) && fiber_process_join(p, 10) == -ETIMEDOUT)
        ;
    return fiber_process_job(p);
}

static void a_job_that_somebody_removes(void **state)
{
    const struct backend *b = *state;
    struct word told;
    struct fiber_process *p;
    pid_t pid;

    word_open(&told);
    p = begin_telling(b, notify_wait, &told);
    word_wait(&told, &pid, sizeof(pid));
    assert_int_equal(bed("vanish", job_of(p)), 0);
    assert_true(ended(p) < 0);
    assert_int_not_equal(strlen(fiber_process_report(p)), 0);
    fiber_process_close(p);
    word_close(&told);
}

/* It may be gone before it has confirmed. */
static void notify_job(const struct word *job, int code)
{
    int rc = say(&job->address, &code, sizeof(code));

    if (rc < 0)
        fprintf(stderr, "a job was not told %d: %d: %s\n", code, rc, fiber_last_error());
    assert_true(rc == 0 || rc == -EPIPE);
}

/* What runs goes on, what ends meanwhile is known later, what is started meanwhile starts later. */
static void away(const struct backend *b, const char *goes, const char *comes, bool all_survive)
{
    int codes[] = {5, 6, 7};
    struct fiber_process *p[3];
    struct word told, job[2];

    word_open(&told);
    for (int i = 0; i < 2; i++) {
        p[i] = begin_telling(b, return_when_told, &told);
        word_wait(&told, &job[i].address, sizeof(job[i].address));
    }
    assert_int_equal(bed(goes, NULL), 0);
    notify_job(&job[0], codes[0]);
    p[2] = begin(child_return, &codes[2], sizeof(int),
                 OPTIONS(.backend = b->name, .start_timeout_ms = PATIENCE_MS));
    let_time_pass(2000); /* the engine is asked more than once meanwhile */
    assert_int_equal(fiber_process_is_alive(p[1]), 1);
    assert_int_equal(bed(comes, NULL), 0);
    if (all_survive)
        notify_job(&job[1], codes[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fiber_process_join(p[i], PATIENCE_MS), 0);
        if (i != 1 || all_survive)
            assert_int_equal(ended(p[i]), codes[i]);
        fiber_process_close(p[i]);
    }
    word_close(&told);
}

static void an_engine_that_hangs_for_some_time(void **state)
{
    away(*state, "freeze", "thaw", true);
}

static void an_engine_that_is_started_again(void **state)
{
    const struct backend *b = *state;

    away(b, "stop", "start", b->can & SURVIVES);
}

static void nothing_runs_at_the_end(void **state)
{
    assert_int_equal(bed("empty", NULL), 0);
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
    assert_true(has(fiber_process_report(p), ": the mock engine failed it", NULL));
    fiber_process_close(p);
}

static void an_engine_that_is_slow(void **state)
{
    struct fiber_process *p =
        start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100", 0);
    int code;

    assert_int_equal(finish(p), 7);
    p = start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100000", 50);
    assert_int_equal(ended(p), CANNOT_START);
    assert_true(has(fiber_process_report(p), "did not join within",
                    "the mock engine takes its time", NULL));
    fiber_process_close(p);
    p = start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=100000", 0);
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(finish(p), -SIGTERM);
    /* The time in line does not count, unless the caller says so himself. */
    assert_int_equal(fiber_config_set("start_timeout", "2s"), 0);
    p = start_with_fault(*state, child_return, "FIBER_MOCK=slow_start=2500", 0);
    assert_int_equal(fiber_config_set("start_timeout", "60s"), 0);
    code = ended(p);
    if (code == CANNOT_START) /* this machine needs 2 s for what comes after the line */
        assert_null(strstr(fiber_process_report(p), "the mock engine takes its time"));
    else
        assert_int_equal(code, 7);
    fiber_process_close(p);
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
    struct backend b = {.name = name, .can = FAULTS};
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
    assert_true(has(fiber_process_report(p), "exit code is unknown", NULL));
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
    {"another signal", another_signal, 0},
    {"death by its own signal", death_by_its_own_signal, 0},
    {"last lines in the report", last_lines_in_the_report, 0},
    {"a bad program", a_bad_program, 0},
    {"a program that never joins", a_program_that_never_joins, 0},
    {"a hundred at once", a_hundred_at_once, 0},
    {"a killed master takes its jobs along", a_killed_master_takes_its_jobs_along, 0},
    {"jobs that cannot run begin", jobs_that_cannot_run_begin, BED},
    {"odd names", odd_names, 0},
    {"nested jobs", nested_jobs, 0},
    {"whole lines in their order", whole_lines_in_their_order, 0},
    {"more memory than asked for", more_memory_than_asked_for, MEMORY},
    {"a job that somebody removes", a_job_that_somebody_removes, BED},
    {"more than there is", more_than_there_is, BED},
    {"an image that is not there", an_image_that_is_not_there, IMAGES},
    {"an engine that hangs for some time", an_engine_that_hangs_for_some_time, BED},
    {"an engine that is started again", an_engine_that_is_started_again, BED},
    {"nothing runs at the end", nothing_runs_at_the_end, BED},
    {"an engine that refuses", an_engine_that_refuses, FAULTS},
    {"an engine that is slow", an_engine_that_is_slow, FAULTS},
    {"a job that never joins", a_job_that_never_joins, FAULTS},
    {"a job that the engine kills", a_job_that_the_engine_kills, FAULTS},
    {"a job that freezes", a_job_that_freezes, FAULTS},
    {"an end that the engine knows nothing about", an_end_that_the_engine_knows_nothing_about,
     FAULTS},
    {"a job that vanishes", a_job_that_vanishes, FAULTS},
};

/* Whether its row is to run. */
static bool chosen(const struct backend *b)
{
    const char *list = getenv("TEST_BACKENDS"), *at;
    size_t len = strlen(b->name);

    if (!list)
        return !(b->can & BED);
    for (at = list; (at = strstr(at, b->name)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
            return true;
    return false;
}

static unsigned can(const struct backend *b)
{
    bool limits = strcmp(b->name, "slurm") == 0 && getenv("TEST_BED_SLURM_CGROUP");

    return b->can | (limits ? MEMORY : 0);
}

/* Sets what our rows need: 0, or what to end with. */
static int configure(void)
{
    int rc = fiber_config_set("grace", "100ms");

    for (size_t i = 0; rc == 0 && i < COUNT(backends); i++) {
        struct fbr_error err;

        if (!chosen(&backends[i]))
            continue;
        if (!(backends[i].can & BED)) {
            rc = fiber_config_set("command_start", "env"); /* of this host */
            rc = rc < 0 ? rc : fiber_config_set("bind", "lo");
        } else if (!fbr_backend_find(backends[i].name, &err)) {
            fprintf(stderr, "skipped: %s\n", err.text);
            return SKIPPED;
        } else if (!getenv("TEST_BED")) {
            fprintf(stderr, "skipped: run it by tests/beds/run %s\n", backends[i].name);
            return SKIPPED;
        } else {
            rc = fiber_config_set("backend", backends[i].name);
        }
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[COUNT(backends) * COUNT(cases)];
    static char names[COUNT(tests)][80];
    size_t n = 0;
    int rc = fiber_init(&argc, &argv);

    if (rc == 0)
        rc = configure();
    if (rc < 0)
        fprintf(stderr, "%s\n", fiber_last_error());
    if (rc)
        return rc == SKIPPED ? rc : 1;
    if (argc > 2 && strcmp(argv[1], "master") == 0)
        return play_master(argv[2]);
    if (argc > 2 && strcmp(argv[1], "freeze") == 0)
        return play_freeze(argv[2]);
    if (argc > 2 && strcmp(argv[1], "loud") == 0)
        return play_loud(argv[2]);
    if (getenv("TEST_CASES")) /* a pattern, e.g. "docker: nested*" */
        cmocka_set_test_filter(getenv("TEST_CASES"));
    for (size_t b = 0; b < COUNT(backends); b++)
        for (size_t c = 0; c < COUNT(cases); c++) {
            if (!chosen(&backends[b]) || cases[c].needs & ~can(&backends[b]))
                continue;
            snprintf(names[n], sizeof(names[n]), "%s: %s", backends[b].name, cases[c].name);
            tests[n] = (struct CMUnitTest){.name = names[n],
                                           .test_func = cases[c].run,
                                           .initial_state = (void *)(uintptr_t)&backends[b]};
            n++;
        }
    return _cmocka_run_group_tests("conformance", tests, n, NULL, NULL);
}
