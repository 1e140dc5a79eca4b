/* kubeconfig.c - reads kubeconfig files and service accounts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/kubeconfig.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/http/base64.h"
#include "backends/http/json.h"
#include "backends/kubernetes/yaml.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/log.h"

#define MAX_ARGS 256

void fbr_kube_forget(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void fbr_kube_config_fini(struct fbr_kube_config *c)
{
    free(c->server);
    free(c->proxy);
    free(c->env_proxy);
    free(c->no_proxy);
    free(c->server_name);
    free(c->ca);
    free(c->cert);
    fbr_kube_forget(&c->key);
    fbr_kube_forget(&c->token);
    free(c->token_file);
    free(c->ca_file);
    free(c->user);
    fbr_kube_forget(&c->password);
    free(c->namespace_);
    free(c->context);
    fbr_args_fini(&c->exec.argv);
    fbr_args_fini(&c->exec.env);
    free(c->exec.version);
    free(c->exec.hint);
    memset(c, 0, sizeof(*c));
}

/* ---- Merging files ---- */

/* Makes a path absolute; a path in a file is relative to the file's folder. */
static int make_absolute(struct json_t *in, const char *key, const char *folder, bool command)
{
    const char *path = fbr_json_text(in, key, NULL);
    char full[PATH_MAX];

    if (!path[0] || path[0] == '/' || (command && !strchr(path, '/')))
        return 0;
    if ((size_t)snprintf(full, sizeof(full), "%s/%s", folder, path) >= sizeof(full))
        return -ENAMETOOLONG;
    return fbr_json_set(in, key, fbr_json_string(full));
}

/* Adds an item under its name, unless an earlier file has an item of that name. */
static int add_item(struct json_t *all, const char *list, const struct json_t *item,
                    const char *what, const char *folder)
{
    static const char *const paths[] = {"certificate-authority", "client-certificate", "client-key",
                                        "tokenFile"};
    const char *name = fbr_json_text(item, "name", NULL);
    struct json_t *copy;
    int rc;

    if (fbr_json_at(all, list, name, NULL))
        return 0;
    if ((rc = fbr_json_merge_new(all, fbr_json_pack("{s:{s:{}}}", list, name))) < 0)
        return rc;
    copy = fbr_json_at(all, list, name, NULL);
    if ((rc = fbr_json_merge(copy, fbr_json_at(item, what, NULL))) < 0)
        return rc;
    for (size_t k = 0; k < sizeof(paths) / sizeof(paths[0]); k++)
        if ((rc = make_absolute(copy, paths[k], folder, false)) < 0)
            return rc;
    return make_absolute(fbr_json_at(copy, "exec", NULL), "command", folder, true);
}

static int add_named(struct json_t *all, const struct json_t *file, const char *list,
                     const char *what, const char *folder)
{
    const struct json_t *items = fbr_json_at(file, list, NULL);
    int rc;

    for (size_t i = 0; i < fbr_json_count(items); i++)
        if ((rc = add_item(all, list, fbr_json_item(items, i), what, folder)) < 0)
            return rc;
    return 0;
}

int fbr_kube_config_add(struct json_t *all, const struct json_t *file, const char *folder,
                        struct fbr_error *err)
{
    const char *current = fbr_json_text(file, "current-context", NULL);
    int rc;

    if ((rc = add_named(all, file, "clusters", "cluster", folder)) < 0 ||
        (rc = add_named(all, file, "users", "user", folder)) < 0 ||
        (rc = add_named(all, file, "contexts", "context", folder)) < 0 ||
        (current[0] && !fbr_json_at(all, "current-context", NULL) &&
         (rc = fbr_json_set(all, "current-context", fbr_json_string(current))) < 0))
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    return 0;
}

/* ---- Reading a context ---- */

/* Takes PEM text, which stands in base64 under key-data, or in a file under key. */
static int take_pem(char **out, const struct json_t *in, const char *key, struct fbr_error *err)
{
    char with_data[64];
    const char *data, *path = fbr_json_text(in, key, NULL);
    size_t len;

    snprintf(with_data, sizeof(with_data), "%s-data", key);
    data = fbr_json_text(in, with_data, NULL);
    if (data[0]) {
        *out = fbr_base64_decode(data, &len);
        if (!*out || strlen(*out) != len) {
            free(*out);
            *out = NULL;
            return fbr_fail(err, -EINVAL, "%s is not base64 of a text", with_data);
        }
    } else if (path[0]) {
        *out = fbr_fds_slurp(path, NULL, err);
        if (!*out)
            return fbr_wrap(err, "%s", key);
    }
    return 0;
}

