/* queue_fuzz.c - hostile consumers and producers of a queue: any event, any number, at any time.
 *
 * The input is u8 bound, then events: u8 event, u8 peer, u8 number, u8 number. Whatever happens,
 * deliveries are numbered without gaps and only to peers that live, every message is dropped or
 * handed out exactly once, and nothing is let in above the bound.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"
#include "share/queue_engine.h"

#define PEERS 6 /* 0 is the owner; a slot's peer gets a new number after each death */
#define CALLS 16

static struct {
    struct fbr_queue_engine *queue;
    uint64_t peers[PEERS], next_peer;
    uint64_t delivered[PEERS];
    int recalled[PEERS];
    int watches[PEERS];
    int parked[PEERS][CALLS];
    long messages; /* with the engine */
} f;

static void require(int holds)
{
    if (!holds)
        abort();
}

static size_t slot_of(uint64_t peer)
{
    size_t i = 0;

    while (i < PEERS && f.peers[i] != peer)
        i++;
    require(i < PEERS);
    return i;
}

static void on_deliver(void *user, uint64_t peer, uint64_t seq, const void *data, size_t len)
{
    require(peer && seq == ++f.delivered[slot_of(peer)] && len == 1 && *(const char *)data == 'm');
    require(!f.recalled[slot_of(peer)]);
}

static void on_put_done(void *user, uint64_t peer, uint64_t call, int code)
{
    require(f.parked[slot_of(peer)][call]);
    f.parked[slot_of(peer)][call]--;
}

static void on_recall(void *user, uint64_t peer)
{
    require(peer && !f.recalled[slot_of(peer)]);
    f.recalled[slot_of(peer)] = 1;
}

static void on_eof(void *user, uint64_t peer)
{
    struct fbr_queue_engine_stats s;

    fbr_queue_engine_stats(f.queue, &s);
    require(slot_of(peer) && s.shut && s.waiting + s.assigned == 0);
}

static void on_wake_local(void *user, bool all)
{
}

static void on_drop(void *user, void *data, size_t len)
{
    require(len == 1);
    f.messages--;
    free(data);
}

static void on_ready(void *user, uint64_t peer, bool ready)
{
    require(f.watches[slot_of(peer)]);
}

static const struct fbr_queue_engine_ops ops = {
    on_deliver, on_put_done, on_recall, on_eof, on_wake_local, on_drop, on_ready,
};

static void put(size_t slot, uint64_t call)
{
    char *data = malloc(1);
    int rc;

    require(data != NULL);
    *data = 'm';
    f.messages++;
    rc = fbr_queue_engine_put(f.queue, f.peers[slot], call, data, 1);
    if (rc == 1) {
        f.parked[slot][call]++;
    } else if (rc < 0) {
        f.messages--;
        free(data);
    }
}

static void cancel(size_t slot, uint64_t call)
{
    int rc = fbr_queue_engine_put_cancel(f.queue, f.peers[slot], call);

    require(rc == (f.parked[slot][call] ? 0 : -ENOENT));
    f.parked[slot][call] -= rc == 0;
}

static void get(void)
{
    void *data;
    size_t len;
    int rc = fbr_queue_engine_get(f.queue, &data, &len);

    if (rc == 0) {
        f.messages--;
        free(data);
    }
    require(rc == 0 || rc == -EPIPE || rc == -EAGAIN || rc == -EINPROGRESS);
}

static void gone(size_t slot)
{
    if (!slot)
        return;
    memset(f.parked[slot], 0, sizeof(f.parked[slot]));
    fbr_queue_engine_gone(f.queue, f.peers[slot]);
    f.delivered[slot] = 0;
    f.recalled[slot] = 0;
    f.watches[slot] = 0;
    f.peers[slot] = f.next_peer++;
}

static void ask(size_t slot, uint8_t a, uint8_t b)
{
    /* As often as not a plausible acknowledgement. */
    uint64_t taken = a < 128 ? a : f.delivered[slot] - (uint64_t)(a - 128) % 4;

    (void)fbr_queue_engine_ask(f.queue, f.peers[slot], taken, b & 3, b >> 2);
}

static void returned(size_t slot, uint8_t a)
{
    uint64_t from = f.delivered[slot] + 1 - a % 16;
    int was = f.recalled[slot];

    f.recalled[slot] = 0; /* the engine may recall again before it returns */
    if (fbr_queue_engine_returned(f.queue, f.peers[slot], from) < 0)
        f.recalled[slot] = was;
    else
        require(was);
}

static void event(uint8_t what, size_t slot, uint8_t a, uint8_t b)
{
    switch (what % 13) {
    case 12:
        if (a < 128)
            fbr_queue_engine_press(f.queue);
        f.watches[slot] |= a >= 128;
        if (a >= 128)
            require(fbr_queue_engine_watch(f.queue, f.peers[slot]) == 0);
        break;
    case 0:
        gone(slot);
        break;
    case 1:
        cancel(slot, a % CALLS);
        break;
    case 2:
    case 3:
        get();
        break;
    case 4:
        fbr_queue_engine_wait(f.queue);
        break;
    case 5:
        fbr_queue_engine_unwait(f.queue);
        break;
    case 6:
        fbr_queue_engine_overdue(f.queue, f.peers[slot]);
        break;
    case 7:
        returned(slot, a);
        break;
    case 8:
    case 9:
        put(slot, a % CALLS);
        break;
    case 10:
        if (a == 255)
            fbr_queue_engine_shut(f.queue);
        break;
    default:
        ask(slot, a, b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c = fbr_cur(data, size);
    struct fbr_queue_engine_config config = {.max_messages = fbr_get_u8(&c) % 8};
    struct fbr_queue_engine_stats s;
    size_t total, before = 0;

    memset(&f, 0, sizeof(f));
    for (size_t i = 0; i < PEERS; i++)
        f.peers[i] = f.next_peer++;
    f.queue = fbr_queue_engine_open(&ops, NULL, &config);
    while (f.queue && fbr_cur_left(&c)) {
        uint8_t what = fbr_get_u8(&c), slot = fbr_get_u8(&c) % PEERS, a = fbr_get_u8(&c);

        event(what, slot, a, fbr_get_u8(&c));
        fbr_queue_engine_stats(f.queue, &s);
        require(f.messages == (long)(s.waiting + s.assigned + s.parked));
        total = s.waiting + s.assigned;
        require(s.late <= s.assigned);
        require(!config.max_messages || total <= before || total - s.late <= config.max_messages);
        before = total;
    }
    fbr_queue_engine_close(f.queue);
    require(f.messages == 0);
    return 0;
}
