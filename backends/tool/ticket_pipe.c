/* ticket_pipe.c - delivers a ticket to one reader through a pipe.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/tool/ticket_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/buf.h"

struct delivery {
    uv_pipe_t pipe;
    uv_write_t write;
    struct fbr_buf bytes;
};

static void wipe(struct fbr_buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->len);
    fbr_buf_fini(b);
}

static void on_closed(uv_handle_t *handle)
{
    struct delivery *d = handle->data;

    wipe(&d->bytes);
    free(d);
}

static void on_written(uv_write_t *write, int status)
{
    struct delivery *d = write->data;

    (void)status; /* a command that does not read the ticket does not join */
    uv_close((uv_handle_t *)&d->pipe, on_closed);
}

/* Takes ownership of the bytes of `b`. */
static int deliver(struct fbr_loop *loop, struct fbr_buf *b, struct fbr_error *err)
{
    struct delivery *d = calloc(1, sizeof(*d));
    int ends[2] = {-1, -1};
    uv_buf_t out;

    if (!d || b->failed || pipe2(ends, O_CLOEXEC) < 0) {
        int rc = !d || b->failed ? -ENOMEM : -errno;

        wipe(b);
        free(d);
        return fbr_fail(err, rc, "cannot make a pipe for its input: %s", fbr_strerror(rc));
    }
    d->bytes = *b;
    uv_pipe_init(fbr_loop_uv(loop), &d->pipe, 0);
    d->pipe.data = d;
    d->write.data = d;
    uv_pipe_open(&d->pipe, ends[1]); /* makes the descriptor non-blocking */
    out = uv_buf_init((char *)d->bytes.data, (unsigned)d->bytes.len);
    if (uv_write(&d->write, (uv_stream_t *)&d->pipe, &out, 1, on_written) < 0)
        uv_close((uv_handle_t *)&d->pipe, on_closed);
    return ends[0];
}

int fbr_ticket_pipe_send(struct fbr_loop *loop, const void *data, size_t len, struct fbr_error *err)
{
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_put(&b, data, len);
    return deliver(loop, &b, err);
}

int fbr_ticket_pipe_ticket(struct fbr_loop *loop, const void *ticket, size_t len,
                           struct fbr_error *err)
{
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_put_bytes(&b, ticket, len);
    return deliver(loop, &b, err);
}
