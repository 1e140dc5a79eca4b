/* command_detached_test.c - jobs of a manager that prints an id and leaves: their lives, by what its
 * commands say.
 *
 * The manager is a script in a directory of the test, which also has what the commands are to say,
 * and what they were told.
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
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/tool/tool.h"
#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

extern const struct fbr_backend_ops fbr_backend_command;
static const struct fbr_backend_ops *const command = &fbr_backend_command;

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* submit NAME: waits for a line of the FIFO `gate` if there is one, then says what `said` has.
 * cancel, status: hang where there is a FIFO `hang`; a status else says what `states` has; where there is a `flip`,
 * every other time nothing. A file `away` makes one cancel fail. A file `bad` has what both fail with: a status
 * fails that finds it before or after it has read `states`. */
static const char manager[] =
    "#!/bin/sh\n"
    "cd \"$(dirname \"$0\")\" || exit 9\n"
    "echo \"$*\" >>told\n"
    "echo >news\n"
    "case $1 in\n"
    "submit) [ ! -p gate ] || read -r line <gate\n"
    "    [ ! -f bad ] || { cat bad >&2; exit 3; }\n"
    "    if [ -f said ]; then cat said; else echo \"Submitted job $2\"; fi ;;\n"
    "status) [ ! -p hang ] || { echo hangs >>told; echo >news; exec cat hang; }\n"
    "    [ ! -f flip ] || if [ -f odd ]; then rm odd; else : >odd; exit 0; fi\n"
    "    away=; [ ! -f bad ] || away=1; cat states; [ ! -f bad ] || away=1\n"
    "    [ -z \"$away\" ] || { cat bad >&2; exit 1; } ;;\n"
    "cancel) [ ! -p hang ] || exec cat hang\n"
    "    [ ! -f away ] || { rm away; echo 'cannot connect' >&2; exit 1; } ;;\n"
    "logs) echo \"output of $2\" ;;\n"
    "esac\n";

#define RUNNING "a R\nb R\nc R\n" /* a job that a status leaves out is soon forgotten */

static struct {
    char dir[64];
    int news; /* a FIFO that has a line for each command */
    struct fbr_loop *loop;
    struct fbr_config *config;
    struct fbr_backend_env env;
    struct fbr_backend *backend;
    struct fbr_error err;
    atomic_uint limit_ms; /* 0: as the backend says */
    atomic_bool is_full;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    char events[1000]; /* "a started 17; a exited 0; " */
} m = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- Limits ---- */

int __real_fbr_tool_run(struct fbr_tools *t, const struct fbr_tool *tool, struct fbr_error *err);
int __wrap_fbr_tool_run(struct fbr_tools *t, const struct fbr_tool *tool, struct fbr_error *err);

/* What has a limit has a short one where a test says so. */
int __wrap_fbr_tool_run(struct fbr_tools *t, const struct fbr_tool *tool, struct fbr_error *err)
{
    struct fbr_tool quick = *tool;

    if (m.limit_ms && quick.limit_ms)
        quick.limit_ms = m.limit_ms;
    return __real_fbr_tool_run(t, &quick, err);
}

int __real_fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms,
                         struct fbr_buf *out, struct fbr_buf *said, int32_t *code,
                         struct fbr_error *err);
int __wrap_fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms,
                         struct fbr_buf *out, struct fbr_buf *said, int32_t *code,
                         struct fbr_error *err);

int __wrap_fbr_tool_wait(const struct fbr_args *words, char *const *env, unsigned ms,
                         struct fbr_buf *out, struct fbr_buf *said, int32_t *code,
                         struct fbr_error *err)
{
    ms = m.limit_ms && m.limit_ms < ms ? m.limit_ms : ms;
    return __real_fbr_tool_wait(words, env, ms, out, said, code, err);
}

int __real_close(int fd);
int __wrap_close(int fd);

/* As on a remote file system that is full. */
int __wrap_close(int fd)
{
    int rc = __real_close(fd);

    if (!m.is_full)
        return rc;
    errno = EDQUOT;
    return -1;
}

/* ---- Events ---- */

