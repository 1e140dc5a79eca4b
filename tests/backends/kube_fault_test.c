/* kube_fault_test.c - requests to an API server that refuses, is busy, or breaks off: what is asked again, with which
 * credentials, and what is told.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/kubernetes/cleanup.h"
#include "runtime/net/loop.h"
#include "tests/support/clock_ahead.h"
#include "tests/support/http_server.h"

#define STATUS(code, message) \
    "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"" message "\",\"code\":" #code "}"

/* What is answered, in this order; the last again and again. With status 0 the text is sent as it is, and the
 * connection is reset; with NO_ANSWER nothing is sent. */
#define NO_ANSWER (-1)

#define EXEC_VERSION "client.authentication.k8s.io/v1"
#define BETWEEN_PLUGINS_MS 5000 /* a plugin runs no sooner again */

struct step {
    int status;
    const char *headers, *body;
    const char *token; /* what the file of the token says from now on; NULL: as before */
};

struct bench {
    const struct step *steps;
    size_t n;
    struct http_server *server;
    struct fbr_loop *loop;
    struct fbr_kube_api api;
    char url[64], file[64], last[256]; /* last: the token that came */
    const char *plugin; /* the program that prints tokens; NULL: they are in the file */
    char *argv[2];
    sem_t done;
    int status, asked;
    char body[512], say[512];
    size_t objects; /* to be removed instead; `away`: from a server that was away just now */
    bool away;
    size_t left;
    uint64_t waits_ms; /* the caller waits for the answer; 0: it does not */
};

static void write_token(const struct bench *b, const char *token)
{
    FILE *f = fopen(b->file, "w");

    fputs(token, f);
    fclose(f);
}

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct bench *b = user;
    const struct step *s = &b->steps[(size_t)q->number < b->n ? (size_t)q->number - 1 : b->n - 1];

    snprintf(b->last, sizeof(b->last), "%s", q->authorization);
    if (b->plugin && q->number == 1)
        ahead_ms += BETWEEN_PLUGINS_MS;
    if (s->token)
        write_token(b, s->token);
    if (s->status == NO_ANSWER) {
        http_wait_for_end(p);
        return false;
    }
    if (s->status)
        return http_say(p, s->status, s->headers ? s->headers : "", s->body);
    http_write(p, s->body, strlen(s->body));
    http_reset(p);
    return false;
}

static void on_done(void *user, const struct fbr_http_answer *a)
{
    struct bench *b = user;

    b->status = a->status;
    snprintf(b->body, sizeof(b->body), "%s", a->body);
    fbr_kube_describe(&b->api, a, "create pods", b->say, sizeof(b->say));
    sem_post(&b->done);
}

static int remove_objects(struct bench *b)
{
    struct fbr_kube_last list[] = {{.path = (char *)"/a", .body = "{}"},
                                   {.path = (char *)"/b", .body = "{}"}};

    b->api.away_at = b->away ? fbr_now_ms() : 0;
    b->left = fbr_kube_last_remove(&b->api, list, b->objects, b->say, sizeof(b->say));
    return sem_post(&b->done);
}

static int ask(struct bench *b)
{
    struct fbr_error err = {0, ""};

    b->status =
        fbr_kube_ask(&b->api, "GET", fbr_kube_path(&b->api, "pods"), NULL, b->waits_ms, NULL, &err);
    snprintf(b->say, sizeof(b->say), "%.500s", err.text);
    return sem_post(&b->done);
}

