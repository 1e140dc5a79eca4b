/* capacity_test.c - what an allocation or a cluster makes of options that leave something open.
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

#include "ring/capacity.h"

static struct fbr_ring_capacity room;
static struct fiber_ring_options options;
static struct fbr_error err;

/* "4,4,1": an allocation of n1, n2, n3. */
static void allocate(const char *slots)
{
    memset(&room, 0, sizeof(room));
    options = (struct fiber_ring_options){.size = sizeof(options)};
    err = (struct fbr_error){0, ""};
    room.room.names = calloc(8, sizeof(*room.room.names));
    room.room.slots = calloc(8, sizeof(*room.room.slots));
    assert_non_null(room.room.names);
    assert_non_null(room.room.slots);
    while (*slots) {
        unsigned i = room.room.hosts++;
        char *end;

        room.room.slots[i] = (unsigned)strtoul(slots, &end, 10);
        assert_true(asprintf(&room.room.names[i], "n%u", i + 1) > 0);
        slots = end + (*end == ',');
    }
}

/* "8: 4 4", or the sentence; frees all of it. */
static const char *use(int size)
{
    static char text[1200];
    int rc = fbr_ring_capacity_use(&room, &size, &options, &err);
    size_t n = (size_t)snprintf(text, sizeof(text), "%d:", size);

    for (int i = 0; rc == 0 && options.slots && i < options.nodes; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " %d", options.slots[i]);
    if (rc == 0 && !options.slots)
        snprintf(text + n, sizeof(text) - n, " nodes %d per node %d", options.nodes,
                 options.per_node);
    if (rc == 0 && room.note[0])
        snprintf(text + n, sizeof(text) - n, "; %s", room.note);
    if (rc < 0)
        snprintf(text, sizeof(text), "%s", err.text);
    fbr_ring_capacity_fini(&room);
    return text;
}

static void test_ranks_are_those_that_were_asked_for(void **state)
{
    allocate("4,4");
    assert_string_equal(use(0), "8: 4 4");
    allocate("2,2,1");
    room.room.ranks = 4; /* SLURM_NTASKS */
    assert_string_equal(use(0), "4: 2 2; 1 of 3 nodes of the allocation is not used: n3");
    allocate("4,4");
    assert_string_equal(use(8), "8: 4 4");
    allocate("1,1,1,1");
    assert_string_equal(use(64), "64: 16 16 16 16");
    allocate("4,4,4,4");
    assert_string_equal(use(3), "3: 3; 3 of 4 nodes of the allocation are not used: n2 to n4");
    allocate("4,4,4");
    assert_string_equal(use(1), "1: 1; 2 of 3 nodes of the allocation are not used: n2 and n3");
}

static void test_what_is_said_wins(void **state)
{
    allocate("4,4,4");
    options.per_node = 1;
    assert_string_equal(use(0), "3: 1 1 1");
    allocate("4,4,4");
    options.per_node = 2;
    assert_string_equal(use(3), "3: 2 1; 1 of 3 nodes of the allocation is not used: n3");
    allocate("4,4,4");
    options.nodes = 2;
    assert_string_equal(use(0), "8: 4 4");
    allocate("4,4,4");
    options.nodes = 2;
    assert_string_equal(use(2), "2: 1 1");
    allocate("4,4,4");
    options.nodes = 4;
    assert_string_equal(use(0), "--nodes 4: the allocation has 3 nodes");
    allocate("4,4");
    options.per_node = 2;
    assert_non_null(strstr(use(5), "do not fit on the 2 nodes"));
    allocate("4,4");
    options.per_node = 2;
    options.flags = FIBER_RING_OVERSUBSCRIBE;
    assert_string_equal(use(5), "5: 3 2");
}

static void test_a_rank_has_what_was_asked_for_it(void **state)
{
    for (int size = 0; size <= 5; size += 5) { /* more ranks than that cannot have it */
        allocate("2,2");
        room.room.cpus_per_rank = 2;
        room.room.gpus_per_rank = 1;
        use(size);
        assert_int_equal(options.cpus_per_rank, size ? 0 : 2);
        assert_int_equal(options.gpus_per_rank, size ? 0 : 1);
    }
    allocate("2,2");
    room.room.cpus_per_rank = 2;
    options.cpus_per_rank = 1;
    use(0);
    assert_int_equal(options.cpus_per_rank, 1);
}

