/* conn.c - framed streams over unix sockets and TLS.
 *
 * A conn is in one of these states; the code makes each transition in one place:
 *
 *     CALLING  we dial                          -> OPEN on connect (unix), GREETING (tcp)
 *     GREETING authentication is not complete   -> OPEN
 *     OPEN     frames flow                      -> CLOSING, GONE
 *     CLOSING  we closed it; queued bytes leave -> GONE
 *     GONE     uv_close was called; freed by its callback
 *
 * A carried conn is OPEN from the start, and has no handle.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/conn.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/net/conn_priv.h"

enum { FRAME_PING = 1, FRAME_PONG = 2, FRAME_REFUSED = 3, FRAME_SILENT = 4 };

#define FRAME_HEAD 5
#define CLOSE_MS 50
#define CLOSE_LOOKS 60
/* How long the kernel tries to deliver bytes that the peer does not acknowledge. */
#define PATIENCE_MIN_MS 5000
#define PATIENCE_FIRST_MS 30000 /* while the silence of the peer has no limit */
/* queued bytes, above which a peer that does not read gets no more pongs */
#define PONGS_MAX (256u << 10)
#define KEPT_FREE FBR_LOOP_SCRATCH /* bytes of an incomplete frame that are not counted */
#define UNREAD_FREE (1u << 20)     /* bytes of answers that may wait for a peer in any case */
/* a peer that sends more at once may still have its pongs queued behind these bytes */
#define IDLE_BYTES 4096
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* Linux 6.15; older headers do not have it */
#endif

struct fbr_conn *fbr_conn_new(struct fbr_loop *loop, bool tcp)
{
    struct fbr_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->loop = loop;
    c->tcp = tcp;
    if (tcp)
        uv_tcp_init(fbr_loop_uv(loop), &c->h.tcp);
    else
        uv_pipe_init(fbr_loop_uv(loop), &c->h.pipe, 0);
    c->h.handle.data = c;
    return c;
}

static void free_conn(struct fbr_conn *c)
{
    fbr_held_set(c->held, &c->kept, 0);
    fbr_held_set(c->held, &c->waiting, 0);
    fbr_tls_free(c->tls);
    fbr_buf_fini(&c->in);
    fbr_buf_fini(&c->early);
    fbr_wipe(c->hello, sizeof(c->hello));
    free(c);
}

static void on_closed(uv_handle_t *handle)
{
    free_conn(handle->data);
}

/* Ends the conn without a callback. */
static void drop(struct fbr_conn *c)
{
    if (c->state == CONN_GONE)
        return;
    if (c->state == CONN_CLOSING)
        fbr_loop_release(c->loop);
    c->state = CONN_GONE;
    fbr_timer_fini(&c->timer);
    fbr_listener_forget(c);
    if (c->by)
        free(c);
    else
        uv_close(&c->h.handle, on_closed);
}

void fbr_conn_lost(struct fbr_conn *c, int why, const char *text)
{
    if (c->state == CONN_GONE)
        return;
    if (c->ops && c->state != CONN_CLOSING)
        c->ops->on_close(c->user, c, why, text);
    drop(c);
}

/* ---- Writing ---- */

static void on_written(void *arg, int status, size_t len)
{
    struct fbr_conn *c = arg;

    if (c->waiting.bytes > fbr_conn_queued(c))
        fbr_held_set(c->held, &c->waiting, fbr_conn_queued(c));
    if (status < 0 && status != UV_ECANCELED)
        fbr_conn_lost(c, status, "the connection broke");
}

/* Breaks the connection because bytes to send are lost, and nothing may follow them. The reading
 * side notices the end later, because callers that send do not expect on_close now. */
static int break_off(struct fbr_conn *c, int why)
{
    int fd;

    if (c->by)
        return break_off(c->by, why);
    if (uv_fileno(&c->h.handle, &fd) == 0)
        shutdown(fd, SHUT_RDWR);
    return why;
}