static int open_and_send(void *arg)
{
    struct bench *b = arg;
    struct fbr_http_options *o = b->api.options;

    b->api.loop = b->loop;
    b->api.config.server = b->url;
    if (b->plugin) {
        b->argv[0] = b->file;
        b->api.config.exec = (struct fbr_kube_exec){.argv = {.at = b->argv, .n = 1},
                                                    .version = (char *)EXEC_VERSION};
    } else {
        b->api.config.token_file = b->file;
    }
    b->api.namespace_ = "n";
    if (fbr_kube_creds_open(&b->api.creds, &b->api.config, NULL) < 0)
        return -1;
    *o = (struct fbr_http_options){
        .url = b->url, .token = fbr_kube_creds_token, .token_user = b->api.creds};
    if (fbr_http_open(&b->api.calls, b->loop, o, NULL) < 0)
        return -1;
    if (b->objects)
        return remove_objects(b);
    if (b->waits_ms)
        return ask(b);
    return fbr_kube_send(&b->api, "POST", fbr_kube_path(&b->api, "pods"), "{}", 60000, on_done, b);
}

static int close_all(void *arg)
{
    struct bench *b = arg;

    fbr_http_close(b->api.calls);
    fbr_kube_creds_close(b->api.creds);
    return 0;
}

static void play(struct bench *b, const struct step *steps, size_t n)
{
    struct timespec until;
    int fd;

    b->steps = steps;
    b->n = n;
    snprintf(b->file, sizeof(b->file), "/tmp/kube_fault_test.XXXXXX");
    fd = mkstemp(b->file);
    assert_true(fd >= 0);
    close(fd);
    write_token(b, b->plugin ? b->plugin : "first\n");
    assert_int_equal(chmod(b->file, 0700), 0);
    assert_int_equal(sem_init(&b->done, 0, 0), 0);
    b->server = http_server_open(NULL, false, answer, b);
    assert_non_null(b->server);
    snprintf(b->url, sizeof(b->url), "http://127.0.0.1:%d", http_server_port(b->server));
    assert_int_equal(fbr_loop_open(&b->loop, NULL), 0);
    assert_int_equal(fbr_loop_call(b->loop, open_and_send, b), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    assert_int_equal(sem_timedwait(&b->done, &until), 0);
    assert_int_equal(fbr_loop_call(b->loop, close_all, b), 0);
    b->asked = http_server_asked(b->server);
    fbr_loop_close(b->loop);
    http_server_close(b->server);
    sem_destroy(&b->done);
    unlink(b->file);
}

#define PLAY(b, steps) play(b, steps, sizeof(steps) / sizeof((steps)[0]))

static void a_token_that_is_refused_is_read_again(void **state)
{
    static const struct step steps[] = {{401, NULL, STATUS(401, "Unauthorized"), "second"},
                                        {201, NULL, "made", NULL}};
    struct bench b = {0};

    PLAY(&b, steps);
    assert_int_equal(b.status, 201);
    assert_string_equal(b.last, "Bearer second");
    assert_int_equal(b.asked, 2);
}

static void a_new_token_that_is_refused_too_is_told(void **state)
{
    static const struct step steps[] = {{401, NULL, STATUS(401, "Unauthorized"), "second"},
                                        {401, NULL, STATUS(401, "Unauthorized"), "third"}};
    struct bench b = {0};

    PLAY(&b, steps);
    assert_int_equal(b.status, 401);
    assert_int_equal(b.asked, 2);
    assert_string_equal(b.say, "create pods: Unauthorized; the token or certificate is wrong or "
                               "too old (check with `kubectl auth whoami`)");
}

/* A Role for this user would let everybody in. */
static void a_user_without_credentials_is_told(void **state)
{
    static const struct step steps[] = {
        {403, NULL,
         STATUS(403, "pods is forbidden: User \\\"system:anonymous\\\" cannot create resource "
                     "\\\"pods\\\" in API group \\\"\\\" in the namespace \\\"fiber\\\""),
         NULL}};
    struct bench b = {0};

    PLAY(&b, steps);
    assert_string_equal(b.say,
                        "create pods: pods is forbidden: User \"system:anonymous\" cannot create "
                        "resource \"pods\"; the user in the kubeconfig has no token or certificate "
                        "that the server takes");
}

/* The second run takes longer than the pause before a repetition. */
static void a_slow_plugin_is_waited_for(void **state)
{
    static const struct step steps[] = {{401, NULL, STATUS(401, "Unauthorized"), NULL},
                                        {201, NULL, "made", NULL}};
    struct bench b = {.plugin =
                          "#!/bin/sh\n"
                          "token=first\n"
                          "[ ! -e \"$0.ran\" ] || { sleep 2; token=second; rm \"$0.ran\"; }\n"
                          "[ $token = second ] || : >\"$0.ran\"\n"
                          "echo '{\"apiVersion\":\"" EXEC_VERSION
                          "\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"'$token'\"}}'\n"};

    PLAY(&b, steps);
    assert_int_equal(b.status, 201);
    assert_string_equal(b.last, "Bearer second");
    assert_int_equal(b.asked, 2);
}

static void what_is_busy_or_breaks_off_is_asked_again(void **state)
{
    static const struct step steps[] = {
        {429, "Retry-After: 1\r\n", STATUS(429, "too many requests"), NULL},
        {500, NULL, STATUS(500, "etcdserver: leader changed"), NULL},
        {0, NULL, "", NULL},
        {0, NULL, "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"half\":", NULL},
        {0, NULL,
         "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"half\":", NULL},
        {503, NULL, "not json", NULL},
        {201, NULL, "made", NULL}};
    struct bench b = {0};

    PLAY(&b, steps);
    assert_int_equal(b.status, 201);
    assert_string_equal(b.body, "made");
    assert_int_equal(b.asked, 7);
}

static void a_busy_server_is_asked_again_though_the_caller_waits(void **state)
{
    static const struct step steps[] = {
        {429, "Retry-After: 1\r\n", STATUS(429, "too many requests"), NULL},
        {429, "Retry-After: 1\r\n", STATUS(429, "too many requests"), NULL},
        {429, "Retry-After: 1\r\n", STATUS(429, "too many requests"), NULL},
        {200, NULL, "{}", NULL}};
    struct bench b = {.waits_ms = 10000};

    PLAY(&b, steps);
    assert_int_equal(b.status, 200);
    assert_int_equal(b.asked, 4);
}

/* As the page of a proxy that wants a login. */
static void a_page_that_is_no_object_is_no_success(void **state)
{
    static const struct step steps[] = {{200, NULL, "<html>", NULL}};
    struct bench b = {.waits_ms = 10000};

    PLAY(&b, steps);
    assert_int_equal(b.status, 0);
    assert_non_null(strstr(b.say, "is not JSON"));
}

/* A server whose etcd is away answers a list after a minute. */
static void a_caller_waits_no_longer_than_it_said(void **state)
{
    static const struct step steps[] = {{NO_ANSWER, NULL, NULL, NULL}};
    struct bench b = {.waits_ms = 1000};

    PLAY(&b, steps);
    assert_int_equal(b.status, 0);
    assert_int_equal(b.asked, 1);
}

static void a_refusal_is_told_with_its_causes_and_what_mends_it(void **state)
{
    static const struct {
        struct step step;
        const char *say;
    } cases[] = {
        {{422, NULL,
          "{\"kind\":\"Status\",\"message\":\"Pod \\\"p\\\" is invalid: [spec.containers[0].image: "
          "Required value, metadata.labels: Invalid value: \\\"-\\\"]\",\"reason\":\"Invalid\","
          "\"details\":{\"causes\":[{\"field\":\"spec.containers[0].image\"}]},\"code\":422}",
          NULL},
         "create pods: Pod \"p\" is invalid: [spec.containers[0].image: Required value, "
         "metadata.labels: Invalid value: \"-\"]"},
        {{403, NULL,
          STATUS(403, "pods is forbidden: User \\\"u\\\" cannot create resource \\\"pods\\\" in "
                      "API group \\\"\\\" in the namespace \\\"n\\\""),
          NULL},
         "create pods: pods is forbidden: User \"u\" cannot create resource \"pods\"; `fiber "
         "kubernetes manifest` prints the Role that is needed"},
        {{403, NULL,
          STATUS(403, "pods \\\"p\\\" is forbidden: exceeded quota: q, requested: pods=1"), NULL},
         "create pods: pods \"p\" is forbidden: exceeded quota: q, requested: pods=1"},
        {{403, NULL, STATUS(403, "failed quota: q: must specify limits.cpu for: fiber"), NULL},
         "create pods: failed quota: q: must specify limits.cpu for: fiber; "
         "kubernetes_pod_template sets resources"},
        {{422, NULL,
          STATUS(422,
                 "requests: Invalid value: \\\"8\\\": must be less than or equal to cpu limit of "
                 "500m"),
          NULL},
         "create pods: requests: Invalid value: \"8\": must be less than or equal to cpu limit of "
         "500m; kubernetes_pod_template sets resources"},
        {{404, NULL, STATUS(404, "namespaces \\\"n\\\" not found"), NULL},
         "create pods: namespaces \"n\" not found; kubernetes_namespace chooses another"},
        {{409, NULL, STATUS(409, "pods \\\"p\\\" already exists"), NULL},
         "create pods: pods \"p\" already exists"},
        {{422, NULL, "no json", NULL}, "create pods: HTTP status 422: no json"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b = {0};

        play(&b, &cases[i].step, 1);
        assert_int_equal(b.status, cases[i].step.status);
        assert_int_equal(b.asked, 1);
        assert_string_equal(b.say, cases[i].say);
    }
}

static void what_is_removed_at_the_end_is_asked_for_until_it_is_gone(void **state)
{
    static const struct {
        struct step steps[4];
        size_t n, objects, left;
        int asked;
        bool away;
        const char *say;
    } cases[] = {
        {{{200, NULL, "{}", NULL},
          {500, NULL, "{}", NULL},
          {0, NULL, "", NULL},
          {404, NULL, "{}", NULL}},
         4,
         2,
         0,
         4,
         false,
         ""},
        {{{NO_ANSWER, NULL, NULL, NULL}, {200, NULL, "{}", NULL}}, 2, 1, 0, 2, false, ""},
        {{{401, NULL, "{}", "second"}, {202, NULL, "{}", NULL}}, 2, 1, 0, 2, false, ""},
        {{{403, NULL, STATUS(403, "u cannot delete"), NULL}}, 1, 2, 2, 2, false, "u cannot delete"},
        {{{403, NULL, STATUS(403, "u cannot delete"), NULL}, {200, NULL, "{}", NULL}},
         2,
         1,
         0,
         2,
         true,
         ""},
        {{{NO_ANSWER, NULL, NULL, NULL}}, 1, 1, 1, 3, true, "no answer in time"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bench b = {.objects = cases[i].objects, .away = cases[i].away};

        play(&b, cases[i].steps, cases[i].n);
        assert_int_equal(b.left, cases[i].left);
        assert_int_equal(b.asked, cases[i].asked);
        assert_string_equal(b.say, cases[i].say);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_that_is_refused_is_read_again),
        cmocka_unit_test(a_new_token_that_is_refused_too_is_told),
        cmocka_unit_test(a_user_without_credentials_is_told),
        cmocka_unit_test(a_slow_plugin_is_waited_for),
        cmocka_unit_test(what_is_busy_or_breaks_off_is_asked_again),
        cmocka_unit_test(a_busy_server_is_asked_again_though_the_caller_waits),
        cmocka_unit_test(a_page_that_is_no_object_is_no_success),
        cmocka_unit_test(a_caller_waits_no_longer_than_it_said),
        cmocka_unit_test(a_refusal_is_told_with_its_causes_and_what_mends_it),
        cmocka_unit_test(what_is_removed_at_the_end_is_asked_for_until_it_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
