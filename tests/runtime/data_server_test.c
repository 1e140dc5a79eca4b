/* data_server_test.c - the data channel: a data server, links and data clients over ipc and sealed tcp, and what
 * strangers send to its port.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/fds.h"
#include "runtime/base/random.h"
#include "runtime/net/data_server.h"
#include "runtime/proc/context.h"
#include "runtime/net/sock.h"
#include "runtime/net/data_client.h"
#include "tests/support/sync.h"

#define LIMIT (32u << 20)
#define PEERS 4
#define SOON_MS 200 /* until a call that nobody answers has failed */
#ifdef __SANITIZE_THREAD__
#define MANY 2000
#else
#define MANY 20000
#endif

/* One link, from both sides. Counters under `lock`. */
struct line {
    struct fbr_link *link;
    struct fbr_data_client *up;
    struct fbr_keys keys;
    pthread_t thread; /* receives what comes down */
    int stop;
    bool running, echo, close_at_record;
    unsigned from_below, from_above, breaks, ended;
    size_t bytes_below, bytes_above;
    uint64_t sum_below, sum_above; /* of all bytes, in order */
    int why;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static char dir[64], url[128];
static bool sealed;
static struct fbr_data_server *data_server;
static const struct fbr_data_server_options options = {.limit = LIMIT, .own_user = true};
static struct line lines[PEERS];

static uint64_t add_to(uint64_t sum, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + at[i];
    return sum;
}

static void on_record(void *user, struct fbr_link *link, const void *record, size_t len)
{
    struct line *l = user;
    struct iovec iov = {(void *)(uintptr_t)record, len};
    bool close_it, echo;

    pthread_mutex_lock(&lock);
    echo = l->echo;
    pthread_mutex_unlock(&lock);
    if (echo)
        fbr_link_send(link, &iov, 1);
    pthread_mutex_lock(&lock);
    l->from_below++;
    l->bytes_below += len;
    l->sum_below = add_to(l->sum_below, record, len);
    close_it = l->close_at_record && l->link;
    if (close_it)
        l->link = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (close_it)
        fbr_link_close(link);
}

static void on_broken(void *user, struct fbr_link *link, int why)
{
    struct line *l = user;

    pthread_mutex_lock(&lock);
    l->breaks++;
    l->why = why;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct fbr_link_ops ops = {on_record, on_broken};

/* A link also breaks when its peer closes, on the data server's thread. */
static unsigned breaks_of(struct line *l)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = l->breaks;
    pthread_mutex_unlock(&lock);
    return n;
}

static void on_record_down(void *user, const void *record, size_t len)
{
    struct line *l = user;

    pthread_mutex_lock(&lock);
    l->from_above++;
    l->bytes_above += len;
    l->sum_above = add_to(l->sum_above, record, len);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *receive(void *arg)
{
    struct line *l = arg;
    struct pollfd p[2] = {{.fd = fbr_data_client_fd(l->up), .events = POLLIN},
                          {.fd = l->stop, .events = POLLIN}};
    int rc = 0;

    while (rc >= 0 && !p[1].revents) {
        while ((rc = fbr_data_client_recv(l->up, on_record_down, l)) > 0)
            continue;
        if (rc == 0)
            poll(p, 2, -1);
    }
    pthread_mutex_lock(&lock);
    l->ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void wait_for(const unsigned *counter, unsigned n)
{
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;

    pthread_mutex_lock(&lock);
    while (*counter < n && fbr_cond_wait(&changed, &lock, deadline) == 0)
        continue;
    if (*counter < n)
        fprintf(stderr, "%u of %u came\n", *counter, n);
    assert_int_equal(*counter, n);
    pthread_mutex_unlock(&lock);
}

static void line_open(struct line *l)
{
    pthread_mutex_lock(&lock); /* a race detector does not see what goes over the wire */
    memset(l, 0, sizeof(*l));
    assert_int_equal(fbr_link_open(&l->link, data_server, &ops, l), 0);
    if (sealed) {
        l->keys.alg = fbr_aead_preferred();
        assert_int_equal(fbr_random(l->keys.up, FBR_KEY_SIZE), 0);
        assert_int_equal(fbr_random(l->keys.down, FBR_KEY_SIZE), 0);
        assert_int_equal(fbr_link_seal(l->link, &l->keys), 0);
    }
    pthread_mutex_unlock(&lock);
    assert_int_equal(fbr_data_client_open(&l->up, url, fbr_link_id(l->link),
                                          sealed ? &l->keys : NULL, LIMIT, TEST_LONG_MS, NULL),
                     0);
}

static void set(bool *flag, bool value)
{
    pthread_mutex_lock(&lock);
    *flag = value;
    pthread_mutex_unlock(&lock);
}

static void line_run(struct line *l)
{
    l->stop = eventfd(0, EFD_CLOEXEC);
    l->running = pthread_create(&l->thread, NULL, receive, l) == 0;
    assert_true(l->running);
}

static void line_close(struct line *l)
{
    uint64_t one = 1;

    if (l->running) {
        assert_int_equal(write(l->stop, &one, sizeof(one)), sizeof(one));
        pthread_join(l->thread, NULL);
        close(l->stop);
    }
    l->running = false;
    fbr_data_client_close(l->up);
    fbr_link_close(l->link);
    l->up = NULL;
    l->link = NULL;
}

static int set_up(void **state)
{
    int rc;

    temp_dir_make(dir);
    sealed = strcmp(*state, "ipc") != 0;
    if (sealed)
        snprintf(url, sizeof(url),
                 strcmp(*state, "tcp6") == 0 ? "tcp://[::1]:0" : "tcp://127.0.0.1:0");
    else
        snprintf(url, sizeof(url), "unix:%s/d", dir);
    rc = fbr_data_server_open(&data_server, url, &options, NULL);
    if (rc == 0)
        snprintf(url, sizeof(url), "%s", fbr_data_server_url(data_server));
    memset(lines, 0, sizeof(lines));
    fbr_cond_init(&changed);
    return rc;
}

static int tear_down(void **state)
{
    for (int i = 0; i < PEERS; i++)
        line_close(&lines[i]);
    fbr_data_server_close(data_server);
    temp_dir_remove(dir);
    return 0;
}

static void send_up(struct line *l, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};

    assert_int_equal(fbr_data_client_send(l->up, &iov, 1), 0);
}

/* The server hangs up before all of it has left, or after that. */
static void send_up_in_vain(struct line *l, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    int rc = fbr_data_client_send(l->up, &iov, 1);

    assert_true(rc == 0 || rc == -EPIPE);
}

static void send_down(struct line *l, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};

    assert_int_equal(fbr_link_send(l->link, &iov, 1), 0);
}

/* ---- Tests ---- */

static void records_go_both_ways_in_order(void **state)
{
    const size_t sizes[] = {0, 1, 100, 65536, 262144, 5 << 20, 7};
    uint8_t *bytes = malloc(5 << 20);
    unsigned n = 0;

    memset(bytes, 'b', 5 << 20);
    line_open(&lines[0]);
    set(&lines[0].echo, true);
    line_run(&lines[0]);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++, n++) {
            memset(bytes, (int)n, sizes[i] < 4096 ? sizes[i] : 4096);
            send_up(&lines[0], bytes, sizes[i]);
        }
    for (int i = 0; i < MANY; i++, n++)
        send_up(&lines[0], &i, sizeof(i));
    wait_for(&lines[0].from_above, n);
    assert_int_equal(lines[0].from_below, n);
    assert_int_equal(lines[0].bytes_above, lines[0].bytes_below);
    assert_true(lines[0].sum_above == lines[0].sum_below);
    assert_int_equal(breaks_of(&lines[0]), 0);
    free(bytes);
}

