/* store_engine_test.c - the shared store: each request, waiting, deaths.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "share/store_engine.h"

#define CALLS 4096
#define NONE 12345 /* no answer yet */

static struct fbr_store_engine *store;
static struct {
    int code, times;
    uint64_t peer;
    size_t len;
    char bytes[64];
} answers[CALLS]; /* by call; the tests give each call of any peer its own number */

static void on_reply(void *user, uint64_t peer, uint64_t call, int code, const void *bytes,
                     size_t len)
{
    assert_ptr_equal(user, answers);
    assert_non_null(bytes);
    assert_true(call < CALLS);
    answers[call].code = code;
    answers[call].times++;
    answers[call].peer = peer;
    answers[call].len = len;
    memcpy(answers[call].bytes, bytes,
           len < sizeof(answers[call].bytes) ? len : sizeof(answers[call].bytes));
}

static int open_limited(size_t memory_max)
{
    memset(answers, 0, sizeof(answers));
    for (size_t i = 0; i < CALLS; i++)
        answers[i].code = NONE;
    store = fbr_store_engine_open(on_reply, answers, memory_max);
    return store ? 0 : -1;
}

static int open_store(void **state)
{
    return open_limited(0);
}

static int close_store(void **state)
{
    fbr_store_engine_close(store);
    return 0;
}

/* Sends a request; its answer so far. */
static int send(uint64_t peer, uint64_t call, const struct fbr_store_ask *ask)
{
    struct fbr_buf b;
    struct fbr_cur c;

    fbr_buf_init(&b);
    assert_int_equal(fbr_store_ask_put(&b, ask), 0);
    c = fbr_cur(b.data, b.len);
    fbr_store_request(store, peer, call, &c);
    fbr_buf_fini(&b);
    return answers[call].code;
}

static int plain(uint64_t peer, uint64_t call, enum fbr_store_op op, const char *name)
{
    struct fbr_store_ask ask = fbr_store_ask(op, name);

    return send(peer, call, &ask);
}

static int waiting(uint64_t peer, uint64_t call, enum fbr_store_op op, const char *name)
{
    struct fbr_store_ask ask = fbr_store_ask(op, name);

    ask.wait = true;
    return send(peer, call, &ask);
}

static int number(uint64_t peer, uint64_t call, enum fbr_store_op op, const char *name, int64_t n,
                  bool wait)
{
    struct fbr_store_ask ask = fbr_store_ask(op, name);

    ask.number = n;
    ask.wait = wait;
    return send(peer, call, &ask);
}

static int value(uint64_t peer, uint64_t call, enum fbr_store_op op, const char *name,
                 const char *bytes)
{
    struct fbr_store_ask ask = fbr_store_ask(op, name);

    ask.value = bytes;
    ask.value_len = strlen(bytes);
    return send(peer, call, &ask);
}

static int swap(uint64_t peer, uint64_t call, const char *name, const char *expect,
                const char *bytes)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_SWAP, name);

    ask.expect = expect;
    ask.expect_len = expect ? strlen(expect) : 0;
    ask.value = bytes;
    ask.value_len = strlen(bytes);
    return send(peer, call, &ask);
}

static void assert_bytes(uint64_t call, const void *bytes, size_t len)
{
    assert_int_equal(answers[call].times, 1);
    assert_int_equal(answers[call].len, len);
    assert_memory_equal(answers[call].bytes, bytes, len);
}

static uint64_t answered_u64(uint64_t call)
{
    uint64_t n;

    assert_int_equal(answers[call].len, 8);
    memcpy(&n, answers[call].bytes, 8);
    return le64toh(n);
}

static uint32_t answered_u32(uint64_t call)
{
    uint32_t n;

    assert_int_equal(answers[call].len, 4);
    memcpy(&n, answers[call].bytes, 4);
    return le32toh(n);
}

/* ---- dictionary, counters, lists ---- */

