/* dispatch_sim_test.c - the scheduling engine against simulated workers: how long things take, and
 * chaos. FIBER_TEST_SEED sets the seed of the random ones.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/dispatch_sim.h"

/* ---- how long tasks take ---- */

static uint64_t takes_1us(uint64_t index)
{
    return US;
}

static uint64_t takes_20us(uint64_t index)
{
    return 20 * US;
}

static uint64_t takes_2s_at_first(uint64_t index)
{
    return index == 0 ? 2 * SECOND : 50 * MS;
}

static uint64_t takes_half_a_second_once(uint64_t index)
{
    return index == 5000 ? SECOND / 2 : 20 * US;
}

/* From 1 us to 16 ms, most of them short. */
static uint64_t takes_anything(uint64_t index)
{
    uint64_t x = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    return US << (x & x >> 8 & x >> 16 & 15 ? 1 + (x >> 40) % 5 : x % 14);
}

/* ---- how long maps take ---- */

static void print_time(const char *what, const struct sim *s, uint64_t floor)
{
    struct fbr_dispatch_stats stats;

    stats = *fbr_dispatch_stats(s->d);
    print_message(
        "    %s: %.2f ms, floor %.2f, %.3f x; %llu batches, %llu recalls, %llu tasks returned\n",
        what, (double)s->now / MS, (double)floor / MS, (double)s->now / (double)floor,
        (unsigned long long)stats.batches, (unsigned long long)stats.recalls,
        (unsigned long long)stats.returned);
}

static void expect_within(uint32_t workers, uint64_t tasks, uint64_t (*duration)(uint64_t),
                          double factor, uint64_t slack)
{
    uint64_t floor = tasks * duration(1) / workers;
    struct sim s;

    sim_open(&s, workers);
    add_map(&s, tasks, 2, duration);
    run(&s, SECOND * 100);
    print_time("even tasks", &s, floor);
    assert_true((double)s.now <= (double)floor * factor + (double)slack);
    sim_close(&s);
}

static void short_tasks_keep_every_worker_busy(void **state)
{
    expect_within(5, 5000, takes_1ms, 1.03, 0);
    expect_within(5, 500, takes_10ms, 1.03, 0);
    expect_within(5, 100000, takes_20us, 1.05, 0);
    expect_within(1, 1000, takes_1ms, 1.01, 0);
}

static void a_thousand_workers_are_kept_busy(void **state)
{
    expect_within(1024, 2048, takes_50ms, 1.03, 0);
    expect_within(1024, 102400, takes_1ms, 1.03, 0);
}

static void a_few_short_tasks_go_out_at_once(void **state)
{
    expect_within(5, 5, takes_1ms, 1, 2 * LATENCY);
}

static void empty_tasks_travel_in_large_batches(void **state)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    sim_open(&s, 5);
    add_map(&s, 1000000, 2, takes_1us);
    run(&s, 100 * SECOND);
    print_time("empty tasks", &s, 200 * MS);
    stats = *fbr_dispatch_stats(s.d);
    assert_true(stats.batches < 1000000 / 400);
    assert_true(s.now < 225 * MS);
    sim_close(&s);
}

static void one_long_task_does_not_hold_back_the_others(void **state)
{
    struct sim s;

    sim_open(&s, 4);
    add_map(&s, 60, 2, takes_2s_at_first);
    run(&s, 3 * SECOND);
    print_time("straggler", &s, 2 * SECOND);
    assert_true(s.now <= 2001 * MS);
    sim_close(&s);
}

static void batch_mates_of_a_long_task_are_recalled(void **state)
{
    struct sim s;

    sim_open(&s, 4);
    add_map(&s, 20000, 2, takes_half_a_second_once);
    run_until(&s, 1, 127 * MS);
    print_time("all but one", &s, 125 * MS); /* three workers, most of the time */
    assert_int_equal(s.maps[0].over[5000], 0);
    run(&s, SECOND);
    sim_close(&s);
}

static void slow_worker(uint64_t tasks, uint64_t (*duration)(uint64_t), double factor)
{
    uint64_t floor = (uint64_t)((double)(tasks * duration(0)) / 4.1);
    struct sim s;

    sim_open(&s, 5);
    s.workers[2].slow = 10;
    add_map(&s, tasks, 2, duration);
    run(&s, 100 * SECOND);
    print_time("one worker 10 x slower", &s, floor);
    assert_true((double)s.now < (double)floor * factor);
    sim_close(&s);
}

