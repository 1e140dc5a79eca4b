/* credentials.c - tokens, and programs that print credentials (exec plugins).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/credentials.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/http/base64.h"
#include "backends/http/json.h"
#include "runtime/base/buf.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/net/loop.h"
#include "runtime/program/spawn.h"
#include "runtime/program/subprocess.h"

#define PLUGIN_MS 15000
#define MAX_OUTPUT (1u << 20)
#define TOKEN_FILE_MS 60000
#define EARLY_S 60
#define LOOK_MS 20
#define AGAIN_MS 5000  /* between two runs of a plugin */
#define AGAIN_DOUBLE 4 /* times that the pause doubles, while the plugin fails */

struct fbr_kube_creds {
    struct fbr_kube_config *config;
    char *token;      /* from a file or a program */
    uint64_t read_at; /* when the file was read; clock of fbr_now_ms() */
    int64_t expires;
    uint64_t ran_at;
    unsigned failures; /* of the plugin, since it last gave something */
    bool running;      /* the thread runs */
    pthread_t thread;
    /* Shared by the two threads: `fresh` is the thread's until it is `ready`. */
    atomic_bool ready;
    struct fbr_kube_credential fresh;
    atomic_bool stop; /* nothing waits for the plugin any more */
};

void fbr_kube_credential_fini(struct fbr_kube_credential *c)
{
    fbr_kube_forget(&c->token);
    fbr_kube_forget(&c->cert);
    fbr_kube_forget(&c->key);
}

int fbr_kube_credential_parse(struct fbr_kube_credential *c, const char *text, size_t len,
                              const char *version, struct fbr_error *err)
{
    struct json_t *j = fbr_json_parse(text, len, err);
    const struct json_t *status = fbr_json_at(j, "status", NULL);
    const char *expires = fbr_json_text(status, "expirationTimestamp", NULL);
    int rc = 0;

    memset(c, 0, sizeof(*c));
    if (!j)
        return fbr_wrap(err, "what it printed is not an ExecCredential");
    c->token = fbr_json_dup(status, "token");
    c->cert = fbr_json_dup(status, "clientCertificateData");
    c->key = fbr_json_dup(status, "clientKeyData");
    c->expires = expires[0] ? fbr_json_time(expires) : 0;
    if (strcmp(fbr_json_text(j, "kind", NULL), "ExecCredential") != 0 ||
        strcmp(fbr_json_text(j, "apiVersion", NULL), version) != 0)
        rc = fbr_fail(err, -EBADMSG, "what it printed is not an ExecCredential of %s", version);
    else if (c->expires < 0)
        rc = fbr_fail(err, -EBADMSG, "its expirationTimestamp is not a time");
    else if (!c->token && !(c->cert && c->key))
        rc = fbr_fail(err, -EBADMSG, "it gave neither a token nor a certificate with its key");
    fbr_json_free(j);
    if (rc < 0)
        fbr_kube_credential_fini(c);
    return rc;
}

/* ---- Tokens of pods ---- */

/* The token is a JWT; its second part is JSON as base64, in the alphabet of URLs and without
 * padding. */
void fbr_kube_token_pod(const char *token, char out[FBR_KUBE_POD_MAX])
{
    const char *dot = strchr(token, '.');
    size_t n = dot ? strcspn(dot + 1, ".") : 0, len = 0;
    char *part = NULL, *text = NULL;
    struct json_t *claims;

    if (asprintf(&part, "%.*s===", (int)n, dot ? dot + 1 : "") < 0)
        part = NULL;
    else
        part[(n + 3) / 4 * 4] = '\0';
    for (char *at = part; at && *at; at++)
        *at = *at == '-' ? '+' : *at == '_' ? '/' : *at;
    if (part)
        text = fbr_base64_decode(part, &len);
    claims = text ? fbr_json_parse(text, len, NULL) : NULL;
    snprintf(out, FBR_KUBE_POD_MAX, "%s",
             fbr_json_text(claims, "kubernetes.io", "pod", "name", NULL));
    fbr_json_free(claims);
    free(text);
    free(part);
}

/* ---- Running a plugin ---- */

/* Writes the facts about the cluster for the program: KUBERNETES_EXEC_INFO. */
static char *exec_info(const struct fbr_kube_config *c)
{
    struct json_t *cluster = fbr_json_pack("{s:s}", "server", c->server);
    struct json_t *info = fbr_json_pack("{s:s, s:s, s:{s:b}}", "kind", "ExecCredential",
                                        "apiVersion", c->exec.version, "spec", "interactive", 0);
    char *ca = c->ca ? fbr_base64_encode(c->ca, strlen(c->ca)) : NULL, *text = NULL, *line = NULL;

    if (cluster && info &&
        (!ca || !fbr_json_set(cluster, "certificate-authority-data", fbr_json_string(ca))) &&
        (!c->server_name ||
         !fbr_json_set(cluster, "tls-server-name", fbr_json_string(c->server_name))) &&
        (!c->proxy || !fbr_json_set(cluster, "proxy-url", fbr_json_string(c->proxy))) &&
        (!c->insecure ||
         !fbr_json_set(cluster, "insecure-skip-tls-verify", fbr_json_pack("b", 1))) &&
        (!c->exec.cluster ||
         !fbr_json_set(fbr_json_at(info, "spec", NULL), "cluster", fbr_json_pack("O", cluster))))
        text = fbr_json_print(info, NULL);
    if (text && asprintf(&line, "KUBERNETES_EXEC_INFO=%s", text) < 0)
        line = NULL;
    free(text);
    free(ca);
    fbr_json_free(cluster);
    fbr_json_free(info);
    return line;
}

