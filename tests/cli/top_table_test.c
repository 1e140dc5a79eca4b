/* top_table_test.c - the table of ranks or workers: figures since the start, the order of rows, and the
 * same as JSON.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

static struct made_run runs[2];

static int tear_down(void **state)
{
    for (size_t i = 0; i < COUNT(runs); i++)
        made_run_close(&runs[i]);
    return made_tear_down(state);
}

#define top_test(f) cmocka_unit_test_setup_teardown(f, made_set_up, tear_down)

/* Three ranks of an hour: of half, a tenth and none of the processor's time. */
static void begin_ring(void)
{
    struct made_run *r = &runs[0];

    made_run_init(r, "aa", "train", 10 * HOUR_MS);
    r->about.size = r->facts.size = r->nranks = 3;
    r->facts.running = 2;
    r->facts.restarts = 1;
    r->ranks[0].stats.cpu = 3600;
    r->ranks[0].stats.memory = 5 << 20;
    r->ranks[1].stats.cpu = 18000;
    r->ranks[1].stats.memory = 4 << 20;
    r->ranks[1].stats.restarts = 1;
    r->ranks[2].stats.state = 2;
    r->ranks[2].stats.code = -9;
    r->ranks[2].stats.memory = 1 << 20;
    r->ranks[2].stats.cpu = 9999; /* nothing of now */
    made_run_begin(r);
}

static void begin_pool(void)
{
    struct made_run *r = &runs[0];

    made_run_init(r, "bb", "pool", 10 * HOUR_MS);
    made_run_pool(r);
    r->ranks[0].busy = 3600;
    r->ranks[0].tasks = 36000;
    r->ranks[1].busy = 35900;
    r->ranks[1].tasks = 36000 * 3;
    made_run_begin(r);
}

static void a_ring_is_a_table_of_ranks(void **state)
{
    const struct said *s;

    begin_ring();
    s = command("top train -c 1");
    assert_int_equal(s->code, 0);
    assert_string_equal(s->err, "");
    assert_string_equal(s->out,
                        "run aa000000  train  local  2 of 3 ranks run  1 restart  10h 0m\n"
                        "  RANK STATE        CPU%    MEMORY RESTARTS      PID HOST  BOOT CPUS\n"
                        "     0 running        10   5.0 MiB        0      100 node9 PMIx 0\n"
                        "     1 running        50   4.0 MiB        1      101 node8 PMIx 1\n"
                        "     2 signal 9        -   1.0 MiB        0      102 node7 PMIx 2\n");
}

static void a_pool_is_a_table_of_workers(void **state)
{
    const struct said *s;

    begin_pool();
    s = command("top pool -c 1");
    assert_int_equal(s->code, 0);
    assert_string_equal(s->out,
                        "pool bb000000  pool  local  2 of 2 workers run  0 restarts  10h 0m\n"
                        "7 of 9 tasks, 4.0 a second\n"
                        "WORKER STATE       BUSY%   CPU%    MEMORY    TASKS      PID HOST\n"
                        "     0 running        10      0   3.0 MiB    36000      100 node9\n"
                        "     1 running       100      0   3.0 MiB   108000      101 node8\n");
}

/* The numbers of the first column, in the order of the rows. */
static const char *order_of(const char *line, int head)
{
    static char order[64];
    const char *at = command(line)->out;

    order[0] = '\0';
    for (int i = 0; i < head; i++)
        at = strchr(at, '\n') + 1;
    for (; *at; at = strchr(at, '\n') + 1)
        snprintf(order + strlen(order), sizeof(order) - strlen(order), "%d ", atoi(at));
    return order;
}

static void rows_are_sorted_as_asked(void **state)
{
    begin_ring();
    assert_string_equal(order_of("top train -c 1", 2), "0 1 2 ");
    assert_string_equal(order_of("top train -c 1 -s rank", 2), "0 1 2 ");
    assert_string_equal(order_of("top train -c 1 -s cpu", 2), "1 0 2 ");
    assert_string_equal(order_of("top train -c 1 --sort memory", 2), "0 1 2 ");
    assert_string_equal(order_of("top train -c 1 --sort host", 2), "2 1 0 ");
    made_run_close(&runs[0]);
    begin_pool();
    assert_string_equal(order_of("top pool -c 1 -s cpu", 3), "1 0 "); /* the busiest */
    assert_string_equal(order_of("top pool -c 1 -s memory", 3), "0 1 ");
}

