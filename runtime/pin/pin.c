/* pin.c - the parts of pinning that need no hwloc: names, masks, reports of the kernel, variables
 * for GPUs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pin/pin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/cpulist.h"
#include "runtime/base/config_value.h"
#include "runtime/base/environ.h"
#include "runtime/base/fds.h"
#include "runtime/program/module.h"

const struct fbr_pin_ops *fbr_pin_load(struct fbr_error *err)
{
    const struct fbr_pin_ops *ops = fbr_module("pin", err);

    if (!ops && err)
        fbr_wrap(err, "nothing can be bound to processors");
    return ops;
}

/* ---- Names ---- */

/* The words stand in the order of the values. */
static const char bind_words[] = "default none hwthread core l3 numa package";
static const char map_words[] = "default compact spread core l3 numa package gpu";

static int value_of(const char *words, const char *what, const char *name, struct fbr_error *err)
{
    int value = fbr_word_index(words, name);

    return value >= 0 ? value
                      : fbr_fail(err, -EINVAL, "%s \"%.64s\" is not known; it is one of: %s", what,
                                 name, words);
}

int fbr_pin_bind_named(const char *name, struct fbr_error *err)
{
    return value_of(bind_words, "binding to", name, err);
}

int fbr_pin_map_named(const char *name, struct fbr_error *err)
{
    return value_of(map_words, "mapping by", name, err);
}

/* ---- Masks ---- */

/* The kernel takes arrays of long. On little endian machines (buf.h) their bytes are in order. */
int fbr_pin_mask(const char *list, void *mask, size_t size)
{
    unsigned char *bytes = mask;
    unsigned first, last, high = 0;
    const char *at = list;
    size_t used;
    int rc, n = 0;

    for (; (rc = fbr_cpulist_next(&at, &first, &last)) > 0; n++)
        high = last > high ? last : high;
    if (rc < 0 || !n)
        return -EINVAL;
    used = (high / 64 + 1) * (size_t)8;
    if (used > size)
        return -E2BIG;
    memset(bytes, 0, used);
    for (at = list; fbr_cpulist_next(&at, &first, &last) > 0;)
        for (unsigned i = first; i <= last; i++)
            bytes[i / 8] |= (unsigned char)(1u << i % 8);
    return (int)used;
}

unsigned fbr_pin_threads(const struct fbr_pin *pins, unsigned count, unsigned at)
{
    const char *list = pins[at].cpus;
    unsigned first, last, cpus = 0, sharers = 0;

    for (unsigned i = 0; i < count && list[0]; i++)
        sharers += strcmp(pins[i].cpus, list) == 0;
    if (sharers <= 1)
        return 0;
    while (fbr_cpulist_next(&list, &first, &last) > 0)
        cpus += last - first + 1;
    return cpus > sharers ? cpus / sharers : 1;
}

/* ---- Reports of the kernel ---- */

static int read_affinity(int pid, char *out, size_t size)
{
    struct fbr_cpulist list = {.out = out, .size = size};
    struct fbr_cpuset set;
    int rc = fbr_cpuset_read(&set, pid);

    for (unsigned i = 0; rc == 0 && i < FBR_CPUSET_MAX; i++)
        if (fbr_cpuset_has(&set, i))
            fbr_cpulist_add(&list, i);
    return rc < 0 ? rc : fbr_cpulist_end(&list);
}

static bool is_gpu_list(const char *pair)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=",
                                        "HIP_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK=", NULL};

    return fbr_strings_begin(pair, names);
}

/* Reads the variables with which the process was started, because drivers follow them. The kernel
 * itself does not know them. */
static void read_gpus(int pid, char *out, size_t size)
{
    char path[64], *pair = NULL;
    size_t room = 0, len = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    f = fopen(path, "re");
    while (f && len < size && getdelim(&pair, &room, '\0', f) > 0)
        if (is_gpu_list(pair))
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? " " : "", pair);
    free(pair);
    if (f)
        fclose(f);
}

int fbr_pin_read(int pid, struct fbr_pin_seen *seen)
{
    char path[64], text[512], *at;
    int rc;

    memset(seen, 0, sizeof(*seen));
    rc = read_affinity(pid, seen->cpus, sizeof(seen->cpus));
    if (rc)
        return rc;
    /* "55d0c8a00000 bind:0 file=/usr/bin/cat mapped=2": a mapping without a policy itself shows the
     * policy of the process. */
    snprintf(path, sizeof(path), "/proc/%d/numa_maps", pid);
    if (fbr_fds_read_file(path, text, sizeof(text)) > 0 && (at = strchr(text, ' ')))
        snprintf(seen->policy, sizeof(seen->policy), "%.*s", (int)strcspn(at + 1, " \t\n"), at + 1);
    read_gpus(pid, seen->gpus, sizeof(seen->gpus));
    return 0;
}

/* ---- Variables for GPUs ---- */

const char *fbr_pin_getenv(void *user, const char *name)
{
    return fbr_getenv(name);
}

/* Returns the variable that lists the visible devices of a vendor. ROCm has two, and one selects
 * within the other: this returns the inner one, if it is set. */
static const char *variable(enum fbr_gpu_vendor vendor, fbr_pin_getenv_fn *outer, void *user)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "ZE_AFFINITY_MASK"};

    if (vendor == FBR_GPU_AMD && outer(user, "HIP_VISIBLE_DEVICES"))
        return "HIP_VISIBLE_DEVICES";
    return names[vendor];
}

void fbr_pin_gpu_outer(fbr_pin_getenv_fn *outer, void *user, const char *visible[FBR_GPU_VENDORS])
{
    for (int v = 0; v < FBR_GPU_VENDORS; v++)
        visible[v] = outer(user, variable((enum fbr_gpu_vendor)v, outer, user));
}

/* Appends entry `index` of a list, without the blanks around it. */
static void put_entry(char *out, size_t size, const char *list, unsigned index)
{
    size_t len = strlen(out);

    while (index && (list = strchr(list, ','))) {
        list++;
        index--;
    }
    if (!list)
        return;
    list += strspn(list, " ");
    snprintf(out + len, size - len, "%s%.*s", len ? "," : "", (int)strcspn(list, ", "), list);
}

void fbr_pin_gpu_env(const struct fbr_pin *pin, fbr_pin_getenv_fn *outer,
                     void (*set)(void *user, const char *name, const char *value), void *user)
{
    enum fbr_gpu_vendor vendor = pin->gpus[0].vendor;
    char value[FBR_PIN_GPUS * 128] = "";
    const char *name, *list;

    if (!pin->ngpus)
        return;
    name = variable(vendor, outer, user);
    list = outer(user, name);
    for (unsigned i = 0; i < pin->ngpus; i++) {
        size_t len = strlen(value);

        if (list)
            put_entry(value, sizeof(value), list, pin->gpus[i].index);
        else
            snprintf(value + len, sizeof(value) - len, "%s%u", len ? "," : "", pin->gpus[i].index);
    }
    set(user, name, value);
    /* The numbers in the list keep their meaning. */
    if (list)
        return;
    if (vendor == FBR_GPU_NVIDIA)
        set(user, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    if (vendor == FBR_GPU_INTEL) { /* otherwise each tile of a card has a number */
        set(user, "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1");
        set(user, "ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE");
    }
}
