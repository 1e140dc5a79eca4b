/* slurm_left_test.c - what the backend of Slurm tells of jobs whose master is gone, and of the way
 * to this host, by what Slurm's commands print.
 *
 * The commands are scripts in a directory of the test: each prints the file of its name, notes its
 * words, and fails with what its file .bad has.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/slurm/batch_dir.h"
#include "runtime/base/master_id.h"
#include "runtime/net/loop.h"
#include "runtime/proc/backend.h"
#include "runtime/base/fds.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define RUN "0123456789abcdef0123456789abcdef"

static const char tool[] =
    "#!/bin/sh\n"
    "name=${0##*/}\n"
    "echo \"$name $*\" >>\"$BED/told\"\n"
    "case \"$*\" in *--steps*) name=steps ;; esac\n"
    "[ ! -f \"$BED/$name\" ] || cat \"$BED/$name\"\n"
    "[ ! -f \"$BED/$name.bad\" ] || { cat \"$BED/$name.bad\" >&2; exit 1; }\n";

static struct {
    char dir[64], path[4096];
    struct fbr_loop *loop;
    struct fbr_config *config;
    const struct fbr_backend_ops *ops;
    struct fbr_backend *backend;
    struct fbr_backend_env env;
    struct fbr_error err;
    char heard[2000];
} bed;

static void put(const char *name, const char *text)
{
    file_make(path_in(bed.dir, name), text, strlen(text), 0600);
}

static void on_event(void *user, const struct fbr_job_event *e)
{
}

static int do_open(void *arg)
{
    return bed.ops->open(&bed.backend, &bed.env, &bed.err);
}

static int do_close(void *arg)
{
    bed.ops->close(bed.backend);
    return 0;
}

static int set_up(void **state)
{
    static const char *const tools[] = {"bin/sinfo",   "bin/scontrol", "bin/squeue",
                                        "bin/scancel", "bin/sbatch",   "bin/srun"};
    static const char *const variables[] = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "FIBER_SLURM",
                                            "SLURM_LAUNCH_NODE_IPADDR", "SLURMD_NODENAME"};
    char path[200];

    temp_dir_make(bed.dir);
    folders_make(path_in(bed.dir, "bin/x"));
    folders_make(path_in(bed.dir, "jobs/x"));
    for (size_t i = 0; i < COUNT(tools); i++)
        file_make(path_in(bed.dir, tools[i]), tool, sizeof(tool) - 1, 0700);
    snprintf(bed.path, sizeof(bed.path), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s/bin:/usr/bin:/bin", bed.dir);
    setenv("PATH", path, 1);
    setenv("BED", bed.dir, 1);
    for (size_t i = 0; i < COUNT(variables); i++)
        unsetenv(variables[i]);
    bed.err = (struct fbr_error){0, ""};
    bed.heard[0] = '\0';
    bed.config = fbr_config_new();
    bed.ops = fbr_backend_find("slurm", &bed.err);
    assert_non_null(bed.ops);
    assert_int_equal(
        fbr_config_set(bed.config, "slurm_dir", path_in(bed.dir, "jobs"), "test", &bed.err), 0);
    assert_int_equal(fbr_loop_open(&bed.loop, &bed.err), 0);
    bed.env = (struct fbr_backend_env){bed.loop, bed.config, on_event, NULL};
    return fbr_loop_call(bed.loop, do_open, NULL);
}

static int tear_down(void **state)
{
    fbr_loop_call(bed.loop, do_close, NULL);
    fbr_loop_close(bed.loop);
    fbr_config_free(bed.config);
    setenv("PATH", bed.path, 1);
    temp_dir_remove(bed.dir);
    return 0;
}

#define left_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const char *told(void)
{
    static char text[4000];

    fbr_fds_read_file(path_in(bed.dir, "told"), text, sizeof(text));
    return text;
}

