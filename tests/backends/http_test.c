/* http_test.c - requests on the loop: answers, repetitions, requests that are answered now, TLS, sentences.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/http_bench.h"
#include "tests/support/sync.h"

/* Memory of this thread. */
static _Thread_local unsigned to_refuse; /* the number of the request; 0: none */

static bool refuse(void)
{
    return to_refuse && --to_refuse == 0;
}

#include "tests/support/wrapped_malloc.h"

/* ---- Answers ---- */

static void test_an_answer_has_status_and_body(void **state)
{
    struct got g;

    got_init(&g, *state, "POST", "/echo");
    g.r.body = "{\"a\":1}";
    g.r.len = 7;
    got_ask(&g);
    assert_int_equal(g.status, 200);
    assert_string_equal(g.body, "POST application/json 7 {\"a\":1}");
    got_init(&g, *state, "DELETE", "/echo");
    got_ask(&g);
    assert_string_equal(g.body, "DELETE application/json 0 ");
    got_init(&g, *state, "GET", "/echo");
    g.r.type = "application/x-tar";
    got_ask(&g);
    assert_string_equal(g.body, "GET application/x-tar 0 ");
}

static void test_a_refusal_is_an_answer_at_once(void **state)
{
    struct bench *b = *state;
    struct got g;
    char say[200];
    struct fbr_http_answer a;

    got_init(&g, b, "GET", "/nothing");
    g.r.patience_ms = 60000;
    got_ask(&g);
    assert_int_equal(g.status, 404);
    a = (struct fbr_http_answer){.status = 404, .body = g.body, .len = g.len, .why = ""};
    assert_string_equal(fbr_http_describe(&a, say, sizeof(say)), "no <such> thing");
    assert_int_equal(http_server_asked(b->server), 1);
}

