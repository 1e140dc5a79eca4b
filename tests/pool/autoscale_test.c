/* autoscale_test.c - how many workers an autoscaled pool asks for, look by look, on a clock of the
 * test's own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/autoscale.h"
#include "tests/support/dispatch_check.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define TICK (FBR_AUTOSCALE_TICK_MS * MS)
#define IDLE (2000 * MS)
#define WORKERS_MAX 16

/* A pool as its crew sees it: `n` workers are ready. */
struct bench {
    struct fbr_dispatch *d;
    struct fbr_autoscale demand;
    uint64_t now, workers[WORKERS_MAX];
    int n;
};

static void add_worker(struct bench *b)
{
    assert_true(b->n < WORKERS_MAX);
    assert_int_equal(fbr_dispatch_worker_add(b->d, b->now, b, 0, &b->workers[b->n++]), 0);
}

static struct bench bench_open(int min, int max)
{
    struct bench b = {
        .d = fbr_dispatch_open(FBR_DISPATCH_BYTES_MAX),
        .demand = {.min = min, .max = max, .target = min, .idle_ns = IDLE},
        .now = MS,
    };

    assert_non_null(b.d);
    while (b.n < min)
        add_worker(&b);
    return b;
}

static void bench_close(struct bench *b)
{
    assert_null(dispatch_check(b->d));
    fbr_dispatch_close(b->d);
}

static uint64_t submit(struct bench *b, uint64_t tasks)
{
    const struct fbr_dispatch_map map = {.user = b, .tasks = tasks, .retries = -1};
    uint64_t id = 0;

    assert_int_equal(fbr_dispatch_map_add(b->d, &map, &id), 0);
    return id;
}

/* One look, as the crew does it: the new target; those that are missing are ready at once. */
static int look(struct bench *b)
{
    b->demand.target = fbr_autoscale_target(&b->demand, b->d, b->now);
    while (b->n < b->demand.target)
        add_worker(b);
    return b->demand.target;
}

/* Hands out what there is to hand out; returns how many batches, in `batches` (may be NULL). */
static int hand_out(struct bench *b, struct fbr_dispatch_batch *batches)
{
    struct fbr_dispatch_batch batch;
    int n = 0;

    while (fbr_dispatch_next(b->d, b->now, &batch) > 0) {
        assert_true(n < WORKERS_MAX);
        if (batches)
            batches[n] = batch;
        n++;
    }
    return n;
}

/* The whole batch is done; each of its tasks took `each`. */
static void finish(struct bench *b, const struct fbr_dispatch_batch *batch, uint64_t each)
{
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];

    b->now += batch->count * each;
    assert_int_equal(fbr_dispatch_results(b->d, b->now, batch->worker, batch->id, 0, batch->count,
                                          batch->count * each, take, &out),
                     0);
}

/* A look at idle workers: the one that may go goes. How many workers are left. */
static int look_for_spares(struct bench *b)
{
    for (int i = 0; i < b->n; i++)
        if (fbr_autoscale_spares(&b->demand, b->d, b->now, b->workers[i])) {
            struct fbr_dispatch_failure failure;

            b->demand.target--;
            fbr_dispatch_worker_drain(b->d, b->workers[i]);
            assert_int_equal(fbr_dispatch_worker_remove(b->d, b->now, b->workers[i], &failure), 0);
            b->workers[i] = b->workers[--b->n];
            break;
        }
    return b->n;
}

/* ---- growing ---- */

static void one_look_asks_for_all_workers_that_the_backlog_can_use(void **state)
{
    struct bench b = bench_open(1, 12);

    assert_int_equal(look(&b), 1);
    submit(&b, 5);
    assert_int_equal(look(&b), 5);
    assert_int_equal(hand_out(&b, NULL), 5); /* each of them has something to do */
    assert_int_equal(look(&b), 5);
    submit(&b, 1000);
    assert_int_equal(look(&b), 12);
    bench_close(&b);
}

static void a_pool_of_nobody_grows_at_the_first_task(void **state)
{
    struct bench b = bench_open(0, 3);

    assert_int_equal(look(&b), 0);
    submit(&b, 1);
    assert_int_equal(look(&b), 1);
    assert_int_equal(hand_out(&b, NULL), 1);
    bench_close(&b);
}

static void who_is_busy_is_not_counted_on_for_what_waits(void **state)
{
    struct bench b = bench_open(2, 8);

    submit(&b, 2);
    assert_int_equal(hand_out(&b, NULL), 2);
    assert_int_equal(look(&b), 2);
    submit(&b, 3);
    assert_int_equal(look(&b), 5);
    bench_close(&b);
}