static void hear(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void hear(const char *fmt, ...)
{
    size_t n = strlen(bed.heard);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(bed.heard + n, sizeof(bed.heard) - n, fmt, ap);
    va_end(ap);
}

/* ---- Jobs that are left ---- */

static void on_job(void *user, const struct fbr_orphan *j)
{
    hear("%s run=%s name=%s master=%s since=%lld %s\n", j->id, j->run, j->name, j->master,
         (long long)j->since_ms, j->runs ? "runs" : "-");
}

static int do_list(void *arg)
{
    return bed.ops->housekeeping->list(bed.backend, on_job, NULL, &bed.err);
}

static int list(void)
{
    bed.heard[0] = '\0';
    return fbr_loop_call(bed.loop, do_list, NULL);
}

static void jobs_are_told_by_what_their_names_say(void **state)
{
    static const struct {
        const char *squeue, *steps, *want;
    } cases[] = {
        {"17_3|RUNNING|1700000000|fiber-" RUN
         "-worker-1.x9.4|fiber.job=j fiber.master=here:7:boot.1\n",
         "", "17_3 run=" RUN " name=worker-1 master=here:7:boot.1 since=1700000000000 runs\n"},
        {"18|PENDING|N/A|fiber-" RUN "-a.b.c.x9.4|fiber.job=j\n", "",
         "18 run=" RUN " name=a.b.c master= since=0 -\n"},
        {"19|COMPLETED|1|fiber-" RUN "-w.1.2|fiber.job=j fiber.master=m\n"
         "20|NODE_FAIL|1|fiber-" RUN "-w.1.3|fiber.job=j\n",
         "",
         "19 run=" RUN " name=w master=m since=1000 -\n"
         "20 run=" RUN " name=w master= since=1000 -\n"},
        {"21|RUNNING|1|other-job|fiber.job=j\n22|RUNNING|1|fiber-|fiber.job=j\n"
         "23|RUNNING|1|fiber-" RUN "|fiber.job=j\n",
         "", ""},
        {"24|RUNNING\n\n|\ngarbage\n", "", ""},
        {"", "17.2|RUNNING|5|fiber-" RUN "-worker-1.4711|\n17.batch|RUNNING|5|batch|\n",
         "17.2 run=" RUN " name=worker-1 master= since=5000 runs\n"},
        {"25|RUNNING|1|fiber-" RUN "-plain|fiber.job=j\n", "",
         "25 run=" RUN " name=plain master= since=1000 runs\n"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        put("squeue", cases[i].squeue);
        put("steps", cases[i].steps);
        assert_int_equal(list(), 0);
        assert_string_equal(bed.heard, cases[i].want);
    }
    assert_non_null(strstr(told(), "squeue --noheader --me --format="));
}

/* The names are like ours, but no run of Fiber has such a uid, or the comment of its jobs. */
static void jobs_of_the_user_are_not_ours(void **state)
{
    static const char *const jobs[] = {
        "815|RUNNING|1|fiber-optics-sim|(null)\n",
        "815|RUNNING|1|fiber-optics-sim|fiber.job=j\n",
        "815|RUNNING|1|fiber-cafe-sim|fiber.job=j\n",
        "815|RUNNING|1|fiber-" RUN "0-sim|fiber.job=j\n",
        "815|RUNNING|1|fiber-" RUN "-sim|(null)\n",
        "815|RUNNING|1|fiber-" RUN "-sim|fibre for the optics\n",
        "815|RUNNING|1|fiber-" RUN "-sim|\n",
    };
    static const char *const steps[] = {
        "815.0|RUNNING|1|fiber-optics-sim|\n",
        "815.0|RUNNING|1|fiber-cafe-sim.4711|\n",
        "815.0|RUNNING|1|fiber-" RUN "0-sim.4711|\n",
    };

    put("steps", "");
    for (size_t i = 0; i < COUNT(jobs); i++) {
        put("squeue", jobs[i]);
        assert_int_equal(list(), 0);
        assert_string_equal(bed.heard, "");
    }
    put("squeue", "");
    for (size_t i = 0; i < COUNT(steps); i++) {
        put("steps", steps[i]);
        assert_int_equal(list(), 0);
        assert_string_equal(bed.heard, "");
    }
}

/* As Slurm does: 64 characters of the numbers, unless it is asked for all. */
static const char squeue_of_an_array[] =
    "#!/bin/sh\n"
    "case $* in *--steps*) exit ;; esac\n"
    "[ \"$SLURM_BITSTR_LEN\" = 0 ] && numbers=0,2,4 || numbers=0,...\n"
    "echo \"17_[$numbers]|PENDING|1|fiber-" RUN "-w.x.1|fiber.job=j\"\n";

static void the_numbers_of_an_array_are_told_in_full(void **state)
{
    assert_int_equal(unlink(path_in(bed.dir, "bin/squeue")), 0);
    file_make(path_in(bed.dir, "bin/squeue"), squeue_of_an_array, sizeof(squeue_of_an_array) - 1,
              0700);
    assert_int_equal(list(), 0);
    assert_string_equal(bed.heard, "17_[0,2,4] run=" RUN " name=w master= since=1000 -\n");
}

static void a_queue_that_does_not_answer_is_told(void **state)
{
    put("squeue", "17|RUNNING|1|fiber-" RUN "-w.1.2|fiber.job=j\n");
    put("squeue.bad", "slurm_load_jobs error: Unable to contact slurm controller\n");
    assert_int_equal(list(), -EIO);
    assert_string_equal(bed.heard, ""); /* a part of a list is none */
    assert_string_equal(bed.err.text, "squeue ended with code 1: slurm_load_jobs error: Unable to "
                                      "contact slurm controller");
    assert_int_equal(unlink(path_in(bed.dir, "squeue.bad")), 0);
    put("steps.bad", "too late\n");
    assert_int_equal(list(), -EIO);
}

static int do_remove(void *arg)
{
    return bed.ops->housekeeping->remove(bed.backend, arg, &bed.err);
}

static void a_job_is_removed_by_its_number(void **state)
{
    static const char *const wrong[] = {"", "-u root", "job", " 17"};

    assert_int_equal(fbr_loop_call(bed.loop, do_remove, (char[]){"17_3"}), 0);
    assert_int_equal(fbr_loop_call(bed.loop, do_remove, (char[]){"17.2"}), 0);
    assert_non_null(strstr(told(), "scancel --quiet 17_3\nscancel --quiet 17.2\n"));
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(fbr_loop_call(bed.loop, do_remove, (void *)(uintptr_t)wrong[i]), -EINVAL);
        assert_non_null(strstr(bed.err.text, "is not the id of a Slurm job"));
    }
    put("scancel.bad", "scancel: error: Kill job error on job id 18: Access/permission denied\n");
    assert_int_equal(fbr_loop_call(bed.loop, do_remove, (char[]){"18"}), -EIO);
    assert_non_null(strstr(bed.err.text, "Access/permission denied"));
}

/* ---- The folder ---- */

static int count_jobs_dir(void)
{
    DIR *d = opendir(path_in(bed.dir, "jobs"));
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

static void on_swept(void *user, const struct fbr_swept *e)
{
    assert_string_equal(e->kind, "directory");
    assert_int_equal(e->action, user                              ? FBR_SWEPT_WOULD
                                : strstr(e->why, "cannot remove") ? FBR_SWEPT_FAILED
                                                                  : FBR_SWEPT_REMOVED);
    hear("%s: %s\n", strrchr(e->id, '/') + 1, e->why);
}

static int do_sweep(void *dry)
{
    bed.heard[0] = '\0';
    return bed.ops->housekeeping->sweep(bed.backend, 0, dry != NULL, on_swept, dry, &bed.err);
}

/* The folder of a master that ended before this host was booted; another one's, and no master's. */
static void only_a_sweep_removes_the_folders_of_the_dead(void **state)
{
    char dead[FBR_MASTER_ID_MAX];
    int dry;

    fbr_master_id_self(dead);
    strcpy(strrchr(dead, '.'), ".1");
    folders_make(path_in(bed.dir, "jobs/slurm-aaaaaa/x"));
    put("jobs/slurm-aaaaaa/master", dead);
    put("jobs/slurm-aaaaaa/0.0.out", "left");
    folders_make(path_in(bed.dir, "jobs/slurm-bbbbbb/x"));
    put("jobs/slurm-bbbbbb/master", "far:9:0123456789abcdef.1");
    folders_make(path_in(bed.dir, "jobs/slurm-cccccc/x"));
    fbr_loop_call(bed.loop, do_close, NULL);
    assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), 0); /* opening it only looks */
    assert_int_equal(count_jobs_dir(), 3);
    assert_int_equal(fbr_loop_call(bed.loop, do_sweep, &dry), 0);
    assert_string_equal(bed.heard, "slurm-aaaaaa: its master is gone\n");
    assert_int_equal(count_jobs_dir(), 3);
    assert_int_equal(fbr_loop_call(bed.loop, do_sweep, NULL), 0);
    assert_string_equal(bed.heard, "slurm-aaaaaa: its master is gone\n");
    assert_int_equal(count_jobs_dir(), 2);
}

