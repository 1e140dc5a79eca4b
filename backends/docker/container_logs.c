/* container_logs.c - the output of a container of another run, read from the engine's log; for
 * `fiber logs`.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/docker/docker_priv.h"

struct reading {
    struct fbr_backend_reader to;
    struct fbr_docker_frames frames;
    bool begun, framed; /* output of a container with a terminal has no frames */
    bool broken;
};

static void on_piece(void *user, int stream, const void *data, size_t len)
{
    struct reading *r = user;

    r->to.out(r->to.user, stream, data, len);
}

static void on_bytes(void *user, const void *data, size_t len)
{
    struct reading *r = user;

    if (!r->begun && len) { /* a frame begins with the number of its stream; text does not */
        r->begun = true;
        r->framed = *(const unsigned char *)data <= 2;
    }
    if (!r->framed)
        on_piece(r, 1, data, len);
    else if (!r->broken)
        r->broken = !fbr_docker_frames(&r->frames, data, len, on_piece, r);
}

static void on_end(void *user, const struct fbr_http_answer *a)
{
    struct reading *r = user;
    char say[300] = "";

    if (a->status != 200)
        fbr_http_describe(a, say, sizeof(say));
    else if (r->broken)
        snprintf(say, sizeof(say), "the engine sent a log in an unknown format");
    else
        snprintf(say, sizeof(say), "%.290s", a->why);
    r->to.done(r->to.user, say);
    free(r);
}

int fbr_docker_logs(struct fbr_backend *b, const char *id, int follow,
                    const struct fbr_backend_reader *reader, struct fbr_error *err)
{
    struct reading *r = calloc(1, sizeof(*r));
    const struct fbr_docker_engine *e = &b->engine;

    if (r) {
        r->to = *reader;
        if (fbr_docker_send(e,
                            fbr_docker_path(e,
                                            "/containers/%.100s/logs?stdout=1&stderr=1&follow=%d",
                                            id, follow != 0),
                            (struct fbr_http_request){
                                .method = "GET", .data = on_bytes, .done = on_end, .user = r}))
            return 0;
    }
    free(r);
    return fbr_fail(err, -ENOMEM, "out of memory");
}