/* Tasks that took no time are handed out ahead; then the first of them takes long. Nothing waits
 * and nothing happens: only the next look can tell, and that is a tick away at most. */
static void what_is_held_up_in_a_worker_is_seen_at_the_next_tick(void **state)
{
    struct bench b = bench_open(1, 4);
    struct fbr_dispatch_map again = {.user = &b, .tasks = 2, .retries = -1, .expect_ns = 10 * US};
    struct fbr_dispatch_batch batches[WORKERS_MAX];
    struct fbr_dispatch_stats s;
    uint64_t id;
    int n;

    submit(&b, 1000); /* it learns how long they take, before anybody looks */
    while ((n = hand_out(&b, batches)) > 0)
        for (int i = 0; i < n; i++)
            finish(&b, &batches[i], 10 * US);
    assert_int_equal(fbr_dispatch_map_add(b.d, &again, &id), 0);
    assert_true(hand_out(&b, NULL) > 0);
    s = *fbr_dispatch_stats(b.d);
    assert_int_equal(s.waiting, 0);
    assert_int_equal(s.held, 2);
    assert_int_equal(look(&b), 1); /* it is through with them at once, as far as we know */
    b.now = fbr_autoscale_next_ms(&b.demand, b.now / MS, 2) * MS;
    assert_int_equal(look(&b), 2);
    bench_close(&b);
}

/* ---- shrinking ---- */

static void workers_that_idle_for_long_go_one_a_look_down_to_the_minimum(void **state)
{
    struct bench b = bench_open(2, 6);
    struct fbr_dispatch_batch batches[WORKERS_MAX];
    int n;

    submit(&b, 6);
    assert_int_equal(look(&b), 6);
    n = hand_out(&b, batches);
    assert_int_equal(n, 6);
    for (int i = 0; i < n; i++)
        finish(&b, &batches[i], 0);
    assert_int_equal(look_for_spares(&b), 6);
    b.now += IDLE;
    assert_int_equal(look_for_spares(&b), 6); /* so long, and not longer */
    b.now++;
    for (int left = 5; left >= 2; left--, b.now += TICK)
        assert_int_equal(look_for_spares(&b), left);
    b.now += 10 * IDLE;
    assert_int_equal(look_for_spares(&b), 2);
    assert_int_equal(look(&b), 2);
    bench_close(&b);
}

static void who_holds_a_task_stays_however_long_it_takes(void **state)
{
    struct bench b = bench_open(0, 1);

    submit(&b, 1);
    assert_int_equal(look(&b), 1);
    assert_int_equal(hand_out(&b, NULL), 1);
    b.now += 100 * IDLE;
    assert_int_equal(look_for_spares(&b), 1);
    bench_close(&b);
}

static void while_something_waits_nobody_goes(void **state)
{
    struct bench b = bench_open(0, 2);

    submit(&b, 1);
    submit(&b, 1);
    assert_int_equal(look(&b), 2);
    b.now += 10 * IDLE; /* it was not handed out yet */
    assert_int_equal(look_for_spares(&b), 2);
    bench_close(&b);
}

/* ---- when ---- */

static void the_next_look_is_a_tick_away_while_there_may_be_something_to_see(void **state)
{
    struct fbr_autoscale grows = {.min = 1, .max = 4, .target = 1}, fixed = {3, 3, 3, 0};

    assert_int_equal(fbr_autoscale_next_ms(&grows, 1000, 1), 1000 + FBR_AUTOSCALE_TICK_MS);
    assert_true(fbr_autoscale_next_ms(&grows, 1000, 0) == UINT64_MAX);
    grows.target = 2; /* somebody may have idled for long by then */
    assert_int_equal(fbr_autoscale_next_ms(&grows, 1000, 0), 1000 + FBR_AUTOSCALE_TICK_MS);
    assert_true(fbr_autoscale_next_ms(&fixed, 1000, 1) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_look_asks_for_all_workers_that_the_backlog_can_use),
        cmocka_unit_test(a_pool_of_nobody_grows_at_the_first_task),
        cmocka_unit_test(who_is_busy_is_not_counted_on_for_what_waits),
        cmocka_unit_test(what_is_held_up_in_a_worker_is_seen_at_the_next_tick),
        cmocka_unit_test(workers_that_idle_for_long_go_one_a_look_down_to_the_minimum),
        cmocka_unit_test(who_holds_a_task_stays_however_long_it_takes),
        cmocka_unit_test(while_something_waits_nobody_goes),
        cmocka_unit_test(the_next_look_is_a_tick_away_while_there_may_be_something_to_see),
    };

    return cmocka_run_group_tests_name("demand", tests, NULL, NULL);
}
