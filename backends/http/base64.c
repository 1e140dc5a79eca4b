/* base64.c - decodes and encodes base64.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/http/base64.h"

#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *fbr_base64_encode(const void *data, size_t len)
{
    const unsigned char *in = data;
    char *out = malloc((len + 2) / 3 * 4 + 1), *at = out;

    for (size_t i = 0; out && i < len; i += 3) {
        unsigned v = (unsigned)in[i] << 16 | (unsigned)(i + 1 < len ? in[i + 1] : 0) << 8 |
                     (i + 2 < len ? in[i + 2] : 0);

        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
        *at++ = i + 2 < len ? digits[v & 63] : '=';
    }
    if (out)
        *at = '\0';
    return out;
}

char *fbr_base64_decode(const char *text, size_t *len)
{
    char *out = malloc(strlen(text) / 4 * 3 + 4);
    unsigned v = 0;
    int bits = 0, pads = 0;

    *len = 0;
    for (; out && *text; text++) {
        const char *at = strchr(digits, *text);

        if (strchr(" \t\r\n", *text))
            continue;
        if (*text == '=') {
            pads++;
            continue;
        }
        if (!at || pads) {
            free(out);
            return NULL;
        }
        v = v << 6 | (unsigned)(at - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[(*len)++] = (char)(v >> bits & 255);
        }
    }
    if (out && (pads > 2 || bits >= 6)) {
        free(out);
        return NULL;
    }
    if (out)
        out[*len] = '\0';
    return out;
}
