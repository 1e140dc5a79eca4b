/* aead.h - encryption and authentication of data frames, one object per direction of a link.
 *
 * A sealed frame is its plaintext's length plus FBR_AEAD_TAG bytes, under a key that serves this
 * one direction (from fbr_tls_export, with the direction in its label). The nonce is 4 zero bytes
 * and a 64-bit big-endian counter that the sender chooses, 1, 2, 3, and so on; the frame's header
 * carries it. The additional data (job, peers) is bound in but not sent. Both ends must have been
 * told the same algorithm, e.g. the receiver's fbr_aead_preferred() in the authenticated greeting.
 *
 * Frames may arrive out of order and be lost, but none is accepted twice: the receiver remembers
 * the last FBR_AEAD_WINDOW counters and refuses what is older. Only an authentic frame moves that
 * window.
 *
 * A key is used up long before its security bounds are touched (RFC 8446, section 5.5, and RFC
 * 9001, section 6.6): after 2^50 bytes sealed or 2^36 forgeries, calls answer -EKEYEXPIRED and the
 * link must be set up anew.
 *
 * Threads: one object belongs to one thread at a time; different objects may be used in parallel. A
 * forked child must not seal with its parent's object: both would use the same counters, which
 * gives the key away. The first object of a process initialises OpenSSL.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FBR_AEAD_H
#define FBR_AEAD_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/random.h"

#define FBR_AEAD_TAG 16        /* bytes that a frame grows by */
#define FBR_AEAD_AAD_MAX 256   /* bytes of additional data */
#define FBR_AEAD_WINDOW 1984   /* the newest counter and the 1,983 below it are told apart */
#define FBR_AEAD_MAX (1 << 30) /* bytes of plaintext in one frame */

/* The numbers travel in greetings: never renumber. */
enum fbr_aead_alg { FBR_AEAD_AES_256_GCM = 1, FBR_AEAD_CHACHA20_POLY1305 = 2 };
enum fbr_aead_way { FBR_AEAD_SEND, FBR_AEAD_RECEIVE };

struct evp_cipher_ctx_st;

struct fbr_aead { /* all members are private */
    struct evp_cipher_ctx_st *ctx;
    enum fbr_aead_way way;
    uint64_t counter; /* of the last frame that was sealed, or the highest that was opened */
    uint64_t spent;   /* bytes sealed, or forgeries refused */
    uint64_t seen[FBR_AEAD_WINDOW / 64 + 1]; /* ring of bits, by counter */
    size_t aad_len;
    uint8_t aad[FBR_AEAD_AAD_MAX];
};

/* AES-256-GCM where the processor has instructions for it, else ChaCha20-Poly1305. Costs
 * nothing. */
enum fbr_aead_alg fbr_aead_preferred(void);

/* 0, -EINVAL for an unknown algorithm or too much additional data, -ENOTSUP when OpenSSL lacks the
 * algorithm, or -ENOMEM; after an error s needs no fini. Key and aad are copied. */
int fbr_aead_init(struct fbr_aead *s, enum fbr_aead_way way, enum fbr_aead_alg alg,
                  const uint8_t key[FBR_KEY_SIZE], const void *aad, size_t aad_len)
    __attribute__((warn_unused_result));
/* Wipes the key; accepts an object of zeros and one that was ended before. */
void fbr_aead_fini(struct fbr_aead *s);

/* Seals len bytes into out, which takes len + FBR_AEAD_TAG; out may be in itself, but not overlap
 * it otherwise. Sets *counter. 0, -EMSGSIZE, -EKEYEXPIRED, -EINVAL on a receiver, or -EIO (out is
 * then not to be used). */
int fbr_aead_encrypt(struct fbr_aead *s, uint64_t *counter, const void *in, size_t len, void *out)
    __attribute__((warn_unused_result));

/* Opens a frame of len bytes, tag included, into out, which takes len - FBR_AEAD_TAG; out may be in
 * itself. 0, or -EBADMSG for a frame that is forged, damaged, too short, from before the window or
 * was here already; -EMSGSIZE, -EKEYEXPIRED, -EINVAL on a sender. When a frame does not
 * authenticate, what would have been its plaintext is zeros (so in place, the frame is gone). */
int fbr_aead_decrypt(struct fbr_aead *s, uint64_t counter, const void *in, size_t len, void *out)
    __attribute__((warn_unused_result));

#endif
