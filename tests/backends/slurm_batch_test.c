/* slurm_batch_test.c - jobs of sbatch, with commands of ours in the place of Slurm's: what they print
 * is what a site's may print.
 *
 * The commands share the queue of a cluster, a file with lines "ID NAME COMMENT": "queue", or with
 * SLURM_CLUSTERS=far "queuefar". sbatch adds a job to it, and answers as the test's file "answer"
 * says; the id is $id, the queue $queue. The file "state" has the state of all jobs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/base/sync.h"
#include "runtime/net/loop.h"
#include "runtime/program/args.h"
#include "runtime/proc/backend.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define JOBS 3

static const char sbatch[] =
    "#!/bin/sh\n"
    "for word; do\n"
    "    case $word in --job-name=*) name=${word#*=} ;; --comment=*) comment=${word#*=} ;; esac\n"
    "done\n"
    "id=$$ queue=$BED/queue$SLURM_CLUSTERS\n"
    "echo \"$id $name $comment\" >>\"$queue\"\n"
    "echo \"$comment\" >\"$BED/comment\"\n"
    ". \"$BED/answer\"\n";

static const char squeue[] =
    "#!/bin/sh\n"
    "queue=$BED/queue$SLURM_CLUSTERS\n"
    "[ -z \"$SLURM_CLUSTERS\" ] || echo \"CLUSTER: $SLURM_CLUSTERS\"\n"
    "case $* in *--jobs=*) [ -s \"$queue\" ] || { echo 'error: Invalid "
    "job id' >&2; exit 1; } ;; esac\n"
    "while read -r id name comment; do\n"
    "    case \"$*\" in\n"
    "    *--Format=*) echo \"$id|$(cat \"$BED/state\")|0|n1|None|$comment\" ;;\n"
    "    *%k*) echo \"$id $comment \" ;;\n"
    "    *) echo \"$id $name\" ;;\n"
    "    esac\n"
    "done <\"$queue\"\n";

/* As Slurm's: with several options --name the last one counts. */
static const char scancel[] =
    "#!/bin/sh\n"
    "ids=' ' named=\n"
    "for word; do\n"
    "    case $word in --name=*) named=${word#*=} ;; -*) ;; *) ids=\"$ids$word \" ;; esac\n"
    "done\n"
    "while read -r id name comment; do\n"
    "    case $ids in *\" $id \"*) continue ;; esac\n"
    "    [ \"$name\" = \"$named\" ] || echo \"$id $name $comment\"\n"
    "done <\"$BED/queue$SLURM_CLUSTERS\" >\"$BED/rest\"\n"
    "mv \"$BED/rest\" \"$BED/queue$SLURM_CLUSTERS\"\n";

/* As Slurm's, it does not read SLURM_CLUSTERS. Jobs of the cluster "far" ended with 7. */
static const char sacct[] =
    "#!/bin/sh\n"
    "case \"$*\" in *--clusters=far*) code=7 ;; *) code=1 ;; esac\n"
    "for word; do\n"
    "    case $word in --jobs=*) echo \"${word#*=}|FAILED|$code:0|n1\" ;; esac\n"
    "done\n";

struct job {
    void *handle;
    bool started, waits, runs, suspended, goes_on, ended;
    int32_t code;
    char id[40], text[400], out[40]; /* text: of the last event */
};

static struct {
    char dir[64], path[4096];
    struct fbr_loop *loop;
    struct fbr_config *config;
    const struct fbr_backend_ops *ops;
    struct fbr_backend *backend; /* NULL: closed */
    struct fbr_backend_env env;
    struct fbr_error err;
    struct job jobs[JOBS];
    bool alike;          /* the jobs share a submission */
    atomic_int refusals; /* so many threads are refused from now on */
    atomic_int no_words; /* for so many lists of states there is no memory */
    int leap_ms;         /* the clock goes on so far before each list of states */
    _Atomic uint64_t leapt_ms;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} bed;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*fn)(void *), void *p)
{
    if (atomic_load(&bed.refusals) > 0 && atomic_fetch_sub(&bed.refusals, 1) > 0)
        return EAGAIN;
    return __real_pthread_create(thread, a, fn, p);
}

uint64_t __real_fbr_now_ms(void);
uint64_t __wrap_fbr_now_ms(void);

