/* mux_test.c - records through a lane: packing, pieces, seals, and messages that are lost,
 * repeated, swapped or damaged.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/net/mux.h"
#include "runtime/net/sock.h"

static unsigned until_refusal; /* requests for memory; 0: none is refused */

static bool refuse(void)
{
    return until_refusal && --until_refusal == 0;
}

#include "tests/support/wrapped_malloc.h"

#define LINK 0x1122334455667788u
#define LIMIT (8u << 20)
#define STREAMS 100

/* Both ends of a lane, and what came out of it. */
struct pair {
    struct fbr_mux_out out;
    struct fbr_mux_in in;
    size_t records, bytes;
    uint64_t sum; /* of all bytes with their positions */
    uint32_t ack;
    bool ack_had_records, unaligned;
    uint64_t came[100]; /* of streams: 1,000,000 x the stream, and the length */
};

static void pair_open(struct pair *p, bool sealed)
{
    const uint8_t key[FBR_KEY_SIZE] = {1, 2, 3};

    memset(p, 0, sizeof(*p));
    assert_int_equal(fbr_mux_out_init(&p->out, LINK, sealed ? key : NULL, FBR_AEAD_AES_256_GCM), 0);
    assert_int_equal(
        fbr_mux_in_init(&p->in, LINK, sealed ? key : NULL, FBR_AEAD_AES_256_GCM, LIMIT), 0);
    p->in.streams = STREAMS;
}

static void pair_close(struct pair *p)
{
    fbr_mux_out_fini(&p->out);
    fbr_mux_in_fini(&p->in);
}

static uint64_t sum_of(const uint8_t *bytes, size_t len, size_t from)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum += (uint64_t)(bytes[i] + 1) * (from + i + 1);
    return sum;
}

static void on_record(void *user, const void *record, size_t len)
{
    struct pair *p = user;

    p->sum += sum_of(record, len, p->bytes);
    p->bytes += len;
    p->records++;
    p->unaligned |= (uintptr_t)record % 8 != 0;
}

static void on_ack(void *user, uint32_t ack, bool records)
{
    struct pair *p = user;

    p->ack = ack;
    p->ack_had_records = records;
}

static void *take(struct pair *p, size_t *len)
{
    void *msg = NULL;

    assert_int_equal(fbr_mux_take(&p->out, 7, &msg, len), 0);
    assert_true(*len <= FBR_SOCK_MAX);
    return msg;
}

static int give(struct pair *p, void *msg, size_t len)
{
    return fbr_mux_open(&p->in, msg, len, on_ack, on_record, p);
}

/* All messages that wait, to the other end; how many there were. nanomsg takes 4 bytes of its own
 * off the front of what it received, so a message begins 4 bytes behind an aligned address. */
static int carry(struct pair *p)
{
    int n = 0;

    for (; !fbr_mux_empty(&p->out); n++) {
        size_t len;
        void *msg = take(p, &len);
        uint8_t *received = malloc(4 + len);

        memcpy(received + 4, msg, len);
        assert_int_equal(give(p, received + 4, len), 0);
        fbr_sock_free(msg);
        free(received);
    }
    assert_int_equal(p->out.queued, 0);
    return n;
}

static uint8_t *pattern(size_t len)
{
    uint8_t *bytes = malloc(len + 1);

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8));
    return bytes;
}

static void add(struct pair *p, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};

    assert_int_equal(fbr_mux_add(&p->out, &iov, 1), 0);
}

/* ---- Tests: each runs unsealed and sealed ---- */

static void records_of_all_sizes(bool sealed)
{
    const size_t sizes[] = {0,     1,      7,      8,      9,       65535,         65536,
                            65537, 262143, 262144, 262145, 1 << 20, (1 << 20) + 3, LIMIT};
    uint8_t *bytes = pattern(LIMIT);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct pair p;

        pair_open(&p, sealed);
        add(&p, bytes, sizes[i]);
        carry(&p);
        assert_int_equal(p.records, 1);
        assert_int_equal(p.bytes, sizes[i]);
        assert_true(p.sum == sum_of(bytes, sizes[i], 0));
        assert_false(p.unaligned);
        pair_close(&p);
    }
    free(bytes);
}