static char **environment(const struct fbr_kube_config *c, const char *info)
{
    char **theirs = fbr_environ_with(fbr_environ(), (const char *const *)c->exec.env.at);
    char **env = theirs ? fbr_environ_with(theirs, (const char *const[]){info, NULL}) : NULL;

    free(theirs);
    return env;
}

static int run_plugin(struct fbr_kube_creds *c, const char *path, struct fbr_buf *text,
                      struct fbr_error *err)
{
    char *info = exec_info(c->config);
    char **env = info ? environment(c->config, info) : NULL;
    struct fbr_subprocess p = {.file = path,
                               .argv = c->config->exec.argv.at,
                               .env = env,
                               .in = -1,
                               .errors = STDERR_FILENO,
                               .limit_ms = PLUGIN_MS,
                               .max = MAX_OUTPUT,
                               .stop = &c->stop};
    struct fbr_error why = {0, ""};
    int code = 0, rc;

    if (env)
        rc = fbr_subprocess_run(&p, text, &code, &why);
    else
        rc = fbr_fail(&why, -ENOMEM, "out of memory");
    if (rc == -ETIMEDOUT)
        fbr_fail(err, rc,
                 "it did not end within %d s; if it waits for a login, first log in by `kubectl "
                 "get pods`",
                 PLUGIN_MS / 1000);
    else if (rc < 0)
        fbr_fail(err, rc, "%s%s",
                 why.code ? "" : "it gave no answer: ", why.code ? why.text : fbr_strerror(rc));
    else if (code < 0)
        rc = fbr_fail(err, -EIO, "it was killed by signal %d", -code);
    else if (code > 0)
        rc = fbr_fail(err, -EIO, "it failed with code %d (its message is above)", code);
    free(env);
    free(info);
    return rc;
}

/* Runs the program and waits for its end. Any thread, one at a time. */
static int run(struct fbr_kube_creds *c, struct fbr_kube_credential *out, struct fbr_error *err)
{
    const struct fbr_kube_exec *x = &c->config->exec;
    char path[PATH_MAX];
    struct fbr_buf text = {0};
    int rc = fbr_spawn_find(x->argv.at[0], path, sizeof(path), err);

    if (rc == -ENAMETOOLONG)
        return fbr_wrap(err, "exec plugin");
    if (rc < 0)
        return fbr_fail(err, rc, "exec plugin %s: %s%s%.300s", x->argv.at[0], fbr_strerror(rc),
                        x->hint ? "; " : "", x->hint ? x->hint : "");
    rc = run_plugin(c, path, &text, err);
    if (rc == 0)
        rc = fbr_kube_credential_parse(out, (const char *)text.data, text.len, x->version, err);
    if (text.data)
        explicit_bzero(text.data, text.len);
    fbr_buf_fini(&text);
    return rc < 0 ? fbr_wrap(err, "exec plugin %s", x->argv.at[0]) : 0;
}

static void *run_again(void *arg)
{
    struct fbr_kube_creds *c = arg;
    struct fbr_error err = {0, ""};

    c->fresh = (struct fbr_kube_credential){0};
    if (run(c, &c->fresh, &err) < 0)
        fbr_warn("kubernetes: %s", err.text);
    atomic_store(&c->ready, true);
    return NULL;
}

/* Takes over the token, and the certificate with its key; frees the rest. */
static void take(struct fbr_kube_creds *c, struct fbr_kube_credential *got)
{
    struct fbr_kube_config *to = c->config;

    if (got->token || got->cert) /* else the program has failed */
        c->expires = got->expires;
    if (got->token) {
        fbr_kube_forget(&c->token);
        c->token = got->token;
        got->token = NULL;
    }
    if (got->cert && got->key) {
        free(to->cert);
        fbr_kube_forget(&to->key);
        to->cert = got->cert;
        to->key = got->key;
        got->cert = got->key = NULL;
    }
    fbr_kube_credential_fini(got);
}

/* Takes the result of the thread, if it has ended. */
static void take_fresh(struct fbr_kube_creds *c)
{
    if (!c->running || !atomic_load(&c->ready))
        return;
    pthread_join(c->thread, NULL);
    c->running = false;
    atomic_store(&c->ready, false);
    c->failures = c->fresh.token || c->fresh.cert ? 0 : c->failures + 1;
    take(c, &c->fresh);
}