/* Nothing else than files and folders of jobs is removed. */
static void a_folder_that_stays_is_not_told_as_removed(void **state)
{
    char dead[FBR_MASTER_ID_MAX];

    fbr_master_id_self(dead);
    strcpy(strrchr(dead, '.'), ".1");
    folders_make(path_in(bed.dir, "jobs/slurm-aaaaaa/mine/x"));
    put("jobs/slurm-aaaaaa/master", dead);
    for (int i = 0; i < 2; i++) { /* it is not forgotten */
        bed.heard[0] = '\0';
        assert_int_equal(fbr_loop_call(bed.loop, do_sweep, NULL), 0);
        assert_non_null(strstr(bed.heard, "slurm-aaaaaa: cannot remove "));
        assert_non_null(strstr(bed.heard, "Directory not empty"));
        assert_int_equal(count_jobs_dir(), 1);
    }
    assert_int_equal(rmdir(path_in(bed.dir, "jobs/slurm-aaaaaa/mine")), 0);
    assert_int_equal(fbr_loop_call(bed.loop, do_sweep, NULL), 0);
    assert_int_equal(count_jobs_dir(), 0);
}

static void on_check(void *user, enum fbr_finding finding, const char *what, const char *text,
                     const char *mend)
{
    if (finding == FBR_FINDING_BAD)
        hear("%s%s -> %s\n", what, text, mend);
}