static int take_exec(struct fbr_kube_exec *x, const struct json_t *in, struct fbr_error *err)
{
    static const char group[] = "client.authentication.k8s.io/";
    const char *command = fbr_json_text(in, "command", NULL);
    const struct json_t *args = fbr_json_at(in, "args", NULL), *env = fbr_json_at(in, "env", NULL);
    size_t nargs = fbr_json_count(args), nenv = fbr_json_count(env);

    if (!in)
        return 0;
    x->version = fbr_json_dup(in, "apiVersion");
    x->hint = fbr_json_dup(in, "installHint");
    x->cluster = fbr_json_bool(in, "provideClusterInfo", NULL);
    if (!command[0])
        return fbr_fail(err, -EINVAL, "its exec plugin has no command");
    if (!x->version || strncmp(x->version, group, strlen(group)) != 0)
        return fbr_fail(err, -EINVAL,
                        "its exec plugin has apiVersion '%.64s'; known are %sv1 and "
                        "%sv1beta1",
                        x->version ? x->version : "", group, group);
    fbr_args_addf(&x->argv, "%s", command);
    for (size_t i = 0; i < nargs && i < MAX_ARGS; i++)
        fbr_args_addf(&x->argv, "%s", fbr_json_text(fbr_json_item(args, i), NULL));
    for (size_t i = 0; i < nenv && i < MAX_ARGS; i++)
        fbr_args_addf(&x->env, "%s=%s", fbr_json_text(fbr_json_item(env, i), "name", NULL),
                      fbr_json_text(fbr_json_item(env, i), "value", NULL));
    if (nargs > MAX_ARGS || nenv > MAX_ARGS || x->argv.failed || x->env.failed)
        return fbr_fail(err, -EINVAL, "its exec plugin has bad arguments");
    return 0;
}

static int take_cluster(struct fbr_kube_config *c, const struct json_t *in, struct fbr_error *err)
{
    c->server = fbr_json_dup(in, "server");
    c->proxy = fbr_json_dup(in, "proxy-url");
    c->server_name = fbr_json_dup(in, "tls-server-name");
    c->insecure = fbr_json_bool(in, "insecure-skip-tls-verify", NULL);
    for (size_t n = c->server ? strlen(c->server) : 0; n && c->server[n - 1] == '/'; n--)
        c->server[n - 1] = '\0';
    if (!c->server || (strncmp(c->server, "https://", 8) && strncmp(c->server, "http://", 7)))
        return fbr_fail(err, -EINVAL, "its cluster has no server that begins with https://");
    return take_pem(&c->ca, in, "certificate-authority", err);
}

static int take_user(struct fbr_kube_config *c, const struct json_t *in, struct fbr_error *err)
{
    int rc;

    if (fbr_json_at(in, "auth-provider", NULL))
        return fbr_fail(err, -ENOTSUP,
                        "its user has an auth-provider ('%.64s'), which Kubernetes removed in "
                        "1.26: use an exec plugin (gke-gcloud-auth-plugin, kubelogin...) or a "
                        "token",
                        fbr_json_text(in, "auth-provider", "name", NULL));
    if (fbr_json_at(in, "as", NULL))
        return fbr_fail(err, -ENOTSUP,
                        "its user acts as another ('as: %.64s'), which is not supported: use a "
                        "token of that user",
                        fbr_json_text(in, "as", NULL));
    c->token = fbr_json_dup(in, "token");
    c->token_file = fbr_json_dup(in, "tokenFile");
    c->user = fbr_json_dup(in, "username");
    c->password = fbr_json_dup(in, "password");
    if ((rc = take_pem(&c->cert, in, "client-certificate", err)) < 0 ||
        (rc = take_pem(&c->key, in, "client-key", err)) < 0)
        return rc;
    if (!c->cert != !c->key)
        return fbr_fail(err, -EINVAL,
                        "its user has a client certificate without a key, or a key "
                        "without a certificate");
    if (c->key && strstr(c->key, "ENCRYPTED"))
        return fbr_fail(err, -EINVAL,
                        "its user's client-key is encrypted: make one without a password by "
                        "`openssl pkey -in KEY -out NEW`");
    return take_exec(&c->exec, fbr_json_at(in, "exec", NULL), err);
}

static int take_context(struct fbr_kube_config *c, const struct json_t *all, const char *name,
                        struct fbr_error *err)
{
    const struct json_t *context = fbr_json_at(all, "contexts", name, NULL);
    const char *cluster = fbr_json_text(context, "cluster", NULL);
    const char *user = fbr_json_text(context, "user", NULL);
    const char *namespace = fbr_json_text(context, "namespace", NULL);
    int rc;

