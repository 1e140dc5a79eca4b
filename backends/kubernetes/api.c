/* api.c - requests to a Kubernetes API server.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/api.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "backends/http/json.h"
#include "runtime/base/log.h"

#define TRIES 3 /* of requests that wait for their answer, at open and close */
#define TRY_MS 150
#define BUSY_MS 1000 /* the pause that a busy server asks for, until the time is over */
#define PARALLEL 32
#define ATTEMPT_MS 30000
#define AGAIN_MS 1000 /* for new credentials, or for a server that has just started */
#define STARTING_TIMES 15

/* ---- One request ---- */

struct fbr_kube_request {
    struct fbr_kube_request *next, *prev;
    struct fbr_kube_api *a;
    const char *method;
    char *path, *body;
    uint64_t patience_ms;
    struct fbr_timer again;
    bool repeated;     /* after new credentials */
    bool unwanted;     /* to be given up when the server refuses it */
    unsigned starting; /* times that a server that had just come back refused the request */
    uint64_t repeats;  /* repetitions of all requests, when this one was sent */
    void (*done)(void *user, const struct fbr_http_answer *);
    void *user;
};

static void free_request(struct fbr_kube_request *r)
{
    DL_DELETE(r->a->requests, r);
    fbr_timer_fini(&r->again);
    fbr_kube_forget(&r->body);
    free(r->path);
    free(r);
}

static int send_request(struct fbr_kube_request *r);

static void send_again(void *arg)
{
    static const struct fbr_http_answer none = {.body = "", .why = "out of memory"};
    struct fbr_kube_request *r = arg;

    fbr_timer_stop(&r->again);
    if (fbr_kube_creds_are_awaited(r->a->creds)) {
        fbr_timer_start(&r->again, AGAIN_MS, 0);
        return;
    }
    if (send_request(r) == 0)
        return;
    r->done(r->user, &none);
    free_request(r);
}

static uint64_t repeats_of(const struct fbr_kube_api *a)
{
    struct fbr_http_stats s;

    fbr_http_stats(a->calls, &s);
    return s.repeats;
}

bool fbr_kube_just_started(const struct fbr_kube_api *a)
{
    return a->away_at && fbr_now_ms() < a->away_at + FBR_KUBE_STARTING_MS;
}

static bool is_refused(const struct fbr_http_answer *answer)
{
    return answer->status == 401 || (answer->status == 403 && strstr(answer->body, " cannot "));
}

static bool is_starting(struct fbr_kube_request *r, const struct fbr_http_answer *answer)
{
    return is_refused(answer) && r->starting < STARTING_TIMES &&
           (repeats_of(r->a) != r->repeats || fbr_kube_just_started(r->a));
}

bool fbr_kube_is_passing(const struct fbr_kube_api *a, const struct fbr_http_answer *answer)
{
    return answer->status == 0 || answer->status == 429 || answer->status >= 500 ||
           (is_refused(answer) && fbr_kube_just_started(a));
}

static bool try_again(struct fbr_kube_request *r, const struct fbr_http_answer *answer)
{
    if (answer->status == 401 && !r->repeated && fbr_kube_creds_refused(r->a->creds))
        r->repeated = true;
    else if (is_starting(r, answer))
        r->starting++;
    else
        return false;
    if (!r->again.uv && fbr_timer_init(&r->again, r->a->loop, send_again, r) < 0)
        return false;
    fbr_timer_start(&r->again, AGAIN_MS, 0);
    return true;
}

static bool on_repeat(void *user, const struct fbr_http_answer *answer)
{
    struct fbr_kube_request *r = user;

    if (answer->status)
        fbr_http_describe(answer, r->a->refused, sizeof(r->a->refused));
    return !r->unwanted || !answer->status;
}

static void on_answer(void *user, const struct fbr_http_answer *answer)
{
    struct fbr_kube_request *r = user;

    if (answer->status >= 200 && answer->status < 300)
        r->a->refused[0] = '\0';
    if (try_again(r, answer))
        return;
    r->done(r->user, answer);
    free_request(r);
}

static int send_request(struct fbr_kube_request *r)
{
    const struct fbr_http_request http = {.method = r->method,
                                          .path = r->path,
                                          .body = r->body,
                                          .len = r->body ? strlen(r->body) : 0,
                                          .timeout_ms = ATTEMPT_MS,
                                          .patience_ms = r->patience_ms,
                                          .repeats = on_repeat,
                                          .done = on_answer,
                                          .user = r};

    return fbr_http_send(r->a->calls, &http) ? 0 : -ENOMEM;
}

