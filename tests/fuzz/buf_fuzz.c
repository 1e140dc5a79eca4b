/* buf_fuzz.c - the cursor: the input is a program of reads (one byte each) and the bytes that it
 * reads.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/buf.h"

static void read_one(struct fbr_cur *c, unsigned op)
{
    char text[16];
    const void *p;
    size_t len;

    switch (op % 7) {
    case 0:
        fbr_get_u8(c);
        break;
    case 1:
        fbr_get_u16(c);
        break;
    case 2:
        fbr_get_u32(c);
        break;
    case 3:
        fbr_get_u64(c);
        break;
    case 4:
        p = fbr_get_bytes(c, &len);
        if (p && len && ((const uint8_t *)p)[len - 1] == 0xff) /* touches the last byte */
            return;
        break;
    case 5:
        fbr_get_str(c, text, sizeof(text));
        if (strlen(text) >= sizeof(text))
            abort();
        break;
    case 6:
        free(fbr_get_strdup(c, 64));
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t ops = size ? data[0] % 16 : 0;
    struct fbr_cur c;

    if (size < 1 + ops)
        return 0;
    c = fbr_cur(data + 1 + ops, size - 1 - ops);
    for (size_t i = 0; i < ops; i++)
        read_one(&c, data[1 + i]);
    if (c.at > c.end)
        abort();
    return 0;
}