static void test_a_file_is_a_body(void **state)
{
    struct got g;
    char name[] = "/tmp/http_test.XXXXXX";
    int fd = mkstemp(name), ends[2];

    unlink(name);
    assert_int_equal(write(fd, "skipped-body", 12), 12);
    lseek(fd, 8, SEEK_SET);
    got_init(&g, *state, "PUT", "/echo");
    g.r.type = "text/plain";
    g.r.body_fd = fd;
    got_ask(&g);
    assert_string_equal(g.body, "PUT text/plain 4 body");
    close(fd);
    assert_int_equal(pipe(ends), 0); /* has no length */
    assert_int_equal(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    got_init(&g, *state, "POST", "/echo");
    g.r.body_fd = ends[0];
    got_ask(&g);
    assert_string_equal(g.body, "POST application/json 11 from a pipe");
    close(ends[0]);
}

static void test_an_answer_is_limited(void **state)
{
    struct got g;

    got_init(&g, *state, "GET", "/too-much");
    g.r.patience_ms = 60000; /* and it is not asked for again */
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_string_equal(g.why, "the answer is longer than 64 MiB");
    assert_int_equal(http_server_asked(((struct bench *)*state)->server), 1);
}

static void test_no_server_is_a_sentence(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.socket = "/nowhere/at/all";
    bench_reopen(b);
    got_init(&g, b, "GET", "/echo");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_non_null(strstr(g.why, "onnect"));
    got_stream(&g, b, "/stream");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_int_equal(g.opened, 0);
}

static void test_silence_ends_with_the_time(void **state)
{
    struct bench *b = *state;
    struct got g;

    got_init(&g, b, "GET", "/hangs");
    g.r.timeout_ms = 50;
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_true(g.why[0] != '\0');
}

/* ---- Repetitions ---- */

struct stats_asked {
    struct bench *b;
    struct fbr_http_stats stats;
};

static int get_stats(void *arg)
{
    struct stats_asked *a = arg;

    fbr_http_stats(a->b->http, &a->stats);
    return 0;
}

static struct fbr_http_stats stats_of(struct bench *b)
{
    struct stats_asked a = {.b = b};

    fbr_loop_call(b->loop, get_stats, &a);
    return a.stats;
}

static void repeats_after(struct bench *b, int status, const char *headers)
{
    struct fbr_http_stats before, after;
    struct got g;
    int asked = http_server_asked(b->server);

    b->stage.status = status;
    b->stage.headers = headers;
    b->stage.fails = asked + 2;
    before = stats_of(b);
    got_init(&g, b, "POST", "/fails");
    g.r.patience_ms = 60000;
    g.r.body = "{}";
    g.r.len = 2;
    got_ask(&g);
    assert_int_equal(g.status, 200);
    assert_string_equal(g.body, "at last");
    assert_int_equal(http_server_asked(b->server), asked + 3);
    after = stats_of(b);
    if (status) /* where a connection that was kept is closed, libcurl itself begins again */
        assert_int_equal(after.repeats - before.repeats, 2);
}

static void test_what_fails_for_now_is_repeated(void **state)
{
    static const int busy[] = {429, 500, 502, 503, 504, 0};

    for (size_t i = 0; i < sizeof(busy) / sizeof(busy[0]); i++)
        repeats_after(*state, busy[i], "");
}

static const char *const broken[] = {
    "HTTP/1.1 2",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 201 Created\r\nContent-Ty",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nServer: D",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nhalf of a chunk",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\nhalf\r\n",
};

/* What comes behind the body is told as headers are. */
static void test_an_answer_may_have_trailers(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->stage.raw = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                   "\r\n4\r\nbody\r\n0\r\nX-Sum: 1\r\nX-Last: 2\r\n\r\n";
    b->stage.fails = 1;
    got_init(&g, b, "GET", "/breaks");
    got_ask(&g);
    assert_int_equal(g.status, 200);
    assert_string_equal(g.body, "body");
}

/* It is not an answer, whatever part of it has come. */
static void test_an_answer_that_breaks_off_is_asked_for_again(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->stage.reset = b->o.ca; /* or it ends properly */
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        b->stage.raw = broken[i];
        b->stage.fails = http_server_asked(b->server) + 1;
        got_init(&g, b, "GET", "/breaks");
        got_ask(&g);
        if (g.status)
            fail_msg("status %d of: %s", g.status, broken[i]);
        assert_true(g.why[0] != '\0');
        b->stage.fails = http_server_asked(b->server) + 2;
        got_init(&g, b, "GET", "/breaks");
        g.r.patience_ms = 60000;
        got_ask(&g);
        assert_int_equal(g.status, 200);
        assert_string_equal(g.body, "at last");
    }
}

static void test_an_answer_that_is_reset_is_asked_for_again(void **state)
{
    struct bench *b = *state;

    b->o.ca = http_server_ca(b->server);
    b->o.server_name = "engine.test";
    bench_reopen(b);
    test_an_answer_that_breaks_off_is_asked_for_again(state);
}

static void test_the_server_says_when(void **state)
{
    uint64_t start = fbr_now_ms();

    repeats_after(*state, 429, "Retry-After: 1\r\n");
    assert_true(fbr_now_ms() - start >= 2000);
}

/* In ms it is about as large as a number can be. */
static void test_a_server_that_says_never_is_asked_at_the_very_end(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->stage.status = 429;
    b->stage.headers = "Retry-After: 18446744073709551\r\n";
    b->stage.fails = 1000000;
    got_init(&g, b, "GET", "/fails");
    g.r.patience_ms = 1000;
    got_ask(&g);
    assert_int_equal(g.status, 429);
    assert_int_equal(http_server_asked(b->server), 2);
}

static void test_a_last_word_is_not_repeated(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.final_500 = true;
    bench_reopen(b);
    b->stage.status = 500;
    b->stage.fails = 100;
    got_init(&g, b, "POST", "/fails");
    g.r.patience_ms = 60000;
    got_ask(&g);
    assert_int_equal(g.status, 500);
    assert_int_equal(http_server_asked(b->server), 1);
}

static void test_patience_ends(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->stage.status = 503;
    b->stage.fails = 1000;
    got_init(&g, b, "GET", "/fails");
    g.r.patience_ms = 300;
    got_ask(&g);
    assert_int_equal(g.status, 503);
    got_init(&g, b, "GET", "/fails"); /* none at all */
    got_ask(&g);
    assert_int_equal(g.status, 503);
}

