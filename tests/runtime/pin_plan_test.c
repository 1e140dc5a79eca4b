/* pin_plan_test.c - who goes where on recorded and synthetic machines, and how that is drawn.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/pin/pin.h"
#include "runtime/pin/topology.h"

#define MOST 512
#define WISH(...) (&(struct fbr_pin_wish){__VA_ARGS__})

static const struct fbr_pin_ops *ops;
static struct fbr_pin pins[MOST]; /* what place() made */
static char note[256];
static struct fbr_error error;

static int load(void **state)
{
    ops = fbr_pin_load(&error);
    if (!ops)
        print_message("%s\n", error.text);
    return 0;
}

static struct fbr_topology *open_topology(const char *source, unsigned flags)
{
    struct fbr_topology *t;

    if (!ops)
        skip();
    if (ops->open(&t, source, flags, &error))
        fail_msg("%s", error.text);
    return t;
}

/* A recorded machine; "only:LIST:NAME" restricts it. */
static struct fbr_topology *open_recorded(const char *name)
{
    const char *colon = strrchr(name, ':');
    char source[1024];

    snprintf(source, sizeof(source), "%.*sxml:%s/tests/data/topologies/%s.xml",
             colon ? (int)(colon + 1 - name) : 0, name, getenv("TEST_SOURCE_DIR"),
             colon ? colon + 1 : name);
    return open_topology(source, FBR_TOPOLOGY_DEVICES);
}

static struct fbr_topology *open_any(const char *source)
{
    return strstr(source, "synthetic:") ? open_topology(source, FBR_TOPOLOGY_DEVICES)
                                        : open_recorded(source);
}

static int place(const char *source, const struct fbr_pin_wish *wish)
{
    struct fbr_topology *t = open_any(source);
    int rc;

    assert_in_range(wish->count, 0, MOST);
    memset(&error, 0, sizeof(error));
    rc = ops->plan(t, wish, pins, note, sizeof(note), &error);
    assert_int_equal(rc, error.code);
    ops->close(t);
    return rc;
}

/* Processors of each process, by blanks; "-" for one that is not bound. */
static void expect(const char *source, const struct fbr_pin_wish *wish, const char *cpus)
{
    char is[4 * FBR_PIN_LIST] = "";
    size_t len = 0;

    if (place(source, wish))
        fail_msg("%s", error.text);
    for (unsigned i = 0; i < wish->count; i++)
        if (len < sizeof(is))
            len += (size_t)snprintf(is + len, sizeof(is) - len, "%s%s", i ? " " : "",
                                    pins[i].cpus[0] ? pins[i].cpus : "-");
    assert_string_equal(is, cpus);
}

/* Indices of the GPUs of each process of the last plan: "0 1,2". */
static void expect_gpus(unsigned count, const char *gpus)
{
    char is[4096] = "";

    for (unsigned i = 0; i < count; i++)
        for (unsigned g = 0; g < pins[i].ngpus; g++)
            snprintf(is + strlen(is), sizeof(is) - strlen(is), "%s%u",
                     g   ? ","
                     : i ? " "
                         : "",
                     pins[i].gpus[g].index);
    assert_string_equal(is, gpus);
}

/* ---- Bindings ---- */

static const char two_by_two[] = "synthetic:pack:2 l3:2 core:2 pu:2"; /* 8 cores, 16 threads */

static void each_binding_is_as_wide_as_its_name(void **state)
{
    expect(two_by_two, WISH(.count = 3, .bind = FBR_BIND_HWTHREAD), "0 1 2");
    expect(two_by_two, WISH(.count = 3, .bind = FBR_BIND_CORE), "0-1 2-3 4-5");
    expect(two_by_two, WISH(.count = 3, .bind = FBR_BIND_L3), "0-3 0-3 4-7");
    expect(two_by_two, WISH(.count = 5, .bind = FBR_BIND_PACKAGE), "0-7 0-7 0-7 0-7 8-15");
    expect(two_by_two, WISH(.count = 2, .bind = FBR_BIND_NONE), "- -");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 2, .bind = FBR_BIND_NUMA), "0-7 0-7");
    assert_string_equal(note, "");
    assert_false(pins[0].shared);
}

static void what_a_machine_does_not_show_is_taken_from_the_next_larger(void **state)
{
    expect("synthetic:pack:2 core:2 pu:1", WISH(.count = 3, .bind = FBR_BIND_L3), "0-1 0-1 2-3");
    assert_non_null(strstr(note, "shows no L3"));
    expect("synthetic:core:2 pu:1", WISH(.count = 2, .map = FBR_MAP_PACKAGE), "0 1");
    assert_non_null(strstr(note, "shows no package"));
}

