/* plain_test.c - the variables of the bridge that only has variables, and the registries.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "tests/support/bridge_host.h"

static void expect(const struct fbr_env *env, const char *const list[][2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = fbr_env_get(env, list[i][0]);

        if (!value || strcmp(value, list[i][1]) != 0)
            fail_msg("%s is %s, not %s", list[i][0], value ? value : "missing", list[i][1]);
    }
}

static void test_a_rank_is_told_who_it_is(void **state)
{
    static char *const outer[] = {"OMPI_COMM_WORLD_RANK=77", "FIBER_RANK=78", "JAX_PROCESS_ID=5",
                                  "OMPI_VERSION=5.0.11", NULL};
    struct bridge_host *h = host_open(3);
    struct fbr_env env;
    char address[64];
    uint32_t id;
    unsigned port;

    host_use(h, &fbr_bridge_plain);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2, 0, 3});
    assert_int_equal(host_env(h, id, 3, outer, &env, NULL, NULL), 0);
    expect(&env,
           (const char *const[][2]){{"FIBER_RANK", "3"},
                                    {"FIBER_SIZE", "5"},
                                    {"FIBER_LOCAL_RANK", "1"},
                                    {"FIBER_LOCAL_SIZE", "3"},
                                    {"FIBER_NODE", "1"},
                                    {"FIBER_NODES", "2"},
                                    {"FIBER_EPOCH", "0"},
                                    {"FIBER_JOB", host_job_of(h, 0, id)->nspace},
                                    {"OMPI_COMM_WORLD_RANK", "3"},
                                    {"OMPI_COMM_WORLD_SIZE", "5"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                                    {"OMPI_VERSION", "4"},
                                    {"MPI_LOCALRANKID", "1"},
                                    {"MPI_LOCALNRANKS", "3"},
                                    {"JAX_NUM_PROCESSES", "5"},
                                    {"JAX_PROCESS_ID", "5"}},
           18); /* the last is the user's */
    snprintf(address, sizeof(address), "%s", fbr_env_get(&env, "JAX_COORDINATOR_ADDRESS"));
    assert_int_equal(sscanf(address, "127.0.0.1:%u", &port), 1);
    assert_in_range(port, 61440, 65535);
    assert_null(fbr_env_get(&env, "SLURM_PROCID"));
    fbr_env_fini(&env);
    assert_int_equal(host_env(h, id, 0, NULL, &env, NULL, NULL),
                     0); /* on another agent: the same address */
    assert_string_equal(fbr_env_get(&env, "JAX_COORDINATOR_ADDRESS"), address);
    fbr_env_fini(&env);
    host_close(h);
}

static void test_jax_is_told_of_a_ranks_own_gpus(void **state)
{
    struct bridge_host *h = host_open(1);
    struct fbr_bridge_rank *local;
    struct fbr_env env;
    uint32_t id;

    host_use(h, &fbr_bridge_plain);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2});
    local = (struct fbr_bridge_rank *)host_job_of(h, 0, id)->local;
    assert_int_equal(host_env(h, id, 1, NULL, &env, NULL, NULL), 0);
    assert_null(fbr_env_get(&env, "JAX_LOCAL_DEVICE_IDS"));
    fbr_env_fini(&env);
    local[1].gpus = 3;
    assert_int_equal(host_env(h, id, 1, NULL, &env, NULL, NULL), 0);
    assert_string_equal(fbr_env_get(&env, "JAX_LOCAL_DEVICE_IDS"), "0,1,2");
    fbr_env_fini(&env);
    host_close(h);
}

static void test_all_bridges_fill_one_environment(void **state)
{
    static const struct fbr_bridge_ops *const all[] = {&fbr_bridge_plain, &fbr_bridge_pmi1,
                                                       &fbr_bridge_torch, &fbr_bridge_horovod};
    struct bridge_host *h = host_open(2);
    struct fbr_env env;
    uint32_t id;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        host_use(h, all[i]);
    id = host_job(h, (uint32_t[HOST_AGENTS]){3, 1});
    assert_int_equal(host_env(h, id, 3, NULL, &env, NULL, NULL), 0);
    expect(&env,
           (const char *const[][2]){{"FIBER_RANK", "3"},
                                    {"PMI_RANK", "3"},
                                    {"RANK", "3"},
                                    {"HOROVOD_RANK", "3"},
                                    {"HOROVOD_SIZE", "4"},
                                    {"HOROVOD_LOCAL_RANK", "0"},
                                    {"HOROVOD_LOCAL_SIZE", "1"},
                                    {"HOROVOD_CROSS_RANK", "1"},
                                    {"HOROVOD_CROSS_SIZE", "2"},
                                    {"HOROVOD_HOSTNAME", "testnode1"},
                                    {"HOROVOD_CONTROLLER", "gloo"},
                                    {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"}},
           13);
    fbr_env_fini(&env);
    assert_int_equal(host_env(h, id, 2, NULL, &env, NULL, NULL), 0);
    expect(&env, (const char *const[][2]){{"HOROVOD_CROSS_RANK", "0"}, {"HOROVOD_CROSS_SIZE", "1"}},
           2);
    fbr_env_fini(&env);
    host_close(h);
}

static void test_the_registries_name_each_once(void **state)
{
    const struct fbr_bridge_ops *const *bridges = fbr_bridges();
    const char *missing = fbr_bridge_missing("pmix");
    bool pmix = false;

    assert_string_equal(bridges[0]->name, "plain");
    for (size_t i = 0; bridges[i]; i++) {
        pmix = pmix || !strcmp(bridges[i]->name, "pmix");
        assert_true(bridges[i]->rank && !bridges[i]->open == !bridges[i]->close);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(bridges[i]->name, bridges[k]->name);
    }
    assert_true(pmix ? !missing : missing && *missing); /* there, or it says why not */
    assert_null(fbr_bridge_missing("pmi1"));
    assert_string_equal(fbr_services[0]->name, "tcpstore");
    assert_string_equal(fbr_services[1]->name, "rendezvous");
    assert_null(fbr_services[2]);
}

static void test_a_bridge_is_found_by_how_its_ranks_met_it(void **state)
{
    const struct fbr_bridge_ops *pmi = fbr_bridge_met("PMI 1.1");

    assert_ptr_equal(pmi, &fbr_bridge_pmi1);
    assert_ptr_equal(fbr_bridge_met("PMI 2.0"), pmi);
    assert_non_null(pmi->no_rejoin);
    assert_null(fbr_bridge_met("PMIx 4.1")); /* which lets a new process in */
    assert_null(fbr_bridge_met(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_is_told_who_it_is),
        cmocka_unit_test(test_jax_is_told_of_a_ranks_own_gpus),
        cmocka_unit_test(test_all_bridges_fill_one_environment),
        cmocka_unit_test(test_the_registries_name_each_once),
        cmocka_unit_test(test_a_bridge_is_found_by_how_its_ranks_met_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