    if (!context)
        return fbr_fail(err, -EINVAL,
                        "there is no such context; use `kubectl config get-contexts` to list them");
    if (!fbr_json_at(all, "clusters", cluster, NULL))
        return fbr_fail(err, -EINVAL, "its cluster '%.100s' is in no file", cluster);
    if (user[0] && !fbr_json_at(all, "users", user, NULL))
        return fbr_fail(err, -EINVAL, "its user '%.100s' is in no file", user);
    c->context = strdup(name);
    c->namespace_ = strdup(namespace[0] ? namespace : "default");
    if (!c->context || !c->namespace_)
        return fbr_fail(err, -ENOMEM, "out of memory");
    rc = take_cluster(c, fbr_json_at(all, "clusters", cluster, NULL), err);
    if (rc < 0 || !user[0])
        return rc;
    return take_user(c, fbr_json_at(all, "users", user, NULL), err);
}

int fbr_kube_config_take(struct fbr_kube_config *c, const struct json_t *all, const char *context,
                         struct fbr_error *err)
{
    const char *name =
        context && context[0] ? context : fbr_json_text(all, "current-context", NULL);
    int rc;

    memset(c, 0, sizeof(*c));
    if (!name[0])
        return fbr_fail(err, -EINVAL,
                        "no context is chosen: set kubernetes_context, or "
                        "`kubectl config use-context NAME`");
    rc = take_context(c, all, name, err);
    if (rc < 0) {
        fbr_kube_config_fini(c);
        return fbr_wrap(err, "context '%.100s'", name);
    }
    return 0;
}