static const char *next_token(void *user)
{
    int *n = user;
    static char text[32];

    snprintf(text, sizeof(text), "token-%d", ++*n);
    return text;
}

static void test_each_attempt_has_its_token(void **state)
{
    struct bench *b = *state;
    struct got g;
    int n = 0;

    b->o.token = next_token;
    b->o.token_user = &n;
    bench_reopen(b);
    got_init(&g, b, "GET", "/token");
    g.r.patience_ms = 60000;
    got_ask(&g);
    assert_string_equal(g.body, "Bearer token-2");
}

static void test_a_name_and_a_password_are_told(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.user = "me";
    b->o.password = "secret";
    bench_reopen(b);
    got_init(&g, b, "GET", "/token");
    g.r.patience_ms = 60000;
    got_ask(&g);
    assert_string_equal(g.body, "Basic bWU6c2VjcmV0");
}

static void test_so_many_at_once(void **state)
{
    enum { N = 20, PARALLEL = 3 };
    struct bench *b = *state;
    struct got g[N], stream;

    b->o.parallel = PARALLEL;
    bench_reopen(b);
    got_stream(&stream, b, "/stream"); /* takes nobody's place */
    got_send(&stream);
    sem_come(&stream.more);
    for (int i = 0; i < N; i++) {
        got_init(&g[i], b, "GET", "/held");
        got_send(&g[i]);
    }
    for (int i = 0; i < PARALLEL; i++)
        sem_come(&b->stage.come);
    for (int i = 0; i < N + 1; i++) /* one for the stream */
        sem_post(&b->stage.go);
    for (int i = 0; i < N; i++)
        sem_come(&g[i].done);
    assert_int_equal(http_server_most(b->server), PARALLEL + 1);
    sem_come(&stream.done);
    fbr_buf_fini(&stream.stream);
}

static int send_and_lack(void *arg)
{
    int rc = got_send_it(arg);

    to_refuse = 1; /* what the loop needs to watch the socket */
    return rc;
}

/* The stream does not keep the request from being repeated. */
static void test_a_request_whose_socket_lacks_memory_is_repeated(void **state)
{
    struct bench *b = *state;
    struct got g, stream;

    got_stream(&stream, b, "/stream");
    got_send(&stream);
    sem_come(&stream.more);
    got_init(&g, b, "GET", "/echo");
    g.r.patience_ms = 60000;
    assert_int_equal(fbr_loop_call(b->loop, send_and_lack, &g), 0);
    sem_come(&g.done);
    sem_post(&b->stage.go);
    sem_come(&stream.done);
    fbr_buf_fini(&stream.stream);
    assert_int_equal(g.status, 200);
}

/* Returns the descriptor of the client's connection to a server at that path. */
static int connection_to(const char *path)
{
    for (int fd = 3; fd < 1000; fd++) {
        struct sockaddr_un to = {0};
        socklen_t len = sizeof(to);

        if (getpeername(fd, (struct sockaddr *)&to, &len) == 0 && to.sun_family == AF_UNIX &&
            !strncmp(to.sun_path, path, sizeof(to.sun_path)))
            return fd;
    }
    return -1;
}

static void test_programs_that_are_started_get_no_connection(void **state)
{
    struct bench *b = *state;
    struct got g;
    int flags;

    got_init(&g, b, "GET", "/held");
    got_send(&g);
    sem_come(&b->stage.come);
    flags = fcntl(connection_to(b->path), F_GETFD);
    sem_post(&b->stage.go);
    sem_come(&g.done);
    assert_int_equal(flags, FD_CLOEXEC);
}

/* ---- Name servers ---- */

#define NOT_RESOLVED_S 10

static sem_t resolver;
static atomic_bool resolved;

