/* config_set.h - writes one setting into the user's file.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"

/* Returns the text of a file with `key` set to `value`. The new line replaces the first line that
 * sets `key` outside of a section, or follows all such lines; other lines that set `key` are
 * removed. `text` may be NULL, with len 0. A new string, or NULL without memory. */
char *config_set_text(const char *text, size_t len, const char *key, const char *value);

/* Checks the value, and replaces the user's fiber.conf; `path` becomes the path of that file. */
int config_set(const char *key, const char *value, char *path, size_t size, struct fbr_error *err);