static void a_peer_that_does_not_read_holds_up_no_other(void **state)
{
    char bytes[1000] = "";

    for (int i = 0; i < 2; i++)
        line_open(&lines[i]);
    line_run(&lines[1]);
    for (int i = 0; i < MANY; i++) { /* megabytes wait for the first */
        send_down(&lines[0], bytes, sizeof(bytes));
        send_down(&lines[1], bytes, sizeof(bytes));
    }
    wait_for(&lines[1].from_above, MANY);
    assert_int_equal(lines[0].from_above, 0);
    assert_true(fbr_link_queued(lines[0].link) > MANY * 500u);
    line_run(&lines[0]);
    wait_for(&lines[0].from_above, MANY);
    assert_int_equal(fbr_link_queued(lines[0].link), 0);
}

struct sender {
    struct line *line;
    bool down;
};

static void *send_many(void *arg)
{
    struct sender *s = arg;

    for (int i = 0; i < MANY / 4; i++) {
        struct iovec iov = {&i, sizeof(i)};

        if ((s->down ? fbr_link_send(s->line->link, &iov, 1)
                     : fbr_data_client_send(s->line->up, &iov, 1)) < 0)
            return "failed";
    }
    return NULL;
}

static void many_peers_and_threads(void **state)
{
    struct sender senders[2 * 2 * PEERS];
    pthread_t threads[2 * 2 * PEERS];
    void *wrong;

    for (int i = 0; i < PEERS; i++) {
        line_open(&lines[i]);
        line_run(&lines[i]);
    }
    for (int i = 0; i < 2 * 2 * PEERS; i++) {
        senders[i] = (struct sender){&lines[i % PEERS], i < 2 * PEERS};
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, &senders[i]), 0);
    }
    for (int i = 0; i < 2 * 2 * PEERS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < PEERS; i++) {
        wait_for(&lines[i].from_above, 2 * (MANY / 4));
        wait_for(&lines[i].from_below, 2 * (MANY / 4));
        assert_int_equal(breaks_of(&lines[i]), 0);
    }
}

