/* probe_test.c - what is said of this host and of made-up ones, and the variables that follow from
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mpi_bridge/host_env.h"
#include "mpi_bridge/probe_priv.h"
#include "tests/support/sync.h"

#define MIB (UINT64_C(1) << 20)

static void put(const char *root, const char *file, const char *text)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", root, file);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void look(struct fbr_probe *p, const char *root)
{
    char sys[128], dev[128], proc[128];

    snprintf(sys, sizeof(sys), "%s/sys", root);
    snprintf(dev, sizeof(dev), "%s/dev", root);
    snprintf(proc, sizeof(proc), "%s/proc", root);
    fbr_probe_at(p, &(const struct fbr_probe_roots){sys, dev, proc}, "");
}

/* ---- Looking ---- */

static void this_host_is_described(void **state)
{
    struct fbr_probe p;

    fbr_probe_run(&p, "");
    assert_true(p.cma || p.no_cma[0]);
    assert_int_equal(p.shm, access("/dev/shm", W_OK | X_OK) == 0);
    if (p.shm)
        assert_true(p.shm_size >= p.shm_free);
    assert_int_equal(!p.interface[0], !p.address[0]);
}

static void an_active_port_is_a_fabric(void **state)
{
    struct fbr_probe p;

    put(*state, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put(*state, "dev/infiniband/uverbs0", "");
    look(&p, *state);
    assert_true(p.fabric);
    assert_string_equal(p.fabric_name, "mlx5_0");
    assert_string_equal(p.no_fabric, "");
}

static void a_port_that_is_down_is_none(void **state)
{
    struct fbr_probe p;

    put(*state, "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    put(*state, "dev/infiniband/uverbs0", "");
    look(&p, *state);
    assert_false(p.fabric);
    assert_string_equal(p.no_fabric, "no port of mlx5_0 is active");
}

static void a_fabric_that_may_not_be_used_is_none(void **state)
{
    struct fbr_probe p;

    put(*state, "sys/class/infiniband/efa_0/ports/1/state", "4: ACTIVE\n");
    look(&p, *state);
    assert_false(p.fabric);
    assert_non_null(strstr(p.no_fabric, "uverbs"));
}

static void slingshot_is_a_fabric(void **state)
{
    struct fbr_probe p;

    put(*state, "dev/cxi0", "");
    look(&p, *state);
    assert_true(p.fabric);
}

static void omni_path_needs_no_verbs(void **state)
{
    struct fbr_probe p;

    put(*state, "sys/class/infiniband/hfi1_0/ports/1/state", "4: ACTIVE\n");
    look(&p, *state);
    assert_false(p.fabric);
    put(*state, "dev/hfi1_0", "");
    look(&p, *state);
    assert_true(p.fabric);
    assert_string_equal(p.fabric_name, "hfi1_0");
}

static void a_device_of_a_gpu_is_seen(void **state)
{
    struct fbr_probe p;

    put(*state, "dev/null", "");
    look(&p, *state);
    assert_false(p.gpu);
    put(*state, "dev/dri/renderD128", "");
    look(&p, *state);
    assert_true(p.gpu);
}

static void yama_forbids_copies(void **state)
{
    struct fbr_probe p;

    put(*state, "proc/sys/kernel/yama/ptrace_scope", "1\n");
    look(&p, *state);
    assert_true(p.cma);
    put(*state, "proc/sys/kernel/yama/ptrace_scope", "2\n");
    look(&p, *state);
    assert_false(p.cma);
    assert_string_equal(p.no_cma, "kernel.yama.ptrace_scope is 2, and SYS_PTRACE is missing");
    put(*state, "proc/self/status",
        "Name:\tfiber\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80c25fb\n");
    look(&p, *state);
    assert_false(p.cma); /* root of a container */
    put(*state, "proc/self/status", "Name:\tfiber\nCapEff:\t0000000000080000\n");
    look(&p, *state);
    assert_true(p.cma);
    put(*state, "proc/sys/kernel/yama/ptrace_scope", "3\n");
    look(&p, *state);
    assert_false(p.cma);
}

static void a_missing_shm_is_seen(void **state)
{
    struct fbr_probe p;

    look(&p, *state);
    assert_false(p.shm);
    put(*state, "dev/shm/x", "");
    look(&p, *state);
    assert_true(p.shm);
    assert_true(p.shm_size > 0);
}

/* Finds an address of an interface that is neither lo nor this one. */
static bool address_elsewhere(const char *interface, char out[INET6_ADDRSTRLEN])
{
    struct ifaddrs *all, *i;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (i = all; i && !found; i = i->ifa_next) {
        found = i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_RUNNING) &&
                !(i->ifa_flags & IFF_LOOPBACK) && strcmp(i->ifa_name, interface) != 0;
        if (found)
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, out,
                      INET6_ADDRSTRLEN);
    }
    freeifaddrs(all);
    return found;
}

