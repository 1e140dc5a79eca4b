/* config_set.h - writes one setting into the user's file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CONFIG_SET_H
#define CLI_CONFIG_SET_H

#include <stddef.h>

#include "runtime/base/error.h"

/* The text of a file with `key` set to `value`: in the place of the first line that sets it outside
 * of a section, or behind all such lines; other lines that set it are gone. `text` may be NULL,
 * with len 0. A new string, or NULL without memory. */
char *config_set_text(const char *text, size_t len, const char *key, const char *value);

/* Checks the value, and replaces the user's fiber.conf, whose path is put into `path`. */
int config_set(const char *key, const char *value, char *path, size_t size, struct fbr_error *err);

#endif
