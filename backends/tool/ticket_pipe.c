/* ticket_pipe.c - delivers a ticket to one reader through a pipe.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/tool/ticket_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/buf.h"
#include "runtime/base/random.h"

struct delivery {
    uv_pipe_t pipe;
    uv_write_t write;
    struct fbr_buf bytes;
};

static void free_delivery(struct delivery *d)
{
    if (!d)
        return;
    fbr_wipe(d->bytes.data, d->bytes.len);
    fbr_buf_fini(&d->bytes);
    free(d);
}

static void on_closed(uv_handle_t *handle)
{
    free_delivery(handle->data);
}

static void on_written(uv_write_t *write, int status)
{
    struct delivery *d = write->data;

    (void)status; /* a command that does not read the ticket does not join */
    uv_close((uv_handle_t *)&d->pipe, on_closed);
}

int fbr_ticket_pipe_send(struct fbr_loop *loop, const void *data, size_t len, bool is_ticket,
                         struct fbr_error *err)
{
    struct delivery *d = calloc(1, sizeof(*d));
    int ends[2], rc = 0;
    uv_buf_t out;

    if (d && is_ticket)
        fbr_put_bytes(&d->bytes, data, len);
    else if (d)
        fbr_put(&d->bytes, data, len);
    if (!d || d->bytes.failed)
        rc = -ENOMEM;
    else if (pipe2(ends, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc < 0) {
        free_delivery(d);
        return fbr_fail(err, rc, "cannot make a pipe for its input: %s", fbr_strerror(rc));
    }
    uv_pipe_init(fbr_loop_uv(loop), &d->pipe, 0);
    d->pipe.data = d;
    d->write.data = d;
    uv_pipe_open(&d->pipe, ends[1]); /* makes the descriptor non-blocking */
    out = uv_buf_init((char *)d->bytes.data, (unsigned)d->bytes.len);
    if (uv_write(&d->write, (uv_stream_t *)&d->pipe, &out, 1, on_written) < 0)
        uv_close((uv_handle_t *)&d->pipe, on_closed);
    return ends[0];
}
