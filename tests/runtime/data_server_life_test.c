/* data_server_life_test.c - how long a data link over TCP lives: idle, busy, stalled in one direction, cut, left
 * in order.
 *
 * Between the two ends is a proxy that passes bytes on, or stops to, in either direction.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/net/data_server.h"
#include "runtime/proc/context.h"
#include "runtime/net/tcp.h"
#include "runtime/net/data_client.h"
#include "tests/support/sync.h"

#define LIMIT (1u << 20)
#define BEAT_MS 300
#define MISSES 3
#define SILENT_MS (BEAT_MS * MISSES)
#define LATE_MS 20000 /* others want the processors */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static unsigned records, breaks; /* under the lock */
static int why;
static uint64_t began; /* before the link was there */
static struct fbr_data_server *data_server;
static struct fbr_link *link_up;
static struct fbr_data_client *up;

/* ---- The proxy ---- */

static struct {
    int listening, stop; /* socket, eventfd */
    atomic_int caller, server;
    pthread_t thread;
    atomic_bool stalls[2]; /* up, down */
    atomic_bool cuts_caller;
    atomic_bool lengthens; /* the next message up, which begins with what comes next */
    atomic_int slow_ms;    /* rests so long behind each piece, which are short then */
    char url[64];
} proxy;

#define SLOW_PIECE 16384

/* False: it has ended. */
static bool pass(int from, int to, bool stalls)
{
    char bytes[65536];
    int slow_ms = atomic_load(&proxy.slow_ms);
    ssize_t n = recv(from, bytes, slow_ms ? SLOW_PIECE : sizeof(bytes), MSG_DONTWAIT);

    if (n > 5 && from == proxy.caller && atomic_exchange(&proxy.lengthens, false))
        bytes[5] ^= 1; /* of the length, 65536 */
    if (slow_ms)
        let_time_pass(slow_ms);
    if (n > 0 && !stalls)
        send(to, bytes, (size_t)n, MSG_NOSIGNAL);
    if (n == 0)
        shutdown(to, SHUT_RDWR);
    return n != 0;
}

static int call_server(void)
{
    struct sockaddr_storage a;
    socklen_t len;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fbr_tcp_address(fbr_data_server_url(data_server), &a, &len) < 0 ||
        connect(fd, (struct sockaddr *)&a, len) < 0)
        abort();
    return fd;
}

/* One connection at a time; with cuts_caller its caller is hung up on, and the server does not hear of it: the
 * next caller gets a connection of its own. */
static void *run_proxy(void *arg)
{
    bool over = false;

    while (!over) {
        struct pollfd p[4] = {{.fd = proxy.stop, .events = POLLIN},
                              {.fd = proxy.listening, .events = POLLIN},
                              {.fd = proxy.caller, .events = POLLIN},
                              {.fd = proxy.server, .events = POLLIN}};

        poll(p, 4, -1);
        over = p[0].revents != 0;
        if (atomic_exchange(&proxy.cuts_caller, false)) {
            uint64_t n;

            over = read(proxy.stop, &n, sizeof(n)) < 0;
            close(proxy.caller);
            proxy.caller = -1;
            p[2].revents = 0;
        }
        if (p[1].revents && proxy.caller < 0) {
            proxy.caller = accept(proxy.listening, NULL, NULL);
            proxy.server = call_server(); /* the old one stays open, and says nothing more */
            continue;
        }
        if (p[2].revents && !pass(proxy.caller, proxy.server, atomic_load(&proxy.stalls[0]))) {
            close(proxy.caller); /* it may call again */
            close(proxy.server);
            proxy.caller = proxy.server = -1;
        } else if (p[3].revents) {
            pass(proxy.server, proxy.caller, atomic_load(&proxy.stalls[1]));
        }
    }
    return NULL;
}

