/* env_file.h - files of variables, as docker's --env-file takes them; pure.
 *
 *   # a comment
 *   NAME=VALUE      the value is all of the rest of the line, quotes too
 *   NAME            with its value here, if there is such a variable here
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ENV_FILE_H
#define CLI_ENV_FILE_H

#include <stddef.h>

#include "runtime/base/error.h"

/* Calls pair() for each variable in order; value NULL: only the name is given. The texts are valid during the call; a
 * negative answer ends it. -EINVAL and a sentence with the line for what is no such line. */
int env_file_parse(const char *origin, const char *text, size_t len,
                   int (*pair)(void *user, const char *name, const char *value), void *user,
                   struct fbr_error *err);
/* The same of a file. */
int env_file_read(const char *path, int (*pair)(void *user, const char *name, const char *value),
                  void *user, struct fbr_error *err);

#endif
