/* topology_gpu.c - decides what is a GPU for computation, and which GPUs of this machine may be
 * used.
 *
 * In a container, under a resource manager or without a driver, the PCI bus shows GPUs that no
 * program here can open. CUDA and ROCm do not count them, so they must not be counted here either.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/pin/topology.h"

bool fbr_gpu_vendor(unsigned pci_class, unsigned pci_vendor, enum fbr_gpu_vendor *vendor)
{
    bool display = pci_class >> 8 == 0x03, accelerator = pci_class == 0x1200;

    switch (pci_vendor) {
    case 0x10de:
        *vendor = FBR_GPU_NVIDIA;
        return display || accelerator;
    case 0x1002:
        *vendor = FBR_GPU_AMD;
        return display || accelerator;
    case 0x8086: /* Intel's accelerators are NPUs */
        *vendor = FBR_GPU_INTEL;
        return display;
    default:
        return false;
    }
}

/* Reads lines such as "Device Minor: \t 3" and "GPU UUID: \t GPU-...". */
static bool nvidia(const char *root, const struct fbr_pin_gpu *gpu, char *uuid, size_t size)
{
    char path[PATH_MAX], line[256], *value;
    int minor = -1;
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information", root, gpu->bus_id);
    f = fopen(path, "re");
    if (!f)
        return false;
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        while (isspace((unsigned char)*value))
            value++;
        if (!strcmp(line, "Device Minor"))
            minor = atoi(value);
        else if (!strcmp(line, "GPU UUID"))
            snprintf(uuid, size, "%s", value);
    }
    fclose(f);
    snprintf(path, sizeof(path), "%s/dev/nvidia%d", root, minor);
    return minor >= 0 && !access(path, R_OK | W_OK);
}

static bool drm(const char *root, const struct fbr_pin_gpu *gpu)
{
    char path[PATH_MAX];
    bool usable = false;
    glob_t nodes;

    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/drm/renderD*", root, gpu->bus_id);
    if (glob(path, GLOB_NOSORT, NULL, &nodes) != 0)
        return false;
    for (size_t i = 0; i < nodes.gl_pathc && !usable; i++) {
        snprintf(path, sizeof(path), "%s/dev/dri/%s", root, basename(nodes.gl_pathv[i]));
        usable = !access(path, R_OK | W_OK);
    }
    globfree(&nodes);
    return usable;
}

bool fbr_gpu_usable(const char *root, const struct fbr_pin_gpu *gpu, char *uuid, size_t size)
{
    return gpu->vendor == FBR_GPU_NVIDIA ? nvidia(root, gpu, uuid, size) : drm(root, gpu);
}