static void open_proxy(void)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};
    socklen_t len = sizeof(struct sockaddr_in);

    ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy.caller = proxy.server = -1;
    proxy.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    proxy.stop = eventfd(0, EFD_CLOEXEC);
    atomic_store(&proxy.stalls[0], false);
    atomic_store(&proxy.stalls[1], false);
    atomic_store(&proxy.cuts_caller, false);
    atomic_store(&proxy.lengthens, false);
    atomic_store(&proxy.slow_ms, 0);
    assert_int_equal(bind(proxy.listening, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(proxy.listening, 8), 0);
    assert_int_equal(getsockname(proxy.listening, (struct sockaddr *)&a, &len), 0);
    fbr_tcp_url(&a, proxy.url, sizeof(proxy.url));
    assert_int_equal(pthread_create(&proxy.thread, NULL, run_proxy, NULL), 0);
}

static void poke_proxy(void)
{
    uint64_t one = 1;

    assert_int_equal(write(proxy.stop, &one, sizeof(one)), sizeof(one));
}

/* ---- The link ---- */

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    pthread_mutex_lock(&lock);
    records += len > 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_broken(void *user, struct fbr_link *link, int code)
{
    pthread_mutex_lock(&lock);
    breaks++;
    why = code;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct fbr_link_ops ops = {on_record, on_broken};

static int set_up_with(unsigned misses)
{
    const struct fbr_data_server_options options = {
        .limit = LIMIT, .beat_ms = BEAT_MS, .misses = misses, .own_user = true};
    struct fbr_keys keys = {{1, 2}, {3, 4}, fbr_aead_preferred()};

    fbr_cond_init(&changed);
    began = fbr_now_ms();
    records = breaks = 0;
    assert_int_equal(fbr_data_server_open(&data_server, "tcp://127.0.0.1:0", &options, NULL), 0);
    open_proxy();
    assert_int_equal(fbr_link_open(&link_up, data_server, &ops, NULL), 0);
    assert_int_equal(fbr_link_seal(link_up, &keys), 0);
    assert_int_equal(fbr_data_client_open(&up, proxy.url, fbr_link_id(link_up), &keys, LIMIT,
                                          TEST_LONG_MS, NULL),
                     0);
    fbr_data_client_heartbeat(up, fbr_data_server_beat_ms(data_server), 10 * BEAT_MS, MISSES);
    assert_int_equal(fbr_data_client_beat_ms(up), BEAT_MS);
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(MISSES);
}

/* Silence breaks nothing while the test goes on. */
static int set_up_patient(void **state)
{
    return set_up_with(TEST_LONG_MS / BEAT_MS);
}

static int tear_down(void **state)
{
    poke_proxy();
    pthread_join(proxy.thread, NULL);
    close(proxy.listening);
    close(proxy.stop);
    close(proxy.caller);
    close(proxy.server);
    fbr_data_client_close(up);
    fbr_link_close(link_up);
    fbr_data_server_close(data_server);
    up = NULL;
    link_up = NULL;
    return 0;
}

static void on_record_down(void *user, const void *record, size_t len)
{
    if (user)
        ++*(unsigned *)user;
}

static void take_first_answer(void)
{
    assert_int_equal(fbr_data_client_recv(up, on_record_down, NULL), 1);
    assert_int_equal(fbr_data_client_ack(up), 0);
}

/* Receives as a worker does that has nothing to do. Negative: it noticed that the link is gone. */
static int idle_for(int ms, unsigned *came)
{
    struct pollfd p = {.fd = fbr_data_client_fd(up), .events = POLLIN};
    uint64_t until = fbr_now_ms() + (uint64_t)ms;
    int rc = 0;

    while (rc >= 0 && fbr_now_ms() < until) {
        rc = fbr_data_client_recv(up, on_record_down, came);
        if (rc == 0 && poll(&p, 1, fbr_data_client_beat_ms(up)) == 0)
            rc = fbr_data_client_lost(up) ? -EPIPE : fbr_data_client_beat(up, false);
    }
    return rc;
}

static unsigned broken(void)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = breaks;
    pthread_mutex_unlock(&lock);
    return n;
}

/* How long it took; the peer idles meanwhile, or does nothing at all. code 0: one that tells of a lost
 * connection. */
