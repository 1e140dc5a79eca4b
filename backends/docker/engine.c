/* engine.c - finds the Docker engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/engine.h"

#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"
#include "runtime/net/tcp.h"

#define ASK_MS 10000
#define LOOK_UP_MS 1000

/* ---- Requests ---- */

struct fbr_http_call *fbr_docker_send(const struct fbr_docker_engine *e, char *path,
                                      struct fbr_http_request r)
{
    struct fbr_http_call *c = NULL;

    r.path = path;
    if (path)
        c = fbr_http_send(e->http, &r);
    free(path);
    return c;
}

/* ---- Asking now ---- */

struct asked {
    const struct fbr_docker_engine *e;
    int status;
    bool keys; /* TLS, or one of its files, is the reason why no answer came */
    struct json_t *json;
    char why[900];
};

/* Parts of the messages of libcurl and OpenSSL; the first row that fits counts. */
static const struct {
    enum fbr_http_tls tls;
    const char *part, *wrong;
} wrongs[] = {
    {FBR_HTTP_THEIRS, "CA certificate", "ca.pem has no certificate"},
    {FBR_HTTP_THEIRS, "expired", "its certificate, or ca.pem, has expired"},
    {FBR_HTTP_THEIRS, "", "its certificate is for another name, or is not signed by ca.pem"},
    {FBR_HTTP_OURS, "private key", "key.pem is not the key of cert.pem"},
    {FBR_HTTP_OURS, "client certificate", "cert.pem has no certificate"},
    {FBR_HTTP_OURS, "",
     "it closes the connection when it sees cert.pem: its CA has not signed cert.pem, or it has "
     "expired"},
    {FBR_HTTP_NO_TLS, "",
     "it does not use TLS on that port: unset DOCKER_TLS_VERIFY, or use the other port (usually "
     "2376)"},
};

/* Names the file that is wrong, as far as the two ends report it. */
static const char *file_that_is_wrong(const struct asked *q, const struct fbr_http_answer *a,
                                      const char *why)
{
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
        if (wrongs[i].tls == a->tls && strstr(why, wrongs[i].part))
            return wrongs[i].wrong;
    if (!q->e->certs[0] && a->status == 400 && strstr(why, "HTTPS server"))
        return "it uses TLS on that port, but DOCKER_TLS_VERIFY is not set";
    return NULL;
}

static void report_reason(struct asked *q, const struct fbr_http_answer *a)
{
    char why[300];
    const char *wrong;

    fbr_http_describe(a, why, sizeof(why));
    wrong = file_that_is_wrong(q, a, why);
    q->keys = wrong;
    snprintf(q->why, sizeof(q->why), "%s%s%s%s%.250s%s", why, wrong ? " - " : "",
             wrong ? wrong : "", wrong && q->e->certs[0] ? " (in " : "", wrong ? q->e->certs : "",
             wrong && q->e->certs[0] ? ")" : "");
}

static void on_asked(void *user, const struct fbr_http_answer *a)
{
    struct asked *q = user;
    struct fbr_error err = {0, ""};

    q->status = a->status;
    if (a->status < 200 || a->status >= 300) {
        report_reason(q, a);
        return;
    }
    q->json = fbr_json_parse(a->body, a->len, &err);
    snprintf(q->why, sizeof(q->why), "%.290s", err.text);
}

struct json_t *fbr_docker_engine_ask(const struct fbr_docker_engine *e, const char *method,
                                     char *path, uint64_t ms, int *status, struct fbr_error *err)
{
    struct asked q = {.e = e, .why = "out of memory"};
    const struct fbr_http_request r = {
        .method = method, .path = path, .done = on_asked, .user = &q};

    if (path)
        fbr_http_now(e->http, &r, 1, ms);
    free(path);
    if (status)
        *status = q.status;
    if (!q.json)
        fbr_fail(err,
                 q.keys     ? -EKEYREJECTED
                 : q.status ? -EPROTO
                            : -ECONNREFUSED,
                 "%s: %s", e->name, q.why);
    return q.json;
}

struct json_t *fbr_docker_engine_get(const struct fbr_docker_engine *e, const char *path,
                                     const char *name, struct fbr_error *err)
{
    char *escaped = fbr_http_escape(name ? name : "");
    char *whole = escaped ? fbr_docker_path(e, path, escaped) : NULL;

    free(escaped);
    return fbr_docker_engine_ask(e, "GET", whole, ASK_MS, NULL, err);
}

/* ---- Where it is ---- */

