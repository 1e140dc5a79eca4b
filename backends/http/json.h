/* json.h - JSON of the engines' APIs: reading by path, and making.
 *
 * A path is the keys from the top, NULL last: fbr_json_text(j, "State", "Error", NULL). If a key is
 * missing, or its value has another type, the result is the default. So unexpected data from a peer
 * has no effect.
 *
 * Only json.c uses jansson. A `struct json_t *` that a function returns is borrowed from its
 * parent, except for the functions that make one: fbr_json_parse(), fbr_json_pack() and
 * fbr_json_string().
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

struct json_t;

#define FBR_JSON_PATH __attribute__((sentinel))

/* Returns a new value, for fbr_json_free(); NULL, and a message with the position of the error.
 * Nesting is limited. */
struct json_t *fbr_json_parse(const char *text, size_t len, struct fbr_error *err);
void fbr_json_free(struct json_t *j); /* NULL is allowed */

/* Returns the value at the path, or NULL. */
struct json_t *fbr_json_at(const struct json_t *j, ...) FBR_JSON_PATH;
/* Returns "" if there is no text at the path. */
const char *fbr_json_text(const struct json_t *j, ...) FBR_JSON_PATH;
/* Returns a copy of a member's text, for free(); NULL if there is none, or it is "". */
char *fbr_json_dup(const struct json_t *object, const char *key);
int64_t fbr_json_int(const struct json_t *j, int64_t fallback, ...) FBR_JSON_PATH;
bool fbr_json_bool(const struct json_t *j, ...) FBR_JSON_PATH;

/* Converts a time (RFC 3339), "2026-11-21T16:05:00.5Z" or with "+01:00", to seconds since 1970; -1:
 * not a time. */
int64_t fbr_json_time(const char *text);

bool fbr_json_is_object(const struct json_t *j);
bool fbr_json_is_array(const struct json_t *j);

/* Whether it is an array or an object that is not empty. */
bool fbr_json_has_members(const struct json_t *j);
/* The size of an array, and an item of it; 0 and NULL for other types. */
size_t fbr_json_count(const struct json_t *array);
struct json_t *fbr_json_item(const struct json_t *array, size_t i);
/* Returns the first item of an array that is an object with this text as this member, or NULL. */
struct json_t *fbr_json_find(const struct json_t *array, const char *key, const char *text);
/* Calls fn() with each member of an object, in the object's order. */
void fbr_json_each(const struct json_t *object,
                   void (*fn)(void *user, const char *key, struct json_t *value), void *user);

/* Makes a value as json_pack() of jansson does: {s:s, s:i} and so on; NULL without memory, or when
 * a text is not UTF-8. */
struct json_t *fbr_json_pack(const char *format, ...);
/* Takes ownership of the value, also on failure. -ENOMEM; also when `value` is NULL, so one check
 * is enough for a chain of calls. */
int fbr_json_set(struct json_t *object, const char *key, struct json_t *value);
int fbr_json_append(struct json_t *array, struct json_t *value);
/* The same for an object or array that several steps make and that remembers its first failure: the
 * failure frees it and sets it to NULL; later steps only free their values. So only the result
 * needs a check. */
void fbr_json_put(struct json_t **object, const char *key, struct json_t *value);
void fbr_json_push(struct json_t **array, struct json_t *value);
/* Whether JSON can carry the text. */
bool fbr_json_utf8(const char *text);
/* Makes a text from bytes that need not be UTF-8: '?' replaces invalid bytes. */
struct json_t *fbr_json_string(const char *text);
/* Returns a copy that shares nothing with `j`, for fbr_json_free(); NULL without memory. */
struct json_t *fbr_json_copy(const struct json_t *j);
/* Merges `over` into `object` as RFC 7396 says (JSON Merge Patch). -ENOMEM. */
int fbr_json_merge(struct json_t *object, const struct json_t *over);
/* The same, and takes ownership of `over`; -ENOMEM also when it is NULL. */
int fbr_json_merge_new(struct json_t *object, struct json_t *over);
/* Prints compact JSON, NUL-terminated, for free(); NULL without memory. */
char *fbr_json_print(const struct json_t *j, size_t *len);

/* Reads lines of JSON from a stream; a line has at most FBR_JSON_LINE_MAX bytes, a longer line is
 * skipped. */
#define FBR_JSON_LINE_MAX (16u << 20)
struct fbr_json_lines {
    struct fbr_buf line;
    bool skip;
    bool lost; /* a line was skipped, or there was no memory for it */
};
void fbr_json_lines(struct fbr_json_lines *l, const void *data, size_t len,
                    void (*each)(void *user, const struct json_t *j), void *user);
