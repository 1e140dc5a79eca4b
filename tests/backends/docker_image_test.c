/* docker_image_test.c - images that are pulled while the helpers for their logins take their time, and that an engine
 * does not take.
 *
 * The engine is a server that knows no image; a helper is a script that waits at a gate, a FIFO that the test holds.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "backends/docker/container_image.h"
#include "tests/support/files.h"
#include "tests/support/http_bench.h"
#include "tests/support/sync.h"

/* With four threads, and helpers that have half a minute each, work that waits for them all would come too late. */
#define PULLS 16

static struct {
    struct bench *b;
    struct fbr_docker_engine engine;
    struct fbr_docker_images *images;
    struct fbr_config *config;
    char dir[64];
    int gate;
    sem_t done, asked;
    atomic_int good;
    uv_work_t work;
} t;

static const char *in_dir(const char *name)
{
    return path_in(t.dir, name);
}

static int open_images(void *arg)
{
    (void)arg;
    return fbr_docker_images_open(&t.images, &t.engine, t.config, t.b->loop, NULL);
}

static int close_images(void *arg)
{
    (void)arg;
    fbr_docker_images_close(t.images);
    return 0;
}

static void on_image(void *user, const char *text, bool done, bool good)
{
    (void)user;
    if (!done)
        return;
    t.good += good;
    if (!strstr(text, "is not on the engine, and cannot be pulled"))
        fprintf(stderr, "%s\n", text);
    else
        sem_post(&t.done);
}

static int pull_all(void *arg)
{
    char image[64];

    (void)arg;
    for (int i = 0; i < PULLS; i++) {
        snprintf(image, sizeof(image), "host:5000/app%d", i);
        fbr_docker_images_pull(t.images, image, on_image, &t);
    }
    return 0;
}

static void nothing(uv_work_t *work)
{
    (void)work;
}

static void worked(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
    sem_post(&t.asked);
}

static int queue_work(void *arg)
{
    (void)arg;
    return uv_queue_work(fbr_loop_uv(t.b->loop), &t.work, nothing, worked);
}

static int set_up(void **state)
{
    static const char helper[] = "#!/bin/sh\nread line <\"$DOCKER_CONFIG/gate\"\n"
                                 "echo '{\"Username\": \"u\", \"Secret\": \"s\"}'\n";
    static const char config[] = "{\"credsStore\": \"test\"}";
    char path[300];

    bench_set_up(state);
    memset(&t, 0, sizeof(t));
    t.b = *state;
    t.engine.http = t.b->http;
    snprintf(t.engine.api, sizeof(t.engine.api), "1.41");
    temp_dir_make(t.dir);
    file_make(in_dir("config.json"), config, sizeof(config) - 1, 0600);
    file_make(in_dir("docker-credential-test"), helper, sizeof(helper) - 1, 0700);
    assert_int_equal(mkfifo(in_dir("gate"), 0600), 0);
    t.gate = open(in_dir("gate"), O_RDWR | O_CLOEXEC);
    assert_true(t.gate >= 0);
    sem_init(&t.done, 0, 0);
    sem_init(&t.asked, 0, 0);
    setenv("DOCKER_CONFIG", t.dir, 1);
    setenv("HOME", "/nonexistent", 1);
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("REGISTRY_AUTH_FILE");
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", t.dir);
    setenv("PATH", path, 1);
    assert_int_equal(fbr_config_load(&t.config, NULL), 0);
    assert_int_equal(fbr_loop_call(t.b->loop, open_images, NULL), 0);
    return 0;
}

static int tear_down(void **state)
{
    bench_tear_down(state); /* waits for who looks for a login */
    close(t.gate);
    fbr_config_free(t.config);
    sem_destroy(&t.done);
    sem_destroy(&t.asked);
    temp_dir_remove(t.dir);
    return 0;
}

static void helpers_that_wait_hold_up_no_other_work(void **state)
{
    (void)state;
    assert_int_equal(fbr_loop_call(t.b->loop, pull_all, NULL), 0);
    assert_int_equal(fbr_loop_call(t.b->loop, queue_work, NULL), 0);
    sem_come(&t.asked);
    for (int i = 0; i < PULLS; i++)
        assert_int_equal(write(t.gate, "\n", 1), 1);
    for (int i = 0; i < PULLS; i++)
        sem_come(&t.done);
    assert_int_equal(http_server_asked(t.b->server), PULLS);
    assert_int_equal(t.good, 0);
    fbr_loop_call(t.b->loop, close_images, NULL);
}

static void helpers_that_wait_end_with_us(void **state)
{
    (void)state;
    assert_int_equal(fbr_loop_call(t.b->loop, pull_all, NULL), 0);
    fbr_loop_call(t.b->loop, close_images, NULL);
    assert_int_equal(http_server_asked(t.b->server), 0);
}

/* ---- An engine that is full ---- */

static bool answer_as_full(struct http_peer *p, const struct http_asked *q, void *user)
{
    (void)user;
    return strstr(q->path, "/images/load")
               ? http_say(p, 200, "",
                          "{\"errorDetail\":{},\"error\":\"no space left on device\"}\n")
               : http_say(p, 404, "", "{}");
}

static void on_own_image(void *user, const char *text, bool done, bool good)
{
    char *said = user;

    if (!done)
        return;
    t.good = good;
    snprintf(said, 400, "%s", text);
    sem_post(&t.done);
}

static int want_own(void *said)
{
    char image[128];

    if (fbr_docker_images_choose(t.images, NULL, image, sizeof(image), NULL) < 0)
        return -1;
    fbr_docker_images_want(t.images, image, on_own_image, said);
    return 0;
}

/* The engine answers 200 before it unpacks the image. */
static void an_image_that_does_not_fit_is_told(void **state)
{
    char path[120], said[400];
    struct http_server *full;

    (void)state;
    snprintf(path, sizeof(path), "%s/full", t.b->dir);
    full = http_server_open(path, false, answer_as_full, NULL);
    t.b->o.socket = path;
    bench_reopen(t.b);
    t.engine.http = t.b->http;
    assert_int_equal(fbr_loop_call(t.b->loop, want_own, said), 0);
    sem_come(&t.done);
    assert_false(t.good);
    if (!strstr(said, "could not be loaded: no space left on device"))
        fail_msg("%s", said);
    fbr_loop_call(t.b->loop, close_images, NULL);
    http_server_close(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(helpers_that_wait_hold_up_no_other_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(helpers_that_wait_end_with_us, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_image_that_does_not_fit_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