static const char *usual_host(char podman[300])
{
    const char *dir = fbr_getenv("XDG_RUNTIME_DIR");

    if (access("/var/run/docker.sock", F_OK) == 0)
        return "unix:///var/run/docker.sock";
    snprintf(podman, 300, "unix://%.250s/podman/podman.sock", dir ? dir : "/run");
    return access(podman + 7, F_OK) == 0 ? podman : "unix:///var/run/docker.sock";
}

static struct json_t *read_json(const char *path)
{
    size_t len;
    char *text = fbr_fds_slurp(path, &len, NULL);
    struct json_t *j = text ? fbr_json_parse(text, len, NULL) : NULL;

    free(text);
    return j;
}

/* Takes the address of a context of the docker command, and its folder with keys if it has one. The
 * command keeps each context in folders of the same name. */
static bool find_context(struct fbr_docker_engine *e, const char *dir, const char *context,
                         char host[300])
{
    char path[PATH_MAX];
    glob_t found = {0};

    snprintf(path, sizeof(path), "%.3000s/contexts/meta/*/meta.json", dir);
    host[0] = '\0';
    if (glob(path, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct json_t *j = read_json(found.gl_pathv[i]);

            if (strcmp(fbr_json_text(j, "Name", NULL), context) == 0) {
                const char *folder = dirname(found.gl_pathv[i]);

                snprintf(host, 300, "%.290s",
                         fbr_json_text(j, "Endpoints", "docker", "Host", NULL));
                snprintf(path, sizeof(path), "%.3000s/contexts/tls%.300s/docker", dir,
                         strrchr(folder, '/'));
                snprintf(e->certs, sizeof(e->certs), "%.250s", access(path, F_OK) == 0 ? path : "");
            }
            fbr_json_free(j);
        }
    globfree(&found);
    return host[0];
}

/* Takes the engine that the docker command would take without DOCKER_HOST: that of the context in
 * DOCKER_CONTEXT, else in its config.json. Returns 1; 0: there is no context, or "default". */
static int take_context(struct fbr_docker_engine *e, char host[300], struct fbr_error *err)
{
    const char *dir = fbr_getenv("DOCKER_CONFIG"), *home = fbr_getenv("HOME"),
               *context = fbr_getenv("DOCKER_CONTEXT");
    struct json_t *config;
    char own[PATH_MAX], path[PATH_MAX];
    int rc = 0;

    snprintf(own, sizeof(own), "%s/.docker", home ? home : "");
    dir = dir && dir[0] ? dir : own;
    snprintf(path, sizeof(path), "%.3000s/config.json", dir);
    config = read_json(path);
    if (!context || !context[0])
        context = fbr_json_text(config, "currentContext", NULL);
    if (context[0] && strcmp(context, "default") != 0)
        rc = find_context(e, dir, context, host)
                 ? 1
                 : fbr_fail(err, -ENOENT,
                            "the docker command's context %.100s (DOCKER_CONTEXT, or %.200s/"
                            "config.json) is not in %.200s/contexts; see `docker context ls`, or "
                            "set DOCKER_HOST",
                            context, dir, dir);
    fbr_json_free(config);
    return rc;
}

static int check_socket(const char *path, struct fbr_error *err)
{
    int fd = fbr_unix_connect(path);

    fbr_fds_close(fd);
    if (fd >= 0 || fd == -EAGAIN) /* a socket that is busy has an engine */
        return 0;
    if (fd == -EACCES)
        return fbr_fail(err, -EACCES,
                        "you may not use %s: ask to be added to its group (usually docker)", path);
    return fbr_fail(err, fd,
                    "there is no Docker engine at %s (%s): start it, or set docker_host or "
                    "DOCKER_HOST to its address",
                    path, fbr_strerror(fd));
}

/* Reads ca.pem, cert.pem and key.pem, the files of the docker command. */
static int load_tls(struct fbr_docker_engine *e, struct fbr_error *err)
{
    static const char *const files[] = {"ca.pem", "cert.pem", "key.pem"};
    const char *dir = fbr_getenv("DOCKER_CERT_PATH"), *home = fbr_getenv("HOME");
    struct fbr_error why = {0, ""};
    char own[PATH_MAX], path[PATH_MAX];

    snprintf(own, sizeof(own), "%s/.docker", home ? home : "");
    dir = e->certs[0] ? e->certs : dir && dir[0] ? dir : own;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%.3000s/%s", dir, files[i]);
        e->pem[i] = fbr_fds_slurp(path, NULL, &why);
        if (!e->pem[i])
            return fbr_fail(err, -EKEYREJECTED, "TLS (%s): %s",
                            e->certs[0] ? "docker's context has keys" : "DOCKER_TLS_VERIFY is set",
                            why.text);
    }
    if (dir != e->certs)
        snprintf(e->certs, sizeof(e->certs), "%.250s", dir);
    e->options.ca = e->pem[0];
    e->options.cert = e->pem[1];
    e->options.key = e->pem[2];
    return 0;
}

