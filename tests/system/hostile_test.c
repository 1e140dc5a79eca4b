/* hostile_test.c - every port of a working master, and of a child that serves, gets silence,
 * garbage, hostile lengths and crowds, with some hundred silent callers held all the while; the
 * results stay right.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"
#include "tests/support/run.h"
#include "tests/support/sanitized.h"

#define TASKS 400
#define PORTS_MAX 16
#define CROWD 500
#define MEMORY_KIB (16 * 1024) /* what all attackers together may have us allocate */
#define SILENT 100             /* callers of each port who say nothing and stay */

/* ---- Which ports ---- */

struct port {
    uint32_t address; /* as in the packet */
    unsigned number;
    unsigned long inode;
};

/* Whether one of that process's descriptors is this socket. */
static bool is_of(pid_t pid, unsigned long inode)
{
    char name[64], path[300], target[64];
    struct dirent *e;
    bool found = false;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    d = opendir(path);
    assert_non_null(d);
    snprintf(name, sizeof(name), "socket:[%lu]", inode);
    while (!found && (e = readdir(d))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, e->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, name) == 0;
    }
    closedir(d);
    return found;
}

/* Appends to n others the TCP ports on which a process listens (proc(5)); returns how many they are
 * then. Fails the test when one of them is IPv6. */
static int get_ports(pid_t pid, struct port ports[PORTS_MAX], int n)
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};

    for (int v6 = 0; v6 < 2; v6++) {
        FILE *f = fopen(tables[v6], "r");
        char line[512];

        while (f && fgets(line, sizeof(line), f)) {
            struct port p;
            unsigned state;
            char address[40];

            if (sscanf(line, " %*d: %39[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %lu", address,
                       &p.number, &state, &p.inode) != 4 ||
                state != 0x0a || !is_of(pid, p.inode))
                continue;
            assert_false(v6);
            assert_true(n < PORTS_MAX);
            p.address = (uint32_t)strtoul(address, NULL, 16);
            ports[n++] = p;
        }
        if (f)
            fclose(f);
    }
    return n;
}

/* ---- The attack ---- */

static struct port ports[PORTS_MAX];
static int n_ports;
static atomic_bool attack_over;
static atomic_int attacks;

static int dial_attacked(const struct port *p)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)p->number),
                             .sin_addr.s_addr = p->address};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void send_all(const struct port *p, const void *bytes, size_t len, bool reset)
{
    const struct linger now = {.l_onoff = 1};
    int fd = dial_attacked(p);

    if (fd < 0)
        return;
    send(fd, bytes, len, MSG_NOSIGNAL);
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    atomic_fetch_add(&attacks, 1);
}

static void send_garbage(const struct port *p)
{
    uint8_t bytes[2048];

    for (int i = 0; i < 60; i++) {
        if (getrandom(bytes, sizeof(bytes), 0) < 0)
            return;
        send_all(p, bytes, (size_t)1 << (i % 12), i % 3 == 0);
    }
}

/* nanomsg's greeting with all kinds of protocols, then lengths that nobody has the memory for, and
 * truth by halves. */
static void send_nanomsg(const struct port *p)
{
    static const uint64_t lengths[] = {
        0,        1,          3,         4,         5, 12, 64, 512 * 1024, 512 * 1024 + 1,
        1u << 30, UINT32_MAX, INT64_MAX, UINT64_MAX};

    for (unsigned protocol = 0; protocol < 0x80; protocol += protocol == 0x30 ? 1 : 0x10)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            uint8_t bytes[80] = {0, 'S', 'P', 0, 0, (uint8_t)protocol};

            for (int b = 0; b < 8; b++)
                bytes[8 + b] = (uint8_t)(lengths[i] >> (56 - 8 * b));
            bytes[16] = 0x80; /* the end of a stack of routes */
            bytes[20] = 1;    /* our version */
            send_all(p, bytes, sizeof(bytes), i % 4 == 0);
        }
}

/* A ClientHello's first bytes with hostile lengths, and records of TLS that are none. */
static void send_tls(const struct port *p)
{
    static const uint8_t hello[] = {0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3},
                         alert[] = {0x15, 3, 3, 0, 2, 2, 40};
    static const uint8_t data[] = {0x17, 3, 3, 0xff, 0xff, 1, 2, 3};

    for (int i = 0; i < 20; i++) {
        send_all(p, hello, sizeof(hello), false);
        send_all(p, alert, sizeof(alert), false);
        send_all(p, data, sizeof(data), true);
    }
}

