/* dial.c - the calling side of control connections; also reads and writes caller names and urls.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/net/conn_priv.h"

static void print_caller(const struct fbr_caller *who, char out[FBR_IDENTITY_MAX])
{
    snprintf(out, FBR_IDENTITY_MAX, "%u.%" PRIu64 ".%" PRIu32, who->kind, who->id, who->epoch);
}

int fbr_caller_scan(const char *identity, struct fbr_caller *who)
{
    unsigned kind;
    char rest;

    if (sscanf(identity, "%3u.%20" SCNu64 ".%10" SCNu32 "%c", &kind, &who->id, &who->epoch,
               &rest) != 3 ||
        kind > UINT8_MAX)
        return -EINVAL;
    who->kind = (uint8_t)kind;
    return 0;
}

int fbr_place_scan(const char *url, struct fbr_net_place *p)
{
    const char *host, *colon;
    size_t n;

    memset(p, 0, sizeof(*p));
    if (strlen(url) >= sizeof(p->path))
        return -ENAMETOOLONG;
    if (strncmp(url, "unix:", 5) == 0) {
        snprintf(p->path, sizeof(p->path), "%s", url + 5);
        return p->path[0] == '/' ? 0 : -EINVAL;
    }
    if (strncmp(url, "tcp://", 6) != 0)
        return -EINVAL;
    p->tcp = true;
    host = url + 6;
    colon = strrchr(host, ':');
    if (!colon || colon == host || strlen(colon + 1) >= sizeof(p->port))
        return -EINVAL;
    n = (size_t)(colon - host);
    if (host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    }
    memcpy(p->path, host, n);
    snprintf(p->port, sizeof(p->port), "%s", colon + 1);
    return 0;
}

/* Sends the first bytes on a new connection. */
static int greet(struct fbr_conn *c)
{
    int rc = fbr_conn_start_reading(c);

    if (rc < 0)
        return rc;
    if (c->tls) {
        c->state = CONN_GREETING;
        rc = fbr_tls_step(c->tls, NULL);
        return rc < 0 ? rc : fbr_conn_flush_tls(c);
    }
    rc = fbr_conn_write(c, c->hello, sizeof(c->hello));
    if (rc < 0)
        return rc;
    fbr_conn_opened(c);
    return 0;
}

static void on_connect(uv_connect_t *req, int status)
{
    struct fbr_conn *c = req->data;
    int rc;

    if (c->state == CONN_GONE)
        return;
    rc = status < 0 ? status : greet(c);
    fbr_wipe(c->hello, sizeof(c->hello));
    if (rc < 0)
        fbr_conn_lost(c, rc, fbr_strerror(rc));
}

/* Prefers IPv4: a listener of ours has one address, which is IPv4 where there is a choice. */
static const struct sockaddr *pick(const struct addrinfo *found)
{
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        if (a->ai_family == AF_INET)
            return a->ai_addr;
    return found->ai_addr;
}

static void on_looked_up(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct fbr_conn *c = req->data;
    bool gone = c->state == CONN_GONE;
    int rc;

    fbr_conn_looked_up(c);
    if (gone)
        goto done;
    rc = status < 0 ? status : uv_tcp_connect(&c->dial, &c->h.tcp, pick(found), on_connect);
    if (rc < 0)
        fbr_conn_lost(c, rc, uv_strerror(rc));
done:
    uv_freeaddrinfo(found);
}

static int call_tcp(struct fbr_conn *c, const struct fbr_net_place *p, const struct fbr_caller *me,
                    const uint8_t secret[FBR_KEY_SIZE], struct fbr_error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char identity[FBR_IDENTITY_MAX];
    struct sockaddr_storage a;
    int port = atoi(p->port), rc;

    print_caller(me, identity);
    rc = fbr_tls_client(&c->tls, identity, secret, err);
    if (rc < 0)
        return rc;
    c->look_up.data = c;
    if (uv_ip4_addr(p->path, port, (struct sockaddr_in *)&a) == 0 ||
        uv_ip6_addr(p->path, port, (struct sockaddr_in6 *)&a) == 0)
        return uv_tcp_connect(&c->dial, &c->h.tcp, (struct sockaddr *)&a, on_connect);
    rc = uv_getaddrinfo(fbr_loop_uv(c->loop), &c->look_up, on_looked_up, p->path, p->port, &hints);
    c->looking_up = rc == 0;
    return rc;
}

static void put_hello(struct fbr_conn *c, const struct fbr_caller *me,
                      const uint8_t secret[FBR_KEY_SIZE])
{
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_put_u32(&b, FBR_HELLO_MAGIC);
    fbr_put_u8(&b, me->kind);
    fbr_put_u64(&b, me->id);
    fbr_put_u32(&b, me->epoch);
    fbr_put(&b, secret, FBR_KEY_SIZE);
    if (!b.failed) {
        memcpy(c->hello, b.data, FBR_HELLO_SIZE);
        fbr_wipe(b.data, b.len);
    }
    fbr_buf_fini(&b);
}

int fbr_conn_dial(struct fbr_conn **out, struct fbr_loop *loop, const char *url,
                  const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err)
{
    struct fbr_net_place place;
    struct fbr_conn *c;
    int rc = fbr_place_scan(url, &place);

    if (rc < 0)
        return fbr_fail(err, rc, "not an address to connect to: '%s'", url);
    c = fbr_conn_new(loop, place.tcp);
    if (!c)
        return fbr_fail(err, -ENOMEM, "connect: out of memory");
    c->dial.data = c;
    if (place.tcp) {
        rc = call_tcp(c, &place, me, secret, err);
    } else {
        put_hello(c, me, secret);
        uv_pipe_connect(&c->dial, &c->h.pipe, place.path, on_connect);
    }
    if (rc < 0) {
        fbr_conn_close(c);
        return fbr_fail(err, rc, "cannot connect to %s: %s", url, fbr_strerror(rc));
    }
    fbr_conn_attach(c, ops, user);
    *out = c;
    return 0;
}
