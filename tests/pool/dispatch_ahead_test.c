/* dispatch_ahead_test.c - tasks that are handed out ahead hold nobody up: the scheduling engine
 * against simulated workers, with tasks that are long enough for it to matter.
 *
 * The yardstick is list scheduling: each task, in its order, to the worker that is idle first,
 * by one who knows it at once. What the engine needs beyond that is what its rules cost (dispatch.h):
 * messages, and a look for stragglers each half millisecond.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/pool/dispatch_sim.h"

#define AHEAD_MAX (100 * MS)             /* tasks that take longer are not handed out ahead */
#define LOOK (MS / 2)                    /* between two looks for stragglers */
#define SLACK (LOOK + MS + 10 * LATENCY) /* a look, an answer that is waited for, messages */

/* ---- how long tasks take ---- */

static uint64_t takes_100ms(uint64_t index)
{
    return 100 * MS;
}

static uint64_t takes_a_second(uint64_t index)
{
    return SECOND;
}

static uint64_t straggler_at; /* index */

static uint64_t takes_10ms_but_one(uint64_t index)
{
    return index == straggler_at ? SECOND : 10 * MS;
}

static uint64_t takes_50ms_but_one(uint64_t index)
{
    return index == straggler_at ? SECOND : 50 * MS;
}

/* From 1 us to 1 s, so that no mean says anything. */
static uint64_t takes_anything(uint64_t index)
{
    uint64_t x = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    return (US << x % 20) + x % US;
}

static uint64_t longest(uint64_t tasks, uint64_t (*duration)(uint64_t))
{
    uint64_t most = 0;

    for (uint64_t i = 0; i < tasks; i++)
        most = duration(i) > most ? duration(i) : most;
    return most;
}

/* When list scheduling would be through. */
static uint64_t list_schedule(uint32_t workers, uint64_t tasks, uint64_t (*duration)(uint64_t))
{
    uint64_t *until = calloc(workers, sizeof(*until)), end = 0;

    assert_non_null(until);
    for (uint64_t i = 0; i < tasks; i++) {
        uint32_t first = 0;

        for (uint32_t w = 1; w < workers; w++)
            first = until[w] < until[first] ? w : first;
        until[first] += duration(i);
        end = until[first] > end ? until[first] : end;
    }
    free(until);
    return end;
}

static void expect_by(const struct sim *s, const char *what, uint64_t limit)
{
    struct fbr_dispatch_stats stats;

    stats = *fbr_dispatch_stats(s->d);
    print_message("    %s: %.2f ms of %.2f; %llu batches, %llu recalls, %llu returned\n", what,
                  (double)s->now / MS, (double)limit / MS, (unsigned long long)stats.batches,
                  (unsigned long long)stats.recalls, (unsigned long long)stats.returned);
    assert_true(s->now <= limit);
}

static struct sim_map *add_known(struct sim *s, uint64_t tasks, uint64_t (*duration)(uint64_t),
                                 uint64_t expect)
{
    struct fbr_dispatch_map map = {.tasks = tasks, .retries = 2, .expect_ns = expect};

    return add_map_with(s, map, tasks, duration);
}

/* ---- stragglers ---- */

/* One long task among equal ones. The order among the others is not promised, so it may begin one
 * of their times later than by the list. */
static void one_straggler(uint64_t (*duration)(uint64_t), uint64_t at, uint64_t expect)
{
    uint64_t usual, limit;
    struct sim s;

    straggler_at = at;
    usual = duration(at + 1);
    limit = list_schedule(4, 60, duration) + usual + SLACK;
    sim_open(&s, 4);
    add_known(&s, 60, duration, expect);
    run(&s, 100 * SECOND);
    expect_by(&s, "one straggler", limit);
    sim_close(&s);
}

static void a_straggler_holds_up_nothing_but_itself(void **state)
{
    static const uint64_t at[] = {0, 1, 30, 57, 59}, expect[] = {0, US, 10 * MS, 50 * MS, SECOND};

    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        for (size_t e = 0; e < sizeof(expect) / sizeof(expect[0]); e++) {
            one_straggler(takes_10ms_but_one, at[i], expect[e]);
            one_straggler(takes_50ms_but_one, at[i], expect[e]);
        }
}

/* No order of tasks is worse than this, as long as nobody has nothing while a task waits
 * (Graham 1969). */
