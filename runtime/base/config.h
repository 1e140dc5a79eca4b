/* config.h - the configuration of one process: typed values with their origins.
 *
 * The value of a key comes from the first of these sources that has one:
 *
 *   1. a flag or code         fbr_config_set(), origin e.g. "--backend"
 *   2. the environment        FIBER_BACKEND=local; an empty variable counts as unset
 *   3. ./.fiberconfig         ignored with a warning if another user owns it or all may write it
 *   4. the user's file        $XDG_CONFIG_HOME/fiber/fiber.conf, or ~/.config/fiber/fiber.conf
 *   5. the system's file      /etc/fiber/fiber.conf
 *   6. the default
 *
 * A job takes its parent's configuration instead of sources 2 to 5, with fbr_config_new() and
 * fbr_config_get().
 *
 * Files are in the INI format of inih: `key = value` or `key: value`. A comment starts with ; or #;
 * behind a value there must be a blank before it. A line has at most 196 bytes. Keys stand in no
 * section or in [default], as in Uber's Fiber. The last of two equal keys wins. Leading blanks mean
 * nothing (inih alone would read the line as a continued value).
 *
 * A file that does not exist is no error, and a file that cannot be read is a warning. An invalid
 * line, an unknown key, a variable with nearly the name of a key's, and a value of the wrong type
 * are errors (-EINVAL). The text of the error names the file and line, or the variable, and the
 * nearest known key. Other variables FIBER_* may be of Fiber 0.2 or of another program.
 *
 * Types as they are written: bool true|false|yes|no|on|off|1|0; int 3; duration 500ms, 5s, 0.2s,
 * 2m, 1h; size 65536, 64Ki, 1.5Gi (powers of 1024) or 64K, 4G (powers of 1000); enum one of its
 * words; string any text.
 *
 * Threads: any thread may set and read at any time. A string that a caller has read stays valid and
 * unchanged until the configuration is freed, even when its key gets a new value.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/config_value.h"
#include "runtime/base/error.h"

/* Bounds of values, for the tables of keys. */
#define FBR_KIB 1024LL
#define FBR_MIB (1024 * FBR_KIB)
#define FBR_GIB (1024 * FBR_MIB)
#define FBR_HOUR_MS (3600 * 1000LL)
#define FBR_CONFIG_TEXT_MAX 4096  /* maximum length of a string */
#define FBR_CONFIG_LIST_MAX 65536 /* maximum length of a list of hosts, the longest value */
#define FBR_RUN_DIR_MAX 40        /* maximum length of run_dir: names of sockets are short */
/* Where sockets and runs are without XDG_RUNTIME_DIR: /tmp, or /dev/shm where /tmp is read-only, as
 * in containers with a read-only file system. */
const char *fbr_config_tmp(void);

/* The registry of backends defines these (backends/backends.c): the words of the key `backend`, and
 * the keys of the backend with that index. fbr_backend_keys() returns zero if there is no such
 * backend. */
extern const char fbr_backend_words[];
int fbr_backend_keys(size_t index, const struct fbr_config_key **keys, size_t *n);
/* Whether a backend gives its jobs a variable with that name. */
bool fbr_backend_variable(const char *name);

struct fbr_config;

/* Loads the defaults only. NULL: out of memory. */
struct fbr_config *fbr_config_new(void);
/* Loads the defaults, the files and the environment. On failure *config is NULL. Errors: -EINVAL or
 * -ENOMEM. */
int fbr_config_load(struct fbr_config **config, struct fbr_error *err);
/* The same in a process that has loaded its configuration before: prints no warnings again. */
int fbr_config_load_again(struct fbr_config **config, struct fbr_error *err);
void fbr_config_free(struct fbr_config *c); /* NULL is fine */

/* Sets one value as if a file had it. `origin` ("--backend", "fiber_init") begins the text of an
 * error, and fbr_config_origin() returns it. On failure (-EINVAL or -ENOMEM) the old value
 * stays. */
int fbr_config_set(struct fbr_config *c, const char *key, const char *value, const char *origin,
                   struct fbr_error *err);
/* Stores the path of the user's file, which need not exist. -ENOENT: neither HOME nor
 * XDG_CONFIG_HOME is set. */
int fbr_config_user_file(char *path, size_t size);
/* Reads any other INI file: calls pair() for each of its lines, in order. `key` begins with the
 * section, and `where` is "FILE:LINE". Checks the owner as strictly as for ./.fiberconfig. A
 * negative result of pair() stops the reading. */
int fbr_config_scan(const char *path,
                    int (*pair)(void *user, const char *key, const char *value, const char *where,
                                struct fbr_error *err),
                    void *user, struct fbr_error *err);
/* Sets the values from a text in memory (not NUL-terminated). Errors and origins call the text
 * `origin`. On failure the values from the lines before the invalid line stay set. */
int fbr_config_parse(struct fbr_config *c, const char *origin, const void *text, size_t len,
                     struct fbr_error *err);

/* These return values. A key that is not in the table or has another type is a bug of the caller
 * and aborts. */
bool fbr_config_bool(const struct fbr_config *c, const char *key);
/* for an enum: the index of the word */
int fbr_config_int(const struct fbr_config *c, const char *key);
int fbr_config_ms(const struct fbr_config *c, const char *key);
uint64_t fbr_config_size(const struct fbr_config *c, const char *key);
/* any type, as the text that was set */
const char *fbr_config_str(const struct fbr_config *c, const char *key);
/* The same, but returns NULL if there is no such key. */
const char *fbr_config_text(const struct fbr_config *c, const char *key);
/* Returns where the value came from: "default", "/etc/fiber/fiber.conf:3", "FIBER_BACKEND",
 * "parent", or the origin that fbr_config_set() got. */
const char *fbr_config_origin(const struct fbr_config *c, const char *key);

/* Returns all keys in display order: the keys of Fiber itself, then those of each backend. */
const struct fbr_config_key *fbr_config_keys(size_t *n);

/* Writes the values that are not defaults, for a child: u16 count, then count x (str name, str
 * value). fbr_config_get() reads them with the origin "parent". It returns -EBADMSG if the bytes
 * are not such a list (the cursor may then be anywhere), or an error of fbr_config_set(). */
void fbr_config_put(const struct fbr_config *c, struct fbr_buf *b);
int fbr_config_get(struct fbr_config *c, struct fbr_cur *cur, struct fbr_error *err);