static void records_of_several_parts(bool sealed)
{
    uint8_t *bytes = pattern(300000);
    struct iovec iov[] = {
        {bytes, 0}, {bytes, 1}, {bytes + 1, 0}, {bytes + 1, 99999}, {bytes + 100000, 200000},
        {NULL, 0}};
    struct pair p;

    pair_open(&p, sealed);
    assert_int_equal(fbr_mux_add(&p.out, iov, 6), 0);
    assert_int_equal(fbr_mux_add(&p.out, iov, 3), 0);
    assert_int_equal(fbr_mux_add(&p.out, iov, 0), 0);
    carry(&p);
    assert_int_equal(p.records, 3);
    assert_int_equal(p.bytes, 300001);
    pair_close(&p);
    free(bytes);
}

static void small_records_travel_together_in_order(bool sealed)
{
    struct pair p;
    uint64_t sum = 0;

    pair_open(&p, sealed);
    for (uint32_t i = 0; i < 1000; i++) {
        sum += sum_of((const uint8_t *)&i, 4, 4 * (size_t)i);
        add(&p, &i, 4);
    }
    assert_int_equal(carry(&p), 1);
    assert_int_equal(p.records, 1000);
    assert_true(p.sum == sum);
    assert_false(p.unaligned);
    assert_int_equal(p.ack, 7);
    assert_true(p.ack_had_records);
    pair_close(&p);
}

static void small_and_long_records_keep_their_order(bool sealed)
{
    const size_t sizes[] = {5, 700000, 0, 12, 65536, 65537, 3, 262144};
    uint8_t *bytes = pattern(1 << 20);
    struct pair p;
    uint64_t sum = 0;
    size_t at = 0, n = 0;

    pair_open(&p, sealed);
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++, n++) {
            add(&p, bytes + n, sizes[i]);
            sum += sum_of(bytes + n, sizes[i], at);
            at += sizes[i];
        }
    assert_true(p.out.queued >= at);
    carry(&p);
    assert_int_equal(p.records, n);
    assert_int_equal(p.bytes, at);
    assert_true(p.sum == sum);
    pair_close(&p);
    free(bytes);
}

static void an_empty_lane_carries_the_ack(bool sealed)
{
    struct pair p;
    size_t len;
    void *msg;
    uint64_t link = 0;

    pair_open(&p, sealed);
    assert_true(fbr_mux_empty(&p.out));
    msg = take(&p, &len);
    assert_int_equal(fbr_mux_link(msg, len, &link), 0);
    assert_true(link == LINK);
    p.ack_had_records = true;
    assert_int_equal(give(&p, msg, len), 0);
    assert_int_equal(p.ack, 7);
    assert_false(p.ack_had_records);
    assert_int_equal(p.records, 0);
    fbr_sock_free(msg);
    pair_close(&p);
}

static void lost_repeated_and_swapped_messages_are_refused(bool sealed)
{
    struct pair p;
    void *msg[3], *again;
    size_t len[3];

    pair_open(&p, sealed);
    for (int i = 0; i < 3; i++) {
        add(&p, "x", 1);
        msg[i] = take(&p, &len[i]);
    }
    again = malloc(len[0]);
    memcpy(again, msg[0], len[0]);
    assert_int_equal(give(&p, msg[0], len[0]), 0);
    assert_true(give(&p, again, len[0]) < 0);
    assert_int_equal(p.records, 1);
    assert_int_equal(give(&p, msg[2], len[2]), -EILSEQ);
    assert_int_equal(p.records, 1);
    for (int i = 0; i < 3; i++)
        fbr_sock_free(msg[i]);
    free(again);
    pair_close(&p);
}