uint64_t __wrap_fbr_now_ms(void)
{
    return __real_fbr_now_ms() + atomic_load(&bed.leapt_ms);
}

int __real_fbr_args_split(struct fbr_args *w, const char *text, struct fbr_error *err);
int __wrap_fbr_args_split(struct fbr_args *w, const char *text, struct fbr_error *err);

int __wrap_fbr_args_split(struct fbr_args *w, const char *text, struct fbr_error *err)
{
    if (strstr(text, "--Format="))
        atomic_fetch_add(&bed.leapt_ms, (uint64_t)bed.leap_ms);
    if (strstr(text, "--Format=") && atomic_load(&bed.no_words) > 0) {
        atomic_fetch_sub(&bed.no_words, 1);
        w->failed = true;
        return -ENOMEM;
    }
    return __real_fbr_args_split(w, text, err);
}

static void put(const char *name, const char *text)
{
    file_make(path_in(bed.dir, name), text, strlen(text), 0700);
}

static void on_event(void *user, const struct fbr_job_event *e)
{
    struct job *j = user;

    pthread_mutex_lock(&bed.lock);
    snprintf(j->text, sizeof(j->text), "%s", e->text ? e->text : "");
    if (e->type == FBR_JOB_STARTED) {
        j->started = true;
        snprintf(j->id, sizeof(j->id), "%.39s", e->text);
    }
    if (e->type == FBR_JOB_PENDING)
        *(e->runs ? &j->runs : &j->waits) = true;
    if (e->type == FBR_JOB_OUTPUT)
        snprintf(j->out + strlen(j->out), sizeof(j->out) - strlen(j->out), "%.*s", (int)e->len,
                 (const char *)e->data);
    if (e->type == FBR_JOB_SUSPENDED)
        *(e->code ? &j->suspended : &j->goes_on) = true;
    if (e->type == FBR_JOB_EXITED) {
        j->ended = true;
        j->code = e->code;
    }
    pthread_cond_broadcast(&bed.changed);
    pthread_mutex_unlock(&bed.lock);
}

/* ---- On the loop thread ---- */

static int do_open(void *arg)
{
    return bed.ops->open(&bed.backend, &bed.env, &bed.err);
}

/* Jobs with other arguments do not share a submission. */
static int do_start(void *arg)
{
    struct job *j = arg;
    char number[16], *argv[] = {(char *)"sleep", number, NULL};
    const struct fbr_job job = {.name = "job",
                                .run_uid = "0123456789abcdef0123456789abcdef",
                                .file = "/bin/sleep",
                                .argv = argv,
                                .env = fbr_environ()};

    snprintf(number, sizeof(number), "%d", 1000 + (bed.alike ? 0 : (int)(j - bed.jobs)));
    return bed.ops->start(bed.backend, &job, j, &j->handle, &bed.err);
}

/* In one step of the loop, so that jobs that are alike share a submission. */
static int do_start_all(void *arg)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < *(int *)arg; i++)
        rc = do_start(&bed.jobs[i]);
    return rc;
}

static int do_kill(void *arg)
{
    return bed.ops->signal(bed.backend, bed.jobs[0].handle, SIGKILL);
}

static int do_kill_and_end(void *arg)
{
    int rc = do_kill(arg);

    return rc < 0 ? rc : bed.ops->signal(bed.backend, bed.jobs[0].handle, SIGTERM);
}

static int do_close(void *arg)
{
    if (bed.backend)
        bed.ops->close(bed.backend);
    bed.backend = NULL;
    return 0;
}

/* ---- The program's thread ---- */

