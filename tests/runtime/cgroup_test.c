/* cgroup_test.c - what control groups of both versions allow, read from files like the kernel's.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/pin/cgroup.h"
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char root[64];

static int set_up(void **state)
{
    temp_dir_make(root);
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_remove(root);
    return 0;
}

/* A file below root, with the folders above it. */
static void put(const char *path, const char *text)
{
    const char *whole = path_in(root, path);

    folders_make(whole);
    file_make(whole, text, strlen(text), 0600);
}

static struct fbr_cgroup read_them(void)
{
    struct fbr_cgroup l;

    fbr_cgroup_read_at(&l, root);
    return l;
}

static void test_deaths_for_want_of_memory_are_those_of_our_own_group(void **state)
{
    assert_int_equal(read_them().oom_kills, 0);
    put("/proc/vmstat", "nr_free_pages 7\noom_kill 134\nthp_split 1\n");
    assert_int_equal(read_them().oom_kills, 134); /* no group says */
    put("/proc/self/cgroup", "3:memory:/pod\n1:name=systemd:/pod\n");
    put("/sys/fs/cgroup/memory/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    assert_int_equal(read_them().oom_kills, 5); /* in a container, which does not see its group */
    put("/sys/fs/cgroup/memory/pod/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    assert_int_equal(read_them().oom_kills, 0);
    put("/proc/self/cgroup", "0::/jobs/one\n");
    put("/sys/fs/cgroup/jobs/memory.events", "oom 4\noom_kill 3\noom_group_kill 0\n");
    put("/sys/fs/cgroup/jobs/one/memory.events", "oom 4\noom_kill 2\noom_group_kill 0\n");
    assert_int_equal(read_them().oom_kills, 2);
}

static void test_nothing_is_no_limit(void **state)
{
    struct fbr_cgroup l = read_them();
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_int_equal(l.affinity, CPU_COUNT(&set));
    assert_true(l.quota == 0 && l.memory == 0);
    assert_int_equal(fbr_cgroup_cpus(&l), l.affinity);
    assert_false(fbr_cgroup_floats(&l));
}

static void test_the_tightest_group_of_version_2_counts(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "0::/jobs/one\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/jobs/one/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/jobs/memory.max", "max\n");
    put("/sys/fs/cgroup/jobs/one/memory.max", "67108864\n");
    l = read_them();
    assert_true(l.quota > 0.49 && l.quota < 0.51);
    assert_true(l.memory == 64u << 20);
    assert_int_equal(fbr_cgroup_cpus(&l), 1);
    assert_true(fbr_cgroup_floats(&l));
}

static void test_version_1_has_a_tree_for_each_controller(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "11:memory:/pod\n4:cpu,cpuacct:/pod\n1:name=systemd:/pod\n");
    put("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "1048576\n");
    l = read_them();
    assert_true(l.quota > 1.49 && l.quota < 1.51);
    assert_true(l.memory == 1u << 20);
}

/* The group's path is that of outside; its files are at the top. */
static void test_a_container_sees_its_own_group_at_the_top(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/1234\n3:memory:/docker/1234\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
    l = read_them();
    assert_true(l.quota > 1.99 && l.quota < 2.01);
    assert_true(l.memory == 32u << 20);
}

/* As Docker 28 and containerd write them on a host of version 2, where a container has a name space of its own. */
static void test_a_container_of_version_2_is_its_own_top(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n");
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/memory.max", "536870912\n");
    put("/sys/fs/cgroup/memory.high", "max\n");
    put("/sys/fs/cgroup/cpuset.cpus.effective", "0-1\n");
    put("/sys/fs/cgroup/memory.events",
        "low 0\nhigh 0\nmax 41\noom 2\noom_kill 1\noom_group_kill 0\n");
    l = read_them();
    assert_true(l.quota > 2.49 && l.quota < 2.51);
    assert_true(l.memory == 512u << 20);
    assert_true(l.oom_known);
    assert_int_equal(l.oom_kills, 1);
}

/* And without one (`--cgroupns host`, or runc run by hand): the path is the host's, its folders are not there. */
static void test_the_path_of_version_2_may_be_of_outside(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "0::/system.slice/docker-4a5b6c.scope\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/memory.max", "33554432\n");
    l = read_them();
    assert_true(l.quota == 0);
    assert_true(l.memory == 32u << 20);
}

/* Slurm's and systemd's trees: the limit of a step may be in any folder above it. */
static void test_a_limit_of_version_2_is_inherited(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
    put("/sys/fs/cgroup/system.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.events", "oom 3\noom_kill 3\n");
    put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events",
        "oom 0\noom_kill 0\n");
    put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/cpu.max", "100000 100000\n");
    l = read_them();
    assert_true(l.memory == 1u << 30);
    assert_true(l.quota > 0.99 && l.quota < 1.01);
    assert_int_equal(l.oom_kills, 0); /* ours, not the job's */
}

/* Both at once (systemd's "hybrid"): version 2 has no controllers, and the limits are in version 1's trees. */
static void test_limits_of_version_1_count_beside_version_2(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "3:memory:/job\n2:cpu,cpuacct:/job\n0::/job\n");
    put("/sys/fs/cgroup/unified/job/cgroup.procs", "");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "67108864\n");
    l = read_them();
    assert_true(l.quota > 0.49 && l.quota < 0.51);
    assert_true(l.memory == 64u << 20);
}

static void test_no_quota_and_nonsense_are_no_limits(void **state)
{
    struct fbr_cgroup l;

    put("/proc/self/cgroup", "4:cpu:/x\nnonsense\n::\n7\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu.max", "what 0\n");
    l = read_them();
    assert_true(l.quota == 0 && l.memory == 0);
}

static void test_a_part_of_a_processor_is_of_use(void **state)
{
    const struct fbr_cgroup half = {.affinity = 8, .quota = 0.5},
                            more = {.affinity = 8, .quota = 2.5},
                            all = {.affinity = 8, .quota = 64}, two = {.affinity = 8, .quota = 2};

    assert_int_equal(fbr_cgroup_cpus(&half), 1);
    assert_int_equal(fbr_cgroup_cpus(&more), 3);
    assert_int_equal(fbr_cgroup_cpus(&two), 2);
    assert_int_equal(fbr_cgroup_cpus(&all), 8);
    assert_false(fbr_cgroup_floats(&all));
}

static void test_a_machine_is_known_by_its_boot(void **state)
{
    uint64_t one, other;

    put("/proc/sys/kernel/random/boot_id", "one\n");
    one = read_them().machine;
    assert_true(read_them().machine == one);
    put("/proc/sys/kernel/random/boot_id", "other\n");
    other = read_them().machine;
    assert_true(other != one);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(test_nothing_is_no_limit),
        EACH(test_the_tightest_group_of_version_2_counts),
        EACH(test_version_1_has_a_tree_for_each_controller),
        EACH(test_a_container_sees_its_own_group_at_the_top),
        EACH(test_a_container_of_version_2_is_its_own_top),
        EACH(test_the_path_of_version_2_may_be_of_outside),
        EACH(test_a_limit_of_version_2_is_inherited),
        EACH(test_limits_of_version_1_count_beside_version_2),
        EACH(test_no_quota_and_nonsense_are_no_limits),
        EACH(test_a_part_of_a_processor_is_of_use),
        EACH(test_a_machine_is_known_by_its_boot),
        EACH(test_deaths_for_want_of_memory_are_those_of_our_own_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
