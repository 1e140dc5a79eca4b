/* kube_end_test.c - jobs that end in an API server of the test: their output comes whole, however late, and their
 * Secrets go with them.
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/kubernetes/kubernetes_priv.h"
#include "tests/support/clock_ahead.h"
#include "tests/support/http_server.h"
#include "tests/support/kube_folder.h"
#include "tests/support/sync.h"

#define RUN "0123456789abcdef0123456789abcdef"
#define LONG_S 60
#define AWAY_MS 5000
#define LATE_LINES \
    5 /* of a log that comes a second apart: longer than a silent one is waited for */

#define EARLY_MS 2500 /* an end of the log so long before the pod's is not the program's */

static char base[] = "/tmp/fiber-kube-end-XXXXXX";

/* What the server has, and what has happened. */
struct bench {
    struct http_server *server;
    struct fbr_loop *loop;
    struct fbr_config *config;
    struct fbr_backend *backend;
    struct fbr_error err;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int pods;  /* that were made; their names follow */
    int ended; /* pods that the watch has shown to have ended */
    char pod[40][FBR_KUBE_NAME];
    int secrets; /* that were made */
    int removed; /* Secrets that were removed */
    char secret[128];
    bool late;    /* logs come late */
    bool forgets; /* the log breaks off, and then the node's agent does not know the pod */
    bool early;   /* the log ends first, long before the pod */
    int logs;     /* requests for it */
    int may_end;  /* the pod may end */
    bool others;  /* pods have another container, which runs on */
    int swept;    /* pods that were deleted */
    bool silent;  /* the next DELETE of a pod gets no answer */
    bool orphans; /* the ConfigMap is gone, and the cluster deletes the pods that it owned */
    int tried;    /* requests that ask whether the ConfigMap is there */
    int owners;   /* ConfigMaps that were made */
    bool refuses; /* no ConfigMap may be made */
    char out[256];
    char why[256];   /* text of the last end */
    char waits[256]; /* why a job waits */
    bool master;     /* jobs are masters; their Jobs get no pods, and are deleted */
    bool rests;      /* the watch breaks off, and is refused; meanwhile somebody deletes the pod */
    int running;     /* jobs that were told to run */
    int disrupted;   /* jobs that were told to be ended by others, and then to have ended so */
    int over;        /* jobs whose end was told */
    void *handle;
};

static void change(struct bench *b, int *what)
{
    pthread_mutex_lock(&b->lock);
    ++*what;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* Waits until `what` is `n`; returns whether it is. */
static bool comes_to(struct bench *b, const int *what, int n)
{
    struct timespec until;
    bool is;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_S;
    pthread_mutex_lock(&b->lock);
    while (*what < n && rc == 0)
        rc = pthread_cond_timedwait(&b->changed, &b->lock, &until);
    is = *what == n;
    pthread_mutex_unlock(&b->lock);
    return is;
}

/* ---- The server ---- */

static void name_in(const char *body, size_t size, char *out)
{
    const char *at = strstr(body, "\"name\":\"fiber-");

    snprintf(out, size, "%.*s", at ? (int)strcspn(at + 8, "\"") : 0, at ? at + 8 : "");
}

static bool make(struct bench *b, struct http_peer *p, const struct http_asked *q)
{
    bool is_pod = strstr(q->path, "/pods") != NULL;
    char name[FBR_KUBE_NAME], text[512];

    if (is_pod && !strstr(q->path, "fieldValidation=Strict"))
        return http_say(p, 400, "", "{}");
    if (strstr(q->path, "/configmaps") ? b->refuses : !strstr(q->body, "\"kind\":\"ConfigMap\""))
        return http_say(p, 409, "",
                        "{\"message\":\"a webhook forbids it\",\"reason\":\"Conflict\"}");
    name_in(q->body, sizeof(name), name);
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"uid\":\"u\",\"resourceVersion\":\"2\",\"labels\":{"
             "\"fiber.io/run\":\"" RUN "\"}}}",
             name);
    if (!http_say(p, 201, "", text))
        return false;
    if (is_pod)
        memcpy(b->pod[b->pods], name, sizeof(name));
    change(b, is_pod ? &b->pods : strstr(q->path, "/secrets") ? &b->secrets : &b->owners);
    return true;
}

static bool write_part(struct http_peer *p, const char *text)
{
    char head[32];

    snprintf(head, sizeof(head), "%zx\r\n", strlen(text));
    return http_write(p, head, strlen(head)) && http_write(p, text, strlen(text)) &&
           http_write(p, "\r\n", 2);
}

static void begin_parts(struct http_peer *p)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    http_write(p, head, sizeof(head) - 1);
}