/* A forwarded port also counts as this machine; then the engine's bridge is not one of ours, as
 * behind a forwarded socket. */
static bool is_this_machine(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static int connect_tcp(struct fbr_docker_engine *e, const char *address, struct fbr_error *err)
{
    const char *verify = fbr_getenv("DOCKER_TLS_VERIFY");
    /* of an IPv6 address */
    const char *end = address[0] == '[' ? strchr(address, ']') : NULL;
    const char *rest = end ? end + 1 : address + strcspn(address, ":/");
    bool tls = (verify && verify[0]) || e->certs[0];
    /* else the port of the docker command */
    const char *port = *rest == ':' ? "" : tls ? ":2376" : ":2375";
    int rc = tls ? load_tls(e, err) : 0;

    if (rc < 0)
        return rc;
    if (end)
        snprintf(e->host, sizeof(e->host), "%.*s", (int)(end - address - 1), address + 1);
    else
        snprintf(e->host, sizeof(e->host), "%.*s", (int)(rest - address), address);
    snprintf(e->url, sizeof(e->url), "%s://%.*s%s%.100s", tls ? "https" : "http",
             rest - address < 150 ? (int)(rest - address) : 150, address, port, rest);
    e->options.url = e->url;
    /* its containers reach us as the containers of a local socket do */
    if (is_this_machine(e->host))
        e->host[0] = '\0';
    else if (!tls)
        fbr_warn("%s is used without TLS: everyone who can reach it, or can read the traffic, is "
                 "root there; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH",
                 e->name);
    return 0;
}

static int find(struct fbr_docker_engine *e, const struct fbr_config *config, struct fbr_error *err)
{
    char usual[300];
    const char *host = fbr_config_str(config, "docker_host");
    int rc = 0;

    if (!host[0])
        host = fbr_getenv("DOCKER_HOST");
    if ((!host || !host[0]) && (rc = take_context(e, usual, err)) < 0)
        return rc;
    if (!host || !host[0])
        host = rc ? usual : usual_host(usual);
    snprintf(e->address, sizeof(e->address), "%.250s", host);
    snprintf(e->name, sizeof(e->name), "the Docker engine at %.250s", host);
    if (strncmp(host, "unix:///", 8) == 0) {
        e->options.url = "http://localhost";
        snprintf(e->url, sizeof(e->url), "%.290s", host + 7);
        e->options.socket = e->url;
        return check_socket(e->url, err);
    }
    if (strncmp(host, "tcp://", 6) == 0)
        return connect_tcp(e, host + 6, err);
    return fbr_fail(err, -EINVAL,
                    "%s %.200s is invalid: use unix:///path or tcp://host:port; for ssh:// forward "
                    "the socket (ssh -L /tmp/docker.sock:/var/run/docker.sock HOST)",
                    rc ? "the engine of docker's context," : "docker_host", host);
}

/* ---- Who we are to it ---- */

static void first_network(void *user, const char *key, struct json_t *network)
{
    struct fbr_docker_engine *e = user;

    if (e->own_network[0])
        return;
    snprintf(e->own_network, sizeof(e->own_network), "%.120s", key);
    snprintf(e->own_address, sizeof(e->own_address), "%.45s",
             fbr_json_text(network, "IPAddress", NULL));
}

static void find_own(struct fbr_docker_engine *e)
{
    char *mounts = fbr_fds_slurp("/proc/self/mountinfo", NULL, NULL);
    struct json_t *j = NULL;

    if (mounts && fbr_docker_own_id(mounts, e->own))
        j = fbr_docker_engine_get(e, "/containers/%s/json", e->own, NULL);
    /* we run in a container of another engine, or in none */
    if (!j)
        e->own[0] = '\0';
    snprintf(e->own_image, sizeof(e->own_image), "%.120s", fbr_json_text(j, "Image", NULL));
    fbr_json_each(fbr_json_at(j, "NetworkSettings", "Networks", NULL), first_network, e);
    fbr_json_free(j);
    free(mounts);
}

static int ask_version(struct fbr_docker_engine *e, struct fbr_error *err)
{
    struct json_t *version = fbr_docker_engine_get(e, "/version", NULL, err);
    int rc;

    if (!version)
        return err ? err->code : -ECONNREFUSED;
    rc = fbr_docker_version(fbr_json_text(version, "MinAPIVersion", NULL),
                            fbr_json_text(version, "ApiVersion", NULL), e->api, err);
    snprintf(e->version, sizeof(e->version), "%.30s", fbr_json_text(version, "Version", NULL));
    fbr_json_free(version);
    return rc;
}

int fbr_docker_engine_open(struct fbr_docker_engine *e, struct fbr_loop *loop,
                           const struct fbr_config *config, struct fbr_error *err)
{
    int rc;

    memset(e, 0, sizeof(*e));
    /* The engine answers 500 to a request that it cannot do, and a minute later it still cannot do
     * it. */
    e->options = (struct fbr_http_options){.http1 = true, .final_500 = true};
    if ((rc = find(e, config, err)) < 0 ||
        (rc = fbr_http_open(&e->http, loop, &e->options, err)) < 0 ||
        (rc = ask_version(e, err)) < 0) {
        fbr_docker_engine_close(e);
        return rc;
    }
    find_own(e);
    return 0;
}

void fbr_docker_engine_close(struct fbr_docker_engine *e)
{
    fbr_http_close(e->http);
    e->http = NULL;
    if (e->pem[2])
        explicit_bzero(e->pem[2], strlen(e->pem[2]));
    for (int i = 0; i < 3; i++) {
        free(e->pem[i]);
        e->pem[i] = NULL;
    }
}

/* ---- The way back ---- */

static int network_address(struct fbr_docker_engine *e, const char *network,
                           char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err)
{
    struct json_t *j = fbr_docker_engine_get(e, "/networks/%s", network, err);
    char first[64], who[192];
    const struct json_t *ipam;
    const char *gateway, *interface, *subnet;
    int rc = -ENETUNREACH;

    if (!j)
        return fbr_wrap(err, "network %s", network);
    ipam = fbr_json_item(fbr_json_at(j, "IPAM", "Config", NULL), 0);
    gateway = fbr_json_text(ipam, "Gateway", NULL);
    subnet = fbr_json_text(ipam, "Subnet", NULL);
    interface = fbr_json_text(j, "Options", "com.docker.network.bridge.name", NULL);
    if (gateway[0])
        rc = fbr_host_address_find(gateway, out);
    if (rc < 0 && interface[0])
        rc = fbr_host_address_find(interface, out);
    /* The engine is rootless, or runs in another machine. A new engine names no gateway before it
     * is started again. */
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(subnet, "/"), subnet);
    if (rc < 0 && (gateway[0] || first[0]))
        rc = fbr_host_address_toward(gateway[0] ? gateway : first, 0, out, NULL);
    fbr_json_free(j);
    snprintf(who, sizeof(who), "containers of the network %s", network);
    return rc < 0 ? fbr_host_address_fail(err, rc, who) : 0;
}

