/* kube_start_test.c - jobs that are started while memory is short, or that the server refuses for some time: each of
 * them ends, with a reason.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "backends/kubernetes/kubernetes_priv.h"
#include "tests/support/http_server.h"
#include "tests/support/kube_folder.h"
#include "tests/support/sync.h"

#define RUN "0123456789abcdef0123456789abcdef"
#define JOBS_MAX 200
#define BURST 5
#define BURST_TEXT "5"

static char base[] = "/tmp/fiber-kube-start-XXXXXX";

struct job {
    struct bench *b;
    void *handle;
    char why[512];
};

struct bench {
    struct http_server *server;
    struct fbr_loop *loop;
    struct fbr_config *config;
    struct fbr_backend *backend;
    atomic_bool takes_secrets, full; /* full: the quota has no room for pods */
    atomic_int tried;                /* pods that were sent while it was full */
    sem_t ended, fails; /* fails: a pod could not be created, for a reason that may pass */
    struct job jobs[JOBS_MAX];
    int started;
    struct fbr_error err;
};

/* Memory of JSON, for the loop's thread. */
static unsigned refused, asked;
static bool refused_all;

static void *json_take(size_t n)
{
    return ++asked == refused || refused_all ? NULL : malloc(n);
}

/* All other memory of this thread. */
static _Thread_local unsigned to_refuse; /* the number of the request; 0: none */

static bool refuse(void)
{
    return to_refuse && --to_refuse == 0;
}

#include "tests/support/wrapped_malloc.h"

/* Two pages; the mark of the second is a long one. */
static bool answer_list(struct http_peer *p, bool second)
{
    char page[2200];

    snprintf(page, sizeof(page), "{\"metadata\":{\"continue\":\"%.*d\"},\"items\":[{}]}",
             second ? 0 : 2000, 0);
    return http_say(p, 200, "", page);
}

/* Two pods of one Job, which a queue has suspended for some time. */
#define OWNER "\"ownerReferences\":[{\"kind\":\"Job\",\"name\":\"m\"}]"
#define POD(name) "{\"metadata\":{\"name\":\"" name "\"," OWNER "}}"
#define PODS "{\"items\":[" POD("m-a") "," POD("m-b") "]}"

/* There are no pods but in the list for fiber gc; no Secret, but its owner, may be made unless the
 * test says so; and nothing is told of changes. */
static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct bench *b = user;
    bool post = !strcmp(q->method, "POST");

    if (post && strstr(q->path, "/pods?") && atomic_load(&b->full)) {
        b->tried++;
        return http_say(p, 403, "",
                        "{\"kind\":\"Status\",\"message\":\"exceeded quota: pods\",\"code\":403}");
    }
    if (post && strstr(q->path, "/pods?")) {
        sem_post(&b->fails);
        return http_say(
            p, 500, "",
            "{\"kind\":\"Status\",\"message\":\"failed calling webhook\",\"code\":500}");
    }
    if (post && (strstr(q->path, "/configmaps") || atomic_load(&b->takes_secrets)))
        return http_say(p, 201, "", "{}");
    if (post)
        return http_say(p, 403, "", "{\"kind\":\"Status\",\"message\":\"no room\",\"code\":403}");
    if (strstr(q->path, "/configmaps?"))
        return answer_list(p, strstr(q->path, "&continue=") != NULL);
    if (strstr(q->path, "/pods?limit=500&"))
        return http_say(p, 200, "", PODS);
    if (!strstr(q->path, "watch="))
        return http_say(p, 200, "", "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}");
    http_wait_for_end(p);
    return false;
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct job *j = user;

    if (e->type != FBR_JOB_EXITED)
        return;
    snprintf(j->why, sizeof(j->why), "%s", e->text);
    sem_post(&j->b->ended);
}

static int open_backend(void *arg)
{
    struct bench *b = arg;
    const struct fbr_backend_env env = {.loop = b->loop, .config = b->config, .event = on_event};

    return fbr_kube_ops.open(&b->backend, &env, &b->err);
}