int fbr_conn_flush_tls(struct fbr_conn *c)
{
    struct fbr_buf out = {0};
    int rc;

    rc = fbr_tls_pending(c->tls, &out);
    if (rc == 0 && out.len)
        rc = fbr_stream_write(&c->h.stream, out.data, out.len, on_written, c);
    fbr_buf_fini(&out);
    return rc;
}

int fbr_conn_write(struct fbr_conn *c, const void *data, size_t len)
{
    int rc;

    if (!c->tls)
        return fbr_stream_write(&c->h.stream, data, len, on_written, c);
    rc = fbr_tls_write(c->tls, data, len, NULL);
    return rc < 0 ? rc : fbr_conn_flush_tls(c);
}

static int send_carried(struct fbr_conn *c, uint8_t type, const void *body, size_t len)
{
    struct fbr_buf out = {0};
    int rc;

    fbr_put_u64(&out, c->id);
    fbr_put_u8(&out, type);
    fbr_put(&out, body, len);
    rc = fbr_conn_send_buf(c->by, c->wrap, &out);
    fbr_buf_fini(&out);
    return rc;
}

int fbr_conn_send(struct fbr_conn *c, uint8_t type, const void *body, size_t len)
{
    struct fbr_buf out = {0};
    int rc;

    if (c->state >= CONN_CLOSING)
        return -EPIPE;
    if (len > FBR_FRAME_MAX)
        return -EMSGSIZE;
    if (c->by)
        return send_carried(c, type, body, len);
    fbr_put_u32(&out, (uint32_t)len);
    fbr_put_u8(&out, type);
    fbr_put(&out, body, len);
    if (out.failed) {
        rc = -ENOMEM;
    } else if (c->state != CONN_OPEN) { /* kept in order until authentication is complete */
        fbr_put(&c->early, out.data, out.len);
        rc = c->early.failed ? -ENOMEM : 0;
    } else {
        rc = fbr_conn_write(c, out.data, out.len);
    }
    fbr_buf_fini(&out);
    return rc < 0 ? break_off(c, rc) : 0;
}

int fbr_conn_send_buf(struct fbr_conn *c, uint8_t type, const struct fbr_buf *body)
{
    return body->failed ? break_off(c, -ENOMEM) : fbr_conn_send(c, type, body->data, body->len);
}

/* Whether the answers that wait for this peer leave no room for more. */
static bool is_deluged(struct fbr_conn *c, size_t len)
{
    size_t queued = fbr_conn_queued(c);

    if (queued <= UNREAD_FREE || !c->held)
        return false;
    if (fbr_held_full(c->held, len))
        return true;
    fbr_held_set(c->held, &c->waiting, queued + len);
    return false;
}

int fbr_conn_answer(struct fbr_conn *c, uint8_t type, const struct fbr_buf *body)
{
    struct fbr_conn *by = c->by ? c->by : c;

    if (c->state == CONN_GONE)
        return -EPIPE;
    if (body->failed || !is_deluged(by, body->len))
        return fbr_conn_send_buf(c, type, body);
    by->fault = "it does not read, and as much waits for it as hold_max allows";
    return break_off(by, -ENOBUFS);
}

size_t fbr_conn_queued(const struct fbr_conn *c)
{
    return uv_stream_get_write_queue_size(c->by ? &c->by->h.stream : &c->h.stream);
}

/* ---- Frames ---- */

void fbr_conn_opened(struct fbr_conn *c)
{
    c->state = CONN_OPEN;
    c->heard_ms = fbr_boot_ms();
    if (c->early.failed || (c->early.len && fbr_conn_write(c, c->early.data, c->early.len) < 0))
        break_off(c, -ENOMEM);
    fbr_buf_fini(&c->early);
}

/* Notifies an authenticated caller why it is not admitted. The listener then closes the conn. */
void fbr_conn_refuse(struct fbr_conn *c, int32_t why)
{
    fbr_conn_send(c, FRAME_REFUSED, &why, sizeof(why));
}

