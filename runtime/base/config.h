/* config.h - the configuration of one process: typed values that know where they came from.
 *
 * A value comes from the first of these that has one:
 *
 *   1. a flag or code               fbr_config_set(), origin e.g. "--backend"
 *   2. the environment              FIBER_BACKEND=local; an empty variable counts as unset
 *   3. ./.fiberconfig               ignored with a warning if another user owns it or everyone may
 *     write it
 *   4. the user's file              $XDG_CONFIG_HOME/fiber/fiber.conf, or
 *     ~/.config/fiber/fiber.conf
 *   5. the system's file            /etc/fiber/fiber.conf
 *   6. the default
 *
 * A job takes its parent's configuration instead of 2 to 5: fbr_config_new() and fbr_config_get().
 *
 * Files are INI as inih reads it: `key = value` or `key: value`, comments start with ; or #, an
 * inline comment is " ;" (a space before it). A line has at most 196 bytes. Keys stand
 * in no section or in [default], as Uber's Fiber has it. The last of two equal keys wins. Leading
 * blanks mean nothing (inih would take them for a continued value).
 *
 * A file that does not exist is fine, one that cannot be read is a warning; a line that is wrong, a
 * key or FIBER_* variable that does not exist and a value of the wrong type are errors (-EINVAL),
 * whose text names file and line or the variable and the nearest known key.
 *
 * Types as they are written: bool true|false|yes|no|on|off|1|0; int 3; duration 500ms, 5s, 0.2s,
 * 2m, 1h; size 65536, 64Ki, 1.5Gi (powers of 1024) or 64K, 4G (of 1000); enum one of its words;
 * string anything.
 *
 * Threads: any may set and read at any time. A string that was read stays as it is, also when its
 * key is set anew.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_CONFIG_H
#define FBR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/config_value.h"
#include "runtime/base/error.h"

/* Bounds of values, for the tables of keys. */
#define FBR_KIB 1024LL
#define FBR_MIB (1024 * FBR_KIB)
#define FBR_GIB (1024 * FBR_MIB)
#define FBR_HOUR_MS (3600 * 1000LL)
#define FBR_CONFIG_TEXT_MAX 4096  /* length of a string */
#define FBR_CONFIG_LIST_MAX 65536 /* length of a list of hosts, the longest value */

/* The registry of backends defines these (backends/backends.c): the words of the key `backend`, and
 * the keys of the backend with that index. Zero: there is no such backend. */
extern const char fbr_backend_words[];
int fbr_backend_keys(size_t index, const struct fbr_config_key **keys, size_t *n);
/* Whether a backend gives its jobs a variable of that name. */
bool fbr_backend_variable(const char *name);

struct fbr_config;

/* Defaults only. NULL without memory. */
struct fbr_config *fbr_config_new(void);
/* Defaults, files and environment. On failure *config is NULL. -EINVAL or -ENOMEM. */
int fbr_config_load(struct fbr_config **config, struct fbr_error *err);
/* The same in a process that has loaded them before: it is not warned again. */
int fbr_config_load_again(struct fbr_config **config, struct fbr_error *err);
void fbr_config_free(struct fbr_config *c); /* NULL is fine */

/* Sets one value as if written in a file. `origin` ("--backend", "fiber_init") begins the text of
 * an error, and fbr_config_origin() returns it. -EINVAL or -ENOMEM, and the old value stays. */
int fbr_config_set(struct fbr_config *c, const char *key, const char *value, const char *origin,
                   struct fbr_error *err);
/* The path of the user's file, whether there is one or not. -ENOENT: neither HOME nor
 * XDG_CONFIG_HOME is set. */
int fbr_config_user_file(char *path, size_t size);
/* Reads any other INI file: calls pair() for each line of it in order, where `key` has its section
 * before it and `where` is "FILE:LINE". Checks the owner as strictly as for ./.fiberconfig. A
 * negative answer of pair() ends the reading. */
int fbr_config_scan(const char *path,
                    int (*pair)(void *user, const char *key, const char *value, const char *where,
                                struct fbr_error *err),
                    void *user, struct fbr_error *err);
/* Sets the values of a text in memory (not NUL-terminated), called `origin` in errors and origins.
 * On failure the lines before the wrong one have been taken. */
int fbr_config_parse(struct fbr_config *c, const char *origin, const void *text, size_t len,
                     struct fbr_error *err);

/* Return values. A key that is not in the table or has another type is a bug of the caller and
 * aborts. */
bool fbr_config_bool(const struct fbr_config *c, const char *key);
/* of an enum: the index of the word */
int fbr_config_int(const struct fbr_config *c, const char *key);
int fbr_config_ms(const struct fbr_config *c, const char *key);
uint64_t fbr_config_size(const struct fbr_config *c, const char *key);
/* any type, as it was written */
const char *fbr_config_str(const struct fbr_config *c, const char *key);
/* The same; NULL: there is no such key. */
const char *fbr_config_text(const struct fbr_config *c, const char *key);
/* "default", "/etc/fiber/fiber.conf:3", "FIBER_BACKEND", "parent" or the origin that
 * fbr_config_set() was given. */
const char *fbr_config_origin(const struct fbr_config *c, const char *key);

/* All keys, in the order in which to show them: those of Fiber itself, then those of each
 * backend. */
const struct fbr_config_key *fbr_config_keys(size_t *n);

/* Writes the values that are not defaults, for a child: u16 count, then count x (str name, str
 * value). fbr_config_get() takes them with the origin "parent". It returns -EBADMSG for bytes that
 * are not such a list (the cursor may then stand anywhere), or an error of fbr_config_set(). */
void fbr_config_put(const struct fbr_config *c, struct fbr_buf *b);
int fbr_config_get(struct fbr_config *c, struct fbr_cur *cur, struct fbr_error *err);

#endif
