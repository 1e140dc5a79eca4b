/* gc_test.c - what is left of dead runs goes, what may live stays, and each of it is told.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "runtime/base/config.h"
#include "runtime/base/master_id.h"
#include "runtime/inspect/spool_dir.h"
#include "runtime/proc/rundir.h"
#include "tests/support/mock.h"

static char ours[FBR_MASTER_ID_MAX], dead[FBR_MASTER_ID_MAX];
static struct fbr_orphan jobs[4];
static struct fbr_swept things[4];

/* One job of a run that lives, two of one that is dead, one of another host. */
static int set_up(void **state)
{
    static const char *const about[][3] = {
        {"1111aaaa", "id-1", "agent-1"},
        {"2222bbbb", "id-2", "worker-1"},
        {"2222bbbb", "id-3", ""},
        {"3333cccc", "id-4", "worker-1"},
    };
    const char *const masters[] = {ours, dead, dead, "far:9:0123456789abcdef.1"};

    fbr_master_id_self(ours);
    memcpy(dead, ours, sizeof(dead));
    strcpy(strrchr(dead, '.'), ".1");
    for (size_t i = 0; i < COUNT(jobs); i++)
        jobs[i] = (struct fbr_orphan){.run = about[i][0],
                                      .id = about[i][1],
                                      .name = about[i][2],
                                      .master = masters[i],
                                      .since_ms = 1234567890000,
                                      .runs = 1};
    mock_engine = (struct mock_engine){.jobs = jobs, .njobs = COUNT(jobs)};
    command_backend = "mock";
    return made_set_up(state);
}

static int tear_down(void **state)
{
    memset(&mock_engine, 0, sizeof(mock_engine));
    command_backend = NULL;
    return made_tear_down(state);
}

#define gc_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* ---- Jobs ---- */

static void only_jobs_of_dead_masters_go(void **state)
{
    const struct said *s = command("gc -b local");

    assert_int_equal(s->code, 0);
    assert_string_equal(mock_engine.removed, "id-2 id-3");
    says(s->out, "removed      mock job worker-1 of run 2222bbbb: its master is gone (");
    says(s->out, "removed      mock job id-3 of run 2222bbbb: its master is gone (");
    says(s->out, "kept         mock job worker-1 of run 3333cccc: its master is not on this host "
                 "(far:9)\n             -> fiber gc --all 3333cccc, or fiber gc --backend mock "
                 "--all\n");
    assert_null(strstr(s->out, "1111aaaa"));
    assert_string_equal(s->err, "");
}

static void a_dry_run_removes_nothing(void **state)
{
    const struct said *s = command("gc -n -b local");

    assert_int_equal(s->code, 0);
    assert_string_equal(mock_engine.removed, "");
    assert_int_equal(mock_engine.dry, 1);
    says(s->out, "would remove mock job worker-1 of run 2222bbbb: its master is gone (");
    says(s->out, "would remove mock job id-3 of run 2222bbbb");
}

static void all_takes_those_that_cannot_be_judged(void **state)
{
    const struct said *s = command("gc -a -b local");

    assert_string_equal(mock_engine.removed, "id-2 id-3 id-4");
    assert_string_equal(s->err, "fiber: mock: --all also removes 1 job of runs whose state is "
                                "unknown here\n");
    jobs[0].master = "";
    mock_engine.removed[0] = '\0';
    s = command("gc -a -b local");
    assert_string_equal(mock_engine.removed, "id-1 id-2 id-3 id-4");
    assert_string_equal(s->err, "fiber: mock: --all also removes 2 jobs of runs whose state is "
                                "unknown here\n");
    says(s->out, "removed      mock job agent-1 of run 1111aaaa: its master is unknown\n");
    mock_engine.removed[0] = '\0';
    s = command("gc -a -n -b local"); /* nothing is removed: no warning */
    assert_string_equal(s->err, "");
    assert_string_equal(mock_engine.removed, "");
}

