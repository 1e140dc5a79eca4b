/* image_codec.c - the names of images, and the documents that describe an image.
 *
 * A name is `[host[:port]/]part[/part...][:tag]`, as the reference grammar of the distribution
 * project defines it. The documents are those of the OCI image-spec 1.0, and manifest.json of
 * `docker save`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "backends/image/image_priv.h"
#include "backends/http/json.h"

#define NAME_MOST 255 /* bytes without the tag */
#define TAG_MOST 128
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define NEVER "1970-01-01T00:00:00Z"

/* ---- Names ---- */

/* Words of lower-case letters and digits, separated by '.', '_', "__" or any number of '-'. */
#define WORD "[" LOWER DIGITS "]+"
#define PART WORD "(([.]|__?|-+)" WORD ")*"
/* Labels, separated by dots, of letters and digits with '-' only between them. */
#define ALNUM LOWER UPPER DIGITS
#define LABEL "[" ALNUM "]([" ALNUM "-]*[" ALNUM "])?"

/* `pattern`: an extended regular expression for all of the text. */
static bool matches(const char *text, size_t len, const char *pattern)
{
    char *copy = strndup(text, len);
    bool good = false;
    regex_t re;

    if (copy && regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) == 0) {
        good = regexec(&re, copy, 0, NULL, 0) == 0;
        regfree(&re);
    }
    free(copy);
    return good;
}

/* Checks for a registry: the name has a dot or a port, or is localhost. */
static bool is_host(const char *text, size_t len)
{
    return (memchr(text, ':', len) || memchr(text, '.', len) ||
            (len == 9 && !memcmp(text, "localhost", len))) &&
           matches(text, len, "^" LABEL "([.]" LABEL ")*(:[" DIGITS "]+)?$");
}

int fbr_image_name(const char *name, char tagged[FBR_IMAGE_NAME_MAX],
                   char whole[FBR_IMAGE_NAME_MAX], struct fbr_error *err)
{
    const char *slash = strchr(name, '/'), *part = name, *colon;
    size_t len;
    bool host = slash && is_host(name, (size_t)(slash - name));
    const char *before = host ? "" : slash ? "docker.io/" : "docker.io/library/";

    if (host)
        part = slash + 1;
    colon = strchr(part, ':');
    len = colon ? (size_t)(colon - name) : strlen(name);
    if (strchr(name, '@'))
        return fbr_fail(
            err, -EINVAL,
            "\"%.128s\" is not a name for an image: it has a digest, which cannot be chosen", name);
    if (len + strlen(before) > NAME_MOST ||
        !matches(part, (size_t)(name + len - part), "^" PART "(/" PART ")*$"))
        return fbr_fail(err, -EINVAL,
                        "\"%.128s\" is not a name for an image: lower-case letters, digits and "
                        "single . _ - between them, like team/train:1",
                        name);
    if (colon && !matches(colon + 1, strlen(colon + 1), "^[" ALNUM "_][" ALNUM "_.-]{0,127}$"))
        return fbr_fail(err, -EINVAL,
                        "\"%.128s\" is not a name for an image: use at most %d letters, digits and "
                        ". _ - after the colon",
                        name, TAG_MOST);
    snprintf(tagged, FBR_IMAGE_NAME_MAX, "%s%s", name, colon ? "" : ":latest");
    snprintf(whole, FBR_IMAGE_NAME_MAX, "%s%s", before, tagged);
    return 0;
}

bool fbr_image_refused(const char *text)
{
    static const char *const words[] = {"unauthorized",
                                        "denied",
                                        "no basic auth",
                                        "forbidden",
                                        "authentication required",
                                        "incorrect username",
                                        "credentials",
                                        "toomanyrequests",
                                        "status: 401",
                                        "status: 403"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasestr(text, words[i]))
            return true;
    return false;
}

/* ---- Documents ---- */

/* Makes a JSON array. */
static struct json_t *list(const struct fbr_args *texts)
{
    struct json_t *a = fbr_json_pack("[]");

    for (size_t i = 0; i < texts->n; i++)
        fbr_json_push(&a, fbr_json_pack("s", texts->at[i]));
    return a;
}

