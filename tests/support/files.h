/* files.h - files that tests make and look at.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* "dir/name"; the text lasts until the eighth call from now. */
const char *path_in(const char *dir, const char *name);
/* Makes the folders above that path, those that are not there. */
void folders_make(const char *path);
/* A file with these bytes and permissions, whatever the umask is; one that is there is replaced. */
void file_make(const char *path, const void *data, size_t len, mode_t mode);
/* The test fails unless that file has just these bytes and permissions. */
void file_expect(const char *path, const void *data, size_t len, mode_t mode);