static void on_event(void *user, const struct fbr_job_event *e)
{
    static const char *const names[] = {[FBR_JOB_STARTED] = "started",
                                        [FBR_JOB_PENDING] = "pending",
                                        [FBR_JOB_OUTPUT] = "output",
                                        [FBR_JOB_EXITED] = "exited"};
    char text[300];

    if (e->type == FBR_JOB_EXITED)
        snprintf(text, sizeof(text), "%s exited %d%s%s; ", (const char *)user, (int)e->code,
                 e->text[0] ? " " : "", e->text);
    else
        snprintf(text, sizeof(text), "%s %s %.*s; ", (const char *)user, names[e->type],
                 e->type == FBR_JOB_OUTPUT ? (int)e->len : (int)strlen(e->text),
                 e->type == FBR_JOB_OUTPUT ? (const char *)e->data : e->text);
    pthread_mutex_lock(&m.lock);
    if (!strstr(m.events, text)) /* a state is told at each look */
        strncat(m.events, text, sizeof(m.events) - strlen(m.events) - 1);
    pthread_cond_broadcast(&m.changed);
    pthread_mutex_unlock(&m.lock);
}

/* Waits until that has been told. */
static void hears(const char *part)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TEST_LONG_MS / 1000;
    pthread_mutex_lock(&m.lock);
    while (!strstr(m.events, part) && rc == 0)
        rc = pthread_cond_timedwait(&m.changed, &m.lock, &until);
    pthread_mutex_unlock(&m.lock);
    if (rc != 0)
        fail_msg("no \"%s\" in \"%s\"", part, m.events);
}

static bool has_heard(const char *part)
{
    bool yes;

    pthread_mutex_lock(&m.lock);
    yes = strstr(m.events, part);
    pthread_mutex_unlock(&m.lock);
    return yes;
}

/* ---- The manager ---- */

/* In place of what that file had, at once. */
static void put(const char *name, const char *text)
{
    char path[100], made[108];

    snprintf(path, sizeof(path), "%s/%s", m.dir, name);
    snprintf(made, sizeof(made), "%s.new", path);
    file_make(made, text, strlen(text), 0600);
    assert_int_equal(rename(made, path), 0);
}

