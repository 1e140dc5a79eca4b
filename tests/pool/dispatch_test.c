/* dispatch_test.c - what the scheduling engine decides, event by event.
 *
 * Times and chaos: dispatch_sim_test.c; memory and processor time: dispatch_cost_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/dispatch.h"
#include "tests/support/dispatch_check.h"

#define US UINT64_C(1000)
#define MS (1000 * US)

/* ---- memory that runs short ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__) && \
    !defined(__clang__)
#define SHORT_OF_MEMORY 1

void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

static int allocations_left = -1; /* before they fail; negative: they do not */

static bool may_allocate(void)
{
    return allocations_left < 0 || allocations_left-- > 0;
}

void *calloc(size_t n, size_t size)
{
    if (may_allocate())
        return __libc_calloc(n, size);
    allocations_left = 0;
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *p, size_t size)
{
    if (may_allocate())
        return __libc_realloc(p, size);
    allocations_left = 0;
    errno = ENOMEM;
    return NULL;
}
#endif

/* ---- the engine under test ---- */

struct bench {
    struct fbr_dispatch *d;
    uint64_t now, map, workers[8];
};

static uint64_t add_map(struct bench *b, uint64_t tasks, int retries)
{
    struct fbr_dispatch_map map = {.user = b, .tasks = tasks, .retries = retries};
    uint64_t id = 0;

    assert_int_equal(fbr_dispatch_map_add(b->d, &map, &id), 0);
    return id;
}

static uint64_t add_worker(struct bench *b)
{
    uint64_t id = 0;

    assert_int_equal(fbr_dispatch_worker_add(b->d, b->now, b, 0, &id), 0);
    return id;
}

static struct bench bench_open(int workers, uint64_t tasks, int retries)
{
    struct bench b = {.d = fbr_dispatch_open(FBR_DISPATCH_BYTES_MAX), .now = MS};

    assert_non_null(b.d);
    for (int i = 0; i < workers; i++)
        b.workers[i] = add_worker(&b);
    if (tasks)
        b.map = add_map(&b, tasks, retries);
    return b;
}

static void check(struct bench *b)
{
    const char *wrong = dispatch_check(b->d);

    if (wrong)
        fail_msg("%s", wrong);
}

static void bench_close(struct bench *b)
{
    check(b);
    fbr_dispatch_close(b->d);
}

static struct fbr_dispatch_stats stats(struct bench *b)
{
    struct fbr_dispatch_stats s;

    s = *fbr_dispatch_stats(b->d);
    return s;
}

static struct fbr_dispatch_batch next(struct bench *b)
{
    struct fbr_dispatch_batch batch;

    assert_int_equal(fbr_dispatch_next(b->d, b->now, &batch), 1);
    check(b);
    return batch;
}

static void nothing_next(struct bench *b)
{
    struct fbr_dispatch_batch batch;

    assert_int_equal(fbr_dispatch_next(b->d, b->now, &batch), 0);
}

static struct fbr_dispatch_order order(struct bench *b, enum fbr_dispatch_order_kind kind)
{
    struct fbr_dispatch_order o;

    assert_int_equal(fbr_dispatch_order(b->d, b->now, &o), 1);
    assert_int_equal(o.kind, kind);
    return o;
}

static void no_order(struct bench *b)
{
    struct fbr_dispatch_order o;

    assert_int_equal(fbr_dispatch_order(b->d, b->now, &o), 0);
}

/* Reports n tasks of the batch from `pos` on, each of which took `each` ns; returns how many
 * results were taken. */
static uint32_t report(struct bench *b, const struct fbr_dispatch_batch *batch, uint32_t pos,
                       uint32_t n, uint64_t each)
{
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];
    uint32_t taken = 0;

    b->now += n * each;
    assert_int_equal(
        fbr_dispatch_results(b->d, b->now, batch->worker, batch->id, pos, n, n * each, take, &out),
        0);
    assert_int_equal(out.first, batch->first + pos);
    for (uint32_t i = 0; i < n; i++)
        taken += take[i];
    assert_int_equal(taken, out.taken);
    check(b);
    return taken;
}

static void finish(struct bench *b, const struct fbr_dispatch_batch *batch, uint64_t each)
{
    assert_int_equal(report(b, batch, 0, batch->count, each), batch->count);
}