static void an_address_of_ours_names_an_interface(void **state)
{
    static const char *const not_ours[] = {"not an address", "127.0.0.1"}; /* lo leads nowhere */
    char given[INET6_ADDRSTRLEN];
    struct fbr_probe p, q;

    fbr_probe_run(&p, "");
    for (int i = 0; i < 2; i++) {
        fbr_probe_run(&q, not_ours[i]);
        assert_string_equal(q.address, p.address);
    }
    if (!address_elsewhere(p.interface, given)) {
        print_message("this host has one interface\n");
        skip();
    }
    fbr_probe_run(&q, given);
    assert_string_equal(q.address, given);
    assert_string_not_equal(q.interface, p.interface);
}

/* ---- Cures ---- */

static const struct fbr_probe healthy = {.cma = true,
                                         .shm = true,
                                         .shm_size = 1024 * MIB,
                                         .shm_free = 1024 * MIB,
                                         .loopback = true,
                                         .interface = "eth0",
                                         .address = "10.0.0.5",
                                         .fabric = true,
                                         .fabric_name = "mlx5_0"};

static void count(void *user, const char *text)
{
    assert_true(strchr(text, '=') && strchr(text, ':'));
    (*(int *)user)++;
}

static struct fbr_env env;

static int cures(const struct fbr_probe *p, const struct fbr_host_use *use)
{
    int said = 0;

    env = (struct fbr_env){0};
    fbr_host_env(p, use, &env, count, &said);
    assert_false(env.failed);
    assert_int_equal(env.count, said);
    return said;
}

#define assert_env(name, value) assert_string_equal(fbr_env_get(&env, name), value)
#define assert_unset(name) assert_null(fbr_env_get(&env, name))

static void a_healthy_host_needs_little(void **state)
{
    cures(&healthy, &(const struct fbr_host_use){.ranks = 8, .nodes = 1});
    assert_unset("OMPI_MCA_pml");
    assert_unset("OMPI_MCA_btl_vader_single_copy_mechanism");
    assert_unset("OMPI_MCA_btl_vader_backing_directory");
    assert_unset("OMPI_MCA_mpi_yield_when_idle");
    assert_unset("UCX_NET_DEVICES");
    assert_unset("NCCL_SOCKET_IFNAME");
    assert_env("GLOO_SOCKET_IFNAME", "lo");
    fbr_env_fini(&env);
}

static void without_a_fabric_ob1_is_chosen(void **state)
{
    struct fbr_probe p = healthy;

    p.fabric = false;
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 2});
    assert_env("OMPI_MCA_pml", "ob1");
    assert_env("UCX_NET_DEVICES", "eth0");
    fbr_env_fini(&env);
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_env("UCX_NET_DEVICES", "eth0");
    fbr_env_fini(&env);
}

static void several_hosts_use_one_interface(void **state)
{
    cures(&healthy, &(const struct fbr_host_use){.ranks = 2, .nodes = 2});
    assert_env("OMPI_MCA_btl_tcp_if_include", "eth0");
    assert_env("GLOO_SOCKET_IFNAME", "eth0");
    assert_env("NCCL_SOCKET_IFNAME", "=eth0"); /* not eth0.100, too */
    assert_unset("UCX_NET_DEVICES");           /* the fabric's devices are not Ethernet's */
    fbr_env_fini(&env);
}

static void without_copies_vader_does_not_try_them(void **state)
{
    struct fbr_probe p = healthy;

    p.cma = false;
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    assert_env("OMPI_MCA_smsc", "^cma");
    fbr_env_fini(&env);
    p.xpmem = true;
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_unset("OMPI_MCA_btl_vader_single_copy_mechanism");
    fbr_env_fini(&env);
}

