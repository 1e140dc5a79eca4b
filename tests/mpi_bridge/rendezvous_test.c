/* rendezvous_test.c - the server that Horovod's ranks meet at: what it keeps, and what HTTP it
 * takes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "mpi_bridge/rendezvous.h"

static const struct fbr_service_ops *const ops = &fbr_service_rendezvous;
static struct fbr_service *server;
static struct fbr_service_conn *conn;
static char got[65536];
static bool gone;

static void on_send(void *peer, const void *data, size_t len)
{
    size_t at = strlen(got);

    assert_false(gone);
    assert_true(at + len < sizeof(got));
    memcpy(got + at, data, len);
    got[at + len] = 0;
}

static void on_hang_up(void *peer)
{
    gone = true;
}

static int open_server(void **state)
{
    static const struct fbr_service_host host = {on_send, on_hang_up};

    server = ops->open(&host);
    conn = ops->opened(server, NULL);
    gone = false;
    return 0;
}

static int close_server(void **state)
{
    if (!gone)
        ops->closed(conn);
    ops->close(server);
    return 0;
}

/* Sends it, one byte at a time when `slowly`; a connection that is gone is opened again. */
static void ask(const char *text, bool slowly)
{
    size_t len = strlen(text);

    if (gone)
        conn = ops->opened(server, NULL);
    gone = false;
    got[0] = 0;
    for (size_t at = 0; at < len && !gone; at += slowly ? 1 : len)
        ops->bytes(conn, text + at, slowly ? 1 : len);
}

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define MISSING "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

#define expect(text, answer)              \
    do {                                  \
        ask(text, false);                 \
        assert_string_equal(got, answer); \
        ask(text, true);                  \
        assert_string_equal(got, answer); \
    } while (0)

static void refused(const char *text, int status)
{
    int found = 0;

    for (int slowly = 0; slowly < 2; slowly++) {
        ask(text, slowly);
        assert_true(gone);
        assert_int_equal(sscanf(got, "HTTP/1.1 %d", &found), 1);
        if (found != status)
            fail_msg("%s: %d, not %d", text, found, status);
    }
}

static void test_a_value_is_there_once_it_is_put(void **state)
{
    expect("GET /s/k HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", MISSING);
    expect("PUT /s/k HTTP/1.1\r\nHost: x\r\ncontent-length:  5 \r\n\r\nvalue", OK);
    expect("GET /s/k HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nvalue");
    expect("PUT /s/k HTTP/1.1\r\nContent-Length: 0\r\n\r\n", OK);
    expect("GET /s/k HTTP/1.1\r\n\r\nGET /s/l HTTP/1.1\n\n", OK MISSING);
    expect("DELETE /s/k HTTP/1.1\r\n\r\n", OK);
    expect("GET /s/k HTTP/1.1\r\n\r\n", MISSING);
    assert_false(gone);
}