static void numa_nodes_within_a_cache(void **state)
{
    static const char source[] = "synthetic:pack:2 l3:1 numa:2 core:2 pu:1";

    expect(source, WISH(.count = 3, .cpus_per_rank = 2), "0-1 2-3 4-5");
    expect(source, WISH(.count = 2, .cpus_per_rank = 3), "0-2 4-6");
    expect(source, WISH(.count = 2, .map = FBR_MAP_SPREAD, .bind = FBR_BIND_NUMA), "0-1 4-5");
    expect(source, WISH(.count = 2, .map = FBR_MAP_NUMA, .bind = FBR_BIND_L3), "0-3 0-3");
}

static void the_default_is_cores_then_threads_then_nothing(void **state)
{
    expect("synthetic:core:2 pu:2", WISH(.count = 2), "0-1 2-3");
    assert_string_equal(note, "");
    expect("synthetic:core:2 pu:2", WISH(.count = 3), "0 1 2");
    assert_string_equal(note, "3 ranks share 2 cores: each has hardware threads of its own");
    assert_false(pins[0].shared);
    expect("synthetic:core:2 pu:2", WISH(.count = 5), "- - - - -");
    assert_string_equal(note, "5 ranks share 4 processors: they are not bound");
    assert_true(pins[4].shared);
    assert_string_equal(pins[0].where, "not bound");
}

static void too_many_that_must_be_bound_share_what_they_wanted(void **state)
{
    expect("synthetic:core:2 pu:1", WISH(.count = 5, .bind = FBR_BIND_CORE), "0 1 0 1 0");
    assert_string_equal(note, "5 ranks share 2 processors: up to 3 are on the same core");
    assert_true(pins[0].shared);
    expect("synthetic:core:2 pu:2", WISH(.count = 3, .bind = FBR_BIND_CORE), "0-1 2-3 0-1");
    assert_string_equal(note, "3 ranks share 2 cores: up to 2 are on the same core");
    assert_false(pins[0].shared);
    expect(two_by_two, WISH(.count = 17, .bind = FBR_BIND_PACKAGE, .map = FBR_MAP_PACKAGE),
           "0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 0-7 8-15 0-7");
    assert_true(pins[0].shared);
}

static void several_processors_are_whole_cores_in_one_place(void **state)
{
    expect("synthetic:pack:2 core:4 pu:2", WISH(.count = 2, .cpus_per_rank = 2), "0-1 2-3");
    expect("synthetic:pack:2 core:4 pu:2", WISH(.count = 2, .cpus_per_rank = 3), "0-3 4-7");
    expect("synthetic:pack:2 core:4 pu:2",
           WISH(.count = 2, .cpus_per_rank = 3, .bind = FBR_BIND_HWTHREAD), "0-2 3-5");
    /* 6 of 8: the second would cross into the other package if it followed the first. */
    expect("synthetic:pack:2 core:4 pu:2", WISH(.count = 2, .cpus_per_rank = 6), "0-5 8-13");
    /* Of three, one must. */
    expect("synthetic:pack:2 core:6 pu:1", WISH(.count = 3, .cpus_per_rank = 4), "0-3 4-7 8-11");
    /* No package has so many. */
    expect("synthetic:pack:2 core:4 pu:2", WISH(.count = 1, .cpus_per_rank = 10), "0-9");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 2, .cpus_per_rank = 12, .bind_memory = true),
           "0-11 16-27");
    assert_string_equal(pins[1].nodes, "2-3");
    assert_string_equal(pins[1].where, "package 1, NUMA 2-3, cores 16-27");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 1, .cpus_per_rank = 12, .bind = FBR_BIND_NUMA),
           "0-15");
}

static void more_processors_than_there_are(void **state)
{
    expect("no-gpu-1x1x2", WISH(.count = 1, .cpus_per_rank = 3), "-");
    assert_string_equal(note, "a rank that wants 3 processors has 2: it is not bound");
    expect("no-gpu-1x1x2", WISH(.count = 2, .cpus_per_rank = 2), "- -");
    assert_string_equal(
        note, "2 ranks that want 2 processors each share 2 processors: they are not bound");
    assert_int_equal(
        place("no-gpu-1x1x2", WISH(.count = 1, .cpus_per_rank = 3, .bind = FBR_BIND_CORE)),
        -EINVAL);
    assert_string_equal(error.text,
                        "a rank cannot be bound to 3 processors: this process may use only 2");
    assert_int_equal(place("no-gpu-1x1x2", WISH(.count = 0)), -EINVAL);
}

static void memory_is_bound_to_the_nodes_of_the_processors(void **state)
{
    expect("nvidia-2x2x8-4gpu", WISH(.count = 4, .map = FBR_MAP_NUMA, .bind_memory = true),
           "0 8 16 24");
    for (unsigned i = 0; i < 4; i++) {
        char node[2] = {(char)('0' + i), '\0'};

        assert_string_equal(pins[i].nodes, node);
    }
    expect("nvidia-2x2x8-4gpu", WISH(.count = 1, .bind = FBR_BIND_PACKAGE, .bind_memory = true),
           "0-15");
    assert_string_equal(pins[0].nodes, "0-1");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 1, .bind = FBR_BIND_NONE, .bind_memory = true), "-");
    assert_string_equal(pins[0].nodes, "");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 1, .bind = FBR_BIND_PACKAGE), "0-15");
    assert_string_equal(pins[0].nodes, "");
}

