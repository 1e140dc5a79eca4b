/* image_load.c - loads an image straight into the Docker engine.
 *
 * A thread writes the archive into a pipe, and the request to the engine's API reads it from the
 * pipe, so no copy lies on a disk. If the engine goes away the pipe is closed, and the thread ends.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/docker/image_load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "backends/docker/engine.h"

#define LOAD_MS (30 * 60 * 1000)
#define PIPE_SIZE (1 << 20)

struct load {
    struct fbr_image *image;
    const char *name;
    int in; /* where the archive is written; closed at its end */
    struct fbr_error wrote;
    int rc;
    /* the engine's answer */
    int status;
    struct fbr_json_lines lines;
    char why[400];
};

static void *write_archive(void *user)
{
    struct load *l = user;

    l->rc = fbr_image_write(l->image, l->name, l->in, &l->wrote);
    close(l->in);
    return NULL;
}

/* {"stream":"Loaded image: ..."} or {"errorDetail":{...},"error":"..."}, with status 200. */
static void on_line(void *user, const struct json_t *j)
{
    struct load *l = user;

    if (fbr_json_text(j, "error", NULL)[0])
        snprintf(l->why, sizeof(l->why), "%.390s", fbr_json_text(j, "error", NULL));
}

static void on_done(void *user, const struct fbr_http_answer *a)
{
    struct load *l = user;

    l->status = a->status;
    if (a->status == 200)
        fbr_json_lines(&l->lines, a->body, a->len, on_line, l);
    else
        fbr_http_describe(a, l->why, sizeof(l->why));
}

static int send_archive(struct load *l, struct fbr_docker_engine *e, struct fbr_error *err)
{
    char path[64];
    int ends[2];
    struct fbr_http_request r = {.method = "POST",
                                 .path = path,
                                 .type = "application/x-tar",
                                 .timeout_ms = LOAD_MS,
                                 .done = on_done,
                                 .user = l};
    pthread_t writer;
    int rc;

    snprintf(path, sizeof(path), "/v%s/images/load?quiet=1", e->api);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fbr_fail(err, -errno, "no pipe for the image: %m");
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* only for speed; may fail */
    l->in = ends[1];
    r.body_fd = ends[0];
    rc = pthread_create(&writer, NULL, write_archive, l);
    if (rc != 0) {
        close(ends[0]);
        close(ends[1]);
        return fbr_fail(err, -rc, "cannot start a thread for the image: %s", fbr_strerror(rc));
    }
    fbr_http_now(e->http, &r, 1, LOAD_MS);
    close(ends[0]);
    pthread_join(writer, NULL);
    fbr_buf_fini(&l->lines.line);
    /* -EPIPE: the engine ended the request, and its answer has the reason */
    if (l->rc < 0 && l->rc != -EPIPE)
        return fbr_fail(err, l->rc, "%s", l->wrote.text);
    if (l->status != 200 || l->why[0])
        return fbr_fail(err, l->status ? -EPROTO : -ECONNRESET, "%s did not take the image: %.400s",
                        e->name, l->why);
    return l->rc < 0 ? fbr_fail(err, l->rc, "%s did not take the whole image", e->name) : 0;
}

int fbr_image_load(struct fbr_image *i, const char *name, const struct fbr_config *config,
                   char engine[FBR_IMAGE_ENGINE_MAX], struct fbr_error *err)
{
    struct load l = {.image = i, .name = name, .in = -1};
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX];
    struct fbr_docker_engine e;
    struct fbr_loop *loop = NULL;
    int rc;

    if ((rc = fbr_image_name(name, tagged, whole, err)) < 0 || (rc = fbr_loop_open(&loop, err)) < 0)
        return rc;
    rc = fbr_docker_engine_open(&e, loop, config, err);
    if (rc < 0)
        goto done;
    snprintf(engine, FBR_IMAGE_ENGINE_MAX, "%s", e.name);
    rc = send_archive(&l, &e, err);
    fbr_docker_engine_close(&e);
done:
    fbr_loop_close(loop);
    return rc;
}