static uint64_t wait_broken(bool idles, int code)
{
    uint64_t begin = fbr_now_ms(), deadline = begin + TEST_LONG_MS;

    while (idles && !broken() && fbr_now_ms() < deadline)
        idle_for(BEAT_MS / 3, NULL);
    pthread_mutex_lock(&lock);
    while (!breaks && fbr_cond_wait(&changed, &lock, deadline) == 0)
        continue;
    pthread_mutex_unlock(&lock);
    assert_int_equal(breaks, 1);
    assert_true(why == code || (code == 0 && (why == -EPIPE || why == -EILSEQ)));
    return fbr_now_ms() - begin;
}

static void send_down(const char *word)
{
    assert_int_equal(
        fbr_link_send(link_up, &(struct iovec){(void *)(uintptr_t)word, strlen(word)}, 1), 0);
}

/* ---- Tests ---- */

#define TRIES 10

/* A peer that gets no processor for as long as the server bears silence is given up, and rightly. So one of several
 * must live; where the server is wrong, none does. */
static void one_lives(bool (*lives)(void), void **state)
{
    bool done = lives();

    for (int i = 1; i < TRIES && !done; i++) {
        tear_down(state);
        set_up(state);
        done = lives();
    }
    assert_true(done);
}

static bool idle_link_lives(void)
{
    unsigned came = 0;

    if (idle_for(3 * SILENT_MS, NULL) < 0 || broken() ||
        fbr_link_send(link_up, &(struct iovec){"x", 1}, 1) != 0)
        return false;
    return idle_for(BEAT_MS, &came) >= 0 && came == 1;
}

static void an_idle_link_lives(void **state)
{
    one_lives(idle_link_lives, state);
}

/* It asks, is stopped, and asks again before it looks at what has come. */
static bool stopped_peer_lives(void)
{
    struct pollfd p = {.fd = fbr_data_client_fd(up), .events = POLLIN};

    take_first_answer();
    let_time_pass(BEAT_MS);
    if (fbr_data_client_beat(up, false) != 0)
        return false;
    assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
    let_time_pass(5 * BEAT_MS / 3);
    return fbr_data_client_beat(up, false) == 0 && idle_for(2 * BEAT_MS, NULL) >= 0 && !broken();
}

static void a_peer_that_was_stopped_lives(void **state)
{
    one_lives(stopped_peer_lives, state);
}

/* Its thread is at a task, and holds what was sent unread. */
static bool busy_peer_lives(void)
{
    unsigned came;
    int rc = 0;

    send_down("the first one is acknowledged only when it is read");
    send_down("the second one waits for that");
    for (uint64_t until = fbr_now_ms() + 3 * SILENT_MS; rc == 0 && fbr_now_ms() < until;) {
        rc = fbr_data_client_beat(up, true);
        let_time_pass(BEAT_MS / 2);
    }
    pthread_mutex_lock(&lock);
    came = records;
    pthread_mutex_unlock(&lock);
    assert_int_equal(came, 0); /* beats are nothing to hand out but empty records */
    return rc == 0 && !broken();
}

static void a_busy_peer_lives(void **state)
{
    one_lives(busy_peer_lives, state);
}

/* Idles for so long, and the link lives: another one where this process got no processor for too long. */
static void live_for(int ms, void **state)
{
    bool lives = idle_for(ms, NULL) >= 0 && !broken();

    for (int i = 1; i < TRIES && !lives; i++) {
        tear_down(state);
        set_up(state);
        lives = idle_for(ms, NULL) >= 0 && !broken();
    }
    assert_true(lives);
}

static void who_says_nothing_is_given_up_in_time(void **state)
{
    assert_true(wait_broken(false, -ETIMEDOUT) <= SILENT_MS + LATE_MS);
    assert_true(fbr_now_ms() - began >= BEAT_MS);
    assert_int_equal(fbr_link_send(link_up, &(struct iovec){"x", 1}, 1), -EPIPE);
}

static void a_link_whose_way_up_is_stalled_breaks(void **state)
{
    live_for(BEAT_MS, state);
    atomic_store(&proxy.stalls[0], true);
    assert_true(wait_broken(true, -ETIMEDOUT) <= SILENT_MS + LATE_MS);
}

/* The kernel of the proxy acknowledges what is sent down, so nothing but the beats tells that it did
 * not arrive. */
