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

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

#define FBR_ATOMIC_PREFIX ".fiber-cp-" /* prefix of temporary names */
#define FBR_ATOMIC_ROOM 64             /* bytes by which a name may be longer than its final path */

/* A file that is being written: without a name if the file system can do that. */
struct fbr_atomic {
    int fd;
    bool named; /* it has a temporary name, and must be removed */
    char path[PATH_MAX + NAME_MAX], beside[PATH_MAX + NAME_MAX + FBR_ATOMIC_ROOM];
};

/* Begins a file. If path is a directory ("" is the current one), the file becomes `name` in it. If
 * path is a link, the file becomes the link's target. Removes the files that other processes left
 * behind in that folder. */
int fbr_atomic_begin(struct fbr_atomic *f, const char *path, const char *name,
                     struct fbr_error *err);
/* Gives the file its name and permissions, and closes it. After an error nothing of it is left, and
 * an existing file is as it was. */
int fbr_atomic_commit(struct fbr_atomic *f, unsigned mode, struct fbr_error *err);
void fbr_atomic_drop(struct fbr_atomic *f);
/* Closes and removes it after an error, which the message names with the final path. Returns rc. */
int fbr_atomic_fail(struct fbr_atomic *f, int rc, struct fbr_error *err);
/* Makes a directory next to path and stores its name in `name`. Returns its descriptor, or -errno.
 * Removes what other processes left behind in that folder. */
int fbr_atomic_dir(const char *path, char *name, size_t size);
/* Whether `name`, in the folder `at`, is a temporary file that a process still writes. The caller
 * does not count the file as a part of the folder. */
bool fbr_atomic_in_use(int at, const char *name);
/* Removes a temporary file, or a directory with its contents. Entries that cannot be removed
 * stay. */
void fbr_atomic_remove(const char *name);