/* As on machines whose memory is in some of their packages' sockets only. */
static void memory_is_not_bound_to_nodes_without_memory(void **state)
{
    struct fbr_topology *t = open_recorded("nvidia-2x2x8-4gpu");

    t->memories[1].bytes = 0;
    assert_int_equal(ops->plan(t, WISH(.count = 2, .map = FBR_MAP_NUMA, .bind_memory = true), pins,
                               note, sizeof(note), &error),
                     0);
    assert_string_equal(pins[0].nodes, "0");
    assert_string_equal(pins[1].cpus, "8");
    assert_string_equal(pins[1].nodes, "");
    ops->close(t);
}

static void numbers_of_processors_are_the_kernels(void **state)
{
    /* The second threads of all cores come after the first, as Linux often numbers them. */
    expect("synthetic:pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", WISH(.count = 2), "0,4 1,5");
    /* Packages in turn. */
    expect("synthetic:pack:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)",
           WISH(.count = 1, .bind = FBR_BIND_PACKAGE), "0,2,4,6");
    assert_string_equal(pins[0].where, "package 0, cores 0-3");
    /* NUMA nodes in another order than their numbers: all are named. */
    expect("synthetic:pack:2 numa:2(indexes=1,0,3,2) core:2 pu:1",
           WISH(.count = 1, .bind = FBR_BIND_PACKAGE), "0-3");
    assert_string_equal(pins[0].where, "package 0, NUMA 1,0, cores 0-3");
}

/* ---- Maps ---- */

static void each_map_deals_in_its_own_order(void **state)
{
    expect(two_by_two, WISH(.count = 4, .map = FBR_MAP_COMPACT), "0-1 2-3 4-5 6-7");
    expect(two_by_two, WISH(.count = 4, .map = FBR_MAP_PACKAGE), "0-1 8-9 2-3 10-11");
    expect(two_by_two, WISH(.count = 6, .map = FBR_MAP_L3), "0-1 4-5 8-9 12-13 2-3 6-7");
    expect(two_by_two, WISH(.count = 4, .map = FBR_MAP_CORE, .bind = FBR_BIND_HWTHREAD), "0 2 4 6");
    expect(two_by_two, WISH(.count = 9, .map = FBR_MAP_CORE, .bind = FBR_BIND_HWTHREAD),
           "0 2 4 6 8 10 12 14 1");
    expect(two_by_two, WISH(.count = 4, .map = FBR_MAP_COMPACT, .bind = FBR_BIND_HWTHREAD),
           "0 1 2 3");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 5, .map = FBR_MAP_NUMA), "0 8 16 24 1");
}

static void spread_is_as_far_apart_as_possible(void **state)
{
    expect(two_by_two, WISH(.count = 2, .map = FBR_MAP_SPREAD), "0-1 8-9");
    expect(two_by_two, WISH(.count = 4, .map = FBR_MAP_SPREAD), "0-1 8-9 4-5 12-13");
    expect(two_by_two, WISH(.count = 8, .map = FBR_MAP_SPREAD),
           "0-1 8-9 4-5 12-13 2-3 10-11 6-7 14-15");
    expect(two_by_two, WISH(.count = 2, .map = FBR_MAP_SPREAD, .bind = FBR_BIND_HWTHREAD), "0 8");
    expect("synthetic:pack:4 core:2 pu:1", WISH(.count = 2, .map = FBR_MAP_SPREAD), "0 4");
    expect("synthetic:pack:1 core:8 pu:1", WISH(.count = 3, .map = FBR_MAP_SPREAD), "0 2 5");
}

static void packages_of_different_size_get_what_fits(void **state)
{
    expect("asymmetric-4+8", WISH(.count = 6, .map = FBR_MAP_PACKAGE, .cpus_per_rank = 4),
           "0-3 16-19 4-7 20-23 24-27 28-31");
    expect("asymmetric-4+8", WISH(.count = 6, .map = FBR_MAP_SPREAD, .cpus_per_rank = 4),
           "0-3 16-19 4-7 20-23 24-27 28-31");
    expect("asymmetric-4+8", WISH(.count = 1, .cpus_per_rank = 12), "16-27");
    expect("asymmetric-4+8", WISH(.count = 2, .bind = FBR_BIND_PACKAGE, .map = FBR_MAP_PACKAGE),
           "0-7 16-31");
}

static void strong_cores_come_first(void **state)
{
    expect("hybrid-4big-8little", WISH(.count = 4, .map = FBR_MAP_SPREAD), "0 1 2 3");
    expect("hybrid-4big-8little", WISH(.count = 2, .map = FBR_MAP_SPREAD), "0 2");
    expect("hybrid-4big-8little", WISH(.count = 6, .map = FBR_MAP_COMPACT), "0 1 2 3 4 5");
    /* No rank of strong and weak cores while there is another way. */
    expect("hybrid-4big-8little", WISH(.count = 3, .cpus_per_rank = 3), "0-2 4-6 7-9");
    expect("hybrid-4big-8little", WISH(.count = 4, .cpus_per_rank = 3), "0-2 3-5 6-8 9-11");
}