static void a_link_whose_way_down_is_stalled_breaks(void **state)
{
    live_for(BEAT_MS, state);
    atomic_store(&proxy.stalls[1], true);
    send_down("x");
    assert_true(wait_broken(true, -ETIMEDOUT) <= SILENT_MS + BEAT_MS + LATE_MS);
}

/* Nobody has anything to say, but the server's answers to beats do not come. */
static void an_idle_link_whose_way_down_is_stalled_breaks(void **state)
{
    live_for(2 * BEAT_MS, state);
    atomic_store(&proxy.stalls[1], true);
    assert_true(wait_broken(true, -ETIMEDOUT) <= SILENT_MS + BEAT_MS + LATE_MS);
}

/* Its beats come, and are taken for the rest of a message that they would be a quarter of an hour to fill. */
static void a_damaged_length_breaks_the_link(void **state)
{
    live_for(BEAT_MS, state);
    atomic_store(&proxy.lengthens, true);
    assert_true(wait_broken(true, -ETIMEDOUT) <= SILENT_MS + BEAT_MS + LATE_MS);
}

/* A long message takes twice as long as the server would bear silence. */
static bool slow_link_lives(void)
{
    const size_t len = 250 * 1000;
    char *word = calloc(1, len);
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;
    bool came;
    int rc;

    take_first_answer();
    rc = idle_for(BEAT_MS, NULL);
    atomic_store(&proxy.slow_ms, 2 * SILENT_MS * SLOW_PIECE / (int)len);
    if (rc >= 0)
        rc = fbr_data_client_send(up, &(struct iovec){word, len}, 1);
    pthread_mutex_lock(&lock);
    while (rc == 0 && !records && !breaks && fbr_cond_wait(&changed, &lock, deadline) == 0)
        continue;
    came = records == 1;
    pthread_mutex_unlock(&lock);
    free(word);
    return came;
}

static void a_slow_link_lives(void **state)
{
    one_lives(slow_link_lives, state);
}

/* Both ends of the connection end; the peer notices, too. */
static void a_connection_that_ends_breaks_the_link(void **state)
{
    shutdown(proxy.server, SHUT_RDWR);
    assert_true(wait_broken(false, -EPIPE) <= BEAT_MS + LATE_MS);
    assert_int_equal(idle_for(TEST_LONG_MS, NULL), -EPIPE);
}

/* The peer has lost its connection and makes another one; the server still has the first. */
static void a_second_connection_of_a_peer_breaks_the_link(void **state)
{
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;

    take_first_answer(); /* nanomsg sees no end behind a message to be taken */
    atomic_store(&proxy.cuts_caller, true);
    poke_proxy();
    while (!fbr_data_client_lost(up) &&
           fbr_now_ms() < deadline) /* what is sent before is lost, too */
        let_time_pass(5);
    while (!broken() && fbr_now_ms() < deadline) {
        assert_true(fbr_data_client_beat(up, false) >= 0);
        let_time_pass(5);
    }
    wait_broken(false, 0); /* -EPIPE, or -EILSEQ where something was lost */
}

/* Its owner hears of it elsewhere, and closes the link: nobody is told that it broke. */
static void a_peer_that_leaves_in_order_breaks_nothing(void **state)
{
    fbr_data_client_close(up);
    up = NULL;
    fbr_link_close(link_up);
    link_up = NULL;
    let_time_pass(3 * BEAT_MS);
    assert_int_equal(broken(), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_idle_link_lives),
        CASE(a_peer_that_was_stopped_lives),
        CASE(a_busy_peer_lives),
        CASE(who_says_nothing_is_given_up_in_time),
        CASE(a_link_whose_way_up_is_stalled_breaks),
        CASE(a_link_whose_way_down_is_stalled_breaks),
        CASE(an_idle_link_whose_way_down_is_stalled_breaks),
        CASE(a_damaged_length_breaks_the_link),
        CASE(a_slow_link_lives),
        cmocka_unit_test_setup_teardown(a_connection_that_ends_breaks_the_link, set_up_patient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_second_connection_of_a_peer_breaks_the_link,
                                        set_up_patient, tear_down),
        CASE(a_peer_that_leaves_in_order_breaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
