/* json_out.c - writes JSON: commas, escapes and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ring/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/printable.h"

char *fbr_json_take(struct fbr_json *j)
{
    j->comma = false;
    return fbr_buf_text(&j->text);
}

static void put(struct fbr_json *j, const char *s)
{
    fbr_put(&j->text, s, strlen(s));
}

static void put_string(struct fbr_json *j, const char *value)
{
    const unsigned char *s = (const unsigned char *)value;

    put(j, "\"");
    while (*s) {
        size_t n = fbr_printable_char(s);
        char escape[8];

        if (*s == '"' || *s == '\\') {
            snprintf(escape, sizeof(escape), "\\%c", *s);
            put(j, escape);
            n = 1;
        } else if (n) {
            fbr_put(&j->text, s, n);
        } else if (*s < 0x20 || *s == 0x7f) {
            snprintf(escape, sizeof(escape), *s == '\n' ? "\\n" : "\\u%04x", *s);
            put(j, escape);
            n = 1;
        } else {
            put(j, "\xef\xbf\xbd");
            n = 1;
        }
        s += n;
    }
    put(j, "\"");
}

static void before(struct fbr_json *j, const char *key)
{
    if (j->comma)
        put(j, ",");
    j->comma = true;
    if (key) {
        put_string(j, key);
        put(j, ":");
    }
}

void fbr_json_object(struct fbr_json *j)
{
    before(j, NULL);
    put(j, "{");
    j->comma = false;
}

void fbr_json_array(struct fbr_json *j, const char *key)
{
    before(j, key);
    put(j, "[");
    j->comma = false;
}

void fbr_json_end_object(struct fbr_json *j)
{
    put(j, "}");
    j->comma = true;
}

void fbr_json_end_array(struct fbr_json *j)
{
    put(j, "]");
    j->comma = true;
}

void fbr_json_str(struct fbr_json *j, const char *key, const char *value)
{
    before(j, key);
    if (value)
        put_string(j, value);
    else
        put(j, "null");
}

void fbr_json_int(struct fbr_json *j, const char *key, int64_t value)
{
    char text[32];

    before(j, key);
    snprintf(text, sizeof(text), "%" PRId64, value);
    put(j, text);
}

/* A locale may print a comma in place of the point. */
void fbr_json_double(struct fbr_json *j, const char *key, double value)
{
    char text[64], *point;

    before(j, key);
    if (!isfinite(value)) {
        put(j, "null");
        return;
    }
    snprintf(text, sizeof(text), "%.9g", value);
    point = strchr(text, ',');
    if (point)
        *point = '.';
    put(j, text);
}

void fbr_json_bool(struct fbr_json *j, const char *key, bool value)
{
    before(j, key);
    put(j, value ? "true" : "false");
}