static void crowd(const struct port *p)
{
    int fds[CROWD];

    for (int i = 0; i < CROWD; i++) {
        fds[i] = dial_attacked(p);
        if (fds[i] >= 0 && i % 2) /* half of them say a little, and then nothing */
            send(fds[i], "\x16\x03\x01", 3, MSG_NOSIGNAL);
    }
    for (int i = 0; i < CROWD; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    atomic_fetch_add(&attacks, CROWD);
}

/* nanomsg's greeting, the longest message that a peer may announce, and the beginning of it: what a
 * server would keep in memory if it believed them. */
static void crowd_with_halves(const struct port *p)
{
    static const uint8_t begin[16] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0};
    static const uint8_t bytes[60000] = {0x80, 0, 0, 1, 1};
    int fds[CROWD];

    for (int i = 0; i < CROWD; i++) {
        fds[i] = dial_attacked(p);
        if (fds[i] < 0)
            continue;
        send(fds[i], begin, sizeof(begin), MSG_NOSIGNAL | MSG_DONTWAIT);
        send(fds[i], bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (int i = 0; i < CROWD; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    atomic_fetch_add(&attacks, CROWD);
}

static void *attack(void *arg)
{
    static int silent[PORTS_MAX * SILENT];
    int n = 0;

    for (int i = 0; i < n_ports; i++)
        for (int j = 0; j < SILENT; j++)
            silent[n++] = dial_attacked(&ports[i]);
    atomic_fetch_add(&attacks, n);
    for (int i = 0; i < n_ports; i++) {
        send_garbage(&ports[i]);
        send_nanomsg(&ports[i]);
        send_tls(&ports[i]);
        crowd(&ports[i]);
        crowd_with_halves(&ports[i]);
    }
    atomic_store(&attack_over, true);
    while (n-- > 0) /* they were there to the end */
        if (silent[n] >= 0)
            close(silent[n]);
    return NULL;
}

/* ---- The work ---- */

static int square(const void *in, size_t len, struct fiber_reply *reply)
{
    uint64_t x;

    if (len != sizeof(x))
        return -EINVAL;
    memcpy(&x, in, sizeof(x));
    x *= x;
    return fiber_reply_write(reply, &x, sizeof(x));
}

static int put_numbers(const void *address, size_t len)
{
    struct fiber_queue *q;
    uint64_t i = 0;

    if (fiber_queue_connect(&q, address) < 0)
        return 1;
    while (i < 1000 && fiber_queue_put(q, &i, sizeof(i), -1) == 0)
        i++;
    fiber_queue_close(q);
    return i == 1000 ? 0 : 2;
}

static int map_once(struct fiber_pool *pool)
{
    static uint64_t in[TASKS], out[TASKS];

    for (uint64_t i = 0; i < TASKS; i++) {
        in[i] = i + 7;
        out[i] = 0;
    }
    if (fiber_pool_map(pool, square, in, sizeof(in[0]), out, sizeof(out[0]), TASKS, NULL) < 0)
        return -1;
    for (uint64_t i = 0; i < TASKS; i++)
        if (out[i] != (i + 7) * (i + 7))
            return -1;
    return 0;
}

static int take_numbers(struct fiber_queue *q)
{
    struct fiber_bytes bytes;
    uint64_t x;

    for (uint64_t i = 0; i < 1000; i++) {
        if (fiber_queue_get(q, &bytes, TEST_LONG_MS) < 0 || bytes.len != sizeof(x))
            return -1;
        memcpy(&x, bytes.data, sizeof(x));
        fiber_bytes_free(&bytes);
        if (x != i)
            return -1;
    }
    return 0;
}

/* A child that serves: a manager, which has a queue of its own, too. */
struct served {
    pid_t pid;
    struct fiber_address queue;
};

static int open_served(void **state, const void *arg, size_t len)
{
    return fiber_queue_open((struct fiber_queue **)state, 0);
}

static int serve(void *state, const char *method, const void *in, size_t len,
                 struct fiber_reply *reply)
{
    struct served s = {.pid = getpid()};

    if (len)
        return square(in, len, reply);
    return fiber_queue_address(state, &s.queue) < 0 ? -EIO
                                                    : fiber_reply_write(reply, &s, sizeof(s));
}

static void close_served(void *state)
{
    fiber_queue_close(state);
}

static const struct fiber_class served = {
    .size = sizeof(served), .open = open_served, .call = serve, .close = close_served};

static struct served begin_served(struct fiber_manager **m)
{
    struct fiber_bytes b;
    struct served s;

    assert_int_equal(fiber_manager_start(m, &served, NULL, 0, NULL), 0);
    assert_int_equal(fiber_manager_call(*m, "who", NULL, 0, &b, TEST_LONG_MS), 0);
    assert_int_equal(b.len, sizeof(s));
    memcpy(&s, b.data, sizeof(s));
    fiber_bytes_free(&b);
    return s;
}

/* One call of it, and a message by its queue and back. */
static void use_served(struct fiber_manager *m, struct fiber_queue *q, uint64_t x)
{
    const uint64_t wanted[2] = {x * x, x};
    struct fiber_bytes b;

    assert_int_equal(fiber_queue_put(q, &x, sizeof(x), TEST_LONG_MS), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(i ? fiber_queue_get(q, &b, TEST_LONG_MS)
                           : fiber_manager_call(m, "square", &x, sizeof(x), &b, TEST_LONG_MS),
                         0);
        assert_int_equal(b.len, sizeof(x));
        assert_memory_equal(b.data, &wanted[i], sizeof(x));
        fiber_bytes_free(&b);
    }
}

/* The most memory that we have had. */
static long peak_kib(void)
{
    struct rusage r;

    return getrusage(RUSAGE_SELF, &r) < 0 ? -1 : r.ru_maxrss;
}

static void open_all(struct fiber_pool **pool, struct fiber_queue **q,
                     struct fiber_address *address)
{
    struct fiber_pool_options o = {.size = sizeof(o), .min = 2, .max = 2};

    assert_int_equal(fiber_pool_open(pool, &o), 0);
    assert_int_equal(fiber_queue_open(q, 0), 0);
    assert_int_equal(fiber_queue_address(*q, address), 0);
    assert_int_equal(finish(begin(put_numbers, address, sizeof(*address), NULL)), 0);
    assert_int_equal(take_numbers(*q), 0);
    assert_int_equal(map_once(*pool), 0);
}

/* ---- Tests ---- */

static void test_attacks_on_every_port_while_a_map_runs(void **state)
{
    struct fiber_address address;
    struct fiber_manager *manager;
    struct fiber_pool *pool;
    struct fiber_queue *q, *its;
    struct served child;
    pthread_t attacker;
    int rounds = 0, ours;
    long peak;

    open_all(&pool, &q, &address);
    child = begin_served(&manager);
    assert_int_equal(fiber_queue_connect(&its, &child.queue), 0);
    ours = get_ports(getpid(), ports, 0);
    assert_true(ours >= 2); /* control and data */
    n_ports = get_ports(child.pid, ports, ours);
    assert_true(n_ports >= ours + 2); /* the child's own */
    for (int i = 0; i < n_ports; i++)
        assert_int_equal(ports[i].address, htonl(INADDR_LOOPBACK));
    peak = peak_kib();
    assert_int_equal(pthread_create(&attacker, NULL, attack, NULL), 0);
    while (!atomic_load(&attack_over)) {
        assert_int_equal(map_once(pool), 0);
        use_served(manager, its, (uint64_t)rounds);
        if (rounds++ % 20 == 0) { /* new processes find their way through the crowd */
            struct fiber_process *p = begin(put_numbers, &address, sizeof(address), NULL);

            assert_int_equal(take_numbers(q), 0);
            assert_int_equal(finish(p), 0);
        }
    }
    pthread_join(attacker, NULL);
    printf("           %d attacks on %d ports, %d maps, %ld KiB\n", atomic_load(&attacks), n_ports,
           rounds, peak_kib() - peak);
#ifndef __SANITIZE_ADDRESS__
    assert_true(SANITIZED || peak_kib() - peak < MEMORY_KIB);
#endif
    assert_int_equal(map_once(pool), 0);
    use_served(manager, its, 1u << 20);
    fiber_queue_close(its);
    fiber_manager_close(manager);
    fiber_pool_close(pool);
    fiber_queue_close(q);
}

static int play_local(const char *arg)
{
    struct fiber_address address;
    struct fiber_pool *pool;
    struct fiber_queue *q;
    struct port found[PORTS_MAX];

    open_all(&pool, &q, &address);
    return get_ports(getpid(), found, 0);
}

static void test_without_need_there_is_no_port(void **state)
{
    const char *const env[] = {"FIBER_TRANSPORT=unix", NULL};
    struct ran r = run_self("local", NULL, env);

    assert_int_equal(r.code, 0);
    ran_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attacks_on_every_port_while_a_map_runs),
        cmocka_unit_test(test_without_need_there_is_no_port),
    };

    if (argc == 1)
        setenv("FIBER_TRANSPORT", "tcp", 1);
    init_fiber(&argc, &argv);
    return argc > 1 ? play_local(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