static void records_above_the_limit_are_refused(bool sealed)
{
    uint8_t *bytes = pattern(LIMIT + 1);
    struct pair p;
    size_t len;
    void *msg;

    pair_open(&p, sealed);
    add(&p, bytes, LIMIT + 1);
    msg = take(&p, &len);
    assert_int_equal(give(&p, msg, len), -EMSGSIZE);
    fbr_sock_free(msg);
    pair_close(&p);
    pair_open(&p, sealed);
    p.in.limit = 100;
    add(&p, bytes, 101);
    msg = take(&p, &len);
    assert_int_equal(give(&p, msg, len), -EMSGSIZE);
    assert_int_equal(p.records, 0);
    fbr_sock_free(msg);
    pair_close(&p);
    free(bytes);
}

/* As they come, those of all streams together; and all is given back. */
static void test_long_records_under_way_are_counted(void **state)
{
    struct fbr_held held = {.limit = 3 << 20};
    uint8_t *bytes = pattern(4 << 20);
    struct iovec iov = {bytes, 2 << 20};
    uint64_t most = 0;
    struct pair p;
    size_t len;
    void *msg;
    int rc = 0;

    pair_open(&p, false);
    p.in.held = &held;
    add(&p, bytes, 2 << 20);
    carry(&p);
    assert_int_equal(p.records, 1);
    assert_int_equal(held.bytes, 0);
    assert_int_equal(fbr_mux_add_to(&p.out, 1, &iov, 1), 0);
    iov.iov_len = 4 << 20;
    assert_int_equal(fbr_mux_add_to(&p.out, 2, &iov, 1), 0);
    while (rc == 0 && !fbr_mux_empty(&p.out)) {
        msg = take(&p, &len);
        rc = give(&p, msg, len);
        fbr_sock_free(msg);
        most = held.bytes > most ? held.bytes : most;
    }
    assert_int_equal(rc, -ENOBUFS);
    assert_in_range(most, 2 << 20, held.limit);
    assert_non_null(strstr(p.in.fault, "hold_max"));
    assert_true(held.bytes <= held.limit);
    pair_close(&p);
    assert_int_equal(held.bytes, 0);
    free(bytes);
}

/* The records of a stream, which names its own bytes: byte i is (stream + i). */
static void on_stream(void *user, const void *record, size_t len)
{
    struct pair *p = user;
    const uint8_t *at = record;

    for (size_t i = 0; i < len; i++)
        assert_int_equal(at[i], (uint8_t)(p->in.stream + i));
    p->unaligned |= (uintptr_t)record % 8 != 0;
    p->came[p->records++] = 1000000 * p->in.stream + len;
}

static void add_to(struct pair *p, uint64_t stream, size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    struct iovec iov = {bytes, len};

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(stream + i);
    assert_int_equal(fbr_mux_add_to(&p->out, stream, &iov, 1), 0);
    free(bytes);
}

/* One message to the other end; whether there was one. */
static bool carry_one(struct pair *p)
{
    uint8_t *received;
    size_t len;
    void *msg;

    if (fbr_mux_empty(&p->out))
        return false;
    msg = take(p, &len);
    received = malloc(4 + len);
    memcpy(received + 4, msg, len);
    assert_int_equal(fbr_mux_open(&p->in, received + 4, len, NULL, on_stream, p), 0);
    fbr_sock_free(msg);
    free(received);
    return true;
}

