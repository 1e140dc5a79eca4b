/* kube_show_test.c - what is shown of a job before it is started, what a server says that would not take it, and what
 * the doctor makes of nodes and addresses.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/http/json.h"
#include "backends/kubernetes/kubernetes_priv.h"
#include "backends/kubernetes/yaml.h"
#include "tests/support/http_server.h"

static const struct fbr_job agent = {.name = "agent-1",
                                     .run_uid = "dry-run",
                                     .image = "reg/x:1",
                                     .file = "/bin/prog",
                                     .memory = 1 << 30,
                                     .gpus = 2,
                                     .ticket = "secret",
                                     .ticket_len = 6,
                                     .process = 1};

/* ---- Manifests ---- */

static void values_are_the_same_in_yaml(void **state)
{
    static const char *const texts[] = {
        "{\"a\":{\"b.c/d\":\"x: y\",\"e\":[],\"f\":{},\"g\":null,\"h\":-3,\"i\":true}}",
        ("{\"l\":[{\"a\":1,\"b\":[{\"c\":2},{\"d\":{\"e\":3,\"f\":4}}],\"g\":5},\"s\",{},[1,[2]]],"
         "\"m\":6}"),
        "{\"odd key: #\":\"\\n\\t\\\"- {}\",\"1\":\"yes\",\"true\":\"1\",\"-\":\"~\"}",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct json_t *value = fbr_json_parse(texts[i], strlen(texts[i]), NULL), *back;
        struct fbr_error err = {0, ""};
        char *text, *again;

        assert_non_null(value);
        text = fbr_kube_show_yaml(value);
        assert_non_null(text);
        back = fbr_kube_yaml(text, strlen(text), "shown", &err);
        if (!back)
            fail_msg("%s: %s", err.text, text);
        again = fbr_json_print(back, NULL);
        assert_string_equal(again, texts[i]);
        fbr_json_free(value);
        fbr_json_free(back);
        free(text);
        free(again);
    }
}

static void a_pod_is_shown_without_its_ticket(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_config *config;
    struct json_t *pod;
    char *text;

    assert_int_equal(fbr_config_load(&config, NULL), 0);
    assert_int_equal(fbr_kube_show(config, &agent, 0, &text, &err), 0);
    pod = fbr_kube_yaml(text, strlen(text), "shown", &err);
    assert_non_null(pod);
    assert_string_equal(fbr_json_text(pod, "kind", NULL), "Pod");
    assert_string_equal(fbr_json_text(pod, "metadata", "name", NULL), "fiber-dry-run-agent-1");
    assert_non_null(strstr(text, "nvidia.com/gpu: \"2\""));
    assert_null(strstr(text, "c2VjcmV0")); /* "secret" in base64 */
    fbr_json_free(pod);
    free(text);
    fbr_config_free(config);
}

/* The program may look up users at any time, and what it gets lies in one place. */
static void users_that_the_program_looks_up_stay(void **state)
{
    const struct passwd *nobody = getpwuid(65534);
    struct fbr_config *config;
    char *text, name[64];

    if (!nobody)
        skip();
    snprintf(name, sizeof(name), "%s", nobody->pw_name);
    assert_int_equal(fbr_config_load(&config, NULL), 0);
    assert_int_equal(fbr_kube_show(config, &agent, 0, &text, NULL), 0);
    assert_string_equal(nobody->pw_name, name);
    free(text);
    fbr_config_free(config);
}

static void a_pod_without_an_image_is_not_shown(void **state)
{
    struct fbr_job job = agent;
    struct fbr_error err = {0, ""};
    struct fbr_config *config;
    char *text = NULL;

    job.image = NULL;
    assert_int_equal(fbr_config_load(&config, NULL), 0);
    assert_true(fbr_kube_show(config, &job, 0, &text, &err) < 0);
    assert_non_null(strstr(err.text, "no image is set"));
    assert_null(text);
    fbr_config_free(config);
}

/* ---- What the server says ---- */

struct bench {
    int pod, secret; /* statuses */
    const char *why;
    struct http_server *server;
    struct fbr_loop *loop;
    struct fbr_config *config;
    struct fbr_kube_api api;
    int rc;
    char told[2048], wrong[600];
};

static bool answer(struct http_peer *p, const struct http_asked *q, void *user)
{
    struct bench *b = user;
    bool pod = strstr(q->path, "/namespaces/n/pods?") != NULL;
    int status = pod ? b->pod : b->secret;

    if ((!strstr(q->path, "dryRun=All") || !strstr(q->path, "fieldValidation=Strict") ||
         strcmp(q->method, "POST") != 0) &&
        !b->wrong[0])
        snprintf(b->wrong, sizeof(b->wrong), "%s %s", q->method, q->path);
    if (strstr(q->body, "c2VjcmV0") && !b->wrong[0])
        snprintf(b->wrong, sizeof(b->wrong), "the ticket is sent");
    return http_say(p, status, "", status < 300 ? "{}" : b->why);
}

static void say(void *user, enum fbr_finding finding, const char *what, const char *text,
                const char *mend)
{
    struct bench *b = user;
    size_t n = strlen(b->told);

    snprintf(b->told + n, sizeof(b->told) - n, "%c%s: %s\n",
             finding == FBR_FINDING_GOOD ? '+' : '-', what, text);
}

static int on_loop(void *arg)
{
    struct bench *b = arg;
    struct fbr_backend backend = {.env.config = b->config, .api = &b->api};
    char url[64];
    struct fbr_http_options o = {.url = url};

    snprintf(url, sizeof(url), "http://127.0.0.1:%d", http_server_port(b->server));
    b->api.loop = b->loop;
    b->api.config.server = url;
    b->api.namespace_ = (char *)(uintptr_t) "n";
    fbr_kube_set_settings(&backend);
    if (fbr_kube_creds_open(&b->api.creds, &b->api.config, NULL) < 0 ||
        fbr_http_open(&b->api.calls, b->loop, &o, NULL) < 0)
        return -1;
    b->rc = fbr_kube_would(&backend, &agent, &(const struct fbr_findings){say, b});
    fbr_http_close(b->api.calls);
    fbr_kube_creds_close(b->api.creds);
    return 0;
}