static void test_a_connection_ends_when_the_client_says_so(void **state)
{
    expect("GET /s/k HTTP/1.1\r\nConnection: close\r\n\r\n",
           "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_true(gone);
    expect("GET /s/k HTTP/1.0\r\n\r\n",
           "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_true(gone);
    expect("GET /s/k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", MISSING);
    assert_false(gone);
}

static void test_where_ranks_meet_the_last_to_leave_cleans_up(void **state)
{
    for (int round = 0; round < 2;
         round++) { /* Horovod may be started again in the same processes */
        ask("PUT /global_/0 HTTP/1.1\r\nContent-Length: 2\r\n\r\na0PUT /global_/1 "
            "HTTP/1.1\r\nContent-Length: "
            "2\r\n\r\na1",
            false);
        assert_string_equal(got, OK OK);
        expect("DELETE /global_/0 HTTP/1.1\r\n\r\n", OK);
        expect("GET /global_/0 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na0");
        expect("DELETE /global_/1 HTTP/1.1\r\n\r\n", OK);
        expect("GET /global_/0 HTTP/1.1\r\n\r\n", MISSING);
    }
}

/* Horovod 0.28: a rank puts its host's name as well, and says DELETE for its number alone. */
static void test_what_ranks_say_beside_their_addresses_goes_with_the_last(void **state)
{
    for (int round = 0; round < 2; round++) {
        for (int rank = 0; rank < 2; rank++) {
            char text[128];

            snprintf(text, sizeof(text),
                     "PUT /local_n/rank_%d HTTP/1.1\r\nContent-Length: 1\r\n\r\nh", rank);
            expect(text, OK);
            snprintf(text, sizeof(text), "PUT /local_n/%d HTTP/1.1\r\nContent-Length: 1\r\n\r\na",
                     rank);
            expect(text, OK);
        }
        expect("DELETE /local_n/1 HTTP/1.1\r\n\r\n", OK);
        expect("DELETE /local_n/1 HTTP/1.1\r\n\r\n", OK);
        expect("GET /local_n/1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
        expect("GET /local_n/rank_1 HTTP/1.1\r\n\r\n",
               "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nh");
        expect("DELETE /local_n/0 HTTP/1.1\r\n\r\n", OK);
        expect("GET /local_n/1 HTTP/1.1\r\n\r\n", MISSING);
        expect("GET /local_n/rank_1 HTTP/1.1\r\n\r\n", MISSING);
    }
}

static void test_what_it_does_not_take(void **state)
{
    static char text[FBR_RENDEZVOUS_HEAD_MAX + 100];

    refused("hello\r\n\r\n", 400);
    refused("\r\n", 400);
    refused("GET /k HTTP/1.1\r\n\r\n", 400);
    refused("GET //k HTTP/1.1\r\n\r\n", 400);
    refused("GET /s/ HTTP/1.1\r\n\r\n", 400);
    refused("GET s/k HTTP/1.1\r\n\r\n", 400);
    refused("GET /s/k HTTP/2.0\r\n\r\n", 400);
    refused("GET /s/k HTTP/1.1 \r\n\r\n", 400);
    refused("GET /s/\x7f HTTP/1.1\r\n\r\n", 400);
    refused("POST /s/k HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 501);
    refused("PUT /s/k HTTP/1.1\r\n\r\n", 411);
    refused("PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", 501);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: 1x\r\n\r\n", 400);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", 413);
    refused("PUT /s/k HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400);
    refused("GET /s/k HTTP/1.1\r\n folded: x\r\n\r\n", 400);
    refused("GET /s/k HTTP/1.1\r\nname : x\r\n\r\n", 400);
    refused("GET /s/k HTTP/1.1\r\nnothing\r\n\r\n", 400);
    memset(text, 'x', sizeof(text) - 1);
    refused(text, 431);
    gone = true;
    ask("", false);
    ops->bytes(conn, "GET /s/\0 HTTP/1.1\r\n\r\n", 21);
    assert_true(gone);
}

static void test_the_store_is_bounded(void **state)
{
    static char body[1 << 20];
    char head[128];
    int puts = 0;

    do {
        snprintf(head, sizeof(head), "PUT /s/%d HTTP/1.1\r\nContent-Length: %zu\r\n\r\n", puts,
                 sizeof(body));
        ask(head, false);
        ops->bytes(conn, body, sizeof(body));
        puts++;
    } while (!strcmp(got, OK) && puts < 1000);
    assert_in_range(puts, 250, 256);
    assert_string_equal(got, "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n");
    expect("DELETE /s/0 HTTP/1.1\r\n\r\n", OK);
    ask(head, false);
    ops->bytes(conn, body, sizeof(body));
    assert_string_equal(got, OK);
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, open_server, close_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_server(test_a_value_is_there_once_it_is_put),
        with_server(test_a_connection_ends_when_the_client_says_so),
        with_server(test_where_ranks_meet_the_last_to_leave_cleans_up),
        with_server(test_what_ranks_say_beside_their_addresses_goes_with_the_last),
        with_server(test_what_it_does_not_take),
        with_server(test_the_store_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
