/* template_test.c - local jobs that are copies of a template, and what becomes of them without it.
 *
 * The command of the program and that of the template are this program with an argument. A template
 * writes its number into a file, so that tests can kill and stop it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "runtime/proc/process.h"
#include "tests/support/children.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_THREADS 1 /* of the sanitizer's own: there are no templates */
#else
#define HAS_THREADS 0
#endif

#define FIRST 3 /* that are not copies */
#define BAD 99
#define COPY (HAS_THREADS ? 0 : 1)

static pid_t template; /* of which this process is a copy */
static char path[] = "/tmp/template_test-XXXXXX";

/* ---- What processes do ---- */

struct wanted {
    pid_t parent;
    mode_t mask;
    char folder[PATH_MAX], value[32];
};

/* Does not set it: the loop reads it for the process that was begun before. */
static mode_t mask_now(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned mask = BAD;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && sscanf(line, "Umask: %o", &mask) != 1)
        ;
    fclose(f);
    return mask;
}

static struct wanted wanted_now(void)
{
    struct wanted w = {.parent = getpid()};
    const char *value = getenv("TEMPLATE_TEST");

    w.mask = mask_now();
    assert_non_null(getcwd(w.folder, sizeof(w.folder)));
    snprintf(w.value, sizeof(w.value), "%s", value ? value : "");
    return w;
}

/* 1 in a copy, 0 in another process, BAD in one that is not as it should be. */
static int look_around(const void *arg, size_t len)
{
    const struct wanted *w = arg;
    struct wanted have = {.mask = umask(0)};
    const char *value = getenv("TEMPLATE_TEST");

    if (getppid() != w->parent || getpgrp() != getpid() || template == getpid())
        return BAD;
    if (!getcwd(have.folder, sizeof(have.folder)) || strcmp(have.folder, w->folder) != 0)
        return BAD;
    if (have.mask != w->mask || strcmp(value ? value : "", w->value) != 0)
        return BAD;
    if (getenv("FIBER_TICKET"))
        return BAD;
    return template != 0;
}

static struct fiber_process *begin_look(void)
{
    struct wanted w = wanted_now();

    return begin(look_around, &w, sizeof(w), NULL);
}

static int look(void)
{
    return finish(begin_look());
}

/* So many of the next processes are not copies, the others are. */
static void expect(int first, int copies)
{
    for (int i = 0; i < first; i++)
        assert_int_equal(look(), 0);
    for (int i = 0; i < copies; i++)
        assert_int_equal(look(), COPY);
}

static pid_t template_now(void)
{
    FILE *f = fopen(path, "r");
    int pid = 0;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    return pid;
}

/* ---- Tests ---- */

static void test_copies_from_the_fourth_on(void **state)
{
    expect(FIRST, 5);
}

static void test_many_at_once(void **state)
{
    struct fiber_process *many[40];

    for (size_t i = 0; i < 40; i++)
        many[i] = begin_look();
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(finish(many[i]), COPY);
}

static void test_a_folder_of_its_own(void **state)
{
    char before[PATH_MAX];

    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir("/tmp"), 0);
    expect(0, 2);
    assert_int_equal(chdir(before), 0);
}

static void test_a_copy_fits_or_is_none(void **state)
{
    mode_t before = umask(0);

    umask(before);
    setenv("TEMPLATE_TEST", "other", 1);
    expect(FIRST, 2);
    unsetenv("TEMPLATE_TEST");
    expect(FIRST, 2);
    umask(before ^ 0011);
    expect(FIRST, 2);
    umask(before);
    expect(FIRST, 2);
}

static void test_signals_and_codes(void **state)
{
    struct fiber_process *p = begin(child_wait, NULL, 0, NULL);
    int code = 42;

    assert_int_equal(finish(begin(child_return, &code, sizeof(code), NULL)), 42);
    assert_int_equal(fiber_process_kill(p), 0);
    assert_int_equal(finish(p), -SIGKILL);
    p = begin(child_wait, NULL, 0, NULL);
    assert_int_equal(fiber_process_wait_joined(p, TEST_LONG_MS), 0);
    assert_int_equal(fiber_process_terminate(p), 0);
    assert_int_equal(finish(p), -SIGTERM);
}

