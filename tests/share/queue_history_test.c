/* queue_history_test.c - 3 x 10^5 random operations on a queue's engine and its consumers, checked
 * as a history.
 *
 * Consumers and producers behind channels that delay (in order) what they say and hear do what a
 * real process does: they take ahead, acknowledge late, answer recalls, and in the wild runs give
 * up gets, freeze and die. Checked: no message is lost; none is taken twice, unless who took it
 * died before that was known; each consumer sees the messages of a producer in order (in the wild
 * runs, those that never had to come back); the bound holds; and whenever all channels are empty,
 * nobody waits while there is something for it. The seed is printed; FIBER_TEST_SEED repeats a run.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "share/queue_engine.h"

#define OPERATIONS 300000
#define CLIENTS 5 /* slots; slot CLIENTS is the owner's own process */
#define NOTHING UINT64_MAX

enum what { DELIVER, RECALL, END, PUT_DONE, ASK, RETURNED, PUT, CANCEL };

struct message {
    enum what what;
    uint64_t n, id; /* sequence number, acknowledgement or call; item */
    uint32_t hungry, want;
};

struct channel {
    struct message *items;
    size_t head, tail, cap;
};

struct client {
    uint64_t peer;
    struct channel in, out;
    uint32_t window, hungry;
    uint64_t got, taken, known; /* delivered, taken; what the engine knows to be taken */
    uint64_t *ids;              /* by sequence number; NOTHING: it was returned */
    size_t ids_cap;
    bool owes_ack, ended;
    uint64_t last[CLIENTS + 1]; /* the newest item taken, by slot of its producer */
};

enum fate { ON_ITS_WAY, PARKED, ACCEPTED, WITHDRAWN };

struct item {
    int producer;
    uint64_t producer_peer;
    enum fate fate;
    int assigned, taken, ghosts; /* ghosts: taken by somebody who died before that was known */
};

static struct {
    uint64_t seed;
    bool wild;
    size_t bound, total; /* total: messages when last looked */
    struct fbr_queue_engine *queue;
    struct client clients[CLIENTS + 1];
    struct item *items;
    uint64_t next_item, next_peer;
    long blobs;
    uint32_t local_waits, local_wakes;
    /* For a while: the slots first, first + 1, ... read; how eagerly all get and put, 0 to 4. */
    int first, readers, greed, supply;
    bool owner_reads;
    long recalls, deaths;
} h;

/* ---- tools ---- */

static uint64_t random_below(uint64_t n)
{
    h.seed ^= h.seed << 13;
    h.seed ^= h.seed >> 7;
    h.seed ^= h.seed << 17;
    return (h.seed >> 11) % n;
}

static void channel_push(struct channel *c, struct message m)
{
    if (c->tail == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 64;
        c->items = realloc(c->items, c->cap * sizeof(m));
        assert_non_null(c->items);
    }
    c->items[c->tail++] = m;
}

static bool channel_pop(struct channel *c, struct message *m)
{
    if (c->head == c->tail)
        return false;
    *m = c->items[c->head++];
    if (c->head == c->tail)
        c->head = c->tail = 0;
    return true;
}

static struct client *client_of(uint64_t peer)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (h.clients[i].peer == peer)
            return &h.clients[i];
    }
    fail_msg("the engine talks to the dead peer %llu", (unsigned long long)peer);
    return NULL;
}

static int slot_of(const struct client *c)
{
    return (int)(c - h.clients);
}

/* The program of c has the item. */
static void take(struct client *c, uint64_t id)
{
    struct item *item = &h.items[id];
    uint64_t *last = &c->last[item->producer];

    assert_int_equal(item->fate, ACCEPTED);
    item->taken++;
    assert_true(item->taken <= 1 + item->ghosts);
    if (id < *last) /* after a newer one of its producer: only if it had to come back */
        assert_true(h.wild && item->assigned >= (c->peer ? 2 : 1));
    else
        *last = id;
}

/* ---- the engine's decisions ---- */

static void on_deliver(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len)
{
    struct message m = {DELIVER, seq, 0, 0, 0};

    assert_int_equal(len, sizeof(m.id));
    memcpy(&m.id, data, len);
    h.items[m.id].assigned++;
    channel_push(&client_of(peer)->in, m);
}

static void on_put_done(void *user, uint64_t peer, uint64_t call, int code)
{
    assert_int_equal(h.items[call].fate, PARKED);
    assert_true(h.items[call].producer_peer == peer);
    h.items[call].fate = code ? WITHDRAWN : ACCEPTED;
}

