/* local_test.c - the local backend without a runtime: what it leaves when it is closed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"

extern const struct fbr_backend_ops fbr_backend_local;

static struct {
    struct fbr_backend_env env;
    struct fbr_backend *backend;
    void *handle;
    int events;
} t;

static void on_event(void *user, const struct fbr_job_event *e)
{
    t.events++;
}

static int open_and_start(void *arg)
{
    static const char *const template[] = {"/bin/sleep", "1000", NULL};
    static char *argv[] = {(char *)"true", NULL}, *env[] = {NULL};
    const struct fbr_job job = {.name = "job",
                                .run_uid = "1f",
                                .file = "/bin/true",
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

/* A sanitizer sees what is not freed. */
static void a_copy_that_waits_for_its_template_leaves_nothing(void **state)
{
    struct fbr_config *config = fbr_config_new();
    struct fbr_loop *loop;

    assert_non_null(config);
    assert_int_equal(fbr_loop_open(&loop, NULL), 0);
    t.env = (struct fbr_backend_env){loop, config, on_event, NULL};
    assert_int_equal(fbr_loop_call(loop, open_and_start, NULL), 0);
    assert_non_null(t.handle);
    t.handle = NULL;
    fbr_loop_call(loop, close_it, NULL);
    fbr_loop_close(loop);
    fbr_config_free(config);
    assert_int_equal(t.events, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_waits_for_its_template_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