static const char *told(void)
{
    static char text[4000];
    int fd = open(path_in(m.dir, "told"), O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Waits until the manager has been told that so often. */
static void is_told(const char *line, int times)
{
    struct pollfd p = {.fd = m.news, .events = POLLIN};
    char bytes[64];

    while (count_of(told(), line) < times)
        if (poll(&p, 1, TEST_LONG_MS) <= 0 || read(m.news, bytes, sizeof(bytes)) < 0)
            fail_msg("no \"%s\" in \"%s\"", line, told());
}

static int do_open(void *arg)
{
    return command->open(&m.backend, &m.env, &m.err);
}

static int do_close(void *arg)
{
    if (m.backend)
        command->close(m.backend);
    m.backend = NULL;
    return 0;
}

/* Settings of the manager's file, and what it has in addition. */
static int open_with(const char *more)
{
    char text[1500];

    snprintf(text, sizeof(text),
             "kind = detached\nstart = %s/manager submit {name} {program}\n"
             "status = %s/manager status {ids}\ncancel = %s/manager cancel {id}\n"
             "poll_ms = 50\nticket_dir = %s\npending = PD\nrunning = R\ndone = CD\nfailed = F\n"
             "killed = CA\nlost = NF\n%s",
             m.dir, m.dir, m.dir, m.dir, more);
    put("command.conf", text);
    m.config = fbr_config_new();
    assert_non_null(m.config);
    if (fbr_config_set(m.config, "command_file", path_in(m.dir, "command.conf"), "test", &m.err) <
        0)
        fail_msg("%s", m.err.text);
    m.env = (struct fbr_backend_env){m.loop, m.config, on_event, NULL};
    return fbr_loop_call(m.loop, do_open, NULL);
}

static int set_up(void **state)
{
    temp_dir_make(m.dir);
    file_make(path_in(m.dir, "manager"), manager, sizeof(manager) - 1, 0700);
    put("states", RUNNING);
    assert_int_equal(mkfifo(path_in(m.dir, "news"), 0600), 0);
    m.news = open(path_in(m.dir, "news"), O_RDWR | O_CLOEXEC);
    assert_true(m.news >= 0);
    m.events[0] = '\0';
    m.err = (struct fbr_error){0, ""};
    m.limit_ms = 0;
    return fbr_loop_open(&m.loop, &m.err);
}

static int tear_down(void **state)
{
    fbr_loop_call(m.loop, do_close, NULL);
    fbr_loop_close(m.loop);
    fbr_config_free(m.config);
    m.config = NULL;
    close(m.news);
    temp_dir_remove(m.dir);
    return 0;
}

#define detached_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* ---- Jobs ---- */

struct job {
    char name[8];
    void *handle;
    int sig;
};

static int do_start(void *arg)
{
    static char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    struct job *j = arg;
    const struct fbr_job job = {.name = j->name,
                                .run_uid = "1f",
                                .file = "true",
                                .argv = argv,
                                .ticket = "secret",
                                .ticket_len = 6};

    return command->start(m.backend, &job, j->name, &j->handle, &m.err);
}

static void start(struct job *j, const char *name)
{
    memset(j, 0, sizeof(*j));
    snprintf(j->name, sizeof(j->name), "%s", name);
    assert_int_equal(fbr_loop_call(m.loop, do_start, j), 0);
}

static int do_signal(void *arg)
{
    struct job *j = arg;

    return command->signal(m.backend, j->handle, j->sig);
}

static int send_signal(struct job *j, int sig)
{
    j->sig = sig;
    return fbr_loop_call(m.loop, do_signal, j);
}

static int do_release(void *arg)
{
    command->release(m.backend, ((struct job *)arg)->handle);
    return 0;
}

static void release(struct job *j)
{
    fbr_loop_call(m.loop, do_release, j);
}

/* ---- States ---- */

static void a_job_lives_by_what_the_status_says(void **state)
{
    struct job a, b;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    start(&b, "b");
    hears("a started a; ");
    hears("b started b; ");
    put("states", "a PD no node is free\nb PD\n");
    hears("a pending no node is free; ");
    hears("b pending PD; ");
    put("states", "a R\nb CD 0\n");
    hears("b exited 0; ");
    hears("a pending it runs: ");
    assert_false(has_heard("a exited"));
    put("states", "a F 7\n");
    hears("a exited 7; ");
    release(&a);
    release(&b);
}

static void states_become_codes(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"a CD\n", "a exited 0; "},
        {"a CD 0\n", "a exited 0; "},
        {"a CD 5\n", "a exited 5; "}, /* its own code is one of it */
        {"a\tCD\t5\n", "a exited 5; "},
        {"a|CD|5:0\n", "a exited 5; "},
        {"a | F | 5\n", "a exited 5; "},
        {"a STRANGE\na CD 4\n", "a exited 4; "},
        {"a F\n", "a exited 1; "},
        {"a F 0\n", "a exited 1; "}, /* failed, whatever the code is */
        {"a F 256\n", "a exited 1; "},
        {"a F 255\n", "a exited 255; "},
        {"a F why not\n", "a exited 1; "},
        {"a CA\n", "a exited -9; "},
        {"a NF\n", "the manager lost it; "},
        {"other F 3\n\n | \na CD\nb CA\n", "a exited 0; "},
        {"a STRANGE 4\n", ""}, /* no key says what that means */
    };

    assert_int_equal(open_with(""), 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct job a;

        m.events[0] = '\0';
        put("states", RUNNING);
        start(&a, "a");
        hears("a started a; ");
        put("states", cases[i].line);
        if (cases[i].want[0]) {
            hears(cases[i].want);
        } else {
            int looks = count_of(told(), "status");

            is_told("status", looks + 2);
            assert_false(has_heard("exited"));
            put("states", "a CD\n");
            hears("a exited 0; ");
        }
        release(&a);
    }
}

static void only_a_status_that_succeeds_can_forget_a_job(void **state)
{
    struct job a;
    int looks;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    hears("a started a; ");
    put("bad", "the manager is away\n");
    put("states", "a CD\n"); /* what a command says that fails counts for nothing */
    looks = count_of(told(), "status");
    is_told("status", looks + 5);
    assert_false(has_heard("exited"));
    put("states", "");
    assert_int_equal(unlink(path_in(m.dir, "bad")), 0);
    hears("the manager no longer knows it; ");
    release(&a);
}

static void a_status_that_hangs_is_asked_again(void **state)
{
    struct job a;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    hears("a started a; ");
    m.limit_ms = 300;
    assert_int_equal(mkfifo(path_in(m.dir, "hang"), 0600), 0);
    is_told("hangs", 2);
    put("states", "a CD\n");
    assert_int_equal(unlink(path_in(m.dir, "hang")), 0);
    m.limit_ms = 0; /* the machine may be slow */
    hears("a exited 0; ");
    release(&a);
}