static void on_recall(void *user, uint64_t peer)
{
    h.recalls++;
    channel_push(&client_of(peer)->in, (struct message){RECALL, 0, 0, 0, 0});
}

static void on_eof(void *user, uint64_t peer)
{
    channel_push(&client_of(peer)->in, (struct message){END, 0, 0, 0, 0});
}

static void on_wake_local(void *user, bool all)
{
    if (all)
        h.local_wakes = h.local_waits;
    else if (h.local_wakes < h.local_waits)
        h.local_wakes++;
}

static void on_drop(void *user, void *data, size_t len)
{
    h.blobs--;
    free(data);
}

static const struct fbr_queue_engine_ops ops = {
    on_deliver, on_put_done, on_recall, on_eof, on_wake_local, on_drop, NULL, /* nobody watches */
};

/* What comes back from who was late may be too much, but then nothing comes in. */
static void check_bound(void)
{
    struct fbr_queue_engine_stats s;
    size_t total;

    fbr_queue_engine_stats(h.queue, &s);
    total = s.waiting + s.assigned;
    assert_true(!h.bound || total <= h.total || total - s.late <= h.bound);
    assert_true(!s.parked || total - s.late >= h.bound);
    assert_true(h.wild || !h.bound || total <= h.bound);
    h.total = total;
}

/* ---- producers ---- */

static uint64_t new_item(struct client *c)
{
    h.items[h.next_item] = (struct item){.producer = slot_of(c), .producer_peer = c->peer};
    return h.next_item++;
}

static void engine_put(uint64_t peer, uint64_t id)
{
    uint64_t *data = malloc(sizeof(id));
    int rc;

    assert_non_null(data);
    *data = id;
    h.blobs++;
    rc = fbr_queue_engine_put(h.queue, peer, id, data, sizeof(id));
    assert_true(rc == 0 || rc == 1);
    /* What was accepted may have gone on already, but was not looked at before this line. */
    h.items[id].fate = rc ? PARKED : ACCEPTED;
    check_bound();
}

static void client_put(struct client *c)
{
    uint64_t id = new_item(c);

    if (c->peer)
        channel_push(&c->out, (struct message){PUT, id, id, 0, 0});
    else
        engine_put(0, id);
}

/* Withdraws one of the last puts, if it can be. */
static void client_cancel(struct client *c)
{
    uint64_t back = 1 + random_below(8), id = h.next_item - back;

    if (back <= h.next_item && h.items[id].producer_peer == c->peer)
        channel_push(&c->out, (struct message){CANCEL, id, id, 0, 0});
}

static void engine_cancel(uint64_t peer, uint64_t id)
{
    int rc = fbr_queue_engine_put_cancel(h.queue, peer, id);

    assert_int_equal(rc, h.items[id].fate == PARKED ? 0 : -ENOENT);
    if (!rc)
        h.items[id].fate = WITHDRAWN;
}

/* ---- consumers ---- */

static void client_ask(struct client *c)
{
    uint32_t want = c->hungry > c->window ? c->hungry : c->window;

    c->owes_ack = false;
    channel_push(&c->out, (struct message){ASK, c->taken, 0, c->hungry, want});
}

static void client_take(struct client *c)
{
    take(c, c->ids[++c->taken]);
    c->owes_ack = true;
    if (random_below(2))
        client_ask(c);
}

static void client_get(struct client *c)
{
    if (c->ended)
        return;
    if (c->taken < c->got) {
        client_take(c);
        return;
    }
    c->hungry++;
    client_ask(c);
}

static void client_abandon(struct client *c)
{
    if (!c->hungry)
        return;
    c->hungry--;
    client_ask(c);
}

static void client_delivered(struct client *c, uint64_t seq, uint64_t id)
{
    assert_true(seq == c->got + 1);
    c->got = seq;
    if (seq >= c->ids_cap) {
        c->ids_cap = 2 * seq + 64;
        c->ids = realloc(c->ids, c->ids_cap * sizeof(*c->ids));
        assert_non_null(c->ids);
    }
    c->ids[seq] = id;
    if (c->hungry) {
        c->hungry--;
        client_take(c);
    }
}

static void client_hears(struct client *c)
{
    struct message m;

    if (!channel_pop(&c->in, &m))
        return;
    switch (m.what) {
    case DELIVER:
        client_delivered(c, m.n, m.id);
        break;
    case RECALL:
        channel_push(&c->out, (struct message){RETURNED, c->taken + 1, 0, 0, 0});
        while (c->taken < c->got)
            c->ids[++c->taken] = NOTHING;
        break;
    case END:
        c->hungry = 0;
        c->ended = true;
        break;
    default:
        fail();
    }
}