/* ---- What may be used ---- */

static void only_what_may_be_used_is_used(void **state)
{
    struct fbr_topology_facts facts;
    struct fbr_topology *t, *again;
    char *xml, path[] = "/tmp/pin_plan_test.XXXXXX", source[64];
    FILE *f;

    expect("only:4-6,12,14-15:synthetic:pack:2 l3:2 core:2 pu:2", WISH(.count = 4),
           "4-5 6 12 14-15");
    expect("only:4-6,12:synthetic:pack:2 l3:2 core:2 pu:2",
           WISH(.count = 2, .bind = FBR_BIND_PACKAGE, .map = FBR_MAP_PACKAGE), "4-6 12");
    expect("only:16-63:nvidia-lopsided-2x1x16-4gpu",
           WISH(.count = 2, .gpus_per_rank = 1, .bind = FBR_BIND_CORE), "16-17 18-19");
    expect("only:32-63:nvidia-lopsided-2x1x16-4gpu",
           WISH(.count = 2, .gpus_per_rank = 1, .bind = FBR_BIND_CORE), "32-33 34-35");
    expect_gpus(2, "0 1"); /* though all their neighbours are forbidden */

    /* It is written down in the XML, and read from there. */
    t = open_recorded("only:0-2,16:nvidia-2x2x8-4gpu");
    xml = ops->xml(t);
    ops->close(t);
    assert_non_null(xml);
    f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    fputs(xml, f);
    fclose(f);
    free(xml);
    snprintf(source, sizeof(source), "xml:%s", path);
    again = open_topology(source, FBR_TOPOLOGY_DEVICES);
    unlink(path);
    ops->facts(again, &facts);
    ops->close(again);
    assert_true(facts.restricted);
    assert_int_equal(facts.hwthreads, 4);
    assert_int_equal(facts.numa_nodes, 2);
    assert_int_equal(facts.packages, 2);
    assert_int_equal(facts.gpus, 4);
}

static void facts_are_those_of_the_machine(void **state)
{
    struct fbr_topology *t = open_recorded("nvidia-2x1x56-8gpu");
    struct fbr_topology_facts facts;

    ops->facts(t, &facts);
    ops->close(t);
    assert_int_equal(facts.packages, 2);
    assert_int_equal(facts.numa_nodes, 2);
    assert_int_equal(facts.l3s, 2);
    assert_int_equal(facts.cores, 112);
    assert_int_equal(facts.hwthreads, 224);
    assert_int_equal(facts.gpus, 8);
    assert_int_equal(facts.nics, 8);
    assert_false(facts.this_machine);
    assert_false(facts.restricted);
}

static void wrong_sources_are_refused(void **state)
{
    static const char *const wrong[] = {
        "pack:2",   "xml:/nowhere/at/all",   "synthetic:pack",
        "only:0-1", "only:x:synthetic:pu:2", "only:9:synthetic:pu:2"};
    struct fbr_topology *t;

    if (!ops)
        skip();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memset(&error, 0, sizeof(error));
        assert_true(ops->open(&t, wrong[i], 0, &error) < 0);
        assert_true(error.code < 0 && error.text[0]);
        assert_null(t);
    }
    ops->close(NULL);
}

static void this_machine_is_what_our_affinity_leaves(void **state)
{
    struct fbr_topology_facts before, after;
    struct fbr_topology *t = open_topology(NULL, 0);
    cpu_set_t all, one;
    int cpu = 0;
    char name[16];

    ops->facts(t, &before);
    ops->close(t);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(before.hwthreads, CPU_COUNT(&all));
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    t = open_topology(NULL, FBR_TOPOLOGY_DEVICES);
    ops->facts(t, &after);
    assert_int_equal(
        ops->plan(t, WISH(.count = 1, .bind = FBR_BIND_PACKAGE), pins, note, sizeof(note), &error),
        0);
    ops->close(t);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(after.hwthreads, 1);
    assert_int_equal(after.cores, 1);
    assert_true(CPU_COUNT(&all) == 1 || after.restricted);
    snprintf(name, sizeof(name), "%d", cpu);
    assert_string_equal(pins[0].cpus, name);
}

/* ---- GPUs and NICs ---- */