static int start(struct bench *b)
{
    struct job *j = &b->jobs[b->started];
    const struct fbr_job job = {.name = "worker",
                                .run_uid = RUN,
                                .image = "reg/x:1",
                                .file = "/bin/prog",
                                .ticket = "secret",
                                .ticket_len = 6,
                                .process = (uint64_t)b->started};
    int rc = fbr_kube_ops.start(b->backend, &job, j, &j->handle, &b->err);

    j->b = b;
    b->started += rc == 0;
    return rc;
}

/* Starts one job for each request for memory that tickets need, and one that lacks none. */
static int start_jobs(void *arg)
{
    struct bench *b = arg;
    unsigned number = 0;
    int rc;

    do {
        rc = start(b);
        asked = 0;
        refused = ++number;
        fbr_kube_on_batch(b->backend);
        refused = 0;
    } while (rc == 0 && asked >= number && b->started < JOBS_MAX);
    return rc;
}

static int start_without_memory(void *arg)
{
    struct bench *b = arg;
    int rc = start(b);

    refused_all = true;
    fbr_kube_on_batch(b->backend);
    refused_all = false;
    return rc;
}

/* Returns how many starts were refused. */
static int start_with_each_lack(void *arg)
{
    struct bench *b = arg;
    int n = 0, rc;
    bool lacked;

    do {
        to_refuse = (unsigned)++n;
        rc = start(b);
        lacked = !to_refuse;
        to_refuse = 0;
    } while (rc < 0 && lacked);
    return rc < 0 || lacked ? -1 : n - 1;
}

static int start_one(void *arg)
{
    struct bench *b = arg;

    return start(b);
}

static int start_more_than_may_be_created_at_once(void *arg)
{
    struct bench *b = arg;
    int rc = 0;

    for (int i = 0; i < 2 * BURST && rc == 0; i++)
        rc = start(b);
    return rc;
}

static int kill_all(void *arg)
{
    struct bench *b = arg;

    for (int i = 0; i < b->started; i++)
        fbr_kube_ops.signal(b->backend, b->jobs[i].handle, SIGTERM);
    return 0;
}

static int release_jobs(void *arg)
{
    struct bench *b = arg;

    for (int i = 0; i < b->started; i++)
        fbr_kube_ops.release(b->backend, b->jobs[i].handle);
    b->started = 0;
    return 0;
}

static int close_backend(void *arg)
{
    struct bench *b = arg;

    fbr_kube_ops.close(b->backend);
    return 0;
}

static int set_up(void **state)
{
    static struct bench b;

    *state = &b;
    if (!mkdtemp(base) || sem_init(&b.ended, 0, 0) < 0 || sem_init(&b.fails, 0, 0) < 0)
        return -1;
    b.server = http_server_open(NULL, false, answer, &b);
    kube_folder_make(base, http_server_port(b.server));
    json_set_alloc_funcs(json_take, free);
    setenv("FIBER_KUBERNETES_BURST", BURST_TEXT, 1);
    assert_int_equal(fbr_config_load(&b.config, NULL), 0);
    assert_int_equal(fbr_loop_open(&b.loop, NULL), 0);
    if (fbr_loop_call(b.loop, open_backend, &b) < 0)
        fail_msg("%s", b.err.text);
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    fbr_loop_call(b->loop, close_backend, b);
    fbr_loop_close(b->loop);
    fbr_config_free(b->config);
    http_server_close(b->server);
    sem_destroy(&b->ended);
    sem_destroy(&b->fails);
    return kube_folder_remove(base);
}

/* All that were started. */
static void wait_for_end(struct bench *b)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    for (int i = 0; i < b->started; i++)
        if (sem_timedwait(&b->ended, &until) < 0)
            fail_msg("only %d of %d jobs have ended", i, b->started);
}

