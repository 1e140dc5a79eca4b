/* run_client_test.c - runs are found by what people type, asked, and told what to do; and what is said
 * when they do not answer.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/cli/made_run_util.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

static struct fbr_error err;

/* ---- For listings ---- */

static void ages_have_two_units(void **state)
{
    static const struct {
        const char *name;
        int64_t ms;
        const char *want;
    } cases[] = {
        {"a clock that was set back", -5000, "0s"},         {"nothing yet", 999, "0s"},
        {"the last second of a minute", 59999, "59s"},      {"a minute", 60000, "1m 0s"},
        {"the last second of an hour", 3599999, "59m 59s"}, {"an hour", 3600000, "1h 0m"},
        {"the last minute of a day", 86399999, "23h 59m"},  {"a day", 86400000, "1d 0h"},
        {"weeks", 20 * DAY_MS + 5 * HOUR_MS, "20d 5h"},
    };
    char age[32];

    for (size_t i = 0; i < COUNT(cases); i++) {
        run_client_age(age, cases[i].ms);
        if (strcmp(age, cases[i].want) != 0)
            fail_msg("%s: %s", cases[i].name, age);
    }
}

static void sizes_have_three_digits(void **state)
{
    static const struct {
        const char *name;
        uint64_t bytes;
        const char *want;
    } cases[] = {
        {"nothing", 0, "0 B"},
        {"below the first unit", 1023, "1023 B"},
        {"the first unit", 1024, "1.0 KiB"},
        {"a part of one", 1536, "1.5 KiB"},
        {"the last with a part", 99ull << 10, "99.0 KiB"},
        {"none where three digits stand", 100ull << 10, "100 KiB"},
        {"mebibytes", 512ull << 20, "512 MiB"},
        {"gibibytes", 8ull << 30, "8.0 GiB"},
        {"tebibytes", 3ull << 40, "3.0 TiB"},
        {"the last unit goes on", UINT64_MAX, "16384 PiB"},
    };
    char size[32];

    for (size_t i = 0; i < COUNT(cases); i++) {
        run_client_bytes(size, cases[i].bytes);
        if (strcmp(size, cases[i].want) != 0)
            fail_msg("%s: %s", cases[i].name, size);
    }
}

static void a_rank_is_in_one_of_four_states(void **state)
{
    static const struct {
        struct fiber_rank_stats stats;
        const char *want;
    } cases[] = {
        {{.state = 0}, "starting"},
        {{.state = 1, .code = 7}, "running"},
        {{.state = 2}, "exit 0"},
        {{.state = 2, .code = 255}, "exit 255"},
        {{.state = 2, .code = -9}, "signal 9"},
    };
    char out[48];

    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(run_client_rank_state(&cases[i].stats, out), cases[i].want);
}

