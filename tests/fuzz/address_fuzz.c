/* address_fuzz.c - the address of an object from hostile bytes, and from hostile text.
 *
 * One kind takes it, or none does, and what was taken comes out the same when it is written again.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "share/share.h"

static void require(int holds)
{
    if (!holds)
        abort();
}

static void check_round_trip(const struct fbr_address *a, enum fbr_kind kind)
{
    struct fiber_address again;
    struct fbr_address back;

    require(fbr_address_put(a, &again) == 0);
    require(fbr_address_get(&back, &again, kind) == 0);
    require(back.kind == a->kind && back.flags == a->flags);
    require(back.owner == a->owner && back.object == a->object);
    require(memcmp(back.key, a->key, sizeof(a->key)) == 0 && strcmp(back.url, a->url) == 0);
}

static void check_text(const uint8_t *data, size_t size)
{
    char text[FIBER_ADDRESS_TEXT], *given = calloc(1, size + 1);
    struct fiber_address a, again;

    require(given != NULL);
    memcpy(given, data, size);
    if (fiber_address_parse(&a, given) == 0) {
        require(fiber_address_format(&a, text, sizeof(text)) == 0);
        require(fiber_address_parse(&again, text) == 0);
        require(memcmp(&a, &again, sizeof(a)) == 0);
    }
    free(given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fiber_address in = {{0}};
    struct fbr_address a;
    int taken = 0;

    check_text(data, size);
    memcpy(&in, data, size < sizeof(in) ? size : sizeof(in));
    for (int kind = FBR_KIND_QUEUE; kind <= FBR_KIND_RING; kind++) {
        int rc = fbr_address_get(&a, &in, (enum fbr_kind)kind);

        require(rc == 0 || (rc == -EINVAL && fiber_last_error()[0]));
        if (rc < 0)
            continue;
        taken++;
        check_round_trip(&a, (enum fbr_kind)kind);
    }
    require(taken <= 1);
    return 0;
}
