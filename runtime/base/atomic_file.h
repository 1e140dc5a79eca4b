/* atomic_file.h - temporary files and directories next to their final path, renamed into place when
 * complete.
 *
 * A temporary name is ".fiber-cp-BOOT-XXXXXX", where BOOT comes from the kernel's boot id. The
 * process that makes a temporary file holds a lock on the file (flock) as long as its descriptor is
 * open. A process that is killed leaves its file behind, unlocked. So the next process that makes a
 * temporary file in that folder removes unlocked files of the same user. Files of this boot go at
 * once, because every process of a boot sees the locks. Files of other boots go when they have not
 * changed for a day, because a file system may hide the locks of other hosts. Where the file system
 * has no locks, all files stay.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FBR_ATOMIC_PREFIX ".fiber-cp-" /* prefix of temporary names */
#define FBR_ATOMIC_ROOM 64             /* bytes by which a name may be longer than its final path */

/* Makes a directory, or a file, next to path and stores its name in `name`. Returns its descriptor,
 * or -errno. Removes the files that other processes left behind in that folder. */
int fbr_atomic_dir(const char *path, char *name, size_t size);
int fbr_atomic_file(const char *path, char *name, size_t size);
/* Opens a file that has no name until fbr_atomic_name() gives it one. -EOPNOTSUPP: the file system
 * does not support such files. */
int fbr_atomic_nameless(const char *path);
int fbr_atomic_name(int fd, const char *path, char *name, size_t size);
/* Whether `name`, in the folder `at`, is a temporary file that a process still writes. The caller
 * does not count the file as a part of the folder. */
bool fbr_atomic_in_use(int at, const char *name);
/* Removes a temporary file, or a directory with its contents. Entries that cannot be removed
 * stay. */
void fbr_atomic_remove(const char *name);