static void ask(struct bench *b)
{
    assert_int_equal(fbr_config_load(&b->config, NULL), 0);
    b->server = http_server_open(NULL, false, answer, b);
    assert_non_null(b->server);
    assert_int_equal(fbr_loop_open(&b->loop, NULL), 0);
    assert_int_equal(fbr_loop_call(b->loop, on_loop, b), 0);
    fbr_loop_close(b->loop);
    http_server_close(b->server);
    fbr_config_free(b->config);
    assert_string_equal(b->wrong, "");
}

static void a_server_that_would_take_it_says_so_of_each_object(void **state)
{
    struct bench b = {.pod = 201, .secret = 201};

    ask(&b);
    assert_int_equal(b.rc, 0);
    assert_string_equal(b.told, "+pod: the server would accept it, in namespace n\n"
                                "+ConfigMap: the server would accept it, in namespace n\n"
                                "+Secret: the server would accept it, in namespace n\n");
}

static void a_refusal_is_told_with_its_fields(void **state)
{
    struct bench b = {
        .pod = 422,
        .secret = 201,
        .why = "{\"kind\":\"Status\",\"message\":\"Pod is invalid: spec.tolerations[0].effect: "
               "Unsupported value: x\"}"};

    ask(&b);
    assert_int_equal(b.rc, -EPERM);
    assert_non_null(strstr(b.told, "-pod: refused by the server: "));
    assert_non_null(strstr(b.told, "spec.tolerations[0].effect: Unsupported value: x"));
    assert_non_null(strstr(b.told, "+Secret: "));
}

static void who_may_not_make_secrets_hears_it(void **state)
{
    struct bench b = {.pod = 201,
                      .secret = 403,
                      .why = "{\"message\":\"secrets is forbidden: User jane cannot create "
                             "resource secrets\"}"};

    ask(&b);
    assert_int_equal(b.rc, -EPERM);
    assert_non_null(strstr(b.told, "-Secret: refused by the server: secrets is forbidden"));
    assert_non_null(strstr(b.told, "fiber kubernetes manifest"));
}

/* ---- Nodes and addresses ---- */

static void gpus_are_counted_by_node(void **state)
{
    static const char text[] =
        "{\"items\":[{\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\",\"amd.com/"
        "gpu\":\"1\"}}},"
        "{\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"4\"}}},"
        "{\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"-1\"}}},{\"status\":{}},{}]}";
    struct json_t *nodes = fbr_json_parse(text, strlen(text), NULL);
    struct fbr_kube_gpus g = fbr_kube_count_gpus(nodes, "nvidia.com/gpu");

    assert_true(g.nodes == 5 && g.with == 2 && g.gpus == 12 && g.most == 8);
    g = fbr_kube_count_gpus(nodes, "amd.com/gpu");
    assert_true(g.with == 1 && g.gpus == 1);
    g = fbr_kube_count_gpus(NULL, "nvidia.com/gpu");
    assert_true(g.nodes == 0 && g.gpus == 0);
    fbr_json_free(nodes);
}

static void the_smallest_node_that_takes_pods_counts(void **state)
{
    static const char text[] =
        "{\"items\":[{\"status\":{\"allocatable\":{\"cpu\":\"8\"}}},"
        "{\"status\":{\"allocatable\":{\"cpu\":\"3920m\"}}},"
        "{\"status\":{\"allocatable\":{\"cpu\":\"2\"}},\"spec\":{\"taints\":[{\"key\":\"a\","
        "\"effect\":\"PreferNoSchedule\"},{\"key\":\"b\",\"effect\":\"NoSchedule\"}]}},"
        "{\"status\":{\"allocatable\":{\"cpu\":\"1\"}},\"spec\":{\"unschedulable\":true}},"
        "{\"status\":{\"allocatable\":{\"cpu\":\"-1\"}}},{}]}";
    struct json_t *nodes = fbr_json_parse(text, strlen(text), NULL);

    assert_int_equal(fbr_kube_smallest(nodes), 3);
    assert_int_equal(fbr_kube_smallest(NULL), 0);
    fbr_json_free(nodes);
}

static void addresses_that_no_pod_can_call_are_known(void **state)
{
    static const char *const bad[] = {"127.0.0.1", "127.1.2.3", "169.254.7.8", "0.0.0.0",
                                      "::1",       "fe80::1",   "::"};
    static const char *const good[] = {"10.0.0.1", "192.168.1.2", "fd00::1", "2001:db8::1",
                                       "nothing"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (!fbr_kube_why_unreachable(bad[i]))
            fail_msg("%s is taken for one that pods reach", bad[i]);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_null(fbr_kube_why_unreachable(good[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_same_in_yaml),
        cmocka_unit_test(a_pod_is_shown_without_its_ticket),
        cmocka_unit_test(users_that_the_program_looks_up_stay),
        cmocka_unit_test(a_pod_without_an_image_is_not_shown),
        cmocka_unit_test(a_server_that_would_take_it_says_so_of_each_object),
        cmocka_unit_test(a_refusal_is_told_with_its_fields),
        cmocka_unit_test(who_may_not_make_secrets_hears_it),
        cmocka_unit_test(gpus_are_counted_by_node),
        cmocka_unit_test(the_smallest_node_that_takes_pods_counts),
        cmocka_unit_test(addresses_that_no_pod_can_call_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
