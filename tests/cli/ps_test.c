/* ps_test.c - the runs of this host, and those that only engines know, as rows and as JSON.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include "runtime/base/master_id.h"
#include "runtime/inspect/spool_dir.h"
#include "tests/support/mock.h"

static struct made_run runs[3];

static int tear_down(void **state)
{
    for (size_t i = 0; i < COUNT(runs); i++)
        made_run_close(&runs[i]);
    memset(&mock_engine, 0, sizeof(mock_engine));
    command_backend = NULL;
    return made_tear_down(state);
}

#define ps_test(f) cmocka_unit_test_setup_teardown(f, made_set_up, tear_down)

#define HEAD                                                                                 \
    "RUN       NAME             KIND    BACKEND    STATE         RANKS RESTARTS      TIME  " \
    "COMMAND\n"
#define HEAD_ALL                                                                                   \
    "RUN       NAME             KIND    BACKEND    STATE         RANKS RESTARTS      TIME        " \
    "ENDED  "                                                                                      \
    "COMMAND\n"

/* The names that completion offers. */
static const char *offered(void)
{
    static struct said s;
    char *words[] = {"fiber", "kill", ""};
    struct caught caught;

    memset(&s, 0, sizeof(s));
    catch_begin(&caught);
    cli_complete(stdout, 3, words);
    catch_end(&caught, &s);
    return s.out;
}

/* ---- This host ---- */

static void nothing_is_a_head_or_an_empty_array(void **state)
{
    assert_string_equal(command("ps")->out, HEAD);
    assert_string_equal(command("ps -a")->out, HEAD_ALL);
    assert_string_equal(command("ps --json")->out, "[]\n");
    assert_string_equal(offered(), "");
    assert_int_equal(command("ps")->code, 0);
}