static void a_rank_is_a_number_that_the_run_has(void **state)
{
    static const struct {
        const char *name, *typed;
        int kind, at_start, now, want;
        const char *sentence;
    } cases[] = {
        {"the first", "0", FBR_RUN_RING, 4, 4, 0, ""},
        {"the last", "3", FBR_RUN_RING, 4, 4, 3, ""},
        {"behind the last", "4", FBR_RUN_RING, 4, 4, -EINVAL,
         "there is no rank 4: the run has 4, from 0"},
        {"one that was spawned", "5", FBR_RUN_RING, 4, 6, 5, ""},
        {"of a run whose size is unknown", "99", FBR_RUN_RING, 0, 0, 99, ""},
        {"a worker's numbers grow", "99", FBR_RUN_POOL, 4, 4, 99, ""},
        {"negative", "-1", FBR_RUN_RING, 4, 4, -EINVAL, "\"-1\" is not a rank's number"},
        {"a word", "all", FBR_RUN_RING, 4, 4, -EINVAL, "\"all\" is not a rank's number"},
        {"a number and more", "1x", FBR_RUN_RING, 4, 4, -EINVAL, "\"1x\" is not a rank's number"},
        {"nothing", "", FBR_RUN_RING, 4, 4, -EINVAL, "\"\" is not a rank's number"},
        {"beyond an int", "2147483648", FBR_RUN_POOL, 4, 4, -EINVAL,
         "\"2147483648\" is not a rank's number"},
        {"beyond a long", "99999999999999999999", FBR_RUN_POOL, 4, 4, -EINVAL,
         "\"99999999999999999999\" is not a rank's number"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct run_client run = {
            .about = {.kind = (uint8_t)cases[i].kind, .size = cases[i].at_start},
            .facts = {.size = cases[i].now}};
        int rc;

        err = (struct fbr_error){0, ""};
        rc = run_client_job(cases[i].typed, &run, &err);
        if (rc != cases[i].want || strcmp(err.text, cases[i].sentence) != 0)
            fail_msg("%s: %d %s", cases[i].name, rc, err.text);
    }
}

static void a_worker_may_be_named_by_its_job(void **state)
{
    struct run_client pool = {.about = {.kind = FBR_RUN_POOL}}, ring = {.about = {.size = 9}};

    assert_int_equal(run_client_job("worker-7", &pool, &err), 7);
    assert_int_equal(run_client_job("7", &pool, &err), 7);
    assert_int_equal(run_client_job("a-b-12", &pool, &err), 12);
    assert_int_equal(run_client_job("worker-", &pool, &err), -EINVAL);
    assert_int_equal(run_client_job("7", &ring, &err), 7);
    assert_int_equal(run_client_job("worker-7", &ring, &err), -EINVAL);
    assert_string_equal(err.text, "\"worker-7\" is not a rank's number");
}

/* Names of processes are the program's, so the number in a name says nothing. */
static void a_process_has_a_number_only(void **state)
{
    struct run_client program = {.about = {.kind = FBR_RUN_PROGRAM, .size = 2}};

    assert_int_equal(run_client_job("7", &program, &err), 7);
    assert_int_equal(run_client_job("Process-7", &program, &err), -EINVAL);
    assert_string_equal(err.text, "\"Process-7\" is not a process's number");
}

/* A pool's size is the one that is wanted now; of one that is over it is what it had at its
 * start. */
static void a_size_is_that_of_now_or_of_the_start(void **state)
{
    struct run_client run = {.about = {.kind = FBR_RUN_POOL, .size = 2}, .facts = {.size = 8}};

    assert_int_equal(run_client_size(&run), 8);
    run.state = CLIENT_SILENT;
    assert_int_equal(run_client_size(&run), 8);
    run.state = CLIENT_ENDED;
    assert_int_equal(run_client_size(&run), 2);
    run.state = CLIENT_RUNNING;
    run.about.kind = FBR_RUN_RING;
    assert_int_equal(run_client_size(&run), 2);
    run.about.kind = FBR_RUN_PROGRAM; /* all that it has started so far */
    assert_int_equal(run_client_size(&run), 8);
    run.state = CLIENT_ENDED;
    assert_int_equal(run_client_size(&run), 8);
}

/* ---- Finding ---- */

static struct made_run runs[3];

static int tear_down(void **state)
{
    for (size_t i = 0; i < COUNT(runs); i++)
        made_run_close(&runs[i]);
    return made_tear_down(state);
}

#define runs_test(f) cmocka_unit_test_setup_teardown(f, made_set_up, tear_down)

/* The uid of the run that is found, or the sentence. */
static const char *found(const char *typed)
{
    static char uid[40];
    struct run_client run;

    err = (struct fbr_error){0, ""};
    if (run_client_find(typed, &run, &err) < 0)
        return err.text;
    snprintf(uid, sizeof(uid), "%s", run.about.uid);
    run_client_free(&run);
    return uid;
}

static void a_run_is_found_by_name_or_by_the_beginning_of_its_id(void **state)
{
    made_run_init(&runs[0], "aa11", "train", DAY_MS);
    made_run_init(&runs[1], "aa22", "program", HOUR_MS);
    made_run_begin(&runs[0]);
    made_run_begin(&runs[1]);
    assert_string_equal(found("train"), runs[0].about.uid);
    assert_string_equal(found("aa1"), runs[0].about.uid);
    assert_string_equal(found("aa22"), runs[1].about.uid);
    assert_string_equal(found(runs[1].about.uid), runs[1].about.uid);
    says(found("a"), "no run of yours on this host has the name a, or an id that begins with it");
    says(found("tra"), "no run of yours on this host has the name tra");
    says(found(""), "`fiber ps -a`");
    assert_string_equal(found("aa"), "2 runs have the name aa; use the id of one, see `fiber ps`");
    assert_int_equal(err.code, -EEXIST);
}

static void one_that_runs_is_before_one_that_has_ended(void **state)
{
    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    made_run_init(&runs[1], "bb", "train", DAY_MS);
    made_run_init(&runs[2], "cc", "train", 2 * DAY_MS);
    made_run_begin(&runs[0]);
    made_run_begin(&runs[1]);
    made_run_begin(&runs[2]);
    says(found("train"), "3 runs have the name train");
    made_run_end(&runs[0], 0, "");
    made_run_end(&runs[2], 1, "");
    assert_string_equal(found("train"), runs[1].about.uid);
    made_run_end(&runs[1], 0, "");
    assert_string_equal(found("train"), runs[0].about.uid); /* the youngest */
    assert_string_equal(found("cc"), runs[2].about.uid);
}

static void without_a_name_there_must_be_just_one(void **state)
{
    struct run_client run;
    static const char *const ids[] = {"aaaa1111", "bbbb2222", "cccc3333"};

    assert_int_equal(run_client_only(&run, false, &err), -ENOENT);
    assert_string_equal(err.text, "no run of yours goes on here; see `fiber ps -a`");
    for (size_t i = 0; i < COUNT(runs); i++) {
        made_run_init(&runs[i], ids[i], "train", (int64_t)(9 - i) * HOUR_MS);
        made_run_begin(&runs[i]);
        if (i > 0)
            continue;
        assert_int_equal(run_client_only(&run, false, &err), 0);
        assert_string_equal(run.about.uid, runs[0].about.uid);
        run_client_free(&run);
    }
    assert_int_equal(run_client_only(&run, false, &err), -EEXIST);
    assert_string_equal(err.text, "3 runs go on: use the id or name of one: aaaa1111 train, "
                                  "bbbb2222 train, cccc3333 train");
}

/* Three runs of one program, of which the first or the last one is that of its processes. */
static void of_one_program_the_pool_is_meant(void **state)
{
    struct run_client run;

    for (int first = 0; first < 2; first++) {
        made_run_init(&runs[0], "aa11", "train", DAY_MS);
        made_run_init(&runs[1], "aa22", "train", HOUR_MS);
        runs[0].about.kind = first ? FBR_RUN_PROGRAM : FBR_RUN_POOL;
        runs[1].about.kind = first ? FBR_RUN_POOL : FBR_RUN_PROGRAM;
        made_run_begin(&runs[0]);
        made_run_begin(&runs[1]);
        assert_string_equal(found("train"), runs[first].about.uid);
        assert_string_equal(found("aa11"), runs[0].about.uid);
        assert_string_equal(found("aa22"), runs[1].about.uid);
        assert_int_equal(run_client_only(&run, false, &err), 0);
        assert_string_equal(run.about.uid, runs[first].about.uid);
        run_client_free(&run);
        made_run_close(&runs[0]);
        made_run_close(&runs[1]);
    }
    made_run_init(&runs[0], "aa11", "train", DAY_MS);
    made_run_init(&runs[1], "aa22", "train", HOUR_MS);
    made_run_init(&runs[2], "aa33", "train", HOUR_MS);
    runs[0].about.kind = FBR_RUN_PROGRAM;
    runs[1].about.kind = runs[2].about.kind = FBR_RUN_POOL;
    for (int i = 0; i < 3; i++)
        made_run_begin(&runs[i]);
    says(found("train"), "2 runs have the name train");
    assert_int_equal(run_client_only(&run, false, &err), -EEXIST);
}

static const char *last_run(void)
{
    static char uid[sizeof(runs[0].about.uid)];
    struct run_client run;

    err = (struct fbr_error){0, ""};
    if (run_client_only(&run, true, &err) < 0)
        return err.text;
    assert_int_equal(err.code, 0);
    snprintf(uid, sizeof(uid), "%s", run.about.uid);
    run_client_free(&run);
    return uid;
}

/* So that a run ends in a later millisecond than the others. */
static void wait_for_the_clock(void)
{
    for (int64_t now = fbr_wall_ms(); fbr_wall_ms() <= now;)
        ;
}

static void the_last_run_is_the_running_one_or_the_one_that_ended_last(void **state)
{
    static const char *const ids[] = {"aaaa1111", "bbbb2222", "cccc3333"};

    assert_string_equal(last_run(),
                        "there is no run of yours on this host; see `fiber ps --all-backends`");
    for (size_t i = 0; i < COUNT(runs); i++) {
        made_run_init(&runs[i], ids[i], "train", (int64_t)(9 - i) * HOUR_MS);
        made_run_begin(&runs[i]);
    }
    says(last_run(), "3 runs go on: use the id or name of one: aaaa1111 train, ");
    made_run_end(&runs[2], 0, "");
    made_run_end(&runs[0], 0, "");
    assert_string_equal(last_run(), runs[1].about.uid);
    wait_for_the_clock();
    made_run_end(&runs[1], 0, "");
    assert_string_equal(last_run(), runs[1].about.uid);
}

/* ---- Asking ---- */

/* The first of the made runs, called. */
static void call(struct run_client *run)
{
    err = (struct fbr_error){0, ""};
    assert_int_equal(run_client_find(runs[0].about.uid, run, &err), 0);
}

static void ranks_are_asked_for_again_and_again(void **state)
{
    struct run_client run;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    runs[0].facts.size = runs[0].nranks = 3;
    runs[0].ranks[2].stats.state = 2;
    runs[0].ranks[2].stats.code = -11;
    made_run_begin(&runs[0]);
    call(&run);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_client_ranks(&run, TEST_LONG_MS, &err), 0);
    assert_int_equal(runs[0].looks, 3);
    assert_int_equal(run.nranks, 3);
    assert_int_equal(run.nbefore, 3);
    assert_string_equal(run.ranks[1].stats.host, "node8");
    assert_int_equal(run.ranks[2].stats.code, -11);
    assert_true(run.ranks[0].stats.cpu == 1.0); /* two looks before it */
    assert_true(run.before[0].stats.cpu == 0.5);
    made_run_close(&runs[0]);
    assert_int_equal(run_client_ranks(&run, TEST_LONG_MS, &err), -ECONNRESET);
    assert_string_equal(err.text, "run aa00000000000000: it has ended");
    run_client_free(&run);
}

