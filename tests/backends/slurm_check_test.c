/* slurm_check_test.c - what `fiber doctor` finds of Slurm, and how large it says a partition is, by
 * what its commands print.
 *
 * The commands are scripts in a directory of the test: each prints the file of its name, and fails
 * with what its file .bad has.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/slurm/query.h"
#include "runtime/base/fds.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* sinfo is asked for three things. */
static const char tool[] =
    "#!/bin/sh\n"
    "name=${0##*/}\n"
    "echo \"$name $*\" >>\"$BED/told\"\n"
    "case \"$name $*\" in\n"
    "sinfo\\ --version) name=version ;;\n"
    "sinfo*--exact*) name=sizes ;;\n"
    "esac\n"
    "[ ! -f \"$BED/$name\" ] || cat \"$BED/$name\"\n"
    "[ ! -f \"$BED/$name.bad\" ] || { cat \"$BED/$name.bad\" >&2; exit 1; }\n";

static struct {
    char dir[64], path[4096];
    struct fbr_config *config;
    struct fbr_slurm_settings settings;
    char
        found[2000]; /* "good slurm nodes: 3 nodes\n"; of what is bad also the line that mends it */
} bed;

static void put(const char *name, const char *text)
{
    file_make(path_in(bed.dir, name), text, strlen(text), 0600);
}

static void put_tool(const char *name)
{
    file_make(path_in(bed.dir, name), tool, sizeof(tool) - 1, 0700);
}

/* All is well: three nodes, and jobs would be taken. */
static int set_up(void **state)
{
    static const char *const tools[] = {"bin/sinfo", "bin/scontrol", "bin/squeue", "bin/sbatch"};
    static const char *const variables[] = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST",
                                            "SBATCH_PARTITION"};
    char path[5000];

    temp_dir_make(bed.dir);
    folders_make(path_in(bed.dir, "bin/x"));
    for (size_t i = 0; i < COUNT(tools); i++)
        put_tool(tools[i]);
    put("version", "slurm 22.05.8\nmore\n");
    put("scontrol", "Slurmctld(primary) at head is UP\n");
    put("sinfo", "batch|batch*|up|3|idle|n[1-3]|4 cpus, 7000 MB, (null)|none\n");
    put("slurm.conf", "AuthType=auth/none\n");
    snprintf(bed.path, sizeof(bed.path), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s/bin:/usr/bin:/bin", bed.dir);
    setenv("PATH", path, 1);
    setenv("BED", bed.dir, 1);
    setenv("SLURM_CONF", path_in(bed.dir, "slurm.conf"), 1);
    for (size_t i = 0; i < COUNT(variables); i++)
        unsetenv(variables[i]);
    bed.config = fbr_config_new();
    return bed.config ? fbr_slurm_settings_load(&bed.settings, bed.config, NULL) : -1;
}

static int tear_down(void **state)
{
    setenv("PATH", bed.path, 1);
    fbr_slurm_settings_fini(&bed.settings);
    fbr_config_free(bed.config);
    temp_dir_remove(bed.dir);
    return 0;
}

#define slurm_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void use(const char *key, const char *value)
{
    struct fbr_error err = {0, ""};

    fbr_slurm_settings_fini(&bed.settings);
    assert_int_equal(fbr_config_set(bed.config, key, value, "test", &err), 0);
    assert_int_equal(fbr_slurm_settings_load(&bed.settings, bed.config, &err), 0);
}

static void on_finding(void *user, enum fbr_finding finding, const char *what, const char *text,
                       const char *mend)
{
    size_t n = strlen(bed.found);

    assert_true(finding == FBR_FINDING_GOOD || finding == FBR_FINDING_BAD);
    snprintf(bed.found + n, sizeof(bed.found) - n, "%s %s: %s%s%s\n",
             finding == FBR_FINDING_GOOD ? "good" : "bad", what, text, mend[0] ? " -> " : "", mend);
}