static void a_small_shm_is_left_alone(void **state)
{
    struct fbr_probe p = healthy;

    p.shm_free = 64 * MIB;
    cures(&p, &(const struct fbr_host_use){.ranks = 32, .nodes = 1, .scratch = "/var/tmp/x"});
    assert_unset("OMPI_MCA_btl_vader_backing_directory"); /* measured: it is enough */
    fbr_env_fini(&env);
    p.shm_free = 2 * MIB;
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1, .scratch = "/var/tmp/x"});
    assert_env("OMPI_MCA_btl_vader_backing_directory", "/var/tmp/x");
    assert_env("NCCL_SHM_DISABLE", "1");
    fbr_env_fini(&env);
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_unset("OMPI_MCA_btl_vader_backing_directory"); /* nowhere else to put it */
    fbr_env_fini(&env);
}

static void hwloc_looks_for_gpus_where_there_are_some(void **state)
{
    struct fbr_probe p = healthy;

    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_non_null(strstr(fbr_env_get(&env, "HWLOC_PLUGINS_BLACKLIST"), "hwloc_opencl.so"));
    assert_null(strstr(fbr_env_get(&env, "HWLOC_PLUGINS_BLACKLIST"), "pci"));
    fbr_env_fini(&env);
    p.gpu = true;
    cures(&p, &(const struct fbr_host_use){.ranks = 2, .nodes = 1});
    assert_env("HWLOC_PLUGINS_BLACKLIST", "hwloc_xml_libxml.so");
    fbr_env_fini(&env);
}

static void hwloc_looks_at_pci_devices_where_one_of_them_matters(void **state)
{
    const struct fbr_host_use use = {.ranks = 2, .nodes = 1};
    struct fbr_probe p = healthy;

    p.fabric = p.gpu = p.caches = false;
    cures(&p, &use);
    assert_env("HWLOC_COMPONENTS", "-pci,-linux:pci");
    assert_non_null(strstr(fbr_env_get(&env, "HWLOC_PLUGINS_BLACKLIST"), "hwloc_pci.so"));
    fbr_env_fini(&env);
    p.gpu = true;
    cures(&p, &use);
    assert_unset("HWLOC_COMPONENTS");
    fbr_env_fini(&env);
    p.gpu = false;
    p.fabric = true;
    cures(&p, &use);
    assert_unset("HWLOC_COMPONENTS");
    fbr_env_fini(&env);
}

static void hwloc_asks_no_processor_for_what_the_kernel_tells(void **state)
{
    const struct fbr_host_use use = {.ranks = 2, .nodes = 1};
    struct fbr_probe p = healthy;

    look(&p, *state);
    assert_false(p.caches);
    put(*state, "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_map", "1\n");
    look(&p, *state);
    assert_true(p.caches);
    cures(&p, &use);
    assert_env("HWLOC_COMPONENTS", "-pci,-linux:pci,-x86");
    fbr_env_fini(&env);
    p.fabric = true;
    cures(&p, &use);
    assert_env("HWLOC_COMPONENTS", "-x86");
    fbr_env_fini(&env);
}

static void too_many_ranks_yield(void **state)
{
    cures(&healthy, &(const struct fbr_host_use){.ranks = 64, .nodes = 1, .oversubscribed = true});
    assert_env("OMPI_MCA_mpi_yield_when_idle", "1");
    fbr_env_fini(&env);
}

static void timers_are_the_later_the_more_ranks_share_a_processor(void **state)
{
    assert_int_equal(fbr_host_env_slack(1, 1), 0);
    assert_int_equal(fbr_host_env_slack(2, 2), 0);
    assert_int_equal(fbr_host_env_slack(3, 2), 500000);
    assert_int_equal(fbr_host_env_slack(8, 2), 500000);
    assert_int_equal(fbr_host_env_slack(16, 2), 1000000);
    assert_int_equal(fbr_host_env_slack(32, 2), 2000000);
    assert_int_equal(fbr_host_env_slack(65536, 2), 2000000);
    assert_int_equal(fbr_host_env_slack(1, 0), 2000000); /* nobody knows how many there are */
}