static void orders_reach_the_run_and_refusals_come_back(void **state)
{
    struct run_client run;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    runs[0].is_fixed = true;
    made_run_begin(&runs[0]);
    call(&run);
    assert_int_equal(run_client_ask(&run, FBR_RUN_CONTROL_SIGNAL, 1, SIGUSR1, &err), 0);
    assert_int_equal(run_client_ask(&run, FBR_RUN_CONTROL_STOP, -1, 0, &err), 0);
    assert_string_equal(runs[0].orders, "signal 10 to 1; stop");
    assert_int_equal(run_client_ask(&run, FBR_RUN_CONTROL_SCALE, -1, 4, &err), -ENOTSUP);
    assert_string_equal(err.text, "run aa00000000000000: the size of a ring is fixed; only pools "
                                  "can be scaled");
    assert_int_equal(run_client_ask(&run, FBR_RUN_CONTROL_SIGNAL, 1, 999, &err), -EINVAL);
    says(err.text, "there is no such signal");
    assert_int_equal(run_client_ask(&run, (enum fbr_run_control_op)99, 1, 0, &err), -ENOSYS);
    says(err.text, "this run's launcher does not know that request");
    assert_int_equal(run_client_tunnel(&run, 1, &err), -ENOTSUP);
    says(err.text, "its jobs accept no commands");
    run_client_free(&run);
}