/* Each pod runs, and has ended with code 0. */
static bool watch(struct bench *b, struct http_peer *p)
{
    static const char *const states[] = {
        "\"Running\",\"containerStatuses\":[{\"name\":\"fiber\",\"state\":{\"running\":{}}}]",
        "\"Succeeded\",\"containerStatuses\":[{\"name\":\"fiber\",\"state\":{"
        "\"terminated\":{\"exitCode\":0}}}]",
        "\"Running\",\"containerStatuses\":[{\"name\":\"fiber\",\"state\":{"
        "\"terminated\":{\"exitCode\":0}}},{\"name\":\"other\",\"state\":{\"running\":{}}}]"};
    char text[1024];

    begin_parts(p);
    for (int pod = 0; comes_to(b, &b->pods, pod + 1);
         pod++) { /* each is made after the end of the last */
        for (size_t i = 0; i < 2; i++) {
            if (i && b->rests)
                return false;
            if (i && (b->forgets || b->early) && !comes_to(b, &b->may_end, 1))
                return false;
            snprintf(text, sizeof(text),
                     "{\"type\":\"%s\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":"
                     "\"%s\",\"uid\":\"u\","
                     "\"resourceVersion\":\"3\",\"labels\":{\"fiber.io/run\":\"" RUN
                     "\"}},\"status\":{\"phase\":%s}}}\n",
                     i && b->orphans ? "DELETED" : "MODIFIED", b->pod[pod],
                     states[i && b->others ? 2 : i && !b->orphans]);
            if (!write_part(p, text))
                return false;
        }
        change(b, &b->ended);
    }
    return false;
}

static bool show_broken_log(struct bench *b, struct http_peer *p)
{
    bool whole;

    change(b, &b->logs);
    if (b->forgets && b->logs == 2)
        return http_say(p, 404, "", "{}");
    begin_parts(p);
    whole = write_part(p, "2026-01-02T03:04:01.000000000Z line 1\n") && b->logs > 1 &&
            write_part(p, "2026-01-02T03:04:02.000000000Z line 2\n");
    if (whole || b->early)
        http_write(p, "0\r\n\r\n", 5);
    return false;
}

static bool show_log(struct bench *b, struct http_peer *p)
{
    char line[64];

    if (b->forgets || b->early)
        return show_broken_log(b, p);
    begin_parts(p);
    for (int i = 1; b->late && i <= LATE_LINES; i++) {
        let_time_pass(1000);
        if (b->others && !comes_to(b, &b->swept, 0)) /* with the pod its log is gone */
            return false;
        snprintf(line, sizeof(line), "2026-01-02T03:04:0%d.000000000Z line %d\n", i, i);
        if (!write_part(p, line))
            return false;
    }
    http_write(p, "0\r\n\r\n", 5);
    return false;
}

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct bench *b = user;

    if (!strcmp(q->method, "POST") && b->master) {
        if (strstr(q->path, "/jobs")) /* for so long a Job may have no pod yet */
            ahead_ms += AWAY_MS;
        return http_say(p, 201, "", "{}");
    }
    if (!strcmp(q->method, "POST"))
        return make(b, p, q);
    if (b->rests && strstr(q->path, "watch="))
        return http_say(p, 503, "", "{}");
    if (b->rests && !strcmp(q->method, "GET") && strstr(q->path, "/pods/"))
        return http_say(
            p, 200, "",
            "{\"metadata\":{\"uid\":\"u\",\"deletionTimestamp\":\"2026-01-02T03:04:05Z\"},"
            "\"status\":{\"phase\":\"Running\"}}");
    if (!strcmp(q->method, "DELETE")) {
        if (strstr(q->body, "dryRun")) {
            bool said = http_say(p, b->orphans || b->master ? 404 : 200, "", "{}");

            change(b, &b->tried);
            return said;
        }
        if (strstr(q->path, "/secrets/")) {
            snprintf(b->secret, sizeof(b->secret), "%s", strstr(q->path, "/secrets/") + 9);
            change(b, &b->removed);
        } else if (strstr(q->path, "/pods/")) {
            change(b, &b->swept);
            if (b->silent) {
                b->silent = false;
                change(b, &b->may_end);
                http_wait_for_end(p);
                return false;
            }
        }
        return http_say(p, b->rests ? 404 : 200, "", "{}");
    }
    if (strstr(q->path, "/log"))
        return show_log(b, p);
    if (strstr(q->path, "watch="))
        return watch(b, p);
    return http_say(p, 200, "", "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}");
}

