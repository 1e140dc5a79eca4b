/* slurm_state_test.c - what Slurm's commands say, as states and sentences; lines as Slurm 22.05
 * wrote them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/slurm/slurm_lines.h"
#include "backends/slurm/slurm_args.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static struct fbr_slurm_job job_of(const char *text)
{
    char line[512];
    struct fbr_slurm_job job;

    snprintf(line, sizeof(line), "%s", text);
    assert_true(fbr_slurm_squeue_line(line, &job));
    return job;
}

static void lines_of_squeue_are_jobs(void **state)
{
    static const char *const none[] = {"",
                                       "|",
                                       "12",
                                       "12|RUNNING|0|n1",
                                       "x|RUNNING|0|n1|None|",
                                       "12||0|n1|None|",
                                       "CLUSTER: c",
                                       "12_[0-3]|PENDING|0||None|"};
    struct fbr_slurm_job job = job_of("12_3|FAILED|1792|n1|NonZeroExitCode|");

    assert_string_equal(job.id, "12_3");
    assert_string_equal(job.state, "FAILED");
    assert_int_equal(job.status, 1792);
    assert_string_equal(job.node, "n1");
    assert_string_equal(job.reason, "NonZeroExitCode");
    for (size_t i = 0; i < COUNT(none); i++) {
        char line[64];

        snprintf(line, sizeof(line), "%s", none[i]);
        assert_false(fbr_slurm_squeue_line(line, &job));
    }
}

static void lines_of_sacct_are_jobs(void **state)
{
    char line[] = "7_1|CANCELLED by 1000|0:15|n2";
    struct fbr_slurm_job job;

    assert_true(fbr_slurm_sacct_line(line, &job));
    assert_string_equal(job.id, "7_1");
    assert_string_equal(job.state, "CANCELLED");
    assert_int_equal(job.status, 15);
    assert_string_equal(job.node, "n2");
}

static void ends_are_codes_and_sentences(void **state)
{
    static const struct {
        const char *line;
        int asked, code, disrupted;
        const char *part; /* of the sentence; "": there is none */
    } cases[] = {
        {"1|COMPLETED|0|n1|None|", 0, 0, 0, ""},
        {"1|FAILED|1792|n1|NonZeroExitCode|", 0, 7, 0, ""},
        {"1|FAILED|32512|n1|NonZeroExitCode|", 0, 127, 0, ""},
        {"1|FAILED|11|n1|JobLaunchFailure|", 0, -SIGSEGV, 0, ""},
        {"1|FAILED|9|n1|JobLaunchFailure|", SIGKILL, -SIGKILL, 0, ""},
        {"1|FAILED|53|n1|JobLaunchFailure|", 0, 125, 0, "slurm_dir"},
        {"1|CANCELLED|15|n1|None|", SIGKILL, -SIGKILL, 0, ""},
        {"1|CANCELLED|15|n1|None|", SIGTERM, -SIGTERM, 0, ""},
        {"1|CANCELLED|15|n1|None|", 0, -SIGTERM, 0, "scancel"},
        {"1|CANCELLED|0||None|", 0, -SIGTERM, 0, "scancel"},
        {"1|OUT_OF_MEMORY|125|n1|OutOfMemory|", 0, -SIGKILL, 0, "more memory than Slurm gave"},
        {"1|TIMEOUT|15|n1|TimeLimit|", 0, -SIGTERM, 0, "slurm_time"},
        {"1|TIMEOUT|0|n1|TimeLimit|", 0, -SIGTERM, 0, "time limit"},
        {"1|PREEMPTED|15|n1|None|", 0, -SIGTERM, 1, "preempted"},
        {"1|NODE_FAIL|15|n1|NodeDown|", 0, FBR_EXIT_UNKNOWN, 1, "on n1 lost its node"},
        {"1|NODE_FAIL|0|n1|NodeDown|", 0, FBR_EXIT_UNKNOWN, 1, "lost its node"},
        {"1|NODE_FAIL|36608|n1|NodeDown|", 0, FBR_EXIT_UNKNOWN, 1, "lost its node"},
        {"1|BOOT_FAIL|256||None|", 0, 125, 1, "did not boot"},
        {"1|DEADLINE|15||None|", 0, -SIGTERM, 0, "deadline"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_slurm_job job = job_of(cases[i].line);
        struct fbr_slurm_end end;

        assert_int_equal(fbr_slurm_phase(job.state), FBR_SLURM_ENDED);
        fbr_slurm_end(&job, cases[i].asked, 0, &end);
        assert_int_equal(end.code, cases[i].code);
        assert_int_equal(end.disrupted, cases[i].disrupted);
        if (cases[i].part[0])
            assert_non_null(strstr(end.text, cases[i].part));
        else
            assert_string_equal(end.text, "");
    }
}