/* Three in succession: a manager that leaves a job out now and then still knows it. */
static void a_job_that_is_left_out_now_and_then_lives(void **state)
{
    struct job a;
    int looks;

    assert_int_equal(open_with(""), 0);
    put("flip", "");
    start(&a, "a");
    hears("a started a; ");
    looks = count_of(told(), "status");
    is_told("status", looks + 9);
    assert_false(has_heard("exited"));
    put("states", "a CD\n");
    hears("a exited 0; ");
    release(&a);
}

/* ---- Starting ---- */

static void an_id_is_found_in_what_the_start_says(void **state)
{
    static const struct {
        const char *pattern, *said, *want;
    } cases[] = {
        {"", "Submitted batch job 17\n", "a started 17; "},
        {"", "17", "a started 17; "},
        {"", "hello\n\nid is 18 \n\n", "a started 18; "},
        {"id = job ([0-9]+)\n", "job 19 (queue)\n", "a started 19; "},
        {"id = <([^>]*)>\n", "Job <20> is submitted\n", "a started 20; "},
        {"id = job ([0-9]+)\n", "nothing\n",
         "a exited 125 the start command printed no id: 'nothing\n'; "},
        {"", "", "a exited 125 the start command printed no id: ''; "},
        {"id = <([^>]*)>\n", "Job <>\n", "a exited 125 the start command printed no id: "},
        {"", "-rf\n", "a exited 125 the start command printed no id: '-rf\n'; "},
        {"",
         "0123456789012345678901234567890123456789012345678901234567890123"
         "0123456789012345678901234567890123456789012345678901234567890123\n",
         "a exited 125 the start command printed no id: "},
    };

    char more[100];

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct job a;

        snprintf(more, sizeof(more), "poll_ms = 3600000\n%s", cases[i].pattern);
        assert_int_equal(open_with(more), 0);
        m.events[0] = '\0';
        put("said", cases[i].said);
        start(&a, "a");
        hears(cases[i].want);
        release(&a);
        fbr_loop_call(m.loop, do_close, NULL);
        fbr_config_free(m.config);
    }
    assert_int_equal(open_with(""), 0);
}

static void a_pattern_without_a_group_is_refused(void **state)
{
    static const char *const patterns[] = {"id = [0-9]+\n", "id = (\n", "id = ([0-9\n"};

    for (size_t i = 0; i < COUNT(patterns); i++) {
        assert_int_equal(open_with(patterns[i]), -EINVAL);
        assert_non_null(
            strstr(m.err.text, ": not an extended regular expression with a group in ()"));
        fbr_config_free(m.config);
    }
    assert_int_equal(open_with(""), 0);
}

/* A command might take it for an option. */
static void what_is_no_id_is_given_to_no_command(void **state)
{
    char logs[120];
    struct job a;

    snprintf(logs, sizeof(logs), "logs = %s/manager logs {id}\n", m.dir);
    assert_int_equal(open_with(logs), 0);
    put("said", "-rf\n");
    start(&a, "a");
    hears("a exited 125 the start command printed no id: '-rf\n'; ");
    assert_null(strstr(told(), "logs"));
    release(&a);
}

static void a_start_that_fails_is_the_jobs_end(void **state)
{
    struct job a;

    assert_int_equal(open_with("logs = /bin/false\n"), 0); /* without an id nobody asks for logs */
    put("bad", "first line\nqueue batch is closed\n");
    start(&a, "a");
    hears("a exited 125 the start command ended with code 3: queue batch is closed; ");
    assert_false(has_heard("started"));
    release(&a);
}

static void a_ticket_that_is_not_written_is_an_error(void **state)
{
    struct job a = {.name = "a"};

    assert_int_equal(open_with(""), 0);
    m.is_full = true;
    assert_int_equal(fbr_loop_call(m.loop, do_start, &a), -EDQUOT);
    m.is_full = false;
    assert_non_null(strstr(m.err.text, "cannot write its ticket to "));
    assert_null(a.handle);
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 0);
    assert_string_equal(told(), "");
}