static int do_check(void *arg)
{
    bed.heard[0] = '\0';
    bed.ops->check(bed.backend, &(const struct fbr_findings){on_check, NULL});
    return 0;
}

static void a_folder_that_cannot_be_made_is_told(void **state)
{
    static const char *const wrong[] = {"none/jobs", "file"};
    static const char *const want[] = {"cannot make %s (slurm_dir, which the nodes must share): No "
                                       "such file or directory -> ",
                                       "cannot make a folder in %s (slurm_dir, which the nodes "
                                       "must share): Not a directory -> "};
    char text[400];

    put("file", "");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const char *path = path_in(bed.dir, wrong[i]);

        fbr_loop_call(bed.loop, do_close, NULL);
        assert_int_equal(fbr_config_set(bed.config, "slurm_dir", path, "test", &bed.err), 0);
        assert_int_equal(fbr_loop_call(bed.loop, do_open, NULL), 0);
        fbr_loop_call(bed.loop, do_check, NULL);
        snprintf(text, sizeof(text), want[i], path);
        if (strncmp(bed.heard, text, strlen(text)) != 0)
            fail_msg("%s: %s", path, bed.heard);
    }
}

/* ---- Their output ---- */

static void on_out(void *user, int stream, const void *data, size_t len)
{
    hear("%d:%.*s", stream, (int)len, (const char *)data);
}

static void on_done(void *user, const char *why)
{
    hear("done%s%s", why[0] ? ": " : "", why);
}

struct wish {
    const char *id;
    int follow;
};

static int do_logs(void *arg)
{
    static const struct fbr_backend_reader reader = {on_out, on_done, NULL};
    const struct wish *w = arg;

    return bed.ops->housekeeping->logs(bed.backend, w->id, w->follow, &reader, &bed.err);
}

static int logs(const char *id, int follow)
{
    struct wish w = {id, follow};

    bed.heard[0] = '\0';
    return fbr_loop_call(bed.loop, do_logs, &w);
}

