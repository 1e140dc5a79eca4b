/* login.c - finds the login of a registry in configuration files and in the output of helpers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/login.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/base64.h"

#define HUB_KEY "https://index.docker.io/v1/"

static void forget(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void fbr_docker_login_fini(struct fbr_docker_login *l)
{
    forget(&l->helper);
    forget(&l->token);
    forget(&l->user);
    forget(&l->password);
}

/* ---- Registries ---- */

/* The part before the first slash is a host if it can be nothing else; "library/app" is an image of
 * Docker Hub. */
void fbr_docker_registry(const char *image, char out[FBR_DOCKER_REGISTRY_MAX])
{
    size_t n = strcspn(image, "/");
    bool host = image[n] == '/' && (memchr(image, '.', n) || memchr(image, ':', n) ||
                                    strncmp(image, "localhost/", 10) == 0);

    if (!host || n >= FBR_DOCKER_REGISTRY_MAX || strncmp(image, "index.docker.io/", 16) == 0)
        snprintf(out, FBR_DOCKER_REGISTRY_MAX, FBR_DOCKER_HUB);
    else
        snprintf(out, FBR_DOCKER_REGISTRY_MAX, "%.*s", (int)n, image);
}

const char *fbr_docker_registry_key(const char *registry)
{
    return strcmp(registry, FBR_DOCKER_HUB) == 0 ? HUB_KEY : registry;
}

static bool is(const char *host, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(host, name, n) == 0;
}

/* Returns how many bytes of "registry/path/of/image" match a key of `auths`; 0: the key is for
 * another image. */
static size_t match(const char *key, const char *registry, const char *path)
{
    const char *scheme = strstr(key, "://"), *host = scheme ? scheme + 3 : key;
    size_t n = strcspn(host, "/"), more = strlen(host) - n;
    bool hub = strcmp(registry, FBR_DOCKER_HUB) == 0 &&
               (is(host, n, "index.docker.io") || is(host, n, "registry-1.docker.io"));

    if (n == 0 || (!hub && !is(host, n, registry)))
        return 0;
    if (scheme || more <= 1 || strcmp(host + n, "/v1/") == 0)
        return n; /* the key is a URL, or only a host */
    more--;
    if (strncmp(path, host + n + 1, more) != 0 || !strchr("/:@", path[more]))
        return 0;
    return n + 1 + more;
}

struct search {
    const char *registry, *path;
    const struct json_t *found;
    size_t best;
};

static void look_at(void *user, const char *key, struct json_t *value)
{
    struct search *s = user;
    size_t n = match(key, s->registry, s->path);

    if (n > s->best && fbr_json_is_object(value)) {
        s->best = n;
        s->found = value;
    }
}

/* ---- Files ---- */

static bool copy(char **out, const char *text)
{
    *out = text[0] ? strdup(text) : NULL;
    return *out || !text[0];
}

/* Decodes base64 of user:password; zero bytes at the end are ignored. */
static int split(struct fbr_docker_login *l, const char *auth, struct fbr_error *err)
{
    size_t len;
    char *text = fbr_base64_decode(auth, &len), *colon = text ? strchr(text, ':') : NULL;
    int rc = 0;

    if (!colon || colon == text) {
        rc = fbr_fail(err, -EBADMSG, "its \"auth\" is not base64 of user:password");
        goto done;
    }
    *colon = '\0';
    if (!copy(&l->user, text) || !copy(&l->password, colon + 1))
        rc = fbr_fail(err, -ENOMEM, "out of memory");
done:
    if (text)
        explicit_bzero(text, len);
    free(text);
    return rc;
}

static int take(struct fbr_docker_login *l, const struct json_t *entry, struct fbr_error *err)
{
    const char *auth = fbr_json_text(entry, "auth", NULL);
    int rc = auth[0] ? split(l, auth, err) : 0;

    if (rc < 0)
        return rc;
    if (!copy(&l->token, fbr_json_text(entry, "identitytoken", NULL)) ||
        (!auth[0] && (!copy(&l->user, fbr_json_text(entry, "username", NULL)) ||
                      !copy(&l->password, fbr_json_text(entry, "password", NULL)))))
        return fbr_fail(err, -ENOMEM, "out of memory");
    return l->token || l->user ? 1 : 0;
}

