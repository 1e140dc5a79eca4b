/* docker_image_test.c - images that are pulled by commands that take their time, and that an engine does not take.
 *
 * The engine is a server that has no login and no room; the docker command is a script that waits at a gate, a FIFO
 * that the test holds.
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

/* The loop has four threads for other work, which would never begin behind so many commands. */
#define PULLS 16

static struct {
    struct bench *b;
    struct http_server *server;
    struct fbr_docker_engine engine;
    struct fbr_docker_images *images;
    struct fbr_config *config;
    char dir[64];
    int gate, begun;
    pthread_t freer; /* frees the engine when it starts a thread; 0: none does */
    sem_t done, asked;
    char *said;
    atomic_int good;
    uv_work_t work;
} t;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);

/* As when the backend is closed before the thread begins. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *p)
{
    if (t.freer && pthread_equal(pthread_self(), t.freer))
        memset(&t.engine, 'x', sizeof(t.engine) - 1);
    return __real_pthread_create(thread, a, fn, p);
}

static const char *in_dir(const char *name)
{
    return path_in(t.dir, name);
}

static void on_image(void *user, int fetch, const char *text, bool done, bool good)
{
    if (!done)
        return;
    t.good += good;
    if (t.said)
        snprintf(t.said, 400, "%s", text);
    if (!t.said && !strstr(text, "is not on the engine, and cannot be pulled"))
        fprintf(stderr, "%s\n", text);
    else
        sem_post(&t.done);
}

static int open_images(void *arg)
{
    return fbr_docker_images_open(&t.images, &t.engine, t.config, t.b->loop, on_image, NULL, NULL);
}

static int close_images(void *arg)
{
    fbr_docker_images_close(t.images);
    return 0;
}

static int pull_all(void *arg)
{
    char image[64];

    for (int i = 0; i < PULLS; i++) {
        snprintf(image, sizeof(image), "host:5000/app%d", i);
        assert_true(fbr_docker_images_pull(t.images, image) > 0);
    }
    return 0;
}

static void nothing(uv_work_t *work)
{
}

static void worked(uv_work_t *work, int status)
{
    sem_post(&t.asked);
}

static int queue_work(void *arg)
{
    return uv_queue_work(fbr_loop_uv(t.b->loop), &t.work, nothing, worked);
}

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    if (strstr(q->path, "/images/create"))
        return http_say(p, 500, "", "{\"message\": \"no basic auth credentials\"}");
    /* the engine answers 200 before it unpacks the image */
    return strstr(q->path, "/images/load")
               ? http_say(p, 200, "",
                          "{\"errorDetail\":{},\"error\":\"no space left on device\"}\n")
               : http_say(p, 404, "", "{}");
}

