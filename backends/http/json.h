/* json.h - JSON of the engines' APIs: reading by path, and making.
 *
 * A path is the keys from the top, NULL last: fbr_json_text(j, "State", "Error", NULL). A key that
 * is not there, or whose value has another type, answers the default: what a peer sent decides
 * nothing that we have not asked for.
 *
 * jansson is known to json.c alone. A `struct json_t *` that a function returns is borrowed from
 * its parent unless the function makes it: fbr_json_parse() and fbr_json_pack().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_JSON_H
#define FBR_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

struct json_t;

#define FBR_JSON_PATH __attribute__((sentinel))

/* A value of its own, for fbr_json_free(); NULL and a sentence that says where. Nesting and size
 * are limited. */
struct json_t *fbr_json_parse(const char *text, size_t len, struct fbr_error *err);
void fbr_json_free(struct json_t *j); /* NULL is fine */

/* The value there, or NULL. */
struct json_t *fbr_json_at(const struct json_t *j, ...) FBR_JSON_PATH;
/* "" when there is none. */
const char *fbr_json_text(const struct json_t *j, ...) FBR_JSON_PATH;
int64_t fbr_json_int(const struct json_t *j, int64_t fallback, ...) FBR_JSON_PATH;
bool fbr_json_bool(const struct json_t *j, ...) FBR_JSON_PATH;

/* A time as a text (RFC 3339), "2026-11-21T16:05:00.5Z" or with "+01:00", in seconds since 1970;
 * -1: it is none. */
int64_t fbr_json_time(const char *text);

bool fbr_json_is_object(const struct json_t *j);
bool fbr_json_is_array(const struct json_t *j);

/* For an array; 0 and NULL for anything else. */
size_t fbr_json_count(const struct json_t *array);
struct json_t *fbr_json_item(const struct json_t *array, size_t i);
/* Each member of an object, in its order. */
void fbr_json_each(const struct json_t *object,
                   void (*fn)(void *user, const char *key, struct json_t *value), void *user);

/* As json_pack() of jansson: {s:s, s:i} and so on; NULL without memory or when a text is not
 * UTF-8. */
struct json_t *fbr_json_pack(const char *format, ...);
/* Takes the value, also on failure. -ENOMEM; also when `value` is NULL, so that a chain is checked
 * once. */
int fbr_json_set(struct json_t *object, const char *key, struct json_t *value);
int fbr_json_append(struct json_t *array, struct json_t *value);
/* The same for an object or array that is being made by several steps and remembers its first
 * failure: that frees it and sets it to NULL, and later steps do nothing but take their values. So
 * only the result is checked. */
void fbr_json_put(struct json_t **object, const char *key, struct json_t *value);
void fbr_json_push(struct json_t **array, struct json_t *value);
/* Whether JSON can carry the text. */
bool fbr_json_utf8(const char *text);
/* A text that need not be UTF-8: what is not is replaced by '?'. */
struct json_t *fbr_json_string(const char *text);
/* Puts `over` into `object` as RFC 7396 says (JSON Merge Patch), but null removes. -ENOMEM. */
int fbr_json_merge(struct json_t *object, const struct json_t *over);
/* Compact, NUL-terminated, for free(); NULL without memory. */
char *fbr_json_print(const struct json_t *j, size_t *len);

/* Lines of JSON in a stream; a line is at most FBR_JSON_LINE_MAX bytes, a longer one is skipped. */
#define FBR_JSON_LINE_MAX (1u << 20)
struct fbr_json_lines {
    struct fbr_buf line;
    bool skip;
};
void fbr_json_lines(struct fbr_json_lines *l, const void *data, size_t len,
                    void (*each)(void *user, const struct json_t *j), void *user);

#endif