static void a_row_tells_the_state_of_a_run(void **state)
{
    static const struct {
        int running, restarts;
        const char *waiting, *row;
    } cases[] = {
        {2, 0, "",
         "aa000000  train            ring    local      running         2/2        0     1d 1h  "
         "./train --fast\n"},
        {1, 7, "",
         "aa000000  train            ring    local      running         1/2        7     1d 1h  "
         "./train --fast\n"},
        {0, 0, "",
         "aa000000  train            ring    local      starting        0/2        0     1d 1h  "
         "./train --fast\n"},
        {1, 0, "a node",
         "aa000000  train            ring    local      waiting         1/2        0     "
         "1d 1h  ./train --fast\n"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct said *s;

        made_run_init(&runs[0], "aa", "train", 25 * HOUR_MS + HOUR_MS / 2);
        runs[0].facts.running = cases[i].running;
        runs[0].facts.restarts = cases[i].restarts;
        snprintf(runs[0].facts.waiting, sizeof(runs[0].facts.waiting), "%s", cases[i].waiting);
        made_run_begin(&runs[0]);
        s = command("ps");
        assert_memory_equal(s->out, HEAD, strlen(HEAD));
        assert_string_equal(s->out + strlen(HEAD), cases[i].row);
        made_run_close(&runs[0]);
    }
}

static void a_pool_is_as_large_as_is_wanted_now(void **state)
{
    made_run_init(&runs[0], "aa", "program", HOUR_MS);
    made_run_pool(&runs[0]);
    runs[0].facts.size = 8;
    runs[0].facts.running = 5;
    made_run_begin(&runs[0]);
    says(command("ps")->out, "aa000000  program          pool    local      running         5/8");
    says(command("ps --json")->out, "\"kind\":\"pool\",\"size\":8");
    says(command("ps --json")->out, "\"doing\":\"7 of 9 tasks\"");
}

static void long_names_do_not_move_the_columns(void **state)
{
    made_run_init(&runs[0], "aa", "a-name-of-more-than-sixteen", HOUR_MS);
    snprintf(runs[0].about.backend, sizeof(runs[0].about.backend), "kubernetes-and-more");
    made_run_begin(&runs[0]);
    says(command("ps")->out, "aa000000  a-name-of-more-t ring    kubernetes running         2/2 ");
    made_run_init(&runs[1], "bb", "K\u00fcste", HOUR_MS);
    made_run_begin(&runs[1]);
    says(command("ps")->out, "bb000000  K\u00fcste            ring    local ");
    made_run_init(&runs[2], "cc", "Zw\u00f6lf Boxk\u00e4mpfer j", HOUR_MS);
    made_run_begin(&runs[2]);
    says(command("ps")->out, "cc000000  Zw\u00f6lf Boxk\u00e4mpfer ring    local ");
}

static void what_has_ended_is_shown_when_asked_for(void **state)
{
    const struct said *s;

    made_run_init(&runs[0], "aa", "first", 50 * HOUR_MS);
    made_run_init(&runs[1], "bb", "second", 40 * HOUR_MS);
    made_run_init(&runs[2], "cc", "third", 25 * HOUR_MS);
    made_run_begin(&runs[0]);
    made_run_begin(&runs[1]);
    runs[0].facts.ended_ms = fbr_wall_ms() - 26 * HOUR_MS - HOUR_MS / 2;
    made_run_end(&runs[0], 3, "rank 1 ended with code 3");
    made_run_lost(&runs[2]);
    s = command("ps");
    says(s->out, "bb000000  second ");
    assert_null(strstr(s->out, "first"));
    assert_null(strstr(s->out, "third"));
    s = command("ps -a");
    says(s->out, "aa000000  first            ring    local      exit 3            2        0 ");
    says(s->out,
         "cc000000  third            ring    local      lost              2        0         -");
    says(s->out,
         "bb000000  second           ring    local      running         2/2        0    1d 16h"
         "            -  ./second --fast\n");
    assert_true(strstr(s->out, "first") < strstr(s->out, "second")); /* by their starts */
    assert_true(strstr(s->out, "second") < strstr(s->out, "third"));
    s = command("ps -a --json");
    says(s->out, "\"state\":\"ended\",\"code\":3,");
    says(s->out, "\"report\":\"rank 1 ended with code 3\"");
    says(s->out, "\"state\":\"lost\",\"code\":null,");
    says(s->out, "\"state\":\"running\",\"code\":null,");
}

/* Its output is kept, and the registry has gone, as when its user has logged out. */
static void make_kept(struct made_run *run, bool ended)
{
    struct fbr_error err = {0, ""};
    char dir[PATH_MAX], root[PATH_MAX];
    int lock;

    snprintf(root, sizeof(root), "%s/fiber/logs", made_root);
    assert_int_equal(fbr_spool_make(dir, &lock, root, &run->about, &err), 0);
    close(lock);
    if (ended)
        fbr_spool_note_end(dir, &run->about, &run->facts, 3, "rank 1 failed");
}

static void an_ended_run_is_listed_while_its_output_is_kept(void **state)
{
    const char *rows;

    made_run_init(&runs[0], "aa", "listed", HOUR_MS);
    made_run_init(&runs[1], "bb", "kept", 2 * HOUR_MS);
    made_run_init(&runs[2], "cc", "unknown", 3 * HOUR_MS);
    for (size_t i = 0; i < COUNT(runs); i++) {
        runs[i].facts.ended_ms = runs[i].about.started_ms + 2000;
        make_kept(&runs[i], i < 2);
    }
    made_run_begin(&runs[0]);
    made_run_end(&runs[0], 0, "");
    rows = command("ps -a")->out;
    says(
        rows,
        "bb000000  kept             ring    local      exit 3            2        0        2s   1h "
        "59m ago  ./kept --fast\naa000000  listed           ring    local      exit 0 ");
    assert_null(strstr(strstr(rows, "listed") + 1, "aa000000"));
    assert_null(strstr(rows, "unknown"));
    says(command("ps -a --json")->out, "\"rank 1 failed\"");
    assert_string_equal(command("ps")->out, HEAD);
    assert_null(strstr(command("ps -a -b slurm")->out, "kept"));
}

static void json_has_what_programs_ask_for(void **state)
{
    char want[512];

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    snprintf(runs[0].about.output_dir, sizeof(runs[0].about.output_dir), "/tmp/\"out\"");
    runs[0].facts.ended = 1;
    runs[0].facts.restarts = 4;
    made_run_begin(&runs[0]);
    snprintf(want, sizeof(want),
             "[{\"uid\":\"aa000000000000000000000000000000\",\"name\":\"train\",\"command\":"
             "\"./train --fast\",\"backend\":\"local\",\"state\":\"running\",\"code\":null,"
             "\"pid\":%d,\"kind\":\"ring\",\"size\":2,\"agents\":1,\"running\":2,\"ended\":1,"
             "\"restarts\":4,\"started_ms\":%lld,\"ended_ms\":null,\"waiting\":\"\",\"doing\":\"\","
             "\"output\":\"/tmp/\\\"out\\\"\"}]\n",
             getpid(), (long long)runs[0].about.started_ms);
    assert_string_equal(command("ps --json")->out, want);
    assert_string_equal(offered(), "aa000000\ntrain\n");
    made_run_init(&runs[1], "bb", "x$(touch y)", HOUR_MS);
    made_run_begin(&runs[1]);
    says(offered(), "bb000000\n");
    assert_null(strstr(offered(), "touch")); /* shells expand what is offered */
}

static void a_silent_launcher_has_unknown_ranks(void **state)
{
    const struct said *s;
    int fd;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    fd = made_run_silent(&runs[0]);
    s = command("ps");
    close(fd);
    says(s->out, "aa000000  train            ring    local      no answer       ?/2");
}

/* ---- Engines ---- */

static char ours[FBR_MASTER_ID_MAX], dead[FBR_MASTER_ID_MAX];
static struct fbr_orphan jobs[4];

/* Four jobs of three runs: of one that lives, of one that is dead, and of one of another host. */
static void make_jobs(void)
{
    static const char *const about[][3] = {
        {"1111aaaa", "id-1", "agent-1"},
        {"2222bbbb", "id-2", "worker-1"},
        {"2222bbbb", "id-3", "worker-2"},
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
                                      .since_ms = fbr_wall_ms() - (int64_t)(30 + i) * HOUR_MS,
                                      .runs = i != 1};
    mock_engine.jobs = jobs;
    mock_engine.njobs = COUNT(jobs);
    command_backend = "mock";
}

static void runs_that_only_an_engine_knows_are_rows_too(void **state)
{
    char row[256], host[40];
    const struct said *s;

    make_jobs();
    s = command("ps -b local");
    assert_int_equal(s->code, 0);
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(ours, ":"), ours);
    snprintf(row, sizeof(row),
             "2222bbbb  -                -       mock       lost            1/2        -     1d 8h "
             " 2 jobs; "
             "master %.30s:%d is gone: use fiber gc to remove what is left\n",
             host, getpid());
    says(s->out, row);
    says(s->out,
         "3333cccc  -                -       mock       elsewhere       1/1        -     1d 9h  "
         "1 job; master far:9\n");
    says(s->out,
         "1111aaaa  -                -       mock       running         1/1        -     1d 6h");
    s = command("ps -a -b local");
    says(s->out, "            -  1 job; master far:9\n");
}

