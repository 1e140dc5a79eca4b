/* torch_test.c - the bridge of torch.distributed with the store at the launcher: programs of the
 * torch that is here.
 *
 * TEST_PYTHON names another interpreter, to test with another torch.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/bridge_tables.h"
#include "tests/support/bridge_host.h"
#include "tests/support/run.h"

static const char *python;
static char script[512];

static int look(void **state)
{
    const char *given = getenv("TEST_PYTHON");
    const char *argv[] = {given ? given : "/usr/bin/python3", "-c", "import torch.distributed",
                          NULL};
    struct ran r = run_program(argv, NULL, NULL);

    if (r.code == 0)
        python = argv[0];
    ran_free(&r);
    snprintf(script, sizeof(script), "%s/tests/mpi_bridge/torch_rank.py",
             getenv("TEST_SOURCE_DIR"));
    return 0;
}

static void test_the_variables(void **state)
{
    static char *const given[] = {"NCCL_ASYNC_ERROR_HANDLING=0", "RANK=77", "MASTER_ADDR=h1", NULL};
    static const char *const expected[][2] = {
        {"MASTER_ADDR", "127.0.0.1"},
        {"RANK", "2"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_RANK", "2"},
        {"ROLE_WORLD_SIZE", "4"},
        {"ROLE_NAME", "default"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "fbrtest"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"NCCL_ASYNC_ERROR_HANDLING", "0"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
    };
    struct bridge_host *h = host_open(2);
    struct fbr_env e;
    uint32_t id;

    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){1, 3});
    assert_int_equal(host_env(h, id, 2, given, &e, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_string_equal(fbr_env_get(&e, expected[i][0]), expected[i][1]);
    assert_true(atoi(fbr_env_get(&e, "MASTER_PORT")) > 0);
    fbr_env_fini(&e);
    host_close(h);
}

static void test_a_program_that_serves_its_own_store_can_say_so(void **state)
{
    static char *const given[] = {"TORCHELASTIC_USE_AGENT_STORE=False", "MASTER_ADDR=h1",
                                  "MASTER_PORT=29500", NULL};
    struct bridge_host *h = host_open(1);
    struct fbr_env e;
    uint32_t id;

    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2});
    assert_int_equal(host_env(h, id, 1, given, &e, NULL, NULL), 0);
    assert_string_equal(fbr_env_get(&e, "TORCHELASTIC_USE_AGENT_STORE"), "False");
    assert_string_equal(fbr_env_get(&e, "MASTER_ADDR"), "h1");
    assert_string_equal(fbr_env_get(&e, "MASTER_PORT"), "29500");
    fbr_env_fini(&e);
    host_close(h);
}

static void test_a_rank_with_gpus_of_its_own_begins_to_count_them_at_0(void **state)
{
    struct bridge_host *h = host_open(1);
    struct fbr_bridge_rank *local;
    struct fbr_env e;
    uint32_t id;

    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2});
    local = (struct fbr_bridge_rank *)host_job_of(h, 0, id)->local;
    for (unsigned gpus = 0; gpus < 2; gpus++) {
        local[1].gpus = gpus;
        assert_int_equal(host_env(h, id, 1, NULL, &e, NULL, NULL), 0);
        assert_string_equal(fbr_env_get(&e, "LOCAL_RANK"), gpus ? "0" : "1");
        assert_string_equal(fbr_env_get(&e, "LOCAL_WORLD_SIZE"), "2");
        fbr_env_fini(&e);
    }
    host_close(h);
}

static void test_ranks_on_two_nodes(void **state)
{
    static char *const env[] = {"GLOO_SOCKET_IFNAME=lo", NULL};
    const char *const argv[] = {python, script, NULL};
    struct bridge_host *h;
    uint32_t id;

    if (!python) {
        print_message("python3 has no torch\n");
        skip();
    }
    h = host_open(2);
    host_use(h, &fbr_bridge_torch);
    id = host_job(h, (uint32_t[HOST_AGENTS]){2, 2});
    host_start_all(h, id, argv, env);
    host_wait(h, id);
    for (uint32_t i = 0; i < 4; i++) {
        const char *text = host_output(h, id, i);
        char group[64], store[64];

        snprintf(group, sizeof(group), "rank %u of 4, sum 6\n", i);
        snprintf(store, sizeof(store), "rank %u done\n", i);
        if (!strstr(text, group) || !strstr(text, store))
            fail_msg("rank %u: %s", i, text);
        assert_int_equal(host_rank(h, id, i).code, 0);
    }
    host_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_variables),
        cmocka_unit_test(test_a_program_that_serves_its_own_store_can_say_so),
        cmocka_unit_test(test_a_rank_with_gpus_of_its_own_begins_to_count_them_at_0),
        cmocka_unit_test(test_ranks_on_two_nodes),
    };

    return cmocka_run_group_tests(tests, look, NULL);
}
