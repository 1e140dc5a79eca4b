/* pipe_frames.h - records over a stream of bytes between two processes of one host; pure, but for
 * allocation.
 *
 *     record    u64 length, bytes, zeros up to a multiple of 8
 *
 * so that a record lies 8-byte aligned in the buffer that it was read into.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_PIPE_FRAMES_H
#define FBR_PIPE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "runtime/base/buf.h"

/* A record as it is sent: its head, its parts, and the zeros behind it. */
#define FBR_PIPE_FRAMES_PARTS 2

struct fbr_pipe_frames_frame {
    uint8_t head[8];
    struct iovec iov[FBR_PIPE_FRAMES_PARTS + 2];
    int n;
};

/* Frames a record of n parts, FBR_PIPE_FRAMES_PARTS at most; the parts stay the caller's. */
void fbr_pipe_frames_frame(struct fbr_pipe_frames_frame *f, const struct iovec *parts, int n);
/* Notes that so many bytes were sent. True: all of them. */
bool fbr_pipe_frames_sent(struct fbr_pipe_frames_frame *f, size_t bytes);

/* Output that could not be sent at once. */
struct fbr_pipe_frames_out {
    struct fbr_buf bytes;
    size_t at; /* bytes of it that were sent */
};

/* Keeps the unsent rest of a frame. */
int fbr_pipe_frames_keep(struct fbr_pipe_frames_out *out, const struct fbr_pipe_frames_frame *f);
size_t fbr_pipe_frames_waiting(const struct fbr_pipe_frames_out *out, const void **bytes);
void fbr_pipe_frames_drop(struct fbr_pipe_frames_out *out,
                          size_t bytes); /* removes bytes that were sent */
void fbr_pipe_frames_out_fini(struct fbr_pipe_frames_out *out);

struct fbr_pipe_frames_in {
    uint8_t *data;
    size_t at, len, cap; /* records handed out, bytes there, room for */
    size_t limit;        /* longest record that is taken */
};

typedef void (*fbr_pipe_frames_fn)(void *user, const void *record, size_t len);

/* Returns where the next bytes go, *room of them at most; NULL: no memory. */
void *fbr_pipe_frames_room(struct fbr_pipe_frames_in *in, size_t *room);
/* Takes so many new bytes and hands out the records that are complete, each valid during the call.
 * -EMSGSIZE: a record above the limit. */
int fbr_pipe_frames_took(struct fbr_pipe_frames_in *in, size_t bytes, fbr_pipe_frames_fn fn,
                         void *user);
void fbr_pipe_frames_in_fini(struct fbr_pipe_frames_in *in);

#endif
