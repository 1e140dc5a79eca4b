/* docker_lost_test.c - a container that the engine seems to have lost, by what an engine of the test
 * answers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "runtime/base/sync.h"
#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"
#include "tests/support/files.h"
#include "tests/support/http_server.h"
#include "tests/support/sync.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define RUN "0123456789abcdef"

extern const struct fbr_backend_ops fbr_docker_ops;

static struct {
    char dir[64];
    struct http_server *server;
    struct fbr_config *config;
    struct fbr_loop *loop;
    struct fbr_backend_env env;
    struct fbr_backend *backend;
    void *handle;
    bool slow; /* the engine does not answer when it makes a container */
    bool runs; /* it starts the container, when the test has sent its signals */
    /* its stream of events ends, it loses the container, and at first it cannot list any */
    bool restarts;
    const char *owner;    /* the run whose container has the name already; NULL: none has it */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool making, starting, started, signalled, killed, ended, removed, removed_again;
    char signals[40]; /* that the engine sends to the container */
    int32_t code;
    char text[200];
    char name[128]; /* of the container */
    int lists, looks, events;
} t;

static void note(bool *fact)
{
    pthread_mutex_lock(&t.lock);
    *fact = true;
    pthread_cond_broadcast(&t.changed);
    pthread_mutex_unlock(&t.lock);
}

static int await(const bool *fact)
{
    uint64_t deadline = fbr_deadline(TEST_LONG_MS);
    int rc = 0;

    pthread_mutex_lock(&t.lock);
    while (!*fact && rc == 0)
        rc = fbr_cond_wait(&t.changed, &t.lock, deadline);
    pthread_mutex_unlock(&t.lock);
    return rc;
}

static void wait_for(const bool *fact)
{
    assert_int_equal(await(fact), 0);
}

/* Opens a stream, without an end. */
static bool hold(struct http_peer *p)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";

    if (http_write(p, head, sizeof(head) - 1))
        http_wait_for_end(p);
    return false;
}

/* The containers of our process. One that is slow to make is not in the first list of the close. */
static bool list(struct http_peer *p)
{
    char text[400];

    snprintf(text, sizeof(text), "[{\"Id\": \"" ID "\", \"Names\": [\"/%s\"]}]", t.name);
    return http_say(p, 200, "",
                    t.name[0] && !t.removed_again && (t.lists++ || !t.slow) ? text : "[]");
}

/* An engine that has just begun again may not be able to list its containers. */
static bool look(struct http_peer *p)
{
    return t.restarts && t.looks++ == 0 ? http_say(p, 500, "", "{\"message\": \"not yet\"}")
                                        : http_say(p, 200, "", "[]");
}

/* The container that has the name. */
static bool show(struct http_peer *p)
{
    char text[200];

    snprintf(text, sizeof(text),
             "{\"Id\": \"" ID "\", \"Config\": {\"Labels\": {\"fiber.run\": \"%s\"}}}", t.owner);
    return http_say(p, 200, "", text);
}

static bool make(struct http_peer *p, const struct http_asked *q)
{
    if (t.owner)
        return http_say(p, 409, "", "{\"message\": \"is already in use\"}");
    snprintf(t.name, sizeof(t.name), "%.127s", strstr(q->path, "name=") + 5);
    if (!t.slow)
        return http_say(p, 201, "", "{\"Id\": \"" ID "\"}");
    note(&t.making);
    http_wait_for_end(p);
    return false;
}

/* If it does not run it, the engine says that the container which it has just made is being removed, and
 * keeps it. */
static bool start(struct http_peer *p)
{
    if (!t.runs)
        return http_say(p, 409, "", "{\"message\": \"is marked for removal\"}");
    note(&t.starting);
    await(&t.signalled);
    return http_say(p, 204, "", "");
}

static bool kill_it(struct http_peer *p, const char *sig)
{
    size_t n;

    pthread_mutex_lock(&t.lock); /* each request has a thread of its own */
    n = strlen(t.signals);
    snprintf(t.signals + n, sizeof(t.signals) - n, "%s ", sig);
    pthread_mutex_unlock(&t.lock);
    if (n)
        note(&t.killed);
    return http_say(p, 204, "", "");
}

/* The first removal fails. */
static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    if (strstr(q->path, "/version"))
        return http_say(p, 200, "", "{\"ApiVersion\": \"1.41\", \"MinAPIVersion\": \"1.24\"}");
    if (strstr(q->path, "/events") && t.restarts && !t.events++) {
        await(&t.started);
        return http_say(p, 200, "", "");
    }
    if (strstr(q->path, "/events") || strstr(q->path, "/attach"))
        return hold(p);
    if (strstr(q->path, "/containers/create"))
        return make(p, q);
    if (strstr(q->path, "/archive"))
        return http_say(p, 200, "", "");
    if (strstr(q->path, "/start"))
        return start(p);
    if (strstr(q->path, "/kill"))
        return kill_it(p, strstr(q->path, "signal=") + 7);
    if (strstr(q->path, "/containers/json"))
        return strstr(q->path, "fiber.master") ? list(p)
               : strstr(q->path, "fiber.run")  ? look(p)
                                               : http_say(p, 200, "", "[]");
    if (t.owner && strstr(q->path, "/json"))
        return show(p);
    if (strcmp(q->method, "DELETE") == 0) {
        bool again = t.removed;

        note(again ? &t.removed_again : &t.removed);
        return again ? http_say(p, 204, "", "")
                     : http_say(p, 500, "", "{\"message\": \"is busy\"}");
    }
    return http_say(p, 404, "", "{}");
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    if (e->type == FBR_JOB_STARTED)
        note(&t.started);
    if (e->type != FBR_JOB_EXITED)
        return;
    t.code = e->code;
    snprintf(t.text, sizeof(t.text), "%s", e->text);
    note(&t.ended);
}

