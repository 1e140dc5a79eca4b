/* assign_test.c - which agents serve a job, what their hosts are called, and which share a machine.
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

#include <cmocka.h>

#include "ring/ring_priv.h"

#define AGENTS 4

struct world {
    struct fiber_ring ring;
    struct ring_agent agents[AGENTS];
    struct ring_job job;
};

/* Agents of that many processors, each on a host and a machine of its own. */
static void set_up(struct world *w, uint32_t agents, uint32_t cpus)
{
    memset(w, 0, sizeof(*w));
    w->ring.agents = w->agents;
    w->ring.nagents = agents;
    for (uint32_t i = 0; i < agents; i++) {
        struct ring_agent *a = &w->agents[i];

        *a = (struct ring_agent){
            .ring = &w->ring, .number = i, .state = AGENT_READY, .cpus = cpus, .machine = i + 10};
        snprintf(a->host, sizeof(a->host), "host%u", i);
        snprintf(a->address, sizeof(a->address), "10.0.0.%u", i);
    }
}

static int place(struct world *w, uint32_t size, bool spawned)
{
    struct fbr_error err = {0, ""};

    w->job.ring = &w->ring;
    w->job.job.info.size = size;
    return fbr_ring_assign(&w->ring, &w->job, spawned, &err);
}

/* "0:host0=0-1 2:host2=2-3": each node's agent, host and ranks. */
static void assert_nodes(struct world *w, const char *want)
{
    const struct fbr_bridge_job *i = &w->job.job.info;
    char text[512] = "";

    for (uint32_t k = 0; k < i->nodes; k++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u:%s=%u-%u", k ? " " : "",
                 i->agents[k], i->hosts[k], i->first[k], i->first[k + 1] - 1);
    assert_string_equal(text, want);
    fbr_ring_job_fini(&w->job.job);
    memset(&w->job, 0, sizeof(w->job));
}

static void hosts_are_filled_by_their_processors(void **state)
{
    struct world w;

    set_up(&w, 3, 2);
    assert_int_equal(place(&w, 5, false), 0);
    assert_string_equal(w.job.job.info.master_host, "10.0.0.0");
    assert_nodes(&w, "0:host0=0-1 1:host1=2-3 2:host2=4-4");
    set_up(&w, 1, 8);
    assert_int_equal(place(&w, 2, false), 0);
    assert_string_equal(w.job.job.info.master_host, "127.0.0.1"); /* all on one host */
    assert_nodes(&w, "0:host0=0-1");
}

static void only_agents_that_are_ready_have_ranks(void **state)
{
    struct world w;

    set_up(&w, 4, 2);
    w.agents[0].state = AGENT_GONE;
    w.agents[1].state = AGENT_STARTING;
    w.agents[3].state = AGENT_DOOMED;
    assert_int_equal(place(&w, 2, false), 0);
    assert_nodes(&w, "2:host2=0-1");
    w.agents[2].state = AGENT_GONE;
    assert_int_equal(place(&w, 2, false), -ECHILD);
    fbr_ring_job_fini(&w.job.job);
}

static void spawned_ranks_are_spread_over_all_nodes(void **state)
{
    struct world w;

    set_up(&w, 2, 8);
    assert_int_equal(place(&w, 4, true), 0);
    assert_nodes(&w, "0:host0=0-1 1:host1=2-3");
    assert_int_equal(place(&w, 1, true), 0);
    assert_nodes(&w, "0:host0=0-0");
}

static void nodes_of_one_host_have_names_of_their_own(void **state)
{
    struct world w;

    set_up(&w, 3, 1);
    snprintf(w.agents[2].host, sizeof(w.agents[2].host), "host0");
    assert_int_equal(place(&w, 3, false), 0);
    assert_nodes(&w, "0:host0-0=0-0 1:host1=1-1 2:host0-2=2-2");
}

static void such_a_name_is_not_that_of_another_host(void **state)
{
    struct world w;

    set_up(&w, 4, 1);
    snprintf(w.agents[0].host, sizeof(w.agents[0].host), "gpu");
    snprintf(w.agents[1].host, sizeof(w.agents[1].host), "gpu");
    snprintf(w.agents[2].host, sizeof(w.agents[2].host), "gpu-1");
    snprintf(w.agents[3].host, sizeof(w.agents[3].host), "gpu-1-1");
    assert_int_equal(place(&w, 4, false), 0);
    assert_nodes(&w, "0:gpu-0=0-0 1:gpu-1-1-1=1-1 2:gpu-1=2-2 3:gpu-1-1=3-3");
}

static void nodes_of_one_machine_are_told(void **state)
{
    struct world w;

    set_up(&w, 4, 1);
    w.agents[2].machine = w.agents[0].machine; /* two containers on it, say */
    w.agents[3].machine = w.agents[1].machine;
    assert_int_equal(place(&w, 4, false), 0);
    assert_memory_equal(w.job.job.machines, ((uint32_t[]){0, 1, 0, 1}), 4 * sizeof(uint32_t));
    assert_nodes(&w, "0:host0=0-0 1:host1=1-1 2:host2=2-2 3:host3=3-3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_filled_by_their_processors),
        cmocka_unit_test(only_agents_that_are_ready_have_ranks),
        cmocka_unit_test(spawned_ranks_are_spread_over_all_nodes),
        cmocka_unit_test(nodes_of_one_host_have_names_of_their_own),
        cmocka_unit_test(such_a_name_is_not_that_of_another_host),
        cmocka_unit_test(nodes_of_one_machine_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
