/* sp.h - the framing of nanomsg's messages over TCP and over unix sockets (its "SP" mappings), as a
 * raw REP socket sees it; pure, but for allocation.
 *
 * Each end opens with 8 bytes: 00 'S' 'P' 00, the protocol (u16, big endian: 0x30 REQ, 0x31 REP),
 * 00
 * 00. Then each message is its length (u64, big endian) and so many bytes, of which the first four
 * are the request id, with its top bit set; an answer repeats them. Over unix sockets a byte 01
 * stands before each length.
 *
 * A reader keeps no memory for a peer that may send short messages only: what is not whole of those
 * fits into the reader itself. Whole messages are handed out where they were received.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_SP_H
#define FBR_SP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_SP_GREETING 8
#define FBR_SP_HEAD 12                    /* of each message: its length, the request id */
#define FBR_SP_HEAD_MAX (FBR_SP_HEAD + 1) /* with the byte before them */
#define FBR_SP_SHORT 64
/* Room for received bytes, of all readers of one thread: one message of FBR_MUX_MAX fits. */
#define FBR_SP_SCRATCH (320 * 1024)

extern const uint8_t fbr_sp_req_greeting[FBR_SP_GREETING], fbr_sp_rep_greeting[FBR_SP_GREETING];

struct fbr_sp_in {
    size_t most; /* longest message that is taken, without its head; the owner may raise it */
    bool local;  /* over a unix socket */
    bool greeted;
    size_t have, whole; /* bytes kept; of a long message: all that it has */
    uint8_t *data;      /* the beginning of a long message. NULL: `few` has what is kept */
    uint8_t few[FBR_SP_SHORT];
};

/* Takes a message, at an address that is 4 above a multiple of 8, valid during the call. Negative:
 * nothing more is read. */
typedef int (*fbr_sp_fn)(void *user, void *msg, size_t len);

/* Returns where the next bytes go, *room of them at most. `scratch` has FBR_SP_SCRATCH bytes,
 * aligned to 16; its contents need not be kept between fbr_sp_took() and the next fbr_sp_room(). */
void *fbr_sp_room(const struct fbr_sp_in *in, uint8_t *scratch, size_t *room);
/* Takes so many new bytes and hands out the messages that are whole. -EPROTO: not a peer of ours;
 * -EMSGSIZE: a length above `most`, or below the least; -ENOMEM; or the error of fn. */
int fbr_sp_took(struct fbr_sp_in *in, uint8_t *scratch, size_t bytes, fbr_sp_fn fn, void *user);
void fbr_sp_in_fini(struct fbr_sp_in *in);

/* Writes the head of a message of so many bytes, and returns how long the head is. */
size_t fbr_sp_head(uint8_t head[FBR_SP_HEAD_MAX], size_t len, bool local);
/* Reads the length of a message over a unix socket from its whole head: 1, -EPROTO or -EMSGSIZE. */
int fbr_sp_length(const uint8_t head[FBR_SP_HEAD_MAX], size_t most, size_t *len);

#endif