/* What the start command of a job waits for. */
static int open_gate(void)
{
    int gate;

    assert_int_equal(mkfifo(path_in(m.dir, "gate"), 0600), 0);
    gate = open(path_in(m.dir, "gate"), O_RDWR);
    assert_true(gate >= 0);
    return gate;
}

/* As many as may be started at once read a gate; the others wait in the backend. */
static void no_more_start_at_once_than_is_allowed(void **state)
{
    struct job jobs[3];
    int gate;

    assert_int_equal(open_with("starts = 1\n"), 0);
    gate = open_gate();
    start(&jobs[0], "a");
    start(&jobs[1], "b");
    start(&jobs[2], "c");
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 3);
    is_told("submit", 1);
    assert_int_equal(send_signal(&jobs[1], SIGKILL),
                     0); /* one that waits need not be started at all */
    hears("b exited -9; ");
    assert_int_equal(count_of(told(), "submit"), 1);
    assert_int_equal(write(gate, "\n", 1), 1);
    hears("a started a; ");
    is_told("submit", 2);
    assert_int_equal(write(gate, "\n", 1), 1);
    hears("c started c; ");
    assert_null(strstr(told(), "submit b"));
    close(gate);
    put("states", "a CD\nc CD\n");
    hears("a exited 0; ");
    hears("c exited 0; ");
    for (size_t i = 0; i < COUNT(jobs); i++)
        release(&jobs[i]);
}

/* Its place is free for others then. */
static void a_start_that_hangs_is_given_up(void **state)
{
    struct job jobs[2];
    int gate;

    assert_int_equal(open_with("starts = 1\n"), 0);
    gate = open_gate();
    m.limit_ms = 300;
    start(&jobs[0], "a");
    start(&jobs[1], "b");
    hears("a exited 125 the start command ended with code -9");
    is_told("submit b", 1);
    close(gate);
    for (size_t i = 0; i < COUNT(jobs); i++)
        release(&jobs[i]);
}

/* ---- Ending ---- */

/* A job that was not started yet is ended only by a signal that ends programs. */
static void a_job_that_waits_for_its_start_outlives_other_signals(void **state)
{
    struct job jobs[2];
    int gate;

    assert_int_equal(open_with("kind = attached\nstarts = 1\n"), 0);
    gate = open_gate();
    start(&jobs[0], "a");
    start(&jobs[1], "b");
    hears("b pending waits for its turn"); /* start_timeout does not count yet */
    is_told("submit a", 1);
    assert_int_equal(send_signal(&jobs[1], SIGUSR1), -ENOTSUP);
    assert_int_equal(write(gate, "\n\n", 2), 2);
    hears("a exited 0");
    hears("b exited 0");
    close(gate);
    release(&jobs[0]);
    release(&jobs[1]);
}

/* The job has the whole path of its ticket, wherever it runs; we have it, wherever we are then. */
static void a_relative_folder_of_tickets_is_where_we_began(void **state)
{
    struct job a;

    assert_int_equal(chdir(m.dir), 0);
    assert_int_equal(open_with("start = {shell_command}\nticket_dir = .\n"), 0);
    start(&a, "a");
    assert_int_equal(chdir("/"), 0);
    hears("a started a; ");
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 1);
    assert_non_null(strstr(told(), " FIBER_TICKET=file:/"));
    put("states", "a CD\n");
    hears("a exited 0; ");
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 0);
    release(&a);
}

static void a_signal_cancels_a_job(void **state)
{
    static const int refused[] = {SIGSTOP, SIGUSR1, SIGINT, 0};
    struct job a;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    hears("a started a; ");
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_int_equal(send_signal(&a, refused[i]), -ENOTSUP);
    assert_int_equal(send_signal(&a, SIGTERM), 0);
    is_told("cancel a\n", 1);
    put("states", "a CA\n");
    hears("a exited -9; ");
    assert_int_equal(send_signal(&a, SIGKILL), 0); /* it is over: nobody is told */
    assert_int_equal(count_of(told(), "cancel"), 1);
    release(&a);
}

static void a_cancel_that_fails_is_repeated_while_the_job_lives(void **state)
{
    struct job a, b;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    start(&b, "b");
    hears("a started a; ");
    hears("b started b; ");
    put("away", "");
    assert_int_equal(send_signal(&a, SIGTERM), 0);
    is_told("cancel a\n", 2);
    is_told("status a b\n", count_of(told(), "status a b\n") + 2);
    assert_int_equal(count_of(told(), "cancel"), 2); /* the second one has succeeded */
    put("states", "a CA\nb R\n");
    hears("a exited -9; ");
    put("away", "");
    assert_int_equal(send_signal(&b, SIGTERM), 0);
    put("states", "b CA\n");
    hears("b exited -9; ");
    release(&b); /* maybe before its cancel has ended */
    release(&a);
}

