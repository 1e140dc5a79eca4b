/* fnref_fuzz.c - function references from hostile bytes: decoding, and resolving what was decoded.
 *
 * When the first byte is odd, the program's own build-id is put in, so that the offset is looked
 * at. Nothing that is resolved is called.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/proc/fnref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_cur c;
    struct fbr_fnref ref, own;
    struct fbr_error err = {0};
    void (*fn)(void);
    int rc;

    if (!size)
        return 0;
    c = fbr_cur(data + 1, size - 1);
    fbr_fnref_get(&c, &ref);
    if (!fbr_cur_ok(&c))
        return 0;
    if (ref.id_len == 0 || ref.id_len > FBR_FNREF_ID_MAX)
        abort();
    if (data[0] & 1 && !fbr_fnref_make(&own, (void (*)(void))LLVMFuzzerTestOneInput, NULL)) {
        own.offset = ref.offset;
        ref = own;
    }
    rc = fbr_fnref_resolve(&ref, &fn, &err);
    if (rc ? fn != NULL || rc != err.code || !err.text[0] : fn == NULL)
        abort();
    /* An address that was resolved must give the same reference back. */
    if (!rc && (fbr_fnref_make(&own, fn, NULL) || memcmp(&own, &ref, sizeof(own)) != 0))
        abort();
    return 0;
}
