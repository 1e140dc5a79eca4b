/* dial.c - the calling side of control connections; also reads and writes caller names.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/net/conn_priv.h"
#include "runtime/net/tcp.h"

static void print_caller(const struct fbr_caller *who, char out[FBR_IDENTITY_MAX])
{
    snprintf(out, FBR_IDENTITY_MAX, "%u.%" PRIu64, who->kind, who->id);
}

int fbr_caller_scan(const char *identity, struct fbr_caller *who)
{
    unsigned kind;
    char rest;

    if (sscanf(identity, "%3u.%20" SCNu64 "%c", &kind, &who->id, &rest) != 2 || kind > UINT8_MAX)
        return -EINVAL;
    who->kind = (uint8_t)kind;
    return 0;
}

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

static int call_tcp(struct fbr_conn *c, const struct sockaddr_storage *to,
                    const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                    struct fbr_error *err)
{
    char identity[FBR_IDENTITY_MAX];
    int rc;

    print_caller(me, identity);
    if ((rc = fbr_tls_client(&c->tls, identity, secret, err)) < 0)
        return rc;
    rc = uv_tcp_connect(&c->dial, &c->h.tcp, (const struct sockaddr *)to, on_connect);
    return rc < 0 ? fbr_fail(err, rc, "%s", fbr_strerror(rc)) : 0;
}

static void put_hello(struct fbr_conn *c, const struct fbr_caller *me,
                      const uint8_t secret[FBR_KEY_SIZE])
{
    struct fbr_buf b = {.data = c->hello, .cap = sizeof(c->hello)}; /* all of it fits */

    fbr_put_u32(&b, FBR_HELLO_MAGIC);
    fbr_put_u8(&b, me->kind);
    fbr_put_u64(&b, me->id);
    fbr_put(&b, secret, FBR_KEY_SIZE);
}

int fbr_conn_dial(struct fbr_conn **out, struct fbr_loop *loop, const char *url,
                  const struct fbr_caller *me, const uint8_t secret[FBR_KEY_SIZE],
                  const struct fbr_conn_ops *ops, void *user, struct fbr_error *err)
{
    const char *path = fbr_unix_path(url);
    struct sockaddr_storage to;
    socklen_t len;
    struct fbr_conn *c;
    int rc = path ? 0 : fbr_tcp_address(url, &to, &len);

    if (rc < 0)
        return fbr_fail(err, rc, "not an address to connect to: '%s'", url);
    c = fbr_conn_new(loop, !path);
    if (!c)
        return fbr_fail(err, -ENOMEM, "connect: out of memory");
    c->dial.data = c;
    if (path) {
        put_hello(c, me, secret);
        uv_pipe_connect(&c->dial, &c->h.pipe, path, on_connect);
    } else {
        rc = call_tcp(c, &to, me, secret, err);
    }
    if (rc < 0) {
        fbr_conn_close(c);
        fbr_wrap(err, "cannot connect to %s", url);
        return rc;
    }
    fbr_conn_attach(c, ops, user);
    *out = c;
    return 0;
}
