/* pipe_frames_test.c - records over a stream of bytes, in pieces of any size.
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

#include "runtime/net/pipe_frames.h"

#define LIMIT 100000

struct seen {
    size_t records, lengths[64];
    uint8_t *bytes;
    size_t len;
};

static void on_record(void *user, const void *record, size_t len)
{
    struct seen *s = user;

    assert_int_equal((uintptr_t)record % 8, 0);
    s->lengths[s->records++] = len;
    if (len)
        memcpy(s->bytes + s->len, record, len);
    s->len += len;
}

/* Bytes as they travel; the frame is sent in pieces of `step`, and what is left is kept. */
static void put(struct fbr_pipe_frames_out *out, const uint8_t *bytes, size_t len, size_t step)
{
    const struct iovec parts[2] = {{(void *)(uintptr_t)bytes, len / 3},
                                   {(void *)(uintptr_t)(bytes + len / 3), len - len / 3}};
    struct fbr_pipe_frames_out sent = {0};
    struct fbr_pipe_frames_frame f, before;
    const void *waiting;
    size_t n;

    fbr_pipe_frames_frame(&f, parts, 2);
    before = f;
    before.iov[0].iov_base = before.head; /* the frame points into itself */
    assert_int_equal(fbr_pipe_frames_keep(&sent, &before), 0);
    n = fbr_pipe_frames_waiting(&sent, &waiting);
    if (step < n) { /* some at once, the rest later: the same bytes */
        assert_false(fbr_pipe_frames_sent(&f, step));
        fbr_put(&out->bytes, waiting, step);
        assert_int_equal(fbr_pipe_frames_keep(out, &f), 0);
    } else {
        assert_true(fbr_pipe_frames_sent(&f, n));
        fbr_put(&out->bytes, waiting, n);
    }
    fbr_pipe_frames_drop(&sent, n);
    assert_int_equal(fbr_pipe_frames_waiting(&sent, &waiting), 0);
    fbr_pipe_frames_out_fini(&sent);
}

/* Feeds all that waits, `step` bytes at a time. */
static int feed(struct fbr_pipe_frames_in *in, struct fbr_pipe_frames_out *out, size_t step,
                struct seen *s)
{
    const void *bytes;
    size_t len, room;
    int rc = 0;

    while (rc == 0 && (len = fbr_pipe_frames_waiting(out, &bytes)) > 0) {
        void *to = fbr_pipe_frames_room(in, &room);

        assert_non_null(to);
        len = len < step ? len : step;
        len = len < room ? len : room;
        assert_true(len > 0);
        memcpy(to, bytes, len);
        fbr_pipe_frames_drop(out, len);
        rc = fbr_pipe_frames_took(in, len, on_record, s);
    }
    return rc;
}

static void test_records_survive_any_cutting(void **state)
{
    const size_t sizes[] = {0, 1, 7, 8, 9, 100, 16383, 16384, 40000, LIMIT, 0, 5};
    const size_t steps[] = {1, 3, 8, 1000, 16384, 1 << 20}, n = sizeof(sizes) / sizeof(sizes[0]);
    uint8_t *bytes = malloc(2 * LIMIT), *got = malloc(4 * LIMIT);

    for (size_t i = 0; i < 2 * LIMIT; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8));
    for (size_t k = 0; k < sizeof(steps) / sizeof(steps[0]); k++) {
        struct fbr_pipe_frames_in in = {.limit = LIMIT};
        struct fbr_pipe_frames_out out = {0};
        struct seen s = {.bytes = got};
        size_t at = 0;

        for (size_t i = 0; i < n; i++)
            put(&out, bytes + i, sizes[i], steps[k]);
        assert_int_equal(feed(&in, &out, steps[k], &s), 0);
        assert_int_equal(s.records, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(s.lengths[i], sizes[i]);
            assert_memory_equal(got + at, bytes + i, sizes[i]);
            at += sizes[i];
        }
        fbr_pipe_frames_in_fini(&in);
        fbr_pipe_frames_out_fini(&out);
    }
    free(bytes);
    free(got);
}

static void test_a_record_above_the_limit_is_refused_before_there_is_room_for_it(void **state)
{
    static const uint64_t lengths[] = {LIMIT + 1, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct fbr_pipe_frames_in in = {.limit = LIMIT};
        struct seen s = {0};
        size_t room;
        void *to = fbr_pipe_frames_room(&in, &room);

        memcpy(to, &lengths[i], 8);
        assert_int_equal(fbr_pipe_frames_took(&in, 8, on_record, &s), -EMSGSIZE);
        assert_int_equal(s.records, 0);
        fbr_pipe_frames_in_fini(&in);
    }
}

static void test_what_is_never_sent_to_its_end_takes_no_more_room(void **state)
{
    struct fbr_pipe_frames_in in = {.limit = LIMIT};
    struct fbr_pipe_frames_out out = {0};
    const size_t size = 1000, framed = 8 + size;
    uint8_t bytes[1000], got[1000];
    struct seen s = {.bytes = got};

    memset(bytes, 7, size);
    put(&out, bytes, size, 0);
    for (int i = 0; i < 10000; i++) {
        const void *waiting;
        size_t room;
        void *to;

        put(&out, bytes, size, 0);
        assert_int_equal(fbr_pipe_frames_waiting(&out, &waiting), 2 * framed);
        to = fbr_pipe_frames_room(&in, &room);
        assert_true(to && room >= framed);
        memcpy(to, waiting, framed);
        fbr_pipe_frames_drop(&out, framed);
        s.records = s.len = 0;
        assert_int_equal(fbr_pipe_frames_took(&in, framed, on_record, &s), 0);
        assert_int_equal(s.records, 1);
        assert_memory_equal(got, bytes, size);
    }
    assert_true(out.bytes.cap < 100 * size);
    fbr_pipe_frames_in_fini(&in);
    fbr_pipe_frames_out_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_survive_any_cutting),
        cmocka_unit_test(test_a_record_above_the_limit_is_refused_before_there_is_room_for_it),
        cmocka_unit_test(test_what_is_never_sent_to_its_end_takes_no_more_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
