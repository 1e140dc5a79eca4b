/* cpu_alloc.c - assigns processors and GPUs of this machine to local jobs.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/local/cpu_alloc.h"
#include "runtime/base/log.h"
#include "runtime/pin/pin.h"

struct fbr_cpu_allocs {
    const struct fbr_pin_ops *ops;
    struct fbr_topology *machine;
    struct fbr_topology_facts facts;
    const char *visible[FBR_GPU_VENDORS];
    uint8_t used[FBR_PLACE_CPUS / 8];
    uint64_t gpus_used;
    bool told; /* reported that there are more jobs than places */
};

int fbr_cpu_allocs_open(struct fbr_cpu_allocs **out, struct fbr_error *err)
{
    struct fbr_cpu_allocs *p = calloc(1, sizeof(*p));
    int rc;

    if (!p)
        return fbr_fail(err, -ENOMEM, "out of memory");
    p->ops = fbr_pin_load(err);
    rc = p->ops ? p->ops->open(&p->machine, NULL, FBR_TOPOLOGY_DEVICES, err) : -ENOTSUP;
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->ops->facts(p->machine, &p->facts);
    fbr_pin_gpu_outer(fbr_pin_getenv, NULL, p->visible);
    *out = p;
    return 0;
}

void fbr_cpu_allocs_close(struct fbr_cpu_allocs *p)
{
    if (!p)
        return;
    p->ops->close(p->machine);
    free(p);
}

static void set_env(void *user, const char *name, const char *value)
{
    struct fbr_cpu_alloc *place = user;
    size_t n = 0;

    while (place->env[n])
        n++;
    if (n + 1 < sizeof(place->env) / sizeof(place->env[0]) &&
        asprintf(&place->env[n], "%s=%s", name, value) < 0)
        place->env[n] = NULL;
}

static uint64_t gpus_of(const struct fbr_pin *pin)
{
    uint64_t mask = 0;

    for (unsigned i = 0; i < pin->ngpus; i++)
        if (pin->gpus[i].index < 64)
            mask |= UINT64_C(1) << pin->gpus[i].index;
    return mask;
}

static bool is_free(const struct fbr_cpu_allocs *p, const struct fbr_pin *pin, const uint8_t *mask,
                    int len)
{
    for (int i = 0; i < len; i++)
        if (p->used[i] & mask[i])
            return false;
    return !(p->gpus_used & gpus_of(pin));
}

/* Makes a place from a planned one. */
static struct fbr_cpu_alloc *occupy(struct fbr_cpu_allocs *p, const struct fbr_pin *pin,
                                    const uint8_t *mask, int len)
{
    struct fbr_cpu_alloc *place = calloc(1, sizeof(*place));

    if (!place)
        return NULL;
    memcpy(place->cpus, mask, (size_t)len);
    place->cpus_len = len;
    if (pin->nodes[0] && fbr_pin_mask(pin->nodes, &place->nodes, sizeof(place->nodes)) < 0)
        place->nodes = 0;
    fbr_pin_gpu_env(pin, fbr_pin_getenv, set_env, place);
    for (int i = 0; i < len; i++)
        p->used[i] |= mask[i];
    place->gpus = gpus_of(pin);
    p->gpus_used |= place->gpus;
    return place;
}

/* Divides the machine into as many such places as fit, at most `most`, and takes the first free
 * one; *out stays NULL if none is free. Negative: none fits. */
static int take_free(struct fbr_cpu_allocs *p, struct fbr_pin_wish *wish, unsigned most,
                     struct fbr_cpu_alloc **out, struct fbr_error *err)
{
    struct fbr_pin *pins = calloc(most ? most : 1, sizeof(*pins));
    bool binds = wish->bind != FBR_BIND_NONE;
    uint8_t mask[FBR_PLACE_CPUS / 8];
    char note[256] = "";
    int len, rc = 0;

    if (!pins)
        return fbr_fail(err, -ENOMEM, "out of memory");
    /* Threads may not divide evenly into whole cores: then there are fewer places. */
    for (wish->count = most; wish->count > 0; wish->count--)
        if ((rc = p->ops->plan(p->machine, wish, pins, note, sizeof(note), err)) == 0 &&
            (!binds || (!pins[0].shared && pins[0].cpus[0])))
            break;
    for (unsigned i = 0; i < wish->count && !*out; i++) {
        memset(mask, 0, sizeof(mask));
        len = binds ? fbr_pin_mask(pins[i].cpus, mask, sizeof(mask)) : 0;
        if ((len > 0 || !binds) && is_free(p, &pins[i], mask, len))
            *out = occupy(p, &pins[i], mask, len);
    }
    free(pins);
    return rc;
}

int fbr_cpu_allocs_take(struct fbr_cpu_allocs *p, unsigned cpus, unsigned gpus,
                        struct fbr_cpu_alloc **out, struct fbr_error *err)
{
    struct fbr_pin_wish wish = {.bind = FBR_BIND_CORE,
                                .cpus_per_rank = cpus ? cpus : 1,
                                .gpus_per_rank = gpus,
                                .bind_memory = true};
    unsigned room = p->facts.hwthreads / wish.cpus_per_rank;
    int rc;

    *out = NULL;
    if (gpus > p->facts.gpus)
        return fbr_fail(err, -ENODEV, "asks for %u GPU%s, but this machine has %u", gpus,
                        gpus == 1 ? "" : "s", p->facts.gpus);
    memcpy(wish.visible, p->visible, sizeof(wish.visible));
    if (gpus && p->facts.gpus / gpus < room)
        room = p->facts.gpus / gpus;
    take_free(p, &wish, room, out, err);
    if (*out)
        return 0;
    wish.bind = FBR_BIND_NONE;
    if (gpus && (rc = take_free(p, &wish, p->facts.gpus / gpus, out, err)) < 0)
        return rc;
    if (gpus && !*out)
        return fbr_fail(err, -EBUSY,
                        "asks for %u GPU%s, but too few are free: other jobs have them", gpus,
                        gpus == 1 ? "" : "s");
    if (!p->told)
        fbr_info("there are more jobs than free processors: some are not bound");
    p->told = true;
    return *out ? 0 : 1;
}

void fbr_cpu_allocs_leave(struct fbr_cpu_allocs *p, struct fbr_cpu_alloc *place)
{
    if (!place)
        return;
    for (int i = 0; i < place->cpus_len; i++)
        p->used[i] &= (uint8_t)~place->cpus[i];
    p->gpus_used &= ~place->gpus;
    for (size_t i = 0; place->env[i]; i++)
        free(place->env[i]);
    free(place);
}
