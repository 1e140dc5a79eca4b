/* tree.h - a directory in messages (message.h), whole or not at all: the other half of `fiber cp`.
 *
 * A directory comes as entries in the order of a walk, each a message with an item: mode are the
 * permissions.
 *
 *     DIR     a directory, which what follows is in; UP ends it
 *     FILE    its DATA follows
 *     LINK    a symbolic link to path
 *     UP      this directory has no more; that of the whole: the end
 *
 * Names have no slash and are not "." or "..", so no path of the other end is ever followed here:
 * each directory is one that the receiver has just made, in a new one beside the place
 * (atomic_file.h), which gets its name at the end. Links are made as they are, and never followed;
 * one that leads out of the directory, or might, is left out by the receiver. The sender leaves out
 * entries that are neither file, directory nor link. Permissions are kept (0777), owners and times
 * are not; files with several names become several files.
 *
 * Functions with a socket block; they are for threads of their own. The rest is pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_TREE_H
#define FBR_TREE_H

#include "runtime/inspect/copy.h"

#define FBR_TREE_DEPTH 64 /* of directories in each other, one descriptor each */

/* A name of something in a directory. */
bool fbr_tree_is_name(const char *name);
/* Whether a link in a directory that is so many levels below the whole stays within it, whatever
 * links it leads over: ".." only at the beginning, and not more than that. */
bool fbr_tree_stays(const char *target, unsigned depth);

/* ---- Directories ---- */

/* Opens one that is to be sent: its permissions in *mode, and its name, for who has none, in name.
 * -ENOTDIR: a file. */
int fbr_tree_open(const char *path, uint32_t *mode, char name[FBR_MSG_NAME], struct fbr_error *err);
/* Sends it to its end, and closes fd. *left: files that were left out. -EIO and a sentence: it
 * could not be read, which the other end is to be told; other errors: as fbr_msg_send(). */
int fbr_tree_send(int sock, int fd, unsigned *left, struct fbr_error *err);

/* One that comes. */
struct fbr_tree {
    int fd;
    unsigned links; /* left out */
    char path[FBR_MSG_PATH + FBR_MSG_NAME], beside[FBR_MSG_PATH + FBR_MSG_NAME + FBR_ATOMIC_ROOM];
};

/* path may be a directory, "" this one; then it becomes `name` in it. -EEXIST: something is there.
 */
int fbr_tree_begin(struct fbr_tree *t, const char *path, const char *name, struct fbr_error *err);
/* Takes entries until the whole is there; errors as fbr_copy_recv_file(), after which nothing of it
 * is left. */
int fbr_tree_recv(struct fbr_tree *t, int sock, struct fbr_error *err);
/* Gives it its name and permissions; also ends it. */
int fbr_tree_commit(struct fbr_tree *t, uint32_t mode, struct fbr_error *err);
void fbr_tree_drop(struct fbr_tree *t);

/* "left out: ..." for people, or "". */
void fbr_tree_describe_left(char *out, size_t size, unsigned links, unsigned specials);

#endif