static int fifo(const char *name)
{
    int fd;

    assert_int_equal(mkfifo(in_dir(name), 0600), 0);
    fd = open(in_dir(name), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int set_up(void **state)
{
    static const char command[] =
        "#!/bin/sh\necho >\"$AT/begun\"\nread line <\"$AT/gate\"\necho denied >&2\nexit 1\n";
    static char path[100]; /* the requests use it */

    bench_set_up(state);
    memset(&t, 0, sizeof(t));
    t.b = *state;
    temp_dir_make(t.dir);
    snprintf(path, sizeof(path), "%s/engine", t.dir);
    t.server = http_server_open(path, false, answer, NULL);
    t.b->o.socket = path;
    bench_reopen(t.b);
    t.engine.http = t.b->http;
    snprintf(t.engine.api, sizeof(t.engine.api), "1.41");
    file_make(in_dir("docker"), command, sizeof(command) - 1, 0700);
    t.gate = fifo("gate");
    t.begun = fifo("begun");
    sem_init(&t.done, 0, 0);
    sem_init(&t.asked, 0, 0);
    setenv("AT", t.dir, 1);
    setenv("PATH", t.dir, 1);
    assert_int_equal(fbr_config_load(&t.config, NULL), 0);
    assert_int_equal(fbr_loop_call(t.b->loop, open_images, NULL), 0);
    return 0;
}

static int tear_down(void **state)
{
    bench_tear_down(state); /* waits for the threads of commands */
    http_server_close(t.server);
    close(t.gate);
    close(t.begun);
    fbr_config_free(t.config);
    sem_destroy(&t.done);
    sem_destroy(&t.asked);
    temp_dir_remove(t.dir);
    return 0;
}

static void begin_all(void)
{
    char line;

    assert_int_equal(fbr_loop_call(t.b->loop, pull_all, NULL), 0);
    for (int i = 0; i < PULLS; i++)
        assert_int_equal(read(t.begun, &line, 1), 1);
}

static void commands_that_wait_hold_up_no_other_work(void **state)
{
    begin_all();
    assert_int_equal(fbr_loop_call(t.b->loop, queue_work, NULL), 0);
    sem_come(&t.asked);
    for (int i = 0; i < PULLS; i++)
        assert_int_equal(write(t.gate, "\n", 1), 1);
    for (int i = 0; i < PULLS; i++)
        sem_come(&t.done);
    assert_int_equal(http_server_asked(t.server), PULLS);
    assert_int_equal(t.good, 0);
    fbr_loop_call(t.b->loop, close_images, NULL);
}

static void commands_that_wait_end_with_us(void **state)
{
    begin_all();
    fbr_loop_call(t.b->loop, close_images, NULL);
}

static int pull_and_free(void *arg)
{
    t.freer = pthread_self();
    return fbr_docker_images_pull(t.images, "host:5000/app") > 0 ? 0 : -1;
}

static void a_command_needs_the_engine_no_longer(void **state)
{
    static const char command[] = "#!/bin/sh\necho \"$DOCKER_HOST\" >\"$AT/begun\"\nexit 1\n";
    char line[300] = "";

    file_make(in_dir("docker"), command, sizeof(command) - 1, 0700);
    snprintf(t.engine.address, sizeof(t.engine.address), "unix:///ours");
    fbr_loop_call(t.b->loop, pull_and_free, NULL);
    sem_come(&t.done);
    assert_true(read(t.begun, line, sizeof(line) - 1) > 0);
    assert_string_equal(line, "unix:///ours\n");
    t.freer = 0;
    fbr_loop_call(t.b->loop, close_images, NULL);
}

/* ---- An engine that is full ---- */

static int want_own(void *said)
{
    char image[128];

    if (fbr_docker_images_choose(t.images, NULL, image, sizeof(image), NULL) < 0)
        return -1;
    t.said = said;
    return fbr_docker_images_want(t.images, image) > 0 ? 0 : -1;
}

static void an_image_that_does_not_fit_is_told(void **state)
{
    char said[400];

    assert_int_equal(fbr_loop_call(t.b->loop, want_own, said), 0);
    sem_come(&t.done);
    assert_false(t.good);
    if (!strstr(said, "could not be loaded: no space left on device"))
        fail_msg("%s", said);
    fbr_loop_call(t.b->loop, close_images, NULL);
}

/* Part of a name may be the name of another image. */
static void an_image_with_too_long_a_name_is_refused(void **state)
{
    char name[300], image[256];
    struct fbr_error err = {0, ""};

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(fbr_docker_images_choose(t.images, name, image, sizeof(image), &err),
                     -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "has 299 characters, but may have at most 255"));
    name[sizeof(image) - 1] = '\0';
    assert_int_equal(fbr_docker_images_choose(t.images, name, image, sizeof(image), &err), 0);
    assert_string_equal(image, name);
    fbr_loop_call(t.b->loop, close_images, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commands_that_wait_hold_up_no_other_work, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(commands_that_wait_end_with_us, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_command_needs_the_engine_no_longer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_image_that_does_not_fit_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_image_with_too_long_a_name_is_refused, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