static void end_without_memory(struct bench *b, int least)
{
    if (fbr_loop_call(b->loop, start_jobs, b) < 0)
        fail_msg("%s", b->err.text);
    assert_in_range(b->started, least, JOBS_MAX - 1);
    wait_for_end(b);
    for (int i = 0; i < b->started; i++)
        assert_non_null(strstr(b->jobs[i].why, "its ticket cannot be handed over"));
    assert_non_null(strstr(b->jobs[0].why, "out of memory"));
    assert_non_null(strstr(b->jobs[b->started - 1].why, "no room"));
    assert_int_equal(fbr_loop_call(b->loop, release_jobs, b), 0);
}

/* The first time the owner is made, too. */
static void jobs_whose_tickets_lack_memory_end(void **state)
{
    end_without_memory(*state, 10);
    end_without_memory(*state, 10);
}

/* The loop would never return if it asked for memory again and again. */
static void jobs_wait_in_line_while_there_is_no_memory(void **state)
{
    struct bench *b = *state;

    assert_int_equal(fbr_loop_call(b->loop, start_without_memory, b), 0);
    wait_for_end(b);
    assert_non_null(strstr(b->jobs[0].why, "no room"));
    assert_int_equal(fbr_loop_call(b->loop, release_jobs, b), 0);
}

/* No other job is there, so this one needs memory for the list of all jobs, too. */
static void a_job_that_lacks_memory_is_refused(void **state)
{
    struct bench *b = *state;

    assert_in_range(fbr_loop_call(b->loop, start_with_each_lack, b), 10, 1000);
    wait_for_end(b);
    assert_int_equal(fbr_loop_call(b->loop, release_jobs, b), 0);
}

/* A job whose pod the server refuses for now is tried for ten minutes. */
static void a_job_that_is_killed_is_not_tried_again(void **state)
{
    struct bench *b = *state;

    atomic_store(&b->takes_secrets, true);
    assert_int_equal(fbr_loop_call(b->loop, start_one, b), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sem_wait(&b->fails), 0);
    assert_int_equal(fbr_loop_call(b->loop, kill_all, b), 0);
    wait_for_end(b);
    assert_non_null(strstr(b->jobs[0].why, "failed calling webhook"));
    assert_int_equal(fbr_loop_call(b->loop, release_jobs, b), 0);
}

/* The quota is asked again in five seconds, however many jobs wait. */
static void jobs_wait_while_a_quota_is_full(void **state)
{
    struct bench *b = *state;

    atomic_store(&b->takes_secrets, true);
    atomic_store(&b->full, true);
    assert_int_equal(fbr_loop_call(b->loop, start_more_than_may_be_created_at_once, b), 0);
    let_time_pass(1000);
    assert_in_range(b->tried, 1, 2 * BURST);
    assert_int_equal(fbr_loop_call(b->loop, kill_all, b), 0);
    wait_for_end(b);
    assert_int_equal(fbr_loop_call(b->loop, release_jobs, b), 0);
}

struct found {
    int pods, jobs, maps;
};

static void on_found(void *user, const struct fbr_orphan *object)
{
    struct found *f = user;

    f->maps += !strncmp(object->id, "configmap/", 10);
    f->jobs += !strcmp(object->id, "job/m");
    f->pods += !strchr(object->id, '/');
}

static void a_list_has_all_its_pages_and_each_job_once(void **state)
{
    struct bench *b = *state;
    struct found found = {0};

    if (fbr_kube_ops.housekeeping->list(b->backend, on_found, &found, &b->err) < 0)
        fail_msg("%s", b->err.text);
    assert_int_equal(found.maps, 2);
    assert_int_equal(found.pods, 2);
    assert_int_equal(found.jobs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_whose_tickets_lack_memory_end),
        cmocka_unit_test(jobs_wait_in_line_while_there_is_no_memory),
        cmocka_unit_test(a_job_that_lacks_memory_is_refused),
        cmocka_unit_test(a_job_that_is_killed_is_not_tried_again),
        cmocka_unit_test(jobs_wait_while_a_quota_is_full),
        cmocka_unit_test(a_list_has_all_its_pages_and_each_job_once),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
