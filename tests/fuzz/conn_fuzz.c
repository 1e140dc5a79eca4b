/* conn_fuzz.c - hostile bytes to an open control connection, in pieces as they may come.
 *
 * The input is u8 what, then pieces: u8 length, so many bytes. They come through a socket pair;
 * with bit 0 of `what` the receiver closes the connection within its third frame. What the receiver
 * is told of must be what was in the bytes, and on_close comes once and last.
 *
 * The loop is one of ours, without a thread; whom a conn asks on the calling side is not here.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/net/conn_priv.h"

struct fbr_loop {
    uv_loop_t uv;
    uint8_t scratch[FBR_LOOP_SCRATCH];
};

static struct {
    struct fbr_loop loop;
    struct fbr_conn *conn; /* NULL once it was closed */
    bool closes, closed;
    size_t frames, bytes; /* bytes: of frames, heads included */
    size_t sent;
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

/* ---- In place of loop.c and listener.c ---- */

uv_loop_t *fbr_loop_uv(struct fbr_loop *l)
{
    return &l->uv;
}

void *fbr_loop_scratch(struct fbr_loop *l)
{
    return l->scratch;
}

void fbr_loop_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    *buf = uv_buf_init((char *)f.loop.scratch, FBR_LOOP_SCRATCH);
}

void fbr_loop_hold(struct fbr_loop *l)
{
}

void fbr_loop_release(struct fbr_loop *l)
{
}

/* The socket has room for all pongs. */
int fbr_stream_write(uv_stream_t *stream, const void *data, size_t len,
                     void (*done)(void *, int, size_t), void *arg)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)data, (unsigned)len);

    return uv_try_write(stream, &buf, 1) == (int)len ? 0 : -EPIPE;
}

int fbr_timer_init(struct fbr_timer *t, struct fbr_loop *l, void (*fn)(void *), void *arg)
{
    return -ENOMEM;
}

void fbr_timer_start(struct fbr_timer *t, uint64_t after_ms, uint64_t repeat_ms)
{
}

void fbr_timer_fini(struct fbr_timer *t)
{
}

uint64_t fbr_now_ns(void)
{
    return 1000000;
}

uint64_t fbr_now_ms(void)
{
    return 1;
}

uint64_t fbr_boot_ms(void)
{
    return 1;
}

void fbr_listener_forget(struct fbr_conn *c)
{
}

int fbr_listener_greet_unix(struct fbr_conn *c)
{
    return -EACCES;
}

int fbr_listener_greet_tls(struct fbr_conn *c)
{
    return -EACCES;
}

int fbr_listener_open_tls(struct fbr_conn *c)
{
    return -EACCES;
}

/* ---- The receiver ---- */

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    size_t len = fbr_cur_left(body);
    const uint8_t *bytes = fbr_get(body, len);
    volatile uint8_t last = len ? bytes[len - 1] : 0;

    (void)last;
    require(user == &f && conn == f.conn && !f.closed && type >= FBR_FRAME_USER);
    f.frames++;
    f.bytes += 5 + len;
    require(f.bytes <= f.sent);
    if (f.closes && f.frames == 3) {
        fbr_conn_close(conn);
        f.conn = NULL;
    }
}

static void on_pong(void *user, struct fbr_conn *conn)
{
    require(user == &f && conn == f.conn);
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    require(user == &f && conn == f.conn && !f.closed && why < 0 && text[0]);
    f.closed = true;
    f.conn = NULL;
}

static const struct fbr_conn_ops ops = {
    .on_frame = on_frame, .on_pong = on_pong, .on_close = on_close};

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&f.loop.uv, UV_RUN_NOWAIT);
}

static void hear(int fd, struct fbr_cur *c)
{
    char answers[4096];

    while (f.conn && fbr_cur_left(c)) {
        size_t len = fbr_get_u8(c);
        const void *bytes;

        len = len < fbr_cur_left(c) ? len : fbr_cur_left(c);
        bytes = fbr_get(c, len);
        if (!len || send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
            continue;
        f.sent += len;
        turn();
        while (recv(fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
            continue;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    int fds[2];

    memset(&f, 0, sizeof(f));
    f.closes = fbr_get_u8(&c) & 1;
    require(uv_loop_init(&f.loop.uv) == 0);
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    f.conn = fbr_conn_new(&f.loop, false);
    require(f.conn && uv_pipe_open(&f.conn->h.pipe, fds[0]) == 0);
    fbr_conn_attach(f.conn, &ops, &f);
    fbr_conn_opened(f.conn);
    require(fbr_conn_start_reading(f.conn) == 0);
    hear(fds[1], &c);
    close(fds[1]);
    turn();
    fbr_conn_close(f.conn); /* NULL, unless the end was behind what was not read */
    while (uv_run(&f.loop.uv, UV_RUN_NOWAIT))
        continue;
    require(uv_loop_close(&f.loop.uv) == 0);
    return 0;
}