static void what_the_user_has_set_stays_and_is_not_spoken_of(void **state)
{
    struct fbr_probe p = healthy;
    int said = 0;

    p.fabric = false;
    env = (struct fbr_env){0};
    fbr_env_set(&env, "OMPI_MCA_pml", "%s", "");
    fbr_env_set(&env, "GLOO_SOCKET_IFNAME", "eth7");
    fbr_env_set(&env, "OMPI_MCA_btl_tcp_if_include", "eth7");
    fbr_env_set(&env, "UCX_NET_DEVICES", "eth7");
    fbr_env_set(&env, "HWLOC_PLUGINS_BLACKLIST", "%s", "");
    fbr_env_set(&env, "HWLOC_COMPONENTS", "%s", "");
    fbr_host_env(&p, &(const struct fbr_host_use){.ranks = 1, .nodes = 1}, &env, count, &said);
    assert_int_equal(said, 0);
    assert_env("OMPI_MCA_pml", "");
    assert_env("GLOO_SOCKET_IFNAME", "eth7");
    fbr_env_fini(&env);
}

/* ---- A rank ---- */

static void a_rank_gets_the_defaults_of_its_host(void **state)
{
    const struct fbr_rank_use use = {
        .nodes = 2, .shm = "/dev/shm/x", .shares_cpus = true, .nic = "mlx5_1"};

    env = (struct fbr_env){0};
    fbr_env_set(&env, "OMPI_MCA_shmem", "posix");
    fbr_rank_env(&healthy, &use, &env);
    assert_env("OMPI_MCA_shmem", "posix"); /* the user's */
    assert_env("HOROVOD_GLOO_IFACE", "eth0");
    assert_env("OMPI_MCA_reachable", "weighted");
    assert_env("OMPI_MCA_btl_vader_backing_directory", "/dev/shm/x");
    assert_env("OMPI_MCA_osc_rdma_backing_directory", "/dev/shm/x");
    assert_env("UCX_POSIX_DIR", "/dev/shm/x");
    assert_env("OMPI_MCA_mpi_yield_when_idle", "1");
    assert_env("UCX_NET_DEVICES", "mlx5_1:1");
    assert_env("NCCL_IB_HCA", "=mlx5_1"); /* not mlx5_10, too */
    fbr_env_fini(&env);
}

/* Open MPI uses no TCP at all if both are set. */
static void interfaces_that_the_user_excludes_take_the_place_of_ours(void **state)
{
    static const char *const includes[] = {"eth0", "lo", "ib7"};

    for (int i = 0; i < 3; i++) {
        struct fbr_probe p = healthy;

        if (i == 1)
            p.interface[0] = '\0';
        env = (struct fbr_env){0};
        fbr_env_set(&env, "OMPI_MCA_btl_tcp_if_include", "%s", includes[i]);
        fbr_rank_env(&p, &(const struct fbr_rank_use){.nodes = 2}, &env);
        assert_env("OMPI_MCA_btl_tcp_if_include", includes[i]);
        fbr_env_set(&env, "OMPI_MCA_btl_tcp_if_exclude", "docker0");
        fbr_rank_env(&p, &(const struct fbr_rank_use){.nodes = 2}, &env);
        if (i == 2) /* the user's own, of which Open MPI will speak */
            assert_env("OMPI_MCA_btl_tcp_if_include", includes[i]);
        else
            assert_null(fbr_env_get(&env, "OMPI_MCA_btl_tcp_if_include"));
        fbr_env_fini(&env);
    }
}

static void a_rank_alone_gets_little(void **state)
{
    struct fbr_probe p = healthy;

    p.fabric = false;
    env = (struct fbr_env){0};
    fbr_rank_env(&p, &(const struct fbr_rank_use){.nodes = 1, .nic = "mlx5_1"}, &env);
    assert_env("OMPI_MCA_shmem", "mmap");
    assert_env("OMPI_MCA_reachable", "weighted");
    assert_int_equal(env.count, 2);
    fbr_env_fini(&env);
}

static void ranks_that_survive_others_are_told(void **state)
{
    env = (struct fbr_env){0};
    fbr_env_set(&env, "OMPI_MCA_coll_han_priority", "50");
    fbr_rank_env(&healthy, &(const struct fbr_rank_use){.nodes = 1, .survives = true}, &env);
    assert_env("OMPI_MCA_mpi_ft_enable", "1");
    assert_env("OMPI_MCA_coll_han_priority", "50");
    fbr_env_fini(&env);
}

