/* door_util.h - a listener of the control channel, its callers, and strangers: for the tests of both.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/runtime/conn_util.h"

#define GOOD 7u    /* the caller that the door knows */
#define REFUSED 8u /* knows its secret, and is turned away */

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const uint8_t secret_of_good[FBR_KEY_SIZE] = "a secret that both ends know ..";

static struct fbr_listener *listener;
static char dir[64], url[FBR_URL_MAX];
static struct end server; /* of the last one let in */
static unsigned admitted, join_ms = 5000;
static struct fbr_held held; /* no bound, unless a test sets one */

static int control_secret(void *user, const struct fbr_caller *who, uint8_t secret[FBR_KEY_SIZE])
{
    if (who->kind != FBR_CALLER_JOB || (who->id != GOOD && who->id != REFUSED))
        return -EACCES;
    memcpy(secret, secret_of_good, FBR_KEY_SIZE);
    return 0;
}

static int control_admit(void *user, const struct fbr_caller *who, struct fbr_conn *conn)
{
    if (who->id == REFUSED)
        return -EACCES;
    fbr_conn_attach(conn, &ops, &server);
    pthread_mutex_lock(&lock);
    server.conn = conn;
    admitted++;
    notify();
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- What tests do on the loop thread ---- */

struct dial {
    struct end *end;
    const char *url;
    struct fbr_caller who;
    uint8_t secret[FBR_KEY_SIZE];
};

static int do_dial(void *arg)
{
    struct dial *d = arg;

    return fbr_conn_dial(&d->end->conn, loop, d->url, &d->who, d->secret, &ops, d->end, NULL);
}

static int dial_as(struct end *e, const char *to, uint64_t id, const uint8_t *secret)
{
    struct dial d = {.end = e, .url = to, .who = {FBR_CALLER_JOB, id}};

    memset(e, 0, sizeof(*e));
    memcpy(d.secret, secret, FBR_KEY_SIZE);
    return fbr_loop_call(loop, do_dial, &d);
}

static void join(struct end *e)
{
    unsigned before = admitted;

    assert_int_equal(dial_as(e, url, GOOD, secret_of_good), 0);
    wait_for(&admitted, before + 1);
}

static int do_listen(void *arg)
{
    const struct fbr_auth_ops auth = {control_secret, control_admit, NULL, join_ms, true, &held};
    int rc = fbr_listener_open(&listener, loop, arg, &auth, NULL);

    if (rc == 0)
        snprintf(url, sizeof(url), "%s", fbr_listener_url(listener));
    return rc;
}

static int do_shut(void *arg)
{
    fbr_listener_close(listener);
    fbr_conn_close(server.conn);
    server.conn = NULL;
    return 0;
}

static int set_up(void **state)
{
    char where[FBR_URL_MAX];

    temp_dir_make(dir);
    if (strcmp(*state, "unix") == 0)
        snprintf(where, sizeof(where), "unix:%s/c", dir);
    else
        snprintf(where, sizeof(where), "tcp://127.0.0.1:0");
    memset(&server, 0, sizeof(server));
    admitted = 0;
    memset(&held, 0, sizeof(held));
    fbr_cond_init(&changed);
    return fbr_loop_open(&loop, NULL) < 0 || fbr_loop_call(loop, do_listen, where) < 0;
}

static int tear_down(void **state)
{
    fbr_loop_call(loop, do_shut, NULL);
    fbr_loop_close(loop);
    temp_dir_remove(dir);
    return 0;
}

/* ---- Strangers: plain sockets ---- */

/* Answers the socket, or -1. */
static int try_stranger(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool tcp = strncmp(url, "tcp:", 4) == 0;
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", url + 5);
    in.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    rc = tcp ? connect(fd, (struct sockaddr *)&in, sizeof(in))
             : connect(fd, (struct sockaddr *)&un, sizeof(un));
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

static int stranger(void)
{
    int fd = try_stranger();

    assert_true(fd >= 0);
    return fd;
}

/* Reads until the other end closes; fails when it does not. */
static void expect_closed(int fd)
{
    char bytes[4096];
    ssize_t n = 1;

    while (n > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
        n = recv(fd, bytes, sizeof(bytes), 0);
    }
    close(fd);
}

/* What dial.c sends first on a unix socket; see docs/wire.md. */
static inline void put_hello(struct fbr_buf *b, const uint8_t *secret)
{
    fbr_buf_init(b);
    fbr_put(b, "FBR1", 4);
    fbr_put_u8(b, FBR_CALLER_JOB);
    fbr_put_u64(b, GOOD);
    fbr_put(b, secret, FBR_KEY_SIZE);
}

#define ON(transport, fn)                                                          \
    {                                                                              \
#transport ": " #fn, fn, set_up, tear_down, (void *)(uintptr_t) #transport \
    }
#define ON_BOTH(fn) ON(unix, fn), ON(tcp, fn)
