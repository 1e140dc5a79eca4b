/* aead.h - AEAD encryption of data frames, with one object per direction of a link.
 *
 * An encrypted frame is FBR_AEAD_TAG bytes longer than its plaintext. Its key serves only this
 * direction (from fbr_tls_export, with the direction in the label). The nonce is 4 zero bytes and a
 * 64-bit big-endian counter. The sender counts 1, 2, 3, and so on; the frame's header carries the
 * counter. The additional data (job, peers) is authenticated but not sent. Both ends must use the
 * same algorithm, for example the receiver's fbr_aead_preferred() from the authenticated greeting.
 *
 * Frames may be lost, but none is accepted twice or behind a later one: the receiver refuses a
 * frame whose counter is not above that of the last authentic one.
 *
 * A key expires long before its security bounds are reached (RFC 8446, section 5.5, and RFC 9001,
 * section 6.6): after 2^50 bytes encrypted or 2^36 forgeries, calls return -EKEYEXPIRED and the
 * link needs new keys.
 *
 * Threads: one object belongs to one thread at a time; different objects may be used in parallel. A
 * forked child must not encrypt with its parent's object: both would use the same counters, which
 * breaks the encryption. The first object of a process initialises OpenSSL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/base/random.h"

#define FBR_AEAD_TAG 16        /* bytes that encryption adds to a frame */
#define FBR_AEAD_AAD_MAX 256   /* bytes of additional data */
#define FBR_AEAD_MAX (1 << 30) /* bytes of plaintext in one frame */

/* The numbers travel in greetings: never renumber. */
enum fbr_aead_alg { FBR_AEAD_AES_256_GCM = 1, FBR_AEAD_CHACHA20_POLY1305 = 2 };
enum fbr_aead_way { FBR_AEAD_SEND, FBR_AEAD_RECEIVE };

struct evp_cipher_ctx_st;

struct fbr_aead { /* all members are private */
    struct evp_cipher_ctx_st *ctx;
    enum fbr_aead_way way;
    uint64_t counter; /* of the last frame that was encrypted or decrypted */
    uint64_t spent;   /* bytes encrypted, or forgeries refused */
    size_t aad_len;
    uint8_t aad[FBR_AEAD_AAD_MAX];
};

/* Returns AES-256-GCM if the processor has instructions for it, else ChaCha20-Poly1305. Takes no
 * time. */
enum fbr_aead_alg fbr_aead_preferred(void);

/* Returns 0, -EINVAL for an unknown algorithm or too much additional data, -ENOTSUP if OpenSSL
 * lacks the algorithm, or -ENOMEM. After an error s needs no fini. Copies key and aad. */
int fbr_aead_init(struct fbr_aead *s, enum fbr_aead_way way, enum fbr_aead_alg alg,
                  const uint8_t key[FBR_KEY_SIZE], const void *aad, size_t aad_len)
    __attribute__((warn_unused_result));
/* Wipes the key. Accepts an object of zeros, and one that was finished before. */
void fbr_aead_fini(struct fbr_aead *s);

/* Encrypts len bytes into out, which must have room for len + FBR_AEAD_TAG bytes. out may equal in,
 * but must not overlap it otherwise. Sets *counter. Returns 0, -EMSGSIZE, -EKEYEXPIRED, -EINVAL on
 * a receiver, or -EIO (then do not use out). */
int fbr_aead_encrypt(struct fbr_aead *s, uint64_t *counter, const void *in, size_t len, void *out)
    __attribute__((warn_unused_result));

/* Decrypts a frame of len bytes, with its tag, into out, which must have room for len -
 * FBR_AEAD_TAG bytes. out may equal in. Returns 0, or -EBADMSG for a frame that is forged, damaged,
 * too short, or not newer than the last one; -EMSGSIZE, -EKEYEXPIRED, -EINVAL on a sender.
 * If a frame does not authenticate, out is filled with zeros (so if out equals in, the frame is
 * gone). */
int fbr_aead_decrypt(struct fbr_aead *s, uint64_t counter, const void *in, size_t len, void *out)
    __attribute__((warn_unused_result));
