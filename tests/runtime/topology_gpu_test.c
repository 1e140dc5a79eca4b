/* topology_gpu_test.c - which PCI devices are GPUs, and which of them may be used, by files as the
 * kernel has them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/pin/topology_gpu.c" /* of the module; the library does not have it */
#include "tests/support/files.h"
#include "tests/support/sync.h"

static char root[64];

static int make_root(void **state)
{
    temp_dir_make(root);
    return 0;
}

static int remove_root(void **state)
{
    temp_dir_remove(root);
    return 0;
}

static void put(const char *name, const char *text)
{
    const char *path = path_in(root, name);

    folders_make(path);
    file_make(path, text, strlen(text), 0600);
}

static void classes_and_vendors(void **state)
{
    enum fbr_gpu_vendor vendor;

    assert_true(fbr_gpu_vendor(0x0302, 0x10de, &vendor));
    assert_int_equal(vendor, FBR_GPU_NVIDIA);
    assert_true(fbr_gpu_vendor(0x0300, 0x10de, &vendor));
    assert_true(fbr_gpu_vendor(0x1200, 0x1002, &vendor));
    assert_int_equal(vendor, FBR_GPU_AMD);
    assert_true(fbr_gpu_vendor(0x0380, 0x8086, &vendor));
    assert_int_equal(vendor, FBR_GPU_INTEL);
    assert_false(fbr_gpu_vendor(0x1200, 0x8086, &vendor)); /* an NPU */
    assert_false(fbr_gpu_vendor(0x0300, 0x1a03, &vendor)); /* ASPEED: a server's screen */
    assert_false(fbr_gpu_vendor(0x0300, 0x102b, &vendor)); /* Matrox: another */
    assert_false(fbr_gpu_vendor(0x0300, 0x1234, &vendor)); /* QEMU */
    assert_false(fbr_gpu_vendor(0x0403, 0x10de, &vendor)); /* a GPU's sound */
    assert_false(fbr_gpu_vendor(0x0680, 0x10de, &vendor)); /* an NVSwitch */
}

static void nvidia_needs_a_driver_and_a_device_file(void **state)
{
    struct fbr_pin_gpu gpu = {.vendor = FBR_GPU_NVIDIA, .bus_id = "0000:17:00.0"};
    char uuid[64] = "";

    assert_false(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    put("/proc/driver/nvidia/gpus/0000:17:00.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 153\nGPU UUID: \t "
        "GPU-4b6d7e1c-0000-1111-2222-333344445555\n"
        "Video BIOS: \t 96.00\nBus Location: \t 0000:17:00.0\nDevice Minor: \t 3\nGPU Excluded:\t "
        "No\n");
    assert_false(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    put("/dev/nvidia3", "");
    assert_true(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    assert_string_equal(uuid, "GPU-4b6d7e1c-0000-1111-2222-333344445555");
    put("/proc/driver/nvidia/gpus/0000:17:00.0/information", "no colon\n\n: \n");
    assert_false(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
}

static void others_need_a_render_node(void **state)
{
    struct fbr_pin_gpu gpu = {.vendor = FBR_GPU_AMD, .bus_id = "0000:c1:00.0"};
    char uuid[64] = "";

    assert_false(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    put("/sys/bus/pci/devices/0000:c1:00.0/drm/card1/dev", "");
    put("/sys/bus/pci/devices/0000:c1:00.0/drm/renderD129/dev", "");
    assert_false(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    put("/dev/dri/renderD129", "");
    assert_true(fbr_gpu_usable(root, &gpu, uuid, sizeof(uuid)));
    assert_string_equal(uuid, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_and_vendors),
        cmocka_unit_test(nvidia_needs_a_driver_and_a_device_file),
        cmocka_unit_test(others_need_a_render_node),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