static void ranks_are_put_beside_their_gpus(void **state)
{
    expect("nvidia-2x2x8-4gpu", WISH(.count = 4, .gpus_per_rank = 1), "0-7 8-15 16-23 24-31");
    expect_gpus(4, "0 1 2 3");
    assert_string_equal(pins[2].gpus[0].bus_id, "0000:57:00.0");
    assert_int_equal(pins[2].gpus[0].vendor, FBR_GPU_NVIDIA);
    expect("nvidia-2x2x8-4gpu-pci-only",
           WISH(.count = 4, .gpus_per_rank = 1, .bind = FBR_BIND_CORE), "0 8 16 24");
    expect_gpus(4, "0 1 2 3");
    expect("nvidia-lopsided-2x1x16-4gpu", WISH(.count = 4, .gpus_per_rank = 1, .cpus_per_rank = 8),
           "0-7 8-15 16-23 24-31");
    expect_gpus(4, "0 1 2 3");
    expect("nvidia-lopsided-2x1x16-4gpu", WISH(.count = 4, .gpus_per_rank = 1, .cpus_per_rank = 16),
           "0-15 16-31 32-47 48-63"); /* no room for all beside them */
    expect_gpus(4, "0 1 2 3");
}

static void gpus_in_another_order_than_numa_nodes(void **state)
{
    expect("amd-1x4x16-8gpu", WISH(.count = 8, .gpus_per_rank = 1, .cpus_per_rank = 16),
           "96-111 112-127 32-47 48-63 0-15 16-31 64-79 80-95");
    expect_gpus(8, "0 1 2 3 4 5 6 7");
    assert_int_equal(pins[0].gpus[0].vendor, FBR_GPU_AMD);
    assert_string_equal(pins[0].nic, "mlx5_3");
    expect("amd-1x4x16-8gpu", WISH(.count = 4, .gpus_per_rank = 2), "96-127 32-63 0-31 64-95");
    expect_gpus(4, "0,1 2,3 4,5 6,7");
}

static void the_nearest_gpus_for_ranks_that_are_placed_otherwise(void **state)
{
    expect("amd-1x4x16-8gpu",
           WISH(.count = 4, .gpus_per_rank = 1, .map = FBR_MAP_NUMA, .bind = FBR_BIND_CORE),
           "0-1 32-33 64-65 96-97");
    expect_gpus(4, "4 2 6 0");
    expect("amd-1x4x16-8gpu",
           WISH(.count = 4, .gpus_per_rank = 2, .map = FBR_MAP_NUMA, .bind = FBR_BIND_CORE),
           "0-1 32-33 64-65 96-97");
    expect_gpus(4, "4,5 2,3 6,7 0,1");
    /* All on one NUMA node: two have their own, the rest the next, each GPU once. */
    expect("amd-1x4x16-8gpu",
           WISH(.count = 4, .gpus_per_rank = 1, .map = FBR_MAP_COMPACT, .bind = FBR_BIND_CORE),
           "0-1 2-3 4-5 6-7");
    expect_gpus(4, "4 5 0 1");
    expect("nvidia-lopsided-2x1x16-4gpu",
           WISH(.count = 4, .gpus_per_rank = 1, .map = FBR_MAP_PACKAGE, .bind = FBR_BIND_CORE),
           "0-1 32-33 2-3 34-35");
    expect_gpus(4, "0 2 1 3"); /* ranks 0 and 2 are beside them and choose first */
}

static void too_few_gpus_are_shared_and_none_is_an_error(void **state)
{
    expect("nvidia-2x2x8-4gpu", WISH(.count = 6, .gpus_per_rank = 1, .bind = FBR_BIND_CORE),
           "0 8 16 24 1 9");
    expect_gpus(6, "0 1 2 3 0 1");
    assert_string_equal(note, "6 ranks share 4 GPUs");
    expect("nvidia-2x2x8-4gpu", WISH(.count = 3, .gpus_per_rank = 4, .bind = FBR_BIND_NONE),
           "- - -");
    for (unsigned i = 0; i < 3; i++)
        for (unsigned g = 0; g < 4; g++)
            for (unsigned h = 0; h < g; h++)
                assert_int_not_equal(pins[i].gpus[g].index, pins[i].gpus[h].index);
    assert_int_equal(place("no-gpu-1x1x2", WISH(.count = 1, .gpus_per_rank = 1)), -EINVAL);
    assert_non_null(strstr(error.text, "every rank needs 1 GPU, but 0 were found"));
    assert_int_equal(place("nvidia-2x2x8-4gpu", WISH(.count = 1, .gpus_per_rank = 5)), -EINVAL);
    assert_non_null(strstr(error.text, "every rank needs 5 GPUs, but 4 were found"));
    assert_int_equal(
        place("nvidia-2x2x8-4gpu", WISH(.count = 1, .gpus_per_rank = FBR_PIN_GPUS + 1)), -EINVAL);
    assert_int_equal(place("nvidia-2x2x8-4gpu", WISH(.count = 1, .map = FBR_MAP_GPU)), -EINVAL);
    assert_non_null(strstr(error.text, "--gpus-per-rank"));
}

static void a_topology_without_devices_says_so(void **state)
{
    struct fbr_topology *t = open_topology("synthetic:core:2 pu:1", 0);

    assert_int_equal(
        ops->plan(t, WISH(.count = 1, .gpus_per_rank = 1), pins, note, sizeof(note), &error),
        -EINVAL);
    assert_non_null(strstr(error.text, "without its GPUs"));
    ops->close(t);
}