int fbr_kube_config_pod(struct fbr_kube_config *c, const char *host, const char *port,
                        const char *folder, struct fbr_error *err)
{
    bool six = strchr(host, ':') != NULL;
    char path[PATH_MAX];

    memset(c, 0, sizeof(*c));
    c->in_cluster = true;
    if (asprintf(&c->server, "https://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port) < 0)
        c->server = NULL;
    snprintf(path, sizeof(path), "%s/ca.crt", folder);
    c->ca = fbr_fds_slurp(path, NULL, err);
    c->ca_file = strdup(path);
    snprintf(path, sizeof(path), "%s/namespace", folder);
    c->namespace_ = c->ca ? fbr_fds_slurp(path, NULL, err) : NULL;
    snprintf(path, sizeof(path), "%s/token", folder);
    c->token_file = strdup(path);
    if (!c->server || !c->ca || !c->ca_file || !c->namespace_ || !c->token_file) {
        fbr_kube_config_fini(c);
        return fbr_fail(err, -ENOENT,
                        "this pod has no service account (%s): set serviceAccountName, and remove "
                        "automountServiceAccountToken: false",
                        folder);
    }
    c->namespace_[strcspn(c->namespace_, " \r\n")] = '\0';
    return 0;
}

/* ---- From the environment ---- */

static int add_file(struct json_t *all, const char *path, int *found, struct fbr_error *err)
{
    char *copy, folder[PATH_MAX];
    struct json_t *file;
    int rc;

    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    file = fbr_kube_yaml_file(path, err);
    if (!file)
        return -EINVAL;
    copy = strdup(path);
    /* kubectl does not follow a link from the file to elsewhere either */
    if (copy && realpath(dirname(copy), folder))
        rc = fbr_kube_config_add(all, file, folder, err);
    else
        rc = fbr_fail(err, copy ? -errno : -ENOMEM, "%s", fbr_strerror(copy ? errno : ENOMEM));
    free(copy);
    fbr_json_free(file);
    ++*found;
    return rc < 0 ? fbr_wrap(err, "%s", path) : 0;
}

static int add_files(struct json_t *all, const char *list, int *found, struct fbr_error *err)
{
    char *copy = strdup(list), *save = NULL;
    int rc = copy ? 0 : fbr_fail(err, -ENOMEM, "out of memory");

    for (char *path = copy ? strtok_r(copy, ":", &save) : NULL; path && rc == 0;
         path = strtok_r(NULL, ":", &save))
        rc = add_file(all, path, found, err);
    free(copy);
    return rc;
}

static int load_files(struct fbr_kube_config *c, const char *context, int *found,
                      struct fbr_error *err)
{
    const char *list = fbr_getenv("KUBECONFIG"), *home = fbr_getenv("HOME");
    struct json_t *all = fbr_json_pack("{}");
    char path[PATH_MAX];
    int rc = 0;

    if (!all)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (list && list[0]) {
        rc = add_files(all, list, found, err);
    } else if (home && home[0] == '/') {
        snprintf(path, sizeof(path), "%s/.kube/config", home);
        rc = add_file(all, path, found, err);
    }
    if (rc == 0 && *found)
        rc = fbr_kube_config_take(c, all, context, err);
    fbr_json_free(all);
    return rc;
}

bool fbr_kube_config_again(const struct fbr_kube_config *c, struct fbr_kube_config *now)
{
    int found = 0;

    memset(now, 0, sizeof(*now));
    if (c->context && load_files(now, c->context, &found, NULL) == 0 && found &&
        !strcmp(now->server, c->server))
        return true;
    fbr_kube_config_fini(now);
    return false;
}

/* The server is a `kubectl proxy`, or a tunnel to one. */
static bool is_here(const struct fbr_kube_config *c)
{
    const char *host = strstr(c->server, "://") + 3;
    size_t len = strcspn(host, ":/");

    return !strncmp(host, "[::1]", 5) || (len == 9 && !strncmp(host, "localhost", len)) ||
           (!strncmp(host, "127.", 4) && strspn(host, "0123456789.") == len);
}

bool fbr_kube_config_is_plain(const struct fbr_kube_config *c)
{
    return !strncmp(c->server, "http://", 7) && !is_here(c);
}

/* Returns the value of a variable whose name is in small or in capital letters; NULL: not set. */
static const char *either(const char *small, const char *capital)
{
    const char *value = fbr_getenv(small);

    return value && value[0] ? value : fbr_getenv(capital);
}

/* The port at the end of "host:port" or "[address]:port"; NULL: none. */
static const char *port_of(const char *host, size_t len)
{
    const char *colon = memrchr(host, ':', len);

    return colon && (host[0] == '[' ? colon[-1] == ']' : !memchr(host, ':', colon - host))
               ? colon + 1
               : NULL;
}

/* Returns the exceptions as libcurl knows them. To kubectl "host:port" means that port alone, and
 * "*.domain" all hosts of the domain. */
static char *exceptions(const char *list, const char *server)
{
    const char *host = strstr(server, "://") + 3, *port = port_of(host, strcspn(host, "/"));
    long number = port ? strtol(port, NULL, 10) : strncmp(server, "https", 5) ? 80 : 443;
    char *out = malloc(strlen(list) + 2), *at = out;

    while (out && *(list += strspn(list, ", \t"))) {
        size_t len = strcspn(list, ", \t");
        const char *only = port_of(list, len), *end = only ? only - 1 : list + len;
        const char *name = list + (list[0] == '[' || !strncmp(list, "*.", 2));

        if (len == 1 && list[0] == '*') /* all hosts; libcurl knows it only alone */
            return strcpy(out, "*");
        if (!only || strtol(only, NULL, 10) == number) {
            end -= end > name && end[-1] == ']';
            at = mempcpy(at, name, (size_t)(end - name));
            *at++ = ',';
        }
        list += len;
    }
    if (out)
        *at = '\0';
    return out;
}

/* Takes the proxy of the environment, as kubectl does. */
static int take_env_proxy(struct fbr_kube_config *c, struct fbr_error *err)
{
    bool tls = !strncmp(c->server, "https://", 8);
    const char *proxy =
                   tls ? either("https_proxy", "HTTPS_PROXY") : either("http_proxy", "HTTP_PROXY"),
               *no_proxy = either("no_proxy", "NO_PROXY");

    if (c->proxy || is_here(c) || !proxy || !proxy[0])
        return 0;
    c->env_proxy = strdup(proxy);
    c->no_proxy = exceptions(no_proxy ? no_proxy : "", c->server);
    return c->env_proxy && c->no_proxy ? 0 : fbr_fail(err, -ENOMEM, "out of memory");
}

int fbr_kube_config_load(struct fbr_kube_config *c, const char *context, struct fbr_error *err)
{
    const char *host = fbr_getenv("KUBERNETES_SERVICE_HOST"),
               *port = fbr_getenv("KUBERNETES_SERVICE_PORT");
    int found = 0, rc;

    memset(c, 0, sizeof(*c));
    rc = load_files(c, context, &found, err);
    if (rc < 0)
        return rc;
    if (!found && host && host[0])
        return fbr_kube_config_pod(c, host, port && port[0] ? port : "443", FBR_KUBE_ACCOUNT, err);
    if (!found)
        return fbr_fail(
            err, -ENOENT,
            "no cluster is known here: there is no kubeconfig ($KUBECONFIG, "
            "~/.kube/config), and this is not a pod; set KUBECONFIG to the file that your "
            "cluster's owner gave you");
    if ((rc = take_env_proxy(c, err)) < 0) {
        fbr_kube_config_fini(c);
        return rc;
    }
    if (c->insecure)
        fbr_warn("context %s: insecure-skip-tls-verify is set: every host on the way to %s can "
                 "read and change everything, keys of jobs too",
                 c->context, c->server);
    else if (fbr_kube_config_is_plain(c))
        fbr_warn("context %s: %s is not https: hosts on the way can read the credentials, and read "
                 "and change everything else",
                 c->context, c->server);
    return 0;
}