/* In place of the C library's, for libcurl, too. The look-up of one name lasts until the test lets it end. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    __typeof__(&getaddrinfo) real = (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");
    struct timespec until;

    if (!name || strcmp(name, "slow.test") != 0)
        return real(name, service, hints, out);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += NOT_RESOLVED_S;
    sem_timedwait(&resolver, &until);
    atomic_store(&resolved, true);
    return EAI_AGAIN;
}

/* As when the network is gone: the C library asks each name server several times, for each domain of its list. The loop
 * must go on meanwhile. */
static void test_a_look_up_of_a_name_is_not_waited_for(void **state)
{
    struct bench *b = *state;
    struct got g;

    sem_init(&resolver, 0, 0);
    b->o.url = "http://slow.test:1";
    b->o.socket = NULL;
    bench_reopen(b);
    got_init(&g, b, "GET", "/");
    g.r.timeout_ms = 100;
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_false(atomic_load(&resolved));
    sem_post(&resolver);
    while (!atomic_load(&resolved))
        let_time_pass(1);
}

/* ---- Now ---- */

static void test_now_answers_before_it_returns(void **state)
{
    enum { N = 40 };
    struct bench *b = *state;
    struct fbr_http_request r[N];
    struct got g[N];

    b->o.parallel = 4;
    bench_reopen(b);
    for (int i = 0; i < N; i++) {
        got_init(&g[i], b, "GET", i % 2 ? "/echo" : "/nothing");
        r[i] = g[i].r;
    }
    fbr_http_now(b->http, r, N, 60000);
    for (int i = 0; i < N; i++) {
        assert_int_equal(g[i].answers, 1);
        assert_int_equal(g[i].status, i % 2 ? 200 : 404);
    }
    assert_true(http_server_most(b->server) <= 4);
    fbr_http_now(b->http, r, 0, 60000);
}

static void test_now_ends_with_its_time(void **state)
{
    struct bench *b = *state;
    struct fbr_http_request r[3];
    struct got g[3];

    b->o.parallel = 2;
    bench_reopen(b);
    for (int i = 0; i < 3; i++) {
        got_init(&g[i], b, "GET", "/hangs");
        r[i] = g[i].r;
    }
    fbr_http_now(b->http, r, 3, 100);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(g[i].answers, 1);
        assert_int_equal(g[i].status, 0);
        assert_string_equal(g[i].why, "no answer in time");
    }
    b->o.socket = "/nowhere/at/all";
    bench_reopen(b);
    fbr_http_now(b->http, r, 3, 60000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(g[i].answers, 2);
        assert_int_equal(g[i].status, 0);
        assert_non_null(strstr(g[i].why, "onnect"));
    }
}

/* ---- TLS ---- */

static void test_a_certificate_is_checked(void **state)
{
    struct bench *b = *state;
    struct got g;

    got_init(&g, b, "GET", "/certified"); /* nobody that the system knows has signed it */
    got_ask(&g);
    assert_int_equal(g.status, 0);
    b->o.ca = http_server_ca(b->server);
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified"); /* it is for another name than 127.0.0.1 */
    got_ask(&g);
    assert_int_equal(g.status, 0);
    b->o.server_name = "engine.test";
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "no");
    b->o.server_name = "another.test";
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    b->o.insecure = true;
    b->o.ca = NULL;
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "no");
}

static void use_certificates(struct bench *b)
{
    b->o.ca = http_server_ca(b->server);
    b->o.cert = http_server_cert(b->server);
    b->o.key = http_server_key(b->server);
    b->o.server_name = "engine.test";
    bench_reopen(b);
}

static void test_a_client_shows_its_certificate(void **state)
{
    struct bench *b = *state;
    struct got g;

    use_certificates(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "yes");
    got_stream(&g, b, "/much");
    got_ask(&g);
    assert_int_equal(g.stream.len, (size_t)HTTP_MUCH * HTTP_PIECE);
    fbr_buf_fini(&g.stream);
}

/* A server that has begun to answer has accepted the certificate. */
static void test_an_answer_that_breaks_off_is_not_about_the_certificate(void **state)
{
    struct bench *b = *state;
    struct got g;

    use_certificates(b);
    b->stage.raw = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    b->stage.fails = 1;
    got_init(&g, b, "GET", "/breaks");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_int_equal(g.tls, FBR_HTTP_NO_MATTER);
    b->stage.raw = "";
    b->stage.fails = 2;
    got_init(&g, b, "GET", "/breaks");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_int_equal(g.tls, FBR_HTTP_OURS);
}

