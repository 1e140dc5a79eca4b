/* text_file.h - small files that users write: as a whole, and as variables.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

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

/* ---- Variables, as docker's --env-file takes them; pure ----
 *
 *   # a comment
 *   NAME=VALUE      the value is all of the rest of the line, quotes too
 *   NAME            with its value here, if there is such a variable here
 */

/* Calls pair() for each variable in order; value NULL: only the name is given. The texts are valid
 * during the call; a negative return value ends the loop. -EINVAL and a message with the line if
 * the line is invalid. */
int env_file_parse(const char *origin, const char *text, size_t len,
                   int (*pair)(void *user, const char *name, const char *value), void *user,
                   struct fbr_error *err);
/* The same for a file. */
int env_file_read(const char *path, int (*pair)(void *user, const char *name, const char *value),
                  void *user, struct fbr_error *err);

#endif
