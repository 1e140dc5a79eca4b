/* sp.c - the framing of nanomsg's messages over TCP.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "runtime/net/sp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 8
#define REQUEST_ID 4
#define THE_REQUEST 0x80000001u /* the one request id of our clients, with its top bit set */

const uint8_t fbr_sp_rep_greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
static const uint8_t req_greeting[FBR_SP_GREETING] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};

void *fbr_sp_room(const struct fbr_sp_in *in, uint8_t *scratch, size_t *room)
{
    if (in->data) {
        *room = in->whole - in->have;
        return in->data + in->have;
    }
    memcpy(scratch, in->few, in->have);
    *room = FBR_SP_SCRATCH - in->have;
    return scratch + in->have;
}

static int greet(struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t *whole)
{
    size_t n = len < FBR_SP_GREETING ? len : FBR_SP_GREETING;

    *whole = FBR_SP_GREETING;
    if (memcmp(at, req_greeting, n) != 0)
        return -EPROTO;
    in->greeted = n == FBR_SP_GREETING;
    return in->greeted;
}

/* Reads the length of the message that begins here. 1: all of it is there. */
static int measure(const struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t *whole)
{
    uint64_t n;
    uint32_t id;

    *whole = LENGTH;
    if (len < LENGTH)
        return 0;
    memcpy(&n, at, sizeof(n));
    n = be64toh(n);
    if (n < REQUEST_ID || n - REQUEST_ID > in->most)
        return -EMSGSIZE;
    *whole = LENGTH + (size_t)n;
    if (len < FBR_SP_HEAD)
        return 0;
    memcpy(&id, at + LENGTH, sizeof(id));
    if (be32toh(id) != THE_REQUEST)
        return -EPROTO;
    return len >= *whole;
}

/* Keeps the beginning of a message that is not whole. */
static int keep(struct fbr_sp_in *in, const uint8_t *at, size_t len, size_t whole)
{
    in->have = len;
    if (whole <= FBR_SP_SHORT) {
        memcpy(in->few, at, len);
        return 0;
    }
    in->data = malloc(whole);
    if (!in->data)
        return -ENOMEM;
    in->whole = whole;
    memcpy(in->data, at, len);
    return 0;
}

static int hand_out(uint8_t *at, size_t whole, fbr_sp_fn fn, void *user)
{
    return fn(user, at + FBR_SP_HEAD, whole - FBR_SP_HEAD);
}

/* Takes the next bytes of the long message. */
static int took_long(struct fbr_sp_in *in, size_t bytes, fbr_sp_fn fn, void *user)
{
    uint8_t *data = in->data;
    size_t whole;
    int rc;

    in->have += bytes;
    rc = measure(in, data, in->have, &whole);
    if (rc <= 0)
        return rc;
    in->data = NULL;
    in->have = 0;
    rc = hand_out(data, whole, fn, user);
    free(data);
    return rc < 0 ? rc : 0;
}

int fbr_sp_took(struct fbr_sp_in *in, uint8_t *scratch, size_t bytes, fbr_sp_fn fn, void *user)
{
    uint8_t *at = scratch;
    size_t left = in->have + bytes, whole = 0;
    int rc = 0;

    if (in->data)
        return took_long(in, bytes, fn, user);
    in->have = 0;
    while (rc >= 0 && left) {
        bool greeting = !in->greeted;

        if ((uintptr_t)at % 8) /* behind a message of an odd length */
            at = memmove(scratch, at, left);
        rc = greeting ? greet(in, at, left, &whole) : measure(in, at, left, &whole);
        if (rc == 0)
            return keep(in, at, left, whole);
        if (rc > 0 && !greeting)
            rc = hand_out(at, whole, fn, user);
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

void fbr_sp_head(uint8_t head[FBR_SP_HEAD], size_t len)
{
    uint64_t n = htobe64(len + REQUEST_ID);
    uint32_t id = htobe32(THE_REQUEST);

    memcpy(head, &n, sizeof(n));
    memcpy(head + LENGTH, &id, sizeof(id));
}