/* Nothing here knows the password, and nothing asks for it. */
static void test_an_encrypted_key_is_refused(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.cert = http_server_cert(b->server);
    b->o.key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
               "DEK-Info: AES-128-CBC,00000000000000000000000000000000\n\n"
               "AAAAAAAAAAAAAAAAAAAAAA==\n-----END RSA PRIVATE KEY-----\n";
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_non_null(strstr(g.why, "private key"));
}

static int use_cert(void *arg)
{
    struct bench *b = arg;

    b->o.ca = http_server_ca(b->server);
    b->o.cert = http_server_cert(b->server);
    b->o.key = http_server_key(b->server);
    return 0;
}

/* Also where a connection is kept that has shown none. */
static void test_a_client_shows_the_certificate_that_it_gets_later(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.ca = http_server_ca(b->server);
    b->o.server_name = "engine.test";
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "no");
    assert_int_equal(fbr_loop_call(b->loop, use_cert, b), 0);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "yes");
}

static void test_a_client_trusts_the_authority_that_it_gets_later(void **state)
{
    struct bench *b = *state;
    struct got g;

    b->o.server_name = "engine.test";
    bench_reopen(b);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_int_equal(g.status, 0);
    assert_int_equal(fbr_loop_call(b->loop, use_cert, b), 0);
    got_init(&g, b, "GET", "/certified");
    got_ask(&g);
    assert_string_equal(g.body, "yes");
}

/* ---- Proxies ---- */

#define BEHIND "api.fiber.invalid" /* no resolver knows it */

static bool say_path(struct http_peer *p, const struct http_asked *q, void *user)
{
    return http_say(p, 200, "", q->path);
}

static void ask_by(struct bench *b, struct got *g, const char *url, const char *proxy,
                   const char *no_proxy)
{
    b->o.url = url;
    b->o.socket = NULL;
    b->o.proxy = proxy;
    b->o.no_proxy = no_proxy;
    bench_reopen(b);
    got_init(g, b, "GET", "/x");
    got_ask(g);
}

static void test_a_proxy_is_used_but_for_its_exceptions(void **state)
{
    struct http_server *proxy = http_server_open(NULL, false, say_path, NULL);
    struct got g;
    char url[64];

    snprintf(url, sizeof(url), "http://127.0.0.1:%d", http_server_port(proxy));
    ask_by(*state, &g, "http://" BEHIND, url, "a.b,127.0.0.0/8");
    assert_int_equal(g.status, 200);
    assert_string_equal(g.body, "http://" BEHIND "/x");
    ask_by(*state, &g, "http://127.0.0.1:1", url, "a.b,127.0.0.0/8");
    assert_int_equal(g.status, 0);
    assert_int_equal(http_server_asked(proxy), 1);
    http_server_close(proxy);
}

/* A SOCKS 5 proxy (RFC 1928) for one connection: keeps what it is asked for, and refuses. */
struct socks {
    int fd;
    unsigned char asked[64];
};

