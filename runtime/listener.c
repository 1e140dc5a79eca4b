/* listener.c - the called side of a control connection: who is let in; see conn.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/conn_priv.h"
#include "runtime/log.h"

#define BACKLOG 4096
#define AGAIN_MS 50

struct fbr_listener {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } h;
    struct fbr_loop *loop;
    struct fbr_door door;
    struct fbr_place place;
    char url[FBR_URL_MAX];
    struct fbr_conn *half_open; /* authentication not complete */
    int n_half_open;
    struct fbr_timer again; /* for want of memory */
    bool waiting; /* the kernel has callers for us, and there is no room among the half-open */
};

static void accept_all(struct fbr_listener *l);

void fbr_listener_forget(struct fbr_conn *c)
{
    struct fbr_listener *l = c->listener;

    if (!l)
        return;
    c->listener = NULL;
    DL_DELETE(l->half_open, c);
    l->n_half_open--;
    if (l->waiting)
        accept_all(l);
}

static void on_slow(void *arg)
{
    fbr_conn_lost(arg, -ETIMEDOUT, "did not say who it is in time");
}

/* Authenticated: hands the conn over. */
static int let_in(struct fbr_conn *c, const struct fbr_caller *who)
{
    struct fbr_listener *l = c->listener;
    int rc;

    fbr_timer_stop(&c->timer);
    fbr_listener_forget(c);
    fbr_conn_opened(c);
    rc = l->door.admit(l->door.user, who, c);
    if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOSPC)
        fbr_conn_refuse(c, rc); /* else it would take us for dead */
    if (rc < 0)
        fbr_info("door %s: caller %u.%llu turned away: %s", l->url, who->kind,
                 (unsigned long long)who->id, fbr_strerror(rc));
    return rc;
}

static int same_user(struct fbr_conn *c)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int fd;

    if (uv_fileno(&c->h.handle, &fd) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -EACCES;
    return peer.uid == geteuid() ? 0 : -EACCES;
}

int fbr_listener_greet_unix(struct fbr_conn *c)
{
    struct fbr_listener *l = c->listener;
    struct fbr_caller who;
    uint8_t secret[FBR_KEY_SIZE];
    struct fbr_cur cur;
    uint32_t magic;
    const void *claimed;
    int rc;

    if (c->in.len < FBR_HELLO_SIZE)
        return 0;
    cur = fbr_cur(c->in.data, FBR_HELLO_SIZE);
    magic = fbr_get_u32(&cur);
    who.kind = fbr_get_u8(&cur);
    who.id = fbr_get_u64(&cur);
    who.epoch = fbr_get_u32(&cur);
    claimed = fbr_get(&cur, FBR_KEY_SIZE);
    rc = magic == FBR_HELLO_MAGIC ? l->door.secret(l->door.user, &who, secret) : -EPROTO;
    if (rc == 0 && !fbr_same(claimed, secret, FBR_KEY_SIZE))
        rc = -EACCES;
    fbr_wipe(secret, sizeof(secret));
    fbr_wipe(c->in.data, FBR_HELLO_SIZE);
    if (rc < 0)
        return -EACCES;
    fbr_buf_consume(&c->in, FBR_HELLO_SIZE);
    return let_in(c, &who);
}

int fbr_listener_greet_tls(struct fbr_conn *c)
{
    struct fbr_caller who;
    int rc = fbr_caller_scan(fbr_tls_identity(c->tls), &who);

    return rc < 0 ? rc : let_in(c, &who);
}

static int look_up(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE])
{
    struct fbr_listener *l = user;
    struct fbr_caller who;

    if (fbr_caller_scan(identity, &who) < 0)
        return -EACCES;
    return l->door.secret(l->door.user, &who, psk);
}

static void accept_one(struct fbr_listener *l)
{
    struct fbr_conn *c = fbr_conn_new(l->loop, l->place.tcp);
    int rc;

    if (!c) {
        l->waiting = true;
        fbr_timer_start(&l->again, AGAIN_MS, 0);
        return;
    }
    c->listener = l;
    c->born_ms = fbr_now_ms();
    c->state = CONN_GREETING;
    DL_APPEND(l->half_open, c);
    l->n_half_open++;
    rc = uv_accept(&l->h.stream, &c->h.stream);
    if (rc == 0)
        rc = l->place.tcp ? fbr_tls_server(&c->tls, look_up, l, NULL) : same_user(c);
    if (rc == 0)
        rc = fbr_conn_timer(c, on_slow, FBR_DOOR_MS, 0);
    if (rc == 0)
        rc = fbr_conn_start_reading(c);
    if (rc < 0)
        fbr_conn_lost(c, rc, "accept");
}

