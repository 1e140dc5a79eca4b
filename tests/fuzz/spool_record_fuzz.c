/* spool_record_fuzz.c - a file of a run's spool, read record by record; each is written and read again, and must be the
 * same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/inspect/spool_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_record r, again;
    size_t used, same;

    while (fbr_record_get(data, size, &r, &used) == 1) {
        struct fbr_buf b;

        fbr_buf_init(&b);
        fbr_record_put(&b, &r);
        if (b.failed || b.len != used || memcmp(b.data, data, used) != 0 ||
            fbr_record_get(b.data, b.len, &again, &same) != 1 || same != used ||
            again.time_us != r.time_us || again.len != r.len || again.rank != r.rank)
            abort();
        fbr_buf_fini(&b);
        data += used;
        size -= used;
    }
    return 0;
}