static char *print(struct json_t *j, struct fbr_error *err)
{
    char *text = j ? fbr_json_print(j, NULL) : NULL;

    fbr_json_free(j);
    if (!text)
        fbr_fail(err, -ENOMEM, "out of memory");
    return text;
}

/* Returns Go's name of the architecture, which registries use. */
static const char *architecture(const struct utsname *u)
{
    static const char *const names[][2] = {
        {"x86_64", "amd64"}, {"aarch64", "arm64"}, {"armv7l", "arm"}, {"i686", "386"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(u->machine, names[i][0]))
            return names[i][1];
    return u->machine;
}

char *image_config(const struct fbr_image *i, const struct image_layer *layers,
                   struct fbr_error *err)
{
    struct json_t *config = fbr_json_pack("{}");
    struct utsname u;

    fbr_json_put(&config, "Env", list(&i->env));
    fbr_json_put(&config, "Cmd", list(&i->cmd));
    if (i->entrypoint.n)
        fbr_json_put(&config, "Entrypoint", list(&i->entrypoint));
    if (i->workdir)
        fbr_json_put(&config, "WorkingDir", fbr_json_string(i->workdir));
    if (!config) {
        fbr_fail(err, -EINVAL,
                 "the environment, the entrypoint or the program's name is not valid UTF-8, or "
                 "there is no memory");
        return NULL;
    }
    uname(&u);
    return print(
        fbr_json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:[s, s]}, s:[{s:s, s:s}, {s:s, s:s}]}",
                      "created", NEVER, "architecture", architecture(&u), "os", "linux", "config",
                      config, "rootfs", "type", "layers", "diff_ids", layers[0].digest,
                      layers[1].digest, "history", "created", NEVER, "created_by", "fiber image",
                      "created", NEVER, "created_by", "fiber image"),
        err);
}

void image_blob(const char *digest, char out[IMAGE_BLOB])
{
    snprintf(out, IMAGE_BLOB, "blobs/sha256/%s", strchr(digest, ':') + 1);
}

char *image_manifest(const char *config, size_t config_len, const struct image_layer *layers,
                     struct fbr_error *err)
{
    static const char tar[] = "application/vnd.oci.image.layer.v1.tar";

    return print(fbr_json_pack("{s:i, s:s, s:{s:s, s:s, s:I}, s:[{s:s, s:s, s:I}, "
                               "{s:s, s:s, s:I}]}",
                               "schemaVersion", 2, "mediaType",
                               "application/vnd.oci.image.manifest.v1+json", "config", "mediaType",
                               "application/vnd.oci.image.config.v1+json", "digest", config, "size",
                               (long long)config_len, "layers", "mediaType", tar, "digest",
                               layers[0].digest, "size", (long long)layers[0].len, "mediaType", tar,
                               "digest", layers[1].digest, "size", (long long)layers[1].len),
                 err);
}

char *image_index(const char *manifest, size_t manifest_len, const char *whole,
                  struct fbr_error *err)
{
    const char *tag = strrchr(whole, ':') + 1;

    return print(fbr_json_pack("{s:i, s:s, s:[{s:s, s:s, s:I, s:{s:s, s:s}}]}", "schemaVersion", 2,
                               "mediaType", "application/vnd.oci.image.index.v1+json", "manifests",
                               "mediaType", "application/vnd.oci.image.manifest.v1+json", "digest",
                               manifest, "size", (long long)manifest_len, "annotations",
                               "io.containerd.image.name", whole,
                               "org.opencontainers.image.ref.name", tag),
                 err);
}

char *image_docker(const char *config, const struct image_layer *layers, const char *tagged,
                   struct fbr_error *err)
{
    char config_path[IMAGE_BLOB], below[IMAGE_BLOB], above[IMAGE_BLOB];

    image_blob(config, config_path);
    image_blob(layers[0].digest, below);
    image_blob(layers[1].digest, above);
    return print(fbr_json_pack("[{s:s, s:[s], s:[s, s]}]", "Config", config_path, "RepoTags",
                               tagged, "Layers", below, above),
                 err);
}