int fbr_kube_send(struct fbr_kube_api *a, const char *method, char *path, const char *body,
                  uint64_t patience_ms, void (*done)(void *user, const struct fbr_http_answer *),
                  void *user)
{
    struct fbr_kube_request *r = path ? calloc(1, sizeof(*r)) : NULL;

    if (!r) {
        free(path);
        return -ENOMEM;
    }
    *r = (struct fbr_kube_request){.a = a,
                                   .method = method,
                                   .path = path,
                                   .body = body ? strdup(body) : NULL,
                                   .patience_ms = patience_ms,
                                   .repeats = repeats_of(a),
                                   .done = done,
                                   .user = user};
    DL_APPEND(a->requests, r);
    if ((body && !r->body) || send_request(r) < 0) {
        free_request(r);
        return -ENOMEM;
    }
    return 0;
}

void fbr_kube_unwanted(struct fbr_kube_api *a, const void *user)
{
    struct fbr_kube_request *r;

    DL_FOREACH(a->requests, r)
        if (r->user == user && strcmp(r->method, "POST") == 0)
            r->unwanted = true;
}

/* ---- A request whose caller waits ---- */

struct asked {
    int status; /* 0: no answer came, or one that is not JSON, as the page of a proxy */
    struct json_t *json;
    char say[512];
    const struct fbr_kube_api *a;
};

static void on_asked(void *user, const struct fbr_http_answer *answer)
{
    struct asked *got = user;

    got->status = answer->status;
    if (answer->status < 200 || answer->status >= 300) {
        fbr_kube_describe(got->a, answer, "", got->say, sizeof(got->say));
        return;
    }
    got->json = fbr_json_parse(answer->body, answer->len, NULL);
    if (got->json)
        return;
    got->status = 0;
    snprintf(got->say, sizeof(got->say), "the answer of %.200s is not JSON", got->a->config.server);
}

/* Returns the pause before another try, which may get a better answer; 0: none is worth it. */
static unsigned pause_of(const struct asked *got, unsigned tries)
{
    if (got->status == 429)
        return BUSY_MS;
    return tries < TRIES && (got->status == 0 || got->status >= 500) ? tries * TRY_MS : 0;
}

int fbr_kube_ask(struct fbr_kube_api *a, const char *method, char *path, const char *body,
                 uint64_t ms, struct json_t **answer, struct fbr_error *err)
{
    struct asked got = {.a = a};
    struct fbr_http_request r = {.method = method,
                                 .path = path,
                                 .body = body,
                                 .len = body ? strlen(body) : 0,
                                 .done = on_asked,
                                 .user = &got};
    uint64_t now, until = fbr_now_ms() + ms;
    unsigned tries = 0, pause = 0;

    if (answer)
        *answer = NULL;
    if (!path) {
        fbr_fail(err, -ENOMEM, "out of memory");
        return 0;
    }
    do {
        poll(NULL, 0, (int)pause);
        now = fbr_now_ms();
        fbr_http_now(a->calls, &r, 1, now < until ? until - now : 0);
        if (got.status == 401 && fbr_kube_creds_renew(a->creds, ms))
            fbr_http_now(a->calls, &r, 1, ms);
        pause = pause_of(&got, ++tries);
    } while (pause && fbr_now_ms() + pause < until);
    free(path);
    if (got.status < 200 || got.status >= 300)
        fbr_fail(err, got.status == 404 ? -ENOENT : -EIO, "%s", got.say);
    if (answer)
        *answer = got.json;
    else
        fbr_json_free(got.json);
    return got.status;
}

/* ---- Texts ---- */

/* Most pods have the token of an account that may do nothing. */
static const char *not_allowed(const struct fbr_kube_api *a, const char *text)
{
    if (strstr(text, FBR_KUBE_NOBODY))
        return "; the user in the kubeconfig has no token or certificate that the server takes";
    return a->config.in_cluster ? "; `fiber kubernetes manifest` prints the Role that is needed, "
                                  "and with FIBER_BACKEND=local jobs start in this pod"
                                : "; `fiber kubernetes manifest` prints the Role that is needed";
}

/* A quota requires a request or a limit, or the limit that a LimitRange adds is below our
 * request. */
static bool is_about_resources(const char *text)
{
    return strstr(text, "must specify ") || strstr(text, "must be less than or equal to cpu limit");
}

