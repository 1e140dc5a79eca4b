/* kill_test.c - what `fiber kill` and `fiber scale` tell a run, and what they say when it cannot be
 * told.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "runtime/base/master_id.h"
#include "tests/support/mock.h"

static struct made_run run;
static char ours[FBR_MASTER_ID_MAX], dead[FBR_MASTER_ID_MAX];

static int set_up(void **state)
{
    made_set_up(state);
    made_run_init(&run, "aa11", "train", HOUR_MS);
    fbr_master_id_self(ours);
    memcpy(dead, ours, sizeof(dead));
    strcpy(strrchr(dead, '.'), ".1");
    return 0;
}

static int tear_down(void **state)
{
    made_run_close(&run);
    memset(&mock_engine, 0, sizeof(mock_engine));
    command_backend = NULL;
    return made_tear_down(state);
}

#define kill_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* ---- A run of this host ---- */

static void what_is_typed_becomes_one_order(void **state)
{
    static const struct {
        const char *line, *orders;
    } cases[] = {
        {"kill train", "stop"},
        {"kill aa11", "stop"},
        {"kill train 1", "signal 15 to 1"},
        {"kill train/1", "signal 15 to 1"},
        {"kill aa11/0 -s USR1", "signal 10 to 0"},
        {"kill train --signal KILL", "signal 9 to -1"},
        {"kill train -s USR1", "signal 10 to -1"},
        {"kill train 1 -s SIGUSR2", "signal 12 to 1"},
        {"kill train -s sigint", "signal 2 to -1"},
        {"kill train -s 1", "signal 1 to -1"},
        {"kill train -s TERM", "signal 15 to -1"}, /* a signal, not a stop */
        {"kill -9 train", "signal 9 to -1"},
        {"kill -KILL train 0", "signal 9 to 0"},
        {"kill -SIGKILL train", "signal 9 to -1"},
        {"kill -INT train", "signal 2 to -1"},
        {"kill -15 train", "signal 15 to -1"},
        {"kill -USR1 train", "signal 10 to -1"},
        {"kill -12 train 1", "signal 12 to 1"},
    };

    made_run_begin(&run);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s;

        run.orders[0] = '\0';
        s = command(cases[i].line);
        if (s->code != 0 || s->out[0] || s->err[0] || strcmp(run.orders, cases[i].orders) != 0)
            fail_msg("%s: %d, \"%s\", %s%s", cases[i].line, s->code, run.orders, s->out, s->err);
    }
}

static void no_signal_is_sent_that_does_not_exist(void **state)
{
    static const char *const names[] = {"NOTHING", "0", "65", "9x", "SIG", "-1", "99999999999999"};

    made_run_begin(&run);
    for (size_t i = 0; i < COUNT(names); i++) {
        char line[80], sentence[80];
        const struct said *s;

        snprintf(line, sizeof(line), "kill train --signal=%s", names[i]);
        snprintf(sentence, sizeof(sentence), "--signal: there is no signal %s", names[i]);
        s = command(line);
        assert_int_equal(s->code, 2);
        says(s->err, sentence);
    }
    assert_string_equal(run.orders, "");
}

static void what_a_run_refuses_is_told(void **state)
{
    run.answer = -ESRCH;
    made_run_begin(&run);
    refuses("kill train 1", 1, "rank 1 does not run: `fiber top aa1100000000` shows those that do");
    refuses("kill train 1 -s KILL", 1,
            "rank 1 does not run: `fiber top aa1100000000` shows those that do");
    refuses("kill train -s KILL", 1, "run aa11000000000000: the rank is not running");
    refuses("kill train 2", 1, "there is no rank 2: the run has 2, from 0");
    refuses("kill train x", 1, "\"x\" is not a rank's number");
    made_run_close(&run);
    made_run_init(&run, "bb", "pool", HOUR_MS);
    made_run_pool(&run);
    run.answer = -ESRCH;
    made_run_begin(&run);
    refuses("kill pool 99", 1,
            "worker 99 does not run: `fiber top bb0000000000` shows those that do");
    refuses("kill pool worker-99", 1, /* as a report names it */
            "worker 99 does not run: `fiber top bb0000000000` shows those that do");
}