/* ---- The backend ---- */

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct bench *b = user;

    if (e->type == FBR_JOB_PENDING && e->disrupted)
        change(b, &b->disrupted);
    else if (e->type == FBR_JOB_PENDING && e->runs)
        change(b, &b->running);
    else if (e->type == FBR_JOB_PENDING)
        snprintf(b->waits, sizeof(b->waits), "%s", e->text);
    if (e->type == FBR_JOB_OUTPUT) {
        strncat(b->out, e->data, e->len);
    } else if (e->type == FBR_JOB_EXITED) {
        if (e->disrupted)
            change(b, &b->disrupted);
        snprintf(b->why, sizeof(b->why), "%s", e->text);
        change(b, &b->over);
    }
}

static int open_backend(void *arg)
{
    struct bench *b = arg;
    const struct fbr_backend_env env = {.loop = b->loop, .config = b->config, .event = on_event};

    return fbr_kube_ops.open(&b->backend, &env, &b->err);
}

static int start(void *arg)
{
    struct bench *b = arg;
    const struct fbr_job job = {.name = "worker",
                                .run_uid = RUN,
                                .image = "reg/x:1",
                                .file = "/bin/prog",
                                .ticket = b->master ? NULL : "secret",
                                .ticket_len = b->master ? 0 : 6,
                                .is_master = b->master,
                                .process = (uint64_t)b->over};

    return fbr_kube_ops.start(b->backend, &job, b, &b->handle, &b->err);
}

static int release(void *arg)
{
    struct bench *b = arg;

    fbr_kube_ops.release(b->backend, b->handle);
    return 0;
}

static int close_backend(void *arg)
{
    struct bench *b = arg;

    fbr_kube_ops.close(b->backend);
    return 0;
}

/* Whether the log of the job is being read. */
static int is_reading(void *arg)
{
    const struct bench *b = arg;

    return ((struct fbr_kube_job *)b->handle)->reading == READS;
}

static int kill_it(void *arg)
{
    const struct bench *b = arg;

    return fbr_kube_ops.signal(b->backend, b->handle, SIGKILL);
}

/* Runs one job to its end, which may come before the last answer. */
static void run_job(struct bench *b)
{
    int before = b->over;

    b->logs = b->may_end = 0;
    if (fbr_loop_call(b->loop, start, b) < 0)
        fail_msg("%s", b->err.text);
    if (b->forgets || b->early) {
        assert_true(comes_to(b, &b->logs, b->forgets ? 2 : 1));
        while (fbr_loop_call(b->loop, is_reading, b))
            let_time_pass(1);
        let_time_pass(b->early ? EARLY_MS : 0);
        change(b, &b->may_end);
    }
    assert_true(comes_to(b, &b->over, before + 1));
    assert_int_equal(fbr_loop_call(b->loop, release, b), 0);
}

static int set_up(void **state)
{
    static struct bench b = {.lock = PTHREAD_MUTEX_INITIALIZER,
                             .changed = PTHREAD_COND_INITIALIZER};

    *state = &b;
    if (!mkdtemp(base))
        return -1;
    b.server = http_server_open(NULL, false, answer, &b);
    kube_folder_make(base, http_server_port(b.server));
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
    b->pods = 100; /* no pod has that number: the watch ends */
    change(b, &b->pods);
    http_server_close(b->server);
    return kube_folder_remove(base);
}

/* A quota of Secrets would be full one day, although no job runs. */
static void a_secret_goes_with_its_last_job(void **state)
{
    struct bench *b = *state;

    for (int i = 1; i < 4; i++) {
        const char word[] = {'-', 't', (char)('0' + i), '\0'};

        run_job(b);
        assert_true(comes_to(b, &b->removed, i));
        assert_int_equal(b->secrets, i);
        assert_non_null(strstr(b->secret, word));
    }
}

/* The server shows the end of the pod at once, and its output second by second. */
static void output_that_comes_late_is_not_cut(void **state)
{
    struct bench *b = *state;
    char line[32];

    b->late = true;
    b->out[0] = '\0';
    run_job(b);
    for (int i = 1; i <= LATE_LINES; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        if (!strstr(b->out, line))
            fail_msg("line %d is missing in \"%s\"", i, b->out);
    }
}

/* As when the node's agent is started again while the program runs. */
static void output_is_read_on_after_the_node_did_not_know_the_pod(void **state)
{
    struct bench *b = *state;

    b->late = false;
    b->forgets = true;
    b->out[0] = '\0';
    run_job(b);
    b->forgets = false;
    assert_string_equal(b->out, "line 1\nline 2\n");
}