static void a_slow_worker_holds_nobody_back(void **state)
{
    slow_worker(2000, takes_1ms, 1.03);
    slow_worker(100000, takes_20us, 1.05);
    slow_worker(1000, takes_10ms, 1.06);
}

static void a_frozen_worker_keeps_only_what_it_may_have_started(void **state)
{
    struct sim s;

    sim_open(&s, 5);
    add_map(&s, 5000, 2, takes_1ms);
    s.workers[3].frozen =
        true; /* from the beginning: it takes its first batch and is not heard of again */
    post(&s, (struct event){.at = 15 * SECOND, .kind = DEATH_SEEN, .worker = 3});
    run_until(&s, 1, 1260 * MS);
    run(&s, 16 * SECOND);
    sim_close(&s);
}

/* ---- deaths ---- */

static void a_killer_is_blamed_and_its_batch_mates_are_not(void **state)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    sim_open(&s, 5);
    add_map(&s, 20000, -1, takes_20us)->killer = 15000;
    run(&s, SECOND);
    stats = *fbr_dispatch_stats(s.d);
    print_time("with a killer", &s, 80 * MS);
    assert_int_equal(s.blamed, 1);
    assert_int_equal(stats.deaths, 3);
    assert_int_equal(s.innocent_blamed, 0);
    assert_int_equal(s.maps[0].failed, 1);
    assert_true(s.now < 115 * MS);
    sim_close(&s);
}

static uint64_t test_seed(void)
{
    const char *text = getenv("FIBER_TEST_SEED");

    return text ? strtoull(text, NULL, 0) : 20240607;
}

static void chaos(uint64_t seed)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    sim_open(&s, 5);
    s.rng = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t i = 5 + random_u64(&s) % 196; i > 5; i--)
        add_worker(&s, random_u64(&s) % 10 ? 1 : 10);
    s.trouble = 1 + (uint32_t)(random_u64(&s) % 10);
    for (uint64_t i = 1 + random_u64(&s) % 5; i > 0; i--)
        add_map(&s, 1 + random_u64(&s) % 20000, (int)(random_u64(&s) % 4) - 1, takes_anything);
    post(&s, (struct event){.at = 0, .kind = TROUBLE});
    run(&s, 300 * SECOND);
    stats = *fbr_dispatch_stats(s.d);
    for (uint32_t i = 0; i < s.nmaps; i++)
        for (uint64_t t = 0; t < s.maps[i].tasks; t++)
            assert_int_equal(s.maps[i].over[t], 1);
    assert_int_equal(stats.waiting + stats.held, 0);
    assert_true(stats.deaths >= s.blamed + s.lost);
    print_message(
        "    seed %llu: %u workers, %u maps, %llu ms, %llu deaths, %llu requeued, %llu late, %llu "
        "dropped, %u lost, %u blamed, %llu recalls\n",
        (unsigned long long)seed, s.nworkers, s.nmaps, (unsigned long long)(s.now / MS),
        (unsigned long long)stats.deaths, (unsigned long long)stats.requeued,
        (unsigned long long)stats.late, (unsigned long long)stats.dropped, s.lost, s.blamed,
        (unsigned long long)stats.recalls);
    sim_close(&s);
}

static void every_task_ends_once_in_any_chaos(void **state)
{
    uint64_t seed = test_seed();

    for (uint64_t i = 0; i < 12; i++)
        chaos(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_tasks_keep_every_worker_busy),
        cmocka_unit_test(a_thousand_workers_are_kept_busy),
        cmocka_unit_test(a_few_short_tasks_go_out_at_once),
        cmocka_unit_test(empty_tasks_travel_in_large_batches),
        cmocka_unit_test(one_long_task_does_not_hold_back_the_others),
        cmocka_unit_test(batch_mates_of_a_long_task_are_recalled),
        cmocka_unit_test(a_slow_worker_holds_nobody_back),
        cmocka_unit_test(a_frozen_worker_keeps_only_what_it_may_have_started),
        cmocka_unit_test(a_killer_is_blamed_and_its_batch_mates_are_not),
        cmocka_unit_test(every_task_ends_once_in_any_chaos),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