static void engine_hears(struct client *c)
{
    struct message m;

    if (!channel_pop(&c->out, &m))
        return;
    switch (m.what) {
    case ASK:
        c->known = m.n;
        assert_int_equal(fbr_queue_engine_ask(h.queue, c->peer, m.n, m.hungry, m.want), 0);
        break;
    case RETURNED:
        c->known = m.n - 1;
        assert_int_equal(fbr_queue_engine_returned(h.queue, c->peer, m.n), 0);
        break;
    case PUT:
        engine_put(c->peer, m.id);
        break;
    case CANCEL:
        engine_cancel(c->peer, m.id);
        break;
    default:
        fail();
    }
    check_bound();
}

static int local_try(void)
{
    void *data;
    size_t len;
    uint64_t id;
    int rc = fbr_queue_engine_get(h.queue, &data, &len);

    if (rc)
        return rc;
    memcpy(&id, data, sizeof(id));
    h.blobs--;
    free(data);
    take(&h.clients[CLIENTS], id);
    return 0;
}

static void local_get(void)
{
    int rc = local_try();

    if (rc == 0 || rc == -EPIPE || (h.wild && random_below(2)))
        return;
    assert_true(rc == -EAGAIN || rc == -EINPROGRESS);
    h.local_waits++;
    fbr_queue_engine_wait(h.queue);
}

static void local_stop_waiting(void)
{
    h.local_waits--;
    if (h.local_wakes > h.local_waits)
        h.local_wakes = h.local_waits;
    fbr_queue_engine_unwait(h.queue);
}

static void local_wakes_up(void)
{
    int rc;

    if (!h.local_wakes)
        return;
    h.local_wakes--;
    rc = local_try();
    if (rc == 0 || rc == -EPIPE)
        local_stop_waiting();
}

/* ---- lives ---- */

static void client_begin(struct client *c)
{
    memset(c, 0, sizeof(*c));
    c->peer = slot_of(c) == CLIENTS ? 0 : h.next_peer++;
    c->window = 4 * (uint32_t)slot_of(c);
}

static void client_end(struct client *c)
{
    free(c->in.items);
    free(c->out.items);
    free(c->ids);
}

static void client_dies(struct client *c)
{
    uint64_t peer = c->peer;

    h.deaths++;
    for (uint64_t seq = c->known + 1; seq <= c->taken; seq++) {
        if (c->ids[seq] != NOTHING)
            h.items[c->ids[seq]].ghosts++;
    }
    for (uint64_t id = 0; id < h.next_item; id++) {
        if (h.items[id].producer_peer == peer && h.items[id].fate != ACCEPTED)
            h.items[id].fate = WITHDRAWN;
    }
    client_end(c);
    client_begin(c);
    fbr_queue_engine_gone(h.queue, peer);
    check_bound();
}

/* ---- histories ---- */

static bool channels_move(void)
{
    bool moved = false;

    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &h.clients[i];

        moved |= c->in.head < c->in.tail || c->out.head < c->out.tail || c->owes_ack;
        if (c->owes_ack)
            client_ask(c);
        while (c->out.head < c->out.tail)
            engine_hears(c);
        while (c->in.head < c->in.tail)
            client_hears(c);
    }
    moved |= h.local_wakes > 0;
    while (h.local_wakes)
        local_wakes_up();
    return moved;
}

/* All messages have arrived: a get that waits now waits for a message that does not exist. */
static void settle(void)
{
    struct fbr_queue_engine_stats s;
    bool hungry;

    while (channels_move())
        ;
    hungry = h.local_waits > 0;
    fbr_queue_engine_stats(h.queue, &s);
    for (int i = 0; i < CLIENTS; i++)
        hungry |= h.clients[i].hungry > 0;
    if (hungry)
        assert_true(s.waiting == 0 && s.assigned == 0 && s.parked == 0);
    assert_true(h.blobs == (long)(s.waiting + s.assigned + s.parked));
}

static void wild_step(struct client *c)
{
    switch (random_below(6)) {
    case 0:
        if (c->peer && random_below(20) == 0)
            client_dies(c);
        break;
    case 1:
        if (c->peer)
            fbr_queue_engine_overdue(h.queue, c->peer);
        else
            fbr_queue_engine_press(h.queue);
        check_bound();
        break;
    case 2:
        if (c->peer)
            client_cancel(c);
        else if (h.local_waits) {
            if (h.local_wakes && random_below(2))
                h.local_wakes--; /* it was just being woken */
            local_stop_waiting();
        }
        break;
    default:
        client_abandon(c);
    }
}