static void on_refused(struct fbr_conn *c, struct fbr_cur *body)
{
    int32_t why = (int32_t)fbr_get_u32(body);
    char text[160];

    if (!fbr_cur_ok(body) || why >= 0 || why < -4095)
        return;
    snprintf(text, sizeof(text), "refused by the other process: %s", fbr_strerror(why));
    fbr_conn_lost(c, why, text);
}

/* Returns the silence after which the peer counts as lost; 0: never. */
static uint64_t silence_ms(const struct fbr_conn *c)
{
    return (uint64_t)c->misses * c->beat_ms;
}

/* Sets how long the kernel tries to deliver bytes to the peer: at least as long as the heartbeats
 * wait. The kernel retries about once per heartbeat, so that a peer whose machine was stopped hears
 * us soon afterwards. A peer that announced that it will be stopped may leave bytes unacknowledged
 * for ever. */
static void set_patience(struct fbr_conn *c)
{
    uint64_t least = c->misses ? PATIENCE_MIN_MS : PATIENCE_FIRST_MS;
    uint64_t ms = silence_ms(c) > least ? silence_ms(c) : least;
    unsigned timeout = c->silent ? 0 : ms < INT_MAX ? (unsigned)ms : INT_MAX;
    unsigned again = c->beat_ms < 1000 ? 1000 : c->beat_ms > 120000 ? 120000 : c->beat_ms;
    int fd = -1;

    if (!c->tcp || uv_fileno(&c->h.handle, &fd) != 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
    if (c->beat_ms)
        setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &again, sizeof(again));
}

static void on_silent(struct fbr_conn *c, struct fbr_cur *body)
{
    bool silent = fbr_get_u8(body) != 0;

    if (!fbr_cur_ok(body))
        return;
    c->silent = silent;
    set_patience(c);
}

static void on_own_frame(struct fbr_conn *c, uint8_t type, struct fbr_cur *body)
{
    uint64_t sent;

    if (type == FRAME_REFUSED) {
        on_refused(c, body);
        return;
    }
    if (type == FRAME_SILENT) {
        on_silent(c, body);
        return;
    }
    sent = fbr_get_u64(body);

    if (!fbr_cur_ok(body))
        return;
    if (type == FRAME_PING && fbr_conn_queued(c) < PONGS_MAX)
        fbr_conn_send(c, FRAME_PONG, body->at - 8, 8);
    if (type != FRAME_PONG)
        return;
    c->asked_ms = 0;
    c->rtt_ns = fbr_now_ns() - sent;
    if (c->ops && c->ops->on_pong)
        c->ops->on_pong(c->user, c);
}

/* Counts the kept bytes of an incomplete frame, within the limit for all peers. */
static int count_kept(struct fbr_conn *c)
{
    uint64_t kept = c->in.len > KEPT_FREE ? c->in.len : 0;

    if (kept > c->kept.bytes && fbr_held_full(c->held, kept - c->kept.bytes)) {
        c->fault = "a long frame, and this process holds as much for others as hold_max allows";
        return -ENOBUFS;
    }
    fbr_held_set(c->held, &c->kept, kept);
    return 0;
}

static int take_frames(struct fbr_conn *c)
{
    size_t at = 0;

    while (c->state == CONN_OPEN && c->in.len - at >= FRAME_HEAD) {
        struct fbr_cur head = fbr_cur(c->in.data + at, FRAME_HEAD), body;
        uint32_t len = fbr_get_u32(&head);
        uint8_t type = fbr_get_u8(&head);

        if (len > FBR_FRAME_MAX)
            return -EPROTO;
        if (c->in.len - at < FRAME_HEAD + (size_t)len)
            break;
        body = fbr_cur(c->in.data + at + FRAME_HEAD, len);
        at += FRAME_HEAD + (size_t)len;
        if (type < FBR_FRAME_USER)
            on_own_frame(c, type, &body);
        else if (c->ops->on_frame)
            c->ops->on_frame(c->user, c, type, &body);
    }
    fbr_buf_consume(&c->in, at);
    if (c->in.len == 0 && c->in.cap > FBR_LOOP_SCRATCH)
        fbr_buf_fini(&c->in);
    return count_kept(c);
}

