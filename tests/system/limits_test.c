/* limits_test.c - too few descriptors, a full or forbidden run directory: errors with a sentence, never a hang or a crash.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"

#define HANGS 3
#define SAYS_NOTHING 4
#define NOT_HERE 77

static int worked; /* how many of the calls of one role did their work */

/* ---- Each use must work, or say why it does not ---- */

static int says_why(const char *what, int rc)
{
    if (rc != -ETIMEDOUT && strlen(fiber_last_error()) > 10)
        return 0;
    fprintf(stderr, "%s: %d: '%s'\n", what, rc, fiber_last_error());
    return rc == -ETIMEDOUT ? HANGS : SAYS_NOTHING;
}

static int use_process(void)
{
    int code = 9, rc;
    struct fiber_process *p;

    rc = fiber_process_start(&p, child_return, &code, sizeof(code), NULL);
    if (rc < 0)
        return says_why("start", rc);
    rc = fiber_process_join(p, TEST_LONG_MS);
    if (rc < 0)
        return says_why("join", rc);
    rc = fiber_process_exitcode(p, &code) < 0 || (code != 9 && strlen(fiber_process_report(p)) < 10)
             ? SAYS_NOTHING
             : 0;
    worked += code == 9;
    fprintf(stderr, "%s\n", fiber_process_report(p));
    fiber_process_close(p);
    return rc;
}

static int use_queue(void)
{
    struct fiber_queue *q;
    struct fiber_bytes bytes = {NULL, 0};
    int rc = fiber_queue_open(&q, 0);

    if (rc < 0)
        return says_why("queue", rc);
    rc = fiber_queue_put(q, "x", 1, TEST_LONG_MS);
    if (rc == 0)
        rc = fiber_queue_get(q, &bytes, TEST_LONG_MS);
    worked += rc == 0;
    rc = rc < 0 ? says_why("put and get", rc) : 0;
    fiber_bytes_free(&bytes);
    fiber_queue_close(q);
    return rc;
}

static int copy(const void *in, size_t len, struct fiber_reply *reply)
{
    return fiber_reply_write(reply, in, len);
}

static int use_pool(void)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};
    struct fiber_result *r;
    struct fiber_pool *pool;
    char in[8] = "abcdefgh", out[8] = "";
    int rc = fiber_pool_open(&pool, &o);

    if (rc < 0)
        return says_why("pool", rc);
    rc = fiber_pool_map_array(pool, copy, in, 1, out, 1, 8, NULL, &r);
    if (rc == 0) {
        rc = fiber_result_wait(r, TEST_LONG_MS);
        if (rc == 0)
            rc = fiber_result_error(r, NULL);
        worked += rc == 0;
        fiber_result_close(r);
    }
    rc = rc < 0 ? says_why("map", rc) : 0;
    fiber_pool_close(pool);
    return rc;
}

static int use_everything(void)
{
    int (*const uses[])(void) = {use_process, use_queue, use_pool};
    int rc = 0;

    for (int i = 0; rc == 0 && i < 3; i++)
        rc = uses[i]();
    printf("%d worked\n", worked);
    return rc;
}

/* ---- Roles ---- */

static int play_descriptors(const char *arg)
{
    struct rlimit r = {(rlim_t)atoi(arg), (rlim_t)atoi(arg)};

    return setrlimit(RLIMIT_NOFILE, &r) < 0 ? 1 : use_everything();
}

/* On a file system of its own that has room for so many files. */
static int play_full(const char *arg)
{
    char options[64], dir[64];
    int rc;

    temp_dir_make(dir);
    snprintf(options, sizeof(options), "size=64k,nr_inodes=%s", arg);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", dir, "tmpfs", 0, options) < 0) {
        perror("a file system of its own");
        rmdir(dir);
        return NOT_HERE;
    }
    if (fiber_config_set("run_dir", dir) < 0)
        return 1;
    rc = use_everything();
    fiber_fini();
    umount2(dir, MNT_DETACH);
    rmdir(dir);
    return rc;
}

static int play_forbidden(const char *arg)
{
    (void)arg;
    return use_everything();
}

/* ---- Tests ---- */

static int run_role(const char *role, const char *arg, const char *const *env)
{
    struct ran r = run_self(role, arg, env);
    int n = -1;

    if (r.code != 0 && r.code != NOT_HERE)
        fprintf(stderr, "%s %s: %d\n%s%s", role, arg, r.code, r.out, r.err);
    sscanf(r.out, "%d worked", &n);
    assert_true(r.code == 0 || r.code == NOT_HERE);
    n = r.code == NOT_HERE ? -1 : n;
    ran_free(&r);
    return n;
}

static void test_any_number_of_descriptors(void **state)
{
    int enough = 0;

    (void)state;
    for (int limit = 4; limit < 128 && !enough; limit += limit < 48 ? 1 : 16) {
        char arg[16];

        snprintf(arg, sizeof(arg), "%d", limit);
        enough = run_role("descriptors", arg, NULL) == 3;
    }
    assert_true(enough);
}

static void test_a_run_directory_without_room(void **state)
{
    int enough = 0;

    (void)state;
    for (int files = 1; files < 20 && !enough; files++) {
        char arg[16];

        snprintf(arg, sizeof(arg), "%d", files);
        enough = run_role("full", arg, NULL);
        if (enough < 0)
            skip(); /* only root may mount; the role has said why */
        enough = enough == 3;
    }
    assert_true(enough);
}

static void test_a_run_directory_that_cannot_be_used(void **state)
{
    const char *const env[] = {"FIBER_RUN_DIR=/proc", NULL}, *const file[] = {"FIBER_RUN_DIR=/etc/passwd", NULL};

    (void)state;
    assert_int_equal(run_role("forbidden", "", env), 0);
    assert_int_equal(run_role("forbidden", "", file), 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*play)(const char *arg);
    } roles[] = {{"descriptors", play_descriptors}, {"full", play_full}, {"forbidden", play_forbidden}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_descriptors),
        cmocka_unit_test(test_a_run_directory_without_room),
        cmocka_unit_test(test_a_run_directory_that_cannot_be_used),
    };

    if (fiber_init(&argc, &argv) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        return 1;
    }
    for (size_t i = 0; argc > 2 && i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].play(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
