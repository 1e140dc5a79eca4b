/* listener.c - the accepting side of control connections: authenticates callers and admits them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>

#include "runtime/base/fds.h"
#include "runtime/net/conn_priv.h"
#include "runtime/base/log.h"
#include "runtime/net/tcp.h"

#define AT_ONCE 64 /* calls accepted in a row before other handles of the loop have their turn */
#define AGAIN_MS 50

struct fbr_listener {
    uv_poll_t poll; /* polls fd: we accept ourselves, because libuv's streams accept without end */
    int fd;
    struct fbr_loop *loop;
    struct fbr_auth_ops auth;
    char url[FBR_URL_MAX];
    const char *path;           /* of its unix socket; NULL: it listens over TCP */
    struct fbr_conn *half_open; /* calls that are not yet authenticated, the oldest first */
    int n_half_open;
    struct fbr_timer again;
    bool paused; /* short of descriptors, memory, or places for half-open calls */
    bool warned; /* warned of the first two shortages; reset when a call is accepted */
};

static void on_call(uv_poll_t *poll, int status, int events);

static void resume(void *arg)
{
    struct fbr_listener *l = arg;

    if (!l->paused)
        return;
    l->paused = false;
    uv_poll_start(&l->poll, UV_READABLE, on_call);
}

/* Stops accepting; callers wait in the kernel's queue meanwhile. */
static void pause_calls(struct fbr_listener *l)
{
    l->paused = true;
    uv_poll_stop(&l->poll);
    fbr_timer_start(&l->again, AGAIN_MS, 0);
}

void fbr_listener_forget(struct fbr_conn *c)
{
    struct fbr_listener *l = c->listener;

    if (!l)
        return;
    c->listener = NULL;
    DL_DELETE(l->half_open, c);
    l->n_half_open--;
    resume(l);
}

static void on_slow(void *arg)
{
    fbr_conn_lost(arg, -ETIMEDOUT, "did not authenticate in time");
}

/* The caller is authenticated: passes the conn to the owner of the listener. */
static int hand_over(struct fbr_conn *c, const struct fbr_caller *who)
{
    struct fbr_listener *l = c->listener;
    int rc;

    fbr_timer_stop(&c->timer);
    fbr_listener_forget(c);
    fbr_conn_opened(c);
    rc = l->auth.admit(l->auth.user, who, c);
    /* Without this frame the caller would think that this process is dead. */
    if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOSPC)
        fbr_conn_refuse(c, rc);
    if (rc < 0)
        fbr_info("listener %s: caller %u.%llu refused: %s", l->url, who->kind,
                 (unsigned long long)who->id, fbr_strerror(rc));
    return rc;
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
    claimed = fbr_get(&cur, FBR_KEY_SIZE);
    rc = magic == FBR_HELLO_MAGIC ? l->auth.secret(l->auth.user, &who, secret) : -EPROTO;
    if (rc == 0 && !fbr_same(claimed, secret, FBR_KEY_SIZE))
        rc = -EACCES;
    fbr_wipe(secret, sizeof(secret));
    fbr_wipe(c->in.data, FBR_HELLO_SIZE);
    if (rc < 0)
        return -EACCES;
    fbr_buf_consume(&c->in, FBR_HELLO_SIZE);
    return hand_over(c, &who);
}

int fbr_listener_greet_tls(struct fbr_conn *c)
{
    struct fbr_caller who;
    int rc = fbr_caller_scan(fbr_tls_identity(c->tls), &who);

    return rc < 0 ? rc : hand_over(c, &who);
}

static int look_up(void *user, const char *identity, uint8_t psk[FBR_KEY_SIZE])
{
    struct fbr_listener *l = user;
    struct fbr_caller who;

    if (fbr_caller_scan(identity, &who) < 0)
        return -EACCES;
    return l->auth.secret(l->auth.user, &who, psk);
}

int fbr_listener_open_tls(struct fbr_conn *c)
{
    return fbr_tls_server(&c->tls, look_up, c->listener, NULL);
}

/* ---- Calls ---- */

static bool same_host(const struct fbr_conn *a, const struct fbr_conn *b)
{
    return memcmp(a->from, b->from, sizeof(a->from)) == 0;
}

/* Finds the call that must make room: the oldest from the host that holds most places. NULL: every
 * caller has proved that it knows its key. */
static struct fbr_conn *find_victim(const struct fbr_listener *l)
{
    struct fbr_conn *c, *other, *found = NULL;
    int most = 0;

    DL_FOREACH(l->half_open, c) {
        int n = 0;

        if (c->tls && fbr_tls_proven(c->tls))
            continue;
        DL_FOREACH(l->half_open, other)
            n += same_host(c, other);
        if (n > most) {
            most = n;
            found = c;
        }
    }
    return found;
}

/* Whether a place is free, or was made free. First reads the bytes that a victim has sent since its
 * last read, because they may prove its key: callers that do not know their key cannot drive out
 * one that does. */