static void tasks_of_any_length(uint32_t workers, uint64_t tasks, uint64_t expect)
{
    uint64_t sum = 0, most = longest(tasks, takes_anything);
    struct sim s;

    for (uint64_t i = 0; i < tasks; i++)
        sum += takes_anything(i);
    sim_open(&s, workers);
    add_known(&s, tasks, takes_anything, expect);
    run(&s, 1000 * SECOND);
    expect_by(&s, "tasks of any length", (sum - most) / workers + most + 2 * SLACK);
    sim_close(&s);
}

static void tasks_of_any_length_keep_everybody_busy(void **state)
{
    static const uint64_t expect[] = {0, US, 50 * MS, 100 * SECOND};

    for (size_t e = 0; e < sizeof(expect) / sizeof(expect[0]); e++) {
        tasks_of_any_length(2, 50, expect[e]);
        tasks_of_any_length(5, 300, expect[e]);
        tasks_of_any_length(16, 100, expect[e]);
    }
}

/* What an earlier map took says nothing about this one. */
static void wrong_expectation(uint64_t (*duration)(uint64_t), uint64_t expect)
{
    uint64_t limit = list_schedule(4, 40, duration) + SLACK + 3 * LATENCY * 10;
    struct sim s;

    sim_open(&s, 4);
    add_known(&s, 40, duration, expect);
    run(&s, 100 * SECOND);
    expect_by(&s, "wrong expectation", limit);
    sim_close(&s);
}

static void a_wrong_expectation_costs_little(void **state)
{
    wrong_expectation(takes_a_second, MS);
    wrong_expectation(takes_a_second, 1);
    wrong_expectation(takes_50ms, 50 * US);
    wrong_expectation(takes_1ms, SECOND);
    wrong_expectation(takes_50ms, 50 * SECOND);
}

static void a_slow_worker(uint64_t (*duration)(uint64_t), double slow)
{
    /* As if the slow one were not there at all, and its one task began last. */
    uint64_t limit = list_schedule(4, 400, duration) + SLACK;
    uint64_t own = (uint64_t)((double)duration(0) * slow);
    struct sim s;

    sim_open(&s, 5);
    s.workers[2].slow = slow;
    add_known(&s, 400, duration, duration(0));
    run(&s, 1000 * SECOND);
    expect_by(&s, "a slow worker", limit > own + SLACK ? limit : own + SLACK);
    sim_close(&s);
}

static void a_slow_worker_costs_no_more_than_its_running_task(void **state)
{
    a_slow_worker(takes_10ms, 10);
    a_slow_worker(takes_50ms, 10);
    a_slow_worker(takes_100ms, 10);
    a_slow_worker(takes_10ms, 1000);
}

/* It answers nothing: what it holds comes back when it is taken for dead, and nothing else waits
 * for that. */
static void a_frozen_worker_keeps_no_more_than_it_holds(void **state)
{
    struct sim s;
    uint32_t held;

    sim_open(&s, 4);
    add_known(&s, 100, takes_50ms, 50 * MS);
    post(&s, (struct event){.at = 15 * SECOND, .kind = DEATH_SEEN, .worker = 3});
    run_until(&s, 90, SECOND);
    s.workers[3].frozen = true;
    held = dispatch_held(s.d, s.workers[3].id);
    assert_in_range(held, 1, 3);
    run_until(&s, held, s.now + 90 * 50 * MS / 3 + 50 * MS + SLACK);
    run(&s, 15 * SECOND + 100 * MS + SLACK);
    sim_close(&s);
}

/* ---- who comes and goes ---- */

static void who_joins_gets_what_others_hold_ahead(void **state)
{
    struct sim s;

    sim_open(&s, 2);
    s.spawn = 0;
    add_known(&s, 4, takes_100ms, 100 * MS);
    for (int i = 0; i < 2; i++)
        post(&s, (struct event){.at = 3 * MS, .kind = STARTED});
    run(&s, 10 * SECOND);
    for (uint32_t i = 2; i < 4; i++) {
        assert_int_equal(s.workers[i].ran, 1);
        assert_true(s.workers[i].first_at <= 3 * MS + LOOK + 4 * LATENCY);
    }
    expect_by(&s, "two that join", 103 * MS + SLACK);
    sim_close(&s);
}

