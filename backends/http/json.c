/* json.c - reads and makes JSON, by jansson.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/http/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "runtime/base/printable.h"

struct json_t *fbr_json_parse(const char *text, size_t len, struct fbr_error *err)
{
    json_error_t e;
    json_t *j = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);

    if (!j)
        fbr_fail(err, -EBADMSG, "not JSON, at byte %d: %s", e.position, e.text);
    return j;
}

void fbr_json_free(struct json_t *j)
{
    json_decref(j);
}

static json_t *walk(const json_t *j, va_list path)
{
    const char *key;

    while (j && (key = va_arg(path, const char *)))
        j = json_object_get(j, key);
    return (json_t *)(uintptr_t)j;
}

struct json_t *fbr_json_at(const struct json_t *j, ...)
{
    va_list path;
    json_t *found;

    va_start(path, j);
    found = walk(j, path);
    va_end(path);
    return found;
}

const char *fbr_json_text(const struct json_t *j, ...)
{
    va_list path;
    const char *text;

    va_start(path, j);
    text = json_string_value(walk(j, path));
    va_end(path);
    return text ? text : "";
}

char *fbr_json_dup(const struct json_t *object, const char *key)
{
    const char *text = fbr_json_text(object, key, NULL);

    return text[0] ? strdup(text) : NULL;
}

int64_t fbr_json_int(const struct json_t *j, int64_t fallback, ...)
{
    va_list path;
    const json_t *found;

    va_start(path, fallback);
    found = walk(j, path);
    va_end(path);
    return json_is_integer(found) ? json_integer_value(found) : fallback;
}

bool fbr_json_bool(const struct json_t *j, ...)
{
    va_list path;
    const json_t *found;

    va_start(path, j);
    found = walk(j, path);
    va_end(path);
    return json_is_true(found);
}

bool fbr_json_is_object(const struct json_t *j)
{
    return json_is_object(j);
}

bool fbr_json_is_array(const struct json_t *j)
{
    return json_is_array(j);
}

size_t fbr_json_count(const struct json_t *array)
{
    return json_array_size(array);
}

bool fbr_json_has_members(const struct json_t *j)
{
    return json_array_size(j) || json_object_size(j);
}

struct json_t *fbr_json_item(const struct json_t *array, size_t i)
{
    return json_array_get(array, i);
}

struct json_t *fbr_json_find(const struct json_t *array, const char *key, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!strcmp(fbr_json_text(json_array_get(array, i), key, NULL), text))
            return json_array_get(array, i);
    return NULL;
}

void fbr_json_each(const struct json_t *object,
                   void (*fn)(void *user, const char *key, struct json_t *value), void *user)
{
    json_t *o = (json_t *)(uintptr_t)object, *value;
    const char *key;

    json_object_foreach(o, key, value) fn(user, key, value);
}

struct json_t *fbr_json_pack(const char *format, ...)
{
    va_list values;
    json_t *j;

    va_start(values, format);
    j = json_vpack_ex(NULL, 0, format, values);
    va_end(values);
    return j;
}

int fbr_json_set(struct json_t *object, const char *key, struct json_t *value)
{
    return json_object_set_new(object, key, value) < 0 ? -ENOMEM : 0;
}

int fbr_json_append(struct json_t *array, struct json_t *value)
{
    return json_array_append_new(array, value) < 0 ? -ENOMEM : 0;
}

/* If a step has failed, frees *j and sets it to NULL. */
static void keep_or_free(struct json_t **j, int rc)
{
    if (rc < 0) {
        json_decref(*j);
        *j = NULL;
    }
}

void fbr_json_put(struct json_t **object, const char *key, struct json_t *value)
{
    keep_or_free(object, fbr_json_set(*object, key, value));
}

void fbr_json_push(struct json_t **array, struct json_t *value)
{
    keep_or_free(array, fbr_json_append(*array, value));
}

bool fbr_json_utf8(const char *text)
{
    size_t n = 1;

    while (*text && (n = fbr_printable_utf8((const unsigned char *)text)) > 0)
        text += n;
    return n > 0;
}

struct json_t *fbr_json_string(const char *text)
{
    char *copy = strdup(text);
    json_t *j;
    size_t n;

    if (!copy)
        return NULL;
    for (char *s = copy; *s; s += n) {
        n = fbr_printable_utf8((unsigned char *)s);
        if (n == 0) {
            *s = '?';
            n = 1;
        }
    }
    j = json_string(copy);
    free(copy);
    return j;
}

struct json_t *fbr_json_copy(const struct json_t *j)
{
    return json_deep_copy(j);
}

int fbr_json_merge(struct json_t *object, const struct json_t *over)
{
    json_t *o = (json_t *)(uintptr_t)over, *value;
    const char *key;

    json_object_foreach(o, key, value)
    {
        json_t *mine = json_object_get(object, key);
        int rc = 0;

        if (json_is_null(value))
            json_object_del(object, key);
        else if (!json_is_object(value))
            rc = fbr_json_set(object, key, json_deep_copy(value));
        else if (json_is_object(mine) || (rc = fbr_json_set(object, key, json_object())) == 0)
            rc = fbr_json_merge(json_object_get(object, key), value);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int fbr_json_merge_new(struct json_t *object, struct json_t *over)
{
    int rc = over ? fbr_json_merge(object, over) : -ENOMEM;

    json_decref(over);
    return rc;
}

char *fbr_json_print(const struct json_t *j, size_t *len)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);

    if (len)
        *len = text ? strlen(text) : 0;
    return text;
}

int64_t fbr_json_time(const char *text)
{
    struct tm tm = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    struct tm zone = {0};

    if (!at)
        return -1;
    if (*at == '.')
        at += 1 + strspn(at + 1, "0123456789");
    at = strptime(at, "%z", &zone);
    return at && !*at ? (int64_t)timegm(&tm) - zone.tm_gmtoff : -1;
}

void fbr_json_lines(struct fbr_json_lines *l, const void *data, size_t len,
                    void (*each)(void *user, const struct json_t *j), void *user)
{
    const char *at = data, *end = at + len;

    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((nl ? nl : end) - at);

        if (l->line.len + n > FBR_JSON_LINE_MAX)
            l->skip = true;
        if (!l->skip)
            fbr_put(&l->line, at, n);
        at += n + (nl ? 1 : 0);
        if (!nl)
            continue;
        if (!l->skip && !l->line.failed && l->line.len) {
            struct json_t *j = fbr_json_parse((char *)l->line.data, l->line.len, NULL);

            if (j)
                each(user, j);
            fbr_json_free(j);
        }
        l->lost |= l->skip || l->line.failed;
        fbr_buf_fini(&l->line);
        l->skip = false;
    }
}
