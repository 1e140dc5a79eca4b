/* copy.h - a file through a stream of bytes, whole or not at all: both ends of `fiber cp`.
 *
 * The caller asks, the visited process (visitor.h) answers. Each message is u32 length, then
 *
 *     request   u8 op, u32 mode, str path, str name    name: of the file, should path be a directory
 *     answer    i32 code, u32 mode, str text           0, or a negative errno and a sentence
 *
 *     GET       request; answer; after a 0 the data, and an answer
 *     PUT       request; answer; after a 0 the caller's data; answer
 *     PUT_TREE  as PUT, of a directory (tree.h). One that is to be got is so with GET, if its mode has
 *               FBR_COPY_IS_TREE: the answer's has it, too, and its text is the directory's name
 *     STACK     request; answer, its text the host's name; after a 0 the records of stack.h as data; answer
 *
 * Data is pieces: u32 length, 1 to FBR_COPY_PIECE, and the bytes; 0: that was the whole file; FBR_COPY_BROKEN: it was
 * not, and an answer says why. A file is written beside its place (beside.h), without a name where the file system can,
 * and gets the name when all of it is there: what is cut off leaves nothing, and what was there before stays.
 *
 * Functions with a socket block; they are for threads of their own. The rest is pure.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_COPY_H
#define FBR_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/beside.h"
#include "runtime/base/buf.h"
#include "runtime/base/error.h"

#define FBR_COPY_PATH 4096
#define FBR_COPY_NAME 256
#define FBR_COPY_TEXT 512
#define FBR_COPY_MESSAGE (FBR_COPY_PATH + FBR_COPY_NAME + 64) /* a longer one is none of ours */
#define FBR_COPY_PIECE 65536u
#define FBR_COPY_BROKEN 0xffffffffu

enum fbr_copy_op { FBR_COPY_GET = 1, FBR_COPY_PUT, FBR_COPY_STACK, FBR_COPY_PUT_TREE };

#define FBR_COPY_IS_TREE 040000u /* in a mode: a directory, or that one may come (tree.h) */

struct fbr_copy_request {
    uint8_t op;
    uint32_t mode; /* of a PUT: permissions; of a GET: FBR_COPY_IS_TREE or 0 */
    char path[FBR_COPY_PATH], name[FBR_COPY_NAME];
};

struct fbr_copy_answer {
    int32_t code;
    uint32_t mode;
    char text[FBR_COPY_TEXT];
};

/* ---- Messages ---- */

void fbr_copy_put_request(struct fbr_buf *b, const struct fbr_copy_request *r);
void fbr_copy_put_answer(struct fbr_buf *b, const struct fbr_copy_answer *a);
/* The inside of one, behind its length. A name is no path. */
bool fbr_copy_get_request(struct fbr_cur *c, struct fbr_copy_request *r);
bool fbr_copy_get_answer(struct fbr_cur *c, struct fbr_copy_answer *a);

/* ---- Sockets ---- */

/* The inside of the next message, in `data`; errors as below. */
int fbr_copy_recv_message(int sock, uint8_t data[FBR_COPY_MESSAGE], struct fbr_cur *c);
/* The whole of a message; 0, or -errno: the other end is gone (-ECONNRESET), silent (-EAGAIN, on a socket with a
 * timeout), or what it says makes no sense (-EBADMSG). */
int fbr_copy_send(int sock, const struct fbr_buf *b);
int fbr_copy_recv_request(int sock, struct fbr_copy_request *r);
int fbr_copy_recv_answer(int sock, struct fbr_copy_answer *a);

/* Bytes of ours, in pieces, and their end. */
int fbr_copy_send_data(int sock, const void *data, size_t len);
/* All that come, at most max: 0; -EPIPE: they broke off, and the other end is about to say why; -EFBIG, -ENOMEM; else
 * as above. */
int fbr_copy_recv_data(int sock, struct fbr_buf *b, size_t max);

/* ---- Files ---- */

/* Opens a regular file to be sent; its permissions in *mode. */
int fbr_copy_open(const char *path, uint32_t *mode, struct fbr_error *err);
/* Sends it to its end. -EIO and a sentence: it could not be read, which the other end knows; other errors: as
 * fbr_copy_send(). */
int fbr_copy_send_file(int sock, int fd, struct fbr_error *err);

/* A file that comes. */
struct fbr_copy_file {
    int fd;
    bool named; /* beside its place: it must be removed */
    char path[FBR_COPY_PATH + FBR_COPY_NAME],
        beside[FBR_COPY_PATH + FBR_COPY_NAME + FBR_BESIDE_ROOM];
};

/* path may be a directory, "" this one; then the file gets `name` in it. */
int fbr_copy_begin(struct fbr_copy_file *f, const char *path, const char *name,
                   struct fbr_error *err);
/* Takes pieces until the whole is there: 0; -EPIPE: it is not, and the other end is about to say why. Others, with a
 * sentence: ours, or as fbr_copy_send(). */
int fbr_copy_recv_file(struct fbr_copy_file *f, int sock, struct fbr_error *err);
/* Gives it its name and permissions; also ends it. */
int fbr_copy_commit(struct fbr_copy_file *f, uint32_t mode, struct fbr_error *err);
void fbr_copy_drop(struct fbr_copy_file *f);

#endif
