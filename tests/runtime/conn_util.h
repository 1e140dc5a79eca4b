/* conn_util.h - ends of control connections that count what comes, for the tests of them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/net/conn.h"
#include "runtime/proc/context.h"
#include "tests/support/sync.h"

/* One end of a connection: what came, for the test to wait for. */
struct end {
    struct fbr_conn *conn; /* loop thread */
    unsigned frames, closes, pongs;
    size_t bytes;
    uint64_t sum;
    uint8_t last_type;
    int why;
    bool echo;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the ends' counters, admitted */
static pthread_cond_t changed;
static struct fbr_loop *loop;
static void notify(void)
{
    pthread_cond_broadcast(&changed);
}

static void on_frame(void *user, struct fbr_conn *conn, uint8_t type, struct fbr_cur *body)
{
    struct end *e = user;
    size_t len = fbr_cur_left(body);
    const uint8_t *bytes = fbr_get(body, len);

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < len; i++)
        e->sum = e->sum * 31 + bytes[i];
    e->frames++;
    e->bytes += len;
    e->last_type = type;
    notify();
    pthread_mutex_unlock(&lock);
    if (e->echo)
        fbr_conn_send(conn, type, bytes, len);
}

static void on_close(void *user, struct fbr_conn *conn, int why, const char *text)
{
    struct end *e = user;

    pthread_mutex_lock(&lock);
    e->conn = NULL;
    e->closes++;
    e->why = text[0] ? why : 1; /* a reason in words, always */
    notify();
    pthread_mutex_unlock(&lock);
}

static void on_pong(void *user, struct fbr_conn *conn)
{
    struct end *e = user;

    pthread_mutex_lock(&lock);
    e->pongs++;
    notify();
    pthread_mutex_unlock(&lock);
}

static const struct fbr_conn_ops ops = {
    .on_frame = on_frame, .on_pong = on_pong, .on_close = on_close};

/* The counter, as it is now. */
static inline unsigned count_of(const unsigned *counter)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = *counter;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Waits until the counter is n, or more: at most TEST_LONG_MS. Answers it. */
static unsigned wait_for_some(const unsigned *counter, unsigned n)
{
    uint64_t deadline = fbr_now_ms() + TEST_LONG_MS;
    unsigned got;

    pthread_mutex_lock(&lock);
    while (*counter < n && fbr_cond_wait(&changed, &lock, deadline) == 0)
        continue;
    got = *counter;
    pthread_mutex_unlock(&lock);
    if (got < n)
        fprintf(stderr, "%u of %u came\n", got, n);
    assert_true(got >= n);
    return got;
}

static void wait_for(const unsigned *counter, unsigned n)
{
    assert_int_equal(wait_for_some(counter, n), n);
}

struct send {
    struct end *end;
    uint8_t type;
    const void *bytes;
    size_t len;
    unsigned times;
    bool and_close;
};

static int do_send(void *arg)
{
    struct send *s = arg;
    int rc = s->end->conn ? 0 : -EPIPE;

    for (unsigned i = 0; rc == 0 && i < s->times; i++)
        rc = fbr_conn_send(s->end->conn, s->type, s->bytes, s->len);
    if (rc == 0 && s->and_close) {
        fbr_conn_close(s->end->conn);
        s->end->conn = NULL;
    }
    return rc;
}

static inline void send_frames(struct end *e, uint8_t type, const void *bytes, size_t len,
                               unsigned times)
{
    assert_int_equal(
        fbr_loop_call(loop, do_send, &(struct send){e, type, bytes, len, times, false}), 0);
}

static int do_close(void *arg)
{
    struct end *e = arg;

    fbr_conn_close(e->conn);
    e->conn = NULL;
    return 0;
}

static void hang_up(struct end *e)
{
    fbr_loop_call(loop, do_close, e);
}
