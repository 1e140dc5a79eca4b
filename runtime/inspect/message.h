/* message.h - messages between a client of a run's control socket and one of its processes: for
 * `fiber cp`, `stack` and `exec`.
 *
 * The client asks, and the target process (exec_server.c) answers. Each message is u32 length of
 * the rest, u8 kind, and
 *
 *     GET     item: path                    READY, then DATA or entries of a directory (tree.h),
 *                                           then DONE
 *     PUT     item: mode, name, path        READY; the client's DATA or entries; DONE. name: for
 *                                           the case that path is a directory
 *     STACK                                 DATA: records of stack.h; DONE with the host's name
 *     EXEC    see exec.h                    READY; DATA, ERRORS and TAKEN; DONE with the exit code
 *     READY   item: mode, name              the answer follows, or may be sent
 *     DATA    bytes                         of a file or a stream; none: its end
 *     ERRORS  bytes                         of a command's standard error
 *     TAKEN   u32                           bytes of DATA that the command has read
 *     DONE    i32 code, str text            the last one: 0, an exit code, or a negative errno and
 *                                           a sentence
 *
 * An item is u32 mode, str name, str path. An end that cannot go on sends a DONE with a negative
 * errno in place of any message; the text gives the reason.
 *
 * Functions with a socket block; they are for threads of their own. The rest is pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_MSG_PATH 4096
#define FBR_MSG_NAME 256
#define FBR_MSG_TEXT 512
#define FBR_MSG_MAX 65536u /* bytes after the kind */

enum fbr_msg_kind {
    FBR_MSG_GET = 1,
    FBR_MSG_PUT,
    FBR_MSG_STACK,
    FBR_MSG_EXEC,
    FBR_MSG_READY,
    FBR_MSG_DATA,
    FBR_MSG_ERRORS,
    FBR_MSG_TAKEN,
    FBR_MSG_DONE,
    FBR_MSG_DIR, /* entries: tree.h */
    FBR_MSG_FILE,
    FBR_MSG_LINK,
    FBR_MSG_UP,
};

#define FBR_MSG_IS_TREE 040000u /* set in a mode: a directory */

struct fbr_msg_item {
    uint32_t mode;
    char name[FBR_MSG_NAME], path[FBR_MSG_PATH];
};

/* A received message. Zero it before the first one, and call fbr_buf_fini(&m->bytes) after the
 * last. */
struct fbr_msg {
    uint8_t kind;
    struct fbr_cur body; /* valid until the next message */
    struct fbr_buf bytes;
};

/* False: the content is malformed, or the name has a slash. */
bool fbr_msg_get_item(struct fbr_cur *c, struct fbr_msg_item *i);
bool fbr_msg_get_done(struct fbr_cur *c, int *code, char text[FBR_MSG_TEXT]);

/* Sends the whole message. Returns 0 or -errno. -ECONNRESET: the other end is gone; -EMSGSIZE:
 * there are more than FBR_MSG_MAX bytes. */
int fbr_msg_send(int sock, enum fbr_msg_kind kind, const void *data, size_t len);
/* Sends the bytes in as many DATA messages as necessary, and then their end. */
int fbr_msg_send_data(int sock, const void *data, size_t len);
int fbr_msg_send_item(int sock, enum fbr_msg_kind kind, uint32_t mode, const char *name,
                      const char *path);
int fbr_msg_send_done(int sock, int code, const char *text);
void fbr_msg_put_done(struct fbr_buf *b, int code, const char *text); /* the same message */

/* Receives the next message. Returns its kind, or -errno and a sentence: the other end is gone
 * (-ECONNRESET), is silent (-EAGAIN, on a socket with a timeout), has sent a malformed message
 * (-EBADMSG), or cannot go on (the errno that it sent). */
int fbr_msg_recv(int sock, struct fbr_msg *m, struct fbr_error *err);
/* The same, for one kind of message. Returns 0 or -errno; another kind is -EBADMSG. */
int fbr_msg_expect(int sock, struct fbr_msg *m, enum fbr_msg_kind kind, struct fbr_error *err);
/* For a message whose content is malformed: returns -EBADMSG and the sentence. */
int fbr_msg_malformed(struct fbr_error *err);
