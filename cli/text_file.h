/* text_file.h - a small file that people write, whole.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_FILE_H
#define CLI_TEXT_FILE_H

#include <stddef.h>

#include "runtime/base/error.h"

#define TEXT_FILE_MAX (1u << 20)

/* The caller frees `text`, which has no NUL at its end. A sentence with the path for what cannot be read, or is longer
 * than TEXT_FILE_MAX (-EFBIG). */
int text_file_read(const char *path, char **text, size_t *len, struct fbr_error *err);

#endif
