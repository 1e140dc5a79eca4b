/* tree.h - sends and receives a file or a directory in messages (message.h), whole or not at all:
 * both ends of `fiber cp`.
 *
 * A file travels as DATA, and the receiver writes it as in atomic_file.h. A directory travels as
 * entries in the order of a walk. Each entry is a message with an item, whose mode holds the
 * permissions.
 *
 *     DIR     a directory; the entries up to its UP are in it
 *     FILE    its DATA follows
 *     LINK    a symbolic link to path
 *     UP      the end of a directory; that of the top directory is the last entry
 *
 * Names have no slash and are not "." or "..", so the receiver never follows a path of the other
 * end: it writes only to directories that it has just made, in a temporary directory next to the
 * final path (atomic_file.h), which gets its name at the end. The receiver makes links as they are,
 * and never follows them; it leaves out a link that leads out of the directory, or might. The
 * sender leaves out entries that are neither file, directory nor link. Permissions (0777) are kept;
 * owners and times are not. A file with several names becomes several files.
 *
 * Functions with a socket block; they are for threads of their own. The rest is pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/atomic_file.h"
#include "runtime/inspect/message.h"

#define FBR_TREE_DEPTH 64 /* levels of directories, one descriptor each */

/* Whether this can be the name of a directory's entry. */
bool fbr_tree_is_name(const char *name);
/* Whether a link stays within the top directory, if its own directory is `depth` levels below,
 * whatever links it passes: it may have ".." only at its beginning, and at most `depth` times. */
bool fbr_tree_stays(const char *target, unsigned depth);

/* ---- Files and directories: a mode with FBR_MSG_IS_TREE is that of a directory ---- */

/* Opens a regular file or a directory for sending; stores its mode in *mode, and its name, for a
 * receiver that has no name for it, in `name`. */
int fbr_tree_open(const char *path, uint32_t *mode, char name[FBR_MSG_NAME], struct fbr_error *err);
/* Sends all of it, and closes fd. *left: number of entries that were left out. -EIO and a sentence:
 * the file or an entry could not be read, and the caller reports that to the other end. Other
 * errors: as fbr_msg_send(). */
int fbr_tree_send(int sock, int fd, uint32_t mode, unsigned *left, struct fbr_error *err);

/* A file or a directory that is being received. */
struct fbr_tree {
    uint32_t mode;
    struct fbr_atomic file;
    /* of a directory: */
    int fd;
    unsigned links; /* links that were left out */
    char path[FBR_MSG_PATH + FBR_MSG_NAME], beside[FBR_MSG_PATH + FBR_MSG_NAME + FBR_ATOMIC_ROOM];
};

/* Begins to receive. If path is a directory ("" is the current one), the new file or directory
 * becomes `name` in it. -EEXIST: the final path exists, and is neither an empty directory that a
 * directory may replace, nor a regular file that a file may replace. */
int fbr_tree_begin(struct fbr_tree *t, const char *path, const char *name, uint32_t mode,
                   struct fbr_error *err);
/* Receives until the file or the directory is complete. Errors: its own, and those of
 * fbr_msg_recv(); then nothing of it is left. */
int fbr_tree_recv(struct fbr_tree *t, int sock, struct fbr_error *err);
/* Gives it its name and permissions, and closes it. */
int fbr_tree_commit(struct fbr_tree *t, struct fbr_error *err);
void fbr_tree_drop(struct fbr_tree *t);

/* Stores "left out: ..." for people, or "". */
void fbr_tree_describe_left(char *out, size_t size, unsigned links, unsigned specials);