static void *serve_socks(void *arg)
{
    struct socks *s = arg;
    int fd = accept(s->fd, NULL, NULL);
    unsigned char hello[16];

    if (recv(fd, hello, sizeof(hello), 0) > 0 && send(fd, "\5\0", 2, MSG_NOSIGNAL) == 2 &&
        recv(fd, s->asked, sizeof(s->asked) - 1, 0) > 0)
        send(fd, "\5\2\0\1\0\0\0\0\0\0", 10, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void test_a_socks_proxy_resolves_the_name(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct socks s = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    socklen_t len = sizeof(at);
    struct got g;
    pthread_t thread;
    char url[64];

    assert_int_equal(bind(s.fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(s.fd, 1), 0);
    assert_int_equal(getsockname(s.fd, (struct sockaddr *)&at, &len), 0);
    snprintf(url, sizeof(url), "socks5://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, serve_socks, &s), 0);
    ask_by(*state, &g, "http://" BEHIND, url, NULL);
    shutdown(s.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(s.fd);
    assert_int_equal(g.status, 0);
    assert_int_equal(s.asked[3], 3); /* a name */
    assert_string_equal((char *)s.asked + 5, BEHIND);
}

/* ---- Texts ---- */

static const char *said(int status, const char *body, const char *why, char out[64])
{
    const struct fbr_http_answer a = {
        .status = status, .body = body, .len = strlen(body), .why = why};

    return fbr_http_describe(&a, out, 64);
}

static void test_texts(void **state)
{
    char out[64], *escaped = fbr_http_escape("a b/c?d=\xc3\xa9~{}");

    assert_string_equal(escaped, "a%20b%2Fc%3Fd%3D%C3%A9~%7B%7D");
    free(escaped);
    assert_string_equal(said(0, "", "no route", out), "no route");
    assert_string_equal(said(404, "", "", out), "HTTP status 404");
    assert_string_equal(said(404, "<html>", "", out), "HTTP status 404: <html>");
    assert_string_equal(said(404, "a\nb\r\n", "", out), "HTTP status 404: a b");
    assert_string_equal(said(404, "{\"message\":\"no \\\"x\\\"\"}", "", out), "no \"x\"");
    assert_string_equal(said(404, "{\"message\": \"a\\tb\\u0026c\\u00e9\"}\n", "", out),
                        "a b&c\xc3\xa9");
    assert_string_equal(said(404, "{\"error\":{\"message\":\"of a proxy\"}}", "", out),
                        "HTTP status 404: {\"error\":{\"message\":\"of a proxy\"}}");
    assert_string_equal(said(404, "{\"message\":\"cut", "", out),
                        "HTTP status 404: {\"message\":\"cut");
    assert_string_equal(said(404, "{\"message\":7}", "", out), "HTTP status 404: {\"message\":7}");
}

int main(void)
{
#define PLAIN(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
#define TLS(f) cmocka_unit_test_setup_teardown(f, bench_set_up_tls, bench_tear_down)
    const struct CMUnitTest tests[] = {
        PLAIN(test_an_answer_has_status_and_body),
        PLAIN(test_a_refusal_is_an_answer_at_once),
        PLAIN(test_a_file_is_a_body),
        PLAIN(test_an_answer_is_limited),
        PLAIN(test_no_server_is_a_sentence),
        PLAIN(test_silence_ends_with_the_time),
        PLAIN(test_what_fails_for_now_is_repeated),
        PLAIN(test_an_answer_may_have_trailers),
        PLAIN(test_an_answer_that_breaks_off_is_asked_for_again),
        TLS(test_an_answer_that_is_reset_is_asked_for_again),
        PLAIN(test_the_server_says_when),
        PLAIN(test_a_server_that_says_never_is_asked_at_the_very_end),
        PLAIN(test_a_last_word_is_not_repeated),
        PLAIN(test_patience_ends),
        PLAIN(test_each_attempt_has_its_token),
        PLAIN(test_a_name_and_a_password_are_told),
        PLAIN(test_so_many_at_once),
        PLAIN(test_a_request_whose_socket_lacks_memory_is_repeated),
        PLAIN(test_programs_that_are_started_get_no_connection),
        PLAIN(test_a_look_up_of_a_name_is_not_waited_for),
        PLAIN(test_now_answers_before_it_returns),
        PLAIN(test_now_ends_with_its_time),
        TLS(test_a_certificate_is_checked),
        TLS(test_a_client_shows_its_certificate),
        TLS(test_an_answer_that_breaks_off_is_not_about_the_certificate),
        TLS(test_an_encrypted_key_is_refused),
        TLS(test_a_client_shows_the_certificate_that_it_gets_later),
        TLS(test_a_client_trusts_the_authority_that_it_gets_later),
        PLAIN(test_a_proxy_is_used_but_for_its_exceptions),
        PLAIN(test_a_socks_proxy_resolves_the_name),
        cmocka_unit_test(test_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