/* Neither as a copy nor otherwise; the program learns of it as of any process that ends. */
static void test_one_that_cannot_be_started(void **state)
{
    const struct fiber_process_options o = {.size = sizeof(o),
                                            .job = {.workdir = "/tmp/not/there"}};
    struct fiber_process *p;
    int code = 0;

    if (HAS_THREADS)
        skip();
    expect(0, 1);
    p = begin(child_return, &code, sizeof(code), &o);
    assert_int_equal(ended(p), 125);
    assert_true(has(fiber_process_report(p), "could not be started", "working directory", NULL));
    assert_true(fbr_process_cannot_run(p)); /* nor could another one: a pool gives up soon */
    fiber_process_close(p);
    for (int i = 0; i < 20; i++) /* closed while it is started */
        fiber_process_close(begin(child_return, &code, sizeof(code), &o));
    expect(0, 1);
}

static void test_a_killed_template_takes_nothing_with_it(void **state)
{
    struct fiber_process *lives = begin(child_wait, NULL, 0, NULL);

    if (HAS_THREADS)
        skip();
    assert_int_equal(fiber_process_wait_joined(lives, TEST_LONG_MS), 0);
    assert_int_equal(kill(template_now(), SIGKILL), 0);
    for (int i = 0; i < 12; i++)
        assert_in_range(look(), 0, 1);
    assert_int_equal(look(), COPY); /* of another one */
    assert_int_equal(fiber_process_join(lives, 0), -ETIMEDOUT);
    assert_int_equal(fiber_process_kill(lives), 0);
    assert_int_equal(finish(lives), -SIGKILL);
}

static void test_a_frozen_template_is_done_without(void **state)
{
    struct fiber_process *late[3];

    if (HAS_THREADS)
        skip();
    assert_int_equal(look(), COPY);
    assert_int_equal(kill(template_now(), SIGSTOP), 0);
    for (int i = 0; i < 3; i++)
        late[i] = begin_look();
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish(late[i]), 0);
    expect(FIRST, 1);
}

/* Whose template cannot serve: it ends, or has a thread. */
static void test_templates_that_fail(void **state)
{
    const char *const how[] = {"end", "thread"};

    for (int i = 0; i < 2; i++) {
        setenv("TEMPLATE_TEST", how[i], 1);
        expect(FIRST + 2, 0);
        unsetenv("TEMPLATE_TEST");
        expect(FIRST, 2);
    }
}

static void test_it_can_be_turned_off(void **state)
{
    assert_int_equal(fiber_config_set("template", "false"), 0);
    expect(5, 0);
    assert_int_equal(fiber_config_set("template", "true"), 0);
    assert_int_equal(fiber_template(NULL), 0);
    expect(5, 0);
    assert_int_equal(fiber_template((const char *const[]){NULL}), -EINVAL);
}

static void test_who_is_no_template_is_told(void **state)
{
    assert_int_equal(fiber_template_serve(), -ENOTSUP);
}

static void test_nothing_is_left(void **state)
{
    fiber_fini();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* ---- The template ---- */

static void *idle(void *arg)
{
    pause();
    return NULL;
}

static int serve(void)
{
    const char *how = getenv("TEMPLATE_TEST"), *file = getenv("TEMPLATE_FILE");
    FILE *f = file ? fopen(file, "w") : NULL;
    pthread_t thread;

    if (!f || fprintf(f, "%d", (int)getpid()) < 0 || fclose(f) != 0)
        return -1;
    if (how && strcmp(how, "end") == 0)
        return -1;
    if (how && strcmp(how, "thread") == 0)
        pthread_create(&thread, NULL, idle, NULL);
    template = getpid();
    return fiber_template_serve();
}

int main(int argc, char **argv)
{
    const char *const again[] = {"/proc/self/exe", "--again", NULL};
    const char *const copied[] = {"/proc/self/exe", "--template", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_from_the_fourth_on),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_a_folder_of_its_own),
        cmocka_unit_test(test_a_copy_fits_or_is_none),
        cmocka_unit_test(test_signals_and_codes),
        cmocka_unit_test(test_one_that_cannot_be_started),
        cmocka_unit_test(test_a_killed_template_takes_nothing_with_it),
        cmocka_unit_test(test_a_frozen_template_is_done_without),
        cmocka_unit_test(test_templates_that_fail),
        cmocka_unit_test(test_it_can_be_turned_off),
        cmocka_unit_test(test_who_is_no_template_is_told),
        cmocka_unit_test(test_nothing_is_left),
    };
    int rc;

    if (argc > 1 && strcmp(argv[1], "--template") == 0 && serve() < 0)
        return 1;
    if (argc == 1) {
        close(mkstemp(path));
        setenv("TEMPLATE_FILE", path, 1);
    }
    if (fiber_program(again) < 0 || fiber_template(copied) < 0 || fiber_init(&argc, &argv) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return rc;
}