static void a_link_may_be_closed_at_any_moment(void **state)
{
    for (int round = 0; round < 20; round++) {
        line_open(&lines[0]);
        set(&lines[0].close_at_record, round % 2); /* within its own callback, or from here */
        line_run(&lines[0]);
        for (int i = 0; i < 50; i++)
            send_up_in_vain(&lines[0], &i, sizeof(i));
        if (round % 2)
            wait_for(&lines[0].from_below, 1);
        line_close(&lines[0]);
    }
}

static void messages_for_nobody_are_dropped(void **state)
{
    struct fbr_data_client *up;

    if (!sealed) { /* one's own first message is not answered there */
        assert_int_equal(fbr_data_client_open(&up, url, 12345, NULL, LIMIT, TEST_LONG_MS, NULL), 0);
        fbr_data_client_close(up);
    } else {
        assert_int_equal(fbr_data_client_open(&up, url, 12345, NULL, LIMIT, SOON_MS, NULL),
                         -ETIMEDOUT);
    }
    line_open(&lines[0]);
    send_up(&lines[0], "x", 1);
    wait_for(&lines[0].from_below, 1);
}

/* Takes one connection and lets it fall, as a server does that is too busy to greet in time; then
 * another one has its name. */
struct late {
    int fd;
    char path[100], url[128];
};

static void *serve_late(void *arg)
{
    struct late *l = arg;

    close(accept(l->fd, NULL, NULL));
    close(l->fd);
    return rename(url + strlen("unix:"), l->path) < 0 ? "failed" : NULL;
}