static void one_more_connection_is_independent(void **state)
{
    struct run_client run, again;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    made_run_begin(&runs[0]);
    call(&run);
    assert_int_equal(run_client_again(&run, &again, &err), 0);
    run_client_free(&run);
    assert_int_equal(run_client_ask(&again, FBR_RUN_CONTROL_STOP, -1, 0, &err), 0);
    assert_string_equal(runs[0].orders, "stop");
    run_client_free(&again);
    made_run_close(&runs[0]);
    assert_int_equal(run_client_again(&run, &again, &err), -ECONNRESET);
    assert_string_equal(err.text, "run aa00000000000000: it has ended");
}

/* The door's thread waits for `let_go`, which is posted once it may answer. */
static sem_t waits, let_go;

static void wait_until_let_go(void *arg)
{
    sem_post(&waits);
    sem_wait(&let_go);
}

/* Answers to what was asked before, and given up, are not taken for those to the next question. */
static void answers_that_come_late_are_passed_over(void **state)
{
    struct run_client run;
    int first, again, owed;

    sem_init(&waits, 0, 0);
    sem_init(&let_go, 0, 0);
    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    made_run_begin(&runs[0]);
    call(&run);
    assert_int_equal(fbr_loop_post(runs[0].loop, wait_until_let_go, NULL), 0);
    sem_wait(&waits);
    first = run_client_ranks(&run, 1, &err);
    again = run_client_ranks(&run, 1, &err);
    owed = run.owed;
    sem_post(&let_go);
    assert_int_equal(first, -ETIMEDOUT);
    assert_int_equal(again, -ETIMEDOUT);
    assert_int_equal(owed, 1); /* the same question */
    assert_int_equal(run_client_ask(&run, FBR_RUN_CONTROL_SIGNAL, 1, 10, &err), 0);
    assert_string_equal(runs[0].orders, "signal 10 to 1");
    run_client_free(&run);
}

