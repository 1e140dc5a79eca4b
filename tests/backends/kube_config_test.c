/* kube_config_test.c - YAML, kubeconfig files, service accounts and what exec plugins print.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/http/base64.h"
#include "backends/http/json.h"
#include "backends/kubernetes/kubeconfig.h"
#include "backends/kubernetes/credentials.h"
#include "backends/kubernetes/yaml.h"
#include "runtime/base/clock.h"
#include "tests/support/clock_ahead.h"
#include "tests/support/sync.h"

static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/kube-config-XXXXXX");
    unsetenv("KUBECONFIG");
    unsetenv("KUBERNETES_SERVICE_HOST");
    return mkdtemp(folder) ? setenv("HOME", folder, 1) : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"a",         "b",      "ca.crt", "token",
                                        "namespace", "plugin", "there/a"};
    char path[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/there", folder);
    rmdir(path);
    return rmdir(folder);
}

/* ---- YAML ---- */

static void yaml_is_read_as_kubectl_reads_it(void **state)
{
    static const char *const cases[][2] = {
        {"", "{}"},
        {"# nothing\n", "{}"},
        {"a: 1\nb: [x, 'y', \"z\"]\n", "{\"a\":1,\"b\":[\"x\",\"y\",\"z\"]}"},
        {"m: 0400\nh: 0x10\no: 0o17\nn: -3\nz: 0\n",
         "{\"m\":256,\"h\":16,\"o\":15,\"n\":-3,\"z\":0}"},
        {"a: yes\nb: off\nc: True\nd: ~\ne:\nf: 'yes'\n",
         "{\"a\":true,\"b\":false,\"c\":true,\"d\":null,\"e\":null,\"f\":\"yes\"}"},
        {"a: 1.5\nb: 500m\nc: 1Gi\nd: 1e3\ne: .\n",
         "{\"a\":1.5,\"b\":\"500m\",\"c\":\"1Gi\",\"d\":1000.0,\"e\":\".\"}"},
        {"x: &x {k: 1, l: 2}\ny: {<<: *x, l: 3}\nz: {l: 4, <<: *x}\n",
         "{\"x\":{\"k\":1,\"l\":2},\"y\":{\"k\":1,\"l\":3},\"z\":{\"l\":4,\"k\":1}}"},
        {"x: &x {r: {k: 1}, n: ~}\ny: {<<: *x, r: {l: 2}}\nz: {<<: [{k: 1}, {k: 2, l: 3}], m: 4}\n",
         "{\"x\":{\"r\":{\"k\":1},\"n\":null},\"y\":{\"r\":{\"l\":2},\"n\":null},"
         "\"z\":{\"k\":1,\"l\":3,\"m\":4}}"},
        {"---\na: |\n  one\n  two\n", "{\"a\":\"one\\ntwo\\n\"}"},
        {"{\"json\": [1, true, null]}", "{\"json\":[1,true,null]}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_error err = {0, ""};
        struct json_t *j = fbr_kube_yaml(cases[i][0], strlen(cases[i][0]), "t", &err);
        char *text = j ? fbr_json_print(j, NULL) : NULL;

        if (!text)
            fail_msg("case %zu: %s", i, err.text);
        assert_string_equal(text, cases[i][1]);
        free(text);
        fbr_json_free(j);
    }
}

static void yaml_that_is_wrong_is_told_with_its_line(void **state)
{
    static const char *const cases[][2] = {
        {"a: 1\nb: [\n", "t:"},
        {"a: 1\n---\nb: 2\n", "exactly one YAML document"},
        {"? [x]\n: 1\n", "t:1: a key is not a string"},
        {"a: &a [*a]\n", "nested too deeply"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_error err = {0, ""};

        assert_null(fbr_kube_yaml(cases[i][0], strlen(cases[i][0]), "t", &err));
        if (!strstr(err.text, cases[i][1]))
            fail_msg("case %zu says '%s'", i, err.text);
    }
}

/* Each line has the one before nine times. */
static void yaml_that_blows_up_is_refused(void **state)
{
    char text[2048] = "a0: &a0 [x]\n";
    struct fbr_error err = {0, ""};

    for (int i = 1; i < 12; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i, i - 1, i - 1,
                 i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    assert_null(fbr_kube_yaml(text, strlen(text), "t", &err));
    assert_non_null(strstr(err.text, "too"));
}

/* ---- Files ---- */

#define FIRST                                                                           \
    "current-context: one\n"                                                            \
    "clusters:\n"                                                                       \
    "- {name: c1, cluster: {server: 'https://h1:6443/', certificate-authority: ca.crt," \
    " tls-server-name: k, proxy-url: 'http://p:1'}}\n"                                  \
    "users:\n"                                                                          \
    "- {name: u1, user: {tokenFile: token}}\n"                                          \
    "contexts:\n"                                                                       \
    "- {name: one, context: {cluster: c1, user: u1}}\n"

#define SECOND                                                                                    \
    "current-context: two\n"                                                                      \
    "clusters:\n"                                                                                 \
    "- {name: c1, cluster: {server: 'https://other'}}\n"                                          \
    "- {name: c2, cluster: {server: 'https://[fd00::1]:6443', insecure-skip-tls-verify: true}}\n" \
    "- {name: c3, cluster: {server: 'https://localhost:1'}}\n"                                    \
    "- {name: c4, cluster: {server: 'https://'}}\n"                                               \
    "users:\n"                                                                                    \
    "- {name: u2, user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}}\n"            \
    "- {name: u3, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin,"  \
    " args: [get, token], env: [{name: A, value: b}], provideClusterInfo: true}}}\n"              \
    "- {name: u4, user: {auth-provider: {name: gcp}}}\n"                                          \
    "- {name: u7, user: {token: t, as: jane, as-groups: [team]}}\n"                               \
    "- {name: u5, user: {exec: {apiVersion: v7, command: x}}}\n"                                  \
    "- {name: u6, user: {client-key-data: S0VZ}}\n"                                               \
    "- {name: u8, user: {client-certificate-data: Q0VSVA==,"                                      \
    " client-key-data: QkVHSU4gRU5DUllQVEVE}}\n"                                                  \
    "contexts:\n"                                                                                 \
    "- {name: two, context: {cluster: c2, user: u2, namespace: team}}\n"                          \
    "- {name: three, context: {cluster: c2, user: u3}}\n"                                         \
    "- {name: four, context: {cluster: c2, user: u4}}\n"                                          \
    "- {name: five, context: {cluster: c2, user: u5}}\n"                                          \
    "- {name: six, context: {cluster: c2, user: u6}}\n"                                           \
    "- {name: seven, context: {cluster: none, user: u6}}\n"                                       \
    "- {name: here, context: {cluster: c3, user: u2}}\n"                                          \
    "- {name: eight, context: {cluster: c2, user: nobody}}\n"                                     \
    "- {name: ten, context: {cluster: c2, user: u7}}\n"                                           \
    "- {name: eleven, context: {cluster: c2, user: u8}}\n"                                        \
    "- {name: twelve, context: {cluster: c4}}\n"

static void use_both(void)
{
    char list[256];

    write_file("a", FIRST);
    write_file("b", SECOND);
    write_file("ca.crt", "CA");
    snprintf(list, sizeof(list), "%s/a:%s/missing:%s/b", folder, folder, folder);
    assert_int_equal(setenv("KUBECONFIG", list, 1), 0);
}

static void files_are_merged_and_the_first_counts(void **state)
{
    struct fbr_kube_config c;
    struct fbr_error err = {0, ""};
    char path[128];

    use_both();
    if (fbr_kube_config_load(&c, "", &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.context, "one");
    assert_string_equal(c.server, "https://h1:6443");
    assert_string_equal(c.ca, "CA");
    assert_string_equal(c.proxy, "http://p:1");
    assert_string_equal(c.server_name, "k");
    assert_string_equal(c.namespace_, "default");
    snprintf(path, sizeof(path), "%s/token", folder);
    assert_string_equal(c.token_file, path);
    assert_false(c.in_cluster);
    fbr_kube_config_fini(&c);
}

/* A file that is kept elsewhere, with a link to it: its paths are relative to the link. */
static void paths_are_relative_to_the_file_that_was_named(void **state)
{
    struct fbr_kube_config c;
    struct fbr_error err = {0, ""};
    char path[128], link[128];

    snprintf(path, sizeof(path), "%s/there", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("there/a", FIRST);
    write_file("ca.crt", "CA");
    snprintf(link, sizeof(link), "%s/a", folder);
    assert_int_equal(symlink("there/a", link), 0);
    assert_int_equal(setenv("KUBECONFIG", link, 1), 0);
    if (fbr_kube_config_load(&c, "", &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.ca, "CA");
    snprintf(path, sizeof(path), "%s/token", folder);
    assert_string_equal(c.token_file, path);
    fbr_kube_config_fini(&c);
}

static void the_proxy_of_the_environment_is_taken_as_kubectl_takes_it(void **state)
{
    static const struct {
        const char *context, *variable, *is;
    } cases[] = {
        {"one", "HTTPS_PROXY", NULL}, /* it has a proxy-url */
        {"two", "HTTPS_PROXY", "http://e:2"}, {"two", "https_proxy", "http://e:2"},
        {"two", "HTTP_PROXY", NULL},          {"here", "HTTPS_PROXY", NULL},
    };
    struct fbr_kube_config c;

    use_both();
    assert_int_equal(setenv("NO_PROXY", "n", 1), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(setenv(cases[i].variable, "http://e:2", 1), 0);
        assert_int_equal(fbr_kube_config_load(&c, cases[i].context, NULL), 0);
        if (cases[i].is) {
            assert_string_equal(c.env_proxy, cases[i].is);
            assert_string_equal(c.no_proxy, "n,");
        } else {
            assert_null(c.env_proxy);
        }
        unsetenv(cases[i].variable);
        fbr_kube_config_fini(&c);
    }
    unsetenv("NO_PROXY");
}

static void exceptions_are_written_as_libcurl_knows_them(void **state)
{
    static const struct {
        const char *variable, *is;
    } cases[] = {
        {"h:6443, *.d:6443,.e,10.0.0.0/8 [fd00::1]:6443,fd00::2,[::1]",
         "h,.d,.e,10.0.0.0/8,fd00::1,fd00::2,::1,"}, /* the server's port is 6443 */
        {"h:443", ""},
        {"a,*", "*"},
        {"*.d,:6443,[,]", ".d,,,,"},
    };
    struct fbr_kube_config c;

    use_both();
    assert_int_equal(setenv("HTTPS_PROXY", "http://e:2", 1), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(setenv("NO_PROXY", cases[i].variable, 1), 0);
        assert_int_equal(fbr_kube_config_load(&c, "two", NULL), 0);
        assert_string_equal(c.no_proxy, cases[i].is);
        fbr_kube_config_fini(&c);
    }
    unsetenv("NO_PROXY");
    unsetenv("HTTPS_PROXY");
}

static void a_context_can_be_chosen(void **state)
{
    struct fbr_kube_config c;
    char path[128];

    use_both();
    assert_int_equal(fbr_kube_config_load(&c, "two", NULL), 0);
    assert_string_equal(c.server, "https://[fd00::1]:6443");
    assert_string_equal(c.namespace_, "team");
    assert_string_equal(c.cert, "CERT");
    assert_string_equal(c.key, "KEY");
    assert_true(c.insecure);
    fbr_kube_config_fini(&c);
    assert_int_equal(fbr_kube_config_load(&c, "three", NULL), 0);
    snprintf(path, sizeof(path), "%s/./plugin", folder);
    assert_string_equal(c.exec.argv.at[0], path);
    assert_string_equal(c.exec.argv.at[2], "token");
    assert_null(c.exec.argv.at[3]);
    assert_string_equal(c.exec.env.at[0], "A=b");
    assert_true(c.exec.cluster);
    fbr_kube_config_fini(&c);
}

static void http_to_another_host_is_plain(void **state)
{
    static const struct {
        char server[32];
        bool plain;
    } cases[] = {{"http://api.example.com:8080", true},
                 {"http://10.1.2.3", true},
                 {"http://localhost:8001", false},
                 {"http://127.0.0.1:8001", false},
                 {"http://[::1]:8001", false},
                 {"https://api.example.com", false},
                 {"http://localhost.example.com", true},
                 {"http://127.example.com:80", true},
                 {"http://localhost", false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_kube_config c = {.server = (char *)(uintptr_t)cases[i].server};

        assert_int_equal(fbr_kube_config_is_plain(&c), cases[i].plain);
    }
}

static void what_cannot_be_used_is_told(void **state)
{
    static const char *const cases[][2] = {
        {"four", "auth-provider ('gcp')"},
        {"ten", "'as: jane'"},
        {"five", "apiVersion 'v7'"},
        {"six", "without a certificate"},
        {"eleven", "client-key is encrypted"},
        {"seven", "cluster 'none' is in no file"},
        {"eight", "user 'nobody' is in no file"},
        {"nine", "no such context"},
        {"twelve", "no server that begins with https://"},
    };

    use_both();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_error err = {0, ""};
        struct fbr_kube_config c;

        assert_true(fbr_kube_config_load(&c, cases[i][0], &err) < 0);
        if (!strstr(err.text, cases[i][1]) || !strstr(err.text, cases[i][0]))
            fail_msg("%s: '%s'", cases[i][0], err.text);
    }
}

static void without_a_cluster_a_sentence_says_where_it_was_looked_for(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_config c;

    unsetenv("KUBECONFIG");
    assert_int_equal(fbr_kube_config_load(&c, "", &err), -ENOENT);
    assert_non_null(strstr(err.text, "~/.kube/config"));
}

static void a_pod_uses_its_service_account(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_config c;

    assert_int_equal(fbr_kube_config_pod(&c, "10.0.0.1", "443", folder, &err), -ENOENT);
    assert_non_null(strstr(err.text, "serviceAccountName"));
    write_file("ca.crt", "CA");
    write_file("namespace", "team\n");
    write_file("token", "T");
    assert_int_equal(fbr_kube_config_pod(&c, "fd00::1", "6443", folder, &err), 0);
    assert_string_equal(c.server, "https://[fd00::1]:6443");
    assert_string_equal(c.namespace_, "team");
    assert_true(c.in_cluster);
    fbr_kube_config_fini(&c);
}

/* As when the cluster's CA is rotated while a master runs in it. */
static void a_pod_takes_the_next_authorities_of_its_service_account(void **state)
{
    struct fbr_kube_config c;
    struct fbr_kube_creds *creds;

    write_file("ca.crt", "CA");
    write_file("namespace", "team\n");
    write_file("token", "T");
    assert_int_equal(fbr_kube_config_pod(&c, "10.0.0.1", "443", folder, NULL), 0);
    assert_int_equal(fbr_kube_creds_open(&creds, &c, NULL), 0);
    assert_true(fbr_kube_creds_refused(creds)); /* or a minute has passed */
    assert_string_equal(fbr_kube_creds_token(creds), "T");
    write_file("ca.crt", "CA and another");
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "T");
    assert_string_equal(c.ca, "CA and another");
    write_file("ca.crt", "");
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "T");
    assert_string_equal(c.ca, "CA and another");
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

static void base64_comes_back(void **state)
{
    static const char *const bad[] = {"Q", "Q0=V", "Q0V?", "====", "QQQQQ", "QQ", "Q0VV-Q0VV"};
    size_t len;

    for (size_t n = 0; n < 70; n++) {
        char data[70], *text, *back;

        for (size_t i = 0; i < n; i++)
            data[i] = (char)(i * 37 + n);
        text = fbr_base64_encode(data, n);
        back = fbr_base64_decode(text, &len);
        assert_non_null(back);
        assert_int_equal(len, n);
        assert_memory_equal(back, data, n);
        free(text);
        free(back);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(fbr_base64_decode(bad[i], &len));
}

/* ---- Credentials ---- */

static void what_a_plugin_prints_is_checked(void **state)
{
#define V "client.authentication.k8s.io/v1"
#define HEAD "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V "\",\"status\":{"
    static const struct {
        const char *text, *bad;
    } cases[] = {
        {HEAD "\"token\":\"t\"}}", NULL},
        {HEAD "\"token\":\"t\",\"expirationTimestamp\":\"2026-11-21T10:00:00Z\"}}", NULL},
        {HEAD "\"clientCertificateData\":\"c\",\"clientKeyData\":\"k\"}}", NULL},
        {HEAD "\"clientCertificateData\":\"c\"}}", "neither"},
        {HEAD "\"token\":\"t\",\"expirationTimestamp\":\"soon\"}}", "not a time"},
        {HEAD "}}", "neither"},
        {"{}", "not an ExecCredential"},
        {"", "not an ExecCredential"},
        {"token", "not an ExecCredential"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fbr_kube_credential c;
        struct fbr_error err = {0, ""};
        int rc = fbr_kube_credential_parse(&c, cases[i].text, strlen(cases[i].text), V, &err);

        if (cases[i].bad ? rc == 0 || !strstr(err.text, cases[i].bad) : rc < 0)
            fail_msg("case %zu: %d '%s'", i, rc, err.text);
        if (rc == 0)
            fbr_kube_credential_fini(&c);
    }
}

static void times_have_zones(void **state)
{
    assert_int_equal(fbr_json_time("1970-01-01T00:00:10Z"), 10);
    assert_int_equal(fbr_json_time("1970-01-01T00:00:10.999Z"), 10);
    assert_int_equal(fbr_json_time("1970-01-01T01:00:10+01:00"), 10);
    assert_int_equal(fbr_json_time("1969-12-31T23:00:10-01:00"), 10);
    assert_int_equal(fbr_json_time("1970-01-01"), -1);
    assert_int_equal(fbr_json_time("1970-01-01T00:00:10"), -1);
    assert_int_equal(fbr_json_time("1970-01-01T00:00:10Zx"), -1);
}

static void a_token_names_its_pod(void **state)
{
    static const struct {
        const char *claims, *pod;
    } cases[] = {
        {"{\"kubernetes.io\":{\"namespace\":\"n\",\"pod\":{\"name\":\"train-0-x7kqp\"}}}",
         "train-0-x7kqp"},
        {"{\"a\":\"~~~>?>?\",\"kubernetes.io\":{\"pod\":{\"name\":\"p\"}}}",
         "p"}, /* has '-' and '_' */
        {"{\"kubernetes.io\":{\"namespace\":\"n\"}}", ""},
        {"no JSON", ""},
    };
    char token[512], pod[FBR_KUBE_POD_MAX];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *part = fbr_base64_encode(cases[i].claims, strlen(cases[i].claims));

        for (char *at = part; *at; at++)
            *at = *at == '+' ? '-' : *at == '/' ? '_' : *at == '=' ? '\0' : *at;
        snprintf(token, sizeof(token), "eyJhbGciOiJub25lIn0.%s.c2ln", part);
        free(part);
        fbr_kube_token_pod(token, pod);
        assert_string_equal(pod, cases[i].pod);
    }
    fbr_kube_token_pod("31ada4fd-adec-460c-809a-9e56ceb75269", pod);
    assert_string_equal(pod, "");
    fbr_kube_token_pod("a.b!.c", pod);
    assert_string_equal(pod, "");
}

static void plugin(struct fbr_kube_config *c, const char *script)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/plugin", folder);
    write_file("plugin", script);
    assert_int_equal(chmod(path, 0700), 0);
    memset(c, 0, sizeof(*c));
    c->server = strdup("https://h");
    c->namespace_ = strdup("n");
    c->exec.version = strdup(V);
    c->exec.cluster = true;
    assert_int_equal(fbr_args_addf(&c->exec.argv, "%s", path), 0);
}

static void a_plugin_is_run_and_told_about_the_cluster(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    struct fbr_kube_config c;

    plugin(&c, "#!/bin/sh\n"
               "case $KUBERNETES_EXEC_INFO in *'\"server\":\"https://h\"'*) ;; *) exit 7;; esac\n"
               "echo '" HEAD "\"token\":\"secret\"}}'\n");
    if (fbr_kube_creds_open(&creds, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(fbr_kube_creds_token(creds), "secret");
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

static void the_next_certificate_of_a_plugin_is_taken(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    struct fbr_kube_config c;

    write_file("a", HEAD "\"clientCertificateData\":\"first\",\"clientKeyData\":\"k1\"}}");
    plugin(&c, "#!/bin/sh\nexec cat \"${0%/*}/a\"\n");
    if (fbr_kube_creds_open(&creds, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.cert, "first");
    write_file("a", HEAD "\"clientCertificateData\":\"second\",\"clientKeyData\":\"k2\"}}");
    ahead_ms += 5000; /* the plugin runs no sooner than 5 s after it ran */
    while (strcmp(c.cert, "second") != 0)
        assert_true(fbr_kube_creds_renew(creds, 100));
    assert_string_equal(c.cert, "second");
    assert_string_equal(c.key, "k2");
    assert_null(fbr_kube_creds_token(creds));
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

static long runs_of_plugin(struct fbr_kube_creds *creds, long n)
{
    char path[128];
    struct stat st = {0};

    snprintf(path, sizeof(path), "%s/b", folder);
    while (st.st_size < n) {
        let_time_pass(10);
        if (!fbr_kube_creds_are_awaited(creds))
            ahead_ms += 100;
        fbr_kube_creds_token(creds);
        assert_true(stat(path, &st) == 0 || errno == ENOENT);
    }
    return (long)fbr_now_ms();
}

/* Each time, the plugin prints why, and a run may go on for hours before somebody logs in again. */
static void a_plugin_that_fails_again_is_run_more_seldom(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    struct fbr_kube_config c;
    long first;

    plugin(&c,
           "#!/bin/sh\ncd \"${0%/*}\" && [ ! -e a ] || { printf x >>b; exit 3; }\n: >a\n"
           "echo '" HEAD "\"token\":\"t\",\"expirationTimestamp\":\"2020-01-01T00:00:00Z\"}}'\n");
    if (fbr_kube_creds_open(&creds, &c, &err) < 0)
        fail_msg("%s", err.text);
    first = runs_of_plugin(creds, 1);
    assert_true(runs_of_plugin(creds, 2) - first >= 9000);
    assert_string_equal(fbr_kube_creds_token(creds), "t");
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

/* As of one that now gives a token of its own, which does not end. */
static void a_token_without_an_end_is_not_renewed(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    struct fbr_kube_config c;

    plugin(&c,
           "#!/bin/sh\ncd \"${0%/*}\"\nend=',\"expirationTimestamp\":\"2020-01-01T00:00:00Z\"'\n"
           "[ ! -e a ] || { printf x >>b; end=; }\n: >a\n"
           "echo '" HEAD "\"token\":\"t\"'$end'}}'\n");
    if (fbr_kube_creds_open(&creds, &c, &err) < 0)
        fail_msg("%s", err.text);
    runs_of_plugin(creds, 1);
    while (fbr_kube_creds_are_awaited(creds))
        let_time_pass(10);
    ahead_ms += 10000;
    assert_string_equal(fbr_kube_creds_token(creds), "t");
    assert_false(fbr_kube_creds_are_awaited(creds));
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

static void a_plugin_that_fails_is_told(void **state)
{
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    struct fbr_kube_config c;

    plugin(&c, "#!/bin/sh\nexit 3\n");
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    assert_non_null(strstr(err.text, "failed with code 3"));
    assert_int_equal(err.code, -EIO); /* -EACCES: the server does not let us list pods */
    fbr_kube_config_fini(&c);
    plugin(&c, "#!/bin/sh\nkill -9 $$\n");
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    assert_non_null(strstr(err.text, "killed by signal 9"));
    fbr_kube_config_fini(&c);
    plugin(&c, "#!/bin/sh\nexec sleep 1000\n"); /* as one that waits for a login in a browser */
    look_ms = 1000;
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    look_ms = 0;
    assert_non_null(strstr(err.text, "first log in by"));
    fbr_kube_config_fini(&c);
    plugin(&c, "#!/bin/sh\necho hello\n");
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    assert_non_null(strstr(err.text, "not an ExecCredential"));
    fbr_args_fini(&c.exec.argv);
    assert_int_equal(fbr_args_addf(&c.exec.argv, "fiber-no-such-plugin"), 0);
    c.exec.hint = strdup("install it");
    assert_int_equal(fbr_kube_creds_open(&creds, &c, &err), -ENOENT);
    assert_non_null(strstr(err.text, "install it"));
    fbr_kube_config_fini(&c);
}

static void a_token_file_is_read(void **state)
{
    struct fbr_kube_config c = {0};
    struct fbr_kube_creds *creds;
    char path[128];

    snprintf(path, sizeof(path), "%s/token", folder);
    write_file("token", "first\n");
    c.token_file = path;
    assert_int_equal(fbr_kube_creds_open(&creds, &c, NULL), 0);
    assert_string_equal(fbr_kube_creds_token(creds), "first");
    write_file("token", "second\n");
    assert_string_equal(fbr_kube_creds_token(creds), "first");
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "second");
    write_file("token", ""); /* its writer has just begun */
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "second");
    fbr_kube_creds_close(creds);
}

static void a_token_file_without_a_token_is_told(void **state)
{
    struct fbr_kube_config c = {0};
    struct fbr_error err = {0, ""};
    struct fbr_kube_creds *creds;
    char path[128];

    snprintf(path, sizeof(path), "%s/token", folder);
    write_file("token", "\n");
    c.token_file = path;
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    assert_non_null(strstr(err.text, "/token has no token"));
    assert_int_equal(unlink(path), 0);
    assert_true(fbr_kube_creds_open(&creds, &c, &err) < 0);
    assert_non_null(strstr(err.text, "/token: No such file"));
    c.token = (char *)(uintptr_t) "other";
    assert_int_equal(fbr_kube_creds_open(&creds, &c, &err), 0);
    assert_string_equal(fbr_kube_creds_token(creds), "other");
    fbr_kube_creds_close(creds);
}

static void write_token(const char *server, const char *token)
{
    char text[256];

    snprintf(text, sizeof(text),
             "current-context: x\n"
             "clusters: [{name: c, cluster: {server: '%s'}}]\n"
             "users: [{name: u, user: {token: %s}}]\n"
             "contexts: [{name: x, context: {cluster: c, user: u}}]\n",
             server, token);
    write_file("a", text);
}

static void a_token_that_is_refused_is_looked_for_in_the_kubeconfig(void **state)
{
    struct fbr_kube_config c;
    struct fbr_kube_creds *creds;
    char path[128];

    snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(setenv("KUBECONFIG", path, 1), 0);
    write_token("https://h", "first");
    assert_int_equal(fbr_kube_config_load(&c, "", NULL), 0);
    assert_int_equal(fbr_kube_creds_open(&creds, &c, NULL), 0);
    assert_string_equal(fbr_kube_creds_token(creds), "first");
    write_token("https://h", "second");
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "second");
    write_token("https://other", "third");
    assert_false(fbr_kube_creds_refused(creds));
    assert_string_equal(fbr_kube_creds_token(creds), "second");
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

static void a_certificate_that_is_refused_is_looked_for_in_the_kubeconfig(void **state)
{
    struct fbr_kube_config c;
    struct fbr_kube_creds *creds;
    char path[128];

    snprintf(path, sizeof(path), "%s/a", folder);
    assert_int_equal(setenv("KUBECONFIG", path, 1), 0);
    write_file("a", "current-context: x\n"
                    "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
                    "users: [{name: u, user: {client-certificate: b, client-key: token}}]\n"
                    "contexts: [{name: x, context: {cluster: c, user: u}}]\n");
    write_file("b", "first");
    write_file("token", "k1");
    assert_int_equal(fbr_kube_config_load(&c, "", NULL), 0);
    assert_int_equal(fbr_kube_creds_open(&creds, &c, NULL), 0);
    assert_true(fbr_kube_creds_refused(creds)); /* perhaps another request has taken it over */
    write_file("b", "second");
    write_file("token", "k2");
    assert_true(fbr_kube_creds_refused(creds));
    assert_string_equal(c.cert, "second");
    assert_string_equal(c.key, "k2");
    fbr_kube_creds_close(creds);
    fbr_kube_config_fini(&c);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_is_read_as_kubectl_reads_it),
        cmocka_unit_test(yaml_that_is_wrong_is_told_with_its_line),
        cmocka_unit_test(yaml_that_blows_up_is_refused),
        TEST(files_are_merged_and_the_first_counts),
        TEST(paths_are_relative_to_the_file_that_was_named),
        TEST(the_proxy_of_the_environment_is_taken_as_kubectl_takes_it),
        TEST(exceptions_are_written_as_libcurl_knows_them),
        TEST(a_context_can_be_chosen),
        TEST(http_to_another_host_is_plain),
        TEST(what_cannot_be_used_is_told),
        TEST(without_a_cluster_a_sentence_says_where_it_was_looked_for),
        TEST(a_pod_uses_its_service_account),
        TEST(a_pod_takes_the_next_authorities_of_its_service_account),
        TEST(the_next_certificate_of_a_plugin_is_taken),
        TEST(a_certificate_that_is_refused_is_looked_for_in_the_kubeconfig),
        cmocka_unit_test(base64_comes_back),
        cmocka_unit_test(what_a_plugin_prints_is_checked),
        cmocka_unit_test(times_have_zones),
        cmocka_unit_test(a_token_names_its_pod),
        TEST(a_plugin_is_run_and_told_about_the_cluster),
        TEST(a_plugin_that_fails_again_is_run_more_seldom),
        TEST(a_token_without_an_end_is_not_renewed),
        TEST(a_plugin_that_fails_is_told),
        TEST(a_token_file_is_read),
        TEST(a_token_file_without_a_token_is_told),
        TEST(a_token_that_is_refused_is_looked_for_in_the_kubeconfig),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
