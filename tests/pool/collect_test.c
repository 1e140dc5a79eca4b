/* collect_test.c - workers that say to the pool what no worker says: they are killed, and others do their tasks.
 *
 * These workers are behind a host, so a task finds the data link of its process as a descriptor (relay.h), and writes
 * records of its own making to it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_wire.h"
#include "runtime/net/relay.h"
#include "tests/pool/tasks.h"

#define WRONG 5 /* runs of the task that say something wrong; those after them do not */

/* A record of two 32-bit numbers and zeros, as pipe_frames.h has it. */
static void say(uint32_t first, uint32_t second)
{
    struct {
        uint64_t len;
        uint32_t words[8];
    } record = {sizeof(record.words), {first, second}};

    if (write(FBR_RELAY_FD, &record, sizeof(record)) != sizeof(record))
        _exit(97);
}

/* It does not end by itself: the pool has to see to it. */
static void wait_for_the_end(void)
{
    for (;;)
        pause();
}

static int exits_twice(const void *in, size_t len, struct fiber_reply *reply)
{
    if (atomic_fetch_add(&board->runs[0], 1) < WRONG) {
        for (int i = 0; i < 100; i++)
            say(FBR_LAST, 0);
        wait_for_the_end();
    }
    return square(in, len, reply);
}

static int lies(const void *in, size_t len, struct fiber_reply *reply)
{
    if (atomic_fetch_add(&board->runs[0], 1) < WRONG) {
        for (int i = 0; i < 100; i++)
            say(FBR_RESULTS, 1); /* and then there is none */
        ;
        wait_for_the_end();
    }
    return square(in, len, reply);
}

/* Something that nobody knows is passed over: a later version may say it. */
static int babbles(const void *in, size_t len, struct fiber_reply *reply)
{
    atomic_fetch_add(&board->runs[0], 1);
    for (int i = 0; i < 100; i++)
        say(77, 0);
    return square(in, len, reply);
}

static void is_done_after(fiber_task_fn fn, uint32_t runs)
{
    struct fiber_pool *pool =
        open_pool_with((struct fiber_pool_options){.min = 2, .max = 2, .workers_per_job = 2});
    int64_t n = 5;
    struct fiber_bytes out;

    assert_ok(fiber_pool_apply(pool, fn, &n, sizeof(n), &out));
    assert_int_equal(number(out.data, out.len), 25);
    assert_int_equal(atomic_load(&board->runs[0]), runs);
    fiber_bytes_free(&out);
    fiber_pool_close(pool);
}

static void test_a_worker_that_says_twice_that_it_exits_is_killed(void **state)
{
    is_done_after(exits_twice, WRONG + 1);
}

static void test_a_worker_whose_results_make_no_sense_is_killed(void **state)
{
    is_done_after(lies, WRONG + 1);
}

static void test_a_record_that_nobody_knows_is_passed_over(void **state)
{
    is_done_after(babbles, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_a_worker_that_says_twice_that_it_exits_is_killed),
        pool_test(test_a_worker_whose_results_make_no_sense_is_killed),
        pool_test(test_a_record_that_nobody_knows_is_passed_over),
    };

    assert_ok(fiber_init(&argc, &argv));
    return run_pool_tests(tests, "take");
}
