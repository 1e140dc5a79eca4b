/* image_sweep.c - removes images that were made of programs (fiber-auto:ID) and are no longer used,
 * for `fiber gc`.
 *
 * A run that uses such an image tags it with its name again, and the engine records the time of the
 * tag; the creation time in an image does not help, because it is the same for the same files. An
 * image without a time of its last tag is tagged now. An image stays if any container uses it, also
 * an ended one; the engine itself refuses to remove it then. A run that goes on without a container
 * makes its image again when it needs it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/docker_priv.h"
#include "backends/http/json.h"

#define PREFIX "fiber-auto:"
#define REMOVE_MS 60000

struct sweep {
    struct fbr_backend *b;
    int64_t before_ms;
    bool dry;
    fbr_backend_swept *swept;
    void *user;
    struct json_t *containers;
};

/* Removes only the name: the engine keeps the layers as long as another name has them. */
static int delete_image(struct fbr_backend *b, const char *tag, struct fbr_error *err)
{
    char *path = fbr_docker_path(&b->engine, "/images/%s", tag);
    int status;

    fbr_json_free(fbr_docker_engine_ask(&b->engine, "DELETE", path, REMOVE_MS, &status, err));
    if (status / 100 == 2 || status == 404)
        return 0;
    return status == 409 ? -EBUSY : -EIO;
}

/* Tags the image as a run does that uses it: its age counts from now on. */
static void name_again(struct fbr_backend *b, const char *tag)
{
    char *path = fbr_docker_path(&b->engine, "/images/%s/tag?repo=fiber-auto&tag=%s", tag,
                                 tag + sizeof(PREFIX) - 1);

    fbr_json_free(fbr_docker_engine_ask(&b->engine, "POST", path, REMOVE_MS, NULL, NULL));
}

/* Returns the time of its last use in ms; 0: the engine does not report one. */
static int64_t since(struct fbr_backend *b, const char *tag)
{
    struct json_t *image = fbr_docker_engine_get(&b->engine, "/images/%s/json", tag, NULL);
    int64_t s = fbr_json_time(fbr_json_text(image, "Metadata", "LastTagTime", NULL));

    fbr_json_free(image);
    return s > 0 ? s * 1000 : 0; /* an image that was never tagged has a time in the year 1 */
}

static void look_at(struct sweep *s, const struct json_t *image, const char *tag)
{
    struct fbr_swept e = {
        .kind = "image", .id = tag, .bytes = fbr_json_int(image, 0, "Size", NULL)};
    struct fbr_error err = {0, ""};
    int rc;

    if (strncmp(tag, PREFIX, sizeof(PREFIX) - 1) != 0)
        return;
    e.since_ms = since(s->b, tag);
    if (fbr_json_find(s->containers, "ImageID", fbr_json_text(image, "Id", NULL)) ||
        e.since_ms > s->before_ms)
        return;
    if (!e.since_ms) {
        e.action = FBR_SWEPT_KEPT;
        e.why = "the engine does not report when it was last used: its age is counted from now on";
        if (!s->dry)
            name_again(s->b, tag);
    } else if (s->dry) {
        e.why = "no container uses it";
    } else {
        rc = delete_image(s->b, tag, &err);
        /* a container has begun to use it meanwhile */
        if (rc == -EBUSY)
            return;
        e.action = rc < 0 ? FBR_SWEPT_FAILED : FBR_SWEPT_REMOVED;
        e.why = rc < 0 ? err.text : "no container uses it";
    }
    s->swept(s->user, &e);
}

int fbr_docker_sweep_images(struct fbr_backend *b, int64_t before_ms, int dry,
                            fbr_backend_swept *swept, void *user, struct fbr_error *err)
{
    struct sweep s = {.b = b, .before_ms = before_ms, .dry = dry, .swept = swept, .user = user};
    struct json_t *images;
    int rc;

    images = fbr_docker_engine_get(&b->engine, "/images/json?filters=%s",
                                   "{\"reference\":[\"fiber-auto\"]}", err);
    s.containers =
        images ? fbr_docker_engine_get(&b->engine, "/containers/json?all=1", NULL, err) : NULL;
    for (size_t i = 0; s.containers && i < fbr_json_count(images); i++) {
        const struct json_t *image = fbr_json_item(images, i);
        const struct json_t *tags = fbr_json_at(image, "RepoTags", NULL);

        for (size_t k = 0; k < fbr_json_count(tags); k++) {
            struct json_t *tag = fbr_json_item(tags, k);

            look_at(&s, image, fbr_json_text(tag, NULL));
        }
    }
    rc = s.containers ? 0 : -EIO;
    fbr_json_free(images);
    fbr_json_free(s.containers);
    return rc;
}