/* ---- Who does not answer ---- */

static void a_launcher_that_says_nothing_is_silent(void **state)
{
    struct run_client *list, run;
    size_t count;
    int fd;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    made_run_init(&runs[1], "bb", "other", DAY_MS);
    runs[0].about.pid = 4711;
    fd = made_run_silent(&runs[0]);
    made_run_begin(&runs[1]);
    assert_int_equal(run_client_list(&list, &count, true, NULL, &err), 0);
    assert_int_equal(count, 2);
    assert_int_equal(list[0].state, CLIENT_RUNNING); /* the older one is first */
    assert_string_equal(list[1].about.name, "train");
    assert_int_equal(list[1].state, CLIENT_SILENT);
    run_client_list_free(list, count);
    memset(&run, 0, sizeof(run));
    run.about = runs[0].about;
    run.fd = -1;
    fbr_buf_init(&run.got);
    assert_int_equal(run_client_ranks(&run, 1, &err), -ETIMEDOUT);
    assert_string_equal(err.text, "run aa00000000000000: its launcher, process 4711, does not "
                                  "answer: it is stopped, or the machine is very busy");
    assert_int_equal(run_client_ranks(&run, 1, &err), -ETIMEDOUT); /* the same request */
    assert_int_equal(run.owed, 1);
    run_client_free(&run);
    close(fd);
}

static void a_killed_launcher_leaves_a_lost_run(void **state)
{
    struct run_client *list;
    size_t count;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    made_run_lost(&runs[0]);
    assert_int_equal(run_client_list(&list, &count, false, NULL, &err), 0);
    assert_int_equal(count, 0);
    assert_int_equal(run_client_list(&list, &count, true, NULL, &err), 0);
    assert_int_equal(count, 1);
    assert_int_equal(list[0].state, CLIENT_LOST);
    assert_int_equal(list[0].fd, -1);
    run_client_list_free(list, count);
}

/* A launcher that ends with code 3 when it is called. */
static void *end_when_called(void *arg)
{
    char dir[FBR_REGISTRY_MAX], root[FBR_REGISTRY_MAX];
    int listening = *(int *)arg, fd = accept(listening, NULL, NULL);

    fbr_registry_root(root, NULL);
    snprintf(dir, sizeof(dir), "%.80s/%.16s", root, runs[0].about.uid);
    fbr_registry_end(dir, &runs[0].about, &runs[0].facts, 3, "it failed");
    close(listening);
    close(fd);
    return NULL;
}

/* How it ended is in its record only. */
static void a_run_that_ends_while_it_is_asked_is_one_that_has_ended(void **state)
{
    struct run_client *list;
    size_t count;

    made_run_init(&runs[0], "aa", "train", HOUR_MS);
    for (int ended = 0; ended < 2; ended++) {
        int fd = made_run_silent(&runs[0]);
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, end_when_called, &fd), 0);
        assert_int_equal(run_client_list(&list, &count, ended, NULL, &err), 0);
        pthread_join(thread, NULL);
        assert_int_equal(count, ended);
        if (ended)
            assert_int_equal(list[0].code, 3);
        run_client_list_free(list, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ages_have_two_units),
        cmocka_unit_test(sizes_have_three_digits),
        cmocka_unit_test(a_rank_is_in_one_of_four_states),
        cmocka_unit_test(a_rank_is_a_number_that_the_run_has),
        cmocka_unit_test(a_worker_may_be_named_by_its_job),
        cmocka_unit_test(a_process_has_a_number_only),
        cmocka_unit_test(a_size_is_that_of_now_or_of_the_start),
        runs_test(a_run_is_found_by_name_or_by_the_beginning_of_its_id),
        runs_test(one_that_runs_is_before_one_that_has_ended),
        runs_test(without_a_name_there_must_be_just_one),
        runs_test(of_one_program_the_pool_is_meant),
        runs_test(the_last_run_is_the_running_one_or_the_one_that_ended_last),
        runs_test(ranks_are_asked_for_again_and_again),
        runs_test(orders_reach_the_run_and_refusals_come_back),
        runs_test(one_more_connection_is_independent),
        runs_test(answers_that_come_late_are_passed_over),
        runs_test(a_launcher_that_says_nothing_is_silent),
        runs_test(a_killed_launcher_leaves_a_lost_run),
        runs_test(a_run_that_ends_while_it_is_asked_is_one_that_has_ended),
    };

    return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