static int die(struct bench *b, uint64_t worker, uint64_t name, struct fbr_dispatch_failure *f)
{
    int rc = fbr_dispatch_worker_dead(b->d, b->now, worker, name, 0, f);

    check(b);
    return rc;
}

/* Hands out and finishes batches until one of at least `size` tasks comes, which is returned. */
static struct fbr_dispatch_batch grow_to(struct bench *b, uint32_t size, uint64_t each)
{
    struct fbr_dispatch_batch batch = next(b);

    while (batch.count < size) {
        finish(b, &batch, each);
        batch = next(b);
    }
    return batch;
}

/* ---- how many ---- */

static void batches_begin_with_one_task_and_grow_fourfold(void **state)
{
    struct bench b = bench_open(1, 100000, 2);
    uint32_t sizes[] = {1, 4, 16, 64, 256, 683, 1024};
    struct fbr_dispatch_batch batch;

    for (size_t i = 0; i < 7; i++) {
        batch = next(&b);
        assert_int_equal(batch.count, sizes[i]); /* 683: up to the end of a page of states */
        finish(&b, &batch, 10);
    }
    bench_close(&b);
}

static void a_batch_is_four_milliseconds_of_work(void **state)
{
    struct bench b = bench_open(1, 100000, 2);
    struct fbr_dispatch_batch batch;

    for (int i = 0; i < 10; i++) {
        batch = next(&b);
        finish(&b, &batch, 50 * US);
    }
    assert_int_equal(batch.count, 80);
    assert_int_equal(fbr_dispatch_map_mean(b.d, b.map), 50 * US);
    bench_close(&b);
}

static void the_chunk_hint_sets_the_first_batch(void **state)
{
    struct bench b = bench_open(2, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 1000, .retries = 2, .chunk = 50};

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    assert_int_equal(next(&b).count, 50);
    map.tasks = 20;
    map.priority = 1;
    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    assert_int_equal(next(&b).count, 5); /* but not more than its share */
    bench_close(&b);
}

static void the_end_of_a_map_is_cut_small(void **state)
{
    struct bench b = bench_open(2, 41, 2);
    struct fbr_dispatch_batch batch = next(&b), other;
    uint64_t waiting;

    while (stats(&b).waiting) {
        finish(&b, &batch, 100);
        waiting = stats(&b).waiting;
        if (!waiting)
            break;
        batch = next(&b);
        assert_true(batch.count <= 2 || batch.count <= (waiting + 3) / 4);
        if (stats(&b).waiting) {
            other = next(&b);
            finish(&b, &other, 100);
        }
    }
    bench_close(&b);
}

static uint64_t size_of(void *user, uint64_t index)
{
    return index < 500 ? 1 << 20 : 8 << 20;
}

static void large_inputs_are_not_batched(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_map map = {
        .user = &b, .tasks = 1000, .retries = 2, .chunk = 100, .task_bytes = 3 << 19};

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    assert_int_equal(next(&b).count, 2); /* of 1.5 MiB each, at most 4 MiB */
    fbr_dispatch_map_close(b.d, b.map);
    b.workers[1] = add_worker(&b);
    map.task_bytes = 0;
    map.size_of = size_of;
    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    assert_int_equal(next(&b).count, 4);
    bench_close(&b);
}

static void a_slow_worker_gets_less(void **state)
{
    struct bench b = bench_open(2, 100000, 2);
    struct fbr_dispatch_batch slow, fast, swap;

    for (int i = 0; i < 50; i++) {
        slow = next(&b);
        fast = next(&b);
        if (slow.worker != b.workers[0]) {
            swap = slow;
            slow = fast;
            fast = swap;
        }
        finish(&b, &slow, 100 * US);
        finish(&b, &fast, 10 * US);
    }
    assert_in_range(slow.count, 32, 48);
    assert_in_range(fast.count, 320, 480);
    bench_close(&b);
}

/* ---- to whom ---- */

static void idle_workers_come_first(void **state)
{
    struct bench b = bench_open(3, 100, 2);
    struct fbr_dispatch_batch first = next(&b), second = next(&b), third = next(&b);

    assert_true(first.worker != second.worker && second.worker != third.worker &&
                first.worker != third.worker);
    nothing_next(&b);
    bench_close(&b);
}

static void a_second_batch_follows_short_tasks(void **state)
{
    struct bench b = bench_open(1, 100, 2);
    struct fbr_dispatch_batch batch = next(&b), second;

    nothing_next(&b); /* nothing is known yet */
    finish(&b, &batch, MS);
    batch = next(&b);
    second = next(&b);
    assert_int_equal(second.first, batch.first + batch.count);
    nothing_next(&b); /* never a third */
    bench_close(&b);
}