static int open_and_start(void *arg)
{
    static char *argv[] = {(char *)"true", NULL};
    const struct fbr_job job = {.name = "job",
                                .run_uid = RUN,
                                .image = "image",
                                .file = "/bin/true",
                                .argv = argv,
                                .ticket = "secret",
                                .ticket_len = 6};

    return fbr_docker_ops.open(&t.backend, &t.env, NULL) < 0
               ? -1
               : fbr_docker_ops.start(t.backend, &job, &t, &t.handle, NULL);
}

static int signal_it(void *arg)
{
    fbr_docker_ops.signal(t.backend, t.handle, SIGTERM);
    return fbr_docker_ops.signal(t.backend, t.handle, SIGUSR1);
}

static int close_it(void *arg)
{
    fbr_docker_ops.release(t.backend, t.handle);
    fbr_docker_ops.close(t.backend);
    return 0;
}

static int set_up(void **state)
{
    char host[100];

    memset(&t, 0, sizeof(t));
    pthread_mutex_init(&t.lock, NULL);
    temp_dir_make(t.dir);
    fbr_cond_init(&t.changed);
    t.server = http_server_open(path_in(t.dir, "engine"), false, answer, NULL);
    snprintf(host, sizeof(host), "unix://%s/engine", t.dir);
    setenv("DOCKER_CONFIG", t.dir, 1);
    assert_int_equal(fbr_config_load(&t.config, NULL), 0);
    assert_int_equal(fbr_config_set(t.config, "docker_host", host, "test", NULL), 0);
    assert_int_equal(fbr_loop_open(&t.loop, NULL), 0);
    t.env = (struct fbr_backend_env){t.loop, t.config, on_event, NULL};
    return 0;
}

static int tear_down(void **state)
{
    fbr_loop_close(t.loop);
    fbr_config_free(t.config);
    http_server_close(t.server);
    pthread_cond_destroy(&t.changed);
    pthread_mutex_destroy(&t.lock);
    temp_dir_remove(t.dir);
    return 0;
}

/* Nothing else would remove it: AutoRemove is for a container that has run. */
static void a_container_that_is_given_up_is_removed(void **state)
{
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.ended);
    assert_int_equal(t.code, FBR_EXIT_UNKNOWN);
    wait_for(&t.removed);
    fbr_loop_call(t.loop, close_it, NULL);
    assert_true(t.removed_again);
}

static void a_container_that_is_being_made_at_the_close_is_removed(void **state)
{
    t.slow = true;
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.making);
    fbr_loop_call(t.loop, close_it, NULL);
    assert_true(t.removed_again);
}

static void only_a_container_of_our_run_is_taken_for_ours(void **state)
{
    t.owner = "another run";
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.ended);
    assert_int_equal(t.code, 125);
    assert_non_null(strstr(t.text, "is taken by another container, " ID));
    fbr_loop_call(t.loop, close_it, NULL);
    assert_false(t.removed);
}

static void a_container_whose_answer_was_lost_is_ours(void **state)
{
    t.owner = RUN;
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.ended);
    assert_int_equal(t.code, FBR_EXIT_UNKNOWN); /* it was filled, and started */
    fbr_loop_call(t.loop, close_it, NULL);
    assert_true(t.removed);
}

static void signals_are_kept_until_it_runs(void **state)
{
    t.runs = true;
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.starting);
    assert_int_equal(fbr_loop_call(t.loop, signal_it, NULL), 0);
    note(&t.signalled);
    wait_for(&t.killed);
    fbr_loop_call(t.loop, close_it, NULL);
    assert_non_null(strstr(t.signals, "15 "));
    assert_non_null(strstr(t.signals, "10 "));
}

static void a_list_that_fails_is_asked_for_again(void **state)
{
    t.runs = t.restarts = t.signalled = true;
    assert_int_equal(fbr_loop_call(t.loop, open_and_start, NULL), 0);
    wait_for(&t.ended);
    assert_int_equal(t.code, FBR_EXIT_UNKNOWN);
    fbr_loop_call(t.loop, close_it, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_container_that_is_given_up_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_container_that_is_being_made_at_the_close_is_removed,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_that_fails_is_asked_for_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_container_of_our_run_is_taken_for_ours, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_container_whose_answer_was_lost_is_ours, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(signals_are_kept_until_it_runs, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
