/* sp_test.c - nanomsg's framing over TCP and unix sockets: whole, in pieces, several at once, and
 * what a stranger may send.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/net/mux.h"
#include "runtime/net/sock.h"
#include "runtime/net/sp.h"

static const uint8_t greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
static _Alignas(16) uint8_t scratch[FBR_SP_SCRATCH];
static struct fbr_sp_in in;
static bool local; /* a unix socket */
static unsigned came;
static size_t came_len;
static uint64_t sum;
static size_t raise_to; /* the first message proves its sender */

static uint64_t sum_of(const uint8_t *at, size_t len)
{
    uint64_t s = len;

    while (len--)
        s = s * 31 + *at++;
    return s;
}

static int on_message(void *user, void *msg, size_t len)
{
    assert_ptr_equal(user, &in);
    assert_int_equal((uintptr_t)msg % 8, 4);
    came++;
    came_len = len;
    sum = sum_of(msg, len);
    if (raise_to)
        in.most = raise_to;
    return 0;
}

static int set_up(void **state)
{
    in = (struct fbr_sp_in){.most = FBR_MUX_EMPTY, .local = local};
    came = 0;
    raise_to = 0;
    return 0;
}

static int set_up_local(void **state)
{
    local = true;
    return set_up(state);
}

static int tear_down(void **state)
{
    local = false;
    fbr_sp_in_fini(&in);
    return 0;
}

/* As it would be received, at most `step` bytes at a time. */
static int feed(const void *bytes, size_t len, size_t step)
{
    const uint8_t *at = bytes;
    int rc = 0;

    while (rc == 0 && len) {
        size_t room, n;
        void *to = fbr_sp_room(&in, scratch, &room);

        assert_true(room > 0);
        n = len < step ? len : step;
        n = n < room ? n : room;
        memcpy(to, at, n);
        at += n;
        len -= n;
        rc = fbr_sp_took(&in, scratch, n, on_message, &in);
        if (in.most == FBR_MUX_EMPTY)
            assert_null(in.data); /* a stranger gets no memory */
    }
    return rc;
}

static size_t put_message(uint8_t *to, size_t len)
{
    size_t head = fbr_sp_head(to, len, local);

    for (size_t i = 0; i < len; i++)
        to[head + i] = (uint8_t)(i * 7 + len);
    return head + len;
}

static void messages_come_in_any_pieces(void **state)
{
    static const size_t lengths[] = {44, 44, 60, 0, 7, 300000, 13, FBR_SOCK_MAX, 44};
    enum { N = sizeof(lengths) / sizeof(lengths[0]) };
    static const size_t steps[] = {1, 7, 13, 1000, 65536, SIZE_MAX};
    uint8_t *bytes = malloc(2u << 20);
    size_t len = FBR_SP_GREETING;

    memcpy(bytes, greeting, sizeof(greeting));
    for (int i = 0; i < N; i++)
        len += put_message(bytes + len, lengths[i]);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        set_up(NULL);
        raise_to = FBR_SOCK_MAX;
        assert_int_equal(feed(bytes, len, steps[i]), 0);
        assert_int_equal(came, N);
        assert_int_equal(came_len, lengths[N - 1]);
        assert_true(sum == sum_of(bytes + len - came_len, came_len));
        assert_int_equal(in.have, 0);
        assert_null(in.data);
    }
    free(bytes);
}

static void two_messages_in_one_read(void **state)
{
    uint8_t bytes[256];
    size_t len = FBR_SP_GREETING;

    memcpy(bytes, greeting, sizeof(greeting));
    len += put_message(bytes + len, 44);
    len += put_message(bytes + len, 44);
    assert_int_equal(feed(bytes, len, SIZE_MAX), 0);
    assert_int_equal(came, 2);
}

static void put_length(uint8_t to[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(n >> (56 - 8 * i));
}

static void a_wrong_length_ends_it_at_once(void **state)
{
    static const uint64_t bad[] = {0,          3,          4 + FBR_MUX_EMPTY + 1,
                                   512 * 1024, 1u << 30,   UINT32_MAX,
                                   INT64_MAX,  UINT64_MAX, UINT64_MAX - 7};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t bytes[16];

        set_up(state);
        memcpy(bytes, greeting, sizeof(greeting));
        put_length(bytes + 8, bad[i]);
        assert_int_equal(feed(bytes, 15, 1), 0);
        assert_int_equal(feed(bytes + 15, 1, 1), -EMSGSIZE);
        assert_int_equal(came, 0);
    }
}

static void who_is_proven_has_a_limit_too(void **state)
{
    uint8_t bytes[8];

    assert_int_equal(feed(greeting, sizeof(greeting), SIZE_MAX), 0);
    in.most = FBR_SOCK_MAX;
    put_length(bytes, FBR_SOCK_MAX + 5);
    assert_int_equal(feed(bytes, sizeof(bytes), SIZE_MAX), -EMSGSIZE);
}

static void other_greetings_are_no_peers(void **state)
{
    static const uint8_t bad[][8] = {
        {0, 'S', 'P', 0, 0, 0x31, 0, 0}, {0, 'S', 'P', 1, 0, 0x30, 0, 0},
        {0, 'S', 'P', 0, 0, 0x20, 0, 0}, {0, 'S', 'P', 0, 0, 0x30, 0, 1},
        {0x16, 3, 1, 0, 0, 0, 0, 0},     {'G', 'E', 'T', ' ', '/'}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        set_up(state);
        assert_int_equal(feed(bad[i], 8, 1), -EPROTO);
    }
    set_up(state);
    assert_int_equal(feed(greeting, 4, SIZE_MAX), 0); /* half of it is waited for */
    assert_false(in.greeted);
}

static void another_request_id_is_no_peer(void **state)
{
    uint8_t bytes[64];

    assert_int_equal(feed(greeting, sizeof(greeting), SIZE_MAX), 0);
    put_message(bytes, 44);
    bytes[8] = 0; /* a path through devices, which we do not have */
    assert_int_equal(feed(bytes, 56, SIZE_MAX), -EPROTO);
    assert_int_equal(came, 0);
}

static void a_message_without_its_mark_is_no_peer(void **state)
{
    uint8_t bytes[64];

    assert_int_equal(feed(greeting, sizeof(greeting), SIZE_MAX), 0);
    assert_int_equal(put_message(bytes, 44), FBR_SP_HEAD_MAX + 44);
    bytes[0] = 2; /* a message in shared memory, which nanomsg never sends */
    assert_int_equal(feed(bytes, 1, 1), -EPROTO);
    assert_int_equal(came, 0);
}

#define ON_LOCAL(fn)                                     \
    {                                                    \
        "local: " #fn, fn, set_up_local, tear_down, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_come_in_any_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_messages_in_one_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_length_ends_it_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_proven_has_a_limit_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_greetings_are_no_peers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_request_id_is_no_peer, set_up, tear_down),
        ON_LOCAL(messages_come_in_any_pieces),
        ON_LOCAL(two_messages_in_one_read),
        ON_LOCAL(a_message_without_its_mark_is_no_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