static void what_is_not_known_is_no_end(void **state)
{
    assert_int_equal(fbr_slurm_phase("PENDING"), FBR_SLURM_WAITS);
    assert_int_equal(fbr_slurm_phase("RUNNING"), FBR_SLURM_RUNS);
    assert_int_equal(fbr_slurm_phase("COMPLETING"), FBR_SLURM_LEAVES);
    assert_int_equal(fbr_slurm_phase("A_STATE_OF_TOMORROW"), FBR_SLURM_ODD);
    assert_int_equal(fbr_slurm_phase(""), FBR_SLURM_ODD);
}

static void reasons_say_whether_it_will_ever_start(void **state)
{
    static const struct {
        const char *line;
        bool ever;
        const char *part;
    } cases[] = {
        {"1|PENDING|0||Resources|", false, "waits for free nodes (Resources)"},
        {"1|PENDING|0||Priority|", false, "higher priority"},
        {"1|PENDING|0||ReqNodeNotAvail, UnavailableNodes:n1|", false, "down, drained or reserved"},
        {"1|PENDING|0||PartitionConfig|", true, "configuration"},
        {"1|PENDING|0||BadConstraints|", true, "configuration"},
        {"1|PENDING|0||QOSMaxCpuPerJobLimit|", true, "QOSMaxCpuPerJobLimit"},
        {"1|PENDING|0||QOSMaxJobsPerUserLimit|", false, "QOSMaxJobsPerUserLimit"},
        {"1|PENDING|0||None|", false, "Slurm has not looked at it yet"},
        {"1|CONFIGURING|0|n1|None|", false, "its nodes are being made ready (CONFIGURING)"},
        {"1|CONFIGURING|0|||", false, "CONFIGURING"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_slurm_job job = job_of(cases[i].line);
        char text[FBR_SLURM_TEXT];

        assert_int_equal(fbr_slurm_waits(&job, text, sizeof(text)), cases[i].ever);
        assert_non_null(strstr(text, cases[i].part));
    }
}

static void ids_are_digits(void **state)
{
    char id[FBR_SLURM_ID];

    assert_true(fbr_slurm_id("12\n", id));
    assert_string_equal(id, "12");
    assert_true(fbr_slurm_id("123;cluster\n", id));
    assert_string_equal(id, "123");
    assert_false(fbr_slurm_id("Submitted batch job 12\n", id));
    assert_false(fbr_slurm_id("", id));
    assert_false(fbr_slurm_id("12 13\n", id));
    assert_false(fbr_slurm_id("12;far away\n12 ;far\n;far\n", id));
    assert_false(fbr_slurm_id("123456789012345678901234567890123456789012345678\n", id));
}

static void an_id_is_found_among_what_a_site_says(void **state)
{
    static const struct {
        const char *text, *id;
    } cases[] = {
        {"Welcome to the cluster\n--> Verifying valid submit host...OK\n4711\n", "4711"},
        {"2026\nprojects: 3\n4711;far\n", "4711"},
        {"\n\n4711", "4711"},
        {"4711\nYour project has 12 hours left\n\n", "4711"},
    };
    char id[FBR_SLURM_ID];

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_true(fbr_slurm_id(cases[i].text, id));
        assert_string_equal(id, cases[i].id);
    }
}

