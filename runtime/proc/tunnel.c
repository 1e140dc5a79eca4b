/* tunnel.c - passes bytes between a socket and a control channel.
 *
 * Both ends of a tunnel run this code: the launcher's socket leads to the client of its control
 * socket, the target process's socket to a thread.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/proc/tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

struct fbr_tunnel {
    struct fbr_tunnel *next, *prev;
    struct fbr_tunnels *all; /* NULL: the tunnel has ended, and its handle is closing */
    uint64_t id;
    uv_pipe_t pipe;
    uint32_t room;   /* bytes that we may send */
    size_t taken;    /* bytes received and not yet written */
    unsigned writes; /* writes under way */
    bool reading;
    bool ending; /* the other end has ended; its last bytes are still being written */
};

static void send_frame(struct fbr_tunnel *v, uint8_t type, const void *data, size_t len)
{
    struct fbr_buf b = {0};

    fbr_put_u64(&b, v->id);
    fbr_put(&b, data, len);
    v->all->send(v->all->user, type, &b);
    fbr_buf_fini(&b);
}

static void drop(struct fbr_tunnel *v)
{
    struct fbr_tunnels *all = v->all;

    if (!all)
        return;
    DL_DELETE(all->list, v);
    all->count--;
    v->all = NULL;
    uv_close((uv_handle_t *)&v->pipe, fbr_free_data);
}

static void hang_up(struct fbr_tunnel *v)
{
    if (v->all && !v->ending)
        send_frame(v, FBR_TUNNEL_END, NULL, 0);
    drop(v);
}

/* ---- From the socket ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct fbr_tunnel *v = handle->data;
    size_t n = v->room < FBR_LOOP_SCRATCH ? v->room : FBR_LOOP_SCRATCH;

    *buf = uv_buf_init(v->all ? fbr_loop_scratch(v->all->loop) : NULL, (unsigned)n);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fbr_tunnel *v = stream->data;

    if (n == UV_ENOBUFS || n == 0 || !v->all)
        return;
    if (n < 0) {
        if (!v->ending || v->writes == 0)
            hang_up(v);
        return;
    }
    v->room -= (uint32_t)n;
    send_frame(v, FBR_TUNNEL_DATA, buf->base, (size_t)n);
    if (v->room == 0) {
        uv_read_stop(stream);
        v->reading = false;
    }
}

static void read_on(struct fbr_tunnel *v)
{
    if (!v->reading && v->room && uv_read_start((uv_stream_t *)&v->pipe, on_alloc, on_read) == 0)
        v->reading = true;
}

/* ---- To the socket ---- */

static void send_credit(struct fbr_tunnel *v, size_t len)
{
    uint32_t credit = (uint32_t)len;

    send_frame(v, FBR_TUNNEL_CREDIT, &credit, sizeof(credit));
}

/* A socket that takes no more bytes may still have some to read; its end is read after them. */
static void on_first_written(void *arg, int status, size_t len)
{
    struct fbr_tunnel *v = arg;

    v->writes--;
    if (v->all && v->ending && v->writes == 0)
        drop(v);
}

static void on_written(void *arg, int status, size_t len)
{
    struct fbr_tunnel *v = arg;

    v->taken -= len;
    if (v->all && !v->ending && status == 0)
        send_credit(v, len);
    on_first_written(v, status, len);
}

static int write_out(struct fbr_tunnel *v, const void *data, size_t len)
{
    int rc = fbr_stream_write((uv_stream_t *)&v->pipe, data, len, on_written, v);

    if (rc < 0)
        return rc;
    if (rc) {
        v->writes++;
        v->taken += len;
    } else {
        send_credit(v, len);
    }
    return 0;
}

/* ---- Tunnels ---- */

int fbr_tunnels_open(struct fbr_tunnels *all, uint64_t id, int fd, const struct fbr_buf *first,
                     struct fbr_error *err)
{
    struct fbr_tunnel *v;
    int rc;

    if (first && first->failed)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if (all->count >= FBR_TUNNELS_MAX)
        return fbr_fail(err, -EBUSY, "%d others are doing so already", FBR_TUNNELS_MAX);
    v = calloc(1, sizeof(*v));
    if (!v)
        return fbr_fail(err, -ENOMEM, "out of memory");
    uv_pipe_init(fbr_loop_uv(all->loop), &v->pipe, 0);
    v->pipe.data = v;
    v->id = id;
    v->room = FBR_TUNNEL_WINDOW;
    v->all = all;
    DL_APPEND(all->list, v);
    all->count++;
    rc = uv_pipe_open(&v->pipe, fd);
    if (rc < 0) {
        drop(v);
        return fbr_fail(err, rc, "%s", fbr_strerror(rc));
    }
    /* if the client is gone, the read reports its end */
    if (first &&
        fbr_stream_write((uv_stream_t *)&v->pipe, first->data, first->len, on_first_written, v) > 0)
        v->writes++;
    read_on(v);
    return 0;
}

void fbr_tunnels_on_frame(struct fbr_tunnels *all, uint8_t type, struct fbr_cur *body)
{
    uint64_t id = fbr_get_u64(body);
    struct fbr_tunnel *v;
    size_t n = fbr_cur_left(body);
    uint32_t credit;

    DL_FOREACH(all->list, v)
        if (v->id == id)
            break;
    if (!v || !fbr_cur_ok(body) || v->ending)
        return;
    if (type == FBR_TUNNEL_DATA) {
        /* An end that sends more than the window breaks the protocol. */
        if (n && (v->taken + n > FBR_TUNNEL_WINDOW || write_out(v, body->at, n) < 0))
            hang_up(v);
    } else if (type == FBR_TUNNEL_CREDIT) {
        credit = fbr_get_u32(body);
        if (!fbr_cur_ok(body) || credit > FBR_TUNNEL_WINDOW - v->room)
            return;
        v->room += credit;
        read_on(v);
    } else if (type == FBR_TUNNEL_END) {
        v->ending = true;
        if (v->writes == 0)
            drop(v);
    }
}

void fbr_tunnels_close(struct fbr_tunnels *all)
{
    while (all->list)
        drop(all->list);
}
