/* copy.h - sends and receives a file in messages (message.h), whole or not at all.
 *
 * A file travels as DATA. The receiver writes a temporary file next to the final path
 * (atomic_file.h), without a name if the file system can do that, and gives it the final name when
 * it is complete. A transfer that is cut off leaves no file, and an existing file stays as it was.
 * `fiber image export` writes its file in the same way.
 *
 * Functions with a socket block; they are for threads of their own.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/atomic_file.h"
#include "runtime/inspect/message.h"

/* Sends the file to its end. -EIO and a sentence: the file could not be read, and the caller
 * reports that to the other end. Other errors: as fbr_msg_send(). */
int fbr_copy_send_file(int sock, int fd, struct fbr_error *err);

/* A file that is being received. */
struct fbr_copy_file {
    int fd;
    bool named; /* it has a temporary name, and must be removed */
    char path[FBR_MSG_PATH + FBR_MSG_NAME], beside[FBR_MSG_PATH + FBR_MSG_NAME + FBR_ATOMIC_ROOM];
};

/* Begins to receive a file. If path is a directory ("" is the current one), the file becomes `name`
 * in it. */
int fbr_copy_begin(struct fbr_copy_file *f, const char *path, const char *name,
                   struct fbr_error *err);
/* Receives DATA until the file is complete. Errors: its own, and those of fbr_msg_recv(); then
 * nothing of the file is left. */
int fbr_copy_recv_file(struct fbr_copy_file *f, int sock, struct fbr_error *err);
/* Gives the file its name and permissions, and closes it. */
int fbr_copy_commit(struct fbr_copy_file *f, uint32_t mode, struct fbr_error *err);
void fbr_copy_drop(struct fbr_copy_file *f);