static void a_key_has_the_value_that_was_set_last(void **state)
{
    assert_int_equal(plain(1, 1, FBR_STORE_GET, "k"), -ENOENT);
    assert_int_equal(value(1, 2, FBR_STORE_SET, "k", "one"), 0);
    assert_int_equal(value(2, 3, FBR_STORE_SET, "k", "three"), 0);
    assert_int_equal(plain(1, 4, FBR_STORE_GET, "k"), 0);
    assert_bytes(4, "three", 5);
    assert_int_equal(value(1, 5, FBR_STORE_SET, "", ""), 0);
    assert_int_equal(plain(1, 6, FBR_STORE_GET, ""), 0);
    assert_bytes(6, "", 0);
    assert_int_equal(plain(1, 7, FBR_STORE_DELETE, "k"), 0);
    assert_int_equal(plain(1, 8, FBR_STORE_DELETE, "k"), -ENOENT);
    assert_int_equal(plain(1, 9, FBR_STORE_GET, "k"), -ENOENT);
    assert_int_equal(plain(1, 10, FBR_STORE_DELETE, ""), 0);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void a_get_waits_until_the_key_is_set(void **state)
{
    assert_int_equal(waiting(1, 1, FBR_STORE_GET, "k"), NONE);
    assert_int_equal(waiting(2, 2, FBR_STORE_GET, "k"), NONE);
    assert_int_equal(waiting(3, 3, FBR_STORE_GET, "k"), NONE);
    assert_int_equal(plain(1, 4, FBR_STORE_DELETE, "k"), -ENOENT);
    assert_int_equal(plain(1, 5, FBR_STORE_KEYS, ""), 0);
    assert_bytes(5, "", 0);
    fbr_store_cancel(store, 3, 3);
    assert_int_equal(answers[3].code, -ENOENT);
    assert_int_equal(swap(4, 6, "k", NULL, "v"), 0);
    assert_bytes(1, "v", 1);
    assert_bytes(2, "v", 1);
    fbr_store_cancel(store, 1, 1); /* too late: nothing more is said */
    assert_int_equal(answers[1].times, 1);
    assert_int_equal(answers[3].times, 1);
}

static void swap_compares_and_tells_what_it_found(void **state)
{
    assert_int_equal(swap(1, 1, "k", "x", "a"), -ESTALE);
    assert_bytes(1, "\0", 1);
    assert_int_equal(swap(1, 2, "k", NULL, ""), 0);
    assert_int_equal(swap(1, 3, "k", NULL, "b"), -ESTALE);
    assert_bytes(3, "\1", 1);
    assert_int_equal(swap(1, 4, "k", "", "b"), 0);
    assert_int_equal(swap(1, 5, "k", "", "c"), -ESTALE);
    assert_bytes(5, "\1b", 2);
    assert_int_equal(swap(1, 6, "k", "b", "c"), 0);
    assert_int_equal(plain(1, 7, FBR_STORE_GET, "k"), 0);
    assert_bytes(7, "c", 1);
}

static void keys_are_sorted_and_begin_with_the_prefix(void **state)
{
    static const char *const names[] = {"b", "ab", "a", "", "abc", "B", "\xc3\xa4"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(value(1, i + 1, FBR_STORE_SET, names[i], "v"), 0);
    assert_int_equal(plain(1, 20, FBR_STORE_KEYS, ""), 0);
    assert_bytes(20, "\0B\0a\0ab\0abc\0b\0\xc3\xa4", 17);
    assert_int_equal(plain(1, 21, FBR_STORE_KEYS, "ab"), 0);
    assert_bytes(21, "ab\0abc", 7);
    assert_int_equal(plain(1, 22, FBR_STORE_KEYS, "abcd"), 0);
    assert_bytes(22, "", 0);
}

static void counters_add_and_refuse_to_overflow(void **state)
{
    assert_int_equal(number(1, 1, FBR_STORE_ADD, "c", 5, false), 0);
    assert_int_equal(number(2, 2, FBR_STORE_ADD, "c", -7, false), 0);
    assert_true((int64_t)answered_u64(2) == -2);
    assert_int_equal(number(1, 3, FBR_STORE_ADD, "c", INT64_MIN, false), -ERANGE);
    assert_int_equal(number(1, 4, FBR_STORE_ADD, "c", INT64_MAX, false), 0);
    assert_true((int64_t)answered_u64(4) == INT64_MAX - 2);
    assert_int_equal(number(1, 5, FBR_STORE_ADD, "c", 3, false), -ERANGE);
    assert_int_equal(number(1, 6, FBR_STORE_ADD, "c", 0, false), 0);
    assert_true((int64_t)answered_u64(6) == INT64_MAX - 2);
    assert_int_equal(number(1, 7, FBR_STORE_ADD, "c", -(INT64_MAX - 2), false), 0);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void lists_are_queues_with_an_index(void **state)
{
    char name[2] = "a";

    assert_int_equal(plain(1, 1, FBR_STORE_POP, "l"), -ETIMEDOUT);
    for (int i = 0; i < 26; i++, name[0]++)
        assert_int_equal(value(1, 2 + i, FBR_STORE_PUSH, "l", name), 0);
    for (int i = 0; i < 20; i++) { /* so that the ring goes round */
        assert_int_equal(plain(1, 100 + 2 * i, FBR_STORE_POP, "l"), 0);
        assert_int_equal(value(1, 101 + 2 * i, FBR_STORE_PUSH, "l", answers[100 + 2 * i].bytes), 0);
    }
    assert_int_equal(plain(1, 200, FBR_STORE_LENGTH, "l"), 0);
    assert_int_equal(answered_u64(200), 26);
    assert_int_equal(number(1, 201, FBR_STORE_AT, "l", 0, false), 0);
    assert_bytes(201, "u", 1);
    assert_int_equal(number(1, 202, FBR_STORE_AT, "l", 25, false), 0);
    assert_bytes(202, "t", 1);
    assert_int_equal(number(1, 203, FBR_STORE_AT, "l", 26, false), -ENOENT);
    assert_int_equal(number(1, 204, FBR_STORE_AT, "l", -1, false), -ENOENT);
    assert_int_equal(plain(1, 205, FBR_STORE_LENGTH, "nowhere"), 0);
    assert_int_equal(answered_u64(205), 0);
    for (int i = 0; i < 26; i++)
        assert_int_equal(plain(1, 300 + i, FBR_STORE_POP, "l"), 0);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void a_push_goes_to_the_pop_that_waits_longest(void **state)
{
    assert_int_equal(waiting(1, 1, FBR_STORE_POP, "l"), NONE);
    assert_int_equal(waiting(2, 2, FBR_STORE_POP, "l"), NONE);
    assert_int_equal(waiting(3, 3, FBR_STORE_POP, "l"), NONE);
    fbr_store_cancel(store, 1, 1);
    assert_int_equal(answers[1].code, -ETIMEDOUT);
    assert_int_equal(value(4, 4, FBR_STORE_PUSH, "l", "x"), 0);
    assert_bytes(2, "x", 1);
    assert_int_equal(answers[3].code, NONE);
    fbr_store_peer_gone(store, 3);
    assert_int_equal(value(4, 5, FBR_STORE_PUSH, "l", "y"), 0);
    assert_int_equal(plain(4, 6, FBR_STORE_LENGTH, "l"), 0);
    assert_int_equal(answered_u64(6), 1);
    assert_int_equal(answers[3].times, 0);
}

static void each_kind_has_its_own_names(void **state)
{
    assert_int_equal(value(1, 1, FBR_STORE_SET, "n", "v"), 0);
    assert_int_equal(value(1, 2, FBR_STORE_PUSH, "n", "p"), 0);
    assert_int_equal(number(1, 3, FBR_STORE_ADD, "n", 1, false), 0);
    assert_int_equal(plain(1, 4, FBR_STORE_LOCK, "n"), 0);
    assert_int_equal(number(1, 5, FBR_STORE_ACQUIRE, "n", 1, false), 0);
    assert_int_equal(plain(1, 6, FBR_STORE_EVENT_SET, "n"), 0);
    assert_int_equal(number(1, 7, FBR_STORE_BARRIER, "n", 1, false), 0);
    assert_int_equal(plain(1, 8, FBR_STORE_GET, "n"), 0);
    assert_bytes(8, "v", 1);
    assert_int_equal(plain(1, 9, FBR_STORE_POP, "n"), 0);
    assert_bytes(9, "p", 1);
}

static void a_delete_takes_all_that_has_the_name(void **state)
{
    size_t before = fbr_store_engine_memory(store);

    assert_int_equal(value(1, 1, FBR_STORE_SET, "n", "v"), 0);
    assert_int_equal(value(1, 2, FBR_STORE_PUSH, "n", "p"), 0);
    assert_int_equal(value(1, 3, FBR_STORE_PUSH, "n", "q"), 0);
    assert_int_equal(number(1, 4, FBR_STORE_ADD, "n", 3, false), 0);
    assert_int_equal(plain(1, 5, FBR_STORE_EVENT_SET, "n"), 0);
    assert_int_equal(value(1, 6, FBR_STORE_PUSH, "other", "o"), 0);
    assert_int_equal(plain(1, 7, FBR_STORE_DELETE, "n"), 0);
    assert_int_equal(plain(1, 8, FBR_STORE_DELETE, "n"), -ENOENT);
    assert_int_equal(plain(1, 9, FBR_STORE_GET, "n"), -ENOENT);
    assert_int_equal(plain(1, 10, FBR_STORE_LENGTH, "n"), 0);
    assert_int_equal(answered_u64(10), 0);
    assert_int_equal(number(1, 11, FBR_STORE_ADD, "n", 0, false), 0);
    assert_int_equal(answered_u64(11), 0);
    assert_int_equal(plain(1, 12, FBR_STORE_EVENT_WAIT, "n"), -ETIMEDOUT);
    assert_int_equal(plain(1, 13, FBR_STORE_DELETE, "other"), 0);
    assert_int_equal(fbr_store_engine_memory(store), before);
}

static void a_delete_disturbs_nobody_who_waits(void **state)
{
    assert_int_equal(waiting(1, 1, FBR_STORE_GET, "n"), NONE);
    assert_int_equal(waiting(1, 2, FBR_STORE_POP, "n"), NONE);
    assert_int_equal(waiting(1, 3, FBR_STORE_EVENT_WAIT, "n"), NONE);
    assert_int_equal(plain(2, 4, FBR_STORE_DELETE, "n"), -ENOENT);
    assert_int_equal(number(2, 5, FBR_STORE_ADD, "n", 1, false), 0);
    assert_int_equal(plain(2, 6, FBR_STORE_DELETE, "n"), 0);
    assert_int_equal(value(2, 7, FBR_STORE_PUSH, "n", "p"), 0);
    assert_bytes(2, "p", 1);
    assert_int_equal(value(2, 8, FBR_STORE_SET, "n", "v"), 0);
    assert_bytes(1, "v", 1);
    assert_int_equal(plain(2, 9, FBR_STORE_EVENT_SET, "n"), 0);
    assert_int_equal(answers[3].code, 0);
}

/* ---- locks, semaphores, events, barriers ---- */

static int lock_as(uint64_t peer, uint64_t call, const char *who, bool wait)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_LOCK, "m");

    ask.value = who;
    ask.value_len = strlen(who);
    ask.wait = wait;
    return send(peer, call, &ask);
}

static void who_holds_a_lock_is_told_to_those_who_do_not_get_it(void **state)
{
    assert_int_equal(lock_as(1, 1, "one", false), 0);
    assert_int_equal(lock_as(2, 2, "two", true), NONE);
    assert_int_equal(lock_as(3, 3, "three", false), -ETIMEDOUT);
    assert_bytes(3, "one", 3);
    assert_int_equal(plain(1, 4, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(lock_as(3, 5, "three", true), NONE);
    fbr_store_cancel(store, 3, 5);
    assert_int_equal(answers[5].code, -ETIMEDOUT);
    assert_bytes(5, "two", 3);
}

static void a_lock_goes_from_one_to_the_next(void **state)
{
    assert_int_equal(waiting(1, 1, FBR_STORE_LOCK, "m"), 0);
    assert_int_equal(plain(1, 2, FBR_STORE_LOCK, "m"),
                     -ETIMEDOUT); /* another thread of the same process */
    assert_int_equal(waiting(2, 3, FBR_STORE_LOCK, "m"), NONE);
    assert_int_equal(waiting(1, 4, FBR_STORE_LOCK, "m"), NONE);
    assert_int_equal(plain(2, 5, FBR_STORE_UNLOCK, "m"), -EPERM);
    assert_int_equal(plain(1, 6, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(answers[3].code, 0);
    assert_int_equal(answers[4].code, NONE);
    assert_int_equal(plain(1, 7, FBR_STORE_UNLOCK, "m"), -EPERM);
    assert_int_equal(plain(2, 8, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(answers[4].code, 0);
    assert_int_equal(plain(1, 9, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(plain(1, 10, FBR_STORE_UNLOCK, "m"), -EPERM);
    assert_int_equal(plain(3, 11, FBR_STORE_UNLOCK, "nowhere"), -EPERM);
    fbr_store_peer_gone(store, 1);
    fbr_store_peer_gone(store, 2);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void the_next_holder_after_a_death_is_told_once(void **state)
{
    assert_int_equal(plain(1, 1, FBR_STORE_LOCK, "m"), 0);
    assert_int_equal(waiting(1, 2, FBR_STORE_LOCK, "m"), NONE);
    assert_int_equal(waiting(2, 3, FBR_STORE_LOCK, "m"), NONE);
    assert_int_equal(waiting(3, 4, FBR_STORE_LOCK, "m"), NONE);
    fbr_store_peer_gone(store, 1);
    assert_int_equal(answers[2].times, 0);
    assert_int_equal(answers[3].code, -EOWNERDEAD);
    assert_int_equal(plain(2, 5, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(answers[4].code, 0);
    assert_int_equal(answers[4].times, 1);
}

static void a_death_is_told_also_when_nobody_waited(void **state)
{
    assert_int_equal(plain(1, 1, FBR_STORE_LOCK, "m"), 0);
    assert_int_equal(plain(1, 2, FBR_STORE_LOCK, "other"), 0);
    fbr_store_peer_gone(store, 1);
    assert_int_equal(plain(2, 3, FBR_STORE_UNLOCK, "m"), -EPERM);
    assert_int_equal(plain(2, 4, FBR_STORE_LOCK, "m"), -EOWNERDEAD);
    assert_int_equal(plain(3, 5, FBR_STORE_LOCK, "m"), -ETIMEDOUT);
    fbr_store_peer_gone(store, 2); /* dies as well: told again */
    assert_int_equal(waiting(3, 6, FBR_STORE_LOCK, "m"), -EOWNERDEAD);
    assert_int_equal(plain(3, 7, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(plain(3, 8, FBR_STORE_LOCK, "m"), 0);
    assert_int_equal(plain(3, 9, FBR_STORE_LOCK, "other"), -EOWNERDEAD);
}

static void a_lock_that_was_given_up_goes_to_others(void **state)
{
    assert_int_equal(plain(1, 1, FBR_STORE_LOCK, "m"), 0);
    assert_int_equal(waiting(2, 2, FBR_STORE_LOCK, "m"), NONE);
    assert_int_equal(waiting(3, 3, FBR_STORE_LOCK, "m"), NONE);
    fbr_store_cancel(store, 2, 2);
    assert_int_equal(answers[2].code, -ETIMEDOUT);
    assert_int_equal(plain(1, 4, FBR_STORE_UNLOCK, "m"), 0);
    assert_int_equal(answers[3].code, 0);
    assert_int_equal(answers[2].times, 1);
}

static void a_semaphore_has_so_many_units(void **state)
{
    assert_int_equal(number(1, 1, FBR_STORE_ACQUIRE, "s", 0, true), -EINVAL);
    assert_int_equal(number(1, 2, FBR_STORE_ACQUIRE, "s", 2, true), 0);
    assert_int_equal(number(1, 3, FBR_STORE_ACQUIRE, "s", 9, true), 0); /* initial counts once */
    assert_int_equal(number(2, 4, FBR_STORE_ACQUIRE, "s", 2, false), -ETIMEDOUT);
    assert_int_equal(number(2, 5, FBR_STORE_ACQUIRE, "s", 2, true), NONE);
    assert_int_equal(number(3, 6, FBR_STORE_ACQUIRE, "s", 2, true), NONE);
    assert_int_equal(plain(2, 7, FBR_STORE_RELEASE, "s"), -EPERM);
    assert_int_equal(plain(4, 8, FBR_STORE_RELEASE, "s"), -EPERM);
    assert_int_equal(plain(1, 9, FBR_STORE_RELEASE, "s"), 0);
    assert_int_equal(answers[5].code, 0);
    assert_int_equal(answers[6].code, NONE);
    fbr_store_cancel(store, 3, 6);
    assert_int_equal(answers[6].code, -ETIMEDOUT);
    assert_int_equal(plain(2, 10, FBR_STORE_RELEASE, "s"), 0);
    assert_int_equal(plain(1, 11, FBR_STORE_RELEASE, "s"), 0);
    assert_int_equal(plain(1, 12, FBR_STORE_RELEASE, "s"), -EPERM);
    assert_int_equal(number(1, 13, FBR_STORE_ACQUIRE, "s", 1, false), 0); /* it begins again */
    assert_int_equal(number(1, 14, FBR_STORE_ACQUIRE, "s", 1, false), -ETIMEDOUT);
}

static void the_units_of_a_dead_peer_are_given_back(void **state)
{
    for (int i = 1; i <= 3; i++)
        assert_int_equal(number(1, i, FBR_STORE_ACQUIRE, "s", 3, false), 0);
    assert_int_equal(number(1, 4, FBR_STORE_ACQUIRE, "s", 3, true), NONE);
    assert_int_equal(number(2, 5, FBR_STORE_ACQUIRE, "s", 3, true), NONE);
    assert_int_equal(number(3, 6, FBR_STORE_ACQUIRE, "s", 3, true), NONE);
    fbr_store_peer_gone(store, 1);
    assert_int_equal(answers[4].times, 0);
    assert_int_equal(answers[5].code, 0);
    assert_int_equal(answers[6].code, 0);
    assert_int_equal(number(2, 7, FBR_STORE_ACQUIRE, "s", 3, false), 0);
    assert_int_equal(number(2, 8, FBR_STORE_ACQUIRE, "s", 3, false), -ETIMEDOUT);
    fbr_store_peer_gone(store, 2);
    fbr_store_peer_gone(store, 3);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void an_event_wakes_all_and_stays_set(void **state)
{
    assert_int_equal(plain(1, 1, FBR_STORE_EVENT_WAIT, "e"), -ETIMEDOUT);
    assert_int_equal(waiting(1, 2, FBR_STORE_EVENT_WAIT, "e"), NONE);
    assert_int_equal(waiting(2, 3, FBR_STORE_EVENT_WAIT, "e"), NONE);
    assert_int_equal(plain(3, 4, FBR_STORE_EVENT_CLEAR, "e"), 0);
    assert_int_equal(answers[2].code, NONE);
    assert_int_equal(plain(3, 5, FBR_STORE_EVENT_SET, "e"), 0);
    assert_int_equal(answers[2].code, 0);
    assert_int_equal(answers[3].code, 0);
    assert_int_equal(plain(4, 6, FBR_STORE_EVENT_WAIT, "e"), 0);
    assert_int_equal(plain(3, 7, FBR_STORE_EVENT_CLEAR, "e"), 0);
    assert_int_equal(plain(4, 8, FBR_STORE_EVENT_WAIT, "e"), -ETIMEDOUT);
    fbr_store_peer_gone(store, 1);
    fbr_store_peer_gone(store, 2);
    assert_int_equal(fbr_store_engine_memory(store), 0);
}

static void a_barrier_opens_for_the_last_to_come(void **state)
{
    for (int round = 0; round < 2; round++) {
        uint64_t call = 1 + 10 * (uint64_t)round;

        assert_int_equal(number(1, call, FBR_STORE_BARRIER, "b", 3, true), NONE);
        assert_int_equal(number(1, call + 1, FBR_STORE_BARRIER, "b", 3, true), NONE);
        assert_int_equal(number(2, call + 2, FBR_STORE_BARRIER, "b", 4, true), -EINVAL);
        assert_int_equal(number(2, call + 3, FBR_STORE_BARRIER, "b", 0, true), -EINVAL);
        assert_int_equal(number(2, call + 4, FBR_STORE_BARRIER, "b", 3, false), 0);
        assert_int_equal(answered_u32(call), 2);
        assert_int_equal(answered_u32(call + 1), 1);
        assert_int_equal(answered_u32(call + 4), 0);
    }
    assert_int_equal(number(1, 30, FBR_STORE_BARRIER, "b", 1, true), 0);
    assert_int_equal(answered_u32(30), 0);
}

static void a_barrier_breaks_when_a_caller_gives_up_or_dies(void **state)
{
    assert_int_equal(number(1, 1, FBR_STORE_BARRIER, "b", 4, true), NONE);
    assert_int_equal(number(2, 2, FBR_STORE_BARRIER, "b", 4, true), NONE);
    assert_int_equal(number(3, 3, FBR_STORE_BARRIER, "b", 4, true), NONE);
    fbr_store_cancel(store, 2, 2);
    assert_int_equal(answers[1].code, -ECONNABORTED);
    assert_int_equal(answers[2].code, -ETIMEDOUT);
    assert_int_equal(answers[3].code, -ECONNABORTED);

    assert_int_equal(number(1, 4, FBR_STORE_BARRIER, "b", 4, true), NONE); /* it is whole again */
    assert_int_equal(number(2, 5, FBR_STORE_BARRIER, "b", 4, true), NONE);
    assert_int_equal(number(2, 6, FBR_STORE_BARRIER, "b", 4, true), NONE);
    fbr_store_peer_gone(store, 2);
    assert_int_equal(answers[4].code, -ECONNABORTED);
    assert_int_equal(answers[5].times, 0);
    assert_int_equal(answers[6].times, 0);

    assert_int_equal(number(1, 7, FBR_STORE_BARRIER, "b", 2, true), NONE);
    assert_int_equal(number(3, 8, FBR_STORE_BARRIER, "b", 2, true), 0);
    assert_int_equal(answers[7].code, 0);
    assert_int_equal(number(1, 9, FBR_STORE_BARRIER, "b", 3, true), NONE);
    assert_int_equal(number(3, 10, FBR_STORE_BARRIER, "b", 3, false),
                     -ETIMEDOUT); /* comes, and gives up at once */
    assert_int_equal(answers[9].code, -ECONNABORTED);
}

/* ---- requests ---- */

static int raw(uint64_t call, const void *bytes, size_t len)
{
    struct fbr_cur c = fbr_cur(bytes, len);

    fbr_store_request(store, 1, call, &c);
    return answers[call].code;
}

static void a_malformed_request_changes_nothing(void **state)
{
    struct fbr_store_ask ask = fbr_store_ask(FBR_STORE_SET, "key");
    struct fbr_buf b;

    ask.value = "value";
    ask.value_len = 5;
    fbr_buf_init(&b);
    assert_int_equal(fbr_store_ask_put(&b, &ask), 0);
    for (size_t len = 0; len < b.len; len++)
        assert_int_equal(raw(1 + len, b.data, len), -EBADMSG);
    fbr_put_u8(&b, 0);
    assert_int_equal(raw(100, b.data, b.len), -EBADMSG);
    assert_int_equal(raw(101, "\0\0\0\0\0", 5), -EBADMSG);
    assert_int_equal(raw(102, "\23\0\0\0\0", 5), -EBADMSG);
    assert_int_equal(raw(103, "\2\3\0\0\0a\0b\0", 9), -EBADMSG); /* NUL in the name */
    assert_int_equal(raw(104, "\2\1\0\0\0a\2", 7), -EBADMSG);    /* wait is neither 0 nor 1 */
    assert_int_equal(fbr_store_engine_memory(store), 0);
    assert_int_equal(raw(105, "\2\1\0\0\0a\1", 7), NONE);
    assert_int_equal(raw(105, "\2\1\0\0\0a\1", 7), -EBADMSG); /* that call waits already */
    fbr_store_cancel(store, 1, 105);
    assert_int_equal(answers[105].times, 2);
    fbr_buf_fini(&b);
}

static void names_have_at_most_255_bytes(void **state)
{
    char name[258];
    struct fbr_store_ask ask;
    struct fbr_buf b;

    memset(name, 'n', sizeof(name));
    name[255] = '\0';
    assert_int_equal(value(1, 1, FBR_STORE_SET, name, "v"), 0);
    name[255] = 'n';
    name[256] = '\0';
    fbr_buf_init(&b);
    ask = fbr_store_ask(FBR_STORE_LENGTH, name);
    assert_int_equal(fbr_store_ask_put(&b, &ask), -EINVAL);
    assert_int_equal(b.len, 0);
    fbr_put_u8(&b, FBR_STORE_LENGTH);
    fbr_put_str(&b, name);
    assert_int_equal(raw(2, b.data, b.len), -EBADMSG);
    fbr_buf_fini(&b);
}

static void requests_read_back_as_they_were_written(void **state)
{
    struct fbr_store_ask ask, back;
    struct fbr_buf b;
    struct fbr_cur c;

    fbr_buf_init(&b);
    for (int op = FBR_STORE_SET; op < FBR_STORE_OPS; op++) {
        ask = fbr_store_ask((enum fbr_store_op)op, "name");
        ask.value = "value";
        ask.value_len = 5;
        ask.expect = "";
        ask.number = -3;
        ask.wait = true;
        assert_int_equal(fbr_store_ask_put(&b, &ask), 0);
        c = fbr_cur(b.data, b.len);
        assert_int_equal(fbr_store_ask_get(&c, &back), 0);
        assert_int_equal(back.op, op);
        assert_int_equal(back.name_len, 4);
        assert_memory_equal(back.name, "name", 4);
        assert_true(!back.value || !memcmp(back.value, "value", 5));
        assert_true(!back.number || back.number == -3);
        assert_true(back.expect ? op == FBR_STORE_SWAP : op != FBR_STORE_SWAP);
        fbr_buf_clear(&b);
    }
    fbr_buf_fini(&b);
}

static void a_full_store_refuses_and_changes_nothing(void **state)
{
    char text[700];
    uint64_t call = 1;
    size_t full;

    fbr_store_engine_close(store);
    assert_int_equal(open_limited(4096), 0);
    memset(text, 'v', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    while (value(1, call, FBR_STORE_PUSH, "l", text) == 0)
        call++;
    assert_int_equal(answers[call].code, -ENOSPC);
    full = fbr_store_engine_memory(store);
    assert_true(full <= 4096 && call > 3);
    assert_int_equal(value(1, 100, FBR_STORE_SET, "k", text), -ENOSPC);
    assert_int_equal(plain(1, 101, FBR_STORE_GET, "k"), -ENOENT);
    assert_int_equal(fbr_store_engine_memory(store), full);
    assert_int_equal(plain(1, 102, FBR_STORE_POP, "l"), 0);
    assert_int_equal(value(1, 103, FBR_STORE_SET, "k", "small"), 0);
    for (call = 200; answers[call - 1].code != -ENOSPC && call < 300; call++)
        (void)waiting(2, call, FBR_STORE_EVENT_WAIT, "e");
    assert_true(call < 300); /* what waits takes memory, too */
    fbr_store_peer_gone(store, 2);
    assert_int_equal(plain(1, 301, FBR_STORE_LOCK, "m"), 0);
}

/* Some of everything, from four peers; then all that a client can undo is undone. */
static void use_everything(void)
{
    (void)value(1, 1, FBR_STORE_SET, "k", "some value");
    (void)swap(1, 2, "j", NULL, "another value");
    (void)waiting(2, 3, FBR_STORE_GET, "absent");
    for (uint64_t call = 4; call < 12; call++)
        (void)value(1, call, FBR_STORE_PUSH, "l", "item");
    (void)number(1, 12, FBR_STORE_ADD, "c", 1, false);
    for (uint64_t peer = 1; peer < 5; peer++) {
        (void)number(peer, 20 + peer, FBR_STORE_ACQUIRE, "s", 1, true);
        (void)waiting(peer, 30 + peer, FBR_STORE_LOCK, "m");
        (void)number(peer, 40 + peer, FBR_STORE_BARRIER, "b", 3, true);
        (void)waiting(peer, 50 + peer, FBR_STORE_EVENT_WAIT, "e");
    }
    (void)plain(1, 60, FBR_STORE_RELEASE, "s");
    for (uint64_t peer = 1; peer < 5; peer++) {
        (void)plain(peer, 60 + peer, FBR_STORE_UNLOCK, "m");
        (void)plain(peer, 70 + peer, FBR_STORE_RELEASE, "s");
    }
    for (uint64_t call = 80; call < 88; call++)
        (void)plain(1, call, FBR_STORE_POP, "l");
    (void)plain(1, 90, FBR_STORE_DELETE, "k");
    (void)plain(1, 91, FBR_STORE_DELETE, "j");
    if (answers[12].code == 0)
        (void)number(1, 92, FBR_STORE_ADD, "c", -1, false);
    for (uint64_t peer = 1; peer < 5; peer++)
        fbr_store_peer_gone(store, peer);
}

static void whatever_the_limit_nothing_is_left_behind(void **state)
{
    size_t refused = 0;

    for (size_t limit = 1; limit < 8192; limit += 16) {
        fbr_store_engine_close(store);
        assert_int_equal(open_limited(limit), 0);
        use_everything();
        for (size_t call = 0; call < 100; call++) {
            assert_true(answers[call].times <= 1);
            refused += answers[call].code == -ENOSPC;
        }
        assert_int_equal(fbr_store_engine_memory(store), 0);
    }
    assert_true(refused > 1000);
}

int main(void)
{
#define BEHAVIOUR(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {
        BEHAVIOUR(a_key_has_the_value_that_was_set_last),
        BEHAVIOUR(a_get_waits_until_the_key_is_set),
        BEHAVIOUR(swap_compares_and_tells_what_it_found),
        BEHAVIOUR(keys_are_sorted_and_begin_with_the_prefix),
        BEHAVIOUR(counters_add_and_refuse_to_overflow),
        BEHAVIOUR(lists_are_queues_with_an_index),
        BEHAVIOUR(a_push_goes_to_the_pop_that_waits_longest),
        BEHAVIOUR(each_kind_has_its_own_names),
        BEHAVIOUR(a_delete_takes_all_that_has_the_name),
        BEHAVIOUR(a_delete_disturbs_nobody_who_waits),
        BEHAVIOUR(who_holds_a_lock_is_told_to_those_who_do_not_get_it),
        BEHAVIOUR(a_lock_goes_from_one_to_the_next),
        BEHAVIOUR(the_next_holder_after_a_death_is_told_once),
        BEHAVIOUR(a_death_is_told_also_when_nobody_waited),
        BEHAVIOUR(a_lock_that_was_given_up_goes_to_others),
        BEHAVIOUR(a_semaphore_has_so_many_units),
        BEHAVIOUR(the_units_of_a_dead_peer_are_given_back),
        BEHAVIOUR(an_event_wakes_all_and_stays_set),
        BEHAVIOUR(a_barrier_opens_for_the_last_to_come),
        BEHAVIOUR(a_barrier_breaks_when_a_caller_gives_up_or_dies),
        BEHAVIOUR(a_malformed_request_changes_nothing),
        BEHAVIOUR(names_have_at_most_255_bytes),
        BEHAVIOUR(requests_read_back_as_they_were_written),
        BEHAVIOUR(a_full_store_refuses_and_changes_nothing),
        BEHAVIOUR(whatever_the_limit_nothing_is_left_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