static void nothing_waits_behind_long_tasks(void **state)
{
    struct bench b = bench_open(1, 100, 2);
    struct fbr_dispatch_batch batch = next(&b);

    finish(&b, &batch, 120 * MS);
    assert_int_equal(next(&b).count, 1);
    nothing_next(&b);
    bench_close(&b);
}

static void who_has_nothing_gets_two_tasks_at_once(void **state)
{
    struct bench b = bench_open(2, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 6, .retries = 2, .expect_ns = 50 * MS};
    struct fbr_dispatch_batch first, second, third;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    first = next(&b);
    second = next(&b);
    assert_int_equal(first.count, 2);
    assert_int_equal(second.count, 2);
    assert_int_not_equal(first.worker, second.worker);
    nothing_next(&b); /* that is enough work for now */
    report(&b, &first, 0, 1, 50 * MS);
    third = next(&b); /* the next one, while it runs its second */
    assert_int_equal(third.worker, first.worker);
    assert_int_equal(third.count, 1);
    bench_close(&b);
}

static void the_next_two_tasks_come_together_while_there_are_two_for_everybody(void **state)
{
    struct bench b = bench_open(2, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 8, .retries = 2, .expect_ns = 50 * MS};
    struct fbr_dispatch_batch first, second, third, fourth;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    first = next(&b);
    second = next(&b);
    report(&b, &first, 0, 1, 50 * MS);
    third = next(&b); /* 4 are left for two workers */
    assert_int_equal(third.worker, first.worker);
    assert_int_equal(third.count, 2);
    nothing_next(&b);
    report(&b, &second, 0, 1, 50 * MS);
    fourth = next(&b); /* 2 for the one that has no second batch */
    assert_int_equal(fourth.worker, second.worker);
    assert_int_equal(fourth.count, 2);
    nothing_next(&b);
    bench_close(&b);
}

static void the_last_tasks_wait_for_whoever_is_first(void **state)
{
    struct bench b = bench_open(4, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 4, .retries = 2, .expect_ns = 50 * MS};
    struct fbr_dispatch_batch batches[4], last;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    for (int i = 0; i < 4; i++) {
        batches[i] = next(&b);
        assert_int_equal(batches[i].count, 1);
    }
    map.tasks = 3;
    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    nothing_next(&b); /* 3 for 4 workers: which of them will be slow? */
    finish(&b, &batches[2], 50 * MS);
    last = next(&b);
    assert_int_equal(last.worker, batches[2].worker);
    bench_close(&b);
}

static void higher_priority_then_older_maps_go_first(void **state)
{
    struct bench b = bench_open(6, 0, 0);
    uint64_t low = add_map(&b, 2, 2), other = add_map(&b, 2, 2), high;
    struct fbr_dispatch_map map = {.user = &b, .tasks = 1, .retries = 2, .priority = 1};

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &high), 0);
    assert_int_equal(next(&b).map, high);
    assert_int_equal(next(&b).map, low);
    assert_int_equal(next(&b).map, low);
    assert_int_equal(next(&b).map, other);
    bench_close(&b);
}

static void a_higher_priority_waits_for_running_tasks_alone(void **state)
{
    struct bench b = bench_open(3, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 9, .retries = 2, .expect_ns = 50 * MS};
    struct fbr_dispatch_batch low[3], high;
    struct fbr_dispatch_order o[2];
    uint64_t id;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    for (int i = 0; i < 3; i++) {
        low[i] = next(&b);
        assert_int_equal(low[i].count, 2);
    }
    nothing_next(&b);
    map.priority = 1;
    map.tasks = 2;
    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &id), 0);
    nothing_next(&b);
    o[0] = order(&b, FBR_DISPATCH_RECALL); /* from as many as it has tasks */
    o[1] = order(&b, FBR_DISPATCH_RECALL);
    no_order(&b);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fbr_dispatch_returned(b.d, b.now, o[i].worker, o[i].batch, 1), 0);
    nothing_next(&b); /* not behind what they run */
    for (int i = 0; i < 3; i++)
        if (low[i].worker == o[1].worker)
            report(&b, &low[i], 0, 1, 50 * MS);
    high = next(&b);
    assert_int_equal(high.map, id);
    assert_int_equal(high.worker, o[1].worker);
    assert_int_equal(high.count, 2);
    no_order(&b);
    bench_close(&b);
}

