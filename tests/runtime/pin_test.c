/* pin_test.c - names, masks, what the kernel says of a process, variables for GPUs. Plans:
 * pin_plan_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/pin/pin.h"

static struct fbr_error error;

static void names_are_known(void **state)
{
    assert_int_equal(fbr_pin_bind_named("default", NULL), FBR_BIND_DEFAULT);
    assert_int_equal(fbr_pin_bind_named("numa", NULL), FBR_BIND_NUMA);
    assert_int_equal(fbr_pin_map_named("default", NULL), FBR_MAP_DEFAULT);
    assert_int_equal(fbr_pin_map_named("gpu", NULL), FBR_MAP_GPU);
    assert_int_equal(fbr_pin_bind_named("package", NULL), FBR_BIND_PACKAGE);
    assert_int_equal(fbr_pin_map_named("compact", NULL), FBR_MAP_COMPACT);
    assert_int_equal(fbr_pin_bind_named("", &error), -EINVAL);
    assert_int_equal(fbr_pin_bind_named("cores", &error), -EINVAL);
    assert_string_equal(error.text, "binding to \"cores\" is not known; it is one of: default "
                                    "none hwthread core l3 numa package");
    assert_int_equal(fbr_pin_map_named("node", &error), -EINVAL);
    assert_string_equal(
        error.text,
        "mapping by \"node\" is not known; it is one of: default compact spread core l3 "
        "numa package gpu");
}

static void lists_become_masks(void **state)
{
    static const char *const wrong[] = {"",
                                        ",",
                                        "1,",
                                        ",1",
                                        "1-",
                                        "-1",
                                        "3-1",
                                        "0 1",
                                        "0-3:2/4",
                                        "a",
                                        "0\n",
                                        "1048576",
                                        "99999999999999999999"};
    uint64_t mask[4];

    memset(mask, 0xff, sizeof(mask));
    assert_int_equal(fbr_pin_mask("0-3,8", mask, sizeof(mask)), 8);
    assert_int_equal(mask[0], 0x10f);
    assert_int_equal(fbr_pin_mask("130,2,1-3", mask, sizeof(mask)), 24);
    assert_int_equal(mask[0], 0xe);
    assert_int_equal(mask[1], 0);
    assert_int_equal(mask[2], 4);
    assert_int_equal(fbr_pin_mask("63", mask, 8), 8);
    assert_int_equal(fbr_pin_mask("64", mask, 8), -E2BIG);
    assert_int_equal(fbr_pin_mask("1048575", mask, sizeof(mask)), -E2BIG);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(fbr_pin_mask(wrong[i], mask, sizeof(mask)), -EINVAL);
}

static void a_child_is_read_back_from_the_kernel(void **state)
{
    int ready[2], go[2], status, cpu = 0;
    struct fbr_pin_seen seen, own;
    char want[16], byte;
    cpu_set_t all;
    pid_t pid;

    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    assert_int_equal(pipe(ready) | pipe(go), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        unsigned long node = 1;

        close(go[1]);
        CPU_ZERO(&all);
        CPU_SET(cpu, &all);
        byte = sched_setaffinity(0, sizeof(all), &all) ? 'f' : 'a';
        if (byte == 'a' && !syscall(SYS_set_mempolicy, 2 /* bind */, &node, 64))
            byte = 'm';
        if (write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(fbr_pin_read(pid, &seen), 0);
    close(go[1]);
    close(ready[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_not_equal(byte, 'f');
    snprintf(want, sizeof(want), "%d", cpu);
    assert_string_equal(seen.cpus, want);
    if (byte == 'm' && seen.policy[0]) /* a kernel without NUMA has neither */
        assert_string_equal(seen.policy, "bind:0");
    else
        print_message("no memory policy here: \"%s\"\n", seen.policy);
    assert_int_equal(fbr_pin_read(getpid(), &own), 0);
    assert_true(own.cpus[0]);
    if (own.policy[0])
        assert_string_equal(own.policy, "default");
    assert_int_equal(fbr_pin_read(pid, &seen), -ESRCH);
}

static void the_devices_that_a_child_was_shown_are_read_back(void **state)
{
    char *const env[] = {(char *)"A=b", (char *)"CUDA_VISIBLE_DEVICES=2,3",
                         (char *)"MY_ROCR_VISIBLE_DEVICES=1", NULL};
    char *const argv[] = {(char *)"cat", NULL};
    struct fbr_pin_seen seen;
    int in[2], ran[2], status;
    char byte;
    pid_t pid;

    assert_int_equal(pipe(in) | pipe2(ran, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(in[0], 0);
        close(in[1]);
        execve("/bin/cat", argv, env);
        _exit(1);
    }
    close(ran[1]);
    assert_int_equal(read(ran[0], &byte, 1), 0); /* it has its program */
    assert_int_equal(fbr_pin_read(pid, &seen), 0);
    close(in[0]);
    close(in[1]);
    close(ran[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_string_equal(seen.gpus, "CUDA_VISIBLE_DEVICES=2,3");
}

/* An environment: name, value, ..., NULL. What is set is added to `out`. */
struct environment {
    const char *const *vars;
    char out[512];
};

static const char *look_up(void *user, const char *name)
{
    const struct environment *e = user;

    for (const char *const *v = e->vars; *v; v += 2)
        if (!strcmp(*v, name))
            return v[1];
    return NULL;
}

static void set_var(void *user, const char *name, const char *value)
{
    struct environment *e = user;

    snprintf(e->out + strlen(e->out), sizeof(e->out) - strlen(e->out), "%s%s=%s",
             e->out[0] ? " " : "", name, value);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void expect_env(enum fbr_gpu_vendor vendor, unsigned first, unsigned count,
                       const char *const *vars, const char *out)
{
    struct environment e = {.vars = vars};
    struct fbr_pin pin = {.ngpus = count};

    for (unsigned i = 0; i < count; i++)
        pin.gpus[i] = (struct fbr_pin_gpu){.vendor = vendor, .index = first + i};
    fbr_pin_gpu_env(&pin, look_up, set_var, &e);
    assert_string_equal(e.out, out);
}

static void variables_show_a_process_its_gpus(void **state)
{
    const char *visible[FBR_GPU_VENDORS];
    struct environment e = {.vars = ENV("CUDA_VISIBLE_DEVICES", "1", "ROCR_VISIBLE_DEVICES", "2",
                                        "HIP_VISIBLE_DEVICES", "3")};

    expect_env(FBR_GPU_NVIDIA, 0, 0, ENV(), "");
    expect_env(FBR_GPU_NVIDIA, 2, 2, ENV(),
               "CUDA_VISIBLE_DEVICES=2,3 CUDA_DEVICE_ORDER=PCI_BUS_ID");
    expect_env(FBR_GPU_AMD, 7, 1, ENV(), "ROCR_VISIBLE_DEVICES=7");
    expect_env(
        FBR_GPU_INTEL, 1, 1, ENV(),
        "ZE_AFFINITY_MASK=1 ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE");
    expect_env(FBR_GPU_NVIDIA, 1, 2, ENV("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b , MIG-c"),
               "CUDA_VISIBLE_DEVICES=MIG-b,MIG-c");
    expect_env(FBR_GPU_NVIDIA, 1, 1, ENV("CUDA_VISIBLE_DEVICES", "4,6"), "CUDA_VISIBLE_DEVICES=6");
    expect_env(FBR_GPU_NVIDIA, 5, 1, ENV("CUDA_VISIBLE_DEVICES", "4,6"), "CUDA_VISIBLE_DEVICES=");
    expect_env(FBR_GPU_AMD, 1, 1, ENV("HIP_VISIBLE_DEVICES", "2,3"), "HIP_VISIBLE_DEVICES=3");
    expect_env(FBR_GPU_INTEL, 1, 1, ENV("ZE_AFFINITY_MASK", "0.1,1.0"), "ZE_AFFINITY_MASK=1.0");
    fbr_pin_gpu_outer(look_up, &e, visible);
    assert_string_equal(visible[FBR_GPU_NVIDIA], "1");
    assert_string_equal(visible[FBR_GPU_AMD], "3");
    assert_null(visible[FBR_GPU_INTEL]);
}

static void who_shares_processors_shares_threads(void **state)
{
    static const struct fbr_pin pins[] = {{.cpus = "0-7"}, {.cpus = "8-11"}, {.cpus = "0-7"},
                                          {.cpus = ""},    {.cpus = "0-7"},  {.cpus = "12,14"},
                                          {.cpus = ""},    {.cpus = "15"},   {.cpus = "15"}};
    static const unsigned expected[] = {2, 0, 2, 0, 2, 0, 0, 1, 1};

    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(fbr_pin_threads(pins, 9, i), expected[i]);
    assert_int_equal(fbr_pin_threads(pins, 3, 2), 4);
    assert_int_equal(fbr_pin_threads(pins, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_known),
        cmocka_unit_test(lists_become_masks),
        cmocka_unit_test(a_child_is_read_back_from_the_kernel),
        cmocka_unit_test(the_devices_that_a_child_was_shown_are_read_back),
        cmocka_unit_test(variables_show_a_process_its_gpus),
        cmocka_unit_test(who_shares_processors_shares_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
