/* text_file.h - small files that users write: as a whole, and line by line.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"

#define TEXT_FILE_MAX (1u << 20)

/* The caller frees `text`, which has no NUL at its end, and no byte order mark of UTF-8 at its
 * beginning. A message with the path if the file cannot be read, or is longer than TEXT_FILE_MAX
 * (-EFBIG). */
int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err);
/* Calls fn() for each line, without its newline; `where` is "ORIGIN:NUMBER". fn() may change the
 * line; a negative return value ends the reading. -EINVAL and a message for a line with a NUL. */
typedef int text_file_line(void *user, const char *where, char *line, struct fbr_error *err);
int text_file_lines(const char *origin, const char *text, size_t len, text_file_line *fn,
                    void *user, struct fbr_error *err);

/* The same for the lines of a file. */
int text_file_each(const char *path, text_file_line *fn, void *user, struct fbr_error *err);