static int take_plain(struct fbr_conn *c, const void *data, size_t len)
{
    fbr_put(&c->in, data, len);
    if (c->in.failed)
        return -ENOMEM;
    if (c->state == CONN_GREETING) {
        int rc = fbr_listener_greet_unix(c);

        if (rc < 0)
            return rc;
    }
    return c->state == CONN_OPEN ? take_frames(c) : 0;
}

static int take_cipher(struct fbr_conn *c, const void *data, size_t len, struct fbr_error *err)
{
    int rc = c->tls ? 0 : fbr_listener_open_tls(c); /* silent callers get no TLS object */

    if (rc < 0)
        return fbr_fail(err, rc, "no TLS: %s", fbr_strerror(rc));
    rc = fbr_tls_feed(c->tls, data, len, err);
    fbr_conn_flush_tls(c);
    if (rc < 0)
        return rc;
    if (c->state == CONN_GREETING && fbr_tls_ready(c->tls)) {
        rc = c->listener ? fbr_listener_greet_tls(c) : (fbr_conn_opened(c), 0);
        if (rc < 0)
            return fbr_fail(err, rc, "not admitted");
    }
    if (c->state != CONN_OPEN)
        return 0;
    rc = fbr_tls_read(c->tls, &c->in, err);
    return rc < 0 ? rc : take_frames(c);
}

/* Handles n bytes that arrived, or an error. */
static void take(struct fbr_conn *c, const void *data, ssize_t n)
{
    struct fbr_error err = {0, ""};
    int rc;

    if (n < 0) {
        fbr_conn_lost(c,
                      c->fault      ? -ENOBUFS
                      : n == UV_EOF ? -EPIPE
                                    : (int)n,
                      c->fault      ? c->fault
                      : n == UV_EOF ? "the peer closed the connection"
                                    : fbr_strerror((int)n));
        return;
    }
    c->heard_ms = fbr_boot_ms();
    if (c->asked_ms && n >= IDLE_BYTES)
        c->asked_ms = c->heard_ms;
    rc = c->tcp ? take_cipher(c, data, (size_t)n, &err) : take_plain(c, data, (size_t)n);
    if (rc < 0)
        fbr_conn_lost(c, rc, c->fault ? c->fault : err.code ? err.text : fbr_strerror(rc));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fbr_conn *c = stream->data;

    if (n < 0 || (n > 0 && c->state < CONN_CLOSING))
        take(c, buf->base, n);
}