/* What is found; the last line is about Slurm itself if it cannot be used. */
static const char *check(bool steps)
{
    bed.found[0] = '\0';
    fbr_slurm_check(&bed.settings, steps, &(const struct fbr_findings){on_finding, NULL});
    return bed.found;
}

static void finds(bool steps, const char *part)
{
    if (!strstr(check(steps), part))
        fail_msg("no \"%s\" in:\n%s", part, bed.found);
}

static const char *told(void)
{
    static char text[4000];

    fbr_fds_read_file(path_in(bed.dir, "told"), text, sizeof(text));
    return text;
}

/* ---- All is well ---- */

static void where_jobs_would_start_all_is_good(void **state)
{
    assert_string_equal(
        check(false),
        "good slurm commands: slurm 22.05.8\n"
        "good slurm controller: Slurmctld(primary) at head is UP\n"
        "good slurm nodes: 3 nodes of batch, idle, 4 cpus, 7000 MB, (null)\n"
        "good slurm jobs: no allocation: jobs are queued with sbatch, which would accept them\n");
    assert_non_null(strstr(told(), "sbatch --test-only --nodes=1 --ntasks=1 --wrap=true\n"));
}

static void in_an_allocation_jobs_are_steps(void **state)
{
    setenv("SLURM_JOB_ID", "17", 1);
    setenv("SLURM_JOB_NODELIST", "n[1-3]", 1);
    put("squeue", "RUNNING, for another 59:30\n");
    finds(true, "good slurm jobs: allocation 17 on n[1-3]: jobs are steps, by srun; RUNNING, for "
                "another 59:30\n");
    put("squeue", "CLUSTER: far\nRUNNING, for another 59:30\n"); /* SLURM_CLUSTERS is set */
    finds(true, "jobs are steps, by srun; RUNNING, for another 59:30\n");
    assert_non_null(strstr(told(), "--jobs=17\n"));
    assert_non_null(strstr(told(), "--nodes=n[1-3]\n"));
    assert_null(strstr(told(), "sbatch"));
}

static void settings_go_to_the_commands(void **state)
{
    use("slurm_partition", "debug");
    use("slurm_account", "team");
    put("sinfo", "debug|debug|up|1|idle|n1|4 cpus, 7000 MB, (null)|none\n");
    finds(false, "good slurm nodes: 1 nodes of debug, idle");
    assert_non_null(strstr(told(), "--partition=debug"));
    assert_non_null(strstr(told(), "--account=team"));
}

static void the_nodes_are_those_of_the_partition_that_sbatch_takes(void **state)
{
    put("sinfo", "gpu|gpu|up|2|idle|g[1-2]|64 cpus|none\ngpu|gpu|up|1|mixed|g3|8 cpus|none\n"
                 "gpu|gpu|up|1|down|g4|8 cpus|none\n");
    setenv("SBATCH_PARTITION", "gpu", 1);
    finds(false, "good slurm nodes: 2 nodes of gpu, idle, 64 cpus\n"
                 "good slurm nodes: 1 nodes of gpu, mixed, 8 cpus\n"
                 "good slurm jobs: ");
    assert_non_null(strstr(told(), "--partition=gpu\n"));
    use("slurm_options", "-p big");
    finds(false, "good slurm jobs: ");
    assert_non_null(strstr(told(), "--partition=big\n"));
}

/* ---- What stands between us and a job ---- */

static void without_the_commands_nothing_else_is_asked(void **state)
{
    setenv("PATH", bed.dir, 1); /* in which there is none */
    assert_string_equal(check(false),
                        "bad : there is no command 'sinfo' in PATH -> install "
                        "slurm-client, and give this host the cluster's slurm.conf\n");
    setenv("SLURM_CONF", "/nowhere/slurm.conf", 1);
    assert_string_equal(check(false),
                        "bad : SLURM_CONF=/nowhere/slurm.conf: No such file or directory -> export "
                        "SLURM_CONF=FILE, the slurm.conf of the cluster\n");
    assert_string_equal(told(), "");
}

