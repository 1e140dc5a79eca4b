/* stack_test.c - what is told of processes: records, the texts of /proc, and our own children, which go on as before.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/inspect/message.h"
#include "runtime/program/module.h"
#include "runtime/inspect/stack.h"
#include "runtime/inspect/exec.h"

/* ---- Records and texts ---- */

static void what_is_written_is_read(void **state)
{
    struct fbr_stack_process p = {.pid = 7, .parent = 6, .rank = 3, .state = 'S', .cpu_ms = 1500},
                             q;
    struct fbr_stack_thread *t = fbr_stack_add_thread(&p);
    struct fbr_stack_frame *f = fbr_stack_add_frame(t);
    struct fbr_cur c;
    struct fbr_buf b = {0};

    t->tid = 7;
    t->state = 'S';
    t->cut = true;
    snprintf(t->call, sizeof(t->call), "futex");
    snprintf(f->function, sizeof(f->function), "main");
    f->offset = 12;
    assert_non_null(fbr_stack_add_thread(&p));
    fbr_stack_put(&b, &p);
    fbr_stack_put(&b, &p);
    c = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_stack_get(&c, &q), 1);
    assert_int_equal(q.rank, 3);
    assert_int_equal(q.cpu_ms, 1500);
    assert_int_equal(q.nthreads, 2);
    assert_true(q.threads[0].cut);
    assert_string_equal(q.threads[0].call, "futex");
    assert_int_equal(q.threads[0].nframes, 1);
    assert_string_equal(q.threads[0].frames[0].function, "main");
    assert_int_equal(q.threads[0].frames[0].offset, 12);
    assert_int_equal(q.threads[1].state, '?'); /* none was known */
    fbr_stack_fini(&q);
    assert_int_equal(fbr_stack_get(&c, &q), 1);
    fbr_stack_fini(&q);
    assert_int_equal(fbr_stack_get(&c, &q), 0);
    for (size_t n = 1; n < b.len / 2; n++) { /* cut anywhere, it is none */
        c = fbr_cur(b.data, n);
        assert_int_equal(fbr_stack_get(&c, &q), -EBADMSG);
    }
    fbr_buf_fini(&b);
    fbr_stack_fini(&p);
}

static void no_more_is_taken_than_there_may_be(void **state)
{
    struct fbr_stack_process p = {.pid = 1};
    struct fbr_stack_thread *t = fbr_stack_add_thread(&p);

    for (int i = 0; i < FBR_STACK_FRAMES; i++)
        assert_non_null(fbr_stack_add_frame(t));
    assert_null(fbr_stack_add_frame(t));
    for (int i = 1; i < FBR_STACK_THREADS; i++)
        assert_non_null(fbr_stack_add_thread(&p));
    assert_null(fbr_stack_add_thread(&p));
    fbr_stack_fini(&p);
}

static void a_stat_is_read_whatever_the_program_is_called(void **state)
{
    struct fbr_stack_stat s;

    assert_true(
        fbr_stack_stat("12 (a) b (c) S 4 1 1 0 -1 4194304 1 2 3 4 50 7 0 0 20 0 1 0 8 9 11", &s));
    assert_int_equal(s.pid, 12);
    assert_int_equal(s.parent, 4);
    assert_int_equal(s.state, 'S');
    assert_int_equal(s.ticks, 57);
    assert_int_equal(s.pages, 11);
    assert_string_equal(s.name, "a) b (c");
    assert_false(fbr_stack_stat("", &s));
    assert_false(fbr_stack_stat("12 (a", &s));
    assert_false(fbr_stack_stat("12 )a( S 4", &s));
    assert_false(fbr_stack_stat("12 (a) S 4 1 1", &s));
}

static void calls_have_names(void **state)
{
    char out[32];

    fbr_stack_call("running\n", out, sizeof(out));
    assert_string_equal(out, "");
    fbr_stack_call("-1 0x7ffd 0x7f\n", out, sizeof(out));
    assert_string_equal(out, "");
    fbr_stack_call("99999 0x1\n", out, sizeof(out));
    assert_string_equal(out, "syscall 99999");
}

/* ---- Processes ---- */

/* Where the child waits; named, so that it is found on the stack. */
__attribute__((noinline)) void wait_in_here(int ready, int gate);
void wait_in_here(int ready, int gate)
{
    char byte;

    while (write(ready, "", 1) == 1 && read(gate, &byte, 1) < 0)
        ;
    _exit(42);
}

struct child {
    pid_t pid;
    int gate; /* when it closes, the child exits with 42 */
};