static void what_a_run_waits_for_is_told(void **state)
{
    begin_pool();
    snprintf(runs[0].facts.waiting, sizeof(runs[0].facts.waiting), "2 workers: no node is free");
    says(command("top pool -c 1")->out, "\nwaiting: 2 workers: no node is free\nWORKER ");
    says(command("top pool -c 1 --json")->out, "\"waiting\":\"2 workers: no node is free\"");
}

static void so_many_tables_come_as_are_counted(void **state)
{
    const char *out;
    int n = 0;

    begin_ring();
    out = command("top train -c 3 -d 100ms --json")->out;
    for (const char *at = out; (at = strchr(at, '\n')); at++)
        n++;
    assert_int_equal(n, 3);
    assert_int_equal(runs[0].looks, 4); /* the first one asks for the figures of the second */
}

static void json_has_figures_that_are_unknown_as_null(void **state)
{
    const struct said *s;

    begin_ring();
    s = command("top train -c 1 --json");
    says(s->out, "{\"uid\":\"aa000000000000000000000000000000\",\"name\":\"train\",\"kind\":"
                 "\"ring\",\"running\":2,\"restarts\":1,\"waiting\":\"\",\"doing\":\"\","
                 "\"silent_s\":0,\"ranks\":[{\"rank\":0,\"state\":\"running\",\"host\":\"node9\","
                 "\"pid\":100,\"cpu_s\":");
    says(s->out,
         "\"cpu_percent\":null,\"memory\":1048576,\"restarts\":0,\"boot\":\"PMIx\",\"cpus\":"
         "\"2\"}]}\n");
    made_run_close(&runs[0]);
    begin_pool();
    s = command("top pool -c 1 --json");
    says(s->out, "\"kind\":\"pool\"");
    says(s->out, "\"tasks_per_s\":3.99");
    says(s->out, "\"workers\":[{\"worker\":0,");
    says(s->out, "\"tasks\":108000,\"busy_s\":35900");
}

static void without_a_name_it_is_the_only_run(void **state)
{
    refuses("top -c 1", 1, "no run of yours goes on here; see `fiber ps -a`");
    begin_ring();
    says(command("top -c 1")->out, "run aa000000  train ");
    made_run_init(&runs[1], "bb", "other", HOUR_MS);
    made_run_begin(&runs[1]);
    refuses("top -c 1", 1,
            "2 runs go on: use the id or name of one: aa000000 train, bb000000 other");
    says(command("top other -c 1")->out, "run bb000000  other ");
}

static void one_that_has_ended_shows_nothing(void **state)
{
    begin_ring();
    made_run_end(&runs[0], 0, "");
    refuses("top train -c 1", 1,
            "run aa00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
}

static void times_of_looks_have_bounds(void **state)
{
    static const char *const lines[] = {"top train -d 99ms", "top train -d 2h", "top train -c 0",
                                        "top train -d x", "top train -s colour"};

    begin_ring();
    for (size_t i = 0; i < COUNT(lines); i++) {
        const struct said *s = command(lines[i]);

        if (s->code != 2 || s->out[0])
            fail_msg("%s: %d %s", lines[i], s->code, s->out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        top_test(a_ring_is_a_table_of_ranks),
        top_test(a_pool_is_a_table_of_workers),
        top_test(rows_are_sorted_as_asked),
        top_test(what_a_run_waits_for_is_told),
        top_test(so_many_tables_come_as_are_counted),
        top_test(json_has_figures_that_are_unknown_as_null),
        top_test(without_a_name_it_is_the_only_run),
        top_test(one_that_has_ended_shows_nothing),
        top_test(times_of_looks_have_bounds),
    };

    return cmocka_run_group_tests_name("top_table", tests, NULL, NULL);
}