static void each_gpu_has_its_nic(void **state)
{
    char name[16];

    if (place("nvidia-2x1x56-8gpu", WISH(.count = 8, .gpus_per_rank = 1)))
        fail_msg("%s", error.text);
    expect_gpus(8, "0 1 2 3 4 5 6 7");
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "mlx5_%u", i);
        assert_string_equal(pins[i].nic, name);
    }
    /* Without GPUs those of a package are dealt out in turn. */
    expect("nvidia-2x1x56-8gpu", WISH(.count = 3, .map = FBR_MAP_PACKAGE), "0-1 112-113 2-3");
    assert_string_equal(pins[0].nic, "mlx5_0");
    assert_string_equal(pins[1].nic, "mlx5_5");
    assert_string_equal(pins[2].nic, "mlx5_2");
    expect("nvidia-lopsided-2x1x16-4gpu",
           WISH(.count = 1, .gpus_per_rank = 1, .bind = FBR_BIND_CORE), "0-1");
    assert_string_equal(pins[0].nic, "mlx5_0"); /* far, but the only one */
    expect("no-gpu-1x1x2", WISH(.count = 1), "0");
    assert_string_equal(pins[0].nic, "");
}

static void lists_that_we_were_given_are_kept_to(void **state)
{
    expect("nvidia-2x2x8-4gpu",
           WISH(.count = 2, .gpus_per_rank = 1, .bind = FBR_BIND_CORE, .visible = {"3,1"}), "24 8");
    expect_gpus(2, "0 1"); /* of the list */
    assert_string_equal(pins[0].gpus[0].bus_id, "0000:77:00.0");
    expect("nvidia-2x2x8-4gpu",
           WISH(.count = 1, .gpus_per_rank = 1, .bind = FBR_BIND_CORE, .visible = {"GPU-00000002"}),
           "16");
    /* MIG: nobody knows where they are. */
    expect("nvidia-2x2x8-4gpu",
           WISH(.count = 3, .gpus_per_rank = 1, .bind = FBR_BIND_CORE,
                .visible = {"MIG-a, MIG-b,MIG-c"}),
           "0 1 2");
    expect_gpus(3, "0 1 2");
    assert_string_equal(pins[0].gpus[0].bus_id, "");
    expect("no-gpu-1x1x2",
           WISH(.count = 2, .gpus_per_rank = 1, .bind = FBR_BIND_CORE, .visible = {"MIG-a,MIG-b"}),
           "0 1");
    expect("nvidia-2x2x8-4gpu",
           WISH(.count = 1, .gpus_per_rank = 1, .bind = FBR_BIND_CORE,
                .visible = {"MIG-GPU-00000003-0000-0000-0000-000000000000/1/0"}),
           "24");
    assert_int_equal(
        place("nvidia-2x2x8-4gpu", WISH(.count = 1, .gpus_per_rank = 1, .visible = {""})), -EINVAL);
    assert_int_equal(
        place("nvidia-2x2x8-4gpu", WISH(.count = 1, .gpus_per_rank = 2, .visible = {"0,-1,2"})),
        -EINVAL);
    assert_non_null(strstr(error.text, "but 1 was found"));
    assert_int_equal(
        place("nvidia-2x2x8-4gpu", WISH(.count = 1, .gpus_per_rank = 2, .visible = {"0,7,1"})),
        -EINVAL);
    assert_non_null(strstr(error.text, "but 1 was found"));
    expect("no-gpu-1x1x2",
           WISH(.count = 1, .gpus_per_rank = 2, .bind = FBR_BIND_CORE, .visible = {"4,5"}), "0");
    expect_gpus(1, "0,1");
}

static void places_in_too_many_pieces_are_refused(void **state)
{
    char source[2048] = "only:0";
    size_t len = strlen(source);

    for (int i = 2; i < 400; i += 2)
        len += (size_t)snprintf(source + len, sizeof(source) - len, ",%d", i);
    snprintf(source + len, sizeof(source) - len, ":synthetic:numa:400 core:1 pu:1");
    assert_int_equal(place(source, WISH(.count = 1, .bind = FBR_BIND_PACKAGE, .bind_memory = true)),
                     -E2BIG);
    assert_string_equal(error.text, "rank 0 would be bound to processors or NUMA nodes in too many "
                                    "pieces; bind to something smaller");
}

/* ---- Pictures ---- */

static void name_rank(void *user, unsigned i, char *out, size_t size)
{
    snprintf(out, size, "r%u", i);
}

static void expect_drawing(const char *source, const struct fbr_pin_wish *wish, const char *text)
{
    struct fbr_topology *t = open_any(source);
    char *is;

    assert_int_equal(ops->plan(t, wish, pins, note, sizeof(note), &error), 0);
    is = ops->draw(t, pins, wish->count, name_rank, NULL);
    ops->close(t);
    assert_non_null(is);
    assert_string_equal(is, text);
    free(is);
}