/* A copy of us that waits for the gate: as a rank is started, it lets us look at it. */
static struct child start_child(bool dumpable)
{
    struct child c = {0};
    int gate[2], ready[2];
    char byte;

    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    c.pid = fork();
    if (c.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, (unsigned long)getppid());
        prctl(PR_SET_DUMPABLE, dumpable);
        close(gate[1]);
        wait_in_here(ready[1], gate[0]);
    }
    close(gate[0]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    c.gate = gate[1];
    return c;
}

/* It has gone on as if nothing had happened. */
static void end_child(struct child *c)
{
    int status;

    close(c->gate);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

/* What fbr_stack_serve() tells of that process. */
static struct fbr_stack_process look(pid_t pid)
{
    struct fbr_stack_process p, found = {.pid = 0};
    struct fbr_error err;
    struct fbr_buf b = {0};
    struct fbr_cur c;

    assert_int_equal(fbr_stack_serve(&b, &err), 0);
    c = fbr_cur(b.data, b.len);
    while (fbr_stack_get(&c, &p) > 0) {
        assert_string_not_equal(p.program, FBR_STACK_PROGRAM);
        if (p.pid == (uint32_t)pid)
            found = p;
        else
            fbr_stack_fini(&p);
    }
    fbr_buf_fini(&b);
    assert_int_equal(found.pid, pid);
    return found;
}

static bool can_walk(void)
{
    char path[PATH_MAX];

    return fbr_module_program(FBR_STACK_PROGRAM, path, sizeof(path), NULL) == 0;
}

static bool is_on(const struct fbr_stack_thread *t, const char *function)
{
    for (uint32_t i = 0; i < t->nframes; i++)
        if (!strcmp(t->frames[i].function, function))
            return true;
    return false;
}

static void check_walked(const struct fbr_stack_process *p, const char *function)
{
    if (can_walk()) {
        assert_string_equal(p->why, "");
        assert_string_equal(p->threads[0].why, "");
        assert_true(is_on(&p->threads[0], function));
    } else {
        assert_non_null(strstr(p->why, "libdw"));
        assert_int_equal(p->threads[0].nframes, 0);
    }
}

static void a_child_is_seen_where_it_waits(void **state)
{
    struct child c = start_child(true);
    struct fbr_stack_process p;

    for (int i = 0; i < 5; i++) {
        p = look(c.pid);
        assert_int_equal(p.parent, getpid());
        assert_true(p.nthreads >= 1); /* sanitizers have one, too */
        assert_false(p.visited);
        check_walked(&p, "wait_in_here");
        fbr_stack_fini(&p);
    }
    end_child(&c);
}

static char read_state(pid_t pid)
{
    struct fbr_stack_list l;
    char state;

    assert_int_equal(fbr_stack_look("/proc", (uint32_t)pid, &l, NULL), 0);
    state = l.all[0].state;
    fbr_stack_list_fini(&l);
    return state;
}

static void a_stopped_one_is_seen_and_stays_stopped(void **state)
{
    struct child c = start_child(true);
    struct fbr_stack_process p;
    int status;

    assert_int_equal(kill(c.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
    p = look(c.pid);
    assert_int_equal(p.state, 'T');
    check_walked(&p, "wait_in_here");
    fbr_stack_fini(&p);
    while (read_state(c.pid) != 'T') /* the kernel lets it go back to that */
        ;
    assert_int_equal(kill(c.pid, SIGCONT), 0);
    end_child(&c);
}

/* A copy of us that no signal wakes but SIGKILL, until there is a byte at the gate; then it says so
 * and exits with 42. */
static pid_t start_held(const int gate[2], const int told[2])
{
    int ready[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, (unsigned long)getppid());
        close(gate[1]);
        if (vfork() == 0) /* who has called it waits in the kernel for the end of this one */
            _exit(write(ready[1], "", 1) != 1 || read(gate[0], &byte, 1) != 1);
        _exit(write(told[1], "", 1) == 1 ? 42 : 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* fiber-stack on `first`, then on `then` for as long as anybody reads what it says. */
static pid_t start_looking(pid_t first, pid_t then, int *out)
{
    enum { TIMES = 8000 };
    static char *argv[TIMES + 3], numbers[2][16];
    char path[PATH_MAX];
    int ends[2];
    pid_t pid;

    assert_int_equal(fbr_module_program(FBR_STACK_PROGRAM, path, sizeof(path), NULL), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    snprintf(numbers[0], sizeof(numbers[0]), "%d", (int)first);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", (int)then);
    argv[0] = path;
    argv[1] = numbers[0];
    for (int i = 0; i < TIMES; i++)
        argv[2 + i] = numbers[1];
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv(path, argv);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

static void a_thread_that_stops_too_late_goes_on_while_others_are_looked_at(void **state)
{
    int gate[2], told[2], out, status;
    pid_t held, looking;
    struct child other;
    char bytes[4096];

    if (!can_walk())
        skip();
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    other = start_child(true);
    held = start_held(gate, told);
    looking = start_looking(held, other.pid, &out);
    assert_true(read(out, bytes, sizeof(bytes)) > 0); /* its time was over */
    assert_int_equal(write(gate[1], "", 1), 1);
    for (;;) {
        struct pollfd p[2] = {{.fd = told[0], .events = POLLIN}, {.fd = out, .events = POLLIN}};

        assert_true(poll(p, 2, -1) > 0);
        if (p[0].revents)
            break;
        assert_true(read(out, bytes, sizeof(bytes)) > 0); /* it looks at the other one still */
    }
    assert_int_equal(waitpid(held, &status, 0), held);
    assert_int_equal(WEXITSTATUS(status), 42);
    kill(looking, SIGKILL); /* it has not ended by itself, by which all would go on */
    assert_int_equal(waitpid(looking, &status, 0), looking);
    assert_true(WIFSIGNALED(status));
    end_child(&other);
    close(out);
    for (int i = 0; i < 2; i++) {
        close(gate[i]);
        close(told[i]);
    }
}

static void one_that_has_ended_is_told_so(void **state)
{
    struct child c = start_child(true);
    struct fbr_stack_process p;
    siginfo_t how;

    close(c.gate);
    assert_int_equal(waitid(P_PID, (id_t)c.pid, &how, WEXITED | WNOWAIT), 0);
    c.gate = open("/dev/null", O_RDONLY);
    p = look(c.pid);
    assert_int_equal(p.state, 'Z');
    assert_non_null(strstr(p.why, "has ended"));
    fbr_stack_fini(&p);
    end_child(&c);
}

static void what_may_not_be_traced_is_told_why(void **state)
{
    struct child c = start_child(false);
    struct fbr_stack_process p;

    p = look(c.pid);
    if (geteuid() != 0 && can_walk()) /* root may */
        assert_non_null(strstr(p.why, "may not be traced"));
    assert_true(p.nthreads >= 1); /* sanitizers have one, too */
    fbr_stack_fini(&p);
    end_child(&c);
}

/* ---- By way of a visitor, with threads of our own ---- */

static void *serve(void *arg)
{
    fbr_exec_server_serve((int)(intptr_t)arg);
    return NULL;
}

static void a_visitor_is_told_of_the_visited_one(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_msg m = {.kind = 0};
    char host[FBR_MSG_TEXT] = "";
    struct fbr_stack_process p;
    int ends[2], rc, code;
    pthread_t thread;
    struct fbr_buf b = {0};
    struct fbr_cur c;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]), 0);
    assert_int_equal(fbr_msg_send(ends[0], FBR_MSG_STACK, NULL, 0), 0);
    while ((rc = fbr_msg_recv(ends[0], &m, &err)) == FBR_MSG_DATA)
        fbr_put(&b, m.body.at, fbr_cur_left(&m.body));
    assert_int_equal(rc, FBR_MSG_DONE);
    assert_true(fbr_msg_get_done(&m.body, &code, host));
    assert_int_equal(code, 0);
    assert_true(host[0]);
    fbr_buf_fini(&m.bytes);
    pthread_join(thread, NULL);
    close(ends[0]);
    c = fbr_cur(b.data, b.len);
    assert_int_equal(fbr_stack_get(&c, &p), 1);
    assert_true(p.visited);
    assert_int_equal(p.pid, getpid());
    assert_int_equal(p.rank, -1);
    check_walked(&p, "a_visitor_is_told_of_the_visited_one");
    fbr_stack_fini(&p);
    fbr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(no_more_is_taken_than_there_may_be),
        cmocka_unit_test(a_stat_is_read_whatever_the_program_is_called),
        cmocka_unit_test(calls_have_names),
        cmocka_unit_test(a_child_is_seen_where_it_waits),
        cmocka_unit_test(a_stopped_one_is_seen_and_stays_stopped),
        cmocka_unit_test(a_thread_that_stops_too_late_goes_on_while_others_are_looked_at),
        cmocka_unit_test(one_that_has_ended_is_told_so),
        cmocka_unit_test(what_may_not_be_traced_is_told_why),
        cmocka_unit_test(a_visitor_is_told_of_the_visited_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
