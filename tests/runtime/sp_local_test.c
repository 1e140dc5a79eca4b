/* sp_local_test.c - both ends of the data channel over unix sockets, each with nanomsg's own at the
 * other end: they speak its protocol. And what the calling side does about a server that does not
 * read, hangs up or makes no sense.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>

#include "runtime/net/sock.h"
#include "runtime/net/sp_client.h"
#include "runtime/net/sp_server.h"
#include "tests/support/sync.h"

static const size_t lengths[] = {1, 44, 13, 60000, 300000, FBR_SOCK_MAX - 4, 44};
enum { N = sizeof(lengths) / sizeof(lengths[0]) };

static char dir[64], url[80], ipc[80]; /* the same socket, for us and for nanomsg */
static const char *path;
static int came;

static int set_up(void **state)
{
    temp_dir_make(dir);
    snprintf(url, sizeof(url), "unix:%s/d", dir);
    snprintf(ipc, sizeof(ipc), "ipc://%s/d", dir);
    path = url + strlen("unix:");
    came = 0;
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_remove(dir);
    return 0;
}

static uint8_t byte_of(size_t i, size_t len)
{
    return (uint8_t)(i * 7 + len);
}

static void *make(size_t len)
{
    uint8_t *msg = fbr_sock_alloc(len);

    assert_non_null(msg);
    for (size_t i = 0; i < len; i++)
        msg[i] = byte_of(i, len);
    return msg;
}

static void check(const uint8_t *msg, size_t len, size_t wanted)
{
    assert_int_equal(len, wanted);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(msg[i], byte_of(i, len));
}

static int on_message(void *user, void *msg, size_t len)
{
    assert_int_equal((uintptr_t)msg % 8, 4);
    check(msg, len, *(const size_t *)user);
    came++;
    return 0;
}

static void wait_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
}

static void receive(struct fbr_sp_client *c, size_t wanted)
{
    int rc;

    while ((rc = fbr_sp_client_recv(c, on_message, &wanted)) == 0) {
        assert_false(fbr_sp_client_lost(c));
        wait_readable(fbr_sp_client_fd(c));
    }
    assert_int_equal(rc, 1);
}

static int send_made(struct fbr_sp_client *c, size_t len)
{
    void *msg = make(len);
    int rc = fbr_sp_client_send(c, msg, len, -1);

    fbr_sock_free(msg);
    return rc;
}

/* ---- nanomsg at the other end ---- */

static void *echo(void *arg)
{
    int s = *(int *)arg;

    for (int i = 0; i < N; i++) {
        void *msg = NULL;
        int n = nn_recv(s, &msg, NN_MSG, 0);

        if (n < 0 || nn_send(s, &msg, NN_MSG, 0) != n)
            return "nanomsg";
    }
    return NULL;
}

static void nanomsg_serves_our_client(void **state)
{
    int s = nn_socket(AF_SP, NN_REP), most = FBR_SOCK_MAX;
    struct fbr_sp_client *c;
    pthread_t thread;
    void *failed;

    assert_true(s >= 0);
    assert_true(nn_setsockopt(s, NN_SOL_SOCKET, NN_RCVMAXSIZE, &most, sizeof(most)) >= 0);
    assert_true(nn_bind(s, ipc) >= 0);
    assert_int_equal(pthread_create(&thread, NULL, echo, &s), 0);
    assert_int_equal(fbr_sp_client_open(&c, path, FBR_SOCK_MAX, TEST_LONG_MS), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(send_made(c, lengths[i]), 0);
        receive(c, lengths[i]);
    }
    assert_int_equal(came, N);
    pthread_join(thread, &failed);
    assert_null(failed);
    fbr_sp_client_close(c);
    nn_close(s);
}

static int answer(void *user, struct fbr_sp_conn *conn, void *msg, size_t len)
{
    void *copy = fbr_sock_alloc(len);

    fbr_sp_prove(conn, 1);
    memcpy(copy, msg, len);
    return (uintptr_t)msg % 8 == 4 ? fbr_sp_send(conn, copy, len) : -EPROTO;
}

static void on_end(void *user, struct fbr_sp_conn *conn, int why)
{
}

static void on_tick(void *user)
{
}

static void *serve(void *server)
{
    fbr_sp_server_run(server);
    return NULL;
}

/* A raw socket, whose requests have the id that we choose, in ancillary data. */
static void ask(int s, size_t len)
{
    union {
        struct nn_cmsghdr align;
        uint8_t bytes[NN_CMSG_SPACE(sizeof(size_t) + sizeof(uint32_t))];
    } control = {0};
    void *msg = make(len);
    struct nn_iovec iov = {&msg, NN_MSG};
    struct nn_msghdr h = {.msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control)};
    uint32_t id = htobe32(0x80000001u);
    size_t n = sizeof(id);

    control.align.cmsg_level = PROTO_SP;
    control.align.cmsg_type = SP_HDR;
    control.align.cmsg_len = NN_CMSG_LEN(sizeof(n) + n);
    memcpy(NN_CMSG_DATA(&control.align), &n, sizeof(n));
    memcpy(NN_CMSG_DATA(&control.align) + sizeof(n), &id, n);
    assert_int_equal(nn_sendmsg(s, &h, 0), len);
}