static void begin_again(struct fbr_kube_creds *c)
{
    uint64_t now = fbr_now_ms();

    if (c->running || now < c->ran_at + AGAIN_MS)
        return;
    c->ran_at = now;
    c->running = pthread_create(&c->thread, NULL, run_again, c) == 0;
}

/* ---- The token ---- */

/* Whether the plugin is to run before its token expires. A plugin may fail for as long as nobody
 * logs in again, and prints its reason each time. */
static bool is_due(const struct fbr_kube_creds *c)
{
    unsigned times = c->failures < AGAIN_DOUBLE ? c->failures : AGAIN_DOUBLE;

    return c->expires && (int64_t)time(NULL) > c->expires - EARLY_S &&
           fbr_now_ms() >= c->ran_at + ((uint64_t)AGAIN_MS << times);
}

/* The cluster puts new CAs into its pods before the server shows a certificate of them. */
static void read_ca(struct fbr_kube_creds *c)
{
    struct fbr_kube_config *to = c->config;
    char *text = fbr_fds_slurp(to->ca_file, NULL, NULL);

    if (text && text[0]) {
        free(to->ca);
        to->ca = text;
    } else {
        free(text);
    }
}

/* Without a token the server would answer as to a stranger, so the token of before stays if the
 * file has none. */
static int read_file(struct fbr_kube_creds *c, struct fbr_error *err)
{
    char *text = fbr_fds_slurp(c->config->token_file, NULL, err);

    if (c->config->ca_file)
        read_ca(c);
    c->read_at = fbr_now_ms();
    if (!text)
        return fbr_wrap(err, "token file");
    text[strcspn(text, " \t\r\n")] = '\0';
    if (!text[0]) {
        free(text);
        return fbr_fail(err, -EINVAL, "token file: %.200s has no token", c->config->token_file);
    }
    take(c, &(struct fbr_kube_credential){.token = text});
    return 0;
}

const char *fbr_kube_creds_token(void *creds)
{
    struct fbr_kube_creds *c = creds;
    struct fbr_error err = {0, ""};

    if (c->config->exec.argv.n) {
        take_fresh(c);
        if (is_due(c))
            begin_again(c);
    } else if (c->config->token_file &&
               (!c->read_at || fbr_now_ms() > c->read_at + TOKEN_FILE_MS) &&
               read_file(c, &err) < 0) {
        fbr_warn("kubernetes: %s", err.text);
    }
    return c->token ? c->token : c->config->token;
}

/* Reads the kubeconfig again, into which a new login writes the new token or certificate. */
static bool read_config(struct fbr_kube_creds *c)
{
    struct fbr_kube_credential got;
    struct fbr_kube_config now;
    bool found;

    if (!fbr_kube_config_again(c->config, &now))
        return false;
    found = now.token || now.cert;
    got = (struct fbr_kube_credential){.token = now.token, .cert = now.cert, .key = now.key};
    now.token = now.cert = now.key = NULL;
    take(c, &got);
    fbr_kube_config_fini(&now);
    return found;
}

bool fbr_kube_creds_refused(struct fbr_kube_creds *c)
{
    if (c->config->exec.argv.n)
        begin_again(c);
    else if (c->config->token_file)
        c->read_at = 0;
    else
        return (c->config->token || c->config->cert) && read_config(c);
    return true;
}

bool fbr_kube_creds_are_awaited(struct fbr_kube_creds *c)
{
    take_fresh(c);
    return c->running;
}

bool fbr_kube_creds_renew(struct fbr_kube_creds *c, uint64_t ms)
{
    uint64_t end = fbr_now_ms() + ms;

    if (!fbr_kube_creds_refused(c))
        return false;
    while (fbr_kube_creds_are_awaited(c) && fbr_now_ms() < end)
        poll(NULL, 0, LOOK_MS);
    return true;
}

/* ---- All ---- */

static int run_first(struct fbr_kube_creds *c, struct fbr_error *err)
{
    struct fbr_kube_credential got = {0};
    int rc = run(c, &got, err);

    c->ran_at = fbr_now_ms();
    if (rc < 0)
        return rc;
    take(c, &got);
    return 0;
}

int fbr_kube_creds_open(struct fbr_kube_creds **out, struct fbr_kube_config *config,
                        struct fbr_error *err)
{
    struct fbr_kube_creds *c = calloc(1, sizeof(*c));
    int rc = 0;

    if (!c)
        return fbr_fail(err, -ENOMEM, "out of memory");
    c->config = config;
    if (config->exec.argv.n)
        rc = run_first(c, err);
    else if (config->token_file && !config->token)
        rc = read_file(c, err);
    if (rc < 0) {
        fbr_kube_creds_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void fbr_kube_creds_close(struct fbr_kube_creds *c)
{
    if (!c)
        return;
    if (c->running) {
        atomic_store(&c->stop, true);
        pthread_join(c->thread, NULL);
        fbr_kube_credential_fini(&c->fresh);
    }
    fbr_kube_forget(&c->token);
    free(c);
}