static void an_object_that_is_no_job_is_not_counted(void **state)
{
    make_jobs();
    jobs[2].name = "";
    says(command("ps -b local")->out, "lost            0/1        -     1d 8h  1 job; master");
}

static void they_are_objects_of_json_too(void **state)
{
    const struct said *s;

    make_jobs();
    jobs[3].master = "";
    jobs[3].since_ms = 0;
    s = command("ps -b local --json");
    says(s->out, "{\"uid\":\"3333cccc\",\"name\":\"\",\"command\":\"\",\"backend\":\"mock\","
                 "\"state\":\"elsewhere\",\"code\":null,\"pid\":0,\"jobs\":1,\"running\":1,"
                 "\"started_ms\":0,\"waiting\":\"\",\"report\":\"1 job; master unknown\"}");
    says(s->out, "\"state\":\"lost\"");
}

/* The run of the registry and the jobs of its master are the same run. */
static void a_run_is_listed_once(void **state)
{
    const struct said *s;

    make_jobs();
    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    snprintf(runs[0].about.backend, sizeof(runs[0].about.backend), "mock");
    made_run_begin(&runs[0]);
    s = command("ps -b local");
    says(s->out, "aa000000  train            ring    mock       running");
    assert_null(strstr(s->out, "1111aaaa"));
    says(s->out, "2222bbbb");
}

/* The same backend and this host, but another process. */
static void the_run_of_another_master_is_listed_too(void **state)
{
    char master[FBR_MASTER_ID_MAX] = "";
    int ends[2];
    const struct said *s;
    pid_t pid;

    make_jobs();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fbr_master_id_self(master);
        if (write(ends[1], master, sizeof(master)) != (ssize_t)sizeof(master))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], master, sizeof(master)), sizeof(master));
    jobs[0].master = master;
    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    snprintf(runs[0].about.backend, sizeof(runs[0].about.backend), "mock");
    made_run_begin(&runs[0]);
    s = command("ps -b local");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    says(s->out, "aa000000  train            ring    mock       running");
    says(s->out, "1111aaaa  -                -       mock       running         1/1 ");
}

static void only_runs_of_that_backend_are_shown(void **state)
{
    const struct said *s;

    make_jobs();
    mock_engine.njobs = 0;
    made_run_init(&runs[0], "aa", "train", HOUR_MS); /* of the local one */
    made_run_begin(&runs[0]);
    s = command("ps -b local");
    assert_string_equal(s->out, HEAD);
    s = command("ps -b local --json");
    assert_string_equal(s->out, "[]\n");
}

static void an_engine_that_does_not_answer_is_an_error_when_named(void **state)
{
    const struct said *s;

    make_jobs();
    mock_engine.silent = 1;
    s = command("ps -b local");
    assert_int_equal(s->code, 1);
    assert_string_equal(s->out, HEAD);
    assert_string_equal(s->err, "fiber: backend mock: the mock engine does not answer, as "
                                "ordered\n");
    s = command("ps -b local --json");
    assert_int_equal(s->code, 1);
    assert_string_equal(s->out, "[]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ps_test(nothing_is_a_head_or_an_empty_array),
        ps_test(a_row_tells_the_state_of_a_run),
        ps_test(a_pool_is_as_large_as_is_wanted_now),
        ps_test(long_names_do_not_move_the_columns),
        ps_test(what_has_ended_is_shown_when_asked_for),
        ps_test(an_ended_run_is_listed_while_its_output_is_kept),
        ps_test(json_has_what_programs_ask_for),
        ps_test(a_silent_launcher_has_unknown_ranks),
        ps_test(runs_that_only_an_engine_knows_are_rows_too),
        ps_test(an_object_that_is_no_job_is_not_counted),
        ps_test(they_are_objects_of_json_too),
        ps_test(a_run_is_listed_once),
        ps_test(the_run_of_another_master_is_listed_too),
        ps_test(only_runs_of_that_backend_are_shown),
        ps_test(an_engine_that_does_not_answer_is_an_error_when_named),
    };

    return cmocka_run_group_tests_name("ps", tests, NULL, NULL);
}