static void what_breaks_before_the_first_message_is_not_lost(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct late l = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct fbr_link *link;
    struct fbr_data_client *up;
    pthread_t thread;
    void *wrong;

    snprintf(l.path, sizeof(l.path), "%s/late", dir);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", l.path);
    snprintf(l.url, sizeof(l.url), "unix:%s", l.path);
    assert_int_equal(fbr_link_open(&link, data_server, &ops, &lines[0]), 0);
    assert_int_equal(bind(l.fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(l.fd, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve_late, &l), 0);
    assert_int_equal(
        fbr_data_client_open(&up, l.url, fbr_link_id(link), NULL, LIMIT, TEST_LONG_MS, NULL), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_false(fbr_data_client_lost(up));
    fbr_link_close(link);
    fbr_data_server_close(data_server);
    data_server = NULL;
    while (!fbr_data_client_lost(up))
        sched_yield();
    fbr_data_client_close(up);
    unlink(at.sun_path);
}

/* The kernel lets it in, and nobody comes to greet it. */
static void who_does_not_answer_is_not_waited_for(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct fbr_error err = {0, ""};
    struct fbr_data_client *up = NULL;
    char deaf[128];

    snprintf(at.sun_path, sizeof(at.sun_path), "%s/deaf", dir);
    snprintf(deaf, sizeof(deaf), "unix:%s/deaf", dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(fbr_data_client_open(&up, deaf, 12345, NULL, LIMIT, 200, &err), -ETIMEDOUT);
    assert_null(up);
    assert_non_null(strstr(err.text, "/deaf for 0.2 s"));
    close(fd);
    unlink(at.sun_path);
}

/* A parent of another version may ask for an algorithm that we do not know. */
static void unknown_algorithms_are_refused_in_words(void **state)
{
    const struct fbr_keys keys = {.alg = 99};
    struct fbr_data_client *up = NULL;
    struct fbr_error err = {0, ""};

    assert_int_equal(fbr_data_client_open(&up, url, 1, &keys, LIMIT, SOON_MS, &err), -EINVAL);
    assert_null(up);
    assert_int_equal(err.code, -EINVAL);
    assert_non_null(strstr(err.text, "cannot encrypt"));
}

/* Descriptors are not what is missing: nobody should raise their limit. */
static void one_socket_more_than_nanomsg_has_is_refused_in_words(void **state)
{
    static struct fbr_sock *all[1000];
    struct fbr_error err = {0, ""};
    size_t n = 0;

    fbr_fds_raise();
    while (n < 1000 && fbr_sock_connect(&all[n], "tcp://127.0.0.1:1", 0, &err) == 0)
        n++;
    for (size_t i = 0; i < n; i++)
        fbr_sock_close(all[i]);
    if (strstr(err.text, "file descriptors"))
        skip();
    assert_int_equal(err.code, -EMFILE);
    assert_non_null(strstr(err.text, "tcp://127.0.0.1:1: nanomsg allows"));
}

/* Somebody who knows the id of a link, as a wire tap does. */
static void strangers_break_only_what_is_not_sealed(void **state)
{
    struct fbr_data_client *up = NULL;

    line_open(&lines[0]);
    send_up(&lines[0], "x", 1);
    wait_for(&lines[0].from_below, 1);
    assert_int_equal(fbr_data_client_open(&up, url, fbr_link_id(lines[0].link), NULL, LIMIT,
                                          sealed ? SOON_MS : TEST_LONG_MS, NULL),
                     sealed ? -ETIMEDOUT : 0);
    if (sealed) {
        send_up(&lines[0], "x", 1);
        wait_for(&lines[0].from_below, 2);
        assert_int_equal(breaks_of(&lines[0]), 0);
    } else { /* within one user's directory: an error, not a crash */
        wait_for(&lines[0].breaks, 1);
        assert_int_equal(lines[0].why, -EILSEQ);
        assert_int_equal(fbr_link_send(lines[0].link, &(struct iovec){"x", 1}, 1), -EPIPE);
    }
    fbr_data_client_close(up);
}

static void a_record_above_the_limit_breaks_the_link(void **state)
{
    uint8_t *bytes = calloc(1, LIMIT + 1);

    line_open(&lines[0]);
    send_up_in_vain(&lines[0], bytes, LIMIT + 1);
    wait_for(&lines[0].breaks, 1);
    assert_int_equal(lines[0].why, -EMSGSIZE);
    free(bytes);
}

static int try_post_to(struct line *l, uint64_t stream, const void *bytes, size_t len)
{
    const struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct pollfd room = {.fd = fbr_data_client_room_fd(l->up), .events = POLLIN};
    int rc = fbr_data_client_post_to(l->up, stream, &iov, 1);

    fbr_data_client_never_wait(l->up);
    while (rc == 0 && (rc = fbr_data_client_flush(l->up)) > 0)
        rc = poll(&room, 1, TEST_LONG_MS) == 1 ? 0 : -ETIMEDOUT;
    return rc;
}

static void post_to(struct line *l, uint64_t stream, const void *bytes, size_t len)
{
    assert_int_equal(try_post_to(l, stream, bytes, len), 0);
}

static void on_drained(void *user)
{
}

static void a_long_record_of_a_stream_that_never_had_a_branch_breaks_the_link(void **state)
{
    uint8_t *bytes = calloc(1, 300000);
    int rc;

    line_open(&lines[0]);
    post_to(&lines[0], 3, bytes, 1); /* as when it ended before anybody heard of it */
    post_to(&lines[0], 0, "x", 1);
    wait_for(&lines[0].from_below, 1);
    wait_for(&lines[0].breaks, 0);
    rc = try_post_to(&lines[0], 3, bytes, 300000);
    assert_true(rc == 0 || rc == -EPIPE); /* its first part may break the link while others leave */
    wait_for(&lines[0].breaks, 1);
    assert_int_equal(lines[0].why, -EPROTO);
    assert_int_equal(lines[0].from_below, 1);
    free(bytes);
}

static void long_records_of_several_branches_come_at_the_same_time(void **state)
{
    enum { LONG = 700000, BRANCHES = PEERS - 1 };
    uint8_t *bytes = calloc(1, LONG);
    struct fbr_link *branch[BRANCHES];
    struct line *l = &lines[0];

    line_open(l);
    for (uint64_t i = 0; i < BRANCHES; i++) {
        const struct iovec iov = {bytes, LONG};

        assert_int_equal(
            fbr_link_branch(&branch[i], l->link, i + 1, &ops, &lines[i + 1], on_drained, NULL), 0);
        assert_int_equal(fbr_data_client_post_to(l->up, i + 1, &iov, 1), 0);
    }
    /* What comes for one that is closed goes nowhere, and the others get theirs. */
    fbr_link_close(branch[1]);
    post_to(l, 0, "x", 1);
    for (int i = 0; i < BRANCHES; i++)
        if (i != 1)
            wait_for(&lines[i + 1].from_below, 1);
    wait_for(&l->from_below, 1);
    wait_for(&lines[2].from_below, 0);
    wait_for(&l->breaks, 0);
    for (int i = 0; i < BRANCHES; i++)
        if (i != 1)
            fbr_link_close(branch[i]);
    free(bytes);
}

static void who_is_no_host_takes_no_long_records_of_streams(void **state)
{
    uint8_t *bytes = calloc(1, 300000);
    const struct iovec iov = {bytes, 300000};
    struct pollfd p;
    struct fbr_link *branch;
    int rc = 0;

    line_open(&lines[0]);
    fbr_data_client_no_streams(lines[0].up);
    assert_int_equal(fbr_link_branch(&branch, lines[0].link, 1, &ops, NULL, on_drained, NULL), 0);
    assert_int_equal(fbr_link_send(branch, &iov, 1), 0);
    p = (struct pollfd){.fd = fbr_data_client_fd(lines[0].up), .events = POLLIN};
    while (rc >= 0) {
        rc = fbr_data_client_recv(lines[0].up, on_record_down, &lines[0]);
        if (rc == 0)
            assert_int_equal(poll(&p, 1, TEST_LONG_MS), 1);
    }
    assert_int_equal(rc, -EPROTO);
    assert_int_equal(lines[0].from_above, 0);
    fbr_link_close(branch);
    free(bytes);
}

/* ---- Strangers at the port: nanomsg's own protocol, and worse ---- */

static int stranger(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

/* The greeting of SP over TCP (RFC of nanomsg, sp-tcp-mapping-01): NUL 'S' 'P' version, endpoint
 * type, reserved. */
static void put_greeting(uint8_t out[8], unsigned type)
{
    const uint8_t bytes[8] = {0, 'S', 'P', 0, (uint8_t)(type >> 8), (uint8_t)type, 0, 0};

    memcpy(out, bytes, 8);
}

static void hostile_bytes_at_the_port(void **state)
{
    enum { REQ = 0x30, PUB = 0x20 };
    static const uint8_t lengths[][8] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0, 0, 0, 1, 0, 0, 0, 0},
        {0, 0, 0, 0, 0, 8, 0, 1},
        {0, 0, 0, 0, 0, 0, 0, 0},
        {0, 0, 0, 0, 0, 0, 0, 3},
        {0, 0, 0, 0, 0, 0, 0, 16},
    };
    int fds[500], n = 0;

    line_open(&lines[0]);
    set(&lines[0].echo, true);
    line_run(&lines[0]);
    for (size_t i = 0; i < sizeof(lengths) / 8; i++)
        for (int type = 0; type < 2; type++) {
            uint8_t bytes[64] = {0};

            put_greeting(bytes, type ? PUB : REQ);
            memcpy(bytes + 8, lengths[i], 8);
            memset(bytes + 16, i % 2 ? 0x00 : 0xff, 16);
            fds[n] = stranger();
            assert_true(send(fds[n++], bytes, sizeof(bytes), MSG_NOSIGNAL) > 0);
        }
    for (int i = 0; i < 100; i++) {
        uint8_t bytes[512];

        assert_int_equal(fbr_random(bytes, sizeof(bytes)), 0);
        if (i % 2)
            put_greeting(bytes, REQ);
        fds[n] = stranger();
        assert_true(send(fds[n++], bytes, sizeof(bytes), MSG_NOSIGNAL) > 0);
        send_up(&lines[0], &i, sizeof(i));
    }
    while (n < 500)
        fds[n++] = stranger(); /* silent */
    for (int i = 0; i < 1000; i++)
        send_up(&lines[0], &i, sizeof(i));
    wait_for(&lines[0].from_above, 1100);
    assert_int_equal(breaks_of(&lines[0]), 0);
    line_open(&lines[1]); /* and others find their way */
    send_up(&lines[1], "x", 1);
    wait_for(&lines[1].from_below, 1);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    send_up(&lines[1], "x", 1);
    wait_for(&lines[1].from_below, 2);
}

/* As fast as one thread can call, whether or not those before were accepted. */
static void callers_that_come_at_once_find_room(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fds[100];

    snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", url + strlen("unix:"));
    for (int i = 0; i < 100; i++)
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(connect(fds[i], (struct sockaddr *)&at, sizeof(at)), 0);
    for (int i = 0; i < 100; i++)
        close(fds[i]);
    line_open(&lines[0]);
    send_up(&lines[0], "x", 1);
    wait_for(&lines[0].from_below, 1);
}

static void addresses_that_cannot_be_served(void **state)
{
    static const char *const bad[] = {"",
                                      "unix:/nowhere/at/all/d",
                                      "tcp://127.0.0.1:99999",
                                      "tcp://1.2.3.4:5",
                                      "tcp://[::1:5",
                                      "udp://x"};
    struct fbr_error err;
    struct fbr_data_server *h;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memset(&err, 0, sizeof(err));
        assert_true(fbr_data_server_open(&h, bad[i], &options, &err) < 0);
        assert_non_null(strstr(err.text, bad[i]));
    }
    assert_int_equal(fbr_data_server_open(&h, url, &options, &err), -EADDRINUSE);
}

#define ON(transport, fn)                                                          \
    {                                                                              \
#transport ": " #fn, fn, set_up, tear_down, (void *)(uintptr_t) #transport \
    }
#define ON_BOTH(fn) ON(ipc, fn), ON(tcp, fn)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(records_go_both_ways_in_order),
        ON(tcp6, records_go_both_ways_in_order),
        ON_BOTH(a_peer_that_does_not_read_holds_up_no_other),
        ON_BOTH(many_peers_and_threads),
        ON_BOTH(a_link_may_be_closed_at_any_moment),
        ON_BOTH(messages_for_nobody_are_dropped),
        ON(ipc, what_breaks_before_the_first_message_is_not_lost),
        ON(ipc, who_does_not_answer_is_not_waited_for),
        ON(ipc, unknown_algorithms_are_refused_in_words),
        ON(ipc, one_socket_more_than_nanomsg_has_is_refused_in_words),
        ON_BOTH(strangers_break_only_what_is_not_sealed),
        ON_BOTH(a_record_above_the_limit_breaks_the_link),
        ON_BOTH(a_long_record_of_a_stream_that_never_had_a_branch_breaks_the_link),
        ON_BOTH(long_records_of_several_branches_come_at_the_same_time),
        ON_BOTH(who_is_no_host_takes_no_long_records_of_streams),
        ON(tcp, hostile_bytes_at_the_port),
        ON(ipc, callers_that_come_at_once_find_room),
        ON_BOTH(addresses_that_cannot_be_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
