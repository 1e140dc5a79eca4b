/* sp.h - nanomsg's message framing over TCP and unix sockets (its "SP" mappings), as a raw REP
 * socket uses it.
 *
 * The code is pure, except fbr_sp_write(), and that it allocates memory. Each end first sends 8
 * bytes: 00 'S' 'P' 00, the protocol (u16, big endian: 0x30 REQ, 0x31 REP), 00 00. Each message is
 * its length (u64, big endian) and that many bytes. The first four of them are the request id, with
 * its top bit set; an answer repeats the id. Over unix sockets a byte 01 precedes each length.
 *
 * A reader allocates no memory for a peer that may send only short messages: an incomplete short
 * message fits into the reader itself. Complete messages are passed on where they were received.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FBR_SP_GREETING 8
#define FBR_SP_HEAD 12                    /* head of each message: its length, the request id */
#define FBR_SP_HEAD_MAX (FBR_SP_HEAD + 1) /* with the byte that precedes it */
#define FBR_SP_SHORT 64
/* Room for received bytes, which the readers of one thread may share: one message of FBR_MUX_MAX
 * fits. */
#define FBR_SP_SCRATCH (320 * 1024)

extern const uint8_t fbr_sp_req_greeting[FBR_SP_GREETING], fbr_sp_rep_greeting[FBR_SP_GREETING];

struct fbr_sp_in {
    size_t most; /* longest message accepted, without its head; the owner may raise it */
    bool local;  /* over a unix socket */
    bool greeted;
    size_t have, whole; /* bytes kept, and bytes of the whole long message */
    uint8_t *data;      /* the beginning of a long message; NULL: `few` has the kept bytes */
    uint8_t few[FBR_SP_SHORT];
};

/* Handles a message, which is valid during the call, at an address that is 4 above a multiple of 8.
 * Negative: read nothing more. */
typedef int (*fbr_sp_fn)(void *user, void *msg, size_t len);

/* Returns where to put the next bytes, at most *room of them. `scratch` has FBR_SP_SCRATCH bytes,
 * aligned to 16. Its contents may change between fbr_sp_took() and the next fbr_sp_room(). */
void *fbr_sp_room(const struct fbr_sp_in *in, uint8_t *scratch, size_t *room);
/* Handles this many new bytes and passes each complete message to fn. -EPROTO: not our protocol;
 * -EMSGSIZE: a length above `most`, or below the minimum; -ENOMEM; or the error of fn. */
int fbr_sp_took(struct fbr_sp_in *in, uint8_t *scratch, size_t bytes, fbr_sp_fn fn, void *user);
void fbr_sp_in_fini(struct fbr_sp_in *in);

/* Writes the head of a message of len bytes, and returns the length of the head. */
size_t fbr_sp_head(uint8_t head[FBR_SP_HEAD_MAX], size_t len, bool local);
/* Sends a message of len bytes, with its head, without waiting. *sent: bytes that earlier calls
 * have sent. 0: all is sent; -EAGAIN: call it again when there is room; or another error. */
int fbr_sp_write(int fd, const void *msg, size_t len, size_t *sent, bool local);