static void one_that_has_no_id_yet_is_cancelled_when_it_has(void **state)
{
    struct job a;
    int gate;

    assert_int_equal(open_with(""), 0);
    gate = open_gate();
    put("states", "a CA\n");
    start(&a, "a");
    is_told("submit a", 1);
    assert_int_equal(send_signal(&a, SIGKILL), 0);
    assert_null(strstr(told(), "cancel"));
    assert_int_equal(write(gate, "\n", 1), 1);
    is_told("cancel a\n", 1);
    hears("a exited -9; ");
    close(gate);
    release(&a);
}

static void logs_come_before_the_end_and_the_ticket_goes(void **state)
{
    char logs[120];
    struct job a;

    snprintf(logs, sizeof(logs), "logs = %s/manager logs {id}\n", m.dir);
    assert_int_equal(open_with(logs), 0);
    start(&a, "a");
    hears("a started a; ");
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 1);
    put("states", "a F 2\n");
    hears("a output output of a\n; a exited 2; ");
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 0);
    release(&a);
}

static void what_lives_at_the_end_is_cancelled(void **state)
{
    struct job jobs[2];

    assert_int_equal(open_with(""), 0);
    start(&jobs[0], "a");
    start(&jobs[1], "b");
    hears("a started a; ");
    hears("b started b; ");
    release(&jobs[1]); /* its owner has gone before */
    fbr_loop_call(m.loop, do_close, NULL);
    assert_int_equal(count_of(told(), "cancel a\n"), 1);
    assert_int_equal(count_of(told(), "cancel b\n"), 1);
    assert_false(has_heard("exited")); /* no event comes after it */
    assert_int_equal(dir_count(m.dir, "fiber-ticket-"), 0);
}

static void jobs_that_may_remain_are_told(void **state)
{
    int before = dup(STDERR_FILENO), log;
    char text[300] = "";
    struct job a;

    assert_int_equal(open_with(""), 0);
    start(&a, "a");
    hears("a started a; ");
    assert_int_equal(mkfifo(path_in(m.dir, "hang"), 0600), 0);
    m.limit_ms = 300;
    log = open(path_in(m.dir, "log"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(log >= 0);
    assert_true(dup2(log, STDERR_FILENO) >= 0);
    fbr_loop_call(m.loop, do_close, NULL);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    assert_true(pread(log, text, sizeof(text) - 1, 0) > 0);
    assert_non_null(strstr(text, "did not end within 0.3 s"));
    assert_non_null(strstr(text, "jobs may remain (1): "));
    close(before);
    close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        detached_test(a_job_lives_by_what_the_status_says),
        detached_test(states_become_codes),
        detached_test(only_a_status_that_succeeds_can_forget_a_job),
        detached_test(a_status_that_hangs_is_asked_again),
        detached_test(a_job_that_is_left_out_now_and_then_lives),
        detached_test(an_id_is_found_in_what_the_start_says),
        detached_test(a_pattern_without_a_group_is_refused),
        detached_test(what_is_no_id_is_given_to_no_command),
        detached_test(a_start_that_fails_is_the_jobs_end),
        detached_test(a_ticket_that_is_not_written_is_an_error),
        detached_test(no_more_start_at_once_than_is_allowed),
        detached_test(a_start_that_hangs_is_given_up),
        detached_test(a_job_that_waits_for_its_start_outlives_other_signals),
        detached_test(a_relative_folder_of_tickets_is_where_we_began),
        detached_test(a_signal_cancels_a_job),
        detached_test(a_cancel_that_fails_is_repeated_while_the_job_lives),
        detached_test(one_that_has_no_id_yet_is_cancelled_when_it_has),
        detached_test(logs_come_before_the_end_and_the_ticket_goes),
        detached_test(what_lives_at_the_end_is_cancelled),
        detached_test(jobs_that_may_remain_are_told),
    };

    return cmocka_run_group_tests_name("command_detached", tests, NULL, NULL);
}
