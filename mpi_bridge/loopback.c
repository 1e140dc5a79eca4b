/* loopback.c - connections of local ranks to their agent.
 *
 * The end of a link is reported from a later turn of the loop, by a timer, so that no call of the
 * owner leads to a call back.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_bridge/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/net/tcp.h"

#define BACKLOG 1024
#define AGAIN_MS 100 /* until the next try to take a connection for which there was no memory */

struct fbr_lo_link {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct fbr_loop *loop;
    const struct fbr_lo_link_ops *ops; /* NULL: not started, gone() was called, or closed */
    void *user;
    struct fbr_timer later; /* calls gone() outside of the owner's calls */
    bool finishing, failed;
};

/* ---- links ---- */

static void notify_gone(void *arg)
{
    struct fbr_lo_link *link = arg;
    const struct fbr_lo_link_ops *ops = link->ops;

    link->ops = NULL;
    if (ops)
        ops->gone(link->user);
}

static void fail(struct fbr_lo_link *link)
{
    if (!link->failed)
        uv_read_stop(&link->uv.stream);
    link->failed = true;
    fbr_timer_start(&link->later, 0, 0);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct fbr_lo_link *link = stream->data;

    if (got < 0)
        fail(link);
    else if (got > 0 && link->ops)
        link->ops->bytes(link->user, buf->base, (size_t)got);
}

static struct fbr_lo_link *link_new(struct fbr_loop *loop, bool tcp)
{
    struct fbr_lo_link *link = calloc(1, sizeof(*link));

    if (!link || fbr_timer_init(&link->later, loop, notify_gone, link) < 0) {
        free(link);
        return NULL;
    }
    link->loop = loop;
    if (tcp)
        uv_tcp_init(fbr_loop_uv(loop), &link->uv.tcp);
    else
        uv_pipe_init(fbr_loop_uv(loop), &link->uv.pipe, 0);
    link->uv.handle.data = link;
    return link;
}

int fbr_lo_link_open(struct fbr_lo_link **out, struct fbr_loop *loop, int fd)
{
    struct fbr_lo_link *link = link_new(loop, false);
    int rc = link ? uv_pipe_open(&link->uv.pipe, fd) : -ENOMEM;

    if (rc < 0) {
        close(fd);
        fbr_lo_link_close(link);
        return rc;
    }
    *out = link;
    return 0;
}

void fbr_lo_link_start(struct fbr_lo_link *link, const struct fbr_lo_link_ops *ops, void *user)
{
    link->ops = ops;
    link->user = user;
    if (uv_read_start(&link->uv.stream, fbr_loop_alloc, on_read) < 0)
        fail(link);
}

void fbr_lo_link_read(struct fbr_lo_link *link)
{
    char *data = fbr_loop_scratch(link->loop);
    uv_os_fd_t fd;
    ssize_t n = 1;
    int left = 0; /* without what comes meanwhile: another process may write all the time */

    if (uv_fileno(&link->uv.handle, &fd) < 0 || ioctl(fd, FIONREAD, &left) < 0)
        return;
    for (; n > 0 && left > 0 && link->ops && !link->failed && !link->finishing; left -= (int)n) {
        n = read(fd, data, left < FBR_LOOP_SCRATCH ? (size_t)left : FBR_LOOP_SCRATCH);
        if (n > 0) /* libuv sees an end or an error again */
            link->ops->bytes(link->user, data, (size_t)n);
    }
}

static void on_written(void *arg, int status, size_t len)
{
    struct fbr_lo_link *link = arg;

    if (status == UV_ECANCELED) /* the link is being closed */
        return;
    if (status < 0 || (link->finishing && !uv_stream_get_write_queue_size(&link->uv.stream)))
        fail(link);
}

void fbr_lo_link_send(struct fbr_lo_link *link, const void *data, size_t len)
{
    size_t queued = uv_stream_get_write_queue_size(&link->uv.stream);

    if (link->failed || link->finishing || !len)
        return;
    if (len > FBR_LO_LINK_QUEUE_MAX || queued > FBR_LO_LINK_QUEUE_MAX - len ||
        fbr_stream_write(&link->uv.stream, data, len, on_written, link) < 0)
        fail(link);
}

void fbr_lo_link_finish(struct fbr_lo_link *link)
{
    link->finishing = true;
    uv_read_stop(&link->uv.stream);
    if (!uv_stream_get_write_queue_size(&link->uv.stream))
        fail(link);
}

void fbr_lo_link_close(struct fbr_lo_link *link)
{
    if (!link)
        return;
    link->ops = NULL;
    link->failed = true;
    fbr_timer_fini(&link->later);
    uv_close(&link->uv.handle, fbr_free_data);
}

/* ---- the listener ---- */

struct fbr_lo_listener {
    uv_tcp_t tcp;
    struct fbr_loop *loop;
    struct fbr_timer again; /* calls take() */
    uint16_t port;
    struct fbr_refusals refusals;
    void (*on_link)(void *user, struct fbr_lo_link *link);
    void *user;
};

/* Takes the connection that waits in libuv. Until it is taken, libuv accepts no other. */
static void take(void *arg)
{
    struct fbr_lo_listener *l = arg;
    struct fbr_lo_link *link = link_new(l->loop, true);
    uv_os_fd_t fd;

    if (!link) {
        fbr_timer_start(&l->again, AGAIN_MS, 0);
        return;
    }
    if (uv_accept((uv_stream_t *)&l->tcp, &link->uv.stream) < 0 ||
        uv_fileno(&link->uv.handle, &fd) < 0 || fbr_loopback_check(fd, &l->refusals) < 0) {
        fbr_lo_link_close(link);
        return;
    }
    uv_tcp_nodelay(&link->uv.tcp, 1);
    l->on_link(l->user, link);
}

static void on_connection(uv_stream_t *stream, int status)
{
    if (status == 0)
        take(stream->data);
}

int fbr_lo_listener_open(struct fbr_lo_listener **out, struct fbr_loop *loop,
                         void (*on_link)(void *user, struct fbr_lo_link *link), void *user,
                         struct fbr_error *err)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct fbr_lo_listener *l = calloc(1, sizeof(*l));
    int len = sizeof(in), rc;

    if (!l || fbr_timer_init(&l->again, loop, take, l) < 0) {
        free(l);
        return fbr_fail(err, -ENOMEM, "cannot listen on 127.0.0.1: out of memory");
    }
    l->loop = loop;
    l->on_link = on_link;
    l->user = user;
    uv_tcp_init(fbr_loop_uv(loop), &l->tcp);
    l->tcp.data = l;
    if ((rc = uv_tcp_bind(&l->tcp, (struct sockaddr *)&in, 0)) < 0 ||
        (rc = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection)) < 0 ||
        (rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&in, &len)) < 0) {
        fbr_lo_listener_close(l);
        return fbr_fail(err, rc, "cannot listen on 127.0.0.1: %s", fbr_strerror(rc));
    }
    l->port = ntohs(in.sin_port);
    *out = l;
    return 0;
}

uint16_t fbr_lo_listener_port(const struct fbr_lo_listener *listener)
{
    return listener->port;
}

void fbr_lo_listener_close(struct fbr_lo_listener *listener)
{
    if (!listener)
        return;
    fbr_timer_fini(&listener->again);
    uv_close((uv_handle_t *)&listener->tcp, fbr_free_data);
}
