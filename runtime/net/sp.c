/* sp.c - nanomsg's message framing over TCP and unix sockets.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/sp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MARK 1 /* first byte of a message over a unix socket */
#define LENGTH 8
#define REQUEST_ID 4
#define THE_REQUEST 0x80000001u /* the one request id of our clients, with its top bit set */

const uint8_t fbr_sp_rep_greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
const uint8_t fbr_sp_req_greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};

/* Returns the number of bytes before the length of a message. */
static size_t mark_of(const struct fbr_sp_in *in)
{
    return in->local ? 1 : 0;
}

/* Returns how far behind a multiple of 8 a message begins, so that its length field is aligned to
 * 8. */
static size_t lead_of(const struct fbr_sp_in *in)
{
    return in->local ? 7 : 0;
}

void *fbr_sp_room(const struct fbr_sp_in *in, uint8_t *scratch, size_t *room)
{
    if (in->data) {
        *room = in->whole - in->have;
        return in->data + lead_of(in) + in->have;
    }
    scratch += lead_of(in);
    memcpy(scratch, in->few, in->have);
    *room = FBR_SP_SCRATCH - lead_of(in) - in->have;
    return scratch + in->have;
}

static int greet(struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t *whole)
{
    size_t n = len < FBR_SP_GREETING ? len : FBR_SP_GREETING;

    *whole = FBR_SP_GREETING;
    if (memcmp(at, fbr_sp_req_greeting, n) != 0)
        return -EPROTO;
    in->greeted = n == FBR_SP_GREETING;
    return in->greeted;
}

/* Reads the length of the message that begins here. 1: the message is complete. */
static int measure(const struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t *whole)
{
    size_t mark = mark_of(in);
    uint64_t n;
    uint32_t id;

    *whole = mark + LENGTH;
    if (mark && at[0] != MARK)
        return -EPROTO;
    if (len < mark + LENGTH)
        return 0;
    memcpy(&n, at + mark, sizeof(n));
    n = be64toh(n);
    if (n < REQUEST_ID || n - REQUEST_ID > in->most)
        return -EMSGSIZE;
    *whole = mark + LENGTH + (size_t)n;
    if (len < mark + FBR_SP_HEAD)
        return 0;
    memcpy(&id, at + mark + LENGTH, sizeof(id));
    if (be32toh(id) != THE_REQUEST)
        return -EPROTO;
    return len >= *whole;
}

/* Keeps the beginning of an incomplete message. */
static int keep(struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t whole)
{
    in->have = len;
    if (whole <= FBR_SP_SHORT) {
        memcpy(in->few, at, len);
        return 0;
    }
    in->data = malloc(lead_of(in) + whole);
    if (!in->data)
        return -ENOMEM;
    in->whole = whole;
    memcpy(in->data + lead_of(in), at, len);
    return 0;
}

static int hand_out(const struct fbr_sp_in *in, uint8_t *at, size_t whole, fbr_sp_fn fn, void *user)
{
    size_t head = mark_of(in) + FBR_SP_HEAD;

    return fn(user, at + head, whole - head);
}

static int took_long(struct fbr_sp_in *in, size_t bytes, fbr_sp_fn fn, void *user)
{
    uint8_t *data = in->data, *at = data + lead_of(in);
    size_t whole;
    int rc;

    in->have += bytes;
    rc = measure(in, at, in->have, &whole);
    if (rc <= 0)
        return rc;
    in->data = NULL;
    in->have = 0;
    rc = hand_out(in, at, whole, fn, user);
    free(data);
    return rc < 0 ? rc : 0;
}

/* Moves a message back to an aligned address, if the messages before it had odd lengths. */
static uint8_t *align(const uint8_t *begin, uint8_t *at, size_t whole)
{
    size_t odd = (size_t)(at - begin) % 8;

    return odd ? memmove(at - odd, at, whole) : at;
}

int fbr_sp_took(struct fbr_sp_in *in, uint8_t *scratch, size_t bytes, fbr_sp_fn fn, void *user)
{
    uint8_t *begin = scratch + lead_of(in), *at = begin;
    size_t left = in->have + bytes, whole = 0;
    int rc = 0;

    if (in->data)
        return took_long(in, bytes, fn, user);
    in->have = 0;
    while (rc >= 0 && left) {
        bool greeting = !in->greeted;

        rc = greeting ? greet(in, at, left, &whole) : measure(in, at, left, &whole);
        if (rc == 0)
            return keep(in, at, left, whole);
        if (rc > 0 && !greeting)
            rc = hand_out(in, align(begin, at, whole), whole, fn, user);
        at += whole;
        left -= rc < 0 ? left : whole;
    }
    return rc < 0 ? rc : 0;
}

void fbr_sp_in_fini(struct fbr_sp_in *in)
{
    free(in->data);
    in->data = NULL;
    in->have = 0;
}

size_t fbr_sp_head(uint8_t head[FBR_SP_HEAD_MAX], size_t len, bool local)
{
    uint64_t n = htobe64(len + REQUEST_ID);
    uint32_t id = htobe32(THE_REQUEST);
    size_t mark = local ? 1 : 0;

    head[0] = MARK;
    memcpy(head + mark, &n, sizeof(n));
    memcpy(head + mark + LENGTH, &id, sizeof(id));
    return mark + FBR_SP_HEAD;
}

int fbr_sp_write(int fd, const void *msg, size_t len, size_t *sent, bool local)
{
    uint8_t head[FBR_SP_HEAD_MAX];
    size_t n_head = fbr_sp_head(head, len, local);

    while (*sent < n_head + len) {
        size_t of_head = *sent < n_head ? n_head - *sent : 0;
        size_t of_msg = *sent + of_head - n_head;
        struct iovec iov[2] = {{head + n_head - of_head, of_head},
                               {(uint8_t *)(uintptr_t)msg + of_msg, len - of_msg}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EINTR)
            return -errno;
        *sent += n > 0 ? (size_t)n : 0;
    }
    return 0;
}
