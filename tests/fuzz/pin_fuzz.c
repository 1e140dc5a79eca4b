/* pin_fuzz.c - lists of processors and of visible GPUs from hostile text.
 *
 * A list that is taken must have the bits that it names, and written anew it must read the same. Of
 * a list of GPUs each process gets entries of the list and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pin/cpulist.h"
#include "runtime/pin/pin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_list(const char *text)
{
    uint64_t mask[64], again[64];
    char out[FBR_PIN_LIST];
    struct fbr_cpulist list = {.out = out, .size = sizeof(out)};
    int rc = fbr_pin_mask(text, mask, sizeof(mask));

    if (rc == -EINVAL || rc == -E2BIG)
        return;
    if (rc <= 0 || rc % 8 || (size_t)rc > sizeof(mask))
        abort();
    for (unsigned i = 0; i < (unsigned)rc * 8; i++)
        if (mask[i / 64] >> i % 64 & 1)
            fbr_cpulist_add(&list, i);
    if (fbr_cpulist_end(&list)) /* too many that are no neighbours */
        return;
    if (fbr_pin_mask(out, again, sizeof(again)) != rc || memcmp(mask, again, (size_t)rc) != 0)
        abort();
}

static const char *look_up(void *user, const char *name)
{
    return strcmp(name, "HIP_VISIBLE_DEVICES") == 0 ? NULL : user;
}

static void set_var(void *user, const char *name, const char *value)
{
    char entry[256];

    for (const char *at = value; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");

        snprintf(entry, sizeof(entry), "%.*s", (int)n, at);
        if (n < sizeof(entry) && !strstr(user, entry))
            abort();
        at += n;
    }
}

static void check_gpus(const char *text)
{
    struct fbr_pin pin = {.ngpus = 3};

    for (int v = 0; v < FBR_GPU_VENDORS; v++) {
        for (unsigned i = 0; i < pin.ngpus; i++)
            pin.gpus[i] = (struct fbr_pin_gpu){.vendor = (enum fbr_gpu_vendor)v, .index = i * 2};
        fbr_pin_gpu_env(&pin, look_up, set_var, (void *)text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_list(text);
    check_gpus(text);
    fbr_pin_bind_named(text, NULL);
    fbr_pin_map_named(text, NULL);
    free(text);
    return 0;
}