static void a_named_run_is_the_only_one(void **state)
{
    static const struct {
        const char *line, *removed, *out;
    } cases[] = {
        {"gc -b local 2222", "id-2 id-3", "removed      mock job worker-1 of run 2222bbbb"},
        {"gc -b local 3333", "", "kept         mock job worker-1 of run 3333cccc"},
        {"gc -a -b local 3333cccc", "id-4", "removed      mock job worker-1 of run 3333cccc"},
        {"gc -a -b local 1111", "", "nothing to remove\n"},
        {"gc -b local 44", "", "nothing to remove\n"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s = command(cases[i].line);

        assert_int_equal(s->code, 0);
        assert_string_equal(mock_engine.removed, cases[i].removed);
        says(s->out, cases[i].out);
        mock_engine.removed[0] = '\0';
    }
}

static void a_run_that_is_not_clear_loses_nothing(void **state)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"gc -a -b local 2", "'2' is not the beginning of a run's id"},
        {"gc -a -b local worker", "'worker' is not the beginning of a run's id"},
        {"gc -a -b local 22", "several runs have an id that begins with 22: 2222bbbb and 22cc"},
    };

    jobs[3].run = "22cc";
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s = command(cases[i].line);

        assert_int_equal(s->code, 2);
        says(s->err, cases[i].says);
        assert_string_equal(mock_engine.removed, "");
    }
}

static void what_cannot_be_removed_is_told_and_the_rest_goes(void **state)
{
    const struct said *s;

    mock_engine.stuck = "id-2";
    s = command("gc -b local");
    assert_int_equal(s->code, 1);
    assert_string_equal(mock_engine.removed, "id-3");
    says(s->out, "failed       mock job worker-1 of run 2222bbbb: the mock engine keeps id-2, as "
                 "ordered (");
}

static void an_engine_that_does_not_answer_is_an_error(void **state)
{
    mock_engine.silent = 1;
    refuses("gc -b local", 1, "backend mock: the mock engine does not answer, as ordered");
    says(command("gc -b local --json")->out, "[]\n");
}

static void json_has_the_command_that_removes_it(void **state)
{
    const struct said *s = command("gc -b local --json");

    assert_int_equal(s->code, 0);
    says(s->out, "{\"backend\":\"mock\",\"kind\":\"job\",\"id\":\"id-4\",\"run\":\"3333cccc\","
                 "\"job\":\"worker-1\",\"master\":\"far:9\",\"since_ms\":1234567890000,"
                 "\"action\":\"kept\",\"why\":\"its master is not on this host\","
                 "\"command\":\"fiber gc --backend mock --all\"}");
    says(s->out, "\"id\":\"id-2\"");
    says(s->out, "\"action\":\"removed\"");
    assert_string_equal(mock_engine.removed, "id-2 id-3");
}

/* ---- Images ---- */

static void make_things(void)
{
    static const char image[] = "image";

    things[0] = (struct fbr_swept){image,
                                   "fiber-auto:1",
                                   "no run has used it",
                                   FBR_SWEPT_REMOVED,
                                   fbr_wall_ms() - 25 * HOUR_MS,
                                   3 << 20};
    things[1] =
        (struct fbr_swept){image, "fiber-auto:2", "a container has it", FBR_SWEPT_KEPT, 0, -1};
    things[2] =
        (struct fbr_swept){image, "fiber-auto:3", "the engine said no", FBR_SWEPT_FAILED, 0, 5};
    things[3] = (struct fbr_swept){"directory", "/left", "it is old", FBR_SWEPT_WOULD, 0, 0};
    mock_engine.things = things;
    mock_engine.nthings = COUNT(things);
    mock_engine.njobs = 0;
}

static void objects_are_told_with_their_size_and_age(void **state)
{
    const struct said *s;

    make_things();
    s = command("gc -b local");
    assert_int_equal(s->code, 1); /* one could not be removed */
    assert_string_equal(s->out, "removed      mock image fiber-auto:1: no run has used it (3.0 "
                                "MiB, unused for 1d 1h)\n"
                                "kept         mock image fiber-auto:2: a container has it\n"
                                "failed       mock image fiber-auto:3: the engine said no (5 B)\n"
                                "would remove mock directory /left: it is old\n");
    mock_engine.nthings = 2;
    s = command("gc -b local --json");
    assert_int_equal(s->code, 0);
    says(s->out, "{\"backend\":\"mock\",\"kind\":\"image\",\"id\":\"fiber-auto:2\",\"since_ms\":0,"
                 "\"bytes\":-1,\"action\":\"kept\",\"why\":\"a container has it\"}");
}