static void many_that_join_share_at_once(void **state)
{
    struct sim s;

    sim_open(&s, 32);
    s.spawn = 0;
    add_known(&s, 64, takes_100ms, 100 * MS);
    for (int i = 0; i < 32; i++)
        post(&s, (struct event){.at = 3 * MS, .kind = STARTED});
    run(&s, 10 * SECOND);
    expect_by(&s, "32 that join", 103 * MS + 3 * SLACK);
    sim_close(&s);
}

static void who_leaves_gives_back_what_it_holds_ahead(void **state)
{
    struct sim s;

    sim_open(&s, 4);
    s.spawn = 100 * SECOND;
    add_known(&s, 40, takes_50ms, 50 * MS);
    for (uint32_t i = 0; i < 3; i++)
        post(&s, (struct event){.at = 75 * MS, .kind = DRAIN, .worker = i});
    run(&s, 3 * SECOND);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(s.workers[i].gone);
        assert_true(s.workers[i].gone_at <= 100 * MS + 5 * LATENCY);
        assert_int_equal(s.workers[i].ran, 2);
    }
    expect_by(&s, "one of four stays", (2 + 40 - 8) * 50 * MS + SLACK);
    sim_close(&s);
}

static void each_worker_runs_no_more_than_its_tasks(void **state)
{
    struct sim s;

    sim_open_with(&s, 4, 3);
    s.spawn = 0;
    add_known(&s, 60, takes_10ms, 10 * MS);
    run(&s, 3 * SECOND);
    for (uint32_t i = 0; i < s.nworkers; i++)
        assert_true(s.workers[i].ran <= 3);
    expect_by(&s, "three tasks a worker", 150 * MS + 5 * 10 * LATENCY + 10 * MS + SLACK);
    sim_close(&s);
}

/* ---- maps ---- */

/* It waits for what runs, and not for what was handed out ahead. */
static void higher_priority_waits_for_what_runs_and_no_more(void **state)
{
    struct fbr_dispatch_map urgent = {.tasks = 8, .retries = 2, .priority = 1};
    struct sim_map *low, *high;
    uint64_t came, began;
    struct sim s;

    sim_open(&s, 4);
    low = add_known(&s, 80, takes_100ms, 100 * MS);
    run_until(&s, 76, SECOND); /* each of them has begun its second */
    came = s.now;
    began = low->began;
    assert_int_equal(began, 8);
    high = add_map_with(&s, urgent, 8, takes_10ms);
    while (!high->ended)
        run_until(&s, s.unfinished - 1, 10 * SECOND);
    assert_int_equal(low->began, began);
    while (high->ended < 8)
        run_until(&s, s.unfinished - 1, 10 * SECOND);
    assert_true(low->began <= began + 4); /* when none of the others waited any more */
    /* Two rounds of its own tasks; the last one may have been handed out behind another. */
    assert_true(high->finished_at - came <= 100 * MS + 3 * 10 * MS + SLACK);
    run(&s, 10 * SECOND);
    assert_true(s.now <= 80 * 100 * MS / 4 + 3 * 10 * MS + SLACK);
    sim_close(&s);
}

/* The later of two maps waits until the first has none that waits, and then runs beside its end. */
static void maps_of_equal_priority_go_in_their_order(void **state)
{
    struct sim_map *first, *second;
    struct sim s;

    sim_open(&s, 4);
    first = add_known(&s, 40, takes_50ms, 50 * MS);
    second = add_known(&s, 40, takes_50ms, 50 * MS);
    run(&s, 10 * SECOND);
    assert_true(first->finished_at <= 500 * MS + 50 * MS + SLACK);
    assert_true(second->first_at >= 500 * MS - 100 * MS);
    expect_by(&s, "two maps", SECOND + SLACK);
    sim_close(&s);
}

/* Those that grow take turns: neither gets more than its next batch ahead of the other. */
static void sources_take_turns(void **state)
{
    struct fbr_dispatch_map open = {.tasks = 40, .retries = 2, .open = true, .expect_ns = 10 * MS};
    struct sim_map *a, *b;
    struct sim s;

    sim_open(&s, 4);
    a = add_map_with(&s, open, 400, takes_10ms);
    b = add_map_with(&s, open, 400, takes_10ms);
    while (s.unfinished) {
        run_until(&s, s.unfinished - 1, 100 * SECOND);
        if (a->ended < 400 && b->ended < 400)
            assert_in_range(a->began + 16 - b->began, 0, 32);
    }
    expect_by(&s, "two sources", 2 * SECOND + SLACK);
    sim_close(&s);
}

