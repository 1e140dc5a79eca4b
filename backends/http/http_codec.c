/* http_codec.c - describes answers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backends/http/http.h"
#include "backends/http/json.h"

const char *fbr_http_describe(const struct fbr_http_answer *a, char *out, size_t size)
{
    struct json_t *j = a->status ? fbr_json_parse(a->body, a->len, NULL) : NULL;
    const char *message = fbr_json_text(j, "message", NULL);
    size_t n;

    if (a->status == 0)
        snprintf(out, size, "%s", a->why);
    else if (message[0])
        snprintf(out, size, "%s", message);
    else /* the answer of a proxy may be anything */
        snprintf(out, size, "HTTP status %d%s%.200s", a->status, a->len ? ": " : "", a->body);
    fbr_json_free(j);
    for (n = strlen(out); n > 0 && (unsigned char)out[n - 1] <= ' '; n--)
        out[n - 1] = '\0';
    while (n-- > 0)
        out[n] = (unsigned char)out[n] < ' ' ? ' ' : out[n];
    return out;
}