static int set_up(void **state)
{
    static const char *const variables[] = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "FIBER_SLURM",
                                            "SLURM_CLUSTERS", "SBATCH_CLUSTERS"};
    char path[200];

    memset(&bed, 0, sizeof(bed));
    temp_dir_make(bed.dir);
    folders_make(path_in(bed.dir, "bin/x"));
    folders_make(path_in(bed.dir, "jobs/x"));
    put("bin/sbatch", sbatch);
    put("bin/squeue", squeue);
    put("bin/scancel", scancel);
    put("bin/sacct", sacct);
    put("state", "RUNNING");
    put("queue", "");
    put("queuefar", "");
    snprintf(bed.path, sizeof(bed.path), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s/bin:/usr/bin:/bin", bed.dir);
    setenv("PATH", path, 1);
    setenv("BED", bed.dir, 1);
    for (size_t i = 0; i < COUNT(variables); i++)
        unsetenv(variables[i]);
    pthread_mutex_init(&bed.lock, NULL);
    fbr_cond_init(&bed.changed);
    bed.config = fbr_config_new();
    bed.ops = fbr_backend_find("slurm", &bed.err);
    assert_non_null(bed.ops);
    assert_int_equal(
        fbr_config_set(bed.config, "slurm_dir", path_in(bed.dir, "jobs"), "test", &bed.err), 0);
    assert_int_equal(fbr_config_set(bed.config, "slurm_poll", "50ms", "test", &bed.err), 0);
    assert_int_equal(fbr_loop_open(&bed.loop, &bed.err), 0);
    bed.env = (struct fbr_backend_env){bed.loop, bed.config, on_event, NULL};
    return 0;
}

static int tear_down(void **state)
{
    fbr_loop_call(bed.loop, do_close, NULL);
    fbr_loop_close(bed.loop);
    fbr_config_free(bed.config);
    pthread_cond_destroy(&bed.changed);
    pthread_mutex_destroy(&bed.lock);
    setenv("PATH", bed.path, 1);
    temp_dir_remove(bed.dir);
    return 0;
}

#define batch_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void start(int jobs)
{
    assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), 0);
    assert_int_equal(fbr_loop_call(bed.loop, do_start_all, &jobs), 0);
}

static void is_empty(const char *queue)
{
    struct stat st;

    assert_int_equal(stat(path_in(bed.dir, queue), &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void wait_for(const bool *fact)
{
    uint64_t deadline = fbr_deadline(TEST_LONG_MS);
    int rc = 0;

    pthread_mutex_lock(&bed.lock);
    while (!*fact && rc == 0)
        rc = fbr_cond_wait(&bed.changed, &bed.lock, deadline);
    pthread_mutex_unlock(&bed.lock);
    assert_int_equal(rc, 0);
}

/* The first job has started, with the id that it has in the queue. */
static void the_job_has_started(const char *queue)
{
    char id[40] = "";
    FILE *f;

    wait_for(&bed.jobs[0].started);
    f = fopen(path_in(bed.dir, queue), "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%39s", id), 1);
    fclose(f);
    assert_string_equal(bed.jobs[0].id, id);
}

/* ---- What sbatch prints ---- */

static void an_id_after_a_banner_is_that_of_the_job(void **state)
{
    put("answer", "echo 'Welcome to the cluster'\necho 'Verifying the project... OK'\necho $id\n");
    start(1);
    the_job_has_started("queue");
    assert_false(bed.jobs[0].ended);
    fbr_loop_call(bed.loop, do_close, NULL);
    is_empty("queue");
}

static void a_job_without_an_id_is_found_by_its_comment(void **state)
{
    put("answer", "echo \"Submitted batch job $id\"\n");
    start(1);
    the_job_has_started("queue");
    assert_false(bed.jobs[0].ended);
    fbr_loop_call(bed.loop, do_close, NULL);
    is_empty("queue");
}

static void a_job_that_is_not_found_is_not_submitted_again(void **state)
{
    put("calls", "");
    put("answer", ": >\"$queue\"\necho x >>\"$BED/calls\"\n");
    start(1);
    wait_for(&bed.jobs[0].ended);
    assert_int_equal(bed.jobs[0].code, 125);
    assert_string_equal(bed.jobs[0].text,
                        "could not be submitted to Slurm: sbatch printed no job id");
    file_expect(path_in(bed.dir, "calls"), "x\n", 2, 0700);
}

static void a_limit_on_submitted_jobs_is_used_up(void **state)
{
    put("calls", "");
    put("answer", "echo x >>\"$BED/calls\"\n"
                  "case $* in *--array=*)\n"
                  "    sed -i \"/^$id /d\" \"$queue\"\n"
                  "    echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2\n"
                  "    echo 'sbatch: error: Job violates accounting/QOS policy' >&2\n"
                  "    exit 1 ;;\n"
                  "esac\n"
                  "echo $id\n");
    bed.alike = true;
    start(JOBS);
    the_job_has_started("queue");
    assert_false(bed.jobs[0].ended);
    for (int i = 1; i < JOBS; i++) {
        wait_for(&bed.jobs[i].ended);
        assert_string_equal(bed.jobs[i].text, "could not be submitted to Slurm: sbatch: error: Job "
                                              "violates accounting/QOS policy");
    }
    put("state", "SUSPENDED"); /* is seen after what was refused would be submitted */
    wait_for(&bed.jobs[0].suspended);
    file_expect(path_in(bed.dir, "calls"), "x\nx\n", 4, 0700);
}

/* ---- The end ---- */

static void the_end_cancels_every_submission_without_an_answer(void **state)
{
    struct gate queued;
    char bytes[JOBS];

    gate_open(&queued);
    setenv("QUEUED", queued.path, 1);
    assert_int_equal(mkfifo(path_in(bed.dir, "never"), 0600), 0);
    put("answer", "printf x >\"$QUEUED\"\nread -r answer <\"$BED/never\"\n");
    start(JOBS);
    assert_int_equal(gate_wait(&queued, bytes, JOBS), 0);
    fbr_loop_call(bed.loop, do_close, NULL);
    is_empty("queue");
    gate_close(&queued);
}

/* ---- Other clusters ---- */

static void the_open_fails(const char *why)
{
    assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), -EINVAL);
    assert_string_equal(bed.err.text, why);
}