static void an_open_map_takes_turns(void **state)
{
    struct bench b = bench_open(6, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 10, .retries = 2, .open = true};
    uint64_t open, closed;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &open), 0);
    closed = add_map(&b, 2, 2);
    assert_int_equal(next(&b).map, open);
    assert_int_equal(next(&b).map, closed);
    assert_int_equal(next(&b).map, closed);
    assert_int_equal(next(&b).map, open);
    assert_int_equal(fbr_dispatch_map_grow(b.d, closed, 1), -EINVAL);
    assert_int_equal(fbr_dispatch_map_grow(b.d, open, 5), 0);
    assert_int_equal(stats(&b).waiting, 13);
    bench_close(&b);
}

/* ---- results ---- */

static void results_come_in_parts_and_are_taken_once(void **state)
{
    struct bench b = bench_open(1, 10000, 2);
    struct fbr_dispatch_batch batch = grow_to(&b, 64, US);
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];

    assert_int_equal(report(&b, &batch, 0, 10, US), 10);
    assert_int_equal(fbr_dispatch_results(b.d, b.now, batch.worker, batch.id, 0, 10, 0, take, &out),
                     -EPROTO);
    assert_int_equal(fbr_dispatch_results(b.d, b.now, batch.worker, batch.id, 11, 1, 0, take, &out),
                     -EPROTO);
    assert_int_equal(
        fbr_dispatch_results(b.d, b.now, batch.worker, batch.id, 10, batch.count, 0, take, &out),
        -EPROTO);
    assert_int_equal(report(&b, &batch, 10, batch.count - 10, US), batch.count - 10);
    assert_int_equal(fbr_dispatch_results(b.d, b.now, batch.worker, batch.id, 0, 1, 0, take, &out),
                     -ENOENT);
    assert_int_equal(stats(&b).dropped, 1);
    bench_close(&b);
}

static void a_late_result_is_taken_while_its_task_is_open(void **state)
{
    struct bench b = bench_open(1, 1, 2);
    struct fbr_dispatch_batch batch = next(&b), again;
    struct fbr_dispatch_failure f;

    assert_int_equal(die(&b, batch.worker, 7, &f), 0);
    add_worker(&b);
    again = next(&b);
    assert_int_equal(report(&b, &batch, 0, 1, MS), 1);
    assert_int_equal(dispatch_left(b.d, b.map), 0);
    assert_int_equal(report(&b, &again, 0, 1, MS), 0);
    assert_int_equal(stats(&b).late, 1);
    assert_int_equal(stats(&b).dropped, 1);
    fbr_dispatch_worker_remove(b.d, b.now, batch.worker, &f);
    bench_close(&b);
}

/* ---- deaths ---- */

static void suspects_run_alone_and_the_second_batch_is_none(void **state)
{
    struct bench b = bench_open(1, 10000, -1);
    struct fbr_dispatch_batch first = grow_to(&b, 4, 250 * US), second = next(&b), batch;
    struct fbr_dispatch_failure f;

    assert_int_equal(report(&b, &first, 0, 1, 250 * US), 1);
    assert_int_equal(die(&b, first.worker, 1, &f), 0);
    assert_int_equal(stats(&b).requeued, first.count - 1 + second.count);
    add_worker(&b);
    for (uint32_t i = 1; i < first.count; i++) { /* each of the batch that ran, alone */
        batch = next(&b);
        assert_int_equal(batch.count, 1);
        assert_int_equal(batch.first, first.first + i);
        nothing_next(&b);
        finish(&b, &batch, 250 * US);
    }
    batch = next(&b); /* then the others */
    assert_int_equal(batch.first, second.first);
    assert_int_equal(batch.count, 4);
    fbr_dispatch_worker_remove(b.d, b.now, first.worker, &f);
    bench_close(&b);
}

