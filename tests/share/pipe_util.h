/* pipe_util.h - what the tests of pipes share: ends, numbers, the end of file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "channel_util.h"

#define MIB (1u << 20)

struct order {
    struct fiber_address end, other, report;
    uint64_t count, size;
};

static inline struct fiber_pipe *connect_end(const struct fiber_address *address)
{
    struct fiber_pipe *p;

    CHECK(fiber_pipe_connect(&p, address) == 0);
    keep(p);
    return p;
}

static inline void open_pipe(struct fiber_pipe *ends[2], unsigned flags)
{
    must(fiber_pipe_open(ends, flags));
}

static inline struct fiber_address address_of(struct fiber_pipe *end)
{
    struct fiber_address a;

    must(fiber_pipe_address(end, &a));
    return a;
}

/* Gives end 1 to a child, with what else it needs. */
static inline struct fiber_process *give_end(struct fiber_pipe *ends[2], fiber_process_fn fn,
                                             struct order *o)
{
    struct fiber_process *p;

    o->end = address_of(ends[1]);
    p = start(fn, o, sizeof(*o));
    fiber_pipe_close(ends[1]);
    ends[1] = NULL;
    return p;
}

static inline int send_number(struct fiber_pipe *p, uint64_t n)
{
    return fiber_pipe_send(p, &n, sizeof(n), LONG_MS);
}

static inline uint64_t recv_number(struct fiber_pipe *p, int *rc)
{
    struct fiber_bytes b;
    uint64_t n = UINT64_MAX;

    *rc = fiber_pipe_recv(p, &b, LONG_MS);
    if (*rc == 0 && b.len == sizeof(n))
        memcpy(&n, b.data, sizeof(n));
    fiber_bytes_free(&b);
    return n;
}

static inline void expect_recv(struct fiber_pipe *p, uint64_t n)
{
    int rc;

    assert_int_equal(recv_number(p, &rc), n);
}

static inline void expect_end(struct fiber_pipe *p)
{
    struct fiber_bytes b;

    assert_int_equal(fiber_pipe_recv(p, &b, LONG_MS), -EPIPE);
    assert_int_equal(fiber_pipe_poll(p, 0), 1);
    assert_int_equal(fiber_pipe_recv(p, &b, 0), -EPIPE);
}

/* Sends back what comes, until the end of file. */
static inline int echo(const void *arg, size_t len)
{
    const struct order *o = arg;
    struct fiber_pipe *p = connect_end(&o->end);
    struct fiber_bytes b;
    int rc;

    while ((rc = fiber_pipe_recv(p, &b, LONG_MS)) == 0) {
        CHECK(fiber_pipe_send(p, b.data, b.len, LONG_MS) == 0);
        fiber_bytes_free(&b);
    }
    CHECK(rc == -EPIPE);
    fiber_pipe_close(p);
    return 0;
}