/* Returns the helper for the registry, or "". */
static const char *helper_of(const struct json_t *file, const char *registry)
{
    const char *name = fbr_json_text(file, "credHelpers", registry, NULL);

    if (!name[0])
        name = fbr_json_text(file, "credHelpers", fbr_docker_registry_key(registry), NULL);
    return name[0] ? name : fbr_json_text(file, "credsStore", NULL);
}

int fbr_docker_login_find(struct fbr_docker_login *l, const struct json_t *file, const char *image,
                          struct fbr_error *err)
{
    char registry[FBR_DOCKER_REGISTRY_MAX];
    struct search s = {.registry = registry, .path = image};
    const char *helper;
    int rc;

    memset(l, 0, sizeof(*l));
    fbr_docker_registry(image, registry);
    if (strncmp(image, registry, strlen(registry)) == 0 && image[strlen(registry)] == '/')
        s.path = image + strlen(registry) + 1;
    helper = helper_of(file, registry);
    if (strchr(helper, '/'))
        return fbr_fail(err, -EINVAL, "the helper '%.60s' is not a name", helper);
    if (helper[0])
        return copy(&l->helper, helper) ? 1 : fbr_fail(err, -ENOMEM, "out of memory");
    fbr_json_each(fbr_json_at(file, "auths", NULL), look_at, &s);
    rc = s.found ? take(l, s.found, err) : 0;
    if (rc <= 0)
        fbr_docker_login_fini(l);
    return rc < 0 ? fbr_wrap(err, "the login of %.200s", registry) : rc;
}

/* ---- Helpers ---- */

int fbr_docker_login_parse(struct fbr_docker_login *l, const char *text, size_t len,
                           struct fbr_error *err)
{
    struct json_t *j = fbr_json_parse(text, len, NULL);
    const char *user = fbr_json_text(j, "Username", NULL),
               *secret = fbr_json_text(j, "Secret", NULL);
    bool ok;
    int rc = 0;

    memset(l, 0, sizeof(*l));
    if (!user[0] || !secret[0]) {
        /* the message must not contain the output */
        rc = fbr_fail(err, -EBADMSG, "what it printed has no Username and Secret");
    } else {
        if (strcmp(user, "<token>") == 0)
            ok = copy(&l->token, secret);
        else
            ok = copy(&l->user, user) && copy(&l->password, secret);
        if (!ok)
            rc = fbr_fail(err, -ENOMEM, "out of memory");
    }
    if (rc < 0)
        fbr_docker_login_fini(l);
    fbr_json_free(j);
    return rc;
}

/* ---- The header ---- */

char *fbr_docker_login_header(const struct fbr_docker_login *l, const char *registry)
{
    static const char name[] = "X-Registry-Auth: ";
    const char *key = fbr_docker_registry_key(registry);
    struct json_t *j = fbr_json_pack("{}");
    char *text, *code, *line = NULL;
    size_t len = 0;

    fbr_json_put(&j, "serveraddress", fbr_json_string(key));
    if (l->token) {
        fbr_json_put(&j, "identitytoken", fbr_json_string(l->token));
    } else {
        fbr_json_put(&j, "username", fbr_json_string(l->user ? l->user : ""));
        fbr_json_put(&j, "password", fbr_json_string(l->password ? l->password : ""));
    }
    text = j ? fbr_json_print(j, &len) : NULL;
    code = text ? fbr_base64_encode(text, len) : NULL;
    for (char *at = code; at && *at; at++) /* base64url, the variant for URLs */
        *at = *at == '+' ? '-' : *at == '/' ? '_' : *at;
    if (code && asprintf(&line, "%s%s", name, code) < 0)
        line = NULL;
    forget(&text);
    forget(&code);
    fbr_json_free(j);
    return line;
}