static void our_server_serves_nanomsg(void **state)
{
    static const struct fbr_sp_server_ops ops = {answer, on_end, on_tick};
    int s = nn_socket(AF_SP_RAW, NN_REQ), most = FBR_SOCK_MAX;
    struct fbr_sp_server *server;
    pthread_t thread;

    assert_int_equal(fbr_sp_server_open(&server, url, true, &ops, NULL, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
    assert_true(s >= 0);
    assert_true(nn_setsockopt(s, NN_SOL_SOCKET, NN_RCVMAXSIZE, &most, sizeof(most)) >= 0);
    assert_true(nn_connect(s, ipc) >= 0);
    for (int i = 0; i < N; i++) {
        void *msg = NULL;
        int n;

        ask(s, lengths[i]);
        n = nn_recv(s, &msg, NN_MSG, 0);
        assert_true(n >= 0);
        check(msg, (size_t)n, lengths[i]);
        nn_freemsg(msg);
    }
    nn_close(s);
    fbr_sp_server_stop(server);
    pthread_join(thread, NULL);
    fbr_sp_server_close(server);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- Servers that nobody wishes for ---- */

/* The kernel lacks memory for what this thread sends. */
static void *serve_without_memory(void *server)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOBUFS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
    bool forbidden = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                     prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;

    fbr_sp_server_run(server);
    return forbidden ? server : NULL;
}

/* A message may not be lost on a connection that goes on. */
static void a_server_without_memory_hangs_up(void **state)
{
    static const struct fbr_sp_server_ops ops = {answer, on_end, on_tick};
    struct fbr_sp_server *server;
    struct fbr_sp_client *c;
    pthread_t thread;
    size_t wanted = 44;
    void *forbidden;
    bool lost;

    assert_int_equal(fbr_sp_server_open(&server, url, true, &ops, NULL, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve_without_memory, server), 0);
    assert_int_equal(fbr_sp_client_open(&c, path, FBR_SOCK_MAX, TEST_LONG_MS), 0);
    assert_int_equal(send_made(c, wanted), 0);
    wait_readable(fbr_sp_client_fd(c));
    lost = fbr_sp_client_recv(c, on_message, &wanted) == 0 && fbr_sp_client_lost(c);
    fbr_sp_server_stop(server);
    pthread_join(thread, &forbidden);
    fbr_sp_client_close(c);
    fbr_sp_server_close(server);
    if (!forbidden)
        skip();
    assert_true(lost);
}

static int listen_here(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

struct server {
    const uint8_t *greeting;
    int listening, end; /* end: its end of a connection */
    pthread_t thread;
};

static void *greet(void *arg)
{
    struct server *s = arg;

    close(accept(s->listening, NULL, NULL)); /* turns the first call away */
    s->end = accept(s->listening, NULL, NULL);
    close(s->listening);
    return send(s->end, s->greeting, FBR_SP_GREETING, MSG_NOSIGNAL) == FBR_SP_GREETING ? NULL : s;
}

/* A client, and the server's end of its connection. */
static int meet(struct fbr_sp_client **c, const uint8_t *greeting, int *end)
{
    struct server s = {.greeting = greeting, .listening = listen_here()};
    void *failed;
    int rc;

    assert_int_equal(pthread_create(&s.thread, NULL, greet, &s), 0);
    rc = fbr_sp_client_open(c, path, FBR_SOCK_MAX, TEST_LONG_MS);
    pthread_join(s.thread, &failed);
    assert_null(failed);
    *end = s.end;
    return rc;
}

static void nobody_is_there(void **state)
{
    char too_long[200];
    struct fbr_sp_client *c;
    int listening;

    assert_int_equal(fbr_sp_client_open(&c, path, FBR_SOCK_MAX, 50), -EAGAIN);
    listening = listen_here();
    assert_int_equal(fbr_sp_client_open(&c, path, FBR_SOCK_MAX, 50), -EAGAIN);
    close(listening);
    assert_int_equal(fbr_sp_client_open(&c, path, FBR_SOCK_MAX, 50), -EAGAIN);
    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[sizeof(too_long) - 1] = '\0';
    assert_int_equal(fbr_sp_client_open(&c, too_long, FBR_SOCK_MAX, 50), -ENAMETOOLONG);
}

/* Reads until the client closes: how many bytes. */
static void *count(void *arg)
{
    static uint8_t room[65536];
    static size_t bytes;
    ssize_t n;

    bytes = 0;
    while ((n = recv(*(int *)arg, room, sizeof(room), 0)) > 0)
        bytes += (size_t)n;
    return &bytes;
}

static void a_message_for_which_there_is_no_room_leaves_later(void **state)
{
    const size_t len = FBR_SOCK_MAX;
    struct pollfd room = {.events = POLLIN};
    size_t wanted = FBR_SP_GREETING;
    struct fbr_sp_client *c;
    pthread_t thread;
    int end, rc = 0;
    void *msg = make(len), *bytes;

    assert_int_equal(meet(&c, fbr_sp_rep_greeting, &end), 0);
    room.fd = fbr_sp_client_room_fd(c);
    assert_int_equal(poll(&room, 1, 0), 1);
    while (rc == 0) {
        wanted += FBR_SP_HEAD_MAX + len;
        rc = fbr_sp_client_send(c, msg, len, 0);
    }
    assert_int_equal(rc, -EAGAIN);
    assert_int_equal(fbr_sp_client_send(c, msg, len, 1), -EAGAIN);
    assert_int_equal(poll(&room, 1, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, count, &end), 0);
    while ((rc = fbr_sp_client_send(c, msg, len, 0)) == -EAGAIN)
        wait_readable(room.fd);
    assert_int_equal(rc, 0);
    wanted += FBR_SP_HEAD_MAX + len;
    assert_int_equal(send_made(c, len), 0);
    fbr_sock_free(msg);
    fbr_sp_client_close(c);
    pthread_join(thread, &bytes);
    assert_int_equal(*(size_t *)bytes, wanted);
    close(end);
}

/* What it has sent before is taken first; then its end is quiet. */
static void a_server_that_hangs_up(void **state)
{
    size_t wanted = 44;
    uint8_t head[FBR_SP_HEAD_MAX];
    void *msg = make(wanted);
    struct fbr_sp_client *c;
    struct pollfd p = {.events = POLLIN};
    int end;

    assert_int_equal(meet(&c, fbr_sp_rep_greeting, &end), 0);
    fbr_sp_head(head, wanted, true);
    assert_int_equal(send(end, head, 5, 0), 5);
    assert_int_equal(fbr_sp_client_recv(c, on_message, &wanted), 0);
    assert_int_equal(send(end, head + 5, sizeof(head) - 5, 0), sizeof(head) - 5);
    assert_int_equal(send(end, msg, wanted, 0), wanted);
    assert_false(fbr_sp_client_lost(c));
    close(end);
    assert_true(fbr_sp_client_lost(c));
    assert_int_equal(fbr_sp_client_send(c, msg, wanted, -1), -EPIPE);
    assert_true(fbr_sp_client_lost(c));
    assert_int_equal(fbr_sp_client_recv(c, on_message, &wanted), 1);
    assert_int_equal(fbr_sp_client_recv(c, on_message, &wanted), 0);
    p.fd = fbr_sp_client_fd(c);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(fbr_sp_client_recv(c, on_message, &wanted), 0);
    assert_int_equal(fbr_sp_client_send(c, msg, wanted, -1), -EPIPE);
    fbr_sock_free(msg);
    fbr_sp_client_close(c);
}

static void a_server_that_makes_no_sense(void **state)
{
    static const struct {
        uint8_t head[FBR_SP_HEAD_MAX];
        int rc;
    } bad[] = {
        {{2, 0, 0, 0, 0, 0, 0, 0, 8, 0x80, 0, 0, 1}, -EPROTO},
        {{1, 0, 0, 0, 0, 0, 0, 0, 8, 0x80, 0, 0, 2}, -EPROTO},
        {{1, 0, 0, 0, 0, 0, 0, 0, 3, 0x80, 0, 0, 1}, -EMSGSIZE},
        {{1, 0, 0, 0, 0, 1, 0, 0, 0, 0x80, 0, 0, 1}, -EMSGSIZE},
    };
    static const uint8_t another[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    struct fbr_sp_client *c;
    int end;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        set_up(state);
        assert_int_equal(meet(&c, fbr_sp_rep_greeting, &end), 0);
        assert_int_equal(send(end, bad[i].head, FBR_SP_HEAD_MAX, 0), FBR_SP_HEAD_MAX);
        assert_int_equal(fbr_sp_client_recv(c, on_message, NULL), bad[i].rc);
        close(end);
        fbr_sp_client_close(c);
        tear_down(state);
    }
    set_up(state);
    assert_int_equal(meet(&c, another, &end), -EPROTO);
    close(end);
    tear_down(state);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nanomsg_serves_our_client),
        CASE(our_server_serves_nanomsg),
        CASE(nobody_is_there),
        CASE(a_message_for_which_there_is_no_room_leaves_later),
        CASE(a_server_without_memory_hangs_up),
        CASE(a_server_that_hangs_up),
        cmocka_unit_test(a_server_that_makes_no_sense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
