/* in_store.h - for tests of the store: a store for each test, and children that are told of it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/children.h"

#define ROUNDS 100

static struct fiber_store *store; /* of the test that runs, or of the child */

/* What a child is told. */
struct order {
    struct fiber_address address;
    char gate[96];
    int n;
};

static inline struct order order_with(const struct gate *g)
{
    struct order o = {.n = 0};

    assert_int_equal(fiber_store_address(store, &o.address), 0);
    if (g)
        snprintf(o.gate, sizeof(o.gate), "%s", g->path);
    return o;
}

static inline int start_store(void **state)
{
    return fiber_store_start(&store, NULL);
}

static inline int end_store(void **state)
{
    fiber_store_close(store);
    return children_active(NULL);
}

/* In a child: its order, with the store connected. */
static inline const struct order *open_order(const void *arg)
{
    const struct order *o = arg;

    if (fiber_store_connect(&store, &o->address) < 0) {
        fprintf(stderr, "%s\n", fiber_last_error());
        exit(99);
    }
    return o;
}

static inline int notify_pid(const struct order *o)
{
    pid_t me = getpid();

    return gate_notify(o->gate, &me, sizeof(me));
}

/* Waits until a child has told its pid, kills it and waits for its end. */
static inline void kill_teller(struct gate *g, struct fiber_process *p)
{
    pid_t pid;

    assert_int_equal(gate_wait(g, &pid, sizeof(pid)), 0);
    kill(pid, SIGKILL);
    assert_int_equal(finish(p), -SIGKILL);
}

static inline int is(struct fiber_bytes *b, const char *text)
{
    int same = b->len == strlen(text) && memcmp(b->data, text, b->len) == 0;

    fiber_bytes_free(b);
    return same;
}

#define WITH_STORE(f) cmocka_unit_test_setup_teardown(f, start_store, end_store)