static void a_task_is_blamed_at_the_third_death_with_its_reports(void **state)
{
    struct bench b = bench_open(1, 1, -1);
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_batch batch;

    for (uint64_t i = 1; i <= 3; i++) {
        batch = next(&b);
        assert_int_equal(die(&b, batch.worker, 100 + i, &f), i == 3);
        fbr_dispatch_worker_remove(b.d, b.now, batch.worker, &f);
        add_worker(&b);
    }
    assert_int_equal(f.why, FBR_DISPATCH_BLAMED);
    assert_int_equal(f.index, 0);
    assert_int_equal(f.deaths, 3);
    assert_int_equal(f.reports, 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(f.report[i], 101 + i);
    assert_int_equal(dispatch_left(b.d, b.map), 0);
    nothing_next(&b);
    bench_close(&b);
}

static void retries_are_counted(void **state)
{
    struct bench b = bench_open(2, 1, 1);
    struct fbr_dispatch_batch batch = next(&b);
    struct fbr_dispatch_failure f;

    assert_int_equal(die(&b, batch.worker, 1, &f), 0);
    batch = next(&b);
    assert_int_equal(die(&b, batch.worker, 2, &f), 1);
    assert_int_equal(f.why, FBR_DISPATCH_LOST);
    assert_int_equal(f.deaths, 2);
    bench_close(&b);
}

static void at_most_once_runs_alone_and_never_again(void **state)
{
    struct bench b = bench_open(2, 1000, 0);
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_batch batch;

    for (int i = 0; i < 20; i++) {
        batch = next(&b);
        assert_int_equal(batch.count, 1);
        finish(&b, &batch, US);
    }
    batch = next(&b);
    assert_int_equal(next(&b).count, 1);
    nothing_next(&b);
    assert_int_equal(die(&b, batch.worker, 1, &f), 1);
    assert_int_equal(f.why, FBR_DISPATCH_LOST);
    assert_int_equal(f.index, batch.first);
    add_worker(&b);
    batch = next(&b);
    assert_int_equal(batch.first, 22);
    assert_int_equal(
        fbr_dispatch_worker_dead(b.d, b.now, batch.worker, 2, FBR_DISPATCH_DISRUPTION, &f), 1);
    assert_int_equal(f.index, 22); /* it may have run */
    bench_close(&b);
}

static void a_disruption_counts_for_nobody(void **state)
{
    struct bench b = bench_open(1, 1000, 1);
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_batch batch = grow_to(&b, 16, US);
    uint64_t first = batch.first;

    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(
            fbr_dispatch_worker_dead(b.d, b.now, batch.worker, i, FBR_DISPATCH_DISRUPTION, &f), 0);
        add_worker(&b);
        batch = next(&b);
        assert_int_equal(batch.first, first);
    }
    bench_close(&b);
}

static void lost_jobs_are_counted_and_blame_nobody(void **state)
{
    struct bench b = bench_open(1, 1000, 1);
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_batch batch = grow_to(&b, 16, US);
    uint64_t first = batch.first;
    struct fbr_dispatch_stats s;

    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(
            fbr_dispatch_worker_dead(b.d, b.now, batch.worker, i, FBR_DISPATCH_JOB, &f), 0);
        s = *fbr_dispatch_stats(b.d);
        assert_int_equal(s.lost_jobs, i < FBR_DISPATCH_DEATHS ? i : FBR_DISPATCH_DEATHS);
        add_worker(&b);
        batch = next(&b);
        assert_int_equal(batch.first, first);
        assert_true(batch.count > 1); /* no suspects */
    }
    bench_close(&b);
}

/* ---- cancel, drain, timeout ---- */

static void a_cancelled_task_is_never_taken(void **state)
{
    struct bench b = bench_open(1, 3, 2);
    struct fbr_dispatch_batch batch = next(&b);
    struct fbr_dispatch_order o;

    assert_int_equal(fbr_dispatch_task_cancel(b.d, b.map, 3, &o), -ENOENT);
    assert_int_equal(fbr_dispatch_task_cancel(b.d, b.map, 1, &o), 0);
    assert_int_equal(fbr_dispatch_task_cancel(b.d, b.map, 1, &o), -EALREADY);
    assert_int_equal(fbr_dispatch_task_cancel(b.d, b.map, 0, &o), 1);
    assert_int_equal(o.worker, batch.worker);
    assert_int_equal(o.batch, batch.id);
    assert_int_equal(o.pos, 0);
    assert_int_equal(report(&b, &batch, 0, 1, MS), 0);
    batch = next(&b);
    assert_int_equal(batch.first, 2);
    finish(&b, &batch, MS);
    assert_int_equal(dispatch_left(b.d, b.map), 0);
    bench_close(&b);
}

