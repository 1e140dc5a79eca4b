/* proxy_test.c - connections of ranks that are carried to the launcher, and who may open one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "mpi_bridge/tcpstore.h"
#include "runtime/net/tcp.h"
#include "tests/support/bridge_host.h"

#define BIG (20u << 20)

static uint16_t port_of(struct bridge_host *h, uint32_t job, uint32_t rank, const char *variable)
{
    struct fbr_env env;
    uint16_t port;

    assert_int_equal(host_env(h, job, rank, NULL, &env, NULL, NULL), 0);
    port = (uint16_t)atoi(fbr_env_get(&env, variable));
    fbr_env_fini(&env);
    return port;
}

/* 2 where there are IPv6 sockets. */
static int families(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 2 : 1;
}

/* v6: by an IPv6 socket, with the IPv4 address within. */
static int dial(uint16_t port, bool v6)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET6, "::ffff:127.0.0.1", &in6.sin6_addr);
    if (fd >= 0 &&
        connect(fd, v6 ? (void *)&in6 : (void *)&in, v6 ? sizeof(in6) : sizeof(in)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void send_all(int fd, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);

        assert_true(n > 0);
        at += (size_t)n;
    }
}

/* How many bytes of len came before the other side hung up. */
static size_t recv_all(int fd, void *data, size_t len)
{
    size_t at = 0;

    while (at < len) {
        ssize_t n = recv(fd, (char *)data + at, len - at, 0);

        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return at;
}

static void send_head(int fd, uint8_t what, const char *key)
{
    struct fbr_buf b = {0};

    fbr_put_u8(&b, what);
    fbr_put_u64(&b, strlen(key));
    fbr_put(&b, key, strlen(key));
    send_all(fd, b.data, b.len);
    fbr_buf_fini(&b);
}

static void begin(int fd)
{
    uint32_t magic = FBR_TCPSTORE_MAGIC, nonce = 7;

    send_all(fd, "\0", 1);
    send_all(fd, &magic, 4);
    send_all(fd, "\15", 1); /* PING */
    send_all(fd, &nonce, 4);
    nonce = 0;
    assert_int_equal(recv_all(fd, &nonce, 4), 4);
    assert_int_equal(nonce, 7);
}

static void test_bytes_go_both_ways_whole(void **state)
{
    struct bridge_host *h = host_open(2);
    uint64_t len = BIG, back = 0;
    char *big = malloc(BIG), *same = malloc(BIG);
    uint32_t id;
    int put, get;

    for (size_t i = 0; i < BIG; i++)
        big[i] = (char)(i * 2654435761u >> 24);
    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1, 1});
    put = dial(port_of(h, id, 0, "MASTER_PORT"), false);
    get = dial(port_of(h, id, 1, "MASTER_PORT"), families() == 2); /* by the other agent */
    begin(put);
    begin(get);
    send_head(put, 1, "/big");
    send_all(put, &len, 8);
    send_all(put, big, BIG);
    begin(put); /* the store has it by then */
    send_head(get, 3, "/big");
    assert_int_equal(recv_all(get, &back, 8), 8);
    assert_int_equal(back, BIG);
    assert_int_equal(recv_all(get, same, BIG), BIG);
    assert_memory_equal(big, same, BIG);
    close(put);
    close(get);
    free(big);
    free(same);
    host_close(h);
}

static void test_a_hang_up_of_the_service_comes_after_its_last_words(void **state)
{
    static const char ask[] = "GET /s/k HTTP/1.0\r\n\r\n";
    static const char answer[] =
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    struct bridge_host *h = host_open(1);
    char got[256] = "";
    uint32_t id;
    int fd;

    host_use(h, &fbr_bridge_horovod);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1});
    fd = dial(port_of(h, id, 0, "HOROVOD_GLOO_RENDEZVOUS_PORT"), false);
    send_all(fd, ask, strlen(ask));
    assert_int_equal(recv_all(fd, got, sizeof(got)), strlen(answer));
    assert_string_equal(got, answer);
    close(fd);
    host_close(h);
}