static void streams_keep_their_order_and_overtake_each_other(bool sealed)
{
    /* The first two were there before any long one; then the shorter of these is through first. */
    static const uint64_t expected[] = {1000005, 2000006, 4000007, 2700000, 1900000, 1000001};
    struct pair p;

    pair_open(&p, sealed);
    add_to(&p, 1, 5);
    add_to(&p, 2, 6);
    add_to(&p, 1, 900000); /* 4 messages */
    add_to(&p, 2, 700000); /* 3 */
    add_to(&p, 4, 7);
    add_to(&p, 1, 1); /* behind its long one */
    assert_true(fbr_mux_crowded(&p.out, 1, 800000));
    assert_true(fbr_mux_crowded(&p.out, 2, 600000));
    assert_false(fbr_mux_crowded(&p.out, 4, 1000));
    while (carry_one(&p))
        continue;
    assert_int_equal(p.records, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(p.came[i], expected[i]);
    assert_false(p.unaligned);
    assert_int_equal(p.in.n_parts, 0);
    assert_null(p.out.queues.next);
    pair_close(&p);
}

static size_t place_of(const struct pair *p, uint64_t record)
{
    size_t i = 0;

    while (i < p->records && p->came[i] != record)
        i++;
    return i;
}

static void no_stream_overtakes_what_the_link_itself_sent_before(bool sealed)
{
    struct pair p;

    pair_open(&p, sealed);
    add_to(&p, 1, 900000);
    add_to(&p, 0, 990000);
    add_to(&p, 0, 980000);
    add_to(&p, 0, 3);
    add_to(&p, 1, 4);
    while (carry_one(&p))
        continue;
    assert_int_equal(p.records, 5);
    assert_true(place_of(&p, 990000) < place_of(&p, 980000));
    assert_true(place_of(&p, 980000) < place_of(&p, 3));
    assert_true(place_of(&p, 3) < place_of(&p, 1000004));
    pair_close(&p);
}

static void a_short_record_waits_for_two_messages_of_a_long_one_at_most(bool sealed)
{
    struct pair p;
    size_t before;

    pair_open(&p, sealed);
    add_to(&p, 1, LIMIT);
    add_to(&p, 2, LIMIT);
    while (carry_one(&p) && p.out.queued > 1000000) {
        before = p.records;
        add_to(&p, 3, 10);
        for (int i = 0; i < 2; i++)
            assert_true(carry_one(&p));
        assert_int_equal(p.records, before + 1);
    }
    while (carry_one(&p))
        continue;
    assert_int_equal(p.out.queued, 0);
    pair_close(&p);
}

static void a_lane_may_end_with_records_under_way(bool sealed)
{
    struct pair p;

    pair_open(&p, sealed);
    for (uint64_t stream = 1; stream < 20; stream++)
        add_to(&p, stream, 300000 + stream);
    for (int i = 0; i < 15; i++)
        assert_true(carry_one(&p));
    assert_int_equal(p.in.n_parts, 15);
    pair_close(&p); /* nothing leaks: the sanitizer sees to it */
}

/* The first request is for the queue of the stream, the others are for its messages. */
static void a_long_record_without_memory_holds_up_no_other(bool sealed)
{
    uint8_t *bytes = pattern(600000);
    struct iovec iov = {bytes, 600000};

    for (unsigned k = 1; k <= 4; k++) {
        struct pair p;

        pair_open(&p, sealed);
        until_refusal = k;
        assert_int_equal(fbr_mux_add_to(&p.out, 1, &iov, 1), -ENOMEM);
        assert_int_equal(until_refusal, 0);
        add_to(&p, 2, 6);
        add_to(&p, 2, 600000);
        while (carry_one(&p))
            continue;
        assert_int_equal(p.records, 2);
        assert_null(p.out.queues.next);
        pair_close(&p);
    }
    free(bytes);
}

static bool is_even(void *user, uint64_t stream)
{
    return stream % 2 == 0;
}

static bool is_none(void *user, uint64_t stream)
{
    return false;
}

static void long_records_of_closed_streams_are_passed_over(bool sealed)
{
    struct pair p;
    uint64_t came = 0;

    pair_open(&p, sealed);
    p.in.is_open = is_even;
    for (uint64_t stream = 0; stream <= 9; stream++)
        add_to(&p, stream, 300000);
    add_to(&p, 3, 5);
    while (carry_one(&p))
        assert_true(p.in.n_parts <= 5); /* of 0, 2, 4, 6 and 8 */
    assert_int_equal(p.in.n_parts, 0);
    assert_int_equal(p.records, 6);
    for (size_t i = 0; i < p.records; i++)
        came += p.came[i];
    assert_int_equal(came, (2 + 4 + 6 + 8 + 3) * 1000000 + 5 * 300000 + 5);
    pair_close(&p);
}

static void what_was_begun_of_a_closed_stream_is_forgotten(bool sealed)
{
    struct pair p;

    pair_open(&p, sealed);
    for (uint64_t stream = 1; stream <= 10; stream++)
        add_to(&p, stream, 600000);
    while (p.in.n_parts < 10)
        assert_true(carry_one(&p));
    p.in.is_open = is_even;
    fbr_mux_forget(&p.in);
    assert_int_equal(p.in.n_parts, 5);
    while (carry_one(&p))
        continue;
    assert_int_equal(p.records, 5);
    add_to(&p, 2, 600000);
    assert_true(carry_one(&p));
    p.in.is_open = is_none;
    fbr_mux_forget(&p.in);
    assert_int_equal(p.in.n_parts, 0);
    pair_close(&p);
}

/* As if another program had dealt with streams of its own making. A short one is not kept, so it may be: of a
 * process that has ended before anybody heard of it. */
static void long_records_of_a_stream_that_never_was_are_refused(bool sealed)
{
    struct pair p;
    size_t len;
    void *msg;

    pair_open(&p, sealed);
    p.in.streams = 7;
    add_to(&p, 7, 300000);
    add_to(&p, 8, 3);
    while (carry_one(&p))
        continue;
    assert_int_equal(p.records, 2);
    add_to(&p, 8, 300000);
    msg = take(&p, &len);
    assert_int_equal(give(&p, msg, len), -EPROTO);
    assert_non_null(p.in.fault);
    assert_non_null(strstr(p.in.fault, "never opened"));
    assert_int_equal(p.in.n_parts, 0);
    fbr_sock_free(msg);
    pair_close(&p);
}

#define BOTH(name)                               \
    static void test_plain_##name(void **state)  \
    {                                            \
        name(false);                             \
    }                                            \
    static void test_sealed_##name(void **state) \
    {                                            \
        name(true);                              \
    }

BOTH(records_of_all_sizes)
BOTH(records_of_several_parts)
BOTH(small_records_travel_together_in_order)
BOTH(small_and_long_records_keep_their_order)
BOTH(an_empty_lane_carries_the_ack)
BOTH(lost_repeated_and_swapped_messages_are_refused)
BOTH(records_above_the_limit_are_refused)
BOTH(streams_keep_their_order_and_overtake_each_other)
BOTH(no_stream_overtakes_what_the_link_itself_sent_before)
BOTH(a_short_record_waits_for_two_messages_of_a_long_one_at_most)
BOTH(a_lane_may_end_with_records_under_way)
BOTH(long_records_of_closed_streams_are_passed_over)
BOTH(what_was_begun_of_a_closed_stream_is_forgotten)
BOTH(long_records_of_a_stream_that_never_was_are_refused)
BOTH(a_long_record_without_memory_holds_up_no_other)

/* ---- Forgery and damage ---- */

static void test_a_sealed_message_with_any_bit_flipped_is_refused(void **state)
{
    struct pair p;
    size_t len;
    uint8_t *msg, *copy;

    pair_open(&p, true);
    add(&p, "a record", 8);
    msg = take(&p, &len);
    copy = malloc(len);
    for (size_t bit = 12 * 8; bit < len * 8; bit++) { /* the first 12 bytes choose the link */
        memcpy(copy, msg, len);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(give(&p, copy, len), -EBADMSG);
    }
    for (size_t short_len = 0; short_len < len; short_len++) {
        uint8_t *exact = malloc(short_len ? short_len : 1);

        memcpy(exact, msg, short_len);
        assert_int_equal(give(&p, exact, short_len), -EBADMSG);
        free(exact);
    }
    assert_int_equal(p.records, 0);
    assert_int_equal(give(&p, msg, len), 0); /* and it has not hurt */
    assert_int_equal(p.records, 1);
    free(copy);
    fbr_sock_free(msg);
    pair_close(&p);
}

static void test_keys_and_links_do_not_mix(void **state)
{
    const uint8_t other_key[FBR_KEY_SIZE] = {9};
    const uint8_t key[FBR_KEY_SIZE] = {1, 2, 3};
    struct pair p;
    struct fbr_mux_in stranger;
    size_t len;
    uint8_t *msg, *copy;

    pair_open(&p, true);
    add(&p, "a record", 8);
    msg = take(&p, &len);
    copy = malloc(len);
    memcpy(copy, msg, len);
    assert_int_equal(fbr_mux_in_init(&stranger, LINK, other_key, FBR_AEAD_AES_256_GCM, LIMIT), 0);
    assert_int_equal(fbr_mux_open(&stranger, copy, len, NULL, on_record, &p), -EBADMSG);
    fbr_mux_in_fini(&stranger);
    memcpy(copy, msg, len);
    assert_int_equal(fbr_mux_in_init(&stranger, LINK + 1, key, FBR_AEAD_AES_256_GCM, LIMIT), 0);
    assert_int_equal(fbr_mux_open(&stranger, copy, len, NULL, on_record, &p), -EBADMSG);
    fbr_mux_in_fini(&stranger);
    assert_int_equal(p.records, 0);
    free(copy);
    fbr_sock_free(msg);
    pair_close(&p);
}

/* In the clear (in a 0700 directory) damage is not detected, but must not hurt us. */
static void test_truncated_plain_messages_are_refused_or_short(void **state)
{
    uint8_t *bytes = pattern(70000);
    struct pair p;

    for (int kind = 0; kind < 2; kind++) {
        size_t len;
        uint8_t *msg;

        pair_open(&p, false);
        if (kind)
            add(&p, bytes, 70000);
        else
            for (int i = 0; i < 4; i++)
                add(&p, bytes, 11);
        msg = take(&p, &len);
        pair_close(&p);
        for (size_t n = 0; n < len; n += kind ? 97 : 1) {
            uint8_t *exact = malloc(n ? n : 1);

            memcpy(exact, msg, n);
            pair_open(&p, false);
            assert_true(give(&p, exact, n) < 0 || p.records < 4);
            pair_close(&p);
            free(exact);
        }
        fbr_sock_free(msg);
    }
    free(bytes);
}

/* A message in the clear: version, link, seq, ack, then the caller's words. */
static int give_words(struct pair *p, const uint32_t *words, size_t n)
{
    uint32_t msg[32] = {FBR_MUX_VERSION, (uint32_t)LINK, (uint32_t)(LINK >> 32), p->in.seq + 1, 0};

    memcpy(msg + 5, words, n * 4);
    return give(p, msg, (5 + n) * 4);
}

static void test_malformed_pieces_are_refused(void **state)
{
    const struct {
        const char *what;
        uint32_t words[8];
        size_t n;
    } cases[] = {
        {"an unknown flag", {0, 4}, 2},
        {"the end of nothing", {4, 2, 0, 0}, 4},
        {"the middle of nothing", {4, 3, 0, 0}, 4},
        {"longer than the message", {100, 0, 0, 0}, 4},
        {"a length that wraps", {0xffffffff, 0, 0, 0}, 4},
        {"half a head", {0}, 1},
        {"a first piece without its length", {0, 1}, 2},
        {"a first piece longer than the whole", {8, 1, 4, 0, 0, 0}, 6},
        {"the whole is beyond all memory", {8, 1, 0xffffffff, 0xffffffff, 0, 0}, 6},
        {"padding is missing", {3, 0}, 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair p;

        pair_open(&p, false);
        if (give_words(&p, cases[i].words, cases[i].n) >= 0)
            fail_msg("%s is taken", cases[i].what);
        assert_int_equal(p.records, 0);
        pair_close(&p);
    }
}

static void test_pieces_that_do_not_belong_together_are_refused(void **state)
{
    const uint32_t first[] = {8, 1, 24, 0, 1, 2}, more[] = {8, 3, 3, 4}, end[] = {8, 2, 5, 6};
    const uint32_t early_end[] = {4, 2, 3, 0}, too_much[] = {24, 2, 1, 2, 3, 4, 5, 6};
    struct pair p;

    pair_open(&p, false);
    assert_int_equal(give_words(&p, first, 6), 0);
    assert_int_equal(give_words(&p, more, 4), 0);
    assert_int_equal(give_words(&p, end, 4), 0);
    assert_int_equal(p.bytes, 24);
    assert_int_equal(give_words(&p, first, 6), 0);
    assert_true(give_words(&p, first, 6) < 0); /* a second one before the end */
    pair_close(&p);
    pair_open(&p, false);
    assert_int_equal(give_words(&p, first, 6), 0);
    assert_true(give_words(&p, early_end, 4) < 0);
    pair_close(&p);
    pair_open(&p, false);
    assert_int_equal(give_words(&p, first, 6), 0);
    assert_true(give_words(&p, too_much, 8) < 0);
    assert_int_equal(p.records, 0);
    pair_close(&p);
}

static void test_a_lane_that_is_dropped_with_messages_in_it_leaks_nothing(void **state)
{
    uint8_t *bytes = pattern(1 << 20);
    struct pair p;
    size_t len;
    void *msg;

    pair_open(&p, true);
    for (int i = 0; i < 3; i++) {
        add(&p, bytes, 1 << 20);
        add(&p, bytes, 5);
    }
    msg = take(&p, &len);
    assert_int_equal(give(&p, msg, len), 0); /* half a record in the receiver */
    fbr_sock_free(msg);
    pair_close(&p);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_records_of_all_sizes),
        cmocka_unit_test(test_sealed_records_of_all_sizes),
        cmocka_unit_test(test_plain_records_of_several_parts),
        cmocka_unit_test(test_sealed_records_of_several_parts),
        cmocka_unit_test(test_plain_small_records_travel_together_in_order),
        cmocka_unit_test(test_sealed_small_records_travel_together_in_order),
        cmocka_unit_test(test_plain_small_and_long_records_keep_their_order),
        cmocka_unit_test(test_sealed_small_and_long_records_keep_their_order),
        cmocka_unit_test(test_plain_an_empty_lane_carries_the_ack),
        cmocka_unit_test(test_sealed_an_empty_lane_carries_the_ack),
        cmocka_unit_test(test_plain_lost_repeated_and_swapped_messages_are_refused),
        cmocka_unit_test(test_sealed_lost_repeated_and_swapped_messages_are_refused),
        cmocka_unit_test(test_plain_records_above_the_limit_are_refused),
        cmocka_unit_test(test_sealed_records_above_the_limit_are_refused),
        cmocka_unit_test(test_long_records_under_way_are_counted),
        cmocka_unit_test(test_plain_streams_keep_their_order_and_overtake_each_other),
        cmocka_unit_test(test_sealed_streams_keep_their_order_and_overtake_each_other),
        cmocka_unit_test(test_plain_no_stream_overtakes_what_the_link_itself_sent_before),
        cmocka_unit_test(test_sealed_no_stream_overtakes_what_the_link_itself_sent_before),
        cmocka_unit_test(test_plain_a_short_record_waits_for_two_messages_of_a_long_one_at_most),
        cmocka_unit_test(test_sealed_a_short_record_waits_for_two_messages_of_a_long_one_at_most),
        cmocka_unit_test(test_plain_a_lane_may_end_with_records_under_way),
        cmocka_unit_test(test_sealed_a_lane_may_end_with_records_under_way),
        cmocka_unit_test(test_plain_long_records_of_closed_streams_are_passed_over),
        cmocka_unit_test(test_sealed_long_records_of_closed_streams_are_passed_over),
        cmocka_unit_test(test_plain_what_was_begun_of_a_closed_stream_is_forgotten),
        cmocka_unit_test(test_sealed_what_was_begun_of_a_closed_stream_is_forgotten),
        cmocka_unit_test(test_plain_long_records_of_a_stream_that_never_was_are_refused),
        cmocka_unit_test(test_sealed_long_records_of_a_stream_that_never_was_are_refused),
        cmocka_unit_test(test_plain_a_long_record_without_memory_holds_up_no_other),
        cmocka_unit_test(test_sealed_a_long_record_without_memory_holds_up_no_other),
        cmocka_unit_test(test_a_sealed_message_with_any_bit_flipped_is_refused),
        cmocka_unit_test(test_keys_and_links_do_not_mix),
        cmocka_unit_test(test_truncated_plain_messages_are_refused_or_short),
        cmocka_unit_test(test_malformed_pieces_are_refused),
        cmocka_unit_test(test_pieces_that_do_not_belong_together_are_refused),
        cmocka_unit_test(test_a_lane_that_is_dropped_with_messages_in_it_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