static void the_age_of_images_is_an_option(void **state)
{
    static const struct {
        const char *line;
        int64_t age_ms;
    } cases[] = {
        {"gc -b local", 7 * DAY_MS},
        {"gc -b local --images 12h", 12 * HOUR_MS},
        {"gc -b local --images 0", 0},
        {"gc -b local --images 90", 90000},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t from = fbr_wall_ms() - cases[i].age_ms, until;

        command(cases[i].line);
        until = fbr_wall_ms() - cases[i].age_ms;
        assert_true(from <= mock_engine.before_ms && mock_engine.before_ms <= until);
    }
    mock_engine.before_ms = -1;
    command("gc -b local 2222"); /* images belong to no run */
    assert_int_equal(mock_engine.before_ms, -1);
    says(command("gc -b local --images 4000d")->err, "--images");
}

/* ---- This host ---- */

/* In a child, which ends without removing it. */
static void make_dead_directory(const char *base)
{
    struct fbr_rundir d;
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(fbr_rundir_create(&d, base, NULL) < 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void directories_of_dead_runs_go(void **state)
{
    char base[80], line[200], before[80];

    command_backend = NULL;
    snprintf(base, sizeof(base), "%s/runs", made_root);
    assert_int_equal(mkdir(base, 0700), 0);
    assert_int_equal(fiber_init(NULL, NULL), 0);
    assert_int_equal(fiber_config_get("run_dir", before, sizeof(before)), 0);
    assert_int_equal(fiber_config_set("run_dir", base), 0);
    make_dead_directory(base);
    snprintf(line, sizeof(line), "would remove local directory %s/fiber-", base);
    says(command("gc -b local -n")->out, line);
    assert_int_equal(dir_count(base, "fiber-"), 1);
    snprintf(line, sizeof(line), "{\"backend\":\"local\",\"kind\":\"directory\",\"id\":\"%s/fiber-",
             base);
    says(command("gc -b local -n --json")->out, line);
    command("gc -b local 2222"); /* a run's jobs alone are meant */
    assert_int_equal(dir_count(base, "fiber-"), 1);
    snprintf(line, sizeof(line), "removed      local directory %s/fiber-", base);
    says(command("gc -b local")->out, line);
    assert_int_equal(dir_count(base, "fiber-"), 0);
    assert_int_equal(fiber_config_set("run_dir", before), 0);
}

/* Keeps output of a run that ended so many days ago. */
static void make_logs(const char *root, const char *id, int days, char dir[PATH_MAX])
{
    const struct timespec times[2] = {{.tv_sec = time(NULL) - days * 86400},
                                      {.tv_sec = time(NULL) - days * 86400}};
    struct fbr_error err = {0, ""};
    struct made_run run;
    int lock;

    made_run_init(&run, id, "train", days * DAY_MS);
    assert_int_equal(fbr_spool_make(dir, &lock, root, &run.about, &err), 0);
    close(lock);
    assert_int_equal(utimensat(AT_FDCWD, dir, times, 0), 0);
}

static void output_of_long_ago_goes(void **state)
{
    char root[PATH_MAX], old[PATH_MAX], young[PATH_MAX], line[PATH_MAX + 100];
    struct fbr_error err = {0, ""};
    struct fbr_config *c;

    command_backend = NULL;
    assert_int_equal(fbr_config_load_again(&c, &err), 0);
    assert_int_equal(fbr_spool_root(root, c, &err), 0);
    fbr_config_free(c);
    make_logs(root, "aa", FBR_SPOOL_DAYS + 1, old);
    make_logs(root, "bb", FBR_SPOOL_DAYS - 1, young);
    snprintf(line, sizeof(line), "logs %s: more than the limit of log_total, 200 runs or 14 days\n",
             old);
    says(command("gc -b local -n")->out, line);
    assert_int_equal(access(old, F_OK), 0);
    says(command("gc -b local")->out, line);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        gc_test(only_jobs_of_dead_masters_go),
        gc_test(a_dry_run_removes_nothing),
        gc_test(all_takes_those_that_cannot_be_judged),
        gc_test(a_named_run_is_the_only_one),
        gc_test(a_run_that_is_not_clear_loses_nothing),
        gc_test(what_cannot_be_removed_is_told_and_the_rest_goes),
        gc_test(an_engine_that_does_not_answer_is_an_error),
        gc_test(json_has_the_command_that_removes_it),
        gc_test(objects_are_told_with_their_size_and_age),
        gc_test(the_age_of_images_is_an_option),
        gc_test(directories_of_dead_runs_go),
        gc_test(output_of_long_ago_goes),
    };

    return cmocka_run_group_tests_name("gc", tests, NULL, NULL);
}
