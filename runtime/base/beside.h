/* beside.h - what is not whole yet, in the folder where it is to be: a file or directory of a name that says so.
 *
 * The name is ".fiber-cp-BOOT-XXXXXX", BOOT from the kernel's boot id. Who makes one holds a lock on it (flock) as long
 * as its descriptor is open. Who was killed leaves it behind, unlocked; so whoever makes the next one in that folder
 * removes what is the same user's and has no lock, if it is of this boot, where locks are seen by all; else only what
 * has not been touched for a day, since a file system need not tell other hosts of a lock. Where it has no locks at
 * all, everything stays.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_BESIDE_H
#define FBR_BESIDE_H

#include <stdbool.h>
#include <stddef.h>

#define FBR_BESIDE ".fiber-cp-" /* begins the names of unfinished ones */
#define FBR_BESIDE_ROOM 64      /* that a name may be longer than the path that it is beside */

/* A new directory, or file, beside path, in `name`: its descriptor, or -errno. What others have left behind in that
 * folder is gone. */
int fbr_beside_dir(const char *path, char *name, size_t size);
int fbr_beside_file(const char *path, char *name, size_t size);
/* A file that has no name until fbr_beside_name() gives it one. -EOPNOTSUPP: the file system has no such files. */
int fbr_beside_nameless(const char *path);
int fbr_beside_name(int fd, const char *path, char *name, size_t size);
/* Whether `name`, in the folder `at`, is one that somebody goes on with: no part of the folder. */
bool fbr_beside_in_use(int at, const char *name);
/* It, and what is in it; what cannot be removed stays. */
void fbr_beside_remove(const char *name);

#endif
