/* base64.c - decodes and encodes base64.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/http/base64.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

char *fbr_base64_encode(const void *data, size_t len)
{
    unsigned char *out = malloc((len + 2) / 3 * 4 + 1);

    if (out)
        EVP_EncodeBlock(out, data, (int)len);
    return (char *)out;
}

char *fbr_base64_decode(const char *text, size_t *len)
{
    unsigned char *out = malloc(strlen(text) / 4 * 3 + 4);
    EVP_ENCODE_CTX *ctx = EVP_ENCODE_CTX_new();
    int n = 0, last = 0, rc = -1;

    *len = 0;
    if (out && ctx && !strchr(text, '-')) { /* to OpenSSL, '-' ends the text */
        EVP_DecodeInit(ctx);
        rc = EVP_DecodeUpdate(ctx, out, &n, (const unsigned char *)text, (int)strlen(text));
    }
    if (rc >= 0)
        rc = EVP_DecodeFinal(ctx, out + n, &last);
    EVP_ENCODE_CTX_free(ctx);
    if (rc < 0) {
        free(out);
        return NULL;
    }
    *len = (size_t)(n + last);
    out[*len] = '\0';
    return (char *)out;
}