/* Horovod's Python side asks by urllib. */
static void test_a_python_client_meets_at_the_rendezvous(void **state)
{
    static const char script[] =
        "import os, urllib.error, urllib.request as u\n"
        "base = 'http://%s:%s/scope/' % tuple(os.environ['HOROVOD_GLOO_RENDEZVOUS_' + n] for n in "
        "('ADDR', "
        "'PORT'))\n"
        "ask = lambda how, key, data=None: u.urlopen(u.Request(base + key, data=data, "
        "method=how)).read()\n"
        "me, other = os.environ['HOROVOD_RANK'], str(1 - int(os.environ['HOROVOD_RANK']))\n"
        "ask('PUT', me, b'I am ' + me.encode())\n"
        "while True:\n"
        "    try:\n"
        "        print(ask('GET', other).decode())\n"
        "        break\n"
        "    except urllib.error.HTTPError as e:\n"
        "        assert e.code == 404\n";
    const char *const argv[] = {"/usr/bin/python3", "-c", script, NULL};
    struct bridge_host *h;
    uint32_t id;

    if (access(argv[0], X_OK) < 0)
        skip();
    h = host_open(2);
    host_use(h, &fbr_bridge_horovod);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1, 1});
    host_start_all(h, id, argv, (char *[]){"no_proxy=*", NULL});
    assert_int_equal(host_wait(h, id), 0);
    assert_string_equal(host_output(h, id, 0), "I am 1\n");
    assert_string_equal(host_output(h, id, 1), "I am 0\n");
    host_close(h);
}

static void test_the_end_of_a_job_ends_its_port(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t id;
    uint16_t port;
    int fd;
    char c;

    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2});
    port = port_of(h, id, 0, "MASTER_PORT");
    assert_int_equal(port_of(h, id, 1, "MASTER_PORT"), port); /* one for all ranks */
    fd = dial(port, false);
    begin(fd);
    host_job_end(h, id);
    assert_true(recv(fd, &c, 1, 0) <= 0);
    close(fd);
    assert_int_equal(dial(port, false), -1);
    host_close(h);
}

static void test_one_port_for_each_job(void **state)
{
    struct bridge_host *h = host_open(1);
    uint32_t one, two;

    host_use(h, &fbr_bridge_torch);
    one = host_job(h, (uint32_t[HOST_AGENTS]){1});
    two = host_job(h, (uint32_t[HOST_AGENTS]){1});
    assert_int_not_equal(port_of(h, one, 0, "MASTER_PORT"), port_of(h, two, 0, "MASTER_PORT"));
    host_close(h);
}

#define DIALS 100

/* 0: the port hung up on each call of another user. */
static int dial_as_nobody(uint16_t port, bool v6)
{
    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 2;
    for (int i = 0; i < DIALS; i++) {
        int fd = dial(port, v6);
        char c;

        if (fd >= 0 && recv(fd, &c, 1, 0) > 0)
            return 1;
        close(fd);
    }
    return 0;
}

static int count_lines(int fd)
{
    char text[65536];
    ssize_t n = pread(fd, text, sizeof(text), 0);
    int lines = 0;

    for (ssize_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static void test_another_user_is_refused(void **state)
{
    struct bridge_host *h;
    int status, fd, saved, told;
    uint32_t id;
    uint16_t port;
    pid_t pid;

    if (geteuid() != 0) {
        print_message("only root can be another user\n");
        skip();
    }
    h = host_open(1);
    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1});
    saved = dup(STDERR_FILENO);
    told = memfd_create("stderr", MFD_CLOEXEC);
    dup2(told, STDERR_FILENO);
    port = port_of(h, id, 0, "MASTER_PORT");
    for (int v6 = 0; v6 < families(); v6++) {
        pid = fork();
        if (pid == 0)
            _exit(dial_as_nobody(port, v6));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    fd = dial(port, false); /* and we still may */
    begin(fd);
    close(fd);
    host_close(h);
    dup2(saved, STDERR_FILENO);
    assert_in_range(count_lines(told), 1, DIALS); /* a line a second, not one for each of them */
    close(saved);
    close(told);
}

static void test_the_owner_of_a_connection_is_known(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);
    int auth = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sv[2];
    uid_t uid = 12345;

    assert_int_equal(bind(auth, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(auth, 5), 0);
    assert_int_equal(getsockname(auth, (struct sockaddr *)&in, &len), 0);
    for (int v6 = 0; v6 < families(); v6++) {
        int from = dial(ntohs(in.sin_port), v6), to = accept4(auth, NULL, NULL, SOCK_CLOEXEC);

        uid = 12345;
        assert_int_equal(fbr_loopback_owner(to, &uid), 0);
        assert_int_equal(uid, geteuid());
        close(from);
        uid = 12345; /* the kernel says 0 */
        assert_int_equal(fbr_loopback_owner(to, &uid), -ENOTCONN);
        assert_int_equal(uid, 12345);
        close(to);
    }
    close(auth);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(fbr_loopback_owner(sv[0], &uid), -EAFNOSUPPORT);
    close(sv[0]);
    close(sv[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_both_ways_whole),
        cmocka_unit_test(test_a_hang_up_of_the_service_comes_after_its_last_words),
        cmocka_unit_test(test_a_python_client_meets_at_the_rendezvous),
        cmocka_unit_test(test_the_end_of_a_job_ends_its_port),
        cmocka_unit_test(test_one_port_for_each_job),
        cmocka_unit_test(test_another_user_is_refused),
        cmocka_unit_test(test_the_owner_of_a_connection_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