static void a_controller_that_is_away_is_told(void **state)
{
    static const struct {
        const char *out, *want;
    } cases[] = {
        {"Slurmctld(primary) at head is DOWN\nmore\n",
         "bad : Slurm's controller does not answer: Slurmctld(primary) at head is DOWN -> on the "
         "controller's host: systemctl start slurmctld; "},
        {"", "bad : Slurm's controller does not answer: scontrol ended with code 1: no route"},
        /* one of two is enough */
        {"Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n",
         "good slurm controller: Slurmctld(primary) at a is DOWN\n"},
    };

    put("scontrol.bad", "no route\n");
    for (size_t i = 0; i < COUNT(cases); i++) {
        put("scontrol", cases[i].out);
        finds(false, cases[i].want);
    }
}

static void munge_is_the_first_suspect(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char text[300], socket_path[100];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    put("scontrol", "");
    put("scontrol.bad", "no route\n");
    snprintf(socket_path, sizeof(socket_path), "%s/munge", bed.dir);
    snprintf(text, sizeof(text), "# a comment\n  AuthInfo=cred_expire=60,socket=%s;x\n",
             socket_path);
    put("slurm.conf", text);
    snprintf(
        text, sizeof(text),
        "bad : munge does not answer at %s: No such file or directory -> systemctl start munge, "
        "with the cluster's munge.key\n",
        socket_path);
    finds(false, text);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", socket_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    finds(false, "Connection refused");
    assert_int_equal(listen(fd, 4), 0);
    finds(false, "bad : Slurm's controller does not answer: ");
    close(fd);
    snprintf(text, sizeof(text), "authinfo=socket=%s\nauthtype=auth/jwt\n", socket_path);
    put("slurm.conf", text); /* a cluster without munge */
    finds(false, "bad : Slurm's controller does not answer: ");
}

static void nodes_that_take_no_jobs_are_told(void **state)
{
    static const struct {
        const char *out, *want;
    } cases[] = {
        {"batch|batch*|down|3|idle|n[1-3]|4 cpus|none\n",
         "bad : no job starts in partition batch, whose state is down -> scontrol update "
         "PartitionName=batch State=UP, or set slurm_partition to another: sinfo shows them\n"},
        {"batch|batch*|up|2|drained|n[1-2]|4 cpus|a fan | it is loud\n",
         "bad : no node of partition batch takes jobs: n[1-2] are drained: a fan | it is loud -> "
         "is "
         "slurmd up there? Then scontrol update NodeName=n[1-2] State=RESUME\n"},
        {"batch|batch*|up|1|idle*|n1|4 cpus|Not responding\n",
         "bad : no node of partition batch takes jobs: n1 is idle*: Not responding -> "},
        {"batch|batch*|up|1|down|n1|4 cpus|none\nbatch|batch*|up|5|mixed|n[2-6]|4 cpus|none\n",
         "good slurm nodes: 5 nodes of batch, mixed, 4 cpus\n"},
        {"other|other|up|1|idle|n1|4 cpus|none\n",
         "bad : no partition is the default one -> set slurm_partition to one of those that sinfo "
         "shows\n"},
        {"", "bad : no partition is the default one"},
        {"garbage\nbatch|batch*|up\n\n", "bad : no partition is the default one"},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        put("sinfo", cases[i].out);
        finds(false, cases[i].want);
    }
    use("slurm_partition", "nowhere");
    put("sinfo", "");
    finds(false,
          "bad : there is no partition nowhere, or it has no nodes -> set slurm_partition to "
          "one that exists: sinfo shows them\n");
    put("sinfo.bad", "slurm_load_partitions: error: it is late\n");
    finds(false, "bad : sinfo ended with code 1: slurm_load_partitions: error: it is late -> "
                 "sinfo\n");
}