static void a_cluster_for_sbatch_alone_is_refused(void **state)
{
    static const char *const options[] = {"-M far",         "-Mfar",         "--clusters far",
                                          "--clusters=far", "--cluster=far", "--exclude=n7 -M far"};

    for (size_t i = 0; i < COUNT(options); i++) {
        assert_int_equal(fbr_config_set(bed.config, "slurm_options", options[i], "test", &bed.err),
                         0);
        assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), -EINVAL);
        assert_non_null(strstr(bed.err.text, "slurm_options must not have -"));
        assert_non_null(strstr(bed.err.text, ": set SLURM_CLUSTERS instead"));
    }
    assert_int_equal(fbr_config_set(bed.config, "slurm_options", "", "test", &bed.err), 0);
    setenv("SBATCH_CLUSTERS", "far", 1);
    the_open_fails(
        "only sbatch reads SBATCH_CLUSTERS (far): set SLURM_CLUSTERS instead, for all of "
        "Slurm's commands");
    setenv("SLURM_CLUSTERS", "near", 1);
    the_open_fails(
        "only sbatch reads SBATCH_CLUSTERS (far): set SLURM_CLUSTERS instead, for all of "
        "Slurm's commands");
    unsetenv("SBATCH_CLUSTERS");
    setenv("SLURM_CLUSTERS", "near,far", 1);
    the_open_fails("SLURM_CLUSTERS must name one cluster, not 'near,far'");
    setenv("SLURM_CLUSTERS", "all", 1);
    the_open_fails("SLURM_CLUSTERS must name one cluster, not 'all'");
    setenv("SLURM_CLUSTERS", "far", 1);
    setenv("SBATCH_CLUSTERS", "far", 1);
    start(0);
}

static void options_that_fiber_needs_are_refused(void **state)
{
    static const char *const options[] = {
        "--array=1-3",      "-a 0-2",    "--wrap=true", "--wrap true", "--test-only", "-J train",
        "--job-name=train", "-o out.%j", "--output=o",  "-e err",      "--error o"};

    for (size_t i = 0; i < COUNT(options); i++) {
        assert_int_equal(fbr_config_set(bed.config, "slurm_options", options[i], "test", &bed.err),
                         0);
        assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), -EINVAL);
        assert_non_null(strstr(bed.err.text, "slurm_options must not have -"));
    }
    assert_int_equal(fbr_config_set(bed.config, "slurm_options", "", "test", &bed.err), 0);
    start(0);
}

static void a_comment_in_the_options_stays_before_ours(void **state)
{
    static const char want[] = "for me fiber.job=fiber-";
    char comment[sizeof(want)];
    FILE *f;

    assert_int_equal(fbr_config_set(bed.config, "slurm_options", "--mem=1G --comment='for me'",
                                    "test", &bed.err),
                     0);
    a_job_without_an_id_is_found_by_its_comment(state);
    f = fopen(path_in(bed.dir, "comment"), "r");
    assert_non_null(f);
    assert_non_null(fgets(comment, sizeof(comment), f));
    fclose(f);
    assert_string_equal(comment, want);
}