static void a_machine_is_drawn_with_its_ranks(void **state)
{
    expect_drawing("nvidia-2x2x8-4gpu", WISH(.count = 3, .gpus_per_rank = 1, .cpus_per_rank = 4),
                   "2 packages, 4 NUMA nodes, 32 cores, 32 hardware threads, 4 GPUs\n"
                   "package 0\n"
                   "  NUMA 0, 64 GiB, cores 0-7\n"
                   "    [0-3: r0] [4-7: free]\n"
                   "    GPU 0 0000:17:00.0: r0\n"
                   "  NUMA 1, 64 GiB, cores 8-15\n"
                   "    [8-11: r1] [12-15: free]\n"
                   "    GPU 1 0000:37:00.0: r1\n"
                   "package 1\n"
                   "  NUMA 2, 64 GiB, cores 16-23\n"
                   "    [16-19: r2] [20-23: free]\n"
                   "    GPU 2 0000:57:00.0: r2\n"
                   "  NUMA 3, 64 GiB, cores 24-31\n"
                   "    [24-31: free]\n"
                   "    GPU 3 0000:77:00.0: free\n");
    expect_drawing("only:0-3,16,18-20:asymmetric-4+8", WISH(.count = 7, .bind = FBR_BIND_HWTHREAD),
                   "2 packages, 1 NUMA node, 5 cores, 8 hardware threads, 0 GPUs that this process "
                   "may use; the machine "
                   "has more\n"
                   "NUMA 0, 1 GiB, cores 0-1,4-6\n"
                   "  package 0\n"
                   "    [0.0: r0] [0.1: r1] [1.0: r2] [1.1: r3]\n"
                   "  package 1\n"
                   "    [4: r4] [5.0: r5] [5.1: r6] [6: free]\n");
}

static void many_ranks_in_a_place_are_counted_and_lines_are_broken(void **state)
{
    expect_drawing("synthetic:pack:1 l3:2 core:2 pu:1",
                   WISH(.count = 6, .bind = FBR_BIND_L3, .map = FBR_MAP_L3),
                   "1 package, 1 NUMA node, 4 cores, 4 hardware threads, 0 GPUs\n"
                   "package 0\n"
                   "  NUMA 0, 1 GiB, cores 0-3\n"
                   "    L3 0\n"
                   "      [0-1: r0, r2, r4]\n"
                   "    L3 1\n"
                   "      [2-3: r1, r3, r5]\n");
    expect_drawing("synthetic:pack:1 core:2 pu:1", WISH(.count = 9),
                   "1 package, 1 NUMA node, 2 cores, 2 hardware threads, 0 GPUs\n"
                   "package 0\n"
                   "  NUMA 0, 1 GiB, cores 0-1\n"
                   "    [0-1: free]\n"
                   "not bound: r0, r1, r2 and 6 more\n");
    expect_drawing("synthetic:pack:1 core:12 pu:1", WISH(.count = 12),
                   "1 package, 1 NUMA node, 12 cores, 12 hardware threads, 0 GPUs\n"
                   "package 0\n"
                   "  NUMA 0, 1 GiB, cores 0-11\n"
                   "    [0: r0] [1: r1] [2: r2] [3: r3] [4: r4] [5: r5] [6: r6] [7: r7] [8: r8] "
                   "[9: r9] [10: r10]\n"
                   "    [11: r11]\n");
}

static void a_list_of_cores_that_is_too_long_is_drawn_as_such(void **state)
{
    expect_drawing("only:0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46:"
                   "synthetic:pack:1 core:48 pu:1",
                   WISH(.count = 1, .bind = FBR_BIND_PACKAGE),
                   "1 package, 1 NUMA node, 24 cores, 24 hardware threads, 0 GPUs that this "
                   "process may use; the machine has more\n"
                   "package 0\n"
                   "  NUMA 0, 1 GiB, cores 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,"
                   "40,...\n"
                   "    [0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,...: r0]\n");
}

/* No processor twice, unless they share; none that may not be used. */
static void expect_apart(unsigned count, bool own, const unsigned char *allowed, size_t bytes)
{
    unsigned char used[128] = {0}, mask[128] = {0};

    for (unsigned i = 0; i < count; i++) {
        int n = pins[i].cpus[0] ? fbr_pin_mask(pins[i].cpus, mask, sizeof(mask)) : 0;

        assert_true(n >= 0);
        for (int k = 0; k < n; k++) {
            assert_int_equal(own ? used[k] & mask[k] : 0, 0);
            used[k] |= mask[k];
            assert_int_equal(bytes ? mask[k] & ~((size_t)k < bytes ? allowed[k] : 0) : 0, 0);
        }
    }
}

/* Every map and binding on every machine: places exist, nobody is left out, the note says when
 * there are too few. */