static void output_is_in_the_files_that_slurm_names(void **state)
{
    char text[400], want[200];

    snprintf(text, sizeof(text),
             "JobId=17 JobName=fiber-ab\n   StdErr=%s/err\n   StdIn=/dev/null\n   StdOut=%s/out\n",
             bed.dir, bed.dir);
    put("scontrol", text);
    put("out", "one\ntwo\n");
    put("err", "bad\n");
    assert_int_equal(logs("17", 0), 0);
    assert_string_equal(bed.heard, "2:bad\n1:one\ntwo\ndone");
    assert_int_equal(unlink(path_in(bed.dir, "out")), 0);
    assert_int_equal(logs("17", 0), 0);
    snprintf(want, sizeof(want), "2:bad\ndone: %s/out: No such file or directory", bed.dir);
    assert_string_equal(bed.heard, want);
    assert_int_equal(logs("17", 1), -ENOTSUP);
    snprintf(want, sizeof(want), "Slurm cannot follow a job's files: use tail -F %s/out %s/err",
             bed.dir, bed.dir);
    assert_string_equal(bed.err.text, want);
    assert_string_equal(bed.heard, ""); /* after an error the reader is not called */
}

static void output_that_nobody_knows_of_is_told(void **state)
{
    put("scontrol", "JobId=17 JobName=fiber-ab\n   StdOut=/x\n");
    assert_int_equal(logs("17", 0), -ENODATA);
    assert_string_equal(bed.err.text, "Slurm does not report where job 17 writes to");
    assert_int_equal(logs("17.2", 0), -ENOTSUP);
    assert_string_equal(bed.err.text, "17.2 is a step: its output goes only to its master");
    assert_int_equal(logs("name", 0), -EINVAL);
    put("scontrol.bad", "slurm_load_jobs error: Invalid job id specified\n");
    assert_int_equal(logs("17", 0), -EIO);
    assert_non_null(strstr(bed.err.text, "Invalid job id specified"));
    assert_string_equal(bed.heard, "");
}

/* ---- The way back ---- */

static int do_address(void *arg)
{
    return bed.ops->address(bed.backend, arg, &bed.err);
}

static void the_way_back_is_the_one_to_a_node(void **state)
{
    static const char *const cases[] = {
        "n1|127.0.0.1\n", "n1|\n|\nn2|127.0.0.1\n",
        "ours|192.0.2.7\nn2|127.0.0.1\n", /* another than ours, if there is one */
        "",                               /* nobody knows a node: srun's host */
    };

    setenv("SLURMD_NODENAME", "ours", 1);
    setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1", 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char address[64] = "";

        put("sinfo", cases[i]);
        assert_int_equal(fbr_loop_call(bed.loop, do_address, address), 0);
        if (strncmp(address, "127.", 4) != 0)
            fail_msg("%s: %s", cases[i], address);
    }
}

/* Without care SIGXFSZ would end the program. */
static void a_ticket_above_the_limit_of_files_is_refused(void **state)
{
    const char *path = path_in(bed.dir, "ticket");
    struct rlimit all, less;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    less = all;
    less.rlim_cur = 4;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    rc = fbr_slurm_dir_write(path, "ticket", 6, &bed.err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(bed.err.text, "cannot write"));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fbr_slurm_dir_write(path, "ticket", 6, &bed.err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        left_test(jobs_are_told_by_what_their_names_say),
        left_test(jobs_of_the_user_are_not_ours),
        left_test(the_numbers_of_an_array_are_told_in_full),
        left_test(a_queue_that_does_not_answer_is_told),
        left_test(a_job_is_removed_by_its_number),
        left_test(only_a_sweep_removes_the_folders_of_the_dead),
        left_test(a_folder_that_stays_is_not_told_as_removed),
        left_test(a_folder_that_cannot_be_made_is_told),
        left_test(a_ticket_above_the_limit_of_files_is_refused),
        left_test(output_is_in_the_files_that_slurm_names),
        left_test(output_that_nobody_knows_of_is_told),
        left_test(the_way_back_is_the_one_to_a_node),
    };

    return cmocka_run_group_tests_name("slurm_left", tests, NULL, NULL);
}