static void closing_a_map_tells_its_workers(void **state)
{
    struct bench b = bench_open(1, 1000, 2);
    struct fbr_dispatch_batch batch = grow_to(&b, 16, US), second;
    struct fbr_dispatch_order o;

    second = next(&b);
    fbr_dispatch_map_close(b.d, b.map);
    check(&b);
    o = order(&b, FBR_DISPATCH_CANCEL);
    assert_int_equal(o.batch, batch.id);
    assert_int_equal(o.pos, FBR_DISPATCH_ALL);
    assert_int_equal(o.map, 0);
    assert_int_equal(order(&b, FBR_DISPATCH_CANCEL).batch, second.id);
    no_order(&b);
    assert_int_equal(report(&b, &batch, 0, 1, MS), 0);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, 1), 0);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, second.id, 0), 0);
    add_map(&b, 1, 2);
    assert_int_equal(next(&b).worker, batch.worker);
    bench_close(&b);
}

static void a_draining_worker_returns_its_tasks_and_says_when_it_is_empty(void **state)
{
    struct bench b = bench_open(1, 10000, 2);
    struct fbr_dispatch_batch batch = grow_to(&b, 16, US), second = next(&b), again;
    struct fbr_dispatch_failure f;

    fbr_dispatch_worker_drain(b.d, batch.worker);
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, batch.id);
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, second.id);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, batch.count + 1),
                     -EPROTO);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, 2), 0);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, second.id, 0), 0);
    no_order(&b);
    assert_int_equal(report(&b, &batch, 0, 2, US), 2);
    assert_int_equal(order(&b, FBR_DISPATCH_DRAINED).worker, batch.worker);
    no_order(&b);
    assert_int_equal(fbr_dispatch_worker_remove(b.d, b.now, batch.worker, &f), 0);
    assert_int_equal(stats(&b).deaths, 0);
    assert_int_equal(stats(&b).waiting, dispatch_left(b.d, b.map));
    add_worker(&b);
    again = next(&b); /* the last that came back is the first to go */
    assert_int_equal(again.first, second.first);
    bench_close(&b);
}

static void a_worker_is_drained_after_its_last_task(void **state)
{
    struct bench b = bench_open(0, 100, 2);
    struct fbr_dispatch_batch batch;
    uint64_t tasks = 0, worker;

    assert_int_equal(fbr_dispatch_worker_add(b.d, b.now, &b, 10, &worker), 0);
    while (fbr_dispatch_next(b.d, b.now, &batch) > 0) {
        tasks += batch.count;
        finish(&b, &batch, US);
    }
    assert_int_equal(tasks, 10);
    assert_int_equal(order(&b, FBR_DISPATCH_DRAINED).worker, worker);
    bench_close(&b);
}

static void a_task_that_runs_too_long_is_failed(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 10, .retries = 2, .timeout_ns = 10 * MS};
    struct fbr_dispatch_batch batch, second;
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_order o;

    assert_int_equal(fbr_dispatch_map_add(b.d, &map, &b.map), 0);
    batch = next(&b);
    finish(&b, &batch, MS);
    batch = next(&b);
    second = next(&b);
    assert_int_equal(batch.count + second.count, 2);
    b.now += 9 * MS;
    assert_int_equal(report(&b, &batch, 0, 1, 0), 1); /* the second one begins now */
    no_order(&b);
    assert_int_equal(fbr_dispatch_wake(b.d), b.now + 10 * MS);
    b.now += 10 * MS;
    o = order(&b, FBR_DISPATCH_TIMEOUT);
    assert_int_equal(o.index, second.first);
    assert_int_equal(o.worker, second.worker);
    no_order(&b);
    assert_int_equal(fbr_dispatch_wake(b.d), FBR_DISPATCH_NEVER);
    assert_int_equal(fbr_dispatch_worker_dead(b.d, b.now, o.worker, 1, FBR_DISPATCH_DISRUPTION, &f),
                     0);
    assert_int_equal(dispatch_left(b.d, b.map), 7);
    bench_close(&b);
}

/* ---- stragglers ---- */

/* A worker with two batches of some tasks each, and nothing waits. */
static struct fbr_dispatch_batch load_worker(struct bench *b, uint64_t each,
                                             struct fbr_dispatch_batch *second)
{
    struct fbr_dispatch_map map = {.user = b, .tasks = 40, .retries = 2, .chunk = 3};
    struct fbr_dispatch_batch batch;
    struct fbr_dispatch_order o;

