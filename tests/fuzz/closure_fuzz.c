/* closure_fuzz.c - texts like ld.so.conf: every word lies inside, and the end comes.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image/closure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size, *before = at;
    struct fbr_ld_conf w = {0};

    while (fbr_ld_conf_next(&at, end, &w)) {
        if (w.word < before || w.len == 0 || w.word + w.len > at || at > end)
            abort();
        for (size_t i = 0; i < w.len; i++)
            if (strchr(" \t\r\n:,#", w.word[i])) /* and NUL */
                abort();
        before = at;
    }
    if (at != end)
        abort();
    return 0;
}
