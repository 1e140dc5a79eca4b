/* store_history_test.c - 10^5 random requests, cancels and deaths on a shared store, each answer
 * checked against a model.
 *
 * Locks exclude each other and tell of deaths, semaphores keep their number of units, lists lose
 * nothing, give nothing twice and keep their order, counters add up, and every request is answered
 * exactly once unless its peer died. The seed is printed; FIBER_TEST_SEED repeats a run.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "share/store_engine.h"

#define OPERATIONS 100000
#define PEERS 6
#define NAMES 3
#define UNITS 2
#define OPEN_CALLS 512

static struct fbr_store_engine *store;
static struct {
    uint64_t seed;
    uint64_t peers[PEERS], next_peer, next_call;
    /* What every open call asked, by call modulo OPEN_CALLS. */
    struct open_call {
        uint64_t call, peer;
        enum fbr_store_op op;
        int name;
        bool open;
    } calls[OPEN_CALLS];
    uint64_t lock_holder[NAMES]; /* 0: free */
    bool lock_died[NAMES];
    int units[NAMES];
    uint64_t units_of[NAMES][PEERS];
    uint64_t pushed[NAMES], popped[NAMES]; /* numbers, from 1 */
    int64_t counter[NAMES];
    bool event[NAMES];
    long answered, asked, forgotten;
} h;

static uint64_t random_below(uint64_t n)
{
    h.seed ^= h.seed << 13;
    h.seed ^= h.seed >> 7;
    h.seed ^= h.seed << 17;
    return (h.seed >> 11) % n;
}

static int slot_of(uint64_t peer)
{
    for (int i = 0; i < PEERS; i++) {
        if (h.peers[i] == peer)
            return i;
    }
    fail_msg("peer %llu is unknown", (unsigned long long)peer);
    return -1;
}

static void check_lock(const struct open_call *o, int code)
{
    if (o->op == FBR_STORE_LOCK && code != -ETIMEDOUT) {
        assert_int_equal(h.lock_holder[o->name], 0); /* mutual exclusion */
        assert_int_equal(code, h.lock_died[o->name] ? -EOWNERDEAD : 0);
        h.lock_holder[o->name] = o->peer;
        h.lock_died[o->name] = false;
    }
    if (o->op == FBR_STORE_ACQUIRE && !code) {
        assert_true(++h.units[o->name] <= UNITS);
        h.units_of[o->name][slot_of(o->peer)]++;
    }
}

static void on_history_reply(void *user, uint64_t peer, uint64_t call, int code, const void *bytes,
                             size_t len)
{
    struct open_call *o = &h.calls[call % OPEN_CALLS];
    uint64_t n = 0;

    assert_true(o->open && o->call == call && o->peer == peer); /* once, and to a peer that lives */
    o->open = false;
    h.answered++;
    memcpy(&n, bytes, len < 8 ? len : 8);
    check_lock(o, code);
    if (o->op == FBR_STORE_POP && !code)
        assert_true(n == ++h.popped[o->name]); /* in order, none lost, none twice */
    if (o->op == FBR_STORE_ADD)
        assert_true((int64_t)le64toh(n) == h.counter[o->name]);
    if (o->op == FBR_STORE_EVENT_WAIT && !code)
        assert_true(h.event[o->name]);
}

/* What an op does to the model before it is asked, so that the answers to others that it causes can
 * be checked.
 */
static void model(struct fbr_store_ask *ask, int slot, int name)
{
    uint64_t peer = h.peers[slot];

    switch (ask->op) {
    case FBR_STORE_PUSH:
        h.pushed[name]++;
        ask->value = &h.pushed[name];
        ask->value_len = 8;
        break;
    case FBR_STORE_ADD:
        ask->number = (int64_t)random_below(100) - 50;
        h.counter[name] += ask->number;
        break;
    case FBR_STORE_UNLOCK:
        if (h.lock_holder[name] == peer)
            h.lock_holder[name] = 0;
        break;
    case FBR_STORE_ACQUIRE:
        ask->number = UNITS;
        break;
    case FBR_STORE_RELEASE:
        if (h.units_of[name][slot]) {
            h.units_of[name][slot]--;
            h.units[name]--;
        }
        break;
    case FBR_STORE_EVENT_SET:
    case FBR_STORE_EVENT_CLEAR:
        h.event[name] = ask->op == FBR_STORE_EVENT_SET;
        break;
    case FBR_STORE_DELETE: /* whatever has the name, of each kind but locks and the like */
        h.popped[name] = h.pushed[name];
        h.counter[name] = 0;
        h.event[name] = false;
        break;
    case FBR_STORE_BARRIER:
        ask->number = 3;
        break;
    default:
        break;
    }
}

static void history_ask(int slot)
{
    static const char *const names[NAMES] = {"a", "b", "c"};
    int name = (int)random_below(NAMES);
    struct open_call *o = &h.calls[h.next_call % OPEN_CALLS];
    struct fbr_store_ask ask;
    struct fbr_buf b;
    struct fbr_cur c;

    if (o->open)
        fbr_store_cancel(store, o->peer, o->call);
    assert_false(o->open);
    ask = fbr_store_ask((enum fbr_store_op)(1 + random_below(FBR_STORE_OPS - 1)), names[name]);
    ask.wait = random_below(3) > 0;
    *o = (struct open_call){h.next_call++, h.peers[slot], ask.op, name, true};
    model(&ask, slot, name);
    fbr_buf_init(&b);
    assert_int_equal(fbr_store_ask_put(&b, &ask), 0);
    c = fbr_cur(b.data, b.len);
    h.asked++;
    fbr_store_request(store, o->peer, o->call, &c);
    fbr_buf_fini(&b);
}

static void history_death(int slot)
{
    uint64_t peer = h.peers[slot];

    for (int i = 0; i < OPEN_CALLS; i++) {
        if (h.calls[i].open && h.calls[i].peer == peer) {
            h.calls[i].open = false;
            h.forgotten++;
        }
    }
    for (int i = 0; i < NAMES; i++) {
        if (h.lock_holder[i] == peer) {
            h.lock_holder[i] = 0;
            h.lock_died[i] = true;
        }
        h.units[i] -= (int)h.units_of[i][slot];
        h.units_of[i][slot] = 0;
    }
    fbr_store_peer_gone(store, peer);
    h.peers[slot] = h.next_peer++;
}

static void history_step(void)
{
    int slot = (int)random_below(PEERS);
    struct open_call *o = &h.calls[random_below(OPEN_CALLS)];

    switch (random_below(50)) {
    case 0:
        history_death(slot);
        break;
    case 1:
    case 2:
    case 3:
        fbr_store_cancel(store, o->peer, o->call);
        assert_false(o->open);
        break;
    default:
        history_ask(slot);
    }
}

static void a_long_history_keeps_every_promise(void **state)
{
    const char *seed = getenv("FIBER_TEST_SEED");

    memset(&h, 0, sizeof(h));
    h.seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("FIBER_TEST_SEED=%llu\n", (unsigned long long)h.seed);
    store = fbr_store_engine_open(on_history_reply, NULL, 0);
    h.next_call = 1;
    while (h.next_peer < PEERS)
        h.peers[h.next_peer] = h.next_peer + 1, h.next_peer++;
    h.next_peer++;
    for (int i = 0; i < OPERATIONS; i++)
        history_step();
    for (int i = 0; i < PEERS; i++)
        history_death(i);
    assert_int_equal(h.asked, h.answered + h.forgotten);
    for (int i = 0; i < NAMES; i++)
        assert_true(h.popped[i] <= h.pushed[i]);
    fbr_store_engine_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_history_keeps_every_promise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