/* Finds our address when we run in a container ourselves, in the same network or in several. */
static int address_in_container(struct fbr_docker_engine *e, const char *network,
                                char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err)
{
    struct json_t *j;

    snprintf(out, FBR_HOST_ADDRESS_MAX, "%s", e->own_address);
    if (!network[0] || strcmp(network, e->own_network) == 0)
        return 0;
    j = fbr_docker_engine_get(e, "/containers/%s/json", e->own, err);
    snprintf(out, FBR_HOST_ADDRESS_MAX, "%s",
             fbr_json_text(j, "NetworkSettings", "Networks", network, "IPAddress", NULL));
    fbr_json_free(j);
    if (out[0])
        return 0;
    return fbr_fail(err, -ENETUNREACH,
                    "the container of this process is in the network %s and not in %s, so "
                    "containers there cannot reach it: use docker network connect %s %.12s",
                    e->own_network, network, network, e->own);
}

int fbr_docker_engine_address(struct fbr_docker_engine *e, const char *network,
                              char out[FBR_HOST_ADDRESS_MAX], struct fbr_error *err)
{
    int rc;

    if (strcmp(network, "none") == 0)
        return fbr_fail(
            err, -ENETUNREACH,
            "docker_network = none: containers without a network cannot reach this process");
    if (strcmp(network, "host") == 0 && !e->host[0]) {
        snprintf(out, FBR_HOST_ADDRESS_MAX, "%s", e->own_address[0] ? e->own_address : "127.0.0.1");
        return 0;
    }
    if (e->own_address[0])
        return address_in_container(e, network, out, err);
    if (!e->host[0])
        return network_address(e, network[0] ? network : "bridge", out, err);
    rc = fbr_host_address_toward(e->host, LOOK_UP_MS, out, NULL);
    return rc < 0 ? fbr_host_address_fail(err, rc, e->host) : 0;
}