    assert_int_equal(fbr_dispatch_map_add(b->d, &map, &b->map), 0);
    batch = next(b);
    finish(b, &batch, each);
    batch = next(b);
    *second = next(b);
    for (uint64_t i = second->first + second->count; i < 40; i++)
        assert_int_equal(fbr_dispatch_task_cancel(b->d, b->map, i, &o), 0);
    no_order(b);
    return batch;
}

static void unstarted_tasks_are_recalled_for_an_idle_worker(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_batch second, batch = load_worker(&b, 1200 * US, &second), again;
    uint64_t idle;

    assert_int_equal(batch.count, 3);
    assert_int_equal(second.count, 3);
    idle = add_worker(&b);
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, second.id);
    no_order(&b); /* one at a time */
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, second.worker, second.id, 0), 0);
    for (uint32_t had = 0; had < 3; had += again.count) {
        again = next(&b);
        assert_int_equal(again.worker, idle); /* not back to where it came from */
        assert_int_equal(again.first, second.first + had);
    }
    assert_int_equal(stats(&b).returned, 3);
    bench_close(&b);
}

static void a_silent_worker_is_asked_for_what_it_has_not_started(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_batch second, batch = load_worker(&b, 10 * US, &second);

    b.now += 10 * US;
    add_worker(&b);
    no_order(&b); /* it will soon be through with it */
    while (fbr_dispatch_order(b.d, b.now, &(struct fbr_dispatch_order){0}) == 0 && b.now < 20 * MS)
        b.now = fbr_dispatch_wake(b.d);
    assert_in_range(b.now, 5 * MS, 7 * MS);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, second.worker, second.id, 0), 0);
    while (stats(&b).waiting) {
        struct fbr_dispatch_batch mate = next(&b);

        finish(&b, &mate, 10 * US);
    }
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, batch.id);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, 1), 0);
    assert_int_equal(next(&b).first, batch.first + 1);
    bench_close(&b);
}

/* A worker holds the last two tasks of a map, of 50 ms each; another one is idle. */
static struct fbr_dispatch_batch hold_two(struct bench *b, uint64_t tasks, uint64_t late)
{
    struct fbr_dispatch_map map = {.user = b, .tasks = tasks, .retries = 2, .expect_ns = 50 * MS};
    struct fbr_dispatch_batch batch;

    assert_int_equal(fbr_dispatch_map_add(b->d, &map, &b->map), 0);
    batch = next(b);
    for (; tasks > 2; tasks -= 2) {
        assert_int_equal(batch.count, 2);
        b->now += late;
        finish(b, &batch, 50 * MS);
        batch = next(b);
    }
    assert_int_equal(batch.count, 2);
    add_worker(b);
    return batch;
}

static void what_begins_soon_is_not_recalled(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_batch batch = hold_two(&b, 2, 0);

    b.now += 49 * MS + 500 * US;
    no_order(&b);
    b.now += MS; /* it has begun it, and its first result is on the way */
    no_order(&b);
    b.now += 2 * MS; /* or its first task takes longer than usual */
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, batch.id);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, 1), 0);
    assert_int_equal(next(&b).first, batch.first + 1);
    bench_close(&b);
}

static void a_recall_takes_no_longer_than_it_saves(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_batch batch = hold_two(&b, 202, 20 * MS); /* on its way, there and back */

    b.now += 15 * MS; /* in 35 ms it begins its second task here, in 40 elsewhere */
    no_order(&b);
    b.now += 60 * MS; /* what comes as late as usual is not late */
    no_order(&b);
    b.now += 20 * MS;
    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, batch.id);
    bench_close(&b);
}

static void a_worker_that_has_begun_all_is_asked_once(void **state)
{
    struct bench b = bench_open(1, 0, 0);
    struct fbr_dispatch_batch batch = hold_two(&b, 2, 0);

    assert_int_equal(order(&b, FBR_DISPATCH_RECALL).batch, batch.id);
    assert_int_equal(fbr_dispatch_returned(b.d, b.now, batch.worker, batch.id, 2), 0);
    check(&b);
    no_order(&b);
    b.now += 1000 * MS;
    no_order(&b);
    fbr_dispatch_worker_drain(b.d, batch.worker);
    no_order(&b);
    assert_int_equal(report(&b, &batch, 0, 2, 50 * MS), 2);
    assert_int_equal(order(&b, FBR_DISPATCH_DRAINED).worker, batch.worker);
    bench_close(&b);
}

/* ---- memory that runs short ---- */

