/* config_fuzz.c - configuration from hostile bytes: the INI text of a file, and the list that a
 * parent sends.
 *
 * The first byte chooses. What was taken is written and read back: it must come out the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A second configuration that is given what the first holds must hold the same. */
static void copy_check(const struct fbr_config *c)
{
    struct fbr_config *copy = fbr_config_new();
    const struct fbr_config_key *keys;
    struct fbr_buf b;
    struct fbr_cur cur;
    size_t n;

    fbr_buf_init(&b);
    fbr_config_put(c, &b);
    cur = fbr_cur(b.data, b.len);
    if (!copy || fbr_config_get(copy, &cur, NULL) || fbr_cur_left(&cur))
        abort();
    keys = fbr_config_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(fbr_config_str(c, keys[i].name), fbr_config_str(copy, keys[i].name)))
            abort();
    fbr_buf_fini(&b);
    fbr_config_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fbr_config *c = fbr_config_new();
    struct fbr_error err = {0};
    struct fbr_cur cur;
    int rc;

    if (!c || !size) {
        fbr_config_free(c);
        return 0;
    }
    if (data[0] & 1) {
        cur = fbr_cur(data + 1, size - 1);
        rc = fbr_config_get(c, &cur, &err);
    } else {
        rc = fbr_config_parse(c, "fuzz", data + 1, size - 1, &err);
    }
    if (rc && (rc != err.code || !err.text[0]))
        abort();
    copy_check(c);
    fbr_config_free(c);
    return 0;
}