static void servers_of_an_outer_launcher_are_not_for_ranks(void **state)
{
    env = (struct fbr_env){0};
    fbr_env_set(&env, "FIBER_LAST_FAILURE", "x");
    fbr_env_set(&env, "PMIX_SERVER_URI41", "x");
    fbr_env_set(&env, "PMIX_DSTORE_21_BASE_PATH", "x");
    fbr_env_set(&env, "PMI_FD", "3");
    fbr_env_set(&env, "PMI_PORT", "elsewhere:1");
    fbr_env_set(&env, "PMI_JOBID", "x");
    fbr_env_set(&env, "OMPI_MCA_orte_hnp_uri", "x");
    fbr_env_set(&env, "TORCHELASTIC_USE_AGENT_STORE", "False");
    fbr_env_set(&env, "SLURM_PROCID", "0");
    fbr_env_set(&env, "SLURM_LOCALID", "0");
    fbr_env_set(&env, "SLURM_NODEID", "0");
    fbr_env_set(&env, "OMPI_MCA_pml", "ucx");
    fbr_env_set(&env, "PMI_RANKS", "x");
    fbr_rank_env_drop_outer(&env);
    fbr_rank_env_drop_servers(&env);
    assert_int_equal(env.count, 2);
    assert_env("OMPI_MCA_pml", "ucx");
    assert_env("PMI_RANKS", "x");
    fbr_env_fini(&env);
}

static void parameters_of_open_mpi_are_inherited(void **state)
{
    assert_true(fbr_rank_env_is_inherited("OMPI_MCA_pml"));
    assert_true(fbr_rank_env_is_inherited("PMIX_MCA_gds"));
    assert_false(fbr_rank_env_is_inherited("OMPI_COMM_WORLD_RANK"));
    assert_false(fbr_rank_env_is_inherited("UCX_NET_DEVICES"));
}

static int make_root(void **state)
{
    static char root[64];

    temp_dir_make(root);
    *state = root;
    return 0;
}

static int remove_root(void **state)
{
    temp_dir_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_host_is_described),
        cmocka_unit_test_setup_teardown(an_active_port_is_a_fabric, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_port_that_is_down_is_none, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_fabric_that_may_not_be_used_is_none, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(slingshot_is_a_fabric, make_root, remove_root),
        cmocka_unit_test_setup_teardown(omni_path_needs_no_verbs, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_device_of_a_gpu_is_seen, make_root, remove_root),
        cmocka_unit_test_setup_teardown(yama_forbids_copies, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_missing_shm_is_seen, make_root, remove_root),
        cmocka_unit_test(an_address_of_ours_names_an_interface),
        cmocka_unit_test(a_healthy_host_needs_little),
        cmocka_unit_test(without_a_fabric_ob1_is_chosen),
        cmocka_unit_test(several_hosts_use_one_interface),
        cmocka_unit_test(without_copies_vader_does_not_try_them),
        cmocka_unit_test(a_small_shm_is_left_alone),
        cmocka_unit_test(hwloc_looks_for_gpus_where_there_are_some),
        cmocka_unit_test(hwloc_looks_at_pci_devices_where_one_of_them_matters),
        cmocka_unit_test_setup_teardown(hwloc_asks_no_processor_for_what_the_kernel_tells,
                                        make_root, remove_root),
        cmocka_unit_test(too_many_ranks_yield),
        cmocka_unit_test(timers_are_the_later_the_more_ranks_share_a_processor),
        cmocka_unit_test(what_the_user_has_set_stays_and_is_not_spoken_of),
        cmocka_unit_test(a_rank_gets_the_defaults_of_its_host),
        cmocka_unit_test(interfaces_that_the_user_excludes_take_the_place_of_ours),
        cmocka_unit_test(a_rank_alone_gets_little),
        cmocka_unit_test(ranks_that_survive_others_are_told),
        cmocka_unit_test(servers_of_an_outer_launcher_are_not_for_ranks),
        cmocka_unit_test(parameters_of_open_mpi_are_inherited),
    };

    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
