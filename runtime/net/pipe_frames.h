/* pipe_frames.h - frames records on a byte stream between two processes of one host; pure, except
 * that it allocates memory.
 *
 *     record    u64 length, bytes, zeros up to a multiple of 8
 *
 * So each record lies 8-byte aligned in the buffer that it was read into.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/uio.h>

#include "runtime/base/buf.h"

/* A record to send: its head, its parts, and the zeros behind it. */
#define FBR_PIPE_FRAMES_PARTS 2

struct fbr_pipe_frames_frame {
    uint8_t head[8];
    struct iovec iov[FBR_PIPE_FRAMES_PARTS + 2];
    int n;
};

/* Frames a record of n parts, at most FBR_PIPE_FRAMES_PARTS. The caller keeps the parts, which must
 * stay valid. */
void fbr_pipe_frames_frame(struct fbr_pipe_frames_frame *f, const struct iovec *parts, int n);
/* Records that this many bytes were sent. True: all bytes are sent. */
bool fbr_pipe_frames_sent(struct fbr_pipe_frames_frame *f, size_t bytes);

/* Output that could not be sent at once. */
struct fbr_pipe_frames_out {
    struct fbr_buf bytes;
    size_t at; /* how many of the bytes were sent */
};

/* Copies the unsent rest of a frame to the output. -ENOMEM. */
int fbr_pipe_frames_keep(struct fbr_pipe_frames_out *out, const struct fbr_pipe_frames_frame *f);
size_t fbr_pipe_frames_waiting(const struct fbr_pipe_frames_out *out, const void **bytes);
/* Removes bytes that were sent. */
void fbr_pipe_frames_drop(struct fbr_pipe_frames_out *out, size_t bytes);
void fbr_pipe_frames_out_fini(struct fbr_pipe_frames_out *out);

struct fbr_pipe_frames_in {
    uint8_t *data;
    size_t at, len, cap; /* end of the records passed on, end of the data, capacity */
    size_t limit;        /* longest record accepted */
};

typedef void (*fbr_pipe_frames_fn)(void *user, const void *record, size_t len);

/* Returns where to put the next bytes, at most *room of them. NULL: out of memory. */
void *fbr_pipe_frames_room(struct fbr_pipe_frames_in *in, size_t *room);
/* Handles this many new bytes and passes each complete record to fn; a record is valid during the
 * call. -EMSGSIZE: a record is longer than the limit. */
int fbr_pipe_frames_took(struct fbr_pipe_frames_in *in, size_t bytes, fbr_pipe_frames_fn fn,
                         void *user);
void fbr_pipe_frames_in_fini(struct fbr_pipe_frames_in *in);
