/* atomic_file.h - temporary files and directories next to their final path, renamed into place when
 * complete.
 *
 * The name is ".fiber-cp-BOOT-XXXXXX", BOOT from the kernel's boot id. The process that makes a
 * temporary file holds a lock on it (flock) as long as its descriptor is open. A process that was
 * killed leaves its file behind, unlocked. So the next process that makes one in that folder
 * removes unlocked files of the same user: those of this boot, where all see the locks; of other
 * boots only files that nobody has touched for a day, since a file system need not tell other hosts
 * of a lock. Where the file system has no locks at all, everything stays.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_ATOMIC_H
#define FBR_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>

#define FBR_ATOMIC_PREFIX ".fiber-cp-" /* prefix of temporary names */
#define FBR_ATOMIC_ROOM 64             /* bytes by which a name may be longer than its final path */

/* Makes a directory, or file, next to path and stores its name in `name`: returns its descriptor,
 * or -errno. Removes the files that others have left behind in that folder. */
int fbr_atomic_dir(const char *path, char *name, size_t size);
int fbr_atomic_file(const char *path, char *name, size_t size);
/* Opens a file that has no name until fbr_atomic_name() gives it one. -EOPNOTSUPP: the file system
 * has no such files. */
int fbr_atomic_nameless(const char *path);
int fbr_atomic_name(int fd, const char *path, char *name, size_t size);
/* Whether `name`, in the folder `at`, is a temporary file that a process still writes; such a file
 * is not a part of the folder. */
bool fbr_atomic_in_use(int at, const char *name);
/* Removes a temporary file or directory with its contents; an entry that cannot be removed
 * stays. */
void fbr_atomic_remove(const char *name);

#endif