static void refusals_are_for_good_or_for_now(void **state)
{
    static const struct {
        const char *text;
        enum fbr_slurm_refusal refusal;
        const char *line;
    } cases[] = {
        {"sbatch: error: Batch job submission failed: Invalid feature specification\n",
         FBR_SLURM_NEVER,
         "sbatch: error: Batch job submission failed: Invalid feature specification"},
        {"sbatch: error: a\nsbatch: note\n", FBR_SLURM_NEVER, "sbatch: error: a"},
        {"slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
         FBR_SLURM_LATER,
         "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"},
        {"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
         FBR_SLURM_UNSURE,
         "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"},
        {"sbatch: error: Batch job submission failed: Invalid job array specification\n",
         FBR_SLURM_SPLIT,
         "sbatch: error: Batch job submission failed: Invalid job array specification"},
        {"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job "
         "violates accounting/QOS policy\n",
         FBR_SLURM_FEWER,
         "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"},
        {"sbatch: error: fetch_config: DNS SRV lookup failed\n"
         "sbatch: fatal: Could not establish a configuration source\n",
         FBR_SLURM_NEVER,
         "no cluster is known here (Could not establish a configuration source): run this where "
         "squeue works, set SLURM_CONF to the cluster's slurm.conf, or use another backend"},
        {"", FBR_SLURM_NEVER, ""},
        {"one\ntwo\n\n", FBR_SLURM_NEVER, "two"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        char line[256];

        assert_int_equal(fbr_slurm_refusal(cases[i].text, line, sizeof(line)), cases[i].refusal);
        assert_string_equal(line, cases[i].line);
    }
}

#ifdef __SANITIZE_ADDRESS__ /* looks at the rest of the text in each call for a string */
#define MANY (64 << 10)
#else
#define MANY (4 << 20)
#endif

/* The loop reads it, which is to go on. */
static void many_lines_are_read_in_a_moment(void **state)
{
    static char text[MANY];
    char line[256];

    for (size_t i = 0; i + 1 < sizeof(text); i++)
        text[i] = i % 2 ? '\n' : 'a';
    assert_int_equal(fbr_slurm_refusal(text, line, sizeof(line)), FBR_SLURM_NEVER);
    assert_string_equal(line, "a");
}

/* ---- srun ---- */

static void keep(void *user, const void *data, size_t len)
{
    char *text = user;

    snprintf(text + strlen(text), 4096 - strlen(text), "%.*s", (int)len, (const char *)data);
}

static void ends_of_srun_are_codes_and_sentences(void **state)
{
    static const struct {
        const char *err;
        int srun, asked, code, disrupted;
        const char *part;
    } cases[] = {
        {"", 0, 0, 0, 0, ""},
        {"srun: error: n1: task 0: Exited with exit code 7\n", 7, 0, 7, 0, ""},
        {"srun: error: n1: task 0: Exited with exit code 137\n", 137, 0, 137, 0, ""},
        {"srun: error: n1: task 0: Killed\n", 137, 0, -SIGKILL, 0, ""},
        {"srun: error: n1: task 0: Segmentation fault (core dumped)\n", 139, 0, -SIGSEGV, 0, ""},
        {"srun: error: n2: task 0: Terminated\nsrun: Force Terminated StepId=1.10\n", 143, SIGTERM,
         -SIGTERM, 0, ""},
        {"slurmstepd-n1: error: *** STEP 14.7 ON n1 CANCELLED AT 2026-11-21T16:11:19 ***\n"
         "srun: error: n1: task 0: Killed\n",
         137, SIGKILL, -SIGKILL, 0, ""},
        {"slurmstepd-n1: error: *** STEP 14.7 ON n1 CANCELLED AT 2026-11-21T16:11:19 ***\n"
         "srun: error: n1: task 0: Killed\n",
         137, 0, -SIGKILL, 0, "scancel"},
        {"slurmstepd-n1: error: *** STEP 14.7 ON n1 CANCELLED AT 2026-11-21T16:11:19 ***\n"
         "srun: error: n1: task 0: Exited with exit code 143\n",
         143, 0, 143, 0, "scancel"},
        {"slurmstepd-n1: error: *** STEP 14.7 ON n1 CANCELLED AT 2026-11-21T16:11:19 ***\n"
         "srun: error: n1: task 0: Killed\n",
         137, SIGUSR1, -SIGKILL, 0, "scancel"}, /* that signal was for the program */
        {"srun: error: n1: task 0: User defined signal 1\n", 138, SIGUSR1, -SIGUSR1, 0, ""},
        {"slurmstepd-n1: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-21T16:11:19 DUE TO TIME "
         "LIMIT ***\nsrun: error: n1: task 0: Terminated\n",
         143, 0, -SIGTERM, 0, "TIME LIMIT"},
        {"srun: error: n1: task 0: Out Of Memory\nslurmstepd-n1: error: Detected 1 oom-kill "
         "event(s) in StepId=1.8. Some of your processes may have been killed by the cgroup "
         "out-of-memory handler.\n",
         1, 0, -SIGKILL, 0, "more memory"},
        {"srun: error: Node failure on n2\n", 0, 0, FBR_EXIT_UNKNOWN, 1, "lost its node"},
        {"srun: error: Unable to create step for job 14: Requested node configuration is not "
         "available\n",
         1, 0, 125, 0, "configuration is not available"},
        {"srun: error: Slurm job 42 has expired\nsrun: Check SLURM_JOB_ID environment variable. "
         "Expired or invalid job 42\n",
         1, 0, 125, 0, "job 42 has expired"},
        {"srun: error: Task launch for StepId=1.12 failed on node n2: Communication connection "
         "failure\nsrun: error: Application launch failed: Communication connection failure\n",
         233, 0, 125, 0, "Communication connection failure"},
        {"srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)\n", 1,
         SIGKILL, -SIGKILL, 0, ""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        char left[4096] = "";
        struct fbr_slurm_lines l = {.bytes = keep, .user = left};
        struct fbr_slurm_end end;

        fbr_slurm_lines_add(&l, cases[i].err, strlen(cases[i].err));
        fbr_slurm_lines_end(&l);
        assert_string_equal(left, "");
        fbr_slurm_step_end(&l.said, cases[i].srun, cases[i].asked, 0, &end);
        assert_int_equal(end.code, cases[i].code);
        assert_int_equal(end.disrupted, cases[i].disrupted);
        if (cases[i].part[0])
            assert_non_null(strstr(end.text, cases[i].part));
        else
            assert_string_equal(end.text, "");
    }
}

static void lines_of_the_job_pass_whole_or_in_parts(void **state)
{
    static const char text[] = "one\nsrun: error: n1: task 0: Killed\ntwo srun: error: n1: task 0: "
                               "Killed\n\nsrun: mine\nslurm\nsrun: Step created for job 1\n"
                               "slurmstepd-n1: error: execve(): x: No such file or directory\nsr";
    static const char want[] = "one\ntwo srun: error: n1: task 0: Killed\n\nsrun: mine\nslurm\n"
                               "slurmstepd-n1: error: execve(): x: No such file or directory\nsr";

    for (size_t step = 1; step < sizeof(text); step++) {
        char left[4096] = "";
        struct fbr_slurm_lines l = {.bytes = keep, .user = left};

        for (size_t at = 0; at < strlen(text); at += step)
            fbr_slurm_lines_add(&l, text + at, strlen(text) - at < step ? strlen(text) - at : step);
        fbr_slurm_lines_end(&l);
        assert_string_equal(left, want);
        assert_int_equal(l.said.code, -SIGKILL);
    }
}

static void what_cannot_be_slurms_is_not_held_back(void **state)
{
    char left[4096] = "";
    struct fbr_slurm_lines l = {.bytes = keep, .user = left};

    fbr_slurm_lines_add(&l, "prompt> ", 8);
    assert_string_equal(left, "prompt> ");
    fbr_slurm_lines_add(&l, "\nsrun", 5);
    assert_string_equal(left, "prompt> \n");
    fbr_slurm_lines_add(&l, "ning", 4);
    assert_string_equal(left, "prompt> \nsrunning");
}

static void waiting_for_room_is_known(void **state)
{
    static const char busy[] =
        "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)\n";
    char left[4096] = "";
    struct fbr_slurm_lines l = {.bytes = keep, .user = left};

    fbr_slurm_lines_add(&l, busy, strlen(busy));
    assert_true(l.said.waits);
    fbr_slurm_lines_add(&l, "srun: Step created for job 1\n", 29);
    assert_false(l.said.waits);
}

/* ---- Lists ---- */

static void lists_of_hosts(void **state)
{
    static const struct {
        const char *list, *names;
        int rc;
    } cases[] = {
        {"", "", 0},
        {"n1", "n1|", 0},
        {"n[1-3,7],m01", "n1|n2|n3|n7|m01|", 0},
        {"n[098-101]-x", "n098-x|n099-x|n100-x|n101-x|", 0},
        {"r[0-1]n[0-1]", "r0n0|r0n1|r1n0|r1n1|", 0},
        {"a,b,[1-2]", "a|b|1|2|", 0},
        {"n[1-", NULL, -EINVAL},
        {"n[3-1]", NULL, -EINVAL},
        {"n[x]", NULL, -EINVAL},
        {"n]1", NULL, -EINVAL},
        {"n[]", NULL, -EINVAL},
        {"a,,b", NULL, -EINVAL},
        {"--x", NULL, -EINVAL},
        {"n[1-999999999999999999]", NULL, -E2BIG},
        {"n[1-9999999999999999999999]", NULL, -EINVAL},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_args w = {0};
        char text[256] = "";

        assert_int_equal(fbr_slurm_hosts(cases[i].list, 100, &w), cases[i].rc);
        for (size_t k = 0; cases[i].names && k < w.n; k++)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s|", w.at[k]);
        if (cases[i].names)
            assert_string_equal(text, cases[i].names);
        fbr_args_fini(&w);
    }
}

static void counts_of_processors(void **state)
{
    static const struct {
        const char *text;
        unsigned want[4];
    } cases[] = {
        {"2(x3),4", {2, 2, 2, 4}}, {"8", {8, 8, 8, 8}}, {"1,2", {1, 2, 2, 2}},
        {"", {1, 1, 1, 1}},        {"x", {1, 1, 1, 1}}, {"3(x99999999999)", {3, 3, 3, 3}},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned got[4];

        fbr_slurm_counts(cases[i].text, got, 4);
        assert_memory_equal(got, cases[i].want, sizeof(got));
    }
}

/* "n1=2 n2=2 ranks 4 cpus 2 gpus 1 copies 0" */
static const char *room_text(struct fbr_slurm_allocation a, char *text, size_t size)
{
    struct fbr_capacity room = {0};
    size_t n = 0;

    text[0] = '\0';
    assert_int_equal(fbr_slurm_room_of(&a, &room), 0);
    for (unsigned i = 0; i < room.hosts; i++)
        n += (size_t)snprintf(text + n, size - n, "%s=%u ", room.names[i], room.slots[i]);
    snprintf(text + n, size - n, "ranks %u cpus %u gpus %u copies %u", room.ranks,
             room.cpus_per_rank, room.gpus_per_rank, room.copies);
    for (unsigned i = 0; i < room.hosts; i++)
        free(room.names[i]);
    free(room.names);
    free(room.slots);
    return text;
}

static void an_allocation_says_where_ranks_go(void **state)
{
    static const struct {
        struct fbr_slurm_allocation a;
        const char *want;
    } cases[] = {
        {{.nodes = "n[1-2]", .tasks = "4(x2)", .cpus = "4(x2)", .ntasks = "8"},
         "n1=4 n2=4 ranks 8 cpus 0 gpus 0 copies 0"},
        {{.nodes = "n[1-3,7]",
          .tasks = "2(x3),1",
          .ntasks = "7",
          .cpus_per_task = "2",
          .gpus_per_task = "1",
          .copies = "4"},
         "n1=2 n2=2 n3=2 n7=1 ranks 7 cpus 2 gpus 1 copies 4"},
        {{.nodes = "a,b", .cpus = "8,1", .cpus_per_task = "2"},
         "a=4 b=1 ranks 0 cpus 2 gpus 0 copies 0"},
        {{.nodes = "n[1-2]"}, "n1=1 n2=1 ranks 0 cpus 0 gpus 0 copies 0"},
        {{.nodes = "n1", .tasks = "0", .ntasks = "-1", .gpus_per_task = "a100:2"},
         "n1=1 ranks 0 cpus 0 gpus 2 copies 0"},
        {{.nodes = "n[1-", .tasks = "2"}, "ranks 0 cpus 0 gpus 0 copies 0"},
        {{.nodes = NULL}, "ranks 0 cpus 0 gpus 0 copies 0"},
    };
    char text[256];

    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(room_text(cases[i].a, text, sizeof(text)), cases[i].want);
}

static void the_smallest_node_that_takes_jobs_counts(void **state)
{
    static const struct {
        const char *text;
        bool chosen;
        unsigned hosts, cpus, gpus;
    } cases[] = {
        {"bed*|4|3|idle|gpu:2\n", false, 3, 4, 2},
        {"all*|64|9|idle|gpu:a100:4(S:0-1),mps:9,gpu:v100:2\nall*|32|9|idle|gpu:h100:8(IDX:0-7)"
         "\nall*|16|9|idle|(null)\n"
         "all*|8|1|down|gpu:1\n",
         false, 27, 16, 6},
        {"all*|4|1|idle|gpu:\nall*|4|1|idle|gpu\nall*|4|1|idle|craynetwork:4\n", false, 3, 4, 0},
        {"all*|64|10|mixed|\nall*|48|2|idle|\nall*|2|1|drained|\nall*|2|1|idle*|\n", false, 12, 48,
         0},
        {"gpu|8|2|idle|\nall*|64|10|mixed|\n", false, 10, 64, 0},
        {"gpu|8|2|idle|\n", true, 2, 8, 0},
        {"gpu|8|2|idle|\n", false, 0, 0, 0},
        {"nonsense\n|||\n*|x|y|idle|\n", false, 0, 0, 0},
        {"", true, 0, 0, 0},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_capacity room = {0};
        char text[256];

        snprintf(text, sizeof(text), "%s", cases[i].text);
        fbr_slurm_sizes(text, cases[i].chosen, &room);
        assert_int_equal(room.hosts, cases[i].hosts);
        assert_int_equal(room.cpus, cases[i].cpus);
        assert_int_equal(room.gpus, cases[i].gpus);
    }
}

/* ---- What is asked for ---- */

static void scripts_quote_words(void **state)
{
    char *const argv[] = {"prog", "a b", "it's", "$(x) `y` \\", "", "-n\n", NULL};
    struct fbr_buf b;

    fbr_buf_init(&b);
    fbr_slurm_script(&b, "my prog", argv, "/a'b", "/d/0.");
    fbr_put_u8(&b, 0);
    assert_string_equal((char *)b.data,
                        "#!/bin/sh\ncd -- '/a'\\''b' || exit 125\n"
                        "FIBER_TICKET=file:/d/0.${SLURM_ARRAY_TASK_ID:-0}.ticket\n"
                        "export FIBER_TICKET\n"
                        "exec 'my prog' 'a b' 'it'\\''s' '$(x) `y` \\' '' '-n\n'\n");
    fbr_buf_fini(&b);
}

static bool has(char *const *env, const char *text)
{
    for (; *env; env++)
        if (strcmp(*env, text) == 0)
            return true;
    return false;
}

static void environments_change_no_command(void **state)
{
    char *const env[] = {"PATH=/bin",
                         "SLURM_CONF=/c",
                         "SLURM_JOB_ID=7",
                         "SLURM_MEM_PER_NODE=5",
                         "SQUEUE_USERS=other",
                         "SBATCH_PARTITION=p",
                         "SBATCH_WAIT=1",
                         "SLURM_CLUSTERS=far",
                         "FIBER_TICKET=fd:3",
                         "SRUN_CPUS_PER_TASK=2",
                         NULL};
    char **srun = fbr_slurm_env(env, FBR_SLURM_FOR_SRUN, NULL);
    char **sbatch = fbr_slurm_env(env, FBR_SLURM_FOR_SBATCH, (const char *[]){"A=b", NULL});
    char **tools = fbr_slurm_env(env, FBR_SLURM_FOR_TOOLS, NULL);

    assert_true(has(srun, "SLURM_JOB_ID=7") && has(srun, "SLURM_CONF=/c"));
    assert_false(has(srun, "SLURM_MEM_PER_NODE=5") || has(srun, "FIBER_TICKET=fd:3"));
    assert_false(has(srun, "SRUN_CPUS_PER_TASK=2"));
    assert_true(has(sbatch, "SLURM_CONF=/c") && has(sbatch, "SBATCH_PARTITION=p"));
    assert_true(has(sbatch, "A=b") && has(sbatch, "PATH=/bin"));
    assert_false(has(sbatch, "SLURM_JOB_ID=7") || has(sbatch, "SBATCH_WAIT=1"));
    assert_false(has(tools, "SQUEUE_USERS=other"));
    assert_true(has(tools, "SLURM_JOB_ID=7"));
    assert_true(has(srun, "SLURM_CLUSTERS=far") && has(sbatch, "SLURM_CLUSTERS=far"));
    assert_true(has(tools, "SLURM_CLUSTERS=far"));
    free(srun);
    free(sbatch);
    free(tools);
}

static void needs_are_rounded_up(void **state)
{
    const struct fbr_job job = {.cpus = 1.5, .gpus = 2, .memory = (1u << 20) + 1},
                         most = {.cpus = 1e6};
    struct fbr_args w = {0};

    fbr_slurm_add_needs(&w, &job);
    assert_int_equal(w.n, 3);
    assert_string_equal(w.at[0], "--cpus-per-task=2");
    assert_string_equal(w.at[1], "--mem=2M");
    assert_string_equal(w.at[2], "--gres=gpu:2");
    fbr_args_fini(&w);
    assert_int_equal(fbr_slurm_cpus(&most), 1000000);
}

static void the_partition_is_the_one_that_sbatch_takes(void **state)
{
    static const struct {
        const char *setting, *variable, *options, *want;
    } cases[] = {
        {"", NULL, "", ""},
        {"a", NULL, "", "a"},
        {"", "b", "", "b"},
        {"a", "b", "--mem=1G -C x", "a"},
        {"a", "b", "--partition=c", "c"},
        {"", NULL, "-p c --partition d", "d"},
        {"", NULL, "-pc", "c"},
        {"", NULL, "--parsable --partitionx=e", ""},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_slurm_settings s = {.partition = cases[i].setting};

        assert_int_equal(fbr_args_split(&s.options, cases[i].options, NULL), 0);
        assert_string_equal(fbr_slurm_partition(&s, cases[i].variable), cases[i].want);
        fbr_args_fini(&s.options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_squeue_are_jobs),
        cmocka_unit_test(lines_of_sacct_are_jobs),
        cmocka_unit_test(ends_are_codes_and_sentences),
        cmocka_unit_test(what_is_not_known_is_no_end),
        cmocka_unit_test(reasons_say_whether_it_will_ever_start),
        cmocka_unit_test(ids_are_digits),
        cmocka_unit_test(an_id_is_found_among_what_a_site_says),
        cmocka_unit_test(refusals_are_for_good_or_for_now),
        cmocka_unit_test(many_lines_are_read_in_a_moment),
        cmocka_unit_test(ends_of_srun_are_codes_and_sentences),
        cmocka_unit_test(lines_of_the_job_pass_whole_or_in_parts),
        cmocka_unit_test(what_cannot_be_slurms_is_not_held_back),
        cmocka_unit_test(waiting_for_room_is_known),
        cmocka_unit_test(lists_of_hosts),
        cmocka_unit_test(counts_of_processors),
        cmocka_unit_test(an_allocation_says_where_ranks_go),
        cmocka_unit_test(the_smallest_node_that_takes_jobs_counts),
        cmocka_unit_test(scripts_quote_words),
        cmocka_unit_test(environments_change_no_command),
        cmocka_unit_test(needs_are_rounded_up),
        cmocka_unit_test(the_partition_is_the_one_that_sbatch_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