static void a_job_of_another_cluster_is_cancelled_there(void **state)
{
    setenv("SLURM_CLUSTERS", "far", 1);
    put("answer", "echo \"$id;far\"\n");
    start(1);
    the_job_has_started("queuefar");
    fbr_loop_call(bed.loop, do_close, NULL);
    is_empty("queuefar");
    is_empty("queue");
}

static void the_end_of_a_job_of_another_cluster_is_looked_up_there(void **state)
{
    setenv("SLURM_CLUSTERS", "far", 1);
    put("answer", ": >\"$queue\"\necho \"$id;far\"\n");
    bed.leap_ms = 4000;
    start(1);
    wait_for(&bed.jobs[0].ended);
    assert_int_equal(bed.jobs[0].code, 7);
}

/* From then on it has the time of start_timeout to join. */
static void a_job_that_waited_is_told_to_run(void **state)
{
    put("answer", "echo $id\n");
    put("state", "PENDING");
    start(1);
    wait_for(&bed.jobs[0].waits);
    assert_false(bed.jobs[0].runs);
    put("state", "RUNNING");
    wait_for(&bed.jobs[0].runs);
    assert_non_null(strstr(bed.jobs[0].text, "runs on n1"));
}

static void a_suspended_job_is_told_and_its_resumption(void **state)
{
    put("answer", "echo $id\n");
    start(1);
    wait_for(&bed.jobs[0].started);
    put("state", "SUSPENDED");
    wait_for(&bed.jobs[0].suspended);
    wait_for(&bed.jobs[0].waits); /* it need not join meanwhile */
    assert_false(bed.jobs[0].goes_on);
    pthread_mutex_lock(&bed.lock);
    bed.jobs[0].runs = false;
    pthread_mutex_unlock(&bed.lock);
    put("state", "RUNNING");
    wait_for(&bed.jobs[0].goes_on);
    wait_for(&bed.jobs[0].runs);
    assert_false(bed.jobs[0].ended);
}

/* As Slurm lists an array whose jobs that waited were cancelled. */
static void a_line_of_an_array_is_about_its_jobs_without_a_line(void **state)
{
    put("answer", "echo $id\n");
    put("bin/squeue", "#!/bin/sh\n"
                      "while read -r id name comment; do\n"
                      "    echo \"$id|CANCELLED|15||None|\"\n"
                      "    echo \"${id}_0|RUNNING|0|n1|None|\"\n"
                      "done <\"$BED/queue\"\n");
    bed.alike = true;
    start(2);
    wait_for(&bed.jobs[1].ended);
    assert_non_null(strstr(bed.jobs[1].text, "was cancelled in Slurm"));
    assert_false(bed.jobs[0].ended);
}

/* As Slurm lists an array, one of whose jobs that wait is cancelled. */
static void a_job_that_waited_and_has_no_line_was_probably_cancelled(void **state)
{
    put("answer", "echo $id\n");
    put("state", "PENDING");
    put("bin/sacct", "#!/bin/sh\nexit 1\n");
    bed.leap_ms = 4000;
    start(1);
    wait_for(&bed.jobs[0].waits);
    put("queue", "");
    wait_for(&bed.jobs[0].ended);
    assert_non_null(strstr(bed.jobs[0].text, "probably cancelled while it waited"));
}

/* Its end is known when no thread can be had that reads its output. */
static void output_is_read_when_threads_are_there_again(void **state)
{
    put("answer", "for word; do\n"
                  "    case $word in --output=*) out=${word#*=} ;; esac\n"
                  "done\n"
                  "echo words >\"$out\"\n"
                  "echo $id\n");
    put("state", "PENDING");
    start(1);
    wait_for(&bed.jobs[0].started);
    atomic_store(&bed.refusals, 3);
    put("state", "COMPLETED");
    wait_for(&bed.jobs[0].ended);
    assert_int_equal(bed.jobs[0].code, 0);
    assert_string_equal(bed.jobs[0].out, "words\n");
}

