/* json_out.h - writes JSON: commas, escapes and nothing else.
 *
 * A string of any bytes becomes valid JSON that is safe to show: bytes that are not well-formed
 * UTF-8 become U+FFFD, control characters become escapes. Numbers that JSON does not have
 * (infinities, NaN) become null.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/buf.h"

struct fbr_json {        /* zeros are an empty text */
    struct fbr_buf text; /* `failed`: out of memory */
    bool comma;          /* the next value on this level needs a comma */
};

/* Returns the text, NUL-terminated, which the caller frees; NULL without memory. Ends j. */
char *fbr_json_take(struct fbr_json *j);

/* In an object each value has a key, and none is an object. In an array the key is NULL. */
void fbr_json_object(struct fbr_json *j);
void fbr_json_array(struct fbr_json *j, const char *key);
void fbr_json_end_object(struct fbr_json *j);
void fbr_json_end_array(struct fbr_json *j);
void fbr_json_str(struct fbr_json *j, const char *key, const char *value); /* NULL: null */
void fbr_json_int(struct fbr_json *j, const char *key, int64_t value);
void fbr_json_double(struct fbr_json *j, const char *key, double value);
void fbr_json_bool(struct fbr_json *j, const char *key, bool value);