static void all_wishes_on_all_machines(void **state)
{
    static const char *const machines[] = {"nvidia-2x2x8-4gpu",
                                           "nvidia-lopsided-2x1x16-4gpu",
                                           "nvidia-2x1x56-8gpu",
                                           "amd-1x4x16-8gpu",
                                           "hybrid-4big-8little",
                                           "no-gpu-1x1x2",
                                           "asymmetric-4+8",
                                           "only:1-5,9,16-20:nvidia-2x2x8-4gpu",
                                           "only:0-3,56-59,70:nvidia-2x1x56-8gpu"};
    static const unsigned counts[] = {1, 2, 5, 31, MOST};
    unsigned char mask[128];
    struct fbr_topology_facts facts;

    for (size_t m = 0; m < sizeof(machines) / sizeof(machines[0]); m++) {
        struct fbr_topology *t = open_recorded(machines[m]);
        unsigned char allowed[128] = {0};
        char only[64] = "";
        int bytes = 0;

        ops->facts(t, &facts);
        if (sscanf(machines[m], "only:%63[0-9,-]:", only) == 1)
            bytes = fbr_pin_mask(only, allowed, sizeof(allowed));
        for (unsigned n = 0; n < 5 * 7 * 8 * 3; n++) {
            struct fbr_pin_wish w = {.count = counts[n % 5],
                                     .bind = n / 5 % 7,
                                     .map = n / 35 % 8,
                                     .cpus_per_rank = n / 280 * 3,
                                     .gpus_per_rank = facts.gpus ? 1 : 0,
                                     .bind_memory = true};
            int rc = ops->plan(t, &w, pins, note, sizeof(note), &error);
            bool own = w.bind == FBR_BIND_CORE || w.bind == FBR_BIND_HWTHREAD;

            if (rc == -EINVAL &&
                ((w.map == FBR_MAP_GPU && !facts.gpus) || w.cpus_per_rank > facts.hwthreads))
                continue;
            assert_int_equal(rc, 0);
            assert_true(note[0] || !pins[0].shared);
            assert_true(pins[0].shared || (uint64_t)w.count * w.cpus_per_rank <= facts.hwthreads);
            expect_apart(w.count, own && !pins[0].shared && !note[0], allowed, (size_t)bytes);
            for (unsigned i = 0; i < w.count; i++) {
                assert_true(pins[i].where[0]);
                assert_int_equal(pins[i].ngpus, w.gpus_per_rank);
                if (!pins[i].cpus[0]) {
                    assert_true(w.bind == FBR_BIND_NONE || w.bind == FBR_BIND_DEFAULT);
                    continue;
                }
                rc = fbr_pin_mask(pins[i].cpus, mask, sizeof(mask));
                assert_true(rc > 0);
                assert_true(pins[i].nodes[0]);
            }
        }
        ops->close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_binding_is_as_wide_as_its_name),
        cmocka_unit_test(what_a_machine_does_not_show_is_taken_from_the_next_larger),
        cmocka_unit_test(numa_nodes_within_a_cache),
        cmocka_unit_test(the_default_is_cores_then_threads_then_nothing),
        cmocka_unit_test(too_many_that_must_be_bound_share_what_they_wanted),
        cmocka_unit_test(several_processors_are_whole_cores_in_one_place),
        cmocka_unit_test(more_processors_than_there_are),
        cmocka_unit_test(memory_is_bound_to_the_nodes_of_the_processors),
        cmocka_unit_test(memory_is_not_bound_to_nodes_without_memory),
        cmocka_unit_test(numbers_of_processors_are_the_kernels),
        cmocka_unit_test(each_map_deals_in_its_own_order),
        cmocka_unit_test(spread_is_as_far_apart_as_possible),
        cmocka_unit_test(packages_of_different_size_get_what_fits),
        cmocka_unit_test(strong_cores_come_first),
        cmocka_unit_test(only_what_may_be_used_is_used),
        cmocka_unit_test(facts_are_those_of_the_machine),
        cmocka_unit_test(wrong_sources_are_refused),
        cmocka_unit_test(this_machine_is_what_our_affinity_leaves),
        cmocka_unit_test(ranks_are_put_beside_their_gpus),
        cmocka_unit_test(gpus_in_another_order_than_numa_nodes),
        cmocka_unit_test(the_nearest_gpus_for_ranks_that_are_placed_otherwise),
        cmocka_unit_test(too_few_gpus_are_shared_and_none_is_an_error),
        cmocka_unit_test(a_topology_without_devices_says_so),
        cmocka_unit_test(each_gpu_has_its_nic),
        cmocka_unit_test(lists_that_we_were_given_are_kept_to),
        cmocka_unit_test(places_in_too_many_pieces_are_refused),
        cmocka_unit_test(a_machine_is_drawn_with_its_ranks),
        cmocka_unit_test(many_ranks_in_a_place_are_counted_and_lines_are_broken),
        cmocka_unit_test(a_list_of_cores_that_is_too_long_is_drawn_as_such),
        cmocka_unit_test(all_wishes_on_all_machines),
    };

    return cmocka_run_group_tests(tests, load, NULL);
}
