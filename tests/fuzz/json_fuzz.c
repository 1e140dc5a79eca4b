/* json_fuzz.c - JSON that an engine sent: parsed, read, merged and printed.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "backends/http/json.h"

static void look(void *user, const char *key, struct json_t *value)
{
    unsigned *depth = user;

    if (*depth < 20) {
        ++*depth;
        fbr_json_each(value, look, depth);
        --*depth;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_t *j = fbr_json_parse((const char *)data, size, NULL), *again;
    struct json_t *target = fbr_json_pack("{s:{s:i}}", "a", "b", 1);
    unsigned depth = 0;
    size_t len;
    char *text = calloc(1, size + 1), *printed;

    memcpy(text, data, size);
    fbr_json_free(fbr_json_string(text));
    if (j) {
        fbr_json_each(j, look, &depth);
        for (size_t i = 0; i < fbr_json_count(j); i++)
            fbr_json_text(fbr_json_item(j, i), "a", "b", NULL);
        fbr_json_int(j, 0, "a", NULL);
        fbr_json_merge(target, j);
        printed = fbr_json_print(j, &len);
        again = fbr_json_parse(printed, len, NULL);
        if (!again)
            abort(); /* what we print is JSON */
        fbr_json_free(again);
        free(printed);
    }
    fbr_json_free(target);
    fbr_json_free(j);
    free(text);
    return 0;
}