static void test_one_of_several_tasks_does_not_multiply(void **state)
{
    allocate("2,2");
    room.room.copies = 4;
    assert_non_null(strstr(use(0), "one of 4 tasks"));
    allocate("2,2");
    room.room.copies = 4;
    assert_string_equal(use(4), "4: 2 2"); /* who says -n means it */
}

static void cluster(unsigned hosts, unsigned cpus)
{
    memset(&room, 0, sizeof(room));
    room.room.hosts = hosts;
    room.room.cpus = cpus;
    options = (struct fiber_ring_options){.size = sizeof(options)};
    err = (struct fbr_error){0, ""};
}

static void test_a_host_has_as_many_ranks_as_processors(void **state)
{
    cluster(3, 4);
    assert_string_equal(use(8), "8: nodes 0 per node 4");
    cluster(3, 4);
    assert_string_equal(use(4), "4: nodes 0 per node 0");
    cluster(3, 4);
    options.cpus_per_rank = 2;
    assert_string_equal(use(6), "6: nodes 0 per node 2");
    cluster(3, 4);
    options.cpus_per_rank = 8;
    assert_string_equal(use(2), "2: nodes 0 per node 1");
    cluster(3, 4);
    assert_non_null(strstr(use(16), "16 ranks need 4 nodes of 4 processors, and only 3"));
    cluster(3, 4);
    options.flags = FIBER_RING_OVERSUBSCRIBE;
    assert_string_equal(use(16), "16: nodes 0 per node 6");
    cluster(0, 2); /* more hosts may come */
    assert_string_equal(use(64), "64: nodes 0 per node 2");
    cluster(0, 0);
    assert_string_equal(use(64), "64: nodes 0 per node 0");
    cluster(3, 4);
    options.per_node = 8;
    assert_string_equal(use(16), "16: nodes 0 per node 8");
}

static void test_a_host_has_as_many_ranks_as_gpus(void **state)
{
    cluster(3, 64);
    room.room.gpus = 4;
    assert_string_equal(use(9), "9: nodes 0 per node 0"); /* no GPU was asked for */
    cluster(3, 64);
    room.room.gpus = 4;
    options.gpus_per_rank = 1;
    assert_string_equal(use(9), "9: nodes 0 per node 4");
    cluster(3, 64);
    room.room.gpus = 4;
    options.gpus_per_rank = 2;
    assert_non_null(strstr(use(9), "9 ranks need 5 nodes of 4 GPUs, and only 3"));
    cluster(3, 2);
    room.room.gpus = 4;
    options.gpus_per_rank = 1;
    assert_string_equal(use(4), "4: nodes 0 per node 2"); /* there are fewer processors */
    cluster(3, 64);
    options.gpus_per_rank = 1;
    assert_string_equal(use(9), "9: nodes 0 per node 0");
}

static void test_there_are_as_many_nodes_as_are_said(void **state)
{
    cluster(3, 4);
    options.nodes = 3;
    assert_string_equal(use(3), "3: nodes 3 per node 0");
    cluster(3, 4);
    options.nodes = 8;
    assert_string_equal(use(8), "--nodes 8: only 3 nodes can take jobs");
    cluster(0, 4);
    options.nodes = 8;
    assert_string_equal(use(8), "8: nodes 8 per node 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_those_that_were_asked_for),
        cmocka_unit_test(test_what_is_said_wins),
        cmocka_unit_test(test_a_rank_has_what_was_asked_for_it),
        cmocka_unit_test(test_one_of_several_tasks_does_not_multiply),
        cmocka_unit_test(test_a_host_has_as_many_ranks_as_processors),
        cmocka_unit_test(test_a_host_has_as_many_ranks_as_gpus),
        cmocka_unit_test(test_there_are_as_many_nodes_as_are_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
