/* http_codec_fuzz.c - sentences about any answers, and escapes of any texts.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), say[60], *escaped;
    struct fbr_http_answer a = {.status = 500, .why = ""};

    memcpy(text, data, size);
    text[size] = '\0';
    a.body = text;
    a.len = size;
    for (size_t n = 1; n <= sizeof(say); n += 7)
        if (strlen(fbr_http_describe(&a, say, n)) >= n)
            abort();
    escaped = fbr_http_escape(text);
    if (strlen(escaped) < strlen(text))
        abort();
    free(escaped);
    free(text);
    return 0;
}
