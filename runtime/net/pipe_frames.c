/* pipe_frames.c - frames records on a byte stream.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/pipe_frames.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 8
#define ROOM (16 * 1024)    /* room to read while no long record is incomplete */
#define KEPT (1024 * 1024u) /* a longer buffer is freed when it is empty */

/* ---- Sending ---- */

void fbr_pipe_frames_frame(struct fbr_pipe_frames_frame *f, const struct iovec *parts, int n)
{
    uint64_t total = 0;

    f->n = 1;
    for (int i = 0; i < n; i++) {
        total += parts[i].iov_len;
        f->iov[f->n++] = parts[i];
    }
    f->iov[f->n++] = (struct iovec){(void *)(uintptr_t)fbr_zeros, fbr_pad8(total)};
    total = htole64(total);
    memcpy(f->head, &total, HEAD);
    f->iov[0] = (struct iovec){f->head, HEAD};
}

bool fbr_pipe_frames_sent(struct fbr_pipe_frames_frame *f, size_t bytes)
{
    size_t left = 0;

    for (int i = 0; i < f->n; i++) {
        size_t n = bytes < f->iov[i].iov_len ? bytes : f->iov[i].iov_len;

        f->iov[i].iov_base = (uint8_t *)f->iov[i].iov_base + n;
        f->iov[i].iov_len -= n;
        bytes -= n;
        left += f->iov[i].iov_len;
    }
    return left == 0;
}

int fbr_pipe_frames_keep(struct fbr_pipe_frames_out *out, const struct fbr_pipe_frames_frame *f)
{
    size_t before;

    /* Without this, the buffer would grow for ever if some bytes always wait. */
    if (out->at > out->bytes.len / 2) {
        out->bytes.len -= out->at;
        memmove(out->bytes.data, out->bytes.data + out->at, out->bytes.len);
        out->at = 0;
    }
    before = out->bytes.len;
    for (int i = 0; i < f->n; i++)
        if (f->iov[i].iov_len)
            fbr_put(&out->bytes, f->iov[i].iov_base, f->iov[i].iov_len);
    if (!out->bytes.failed)
        return 0;
    out->bytes.failed = false;
    out->bytes.len = before;
    return -ENOMEM;
}

size_t fbr_pipe_frames_waiting(const struct fbr_pipe_frames_out *out, const void **bytes)
{
    *bytes = out->bytes.data + out->at;
    return out->bytes.len - out->at;
}

void fbr_pipe_frames_drop(struct fbr_pipe_frames_out *out, size_t bytes)
{
    out->at += bytes;
    if (out->at < out->bytes.len)
        return;
    out->at = 0;
    if (out->bytes.cap > KEPT)
        fbr_buf_fini(&out->bytes);
    else
        fbr_buf_clear(&out->bytes);
}

void fbr_pipe_frames_out_fini(struct fbr_pipe_frames_out *out)
{
    fbr_buf_fini(&out->bytes);
    out->at = 0;
}

/* ---- Receiving ---- */

/* Reads the length of the record that begins at `at`. False: its head is incomplete. */
static bool peek(const struct fbr_pipe_frames_in *in, uint64_t *len)
{
    if (in->len - in->at < HEAD)
        return false;
    memcpy(len, in->data + in->at, HEAD);
    *len = le64toh(*len);
    return true;
}

static int need(struct fbr_pipe_frames_in *in, size_t cap)
{
    uint8_t *data;

    if (cap <= in->cap)
        return 0;
    data = realloc(in->data, cap);
    if (!data)
        return -ENOMEM;
    in->data = data;
    in->cap = cap;
    return 0;
}

void *fbr_pipe_frames_room(struct fbr_pipe_frames_in *in, size_t *room)
{
    size_t want = ROOM;
    uint64_t len;

    if (in->at == in->len && in->cap > KEPT)
        fbr_pipe_frames_in_fini(in);
    if (in->at) {
        memmove(in->data, in->data + in->at, in->len - in->at);
        in->len -= in->at;
        in->at = 0;
    }
    if (peek(in, &len) && HEAD + len + fbr_pad8(len) > want)
        want = HEAD + len + fbr_pad8(len);
    if (need(in, want) < 0)
        return NULL;
    *room = in->cap - in->len;
    return in->data + in->len;
}

int fbr_pipe_frames_took(struct fbr_pipe_frames_in *in, size_t bytes, fbr_pipe_frames_fn fn,
                         void *user)
{
    uint64_t len;

    in->len += bytes;
    while (peek(in, &len)) {
        if (len > in->limit)
            return -EMSGSIZE;
        if (in->len - in->at < HEAD + len + fbr_pad8(len))
            break;
        fn(user, in->data + in->at + HEAD, len);
        in->at += HEAD + len + fbr_pad8(len);
    }
    return 0;
}

void fbr_pipe_frames_in_fini(struct fbr_pipe_frames_in *in)
{
    free(in->data);
    in->data = NULL;
    in->at = in->len = in->cap = 0;
}