static void one_that_has_ended_is_not_told_again(void **state)
{
    made_run_begin(&run);
    made_run_end(&run, 0, "");
    refuses("kill train", 1, "run aa11000000000000 has ended already");
    refuses("kill train -9", 1, "run aa11000000000000 has ended already");
    says(command("kill other")->err, "no run of yours on this host has the name other");
    assert_int_equal(command("kill other")->code, 1);
    says(command("kill -b docker train")->err,
         "run aa11000000000000 is not of backend docker, but of local");
}

static void a_pool_is_scaled_and_a_ring_is_not(void **state)
{
    static const char *const wrong[] = {"0", "-1", "x", "4x", "1048577", "99999999999999999999"};

    run.is_fixed = true;
    made_run_begin(&run);
    refuses("scale train 4", 1,
            "run aa11000000000000: the size of a ring is fixed; only pools can be scaled");
    made_run_close(&run);
    made_run_init(&run, "bb", "pool", HOUR_MS);
    made_run_begin(&run);
    assert_int_equal(command("scale pool 4")->code, 0);
    assert_int_equal(command("scale pool 1048576")->code, 0);
    assert_string_equal(run.orders, "scale 4; scale 1048576");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char line[80], sentence[120];

        snprintf(line, sizeof(line), "scale pool -- %s", wrong[i]);
        snprintf(sentence, sizeof(sentence), "\"%s\" is not a number of workers, from 1 to 1048576",
                 wrong[i]);
        says(command(line)->err, sentence);
        assert_int_equal(command(line)->code, 2);
    }
    run.answer = -EINVAL;
    says(command("scale pool 4")->err, "run bb00000000000000: ");
    made_run_end(&run, 0, "");
    refuses("scale pool 4", 1,
            "run bb00000000000000 has ended, so it has no jobs; see `fiber ps -a`");
}

/* ---- A run that only an engine knows ---- */

static struct fbr_orphan jobs[5];

/* Of a dead run with two jobs and an object that owns them, of one of another host, and of one that has no job
 * yet. */
static void make_jobs(void)
{
    static const char *const about[][3] = {
        {"2222bbbb", "id-1", "worker-1"},   {"2222bbbb", "id-2", "worker-2"},
        {"2222bbbb", "configmap/id", ""},   {"3333cccc", "id-4", "worker-1"},
        {"4444dddd", "configmap/id-5", ""},
    };

    for (size_t i = 0; i < COUNT(jobs); i++)
        jobs[i] = (struct fbr_orphan){.run = about[i][0],
                                      .id = about[i][1],
                                      .name = about[i][2],
                                      .master = i < 3 ? dead : "far:9:0123456789abcdef.1",
                                      .runs = 1};
    mock_engine.jobs = jobs;
    mock_engine.njobs = COUNT(jobs);
    command_backend = "mock";
}

