/* data_client.c - the client of a data link.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/data_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fds.h"
#include "runtime/net/loop.h"
#include "runtime/net/sock.h"
#include "runtime/net/pipe_frames.h"

/* time until we call again if the first message is not answered; doubles each time */
#define ANSWER_MS 250
#define ANSWER_MAX_MS 8000
/* times the patience of the heartbeats: the server may have been stopped for a while */
#define PATIENCE 4

struct fbr_data_client {
    struct fbr_sock *sock;
    struct fbr_pipe_frames_in frames; /* receiving thread only */
    /* Socket to our job's host process (relay.h). -1: `sock` and all members below are in use. */
    int fd;
    pthread_mutex_t lock; /* guards everything except the receiving side */
    struct fbr_mux_out out;
    void *unsent; /* a numbered message that had no room, */
    size_t unsent_len;
    uint32_t held; /* number of messages down that we hold */
    bool broken, never_wait;
    bool beats, said; /* `said`: something was sent since the last busy beat */
    int beat_ms;
    bool owes;            /* the last message is not acknowledged yet */
    struct fbr_mux_in in; /* receiving thread only, as all below */
    struct fbr_spare spare;
    fbr_record_fn on_record;
    void *user;
};

/* Sends all queued records, or a message without records if there are none. A message that cannot
 * leave is the first one next time. Under the lock. */
static int send_out(struct fbr_data_client *u, int timeout_ms)
{
    int rc;

    do {
        if (!u->unsent) {
            rc = fbr_mux_take(&u->out, u->held, &u->unsent, &u->unsent_len);
            u->owes = false;
            if (rc < 0)
                return rc;
        }
        rc = fbr_sock_send(u->sock, u->unsent, u->unsent_len, timeout_ms);
        if (rc < 0)
            return rc;
        u->unsent = NULL;
        u->said = true;
    } while (!fbr_mux_empty(&u->out) || u->owes);
    return 0;
}

static int push(struct fbr_data_client *u, int timeout_ms)
{
    int rc = send_out(u, timeout_ms);

    if (rc == -EAGAIN && u->never_wait)
        return 1;
    /* a numbered message did not leave */
    if (rc < 0)
        u->broken = true;
    return rc;
}

/* Opens a new connection, on which the first message is sent again with the same number. */
static int begin_again(struct fbr_data_client *u, const char *url, struct fbr_error *err)
{
    fbr_sock_close(u->sock);
    fbr_sock_free(u->unsent);
    u->sock = NULL;
    u->unsent = NULL;
    u->out.seq = 0;
    u->broken = false;
    return fbr_sock_connect(&u->sock, url, 0, err);
}

/* Sends the first message. A TCP server answers it. When many clients call, the server may hang up
 * on one whose first message is late, and nanomsg does not always notice, so we call again after a
 * while. */
static int greet(struct fbr_data_client *u, const char *url, int timeout_ms, struct fbr_error *err)
{
    uint64_t deadline = fbr_now_ms() + (uint64_t)timeout_ms;
    int rc = fbr_sock_connect(&u->sock, url, timeout_ms, err), wait_ms = ANSWER_MS, came = 0;

    while (rc == 0 && !came) {
        uint64_t now = fbr_now_ms();
        int left = now < deadline ? (int)(deadline - now) : 0;
        struct pollfd p = {.events = POLLIN};

        pthread_mutex_lock(&u->lock);
        rc = push(u, left);
        pthread_mutex_unlock(&u->lock);
        if (rc < 0 || strncmp(url, "tcp://", 6) != 0)
            return rc;
        p.fd = fbr_sock_fd(u->sock);
        came = poll(&p, 1, left < wait_ms ? left : wait_ms) > 0;
        if (!came)
            rc = fbr_now_ms() < deadline ? begin_again(u, url, err) : -EAGAIN;
        wait_ms = wait_ms < ANSWER_MAX_MS ? 2 * wait_ms : ANSWER_MAX_MS;
    }
    return rc;
}

int fbr_data_client_open(struct fbr_data_client **out, const char *url, uint64_t link,
                         const struct fbr_keys *keys, size_t limit, int timeout_ms,
                         struct fbr_error *err)
{
    struct fbr_data_client *u = calloc(1, sizeof(*u));
    enum fbr_aead_alg alg = keys ? keys->alg : 0;
    int rc;