static void states_are_asked_for_when_memory_is_there_again(void **state)
{
    put("answer", "echo $id\n");
    start(1);
    wait_for(&bed.jobs[0].started);
    atomic_store(&bed.no_words, 2);
    put("state", "COMPLETED");
    wait_for(&bed.jobs[0].ended);
    assert_int_equal(atomic_load(&bed.no_words), 0);
}

/* Each signal asks for a look soon after it. */
static void signals_in_a_row_put_no_look_off(void **state)
{
    uint64_t until = fbr_now_ms() + 20000;
    bool seen = false;

    put("answer", "echo $id\n");
    put("bin/scancel", "#!/bin/sh\n");
    start(1);
    wait_for(&bed.jobs[0].started);
    put("state", "SUSPENDED");
    while (!seen && fbr_now_ms() < until) {
        assert_int_equal(fbr_loop_call(bed.loop, do_kill, NULL), 0);
        let_time_pass(25);
        pthread_mutex_lock(&bed.lock);
        seen = bed.jobs[0].suspended;
        pthread_mutex_unlock(&bed.lock);
    }
    assert_true(seen);
}

static void a_kill_is_not_replaced_by_a_polite_end(void **state)
{
    char text[200], byte;
    struct gate called;

    gate_open(&called);
    setenv("CALLED", called.path, 1);
    put("answer", "echo $id\n");
    put("bin/scancel", "#!/bin/sh\necho \"$*\" >\"$BED/told\"\nprintf x >\"$CALLED\"\n");
    start(1);
    wait_for(&bed.jobs[0].runs);
    assert_int_equal(fbr_loop_call(bed.loop, do_kill_and_end, NULL), 0);
    assert_int_equal(gate_wait(&called, &byte, 1), 0);
    fbr_fds_read_file(path_in(bed.dir, "told"), text, sizeof(text));
    assert_non_null(strstr(text, "--signal=KILL"));
    put("bin/scancel", "#!/bin/sh\n");
    gate_close(&called);
}

static void a_scancel_that_cannot_be_started_is_tried_again(void **state)
{
    struct gate called;
    char byte;

    gate_open(&called);
    setenv("CALLED", called.path, 1);
    put("answer", "echo $id\n");
    put("bin/scancel", "no program");
    start(1);
    wait_for(&bed.jobs[0].started);
    assert_int_equal(fbr_loop_call(bed.loop, do_kill, NULL), 0);
    put("state", "SUSPENDED"); /* lists follow it */
    wait_for(&bed.jobs[0].suspended);
    put("state", "RUNNING");
    wait_for(&bed.jobs[0].goes_on);
    put("bin/scancel", "#!/bin/sh\nprintf x >\"$CALLED\"\n");
    assert_int_equal(gate_wait(&called, &byte, 1), 0);
    fbr_loop_call(bed.loop, do_close, NULL);
    gate_close(&called);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        batch_test(an_id_after_a_banner_is_that_of_the_job),
        batch_test(a_job_without_an_id_is_found_by_its_comment),
        batch_test(a_job_that_is_not_found_is_not_submitted_again),
        batch_test(a_limit_on_submitted_jobs_is_used_up),
        batch_test(the_end_cancels_every_submission_without_an_answer),
        batch_test(a_cluster_for_sbatch_alone_is_refused),
        batch_test(options_that_fiber_needs_are_refused),
        batch_test(a_comment_in_the_options_stays_before_ours),
        batch_test(a_job_of_another_cluster_is_cancelled_there),
        batch_test(the_end_of_a_job_of_another_cluster_is_looked_up_there),
        batch_test(a_job_that_waited_is_told_to_run),
        batch_test(a_suspended_job_is_told_and_its_resumption),
        batch_test(a_line_of_an_array_is_about_its_jobs_without_a_line),
        batch_test(a_job_that_waited_and_has_no_line_was_probably_cancelled),
        batch_test(output_is_read_when_threads_are_there_again),
        batch_test(states_are_asked_for_when_memory_is_there_again),
        batch_test(signals_in_a_row_put_no_look_off),
        batch_test(a_kill_is_not_replaced_by_a_polite_end),
        batch_test(a_scancel_that_cannot_be_started_is_tried_again),
    };

    return cmocka_run_group_tests_name("slurm_batch", tests, NULL, NULL);
}