static void source(uint64_t window, uint64_t floor)
{
    struct fbr_dispatch_map open = {
        .tasks = window, .retries = 2, .open = true, .expect_ns = 10 * MS};
    struct sim s;

    sim_open(&s, 4);
    add_map_with(&s, open, 400, takes_10ms);
    run(&s, 100 * SECOND);
    expect_by(&s, "a window", floor);
    sim_close(&s);
}

/* Every task costs a message each way where nothing can be held ahead. */
static void a_small_window_keeps_as_many_busy_as_it_has_tasks(void **state)
{
    source(1, 400 * (10 * MS + 3 * LATENCY));
    source(2, 200 * (10 * MS + 3 * LATENCY));
    source(3, 134 * (10 * MS + 3 * LATENCY) + SLACK);
    source(4, 100 * (10 * MS + 3 * LATENCY) + SLACK);
    source(5, 100 * (10 * MS + 3 * LATENCY) + 10 * MS + SLACK);
    source(8, 100 * (10 * MS + LATENCY) + 10 * MS + SLACK);
    source(64, 100 * (10 * MS) + 10 * MS + SLACK);
}

/* ---- what ends tasks ---- */

/* A task's time runs from when the one before it was done. */
static void what_waits_behind_another_does_not_time_out(void **state)
{
    struct fbr_dispatch_map map = {
        .tasks = 40, .retries = 2, .timeout_ns = 60 * MS, .expect_ns = 50 * MS};
    struct sim_map *m;
    struct sim s;

    sim_open(&s, 4);
    m = add_map_with(&s, map, 40, takes_50ms);
    run(&s, 10 * SECOND);
    assert_int_equal(m->timed_out, 0);
    expect_by(&s, "with a timeout", 500 * MS + SLACK);
    sim_close(&s);
}

static void a_timeout_ends_one_task_and_no_other(void **state)
{
    struct fbr_dispatch_map map = {
        .tasks = 40, .retries = 2, .timeout_ns = 60 * MS, .expect_ns = 50 * MS};
    struct sim_map *m;
    struct sim s;

    straggler_at = 10;
    sim_open(&s, 4);
    m = add_map_with(&s, map, 40, takes_50ms_but_one);
    run(&s, 10 * SECOND);
    assert_int_equal(m->timed_out, 1);
    assert_int_equal(m->failed, 0);
    for (uint64_t i = 0; i < 40; i++) /* nothing ran twice: the next one had not begun */
        assert_int_equal(m->ran[i], 1);
    sim_close(&s);
}

/* Simulated workers refuse whatever comes with or behind such a task. */
static void at_most_once_is_alone(void **state)
{
    struct fbr_dispatch_map once = {.tasks = 40, .retries = 0, .expect_ns = 10 * MS};
    struct sim_map *m;
    struct sim s;

    sim_open(&s, 4);
    m = add_map_with(&s, once, 40, takes_10ms);
    m->killer = 11;
    add_known(&s, 40, takes_10ms, 10 * MS);
    add_map_with(&s, once, 40, takes_10ms);
    run(&s, 10 * SECOND);
    assert_int_equal(m->failed, 1);
    assert_int_equal(s.maps[1].failed + s.maps[2].failed, 0);
    sim_close(&s);
}

/* One that dies in a task of two: the other is not blamed, and done by somebody else. */
static void a_killer_takes_nothing_along(void **state)
{
    struct fbr_dispatch_stats stats;
    struct sim_map *m;
    struct sim s;

    for (uint64_t at = 0; at < 40; at += 13) {
        sim_open(&s, 4);
        m = add_known(&s, 40, takes_10ms, 10 * MS);
        m->retries = -1;
        m->killer = at;
        run(&s, 10 * SECOND);
        stats = *fbr_dispatch_stats(s.d);
        assert_int_equal(m->failed, 1);
        assert_int_equal(s.innocent_blamed, 0);
        assert_int_equal(stats.deaths, 3);
        sim_close(&s);
    }
}

static void what_is_cancelled_ahead_is_not_run(void **state)
{
    struct sim_map *m;
    struct sim s;
    uint64_t began;

    sim_open(&s, 4);
    m = add_known(&s, 40, takes_50ms, 50 * MS);
    run_until(&s, 36, SECOND);
    began = m->began;
    for (uint64_t i = 0; i < 40; i++)
        if (!m->ran[i])
            assert_true(cancel_task(&s, m, i));
    run(&s, s.now + 50 * MS + SLACK);
    assert_true(m->began <= began + 4); /* messages were under way when a task ended */
    sim_close(&s);
}