static void an_allocation_that_is_over_is_told(void **state)
{
    static const struct {
        const char *out, *bad, *want;
    } cases[] = {
        {"COMPLETING, for another 0:00\n", NULL,
         "bad : allocation 17 is over: COMPLETING, for another 0:00 -> use salloc to get another "
         "one, or "
         "unset "
         "SLURM_JOB_ID to queue jobs with sbatch\n"},
        {"", NULL, "bad : allocation 17 is over: Slurm does not know it -> "},
        {"CLUSTER: far\n", NULL, "bad : allocation 17 is over: Slurm does not know it -> "},
        {"", "slurm_load_jobs error: Invalid job id specified\n",
         "bad : allocation 17 is over: squeue ended with code 1: slurm_load_jobs error: Invalid "
         "job "
         "id specified -> "},
    };

    setenv("SLURM_JOB_ID", "17", 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        put("squeue", cases[i].out);
        if (cases[i].bad)
            put("squeue.bad", cases[i].bad);
        finds(true, cases[i].want);
    }
}

static void a_job_that_sbatch_refuses_is_told(void **state)
{
    put("sbatch.bad",
        "sbatch: hint\nallocation failure: error: Invalid qos specification\nTry it\n");
    finds(false, "bad : Slurm would refuse a job: sbatch ended with code 1: allocation "
                 "failure: error: Invalid qos specification -> correct slurm_partition, ");
}

/* ---- Sizes ---- */

static void a_partition_is_as_large_as_its_nodes_that_take_jobs(void **state)
{
    static const struct {
        const char *partition, *out;
        unsigned hosts, cpus;
    } cases[] = {
        {"",
         "batch*|4|3|idle|(null)\nbatch*|2|1|mixed|(null)\nbatch*|8|9|down|(null)\nother|1|5|idle|("
         "null)\n",
         4, 2},
        {"other", "other|1|5|idle|(null)\nother|16|2|allocated|(null)\n", 7, 1},
        {"", "other|1|5|idle|(null)\n", 0, 0},
        {"", "batch*|0|5|idle|(null)\nbatch*|4|x|idle|(null)\nbatch*|4\n|\n", 0, 0},
        {"", "batch*|4+|2|idle~|(null)\n", 2, 4},
        {"", "", 0, 0},
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fbr_capacity room = {0};
        struct fbr_error err = {0, ""};

        use("slurm_partition", cases[i].partition);
        put("sizes", cases[i].out);
        assert_int_equal(fbr_slurm_ask_room(&bed.settings, &room, &err), 0);
        if (room.hosts != cases[i].hosts || room.cpus != cases[i].cpus)
            fail_msg("%s: %u hosts, %u processors", cases[i].out, room.hosts, room.cpus);
    }
}

static void what_cannot_be_asked_has_no_size(void **state)
{
    struct fbr_capacity room = {0};
    struct fbr_error err = {0, ""};

    put("sizes.bad", "sinfo: error: it is late\n");
    assert_int_equal(fbr_slurm_ask_room(&bed.settings, &room, &err), -EIO);
    assert_string_equal(err.text, "sinfo ended with code 1: sinfo: error: it is late");
    assert_int_equal(room.hosts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        slurm_test(where_jobs_would_start_all_is_good),
        slurm_test(in_an_allocation_jobs_are_steps),
        slurm_test(settings_go_to_the_commands),
        slurm_test(the_nodes_are_those_of_the_partition_that_sbatch_takes),
        slurm_test(without_the_commands_nothing_else_is_asked),
        slurm_test(a_controller_that_is_away_is_told),
        slurm_test(munge_is_the_first_suspect),
        slurm_test(nodes_that_take_no_jobs_are_told),
        slurm_test(an_allocation_that_is_over_is_told),
        slurm_test(a_job_that_sbatch_refuses_is_told),
        slurm_test(a_partition_is_as_large_as_its_nodes_that_take_jobs),
        slurm_test(what_cannot_be_asked_has_no_size),
    };

    return cmocka_run_group_tests_name("slurm_check", tests, NULL, NULL);
}
