/* visit_words_test.c - what `fiber exec`, `fiber cp` and `fiber stack` say where nothing can be
 * visited.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

static struct made_run run;

static int set_up(void **state)
{
    made_set_up(state);
    made_run_init(&run, "aa", "train", HOUR_MS);
    return 0;
}

static int tear_down(void **state)
{
    made_run_close(&run);
    return made_tear_down(state);
}

#define visit_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* Those of a command that is refused before anybody is asked also name its help. */
static void refuses_usage(const char *line, const char *sentence)
{
    const struct said *s = command(line);
    char start[600];

    snprintf(start, sizeof(start), "fiber: %s", sentence);
    if (s->code != 2 || s->out[0] || strncmp(s->err, start, strlen(start)) != 0 ||
        !strstr(s->err, "\nTry `fiber help "))
        fail_msg("fiber %s: code %d, %s%s", line, s->code, s->out, s->err);
}

static void words_that_name_nothing_are_refused(void **state)
{
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"cp a b", "one of SRC and DST must be RUN:PATH or RUN/JOB:PATH"},
        {"cp train:a other:b",
         "one of SRC and DST must be a file of this host; if its name has a colon, use ./NAME"},
        {"cp ./train:a b", "one of SRC and DST must be RUN:PATH or RUN/JOB:PATH"},
        {"exec train --", "the command is missing: fiber exec RUN[/RANK] -- COMMAND"},
    };

    made_run_begin(&run);
    for (size_t i = 0; i < COUNT(cases); i++)
        refuses_usage(cases[i].line, cases[i].sentence);
    assert_int_equal(command("cp train:a")->code, 2);
    assert_int_equal(command("exec train")->code, 2);
    assert_int_equal(command("stack")->code, 2);
}

static void a_run_that_is_not_there_is_told(void **state)
{
    static const struct {
        const char *line;
        int code;
    } cases[] = {{"exec other -- true", 125}, {"exec other/3 true", 125}, {"cp other:a b", 1},
                 {"cp a other/2:b", 1},       {"stack other", 1},         {"stack other/1", 1}};

    made_run_begin(&run);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s = command(cases[i].line);

        assert_int_equal(s->code, cases[i].code);
        assert_string_equal(s->out, "");
        says(s->err,
             "fiber: no run of yours on this host has the name other, or an id that begins with "
             "it; see `fiber ps -a`");
    }
}

static void of_a_run_that_has_ended_nothing_is_left(void **state)
{
    made_run_begin(&run);
    made_run_end(&run, 0, "");
    refuses("exec train true", 125,
            "run aa00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
    refuses("cp train:a b", 1,
            "run aa00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
    refuses("cp /dev/null train:a", 1,
            "run aa00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
    refuses("stack train", 1,
            "run aa00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
}

static void a_rank_that_it_does_not_have_is_told(void **state)
{
    made_run_begin(&run);
    refuses("exec train/2 true", 125, "there is no rank 2: the run has 2, from 0");
    refuses("exec train/x true", 125, "\"x\" is not a rank's number");
    refuses("cp train/2:a b", 1, "there is no rank 2: the run has 2, from 0");
    refuses("cp a train/-1:b", 1, "\"-1\" is not a rank's number");
    refuses("stack train/2", 1, "there is no rank 2: the run has 2, from 0");
    refuses("stack train/1.5", 1, "\"1.5\" is not a rank's number");
}

static void jobs_that_cannot_be_visited_are_told(void **state)
{
    made_run_begin(&run);
    refuses("exec train true", 125, "run aa00000000000000: its jobs accept no commands");
    refuses("exec train/1 -- true", 125, "run aa00000000000000: its jobs accept no commands");
    refuses("cp train:a b", 1, "run aa00000000000000: its jobs accept no commands");
    refuses("cp /dev/null train/1:b", 1, "run aa00000000000000: its jobs accept no commands");
}

/* Ranks of the same reason are told together. */
static void stacks_that_cannot_be_seen_are_told_once(void **state)
{
    const struct said *s;

    run.facts.size = run.about.size = run.nranks = 5;
    run.ranks[3].stats.state = 2; /* one that has ended is not asked for */
    made_run_begin(&run);
    refuses("stack train", 1, "ranks 0-2,4: run aa00000000000000: its jobs accept no commands");
    refuses("stack train/4", 1, "rank 4: run aa00000000000000: its jobs accept no commands");
    refuses("stack train/3", 1, "rank 3 is not running; see `fiber top`");
    s = command("stack train --json");
    assert_int_equal(s->code, 1);
    assert_string_equal(s->out, "{\"run\":\"aa000000000000000000000000000000\",\"name\":\"train\","
                                "\"groups\":[],\"processes\":[]}\n");
    says(s->err, "ranks 0-2,4: ");
}

static void a_run_of_which_nothing_runs_is_told(void **state)
{
    run.ranks[0].stats.state = 0;
    run.ranks[1].stats.state = 2;
    made_run_begin(&run);
    refuses("stack train", 1, "run aa00000000000000 has no running rank");
    made_run_close(&run);
    made_run_init(&run, "bb", "pool", HOUR_MS);
    made_run_pool(&run);
    run.nranks = 0;
    made_run_begin(&run);
    refuses("stack pool", 1, "run bb00000000000000 has no running worker");
    refuses("stack pool/worker-3", 1, "worker 3 is not running; see `fiber top`");
}

static void workers_are_called_workers(void **state)
{
    made_run_pool(&run);
    made_run_begin(&run);
    refuses("stack train", 1, "workers 0,1: run aa00000000000000: its jobs accept no commands");
    refuses("stack train/worker-1", 1,
            "worker 1: run aa00000000000000: its jobs accept no commands");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        visit_test(words_that_name_nothing_are_refused),
        visit_test(a_run_that_is_not_there_is_told),
        visit_test(of_a_run_that_has_ended_nothing_is_left),
        visit_test(a_rank_that_it_does_not_have_is_told),
        visit_test(jobs_that_cannot_be_visited_are_told),
        visit_test(stacks_that_cannot_be_seen_are_told_once),
        visit_test(a_run_of_which_nothing_runs_is_told),
        visit_test(workers_are_called_workers),
    };

    return cmocka_run_group_tests_name("visit_words", tests, NULL, NULL);
}