bool fbr_conn_read_now(struct fbr_conn *c)
{
    void *data = fbr_loop_scratch(c->loop);
    ssize_t n;
    int fd = -1;

    uv_fileno(&c->h.handle, &fd);
    n = recv(fd, data, FBR_LOOP_SCRATCH, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    take(c, data, n < 0 ? -errno : n == 0 ? UV_EOF : n);
    return true;
}

int fbr_conn_start_reading(struct fbr_conn *c)
{
    if (c->tcp) {
        uv_tcp_nodelay(&c->h.tcp, 1);
        uv_tcp_keepalive(&c->h.tcp, 1, 10);
        set_patience(c);
    }
    return uv_read_start(&c->h.stream, fbr_loop_alloc, on_read);
}

/* ---- Heartbeats, end ---- */

/* Returns the bytes that the peer's host does not hold yet. The kernel drops those that it holds
 * for TCP itself if the socket is closed before it has read all of the peer's bytes, or if more
 * come from the peer later. */
static size_t unsent(const struct fbr_conn *c)
{
    int waits = 0, fd;

    if (c->tcp && uv_fileno(&c->h.handle, &fd) == 0)
        ioctl(fd, SIOCOUTQ, &waits);
    return fbr_conn_queued(c) + (size_t)waits;
}

/* While closing: waits as long as the peer takes bytes. One check is not enough: on a busy host
 * this process may not have sent anything since the last check. */
static void on_linger(void *arg)
{
    struct fbr_conn *c = arg;
    size_t left = unsent(c);

    c->stuck = left < c->left_over ? 0 : c->stuck + 1;
    if (left && c->stuck < CLOSE_LOOKS)
        fbr_timer_start(&c->timer, CLOSE_MS, 0);
    else
        drop(c);
    c->left_over = left;
}

/* Records how long this process was stopped: the time by which the timer is late. Bytes that
 * arrived meanwhile are not read yet. The peer gets the same time in addition, because its machine
 * may have slept with ours, or because its kernel retries at growing intervals. */
static void note_stall(struct fbr_conn *c, uint64_t now)
{
    uint64_t late = now > c->due_ms ? now - c->due_ms : 0;

    c->due_ms = now;
    if (c->asked_ms)
        c->asked_ms = c->asked_ms + late < now ? c->asked_ms + late : now;
    if (late < silence_ms(c) || !c->misses) {
        c->heard_ms = c->heard_ms + late < now ? c->heard_ms + late : now;
        return;
    }
    c->heard_ms = now;
    c->stall_ms = late;
    c->stalled_at = now;
}

uint64_t fbr_conn_stall_ms(struct fbr_conn *c)
{
    uint64_t now = fbr_boot_ms();

    if (c->by)
        return fbr_conn_stall_ms(c->by);
    if (!c->misses)
        return 0;
    note_stall(c, now);
    return c->stall_ms && now - c->stalled_at < silence_ms(c) ? c->stall_ms : 0;
}

uint64_t fbr_conn_silence_ms(const struct fbr_conn *c)
{
    return fbr_boot_ms() - c->heard_ms;
}

static void ping(struct fbr_conn *c, uint64_t now)
{
    uint64_t sent = fbr_now_ns();

    if (!c->asked_ms)
        c->asked_ms = now;
    fbr_conn_send(c, FRAME_PING, &sent, sizeof(sent));
}

/* Sets the timer for the next ping, or for the time at which the silence of the peer reaches the
 * limit. */
static void set_beat(struct fbr_conn *c, uint64_t now)
{
    uint64_t limit = c->heard_ms + silence_ms(c);

    c->due_ms = c->beat_at + c->beat_ms;
    if (c->misses && limit < c->due_ms)
        c->due_ms = limit;
    fbr_timer_start(&c->timer, c->due_ms > now ? c->due_ms - now : 0, 0);
}

/* Whether the peer sends but does not hear us: only the path from us to the peer is cut. */
static bool is_deaf(const struct fbr_conn *c, uint64_t now)
{
    return c->asked_ms && now - c->asked_ms >= silence_ms(c) && fbr_conn_queued(c) == 0;
}

static void abandon(struct fbr_conn *c, const char *what, uint64_t ms)
{
    char text[96];

    snprintf(text, sizeof(text), "%s for %.1f s", what, (double)ms / 1e3);
    fbr_conn_lost(c, -ETIMEDOUT, text);
}

static void on_beat(void *arg)
{
    struct fbr_conn *c = arg;
    uint64_t now = fbr_boot_ms();

    note_stall(c, now);
    if (c->silent) {
        c->heard_ms = now;
        c->asked_ms = 0;
    }
    if (c->asked_ms && fbr_conn_queued(c)) /* the ping may be behind a long frame */
        c->asked_ms = now;
    if (c->misses && now - c->heard_ms >= silence_ms(c)) {
        abandon(c, "no heartbeat", now - c->heard_ms);
        return;
    }
    if (c->misses && is_deaf(c, now)) {
        abandon(c, "no answer to a heartbeat", now - c->asked_ms);
        return;
    }
    if (now >= c->beat_at + c->beat_ms) {
        c->beat_at = now;
        if (!c->silent)
            ping(c, now);
    }
    set_beat(c, now);
}

int fbr_conn_timer(struct fbr_conn *c, void (*fn)(void *arg), uint64_t after_ms)
{
    if (!c->timer.uv && fbr_timer_init(&c->timer, c->loop, fn, c) < 0)
        return -ENOMEM;
    c->timer.fn = fn;
    fbr_timer_start(&c->timer, after_ms, 0);
    return 0;
}

void fbr_conn_heartbeat(struct fbr_conn *c, unsigned interval_ms, unsigned misses)
{
    if (c->by)
        return;
    c->beat_ms = interval_ms;
    c->misses = misses;
    c->heard_ms = c->beat_at = fbr_boot_ms();
    c->asked_ms = 0;
    if (c->state != CONN_CALLING)
        set_patience(c);
    if (fbr_conn_timer(c, on_beat, interval_ms) == 0)
        set_beat(c, c->beat_at);
}

void fbr_conn_silent(struct fbr_conn *c, bool silent)
{
    uint8_t body = silent;

    if (!c->by)
        fbr_conn_send(c, FRAME_SILENT, &body, 1);
}

uint64_t fbr_conn_rtt_ns(const struct fbr_conn *c)
{
    return c->by ? c->by->rtt_ns : c->rtt_ns;
}

static void on_shut(uv_shutdown_t *req, int status)
{
    struct fbr_conn *c = req->data;

    if (status < 0 || c->state == CONN_GONE || unsent(c) == 0)
        drop(c);
}

void fbr_conn_close(struct fbr_conn *c)
{
    if (!c || c->state >= CONN_CLOSING)
        return;
    if (c->by)
        send_carried(c, 0, NULL, 0);
    if (c->by || c->state != CONN_OPEN || unsent(c) == 0) {
        drop(c);
        return;
    }
    c->shut.data = c;
    c->state = CONN_CLOSING;
    c->left_over = unsent(c);
    fbr_loop_hold(c->loop);
    if (fbr_conn_timer(c, on_linger, CLOSE_MS) < 0 ||
        uv_shutdown(&c->shut, &c->h.stream, on_shut) < 0)
        drop(c);
}

int fbr_conn_open(struct fbr_conn **out, struct fbr_loop *loop, int fd,
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err)
{
    struct fbr_conn *c = fbr_conn_new(loop, false);
    int rc = c ? uv_pipe_open(&c->h.pipe, fd) : -ENOMEM;

    if (rc < 0)
        close(fd);
    else
        rc = fbr_conn_start_reading(c);
    if (rc < 0) {
        fbr_conn_close(c);
        return fbr_fail(err, rc, "cannot open a control channel: %s", fbr_strerror(rc));
    }
    fbr_conn_opened(c);
    fbr_conn_attach(c, ops, user);
    *out = c;
    return 0;
}

struct fbr_conn *fbr_conn_carried(struct fbr_conn *by, uint8_t wrap, uint64_t id)
{
    struct fbr_conn *c = calloc(1, sizeof(*c));

    if (c) {
        c->loop = by->loop;
        c->by = by;
        c->wrap = wrap;
        c->id = id;
        c->state = CONN_OPEN;
    }
    return c;
}

void fbr_conn_came(struct fbr_conn *c, uint8_t type, struct fbr_cur *body)
{
    if (type >= FBR_FRAME_USER)
        c->ops->on_frame(c->user, c, type, body);
}

void fbr_conn_attach(struct fbr_conn *c, const struct fbr_conn_ops *ops, void *user)
{
    c->ops = ops;
    c->user = user;
}

bool fbr_conn_is_local(const struct fbr_conn *c)
{
    return c->by ? fbr_conn_is_local(c->by) : !c->tcp;
}

int fbr_conn_export(struct fbr_conn *c, const char *label, uint64_t id, uint8_t key[FBR_KEY_SIZE])
{
    return c->tls ? fbr_tls_export(c->tls, label, &id, sizeof(id), key, FBR_KEY_SIZE) : -ENOTSUP;
}