    if (!u)
        return fbr_fail(err, -ENOMEM, "data link: out of memory");
    u->fd = -1;
    pthread_mutex_init(&u->lock, NULL);
    if ((rc = fbr_mux_out_init(&u->out, link, keys ? keys->up : NULL, alg)) < 0 ||
        (rc = fbr_mux_in_init(&u->in, link, keys ? keys->down : NULL, alg, limit)) < 0) {
        fbr_fail(err, rc, "data link: cannot encrypt: %s", fbr_strerror(rc));
        goto fail;
    }
    u->in.spare = &u->spare;
    u->in.streams = UINT64_MAX;
    rc = greet(u, url, timeout_ms, err);
    if (rc == -EAGAIN)
        rc = fbr_fail(err, -ETIMEDOUT, "data link: no answer from %s for %.1f s", url,
                      timeout_ms / 1e3);
    else if (rc < 0 && u->sock)
        fbr_fail(err, rc, "data link: cannot reach %s: %s", url, fbr_strerror(rc));
    if (rc < 0)
        goto fail;
    *out = u;
    return 0;
fail:
    fbr_data_client_close(u);
    return rc;
}

/* ---- Links through the job's host process ---- */

int fbr_data_client_open_local(struct fbr_data_client **out, int fd, size_t limit,
                               struct fbr_error *err)
{
    struct fbr_data_client *u = calloc(1, sizeof(*u));

    if (!u)
        return fbr_fail(err, -ENOMEM, "data link: out of memory");
    pthread_mutex_init(&u->lock, NULL);
    u->fd = fd;
    u->frames.limit = limit;
    *out = u;
    return 0;
}

bool fbr_data_client_is_local(const struct fbr_data_client *u)
{
    return u->fd >= 0;
}

static int send_local(struct fbr_data_client *u, const struct iovec *iov, int n)
{
    struct fbr_pipe_frames_frame f;
    bool sent = false;

    fbr_pipe_frames_frame(&f, iov, n);
    pthread_mutex_lock(&u->lock);
    while (!sent && !u->broken) {
        struct msghdr m = {.msg_iov = f.iov, .msg_iovlen = (size_t)f.n};
        ssize_t done = sendmsg(u->fd, &m, MSG_NOSIGNAL);

        if (done >= 0)
            sent = fbr_pipe_frames_sent(&f, (size_t)done);
        else if (errno != EINTR)
            u->broken = true;
    }
    pthread_mutex_unlock(&u->lock);
    return sent ? 0 : -EPIPE;
}

static int recv_local(struct fbr_data_client *u, fbr_record_fn fn, void *user)
{
    size_t room;
    void *to = fbr_pipe_frames_room(&u->frames, &room);
    ssize_t n = to ? recv(u->fd, to, room, MSG_DONTWAIT) : -1;
    int rc;

    if (!to)
        return -ENOMEM;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    rc = fbr_pipe_frames_took(&u->frames, (size_t)n, fn, user);
    return rc < 0 ? rc : (size_t)n == room; /* fewer bytes: the socket is empty now */
}

/* ---- All links ---- */

