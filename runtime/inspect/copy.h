/* copy.h - a file in messages (message.h), whole or not at all: both ends of `fiber cp`.
 *
 * A file goes as DATA. It is written beside its place (atomic_file.h), without a name where the
 * file system can, and gets the name when all of it is there: what is cut off leaves nothing, and
 * what was there before stays.
 *
 * Functions with a socket block; they are for threads of their own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_COPY_H
#define FBR_COPY_H

#include "runtime/base/atomic_file.h"
#include "runtime/inspect/message.h"

/* Opens a regular file to be sent; its permissions in *mode. */
int fbr_copy_open(const char *path, uint32_t *mode, struct fbr_error *err);
/* Sends it to its end. -EIO and a sentence: it could not be read, which the other end is to be
 * told; other errors: as fbr_msg_send(). */
int fbr_copy_send_file(int sock, int fd, struct fbr_error *err);

/* A file that comes. */
struct fbr_copy_file {
    int fd;
    bool named; /* beside its place: it must be removed */
    char path[FBR_MSG_PATH + FBR_MSG_NAME], beside[FBR_MSG_PATH + FBR_MSG_NAME + FBR_ATOMIC_ROOM];
};

/* path may be a directory, "" this one; then the file gets `name` in it. */
int fbr_copy_begin(struct fbr_copy_file *f, const char *path, const char *name,
                   struct fbr_error *err);
/* Takes DATA until the whole is there; errors of ours and those of fbr_msg_recv(), after which
 * nothing of it is left. */
int fbr_copy_recv_file(struct fbr_copy_file *f, int sock, struct fbr_error *err);
/* Gives it its name and permissions; also ends it. */
int fbr_copy_commit(struct fbr_copy_file *f, uint32_t mode, struct fbr_error *err);
void fbr_copy_drop(struct fbr_copy_file *f);

#endif