static void step(void)
{
    uint64_t reader = ((uint64_t)h.first + random_below((uint64_t)h.readers)) % CLIENTS;
    struct client *c = &h.clients[random_below(2) ? reader : random_below(CLIENTS + 1)];

    if (random_below(2)) {
        engine_hears(c);
        client_hears(c);
    }
    switch (random_below(8)) {
    case 0:
        if (h.wild)
            wild_step(c);
        break;
    case 1:
        local_wakes_up();
        break;
    case 2:
    case 3:
    case 4:
        if ((int)random_below(4) < h.supply)
            client_put(c);
        break;
    default:
        if ((int)random_below(4) >= h.greed)
            break;
        if (c->peer && c->hungry < 2 && (slot_of(c) + CLIENTS - h.first) % CLIENTS < h.readers)
            client_get(c);
        else if (!c->peer && h.owner_reads && h.local_waits < 3)
            local_get();
    }
}

/* Times of plenty and of want, of one reader and of many. */
static void begin_phase(void)
{
    h.first = (int)random_below(CLIENTS);
    h.readers = random_below(2) ? 1 : 1 + (int)random_below(CLIENTS);
    h.greed = (int)random_below(5);
    h.supply = (int)random_below(5);
    h.owner_reads = random_below(3) == 0;
}

/* Everybody gets until the end of file. */
static void drain(void)
{
    struct fbr_queue_engine_stats s;

    settle();
    fbr_queue_engine_shut(h.queue);
    for (int left = CLIENTS; left > 0;) {
        left = 0;
        for (int i = 0; i < CLIENTS; i++) {
            client_get(&h.clients[i]);
            left += !h.clients[i].ended;
        }
        settle();
    }
    assert_int_equal(local_try(), -EPIPE);
    assert_int_equal(h.local_waits, 0);
    fbr_queue_engine_stats(h.queue, &s);
    assert_true(s.waiting + s.assigned + s.parked + s.bytes == 0);
}

static void run(bool wild, size_t bound)
{
    const struct fbr_queue_engine_config config = {.max_messages = bound};
    const char *seed = getenv("FIBER_TEST_SEED");

    memset(&h, 0, sizeof(h));
    h.seed = seed ? strtoull(seed, NULL, 0)
                  : (uint64_t)time(NULL) * 2654435761u + (wild ? 3 : 1) + bound;
    print_message("FIBER_TEST_SEED=%llu\n", (unsigned long long)h.seed);
    h.wild = wild;
    h.bound = bound;
    h.next_peer = 1;
    h.items = calloc(OPERATIONS + 1, sizeof(*h.items));
    h.queue = fbr_queue_engine_open(&ops, NULL, &config);
    assert_true(h.items && h.queue);
    for (int i = 0; i <= CLIENTS; i++)
        client_begin(&h.clients[i]);
    for (int i = 0; i < OPERATIONS; i++) {
        if (i % 1000 == 0)
            begin_phase();
        step();
        if (random_below(100) == 0)
            settle();
    }
    drain();
    print_message("%llu messages, %ld recalls, %ld deaths\n", (unsigned long long)h.next_item,
                  h.recalls, h.deaths);
    assert_true(h.recalls > 10 && (!wild || h.deaths > 10)); /* else this tests little */
    for (uint64_t id = 0; id < h.next_item; id++)
        assert_int_equal(h.items[id].taken,
                         h.items[id].fate == ACCEPTED ? 1 + h.items[id].ghosts : 0);
    fbr_queue_engine_close(h.queue);
    assert_int_equal(h.blobs, 0);
    for (int i = 0; i <= CLIENTS; i++)
        client_end(&h.clients[i]);
    free(h.items);
}

static void without_accidents_every_consumer_sees_every_producer_in_order(void **state)
{
    run(false, 0);
}

static void a_bound_changes_nothing_but_the_pace(void **state)
{
    run(false, 7);
}

static void accidents_lose_nothing_and_repeat_nothing(void **state)
{
    run(true, 0);
}

static void accidents_do_not_break_the_bound(void **state)
{
    run(true, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_accidents_every_consumer_sees_every_producer_in_order),
        cmocka_unit_test(a_bound_changes_nothing_but_the_pace),
        cmocka_unit_test(accidents_lose_nothing_and_repeat_nothing),
        cmocka_unit_test(accidents_do_not_break_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
