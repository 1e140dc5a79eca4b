/* local_test.c - the local backend without a runtime: jobs that wait for a template, and limits.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"
#include "tests/support/sync.h"

extern const struct fbr_backend_ops fbr_backend_local;

static struct {
    struct fbr_backend_env env;
    struct fbr_backend *backend;
    void *handle;
    int events;
    int ends[2], code; /* a pipe that has a byte when the job has ended; its code */
} t;

static void on_event(void *user, const struct fbr_job_event *e)
{
    t.events++;
    if (e->type == FBR_JOB_EXITED)
        t.code = e->code;
    if (e->type == FBR_JOB_EXITED)
        assert_int_equal(write(t.ends[1], "", 1), 1);
}

/* Opens the backend and starts `sleep 1000`, which waits to be a copy of this template. */
static int open_and_start(void *template)
{
    static char *argv[] = {(char *)"sleep", (char *)"1000", NULL}, *env[] = {NULL};
    const struct fbr_job job = {.name = "job",
                                .run_uid = "1f",
                                .file = "/bin/sleep",
                                .argv = argv,
                                .env = env,
                                .template = template,
                                .alike = 8,
                                .own_program = 1,
                                .ticket = "secret",
                                .ticket_len = 6};

    assert_int_equal(fbr_backend_local.open(&t.backend, &t.env, NULL), 0);
    return fbr_backend_local.start(t.backend, &job, &t, &t.handle, NULL);
}

static int close_it(void *arg)
{
    fbr_backend_local.close(t.backend);
    return 0;
}

static int set_up(void **state)
{
    struct fbr_config *config = fbr_config_new();
    struct fbr_loop *loop;

    assert_non_null(config);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    t.env = (struct fbr_backend_env){loop, config, on_event, NULL};
    t.events = 0;
    return pipe(t.ends);
}

static int tear_down(void **state)
{
    t.handle = NULL;
    fbr_loop_call(t.env.loop, close_it, NULL);
    fbr_loop_close(t.env.loop);
    close(t.ends[0]);
    close(t.ends[1]);
    fbr_config_free((struct fbr_config *)(uintptr_t)t.env.config);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    return 0;
}

/* A sanitizer sees what is not freed. */
static void a_copy_that_waits_for_its_template_leaves_nothing(void **state)
{
    static const char *hangs[] = {"/bin/sleep", "1000", NULL};

    assert_int_equal(fbr_loop_call(t.env.loop, open_and_start, hangs), 0);
    assert_non_null(t.handle);
    assert_int_equal(t.events, 0);
}

static int start_without_room(void *none)
{
    struct rlimit before, small;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    rc = open_and_start(NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return rc;
}

static void a_ticket_that_does_not_fit_is_an_error(void **state)
{
    assert_int_equal(fbr_loop_call(t.env.loop, start_without_room, NULL), -EFBIG);
}

static int start_and_signal(void *template)
{
    static const int signals[] = {SIGSTOP, SIGTERM, SIGCONT};

    assert_int_equal(open_and_start(template), 0);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        assert_int_equal(fbr_backend_local.signal(t.backend, t.handle, signals[i]), 0);
    return 0;
}

static int release(void *none)
{
    fbr_backend_local.release(t.backend, t.handle);
    return 0;
}

static void one_that_waits_gets_all_its_signals_when_it_runs(void **state)
{
    static const char *ends[] = {"/bin/true", NULL};
    struct pollfd end = {.fd = t.ends[0], .events = POLLIN};

    assert_int_equal(fbr_loop_call(t.env.loop, start_and_signal, ends), 0);
    assert_int_equal(poll(&end, 1, TEST_LONG_MS), 1);
    assert_int_equal(t.code, -SIGTERM);
    fbr_loop_call(t.env.loop, release, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_that_waits_for_its_template_leaves_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_ticket_that_does_not_fit_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_waits_gets_all_its_signals_when_it_runs, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