/* ---- all of it ---- */

static void add_random_map(struct sim *s)
{
    static uint64_t (*const durations[])(uint64_t) = {takes_1ms, takes_10ms, takes_50ms,
                                                      takes_100ms, takes_anything};
    struct fbr_dispatch_map map = {.retries = (int)(random_u64(s) % 5) - 1,
                                   .priority = (int)(random_u64(s) % 3),
                                   .open = random_u64(s) % 3 == 0,
                                   .chunk = random_u64(s) % 4 == 0 ? 5 : 0};
    uint64_t tasks = 1 + random_u64(s) % 500, window = 1 + random_u64(s) % tasks;

    if (random_u64(s) % 2)
        map.expect_ns = US << random_u64(s) % 24;
    if (random_u64(s) % 3 == 0)
        map.timeout_ns = 200 * MS;
    map.tasks = map.open ? window : tasks;
    add_map_with(s, map, tasks, durations[random_u64(s) % 5]);
}

static void chaos(uint64_t seed)
{
    struct fbr_dispatch_stats stats;
    struct sim s;

    sim_open_with(&s, 0, seed % 3 ? 0 : 1 + seed % 20);
    s.rng = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t i = 2 + random_u64(&s) % 20; i > 0; i--)
        add_worker(&s, random_u64(&s) % 10 ? 1 : 10);
    s.trouble = 1 + (uint32_t)(random_u64(&s) % 200);
    for (uint64_t i = 1 + random_u64(&s) % MAX_MAPS; i > 0; i--)
        add_random_map(&s);
    post(&s, (struct event){.at = 0, .kind = TROUBLE});
    while (s.unfinished) {
        uint64_t left = random_u64(&s) % 50;
        struct sim_map *m = &s.maps[random_u64(&s) % s.nmaps];

        run_until(&s, s.unfinished > left ? s.unfinished - left : 0, 3000 * SECOND);
        cancel_task(&s, m, random_u64(&s) % m->tasks);
        fbr_dispatch_worker_drain(s.d, s.workers[random_u64(&s) % s.nworkers].id);
    }
    stats = *fbr_dispatch_stats(s.d);
    assert_int_equal(stats.waiting + stats.held, 0);
    print_message("    seed %llu: %u workers, %u maps, %llu ms, %llu deaths, %llu recalls\n",
                  (unsigned long long)seed, s.nworkers, s.nmaps, (unsigned long long)(s.now / MS),
                  (unsigned long long)stats.deaths, (unsigned long long)stats.recalls);
    sim_close(&s);
}

static void every_task_ends_once_whatever_happens(void **state)
{
    const char *text = getenv("FIBER_TEST_SEED"), *runs = getenv("FIBER_TEST_RUNS");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607;

    for (uint64_t i = 0; i < (runs ? strtoull(runs, NULL, 0) : 12); i++)
        chaos(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_holds_up_nothing_but_itself),
        cmocka_unit_test(tasks_of_any_length_keep_everybody_busy),
        cmocka_unit_test(a_wrong_expectation_costs_little),
        cmocka_unit_test(a_slow_worker_costs_no_more_than_its_running_task),
        cmocka_unit_test(a_frozen_worker_keeps_no_more_than_it_holds),
        cmocka_unit_test(who_joins_gets_what_others_hold_ahead),
        cmocka_unit_test(many_that_join_share_at_once),
        cmocka_unit_test(who_leaves_gives_back_what_it_holds_ahead),
        cmocka_unit_test(each_worker_runs_no_more_than_its_tasks),
        cmocka_unit_test(higher_priority_waits_for_what_runs_and_no_more),
        cmocka_unit_test(maps_of_equal_priority_go_in_their_order),
        cmocka_unit_test(sources_take_turns),
        cmocka_unit_test(a_small_window_keeps_as_many_busy_as_it_has_tasks),
        cmocka_unit_test(what_waits_behind_another_does_not_time_out),
        cmocka_unit_test(a_timeout_ends_one_task_and_no_other),
        cmocka_unit_test(at_most_once_is_alone),
        cmocka_unit_test(a_killer_takes_nothing_along),
        cmocka_unit_test(what_is_cancelled_ahead_is_not_run),
        cmocka_unit_test(every_task_ends_once_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