static void jobs_without_a_master_are_removed(void **state)
{
    static const struct {
        const char *line, *removed, *err;
    } cases[] = {
        {"kill -b local 2222", "configmap/id id-1 id-2", "fiber: run 2222bbbb: 2 jobs removed\n"},
        {"kill -b local 2222bbbb worker-2", "id-2", "fiber: run 2222bbbb: 1 job removed\n"},
        {"kill -b local 2222 id-1", "id-1", "fiber: run 2222bbbb: 1 job removed\n"},
        {"kill -b local 3333", "id-4",
         "fiber: run 3333cccc: 1 job removed; its master, far:9, is not on this host, and may "
         "start "
         "others: end it there\n"},
        {"kill -b local 4444", "configmap/id-5",
         "fiber: run 4444dddd: it had no jobs; what was left of it is removed; its master, far:9, "
         "is "
         "not on this host, and may start others: end it there\n"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s;

        make_jobs();
        mock_engine.removed[0] = '\0';
        s = command(cases[i].line);
        assert_int_equal(s->code, 0);
        assert_string_equal(s->err, cases[i].err);
        assert_string_equal(mock_engine.removed, cases[i].removed);
    }
    jobs[3].master = "";
    says(command("kill -b local 3333")->err, "its master, which is unknown, is not on this host");
}

static void what_an_engine_cannot_do_is_told(void **state)
{
    char sentence[300];

    make_jobs();
    snprintf(
        sentence, sizeof(sentence),
        "run 2222bbbb: only its master, %.*s:%d, can forward a signal, and the master cannot be "
        "reached from here; use fiber kill without --signal to remove its jobs",
        (int)strcspn(dead, ":"), dead, getpid());
    refuses("kill -b local 2222 -s USR1", 1, sentence);
    refuses("kill -b local 2222 worker-3", 1,
            "run 2222bbbb has no job worker-3; it has worker-1, worker-2");
    refuses("kill -b local 2222/3", 1, "run 2222bbbb has no job 3; it has worker-1, worker-2");
    refuses("logs -b local 4444", 1, "run 4444dddd has no job; it has none");
    assert_string_equal(mock_engine.removed, "");
    mock_engine.stuck = "id-1";
    refuses("kill -b local 2222", 1,
            "run 2222bbbb: mock: the mock engine keeps id-1, as ordered; try fiber gc --all");
    assert_string_equal(mock_engine.removed, "configmap/id id-2");
    jobs[0].run = "2222bbbc";
    refuses(
        "kill -b local 2222", 1,
        "several runs have an id that begins with 2222: 2222bbbb and 2222bbbc; use a longer id, "
        "see `fiber ps --all-backends`");
    mock_engine.silent = 1;
    refuses("kill -b local 2222", 1, "backend mock: the mock engine does not answer, as ordered");
}

static void names_of_more_than_eight_jobs_are_cut(void **state)
{
    static struct fbr_orphan many[10];
    static char names[10][24];

    make_jobs();
    for (int i = 0; i < 10; i++) {
        snprintf(names[i], sizeof(names[i]), "worker-%d", i);
        many[i] = (struct fbr_orphan){
            .run = "2222bbbb", .id = names[i], .name = names[i], .master = dead, .runs = 1};
    }
    mock_engine.jobs = many;
    mock_engine.njobs = COUNT(many);
    refuses("kill -b local 2222 x", 1,
            "run 2222bbbb has no job x; it has worker-0, worker-1, worker-2, worker-3, worker-4, "
            "worker-5, worker-6, worker-7, and more");
}

/* A process that waits, and what the engine has of its run: no door here, but it can be told. */
static void a_master_that_lives_is_told_itself(void **state)
{
    char master[FBR_MASTER_ID_MAX] = "", far[FBR_MASTER_ID_MAX];
    int ends[2], status;
    const struct said *s;
    pid_t pid;

    make_jobs();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_DFL);
        fbr_master_id_self(master);
        if (write(ends[1], master, sizeof(master)) != (ssize_t)sizeof(master))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], master, sizeof(master)), sizeof(master));
    /* the number of another host's process may be one of this host, and no number would be our
     * whole process group */
    snprintf(far, sizeof(far), "far:%d:0123456789abcdef.1", getpid());
    jobs[0].master = "";
    jobs[1].master = master;
    jobs[2].master = far;
    s = command("kill -b local 2222");
    assert_int_equal(s->code, 0);
    assert_string_equal(s->err, "");
    assert_string_equal(mock_engine.removed, "");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    close(ends[0]);
    close(ends[1]);
}

/* Only its master could scale it or show its ranks. */
static void others_are_sent_to_the_master(void **state)
{
    static const char *const lines[] = {"scale 2222 4", "top 2222", "stack 2222"};

    make_jobs();
    for (size_t i = 0; i < COUNT(lines); i++) /* no engine is configured */
        says(command(lines[i])->err, "no run of yours on this host has the name 2222");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kill_test(what_is_typed_becomes_one_order),
        kill_test(no_signal_is_sent_that_does_not_exist),
        kill_test(what_a_run_refuses_is_told),
        kill_test(one_that_has_ended_is_not_told_again),
        kill_test(a_pool_is_scaled_and_a_ring_is_not),
        kill_test(jobs_without_a_master_are_removed),
        kill_test(what_an_engine_cannot_do_is_told),
        kill_test(names_of_more_than_eight_jobs_are_cut),
        kill_test(a_master_that_lives_is_told_itself),
        kill_test(others_are_sent_to_the_master),
    };

    return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
