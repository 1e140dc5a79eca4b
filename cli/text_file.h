/* text_file.h - small files that people write: whole, and as variables.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

#include <stddef.h>

#include "runtime/base/error.h"

#define TEXT_FILE_MAX (1u << 20)

/* The caller frees `text`, which has no NUL at its end. A sentence with the path for what cannot be
 * read, or is longer than TEXT_FILE_MAX (-EFBIG). */
int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err);
/* Calls fn() for each line, without its end; `where` is "ORIGIN:NUMBER". It may write to the line,
 * and a negative answer ends the reading. -EINVAL and a sentence for a line with a NUL. */
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
 * during the call; a negative answer ends it. -EINVAL and a sentence with the line for what is no
 * such line. */
int env_file_parse(const char *origin, const char *text, size_t len,
                   int (*pair)(void *user, const char *name, const char *value), void *user,
                   struct fbr_error *err);
/* The same of a file. */
int env_file_read(const char *path, int (*pair)(void *user, const char *name, const char *value),
                  void *user, struct fbr_error *err);

#endif
