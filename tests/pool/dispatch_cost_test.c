/* dispatch_cost_test.c - memory and processor time of the scheduling engine.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "pool/dispatch.h"
#include "tests/support/dispatch_check.h"

static struct fbr_dispatch *open_with(int workers)
{
    struct fbr_dispatch *d = fbr_dispatch_open(FBR_DISPATCH_BYTES_MAX);
    uint64_t id;

    assert_non_null(d);
    for (int i = 0; i < workers; i++)
        assert_int_equal(fbr_dispatch_worker_add(d, 0, NULL, 0, &id), 0);
    return d;
}

static uint64_t add_map(struct fbr_dispatch *d, uint64_t tasks, bool open)
{
    struct fbr_dispatch_map map = {.tasks = tasks, .retries = 2, .open = open};
    uint64_t id = 0;

    assert_int_equal(fbr_dispatch_map_add(d, &map, &id), 0);
    return id;
}

static struct fbr_dispatch_stats stats(const struct fbr_dispatch *d)
{
    struct fbr_dispatch_stats s;

    s = *fbr_dispatch_stats(d);
    return s;
}

static void finish(struct fbr_dispatch *d, uint64_t now, const struct fbr_dispatch_batch *b,
                   uint64_t each)
{
    struct fbr_dispatch_taken out;
    bool take[FBR_DISPATCH_BATCH_MAX];

    assert_int_equal(
        fbr_dispatch_results(d, now, b->worker, b->id, 0, b->count, b->count * each, take, &out),
        0);
    assert_int_equal(out.taken, b->count);
}

static void an_endless_map_stays_small(void **state)
{
    struct fbr_dispatch *d = open_with(1);
    uint64_t map = add_map(d, 10000, true);
    struct fbr_dispatch_batch batch;
    size_t before = mallinfo2().uordblks;

    while (stats(d).done < 10000000) {
        assert_int_equal(fbr_dispatch_next(d, 0, &batch), 1);
        assert_int_equal(fbr_dispatch_map_grow(d, map, batch.count), 0);
        finish(d, 0, &batch, 1);
    }
    assert_true(mallinfo2().uordblks < before + 65536);
    fbr_dispatch_close(d);
}

static void queued_maps_are_small(void **state)
{
    struct fbr_dispatch *d = open_with(1);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, bytes;
    struct fbr_dispatch_batch batch;

    for (int i = 0; i < 20000; i++)
        add_map(d, 1000, false);
    bytes = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / 20000;
    print_message("    %zu bytes a queued map\n", bytes);
    assert_true(bytes < 300);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(fbr_dispatch_next(d, 0, &batch), 1);
        fbr_dispatch_map_close(d, batch.map);
        assert_int_equal(fbr_dispatch_returned(d, 0, batch.worker, batch.id, 0), 0);
    }
    assert_int_equal(stats(d).maps, 0);
    fbr_dispatch_close(d);
}

/* This thread's processor time, however busy the machine is. */
static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ns of the engine for each task, when tasks take `each` ns, with so many workers. */
static double cost(int workers, uint64_t tasks, uint64_t each)
{
    struct fbr_dispatch *d = open_with(workers);
    struct fbr_dispatch_batch *batches = calloc((size_t)workers * 2, sizeof(*batches));
    uint64_t map = add_map(d, tasks, false), now = 0;
    struct fbr_dispatch_order o;
    size_t n = 0, at = 0;
    double start = seconds(), took;

    assert_non_null(batches);
    while (dispatch_left(d, map)) {
        while (fbr_dispatch_next(d, now, &batches[n]) > 0)
            n++;
        while (fbr_dispatch_order(d, now, &o) > 0)
            ;
        at = (at + 7) % n;
        now += 1000;
        finish(d, now, &batches[at], each);
        memmove(&batches[at], &batches[at + 1], (--n - at) * sizeof(*batches));
    }
    took = (seconds() - start) * 1e9 / (double)tasks;
    print_message("    %d workers, tasks of %llu ns, batches of %llu: %.1f ns a task\n", workers,
                  (unsigned long long)each, (unsigned long long)(tasks / stats(d).batches), took);
    fbr_dispatch_close(d);
    free(batches);
    return took;
}

/* Measured: 5 ns a task in batches of 1,000, 7 of 64, 350 alone. The bounds leave room for
 * sanitizers and valgrind. */
static void a_task_costs_nanoseconds(void **state)
{
    assert_true(cost(5, 5000000, 100) < 1000);
    assert_true(cost(5, 2000000, 15000) < 1000);
    assert_true(cost(5, 100000, 1000000) < 20000);
}

/* With a thousand workers, 20,000 maps and priorities, an event costs about what it costs with
 * few. */
static void many_maps_and_workers_cost_no_more(void **state)
{
    struct fbr_dispatch *d = open_with(1024);
    struct fbr_dispatch_batch *batches = calloc(2048, sizeof(*batches));
    struct fbr_dispatch_map map = {.tasks = 10, .retries = 2};
    struct fbr_dispatch_order o;
    uint64_t id, now = 0, events = 0;
    size_t n = 0;
    double start = seconds(), took;

    assert_non_null(batches);
    for (int i = 0; i < 20000; i++) {
        map.priority = i % 7;
        assert_int_equal(fbr_dispatch_map_add(d, &map, &id), 0);
    }
    while (stats(d).waiting + stats(d).held) {
        while (fbr_dispatch_next(d, now, &batches[n]) > 0)
            n++;
        while (fbr_dispatch_order(d, now, &o) > 0)
            ;
        n--;
        now += 1000;
        events++;
        finish(d, now, &batches[n], 20000000);
        if (!dispatch_left(d, batches[n].map))
            fbr_dispatch_map_close(d, batches[n].map);
    }
    took = (seconds() - start) * 1e9 / (double)events;
    print_message("    1024 workers, 20000 maps: %.1f ns a batch\n", took);
    assert_true(took < 20000);
    assert_int_equal(stats(d).maps, 0);
    fbr_dispatch_close(d);
    free(batches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endless_map_stays_small),
        cmocka_unit_test(queued_maps_are_small),
        cmocka_unit_test(a_task_costs_nanoseconds),
        cmocka_unit_test(many_maps_and_workers_cost_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