void fbr_data_client_close(struct fbr_data_client *u)
{
    if (!u)
        return;
    fbr_fds_close(u->fd);
    fbr_pipe_frames_in_fini(&u->frames);
    fbr_sock_close(u->sock);
    fbr_sock_free(u->unsent);
    fbr_mux_out_fini(&u->out);
    fbr_mux_in_fini(&u->in);
    free(u->spare.data);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

int fbr_data_client_send(struct fbr_data_client *u, const struct iovec *iov, int n)
{
    int rc;

    if (u->fd >= 0)
        return send_local(u, iov, n);
    pthread_mutex_lock(&u->lock);
    rc = u->broken ? -EPIPE : fbr_mux_add(&u->out, iov, n);
    if (rc == 0)
        rc = push(u, -1);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

void fbr_data_client_no_streams(struct fbr_data_client *u)
{
    u->in.streams = 0;
}

static void on_taken(void *user, uint32_t ack, bool records)
{
    struct fbr_data_client *u = user;

    pthread_mutex_lock(&u->lock);
    u->held++;
    u->owes = true;
    pthread_mutex_unlock(&u->lock);
}

static void on_record(void *user, const void *record, size_t len)
{
    struct fbr_data_client *u = user;

    u->on_record(u->user, record, len);
}

static int on_message(void *user, void *msg, size_t len)
{
    struct fbr_data_client *u = user;

    return fbr_mux_open(&u->in, msg, len, on_taken, on_record, u);
}

int fbr_data_client_recv(struct fbr_data_client *u, fbr_record_fn fn, void *user)
{
    int rc;

    if (u->fd >= 0)
        return recv_local(u, fn, user);
    u->on_record = fn;
    u->user = user;
    rc = u->never_wait ? 0 : fbr_data_client_ack(u);
    return rc < 0 ? rc : fbr_sock_recv(u->sock, on_message, u);
}

int fbr_data_client_ack(struct fbr_data_client *u)
{
    int rc;

    pthread_mutex_lock(&u->lock);
    rc = u->broken ? -EPIPE : u->owes ? push(u, u->never_wait ? 0 : -1) : 0;
    pthread_mutex_unlock(&u->lock);
    return rc;
}

void fbr_data_client_heartbeat(struct fbr_data_client *u, unsigned server_ms, int beat_ms,
                               int misses)
{
    u->beats = server_ms > 0;
    u->beat_ms = u->beats && server_ms < (unsigned)beat_ms ? (int)server_ms : beat_ms;
    if (u->sock)
        fbr_sock_patience(u->sock, PATIENCE * (uint64_t)beat_ms * (unsigned)misses);
}

int fbr_data_client_beat_ms(const struct fbr_data_client *u)
{
    return u->beat_ms;
}

int fbr_data_client_beat(struct fbr_data_client *u, bool busy)
{
    static const struct iovec nothing = {NULL, 0};
    bool said;
    int rc = 0;

    /* The lock is held: its holder is sending. */
    if (!u->beats || (busy && pthread_mutex_trylock(&u->lock) != 0))
        return 0;
    if (!busy)
        pthread_mutex_lock(&u->lock);
    said = busy && u->said;
    if (u->broken)
        rc = -EPIPE;
    else if (!said && busy && !u->unsent)
        rc = fbr_mux_add(&u->out, &nothing, 1);
    if (rc == 0 && !said)
        rc = send_out(u, 0);
    if (busy)
        u->said = false;
    pthread_mutex_unlock(&u->lock);
    return rc == -EAGAIN ? 0 : rc;
}

bool fbr_data_client_lost(const struct fbr_data_client *u)
{
    return u->fd < 0 && fbr_sock_lost(u->sock);
}

int fbr_data_client_fd(const struct fbr_data_client *u)
{
    return u->fd >= 0 ? u->fd : fbr_sock_fd(u->sock);
}

void fbr_data_client_never_wait(struct fbr_data_client *u)
{
    pthread_mutex_lock(&u->lock);
    u->never_wait = true;
    pthread_mutex_unlock(&u->lock);
}

int fbr_data_client_post(struct fbr_data_client *u, const struct iovec *iov, int n, bool more)
{
    int rc;

    pthread_mutex_lock(&u->lock);
    rc = u->broken ? -EPIPE : fbr_mux_add(&u->out, iov, n);
    /* The record is missing. */
    if (rc < 0)
        u->broken = true;
    else if (!more)
        rc = push(u, 0);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

int fbr_data_client_flush(struct fbr_data_client *u)
{
    int rc = 0;

    pthread_mutex_lock(&u->lock);
    if (u->broken)
        rc = -EPIPE;
    else if (u->owes || u->unsent || !fbr_mux_empty(&u->out))
        rc = push(u, 0);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

int fbr_data_client_post_to(struct fbr_data_client *u, uint64_t stream, const struct iovec *iov,
                            int n)
{
    int rc;

    pthread_mutex_lock(&u->lock);
    rc = u->broken ? -EPIPE : fbr_mux_add_to(&u->out, stream, iov, n);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

bool fbr_data_client_crowded(struct fbr_data_client *u, uint64_t stream, size_t most)
{
    bool crowded;

    pthread_mutex_lock(&u->lock);
    crowded = fbr_mux_crowded(&u->out, stream, most);
    pthread_mutex_unlock(&u->lock);
    return crowded;
}

uint64_t fbr_data_client_stream(const struct fbr_data_client *u)
{
    return u->in.stream;
}

bool fbr_data_client_ack_due(struct fbr_data_client *u)
{
    bool owes;

    pthread_mutex_lock(&u->lock);
    owes = u->owes;
    pthread_mutex_unlock(&u->lock);
    return owes;
}

size_t fbr_data_client_queued(struct fbr_data_client *u)
{
    size_t n;

    pthread_mutex_lock(&u->lock);
    n = u->out.queued;
    pthread_mutex_unlock(&u->lock);
    return n;
}

int fbr_data_client_room_fd(const struct fbr_data_client *u)
{
    return fbr_sock_room_fd(u->sock);
}