static void accept_all(struct fbr_listener *l)
{
    l->waiting = false;
    accept_one(l);
}

static void accept_again(void *arg)
{
    struct fbr_listener *l = arg;

    if (l->waiting && l->n_half_open < FBR_DOOR_HALF_OPEN)
        accept_all(l);
}

/* Others wait: the oldest call has less time now. */
static void hurry(struct fbr_listener *l)
{
    uint64_t age = fbr_now_ms() - l->half_open->born_ms;

    fbr_timer_start(&l->half_open->timer, age < FBR_DOOR_BUSY_MS ? FBR_DOOR_BUSY_MS - age : 0, 0);
}

/* libuv holds one accepted descriptor and stops listening until it is taken, so not to take it is
 * back-pressure. */
static void on_call(uv_stream_t *stream, int status)
{
    struct fbr_listener *l = stream->data;

    if (status < 0) {
        fbr_warn("door %s: %s", l->url, uv_strerror(status));
        return;
    }
    if (l->n_half_open < FBR_DOOR_HALF_OPEN) {
        accept_one(l);
    } else {
        l->waiting = true;
        hurry(l);
    }
}

static int bind_tcp(struct fbr_listener *l)
{
    struct sockaddr_storage a;
    int len = sizeof(a), port = atoi(l->place.port), rc;

    if (uv_ip4_addr(l->place.path, port, (struct sockaddr_in *)&a) != 0)
        if (uv_ip6_addr(l->place.path, port, (struct sockaddr_in6 *)&a) != 0)
            return -EINVAL;
    rc = uv_tcp_bind(&l->h.tcp, (struct sockaddr *)&a, 0);
    if (rc == 0)
        rc = uv_listen(&l->h.stream, BACKLOG, on_call);
    if (rc == 0)
        rc = uv_tcp_getsockname(&l->h.tcp, (struct sockaddr *)&a, &len);
    if (rc < 0)
        return rc;
    if (a.ss_family == AF_INET6)
        snprintf(l->url, sizeof(l->url), "tcp://[%s]:%d", l->place.path,
                 ntohs(((struct sockaddr_in6 *)&a)->sin6_port));
    else
        snprintf(l->url, sizeof(l->url), "tcp://%s:%d", l->place.path,
                 ntohs(((struct sockaddr_in *)&a)->sin_port));
    return 0;
}

static int bind_unix(struct fbr_listener *l)
{
    int rc = uv_pipe_bind(&l->h.pipe, l->place.path);

    if (rc == 0 && chmod(l->place.path, 0600) <
                       0) /* its directory is 0700 already; a umask would be the whole process's */
        rc = -errno;
    return rc < 0 ? rc : uv_listen(&l->h.stream, BACKLOG, on_call);
}

int fbr_listener_open(struct fbr_listener **out, struct fbr_loop *loop, const char *url,
                      const struct fbr_door *door, struct fbr_error *err)
{
    struct fbr_listener *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return fbr_fail(err, -ENOMEM, "listen: out of memory");
    rc = fbr_place_scan(url, &l->place);
    if (rc < 0) {
        free(l);
        return fbr_fail(err, rc, "not an address to listen at: '%s'", url);
    }
    if (fbr_timer_init(&l->again, loop, accept_again, l) < 0) {
        free(l);
        return fbr_fail(err, -ENOMEM, "listen: out of memory");
    }
    l->loop = loop;
    l->door = *door;
    snprintf(l->url, sizeof(l->url), "%s", url);
    if (l->place.tcp)
        uv_tcp_init(fbr_loop_uv(loop), &l->h.tcp);
    else
        uv_pipe_init(fbr_loop_uv(loop), &l->h.pipe, 0);
    l->h.handle.data = l;
    rc = l->place.tcp ? bind_tcp(l) : bind_unix(l);
    if (rc < 0) {
        fbr_listener_close(l);
        return fbr_fail(err, rc, "cannot listen at %s: %s", url, fbr_strerror(rc));
    }
    *out = l;
    return 0;
}

const char *fbr_listener_url(const struct fbr_listener *l)
{
    return l->url;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void fbr_listener_close(struct fbr_listener *l)
{
    if (!l)
        return;
    l->waiting = false;
    fbr_timer_fini(&l->again);
    while (l->half_open)
        fbr_conn_lost(l->half_open, -ESHUTDOWN, "closing");
    if (!l->place.tcp)
        unlink(l->place.path);
    uv_close(&l->h.handle, on_closed);
}