static bool make_room(struct fbr_listener *l, int places)
{
    while (l->n_half_open >= places) {
        struct fbr_conn *c = find_victim(l);

        if (!c)
            return false;
        if (!fbr_conn_read_now(c))
            fbr_conn_lost(c, -EBUSY, "it sends nothing while others wait to connect");
    }
    return true;
}

static int begin_call(struct fbr_conn *c, int fd, const struct sockaddr_storage *from)
{
    int rc = c->tcp ? uv_tcp_open(&c->h.tcp, fd) : uv_pipe_open(&c->h.pipe, fd);

    if (rc < 0) {
        close(fd);
        return rc;
    }
    if (!c->tcp)
        rc = fbr_unix_peer(fd) == geteuid() ? 0 : -EACCES;
    else if (c->listener->auth.own_user)
        rc = fbr_tcp_check_owner(fd, from);
    if (rc < 0 || (rc = fbr_conn_timer(c, on_slow, c->listener->auth.join_ms)) < 0)
        return rc;
    return fbr_conn_start_reading(c);
}

static void take_call(struct fbr_listener *l, int fd, const struct sockaddr_storage *from)
{
    struct fbr_conn *c = fbr_conn_new(l->loop, !l->path);
    int rc;

    if (!c) {
        close(fd);
        return;
    }
    c->listener = l;
    c->held = l->auth.held;
    c->state = CONN_GREETING;
    fbr_tcp_host(from, c->from); /* all callers on a unix socket count as one host */
    DL_APPEND(l->half_open, c);
    l->n_half_open++;
    rc = begin_call(c, fd, from);
    if (rc < 0)
        fbr_conn_lost(c, rc, "accept");
    /* A caller that waited in the queue has probably sent its first bytes already. */
    else
        fbr_conn_read_now(c);
}

/* Accepts one call. Returns whether there may be more. */
static bool accept_one(struct fbr_listener *l)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    int fd;

    if (l->n_half_open >= FBR_LISTENER_HALF_OPEN && !find_victim(l)) {
        pause_calls(l);
        return false;
    }
    fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        l->warned = false;
        if (make_room(l, FBR_LISTENER_HALF_OPEN))
            take_call(l, fd, &from);
        else
            close(fd);
        return true;
    }
    if (errno == EAGAIN)
        return false;
    /* the caller is gone */
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return true;
    if (l->n_half_open && make_room(l, l->n_half_open))
        return true;
    if (!l->warned)
        fbr_warn("listener %s: callers must wait: %s", l->url, fbr_strerror(-errno));
    l->warned = true;
    pause_calls(l);
    return false;
}

static void on_call(uv_poll_t *poll, int status, int events)
{
    struct fbr_listener *l = poll->data;

    for (int i = 0; i < AT_ONCE && accept_one(l); i++)
        continue;
}

/* ---- The listener ---- */

static int start_listening(struct fbr_listener *l)
{
    int rc;

    l->fd = l->path ? fbr_unix_listen(l->path) : fbr_tcp_listen(l->url, l->url, sizeof(l->url));
    if (l->fd < 0)
        return l->fd;
    rc = uv_poll_init(fbr_loop_uv(l->loop), &l->poll, l->fd);
    if (rc < 0)
        return rc;
    l->poll.data = l;
    return uv_poll_start(&l->poll, UV_READABLE, on_call);
}

int fbr_listener_open(struct fbr_listener **out, struct fbr_loop *loop, const char *url,
                      const struct fbr_auth_ops *auth, struct fbr_error *err)
{
    struct fbr_listener *l;
    int rc;

    if (strlen(url) >= sizeof(l->url))
        return fbr_fail(err, -ENAMETOOLONG, "cannot listen on %s: the address is too long", url);
    l = calloc(1, sizeof(*l));
    if (!l)
        return fbr_fail(err, -ENOMEM, "listen: out of memory");
    l->fd = -1;
    l->loop = loop;
    l->auth = *auth;
    snprintf(l->url, sizeof(l->url), "%s", url);
    l->path = fbr_unix_path(l->url);
    if ((rc = fbr_timer_init(&l->again, loop, resume, l)) < 0 || (rc = start_listening(l)) < 0) {
        fbr_listener_close(l);
        return fbr_fail(err, rc, "cannot listen on %s: %s", url, fbr_strerror(rc));
    }
    *out = l;
    return 0;
}

const char *fbr_listener_url(const struct fbr_listener *l)
{
    return l->url;
}

void fbr_listener_close(struct fbr_listener *l)
{
    if (!l)
        return;
    l->paused = false;
    fbr_timer_fini(&l->again);
    while (l->half_open)
        fbr_conn_lost(l->half_open, -ESHUTDOWN, "closing");
    if (l->fd >= 0 && l->path)
        unlink(l->path);
    if (l->poll.data)
        uv_close((uv_handle_t *)&l->poll, fbr_free_data);
    fbr_fds_close(l->fd);
    if (!l->poll.data)
        free(l);
}