#ifdef SHORT_OF_MEMORY
/* A few steps of a life, of which the n-th allocation and all later ones fail. True: it needed no
 * more than that. */
static bool live_with(int n)
{
    struct bench b = bench_open(2, 0, 0);
    struct fbr_dispatch_map map = {.user = &b, .tasks = 3000, .retries = 2};
    struct fbr_dispatch_batch batch;
    struct fbr_dispatch_failure f;
    struct fbr_dispatch_order o;
    uint64_t worker = 0;
    bool enough;

    allocations_left = n;
    for (int i = 0; i < 20; i++) {
        map.tasks = i % 19 ? 60 : 3000; /* the first and the last have several pages */
        if (fbr_dispatch_map_add(b.d, &map, &b.map))
            break;
    }
    for (int i = 0; i < 12; i++)
        if (fbr_dispatch_worker_add(b.d, b.now, &b, 0, &worker))
            break;
    fbr_dispatch_task_cancel(b.d, b.map, 2500, &o);
    for (int i = 0; i < 30 && fbr_dispatch_next(b.d, b.now, &batch) > 0; i++)
        if (i % 3)
            report(&b, &batch, 0, batch.count, US);
        else
            die(&b, batch.worker, 1, &f);
    enough = allocations_left > 0;
    allocations_left = -1;
    while (stats(&b).workers < 4)
        add_worker(&b);
    while (fbr_dispatch_next(b.d, b.now, &batch) > 0)
        report(&b, &batch, 0, batch.count, US);
    bench_close(&b);
    return enough;
}
#endif

static void short_memory_is_an_error_and_nothing_else(void **state)
{
#ifdef SHORT_OF_MEMORY
    for (int n = 0; !live_with(n); n++)
        assert_true(n < 1000);
#else
    skip(); /* the sanitizers own the allocator */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_begin_with_one_task_and_grow_fourfold),
        cmocka_unit_test(a_batch_is_four_milliseconds_of_work),
        cmocka_unit_test(the_chunk_hint_sets_the_first_batch),
        cmocka_unit_test(the_end_of_a_map_is_cut_small),
        cmocka_unit_test(large_inputs_are_not_batched),
        cmocka_unit_test(a_slow_worker_gets_less),
        cmocka_unit_test(idle_workers_come_first),
        cmocka_unit_test(a_second_batch_follows_short_tasks),
        cmocka_unit_test(nothing_waits_behind_long_tasks),
        cmocka_unit_test(who_has_nothing_gets_two_tasks_at_once),
        cmocka_unit_test(the_next_two_tasks_come_together_while_there_are_two_for_everybody),
        cmocka_unit_test(the_last_tasks_wait_for_whoever_is_first),
        cmocka_unit_test(higher_priority_then_older_maps_go_first),
        cmocka_unit_test(a_higher_priority_waits_for_running_tasks_alone),
        cmocka_unit_test(an_open_map_takes_turns),
        cmocka_unit_test(results_come_in_parts_and_are_taken_once),
        cmocka_unit_test(a_late_result_is_taken_while_its_task_is_open),
        cmocka_unit_test(suspects_run_alone_and_the_second_batch_is_none),
        cmocka_unit_test(a_task_is_blamed_at_the_third_death_with_its_reports),
        cmocka_unit_test(retries_are_counted),
        cmocka_unit_test(at_most_once_runs_alone_and_never_again),
        cmocka_unit_test(a_disruption_counts_for_nobody),
        cmocka_unit_test(lost_jobs_are_counted_and_blame_nobody),
        cmocka_unit_test(a_cancelled_task_is_never_taken),
        cmocka_unit_test(closing_a_map_tells_its_workers),
        cmocka_unit_test(a_draining_worker_returns_its_tasks_and_says_when_it_is_empty),
        cmocka_unit_test(a_worker_is_drained_after_its_last_task),
        cmocka_unit_test(a_task_that_runs_too_long_is_failed),
        cmocka_unit_test(unstarted_tasks_are_recalled_for_an_idle_worker),
        cmocka_unit_test(what_begins_soon_is_not_recalled),
        cmocka_unit_test(a_recall_takes_no_longer_than_it_saves),
        cmocka_unit_test(a_worker_that_has_begun_all_is_asked_once),
        cmocka_unit_test(a_silent_worker_is_asked_for_what_it_has_not_started),
        cmocka_unit_test(short_memory_is_an_error_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
