/* http_codec.c - escapes texts for requests, and describes answers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/http/http.h"

/* Returns the character of the backslash sequence at *at; leaves *at on the last character of the
 * sequence. */
static char unescape(const char **at)
{
    char digits[5] = "";
    unsigned long c;

    if (!(*at)[1])
        return '\\';
    ++*at;
    if (**at != 'u')
        return strchr("bfnrt", **at) ? ' ' : **at;
    snprintf(digits, sizeof(digits), "%.4s", *at + 1);
    c = strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtoul(digits, NULL, 16) : 0;
    if (c)
        *at += 4;
    return c >= ' ' && c < 127 ? (char)c : '?';
}

/* Finds the value of "message" in an object without a parser, because the answer of a proxy may be
 * anything. */
const char *fbr_http_describe(const struct fbr_http_answer *a, char *out, size_t size)
{
    const char *at = a->body ? strstr(a->body, "\"message\":") : NULL;
    size_t n = 0;

    if (a->status == 0) {
        snprintf(out, size, "%s", a->why);
        return out;
    }
    at = at ? strchr(at + 10, '"') : NULL;
    if (!at) {
        snprintf(out, size, "HTTP status %d%s%.200s", a->status, a->len ? ": " : "", a->body);
        for (n = strlen(out); n > 0 && (unsigned char)out[n - 1] <= ' '; n--)
            out[n - 1] = '\0';
        while (n-- > 0)
            out[n] = (unsigned char)out[n] < ' ' ? ' ' : out[n];
        return out;
    }
    for (at++; *at && *at != '"' && n + 1 < size; at++)
        out[n++] = *at == '\\' ? unescape(&at) : (unsigned char)*at < ' ' ? ' ' : *at;
    out[n] = '\0';
    return out;
}