void fbr_kube_describe(const struct fbr_kube_api *a, const struct fbr_http_answer *answer,
                       const char *what, char *out, size_t size)
{
    char text[400], *group;
    const char *hint = "";
    bool account = false; /* the service account is missing */

    fbr_http_describe(answer, text, sizeof(text));
    /* the text without it; the Role gives the API group */
    group = strstr(text, " in API group");
    if (answer->status == 403 && group)
        *group = '\0';
    if (answer->status == 401)
        hint = "; the token or certificate is wrong or too old (check with `kubectl auth whoami`)";
    else if (answer->status == 403 && strstr(text, "PodSecurity"))
        hint = strstr(text, "runAsNonRoot") ? "; kubernetes_user sets a user id" : "";
    else if (answer->status == 403 && strstr(text, "error looking up service account"))
        account = true;
    else if (is_about_resources(text))
        hint = "; kubernetes_pod_template sets resources";
    else if (answer->status == 403 && strstr(text, "cannot "))
        hint = not_allowed(a, text);
    else if (answer->status == 404 && strstr(text, "namespaces"))
        hint = "; kubernetes_namespace chooses another";
    if (answer->status == 0)
        snprintf(out, size, "the API server %s does not answer%s%s: %s", a->config.server,
                 what[0] ? " to " : "", what, text);
    else if (account)
        snprintf(out, size,
                 "%s%s%s; `fiber kubernetes manifest -N %s | kubectl apply -f -` makes it", what,
                 what[0] ? ": " : "", text, a->namespace_);
    else
        snprintf(out, size, "%s%s%s%s", what, what[0] ? ": " : "", text, hint);
}

/* ---- The server ---- */

static void take_host(struct fbr_kube_api *a)
{
    const char *at = strstr(a->config.server, "://");
    size_t n;

    at = at ? at + 3 : a->config.server;
    n = *at == '[' ? strcspn(at + 1, "]") : strcspn(at, ":/");
    snprintf(a->host, sizeof(a->host), "%.*s", (int)n, *at == '[' ? at + 1 : at);
}

/* Certificates and CAs are renewed as a token is. */
static const char *token(void *api)
{
    struct fbr_kube_api *a = api;
    const char *text = fbr_kube_creds_token(a->creds);

    for (size_t i = 0; i < 2; i++) {
        a->options[i].ca = a->config.ca;
        a->options[i].cert = a->config.cert;
        a->options[i].key = a->config.key;
    }
    return text;
}

static int open_clients(struct fbr_kube_api *a, struct fbr_error *err)
{
    const struct fbr_kube_config *c = &a->config;
    int rc;

    a->options[0] = (struct fbr_http_options){.url = c->server,
                                              .proxy = c->proxy ? c->proxy : c->env_proxy,
                                              .no_proxy = c->no_proxy,
                                              .server_name = c->server_name,
                                              .insecure = c->insecure,
                                              .user = c->user,
                                              .password = c->password,
                                              .token = token,
                                              .token_user = a,
                                              .parallel = PARALLEL};
    a->options[1] = a->options[0];
    a->options[1].http1 = true;
    rc = fbr_http_open(&a->calls, a->loop, &a->options[0], err);
    return rc < 0 ? rc : fbr_http_open(&a->streams, a->loop, &a->options[1], err);
}

static bool is_name(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && n < 64 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static int set_namespace(struct fbr_kube_api *a, const char *wanted, struct fbr_error *err)
{
    a->namespace_ = strdup(wanted[0] ? wanted : a->config.namespace_);
    if (!a->namespace_)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (!is_name(a->namespace_))
        return fbr_fail(err, -EINVAL, "'%.64s' is not the name of a namespace", a->namespace_);
    return 0;
}

int fbr_kube_api_open(struct fbr_kube_api **out, struct fbr_loop *loop,
                      const struct fbr_config *config, struct fbr_error *err)
{
    const char *context = fbr_config_str(config, "kubernetes_context");
    const char *wanted = fbr_config_str(config, "kubernetes_namespace");
    struct fbr_kube_api *a = calloc(1, sizeof(*a));
    int rc;

    if (!a)
        return fbr_fail(err, -ENOMEM, "out of memory");
    a->loop = loop;
    if ((rc = fbr_kube_config_load(&a->config, context, err)) < 0 ||
        (rc = set_namespace(a, wanted, err)) < 0 ||
        (rc = fbr_kube_creds_open(&a->creds, &a->config, err)) < 0 ||
        (rc = open_clients(a, err)) < 0) {
        fbr_kube_api_close(a);
        return rc;
    }
    take_host(a);
    *out = a;
    return 0;
}

void fbr_kube_api_close(struct fbr_kube_api *a)
{
    if (!a)
        return;
    fbr_http_close(a->calls);
    fbr_http_close(a->streams);
    while (a->requests)
        free_request(a->requests);
    fbr_kube_creds_close(a->creds);
    fbr_kube_config_fini(&a->config);
    free(a->namespace_);
    free(a);
}