/* As when the node's agent is started again, and the program ends before the log is requested again. */
static void output_that_ended_before_the_pod_is_read_on(void **state)
{
    struct bench *b = *state;

    b->early = true;
    b->out[0] = '\0';
    run_job(b);
    b->early = false;
    assert_string_equal(b->out, "line 1\nline 2\n");
}

/* A pod whose other containers run on is deleted, but with it goes what has not been read of its output. */
static void a_pod_with_other_containers_is_deleted_after_its_output(void **state)
{
    struct bench *b = *state;

    assert_int_equal(b->swept, 0);
    b->others = true;
    output_that_comes_late_is_not_cut(state);
    assert_true(comes_to(b, &b->swept, 1));
}

/* Somebody has deleted the ConfigMap of the run: without another owner each further pod would be deleted, too. */
static void a_run_whose_owner_is_deleted_makes_another(void **state)
{
    struct bench *b = *state;

    b->late = b->others = false;
    assert_int_equal(b->owners, 1);
    b->orphans = true;
    run_job(b);
    assert_true(comes_to(b, &b->tried, 1));
    b->orphans = false;
    for (int i = 0; i < 10 && comes_to(b, &b->owners, 1); i++) /* until the answer has come */
        run_job(b);
    assert_true(comes_to(b, &b->owners, 2));
}

/* An answer 409 that is not about the name. */
static void a_job_whose_owner_is_refused_ends(void **state)
{
    struct bench *b = *state;

    b->orphans = true;
    run_job(b);
    assert_true(comes_to(b, &b->tried, 2));
    b->orphans = false;
    b->refuses = true;
    b->why[0] = '\0';
    for (int i = 0; i < 10 && !b->why[0]; i++) /* until the answer has come */
        run_job(b);
    assert_non_null(strstr(b->why, "the owner of its pod cannot be made (create configmaps)"));
    assert_non_null(strstr(b->why, "a webhook forbids it"));
    b->refuses = false;
    run_job(b);
    assert_int_equal(b->owners, 3);
}

/* As when a queue has suspended the Job, and somebody deletes it there. */
static void a_master_whose_job_is_deleted_before_it_has_a_pod_ends(void **state)
{
    struct bench *b = *state;

    b->master = true;
    run_job(b);
    b->master = false;
    assert_string_equal(b->why, "its Job was deleted by somebody else");
    assert_non_null(strstr(b->waits, "(kubectl -n default describe job/fiber-"));
}

/* AddressSanitizer sees what the end of the backend leaves. */
static void a_job_may_end_before_the_last_answer(void **state)
{
    struct bench *b = *state;
    int before = b->over;

    b->early = b->silent = true;
    b->running = b->may_end = 0;
    assert_int_equal(fbr_loop_call(b->loop, start, b), 0);
    assert_true(comes_to(b, &b->running, 1));
    assert_int_equal(fbr_loop_call(b->loop, kill_it, b), 0);
    assert_true(comes_to(b, &b->over, before + 1));
    assert_int_equal(fbr_loop_call(b->loop, release, b), 0);
    b->early = false;
}

static int kill_while_it_rests(void *arg)
{
    const struct bench *b = arg;

    return fbr_kube_watch_rests(b->backend->watch) && kill_it(arg) == 0;
}

/* A worker that hangs up is killed: it must not look as if it had failed. */
static void a_pod_that_is_deleted_while_the_watch_rests_is_no_failure(void **state)
{
    struct bench *b = *state;
    int before = b->over;

    b->rests = true;
    b->running = b->disrupted = 0;
    assert_int_equal(fbr_loop_call(b->loop, start, b), 0);
    assert_true(comes_to(b, &b->running, 1));
    while (!fbr_loop_call(b->loop, kill_while_it_rests, b))
        let_time_pass(1);
    assert_true(comes_to(b, &b->over, before + 1));
    assert_int_equal(b->disrupted, 2);
    assert_int_equal(fbr_loop_call(b->loop, release, b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_goes_with_its_last_job),
        cmocka_unit_test(output_that_comes_late_is_not_cut),
        cmocka_unit_test(output_is_read_on_after_the_node_did_not_know_the_pod),
        cmocka_unit_test(output_that_ended_before_the_pod_is_read_on),
        cmocka_unit_test(a_pod_with_other_containers_is_deleted_after_its_output),
        cmocka_unit_test(a_run_whose_owner_is_deleted_makes_another),
        cmocka_unit_test(a_job_whose_owner_is_refused_ends),
        cmocka_unit_test(a_master_whose_job_is_deleted_before_it_has_a_pod_ends),
        cmocka_unit_test(a_job_may_end_before_the_last_answer),
        cmocka_unit_test(a_pod_that_is_deleted_while_the_watch_rests_is_no_failure),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
